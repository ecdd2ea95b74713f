"""Tiles stolen by cluster launch control on Blackwell: one block at a time, and in clusters of two with a multicast answer."""

import cutlass
import cutlass.cute as cute
from cutlass._mlir.dialects import nvvm, vector
from cutlass.cute.runtime import make_fake_compact_tensor
from cutlass.cutlass_dsl import dsl_user_op
from common import build

THREADS = 64


@cute.struct
class Storage:
    response: cute.struct.Align[cute.struct.MemRange[cutlass.Int128, 1], 16]
    full: cute.struct.MemRange[cutlass.Int64, 1]
    empty: cute.struct.MemRange[cutlass.Int64, 1]


@dsl_user_op
def load_answer(pointer, *, loc=None, ip=None):
    tensor = cute.make_tensor(cute.recast_ptr(pointer, dtype=cutlass.Int128, loc=loc, ip=ip), cute.make_layout(1, loc=loc, ip=ip), loc=loc, ip=ip)
    return cutlass.Int128(vector.extract(tensor.load(loc=loc, ip=ip).ir_value(loc=loc, ip=ip), [], [0], loc=loc, ip=ip))


@dsl_user_op
def granted(answer, *, loc=None, ip=None):
    return cutlass.Boolean(nvvm.clusterlaunchcontrol_query_cancel(query_type="is_canceled", try_cancel_response=answer.ir_value(loc=loc, ip=ip), loc=loc, ip=ip))


@dsl_user_op
def first_x(answer, *, loc=None, ip=None):
    return cutlass.Int32(
        nvvm.clusterlaunchcontrol_query_cancel(query_type="get_first_cta_id_x", try_cancel_response=answer.ir_value(loc=loc, ip=ip), loc=loc, ip=ip))


@cute.kernel
def steal(source: cute.Tensor, out: cute.Tensor, multicast: cutlass.Constexpr):
    thread, _, _ = cute.arch.thread_idx()
    tile, _, _ = cute.arch.block_idx()
    warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    rank = cute.arch.make_warp_uniform(cute.arch.block_idx_in_cluster())
    blocks = 2 if cutlass.const_expr(multicast) else 1
    storage = cutlass.utils.SmemAllocator().allocate(Storage)
    response, full, empty = storage.response.data_ptr(), storage.full.data_ptr(), storage.empty.data_ptr()
    if warp == 0:
        with cute.arch.elect_one():
            cute.arch.mbarrier_init(full, 1)
            cute.arch.mbarrier_init(empty, blocks)
            cute.arch.mbarrier_init_fence()
    if cutlass.const_expr(multicast):
        cute.arch.cluster_arrive()
        cute.arch.cluster_wait()
    else:
        cute.arch.sync_threads()
    phase = cutlass.Int32(0)
    more = cutlass.Boolean(True)
    while more:
        if warp == 0 and rank == 0:
            cute.arch.mbarrier_wait(empty, phase ^ 1)
            if cutlass.const_expr(multicast):
                if thread < 2:
                    cute.arch.mbarrier_arrive_and_expect_tx(full, 16, thread, scope=nvvm.MemScopeKind.CLUSTER)
            else:
                with cute.arch.elect_one():
                    cute.arch.mbarrier_arrive_and_expect_tx(full, 16)
            cute.arch.sync_warp()
            with cute.arch.elect_one():
                cute.arch.issue_clc_query(full, response, multicast)
        at = tile * THREADS + thread
        if at < cute.size(out):
            out[at] = source[at] * 3.0 + 1.0
        cute.arch.mbarrier_wait(full, phase)
        answer = load_answer(response)
        more = granted(answer)
        if more:
            tile = first_x(answer) + rank
        cute.arch.fence_proxy("async.shared", space="cta")
        cute.arch.sync_threads()
        if warp == 0:
            with cute.arch.elect_one():
                if cutlass.const_expr(multicast):
                    cute.arch.mbarrier_arrive(empty, 0, scope=nvvm.MemScopeKind.CLUSTER)
                else:
                    cute.arch.mbarrier_arrive(empty)
        phase = phase ^ 1
    if cutlass.const_expr(multicast):
        cute.arch.cluster_arrive()
        cute.arch.cluster_wait()


@cute.jit
def launch(source: cute.Tensor, out: cute.Tensor, multicast: cutlass.Constexpr):
    steal(source, out, multicast).launch(grid=[cute.size(out) // THREADS, 1, 1], block=[THREADS, 1, 1], cluster=[2 if multicast else 1, 1, 1])


line = make_fake_compact_tensor(cutlass.Float32, (1024,), assumed_align=16)
build("clc", launch, "sm_100a", (line, line, False))
build("clc", launch, "sm_100a", (line, line, True), "multicast")
