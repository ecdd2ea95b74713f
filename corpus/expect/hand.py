"""Launches of the files written by hand."""

import struct

from .data import spread
from .numbers import signed, unsigned
from .run import Run, kernels


@kernels("hand/scopes_60")
def scopes(file):
    v = spread(20, 0, 50)
    out = [3 * x + 234 + 9 * t + (1000 if t == 3 else 1) for t, x in enumerate(v)]
    yield Run("scopes").input("u32", v).output("u32", out).value("u32", 20)


@kernels("hand/data_71")
def data(file):
    bits = [struct.unpack("<I", struct.pack("<f", x))[0] for x in (999.875, -0.625, 7.0)]
    # Constant expressions are unsigned for the remainder: -7 % 4 is 1.
    out = [17, 6, 0x04030201, 0x0807FFFF, *bits, 4 << 16 | 3, 70903, 102400 + 1 + 192, 1020, 16, 4, 1, unsigned(-5), 0xFFFFFFFF]
    yield Run("variables", block=1).output("u32", out)
    yield Run("through_table", block=8).output("s32", [(-(t + 10) if t & 1 else 2 * (t + 10)) + 200 for t in range(8)])


@kernels("hand/branches_70")
def branches(file):
    v = [i % 7 for i in range(40)]
    results = {0: lambda i: 100, 1: lambda i: 101, 2: lambda i: 202, 3: lambda i: 203, 4: lambda i: 1000 * i}
    out = [results[x](i) if x in results else -1 for i, x in enumerate(v)]
    yield Run("jump_table", grid=2).input("u32", v).output("s32", out).value("u32", len(v))
    out = []
    for t in range(8):
        held = 7 + t if t > 3 else t or 7
        out.append(held * 10000 + t * 11 + 5 + 33 * 100)
    yield Run("calls", block=8).output("u32", out)


@kernels("hand/clusters_78")
def clusters(file):
    scale = 0.25
    out = [(31 - t) * scale + 0.5 + (t ^ 1 if t < 16 else 100) for t in range(32)]
    yield Run("exchange", grid=4, cluster=2, smem=144).output("f32", out * 4).value("f32", scale)
    data = struct.pack("<5I", 5, 6, 7, 8, 9) + struct.pack("<IHBb", 0x00020030, 1000, 0, -77) + bytes(4)
    out = [100 + 5 + 7 + 800, 200 + 1000 + 0x30, unsigned(-77)]
    yield Run("sinks", block=1).inout("u32", [100, 200, 0], out).bytes(data)


@kernels("hand/odd_spellings_83")
def odd_spellings(file):
    yield Run("nothing", "__")
    yield Run("dollar", "$dollar$_name_0", block=1).output("u32", [1])
    yield Run("percent", "%percent", block=1).output("u64", [2**63 - 1, 2**64 - 1, 2**64 - 1, 0o777])
    out = []
    for t in range(10):
        p = t < 5
        q = t > 1 and p
        r = t == 7 or not q
        last = (not (q ^ r)) and p
        sum = min(t + 2147483645, 2**31 - 1)
        rest = max(-2147483647 - t, -(2**31))
        low = sum + 0xF0000000
        low, high = unsigned(low), low >> 32
        low += 3 * t
        low, high = unsigned(low), high + (low >> 32)
        high -= low < 1
        out += [p + 2 * q + 4 * r + 8 * last, 60 if t <= 3 else 50, sum, rest]
        out += [signed(sum << 9 | t >> 23), abs(t - 10) + 3, 3 * t, t ^ 0x5A ^ 3 * t]
        out += [0, -1, signed(high), 0]
    yield Run("logic", block=10).output("s32", out)


@kernels("hand/textures_60")
def textures(file):
    yield "uses textures and surfaces, which the simulated GPU does not have"


@kernels("hand/video_60")
def video(file):
    yield "the video instructions are parsed, not run"
