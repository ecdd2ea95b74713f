//! Two tenants of one GPU: what a kernel costs the others, and what the others
//! cost it.
//!
//! A running block is never stopped, so a kernel that keeps its blocks keeps the GPU. Two
//! questions, measured on a real GPU: how long an interactive kernel waits beside a batch that runs
//! back to back ([`beside`]), and how long a kernel takes while another kernel holds some of the
//! multiprocessors ([`Holder`]).

mod held;

pub use held::{Holder, holder_ptx};

use crate::job::{JobError, OnGpu};
use heist_gpu::{Event, Gpu, GpuError};
use heist_kernels::catalogue::{self, Settings};
use heist_kernels::{KernelError, Target};
use heist_sched::Schedule;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

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

/// Tenants are prepared on the host side by side, then put on the GPU.
///
/// # Errors
/// The first that could not be.
pub fn move_in(
    gpu: &Gpu,
    target: Target,
    tenants: &[Tenant],
) -> Result<Vec<(catalogue::Prepared, OnGpu)>, JobError> {
    let prepared: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = tenants
            .iter()
            .map(|tenant| scope.spawn(move || tenant.prepare(target)))
            .collect();
        let joined = threads.into_iter().map(std::thread::ScopedJoinHandle::join);
        joined
            .map(|result| match result {
                Ok(prepared) => prepared,
                Err(panic) => std::panic::resume_unwind(panic),
            })
            .collect()
    });
    let mut all = Vec::new();
    for one in prepared {
        let one = one?;
        let on = OnGpu::new(gpu, &one.job)?;
        all.push((one, on));
    }
    Ok(all)
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
}

/// Microseconds between two events that have happened.
fn microseconds(from: &Event, to: &Event) -> Result<f64, GpuError> {
    Ok(to.since(from)?.ns() / 1e3)
}

/// Each tenant alone, in turns, `burst` launches back to back a sample: the
/// median microseconds of one launch.
///
/// # Errors
/// A fault of a launch.
pub fn alone(
    gpu: &Gpu,
    tenants: &[&OnGpu],
    rounds: usize,
    burst: u32,
) -> Result<Vec<f64>, GpuError> {
    let stream = gpu.untracked_stream()?;
    let (start, end) = (gpu.event()?, gpu.event()?);
    let mut samples = vec![Vec::new(); tenants.len()];
    // The first round warms up the clocks.
    for round in 0..=rounds {
        for turn in 0..tenants.len() {
            let at = (round + turn) % tenants.len();
            start.record(&stream)?;
            for _ in 0..burst {
                tenants[at].launch(&stream)?;
            }
            end.record(&stream)?;
            end.synchronize()?;
            if round > 0 {
                samples[at].push(microseconds(&start, &end)? / f64::from(burst));
            }
        }
    }
    let medians = samples
        .into_iter()
        .map(|times| Tail::of(times).map_or(f64::NAN, |tail| tail.p50));
    Ok(medians.collect())
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
    /// From one to the next.
    pub period: Duration,
    /// How much of the batch is in its stream at any time, at least.
    pub queued: Duration,
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

/// The batch back to back on a stream of low priority, the interactive kernel now
/// and then on one of high priority. With `ring` the batch's bell is rung just before
/// each launch of the interactive kernel, and silenced after its end, by writes in the
/// order of its stream.
///
/// # Errors
/// A fault of a launch.
pub fn beside(
    gpu: &Gpu,
    batch: (&OnGpu, f64),
    interactive: &OnGpu,
    company: Company,
    ring: bool,
) -> Result<Beside, GpuError> {
    let (batch, alone_us) = batch;
    let low = gpu.untracked_stream_with_priority(0)?;
    let high = gpu.untracked_stream_with_priority(-5)?;
    let depth = (company.queued.as_micros() as f64 / alone_us).ceil() as usize + 1;
    let mut queue: VecDeque<Event> = VecDeque::new();
    let mut spare: Vec<Event> = Vec::new();
    let (start, end) = (gpu.event()?, gpu.event()?);
    let mut ended = 0usize;
    let mut top_up = |ended: &mut usize| -> Result<(), GpuError> {
        while let Some(front) = queue.front() {
            if !front.has_happened()? {
                break;
            }
            *ended += 1;
            spare.extend(queue.pop_front());
        }
        while queue.len() < depth {
            batch.launch(&low)?;
            let event = match spare.pop() {
                Some(event) => event,
                None => gpu.event()?,
            };
            event.record(&low)?;
            queue.push_back(event);
        }
        Ok(())
    };
    let warm = Instant::now();
    while warm.elapsed() < Duration::from_millis(60) {
        top_up(&mut ended)?;
    }
    let (began, before) = (Instant::now(), ended);
    let mut samples = Vec::with_capacity(company.samples);
    let mut next = Instant::now();
    for _ in 0..company.samples {
        while Instant::now() < next {
            top_up(&mut ended)?;
        }
        next = Instant::now() + company.period;
        start.record(&high)?;
        if ring {
            batch.ring_in(&high, true)?;
        }
        interactive.launch(&high)?;
        end.record(&high)?;
        if ring {
            batch.ring_in(&high, false)?;
        }
        end.synchronize()?;
        samples.push(microseconds(&start, &end)?);
    }
    top_up(&mut ended)?;
    let batch = began.elapsed().as_secs_f64() * 1e6 / (ended - before).max(1) as f64;
    low.synchronize()?;
    Ok(Beside {
        interactive: Tail::of(samples).unwrap_or(Tail {
            p50: f64::NAN,
            p99: f64::NAN,
        }),
        batch,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tail_is_the_nearest_sample() {
        let tail = Tail::of((1..=200).map(f64::from)).unwrap();
        assert_eq!((tail.p50, tail.p99), (100.0, 198.0));
        let one = Tail::of([7.0]).unwrap();
        assert_eq!((one.p50, one.p99), (7.0, 7.0));
        assert_eq!(Tail::of([]), None);
    }
}
