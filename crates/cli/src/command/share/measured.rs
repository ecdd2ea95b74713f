//! The tables of a real GPU.

use super::Share;
use super::figures::{Figures, Row};
use super::peer::{Absent, PeerRow};
use crate::answer::{BadQuestion, Output, Verdict, question};
use crate::progress::Progress;
use heist::job::{self, OnGpu};
use heist::share::{self, Company, Holder, Seen, Tail, Tenant};
use heist_gpu::Gpu;
use heist_kernels::Target;
use heist_kernels::catalogue::Prepared;
use heist_kernels::reference::Difference;
use heist_launch::Buffer;
use heist_run::Device;
use heist_sched::Bell;
use std::sync::Arc;
use std::time::Duration;

/// Launches of an interactive kernel for each figure.
const SAMPLES: u32 = 400;
/// Samples of a batch alone, and with multiprocessors held.
const ALONE: usize = 30;
const HELD: usize = 15;
/// How long the GPU is at work before it is measured.
const WARM_UP: Duration = Duration::from_millis(2500);
/// Elements of a part of a result that is compared by its norm.
const PART: usize = 1 << 16;
/// In how many turns.
const TURNS: usize = 5;

impl Share {
    pub(super) fn measured(&self, out: Output) -> Result<Verdict, BadQuestion> {
        self.can_draw()?;
        const REAL: &str = "`--device sim:h200` models the same tables on any machine";
        let device = Device::open(self.device)
            .map_err(|error| question(format!("{error}\n  help: {REAL}")))?;
        let Device::Gpu(gpu) = &device else {
            return Err(question(format!("{} is no real GPU", device.label())));
        };
        let target = job::target(&device).map_err(question)?;
        let (tenants, interactives) = (self.tenants(target)?, self.interactives(target)?);
        self.holds(target)?;
        let batches = share::move_in(gpu, target, &tenants).map_err(question)?;
        let different = differing(gpu, &tenants, &batches)?;
        if let Some([row, first]) = different {
            eprintln!(
                "heist: WRONG: the result under `{row}` differs from the one under `{first}`"
            );
            return Ok(Verdict::Found);
        }
        let small = share::move_in(gpu, target, &interactives).map_err(question)?;
        let small: Vec<&OnGpu> = small.iter().map(|(_, on)| on).collect();
        let idle = share::alone(gpu, &small, 50, 1).map_err(question)?;
        let idle = idle.into_iter().map(Tail::median).collect();
        let mut peer = match self.no_peers {
            true => None,
            false => Some(self.peer(target)?),
        };
        let figures = TURNS * (tenants.len() * small.len() + 1 + self.held(target).len());
        let progress = Progress::new(out, "figures", figures);
        let rows = self.measure(
            gpu, target, &tenants, &batches, &small, &mut peer, &progress,
        )?;
        drop(progress);
        self.draw((&tenants, &rows), &interactives, |batch, interactive| {
            share::pair(gpu, target, batch, interactive)
        })?;
        let figures = Figures {
            question: self,
            device: device.label(),
            clock: device.clock(),
            target,
            rows,
            idle,
            peer: peer.map(|peer| peer.map(PeerRow::figures)),
            timeline: self.trace.as_deref(),
        };
        figures.answer(out);
        Ok(Verdict::Clean)
    }

    /// All rows in turns, the peer's among them: a GPU that gets warmer does so under all.
    #[expect(clippy::too_many_arguments, reason = "all that a table is made of")]
    fn measure(
        &self,
        gpu: &Gpu,
        target: Target,
        tenants: &[Tenant],
        batches: &[(Prepared, OnGpu)],
        small: &[&OnGpu],
        peer: &mut Option<Result<PeerRow, Absent>>,
        progress: &Progress,
    ) -> Result<Vec<Row>, BadQuestion> {
        let all: Vec<&OnGpu> = batches.iter().map(|(_, on)| on).collect();
        let mut alone = vec![Vec::new(); tenants.len()];
        share::warm_up(gpu, &all, WARM_UP).map_err(question)?;
        for _ in 0..TURNS {
            let rounds = ALONE / TURNS;
            add(
                &mut alone,
                share::alone(gpu, &all, rounds, 4).map_err(question)?,
            );
            ask(peer, |peer| peer.alone(rounds));
            progress.step("alone");
        }
        let alone: Vec<f64> = alone.into_iter().map(Tail::median).collect();
        let company = Company {
            samples: (self.samples.unwrap_or(SAMPLES) as usize).div_ceil(TURNS),
            ..Company::default()
        };
        let mut seen = vec![vec![Seen::default(); small.len()]; tenants.len()];
        for turn in 0..TURNS {
            for at in 0..tenants.len() {
                let row = (at + turn) % tenants.len();
                let (batch, ring) = ((all[row], alone[row]), tenants[row].listens());
                for (interactive, seen) in small.iter().zip(&mut seen[row]) {
                    let now = share::beside(gpu, batch, interactive, company, ring);
                    seen.extend(now.map_err(question)?);
                    progress.step(&tenants[row].name);
                }
            }
            for interactive in 0..small.len() {
                ask(peer, |peer| peer.beside(interactive, company));
            }
        }
        let holder = Holder::new(gpu, target.arch).map_err(question)?;
        let columns = self.held(target);
        let mut samples = vec![vec![Vec::new(); tenants.len()]; columns.len()];
        // These in turns too: what is ideal with some held is reckoned from the first column.
        for _ in 0..TURNS {
            for (column, sms) in columns.iter().enumerate() {
                let rounds = HELD / TURNS;
                add(
                    &mut samples[column],
                    holder.time(*sms, &all, rounds).map_err(question)?,
                );
                ask(peer, |peer| peer.held(column, *sms, rounds));
                progress.step(&format!("{sms} multiprocessors held"));
            }
        }
        let mut held = vec![Vec::new(); tenants.len()];
        for samples in samples {
            for (held, samples) in held.iter_mut().zip(samples) {
                held.push(Tail::median(samples));
            }
        }
        let figures = alone.into_iter().zip(&seen).zip(held);
        let rows = tenants.iter().zip(figures);
        Ok(rows
            .map(|(tenant, ((alone, seen), held))| Row {
                name: tenant.name.clone(),
                alone,
                beside: seen.iter().map(Seen::in_short).collect(),
                held,
                stands_for: Vec::new(),
            })
            .collect())
    }
}

/// Adds each tenant's samples to those of turns before.
fn add(all: &mut [Vec<f64>], turn: Vec<Vec<f64>>) {
    for (all, turn) in all.iter_mut().zip(turn) {
        all.extend(turn);
    }
}

/// The peer's turn. One that fails has no figures at all.
fn ask(
    peer: &mut Option<Result<PeerRow, Absent>>,
    turn: impl FnOnce(&mut PeerRow) -> Result<(), Absent>,
) {
    if let Some(Ok(row)) = peer
        && let Err(why) = turn(row)
    {
        *peer = Some(Err(why));
    }
}

/// What a row's first run left, and what made it.
struct First<'t> {
    name: &'t str,
    /// The tiles, and how many multiprocessors are left free: sums of the same are added in the same order.
    plan: (String, u32),
    results: Vec<Buffer>,
}

/// The first schedule whose result is not that of the first one, over outputs that were poisoned before, and that one: bit for bit where tiles are
/// the same and are cut the same way, which depends on how many multiprocessors there are, and else within what their arithmetic may differ by. One that
/// listens runs again with its bell rung all the time, for all of its blocks and for some.
fn differing(
    gpu: &Gpu,
    tenants: &[Tenant],
    batches: &[(Prepared, OnGpu)],
) -> Result<Option<[String; 2]>, BadQuestion> {
    let stream = gpu.stream().map_err(question)?;
    let mut firsts: Vec<First<'_>> = Vec::new();
    for (tenant, (prepared, on)) in tenants.iter().zip(batches) {
        let outputs = || {
            let results = prepared.job.results();
            results.filter_map(|buffer| Some((buffer.data.ty(), on.memory(&buffer.name)?)))
        };
        let plan = (prepared.job.name.clone(), tenant.spare);
        let bells: &[Bell] = match tenant.listens() {
            true => &[Bell::Silent, Bell::All, Bell::For(16), Bell::Once(16)],
            false => &[Bell::Silent],
        };
        for bell in bells {
            for (_, memory) in outputs() {
                memory.fill(0xff, &stream).map_err(question)?;
            }
            on.ring(*bell).map_err(question)?;
            on.launch(&stream).map_err(question)?;
            stream.synchronize().map_err(question)?;
            on.ring(Bell::Silent).map_err(question)?;
            let mut results = Vec::new();
            for (ty, memory) in outputs() {
                let mut bytes = vec![0; memory.len()];
                memory.read(0, &mut bytes).map_err(question)?;
                results.extend(Buffer::from_shared(ty, Arc::new(bytes)));
            }
            if let Some(first) = other_than(&firsts, &plan, &results, prepared.bound) {
                let row = match bell {
                    Bell::Silent => tenant.name.clone(),
                    rung => format!("{}, with its bell rung ({rung:?})", tenant.name),
                };
                return Ok(Some([row, first.to_owned()]));
            }
            if firsts.iter().all(|first| first.plan != plan) {
                firsts.push(First {
                    name: &tenant.name,
                    plan: plan.clone(),
                    results,
                });
            }
        }
    }
    Ok(None)
}

/// The row that results differ from: the first of the same plan, in any bit, or the first of all, by more than `bound` of the norm in some part.
fn other_than<'t>(
    firsts: &[First<'t>],
    plan: &(String, u32),
    results: &[Buffer],
    bound: f64,
) -> Option<&'t str> {
    let same = firsts.iter().find(|first| first.plan == *plan);
    let first = same.or(firsts.first())?;
    let pairs = || first.results.iter().zip(results);
    let alike = pairs().all(|(first, now)| first.bytes() == now.bytes());
    let near = || pairs().all(|(first, now)| is_near(first, now, bound));
    let right = first.results.len() == results.len() && (alike || same.is_none() && near());
    (!right).then_some(first.name)
}

/// Whether every part of a result is within `bound` of the norm of the same part of another.
fn is_near(first: &Buffer, now: &Buffer, bound: f64) -> bool {
    let ty = first.ty();
    let parts = [first, now].map(|buffer| buffer.bytes().chunks(PART * ty.bytes()));
    let values = |bytes: &[u8]| -> Vec<f64> {
        let words = bytes.chunks(ty.bytes()).map(|word| {
            let bits = word
                .iter()
                .rev()
                .fold(0, |bits, byte| bits << 8 | u64::from(*byte));
            ty.to_f64(bits)
        });
        words.collect()
    };
    let [first_parts, parts] = parts;
    let near = |(one, other)| Difference::between(&values(other), &values(one)).within(bound);
    first.bytes().len() == now.bytes().len() && first_parts.zip(parts).all(near)
}

#[cfg(test)]
mod tests {
    use super::*;
    use heist_launch::ElementType;

    #[test]
    fn results_of_other_tiles_may_differ_by_their_rounding() {
        let ty = ElementType::Bf16;
        let whole = Buffer::random(ty, 7, 3 * PART);
        let changed = |at: usize, by: u8| {
            let mut other = whole.clone();
            other.bytes_mut()[2 * at] ^= by;
            vec![other]
        };
        let mut poisoned = whole.clone();
        poisoned.bytes_mut()[2 * PART..2 * PART + 512].fill(0xff);
        let (whole, poisoned) = (vec![whole.clone()], vec![poisoned]);
        let plan = |name: &str, spare| (name.to_owned(), spare);
        let firsts = [First {
            name: "own",
            plan: plan("128x192", 0),
            results: whole.clone(),
        }];
        for (plan, results, right) in [
            (plan("128x192", 0), &whole, true),
            (plan("128x192", 0), &changed(5, 1), false),
            (plan("128x256/tail", 0), &changed(5, 1), true),
            (plan("128x192", 4), &changed(5, 1), true),
            (plan("128x256/tail", 0), &poisoned, false),
            (plan("128x256/tail", 0), &Vec::new(), false),
        ] {
            let other = other_than(&firsts, &plan, results, 2e-3);
            assert_eq!(other, (!right).then_some("own"), "{plan:?}");
        }
        // Nobody was before it.
        assert_eq!(other_than(&[], &plan("128x192", 0), &poisoned, 2e-3), None);
    }
}
