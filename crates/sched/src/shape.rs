//! The shape of a schedule: what is fixed when a kernel is built.

use crate::classes::Classes;
use crate::erased::AnyPolicy;
use crate::order::AnyOrder;
use crate::policy::Policy;
use crate::source::{SourceError, Submit, TicketGrid, TileSource};
use crate::ticket::Endings;
use crate::watch::Watch;
use heist_builder::{Arch, Feature, Problem};
use heist_launch::Dim3;

/// Everything about the schedule that is fixed when a kernel is built.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    pub(crate) source: TileSource,
    pub(crate) submit: Submit,
    /// How many requests of launch control may be in flight.
    pub(crate) in_flight: u32,
    pub(crate) grid: TicketGrid,
    pub(crate) policy: AnyPolicy,
    pub(crate) order: AnyOrder,
    pub(crate) classes: Option<Classes>,
    pub(crate) watch: Watch,
    pub(crate) watchdog: u64,
    pub(crate) padded: bool,
    /// Threads of a block may be a tile apart.
    pub(crate) apart: bool,
    /// Blocks that may leave a tile half done draw their first one too.
    pub(crate) draws_all: bool,
    /// Of so many tiles a block may leave once, where tiles may be left half done.
    pub(crate) tiles_a_leave: u32,
    /// The first tile is drawn behind the prologue.
    pub(crate) behind_prologue: bool,
    /// Tiles may be left half done, with so many words of state.
    pub(crate) pause: Option<u32>,
    pub(crate) cluster: Dim3,
    /// How many axes of the grid of clusters of tiles are longer than one.
    pub(crate) rank: u32,
}

impl Shape {
    /// Whether the first clusters, as many as the GPU runs at a time, start with the tile of their own number, and draw none: in a relief grid where
    /// the launch begins before the one before has ended, since a draw would be waited for behind that one's end, and where tiles may be left half
    /// done and roles have a loop each. Attention has no registers for it, and long tiles. One that is watched draws all of its tiles.
    pub(crate) fn numbers_first(&self) -> bool {
        let relief = self.grid == TicketGrid::Relief && self.behind_prologue;
        let left =
            self.pause.is_some() && self.apart && !self.draws_all && self.watch == Watch::Off;
        let numbers = relief || left;
        numbers && self.claims_first() && self.classes.is_none()
    }

    /// Whether a cluster draws a ticket before its prologue.
    pub(crate) fn claims_first(&self) -> bool {
        self.source == TileSource::Ticket && self.grid != TicketGrid::Resident
    }

    /// Whether every cluster ends with a failed draw.
    pub(crate) fn fixed_draws(&self) -> bool {
        self.endings() == Endings::Failed
    }

    /// How clusters that draw tickets end.
    pub(crate) fn endings(&self) -> Endings {
        match self.pause {
            Some(_) => Endings::Swept,
            None if self.grid == TicketGrid::Resident || !self.policy.may_retire() => {
                Endings::Failed
            }
            None if self.grid == TicketGrid::Relief => Endings::Relieved,
            None => Endings::Any,
        }
    }

    /// Why there is no such kernel for a target. `too_many` says it of its requests in flight;
    /// `pausing` asks for tiles that can be left.
    pub(crate) fn refused(
        &self,
        arch: Arch,
        too_many: Option<String>,
        pausing: bool,
    ) -> Option<Problem> {
        match self.source.check(arch, self.cluster) {
            Ok(()) => {}
            Err(SourceError::NoLaunchControl { arch }) => {
                return Some(Problem::Unsupported {
                    feature: Feature::ClusterLaunchControl,
                    arch,
                });
            }
            Err(other) => return Some(Problem::Other(other.to_string())),
        }
        if let Some(why) = too_many {
            return Some(Problem::Other(why));
        }
        if self.classes.is_some() && !self.source.asks() {
            return Some(Problem::Other(format!(
                "source {} hands tiles out by their number, and classes need one that asks: ticket or clc",
                self.source
            )));
        }
        if !pausing {
            return None;
        }
        let why = match self.pause {
            None => "tiles of this kernel can't be left half done; \
                leave `pausing` out, and blocks leave at the end of a tile"
                .to_owned(),
            Some(_) => format!("a schedule that pauses needs {}", self.no_pause()?),
        };
        Some(Problem::Other(why))
    }

    /// Why tiles can't be left half done under this schedule.
    pub(crate) fn no_pause(&self) -> Option<&'static str> {
        let whys = [
            (
                self.source != TileSource::Ticket,
                "the ticket source: others have no block for a tile that is left",
            ),
            (
                self.submit == Submit::Early,
                "late submission: a request in flight can't be left",
            ),
            (
                self.cluster.count() != 1,
                "blocks without clusters: each leaves by itself",
            ),
            (self.classes.is_some(), "tiles without classes"),
            (
                self.grid == TicketGrid::Resident,
                "a full grid: somebody must come for what is left",
            ),
            (
                self.policy.loaded().is_some(),
                "a policy that is built in: a loaded one has the memory that tiles are saved in",
            ),
        ];
        let (_, why) = whys.into_iter().find(|(missing, _)| *missing)?;
        Some(why)
    }
}
