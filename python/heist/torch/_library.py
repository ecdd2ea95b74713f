"""The operations of the namespace ``heist``, as PyTorch calls them.

An operation has a body in Python, which checks, plans, launches and remembers. A call
that is like one before never comes to it: PyTorch calls the compiled part, which has
what was remembered (`python/src/dispatch.rs`). What the compiled part can't do it asks
``heist::_NAME`` for, which is the body again.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Callable, NamedTuple

import torch

from .. import _native
from ._device import UnsupportedError, wants_gradient
from ._modes import no_transform

#: The namespace of the operations: ``torch.ops.heist``.
LIBRARY = torch.library.Library("heist", "DEF")

#: Types as PyTorch numbers them.
CODES = {torch.float16: 5, torch.float32: 6, torch.bfloat16: 15}

#: Whether Dynamo traces, which knows :attr:`Operation.plain` alone.
is_compiling = torch.compiler.is_dynamo_compiling

_defined: list[tuple[str, str, Callable[..., Any]]] = []
_refused = threading.local()


class Operation(NamedTuple):
    """The forms of an operation."""

    #: As most call it.
    plain: Any
    #: The same without PyTorch's frame of Python around it, which takes a third of a microsecond; a compiler does not know it.
    direct: Any
    #: With a policy.
    policy: Any
    #: For inputs that want a gradient; None where there is no backward.
    train: Any


class Gradient(NamedTuple):
    """How the gradients of an operation are had, as ``torch.library.register_autograd``
    takes it."""

    keep: Callable[..., Any]
    backward: Callable[..., Any]
    #: An argument of the training form, the last one, which the backward alone looks at.
    switch: str = ""


def define(
    name: str,
    arguments: str,
    results: str,
    body: Callable[..., Any],
    fake: Callable[..., Any],
    gradient: Gradient | None = None,
) -> Operation:
    """Defines ``heist::NAME``; ``heist::NAME_policy``, which takes a policy too; and with a
    gradient ``heist::NAME_train``: PyTorch's part in that costs every call. PyTorch
    leaves out arguments that have their default, so body and fake have the same defaults;
    each number that a caller leaves out saves a third of a microsecond."""
    LIBRARY.define(f"{name}({arguments}) -> {results}")
    LIBRARY.define(f"_{name}({arguments}) -> {results}")
    LIBRARY.define(f"{name}_policy({arguments}, *, str policy) -> {results}")
    made = results.count("Tensor")
    for key in ("CPU", "CUDA"):
        LIBRARY.impl(f"_{name}", _asked(body, made), key)
        LIBRARY.impl(f"{name}_policy", body, key)
    torch.library.register_fake(f"heist::{name}", fake, lib=LIBRARY)
    torch.library.register_fake(f"heist::{name}_policy", lambda *given, policy: fake(*given), lib=LIBRARY)
    kinds = "".join("T" if argument.startswith("Tensor") else "." for argument in arguments.split(", "))
    _defined.append((name, kinds, body))
    train = None
    if gradient is not None:
        more = f", {gradient.switch}" if gradient.switch else ""
        LIBRARY.define(f"{name}_train({arguments}{more}) -> {results}")
        count = len(kinds)
        for key in ("CPU", "CUDA"):
            LIBRARY.impl(f"{name}_train", lambda *given: body(*given[:count]), key)
        torch.library.register_fake(f"heist::{name}_train", lambda *given: fake(*given[:count]), lib=LIBRARY)
        torch.library.register_autograd(f"heist::{name}_train", gradient.backward, setup_context=gradient.keep, lib=LIBRARY)
        train = _train(name, getattr(torch.ops.heist, f"{name}_train").default)
    plain = getattr(torch.ops.heist, name).default
    return Operation(plain, getattr(plain, "_op", plain), getattr(torch.ops.heist, f"{name}_policy").default, train)


def _train(name: str, operation: Any) -> Callable[..., Any]:
    def train(*arguments: Any) -> Any:
        if not torch.compiler.is_compiling():
            no_transform(name)
        try:
            return operation(*arguments)
        except NotImplementedError as error:
            raise _of_other_tensors(name, error, arguments) from None

    return train


def install() -> str:
    """Has PyTorch call the compiled part for all operations, and says ``compiled``.
    Where PyTorch is too old for that, or ``HEIST_DISPATCH=python`` is set, it calls the
    bodies, which takes a few microseconds more."""
    folder = Path(torch.__file__).parent / "lib"
    if os.environ.get("HEIST_DISPATCH") != "python":
        try:
            _native.dispatch(
                str(folder / "libtorch_cpu.so"), str(folder / "libtorch_cuda.so"), [(name, kinds) for name, kinds, _ in _defined]
            )
        except _native.HeistError:
            pass
        else:
            # Nothing of a GPU survives a fork; the body says so.
            os.register_at_fork(after_in_child=_native.forget)
            return "compiled"
    for name, _, body in _defined:
        for key in ("CPU", "CUDA"):
            LIBRARY.impl(name, body, key)
    return "python"


def _asked(body: Callable[..., Any], count: int) -> Callable[..., Any]:
    """The body, when the compiled part asks for it: no exception of Python gets through
    the C interface, so it is kept here."""

    def asked(*arguments: Any) -> Any:
        try:
            return body(*arguments)
        except BaseException as error:
            _refused.error = error
            _native.refuse(str(error) or type(error).__name__)
            nothing = torch.empty(0)
            return nothing if count == 1 else (nothing,) * count

    return asked


def cause(error: Exception) -> BaseException:
    """The exception of a body that PyTorch's own stands for."""
    kept, _refused.error = getattr(_refused, "error", None), None
    return kept if kept is not None and str(kept) in str(error) else error


#: What comes of an operation that is called with anything: what it refuses, and what is no tensor.
FAILED = (RuntimeError, TypeError, AttributeError)


def raise_cause(error: Exception) -> None:
    """Raises the exception of a body that PyTorch's own stands for, or nothing: then the arguments are to be looked at."""
    kept = cause(error)
    if kept is not error:
        raise kept from None


def call(operation: Operation, policy: Any, *arguments: Any) -> Any:
    """Calls an operation, or the one for a policy, and raises what its body raised."""
    try:
        if policy is None:
            return (operation.plain if is_compiling() else operation.direct)(*arguments)
        return operation.policy(*arguments, policy=policy_text(policy))
    except NotImplementedError as error:
        raise _of_other_tensors(operation.plain.name(), error, arguments) from None
    except RuntimeError as error:
        raise cause(error) from None


def _of_other_tensors(name: str, error: Exception, arguments: Any) -> Exception:
    """What to say where PyTorch has no operation for tensors of this kind."""
    for given in arguments:
        if not isinstance(given, torch.Tensor):
            continue
        if given.is_nested:
            kind, remedy = "a nested tensor", "give its `.values()`, and for attention `.offsets()` to flash_attn_varlen_func"
        elif hasattr(given, "to_local"):
            kind, remedy = "a DTensor", "give each process its part, `.to_local()`"
        elif given.is_quantized:
            kind, remedy = "a quantized tensor", "`.dequantize()` it"
        elif given.layout is not torch.strided:
            kind, remedy = f"a tensor of {given.layout}", "give `.to_dense()`"
        else:
            continue
        return UnsupportedError(f"{name.removeprefix('heist::')}: {kind} is not supported; dense tensors of one device are: {remedy}")
    return error


def differentiable(operation: Operation, *arguments: Any) -> Any:
    """Calls an operation in a backward, which may be differentiated itself."""
    if wants_gradient(*(given for given in arguments if isinstance(given, torch.Tensor))):
        return operation.train(*arguments)
    return call(operation, None, *arguments)


class _Once(torch.autograd.Function):
    """Results as they are, and no way back to what they were made of."""

    @staticmethod
    def forward(ctx: Any, what: str, count: int, *tensors: Any) -> Any:
        ctx.what = what
        return tuple(None if one is None else one.view_as(one) for one in tensors[:count])

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        raise UnsupportedError(f"{ctx.what}: its gradients can't be differentiated again; use PyTorch's own function for second derivatives")


def once(what: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Makes of a backward one whose results can't be differentiated again: whoever tries is told so, where something would be
    missing without a word."""

    def mark(backward: Callable[..., Any]) -> Callable[..., Any]:
        def marked(ctx: Any, *gradients: Any) -> Any:
            if not torch.is_grad_enabled():
                return backward(ctx, *gradients)
            # What was saved may be had once.
            saved = ctx.saved_tensors
            with torch.no_grad():
                own = SimpleNamespace(saved_tensors=saved, how=ctx.how, needs_input_grad=ctx.needs_input_grad)
                results = backward(own, *gradients)
            return _Once.apply(what, len(results), *results, *gradients, *saved)

        return marked

    return mark


def policy_text(policy: Any) -> str:
    """A policy as text."""
    return policy if isinstance(policy, str) else str(policy)


def remember(launcher: Any, inputs: list[int | None], outputs: list[tuple[torch.Tensor, int]], constants: Any = ()) -> None:
    """Remembers the call that is being done, so that the compiled part does the next one
    like it: the operand of the plan that each tensor is, and the results with theirs."""
    results = [(list(t.shape), list(t.stride()), CODES[t.dtype], slot) for t, slot in outputs]
    _native.remember(launcher.plan, launcher.index, inputs, results, list(constants))
