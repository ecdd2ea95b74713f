//! Two tenants of one GPU: what a kernel costs the others, and what the others
//! cost it.
//!
//! A running block is never stopped, so a kernel that keeps its blocks keeps the GPU. Two
//! questions: how long an interactive kernel waits beside a batch that runs back to back, and how
//! long a kernel takes while another kernel holds some of the multiprocessors. A real GPU is asked
//! with the kernels themselves ([`beside`], [`Holder`]), a simulated one with kernels that stand in
//! for them ([`modelled`]).
//!
//! ```
//! use heist::kernels::catalogue::Settings;
//! use heist::ptx::arch::Gpu;
//! use heist::share::{Tenant, modelled::Model};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let model = Model::new(Gpu::H200);
//! let batch = model.move_in(&Tenant {
//!     name: "batch".into(),
//!     kernel: "gemm",
//!     told: Settings::from_words(["m=2048", "n=2048", "k=512"])?,
//!     schedule: Some("ticket".parse()?),
//!     spare: 0,
//! })?;
//! // Half of the multiprocessors are another's: the tiles are dealt out to those that are left.
//! let alone = model.alone(&batch)?;
//! let held = model.held(&batch, alone, 66)?;
//! assert!(alone < held, "{alone} us alone, {held} us with half of the GPU");
//! # Ok(()) }
//! ```

#[cfg(feature = "gpu")]
mod held;
#[cfg(feature = "gpu")]
mod measured;
pub mod modelled;
mod stand_in;

#[cfg(feature = "gpu")]
pub use held::{Holder, holder_ptx};
#[cfg(feature = "gpu")]
pub use measured::{alone, beside, move_in, pair, warm_up};

use heist_kernels::catalogue::{self, Settings};
use heist_kernels::{Job, KernelError, Target};
use heist_launch::{Time, Trace};
use heist_sched::{Policy, Schedule};
use std::time::Duration;

/// A kernel of the catalogue under a schedule, as a tenant of the GPU.
#[derive(Clone, Debug)]
pub struct Tenant {
    /// The name of its row in a table.
    pub name: String,
    /// The kernel.
    pub kernel: &'static str,
    /// Its settings.
    pub told: Settings,
    /// The kernel's own unless given.
    pub schedule: Option<Schedule>,
    /// Multiprocessors that its resident blocks leave free.
    pub spare: u32,
}

impl Tenant {
    /// Whether its blocks leave when its bell is rung.
    pub fn listens(&self) -> bool {
        let policy = self.schedule.as_ref().map(|one| one.policy.name());
        policy.is_some_and(|name| name.contains("until-asked"))
    }

    /// Its launches, without data.
    ///
    /// # Errors
    /// Why there is no such kernel.
    pub fn launches(&self, target: Target) -> Result<Job, KernelError> {
        let entry = catalogue::entry(self.kernel)?;
        entry.launches(
            &self.told,
            self.schedule.as_ref(),
            target.leaving(self.spare),
        )
    }

    /// Builds it with random data. Takes a while on the host, and needs no GPU.
    ///
    /// # Errors
    /// Why there is no such kernel.
    pub fn prepare(&self, target: Target) -> Result<catalogue::Prepared, KernelError> {
        let entry = catalogue::entry(self.kernel)?;
        entry.prepare(
            &self.told,
            self.schedule.as_ref(),
            target.leaving(self.spare),
        )
    }
}

/// A median and a ninety-ninth percentile, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tail {
    /// Half of the samples are below.
    pub p50: f64,
    /// 99% of the samples are below.
    pub p99: f64,
}

impl Tail {
    /// Of samples; `None` of none.
    pub fn of(samples: impl IntoIterator<Item = f64>) -> Option<Tail> {
        let mut sorted: Vec<f64> = samples.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let at = |part: f64| {
            let index = (part * sorted.len() as f64).ceil() as usize;
            sorted.get(index.clamp(1, sorted.len().max(1)) - 1).copied()
        };
        Some(Tail {
            p50: at(0.5)?,
            p99: at(0.99)?,
        })
    }

    /// The median of samples; not a number where there are none.
    pub fn median(samples: impl IntoIterator<Item = f64>) -> f64 {
        Tail::of(samples).map_or(f64::NAN, |tail| tail.p50)
    }
}

/// What was seen of two tenants beside each other, in one go or in several.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Seen {
    /// How long the interactive one took, from each launch to its end, in microseconds.
    pub samples: Vec<f64>,
    /// For how long the batch was watched, from the end of a launch to the end of another, in microseconds.
    pub watched: f64,
    /// Launches of the batch between these two, the last one included.
    pub ended: usize,
}

impl Seen {
    /// Adds what was seen later.
    pub fn extend(&mut self, later: Seen) {
        self.samples.extend(later.samples);
        self.watched += later.watched;
        self.ended += later.ended;
    }

    /// In short; not numbers where nothing was seen.
    pub fn in_short(&self) -> Beside {
        let nothing = Tail {
            p50: f64::NAN,
            p99: f64::NAN,
        };
        Beside {
            interactive: Tail::of(self.samples.iter().copied()).unwrap_or(nothing),
            batch: self.watched / self.ended as f64,
        }
    }
}

/// One launch of each of two tenants on one GPU, drawn by every tile, in the same clock.
pub struct Pair {
    /// The batch.
    pub batch: Trace,
    /// The interactive one, which came while the batch ran.
    pub interactive: Trace,
}

/// The part of a launch of the batch after which the interactive kernel of a [`Pair`] comes.
const COMES: f64 = 0.4;

/// One trace of several launches, each of which begins at zero in its own trace, and at a time.
fn in_one_clock(traces: impl IntoIterator<Item = (Time, Trace)>) -> Option<Trace> {
    let shifted = traces.into_iter().map(|(begin, mut trace)| {
        shift(&mut trace, begin);
        trace
    });
    shifted.reduce(|mut whole, trace| {
        whole.blocks.extend(trace.blocks);
        whole.tiles.extend(trace.tiles);
        whole.decisions.extend(trace.decisions);
        whole
    })
}

/// Moves a trace that begins at zero.
fn shift(trace: &mut Trace, by: Time) {
    let later = |time: &mut Time| *time = Time(time.0 + by.0);
    for block in &mut trace.blocks {
        later(&mut block.start);
        later(&mut block.end);
    }
    for tile in &mut trace.tiles {
        later(&mut tile.start);
        later(&mut tile.end);
    }
    for decision in &mut trace.decisions {
        later(&mut decision.at);
    }
}

/// What two tenants did to each other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Beside {
    /// How long the interactive one took, from its launch to its end.
    pub interactive: Tail,
    /// How long one launch of the batch took meanwhile, in microseconds.
    pub batch: f64,
}

/// How the two are run beside each other.
#[derive(Clone, Copy, Debug)]
pub struct Company {
    /// Launches of the interactive kernel.
    pub samples: usize,
    /// From one to the next, in the mean.
    pub period: Duration,
    /// How much of the batch is in its stream at any time, at least.
    pub queued: Duration,
}

/// Multiples of it, without their whole parts, lie evenly between zero and one.
const GOLDEN: f64 = 0.618_033_988_749_895;

impl Company {
    /// From one launch of the interactive kernel to the next: a period in the mean. A fixed one
    /// would find a batch of nearly the same length at the same few moments over and over.
    pub fn after(&self, sample: usize) -> Duration {
        self.period.mul_f64(0.5 + (sample as f64 * GOLDEN).fract())
    }

    /// For a simulated GPU: the interactive kernel comes no more rarely than every third launch of
    /// a batch that takes `alone` microseconds, so that less is simulated.
    pub fn for_model(alone: f64) -> Company {
        let usual = Company::default();
        let often = Duration::from_micros((3.0 * alone) as u64 + 200);
        Company {
            period: usual.period.min(often),
            ..usual
        }
    }
}

impl Default for Company {
    fn default() -> Company {
        Company {
            samples: 400,
            period: Duration::from_micros(1700),
            queued: Duration::from_millis(8),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_seen_in_turns_counts_together() {
        let mut all = Seen::default();
        assert!(all.in_short().batch.is_nan() && all.in_short().interactive.p50.is_nan());
        for turn in [1.0, 3.0] {
            all.extend(Seen {
                samples: vec![turn, turn + 1.0],
                watched: 100.0 * turn,
                ended: 2,
            });
        }
        let Beside { interactive, batch } = all.in_short();
        assert_eq!((interactive.p50, interactive.p99, batch), (2.0, 4.0, 100.0));
    }

    #[test]
    fn launches_are_drawn_on_one_clock() {
        use heist_launch::{BlockSpan, Clock, Dim3};
        let launch = || {
            let mut trace = Trace::new("gpu", "kernel", Clock::Measured, 1, Dim3::ONE);
            trace.blocks.push(BlockSpan {
                block: 0,
                cluster: 0,
                sm: 0,
                start: Time::from_ns(1),
                end: Time::from_ns(5),
            });
            trace
        };
        let both = [(Time::ZERO, launch()), (Time::from_ns(70), launch())];
        let whole = in_one_clock(both).unwrap();
        let starts = whole.blocks.iter().map(|block| block.start.ns());
        assert_eq!(starts.collect::<Vec<_>>(), [1.0, 71.0]);
        assert!(in_one_clock([]).is_none());
    }

    #[test]
    fn a_tail_is_the_nearest_sample() {
        let tail = Tail::of((1..=200).map(f64::from)).unwrap();
        assert_eq!((tail.p50, tail.p99), (100.0, 198.0));
        let one = Tail::of([7.0]).unwrap();
        assert_eq!((one.p50, one.p99), (7.0, 7.0));
        assert_eq!(Tail::of([]), None);
        assert_eq!(Tail::median([3.0, 1.0, 2.0]), 2.0);
        assert!(Tail::median([]).is_nan());
    }
}
