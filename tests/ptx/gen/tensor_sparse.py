"""tcgen05.mma.sp: products whose first factor has zeros that are not stored.

Where metadata lie is written down here as strides of a row's and an element's digits, as CuTe's layouts are; the
simulator has the lane and the bit in closed form.
"""

import random

from .file import File, listing
from .tensor_memory import CODE, D_CODE, ENCODE, REGS, SCALES, alloc, descriptor, fill, free, operand, packed_image, pair_kernel, run, scaled_idesc, scaled_kernel
from .warpgroup import ints, product, words

# Elements of a row as if all were stored, and how many have one group's four bits.
DEPTH = {"f16": 32, "tf32": 16, "f8f6f4": 64, "i8": 64, "mxf8f6f4": 64, "mxf4": 128, "mxf4nvf4": 128}
GROUP = {"f16": 4, "tf32": 2, "f8f6f4": 4, "i8": 4, "mxf8f6f4": 4, "mxf4": 8, "mxf4nvf4": 8}
# The places that are stored, in their order, by the four bits.
PAIRS = {0x4: (0, 1), 0x8: (0, 2), 0xC: (0, 3), 0x9: (1, 2), 0xD: (1, 3), 0x6: (2, 1), 0xE: (2, 3)}
SINGLES = {0x4: (0,), 0xE: (1,)}


def cell(kind, row, k):
    """The lane and the bit of what the metadata have for an element, and how many bits that is."""
    if kind == "f16":
        v = row % 8 + 2048 * (row // 8 % 2) + 16 * (row // 16) + 128 * (k % 16) + 8 * (k // 16)
        return v % 128, v // 128, 1
    if kind == "tf32":
        v = row % 8 + 1024 * (row // 8 % 2) + 16 * (row // 16) + 128 * (k % 8) + 8 * (k // 8)
        return v % 128, v // 128 * 2, 2
    if kind in ("mxf4", "mxf4nvf4"):
        # Half a bit for an element: those of a group's even elements are its four bits.
        return row, k // 2, 1 - k % 2
    return row, k, 1


def sparse(name, rows, kind, numbers=(-3, -2, -1, 1, 2, 3), selector=0):
    """Rows as they are stored, with all their zeros, and two words of metadata for each lane."""
    depth, group = DEPTH[kind], GROUP[kind]
    choices = SINGLES if kind == "tf32" else PAIRS
    rng = random.Random(name)
    stored, whole = [], []
    metadata = [[0, 0] for _ in range(rows)]
    for row in range(rows):
        kept, line = [], [0] * depth
        for at in range(0, depth, group):
            bits = rng.choice(sorted(choices))
            places = choices[bits] if group < 8 else [2 * place + half for place in choices[bits] for half in (0, 1)]
            for place in places:
                line[at + place] = rng.choice(numbers)
                kept.append(line[at + place])
            taken = 0
            for j in range(group):
                lane, bit, width = cell(kind, row % 128, at + j)
                bit += 32 * selector
                metadata[row // 128 * 128 + lane][bit // 32] |= (bits >> taken & (1 << width) - 1) << bit % 32
                taken += width
        stored.append(kept)
        whole.append(line)
    return stored, whole, [word for lane in metadata for word in lane]


def kernel(f, name, n, kind, in_tensor=False):
    """A and B go into shared memory as they come, D starts as C, and each lane brings two words of metadata."""
    registers = lambda letter, count: "{" + ", ".join(f"{letter}{j}" for j in range(count)) + "}"
    own_a = f"""    mad.wide.u32 a, i, 32, a;
{chr(10).join(f'    ld.global.b32 x{j}, [a+{4 * j}];' for j in range(8))}
    tcgen05.st.sync.aligned.32x32b.x8.b32 [own+{n + 8}], {registers('x', 8)};
""" if in_tensor else ""
    f.entry(f"""
.visible .entry {name}(.param .u64 p_a, .param .u32 p_na, .param .u64 p_da, .param .u64 p_b, .param .u32 p_nb, .param .u64 p_db,
                       .param .u64 p_e, .param .u64 p_c, .param .u32 p_idesc, .param .u64 p_d)
{{
{REGS}
    .reg .u32 k, na, nb, at, w;
    .reg .b32 idesc, which, left;
    .reg .u64 a, b, c, d, e, f;
    .reg .b64 da, db;
    .reg .b32 c<{n}>, e<2>, x<8>;
    .shared .align 1024 .b8 box_a[16384];
    .shared .align 1024 .b8 box_b[16384];
    .shared .align 8 .b64 bar;
    ld.param.u64 a, [p_a];
    ld.param.u32 na, [p_na];
    ld.param.u64 da, [p_da];
    ld.param.u64 b, [p_b];
    ld.param.u32 nb, [p_nb];
    ld.param.u64 db, [p_db];
    ld.param.u64 f, [p_e];
    ld.param.u64 c, [p_c];
    ld.param.u32 idesc, [p_idesc];
    ld.param.u64 d, [p_d];
    setp.eq.u32 p, i, 0;
    @p mbarrier.init.shared::cta.b64 [bar], 1;
    @p fence.mbarrier_init.release.cluster;
{fill('a')}
{fill('b')}
    fence.proxy.async.shared::cta;
{alloc(64)}
    mad.wide.u32 c, i, {4 * n}, c;
{chr(10).join(f'    ld.global.b32 c{j}, [c+{4 * j}];' for j in range(n))}
    mad.wide.u32 f, i, 8, f;
    ld.global.b32 e0, [f];
    ld.global.b32 e1, [f+4];
    tcgen05.st.sync.aligned.32x32b.x{n}.b32 [own], {registers('c', n)};
    tcgen05.st.sync.aligned.32x32b.x2.b32 [own+{n}], {{e0, e1}};
{own_a}    tcgen05.wait::st.sync.aligned;
    tcgen05.fence::before_thread_sync;
    bar.sync 0;
    tcgen05.fence::after_thread_sync;
    add.u32 which, base, {n};
    add.u32 left, base, {n + 8};
    setp.ne.u32 p, i, 0;
    @p bra wait;
    tcgen05.mma.sp.cta_group::1.kind::{kind} [base], {'[left]' if in_tensor else 'da'}, db, [which], idesc, 1;
    tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [bar];
wait:
    mbarrier.try_wait.parity.shared::cta.b64 p, [bar], 0;
    @!p bra wait;
    tcgen05.fence::after_thread_sync;
    tcgen05.ld.sync.aligned.32x32b.x{n}.b32 {registers('c', n)}, [own];
    tcgen05.wait::ld.sync.aligned;
    mad.wide.u32 d, i, {4 * n}, d;
{chr(10).join(f'    st.global.b32 [d+{4 * j}], c{j};' for j in range(n))}
    tcgen05.fence::before_thread_sync;
{free(64)}
    ret;
}}""")


def case(f, entry, name, n, kind, ab, bb=None, d="f32", selector=0, swizzles=(None, None), in_tensor=False):
    bb, depth = bb or ab, DEPTH[kind]
    stored, whole, metadata = sparse(name, 128, kind, selector=selector)
    b, c = ints(name + "b", depth, n), ints(name + "c", 128, n, -9, 9)
    result = product(whole, b, c)
    bits = selector | 1 << 2 | D_CODE[d] << 4 | CODE[ab] << 7 | CODE[bb] << 10 | (n // 8) << 17 | 8 << 24
    if in_tensor:
        size = 32 // (depth // 2)
        aw = [int.from_bytes(b"".join(ENCODE[ab](v).to_bytes(size, "little") for v in row)[4 * j : 4 * j + 4], "little") for row in stored for j in range(8)]
        na, da = 0, 0
    else:
        aw, da = operand(stored, ab, "k", swizzles[0])
        na = len(aw)
    bw, db = operand([list(column) for column in zip(*b)], bb, "k", swizzles[1])
    flat = lambda rows: listing(d, [ENCODE[d](v) for row in rows for v in row])
    run(f, name, entry,
        [f"in:{listing('u32', aw)}", f"u32:{na}", f"u64:0x{da:016x}", f"in:{listing('u32', bw)}", f"u32:{len(bw)}", f"u64:0x{db:016x}",
         f"in:{listing('u32', metadata)}", f"in:{flat(c)}", f"u32:0x{bits:08x}", f"out:{d}:{128 * n}"],
        [f"9 {flat(result)}"])


def with_metadata(text, column, pair=False):
    """A kernel of dense products, with metadata from a buffer of its own: two words for each lane of each block."""
    number = "mad.lo.u32 at, rank, 128, i;" if pair else "mov.u32 at, i;"
    text = text.replace(", .param .u64 p_d)", ", .param .u64 p_d, .param .u64 p_e)")
    text = text.replace("    .reg .b64 da", "    .reg .u64 f;\n    .reg .b32 which, e<2>;\n    .reg .b64 da")
    text = text.replace("    tcgen05.wait::st.sync.aligned;", f"""    ld.param.u64 f, [p_e];
    {number}
    mad.wide.u32 f, at, 8, f;
    ld.global.b32 e0, [f];
    ld.global.b32 e1, [f+4];
    tcgen05.st.sync.aligned.32x32b.x2.b32 [own+{column}], {{e0, e1}};
    tcgen05.wait::st.sync.aligned;
    add.u32 which, base, {column};""")
    return text.replace("tcgen05.mma.", "tcgen05.mma.sp.").replace("da, db, idesc,", "da, db, [which], idesc,")


def pair_case(f, entry, name, n, kind, ab, swizzle):
    depth = DEPTH[kind]
    stored, whole, metadata = sparse(name, 256, kind)
    b, c = ints(name + "b", n, depth), ints(name + "c", 256, n, -9, 9)
    d = product(whole, [list(column) for column in zip(*b)], c)
    halves = []
    for matrix in (stored, b):
        half = len(matrix) // 2
        (first, bits), (second, _) = (operand(part, ab, "k", swizzle) for part in (matrix[:half], matrix[half:]))
        halves.append((first + second, len(first), bits))
    (aw, na, da), (bw, nb, db) = halves
    bits = 1 << 2 | D_CODE["f32"] << 4 | CODE[ab] << 7 | CODE[ab] << 10 | (n // 8) << 17 | 16 << 24
    flat = lambda rows: listing("f32", [ENCODE["f32"](v) for row in rows for v in row])
    run(f, name, entry,
        [f"in:{listing('u32', aw)}", f"u32:{na}", f"u64:0x{da:016x}", f"in:{listing('u32', bw)}", f"u32:{nb}", f"u64:0x{db:016x}",
         f"in:{flat(c)}", f"u32:0x{bits:08x}", f"out:f32:{256 * n}", f"in:{listing('u32', metadata)}"],
        [f"8 {flat(d)}"], grid=2, cluster=2)


def scaled_case(f, entry, name, n, kind, a_type, scale, count):
    """As many scale factors as a dense product has, each for twice as many elements."""
    depth = DEPTH[kind]
    block = depth // count
    stored, whole, metadata = sparse(name, 128, kind, (-1, 1) if a_type == "packed" else (-3, -2, -1, 1, 2, 3))
    b, c = ints(name + "b", n, depth, -1, 1), ints(name + "c", 128, n, -9, 9)
    rng = random.Random(name)
    values, encode = SCALES[scale]
    factors, images = [], []
    for rows in (128, n):
        chosen = [[rng.choice(values) for _ in range(count)] for _ in range(rows)]
        data = [0x7F if scale == "ue8m0" else 0x38] * 512
        for r in range(rows):
            for j in range(count):
                data[r % 32 * 16 + r // 32 * 4 + j] = encode(chosen[r][j])
        factors.append(chosen)
        images.append(words(data))
    d = [[c[r][s] + sum(whole[r][k] * b[s][k] * factors[0][r][k // block] * factors[1][s][k // block] for k in range(depth)) for s in range(n)] for r in range(128)]
    def of(matrix):
        if a_type != "packed":
            return operand(matrix, a_type, "k", None)
        data, leading, stride = packed_image(matrix, ENCODE["e2m1"])
        return words(data), descriptor(leading, stride, None)
    (aw, da), (bw, db) = of(stored), of(b)
    flat = lambda rows: listing("f32", [ENCODE["f32"](v) for row in rows for v in row])
    run(f, name, entry,
        [f"in:{listing('u32', aw)}", f"u32:{len(aw)}", f"u64:0x{da:016x}", f"in:{listing('u32', bw)}", f"u32:{len(bw)}", f"u64:0x{db:016x}",
         f"in:{listing('u32', images[0])}", f"in:{listing('u32', images[1])}", f"in:{flat(c)}", f"u32:0x{1 << 2 | scaled_idesc(n, a_type, a_type, scale, (0, 0)):08x}",
         f"out:f32:{128 * n}", f"in:{listing('u32', metadata)}"],
        [f"10 {flat(d)}"])


def scaled_and_paired():
    f = File("tcgen05/sparse_scaled", "tcgen05.mma.sp with scale factors for blocks, and by pairs of blocks.", target="sm_100a", version="8.7")
    for name, kind, mods, a_type, scale, count in (
        ("mxf8", "mxf8f6f4", ".scale_vec::1X", "e4m3", "ue8m0", 1),
        ("mxf4", "mxf4", ".scale_vec::2X", "packed", "ue8m0", 2),
        ("nvf4", "mxf4nvf4", ".scale_vec::4X", "packed", "ue4m3", 4),
    ):
        scaled_kernel(f, name, 8, kind, mods)
        f.blocks[-1] = with_metadata(f.blocks[-1], 24)
        scaled_case(f, name, scale, 8, kind, a_type, scale, count)
    pair_kernel(f, "pair", 16, "f16")
    f.blocks[-1] = with_metadata(f.blocks[-1], 16, pair=True)
    pair_case(f, "pair", "rows-256", 16, "f16", "f16", 64)
    yield f


def files():
    yield from scaled_and_paired()
    f = File("tcgen05/sparse", "tcgen05.mma.sp: half of A is not stored, and metadata in tensor memory say which.", target="sm_100a", version="8.6")
    kernel(f, "f16_n8", 8, "f16")
    case(f, "f16_n8", "first", 8, "f16", "f16", swizzles=(32, 64))
    case(f, "f16_n8", "selected", 8, "f16", "bf16", selector=1)
    kernel(f, "tf32_n8", 8, "tf32")
    case(f, "tf32_n8", "first", 8, "tf32", "tf32", swizzles=(128, 128))
    case(f, "tf32_n8", "selected", 8, "tf32", "tf32", selector=1)
    kernel(f, "f8_n8", 8, "f8f6f4")
    case(f, "f8_n8", "e4m3-e5m2", 8, "f8f6f4", "e4m3", "e5m2", swizzles=(32, 64))
    kernel(f, "i8_n8", 8, "i8")
    case(f, "i8_n8", "s8", 8, "i8", "s8", d="s32")
    kernel(f, "f16_from_tensor", 8, "f16", in_tensor=True)
    case(f, "f16_from_tensor", "first", 8, "f16", "f16", in_tensor=True)
    yield f
