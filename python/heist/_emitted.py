"""Kernels that were written in Rust, as ``heist emit --json`` prints them."""

from __future__ import annotations

import os
from typing import Any

from . import _native
from ._run import run


class Emitted:
    """A kernel of the builder, with its launches, as ``heist emit KERNEL --json`` prints
    it: a path, or the text. ``buffers`` says what memory it works on, by name: whether it
    is read or written (``role``), ``type``, ``elements`` and ``bytes``.

    >>> import json, numpy
    >>> emitted = heist.Emitted(json.dumps({"name": "fill", "buffers": [
    ...     {"name": "d", "role": "out", "type": "u32", "elements": 32, "bytes": 128}], "steps": [{
    ...     "entry": "fill", "grid": {"x": 1, "y": 1, "z": 1}, "block": {"x": 32, "y": 1, "z": 1},
    ...     "cluster": None, "dynamic_shared": 0, "arguments": [
    ...         {"kind": "pointer", "buffer": "d", "offset": 0}, {"kind": "scalar", "type": "u32", "value": "7"}],
    ...     "ptx": '''
    ... .version 8.0
    ... .target sm_80
    ... .address_size 64
    ... .visible .entry fill(.param .u64 d, .param .u32 value) {
    ...     .reg .b32 %r<3>; .reg .b64 %rd<4>;
    ...     ld.param.u64 %rd1, [d];
    ...     ld.param.u32 %r1, [value];
    ...     mov.u32 %r2, %tid.x;
    ...     mul.wide.u32 %rd2, %r2, 4;
    ...     add.u64 %rd3, %rd1, %rd2;
    ...     st.global.u32 [%rd3], %r1;
    ...     ret;
    ... }'''}]}))
    >>> data = numpy.zeros(32, dtype=numpy.uint32)
    >>> reports = emitted.run(d=data)
    >>> int(data.sum())
    224
    """

    def __init__(self, source: str | os.PathLike[str]) -> None:
        # Few programs come here, and all import this file.
        import json

        if isinstance(source, str) and source.lstrip().startswith("{"):
            text = source
        else:
            with open(source, encoding="utf-8") as file:
                text = file.read()
        try:
            content = json.loads(text)
            self.name: str = content["name"]
            self.buffers: dict[str, dict[str, Any]] = {buffer["name"]: buffer for buffer in content["buffers"]}
            self._steps: list[dict[str, Any]] = content["steps"]
            self._arguments = [[_text(argument) for argument in step["arguments"]] for step in self._steps]
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"this is not what `heist emit KERNEL --json` prints: {error!r}") from None

    @property
    def ptx(self) -> list[str]:
        """The PTX of each launch."""
        return [step["ptx"] for step in self._steps]

    def run(self, device: str = "sim:h200", **arrays: Any) -> list[_native.Report]:
        """Runs all launches in order, and waits: an array for every buffer, as
        :func:`heist.run` takes them; arrays that are on a GPU run there. One report for
        each launch."""
        unknown = arrays.keys() - self.buffers.keys()
        if unknown:
            raise TypeError(f"{self.name} has no buffer {', '.join(sorted(unknown))}; there are: {', '.join(self.buffers)}")
        for name, buffer in self.buffers.items():
            if name not in arrays and buffer["bytes"]:
                raise TypeError(
                    f"{self.name} works on {name} too: pass {name}=, an array of {buffer['elements']} elements of "
                    f"{buffer['type']} ({buffer['bytes']} bytes)"
                )
            given = getattr(arrays.get(name), "nbytes", None)
            if given is not None and given < buffer["bytes"]:
                raise ValueError(f"{self.name}: {name} takes {buffer['bytes']} bytes, and the array has {given}")
        empty = [name for name in self.buffers if name not in arrays]
        return [
            run(
                step["ptx"],
                *arguments,
                entry=step["entry"],
                grid=_extent(step["grid"]),
                block=_extent(step["block"]),
                cluster=step["cluster"] and _extent(step["cluster"]),
                shared=step["dynamic_shared"],
                device=device,
                buffers={**arrays, **dict.fromkeys(empty, _Nothing())},
            )
            for step, arguments in zip(self._steps, self._arguments)
        ]

    def __repr__(self) -> str:
        return f"<Emitted {self.name}: {len(self._steps)} launches over {', '.join(self.buffers)}>"


class _Nothing:
    """An array without elements, for a buffer that the kernel has no use for."""

    __array_interface__ = {"shape": (0,), "typestr": "|u1", "data": (0, True), "version": 3}


def _extent(dim: dict[str, int]) -> tuple[int, int, int]:
    return dim["x"], dim["y"], dim["z"]


def _text(argument: dict[str, Any]) -> str:
    """An argument as the command takes it."""
    kind = argument["kind"]
    if kind == "scalar":
        return f"{argument['type']}:{argument['value']}"
    if kind == "bytes":
        return f"bytes:{argument['value']}"
    if kind == "pointer":
        return f"ptr:{argument['buffer']}+{argument['offset']}"
    if kind in ("constant", "counters"):
        return f"{'in' if kind == 'constant' else 'inout'}:u8:{argument['contents']}"
    if kind == "tensor_map":
        fields = {"buffer": "buffer", "offset": "offset", "type": "type", "dims": "dims", "strides": "strides", "box": "box",
                  "estrides": "element_strides", "interleave": "interleave", "swizzle": "swizzle", "l2": "l2", "fill": "fill"}  # fmt: skip
        words = (f"{word}={argument[field]}" for word, field in fields.items() if argument[field] != [])
        return f"tensormap({', '.join(words)})"
    raise ValueError(f"an argument of the kind {kind!r}")
