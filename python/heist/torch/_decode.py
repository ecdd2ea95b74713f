"""Steps of decoding as operations: queries over a cache of their own type, results without log-sum-exps.

What a step does not need is no argument here: each tensor that PyTorch passes or allocates costs a call its time.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ._attention import attend_packed, attend_packed_scored, like_pages, over_pages
from ._device import UnsupportedError, numbers, ops_of
from ._gradient import HOW, QKV
from ._layout import check_cache, check_lengths, without_defaults
from ._library import call, define

_WRITTEN = "Tensor q, Tensor(a!) k, Tensor(b!) v, Tensor lengths"


def page_of(room: int) -> int:
    """The largest page, a power of two, that a sequence's room is a multiple of; zero where
    there is none."""
    size = min(room & -room, 4096)
    return size if size >= 8 else 0


def in_order(q, k, v, lengths, causal=False, left=-1, right=-1, scale=0.0, policy="", new=(), sums=True):
    """The operation for a cache (batch, room, heads, elements): the room of a sequence is its pages, in order."""
    what = "flash_attn_with_kvcache"
    check_cache(what, q, k, v, None, new)
    check_lengths(what, q, lengths)
    batch, room, heads, dim = k.shape
    size = page_of(room)
    if not size:
        raise UnsupportedError(f"{what}: a cache with room for {room} rows; multiples of 8 are supported")
    if not has_pages(q):
        out, lse = packed(q, k, v, lengths, without_defaults(causal, left, right, scale), policy or None, new)
        return out.view(q.shape), lse if sums else None
    k, v = (cache.view(batch * (room // size), size, heads, dim) for cache in (k, v))
    return over_pages(q, k, v, lengths, None, causal, left, right, scale, policy, new=new, sums=sums)


def has_pages(q: Tensor) -> bool:
    """Whether the device attends to pages; code that is traced can't ask it."""
    return torch.compiler.is_dynamo_compiling() or ops_of(q.get_device()).attends_pages


def packed(
    q: Tensor, k_cache: Tensor, v_cache: Tensor, lengths: Tensor, how: tuple[Any, ...], policy: Any, new: tuple[Tensor, ...] = (),
    scores: Any = None,
) -> Any:  # fmt: skip
    """Queries over a cache (batch, room, heads, elements) as packed sequences, and the room behind each sequence's keys as one without
    queries; (rows, heads, elements). New keys are put into the cache first, as far as there is room."""
    batch, queries, heads, dim = q.shape
    room = k_cache.shape[1]
    if new:
        count = new[0].shape[1]
        _put(lengths, room, ((k_cache, new[0]), (v_cache, new[1])))
        lengths = (lengths + count).clamp(max=room)
    each = numbers(batch + 1, torch.int32, q.device)
    k_starts = torch.stack((each[:-1] * room, each[:-1] * room + lengths), dim=1).flatten()
    k_starts = torch.cat((k_starts, each[-1:] * room))
    q_starts = torch.stack((each[:-1] * queries, each[1:] * queries), dim=1).flatten()
    q_starts = torch.cat((q_starts, each[-1:] * queries))
    return call(
        attend_packed if scores is None else attend_packed_scored, policy, q.reshape(batch * queries, heads, dim),
        *(cache.view(batch * room, cache.shape[2], dim) for cache in (k_cache, v_cache)), q_starts, k_starts, *(scores or ()), queries,
        room, *how,
    )  # fmt: skip


def _put(lengths: Tensor, room: int, pairs: Any) -> None:
    """Puts new rows behind those that are filled. One that there is no room for is written where the first one is, as that is; and
    where there is room for none, the last row as it was."""
    batch, count = pairs[0][1].shape[:2]
    if not batch * count * room:
        return
    step = numbers(count, torch.int64, lengths.device)
    rows = lengths.long().unsqueeze(1) + step
    sequence = numbers(batch, torch.int64, lengths.device).unsqueeze(1)
    source = torch.where(rows < room, step, 0)
    first = rows[:, :1]
    rows = torch.where(rows < room, rows, first).clamp(max=room - 1)
    for cache, given in pairs:
        given = given.to(cache.dtype)[sequence, source]
        cache[sequence, rows] = torch.where((first < room)[..., None, None], given, cache[:, -1:])


def _decode(*given: Any, **policy: Any) -> Any:
    return in_order(*given, **policy, sums=False)[0]


def _decode_append(q, k, v, lengths, k_new, v_new, *how, **policy):
    return in_order(q, k, v, lengths, *how, **policy, new=(k_new, v_new), sums=False)[0]


def _decode_pages(*given: Any, **policy: Any) -> Any:
    return over_pages(*given, **policy, sums=False)[0]


def _decode_pages_append(q, k, v, lengths, pages, k_new, v_new, *how, **policy):
    return over_pages(q, k, v, lengths, pages, *how, **policy, new=(k_new, v_new), sums=False)[0]


def _like(*given: Any) -> Any:
    return like_pages(*given)[0]


decode = define("decode", f"{QKV}, Tensor lengths, {HOW}", "Tensor", _decode, _like)
decode_append = define("decode_append", f"{_WRITTEN}, Tensor k_new, Tensor v_new, {HOW}", "Tensor", _decode_append, _like)
decode_pages = define("decode_pages", f"{QKV}, Tensor lengths, Tensor pages, {HOW}", "Tensor", _decode_pages, _like)
decode_pages_append = define(
    "decode_pages_append", f"{_WRITTEN}, Tensor pages, Tensor k_new, Tensor v_new, {HOW}", "Tensor", _decode_pages_append, _like
)
