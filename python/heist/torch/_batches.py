"""Products of batches, and of 8-bit floats with scales."""

from __future__ import annotations

from typing import Any

import torch

from ._device import (
    PLANS,
    Launcher,
    UnsupportedError,
    aligned,
    device_of,
    no_gradient,
    no_policy,
    one_device,
    ops_of,
    tensors_only,
    wants_gradient,
)
from ._library import CODES, Gradient, call, define, differentiable, remember
from ._modes import prepared
from ._products import _fits, _input, _number, _output, _result, _tf32

#: 8-bit floats, as the kernels name them.
_TINY = {torch.float8_e4m3fn: "e4m3", torch.float8_e5m2: "e5m2"}
#: Elements that have a scale in common, where blocks have scales.
_BLOCK = 128


# --- Batches --------------------------------------------------------------------


def _check_bmm(a: torch.Tensor, b: torch.Tensor) -> None:
    what = "bmm"
    for name, matrix in (("input", a), ("mat2", b)):
        if matrix.dim() != 3:
            raise ValueError(f"{what}: {name} has {matrix.dim()} dimensions, and a batch of matrices has three")
        _fits(what, name, matrix)
    if a.shape[0] != b.shape[0] or a.shape[2] != b.shape[1]:
        raise ValueError(f"{what}: {tuple(a.shape)} times {tuple(b.shape)}: the batches and the inner extents must be the same")
    _input(what, "input", a)
    if b.dtype != a.dtype:
        raise ValueError(f"{what}: matrices of {a.dtype} and {b.dtype}; convert one with `.to(..)`")


def _stored(batch: torch.Tensor) -> tuple[torch.Tensor, str]:
    """A batch as it is stored, its matrices one after the other, and whether that is row
    after row (`n`) or column after column (`t`). Others are copied."""
    way = "t" if batch.transpose(1, 2).is_contiguous() and not batch.is_contiguous() else "n"
    return (batch.transpose(1, 2) if way == "t" else batch).contiguous(), way


def _bmm(a, b, out_dtype=-1, policy=""):
    what = "bmm"
    out_dtype = _result(a, out_dtype)
    key = (
        what, a.shape, b.shape, a.stride(), b.stride(), a.dtype, b.dtype, out_dtype, a.get_device(), b.get_device(), policy,
        _tf32(a.dtype), a.data_ptr() % 16 != 0, b.data_ptr() % 16 != 0,
    )  # fmt: skip
    launcher = PLANS.get(key)
    if launcher is None:
        _check_bmm(a, b)
        index = device_of(what, a, b)
        (batch, m, k), n = a.shape, b.shape[2]
        if not batch * m * n * k:
            return torch.zeros((batch, m, n), dtype=out_dtype, device=a.device)
        (left, a_way), (right, b_way) = _stored(a), _stored(b)
        plan = ops_of(index).gemm(
            m, n, k, dtype=_input(what, "input", a), out=_output(what, out_dtype), layout=a_way + b_way,
            lda=left.shape[2], ldb=right.shape[2], ldc=n, batch=batch,
            anywhere=(left.data_ptr() % 16 != 0, right.data_ptr() % 16 != 0), policy=policy or None,
        )  # fmt: skip
        launcher = PLANS[key] = Launcher(index, plan)
    (left, _), (right, _) = _stored(a), _stored(b)
    out = torch.empty((a.shape[0], a.shape[1], b.shape[2]), dtype=out_dtype, device=a.device)
    launcher(left.data_ptr(), right.data_ptr(), 0, out.data_ptr())
    if left.data_ptr() == a.data_ptr() and right.data_ptr() == b.data_ptr() and a.dtype != torch.float32:
        remember(launcher, [0, 1], [(out, 3)])
    return out


def _like_bmm(a, b, out_dtype=-1):
    one_device("bmm", a, b)
    _check_bmm(a, b)
    return a.new_empty((a.shape[0], a.shape[1], b.shape[2]), dtype=_result(a, out_dtype))


def _keep_bmm(ctx, inputs, output):
    ctx.save_for_backward(*inputs[:2])


def _backward_bmm(ctx, d):
    a, b = ctx.saved_tensors
    d = d.to(a.dtype)
    return (
        differentiable(_multiply_batch, d, b.transpose(1, 2)) if ctx.needs_input_grad[0] else None,
        differentiable(_multiply_batch, a.transpose(1, 2), d) if ctx.needs_input_grad[1] else None,
        None,
    )


_multiply_batch = define(
    "bmm", "Tensor input, Tensor mat2, int out_dtype=-1", "Tensor", _bmm, _like_bmm, Gradient(_keep_bmm, _backward_bmm)
)


def bmm(
    input: torch.Tensor, mat2: torch.Tensor, *, out_dtype: torch.dtype | None = None, policy: Any = None
) -> torch.Tensor:
    """As ``torch.bmm``: a batch of products, in one kernel. Matrices of a batch follow each
    other, each stored row after row or column after column; others are copied.

    >>> a, b = torch.ones(2, 8, 16, dtype=torch.float16), torch.ones(2, 16, 8, dtype=torch.float16)
    >>> float(bmm(a, b)[1, 0, 0])
    16.0
    """
    what = "bmm"
    tensors_only(what, input=input, mat2=mat2)
    input, mat2 = prepared(what, input, mat2)
    number = () if out_dtype is None else _number(what, input, out_dtype)
    if wants_gradient(input, mat2):
        no_policy(what, policy)
        return _multiply_batch.train(input, mat2, *number)
    return call(_multiply_batch, policy, input, mat2, *number)


# --- 8-bit floats ---------------------------------------------------------------


def _in_fours(blocks: int) -> int:
    """Rows of `scale_b` where it has room for a multiple of four blocks of the depth, which cuBLAS asks for."""
    return -(-blocks // 4) * 4


def _kind(a: torch.Tensor, b: torch.Tensor, scale_a: torch.Tensor, scale_b: torch.Tensor) -> str:
    """What has a scale of its own."""
    (m, k), n = a.shape, b.shape[1]
    blocks = -(-k // _BLOCK), -(-n // _BLOCK)
    if scale_a.numel() == 1 and scale_b.numel() == 1:
        return "tensor"
    if scale_a.shape == (m, 1) and scale_b.shape == (1, n):
        return "rows"
    if scale_a.shape == (m, blocks[0]) and scale_b.shape in (blocks, (_in_fours(blocks[0]), blocks[1])):
        return "blocks"
    raise ValueError(
        f"scaled_mm: scale_a is {tuple(scale_a.shape)} and scale_b {tuple(scale_b.shape)}; one number each, ({m}, 1) and "
        f"(1, {n}), or for blocks of 128 {(m, blocks[0])} and {blocks} are wanted"
    )


def _check_scaled(a, b, scale_a, scale_b, bias, out_dtype):
    what = "scaled_mm"
    for name, matrix in (("mat_a", a), ("mat_b", b)):
        if matrix.dim() != 2:
            raise ValueError(f"{what}: {name} has {matrix.dim()} dimensions, and a matrix has two")
        _fits(what, name, matrix)
        if matrix.dtype not in _TINY:
            raise UnsupportedError(f"{what}: {name} is {matrix.dtype}; float8_e4m3fn and float8_e5m2 are supported: use mm for others")
    if a.dtype != b.dtype:
        raise UnsupportedError(f"{what}: mat_a is {a.dtype} and mat_b {b.dtype}; both of one type are supported")
    if a.shape[1] != b.shape[0]:
        raise ValueError(f"{what}: {tuple(a.shape)} times {tuple(b.shape)}: the inner extents {a.shape[1]} and {b.shape[0]} differ")
    for name, scale in (("scale_a", scale_a), ("scale_b", scale_b)):
        if scale.dtype != torch.float32:
            raise ValueError(f"{what}: {name} is {scale.dtype}; scales are float32: convert it with `.float()`")
    _kind(a, b, scale_a, scale_b)
    if bias is not None and (bias.shape != b.shape[1:] or bias.dtype != out_dtype):
        raise ValueError(f"{what}: bias is {bias.dtype} of {tuple(bias.shape)}; {out_dtype} of ({b.shape[1]},) is wanted")
    if a.numel() and not a.is_contiguous():
        raise ValueError(f"{what}: mat_a must lie row after row without gaps: pass `mat_a.contiguous()`")
    if b.numel() and not b.t().is_contiguous():
        raise ValueError(f"{what}: mat_b must lie column after column without gaps, as `weight.t()` does: pass `mat_b.t().contiguous().t()`")


def _scaled_mm(a, b, scale_a, scale_b, out_dtype=15, fast=False, policy=""):
    return _scaled_mm_bias(a, b, scale_a, scale_b, None, out_dtype, fast, policy)


def _scaled_mm_bias(a, b, scale_a, scale_b, bias, out_dtype=15, fast=False, policy=""):
    what = "scaled_mm"
    out_dtype = _result(a, out_dtype)
    given = (a, b, scale_a, scale_b, *(() if bias is None else (bias,)))
    key = (what, *((t.shape, t.stride(), t.dtype, t.get_device()) for t in given), out_dtype, fast, policy)
    found = PLANS.get(key)
    if found is None:
        _check_scaled(a, b, scale_a, scale_b, bias, out_dtype)
        index = device_of(what, *given)
        (m, k), n = a.shape, b.shape[1]
        kind = _kind(a, b, scale_a, scale_b)
        launcher = None
        if m * n * k:
            plan = ops_of(index).gemm(
                m, n, k, dtype=_TINY[a.dtype], out=_output(what, out_dtype), layout="nt", lda=k, ldb=k, ldc=n,
                bias=bias is not None, scales=kind, fast=fast, policy=policy or None,
            )  # fmt: skip
            launcher = Launcher(index, plan)
        found = PLANS[key] = launcher, kind
    launcher, kind = found
    out = torch.empty((a.shape[0], b.shape[1]), dtype=out_dtype, device=a.device)
    if launcher is None:
        return out.zero_() if bias is None else out.copy_(bias.expand_as(out))
    # The kernels read scales of blocks as a row for each block of the depth of A, and for
    # each block of columns of B.
    if kind == "blocks":
        scale_b = scale_b[: scale_a.shape[1]]
    own = [t.t().contiguous() if kind == "blocks" else t.contiguous() for t in (scale_a, scale_b)]
    if kind == "blocks":
        # The copy engine brings those, from multiples of 16 bytes on.
        own = [t.clone() if t.data_ptr() % 16 else t for t in own]
    added = None if bias is None else bias.contiguous()
    if (a.data_ptr() | b.data_ptr() | (0 if added is None else added.data_ptr())) % 16:
        aligned(what, mat_a=a, mat_b=b, **({} if added is None else {"bias": added}))
    launcher(
        a.data_ptr(), b.data_ptr(), 0, out.data_ptr(), 0 if added is None else added.data_ptr(), own[0].data_ptr(), own[1].data_ptr()
    )
    if all(x.data_ptr() == y.data_ptr() for x, y in zip(own, (scale_a, scale_b))) and added is bias:
        remember(launcher, [0, 1, 5, 6] if bias is None else [0, 1, 5, 6, 4], [(out, 3)])
    return out


def _like_scaled(a, b, scale_a, scale_b, out_dtype=15, fast=False):
    return _like_scaled_bias(a, b, scale_a, scale_b, None, out_dtype)


def _like_scaled_bias(a, b, scale_a, scale_b, bias, out_dtype=15, fast=False):
    one_device("scaled_mm", a, b, scale_a, scale_b, *(() if bias is None else (bias,)))
    _check_scaled(a, b, scale_a, scale_b, bias, _result(a, out_dtype))
    return a.new_empty((a.shape[0], b.shape[1]), dtype=_result(a, out_dtype))


_GIVEN = "Tensor mat_a, Tensor mat_b, Tensor scale_a, Tensor scale_b"
_multiply_scaled = define("scaled_mm", f"{_GIVEN}, int out_dtype=15, bool fast=False", "Tensor", _scaled_mm, _like_scaled)
_multiply_scaled_bias = define(
    "scaled_mm_bias", f"{_GIVEN}, Tensor bias, int out_dtype=15, bool fast=False", "Tensor", _scaled_mm_bias, _like_scaled_bias
)


def scaled_mm(
    mat_a: torch.Tensor,
    mat_b: torch.Tensor,
    scale_a: torch.Tensor,
    scale_b: torch.Tensor,
    bias: torch.Tensor | None = None,
    *,
    out_dtype: torch.dtype = torch.bfloat16,
    use_fast_accum: bool = False,
    policy: Any = None,
) -> torch.Tensor:
    """As ``torch._scaled_mm``: the product of matrices of 8-bit floats (float8_e4m3fn or
    float8_e5m2), times their scales in float32: one for each matrix; one for each row of
    ``mat_a`` (m, 1) and column of ``mat_b`` (1, n); or one for each row and 128 elements of
    the depth (m, k / 128) and each block of 128 x 128 (k / 128, n / 128; or with rows up to the next
    multiple of four, as cuBLAS wants them, which are not read). ``mat_a`` lies row
    after row and ``mat_b`` column after column. ``use_fast_accum`` leaves all sums to the
    tensor cores, which keep 13 bits of fraction.

    >>> a, b = torch.ones(16, 32).to(torch.float8_e4m3fn), torch.ones(8, 32).to(torch.float8_e4m3fn)
    >>> two = torch.tensor(2.0)
    >>> float(scaled_mm(a, b.t(), two, two)[0, 0])
    128.0
    """
    what = "scaled_mm"
    tensors_only(what, mat_a=mat_a, mat_b=mat_b, scale_a=scale_a, scale_b=scale_b, **({} if bias is None else {"bias": bias}))
    no_gradient(what, mat_a, mat_b, scale_a, scale_b, bias)
    _output(what, out_dtype)
    how = (CODES[out_dtype], use_fast_accum)
    if bias is None:
        return call(_multiply_scaled, policy, mat_a, mat_b, scale_a, scale_b, *how)
    return call(_multiply_scaled_bias, policy, mat_a, mat_b, scale_a, scale_b, bias, *how)
