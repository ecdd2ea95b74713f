//! The fastest kernel and schedule for one problem on one device, by measuring.
//!
//! One thing at a time: which variant, then which schedule for that variant, then
//! in which order its tiles are handed out. In each stage the best so far runs
//! again beside the others, so that all that are compared were measured in turns.
//! Every candidate solves the problem once before it is timed: the first result is
//! held against the reference, the others against the first.

#[cfg(feature = "gpu")]
use crate::job::OnGpu;
use crate::job::{self, JobError, distance, output_of};
use heist_kernels::catalogue::{Entry, Prepared, Settings as Told};
use heist_kernels::{KernelError, Target, Work};
use heist_launch::{Buffer, Time};
use heist_run::{Device, Settings};
use heist_sched::{AnyOrder, AnyPolicy, Effort, Policy, Schedule, race};

/// Orders that are tried.
const ORDERS: [&str; 6] = [
    "linear",
    "reversed",
    "grouped(4)",
    "grouped(8)",
    "grouped(16)",
    "hilbert",
];

/// A larger problem is not held against the reference, which would take minutes.
const MOST_FLOPS: f64 = 2e11;

/// What can be chosen.
#[derive(Clone, Debug)]
pub struct Choice {
    /// The kernel.
    pub variant: &'static str,
    /// The kernel's own unless given.
    pub schedule: Option<Schedule>,
}

impl Choice {
    /// The schedule in words.
    pub fn schedule(&self) -> String {
        match &self.schedule {
            Some(schedule) => schedule.to_string(),
            None => "its own".into(),
        }
    }

    /// The arguments of `heist run` that choose it.
    pub fn arguments(&self) -> Vec<String> {
        let mut words = vec![format!("variant={}", self.variant)];
        if let Some(schedule) = &self.schedule {
            words.extend(["--source".into(), schedule.source.to_string()]);
            if schedule.source.asks() {
                words.extend(["--submit".into(), schedule.submit.to_string()]);
                words.extend(["--policy".into(), format!("'{}'", schedule.policy.name())]);
            }
            if schedule.order.name() != "linear" {
                words.extend(["--order".into(), format!("'{}'", schedule.order.name())]);
            }
        }
        words
    }
}

/// A choice that was measured.
#[derive(Clone, Debug)]
pub struct Tried {
    /// What.
    pub choice: Choice,
    /// The median, in nanoseconds, in the last stage that it was in.
    pub median_ns: f64,
    /// Samples there.
    pub samples: u32,
}

/// A choice that could not be measured.
#[derive(Clone, Debug)]
pub struct Refused {
    /// What.
    pub choice: Choice,
    /// Why.
    pub why: String,
    /// Whether it ran, and its result is not right.
    pub wrong: bool,
}

/// What a search found.
#[derive(Clone, Debug, Default)]
pub struct Tuning {
    /// The fastest first.
    pub tried: Vec<Tried>,
    /// What could not be had.
    pub refused: Vec<Refused>,
    /// What the problem costs at least.
    pub work: Work,
    /// Whether the first result was held against the reference.
    pub against_reference: bool,
}

/// A candidate that has solved the problem.
enum Ready {
    /// The modelled time, which does not change.
    Simulated(Time),
    /// To be sampled.
    #[cfg(feature = "gpu")]
    Gpu(OnGpu),
}

/// What all candidates of a search share.
struct Search<'s> {
    device: &'s Device,
    entry: &'s dyn Entry,
    told: &'s Told,
    settings: &'s Settings,
    target: Target,
    /// The first result, once there is one, and the largest difference that is right.
    first: Option<(Buffer, f64)>,
    found: Tuning,
}

/// Looks for the fastest choice. `told` is the problem, as `heist run` is told it;
/// a variant in it is not changed.
///
/// # Errors
/// When the problem can't be solved by any kernel, or the device fails.
pub fn search(
    device: &Device,
    entry: &dyn Entry,
    told: &Told,
    policy: &AnyPolicy,
    settings: &Settings,
) -> Result<Tuning, JobError> {
    let target = job::target(device)?;
    let mut search = Search {
        device,
        entry,
        told,
        settings,
        target,
        first: None,
        found: Tuning::default(),
    };
    let named = told.get("variant");
    let variants = entry.variants().into_iter().map(|(name, _)| name);
    let variants = variants.filter(|name| named.is_none_or(|named| named == *name));
    search.stage(variants.map(|variant| Choice {
        variant,
        schedule: None,
    }))?;
    let Some(best) = search.best() else {
        // None of them: the kernel's own words say why.
        return match entry.prepare(told, None, target) {
            Err(error) => Err(error.into()),
            Ok(_) => Ok(search.found),
        };
    };
    let schedules = Schedule::candidates(target.arch, policy).into_iter();
    // How many blocks tickets have can't be said to `heist run`.
    search.stage(
        schedules
            .filter(|one| one.grid.is_none())
            .map(|schedule| Choice {
                schedule: Some(schedule),
                ..best.clone()
            }),
    )?;
    let scheduled = search.found.tried.iter().map(|one| &one.choice);
    if let Some(best) = scheduled
        .clone()
        .find(|one| one.schedule.is_some())
        .cloned()
    {
        let orders = ORDERS
            .iter()
            .filter_map(|text| text.parse::<AnyOrder>().ok());
        search.stage(orders.filter_map(|order| {
            let mut choice = best.clone();
            choice.schedule.as_mut()?.order = order;
            Some(choice)
        }))?;
    }
    Ok(search.found)
}

impl Search<'_> {
    fn best(&self) -> Option<Choice> {
        self.found.tried.first().map(|one| one.choice.clone())
    }

    /// Measures some choices beside the best so far.
    fn stage(&mut self, choices: impl Iterator<Item = Choice>) -> Result<(), JobError> {
        let incumbent = (!self.found.tried.is_empty()).then(|| self.found.tried.remove(0).choice);
        let before = self.found.tried.iter().map(|one| &one.choice);
        let known: Vec<_> = before.chain(&incumbent).map(Choice::arguments).collect();
        let fresh = choices.filter(|choice| !known.contains(&choice.arguments()));
        let mut entered = Vec::new();
        for choice in incumbent.iter().cloned().chain(fresh) {
            match self.enter(&choice) {
                Ok(ready) => entered.push((choice, ready)),
                Err(Failure::Refused { why, wrong }) => {
                    self.found.refused.push(Refused { choice, why, wrong });
                }
                Err(Failure::Broken(error)) => return Err(error),
            }
        }
        let clock = Stopwatch::of(self.device)?;
        let standings = race(clock.effort(), entered.len(), |at| {
            clock.sample(&entered[at].1)
        })?;
        let tried = standings.into_iter().map(|standing| Tried {
            choice: entered[standing.candidate].0.clone(),
            median_ns: standing.median_ns,
            samples: standing.samples,
        });
        // The winner of this stage was measured beside the one before.
        let mut tried: Vec<Tried> = tried.chain(self.found.tried.drain(..)).collect();
        if let Some((_, rest)) = tried.split_first_mut() {
            rest.sort_by(|a, b| a.median_ns.total_cmp(&b.median_ns));
        }
        self.found.tried = tried;
        Ok(())
    }

    /// Makes a candidate and lets it solve the problem once.
    fn enter(&mut self, choice: &Choice) -> Result<Ready, Failure> {
        let mut told = self.told.clone();
        told.set("variant", choice.variant);
        let mut prepared = self
            .entry
            .prepare(&told, choice.schedule.as_ref(), self.target)
            .map_err(Failure::refused)?;
        self.found.work = prepared.job.work;
        let ready = match self.device {
            Device::Sim(_) => self.simulate(&mut prepared)?,
            #[cfg(feature = "gpu")]
            Device::Gpu(gpu) => {
                let on_gpu = OnGpu::new(gpu, &prepared.job)?;
                let stream = gpu.stream().map_err(JobError::Gpu)?;
                on_gpu.launch(&stream).map_err(JobError::Gpu)?;
                stream.synchronize().map_err(JobError::Gpu)?;
                on_gpu.read_back(&mut prepared.job).map_err(JobError::Gpu)?;
                Ready::Gpu(on_gpu)
            }
        };
        self.check(&prepared)?;
        Ok(ready)
    }

    fn simulate(&self, prepared: &mut Prepared) -> Result<Ready, Failure> {
        let steps = match job::run(self.device, &mut prepared.job, self.settings) {
            Ok(steps) => steps,
            Err(JobError::Found(found)) => {
                let first = found.execution.findings.first();
                return Err(Failure::Refused {
                    why: first.map_or_else(|| found.to_string(), |one| one.message.clone()),
                    wrong: true,
                });
            }
            Err(error) => return Err(error.into()),
        };
        let times = steps.iter().map(|step| step.execution.elapsed);
        Ok(Ready::Simulated(Time(
            times.map(|time| time.map_or(0, |time| time.0)).sum(),
        )))
    }

    /// Holds a result against the reference, or the first one.
    fn check(&mut self, prepared: &Prepared) -> Result<(), Failure> {
        let wrong = |why: String| Err(Failure::Refused { why, wrong: true });
        let name = output_of(self.entry.name());
        let Some(result) = prepared.job.data(name) else {
            let error = KernelError::unfit(format!("the job has no buffer {name}"));
            return Err(Failure::Broken(error.into()));
        };
        if let Some((first, bound)) = &self.first {
            let off = distance(first, result);
            if off <= *bound {
                return Ok(());
            }
            return wrong(format!(
                "differs from the first result by {off:.2e} of its norm"
            ));
        }
        if self.found.work.flops <= MOST_FLOPS {
            let difference = (prepared.verify)(&prepared.job).map_err(Failure::refused)?;
            if !difference.within(prepared.bound) {
                return wrong(format!(
                    "{difference}; at most {:.0e} is right",
                    prepared.bound
                ));
            }
            self.found.against_reference = true;
        }
        // Two right results may be on two sides of the reference.
        self.first = Some((result.clone(), 2.0 * prepared.bound));
        Ok(())
    }
}

/// What takes the times of a device's candidates.
enum Stopwatch {
    /// They are modelled already.
    Simulated,
    /// By events on the GPU.
    #[cfg(feature = "gpu")]
    Gpu(heist_gpu::Sampler),
}

impl Stopwatch {
    fn of(device: &Device) -> Result<Stopwatch, JobError> {
        match device {
            Device::Sim(_) => Ok(Stopwatch::Simulated),
            #[cfg(feature = "gpu")]
            Device::Gpu(gpu) => Ok(Stopwatch::Gpu(gpu.sampler()?)),
        }
    }

    fn effort(&self) -> Effort {
        match self {
            Stopwatch::Simulated => Effort::EXACT,
            #[cfg(feature = "gpu")]
            Stopwatch::Gpu(_) => Effort::default(),
        }
    }

    fn sample(&self, ready: &Ready) -> Result<Time, JobError> {
        match (self, ready) {
            #[cfg(feature = "gpu")]
            (Stopwatch::Gpu(sampler), Ready::Gpu(on_gpu)) => {
                Ok(sampler.sample(1, |stream| on_gpu.launch(stream))?)
            }
            #[cfg(feature = "gpu")]
            (Stopwatch::Simulated, Ready::Gpu(_)) => unreachable!("what is on a GPU has a sampler"),
            (_, Ready::Simulated(time)) => Ok(*time),
        }
    }
}

/// Why a choice was not measured.
enum Failure {
    Refused { why: String, wrong: bool },
    Broken(JobError),
}

impl Failure {
    fn refused(error: KernelError) -> Failure {
        Failure::Refused {
            why: error.to_string(),
            wrong: false,
        }
    }
}

impl From<JobError> for Failure {
    fn from(error: JobError) -> Failure {
        Failure::Broken(error)
    }
}
