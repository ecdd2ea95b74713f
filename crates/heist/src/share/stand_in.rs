//! A kernel that stands in for another on a simulated GPU: as many tiles under the same schedule,
//! blocks that take the same part of a multiprocessor, and tiles that only take their time.
//!
//! The tiles of a real kernel of a size worth sharing a GPU for would take minutes to simulate.
//! Who waits for whom depends on the schedule, on how many blocks fit, and on how long tiles last,
//! and all of that is the same here.

use super::Tenant;
use crate::job::JobError;
use heist_builder::{Arch, Bool, Global, Kernel, Scope, Val, kernel_params};
use heist_kernels::catalogue;
use heist_kernels::job::{HalfTiles, Step, Work};
use heist_kernels::{KernelError, Target};
use heist_launch::{Arg, Arguments, Dim3};
use heist_ptx::arch::{Footprint, Gpu};
use heist_run::Program;
use heist_sched::{Pause, Plan, Policy, Readout, Schedule, TileSource, Tiled, TiledKernel, Watch};

kernel_params! {
    /// Its parameters.
    pub struct StandInArgs {
        /// How often each tile ran.
        runs: Global<u32>,
        /// How many blocks run.
        busy: Global<u32>,
        /// How long a tile takes while all places on the GPU are taken, in nanoseconds.
        tile: u32,
        /// The same while at most half of them are.
        quiet: u32,
        /// How many places there are.
        places: u32,
        /// How long a block takes before its first tile.
        prologue: u32,
        /// The first tile that is a half of one, how many are from there on, and the first of as many at the end.
        halves_from: u32,
        halves: u32,
        halves_again: u32,
    }
}

/// The field of [`StandInArgs::runs`].
const RUNS: &str = "runs";
/// What a block takes before its first tile, in nanoseconds.
const PROLOGUE_NS: u32 = 1000;
/// What a tile takes besides its arithmetic: until the first operands are there, and to store the
/// result.
const TILE_NS: f64 = 1500.0;
/// Of five parts of a tile's time as many as a half of its rows takes, about.
const HALF: u32 = 3;
/// The part of the peak rate that dense arithmetic sustains on the whole GPU: power limits the
/// clock.
const SUSTAINED: f64 = 0.65;
/// The same while half of the multiprocessors or fewer are busy. In between it is on a line.
const QUIET: f64 = 0.85;
/// The longest that a thread sleeps at once, in nanoseconds; the hardware's limit is a
/// millisecond.
const LONGEST_SLEEP: u32 = 500_000;
/// A tile that can be left half done looks at the bell this often.
const PIECE_NS: u32 = 15_000;
const THREADS: u32 = 32;
/// Shared memory that is left to the scheduler.
const SCHEDULER_BYTES: u32 = 256;
/// The same where its policy is loaded, with room for the policy's words.
const LOADED_BYTES: u32 = 1280;

/// One launch of a tenant, as it is simulated.
pub(super) struct StandIn {
    pub(super) program: Program,
    pub(super) plan: Plan,
    pub(super) arguments: Arguments,
    pub(super) kernel: TiledKernel<StandInArgs>,
    pub(super) shape: Shape,
}

/// What a launch is made of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shape {
    /// Tiles.
    pub tiles: Dim3,
    /// Blocks of a cluster.
    pub cluster: Dim3,
    /// Blocks on a multiprocessor at a time.
    pub blocks: u32,
    /// How long a tile takes while all multiprocessors are busy, in nanoseconds.
    pub tile_ns: u32,
    /// The same while half of them are.
    pub quiet_ns: u32,
    /// Which tiles are halves of one, where some are.
    pub halves: Option<HalfTiles>,
}

impl std::fmt::Display for Shape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} tiles of {:.1} us, {}{} on a multiprocessor",
            self.whole(),
            f64::from(self.tile_ns) / 1e3,
            match self.halves {
                None => String::new(),
                Some(halves) => format!("{} of them in halves, ", halves.count),
            },
            self.blocks
        )
    }
}

/// Floating-point operations on halves that the tensor cores of one multiprocessor do in a cycle.
fn rate(arch: Arch) -> f64 {
    match arch.number() {
        100 | 103 | 107 | 110 => 8192.0,
        90 => 4096.0,
        80 | 87 => 2048.0,
        _ => 1024.0,
    }
}

impl Shape {
    /// Of a step of a job that does `work` in its scheduled steps, each.
    fn of(step: &Step, work: Work, gpu: &Gpu, target: Target) -> Shape {
        let limits = gpu.arch.limits();
        let (tiles, cluster, blocks) = match &step.readout {
            Some(readout) => {
                let at_once = u64::from(readout.resident()) * readout.cluster().count();
                let blocks = (at_once as u32).div_ceil(target.sms.max(1));
                (readout.tiles(), readout.cluster(), blocks)
            }
            None => {
                let footprint = Footprint {
                    threads: step.launch.block.count() as u32,
                    registers: 32,
                    shared: step.launch.dynamic_shared,
                };
                let cluster = step.launch.cluster.unwrap_or(Dim3::ONE);
                let blocks = limits.residency(footprint).blocks;
                (step.launch.grid, cluster, blocks)
            }
        };
        let blocks = blocks.clamp(1, limits.blocks_per_sm);
        let work = match step.readout {
            Some(_) => work,
            // What a launch beside the scheduled ones does is little.
            None => Work::default(),
        };
        let mut shape = Shape {
            tiles,
            cluster,
            blocks,
            tile_ns: 0,
            quiet_ns: 0,
            halves: step.halves,
        };
        let count = shape.whole() as f64;
        let at_once = count.min(f64::from(gpu.sms * blocks));
        let sharing = (at_once / f64::from(gpu.sms)).ceil();
        let cycles = work.flops / count / rate(gpu.arch) * sharing;
        let computing = cycles * 1e3 / f64::from(gpu.clock_mhz);
        let loading = work.bytes / count * at_once / f64::from(gpu.bandwidth_gb_s);
        let takes = |part: f64| (loading.max(computing / part) + TILE_NS).min(1e9) as u32;
        (shape.tile_ns, shape.quiet_ns) = (takes(SUSTAINED), takes(QUIET));
        shape
    }

    /// How many tiles, where those in halves count once.
    fn whole(&self) -> u64 {
        let halves = self.halves.map_or(0, |halves| halves.count);
        self.tiles.count() - u64::from(halves)
    }

    /// Bytes of shared memory with which as many blocks fit on a multiprocessor, beside those of the scheduler.
    fn shared(&self, arch: Arch, scheduler: u32) -> u32 {
        let limits = arch.limits();
        let part = limits.shared_per_sm / self.blocks / limits.shared_unit * limits.shared_unit;
        part.saturating_sub(limits.shared_reserved)
            .min(limits.shared_opt_in)
            .saturating_sub(scheduler)
    }
}

impl StandIn {
    /// For each launch of a tenant.
    pub(super) fn of(
        tenant: &Tenant,
        gpu: &Gpu,
        target: Target,
        watch: Watch,
    ) -> Result<Vec<StandIn>, JobError> {
        let job = tenant.launches(target)?;
        let left = target.leaving(tenant.spare);
        let own = catalogue::entry(tenant.kernel)?.schedule(&tenant.told, left)?;
        let scheduled = job.steps.iter().filter(|step| step.readout.is_some());
        let parts = scheduled.count().max(1) as f64;
        let work = Work {
            flops: job.work.flops / parts,
            bytes: job.work.bytes / parts,
        };
        let schedule = tenant.schedule.clone().or(own);
        let schedule = schedule.unwrap_or(Schedule::new(TileSource::Direct));
        let steps = job.steps.iter().map(|step| {
            let shape = Shape::of(step, work, gpu, left);
            let schedule = match step.readout {
                Some(_) => schedule.clone(),
                None => Schedule::new(TileSource::Direct),
            };
            StandIn::new(&step.entry, shape, schedule.watch(watch), left)
        });
        steps.collect()
    }

    /// One that keeps `sms` multiprocessors to itself for a time.
    pub(super) fn holder(sms: u32, ns: u32, target: Target) -> Result<StandIn, JobError> {
        let shape = Shape {
            tiles: sms.into(),
            cluster: Dim3::ONE,
            blocks: 1,
            tile_ns: ns,
            quiet_ns: ns,
            halves: None,
        };
        StandIn::new("hold", shape, Schedule::new(TileSource::Direct), target)
    }

    fn new(
        name: &str,
        shape: Shape,
        schedule: Schedule,
        target: Target,
    ) -> Result<StandIn, JobError> {
        let schedule = Schedule {
            cluster: shape.cluster,
            ..schedule
        };
        let scheduler = match schedule.policy.loaded() {
            None => SCHEDULER_BYTES,
            Some(_) => LOADED_BYTES,
        };
        let shared = shape.shared(target.arch, scheduler);
        let tiled = Tiled::<StandInArgs>::new(name, shape.tiles)
            .schedule(&schedule)
            // Nothing to save: a tile that is left half done knows how far it has come.
            .state(0)
            .block(THREADS);
        let kernel = tiled
            .build(target.arch, |k, args, tiles| {
                k.max_registers(32);
                k.shared::<u8>("room", shared);
                sleep(k, args.prologue);
                k.one_thread(|| {
                    args.busy.at(0).atomic_add(1u32);
                });
                let pause = tiles.pause();
                let done = tiles.each(|tile| {
                    let count = || {
                        k.one_thread(|| {
                            args.runs.at(tile.number()).atomic_add(1u32);
                        });
                    };
                    if pause.is_none() {
                        count();
                    }
                    // From half of the places on, each that is taken makes all slower.
                    let busy = args.busy.at(0).load_relaxed(Scope::Gpu).min(args.places);
                    let above = (busy * 2).max(args.places) - args.places;
                    let slower = (args.tile - args.quiet).cast::<u64>() * above.cast::<u64>();
                    let slower = slower / args.places.cast::<u64>();
                    let takes = args.quiet + slower.cast::<u32>();
                    let number = tile.number();
                    let half =
                        (number - args.halves_from).lt(args.halves) | number.ge(args.halves_again);
                    let takes = half.select(takes / 5 * HALF, takes);
                    match pause {
                        None => sleep(k, takes),
                        Some(pause) => k.if_(sleep_until_asked(k, pause, takes), count),
                    }
                });
                k.one_thread(|| {
                    args.busy.at(0).atomic_add(u32::MAX);
                });
                done
            })
            .map_err(|error| KernelError::unfit(error.problem.to_string()))?;
        let resident = target.sms * shape.blocks / shape.cluster.count().max(1) as u32;
        let plan = kernel
            .plan(resident)
            .map_err(|error| KernelError::unfit(error.to_string()))?;
        let own = StandInArgs {
            runs: Arg::in_out(&vec![0u32; shape.tiles.count() as usize]),
            busy: Arg::in_out(&[0u32]),
            tile: shape.tile_ns,
            quiet: shape.quiet_ns,
            places: resident.max(1) * shape.cluster.count() as u32,
            prologue: PROLOGUE_NS,
            halves_from: shape.halves.map_or(0, |halves| halves.first),
            halves: shape.halves.map_or(0, |halves| halves.count),
            halves_again: shape.whole() as u32,
        };
        Ok(StandIn {
            program: Program::from_module(format!("{name}.ptx"), &kernel.built.module),
            arguments: kernel.arguments(&plan, own),
            plan,
            kernel,
            shape,
        })
    }

    pub(super) fn readout(&self) -> Readout {
        self.kernel.readout(&self.plan)
    }

    /// The first tile that did not run exactly once, and how often it ran.
    pub(super) fn miscounted(&self, outcome: &heist_launch::Outcome) -> Option<(usize, u32)> {
        let runs = self.kernel.output(outcome, RUNS);
        let Some(runs) = runs.and_then(|runs| runs.to_vec::<u32>()) else {
            return Some((0, 0));
        };
        runs.into_iter().enumerate().find(|(_, runs)| *runs != 1)
    }
}

/// Sleeps, piece by piece, and says whether the tile is done: it may have been left.
fn sleep_until_asked<'k>(k: &Kernel<'k>, pause: Pause<'k>, ns: Val<'k, u32>) -> Bool<'k> {
    let step = k.var(pause.from()).named("step");
    let slept = || step.get() * PIECE_NS;
    let left = k.var(false).named("left");
    k.while_(
        || slept().lt(ns) & !left.get(),
        || {
            k.nanosleep((ns - slept()).min(PIECE_NS));
            step.set(step.get() + 1);
            k.one_thread(|| {
                k.if_(slept().lt(ns), || {
                    let _ = pause.look(pause.listen(), step.get());
                });
            });
            k.sync();
            left.set(pause.left());
            k.sync();
        },
    );
    !left.get()
}

fn sleep<'k>(k: &Kernel<'k>, ns: Val<'k, u32>) {
    let left = k.var(ns).named("left");
    k.while_(
        || left.get().gt(0),
        || {
            let now = left.get().min(LONGEST_SLEEP);
            k.nanosleep(now);
            left.set(left.get() - now);
        },
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tile of GEMM takes a whole multiprocessor, and so does what stands in for it.
    #[test]
    fn a_loaded_policy_has_room_beside_a_block_that_fills_its_multiprocessor() {
        let shape = Shape {
            tiles: 264.into(),
            cluster: Dim3::ONE,
            blocks: 1,
            tile_ns: 1000,
            quiet_ns: 1000,
            halves: None,
        };
        let gpu = Gpu::H200;
        let target = crate::share::modelled::Model::new(gpu).target();
        for policy in ["greedy", "loaded: greedy"] {
            let schedule = format!("ticket late {policy}").parse().unwrap();
            let stands = StandIn::new("batch", shape, schedule, target);
            assert!(stands.is_ok(), "{policy}: {:?}", stands.err());
        }
    }

    /// With 8 of 132 multiprocessors held 512 tiles are four waves and 16 tiles.
    #[test]
    fn what_stands_in_for_tiles_in_halves_takes_half_of_a_wave_more() {
        let model = crate::share::modelled::Model::new(Gpu::H200);
        let times = |config: &[&str]| {
            let words = ["m=4096", "n=4096", "k=4096", "dtype=bf16"];
            let told = words.iter().chain(config).copied();
            let batch = Tenant {
                name: "batch".into(),
                kernel: "gemm",
                told: catalogue::Settings::from_words(told).unwrap(),
                schedule: None,
                spare: 0,
            };
            let batch = model.move_in(&batch).unwrap();
            let alone = model.alone(&batch).unwrap();
            (alone, model.held(&batch, alone, 8).unwrap())
        };
        let (alone, held) = times(&[]);
        let (whole, whole_held) = times(&["config=wgmma:128x256x64/4"]);
        assert!(alone < whole * 1.02, "{alone} {whole}");
        assert!(held < whole_held * 0.97, "{held} {whole_held}");
    }
}
