"""Calls that can't be done: each is an exception with its cause and what to do, and
none is a crash or a wrong answer."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: the operations for it are not tested")

import heist
import heist.torch as ht

F16, BF16, F32, F64, I32, I64 = torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int32, torch.int64
Unsupported = heist.UnsupportedError


def t(*shape, dtype=F16):
    return torch.zeros(*shape, dtype=dtype)


def huge(*shape, dtype=F16):
    """A tensor of any size that takes no memory: all its rows are one."""
    return torch.zeros(shape[-1], dtype=dtype).expand(*shape)


def off(*shape, dtype=F16):
    """A tensor that begins two bytes behind a multiple of 16."""
    count = 1
    for extent in shape:
        count *= extent
    return torch.zeros(count + 8, dtype=dtype)[1 : 1 + count].view(*shape)


def nested():
    return torch.nested.nested_tensor([t(3, 16), t(5, 16)], layout=torch.jagged)


def meta(*shape, dtype=F16):
    return torch.zeros(*shape, dtype=dtype, device="meta")


def q(*shape, dtype=F16):
    return t(*(shape or (1, 2, 8, 16)), dtype=dtype)


sdpa, flash, varlen, cached = (
    ht.scaled_dot_product_attention, ht.flash_attn_func, ht.flash_attn_varlen_func, ht.flash_attn_with_kvcache,
)  # fmt: skip
backward, packed_backward = torch.ops.heist.attention_backward, torch.ops.heist.attention_packed_backward
starts = torch.tensor([0, 4, 8], dtype=I32)
packed = (t(8, 2, 16), t(8, 2, 16), t(8, 2, 16))
cache = (t(1, 16, 2, 16), t(1, 16, 2, 16))
one = t(1, 1, 2, 16)
tiny = tuple(c.to(torch.float8_e4m3fn) for c in cache)
E4M3 = torch.float8_e4m3fn
x, w = t(4, 64), (t(2, 64, 64), t(2, 64, 32))
r, ids = torch.ones(4, 1), torch.tensor([[0], [1], [1], [0]])
offs = torch.tensor([4, 8], dtype=I32)
on = torch.ones(1, 1, dtype=torch.bool)

# (what is wrong, the call, the exception, words of its message)
TABLE = [
    # Types
    ("mm of float64", lambda: ht.mm(t(8, 16, dtype=F64), t(16, 8, dtype=F64)), Unsupported, "float64"),
    ("mm of float32 without tf32", lambda: ht.mm(t(8, 16, dtype=F32), t(16, 8, dtype=F32)), Unsupported, "allow_tf32"),
    ("mm of int64", lambda: ht.mm(t(8, 16, dtype=I64), t(16, 8, dtype=I64)), Unsupported, "int64"),
    ("mm of two types", lambda: ht.mm(t(8, 16), t(16, 8, dtype=BF16)), ValueError, "convert one"),
    ("mm into int32", lambda: ht.mm(t(8, 16), t(16, 8), out_dtype=I32), Unsupported, "a result of torch.int32"),
    ("mm of complex", lambda: ht.mm(t(8, 16, dtype=torch.complex64), t(16, 8)), Unsupported, "complex64"),
    ("addmm with another type", lambda: ht.addmm(t(8, dtype=F32), t(8, 16), t(16, 8)), ValueError, "convert it"),
    ("linear with a bias of another type", lambda: ht.linear(t(2, 16), t(8, 16), t(8, dtype=F32)), ValueError, "bias"),
    ("grouped_mm of float64", lambda: ht.grouped_mm(t(8, 16, dtype=F64), t(2, 16, 8, dtype=F64), offs=offs), Unsupported, "float64"),
    ("grouped_mm of two types", lambda: ht.grouped_mm(t(8, 16), t(2, 16, 8, dtype=BF16), offs=offs), ValueError, "convert one"),
    ("grouped_mm with long offsets", lambda: ht.grouped_mm(t(8, 16), t(2, 16, 8), offs=offs.long()), ValueError, "int32"),
    ("sdpa of float32", lambda: sdpa(q(dtype=F32), q(dtype=F32), q(dtype=F32)), Unsupported, "bfloat16 are supported"),
    ("sdpa of two types", lambda: sdpa(q(), q(dtype=BF16), q()), ValueError, "convert one"),
    ("sdpa of float8", lambda: sdpa(*(q().to(torch.float8_e4m3fn),) * 3), Unsupported, "float8_e4m3fn"),
    ("varlen with long starts", lambda: varlen(*packed, starts.long(), starts, 4, 4), ValueError, "int32"),
    ("kvcache with long lengths", lambda: cached(one, *cache, cache_seqlens=torch.tensor([4])), ValueError, "int32"),
    # What is no tensor
    ("mm of a list", lambda: ht.mm([[1.0]], t(16, 8)), TypeError, "torch.Tensor"),
    ("linear of None", lambda: ht.linear(None, t(8, 16)), TypeError, "NoneType"),
    ("sdpa of a number", lambda: sdpa(1, q(), q()), TypeError, "torch.Tensor"),
    ("grouped_mm with a list of offsets", lambda: ht.grouped_mm(t(8, 16), t(2, 16, 8), offs=[4, 8]), TypeError, "torch.Tensor"),
    ("varlen with a list of starts", lambda: varlen(*packed, [0, 4, 8], starts, 4, 4), TypeError, "torch.Tensor"),
    # Shapes
    ("mm of three dimensions", lambda: ht.mm(t(2, 8, 16), t(16, 8)), ValueError, "has 3 dimensions"),
    ("mm of a vector", lambda: ht.mm(t(8, 16), t(16)), ValueError, "has 1 dimensions"),
    ("mm of other depths", lambda: ht.mm(t(8, 16), t(8, 8)), ValueError, "16 and 8 differ"),
    ("addmm of what can't be spread", lambda: ht.addmm(t(7), t(8, 16), t(16, 8)), ValueError, "can't be spread"),
    ("addmm of too many dimensions", lambda: ht.addmm(t(2, 8, 8), t(8, 16), t(16, 8)), ValueError, "can't be spread"),
    ("linear of another width", lambda: ht.linear(t(2, 8), t(8, 16)), ValueError, "rows of 8"),
    ("linear with a weight of three dimensions", lambda: ht.linear(t(2, 16), t(1, 8, 16)), ValueError, "(out, in)"),
    ("linear of a scalar", lambda: ht.linear(torch.tensor(1.0, dtype=F16), t(8, 16)), ValueError, "(.., in)"),
    ("linear with a long bias", lambda: ht.linear(t(2, 16), t(8, 16), t(9)), ValueError, "bias"),
    ("grouped_mm of a vector", lambda: ht.grouped_mm(t(16), t(2, 16, 8), offs=offs), Unsupported, "2 and 3, 3 and 2"),
    ("grouped_mm of two matrices of other depths", lambda: ht.grouped_mm(t(8, 16), t(8, 8), offs=offs), ValueError, "16 and 8 differ"),
    ("grouped_mm of two matrices with a policy", lambda: ht.grouped_mm(t(8, 16), t(16, 8), offs=offs, policy="greedy"), Unsupported, "leave it out"),
    ("grouped_mm of two matrices with long offsets", lambda: ht.grouped_mm(t(8, 16), t(16, 8), offs=offs.long()), ValueError, "int32"),
    ("grouped_mm of two matrices of two types", lambda: ht.grouped_mm(t(8, 16), t(16, 8, dtype=BF16), offs=offs), ValueError, "convert one"),
    ("grouped_mm of other depths", lambda: ht.grouped_mm(t(8, 8), t(2, 16, 8), offs=offs), ValueError, "rows of 8"),
    ("grouped_mm without offsets", lambda: ht.grouped_mm(t(8, 16), t(2, 16, 8)), ValueError, "say with offs"),
    ("grouped_mm with offsets too few", lambda: ht.grouped_mm(t(8, 16), t(2, 16, 8), offs=offs[:1]), ValueError, "2 groups"),
    ("grouped_mm of batches with offsets", lambda: ht.grouped_mm(t(2, 4, 16), t(2, 16, 8), offs=offs), ValueError, "leave them out"),
    ("grouped_mm of other batches", lambda: ht.grouped_mm(t(3, 4, 16), t(2, 16, 8)), ValueError, "3 matrices"),
    ("grouped_mm with a bias", lambda: ht.grouped_mm(t(8, 16), t(2, 16, 8), offs=offs, bias=t(2, 8)), Unsupported, "add it"),
    ("grouped_mm of too many groups", lambda: ht.grouped_mm(t(8, 16), t(5000, 16, 8), offs=t(5000, dtype=I32)), Unsupported, "4096"),
    ("sdpa of one dimension", lambda: sdpa(t(16), t(16), t(16)), ValueError, "four are wanted"),
    ("sdpa of three dimensions and four", lambda: sdpa(t(2, 8, 16), q(), q()), ValueError, "four are wanted"),
    ("sdpa of other head sizes", lambda: sdpa(q(), q(1, 2, 8, 32), q(1, 2, 8, 32)), ValueError, "have 16 elements"),
    ("sdpa of values of other rows", lambda: sdpa(q(), q(), q(1, 2, 4, 16)), ValueError, "must be the same"),
    ("sdpa of heads without elements", lambda: sdpa(*(q(1, 2, 8, 0),) * 3), Unsupported, "multiples of 8"),
    ("sdpa of 320 elements a head", lambda: sdpa(*(q(1, 2, 8, 320),) * 3), Unsupported, "to 256"),
    ("sdpa of other batches", lambda: sdpa(q(2, 2, 8, 16), q(), q()), ValueError, "a batch of 2"),
    ("sdpa of heads that do not divide", lambda: sdpa(q(1, 3, 8, 16), q(), q(), enable_gqa=True), ValueError, "a multiple"),
    ("sdpa of fewer heads unasked", lambda: sdpa(q(1, 4, 8, 16), q(), q()), ValueError, "enable_gqa"),
    ("flash of three dimensions", lambda: flash(*packed), ValueError, "(batch, rows, heads, elements)"),
    ("varlen of four dimensions", lambda: varlen(q(), q(), q(), starts, starts, 4, 4), ValueError, "three are wanted"),
    ("varlen of other numbers of sequences", lambda: varlen(*packed, starts, starts[:2], 4, 4), ValueError, "one more than"),
    ("varlen with a longest of zero", lambda: varlen(*packed, starts, starts, 0, 4), ValueError, "the longest sequence"),
    ("varlen with a longest that is too short", lambda: varlen(*packed, starts, starts, 3, 4), Unsupported, "the longest sequence"),
    ("kvcache of other lengths", lambda: cached(one, *cache, cache_seqlens=offs), ValueError, "one number for each"),
    ("kvcache that is full", lambda: cached(one, *cache, one, one, cache_seqlens=16), ValueError, "do not fit"),
    ("kvcache with keys of two types", lambda: cached(one, *tiny, one.to(E4M3), one, cache_seqlens=4), ValueError, "or of the cache's"),
    ("prefixes of other sequences", lambda: flash(one, one, one, causal=True, prefix_lens=offs), ValueError, "one for each of 1"),
    ("documents of other keys", lambda: flash(one, one, one, documents=offs), ValueError, "a number for each key"),
    ("a prefix without a mask", lambda: flash(one, one, one, prefix_lens=offs[:1]), Unsupported, "mask=causal"),
    ("small blocks", lambda: flash(one, one, one, block_mask=on, block_size=64), Unsupported, "multiples of 128"),
    ("blocks of no size", lambda: flash(one, one, one, block_mask=on, block_size=(128,)), ValueError, "queries and keys"),
    ("blocks of floats", lambda: flash(one, one, one, block_mask=one), ValueError, "bool of"),
    ("too many blocks", lambda: flash(one, one, one, block_mask=on.expand(2, 2)), ValueError, "contiguous"),
    ("kvcache with keys alone", lambda: cached(one, *cache, one, cache_seqlens=4), ValueError, "give both"),
    ("kvcache with keys of other heads", lambda: cached(one, *cache, t(1, 1, 1, 16), t(1, 1, 1, 16), cache_seqlens=4), ValueError, "as in the cache"),
    # Where elements lie
    ("mm of every other column", lambda: ht.mm(t(8, 32)[:, ::2], t(16, 8)), ValueError, "contiguous()"),
    ("mm of rows that are one", lambda: ht.mm(t(1, 16).expand(8, 16), t(16, 8)), ValueError, "contiguous()"),
    ("grouped_mm with matrices at an odd place", lambda: ht.grouped_mm(t(8, 16), off(2, 16, 8), offs=offs), ValueError, "16 bytes"),
    ("grouped_mm with gaps", lambda: ht.grouped_mm(t(8, 32)[:, :16], t(2, 16, 8), offs=offs), ValueError, "contiguous()"),
    ("grouped_mm with gaps in B", lambda: ht.grouped_mm(t(8, 16), t(2, 16, 16)[:, :, :8], offs=offs), ValueError, "contiguous()"),
    ("grouped_mm with every other offset", lambda: ht.grouped_mm(t(8, 16), t(2, 16, 8), offs=t(4, dtype=I32)[::2]), ValueError, "contiguous int32"),
    ("sdpa of every other element", lambda: sdpa(t(1, 2, 8, 32)[..., ::2], q(), q()), ValueError, "follow each other"),
    ("kvcache at an odd place", lambda: cached(one, off(1, 16, 2, 16), cache[1], cache_seqlens=4), ValueError, "16 bytes"),
    ("kvcache that lies otherwise", lambda: cached(one, t(1, 2, 16, 16).transpose(1, 2), cache[1], cache_seqlens=4), ValueError, "in place"),
    # Tensors of other kinds
    ("mm of a sparse matrix", lambda: ht.mm(t(8, 16).to_sparse(), t(16, 8)), Unsupported, "to_dense"),
    ("linear of a sparse weight that wants a gradient", lambda: ht.linear(t(2, 16), t(8, 16).to_sparse().requires_grad_()), Unsupported, "to_dense"),
    ("linear of nested rows", lambda: ht.linear(nested(), t(8, 16)), Unsupported, "linear: a nested tensor"),
    ("sdpa of nested rows", lambda: sdpa(nested(), nested(), nested()), Unsupported, "flash_attn_varlen_func"),
    ("mm of a quantized matrix", lambda: ht.mm(torch.quantize_per_tensor(t(8, 16, dtype=F32), 0.1, 0, torch.qint8), t(16, 8)), Unsupported, "dequantize"),
    # Devices
    ("mm on two devices", lambda: ht.mm(t(8, 16), meta(16, 8)), ValueError, "one device"),
    ("sdpa on two devices", lambda: sdpa(q(), q(), meta(1, 2, 8, 16)), ValueError, "one device"),
    ("linear with a bias elsewhere", lambda: ht.linear(t(2, 16), t(8, 16), meta(8)), ValueError, "one device"),
    ("grouped_mm with offsets elsewhere", lambda: ht.grouped_mm(t(8, 16), t(2, 16, 8), offs=meta(2, dtype=I32)), ValueError, "one device"),
    ("varlen with starts elsewhere", lambda: varlen(*packed, meta(3, dtype=I32), starts, 4, 4), ValueError, "one device"),
    # What kernels do not do
    ("sdpa with a mask of integers", lambda: sdpa(q(), q(), q(), attn_mask=t(8, 8).int()), Unsupported, "True for keys that are seen"),
    ("sdpa with a mask of other keys", lambda: sdpa(q(), q(), q(), attn_mask=t(8, 7)), ValueError, "does not broadcast"),
    ("sdpa with a mask of five axes", lambda: sdpa(q(), q(), q(), attn_mask=t(1, 1, 2, 8, 8)), ValueError, "does not broadcast"),
    ("sdpa with a mask that is none", lambda: sdpa(q(), q(), q(), attn_mask=[True]), TypeError, "torch.Tensor"),
    ("sdpa with a mask elsewhere", lambda: sdpa(q(), q(), q(), attn_mask=meta(8, 8)), ValueError, "is on meta"),
    ("sdpa with two masks", lambda: sdpa(q(), q(), q(), attn_mask=t(8, 8), is_causal=True), ValueError, "leave is_causal out"),
    ("flash with a mask, a soft cap and a gradient", lambda: flash(*(t(1, 8, 2, 16).requires_grad_(),) * 3, attn_mask=t(8, 8), softcap=2.0), Unsupported, "no backward"),
    ("sdpa with a mask that wants a gradient", lambda: sdpa(q(), q(), q(), attn_mask=t(8, 8).requires_grad_()), Unsupported, "no backward"),
    ("sdpa with a mask over shared heads", lambda: sdpa(q(), t(1, 1, 8, 16), t(1, 1, 8, 16), attn_mask=t(8, 8)), ValueError, "enable_gqa"),
    ("flash with two masks", lambda: flash(one, one, one, attn_mask=t(1, 1), documents=offs[:1]), Unsupported, "documents"),
    ("a mask whose keys lie apart", lambda: torch.ops.heist.attention_paired(q(), q(), q(), t(1, 1, 8, 16)[..., ::2]), RuntimeError, "follow each other"),
    ("a mask of three axes", lambda: torch.ops.heist.attention_paired(q(), q(), q(), t(2, 8, 8)), RuntimeError, "is wanted"),
    ("sdpa with dropout", lambda: sdpa(q(), q(), q(), dropout_p=0.1), Unsupported, "dropout_p"),
    ("sdpa with a scale below zero", lambda: sdpa(q(), q(), q(), scale=-1.0), Unsupported, "above zero"),
    ("sdpa with a scale that is none", lambda: sdpa(q(), q(), q(), scale=float("nan")), Unsupported, "above zero"),
    ("flash with dropout", lambda: flash(*(t(1, 8, 2, 16),) * 3, dropout_p=0.5), Unsupported, "dropout_p"),
    ("flash with a soft cap below zero", lambda: flash(*(t(1, 8, 2, 16),) * 3, softcap=-30.0), ValueError, "above zero"),
    ("flash with slopes of other heads", lambda: flash(*(t(1, 8, 2, 16),) * 3, alibi_slopes=t(3, dtype=F32)), Unsupported, "alibi_slopes"),
    ("flash with slopes of each sequence", lambda: flash(*(t(2, 8, 2, 16),) * 3, alibi_slopes=t(2, 2, dtype=F32)), Unsupported, "the same for all"),
    ("flash with sinks that are none", lambda: flash(*(t(1, 8, 2, 16),) * 3, sinks=1.0), TypeError, "torch.Tensor"),
    ("flash with a soft cap, slopes and a gradient", lambda: flash(*(t(1, 8, 2, 16).requires_grad_(),) * 3, softcap=9.0, alibi_slopes=t(2, dtype=F32)), Unsupported, "softcap and alibi_slopes together: there is no backward"),
    ("flash with slopes that want a gradient", lambda: flash(*(t(1, 8, 2, 16),) * 3, alibi_slopes=t(2, dtype=F32).requires_grad_()), Unsupported, "alibi_slopes: there is no backward"),
    ("kvcache in 8 bits with sinks", lambda: cached(one, *tiny, sinks=t(2, dtype=F32)), Unsupported, "float8_e4m3fn"),
    ("kvcache with narrow values", lambda: cached(one, cache[0], t(1, 16, 2, 8)), Unsupported, "pad the values"),
    ("sdpa with values of 272 elements", lambda: sdpa(q(), q(), t(1, 2, 8, 272)), Unsupported, "at most as many"),
    ("sdpa with a scale that is text", lambda: sdpa(q(), q(), q(), scale="a"), TypeError, "scale must be a number"),
    ("flash with a soft-cap that is no number", lambda: flash(one, one, one, softcap="a"), ValueError, "softcap='a'"),
    ("varlen with a longest that is none", lambda: varlen(*packed, starts, starts, None, 4), TypeError, "max_seqlen_q=None"),
    ("addmm with a beta that is none", lambda: ht.addmm(t(8), t(8, 16), t(16, 8), beta="a"), TypeError, "beta='a'"),
    ("mm into a name of a type", lambda: ht.mm(t(8, 16), t(16, 8), out_dtype="float32"), Unsupported, "a result of 'float32'"),
    ("flash with a window of one number", lambda: flash(*(t(1, 8, 2, 16),) * 3, window_size=4), ValueError, "two numbers"),
    ("varlen with a block table", lambda: varlen(*packed, starts, starts, 4, 4, block_table=starts), Unsupported, "block_table"),
    ("kvcache with cosines alone", lambda: cached(one, *cache, one, one, rotary_cos=t(16, 8)), ValueError, "come together"),
    ("kvcache with rotary and no keys", lambda: cached(one, *cache, rotary_cos=t(16, 8), rotary_sin=t(16, 8)), ValueError, "give k and v"),
    ("kvcache with rotary of more elements", lambda: cached(one, *cache, one, one, rotary_cos=t(16, 9), rotary_sin=t(16, 9)), ValueError, "at most 16"),
    ("kvcache with rotary of integers", lambda: cached(one, *cache, one, one, rotary_cos=t(16, 8, dtype=I32), rotary_sin=t(16, 8)), Unsupported, "floating-point"),
    ("kvcache with rotary elsewhere", lambda: cached(one, *cache, one, one, rotary_cos=meta(16, 8), rotary_sin=t(16, 8)), ValueError, "move it"),
    ("kvcache with padding in front", lambda: cached(one, *cache, cache_leftpad=offs[:1]), Unsupported, "block_table"),
    ("kvcache with indices and pages", lambda: cached(one, *cache, cache_batch_idx=offs[:1], block_table=offs.view(1, 2)), ValueError, "beside block_table"),
    ("kvcache with indices and room for 12", lambda: cached(one, t(3, 12, 2, 16), t(3, 12, 2, 16), cache_batch_idx=offs[:1]), Unsupported, "multiples of 8"),
    ("kvcache with a block table of one dimension", lambda: cached(one, *cache, block_table=starts), ValueError, "a row for each"),
    ("kvcache with pages of 12 tokens", lambda: cached(one, t(4, 12, 2, 16), t(4, 12, 2, 16), block_table=t(1, 2, dtype=I32)), Unsupported, "multiples of 8"),
    ("kvcache with factors and halves", lambda: cached(one, *cache, k_descale=t(2, dtype=F32)), ValueError, "float8_e4m3fn"),
    ("kvcache of one half in 8 bits", lambda: cached(one, cache[0].to(E4M3), cache[1]), ValueError, "of one type"),
    ("kvcache of e5m2", lambda: cached(one, *(c.to(torch.float8_e5m2) for c in cache)), Unsupported, "float8_e5m2"),
    ("kvcache in 8 bits with half factors", lambda: cached(one, *tiny, v_descale=t(2)), Unsupported, "v_descale"),
    ("kvcache in 8 bits with factors of other heads", lambda: cached(one, *tiny, k_descale=t(3, dtype=F32)), Unsupported, "2 key heads"),
    ("kvcache in 8 bits with a factor that is none", lambda: cached(one, *tiny, k_descale=0.5), TypeError, "torch.Tensor"),
    ("kvcache in 8 bits of 16 elements a head", lambda: cached(one, *tiny), Unsupported, "multiples of 32"),
    ("kvcache in 8 bits with room for 12", lambda: cached(one, *(c[:, :12].contiguous() for c in tiny)), Unsupported, "multiples of 8"),
    ("kvcache with indices", lambda: cached(one, *cache, cache_batch_idx=starts), ValueError, "one number for each of 1"),
    ("linear with an activation that is none", lambda: ht.linear(t(2, 16), t(8, 16), activation="tanh"), ValueError, "gelu"),
    ("addmm with an activation that is none", lambda: ht.addmm(t(8), t(8, 16), t(16, 8), activation=""), ValueError, "silu"),
    ("a policy that is none", lambda: ht.mm(t(8, 16), t(16, 8), policy="max-steels(1)"), ValueError, "max-steals"),
    ("mm with a policy that wants a gradient", lambda: ht.mm(t(8, 16).requires_grad_(), t(16, 8), policy="greedy"), Unsupported, "leave the policy out"),
    ("linear with a policy that wants a gradient", lambda: ht.linear(t(8, 16), t(8, 16).requires_grad_(), policy="greedy"), Unsupported, "leave the policy out"),
    ("addmm with a policy that wants a gradient", lambda: ht.addmm(t(8).requires_grad_(), t(8, 16), t(16, 8), policy="greedy"), Unsupported, "leave the policy out"),
    ("experts that want a gradient", lambda: ht.fused_experts(x.clone().requires_grad_(), *w, r, ids), Unsupported, "no_grad"),
    ("experts of float32", lambda: ht.fused_experts(x.float(), *(m.float() for m in w), r, ids), Unsupported, "bfloat16"),
    ("experts of two types", lambda: ht.fused_experts(x.to(BF16), *w, r, ids), Unsupported, "the same for all"),
    ("experts of another width", lambda: ht.fused_experts(t(4, 32), *w, r, ids), ValueError, "tokens of 32 elements"),
    ("experts with one matrix each", lambda: ht.fused_experts(x, w[0][0], w[1], r, ids), ValueError, "w1 is"),
    ("experts with halves of ids", lambda: ht.fused_experts(x, *w, r, ids.half()), ValueError, "topk_ids is"),
    ("experts with ids of other tokens", lambda: ht.fused_experts(x, *w, r, ids[:2]), ValueError, "as topk_weights"),
    ("experts that are not there", lambda: ht.fused_experts(x, *w, r, ids + 1), ValueError, "there are 2 experts"),
    ("experts that lie otherwise", lambda: ht.fused_experts(x, w[0].transpose(1, 2), w[1], r, ids), ValueError, "contiguous()"),
    ("experts on two devices", lambda: ht.fused_experts(x, meta(2, 64, 64), w[1], r, ids), ValueError, "one device"),
    ("experts of a list", lambda: ht.fused_experts([1.0], *w, r, ids), TypeError, "torch.Tensor"),
    ("grouped_mm with a policy that wants a gradient", lambda: ht.grouped_mm(t(8, 16).requires_grad_(), t(2, 16, 8), offs=offs, policy="greedy"), Unsupported, "leave the policy out"),
    ("sdpa with a policy that wants a gradient", lambda: sdpa(q().requires_grad_(), q(), q(), policy="greedy"), Unsupported, "leave the policy out"),
    ("flash with a policy that wants a gradient", lambda: flash(*(t(1, 8, 2, 16).requires_grad_(),) * 3, policy="greedy"), Unsupported, "leave the policy out"),
    ("sdpa of 256 elements a head that wants a gradient", lambda: sdpa(*(q(1, 2, 8, 256).requires_grad_(),) * 3), Unsupported, "up to 128"),
    ("flash of 144 elements a head that wants a gradient", lambda: flash(*(t(1, 8, 2, 144).requires_grad_(),) * 3), Unsupported, "up to 128"),
    ("varlen of 256 elements a head that wants a gradient", lambda: varlen(*(t(8, 2, 256).requires_grad_(),) * 3, starts, starts, 4, 4), Unsupported, "no_grad"),
    ("kvcache that wants a gradient", lambda: cached(one.clone().requires_grad_(), *cache, cache_seqlens=4), Unsupported, "no_grad"),
    ("flash of other head sizes that wants a gradient", lambda: flash(t(1, 8, 2, 16).requires_grad_(), *(t(1, 8, 2, 32),) * 2), ValueError, "have 16 elements"),
    ("backward with a gradient of another shape", lambda: backward(q(1, 2, 4, 16), q(), q(), q(), q(), t(1, 2, 8, dtype=F32)), RuntimeError, "the gradient is"),
    ("backward with a gradient of another type", lambda: backward(q(dtype=BF16), q(), q(), q(), q(), t(1, 2, 8, dtype=F32)), RuntimeError, "bfloat16"),
    ("backward with half log-sum-exps", lambda: backward(q(), q(), q(), q(), q(), t(1, 2, 8)), RuntimeError, "lse is"),
    ("backward with log-sum-exps of other rows", lambda: backward(q(), q(), q(), q(), q(), t(1, 2, 7, dtype=F32)), RuntimeError, "is wanted"),
    ("backward with results elsewhere", lambda: backward(q(), q(), q(), q(), meta(1, 2, 8, 16), t(1, 2, 8, dtype=F32)), (ValueError, RuntimeError), "device"),
    ("packed backward with long starts", lambda: packed_backward(*(t(8, 2, 16),) * 5, t(2, 8, dtype=F32), starts.long(), starts, 4, 4), RuntimeError, "int32"),
    ("packed backward with a longest that is too short", lambda: packed_backward(*(t(8, 2, 16),) * 5, t(2, 8, dtype=F32), starts, starts, 3, 4), RuntimeError, "the longest sequence"),
    ("backward that is too much to simulate", lambda: backward(*(q(1, 8, 1024, 64),) * 5, t(1, 8, 1024, dtype=F32)), RuntimeError, "simulated GPU too long"),
    # Transforms that know nothing of the operations
    ("mm in forward mode", lambda: torch.func.jvp(lambda a: ht.mm(a, t(16, 8)), (t(8, 16),), (t(8, 16),)), Unsupported, "tangent"),
    ("sdpa in forward mode", lambda: torch.func.jvp(lambda a: sdpa(a, q(), q()), (q(),), (q(),)), Unsupported, "tangent"),
    ("kvcache in forward mode", lambda: torch.func.jvp(lambda a: cached(a, *cache), (one,), (one,)), Unsupported, "tangent"),
    ("linear inside torch.func.grad", lambda: torch.func.grad(lambda a: ht.linear(a, t(8, 16)).sum())(t(2, 16)), Unsupported, "torch.autograd.grad"),
    ("flash inside torch.func.grad", lambda: torch.func.grad(lambda a: flash(a, a, a).sum())(one), Unsupported, "torch.autograd.grad"),
    ("qkv of two parts", lambda: ht.flash_attn_qkvpacked_func(t(1, 8, 2, 2, 16)), ValueError, "3, heads, elements"),
    ("kv of four dimensions", lambda: ht.flash_attn_kvpacked_func(one, t(8, 2, 2, 16)), ValueError, "batch, rows, 2"),
    # Sizes
    ("mm of 2^31 rows", lambda: ht.mm(huge(2**31, 16), t(16, 8)), Unsupported, "2^31"),
    ("mm of 2^31 columns", lambda: ht.mm(t(8, 16), huge(2**31, 16).t()), Unsupported, "2^31"),
    ("addmm of 2^31 rows", lambda: ht.addmm(t(8), huge(2**31, 16), t(16, 8)), Unsupported, "2^31"),
    ("mm with rows 2^24 apart", lambda: ht.mm(torch.empty(2**25, dtype=F16).as_strided((2, 16), (2**24, 1)), t(16, 8)), Unsupported, "too far"),
    ("mm that is too much to simulate", lambda: ht.mm(t(2048, 1024), t(1024, 1024)), Unsupported, "simulated GPU too long"),
    ("sdpa that is too much to simulate", lambda: sdpa(*(q(1, 8, 2048, 64),) * 3), Unsupported, "simulated GPU too long"),
    ("sdpa of 2^28 rows", lambda: sdpa(huge(1, 1, 2**28, 16), q(1, 1, 8, 16), q(1, 1, 8, 16)), Unsupported, "2^28"),
    ("sdpa of a batch of 2^31", lambda: sdpa(huge(2**31, 1, 1, 16), huge(2**31, 1, 1, 16), huge(2**31, 1, 1, 16)), Unsupported, "2^28"),
    ("linear of 2^31 rows", lambda: ht.linear(huge(2**31, 16), t(8, 16)), Unsupported, "2^31"),
    ("grouped_mm of 2^31 rows", lambda: ht.grouped_mm(huge(2**31, 16), t(2, 16, 8), offs=offs), Unsupported, "2^31"),
]  # fmt: skip


def test_the_table_is_long():
    assert len(TABLE) >= 60
    assert len({name for name, *_ in TABLE}) == len(TABLE)


@pytest.mark.parametrize("call, error, words", [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
def test_refused_with_cause_and_remedy(call, error, words):
    with pytest.raises(error) as raised:
        call()
    assert words in str(raised.value), str(raised.value)
