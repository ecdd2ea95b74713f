//! Tensor maps: what a tensor copy needs to know of a tensor.

use crate::code::Flow;
use crate::context::Cx;

/// `fence.proxy.tensormap`: a map changed in memory may be used now.
pub(crate) fn acquire(cx: &mut Cx<'_>) -> Flow {
    super::fence::fence(cx, crate::race::shadow::Scope::Gpu);
    Flow::Next
}
