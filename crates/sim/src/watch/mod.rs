//! Value-following checks (taint tracking through registers).
//!
//! Most instructions of most kernels need no such check, so nothing is done in the
//! engine. When a kernel has been decoded, [`wrap`] finds the instructions that matter
//! and puts a check around each; the others run as they are. Only the kernel's own
//! body is followed, not the functions that it calls.

mod body;
pub(crate) mod lineage;
pub(crate) mod unset;
pub(crate) mod update;

use crate::code::Watched;
pub(crate) use body::Body;

/// Puts checks around the operations of a body that need them.
pub(crate) fn wrap(mut body: Body<'_>) -> Watched {
    Watched {
        unset: unset::wrap(&mut body),
        lineage: lineage::wrap(&mut body),
        updates: update::wrap(&mut body),
    }
}
