"""Kernels of the CuTe DSL, as they are, on a simulated GPU that checks them.

>>> import heist.cute
>>> with heist.cute.simulate("h200"):                              # doctest: +SKIP
...     launch(from_dlpack(a), from_dlpack(b), from_dlpack(c))

Inside the block ``cute.compile`` and calls of ``@cute.jit`` functions compile for that GPU, and
every launch of their host code runs on a simulated one, over tensors of PyTorch on the CPU or
arrays of numpy. What is wrong raises :class:`heist.FindingError` with the line of the Python
source, the rule and what to do. There needs to be no GPU, no driver and no CUDA toolkit.
"""

from __future__ import annotations

from typing import Any

from .._launches import CompilerWarning, Launched
from ._session import Session, active, simulate

__all__ = ["CompilerWarning", "Launched", "Session", "active", "check", "simulate"]


def check(function: Any, *args: Any, device: str = "h200", **how: Any) -> list[Any]:
    """Calls a ``@cute.jit`` function once on a simulated GPU; what was found in its launches, an
    empty list where all is well.

    ``explore``, ``seed`` and ``limit_s`` are as for :func:`simulate`; every other keyword goes
    to the function.

    >>> heist.cute.check(launch, from_dlpack(a), from_dlpack(b), from_dlpack(c))   # doctest: +SKIP
    []
    """
    ours = {name: how.pop(name) for name in ("explore", "seed", "limit_s") if name in how}
    with simulate(device, raises=False, **ours) as session:
        function(*args, **how)
    return [finding for launch in session.launches for finding in launch.findings]
