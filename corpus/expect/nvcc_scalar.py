"""Launches of the scalar kernels: integers, bits, floats, halves, the math library, saxpy."""

import math
from fractions import Fraction

from .data import spread
from .numbers import fma, rounded, signed, unsigned
from .run import Run, kernels

BIG = 2**31 - 1


@kernels("nvcc/saxpy")
def saxpy(file):
    n, a = 100, 2.5
    x, y = [i - 50 for i in range(n)], spread(n, -8, 8)
    out = [a * u + v for u, v in zip(x, y)]
    for name, count, grid, block in (("saxpy", n, 2, 64), ("saxpy_stride", n, 2, 32), ("saxpy_vector", n // 4, 1, 32)):
        yield Run(name, grid=grid, block=block).value("s32", count).value("f32", a).input("f32", x).inout("f32", y, out)


@kernels("nvcc/scalar_integer")
def scalar_integer(file):
    x = [0, 1, -1, 7, -7, 123456789, -123456789, BIG, -BIG - 1, 65536, -40000, 99]
    y = [1, -1, 3, 5, -2, 1000, 77777, 2, 3, -65536, 40000, 31]
    out = []
    for a, b in zip(x, y):
        ua, ub = unsigned(a), unsigned(b)
        quotient = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
        out += [a + b, a - b, a * b, a * b >> 32, quotient, ua % ub, a >> (b & 31), ua >> (b & 31), ua << (b & 31)]
        out += [min(a, b) ^ max(a, b), min(ua, ub), a if a == -BIG - 1 else abs(a)]
    yield Run("int32_ops").input("s32", x).input("s32", y).output("s32", [signed(v) for v in out]).value("s32", len(x))

    x = [0, 5, -5, 2**40 + 3, -(2**50) - 9, 2**63 - 1, -(2**63), 12345678901234567]
    y = [7, -3, 2**33, 2**20 - 1, 1000003, 2, 3, -98765432109]
    out = []
    for a, b in zip(x, y):
        ua, ub = unsigned(a, 64), unsigned(b, 64)
        out += [ua + ub, ua * ub, a * b >> 64, ua * ub >> 64, ua // ub, ua % ub, a >> (b & 63), min(a, b)]
    yield Run("int64_ops").input("s64", x).input("s64", y).output("s64", [signed(v, 64) for v in out]).value("s32", len(x))

    x, y = [0, 1, -1, 127, -128, 100, -77, 5], [0, 255, 3, 200, 128, 44, 99, 250]
    out = []
    for a, b in zip(x, y):
        out += [signed(a * b, 16), signed(a + b, 16), min(a, b), signed(a - b, 8)]
    yield Run("narrow_ops").input("s8", x).input("u8", y).output("s16", out).value("s32", len(x))

    x = [0, 0x01020304, 0xFF00FF80, 0x7FFF8000, 0xDEADBEEF, 0x80808080]
    y = [0, 0x05060708, 0x10FF2001, 0x8001FFFF, 0x12345678, 0x7F7F7F7F]
    out = []
    for a, b in zip(x, y):
        a8, b8 = ([signed(v >> 8 * i, 8) for i in range(4)] for v in (a, b))
        a16, b16 = ([signed(v >> 16 * i, 16) for i in range(2)] for v in (a, b))
        out.append(7 + sum(u * v for u, v in zip(a8, b8)))
        out.append(1 + a16[0] * b8[0] + a16[1] * b8[1])
        out.append(abs(signed(a) - signed(b)) + 5)
        out.append(sum(((a >> s) + (b >> s) & 0xFF) << s for s in (0, 8, 16, 24)))
        out.append(sum(unsigned(max(u, v), 16) << 16 * i for i, (u, v) in enumerate(zip(a16, b16))))
        out.append((a & 0xFFFFFF) * (b & 0xFFFFFF))
    yield Run("packed_ops").input("u32", x).input("u32", y).output("u32", [unsigned(v) for v in out]).value("s32", len(x))

    pairs = [(2**127 + 12345, 2**64 + 1), (10**30, 10**9 + 7), (3, 5), (2**128 - 1, 2**65 - 3), (2**70, 2**70)]
    given, out = [], []
    for a, b in pairs:
        for v in (a, b):
            given += [unsigned(v, 64), v >> 64]
        for v in (a + b, a - b, a * b, a // b):
            out += [unsigned(v, 64), unsigned(v >> 64, 64)]
    yield Run("int128_ops").input("u64", given).output("u64", out).value("s32", len(pairs))


def permute(a, b, selector):
    both = a | b << 32
    return sum((both >> 8 * (selector >> 4 * i & 7) & 0xFF) << 8 * i for i in range(4))


@kernels("nvcc/scalar_bits")
def scalar_bits(file):
    x = [0, 1, 0x80000000, 0xFFFFFFFF, 0x12345678, 0xDEADBEEF, 0x00F0F000, 40]
    y = [0, 33, 0xFFFFFFFF, 5, 0x9ABCDEF0, 0x0000001F, 0x80000001, 7]
    out = []
    for a, b in zip(x, y):
        wide, turn, fixed = b << 32 | a, b & 31, min(a, 32)
        out += [a.bit_count(), 32 - a.bit_length(), int(f"{a:032b}"[::-1], 2), permute(a, b, 0x6240)]
        out += [(a & b) ^ (~a | b << 1), wide << turn >> 32, wide >> fixed, (a & -a).bit_length()]
        out += [a >> 5 & 0x1FF, b & ~(0xFFF << 7) | (a & 0xFFF) << 7, 32 - a.bit_length() if a else -1]
        out += [((1 << (b & 31)) - 1) << (a & 31)]
    yield Run("bits").input("u32", x).input("u32", y).output("u32", [unsigned(v) for v in out]).value("s32", len(x))

    x = [0, 1, 2**63, 2**64 - 1, 0x0123456789ABCDEF, 2**40 + 2**20]
    narrow, wide = [], []
    for a in x:
        narrow += [a.bit_count(), 64 - a.bit_length()]
        wide += [int(f"{a:064b}"[::-1], 2), permute(a >> 32, unsigned(a), 0x3175) | unsigned(a << 40, 64)]
    yield Run("bits64").input("u64", x).output("u32", narrow).output("u64", wide).value("s32", len(x))


def f32(value):
    return rounded(value, "f32")


@kernels("nvcc/scalar_float")
def scalar_float(file):
    x = [0.1, -2.5, 1e10, 3.0, -7.75, 1.0, 123456.789, 0.5, 1.5, -0.5, 3.3333, 2.0**-20]
    y = [0.2, 4.0, -1.0, 3.0, 1.3, 2.0**-24, -0.007, -0.0, 2.5, 3.0, 1.1, 2.0**20]
    if not file.has("fast"):
        x += [math.inf, math.nan, -math.inf, 2.0**-140, 0.0, 3e38]
        y += [1.0, 2.0, math.inf, 2.0**-130, 5.0, 3e38]
    x, y = [f32(v) for v in x], [f32(v) for v in y]
    out = []
    for a, b in zip(x, y):
        finite = math.isfinite(a) and math.isfinite(b)
        for mode in ("rn", "rz", "ru", "rd"):
            out.append(f32_add(a, b, mode))
        out.append(f32(Fraction(a) * Fraction(b)) if finite and a and b else a * b)
        out.append(fma(a, b, 1.0) if finite else a * b + 1.0)
        out.append(f32(a / b) if b else math.copysign(math.inf, a) * math.copysign(1, b))
        out.append(f32(math.sqrt(abs(a))))
        out += [b if math.isnan(a) else min(a, b), b if math.isnan(a) else max(a, b)]
        out.append(math.copysign(math.trunc(a), a) if math.isfinite(a) else a)
        up, down = (g(v) if math.isfinite(v) else v for g, v in ((math.ceil, b), (math.floor, a)))
        out.append(f32(float(down) + float(up)) if finite else down + up)
        out.append(math.copysign(round(a), a) if math.isfinite(a) else a)
        out.append(1 if a < b else 2 if a != b else 3)
        out.append(math.copysign(a, b))
        out.append(4 if math.isnan(a) else 5 if math.isinf(a) else 6)
    yield Run("float_ops").input("f32", x).input("f32", y).output("f32", out).value("s32", len(x))

    x, y = [0.1, -2.5, 1e100, 7.0, -1e-200, 2.0**-30], [0.3, 1.5, 3.0, -2.0, 1e-100, 1.0]
    out = []
    for a, b in zip(x, y):
        out += [a + b, rounded(Fraction(a) * Fraction(b), "f64", "rz"), fma(a, b, 0.5, "f64"), a / b]
        out += [math.sqrt(abs(a)), min(a, b), float(math.floor(a)), f32(a)]
    yield Run("double_ops").input("f64", x).input("f64", y).output("f64", out).value("s32", len(x))

    x = [0.0, 1.5, 2.5, -2.5, -1.25, 3e9, -3e9, 255.75, 1e6, 16777215.0]
    k = [0, 1, -1, 16777217, -16777217, BIG, -BIG - 1, 123456789, -5, 33554433]
    integers, floats = [], []
    for a, v in zip(x, k):
        a = f32(a)

        def clamp(value, low=-BIG - 1, high=BIG):
            return max(low, min(high, int(value)))

        integers += [clamp(round(a)), clamp(a), signed(clamp(math.ceil(a), 0, 2**32 - 1)), signed(math.floor(a) >> 1)]
        integers += [signed(f32_bits(a)), clamp(math.floor(a)) & 0xFF]
        floats += [f32(v), rounded(unsigned(v), "f32", "rz"), f32(v << 20), f32(float(v))]
    x = [f32(v) for v in x]
    yield Run("conversions").input("f32", x).input("s32", k).output("s32", integers).output("f32", floats).value("s32", len(x))


def f32_add(a, b, mode):
    if not (math.isfinite(a) and math.isfinite(b)):
        return a + b
    exact = Fraction(a) + Fraction(b)
    if abs(exact) >= 2**128 and mode != "rn":
        toward_zero = mode == "rz" or (mode == "rd") == (exact > 0)
        return math.copysign((2.0 - 2.0**-23) * 2.0**127 if toward_zero else math.inf, exact)
    return rounded(exact, "f32", mode) if exact else (-0.0 if mode == "rd" and (a or b) else a + b)


def f32_bits(value):
    import struct

    return struct.unpack("<I", struct.pack("<f", value))[0]


@kernels("nvcc/scalar_half")
def scalar_half(file):
    x = [rounded(v, "f16") for v in (1.0, -2.5, 0.1, 1000.0, 3.140625, -0.333, 2049.0, 0.0078)]
    y = [rounded(v, "f16") for v in (2.0, 0.75, 0.2, 63.0, -1.5, 3.0, 1.0, 100.0)]

    def add(a, b, ty):
        return rounded(Fraction(a) + Fraction(b), ty)

    def mul(a, b, ty):
        return rounded(Fraction(a) * Fraction(b), ty)

    out = []
    for a, b in zip(x, y):
        out += [add(a, b, "f16"), mul(a, b, "f16"), fma(a, b, a, "f16"), add(a, -b, "f16"), min(a, b)]
        out.append(rounded(f32(a * 1.0009765625), "f16", "rz"))
    yield Run("half_ops").input("f16", x).input("f16", y).output("f16", out).value("s32", len(x))
    out = []
    for i in range(0, len(x), 2):
        pairs = list(zip(x[i : i + 2], y[i : i + 2]))
        out += [add(a, b, "f16") for a, b in pairs]
        out += [fma(a, b, b, "f16") for a, b in pairs]
        out += [min(max(mul(a, b, "f16"), 0.0), 1.0) for a, b in pairs]
        out += [rounded(f32(x[i] + 1), "f16"), rounded(f32(y[i + 1] - 1), "f16")]
    yield Run("half2_ops").input("f16", x).input("f16", y).output("f16", out).value("s32", len(x) // 2)
    if file.arch == "sm_75":
        return
    x = [rounded(v, "bf16") for v in (1.0, -2.5, 0.1, 1000.0, 3.14, -0.333, 257.0, 1e-3)]
    y = [rounded(v, "bf16") for v in (2.0, 0.75, 0.2, 63.0, -1.5, 3.0, 1.0, 100.0)]
    out, wide = [], []
    for a, b in zip(x, y):
        out += [add(a, b, "bf16"), mul(a, b, "bf16"), fma(a, b, a, "bf16"), max(a, b), -a, rounded(f32(a + 0.125), "bf16")]
        wide.append(f32(a * b))
    yield Run("bfloat_ops").input("bf16", x).input("bf16", y).output("bf16", out).output("f32", wide).value("s32", len(x))
    out = []
    for i in range(0, len(x), 2):
        pairs = list(zip(x[i : i + 2], y[i : i + 2]))
        out += [add(a, b, "bf16") for a, b in pairs]
        out += [max(fma(a, b, a, "bf16"), 0.0) for a, b in pairs]
        out += [min(a, b) for a, b in pairs]
    yield Run("bfloat2_ops").input("bf16", x).input("bf16", y).output("bf16", out).value("s32", len(x) // 2)


@kernels("nvcc/math")
def math_library(file):
    x = [0.0, 0.5, -0.5, 1.0, -1.75, 2.25, 3.0, -3.0]
    out = []
    for a in x:
        out += [math.sin(a), math.cos(a), math.exp(a), math.log(abs(a) + 1), math.tanh(a), 1 / math.sqrt(abs(a) + 0.5)]
        out += [(abs(a) + 0.25) ** 1.5, math.erf(a), 2**a + math.log2(abs(a) + 2), math.atan2(a, 2)]
    close = {"rel": "1e-3", "abs": "1e-3"} if file.has("fast") else {"rel": "1e-6", "abs": "1e-6"}
    yield Run("math_float").input("f32", x).output("f32", [f32(v) for v in out], **close).value("s32", len(x))
    out = []
    for a in x:
        out += [math.sin(a), math.exp(a), math.log(abs(a) + 1), math.sqrt(abs(a)) / (1 + a * a)]
    yield Run("math_double").input("f64", x).output("f64", out, rel="1e-14", abs="1e-14").value("s32", len(x))
