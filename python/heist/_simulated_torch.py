"""PyTorch while the GPU is simulated: "cuda" means the CPU, and what ``empty`` made counts as
not written until something writes it."""

from __future__ import annotations

import contextlib
import functools
import importlib
import re
import sys
import weakref
from typing import Any, Iterator
from unittest import mock

import torch
from torch._ops import HigherOrderOperator
from torch.overrides import TorchFunctionMode
from torch.utils._device import DeviceContext
from torch.utils._python_dispatch import TorchDispatchMode


def _moved(value: Any) -> Any:
    if isinstance(value, torch.device):
        return torch.device("cpu") if value.type == "cuda" else value
    if isinstance(value, str) and (value == "cuda" or value.startswith("cuda:")):
        return "cpu"
    if isinstance(value, (tuple, list)) and type(value) in (tuple, list):
        return type(value)(_moved(part) for part in value)
    return value


# Of an H200, which is large enough for what asks how much there is.
_MEMORY, _L2 = 141 << 30, 50 << 20

# What a tensor says of where it is. Wrappers of kernels insist on a GPU, or take another way without one.
_PLACES = {
    torch.Tensor.device.__get__: torch.device("cuda", 0),
    torch.Tensor.is_cuda.__get__: True,
    torch.Tensor.is_cpu.__get__: False,
    torch.Tensor.get_device: 0,
}


def _asked_inside() -> bool:
    """Whether PyTorch itself or Heist asks where a tensor is: they are to know the truth."""
    frame = sys._getframe(2)
    # Another mode, such as that of a default device, hands the question on.
    while frame.f_code.co_name == "__torch_function__" and frame.f_back is not None:
        frame = frame.f_back
    name = frame.f_globals.get("__name__", "")
    return name.partition(".")[0] in ("torch", "heist")


class _CudaIsCpu(TorchFunctionMode):
    """Tensors that are to be on a GPU are on the CPU, and say that they are on a GPU."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _PLACES:
            place = func(*args)
            is_cpu = args[0].device.type == "cpu"
            return _PLACES[func] if is_cpu and not _asked_inside() else place
        if func is torch.device:
            return func(*args, **(kwargs or {}))
        kwargs = {name: _moved(value) for name, value in (kwargs or {}).items()}
        if func is torch.Tensor.cuda:
            return args[0]
        if kwargs.get("pin_memory"):
            kwargs["pin_memory"] = False
        return func(*(_moved(value) for value in args), **kwargs)


# Operators of PyTorch and Heist, which work on the host's memory as they are.
_OURS = ("aten", "prim", "prims", "heist")


def _kernel_in_python(func: Any) -> Any:
    """Where an operator of somebody else has its code in Python: for a GPU if there is such code, else for all devices."""
    if func.namespace in _OURS:
        return None
    # Those in C++ have a signature where this says that there is none.
    keys = re.findall(r"^(\w+)(?:\[alias\])?: .* :: \(none\)", torch._C._dispatch_dump(func.name()), re.MULTILINE)
    if "CUDA" in keys:
        return torch._C.DispatchKeySet(torch._C.DispatchKey.CUDA)
    if "CPU" in keys or "CompositeExplicitAutograd" in keys:
        return torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)
    return None


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

    # Operators of operators, such as the one that `torch.library.wrap_triton` makes of a kernel, come here too.
    supports_higher_order_operators = True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        compiles = hasattr(sys.modules.get("torch._dynamo"), "disable")
        follow = _not_traced() if compiles else _Unwritten._follow
        return follow(self, func, args, kwargs or {})

    def _follow(self, func: Any, args: Any, kwargs: Any) -> Any:
        result = self._call(func, args, kwargs)
        if isinstance(func, HigherOrderOperator):
            # It has no schema. A kernel's writes are noted where it is launched.
            self._written(result)
            return result
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

    def _call(self, func: Any, args: Any, kwargs: Any) -> Any:
        keys = None if isinstance(func, HigherOrderOperator) else _kernel_in_python(func)
        if keys is None:
            return func(*args, **kwargs)
        # Modes are off while one of them runs an operator, and this one's code is a program like any other.
        with self, _CudaIsCpu():
            return func.redispatch(keys, *args, **kwargs)

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


def _empty_strided(size: Any, stride: Any, dtype: torch.dtype) -> torch.Tensor:
    return torch.empty_strided(tuple(size), tuple(stride), dtype=dtype)


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
        # Long: what repeats a launch for a while (`triton.testing.do_bench`) repeats it as few times as it can.
        return 1e4


class _Stream(_Event):
    """A stream of such a device."""

    cuda_stream = 0

    def wait_stream(self, _: Any) -> None:
        pass

    wait_event = record_event = wait_stream


class _Device:
    """``torch.cuda.device(0)`` of the only GPU that there is."""

    def __init__(self, device: Any = None) -> None:
        index = getattr(device, "index", device)
        self.idx = index if isinstance(index, int) else 0
        self.prev_idx = 0

    def __enter__(self) -> "_Device":
        return self

    def __exit__(self, *_: Any) -> None:
        pass


def _as_asked(outside: Any, inside: Any) -> Any:
    """One answer for programs, and one for PyTorch's own functions."""
    return lambda *_, **__: inside if _asked_inside() else outside


class _IsGenerator(type(torch.Generator)):  # type: ignore[misc]
    def __instancecheck__(cls, value: Any) -> bool:
        return isinstance(value, torch._C.Generator)


class _Generator(torch.Generator, metaclass=_IsGenerator):
    """Random numbers "of a GPU" come from the CPU."""

    def __new__(cls, device: Any = "cpu") -> Any:
        return torch._C.Generator(_moved(device))


def _moving(function: Any) -> Any:
    """A function of PyTorch that asks no mode, told the CPU where it is told a GPU."""

    @functools.wraps(function)
    def moved(*args: Any, **kwargs: Any) -> Any:
        return function(*(_moved(value) for value in args), **{name: _moved(value) for name, value in kwargs.items()})

    return moved


def _on_the_cpu(function: Any) -> Any:
    """The CPU's function for a GPU's, without the device that it takes last."""

    def on_the_cpu(*args: Any, **_: Any) -> Any:
        return function(*(value for value in args if isinstance(value, torch.Tensor)))

    return on_the_cpu


def _autocast(initialise: Any) -> Any:
    """Types of a GPU's autocast, for operations of the CPU."""

    def autocast(self: Any, device_type: str, dtype: Any = None, **kwargs: Any) -> None:
        if dtype is None and _moved(device_type) != device_type:
            dtype = torch.float16
        initialise(self, _moved(device_type), dtype=dtype, **kwargs)

    return autocast


def _with_mode(function: Any) -> Any:
    """A function that runs code of programs, and that a mode has called: while it does, the mode is off."""

    @functools.wraps(function)
    def with_mode(*args: Any, **kwargs: Any) -> Any:
        with _CudaIsCpu():
            return function(*args, **kwargs)

    return with_mode


@functools.cache
def _not_traced() -> Any:
    """What follows an operation, where ``torch.compile`` may be at work: it must not compile that."""
    return torch._dynamo.disable(_Unwritten._follow)


class _Patches:
    """What is put in place of PyTorch's functions."""

    # Those of all sessions that this is inside of.
    _all: list[Any] = []

    def __init__(self, stack: contextlib.ExitStack) -> None:
        self._stack = stack
        stack.callback(self._all.__delitem__, slice(len(self._all), None))

    def put(self, owner: Any, name: str, instead: Any, **how: Any) -> None:
        patch = mock.patch.object(owner, name, instead, **how)
        self._stack.enter_context(patch)
        self._all.append(patch)


def import_dynamo() -> None:
    """Dynamo keeps functions of PyTorch in tables when it is imported, for the rest of the process: PyTorch is itself
    meanwhile."""
    if "torch._dynamo" in sys.modules:
        return
    patches = list(_Patches._all)
    for patch in reversed(patches):
        patch.__exit__(None, None, None)
    try:
        importlib.import_module("torch._dynamo")
    finally:
        for patch in patches:
            patch.__enter__()


def _compile_nothing(stack: contextlib.ExitStack, patches: _Patches) -> None:
    """What ``torch.compile`` has made runs as it is written: PyTorch compiles nothing under a mode, and with
    ``fullgraph=True`` takes that for an error. Dynamo is not imported for this."""
    compile_function = torch.compile

    def eager() -> None:
        nonlocal eager
        stack.enter_context(torch.compiler.set_stance("force_eager"))
        eager = lambda: None  # noqa: E731

    @functools.wraps(compile_function)
    def compile_eagerly(*args: Any, **kwargs: Any) -> Any:
        import_dynamo()
        eager()
        return compile_function(*args, **kwargs)

    if "torch._dynamo" in sys.modules:
        eager()
    patches.put(torch, "compile", compile_eagerly)


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
        shared_memory_per_block=48 * 1024,
        shared_memory_per_block_optin=gpu.shared,
        shared_memory_per_multiprocessor=gpu.shared + 1024,
        regs_per_multiprocessor=gpu.registers,
        max_threads_per_block=1024,
        max_threads_per_multi_processor=2048,
        warp_size=32,
        total_memory=_MEMORY,
        L2_cache_size=_L2,
        is_integrated=False,
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
        "seed": None,
        "seed_all": None,
        "is_initialized": True,
        "is_bf16_supported": True,
        "is_current_stream_capturing": False,
        "mem_get_info": (_MEMORY, _MEMORY),
        "memory_allocated": 0,
        "max_memory_allocated": 0,
        "memory_reserved": 0,
        "max_memory_reserved": 0,
        "reset_peak_memory_stats": None,
    }
    with contextlib.ExitStack() as stack:
        patches = _Patches(stack)
        for name, answer in answers.items():
            patches.put(torch.cuda, name, lambda *_, answer=answer, **__: answer)
        accelerator = {
            "is_available": (True, False),
            "current_accelerator": (torch.device("cuda"), None),
            "device_count": (1, 0),
            "current_device_index": (0, 0),
            "current_stream": (_Stream(), None),
            "synchronize": (None, None),
            "empty_cache": (None, None),
        }
        for name, (outside, inside) in accelerator.items():
            if hasattr(torch.accelerator, name):
                patches.put(torch.accelerator, name, _as_asked(outside, inside))
        patches.put(torch.cuda, "Event", _Event)
        patches.put(torch.cuda, "Stream", _Stream)
        patches.put(torch.cuda, "stream", lambda *_: contextlib.nullcontext())
        for name in ("device", "_DeviceGuard"):
            patches.put(torch.cuda, name, _Device)
        # A build of PyTorch without CUDA has none of these. Code of Inductor uses them.
        for owner, name, instead in (
            (torch._C, "_cuda_getCurrentRawStream", lambda *_: 0),
            (torch._C._dynamo.guards, "_empty_strided_cuda", _empty_strided),
        ):
            patches.put(owner, name, instead, create=True)
        for name in ("get_rng_state", "set_rng_state"):
            patches.put(torch.cuda, name, _on_the_cpu(getattr(torch, name)))
        asks = torch.is_autocast_enabled
        patches.put(torch, "is_autocast_enabled", lambda kind="cuda": asks(_moved(kind)))
        for name in ("get_autocast_dtype", "set_autocast_enabled", "set_autocast_dtype"):
            patches.put(torch, name, _moving(getattr(torch, name)))
        patches.put(torch, "Generator", _Generator)
        for module in (torch.autograd, torch.autograd.graph):
            backward = _with_mode(module._engine_run_backward)
            patches.put(module, "_engine_run_backward", backward)
        patches.put(DeviceContext, "__init__", _moving(DeviceContext.__init__))
        patches.put(torch.autocast, "__init__", _autocast(torch.autocast.__init__))
        _compile_nothing(stack, patches)
        stack.enter_context(_CudaIsCpu())
        stack.enter_context(_Unwritten(session))
        yield
