"""wmma and wgmma: whole matrices in memory, shared-memory images and descriptors for every major and swizzle."""

import random

from .file import FORMATS, File, listing
from .floats import BF16, E4M3, F16, F32, F64
from .tensor import swizzled


def ints(seed, rows, cols, low=-3, high=3):
    rng = random.Random(seed)
    return [[rng.randint(low, high) for _ in range(cols)] for _ in range(rows)]


def product(a, b, c=None):
    return [[sum(a[r][k] * b[k][s] for k in range(len(b))) + (c[r][s] if c else 0) for s in range(len(b[0]))] for r in range(len(a))]


def stored(matrix, layout, stride, zero=0):
    """A matrix in memory, with `stride` elements between rows (or columns)."""
    lines = matrix if layout == "row" else [list(column) for column in zip(*matrix)]
    out = []
    for line in lines:
        out += line + [zero] * (stride - len(line))
    return out


# shape, a/b type, c/d type -> registers of a, b, c
WMMA = [
    ((16, 16, 16), "f16", "f32", 8, 8, 8), ((32, 8, 16), "f16", "f32", 8, 8, 8), ((8, 32, 16), "f16", "f32", 8, 8, 8),
    ((16, 16, 16), "f16", "f16", 8, 8, 4), ((16, 16, 16), "bf16", "f32", 4, 4, 8), ((32, 8, 16), "bf16", "f32", 8, 2, 8),
    ((16, 16, 8), "tf32", "f32", 4, 4, 8), ((16, 16, 16), "s8", "s32", 2, 2, 8), ((16, 16, 16), "u8", "s32", 2, 2, 8),
    ((32, 8, 16), "s8", "s32", 4, 1, 8), ((8, 8, 4), "f64", "f64", 1, 1, 2),
]
ENCODE = {"f16": F16.of, "bf16": BF16.of, "tf32": F32.of, "f32": F32.of, "f64": F64.of, "s8": lambda v: v & 255, "u8": lambda v: v & 255, "s32": lambda v: v}
ELEMENT = {"tf32": "f32"}


def wmma():
    f = File("matrix/wmma", "wmma load, mma and store: every shape, both layouts, padded strides, from global and from shared memory.")
    for shape, ab, cd, na, nb, nc in WMMA:
        m, n, k = shape
        for la, lb, lc in (("row", "col", "row"), ("col", "row", "col")):
            name = f"{ab}_{cd}_m{m}n{n}k{k}_{la}_{lb}"
            reg = "f64" if ab == "f64" else "b32"
            creg = {"f32": "f32", "f64": "f64"}.get(cd, "b32")
            def group(letter, count):
                return "{" + ", ".join(f"{letter}{i}" for i in range(count)) + "}"
            kinds = f"{cd}.{cd}" if ab == "f16" else f"{cd}.{ab}.{ab}.{cd}"
            rnd = ".rn" if ab == "f64" else ""
            shared_a = la == "col" and ab in ("f16", "s8")
            low = 0 if ab == "u8" else -3
            a, b, c = ints(name + "a", m, k, low), ints(name + "b", k, n, low), ints(name + "c", m, n, -9, 9)
            element = ELEMENT.get(ab, ab)
            bits = FORMATS[element].width if element in FORMATS else 8
            pad = 128 // bits  # strides stay multiples of 16 bytes
            sa = (k if la == "row" else m) + pad
            sb = (n if lb == "row" else k) + pad
            sc = (n if lc == "row" else m) + 4
            if cd == "f16":
                sc += 4
            e = ENCODE[ab]
            av = [e(v) for v in stored(a, la, sa)]
            bv = [e(v) for v in stored(b, lb, sb)]
            ec = ENCODE[cd]
            cv = [ec(v) for v in stored(c, lc, sc)]
            dv = [ec(v) for v in stored(product(a, b, c), lc, sc, 77)]
            bytes_a = len(av) * bits // 8
            stage = ""
            where = "global"
            decl = ""
            if shared_a:
                words = bytes_a // 4
                decl = f"    .shared .align 32 .b8 box[{bytes_a}];\n    .reg .pred p;\n    .reg .u32 w, at;\n    .reg .u64 e;\n"
                where = "shared"
                stage = f"""    mov.u32 i, %tid.x;
fill:
    mad.wide.u32 e, i, 4, a;
    ld.global.u32 w, [e];
    mov.u32 at, box;
    mad.lo.u32 at, i, 4, at;
    st.shared.u32 [at], w;
    add.u32 i, i, 32;
    setp.lt.u32 p, i, {words};
    @p bra fill;
    bar.sync 0;
    mov.u64 a, box;
"""
            f.entry(f"""
.visible .entry {name}(.param .u64 p_a, .param .u64 p_b, .param .u64 p_c, .param .u64 p_d)
{{
    .reg .u32 i, s;
    .reg .u64 a, b, c, d;
    .reg .{reg} a<{na}>;
    .reg .{reg} b<{nb}>;
    .reg .{creg} c<{nc}>;
    .reg .{creg} d<{nc}>;
{decl}    ld.param.u64 a, [p_a];
    ld.param.u64 b, [p_b];
    ld.param.u64 c, [p_c];
    ld.param.u64 d, [p_d];
{stage}    mov.u32 s, {sa};
    wmma.load.a.sync.aligned.{la}.m{m}n{n}k{k}.{where}.{ab} {group('a', na)}, [a], s;
    mov.u32 s, {sb};
    wmma.load.b.sync.aligned.{lb}.m{m}n{n}k{k}.global.{ab} {group('b', nb)}, [b], s;
    mov.u32 s, {sc};
    wmma.load.c.sync.aligned.{lc}.m{m}n{n}k{k}.global.{cd} {group('c', nc)}, [c], s;
    wmma.mma.sync.aligned.{la}.{lb}.m{m}n{n}k{k}{rnd}.{kinds} {group('d', nc)}, {group('a', na)}, {group('b', nb)}, {group('c', nc)};
    wmma.store.d.sync.aligned.{lc}.m{m}n{n}k{k}.global.{cd} [d], {group('d', nc)}, s;
    ret;
}}""")
            f.run("exact", name, [f"in:{listing(element, av)}", f"in:{listing(element, bv)}", f"in:{listing(cd, cv)}",
                                  f"inout:{listing(cd, [ec(77)] * len(dv))}"], [f"3 {listing(cd, dv)}"])
    yield f


# -- wgmma -------------------------------------------------------------------------------------------
def image(matrix, size, major, swizzle, encode):
    """The bytes of a (rows = M or N, columns = K) operand in shared memory, and its descriptor's offsets.

    Returns (bytes, leading, stride). The canonical layouts: K-major keeps 8 rows of 16 bytes (or of a swizzle span)
    together; MN-major keeps 8 steps of K, each of 16 bytes (or a span) along M or N.
    """
    rows, cols = len(matrix), len(matrix[0])
    per = 16 // size
    span = (swizzle or 16) // size  # elements of one contiguous run
    def place_k(r, k):
        if swizzle:
            assert cols * size <= swizzle
            return (r // 8) * (8 * swizzle) + (r % 8) * swizzle + k * size
        return (k // per) * (rows * 16) + (r // 8) * 128 + (r % 8) * 16 + (k % per) * size
    def place_mn(r, k):
        if swizzle:
            return (r // span) * (cols * swizzle) + (k // 8) * (8 * swizzle) + (k % 8) * swizzle + (r % span) * size
        return (k // 8) * (rows * size * 8) + (r // per) * 128 + (k % 8) * 16 + (r % per) * size
    place = place_k if major == "k" else place_mn
    total = 0
    cells = {}
    for r in range(rows):
        for k in range(cols):
            at = swizzled(place(r, k), swizzle)
            value = encode(matrix[r][k])
            for byte in range(size):
                cells[at + byte] = (value >> (8 * byte)) & 255
            total = max(total, at + size)
    total = -(-total // 16) * 16
    if major == "k":
        leading, stride = (16, 8 * swizzle) if swizzle else (rows * 16, 128)
    elif swizzle:
        leading, stride = cols * swizzle, 8 * swizzle
    else:
        leading, stride = rows * size * 8, 128
    return [cells.get(i, 0) for i in range(total)], leading, stride


def words(data):
    return [int.from_bytes(bytes(data[i : i + 4]), "little") for i in range(0, len(data), 4)]


LAYOUT = {None: 0, 128: 1, 64: 2, 32: 3}


def descriptor(leading, stride, swizzle):
    """The fixed part of a descriptor; the kernel adds the address."""
    return (leading >> 4) << 16 | (stride >> 4) << 32 | LAYOUT[swizzle] << 62


def kernel(f, name, n, ab, cd, k, flags, a_in_registers=False, scale=("p", 1, 1)):
    count = n // 2 if cd in ("f32", "s32") else n // 4
    creg = "f32" if cd == "f32" else "b32"
    d = "{" + ", ".join(f"d{i}" for i in range(count)) + "}"
    stores = "\n".join(f"    st.global.{creg} [d+{4 * i}], d{i};" for i in range(count))
    inits = "\n".join(f"    ld.global.{creg} d{i}, [c+{4 * i}];" for i in range(count))
    a_operand = "{a0, a1, a2, a3}" if a_in_registers else "da"
    a_load = ("    mad.wide.u32 a, i, 16, a;\n    ld.global.v4.b32 {a0, a1, a2, a3}, [a];\n" if a_in_registers else "")
    fill_a = "" if a_in_registers else """    mov.u32 k, i;
fill_a:
    setp.ge.u32 p, k, na;
    @p bra filled_a;
    mad.wide.u32 e, k, 4, a;
    ld.global.u32 w, [e];
    mov.u32 at, box_a;
    mad.lo.u32 at, k, 4, at;
    st.shared.u32 [at], w;
    add.u32 k, k, 128;
    bra fill_a;
filled_a:
    mov.u32 at, box_a;
    shr.u32 at, at, 4;
    cvt.u64.u32 e, at;
    add.u64 da, da, e;
"""
    f.entry(f"""
// A and B are put into shared memory as they come (word counts na, nb); their descriptors lack only the address.
.visible .entry {name}(.param .u64 p_a, .param .u32 p_na, .param .u64 p_da, .param .u64 p_b, .param .u32 p_nb, .param .u64 p_db,
                       .param .u64 p_c, .param .u32 p_scale, .param .u64 p_d)
{{
    .reg .u32 i, k, na, nb, at, w, s;
    .reg .u64 a, b, c, d, e, da, db;
    .reg .pred p;
    .reg .b32 a<4>;
    .reg .{creg} d<{count}>;
    .shared .align 1024 .b8 box_a[16384];
    .shared .align 1024 .b8 box_b[16384];
    ld.param.u64 a, [p_a];
    ld.param.u32 na, [p_na];
    ld.param.u64 da, [p_da];
    ld.param.u64 b, [p_b];
    ld.param.u32 nb, [p_nb];
    ld.param.u64 db, [p_db];
    ld.param.u64 c, [p_c];
    ld.param.u32 s, [p_scale];
    ld.param.u64 d, [p_d];
    mov.u32 i, %tid.x;
{fill_a}    mov.u32 k, i;
fill_b:
    setp.ge.u32 p, k, nb;
    @p bra filled_b;
    mad.wide.u32 e, k, 4, b;
    ld.global.u32 w, [e];
    mov.u32 at, box_b;
    mad.lo.u32 at, k, 4, at;
    st.shared.u32 [at], w;
    add.u32 k, k, 128;
    bra fill_b;
filled_b:
    mov.u32 at, box_b;
    shr.u32 at, at, 4;
    cvt.u64.u32 e, at;
    add.u64 db, db, e;
    fence.proxy.async.shared::cta;
    bar.sync 0;
{a_load}    mad.wide.u32 c, i, {4 * count}, c;
{inits}
    setp.ne.u32 p, s, 0;
    wgmma.fence.sync.aligned;
    wgmma.mma_async.sync.aligned.m64n{n}k{k}.{cd}.{ab}.{ab} {d}, {a_operand}, db, p{flags};
    wgmma.commit_group.sync.aligned;
    wgmma.wait_group.sync.aligned 0;
    mad.wide.u32 d, i, {4 * count}, d;
{stores}
    ret;
}}""")


def accumulator_places(n):
    for thread in range(128):
        warp, lane = divmod(thread, 32)
        for i in range(n // 2):
            yield 16 * warp + lane // 4 + 8 * ((i // 2) % 2), 8 * (i // 4) + 2 * (lane % 4) + i % 2


def case(f, entry, name, n, ab, cd, k, a_major="k", b_major="k", a_swizzle=None, b_swizzle=None, a_in_registers=False, accumulate=True, negate=(1, 1), low=-3):
    size = {"f16": 2, "bf16": 2, "tf32": 4, "e4m3": 1, "s8": 1, "u8": 1}[ab]
    encode = {"e4m3": E4M3.of}.get(ab) or ENCODE[ab]
    a, b = ints(name + "a", 64, k, low), ints(name + "b", k, n, low)
    c = ints(name + "c", 64, n, -9, 9)
    d = product([[negate[0] * v for v in row] for row in a], [[negate[1] * v for v in row] for row in b], c if accumulate else None)
    if a_in_registers:
        flat = []
        for thread in range(128):
            warp, lane = divmod(thread, 32)
            for i in range(8):
                r = 16 * warp + lane // 4 + 8 * ((i // 2) % 2)
                flat.append(encode(a[r][2 * (lane % 4) + (i & 1) + 8 * (i // 4)]))
        a_bytes = [byte for v in flat for byte in (v & 255, v >> 8)]
        da = 0
    else:
        a_bytes, lead, stride = image(a, size, a_major, a_swizzle, encode)
        da = descriptor(lead, stride, a_swizzle)
    b_rows = [list(column) for column in zip(*b)]
    b_bytes, lead, stride = image(b_rows, size, b_major, b_swizzle, encode)
    db = descriptor(lead, stride, b_swizzle)
    ec = ENCODE[cd]
    places = list(accumulator_places(n))
    aw, bw = words(a_bytes), words(b_bytes)
    f.run(name, entry,
          [f"in:{listing('u32', aw)}", f"u32:{0 if a_in_registers else len(aw)}", f"u64:0x{da:016x}", f"in:{listing('u32', bw)}", f"u32:{len(bw)}",
           f"u64:0x{db:016x}", f"in:{listing(cd, [ec(c[r][s]) for r, s in places])}", f"u32:{int(accumulate)}", f"out:{cd}:{len(places)}"],
          [f"8 {listing(cd, [ec(d[r][s]) for r, s in places])}"], block=128)


def wgmma():
    f = File("matrix/wgmma", "wgmma with K-major operands: every swizzle, types, widths, A from registers, negation, and no accumulation.", target="sm_90a")
    kernel(f, "f16_n8", 8, "f16", "f32", 16, ", 1, 1, 0, 0")
    for swizzle in (None, 32, 64, 128):
        case(f, "f16_n8", f"swizzle-{swizzle or 'none'}", 8, "f16", "f32", 16, a_swizzle=swizzle, b_swizzle=swizzle)
    case(f, "f16_n8", "mixed-swizzles", 8, "f16", "f32", 16, a_swizzle=128, b_swizzle=32)
    case(f, "f16_n8", "no-accumulate", 8, "f16", "f32", 16, accumulate=False)
    kernel(f, "f16_n8_negated", 8, "f16", "f32", 16, ", -1, 1, 0, 0")
    case(f, "f16_n8_negated", "a", 8, "f16", "f32", 16, negate=(-1, 1))
    kernel(f, "f16_n8_b_negated", 8, "f16", "f32", 16, ", 1, -1, 0, 0")
    case(f, "f16_n8_b_negated", "b", 8, "f16", "f32", 16, negate=(1, -1))
    kernel(f, "f16_n24", 24, "f16", "f32", 16, ", 1, 1, 0, 0")
    case(f, "f16_n24", "swizzle-128", 24, "f16", "f32", 16, a_swizzle=128, b_swizzle=128)
    case(f, "f16_n24", "swizzle-none", 24, "f16", "f32", 16)
    kernel(f, "f16_n32", 32, "f16", "f32", 16, ", 1, 1, 0, 0")
    case(f, "f16_n32", "swizzle-64", 32, "f16", "f32", 16, a_swizzle=64, b_swizzle=64)
    kernel(f, "f16_f16_n16", 16, "f16", "f16", 16, ", 1, 1, 0, 0")
    case(f, "f16_f16_n16", "swizzle-128", 16, "f16", "f16", 16, a_swizzle=128, b_swizzle=128)
    kernel(f, "f16_registers", 16, "f16", "f32", 16, ", 1, 1, 0", a_in_registers=True)
    case(f, "f16_registers", "swizzle-128", 16, "f16", "f32", 16, b_swizzle=128, a_in_registers=True)
    kernel(f, "bf16_n16", 16, "bf16", "f32", 16, ", 1, 1, 0, 0")
    case(f, "bf16_n16", "swizzle-128", 16, "bf16", "f32", 16, a_swizzle=128, b_swizzle=128)
    kernel(f, "tf32_n8", 8, "tf32", "f32", 8, ", 1, 1")
    for swizzle in (None, 32, 128):
        case(f, "tf32_n8", f"swizzle-{swizzle or 'none'}", 8, "tf32", "f32", 8, a_swizzle=swizzle, b_swizzle=swizzle)
    kernel(f, "e4m3_n8", 8, "e4m3", "f32", 32, ", 1, 1")
    case(f, "e4m3_n8", "swizzle-128", 8, "e4m3", "f32", 32, a_swizzle=128, b_swizzle=128)
    case(f, "e4m3_n8", "swizzle-none", 8, "e4m3", "f32", 32)
    kernel(f, "s8_n8", 8, "s8", "s32", 32, "")
    case(f, "s8_n8", "swizzle-32", 8, "s8", "s32", 32, a_swizzle=32, b_swizzle=32)
    kernel(f, "u8_n16", 16, "u8", "s32", 32, "")
    case(f, "u8_n16", "swizzle-none", 16, "u8", "s32", 32, low=0)
    yield f

    f = File("matrix/wgmma_transposed", "wgmma with operands whose M or N is contiguous in shared memory, in every swizzle.", target="sm_90a")
    kernel(f, "b_transposed", 64, "f16", "f32", 16, ", 1, 1, 0, 1")
    for swizzle in (None, 32, 64, 128):
        case(f, "b_transposed", f"swizzle-{swizzle or 'none'}", 64, "f16", "f32", 16, b_major="n", a_swizzle=128, b_swizzle=swizzle)
    kernel(f, "a_transposed", 8, "f16", "f32", 16, ", 1, 1, 1, 0")
    for swizzle in (None, 32, 64, 128):
        case(f, "a_transposed", f"swizzle-{swizzle or 'none'}", 8, "f16", "f32", 16, a_major="m", a_swizzle=swizzle, b_swizzle=128)
    kernel(f, "both_transposed", 16, "bf16", "f32", 16, ", 1, 1, 1, 1")
    case(f, "both_transposed", "swizzle-32", 16, "bf16", "f32", 16, a_major="m", b_major="n", a_swizzle=32, b_swizzle=32)
    yield f


def files():
    yield from wmma()
    yield from wgmma()
