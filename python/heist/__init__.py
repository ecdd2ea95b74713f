"""GPU kernels whose tiles are scheduled while they run, and a simulated GPU for any PTX.

* :mod:`heist.torch`: attention, products and grouped products for PyTorch.
* :mod:`heist.triton`, :mod:`heist.cute`: kernels of Triton and of the CuTe DSL, as they are, on a simulated GPU.
* :func:`check`: what is wrong with PTX, or what a log means, without running it.
* :func:`explain`: the page about a rule.
* :func:`run`: PTX on a simulated or a real GPU, with arrays as arguments.
* :class:`Kernel`: PTX that is assembled once and launched over arrays of a GPU.
* :class:`Emitted`: a kernel written in Rust, as ``heist emit --json`` prints it.
* :class:`Policy`: when a block asks for another tile.
* :func:`sweep`: the fastest kernel for a problem, tried by any executor; :mod:`heist.jobs`: other lists of jobs.

>>> import heist
>>> heist.Policy("max-steals(8) & first-half")
Policy('max-steals(8) & first-half')

Importing this package imports neither numpy nor PyTorch.
"""

from ._emitted import Emitted
from ._inspect import check, explain
from ._native import (
    Finding,
    FindingError,
    HeistError,
    Report,
    Trace,
    UnsupportedError,
    __version__,
)
from ._policy import Policy
from ._run import Kernel, run
from .tuning import Swept, sweep

__all__ = [
    "Emitted",
    "Finding",
    "FindingError",
    "HeistError",
    "Kernel",
    "Policy",
    "Report",
    "Swept",
    "Trace",
    "UnsupportedError",
    "__version__",
    "check",
    "explain",
    "run",
    "sweep",
]
