"""Products with the interfaces of PyTorch."""

from __future__ import annotations

import math
from typing import Any, Callable

import torch
from torch import Tensor

from ._device import (
    DTYPES,
    PLANS,
    Launcher,
    UnsupportedError,
    aligned,
    device_of,
    no_policy,
    one_device,
    ops_of,
    placed,
    tensors_only,
    wants_gradient,
)
from ._library import CODES, FAILED, Gradient, call, define, differentiable, is_compiling, raise_cause, remember
from ._modes import grad_enabled, prepared, unusual

#: Activations, and PyTorch's own of each.
_ACTIVATE: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "none": lambda x: x,
    "relu": torch.nn.functional.relu,
    "gelu": lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
    "silu": torch.nn.functional.silu,
}
_ACTIVATIONS = tuple(_ACTIVATE)

#: PyTorch's own product of groups.
_PYTORCHS_GROUPED = getattr(torch.nn.functional, "grouped_mm", None) or torch._grouped_mm


# --- What a kernel can take -------------------------------------------------


def _input(what: str, name: str, tensor: torch.Tensor) -> str:
    """The type of an input as the kernels name it."""
    if tensor.dtype == torch.float32:
        if torch.backends.cuda.matmul.allow_tf32:
            return "tf32"
        raise UnsupportedError(
            f"{what}: {name} is torch.float32, which tensor cores multiply as tf32 alone; allow that with "
            "`torch.backends.cuda.matmul.allow_tf32 = True`, or convert with `.to(torch.bfloat16)`"
        )
    if tensor.dtype not in DTYPES:
        raise UnsupportedError(
            f"{what}: {name} is {tensor.dtype}; float16, bfloat16 and, where allow_tf32 is set, float32 are supported: "
            "convert with `.to(torch.bfloat16)`"
        )
    return DTYPES[tensor.dtype]


def _output(what: str, dtype: torch.dtype) -> str:
    if dtype not in DTYPES:
        raise UnsupportedError(f"{what}: a result of {dtype!r}; float16, bfloat16 and float32 are supported")
    return DTYPES[dtype]


def _pitch(what: str, name: str, matrix: torch.Tensor) -> tuple[bool, int]:
    """Whether a matrix is stored row after row, and the elements from one to the next."""
    rows, cols = matrix.shape
    down, along = matrix.stride()
    if (along == 1 or cols == 1) and (down >= cols or rows == 1):
        return True, down if rows > 1 else max(cols, 1)
    if (down == 1 or rows == 1) and (along >= rows or cols == 1):
        return False, along if cols > 1 else max(rows, 1)
    raise ValueError(
        f"{what}: {name} of {rows} x {cols} has strides {down} and {along}; one of them must be 1, and rows must not "
        "overlap: pass it as a copy, `.contiguous()`"
    )


def _fits(what: str, name: str, tensor: torch.Tensor) -> None:
    if any(extent >= 2**31 for extent in tensor.shape):
        raise UnsupportedError(f"{what}: {name} is {tuple(tensor.shape)}; axes shorter than 2^31 are supported: split it")


def _plan(what, a, b, out_dtype, ldc, c, bias, alpha, beta, activation, policy, spread="matrix"):
    """The launcher of `activation(alpha * a @ b + beta * c + bias)`; shapes were checked."""
    dtype = _input(what, "the left matrix", a)
    if b.dtype != a.dtype:
        raise ValueError(f"{what}: matrices of {a.dtype} and {b.dtype}; convert one with `.to(..)`")
    index = device_of(what, a, b, *(t for t in (c, bias) if t is not None))
    (m, k), n = a.shape, b.shape[1]
    a_rows, lda = _pitch(what, "the left matrix", a)
    b_rows, ldb = _pitch(what, "the right matrix", b)
    plan = ops_of(index).gemm(
        m, n, k, dtype=dtype, out=_output(what, out_dtype), layout=f"{'n' if a_rows else 't'}{'n' if b_rows else 't'}",
        lda=lda, ldb=ldb, ldc=ldc, alpha=alpha, beta=beta, spread=spread, bias=bias is not None, activation=_ACTIVATIONS[activation],
        anywhere=(a.data_ptr() % 16 != 0, b.data_ptr() % 16 != 0), policy=policy or None,
    )  # fmt: skip
    return Launcher(index, plan)


def _tf32(dtype: torch.dtype) -> bool:
    """Whether tf32 is allowed, where it matters."""
    return dtype is torch.float32 and torch.backends.cuda.matmul.allow_tf32


def _two(what: str, a: torch.Tensor, b: torch.Tensor) -> None:
    for name, matrix in (("input", a), ("mat2", b)):
        if matrix.dim() != 2:
            raise ValueError(f"{what}: {name} has {matrix.dim()} dimensions, and a matrix has two; use `reshape` or `flatten`")
        _fits(what, name, matrix)
    if a.shape[1] != b.shape[0]:
        raise ValueError(f"{what}: {tuple(a.shape)} times {tuple(b.shape)}: the inner extents {a.shape[1]} and {b.shape[0]} differ")


def _activation(what: str, activation: str) -> int:
    """The number of an activation: the compiled part takes numbers alone."""
    try:
        return _ACTIVATIONS.index(activation)
    except ValueError:
        raise ValueError(f"{what}: there is no activation {activation!r}: {', '.join(_ACTIVATIONS)}") from None


# --- The operations -----------------------------------------------------------

_NUMBERED = {number: dtype for dtype, number in CODES.items()}


def _result(a: torch.Tensor, out_dtype: int) -> torch.dtype:
    """The type of a result by its number; -1 is that of the input."""
    return a.dtype if out_dtype < 0 else _NUMBERED[out_dtype]


def _number(what: str, input: torch.Tensor, out_dtype: torch.dtype) -> tuple[int, ...]:
    """A type of results as operations take it, left out where it is that of the input."""
    if out_dtype == input.dtype:
        return ()
    _output(what, out_dtype)
    return (CODES[out_dtype],)


def _mm(a, b, out_dtype=-1, policy=""):
    out_dtype = _result(a, out_dtype)
    left, right = a.data_ptr(), b.data_ptr()
    key = (
        "mm", a.shape, b.shape, a.stride(), b.stride(), a.dtype, b.dtype, out_dtype, a.get_device(), b.get_device(),
        policy, _tf32(a.dtype), left % 16 != 0, right % 16 != 0,
    )  # fmt: skip
    launcher = PLANS.get(key)
    if launcher is None:
        _two("mm", a, b)
        _input("mm", "input", a)
        if not a.numel() or not b.numel():
            device_of("mm", a, b)
            return torch.zeros((a.shape[0], b.shape[1]), dtype=out_dtype, device=a.device)
        launcher = _plan("mm", a, b, out_dtype, b.shape[1], None, None, 1.0, 0.0, 0, policy)
        PLANS[key] = launcher
    out = torch.empty((a.shape[0], b.shape[1]), dtype=out_dtype, device=a.device)
    launcher(left, right, 0, out.data_ptr())
    if a.dtype != torch.float32:
        remember(launcher, [0, 1], [(out, 3)])
    return out


def _like_mm(a, b, out_dtype=-1):
    one_device("mm", a, b)
    _two("mm", a, b)
    return a.new_empty((a.shape[0], b.shape[1]), dtype=_result(a, out_dtype))


def _stored(c, m, n):
    """What of an addend of m x n is stored, and that part: what all rows or columns have alike is not written out for each."""
    whole = c.expand(m, n)
    down, along = whole.stride()
    if (m == 1 or down == 0) and (n == 1 or along == 0):
        return "one", whole[0, 0]
    if n == 1 or along == 0:
        return "column", whole[:, 0].contiguous()
    spread, part = ("row", whole[0]) if m == 1 or down == 0 else ("matrix", whole)
    part = part.contiguous()
    return spread, part.clone() if part.data_ptr() % 16 else part


def _addmm(c, a, b, beta=1.0, alpha=1.0, activation=0, policy=""):
    what = "addmm"
    m, n = a.shape[0], b.shape[1]
    out = torch.empty((m, n), dtype=a.dtype, device=a.device)
    if not out.numel():
        return out
    device_of(what, a, b, c)
    if c.dtype != a.dtype:
        raise ValueError(f"{what}: input is {c.dtype} and the matrices are {a.dtype}; convert it with `.to(..)`")
    bias, spread = None, "matrix"
    if beta == 0.0:
        c = None
    else:
        spread, c = _stored(c, m, n)
        if spread == "row" and beta == 1.0:
            bias, c, beta, spread = c, None, 0.0, "matrix"
    if not a.shape[1]:
        # Without a depth the product is zero; a depth of zeros gives that.
        a, b = a.new_zeros((m, 8)), b.new_zeros((8, n))
    left, right = a.data_ptr(), b.data_ptr()
    key = (
        "addmm", a.shape, b.shape, a.stride(), b.stride(), a.dtype, b.dtype, a.get_device(), b.get_device(), c is None,
        spread, bias is None, alpha, beta, activation, policy, _tf32(a.dtype), left % 16 != 0, right % 16 != 0,
    )  # fmt: skip
    launcher = PLANS.get(key)
    if launcher is None:
        launcher = PLANS[key] = _plan(what, a, b, a.dtype, n, c, bias, alpha, beta, activation, policy, spread)
    launcher(left, right, 0 if c is None else c.data_ptr(), out.data_ptr(), 0 if bias is None else bias.data_ptr())
    return out


def _like_addmm(c, a, b, *how):
    one_device("addmm", a, b, c)
    return a.new_empty((a.shape[0], b.shape[1]))


def _linear(x, weight, activation=0, policy=""):
    return _linear_bias(x, weight, None, activation, policy)


def _linear_bias(x, weight, bias, activation=0, policy=""):
    what = "linear"
    key = (
        "linear", x.shape, weight.shape, x.stride(), weight.stride(), x.dtype, weight.dtype, x.get_device(),
        weight.get_device(), None if bias is None else (bias.dtype, bias.shape, bias.stride(), bias.get_device()),
        activation, policy, _tf32(x.dtype), x.data_ptr() % 16 != 0, weight.data_ptr() % 16 != 0,
    )  # fmt: skip
    found = PLANS.get(key)
    if found is None:
        found = PLANS[key] = _plan_linear(x, weight, bias, activation, policy)
    launcher, flat = found
    out = torch.empty((*x.shape[:-1], *weight.shape[:-1]), dtype=x.dtype, device=x.device)
    if launcher is None:
        return out
    left, right, added = x, weight, 0
    if not x.shape[-1]:
        columns = weight.shape[:-1].numel()
        left, right = x.new_zeros((out.numel() // columns, 8)), weight.new_zeros((columns, 8))
    elif not flat:
        # Rows that lie as those of a matrix need no copy.
        left = x.reshape(-1, x.shape[-1])
    own = flat and x.shape[-1]
    if bias is not None:
        added = bias.data_ptr()
        if added % 16 or not bias.is_contiguous():
            own = own and bias.is_contiguous()
            bias = bias.clone(memory_format=torch.contiguous_format)
            added = bias.data_ptr()
    launcher(left.data_ptr(), right.data_ptr(), 0, out.data_ptr(), added)
    if own and x.dtype != torch.float32:
        remember(launcher, [0, 1] if bias is None else [0, 1, 4], [(out, 3)])
    return out


def _plan_linear(x, weight, bias, activation, policy):
    """The launcher of a linear layer, and whether its input is a matrix as it lies."""
    what = "linear"
    _check_linear(x, weight, bias)
    device_of(what, x, weight, *(() if bias is None else (bias,)))
    weight = _matrix(weight)
    if x.shape[-1]:
        flat = x.reshape(-1, x.shape[-1])
    else:
        flat, weight = x.new_zeros((x.shape[:-1].numel(), 8)), weight.new_zeros((weight.shape[0], 8))
    if not flat.shape[0] or not weight.shape[0]:
        return None, True
    own = flat.data_ptr() == x.data_ptr()
    launcher = _plan(what, flat, weight.t(), x.dtype, weight.shape[0], None, bias, 1.0, 0.0, activation, policy)
    return launcher, own


def _matrix(weight):
    """The weight of a linear layer as a matrix: one that is a row makes one number, without an axis for it."""
    return weight if weight.dim() == 2 else weight[None]


def _check_linear(x, weight, bias):
    what = "linear"
    if weight.dim() not in (1, 2) or x.dim() < 1:
        raise ValueError(f"{what}: input is {tuple(x.shape)} and weight {tuple(weight.shape)}; (.., in) and (out, in) or (in,) are wanted")
    _fits(what, "input", x)
    _fits(what, "weight", weight)
    if x.shape[-1] != weight.shape[-1]:
        raise ValueError(f"{what}: rows of {x.shape[-1]} elements and a weight that takes {weight.shape[-1]}")
    _input(what, "input", x)
    if bias is not None and (bias.shape != weight.shape[:-1] or bias.dtype != x.dtype):
        raise ValueError(f"{what}: bias is {bias.dtype} of {tuple(bias.shape)}; {x.dtype} of {tuple(weight.shape[:-1])} is wanted")


def _like_linear(x, weight, *how):
    return _like_linear_bias(x, weight, None)


def _like_linear_bias(x, weight, bias, *how):
    one_device("linear", x, weight, *(() if bias is None else (bias,)))
    _check_linear(x, weight, bias)
    return x.new_empty((*x.shape[:-1], *weight.shape[:-1]))


def _check_grouped(a: torch.Tensor, b: torch.Tensor, offs: torch.Tensor) -> None:
    what = "grouped_mm"
    if b.dim() != 3 or a.dim() != 2:
        raise UnsupportedError(
            f"{what}: mat_a of {a.dim()} and mat_b of {b.dim()} dimensions; 2 and 3, 3 and 2 or 2 and 2 with offs, or 3 and 3 without, are supported"
        )
    _fits(what, "mat_a", a)
    _fits(what, "mat_b", b)
    if a.shape[1] != b.shape[1]:
        raise ValueError(f"{what}: rows of {a.shape[1]} elements and matrices that take {b.shape[1]}")
    _input(what, "mat_a", a)
    if b.dtype != a.dtype:
        raise ValueError(f"{what}: mat_a is {a.dtype} and mat_b is {b.dtype}; convert one with `.to(..)`")
    if offs.dtype != torch.int32 or offs.shape != b.shape[:1] or not offs.is_contiguous():
        raise ValueError(
            f"{what}: offs is {offs.dtype} of {tuple(offs.shape)}; contiguous int32 with one number for each of "
            f"{b.shape[0]} groups is wanted"
        )


def _grouped_mm(a, b, offs, out_dtype=-1, policy=""):
    what = "grouped_mm"
    out_dtype = _result(a, out_dtype)
    key = (
        "grouped", a.shape, a.stride(), b.shape, b.stride(), a.dtype, b.dtype, offs.dtype, offs.shape, offs.stride(),
        out_dtype, a.get_device(), b.get_device(), offs.get_device(), policy, _tf32(a.dtype),
    )  # fmt: skip
    launcher = PLANS.get(key)
    if launcher is None:
        _check_grouped(a, b, offs)
        dtype = _input(what, "mat_a", a)
        index = device_of(what, a, b, offs)
        (rows, depth), (groups, _, cols) = a.shape, b.shape
        if not rows * cols or not depth or not groups:
            return torch.zeros((rows, cols), dtype=out_dtype, device=a.device)
        if not a.is_contiguous():
            raise ValueError(f"{what}: mat_a must lie row after row without gaps: pass `mat_a.contiguous()`")
        layout = "nn" if b.is_contiguous() else "nt" if b.transpose(1, 2).is_contiguous() else None
        if layout is None:
            raise ValueError(
                f"{what}: mat_b has strides {b.stride()}; each matrix must lie row after row or column after column without "
                "gaps: pass `mat_b.contiguous()`"
            )
        plan = ops_of(index).grouped_gemm(
            groups, rows, cols, depth, dtype=dtype, out=_output(what, out_dtype), layout=layout, policy=policy or None
        )
        launcher = PLANS[key] = Launcher(index, plan)
    # Rows are copied, as a gradient may begin anywhere; matrices are of a model, and would be in every call.
    aligned(what, mat_b=b)
    (left,) = placed(a)
    out = torch.empty((a.shape[0], b.shape[2]), dtype=out_dtype, device=a.device)
    launcher(left.data_ptr(), b.data_ptr(), out.data_ptr(), offs.data_ptr())
    if left is a and a.dtype != torch.float32:
        remember(launcher, [0, 1, 3], [(out, 2)])
    return out


def _like_grouped(a, b, offs, out_dtype=-1):
    one_device("grouped_mm", a, b, offs)
    _check_grouped(a, b, offs)
    return a.new_empty((a.shape[0], b.shape[2]), dtype=_result(a, out_dtype))


def _keep_mm(ctx, inputs, output):
    ctx.save_for_backward(*inputs[:2])


def _backward_mm(ctx, d):
    a, b = ctx.saved_tensors
    d = d.to(a.dtype)
    return (
        _product(d, b.t()) if ctx.needs_input_grad[0] else None,
        _product(a.t(), d) if ctx.needs_input_grad[1] else None,
        None,
    )


def _product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """A product for a gradient, whose factors may lie in any way."""
    a, b = (m if m.is_contiguous() or m.t().is_contiguous() else m.contiguous() for m in (a, b))
    return differentiable(_multiply, a, b)


def _keep_addmm(ctx, inputs, output):
    ctx.save_for_backward(*inputs[1:3])
    ctx.shape = inputs[0].shape
    # Those that have their default are left out.
    ctx.factors = (*inputs[3:5], 1.0, 1.0)[:2]


def _backward_addmm(ctx, d):
    (a, b), (beta, alpha) = ctx.saved_tensors, ctx.factors
    needs = ctx.needs_input_grad
    return (
        (d * beta).sum_to_size(ctx.shape) if needs[0] else None,
        _product(d, b.t()) * alpha if needs[1] else None,
        _product(a.t(), d) * alpha if needs[2] else None,
        None,
        None,
        None,
    )


def _keep_grouped(ctx, inputs, output):
    ctx.save_for_backward(*inputs[:3])


def _backward_grouped(ctx, d):
    a, b, offs = ctx.saved_tensors
    d = d.to(a.dtype).contiguous()
    d_a = d_b = None
    if ctx.needs_input_grad[0]:
        d_a = differentiable(_multiply_groups, d, b.transpose(1, 2), offs)
        # Rows behind the last group hold anything.
        inside = torch.arange(a.shape[0], device=a.device) < offs[-1]
        d_a = torch.where(inside.unsqueeze(1), d_a, 0.0)
    if ctx.needs_input_grad[1]:
        # Groups along the depth: PyTorch's own.
        d_b = _PYTORCHS_GROUPED(a.t(), d, offs=offs)
    return d_a, d_b, None, None


def _keep_linear(ctx, inputs, output):
    ctx.save_for_backward(*inputs[:2])
    ctx.bias = len(inputs) > 2 and isinstance(inputs[2], Tensor)


def _backward_linear(ctx, d):
    x, weight = ctx.saved_tensors
    matrix, count = _matrix(weight), math.prod(x.shape[:-1])
    rows = d.reshape(count, matrix.shape[0])
    d_x = _product(rows, matrix).view(x.shape) if ctx.needs_input_grad[0] else None
    d_weight = _product(rows.t(), x.reshape(count, x.shape[-1])).view(weight.shape) if ctx.needs_input_grad[1] else None
    if not ctx.bias:
        return d_x, d_weight, None
    return d_x, d_weight, rows.sum(0).view(weight.shape[:-1]) if ctx.needs_input_grad[2] else None, None


_multiply = define(
    "mm", "Tensor input, Tensor mat2, int out_dtype=-1", "Tensor", _mm, _like_mm, Gradient(_keep_mm, _backward_mm)
)
_multiply_add = define(
    "addmm", "Tensor input, Tensor mat1, Tensor mat2, float beta=1.0, float alpha=1.0, int activation=0", "Tensor", _addmm,
    _like_addmm, Gradient(_keep_addmm, _backward_addmm),
)  # fmt: skip
_apply = define(
    "linear", "Tensor input, Tensor weight, int activation=0", "Tensor", _linear, _like_linear,
    Gradient(_keep_linear, _backward_linear),
)  # fmt: skip
_apply_bias = define(
    "linear_bias", "Tensor input, Tensor weight, Tensor bias, int activation=0", "Tensor", _linear_bias, _like_linear_bias,
    Gradient(_keep_linear, _backward_linear),
)  # fmt: skip
_multiply_groups = define(
    "grouped_mm", "Tensor mat_a, Tensor mat_b, Tensor offs, int out_dtype=-1", "Tensor", _grouped_mm, _like_grouped,
    Gradient(_keep_grouped, _backward_grouped),
)  # fmt: skip
_direct_mm, _direct_linear, _direct_bias, _direct_groups = _multiply.direct, _apply.direct, _apply_bias.direct, _multiply_groups.direct


# --- Names that people know -----------------------------------------------------


def mm(
    input: torch.Tensor, mat2: torch.Tensor, *, out_dtype: torch.dtype | None = None, policy: Any = None
) -> torch.Tensor:
    """As ``torch.mm``: the product of two matrices, summed in float32. Each may be
    transposed, and its rows may lie apart.

    >>> a, b = torch.ones(8, 16, dtype=torch.float16), torch.ones(16, 8, dtype=torch.float16)
    >>> float(mm(a, b)[0, 0])
    16.0
    """
    if out_dtype is None and policy is None and not (is_compiling() or unusual()):
        # Types, sizes, and what is a tensor at all, are looked at where a call is planned, once; what is wrong is said below.
        try:
            if not (grad_enabled() and (input.requires_grad or mat2.requires_grad)):
                return _direct_mm(input, mat2)
        except FAILED as error:
            raise_cause(error)
    tensors_only("mm", input=input, mat2=mat2)
    input, mat2 = prepared("mm", input, mat2)
    number = () if out_dtype is None else _number("mm", input, out_dtype)
    if wants_gradient(input, mat2):
        no_policy("mm", policy)
        return _multiply.train(input, mat2, *number)
    return call(_multiply, policy, input, mat2, *number)


def addmm(
    input: torch.Tensor,
    mat1: torch.Tensor,
    mat2: torch.Tensor,
    *,
    beta: float = 1.0,
    alpha: float = 1.0,
    activation: str = "none",
    policy: Any = None,
) -> torch.Tensor:
    """As ``torch.addmm``: ``beta * input + alpha * mat1 @ mat2``, then an activation:
    ``none``, ``relu``, ``gelu`` (by tanh) or ``silu``.

    >>> a, b = torch.ones(8, 16, dtype=torch.float16), torch.ones(16, 8, dtype=torch.float16)
    >>> float(addmm(torch.ones(8, dtype=torch.float16), a, b)[0, 0])
    17.0
    """
    tensors_only("addmm", input=input, mat1=mat1, mat2=mat2)
    input, mat1, mat2 = prepared("addmm", input, mat1, mat2)
    _two("addmm", mat1, mat2)
    _input("addmm", "mat1", mat1)
    number = _activation("addmm", activation)
    try:
        beta, alpha = float(beta), float(alpha)
    except (TypeError, ValueError):
        raise TypeError(f"addmm: beta={beta!r} and alpha={alpha!r} must be numbers") from None
    try:
        fits = torch.broadcast_shapes(input.shape, (mat1.shape[0], mat2.shape[1])) == (mat1.shape[0], mat2.shape[1])
    except RuntimeError:
        fits = False
    if not fits:
        raise ValueError(
            f"addmm: input is {tuple(input.shape)}, which can't be spread over a result of {mat1.shape[0]} x {mat2.shape[1]}"
        )
    if wants_gradient(input, mat1, mat2):
        no_policy("addmm", policy)
        # The gradient of an activation takes what it was given.
        return _ACTIVATE[activation](_multiply_add.train(input, mat1, mat2, beta, alpha))
    return call(_multiply_add, policy, input, mat1, mat2, beta, alpha, number)


def linear(
    input: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    *,
    activation: str = "none",
    policy: Any = None,
) -> torch.Tensor:
    """As ``torch.nn.functional.linear``: ``input @ weight.T + bias``, then an activation:
    ``none``, ``relu``, ``gelu`` (by tanh) or ``silu``, in one kernel.

    >>> x, w = torch.ones(2, 3, 16, dtype=torch.float16), torch.ones(8, 16, dtype=torch.float16)
    >>> linear(x, w, activation="silu").shape
    torch.Size([2, 3, 8])
    """
    what = "linear"
    number = 0 if activation == "none" else _activation(what, activation)
    if policy is None and not (is_compiling() or unusual()):
        # As above.
        try:
            if not (grad_enabled() and (input.requires_grad or weight.requires_grad or bias is not None and bias.requires_grad)):
                if bias is None:
                    return _direct_linear(input, weight, number) if number else _direct_linear(input, weight)
                return _direct_bias(input, weight, bias, number) if number else _direct_bias(input, weight, bias)
        except FAILED as error:
            raise_cause(error)
    tensors_only(what, input=input, weight=weight, bias=input if bias is None else bias)
    input, weight, bias = prepared(what, input, weight, bias)
    operation, given = (_apply, (input, weight)) if bias is None else (_apply_bias, (input, weight, bias))
    if wants_gradient(*given):
        no_policy(what, policy)
        # The gradient of an activation takes what it was given.
        return _ACTIVATE[activation](operation.train(*given))
    return call(operation, policy, *given, *((number,) if number else ()))


def grouped_mm(
    mat_a: torch.Tensor,
    mat_b: torch.Tensor,
    *,
    offs: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    policy: Any = None,
) -> torch.Tensor:
    """As ``torch.nn.functional.grouped_mm``: rows of ``mat_a`` times the matrix of their
    group in ``mat_b`` (groups, in, out). ``offs`` (int32) says where the rows of each
    group end; it is read on the device. Without ``offs``, ``mat_a`` has a matrix for
    each group too. Rows behind the last group hold anything, as PyTorch's do. Where ``mat_a`` has a matrix for each group and
    ``mat_b`` is one, groups are columns of that; it is copied unless it lies column after column. Two matrices have groups along
    their depth, and a product for each: that one is PyTorch's own.

    >>> a, b = torch.ones(6, 16, dtype=torch.bfloat16), torch.ones(2, 16, 8, dtype=torch.bfloat16)
    >>> grouped_mm(a, b, offs=torch.tensor([2, 6], dtype=torch.int32)).shape
    torch.Size([6, 8])
    """
    what = "grouped_mm"
    if offs is not None and bias is None and out_dtype is None and policy is None and not (is_compiling() or unusual()):
        # As above.
        try:
            if mat_a.dim() == 2 and mat_b.dim() == 3 and not (grad_enabled() and (mat_a.requires_grad or mat_b.requires_grad)):
                return _direct_groups(mat_a, mat_b, offs)
        except FAILED as error:
            raise_cause(error)
    tensors_only(what, mat_a=mat_a, mat_b=mat_b, offs=mat_a if offs is None else offs)
    if bias is not None:
        raise UnsupportedError(f"{what}: bias is not supported; add it to the result")
    mat_a, mat_b = prepared(what, mat_a, mat_b)
    number = () if out_dtype is None else _number(what, mat_a, out_dtype)
    axes = mat_a.dim(), mat_b.dim()
    if axes == (2, 3) and offs is not None:
        return _groups(mat_a, mat_b, offs, number, policy)
    if axes == (3, 3):
        return _grouped_batches(mat_a, mat_b, offs, number, policy)
    if offs is None:
        raise ValueError(f"{what}: say with offs (int32) where the rows of each group end")
    if axes == (3, 2):
        # Columns of a group are rows of the product the other way round.
        return _groups(mat_b.t().contiguous(), mat_a.transpose(1, 2), offs, number, policy).t()
    if axes == (2, 2):
        return _grouped_depths(mat_a, mat_b, offs, out_dtype, policy)
    return _groups(mat_a, mat_b, offs, number, policy)


def _groups(mat_a, mat_b, offs, number, policy):
    if wants_gradient(mat_a, mat_b):
        no_policy("grouped_mm", policy)
        return _multiply_groups.train(mat_a, mat_b, offs, *number)
    return call(_multiply_groups, policy, mat_a, mat_b, offs, *number)


def _grouped_depths(mat_a, mat_b, offs, out_dtype, policy):
    """Groups along the depth: PyTorch's own, as in the gradient of the matrices."""
    what = "grouped_mm"
    if policy is not None:
        raise UnsupportedError(f"{what}: two matrices have groups along the depth, and no policy: that product is PyTorch's own; leave it out")
    if mat_a.shape[1] != mat_b.shape[0]:
        raise ValueError(f"{what}: {tuple(mat_a.shape)} times {tuple(mat_b.shape)}: the depths {mat_a.shape[1]} and {mat_b.shape[0]} differ")
    _input(what, "mat_a", mat_a)
    if mat_b.dtype != mat_a.dtype:
        raise ValueError(f"{what}: mat_a is {mat_a.dtype} and mat_b is {mat_b.dtype}; convert one with `.to(..)`")
    if offs.dtype != torch.int32 or offs.dim() != 1:
        raise ValueError(f"{what}: offs is {offs.dtype} of {tuple(offs.shape)}; int32 with one number for each group is wanted")
    one_device(what, mat_a, mat_b, offs)
    return _PYTORCHS_GROUPED(mat_a, mat_b, offs=offs, out_dtype=out_dtype)


def _grouped_batches(mat_a, mat_b, offs, number, policy):
    """Where mat_a has a matrix for each group too."""
    what = "grouped_mm"
    groups, rows, depth = mat_a.shape
    if offs is not None:
        raise ValueError(f"{what}: mat_a has a matrix for each group, so there are no offs; leave them out")
    if groups != mat_b.shape[0]:
        raise ValueError(f"{what}: {groups} matrices in mat_a and {mat_b.shape[0]} in mat_b")
    offs = torch.arange(1, groups + 1, dtype=torch.int32, device=mat_a.device) * rows
    out = _groups(mat_a.reshape(groups * rows, depth), mat_b, offs, number, policy)
    return out.view(groups, rows, mat_b.shape[2])
