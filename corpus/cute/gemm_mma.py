"""C = A @ B^T by 128 threads with cp.async into swizzled shared memory, ldmatrix and mma.sync atoms."""

import cutlass
import cutlass.cute as cute
from cutlass.cute.nvgpu import cpasync, warp
from cutlass.cute.runtime import make_fake_compact_tensor
from common import build

TILE, DEPTH = 64, 32


@cute.kernel
def gemm(a: cute.Tensor, b: cute.Tensor, c: cute.Tensor, layout: cute.ComposedLayout, copy: cute.TiledCopy, mma: cute.TiledMma):
    thread, _, _ = cute.arch.thread_idx()
    m, n, _ = cute.arch.block_idx()
    ga = cute.local_tile(a, (TILE, DEPTH), (m, None))
    gb = cute.local_tile(b, (TILE, DEPTH), (n, None))
    gc = cute.local_tile(c, (TILE, TILE), (m, n))
    memory = cutlass.utils.SmemAllocator()
    sa = memory.allocate_tensor(a.element_type, layout, 128)
    sb = memory.allocate_tensor(b.element_type, layout, 128)

    mine = copy.get_slice(thread)
    from_a, to_a = mine.partition_S(ga), mine.partition_D(sa)
    from_b, to_b = mine.partition_S(gb), mine.partition_D(sb)

    part = mma.get_slice(thread)
    ra = mma.make_fragment_A(part.partition_A(sa))
    rb = mma.make_fragment_B(part.partition_B(sb))
    out = part.partition_C(gc)
    rc = mma.make_fragment_C(out)
    rc.fill(0.0)

    load = cute.make_copy_atom(warp.LdMatrix8x8x16bOp(False, 4), a.element_type)
    load_a, load_b = cute.make_tiled_copy_A(load, mma), cute.make_tiled_copy_B(load, mma)
    sa_view, ra_view = load_a.get_slice(thread).partition_S(sa), load_a.get_slice(thread).retile(ra)
    sb_view, rb_view = load_b.get_slice(thread).partition_S(sb), load_b.get_slice(thread).retile(rb)

    for k in cutlass.range(cute.size(ga, mode=[2]), unroll=1):
        cute.copy(copy, from_a[None, None, None, k], to_a)
        cute.copy(copy, from_b[None, None, None, k], to_b)
        cute.arch.cp_async_commit_group()
        cute.arch.cp_async_wait_group(0)
        cute.arch.sync_threads()
        for step in cutlass.range_constexpr(cute.size(ra, mode=[2])):
            cute.copy(load_a, sa_view[None, None, step], ra_view[None, None, step])
            cute.copy(load_b, sb_view[None, None, step], rb_view[None, None, step])
            cute.gemm(mma, rc, ra[None, None, step], rb[None, None, step], rc)
        cute.arch.sync_threads()
    cute.copy(cute.make_copy_atom(cute.nvgpu.CopyUniversalOp(), cutlass.Float32), rc, out)


@cute.jit
def launch(a: cute.Tensor, b: cute.Tensor, c: cute.Tensor):
    atom = cute.make_composed_layout(cute.make_swizzle(2, 3, 3), 0, cute.make_layout((8, DEPTH), stride=(DEPTH, 1)))
    layout = cute.tile_to_shape(atom, (TILE, DEPTH), (0, 1))
    copy = cute.make_tiled_copy_tv(
        cute.make_copy_atom(cpasync.CopyG2SOp(cache_mode=cpasync.LoadCacheMode.GLOBAL), a.element_type, num_bits_per_copy=128),
        cute.make_layout((32, 4), stride=(4, 1)),
        cute.make_layout((1, 8)),
    )
    op = warp.MmaF16BF16Op(a.element_type, cutlass.Float32, (16, 8, 16))
    mma = cute.make_tiled_mma(op, cute.make_layout((2, 2, 1)), permutation_mnk=(32, 32, 16))
    gemm(a, b, c, layout, copy, mma).launch(grid=[cute.size(c, mode=[0]) // TILE, cute.size(c, mode=[1]) // TILE, 1], block=[128, 1, 1])


def matrix(element, rows, columns):
    return make_fake_compact_tensor(element, (rows, columns), stride_order=(1, 0), assumed_align=16)


for arch, variant, element in (("sm_80", "f16", cutlass.Float16), ("sm_120a", "bf16", cutlass.BFloat16)):
    build("gemm_mma", launch, arch, (matrix(element, 64, 96), matrix(element, 64, 96), matrix(cutlass.Float32, 64, 64)), variant)
