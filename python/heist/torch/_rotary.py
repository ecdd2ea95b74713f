"""Rotary embeddings of queries and new keys, as ``flash_attn`` applies them in a step of decoding."""

from __future__ import annotations

import torch
from torch import Tensor

from ._device import UnsupportedError, numbers, tensors_only


def check_rotary(what: str, q: Tensor, k: Tensor | None, cos: Tensor | None, sin: Tensor | None) -> None:
    """Fails where cosines and sines are not those of the queries."""
    if cos is None or sin is None:
        raise ValueError(f"{what}: rotary_cos and rotary_sin come together; give both, or neither")
    tensors_only(what, rotary_cos=cos, rotary_sin=sin)
    if k is None:
        raise ValueError(f"{what}: rotary_cos without new keys; rotate the queries yourself, or give k and v: keys in the cache are rotated")
    if cos.dim() != 2 or cos.shape != sin.shape or not 0 < 2 * cos.shape[1] <= q.shape[-1] or not cos.shape[0]:
        raise ValueError(
            f"{what}: rotary_cos is {tuple(cos.shape)} and rotary_sin {tuple(sin.shape)}; both (positions, half of the elements that are "
            f"rotated), of at most {q.shape[-1]} elements a head, are wanted"
        )
    for name, table in (("rotary_cos", cos), ("rotary_sin", sin)):
        if table.device != q.device:
            raise ValueError(f"{what}: {name} is on {table.device} and q on {q.device}; move it with `.to(..)`")
        if not table.dtype.is_floating_point:
            raise UnsupportedError(f"{what}: {name} is {table.dtype}; floating-point numbers are supported")


def rotate(rows: Tensor, filled: Tensor, cos: Tensor, sin: Tensor, interleaved: bool, in_order: bool) -> Tensor:
    """Rows (batch, rows, heads, elements) rotated for their places behind those that are filled: one after the other, or all for the
    first. Pairs are neighbours where they are interleaved, and else an element of the first half and one of the second.
    Positions behind the last of the table, for which a cache has no room either, are rotated as that."""
    half = cos.shape[1]
    place = filled.long().unsqueeze(1)
    if in_order:
        place = place + numbers(rows.shape[1], torch.int64, rows.device)
    place = place.clamp(max=cos.shape[0] - 1)
    # (batch, rows, 1, half), in float32 as the products are.
    c, s = (table[place].float().unsqueeze(2) for table in (cos, sin))
    turned, rest = rows[..., : 2 * half].float(), rows[..., 2 * half :]
    if interleaved:
        x, y = turned[..., ::2], turned[..., 1::2]
    else:
        x, y = turned[..., :half], turned[..., half:]
    x, y = x * c - y * s, x * s + y * c
    turned = torch.stack((x, y), -1).flatten(-2) if interleaved else torch.cat((x, y), -1)
    return torch.cat((turned.to(rows.dtype), rest), -1)
