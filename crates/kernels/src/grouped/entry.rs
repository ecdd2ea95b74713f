//! Grouped multiplication by name: its settings, and random data with its check.

use super::check::BadTile;
use super::data::{buffers, check_unused, results};
use super::problem::{Group, Grouped, Shapes};
use super::schedule::schedule as usual;
use super::space;
use super::tiles::job_with_tiling;
use super::variant::{FAMILY, job_with};
use crate::entry::{Parameter, Prepared, Settings, holds, items, parameter};
use crate::error::KernelError;
use crate::family::{Family, Target};
use crate::gemm::lost;
use crate::job::Job;
use crate::listing::{Listing, variant};
use crate::reference::Difference;
use crate::space::Tuned;
use heist_sched::Schedule;
use heist_tune::{Candidate, Proposal};

/// `grouped-gemm` in the catalogue.
pub(crate) struct GroupedEntry;

pub(super) const PARAMETERS: &[Parameter] = &[
    parameter(
        "rows",
        "40,200,0,1,96",
        "rows of each group; eight alike are 512*8",
    ),
    parameter(
        "room",
        "",
        "rows that each group has room for, of which it uses the first (masked); without it one group's rows follow the other's",
    ),
    parameter(
        "groups",
        "",
        "instead of rows, n and k: 40x128x64,7x256x32, each m x n x k",
    ),
    parameter("n", "256", "columns of every group"),
    parameter("k", "128", "depth of every group"),
    parameter("dtype", "bf16", "of A and B: f16, bf16, tf32, e4m3, e5m2"),
    parameter("out", "bf16", "of D: f16, bf16, f32"),
    parameter("layout", "nt", "nt: B is n x k; nn: B is k x n"),
    parameter(
        "scales",
        "none",
        "factors of A and B, of 8-bit floats: none, rows, blocks (of 128)",
    ),
    parameter(
        "sums",
        "levels",
        "of 8-bit floats: levels (every 128 deep added in f32), fast",
    ),
    parameter(
        "check",
        "false",
        "whether every decoded tile is checked on the device",
    ),
    parameter("variant", "", "the kernel; the best one unless given"),
    parameter(
        "config",
        "",
        "a tile shape instead: 128x128x32/64x64/4*2, or wgmma:128x192x64/5/pingpong",
    ),
    parameter("seed", "1", "of the random data"),
];

/// What `groups` is said instead of.
pub(super) const ROWS: [&str; 4] = ["rows", "room", "n", "k"];

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
        None => {
            let rows = list(word("rows"), 1)?.into_iter().flatten().collect();
            let number = |name| settings.read(PARAMETERS, name);
            let (n, k) = (number("n")?, number("k")?);
            match word("room") {
                "" => Shapes::Rows { rows, n, k },
                _ => Shapes::Masked {
                    counts: rows,
                    room: number("room")?,
                    n,
                    k,
                },
            }
        }
    };
    let problem = Grouped {
        shapes,
        input: word("dtype").parse()?,
        output: word("out").parse()?,
        layout: word("layout").parse()?,
        scales: word("scales").parse()?,
        sums: word("sums").parse()?,
        check: settings.read(PARAMETERS, "check")?,
    };
    problem.check_shapes()?;
    let size = |rows: fn(&Group) -> u32, cols: fn(&Group) -> u32| {
        let each = problem.groups().into_iter();
        each.map(|mut group| {
            if let Shapes::Masked { room, .. } = problem.shapes {
                group.m = room;
            }
            u64::from(rows(&group)) * u64::from(cols(&group))
        })
        .fold(0, u64::saturating_add)
    };
    holds("A", size(|g| g.m, |g| g.k))?;
    holds("B", size(|g| g.n, |g| g.k))?;
    holds("D", size(|g| g.m, |g| g.n))?;
    Ok(problem)
}

impl Listing for GroupedEntry {
    type Problem = Grouped;
    const FAMILY: &'static Family<Grouped> = &FAMILY;
    const ABOUT: &'static str = "D = A * B for many groups of their own shapes, read on the device";
    const PARAMETERS: &'static [Parameter] = PARAMETERS;

    fn problem(settings: &Settings) -> Result<Grouped, KernelError> {
        problem(settings)
    }

    fn schedule(
        _: &Settings,
        _: &Grouped,
        target: Target,
    ) -> Result<Option<Schedule>, KernelError> {
        Ok(Some(usual(target)))
    }

    fn job(
        settings: &Settings,
        problem: &Grouped,
        schedule: Option<&Schedule>,
        target: Target,
    ) -> Result<Job, KernelError> {
        match settings.get("config") {
            Some(text) if text.starts_with("wgmma:") => {
                job_with_tiling(problem, text.parse()?, schedule, target)
            }
            Some(text) => {
                let own = usual(target);
                job_with(problem, text.parse()?, schedule.unwrap_or(&own), target)
            }
            None => FAMILY
                .choose(variant(settings), problem, target)?
                .job(problem, schedule, target),
        }
    }

    fn prepared(job: Job, problem: Grouped, seed: u64) -> Prepared {
        prepared(job, problem, seed)
    }

    fn proposals(problem: &Grouped, target: Target) -> Vec<Proposal> {
        space::proposals(problem, target)
    }

    fn tuned(problem: &Grouped, candidate: &Candidate, target: Target) -> Result<Job, KernelError> {
        Ok(problem.tuned(candidate, target)?.job(|_| None))
    }

    fn words(problem: &Grouped) -> Option<String> {
        problem.words()
    }
}

/// A job with random data and its check. A bad tile that the device reported is
/// an error of the check.
pub fn prepared(job: Job, problem: Grouped, seed: u64) -> Prepared {
    let job = buffers(job, &problem, seed);
    let depth = problem.groups().iter().map(|group| group.k).max();
    Prepared {
        bound: 2e-3 + lost(problem.input, problem.in_levels(), depth.unwrap_or(0)),
        verify: Box::new(move |ran| {
            if let Some(bad) = ran.data("record").and_then(BadTile::read) {
                return Err(KernelError::unfit(bad.to_string()));
            }
            check_unused(ran, &problem)?;
            let (found, expected) = results(ran, &problem);
            Ok(Difference::between(&found, &expected))
        }),
        job,
    }
}
