"""The operations on CPU tensors, which a simulated GPU runs."""

import threading

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: the operations for it are not tested")

import torch.nn.functional as F

import heist
import heist.torch as ht
from heist.torch import _products
from references import attention, close, grouped, opchecks

F16, BF16, F32 = torch.float16, torch.bfloat16, torch.float32
E4M3 = torch.float8_e4m3fn


def qkv(batch, heads, kv_heads, queries, keys, dim, dtype=F16, rows=False):
    def one(count, length):
        if rows:
            return torch.randn(batch, length, count, dim, dtype=dtype).transpose(1, 2)
        return torch.randn(batch, count, length, dim, dtype=dtype)

    return one(heads, queries), one(kv_heads, keys), one(kv_heads, keys)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("rows", [False, True])
def test_sdpa(causal, rows):
    q, k, v = qkv(2, 2, 1, 20, 20, 32, rows=rows)
    out = ht.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=True)
    close(out, attention(q, k, v, causal=causal)[0])
    assert out.dtype == q.dtype


@pytest.mark.parametrize("queries, keys", [(8, 20), (20, 8)])
def test_sdpa_counts_causal_masks_from_the_first_key(queries, keys):
    q, k, v = qkv(1, 2, 2, queries, keys, 16, BF16)
    out = ht.scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.3)
    close(out, attention(q, k, v, causal=True, top_left=True, scale=0.3)[0])


def test_sdpa_of_three_dimensions_and_strides_of_their_own():
    q, k, v = qkv(1, 2, 2, 16, 16, 16)
    close(ht.scaled_dot_product_attention(q[0], k[0], v[0]), attention(q, k, v)[0][0])
    packed = torch.randn(1, 16, 3, 2, 16, dtype=F16)
    q, k, v = (packed[:, :, i].transpose(1, 2) for i in range(3))
    close(ht.scaled_dot_product_attention(q, k, v), attention(q, k, v)[0])


def test_values_narrower_than_keys():
    """As DeepSeek's models have them: heads of 192 elements of keys and 128 of values, here smaller ones."""
    q, k, _ = qkv(1, 2, 1, 20, 24, 48)
    v = torch.randn(1, 1, 24, 32, dtype=F16)
    for rows in (False, True):
        q, k, v = ((t.transpose(1, 2).contiguous().transpose(1, 2) if rows else t.contiguous()) for t in (q, k, v))
        for _ in range(2):
            out = ht.scaled_dot_product_attention(q, k, v, enable_gqa=True)
            assert out.shape == (1, 2, 20, 32)
            close(out, attention(q, k, v)[0])
    out = ht.flash_attn_func(*(t.transpose(1, 2) for t in (q, k, v)), causal=True)
    close(out.transpose(1, 2), attention(q, k, v, causal=True)[0])
    packed = (t[0].transpose(0, 1).contiguous() for t in (q, k, v))
    starts = [torch.tensor([0, length], dtype=torch.int32) for length in (20, 24)]
    out, lse, _ = ht.flash_attn_varlen_func(*packed, *starts, 20, 24, return_attn_probs=True)
    close(out.transpose(0, 1)[None], attention(q, k, v)[0])
    close(lse[None], attention(q, k, v)[1], 1e-3)


SLOPES, SINKS = torch.tensor([0.5, 0.0625]), torch.tensor([1.5, -1.0])
ADDED = {
    "softcap": {"softcap": 1.5},
    "alibi": {"alibi_slopes": SLOPES},
    "sinks": {"sinks": SINKS},
    "all": {"softcap": 2.0, "alibi_slopes": SLOPES.expand(1, 2), "sinks": SINKS.to(BF16)},
}


@pytest.mark.parametrize("added", ADDED.values(), ids=ADDED)
def test_scores_that_a_model_changes(added):
    want = {"softcap": added.get("softcap", 0.0), "sinks": added.get("sinks")}
    want["slopes"] = SLOPES if "alibi_slopes" in added else None
    q, k, v = qkv(1, 2, 1, 12, 20, 32, rows=True)
    expected, sums = attention(q, k, v, causal=True, **want)
    flash = [t.transpose(1, 2) for t in (q, k, v)]
    for _ in range(2):
        out, lse, _ = ht.flash_attn_func(*flash, causal=True, return_attn_probs=True, **added)
        close(out.transpose(1, 2), expected)
        close(lse, sums, 1e-3)
    starts = [torch.tensor([0, length], dtype=torch.int32) for length in (12, 20)]
    out = ht.flash_attn_varlen_func(*(t[0] for t in flash), *starts, 12, 20, causal=True, **added)
    close(out.transpose(0, 1)[None], expected)
    # A cache with room for more, in one piece and in pages.
    cache = [torch.cat((t, torch.full((1, 12, 1, 32), float("nan"), dtype=F16)), 1) for t in flash[1:]]
    filled = torch.tensor([20], dtype=torch.int32)
    for policy in (None, "greedy"):
        out, lse = ht.flash_attn_with_kvcache(
            flash[0], *cache, cache_seqlens=filled, causal=True, return_softmax_lse=True, policy=policy, **added
        )
        close(out.transpose(1, 2), expected)
        close(lse, sums, 1e-3)
    table = torch.tensor([[1, 3, 0, 2]], dtype=torch.int32)
    pages = [t.view(4, 8, 1, 32)[[2, 0, 3, 1]].contiguous() for t in cache]
    out = ht.flash_attn_with_kvcache(flash[0], *pages, cache_seqlens=filled, block_table=table, causal=True, **added)
    close(out.transpose(1, 2), expected)


@pytest.mark.parametrize("window", [(-1, -1), (3, 0), (4, 2), (-1, 1)])
def test_flash_attn_func(window):
    q, k, v = qkv(1, 2, 2, 12, 20, 16, BF16)
    want, lse = attention(q, k, v, causal=window == (3, 0), window=window)
    out, found_lse, none = ht.flash_attn_func(
        q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), causal=window == (3, 0), window_size=window,
        return_attn_probs=True,
    )  # fmt: skip
    close(out.transpose(1, 2), want)
    close(found_lse, lse, 1e-2)
    assert none is None


@pytest.mark.parametrize("wide", [2**28 + 1, 2**31 - 1, 2**40])
def test_a_window_wider_than_all_keys(wide):
    q, k, v = qkv(1, 2, 2, 9, 20, 16)
    rows = [t.transpose(1, 2) for t in (q, k, v)]
    for window in ((wide, 0), (wide, wide), (3, wide)):
        close(ht.flash_attn_func(*rows, window_size=window).transpose(1, 2), attention(q, k, v, window=window)[0])


def test_flash_attn_varlen_func():
    lengths = [5, 0, 17]
    starts = torch.tensor([0, 5, 5, 22], dtype=torch.int32)
    q, k, v = (torch.randn(22, 2, 16, dtype=F16) for _ in range(3))
    out, lse, _ = ht.flash_attn_varlen_func(q, k, v, starts, starts, 17, 17, causal=True, return_attn_probs=True)
    begin = 0
    for length in lengths:
        part = slice(begin, begin + length)
        if length:
            want, sums = attention(*(t[part].transpose(0, 1)[None] for t in (q, k, v)), causal=True)
            close(out[part].transpose(0, 1)[None], want)
            close(lse[:, part][None], sums, 1e-2)
        begin += length


@pytest.mark.parametrize("policy", [None, "greedy"])
def test_flash_attn_with_kvcache(policy):
    q = torch.randn(2, 2, 4, 16, dtype=F16)
    k_cache, v_cache = (torch.randn(2, 24, 2, 16, dtype=F16) for _ in range(2))
    k, v = (torch.randn(2, 2, 2, 16, dtype=F16) for _ in range(2))
    lengths = torch.tensor([7, 20], dtype=torch.int32)
    before = k_cache.clone()
    out, lse = ht.flash_attn_with_kvcache(
        q, k_cache, v_cache, k, v, cache_seqlens=lengths, causal=True, return_softmax_lse=True, policy=policy
    )
    for i, length in enumerate(lengths.tolist()):
        end = length + 2
        assert torch.equal(k_cache[i, length:end], k[i]) and torch.equal(k_cache[i, :length], before[i, :length])
        keys, values = (c[i, :end].transpose(0, 1)[None] for c in (k_cache, v_cache))
        want, sums = attention(q[i].transpose(0, 1)[None], keys, values, causal=True)
        close(out[i].transpose(0, 1)[None], want)
        close(lse[i][None], sums, 1e-2)


def test_numbers_that_calls_share_are_made_once():
    from heist.torch._device import numbers
    from torch._subclasses.fake_tensor import FakeTensorMode

    cpu = torch.device("cpu")
    first = numbers(5, torch.int32, cpu)
    assert first.tolist() == [0, 1, 2, 3, 4] and numbers(5, torch.int32, cpu) is first
    assert numbers(5, torch.int64, cpu).dtype == torch.int64
    # What is traced has its own, and leaves none behind.
    with FakeTensorMode():
        assert type(numbers(7, torch.int32, cpu)) is not torch.Tensor
    assert numbers(7, torch.int32, cpu).tolist() == [*range(7)]


def test_flash_attn_with_kvcache_of_pages():
    q = torch.randn(2, 1, 4, 64, dtype=F16)
    k_cache, v_cache = (torch.randn(7, 8, 2, 64, dtype=F16) for _ in range(2))
    k, v = (torch.randn(2, 1, 2, 64, dtype=F16) for _ in range(2))
    table = torch.tensor([[6, 0, 2], [5, 1, 3]], dtype=torch.int32)
    lengths = torch.tensor([16, 9], dtype=torch.int32)
    out = ht.flash_attn_with_kvcache(q, k_cache, v_cache, k, v, cache_seqlens=lengths, block_table=table)
    assert torch.equal(k_cache[2, 0], k[0, 0]) and torch.equal(v_cache[1, 1], v[1, 0])
    for i, length in enumerate((lengths + 1).tolist()):
        keys, values = (c[table[i].long()].flatten(0, 1)[:length].transpose(0, 1)[None] for c in (k_cache, v_cache))
        close(out[i].transpose(0, 1)[None], attention(q[i].transpose(0, 1)[None], keys, values)[0])


@pytest.mark.parametrize("tiny", [False, True])
def test_new_keys_are_appended_by_the_kernel(tiny):
    """In one launch for one tile of a key head, in two for more rows; new keys of the cache's own type stay as they are."""
    for queries in (1, 20):
        q = torch.randn(1, queries, 8, 64, dtype=BF16)
        caches = [torch.randn(5, 32, 2, 64).to(E4M3 if tiny else BF16) for _ in range(2)]
        new = [torch.randn(1, 3, 2, 64).to(caches[0].dtype) for _ in range(2)]
        table, lengths = torch.tensor([[3, 1]], dtype=torch.int32), torch.tensor([30], dtype=torch.int32)
        before = [cache.clone() for cache in caches]
        version = caches[0]._version
        out = ht.flash_attn_with_kvcache(q, *caches, *new, cache_seqlens=lengths, block_table=table, causal=True)
        assert caches[0]._version > version and lengths.tolist() == [30]
        for cache, old, rows in zip(caches, before, new):
            old[3, 30:], old[1, :1] = rows[0, :2].view(old.dtype), rows[0, 2:]
            assert torch.equal(cache.view(torch.uint8), old.view(torch.uint8))
        seen = (torch.cat((c[3], c[1, :1])).double().transpose(0, 1)[None] for c in caches)
        close(out.transpose(1, 2), attention(q.transpose(1, 2), *seen, causal=True)[0], 2e-2)


def test_flash_mla_with_kvcache():
    q = torch.randn(2, 2, 16, 576, dtype=BF16)
    cache = torch.randn(5, 16, 1, 576, dtype=BF16)
    table, lengths = torch.tensor([[4, 0], [2, 1]], dtype=torch.int32), torch.tensor([20, 9], dtype=torch.int32)
    out, lse = ht.flash_mla_with_kvcache(q, cache, table, lengths, 512, softmax_scale=0.1, causal=True)
    for i, length in enumerate(lengths.tolist()):
        keys = cache[table[i].long()].flatten(0, 1)[:length].transpose(0, 1)[None].double()
        scores = q[i].transpose(0, 1).double() @ keys[0].transpose(1, 2) * 0.1
        hidden = torch.arange(length) > torch.arange(length - 2, length)[:, None]
        scores = scores.masked_fill(hidden, float("-inf"))
        close(out[i].transpose(0, 1), scores.softmax(2) @ keys[0, :, :, :512], 2e-2)
        close(lse[i], scores.logsumexp(2), 1e-2)


def test_masks_that_are_data():
    """Prefixes, documents and masks of blocks, each and together, against softmax in float64."""
    batch, heads, rows = 2, 2, 256
    q, k, v = (torch.randn(batch, rows, heads, 16, dtype=F16) for _ in range(3))
    prefixes = torch.tensor([70, 0], dtype=torch.int32)
    documents = torch.arange(rows, dtype=torch.int32) // 90
    blocks = torch.rand(batch, 1, 2, 4) < 0.6
    blocks[:, :, :, 0] = True
    at = torch.arange(rows)
    causal = at[:, None] >= at
    same = documents[:, None] == documents
    shown = blocks.repeat_interleave(128, 2).repeat_interleave(64, 3)
    first = (at < prefixes.long()[:, None])[:, None, None, :]
    for given, seen in (
        ({"prefix_lens": prefixes}, causal | first),
        ({"documents": documents}, (causal & same)[None, None]),
        ({"block_mask": blocks, "block_size": (128, 64)}, causal & shown),
        ({"prefix_lens": prefixes, "documents": documents, "block_mask": blocks, "block_size": (128, 64)}, (causal | first) & same & shown),
    ):
        out, lse, _ = ht.flash_attn_func(q, k, v, causal=True, return_attn_probs=True, **given)
        scores = q.transpose(1, 2).double() @ k.transpose(1, 2).double().transpose(2, 3) / 4
        scores = scores.masked_fill(~seen.expand_as(scores), float("-inf"))
        want = scores.softmax(3).nan_to_num() @ v.transpose(1, 2).double()
        close(out.transpose(1, 2), want)
        close(lse.nan_to_num(neginf=-9.0), scores.logsumexp(3).nan_to_num(neginf=-9.0), 1e-2)


def test_masks_of_packed_sequences():
    """The same of sequences that are packed: masks count from the first row of each."""
    lengths, heads, longest = [200, 0, 70, 256], 2, 256
    starts = torch.tensor([0, *lengths]).cumsum(0).int()
    q, k, v = (torch.randn(sum(lengths), heads, 16, dtype=F16) for _ in range(3))
    prefixes = torch.tensor([70, 0, 3, 100], dtype=torch.int32)
    documents = torch.arange(sum(lengths), dtype=torch.int32) // 90
    blocks = torch.rand(len(lengths), heads, 2, 4) < 0.6
    for given in (
        {"block_mask": blocks, "block_size": (128, 64)},
        {"prefix_lens": prefixes, "documents": documents, "block_mask": blocks[:1, :1], "block_size": (128, 64)},
    ):
        out, lse, _ = ht.flash_attn_varlen_func(q, k, v, starts, starts, longest, longest, causal=True, return_attn_probs=True, **given)
        for i, length in ((i, length) for i, length in enumerate(lengths) if length):
            own, at = slice(starts[i], starts[i + 1]), torch.arange(length)
            seen = at[:, None] >= at
            if "documents" in given:
                seen = (seen | (at < prefixes[i])) & (documents[own][:, None] == documents[own])
            mask = given["block_mask"].expand(len(lengths), heads, 2, 4)[i]
            seen = seen & mask.repeat_interleave(128, 1).repeat_interleave(64, 2)[:, :length, :length]
            scores = torch.einsum("qhd,khd->hqk", q[own].double(), k[own].double()) / 4
            scores = scores.masked_fill(~seen, float("-inf"))
            close(out[own], torch.einsum("hqk,khd->qhd", scores.softmax(2).nan_to_num(), v[own].double()))
            close(lse[:, own].nan_to_num(neginf=-9.0), scores.logsumexp(2).nan_to_num(neginf=-9.0), 1e-2)
    with pytest.raises(ValueError, match="block_mask is"):
        ht.flash_attn_varlen_func(q, k, v, starts, starts, longest, longest, block_mask=blocks[..., :3], block_size=(128, 64))
    with pytest.raises(heist.UnsupportedError, match="no_grad"):
        ht.flash_attn_varlen_func(q.requires_grad_(), k, v, starts, starts, longest, longest, block_mask=blocks, block_size=(128, 64))


@pytest.mark.parametrize("paged", [False, True])
@pytest.mark.parametrize("given", [None, "one", "heads", "expanded"])
def test_flash_attn_with_kvcache_of_eight_bits(paged, given):
    heads, factors = 2, {}
    own = [torch.ones(heads), torch.ones(heads)]
    if given is not None:
        own = [torch.tensor([0.5, 2.0]), torch.tensor([3.0, 0.25])] if given != "one" else [torch.full((2,), 0.5)] * 2
        shaped = {"one": lambda f: f[0], "heads": lambda f: f, "expanded": lambda f: f.expand(2, -1)}[given]
        factors = {"k_descale": shaped(own[0]), "v_descale": shaped(own[1])}
    q = torch.randn(2, 1, 4, 64, dtype=BF16)
    shape = (7, 8, heads, 64) if paged else (2, 24, heads, 64)
    caches = [torch.randn(shape).to(E4M3) for _ in range(2)]
    new = [torch.randn(2, 1, heads, 64, dtype=BF16) for _ in range(2)]
    new[0][0, 0, 0, 0] = 1e6
    lengths = torch.tensor([16, 9], dtype=torch.int32)
    table = torch.tensor([[6, 0, 2], [5, 1, 3]], dtype=torch.int32) if paged else None
    before = [cache.clone() for cache in caches]
    for _ in range(2):
        for cache, old in zip(caches, before):
            cache.copy_(old)
        out, lse = ht.flash_attn_with_kvcache(
            q, *caches, *new, cache_seqlens=lengths, block_table=table, return_softmax_lse=True, **factors
        )
    for i, length in enumerate((lengths + 1).tolist()):
        seen = []
        for cache, factor, row in zip(caches, own, new):
            whole = cache[table[i].long()].flatten(0, 1) if paged else cache[i]
            # What was put behind is rounded, and saturates.
            written = (row[i, 0].float() / factor[:, None]).clamp(-448, 448).to(E4M3)
            assert torch.equal(whole[length - 1].float(), written.float())
            seen.append((whole[:length].double() * factor.double()[:, None]).transpose(0, 1)[None])
        want, sums = attention(q[i].transpose(0, 1)[None], *seen)
        close(out[i].transpose(0, 1)[None], want)
        close(lse[i][None], sums, 2e-2)


@pytest.mark.parametrize("experts, tokens, per", [(4, 9, 2), (3, 5, 1), (5, 4, 3)])
def test_fused_experts(experts, tokens, per):
    hidden, inner = 64, 96
    x = torch.randn(tokens, hidden, dtype=BF16)
    w1 = torch.randn(experts, 2 * inner, hidden, dtype=BF16) / 8
    w2 = torch.randn(experts, hidden, inner, dtype=BF16) / 8
    for _ in range(2):
        weights, ids = torch.rand(tokens, experts).topk(per)
        want = torch.zeros(tokens, hidden, dtype=torch.float64)
        for token in range(tokens):
            for weight, expert in zip(weights[token].double(), ids[token]):
                gate, other = (w1[expert].double() @ x[token].double()).chunk(2)
                want[token] += weight * (w2[expert].double() @ (torch.nn.functional.silu(gate) * other))
        close(ht.fused_experts(x, w1, w2, weights, ids), want, 3e-2)
    traced = torch.compile(ht.fused_experts, fullgraph=True, backend="aot_eager")
    assert torch.equal(traced(x, w1, w2, weights, ids), ht.fused_experts(x, w1, w2, weights, ids))
    nobody = ht.fused_experts(x[:0], w1, w2, weights[:0], ids[:0])
    assert nobody.shape == (0, hidden)
    # Of tensors without memory nobody asks which experts they name.
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode() as mode:
        assert ht.fused_experts(*(mode.from_tensor(t) for t in (x, w1, w2, weights, ids))).shape == x.shape


@pytest.mark.parametrize("a_t", [False, True])
@pytest.mark.parametrize("b_t", [False, True])
def test_mm(a_t, b_t):
    a = torch.randn(16, 24, dtype=BF16) if not a_t else torch.randn(24, 16, dtype=BF16).t()
    b = torch.randn(24, 8, dtype=BF16) if not b_t else torch.randn(8, 24, dtype=BF16).t()
    out = ht.mm(a, b, out_dtype=F32)
    assert out.dtype == F32
    close(out, a.double() @ b.double(), 1e-5)


def test_mm_of_slices_and_of_single_rows():
    a, b = torch.randn(10, 40, dtype=F16)[:, 8:24], torch.randn(16, 64, dtype=F16)[:, 16:23]
    close(ht.mm(a, b), a.double() @ b.double(), 1e-2)
    row = torch.randn(1, 16, dtype=F16)
    close(ht.mm(row, b), row.double() @ b.double(), 1e-2)


@pytest.mark.parametrize("start", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("a_t, b_t", [(False, False), (True, False), (False, True), (True, True)])
def test_products_of_views_that_begin_anywhere(start, a_t, b_t):
    def view(rows, cols, turned, dtype):
        if turned:
            return view(cols, rows, False, dtype).t()
        return torch.randn(rows + 1, cols + 9, dtype=dtype)[1:, start : start + cols]

    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        for dtype, bound in ((F16, 1e-2), (BF16, 2e-2), (F32, 5e-3)):
            a, b = view(17, 40, a_t, dtype), view(40, 9, b_t, dtype)
            bias, c = torch.randn(9, dtype=dtype), torch.randn(17, 9, dtype=dtype)
            exact = a.double() @ b.double()
            close(ht.mm(a, b), exact, bound)
            close(ht.addmm(c, a, b, beta=0.5, alpha=2.0), 0.5 * c.double() + 2 * exact, bound)
            close(ht.linear(a, b.t(), bias), exact + bias.double(), bound)
            batch = torch.randn(3 * 40 * 9 + 8, dtype=dtype)[start : start + 3 * 40 * 9].view(3, 40, 9)
            close(ht.bmm(a.expand(3, 17, 40), batch), a.double() @ batch.double(), bound)
    finally:
        torch.backends.cuda.matmul.allow_tf32 = False


def test_mm_of_tf32_is_asked_for():
    a, b = torch.randn(8, 16), torch.randn(16, 8)
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        close(ht.mm(a, b), a.double() @ b.double(), 5e-3)
    finally:
        torch.backends.cuda.matmul.allow_tf32 = False


@pytest.mark.parametrize("shape", [(12,), (1, 12), (8, 12), (8, 1), (1, 1), (1,), ()])
def test_addmm(shape):
    c, a, b = torch.randn(shape, dtype=F16), torch.randn(8, 16, dtype=F16), torch.randn(16, 12, dtype=F16)
    close(ht.addmm(c, a, b), c.double() + a.double() @ b.double(), 1e-2)
    close(ht.addmm(c, a, b, beta=0.5, alpha=2.0), 0.5 * c.double() + 2.0 * (a.double() @ b.double()), 1e-2)


@pytest.mark.parametrize("m, n", [(8, 12), (1, 12), (8, 1), (1, 1)])
def test_addmm_with_views_of_an_addend(m, n):
    a, b = torch.randn(m, 16, dtype=BF16), torch.randn(16, n, dtype=BF16)
    most = 2 * max(m, n) + 1
    wide = torch.randn(most, most, dtype=BF16)
    for c in (
        wide[1, 1 : n + 1], wide[0, 1 : 2 * n : 2], wide[:1, 1 : 2 * n : 2], wide[1 : m + 1, 1:2], wide[1 : 2 * m : 2, :1], wide[1, 1],
        wide[:1, 1:2], wide[1 : 2 * m : 2, 1 : 2 * n : 2], wide[:m, :n], wide[:n, :m].t(), wide[0, :n].expand(m, n), wide[:m, :1].expand(m, n), wide[0, 0].expand(m, n),
        wide.flatten()[1 : m + 1, None],
    ):  # fmt: skip
        close(ht.addmm(c, a, b, beta=0.5), 0.5 * c.double() + a.double() @ b.double(), 2e-2)
        close(ht.addmm(c, a, b), c.double() + a.double() @ b.double(), 2e-2)


def test_an_addend_that_is_spread_is_not_written_out():
    for shape, kind, stored in (
        ((8, 12), "matrix", 96), ((12,), "row", 12), ((1, 12), "row", 12), ((8, 1), "column", 8), ((1, 1), "one", 1), ((), "one", 1),
    ):  # fmt: skip
        found, part = _products._stored(torch.randn(shape), 8, 12)
        assert (found, part.numel()) == (kind, stored)


@pytest.mark.parametrize("activation", ["none", "relu", "gelu", "silu"])
def test_linear(activation):
    x, w, bias = torch.randn(2, 3, 16, dtype=BF16), torch.randn(24, 16, dtype=BF16), torch.randn(24, dtype=BF16)
    want = torch.nn.functional.linear(x.double(), w.double(), bias.double())
    if activation == "gelu":
        want = torch.nn.functional.gelu(want, approximate="tanh")
    elif activation != "none":
        want = getattr(torch.nn.functional, activation)(want)
    close(ht.linear(x, w, bias, activation=activation), want)


@pytest.mark.parametrize("device", ["a100", "h200", "b200"])
def test_activations_of_numbers_that_are_none_or_endless(device):
    """A NaN stays one through a relu, and endless numbers are as PyTorch has them."""
    x = torch.tensor([float("nan"), float("inf"), float("-inf"), -0.0, -1.0, 2.0, 0.5, -3.0], dtype=BF16)
    theirs = {"relu": F.relu, "gelu": lambda x: F.gelu(x, approximate="tanh"), "silu": F.silu}
    ht.simulate(device)
    try:
        for activation, activate in theirs.items():
            found = ht.linear(torch.zeros(3, 16, dtype=BF16), torch.zeros(8, 16, dtype=BF16), x, activation=activation)
            want = activate(x.double()).expand(3, 8)
            torch.testing.assert_close(found.double(), want, rtol=1e-2, atol=1e-3, equal_nan=True)
    finally:
        ht.simulate()


@pytest.mark.parametrize("transposed", [False, True])
def test_grouped_mm(transposed):
    a = torch.randn(20, 16, dtype=BF16)
    b = torch.randn(3, 24, 16, dtype=BF16).transpose(1, 2) if transposed else torch.randn(3, 16, 24, dtype=BF16)
    for ends in ([4, 4, 20], [0, 9, 17]):
        offs = torch.tensor(ends, dtype=torch.int32)
        # Rows behind the last group hold anything.
        close(ht.grouped_mm(a, b, offs=offs)[: ends[-1]], grouped(a, b, offs)[: ends[-1]])
    batches = torch.randn(3, 5, 16, dtype=BF16)
    close(ht.grouped_mm(batches, b), batches.double() @ b.double())


def test_empty_tensors():
    none = torch.empty(0, 16, dtype=F16)
    b = torch.randn(16, 8, dtype=F16)
    assert ht.mm(none, b).shape == (0, 8)
    assert torch.equal(ht.mm(torch.empty(3, 0, dtype=F16), torch.empty(0, 8, dtype=F16)), torch.zeros(3, 8, dtype=F16))
    close(ht.addmm(torch.ones(8, dtype=F16), torch.empty(3, 0, dtype=F16), torch.empty(0, 8, dtype=F16)), torch.ones(3, 8).double())
    assert ht.linear(torch.empty(0, 16, dtype=F16), b.t().contiguous()).shape == (0, 8)
    q, k, v = qkv(1, 2, 2, 4, 0, 16)
    assert torch.equal(ht.scaled_dot_product_attention(q, k, v), torch.zeros_like(q))
    q, k, v = qkv(0, 2, 2, 4, 4, 16)
    assert ht.scaled_dot_product_attention(q, k, v).shape == q.shape
    offs = torch.zeros(2, dtype=torch.int32)
    assert ht.grouped_mm(none, torch.randn(2, 16, 8, dtype=F16), offs=offs).shape == (0, 8)


@pytest.mark.parametrize("policy", ["greedy", "max-steals(1)", "never"])
def test_policies_change_who_and_not_what(policy):
    a, b = torch.randn(70, 16, dtype=F16), torch.randn(16, 70, dtype=F16)
    close(ht.mm(a, b, policy=policy), a.double() @ b.double(), 1e-2)
    q, k, v = qkv(1, 2, 2, 70, 16, 16)
    close(ht.scaled_dot_product_attention(q, k, v, policy=policy), attention(q, k, v)[0])


def test_other_simulated_gpus():
    a, b = torch.randn(16, 16, dtype=F16), torch.randn(16, 16, dtype=F16)
    try:
        for device in ("a100", "b200"):
            ht.simulate(device)
            close(ht.mm(a, b), a.double() @ b.double(), 1e-2)
        with pytest.raises(ValueError, match="sim:h200"):
            ht.simulate("gtx480")
    finally:
        ht.simulate()


OPS = {
    "attention": lambda: (*qkv(1, 2, 1, 8, 12, 16), True),
    "sdpa": lambda: (*qkv(1, 2, 1, 8, 12, 16), True, True),
    "flash": lambda: (*(t.transpose(1, 2).contiguous() for t in qkv(1, 2, 1, 8, 12, 16)), True),
    "attention_lse": lambda: (*qkv(1, 2, 1, 8, 12, 16, rows=True), False, 2, 1, 0.5),
    "attention_packed": lambda: (
        *(torch.randn(9, 2, 16, dtype=F16) for _ in range(3)), *(torch.tensor([0, 4, 9], dtype=torch.int32),) * 2, 5, 5,
    ),
    "attention_scored": lambda: (*qkv(1, 2, 1, 8, 12, 16), SLOPES, SINKS, 2.0, True),
    "attention_paired": lambda: (*qkv(2, 2, 1, 8, 12, 16), torch.rand(2, 1, 8, 12) > 0.5),
    "attention_paired_scored": lambda: (*qkv(1, 2, 1, 8, 12, 16), torch.randn(1, 1, 1, 12), SLOPES, SINKS, 2.0, True),
    "attention_packed_scored": lambda: (
        *(torch.randn(9, 2, 16, dtype=F16) for _ in range(3)), *(torch.tensor([0, 4, 9], dtype=torch.int32),) * 2,
        torch.empty(0), SINKS, 0.0, 5, 5,
    ),
    "attention_paged_scored": lambda: (
        torch.randn(2, 1, 2, 64, dtype=F16), torch.randn(3, 8, 1, 64, dtype=F16), torch.randn(3, 8, 1, 64, dtype=F16),
        torch.tensor([5, 11], dtype=torch.int32), torch.tensor([[2, 0], [1, 0]], dtype=torch.int32), SLOPES, torch.empty(0), 0.0,
    ),
    "attention_paged": lambda: (
        torch.randn(2, 1, 2, 64, dtype=F16), torch.randn(3, 8, 1, 64, dtype=F16), torch.randn(3, 8, 1, 64, dtype=F16),
        torch.tensor([5, 11], dtype=torch.int32), torch.tensor([[2, 0], [1, 0]], dtype=torch.int32),
    ),
    "attention_paged_e4m3": lambda: (
        torch.randn(2, 1, 2, 64, dtype=F16), torch.randn(3, 8, 1, 64).to(E4M3), torch.randn(3, 8, 1, 64).to(E4M3),
        torch.tensor([5, 11], dtype=torch.int32), torch.tensor([[2, 0], [1, 0]], dtype=torch.int32), torch.ones(1), torch.ones(1),
    ),
    "attention_latent": lambda: (
        torch.randn(2, 1, 4, 192, dtype=F16), torch.randn(3, 8, 1, 192, dtype=F16), torch.tensor([5, 11], dtype=torch.int32),
        torch.tensor([[2, 0], [1, 0]], dtype=torch.int32), 128,
    ),
    "attention_append": lambda: (
        torch.randn(2, 1, 2, 64, dtype=F16), torch.randn(3, 8, 1, 64, dtype=F16), torch.randn(3, 8, 1, 64, dtype=F16),
        torch.tensor([5, 11], dtype=torch.int32), torch.tensor([[2, 0], [1, 0]], dtype=torch.int32),
        torch.randn(2, 1, 1, 64, dtype=F16), torch.randn(2, 1, 1, 64, dtype=F16), *(torch.empty(0),) * 2, SLOPES, torch.empty(0), 0.0,
    ),
    "attention_cache": lambda: (
        torch.randn(2, 1, 2, 64, dtype=F16), *(torch.randn(2, 16, 1, 64, dtype=F16) for _ in range(2)),
        torch.tensor([5, 11], dtype=torch.int32),
    ),
    "attention_cache_append": lambda: (
        torch.randn(2, 1, 2, 64, dtype=F16), *(torch.randn(2, 16, 1, 64, dtype=F16) for _ in range(2)),
        torch.tensor([5, 11], dtype=torch.int32), *(torch.randn(2, 1, 1, 64, dtype=F16) for _ in range(2)), True,
    ),
    "decode": lambda: OPS["attention_cache"](),
    "decode_append": lambda: OPS["attention_cache_append"](),
    "decode_pages": lambda: OPS["attention_paged"](),
    "decode_pages_append": lambda: OPS["attention_append"]()[:7],
    "attention_packed_masked": lambda: (
        *(torch.randn(12, 2, 16, dtype=F16) for _ in range(3)), *(torch.tensor([0, 4, 12], dtype=torch.int32) for _ in range(2)),
        torch.empty(0), SINKS, 0.0, torch.tensor([3, 1], dtype=torch.int32), torch.zeros(12, dtype=torch.int32),
        torch.ones(1, 1, 1, 1, dtype=torch.uint8), 128, 64, 8, 8, True,
    ),
    "attention_masked": lambda: (
        *qkv(1, 2, 1, 8, 12, 16), torch.empty(0), SINKS, 0.0, torch.tensor([3], dtype=torch.int32), torch.zeros(1, 12, dtype=torch.int32),
        torch.ones(1, 1, 1, 1, dtype=torch.uint8), 128, 64, True,
    ),
    "expert_layer": lambda: (
        torch.randn(3, 64, dtype=BF16), torch.randn(2, 64, 64, dtype=BF16), torch.randn(2, 64, 32, dtype=BF16), torch.rand(3, 1),
        torch.tensor([1, 0, 2], dtype=torch.int32), torch.tensor([1, 3], dtype=torch.int32),
    ),
    "mm": lambda: (torch.randn(8, 16, dtype=F16), torch.randn(16, 8, dtype=F16), 6),
    "addmm": lambda: (
        torch.randn(8, dtype=F16), torch.randn(8, 16, dtype=F16), torch.randn(16, 8, dtype=F16), 1.0, 1.0, 1,
    ),
    "linear": lambda: (torch.randn(2, 3, 16, dtype=F16), torch.randn(8, 16, dtype=F16), 3),
    "linear_bias": lambda: (torch.randn(2, 3, 16, dtype=F16), torch.randn(8, 16, dtype=F16), torch.randn(8, dtype=F16)),
    "grouped_mm": lambda: (
        torch.randn(8, 16, dtype=BF16), torch.randn(2, 16, 8, dtype=BF16), torch.tensor([3, 8], dtype=torch.int32),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", OPS)
def test_opcheck(name):
    arguments = OPS[name]()
    for form, more in ((name, {}), (f"{name}_policy", {"policy": ""})):
        torch.library.opcheck(getattr(torch.ops.heist, form).default, arguments, more, test_utils=opchecks(arguments))


def test_every_operation_is_checked():
    there = {name.split("::")[1].split(".")[0] for name in torch._C._dispatch_get_all_op_names() if name.startswith("heist::")}
    from test_torch_batches import MORE
    from test_torch_gradients import DIFFERENTIATE, TRAIN

    plain = [name for name in (*OPS, *MORE, *DIFFERENTIATE) if not name.endswith("_train")]
    assert there == {form for name in plain for form in (name, f"_{name}", f"{name}_policy")} | {*TRAIN, "bmm_train"}


def test_compile():
    def block(x, w, q, k, v):
        attended = ht.scaled_dot_product_attention(q, k, v, is_causal=True)
        flat = attended.transpose(1, 2).reshape(1, 8, 32)
        return ht.linear(x + flat, w, activation="silu"), ht.mm(x[0], w)

    x, w = torch.randn(1, 8, 32, dtype=F16), torch.randn(32, 32, dtype=F16)
    q, k, v = qkv(1, 2, 2, 8, 8, 16)
    compiled = torch.compile(block, fullgraph=True, backend="aot_eager")
    for found, want in zip(compiled(x, w, q, k, v), block(x, w, q, k, v)):
        assert torch.equal(found, want)


def test_compile_of_a_cache_and_of_groups():
    def step(q, k_cache, v_cache, lengths, a, b, offs):
        return ht.flash_attn_with_kvcache(q, k_cache, v_cache, cache_seqlens=lengths), ht.grouped_mm(a, b, offs=offs)

    q, k_cache = torch.randn(1, 1, 2, 16, dtype=F16), torch.randn(1, 16, 2, 16, dtype=F16)
    arguments = (
        q, k_cache, k_cache.clone(), torch.tensor([9], dtype=torch.int32), torch.randn(8, 16, dtype=BF16),
        torch.randn(2, 16, 8, dtype=BF16), torch.tensor([3, 8], dtype=torch.int32),
    )  # fmt: skip
    compiled = torch.compile(step, fullgraph=True, backend="aot_eager")
    for found, want in zip(compiled(*arguments), step(*arguments)):
        assert torch.equal(found, want)


def test_two_threads():
    a, b = torch.randn(24, 16, dtype=F16), torch.randn(16, 24, dtype=F16)
    results = [None] * 4

    def work(i):
        results[i] = ht.mm(a, b)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for result in results:
        close(result, a.double() @ b.double(), 1e-2)


def test_what_the_simulated_gpu_finds_is_raised():
    import heist

    # A group that ends behind the last row: the kernel would read past the matrix.
    a, b = torch.randn(8, 16, dtype=BF16), torch.randn(2, 16, 8, dtype=BF16)
    with pytest.raises(heist.FindingError) as raised:
        ht.grouped_mm(a, b, offs=torch.tensor([4, 4000], dtype=torch.int32))
    assert raised.value.findings


def test_examples_in_the_documentation():
    import doctest

    from heist.torch import _batches, _device, _experts, _flash, _products

    for module in (ht, _batches, _device, _experts, _flash, _products):
        globs = {"torch": torch, "ht": ht, "heist": __import__("heist")}
        failed, _ = doctest.testmod(module, extraglobs=globs)
        assert failed == 0, module


def test_transformers_interface():
    from heist.torch._hooks import _mask, attention_forward

    q, k, v = qkv(2, 4, 2, 10, 10, 16)
    module = type("Module", (), {"is_causal": True})()
    out, weights = attention_forward(module, q, k, v, None, scaling=0.25)
    assert weights is None
    close(out.transpose(1, 2), attention(q, k, v, causal=True, scale=0.25)[0])
    # Padding on the left, as generation has it.
    mask = torch.ones(2, 10, dtype=torch.bool)
    mask[0, :4] = False
    assert _mask(2, attention_mask=torch.ones_like(mask)) is None
    out, _ = attention_forward(module, q, k, v, _mask(2, attention_mask=mask))
    want = attention(*(t[:1, :, 4:] for t in (q, k, v)), causal=True)[0]
    close(out[:1, 4:].transpose(1, 2), want)
    close(out[1:].transpose(1, 2), attention(q[1:], k[1:], v[1:], causal=True)[0])
    # A step of generation: one query over the keys so far, then a window.
    out, _ = attention_forward(module, q[:, :, -1:], k, v, None, sliding_window=4)
    want = attention(q[:, :, -1:], k, v, window=(3, 0))[0]
    close(out.transpose(1, 2), want)
    # A mask of all pairs, which has the window and the causal mask in it; and one query over a padded cache.
    pairs = torch.rand(2, 1, 10, 12) > 0.4
    out, _ = attention_forward(module, q, k, v, pairs, sliding_window=4)
    close(out.transpose(1, 2), attention(q, k, v, mask=pairs[..., :10])[0])
    out, _ = attention_forward(module, q[:, :, -1:], k, v, mask)
    close(out.transpose(1, 2), attention(q[:, :, -1:], k, v, mask=mask[:, None, None])[0])
    # Where a gradient is wanted, padded sequences are packed.
    wanting = [t.clone().requires_grad_() for t in (q, k, v)]
    out, _ = attention_forward(module, *wanting, _mask(2, attention_mask=mask))
    out.sum().backward()
    close(out[:1, 4:].transpose(1, 2).detach(), attention(*(t[:1, :, 4:] for t in (q, k, v)), causal=True)[0])
    assert all(t.grad[0, :, :4].abs().max() == 0 for t in wanting)
    # What models add: a soft-cap, and sinks as a parameter of the model's type; padded, too.
    sinks = torch.tensor([1.0, -1.0, 0.5, 2.0], dtype=F16)
    out, _ = attention_forward(module, q, k, v, None, softcap=2.0, s_aux=sinks)
    close(out.transpose(1, 2), attention(q, k, v, causal=True, softcap=2.0, sinks=sinks)[0])
    out, _ = attention_forward(module, q, k, v, _mask(2, attention_mask=mask), s_aux=sinks)
    want = attention(*(t[:1, :, 4:] for t in (q, k, v)), causal=True, sinks=sinks)[0]
    close(out[:1, 4:].transpose(1, 2), want)


def test_the_hook_is_set_and_taken_back():
    pytest.importorskip("torch.nn.attention")
    from torch.nn import attention as sdpa

    if not hasattr(sdpa, "register_flash_attention_impl"):
        pytest.skip(f"PyTorch {torch.__version__} has no hook for flash attention: 2.11 and later do")
    ht.use()
    try:
        assert sdpa.current_flash_attention_impl() == "heist"
    finally:
        ht.restore()
    assert sdpa.current_flash_attention_impl() is None


def test_a_mask_of_padding_is_known_in_both_of_pytorchs_forms():
    from heist.torch._hooks import _is_padding

    row = torch.ones(2, 1, 1, 192, dtype=torch.bool)
    assert _is_padding(row) and _is_padding(row.expand(2, 8, 192, 192))
    assert not _is_padding(torch.ones(2, 1, 192, 192)) and not _is_padding(torch.ones(192, 192))
