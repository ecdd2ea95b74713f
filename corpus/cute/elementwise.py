"""out = 2*a + b over a matrix, a thread-value layout with vector loads and a bounds check by coordinates."""

import cutlass
import cutlass.cute as cute
from cutlass.cute.runtime import make_fake_compact_tensor
from common import build


@cute.kernel
def elementwise(a: cute.Tensor, b: cute.Tensor, out: cute.Tensor, coordinates: cute.Tensor, shape: cute.Shape, threads: cute.Layout, values: cute.Layout):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    place = ((None, None), block)
    copy = cute.make_copy_atom(cute.nvgpu.CopyUniversalOp(), a.element_type)
    tiled = cute.make_tiled_copy_tv(copy, threads, values).get_slice(thread)
    part_a, part_b, part_out = (tiled.partition_S(t[place]) for t in (a, b, out))
    part_c = tiled.partition_S(coordinates[place])
    ra, rb, ro = (cute.make_fragment_like(p) for p in (part_a, part_b, part_out))
    inside = cute.make_rmem_tensor(part_c.shape, cutlass.Boolean)
    for i in range(cute.size(inside)):
        inside[i] = cute.elem_less(part_c[i], shape)
    cute.copy(copy, part_a, ra, pred=inside)
    cute.copy(copy, part_b, rb, pred=inside)
    ro.store(ra.load() * 2.0 + rb.load())
    cute.copy(copy, ro, part_out, pred=inside)


@cute.jit
def launch(a: cute.Tensor, b: cute.Tensor, out: cute.Tensor):
    threads = cute.make_ordered_layout((4, 32), order=(1, 0))
    values = cute.make_ordered_layout((4, 4), order=(1, 0))
    tiler, tv = cute.make_layout_tv(threads, values)
    cut = [cute.zipped_divide(t, tiler) for t in (a, b, out, cute.make_identity_tensor(out.shape))]
    elementwise(*cut, out.shape, threads, values).launch(grid=[cute.size(cut[2], mode=[1]), 1, 1], block=[128, 1, 1])


for arch in ("sm_80", "sm_90a", "sm_100a"):
    matrix = make_fake_compact_tensor(cutlass.Float32, (20, 132), stride_order=(1, 0), assumed_align=16)
    build("elementwise", launch, arch, (matrix, matrix, matrix))
