"""What sm_100 adds to arithmetic and conversions; there is no GPU of that kind to compare with, so these run on the simulator only."""

from fractions import Fraction

from . import floats
from .file import TYPES, File, Type, pairs
from .floats import F16, F32, NAN, Format

E2M1 = Format("e2m1", 4, 2, 1)
E2M3 = Format("e2m3", 6, 2, 3)
E3M2 = Format("e3m2", 6, 3, 2)
WHY = "needs sm_100"
TYPES["f32x2"] = Type("b64", "b64", 8, "f32", 2, fmt=F32)


class Simulated(File):
    """A file whose runs name a Blackwell device and stay off other GPUs."""

    def run(self, name, entry, args, expects, block=32, grid=1, **more):
        super().run(name, entry, args, expects, block, grid, device="sim:b200", gpu=WHY, **more)


def largest(t):
    """These formats have neither infinities nor NaNs: every pattern is a number."""
    return (1 << (t.ebits + t.mbits)) - 1


def all_finite(t, bits):
    s, e, m = t.parts(bits)
    magnitude = (m + ((1 << t.mbits) if e else 0)) * Fraction(2) ** ((e or 1) - t.bias - t.mbits)
    return -magnitude if s else magnitude


def narrow(t, x, relu=False):
    """f32 to a tiny format, nearest even, saturating; NaN becomes the largest positive number."""
    if F32.is_nan(x):
        return largest(t)
    sign = t.sign_bit if F32.negative(x) else 0
    if relu and sign:
        return 0
    if F32.is_inf(x):
        return sign | largest(t)
    q = abs(F32.value(x))
    patterns = sorted(range(largest(t) + 1), key=lambda p: all_finite(t, p))
    values = [all_finite(t, p) for p in patterns]
    if q >= values[-1]:
        return sign | patterns[-1]
    for low, high, p in zip(values, values[1:], patterns):
        if low <= q < high:
            middle = (low + high) / 2
            up = q > middle or (q == middle and p & 1)
            return sign | (p + 1 if up else p)
    raise AssertionError


def packed_floats():
    f = Simulated("blackwell/f32x2", "Two f32 in one 64-bit register: add, sub, mul, fma with every rounding and ftz.", target="sm_100", version="8.6")
    tiny = 2.0**-23
    xs = [F32.of(v) for v in (1, 1 + tiny, -3, 0.1, "min", "-norm", "max", "inf", "nan", "-0")]
    ys = [F32.of(v) for v in (2.0**-24, -0.7, 3 * 2.0**-24, "-inf", "sub", "0")]
    a, b = pairs(xs, ys)
    c = [xs[(3 * i) % len(xs)] for i in range(len(a))]
    for op, fn in (("add", floats.add), ("sub", floats.sub), ("mul", floats.mul)):
        for mode in ("rn", "rz", "rm", "rp"):
            k = f.map(f"{op}_{mode}", ["f32x2"] * 2, ["f32x2"], f"{op}.{mode}.f32x2 d, a, b;")
            f.case(k, "pairs", [a, b], [[fn(F32, x, y, mode) for x, y in zip(a, b)]])
    for mode in ("rn", "rz", "rm", "rp"):
        k = f.map(f"fma_{mode}", ["f32x2"] * 3, ["f32x2"], f"fma.{mode}.f32x2 d, a, b, c;")
        f.case(k, "triples", [a, b, c], [[floats.fma(F32, x, y, z, mode) for x, y, z in zip(a, b, c)]])
    yield f


def tiny_formats():
    f = Simulated("blackwell/tiny", "e2m1, e2m3 and e3m2 pairs: from f32 with saturation, and every pattern back to f16.", target="sm_100a", version="8.6")
    numbers = [0.0, 0.2, 0.25, 0.26, 0.5, 0.75, 1.0, 1.25, 1.75, 2.5, 3.0, 3.5, 5.0, 6.0, 7.0, 7.5, 7.75, 28.0, 30.0, 1000.0, 0.0625, 0.03125, 0.09375, 4.5]
    xs = [F32.of(v) for v in numbers + [-v for v in numbers]] + [F32.of(v) for v in ("-0", "inf", "-inf", "nan")]
    ys = xs[::-1]
    for t in (E2M3, E3M2):
        for relu in ("", ".relu"):
            k = f.map(f"{t.name}{relu[1:]}", ["f32", "f32"], ["b8x2"], f"cvt.rn.satfinite{relu}.{t.name}x2.f32 d, a, b;")
            f.case(k, "all", [xs, ys], [[v for x, y in zip(xs, ys) for v in (narrow(t, y, relu), narrow(t, x, relu))]])
        every = list(range(64))
        k = f.map(f"f16_{t.name}", ["b8x2"], ["f16x2"], f"cvt.rn.f16x2.{t.name}x2 d, a;")
        f.case(k, "every", [every], [[F16.round(all_finite(t, v), negative_zero=bool(v & t.sign_bit)) for v in every]])
    k = f.map("e2m1", ["f32", "f32"], ["u8"], "cvt.rn.satfinite.e2m1x2.f32 p, a, b;\ncvt.u16.u8 d, p;", [".b8 p"])
    f.case(k, "all", [xs, ys], [[narrow(E2M1, x) << 4 | narrow(E2M1, y) for x, y in zip(xs, ys)]])
    every = list(range(256))
    k = f.map("f16_e2m1", ["u8"], ["f16x2"], "cvt.u8.u16 p, a;\ncvt.rn.f16x2.e2m1x2 d, p;", [".b8 p"])
    f.case(k, "every", [every], [[F16.round(all_finite(E2M1, n), negative_zero=bool(n & 8)) for v in every for n in (v & 15, v >> 4)]])
    yield f


def three_operands():
    f = Simulated("blackwell/min_max", "min and max of three f32.", target="sm_100", version="8.8")
    values = [F32.of(v) for v in ("0", "-0", 1.5, -1.5, "inf", "-inf", "nan", "min")]
    a, b = pairs(values, values)
    c = [values[(5 * i + i // 8) % 8] for i in range(64)]
    for op, top in (("min", False), ("max", True)):
        def three(x, y, z):
            first = floats.minimum(F32, x, y, top)
            return floats.minimum(F32, F32.of("nan") if first == NAN else first, z, top)
        k = f.map(f"{op}3", ["f32"] * 3, ["f32"], f"{op}.f32 d, a, b, c;")
        f.case(k, "triples", [a, b, c], [[three(x, y, z) for x, y, z in zip(a, b, c)]])
    yield f


def files():
    yield from packed_floats()
    yield from tiny_formats()
    yield from three_operands()
