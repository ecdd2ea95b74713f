"""f16, f16x2, bf16, bf16x2 arithmetic."""

from . import floats
from .file import File, pairs
from .floats import BF16, F16, NAN


def values(fmt):
    tiny = 2.0**-fmt.mbits
    names = ["0", "-0", 1, 1 + tiny, -1 - tiny, 3, 0.1, -0.7, tiny / 2, 1000, "max", "-max", "min", "-sub", "norm", "inf", "-inf", "nan"]
    return [fmt.of(x) for x in names]


def arithmetic(fmt):
    t = fmt.name
    f = File(f"half/{t}", f"{t} and {t}x2: add, sub, mul, fma with one rounding, sat, relu, ftz; min, max, abs, neg.")
    xs = values(fmt)
    a, b = pairs(xs, xs[::2])
    c = [xs[(7 * i) % len(xs)] for i in range(len(a))]
    for lanes in ("", "x2"):
        tt = t + lanes
        for op, fn in (("add", floats.add), ("sub", floats.sub), ("mul", floats.mul)):
            exact = [fn(fmt, x, y) for x, y in zip(a, b)]
            k = f.map(f"{op}_{tt}", [tt, tt], [tt], f"{op}{'.rn' if t == 'bf16' else ''}.{tt} d, a, b;")
            f.case(k, "pairs", [a, b], [exact])
            if t == "f16":
                k = f.map(f"{op}_sat_{tt}", [tt, tt], [tt], f"{op}.sat.{tt} d, a, b;")
                f.case(k, "pairs", [a, b], [[floats.saturate(fmt, r) for r in exact]])
                k = f.map(f"{op}_ftz_{tt}", [tt, tt], [tt], f"{op}.ftz.{tt} d, a, b;")
                kept = [(x, y) for x, y, r in zip(a, b, exact) if r == NAN or (r & (fmt.sign_bit - 1)) != fmt.smallest_normal()]
                kept = kept[: len(kept) // 2 * 2]
                flushed = [fn(fmt, fmt.flush(x), fmt.flush(y)) for x, y in kept]
                f.case(k, "pairs", [[x for x, _ in kept], [y for _, y in kept]], [[r if r == NAN else fmt.flush(r) for r in flushed]])
        exact = [floats.fma(fmt, x, y, z) for x, y, z in zip(a, b, c)]
        k = f.map(f"fma_{tt}", [tt] * 3, [tt], f"fma.rn.{tt} d, a, b, c;")
        f.case(k, "triples", [a, b, c], [exact])
        k = f.map(f"fma_relu_{tt}", [tt] * 3, [tt], f"fma.rn.relu.{tt} d, a, b, c;")
        f.case(k, "triples", [a, b, c], [[floats.relu(fmt, r) for r in exact]])
        if t == "f16":
            k = f.map(f"fma_sat_{tt}", [tt] * 3, [tt], f"fma.rn.sat.{tt} d, a, b, c;")
            f.case(k, "triples", [a, b, c], [[floats.saturate(fmt, r) for r in exact]])
        for op, top in (("min", False), ("max", True)):
            k = f.map(f"{op}_{tt}", [tt, tt], [tt], f"{op}.{tt} d, a, b;")
            f.case(k, "pairs", [a, b], [[floats.minimum(fmt, x, y, top) for x, y in zip(a, b)]])
            k = f.map(f"{op}_nan_{tt}", [tt, tt], [tt], f"{op}.NaN.{tt} d, a, b;")
            f.case(k, "pairs", [a, b], [[floats.minimum(fmt, x, y, top, nan=True) for x, y in zip(a, b)]])
            numbers = [(x, y) for x, y in zip(a, b) if not fmt.is_nan(x) and not fmt.is_nan(y)]
            numbers = numbers[: len(numbers) // 2 * 2]
            k = f.map(f"{op}_xorsign_{tt}", [tt, tt], [tt], f"{op}.xorsign.abs.{tt} d, a, b;")
            f.case(k, "pairs", [[x for x, _ in numbers], [y for _, y in numbers]],
                   [[floats.minimum(fmt, x, y, top, xorsign=True) for x, y in numbers]])
        for op, fn in (("abs", lambda x: x & (fmt.sign_bit - 1)), ("neg", lambda x: x ^ fmt.sign_bit)):
            k = f.map(f"{op}_{tt}", [tt], [tt], f"{op}.{tt} d, a;")
            f.case(k, "classes", [xs], [[NAN if fmt.is_nan(x) else fn(x) for x in xs]])
    return f


def files():
    yield arithmetic(F16)
    yield arithmetic(BF16)
