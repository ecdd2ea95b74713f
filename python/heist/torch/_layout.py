"""Attention's tensors: what the kernels take, and how heads and rows lie."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ._device import UnsupportedError, ops_of

#: The widest window: as good as none.
_WIDE = 1 << 28


def head_step(q: torch.Tensor) -> int:
    """What the elements of a head are a multiple of: 8 where warpgroups attend, else 16. Code that is traced can't ask the device."""
    if torch.compiler.is_dynamo_compiling() or q.device.type not in ("cpu", "cuda"):
        return 16
    return 8 if ops_of(q.get_device()).attends_in_eights else 16


def check(
    what: str, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, heads: int, rows: int | None, step: int | None = None
) -> None:
    """Fails where shapes, types or devices do not fit each other; `heads` is the axis
    of the heads and `rows` that of a sequence's rows. The elements of a head are a multiple of `step`, which is the device's unless given."""
    want = "three" if rows is None else "four"
    for name, tensor in (("query", q), ("key", k), ("value", v)):
        if tensor.dim() != (3 if rows is None else 4):
            raise ValueError(f"{what}: {name} has {tensor.dim()} dimensions, and {want} are wanted: {axes(heads, rows)}")
        if any(extent >= 2**28 for extent in tensor.shape):
            raise UnsupportedError(f"{what}: {name} is {tuple(tensor.shape)}; axes shorter than 2^28 are supported: split the batch")
        if tensor.dtype not in (torch.float16, torch.bfloat16):
            raise UnsupportedError(
                f"{what}: {name} is {tensor.dtype}; float16 and bfloat16 are supported: convert with `.to(torch.bfloat16)`"
            )
        if tensor.dtype != q.dtype:
            raise ValueError(f"{what}: query is {q.dtype} and {name} is {tensor.dtype}; convert one with `.to(..)`")
    if k.shape[:-1] != v.shape[:-1]:
        raise ValueError(f"{what}: key is {tuple(k.shape)} and value is {tuple(v.shape)}; all but the elements of a head must be the same")
    if q.shape[-1] != k.shape[-1]:
        raise ValueError(f"{what}: heads of the query have {q.shape[-1]} elements and those of the key {k.shape[-1]}")
    dim, values = q.shape[-1], v.shape[-1]
    step = step or head_step(q)
    if dim % step or not 16 <= dim <= 256:
        raise UnsupportedError(f"{what}: heads of {dim} elements; multiples of {step} from 16 to 256 are supported: pad the last axis")
    if values % step or not 16 <= values <= dim:
        raise UnsupportedError(
            f"{what}: heads of {values} elements of values and {dim} of keys; multiples of {step}, of values at most as many as of keys, "
            "are supported: pad the last axis"
        )
    if rows is not None and q.shape[0] != k.shape[0]:
        raise ValueError(f"{what}: a batch of {q.shape[0]} queries and one of {k.shape[0]} keys; repeat one with `.expand(..)`")
    if q.shape[heads] % k.shape[heads] if k.shape[heads] else q.shape[heads]:
        raise ValueError(
            f"{what}: {q.shape[heads]} query heads over {k.shape[heads]} key heads; the query heads must be a multiple of the key heads"
        )
    for name, tensor in (("query", q), ("key", k), ("value", v)):
        if tensor.stride(-1) != 1 and tensor.numel() > 0:
            raise ValueError(
                f"{what}: the elements of a head of {name} are {tensor.stride(-1)} apart, and must follow each other: "
                f"pass `.contiguous()`"
            )


def same_heads(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The same with heads of one size that the kernels have, where there is one. Zeros behind the elements change no score,
    and of a result only elements that are zero, too. The scale is to be said: it is that of the heads without them."""
    size = -(-max(q.shape[-1], v.shape[-1]) // 16) * 16
    if not 0 < size <= 256 or q.shape[-1] != k.shape[-1]:
        return q, k, v
    q, k, v = (torch.nn.functional.pad(tensor, (0, size - tensor.shape[-1])) for tensor in (q, k, v))
    return q, k, v


def odd_heads(q: torch.Tensor, v: torch.Tensor, gradient: bool) -> bool:
    """Whether heads have a size that the kernels do not have, or not with these values."""
    dim, values = q.shape[-1], v.shape[-1]
    if not dim or not values:
        return False
    if dim % 16 or values % 16:
        return gradient or values > dim or min(dim, values) < 16 or bool(dim % head_step(q) or values % head_step(q))
    # The kernels that take heads in eights are those that take narrower values, too.
    return values > dim or (values < dim and (gradient or (not torch.compiler.is_dynamo_compiling() and head_step(q) == 16)))


def of_four(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor with more or fewer than one axis in front of the heads: those are the batch, and what is not there is one."""
    axes = tensor.dim()
    return tensor.flatten(0, axes - 4) if axes > 4 else tensor[(None,) * (4 - axes) + (...,)]


def axes(heads: int, rows: int | None) -> str:
    if rows is None:
        return "(rows of all sequences, heads, elements)"
    return "(batch, heads, rows, elements)" if heads == 1 else "(batch, rows, heads, elements)"


def scale_of(what: str, scale: float | None) -> float:
    """A scale as the operations take it: zero is 1 / sqrt(elements)."""
    if scale is None:
        return 0.0
    try:
        scale = float(scale)
    except (TypeError, ValueError):
        raise TypeError(f"{what}: the scale must be a number; given: {scale!r}") from None
    if not 0.0 < scale < float("inf"):
        raise UnsupportedError(f"{what}: a scale of {scale}; scales above zero are supported")
    return scale


def without_defaults(causal: bool, left: int, right: int, scale: float) -> tuple[Any, ...]:
    """The last arguments of an operation, without those that have their default."""
    if scale:
        return causal, left, right, scale
    if left >= 0 or right >= 0:
        return causal, left, right
    return (True,) if causal else ()


def view_of(tensor: torch.Tensor, rows: bool) -> tuple[int, int, int] | None:
    """Elements from one sequence, row and head to the next of a tensor of (batch, heads, rows, elements) that a kernel for
    this layout can read where it lies: a tensor of its own, or a part of a larger one, whose axes follow each other and whose strides
    are multiples of 16 bytes."""
    batch, heads, length, dim = tensor.shape
    by_batch, by_head, by_row, by_element = tensor.stride()
    if by_element != 1 and dim > 1:
        return None
    inner = [(heads, by_head), (length, by_row)] if rows else [(length, by_row), (heads, by_head)]
    step, steps = dim, []
    for extent, stride in (*inner, (batch, by_batch)):
        if extent == 1:
            stride = step
        elif stride < step or stride % 8 or stride >= 2**32:
            return None
        steps.append(stride)
        step = stride * extent
    by_batch = steps.pop()
    by_head, by_row = steps if rows else steps[::-1]
    return by_batch, by_row, by_head


def mostly_rows(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> bool:
    """Whether more of them are rows of heads than heads of rows: the layout that a kernel is made for, to
    which the others are copied. One of a single head, or of a single row, is both."""
    lies = [(view_of(tensor, True) is not None, view_of(tensor, False) is not None) for tensor in (q, k, v)]
    return lies.count((True, False)) > lies.count((False, True))


def view_of_own(tensor: torch.Tensor, rows: bool) -> tuple[int, int, int]:
    """The same of a tensor of this shape that lies so, and is a part of none."""
    _, heads, length, dim = tensor.shape
    return heads * length * dim, *((heads * dim, dim) if rows else (dim, length * dim))


def fits(tensor: torch.Tensor, rows: bool) -> bool:
    """Whether a tensor lies so, and is a part of none."""
    return view_of(tensor, rows) == view_of_own(tensor, rows)


def laid_out(rows: bool, *tensors: torch.Tensor) -> tuple[list[bool], list[tuple[int, int, int]] | None]:
    """Which tensors a kernel for this layout reads where they lie; and how all lie then, where one is a part of a larger one."""
    views = [view_of(tensor, rows) for tensor in tensors]
    own = [view_of_own(tensor, rows) for tensor in tensors]
    apart = any(view is not None and view != whole for view, whole in zip(views, own))
    return [view is not None for view in views], [view or whole for view, whole in zip(views, own)] if apart else None


def of_one(tensor: torch.Tensor) -> torch.Tensor:
    """Packed sequences (rows, heads, elements) as one of (batch, heads, rows, elements)."""
    return tensor.transpose(0, 1)[None]


def where_they_lie(
    rows: bool, tensors: Sequence[torch.Tensor], plan: Callable[[list[tuple[int, int, int]] | None], Any]
) -> tuple[Any, list[bool]]:
    """A plan for tensors that are parts of larger ones, or for copies of those where no kernel takes them; and which of them it takes where they
    lie."""
    keep, views = laid_out(rows, *tensors)
    if views is not None:
        try:
            return plan(views), keep
        except UnsupportedError:
            # What is wrong with the problem itself is said of the copies, too.
            pass
    return plan(None), [fits(tensor, rows) for tensor in tensors]


def dense(tensor: torch.Tensor, rows: bool) -> torch.Tensor:
    """A copy that lies so."""
    return tensor.transpose(1, 2).contiguous().transpose(1, 2) if rows else tensor.contiguous()


def empty(tensor: torch.Tensor, rows: bool, dim: int | None = None) -> torch.Tensor:
    """A tensor of the same shape that lies so, or one with other elements of a head."""
    batch, heads, length, own = tensor.shape
    dim = own if dim is None else dim
    if not rows:
        return tensor.new_empty((batch, heads, length, dim))
    return tensor.new_empty((batch, length, heads, dim)).transpose(1, 2)


def window_of(left: int, right: int) -> tuple[int, int] | None:
    """A window as a plan takes it."""
    if left < 0 and right < 0:
        return None
    return min(left, _WIDE) if left >= 0 else _WIDE, min(right, _WIDE) if right >= 0 else _WIDE


def check_starts(what: str, q_starts: torch.Tensor, k_starts: torch.Tensor) -> None:
    """Fails where first rows of sequences are none."""
    for name, starts in (("cu_seqlens_q", q_starts), ("cu_seqlens_k", k_starts)):
        if starts.dim() != 1 or starts.dtype != torch.int32:
            raise ValueError(
                f"{what}: {name} is {starts.dtype} of {tuple(starts.shape)}; it must be int32 with one entry more than sequences"
            )
    if q_starts.shape != k_starts.shape or q_starts.numel() < 1:
        raise ValueError(
            f"{what}: cu_seqlens_q has {q_starts.numel()} entries and cu_seqlens_k {k_starts.numel()}; both have one more than sequences"
        )


def check_cache(
    what: str, q: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor, table: torch.Tensor | None, new: tuple[torch.Tensor, ...]
) -> None:
    """Fails where queries, a cache, the table of its pages and new keys and values do not fit each other."""
    if k_cache.dim() == v_cache.dim() and k_cache.shape != v_cache.shape:
        raise UnsupportedError(
            f"{what}: k_cache is {tuple(k_cache.shape)} and v_cache {tuple(v_cache.shape)}; heads of keys and values of the same size "
            "are supported in a cache: pad the values"
        )
    for name, cache in (("k_cache", k_cache), ("v_cache", v_cache)):
        if not cache.is_contiguous():
            raise ValueError(f"{what}: {name} is not contiguous, and is written in place: keep it as (batch, room, heads, elements)")
    if table is not None and (table.dim() != 2 or table.dtype != torch.int32 or table.shape[0] != q.shape[0]):
        raise ValueError(
            f"{what}: block_table is {table.dtype} of {tuple(table.shape)}; int32 with a row for each of {q.shape[0]} sequences is wanted"
        )
    caches = [_as(q, cache) for cache in (k_cache, v_cache)]
    if table is not None:
        # A cache of pages has no batch to compare.
        caches = [cache[:1].expand(q.shape[0], -1, -1, -1) for cache in caches]
    check(what, q, *caches, 2, 1, 16)
    if new:
        k, v = new
        if k.shape != v.shape or k.dim() != 4 or k.shape[0] != q.shape[0] or k.shape[2:] != k_cache.shape[2:]:
            raise ValueError(
                f"{what}: k is {tuple(k.shape)}, v is {tuple(v.shape)}; (batch, new rows, heads, elements) as in the cache "
                f"{tuple(k_cache.shape)} are wanted"
            )


def check_lengths(what: str, q: torch.Tensor, lengths: torch.Tensor) -> None:
    """Fails where there is not one length for each sequence."""
    batch = q.shape[0]
    if lengths.shape != (batch,) or lengths.dtype != torch.int32 or lengths.device != q.device:
        raise ValueError(
            f"{what}: cache_seqlens is {lengths.dtype} of {tuple(lengths.shape)} on {lengths.device}; it must be int32 "
            f"with one number for each of {batch} sequences, on {q.device}"
        )


def _as(q: torch.Tensor, cache: torch.Tensor) -> torch.Tensor:
    """A cache as far as shapes go, with 8-bit floats as if they were of the queries' type."""
    if cache.dtype != torch.float8_e4m3fn:
        return cache
    return torch.empty_like(cache, dtype=q.dtype, device="meta")
