"""setp, set, selp, slct: every operator on every type, with NaN."""

from . import floats
from .file import File, FORMATS, pairs
from .floats import BF16, F16, F32, F64
from .integer import corners, read

INT_OPS = {"eq": lambda x, y: x == y, "ne": lambda x, y: x != y, "lt": lambda x, y: x < y, "le": lambda x, y: x <= y,
           "gt": lambda x, y: x > y, "ge": lambda x, y: x >= y}
UNSIGNED_NAMES = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}
FLOAT_OPS = ("eq", "ne", "lt", "le", "gt", "ge", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan")

COMBINED = (("and", lambda c, q: c & q), ("or", lambda c, q: c | q), ("xor", lambda c, q: c ^ q))


def gather(ops, type_):
    """Runs every operator and packs the answers into the bits of one word."""
    lines = ["mov.u32 d, 0;"]
    for bit, op in enumerate(ops):
        lines += [f"setp.{op}.{type_} p, a, b;", f"selp.u32 t, {1 << bit}, 0, p;", "or.b32 d, d, t;"]
    return "\n".join(lines)


def float_values(fmt):
    return [fmt.of(x) for x in ("0", "-0", "min", "-min", 1, -1, "inf", "-inf", "nan")]


def predicates():
    f = File("compare/setp", "setp: each operator's answer is one bit of the result.")
    regs = [".pred p", ".u32 t"]
    for width in (16, 32, 64):
        a, b = pairs(corners(width), corners(width))
        for sign in "us":
            t = f"{sign}{width}"
            ops = list(INT_OPS) + (list(UNSIGNED_NAMES) if sign == "u" else [])
            k = f.map(f"setp_{t}", [t, t], ["u32"], gather(ops, t), regs)
            out = [sum(INT_OPS[UNSIGNED_NAMES.get(op, op)](read(x, t), read(y, t)) << i for i, op in enumerate(ops)) for x, y in zip(a, b)]
            f.case(k, "corners", [a, b], [out])
        t = f"b{width}"
        k = f.map(f"setp_{t}", [t, t], ["u32"], gather(["eq", "ne"], t), regs)
        f.case(k, "corners", [a, b], [[(x == y) | (x != y) << 1 for x, y in zip(a, b)]])
    for fmt in (F32, F64, F16, BF16):
        t = fmt.name
        a, b = pairs(float_values(fmt), float_values(fmt))
        k = f.map(f"setp_{t}", [t, t], ["u32"], gather(FLOAT_OPS, t), regs)
        f.case(k, "with-nan", [a, b], [[sum(floats.compare(fmt, op, x, y) << i for i, op in enumerate(FLOAT_OPS)) for x, y in zip(a, b)]])
    a, b = pairs(float_values(F32), float_values(F32))
    k = f.map("setp_ftz_f32", ["f32", "f32"], ["u32"], gather(FLOAT_OPS, "ftz.f32").replace(".ftz.f32", ".ftz.f32"), regs)
    f.case(k, "with-nan", [a, b],
           [[sum(floats.compare(F32, op, F32.flush(x), F32.flush(y)) << i for i, op in enumerate(FLOAT_OPS)) for x, y in zip(a, b)]])

    # p|q and the boolean with a third predicate
    for op, fn in COMBINED:
        body = f"""setp.ne.u32 q, c, 0;
setp.lt.{op}.s32 p|r, a, b, q;
selp.u32 d, 1, 0, p;
selp.u32 t, 2, 0, r;
or.b32 d, d, t;
setp.lt.{op}.s32 p|r, a, b, !q;
selp.u32 t, 4, 0, p;
or.b32 d, d, t;
selp.u32 t, 8, 0, r;
or.b32 d, d, t;"""
        k = f.map(f"setp_two_{op}", ["s32", "s32", "u32"], ["u32"], body, [".pred p, q, r", ".u32 t"])
        a, b, c = [-1, 1, -1, 1], [1, -1, 1, -1], [0, 0, 1, 1]
        out = []
        for x, y, z in zip(a, b, c):
            less = int(x < y)
            out.append(fn(less, z) | fn(1 - less, z) << 1 | fn(less, 1 - z) << 2 | fn(1 - less, 1 - z) << 3)
        f.case(k, "truth-table", [a, b, c], [out])
    for fmt, t in ((F16, "f16x2"), (BF16, "bf16x2")):
        values = float_values(fmt)
        a, b = pairs(values, values)
        a, b = a + [0], b + [0]
        for op in ("lt", "geu", "nan"):
            body = f"setp.{op}.{t} p|q, a, b;\nselp.u32 d, 1, 0, p;\nselp.u32 t, 2, 0, q;\nor.b32 d, d, t;"
            k = f.map(f"setp_{op}_{t}", [t, t], ["u32"], body, [".pred p, q", ".u32 t"])
            bits = [floats.compare(fmt, op, x, y) for x, y in zip(a, b)]
            f.case(k, "with-nan", [a, b], [[lo | hi << 1 for lo, hi in zip(bits[::2], bits[1::2])]])
        for op, fn in COMBINED:
            body = f"setp.ne.u32 r, c, 0;\nsetp.lt.{op}.{t} p|q, a, b, r;\nselp.u32 d, 1, 0, p;\nselp.u32 t, 2, 0, q;\nor.b32 d, d, t;"
            k = f.map(f"setp_lt_{op}_{t}", [t, t, "u32"], ["u32"], body, [".pred p, q, r", ".u32 t"])
            # Neither half, the low one, the high one and both are less; without the third predicate, and with it.
            a, b, c = [fmt.of(x) for x in (2, 2, 0, 2, 2, 0, 0, 0) * 2], [fmt.of(1)] * 16, [0] * 4 + [1] * 4
            less = [0, 1, 2, 3] * 2
            f.case(k, "truth-table", [a, b, c], [[fn(bits, 3 * z) for bits, z in zip(less, c)]])
    yield f


def values_from_comparisons():
    f = File("compare/set", "set: all ones or 1.0 where the comparison holds, zero elsewhere.")
    a, b = pairs(corners(32), corners(32))
    for op in ("lt", "eq"):
        for dst, yes in (("u32", 0xFFFFFFFF), ("s32", 0xFFFFFFFF), ("f32", F32.of(1))):
            k = f.map(f"set_{op}_{dst}_s32", ["s32", "s32"], [dst], f"set.{op}.{dst}.s32 d, a, b;")
            f.case(k, "corners", [a, b], [[yes if INT_OPS[op](read(x, "s32"), read(y, "s32")) else 0 for x, y in zip(a, b)]])
    for fmt in (F32, F64):
        a, b = pairs(float_values(fmt), float_values(fmt))
        for op in ("ge", "neu", "num"):
            for dst, yes in (("u32", 0xFFFFFFFF), ("f32", F32.of(1))):
                k = f.map(f"set_{op}_{dst}_{fmt.name}", [fmt.name] * 2, [dst], f"set.{op}.{dst}.{fmt.name} d, a, b;")
                f.case(k, "with-nan", [a, b], [[yes if floats.compare(fmt, op, x, y) else 0 for x, y in zip(a, b)]])
    for fmt in (F16, BF16):
        t = fmt.name
        a, b = pairs(float_values(fmt), float_values(fmt))
        for op in ("lt", "leu"):
            k = f.map(f"set_{op}_{t}_{t}", [t, t], [t], f"set.{op}.{t}.{t} d, a, b;")
            f.case(k, "with-nan", [a, b], [[fmt.of(1) if floats.compare(fmt, op, x, y) else 0 for x, y in zip(a, b)]])
            k = f.map(f"set_{op}_u32_{t}", [t, t], ["u32"], f"set.{op}.u32.{t} d, a, b;")
            f.case(k, "with-nan", [a, b], [[0xFFFFFFFF if floats.compare(fmt, op, x, y) else 0 for x, y in zip(a, b)]])
            k = f.map(f"set_{op}_{t}x2", [t + "x2", t + "x2"], [t + "x2"], f"set.{op}.{t}x2.{t}x2 d, a, b;")
            a2, b2 = a + [0], b + [0]
            f.case(k, "with-nan", [a2, b2], [[fmt.of(1) if floats.compare(fmt, op, x, y) else 0 for x, y in zip(a2, b2)]])
    body = "setp.ne.u32 q, c, 0;\nset.lt.and.u32.s32 d, a, b, q;"
    k = f.map("set_lt_and_u32_s32", ["s32", "s32", "u32"], ["u32"], body, [".pred q"])
    f.case(k, "truth-table", [[-1, 1, -1, 1], [1, -1, 1, -1], [0, 0, 1, 1]], [[0, 0, 0xFFFFFFFF, 0]])
    yield f


def selections():
    f = File("compare/select", "selp on every type, and slct, where -0.0 counts as not negative and NaN picks the second.")
    for t in ("b16", "u16", "s16", "b32", "u32", "s32", "b64", "u64", "s64", "f32", "f64"):
        width = int(t[1:])
        a, b, c = [1, 2, 3, 4], [(1 << width) - 2, 9, 8, 7], [0, 1, 0, 7]
        if t in FORMATS:
            a, b = [FORMATS[t].of(x) for x in (1, "-0", "inf", "min")], [FORMATS[t].of(x) for x in (2, 3, 4, "-inf")]
        k = f.map(f"selp_{t}", [t, t, "u32"], [t], f"setp.ne.u32 p, c, 0;\nselp.{t} d, a, b, p;", [".pred p"])
        f.case(k, "both", [a, b, c], [[x if z else y for x, y, z in zip(a, b, c)]])
    c = [0, 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF]
    for t in ("b16", "u32", "s32", "u64", "f32", "f64"):
        a, b = [1, 2, 3, 4, 5], [11, 12, 13, 14, 15]
        if t in FORMATS:
            a, b = [FORMATS[t].of(x) for x in a], [FORMATS[t].of(x) for x in b]
        k = f.map(f"slct_{t}_s32", [t, t, "s32"], [t], f"slct.{t}.s32 d, a, b, c;")
        f.case(k, "signs", [a, b, c], [[y if z >> 31 else x for x, y, z in zip(a, b, c)]])
    names = ["0", "-0", 1, -1, "min", "-min", "inf", "-inf", "nan"]
    c = [F32.of(x) for x in names]
    a, b = list(range(1, 10)), list(range(11, 20))
    k = f.map("slct_u32_f32", ["u32", "u32", "f32"], ["u32"], "slct.u32.f32 d, a, b, c;")
    f.case(k, "signs", [a, b, c], [[x if floats.compare(F32, "ge", z, 0) else y for x, y, z in zip(a, b, c)]])
    k = f.map("slct_ftz_u32_f32", ["u32", "u32", "f32"], ["u32"], "slct.ftz.u32.f32 d, a, b, c;")
    f.case(k, "signs", [a, b, c], [[x if floats.compare(F32, "ge", F32.flush(z), 0) else y for x, y, z in zip(a, b, c)]])
    yield f


def files():
    yield from predicates()
    yield from values_from_comparisons()
    yield from selections()
