"""PyTorch while the GPU is simulated: "cuda" means the CPU, and what ``empty`` made counts as
not written until something writes it."""

from __future__ import annotations

import contextlib
import functools
import sys
import weakref
from typing import Any, Iterator
from unittest import mock

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode


def _moved(value: Any) -> Any:
    if isinstance(value, torch.device):
        return torch.device("cpu") if value.type == "cuda" else value
    if isinstance(value, str) and (value == "cuda" or value.startswith("cuda:")):
        return "cpu"
    if isinstance(value, (tuple, list)) and type(value) in (tuple, list):
        return type(value)(_moved(part) for part in value)
    return value


class _CudaIsCpu(TorchFunctionMode):
    """Tensors that are to be on a GPU are on the CPU."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = {name: _moved(value) for name, value in (kwargs or {}).items()}
        if func is torch.Tensor.cuda:
            return args[0]
        if kwargs.get("pin_memory"):
            kwargs["pin_memory"] = False
        return func(*(_moved(value) for value in args), **kwargs)


_EMPTY = {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "empty_permuted"}


class _Unwritten(TorchDispatchMode):
    """Notes what ``empty`` made, until an operation writes it."""

    def __init__(self, session: Any) -> None:
        super().__init__()
        self.session = session
        self.alive: dict[int, Any] = {}

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # PyTorch would import Dynamo with the first operation, only to keep it away from the method
        # below: seconds, in a process that compiles nothing.
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        compiles = hasattr(sys.modules.get("torch._dynamo"), "disable")
        follow = _not_traced() if compiles else _Unwritten._follow
        return follow(self, func, args, kwargs or {})

    def _follow(self, func: Any, args: Any, kwargs: Any) -> Any:
        result = func(*args, **kwargs)
        name = func._schema.name.rpartition("::")[2]
        if name in _EMPTY:
            self._note(result)
            return result
        schema = func._schema
        for at, argument in enumerate(schema.arguments):
            if argument.alias_info is not None and argument.alias_info.is_write:
                self._written(args[at] if at < len(args) else kwargs.get(argument.name))
        results = result if isinstance(result, (tuple, list)) else (result,)
        for value, told in zip(results, schema.returns):
            if told.alias_info is None:
                self._written(value)
        return result

    def _note(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        host, size = storage.data_ptr(), storage.nbytes()
        if size:
            self.session.unwritten[host] = bytes(-(-size // 8))
            self.alive[host] = weakref.finalize(tensor, self.session.unwritten.pop, host, None)

    def _written(self, value: Any) -> None:
        if isinstance(value, torch.Tensor):
            if value.device.type == "cpu" and value.layout == torch.strided:
                self.session.unwritten.pop(value.untyped_storage().data_ptr(), None)
        elif isinstance(value, (tuple, list)):
            for part in value:
                self._written(part)


class _Event:
    """An event of a device that does everything at once."""

    cuda_event = 1

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def record(self, *_: Any) -> None:
        pass

    def synchronize(self) -> None:
        pass

    def query(self) -> bool:
        return True

    def elapsed_time(self, _: Any) -> float:
        return 1e-3


class _Stream(_Event):
    """A stream of such a device."""

    cuda_stream = 0

    def wait_stream(self, _: Any) -> None:
        pass

    wait_event = record_event = wait_stream


@functools.cache
def _not_traced() -> Any:
    """What follows an operation, where ``torch.compile`` may be at work: it must not compile that."""
    return torch._dynamo.disable(_Unwritten._follow)


@contextlib.contextmanager
def cuda_is_simulated(session: Any) -> Iterator[None]:
    """PyTorch as if it had the simulated GPU."""
    from types import SimpleNamespace

    gpu = session.gpu
    major, minor = divmod(gpu.capability, 10)
    properties = SimpleNamespace(
        name=gpu.device,
        major=major,
        minor=minor,
        multi_processor_count=gpu.sms,
        shared_memory_per_block_optin=gpu.shared,
        regs_per_multiprocessor=gpu.registers,
        warp_size=32,
    )
    answers = {
        "is_available": True,
        "device_count": 1,
        "current_device": 0,
        "get_device_capability": (major, minor),
        "get_device_properties": properties,
        "get_device_name": gpu.device,
        "synchronize": None,
        "empty_cache": None,
        "set_device": None,
        "init": None,
        "current_stream": _Stream(),
        "default_stream": _Stream(),
        "manual_seed": None,
        "manual_seed_all": None,
    }
    with contextlib.ExitStack() as stack:
        for name, answer in answers.items():
            stack.enter_context(mock.patch.object(torch.cuda, name, lambda *_, answer=answer, **__: answer))
        stack.enter_context(mock.patch.object(torch.cuda, "Event", _Event))
        stack.enter_context(mock.patch.object(torch.cuda, "Stream", _Stream))
        for name in ("device", "stream"):
            stack.enter_context(mock.patch.object(torch.cuda, name, lambda *_: contextlib.nullcontext()))
        stack.enter_context(_CudaIsCpu())
        stack.enter_context(_Unwritten(session))
        yield
