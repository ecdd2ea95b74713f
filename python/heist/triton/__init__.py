"""Triton kernels, as they are, on a simulated GPU that checks them.

>>> import heist.triton
>>> with heist.triton.simulate("h200"):                            # doctest: +SKIP
...     kernel[grid](x, y, out, n, BLOCK=1024)

Inside the block a launch compiles the kernel for that GPU and runs it on a simulated one,
over tensors of PyTorch on the CPU or arrays of numpy. What is wrong (an access out of
bounds, a race, a read of memory that nobody wrote) raises :class:`heist.FindingError` with
the line of the Python source, the rule and what to do. There needs to be no GPU, no driver
and no CUDA toolkit.
"""

from __future__ import annotations

from typing import Any

from ._inductor import load_inductor
from ._session import CompilerWarning, Launched, Session, active, simulate

__all__ = ["CompilerWarning", "Launched", "Session", "active", "check", "load_inductor", "simulate"]


def check(kernel: Any, grid: Any, *args: Any, device: str = "h200", **how: Any) -> list[Any]:
    """Launches a kernel once on a simulated GPU; what was found, an empty list where all is well.

    ``explore``, ``seed`` and ``limit_s`` are as for :func:`simulate`; every other keyword goes
    to the kernel.

    >>> heist.triton.check(add, (4,), x, y, out, n, BLOCK=1024)     # doctest: +SKIP
    []
    """
    ours = {name: how.pop(name) for name in ("explore", "seed", "limit_s", "configs") if name in how}
    with simulate(device, raises=False, **ours) as session:
        kernel[grid](*args, **how)
    return [finding for launch in session.launches for finding in launch.findings]
