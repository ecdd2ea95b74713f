"""The memory of the tensors that a launch may touch.

Each storage is one allocation on the simulated device, with an address of its own far from
every other one: so an access outside is told whatever its distance, and two tensors over one
storage stay one memory. Which bytes were never written is kept from launch to launch.
"""

from __future__ import annotations

import ctypes
import gc
from dataclasses import dataclass
from typing import Any

# Further apart than any offset of 32 bits in elements of 8 bytes is wide.
_DISTANCE = 1 << 35
_BASE = 1 << 36
# Elements of a table of pointers that are looked at.
_MOST_POINTERS = 1 << 16


@dataclass
class Memory:
    """One allocation, as the compiled part takes it."""

    name: str
    at: int
    host: int
    len: int
    writable: bool
    written: bytes | None
    # What is written after the launch instead of the copy that the kernel saw.
    table: "_Table | None" = None

    @property
    def storage(self) -> int:
        """Where the tensor's own memory is, which the kernel sees a copy of if it is a table."""
        return self.host if self.table is None else self.table.host


class NumpyTensor:
    """An array of numpy with what Triton asks of a tensor."""

    def __init__(self, array: Any) -> None:
        self.array = array
        self.dtype = array.dtype
        self.shape = array.shape

    def data_ptr(self) -> int:
        return self.array.__array_interface__["data"][0]

    def stride(self, axis: int | None = None) -> Any:
        steps = tuple(step // self.array.itemsize for step in self.array.strides)
        return steps if axis is None else steps[axis]

    def element_size(self) -> int:
        return self.array.itemsize

    def numel(self) -> int:
        return self.array.size

    def storage(self) -> tuple[int, int, bool]:
        """Address and bytes of the whole array that this is a part of."""
        array = self.array
        while hasattr(array.base, "__array_interface__"):
            array = array.base
        low = high = array.__array_interface__["data"][0]
        for extent, step in zip(array.shape, array.strides):
            reach = step * (extent - 1) if extent else 0
            low, high = min(low, low + reach), max(high, high + reach)
        size = high - low + array.itemsize if array.size else 0
        return low, size, bool(self.array.flags.writeable)


def storage_of(value: Any) -> tuple[int, int, bool] | None:
    """Address, bytes and whether it may be written, of the storage behind a tensor."""
    if isinstance(value, NumpyTensor):
        return value.storage()
    if hasattr(value, "untyped_storage"):
        if value.device.type != "cpu":
            raise ValueError(
                f"a tensor is on {value.device}, and the simulated GPU works on the host's memory: pass `.cpu()`, "
                "or make tensors with device='cpu'"
            )
        storage = value.untyped_storage()
        return storage.data_ptr(), storage.nbytes(), True
    base = getattr(value, "base", None)  # triton.reinterpret's wrapper
    return None if base is None else storage_of(base)


class Allocations:
    """The allocations of one launch."""

    def __init__(self, unwritten: dict[int, bytes]) -> None:
        self.list: list[Memory] = []
        self._unwritten = unwritten
        self._held: list[Any] = []

    def add(self, name: str, host: int, size: int, writable: bool) -> Memory:
        for known in self.list:
            if known.storage <= host and host + size <= known.storage + known.len and size:
                return known
        names = {known.name for known in self.list}
        unique, count = name, 1
        while unique in names:
            count += 1
            unique = f"{name}_{count}"
        at = _BASE + len(self.list) * _DISTANCE + host % 16
        memory = Memory(unique, at, host, size, writable, self._unwritten.get(host))
        self.list.append(memory)
        return memory

    def address(self, name: str, value: Any) -> tuple[int, Memory]:
        """The address on the device of a tensor's first element."""
        found = storage_of(value)
        if found is None:
            raise TypeError(
                f"argument `{name}` is a {type(value).__name__}: pass a tensor of torch on the CPU or an array of numpy"
            )
        memory = self.add(name, *found)
        self._held.append(value)
        return memory.at + value.data_ptr() - memory.storage, memory

    def scratch(self, name: str, size: int, align: int) -> int:
        """Memory that Triton promises to a kernel; its address."""
        room = ctypes.create_string_buffer(size)
        self._held.append(room)
        memory = self.add(name, ctypes.addressof(room), size, True)
        memory.at = -(-memory.at // max(align, 512)) * max(align, 512)
        memory.written = bytes(-(-size // 8))
        return memory.at

    def follow(self, name: str, memory: Memory, alive: list[tuple[int, int]] | None = None) -> None:
        """Tables of pointers: integers of 64 bits that are addresses of tensors. What they point
        to is memory of the launch too, and the kernel sees its address on the device. ``alive`` are
        address and bytes of what they may point to, unless told every tensor of torch."""
        if memory.table is not None or memory.len > 8 * _MOST_POINTERS or memory.len % 8 or not memory.len:
            return
        words = (ctypes.c_uint64 * (memory.len // 8)).from_address(memory.host)
        if not any(words) or any(word >> 47 for word in words):
            return
        alive = storages() if alive is None else alive
        found = [inside(alive, word) for word in words]
        if any(word and place is None for word, place in zip(words, found)):
            return
        # Small numbers may be indices. They are addresses, in a Python whose heap lies low, where each
        # is the first byte of a storage.
        if not any(word >> 32 for word in words) and any(place and place[0] != word for word, place in zip(words, found)):
            return
        copy = (ctypes.c_uint64 * len(words))(*words)
        for index, (word, place) in enumerate(zip(words, found)):
            if place is not None:
                target = self.add(f"{name}[{index}]", *place, True)
                copy[index] = target.at + word - target.storage
        memory.table = _Table(memory.host, list(words), list(copy), copy)
        memory.host = ctypes.addressof(copy)

    def finish(self, written: list[bytes | None]) -> None:
        """Keeps what was written of each storage, and gives tables their own addresses back."""
        for memory, bits in zip(self.list, written):
            if bits is None:
                self._unwritten.pop(memory.storage, None)
            elif memory.storage in self._unwritten:
                self._unwritten[memory.storage] = bits
            if memory.table is not None:
                memory.table.put_back()


@dataclass
class _Table:
    host: int
    before: list[int]
    given: list[int]
    copy: Any

    def put_back(self) -> None:
        words = (ctypes.c_uint64 * len(self.before)).from_address(self.host)
        for index, word in enumerate(self.copy):
            words[index] = self.before[index] if word == self.given[index] else word


def storages() -> list[tuple[int, int]]:
    """Address and bytes of every tensor of torch on the CPU that Python knows of."""
    import sys

    torch = sys.modules.get("torch")
    if torch is None:
        return []
    found = set()
    for thing in gc.get_objects():
        if type(thing) in (torch.Tensor, torch.nn.Parameter):
            if thing.device.type == "cpu" and thing.layout == torch.strided:
                try:
                    storage = thing.untyped_storage()
                except (NotImplementedError, RuntimeError):
                    continue  # A transform's tensor (`torch.func`) has no storage of its own.
                if storage.nbytes():
                    found.add((storage.data_ptr(), storage.nbytes()))
    return sorted(found)


def inside(storages: list[tuple[int, int]], address: int) -> tuple[int, int] | None:
    import bisect

    at = bisect.bisect_right(storages, (address, 1 << 63)) - 1
    if at < 0 or address >= storages[at][0] + storages[at][1]:
        return None
    return storages[at]
