//! The variant that attends on Hopper's warpgroups.

use super::WarpgroupArgs;
use super::block::{Ends, Rings};
use super::shape::{PANEL, WarpgroupShape};
use crate::attention::kernel::{
    Strides, buffers, contents, heads_at_once, log_sum_strides, window,
};
use crate::attention::order::HeaviestFirst;
use crate::attention::problem::{Dtype, Layout, Lengths, Mask, MaskKind, Problem, Weights};
use crate::family::{Target, Variant};
use crate::job::buffer;
use crate::plan::LaunchPlan;
use crate::{Job, KernelError, Step};
use heist_builder::{Arch, BuildError, Feature, With, bf16, f16};
use heist_launch::{Arg, BufferRef, Dim3, L2Promotion, Swizzle, TensorElement, TensorMap};
use heist_sched::{AnyOrder, Schedule, Source, Tiled, TiledKernel};

/// `wgmma` fed by the copy engine.
pub(in crate::attention) struct Wgmma;

/// The tiles that were fastest (`attention_warpgroups`, an example of `heist`).
pub fn warpgroup_shape(problem: &Problem, target: Target) -> WarpgroupShape {
    let (queries, _) = problem.longest();
    // Tiles of 192 rows have the most to do for what they copy; short sequences
    // leave too much of the last one empty. Blocks of keys are as large as
    // registers and shared memory have room for.
    let split = problem.weights == Weights::Split;
    let (groups, keys) = match (problem.head_dim, queries) {
        (..=64, 2048..) => (3, if split { 96 } else { 128 }),
        (65..=112, 2048..) if !split => (3, 96),
        (..=128, _) => (2, 128),
        (..=192, _) => (2, 80),
        _ => (2, 64),
    };
    WarpgroupShape {
        head_dim: problem.head_dim,
        groups,
        keys,
        stages: 2,
        strip: strip(problem, 64 * groups, keys, target),
        turns: false,
        mask: problem.mask.kind(),
        ragged: problem.is_ragged(),
        layout: problem.layout,
        weights: problem.weights,
        output: problem.output,
    }
}

/// The strips of a problem: along the rows of a sequence, heads, sequences.
fn strips(problem: &Problem, shape: &WarpgroupShape) -> Dim3 {
    let (queries, _) = problem.longest();
    Dim3::new(
        queries.div_ceil(shape.rows()).div_ceil(shape.strip),
        problem.heads,
        problem.sequences().len() as u32,
    )
}

/// How many keys a row sees, about.
fn seen_keys(problem: &Problem) -> u32 {
    let (_, all) = problem.longest();
    match problem.mask {
        Mask::Full => all,
        Mask::Causal => all / 2,
        Mask::Window { left, right } => all.min(left.saturating_add(right)),
    }
}

/// How many tiles of `rows` rows a block should do one after the other.
fn strip(problem: &Problem, rows: u32, keys: u32, target: Target) -> u32 {
    // Wide heads leave no room for the queries of the next tile, and short
    // sequences none to even out.
    if problem.head_dim > 128 || problem.is_ragged() {
        return 1;
    }
    let (queries, _) = problem.longest();
    let lines = u64::from(problem.heads) * problem.sequences().len() as u64;
    let tiles = queries.div_ceil(rows);
    let seen = seen_keys(problem);
    let blocks = f64::from(seen.div_ceil(keys).max(1));
    let share = f64::from(tiles) * lines as f64 / f64::from(target.sms);
    // In tiles: how long the multiprocessor with the most of them takes, and how
    // much of it is gained where all tiles of a strip but the last are finished
    // while the next one's copies run.
    let time = |strip: u32| {
        let even = tiles.is_multiple_of(strip);
        let most = match problem.mask {
            // The heaviest tiles come first, so the end is even.
            Mask::Causal if strip == 1 => share + 0.3,
            _ if even => (share / f64::from(strip)).ceil() * f64::from(strip),
            // Shorter strips between the others fill part of the gap.
            _ => share + f64::from(strip) / 2.0,
        };
        let finished_aside = 1.0 - 1.0 / f64::from(strip);
        most / (1.0 + FINISH * finished_aside / blocks)
    };
    let choices = [1, 2, 4].into_iter();
    choices
        .min_by(|a, b| time(*a).total_cmp(&time(*b)))
        .unwrap_or(1)
}

/// How long it takes to begin and finish a tile, in blocks of keys.
const FINISH: f64 = 0.6;

fn build(
    shape: WarpgroupShape,
    dtype: Dtype,
    schedule: &Schedule,
    arch: Arch,
) -> Result<TiledKernel<WarpgroupArgs>, BuildError> {
    // Some grid with three axes: the launch has the real one.
    Tiled::<WarpgroupArgs>::new("attention_wgmma", Dim3::new(2, 2, 2))
        .schedule(schedule)
        .block(shape.threads())
        .min_blocks(1)
        .build(arch, |k, args, tiles| {
            let rings = Rings::new(k, &shape);
            let ends = Ends::new(k, shape, &rings);
            let done = tiles.each(|tile| match dtype {
                Dtype::F16 => ends.strip::<f16>(&args, &tile),
                Dtype::Bf16 => ends.strip::<bf16>(&args, &tile),
            });
            ends.finish();
            done
        })
}

/// The map of a tensor with `length` rows a sequence, or of all packed ones, in
/// boxes of `high` rows of one head.
fn map(name: &str, problem: &Problem, heads: u32, length: u32, high: u32) -> Arg {
    let element = match problem.dtype {
        Dtype::F16 => TensorElement::F16,
        Dtype::Bf16 => TensorElement::Bf16,
    };
    let sequences = match problem.lengths {
        Lengths::Same { batch, .. } => batch,
        Lengths::Each(_) => 1,
    };
    let (dim, sequences) = (problem.head_dim.into(), sequences.into());
    let (heads, length) = (heads.into(), length.into());
    let (dims, boxed) = match problem.layout {
        Layout::Heads => ([dim, length, heads, sequences], [PANEL, high, 1, 1]),
        Layout::Rows => ([dim, heads, length, sequences], [PANEL, 1, high, 1]),
    };
    let buffer = BufferRef::Named(name.to_owned());
    let mut map = TensorMap::dense(buffer, element, &dims, &boxed);
    map.l2 = L2Promotion::Bytes256;
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
        // Where it was measured ahead of the ladder; small problems share out their
        // keys there.
        let sequences = problem.sequences();
        let tiles: u64 = sequences
            .iter()
            .map(|(queries, _)| u64::from(queries.div_ceil(128)) * u64::from(problem.heads))
            .sum();
        let (queries, keys) = problem.rows();
        let mean = queries.min(keys) / sequences.len().max(1);
        let sms = u64::from(target.sms);
        let (enough, long) = match problem.head_dim {
            ..=64 => (2 * sms / 3, 768),
            65..=128 => (2 * sms / 5, 512),
            _ => (sms / 5, 512),
        };
        let narrow = problem.head_dim < 64 && problem.mask != Mask::Full;
        let ahead = tiles >= enough && mean >= long && !narrow;
        Ok(if ahead { 6 } else { 0 })
    }

    fn job(
        &self,
        problem: &Problem,
        given: Option<&Schedule>,
        target: Target,
    ) -> Result<Job, KernelError> {
        Ok(self.plan(problem, given, target)?.job(contents(problem)))
    }

    fn plan(
        &self,
        problem: &Problem,
        given: Option<&Schedule>,
        target: Target,
    ) -> Result<LaunchPlan, KernelError> {
        let own = warpgroup_schedule(problem, target);
        let shape = warpgroup_shape(problem, target);
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
    shape.check()?;
    let kernel = build(shape, problem.dtype, schedule, target.arch)?;
    let (queries, keys) = problem.longest();
    let resident = target.resident(&kernel.built.launch, shape.registers().even);
    let tiles = kernel.plan_for(strips(problem, &shape), resident)?;
    let (left, right) = window(problem.mask, shape.mask)?;
    let q = Strides::of(problem, problem.heads, queries)?;
    let (q_rows, k_rows) = match problem.lengths {
        Lengths::Same { .. } => (queries, keys),
        Lengths::Each(_) => {
            let (q, k) = problem.rows();
            (q as u32, k as u32)
        }
    };
    let (lse_batch, lse_head) = log_sum_strides(problem);
    let args = WarpgroupArgs::<With<Arg>> {
        q: map("q", problem, problem.heads, q_rows, shape.rows()),
        k: map("k", problem, problem.kv_heads, k_rows, shape.keys),
        v: map("v", problem, problem.kv_heads, k_rows, shape.keys),
        out: buffer("out"),
        lse: buffer("lse"),
        q_starts: buffer("q_starts"),
        k_starts: buffer("k_starts"),
        q_len: queries,
        k_len: keys,
        q_batch: q.batch,
        q_row: q.row,
        q_head: q.head,
        lse_batch,
        lse_head,
        group: problem.heads / problem.kv_heads,
        left,
        right,
        scale: problem.scale() * std::f32::consts::LOG2_E,
    };
    let name = format!("attention {problem}: {shape}");
    let plan = buffers(LaunchPlan::new(name, "wgmma", problem.work()), problem);
    Ok(plan.step(Step::tiled(&kernel, &tiles, args)))
}

/// Keys times the head's dimension up to which a strip is short.
const SHORT: u64 = 1024 * 64;

/// The schedule that suits it.
///
/// A block a strip is as fast as blocks that stay, or faster, wherever strips are long,
/// and leaves the GPU to others after every strip: a small kernel beside it waits a third
/// of the time, and with multiprocessors held by others it is ahead (`docs/sharing.md`).
/// Blocks that stay are ahead by 1 to 2 in a hundred where strips are short; not under a
/// causal mask with a long tile and a short one in turns, and not for packed sequences.
pub fn warpgroup_schedule(problem: &Problem, target: Target) -> Schedule {
    let shape = warpgroup_shape(problem, target);
    let strips = strips(problem, &shape).count();
    let causal = problem.mask.kind() == MaskKind::Causal;
    let even = causal && shape.strip > 1;
    let short = u64::from(seen_keys(problem)) * u64::from(problem.head_dim) <= SHORT;
    let stay = short && strips > u64::from(target.sms) && !even && !problem.is_ragged();
    let mut schedule = Schedule::new(if stay { Source::Ticket } else { Source::Direct });
    if problem.is_ragged() || causal && shape.strip == 1 {
        schedule.order = AnyOrder::new(HeaviestFirst {
            heads: heads_at_once(problem),
        });
    }
    schedule
}
