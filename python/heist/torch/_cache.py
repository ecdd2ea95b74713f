"""Attention over a cache of keys and values, as ``flash_attn`` has it: a step of decoding."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ._attention import (
    attend_append, attend_paged, attend_paged_e4m3, attend_paged_scored, like_pages,
)  # fmt: skip
from ._decode import decode, decode_append, decode_pages, decode_pages_append, has_pages, in_order, packed, page_of
from ._device import UnsupportedError, no_gradient, numbers, tensors_only, traced
from ._flash import refuse, window
from ._gradient import HOW, QKV
from ._layout import check_cache, check_lengths, scale_of, without_defaults
from ._library import call, define
from ._modes import unusual
from ._rotary import check_rotary, rotate
from ._scores import scores_of

# --- Operations over a cache that is not one of pages -----------------------------


def _in_order_append(q, k, v, lengths, k_new, v_new, causal=False, left=-1, right=-1, scale=0.0, policy=""):
    return in_order(q, k, v, lengths, causal, left, right, scale, policy, (k_new, v_new))


def _like_in_order_append(q, k, v, lengths, k_new, v_new, *how):
    return like_pages(q, k, v, lengths, k_new, v_new)


_attend_cache = define("attention_cache", f"{QKV}, Tensor lengths, {HOW}", "(Tensor, Tensor)", in_order, like_pages)
_attend_cache_append = define(
    "attention_cache_append", f"Tensor q, Tensor(a!) k, Tensor(b!) v, Tensor lengths, Tensor k_new, Tensor v_new, {HOW}",
    "(Tensor, Tensor)", _in_order_append, _like_in_order_append,
)  # fmt: skip


# --- The name that people know -----------------------------------------------------


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
    pages, (pages, tokens, heads, elements), of a power of two of tokens, 8 to 4096, or a multiple of 128.
    Lengths stay on the device. Scores are changed as by :func:`flash_attn_func`, over a cache of the
    queries' type.

    With ``rotary_cos`` and ``rotary_sin`` (positions, half of the elements that are rotated) queries and new keys are rotated for
    their places in the sequence first, by PyTorch's kernels: queries under a mask one after the other, and without one all for the place of
    the first new key. ``cache_batch_idx`` (int32) says which sequence of the cache each sequence of the batch is; its room is a multiple of 8 then.

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
    if not (isinstance(q, Tensor) and isinstance(k_cache, Tensor) and isinstance(v_cache, Tensor)):
        tensors_only(what, q=q, k_cache=k_cache, v_cache=v_cache)
    if cache_leftpad is not None:
        supported = "sequences begin at the first row of their cache: leave out rows in front of them, or give each its pages by block_table"
        refuse(what, supported, cache_leftpad=(True, cache_leftpad))
    if torch.is_grad_enabled() or unusual():
        no_gradient(what, q, k_cache, v_cache, k, v, alibi_slopes, sinks)
    if cache_batch_idx is not None:
        k_cache, v_cache, block_table = _chosen(what, q, k_cache, v_cache, cache_batch_idx, block_table)
    if rotary_cos is not None or rotary_sin is not None:
        check_rotary(what, q, k, rotary_cos, rotary_sin)
        # Rows under a mask have a place each.
        in_order = window(what, window_size, causal) != (False, -1, -1)
        q, k = _rotated(what, q, k, cache_seqlens, rotary_cos, rotary_sin, rotary_interleaved, in_order)
    if policy is None and not softcap and alibi_slopes is None and sinks is None and k_descale is None and v_descale is None:
        step = _step(what, return_softmax_lse, q, k_cache, v_cache, k, v, cache_seqlens, block_table, softmax_scale, causal, window_size)
        if step is not None:
            return (step[0], step[1].view(q.shape[2], *q.shape[:2]).transpose(0, 1)) if return_softmax_lse else step
    if block_table is not None:
        tensors_only(what, block_table=block_table)
    if (k is None) != (v is None):
        raise ValueError(f"{what}: new keys and new values come together; give both k and v, or neither")
    new = () if k is None or v is None else (k, v)
    if new:
        tensors_only(what, k=k, v=v)
    _check_once(what, q, k_cache, v_cache, block_table, new)
    factors = _factors(what, q, k_cache, v_cache, k_descale, v_descale)
    batch, queries, heads, dim = q.shape
    page = k_cache.shape[1]
    room = page if block_table is None else page * block_table.shape[1]
    lengths = _filled(what, q, cache_seqlens, 0 if k is None else k.shape[1], room, k is not None)
    causal, left, right = window(what, window_size, causal)
    how = without_defaults(causal, left, right, scale_of(what, softmax_scale))
    scores = scores_of(what, q, heads, softcap, alibi_slopes, sinks)
    if factors and scores is not None:
        raise UnsupportedError(
            f"{what}: softcap, alibi_slopes or sinks over a cache of float8_e4m3fn; a cache of {q.dtype} is supported with them"
        )
    more = scores or factors
    size = page_of(room)
    if factors and block_table is None and not size:
        raise UnsupportedError(f"{what}: a cache of float8_e4m3fn with room for {room} rows; multiples of 8 are supported")
    caches = k_cache, v_cache
    if block_table is None and (factors or (queries <= 16 and size and policy is None and has_pages(q))):
        # A sequence's room is its pages, in order.
        row = room // size
        block_table = numbers(batch * row, torch.int32, q.device).view(batch, row)
        caches = tuple(cache.view(batch * row, size, cache.shape[2], dim) for cache in caches)
    if block_table is not None and k is not None and v is not None and k.numel():
        if not q.numel():
            raise ValueError(f"{what}: new keys and no queries; call it with queries, or put the keys into the cache by their index")
        out, lse = _append(what, policy, q, caches, lengths, block_table, (k, v), factors, scores, how)
    elif block_table is not None:
        paged = attend_paged_e4m3 if factors else attend_paged if scores is None else attend_paged_scored
        out, lse = call(paged, policy, q, *caches, lengths, block_table, *more, *how)
    else:
        out, lse = packed(q, k_cache, v_cache, lengths, how, policy, new, scores)
    out = out.view(batch, queries, heads, dim)
    if return_softmax_lse:
        return out, lse.view(heads, batch, queries).transpose(0, 1)
    return out


def _step(
    what: str, sums: bool, q: Tensor, k_cache: Tensor, v_cache: Tensor, k: Any, v: Any, lengths: Any, table: Any, scale: Any, causal: bool,
    size: Any,
) -> Any:  # fmt: skip
    """A step over a cache of the queries' type, by an operation that checks where it is planned, once: the result, with `sums` beside
    the log-sum-exps. None for other calls."""
    if not isinstance(lengths, Tensor) or k_cache.dtype is not q.dtype or v_cache.dtype is not q.dtype:
        return None
    if table is None:
        if q.dim() != 4 or k_cache.dim() != 4 or q.size(1) > 16:
            return None
        room = k_cache.size(1)
        # As `page_of` says: there are no pages.
        if room % 8 or not room:
            return None
    elif not isinstance(table, Tensor):
        return None
    how: tuple[Any, ...] = ()
    if causal or scale is not None or size != (-1, -1):
        how = without_defaults(*window(what, size, causal), scale_of(what, scale))
    tables = () if table is None else (table,)
    if k is None and v is None:
        with_sums, alone = (_attend_cache, decode) if table is None else (attend_paged, decode_pages)
        return call(with_sums if sums else alone, None, q, k_cache, v_cache, lengths, *tables, *how)
    if not isinstance(k, Tensor) or not isinstance(v, Tensor) or k.dtype is not q.dtype or v.dtype is not q.dtype:
        return None
    if not k.numel() or not q.numel():
        return None
    if not sums:
        out = call(decode_append if table is None else decode_pages_append, None, q, k_cache, v_cache, lengths, *tables, k, v, *how)
    elif table is None:
        out = call(_attend_cache_append, None, q, k_cache, v_cache, lengths, k, v, *how)
    else:
        none = _nothing(q.device)
        out = call(attend_append, None, q, k_cache, v_cache, lengths, table, k, v, none, none, none, none, 0.0, *how)
    if not traced():
        torch.autograd.graph.increment_version((k_cache, v_cache))
    return out


def _chosen(what: str, q: Tensor, k_cache: Tensor, v_cache: Tensor, chosen: Any, table: Any) -> tuple[Tensor, Tensor, Tensor]:
    """A cache of which each sequence of the batch has one, as pages with a table of them."""
    tensors_only(what, cache_batch_idx=chosen)
    if table is not None:
        raise ValueError(f"{what}: cache_batch_idx beside block_table; the table says where a sequence is: index its rows instead")
    if chosen.shape != q.shape[:1] or chosen.dtype not in (torch.int32, torch.int64) or chosen.device != q.device:
        raise ValueError(
            f"{what}: cache_batch_idx is {chosen.dtype} of {tuple(chosen.shape)} on {chosen.device}; int32 with one number for each of "
            f"{q.shape[0]} sequences, on {q.device}, is wanted"
        )
    for name, cache in (("k_cache", k_cache), ("v_cache", v_cache)):
        if cache.dim() != 4 or not cache.is_contiguous():
            raise ValueError(f"{what}: {name} is {tuple(cache.shape)}; it must be (sequences, room, heads, elements), and contiguous")
    room = k_cache.shape[1]
    size = page_of(room)
    if not size:
        raise UnsupportedError(f"{what}: cache_batch_idx and a cache with room for {room} rows; multiples of 8 are supported")
    row = room // size
    pages = chosen.to(torch.int32).unsqueeze(1) * row + numbers(row, torch.int32, q.device)
    k_cache, v_cache = (cache.view(-1, size, *cache.shape[2:]) for cache in (k_cache, v_cache))
    return k_cache, v_cache, pages


def _rotated(
    what: str, q: Tensor, k: Any, lengths: Any, cos: Any, sin: Any, interleaved: bool, in_order: bool
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Queries and new keys, rotated for their places in the sequence."""
    tensors_only(what, k=k)
    if q.dim() != 4 or k.dim() != 4:
        raise ValueError(
            f"{what}: q is {tuple(q.shape)} and k {tuple(k.shape)}; (batch, rows, heads, elements) are wanted where they are rotated"
        )
    if not isinstance(lengths, Tensor):
        lengths = torch.full((q.shape[0],), lengths or 0, dtype=torch.int32, device=q.device)
    check_lengths(what, q, lengths)
    return rotate(q, lengths, cos, sin, interleaved, in_order), rotate(k, lengths, cos, sin, interleaved, True)


# By device: a tensor without elements, which stands for none.
_nothings: dict[Any, Tensor] = {}


def _nothing(device: torch.device) -> Tensor:
    if traced():
        return torch.empty(0, dtype=torch.float32, device=device)
    found = _nothings.get(device)
    if found is None:
        found = _nothings[device] = torch.empty(0, dtype=torch.float32, device=device)
    return found


# Caches that fit their queries, by shapes and types: a model asks for the same in every step.
_checked: set[Any] = set()


def _check_once(what: str, q: Tensor, k_cache: Tensor, v_cache: Tensor, table: Tensor | None, new: tuple[Tensor, ...]) -> None:
    """Fails where queries, a cache and what is put into it do not fit each other."""
    key = None
    if not traced():
        tensors = (q, k_cache, v_cache, *new) if table is None else (q, k_cache, v_cache, *new, table)
        key = (table is None, *((t.shape, t.stride(), t.dtype) for t in tensors))
        if key in _checked:
            return
    check_cache(what, q, k_cache, v_cache, table, new)
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
    none = _nothing(q.device)
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
    check_lengths(what, q, lengths)
    return lengths
