"""Mistakes in Gluon kernels that look right: ``pytest --heist gluon_gallery.py`` finds them without a GPU.

Gluon leaves waits, fences and phases to whoever writes the kernel; ``docs/gallery.md`` shows what is said.
"""

import pytest
import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.blackwell import TensorMemoryLayout, allocate_tensor_memory, tcgen05_commit, tcgen05_mma
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier, tma
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor


def tiles(tensor, block):
    kind = {torch.float16: gl.float16, torch.float32: gl.float32}[tensor.dtype]
    return TensorDescriptor.from_tensor(tensor, block, gl.NVMMASharedLayout.get_default_for(block, kind))


@gluon.jit
def increment(x, out, steps):
    layout: gl.constexpr = gl.BlockedLayout([1, 4], [4, 8], [4, 1], [1, 0])
    box = gl.allocate_shared_memory(x.dtype, x.block_type.shape, x.layout)
    full = mbarrier.allocate_mbarrier()
    mbarrier.init(full, count=1)
    for step in range(steps):
        mbarrier.expect(full, x.block_type.nbytes)
        tma.async_load(x, [0, 32 * step], full, box)
        mbarrier.wait(full, 0)
        value = box.load(layout) + 1
        rows = gl.arange(0, 16, gl.SliceLayout(1, layout))
        columns = 32 * step + gl.arange(0, 32, gl.SliceLayout(0, layout))
        gl.store(out + rows[:, None] * 32 * steps + columns[None, :], value)


def test_phase_that_is_never_flipped():
    x, out = torch.ones(16, 128, device="cuda"), torch.zeros(16, 128, device="cuda")
    increment[(1,)](tiles(x, [16, 32]), out, 4)
    assert (out == 2).all()


@gluon.jit
def fill_tiles(out, tiles_of_a_row):
    layout: gl.constexpr = gl.BlockedLayout([1, 4], [4, 8], [4, 1], [1, 0])
    box = gl.allocate_shared_memory(out.dtype, out.block_type.shape, out.layout)
    for tile in range(tiles_of_a_row):
        box.store(gl.full(out.block_type.shape, 1.0, gl.float32, layout))
        fence_async_shared()
        tma.async_store(out, [0, 32 * tile], box)
    tma.store_wait(0)


def test_buffer_used_again_too_early():
    out = torch.zeros(16, 128, device="cuda")
    fill_tiles[(1,)](tiles(out, [16, 32]), 4)
    assert (out == 1).all()


@gluon.jit
def product(a, b, c):
    left = gl.allocate_shared_memory(a.dtype, a.block_type.shape, a.layout)
    right = gl.allocate_shared_memory(b.dtype, b.block_type.shape, b.layout)
    sums = allocate_tensor_memory(gl.float32, [128, 64], TensorMemoryLayout([128, 64], col_stride=1))
    full, done = mbarrier.allocate_mbarrier(), mbarrier.allocate_mbarrier()
    mbarrier.init(full, count=1)
    mbarrier.init(done, count=1)
    mbarrier.expect(full, a.block_type.nbytes + b.block_type.nbytes)
    tma.async_load(a, [0, 0], full, left)
    tma.async_load(b, [0, 0], full, right)
    mbarrier.wait(full, 0)
    tcgen05_mma(left, right, sums, use_acc=False)
    tcgen05_commit(done)
    value = sums.load()
    rows = gl.arange(0, 128, gl.SliceLayout(1, value.type.layout))
    columns = gl.arange(0, 64, gl.SliceLayout(0, value.type.layout))
    gl.store(c + rows[:, None] * 64 + columns[None, :], value)
    mbarrier.wait(done, 0)


@pytest.mark.heist("b200")
def test_product_read_before_it_is_done():
    a, b = torch.ones(128, 32, device="cuda", dtype=torch.float16), torch.ones(32, 64, device="cuda", dtype=torch.float16)
    c = torch.zeros(128, 64, device="cuda")
    product[(1,)](tiles(a, [128, 32]), tiles(b, [32, 64]), c)
    assert (c == 32).all()
