//! The trace of one run of a kernel: which block ran which tile, where and when.
//!
//! The simulator records it as it goes; for the GPU it is decoded from records
//! that the kernel wrote. Either way it is the same structure, so one renderer
//! draws both, and [`Trace::clock`] says whether its times were modelled or
//! measured. Times count from the start of the run.
//!
//! ```
//! use heist_launch::{BlockSpan, Clock, Dim3, Time, Trace};
//! # let mut trace = Trace::new("sim:b200", "k", Clock::Modelled, 2, Dim3::linear_x(2));
//! # for block in 0..2 {
//! #     let (start, end) = (Time::ZERO, Time::from_ns(1000 * (1 + u64::from(block))));
//! #     trace.blocks.push(BlockSpan { block, cluster: block, sm: block, start, end });
//! # }
//! // Two blocks, of one and two microseconds, on an SM each.
//! assert_eq!(trace.makespan(), Time::from_ns(2000));
//! assert_eq!(trace.tail(), Time::from_ns(1000));
//! assert_eq!(trace.busy_fraction(), 0.75);
//! ```

use crate::shape::Dim3;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// A point in time or a span of it, in picoseconds, so that modelled cycles and
/// measured nanoseconds are both exact.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Time(pub u64);

impl Time {
    /// The start.
    pub const ZERO: Time = Time(0);

    /// From whole nanoseconds.
    pub const fn from_ns(ns: u64) -> Time {
        Time(ns.saturating_mul(1000))
    }

    /// From nanoseconds; negative and NaN count as zero.
    pub fn from_ns_f64(ns: f64) -> Time {
        Time((ns * 1000.0).round() as u64)
    }

    /// In nanoseconds.
    pub fn ns(self) -> f64 {
        self.0 as f64 / 1000.0
    }

    /// From `earlier` to here; zero when it is not earlier.
    pub const fn since(self, earlier: Time) -> Time {
        Time(self.0.saturating_sub(earlier.0))
    }
}

impl fmt::Display for Time {
    /// In the unit that reads best: `812 ns`, `3.42 us`, `1.08 ms`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ns = self.ns();
        match self.0 {
            0..1_000_000 => write!(f, "{ns:.0} ns"),
            1_000_000..1_000_000_000 => write!(f, "{:.2} us", ns / 1e3),
            1_000_000_000..1_000_000_000_000 => write!(f, "{:.2} ms", ns / 1e6),
            _ => write!(f, "{:.3} s", ns / 1e9),
        }
    }
}

/// Where times come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Clock {
    /// From the simulator's model: good for ranking, not a prediction.
    Modelled,
    /// From a GPU's clock.
    Measured,
}

impl fmt::Display for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Clock::Modelled => "modelled",
            Clock::Measured => "measured",
        })
    }
}

/// One run of a kernel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Trace {
    /// The device, such as `sim:b200` or `NVIDIA H200`.
    pub device: String,
    /// The kernel.
    pub kernel: String,
    /// Whether times are modelled or measured.
    pub clock: Clock,
    /// How many SMs the device has.
    pub sm_count: u32,
    /// The grid that was launched, in blocks.
    pub grid: Dim3,
    /// Every block that ran.
    pub blocks: Vec<BlockSpan>,
    /// Every tile that ran, where the kernel has tiles.
    pub tiles: Vec<TileSpan>,
    /// The policy's decisions and their results.
    pub decisions: Vec<Decision>,
}

/// A block on an SM.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockSpan {
    /// Its index in the grid, x fastest.
    pub block: u32,
    /// The index of its cluster; its own index where clusters have one block.
    pub cluster: u32,
    /// The SM it ran on.
    pub sm: u32,
    /// When it started.
    pub start: Time,
    /// When it ended.
    pub end: Time,
}

/// How a tile came to the block that ran it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TileOrigin {
    /// It is the block's own, which the launch gave it.
    Own,
    /// Taken over from a block not launched yet.
    Stolen,
    /// Drawn from a counter in memory.
    Ticket,
    /// Assigned before the run.
    Static,
}

/// A tile in a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TileSpan {
    /// The tile's coordinates.
    pub tile: Dim3,
    /// The block that ran it, as in [`BlockSpan::block`].
    pub block: u32,
    /// The SM.
    pub sm: u32,
    /// When its work started.
    pub start: Time,
    /// When its work ended.
    pub end: Time,
    /// How it came.
    pub origin: TileOrigin,
}

/// Something a policy, or the source of tiles, decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decision {
    /// The block that asked, as in [`BlockSpan::block`].
    pub block: u32,
    /// When.
    pub at: Time,
    /// What.
    pub kind: DecisionKind,
}

/// What was decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DecisionKind {
    /// The policy let a request go out.
    Requested,
    /// The policy passed up an opportunity.
    Declined,
    /// The source had a tile.
    Granted,
    /// The source had none, or refused.
    Refused,
    /// The policy declined where tiles would have been lost, and was overruled.
    Overruled,
}

impl Trace {
    /// An empty trace of a kernel on a device.
    pub fn new(
        device: impl Into<String>,
        kernel: impl Into<String>,
        clock: Clock,
        sm_count: u32,
        grid: Dim3,
    ) -> Trace {
        Trace {
            device: device.into(),
            kernel: kernel.into(),
            clock,
            sm_count,
            grid,
            blocks: Vec::new(),
            tiles: Vec::new(),
            decisions: Vec::new(),
        }
    }

    /// Every span of work: tiles where there are tiles, else blocks.
    fn work(&self) -> impl Iterator<Item = (u32, Time, Time)> + '_ {
        let tiles = self.tiles.iter().map(|t| (t.sm, t.start, t.end));
        let blocks = self
            .blocks
            .iter()
            .filter(|_| self.tiles.is_empty())
            .map(|b| (b.sm, b.start, b.end));
        tiles.chain(blocks)
    }

    fn all(&self) -> impl Iterator<Item = (u32, Time, Time)> + '_ {
        let tiles = self.tiles.iter().map(|t| (t.sm, t.start, t.end));
        let blocks = self.blocks.iter().map(|b| (b.sm, b.start, b.end));
        tiles.chain(blocks)
    }

    /// When the first span starts and the last one ends.
    pub fn window(&self) -> Option<(Time, Time)> {
        self.all().fold(None, |window, (_, start, end)| {
            let (first, last) = window.unwrap_or((start, end));
            Some((first.min(start), last.max(end)))
        })
    }

    /// From the first start to the last end.
    pub fn makespan(&self) -> Time {
        self.window()
            .map_or(Time::ZERO, |(start, end)| end.since(start))
    }

    /// From the moment the first SM had nothing more to do to the end: the tail, in which the GPU
    /// is only partly busy. SMs that never had work do not count.
    pub fn tail(&self) -> Time {
        let mut last_end = BTreeMap::new();
        for (sm, _, end) in self.work() {
            let last = last_end.entry(sm).or_insert(end);
            *last = end.max(*last);
        }
        match (last_end.values().min(), last_end.values().max()) {
            (Some(first), Some(last)) => last.since(*first),
            _ => Time::ZERO,
        }
    }

    /// The part of the machine's SM time, from 0 to 1, in which an SM had at
    /// least one tile (or block, in a kernel without tiles) at work.
    pub fn busy_fraction(&self) -> f64 {
        let available = self.makespan().0 as f64 * f64::from(self.sm_count);
        if available == 0.0 {
            return 0.0;
        }
        let mut spans: Vec<_> = self.work().collect();
        spans.sort_unstable();
        let mut busy = 0u64;
        let mut current: Option<(u32, Time, Time)> = None;
        for (sm, start, end) in spans {
            match &mut current {
                Some((on, _, until)) if *on == sm && start <= *until => *until = end.max(*until),
                _ => {
                    busy += current.map_or(0, |(_, from, until)| until.since(from).0);
                    current = Some((sm, start, end));
                }
            }
        }
        busy += current.map_or(0, |(_, from, until)| until.since(from).0);
        busy as f64 / available
    }

    /// How many tiles each block ran; blocks that ran none are there with zero.
    pub fn tiles_per_block(&self) -> BTreeMap<u32, u32> {
        let mut counts: BTreeMap<u32, u32> =
            self.blocks.iter().map(|block| (block.block, 0)).collect();
        for tile in &self.tiles {
            *counts.entry(tile.block).or_default() += 1;
        }
        counts
    }

    /// How many tiles came in this way.
    pub fn tiles_by(&self, origin: TileOrigin) -> usize {
        self.tiles.iter().filter(|t| t.origin == origin).count()
    }

    /// How many decisions of this kind there were.
    pub fn decisions_by(&self, kind: DecisionKind) -> usize {
        self.decisions.iter().filter(|d| d.kind == kind).count()
    }

    /// The tiles that did not run exactly once out of a grid of tiles, with how
    /// often they ran; empty when all is well. Tiles outside the grid are there
    /// too, since running one is as wrong as losing one.
    pub fn miscounted_tiles(&self, tiles: Dim3) -> Vec<(Dim3, u32)> {
        let mut counts: BTreeMap<Dim3, u32> = BTreeMap::new();
        for tile in &self.tiles {
            *counts.entry(tile.tile).or_default() += 1;
        }
        let inside = |at: Dim3| at.x < tiles.x && at.y < tiles.y && at.z < tiles.z;
        let lost = (0..tiles.count())
            .map(|i| tiles.coordinates(i))
            .filter(|at| !counts.contains_key(at))
            .map(|at| (at, 0));
        let mut wrong: Vec<_> = lost.collect();
        wrong.extend(
            counts
                .iter()
                .filter(|&(at, n)| *n != 1 || !inside(*at))
                .map(|(at, n)| (*at, *n)),
        );
        wrong
    }

    /// The figures of the run.
    pub fn summary(&self) -> Summary {
        let per_block = self.tiles_per_block();
        Summary {
            makespan: self.makespan(),
            tail: self.tail(),
            busy_fraction: self.busy_fraction(),
            blocks: self.blocks.len(),
            tiles: self.tiles.len(),
            stolen: self.tiles_by(TileOrigin::Stolen) + self.tiles_by(TileOrigin::Ticket),
            most_tiles_per_block: per_block.values().copied().max().unwrap_or(0),
            declined: self.decisions_by(DecisionKind::Declined),
            refused: self.decisions_by(DecisionKind::Refused),
        }
    }
}

fn as_ns<S: serde::Serializer>(time: &Time, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_f64(time.ns())
}

/// The figures of a run, for a row of a table.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// [`Trace::makespan`].
    #[serde(rename = "makespan_ns", serialize_with = "as_ns")]
    pub makespan: Time,
    /// [`Trace::tail`].
    #[serde(rename = "tail_ns", serialize_with = "as_ns")]
    pub tail: Time,
    /// [`Trace::busy_fraction`].
    pub busy_fraction: f64,
    /// Blocks that ran.
    pub blocks: usize,
    /// Tiles that ran.
    pub tiles: usize,
    /// Tiles that were stolen or drawn.
    pub stolen: usize,
    /// The most tiles that one block ran.
    pub most_tiles_per_block: u32,
    /// Opportunities that the policy passed up.
    pub declined: usize,
    /// Requests that the source refused.
    pub refused: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trace() -> Trace {
        let mut trace = Trace::new("sim:b200", "k", Clock::Modelled, 4, Dim3::linear_x(4));
        for (block, sm, start, end) in [(0, 0, 0, 100), (1, 1, 0, 60)] {
            trace.blocks.push(BlockSpan {
                block,
                cluster: block,
                sm,
                start: Time(start),
                end: Time(end),
            });
        }
        for (tile, block, start, end, origin) in [
            (0, 0, 0, 40, TileOrigin::Own),
            (1, 1, 10, 60, TileOrigin::Own),
            (2, 0, 40, 100, TileOrigin::Stolen),
        ] {
            trace.tiles.push(TileSpan {
                tile: Dim3::new(tile, 0, 0),
                block,
                sm: block,
                start: Time(start),
                end: Time(end),
                origin,
            });
        }
        trace
    }

    #[test]
    fn figures_of_a_small_run() {
        let summary = trace().summary();
        assert_eq!(summary.makespan, Time(100));
        assert_eq!(summary.tail, Time(40));
        assert_eq!(summary.busy_fraction, 150.0 / 400.0);
        assert_eq!((summary.tiles, summary.stolen), (3, 1));
        assert_eq!(summary.most_tiles_per_block, 2);
    }

    #[test]
    fn tiles_by_ticket_and_decisions_are_counted() {
        let mut trace = trace();
        let mut drawn = trace.tiles[2];
        drawn.origin = TileOrigin::Ticket;
        trace.tiles.push(drawn);
        for kind in [
            DecisionKind::Declined,
            DecisionKind::Refused,
            DecisionKind::Refused,
        ] {
            trace.decisions.push(Decision {
                block: 0,
                at: Time(1),
                kind,
            });
        }
        assert_eq!(trace.decisions_by(DecisionKind::Refused), 2);
        let summary = trace.summary();
        assert_eq!(summary.stolen, 2, "stolen and drawn");
        assert_eq!((summary.declined, summary.refused), (1, 2));
    }

    #[test]
    fn overlapping_work_on_one_sm_counts_once() {
        let mut trace = trace();
        trace.sm_count = 1;
        for tile in &mut trace.tiles {
            tile.sm = 0;
        }
        assert_eq!(trace.busy_fraction(), 1.0);
    }

    #[test]
    fn tiles_lost_doubled_and_strange_are_found() {
        let mut trace = trace();
        assert_eq!(trace.miscounted_tiles(Dim3::linear_x(3)), []);
        assert_eq!(
            trace.miscounted_tiles(Dim3::linear_x(4)),
            [(Dim3::new(3, 0, 0), 0)]
        );
        assert_eq!(
            trace.miscounted_tiles(Dim3::linear_x(2)),
            [(Dim3::new(2, 0, 0), 1)]
        );
        let again = trace.tiles[0];
        trace.tiles.push(again);
        assert_eq!(
            trace.miscounted_tiles(Dim3::linear_x(3)),
            [(Dim3::new(0, 0, 0), 2)]
        );
    }

    #[test]
    fn an_empty_trace_has_figures_too() {
        let trace = Trace::new("gpu", "k", Clock::Measured, 132, Dim3::ONE);
        assert_eq!(trace.makespan(), Time::ZERO);
        assert_eq!(trace.busy_fraction(), 0.0);
        assert_eq!(trace.tail(), Time::ZERO);
    }

    #[test]
    fn json_comes_back() {
        let trace = trace();
        let json = serde_json::to_string(&trace).unwrap();
        assert!(json.contains("\"clock\":\"modelled\""));
        assert_eq!(serde_json::from_str::<Trace>(&json).unwrap(), trace);
    }

    #[test]
    fn times_read_well() {
        assert_eq!(Time::from_ns(812).to_string(), "812 ns");
        assert_eq!(Time::from_ns_f64(3420.0).to_string(), "3.42 us");
        assert_eq!(Time::from_ns(1_080_000).to_string(), "1.08 ms");
    }
}
