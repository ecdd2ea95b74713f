//! What is known of the registers whose values are followed.

use crate::lanes::Mask;
use crate::special::Axis;

/// What a value is made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Stock {
    /// Nothing that matters.
    #[default]
    Other,
    /// A coordinate of a granted cluster's first block, as it was decoded, and the
    /// number of the grant.
    First(Axis, u32),
    /// The block's place in its cluster, as it was read.
    Own(ClusterRegister),
    /// Something computed from the first block's place alone.
    FromFirst(u32),
    /// Something computed from the block's own place, and perhaps from the other.
    FromOwn(Option<u32>),
}

impl Stock {
    /// What a value is that was computed from both.
    pub(crate) fn mixed(self, other: Stock) -> Stock {
        use Stock::*;
        let grant = self.grant().or(other.grant());
        match (self, other) {
            (Own(_) | FromOwn(_), _) | (_, Own(_) | FromOwn(_)) => FromOwn(grant),
            _ => grant.map_or(Other, FromFirst),
        }
    }

    /// The grant that it comes from.
    pub(crate) fn grant(self) -> Option<u32> {
        match self {
            Stock::First(_, grant) | Stock::FromFirst(grant) => Some(grant),
            Stock::FromOwn(grant) => grant,
            Stock::Other | Stock::Own(_) => None,
        }
    }
}

/// A special register that says where in its cluster a block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClusterRegister {
    /// `%cluster_ctaid`.
    Offset(Axis),
    /// `%cluster_ctarank`.
    Rank,
}

/// What a warp knows of a followed register.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Followed {
    /// Lanes in which it has a value.
    pub(crate) set: Mask,
    /// The instruction that made the others of a register without one, and the number
    /// of that register.
    pub(crate) origin: Option<(u32, u32)>,
}
