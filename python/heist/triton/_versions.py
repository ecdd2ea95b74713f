"""Which versions of Triton are known to work."""

from __future__ import annotations

import re
import warnings

from .. import _native

# `cargo xtask python --triton VERSION...` runs the tests with others.
OLDEST, NEWEST = (3, 6), (3, 9)


def check(version: str) -> None:
    """Refuses a Triton that lacks what is asked of it, and warns of one that is newer than any that was tried."""
    found = re.match(r"(\d+)\.(\d+)", version)
    known = (int(found[1]), int(found[2])) if found else OLDEST
    if known < OLDEST:
        raise _native.UnsupportedError(
            f"heist.triton works with Triton {_text(OLDEST)} and newer, and this is {version}: its compiler gives no hook to keep the PTX. "
            f"pip install 'triton>={_text(OLDEST)}'"
        )
    if known > NEWEST:
        warnings.warn(
            f"heist.triton is tested with Triton {_text(OLDEST)} to {_text(NEWEST)}, and this is {version}. If a launch fails "
            f"inside Triton, try `pip install 'triton<{NEWEST[0]}.{NEWEST[1] + 1}'`",
            stacklevel=5,
        )


def _text(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))
