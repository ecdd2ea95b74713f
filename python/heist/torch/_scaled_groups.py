"""Products of groups of 8-bit floats with scales."""

from __future__ import annotations

from typing import Any

import torch

from ._batches import _BLOCK, _TINY
from ._device import (
    PLANS,
    Launcher,
    UnsupportedError,
    aligned,
    device_of,
    no_gradient,
    one_device,
    ops_of,
    tensors_only,
)
from ._library import CODES, call, define, remember
from ._products import _fits, _output, _result


def _wanted(a: torch.Tensor, b: torch.Tensor) -> dict[str, tuple[tuple[int, ...], tuple[int, ...]]]:
    """The shapes of scales, by what has one of its own."""
    groups, depth, cols = b.shape
    deep, wide = -(-depth // _BLOCK), -(-cols // _BLOCK)
    return {
        "rows": (tuple(a.shape[:-1]), (groups, cols)),
        "blocks": ((*a.shape[:-1], deep), (groups, deep, wide)),
    }


def _kind(a: torch.Tensor, b: torch.Tensor, scale_a: torch.Tensor, scale_b: torch.Tensor) -> str:
    """What has a scale of its own."""
    given = tuple(scale_a.shape), tuple(scale_b.shape)
    wanted = _wanted(a, b)
    for kind, shapes in wanted.items():
        if given == shapes:
            return kind
    raise ValueError(
        f"scaled_grouped_mm: scale_a is {given[0]} and scale_b {given[1]}; for rows and columns {wanted['rows'][0]} and "
        f"{wanted['rows'][1]}, or for blocks of 128 {wanted['blocks'][0]} and {wanted['blocks'][1]} are wanted"
    )


def _check(a, b, scale_a, scale_b, numbers):
    what = "scaled_grouped_mm"
    masked = a.dim() == 3
    if a.dim() not in (2, 3) or b.dim() != 3:
        raise UnsupportedError(
            f"{what}: mat_a of {a.dim()} and mat_b of {b.dim()} dimensions; (rows, k) with offs or (groups, room, k) with counts, "
            "and (groups, k, n) are supported"
        )
    for name, matrix in (("mat_a", a), ("mat_b", b)):
        _fits(what, name, matrix)
        if matrix.dtype not in _TINY:
            raise UnsupportedError(
                f"{what}: {name} is {matrix.dtype}; float8_e4m3fn and float8_e5m2 are supported: use grouped_mm for others"
            )
    if a.dtype != b.dtype:
        raise UnsupportedError(f"{what}: mat_a is {a.dtype} and mat_b {b.dtype}; both of one type are supported")
    if a.shape[-1] != b.shape[1]:
        raise ValueError(f"{what}: rows of {a.shape[-1]} elements and matrices that take {b.shape[1]}")
    if masked and a.shape[0] != b.shape[0]:
        raise ValueError(f"{what}: {a.shape[0]} groups in mat_a and {b.shape[0]} in mat_b")
    for name, scale in (("scale_a", scale_a), ("scale_b", scale_b)):
        if scale.dtype != torch.float32:
            raise ValueError(f"{what}: {name} is {scale.dtype}; scales are float32: convert it with `.float()`")
    _kind(a, b, scale_a, scale_b)
    name = "counts" if masked else "offs"
    if numbers.dtype != torch.int32 or numbers.shape != b.shape[:1] or not numbers.is_contiguous():
        raise ValueError(
            f"{what}: {name} is {numbers.dtype} of {tuple(numbers.shape)}; contiguous int32 with one number for each of "
            f"{b.shape[0]} groups is wanted"
        )
    if a.numel() and not a.is_contiguous():
        raise ValueError(f"{what}: mat_a must lie row after row without gaps: pass `mat_a.contiguous()`")
    if b.numel() and not b.transpose(1, 2).is_contiguous():
        raise ValueError(
            f"{what}: each matrix of mat_b must lie column after column without gaps, as `weights.transpose(1, 2)` does: pass "
            "`mat_b.transpose(1, 2).contiguous().transpose(1, 2)`"
        )


def _scaled_grouped_mm(a, b, scale_a, scale_b, numbers, expected=-1, out_dtype=15, fast=False, policy=""):
    what = "scaled_grouped_mm"
    out_dtype = _result(a, out_dtype)
    given = (a, b, scale_a, scale_b, numbers)
    key = (what, *((t.shape, t.stride(), t.dtype, t.get_device()) for t in given), expected, out_dtype, fast, policy)
    found = PLANS.get(key)
    if found is None:
        _check(a, b, scale_a, scale_b, numbers)
        index = device_of(what, *given)
        groups, depth, cols = b.shape
        rows = a.numel() // depth if depth else 0
        kind = _kind(a, b, scale_a, scale_b)
        launcher = None
        if rows * cols * depth * groups:
            masked = None if a.dim() == 2 else a.shape[1] if expected < 0 else expected
            plan = ops_of(index).grouped_gemm(
                groups, rows, cols, depth, dtype=_TINY[a.dtype], out=_output(what, out_dtype), layout="nt", masked=masked,
                scales=kind, fast=fast, policy=policy or None,
            )  # fmt: skip
            launcher = Launcher(index, plan)
        found = PLANS[key] = launcher, kind
    launcher, kind = found
    out = torch.empty((*a.shape[:-1], b.shape[2]), dtype=out_dtype, device=a.device)
    if launcher is None:
        return out.zero_()
    # The kernels read scales of blocks as a row for each block of the depth of A, and for each block of
    # columns of B.
    own = [t.transpose(-2, -1).contiguous() if kind == "blocks" else t.contiguous() for t in (scale_a, scale_b)]
    if kind == "blocks":
        # The copy engine brings those, from multiples of 16 bytes on.
        own = [t.clone() if t.data_ptr() % 16 else t for t in own]
    if (a.data_ptr() | b.data_ptr()) % 16:
        aligned(what, mat_a=a, mat_b=b)
    launcher(a.data_ptr(), b.data_ptr(), out.data_ptr(), numbers.data_ptr(), own[0].data_ptr(), own[1].data_ptr())
    if all(x.data_ptr() == y.data_ptr() for x, y in zip(own, (scale_a, scale_b))):
        remember(launcher, [0, 1, 4, 5, 3], [(out, 2)])
    return out


def _like(a, b, scale_a, scale_b, numbers, expected=-1, out_dtype=15, fast=False):
    one_device("scaled_grouped_mm", a, b, scale_a, scale_b, numbers)
    _check(a, b, scale_a, scale_b, numbers)
    return a.new_empty((*a.shape[:-1], b.shape[2]), dtype=_result(a, out_dtype))


_multiply = define(
    "scaled_grouped_mm",
    "Tensor mat_a, Tensor mat_b, Tensor scale_a, Tensor scale_b, Tensor numbers, int expected=-1, int out_dtype=15, bool fast=False",
    "Tensor", _scaled_grouped_mm, _like,
)  # fmt: skip


def scaled_grouped_mm(
    mat_a: torch.Tensor,
    mat_b: torch.Tensor,
    scale_a: torch.Tensor,
    scale_b: torch.Tensor,
    *,
    offs: torch.Tensor | None = None,
    counts: torch.Tensor | None = None,
    expected: int | None = None,
    out_dtype: torch.dtype = torch.bfloat16,
    use_fast_accum: bool = False,
    policy: Any = None,
) -> torch.Tensor:
    """As ``torch._scaled_grouped_mm``: rows of 8-bit floats (float8_e4m3fn or float8_e5m2) times the matrix of
    their group in ``mat_b`` (groups, k, n), each column after column, times float32 scales. Groups lie in one of two ways:

    * ``mat_a`` is (rows, k), and ``offs`` (int32) says where the rows of each group end;
    * ``mat_a`` is (groups, room, k), and ``counts`` (int32) says how many rows each group uses (masked, as in decoding).
      ``expected`` is how many the host expects: tiles are chosen for that, and any count is right.

    ``offs`` and ``counts`` are read on the device. Scales are one for each row of ``mat_a`` and column of ``mat_b``
    (groups, n); or one for each row and 128 elements of the depth (.., k / 128) and each block of 128 x 128
    (groups, k / 128, n / 128). Scales of blocks that are views of transposed tensors need no copy:
    ``scale_a.transpose(-2, -1)`` and ``scale_b.transpose(-2, -1)`` are contiguous then. Rows that no group uses hold
    anything.

    >>> a, b = torch.ones(6, 32).to(torch.float8_e4m3fn), torch.ones(2, 8, 32).to(torch.float8_e4m3fn)
    >>> two, three = torch.full((6, 1), 2.0), torch.full((2, 1, 1), 3.0)
    >>> float(scaled_grouped_mm(a, b.transpose(1, 2), two, three, offs=torch.tensor([2, 6], dtype=torch.int32))[0, 0])
    192.0
    """
    what = "scaled_grouped_mm"
    masked = isinstance(mat_a, torch.Tensor) and mat_a.dim() == 3
    numbers, other = (counts, offs) if masked else (offs, counts)
    if other is not None or numbers is None:
        raise ValueError(
            f"{what}: say with counts (int32) how many rows each group uses, and leave out offs: mat_a has three dimensions"
            if masked
            else f"{what}: say with offs (int32) where the rows of each group end, and leave out counts: those are for mat_a "
            "of (groups, room, k)"
        )
    if expected is not None and (not masked or expected < 0):
        raise ValueError(f"{what}: expected is a number of rows, zero or more, of masked groups; given: {expected}")
    tensors_only(what, mat_a=mat_a, mat_b=mat_b, scale_a=scale_a, scale_b=scale_b, numbers=numbers)
    no_gradient(what, mat_a, mat_b, scale_a, scale_b)
    _output(what, out_dtype)
    how = (-1 if expected is None else expected, CODES[out_dtype], use_fast_accum)
    return call(_multiply, policy, mat_a, mat_b, scale_a, scale_b, numbers, *how)
