"""Tensor copies (tiled mode) of one to five dimensions, with every swizzle, edges, stores, reductions and multicast."""

from itertools import product
from math import prod

from .file import File, listing
from .floats import F16, F32, NAN

SIZE = {"u8": 1, "u16": 2, "f16": 2, "bf16": 2, "u32": 4, "f32": 4, "s32": 4, "u64": 8}


def swizzled(offset, span):
    """Where the byte at `offset` of an unswizzled box goes."""
    if span == 128:
        return offset ^ ((offset >> 7 & 7) << 4)
    if span == 64:
        return offset ^ ((offset >> 7 & 3) << 4)
    if span == 32:
        return offset ^ ((offset >> 7 & 1) << 4)
    return offset


def box_elements(dims, box, at, estrides):
    """For each element of a box, innermost first: its tensor coordinate, or None outside."""
    for local in product(*(range(b) for b in reversed(box))):
        local = local[::-1]
        spot = tuple(c + l * e for c, l, e in zip(at, local, estrides))
        yield spot if all(0 <= s < d for s, d in zip(spot, dims)) else None


def linear(spot, pitches):
    """Element index of a coordinate, given pitches in elements."""
    return sum(s * p for s, p in zip(spot, pitches))


def coordinates(rank):
    return ", ".join(f"c{i}" for i in range(rank))


def load_kernel(f, rank):
    names = coordinates(rank)
    params = "".join(f", .param .u32 p_c{i}" for i in range(rank))
    loads = "\n".join(f"    ld.param.u32 c{i}, [p_c{i}];" for i in range(rank))
    f.entry(f"""
// One thread asks for a box; the shared memory it lands in is written out as it is.
.visible .entry load_{rank}d(.param .align 64 .b8 p_map[128], .param .u64 p_d, .param .u32 p_bytes{params})
{{
    .reg .u32 i, n, at, bar_, v, bytes, {names};
    .reg .u64 map, d, e;
    .reg .pred first, p;
    .shared .align 1024 .b8 box[8192];
    .shared .align 8 .b64 bar;
    mov.b64 map, p_map;
    cvta.param.u64 map, map;
    ld.param.u64 d, [p_d];
    ld.param.u32 bytes, [p_bytes];
{loads}
    mov.u32 i, %tid.x;
    mov.u32 at, box;
    mov.u32 bar_, bar;
    setp.eq.u32 first, i, 0;
    @!first bra ready;
    mbarrier.init.shared::cta.b64 [bar_], 1;
    fence.mbarrier_init.release.cluster;
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar_], bytes;
    cp.async.bulk.tensor.{rank}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [at], [map, {{{names}}}], [bar_];
ready:
    bar.sync 0;
wait:
    mbarrier.try_wait.parity.shared::cta.b64 p, [bar_], 0;
    @!p bra wait;
    mul.lo.u32 i, i, 4;
copy:
    setp.ge.u32 p, i, bytes;
    @p bra done;
    add.u32 v, at, i;
    ld.shared.u32 v, [v];
    cvt.u64.u32 e, i;
    add.u64 e, d, e;
    st.global.u32 [e], v;
    add.u32 i, i, 128;
    bra copy;
done:
    ret;
}}""")


def data(kind, count):
    """Values that name their place, as patterns of the element type."""
    if kind == "f16":
        return [F16.of((i * 7) % 2048) for i in range(count)]
    if kind == "f32":
        return [F32.of(i + 0.5) for i in range(count)]
    width = SIZE[kind] * 8
    return [(i * 37 + 11) & ((1 << width) - 1) if width == 8 else (i + 3) & ((1 << width) - 1) for i in range(count)]


def load_case(f, name, kind, dims, box, at, pitches=None, swizzle=None, estrides=None, fill="zeros"):
    rank = len(dims)
    size = SIZE[kind]
    assert at[0] * size % 16 == 0, "hardware faults on a box that does not begin at 16 bytes"
    estrides = estrides or (1,) * rank
    if pitches is None:
        pitches = [1]
        for d in dims[:-1]:
            pitches.append(pitches[-1] * d)
    count = pitches[-1] * dims[-1]
    values = data(kind, count)
    # with element strides a box of b covers ceil(b / stride) elements
    extent = [-(-b // e) for b, e in zip(box, estrides)]
    total = prod(extent)
    out = [0] * total
    for k, spot in enumerate(box_elements(dims, extent, at, estrides)):
        outside = NAN if fill == "nan" else 0
        out[swizzled(k * size, swizzle) // size] = values[linear(spot, pitches)] if spot else outside
    strides = ",".join(str(p * size) for p in pitches[1:])
    fields = [f"buffer=DATA", f"type={kind}", f"dims=[{','.join(map(str, dims))}]", f"strides=[{strides}]",
              f"box=[{','.join(map(str, box))}]", f"swizzle={swizzle or 'none'}", "interleave=none", "l2=none", f"fill={fill}"]
    if any(e != 1 for e in estrides):
        fields.insert(5, f"estrides=[{','.join(map(str, estrides))}]")
    if rank == 1:
        fields.remove("strides=[]")
    f.run(name, f"load_{rank}d",
          [f"tensormap({', '.join(fields)})", f"out:{kind}:{total}", f"u32:{total * size}"] + [f"u32:{c & 0xFFFFFFFF}" for c in at],
          [f"1 {listing(kind, out)}"], buffers=[f"DATA in:{listing(kind, values)}"])


# Ties, what is near them, the largest numbers, subnormal ones, infinities, what is no number.
SINGLES = [
    0x3F800000, 0x3F801000, 0x3F803000, 0x3F800FFF, 0x3F801001, 0xBF801000, 0xBF803000, 0x3F805000, 0x3FFFFFFF, 0x7F7FEFFF, 0x7F7FF000,
    0x7F800000, 0xFF800000, 0x7FC00000, 0x7F800001, 0xFFC12345, 0x00000001, 0x00001000, 0x00001001, 0x00003000, 0x007FFFFF, 0x80001000,
    0x80000000, 0x40490FDB,
]  # fmt: skip


def tf32(bits):
    """Rounded to nearest, ties to even; subnormal numbers stay such, what is no number becomes one of them."""
    if bits & 0x7FFFFFFF > 0x7F800000:
        return 0x7FFFE000
    whole, rest = bits >> 13, bits & 0x1FFF
    return whole + (rest > 0x1000 or rest == 0x1000 and whole & 1) << 13


def rounded_case(f, kind, becomes):
    f.run(f"words-as-{kind}", "load_1d",
          [f"tensormap(buffer=DATA, type={kind}, dims=[{len(SINGLES)}], box=[{len(SINGLES)}], swizzle=none, interleave=none, l2=none, fill=zeros)",
           f"out:u32:{len(SINGLES)}", f"u32:{len(SINGLES) * 4}", "u32:0"],
          [f"1 {listing('u32', [becomes(bits) for bits in SINGLES])}"], buffers=[f"DATA in:{listing('u32', SINGLES)}"])


def loads():
    f = File("tensor/load", "Tensor loads: boxes inside and over every edge, dense and padded rows, element strides, NaN fill.")
    load_kernel(f, 1)
    load_case(f, "inside", "u32", [64], [16], [8])
    load_case(f, "over-the-end", "u16", [20], [16], [8])
    load_case(f, "before-the-start", "u32", [32], [8], [-4])
    load_case(f, "bytes", "u8", [128], [32], [16])
    rounded_case(f, "tf32", tf32)
    rounded_case(f, "tf32_ftz", tf32)
    rounded_case(f, "f32_ftz", lambda bits: bits)
    load_kernel(f, 2)
    load_case(f, "inside", "u32", [16, 8], [4, 4], [4, 2])
    load_case(f, "padded-rows", "u16", [12, 6], [8, 4], [8, 1], pitches=[1, 16])
    load_case(f, "right-edge", "f32", [10, 6], [8, 2], [4, 2], pitches=[1, 12])
    load_case(f, "corner", "u32", [10, 8], [8, 4], [4, 6], pitches=[1, 12])
    load_case(f, "negative", "u32", [8, 8], [8, 4], [-4, -2])
    load_case(f, "all-outside", "u32", [8, 8], [4, 2], [100, 100])
    load_case(f, "nan-fill", "f32", [10, 4], [8, 4], [4, 2], pitches=[1, 12], fill="nan")
    load_case(f, "halves", "f16", [16, 8], [8, 4], [8, 4])
    load_case(f, "wide-elements", "u64", [8, 4], [4, 4], [6, 0])
    load_case(f, "every-second-row", "u32", [8, 16], [4, 8], [0, 2], estrides=(1, 2))
    load_kernel(f, 3)
    load_case(f, "inside", "u16", [8, 4, 4], [8, 2, 2], [0, 1, 1])
    load_case(f, "edges", "u32", [8, 4, 3], [8, 2, 2], [4, 3, 2])
    load_kernel(f, 4)
    load_case(f, "inside", "u16", [8, 3, 3, 3], [8, 2, 2, 2], [0, 1, 0, 1])
    load_kernel(f, 5)
    load_case(f, "edges", "u32", [4, 2, 2, 2, 2], [4, 2, 2, 1, 2], [0, 1, 0, 1, -1])
    yield f

    f = File("tensor/swizzle", "Swizzled boxes: 16-byte chunks are exchanged by the row they are in, rows being 128 bytes of shared memory apart.")
    load_kernel(f, 2)
    load_case(f, "128-f16", "f16", [64, 16], [64, 16], [0, 0], swizzle=128)
    load_case(f, "128-u32", "u32", [32, 8], [32, 8], [0, 0], swizzle=128)
    load_case(f, "128-u8", "u8", [128, 8], [128, 8], [0, 0], swizzle=128)
    load_case(f, "128-over-the-edge", "u16", [72, 10], [64, 8], [16, 4], swizzle=128)
    load_case(f, "64-f16", "f16", [32, 16], [32, 16], [0, 0], swizzle=64)
    load_case(f, "64-u32", "u32", [16, 8], [16, 8], [0, 0], swizzle=64)
    load_case(f, "32-f16", "f16", [16, 16], [16, 16], [0, 0], swizzle=32)
    load_case(f, "32-u32", "u32", [8, 16], [8, 16], [0, 0], swizzle=32)
    load_kernel(f, 3)
    load_case(f, "128", "u16", [64, 4, 2], [64, 4, 2], [0, 0, 0], swizzle=128)
    yield f


def store_kernel(f, rank, name, instruction):
    names = coordinates(rank)
    params = "".join(f", .param .u32 p_c{i}" for i in range(rank))
    loads_ = "\n".join(f"    ld.param.u32 c{i}, [p_c{i}];" for i in range(rank))
    f.entry(f"""
// Shared memory is filled from a list, word by word, and a box of it goes to the tensor.
.visible .entry {name}(.param .align 64 .b8 p_map[128], .param .u64 p_a, .param .u32 p_bytes{params})
{{
    .reg .u32 i, at, v, w, bytes, {names};
    .reg .u64 map, a, e;
    .reg .pred first, p;
    .shared .align 1024 .b8 box[8192];
    mov.b64 map, p_map;
    cvta.param.u64 map, map;
    ld.param.u64 a, [p_a];
    ld.param.u32 bytes, [p_bytes];
{loads_}
    mov.u32 i, %tid.x;
    setp.eq.u32 first, i, 0;
    mov.u32 at, box;
    mul.lo.u32 i, i, 4;
fill:
    setp.ge.u32 p, i, bytes;
    @p bra filled;
    cvt.u64.u32 e, i;
    add.u64 e, a, e;
    ld.global.u32 v, [e];
    add.u32 w, at, i;
    st.shared.u32 [w], v;
    add.u32 i, i, 128;
    bra fill;
filled:
    fence.proxy.async.shared::cta;
    bar.sync 0;
    @!first bra done;
    {instruction.format(map=f"[map, {{{names}}}]")}
    cp.async.bulk.commit_group;
    cp.async.bulk.wait_group 0;
done:
    ret;
}}""")


def store_case(f, entry, name, kind, dims, box, at, swizzle=None, combine=None, initial=None):
    rank = len(dims)
    size = SIZE[kind]
    assert at[0] * size % 16 == 0, "hardware faults on a box that does not begin at 16 bytes"
    assert min(at) >= 0, "hardware faults on a store that begins before the tensor"
    pitches = [1]
    for d in dims[:-1]:
        pitches.append(pitches[-1] * d)
    count = prod(dims)
    before = initial or [9 if kind not in ("f16", "f32") else {"f16": F16, "f32": F32}[kind].of(9)] * count
    total = prod(box)
    source = data(kind, total)
    after = list(before)
    for k, spot in enumerate(box_elements(dims, box, at, (1,) * rank)):
        if spot:
            j = linear(spot, pitches)
            v = source[swizzled(k * size, swizzle) // size]
            after[j] = combine(after[j], v) if combine else v
    strides = ",".join(str(p * size) for p in pitches[1:])
    fields = [f"buffer=DATA", f"type={kind}", f"dims=[{','.join(map(str, dims))}]", f"strides=[{strides}]",
              f"box=[{','.join(map(str, box))}]", f"swizzle={swizzle or 'none'}", "interleave=none", "l2=none", "fill=zeros"]
    if rank == 1:
        fields.remove("strides=[]")
    f.run(name, entry,
          [f"tensormap({', '.join(fields)})", f"in:{listing(kind, source)}", f"u32:{total * size}"] + [f"u32:{c & 0xFFFFFFFF}" for c in at],
          [f"DATA {listing(kind, after)}"], buffers=[f"DATA inout:{listing(kind, before)}"])


def stores():
    f = File("tensor/store", "Tensor stores: what lies outside the tensor is not written; swizzled shared memory is put back in order.")
    store_kernel(f, 1, "store_1d", "cp.async.bulk.tensor.1d.global.shared::cta.tile.bulk_group {map}, [at];")
    store_case(f, "store_1d", "over-the-end", "u32", [20], [8], [16])
    store_kernel(f, 2, "store_2d", "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group {map}, [at];")
    store_case(f, "store_2d", "inside", "u32", [8, 8], [4, 4], [4, 3])
    store_case(f, "store_2d", "corner", "u32", [8, 8], [8, 4], [4, 6])
    store_case(f, "store_2d", "over-the-row", "u16", [16, 4], [16, 4], [8, 1])
    store_case(f, "store_2d", "all-outside", "u32", [8, 8], [4, 4], [100, 100])
    store_case(f, "store_2d", "swizzle-128", "f16", [64, 8], [64, 8], [0, 0], swizzle=128)
    store_case(f, "store_2d", "swizzle-64", "u16", [32, 8], [32, 8], [0, 0], swizzle=64)
    store_case(f, "store_2d", "swizzle-32", "u32", [8, 8], [8, 8], [0, 0], swizzle=32)
    store_kernel(f, 3, "store_3d", "cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group {map}, [at];")
    store_case(f, "store_3d", "edges", "u32", [8, 4, 3], [8, 2, 2], [4, 3, 2])
    for op, kind, fn in (("add", "u32", lambda x, y: (x + y) & 0xFFFFFFFF), ("min", "u32", min), ("max", "s32", max),
                         ("and", "u32", lambda x, y: x & y), ("or", "u32", lambda x, y: x | y), ("xor", "u32", lambda x, y: x ^ y),
                         ("inc", "u32", lambda o, v: 0 if o >= v else o + 1), ("dec", "u32", lambda o, v: v if o == 0 or o > v else o - 1)):
        name = f"reduce_{op}_2d"
        store_kernel(f, 2, name, f"cp.reduce.async.bulk.tensor.2d.global.shared::cta.{op}.tile.bulk_group {{map}}, [at];")
        store_case(f, name, kind, kind, [8, 6], [8, 4], [0, 4], combine=fn, initial=[(i * 5) % 23 for i in range(48)])
    store_case(f, "reduce_add_2d", "f16", "f16", [16, 4], [16, 2], [0, 1],
               combine=lambda x, y: F16.round(F16.value(x) + F16.value(y)), initial=[F16.of(i % 7) for i in range(64)])
    yield f

    f = File("tensor/multicast", "One tensor load delivered to several blocks of a cluster; and a load that each block makes half of.")
    f.entry("""
.visible .entry multicast(.param .align 64 .b8 p_map[128], .param .u64 p_d)
{
    .reg .u32 i, r, at, bar_, v, y;
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
    mov.u32 bar_, bar;
    setp.eq.u32 first, i, 0;
    @first mbarrier.init.shared::cta.b64 [bar_], 1;
    @first fence.mbarrier_init.release.cluster;
    @first mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar_], 256;
    barrier.cluster.arrive.release;
    barrier.cluster.wait.acquire;
    mov.b16 mask, 3;
    mul.lo.u32 y, r, 128;
    add.u32 at, at, y;
    mul.lo.u32 y, r, 2;
    @first cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [at], [map, {0, y}], [bar_], mask;
wait:
    mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [bar_], 0;
    @!p bra wait;
    mov.u32 at, box;
    mad.lo.u32 at, i, 4, at;
    ld.shared.u32 v, [at];
    mad.lo.u32 v, r, 1000, v;
    mad.lo.u32 i, r, 64, i;
    mad.wide.u32 d, i, 4, d;
    st.global.u32 [d], v;
    barrier.cluster.arrive.release;
    barrier.cluster.wait.acquire;
    ret;
}""")
    f.run("halves", "multicast", ["tensormap(buffer=DATA, type=u32, dims=[16,4], strides=[64], box=[16,2], swizzle=none, interleave=none, l2=none, fill=zeros)", "out:u32:128"],
          [f"1 {listing('u32', list(range(100, 164)) + list(range(1100, 1164)))}"], block=64, grid=2, cluster=2, buffers=["DATA in:u32:[100..164]"])
    yield f

    f = File("tensor/prefetch", "Prefetches of a tensor and of its map: nothing to wait for, and nothing changes.")
    f.entry("""
.visible .entry prefetch(.param .align 64 .b8 p_map[128], .param .u64 p_d)
{
    .reg .u64 map, d;
    mov.b64 map, p_map;
    cvta.param.u64 map, map;
    ld.param.u64 d, [p_d];
    prefetch.tensormap [map];
    cp.async.bulk.prefetch.tensor.2d.L2.global.tile [map, {0, 2}];
    cp.async.bulk.prefetch.tensor.2d.L2.global.tile [map, {4, 6}];
    st.global.u32 [d], 5;
    ret;
}""")
    f.run("harmless", "prefetch", ["tensormap(buffer=DATA, type=u32, dims=[8,8], strides=[32], box=[4,4], swizzle=none, interleave=none, l2=none, fill=zeros)", "out:u32:1"],
          ["1 u32:[5]"], block=1, buffers=["DATA in:u32:[0..64]"])
    yield f


def files():
    yield from loads()
    yield from stores()
