"""Devices, their memory and their streams."""

from __future__ import annotations

import logging
import os
import threading
from typing import Any, NamedTuple

import torch
from torch.autograd import forward_ad

from .. import _native

UnsupportedError = _native.UnsupportedError

#: Names of types as the kernels take them.
DTYPES = {torch.float16: "f16", torch.bfloat16: "bf16", torch.float32: "f32"}

#: What a simulated GPU is asked at most, in floating-point operations of one call.
SIMULATED_LIMIT = 4e8

#: The cache of plans, by everything that they depend on.
PLANS: dict[Any, Any] = {}

_ops: dict[int, _native.Ops] = {}
_answers: str | os.PathLike[str] | None = None
_log = logging.getLogger("heist")
_simulated = "sim:h200"
_owner = os.getpid()

# Counters and scratch memory of each stream. What is launched into one stream runs in
# order, so it may share them; two streams never do.
_counters: dict[tuple[int, int], torch.Tensor] = {}
_scratch: dict[tuple[int, int], torch.Tensor] = {}
_COUNTER_BYTES = 4096
# Counters for launches that are captured: of each device what is left of zeros that were made before, and all of these, since graphs
# may have a part of them for as long as the process lives.
_stocks: dict[int, torch.Tensor] = {}
_in_graphs: list[torch.Tensor] = []
_STOCK_BYTES = 1 << 20
# Those that were replaced by larger ones. A thread may still be about to launch with them.
_replaced: list[torch.Tensor] = []

_lock = threading.Lock()

current_stream = getattr(torch._C, "_cuda_getCurrentRawStream", None)
_capturing = getattr(torch._C, "_cuda_isCurrentStreamCapturing", lambda: False)


def simulate(device: str = "h200") -> None:
    """Says which simulated GPU runs operations on CPU tensors: ``h200``, ``b200``,
    ``a100``, ``l4``, ``rtx5090``, ...

    >>> simulate("b200")
    >>> simulate()
    """
    global _simulated
    name = device if device.startswith("sim:") else f"sim:{device}"
    ops = _native.Ops(name, _answers)
    _simulated = name
    _ops[-1] = ops
    # Plans are for the device that they were made for.
    _native.forget()
    PLANS.clear()


class Tuned(NamedTuple):
    """What the tuner had to do with a plan."""

    #: The plan, in words.
    plan: str
    #: The problem as ``heist tune`` takes it, where an answer was looked up.
    problem: str | None
    #: The answer that was taken: tiles and schedule.
    answer: str | None
    #: Why an answer, or the whole file, was not taken, and what to do.
    refusal: str | None


def tuned() -> list[Tuned]:
    """Every plan that was made, and whether it is an answer of ``heist tune``.

    Where there is an answer for an operation's problem on its device, it is taken: tiles and schedule, which change
    how long the operation takes and not what it computes. An operation with a ``policy`` asks for none.

    >>> [plan.problem for plan in tuned() if plan.answer is None]       # doctest: +SKIP
    ['gemm m=4096 n=4096 k=4096 batch=1 dtype=bf16 ...']
    """
    return [Tuned(*told) for ops in list(_ops.values()) for told in ops.plans()]


def answers(file: str | os.PathLike[str] | bool = True) -> None:
    """Says which file of ``heist tune``'s answers operations take: True for the usual one (``$HEIST_TUNED``, or
    ``heist/tuned.jsonl`` in the cache folder), False for none. Operations are planned anew.

    >>> answers(False)
    >>> answers()
    """
    global _answers
    _answers = None if file is True else "" if file is False else file
    _ops.clear()
    _native.forget()
    PLANS.clear()


def empty_cache() -> None:
    """Gives counters and scratch memory of all streams back to torch's allocator.

    Not while a kernel of another stream may still use them: synchronise first.
    """
    _native.forget()
    _counters.clear()
    _scratch.clear()
    _numbers.clear()
    _replaced.clear()


def ops_of(index: int) -> _native.Ops:
    """The operations of a device: a GPU by its number, the simulated one by -1."""
    found = _ops.get(index)
    if found is not None:
        if index >= 0 and os.getpid() != _owner:
            raise RuntimeError(
                "Heist was used on a GPU before this process was forked, and a GPU does not survive a fork: "
                "start processes with torch.multiprocessing's 'spawn' method"
            )
        return found
    if index >= 0:
        torch.cuda.init()
        name = f"gpu:{index}"
    else:
        name = _simulated
    return _ops.setdefault(index, _native.Ops(name, _answers))


def one_device(what: str, *tensors: torch.Tensor) -> torch.device:
    """The device that all tensors are on."""
    first = tensors[0].device
    for tensor in tensors:
        if tensor.device != first:
            raise ValueError(
                f"{what}: tensors are on {first} and on {tensor.device}; move them to one device with `.to(..)`"
            )
    return first


def device_of(what: str, *tensors: torch.Tensor) -> int:
    """The number of the device that all tensors are on; -1 for the CPU's simulated GPU."""
    first = one_device(what, *tensors)
    if first.type == "cpu":
        return -1
    if first.type != "cuda":
        raise UnsupportedError(
            f"{what}: tensors on {first.type} are not supported; CUDA tensors run on their GPU, CPU tensors on a simulated one"
        )
    return first.index


# By how many, type, device and stream: whoever else reads them in that stream comes later.
_numbers: dict[Any, torch.Tensor] = {}
_modes = getattr(torch._C, "_len_torch_dispatch_stack", lambda: 0)


def traced() -> bool:
    """Whether a call is being traced: its tensors and sizes are then none to keep."""
    return torch.compiler.is_compiling() or _modes() > 0


def numbers(count: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """0, 1, 2 and so on: made once for each stream, and not written to. What is traced or captured has its own."""
    if traced() or (device.type == "cuda" and _capturing()):
        return torch.arange(count, dtype=dtype, device=device)
    stream = current_stream(device.index) if device.type == "cuda" and current_stream is not None else 0
    key = (count, dtype, device, stream)
    found = _numbers.get(key)
    if found is None:
        found = _numbers[key] = torch.arange(count, dtype=dtype, device=device)
    return found


def settle(index: int) -> None:
    """Waits for numbers that a plan has made for itself: calls in other streams read them, too."""
    if index >= 0 and not _capturing():
        torch.cuda.current_stream(index).synchronize()


def _fill_stock(device: torch.device) -> None:
    """Zeros for launches that will be captured. What a graph has is never given back, as nobody says when a graph ends:
    256 bytes a launch for most."""
    left = _stocks.get(device.index)
    if left is None or 2 * left.numel() < _STOCK_BYTES:
        _stocks[device.index] = torch.zeros(_STOCK_BYTES, dtype=torch.uint8, device=device)
        _in_graphs.append(_stocks[device.index])
        # Graphs are replayed in other streams.
        torch.cuda.current_stream(device).synchronize()


def _from_stock(device: torch.device, need: int) -> torch.Tensor:
    """Counters that no other launch has. A launch leaves them zero, so a replay need not clear them: that would be a kernel of
    its own before each, 2 us, behind which nothing begins early. Without a stock, before the first call outside of a capture,
    they are cleared all the same."""
    taken = -(-need // 256) * 256
    with _lock:
        left = _stocks.get(device.index)
        if left is not None and left.numel() >= taken:
            _stocks[device.index] = left[taken:]
            return left[:taken]
    return torch.zeros(need, dtype=torch.uint8, device=device)


class Launcher:
    """A plan with the memory it needs, for tensors of one device."""

    __slots__ = ("index", "plan")

    def __init__(self, index: int, plan: _native.Plan) -> None:
        if index < 0 and plan.flops > SIMULATED_LIMIT:
            raise UnsupportedError(
                f"{plan.name}: {plan.flops:.2g} operations would take the simulated GPU too long (at most "
                f"{SIMULATED_LIMIT:.0e}); use smaller tensors, or CUDA tensors"
            )
        if plan.refusal:
            _log.warning("%s: %s", plan.name, plan.refusal)
        self.index = index
        self.plan = plan

    def __call__(self, *addresses: int) -> None:
        if self.index < 0:
            self.plan.launch(addresses, 0, 0, 0)
            return
        stream = current_stream(self.index)
        counters, scratch = self.memory(stream)
        self.plan.launch(
            addresses, 0 if counters is None else counters.data_ptr(), 0 if scratch is None else scratch.data_ptr(), stream
        )

    def memory(self, stream: int) -> tuple[torch.Tensor | None, torch.Tensor | None]:
        """Counters and scratch memory for a launch into a stream."""
        need, room = self.plan.counters, self.plan.scratch
        if not (need or room):
            return None, None
        device = torch.device("cuda", self.index)
        if _capturing():
            # A graph has its own, since it may be replayed beside anything.
            scratch = torch.empty(room, dtype=torch.uint8, device=device) if room else None
            return _from_stock(device, need) if need else None, scratch
        key = (self.index, stream)
        with _lock:
            if need:
                _fill_stock(device)
            counters = _counters.get(key)
            if counters is None or counters.numel() < need:
                if counters is not None:
                    _replaced.append(counters)
                counters = _counters[key] = torch.zeros(max(_COUNTER_BYTES, need), dtype=torch.uint8, device=device)
            scratch = _scratch.get(key)
            if scratch is None or scratch.numel() < room:
                size = max(room, 256)
                if scratch is not None:
                    # At least twice as large: all that were replaced are no larger than the last.
                    _replaced.append(scratch)
                    size = max(size, 2 * scratch.numel())
                scratch = _scratch[key] = torch.empty(size, dtype=torch.uint8, device=device)
            _native.workspace(
                *key, (counters.data_ptr(), counters.numel()), (scratch.data_ptr(), scratch.numel())
            )
        return counters, scratch


def wants_gradient(*tensors: torch.Tensor | None) -> bool:
    """Whether a gradient of one of these may be asked for later."""
    if torch.is_grad_enabled():
        for tensor in tensors:
            if tensor is not None and tensor.requires_grad:
                return True
    return False


def no_gradient(what: str, *tensors: torch.Tensor | None) -> None:
    """Refuses tensors that require a gradient, where there is no backward."""
    no_tangent(what, *tensors)
    if wants_gradient(*tensors):
        raise UnsupportedError(
            f"{what}: there is no backward for it, and an input requires a gradient; call it under `torch.no_grad()` "
            "or with `.detach()`ed tensors"
        )


def no_tangent(what: str, *tensors: torch.Tensor | None) -> None:
    """Refuses tensors with a tangent, which an operation would lose without a word."""
    if forward_ad._current_level < 0:
        return
    for tensor in tensors:
        if tensor is not None and forward_ad.unpack_dual(tensor).tangent is not None:
            raise UnsupportedError(
                f"{what}: an input has a tangent, and there are no gradients in forward mode (`torch.func.jvp`, "
                "`torch.autograd.forward_ad`); use `.backward()` or `torch.autograd.grad`, or PyTorch's own function"
            )


def no_policy(what: str, policy: Any) -> None:
    """Refuses a policy beside a gradient."""
    if policy is not None:
        raise UnsupportedError(
            f"{what}: an input requires a gradient, and with a policy there is none; leave the policy out, or call it "
            "under `torch.no_grad()`"
        )


def tensors_only(what: str, **values: Any) -> None:
    """Refuses values that are not tensors."""
    for name, value in values.items():
        if not isinstance(value, torch.Tensor):
            raise TypeError(f"{what}: {name} must be a torch.Tensor; given: {type(value).__name__}")


def aligned(what: str, **tensors: torch.Tensor) -> None:
    """Refuses tensors that do not begin at a multiple of 16 bytes."""
    for name, tensor in tensors.items():
        if tensor.data_ptr() % 16:
            raise ValueError(
                f"{what}: {name} begins at {tensor.data_ptr():#x}, which is no multiple of 16 bytes, as views that "
                f"start in the middle of a tensor may; pass `{name}.clone()`"
            )


def placed(*tensors: torch.Tensor) -> list[torch.Tensor]:
    """The same, those that do not begin at a multiple of 16 bytes as copies."""
    return [tensor.clone() if tensor.data_ptr() % 16 else tensor for tensor in tensors]
