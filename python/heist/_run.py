"""PTX on a simulated or a real GPU, with arrays as arguments."""

from __future__ import annotations

import os
from typing import Any, Sequence

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


def _array(index: int, value: Any) -> tuple[int, int, str, str] | None:
    """Address, bytes, type and role of an array; None for what is no array."""
    if type(value).__module__.split(".")[0] == "torch" and hasattr(value, "data_ptr"):
        if value.device.type != "cpu":
            raise ValueError(
                f"argument {index} is on {value.device}: heist.run copies arrays of the host to the device; pass `.cpu()`"
            )
        if not value.is_contiguous():
            raise ValueError(f"argument {index} is not contiguous: pass `.contiguous()`")
        ty = _TORCH_TYPES.get(str(value.dtype).removeprefix("torch."))
        if ty is None:
            raise TypeError(f"argument {index} has elements of {value.dtype}: there are {', '.join(_TORCH_TYPES)}")
        return value.data_ptr(), value.numel() * value.element_size(), ty, "inout"
    interface = getattr(value, "__array_interface__", None)
    if interface is None and hasattr(value, "__dlpack__"):
        import numpy

        interface = numpy.from_dlpack(value).__array_interface__
    if interface is None:
        return None
    kind = interface["typestr"]
    ty = _TYPES.get(kind[1:])
    if ty is None or kind[0] == ">":
        raise TypeError(f"argument {index} has elements of {kind!r}: numbers of 1, 2, 4 and 8 bytes in this machine's order")
    if interface.get("strides") is not None:
        raise ValueError(f"argument {index} is not contiguous: pass `numpy.ascontiguousarray(..)`")
    address, read_only = interface["data"]
    count = 1
    for extent in interface["shape"]:
        count *= extent
    return address, count * int(kind[2:]), ty, "in" if read_only else "inout"


def _argument(index: int, value: Any, parameter: tuple[str, str, int | None]) -> Any:
    if isinstance(value, str):
        return value
    array = _array(index, value)
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
        f"argument {index} is a {type(value).__name__}: pass a number, an array (numpy, torch on the CPU, DLPack), "
        "or text as the command takes it, such as 'out:f32:64'"
    )


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
    raises: bool = True,
) -> _native.Report:
    """Runs a kernel of PTX once, and waits.

    One argument for each parameter: a number, an array of numpy, of torch on the CPU
    or of anything with DLPack (which the kernel reads and writes in place), or text as
    the command takes it, such as ``'out:f32:64'`` or ``'tensormap(buffer=0, ..)'``.
    ``device`` is a simulated GPU (``sim:h200``, ``sim:b200``, ...) or ``gpu``. What a
    simulated one finds raises :class:`heist.FindingError`, or is in the report's
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
    parameters = _native.parameters(text, name, entry)
    if len(args) != len(parameters):
        names = ", ".join(parameter[0] for parameter in parameters)
        raise TypeError(f"the kernel takes {len(parameters)} arguments ({names}); given: {len(args)}")
    arguments = [_argument(index, *pair) for index, pair in enumerate(zip(args, parameters))]
    report = _native.run(
        text,
        name,
        entry,
        _three("grid", grid),
        _three("block", block),
        arguments,
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
