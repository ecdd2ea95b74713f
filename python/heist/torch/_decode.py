"""Steps of decoding as operations: queries over a cache of their own type, results without log-sum-exps.

What a step does not need is no argument here: each tensor that PyTorch passes or allocates costs a call its time.
"""

from __future__ import annotations

from typing import Any

from ._attention import like_pages, over_pages
from ._device import UnsupportedError
from ._gradient import HOW, QKV
from ._layout import check_cache, check_lengths
from ._library import define

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
    k, v = (cache.view(batch * (room // size), size, heads, dim) for cache in (k, v))
    return over_pages(q, k, v, lengths, None, causal, left, right, scale, policy, new=new, sums=sums)


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
