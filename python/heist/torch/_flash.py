"""Attention with the interfaces of PyTorch and flash_attn."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ._attention import (
    attend, attend_append, attend_latent, attend_lse, attend_masked, attend_packed, attend_packed_masked, attend_packed_scored, attend_paged, attend_paged_e4m3, attend_paged_scored, attend_scored,
    attend_sdpa, counted,
)  # fmt: skip
from ._device import UnsupportedError, no_gradient, no_policy, numbers, tensors_only, traced, wants_gradient
from ._gradient import check_heads
from ._layout import check, scale_of, without_defaults
from ._library import Operation, call, cause
from ._masks import masks_of
from ._scores import scores_of

_op_sdpa = attend_sdpa.plain


def _refuse(what: str, supported: str, **given: tuple[bool, Any]) -> None:
    for name, (wrong, value) in given.items():
        if wrong:
            shown = "a tensor" if isinstance(value, torch.Tensor) else repr(value)
            raise UnsupportedError(f"{what}: {name}={shown} is not supported; {supported}")


def scaled_dot_product_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    *,
    policy: Any = None,
) -> torch.Tensor:
    """As ``torch.nn.functional.scaled_dot_product_attention``: (batch, heads, rows,
    elements); ``is_causal`` lets query ``i`` see keys up to ``i``.

    float16 and bfloat16, heads of 16 to 256 elements in steps of 16, of values as many as of
    keys or fewer (on Hopper's GPUs), fewer key heads with ``enable_gqa``. No mask but the causal one, no dropout. Tensors lie as
    (batch, heads, rows, elements) or as (batch, rows, heads, elements) transposed;
    others are copied.

    >>> q = torch.ones(1, 4, 16, 16, dtype=torch.float16)
    >>> kv = torch.ones(1, 2, 16, 16, dtype=torch.float16)
    >>> scaled_dot_product_attention(q, kv, kv, is_causal=True, enable_gqa=True).shape
    torch.Size([1, 4, 16, 16])
    """
    what = "scaled_dot_product_attention"
    if attn_mask is not None or dropout_p:
        supported = "is_causal, scale and enable_gqa are"
        _refuse(what, supported, attn_mask=(attn_mask is not None, attn_mask), dropout_p=(bool(dropout_p), dropout_p))
    if not (isinstance(query, Tensor) and isinstance(key, Tensor) and isinstance(value, Tensor)):
        tensors_only(what, query=query, key=key, value=value)
    if query.dim() == 3 and key.dim() == 3 and value.dim() == 3:
        query, key, value = (tensor.unsqueeze(0) for tensor in (query, key, value))
        return scaled_dot_product_attention(
            query, key, value, is_causal=is_causal, scale=scale, enable_gqa=enable_gqa, policy=policy
        ).squeeze(0)
    if torch.is_grad_enabled() and (query.requires_grad or key.requires_grad or value.requires_grad):
        no_policy(what, policy)
        query, key, value, factor, causal, left, right = counted(
            query, key, value, is_causal, enable_gqa, scale_of(what, scale)
        )
        return _train(what, attend_lse, False, query, key, value, causal, left, right, factor)[0]
    # Types and sizes are checked where a call is planned, once.
    if policy is not None:
        return call(attend_sdpa, policy, query, key, value, is_causal, enable_gqa, scale_of(what, scale))
    try:
        if scale is not None:
            return _op_sdpa(query, key, value, is_causal, enable_gqa, scale_of(what, scale))
        if enable_gqa:
            return _op_sdpa(query, key, value, is_causal, True)
        return _op_sdpa(query, key, value, True) if is_causal else _op_sdpa(query, key, value)
    except RuntimeError as error:
        raise cause(error) from None


def _train(what: str, operation: Operation, deterministic: bool, query: torch.Tensor, *arguments: Any) -> Any:
    """An operation for inputs that want a gradient; results and log-sum-exps."""
    check_heads(what, query, arguments[1])
    return operation.train(query, *arguments, bool(deterministic) or torch.are_deterministic_algorithms_enabled())


def _window(what: str, window_size: Any, causal: bool) -> tuple[bool, int, int]:
    """Whether a mask is causal, and how many keys before and after are seen; -1 is all."""
    try:
        left, right = (-1 if side is None else int(side) for side in window_size)
    except (TypeError, ValueError):
        raise ValueError(f"{what}: window_size is two numbers, (before, after), -1 for all; given: {window_size!r}") from None
    if left < 0 and right < 0:
        return causal, -1, -1
    if causal:
        right = 0
    if left < 0 and right == 0:
        return True, -1, -1
    return False, left, right


def flash_attn_func(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: torch.Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
    *,
    sinks: torch.Tensor | None = None,
    prefix_lens: torch.Tensor | None = None,
    documents: torch.Tensor | None = None,
    block_mask: torch.Tensor | None = None,
    block_size: int | tuple[int, int] = 128,
    policy: Any = None,
) -> Any:
    """As ``flash_attn.flash_attn_func``: (batch, rows, heads, elements); a causal mask
    and a window count from the last key. With ``return_attn_probs`` the result is
    (out, log-sum-exp, None).

    ``softcap``, ``alibi_slopes`` and ``sinks``, one more score for each query head, of no key, change the
    scores; with them there is no gradient yet, nor with the masks that follow. ``prefix_lens`` (int32, one for each sequence): so many
    first keys are seen by every query, whatever a causal mask or a window says. ``documents`` (int32, (batch, keys)
    or (keys,)): a query sees the keys of its own document alone, which is that of the key at its place. ``block_mask`` (bool, (batch or 1,
    heads or 1, blocks of queries, blocks of keys) or the last two): False hides a whole block of keys from a
    block of queries, counted from the first; ``block_size`` is a multiple of 128 queries and of 64 keys. On Hopper's GPUs blocks that no
    query sees are skipped; masks of blocks are for these alone. Heads of values may have fewer elements than those of keys,
    on Hopper's GPUs.

    >>> q = k = v = torch.ones(1, 16, 2, 16, dtype=torch.float16)
    >>> flash_attn_func(q, k, v, causal=True).shape
    torch.Size([1, 16, 2, 16])
    >>> flash_attn_func(q, k, v, documents=torch.arange(16, dtype=torch.int32) // 5).shape
    torch.Size([1, 16, 2, 16])
    """
    what = "flash_attn_func"
    tensors_only(what, q=q, k=k, v=v)
    supported = "causal, window_size, softmax_scale, softcap, alibi_slopes, sinks and return_attn_probs are"
    _refuse(what, supported, dropout_p=(bool(dropout_p), dropout_p))
    if not q.dim() == k.dim() == v.dim() == 4:
        check(what, q, k, v, 2, 1)
    causal, left, right = _window(what, window_size, causal)
    q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
    factor = scale_of(what, softmax_scale)
    scores = scores_of(what, q, q.shape[1], softcap, alibi_slopes, sinks)
    masked = masks_of(what, q, k, scores, prefix_lens, documents, block_mask, block_size)
    if masked is not None or scores is not None:
        no_gradient(what, q, k, v, alibi_slopes, sinks)
        how = without_defaults(causal, left, right, factor)
        if masked is not None:
            out, lse = call(attend_masked, policy, q, k, v, *masked.scores, *masked[1:6], *how)
        else:
            out, lse = call(attend_scored, policy, q, k, v, *scores, *how)
        return (out.transpose(1, 2), lse, None) if return_attn_probs else out.transpose(1, 2)
    if wants_gradient(q, k, v):
        no_policy(what, policy)
        check(what, q, k, v, 1, 2)
        out, lse = _train(what, attend_lse, deterministic, q, k, v, causal, left, right, factor)
        return (out.transpose(1, 2), lse, None) if return_attn_probs else out.transpose(1, 2)
    arguments = (q, k, v, *without_defaults(causal, left, right, factor))
    if return_attn_probs:
        out, lse = call(attend_lse, policy, *arguments)
        return out.transpose(1, 2), lse, None
    return call(attend, policy, *arguments).transpose(1, 2)


def flash_attn_varlen_func(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: torch.Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: torch.Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
    block_table: torch.Tensor | None = None,
    *,
    sinks: torch.Tensor | None = None,
    prefix_lens: torch.Tensor | None = None,
    documents: torch.Tensor | None = None,
    block_mask: torch.Tensor | None = None,
    block_size: int | tuple[int, int] = 128,
    policy: Any = None,
) -> Any:
    """As ``flash_attn.flash_attn_varlen_func``: sequences one after the other, (rows,
    heads, elements). Where they begin is read on the device; nothing waits for it. Scores are changed and
    keys masked as by :func:`flash_attn_func`: ``documents`` has a number for each key of all sequences, and ``block_mask`` the blocks of
    sequences of ``max_seqlen_q`` and ``max_seqlen_k`` rows, counted from the first row of each.

    >>> q = k = v = torch.ones(24, 2, 16, dtype=torch.float16)
    >>> starts = torch.tensor([0, 8, 24], dtype=torch.int32)
    >>> flash_attn_varlen_func(q, k, v, starts, starts, 16, 16).shape
    torch.Size([24, 2, 16])
    """
    what = "flash_attn_varlen_func"
    tensors_only(what, q=q, k=k, v=v, cu_seqlens_q=cu_seqlens_q, cu_seqlens_k=cu_seqlens_k)
    supported = "causal, window_size, softmax_scale, softcap, alibi_slopes, sinks and return_attn_probs are"
    _refuse(what, supported, dropout_p=(bool(dropout_p), dropout_p), block_table=(block_table is not None, block_table))
    check(what, q, k, v, 1, None)
    causal, left, right = _window(what, window_size, causal)
    factor = scale_of(what, softmax_scale)
    given = q, k, v, cu_seqlens_q, cu_seqlens_k, int(max_seqlen_q), int(max_seqlen_k)
    how = without_defaults(causal, left, right, factor)
    scores = scores_of(what, q, q.shape[1], softcap, alibi_slopes, sinks)
    sequences = cu_seqlens_q.numel() - 1
    masked = masks_of(what, q, k, scores, prefix_lens, documents, block_mask, block_size, sequences)
    if masked is not None:
        no_gradient(what, q, k, v, alibi_slopes, sinks)
        out, lse = call(attend_packed_masked, policy, *given[:5], *masked.scores, *masked[1:6], *given[5:], *how)
    elif scores is not None:
        no_gradient(what, q, k, v, alibi_slopes, sinks)
        out, lse = call(attend_packed_scored, policy, *given[:5], *scores, *given[5:], *how)
    elif wants_gradient(q, k, v):
        no_policy(what, policy)
        out, lse = _train(what, attend_packed, deterministic, *given, causal, left, right, factor)
    else:
        out, lse = call(attend_packed, policy, *given, *how)
    return (out, lse, None) if return_attn_probs else out


def flash_attn_with_kvcache(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    k: torch.Tensor | None = None,
    v: torch.Tensor | None = None,
    rotary_cos: torch.Tensor | None = None,
    rotary_sin: torch.Tensor | None = None,
    cache_seqlens: int | torch.Tensor | None = None,
    cache_batch_idx: torch.Tensor | None = None,
    cache_leftpad: torch.Tensor | None = None,
    block_table: torch.Tensor | None = None,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    rotary_interleaved: bool = True,
    alibi_slopes: torch.Tensor | None = None,
    num_splits: int = 0,
    return_softmax_lse: bool = False,
    *,
    k_descale: torch.Tensor | None = None,
    v_descale: torch.Tensor | None = None,
    sinks: torch.Tensor | None = None,
    policy: Any = None,
) -> Any:
    """As ``flash_attn.flash_attn_with_kvcache``: queries (batch, rows, heads, elements)
    over a cache (batch, room, heads, elements) of which the first ``cache_seqlens``
    rows are filled. New keys and values ``k`` and ``v`` are put behind them first, in
    place, by the kernel that attends to them; those that there is no room for are left out. With ``block_table`` (int32, one row for each sequence) the cache is one of
    pages, (pages, tokens, heads, elements), pages of 8 to 4096 tokens in steps of 8.
    Lengths stay on the device. Scores are changed as by :func:`flash_attn_func`, over a cache of the
    queries' type.

    The cache may be of ``torch.float8_e4m3fn``, half the bytes to read: what it has in it times
    ``k_descale`` and ``v_descale`` (float32, one number or one for each key head; (batch, heads) where all
    sequences have the same, as ``expand`` makes it) are the keys and the values. New keys and
    values are divided by them, and saturate.

    >>> cache = torch.zeros(1, 32, 2, 16, dtype=torch.float16)
    >>> q = torch.ones(1, 1, 2, 16, dtype=torch.float16)
    >>> lengths = torch.tensor([5], dtype=torch.int32)
    >>> flash_attn_with_kvcache(q, cache, cache.clone(), q, q, cache_seqlens=lengths).shape
    torch.Size([1, 1, 2, 16])
    """
    what = "flash_attn_with_kvcache"
    tensors_only(what, q=q, k_cache=k_cache, v_cache=v_cache)
    supported = (
        "k, v, cache_seqlens, block_table, softmax_scale, causal, window_size, softcap, alibi_slopes, sinks, return_softmax_lse, "
        "k_descale and v_descale are"
    )
    _refuse(
        what, supported, rotary_cos=(rotary_cos is not None, rotary_cos), rotary_sin=(rotary_sin is not None, rotary_sin),
        cache_batch_idx=(cache_batch_idx is not None, cache_batch_idx),
        cache_leftpad=(cache_leftpad is not None, cache_leftpad),
    )  # fmt: skip
    no_gradient(what, q, k_cache, v_cache, k, v, alibi_slopes, sinks)
    if k_cache.dim() == v_cache.dim() and k_cache.shape != v_cache.shape:
        raise UnsupportedError(
            f"{what}: k_cache is {tuple(k_cache.shape)} and v_cache {tuple(v_cache.shape)}; heads of keys and values of the same size "
            "are supported in a cache: pad the values"
        )
    for name, cache in (("k_cache", k_cache), ("v_cache", v_cache)):
        if not cache.is_contiguous():
            raise ValueError(f"{what}: {name} is not contiguous, and is written in place: keep it as (batch, room, heads, elements)")
    if block_table is not None:
        tensors_only(what, block_table=block_table)
        if block_table.dim() != 2 or block_table.dtype != torch.int32 or block_table.shape[0] != q.shape[0]:
            raise ValueError(
                f"{what}: block_table is {block_table.dtype} of {tuple(block_table.shape)}; int32 with a row for each of "
                f"{q.shape[0]} sequences is wanted"
            )
    _check_cache(what, q, k_cache, v_cache, block_table is not None)
    factors = _factors(what, q, k_cache, v_cache, k_descale, v_descale)
    if (k is None) != (v is None):
        raise ValueError(f"{what}: new keys and new values come together; give both k and v, or neither")
    batch, queries, heads, dim = q.shape
    page = k_cache.shape[1]
    room = page if block_table is None else page * block_table.shape[1]
    lengths = _filled(what, q, cache_seqlens, 0 if k is None else k.shape[1], room, k is not None)
    if k is not None and v is not None:
        tensors_only(what, k=k, v=v)
        if k.shape != v.shape or k.dim() != 4 or k.shape[0] != batch or k.shape[2:] != k_cache.shape[2:]:
            raise ValueError(
                f"{what}: k is {tuple(k.shape)}, v is {tuple(v.shape)}; (batch, new rows, heads, elements) as in the cache "
                f"{tuple(k_cache.shape)} are wanted"
            )
    causal, left, right = _window(what, window_size, causal)
    how = without_defaults(causal, left, right, scale_of(what, softmax_scale))
    scores = scores_of(what, q, heads, softcap, alibi_slopes, sinks)
    if factors and scores is not None:
        raise UnsupportedError(
            f"{what}: softcap, alibi_slopes or sinks over a cache of float8_e4m3fn; a cache of {q.dtype} is supported with them"
        )
    more = scores or factors
    size = _page_of(room)
    if factors and block_table is None and not size:
        raise UnsupportedError(f"{what}: a cache of float8_e4m3fn with room for {room} rows; multiples of 8 are supported")
    caches = k_cache, v_cache
    if block_table is None and (factors or (queries <= 16 and size and policy is None)):
        # A sequence's room is its pages, in order.
        row = room // size
        block_table = numbers(batch * row, torch.int32, q.device).view(batch, row)
        caches = tuple(cache.view(batch * row, size, -1, dim) for cache in caches)
    if block_table is not None and k is not None and v is not None and k.numel():
        if not q.numel():
            raise ValueError(f"{what}: new keys and no queries; call it with queries, or put the keys into the cache by their index")
        out, lse = _append(what, policy, q, caches, lengths, block_table, (k, v), factors, scores, how)
    elif block_table is not None:
        paged = attend_paged_e4m3 if factors else attend_paged if scores is None else attend_paged_scored
        out, lse = call(paged, policy, q, *caches, lengths, block_table, *more, *how)
    else:
        if k is not None and v is not None:
            rows = lengths.long().unsqueeze(1) + numbers(k.shape[1], torch.int64, q.device)
            place = numbers(batch, torch.int64, q.device).unsqueeze(1), rows
            k_cache[place], v_cache[place] = k.to(k_cache.dtype), v.to(v_cache.dtype)
            lengths = lengths + k.shape[1]
        # Packed, with the room behind each sequence's keys as a sequence without queries.
        each = numbers(batch + 1, torch.int32, q.device)
        k_starts = torch.stack((each[:-1] * room, each[:-1] * room + lengths), dim=1).flatten()
        k_starts = torch.cat((k_starts, each[-1:] * room))
        q_starts = torch.stack((each[:-1] * queries, each[1:] * queries), dim=1).flatten()
        q_starts = torch.cat((q_starts, each[-1:] * queries))
        out, lse = call(
            attend_packed if scores is None else attend_packed_scored, policy, q.reshape(batch * queries, heads, dim),
            k_cache.view(batch * room, -1, dim), v_cache.view(batch * room, -1, dim), q_starts, k_starts, *more, queries, room, *how,
        )  # fmt: skip
    out = out.view(batch, queries, heads, dim)
    if return_softmax_lse:
        return out, lse.view(heads, batch, queries).transpose(0, 1)
    return out


def flash_mla_with_kvcache(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    block_table: torch.Tensor,
    cache_seqlens: torch.Tensor,
    head_dim_v: int,
    softmax_scale: float | None = None,
    causal: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Latent attention in decoding, by the main arguments of ``flash_mla.flash_mla_with_kvcache``: queries (batch, rows, heads, elements)
    over a cache of pages (pages, tokens, 1, elements) whose rows are the keys, and the first ``head_dim_v`` elements of them the values.
    Up to 576 elements, of values multiples of 128 up to 512; float16 and bfloat16; on Hopper's GPUs. The result is (out,
    log-sum-exp (batch, heads, rows)).

    >>> q = torch.ones(1, 1, 16, 192, dtype=torch.float16)
    >>> cache = torch.ones(2, 16, 1, 192, dtype=torch.float16)
    >>> table, lengths = torch.tensor([[1, 0]], dtype=torch.int32), torch.tensor([20], dtype=torch.int32)
    >>> flash_mla_with_kvcache(q, cache, table, lengths, 128)[0].shape
    torch.Size([1, 1, 16, 128])
    """
    what = "flash_mla_with_kvcache"
    tensors_only(what, q=q, k_cache=k_cache, block_table=block_table, cache_seqlens=cache_seqlens)
    no_gradient(what, q, k_cache)
    how = without_defaults(bool(causal), -1, -1, scale_of(what, softmax_scale))
    out, lse = call(attend_latent, None, q, k_cache, cache_seqlens, block_table, int(head_dim_v), *how)
    batch, queries, heads, _ = q.shape
    return out, lse.view(heads, batch, queries).transpose(0, 1)


def _as(q: torch.Tensor, cache: torch.Tensor) -> torch.Tensor:
    """A cache as far as shapes go, with 8-bit floats as if they were of the queries' type."""
    if cache.dtype != torch.float8_e4m3fn:
        return cache
    return torch.empty_like(cache, dtype=q.dtype, device="meta")


# Caches that fit their queries, by shapes and types: a model asks for the same in every step.
_checked: set[Any] = set()


def _check_cache(what: str, q: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor, paged: bool) -> None:
    """Fails where queries and a contiguous cache do not fit each other."""
    key = None
    if not traced():
        key = (q.shape, q.stride(), q.dtype, k_cache.shape, k_cache.dtype, v_cache.shape, v_cache.dtype, paged)
        if key in _checked:
            return
    caches = [_as(q, cache) for cache in (k_cache, v_cache)]
    if paged:
        # A cache of pages has no batch to compare.
        caches = [cache[:1].expand(q.shape[0], -1, -1, -1) for cache in caches]
    check(what, q, *caches, 2, 1)
    if key is not None:
        _checked.add(key)


def _append(
    what: str, policy: Any, q: Tensor, caches: tuple[Tensor, ...], lengths: Tensor, table: Tensor, new: tuple[Tensor, Tensor],
    factors: tuple[Tensor, ...], scores: Any, how: tuple[Any, ...],
) -> Any:  # fmt: skip
    """Puts new keys and values into pages and attends to all, in one call."""
    tiny = torch.float8_e4m3fn
    if tiny not in (new[0].dtype, new[1].dtype):
        new = new[0].to(q.dtype), new[1].to(q.dtype)
    elif not factors or new[0].dtype != new[1].dtype:
        raise ValueError(
            f"{what}: k is {new[0].dtype} and v {new[1].dtype}; both are of the queries' type, or of the cache's, {caches[0].dtype}"
        )
    none = q.new_empty(0, dtype=torch.float32)
    scores = scores or (none, none, 0.0)
    out = call(attend_append, policy, q, *caches, lengths, table, *new, *(factors or (none, none)), *scores, *how)
    if not traced():
        torch.autograd.graph.increment_version(caches)
    return out


def _factors(what: str, q: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor, *given: Any) -> tuple[torch.Tensor, ...]:
    """The factors of each key head of keys and of values, where the cache has 8-bit floats."""
    tiny = torch.float8_e4m3fn
    if tiny not in (k_cache.dtype, v_cache.dtype):
        if given != (None, None):
            raise ValueError(f"{what}: k_descale and v_descale are for a cache of float8_e4m3fn, and this one is {k_cache.dtype}")
        return ()
    if k_cache.dtype != v_cache.dtype:
        raise ValueError(f"{what}: k_cache is {k_cache.dtype} and v_cache {v_cache.dtype}; both are of one type")
    heads = k_cache.shape[2]
    factors = []
    for name, factor in zip(("k_descale", "v_descale"), given):
        if factor is None:
            factor = torch.ones((), dtype=torch.float32, device=q.device)
        tensors_only(what, **{name: factor})
        if factor.dim() == 2 and factor.shape[0] == q.shape[0] and (factor.stride(0) == 0 or q.shape[0] == 1):
            factor = factor[0]
        if factor.dtype != torch.float32 or factor.device != q.device or factor.shape not in ((), (1,), (heads,)):
            raise UnsupportedError(
                f"{what}: {name} is {factor.dtype} of {tuple(factor.shape)} on {factor.device}; float32 on {q.device}, one number "
                f"or one for each of {heads} key heads, the same for all sequences, is supported"
            )
        factors.append(factor.reshape(-1).expand(heads).contiguous())
    return tuple(factors)


def _filled(what: str, q: torch.Tensor, lengths: Any, new: int, room: int, appends: bool) -> torch.Tensor:
    """How many rows of each sequence are in the cache, as a tensor."""
    batch = q.shape[0]
    if lengths is None:
        lengths = 0 if appends else room
    if isinstance(lengths, int):
        if not 0 <= lengths <= room - new:
            raise ValueError(f"{what}: cache_seqlens={lengths} and {new} new rows do not fit a cache with room for {room}")
        return torch.full((batch,), lengths, dtype=torch.int32, device=q.device)
    tensors_only(what, cache_seqlens=lengths)
    if lengths.shape != (batch,) or lengths.dtype != torch.int32 or lengths.device != q.device:
        raise ValueError(
            f"{what}: cache_seqlens is {lengths.dtype} of {tuple(lengths.shape)} on {lengths.device}; it must be int32 "
            f"with one number for each of {batch} sequences, on {q.device}"
        )
    return lengths


def _page_of(room: int) -> int:
    """The largest page, a power of two, that a sequence's room is a multiple of; zero where
    there is none."""
    size = min(room & -room, 4096)
    return size if size >= 8 else 0
