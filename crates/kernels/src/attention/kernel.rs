//! From a problem and a configuration to a job.

use super::append;
use super::cache::Cache;
use super::combine::{self, CombineArgs};
use super::config::{Config, Rung};
use super::order::HeaviestFirst;
use super::params::{AttentionArgs, Element};
use super::problem::{Dtype, Lengths, MOST, Mask, MaskKind, Problem};
use super::score::{Modified, Parameters, Scores, Scoring};
use super::views::{Input, View};
use super::{buffered, mixed, scalar, tensor};
use crate::family::Target;
use crate::job::buffer;
use crate::plan::{LaunchPlan, Purpose};
use crate::{Job, KernelError, Step};
use heist_builder::{Arch, BuildError, Feature, Kernel, KernelParams, On, With, bf16, f16};
use heist_launch::{Arg, Buffer, Dim3, ElementType};
use heist_sched::{AnyOrder, Schedule, Tile, TileSource, Tiled, TiledKernel};

/// Emits one tile of a rung.
fn emit<'k, T: Element>(
    k: &Kernel<'k>,
    args: &AttentionArgs<On<'k>>,
    config: &Config,
    scores: &Scores<'_, 'k>,
    tile: &Tile<'k>,
) {
    match config.rung {
        Rung::Scalar => scalar::tile::<T>(k, args, config, scores, tile),
        Rung::Mixed => mixed::tile::<T>(k, args, config, scores, tile),
        Rung::Tensor => tensor::tile::<T>(k, args, config, scores, tile),
        Rung::Buffered | Rung::Large | Rung::Persistent => {
            buffered::tile::<T>(k, args, config, scores, tile);
        }
    }
}

/// The tiles of a problem: rows (and splits) along x, heads along y, sequences
/// along z.
pub fn tiles(problem: &Problem, config: &Config) -> Dim3 {
    let (queries, _) = problem.longest();
    Dim3::new(
        queries.div_ceil(config.rows()) * config.splits.max(1),
        problem.heads,
        problem.sequences().len() as u32,
    )
}

/// Builds a kernel. It is the same for all sizes of problems.
///
/// # Errors
/// Why there is none.
pub fn build(
    config: &Config,
    schedule: &Schedule,
    arch: Arch,
) -> Result<TiledKernel<AttentionArgs>, BuildError> {
    build_with(config, &Scoring::default(), schedule, arch)
}

/// The same with what a model adds.
fn build_with<P: Parameters<AttentionArgs>>(
    config: &Config,
    scoring: &Scoring,
    schedule: &Schedule,
    arch: Arch,
) -> Result<TiledKernel<P>, BuildError> {
    let name = format!("attention_{}", config.rung);
    // Some grid with three axes: the launch has the real one.
    Tiled::<P>::new(name, Dim3::new(2, 2, 2))
        .schedule(schedule)
        .block(config.threads())
        .min_blocks(config.min_blocks)
        .build(arch, |k, args, tiles| {
            if !config.hoisted {
                k.keep_arithmetic_in_loops();
            }
            let (args, tables) = P::parts(args);
            let scores = Scores { scoring, tables };
            tiles.each(|tile| match config.dtype {
                Dtype::F16 => emit::<f16>(k, &args, config, &scores, &tile),
                Dtype::Bf16 => emit::<bf16>(k, &args, config, &scores, &tile),
            })
        })
}

/// The schedule that suits a rung.
pub fn schedule(config: &Config, problem: &Problem, target: Target) -> Schedule {
    let uneven = problem.is_ragged() || problem.mask == Mask::Causal;
    // With no more tiles than multiprocessors there is nothing to stay for.
    let stays =
        config.rung == Rung::Persistent && tiles(problem, config).count() > u64::from(target.sms);
    let mut schedule = Schedule::new(match stays {
        false => TileSource::Direct,
        true if target.arch.supports(Feature::ClusterLaunchControl) => TileSource::Clc,
        true => TileSource::Ticket,
    });
    if uneven && config.rung >= Rung::Large {
        schedule.order = AnyOrder::new(HeaviestFirst {
            heads: heads_at_once(problem),
        });
    }
    schedule
}

/// As many heads as have their keys and values in a part of the L2 cache that every
/// GPU has, and at least as many as it takes for the end to be even, which
/// counts for more.
pub(super) fn heads_at_once(problem: &Problem) -> u32 {
    const CACHE: u64 = 16 << 20;
    const LEAST: u64 = 16;
    let (_, keys) = problem.longest();
    let bytes = u64::from(keys) * u64::from(problem.head_dim + problem.value_dim()) * 2;
    let shared = u64::from(problem.heads / problem.kv_heads);
    (CACHE / bytes.max(1) * shared).clamp(LEAST, 4096) as u32
}

/// A view, as kernels count that step through it by themselves.
pub(super) struct Strides {
    pub(super) batch: u32,
    pub(super) row: u32,
    pub(super) head: u32,
}

impl Strides {
    pub(super) fn of(problem: &Problem, view: View) -> Result<Strides, KernelError> {
        let fits = |stride: u64| {
            u32::try_from(stride).map_err(|_| {
                KernelError::unfit(format!(
                    "{problem}: a stride of {stride} elements does not fit in 32 bits"
                ))
            })
        };
        Ok(Strides {
            batch: fits(view.batch)?,
            row: fits(view.row)?,
            head: fits(view.head)?,
        })
    }

    /// Of results.
    pub(super) fn of_results(problem: &Problem) -> Result<Strides, KernelError> {
        let (queries, _) = problem.longest();
        let view = View::dense(problem, problem.value_dim(), problem.heads, queries);
        Strides::of(problem, view)
    }
}

/// How many blocks run at a time, if the assembler uses the registers that it is
/// allowed.
fn resident<P: KernelParams>(config: &Config, kernel: &TiledKernel<P>, target: Target) -> u32 {
    let limits = target.arch.limits();
    let each = limits.registers_per_sm / (config.threads() * config.min_blocks);
    let registers = each.min(limits.registers_per_thread) / 8 * 8;
    target.resident(&kernel.built.launch, registers)
}

/// Builds the kernels of a configuration and plans their launches. The buffers
/// `q`, `k` and `v` are zeros, to be filled in; `out` and `lse` are the results.
///
/// # Errors
/// What does not fit, and why.
pub fn job(
    problem: &Problem,
    config: &Config,
    schedule: &Schedule,
    target: Target,
) -> Result<Job, KernelError> {
    Ok(ladder_plan(problem, config, schedule, target)?.job(contents(problem)))
}

/// The same without data.
///
/// # Errors
/// What does not fit, and why.
pub(super) fn ladder_plan(
    problem: &Problem,
    config: &Config,
    schedule: &Schedule,
    target: Target,
) -> Result<LaunchPlan, KernelError> {
    problem.check()?;
    problem.not_paged()?;
    problem.is_square()?;
    problem.sees_all_blocks()?;
    problem.lies_whole()?;
    if matches!(config.rung, Rung::Scalar | Rung::Mixed) {
        problem.is_plain()?;
    }
    config.check()?;
    let grid = tiles(problem, config);
    let (queries, keys) = problem.longest();
    let q = Strides::of(problem, problem.view(Input::Queries))?;
    let kv = Strides::of(problem, problem.view(Input::Keys))?;
    let rows = problem.rows().0 as u32;
    let lse_count = rows * problem.heads;
    let (lse_batch, lse_head) = log_sum_strides(problem);
    let (left, right) = window(problem.mask, config.mask)?;
    let split = config.splits > 1;
    let args = AttentionArgs::<With<Arg>> {
        q: buffer("q"),
        k: buffer("k"),
        v: buffer("v"),
        out: buffer("out"),
        lse: buffer(if split { "partial_lse" } else { "lse" }),
        partial: buffer(if split { "partial" } else { "lse" }),
        q_starts: buffer("q_starts"),
        k_starts: buffer("k_starts"),
        q_len: queries,
        k_len: keys,
        q_batch: q.batch,
        q_row: q.row,
        q_head: q.head,
        k_batch: kv.batch,
        k_row: kv.row,
        k_head: kv.head,
        lse_batch,
        lse_head,
        lse_count,
        group: problem.heads / problem.kv_heads,
        left,
        right,
        scale: problem.scoring.scale(problem.scale()),
    };
    let q_elements = problem.elements().0;
    let name = format!("attention {problem}: {config}");
    let plan = LaunchPlan::new(name, config.rung.as_str(), problem.work());
    let mut plan = buffers(plan, problem);
    if split {
        let parts = config.splits as usize;
        let f32 = ElementType::F32;
        plan = plan
            .buffer("partial", Purpose::Workspace, f32, parts * q_elements)
            .buffer(
                "partial_lse",
                Purpose::Workspace,
                f32,
                parts * lse_count as usize,
            );
    }
    let tiled = Tiling {
        problem,
        config,
        schedule,
        target,
    };
    plan = plan.step(match problem.scoring.is_plain() {
        true => tiled.step::<AttentionArgs>(grid, args)?,
        false => tiled.step::<Modified<AttentionArgs>>(grid, args)?,
    });
    if split {
        let args = CombineArgs::<With<Arg>> {
            partial: buffer("partial"),
            partial_lse: buffer("partial_lse"),
            out: buffer("out"),
            lse: buffer("lse"),
            lse_count,
            lse_head,
            heads: problem.heads,
            out_batch: q.batch,
            out_row: q.row,
            out_head: q.head,
        };
        let kernel = combine::build(config, target.arch)?;
        let grid = lse_count.div_ceil(combine::ROWS);
        plan = plan.step(Step::plain(&kernel, grid, args));
    }
    Ok(plan)
}

/// What a tiled launch is made of.
struct Tiling<'a> {
    problem: &'a Problem,
    config: &'a Config,
    schedule: &'a Schedule,
    target: Target,
}

impl Tiling<'_> {
    fn step<P: Parameters<AttentionArgs>>(
        &self,
        grid: Dim3,
        args: AttentionArgs<With<Arg>>,
    ) -> Result<Step, KernelError> {
        let scoring = &self.problem.scoring;
        let kernel = build_with::<P>(self.config, scoring, self.schedule, self.target.arch)?;
        let tiles = kernel.plan_for(grid, resident(self.config, &kernel, self.target))?;
        let args = P::join(args, scoring.args("q_starts"));
        Ok(Step::tiled(&kernel, &tiles, args))
    }
}

/// Log-sum-exps from one sequence to the next, and from one head to the next.
pub(super) fn log_sum_strides(problem: &Problem) -> (u32, u32) {
    match problem.lengths {
        Lengths::Same { queries, .. } => (problem.heads * queries, queries),
        Lengths::Each(_) => (0, problem.rows().0 as u32),
    }
}

/// Adds what every attention kernel works on: `q`, `k`, `v`, `out` and `lse`, and
/// the first rows of sequences; of keys in pages, how many each sequence has there, and the
/// table of pages; new keys and values.
pub(super) fn buffers(plan: LaunchPlan, problem: &Problem) -> LaunchPlan {
    let ([q, k, v], (out, _)) = (problem.spans(), problem.value_elements());
    let lse = problem.rows().0 * problem.heads as usize;
    let halves = problem.dtype.element();
    let (q_starts, k_starts) = starts(problem);
    let cached = match problem.append {
        None => Purpose::Input,
        Some(_) => Purpose::Updated,
    };
    let plan = plan
        .buffer("q", Purpose::Input, halves, q)
        .buffer("k", cached, problem.cache_element(), k)
        .buffer("out", Purpose::Output, problem.output_element(), out)
        .buffer("lse", Purpose::Output, ElementType::F32, lse)
        .buffer("q_starts", Purpose::Input, ElementType::U32, q_starts.len())
        .buffer("k_starts", Purpose::Input, ElementType::U32, k_starts.len());
    let plan = match problem.cache {
        Cache::Latent => plan,
        _ => plan.buffer("v", cached, problem.cache_element(), v),
    };
    let plan = match problem.appended() {
        None => plan,
        Some((element, len)) => append::NEW.into_iter().fold(plan, |plan, (name, _)| {
            plan.buffer(name, Purpose::Input, element, len)
        }),
    };
    let plan = problem.scoring.buffers(plan, problem);
    let heads = problem.kv_heads as usize;
    let plan = match problem.cache {
        Cache::Same | Cache::Latent => plan,
        Cache::E4m3 => plan
            .buffer("k_scale", Purpose::Input, ElementType::F32, heads)
            .buffer("v_scale", Purpose::Input, ElementType::F32, heads),
    };
    match problem.page_size {
        None => plan,
        Some(_) => {
            let entries = problem.pages().0 * problem.sequences().len();
            plan.buffer("pages", Purpose::Input, ElementType::U32, entries)
        }
    }
}

/// What is in the inputs of a job besides numbers: first rows and pages.
pub(super) fn contents(problem: &Problem) -> impl Fn(&str) -> Option<Buffer> + use<> {
    let (q_starts, k_starts) = starts(problem);
    let pages = problem.page_table();
    let tables = problem.scoring.contents(problem);
    let heads = problem.kv_heads;
    // Another one for each key head.
    let factors = move |first: f32| {
        let factors: Vec<f32> = (0..heads).map(|head| first + head as f32 / 8.0).collect();
        Buffer::from_slice(&factors)
    };
    move |name| match name {
        "q_starts" => Some(Buffer::from_slice(&q_starts)),
        "k_starts" => Some(Buffer::from_slice(&k_starts)),
        "pages" => Some(Buffer::from_slice(&pages)),
        "k_scale" => Some(factors(0.5)),
        "v_scale" => Some(factors(0.75)),
        _ => {
            let table = tables.iter().find(|(table, _)| *table == name)?;
            Some(table.1.clone())
        }
    }
}

/// How many keys before its own and after it a query sees, for a kernel that is
/// built for one kind of mask. A wider kind does for a narrower mask: keys past
/// the end are not seen anyway.
pub(super) fn window(mask: Mask, built: MaskKind) -> Result<(i32, i32), KernelError> {
    let all = MOST as i32;
    match (mask, built) {
        (Mask::Full, _) => Ok((all, all)),
        (Mask::Causal, MaskKind::Causal | MaskKind::Window) => Ok((all, 0)),
        (Mask::Window { left, right }, MaskKind::Window) => Ok((left as i32, right as i32)),
        _ => Err(KernelError::unfit(format!(
            "a kernel for {built:?} masks can't mask as {mask}"
        ))),
    }
}

/// First rows of the sequences, and one past the last; a single zero where all
/// are alike. Of keys in pages, how many each sequence has.
fn starts(problem: &Problem) -> (Vec<u32>, Vec<u32>) {
    let (mut q, mut k) = (vec![0], vec![0]);
    if let Lengths::Each(lengths) = &problem.lengths {
        for &(queries, keys) in lengths {
            q.push(q.last().copied().unwrap_or(0) + queries);
            k.push(k.last().copied().unwrap_or(0) + keys);
        }
    }
    if problem.page_size.is_some() {
        // New keys come behind them.
        let new = problem.append.map_or(0, |append| append.rows);
        k = problem
            .sequences()
            .iter()
            .map(|&(_, keys)| keys - new)
            .collect();
    }
    (q, k)
}
