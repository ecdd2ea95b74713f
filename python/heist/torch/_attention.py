"""Attention as operations: sequences that are all alike, packed ones, and pages."""

from __future__ import annotations

import torch

from ._device import DTYPES, PLANS, Launcher, UnsupportedError, aligned, device_of, one_device, ops_of, placed, settle
from ._gradient import GRADIENT, GRADIENT_PACKED, GRADIENT_PACKED_SCORED, GRADIENT_PAIRED, GRADIENT_SCORED, HOW, QKV
from ._layout import (
    check, check_cache, check_lengths, check_starts, dense, empty, mostly_rows, odd_heads, of_four, of_one, same_heads, where_they_lie,
    window_of,
)  # fmt: skip
from ._library import define, remember
from ._masks import MASKS, Masked
from ._pairs import PAIRS, Paired
from ._scores import SCORES, Scores

_PLAIN = Scores()

#: The operands that new keys and values are.
_NEW = 12, 13

# --- Sequences that are all alike -------------------------------------------


def _same(q, k, v, scale, causal, left, right, policy, want_lse, scores=_PLAIN, turned=False, given=True):
    """The operation for (batch, heads, rows, elements) on real memory. The result of one that was called with (batch, rows,
    heads, elements) is turned back. What was not `given` so, but made of other tensors, is not to be remembered."""
    if (q.data_ptr() | k.data_ptr() | v.data_ptr()) % 16:
        (q, k, v), given = placed(q, k, v), False
    key = (
        q.shape, k.shape, v.shape, q.stride(), k.stride(), v.stride(), q.dtype, k.dtype, v.dtype,
        q.get_device(), k.get_device(), v.get_device(), scale, causal, left, right, policy, *scores.key(),
    )  # fmt: skip
    found = PLANS.get(key)
    if found is None:
        found = PLANS[key] = _plan_same(q, k, v, scale, causal, left, right, policy, scores)
    launcher, rows, keep = found
    if keep is not None:
        q, k, v = (tensor if kept else dense(tensor, rows) for tensor, kept in zip((q, k, v), keep))
    out = empty(q, rows, v.shape[3])
    lse = None
    address = 0
    if want_lse:
        lse = torch.empty(q.shape[:3], dtype=torch.float32, device=q.device)
        address = lse.data_ptr()
    if launcher is None:
        # Without queries there is nothing to compute, and without keys nothing to see.
        out.zero_()
        if lse is not None:
            scores.empty_sums(lse, 1)
        return out.transpose(1, 2) if turned else out, lse
    launcher(q.data_ptr(), k.data_ptr(), v.data_ptr(), out.data_ptr(), address, *scores.addresses(5))
    if turned:
        out = out.transpose(1, 2)
    if keep is None and given:
        remember(launcher, [0, 1, 2, *scores.slots()], [(out, 3)] if lse is None else [(out, 3), (lse, 4)])
    return out, lse


def _plan_same(q, k, v, scale, causal, left, right, policy, scores):
    what = "attention"
    check(what, q, k, v, 1, 2)
    scores.check(what, q, k)
    index = device_of(what, q, k, v, *scores.tensors())
    # The layout that most have; the others are copied.
    rows = mostly_rows(q, k, v)
    if q.numel() == 0 or k.numel() == 0:
        return None, rows, None
    batch, heads, queries, dim = q.shape
    plan, keep = where_they_lie(
        rows, (q, k, v),
        lambda views: ops_of(index).attention(
            batch, queries, k.shape[2], heads, k.shape[1], dim,
            dtype=DTYPES[q.dtype], rows=rows, causal=causal, scale=scale or None, policy=policy or None,
            window=window_of(left, right), value_dim=v.shape[3], views=views, **scores.how(),
        ),
    )  # fmt: skip
    return Launcher(index, plan), rows, None if all(keep) else keep


def _attention(q, k, v, causal=False, left=-1, right=-1, scale=0.0, policy=""):
    return _same(q, k, v, scale, causal, left, right, policy, False)[0]


def _attention_lse(q, k, v, causal=False, left=-1, right=-1, scale=0.0, policy=""):
    return _same(q, k, v, scale, causal, left, right, policy, True)


def _like(q, k, v, *how):
    """An output without memory, laid out as the operation does it."""
    one_device("attention", q, k, v)
    check("attention", q, k, v, 1, 2)
    return empty(q, mostly_rows(q, k, v), v.shape[3])


def _like_lse(q, k, v, *how):
    return _like(q, k, v), q.new_empty(q.shape[:3], dtype=torch.float32)


attend = define("attention", f"{QKV}, {HOW}", "Tensor", _attention, _like)
attend_lse = define("attention_lse", f"{QKV}, {HOW}", "(Tensor, Tensor)", _attention_lse, _like_lse, GRADIENT)


def _any_heads(attend, q, k, v, scale):
    """Attention of heads of any size: where the kernels do not have it, zeros are put behind their elements, in a copy."""
    if q.dim() and v.dim() and odd_heads(q, v, False):
        own = same_heads(q, k, v)
        if own[0] is not q:
            return attend(*own, scale or q.shape[-1] ** -0.5, False)[..., : v.shape[-1]]
    return attend(q, k, v, scale, True)


def _any_axes(attend, q, k, v, scale):
    """The same with more or fewer axes in front of the heads: those are the batch, and what is not there is one."""
    axes = q.dim()
    if axes == k.dim() == v.dim() == 4:
        return _any_heads(attend, q, k, v, scale)
    if axes < 2 or axes == 4 or not axes == k.dim() == v.dim():
        check("scaled_dot_product_attention", q, k, v, 1, 2)
    own = (of_four(t) for t in (q, k, v))
    out = _any_heads(lambda q, k, v, scale, given: attend(q, k, v, scale, False), *own, scale)
    return out.reshape(*q.shape[:-1], v.shape[-1])


def _flash(q, k, v, causal=False, scale=0.0, policy=""):
    """The operation for (batch, rows, heads, elements)."""

    def attend(q, k, v, scale, given):
        check("flash_attn_func", q, k, v, 2, 1)
        turned = (t.transpose(1, 2) for t in (q, k, v))
        return _same(*turned, scale, causal, -1, -1, policy, False, turned=True, given=given)[0]

    return _any_heads(attend, q, k, v, scale)


def _like_flash(q, k, v, *how):
    def attend(q, k, v, scale, given):
        check("flash_attn_func", q, k, v, 2, 1)
        return _like(*(t.transpose(1, 2) for t in (q, k, v))).transpose(1, 2)

    return _any_heads(attend, q, k, v, 0.0)


attend_flash = define("flash", f"{QKV}, bool causal=False, float scale=0.0", "Tensor", _flash, _like_flash)


def _scored(q, k, v, slopes, sinks, softcap, causal=False, left=-1, right=-1, scale=0.0, policy=""):
    return _same(q, k, v, scale, causal, left, right, policy, True, Scores(slopes, sinks, softcap))


def _like_scored(q, k, v, slopes, sinks, softcap, *how):
    one_device("attention", q, slopes, sinks)
    return _like_lse(q, k, v)


attend_scored = define("attention_scored", f"{QKV}, {SCORES}, {HOW}", "(Tensor, Tensor)", _scored, _like_scored, GRADIENT_SCORED)


def _masked(
    q, k, v, slopes, sinks, softcap, prefixes, documents, block_mask, block_rows, block_keys, causal=False, left=-1, right=-1,
    scale=0.0, policy="",
):  # fmt: skip
    masked = Masked(Scores(slopes, sinks, softcap), prefixes, documents, block_mask, block_rows, block_keys)
    return _same(q, k, v, scale, causal, left, right, policy, True, masked)


def _like_masked(q, k, v, slopes, sinks, softcap, prefixes, documents, block_mask, *how):
    one_device("attention", q, slopes, sinks, prefixes, documents, block_mask)
    return _like_lse(q, k, v)


attend_masked = define(
    "attention_masked", f"{QKV}, {SCORES}, {MASKS}, {HOW}", "(Tensor, Tensor)", _masked, _like_masked
)


def _paired(q, k, v, pairs, causal=False, left=-1, right=-1, scale=0.0, policy=""):
    return _same(q, k, v, scale, causal, left, right, policy, True, Paired(pairs))


def _like_paired(q, k, v, pairs, *how):
    one_device("attention", q, pairs)
    Paired(pairs).check("attention", q, k)
    return _like_lse(q, k, v)


attend_paired = define(
    "attention_paired", f"{QKV}, {PAIRS}, {HOW}", "(Tensor, Tensor)", _paired, _like_paired, GRADIENT_PAIRED
)


def _paired_scored(q, k, v, pairs, slopes, sinks, softcap, causal=False, left=-1, right=-1, scale=0.0, policy=""):
    return _same(q, k, v, scale, causal, left, right, policy, True, Paired(pairs, Scores(slopes, sinks, softcap)))


def _like_paired_scored(q, k, v, pairs, slopes, sinks, softcap, *how):
    one_device("attention", q, slopes, sinks)
    return _like_paired(q, k, v, pairs)


attend_paired_scored = define(
    "attention_paired_scored", f"{QKV}, {PAIRS}, {SCORES}, {HOW}", "(Tensor, Tensor)", _paired_scored, _like_paired_scored
)


def counted(q, k, v, causal=False, gqa=False, scale=0.0):
    """What PyTorch's function asks for, as the kernels take it: a causal mask is counted
    from the first key there, and from the last one in the kernels."""
    what = "scaled_dot_product_attention"
    check(what, q, k, v, 1, 2)
    (_, heads, queries, _), (_, kv_heads, keys, _) = q.shape, k.shape
    if heads != kv_heads and not gqa:
        raise ValueError(f"{what}: {heads} query heads and {kv_heads} key heads; say enable_gqa=True")
    right = -1
    if causal and queries != keys:
        causal = keys > queries
        if causal:
            k, v = k[:, :, :queries], v[:, :, :queries]
        else:
            right = queries - keys
    return q, k, v, scale, causal, -1, right


def _sdpa(q, k, v, causal=False, gqa=False, scale=0.0, policy=""):
    def attend(q, k, v, scale, given):
        return _same(*counted(q, k, v, causal, gqa, scale), policy, False, given=given)[0]

    return _any_axes(attend, q, k, v, scale)


def _like_sdpa(q, k, v, causal=False, gqa=False, *scale):
    one_device("scaled_dot_product_attention", q, k, v)
    return _any_axes(lambda q, k, v, scale, given: _like(*counted(q, k, v, causal, gqa)), q, k, v, 0.0)


attend_sdpa = define(
    "sdpa", f"{QKV}, bool causal=False, bool gqa=False, float scale=0.0", "Tensor", _sdpa, _like_sdpa
)


# --- Packed sequences ---------------------------------------------------------


def _packed(
    q, k, v, q_starts, k_starts, most_queries, most_keys, causal=False, left=-1, right=-1, scale=0.0, policy="", scores=_PLAIN
):
    """The operation for (rows of all sequences, heads, elements)."""
    given = q, k, v, q_starts, k_starts
    if (q.data_ptr() | k.data_ptr() | v.data_ptr()) % 16:
        q, k, v = placed(q, k, v)
    key = (
        q.shape, k.shape, v.shape, q.stride(), k.stride(), v.stride(), q.dtype, k.dtype, v.dtype,
        q.get_device(), k.get_device(), v.get_device(), q_starts.get_device(), k_starts.get_device(),
        q_starts.shape, q_starts.dtype, k_starts.shape, k_starts.dtype, most_queries, most_keys, scale, causal, left, right, policy,
        *scores.key(),
    )  # fmt: skip
    found = PLANS.get(key)
    if found is None:
        found = _plan_packed(
            q, k, v, q_starts, k_starts, most_queries, most_keys, scale, causal, left, right, policy, scores
        )
        PLANS[key] = found
    launcher, keep = found
    out = q.new_empty((*q.shape[:2], v.shape[2]))
    lse = torch.empty((q.shape[1], q.shape[0]), dtype=torch.float32, device=q.device)
    if launcher is None:
        out.zero_()
        scores.empty_sums(lse, 0)
    else:
        own = [tensor if kept else tensor.contiguous() for tensor, kept in zip((q, k, v), keep)]
        own += [tensor.contiguous() for tensor in (q_starts, k_starts)]
        launcher(
            *(t.data_ptr() for t in own[:3]), out.data_ptr(), lse.data_ptr(), *(t.data_ptr() for t in own[3:]), *scores.addresses(7)
        )
        if all(a is b for a, b in zip(own, given)):
            remember(launcher, [0, 1, 2, 5, 6, *scores.slots()], [(out, 3), (lse, 4)])
    return out, lse


def _plan_packed(q, k, v, q_starts, k_starts, most_queries, most_keys, scale, causal, left, right, policy, scores):
    what = "packed attention"
    check(what, q, k, v, 1, None)
    check_starts(what, q_starts, k_starts)
    scores.check(what, q, k)
    index = device_of(what, q, k, v, q_starts, k_starts, *scores.tensors())
    sequences = q_starts.numel() - 1
    if q.numel() == 0 or k.numel() == 0 or sequences == 0:
        return None, None
    for name, most, length in (("max_seqlen_q", most_queries, q.shape[0]), ("max_seqlen_k", most_keys, k.shape[0])):
        if most < 1:
            raise ValueError(f"{what}: {name} is {most}, and there are {length} rows; say the length of the longest sequence")
    plan, keep = where_they_lie(
        True, [of_one(tensor) for tensor in (q, k, v)],
        lambda views: ops_of(index).attention(
            sequences, min(most_queries, q.shape[0]), min(most_keys, k.shape[0]), q.shape[1], k.shape[1], q.shape[2],
            dtype=DTYPES[q.dtype], rows=True, packed=(q.shape[0], k.shape[0]), causal=causal, scale=scale or None,
            policy=policy or None, window=window_of(left, right), value_dim=v.shape[2], views=views, **scores.how(),
        ),
    )  # fmt: skip
    return Launcher(index, plan), keep


def _like_packed(q, k, v, q_starts, k_starts, *how):
    one_device("packed attention", q, k, v, q_starts, k_starts)
    check("packed attention", q, k, v, 1, None)
    lse = q.new_empty((q.shape[1], q.shape[0]), dtype=torch.float32)
    return q.new_empty((*q.shape[:2], v.shape[2])), lse


attend_packed = define(
    "attention_packed", f"{QKV}, Tensor q_starts, Tensor k_starts, int most_queries, int most_keys, {HOW}",
    "(Tensor, Tensor)", _packed, _like_packed, GRADIENT_PACKED,
)  # fmt: skip


def _packed_scored(
    q, k, v, q_starts, k_starts, slopes, sinks, softcap, most_queries, most_keys, causal=False, left=-1, right=-1, scale=0.0,
    policy="",
):  # fmt: skip
    scores = Scores(slopes, sinks, softcap)
    return _packed(q, k, v, q_starts, k_starts, most_queries, most_keys, causal, left, right, scale, policy, scores)


def _like_packed_scored(q, k, v, q_starts, k_starts, slopes, sinks, *how):
    one_device("packed attention", q, slopes, sinks)
    return _like_packed(q, k, v, q_starts, k_starts)


attend_packed_scored = define(
    "attention_packed_scored", f"{QKV}, Tensor q_starts, Tensor k_starts, {SCORES}, int most_queries, int most_keys, {HOW}",
    "(Tensor, Tensor)", _packed_scored, _like_packed_scored, GRADIENT_PACKED_SCORED,
)  # fmt: skip


def _packed_masked(
    q, k, v, q_starts, k_starts, slopes, sinks, softcap, prefixes, documents, block_mask, block_rows, block_keys, most_queries, most_keys,
    causal=False, left=-1, right=-1, scale=0.0, policy="",
):  # fmt: skip
    # As far as tensors go: no sequence is longer.
    longest = min(most_queries, q.shape[0]), min(most_keys, k.shape[0])
    masked = Masked(
        Scores(slopes, sinks, softcap), prefixes, documents, block_mask, block_rows, block_keys, (q_starts.numel() - 1, *longest)
    )
    return _packed(q, k, v, q_starts, k_starts, most_queries, most_keys, causal, left, right, scale, policy, masked)


def _like_packed_masked(q, k, v, q_starts, k_starts, slopes, sinks, softcap, prefixes, documents, block_mask, *how):
    one_device("packed attention", q, slopes, sinks, prefixes, documents, block_mask)
    return _like_packed(q, k, v, q_starts, k_starts)


attend_packed_masked = define(
    "attention_packed_masked", f"{QKV}, Tensor q_starts, Tensor k_starts, {SCORES}, {MASKS}, int most_queries, int most_keys, {HOW}",
    "(Tensor, Tensor)", _packed_masked, _like_packed_masked,
)  # fmt: skip


# --- Keys and values in pages ---------------------------------------------------


def over_pages(
    q, k, v, lengths, pages, causal=False, left=-1, right=-1, scale=0.0, policy="", factors=(), scores=_PLAIN, new=(), sums=True
):
    """The operation for queries (batch, rows, heads, elements) over keys and values
    (page, token, heads, elements), of which a table has the pages of each sequence; of
    8-bit keys and values there are the factors of each key head, too. New keys and values (batch, rows, heads, elements)
    are put into the pages. Without a table each sequence has as many pages as the others, in order. Without `sums` there are
    no log-sum-exps."""
    key = (
        q.shape, k.shape, v.shape, q.stride(), k.stride(), v.stride(), q.dtype, k.dtype, v.dtype,
        q.get_device(), k.get_device(), v.get_device(), lengths.get_device(), lengths.shape, lengths.dtype,
        None if pages is None else (pages.shape, pages.dtype, pages.get_device()), scale, causal, left, right, policy, "paged",
        *((factor.shape, factor.dtype, factor.get_device()) for factor in factors), *scores.key(),
        *((one.shape, one.stride(), one.dtype, one.get_device()) for one in new),
    )  # fmt: skip
    found = PLANS.get(key)
    if found is None:
        found = PLANS[key] = _plan_paged(q, k, v, lengths, pages, scale, causal, left, right, policy, factors, scores, new)
    launcher, q_starts, in_order = found
    table = in_order if pages is None else pages
    out = torch.empty_like(q, memory_format=torch.contiguous_format)
    lse = torch.empty((q.shape[2], q.shape[0] * q.shape[1]), dtype=torch.float32, device=q.device) if sums else None
    if launcher is None:
        return out.zero_(), None if lse is None else scores.empty_sums(lse, 0)
    given = (q, lengths, table, *factors, *new)
    own = [tensor.contiguous() for tensor in given]
    behind = 3 + len(factors)
    addresses = [
        own[0].data_ptr(), k.data_ptr(), v.data_ptr(), out.data_ptr(), 0 if lse is None else lse.data_ptr(), q_starts.data_ptr(),
        *(tensor.data_ptr() for tensor in own[1:behind]), *scores.addresses(5 + behind),
    ]  # fmt: skip
    if new:
        addresses += [0] * (_NEW[0] - len(addresses)) + [tensor.data_ptr() for tensor in own[behind:]]
    launcher(*addresses)
    if all(a is b for a, b in zip(own, given)):
        scales = [8, 9] if factors else [None, None] if new else []
        slots = [0, 1, 2, 6, *(() if pages is None else (7,)), *(_NEW if new else ()), *scales, *scores.slots()]
        constants = [(5, q_starts.data_ptr()), *([(7, table.data_ptr())] if pages is None else ())]
        remember(launcher, slots, [(out, 3)] if lse is None else [(out, 3), (lse, 4)], constants)
    return out, lse


def _plan_paged(q, k, v, lengths, pages, scale, causal, left, right, policy, factors, scores, new):
    what = "paged attention"
    if pages is not None:
        check_cache(what, q, k, v, pages, new)
        check_lengths(what, q, lengths)
    scores.check(what, q, k, 2)
    index = device_of(what, q, k, v, lengths, *(() if pages is None else (pages,)), *factors, *scores.tensors(), *new)
    cache = torch.float8_e4m3fn if factors else q.dtype
    if q.dtype not in (torch.float16, torch.bfloat16) or k.dtype != cache or v.dtype != cache:
        raise UnsupportedError(
            f"{what}: queries of {q.dtype} over keys of {k.dtype} and values of {v.dtype}; float16 and bfloat16 are supported, and "
            "keys and values of the same type, or of float8_e4m3fn with factors"
        )
    for name, factor in zip(("key", "value"), factors):
        if factor.shape != k.shape[2:3] or factor.dtype != torch.float32:
            raise ValueError(
                f"{what}: the factors of the {name} are {factor.dtype} of {tuple(factor.shape)}; float32, one for each of "
                f"{k.shape[2]} key heads, are wanted"
            )
    append = None
    if new:
        shape = (q.shape[0], new[0].shape[1], *k.shape[2:])
        if any(one.shape != shape or one.dtype != new[0].dtype or one.dtype not in (q.dtype, cache) for one in new):
            raise ValueError(
                f"{what}: new keys are {new[0].dtype} of {tuple(new[0].shape)} and new values {new[1].dtype} of {tuple(new[1].shape)}; "
                f"{q.dtype} or {cache} of (batch, rows, heads, elements), {shape}, are wanted"
            )
        aligned(what, **{"new keys": new[0], "new values": new[1]})
        append = shape[1], new[0].dtype == cache
    batch, queries, heads, dim = q.shape
    q_starts = torch.arange(batch + 1, dtype=torch.int32, device=q.device) * queries
    in_order = None
    if pages is None:
        in_order = pages = torch.arange(k.shape[0], dtype=torch.int32, device=q.device).view(batch, k.shape[0] // max(batch, 1))
    if q.numel() == 0 or k.numel() == 0 or pages.numel() == 0:
        return None, q_starts, in_order
    settle(index)
    aligned(what, query=q, key=k, value=v)
    plan = ops_of(index).attention(
        batch, queries, 0, heads, k.shape[2], dim, dtype=DTYPES[q.dtype], rows=True,
        cache="e4m3" if factors else "same", paged=(k.shape[1], pages.shape[1], k.shape[0]), causal=causal, scale=scale or None, policy=policy or None,
        window=window_of(left, right), append=append, **scores.how(),
    )  # fmt: skip
    return Launcher(index, plan), q_starts, in_order


def like_pages(q, k, v, lengths, *more):
    """What `over_pages` gives; of `more` the tensors count."""
    one_device("paged attention", q, k, v, lengths, *(one for one in more if isinstance(one, torch.Tensor)))
    lse = q.new_empty((q.shape[2], q.shape[0] * q.shape[1]), dtype=torch.float32)
    return torch.empty_like(q, memory_format=torch.contiguous_format), lse


attend_paged = define(
    "attention_paged", f"{QKV}, Tensor lengths, Tensor pages, {HOW}", "(Tensor, Tensor)", over_pages, like_pages
)


def _paged_e4m3(q, k, v, lengths, pages, k_scale, v_scale, causal=False, left=-1, right=-1, scale=0.0, policy=""):
    return over_pages(q, k, v, lengths, pages, causal, left, right, scale, policy, (k_scale, v_scale))


def _like_paged_e4m3(q, k, v, lengths, pages, k_scale, v_scale, *how):
    one_device("paged attention", q, k_scale, v_scale)
    return like_pages(q, k, v, lengths, pages)


attend_paged_e4m3 = define(
    "attention_paged_e4m3", f"{QKV}, Tensor lengths, Tensor pages, Tensor k_scale, Tensor v_scale, {HOW}",
    "(Tensor, Tensor)", _paged_e4m3, _like_paged_e4m3,
)  # fmt: skip


def _paged_scored(q, k, v, lengths, pages, slopes, sinks, softcap, causal=False, left=-1, right=-1, scale=0.0, policy=""):
    return over_pages(q, k, v, lengths, pages, causal, left, right, scale, policy, (), Scores(slopes, sinks, softcap))


def _like_paged_scored(q, k, v, lengths, pages, slopes, sinks, *how):
    one_device("paged attention", q, slopes, sinks)
    return like_pages(q, k, v, lengths, pages)


attend_paged_scored = define(
    "attention_paged_scored", f"{QKV}, Tensor lengths, Tensor pages, {SCORES}, {HOW}", "(Tensor, Tensor)", _paged_scored, _like_paged_scored
)


def _append(
    q, k, v, lengths, pages, k_new, v_new, k_scale, v_scale, slopes, sinks, softcap, causal=False, left=-1, right=-1, scale=0.0,
    policy="",
):  # fmt: skip
    """The operation for paged keys and values that puts new ones behind them first. Factors without elements are none."""
    factors = (k_scale, v_scale) if k_scale.numel() else ()
    scores = Scores(slopes, sinks, softcap)
    return over_pages(q, k, v, lengths, pages, causal, left, right, scale, policy, factors, scores, (k_new, v_new))


def _like_append(q, k, v, lengths, pages, *more):
    one_device("paged attention", q, *more[:6])
    return like_pages(q, k, v, lengths, pages)


attend_append = define(
    "attention_append", "Tensor q, Tensor(a!) k, Tensor(b!) v, Tensor lengths, Tensor pages, Tensor k_new, Tensor v_new, "
    f"Tensor k_scale, Tensor v_scale, {SCORES}, {HOW}", "(Tensor, Tensor)", _append, _like_append,
)  # fmt: skip


# --- Keys and values that are one row ---------------------------------------------


def _latent(q, k, lengths, pages, value_dim, causal=False, left=-1, right=-1, scale=0.0, policy=""):
    """The operation for queries (batch, rows, heads, elements) over a latent cache (page, token, key heads, elements): values are the
    first `value_dim` elements of the keys."""
    key = (
        q.shape, k.shape, q.stride(), k.stride(), q.dtype, k.dtype, q.get_device(), k.get_device(), lengths.get_device(),
        pages.get_device(), lengths.shape, lengths.dtype, pages.shape, pages.dtype, value_dim, scale, causal, left, right, policy, "latent",
    )  # fmt: skip
    found = PLANS.get(key)
    if found is None:
        found = PLANS[key] = _plan_latent(q, k, lengths, pages, value_dim, scale, causal, left, right, policy)
    launcher, q_starts = found
    out = q.new_empty((*q.shape[:3], value_dim))
    lse = torch.empty((q.shape[2], q.shape[0] * q.shape[1]), dtype=torch.float32, device=q.device)
    if launcher is None:
        return out.zero_(), lse.fill_(float("-inf"))
    given = (q, lengths, pages)
    own = [tensor.contiguous() for tensor in given]
    launcher(
        own[0].data_ptr(), k.data_ptr(), 0, out.data_ptr(), lse.data_ptr(), q_starts.data_ptr(), *(t.data_ptr() for t in own[1:])
    )
    if all(a is b for a, b in zip(own, given)):
        remember(launcher, [0, 1, 6, 7], [(out, 3), (lse, 4)], [(5, q_starts.data_ptr())])
    return out, lse


def _plan_latent(q, k, lengths, pages, value_dim, scale, causal, left, right, policy):
    what = "latent attention"
    index = device_of(what, q, k, lengths, pages)
    if q.dtype not in (torch.float16, torch.bfloat16) or k.dtype != q.dtype:
        raise UnsupportedError(f"{what}: queries of {q.dtype} over a cache of {k.dtype}; float16 and bfloat16 are supported, both the same")
    if q.dim() != 4 or k.dim() != 4 or q.shape[3] != k.shape[3] or not k.is_contiguous():
        raise ValueError(
            f"{what}: q is {tuple(q.shape)} and the cache {tuple(k.shape)}; (batch, rows, heads, elements) and (pages, tokens, key heads, "
            "elements), contiguous, with the same elements are wanted"
        )
    batch, queries, heads, dim = q.shape
    for name, table, shape in (("lengths", lengths, (batch,)), ("pages", pages, (batch, pages.shape[-1] if pages.dim() else 0))):
        if table.dtype != torch.int32 or table.shape != shape:
            raise ValueError(f"{what}: {name} is {table.dtype} of {tuple(table.shape)}; int32 of {shape} is wanted")
    q_starts = torch.arange(batch + 1, dtype=torch.int32, device=q.device) * queries
    if q.numel() == 0 or k.numel() == 0 or pages.numel() == 0:
        return None, q_starts
    settle(index)
    aligned(what, query=q, cache=k)
    plan = ops_of(index).attention(
        batch, queries, 0, heads, k.shape[2], dim, dtype=DTYPES[q.dtype], rows=True, cache="latent", value_dim=value_dim,
        paged=(k.shape[1], pages.shape[1], k.shape[0]), causal=causal, scale=scale or None, policy=policy or None,
        window=window_of(left, right),
    )  # fmt: skip
    return Launcher(index, plan), q_starts


def _like_latent(q, k, lengths, pages, value_dim, *how):
    one_device("latent attention", q, k, lengths, pages)
    lse = q.new_empty((q.shape[2], q.shape[0] * q.shape[1]), dtype=torch.float32)
    return q.new_empty((*q.shape[:3], value_dim)), lse


attend_latent = define(
    "attention_latent", f"Tensor q, Tensor k, Tensor lengths, Tensor pages, int value_dim, {HOW}", "(Tensor, Tensor)", _latent, _like_latent
)
