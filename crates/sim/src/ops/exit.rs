//! What is checked when threads exit.

use crate::context::Cx;
use crate::lanes::Mask;

/// Lanes of the running warp have exited; the block's counts are updated already.
pub(crate) fn lanes_exited(cx: &mut Cx<'_>, lanes: Mask) {
    let _ = (cx, lanes);
}
