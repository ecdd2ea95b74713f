"""Mistakes in Triton kernels that look right: ``pytest --heist gallery.py`` finds them without a GPU.

Each result is right by chance on many GPUs, or most of the time; ``docs/gallery.md`` shows what is said.
"""

import torch
import triton
import triton.language as tl


@triton.jit
def scale(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at) * 2, mask=at < n)


def test_load_without_a_mask():
    x = torch.ones(1000, device="cuda")
    out = torch.empty_like(x)
    scale[(4,)](x, out, 1000, BLOCK=256)
    assert (out == 2).all()


@triton.jit
def row_max(x, out, columns, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    row = tl.program_id(0)
    values = tl.load(x + row * columns + at, mask=at <= columns, other=-float("inf"))
    tl.store(out + row, tl.max(values))


def test_mask_that_is_off_by_one():
    x = torch.rand(8, 100, device="cuda")
    row_max[(8,)](x, torch.empty(8, device="cuda"), 100, BLOCK=128)


@triton.jit
def mean(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(out, tl.sum(tl.load(x + at, mask=at < n, other=0.0)) / n)


def test_sum_into_memory_that_nobody_has_zeroed():
    x = torch.ones(1000, device="cuda")
    out = torch.empty(1, device="cuda")
    mean[(4,)](x, out, 1000, BLOCK=256)


@triton.jit
def count(labels, counts, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    label = tl.load(labels + at, mask=mask, other=0)
    before = tl.load(counts + label, mask=mask)
    tl.store(counts + label, before + 1, mask=mask)


def test_counts_without_atomics():
    labels = torch.arange(512, dtype=torch.int32, device="cuda") % 7
    count[(2,)](labels, torch.zeros(7, dtype=torch.int32, device="cuda"), 512, BLOCK=256)


@triton.jit
def shift_left(x, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    right = tl.load(x + at + 1, mask=at + 1 < n)
    tl.store(x + at, right, mask=at + 1 < n)


def test_neighbours_moved_in_place():
    shift_left[(4,)](torch.arange(1024.0, device="cuda"), 1024, BLOCK=256)


@triton.jit
def gather_row(table, row, columns, out, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(table + row * columns + at))


def test_offset_that_overflows_32_bits():
    table = torch.zeros(1, 256, device="cuda").expand(70_000, 256)
    gather_row[(1,)](table, 70_000, 40_000, torch.empty(256, device="cuda"), BLOCK=256)
