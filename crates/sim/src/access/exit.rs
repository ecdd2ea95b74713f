//! What is checked when threads exit.

use super::context::Cx;
use crate::lanes::Mask;
use heist_ptx::rule;

/// Lanes of the running warp have exited; the block's counts are updated already.
pub(crate) fn lanes_exited(cx: &mut Cx<'_>, _lanes: Mask) {
    let rank = cx.warp.rank;
    if cx.warp.live == 0 {
        crate::ops::wgmma::pending::exited(cx);
        crate::ops::copy::cp_async::exited(cx);
        crate::ops::copy::bulk::warp_exited(cx);
    }
    if !cx.blocks[rank as usize].has_exited() {
        return;
    }
    crate::ops::copy::bulk::block_exited(cx);
    crate::ops::mbarrier::block_exited(cx);
    if let Some(pc) = cx.team.control.unanswered(rank) {
        crate::ops::clc::report_unanswered(cx, pc, rank);
    }
    if cx.blocks.iter().all(|block| block.has_exited())
        && let Some((at, pc)) = cx.team.control.dropped()
        && cx.team.control.unanswered(rank).is_none()
    {
        let span = cx.code.span(pc);
        cx.report(rule::CLC_GRANT_DROPPED, cx.mask, |_, mut told| {
            told.message = format!("the cluster at block ({at}) was granted to this one, which exits without having decoded it");
            told.other(span, "it was asked for here")
                .help("whoever is granted a cluster runs it: it is not launched any more")
        });
    }
}
