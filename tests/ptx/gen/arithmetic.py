"""f32 and f64 arithmetic: every rounding mode, ftz, sat, and what NaN, infinity and subnormals do."""

from . import floats
from .file import File, pairs
from .floats import F32, F64, NAN

MODES = ("rn", "rz", "rm", "rp")


def specials(f):
    return [f.of(x) for x in ("0", "-0", "inf", "-inf", "nan", "snan")] + [f.of(1), f.of(-2.5)]


def ordinary(f):
    """Operands whose sums, products and quotients need rounding, ties included."""
    tiny = 2.0 ** -(f.mbits)
    half = 2.0 ** -(f.mbits + 1)
    xs = [1.0, 1 + tiny, 3.0, -1 - tiny, 0.1, -7.3, 1e10, 2.0**f.mbits, 1 + 3 * tiny]
    ys = [half, -half, 3 * half, 1 / 3, 10.0, -0.7]
    a, b = pairs(xs, ys)
    return [f.of(x) for x in a], [f.of(y) for y in b]


def edges(f):
    """Operands whose results overflow, underflow or fall among the subnormals."""
    a = ["min", "min", "sub", "-sub", "norm", "norm", "max", "max", "-max", "-min", "min", "norm"]
    b = ["min", "-min", "min", "norm", "-min", "-sub", "max", "-max", "-max", "norm", "max", "norm"]
    extra = [(f.round(f.value(f.of("norm")) * 3), f.of(0.5)), (f.of("sub"), f.of(0.5)), (f.of("norm"), f.of(0.75)),
             (f.of("max"), f.of(1.5)), (f.of("min"), f.of(0.5)), (f.of("-min"), f.of(0.75)), (f.of("max"), f.of(0.25)),
             (f.of("norm"), f.of(4)), (f.of("sub"), f.of(2)), (f.of("max"), f.of(2.0 ** 100))]
    return [f.of(x) for x in a] + [e[0] for e in extra], [f.of(x) for x in b] + [e[1] for e in extra]


def with_flush(f, fn):
    """`.ftz`: subnormal inputs and results become zeros of the same sign."""
    def flushed(*xs):
        r = fn(*[f.flush(x) for x in xs])
        return r if r == NAN else f.flush(r)
    return flushed


def rounds_to_smallest_normal(f, r, exact_mode_result):
    """Whether flushing depends on when tininess is detected; such operands are left out."""
    return r not in (NAN,) and (r & (f.sign_bit - 1)) == f.smallest_normal() and exact_mode_result != r


def binary_file(name, fn, path):
    f = File(path, f"{name}.f32 and {name}.f64: all rounding modes; ties, subnormals, overflow, NaN and infinities.")
    for fmt, t in ((F32, "f32"), (F64, "f64")):
        for mode in MODES:
            op = f"{name}.{mode}.{t}"
            k = f.map(f"{name}_{mode}_{t}", [t, t], [t], f"{op} d, a, b;")
            for theme, (a, b) in (("ordinary", ordinary(fmt)), ("edges", edges(fmt)), ("special", pairs(specials(fmt), specials(fmt)))):
                if theme == "special" and mode in ("rz", "rp"):
                    continue
                f.case(k, theme, [a, b], [[fn(fmt, x, y, mode) for x, y in zip(a, b)]])
    for mode in ("rn", "rz"):
        flushed = with_flush(F32, lambda x, y: fn(F32, x, y, mode))
        k = f.map(f"{name}_{mode}_ftz_f32", ["f32", "f32"], ["f32"], f"{name}.{mode}.ftz.f32 d, a, b;")
        a, b = edges(F32)
        keep = [(x, y) for x, y in zip(a, b)
                if not rounds_to_smallest_normal(F32, fn(F32, x, y, mode), fn(F32, x, y, "rz"))]
        a, b = [x for x, _ in keep], [y for _, y in keep]
        f.case(k, "edges", [a, b], [[flushed(x, y) for x, y in zip(a, b)]])
    if name != "div":
        values = [F32.of(x) for x in (0.25, 0.75, 1.5, -0.5, "-0", "inf", "-inf", "nan", "max", "min")]
        a, b = pairs(values, values)
        k = f.map(f"{name}_sat_f32", ["f32", "f32"], ["f32"], f"{name}.rn.sat.f32 d, a, b;")
        f.case(k, "clamp", [a, b], [[floats.saturate(F32, fn(F32, x, y)) for x, y in zip(a, b)]])
        k = f.map(f"{name}_ftz_sat_f32", ["f32", "f32"], ["f32"], f"{name}.ftz.sat.f32 d, a, b;")
        flushed = with_flush(F32, lambda x, y: fn(F32, x, y))
        f.case(k, "clamp", [a, b], [[floats.saturate(F32, flushed(x, y)) for x, y in zip(a, b)]])
    return f


def fused():
    f = File("float/fma", """fma.f32 and fma.f64: one rounding only, the sign of exact zeros, and NaN from inf*0 and inf-inf.
mad.f32 and mad.f64 are the same operation on every target since sm_20.""")
    for fmt, t in ((F32, "f32"), (F64, "f64")):
        tiny = 2.0 ** -(fmt.mbits)
        rows = [(1 + tiny, 1 - tiny, -1.0), (1 + tiny, 1 + tiny, -1 - 2 * tiny), (3.0, 1 / 3, -1.0), (0.1, 10.0, -1.0),
                (1.0, 1.0, 2.0 ** -(fmt.mbits + 1)), (1.0, -1.0, 2.0 ** -(fmt.mbits + 2)), (2.0**fmt.mbits, 2.0, 1.0),
                (2.0**fmt.mbits, 2.0, 3.0), (-7.0, 0.3, 2.1), (1.5, 1.5, 1.5), (1e15, 1e15, -1e30), (0.7, -0.7, 0.49)]
        ordinary_rows = [tuple(fmt.of(x) for x in row) for row in rows]
        names = [("0", "0", "0"), ("-0", "0", "0"), ("-0", "0", "-0"), ("0", "0", "-0"), ("-0", "-0", "-0"),
                 ("inf", "0", 1), ("0", "-inf", "nan"), ("inf", 1, "-inf"), ("inf", 1, "inf"), ("inf", -1, 5), (2, "nan", 1),
                 (1, 2, "nan"), (1, 2, "inf"), (1, 1, -1), (1, -1, 1), ("max", 2, "-inf"), ("max", 2, "-max"), ("min", 0.5, "0"),
                 ("-min", 0.5, "0"), ("min", "min", "-0"), ("norm", 0.5, "-min"), ("norm", 0.75, "sub"), ("sub", 1, "min"),
                 ("max", 1, "max"), ("-max", 1, "-max"), ("min", "min", "norm"), ("min", "-min", "norm"), ("snan", 1, 1)]
        special_rows = [tuple(fmt.of(x) for x in row) for row in names]
        for mode in MODES:
            k = f.map(f"fma_{mode}_{t}", [t] * 3, [t], f"fma.{mode}.{t} d, a, b, c;")
            for theme, rows_ in (("ordinary", ordinary_rows), ("special", special_rows)):
                f.case(k, theme, [list(v) for v in zip(*rows_)], [[floats.fma(fmt, *r, mode) for r in rows_]])
        k = f.map(f"mad_rn_{t}", [t] * 3, [t], f"mad.rn.{t} d, a, b, c;")
        f.case(k, "is-fused", [list(v) for v in zip(*ordinary_rows)], [[floats.fma(fmt, *r) for r in ordinary_rows]])
        if t == "f32":
            flushed = with_flush(fmt, lambda *r: floats.fma(fmt, *r))
            keep = [r for r in special_rows if not rounds_to_smallest_normal(fmt, floats.fma(fmt, *r), floats.fma(fmt, *r, "rz"))]
            k = f.map("fma_rn_ftz_f32", [t] * 3, [t], "fma.rn.ftz.f32 d, a, b, c;")
            f.case(k, "special", [list(v) for v in zip(*keep)], [[flushed(*r) for r in keep]])
            k = f.map("fma_rn_sat_f32", [t] * 3, [t], "fma.rn.sat.f32 d, a, b, c;")
            f.case(k, "special", [list(v) for v in zip(*special_rows)],
                   [[floats.saturate(fmt, floats.fma(fmt, *r)) for r in special_rows]])
            k = f.map("fma_rn_ftz_sat_f32", [t] * 3, [t], "fma.rn.ftz.sat.f32 d, a, b, c;")
            f.case(k, "special", [list(v) for v in zip(*keep)], [[floats.saturate(fmt, flushed(*r)) for r in keep]])
    yield f


def roots():
    f = File("float/rcp_sqrt", "rcp and sqrt, correctly rounded in every mode, over normal, subnormal and special inputs.")
    for fmt, t in ((F32, "f32"), (F64, "f64")):
        plain = [fmt.of(x) for x in (1.0, 2.0, 3.0, 0.1, 10.0, 1 / 3, 1e10, 1e-10, 1 + 2.0**-fmt.mbits, 2 - 2.0 ** -fmt.mbits, 7.25, 12345.678)]
        special = [fmt.of(x) for x in ("0", "-0", "inf", "-inf", "nan", "min", "-min", "sub", "norm", "-norm", "max", "-max", -2.0)]
        for op, fn in (("rcp", floats.rcp), ("sqrt", floats.sqrt)):
            for mode in MODES:
                k = f.map(f"{op}_{mode}_{t}", [t], [t], f"{op}.{mode}.{t} d, a;")
                f.case(k, "ordinary", [plain], [[fn(fmt, x, mode) for x in plain]])
                f.case(k, "special", [special], [[fn(fmt, x, mode) for x in special]])
            if t == "f32":
                k = f.map(f"{op}_rn_ftz_{t}", [t], [t], f"{op}.rn.ftz.{t} d, a;")
                flushed = with_flush(fmt, lambda x: fn(fmt, x))
                f.case(k, "special", [special], [[flushed(x) for x in special]])
    yield f


def signs():
    f = File("float/sign", "abs, neg, copysign and testp: operations on the sign bit and on the class of a value.")
    for fmt, t in ((F32, "f32"), (F64, "f64")):
        values = [fmt.of(x) for x in ("0", "-0", "min", "-min", "-sub", "norm", 1.5, -1.5, "max", "-max", "inf", "-inf", "nan", "-nan")]
        def keep_nan(x, r):
            return NAN if fmt.is_nan(x) else r
        k = f.map(f"abs_{t}", [t], [t], f"abs.{t} d, a;")
        f.case(k, "classes", [values], [[keep_nan(x, x & (fmt.sign_bit - 1)) for x in values]])
        k = f.map(f"neg_{t}", [t], [t], f"neg.{t} d, a;")
        f.case(k, "classes", [values], [[keep_nan(x, x ^ fmt.sign_bit) for x in values]])
        if t == "f32":
            for op, fn in (("abs", lambda x: x & 0x7FFFFFFF), ("neg", lambda x: x ^ 0x80000000)):
                k = f.map(f"{op}_ftz_f32", [t], [t], f"{op}.ftz.f32 d, a;")
                f.case(k, "classes", [values], [[keep_nan(x, fn(fmt.flush(x))) for x in values]])
        a, b = pairs(values[:12], values[:12:3])
        k = f.map(f"copysign_{t}", [t, t], [t], f"copysign.{t} d, a, b;")
        f.case(k, "pairs", [a, b], [[(x & fmt.sign_bit) | (y & (fmt.sign_bit - 1)) for x, y in zip(a, b)]])
        classes = {
            "finite": fmt.is_finite,
            "infinite": fmt.is_inf,
            "number": lambda x: not fmt.is_nan(x),
            "notanumber": fmt.is_nan,
            "normal": lambda x: fmt.is_finite(x) and not fmt.is_subnormal(x),
            "subnormal": fmt.is_subnormal,
        }
        for name, fn in classes.items():
            k = f.map(f"testp_{name}_{t}", [t], ["u32"], f"testp.{name}.{t} p, a;\nselp.u32 d, 1, 0, p;", [".pred p"])
            f.case(k, "classes", [values], [[int(fn(x)) for x in values]])
    yield f


def extremes():
    f = File("float/min_max", "min and max: NaN yields to the number unless .NaN, -0 is below +0, xorsign and ftz.")
    for fmt, t in ((F32, "f32"), (F64, "f64")):
        values = [fmt.of(x) for x in ("0", "-0", "min", "-min", 1.5, -1.5, "inf", "-inf", "nan", "max")]
        a, b = pairs(values, values)
        for op, top in (("min", False), ("max", True)):
            k = f.map(f"{op}_{t}", [t, t], [t], f"{op}.{t} d, a, b;")
            f.case(k, "pairs", [a, b], [[floats.minimum(fmt, x, y, top) for x, y in zip(a, b)]])
            if t == "f32":
                k = f.map(f"{op}_nan_f32", [t, t], [t], f"{op}.NaN.f32 d, a, b;")
                f.case(k, "pairs", [a, b], [[floats.minimum(fmt, x, y, top, nan=True) for x, y in zip(a, b)]])
                k = f.map(f"{op}_ftz_f32", [t, t], [t], f"{op}.ftz.f32 d, a, b;")
                f.case(k, "pairs", [a, b], [[floats.minimum(fmt, fmt.flush(x), fmt.flush(y), top) for x, y in zip(a, b)]])
                numbers = [v for v in values if not fmt.is_nan(v)]
                x2, y2 = pairs(numbers, numbers)
                k = f.map(f"{op}_xorsign_f32", [t, t], [t], f"{op}.xorsign.abs.f32 d, a, b;")
                f.case(k, "pairs", [x2, y2], [[floats.minimum(fmt, x, y, top, xorsign=True) for x, y in zip(x2, y2)]])
    yield f


def files():
    yield binary_file("add", floats.add, "float/add")
    yield binary_file("sub", floats.sub, "float/sub")
    yield binary_file("mul", floats.mul, "float/mul")
    yield binary_file("div", floats.div, "float/div")
    yield from fused()
    yield from roots()
    yield from signs()
    yield from extremes()
