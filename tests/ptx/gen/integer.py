"""Integer arithmetic: add, sub, mul, mad, carries, div, rem, min, max, abs, neg, sad, mul24, dot products."""

import random

from .file import File, pairs, signed


def corners(width):
    top = 1 << (width - 1)
    return [0, 1, 2, top - 1, top, top + 1, (1 << width) - 1]


def randoms(seed, width, n=16):
    source = random.Random(seed)
    return [source.getrandbits(width) >> source.choice([0, 0, 0, width // 2]) for _ in range(n)]


def read(x, type_):
    """The value a bit pattern has in a type."""
    width = int(type_[1:])
    return signed(x, width) if type_[0] == "s" else x & ((1 << width) - 1)


def clamp(x, type_):
    width = int(type_[1:])
    low, high = (-(1 << (width - 1)), (1 << (width - 1)) - 1) if type_[0] == "s" else (0, (1 << width) - 1)
    return max(low, min(high, x))


def binary(file, name, type_, op, fn, out=None, themes=("ordinary", "corners")):
    """Two operands; `fn` sees values, its result is wrapped to the output type."""
    width = int(type_[1:])
    kernel = file.map(name, [type_, type_], [out or type_], f"{op} d, a, b;")
    for theme in themes:
        if theme == "ordinary":
            a, b = randoms(name + "a", width), randoms(name + "b", width)
        else:
            a, b = pairs(corners(width), corners(width))
        expected = [fn(read(x, type_), read(y, type_)) for x, y in zip(a, b)]
        file.case(kernel, theme, [a, b], [expected])


def add_sub():
    f = File("integer/add_sub", "add and sub in every width, with wrap-around, and with .sat where it exists.")
    for type_ in ("u16", "s16", "u32", "s32", "u64", "s64"):
        binary(f, f"add_{type_}", type_, f"add.{type_}", lambda x, y: x + y, themes=("corners",))
        binary(f, f"sub_{type_}", type_, f"sub.{type_}", lambda x, y: x - y, themes=("corners",))
    binary(f, "add_sat_s32", "s32", "add.sat.s32", lambda x, y: clamp(x + y, "s32"))
    binary(f, "sub_sat_s32", "s32", "sub.sat.s32", lambda x, y: clamp(x - y, "s32"))
    yield f

    f = File("integer/packed", "16-bit pairs in one register: add, min, max, and their .relu forms.")
    a, b = pairs(corners(16), corners(16))
    a, b = a + [7], b + [9]
    for type_, lane in (("u16x2", "u16"), ("s16x2", "s16")):
        for op, fn in (("add", lambda x, y: x + y), ("min", min), ("max", max)):
            k = f.map(f"{op}_{type_}", [type_, type_], [type_], f"{op}.{type_} d, a, b;")
            f.case(k, "corners", [a, b], [[fn(read(x, lane), read(y, lane)) for x, y in zip(a, b)]])
    for op, fn in (("min", min), ("max", max)):
        k = f.map(f"{op}_relu_s16x2", ["s16x2", "s16x2"], ["s16x2"], f"{op}.relu.s16x2 d, a, b;")
        f.case(k, "corners", [a, b], [[max(0, fn(read(x, "s16"), read(y, "s16"))) for x, y in zip(a, b)]])
        a32, b32 = pairs(corners(32), corners(32))
        k = f.map(f"{op}_relu_s32", ["s32", "s32"], ["s32"], f"{op}.relu.s32 d, a, b;")
        f.case(k, "corners", [a32, b32], [[max(0, fn(read(x, "s32"), read(y, "s32"))) for x, y in zip(a32, b32)]])
    yield f


def multiply():
    f = File("integer/mul", "mul.lo, mul.hi and mul.wide.")
    for type_ in ("u16", "s16", "u32", "s32", "u64", "s64"):
        width = int(type_[1:])
        binary(f, f"mul_lo_{type_}", type_, f"mul.lo.{type_}", lambda x, y: x * y, themes=("corners",))
        binary(f, f"mul_hi_{type_}", type_, f"mul.hi.{type_}", lambda x, y, w=width: (x * y) >> w)
        if width < 64:
            wide = type_[0] + str(2 * width)
            binary(f, f"mul_wide_{type_}", type_, f"mul.wide.{type_}", lambda x, y: x * y, out=wide, themes=("corners",))
    yield f

    f = File("integer/mad", "mad.lo, mad.hi, mad.wide and mad.hi.sat.")
    for type_ in ("u16", "s16", "u32", "s32", "u64", "s64"):
        width = int(type_[1:])
        a, b = pairs(corners(width), corners(width))
        c = [corners(width)[(i * 3) % 7] for i in range(len(a))]
        va, vb, vc = ([read(x, type_) for x in v] for v in (a, b, c))
        k = f.map(f"mad_lo_{type_}", [type_] * 3, [type_], f"mad.lo.{type_} d, a, b, c;")
        f.case(k, "corners", [a, b, c], [[x * y + z for x, y, z in zip(va, vb, vc)]])
        k = f.map(f"mad_hi_{type_}", [type_] * 3, [type_], f"mad.hi.{type_} d, a, b, c;")
        f.case(k, "corners", [a, b, c], [[((x * y) >> width) + z for x, y, z in zip(va, vb, vc)]])
        if width < 64:
            wide = type_[0] + str(2 * width)
            cw = [corners(2 * width)[(i * 5) % 7] for i in range(len(a))]
            k = f.map(f"mad_wide_{type_}", [type_, type_, wide], [wide], f"mad.wide.{type_} d, a, b, c;")
            f.case(k, "corners", [a, b, cw], [[x * y + read(z, wide) for x, y, z in zip(va, vb, cw)]])
    a, b = pairs(corners(32), corners(32))
    c = [corners(32)[(i * 3) % 7] for i in range(len(a))]
    k = f.map("mad_hi_sat_s32", ["s32"] * 3, ["s32"], "mad.hi.sat.s32 d, a, b, c;")
    f.case(k, "corners", [a, b, c],
           [[clamp(((read(x, "s32") * read(y, "s32")) >> 32) + read(z, "s32"), "s32") for x, y, z in zip(a, b, c)]])
    yield f

    f = File("integer/mul24", "The 24-bit multiplies: operands are the low 24 bits, sign- or zero-extended.")
    values = [0, 1, 0x7FFFFF, 0x800000, 0xFFFFFF, 0x1000001, 0xFFFFFFFF, 0x123456]
    a, b = pairs(values, values)
    c = [values[(3 * i) % 8] for i in range(64)]
    for type_ in ("u32", "s32"):
        def low24(x):
            return signed(x, 24) if type_ == "s32" else x & 0xFFFFFF
        products = [low24(x) * low24(y) for x, y in zip(a, b)]
        for half in ("lo", "hi"):
            parts = [p if half == "lo" else p >> 16 for p in products]
            k = f.map(f"mul24_{half}_{type_}", [type_] * 2, [type_], f"mul24.{half}.{type_} d, a, b;")
            f.case(k, "corners", [a, b], [parts])
            k = f.map(f"mad24_{half}_{type_}", [type_] * 3, [type_], f"mad24.{half}.{type_} d, a, b, c;")
            f.case(k, "corners", [a, b, c], [[p + z for p, z in zip(parts, c)]])
    sat = [clamp(((signed(x, 24) * signed(y, 24)) >> 16) + signed(z, 32), "s32") for x, y, z in zip(a, b, c)]
    k = f.map("mad24_hi_sat_s32", ["s32"] * 3, ["s32"], "mad24.hi.sat.s32 d, a, b, c;")
    f.case(k, "corners", [a, b, c], [sat])
    yield f


def carries():
    f = File("integer/carry", "Carry chains: add.cc/addc, sub.cc/subc, mad.cc/madc, over 128 bits.")
    mask = (1 << 64) - 1
    values = [0, 1, mask, 1 << 63, 0x00000000FFFFFFFF, 0xFFFFFFFF00000000]
    lo_a, lo_b = pairs(values, values)
    hi_a = [values[(5 * i) % 6] for i in range(36)]
    hi_b = [values[(i // 2) % 6] for i in range(36)]
    whole_a = [h << 64 | l for h, l in zip(hi_a, lo_a)]
    whole_b = [h << 64 | l for h, l in zip(hi_b, lo_b)]
    regs = [".u32 w<4>, x<4>, y<4>"]
    split = "mov.b64 {x0, x1}, a;\nmov.b64 {x2, x3}, b;\nmov.b64 {y0, y1}, c;\nmov.b64 {y2, y3}, e;\n"
    join = "mov.b64 d, {w0, w1};\nmov.b64 d1, {w2, w3};"
    for name, ops in (("add", ("add.cc", "addc.cc", "addc.cc", "addc")), ("sub", ("sub.cc", "subc.cc", "subc.cc", "subc"))):
        body = split + "".join(f"{op}.u32 w{i}, x{i}, y{i};\n" for i, op in enumerate(ops)) + join
        k = f.map(f"{name}_128_by_32", ["u64"] * 4, ["u64", "u64"], body, regs)
        whole = [x + y if name == "add" else x - y for x, y in zip(whole_a, whole_b)]
        f.case(k, "carries", [lo_a, hi_a, lo_b, hi_b], [[w & mask for w in whole], [(w >> 64) & mask for w in whole]])
        body = f"{ops[0]}.u64 d, a, c;\n{ops[-1]}.u64 d1, b, e;"
        k = f.map(f"{name}_128_by_64", ["u64"] * 4, ["u64", "u64"], body)
        f.case(k, "carries", [lo_a, hi_a, lo_b, hi_b], [[w & mask for w in whole], [(w >> 64) & mask for w in whole]])
    # The carry itself as a value: addc 0, 0.
    k = f.map("carry_out", ["u32", "u32"], ["u32", "u32"], "add.cc.u32 d, a, b;\naddc.u32 d1, 0, 0;")
    a, b = pairs(corners(32), corners(32))
    f.case(k, "corners", [a, b], [[x + y for x, y in zip(a, b)], [(x + y) >> 32 for x, y in zip(a, b)]])
    k = f.map("borrow_out", ["u32", "u32"], ["u32", "u32"], "sub.cc.u32 d, a, b;\nsubc.u32 d1, 0, 0;")
    f.case(k, "corners", [a, b], [[x - y for x, y in zip(a, b)], [-(x < y) for x, y in zip(a, b)]])
    # 64 x 64 -> 128 from 32-bit multiplies.
    body = """mov.b64 {x0, x1}, a;
mov.b64 {y0, y1}, b;
mul.lo.u32 w0, x0, y0;
mul.hi.u32 w1, x0, y0;
mad.lo.cc.u32 w1, x0, y1, w1;
madc.hi.u32 w2, x0, y1, 0;
mad.lo.cc.u32 w1, x1, y0, w1;
madc.hi.cc.u32 w2, x1, y0, w2;
addc.u32 w3, 0, 0;
mad.lo.cc.u32 w2, x1, y1, w2;
madc.hi.u32 w3, x1, y1, w3;
mov.b64 d, {w0, w1};
mov.b64 d1, {w2, w3};"""
    k = f.map("mul_64_by_32", ["u64", "u64"], ["u64", "u64"], body, regs)
    products = [x * y for x, y in zip(lo_a, lo_b)]
    f.case(k, "corners", [lo_a, lo_b], [[p & mask for p in products], [p >> 64 for p in products]])
    k = f.map("mad_cc_64", ["u64"] * 3, ["u64", "u64"], "mad.lo.cc.u64 d, a, b, c;\nmadc.hi.u64 d1, a, b, 0;")
    sums = [x * y + z for x, y, z in zip(lo_a, lo_b, hi_a)]
    f.case(k, "corners", [lo_a, lo_b, hi_a], [[s & mask for s in sums], [(s >> 64) & mask for s in sums]])
    yield f


def divide():
    f = File("integer/div_rem", """div and rem in every width, truncating towards zero; the remainder takes the dividend's sign.
By zero the result is unspecified; that is rules/X020-*.""")
    for type_ in ("u16", "s16", "u32", "s32", "u64", "s64"):
        width = int(type_[1:])
        dividends = corners(width) + [100, (1 << width) - 100]
        divisors = [d for d in corners(width) if d] + [7, (1 << width) - 7]
        a, b = pairs(dividends, divisors)
        quotients, remainders = [], []
        for x, y in zip(a, b):
            x, y = read(x, type_), read(y, type_)
            q = abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)
            quotients.append(q)
            remainders.append(x - q * y)
        k = f.map(f"div_{type_}", [type_] * 2, [type_], f"div.{type_} d, a, b;")
        f.case(k, "corners", [a, b], [quotients])
        k = f.map(f"rem_{type_}", [type_] * 2, [type_], f"rem.{type_} d, a, b;")
        f.case(k, "corners", [a, b], [remainders])
    yield f


def unary_and_select():
    f = File("integer/min_max_abs_neg", "min, max, abs, neg and sad.")
    for type_ in ("u16", "s16", "u32", "s32", "u64", "s64"):
        binary(f, f"min_{type_}", type_, f"min.{type_}", min, themes=("corners",))
        binary(f, f"max_{type_}", type_, f"max.{type_}", max, themes=("corners",))
        width = int(type_[1:])
        a, b = pairs(corners(width), corners(width))
        c = [corners(width)[(i * 3) % 7] for i in range(len(a))]
        k = f.map(f"sad_{type_}", [type_] * 3, [type_], f"sad.{type_} d, a, b, c;")
        f.case(k, "corners", [a, b, c], [[abs(read(x, type_) - read(y, type_)) + z for x, y, z in zip(a, b, c)]])
        if type_[0] == "s":
            values = corners(width) + [5, -5 & ((1 << width) - 1)]
            k = f.map(f"abs_{type_}", [type_], [type_], f"abs.{type_} d, a;")
            f.case(k, "corners", [values], [[abs(read(x, type_)) for x in values]])
            k = f.map(f"neg_{type_}", [type_], [type_], f"neg.{type_} d, a;")
            f.case(k, "corners", [values], [[-read(x, type_) for x in values]])
    yield f


def dot_products():
    f = File("integer/dot", "dp4a and dp2a in every mix of signs.")
    rng = random.Random("dot")
    a = [rng.getrandbits(8) for _ in range(56)] + [0x80] * 4 + [0xFF] * 4
    b = [rng.getrandbits(8) for _ in range(56)] + [0x80, 0x7F, 0xFF, 0] * 2
    c = [0, 1, 0xFFFFFFFF, 0x7FFFFFFF, 0x80000000] + [rng.getrandbits(32) for _ in range(11)]
    for ta in ("u32", "s32"):
        for tb in ("u32", "s32"):
            element = {"u32": "b8x4", "s32": "s8x4"}
            out = "u32" if ta == tb == "u32" else "s32"
            ra, rb = ta[0] + "8", tb[0] + "8"
            k = f.map(f"dp4a_{ta}_{tb}", [element[ta], element[tb], out], [out], f"dp4a.{ta}.{tb} d, a, b, c;")
            sums = [c[i] + sum(read(a[4 * i + j], ra) * read(b[4 * i + j], rb) for j in range(4)) for i in range(16)]
            f.case(k, "mixed", [a, b, c], [sums])
            half = {"u32": "u16x2", "s32": "s16x2"}
            wide = [rng.getrandbits(16) for _ in range(28)] + [0x8000, 0x7FFF, 0xFFFF, 0x8000]
            for part, start in (("lo", 0), ("hi", 2)):
                k = f.map(f"dp2a_{part}_{ta}_{tb}", [half[ta], element[tb], out], [out], f"dp2a.{part}.{ta}.{tb} d, a, b, c;")
                sums = [
                    c[i] + sum(read(wide[2 * i + j], ta[0] + "16") * read(b[4 * i + start + j], rb) for j in range(2))
                    for i in range(16)
                ]
                f.case(k, "mixed", [wide, b, c], [sums])
    yield f


def files():
    yield from add_sub()
    yield from multiply()
    yield from carries()
    yield from divide()
    yield from unary_and_select()
    yield from dot_products()
