//! The variant for decoding.

use super::combine::By;
use super::rows::{Rows, fill_queries};
use super::shape::{Appender, Combine, DecodeShape, Grid, Storage};
use super::work::Part;
use super::{DecodeArgs, append, block, combine, heuristics, latent, tiny};
use crate::attention::append::NEW;
use crate::attention::cache::Cache;
use crate::attention::kernel::{Strides, buffers, contents, log_sum_strides, window};
use crate::attention::params::Element;
use crate::attention::problem::{Dtype, Layout, Lengths, Problem};
use crate::attention::score::{Modified, Parameters, Scores, Scoring};
use crate::attention::views::{Input, View};
use crate::built::built;
use crate::family::{Target, Variant};
use crate::job::buffer;
use crate::overlap::overlap_early;
use crate::plan::{LaunchPlan, Purpose};
use crate::{KernelError, Step};
use heist_builder::{
    Arch, BuildError, BuiltKernel, Feature, Kernel, KernelSpec, On, SharedTile, With, bf16, f16,
};
use heist_launch::{
    Arg, Buffer, BufferRef, Dim3, ElementType, L2Promotion, Swizzle, TensorElement, TensorMap,
};
use heist_sched::Schedule;

/// Decoding: keys dealt evenly to all multiprocessors.
pub(in crate::attention) struct Decode;

fn build<P: Parameters<DecodeArgs>>(
    shape: DecodeShape,
    combine: Combine,
    dtype: Dtype,
    scoring: &Scoring,
    arch: Arch,
) -> Result<BuiltKernel<P>, BuildError> {
    KernelSpec::<P>::new("attention_decode")
        .block(shape.threads())
        .min_blocks(1)
        .build(arch, |k, args| {
            let (args, tables) = P::parts(args);
            let scores = Scores { scoring, tables };
            match dtype {
                Dtype::F16 => emit::<f16>(k, &shape, &args, &scores, combine),
                Dtype::Bf16 => emit::<bf16>(k, &shape, &args, &scores, combine),
            }
        })
}

/// The kernel for how keys and values are kept.
fn emit<'k, T: Element>(
    k: &Kernel<'k>,
    shape: &DecodeShape,
    args: &DecodeArgs<On<'k>>,
    scores: &Scores<'_, 'k>,
    combine: Combine,
) {
    match shape.cache {
        Cache::Latent => latent::emit::<T>(k, shape, args, scores, combine),
        Cache::Same => {
            let fill = |part: &Part<'k>, queries: &SharedTile<'k, T>| {
                fill_queries(args, part, queries, k.thread_index(), 32 * shape.warps);
            };
            let stage = |rows: &Rows<'k, T>, stage: &SharedTile<'k, f16>, first, masked| {
                rows.stage(&stage.cast(), first, masked);
            };
            block::emit::<T, T>(k, shape, args, scores, combine, &fill, &stage);
        }
        Cache::E4m3 => {
            let fill = |part: &Part<'k>, queries: &SharedTile<'k, f16>| {
                let thread = k.thread_index();
                tiny::fill_queries::<T>(args, part, queries, thread, 32 * shape.warps);
            };
            let stage = |rows: &Rows<'k, f16>, stage: &SharedTile<'k, f16>, first, masked| {
                rows.tiny_stage(stage, first, masked);
            };
            block::emit::<T, f16>(k, shape, args, scores, combine, &fill, &stage);
        }
    }
}

fn build_combine<P: Parameters<DecodeArgs>>(
    shape: DecodeShape,
    dtype: Dtype,
    scoring: &Scoring,
    by: By,
    arch: Arch,
) -> Result<BuiltKernel<P>, BuildError> {
    KernelSpec::<P>::new("attention_decode_combine")
        .block(32 * combine::WARPS)
        // Left alone, the assembler keeps to fewer registers and spills.
        .min_blocks(combine::RESIDENT)
        .build(arch, |k, args| {
            let (args, tables) = P::parts(args);
            let scores = Scores { scoring, tables };
            if shape.overlaps(scoring) {
                overlap_early(k);
            }
            match dtype {
                Dtype::F16 => combine::emit::<f16>(k, &shape, &args, &scores, by),
                Dtype::Bf16 => combine::emit::<bf16>(k, &shape, &args, &scores, by),
            }
        })
}

fn build_append<P: Parameters<DecodeArgs>>(
    shape: DecodeShape,
    dtype: Dtype,
    scoring: &Scoring,
    arch: Arch,
) -> Result<BuiltKernel<P>, BuildError> {
    KernelSpec::<P>::new("attention_append")
        .block(append::THREADS)
        .build(arch, |k, args| {
            let (args, tables) = P::parts(args);
            let scores = Scores { scoring, tables };
            match dtype {
                Dtype::F16 => append::emit::<f16>(k, &shape, &args, &scores),
                Dtype::Bf16 => append::emit::<bf16>(k, &shape, &args, &scores),
            }
        })
}

/// The map of keys or values, in boxes of the rows of one copy.
fn map(name: &str, problem: &Problem, shape: &DecodeShape, view: View) -> Arg {
    let element = match (problem.cache, problem.dtype) {
        (Cache::E4m3, _) => TensorElement::U8,
        (Cache::Same | Cache::Latent, Dtype::F16) => TensorElement::F16,
        (Cache::Same | Cache::Latent, Dtype::Bf16) => TensorElement::Bf16,
    };
    let panel = shape.panel();
    // Heads of a tile are one row.
    let dim = u64::from(shape.heads * problem.head_dim);
    let heads = u64::from(problem.kv_heads / shape.heads);
    let (_, keys) = problem.longest();
    let rows = problem.rows().1 as u64;
    let high = shape.copied_rows();
    let (dims, boxed) = match (shape.storage, &problem.lengths) {
        (Storage::Paged(size), _) => (
            [dim, heads, size.into(), problem.pages().1 as u64],
            [panel, 1, high, 1],
        ),
        (Storage::Dense(Layout::Heads), Lengths::Same { batch, .. }) if shape.twins => (
            [2 * dim, u64::from(keys) / 2, heads, (*batch).into()],
            [panel, high, 1, 1],
        ),
        (Storage::Dense(Layout::Heads), Lengths::Same { batch, .. }) => (
            [dim, keys.into(), heads, (*batch).into()],
            [panel, high, 1, 1],
        ),
        (Storage::Dense(_), Lengths::Same { batch, .. }) => (
            [dim, heads, keys.into(), (*batch).into()],
            [panel, 1, high, 1],
        ),
        (_, _) => ([dim, heads, rows.max(1), 1], [panel, 1, high, 1]),
    };
    let (dims, boxed) = match shape.joins_panels() {
        false => (dims, boxed),
        // The panels of all heads are an axis of their own, which comes behind the rows.
        true => {
            let [_, heads, rows, outer] = dims;
            let panels = shape.panels();
            let axes = [panel.into(), rows, heads * u64::from(panels), outer];
            (axes, [panel, high, panels, 1])
        }
    };
    let buffer = BufferRef::Named(name.to_owned());
    // No promotion in the L2: with one of 256 bytes reading went at 4.1 TB/s of an H200,
    // without at 4.5. Pages of 8 bits were up to 1.3 in a hundred faster with one of 128 (12 cases, two of them 0.1 slower).
    let mut map = TensorMap::dense(buffer, element, &dims, &boxed);
    if let (Storage::Paged(_), Cache::E4m3) = (shape.storage, shape.cache) {
        map.l2 = L2Promotion::Bytes128;
    }
    if shape.joins_panels() {
        let row = element.bytes_of(dims[0] * dims[2]);
        map.strides = vec![row, element.bytes_of(dims[0]), row * dims[1]];
    }
    if problem.views.is_some() {
        let View { batch, row, head } = view;
        // Packed sequences are one.
        let batch = if batch == 0 { row * rows } else { batch };
        let strides = match (shape.storage, shape.joins_panels()) {
            (Storage::Dense(Layout::Heads), _) => [row, head, batch],
            (_, true) => [row, panel.into(), batch],
            (_, false) => [head * u64::from(shape.heads), row, batch],
        };
        map.strides = strides.map(|stride| element.bytes_of(stride)).to_vec();
    }
    Arg::TensorMap(map.swizzle(Swizzle::Bytes128))
}

impl Variant for Decode {
    type Problem = Problem;

    fn name(&self) -> &'static str {
        "decode"
    }

    fn about(&self) -> &'static str {
        "few queries over many keys: heads of a group in one tile, keys dealt to all multiprocessors, pages"
    }

    fn suits(&self, problem: &Problem, target: Target) -> Result<u32, String> {
        problem.check().map_err(|error| error.to_string())?;
        problem
            .has_whole_steps()
            .map_err(|error| error.to_string())?;
        if !target.arch.supports(Feature::TensorCopy) {
            return Err(format!(
                "{} has no tensor copies: it needs sm_90 or later",
                target.arch
            ));
        }
        match problem.cache {
            Cache::Latent if !target.arch.supports(Feature::Wgmma) => {
                return Err(format!(
                    "{} has no wgmma, which a latent cache needs: sm_90a has it",
                    target.arch
                ));
            }
            Cache::Latent => {}
            _ => problem.is_square().map_err(|error| error.to_string())?,
        }
        problem
            .sees_all_blocks()
            .map_err(|error| error.to_string())?;
        if problem.longest().1 == 0 {
            return Err("without keys there is nothing to copy".into());
        }
        if let Some(views) = problem.views
            && (problem.is_ragged() || problem.layout == Layout::Rows)
            && [views.k, views.v]
                .iter()
                .any(|view| view.head != u64::from(problem.head_dim))
        {
            return Err("heads of a key that do not follow each other: it copies several at a time; variant=wgmma takes them".into());
        }
        heuristics::rank(problem, target)
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
        self.suits(problem, target).map_err(KernelError::unfit)?;
        if let Some(given) = given {
            return Err(KernelError::unfit(format!(
                "attention decode deals its keys by itself and takes no schedule such as {given}; leave it out, or take variant=large"
            )));
        }
        let shape = heuristics::decode_shape(problem, target);
        let grid = heuristics::decode_grid(problem, &shape, target);
        decode_plan(problem, shape, grid, target)
    }
}

/// Builds the kernels of a shape and plans their launches.
///
/// # Errors
/// What does not fit, and why.
pub fn decode_plan(
    problem: &Problem,
    shape: DecodeShape,
    grid: Grid,
    target: Target,
) -> Result<LaunchPlan, KernelError> {
    Decode.suits(problem, target).map_err(KernelError::unfit)?;
    fits(problem, &shape, &grid)?;
    let args = arguments(problem, &shape, &grid)?;
    // Two parts of tiles a block.
    let own = (combine::SLOTS * grid.blocks * shape.rows()) as usize;
    let slots = match grid.combine {
        Combine::Nobody => 1,
        // And as many for what is combined of many parts.
        Combine::LastBlock if shape.ragged() => 2 * own,
        Combine::LastBlock | Combine::Launch => own,
    };
    let name = format!("attention {problem}: {shape}, {grid}");
    let plan = LaunchPlan::new(name, "decode", problem.work());
    let dim = shape.value_dim as usize;
    let plan = buffers(plan, problem)
        .buffer("partial", Purpose::Workspace, ElementType::F32, slots * dim)
        .buffer("partial_lse", Purpose::Workspace, ElementType::F32, slots);
    let steps = match problem.scoring.is_plain() {
        true => steps::<DecodeArgs>(problem, shape, grid, target, args)?,
        false => steps::<Modified<DecodeArgs>>(problem, shape, grid, target, args)?,
    };
    Ok(steps.into_iter().fold(plan, LaunchPlan::step))
}

/// Whether a shape and a grid can do it.
///
/// # Errors
/// What does not fit, and why.
fn fits(problem: &Problem, shape: &DecodeShape, grid: &Grid) -> Result<(), KernelError> {
    shape.check()?;
    if !problem.kv_heads.is_multiple_of(shape.heads) {
        return Err(KernelError::unfit(format!(
            "{shape}: {} key heads can't be dealt in tiles of {}",
            problem.kv_heads, shape.heads
        )));
    }
    if shape.twins && (!problem.scoring.is_plain() || !problem.longest().1.is_multiple_of(2)) {
        return Err(KernelError::unfit(format!(
            "{shape}: an even number of keys is wanted, and scores that nothing changes"
        )));
    }
    let tiles = (problem.heads / problem.kv_heads * problem.longest().0)
        .div_ceil(shape.head_rows())
        .max(1);
    if shape.rounds != 1 && shape.rounds != tiles {
        return Err(KernelError::unfit(format!(
            "{shape}: {} rounds of tiles, where a key head has {tiles}: so many can be had, or one",
            shape.rounds
        )));
    }
    if shape.one_query && problem.longest().0 > 1 {
        return Err(KernelError::unfit(format!(
            "{shape}: the kernel for one query of each sequence, and there are more"
        )));
    }
    if grid.blocks == 0 || grid.least == 0 {
        return Err(KernelError::unfit(format!(
            "{grid}: at least one block with one key block is wanted"
        )));
    }
    if grid.combine == Combine::Nobody && !heuristics::shares_are_whole(problem, shape, grid) {
        return Err(KernelError::unfit(format!(
            "{grid}: shares that cut a tile have to be combined, by a launch or by the last block"
        )));
    }
    let rows = problem.heads / problem.kv_heads * problem.longest().0;
    if shape.append.is_some() != problem.append.is_some()
        || shape.appends() && rows > shape.head_rows()
    {
        return Err(KernelError::unfit(format!(
            "{shape}: tiles of {} rows append where a key head has one tile of {} rows and there are new keys; else a launch before does",
            shape.head_rows(),
            rows
        )));
    }
    Ok(())
}

/// The arguments that all of its launches have. An unused parameter is set to any buffer.
fn arguments(
    problem: &Problem,
    shape: &DecodeShape,
    grid: &Grid,
) -> Result<DecodeArgs<With<Arg>>, KernelError> {
    let (queries, keys) = problem.longest();
    let (left, right) = window(problem.mask, shape.mask)?;
    let q = Strides::of(problem, problem.view(Input::Queries))?;
    let out = Strides::of_results(problem)?;
    let (lse_batch, lse_head) = log_sum_strides(problem);
    let scales = match problem.cache {
        Cache::Same | Cache::Latent => ["k_starts"; 2],
        Cache::E4m3 => ["k_scale", "v_scale"],
    };
    let latent = problem.cache == Cache::Latent;
    let new = match problem.append {
        None => ["k_starts"; 2],
        Some(_) => NEW.map(|(name, _)| name),
    };
    Ok(DecodeArgs {
        q: buffer("q"),
        k: map("k", problem, shape, problem.view(Input::Keys)),
        v: map(
            if latent { "k" } else { "v" },
            problem,
            shape,
            problem.view(Input::Values),
        ),
        out: buffer("out"),
        lse: buffer("lse"),
        partial: buffer("partial"),
        partial_lse: buffer("partial_lse"),
        counters: match grid.combine {
            // Zeros before the first launch, and every launch leaves them so.
            Combine::LastBlock => {
                Arg::in_out(&vec![0u32; (combine::COUNTERS * grid.blocks) as usize])
            }
            _ => buffer("k_starts"),
        },
        q_starts: buffer("q_starts"),
        k_starts: buffer("k_starts"),
        pages: buffer(if problem.page_size.is_some() {
            "pages"
        } else {
            "k_starts"
        }),
        k_scale: buffer(scales[0]),
        v_scale: buffer(scales[1]),
        k_cache: buffer("k"),
        v_cache: buffer(if latent { "k" } else { "v" }),
        k_new: buffer(new[0]),
        v_new: buffer(new[1]),
        sequences: problem.sequences().len() as u32,
        q_len: queries,
        k_len: keys,
        q_batch: q.batch,
        q_row: q.row,
        q_head: q.head,
        out_batch: out.batch,
        out_row: out.row,
        out_head: out.head,
        lse_batch,
        lse_head,
        table_row: problem.pages().0 as u32,
        new: problem.append.map_or(0, |append| append.rows),
        kv_heads: problem.kv_heads / shape.heads,
        group: problem.heads / problem.kv_heads,
        left,
        right,
        scale: problem.scoring.scale(problem.scale()),
        blocks: grid.blocks,
        least: grid.least,
    })
}

/// The launches of a shape.
fn steps<P: Parameters<DecodeArgs>>(
    problem: &Problem,
    shape: DecodeShape,
    grid: Grid,
    target: Target,
    args: DecodeArgs<With<Arg>>,
) -> Result<Vec<Step>, KernelError> {
    let (scoring, dtype) = (&problem.scoring, problem.dtype);
    let args = || P::join(args.clone(), scoring.args("q_starts"));
    let key = |part: &str| {
        let (combine, arch, scores) = (grid.combine, target.arch, scoring.key());
        format!("{part} {shape:?} {combine:?} {dtype:?} {arch} {scores}")
    };
    let mut steps = Vec::new();
    if shape
        .append
        .is_some_and(|append| append.by == Appender::Launch)
    {
        let kernel = built(&key("append"), || {
            build_append::<P>(shape, dtype, scoring, target.arch)
        })?;
        let grid = Dim3::new(
            problem.sequences().len() as u32,
            problem.kv_heads / shape.heads,
            1,
        );
        steps.push(Step::shared(&kernel, grid, args()));
    }
    let kernel = built(&key("attend"), || {
        build::<P>(shape, grid.combine, dtype, scoring, target.arch)
    })?;
    let mut step = Step::shared(&kernel, grid.blocks, args());
    step.overlaps &= shape.overlaps(scoring);
    if step.overlaps && grid.combine == Combine::Launch {
        // A multiprocessor to itself: blocks of the next step, which the launch in between lets begin, would take the room of two beside
        // the first of these that end. 8 to 20 in a hundred slower.
        let half = target.arch.limits().shared_opt_in / 2;
        step.launch.dynamic_shared = step.launch.dynamic_shared.max(half);
    }
    steps.push(step);
    if grid.combine == Combine::Launch {
        let tiles = heuristics::most_tiles(problem, &shape);
        let (by, along) = match tiles <= grid.blocks {
            true => (By::Tile, tiles),
            false => (By::Share, grid.blocks),
        };
        let kernel = built(&key(&format!("combine {by:?}")), || {
            build_combine::<P>(shape, dtype, scoring, by, target.arch)
        })?;
        // A block looks for its tile, so there are no more of them than run at a time.
        let rows = heuristics::tile_rows(problem, &shape);
        let strips = combine::strips(&shape, rows).max(1);
        let across = (combine::RESIDENT * target.sms / along.max(1)).clamp(1, strips);
        let grid = Dim3::new(across, along, 1);
        let mut step = Step::shared(&kernel, grid, args());
        // The rows of few tiles would begin together on the multiprocessors that the launch before
        // leaves idle: 10 in a hundred slower with 32 rows of one tile, and 3 with 64 blocks over latent keys.
        let enough = match shape.cache {
            Cache::Latent => 2 * target.sms,
            Cache::Same | Cache::E4m3 => target.sms / 3,
        };
        step.overlaps &= along * across >= enough;
        steps.push(step);
    }
    Ok(steps)
}

#[cfg(test)]
mod tests {
    use super::heuristics::{decode_grid, decode_shape};
    use super::*;
    use crate::attention::problem::Weights;
    use crate::attention::softcap;
    use std::sync::Arc;

    /// Parts of a tile that nobody combines would be written past the one slot that there is.
    #[test]
    fn shares_that_cut_a_tile_are_not_left_to_nobody() {
        let target = Target {
            arch: Arch::SM_90A,
            sms: 132,
        };
        let mut problem = Problem::new(16, 32, 4096, 128);
        problem.kv_heads = 8;
        problem.lengths = Lengths::Same {
            batch: 16,
            queries: 1,
            keys: 4096,
        };
        let shape = decode_shape(&problem, target);
        let whole = decode_grid(&problem, &shape, target);
        assert_eq!(whole.combine, Combine::Nobody);
        assert!(decode_plan(&problem, shape, whole, target).is_ok());
        for cut in [
            Grid {
                least: whole.least - 1,
                ..whole
            },
            Grid {
                blocks: whole.blocks - 1,
                ..whole
            },
        ] {
            let refused = decode_plan(&problem, shape, cut, target).expect_err("it cuts tiles");
            assert!(refused.to_string().contains("combined"), "{refused}");
        }
    }

    /// One query of each sequence over 16384 keys, which lie in pages or one behind the other.
    fn one_query(batch: u32, heads: u32, paged: bool) -> Problem {
        let mut problem = Problem::ragged(vec![(1, 16384); batch as usize], heads, 128);
        match paged {
            true => problem.page_size = Some(16),
            false => {
                problem.lengths = Lengths::Same {
                    batch,
                    queries: 1,
                    keys: 16384,
                };
            }
        }
        problem
    }

    /// Shares begin and end with tiles where that takes about all multiprocessors, whether lengths are known or not; else all have as much.
    #[test]
    fn shares_keep_in_step_with_tiles() {
        let target = Target {
            arch: Arch::SM_90A,
            sms: 132,
        };
        let blocks = |batch: u32, heads: u32, paged: bool| {
            let problem = one_query(batch, heads, paged);
            let shape = decode_shape(&problem, target);
            decode_grid(&problem, &shape, target).blocks
        };
        // 64 tiles, of two heads where they adjoin: two shares each. 100 tiles: no number of shares suits.
        assert_eq!(blocks(8, 16, true), 128);
        assert_eq!(blocks(4, 16, false), 128);
        assert_eq!(blocks(100, 2, true), 132);
        // One tile: a share each, as even as its 256 key blocks allow.
        assert_eq!(blocks(1, 1, false), 128);
    }

    /// A launch whose parts a second one combines has its multiprocessors to itself, where the next step may begin before it ends.
    #[test]
    fn parts_for_a_launch_are_written_by_one_block_a_multiprocessor() {
        let target = Target {
            arch: Arch::SM_90A,
            sms: 132,
        };
        let mut problem = Problem::new(1, 64, 1, 128);
        problem.kv_heads = 8;
        problem.lengths = Lengths::Same {
            batch: 1,
            queries: 1,
            keys: 32768,
        };
        let steps = Decode.plan(&problem, None, target).expect("a plan").steps;
        assert_eq!(steps.len(), 2);
        let room = target.arch.limits().shared_opt_in;
        assert!(steps[0].overlaps && 2 * steps[0].launch.dynamic_shared >= room);
        // A block for each of 8 rows of 8 tiles, and none for what no tile begins in.
        let grid = steps[1].launch.grid;
        assert_eq!([grid.x, grid.y], [8, 8]);
        // Packed sequences wait for what was launched before; what combines their parts need not.
        let mut packed = Problem::ragged(vec![(1, 65536); 2], 32, 128);
        packed.kv_heads = 1;
        let steps = Decode.plan(&packed, None, target).expect("a plan").steps;
        assert_eq!([steps[0].overlaps, steps[1].overlaps], [false, true]);
    }

    /// What combines looks for its tile once for many rows: no more blocks than run at a time, and for one tile of many parts one for each strip of a row.
    #[test]
    fn what_combines_has_no_more_blocks_than_run_at_a_time() {
        let target = Target {
            arch: Arch::SM_90A,
            sms: 132,
        };
        let grid = |batch: u32, heads: u32, keys: u32| {
            let mut problem = Problem::ragged(vec![(1, keys); batch as usize], heads, 576);
            (problem.kv_heads, problem.cache) = (1, Cache::Latent);
            (problem.value_dim, problem.page_size) = (Some(512), Some(64));
            let shape = decode_shape(&problem, target);
            let grid = Grid {
                combine: Combine::Launch,
                ..decode_grid(&problem, &shape, target)
            };
            let plan = decode_plan(&problem, shape, grid, target).expect("a plan");
            let launch = &plan.steps[1].launch;
            assert!(launch.grid.x * launch.grid.y <= combine::RESIDENT * target.sms);
            [launch.grid.x, launch.grid.y]
        };
        assert_eq!(grid(1, 16, 65536), [16 * 4, 1]);
        assert_eq!(grid(128, 64, 4096), [3, 128]);
        // More tiles than blocks: one of each share at the most is cut.
        assert_eq!(grid(128, 128, 4096), [3, 128]);
        assert_eq!(grid(4, 128, 32768), [49, 8]);
    }

    /// Rounds of tiles are one, or as many as a key head of the longest sequence has tiles.
    #[test]
    fn tiles_come_in_one_round_or_in_as_many_as_there_are() {
        let target = Target {
            arch: Arch::SM_90A,
            sms: 132,
        };
        let mut problem = Problem::ragged(vec![(1, 4096), (2, 64)], 128, 576);
        (problem.kv_heads, problem.cache) = (1, Cache::Latent);
        (problem.value_dim, problem.page_size) = (Some(512), Some(64));
        let shape = decode_shape(&problem, target);
        assert_eq!(shape.rounds, 1);
        let grid = decode_grid(&problem, &shape, target);
        for (rounds, fits) in [(4, true), (1, true), (2, false), (0, false)] {
            let shape = DecodeShape { rounds, ..shape };
            assert_eq!(decode_plan(&problem, shape, grid, target).is_ok(), fits);
        }
    }

    /// Only kernels for one query of each sequence divide no row by the heads of a group: longer ones are not given them.
    #[test]
    fn the_kernel_for_one_query_is_given_no_more() {
        let target = Target {
            arch: Arch::SM_90A,
            sms: 132,
        };
        let mut problem = Problem::ragged(vec![(2, 4096), (1, 64)], 8, 128);
        problem.kv_heads = 2;
        let shape = decode_shape(&problem, target);
        assert!(!shape.one_query);
        let grid = decode_grid(&problem, &shape, target);
        let one_query = DecodeShape {
            one_query: true,
            ..shape
        };
        let refused = decode_plan(&problem, one_query, grid, target).expect_err("two queries");
        assert!(refused.to_string().contains("one query"), "{refused}");
    }

    /// Tiles of 32 rows in four parts, 64 KB: a launch combines whole ones, and the last block those of 8 bits, whose products leave a launch no
    /// registers. In pages a launch's blocks look for their sequence, and one sequence may have all the keys, and a tile every share for a part:
    /// that costs less, if it is not the rule.
    #[test]
    fn who_combines_hangs_on_what_a_launch_costs() {
        let target = Target {
            arch: Arch::SM_90A,
            sms: 132,
        };
        let combine = |cache: Cache, batch: u32, paged: bool| {
            let mut problem = one_query(batch, 32, paged);
            (problem.kv_heads, problem.cache) = (1, cache);
            let shape = decode_shape(&problem, target);
            decode_grid(&problem, &shape, target).combine
        };
        assert_eq!(combine(Cache::Same, 32, false), Combine::Launch);
        assert_eq!(combine(Cache::Same, 32, true), Combine::LastBlock);
        assert_eq!(combine(Cache::Same, 1, true), Combine::Launch);
        assert_eq!(combine(Cache::E4m3, 32, false), Combine::LastBlock);
    }

    /// Tiles of 64 rows whose weights or scores take more registers have fewer keys a stage, so that nothing is spilled; others keep theirs. So do
    /// heads of 256, which are not multiplied by twice as many warps.
    #[test]
    fn what_takes_registers_has_fewer_keys() {
        let target = Target {
            arch: Arch::SM_90A,
            sms: 132,
        };
        let shape = |queries: u32, weights: Weights, cap: Option<f32>| {
            let mut problem = Problem::new(2, 32, queries, 128);
            (problem.kv_heads, problem.weights) = (4, weights);
            problem.dtype = Dtype::Bf16;
            problem.scoring.mods.extend(cap.map(softcap));
            problem.lengths = Lengths::Same {
                batch: 2,
                queries,
                keys: 4096,
            };
            let shape = decode_shape(&problem, target);
            (shape.keys, shape.keeps_queries(&problem.scoring))
        };
        for (weights, cap) in [(Weights::Split, None), (Weights::Rounded, Some(2.0))] {
            assert_eq!(shape(8, weights, cap), (64, false));
            assert_eq!(shape(4, weights, cap), (128, true));
        }
        // With 64 rows a warp loads its queries for each stage.
        assert_eq!(shape(8, Weights::Rounded, None), (128, false));
        assert_eq!(shape(4, Weights::Rounded, None), (128, true));
        // So it does with 8-bit keys, of which it has 32 rows.
        for (group, keeps) in [(32, true), (64, false)] {
            let mut tall = Problem::ragged(vec![(1, 4096); 2], group, 128);
            (tall.kv_heads, tall.cache) = (1, Cache::E4m3);
            let shape = decode_shape(&tall, target);
            assert_eq!(shape.keeps_queries(&tall.scoring), keeps, "{shape}");
        }
        let mut wide = Problem::ragged(vec![(1, 4096); 2], 8, 256);
        (wide.kv_heads, wide.cache) = (2, Cache::E4m3);
        let wide = decode_shape(&wide, target);
        assert_eq!((wide.heads, wide.warps), (1, 4));
    }

    /// A step with one key more launches the kernel of the step before; other scores and heads have others.
    #[test]
    fn lengths_share_a_kernel() {
        let target = Target {
            arch: Arch::SM_90A,
            sms: 132,
        };
        let plan = |keys: u32, dim: u32, cap: Option<f32>| {
            let mut problem = Problem::new(2, 8, keys, dim);
            problem.lengths = Lengths::Same {
                batch: 2,
                queries: 1,
                keys,
            };
            problem.scoring.mods.extend(cap.map(softcap));
            Decode.plan(&problem, None, target).expect("a plan").steps
        };
        let (one, other) = (plan(300, 64, None), plan(301, 64, None));
        assert!(Arc::ptr_eq(&one[0].module, &other[0].module));
        assert_ne!(one[0].params, other[0].params);
        let capped = plan(300, 64, Some(2.0));
        assert!(Arc::ptr_eq(
            &capped[0].module,
            &plan(400, 64, Some(2.0))[0].module
        ));
        let others = [plan(300, 128, None), capped, plan(300, 64, Some(3.0))];
        for other in others {
            assert_ne!(one[0].ptx(), other[0].ptx());
        }
        // Those that were built since have not taken its place.
        assert!(Arc::ptr_eq(&one[0].module, &plan(302, 64, None)[0].module));
        assert_ne!(
            plan(300, 64, Some(2.0))[0].ptx(),
            plan(300, 64, Some(3.0))[0].ptx()
        );
    }
}
