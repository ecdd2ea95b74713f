"""PTX on a simulated or a real GPU, with arrays as arguments."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from . import _native
from ._inspect import read

# The types of elements by the letters and sizes of the array protocol.
_TYPES = {
    "b1": "u8", "u1": "u8", "u2": "u16", "u4": "u32", "u8": "u64",
    "i1": "s8", "i2": "s16", "i4": "s32", "i8": "s64",
    "f2": "f16", "f4": "f32", "f8": "f64", "V2": "bf16",
}  # fmt: skip

_TORCH_TYPES = {
    "bool": "u8", "uint8": "u8", "uint16": "u16", "uint32": "u32", "uint64": "u64",
    "int8": "s8", "int16": "s16", "int32": "s32", "int64": "s64",
    "float16": "f16", "bfloat16": "bf16", "float32": "f32", "float64": "f64",
}  # fmt: skip


def _three(name: str, value: int | Sequence[int]) -> tuple[int, int, int]:
    numbers = (value,) if isinstance(value, int) else tuple(value)
    if not 1 <= len(numbers) <= 3 or not all(isinstance(n, int) and 0 < n < 2**32 for n in numbers):
        raise ValueError(f"{name} is one to three numbers above zero, such as 8 or (8, 4); given: {value!r}")
    return (*numbers, 1, 1)[:3]


class _Array(NamedTuple):
    """Where an array lies."""

    address: int
    bytes: int
    type: str
    role: str
    #: The GPU; None for the host.
    gpu: int | None
    #: What keeps the memory while it is used.
    held: Any

    def plain(self) -> tuple[int, int, str, str]:
        return self[:4]


def _array(what: str, value: Any) -> _Array | None:
    """Where an array lies; None if it is not an array."""
    if type(value).__module__.split(".")[0] == "torch" and hasattr(value, "data_ptr"):
        if value.device.type not in ("cpu", "cuda"):
            raise ValueError(f"{what} is on {value.device}: arrays of the host and of CUDA are taken; pass `.cpu()`")
        if not value.is_contiguous():
            raise ValueError(f"{what} is not contiguous: pass `.contiguous()`")
        ty = _TORCH_TYPES.get(str(value.dtype).removeprefix("torch."))
        if ty is None:
            raise TypeError(f"{what} has elements of {value.dtype}: there are {', '.join(_TORCH_TYPES)}")
        gpu = value.device.index if value.device.type == "cuda" else None
        return _Array(value.data_ptr(), value.numel() * value.element_size(), ty, "inout", gpu, value)
    interface = getattr(value, "__array_interface__", None)
    gpu = None
    if interface is None:
        interface = getattr(value, "__cuda_array_interface__", None)
        if interface is not None:
            # The protocol does not say which GPU; libraries that have it say it so.
            gpu = int(getattr(getattr(value, "device", 0), "id", 0))
    if interface is None and hasattr(value, "__dlpack__"):
        return _dlpack(what, value)
    if interface is None:
        return None
    kind = interface["typestr"]
    ty = _TYPES.get(kind[1:])
    if ty is None or kind[0] == ">":
        raise TypeError(f"{what} has elements of {kind!r}: numbers of 1, 2, 4 and 8 bytes in this machine's order")
    if interface.get("strides") is not None:
        raise ValueError(f"{what} is not contiguous: pass `numpy.ascontiguousarray(..)`")
    address, read_only = interface["data"]
    count = 1
    for extent in interface["shape"]:
        count *= extent
    return _Array(address or 0, count * int(kind[2:]), ty, "in" if read_only else "inout", gpu, value)


def _dlpack(what: str, value: Any) -> _Array:
    kind, index = value.__dlpack_device__()
    if kind not in (1, 2):
        raise ValueError(f"{what} is on DLPack's device {int(kind)}: the CPU (1) and CUDA (2) are taken; copy it to the host")
    # For an array on a GPU the exporting library makes the default stream wait for its pending
    # work.
    capsule = value.__dlpack__() if kind == 1 else value.__dlpack__(stream=_stream(index) or 1)
    try:
        address, size, ty, _, _ = _native.dlpack(capsule)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{what}: {error}") from None
    return _Array(address, size, ty, "inout", int(index) if kind == 2 else None, capsule)


def _stream(gpu: int) -> int:
    """The stream to launch into: PyTorch's current one where PyTorch is there."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return 0
    return torch.cuda.current_stream(gpu).cuda_stream


def _argument(index: int, value: Any, parameter: tuple[str, str, int | None]) -> _Array | str:
    if isinstance(value, str):
        return value
    array = _array(f"argument {index}", value)
    if array is not None:
        return array
    if isinstance(value, (bool, int, float)):
        name, ty, size = parameter
        # PTX says `.b32` or `.u32` of a number whatever it means; a float of Python is a float.
        if isinstance(value, float):
            ty = f"f{8 * (size or 4)}"
        elif ty.lstrip(".").startswith(("b", "f")) and not ty.lstrip(".").startswith("f"):
            ty = f"{'s' if value < 0 else 'u'}{8 * (size or 4)}"
        return f"{ty.lstrip('.')}:{int(value) if isinstance(value, bool) else value}"
    raise TypeError(
        f"argument {index} is a {type(value).__name__}: pass a number, an array (numpy, torch, DLPack), "
        "or text as the command takes it, such as 'out:f32:64'"
    )


class _Given:
    """The arguments of a launch and the arrays with names, and where they all are."""

    def __init__(self, values: Sequence[Any], parameters: list[tuple[str, str, int | None]], buffers: Mapping[str, Any]) -> None:
        if len(values) != len(parameters):
            names = ", ".join(parameter[0] for parameter in parameters)
            raise TypeError(f"the kernel takes {len(parameters)} arguments ({names}); given: {len(values)}")
        self.arguments = [_argument(index, *pair) for index, pair in enumerate(zip(values, parameters))]
        self.buffers: list[tuple[str, _Array]] = []
        for name, value in buffers.items():
            array = _array(f"buffer {name!r}", value)
            if array is None:
                raise TypeError(f"buffer {name!r} is a {type(value).__name__}: pass an array (numpy, torch, DLPack)")
            self.buffers.append((name, array))
        arrays = [a for a in (*self.arguments, *(array for _, array in self.buffers)) if isinstance(a, _Array)]
        # An empty array has no location.
        places = {array.gpu for array in arrays if array.bytes}
        if len(places) > 1:
            words = ", ".join("the host" if place is None else f"GPU {place}" for place in sorted(places, key=str))
            raise ValueError(f"arrays are on {words}; move them to one device")
        #: The GPU that all arrays are on; None for the host.
        self.gpu = places.pop() if places else None

    def plain(self) -> tuple[list[Any], list[Any]]:
        """In the form of the compiled extension."""
        arguments = [a.plain() if isinstance(a, _Array) else a for a in self.arguments]
        return arguments, [(name, array.plain()) for name, array in self.buffers]


class Kernel:
    """A kernel of PTX, assembled once for a GPU and launched any number of times over
    arrays of that GPU: of torch, of CuPy and others with ``__cuda_array_interface__``, of
    anything with DLPack. A launch goes into PyTorch's current stream where PyTorch is
    there, else into the default stream, and does not wait.

    >>> kernel = heist.Kernel("saxpy.ptx")                                  # doctest: +SKIP
    >>> kernel(x, y, 2.0, x.numel(), grid=64, block=256)                    # doctest: +SKIP
    """

    def __init__(self, ptx: str | os.PathLike[str], entry: str | None = None, device: int = 0) -> None:
        text, name = read(ptx)
        torch = sys.modules.get("torch")
        if torch is not None and torch.cuda.is_available():
            # PyTorch's context is the one that is used.
            torch.cuda.init()
        self._kernel = _native.Kernel(text, name, entry, device)
        self.device = device

    @property
    def name(self) -> str:
        """The kernel's name."""
        return self._kernel.name

    @property
    def parameters(self) -> list[str]:
        """The names of its parameters."""
        return [parameter[0] for parameter in self._kernel.parameters]

    def __call__(
        self,
        *args: Any,
        grid: int | Sequence[int],
        block: int | Sequence[int],
        cluster: int | Sequence[int] | None = None,
        shared: int = 0,
        stream: int | None = None,
        buffers: Mapping[str, Any] = {},
        wait: bool = False,
    ) -> None:
        """Launches it: one argument for each parameter, as :func:`heist.run` takes them.
        ``stream`` is a raw handle. With ``wait`` it returns when the kernel is done."""
        given = _Given(args, self._kernel.parameters, buffers)
        if given.gpu is None and any(isinstance(a, _Array) and a.bytes for a in given.arguments):
            raise ValueError("arrays are on the host: a kernel on a GPU takes arrays of that GPU; move them with `.cuda()`")
        if given.gpu not in (None, self.device):
            raise ValueError(f"arrays are on GPU {given.gpu} and the kernel on GPU {self.device}; move them, or load it there")
        arguments, named = given.plain()
        self._kernel.launch(
            _three("grid", grid),
            _three("block", block),
            arguments,
            named,
            cluster=None if cluster is None else _three("cluster", cluster),
            shared=shared,
            stream=_stream(self.device) if stream is None else stream,
            wait=wait,
        )

    def __repr__(self) -> str:
        return repr(self._kernel)


def run(
    ptx: str | os.PathLike[str],
    *args: Any,
    grid: int | Sequence[int],
    block: int | Sequence[int],
    entry: str | None = None,
    cluster: int | Sequence[int] | None = None,
    shared: int = 0,
    device: str = "sim:h200",
    seed: int = 0,
    chaos: bool = False,
    limit_s: float = 60.0,
    buffers: Mapping[str, Any] = {},
    raises: bool = True,
) -> _native.Report:
    """Runs a kernel of PTX once, and waits.

    One argument for each parameter: a number, an array of numpy, of torch or of anything
    with DLPack (which the kernel reads and writes in place), or text as the command takes
    it, such as ``'out:f32:64'`` or ``'tensormap(buffer=0, ..)'``. ``buffers`` has arrays
    with names, for text such as ``'ptr:a+16'``. ``device`` is a simulated GPU
    (``sim:h200``, ``sim:b200``, ...) or ``gpu``; arrays that are on a GPU run there. What
    a simulated one finds raises :class:`heist.FindingError`, or is in the report's
    ``findings`` with ``raises=False``.

    >>> import numpy
    >>> data = numpy.arange(64, dtype=numpy.uint32)
    >>> report = heist.run('''
    ... .version 8.0
    ... .target sm_80
    ... .address_size 64
    ... .visible .entry add(.param .u64 data) {
    ...     .reg .b32 %r<3>; .reg .b64 %rd<4>;
    ...     ld.param.u64 %rd1, [data];
    ...     mov.u32 %r1, %tid.x;
    ...     mul.wide.u32 %rd2, %r1, 4;
    ...     add.u64 %rd3, %rd1, %rd2;
    ...     ld.global.u32 %r2, [%rd3];
    ...     add.u32 %r2, %r2, 1;
    ...     st.global.u32 [%rd3], %r2;
    ...     ret;
    ... }''', data, grid=1, block=64)
    >>> int(data[63])
    64
    """
    text, name = read(ptx)
    given = _Given(args, _native.parameters(text, name, entry), buffers)
    if given.gpu is not None:
        kernel = Kernel(ptx, entry, given.gpu)
        kernel(*args, grid=grid, block=block, cluster=cluster, shared=shared, buffers=buffers, wait=True)
        return _native.Report.done()
    arguments, named = given.plain()
    report = _native.run(
        text,
        name,
        entry,
        _three("grid", grid),
        _three("block", block),
        arguments,
        named,
        cluster=None if cluster is None else _three("cluster", cluster),
        shared=shared,
        device=device,
        seed=seed,
        chaos=chaos,
        limit_s=limit_s,
    )
    if raises and report.findings:
        error = _native.FindingError("\n".join(finding.text for finding in report.findings))
        error.findings = report.findings
        raise error
    return report
