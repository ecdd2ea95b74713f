"""The memory behind a launch's arguments.

A kernel's parameters are structures with addresses of the host in them. Each that lies in an
array that Python holds is replaced with the array's address on the simulated device.
"""

from __future__ import annotations

import ctypes
import gc
import struct
import sys
from typing import Any
from unittest import mock

from .._memory import Allocations, inside, storages

# By the numbers in a tensor map's bits.
_ELEMENTS = ("u8", "u16", "u32", "s32", "u64", "s64", "f16", "f32", "f32_ftz", "f64", "bf16", "b4x16")
_SWIZZLES = ("none", "32", "64", "128")
# By CUDA's numbers: what is written into the bits, and whether they say `tf32`.
OF_CUDA = {0: 0, 1: 1, 2: 2, 3: 3, 4: 4, 5: 5, 6: 6, 7: 7, 8: 9, 9: 10, 10: 8, 11: 7, 13: 11, 14: 11, 15: 11}
_TF32 = 11
# Elements with padding. What is encoded here says so behind its bits; the DSL itself writes no such maps.
_PADDED = {14: "b4x16_p64", 15: "b6x16_p32"}
_MARK = b"heist: padded "


def known() -> list[tuple[int, int]]:
    """Address and bytes of every array that Python knows of: tensors of torch, and what the
    DSL's own tensors stand for. Ranges that overlap are one."""
    found = storages() if "torch" in sys.modules else []
    from cutlass.cute.runtime import _Tensor

    found += [_extent(thing) for thing in gc.get_objects() if type(thing) is _Tensor]
    merged: list[tuple[int, int]] = []
    for host, size in sorted(one for one in found if one[1]):
        if merged and host < merged[-1][0] + merged[-1][1]:
            first, before = merged[-1]
            merged[-1] = (first, max(before, host + size - first))
        else:
            merged.append((host, size))
    return merged


def in_global_memory(load: Any) -> Any:
    """The DSL takes a tensor of the host for generic memory, which has no asynchronous copies. What
    it reads of a tensor here says that it is a GPU's."""

    def load_from_gpu(self: Any) -> None:
        say_cuda(self._dlpack_data)
        load(self)

    return load_from_gpu


def aligned_as_assumed(pointers: Any) -> Any:
    """On the simulated device memory is aligned as on a GPU, whatever it is on the host."""

    def pointers_of_any(self: Any) -> Any:
        with mock.patch.object(self, "_assumed_align", 1):
            return pointers(self)

    return pointers_of_any


# Where the device is in DLPack's two structures: after the address of the data.
_DEVICES = {b"dltensor": 8, b"dltensor_versioned": 40}
CUDA = 2


def say_cuda(capsule: Any) -> None:
    """Writes into a tensor of DLPack that it is a GPU's."""
    api = ctypes.pythonapi
    is_valid, get = api.PyCapsule_IsValid, api.PyCapsule_GetPointer
    is_valid.argtypes = get.argtypes = [ctypes.py_object, ctypes.c_char_p]
    is_valid.restype, get.restype = ctypes.c_int, ctypes.c_void_p
    for name, offset in _DEVICES.items():
        if is_valid(capsule, name):
            ctypes.c_int32.from_address(get(capsule, name) + offset).value = CUDA


def _extent(tensor: Any) -> tuple[int, int]:
    shape, steps = _flat(tensor.shape), _flat(tensor.stride)
    if not all(shape):
        return tensor.data_ptr, 0
    elements = 1 + sum((extent - 1) * step for extent, step in zip(shape, steps))
    return tensor.data_ptr, -(-elements * tensor.element_type.width // 8)


def _flat(numbers: Any) -> list[int]:
    if isinstance(numbers, (tuple, list)):
        return [n for part in numbers for n in _flat(part)]
    return [int(numbers)]


class Parameters:
    """The parameters of one launch as the compiled part takes them."""

    def __init__(self, memory: Allocations, arguments: list[tuple[bytes, bool]]) -> None:
        self._memory = memory
        self._known = known()
        self.list: list[bytes | str] = []
        for at, (value, is_map) in enumerate(arguments):
            take = self._map if is_map else self._words
            self.list.append(take(f"arg{at}", value))

    def _words(self, name: str, value: bytes) -> bytes:
        words = bytearray(value)
        for at in range(0, len(value) - 7, 8):
            found = self._on_device(name, int.from_bytes(value[at : at + 8], "little"))
            if found is not None:
                words[at : at + 8] = found[0].to_bytes(8, "little")
        return bytes(words)

    def _on_device(self, name: str, word: int) -> tuple[int, Any] | None:
        """The address on the device of one on the host, and the memory that it is in."""
        place = inside(self._known, word)
        if place is None:
            return None
        memory = self._memory.add(name, *place, True)
        self._memory.follow(name, memory, self._known)
        return memory.at + word - memory.storage, memory

    def _map(self, name: str, value: bytes) -> str:
        told = TensorMap(name, value)
        found = self._on_device(name, told.address)
        if found is None:
            raise ValueError(f"the tensor map in `{name}` is over memory that no tensor of this process has")
        address, memory = found
        lists = {"dims": told.dims, "strides": told.strides, "box": told.box}
        fields = [f"{key}=[{', '.join(map(str, numbers))}]" for key, numbers in lists.items()]
        return (
            f"tensormap(buffer={memory.name}, type={told.element}, offset={address - memory.at}, "
            f"{', '.join(fields)}, swizzle={told.swizzle}, fill=zeros)"
        )


class TensorMap:
    """A tensor map, read from its bits. The DSL's host code writes them itself, with no call of
    CUDA that could be replaced; this is its form of a tiled map, and others are refused."""

    def __init__(self, name: str, value: bytes) -> None:
        address, first, second, third, fourth, fifth, sixth, seventh = struct.unpack("<8Q", value[:64])
        bits = first & 0xFFFFFFFF
        rank = (bits >> 4 & 7) + 1
        element = bits >> 7 & 15
        # Bits that no map of the DSL has set: the kind, interleaved rows, what fills the outside,
        # strides of more than 36 bits, elements that are left out.
        odd = (bits & 15 != 2, bits >> 11 & 3, bits >> 15 & 1, third >> 32, sixth >> 32 & 0xFFFFFF)
        if any(odd) or rank > 5 or element >= len(_ELEMENTS):
            raise NotImplementedError(
                f"the tensor map in `{name}` is no tiled one with zeros outside (its bits: {value[:64].hex()}): "
                "the simulated GPU can't read it"
            )
        self.address = address
        self.element = "tf32" if bits >> 16 & 1 else _ELEMENTS[element]
        self.swizzle = _SWIZZLES[bits >> 13 & 3]
        strides = [first >> 32, second & 0xFFFFFFFF, second >> 32, third & 0xFFFFFFFF]
        dims = [fourth & 0xFFFFFFFF, fourth >> 32, fifth & 0xFFFFFFFF, fifth >> 32, sixth & 0xFFFFFFFF]
        box = [sixth >> 56, *(seventh >> shift & 255 for shift in (0, 8, 16, 24))]
        self.strides = [16 * step for step in strides[: rank - 1]]
        self.dims = [extent + 1 for extent in dims[:rank]]
        self.box = [extent + 1 for extent in box[:rank]]
        if value.startswith(_MARK, 64):
            self.element = _PADDED[value[64 + len(_MARK)]]


def encode_tiled(element: int, address: int, dims: list[int], strides: list[int], box: list[int], swizzle: int) -> bytes:
    """A tensor map as the DSL's host code writes one, of what ``cuTensorMapEncodeTiled`` takes."""
    rank = len(dims)
    bits = 2 | (rank - 1) << 4 | OF_CUDA[element] << 7 | swizzle << 13 | (element == _TF32) << 16
    steps = [step // 16 for step in strides] + [0] * (5 - rank)
    most = [extent - 1 for extent in dims] + [0] * (5 - rank)
    edge = [extent - 1 for extent in box] + [0] * (5 - rank)
    words = (
        address,
        bits | steps[0] << 32,
        steps[1] | steps[2] << 32,
        steps[3],
        most[0] | most[1] << 32,
        most[2] | most[3] << 32,
        most[4] | edge[0] << 56,
        sum(extent << 8 * at for at, extent in enumerate(edge[1:])),
    )
    padded = _MARK + bytes([element]) if element in _PADDED else b""
    return struct.pack("<8Q64s", *words, padded)
