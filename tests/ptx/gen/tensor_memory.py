"""tcgen05: loads and stores of tensor memory in every shape, copies into it, and products of every kind.

Layouts are written down here a second time, from the pictures of the book: each cell of tensor memory says which
register of which thread holds it, and each element of a result says where it lies.
"""

import random

from .file import File, listing
from .tensor import swizzled
from .warpgroup import image, ints, product, words

GPU = "needs sm_100a"


def run(f, name, entry, args, expects, **more):
    f.run(name, entry, args, expects, block=more.pop("block", 128), gpu=GPU, **more)


# -- formats -----------------------------------------------------------------------------------------
def minifloat(exponent, fraction):
    """Value -> code of a small format without infinities, by trying every code."""
    bias = (1 << (exponent - 1)) - 1
    codes = {}
    for code in range(1 << (exponent + fraction)):
        e, m = code >> fraction, code & ((1 << fraction) - 1)
        value = m / (1 << fraction) * 2.0 ** (1 - bias) if e == 0 else (1 + m / (1 << fraction)) * 2.0 ** (e - bias)
        codes.setdefault(value, code)
        codes.setdefault(-value, code | 1 << (exponent + fraction))
    codes[0.0] = 0
    return lambda v: codes[float(v)]


import struct

ENCODE = {
    "f16": lambda v: struct.unpack("<H", struct.pack("<e", v))[0],
    "bf16": lambda v: struct.unpack("<I", struct.pack("<f", v))[0] >> 16,
    "tf32": lambda v: struct.unpack("<I", struct.pack("<f", v))[0],
    "f32": lambda v: struct.unpack("<I", struct.pack("<f", v))[0],
    "e4m3": minifloat(4, 3), "e5m2": minifloat(5, 2), "e2m3": minifloat(2, 3), "e3m2": minifloat(3, 2),
    "e2m1": minifloat(2, 1), "s8": lambda v: v & 255, "u8": lambda v: v, "s32": lambda v: v & 0xFFFFFFFF,
}
SIZE = {"f16": 2, "bf16": 2, "tf32": 4}
CODE = {"f16": 0, "bf16": 1, "tf32": 2, "e4m3": 0, "e5m2": 1, "e2m3": 3, "e3m2": 4, "e2m1": 5, "u8": 0, "s8": 1}
D_CODE = {"f16": 0, "f32": 1, "s32": 2}
DEPTH = {"f16": 16, "tf32": 8, "f8f6f4": 32, "i8": 32, "mxf8f6f4": 32, "mxf4": 64, "mxf4nvf4": 64}
SWIZZLE = {None: 0, 128: 2, 64: 4, 32: 6, "128x32": 1}


def idesc(m, n, a="f16", b="f16", d="f32", transpose=(0, 0), negate=(0, 0), saturate=0):
    return (saturate << 3 | D_CODE[d] << 4 | CODE[a] << 7 | CODE[b] << 10 | negate[0] << 13 | negate[1] << 14
            | transpose[0] << 15 | transpose[1] << 16 | (n // 8) << 17 | (m // 16) << 24)


def descriptor(leading, stride, swizzle):
    return (leading >> 4) << 16 | (stride >> 4) << 32 | 1 << 46 | SWIZZLE[swizzle] << 61


def padded_image(matrix, bits, encode):
    """K-major without a swizzle; 16 elements of `bits` bits and padding to 16 bytes."""
    rows, cols = len(matrix), len(matrix[0])
    data = [0] * (rows * cols)
    for r in range(rows):
        for chunk in range(cols // 16):
            packed = 0
            for i in range(16):
                packed |= encode(matrix[r][16 * chunk + i]) << (bits * i)
            at = chunk * rows * 16 + (r // 8) * 128 + (r % 8) * 16
            data[at : at + 16] = list(packed.to_bytes(16, "little"))
    return data, rows * 16, 128


def packed_image(matrix, encode):
    """K-major without a swizzle; 32 elements of four bits in 16 bytes."""
    rows, cols = len(matrix), len(matrix[0])
    data = [0] * (rows * cols // 2)
    for r in range(rows):
        for chunk in range(cols // 32):
            packed = 0
            for i in range(32):
                packed |= encode(matrix[r][32 * chunk + i]) << (4 * i)
            at = chunk * rows * 16 + (r // 8) * 128 + (r % 8) * 16
            data[at : at + 16] = list(packed.to_bytes(16, "little"))
    return data, rows * 16, 128


def image_32(matrix, encode):
    """MN-major tf32 with a swizzle of 128 bytes in atoms of 32: four steps of K, each of 32 elements."""
    rows, cols = len(matrix), len(matrix[0])
    leading, stride = cols * 128, 512
    data = [0] * (-(-rows // 32) * leading)
    for r in range(rows):
        for k in range(cols):
            at = (r // 32) * leading + (k // 4) * stride + (k % 4) * 128 + (r % 32) * 4
            at ^= (at >> 7 & 3) << 5
            data[at : at + 4] = list(encode(matrix[r][k]).to_bytes(4, "little"))
    return data, leading, stride


def operand(matrix, kind, major, swizzle):
    """Bytes and descriptor of a (rows = M or N, columns = K) operand."""
    encode = ENCODE[kind]
    if swizzle == "128x32":
        data, leading, stride = image_32(matrix, encode)
    elif kind in ("e2m3", "e3m2", "e2m1"):
        data, leading, stride = padded_image(matrix, {"e2m1": 4}.get(kind, 6), encode)
    else:
        data, leading, stride = image(matrix, SIZE.get(kind, 1), major, swizzle, encode)
    return words(data), descriptor(leading, stride, swizzle)


# -- loads and stores ----------------------------------------------------------------------------------
def holder(shape, lane, column, split=None):
    """The thread and register of a cell, as the pictures of the book show them."""
    if shape == "32x32b":
        return lane, column
    if shape == "16x64b":
        return 4 * (lane % 8) + lane // 8 + 2 * (column % 2), column // 2
    if shape == "16x128b":
        return 4 * (lane % 8) + column % 4, 2 * (column // 4) + lane // 8
    if shape == "16x256b":
        return 4 * (lane % 8) + column % 8 // 2, 4 * (column // 8) + 2 * (lane // 8) + column % 2
    upper = column // split
    return lane + 16 * upper, column - upper * split


REGISTERS = {"32x32b": 1, "16x64b": 1, "16x128b": 2, "16x256b": 4, "16x32bx2": 1}
WIDTH = {"32x32b": 1, "16x64b": 2, "16x128b": 4, "16x256b": 8, "16x32bx2": 2}


def alloc(columns=32):
    return f"""    mov.u32 slot, where;
    shr.u32 warp, i, 5;
    setp.ne.u32 p, warp, 0;
    @p bra allocated;
    tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [slot], {columns};
    tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;
allocated:
    bar.sync 0;
    ld.shared.u32 base, [slot];
    shl.b32 quarter, warp, 21;
    add.u32 own, base, quarter;"""


def free(columns=32):
    return f"""    bar.sync 0;
    setp.ne.u32 p, warp, 0;
    @p bra freed;
    tcgen05.dealloc.cta_group::1.sync.aligned.b32 base, {columns};
freed:"""


REGS = """    .reg .u32 i, warp, slot, quarter;
    .reg .b32 base, own;
    .reg .pred p;
    .shared .align 4 .b8 where[4];
    mov.u32 i, %tid.x;"""


def transfers():
    f = File("tcgen05/transfer", "tcgen05.ld and tcgen05.st: what is stored in one shape is loaded in another.", target="sm_100a", version="8.6")
    for stores in (False, True):
        for shape in REGISTERS:
            for at in (0, 16) if shape != "32x32b" else (0,):
                for count in (1, 2, 4) if shape != "32x32b" and at == 0 else (4,):
                    transfer(f, shape, count, at, stores)
    transfer(f, "32x32b", 4, 0, False, packs=True)
    transfer(f, "16x64b", 2, 0, True, packs=True)
    yield f


def transfer(f, shape, count, at, stores, packs=False):
    """Stores in 32x32b and loads in the shape, or the other way around."""
    number = count * REGISTERS[shape]
    width = count * WIDTH[shape]
    split = count if shape == "16x32bx2" else None
    real = 2 * width if packs else width
    name = f"{'st' if stores else 'ld'}_{shape}_x{count}_at{at}" + ("_packed" if packs else "")
    if packs:
        pick = ".unpack::16b" if stores else ".pack::16b"
    else:
        pick = ""
    address = f"[own+{at << 16}]" if at else "[own]"
    a = "{" + ", ".join(f"a{j}" for j in range(number)) + "}"
    b = "{" + ", ".join(f"b{j}" for j in range(real)) + "}"
    middle = f"{split}, " if split else ""
    # Zeros everywhere, so that every lane has something.
    zeros = "{" + ", ".join("0" for _ in range(real)) + "}"
    plain = f"32x32b.x{1 << (real - 1).bit_length()}"
    assert real == 1 << (real - 1).bit_length()
    if stores:
        body = f"""    mov.u32 zero, 0;
    tcgen05.st.sync.aligned.{plain}.b32 [own], {{{', '.join(['zero'] * real)}}};
    tcgen05.wait::st.sync.aligned;
{chr(10).join(f'    ld.global.b32 a{j}, [in+{4 * j}];' for j in range(number))}
    tcgen05.st.sync.aligned.{shape}.x{count}{pick}.b32 {address}, {middle}{a};
    tcgen05.wait::st.sync.aligned;
    tcgen05.ld.sync.aligned.{plain}.b32 {b}, [own];
    tcgen05.wait::ld.sync.aligned;
{chr(10).join(f'    st.global.b32 [out+{4 * j}], b{j};' for j in range(real))}"""
        inputs, outputs = number, real
    else:
        body = f"""{chr(10).join(f'    ld.global.b32 b{j}, [in+{4 * j}];' for j in range(real))}
    tcgen05.st.sync.aligned.{plain}.b32 [own], {b};
    tcgen05.wait::st.sync.aligned;
    tcgen05.ld.sync.aligned.{shape}.x{count}{pick}.b32 {a}, {address}{', ' + str(split) if split else ''};
    tcgen05.wait::ld.sync.aligned;
{chr(10).join(f'    st.global.b32 [out+{4 * j}], a{j};' for j in range(number))}"""
        inputs, outputs = real, number
    entry = name.replace("::", "_")
    f.entry(f"""
.visible .entry {entry}(.param .u64 p_in, .param .u64 p_out)
{{
{REGS}
    .reg .u64 in, out;
    .reg .b32 zero, a<{number}>, b<{real}>;
    ld.param.u64 in, [p_in];
    ld.param.u64 out, [p_out];
    mad.wide.u32 in, i, {4 * inputs}, in;
    mad.wide.u32 out, i, {4 * outputs}, out;
{alloc()}
{body}
{free()}
    ret;
}}""")
    lanes = 32 if shape == "32x32b" else 16
    rng = random.Random(name)
    if stores:
        given = [rng.randrange(1, 1 << 31) if packs else j + 1 for j in range(128 * number)]
        cells = [[0] * real for _ in range(128)]
        for lane in range(128):
            if not at <= lane % 32 < at + lanes:
                continue
            for column in range(width):
                t, r = holder(shape, lane % 32 - at, column, split)
                value = given[(lane // 32 * 32 + t) * number + r]
                if packs:
                    cells[lane][2 * column], cells[lane][2 * column + 1] = value & 0xFFFF, value >> 16
                else:
                    cells[lane][column] = value
        expected = [value for row in cells for value in row]
    else:
        given = [rng.randrange(1, 1 << 31) if packs else j + 1 for j in range(128 * real)]
        expected = [0] * (128 * number)
        for lane in range(128):
            if not at <= lane % 32 < at + lanes:
                continue
            for column in range(width):
                t, r = holder(shape, lane % 32 - at, column, split)
                row = given[lane * real : lane * real + real]
                value = row[2 * column] & 0xFFFF | (row[2 * column + 1] & 0xFFFF) << 16 if packs else row[column]
                expected[(lane // 32 * 32 + t) * number + r] = value
    run(f, "all", entry, [f"in:{listing('u32', given)}", f"out:u32:{len(expected)}"], [f"1 {listing('u32', expected)}"])


# -- products ------------------------------------------------------------------------------------------
def fill(letter):
    return f"""    mov.u32 k, i;
fill_{letter}:
    setp.ge.u32 p, k, n{letter};
    @p bra filled_{letter};
    mad.wide.u32 e, k, 4, {letter};
    ld.global.u32 w, [e];
    mov.u32 at, box_{letter};
    mad.lo.u32 at, k, 4, at;
    st.shared.u32 [at], w;
    add.u32 k, k, 128;
    bra fill_{letter};
filled_{letter}:
    mov.u32 at, box_{letter};
    and.b32 at, at, 0x3ffff;
    shr.u32 at, at, 4;
    cvt.u64.u32 e, at;
    add.u64 d{letter}, d{letter}, e;"""


def kernel(f, name, n, kind, a_columns=0, tail="", mods=""):
    """A and B go into shared memory as they come; D starts as C, a row of `n` columns for each lane. With
    `a_columns`, A comes from tensor memory: so many words for each lane."""
    columns = 32
    while columns < n + a_columns:
        columns *= 2
    registers = lambda letter, count: "{" + ", ".join(f"{letter}{j}" for j in range(count)) + "}"
    load_c = "\n".join(f"    ld.global.b32 c{j}, [c+{4 * j}];" for j in range(n))
    store_d = "\n".join(f"    st.global.b32 [d+{4 * j}], c{j};" for j in range(n))
    from_tensor = ""
    if a_columns:
        from_tensor = f"""    mad.wide.u32 a, i, {4 * a_columns}, a;
{chr(10).join(f'    ld.global.b32 x{j}, [a+{4 * j}];' for j in range(a_columns))}
    tcgen05.st.sync.aligned.32x32b.x{a_columns}.b32 [own+{n}], {registers('x', a_columns)};
    tcgen05.wait::st.sync.aligned;
"""
    left = f"[left]" if a_columns else "da"
    f.entry(f"""
.visible .entry {name}(.param .u64 p_a, .param .u32 p_na, .param .u64 p_da, .param .u64 p_b, .param .u32 p_nb, .param .u64 p_db,
                       .param .u64 p_c, .param .u32 p_idesc, .param .u32 p_add, .param .u64 p_d)
{{
{REGS}
    .reg .u32 k, na, nb, at, w, s;
    .reg .b32 idesc, left;
    .reg .u64 a, b, c, d, e;
    .reg .b64 da, db;
    .reg .pred sums;
    .reg .b32 c<{n}>, x<{max(a_columns, 1)}>;
    .shared .align 1024 .b8 box_a[16384];
    .shared .align 1024 .b8 box_b[16384];
    .shared .align 8 .b64 bar;
    ld.param.u64 a, [p_a];
    ld.param.u32 na, [p_na];
    ld.param.u64 da, [p_da];
    ld.param.u64 b, [p_b];
    ld.param.u32 nb, [p_nb];
    ld.param.u64 db, [p_db];
    ld.param.u64 c, [p_c];
    ld.param.u32 idesc, [p_idesc];
    ld.param.u32 s, [p_add];
    ld.param.u64 d, [p_d];
    setp.eq.u32 p, i, 0;
    @p mbarrier.init.shared::cta.b64 [bar], 1;
    @p fence.mbarrier_init.release.cluster;
{fill('a')}
{fill('b')}
    fence.proxy.async.shared::cta;
{alloc(columns)}
    mad.wide.u32 c, i, {4 * n}, c;
{load_c}
    tcgen05.st.sync.aligned.32x32b.x{n}.b32 [own], {registers('c', n)};
    tcgen05.wait::st.sync.aligned;
{from_tensor}    tcgen05.fence::before_thread_sync;
    bar.sync 0;
    tcgen05.fence::after_thread_sync;
    setp.ne.u32 sums, s, 0;
    add.u32 left, base, {n};
    setp.ne.u32 p, i, 0;
    @p bra wait;
    tcgen05.mma.cta_group::1.kind::{kind}{mods} [base], {left}, db, idesc, sums{tail};
    tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [bar];
wait:
    mbarrier.try_wait.parity.shared::cta.b64 p, [bar], 0;
    @!p bra wait;
    tcgen05.fence::after_thread_sync;
    tcgen05.ld.sync.aligned.32x32b.x{n}.b32 {registers('c', n)}, [own];
    tcgen05.wait::ld.sync.aligned;
    mad.wide.u32 d, i, {4 * n}, d;
{store_d}
    tcgen05.fence::before_thread_sync;
{free(columns)}
    ret;
}}""")


def row_of(lane, m):
    """The row of a result that a lane holds: of 64 rows, sixteen stand in each quarter."""
    if m == 128:
        return lane
    return lane % 32 + 16 * (lane // 32) if lane % 32 < 16 else None


def case(f, entry, name, m, n, kind, ab="f16", bb=None, d="f32", majors=("k", "k"), swizzles=(None, None), accumulate=True,
         negate=(0, 0), in_tensor=False, low=-3, keep=(), shift=0, saturate=0, big=0):
    bb = bb or ab
    depth = DEPTH[kind]
    a, b = ints(name + "a", m, depth, low), ints(name + "b", depth, n, low)
    c = [[shift and 64 * v or v + big for v in row] for row in ints(name + "c", 128, n, -9 if low < 0 else 0, 9)]
    sign = lambda matrix, on: [[-v for v in row] for row in matrix] if on else matrix
    ab_product = product(sign(a, negate[0]), sign(b, negate[1]))
    bits = idesc(m, n, ab, bb, d, (int(majors[0] != "k"), int(majors[1] != "k")), negate, saturate)
    ec = ENCODE[d]
    given = [[ec(v) for v in row] for row in c]
    result = [list(row) for row in given]
    for lane in range(128):
        row = row_of(lane, m)
        if row is None or lane in keep:
            continue
        for column in range(n):
            value = ab_product[row][column] + (c[lane][column] // 2**shift if accumulate else 0)
            if d == "s32":
                value = max(-(2**31), min(2**31 - 1, value)) if saturate else (value + 2**31) % 2**32 - 2**31
            result[lane][column] = ec(value)
    if in_tensor:
        # A row for each lane, as many words as it is deep, packed from the low end.
        size = 32 // depth
        aw = []
        for lane in range(128):
            row = row_of(lane, m)
            data = [0] * 32
            for k in range(depth if row is not None else 0):
                data[k * size : k * size + size] = list(ENCODE[ab](a[row][k]).to_bytes(size, "little"))
            aw += words(data)
        da, na = 0, 0
    else:
        aw, da = operand(a, ab, majors[0], swizzles[0])
        na = len(aw)
    bw, db = operand([list(column) for column in zip(*b)], bb, majors[1], swizzles[1])
    element = "u32" if d == "f16" else d
    flat = lambda rows: listing(element, [v for row in rows for v in row])
    run(f, name, entry,
        [f"in:{listing('u32', aw)}", f"u32:{na}", f"u64:0x{da:016x}", f"in:{listing('u32', bw)}", f"u32:{len(bw)}", f"u64:0x{db:016x}",
         f"in:{flat(given)}", f"u32:0x{bits:08x}", f"u32:{int(accumulate)}", f"out:{element}:{128 * n}"],
        [f"9 {flat(result)}"])


def products():
    f = File("tcgen05/product", "tcgen05.mma with operands in shared memory, K-major: swizzles, kinds, shapes, signs, lanes that are kept.", target="sm_100a", version="8.6")
    kernel(f, "f16_n8", 8, "f16")
    for swizzle in (None, 32, 64, 128):
        case(f, "f16_n8", f"swizzle-{swizzle or 'none'}", 64, 8, "f16", swizzles=(swizzle, swizzle))
    case(f, "f16_n8", "rows-128", 128, 8, "f16", swizzles=(128, 64))
    case(f, "f16_n8", "no-accumulate", 64, 8, "f16", accumulate=False)
    case(f, "f16_n8", "negate-a", 64, 8, "f16", negate=(1, 0))
    case(f, "f16_n8", "negate-b", 64, 8, "f16", negate=(0, 1))
    case(f, "f16_n8", "bf16", 64, 8, "f16", "bf16", swizzles=(128, 128))
    case(f, "f16_n8", "f16-sum", 64, 8, "f16", d="f16", swizzles=(64, 64))
    kernel(f, "f16_n16", 16, "f16")
    case(f, "f16_n16", "rows-128", 128, 16, "f16", swizzles=(128, 128))
    kernel(f, "tf32_n8", 8, "tf32")
    for swizzle in (None, 32, 128):
        case(f, "tf32_n8", f"swizzle-{swizzle or 'none'}", 64, 8, "tf32", "tf32", swizzles=(swizzle, swizzle))
    kernel(f, "f8_n8", 8, "f8f6f4")
    case(f, "f8_n8", "e4m3", 64, 8, "f8f6f4", "e4m3", swizzles=(128, 128))
    case(f, "f8_n8", "e5m2-e4m3", 64, 8, "f8f6f4", "e5m2", "e4m3", swizzles=(32, 64))
    case(f, "f8_n8", "e2m1-e3m2", 64, 8, "f8f6f4", "e2m1", "e3m2")
    case(f, "f8_n8", "e2m3-e5m2", 64, 8, "f8f6f4", "e2m3", "e5m2", d="f16")
    kernel(f, "i8_n8", 8, "i8")
    case(f, "i8_n8", "s8", 64, 8, "i8", "s8", d="s32", swizzles=(32, 128))
    case(f, "i8_n8", "u8", 64, 8, "i8", "u8", d="s32", low=0)
    case(f, "i8_n8", "u8-s8", 64, 8, "i8", "u8", "s8", d="s32", low=0)
    case(f, "i8_n8", "wraps", 64, 8, "i8", "u8", d="s32", low=0, big=2**31 - 20)
    case(f, "i8_n8", "saturates", 64, 8, "i8", "u8", d="s32", low=0, big=2**31 - 20, saturate=1)
    kernel(f, "kept", 8, "f16", tail="")
    f.blocks[-1] = f.blocks[-1].replace("db, idesc, sums;", "db, idesc, {m0, m1, m2, m3}, sums;")
    masks = "".join(f"    mov.b32 m{j}, {mask};\n" for j, mask in enumerate((0xFF, 0, 0x80000001, 0xFFFFFFFF)))
    f.blocks[-1] = f.blocks[-1].replace("    .reg .pred sums;", "    .reg .pred sums;\n    .reg .b32 m<4>;").replace("    tcgen05.mma", masks + "    tcgen05.mma")
    keep = [*range(8), 64, 95, *range(96, 128)]
    case(f, "kept", "lanes", 128, 8, "f16", keep=keep)
    kernel(f, "shifted", 8, "f16", tail=", 4")
    case(f, "shifted", "by-four", 64, 8, "f16", shift=4)
    kernel(f, "ashift_free", 8, "f16", mods=".collector::a::fill")
    case(f, "ashift_free", "collector", 64, 8, "f16")
    yield f

    f = File("tcgen05/product_transposed", "tcgen05.mma with operands whose M or N is contiguous in shared memory, in every swizzle.", target="sm_100a", version="8.6")
    for swizzle, n in ((None, 16), (32, 32), (64, 32), (128, 64)):
        kernel(f, f"b_{swizzle or 'none'}", n, "f16")
        case(f, f"b_{swizzle or 'none'}", "b", 64, n, "f16", majors=("k", "n"), swizzles=(32, swizzle))
    kernel(f, "f16_n8", 8, "f16")
    for swizzle in (None, 32, 64, 128):
        case(f, "f16_n8", f"a-swizzle-{swizzle or 'none'}", 64, 8, "f16", majors=("m", "k"), swizzles=(swizzle, 128))
    case(f, "f16_n8", "a-rows-128", 128, 8, "f16", majors=("m", "k"), swizzles=(64, 64))
    kernel(f, "tf32_n32", 32, "tf32")
    case(f, "tf32_n32", "atoms-of-32", 64, 32, "tf32", "tf32", majors=("m", "n"), swizzles=("128x32", "128x32"))
    kernel(f, "f8_n16", 16, "f8f6f4")
    case(f, "f8_n16", "both", 64, 16, "f8f6f4", "e4m3", majors=("m", "n"), swizzles=(64, None))
    yield f

    f = File("tcgen05/product_from_tensor", "tcgen05.mma with A from tensor memory: a row for each lane.", target="sm_100a", version="8.6")
    for kind, ab, m in (("f16", "f16", 128), ("f16", "bf16", 64), ("tf32", "tf32", 128), ("f8f6f4", "e4m3", 64), ("i8", "s8", 128)):
        name = f"{kind}_{ab}_{m}"
        kernel(f, name, 8, kind, a_columns=8)
        case(f, name, "swizzle-128", m, 8, kind, ab, d="s32" if kind == "i8" else "f32", swizzles=(None, 128), in_tensor=True)
    yield f


# -- copies --------------------------------------------------------------------------------------------
def copied_row(shape, lane):
    """The row of shared memory that a lane gets."""
    if shape.startswith("128x"):
        return lane
    if shape.endswith("02_13"):
        return lane % 64
    if shape.endswith("01_23"):
        return lane % 32 + 32 * (lane // 64)
    if shape.endswith("warpx4"):
        return lane % 32
    return lane // 32 if lane % 32 == 0 else None


def copies():
    f = File("tcgen05/copy", "tcgen05.cp in every shape, widening on the way, and tcgen05.shift.", target="sm_100a", version="8.6")
    shapes = {"128x256b": (128, 8), "128x128b": (128, 4), "64x128b.warpx2::02_13": (64, 4), "64x128b.warpx2::01_23": (64, 4),
              "32x128b.warpx4": (32, 4), "4x256b": (4, 8)}
    for shape, (rows, width) in shapes.items():
        for widen in ("", ".b8x16.b4x16_p64", ".b8x16.b6x16_p32") if shape == "128x128b" else ("",):
            copy(f, shape, rows, width, widen)
    shift(f)
    yield f


def copy_kernel(f, entry, width, what):
    registers = "{" + ", ".join(f"c{j}" for j in range(8)) + "}"
    zeros = "{" + ", ".join(["zero"] * 8) + "}"
    f.entry(f"""
.visible .entry {entry}(.param .u64 p_a, .param .u32 p_na, .param .u64 p_da, .param .u64 p_d)
{{
{REGS}
    .reg .u32 k, na, at, w;
    .reg .u64 a, d, e;
    .reg .b64 da;
    .reg .b32 zero, c<8>;
    .shared .align 1024 .b8 box_a[16384];
    .shared .align 8 .b64 bar;
    ld.param.u64 a, [p_a];
    ld.param.u32 na, [p_na];
    ld.param.u64 da, [p_da];
    ld.param.u64 d, [p_d];
    setp.eq.u32 p, i, 0;
    @p mbarrier.init.shared::cta.b64 [bar], 1;
    @p fence.mbarrier_init.release.cluster;
{fill('a')}
    fence.proxy.async.shared::cta;
{alloc()}
    mov.u32 zero, 0;
    tcgen05.st.sync.aligned.32x32b.x8.b32 [own], {zeros};
    tcgen05.wait::st.sync.aligned;
    tcgen05.fence::before_thread_sync;
    bar.sync 0;
    tcgen05.fence::after_thread_sync;
    setp.ne.u32 p, i, 0;
    @p bra wait;
{what}
    tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [bar];
wait:
    mbarrier.try_wait.parity.shared::cta.b64 p, [bar], 0;
    @!p bra wait;
    tcgen05.fence::after_thread_sync;
    tcgen05.ld.sync.aligned.32x32b.x8.b32 {registers}, [own];
    tcgen05.wait::ld.sync.aligned;
    mad.wide.u32 d, i, 32, d;
    st.global.v4.b32 [d], {{c0, c1, c2, c3}};
    st.global.v4.b32 [d+16], {{c4, c5, c6, c7}};
    tcgen05.fence::before_thread_sync;
{free()}
    ret;
}}""")


def rows_image(rows, width, data):
    """Rows of 16-byte chunks as K-major core matrices: eight rows of a chunk together, chunks far apart."""
    out = [0] * (rows * width * 4)
    lead = max(rows, 8) * 16
    out = [0] * (lead * (width // 4))
    for r in range(rows):
        for chunk in range(width // 4):
            at = chunk * lead + (r // 8) * 128 + (r % 8) * 16
            out[at : at + 16] = data[r][16 * chunk : 16 * chunk + 16]
    return words(out), descriptor(lead, 128, None)


def copy(f, shape, rows, width, widen):
    entry = "cp_" + (shape + widen).replace(".", "_").replace("::", "_")
    copy_kernel(f, entry, width, f"    tcgen05.cp.cta_group::1.{shape}{widen} [base], da;")
    rng = random.Random(entry)
    data = [[rng.randrange(256) for _ in range(4 * width)] for _ in range(rows)]
    bits = 4 if "b4x16" in widen else 6 if "b6x16" in widen else 0
    def widened(row):
        if not bits:
            return row
        out = []
        for chunk in range(len(row) // 16):
            packed = int.from_bytes(bytes(row[16 * chunk : 16 * chunk + 16]), "little")
            out += [(packed >> (bits * j) & ((1 << bits) - 1)) << (2 if bits == 4 else 0) for j in range(16)]
        return out
    expected = []
    for lane in range(128):
        row = copied_row(shape, lane)
        line = words(widened(data[row])) if row is not None else []
        expected += line + [0] * (8 - len(line))
    aw, da = rows_image(rows, width, data)
    run(f, "all", entry, [f"in:{listing('u32', aw)}", f"u32:{len(aw)}", f"u64:0x{da:016x}", "out:u32:1024"], [f"3 {listing('u32', expected)}"])


def shift(f):
    copy_kernel(f, "shift", 8, "    tcgen05.cp.cta_group::1.128x256b [base], da;\n    tcgen05.shift.cta_group::1.down [base];")
    rng = random.Random("shift")
    data = [[rng.randrange(256) for _ in range(32)] for _ in range(128)]
    moved = [data[lane + 1] if lane < 31 else data[lane] for lane in range(128)]
    aw, da = rows_image(128, 8, data)
    run(f, "down", "shift", [f"in:{listing('u32', aw)}", f"u32:{len(aw)}", f"u64:0x{da:016x}", "out:u32:1024"],
        [f"3 {listing('u32', [w for row in moved for w in words(row)])}"])


# -- block scales --------------------------------------------------------------------------------------
def scaled_idesc(n, a, b, scale, ids):
    packed = a == "packed"
    codes = (1, 1) if packed else (CODE[a], CODE[b])
    return ids[1] << 4 | codes[0] << 7 | codes[1] << 10 | (n // 8) << 17 | int(scale == "ue8m0") << 23 | 1 << 27 | ids[0] << 29


def scaled_kernel(f, name, n, kind, mods):
    """As `kernel`, with the scale factors of A and B copied into tensor memory behind D, 512 bytes each."""
    registers = "{" + ", ".join(f"c{j}" for j in range(n)) + "}"
    f.entry(f"""
.visible .entry {name}(.param .u64 p_a, .param .u32 p_na, .param .u64 p_da, .param .u64 p_b, .param .u32 p_nb, .param .u64 p_db,
                       .param .u64 p_sa, .param .u64 p_sb, .param .u64 p_c, .param .u32 p_idesc, .param .u64 p_d)
{{
{REGS}
    .reg .u32 k, na, nb, nsa, nsb, at, w;
    .reg .b32 idesc, scale_a, scale_b, c<{n}>;
    .reg .u64 a, b, sa, sb, c, d, e;
    .reg .b64 da, db, dsa, dsb;
    .shared .align 1024 .b8 box_a[16384];
    .shared .align 1024 .b8 box_b[16384];
    .shared .align 1024 .b8 box_sa[512];
    .shared .align 1024 .b8 box_sb[512];
    .shared .align 8 .b64 bar;
    ld.param.u64 a, [p_a];
    ld.param.u32 na, [p_na];
    ld.param.u64 da, [p_da];
    ld.param.u64 b, [p_b];
    ld.param.u32 nb, [p_nb];
    ld.param.u64 db, [p_db];
    ld.param.u64 sa, [p_sa];
    ld.param.u64 sb, [p_sb];
    ld.param.u64 c, [p_c];
    ld.param.u32 idesc, [p_idesc];
    ld.param.u64 d, [p_d];
    mov.u32 nsa, 128;
    mov.u32 nsb, 128;
    mov.u64 dsa, 0x{descriptor(0, 128, None):016x};
    mov.u64 dsb, dsa;
    setp.eq.u32 p, i, 0;
    @p mbarrier.init.shared::cta.b64 [bar], 1;
    @p fence.mbarrier_init.release.cluster;
{fill('a')}
{fill('b')}
{fill('sa')}
{fill('sb')}
    fence.proxy.async.shared::cta;
{alloc(64)}
    mad.wide.u32 c, i, {4 * n}, c;
{chr(10).join(f'    ld.global.b32 c{j}, [c+{4 * j}];' for j in range(n))}
    tcgen05.st.sync.aligned.32x32b.x{n}.b32 [own], {registers};
    tcgen05.wait::st.sync.aligned;
    tcgen05.fence::before_thread_sync;
    bar.sync 0;
    tcgen05.fence::after_thread_sync;
    setp.ne.u32 p, i, 0;
    @p bra wait;
    add.u32 scale_a, base, {n};
    add.u32 scale_b, base, {n + 4};
    tcgen05.cp.cta_group::1.32x128b.warpx4 [scale_a], dsa;
    tcgen05.cp.cta_group::1.32x128b.warpx4 [scale_b], dsb;
    tcgen05.mma.cta_group::1.kind::{kind}.block_scale{mods} [base], da, db, idesc, [scale_a], [scale_b], 1;
    tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [bar];
wait:
    mbarrier.try_wait.parity.shared::cta.b64 p, [bar], 0;
    @!p bra wait;
    tcgen05.fence::after_thread_sync;
    tcgen05.ld.sync.aligned.32x32b.x{n}.b32 {registers}, [own];
    tcgen05.wait::ld.sync.aligned;
    mad.wide.u32 d, i, {4 * n}, d;
{chr(10).join(f'    st.global.b32 [d+{4 * j}], c{j};' for j in range(n))}
    tcgen05.fence::before_thread_sync;
{free(64)}
    ret;
}}""")


SCALES = {"ue8m0": ([0.5, 1, 2], lambda v: {0.5: 126, 1: 127, 2: 128}[v]), "ue4m3": ([0.5, 1, 1.5, 2], minifloat(4, 3))}


def scaled_case(f, entry, name, n, kind, a_type, b_type, scale, block, ids=(0, 0)):
    depth = DEPTH[kind]
    count = depth // block
    high = 1 if "e2m1" in (a_type, b_type) or a_type == "packed" else 3
    a, b = ints(name + "a", 128, depth, -high, high), ints(name + "b", n, depth, -high, high)
    c = ints(name + "c", 128, n, -9, 9)
    rng = random.Random(name)
    values, encode = SCALES[scale]
    factors, images = [], []
    for rows, first in ((128, ids[0]), (n, ids[1])):
        chosen = [[rng.choice(values) for _ in range(count)] for _ in range(rows)]
        data = [0x7F if scale == "ue8m0" else 0x38] * 512
        for r in range(rows):
            for j in range(count):
                data[r % 32 * 16 + r // 32 * 4 + first + j] = encode(chosen[r][j])
        factors.append(chosen)
        images.append(words(data))
    d = [[c[r][s] + sum(a[r][k] * b[s][k] * factors[0][r][k // block] * factors[1][s][k // block] for k in range(depth)) for s in range(n)] for r in range(128)]
    def of(matrix, kind_of):
        if kind_of != "packed":
            return operand(matrix, kind_of, "k", None)
        data, leading, stride = packed_image(matrix, ENCODE["e2m1"])
        return words(data), descriptor(leading, stride, None)
    aw, da = of(a, a_type)
    bw, db = of(b, b_type)
    flat = lambda rows: listing("f32", [ENCODE["f32"](v) for row in rows for v in row])
    run(f, name, entry,
        [f"in:{listing('u32', aw)}", f"u32:{len(aw)}", f"u64:0x{da:016x}", f"in:{listing('u32', bw)}", f"u32:{len(bw)}", f"u64:0x{db:016x}",
         f"in:{listing('u32', images[0])}", f"in:{listing('u32', images[1])}", f"in:{flat(c)}", f"u32:0x{scaled_idesc(n, a_type, b_type, scale, ids):08x}", f"out:f32:{128 * n}"],
        [f"10 {flat(d)}"])


def scaled():
    f = File("tcgen05/block_scaled", "tcgen05.mma with scale factors for blocks of 16 and 32 elements, copied into tensor memory.", target="sm_100a", version="8.7")
    scaled_kernel(f, "mxf8", 8, "mxf8f6f4", ".scale_vec::1X")
    scaled_case(f, "mxf8", "e4m3", 8, "mxf8f6f4", "e4m3", "e4m3", "ue8m0", 32)
    scaled_case(f, "mxf8", "ids", 8, "mxf8f6f4", "e5m2", "e4m3", "ue8m0", 32, (3, 1))
    scaled_case(f, "mxf8", "e2m1-e3m2", 8, "mxf8f6f4", "e2m1", "e3m2", "ue8m0", 32, (2, 0))
    scaled_kernel(f, "mxf4", 8, "mxf4", ".scale_vec::2X")
    scaled_case(f, "mxf4", "ids", 8, "mxf4", "packed", "packed", "ue8m0", 32, (2, 0))
    scaled_kernel(f, "nvf4", 8, "mxf4nvf4", ".scale_vec::4X")
    scaled_case(f, "nvf4", "ue4m3", 8, "mxf4nvf4", "packed", "packed", "ue4m3", 16)
    scaled_kernel(f, "nvf4_2x", 8, "mxf4nvf4", ".scale_vec::2X")
    scaled_case(f, "nvf4_2x", "ue8m0", 8, "mxf4nvf4", "packed", "packed", "ue8m0", 32, (0, 2))
    yield f


# -- pairs of blocks -----------------------------------------------------------------------------------
def pair_kernel(f, name, n, kind):
    """Each block has half of the rows of A and half of the columns of B; the even one starts the product."""
    registers = "{" + ", ".join(f"c{j}" for j in range(n)) + "}"
    f.entry(f"""
.visible .entry {name}(.param .u64 p_a, .param .u32 p_na, .param .u64 p_da, .param .u64 p_b, .param .u32 p_nb, .param .u64 p_db,
                       .param .u64 p_c, .param .u32 p_idesc, .param .u64 p_d)
{{
{REGS}
    .reg .u32 k, na, nb, at, w, rank;
    .reg .b32 idesc, c<{n}>;
    .reg .b16 both;
    .reg .u64 a, b, c, d, e;
    .reg .b64 da, db;
    .shared .align 1024 .b8 box_a[16384];
    .shared .align 1024 .b8 box_b[16384];
    .shared .align 8 .b64 bar;
    mov.u32 rank, %cluster_ctarank;
    ld.param.u64 a, [p_a];
    ld.param.u32 na, [p_na];
    ld.param.u64 da, [p_da];
    ld.param.u64 b, [p_b];
    ld.param.u32 nb, [p_nb];
    ld.param.u64 db, [p_db];
    ld.param.u64 c, [p_c];
    ld.param.u32 idesc, [p_idesc];
    ld.param.u64 d, [p_d];
    mul.lo.u32 at, rank, na;
    mad.wide.u32 a, at, 4, a;
    mul.lo.u32 at, rank, nb;
    mad.wide.u32 b, at, 4, b;
    mad.lo.u32 at, rank, 128, i;
    mad.wide.u32 c, at, {4 * n}, c;
    mad.wide.u32 d, at, {4 * n}, d;
    setp.eq.u32 p, i, 0;
    @p mbarrier.init.shared::cta.b64 [bar], 1;
    @p fence.mbarrier_init.release.cluster;
{fill('a')}
{fill('b')}
    fence.proxy.async.shared::cta;
    barrier.cluster.arrive.aligned;
    barrier.cluster.wait.aligned;
{alloc(32).replace("cta_group::1", "cta_group::2")}
{chr(10).join(f'    ld.global.b32 c{j}, [c+{4 * j}];' for j in range(n))}
    tcgen05.st.sync.aligned.32x32b.x{n}.b32 [own], {registers};
    tcgen05.wait::st.sync.aligned;
    tcgen05.fence::before_thread_sync;
    barrier.cluster.arrive.aligned;
    barrier.cluster.wait.aligned;
    tcgen05.fence::after_thread_sync;
    or.b32 at, i, rank;
    setp.ne.u32 p, at, 0;
    @p bra wait;
    mov.b16 both, 3;
    tcgen05.mma.cta_group::2.kind::{kind} [base], da, db, idesc, 1;
    tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [bar], both;
wait:
    mbarrier.try_wait.parity.shared::cta.b64 p, [bar], 0;
    @!p bra wait;
    tcgen05.fence::after_thread_sync;
    tcgen05.ld.sync.aligned.32x32b.x{n}.b32 {registers}, [own];
    tcgen05.wait::ld.sync.aligned;
{chr(10).join(f'    st.global.b32 [d+{4 * j}], c{j};' for j in range(n))}
    tcgen05.fence::before_thread_sync;
    barrier.cluster.arrive.aligned;
    barrier.cluster.wait.aligned;
{free(32).replace("cta_group::1", "cta_group::2")}
    ret;
}}""")


def pair_case(f, entry, name, m, n, kind, ab, swizzle):
    depth = DEPTH[kind]
    a, b, c = ints(name + "a", m, depth), ints(name + "b", n, depth), ints(name + "c", 256, n, -9, 9)
    d = [list(row) for row in c]
    for block in range(2):
        for lane in range(128):
            for column in range(n):
                if m == 256:
                    row, at = 128 * block + lane, column
                else:
                    row, at = 64 * block + lane % 64, column + n // 2 * (lane // 64)
                    if column >= n // 2:
                        continue
                d[128 * block + lane][column] += sum(a[row][k] * b[at][k] for k in range(depth))
    halves = []
    for matrix in (a, b):
        half = len(matrix) // 2
        (first, bits), (second, _) = (operand(part, ab, "k", swizzle) for part in (matrix[:half], matrix[half:]))
        halves.append((first + second, len(first), bits))
    (aw, na, da), (bw, nb, db) = halves
    flat = lambda rows: listing("f32", [ENCODE["f32"](v) for row in rows for v in row])
    run(f, name, entry,
        [f"in:{listing('u32', aw)}", f"u32:{na}", f"u64:0x{da:016x}", f"in:{listing('u32', bw)}", f"u32:{nb}", f"u64:0x{db:016x}",
         f"in:{flat(c)}", f"u32:0x{idesc(m, n, ab, ab):08x}", f"out:f32:{256 * n}"],
        [f"8 {flat(d)}"], grid=2, cluster=2)


def paired():
    f = File("tcgen05/pair", "tcgen05 for pairs of blocks: one product over the shared and tensor memory of both.", target="sm_100a", version="8.6")
    pair_kernel(f, "f16_n16", 16, "f16")
    pair_case(f, "f16_n16", "rows-256", 256, 16, "f16", "f16", 128)
    pair_case(f, "f16_n16", "rows-128", 128, 16, "f16", "bf16", 32)
    pair_kernel(f, "tf32_n32", 32, "tf32")
    pair_case(f, "tf32_n32", "rows-128", 128, 32, "tf32", "tf32", None)
    yield f


# -- copies of this generation -------------------------------------------------------------------------
def bulk_forms():
    f = File("tensor/four_rows", "Tensor copies of four rows that are not neighbours: into shared memory, and out of it.", target="sm_100a", version="8.6")
    f.entry("""
.visible .entry rows(.param .align 64 .b8 p_from[128], .param .align 64 .b8 p_to[128], .param .u64 p_d)
{
    .reg .u32 i, at, v;
    .reg .u64 from, to, d;
    .reg .pred first, p;
    .shared .align 128 .u32 box[64];
    .shared .align 8 .b64 bar;
    mov.b64 from, p_from;
    cvta.param.u64 from, from;
    mov.b64 to, p_to;
    cvta.param.u64 to, to;
    ld.param.u64 d, [p_d];
    mov.u32 i, %tid.x;
    mov.u32 at, box;
    setp.eq.u32 first, i, 0;
    @first mbarrier.init.shared::cta.b64 [bar], 1;
    @first fence.mbarrier_init.release.cluster;
    bar.sync 0;
    @!first bra wait;
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 256;
    cp.async.bulk.tensor.2d.shared::cta.global.tile::gather4.mbarrier::complete_tx::bytes [at], [from, {4, 5, 0, 9, 2}], [bar];
wait:
    mbarrier.try_wait.parity.shared::cta.b64 p, [bar], 0;
    @!p bra wait;
    @!first bra read;
    cp.async.bulk.tensor.2d.global.shared::cta.tile::scatter4.bulk_group [to, {0, 3, 1, 0, 6}], [at];
    cp.async.bulk.commit_group;
    cp.async.bulk.wait_group 0;
read:
    mad.lo.u32 at, i, 4, at;
    ld.shared.u32 v, [at];
    mad.wide.u32 d, i, 4, d;
    st.global.u32 [d], v;
    ret;
}""")
    # Ten rows of twenty; one of the four lies outside, and the box reaches over the edge by none.
    data = list(range(100, 100 + 8 * 20))
    row = lambda y: data[20 * y + 4 : 20 * y + 20] if y < 8 else [0] * 16
    box = [row(5), row(0), row(9), row(2)]
    out = [[0] * 16 for _ in range(8)]
    for y, line in zip((3, 1, 0, 6), box):
        out[y] = line
    common = "strides=[{}], box=[16,1], swizzle=none, interleave=none, l2=none, fill=zeros)"
    run(f, "gather-and-scatter", "rows",
        ["tensormap(buffer=FROM, type=u32, dims=[20,8], " + common.format(80), "tensormap(buffer=TO, type=u32, dims=[16,8], " + common.format(64), "out:u32:64"],
        [f"2 {listing('u32', [v for line in box for v in line])}", f"TO {listing('u32', [v for line in out for v in line])}"],
        block=64, buffers=[f"FROM in:{listing('u32', data)}", f"TO inout:{listing('u32', [0] * 128)}"])
    yield f

    f = File("tensor/pair_multicast", "A multicast for a pair of blocks: the bytes of both arrive at the mbarrier of the even one.", target="sm_100a", version="8.6")
    f.entry("""
.visible .entry pair(.param .align 64 .b8 p_map[128], .param .u64 p_d)
{
    .reg .u32 i, r, at, v, who;
    .reg .b16 mask;
    .reg .u64 map, d;
    .reg .pred first, p;
    .shared .align 128 .u32 box[64];
    .shared .align 8 .b64 bar;
    mov.b64 map, p_map;
    cvta.param.u64 map, map;
    ld.param.u64 d, [p_d];
    mov.u32 i, %tid.x;
    mov.u32 r, %cluster_ctarank;
    mov.u32 at, box;
    or.b32 who, i, r;
    setp.eq.u32 first, who, 0;
    setp.eq.u32 p, i, 0;
    @p mbarrier.init.shared::cta.b64 [bar], 1;
    @p fence.mbarrier_init.release.cluster;
    barrier.cluster.arrive.release;
    barrier.cluster.wait.acquire;
    mov.b16 mask, 3;
    setp.ne.u32 p, r, 0;
    @p bra meet;
    @!first bra wait;
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 512;
    cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster.cta_group::2 [at], [map, {0, 0}], [bar], mask;
wait:
    mbarrier.try_wait.parity.shared::cta.b64 p, [bar], 0;
    @!p bra wait;
meet:
    barrier.cluster.arrive.release;
    barrier.cluster.wait.acquire;
    mad.lo.u32 at, i, 4, at;
    ld.shared.u32 v, [at];
    mad.lo.u32 v, r, 1000, v;
    mad.lo.u32 i, r, 64, i;
    mad.wide.u32 d, i, 4, d;
    st.global.u32 [d], v;
    ret;
}""")
    run(f, "both", "pair",
        ["tensormap(buffer=DATA, type=u32, dims=[16,4], strides=[64], box=[16,4], swizzle=none, interleave=none, l2=none, fill=zeros)", "out:u32:128"],
        ["1 u32:[100..164,1100..1164]"], block=64, grid=2, cluster=2, buffers=["DATA in:u32:[100..164]"])
    yield f


def files():
    yield from bulk_forms()
    yield from transfers()
    yield from products()
    yield from copies()
    yield from scaled()
    yield from paired()
