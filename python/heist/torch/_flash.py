"""Attention with the interfaces of PyTorch and flash_attn."""

from __future__ import annotations

from typing import Any

import torch

from ._attention import (
    attend, attend_flash, attend_latent, attend_lse, attend_masked, attend_packed, attend_packed_masked, attend_packed_scored, attend_paired,
    attend_paired_scored, attend_scored, attend_sdpa, counted,
)  # fmt: skip
from ._device import UnsupportedError, no_gradient, no_policy, no_tangent, tensors_only, wants_gradient
from ._gradient import check_heads
from ._layout import check, odd_heads, of_four, same_heads, scale_of, without_defaults
from ._library import FAILED, Operation, call, is_compiling, raise_cause
from ._masks import masks_of
from ._modes import grad_enabled, prepared, unusual
from ._pairs import of_batches, pairs_of
from ._scores import Scores, scores_of

_direct_sdpa, _direct_flash = attend_sdpa.direct, attend_flash.direct

#: The window of all keys.
WHOLE = (-1, -1)


def refuse(what: str, supported: str, **given: tuple[bool, Any]) -> None:
    """Refuses arguments that are not supported, and says which are."""
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

    float16 and bfloat16, heads of up to 256 elements, fewer key heads with ``enable_gqa``. ``attn_mask`` broadcasts to (batch, heads,
    queries, keys), and is not repeated where it is the same for all; True is a key that is seen, and numbers are added to the scores.
    A query that sees no key has a result of zeros. Of the mask itself there is no gradient, and there is no dropout. Tensors lie as
    (batch, heads, rows, elements) or as (batch, rows, heads, elements) transposed, and may be parts of larger ones, such as the
    three of a projection; others are copied, and so are heads of other than multiples of 16 elements (8 on Hopper's GPUs, without gradients), or of more elements of values
    than of keys.
    More or fewer axes in front of the heads are taken, too, and autocast converts.

    >>> q = torch.ones(1, 4, 16, 16, dtype=torch.float16)
    >>> kv = torch.ones(1, 2, 16, 16, dtype=torch.float16)
    >>> scaled_dot_product_attention(q, kv, kv, is_causal=True, enable_gqa=True).shape
    torch.Size([1, 4, 16, 16])
    """
    what = "scaled_dot_product_attention"
    if attn_mask is None and not dropout_p and policy is None and not (is_compiling() or unusual()):
        # Types, sizes, and what is a tensor at all, are looked at where a call is planned, once; what is wrong is said below.
        try:
            if not (grad_enabled() and (query.requires_grad or key.requires_grad or value.requires_grad)):
                if scale is not None:
                    return _direct_sdpa(query, key, value, is_causal, enable_gqa, scale_of(what, scale))
                if enable_gqa:
                    return _direct_sdpa(query, key, value, is_causal, True)
                return _direct_sdpa(query, key, value, True) if is_causal else _direct_sdpa(query, key, value)
        except FAILED as error:
            raise_cause(error)
    if dropout_p:
        supported = "attn_mask, is_causal, scale and enable_gqa are; PyTorch's own function has it"
        refuse(what, supported, dropout_p=(True, dropout_p))
    if attn_mask is not None and is_causal:
        raise ValueError(f"{what}: attn_mask beside is_causal=True; put what a causal mask hides into attn_mask, and leave is_causal out")
    tensors_only(what, query=query, key=key, value=value)
    query, key, value = prepared(what, query, key, value)
    gradient = wants_gradient(query, key, value)
    if attn_mask is None and not gradient:
        return call(attend_sdpa, policy, query, key, value, is_causal, enable_gqa, scale_of(what, scale))
    axes = query.dim()
    if axes != 4 or key.dim() != 4 or value.dim() != 4:
        if axes < 2 or axes == 4 or not axes == key.dim() == value.dim():
            check(what, query, key, value, 1, 2)
        own = (of_four(t) for t in (query, key, value))
        if axes > 4:
            attn_mask = of_batches(attn_mask, query.shape[:-3])
        out = scaled_dot_product_attention(*own, attn_mask, 0.0, is_causal, scale, enable_gqa, policy=policy)
        return out.reshape(*query.shape[:-1], value.shape[-1])
    if odd_heads(query, value, gradient):
        own = same_heads(query, key, value)
        if own[0] is not query:
            factor = query.shape[-1] ** -0.5 if scale is None else scale
            out = scaled_dot_product_attention(*own, attn_mask, 0.0, is_causal, factor, enable_gqa, policy=policy)
            return out[..., : value.shape[-1]]
    if attn_mask is not None:
        counted(query, key, value, False, enable_gqa)
        pairs = pairs_of(what, query, key, attn_mask)
        return _with_mask(what, attend_paired, gradient, policy, query, key, value, attn_mask, pairs, False, -1, -1, scale_of(what, scale))[0]
    no_policy(what, policy)
    query, key, value, factor, causal, left, right = counted(query, key, value, is_causal, enable_gqa, scale_of(what, scale))
    return _train(what, attend_lse, False, query, key, value, causal, left, right, factor)[0]


def _with_mask(what, operation, gradient, policy, query, key, value, mask, pairs, *how):
    """Attention with a mask of pairs, of which itself there is no gradient; results and log-sum-exps."""
    no_gradient(f"{what}: attn_mask", mask)
    if gradient:
        no_policy(what, policy)
        return _train(what, operation, False, query, key, value, pairs, *how)
    return call(operation, policy, query, key, value, pairs, *without_defaults(*how))


def _train(what: str, operation: Operation, deterministic: bool, query: torch.Tensor, *arguments: Any) -> Any:
    """An operation for inputs that want a gradient; results and log-sum-exps."""
    check_heads(what, query, arguments[1])
    return operation.train(query, *arguments, bool(deterministic) or torch.are_deterministic_algorithms_enabled())


def _trains(what: str, policy: Any, scores: Scores, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, slopes: Any, sinks: Any) -> bool:
    """Whether a call with changed scores wants a gradient; refuses what there is none of."""
    if not wants_gradient(q, k, v, slopes, sinks):
        no_tangent(what, q, k, v, slopes, sinks)
        return False
    no_gradient(f"{what}: alibi_slopes", slopes)
    if scores.slopes.numel() and scores.softcap:
        no_gradient(f"{what}: softcap and alibi_slopes together", q, k, v, sinks)
    no_policy(what, policy)
    check(what, q, k, v, 1, 2 if q.dim() == 4 else None)
    return True


def window(what: str, window_size: Any, causal: bool) -> tuple[bool, int, int]:
    """Whether a mask is causal, and how many keys before and after are seen; -1 is all."""
    if window_size == WHOLE:
        return causal, -1, -1
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


def _without_padding(result: Any, dim: int) -> Any:
    """What a function returns for heads with zeros behind their elements, without those."""
    return (result[0][..., :dim], *result[1:]) if isinstance(result, tuple) else result[..., :dim]


def flash_attn_func(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = WHOLE,
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
    attn_mask: torch.Tensor | None = None,
    policy: Any = None,
) -> Any:
    """As ``flash_attn.flash_attn_func``: (batch, rows, heads, elements); a causal mask
    and a window count from the last key. With ``return_attn_probs`` the result is
    (out, log-sum-exp, None).

    ``softcap``, ``alibi_slopes`` and ``sinks``, one more score for each query head, of no key, change the
    scores. Gradients go through each of them, of sinks too; not through ``softcap`` and ``alibi_slopes`` together, nor to the slopes, nor with the masks that follow. ``prefix_lens`` (int32, one for each sequence): so many
    first keys are seen by every query, whatever a causal mask or a window says. ``documents`` (int32, (batch, keys)
    or (keys,)): a query sees the keys of its own document alone, which is that of the key at its place. ``block_mask`` (bool, (batch or 1,
    heads or 1, blocks of queries, blocks of keys) or the last two): False hides a whole block of keys from a
    block of queries, counted from the first; ``block_size`` is a multiple of 128 queries and of 64 keys. On Hopper's GPUs blocks that no
    query sees are skipped; masks of blocks are for these alone. ``attn_mask``, as PyTorch's, broadcasts to (batch, heads, queries, keys): True is a
    key that is seen, numbers are added to the scores; a causal mask, a window, ``softcap``, ``alibi_slopes`` and ``sinks`` may come besides. Heads of values may have fewer elements than those of keys,
    on Hopper's GPUs.

    >>> q = k = v = torch.ones(1, 16, 2, 16, dtype=torch.float16)
    >>> flash_attn_func(q, k, v, causal=True).shape
    torch.Size([1, 16, 2, 16])
    >>> flash_attn_func(q, k, v, documents=torch.arange(16, dtype=torch.int32) // 5).shape
    torch.Size([1, 16, 2, 16])
    """
    what = "flash_attn_func"
    if (
        not (dropout_p or softcap or return_attn_probs) and alibi_slopes is None and sinks is None and prefix_lens is None
        and documents is None and block_mask is None and attn_mask is None and policy is None
        and (window_size is WHOLE or window_size == WHOLE) and not (is_compiling() or unusual())
    ):  # fmt: skip
        # As above: whatever is wrong is said below.
        try:
            if not (grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad)):
                if softmax_scale is not None:
                    return _direct_flash(q, k, v, causal, scale_of(what, softmax_scale))
                return _direct_flash(q, k, v, True) if causal else _direct_flash(q, k, v)
        except FAILED as error:
            raise_cause(error)
    tensors_only(what, q=q, k=k, v=v)
    supported = "causal, window_size, softmax_scale, softcap, alibi_slopes, sinks and return_attn_probs are"
    refuse(what, supported, dropout_p=(bool(dropout_p), dropout_p))
    if not q.dim() == k.dim() == v.dim() == 4:
        check(what, q, k, v, 2, 1)
    q, k, v = prepared(what, q, k, v)
    if odd_heads(q, v, wants_gradient(q, k, v)):
        own = same_heads(q, k, v)
        if own[0] is not q:
            scale = q.shape[-1] ** -0.5 if softmax_scale is None else softmax_scale
            padded = flash_attn_func(
                *own, dropout_p, scale, causal, window_size, softcap, alibi_slopes, deterministic, return_attn_probs, sinks=sinks,
                prefix_lens=prefix_lens, documents=documents, block_mask=block_mask, block_size=block_size, attn_mask=attn_mask,
                policy=policy,
            )  # fmt: skip
            return _without_padding(padded, v.shape[-1])
    causal, left, right = window(what, window_size, causal)
    q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
    factor = scale_of(what, softmax_scale)
    scores = scores_of(what, q, q.shape[1], softcap, alibi_slopes, sinks)
    masked = masks_of(what, q, k, scores, prefix_lens, documents, block_mask, block_size)
    if attn_mask is not None:
        refuse(what, "with attn_mask a causal mask or a window may come, softcap, alibi_slopes and sinks", **{
            name: (given is not None, given) for name, given in
            (("prefix_lens", prefix_lens), ("documents", documents), ("block_mask", block_mask))
        })  # fmt: skip
        check(what, q, k, v, 1, 2)
        pairs = pairs_of(what, q, k, attn_mask)
        if scores is None:
            gradient = wants_gradient(q, k, v)
            out, lse = _with_mask(what, attend_paired, gradient, policy, q, k, v, attn_mask, pairs, causal, left, right, factor)
        else:
            no_gradient(what, q, k, v, alibi_slopes, sinks, attn_mask)
            how = without_defaults(causal, left, right, factor)
            out, lse = call(attend_paired_scored, policy, q, k, v, pairs, *scores, *how)
        return (out.transpose(1, 2), lse, None) if return_attn_probs else out.transpose(1, 2)
    if masked is not None or scores is not None:
        how = without_defaults(causal, left, right, factor)
        if masked is not None:
            no_gradient(what, q, k, v, alibi_slopes, sinks)
            out, lse = call(attend_masked, policy, q, k, v, *masked.scores, *masked[1:6], *how)
        elif _trains(what, policy, scores, q, k, v, alibi_slopes, sinks):
            out, lse = _train(what, attend_scored, deterministic, q, k, v, *scores, causal, left, right, factor)
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
    window_size: tuple[int, int] = WHOLE,
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
    refuse(what, supported, dropout_p=(bool(dropout_p), dropout_p))
    over_pages = f"{supported}; flash_attn_with_kvcache has pages, for as many queries of each sequence"
    refuse(what, over_pages, block_table=(block_table is not None, block_table))
    if not q.dim() == k.dim() == v.dim() == 3:
        check(what, q, k, v, 1, None)
    q, k, v = prepared(what, q, k, v)
    if odd_heads(q, v, wants_gradient(q, k, v)):
        own = same_heads(q, k, v)
        if own[0] is not q:
            scale = q.shape[-1] ** -0.5 if softmax_scale is None else softmax_scale
            padded = flash_attn_varlen_func(
                *own, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, dropout_p, scale, causal, window_size, softcap, alibi_slopes,
                deterministic, return_attn_probs, sinks=sinks, prefix_lens=prefix_lens, documents=documents, block_mask=block_mask,
                block_size=block_size, policy=policy,
            )  # fmt: skip
            return _without_padding(padded, v.shape[-1])
    check(what, q, k, v, 1, None)
    causal, left, right = window(what, window_size, causal)
    factor = scale_of(what, softmax_scale)
    try:
        given = q, k, v, cu_seqlens_q, cu_seqlens_k, int(max_seqlen_q), int(max_seqlen_k)
    except (TypeError, ValueError):
        raise TypeError(f"{what}: max_seqlen_q={max_seqlen_q!r} and max_seqlen_k={max_seqlen_k!r} must be whole numbers") from None
    how = without_defaults(causal, left, right, factor)
    scores = scores_of(what, q, q.shape[1], softcap, alibi_slopes, sinks)
    sequences = cu_seqlens_q.numel() - 1
    masked = masks_of(what, q, k, scores, prefix_lens, documents, block_mask, block_size, sequences)
    if masked is not None:
        no_gradient(what, q, k, v, alibi_slopes, sinks)
        out, lse = call(attend_packed_masked, policy, *given[:5], *masked.scores, *masked[1:6], *given[5:], *how)
    elif scores is not None and _trains(what, policy, scores, q, k, v, alibi_slopes, sinks):
        out, lse = _train(what, attend_packed_scored, deterministic, *given[:5], *scores, *given[5:], causal, left, right, factor)
    elif scores is not None:
        out, lse = call(attend_packed_scored, policy, *given[:5], *scores, *given[5:], *how)
    elif wants_gradient(q, k, v):
        no_policy(what, policy)
        out, lse = _train(what, attend_packed, deterministic, *given, causal, left, right, factor)
    else:
        out, lse = call(attend_packed, policy, *given, *how)
    return (out, lse, None) if return_attn_probs else out


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
