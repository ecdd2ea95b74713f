"""Tensors without elements, in every place where PyTorch takes them: the same shapes, and zeros where nothing is summed."""

import itertools

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: the operations for it are not tested")

import torch.nn.functional as F

import heist.torch as ht

F16, I32 = torch.float16, torch.int32


def ones(*shape):
    return torch.ones(shape, dtype=F16)


PRODUCTS = {
    "mm": (ht.mm, torch.mm, lambda m, n, k: ((m, k), (k, n))),
    "addmm": (ht.addmm, torch.addmm, lambda m, n, k: ((n,), (m, k), (k, n))),
    "bmm": (ht.bmm, torch.bmm, lambda m, n, k: ((2, m, k), (2, k, n))),
    "linear": (ht.linear, F.linear, lambda m, n, k: ((2, m, k), (n, k), (n,))),
    "linear of a vector": (ht.linear, F.linear, lambda m, n, k: ((k,), (n, k), (n,))),
    "linear to one number": (ht.linear, F.linear, lambda m, n, k: ((2, m, k), (k,), ())),
}


@pytest.mark.parametrize("ours, theirs, shapes", PRODUCTS.values(), ids=PRODUCTS)
def test_products_and_their_gradients(ours, theirs, shapes):
    for sizes in itertools.product((0, 3), repeat=3):
        given = [ones(*shape) for shape in shapes(*sizes)]
        want = theirs(*given)
        for _ in range(2):
            assert torch.equal(ours(*given), want), sizes
        mine, exact = ([t.clone().requires_grad_() for t in given] for _ in range(2))
        ours(*mine).sum().backward()
        theirs(*exact).sum().backward()
        for one, other in zip(mine, exact):
            assert torch.equal(one.grad, other.grad), sizes


def test_attention():
    for batch, heads, queries, keys in itertools.product((0, 1), (0, 2), (0, 3), (0, 3)):
        given = [ones(batch, heads, n, 16) for n in (queries, keys, keys)]
        want = F.scaled_dot_product_attention(*(t.double() for t in given)).half()
        assert torch.equal(ht.scaled_dot_product_attention(*given), want)
        assert torch.equal(ht.flash_attn_func(*(t.transpose(1, 2) for t in given)).transpose(1, 2), want)
        mine = [t.clone().requires_grad_() for t in given]
        ht.scaled_dot_product_attention(*mine).sum().backward()
        assert [t.grad.shape for t in mine] == [t.shape for t in given]


@pytest.mark.parametrize("lengths", [True, False])
@pytest.mark.parametrize("batch, room, queries", [(0, 16, 1), (1, 0, 1), (1, 16, 0), (0, 12, 1)])
def test_a_cache(batch, room, queries, lengths):
    q, cache = ones(batch, queries, 2, 64), ones(batch, room, 2, 64)
    filled = torch.zeros(batch, dtype=I32) if lengths else None
    out, lse = ht.flash_attn_with_kvcache(q, cache, cache, cache_seqlens=filled, return_softmax_lse=True)
    assert torch.equal(out, torch.zeros_like(q)) and lse.shape == (batch, 2, queries)
