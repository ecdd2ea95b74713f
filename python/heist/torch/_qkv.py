"""Attention over queries, keys and values that are one tensor, as ``flash_attn`` has it."""

from __future__ import annotations

from typing import Any

import torch

from ._device import tensors_only
from ._flash import flash_attn_func, flash_attn_varlen_func


def _parts(what: str, name: str, packed: torch.Tensor, dims: int, parts: int) -> tuple[torch.Tensor, ...]:
    """Queries, keys and values, or keys and values, which lie third to last."""
    tensors_only(what, **{name: packed})
    if packed.dim() != dims or packed.shape[-3] != parts:
        rows = "batch, rows" if dims == 5 else "rows of all sequences"
        raise ValueError(f"{what}: {name} is {tuple(packed.shape)}; ({rows}, {parts}, heads, elements) is wanted")
    return packed.unbind(-3)


def flash_attn_qkvpacked_func(qkv: torch.Tensor, *arguments: Any, **named: Any) -> Any:
    """As ``flash_attn.flash_attn_qkvpacked_func``: (batch, rows, 3, heads, elements); further arguments are those of
    :func:`flash_attn_func`. Each part is read where it lies on GPUs with tensor copies (sm_90 and later).

    >>> flash_attn_qkvpacked_func(torch.ones(1, 16, 3, 2, 16, dtype=torch.float16), causal=True).shape
    torch.Size([1, 16, 2, 16])
    """
    return flash_attn_func(*_parts("flash_attn_qkvpacked_func", "qkv", qkv, 5, 3), *arguments, **named)


def flash_attn_kvpacked_func(q: torch.Tensor, kv: torch.Tensor, *arguments: Any, **named: Any) -> Any:
    """As ``flash_attn.flash_attn_kvpacked_func``: queries (batch, rows, heads, elements) over (batch, rows, 2, heads,
    elements); further arguments are those of :func:`flash_attn_func`.

    >>> q, kv = torch.ones(1, 16, 4, 16, dtype=torch.float16), torch.ones(1, 16, 2, 2, 16, dtype=torch.float16)
    >>> flash_attn_kvpacked_func(q, kv, causal=True).shape
    torch.Size([1, 16, 4, 16])
    """
    return flash_attn_func(q, *_parts("flash_attn_kvpacked_func", "kv", kv, 5, 2), *arguments, **named)


def flash_attn_varlen_qkvpacked_func(
    qkv: torch.Tensor, cu_seqlens: torch.Tensor, max_seqlen: int, *arguments: Any, **named: Any
) -> Any:
    """As ``flash_attn.flash_attn_varlen_qkvpacked_func``: sequences one after the other, (rows, 3, heads, elements); further
    arguments are those of :func:`flash_attn_varlen_func` behind the longest sequences.

    >>> starts = torch.tensor([0, 8, 24], dtype=torch.int32)
    >>> flash_attn_varlen_qkvpacked_func(torch.ones(24, 3, 2, 16, dtype=torch.float16), starts, 16).shape
    torch.Size([24, 2, 16])
    """
    parts = _parts("flash_attn_varlen_qkvpacked_func", "qkv", qkv, 4, 3)
    return flash_attn_varlen_func(*parts, cu_seqlens, cu_seqlens, max_seqlen, max_seqlen, *arguments, **named)


def flash_attn_varlen_kvpacked_func(
    q: torch.Tensor, kv: torch.Tensor, cu_seqlens_q: torch.Tensor, cu_seqlens_k: torch.Tensor, max_seqlen_q: int,
    max_seqlen_k: int, *arguments: Any, **named: Any,
) -> Any:  # fmt: skip
    """As ``flash_attn.flash_attn_varlen_kvpacked_func``: queries (rows, heads, elements) over (rows, 2, heads, elements);
    further arguments are those of :func:`flash_attn_varlen_func` behind the longest sequences.

    >>> q, kv = torch.ones(24, 4, 16, dtype=torch.float16), torch.ones(24, 2, 2, 16, dtype=torch.float16)
    >>> starts = torch.tensor([0, 8, 24], dtype=torch.int32)
    >>> flash_attn_varlen_kvpacked_func(q, kv, starts, starts, 16, 16).shape
    torch.Size([24, 4, 16])
    """
    parts = _parts("flash_attn_varlen_kvpacked_func", "kv", kv, 4, 2)
    return flash_attn_varlen_func(q, *parts, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, *arguments, **named)
