"""Launches of the kernels about asynchronous copies and mbarriers: cp.async, pipelines, bulk and tensor copies."""

from .data import spread
from .run import Run, kernels


@kernels("nvcc/cp_async")
def cp_async(file):
    tiles = 3
    v = spread(2 * tiles * 128, -9, 9)
    out = []
    for block in range(2):
        for t in range(32):
            sum = 0
            for tile in range(tiles):
                at = ((block * tiles + tile) * 32 + 31 - t) * 4
                sum += v[at] + 2 * v[at + 1] + 3 * v[at + 2] + 4 * v[at + 3]
            out.append(sum)
    yield Run("sum_tiles", grid=2).input("s32", v).output("s32", out).value("s32", tiles)
    v = spread(50, -9, 9)
    yield Run("padded_copy").input("f32", v).output("f32", v + [0] * 78).value("s32", 50)
    v = spread(64, -99, 99)
    yield Run("through_mbarrier", block=64).input("s32", v).output("s32", v[::-1])


@kernels("nvcc/cp_async_pipeline")
def cp_async_pipeline(file):
    v = spread(256, -99, 99)
    out = [x + at for at in (0, 128) for x in v[at : at + 128][::-1]]
    yield Run("group_copy", block=64).input("s32", v).output("s32", out).value("s32", 256)
    batches = 5
    v = spread(batches * 64, -9, 9)
    out = [sum(v[b * 64 + 63 - t] * (b + 1) for b in range(batches)) for t in range(64)]
    yield Run("staged_sum", block=64).input("s32", v).output("s32", out).value("s32", batches)
    v = spread(3 * 128, -99, 99)
    out = [x for i in range(0, len(v), 4) for x in v[i : i + 4][::-1]]
    yield Run("thread_pipeline").input("s32", v).output("s32", out).value("s32", 3)


@kernels("nvcc/mbarrier")
def mbarrier(file):
    v = spread(64, -9, 9)
    line = v
    for _ in range(3):
        line = [line[t] + line[(t + 1) % 64] for t in range(64)]
    yield Run("rounds", block=64).input("s32", v).output("s32", line).value("s32", 3)
    total = sum(range(64))
    yield Run("leavers", block=64).output("s32", [2 * total + total + 16000] * 32)
    v = spread(128, -99, 99)
    yield Run("copy_with_barrier", block=64).input("s32", v).output("s32", [v[i ^ 5] for i in range(128)])
    yield Run("tokens", block=64).output("s32", [7009] * 64)


@kernels("nvcc/tma_bulk")
def tma_bulk(file):
    v = spread(512, -99, 99)
    out = [2 * x + 1 for x in v]
    sums = spread(256, 0, 9)
    run = Run("bulk_double", grid=2, block=64).input("s32", v).output("s32", out)
    yield run.inout("s32", sums, [s + a + b for s, a, b in zip(sums, out, out[256:])])
    v = spread(64, -9, 9)
    yield Run("bulk_prefetch", block=64).input("f32", v).output("f32", [x + 0.5 for x in v])


def box(tensor, dims, at, size):
    """The elements of a box, zeros outside; all innermost first."""
    if not dims:
        return [tensor[0]]
    inner = 1
    for d in dims[:-1]:
        inner *= d
    out = []
    for i in range(at[-1], at[-1] + size[-1]):
        inside = 0 <= i < dims[-1]
        part = tensor[i * inner : (i + 1) * inner] if inside else [0] * inner
        out += box(part, dims[:-1], at[:-1], size[:-1])
    return out


def swizzled(words, span):
    """Where the copy engine puts 4-byte words: 16-byte chunks change places by the 128-byte line they are in."""
    mask = {"none": 0, "32": 1, "64": 3, "128": 7}[span]
    out = [0] * len(words)
    for i, word in enumerate(words):
        offset = i * 4
        out[(offset ^ (offset >> 7 & mask) << 4) // 4] = word
    return out


@kernels("nvcc/tma_tensor")
def tma_tensor(file):
    v = spread(100, -99, 99)
    run = Run("tensor_1d", block=64).buffer("line", "in", "s32", v).tensormap("line", "s32", [100], [64])
    yield run.output("s32", box(v, [100], [40], [64])[::-1]).value("s32", 40)

    v = spread(24 * 12, -99, 99)
    run = Run("tensor_2d", grid=(2, 2), block=64).buffer("from", "in", "f32", v)
    run.buffer("to", "out", "f32", len(v), [x + 1 for x in v])
    yield run.tensormap("from", "f32", [24, 12], [16, 8]).tensormap("to", "f32", [24, 12], [16, 8])

    dims = ([8, 4, 3], [4, 3, 3, 2], [4, 2, 2, 3, 2])
    boxes = ([4, 4, 2], [4, 2, 2, 2], [4, 2, 2, 1, 2])
    places = ([4, 1, -1], [0, 1, 1, 0], [0, 1, 0, 1, 1])
    run = Run("tensor_345d")
    tiles, before = [], spread(32, -60, 60)
    for rank, (d, b, at) in enumerate(zip(dims, boxes, places), 3):
        count = 1
        for extent in d:
            count *= extent
        v = spread(count, -99, 99, 11, rank)
        run.buffer(f"from{rank}", "in", "s32", v).tensormap(f"from{rank}", "s32", d, b)
        tiles.append(box(v, d, at, b))
    after = [max(x + y, z) for x, y, z in zip(before, tiles[1], tiles[0])]
    run.buffer("to", "inout", "s32", before, after).tensormap("to", "s32", [4, 4, 2], [4, 4, 2])
    yield run.output("s32", tiles[0] + tiles[1] + tiles[2])

    for span, width in (("none", 32), ("32", 8), ("64", 16), ("128", 32)):
        v = list(range(width * 16))
        run = Run(f"swizzle_{span}", "tensor_swizzled", block=64).buffer("from", "in", "s32", v)
        run.tensormap("from", "s32", [width, 16], [width, 16], span)
        yield run.output("s32", swizzled(v, span)).value("s32", len(v) * 4)


@kernels("nvcc/tma_multicast")
def tma_multicast(file):
    v = spread(16 * 16, -99, 99)
    out = [x * (block % 2 + 1) for block in range(4) for x in v[block // 2 * 128 : block // 2 * 128 + 128]]
    run = Run("multicast_halves", grid=4, block=64, cluster=2).buffer("from", "in", "f32", v)
    yield run.tensormap("from", "f32", [16, 16], [16, 4]).output("f32", out)
    v = spread(64, -99, 99)
    run = Run("multicast_bulk", grid=8, block=64, cluster=4).input("s32", v)
    yield run.output("s32", [x + block for block in range(8) for x in v])
