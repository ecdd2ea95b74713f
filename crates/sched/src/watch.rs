//! The records of a watched kernel, and their layout.
//!
//! The buffer, in 64-bit words: a header of four (records written, records that
//! fit, word of the first record, unused), then four words for each cluster,
//! then records of four words. A kernel that is not watched has none of this in
//! its machine code.
//!
//! | cluster | low half | high half |
//! |---|---|---|
//! | 0 | tiles run | of those, stolen or drawn |
//! | 1 | refusals | declines |
//! | 2 | overruled | requests |
//! | 3 | nanoseconds between tiles, holding nothing | |
//!
//! | record | |
//! |---|---|
//! | 0 | kind, 8 bits; SM, 24 bits; block, 32 bits |
//! | 1 | the tile's number, x fastest |
//! | 2 | start, or when; nanoseconds |
//! | 3 | end, nanoseconds |

use heist_builder::{Global, Kernel, Ptr, Val, Var};
use serde::{Deserialize, Serialize};

/// How closely a kernel is watched.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Watch {
    /// Not at all, and at no cost.
    #[default]
    Off,
    /// Figures for each cluster.
    Stats,
    /// Figures, and a record of every block, tile and decision.
    Trace,
}

pub(crate) const HEADER_WORDS: usize = 4;
pub(crate) const CLUSTER_WORDS: usize = 4;
pub(crate) const RECORD_WORDS: usize = 4;

/// What a record is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum RecordKind {
    Block = 1,
    OwnTile = 2,
    StolenTile = 3,
    TicketTile = 4,
    StaticTile = 5,
    Requested = 6,
    Declined = 7,
    Granted = 8,
    Refused = 9,
    Overruled = 10,
}

impl RecordKind {
    pub(crate) fn from_byte(byte: u8) -> Option<RecordKind> {
        [
            RecordKind::Block,
            RecordKind::OwnTile,
            RecordKind::StolenTile,
            RecordKind::TicketTile,
            RecordKind::StaticTile,
            RecordKind::Requested,
            RecordKind::Declined,
            RecordKind::Granted,
            RecordKind::Refused,
            RecordKind::Overruled,
        ]
        .into_iter()
        .find(|kind| *kind as u8 == byte)
    }
}

/// The counts of one cluster, in its scheduler thread.
#[derive(Clone, Copy)]
struct Counts<'k> {
    tiles: Var<'k, u32>,
    stolen: Var<'k, u32>,
    refused: Var<'k, u32>,
    declined: Var<'k, u32>,
    overruled: Var<'k, u32>,
    requested: Var<'k, u32>,
    idle: Var<'k, u64>,
}

/// Writes the records of a watched kernel. All its methods are for thread 0 of a block.
#[derive(Clone, Copy)]
pub(crate) struct Scribe<'k> {
    k: Kernel<'k>,
    buffer: Ptr<'k, Global, u64>,
    worker: Val<'k, u32>,
    block: Val<'k, u32>,
    born: Val<'k, u64>,
    began: Var<'k, u64>,
    ended: Var<'k, u64>,
    origin: Var<'k, u32>,
    counts: Counts<'k>,
    /// How many records fit, and the first one; read once, so that a record
    /// costs one atomic and four stores.
    room: Option<(Val<'k, u64>, Ptr<'k, Global, u64>)>,
}

impl<'k> Scribe<'k> {
    pub(crate) fn new(
        k: &Kernel<'k>,
        buffer: Ptr<'k, Global, u64>,
        worker: Val<'k, u32>,
        trace: bool,
        first: RecordKind,
    ) -> Scribe<'k> {
        let (at, grid) = (k.block(), k.grid_dim());
        let born = k.nanoseconds();
        Scribe {
            k: *k,
            buffer,
            worker,
            block: at.x + grid.x * (at.y + grid.y * at.z),
            born,
            began: k.var(born),
            ended: k.var(born),
            origin: k.var(first as u32),
            counts: Counts {
                tiles: k.var(0u32),
                stolen: k.var(0u32),
                refused: k.var(0u32),
                declined: k.var(0u32),
                overruled: k.var(0u32),
                requested: k.var(0u32),
                idle: k.var(0u64),
            },
            room: trace.then(|| {
                let first = buffer.at(buffer.at(2).load());
                (buffer.at(1).load(), first)
            }),
        }
    }

    /// A decision, now.
    #[track_caller]
    pub(crate) fn decision(&self, kind: RecordKind) {
        let count = match kind {
            RecordKind::Requested => Some(self.counts.requested),
            RecordKind::Declined => Some(self.counts.declined),
            RecordKind::Refused => Some(self.counts.refused),
            RecordKind::Overruled => Some(self.counts.overruled),
            _ => None,
        };
        if let Some(count) = count {
            count.update(|n| n + 1);
        }
        if self.room.is_some() {
            let now = self.k.nanoseconds();
            self.record(self.k.c(kind as u32), self.k.c(0), now, now);
        }
    }

    #[track_caller]
    pub(crate) fn tile_begins(&self) {
        let now = self.k.nanoseconds();
        self.began.set(now);
        self.counts
            .idle
            .update(|idle| idle + (now - self.ended.get()));
    }

    /// `then` is how the next tile comes.
    #[track_caller]
    pub(crate) fn tile_ends(
        &self,
        tile: Val<'k, u32>,
        inside: heist_builder::Bool<'k>,
        then: RecordKind,
    ) {
        let now = self.k.nanoseconds();
        self.ended.set(now);
        let origin = self.origin.get();
        self.counts.tiles.update(|n| n + 1);
        let taken =
            origin.eq(RecordKind::StolenTile as u32) | origin.eq(RecordKind::TicketTile as u32);
        self.counts.stolen.update(|n| n + taken.to_u32());
        if self.room.is_some() {
            let began = self.began.get();
            self.k.if_(inside, || self.record(origin, tile, began, now));
        }
        self.origin.set(then as u32);
    }

    /// The block is about to leave; `leader` says whether it is the cluster's
    /// first.
    #[track_caller]
    pub(crate) fn block_ends(&self, leader: heist_builder::Bool<'k>) {
        let k = self.k;
        k.if_(leader, || {
            let base = HEADER_WORDS as u32;
            let words = self
                .buffer
                .at(base)
                .at(self.worker.cast::<u64>() * CLUSTER_WORDS as u64);
            let counts = &self.counts;
            let pair = |low: Var<'k, u32>, high: Var<'k, u32>| {
                low.get().cast::<u64>() + (high.get().cast::<u64>() << 32)
            };
            words.at(0).store(pair(counts.tiles, counts.stolen));
            words.at(1).store(pair(counts.refused, counts.declined));
            words.at(2).store(pair(counts.overruled, counts.requested));
            words.at(3).store(counts.idle.get());
        });
        if self.room.is_some() {
            let now = k.nanoseconds();
            self.record(k.c(RecordKind::Block as u32), k.c(0), self.born, now);
        }
    }

    #[track_caller]
    fn record(
        &self,
        kind: Val<'k, u32>,
        tile: Val<'k, u32>,
        start: Val<'k, u64>,
        end: Val<'k, u64>,
    ) {
        let k = self.k;
        let Some((room, first)) = self.room else {
            return;
        };
        let at = self.buffer.cast::<u32>().atomic_add(1u32);
        k.if_(at.cast::<u64>().lt(room), || {
            let record = first.at(at.cast::<u64>() * RECORD_WORDS as u64);
            let low = kind + (k.sm() << 8);
            let what = low.cast::<u64>() + (self.block.cast::<u64>() << 32);
            record.at(0).store(what);
            record.at(1).store(tile.cast::<u64>());
            record.at(2).store(start);
            record.at(3).store(end);
        });
    }
}
