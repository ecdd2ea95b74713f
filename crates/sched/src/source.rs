//! Where a block's next tile comes from, when it asks, and which of the
//! choices a GPU can offer.

use crate::policy::Policy;
use heist_builder::{Arch, Feature};
use heist_launch::Dim3;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Where a block's next tile comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TileSource {
    /// Cluster launch control: the hardware hands over blocks that it has not
    /// launched yet. Blackwell and later.
    Clc,
    /// A counter in global memory. Any GPU from sm_80 on.
    Ticket,
    /// Dealt out in advance: block `i` of `w` runs tiles `i`, `i + w`, ... The policy is not asked,
    /// because no other block would run a declined tile.
    Static,
    /// One block a tile, by the hardware's own launch order. The policy is not
    /// asked.
    Direct,
}

/// The moment a request is submitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Submit {
    /// Before a tile's work, which hides the latency of the answer, but can leave a tile waiting
    /// behind a heavy one.
    #[default]
    Early,
    /// After it.
    Late,
}

/// How many blocks the ticket source launches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TicketGrid {
    /// One for every tile; each claims a ticket before its prologue. Needed
    /// where a policy may let a block retire early.
    Full,
    /// As many as fit on the GPU. A policy that would retire one is overruled.
    Resident,
    /// Twice as many as fit on the GPU, and one for every 32nd tile: each claims a ticket, as in a
    /// full grid, and relieves one that has retired. A policy that would retire more is overruled.
    ///
    /// A block that comes when all tickets are drawn holds its multiprocessor for half a
    /// microsecond. In a full grid that is so at almost every tile, in this one it is rare.
    Relief,
}

/// Of so many tiles a block of a [relief grid](TicketGrid::Relief) may retire once, in the mean.
const TILES_A_RELIEF: u32 = 32;

impl TicketGrid {
    /// Clusters of a launch of so many tiles, where so many clusters run at a time.
    pub(crate) fn clusters(self, tiles: u32, resident: u32) -> u32 {
        match self {
            TicketGrid::Full => tiles,
            TicketGrid::Resident => resident.min(tiles),
            TicketGrid::Relief => {
                let reliefs = resident.saturating_add(tiles / TILES_A_RELIEF);
                let all = resident.saturating_add(reliefs);
                all.min(tiles)
            }
        }
    }
}

impl TileSource {
    /// All of them.
    pub const ALL: [TileSource; 4] = [
        TileSource::Clc,
        TileSource::Ticket,
        TileSource::Static,
        TileSource::Direct,
    ];

    /// Its name in commands.
    pub const fn as_str(self) -> &'static str {
        match self {
            TileSource::Clc => "clc",
            TileSource::Ticket => "ticket",
            TileSource::Static => "static",
            TileSource::Direct => "direct",
        }
    }

    /// Whether a policy is asked.
    pub const fn asks(self) -> bool {
        matches!(self, TileSource::Clc | TileSource::Ticket)
    }

    /// Whether the target can run a kernel with this source and these clusters.
    ///
    /// ```
    /// use heist_builder::Arch;
    /// use heist_launch::Dim3;
    /// use heist_sched::TileSource;
    /// let error = TileSource::Clc.check(Arch::SM_90A, Dim3::ONE).unwrap_err();
    /// assert_eq!(
    ///     error.to_string(),
    ///     "source clc is impossible on sm_90a: cluster launch control needs sm_100 or later; \
    ///      use the ticket source, which keeps the same promises in software"
    /// );
    /// ```
    ///
    /// # Errors
    /// Why not, and what to use instead.
    pub fn check(self, arch: Arch, cluster: Dim3) -> Result<(), SourceError> {
        if self == TileSource::Clc && !arch.supports(Feature::ClusterLaunchControl) {
            return Err(SourceError::NoLaunchControl { arch });
        }
        if arch.number() < 80 {
            return Err(SourceError::TooOld { arch });
        }
        if cluster.count() > 1 && !arch.supports(Feature::Clusters) {
            return Err(SourceError::NoClusters { arch, cluster });
        }
        Ok(())
    }

    /// The source for a target, a policy, and whether the kernel has a prologue
    /// worth sharing among tiles.
    ///
    /// Without a prologue the hardware's own launch order is hard to beat, so a
    /// policy that never steals, or a greedy one with nothing to share, is
    /// `direct`. Otherwise tiles are stolen: by the hardware where it can, by
    /// tickets elsewhere. Measuring is better than guessing; the choice comes with its reason.
    pub fn auto(arch: Arch, policy: &impl Policy, prologue: bool) -> Choice {
        let clc = arch.supports(Feature::ClusterLaunchControl);
        if policy.constant() == Some(false) {
            return Choice {
                source: TileSource::Direct,
                why: "the policy never steals, so one block a tile is all there is to do",
            };
        }
        if policy.constant() == Some(true) && !prologue && !clc {
            return Choice {
                source: TileSource::Direct,
                why: "no prologue to share and no launch control: the hardware's launch order is hard to beat",
            };
        }
        if clc {
            return Choice {
                source: TileSource::Clc,
                why: "the GPU hands over blocks by itself (cluster launch control)",
            };
        }
        Choice {
            source: TileSource::Ticket,
            why: "no cluster launch control before sm_100: a counter in memory stands in for it",
        }
    }
}

/// A source and the reason for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// What was chosen.
    pub source: TileSource,
    /// Why.
    pub why: &'static str,
}

/// Why a source is not available.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SourceError {
    /// The target has no cluster launch control.
    #[error(
        "source clc is impossible on {arch}: cluster launch control needs sm_100 or later; \
         use the ticket source, which keeps the same promises in software"
    )]
    NoLaunchControl {
        /// The target.
        arch: Arch,
    },
    /// The target has no clusters.
    #[error(
        "clusters of {cluster} blocks are impossible on {arch}: they need sm_90 or later; leave the cluster out"
    )]
    NoClusters {
        /// The target.
        arch: Arch,
        /// What was asked for.
        cluster: Dim3,
    },
    /// The target is older than the scheduler supports.
    #[error("{arch} is too old for scheduled kernels: they need sm_80 or later")]
    TooOld {
        /// The target.
        arch: Arch,
    },
    /// No such name.
    #[error("there is no {what} `{name}`; there are {known}")]
    Unknown {
        /// What kind of thing was named.
        what: &'static str,
        /// The name.
        name: String,
        /// The names there are.
        known: &'static str,
    },
}

impl fmt::Display for TileSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for TileSource {
    type Err = SourceError;
    fn from_str(text: &str) -> Result<TileSource, SourceError> {
        let found = TileSource::ALL.into_iter().find(|s| s.as_str() == text);
        found.ok_or_else(|| SourceError::Unknown {
            what: "source",
            name: text.to_owned(),
            known: "clc, ticket, static, direct",
        })
    }
}

impl Submit {
    /// Its name in commands.
    pub const fn as_str(self) -> &'static str {
        match self {
            Submit::Early => "early",
            Submit::Late => "late",
        }
    }
}

impl fmt::Display for Submit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Submit {
    type Err = SourceError;
    fn from_str(text: &str) -> Result<Submit, SourceError> {
        match text {
            "early" => Ok(Submit::Early),
            "late" => Ok(Submit::Late),
            _ => Err(SourceError::Unknown {
                what: "moment of submission",
                name: text.to_owned(),
                known: "early, late",
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Greedy, MaxSteals, Never};

    #[test]
    fn impossible_choices_say_why() {
        assert!(TileSource::Clc.check(Arch::SM_100, Dim3::ONE).is_ok());
        assert!(TileSource::Ticket.check(Arch::SM_80, Dim3::ONE).is_ok());
        let error = TileSource::Ticket.check(Arch::SM_89, Dim3::new(2, 1, 1));
        assert!(error.unwrap_err().to_string().contains("need sm_90"));
        let error = TileSource::Direct.check(Arch::SM_75, Dim3::ONE);
        assert!(error.unwrap_err().to_string().contains("too old"));
        assert!("clk".parse::<TileSource>().is_err());
        assert_eq!("late".parse::<Submit>(), Ok(Submit::Late));
    }

    #[test]
    fn a_source_is_found_for_every_target() {
        let auto = |arch, prologue| TileSource::auto(arch, &Greedy, prologue).source;
        assert_eq!(auto(Arch::SM_100, true), TileSource::Clc);
        assert_eq!(auto(Arch::SM_90A, true), TileSource::Ticket);
        assert_eq!(auto(Arch::SM_90A, false), TileSource::Direct);
        let capped = TileSource::auto(Arch::SM_80, &MaxSteals { limit: 2 }, false);
        assert_eq!(capped.source, TileSource::Ticket);
        let never = TileSource::auto(Arch::SM_100, &Never, true);
        assert_eq!(never.source, TileSource::Direct);
    }
}
