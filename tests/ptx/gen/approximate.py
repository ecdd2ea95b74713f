"""Functions with a documented error. References are computed with `decimal` to 60 digits; the bounds are the PTX ISA's,
plus half a unit in the last place because the reference is itself rounded."""

from decimal import Decimal, getcontext
from fractions import Fraction

from . import floats
from .file import File
from .floats import BF16, F16, F32, F64, NAN

getcontext().prec = 60
PI = Decimal("3.14159265358979323846264338327950288419716939937510582097494459")


def dec(q):
    return Decimal(q.numerator) / Decimal(q.denominator)


def exp2(q):
    return Decimal(2) ** dec(q) if q.denominator == 1 else (dec(q) * Decimal(2).ln()).exp()


def log2(q):
    return dec(q).ln() / Decimal(2).ln()


def sine(q, shift=Decimal(0)):
    x = (dec(q) + shift) % (2 * PI)
    term, total, n = x, x, 1
    while abs(term) > Decimal(10) ** -55:
        term = -term * x * x / ((n + 1) * (n + 2))
        total += term
        n += 2
    return total


def tanh(q):
    e = (2 * dec(q)).exp()
    return (e - 1) / (e + 1)


def rsqrt(q):
    return 1 / dec(q).sqrt()


def rounded(f, d):
    return f.round(Fraction(d)) if d != 0 else 0


def unary(file, name, op, type_, fmt, plain, fn, bound, special=(), ftz=False):
    """`special` is a list of (input, exact expected); `plain` is checked within `bound`."""
    k = file.map(name, [type_], [type_], f"{op} d, a;")
    inputs = [fmt.of(x) for x in plain]
    out = [rounded(fmt, fn(fmt.value(x))) for x in inputs]
    file.case(k, "ordinary", [inputs], [out], bound)
    if special:
        xs = [fmt.of(x) for x, _ in special]
        file.case(k, "special", [xs], [[NAN if y == "nan" else fmt.of(y) for _, y in special]])


def files():
    f = File("approx/f32", "The .approx functions of f32, within the error that the PTX ISA documents, and their exact special cases.")
    plain = [0.1, 0.5, 0.999, 1.0, 1.5, 2.0, 3.14159, 7.0, 10.0, 100.0, 12345.678, 1e-5, 1e10, 1e-20, 1e30]
    both = plain + [-x for x in plain]
    angles = [0.0, 0.1, 0.5, 0.785398, 1.0, 1.5707963, 2.0, 3.0, 3.1415927, 4.0, 5.0, 6.2831853, -0.25, -1.0, -3.0, -6.0]
    powers = [0.0, 1.0, -1.0, 0.5, -0.5, 0.1, 3.7, -3.7, 10.25, 23.9, -23.9, 100.1, -100.1, 127.5, -125.9, 1e-8]
    for ftz in ("", ".ftz"):
        tag = ftz.replace(".", "_")
        unary(f, f"rcp{tag}", f"rcp.approx{ftz}.f32", "f32", F32, both, lambda q: 1 / dec(q), "ulp=1",
              [("0", "inf"), ("-0", "-inf"), ("inf", "0"), ("-inf", "-0"), ("nan", "nan"), (1, 1), (2, 0.5), (-4, -0.25)]
              + ([("min", "inf"), ("-sub", "-inf")] if ftz else []))
        unary(f, f"sqrt{tag}", f"sqrt.approx{ftz}.f32", "f32", F32, plain, lambda q: dec(q).sqrt(), "rel=1.8e-7",
              [("0", "0"), ("-0", "-0"), ("inf", "inf"), (-1, "nan"), ("-inf", "nan"), ("nan", "nan")]
              + ([("min", "0"), ("-sub", "-0")] if ftz else []))
        unary(f, f"rsqrt{tag}", f"rsqrt.approx{ftz}.f32", "f32", F32, plain, rsqrt, "rel=1.9e-7",
              [("0", "inf"), ("-0", "-inf"), ("inf", "0"), (-1, "nan"), ("-inf", "nan"), ("nan", "nan")]
              + ([("min", "inf"), ("-sub", "-inf")] if ftz else []))
        unary(f, f"sin{tag}", f"sin.approx{ftz}.f32", "f32", F32, angles, sine, "abs=7.4e-7",
              [("0", "0"), ("-0", "-0"), ("inf", "nan"), ("-inf", "nan"), ("nan", "nan")] + ([("min", "0"), ("-sub", "-0")] if ftz else []))
        unary(f, f"cos{tag}", f"cos.approx{ftz}.f32", "f32", F32, angles, lambda q: sine(q, PI / 2), "abs=7.4e-7",
              [("0", 1), ("-0", 1), ("inf", "nan"), ("-inf", "nan"), ("nan", "nan")] + ([("min", 1), ("-sub", 1)] if ftz else []))
        near = [0.501, 0.75, 0.9999, 1.0001, 1.25, 1.9]
        unary(f, f"lg2_near_one{tag}", f"lg2.approx{ftz}.f32", "f32", F32, near, log2, "abs=3e-7")
        far = [x for x in plain if not 0.5 < x < 2] + [4.0, 1024.0, 1e38]
        unary(f, f"lg2{tag}", f"lg2.approx{ftz}.f32", "f32", F32, far, log2, "rel=3e-7",
              [("0", "-inf"), ("-0", "-inf"), ("inf", "inf"), (-1, "nan"), ("-inf", "nan"), ("nan", "nan"), (1, "0")]
              + ([("min", "-inf"), ("sub", "-inf")] if ftz else []))
        unary(f, f"ex2{tag}", f"ex2.approx{ftz}.f32", "f32", F32, powers, exp2, "ulp=2",
              [("0", 1), ("-0", 1), ("inf", "inf"), ("-inf", "0"), ("nan", "nan"), (200, "inf"), (-200, "0"), ("min", 1), ("-sub", 1)]
              + ([(-127, "0"), (-140, "0")] if ftz else []))
    unary(f, "tanh", "tanh.approx.f32", "f32", F32, [0.01, 0.1, 0.5, 1.0, 2.0, 5.0, -0.1, -0.5, -1.0, -3.0], tanh, "rel=4.9e-4",
          [("0", "0"), ("-0", "-0"), ("inf", 1), ("-inf", -1), ("nan", "nan")])
    # Subnormals without ftz go in and come out.
    k = f.map("ex2_subnormal", ["f32"], ["f32"], "ex2.approx.f32 d, a;")
    xs = [F32.of(x) for x in (-127.0, -130.0, -140.0, -149.0)]
    f.case(k, "results", [xs], [[rounded(F32, exp2(F32.value(x))) for x in xs]], "ulp=2")
    k = f.map("lg2_subnormal", ["f32"], ["f32"], "lg2.approx.f32 d, a;")
    xs = [F32.of(x) for x in ("min", "sub", 2.0**-130)]
    f.case(k, "inputs", [xs], [[rounded(F32, log2(F32.value(x))) for x in xs]], "rel=3e-7")

    a = [F32.of(x) for x in (1.0, 1.0, 10.0, -7.0, 1e20, 1e-20, 3.0, 22.0, 1e30, 5.5)]
    b = [F32.of(x) for x in (3.0, -3.0, 7.0, 0.3, 1e-5, 1e10, 3.0, 7.0, 1e20, -0.1)]
    quotients = [floats.div(F32, x, y) for x, y in zip(a, b)]
    for op in ("div.approx", "div.approx.ftz", "div.full", "div.full.ftz"):
        k = f.map(op.replace(".", "_"), ["f32", "f32"], ["f32"], f"{op}.f32 d, a, b;")
        f.case(k, "ordinary", [a, b], [quotients], "ulp=2")
        sa = [F32.of(x) for x in (1, -1, "0", "inf", "inf", "nan", 1, 0)]
        sb = [F32.of(x) for x in ("0", "0", "0", "inf", 2, 1, "-inf", 5)]
        f.case(k, "special", [sa, sb], [[floats.div(F32, x, y) for x, y in zip(sa, sb)]])
    # Divisors above 2^126: div.approx underflows to zero, div.full does not.
    big = [F32.round(Fraction(3) * 2**126), F32.round(Fraction(2) ** 127), F32.of("max")]
    ones = [F32.round(Fraction(2) ** 120)] * 3
    f.case("div_approx", "huge-divisor", [ones, big], [[0, 0, 0]])
    f.case("div_full", "huge-divisor", [ones, big], [[floats.div(F32, x, y) for x, y in zip(ones, big)]], "ulp=2")
    yield f

    f = File("approx/f64", "The coarse f64 starts of Newton iterations: only the upper half of the input counts.")
    doubles = [0.1, 0.5, 1.0, 1.5, 2.0, 3.14159, 7.0, 100.0, 12345.678, 1e-100, 1e100]
    unary(f, "rcp_ftz", "rcp.approx.ftz.f64", "f64", F64, doubles + [-3.0], lambda q: 1 / dec(q), "rel=2e-6",
          [("0", "inf"), ("-0", "-inf"), ("inf", "0"), ("-inf", "-0"), ("nan", "nan")])
    unary(f, "rsqrt", "rsqrt.approx.f64", "f64", F64, doubles, rsqrt, "rel=1e-7",
          [("0", "inf"), ("-0", "-inf"), ("inf", "0"), (-1, "nan"), ("nan", "nan")])
    unary(f, "rsqrt_ftz", "rsqrt.approx.ftz.f64", "f64", F64, doubles, rsqrt, "rel=2e-6",
          [("0", "inf"), ("-0", "-inf"), ("inf", "0"), (-1, "nan"), ("nan", "nan")])
    yield f

    f = File("approx/half", "ex2 and tanh on f16, f16x2, bf16 and bf16x2.")
    for t, fmt, ex2_op, ex2_bound, tanh_bound in (
        ("f16", F16, "ex2.approx.f16", "rel=1.54e-3", "abs=7.4e-4"),
        ("f16x2", F16, "ex2.approx.f16x2", "rel=1.54e-3", "abs=7.4e-4"),
        ("bf16", BF16, "ex2.approx.ftz.bf16", "rel=9.8e-3", "abs=5.9e-3"),
        ("bf16x2", BF16, "ex2.approx.ftz.bf16x2", "rel=9.8e-3", "abs=5.9e-3"),
    ):
        unary(f, f"ex2_{t}", ex2_op, t, fmt, [0.0, 1.0, -1.0, 0.5, -0.5, 3.75, -3.75, 10.5, -10.5, 7.125], exp2, ex2_bound,
              [("0", 1), ("-0", 1), ("inf", "inf"), ("-inf", "0"), ("nan", "nan"), (3, 8)])
        unary(f, f"tanh_{t}", f"tanh.approx.{t}", t, fmt, [0.0625, 0.25, 0.5, 1.0, 2.0, -0.25, -1.0, -4.0], tanh, tanh_bound,
              [("0", "0"), ("inf", 1), ("-inf", -1), ("nan", "nan")])
    yield f
