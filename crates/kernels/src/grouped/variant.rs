//! The kernels of the family, and which of them suits what.

use super::data::places;
use super::kernel::{GroupedArgs, GroupedPlan, build, refusal, tiles_of};
use super::problem::{Grouped, work};
use super::schedule::schedule as usual;
use super::tcgen05::Tcgen05;
use super::tiles::{Suited, Wgmma};
use crate::error::KernelError;
use crate::family::{Family, Target, Variant};
use crate::gemm::{Config, Tiling};
use crate::job::{Job, Step, buffer};
use crate::plan::LaunchPlan;
use heist_sched::Schedule;

/// `mma.sync` with a fixed tile shape, for groups of about so many rows.
#[derive(Debug)]
struct MmaSync {
    name: &'static str,
    about: &'static str,
    config: Config,
    /// The smallest mean of a group's rows that it is meant for.
    from_rows: u32,
}

const fn config(block: [u32; 3], warp: [u32; 2], stages: u32, blocks: u32) -> Config {
    Config {
        rows: block[0],
        cols: block[1],
        depth: block[2],
        warp_rows: warp[0],
        warp_cols: warp[1],
        stages,
        blocks,
    }
}

/// Every kernel that multiplies groups.
pub static FAMILY: Family<Grouped> = Family {
    name: "grouped-gemm",
    variants: &[
        &Tcgen05,
        // Before those of one shape, which are as fast at best: it has other tiles where a schedule takes registers.
        &Suited {
            name: "wgmma-8bit",
            about: "wgmma of 8-bit floats with scales, in tiles that suit the groups: Hopper",
            tiny: true,
        },
        &Wgmma {
            name: "wgmma-128x256",
            about: "wgmma and tensor copies, 128 x 256 tiles: Hopper, groups of the same n and k",
            tiling: Tiling::new(128, 256, 64, 4),
        },
        &Wgmma {
            name: "wgmma-64x256",
            about: "the same in 64 x 256 tiles: tens of rows a group",
            tiling: Tiling::new(64, 256, 64, 5),
        },
        &Wgmma {
            name: "wgmma-64x128",
            about: "the same in 64 x 128 tiles, two blocks a multiprocessor: a few rows a group",
            tiling: Tiling::new(64, 128, 64, 4).blocks(2),
        },
        &Suited {
            name: "wgmma",
            about: "the same in tiles that suit the groups",
            tiny: false,
        },
        &MmaSync {
            name: "mma-16",
            about: "mma.sync, 16 x 128 tiles: a few rows a group, bound by memory",
            config: config([16, 128, 64], [16, 32], 6, 2),
            from_rows: 0,
        },
        &MmaSync {
            name: "mma-64-small",
            about: "mma.sync, 64 x 128 tiles in little shared memory: tens of rows a group",
            config: config([64, 128, 32], [64, 32], 3, 2),
            from_rows: 16,
        },
        &MmaSync {
            name: "mma-64",
            about: "mma.sync, 64 x 128 tiles: tens of rows a group",
            config: config([64, 128, 64], [64, 32], 4, 2),
            from_rows: 17,
        },
        &MmaSync {
            name: "mma-128-small",
            about: "mma.sync, 128 x 128 tiles in little shared memory: many rows a group",
            config: config([128, 128, 32], [64, 64], 4, 2),
            from_rows: 48,
        },
        &MmaSync {
            name: "mma-128-deep",
            about: "mma.sync, 128 x 256 tiles, four stages: up to hundreds of rows a group",
            config: config([128, 256, 64], [64, 64], 4, 1),
            from_rows: 49,
        },
        &MmaSync {
            name: "mma-128",
            about: "mma.sync, 128 x 256 tiles, three stages: many rows a group",
            config: config([128, 256, 64], [64, 64], 3, 1),
            from_rows: 768,
        },
    ],
};

/// A grouped multiplication with a tile shape of your own, over buffers called `a`, `b`, `d`,
/// `shapes`, `places` and `record` that are still to be added. Without a tile there is no launch.
///
/// # Errors
/// What could not be built or planned.
pub fn job_with(
    problem: &Grouped,
    config: Config,
    schedule: &Schedule,
    target: Target,
) -> Result<Job, KernelError> {
    let plan = GroupedPlan::new(problem, config)?;
    let job = Job::new(format!("grouped-gemm {problem} {config}"), work(problem));
    let tiles = tiles_of(problem, config.rows, config.cols);
    if tiles.count() == 0 {
        return Ok(job);
    }
    let kernel = build(&plan, tiles, schedule, target.arch)?;
    let resident = target.resident(&kernel.built.launch, config.registers());
    let launch = kernel.plan(resident)?;
    let (n, k, room) = problem.alike().map_or((0, 0, 0), |alike| {
        (alike.n, alike.k, alike.room.unwrap_or(0))
    });
    let (_, [a_len, b_len, d_len]) = places(problem);
    let args = GroupedArgs {
        a: buffer("a"),
        b: buffer("b"),
        d: buffer("d"),
        shapes: buffer("shapes"),
        places: buffer("places"),
        record: buffer("record"),
        groups: problem.len() as u32,
        n,
        k,
        room,
        a_len,
        b_len,
        d_len,
    };
    Ok(job.step(Step::tiled(&kernel, &launch, args)))
}

impl Variant for MmaSync {
    type Problem = Grouped;

    fn name(&self) -> &'static str {
        self.name
    }

    fn about(&self) -> &'static str {
        self.about
    }

    fn suits(&self, problem: &Grouped, target: Target) -> Result<u32, String> {
        if target.arch.number() < 80 {
            return Err("mma.sync of these types came with sm_80".into());
        }
        if let Some(why) = refusal(problem) {
            return Err(why);
        }
        let config = &self.config;
        let stage = u64::from((config.rows + config.cols) * config.depth * 2);
        let shared = u64::from(config.stages) * stage + 1024;
        let limits = target.arch.limits();
        if shared > limits.shared_opt_in.into() {
            return Err(format!(
                "its stages take {shared} bytes of shared memory, and {} has {}",
                target.arch, limits.shared_opt_in
            ));
        }
        // What the host knows: how many rows there are, in how many groups.
        let rows: u64 = problem.groups().iter().map(|g| u64::from(g.m)).sum();
        let mean = rows / (problem.len() as u64).max(1);
        // The one for the most rows that the groups have.
        Ok(if mean >= self.from_rows.into() {
            1 + self.from_rows
        } else {
            0
        })
    }

    fn plan(
        &self,
        problem: &Grouped,
        schedule: Option<&Schedule>,
        target: Target,
    ) -> Result<LaunchPlan, KernelError> {
        let own = usual(target);
        let job = job_with(problem, self.config, schedule.unwrap_or(&own), target)?;
        Ok(LaunchPlan::of_job(self.name, job))
    }
}
