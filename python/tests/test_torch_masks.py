"""Masks with a number for each query and key, on the simulated GPU."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: the operations for it are not tested")

import torch.nn.functional as F

import heist._native
import heist.torch as ht
from references import attention, close

F16, BF16, F32 = torch.float16, torch.bfloat16, torch.float32
B, H, L, S = 2, 4, 7, 21


def qkv(heads=H, queries=L, keys=S, dim=32, dtype=BF16, kv_heads=2):
    make = lambda h, n: torch.randn(B, h, n, dim, dtype=dtype)  # noqa: E731
    return make(heads, queries), make(kv_heads, keys), make(kv_heads, keys)


def seen(*shape):
    mask = torch.rand(shape) > 0.5
    # Every query sees a key.
    mask[..., 0] = True
    return mask


#: Masks by what is odd about them.
MASKS = {
    "of all": lambda: seen(B, H, L, S),
    "of queries and keys": lambda: seen(L, S),
    "of padding": lambda: seen(B, 1, 1, S),
    "of each head": lambda: torch.randn(H, 1, S, dtype=F16),
    "of one sequence": lambda: torch.randn(1, H, L, S, dtype=BF16),
    "of numbers in f32": lambda: torch.randn(L, S),
    "of one key": lambda: torch.randn(B, 1, L, 1),
    "with room between rows": lambda: torch.randn(B, H, L, S + 9, dtype=BF16)[..., :S],
    "of every other key": lambda: seen(B, 1, L, 2 * S)[..., ::2],
    "transposed": lambda: torch.randn(S, L).t(),
    "expanded": lambda: seen(B, 1, 1, S).expand(B, H, L, S),
    "that begins at an odd place": lambda: seen(L * S + 3)[3:].view(L, S),
}


@pytest.mark.parametrize("name", MASKS)
def test_masks(name):
    torch.manual_seed(len(name))
    q, k, v = qkv(dtype=F16 if name == "of each head" else BF16)
    mask = MASKS[name]()
    out = ht.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True)
    close(out, attention(q, k, v, mask=mask)[0])
    # The one query of a decoding step, and its scale.
    last = mask if mask.shape[-2] == 1 else mask[..., -1:, :]
    out = ht.scaled_dot_product_attention(q[:, :, -1:], k, v, attn_mask=last, scale=0.3, enable_gqa=True)
    close(out, attention(q[:, :, -1:], k, v, mask=last, scale=0.3)[0])


@pytest.mark.parametrize("device", ["a100", "h200", "b200"])
def test_more_rows_than_a_tile_has(device):
    q, k, v = (torch.randn(1, 2, n, 64, dtype=BF16) for n in (150, 140, 140))
    mask = torch.randn(1, 2, 150, 140).masked_fill(torch.rand(150, 140) > 0.7, float("-inf"))
    ht.simulate(device)
    try:
        close(ht.scaled_dot_product_attention(q, k, v, attn_mask=mask), attention(q, k, v, mask=mask)[0])
    finally:
        ht.simulate()


def test_queries_that_see_nothing():
    """Zeros, as PyTorch has it; and where every key has the least number that there is, the mean."""
    q, k, v = qkv(kv_heads=H)
    hidden = torch.ones(L, S, dtype=torch.bool)
    hidden[2] = False
    least = torch.zeros(L, S, dtype=BF16).masked_fill(~hidden, torch.finfo(BF16).min)
    minus = torch.zeros(L, S).masked_fill(~hidden, float("-inf"))
    for mask in (hidden, least, minus):
        out = ht.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        theirs = F.scaled_dot_product_attention(q.double(), k.double(), v.double(), attn_mask=mask.double() if mask is not hidden else mask)
        close(out, theirs)
        assert (out[:, :, 2] == 0).all() == (mask is not least)
    lse = ht.flash_attn_func(*(t.transpose(1, 2) for t in (q, k, v)), attn_mask=hidden, return_attn_probs=True)[1]
    assert lse[:, :, 2].isneginf().all() and lse[:, :, 3].isfinite().all()


def test_numbers_that_are_none_stay():
    q, k, v = qkv(kv_heads=H)
    mask = torch.zeros(L, S)
    mask[1, 3] = float("nan")
    out = ht.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    assert out[:, :, 1].isnan().all() and out[:, :, 2:].isfinite().all()


def test_other_axes_and_other_heads():
    q, k, v = (torch.randn(2, 3, 2, n, 20, dtype=F16) for n in (5, 9, 9))
    for shape in ((2, 3, 2, 5, 9), (2, 1, 1, 5, 9), (3, 1, 1, 9), (5, 9)):
        mask = torch.randn(shape, dtype=F16)
        out = ht.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        close(out, F.scaled_dot_product_attention(q.double(), k.double(), v.double(), attn_mask=mask.double()))
    mask = seen(2, 5, 9)
    out = ht.scaled_dot_product_attention(q[0, 0], k[0, 0], v[0, 0], attn_mask=mask)
    close(out, attention(q[0, :1], k[0, :1], v[0, :1], mask=mask)[0][0])


def test_beside_what_flash_attn_has():
    q, k, v = qkv(queries=9)
    padding = torch.ones(B, 1, 1, S, dtype=torch.bool)
    padding[0, ..., :13] = False
    sinks, slopes = torch.tensor([1.0, -1.0, 0.5, 2.0]), torch.tensor([0.5, 0.25, 0.1, 0.0])
    given = [t.transpose(1, 2) for t in (q, k, v)]
    for ours, theirs in (
        ({"causal": True}, {"causal": True}),
        ({"window_size": (4, 0)}, {"window": (4, 0)}),
        ({"causal": True, "softcap": 2.0, "sinks": sinks}, {"causal": True, "softcap": 2.0, "sinks": sinks}),
        ({"alibi_slopes": slopes}, {"slopes": slopes}),
    ):
        out, lse, _ = ht.flash_attn_func(*given, attn_mask=padding, return_attn_probs=True, **ours)
        want, sums = attention(q, k, v, mask=padding, **theirs)
        close(out.transpose(1, 2), want)
        there = sums.isfinite()
        assert torch.equal(lse.isfinite(), there)
        close(lse[there], sums[there])


def test_the_second_call_is_the_compiled_part_s():
    q, k, v = qkv()
    first = seen(B, 1, L, S)
    ht.scaled_dot_product_attention(q, k, v, attn_mask=first, enable_gqa=True)
    before = heist._native.remembered()
    other = seen(B, 1, L, S)
    out = ht.scaled_dot_product_attention(q, k, v, attn_mask=other, enable_gqa=True)
    assert heist._native.remembered() == before
    close(out, attention(q, k, v, mask=other)[0])
    # The same numbers, laid out otherwise, are another call.
    across = other.transpose(2, 3).contiguous().transpose(2, 3).expand(B, 1, L, S)
    close(ht.scaled_dot_product_attention(q, k, v, attn_mask=across, enable_gqa=True), out.double())
    wide = torch.zeros(B, 1, L, S + 5, dtype=torch.bool)
    wide[..., :S] = other
    close(ht.scaled_dot_product_attention(q, k, v, attn_mask=wide[..., :S], enable_gqa=True), out.double())
    assert heist._native.remembered() > before


def test_compiled_and_under_autocast():
    q, k, v = qkv(kv_heads=H)
    mask = seen(B, 1, 1, S)

    def attend(q, k, v, mask):
        return ht.scaled_dot_product_attention(q, k, v, attn_mask=mask)

    compiled = torch.compile(attend, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(q, k, v, mask), attend(q, k, v, mask))
    with torch.autocast("cpu", dtype=BF16):
        out = attend(q.float(), k.float(), v.float(), mask.float().log())
    assert out.dtype == BF16
    close(out, attention(q, k, v, mask=mask)[0])


def test_without_queries_or_keys():
    q, k, v = qkv(kv_heads=H)
    assert ht.scaled_dot_product_attention(q[:, :, :0], k, v, attn_mask=torch.ones(0, S)).shape == (B, H, 0, 32)
    out = ht.scaled_dot_product_attention(q, k[:, :, :0], v[:, :, :0], attn_mask=torch.ones(L, 0))
    assert out.shape == q.shape and not out.any()


@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("name", ["of all", "of padding", "of each head", "of numbers in f32", "with room between rows"])
def test_gradients(name, deterministic):
    """Those of PyTorch's own in float64; of a query that sees nothing they are zeros."""
    q, k, v = qkv(dtype=F16 if name == "of each head" else BF16)
    mask = MASKS[name]()
    if name == "of all":
        mask[:, :, 3] = False
    results = []
    torch.use_deterministic_algorithms(deterministic)
    try:
        for attend, kind in ((ht.scaled_dot_product_attention, q.dtype), (F.scaled_dot_product_attention, torch.float64)):
            own = [t.detach().to(kind, copy=True).requires_grad_() for t in (q, k, v)]
            given = mask if mask.dtype == torch.bool or kind != torch.float64 else mask.double()
            out = attend(*own, attn_mask=given, scale=0.3, enable_gqa=True)
            (out * torch.arange(32)).sum().backward()
            results.append([out.detach(), *(t.grad for t in own)])
    finally:
        torch.use_deterministic_algorithms(False)
    for found, want in zip(*results):
        close(found, want, 3e-2)
    if name == "of all":
        assert not results[0][1][:, :, 3].any()
    with torch.no_grad():
        out = ht.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=0.3, enable_gqa=True)
    assert torch.equal(out, results[0][0])


def test_compiled_gradients():
    q, k, v = (t.requires_grad_() for t in qkv(kv_heads=H))
    mask = seen(B, 1, 1, S)

    def loss(q, k, v, mask):
        return ht.scaled_dot_product_attention(q, k, v, attn_mask=mask).float().square().sum()

    wanted = torch.autograd.grad(loss(q, k, v, mask), (q, k, v))
    found = torch.autograd.grad(torch.compile(loss, fullgraph=True, backend="aot_eager")(q, k, v, mask), (q, k, v))
    for a, b in zip(found, wanted):
        close(a, b.double())


@pytest.mark.parametrize("dtype", [torch.bool, BF16, F32], ids=str)
@pytest.mark.parametrize("begin, room", [(0, 0), (1, 1), (2, 2), (1, 2)])
def test_numbers_that_begin_anywhere(dtype, begin, room):
    """Two numbers are read at a time where each row begins at a multiple of two, and one at a time elsewhere, over several blocks of
    keys."""
    keys = 300
    q, k, v = qkv(queries=70, keys=keys)
    whole = torch.rand(1, 1, 70, keys + room) < 0.6 if dtype == torch.bool else torch.randn(1, 1, 70, keys + room).to(dtype)
    mask = whole[..., begin : begin + keys]
    if dtype == torch.bool:
        mask[..., 0] = True
    out = ht.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True)
    close(out, attention(q, k, v, mask=mask)[0])
