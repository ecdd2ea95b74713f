"""Launches of the corpus kernels and their right results, computed in plain Python and nowhere near a GPU.

A module here holds one function for each source, `@kernels("nvcc/saxpy")`, that yields a `Run` for each launch. What
it computes, it computes from what the source says, not from the PTX. Data are small integers or dyadic fractions
wherever a sum's order is not fixed, so that the result is exact in any order.
"""

from . import cute, hand, nvcc_async, nvcc_data, nvcc_scalar, nvcc_tensor, nvcc_threads, triton  # noqa: F401
from .run import lines_for


def header_lines(name: str, facts: dict, body: str) -> list:
    """The `// heist:` lines for one corpus file, named `folder/file` without its suffix."""
    return lines_for(name, facts, body)
