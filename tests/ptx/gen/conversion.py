"""cvt: between integers, between floats, and across."""

from fractions import Fraction

from . import floats
from .file import File, signed
from .floats import BF16, E4M3, E5M2, F16, F32, F64, NAN, TF32
from .integer import clamp, corners, read

INTS = ("u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64")


def integers():
    f = File("cvt/integers", "Integer widths: truncation, zero and sign extension.")
    g = File("cvt/integers_sat", "Integer widths with .sat: the value is clamped to the destination's range.")
    for src in INTS:
        width = int(src[1:])
        values = corners(width) + [100, (1 << width) - 100, 0x5A, 0xA5 & ((1 << width) - 1)]
        if width > 8:
            values += [127, 128, 255, 256, (1 << width) - 128, (1 << width) - 129]
        if width > 16:
            values += [32767, 32768, 65535, 65536, (1 << width) - 32768, (1 << width) - 32769]
        if width > 32:
            values += [2**31 - 1, 2**31, 2**32 - 1, 2**32, (1 << width) - 2**31, (1 << width) - 2**31 - 1]
        for dst in INTS:
            if src == dst:
                continue
            k = f.map(f"{dst}_{src}", [src], [dst], f"cvt.{dst}.{src} d, a;")
            f.case(k, "truncate", [values], [[read(x, src) for x in values]])
            if clamp(clamp(-(1 << 70), src), dst) == clamp(-(1 << 70), src) and clamp(1 << 70, src) <= clamp(1 << 70, dst):
                continue  # nothing to clamp, and .sat is refused
            k = g.map(f"{dst}_{src}", [src], [dst], f"cvt.sat.{dst}.{src} d, a;")
            g.case(k, "clamp", [values], [[clamp(read(x, src), dst) for x in values]])
    yield f
    yield g


def nan_as_integer(src, dst):
    """What a NaN converts to: zero, or the lone top bit where a 64-bit type takes part."""
    if src.name == "f64" or dst in ("u64", "s64"):
        return 1 << (int(dst[1:]) - 1)
    return 0


def float_to_int():
    f = File("cvt/float_to_int", "Float to integer: four roundings, out of range clamps, NaN is 0 or, with 64 bits involved, the top bit.")
    for src in (F32, F64, F16):
        numbers = [0.0, 0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 0.49, 0.51, -0.51, 1.0, -1.0, 126.5, 127.5, 254.5, 255.5, -128.5, 32766.5, 65503.0]
        if src is not F16:
            numbers += [32767.5, 65535.5, -32768.5, 2.0**31, 2.0**32, -(2.0**31), -(2.0**33), 2.0**63, -(2.0**63), 2.0**64, 1e20, -1e20]
        if src is F64:
            numbers += [2147483646.5, 2147483647.5, 4294967294.5, -2147483648.5, 9007199254740993.0]
        inputs = [src.of(x) for x in numbers] + [src.of(x) for x in ("-0", "inf", "-inf", "min", "-min", "max", "-max")]
        for dst in ("u16", "s16", "u32", "s32", "u64", "s64"):
            for mode in ("rni", "rzi", "rmi", "rpi"):
                if mode in ("rmi", "rpi") and dst in ("u16", "s16"):
                    continue
                def one(x):
                    if src.is_inf(x):
                        return clamp(-(10**40) if src.negative(x) else 10**40, dst)
                    return clamp(floats.integral(src.value(x), mode), dst)
                k = f.map(f"{mode}_{dst}_{src.name}", [src.name], [dst], f"cvt.{mode}.{dst}.{src.name} d, a;")
                f.case(k, "all", [inputs], [[one(x) for x in inputs]])
        for dst in ("u32", "s32", "u64", "s64"):
            f.case(f"rzi_{dst}_{src.name}", "nan", [[src.of("nan")]], [[nan_as_integer(src, dst)]])
    k = f.map("rni_ftz_s32_f32", ["f32"], ["s32"], "cvt.rpi.ftz.s32.f32 d, a;")
    f.case(k, "subnormals", [[F32.of(x) for x in ("min", "sub", "norm", "-min")]], [[0, 0, 1, 0]])
    k = f.map("rzi_s32_bf16", ["bf16"], ["s32"], "cvt.rzi.s32.bf16 d, a;")
    xs = [BF16.of(x) for x in (0, 1.5, -1.5, 300, -0.99, 2.0**31, -(2.0**40), "inf", "-inf")]
    f.case(k, "all", [xs], [[clamp(10**40 * (-1 if BF16.negative(x) else 1) if BF16.is_inf(x) else floats.integral(BF16.value(x), "rzi"), "s32") for x in xs]])
    yield f


def int_to_float():
    f = File("cvt/int_to_float", "Integer to float: every rounding where the integer does not fit the fraction, overflow to infinity in f16.")
    for src in ("u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64"):
        width = int(src[1:])
        values = corners(width) + [100, (1 << width) - 100]
        if width >= 16:
            values += [2049, 2050, 2051, 4098, 4102, 4095, 65519, 65520]
        if width >= 32:
            values += [2**24 + 1, 2**24 + 3, 2**25 + 2, 2**31 + 128, 2**31 + 129, 0xFFFFFF7F, 0xFFFFFF80]
        if width == 64:
            values += [2**53 + 1, 2**53 + 3, 2**63 + 1024, 2**63 + 1025, 2**40 + 2**16, 2**40 + 2**16 + 1]
        for dst in (F32, F64, F16):
            modes = ("rn", "rz", "rm", "rp") if width >= 32 or dst is F16 and width == 16 else ("rn",)
            for mode in modes:
                k = f.map(f"{mode}_{dst.name}_{src}", [src], [dst.name], f"cvt.{mode}.{dst.name}.{src} d, a;")
                f.case(k, "all", [values], [[dst.round(read(x, src), mode) for x in values]])
    for src in ("s32", "u16"):
        values = corners(int(src[1:])) + [257, 258, 259, 260, 65407]
        k = f.map(f"rn_bf16_{src}", [src], ["bf16"], f"cvt.rn.bf16.{src} d, a;")
        f.case(k, "all", [values], [[BF16.round(read(x, src)) for x in values]])
    yield f


def float_to_float():
    f = File("cvt/float_to_float", """Float to float: widening is exact, narrowing rounds in every mode and overflows or
goes subnormal, same-width forms round to an integral value or saturate.""")
    hard = [1.0, 1 / 3, 0.1, -0.1, 1 + 2.0**-11, 1 + 3 * 2.0**-11, 1 + 2.0**-24, 1 + 3 * 2.0**-24, 65504.0, 65519.99, 65520.0, -65520.0,
            2.0**-24, 2.0**-25, 1.5 * 2.0**-25, 2.0**-26, 5.96e-8, 1e-5, 3.0e38, 1e-40, 2.0**-150, 1.5 * 2.0**-150, -(2.0**-149)]
    for src, dst, modes in ((F32, F16, ("rn", "rz")), (F64, F16, ("rn", "rz", "rm", "rp")), (F64, F32, ("rn", "rz", "rm", "rp")),
                            (F32, BF16, ("rn", "rz")), (F16, F32, ("",)), (F16, F64, ("",)), (F32, F64, ("",)), (BF16, F32, ("",))):
        inputs = [src.of(x) for x in hard] + [src.of(x) for x in ("0", "-0", "inf", "-inf", "nan", "max", "-max", "min", "sub", "norm")]
        if src is F64:
            inputs += [src.of(x) for x in (3.4028235677973366e38, 3.5e38, 1e300, 1 + 2.0**-24 + 2.0**-50)]
        for mode in modes:
            k = f.map(f"{mode + '_' if mode else ''}{dst.name}_{src.name}", [src.name], [dst.name],
                      f"cvt{'.' + mode if mode else ''}.{dst.name}.{src.name} d, a;")
            f.case(k, "all", [inputs], [[floats.convert(src, dst, x, mode or "rn") for x in inputs]])
    for t in (F32, F64, F16):
        numbers = [t.of(x) for x in (0.5, 1.5, 2.5, -0.5, -1.5, 0.49, -0.2, 1023.75, -1023.75)] + [t.of(x) for x in ("0", "-0", "inf", "-inf", "nan", "min", "-min", "max")]
        for mode in ("rni", "rzi", "rmi", "rpi"):
            def one(x):
                if t.is_nan(x):
                    return NAN
                if t.is_inf(x):
                    return x
                return t.round(floats.integral(t.value(x), mode), negative_zero=t.negative(x))
            k = f.map(f"{mode}_{t.name}", [t.name], [t.name], f"cvt.{mode}.{t.name}.{t.name} d, a;")
            f.case(k, "integral", [numbers], [[one(x) for x in numbers]])
        k = f.map(f"sat_{t.name}", [t.name], [t.name], f"cvt.sat.{t.name}.{t.name} d, a;")
        f.case(k, "clamp", [numbers], [[floats.saturate(t, x) for x in numbers]])
    # ftz on the f32 side
    xs = [F32.of(x) for x in ("min", "-sub", "norm", 1, "-0")]
    k = f.map("ftz_f64_f32", ["f32"], ["f64"], "cvt.ftz.f64.f32 d, a;")
    f.case(k, "subnormal-input", [xs], [[floats.convert(F32, F64, F32.flush(x)) for x in xs]])
    ys = [F64.round(Fraction(x) * Fraction(2) ** -140) for x in (1, -3)] + [F64.of(1), F64.round(Fraction(2) ** -126)]
    k = f.map("rn_ftz_f32_f64", ["f64"], ["f32"], "cvt.rn.ftz.f32.f64 d, a;")
    f.case(k, "subnormal-result", [ys], [[F32.flush(floats.convert(F64, F32, y)) for y in ys]])
    # relu and satfinite
    xs = [F32.of(x) for x in (1.5, -1.5, "-0", "inf", "-inf", "nan", 0.1, -1e-30)]
    for dst in (F16, BF16):
        k = f.map(f"rn_relu_{dst.name}_f32", ["f32"], [dst.name], f"cvt.rn.relu.{dst.name}.f32 d, a;")
        f.case(k, "relu", [xs], [[floats.relu(dst, r) if r != NAN else NAN for r in (floats.convert(F32, dst, x) for x in xs)]])
    yield f


def packed():
    f = File("cvt/packed", "Two values in one register: the first operand goes to the upper half.")
    a = [F32.of(x) for x in (1, 1 / 3, 65520.0, "nan", "-0", 1 + 2.0**-11, -2.5, 1e-8)]
    b = [F32.of(x) for x in (2, -0.1, "-inf", 3, "inf", 1 + 3 * 2.0**-11, 1e-6, 3.39e38)]
    for t in (F16, BF16):
        for mode in ("rn", "rz"):
            for relu in ("", ".relu"):
                k = f.map(f"{mode}{relu[1:]}_{t.name}x2", ["f32", "f32"], [t.name + "x2"], f"cvt.{mode}{relu}.{t.name}x2.f32 d, a, b;")
                out = []
                for x, y in zip(a, b):
                    for v in (y, x):
                        r = floats.convert(F32, t, v, mode)
                        out.append(floats.relu(t, r) if relu and r != NAN else r)
                f.case(k, "pairs", [a, b], [out])
    yield f

    f = File("cvt/tf32", "f32 to tf32: nearest with ties away (rna) and to even (rn), and truncation; the low 13 bits are masked off.")
    xs = [F32.of(x) for x in (1, 1 / 3, -1 / 3, 1 + 2.0**-11, 1 + 3 * 2.0**-11, -1 - 2.0**-11, 1 + 2.0**-11 + 2.0**-20, 1e20, "0", "-0", "inf", "-inf", 0.1)]
    for mode in ("rna", "rn", "rz"):
        k = f.map(mode, ["f32"], ["b32"], f"cvt.{mode}.tf32.f32 d, a;\nand.b32 d, d, 0xffffe000;")
        f.case(k, "all", [xs], [[floats.convert(F32, TF32, x, mode) << 13 for x in xs]])
    yield f


def fp8():
    f = File("cvt/fp8", """e4m3x2 and e5m2x2: to and from pairs of f32 and f16, nearest even, out of range saturates to the largest
finite number, NaN stays NaN.""", version="8.1")
    for t in (E4M3, E5M2):
        top = float(t.value(t.largest()))
        step = top / (14 if t is E4M3 else 7)
        numbers = [0.0, 1.0, -1.0, 0.3, 1.0625, 1.1875, 1.125, 1.375, top, top + step / 2, top * 4, -top * 4, 448.0, 464.0, 480.0,
                   2.0**-6, 2.0**-9, 2.0**-10, 1.5 * 2.0**-10, 2.0**-11, 2.0**-16, 2.0**-17, 1.5 * 2.0**-17, 0.1]
        names = ["-0", "inf", "-inf", "nan"]
        def narrow(src, x, relu=False):
            if src.is_nan(x):
                return t.nan() if t is E4M3 else 0x7F
            if relu and src.negative(x):
                return 0
            if src.is_inf(x):
                return t.largest(src.negative(x))
            r = t.round(src.value(x), "rn", src.negative(x))
            return r if t.is_finite(r) else t.largest(src.negative(x))
        for relu in ("", ".relu"):
            tag = relu[1:] + ("_" if relu else "")
            xs = [F32.of(x) for x in numbers + names]
            ys = xs[::-1]
            k = f.map(f"{tag}{t.name}x2_f32", ["f32", "f32"], ["b8x2"], f"cvt.rn.satfinite{relu}.{t.name}x2.f32 d, a, b;")
            f.case(k, "all", [xs, ys], [[v for x, y in zip(xs, ys) for v in (narrow(F32, y, relu), narrow(F32, x, relu))]])
            hs = [F16.of(x) for x in numbers + names]
            k = f.map(f"{tag}{t.name}x2_f16x2", ["f16x2"], ["b8x2"], f"cvt.rn.satfinite{relu}.{t.name}x2.f16x2 d, a;")
            f.case(k, "all", [hs], [[narrow(F16, x, relu) for x in hs]])
            every = list(range(256))
            k = f.map(f"{tag}f16x2_{t.name}x2", ["b8x2"], ["f16x2"], f"cvt.rn{relu}.f16x2.{t.name}x2 d, a;")
            def widen(x):
                r = NAN if t.is_nan(x) else F16.inf(t.negative(x)) if t.is_inf(x) else F16.round(t.value(x), "rn", t.negative(x))
                return floats.relu(F16, r) if relu and r != NAN else r
            for part, chunk in (("low", every[:128]), ("high", every[128:])):
                f.case(k, f"every-{part}", [chunk], [[widen(x) for x in chunk]])
    yield f


def files():
    yield from integers()
    yield from float_to_int()
    yield from int_to_float()
    yield from float_to_float()
    yield from packed()
    yield from fp8()


__all__ = ["files", "signed"]
