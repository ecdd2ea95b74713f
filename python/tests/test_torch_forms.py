"""Forms of calls that users of PyTorch and of ``flash_attn`` know: heads of any size, any axes, autocast, groups of columns and of
depths, rotary embeddings, caches by index, one tensor for queries, keys and values."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: the operations for it are not tested")

import heist
import heist.torch as ht
import torch.nn.functional as F
from references import attention, close

BF16, I32 = torch.bfloat16, torch.int32


def random(*shape):
    return torch.randn(*shape).to(BF16)


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(5)


# Heads of (keys, values) elements.
HEADS = [(40, 40), (72, 24), (8, 8), (100, 20), (32, 16), (16, 48)]


@pytest.mark.parametrize("dim, values", HEADS, ids=str)
def test_heads_of_any_size_and_their_gradients(dim, values):
    given = [random(1, 2, 12, n).requires_grad_() for n in (dim, dim, values)]
    out = ht.scaled_dot_product_attention(*given, is_causal=True)
    exact = [t.detach().double().requires_grad_() for t in given]
    expected, _ = attention(*exact, causal=True)
    close(out.detach(), expected.detach())
    seed = random(*out.shape)
    out.backward(seed)
    expected.backward(seed.double())
    for one, other in zip(given, exact):
        close(one.grad, other.grad)
    rows = [t.detach().transpose(1, 2) for t in given]
    found, lse, none = ht.flash_attn_func(*rows, causal=True, return_attn_probs=True)
    close(found.transpose(1, 2), expected.detach())
    assert lse.shape == (1, 2, 12) and none is None
    starts = torch.tensor([0, 12], dtype=I32)
    packed = ht.flash_attn_varlen_func(*(t[0] for t in rows), starts, starts, 12, 12, causal=True)
    assert torch.equal(packed, found[0])


def test_heads_in_eights_are_read_where_they_lie():
    """On Hopper's GPUs, as the simulated one is; a gradient wants multiples of 16."""
    from heist.torch._device import ops_of

    known = {name for name, *_ in ops_of(-1).plans()}
    given = [random(1, 2, 12, 56) for _ in range(3)]
    close(ht.scaled_dot_product_attention(*given), attention(*(t.double() for t in given))[0])
    (name,) = {name for name, *_ in ops_of(-1).plans()} - known
    assert "D56" in name


@pytest.mark.parametrize("trained", [False, True])
@pytest.mark.parametrize("dim", [32, 40])
def test_heads_in_eights_compile(dim, trained, monkeypatch):
    """What is traced can't ask a device that was not opened before, as that of a GPU can't be: it asks for the process."""
    from heist.torch import _layout

    def asked(index):
        assert not torch.compiler.is_dynamo_compiling(), "traced"
        return ops_of(index)

    ops_of = _layout.ops_of
    monkeypatch.setattr(_layout, "ops_of", asked)
    given = [random(1, 2, 12, dim).requires_grad_(trained) for _ in range(3)]
    mask = torch.zeros(12, 12, dtype=BF16)
    for how in ({"is_causal": True}, {"attn_mask": mask}):
        run = lambda q, k, v: ht.scaled_dot_product_attention(q, k, v, **how)  # noqa: B023, E731
        found = torch.compile(run, fullgraph=True, backend="aot_eager")(*given)
        close(found.detach(), run(*given).detach().double())


@pytest.mark.parametrize("axes", [(), (2,), (2, 2), (2, 1, 3, 2)], ids=str)
def test_any_axes_in_front(axes):
    q, k, v = (random(*axes, 12, 16) for _ in range(3))
    close(ht.scaled_dot_product_attention(q, k, v), F.scaled_dot_product_attention(*(t.double() for t in (q, k, v))))


@pytest.mark.parametrize("shape", [(2, 8, 16), (2, 1, 2, 8, 16), (1, 2, 8, 24), (2, 8, 40)])
def test_again_and_again(shape):
    """What a call is made into is not remembered in its place: the third one is as right as the first."""
    for _ in range(3):
        q, k, v = (random(*shape) for _ in range(3))
        four = [t.reshape(-1, *shape[-3:]) for t in (q, k, v)]
        want = attention(*four, causal=True)[0]
        for run in (ht.scaled_dot_product_attention, torch.ops.heist.sdpa):
            out = run(q, k, v, **({"causal": True} if run is torch.ops.heist.sdpa else {"is_causal": True}))
            assert out.shape == q.shape
            close(out.reshape(want.shape), want)
        if len(shape) == 4:
            rows = (t.transpose(1, 2).contiguous() for t in (q, k, v))
            close(ht.flash_attn_func(*rows, causal=True).transpose(1, 2), want)


def test_autocast_converts():
    layer = torch.nn.Linear(32, 16)
    x = torch.randn(3, 5, 32, requires_grad=True)
    with torch.autocast("cpu", dtype=BF16):
        out = ht.linear(x, layer.weight, layer.bias)
        half = ht.linear(x.detach().half(), layer.weight, layer.bias)
        products = [
            ht.mm(x[0], layer.weight.t()), ht.addmm(layer.bias, x[0], layer.weight.t()), ht.bmm(x, layer.weight.t().expand(3, 32, 16)),
            ht.grouped_mm(x[0], layer.weight.t()[None], offs=torch.tensor([5], dtype=I32)),
        ]  # fmt: skip
        heads = ht.scaled_dot_product_attention(x[:, None], x[:, None], x[:, None])
        rows = ht.flash_attn_func(x[:, :, None], x[:, :, None], x[:, :, None])
    plain = x.detach().double() @ layer.weight.detach().double().t()
    close(out.detach(), plain + layer.bias.double().detach())
    close(half, out.detach().double())
    for found, expected in zip(products, (plain[0], plain[0] + layer.bias.detach().double(), plain, plain[0])):
        close(found.detach(), expected)
    assert {t.dtype for t in (out, half, heads, rows, *products)} == {BF16}
    close(rows.detach().squeeze(2), heads.detach().squeeze(1).double())
    out.float().sum().backward()
    assert x.grad.dtype == layer.weight.grad.dtype == torch.float32
    close(x.grad, layer.weight.detach().double().sum(0).expand(3, 5, 32))
    with pytest.raises(heist.UnsupportedError, match="float64"), torch.autocast("cpu", dtype=BF16):
        ht.mm(x[0].double(), layer.weight.t().double())


def test_autocast_and_odd_heads_compile():
    def layer(x, weight):
        with torch.autocast("cpu", dtype=BF16):
            y = ht.linear(x, weight)
        return ht.scaled_dot_product_attention(y, y, y)

    # What a compiler makes of the parts between operations is not looked at here.
    compiled = torch.compile(layer, fullgraph=True, dynamic=True, backend="aot_eager")
    weight = torch.randn(24, 32)
    for rows in (8, 11):
        x = torch.randn(1, 2, rows, 32)
        close(compiled(x, weight), layer(x, weight).double(), 1e-2)


def test_groups_of_columns_and_of_depths():
    offs, parts = torch.tensor([8, 8, 24], dtype=I32), [(0, 8), (8, 8), (8, 24)]
    a, b = random(3, 16, 32).requires_grad_(), random(32, 24).requires_grad_()
    exact = [t.detach().double().requires_grad_() for t in (a, b)]
    out = ht.grouped_mm(a, b, offs=offs)
    expected = torch.cat([exact[0][group] @ exact[1][:, begin:end] for group, (begin, end) in enumerate(parts)], 1)
    close(out.detach(), expected.detach())
    out.sum().backward()
    expected.sum().backward()
    close(a.grad, exact[0].grad)
    close(b.grad, exact[1].grad)
    a, b = random(16, 24), random(24, 32)
    expected = torch.stack([a[:, begin:end].double() @ b[begin:end].double() for begin, end in parts])
    close(ht.grouped_mm(a, b, offs=offs), expected)


def turned(rows, places, cos, sin, interleaved):
    """Rows (batch, rows, heads, elements), each rotated for its place, in float64."""
    rows, half = rows.double().clone(), cos.shape[1]
    for sequence, row in ((s, r) for s in range(rows.shape[0]) for r in range(rows.shape[1])):
        c, s = cos[places[sequence][row]].double(), sin[places[sequence][row]].double()
        part = rows[sequence, row, :, : 2 * half]
        x, y = (part[:, ::2], part[:, 1::2]) if interleaved else (part[:, :half], part[:, half:])
        x[:], y[:] = x * c - y * s, x * s + y * c
    return rows


# Rows that are filled, sequences of the cache, whether pairs are neighbours, whether a mask is causal.
ROTARY = [
    ([5, 9], None, True, True), ([5, 9], None, False, False), ([5, 9], [2, 0], False, True), (4, None, True, False), (None, None, True, True),
]  # fmt: skip


@pytest.mark.parametrize("lengths, chosen, interleaved, causal", ROTARY, ids=str)
def test_rotary_embeddings_and_caches_by_index(lengths, chosen, interleaved, causal):
    sequences = 3 if chosen else 2
    k_cache, v_cache = random(sequences, 32, 2, 32), random(sequences, 32, 2, 32)
    before = k_cache.double(), v_cache.double()
    q, k, v = random(2, 3, 4, 32), random(2, 3, 2, 32), random(2, 3, 2, 32)
    # Half of the elements are rotated.
    angles = torch.rand(16, 8) * 6
    cos, sin = angles.cos().to(BF16), angles.sin().to(BF16)
    filled = lengths if isinstance(lengths, list) else [lengths or 0] * 2
    out = ht.flash_attn_with_kvcache(
        q, k_cache, v_cache, k, v, rotary_cos=cos, rotary_sin=sin, rotary_interleaved=interleaved, causal=causal,
        cache_seqlens=torch.tensor(lengths, dtype=I32) if isinstance(lengths, list) else lengths,
        cache_batch_idx=None if chosen is None else torch.tensor(chosen, dtype=I32),
    )  # fmt: skip
    places = [[length + row for row in range(3)] for length in filled]
    keys = turned(k, places, cos, sin, interleaved)
    queries = turned(q, places if causal else [[length] * 3 for length in filled], cos, sin, interleaved)
    for sequence, length in enumerate(filled):
        own = chosen[sequence] if chosen else sequence
        close(k_cache[own, length : length + 3], keys[sequence], 1e-2)
        assert torch.equal(v_cache[own, length : length + 3], v[sequence])
        assert torch.equal(k_cache[own, length + 3 :].double(), before[0][own, length + 3 :])
        every = [torch.cat((cache[own, :length], new)) for cache, new in zip(before, (keys[sequence], v[sequence].double()))]
        expected, _ = attention(*(t.transpose(0, 1)[None] for t in (queries[sequence], *every)), causal=causal)
        close(out[sequence].transpose(0, 1)[None], expected)


def test_one_tensor_for_queries_keys_and_values():
    qkv = random(2, 12, 3, 2, 16)
    q, k, v = (t.transpose(1, 2) for t in qkv.unbind(2))
    expected = attention(q, k, v, causal=True)[0].transpose(1, 2)
    close(ht.flash_attn_qkvpacked_func(qkv, causal=True), expected)
    close(ht.flash_attn_kvpacked_func(qkv[:, :, 0], qkv[:, :, 1:], causal=True), expected)
    starts = torch.tensor([0, 12, 24], dtype=I32)
    close(ht.flash_attn_varlen_qkvpacked_func(qkv.flatten(0, 1), starts, 12, causal=True), expected.flatten(0, 1))
    packed = ht.flash_attn_varlen_kvpacked_func(qkv[:, :, 0].flatten(0, 1), qkv[:, :, 1:].flatten(0, 1), starts, starts, 12, 12, causal=True)
    close(packed, expected.flatten(0, 1))


@pytest.mark.parametrize("device, room", [("a100", 16), ("a100", 13), ("h200", 13), ("h200", 16)])
@pytest.mark.parametrize("how", [{}, {"causal": True, "sinks": torch.tensor([0.5, -1.0, 2.0, 0.0])}], ids=["plain", "sinks"])
def test_a_cache_without_pages(device, room, how):
    """GPUs without tensor copies attend to packed sequences, as others do where there are no pages of eight. Of new rows those are put into the
    cache that there is room for."""
    ht.simulate(device)
    try:
        for lengths, new in (([3, 9], 0), ([3, 9], 2), ([room - 1, room], 2), (5, 2)):
            each = lengths if isinstance(lengths, list) else [lengths] * 2
            k_cache, v_cache = random(2, room, 2, 64), random(2, room, 2, 64)
            q, k, v = random(2, 2, 4, 64), random(2, 2, 2, 64), random(2, 2, 2, 64)
            want = [k_cache.clone(), v_cache.clone()]
            for cache, rows in zip(want, (k, v)):
                for sequence, length in enumerate(each):
                    cache[sequence, length : length + new] = rows[sequence, : min(new, room - length)]
            given = torch.tensor(lengths, dtype=I32) if isinstance(lengths, list) else lengths
            for _ in range(2):
                ours = k_cache.clone(), v_cache.clone()
                out, lse = ht.flash_attn_with_kvcache(q, *ours, *((k, v) if new else ()), cache_seqlens=given, return_softmax_lse=True, **how)
                assert torch.equal(ours[0], want[0]) and torch.equal(ours[1], want[1])
                for sequence, length in enumerate(each):
                    if length + new > room:
                        continue
                    part = [t[sequence : sequence + 1, : length + new].transpose(1, 2) for t in want]
                    expected, sums = attention(q[sequence : sequence + 1].transpose(1, 2), *part, **how)
                    close(out[sequence : sequence + 1].transpose(1, 2), expected)
                    close(lse[sequence : sequence + 1], sums)
    finally:
        ht.simulate()


@pytest.mark.parametrize("device", ["a100", "b200", "h200"])
def test_narrower_values_on_every_gpu(device):
    """Where kernels have none, zeros are put behind their elements."""
    ht.simulate(device)
    try:
        q, k, v = random(1, 2, 8, 64), random(1, 2, 8, 64), random(1, 2, 8, 32)
        rows = [t.transpose(1, 2) for t in (q, k, v)]
        starts = torch.tensor([0, 8], dtype=I32)
        want = attention(q, k, v)[0]
        close(ht.scaled_dot_product_attention(q, k, v), want)
        close(ht.flash_attn_func(*rows).transpose(1, 2), want)
        close(ht.flash_attn_func(*rows, window_size=(8, 8)).transpose(1, 2), want)
        close(ht.flash_attn_varlen_func(*(t[0] for t in rows), starts, starts, 8, 8).transpose(0, 1)[None], want)
    finally:
        ht.simulate()
