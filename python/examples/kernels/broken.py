"""The same with a mistake each, as tests; by another name, so that they are not collected unasked:
``pytest --heist python/examples/kernels/broken.py``."""

import kernels
import pytest
import torch
import triton
import triton.language as tl


@triton.jit
def unmasked_kernel(x, out, factor, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at) * factor, mask=at < n)


def test_results_are_right_and_the_load_is_not():
    x = torch.ones(100, device="cuda")
    out = torch.empty_like(x)
    unmasked_kernel[(1,)](x, out, 3.0, 100, BLOCK=128)
    assert out.sum().item() == 300


def test_total_that_is_never_set_to_zero():
    x, out = torch.ones(300, device="cuda"), torch.empty(1, device="cuda")
    kernels.total_kernel[(3,)](x, out, 300, BLOCK=128)


def test_transpose_in_place():
    x = torch.randn(64, 64, device="cuda")
    kernels.transpose_kernel[(2, 2)](x, x, 64, 64, BLOCK=32)


@pytest.mark.heist(expects="M001")
def test_that_knows_its_mistake():
    x = torch.ones(100, device="cuda")
    kernels.scale_kernel[(1,)](x, x[:50].clone(), 2.0, 100, BLOCK=128)


@pytest.mark.heist(expects="R002")
def test_that_expects_what_is_not_there():
    kernels.scale(torch.ones(100, device="cuda"), 2.0)
