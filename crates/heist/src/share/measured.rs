//! Two tenants of a real GPU, timed by events.

use super::{COMES, Company, Pair, Seen, Tenant, in_one_clock};
use crate::job::{JobError, OnGpu};
use heist_gpu::{Event, Gpu, GpuError};
use heist_kernels::Target;
use heist_kernels::catalogue;
use heist_launch::{Clock, Time, Trace};
use heist_sched::{Bell, ReportError, Schedule, TileSource, TraceDevice, Watch};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

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

/// Microseconds between two events that have happened.
fn microseconds(from: &Event, to: &Event) -> Result<f64, GpuError> {
    Ok(to.since(from)?.ns() / 1e3)
}

/// Each tenant alone, in turns, `burst` launches back to back a sample: for each its
/// samples, microseconds of one launch.
///
/// # Errors
/// A fault of a launch.
pub fn alone(
    gpu: &Gpu,
    tenants: &[&OnGpu],
    rounds: usize,
    burst: u32,
) -> Result<Vec<Vec<f64>>, GpuError> {
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
    Ok(samples)
}

/// Tenants in turns, back to back for a time: a GPU under load reaches its power limit after a second,
/// and lowers its clock below where it settles. What is measured in that moment is slower than the rest.
///
/// # Errors
/// A fault of a launch.
pub fn warm_up(gpu: &Gpu, tenants: &[&OnGpu], time: Duration) -> Result<(), GpuError> {
    let stream = gpu.untracked_stream()?;
    let begin = Instant::now();
    while begin.elapsed() < time {
        for tenant in tenants {
            (0..4).try_for_each(|_| tenant.launch(&stream))?;
        }
        stream.synchronize()?;
    }
    Ok(())
}

/// The batch back to back on a stream of low priority, the interactive kernel now
/// and then on one of high priority, a period apart in the mean. With `ring` the batch's bell is rung
/// together with each launch of the interactive kernel ([`OnGpu::visits`]), for as many blocks as that has, and silenced after its end, by
/// a write in the order of its stream.
///
/// # Errors
/// A fault of a launch.
pub fn beside(
    gpu: &Gpu,
    batch: (&OnGpu, f64),
    interactive: &OnGpu,
    company: Company,
    ring: bool,
) -> Result<Seen, GpuError> {
    let (batch, alone_us) = batch;
    let low = gpu.untracked_stream_with_priority(0)?;
    let high = gpu.untracked_stream_with_priority(-5)?;
    let depth = (company.queued.as_micros() as f64 / alone_us).ceil() as usize + 1;
    let mut queue: VecDeque<Event> = VecDeque::new();
    let mut spare: Vec<Event> = Vec::new();
    let (start, end) = (gpu.event()?, gpu.event()?);
    let visits = match ring {
        true => Some(batch.visits(&high, interactive)?),
        false => None,
    };
    let come = || match &visits {
        Some(visits) => visits.launch(&high),
        None => interactive.launch(&high),
    };
    // The launch whose end the batch is watched from, the last one that ended since, and how many did.
    let (mut first, mut last, mut ended) = (None::<Event>, None::<Event>, 0usize);
    let mut top_up = |watched: bool| -> Result<(), GpuError> {
        while queue.front().map(Event::has_happened).transpose()? == Some(true) {
            let end = queue.pop_front();
            match (watched, &first) {
                (false, _) => spare.extend(end),
                (true, None) => first = end,
                (true, Some(_)) => {
                    ended += 1;
                    spare.extend(std::mem::replace(&mut last, end));
                }
            }
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
    // A stream's first launch takes its time, and the batch's in that moment: some 200 us.
    interactive.launch(&high)?;
    high.synchronize()?;
    let warm = Instant::now();
    while warm.elapsed() < Duration::from_millis(60) {
        top_up(false)?;
    }
    let mut samples = Vec::with_capacity(company.samples);
    let mut next = Instant::now();
    // The first visit is not counted: a stream's first ring takes its time as its first launch does.
    for visit in 0..=company.samples {
        while Instant::now() < next {
            top_up(true)?;
        }
        next = Instant::now() + company.after(visit);
        start.record(&high)?;
        come()?;
        end.record(&high)?;
        if visits.is_some() {
            batch.ring_in(&high, Bell::Silent)?;
        }
        end.synchronize()?;
        if visit > 0 {
            samples.push(microseconds(&start, &end)?);
        }
    }
    top_up(true)?;
    low.synchronize()?;
    let watched = match (&first, &last) {
        (Some(first), Some(last)) => microseconds(first, last)?,
        _ => 0.0,
    };
    Ok(Seen {
        samples,
        watched,
        ended,
    })
}

/// One launch of the batch, and one of the interactive kernel in the midst of it, both traced.
/// `alone` is what the batch takes with nobody beside it, in microseconds.
///
/// # Errors
/// A fault of a launch.
pub fn pair(
    gpu: &Gpu,
    target: Target,
    (batch, alone): (&Tenant, f64),
    interactive: &Tenant,
) -> Result<Pair, JobError> {
    let listens = batch.listens();
    let both = [traced(batch, target)?, traced(interactive, target)?];
    let both = move_in(gpu, target, &both)?;
    let [batch, interactive] = [&both[0].1, &both[1].1];
    let low = gpu.untracked_stream_with_priority(0)?;
    let high = gpu.untracked_stream_with_priority(-5)?;
    let visits = match listens {
        true => Some(batch.visits(&high, interactive)?),
        false => None,
    };
    interactive.launch(&high)?;
    for _ in 0..3 {
        batch.launch(&low)?;
        batch.forget(gpu)?;
    }
    interactive.forget(gpu)?;
    batch.launch(&low)?;
    let began = Instant::now();
    let comes = Duration::from_nanos((alone * COMES * 1e3) as u64);
    while began.elapsed() < comes {
        std::hint::spin_loop();
    }
    match &visits {
        Some(visits) => {
            visits.launch(&high)?;
            batch.ring_in(&high, Bell::Silent)?;
        }
        None => interactive.launch(&high)?,
    }
    let place = TraceDevice {
        device: gpu.info().name.clone(),
        sms: target.sms,
        clock: Clock::Measured,
    };
    let [batch, interactive] = [batch.reports(&place)?, interactive.reports(&place)?];
    let all = batch.iter().chain(&interactive);
    let begin = all.filter_map(|report| report.began_ns).min();
    let begin = begin.unwrap_or_default();
    let whole = |reports: Vec<heist_sched::LaunchReport>| -> Result<Trace, JobError> {
        let traces = reports.into_iter().filter_map(|report| {
            let since = Time::from_ns(report.began_ns? - begin);
            Some((since, report.trace?))
        });
        in_one_clock(traces).ok_or(ReportError::Missing.into())
    };
    Ok(Pair {
        batch: whole(batch)?,
        interactive: whole(interactive)?,
    })
}

/// The same tenant with every tile recorded.
fn traced(tenant: &Tenant, target: Target) -> Result<Tenant, JobError> {
    let own = catalogue::entry(tenant.kernel)?.schedule(&tenant.told, target.leaving(tenant.spare));
    let schedule = tenant.schedule.clone().or(own?);
    let schedule = schedule.unwrap_or(Schedule::new(TileSource::Direct));
    Ok(Tenant {
        schedule: Some(schedule.watch(Watch::Trace)),
        ..tenant.clone()
    })
}
