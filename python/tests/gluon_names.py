"""The names of Gluon 3.8 and later where Triton is older: the same functions under their old names.

Modules with kernels import this one first. Launch control has no older name: `clc` is None there.
"""

import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia import blackwell
from triton.experimental.gluon.language.nvidia.ampere import async_copy
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma

VERSION = tuple(map(int, triton.__version__.split(".")[:2]))
clc = getattr(blackwell, "clc", None)


@gluon.jit
def allocate_mbarrier(batch: gl.constexpr = None):
    if batch is None:
        return gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    else:
        return gl.allocate_shared_memory(gl.int64, [batch, 1], mbarrier.MBarrierLayout())


def add(module, name, function):
    if not hasattr(module, name):
        setattr(module, name, function)


add(async_copy, "async_load", async_copy.async_copy_global_to_shared)
add(tma, "async_load", tma.async_copy_global_to_shared)
add(tma, "async_store", tma.async_copy_shared_to_global)
add(mbarrier, "allocate_mbarrier", allocate_mbarrier)
