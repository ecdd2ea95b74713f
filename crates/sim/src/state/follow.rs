//! Taint tracking: what is known of the followed registers.

use super::memory::window::Window;
use crate::lanes::Mask;
use crate::race::clock::Agent;
use crate::special::Axis;

/// The origin of a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Stock {
    /// No tracked origin.
    #[default]
    Other,
    /// A coordinate of a granted cluster's first block, as it was decoded, and the
    /// number of the grant.
    First(Axis, u32),
    /// The block's place in its cluster, as it was read.
    Own(ClusterRegister),
    /// Computed from the first block's coordinates alone.
    FromFirst(u32),
    /// Computed from the block's own rank, and perhaps also from the first block's coordinates.
    FromOwn(Option<u32>),
}

impl Stock {
    /// The origin of a value computed from both.
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
    /// For the other lanes.
    pub(crate) origin: Option<Origin>,
}

/// Where a value comes from that is not defined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Origin {
    /// The instruction that read it first.
    pub(crate) pc: u32,
    pub(crate) lacks: Lacks,
}

/// What gave a value that is not defined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lacks {
    /// The number of an uninitialised register.
    Register(u32),
    /// A lane that took no part in a shuffle.
    Lane,
    /// A column of tensor memory that nothing has written.
    Column(u32),
}

/// A strong load whose value may lack another thread's write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Read {
    /// The space that it names, and the address.
    pub(crate) place: (Option<Window>, u64),
    pub(crate) pc: u32,
    pub(crate) lacks: Written,
}

/// A write, and who made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Written {
    pub(crate) agent: Agent,
    pub(crate) lane: u8,
    pub(crate) pc: u32,
}
