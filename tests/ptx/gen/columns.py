"""Tensor copies in columns of pixels (im2col and its wide forms).

Expectations come from the convolution that the copies are for: pixel m of a column is output m of it, so its
place in the input is (output * stride + lower corner + offset), taken apart by division.
"""

from .file import File, listing
from .tensor import swizzled

NO_GPU = "needs sm_100a"


class Columns:
    """A tensor of u32 (channels, space..., images) and a box in it."""

    def __init__(self, dims, channels, pixels, lower, upper, strides=None, swizzle=None, wide=None):
        self.dims, self.channels, self.pixels, self.lower, self.upper = dims, channels, pixels, lower, upper
        self.space = len(dims) - 2
        self.strides = strides or (1,) * self.space
        self.swizzle, self.wide = swizzle, wide
        self.count = 1
        for d in dims:
            self.count *= d

    def values(self):
        return [i + 3 for i in range(self.count)]

    def map(self):
        numbers = lambda x: "[" + ",".join(map(str, x)) + "]"
        pitch, strides = 4, []
        for d in self.dims[:-1]:
            pitch *= d
            strides.append(pitch)
        wide = f", wide={self.wide}" if self.wide else ""
        steps = (1, *self.strides, *[1] * (len(self.dims) - 1 - len(self.strides)))
        return (f"tensormap(buffer=DATA, type=u32, dims={numbers(self.dims)}, strides={numbers(strides)}, "
                f"box={numbers((self.channels, self.pixels))}, estrides={numbers(steps)}, swizzle={self.swizzle or 'none'}, "
                f"lower={numbers(self.lower)}, upper={numbers(self.upper)}{wide})")

    def outputs(self):
        """How many outputs the convolution has along each axis that the walk goes along."""
        return [(d - 1 + u - l) // s + 1
                for d, l, u, s in zip(self.dims[1:], self.lower, self.upper, self.strides)]

    def first(self, output, image, rest=()):
        """The coordinates of an output."""
        return [l + o * s for o, l, s in zip(output, self.lower, self.strides)] + list(rest) + [image]

    def column(self, channel, output, image, offsets, rest=(), order=None):
        """The words of a column, where they lie in shared memory; and which of the tensor they are."""
        counts = self.outputs()
        m = image
        for c, o in reversed(list(zip(counts, output))):
            m = m * c + o
        order = order if order is not None else range(self.pixels)
        out, source = [0] * (len(order) * self.channels), {}
        for row, step in enumerate(order):
            at, left = [], m + step
            for c in counts:
                left, o = divmod(left, c)
                at.append(o)
            place = [o * s + l + x for o, s, l, x in zip(at, self.strides, self.lower, offsets)]
            place = place + list(rest) + [left]
            for c in range(self.channels):
                full = [channel + c] + place
                slot = swizzled((row * self.channels + c) * 4, self.swizzle) // 4
                if all(0 <= p < d for p, d in zip(full, self.dims)):
                    index = 0
                    for p, d in reversed(list(zip(full, self.dims))):
                        index = index * d + p
                    out[slot], source[slot] = index + 3, index
        return out, source


def load_kernel(f, rank, form, infos, space="shared::cluster"):
    name = form.replace("::", "_")
    names = ", ".join(f"c{i}" for i in range(rank))
    apart = ", ".join(f"o{i}" for i in range(infos))
    params = "".join(f", .param .u32 p_c{i}" for i in range(rank)) + "".join(f", .param .u16 p_o{i}" for i in range(infos))
    loads = "\n".join([f"    ld.param.u32 c{i}, [p_c{i}];" for i in range(rank)]
                      + [f"    ld.param.u16 o{i}, [p_o{i}];" for i in range(infos)])
    f.entry(f"""
// One thread asks for a column; the shared memory it lands in is written out as it is.
.visible .entry {name}_{rank}d(.param .align 64 .b8 p_map[128], .param .u64 p_d, .param .u32 p_bytes{params})
{{
    .reg .u32 i, at, bar_, v, bytes, {names};
    .reg .b16 {apart};
    .reg .u64 map, d, e;
    .reg .pred first, p;
    .shared .align 1024 .b8 box[24576];
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
    cp.async.bulk.tensor.{rank}d.{space}.global.{form}.mbarrier::complete_tx::bytes [at], [map, {{{names}}}], [bar_], {{{apart}}};
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


def load_case(f, name, columns, channel, output, image, offsets, rest=(), infos=None, order=None, **more):
    out, _ = columns.column(channel, output, image, offsets, rest, order)
    at = [channel] + columns.first(output, image, rest)
    form = {None: "im2col", "w": "im2col_w", "w128": "im2col_w_128"}[columns.wide]
    infos = offsets if infos is None else infos
    f.run(name, f"{form}_{len(columns.dims)}d",
          [columns.map(), f"out:u32:{len(out)}", f"u32:{len(out) * 4}"] + [f"u32:{c & 0xFFFFFFFF}" for c in at] + [f"u16:{o}" for o in infos],
          [f"1 {listing('u32', out)}"], buffers=[f"DATA in:{listing('u32', columns.values())}"], **more)


def plain():
    f = File("tensor/columns", "Tensor loads in columns of pixels: one to three axes of space, padding, strides, swizzles, edges.")
    load_kernel(f, 3, "im2col", 1)
    load_case(f, "row", Columns([8, 7, 3], 4, 16, (-1,), (-1,)), 4, (2,), 0, (2,))
    load_case(f, "row-by-twos", Columns([8, 9, 4], 8, 12, (-1,), (0,), (2,)), 0, (1,), 1, (1,))
    load_kernel(f, 4, "im2col", 2)
    same = Columns([8, 6, 5, 3], 4, 40, (-1, -1), (-1, -1))
    for x, y in ((0, 0), (1, 2), (2, 1), (2, 2)):
        load_case(f, f"filter-{x}-{y}", same, 4, (1, 3), 0, (x, y))
    load_case(f, "beyond-the-last-image", same, 0, (4, 4), 2, (1, 1))
    load_case(f, "beyond-the-channels", Columns([6 * 2, 5, 4, 2], 8, 20, (0, 0), (-2, -2)), 8, (1, 0), 0, (2, 1))
    strided = Columns([4, 9, 7, 3], 4, 30, (-1, -1), (-1, -1), (2, 3))
    load_case(f, "strided", strided, 0, (2, 1), 0, (1, 2))
    for swizzle, channels in ((32, 8), (64, 16), (128, 32)):
        columns = Columns([channels, 5, 4, 2], channels, 24, (-1, -1), (-1, -1), swizzle=swizzle)
        load_case(f, f"swizzle-{swizzle}", columns, 0, (2, 1), 0, (1, 0))
    load_kernel(f, 5, "im2col", 3)
    space = Columns([4, 3, 4, 3, 2], 4, 50, (-1, -1, 0), (-1, -1, -1))
    load_case(f, "space", space, 0, (1, 2, 0), 0, (2, 1, 1))
    load_case(f, "space-strided", Columns([4, 5, 4, 5, 2], 4, 25, (0, -1, -1), (0, 0, -1), (2, 1, 2)), 0, (0, 1, 1), 0, (0, 1, 2))
    return f


def wide():
    f = File("tensor/columns_wide", "Tensor loads in columns along a row: pixels, and a halo behind all of them: of one row, or of each 32 pixels.",
             target="sm_100a", version="8.6")
    load_kernel(f, 4, "im2col::w", 2)
    for name, lower, upper, step, pixels, halo, offset in (
        ("plain", 0, 0, 1, 20, 0, 0), ("halo", 0, 0, 1, 20, 2, 0), ("moved", -1, 0, 2, 17, 1, 0),
        ("moved-again", -1, 0, 2, 17, 0, 1), ("three-apart", -1, -1, 3, 16, 0, 2),
    ):
        columns = Columns([32, 7, 4, 6], 32, pixels, (lower,), (upper,), (step,), 128, "w")
        load_case(f, name, columns, 0, (1,), 1, (offset,), (2,), (halo, offset), range(pixels + halo), gpu=NO_GPU)
    load_kernel(f, 4, "im2col::w::128", 2)
    for name, lower, upper, halo, offset in (("plain", 0, 0, 0, 0), ("halo", 0, 0, 2, 0), ("moved", -1, -1, 1, 1)):
        columns = Columns([8, 7, 3, 20], 8, 1, (lower,), (upper,), (1,), 32, "w128")
        order = [*range(128), *(end + i for i in range(halo) for end in (32, 64, 96, 128))]
        load_case(f, name, columns, 0, (3,), 0, (offset,), (1,), (halo, offset), order, gpu=NO_GPU)
    load_kernel_cta(f)
    return f


def load_kernel_cta(f):
    """A multicast for a pair of blocks: the column comes to both, all bytes to the even one's mbarrier."""
    f.entry("""
.visible .entry pair(.param .align 64 .b8 p_map[128], .param .u64 p_d)
{
    .reg .u32 i, r, at, v, who;
    .reg .b16 mask, halo, offset;
    .reg .u64 map, d;
    .reg .pred first, p;
    .shared .align 1024 .u32 box[160];
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
    mov.b16 halo, 2;
    mov.b16 offset, 1;
    setp.ne.u32 p, r, 0;
    @p bra meet;
    @!first bra wait;
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 1280;
    cp.async.bulk.tensor.4d.shared::cluster.global.im2col::w.mbarrier::complete_tx::bytes.multicast::cluster.cta_group::2 [at], [map, {0, 1, 2, 0}], [bar], {halo, offset}, mask;
wait:
    mbarrier.try_wait.parity.shared::cta.b64 p, [bar], 0;
    @!p bra wait;
meet:
    barrier.cluster.arrive.release;
    barrier.cluster.wait.acquire;
    mad.lo.u32 at, i, 4, at;
    ld.shared.u32 v, [at];
    mad.lo.u32 v, r, 1000, v;
    mad.lo.u32 i, r, 160, i;
    mad.wide.u32 d, i, 4, d;
    st.global.u32 [d], v;
    ret;
}""")
    columns = Columns([8, 7, 4, 4], 8, 18, (0,), (-1,), (1,), 32, "w")
    out, _ = columns.column(0, (1,), 0, (1,), (2,), range(20))
    f.run("both", "pair", [columns.map(), f"out:u32:{2 * len(out)}"],
          [f"1 {listing('u32', out + [v + 1000 for v in out])}"], block=160, grid=2, cluster=2,
          buffers=[f"DATA in:{listing('u32', columns.values())}"], gpu=NO_GPU)


def store():
    f = File("tensor/columns_store", "Tensor stores in columns of pixels: what lies outside the tensor is not written.")
    f.entry("""
.visible .entry store(.param .align 64 .b8 p_map[128], .param .u32 p_count)
{
    .reg .u32 i, at, v, count;
    .reg .u64 map;
    .reg .pred p;
    .shared .align 1024 .u32 box[1024];
    mov.b64 map, p_map;
    cvta.param.u64 map, map;
    ld.param.u32 count, [p_count];
    mov.u32 i, %tid.x;
fill:
    setp.ge.u32 p, i, count;
    @p bra ready;
    mov.u32 at, box;
    mad.lo.u32 at, i, 4, at;
    add.u32 v, i, 7;
    st.shared.u32 [at], v;
    add.u32 i, i, 32;
    bra fill;
ready:
    fence.proxy.async.shared::cta;
    bar.sync 0;
    mov.u32 i, %tid.x;
    setp.ne.u32 p, i, 0;
    @p bra done;
    mov.u32 at, box;
    cp.async.bulk.tensor.4d.global.shared::cta.im2col_no_offs.bulk_group [map, {0, 1, 2, 0}], [at];
    cp.async.bulk.commit_group;
    cp.async.bulk.wait_group 0;
done:
    ret;
}""")
    columns = Columns([4, 5, 4, 2], 4, 24, (0, 0), (-1, -1))
    out, source = columns.column(0, (1, 2), 0, (0, 0))
    left = columns.values()
    for slot, index in source.items():
        left[index] = slot + 7
    f.run("columns", "store", [columns.map(), f"u32:{len(out)}"], [f"DATA {listing('u32', left)}"],
          buffers=[f"DATA inout:{listing('u32', columns.values())}"])
    return f


def files():
    yield plain()
    yield wide()
    yield store()
