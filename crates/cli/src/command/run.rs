//! `heist run`: one workload or kernel under one schedule, on a device of your choice.

use super::kernel;
use super::launch::seconds;
use super::schedule::{order, pausable, usual_policy, usual_source};
use crate::answer::{self, BadQuestion, Output, Verdict, question, tell_all};
use crate::file;
use crate::progress::Waiting;
use crate::render;
use crate::timeline::{draw, drawable, stop, stopped};
use clap::Args;
use heist::swap::{Swaps, Turns};
use heist::tiled::TiledError;
use heist::workload::{self, WorkloadRun};
use heist_kernels::catalogue::{self, Entry, Settings as Told};
use heist_kernels::synthetic::{Parameters, Synthetic, Workload, build};
use heist_launch::{Dim3, TileSpan};
use heist_run::{Device, DeviceName, Settings};
use heist_sched::{
    AnyOrder, AnyPolicy, Class, Classes, Effort, Loaded, Schedule, SourceError, Table, TileSource,
    Tuner,
};
use heist_tune::Candidate;
use heist_view::Run as Named;
use serde_json::json;
use std::path::PathBuf;
use std::time::Duration;

/// Run a workload or a kernel under a policy, check its result, and draw what happened.
#[derive(Args)]
#[command(after_help = "\
Kernels: `heist kernels` lists them with their parameters; without a schedule they take the one
that suits them.
Workloads: uniform, sequence-lengths, dynamic-batching, sparse-attention, power-law,
mixture-of-experts, video-frames, clustered-heavy, data-dependent.

Examples:
  heist run power-law                                     greedy, on the simulated B200
  heist run power-law --policy 'max-steals(4) & first-half' --trace run.html
  heist run sequence-lengths --source ticket --device sim:h200 --submit late --prologue 200
  heist run power-law --policy greedy --swap 'max-steals(2)' --swap never --swap-every 20us
  heist run power-law --classes 10,60,30 --source ticket --device sim:h200
  heist run video-frames --source auto --device gpu --tuned tuned.json
  heist run uniform --source static --device gpu --tiles 16384 --mean 4000
  heist run gemm m=300 n=200 k=100 layout=tn dtype=f16
  heist run attention queries=512 mask=causal variant=persistent --device gpu
  heist run gemm m=256 n=512 k=4096 --pausing --device sim:h200

Exit status: 0 every tile ran exactly once and every element is right, 1 not so, 2 it could
not be run.")]
pub(crate) struct Run {
    /// The workload or kernel.
    #[arg(value_name = "WORKLOAD")]
    name: String,
    /// Settings of the kernel, such as m=512.
    #[arg(value_name = "NAME=VALUE")]
    told: Vec<String>,
    /// When a block asks for more: see `heist policies`; greedy unless given.
    #[arg(long, value_name = "EXPR")]
    policy: Option<String>,
    /// Load the policy as data, in place of building it in: the kernel interprets it, and it
    /// can be exchanged while the kernel runs.
    #[arg(long)]
    loaded: bool,
    /// A policy that the loaded one is exchanged for while the workload runs; several take
    /// turns until it ends.
    #[arg(long, value_name = "EXPR")]
    swap: Vec<String>,
    /// How long a policy stays before the next `--swap`.
    #[arg(long, value_name = "TIME", default_value = "100us", value_parser = microseconds)]
    swap_every: Duration,
    /// Where tiles come from: clc, ticket, static, direct; or auto, which measures them all
    /// (early and late, the policy and greedy) and takes the fastest. A guess unless given.
    #[arg(long)]
    source: Option<String>,
    /// A file in which `--source auto` remembers what it measured.
    #[arg(long, value_name = "FILE")]
    tuned: Option<PathBuf>,
    /// In which order tiles are handed out: linear, reversed, grouped(4), hilbert, longest-first.
    #[arg(long)]
    order: Option<String>,
    /// Tiles of three classes: how many in a hundred are urgent, normal and background, such as
    /// 10,60,30. The urgent ones are handed out first; the others have a share.
    #[arg(long, value_name = "U,N,B", value_parser = hundredths)]
    classes: Option<[u32; 3]>,
    /// When a request is submitted: early or late.
    #[arg(long)]
    submit: Option<String>,
    /// How many requests of launch control may be in flight, for the source clc.
    #[arg(long, value_name = "N")]
    in_flight: Option<u32>,
    /// Blocks of a cluster, such as 1x2.
    #[arg(long)]
    cluster: Option<Dim3>,
    /// Leave a tile half done when the launch's bell is rung; another block goes on with it later.
    /// With tickets, late submission and until-asked, unless a flag says otherwise. For kernels
    /// that can.
    #[arg(long)]
    pausing: bool,
    /// A kernel's tiles and schedule, as `heist tune` names them: 'rows=128 cols=256 depth=64 stages=4'.
    #[arg(long, value_name = "WORDS", conflicts_with_all = ["policy", "source", "order", "submit", "in_flight", "cluster", "pausing"])]
    candidate: Option<Candidate>,
    /// sim:b200, sim:h200, sim:l4, ... or gpu.
    #[arg(long, default_value = "sim:b200")]
    device: DeviceName,
    /// How many tiles a workload has [default: 2000].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    tiles: Option<u32>,
    /// The mean number of steps of a tile [default: 100].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    mean: Option<u32>,
    /// How many times the heaviest tile outweighs the lightest, about [default: 8].
    #[arg(long, value_name = "TIMES", value_parser = times)]
    imbalance: Option<f64>,
    /// Steps of the prologue, once a block [default: 0].
    #[arg(long, value_name = "N")]
    prologue: Option<u32>,
    /// Bytes of shared memory that a block holds: 150000 leaves one block a multiprocessor
    /// [default: 0].
    #[arg(long, value_name = "BYTES")]
    shared: Option<u32>,
    /// Fixes the workload and the simulated schedule.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Let the simulator refuse requests, delay and reorder.
    #[arg(long)]
    chaos: bool,
    /// How long a simulation, or a kernel on a GPU, may take.
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = seconds)]
    timeout: Duration,
    /// Do not check the result.
    #[arg(long)]
    no_verify: bool,
    /// Write the timeline: .html, .svg, or .json (for Perfetto).
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
}

/// Three parts of a hundred.
fn hundredths(text: &str) -> Result<[u32; 3], String> {
    let parts: Vec<u32> = text
        .split(',')
        .map(|part| part.trim().parse().ok())
        .collect::<Option<_>>()
        .unwrap_or_default();
    match parts[..] {
        [u, n, b] if u <= 100 && n <= 100 && b <= 100 && u + n + b == 100 => Ok([u, n, b]),
        _ => Err("it is three numbers that are 100 in all, such as 10,60,30".to_owned()),
    }
}

/// A time such as `50us`.
fn microseconds(text: &str) -> Result<Duration, String> {
    let units = [("us", 1.0), ("ms", 1e3), ("s", 1e6)];
    let parsed = units.into_iter().find_map(|(unit, scale)| {
        let number: f64 = text.strip_suffix(unit)?.trim().parse().ok()?;
        (number > 0.0 && number < 1e9).then(|| Duration::from_secs_f64(number * scale / 1e6))
    });
    parsed.ok_or_else(|| "it is a time such as 50us, 2ms or 1s".to_owned())
}

fn times(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(times) if (1.0..1e9).contains(&times) => Ok(times),
        _ => Err("it is a number from 1 to a billion".to_owned()),
    }
}

/// The reason why a workload did not run, as an error of the command.
pub(super) fn not_run(error: TiledError) -> BadQuestion {
    match error {
        TiledError::NotRun(why) => answer::not_run(why),
        other => question(other),
    }
}

impl Run {
    fn schedule(
        &self,
        synthetic: &Synthetic,
        device: &Device,
        settings: &Settings,
    ) -> Result<Schedule, BadQuestion> {
        if self.pausing {
            return Err(question(
                "--pausing is for kernels: the tiles of a workload can't be left half done",
            ));
        }
        let policy = self.policy()?;
        let arch = device.arch().map_err(question)?;
        if self.source.as_deref() == Some("auto") {
            if self.submit.is_some() {
                return Err(question(
                    "--source auto measures early and late submission; leave --submit out",
                ));
            }
            if self.in_flight.is_some() {
                return Err(question(
                    "--in-flight is for the source clc; name it in place of auto",
                ));
            }
            return self.fastest(synthetic, device, settings, &policy);
        }
        let source = match &self.source {
            Some(text) => text.parse().map_err(|error| match error {
                SourceError::Unknown { .. } => {
                    question(format!("{error}, and auto, which takes the fastest"))
                }
                other => question(other),
            })?,
            None => TileSource::auto(arch, &policy, true).source,
        };
        source.check(arch, self.cluster()).map_err(question)?;
        let submit = self.submit.as_deref().unwrap_or("early");
        let mut schedule = Schedule::new(source)
            .policy(policy)
            .submit(submit.parse().map_err(question)?);
        self.place(&mut schedule, synthetic)?;
        Ok(schedule)
    }

    fn settings(&self) -> Settings {
        Settings {
            seed: self.seed,
            chaos: self.chaos,
            limit: self.timeout,
            ..Settings::default()
        }
    }

    fn policy(&self) -> Result<AnyPolicy, BadQuestion> {
        let text = self.policy.as_deref();
        let text = text.unwrap_or(usual_policy(self.pausing));
        let policy = text.parse().map_err(question)?;
        if !self.loaded && self.swap.is_empty() {
            return Ok(policy);
        }
        let loaded = Loaded::new(&policy).map_err(question)?;
        Ok(AnyPolicy::new(loaded))
    }

    /// What the policy is exchanged for.
    fn turns(&self) -> Result<Turns, BadQuestion> {
        let words = |text: &String| {
            let policy: AnyPolicy = text.parse().map_err(question)?;
            let loaded = Loaded::new(&policy).map_err(question)?;
            Ok(loaded.words().clone())
        };
        Ok(Turns {
            policies: self.swap.iter().map(words).collect::<Result<_, _>>()?,
            every: self.swap_every,
        })
    }

    fn cluster(&self) -> Dim3 {
        self.cluster.unwrap_or(Dim3::new(1, 1, 1))
    }

    /// The schedule of a kernel, which has one of its own unless a flag asks for another.
    fn asked(&self, device: &Device) -> Result<Option<Schedule>, BadQuestion> {
        let flags = [&self.policy, &self.source, &self.order, &self.submit];
        if flags.iter().all(|flag| flag.is_none())
            && self.cluster.is_none()
            && self.in_flight.is_none()
            && !self.loaded
            && !self.pausing
        {
            return Ok(None);
        }
        let arch = device.arch().map_err(question)?;
        let policy = self.policy()?;
        let source = match self.source.as_deref() {
            Some("auto") => {
                return Err(question(
                    "--source auto measures workloads; leave it out and a kernel takes the schedule \
                     that suits it",
                ));
            }
            Some(text) => text.parse().map_err(question)?,
            None => usual_source(self.pausing, arch, &policy),
        };
        source.check(arch, self.cluster()).map_err(question)?;
        let mut schedule = Schedule::new(source).policy(policy);
        if self.pausing {
            pausable(arch)?;
            schedule = schedule.pausing();
        }
        if let Some(submit) = &self.submit {
            schedule = schedule.submit(submit.parse().map_err(question)?);
        }
        match self.order.as_deref() {
            Some("longest-first") => {
                return Err(question(
                    "longest-first needs the cost of each tile, which a workload says and a kernel \
                     does not; without --order a kernel takes the order that suits it",
                ));
            }
            Some(text) => schedule.order = order(text)?,
            None => {}
        }
        schedule.cluster = self.cluster();
        schedule.in_flight = self.in_flight;
        Ok(Some(schedule))
    }

    /// A kernel of the catalogue.
    fn kernel(&self, entry: &dyn Entry, out: Output) -> Result<Verdict, BadQuestion> {
        for (flag, given) in [
            ("--tiles", self.tiles.is_some()),
            ("--mean", self.mean.is_some()),
            ("--imbalance", self.imbalance.is_some()),
            ("--prologue", self.prologue.is_some()),
            ("--shared", self.shared.is_some()),
            ("--swap", !self.swap.is_empty()),
            ("--classes", self.classes.is_some()),
        ] {
            if given {
                return Err(question(format!(
                    "{flag} is for a workload; what a kernel is told are words, such as m=512: see \
                     `heist kernels {}`",
                    self.name
                )));
            }
        }
        let device = Device::open(self.device).map_err(question)?;
        let mut told = Told::from_words(&self.told).map_err(question)?;
        if told.get("seed").is_none() {
            told.set("seed", self.seed.to_string());
        }
        let asked = kernel::Asked {
            schedule: self.asked(&device)?,
            candidate: self.candidate.clone(),
            settings: self.settings(),
            device,
            on: self.device,
            told,
            verify: !self.no_verify,
            trace: self.trace.as_deref(),
        };
        kernel::run(entry, &asked, out)
    }

    /// The fastest schedule, measured.
    fn fastest(
        &self,
        synthetic: &Synthetic,
        device: &Device,
        settings: &Settings,
        policy: &AnyPolicy,
    ) -> Result<Schedule, BadQuestion> {
        let arch = device.arch().map_err(question)?;
        let mut candidates = Schedule::candidates(arch, policy);
        for schedule in &mut candidates {
            self.place(schedule, synthetic)?;
        }
        let effort = match device {
            Device::Sim(_) => Effort::EXACT,
            Device::Gpu(_) => Effort::default(),
        };
        let mut tuner = match &self.tuned {
            Some(path) => Tuner::remembering(effort, path).map_err(question)?,
            None => Tuner::new(effort),
        };
        let own = || synthetic.arguments();
        let at = heist::auto::fastest(device, settings, &mut tuner, &candidates, own, |schedule| {
            build(synthetic, schedule, arch)
        })
        .map_err(not_run)?;
        tuner.save().map_err(question)?;
        Ok(candidates.swap_remove(at))
    }

    /// Order and cluster.
    fn place(&self, schedule: &mut Schedule, synthetic: &Synthetic) -> Result<(), BadQuestion> {
        let order = self.order.as_deref().unwrap_or("linear");
        schedule.order = if order == "longest-first" {
            // An order is over clusters of tiles; a cluster is as long as its
            // longest tile.
            let wide = self.cluster().x.max(1) as usize;
            let costs: Vec<u32> = synthetic
                .costs
                .chunks(wide)
                .map(|tiles| tiles.iter().copied().max().unwrap_or(0))
                .collect();
            AnyOrder::new(Table::longest_first(&costs))
        } else {
            super::schedule::order(order)?
        };
        schedule.cluster = self.cluster();
        schedule.in_flight = self.in_flight;
        if let Some(parts) = self.classes {
            if self.order.is_some() {
                return Err(question(
                    "--classes takes the place of --order: give one of them",
                ));
            }
            if self.cluster().count() > 1 {
                return Err(question("--classes is for tiles; leave --cluster out"));
            }
            if !schedule.source.asks() {
                return Err(question(format!(
                    "source {} hands tiles out by their number; --classes needs ticket or clc",
                    schedule.source
                )));
            }
            let count = synthetic.tiles().count() as usize;
            schedule.classes = Some(Classes::new(by_lot(parts, count, self.seed)));
        }
        Ok(())
    }

    pub(crate) fn run(self, out: Output) -> Result<Verdict, BadQuestion> {
        if let Some(path) = &self.trace {
            drawable(path)?;
        }
        if let Some(path) = &self.tuned {
            if self.source.as_deref() != Some("auto") {
                return Err(question("--tuned is for --source auto, which measures"));
            }
            file::writable(path)?;
        }
        if let Ok(entry) = catalogue::entry(&self.name) {
            return self.kernel(entry, out);
        }
        self.workload(out)
    }

    /// A synthetic workload.
    fn workload(&self, out: Output) -> Result<Verdict, BadQuestion> {
        let synthetic = self.synthetic()?;
        let device = Device::open(self.device).map_err(question)?;
        let settings = self.settings();
        let schedule = self.schedule(&synthetic, &device, &settings)?;
        let waiting = Waiting::new(
            out,
            format!("running {}", synthetic.workload),
            self.timeout,
            settings.meter.clone(),
        );
        let (ran, swaps) = self.launch(&synthetic, &schedule, &device, &settings)?;
        drop(waiting);
        let why = stop(&ran.findings);
        let all = synthetic.tiles().count();
        let named = Named::new(&ran.schedule, &ran.trace).stopped(stopped(&why, Some(all)));
        if let Some(path) = &self.trace {
            let title = format!("{}, {all} tiles", synthetic.workload);
            draw(path, &title, &[named])?;
        }
        if out.json {
            let mut all = as_json(&ran, &synthetic);
            if let Some(swaps) = &swaps {
                all["swaps"] = swaps_json(swaps);
            }
            out.json(&all);
        } else {
            print!("{}", heist_view::table::runs(&[named], synthetic.tiles()));
            tell(&ran);
            if let Some(classes) = &schedule.classes {
                tell_classes(&ran, classes);
            }
            if let Some(swaps) = &swaps {
                println!("{swaps}");
            }
            tell_all(&ran.findings, &ran.text);
            if let Some(path) = &self.trace {
                println!("timeline: {}", path.display());
            }
        }
        Ok(if ran.is_right(&synthetic) {
            Verdict::Clean
        } else {
            Verdict::Found
        })
    }

    /// The workload's tiles, from its name and the flags.
    fn synthetic(&self) -> Result<Synthetic, BadQuestion> {
        if self.candidate.is_some() {
            return Err(question(
                "--candidate is for a kernel, whose tiles `heist tune` tries",
            ));
        }
        let workload: Workload = self.name.parse().map_err(|error| {
            let kernels: Vec<_> = catalogue::entries().iter().map(|e| e.name()).collect();
            question(format!("{error}; or a kernel: {}", kernels.join(", ")))
        })?;
        if let Some(word) = self.told.first() {
            return Err(question(format!(
                "`{word}` is for a kernel; a workload's numbers are flags, such as --tiles 500"
            )));
        }
        let tiles = self.tiles.unwrap_or(2000);
        let most = catalogue::most_elements() / u64::from(heist_kernels::synthetic::THREADS);
        if u64::from(tiles) > most {
            return Err(question(format!(
                "{tiles} tiles: with the memory that is free, {most} can be made and checked on the host"
            )));
        }
        Ok(Synthetic::new(
            workload,
            Parameters {
                tiles,
                mean: self.mean.unwrap_or(100),
                imbalance: self.imbalance.unwrap_or(8.0),
                prologue: self.prologue.unwrap_or(0),
                seed: self.seed,
                shared: self.shared.unwrap_or(0),
            },
        ))
    }

    /// Runs it, and exchanges its policy the while, where that is asked for.
    fn launch(
        &self,
        synthetic: &Synthetic,
        schedule: &Schedule,
        device: &Device,
        settings: &Settings,
    ) -> Result<(WorkloadRun, Option<Swaps>), BadQuestion> {
        let verify = !self.no_verify;
        if self.swap.is_empty() {
            let ran = workload::run(synthetic, schedule, device, settings, verify);
            return Ok((ran.map_err(not_run)?, None));
        }
        if !schedule.source.asks() {
            return Err(question(format!(
                "source {} asks no policy, so there is none to exchange",
                schedule.source
            )));
        }
        let turns = self.turns()?;
        let (ran, swaps) =
            workload::run_swapping(synthetic, schedule, device, settings, verify, &turns)
                .map_err(not_run)?;
        Ok((ran, Some(swaps)))
    }
}

/// What the exchanges of a policy took, for machines.
fn swaps_json(swaps: &Swaps) -> serde_json::Value {
    let (median, longest) = swaps.times();
    json!({
        "loaded": swaps.loaded,
        "slots_in_use": swaps.in_use,
        "median_us": median,
        "longest_us": longest,
    })
}

/// A class for every tile, drawn by lot.
fn by_lot([urgent, normal, _]: [u32; 3], count: usize, seed: u64) -> Vec<Class> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut lot = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 33) as u32 % 100
    };
    let class = |lot: u32| match lot {
        lot if lot < urgent => Class::Urgent,
        lot if lot < urgent + normal => Class::Normal,
        _ => Class::Background,
    };
    (0..count).map(|_| class(lot())).collect()
}

/// When the tiles of each class ended, since the launch began and since they were the next ones of their class,
/// a line each.
fn tell_classes(ran: &WorkloadRun, classes: &Classes) {
    for class in Class::ALL {
        let of = |tile: &&TileSpan| classes.of().get(tile.tile.x as usize) == Some(&class);
        let tiles = ran.trace.tiles.iter().filter(of);
        let mut tiles: Vec<(f64, f64)> = tiles
            .map(|tile| (tile.start.ns() / 1e3, tile.end.ns() / 1e3))
            .collect();
        tiles.sort_by(|a, b| a.0.total_cmp(&b.0));
        let at = |times: &[f64], part: usize| {
            times
                .get((times.len() * part / 100).min(times.len().max(1) - 1))
                .copied()
        };
        let mut ends: Vec<f64> = tiles.iter().map(|tile| tile.1).collect();
        ends.sort_by(f64::total_cmp);
        let fronts = since_the_front(&tiles);
        if let (Some(p50), Some(p99), Some(last), Some(half), Some(most)) = (
            at(&ends, 50),
            at(&ends, 99),
            ends.last(),
            at(&fronts, 50),
            at(&fronts, 99),
        ) {
            println!(
                "{class}: {} tiles; half ended by {p50:.1} us, 99% by {p99:.1} us, the last at {last:.1} us; \
                 since each was at the front of its queue, half ended within {half:.1} us, 99% within {most:.1} us",
                ends.len()
            );
        }
    }
}

/// How long after they came to the front of their queue tiles ended, in order of that; from when they began and ended, in the order in which they
/// began. A tile is at the front when the one before it begins.
fn since_the_front(tiles: &[(f64, f64)]) -> Vec<f64> {
    let first = tiles.first().map(|tile| tile.1 - tile.0);
    let others = tiles.windows(2).map(|two| two[1].1 - two[0].0);
    let mut times: Vec<f64> = first.into_iter().chain(others).collect();
    times.sort_by(f64::total_cmp);
    times
}

/// What the table does not say.
pub(super) fn tell(ran: &WorkloadRun) {
    match &ran.verified {
        Some(Ok(checked)) => println!("result: {checked} elements checked, all right"),
        Some(Err(wrong)) => println!("result: WRONG: {wrong}"),
        None => println!("result: not checked"),
    }
    if let Some(ejected) = &ran.report.ejected {
        println!("overruled: {ejected}");
    }
    if !ran.report.counter_is_zero {
        println!("the ticket counter was not left at zero");
    }
}

/// A run for machines.
pub(super) fn as_json(ran: &WorkloadRun, synthetic: &Synthetic) -> serde_json::Value {
    let (checked, wrong) = match &ran.verified {
        Some(Ok(checked)) => (Some(*checked), None),
        Some(Err(wrong)) => (Some(wrong.checked), Some(wrong.to_string())),
        None => (None, None),
    };
    json!({
        "workload": synthetic.workload,
        "parameters": synthetic.parameters,
        "schedule": ran.schedule,
        "device": ran.trace.device,
        "clock": ran.trace.clock,
        "summary": ran.trace.summary(),
        "elapsed_ns": ran.elapsed.map(heist_launch::Time::ns),
        "exactly_once": ran.exactly_once(synthetic),
        "elements_checked": checked,
        "wrong": wrong,
        "stats": ran.report.stats.as_ref().map(heist_sched::Stats::total),
        "ejected": ran.report.ejected,
        "diagnostics": ran.findings.iter()
            .map(|diagnostic| render::to_json(diagnostic, &ran.text)).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::since_the_front;

    #[test]
    fn a_tile_is_at_the_front_when_the_one_before_it_begins() {
        // The second waits while the first runs, the third begins at once.
        let tiles = [(1.0, 5.0), (5.0, 7.0), (5.0, 6.0)];
        assert_eq!(since_the_front(&tiles), [1.0, 4.0, 6.0]);
        assert!(since_the_front(&[]).is_empty());
    }
}
