//! The variant that attends on tensor memory.

use super::block::{Rings, Roles};
use super::shape::{ROWS, THREADS, TensorShape};
use crate::KernelError;
use crate::attention::cache::Cache;
use crate::attention::kernel::{buffers, contents, heads_at_once};
use crate::attention::order::HeaviestFirst;
use crate::attention::params::Element;
use crate::attention::problem::{Dtype, Mask, Problem};
use crate::attention::score::{Modified, Parameters, Scores, Scoring};
use crate::attention::warpgroup::{WarpgroupArgs, arguments};
use crate::blackwell::no_tcgen05;
use crate::family::{Target, Variant};
use crate::job::Step;
use crate::plan::LaunchPlan;
use heist_builder::{Arch, BuildError, TensorInput, With, bf16, f16};
use heist_launch::{Arg, Buffer, Dim3};
use heist_sched::{AnyOrder, Schedule, Submit, TileSource, Tiled, TiledKernel};

/// `tcgen05` fed by the copy engine.
pub(in crate::attention) struct Tcgen05;

fn build<P: Parameters<WarpgroupArgs>, T: Element + TensorInput<Stored = T>>(
    shape: TensorShape,
    scoring: &Scoring,
    schedule: &Schedule,
    arch: Arch,
) -> Result<TiledKernel<P>, BuildError> {
    // Some grid with three axes: the launch has the real one.
    Tiled::<P>::new("attention_tcgen05", Dim3::new(2, 2, 2))
        .schedule(schedule)
        .block(THREADS)
        .min_blocks(1)
        .build(arch, |k, args, tiles| {
            let (args, tables) = P::parts(args);
            let rings = Rings::new(k, &shape);
            k.tensor_memory(|memory| {
                let changes = Scores { scoring, tables };
                let roles = Roles::<T>::new(k, shape, changes, &rings, memory);
                let done = tiles.each_ahead(
                    |tile| roles.tile(&args, &tile.position()),
                    |next| roles.begin(&args, &next.position()),
                );
                roles.finish();
                done
            })
        })
}

/// The tiles of a problem: rows along x, heads along y, sequences along z.
fn tiles(problem: &Problem) -> Dim3 {
    let (queries, _) = problem.longest();
    let sequences = problem.sequences().len() as u32;
    Dim3::new(queries.div_ceil(ROWS), problem.heads, sequences)
}

/// The schedule that suits. A grid of one wave is launched directly. In a larger one blocks ask the
/// hardware for each tile, early: the next tile's queries and first keys come while this one is
/// worked on. Where tiles are uneven the heaviest go first.
pub fn tensor_schedule(problem: &Problem, target: Target) -> Schedule {
    let source = match tiles(problem).count() <= u64::from(target.sms) {
        true => TileSource::Direct,
        false => TileSource::Clc,
    };
    let mut schedule = Schedule::new(source).submit(Submit::Early);
    if problem.is_ragged() || problem.mask == Mask::Causal {
        schedule.order = AnyOrder::new(HeaviestFirst {
            heads: heads_at_once(problem),
        });
    }
    schedule
}

impl Variant for Tcgen05 {
    type Problem = Problem;

    fn name(&self) -> &'static str {
        "tcgen05"
    }

    fn about(&self) -> &'static str {
        "Blackwell's own tensor cores: scores, weights and results in tensor memory, a warp that copies"
    }

    fn suits(&self, problem: &Problem, target: Target) -> Result<u32, String> {
        problem.check().map_err(|error| error.to_string())?;
        if let Some(why) = no_tcgen05(target) {
            return Err(why);
        }
        problem
            .has_whole_steps()
            .map_err(|error| error.to_string())?;
        problem.not_paged().map_err(|error| error.to_string())?;
        problem.is_square().map_err(|error| error.to_string())?;
        problem
            .sees_all_blocks()
            .map_err(|error| error.to_string())?;
        if problem.cache != Cache::Same {
            return Err("keys of 8 bits are for decoding: it multiplies halves".into());
        }
        if problem.longest().1 == 0 {
            return Err("without keys there is nothing to copy".into());
        }
        Ok(6)
    }

    fn contents(&self, problem: &Problem, buffer: &str) -> Option<Buffer> {
        contents(problem)(buffer)
    }

    fn plan(
        &self,
        problem: &Problem,
        given: Option<&Schedule>,
        target: Target,
    ) -> Result<LaunchPlan, KernelError> {
        let own = tensor_schedule(problem, target);
        let schedule = given.unwrap_or(&own);
        let shape = TensorShape::suited(problem, target.arch).under(schedule);
        tensor_plan(problem, shape, schedule, target)
    }
}

/// Builds the kernel of a shape and plans its launch, over buffers as those of
/// [`job`](crate::attention::job).
///
/// # Errors
/// What does not fit, and why.
pub fn tensor_plan(
    problem: &Problem,
    shape: TensorShape,
    schedule: &Schedule,
    target: Target,
) -> Result<LaunchPlan, KernelError> {
    Tcgen05.suits(problem, target).map_err(KernelError::unfit)?;
    shape.check(target.arch)?;
    let args = arguments(problem, shape.mask, [ROWS, shape.keys])?;
    let name = format!("attention {problem}: {shape}");
    let plan = buffers(LaunchPlan::new(name, "tcgen05", problem.work()), problem);
    let step = match problem.scoring.is_plain() {
        true => step::<WarpgroupArgs>(problem, shape, schedule, target, args),
        false => step::<Modified<WarpgroupArgs>>(problem, shape, schedule, target, args),
    };
    Ok(plan.step(step?))
}

/// The launch of a shape.
fn step<P: Parameters<WarpgroupArgs>>(
    problem: &Problem,
    shape: TensorShape,
    schedule: &Schedule,
    target: Target,
    args: WarpgroupArgs<With<Arg>>,
) -> Result<Step, KernelError> {
    let scoring = &problem.scoring;
    let kernel = match problem.dtype {
        Dtype::F16 => build::<P, f16>(shape, scoring, schedule, target.arch),
        Dtype::Bf16 => build::<P, bf16>(shape, scoring, schedule, target.arch),
    }?;
    // One block a multiprocessor: it may take all of the tensor memory.
    let launch = kernel.plan_for(tiles(problem), target.resident(&kernel.built.launch, 255))?;
    let args = P::join(args, scoring.args("q_starts"));
    Ok(Step::tiled(&kernel, &launch, args))
}
