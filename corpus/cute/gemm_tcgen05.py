"""C = A @ B^T on Blackwell: TMA into swizzled shared memory over two stages, products in tensor memory by one block or a pair, in many types and tiles."""

import cutlass
import cutlass.cute as cute
import cutlass.utils.blackwell_helpers as blackwell
from common import build
from cutlass.cute.nvgpu import OperandMajorMode, cpasync, tcgen05
from cutlass.cute.runtime import make_fake_compact_tensor

STAGES = 2


@cute.struct
class Shared:
    full: cute.struct.MemRange[cutlass.Int64, STAGES]
    empty: cute.struct.MemRange[cutlass.Int64, STAGES]
    ready: cutlass.Int64
    tensor_memory: cutlass.Int32


@cute.kernel
def gemm(tma_a: cute.CopyAtom, a: cute.Tensor, tma_b: cute.CopyAtom, b: cute.Tensor, c: cute.Tensor, mma: cute.TiledMma,
         layout_a: cute.ComposedLayout, layout_b: cute.ComposedLayout, elements: cutlass.Constexpr, tile: cutlass.Constexpr, load: cutlass.Constexpr,
         pair: cutlass.Constexpr):
    thread, _, _ = cute.arch.thread_idx()
    block, n, _ = cute.arch.block_idx()
    warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    half = block % 2 if pair else 0
    m = block // 2 if pair else block
    leads = half == 0
    memory = cutlass.utils.SmemAllocator()
    shared = memory.allocate(Shared)
    full, empty, ready = shared.full.data_ptr(), shared.empty.data_ptr(), shared.ready.ptr
    sa = memory.allocate_tensor(elements[0], layout_a.outer, 1024, swizzle=layout_a.inner)
    sb = memory.allocate_tensor(elements[1], layout_b.outer, 1024, swizzle=layout_b.inner)

    # What this block has of a tile's operands and of its result.
    part = mma.get_slice(half)
    ga = part.partition_A(cute.local_tile(a, tile, (m, n, None), proj=(1, None, 1)))
    gb = part.partition_B(cute.local_tile(b, tile, (m, n, None), proj=(None, 1, 1)))
    gc = part.partition_C(cute.local_tile(c, tile, (m, n, None), proj=(1, 1, None)))
    to_a, from_a = cpasync.tma_partition(tma_a, 0, cute.make_layout(1), cute.group_modes(sa, 0, 3), cute.group_modes(ga, 0, 3))
    to_b, from_b = cpasync.tma_partition(tma_b, 0, cute.make_layout(1), cute.group_modes(sb, 0, 3), cute.group_modes(gb, 0, 3))
    ra, rb = mma.make_fragment_A(sa), mma.make_fragment_B(sb)
    sums = mma.make_fragment_C(mma.partition_shape_C(tile[:2]))
    columns = 32
    while columns < tile[1]:
        columns *= 2

    if warp == 0:
        with cute.arch.elect_one():
            for s in cutlass.range_constexpr(STAGES):
                cute.arch.mbarrier_init(full + s, 1)
                cute.arch.mbarrier_init(empty + s, 1)
            cute.arch.mbarrier_init(ready, 1)
            cute.arch.mbarrier_init_fence()
    if cutlass.const_expr(pair):
        cute.arch.cluster_arrive()
        cute.arch.cluster_wait()
    if warp == 0:
        cute.arch.alloc_tmem(columns, shared.tensor_memory.ptr, is_two_cta=pair)
    cute.arch.sync_threads()
    address = cute.arch.retrieve_tmem_ptr(c.element_type, alignment=16, ptr_to_buffer_holding_addr=shared.tensor_memory.ptr)
    sums = cute.make_tensor(address, sums.layout)

    steps = cute.size(ga, mode=[3])
    bytes = cute.size_in_bytes(elements[0], cute.select(layout_a, mode=[0, 1, 2])) + cute.size_in_bytes(
        elements[1], cute.select(layout_b, mode=[0, 1, 2]))
    group = tcgen05.CtaGroup.TWO if pair else tcgen05.CtaGroup.ONE
    if warp == 0:
        for step in cutlass.range_constexpr(steps):
            s = step % STAGES
            if cutlass.const_expr(step >= STAGES):
                cute.arch.mbarrier_wait(empty + s, (step // STAGES - 1) % 2)
            # The bytes of both blocks arrive at the leader's barrier.
            if leads:
                with cute.arch.elect_one():
                    cute.arch.mbarrier_arrive_and_expect_tx(full + s, bytes * (2 if pair else 1))
            cute.copy(tma_a, from_a[None, step], to_a[None, s], tma_bar_ptr=full + s)
            cute.copy(tma_b, from_b[None, step], to_b[None, s], tma_bar_ptr=full + s)
    elif warp == 1:
        if leads:
            for step in cutlass.range_constexpr(steps):
                s = step % STAGES
                cute.arch.mbarrier_wait(full + s, step // STAGES % 2)
                for k in cutlass.range_constexpr(cute.size(ra, mode=[2])):
                    mma.set(tcgen05.Field.ACCUMULATE, step + k > 0)
                    cute.gemm(mma, sums, ra[None, None, k, s], rb[None, None, k, s], sums)
                with cute.arch.elect_one():
                    tcgen05.commit(empty + s, 3 if pair else None, group)
            with cute.arch.elect_one():
                tcgen05.commit(ready, 3 if pair else None, group)

    cute.arch.mbarrier_wait(ready, 0)
    atom = cute.make_copy_atom(load, sums.element_type)
    from_sums, out = sums[(None, None), 0, 0], gc[(None, None), 0, 0]
    copy = tcgen05.make_tmem_copy(atom, from_sums)
    mine = copy.get_slice(thread)
    there, here = mine.partition_S(from_sums), mine.partition_D(out)
    values = cute.make_rmem_tensor(here.shape, sums.element_type)
    cute.copy(copy, there, values)
    cute.arch.fence_view_async_tmem_load()
    cute.autovec_copy(values, here)
    if cutlass.const_expr(pair):
        cute.arch.cluster_arrive()
        cute.arch.cluster_wait()
    cute.arch.sync_threads()
    if warp == 0:
        cute.arch.relinquish_tmem_alloc_permit(is_two_cta=pair)
        cute.arch.dealloc_tmem(address, columns, is_two_cta=pair)


@cute.jit
def launch(a: cute.Tensor, b: cute.Tensor, c: cute.Tensor, tile: cutlass.Constexpr, load: cutlass.Constexpr, majors: cutlass.Constexpr,
           pair: cutlass.Constexpr):
    group = tcgen05.CtaGroup.TWO if pair else tcgen05.CtaGroup.ONE
    mma = blackwell.make_trivial_tiled_mma(a.element_type, b.element_type, *majors, c.element_type, group, tile[:2])
    layout_a = blackwell.make_smem_layout_a(mma, tile, a.element_type, STAGES)
    layout_b = blackwell.make_smem_layout_b(mma, tile, b.element_type, STAGES)
    one_a, one_b = (cute.select(layout, mode=[0, 1, 2]) for layout in (layout_a, layout_b))
    copy = cpasync.CopyBulkTensorTileG2SOp(group)
    tma_a, tensor_a = cute.nvgpu.make_tiled_tma_atom_A(copy, a, one_a, tile, mma)
    tma_b, tensor_b = cute.nvgpu.make_tiled_tma_atom_B(copy, b, one_b, tile, mma)
    blocks = 2 if pair else 1
    gemm(tma_a, tensor_a, tma_b, tensor_b, c, mma, layout_a, layout_b, (a.element_type, b.element_type), tile, load, pair).launch(
        grid=[cute.size(c, mode=[0]) // tile[0] * blocks, cute.size(c, mode=[1]) // tile[1], 1], block=[128, 1, 1], cluster=[blocks, 1, 1])


def matrix(element, rows, columns, transposed=False):
    return make_fake_compact_tensor(element, (rows, columns), stride_order=(0, 1) if transposed else (1, 0), assumed_align=16)


K, MN = OperandMajorMode.K, OperandMajorMode.MN
WHOLE, X16, X32 = tcgen05.Ld32x32bOp, tcgen05.Repetition.x16, tcgen05.Repetition.x32
f16, bf16, f32, tf32 = cutlass.Float16, cutlass.BFloat16, cutlass.Float32, cutlass.TFloat32
e4m3, e5m2, s8, u8, s32 = cutlass.Float8E4M3FN, cutlass.Float8E5M2, cutlass.Int8, cutlass.Uint8, cutlass.Int32
# Name, elements of A, B and C, the tile, the load, and what is contiguous.
ONE = [
    ("f16_128x64x32", f16, f16, f32, (128, 64, 32), WHOLE(X32), (K, K)),
    ("f16_128x32x32_mn", f16, f16, f32, (128, 32, 32), WHOLE(X32), (MN, MN)),
    ("f16_128x64x64_kmn", f16, f16, f32, (128, 64, 64), WHOLE(X16), (K, MN)),
    ("f16_64x32x64", f16, f16, f32, (64, 32, 64), tcgen05.Ld16x256bOp(tcgen05.Repetition.x4), (K, K)),
    ("f16_64x64x32_128b", f16, f16, f32, (64, 64, 32), tcgen05.Ld16x128bOp(tcgen05.Repetition.x8), (K, K)),
    ("f16_64x32x32_64b", f16, f16, f32, (64, 32, 32), tcgen05.Ld16x64bOp(X16), (K, K)),
    ("f16_128x128x16", f16, f16, f32, (128, 128, 16), WHOLE(X32), (K, K)),
    ("bf16_128x32x64", bf16, bf16, f32, (128, 32, 64), WHOLE(X16), (K, K)),
    ("bf16_128x64x32_mnk", bf16, bf16, f32, (128, 64, 32), WHOLE(X32), (MN, K)),
    ("tf32_128x32x16", tf32, tf32, f32, (128, 32, 16), WHOLE(X32), (K, K)),
    ("tf32_128x64x32", tf32, tf32, f32, (128, 64, 32), WHOLE(X32), (K, K)),
    ("e4m3_128x64x64", e4m3, e4m3, f32, (128, 64, 64), WHOLE(X32), (K, K)),
    ("e5m2_128x32x128", e5m2, e5m2, f32, (128, 32, 128), WHOLE(X32), (K, K)),
    ("e4m3_e5m2_128x32x64", e4m3, e5m2, f32, (128, 32, 64), WHOLE(X32), (K, K)),
    ("e4m3_128x32x64_mn", e4m3, e4m3, f32, (128, 32, 64), WHOLE(X32), (MN, MN)),
    ("s8_128x64x64", s8, s8, s32, (128, 64, 64), WHOLE(X32), (K, K)),
    ("u8_128x32x64", u8, u8, s32, (128, 32, 64), WHOLE(X32), (K, K)),
]
PAIRS = [
    ("f16_256x64x32", f16, f16, f32, (256, 64, 32), WHOLE(X32), (K, K)),
    ("f16_256x32x32_mn", f16, f16, f32, (256, 32, 32), WHOLE(X32), (MN, MN)),
    ("bf16_256x32x64", bf16, bf16, f32, (256, 32, 64), WHOLE(X16), (K, K)),
    ("tf32_256x32x16", tf32, tf32, f32, (256, 32, 16), WHOLE(X32), (K, K)),
    ("e4m3_256x64x64", e4m3, e4m3, f32, (256, 64, 64), WHOLE(X32), (K, K)),
    ("s8_256x64x64", s8, s8, s32, (256, 64, 64), WHOLE(X32), (K, K)),
]
for pair, variants in ((False, ONE), (True, PAIRS)):
    for name, a, b, c, tile, load, majors in variants:
        # Three steps: the first stage is used again.
        m, n, k = tile[0], tile[1], 3 * tile[2]
        operands = matrix(a, m, k, majors[0] == MN), matrix(b, n, k, majors[1] == MN), matrix(c, m, n)
        build("gemm_tcgen05", launch, "sm_100a", (*operands, tile, load, majors, pair), ("pair_" if pair else "") + name)
