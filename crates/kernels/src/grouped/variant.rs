//! The kernels of the family, and which of them suits what.

use super::check::BadTile;
use super::data::{buffers, places, results};
use super::kernel::{GroupedArgs, GroupedPlan, build, tiles_of};
use super::problem::{Group, Grouped, Shapes, work};
use super::schedule::schedule as usual;
use super::space;
use super::wgmma::Wgmma;
use crate::entry::{Entry, Parameter, Prepared, Settings, holds, items};
use crate::error::KernelError;
use crate::family::{Family, Target, Variant};
use crate::gemm::{Config, Tiling};
use crate::job::{Job, Step, buffer};
use crate::plan::LaunchPlan;
use crate::reference::Difference;
use crate::space::Tuned;
use heist_sched::Schedule;
use heist_tune::{Candidate, Proposal};

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
    let (n, k) = match problem.shapes {
        Shapes::Rows { n, k, .. } => (n, k),
        Shapes::Own(_) => (0, 0),
    };
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

/// `grouped-gemm` in the catalogue.
pub(crate) struct GroupedEntry;

const fn parameter(name: &'static str, default: &'static str, about: &'static str) -> Parameter {
    Parameter {
        name,
        default,
        about,
    }
}

pub(super) const PARAMETERS: &[Parameter] = &[
    parameter(
        "rows",
        "40,200,0,1,96",
        "rows of each group; eight alike are 512*8",
    ),
    parameter(
        "groups",
        "",
        "instead of rows, n and k: 40x128x64,7x256x32, each m x n x k",
    ),
    parameter("n", "256", "columns of every group"),
    parameter("k", "128", "depth of every group"),
    parameter("dtype", "bf16", "of A and B: f16, bf16, tf32"),
    parameter("out", "bf16", "of D: f16, bf16, f32"),
    parameter("layout", "nt", "nt: B is n x k; nn: B is k x n"),
    parameter(
        "check",
        "false",
        "whether every decoded tile is checked on the device",
    ),
    parameter("variant", "", "the kernel; the best one unless given"),
    parameter("config", "", "a tile shape instead: 128x128x32/64x64/4*2"),
    parameter("seed", "1", "of the random data"),
];

/// What `groups` is said instead of.
pub(super) const ROWS: [&str; 3] = ["rows", "n", "k"];

/// A list of numbers, or of shapes.
fn list(text: &str, parts: usize) -> Result<Vec<Vec<u32>>, KernelError> {
    let example = match parts {
        1 => "of numbers of rows, such as 40,200,0",
        _ => "of shapes, each m x n x k, such as 40x128x64,7x256x32",
    };
    let wrong = || KernelError::unfit(format!("`{text}` is no list {example}"));
    items(text)?
        .into_iter()
        .map(|item| {
            let numbers: Result<Vec<u32>, _> = item.split('x').map(str::parse).collect();
            let numbers = numbers.map_err(|_| wrong())?;
            (numbers.len() == parts)
                .then_some(numbers)
                .ok_or_else(wrong)
        })
        .collect()
}

fn problem(settings: &Settings) -> Result<Grouped, KernelError> {
    settings.check("grouped-gemm", PARAMETERS)?;
    settings.instead("config", &["variant"])?;
    settings.instead("groups", &ROWS)?;
    let word = |name| settings.word(PARAMETERS, name);
    let shapes = match settings.get("groups") {
        Some(text) => {
            let group = |shape: Vec<u32>| Group {
                m: shape[0],
                n: shape[1],
                k: shape[2],
            };
            Shapes::Own(list(text, 3)?.into_iter().map(group).collect())
        }
        None => Shapes::Rows {
            rows: list(word("rows"), 1)?.into_iter().flatten().collect(),
            n: settings.read(PARAMETERS, "n")?,
            k: settings.read(PARAMETERS, "k")?,
        },
    };
    let problem = Grouped {
        shapes,
        input: word("dtype").parse()?,
        output: word("out").parse()?,
        layout: word("layout").parse()?,
        check: settings.read(PARAMETERS, "check")?,
    };
    let size = |rows: fn(&Group) -> u32, cols: fn(&Group) -> u32| {
        let each = problem.groups().into_iter();
        each.map(|group| u64::from(rows(&group)) * u64::from(cols(&group)))
            .fold(0, u64::saturating_add)
    };
    holds("A", size(|g| g.m, |g| g.k))?;
    holds("B", size(|g| g.n, |g| g.k))?;
    holds("D", size(|g| g.m, |g| g.n))?;
    Ok(problem)
}

impl Entry for GroupedEntry {
    fn name(&self) -> &'static str {
        FAMILY.name
    }

    fn about(&self) -> &'static str {
        "D = A * B for many groups of their own shapes, read on the device"
    }

    fn parameters(&self) -> &'static [Parameter] {
        PARAMETERS
    }

    fn variants(&self) -> Vec<(&'static str, &'static str)> {
        FAMILY.list()
    }

    fn schedule(&self, _: &Settings, target: Target) -> Result<Option<Schedule>, KernelError> {
        Ok(Some(usual(target)))
    }

    fn launches(
        &self,
        settings: &Settings,
        schedule: Option<&Schedule>,
        target: Target,
    ) -> Result<Job, KernelError> {
        let problem = problem(settings)?;
        match settings.get("config") {
            Some(text) => {
                let own = usual(target);
                job_with(&problem, text.parse()?, schedule.unwrap_or(&own), target)
            }
            None => FAMILY
                .choose(settings.get("variant"), &problem, target)?
                .job(&problem, schedule, target),
        }
    }

    fn prepare(
        &self,
        settings: &Settings,
        schedule: Option<&Schedule>,
        target: Target,
    ) -> Result<Prepared, KernelError> {
        let job = self.launches(settings, schedule, target)?;
        let seed = settings.read(PARAMETERS, "seed")?;
        Ok(prepared(job, problem(settings)?, seed))
    }

    fn space(&self, settings: &Settings, target: Target) -> Result<Vec<Proposal>, KernelError> {
        Ok(space::proposals(&problem(settings)?, target))
    }

    fn tuned(
        &self,
        settings: &Settings,
        candidate: &Candidate,
        target: Target,
    ) -> Result<Prepared, KernelError> {
        let problem = problem(settings)?;
        let job = problem.tuned(candidate, target)?.job(|_| None);
        let seed = settings.read(PARAMETERS, "seed")?;
        Ok(prepared(job, problem, seed))
    }

    fn problem_words(&self, settings: &Settings) -> String {
        let words = problem(settings).ok().and_then(|problem| problem.words());
        words.unwrap_or_else(|| settings.problem(PARAMETERS, &[]))
    }
}

/// A job with random data and its check. A bad tile that the device reported is
/// an error of the check.
pub fn prepared(job: Job, problem: Grouped, seed: u64) -> Prepared {
    let job = buffers(job, &problem, seed);
    Prepared {
        bound: 2e-3,
        verify: Box::new(move |ran| {
            if let Some(bad) = ran.data("record").and_then(BadTile::read) {
                return Err(KernelError::unfit(bad.to_string()));
            }
            let (found, expected) = results(ran, &problem);
            Ok(Difference::between(&found, &expected))
        }),
        job,
    }
}
