"""Logic, shifts and bit twiddling."""

import random

from .file import File, pairs, signed
from .integer import corners, randoms, read

M32 = 0xFFFFFFFF


def logic():
    f = File("bits/logic", "and, or, xor, not, cnot on every width, and on predicates.")
    ops = {"and": lambda x, y: x & y, "or": lambda x, y: x | y, "xor": lambda x, y: x ^ y}
    for width in (16, 32, 64):
        t = f"b{width}"
        a, b = pairs(corners(width), corners(width))
        for op, fn in ops.items():
            k = f.map(f"{op}_{t}", [t, t], [t], f"{op}.{t} d, a, b;")
            f.case(k, "corners", [a, b], [[fn(x, y) for x, y in zip(a, b)]])
        k = f.map(f"not_{t}", [t], [t], f"not.{t} d, a;")
        f.case(k, "corners", [corners(width)], [[~x for x in corners(width)]])
        k = f.map(f"cnot_{t}", [t], [t], f"cnot.{t} d, a;")
        f.case(k, "corners", [corners(width)], [[int(x == 0) for x in corners(width)]])
    body = """setp.ne.u32 p, a, 0;
setp.ne.u32 q, b, 0;
and.pred r, p, q;
selp.u32 d, 1, 0, r;
or.pred r, p, q;
selp.u32 t, 2, 0, r;
or.b32 d, d, t;
xor.pred r, p, q;
selp.u32 t, 4, 0, r;
or.b32 d, d, t;
not.pred r, p;
selp.u32 t, 8, 0, r;
or.b32 d, d, t;
mov.pred r, q;
selp.u32 t, 16, 0, r;
or.b32 d, d, t;"""
    k = f.map("predicates", ["u32", "u32"], ["u32"], body, [".pred p, q, r", ".u32 t"])
    a, b = [0, 0, 1, 1], [0, 1, 0, 1]
    f.case(k, "truth-table", [a, b],
           [[(x & y) | (x | y) << 1 | (x ^ y) << 2 | (1 - x) << 3 | y << 4 for x, y in zip(a, b)]])
    yield f

    f = File("bits/lop3", "lop3 with a spread of truth tables, and the form with a predicate.", version="8.2")
    rng = random.Random("lop3")
    a, b, c = ([rng.getrandbits(32) for _ in range(12)] for _ in range(3))
    a, b, c = a + [0xF0F0F0F0], b + [0xCCCCCCCC], c + [0xAAAAAAAA]
    def lop3(x, y, z, table):
        return sum(((table >> (((x >> i & 1) << 2) | ((y >> i & 1) << 1) | (z >> i & 1))) & 1) << i for i in range(32))
    for table in (0x00, 0x01, 0x1A, 0x80, 0x96, 0xC0, 0xCA, 0xE8, 0xF0, 0xFE, 0xFF):
        k = f.map(f"lop3_{table:02x}", ["b32"] * 3, ["b32"], f"lop3.b32 d, a, b, c, 0x{table:02x};")
        f.case(k, "random", [a, b, c], [[lop3(x, y, z, table) for x, y, z in zip(a, b, c)]])
    for op in ("or", "and"):
        body = f"""setp.lt.u32 q, i, 4;
lop3.{op}.b32 d|p, a, b, c, 0x80, q;
selp.u32 d1, 1, 0, p;"""
        k = f.map(f"lop3_{op}_predicate", ["b32"] * 3, ["b32", "u32"], body, [".pred p, q"])
        x, y, z = [1, 1, 2, 3, 1, 1, 2, 3], [1, 2, 2, 3, 1, 2, 2, 3], [1, 1, 2, 3, 1, 1, 2, 3]
        r = [p & q & s for p, q, s in zip(x, y, z)]
        e = [int((v != 0 or i < 4) if op == "or" else (v != 0 and i < 4)) for i, v in enumerate(r)]
        f.case(k, "guard", [x, y, z], [r, e])
    yield f


def shifts():
    f = File("bits/shift", "shl and shr: amounts beyond the width are clamped, shr.s fills with the sign.")
    for width in (16, 32, 64):
        amounts = [0, 1, width - 1, width, width + 1, 200, M32]
        values = [1, 0x5A & (2**width - 1), (1 << (width - 1)) | 5, (1 << width) - 1]
        a, b = pairs(values, amounts)
        mask = (1 << width) - 1
        k = f.map(f"shl_b{width}", [f"b{width}", "u32"], [f"b{width}"], f"shl.b{width} d, a, b;")
        f.case(k, "clamp", [a, b], [[(x << min(s, width)) & mask for x, s in zip(a, b)]])
        for t in ("b", "u", "s"):
            type_ = f"{t}{width}"
            k = f.map(f"shr_{type_}", [type_, "u32"], [type_], f"shr.{type_} d, a, b;")
            f.case(k, "clamp", [a, b], [[(signed(x, width) if t == "s" else x) >> min(s, width) for x, s in zip(a, b)]])
    yield f

    f = File("bits/funnel", "shf.l and shf.r, clamped and wrapped.")
    amounts = [0, 1, 7, 31, 32, 33, 63, 64, 255, M32]
    values = [(0x80000001, 0x12345678), (M32, 0), (0, M32), (0xDEADBEEF, 0x0BADF00D)]
    a = [v[0] for v in values for _ in amounts]
    b = [v[1] for v in values for _ in amounts]
    c = [s for _ in values for s in amounts]
    for side in "lr":
        for mode in ("clamp", "wrap"):
            k = f.map(f"shf_{side}_{mode}", ["b32", "b32", "u32"], ["b32"], f"shf.{side}.{mode}.b32 d, a, b, c;")
            out = []
            for lo, hi, s in zip(a, b, c):
                n = min(s, 32) if mode == "clamp" else s & 31
                whole = hi << 32 | lo
                out.append(((whole << n) >> 32 if side == "l" else whole >> n) & M32)
            f.case(k, "amounts", [a, b, c], [out])
    yield f


def prmt(a, b, c, mode=""):
    if mode:
        s = c & 3
        order = {
            "f4e": [[3, 2, 1, 0], [4, 3, 2, 1], [5, 4, 3, 2], [6, 5, 4, 3]],
            "b4e": [[5, 6, 7, 0], [6, 7, 0, 1], [7, 0, 1, 2], [0, 1, 2, 3]],
            "rc8": [[0] * 4, [1] * 4, [2] * 4, [3] * 4],
            "ecl": [[3, 2, 1, 0], [3, 2, 1, 1], [3, 2, 2, 2], [3, 3, 3, 3]],
            "ecr": [[0, 0, 0, 0], [1, 1, 1, 0], [2, 2, 1, 0], [3, 2, 1, 0]],
            "rc16": [[1, 0, 1, 0], [3, 2, 3, 2], [1, 0, 1, 0], [3, 2, 3, 2]],
        }
        selectors = order[mode][s][::-1]
    else:
        selectors = [(c >> (4 * i)) & 15 for i in range(4)]
    whole, out = b << 32 | a, 0
    for i, s in enumerate(selectors):
        byte = (whole >> (8 * (s & 7))) & 0xFF
        if s & 8:
            byte = 0xFF if byte & 0x80 else 0
        out |= byte << (8 * i)
    return out


def permute():
    f = File("bits/prmt", "prmt: generic selectors with sign replication, and the six modes.")
    a, b = 0x83828180, 0x07060504
    selectors = [0x3210, 0x7654, 0x0123, 0x0000, 0x7777, 0xFEDC, 0xBA98, 0x8888, 0x3B29, 0x4567]
    k = f.map("prmt", ["b32", "b32", "b32"], ["b32"], "prmt.b32 d, a, b, c;")
    n = len(selectors)
    f.case(k, "selectors", [[a] * n, [b] * n, selectors], [[prmt(a, b, s) for s in selectors]])
    for mode in ("f4e", "b4e", "rc8", "ecl", "ecr", "rc16"):
        k = f.map(f"prmt_{mode}", ["b32", "b32", "b32"], ["b32"], f"prmt.b32.{mode} d, a, b, c;")
        s = [0, 1, 2, 3, 4, 7]
        f.case(k, "all", [[a] * 6, [b] * 6, s], [[prmt(a, b, x, mode) for x in s]])
    yield f


def counting():
    f = File("bits/count", "popc, clz, bfind, bfind.shiftamt, brev.")
    for width in (32, 64):
        mask = (1 << width) - 1
        t = f"b{width}"
        values = corners(width) + randoms(f"count{width}", width, 9)
        rows = {
            "popc": ([bin(x).count("1") for x in values], "u32"),
            "clz": ([width - x.bit_length() for x in values], "u32"),
            "brev": ([int(f"{x:0{width}b}"[::-1], 2) for x in values], t),
        }
        for op, (expected, out) in rows.items():
            k = f.map(f"{op}_{t}", [t], [out], f"{op}.{t} d, a;")
            f.case(k, "corners", [values], [expected])
        for sign in "us":
            type_ = f"{sign}{width}"
            found = []
            for x in values:
                y = ~x & mask if sign == "s" and x >> (width - 1) else x
                found.append(y.bit_length() - 1)
            k = f.map(f"bfind_{type_}", [type_], ["u32"], f"bfind.{type_} d, a;")
            f.case(k, "corners", [values], [[x & M32 for x in found]])
            k = f.map(f"bfind_shiftamt_{type_}", [type_], ["u32"], f"bfind.shiftamt.{type_} d, a;")
            f.case(k, "corners", [values], [[(width - 1 - x if x >= 0 else -1) & M32 for x in found]])
    yield f

    f = File("bits/fns", "fns: the n-th set bit from a base, forwards and backwards.")
    masks = [0xAAAAAAAA, 0x80000001, 0, M32, 0x00010100]
    cases = [(m, base, off) for m in masks for base in (0, 2, 3, 16, 31) for off in (0, 1, -1, 2, -3, 16)]
    def fns(mask, base, offset):
        if offset == 0:
            return base if mask >> base & 1 else M32
        pos, count = base, abs(offset) - 1
        while 0 <= pos < 32:
            if mask >> pos & 1:
                if count == 0:
                    return pos
                count -= 1
            pos += 1 if offset > 0 else -1
        return M32
    k = f.map("fns", ["b32", "u32", "s32"], ["b32"], "fns.b32 d, a, b, c;")
    for theme, chosen in (("forward", [c for c in cases if c[2] >= 0]), ("backward", [c for c in cases if c[2] < 0])):
        f.case(k, theme, [list(v) for v in zip(*chosen)], [[fns(*c) for c in chosen]])
    yield f


def fields():
    f = File("bits/field", "bfe, bfi, bmsk, szext: positions and lengths inside, at and beyond the register.")
    # The ISA lets the low eight bits of position and length count; on hardware all bits do in the 64-bit forms.
    def counts(width):
        return 255 if width == 32 else M32
    def bfe(a, pos, length, width, sign):
        pos, length = pos & counts(width), length & counts(width)
        top = width - 1
        sbit = (a >> min(pos + length - 1, top)) & 1 if sign and length else 0
        return sum(((a >> (pos + i)) & 1 if i < length and pos + i <= top else sbit) << i for i in range(width))
    def bfi(a, b, pos, length, width):
        pos, length = pos & counts(width), length & counts(width)
        out = b
        for i in range(length):
            if pos + i < width:
                out = out & ~(1 << (pos + i)) | ((a >> i) & 1) << (pos + i)
        return out
    for width in (32, 64):
        spots = [(0, 8), (4, 0), (4, 8), (width - 8, 8), (width - 4, 8), (width - 1, 1), (width, 4), (255, 255), (0, width), (0, 255), (256, 4)]
        values = [0x8765432112345678 & ((1 << width) - 1), (1 << width) - 1, 0x80]
        a = [v for v in values for _ in spots]
        pos = [s[0] for _ in values for s in spots]
        length = [s[1] for _ in values for s in spots]
        for sign in "us":
            t = f"{sign}{width}"
            k = f.map(f"bfe_{t}", [t, "u32", "u32"], [t], f"bfe.{t} d, a, b, c;")
            f.case(k, "spots", [a, pos, length], [[bfe(x, p, l, width, sign == "s") for x, p, l in zip(a, pos, length)]])
        b = [0x5AA5C33C5AA5C33C & ((1 << width) - 1)] * len(a)
        t = f"b{width}"
        k = f.map(f"bfi_{t}", [t, t, "u32", "u32"], [t], f"bfi.{t} d, a, b, c, e;")
        f.case(k, "spots", [a, b, pos, length], [[bfi(x, y, p, l, width) for x, y, p, l in zip(a, b, pos, length)]])

    spots = [(0, 0), (0, 1), (1, 2), (0, 31), (0, 32), (31, 1), (31, 2), (16, 16), (16, 17), (32, 1), (33, 4), (5, 32), (5, 33), (40, 40), (M32, M32)]
    for mode in ("clamp", "wrap"):
        out = []
        for a, b in spots:
            a1, b1 = a & 31, b & 31
            mask0 = (M32 << a1) & M32
            total = a1 + b1
            mask1 = (M32 << total) & M32
            over = total >= 32
            if mode == "clamp":
                if a >= 32:
                    over, mask0 = True, 0
                if b >= 32:
                    over = True
            if over:
                mask1 = 0
            elif b1 == 0:
                mask1 = M32
            out.append(mask0 & ~mask1)
        k = f.map(f"bmsk_{mode}", ["u32", "u32"], ["b32"], f"bmsk.{mode}.b32 d, a, b;")
        f.case(k, "spots", [[s[0] for s in spots], [s[1] for s in spots]], [out])
        for t in ("u32", "s32"):
            values, widths = pairs([0x80, 0x7F, 0xFFFFFFFF, 0x12345678], [0, 1, 7, 8, 31, 32, 33, 64, M32])
            out = []
            for a, b in zip(values, widths):
                b1 = b & 31
                large = b >= 32 and mode == "clamp"
                mask = 0 if large else (M32 << b1) & M32
                sign = 0 if b1 == 0 or large or t != "s32" else (a >> ((b1 - 1) & 31)) & 1
                out.append((a & ~mask) | (mask if sign else 0))
            k = f.map(f"szext_{mode}_{t}", [t, "u32"], [t], f"szext.{mode}.{t} d, a, b;")
            f.case(k, "widths", [values, widths], [out])
    yield f


def files():
    yield from logic()
    yield from shifts()
    yield from permute()
    yield from counting()
    yield from fields()
