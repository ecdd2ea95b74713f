"""Functions compiled with ``--enable-tvm-ffi``, which take tensors of PyTorch as they are.

Their host code is the same, with a function of TVM's interface in front. The DSL makes an object file
of both and links that with its own library; here the code that is linked with our functions is called.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
from typing import Any, Callable
from unittest import mock

from . import _memory

# What TVM calls: a handle, the arguments, their number, and where the result goes.
_FUNCTION = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32, ctypes.c_void_p)


def answer(stack: contextlib.ExitStack, run_and_raise: Callable[[Any], Any]) -> None:
    """Lets such functions be called until the stack is left, where TVM's interface is installed."""
    if importlib.util.find_spec("tvm_ffi") is None:
        return
    from cutlass.cutlass_dsl import tvm_ffi_provider as provider

    import tvm_ffi

    base = provider.TVMFFIJitCompiledFunctionBase
    stack.enter_context(mock.patch.object(tvm_ffi, "from_dlpack", _of_gpu(tvm_ffi.from_dlpack)))
    stack.enter_context(mock.patch.object(provider.spec.Tensor, "__init__", _anywhere(provider.spec.Tensor.__init__)))
    stack.enter_context(mock.patch.object(base, "_create_tvm_ffi_function", _of_linked_code))
    stack.enter_context(mock.patch.object(base, "to", lambda self, device=None: self))
    for owner in (provider.TVMFFIJitCompiledFunction, provider.TVMFFIJitCompiledFunctionWithKwargs):
        stack.enter_context(mock.patch.object(owner, "__call__", run_and_raise(_on_gpu(owner.__call__))))


def _anywhere(describe: Any) -> Any:
    """On the simulated device memory is aligned as on a GPU, whatever it is on the host."""

    def describe_without(self: Any, *args: Any, **kwargs: Any) -> None:
        describe(self, *args, **kwargs | {"data_alignment": None})

    return describe_without


def _of_linked_code(self: Any) -> Any:
    import tvm_ffi

    if self.engine is None:
        return None
    # The engine gives out functions that take an array of addresses: of each argument, and of the result.
    packed = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self.engine.raw_lookup("__tvm_ffi_" + self.function_name))

    def call(*words: Any) -> int:
        values = (ctypes.c_uint64 * 4)(*(word or 0 for word in words))
        result = ctypes.c_int32()
        places = [ctypes.addressof(values) + 8 * at for at in range(4)]
        packed((ctypes.c_uint64 * 5)(*places, ctypes.addressof(result)))
        return result.value

    function = _FUNCTION(call)
    address = ctypes.cast(function, ctypes.c_void_p).value
    return tvm_ffi.Function.__from_extern_c__(address, keep_alive_object=(self.engine, function))


def _on_gpu(call: Any) -> Any:
    """The function asks for tensors of a GPU; those of the host are said to be."""

    def call_with(self: Any, *args: Any, **kwargs: Any) -> Any:
        return call(self, *map(_said, args), **{name: _said(value) for name, value in kwargs.items()})

    return call_with


def _said(value: Any) -> Any:
    import tvm_ffi

    if isinstance(value, (tuple, list)):
        return type(value)(map(_said, value))
    return tvm_ffi.from_dlpack(value) if hasattr(value, "__dlpack__") else value


def _of_gpu(from_dlpack: Any) -> Any:
    def said(tensor: Any, **how: Any) -> Any:
        return from_dlpack(_OfGpu(tensor), **how)

    return said


class _OfGpu:
    def __init__(self, tensor: Any) -> None:
        self._tensor = tensor

    def __dlpack__(self, **_: Any) -> Any:
        capsule = self._tensor.__dlpack__()
        _memory.say_cuda(capsule)
        return capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return _memory.CUDA, 0
