"""Launches of the kernels about threads together: reductions, votes, atomics, memory orders, waiting, grids, clusters, CLC."""

from .data import spread
from .numbers import signed, unsigned
from .run import Run, kernels


@kernels("nvcc/reduce")
def reduce(file):
    n = 200
    v = spread(n, -9, 9)
    yield Run("reduce_tree", grid=2, block=128).input("f32", v).output("f32", [sum(v[:128]), sum(v[128:])]).value("s32", n)
    yield Run("reduce_shuffle", grid=2, block=128).input("s32", v).inout("s32", [5], [5 + sum(v)]).value("s32", n)
    parts = [sum(v[i : i + 64]) for i in range(0, n, 64)]
    run = Run("reduce_last_block", grid=4, block=64).input("s32", v).output("s32", parts)
    yield run.output("s32", [sum(v)]).value("s32", n)
    v = spread(32, 0, 1000, 77)
    folded = 0
    for x in v:
        folded ^= x
    yield Run("reduce_redux").input("u32", v).output("u32", [sum(v), max(v), folded])


@kernels("nvcc/vote")
def vote(file):
    v = [i * 7 % 11 for i in range(32)]

    def ballot(test, mask=0xFFFFFFFF):
        return sum(1 << t for t in range(32) if mask >> t & 1 and test(v[t]))

    out = []
    for t in range(32):
        even = ballot(lambda x: x & 1, 0x55555555)
        odd = ballot(lambda x: x & 2, 0xAAAAAAAA)
        out += [ballot(lambda x: x > 3), 2 + 1, ballot(lambda x: x == v[t]), unsigned(0xFFFFFFFF + 1), odd if t & 1 else even, t + 1000]
    yield Run("votes").input("s32", v).output("u32", out)
    v = [x * 1000 - 4000 + t for t, x in enumerate(v)]
    out = []
    for t in range(32):
        out += [v[t * 5 % 32], v[t - 3] if t >= 3 else v[t], v[t + 2] if t % 8 + 2 < 8 else v[t], v[t ^ 21], v[31 - t], int(v[t ^ 1] / 2)]
    yield Run("shuffles").input("s32", v).output("s32", out)
    if file.arch == "sm_90":
        yield Run("elects").inout("u32", [0, 0], [1, 32])


@kernels("nvcc/atomics")
def atomics(file):
    v = spread(64, -100, 100, 13)
    words = [10, 20, 0, 0, -1, 0, 0, 0, 0, 0xFFFFFFFF]
    after = [10 + sum(v), 20 - sum(v), min(0, *v), max(0, *v), -1, 0, 0, 64 % 10, 0, min(unsigned(x) for x in v)]
    for x in v:
        after[4] &= ~x
        after[5] |= x
        after[6] ^= x
        after[8] = 9 if after[8] == 0 else after[8] - 1
    wide = [1, 0, 0, 0]
    wide_after = [unsigned(1 + 3 * sum(v), 64), max(0, *v) << 20, 0, 0]
    for x in v:
        wide_after[2] |= 1 << (x & 63)
        wide_after[3] ^= unsigned(x << 32, 64)
    run = Run("all_operations", grid=2).input("s32", v)
    yield run.inout("s32", [signed(x) for x in words], [signed(x) for x in after]).inout("u64", wide, wide_after)

    before = [3] + [7] * 15
    after = [3 + 128, 64, 64] + [7] * 5 + [32, 32] + [7] * 6
    yield Run("scopes", grid=2, block=64).inout("s32", before, after).inout("f64", [0.5], [64.5])
    yield Run("tickets", grid=2).inout("u32", [0], [64]).inout("u32", [0] * 64, [1] * 64)
    longest = max((t * 37 % 64) << 32 | t for t in range(64))
    yield Run("swap_loops", block=64).inout("u32", [5], [unsigned(5 * 3**64)]).inout("u64", [0], [longest])
    yield Run("packed").inout("f16", [0, 1], [32, 17]).inout("f16", [0.5], [8.5]).inout("u16", [0], [7])
    if file.arch == "sm_90":
        run = Run("vectors").inout("f32", [0, 1, 2, 3], [32, 65, 18, -29]).inout("f32", [0, 0], [8, 256])
        yield run.inout("bf16", [0, 0], [32, 64])


@kernels("nvcc/memory_order")
def memory_order(file):
    squares = [t * t + 1 for t in range(32)]
    yield Run("message", grid=2).output("s32", squares).inout("s32", [0], [1]).output("s32", squares)
    words = spread(64, -20, 20)
    wide = [(words[t] << 33) + (0 if t % 3 == 0 else 1 if t % 3 == 1 else -5) for t in range(32)]
    after = [10 * x for x in words[:32]] + [2 * words[32 + t] + words[t] + 1 for t in range(32)]
    wide_after = [-1 if max(w, x << 33) == x << 33 else max(w, x << 33) for w, x in zip(wide, words)]
    yield Run("orders").inout("s32", words, after).inout("s64", wide, wide_after)
    v, quads = spread(32, -50, 50), spread(128, -9, 9)
    out = []
    for t in range(32):
        out += [21 * v[t], quads[4 * t] + quads[4 * t + 3], 2 * v[t], v[t] - 1]
    yield Run("cache_hints").input("s32", v).input("s32", quads).output("s32", out)


@kernels("nvcc/grid_sync")
def grid_sync(file):
    n = 50
    a = spread(n, -9, 9)
    now = a
    for step in range(3):
        b = [now[(i + n - 1) % n] + now[(i + 1) % n] for i in range(n)]
        now = [x - step for x in b]
    run = Run("grid_steps", grid=2, options=" cooperative")
    yield run.inout("s32", a, now).output("s32", b).value("s32", n)
    v = spread(64, 0, 9)
    out = []
    for t in range(64):
        tile = v[t // 8 * 8 : t // 8 * 8 + 8]
        out += [sum(tile), max(tile), sum(tile[: t % 8]) + t // 8 * 1000, tile[0] + any(x > 5 for x in tile)]
    yield Run("warp_tiles", block=64).input("s32", v).output("s32", out)
    v = spread(32, 0, 40)
    odd = [t for t in range(32) if v[t] & 1]
    run = Run("coalesced").input("s32", v).output("s32", [100 + odd.index(t) if t in odd else -1 for t in range(32)])
    yield run.inout("s32", [100], [100 + len(odd)])


@kernels("nvcc/waiting")
def waiting(file):
    yield Run("spin_lock", grid=2).inout("s32", [0], [0]).inout("s32", [3], [67])
    yield Run("ticket_lock", grid=2).inout("u32", [0], [64]).inout("u32", [0], [64]).unchecked("s32", [-1] * 64)
    rounds = 5
    v = spread(rounds * 32, -9, 9)
    out = [sum(v[i * 32 + 31 - lane] * 3 + i for i in range(rounds)) for lane in range(32)]
    yield Run("produce_consume", block=64).input("s32", v).output("s32", out).value("s32", rounds)
    v = [t % 5 + 1 for t in range(64)]
    out = [sum(x > 2 for x in v) * 100 + 10] * 64
    yield Run("barrier_votes", block=64).input("s32", v).output("s32", out).output("u64", [3] * 64)


@kernels("nvcc/cluster")
def cluster(file):
    v = spread(256, -99, 99)
    out = []
    for block in range(8):
        neighbour = block // 4 * 4 + (block + 1) % 4
        out += [v[neighbour * 32 + 31 - t] * 10 + block % 4 for t in range(32)]
    yield Run("ring", grid=8, cluster=4).input("s32", v).output("s32", out)
    v = spread(300, 0, 31, 5)
    run = Run("spread_histogram", grid=4, cluster=4).input("u8", v)
    yield run.output("u32", [v.count(b) for b in range(32)]).value("s32", len(v))
    v = spread(128, -99, 99)
    out = [v[(block ^ 1) * 32 + 31 - t] + sum(range(32)) for block in range(4) for t in range(32)]
    yield Run("send", grid=4, cluster=2).input("s32", v).output("s32", out)
    out = []
    for y in range(2):
        for x in range(4):
            rank = x % 2 + y % 2 * 2
            out.append(((3 - rank) * 3 + 1) * 1000 + (3 - rank) * 100 + x % 2 * 10 + y % 2)
    yield Run("places", grid=(4, 2), cluster=(2, 2, 1)).output("u32", out)


@kernels("nvcc/clc")
def clc(file):
    n = 8 * 32 - 5
    v = spread(n, -50, 50)
    run = Run("steal_and_scale", grid=8).input("f32", v).output("f32", [2 * x for x in v])
    yield run.unchecked("u32", [0]).value("s32", n)
    # Dynamic shared memory leaves room for few blocks on an SM, so that blocks wait and there is something to steal.
    many = 400
    run = Run("crowded", "steal_and_scale", grid=many, smem=90000).input("f32", [1.5] * (many * 32)).output("f32", [3.0] * (many * 32))
    yield run.unchecked("u32", [0]).value("s32", many * 32).allows("X011")


@kernels("nvcc/clc_multicast")
def clc_multicast(file):
    n = 8 * 32
    v = spread(n, -50, 50)
    run = Run("steal_pairs", grid=8, cluster=2).input("s32", v).output("s32", [x + 100 for x in v])
    yield run.inout("u32", [0] * 8, [1] * 8).value("s32", n)
    many = 400
    run = Run("crowded", "steal_pairs", grid=many, cluster=2, smem=90000).input("s32", [7] * (many * 32))
    yield run.output("s32", [107] * (many * 32)).inout("u32", [0] * many, [1] * many).value("s32", many * 32).allows("X011")
