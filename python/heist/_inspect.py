"""What is wrong with PTX, and what a rule means."""

from __future__ import annotations

import os

from . import _native


def read(ptx: str | os.PathLike[str]) -> tuple[str, str]:
    """The text and a name for it: PTX or a log as text, or the path of a file with it."""
    if isinstance(ptx, os.PathLike) or "\n" not in ptx and len(ptx) < 4096:
        path = os.fspath(ptx)
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                return file.read(), path
        except FileNotFoundError:
            if isinstance(ptx, os.PathLike) or not ptx.lstrip().startswith((".version", "//")):
                raise FileNotFoundError(
                    f"there is no file {path!r}; give the path of a file with PTX, or its text"
                ) from None
    return os.fspath(ptx), "<text>"


def check(ptx: str | os.PathLike[str]) -> list[_native.Finding]:
    """What is wrong with PTX without running it, or what a log of ptxas or
    compute-sanitizer means.

    ``ptx`` is text, or the path of a file. An empty list means that nothing was
    proven, not that nothing is wrong: :func:`heist.run` finds more.

    >>> found = heist.check('''
    ... .version 8.0
    ... .target sm_90
    ... .address_size 64
    ... .visible .entry k() {
    ...     .shared .align 16 .b8 tile[64];
    ...     .reg .b32 %r<5>;
    ...     ld.shared.v4.b32 {%r1, %r2, %r3, %r4}, [tile+4];
    ...     ret;
    ... }''')
    >>> found[0].code
    'M007'
    """
    text, name = read(ptx)
    return _native.check(text, name)


def explain(code: str) -> str:
    """The page about a rule, as Markdown: what it means, an example, and what to do.

    >>> print(heist.explain("M007").splitlines()[0])
    # M007: an address that is not a multiple of the access size
    """
    return _native.explain(code)
