"""The arguments of a launch as the bytes of a kernel's parameters."""

from __future__ import annotations

import struct
from typing import Any

from .._memory import Allocations

_NUMBERS = {
    "i1": "<b", "i8": "<b", "i16": "<h", "i32": "<i", "i64": "<q",
    "u1": "<B", "u8": "<B", "u16": "<H", "u32": "<I", "u64": "<Q",
    "fp16": "<e", "fp32": "<f", "f32": "<f", "fp64": "<d",
}  # fmt: skip

# By the number of the element type in Triton's metadata.
_ELEMENTS = (
    "u8", "u16", "u32", "s32", "u64", "s64", "f16", "f32", "f32_ftz", "f64", "bf16",
    "tf32", "tf32_ftz", "b4x16", "b4x16_p64", "b6x16_p32",
)  # fmt: skip
_TF32 = "tf32"
_SWIZZLES = ("none", "32", "64", "128")


def number(ty: str, value: Any) -> bytes:
    """A number by value."""
    if ty == "bf16":
        return struct.pack("<I", _f32_bits(float(value)) + 0x8000 & 0xFFFFFFFF)[2:]
    form = _NUMBERS[ty]
    if form[1] in "efd":
        return struct.pack(form, float(value))
    bits = 8 * struct.calcsize(form)
    value = int(value) & (1 << bits) - 1
    return value.to_bytes(bits // 8, "little")


def _f32_bits(value: float) -> int:
    return struct.unpack("<I", struct.pack("<f", value))[0]


class Parameters:
    """The parameters of one launch, in the order of the PTX."""

    def __init__(self, memory: Allocations, descriptors: Any) -> None:
        self.list: list[bytes | str] = []
        self._memory = memory
        self._descriptors = list(descriptors or ())
        self._next = 0

    def add(self, name: str, ty: Any, value: Any) -> None:
        """One argument, by its type in Triton's signature."""
        if isinstance(ty, (tuple, list)):
            names = getattr(value, "_fields", range(len(ty)))
            for field, inner, part in zip(names, ty, value):
                self.add(f"{name}_{field}", inner, part)
        elif ty == "constexpr":
            pass
        elif ty.startswith("*"):
            self._pointer(name, ty, value)
        elif ty.startswith("tensordesc"):
            self._descriptor(name, value)
        else:
            self.list.append(number(ty, value))

    def _pointer(self, name: str, ty: str, value: Any) -> None:
        if value is None:
            self.list.append(bytes(8))
            return
        if isinstance(value, int):
            raise TypeError(f"argument `{name}` is a bare address: pass the tensor, whose memory can be simulated")
        address, memory = self._memory.address(name, value)
        if ty.lstrip("*k") in ("i64", "u64") or ty.count("*") > 1:
            self._memory.follow(name, memory)
        self.list.append(address.to_bytes(8, "little"))

    def _descriptor(self, name: str, value: Any) -> None:
        # Without metadata of its own it was taken apart into a pointer and numbers.
        known = self._descriptors[self._next] if self._next < len(self._descriptors) else None
        self._next += 1
        address, memory = self._memory.address(name, value.base)
        shape, strides = [int(n) for n in value.shape], [int(n) for n in value.strides]
        tail = [number("i32", extent) for extent in shape] + [number("i64", step) for step in strides]
        if known is None:
            self.list.append(address.to_bytes(8, "little"))
            self.list += [number("i64", n) for n in shape + strides]
            self.list.append(number("i1", value.padding == "nan"))
            if hasattr(value, "round_f32_to_tf32"):
                self.list.append(number("i1", value.round_f32_to_tf32))
            self.list += tail
            return
        if known.get("is_im2col"):
            raise NotImplementedError(f"argument `{name}` is an im2col descriptor: the simulated GPU has tiled ones only")
        element = _TF32 if getattr(value, "round_f32_to_tf32", False) else _ELEMENTS[known["elem_type"]]
        size = known["elem_size"]
        box = [int(n) for n in known["block_size"]]
        # Of padded fp4 a byte of the tensor is two elements of the map.
        lists = {
            "dims": [shape[-1] * (2 if known["fp4_padded"] else 1), *shape[-2::-1]],
            "strides": [step * size for step in strides[-2::-1]],
            "box": box[::-1],
        }
        fields = [f"{key}=[{', '.join(map(str, numbers))}]" for key, numbers in lists.items()]
        fill = "nan" if value.padding == "nan" else "zeros"
        self.list.append(
            f"tensormap(buffer={memory.name}, type={element}, offset={address - memory.at}, "
            f"{', '.join(fields)}, swizzle={_SWIZZLES[known['swizzle']]}, fill={fill})"
        )
        self.list += tail
