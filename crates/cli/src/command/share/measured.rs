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
use heist_run::Device;
use heist_sched::Bell;
use std::collections::BTreeMap;
use std::time::Duration;

/// Launches of an interactive kernel for each figure.
const SAMPLES: u32 = 400;
/// Samples of a batch alone, and with multiprocessors held.
const ALONE: usize = 30;
const HELD: usize = 15;
/// How long the GPU is at work before it is measured.
const WARM_UP: Duration = Duration::from_millis(2500);
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
        let mut held = vec![Vec::new(); tenants.len()];
        for (column, sms) in self.held(target).into_iter().enumerate() {
            let mut samples = vec![Vec::new(); tenants.len()];
            for _ in 0..TURNS {
                let rounds = HELD / TURNS;
                add(
                    &mut samples,
                    holder.time(sms, &all, rounds).map_err(question)?,
                );
                ask(peer, |peer| peer.held(column, sms, rounds));
                progress.step(&format!("{sms} multiprocessors held"));
            }
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

/// The first schedule whose result is not bit for bit that of the first that leaves as many multiprocessors free, over outputs
/// that were poisoned before, and that one: how the last tiles are cut depends on how many there are. One that listens runs again with its bell rung all the time, for all of its
/// blocks and for some.
fn differing(
    gpu: &Gpu,
    tenants: &[Tenant],
    batches: &[(Prepared, OnGpu)],
) -> Result<Option<[String; 2]>, BadQuestion> {
    let stream = gpu.stream().map_err(question)?;
    let mut firsts: BTreeMap<u32, (&str, Vec<Vec<u8>>)> = BTreeMap::new();
    for (tenant, (prepared, on)) in tenants.iter().zip(batches) {
        let outputs = || {
            let results = prepared.job.results();
            results.filter_map(|buffer| on.memory(&buffer.name))
        };
        let bells: &[Bell] = match tenant.listens() {
            true => &[Bell::Silent, Bell::All, Bell::For(16), Bell::Once(16)],
            false => &[Bell::Silent],
        };
        for bell in bells {
            for memory in outputs() {
                memory.fill(0xff, &stream).map_err(question)?;
            }
            on.ring(*bell).map_err(question)?;
            on.launch(&stream).map_err(question)?;
            stream.synchronize().map_err(question)?;
            on.ring(Bell::Silent).map_err(question)?;
            let mut results = Vec::new();
            for memory in outputs() {
                let mut bytes = vec![0; memory.len()];
                memory.read(0, &mut bytes).map_err(question)?;
                results.push(bytes);
            }
            let (name, first) = firsts
                .entry(tenant.spare)
                .or_insert_with(|| (&tenant.name, results.clone()));
            if *first != results {
                let row = match bell {
                    Bell::Silent => tenant.name.clone(),
                    rung => format!("{}, with its bell rung ({rung:?})", tenant.name),
                };
                return Ok(Some([row, (*name).to_owned()]));
            }
        }
    }
    Ok(None)
}
