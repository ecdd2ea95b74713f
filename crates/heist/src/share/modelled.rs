//! Two tenants of a simulated GPU.
//!
//! Every tile of every launch is counted; one that does not run exactly once is an error.
//!
//! ```
//! use heist::kernels::catalogue::Settings;
//! use heist::ptx::arch::Gpu;
//! use heist::share::{Tenant, modelled::Model};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let model = Model::new(Gpu::H200);
//! let product = Tenant {
//!     name: "product".into(),
//!     kernel: "gemm",
//!     told: Settings::from_words(["m=256", "n=256", "k=256"])?,
//!     schedule: None,
//!     spare: 0,
//! };
//! let lodger = model.move_in(&product)?;
//! assert_eq!(lodger.shapes().count(), 1, "one launch");
//! assert!(model.alone(&lodger)? > 0.0); // microseconds
//! # Ok(()) }
//! ```

use super::stand_in::StandIn;
use super::{Beside, COMES, Company, GOLDEN, Pair, Seen, Tenant, in_one_clock};
use crate::job::JobError;
use heist_kernels::{KernelError, Target};
use heist_launch::Trace;
use heist_ptx::arch::Gpu;
use heist_run::NotRun;
use heist_run::company::{
    Checks, Device, Host, Options, Order, Ran, Reach, Silent, Stream, together,
};
use heist_sched::{BELL_BYTES, Bell, TraceDevice, Watch};

pub use super::stand_in::Shape;

/// A simulated GPU that is shared.
pub struct Model {
    device: Device,
    target: Target,
}

/// A tenant on it: kernels that stand in for its launches.
pub struct Lodger {
    /// The name of its row in a table.
    pub name: String,
    listens: bool,
    steps: Vec<StandIn>,
}

impl Lodger {
    /// What stands in for each of its launches.
    pub fn shapes(&self) -> impl Iterator<Item = Shape> {
        self.steps.iter().map(|step| step.shape)
    }

    /// What its bell says to have room for a visitor, as on a real GPU.
    fn bell_for(&self, visitor: &Lodger) -> Bell {
        let alone = self.shapes().all(|shape| shape.blocks == 1);
        let clusters = visitor.shapes().any(|shape| shape.cluster.count() > 1);
        if clusters || !alone {
            return Bell::All;
        }
        let launched = visitor.steps.iter().map(|step| step.plan.launch.grid);
        let most = launched.map(|grid| grid.count()).max().unwrap_or(0);
        let most = u32::try_from(most).unwrap_or(u32::MAX);
        match visitor.steps.len() {
            1 => Bell::Once(most),
            _ => Bell::For(most),
        }
    }

    /// Its launches, one after the other from a time on.
    fn orders(&self, not_before: u64) -> impl Iterator<Item = Result<Order<'_>, NotRun>> {
        self.steps.iter().map(move |step| {
            Ok(Order {
                program: step.program.simulated()?,
                entry: &step.kernel.built.launch.entry,
                launch: &step.plan.launch,
                arguments: &step.arguments,
                not_before,
            })
        })
    }
}

const BATCH: usize = 0;
const INTERACTIVE: usize = 1;
/// From a launch of the batch to the next, in nanoseconds.
const GAP_NS: f64 = 1000.0;
/// When the batch is launched where something must be on the GPU before it.
const LATER_NS: u64 = 10_000;

impl Model {
    /// Of a GPU.
    pub fn new(gpu: Gpu) -> Model {
        Model {
            device: Device::of(gpu),
            target: Target {
                arch: gpu.arch,
                sms: gpu.sms,
            },
        }
    }

    /// What kernels are built for.
    pub fn target(&self) -> Target {
        self.target
    }

    /// Makes the kernels that stand in for a tenant.
    ///
    /// # Errors
    /// Why there is no such kernel.
    pub fn move_in(&self, tenant: &Tenant) -> Result<Lodger, JobError> {
        self.watched(tenant, Watch::Off)
    }

    fn watched(&self, tenant: &Tenant, watch: Watch) -> Result<Lodger, JobError> {
        Ok(Lodger {
            name: tenant.name.clone(),
            listens: tenant.listens(),
            steps: StandIn::of(tenant, self.device.gpu(), self.target, watch)?,
        })
    }

    /// The microseconds of a launch with nobody else on the GPU.
    ///
    /// # Errors
    /// What went wrong in it.
    pub fn alone(&self, lodger: &Lodger) -> Result<f64, JobError> {
        let ran = self.run(&[(0, lodger, &[0])], &mut Silent)?;
        Ok(microseconds(&ran[0]))
    }

    /// The microseconds of a launch while `sms` multiprocessors are held. `alone` is what it takes
    /// with none held.
    ///
    /// # Errors
    /// What went wrong in it.
    pub fn held(&self, lodger: &Lodger, alone: f64, sms: u32) -> Result<f64, JobError> {
        if sms == 0 {
            return self.alone(lodger);
        }
        let all = f64::from(self.target.sms);
        // Tiles that were dealt out in advance may take several rounds.
        let long = alone * 4.0 * all / (all - f64::from(sms)).max(1.0);
        let holder = StandIn::holder(sms, (long * 1e3) as u32, self.target)?;
        let holder = Lodger {
            name: "hold".to_owned(),
            listens: false,
            steps: vec![holder],
        };
        let streams = [(0, lodger, &[LATER_NS][..]), (-5, &holder, &[0])];
        let ran = self.run(&streams, &mut Silent)?;
        Ok(microseconds(&ran[BATCH]))
    }

    /// How often a batch is launched beside an interactive kernel: what [`Model::beside`] takes is in
    /// proportion to it. `alone` is what the batch takes with nobody beside it.
    pub fn launches(&self, alone: f64, company: Company) -> usize {
        launches(&arrivals(company, alone), alone)
    }

    /// The batch back to back with a low priority, the interactive kernel now and then with a high
    /// one. The bell of a batch that listens is rung while the interactive kernel waits or runs.
    /// `alone` is what the batch takes with nobody beside it.
    ///
    /// # Errors
    /// What went wrong in a launch.
    pub fn beside(
        &self,
        (batch, alone): (&Lodger, f64),
        interactive: &Lodger,
        company: Company,
    ) -> Result<Beside, JobError> {
        let arrivals = arrivals(company, alone);
        let launches = launches(&arrivals, alone);
        let streams = [
            (0, batch, &vec![0; launches][..]),
            (-5, interactive, &arrivals),
        ];
        let steps = interactive.steps.len();
        let mut ringer = Ringer::new(batch, interactive, &arrivals);
        let ran = self.run(&streams, &mut ringer)?;
        let samples: Vec<(u64, u64)> = ran[INTERACTIVE]
            .chunks(steps.max(1))
            .filter_map(|sample| Some((sample.first()?.ready, sample.last()?.ended)))
            .collect();
        let last = samples.last().map_or(0, |(_, ended)| *ended);
        let batches = ran[BATCH].chunks(batch.steps.len().max(1));
        let ends: Vec<u64> = batches.filter_map(|one| Some(one.last()?.ended)).collect();
        let ended = ends.iter().filter(|end| **end <= last).count();
        let took = samples
            .iter()
            .map(|(ready, ended)| (ended - ready) as f64 / 1e3);
        let seen = Seen {
            samples: took.collect(),
            watched: ended.checked_sub(1).map_or(0, |last| ends[last]) as f64 / 1e3,
            ended,
        };
        Ok(seen.in_short())
    }

    /// One launch of the batch, and one of the interactive kernel in the midst of it. `alone` is
    /// what the batch takes with nobody beside it.
    ///
    /// # Errors
    /// What went wrong in a launch.
    pub fn pair(
        &self,
        (batch, alone): (&Tenant, f64),
        interactive: &Tenant,
    ) -> Result<Pair, JobError> {
        let batch = self.watched(batch, Watch::Trace)?;
        let interactive = self.watched(interactive, Watch::Trace)?;
        let arrivals = [(alone * COMES * 1e3) as u64];
        let mut ringer = Ringer::new(&batch, &interactive, &arrivals);
        let streams = [(0, &batch, &[0][..]), (-5, &interactive, &arrivals)];
        let ran = self.run(&streams, &mut ringer)?;
        Ok(Pair {
            batch: self.trace(&batch, &ran[BATCH])?,
            interactive: self.trace(&interactive, &ran[INTERACTIVE])?,
        })
    }

    /// Runs tenants with their priorities, each launched at these times.
    fn run(
        &self,
        tenants: &[(i32, &Lodger, &[u64])],
        host: &mut dyn Host,
    ) -> Result<Vec<Vec<Ran>>, JobError> {
        let mut streams = Vec::new();
        for (priority, lodger, times) in tenants {
            let orders = times.iter().flat_map(|at| lodger.orders(*at));
            streams.push(Stream {
                priority: *priority,
                orders: orders.collect::<Result<_, NotRun>>()?,
            });
        }
        // The kernels here are the scheduler's, whose own tests look for races.
        let options = Options {
            checks: Checks::FEWEST,
            ..Options::default()
        };
        let source = |lodger: &Lodger| Box::new(lodger.steps[0].program.source().clone());
        let ran = together(&self.device, &streams, &options, host)
            .map_err(|found| NotRun::Refused(found, source(tenants[0].1)))?;
        for (ran, (_, lodger, _)) in ran.iter().zip(tenants) {
            for (ran, step) in ran.iter().zip(lodger.steps.iter().cycle()) {
                if ran.report.has_errors() {
                    let found = ran.report.diagnostics.clone();
                    return Err(NotRun::Refused(found, source(lodger)).into());
                }
                if let Some((tile, runs)) = step.miscounted(&ran.report.outcome) {
                    return Err(KernelError::unfit(format!(
                        "{}: tile {tile} ran {runs} times on {}",
                        lodger.name, self.device
                    ))
                    .into());
                }
            }
        }
        Ok(ran)
    }

    /// The tiles of all launches of a tenant, in the clock of the GPU.
    fn trace(&self, lodger: &Lodger, ran: &[Ran]) -> Result<Trace, JobError> {
        let place = TraceDevice {
            device: self.device.to_string(),
            sms: self.target.sms,
            clock: heist_launch::Clock::Modelled,
        };
        let mut traces = Vec::new();
        for (ran, step) in ran.iter().zip(lodger.steps.iter().cycle()) {
            let report = step.readout().report(&ran.report.outcome, &place)?;
            let blocks = ran.report.outcome.trace.as_ref();
            let begin = blocks.and_then(Trace::window).map(|(begin, _)| begin);
            traces.extend(report.trace.map(|trace| (begin.unwrap_or_default(), trace)));
        }
        in_one_clock(traces).ok_or(heist_sched::ReportError::Missing.into())
    }
}

/// From the first launch to the end of the last, in microseconds.
fn microseconds(ran: &[Ran]) -> f64 {
    let begin = ran.first().map_or(0, |ran| ran.ready);
    let end = ran.last().map_or(0, |ran| ran.ended);
    end.saturating_sub(begin) as f64 / 1e3
}

/// When the interactive kernel comes, in nanoseconds: a period apart in the mean, or every second
/// launch of a batch that is longer, so that none waits for the one before; and at every moment of
/// such a launch equally often, so that a few samples tell as much as many.
fn arrivals(company: Company, alone: f64) -> Vec<u64> {
    let (period, cycle) = (company.period.as_nanos() as f64, alone * 1e3 + GAP_NS);
    let times = (1..=company.samples).map(|sample| {
        let launches = (sample as f64 * (period / cycle).max(2.0)).round();
        let phase = (sample as f64 * GOLDEN).fract();
        ((launches + phase) * cycle) as u64
    });
    times.collect()
}

/// How many launches of a batch it takes until the last arrival, and for what comes then.
fn launches(arrivals: &[u64], alone: f64) -> usize {
    let end = arrivals.last().copied().unwrap_or(0) as f64 / 1e3;
    (end / alone).ceil() as usize + 2
}

/// Rings the bell of a batch while the interactive kernel waits or runs.
struct Ringer<'a> {
    /// The control words among the arguments of each launch of the batch, for one that listens.
    control: Option<usize>,
    /// What it rings.
    bell: Bell,
    arrivals: &'a [u64],
    /// Launches of the interactive kernel for each time that it comes.
    steps: usize,
    /// How often it has come, and gone.
    come: usize,
    gone: usize,
    /// When the bell must be touched again, while it is rung.
    again: Option<u64>,
}

impl<'a> Ringer<'a> {
    fn new(batch: &Lodger, interactive: &Lodger, arrivals: &'a [u64]) -> Ringer<'a> {
        let control = batch.steps.first().map(|step| step.readout().control());
        Ringer {
            control: control.filter(|_| batch.listens),
            bell: batch.bell_for(interactive),
            arrivals,
            steps: interactive.steps.len().max(1),
            come: 0,
            gone: 0,
            again: None,
        }
    }
}

/// Every launch of the batch has a bell of its own here: how often it is rung again for the next
/// one, in nanoseconds.
const AGAIN_NS: u64 = 1000;

impl Host for Ringer<'_> {
    fn next(&self) -> Option<u64> {
        self.control?;
        let comes = self.arrivals.get(self.come).copied();
        self.again.into_iter().chain(comes).min()
    }

    fn act(&mut self, now: u64, reach: &mut dyn Reach) {
        if self.arrivals.get(self.come).is_some_and(|at| *at <= now) {
            self.come += 1;
        }
        let there = self.come > self.gone;
        self.again = there.then_some(now + AGAIN_NS);
        let bell = match there {
            true => self.bell,
            false => Bell::Silent,
        };
        if let Some(control) = self.control {
            let word = bell.ring(self.come as u32).to_le_bytes();
            // There is nothing to ring between two launches.
            let _ = reach.write(BATCH, control, BELL_BYTES as usize, &word);
        }
    }

    fn ended(&mut self, stream: usize, order: usize, now: u64) {
        if stream == INTERACTIVE && (order + 1).is_multiple_of(self.steps) {
            self.gone += 1;
            self.again = Some(now);
        }
    }
}
