"""A small package of Triton kernels, tested without a GPU: ``pytest --heist python/examples/kernels``."""

import torch
import triton
import triton.language as tl


@triton.jit
def scale_kernel(x, out, factor, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    tl.store(out + at, tl.load(x + at, mask=mask) * factor, mask=mask)


def scale(x, factor):
    out = torch.empty_like(x)
    scale_kernel[(triton.cdiv(x.numel(), 128),)](x, out, factor, x.numel(), BLOCK=128)
    return out


@triton.jit
def total_kernel(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(out, tl.sum(tl.load(x + at, mask=at < n, other=0.0)))


def total(x):
    out = torch.zeros(1, device=x.device)
    total_kernel[(triton.cdiv(x.numel(), 128),)](x, out, x.numel(), BLOCK=128)
    return out


@triton.jit
def transpose_kernel(x, out, rows, columns, BLOCK: tl.constexpr):
    r = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[:, None]
    c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :]
    mask = (r < rows) & (c < columns)
    tl.store(out + c * rows + r, tl.load(x + r * columns + c, mask=mask), mask=mask)


def transpose(x):
    rows, columns = x.shape
    out = torch.empty(columns, rows, device=x.device)
    transpose_kernel[(triton.cdiv(rows, 32), triton.cdiv(columns, 32))](x, out, rows, columns, BLOCK=32)
    return out
