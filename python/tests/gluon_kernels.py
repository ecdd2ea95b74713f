"""Gluon kernels for Ampere, Hopper and Blackwell, each with a function that launches it."""

import torch
from gluon_names import clc  # before the modules whose names it completes
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy, mma_v2
from triton.experimental.gluon.language.nvidia.blackwell import TensorMemoryLayout, allocate_tensor_memory, tcgen05_commit, tcgen05_mma
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier, tma, warpgroup_mma, warpgroup_mma_wait
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor


def halves(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(shape[0])).to(torch.float16)


# Ampere: copies by threads, in groups.


@gluon.jit
def scale_kernel(x_ptr, out_ptr, factor, tiles, BLOCK: gl.constexpr):
    """A program goes through its tiles with the next one on its way."""
    layout: gl.constexpr = gl.BlockedLayout([4], [32], [4], [0])
    shared: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, order=[0])
    stages = gl.allocate_shared_memory(gl.float32, [2, BLOCK], shared)
    at = gl.program_id(0) * tiles * BLOCK + gl.arange(0, BLOCK, layout)
    async_copy.async_load(stages.index(0), x_ptr + at)
    async_copy.commit_group()
    for tile in range(tiles):
        follows = tile + 1 < tiles
        next = at + (tile + 1) * BLOCK
        async_copy.async_load(stages.index((tile + 1) % 2), x_ptr + next, mask=follows & (next >= 0))
        async_copy.commit_group()
        async_copy.wait_group(1)
        x = stages.index(tile % 2).load(layout)
        gl.store(out_ptr + at + tile * BLOCK, x * factor)
    async_copy.wait_group(0)


def scale(x, factor, block=512, programs=2):
    out = torch.empty_like(x)
    scale_kernel[(programs,)](x, out, factor, x.numel() // block // programs, BLOCK=block)
    return out


@gluon.jit
def mma_kernel(a_ptr, b_ptr, c_ptr, N, K, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr):
    rows_of: gl.constexpr = gl.BlockedLayout([1, 8], [8, 4], [4, 1], [1, 0])
    shared: gl.constexpr = gl.SwizzledSharedLayout(8, 2, 4, order=[1, 0])
    out: gl.constexpr = gl.NVMMADistributedLayout(version=[2, 0], warps_per_cta=[2, 2], instr_shape=[16, 8])
    row, column = gl.program_id(0) * BLOCK_M, gl.program_id(1) * BLOCK_N
    rows = gl.arange(0, BLOCK_M, gl.SliceLayout(1, rows_of))
    columns = gl.arange(0, BLOCK_N, gl.SliceLayout(0, rows_of))
    a_depth = gl.arange(0, BLOCK_K, gl.SliceLayout(0, rows_of))
    b_depth = gl.arange(0, BLOCK_K, gl.SliceLayout(1, rows_of))
    a = a_ptr + (row + rows)[:, None] * K + a_depth[None, :]
    b = b_ptr + b_depth[:, None] * N + (column + columns)[None, :]
    a_tile = gl.allocate_shared_memory(gl.float16, [BLOCK_M, BLOCK_K], shared)
    b_tile = gl.allocate_shared_memory(gl.float16, [BLOCK_K, BLOCK_N], shared)
    acc = gl.zeros([BLOCK_M, BLOCK_N], gl.float32, out)
    for k in range(0, K, BLOCK_K):
        async_copy.async_load(a_tile, a + k)
        async_copy.async_load(b_tile, b + k * N)
        async_copy.commit_group()
        async_copy.wait_group(0)
        left = a_tile.load(gl.DotOperandLayout(0, out, 2))
        right = b_tile.load(gl.DotOperandLayout(1, out, 2))
        acc = mma_v2(left, right, acc)
    rows = row + gl.arange(0, BLOCK_M, gl.SliceLayout(1, out))
    columns = column + gl.arange(0, BLOCK_N, gl.SliceLayout(0, out))
    gl.store(c_ptr + rows[:, None] * N + columns[None, :], acc)


def mma(a, b, blocks=(64, 32, 32)):
    (m, k), n = a.shape, b.shape[1]
    c = torch.empty(m, n)
    mma_kernel[(m // blocks[0], n // blocks[1])](a, b, c, n, k, *blocks)
    return c


# Hopper: the copy engine, mbarriers and warpgroups.


def descriptor(tensor, block, pair=()):
    """Of tiles of this shape; a pair of blocks shares one along the axis that `pair` steps along."""
    kinds = {torch.float16: gl.float16, torch.float32: gl.float32, torch.float8_e4m3fn: gl.float8e4nv, torch.bfloat16: gl.bfloat16}
    layout = gl.NVMMASharedLayout.get_default_for(block, kinds[tensor.dtype], cga_layout=[list(step) for step in pair])
    return TensorDescriptor.from_tensor(tensor, block, layout)


@gluon.jit
def shift_kernel(x_desc, out_desc, by, tiles):
    """Adds a number to each tile of a row of tiles: in by the copy engine, out by it."""
    SIZE: gl.constexpr = x_desc.block_type.shape[1]
    layout: gl.constexpr = gl.BlockedLayout([1, 4], [4, 8], [4, 1], [1, 0])
    row = gl.program_id(0) * x_desc.block_type.shape[0]
    inbox = gl.allocate_shared_memory(x_desc.dtype, x_desc.block_type.shape, x_desc.layout)
    outbox = gl.allocate_shared_memory(out_desc.dtype, out_desc.block_type.shape, out_desc.layout)
    full = mbarrier.allocate_mbarrier()
    mbarrier.init(full, count=1)
    for tile in range(tiles):
        mbarrier.expect(full, x_desc.block_type.nbytes)
        tma.async_load(x_desc, [row, tile * SIZE], full, inbox)
        mbarrier.wait(full, tile & 1)
        values = inbox.load(layout) + by
        tma.store_wait(0)
        outbox.store(values)
        fence_async_shared()
        tma.async_store(out_desc, [row, tile * SIZE], outbox)
    tma.store_wait(0)
    mbarrier.invalidate(full)


def shift(x, by, block=(16, 32)):
    out = torch.empty_like(x)
    shift_kernel[(x.shape[0] // block[0],)](descriptor(x, block), descriptor(out, block), by, x.shape[1] // block[1])
    return out


@gluon.jit
def wgmma_kernel(a_desc, b_desc, c_desc, K, STAGES: gl.constexpr):
    BLOCK_M: gl.constexpr = a_desc.block_type.shape[0]
    BLOCK_K: gl.constexpr = a_desc.block_type.shape[1]
    BLOCK_N: gl.constexpr = b_desc.block_type.shape[1]
    out: gl.constexpr = gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, BLOCK_N, 16])
    row, column = gl.program_id(0) * BLOCK_M, gl.program_id(1) * BLOCK_N
    a = gl.allocate_shared_memory(a_desc.dtype, [STAGES, BLOCK_M, BLOCK_K], a_desc.layout)
    b = gl.allocate_shared_memory(b_desc.dtype, [STAGES, BLOCK_K, BLOCK_N], b_desc.layout)
    full = mbarrier.allocate_mbarrier(batch=STAGES)
    for stage in gl.static_range(STAGES):
        mbarrier.init(full.index(stage), count=1)
    steps = K // BLOCK_K
    for step in gl.static_range(STAGES - 1):
        ahead(a_desc, b_desc, row, column, step, steps, a, b, full, STAGES)
    acc = gl.zeros([BLOCK_M, BLOCK_N], gl.float32, out)
    for step in range(steps):
        mbarrier.wait(full.index(step % STAGES), step // STAGES & 1)
        acc = warpgroup_mma(a.index(step % STAGES), b.index(step % STAGES), acc, is_async=True)
        acc = warpgroup_mma_wait(0, deps=[acc])
        ahead(a_desc, b_desc, row, column, step + STAGES - 1, steps, a, b, full, STAGES)
    c = gl.allocate_shared_memory(c_desc.dtype, c_desc.block_type.shape, c_desc.layout)
    c.store(acc.to(c_desc.dtype))
    fence_async_shared()
    tma.async_store(c_desc, [row, column], c)
    tma.store_wait(0)


@gluon.jit
def ahead(a_desc, b_desc, row, column, step, steps, a, b, full, STAGES: gl.constexpr):
    """Asks for the operands of a step."""
    BLOCK_K: gl.constexpr = a_desc.block_type.shape[1]
    asked = step < steps
    stage = step % STAGES
    mbarrier.expect(full.index(stage), a_desc.block_type.nbytes + b_desc.block_type.nbytes, pred=asked)
    tma.async_load(a_desc, [row, step * BLOCK_K], full.index(stage), a.index(stage), pred=asked)
    tma.async_load(b_desc, [step * BLOCK_K, column], full.index(stage), b.index(stage), pred=asked)


def product(kernel, a, b, *how, blocks=(64, 64, 32), dtype=torch.float16):
    """A kernel that takes descriptors of the operands and the result."""
    (m, k), n = a.shape, b.shape[1]
    block_m, block_n, block_k = blocks
    c = torch.empty(m, n, dtype=dtype)
    descriptors = descriptor(a, [block_m, block_k]), descriptor(b, [block_k, block_n]), descriptor(c, [block_m, block_n])
    made = kernel[(m // block_m, n // block_n)](*descriptors, k, *how)
    return c, made


@gluon.jit
def producer(a_desc, b_desc, row, column, steps, a, b, full, empty, STAGES: gl.constexpr):
    BLOCK_K: gl.constexpr = a_desc.block_type.shape[1]
    for step in range(steps):
        stage = step % STAGES
        # A stage that nobody has used yet counts as empty: of a fresh mbarrier the phase before is over.
        mbarrier.wait(empty.index(stage), step // STAGES & 1 ^ 1)
        mbarrier.expect(full.index(stage), a_desc.block_type.nbytes + b_desc.block_type.nbytes)
        tma.async_load(a_desc, [row, step * BLOCK_K], full.index(stage), a.index(stage))
        tma.async_load(b_desc, [step * BLOCK_K, column], full.index(stage), b.index(stage))


@gluon.jit
def wgmma_consumer(c_desc, row, column, steps, a, b, full, empty, STAGES: gl.constexpr):
    BLOCK_M: gl.constexpr = c_desc.block_type.shape[0]
    BLOCK_N: gl.constexpr = c_desc.block_type.shape[1]
    out: gl.constexpr = gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, BLOCK_N, 16])
    acc = gl.zeros([BLOCK_M, BLOCK_N], gl.float32, out)
    for step in range(steps):
        stage = step % STAGES
        mbarrier.wait(full.index(stage), step // STAGES & 1)
        acc = warpgroup_mma(a.index(stage), b.index(stage), acc, is_async=True)
        acc = warpgroup_mma_wait(0, deps=[acc])
        mbarrier.arrive(empty.index(stage), count=1)
    c = gl.allocate_shared_memory(c_desc.dtype, [BLOCK_M, BLOCK_N], c_desc.layout)
    c.store(acc.to(c_desc.dtype))
    fence_async_shared()
    tma.async_store(c_desc, [row, column], c)
    tma.store_wait(0)


@gluon.jit
def specialised_wgmma_kernel(a_desc, b_desc, c_desc, K, STAGES: gl.constexpr):
    BLOCK_M: gl.constexpr = a_desc.block_type.shape[0]
    BLOCK_K: gl.constexpr = a_desc.block_type.shape[1]
    BLOCK_N: gl.constexpr = b_desc.block_type.shape[1]
    row, column = gl.program_id(0) * BLOCK_M, gl.program_id(1) * BLOCK_N
    a = gl.allocate_shared_memory(a_desc.dtype, [STAGES, BLOCK_M, BLOCK_K], a_desc.layout)
    b = gl.allocate_shared_memory(b_desc.dtype, [STAGES, BLOCK_K, BLOCK_N], b_desc.layout)
    full, empty = mbarrier.allocate_mbarrier(batch=STAGES), mbarrier.allocate_mbarrier(batch=STAGES)
    for stage in gl.static_range(STAGES):
        mbarrier.init(full.index(stage), count=1)
        mbarrier.init(empty.index(stage), count=1)
    steps = K // BLOCK_K
    gl.warp_specialize(
        [
            (wgmma_consumer, (c_desc, row, column, steps, a, b, full, empty, STAGES)),
            (producer, (a_desc, b_desc, row, column, steps, a, b, full, empty, STAGES)),
        ],
        [1],
        [40],
    )


# Blackwell: tensor memory and launch control.


@gluon.jit
def tcgen05_kernel(a_desc, b_desc, c_desc, K):
    BLOCK_M: gl.constexpr = a_desc.block_type.shape[0]
    BLOCK_K: gl.constexpr = a_desc.block_type.shape[1]
    BLOCK_N: gl.constexpr = b_desc.block_type.shape[1]
    row, column = gl.program_id(0) * BLOCK_M, gl.program_id(1) * BLOCK_N
    a = gl.allocate_shared_memory(a_desc.dtype, [BLOCK_M, BLOCK_K], a_desc.layout)
    b = gl.allocate_shared_memory(b_desc.dtype, [BLOCK_K, BLOCK_N], b_desc.layout)
    acc = allocate_tensor_memory(gl.float32, [BLOCK_M, BLOCK_N], TensorMemoryLayout([BLOCK_M, BLOCK_N], col_stride=1))
    full, done = mbarrier.allocate_mbarrier(), mbarrier.allocate_mbarrier()
    mbarrier.init(full, count=1)
    mbarrier.init(done, count=1)
    steps = K // BLOCK_K
    for step in range(steps):
        mbarrier.expect(full, a_desc.block_type.nbytes + b_desc.block_type.nbytes)
        tma.async_load(a_desc, [row, step * BLOCK_K], full, a)
        tma.async_load(b_desc, [step * BLOCK_K, column], full, b)
        mbarrier.wait(full, step & 1)
        tcgen05_mma(a, b, acc, use_acc=step > 0)
        tcgen05_commit(done)
        mbarrier.wait(done, step & 1)
    # The result may lie where they are.
    mbarrier.invalidate(full)
    mbarrier.invalidate(done)
    c = gl.allocate_shared_memory(c_desc.dtype, [BLOCK_M, BLOCK_N], c_desc.layout)
    c.store(acc.load().to(c_desc.dtype))
    fence_async_shared()
    tma.async_store(c_desc, [row, column], c)
    tma.store_wait(0)


@gluon.jit
def tcgen05_multiplier(steps, a, b, acc, full, empty, ready, STAGES: gl.constexpr):
    for step in range(steps):
        stage = step % STAGES
        mbarrier.wait(full.index(stage), step // STAGES & 1)
        tcgen05_mma(a.index(stage), b.index(stage), acc, use_acc=step > 0)
        tcgen05_commit(empty.index(stage))
    tcgen05_commit(ready)


@gluon.jit
def tcgen05_epilogue(c_desc, row, column, acc, ready):
    mbarrier.wait(ready, 0)
    c = gl.allocate_shared_memory(c_desc.dtype, c_desc.block_type.shape, c_desc.layout)
    c.store(acc.load().to(c_desc.dtype))
    fence_async_shared()
    tma.async_store(c_desc, [row, column], c)
    tma.store_wait(0)


@gluon.jit
def specialised_tcgen05_kernel(a_desc, b_desc, c_desc, K, STAGES: gl.constexpr):
    BLOCK_M: gl.constexpr = a_desc.block_type.shape[0]
    BLOCK_K: gl.constexpr = a_desc.block_type.shape[1]
    BLOCK_N: gl.constexpr = b_desc.block_type.shape[1]
    row, column = gl.program_id(0) * BLOCK_M, gl.program_id(1) * BLOCK_N
    a = gl.allocate_shared_memory(a_desc.dtype, [STAGES, BLOCK_M, BLOCK_K], a_desc.layout)
    b = gl.allocate_shared_memory(b_desc.dtype, [STAGES, BLOCK_K, BLOCK_N], b_desc.layout)
    acc = allocate_tensor_memory(gl.float32, [BLOCK_M, BLOCK_N], TensorMemoryLayout([BLOCK_M, BLOCK_N], col_stride=1))
    full, empty = mbarrier.allocate_mbarrier(batch=STAGES), mbarrier.allocate_mbarrier(batch=STAGES)
    ready = mbarrier.allocate_mbarrier()
    for stage in gl.static_range(STAGES):
        mbarrier.init(full.index(stage), count=1)
        mbarrier.init(empty.index(stage), count=1)
    mbarrier.init(ready, count=1)
    steps = K // BLOCK_K
    gl.warp_specialize(
        [
            (tcgen05_epilogue, (c_desc, row, column, acc, ready)),
            (producer, (a_desc, b_desc, row, column, steps, a, b, full, empty, STAGES)),
            (tcgen05_multiplier, (steps, a, b, acc, full, empty, ready, STAGES)),
        ],
        [1, 1],
        [24, 24],
    )


@gluon.jit
def paired_kernel(a_desc, b_desc, c_ptr, N, K):
    """Two blocks of a cluster multiply together: each has half of the rows and half of the columns in its memory."""
    BLOCK_M: gl.constexpr = a_desc.block_type.shape[0]
    BLOCK_K: gl.constexpr = a_desc.block_type.shape[1]
    BLOCK_N: gl.constexpr = b_desc.block_type.shape[1]
    row, column = gl.program_id(0) * BLOCK_M, gl.program_id(1) * BLOCK_N
    a = gl.allocate_shared_memory(a_desc.dtype, [BLOCK_M, BLOCK_K], a_desc.layout)
    b = gl.allocate_shared_memory(b_desc.dtype, [BLOCK_K, BLOCK_N], b_desc.layout)
    rows_of: gl.constexpr = TensorMemoryLayout([BLOCK_M // 2, BLOCK_N], col_stride=1, cga_layout=[[1, 0]], two_ctas=True)
    acc = allocate_tensor_memory(gl.float32, [BLOCK_M, BLOCK_N], rows_of)
    full, done = mbarrier.allocate_mbarrier(two_ctas=True), mbarrier.allocate_mbarrier()
    mbarrier.init(full, count=1)
    mbarrier.init(done, count=1)
    for step in range(K // BLOCK_K):
        mbarrier.expect(full, a_desc.nbytes_per_cta + b_desc.nbytes_per_cta)
        tma.async_load(a_desc, [row, step * BLOCK_K], full, a)
        tma.async_load(b_desc, [step * BLOCK_K, column], full, b)
        mbarrier.wait(full, step & 1)
        tcgen05_mma(a, b, acc, use_acc=step > 0)
        tcgen05_commit(done)
        mbarrier.wait(done, step & 1)
    value = acc.load()
    layout: gl.constexpr = value.type.layout
    rows = row + gl.arange(0, BLOCK_M, gl.SliceLayout(1, layout))
    columns = column + gl.arange(0, BLOCK_N, gl.SliceLayout(0, layout))
    gl.store(c_ptr + rows[:, None] * N + columns[None, :], value)


def paired(a, b, blocks=(256, 64, 32)):
    (m, k), n = a.shape, b.shape[1]
    block_m, block_n, block_k = blocks
    c = torch.empty(m, n)
    descriptors = descriptor(a, [block_m, block_k], [(1, 0)]), descriptor(b, [block_k, block_n], [(0, 1)])
    paired_kernel[(m // block_m, n // block_n)](*descriptors, c, n, k, num_ctas=2)
    return c


@gluon.jit
def stealing_kernel(x_ptr, out_ptr, BLOCK: gl.constexpr):
    """Squares tiles: a block takes the tile of a block that has not begun, until there is none."""
    layout: gl.constexpr = gl.BlockedLayout([2], [32], [4], [0])
    answer = gl.allocate_shared_memory(gl.int64, [2], gl.SwizzledSharedLayout(1, 1, 1, order=[0]))
    ready = mbarrier.allocate_mbarrier()
    mbarrier.init(ready, count=1)
    tile = gl.program_id(0)
    phase = 0
    again = True
    while again:
        mbarrier.expect(ready, 16)
        clc.try_cancel(answer, ready)
        at = tile * BLOCK + gl.arange(0, BLOCK, layout)
        x = gl.load(x_ptr + at)
        gl.store(out_ptr + at, x * x)
        mbarrier.wait(ready, phase)
        got = clc.load_result(answer)
        again = got.is_canceled()
        if again:
            tile = got.program_id(0)
        phase ^= 1


def squares(x, block=256):
    out = torch.empty_like(x)
    stealing_kernel[(x.numel() // block,)](x, out, BLOCK=block)
    return out
