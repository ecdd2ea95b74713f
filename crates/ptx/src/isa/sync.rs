//! Barriers, fences, asynchronous copies, and launch control.

use super::needs::{Asking, Needs};
use super::operands::{
    Form, Lookup, NOTHING, OutOfRange, Slot, UNKNOWN, at_least, constant, exactly,
};
use super::row::{Family, Memory, ProxyRule, Results, Row};
use crate::arch::Feature;
use crate::instruction::Instruction;
use crate::types::ScalarType::*;

const WAITING: &[&str] = &[
    "test_wait",
    "try_wait",
    "pending_count",
    "arrive",
    "arrive_drop",
];

#[rustfmt::skip]
pub(super) const ROWS: &[Row] = &[
    Row::doing("bar", Family::Barrier, barrier).results(Results::With(&["red"])).synchronising().in_block().range(barrier_number)
        .needs(barrier_needs).tested("tests/ptx/barrier/block.ptx"),
    Row::doing("barrier", Family::Barrier, barrier).results(Results::With(&["red"])).synchronising().in_block().range(barrier_number)
        .needs(barrier_needs).tested("tests/ptx/cluster/ranks.ptx"),
    Row::doing("fence", Family::Fence, fence).results(Results::None).synchronising().needs(fence_needs).tested("tests/ptx/async/bulk.ptx"),
    Row::doing("membar", Family::Fence, NOTHING).results(Results::None).synchronising()
        .needs(|i, needs| needs.when(i.has("proxy"), Feature::ProxyFence)).tested("tests/ptx/control/progress.ptx"),
    Row::doing("mbarrier", Family::Mbarrier, mbarrier).results(Results::With(WAITING)).synchronising()
        .needs(mbarrier_needs).tested("tests/ptx/barrier/mbarrier.ptx"),
    Row::doing("cp", Family::Copy, copy).results(Results::None).memory(Memory::Copy).proxy(ProxyRule::AsyncWith("bulk")).range(copied_bytes)
        .needs(copy_needs).tested("tests/ptx/async/cp_async.ptx"),
    Row::doing("clusterlaunchcontrol", Family::LaunchControl, launch_control).results(Results::Without("try_cancel"))
        .memory_by(&[("try_cancel", Memory::Store)]).proxy(ProxyRule::Async)
        .needs(launch_control_needs).tested("tests/ptx/clc/block.ptx"),
];

fn barrier(form: &Form<'_>) -> Lookup {
    use Slot::*;
    if form.has("cluster") {
        return exactly(vec![]);
    }
    if form.has("warp") {
        return exactly(vec![In(U32)]);
    }
    if form.has("arrive") {
        return exactly(vec![In(U32), In(U32)]);
    }
    if form.has("sync") {
        return at_least(1, vec![In(U32), In(U32)]);
    }
    if form.has("red") {
        // The predicate comes last, with or without a count before it.
        let result = if form.has("pred") { OutPred } else { Out(U32) };
        return at_least(3, vec![result, In(U32), Any, InPred]);
    }
    UNKNOWN
}

fn barrier_number(instruction: &Instruction) -> Option<OutOfRange> {
    let op = &instruction.opcode;
    if op.has("cluster") || op.has("warp") || op.has("red") {
        return None;
    }
    if let Some(id) = constant(instruction, 0)
        && (id.negative || id.magnitude > 15)
    {
        let sign = if id.negative { "-" } else { "" };
        return Some(OutOfRange {
            at: 0,
            message: format!("there is no barrier {sign}{}", id.magnitude),
            help: "a block has barriers 0 to 15",
        });
    }
    let threads = constant(instruction, 1)?;
    (threads.magnitude % 32 != 0).then(|| OutOfRange {
        at: 1,
        message: format!("a barrier can't wait for {} threads", threads.magnitude),
        help: "whole warps meet at a barrier: a multiple of 32",
    })
}

fn barrier_needs(i: &Asking<'_>, needs: &mut Needs) {
    use Feature::*;
    if i.has("cluster") {
        let ordered = i.has("release") || i.has("acquire") || i.has("relaxed");
        needs.when(ordered, ClusterBarrierSemantics);
        needs.add(ClusterBarrier);
    }
    needs.when(i.has("cta"), BarrierCta);
}

fn fence(form: &Form<'_>) -> Lookup {
    if form.has("tensormap::generic") {
        UNKNOWN
    } else {
        exactly(vec![])
    }
}

fn fence_needs(i: &Asking<'_>, needs: &mut Needs) {
    use Feature::*;
    if i.has("mbarrier_init") {
        needs.add(MbarrierInitFence);
    } else if i.has("proxy") {
        if i.has("tensormap::generic") {
            needs.add(TensormapFence);
        } else if i.has("alias") {
            needs.add(ProxyFence);
        } else {
            needs.add(ProxyFenceAsync);
        }
    } else {
        needs.when(i.has("acquire") || i.has("release"), OneWayFence);
    }
}

fn mbarrier(form: &Form<'_>) -> Lookup {
    use Slot::*;
    if form.has("init") {
        exactly(vec![Address, In(U32)])
    } else if form.has("inval") {
        exactly(vec![Address])
    } else if form.has("arrive") || form.has("arrive_drop") {
        let counted = form.has("expect_tx") || form.has("noComplete");
        let required = if counted { 3 } else { 2 };
        at_least(required, vec![OutOrSink(B64), Address, In(U32)])
    } else if form.has("expect_tx") || form.has("complete_tx") {
        exactly(vec![Address, In(U32)])
    } else if form.has("test_wait") || form.has("try_wait") {
        let phase = if form.has("parity") { In(U32) } else { In(B64) };
        if form.has("try_wait") {
            at_least(3, vec![OutPred, Address, phase, In(U32)])
        } else {
            exactly(vec![OutPred, Address, phase])
        }
    } else if form.has("pending_count") {
        exactly(vec![Out(U32), In(B64)])
    } else {
        UNKNOWN
    }
}

fn mbarrier_needs(i: &Asking<'_>, needs: &mut Needs) {
    use Feature::*;
    needs.when(i.has("try_wait"), MbarrierTryWait);
    needs.when(
        i.has("expect_tx") || i.has("complete_tx"),
        MbarrierTransactions,
    );
    let arrives = i.has("arrive") || i.has("arrive_drop");
    let counted = !i.has("noComplete") && !i.has("expect_tx") && i.instruction.operands.len() == 3;
    needs.when(arrives && counted, MbarrierCount);
    let waits = i.has("try_wait") || i.has("test_wait");
    needs.when(i.has("relaxed") && (arrives || waits), MbarrierRelaxed);
    needs.when(i.has("release") || i.has("acquire"), MbarrierSemantics);
    needs.when(i.has("parity"), MbarrierParity);
    needs.when(i.has("shared::cluster"), ClusterShared);
    needs.when(i.has("shared::cta"), SharedCta);
    needs.add(Mbarrier);
}

fn copy(form: &Form<'_>) -> Lookup {
    use Slot::*;
    if form.has("commit_group") || form.has("wait_all") {
        return exactly(vec![]);
    }
    if form.has("wait_group") {
        return exactly(vec![Immediate]);
    }
    if form.has("mbarrier") {
        return exactly(vec![Address]);
    }
    if form.has("tensor") {
        if form.has("prefetch") {
            return at_least(1, vec![Address, Any, Any]);
        }
        return if form.has("mbarrier::complete_tx::bytes") {
            // ptxas looks at the tensor map alone.
            at_least(3, vec![Any, Address, Any, Any, Any, Any])
        } else {
            at_least(2, vec![Address, Any, Any, Any, Any])
        };
    }
    if form.has("bulk") {
        if form.has("prefetch") {
            return at_least(2, vec![Address, In(U32), Any]);
        }
        return if form.has("mbarrier::complete_tx::bytes") {
            at_least(4, vec![Address, Address, In(U32), Address, Any, Any])
        } else {
            at_least(3, vec![Address, Address, In(U32), Any, Any])
        };
    }
    if form.has("ca") || form.has("cg") {
        return at_least(3, vec![Address, Address, Immediate, Any, Any]);
    }
    UNKNOWN
}

fn copied_bytes(instruction: &Instruction) -> Option<OutOfRange> {
    let op = &instruction.opcode;
    if op.has("bulk") || !(op.has("ca") || op.has("cg")) {
        return None;
    }
    let bytes = constant(instruction, 2)?;
    let allowed: &[u64] = if op.has("cg") { &[16] } else { &[4, 8, 16] };
    if !bytes.negative && allowed.contains(&bytes.magnitude) {
        return None;
    }
    Some(OutOfRange {
        at: 2,
        message: format!("`{op}` can't copy {} bytes", bytes.magnitude),
        help: if op.has("cg") {
            "`.cg` copies 16 bytes; `.ca` copies 4, 8 or 16"
        } else {
            "it copies 4, 8 or 16 bytes"
        },
    })
}

fn copy_needs(i: &Asking<'_>, needs: &mut Needs) {
    use Feature::*;
    needs.when(i.has("reduce"), BulkReduce);
    if i.has("tensor") {
        needs.when(
            i.has("cta_group::1") || i.has("cta_group::2"),
            TensorCtaGroup,
        );
        needs.when(i.has("tile::gather4"), TensorGather);
        needs.when(i.has("tile::scatter4"), TensorScatter);
        needs.when(i.has("im2col::w") || i.has("im2col::w::128"), TensorIm2colW);
        needs.add(TensorCopy);
    }
    if i.has("bulk") {
        needs.when(i.has("cp_mask"), BulkByteMask);
        // The destination is the first space of the two.
        let to = i
            .modifiers()
            .find(|m| m.starts_with("shared") || *m == "global");
        needs.when(
            to == Some("shared::cta") && i.has("global") && !i.has("prefetch"),
            BulkCopyCta,
        );
        needs.add(BulkCopy);
        return;
    }
    needs.add(CpAsync);
    needs.when(i.is_predicate(3), CpAsyncIgnoreSource);
    needs.when(i.has("L2::cache_hint"), CacheHint);
}

fn launch_control(form: &Form<'_>) -> Lookup {
    use Slot::*;
    if form.has("try_cancel") {
        exactly(vec![Address, Address])
    } else if form.has("is_canceled") {
        exactly(vec![OutPred, In(B128)])
    } else if form.has("get_first_ctaid") {
        exactly(vec![OutList(4, B32), In(B128)])
    } else {
        exactly(vec![Out(B32), In(B128)])
    }
}

fn launch_control_needs(i: &Asking<'_>, needs: &mut Needs) {
    use Feature::*;
    needs.when(
        i.has("multicast::cluster::all"),
        ClusterLaunchControlMulticast,
    );
    needs.add(ClusterLaunchControl);
}
