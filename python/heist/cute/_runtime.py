"""The CUDA functions that the DSL's host code calls.

The host half of a ``@cute.jit`` function is machine code, which the DSL links with a library
of its own. Here it is linked with functions that keep the kernels' PTX and hand each launch to
the session that is active when it is made.
"""

from __future__ import annotations

import ctypes
import re
import sys
from typing import Any, Callable

from .. import _native
from . import _memory

_OK = 0
_LAUNCH_FAILED = 719
_NOT_SUPPORTED = 801

# What a program may ask of a device, by CUDA's numbers.
_SHARED_OPT_IN, _SMS, _MAJOR, _MINOR = 97, 16, 75, 76

# The library's other functions. They are refused by name.
_REFUSED = """
    _cuLibraryGetGlobal _cuLibraryGetManaged _cuLibraryGetModule _cuLibraryGetUnifiedFunction _cuLibraryLoadFromFile
    _cudaEventCreate _cudaEventDestroy _cudaEventElapsedTime _cudaEventRecord _cudaFree _cudaFreeAsync _cudaFreeHost
    _cudaGetDeviceProperties _cudaGraphDestroy _cudaGraphExecDestroy _cudaGraphInstantiate _cudaGraphLaunch
    _cudaLaunchKernel _cudaLibraryGetGlobal _cudaLibraryGetManaged _cudaLibraryGetUnifiedFunction
    _cudaLibraryLoadFromFile _cudaMalloc _cudaMallocAsync _cudaMallocHost _cudaMallocManaged _cudaMemcpy
    _cudaMemcpyAsync _cudaMemset _cudaMemsetAsync _cudaOccupancyMaxActiveBlocksPerMultiprocessor
    _cudaStreamAddCallback _cudaStreamBeginCapture _cudaStreamCreate _cudaStreamDestroy _cudaStreamEndCapture
    _cudaStreamWaitEvent
""".split()


class _LaunchConfig(ctypes.Structure):
    """``cudaLaunchConfig_t``."""

    _fields_ = [
        ("grid", ctypes.c_uint32 * 3),
        ("block", ctypes.c_uint32 * 3),
        ("shared", ctypes.c_size_t),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p),
        ("count", ctypes.c_uint32),
    ]


class _LaunchAttribute(ctypes.Structure):
    """``cudaLaunchAttribute``."""

    _fields_ = [("id", ctypes.c_int32), ("pad", ctypes.c_int32), ("value", ctypes.c_uint32 * 16)]


_COOPERATIVE, _CLUSTER = 2, 4

class Kernel:
    """A kernel of a compiled function."""

    def __init__(self, module: Any, ptx: str, name: str) -> None:
        self.module = module
        self.name = name
        #: Bytes of each parameter, and whether it is a tensor map, of which alignment tells.
        self.parameters = [
            (size or 0, size == 128 and re.search(rf"\.align (64|128) \.b8 {re.escape(parameter)}\[", ptx) is not None)
            for parameter, _, size in module.parameters(name)
        ]
        found = re.search(r"kernel_cutlass_(\w+?)_(?:tensor|Tensor|Tiled|Copy|builtin|__main__|\d)", name)
        #: The name of the Python function, as far as it can be read from the kernel's.
        self.title = found[1] if found else name


class Launch:
    """One launch that the host code makes."""

    def __init__(self, kernel: Kernel, config: _LaunchConfig, arguments: Any) -> None:
        self.kernel = kernel
        self.grid = tuple(config.grid)
        self.block = tuple(config.block)
        self.shared = config.shared
        self.cluster: tuple[int, ...] | None = None
        self.cooperative = False
        attributes = ctypes.cast(config.attributes, ctypes.POINTER(_LaunchAttribute))
        for at in range(config.count):
            one = attributes[at]
            if one.id == _CLUSTER:
                self.cluster = tuple(one.value[:3])
            elif one.id == _COOPERATIVE:
                self.cooperative = bool(one.value[0])
        #: Of each parameter: its bytes, and whether they are a tensor map.
        self.arguments = [
            (ctypes.string_at(arguments[at], size), is_map) for at, (size, is_map) in enumerate(kernel.parameters)
        ]


def link(engine: Any, ptx: str, session: Callable[[], Any]) -> None:
    """Links the host code of one compiled function with the functions of this module.
    ``session`` finds the session that a launch belongs to."""
    functions = _Functions(ptx, session)
    engine.heist_functions = functions  # They live as long as the code that calls them.
    for name, function in functions.table.items():
        engine.raw_register_runtime(name, ctypes.cast(function, ctypes.c_void_p))


class _Functions:
    def __init__(self, ptx: str, session: Callable[[], Any]) -> None:
        self._ptx = ptx
        self._session = session
        self._module: Any = None
        self._kernels: list[Kernel] = []
        self._called = {
            "_cudaLibraryLoadData": (self._load, 8),
            "_cuLibraryLoadData": (self._load, 8),
            "_cudaLibraryGetKernel": (self._kernel, 3),
            "_cuLibraryGetKernel": (self._kernel, 3),
            "_cudaDeviceGetAttribute": (self._attribute, 3),
            "_cuKernelGetAttribute": (self._zero, 4),
            "_cuDeviceGet": (self._zero, 2),
            "_cudaGetDevice": (self._zero, 1),
            "_cudaGetDeviceCount": (self._one, 1),
            "_cudaLaunchKernelEx": (self._launch, 3),
            "_cuTensorMapEncodeTiled": (self._encode, 12),
            "cuda_dialect_init_library_once": (self._load_once, 4),
        }
        for name in (
            "_cudaKernelSetAttributeForDevice", "_cudaFuncSetAttribute", "_cudaSetDevice", "_cudaDeviceSynchronize",
            "_cudaStreamSynchronize", "_cudaLibraryUnload", "_cuLibraryUnload", "cuda_dialect_unload_library_once", "_cudaProfilerStart", "_cudaProfilerStop",
        ):  # fmt: skip
            self._called[name] = (lambda *_: _OK, 4)
        for name in _REFUSED:
            self._called[name] = (lambda *_, name=name: self._refuse(name), 4)
        self.table = {name: self._guarded(*what) for name, what in self._called.items()}

    def _guarded(self, function: Callable[..., int], count: int) -> Any:
        """An exception can't pass through machine code: the session keeps it until that is left."""

        def call(*words: Any) -> int:
            try:
                return function(*(word or 0 for word in words))
            except BaseException as error:  # noqa: BLE001
                self._session().failed = error
                # Some host code ends the process where a function fails: then this is all that is told.
                print(f"heist: {error}", file=sys.stderr, flush=True)
                return _LAUNCH_FAILED

        return ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_void_p] * count)(call)

    def _refuse(self, name: str) -> int:
        self._session().failed = NotImplementedError(
            f"the function's host code calls `{name.lstrip('_')}`, which the simulated GPU does not have"
        )
        return _NOT_SUPPORTED

    def _load(self, library: int, *_: int) -> int:
        self._module = _native.Module(self._ptx, "cute.ptx")
        _write(library, ctypes.c_uint64, 1)
        return _OK

    def _load_once(self, _: int, load: int, get_kernels: int, __: int) -> int:
        """A function of TVM's interface loads its kernels when it is called, not when it is made."""
        if self._module is not None:
            return _OK
        library = ctypes.c_uint64()
        found = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)(load)(ctypes.addressof(library))
        of_device = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_int32)(get_kernels)
        return found or of_device(ctypes.addressof(library), 0)

    def _kernel(self, kernel: int, library: int, name: int) -> int:
        self._kernels.append(Kernel(self._module, self._ptx, ctypes.string_at(name).decode()))
        _write(kernel, ctypes.c_uint64, len(self._kernels))
        return _OK

    def _encode(self, to: int, element: int, rank: int, address: int, *rest: int) -> int:
        """``cuTensorMapEncodeTiled``."""
        dims, strides, box, steps, interleave, swizzle, _, fill = rest
        element, rank, interleave, swizzle, fill = (word & 0xFFFFFFFF for word in (element, rank, interleave, swizzle, fill))

        def numbers(at: int, count: int, ty: Any) -> list[int]:
            return list((ty * count).from_address(at)) if count else []

        every = all(step == 1 for step in numbers(steps, rank, ctypes.c_uint32))
        if not every or interleave or fill or swizzle > 3 or element not in _memory.OF_CUDA:
            raise NotImplementedError(
                f"the host code encodes a tensor map (type {element}, interleave {interleave}, swizzle {swizzle}, fill {fill}) "
                "that is no tiled one with zeros outside: the simulated GPU can't read it"
            )
        sizes, between = numbers(dims, rank, ctypes.c_uint64), numbers(strides, rank - 1, ctypes.c_uint64)
        made = _memory.encode_tiled(element, address, sizes, between, numbers(box, rank, ctypes.c_uint32), swizzle)
        ctypes.memmove(to, made, len(made))
        return _OK

    def _attribute(self, value: int, which: int, device: int) -> int:
        gpu = self._session().gpu
        major, minor = divmod(gpu.capability, 10)
        known = {_SHARED_OPT_IN: gpu.shared, _SMS: gpu.sms, _MAJOR: major, _MINOR: minor}
        if which not in known:
            raise NotImplementedError(f"the host code asks for attribute {which} of the device: there are {sorted(known)}")
        _write(value, ctypes.c_int32, known[which])
        return _OK

    def _zero(self, value: int, *_: int) -> int:
        _write(value, ctypes.c_int32, 0)
        return _OK

    def _one(self, value: int) -> int:
        _write(value, ctypes.c_int32, 1)
        return _OK

    def _launch(self, config: int, kernel: int, arguments: int) -> int:
        words = ctypes.cast(arguments, ctypes.POINTER(ctypes.c_void_p))
        self._session().launch(Launch(self._kernels[kernel - 1], _LaunchConfig.from_address(config), words))
        return _OK


def _write(to: int, ty: Any, value: int) -> None:
    ty.from_address(to).value = value
