"""Attention by the names that people know."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ._device import (
    DTYPES,
    Launcher,
    UnsupportedError,
    aligned,
    device_of,
    no_gradient,
    one_device,
    ops_of,
    tensors_only,
)
from ._library import call, cause, define, remember

#: The widest window: as good as none.
_WIDE = 1 << 28

_plans: dict[Any, Launcher] = {}


def forget() -> None:
    """Forgets all plans."""
    _plans.clear()


# --- What a kernel can take -------------------------------------------------


def _check(what: str, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, heads: int, rows: int | None) -> None:
    """Fails where shapes, types or devices do not fit each other; `heads` is the axis
    of the heads and `rows` that of a sequence's rows."""
    want = "three" if rows is None else "four"
    for name, tensor in (("query", q), ("key", k), ("value", v)):
        if tensor.dim() != (3 if rows is None else 4):
            raise ValueError(f"{what}: {name} has {tensor.dim()} dimensions, and {want} are wanted: {_axes(heads, rows)}")
        if any(extent >= 2**28 for extent in tensor.shape):
            raise UnsupportedError(f"{what}: {name} is {tuple(tensor.shape)}; axes shorter than 2^28 are supported: split the batch")
        if tensor.dtype not in (torch.float16, torch.bfloat16):
            raise UnsupportedError(
                f"{what}: {name} is {tensor.dtype}; float16 and bfloat16 are supported: convert with `.to(torch.bfloat16)`"
            )
        if tensor.dtype != q.dtype:
            raise ValueError(f"{what}: query is {q.dtype} and {name} is {tensor.dtype}; convert one with `.to(..)`")
    if k.shape != v.shape:
        raise UnsupportedError(
            f"{what}: key is {tuple(k.shape)} and value is {tuple(v.shape)}; heads of keys and values of the same size are supported"
        )
    if q.shape[-1] != k.shape[-1]:
        raise ValueError(f"{what}: heads of the query have {q.shape[-1]} elements and those of the key {k.shape[-1]}")
    dim = q.shape[-1]
    if dim % 16 or not 16 <= dim <= 256:
        raise UnsupportedError(f"{what}: heads of {dim} elements; multiples of 16 from 16 to 256 are supported: pad the last axis")
    if rows is not None and q.shape[0] != k.shape[0]:
        raise ValueError(f"{what}: a batch of {q.shape[0]} queries and one of {k.shape[0]} keys; make them the same")
    if k.shape[heads] == 0 or q.shape[heads] % k.shape[heads]:
        raise ValueError(
            f"{what}: {q.shape[heads]} query heads over {k.shape[heads]} key heads; the query heads must be a multiple of the key heads"
        )
    for name, tensor in (("query", q), ("key", k), ("value", v)):
        if tensor.stride(-1) != 1 and tensor.numel() > 0:
            raise ValueError(
                f"{what}: the elements of a head of {name} are {tensor.stride(-1)} apart, and must follow each other: "
                f"pass `.contiguous()`"
            )


def _axes(heads: int, rows: int | None) -> str:
    if rows is None:
        return "(rows of all sequences, heads, elements)"
    return "(batch, heads, rows, elements)" if heads == 1 else "(batch, rows, heads, elements)"


def _lies(tensor: torch.Tensor) -> str | None:
    """How a tensor of (batch, heads, rows, elements) lies: `heads`, `rows`, or neither."""
    batch, heads, rows, dim = tensor.shape
    stride = tensor.stride()

    def like(*expected: int) -> bool:
        return all(a == b or n == 1 for a, b, n in zip(stride, expected, tensor.shape))

    if like(heads * rows * dim, rows * dim, dim, 1):
        return "heads"
    if like(rows * heads * dim, dim, heads * dim, 1):
        return "rows"
    return None


def _scale(what: str, scale: float | None) -> float:
    """A scale as the operations take it: zero is 1 / sqrt(elements)."""
    if scale is None:
        return 0.0
    scale = float(scale)
    if not 0.0 < scale < float("inf"):
        raise UnsupportedError(f"{what}: a scale of {scale}; scales above zero are supported")
    return scale


def _how(causal: bool, left: int, right: int, scale: float) -> tuple[Any, ...]:
    """The last arguments of an operation, without those that have their default."""
    if scale:
        return causal, left, right, scale
    if left >= 0 or right >= 0:
        return causal, left, right
    return (True,) if causal else ()


# --- Sequences that are all alike -------------------------------------------


def _same(q, k, v, scale, causal, left, right, policy, want_lse):
    """The operation for (batch, heads, rows, elements) on real memory."""
    key = (
        q.shape, k.shape, v.shape, q.stride(), k.stride(), v.stride(), q.dtype, k.dtype, v.dtype,
        q.get_device(), k.get_device(), v.get_device(), scale, causal, left, right, policy,
    )  # fmt: skip
    found = _plans.get(key)
    if found is None:
        found = _plans[key] = _plan_same(q, k, v, scale, causal, left, right, policy)
    launcher, rows, keep = found
    if keep is not None:
        q, k, v = (tensor if kept else _dense(tensor, rows) for tensor, kept in zip((q, k, v), keep))
    if rows:
        batch, heads, queries, dim = q.shape
        out = torch.empty((batch, queries, heads, dim), dtype=q.dtype, device=q.device).transpose(1, 2)
    else:
        out = torch.empty_like(q, memory_format=torch.contiguous_format)
    lse = None
    address = 0
    if want_lse:
        lse = torch.empty(q.shape[:3], dtype=torch.float32, device=q.device)
        address = lse.data_ptr()
    if launcher is None:
        # Without queries there is nothing to compute, and without keys nothing to see.
        out.zero_()
        if lse is not None:
            lse.fill_(float("-inf"))
        return out, lse
    launcher(q.data_ptr(), k.data_ptr(), v.data_ptr(), out.data_ptr(), address)
    if keep is None:
        remember(launcher, [0, 1, 2], [(out, 3)] if lse is None else [(out, 3), (lse, 4)])
    return out, lse


def _dense(tensor: torch.Tensor, rows: bool) -> torch.Tensor:
    return tensor.transpose(1, 2).contiguous().transpose(1, 2) if rows else tensor.contiguous()


def _plan_same(q, k, v, scale, causal, left, right, policy):
    what = "attention"
    _check(what, q, k, v, 1, 2)
    index = device_of(what, q, k, v)
    lies = [_lies(tensor) for tensor in (q, k, v)]
    # The layout that most have; the others are copied.
    rows = lies.count("rows") > lies.count("heads")
    keep = [lie == ("rows" if rows else "heads") for lie in lies]
    # A tensor that lies both ways, as one of a single head, is in either.
    keep = [kept or _fits(tensor, rows) for kept, tensor in zip(keep, (q, k, v))]
    if q.numel() == 0 or k.numel() == 0:
        return None, rows, None if all(keep) else keep
    aligned(what, **{name: t for name, t, kept in zip(("query", "key", "value"), (q, k, v), keep) if kept})
    batch, heads, queries, dim = q.shape
    plan = ops_of(index).attention(
        batch, queries, k.shape[2], heads, k.shape[1], dim,
        dtype=DTYPES[q.dtype], rows=rows, causal=causal, scale=scale or None, policy=policy or None,
        window=None if left < 0 and right < 0 else (left if left >= 0 else _WIDE, right if right >= 0 else _WIDE),
    )  # fmt: skip
    return Launcher(index, plan), rows, None if all(keep) else keep


def _fits(tensor: torch.Tensor, rows: bool) -> bool:
    return (tensor.transpose(1, 2) if rows else tensor).is_contiguous()


def _attention(q, k, v, causal=False, left=-1, right=-1, scale=0.0, policy=""):
    return _same(q, k, v, scale, causal, left, right, policy, False)[0]


def _attention_lse(q, k, v, causal=False, left=-1, right=-1, scale=0.0, policy=""):
    return _same(q, k, v, scale, causal, left, right, policy, True)


def _like(q, k, v, *how):
    """An output without memory, laid out as the operation does it."""
    one_device("attention", q, k, v)
    _check("attention", q, k, v, 1, 2)
    lies = [_lies(tensor) for tensor in (q, k, v)]
    if lies.count("rows") > lies.count("heads"):
        batch, heads, rows, dim = q.shape
        return q.new_empty((batch, rows, heads, dim)).transpose(1, 2)
    return torch.empty_like(q, memory_format=torch.contiguous_format)


def _like_lse(q, k, v, *how):
    return _like(q, k, v), q.new_empty(q.shape[:3], dtype=torch.float32)


_HOW = "bool causal=False, int left=-1, int right=-1, float scale=0.0"
_QKV = "Tensor query, Tensor key, Tensor value"
_attend = define("attention", f"{_QKV}, {_HOW}", "Tensor", _attention, _like)
_attend_lse = define("attention_lse", f"{_QKV}, {_HOW}", "(Tensor, Tensor)", _attention_lse, _like_lse)


def _counted(q, k, v, causal=False, gqa=False, scale=0.0):
    """What PyTorch's function asks for, as the kernels take it: a causal mask is counted
    from the first key there, and from the last one in the kernels."""
    what = "scaled_dot_product_attention"
    _check(what, q, k, v, 1, 2)
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
    return _same(*_counted(q, k, v, causal, gqa, scale), policy, False)[0]


def _like_sdpa(q, k, v, *how):
    one_device("scaled_dot_product_attention", q, k, v)
    return _like(*_counted(q, k, v, *how))


_sdpa_of = define(
    "sdpa", f"{_QKV}, bool causal=False, bool gqa=False, float scale=0.0", "Tensor", _sdpa, _like_sdpa
)
_op_sdpa = _sdpa_of.plain


# --- Packed sequences ---------------------------------------------------------


def _packed(
    q, k, v, q_starts, k_starts, most_queries, most_keys, causal=False, left=-1, right=-1, scale=0.0, policy=""
):
    """The operation for (rows of all sequences, heads, elements)."""
    key = (
        q.shape, k.shape, v.shape, q.stride(), k.stride(), v.stride(), q.dtype, k.dtype, v.dtype,
        q.get_device(), k.get_device(), v.get_device(), q_starts.get_device(), k_starts.get_device(),
        q_starts.shape, q_starts.dtype, k_starts.shape, k_starts.dtype, most_queries, most_keys, scale, causal, left, right, policy,
    )  # fmt: skip
    found = _plans.get(key)
    if found is None:
        found = _plan_packed(
            q, k, v, q_starts, k_starts, most_queries, most_keys, scale, causal, left, right, policy
        )
        _plans[key] = found
    launcher = found[0]
    out = torch.empty_like(q, memory_format=torch.contiguous_format)
    lse = torch.empty((q.shape[1], q.shape[0]), dtype=torch.float32, device=q.device)
    if launcher is None:
        out.zero_()
        lse.fill_(float("-inf"))
    else:
        own = [tensor.contiguous() for tensor in (q, k, v, q_starts, k_starts)]
        launcher(*(t.data_ptr() for t in own[:3]), out.data_ptr(), lse.data_ptr(), *(t.data_ptr() for t in own[3:]))
        if all(a is b for a, b in zip(own, (q, k, v, q_starts, k_starts))):
            remember(launcher, [0, 1, 2, 5, 6], [(out, 3), (lse, 4)])
    return out, lse


def _plan_packed(q, k, v, q_starts, k_starts, most_queries, most_keys, scale, causal, left, right, policy):
    what = "packed attention"
    _check(what, q, k, v, 1, None)
    for name, starts in (("cu_seqlens_q", q_starts), ("cu_seqlens_k", k_starts)):
        if starts.dim() != 1 or starts.dtype != torch.int32:
            raise ValueError(
                f"{what}: {name} is {starts.dtype} of {tuple(starts.shape)}; it must be int32 with one entry more than sequences"
            )
    if q_starts.shape != k_starts.shape or q_starts.numel() < 1:
        raise ValueError(
            f"{what}: cu_seqlens_q has {q_starts.numel()} entries and cu_seqlens_k {k_starts.numel()}; both have one more than sequences"
        )
    index = device_of(what, q, k, v, q_starts, k_starts)
    sequences = q_starts.numel() - 1
    if q.numel() == 0 or k.numel() == 0 or sequences == 0:
        return (None,)
    aligned(what, query=q, key=k, value=v)
    for name, most, length in (("max_seqlen_q", most_queries, q.shape[0]), ("max_seqlen_k", most_keys, k.shape[0])):
        if most < 1:
            raise ValueError(f"{what}: {name} is {most}, and there are {length} rows; say the length of the longest sequence")
    plan = ops_of(index).attention(
        sequences, min(most_queries, q.shape[0]), min(most_keys, k.shape[0]), q.shape[1], k.shape[1], q.shape[2],
        dtype=DTYPES[q.dtype], rows=True, packed=(q.shape[0], k.shape[0]), causal=causal, scale=scale or None,
        policy=policy or None,
        window=None if left < 0 and right < 0 else (left if left >= 0 else _WIDE, right if right >= 0 else _WIDE),
    )  # fmt: skip
    return (Launcher(index, plan),)


def _like_packed(q, k, v, q_starts, k_starts, *how):
    one_device("packed attention", q, k, v, q_starts, k_starts)
    _check("packed attention", q, k, v, 1, None)
    lse = q.new_empty((q.shape[1], q.shape[0]), dtype=torch.float32)
    return torch.empty_like(q, memory_format=torch.contiguous_format), lse


_attend_packed = define(
    "attention_packed", f"{_QKV}, Tensor q_starts, Tensor k_starts, int most_queries, int most_keys, {_HOW}",
    "(Tensor, Tensor)", _packed, _like_packed,
)  # fmt: skip


# --- Keys and values in pages ---------------------------------------------------


def _paged(q, k, v, lengths, pages, causal=False, left=-1, right=-1, scale=0.0, policy=""):
    """The operation for queries (batch, rows, heads, elements) over keys and values
    (page, token, heads, elements), of which a table has the pages of each sequence."""
    key = (
        q.shape, k.shape, v.shape, q.stride(), k.stride(), v.stride(), q.dtype, k.dtype, v.dtype,
        q.get_device(), k.get_device(), v.get_device(), lengths.get_device(), pages.get_device(),
        lengths.shape, lengths.dtype, pages.shape, pages.dtype, scale, causal, left, right, policy, "paged",
    )  # fmt: skip
    found = _plans.get(key)
    if found is None:
        found = _plans[key] = _plan_paged(q, k, v, lengths, pages, scale, causal, left, right, policy)
    launcher, q_starts = found
    out = torch.empty_like(q, memory_format=torch.contiguous_format)
    lse = torch.empty((q.shape[2], q.shape[0] * q.shape[1]), dtype=torch.float32, device=q.device)
    if launcher is None:
        return out.zero_(), lse.fill_(float("-inf"))
    own = [tensor.contiguous() for tensor in (q, lengths, pages)]
    launcher(
        own[0].data_ptr(), k.data_ptr(), v.data_ptr(), out.data_ptr(), lse.data_ptr(), q_starts.data_ptr(),
        own[1].data_ptr(), own[2].data_ptr(),
    )  # fmt: skip
    if all(a is b for a, b in zip(own, (q, lengths, pages))):
        remember(launcher, [0, 1, 2, 6, 7], [(out, 3), (lse, 4)], [(5, q_starts.data_ptr())])
    return out, lse


def _plan_paged(q, k, v, lengths, pages, scale, causal, left, right, policy):
    what = "paged attention"
    index = device_of(what, q, k, v, lengths, pages)
    batch, queries, heads, dim = q.shape
    q_starts = torch.arange(batch + 1, dtype=torch.int32, device=q.device) * queries
    if q.numel() == 0 or k.numel() == 0 or pages.numel() == 0:
        return None, q_starts
    aligned(what, query=q, key=k, value=v)
    plan = ops_of(index).attention(
        batch, queries, 0, heads, k.shape[2], dim, dtype=DTYPES[q.dtype], rows=True,
        paged=(k.shape[1], pages.shape[1], k.shape[0]), causal=causal, scale=scale or None, policy=policy or None,
        window=None if left < 0 and right < 0 else (left if left >= 0 else _WIDE, right if right >= 0 else _WIDE),
    )  # fmt: skip
    return Launcher(index, plan), q_starts


def _like_paged(q, k, v, lengths, pages, *how):
    one_device("paged attention", q, k, v, lengths, pages)
    lse = q.new_empty((q.shape[2], q.shape[0] * q.shape[1]), dtype=torch.float32)
    return torch.empty_like(q, memory_format=torch.contiguous_format), lse


_attend_paged = define(
    "attention_paged", f"{_QKV}, Tensor lengths, Tensor pages, {_HOW}", "(Tensor, Tensor)", _paged, _like_paged
)


# --- Names that people know ---------------------------------------------------


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

    float16 and bfloat16, heads of 16 to 256 elements in steps of 16, fewer key heads
    with ``enable_gqa``. No mask but the causal one, no dropout. Tensors lie as
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
    if torch.is_grad_enabled():
        no_gradient(what, query, key, value)
    if query.dim() == 3 and key.dim() == 3 and value.dim() == 3:
        query, key, value = (tensor.unsqueeze(0) for tensor in (query, key, value))
        return scaled_dot_product_attention(
            query, key, value, is_causal=is_causal, scale=scale, enable_gqa=enable_gqa, policy=policy
        ).squeeze(0)
    # Types and sizes are checked where a call is planned, once.
    if policy is not None:
        return call(_sdpa_of, policy, query, key, value, is_causal, enable_gqa, _scale(what, scale))
    try:
        if scale is not None:
            return _op_sdpa(query, key, value, is_causal, enable_gqa, _scale(what, scale))
        if enable_gqa:
            return _op_sdpa(query, key, value, is_causal, True)
        return _op_sdpa(query, key, value, True) if is_causal else _op_sdpa(query, key, value)
    except RuntimeError as error:
        raise cause(error) from None


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
    policy: Any = None,
) -> Any:
    """As ``flash_attn.flash_attn_func``: (batch, rows, heads, elements); a causal mask
    and a window count from the last key. With ``return_attn_probs`` the result is
    (out, log-sum-exp, None).

    >>> q = k = v = torch.ones(1, 16, 2, 16, dtype=torch.float16)
    >>> flash_attn_func(q, k, v, causal=True).shape
    torch.Size([1, 16, 2, 16])
    """
    what = "flash_attn_func"
    tensors_only(what, q=q, k=k, v=v)
    supported = "causal, window_size, softmax_scale and return_attn_probs are"
    _refuse(
        what, supported, dropout_p=(bool(dropout_p), dropout_p), softcap=(bool(softcap), softcap),
        alibi_slopes=(alibi_slopes is not None, alibi_slopes),
    )  # fmt: skip
    no_gradient(what, q, k, v)
    if not q.dim() == k.dim() == v.dim() == 4:
        _check(what, q, k, v, 2, 1)
    causal, left, right = _window(what, window_size, causal)
    q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
    arguments = (q, k, v, *_how(causal, left, right, _scale(what, softmax_scale)))
    if return_attn_probs:
        out, lse = call(_attend_lse, policy, *arguments)
        return out.transpose(1, 2), lse, None
    return call(_attend, policy, *arguments).transpose(1, 2)


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
    policy: Any = None,
) -> Any:
    """As ``flash_attn.flash_attn_varlen_func``: sequences one after the other, (rows,
    heads, elements). Where they begin is read on the device; nothing waits for it.

    >>> q = k = v = torch.ones(24, 2, 16, dtype=torch.float16)
    >>> starts = torch.tensor([0, 8, 24], dtype=torch.int32)
    >>> flash_attn_varlen_func(q, k, v, starts, starts, 16, 16).shape
    torch.Size([24, 2, 16])
    """
    what = "flash_attn_varlen_func"
    tensors_only(what, q=q, k=k, v=v, cu_seqlens_q=cu_seqlens_q, cu_seqlens_k=cu_seqlens_k)
    supported = "causal, window_size, softmax_scale and return_attn_probs are"
    _refuse(
        what, supported, dropout_p=(bool(dropout_p), dropout_p), softcap=(bool(softcap), softcap),
        alibi_slopes=(alibi_slopes is not None, alibi_slopes), block_table=(block_table is not None, block_table),
    )  # fmt: skip
    no_gradient(what, q, k, v)
    _check(what, q, k, v, 1, None)
    causal, left, right = _window(what, window_size, causal)
    out, lse = call(
        _attend_packed, policy, q, k, v, cu_seqlens_q, cu_seqlens_k, int(max_seqlen_q), int(max_seqlen_k),
        *_how(causal, left, right, _scale(what, softmax_scale)),
    )  # fmt: skip
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
    policy: Any = None,
) -> Any:
    """As ``flash_attn.flash_attn_with_kvcache``: queries (batch, rows, heads, elements)
    over a cache (batch, room, heads, elements) of which the first ``cache_seqlens``
    rows are filled. New keys and values ``k`` and ``v`` are put behind them first, in
    place. With ``block_table`` (int32, one row for each sequence) the cache is one of
    pages, (pages, tokens, heads, elements), pages of 8 to 4096 tokens in steps of 8.
    Lengths stay on the device.

    >>> cache = torch.zeros(1, 32, 2, 16, dtype=torch.float16)
    >>> q = torch.ones(1, 1, 2, 16, dtype=torch.float16)
    >>> lengths = torch.tensor([5], dtype=torch.int32)
    >>> flash_attn_with_kvcache(q, cache, cache.clone(), q, q, cache_seqlens=lengths).shape
    torch.Size([1, 1, 2, 16])
    """
    what = "flash_attn_with_kvcache"
    tensors_only(what, q=q, k_cache=k_cache, v_cache=v_cache)
    supported = "k, v, cache_seqlens, block_table, softmax_scale, causal, window_size and return_softmax_lse are"
    _refuse(
        what, supported, rotary_cos=(rotary_cos is not None, rotary_cos), rotary_sin=(rotary_sin is not None, rotary_sin),
        cache_batch_idx=(cache_batch_idx is not None, cache_batch_idx),
        cache_leftpad=(cache_leftpad is not None, cache_leftpad),
        softcap=(bool(softcap), softcap), alibi_slopes=(alibi_slopes is not None, alibi_slopes),
    )  # fmt: skip
    no_gradient(what, q, k_cache, v_cache, k, v)
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
        # A cache of pages has no batch to compare.
        _check(what, q, k_cache[:1].expand(q.shape[0], -1, -1, -1), v_cache[:1].expand(q.shape[0], -1, -1, -1), 2, 1)
    else:
        _check(what, q, k_cache, v_cache, 2, 1)
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
        rows = lengths.long().unsqueeze(1) + torch.arange(k.shape[1], device=q.device)
        if block_table is None:
            place = torch.arange(batch, device=q.device).unsqueeze(1), rows
        else:
            place = block_table.long().gather(1, rows // page), rows % page
        k_cache[place] = k.to(k_cache.dtype)
        v_cache[place] = v.to(v_cache.dtype)
        lengths = lengths + k.shape[1]
    causal, left, right = _window(what, window_size, causal)
    how = _how(causal, left, right, _scale(what, softmax_scale))
    if block_table is not None:
        out, lse = call(_attend_paged, policy, q, k_cache, v_cache, lengths, block_table, *how)
    elif queries <= 16 and (size := _page_of(room)) and policy is None:
        # A sequence's room is its pages, in order.
        row = room // size
        table = torch.arange(batch * row, dtype=torch.int32, device=q.device).view(batch, row)
        pages = (cache.view(batch * row, size, -1, dim) for cache in (k_cache, v_cache))
        out, lse = call(_attend_paged, None, q, *pages, lengths, table, *how)
    else:
        # Packed, with the room behind each sequence's keys as a sequence without queries.
        numbers = torch.arange(batch + 1, device=q.device, dtype=torch.int32)
        k_starts = torch.stack((numbers[:-1] * room, numbers[:-1] * room + lengths), dim=1).flatten()
        k_starts = torch.cat((k_starts, numbers[-1:] * room))
        q_starts = torch.stack((numbers[:-1] * queries, numbers[1:] * queries), dim=1).flatten()
        q_starts = torch.cat((q_starts, numbers[-1:] * queries))
        out, lse = call(
            _attend_packed, policy, q.reshape(batch * queries, heads, dim), k_cache.view(batch * room, -1, dim),
            v_cache.view(batch * room, -1, dim), q_starts, k_starts, queries, room, *how,
        )  # fmt: skip
    out = out.view(batch, queries, heads, dim)
    if return_softmax_lse:
        return out, lse.view(heads, batch, queries).transpose(0, 1)
    return out


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
