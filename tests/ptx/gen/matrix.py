"""ldmatrix, stmatrix, movmatrix and mma.sync. Matrices hold small integers, so that every sum is exact in every order."""

import random

from .file import FORMATS, File, listing, signed
from .floats import BF16, E4M3, E5M2, F16, F32, F64

LANES = range(32)


def moves():
    f = File("matrix/ldmatrix", "ldmatrix, stmatrix and movmatrix: 8x8 matrices of 16-bit elements, one to four, plain and transposed.")
    rows = [[100 * r + c for c in range(8)] for r in range(32)]
    flat = [v for row in rows for v in row]
    for n in (1, 2, 4):
        for trans in ("", ".trans"):
            regs = ", ".join(f"r{i}" for i in range(n))
            tag = f"x{n}{trans.replace('.', '_')}"
            store = f"st.global{'' if n == 1 else f'.v{n}'}.b32 [d], {'{' + regs + '}' if n > 1 else regs};"
            f.entry(f"""
.visible .entry load_{tag}(.param .u64 p_a, .param .u64 p_d)
{{
    .reg .u32 i, at, v, w, x, y;
    .reg .u64 a, d;
    .reg .b32 {regs};
    .shared .align 16 .b8 box[512];
    ld.param.u64 a, [p_a];
    ld.param.u64 d, [p_d];
    mov.u32 i, %tid.x;
    mad.wide.u32 a, i, 16, a;
    mad.wide.u32 d, i, {4 * n}, d;
    mov.u32 at, box;
    mad.lo.u32 at, i, 16, at;
    ld.global.v4.u32 {{v, w, x, y}}, [a];
    st.shared.v4.u32 [at], {{v, w, x, y}};
    bar.sync 0;
    ldmatrix.sync.aligned.m8n8.x{n}{trans}.shared.b16 {{{regs}}}, [at];
    {store}
    ret;
}}""")
            out = []
            for lane in LANES:
                for m in range(n):
                    for e in range(2):
                        r, c = lane // 4, 2 * (lane % 4) + e
                        if trans:
                            r, c = c, r
                        out.append(rows[8 * m + r][c])
            f.run("rows", f"load_{tag}", [f"in:{listing('u16', flat)}", f"out:u16:{64 * n}"], [f"1 {listing('u16', out)}"])
            f.entry(f"""
.visible .entry store_{tag}(.param .u64 p_a, .param .u64 p_d)
{{
    .reg .u32 i, at, v, w, x, y;
    .reg .u64 a, d;
    .reg .b32 {regs};
    .reg .pred p;
    .shared .align 16 .b8 box[512];
    ld.param.u64 a, [p_a];
    ld.param.u64 d, [p_d];
    mov.u32 i, %tid.x;
    mad.wide.u32 a, i, {4 * n}, a;
    mad.wide.u32 d, i, 16, d;
    mov.u32 at, box;
    mad.lo.u32 at, i, 16, at;
    ld.global{'' if n == 1 else f'.v{n}'}.b32 {'{' + regs + '}' if n > 1 else regs}, [a];
    stmatrix.sync.aligned.m8n8.x{n}{trans}.shared.b16 [at], {{{regs}}};
    bar.sync 0;
    setp.lt.u32 p, i, {8 * n};
    @!p bra done;
    ld.shared.v4.u32 {{v, w, x, y}}, [at];
    st.global.v4.u32 [d], {{v, w, x, y}};
done:
    ret;
}}""")
            f.run("rows", f"store_{tag}", [f"in:{listing('u16', out)}", f"out:u16:{64 * n}"], [f"1 {listing('u16', flat[: 64 * n])}"])
    k = f.map("movmatrix", ["u16x2"], ["u16x2"], "movmatrix.sync.aligned.m8n8.trans.b16 d, a;")
    xs = [rows[lane // 4][2 * (lane % 4) + e] for lane in LANES for e in range(2)]
    ys = [rows[2 * (lane % 4) + e][lane // 4] for lane in LANES for e in range(2)]
    f.case(k, "transposed", [xs], [ys])
    yield f


# -- where each element of a fragment lies: (row, column) ------------------------------------------
def fragment(shape, kind, which):
    """The list, over lanes and elements, of the (row, column) that a lane's element is."""
    m, n, k = shape
    out = []
    bits = {"f16": 16, "bf16": 16, "tf32": 32, "f64": 64, "i8": 8, "f8": 8, "i4": 4, "b1": 1}[kind]
    per = max(1, 32 // bits)  # elements of a register
    for lane in LANES:
        g, t = lane >> 2, lane & 3
        if which == "c":
            for i in range(m * n // 32):
                out.append((g + 8 * (i // 2), 2 * t + (i & 1)))
        elif which == "a":
            for i in range(m * k // 32):
                reg, e = divmod(i, per)
                rows = m // 8
                out.append((g + 8 * (reg % rows), (reg // rows) * 4 * per + t * per + e))
        else:
            for i in range(k * n // 32):
                reg, e = divmod(i, per)
                out.append((reg * 4 * per + t * per + e, g))
    return out


def pack(bits, values):
    """Sub-byte elements, lowest first, as 32-bit words."""
    per = 32 // bits
    return [sum((v & ((1 << bits) - 1)) << (bits * j) for j, v in enumerate(values[i : i + per])) for i in range(0, len(values), per)]


class Operand:
    """How a matrix of small integers is written for a PTX type."""

    def __init__(self, ptx, kind, low, high, element, encode, reg="b32", bits=None):
        self.ptx, self.kind, self.low, self.high, self.element, self.encode, self.reg, self.bits = ptx, kind, low, high, element, encode, reg, bits


OPERANDS = {
    "f16": Operand("f16", "f16", -3, 3, "f16", F16.of),
    "bf16": Operand("bf16", "bf16", -3, 3, "bf16", BF16.of),
    "tf32": Operand("tf32", "tf32", -5, 5, "f32", F32.of),
    "f64": Operand("f64", "f64", -9, 9, "f64", F64.of, reg="f64"),
    "s8": Operand("s8", "i8", -128, 127, "s8", lambda v: v),
    "u8": Operand("u8", "i8", 0, 255, "u8", lambda v: v),
    "s4": Operand("s4", "i4", -8, 7, "u32", lambda v: v, bits=4),
    "u4": Operand("u4", "i4", 0, 15, "u32", lambda v: v, bits=4),
    "b1": Operand("b1", "b1", 0, 1, "u32", lambda v: v, bits=1),
    "e4m3": Operand("e4m3", "f8", -4, 4, "u8", E4M3.of),
    "e5m2": Operand("e5m2", "f8", -4, 4, "u8", E5M2.of),
}


def multiply(f, name, shape, at, bt, ct, op="", saturate=False, big_c=False, dt=None):
    m, n, k = shape
    a_op, b_op = OPERANDS[at], OPERANDS[bt]
    dt = dt or ct
    rng = random.Random(name)
    a = [[rng.randint(a_op.low, a_op.high) for _ in range(k)] for _ in range(m)]
    b = [[rng.randint(b_op.low, b_op.high) for _ in range(n)] for _ in range(k)]
    if big_c:
        c = [[rng.choice([2**31 - 1, -(2**31), 2**31 - 2000, 5]) for _ in range(n)] for _ in range(m)]
    else:
        c = [[rng.randint(-9, 9) for _ in range(n)] for _ in range(m)]
    def dot(r, s):
        pairs_ = [(a[r][j], b[j][s]) for j in range(k)]
        if op == "xor.popc":
            return sum(x ^ y for x, y in pairs_)
        return sum(x * y for x, y in pairs_)
    d = [[dot(r, s) + c[r][s] for s in range(n)] for r in range(m)]
    if ct == "s32":
        d = [[max(-(2**31), min(2**31 - 1, v)) if saturate else signed(v, 32) for v in row] for row in d]
    acc = {"f16": ("f16", F16.of, "b32", 2), "f32": ("f32", F32.of, "f32", 1), "s32": ("s32", lambda v: v, "b32", 1), "f64": ("f64", F64.of, "f64", 1)}
    def spread(matrix, which, o):
        values = [o.encode(matrix[r][s]) for r, s in fragment(shape, o.kind, which)]
        return pack(o.bits, values) if o.bits else values
    av, bv = spread(a, "a", a_op), spread(b, "b", b_op)
    c_el, c_enc, c_reg, c_per = acc[ct]
    d_el, d_enc, d_reg, d_per = acc[dt]
    places = fragment(shape, a_op.kind, "c")
    cv = [c_enc(c[r][s]) for r, s in places]
    dv = [d_enc(d[r][s]) for r, s in places]
    def regs(letter, element, count, reg_per=None):
        size = FORMATS[element].width if element in FORMATS else int(element[1:])
        reg_bits = 64 if element == "f64" else 32
        return count * size // reg_bits
    na, nb = regs("a", a_op.element, len(av) // 32), regs("b", b_op.element, len(bv) // 32)
    nc, nd = len(cv) // 32 // c_per, len(dv) // 32 // d_per
    def group(letter, count):
        return "{" + ", ".join(f"{letter}{i}" for i in range(count)) + "}"
    def loads(letter, count, reg):
        w = 8 if reg == "f64" else 4
        lines = [f"    ld.param.u64 at, [p_{letter}];", f"    mad.wide.u32 at, i, {w * count}, at;"]
        lines += [f"    ld.global.{reg} {letter}{j}, [at+{w * j}];" for j in range(count)]
        return "\n".join(lines)
    width = 8 if d_reg == "f64" else 4
    stores = "\n".join(f"    st.global.{d_reg} [at+{width * j}], d{j};" for j in range(nd))
    tail = f".{op}" if op else ""
    sat = ".satfinite" if saturate else ""
    kinds = f"{dt}.{at}.{bt}.{ct}"
    f.entry(f"""
.visible .entry {name}(.param .u64 p_a, .param .u64 p_b, .param .u64 p_c, .param .u64 p_d)
{{
    .reg .u32 i;
    .reg .u64 at;
    .reg .{a_op.reg} a<{na}>;
    .reg .{b_op.reg} b<{nb}>;
    .reg .{c_reg} c<{nc}>;
    .reg .{d_reg} d<{nd}>;
    mov.u32 i, %laneid;
{loads('a', na, a_op.reg)}
{loads('b', nb, b_op.reg)}
{loads('c', nc, c_reg)}
    mma.sync.aligned.m{m}n{n}k{k}.row.col{sat}.{kinds}{tail} {group('d', nd)}, {group('a', na)}, {group('b', nb)}, {group('c', nc)};
    ld.param.u64 at, [p_d];
    mad.wide.u32 at, i, {width * nd}, at;
{stores}
    ret;
}}""")
    f.run("exact", name, [f"in:{listing(a_op.element, av)}", f"in:{listing(b_op.element, bv)}", f"in:{listing(c_el, cv)}", f"out:{d_el}:{len(dv)}"],
          [f"3 {listing(d_el, dv)}"])


def products():
    f = File("matrix/mma_float", "mma.sync on f16, bf16, tf32 and f64: integers in, so the sum is exact whatever the order.")
    for ct in ("f16", "f32"):
        multiply(f, f"f16_k8_{ct}", (16, 8, 8), "f16", "f16", ct)
        multiply(f, f"f16_k16_{ct}", (16, 8, 16), "f16", "f16", ct)
    multiply(f, "bf16_k8", (16, 8, 8), "bf16", "bf16", "f32")
    multiply(f, "bf16_k16", (16, 8, 16), "bf16", "bf16", "f32")
    multiply(f, "tf32_k4", (16, 8, 4), "tf32", "tf32", "f32")
    multiply(f, "tf32_k8", (16, 8, 8), "tf32", "tf32", "f32")
    multiply(f, "f64_m8", (8, 8, 4), "f64", "f64", "f64")
    multiply(f, "f64_k4", (16, 8, 4), "f64", "f64", "f64")
    multiply(f, "f64_k8", (16, 8, 8), "f64", "f64", "f64")
    multiply(f, "f64_k16", (16, 8, 16), "f64", "f64", "f64")
    yield f

    f = File("matrix/mma_integer", "mma.sync on 8-bit and 4-bit integers and on bits: wrapping, and clamping with .satfinite.")
    for at in ("s8", "u8"):
        for bt in ("s8", "u8"):
            multiply(f, f"{at}_{bt}_m8", (8, 8, 16), at, bt, "s32")
            multiply(f, f"{at}_{bt}_k16", (16, 8, 16), at, bt, "s32")
            multiply(f, f"{at}_{bt}_k32", (16, 8, 32), at, bt, "s32")
    multiply(f, "s8_wraps", (16, 8, 32), "s8", "s8", "s32", big_c=True)
    multiply(f, "s8_clamps", (16, 8, 32), "s8", "s8", "s32", saturate=True, big_c=True)
    multiply(f, "u8_clamps", (16, 8, 16), "u8", "u8", "s32", saturate=True, big_c=True)
    multiply(f, "s4_m8", (8, 8, 32), "s4", "s4", "s32")
    multiply(f, "u4_s4_k32", (16, 8, 32), "u4", "s4", "s32")
    multiply(f, "s4_k64", (16, 8, 64), "s4", "s4", "s32")
    multiply(f, "b1_xor_m8", (8, 8, 128), "b1", "b1", "s32", op="xor.popc")
    multiply(f, "b1_xor_k128", (16, 8, 128), "b1", "b1", "s32", op="xor.popc")
    multiply(f, "b1_and_k256", (16, 8, 256), "b1", "b1", "s32", op="and.popc")
    yield f

    f = File("matrix/mma_fp8", "mma.sync on e4m3 and e5m2, mixed, with f32 sums.", version="8.4")
    for at in ("e4m3", "e5m2"):
        for bt in ("e4m3", "e5m2"):
            multiply(f, f"{at}_{bt}", (16, 8, 32), at, bt, "f32")
    yield f


def files():
    yield from moves()
    yield from products()
