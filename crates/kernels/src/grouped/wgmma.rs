//! The kernel and the variant that multiply groups on Hopper's warpgroups.
//!
//! Groups that differ in their rows alone are one matrix A and one matrix B to
//! the copy engine: a group is a row to begin at in each. Rows of the next group
//! that a tile takes along are not stored.

use super::check;
use super::data::places;
use super::kernel::{GroupedArgs, tiles_of};
use super::problem::{Grouped, Shapes};
use super::table::{Described, Table};
use super::variant::{schedule, work};
use crate::error::KernelError;
use crate::family::{Target, Variant};
use crate::gemm::warpgroup::{COLS, Ends, ROWS, Source, THREADS, map, ring};
use crate::gemm::{Epilogue, Finish, Input, Layout, Output, Stored, To, left, tensor_element};
use crate::job::{Job, Step, buffer};
use heist_build::{
    Arch, BuildError, Feature, Global, Half, MmaInput, TensorMap, bf16, f16, kernel_params,
};
use heist_launch::{Arg, Dim3};
use heist_sched::{Schedule, Tiled, TiledKernel};

kernel_params! {
    /// What a grouped multiplication on warpgroups works on.
    pub(crate) struct WgmmaArgs {
        /// The rows of all groups.
        a: TensorMap<f16, 2>,
        /// The right matrices, one below the other.
        b: TensorMap<f16, 2>,
        /// The results.
        d: Global<u8>,
        /// Where each group's rows end.
        shapes: Global<u32>,
        /// Not read.
        places: Global<u64>,
        /// What was bad, in check mode.
        record: Global<u32>,
        /// How many groups there are.
        groups: u32,
        /// Columns of every group.
        n: u32,
        /// Depth of every group.
        k: u32,
        /// Elements of A, for the check.
        a_len: u64,
        /// Of B.
        b_len: u64,
        /// Of D.
        d_len: u64,
    }
}

fn build<H: Half + MmaInput>(
    problem: &Grouped,
    n: u32,
    tiles: Dim3,
    schedule: &Schedule,
    arch: Arch,
) -> Result<TiledKernel<WgmmaArgs>, BuildError> {
    match problem.output {
        Output::F16 => build_typed::<H, f16>(problem, n, tiles, schedule, arch),
        Output::Bf16 => build_typed::<H, bf16>(problem, n, tiles, schedule, arch),
        Output::F32 => build_typed::<H, f32>(problem, n, tiles, schedule, arch),
    }
}

fn build_typed<H: Half + MmaInput, O: Stored>(
    problem: &Grouped,
    n: u32,
    tiles: Dim3,
    schedule: &Schedule,
    arch: Arch,
) -> Result<TiledKernel<WgmmaArgs>, BuildError> {
    let pairs = if n.is_multiple_of(2) { 2 } else { 1 };
    let finish = Finish::new(&Epilogue::default(), pairs);
    let even_cols = n.is_multiple_of(COLS);
    let capacity = (problem.len() as u32).next_power_of_two().max(32);
    let checked = problem.check;
    Tiled::<WgmmaArgs>::new("grouped_gemm_wgmma", tiles)
        .schedule(schedule)
        .block(THREADS)
        .min_blocks(1)
        .build(arch, |k, args, tiles| {
            // As the table and the check know them; the matrices themselves are
            // the copy engine's.
            let known = GroupedArgs {
                a: args.d,
                b: args.d,
                d: args.d,
                shapes: args.shapes,
                places: args.places,
                record: args.record,
                groups: args.groups,
                n: args.n,
                k: args.k,
                a_len: args.a_len,
                b_len: args.b_len,
                d_len: args.d_len,
            };
            let table = Table::new(k, &known, Described::Rows, capacity, ROWS);
            let ring = ring(k);
            let ends = Ends::new(k, &ring);
            let done = tiles.each(|tile| {
                let found = table.find(tile.y);
                k.if_(found.inside, || {
                    let col0 = tile.x * COLS;
                    let run = || {
                        let begins = Described::Rows.begin(&known, found.group);
                        let from = Source {
                            a: args.a,
                            b: args.b,
                            a_row: begins + found.row,
                            b_row: found.group * args.n + col0,
                            depth: args.k,
                        };
                        ends.tile::<H>(from, |sums, row| {
                            k.comment("the epilogue");
                            let member = Described::Rows.member(&known, found.group);
                            let row = found.row + row;
                            let first =
                                row.cast::<u64>() * args.n.cast::<u64>() + col0.cast::<u64>();
                            let d = args.d.cast::<O>().at(member.d).at(first);
                            let to = To {
                                d,
                                c: d,
                                bias: d,
                                pitch: args.n,
                                rows: Some(left(member.m, row)),
                                cols: (!even_cols).then(|| args.n - col0),
                                alpha: k.c(1.0),
                                beta: k.c(0.0),
                            };
                            finish.store(k, sums, &to);
                        });
                    };
                    if checked {
                        let member = Described::Rows.member(&known, found.group);
                        k.if_(check::good(k, &known, &found, &member, col0), run);
                    } else {
                        run();
                    }
                });
            });
            ends.finish();
            done
        })
}

/// `wgmma` fed by the copy engine.
#[derive(Debug)]
pub(super) struct Wgmma;

impl Variant for Wgmma {
    type Problem = Grouped;

    fn name(&self) -> &'static str {
        "wgmma-128x256"
    }

    fn about(&self) -> &'static str {
        "wgmma and tensor copies, 128 x 256 tiles: hundreds of rows a group, Hopper, nt, one n and k"
    }

    fn suits(&self, problem: &Grouped, target: Target) -> Result<u32, String> {
        if !target.arch.supports(Feature::Wgmma) {
            return Err(format!("{} has no wgmma: it needs sm_90a", target.arch));
        }
        if problem.layout != Layout::Nt {
            return Err("it multiplies matrices stored along the depth: nt".into());
        }
        if tensor_element(problem.input).is_none() {
            return Err(format!("it multiplies f16 and bf16, not {}", problem.input));
        }
        let Shapes::Rows { rows, n, k } = &problem.shapes else {
            return Err("it takes groups that differ in their rows alone".into());
        };
        if *k == 0 || !k.is_multiple_of(8) {
            return Err("tensor copies need rows that start at multiples of 16 bytes".into());
        }
        let below = rows.len() as u64 * u64::from(*n);
        if below > i32::MAX as u64 {
            return Err("its right matrices have more rows than a tensor copy can count".into());
        }
        // To be asked for by name until it is measured.
        Ok(0)
    }

    fn job(
        &self,
        problem: &Grouped,
        schedule: Option<&Schedule>,
        target: Target,
    ) -> Result<Job, KernelError> {
        problem.check_shapes()?;
        let job = Job::new(
            format!("grouped-gemm {problem} {}", self.name()),
            work(problem),
        );
        let (Shapes::Rows { rows, n, k }, Some(element)) =
            (&problem.shapes, tensor_element(problem.input))
        else {
            return Err(KernelError::unfit("ask first whether it suits"));
        };
        let tiles = tiles_of(problem, ROWS, COLS);
        let total: u64 = rows.iter().map(|&m| u64::from(m)).sum();
        if tiles.count() == 0 || total == 0 {
            return Ok(job);
        }
        let own = self::schedule(target);
        let schedule = schedule.unwrap_or(&own);
        let kernel = match problem.input {
            Input::F16 => build::<f16>(problem, *n, tiles, schedule, target.arch)?,
            _ => build::<bf16>(problem, *n, tiles, schedule, target.arch)?,
        };
        let launch = kernel.plan(target.resident(&kernel.built.launch, 168))?;
        let (_, ends) = places(problem);
        let below = rows.len() as u64 * u64::from(*n);
        let params = [
            map("a", element, total, *k, *k, ROWS),
            map("b", element, below, *k, *k, COLS),
        ]
        .into_iter()
        .chain(["d", "shapes", "places", "record"].map(buffer))
        .chain([problem.len() as u32, *n, *k].map(Arg::scalar))
        .chain(ends.map(Arg::scalar));
        Ok(job.step(Step::tiled(&kernel, &launch, params)))
    }
}
