"""Real mistakes in kernels of the CuTe DSL. Each test passes on many machines; `pytest --heist` says why it should not."""

import cutlass
import cutlass.cute as cute
import cutlass.memory
import torch
from cutlass.cute.nvgpu import cpasync
from cutlass.cute.runtime import from_dlpack


@cute.kernel
def reverse_kernel(x: cute.Tensor, out: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    tile = cutlass.memory.SmemAllocator().allocate_tensor(cutlass.Float32, cute.make_layout(128), 16)
    tile[thread] = x[thread]
    out[thread] = tile[127 - thread]


@cute.jit
def reverse(x: cute.Tensor, out: cute.Tensor):
    reverse_kernel(x, out).launch(grid=[1, 1, 1], block=[128, 1, 1])


def test_barrier_that_is_missing():
    x, out = torch.arange(128.0, device="cuda"), torch.zeros(128, device="cuda")
    reverse(from_dlpack(x), from_dlpack(out))


@cute.kernel
def staged_kernel(x: cute.Tensor, out: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    tile = cutlass.memory.SmemAllocator().allocate_tensor(cutlass.Float32, cute.make_layout(128), 16)
    load = cute.make_copy_atom(cpasync.CopyG2SOp(), cutlass.Float32, num_bits_per_copy=32)
    cute.copy(load, cute.local_tile(x, (1,), (thread,)), cute.local_tile(tile, (1,), (thread,)))
    cute.arch.cp_async_commit_group()
    cute.arch.sync_threads()
    out[thread] = tile[127 - thread] * 2.0


@cute.jit
def staged(x: cute.Tensor, out: cute.Tensor):
    staged_kernel(x, out).launch(grid=[1, 1, 1], block=[128, 1, 1])


def test_copy_that_nobody_waits_for():
    x, out = torch.arange(128.0, device="cuda"), torch.zeros(128, device="cuda")
    staged(from_dlpack(x), from_dlpack(out))


@cute.kernel
def scale_kernel(x: cute.Tensor, out: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    i = block * 128 + thread
    out[i] = x[i] * 2.0


@cute.jit
def scale(x: cute.Tensor, out: cute.Tensor):
    scale_kernel(x, out).launch(grid=[cute.ceil_div(cute.size(out), 128), 1, 1], block=[128, 1, 1])


def test_tile_without_a_predicate():
    x, out = torch.ones(1000, device="cuda"), torch.zeros(1000, device="cuda")
    scale(from_dlpack(x), from_dlpack(out))
