"""Kernels of the CuTe DSL, each with the host function that launches it. `bug` plants a mistake."""

import cutlass
import cutlass.cute as cute
import cutlass.memory
import cutlass.utils.hopper_helpers as hopper
from cutlass.cute.nvgpu import cpasync, warpgroup
from cutlass.tensor_utils import LayoutEnum

TILE, DEPTH, STAGES = 64, 64, 2


@cute.kernel
def add_kernel(a: cute.Tensor, b: cute.Tensor, out: cute.Tensor, bug: cutlass.Constexpr):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    i = block * 128 + thread
    limit = cute.size(out) + 1 if cutlass.const_expr(bug) else cute.size(out)
    if i < limit:
        out[i] = a[i] + b[i]


@cute.jit
def add(a: cute.Tensor, b: cute.Tensor, out: cute.Tensor, bug: cutlass.Constexpr = False):
    add_kernel(a, b, out, bug).launch(grid=[cute.ceil_div(cute.size(out), 128), 1, 1], block=[128, 1, 1])


@cute.kernel
def turn_kernel(x: cute.Tensor, out: cute.Tensor, bug: cutlass.Constexpr):
    thread, _, _ = cute.arch.thread_idx()
    memory = cutlass.memory.SmemAllocator()
    tile = memory.allocate_tensor(cutlass.Float32, cute.make_layout(128), 16)
    tile[thread] = x[thread]
    if cutlass.const_expr(not bug):
        cute.arch.sync_threads()
    out[thread] = tile[127 - thread]


@cute.jit
def turn(x: cute.Tensor, out: cute.Tensor, bug: cutlass.Constexpr = False):
    turn_kernel(x, out, bug).launch(grid=[1, 1, 1], block=[128, 1, 1])


@cute.kernel
def gather_kernel(table: cute.Tensor, out: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    pointer = cute.make_ptr(cutlass.Float32, table[block], cute.AddressSpace.gmem, assumed_align=4)
    out[block * 32 + thread] = cute.make_tensor(pointer, cute.make_layout(32))[thread]


@cute.jit
def gather(table: cute.Tensor, out: cute.Tensor):
    gather_kernel(table, out).launch(grid=[cute.size(table), 1, 1], block=[32, 1, 1])


@cute.kernel
def staged_kernel(x: cute.Tensor, out: cute.Tensor, bug: cutlass.Constexpr):
    thread, _, _ = cute.arch.thread_idx()
    tile = cutlass.memory.SmemAllocator().allocate_tensor(cutlass.Float32, cute.make_layout(128), 16)
    load = cute.make_copy_atom(cpasync.CopyG2SOp(), cutlass.Float32, num_bits_per_copy=32)
    cute.copy(load, cute.local_tile(x, (1,), (thread,)), cute.local_tile(tile, (1,), (thread,)))
    cute.arch.cp_async_commit_group()
    if cutlass.const_expr(not bug):
        cute.arch.cp_async_wait_group(0)
    cute.arch.sync_threads()
    out[thread] = tile[127 - thread]


@cute.jit
def staged(x: cute.Tensor, out: cute.Tensor, bug: cutlass.Constexpr = False):
    staged_kernel(x, out, bug).launch(grid=[1, 1, 1], block=[128, 1, 1])


@cute.struct
class Barriers:
    full: cute.struct.MemRange[cutlass.Int64, STAGES]


@cute.kernel
def gemm_kernel(
    tma_a: cute.CopyAtom,
    a: cute.Tensor,
    tma_b: cute.CopyAtom,
    b: cute.Tensor,
    c: cute.Tensor,
    mma: cute.TiledMma,
    layout_a: cute.ComposedLayout,
    layout_b: cute.ComposedLayout,
    multicast: cutlass.Constexpr,
    bug: cutlass.Constexpr,
):
    thread, _, _ = cute.arch.thread_idx()
    m, n, _ = cute.arch.block_idx()
    warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    rank = cute.arch.make_warp_uniform(cute.arch.block_idx_in_cluster())
    memory = cutlass.memory.SmemAllocator()
    full = memory.allocate(Barriers).full.data_ptr()
    sa = memory.allocate_tensor(cutlass.Float16, layout_a.outer, 1024, swizzle=layout_a.inner)
    sb = memory.allocate_tensor(cutlass.Float16, layout_b.outer, 1024, swizzle=layout_b.inner)
    ga = cute.local_tile(a, (TILE, DEPTH), (m, None))
    gb = cute.local_tile(b, (TILE, DEPTH), (n, None))
    gc = cute.local_tile(c, (TILE, TILE), (m, n))
    to_a, from_a = cpasync.tma_partition(
        tma_a, 0, cute.make_layout(1), cute.group_modes(sa, 0, 2), cute.group_modes(ga, 0, 2)
    )
    to_b, from_b = cpasync.tma_partition(
        tma_b,
        rank if multicast else 0,
        cute.make_layout(2 if multicast else 1),
        cute.group_modes(sb, 0, 2),
        cute.group_modes(gb, 0, 2),
    )
    if warp == 0:
        with cute.arch.elect_one():
            for s in cutlass.range_constexpr(STAGES):
                cute.arch.mbarrier_init(full + s, 1)
            cute.arch.mbarrier_init_fence()
    if cutlass.const_expr(multicast):
        cute.arch.cluster_arrive()
        cute.arch.cluster_wait()
    else:
        cute.arch.sync_threads()

    bytes = cute.size_in_bytes(cutlass.Float16, cute.slice_(layout_a, (None, None, 0)))
    if cutlass.const_expr(bug != "bytes"):
        bytes += cute.size_in_bytes(cutlass.Float16, cute.slice_(layout_b, (None, None, 0)))
    if warp == 0:
        for s in cutlass.range_constexpr(STAGES):
            with cute.arch.elect_one():
                cute.arch.mbarrier_arrive_and_expect_tx(full + s, bytes)
            cute.copy(tma_a, from_a[None, s], to_a[None, s], tma_bar_ptr=full + s)
            if cutlass.const_expr(multicast):
                cute.copy(tma_b, from_b[None, s], to_b[None, s], tma_bar_ptr=full + s, mcast_mask=cutlass.Int16(3))
            else:
                cute.copy(tma_b, from_b[None, s], to_b[None, s], tma_bar_ptr=full + s)

    part = mma.get_slice(0)
    ra = mma.make_fragment_A(part.partition_A(sa))
    rb = mma.make_fragment_B(part.partition_B(sb))
    out = mma.get_slice(thread).partition_C(gc)
    rc = cute.make_rmem_tensor(out.shape, cutlass.Float32)
    mma.set(warpgroup.Field.ACCUMULATE, False)
    for s in cutlass.range_constexpr(STAGES):
        if cutlass.const_expr(bug != "wait"):
            cute.arch.mbarrier_wait(full + s, 0)
        warpgroup.fence()
        for k in cutlass.range_constexpr(cute.size(ra, mode=[2])):
            cute.gemm(mma, rc, ra[None, None, k, s], rb[None, None, k, s], rc)
            mma.set(warpgroup.Field.ACCUMULATE, True)
        warpgroup.commit_group()
    if cutlass.const_expr(bug != "group"):
        warpgroup.wait_group(0)
    cute.copy(cute.make_copy_atom(cute.nvgpu.CopyUniversalOp(), cutlass.Float32), rc, out)
    if cutlass.const_expr(multicast):
        cute.arch.cluster_arrive()
        cute.arch.cluster_wait()


@cute.jit
def gemm(
    a: cute.Tensor,
    b: cute.Tensor,
    c: cute.Tensor,
    multicast: cutlass.Constexpr = False,
    bug: cutlass.Constexpr = "",
):
    """C = A @ B^T on Hopper, 128 elements deep: TMA, wgmma, B by multicast over a cluster of two."""
    k_major = warpgroup.OperandMajorMode.K
    half = cutlass.Float16
    mma = hopper.make_trivial_tiled_mma(half, half, k_major, k_major, cutlass.Float32, (1, 1, 1), (64, TILE))
    shape = (TILE, TILE, DEPTH)
    layout_a = hopper.make_smem_layout_a(LayoutEnum.ROW_MAJOR, shape, half, STAGES)
    layout_b = hopper.make_smem_layout_b(LayoutEnum.ROW_MAJOR, shape, half, STAGES)
    one_a, one_b = (cute.slice_(layout, (None, None, 0)) for layout in (layout_a, layout_b))
    load = cpasync.CopyBulkTensorTileG2SOp()
    tma_a, tensor_a = cpasync.make_tiled_tma_atom(load, a, one_a, (TILE, DEPTH))
    load_b = cpasync.CopyBulkTensorTileG2SMulticastOp() if cutlass.const_expr(multicast) else load
    tma_b, tensor_b = cpasync.make_tiled_tma_atom(load_b, b, one_b, (TILE, DEPTH), num_multicast=2 if multicast else 1)
    gemm_kernel(tma_a, tensor_a, tma_b, tensor_b, c, mma, layout_a, layout_b, multicast, bug).launch(
        grid=[cute.size(c, mode=[0]) // TILE, cute.size(c, mode=[1]) // TILE, 1],
        block=[128, 1, 1],
        cluster=[2 if multicast else 1, 1, 1],
    )


@cute.kernel
def fill_kernel(store: cute.CopyAtom, out: cute.Tensor, layout: cute.Layout, elect: cutlass.Constexpr):
    thread, _, _ = cute.arch.thread_idx()
    tile = cutlass.memory.SmemAllocator().allocate_tensor(cutlass.Float32, layout, 128)
    for row in cutlass.range_constexpr(8):
        tile[row, thread] = cutlass.Float32(thread)
    cute.arch.fence_proxy("async.shared", space="cta")
    cute.arch.sync_threads()
    there = cute.local_tile(out, (8, 32), (0, 0))
    source, target = cpasync.tma_partition(
        store, 0, cute.make_layout(1), cute.group_modes(tile, 0, 2), cute.group_modes(there, 0, 2)
    )
    if cutlass.const_expr(elect):
        with cute.arch.elect_one():
            cute.copy(store, source, target)
            cute.arch.cp_async_bulk_commit_group()
            cute.arch.cp_async_bulk_wait_group(0)
    else:
        cute.copy(store, source, target)
        cute.arch.cp_async_bulk_commit_group()
        cute.arch.cp_async_bulk_wait_group(0)


@cute.jit
def fill(out: cute.Tensor, elect: cutlass.Constexpr):
    """Numbers the columns of a tile of one warp, which goes out by TMA; in PTX by one lane, or by all."""
    layout = cute.make_layout((8, 32), stride=(32, 1))
    store, tensor = cpasync.make_tiled_tma_atom(cpasync.CopyBulkTensorTileS2GOp(), out, layout, (8, 32))
    fill_kernel(store, tensor, layout, elect).launch(grid=[1, 1, 1], block=[32, 1, 1])
