//! The variant that attends on Hopper's warpgroups.

use super::WarpgroupArgs;
use super::block::{Ends, Rings};
use super::heuristics::{self, warpgroup_schedule, warpgroup_shape};
use super::list::{self, ListArgs, TileList};
use super::seen::{self, Lines};
use super::shape::{Sharing, WarpgroupShape};
use super::staying::{entries, strips};
use crate::attention::kernel::{Strides, buffers, contents, log_sum_strides, window};
use crate::attention::panels::PANEL;
use crate::attention::problem::{Dtype, Layout, Lengths, MaskKind, Problem};
use crate::attention::score::{Modified, Parameters, Scores, Scoring};
use crate::attention::views::{Input, View};
use crate::built::built;
use crate::family::{Target, Variant};
use crate::job::buffer;
use crate::overlap::{overlap, tiles_a_leave};
use crate::plan::{LaunchPlan, Purpose};
use crate::{Job, KernelError, Step};
use heist_builder::{Arch, BuildError, BuiltKernel, Feature, KernelSpec, With, bf16, f16};
use heist_launch::{
    Arg, Buffer, BufferRef, Dim3, ElementType, L2Promotion, Swizzle, TensorElement, TensorMap,
};
use heist_sched::{Policy, Schedule, TileSource, Tiled, TiledKernel};

/// `wgmma` fed by the copy engine.
pub(in crate::attention) struct Wgmma;

/// The kernel with blocks that stay.
fn build_staying<P: Parameters<WarpgroupArgs>>(
    shape: WarpgroupShape,
    dtype: Dtype,
    scoring: &Scoring,
    arch: Arch,
) -> Result<BuiltKernel<P>, BuildError> {
    let mut spec = KernelSpec::<P>::new("attention_wgmma")
        .block(shape.threads())
        .min_blocks(shape.resident());
    if shape.sharing.is_some() {
        spec = spec.cluster([shape.sharing.blocks(), 1, 1]);
    }
    spec.build(arch, |k, args| {
        let (args, tables) = P::parts(args);
        let scores = Scores { scoring, tables };
        let mut rings = None;
        let room = &mut rings;
        let ends = k.barriers_together(move || {
            let rings = room.insert(Rings::new(k, &shape));
            Ends::new(k, shape, scores, rings, None)
        });
        if shape.overlaps(scoring) {
            overlap(k);
        }
        match dtype {
            Dtype::F16 => ends.stay::<f16>(&args),
            Dtype::Bf16 => ends.stay::<bf16>(&args),
        }
        ends.finish();
    })
}

/// Microseconds that a tile takes over so many keys, on an H200 that others visit.
fn tile_time(keys: u32) -> f64 {
    f64::from(keys) * 250.0 / 16_384.0
}

fn build<P: Parameters<WarpgroupArgs>>(
    shape: WarpgroupShape,
    dtype: Dtype,
    scoring: &Scoring,
    schedule: &Schedule,
    arch: Arch,
) -> Result<TiledKernel<P>, BuildError> {
    // Some grid with three axes: the launch has the real one.
    Tiled::<P>::new("attention_wgmma", Dim3::new(2, 2, 2))
        .schedule(schedule)
        .state(shape.state_words())
        .block(shape.threads())
        .min_blocks(1)
        .build(arch, |k, args, tiles| {
            let (args, tables) = P::parts(args);
            let rings = Rings::new(k, &shape);
            let scores = Scores { scoring, tables };
            let ends = Ends::new(k, shape, scores, &rings, tiles.pause());
            let done = tiles.each(|tile| {
                let at = tile.position();
                match (dtype, shape.listed) {
                    (Dtype::F16, None) => ends.strip::<f16>(&args, &at),
                    (Dtype::F16, Some(heads)) => ends.listed::<f16>(&args, &at, heads),
                    (Dtype::Bf16, None) => ends.strip::<bf16>(&args, &at),
                    (Dtype::Bf16, Some(heads)) => ends.listed::<bf16>(&args, &at, heads),
                }
            });
            ends.finish();
            done
        })
}

/// The map of a tensor with so many heads, rows of a sequence, or of all packed ones, and elements
/// of a head, in boxes of `high` rows of one head, which lie as `view` says.
pub(in crate::attention) fn map(
    name: &str,
    problem: &Problem,
    [heads, length, elements]: [u32; 3],
    view: View,
    high: u32,
) -> Arg {
    let element = match problem.dtype {
        Dtype::F16 => TensorElement::F16,
        Dtype::Bf16 => TensorElement::Bf16,
    };
    let sequences = match problem.lengths {
        Lengths::Same { batch, .. } => batch,
        Lengths::Each(_) => 1,
    };
    let (dim, sequences) = (elements.into(), sequences.into());
    let (heads, length) = (heads.into(), length.into());
    // Packed sequences are one.
    let batch = match sequences {
        1 => view.row * length,
        _ => view.batch,
    };
    let (dims, strides, boxed) = match problem.layout {
        Layout::Heads => (
            [dim, length, heads, sequences],
            [view.row, view.head, batch],
            [PANEL, high, 1, 1],
        ),
        Layout::Rows => (
            [dim, heads, length, sequences],
            [view.head, view.row, batch],
            [PANEL, 1, high, 1],
        ),
    };
    let buffer = BufferRef::Named(name.to_owned());
    let mut map = TensorMap::dense(buffer, element, &dims, &boxed);
    map.l2 = L2Promotion::Bytes256;
    map.strides = strides.map(|stride| element.bytes_of(stride)).to_vec();
    Arg::TensorMap(map.swizzle(Swizzle::Bytes128))
}

impl Variant for Wgmma {
    type Problem = Problem;

    fn name(&self) -> &'static str {
        "wgmma"
    }

    fn about(&self) -> &'static str {
        "Hopper's own tensor cores: warpgroups that multiply from shared memory, a warp that copies"
    }

    fn suits(&self, problem: &Problem, target: Target) -> Result<u32, String> {
        problem.check().map_err(|error| error.to_string())?;
        if !target.arch.supports(Feature::Wgmma) {
            return Err(format!("{} has no wgmma: it needs sm_90a", target.arch));
        }
        problem.not_paged().map_err(|error| error.to_string())?;
        if problem.longest().1 == 0 {
            return Err("without keys there is nothing to copy".into());
        }
        Ok(heuristics::rank(problem, target))
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
        let own = warpgroup_schedule(problem, target);
        let shape = warpgroup_shape(problem, target);
        let shape = given.map_or(shape, |given| shape.under(given, &problem.scoring));
        warpgroup_plan(problem, shape, given.unwrap_or(&own), target)
    }
}

/// Builds the kernel of a shape and plans its launch, over buffers as those of
/// [`job`](crate::attention::job).
///
/// # Errors
/// What does not fit, and why.
pub fn warpgroup_job(
    problem: &Problem,
    shape: WarpgroupShape,
    schedule: &Schedule,
    target: Target,
) -> Result<Job, KernelError> {
    Ok(warpgroup_plan(problem, shape, schedule, target)?.job(contents(problem)))
}

/// The same without data.
///
/// # Errors
/// What does not fit, and why.
pub fn warpgroup_plan(
    problem: &Problem,
    shape: WarpgroupShape,
    schedule: &Schedule,
    target: Target,
) -> Result<LaunchPlan, KernelError> {
    Wgmma.suits(problem, target).map_err(KernelError::unfit)?;
    let shape = WarpgroupShape {
        interprets: schedule.policy.loaded().is_some(),
        ..shape
    };
    shape.check()?;
    if shape.stay.is_some() && schedule.source != TileSource::Direct {
        return Err(KernelError::unfit(format!(
            "{shape}: blocks that stay take their tiles by themselves, not by {schedule}"
        )));
    }
    if shape.pausing != schedule.pausing {
        return Err(KernelError::unfit(format!(
            "{shape}: built for a schedule that pauses, or not, and given {schedule}"
        )));
    }
    let strips = strips(problem, &shape);
    let [left, right] = window(problem.mask, shape.mask)?.into();
    let lines = Lines::of(problem, &shape);
    let args = WarpgroupArgs::<With<Arg>> {
        list: buffer(if shape.listed.is_some() {
            "list"
        } else {
            "q_starts"
        }),
        lines: buffer(if shape.seen { "lines" } else { "q_starts" }),
        line_batch: lines.batch,
        line_head: lines.head,
        line: lines.words,
        tiles: match shape.listed {
            Some(_) => strips.y,
            None => strips.x,
        },
        count: strips.count() as u32,
        ..arguments(problem, shape.mask, [shape.rows(), shape.keys])?
    };
    let name = format!("attention {problem}: {shape}");
    let mut plan = buffers(LaunchPlan::new(name, "wgmma", problem.work()), problem);
    if let Some(heads) = shape.listed {
        if heads == 0 || !problem.heads.is_multiple_of(heads) {
            return Err(KernelError::unfit(format!(
                "{shape}: a divisor of {} query heads goes through the list at a time",
                problem.heads
            )));
        }
        plan = listed(plan, problem, &shape, [left, right], target)?;
    }
    if shape.seen {
        plan = seen::listed(plan, problem, &shape, [left, right], target)?;
    } else if let Some(blocks) = problem.scoring.blocks {
        return Err(KernelError::unfit(format!(
            "{shape}: a mask of blocks of {blocks} wants the list of the blocks that are seen"
        )));
    }
    let step = match problem.scoring.is_plain() {
        true => step::<WarpgroupArgs>(problem, shape, schedule, strips, target, args),
        false => step::<Modified<WarpgroupArgs>>(problem, shape, schedule, strips, target, args),
    };
    Ok(plan.step(step?))
}

/// What a kernel fed by the copy engine is given, in tiles of so many rows and blocks of so many
/// keys, without a list of tiles.
pub(in crate::attention) fn arguments(
    problem: &Problem,
    mask: MaskKind,
    [rows, block]: [u32; 2],
) -> Result<WarpgroupArgs<With<Arg>>, KernelError> {
    let (queries, keys) = problem.longest();
    let (left, right) = window(problem.mask, mask)?;
    let out = Strides::of_results(problem)?;
    let (dim, value_dim) = (problem.head_dim, problem.value_dim());
    let (q_rows, k_rows) = match problem.lengths {
        Lengths::Same { .. } => (queries, keys),
        Lengths::Each(_) => {
            let (q, k) = problem.rows();
            (q as u32, k as u32)
        }
    };
    let (lse_batch, lse_head) = log_sum_strides(problem);
    let (kv_heads, views) = (
        problem.kv_heads,
        Input::ALL.map(|input| problem.view(input)),
    );
    Ok(WarpgroupArgs::<With<Arg>> {
        q: map("q", problem, [problem.heads, q_rows, dim], views[0], rows),
        k: map("k", problem, [kv_heads, k_rows, dim], views[1], block),
        v: map("v", problem, [kv_heads, k_rows, value_dim], views[2], block),
        out: buffer("out"),
        lse: buffer("lse"),
        q_starts: buffer("q_starts"),
        k_starts: buffer("k_starts"),
        list: buffer("q_starts"),
        lines: buffer("q_starts"),
        q_len: queries,
        k_len: keys,
        q_batch: out.batch,
        q_row: out.row,
        q_head: out.head,
        lse_batch,
        lse_head,
        group: problem.heads / problem.kv_heads,
        left,
        right,
        scale: problem.scoring.scale(problem.scale()),
        tiles: queries.div_ceil(rows),
        heads: problem.heads,
        count: 0,
        line_batch: 0,
        line_head: 0,
        line: 0,
    })
}

/// The same with the list of tiles, and the launch that writes it.
fn listed(
    plan: LaunchPlan,
    problem: &Problem,
    shape: &WarpgroupShape,
    [left, right]: [i32; 2],
    target: Target,
) -> Result<LaunchPlan, KernelError> {
    let entries = entries(problem, shape);
    let (_, keys) = problem.longest();
    let kernel = TileList {
        height: shape.rows(),
        keys: shape.keys,
        mask: shape.mask,
        most_blocks: keys.div_ceil(shape.keys),
    }
    .build(target.arch)?;
    let args = ListArgs::<With<Arg>> {
        q_starts: buffer("q_starts"),
        k_starts: buffer("k_starts"),
        list: buffer("list"),
        sequences: problem.sequences().len() as u32,
        entries,
        left,
        right,
    };
    let words = entries as usize * list::WORDS as usize;
    Ok(plan
        .buffer("list", Purpose::Workspace, ElementType::U32, words)
        .step(Step::plain(&kernel, 1, args)))
}

/// The launch of a shape.
fn step<P: Parameters<WarpgroupArgs>>(
    problem: &Problem,
    shape: WarpgroupShape,
    schedule: &Schedule,
    strips: Dim3,
    target: Target,
    args: WarpgroupArgs<With<Arg>>,
) -> Result<Step, KernelError> {
    let scoring = &problem.scoring;
    let args = P::join(args, scoring.args("q_starts"));
    let (dtype, arch) = (problem.dtype, target.arch);
    let key = format!("{shape:?} {dtype:?} {arch} {}", scoring.key());
    Ok(match shape.stay {
        Some(stay) => {
            let kernel = built(&key, || build_staying::<P>(shape, dtype, scoring, arch))?;
            let blocks = match shape.sharing {
                Sharing::None => strips.count().min(stay.blocks.into()) as u32,
                sharing => sharing.blocks() * strips.count() as u32,
            };
            let mut step = Step::shared(&kernel, blocks, args);
            // Of more rounds the next launch's blocks, dealt as these end, gain nothing and lose up to
            // 4 in a hundred; of fewer they gain 1 to 15.
            let at_once = stay.blocks.min(target.sms * stay.resident);
            step.overlaps &= strips.count() <= 3 * u64::from(at_once);
            step
        }
        None => {
            let build = || build::<P>(shape, dtype, scoring, schedule, arch);
            let resident = |kernel: &TiledKernel<P>| {
                target.resident(&kernel.built.launch, shape.registers().even)
            };
            // Names of policies that are not ours need not tell them apart.
            if schedule.policy.to_string() != "greedy" {
                let kernel = build()?.leaving(tiles_a_leave(tile_time(problem.longest().1)));
                let tiles = kernel.plan_for(strips, resident(&kernel))?;
                return Ok(Step::tiled(&kernel, &tiles, args));
            }
            let shared = built(&format!("{key} {schedule:?}"), build)?;
            let tiles = shared.kernel.plan_for(strips, resident(&shared.kernel))?;
            Step::shared_tiled(&shared, &tiles, args)
        }
    })
}
