//! The kernel and the variant that multiply groups on Hopper's warpgroups.
//!
//! Groups that differ in their rows alone are one matrix A to the copy engine, in
//! which a group is a row to begin at, and as many matrices B as there are groups.
//! A tile may also load rows of the next group; they are not stored.

use super::check;
use super::data::places;
use super::kernel::{GroupedArgs, tiles_of};
use super::problem::{Grouped, Shapes, work};
use super::schedule::schedule as usual;
use super::table::{Described, Found, Table};
use crate::error::KernelError;
use crate::family::{Target, Variant};
use crate::gemm::warpgroup::{Ends, Factors, Levels, Matrices, Side, ring};
use crate::gemm::{
    Epilogue, Finish, Input, Load, Major, Output, Scales, Stored, Tiling, To, left, tensor_element,
};
use crate::job::{Job, Step, buffer};
use heist_builder::{
    Arch, BuildError, Feature, Global, Half, MmaInput, On, TensorMap, bf16, f16, kernel_params,
};
use heist_launch::Dim3;
use heist_sched::{Schedule, Tile, Tiled, TiledKernel};

kernel_params! {
    /// The kernel's parameters.
    pub(crate) struct WgmmaArgs {
        /// The rows of all groups.
        a: TensorMap<f16, 3>,
        /// The right matrices.
        b: TensorMap<f16, 3>,
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
    tiling: &Tiling,
    n: u32,
    tiles: Dim3,
    schedule: &Schedule,
    arch: Arch,
) -> Result<TiledKernel<WgmmaArgs>, BuildError> {
    match problem.output {
        Output::F16 => build_typed::<H, f16>(problem, tiling, n, tiles, schedule, arch),
        Output::Bf16 => build_typed::<H, bf16>(problem, tiling, n, tiles, schedule, arch),
        Output::F32 => build_typed::<H, f32>(problem, tiling, n, tiles, schedule, arch),
    }
}

fn build_typed<H: Half + MmaInput, O: Stored>(
    problem: &Grouped,
    tiling: &Tiling,
    n: u32,
    tiles: Dim3,
    schedule: &Schedule,
    arch: Arch,
) -> Result<TiledKernel<WgmmaArgs>, BuildError> {
    let finish = Finish::new(&Epilogue::default(), Scales::None, n);
    let even_cols = n.is_multiple_of(tiling.cols);
    let capacity = (problem.len() as u32).next_power_of_two().max(32);
    Tiled::<WgmmaArgs>::new("grouped_gemm_wgmma", tiles)
        .schedule(schedule)
        .block(tiling.threads())
        .min_blocks(tiling.blocks)
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
            let table = Table::new(k, &known, Described::Rows, capacity, tiling.rows);
            let ring = ring(k, tiling, [Major::Depth, problem.layout.b()]);
            let ends = Ends::new(k, tiling, &ring, [args.a, args.b]);
            let groups = Groups {
                args: &args,
                known: &known,
                table,
                tiling: *tiling,
                b_major: problem.layout.b(),
            };
            let body = |tile| {
                groups.locate(tile, |found, factors| {
                    let col0 = factors.right.first;
                    let run = || {
                        ends.tile::<H>(factors, Levels::One, |sums, row| {
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
                                scales: None,
                            };
                            finish.store(k, sums, &to);
                        });
                    };
                    if problem.check {
                        let member = Described::Rows.member(&known, found.group);
                        k.if_(check::good(k, &known, &found, &member, col0), run);
                    } else {
                        run();
                    }
                });
            };
            let done = if problem.check {
                // No copy is issued before the tile has passed the check.
                tiles.each(body)
            } else {
                let begin = |tile| groups.locate(tile, |_, factors| ends.begin(factors));
                tiles.each_ahead(body, begin)
            };
            ends.finish();
            done
        })
}

/// The groups inside the kernel.
struct Groups<'r, 'k> {
    args: &'r WgmmaArgs<On<'k>>,
    known: &'r GroupedArgs<On<'k>>,
    table: Table<'k>,
    tiling: Tiling,
    b_major: Major,
}

impl<'k> Groups<'_, 'k> {
    /// Runs `each` where a tile is some group's: with that group, and where the
    /// tile's rows of A and columns of B are.
    fn locate(&self, tile: Tile<'k>, each: impl Fn(Found<'k>, Factors<'k>)) {
        let k = tile.x.kernel();
        let found = self.table.find(tile.y);
        k.if_(found.inside, || {
            let [across, ..] = tile.grid();
            let (found, col) = self.table.down_first(found, [tile.x, tile.y], across);
            let left = Side {
                map: self.args.a,
                major: Major::Depth,
                number: k.c(0),
                first: Described::Rows.begin(self.known, found.group) + found.row,
                span: 64,
            };
            let right = Side {
                map: self.args.b,
                major: self.b_major,
                number: found.group,
                first: col * self.tiling.cols,
                span: 64,
            };
            let factors = Factors {
                left,
                right,
                from: k.c(0),
                steps: (self.args.k + (self.tiling.depth - 1)) / self.tiling.depth,
            };
            each(found, factors);
        });
    }
}

/// `wgmma` fed by the copy engine, in tiles of one shape.
#[derive(Debug)]
pub(super) struct Wgmma {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    pub(super) tiling: Tiling,
}

impl Variant for Wgmma {
    type Problem = Grouped;

    fn name(&self) -> &'static str {
        self.name
    }

    fn about(&self) -> &'static str {
        self.about
    }

    fn suits(&self, problem: &Grouped, target: Target) -> Result<u32, String> {
        if !target.arch.supports(Feature::Wgmma) {
            return Err(format!("{} has no wgmma: it needs sm_90a", target.arch));
        }
        if !matches!(problem.input, Input::F16 | Input::Bf16) {
            return Err(format!("it multiplies f16 and bf16, not {}", problem.input));
        }
        let Shapes::Rows { rows, n, k } = &problem.shapes else {
            return Err("it takes groups that differ in their rows alone".into());
        };
        let pitch = match problem.layout.b() {
            Major::Depth => *k,
            Major::Outer => *n,
        };
        if *k == 0 || !(k.is_multiple_of(8) && pitch.is_multiple_of(8)) {
            return Err("tensor copies need rows that start at multiples of 16 bytes".into());
        }
        let tiles: u64 = rows
            .iter()
            .map(|m| u64::from(m.div_ceil(self.tiling.rows)))
            .sum::<u64>()
            * u64::from(n.div_ceil(self.tiling.cols));
        let load = Load {
            units: tiles as f64,
            steps: f64::from(k.div_ceil(self.tiling.depth)),
            fetched: self.tiling.rows + self.tiling.cols,
            bytes: work(problem).bytes,
            astride: !k.is_multiple_of(64),
        };
        // Wherever it can, it is ahead of `mma.sync`; among its shapes the fastest.
        Ok(u32::MAX - (load.time(&self.tiling, target) * 100.0).min(1e9) as u32)
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
        let element = tensor_element(problem.input);
        let Shapes::Rows { rows, n, k } = &problem.shapes else {
            return Err(KernelError::unfit("ask first whether it suits"));
        };
        let tiles = tiles_of(problem, self.tiling.rows, self.tiling.cols);
        let total: u64 = rows.iter().map(|&m| u64::from(m)).sum();
        if tiles.count() == 0 || total == 0 {
            return Ok(job);
        }
        let own = usual(target);
        let schedule = schedule.unwrap_or(&own);
        let kernel = match problem.input {
            Input::F16 => build::<f16>(problem, &self.tiling, *n, tiles, schedule, target.arch)?,
            _ => build::<bf16>(problem, &self.tiling, *n, tiles, schedule, target.arch)?,
        };
        let launch = kernel.plan(target.resident(&kernel.built.launch, self.tiling.registers()))?;
        let (_, [a_len, b_len, d_len]) = places(problem);
        let a = Matrices {
            element,
            major: Major::Depth,
            outer: total,
            depth: *k,
            pitch: *k,
            count: 1,
        };
        let major = problem.layout.b();
        let b = Matrices {
            major,
            outer: (*n).into(),
            pitch: match major {
                Major::Depth => *k,
                Major::Outer => *n,
            },
            count: problem.len() as u32,
            ..a
        };
        let args = WgmmaArgs {
            a: a.map("a", self.tiling.rows, self.tiling.depth),
            b: b.map("b", self.tiling.cols, self.tiling.depth),
            d: buffer("d"),
            shapes: buffer("shapes"),
            places: buffer("places"),
            record: buffer("record"),
            groups: problem.len() as u32,
            n: *n,
            k: *k,
            a_len,
            b_len,
            d_len,
        };
        Ok(job.step(Step::tiled(&kernel, &launch, args)))
    }
}
