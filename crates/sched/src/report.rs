//! The records of a watched launch, read back.

use crate::context::Misdeed;
use crate::plan::Plan;
use crate::tiled::TiledKernel;
use crate::watch::{CLUSTER_WORDS, HEADER_WORDS, RECORD_WORDS, RecordKind, Watch};
use heist_builder::KernelParams;
use heist_launch::{
    BlockSpan, BufferRef, Clock, Decision, DecisionKind, Dim3, Outcome, TileOrigin, TileSpan, Time,
    Trace,
};
use serde::{Deserialize, Serialize};

/// What a launch reported.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LaunchReport {
    /// Figures, for a kernel that was watched.
    pub stats: Option<Stats>,
    /// Every block, tile and decision, for a kernel that was traced.
    pub trace: Option<Trace>,
    /// When the trace begins, on the clock that all kernels of the GPU have in common, in nanoseconds.
    pub began_ns: Option<u64>,
    /// Set where a policy was overruled for keeping a block waiting.
    pub ejected: Option<Ejected>,
    /// Whether the launch left its counter at zero, as the next one needs it.
    pub counter_is_zero: bool,
}

/// Figures of a launch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stats {
    /// For each cluster that was launched.
    pub clusters: Vec<ClusterStats>,
}

/// Figures of one cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterStats {
    /// Clusters of tiles that it ran.
    pub tiles: u32,
    /// Of those, stolen or drawn.
    pub stolen: u32,
    /// Requests it submitted.
    pub requests: u32,
    /// Requests that were refused.
    pub refusals: u32,
    /// Opportunities that its policy passed up.
    pub declines: u32,
    /// How often its policy was overruled.
    pub overruled: u32,
    /// How long it held nothing between tiles, in nanoseconds.
    pub idle_ns: u64,
}

impl Stats {
    /// The sum over all clusters.
    pub fn total(&self) -> ClusterStats {
        let mut sum = ClusterStats::default();
        for cluster in &self.clusters {
            sum.tiles += cluster.tiles;
            sum.stolen += cluster.stolen;
            sum.requests += cluster.requests;
            sum.refusals += cluster.refusals;
            sum.declines += cluster.declines;
            sum.overruled += cluster.overruled;
            sum.idle_ns += cluster.idle_ns;
        }
        sum
    }
}

/// The exit record of a policy that was overruled: the launch went on as
/// greedy, and so do later launches with the same control words, until these
/// are cleared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ejected {
    /// The cluster whose policy it was.
    pub cluster: u32,
    /// What the policy did.
    pub why: Misbehaviour,
    /// When, on the GPU's clock, in nanoseconds.
    pub at_ns: u64,
    /// The policy.
    pub policy: String,
}

/// Why a policy was ejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Misbehaviour {
    /// It kept a block waiting.
    Waited,
    /// It had a step with an unknown operation.
    UnknownStep,
    /// Its words were not those that were loaded.
    Changed,
    /// It divided by zero.
    DividedByZero,
    /// Something that this version has no name for.
    Unknown,
}

impl Misbehaviour {
    fn from_number(number: u32) -> Misbehaviour {
        match number {
            n if n == Misdeed::Waited as u32 => Misbehaviour::Waited,
            n if n == Misdeed::UnknownStep as u32 => Misbehaviour::UnknownStep,
            n if n == Misdeed::Changed as u32 => Misbehaviour::Changed,
            n if n == Misdeed::DividedByZero as u32 => Misbehaviour::DividedByZero,
            _ => Misbehaviour::Unknown,
        }
    }
}

impl std::fmt::Display for Misbehaviour {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Misbehaviour::Waited => "kept a block waiting past the watchdog's bound",
            Misbehaviour::UnknownStep => "came to a step that is none",
            Misbehaviour::Changed => "was not what had been loaded",
            Misbehaviour::DividedByZero => "divided by zero",
            Misbehaviour::Unknown => "misbehaved",
        })
    }
}

impl std::fmt::Display for Ejected {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "policy `{}` {} in cluster {} at {} ns; the launch went on as greedy",
            self.policy, self.why, self.cluster, self.at_ns
        )
    }
}

/// Where a launch ran, for its trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceDevice {
    /// The device's name.
    pub device: String,
    /// Its SMs.
    pub sms: u32,
    /// Where its times come from.
    pub clock: Clock,
}

/// Records that can't be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReportError {
    /// The outcome has no such buffers.
    #[error("the outcome has no scheduler buffers: was it launched with `TiledKernel::arguments`?")]
    Missing,
    /// More records than the buffer holds.
    #[error("{written} records were written and {room} fit: the trace is incomplete")]
    Overflow {
        /// Written.
        written: u64,
        /// Room.
        room: u64,
    },
    /// A record of no known kind.
    #[error(
        "record {index} has the unknown kind {kind}: something else wrote into the watch buffer"
    )]
    Strange {
        /// Which.
        index: usize,
        /// What it says it is.
        kind: u8,
    },
}

/// What it takes to read the records of a launch, without its kernel.
#[derive(Clone, Debug)]
pub struct Readout {
    watch: Watch,
    policy: String,
    entry: String,
    cluster: Dim3,
    tiles: Dim3,
    grid: Dim3,
    workers: u32,
    resident: u32,
    own_params: usize,
}

impl<A: KernelParams> TiledKernel<A> {
    /// How the records of a launch are read.
    pub fn readout(&self, plan: &Plan) -> Readout {
        Readout {
            watch: self.shape.watch,
            policy: self.policy(),
            entry: self.built.launch.entry.clone(),
            cluster: self.shape.cluster,
            tiles: Dim3::from(plan.numbers.tiles),
            grid: plan.launch.grid,
            workers: plan.workers,
            resident: plan.numbers.resident,
            own_params: plan.own_params,
        }
    }

    /// Reads what a launch reported.
    ///
    /// # Errors
    /// Why it can't be read.
    pub fn report(
        &self,
        plan: &Plan,
        outcome: &Outcome,
        place: &TraceDevice,
    ) -> Result<LaunchReport, ReportError> {
        self.readout(plan).report(outcome, place)
    }
}

impl Readout {
    /// The number of the argument that holds the control words.
    pub fn control(&self) -> usize {
        self.own_params
    }

    /// The number of the argument that holds the records.
    pub fn records(&self) -> usize {
        self.own_params + 1
    }

    /// The grid of tiles.
    pub fn tiles(&self) -> Dim3 {
        self.tiles
    }

    /// Blocks of a cluster.
    pub fn cluster(&self) -> Dim3 {
        self.cluster
    }

    /// How many clusters the launch was planned to have on the GPU at a time.
    pub fn resident(&self) -> u32 {
        self.resident
    }

    /// How closely the kernel is watched.
    pub fn watch(&self) -> Watch {
        self.watch
    }

    /// Reads what a launch reported.
    ///
    /// # Errors
    /// Why it can't be read.
    pub fn report(
        &self,
        outcome: &Outcome,
        place: &TraceDevice,
    ) -> Result<LaunchReport, ReportError> {
        let output = |at| {
            let buffer = outcome.output(BufferRef::Argument(at));
            buffer.map(|buffer| words(buffer.bytes()))
        };
        let (control, watch) = (output(self.control()), output(self.records()));
        let (Some(control), Some(watch)) = (control, watch) else {
            return Err(ReportError::Missing);
        };
        self.report_words(&control, &watch, place)
    }

    /// Reads what a launch left in its control words and in its watch buffer.
    ///
    /// # Errors
    /// Why it can't be read.
    pub fn report_words(
        &self,
        control: &[u64],
        watch: &[u64],
        place: &TraceDevice,
    ) -> Result<LaunchReport, ReportError> {
        let &[counter, who, when, ..] = control else {
            return Err(ReportError::Missing);
        };
        let mut report = LaunchReport {
            ejected: (who > 0).then(|| Ejected {
                cluster: (who as u32).wrapping_sub(1),
                why: Misbehaviour::from_number((who >> 32) as u32),
                at_ns: when,
                policy: self.policy.clone(),
            }),
            counter_is_zero: counter == 0,
            ..LaunchReport::default()
        };
        let first = HEADER_WORDS + self.workers as usize * CLUSTER_WORDS;
        if self.watch >= Watch::Stats {
            let clusters = watch.get(HEADER_WORDS..first);
            let clusters = clusters.ok_or(ReportError::Missing)?;
            report.stats = Some(Stats {
                clusters: clusters.chunks_exact(CLUSTER_WORDS).map(cluster).collect(),
            });
        }
        if self.watch == Watch::Trace {
            let (written, room) = (watch[0], watch[1]);
            if written > room {
                return Err(ReportError::Overflow { written, room });
            }
            let records = watch.get(first..first + written as usize * RECORD_WORDS);
            let records = records.ok_or(ReportError::Missing)?;
            let starts = records.chunks_exact(RECORD_WORDS).map(|record| record[2]);
            let begin = starts.min().unwrap_or(0);
            report.trace = Some(self.trace(records, begin, place)?);
            report.began_ns = Some(begin);
        }
        Ok(report)
    }

    fn trace(
        &self,
        records: &[u64],
        begin: u64,
        place: &TraceDevice,
    ) -> Result<Trace, ReportError> {
        let mut trace = Trace::new(
            place.device.clone(),
            self.entry.clone(),
            place.clock,
            place.sms,
            self.grid,
        );
        let (grid, tiles) = (self.grid, self.tiles);
        let records = records.chunks_exact(RECORD_WORDS);
        let time = |ns: u64| Time::from_ns(ns - begin);
        for (index, record) in records.enumerate() {
            let kind = record[0] as u8;
            let sm = (record[0] >> 8) as u32 & 0xFF_FFFF;
            let block = (record[0] >> 32) as u32;
            let (start, end) = (time(record[2]), time(record[3].max(record[2])));
            let span = |origin| TileSpan {
                tile: tiles.coordinates(record[1]),
                block,
                sm,
                start,
                end,
                origin,
            };
            let decision = |kind| Decision {
                block,
                at: start,
                kind,
            };
            match RecordKind::from_byte(kind) {
                Some(RecordKind::Block) => trace.blocks.push(BlockSpan {
                    block,
                    cluster: grid.coordinates(block.into()).x / self.cluster.x.max(1),
                    sm,
                    start,
                    end,
                }),
                Some(RecordKind::OwnTile) => trace.tiles.push(span(TileOrigin::Own)),
                Some(RecordKind::StolenTile) => trace.tiles.push(span(TileOrigin::Stolen)),
                Some(RecordKind::TicketTile) => trace.tiles.push(span(TileOrigin::Ticket)),
                Some(RecordKind::StaticTile) => trace.tiles.push(span(TileOrigin::Static)),
                Some(RecordKind::Requested) => {
                    trace.decisions.push(decision(DecisionKind::Requested))
                }
                Some(RecordKind::Declined) => {
                    trace.decisions.push(decision(DecisionKind::Declined))
                }
                Some(RecordKind::Granted) => trace.decisions.push(decision(DecisionKind::Granted)),
                Some(RecordKind::Refused) => trace.decisions.push(decision(DecisionKind::Refused)),
                Some(RecordKind::Overruled) => {
                    trace.decisions.push(decision(DecisionKind::Overruled))
                }
                None => return Err(ReportError::Strange { index, kind }),
            }
        }
        trace.blocks.sort_by_key(|span| (span.start, span.block));
        trace.tiles.sort_by_key(|span| (span.start, span.block));
        trace
            .decisions
            .sort_by_key(|decision| (decision.at, decision.block));
        Ok(trace)
    }
}

fn cluster(words: &[u64]) -> ClusterStats {
    let halves = |word: u64| (word as u32, (word >> 32) as u32);
    let (tiles, stolen) = halves(words[0]);
    let (refusals, declines) = halves(words[1]);
    let (overruled, requests) = halves(words[2]);
    ClusterStats {
        tiles,
        stolen,
        requests,
        refusals,
        declines,
        overruled,
        idle_ns: words[3],
    }
}

fn words(bytes: &[u8]) -> Vec<u64> {
    bytes
        .chunks_exact(8)
        .map(|chunk| {
            let mut word = [0; 8];
            word.copy_from_slice(chunk);
            u64::from_le_bytes(word)
        })
        .collect()
}
