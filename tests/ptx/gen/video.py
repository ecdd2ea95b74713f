"""The video instructions: parts of registers as operands, saturation, merging and accumulation."""

import random

from .file import File, signed

M32 = 0xFFFFFFFF
PARTS = {"": (0, 32), "b0": (0, 8), "b1": (8, 8), "b2": (16, 8), "b3": (24, 8), "h0": (0, 16), "h1": (16, 16)}


def part(x, selector, type_):
    shift, width = PARTS[selector]
    x = (x >> shift) & ((1 << width) - 1)
    return signed(x, width) if type_ == "s32" else x


def clamp(x, type_, width):
    low, high = (-(1 << (width - 1)), (1 << (width - 1)) - 1) if type_ == "s32" else (0, (1 << width) - 1)
    return max(low, min(high, x))


def clamp_merged(x, type_, width):
    """What ptxas's code makes of a saturated byte or half: the comparison has no sign, so a negative result is the greatest value."""
    return clamp(x if x >= 0 else 1 << 64, type_, width)


SCALAR = {"vadd": lambda a, b: a + b, "vsub": lambda a, b: a - b, "vabsdiff": lambda a, b: abs(a - b), "vmin": min, "vmax": max}


def operands(seed, n=24):
    rng = random.Random(seed)
    corner = [0, 1, M32, 0x80000000, 0x7FFFFFFF, 0x80FF7F00, 0x8000FFFF, 0x01807FFF]
    return [rng.choice(corner) if rng.random() < 0.5 else rng.getrandbits(32) for _ in range(n)]


def scalar():
    f = File("video/scalar", "vadd, vsub, vabsdiff, vmin, vmax, vshl, vshr, vset and vmad on bytes, halves and words.")
    def dotted(register, selector):
        return f"{register}.{selector}" if selector else register
    forms = [("u32", "u32", "u32", "b0", "b3"), ("s32", "s32", "s32", "h0", "b1"), ("s32", "u32", "s32", "b2", "h1"), ("s32", "s32", "s32", "", "")]
    for op, fn in SCALAR.items():
        for dt, at, bt, asel, bsel in forms:
            name = f"{op}_{dt}_{at}_{bt}_{asel or 'w'}_{bsel or 'w'}"
            a, b, c = operands(name + "a"), operands(name + "b"), operands(name + "c")
            exact = [fn(part(x, asel, at), part(y, bsel, bt)) for x, y in zip(a, b)]
            k = f.map(f"{name}_sat", ["u32", "u32"], ["u32"], f"{op}.{dt}.{at}.{bt}.sat d, {dotted('a', asel)}, {dotted('b', bsel)};")
            f.case(k, "clamped", [a, b], [[clamp(t, dt, 32) & M32 for t in exact]])
            k = f.map(f"{name}_merge", ["u32", "u32", "u32"], ["u32"], f"{op}.{dt}.{at}.{bt}.sat d.b1, {dotted('a', asel)}, {dotted('b', bsel)}, c;")
            f.case(k, "into-a-byte", [a, b, c], [[(z & 0xFFFF00FF) | (clamp_merged(t, dt, 8) & 0xFF) << 8 for t, z in zip(exact, c)]])
            if op in ("vsub", "vmin"):
                # Not into .h1: there the assembler of CUDA 13.0 puts the upper half of the result, and that of 13.4 the lower.
                k = f.map(f"{name}_merge_half", ["u32", "u32", "u32"], ["u32"], f"{op}.{dt}.{at}.{bt}.sat d.h0, {dotted('a', asel)}, {dotted('b', bsel)}, c;")
                f.case(k, "into-a-half", [a, b, c], [[(z & 0xFFFF0000) | (clamp_merged(t, dt, 16) & 0xFFFF) for t, z in zip(exact, c)]])
            if asel:
                k = f.map(f"{name}_add", ["u32", "u32", "u32"], ["u32"], f"{op}.{dt}.{at}.{bt}.add d, {dotted('a', asel)}, {dotted('b', bsel)}, c;")
                f.case(k, "accumulated", [a, b, c], [[(t + z) & M32 for t, z in zip(exact, c)]])
    for op, mode, dt, at, dest in (("vshl", "clamp", "s32", "s32", ""), ("vshl", "wrap", "u32", "u32", ""), ("vshl", "clamp", "s32", "s32", "b1"),
                                   ("vshr", "clamp", "s32", "s32", ""), ("vshr", "wrap", "u32", "s32", ""), ("vshr", "wrap", "s32", "s32", "h0")):
        name = f"{op}_{dt}_{at}_{mode}_{dest or 'w'}"
        a, b, c = operands(name + "a"), operands(name + "b"), operands(name + "c")
        b = [y if i % 3 == 0 else y % 40 for i, y in enumerate(b)]
        counts = [min(y, 32) if mode == "clamp" else y & 31 for y in b]
        exact = [part(x, "", at) << n if op == "vshl" else part(x, "", at) >> n for x, n in zip(a, counts)]
        # ptxas keeps 34 bits and saturates to 32, wherever the result goes.
        kept = [clamp(signed(t & ((1 << 34) - 1), 34), dt, 32) for t in exact]
        shift, width = PARTS[dest]
        mask = ((1 << width) - 1) << shift
        where = f"d.{dest}, a, b, c" if dest else "d, a, b"
        k = f.map(name, ["u32"] * (3 if dest else 2), ["u32"], f"{op}.{dt}.{at}.u32.sat.{mode} {where};")
        f.case(k, "shifted", [a, b, c] if dest else [a, b], [[((z if dest else 0) & ~mask & M32) | ((t << shift) & mask) for t, z in zip(kept, c)]])
    for cmp, fn in (("lt", lambda x, y: x < y), ("ge", lambda x, y: x >= y), ("eq", lambda x, y: x == y)):
        a, b, c = operands(cmp + "a"), operands(cmp + "b"), operands(cmp + "c")
        a, b = a + [5, 0x80], b + [5, 0x80]
        c = c + [1, 2]
        t = [int(fn(part(x, "b0", "s32"), part(y, "h0", "u32"))) for x, y in zip(a, b)]
        k = f.map(f"vset_{cmp}", ["u32", "u32", "u32"], ["u32"], f"vset.s32.u32.{cmp}.add d, a.b0, b.h0, c;")
        f.case(k, "accumulated", [a, b, c], [[(x + z) & M32 for x, z in zip(t, c)]])
    for name, tail, fn in (("vmad", "", lambda p, z: p + z), ("vmad_shr7", ".shr7", lambda p, z: (p + z) >> 7), ("vmad_po_shr15", "", None)):
        a, b = operands(name + "a"), operands(name + "b")
        c = [x >> 2 for x in operands(name + "c")]
        products = [part(x, "h0", "s32") * part(y, "b1", "s32") for x, y in zip(a, b)]
        if fn:
            k = f.map(name, ["u32", "u32", "u32"], ["u32"], f"vmad.s32.s32.s32.sat{tail} d, a.h0, b.b1, c;")
            out = [clamp(fn(p, signed(z, 32)), "s32", 32) & M32 for p, z in zip(products, c)]
        else:
            k = f.map(name, ["u32", "u32", "u32"], ["u32"], "vmad.u32.u32.u32.po.shr15 d, a.h0, b.h1, c;")
            out = [((part(x, "h0", "u32") * part(y, "h1", "u32") + z + 1) >> 15) & M32 for x, y, z in zip(a, b, c)]
        f.case(k, "products", [a, b, c], [out])
    for name, first, second, third, fn in (("vmad_minus_b", "a.h0", "-b.b1", "c", lambda p, z: z - p), ("vmad_minus_a", "-a.h0", "b.b1", "c", lambda p, z: z - p),
                                           ("vmad_minus_c", "a.h0", "b.b1", "-c", lambda p, z: p - z)):
        a, b, c = operands(name + "a"), operands(name + "b"), operands(name + "c")
        products = [part(x, "h0", "s32") * part(y, "b1", "s32") for x, y in zip(a, b)]
        k = f.map(name, ["u32", "u32", "u32"], ["u32"], f"vmad.s32.s32.s32 d, {first}, {second}, {third};")
        f.case(k, "negated", [a, b, c], [[fn(p, signed(z, 32)) & M32 for p, z in zip(products, c)]])
    yield f


def lanes():
    f = File("video/packed", "Four bytes and two halves at a time: clamped, merged, averaged, and summed into an accumulator.")
    def average(x, y):
        s = x + y
        return (s + 1) >> 1 if s >= 0 else s >> 1
    ops = {"vadd": lambda x, y: x + y, "vsub": lambda x, y: x - y, "vavrg": average, "vabsdiff": lambda x, y: abs(x - y), "vmin": min, "vmax": max}
    for count, width in ((4, 8), (2, 16)):
        def split(x, type_):
            return [signed(v, width) if type_ == "s32" else v for v in ((x >> (width * i)) & ((1 << width) - 1) for i in range(count))]
        for op, fn in ops.items():
            for t in ("u32", "s32"):
                name = f"{op}{count}_{t}"
                a, b, c = operands(name + "a"), operands(name + "b"), operands(name + "c")
                rows = [[fn(x, y) for x, y in zip(split(p, t), split(q, t))] for p, q in zip(a, b)]
                if op != "vavrg":
                    k = f.map(f"{name}_sat", ["u32"] * 3, ["u32"], f"{op}{count}.{t}.{t}.{t}.sat d, a, b, c;")
                    f.case(k, "clamped", [a, b, c],
                           [[sum((clamp(v, t, width) & ((1 << width) - 1)) << (width * i) for i, v in enumerate(r)) for r in rows]])
                else:
                    k = f.map(f"{name}_plain", ["u32"] * 3, ["u32"], f"{op}{count}.{t}.{t}.{t} d, a, b, c;")
                    f.case(k, "halved", [a, b, c], [[sum((v & ((1 << width) - 1)) << (width * i) for i, v in enumerate(r)) for r in rows]])
                if op in ("vabsdiff", "vmax"):
                    k = f.map(f"{name}_add", ["u32"] * 3, ["u32"], f"{op}{count}.{t}.{t}.{t}.add d, a, b, c;")
                    f.case(k, "summed", [a, b, c], [[(sum(r) + z) & M32 for r, z in zip(rows, c)]])
    yield f


def files():
    yield from scalar()
    yield from lanes()
