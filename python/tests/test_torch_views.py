"""Queries, keys and values that are parts of larger tensors: kernels read them where they lie, and what lies beside them changes nothing."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: the operations for it are not tested")

import heist.torch as ht
from heist.torch._device import PLANS
from heist.torch._layout import laid_out, mostly_rows, view_of
from references import attention, close

BF16 = torch.bfloat16


def random(*shape):
    return torch.randn(*shape).to(BF16)


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(11)
    PLANS.clear()


def planned():
    """Whether each plan that was made since the test began is one of views."""
    return ["of views" in found[0].plan.name for found in PLANS.values()]


def projected(batch, rows, heads, kv_heads, dim):
    """Queries, keys and values of one projection, (batch, heads, rows, elements)."""
    whole = random(batch, rows, heads + 2 * kv_heads, dim)
    return [t.transpose(1, 2) for t in whole.split([heads, kv_heads, kv_heads], dim=2)]


@pytest.mark.parametrize("rows, heads, kv_heads, dim", [(33, 2, 2, 64), (70, 4, 1, 32), (1, 8, 2, 64), (20, 1, 1, 128)])
@pytest.mark.parametrize("causal", [False, True])
def test_a_projection_is_not_copied(rows, heads, kv_heads, dim, causal):
    q, k, v = projected(2, rows, heads, kv_heads, dim)
    expected, _ = attention(q, k, v, causal=causal)
    for _ in range(2):
        out = ht.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=heads != kv_heads)
        close(out, expected)
    assert planned() == [True]


def test_heads_whose_three_lie_together():
    """As some models have them: (batch, rows, heads, 3, elements)."""
    q, k, v = (t.transpose(1, 2) for t in random(2, 40, 2, 3, 64).unbind(3))
    close(ht.scaled_dot_product_attention(q, k, v), attention(q, k, v)[0])
    assert planned() == [True]


def test_the_first_rows_of_a_cache():
    q, cache = random(2, 4, 1, 64), random(2, 2, 2, 128, 64)
    k, v = (t[:, :, :90] for t in cache)
    close(ht.scaled_dot_product_attention(q, k, v, enable_gqa=True), attention(q, k, v)[0])
    assert planned() == [True]


def test_one_key_head_lies_in_both_ways():
    """So the queries say how kernels are to read."""
    q, k, v = (random(2, 30, heads, 64).transpose(1, 2) for heads in (4, 1, 1))
    assert mostly_rows(q, k, v)
    close(ht.scaled_dot_product_attention(q, k, v, enable_gqa=True), attention(q, k, v)[0])
    assert planned() == [False]


def with_gradients(given, exact, out, expected):
    """The results and the gradients of one projection, of which nothing was copied."""
    close(out.detach(), expected.detach())
    seed = random(*out.shape)
    out.backward(seed)
    expected.backward(seed.double())
    close(given.grad, exact.grad)
    assert planned() == [True, True]


@pytest.mark.parametrize("deterministic", [False, True])
def test_gradients(deterministic):
    whole = random(2, 40, 3, 2, 64)
    given = whole.clone().requires_grad_()
    exact = whole.double().requires_grad_()
    out = ht.flash_attn_qkvpacked_func(given, causal=True, deterministic=deterministic)
    expected, _ = attention(*(t.transpose(1, 2) for t in exact.unbind(2)), causal=True)
    expected = expected.transpose(1, 2)
    with_gradients(given, exact, out, expected)


def test_packed_sequences_and_their_gradients():
    whole = random(50, 3, 2, 64)
    given, exact = whole.clone().requires_grad_(), whole.double().requires_grad_()
    lengths = [17, 0, 33]
    starts = torch.tensor([0, 17, 17, 50], dtype=torch.int32)
    out = ht.flash_attn_varlen_qkvpacked_func(given, starts, 33, causal=True)
    parts = [t.split(lengths) for t in exact.unbind(1)]
    each = [attention(*(t.transpose(0, 1)[None] for t in own), causal=True)[0][0].transpose(0, 1) for own in zip(*parts)]
    expected = torch.cat(each)
    with_gradients(given, exact, out, expected)


def test_what_no_kernel_steps_through_is_copied():
    apart = random(2, 2, 30, 68)[..., :64]
    whole = [random(2, 2, 30, 64) for _ in range(2)]
    repeated = random(1, 2, 30, 64).expand(2, -1, -1, -1)
    for k in (apart, repeated):
        assert view_of(k, False) is None
        assert laid_out(False, whole[0], k, whole[1]) == ([True, False, True], None)
        close(ht.scaled_dot_product_attention(whole[0], k, whole[1]), attention(whole[0], k, whole[1])[0])
    assert planned() == [False, False]


def odd(*shape):
    """Random numbers that begin two bytes behind a multiple of 16."""
    whole = random(*shape)
    return torch.empty(whole.numel() + 8, dtype=BF16)[1 : 1 + whole.numel()].view(shape).copy_(whole)


def test_what_begins_anywhere_is_copied():
    """Whichever of the three it is, and whether or not the same was asked for with others."""
    starts = torch.tensor([0, 9, 20], dtype=torch.int32)
    for which in range(3):
        for _ in range(2):
            q, k, v = (odd(1, 20, 2, 16) if n == which else random(1, 20, 2, 16) for n in range(3))
            want = attention(*(t.transpose(1, 2) for t in (q, k, v)))[0]
            close(ht.scaled_dot_product_attention(*(t.transpose(1, 2) for t in (q, k, v))), want)
            close(ht.flash_attn_func(q, k, v).transpose(1, 2), want)
            parts = [attention(*(t[:, s].transpose(1, 2) for t in (q, k, v)))[0] for s in (slice(9), slice(9, 20))]
            packed = ht.flash_attn_varlen_func(q[0], k[0], v[0], starts, starts, 11, 11)
            close(packed.transpose(0, 1)[None], torch.cat(parts, 2))
    q, k, v = (odd(1, 2, 20, 16).requires_grad_() for _ in range(3))
    exact = [t.detach().double().requires_grad_() for t in (q, k, v)]
    ht.scaled_dot_product_attention(q, k, v).sum().backward()
    attention(*exact)[0].sum().backward()
    for own, other in zip((q, k, v), exact):
        close(own.grad, other.grad)


def test_older_gpus_get_copies():
    ht.simulate("a100")
    try:
        q, k, v = projected(1, 20, 2, 2, 32)
        close(ht.scaled_dot_product_attention(q, k, v), attention(q, k, v)[0])
        assert planned() == [False]
    finally:
        ht.simulate()
