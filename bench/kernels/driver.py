"""The driver's calls that the programs of this folder have in common."""

import ctypes

CUDA = ctypes.CDLL("libcuda.so.1")
OVERLAPPING_ATTRIBUTE = 6


def check(code, what):
    if code != 0:
        name = ctypes.c_char_p()
        CUDA.cuGetErrorString(code, ctypes.byref(name))
        raise RuntimeError(f"{what}: {name.value.decode() if name.value else code}")


class Attribute(ctypes.Structure):
    """An attribute of a launch: its number, and a value of 64 bytes."""

    _fields_ = [("number", ctypes.c_uint64), ("value", ctypes.c_uint32 * 16)]


class Config(ctypes.Structure):
    """What `cuLaunchKernelEx` takes besides the kernel and its parameters."""

    _fields_ = [
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(Attribute)),
        ("count", ctypes.c_uint),
    ]


def launch(handle, step, pointers, stream):
    """Puts a step into a stream; one that waits by itself may begin before the one before it has ended."""
    attribute = Attribute(OVERLAPPING_ATTRIBUTE, (ctypes.c_uint32 * 16)(1))
    grid, block = ((ctypes.c_uint * 3)(*step[name]) for name in ("grid", "block"))
    count = 1 if step["overlaps"] else 0
    config = Config(grid, block, step["shared"], stream, ctypes.pointer(attribute), count)
    check(CUDA.cuLaunchKernelEx(ctypes.byref(config), handle, pointers, None), step["entry"])
