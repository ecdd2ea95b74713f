//! The kernel and the variant that multiply groups on Blackwell's tensor cores.
//!
//! Tiles go through a block as those of one multiplication do ([`Pipeline`]): while the sums of one
//! are stored, the next one is multiplied, of whatever group it is. A warp whose 32 rows are all of the
//! tile's group has the copy engine store them; behind the end of a group threads store what is inside.

use super::data::places;
use super::kernel::tiles_of;
use super::problem::{Grouped, work};
use super::schedule::schedule as usual;
use super::stacked::{Cut, Groups, known, maps, refusal};
use crate::blackwell::{
    Factors, Origin, Pipeline, Staging, TensorTiling, TileEpilogue, no_tcgen05, result_map, ring,
    store_by_threads, suited,
};
use crate::error::KernelError;
use crate::family::{Target, Variant};
use crate::gemm::warpgroup::Peers;
use crate::gemm::{Epilogue, Finish, Input, Major, Output, Scales, Stored};
use crate::job::{Step, buffer};
use crate::plan::LaunchPlan;
use heist_builder::{
    Arch, BuildError, Global, Kernel, OneBlock, TensorInput, TensorMap, TensorSums, bf16, f16,
    kernel_params,
};
use heist_launch::Dim3;
use heist_sched::{Schedule, Tiled, TiledKernel};
use std::marker::PhantomData;

kernel_params! {
    /// The kernel's parameters.
    pub(crate) struct TensorGroupArgs {
        /// The rows of all groups.
        a: TensorMap<f16, 3>,
        /// The right matrices.
        b: TensorMap<f16, 3>,
        /// The results, where the copy engine stores them.
        out: TensorMap<f16, 3>,
        /// The results.
        d: Global<u8>,
        /// Where each group's rows end, or how many it uses.
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
        /// Rows that there is room for in every group, where they are masked.
        room: u32,
        /// Elements of A, for the check.
        a_len: u64,
        /// Of B.
        b_len: u64,
        /// Of D.
        d_len: u64,
    }
}

/// Everything that is fixed when a kernel is built.
#[derive(Clone, Copy, Debug)]
struct Form {
    tiling: TensorTiling,
    cut: Cut,
    finish: Finish,
    /// Whether rows of the result start at multiples of 16 bytes, as the copy engine wants.
    aligned: bool,
}

fn build<H: TensorInput, O: Stored>(
    form: &Form,
    tiles: Dim3,
    schedule: &Schedule,
    arch: Arch,
) -> Result<TiledKernel<TensorGroupArgs>, BuildError> {
    let Form { tiling, cut, .. } = form;
    Tiled::<TensorGroupArgs>::new("grouped_gemm_tcgen05", tiles)
        .schedule(schedule)
        .block(tiling.threads())
        .min_blocks(1)
        .build(arch, |k, args, tiles| {
            let groups = Groups::new(k, known!(args), [args.a, args.b], *cut);
            let ring = ring::<H, OneBlock>(k, tiling, [Major::Depth, cut.b_major]);
            let staging = form.aligned.then(|| Staging::new(k, args.out));
            k.tensor_memory(|memory| {
                let results = Results::<O> {
                    k: *k,
                    form,
                    groups: &groups,
                    staging,
                    stored: PhantomData,
                };
                let pipeline = Pipeline::<_, _, H>::new(k, tiling, &ring, memory, results);
                let factors = |[left, right]: [_; 2]| Factors {
                    left,
                    right,
                    peers: Peers::first(k, 1),
                    scales: (),
                    steps: args.k.div_ceil(64u32),
                };
                let body = |tile| {
                    groups.locate(tile, |found, sides| {
                        let at = Origin {
                            row: found.row,
                            col: sides[1].first,
                            number: found.group,
                        };
                        groups.if_good(found, at.col, || {
                            pipeline.tile(factors(sides), at);
                        });
                    });
                };
                let done = match cut.check {
                    // No copy is issued before the tile has passed the check.
                    true => tiles.each(body),
                    false => tiles.each_ahead(body, |next| {
                        groups.locate(next, |_, sides| pipeline.begin(factors(sides)));
                    }),
                };
                pipeline.finish();
                done
            })
        })
}

/// The results inside the kernel.
struct Results<'r, 'k, O> {
    k: Kernel<'k>,
    form: &'r Form,
    groups: &'r Groups<'k>,
    staging: Option<Staging<'k>>,
    stored: PhantomData<fn() -> O>,
}

impl<'k, O: Stored> TileEpilogue<'k> for Results<'_, 'k, O> {
    /// Of the tile at a row and column of a group.
    fn store(&self, sums: &TensorSums<'k>, at: Origin<'k>) {
        let (k, finish) = (self.k, &self.form.finish);
        let to = self.groups.to::<O>(at.number, [at.row, at.col]);
        let by_threads = || store_by_threads(&k, finish, sums, &to);
        let (Some(staging), Some(inside)) = (self.staging, to.rows) else {
            return by_threads();
        };
        let end = sums.row() - k.lane() + 32;
        let by_copies = || {
            let stacked = Origin {
                row: self.groups.begin(at.number) + at.row,
                number: k.c(0),
                ..at
            };
            staging.store(finish, sums, stacked, &to);
        };
        k.if_else(end.le(inside), by_copies, by_threads);
    }

    fn finish(&self) {
        self.staging.iter().for_each(Staging::finish);
    }
}

type Build = fn(&Form, Dim3, &Schedule, Arch) -> Result<TiledKernel<TensorGroupArgs>, BuildError>;

fn with_output<H: TensorInput>(output: Output) -> Build {
    match output {
        Output::F16 => build::<H, f16>,
        Output::Bf16 => build::<H, bf16>,
        Output::F32 => build::<H, f32>,
    }
}

/// The launch in tiles of this shape; `None` where there is nothing to do.
fn step(
    problem: &Grouped,
    tiling: &TensorTiling,
    schedule: &Schedule,
    target: Target,
) -> Result<Option<Step>, KernelError> {
    problem.check_shapes()?;
    let Some(alike) = problem.alike() else {
        return Err(KernelError::unfit("ask first whether it suits"));
    };
    let (n, k) = (alike.n, alike.k);
    let tiles = tiles_of(problem, tiling.rows(), tiling.cols);
    let total = alike.total();
    if tiles.count() == 0 || total == 0 {
        return Ok(None);
    }
    let bytes = problem.output.element().bytes() as u32;
    let form = Form {
        tiling: *tiling,
        cut: Cut::new(problem, n, [tiling.rows(), tiling.cols], false),
        finish: Finish::new(&Epilogue::default(), Scales::None, n),
        aligned: (n * bytes).is_multiple_of(16),
    };
    let build = match problem.input {
        Input::F16 => with_output::<f16>(problem.output),
        _ => with_output::<bf16>(problem.output),
    };
    let kernel = build(&form, tiles, schedule, target.arch)?;
    let launch = kernel.plan(target.resident(&kernel.built.launch, 255))?;
    let (_, [a_len, b_len, d_len]) = places(problem);
    let [a, b] = maps(problem, ["a", "b"], alike, &form.cut, tiling.depth());
    let args = TensorGroupArgs {
        out: match form.aligned {
            true => result_map(problem.output, [n, total as u32, 1], n),
            // The kernel does not look at it.
            false => a.clone(),
        },
        a,
        b,
        d: buffer("d"),
        shapes: buffer("shapes"),
        places: buffer(if problem.check { "places" } else { "shapes" }),
        record: buffer(if problem.check { "record" } else { "shapes" }),
        groups: problem.len() as u32,
        n,
        k,
        room: alike.room.unwrap_or(0),
        a_len,
        b_len,
        d_len,
    };
    Ok(Some(Step::tiled(&kernel, &launch, args)))
}

/// `tcgen05` fed by the copy engine, in tiles that suit the groups.
#[derive(Debug)]
pub(super) struct Tcgen05;

impl Tcgen05 {
    /// The tiles of one block whose estimated time is the lowest.
    fn tiling(problem: &Grouped, target: Target) -> TensorTiling {
        let groups = problem.groups();
        let depth = groups.iter().map(|group| group.k).max().unwrap_or(0);
        let count = |tiling: &TensorTiling| {
            let of = |group: &super::Group| {
                u64::from(group.m.div_ceil(tiling.rows()))
                    * u64::from(group.n.div_ceil(tiling.cols))
            };
            groups.iter().map(of).sum()
        };
        suited(depth * problem.input.bytes(), count, target)
    }
}

impl Variant for Tcgen05 {
    type Problem = Grouped;

    fn name(&self) -> &'static str {
        "tcgen05"
    }

    fn about(&self) -> &'static str {
        "tcgen05 and tensor copies, sums in tensor memory: Blackwell, groups of the same n and k"
    }

    fn suits(&self, problem: &Grouped, target: Target) -> Result<u32, String> {
        match no_tcgen05(target).or_else(|| refusal(problem, &[Input::F16, Input::Bf16])) {
            Some(why) => Err(why),
            // `mma.sync` has a fraction of the rate on the GPUs that have tcgen05.
            None => Ok(u32::MAX),
        }
    }

    fn plan(
        &self,
        problem: &Grouped,
        schedule: Option<&Schedule>,
        target: Target,
    ) -> Result<LaunchPlan, KernelError> {
        self.suits(problem, target).map_err(KernelError::unfit)?;
        let tiling = Tcgen05::tiling(problem, target);
        let text = format!("grouped-gemm {problem} {tiling}");
        let plan = LaunchPlan::new(text, self.name(), work(problem));
        let own = usual(target);
        let step = step(problem, &tiling, schedule.unwrap_or(&own), target)?;
        Ok(step.into_iter().fold(plan, LaunchPlan::step))
    }
}
