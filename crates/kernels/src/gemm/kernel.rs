//! The `mma.sync` kernel: per tile of the result a pipeline of copies, fragments loaded one step
//! ahead, accumulators in registers, and an epilogue.

use super::config::Config;
use super::epilogue::{Finish, To};
use super::left::left;
use super::operand::{Element, From, Operand, Span, Width};
use super::problem::{Gemm, Input, Major, Output, Scales};
use super::rows::{Panel, Rows};
use super::spread::Added;
use super::stored::Stored;
use crate::error::KernelError;
use heist_builder::{
    Arch, BuildError, CopyPipeline, FillTile, Global, Kernel, SharedTile, Tf32, TileSpec, Val,
    WarpTile, bf16, f16, kernel_params,
};
use heist_launch::Dim3;
use heist_sched::{Schedule, Tile, Tiled, TiledKernel};

kernel_params! {
    /// The kernel's parameters: [`Gemm`] describes the buffers.
    pub struct GemmArgs {
        /// The left matrix.
        a: Global<u8>,
        /// The right matrix.
        b: Global<u8>,
        /// What is added; not read where beta is zero.
        c: Global<u8>,
        /// The result. May be C.
        d: Global<u8>,
        /// What is added to every row; not read where there is none.
        bias: Global<u8>,
        /// Rows.
        m: u32,
        /// Columns.
        n: u32,
        /// Depth.
        k: u32,
        /// Elements from row to row of A.
        lda: u32,
        /// Of B.
        ldb: u32,
        /// Of C and D.
        ldc: u32,
        /// The factor of the product.
        alpha: f32,
        /// The factor of C.
        beta: f32,
    }
}

/// Everything about a multiplication that is fixed when its kernel is built.
/// Kernels of equal plans are the same.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) config: Config,
    pub(crate) input: Input,
    pub(crate) output: Output,
    pub(crate) a: Operand,
    pub(crate) b: Operand,
    pub(crate) finish: Finish,
    /// Where results leave row by row.
    pub(crate) rows: Option<Panel>,
    pub(crate) even_rows: bool,
    pub(crate) even_cols: bool,
}

impl Plan {
    pub(crate) fn new(problem: &Gemm, config: Config, arch: Arch) -> Result<Plan, KernelError> {
        problem.check()?;
        config.check()?;
        if let Some(why) = refusal(problem) {
            return Err(KernelError::unfit(format!("gemm {config}: {why}")));
        }
        let bytes = problem.input.bytes();
        let depth = config.depth * 2 / bytes;
        let even_rows = problem.m.is_multiple_of(config.rows);
        let even_cols = problem.n.is_multiple_of(config.cols);
        let operand = |name, major, outer, width, even_outer| Operand {
            name,
            major,
            outer,
            depth,
            width,
            even_outer,
            even_depth: problem.k.is_multiple_of(depth),
            kept: config.rows * config.cols <= KEPT,
        };
        let (rows, cols) = (config.rows, config.cols);
        let [width_a, width_b] = [0, 1].map(|at: usize| match problem.anywhere[at] {
            true => Width::Shifted,
            false => Width::of([problem.lda, problem.ldb][at], bytes),
        });
        let a = operand("a", problem.layout.a(), rows, width_a, even_rows);
        let b = operand("b", problem.layout.b(), cols, width_b, even_cols);
        let finish = Finish::new(&problem.epilogue, Scales::None, problem.ldc);
        let stage = a.stage_bytes(bytes) + b.stage_bytes(bytes);
        let panel = match finish.aligned {
            1 => panel(&config, stage, problem.output.bytes(), arch),
            _ => None,
        };
        Ok(Plan {
            rows: panel,
            config,
            input: problem.input,
            output: problem.output,
            a,
            b,
            finish,
            even_rows,
            even_cols,
        })
    }
}

/// The most results of a tile whose operands are short rows that other blocks read, too.
const KEPT: u32 = 64 * 64;

/// The panel that results of rows that begin at any element leave in, where one fits beside stages of so many bytes. It may take the room of
/// another block on the multiprocessor: what was measured on an H200 was so.
fn panel(config: &Config, stage: u32, element: u32, arch: Arch) -> Option<Panel> {
    let room = arch.limits().shared_opt_in;
    let room = room.checked_sub(config.stages * stage + 1024)?;
    Panel::new(element, config.warp_cols, config.threads() / 32, room)
}

/// Why `mma.sync` can't multiply this.
pub(crate) fn refusal(problem: &Gemm) -> Option<String> {
    if problem.input.is_tiny() {
        return Some(format!(
            "mma.sync multiplies f16, bf16 and tf32 here, not {}: that takes warpgroups (sm_90a)",
            problem.input
        ));
    }
    if problem.batch > 1 {
        return Some("a batch is multiplied by the kernels on warpgroups (sm_90a)".into());
    }
    (problem.scales != Scales::None)
        .then(|| "factors of A and B are applied by the kernels on warpgroups (sm_90a)".into())
}

/// The grid of tiles of a result: columns along x, rows along y.
pub(crate) fn tiles(m: u32, n: u32, config: &Config) -> Dim3 {
    Dim3::new(n.div_ceil(config.cols), m.div_ceil(config.rows), 1)
}

/// Builds the kernel of a plan.
pub(crate) fn build(
    plan: &Plan,
    tiles: Dim3,
    schedule: &Schedule,
    arch: Arch,
) -> Result<TiledKernel<GemmArgs>, BuildError> {
    match plan.input {
        Input::F16 => build_from::<f16>(plan, tiles, schedule, arch),
        Input::Bf16 => build_from::<bf16>(plan, tiles, schedule, arch),
        // Others were refused.
        _ => build_from::<Tf32>(plan, tiles, schedule, arch),
    }
}

fn build_from<T: Element>(
    plan: &Plan,
    tiles: Dim3,
    schedule: &Schedule,
    arch: Arch,
) -> Result<TiledKernel<GemmArgs>, BuildError> {
    match plan.output {
        Output::F16 => build_typed::<T, f16>(plan, tiles, schedule, arch),
        Output::Bf16 => build_typed::<T, bf16>(plan, tiles, schedule, arch),
        Output::F32 => build_typed::<T, f32>(plan, tiles, schedule, arch),
    }
}

fn build_typed<T: Element, O: Stored>(
    plan: &Plan,
    tiles: Dim3,
    schedule: &Schedule,
    arch: Arch,
) -> Result<TiledKernel<GemmArgs>, BuildError> {
    let config = plan.config;
    Tiled::<GemmArgs>::new("gemm", tiles)
        .schedule(schedule)
        .block(config.threads())
        .min_blocks(config.blocks)
        .build(arch, |k, args, tiles| {
            let written = || Span::of::<O>(args.d, args.m.cast(), args.ldc);
            let joined = [
                (&plan.a, args.a, args.lda, args.m),
                (&plan.b, args.b, args.ldb, args.n),
            ]
            .map(|(operand, at, pitch, outer)| {
                operand.joined::<T>(at, pitch, [outer, args.k, k.c(1)], written)
            });
            let rows = plan
                .rows
                .map(|panel| Rows::new(k, panel, config.threads() / 32, k.warp_uniform()));
            tiles.each(|tile| {
                let (row0, col0) = origin(&config, tile);
                let a = From {
                    at: args.a.cast::<T>().at(skip(plan.a.major, row0, args.lda)),
                    pitch: args.lda,
                    outer: args.m - row0,
                    depth: args.k,
                    follows: plan.a.follows(row0),
                    row: plan.a.stored_row(row0, k.c(0)),
                    joined: joined[0],
                };
                let b = From {
                    at: args.b.cast::<T>().at(skip(plan.b.major, col0, args.ldb)),
                    pitch: args.ldb,
                    outer: args.n - col0,
                    depth: args.k,
                    follows: plan.b.follows(col0),
                    row: plan.b.stored_row(col0, k.c(0)),
                    joined: joined[1],
                };
                let cut = Cut::of(&config);
                let warp = WarpPlace::new(k, &cut);
                let sums = multiply(k, plan, &pipeline(k, plan), &cut, a, b);
                k.comment("the epilogue");
                let (row, col) = (row0 + warp.row, col0 + warp.col);
                let first = row.cast::<u64>() * args.ldc.cast::<u64>() + col.cast::<u64>();
                let to = To {
                    d: args.d.cast::<O>().at(first),
                    c: Added::new(plan.finish.spread, args.c.cast()).at([row, col], first),
                    bias: args.bias.cast::<O>().at(col),
                    pitch: args.ldc,
                    rows: (!plan.even_rows).then(|| left(args.m, row)),
                    cols: (!plan.even_cols).then(|| left(args.n, col)),
                    alpha: args.alpha,
                    beta: args.beta,
                    scales: None,
                    placed: None,
                };
                match rows {
                    Some(rows) => rows.store_tile(&plan.finish, &sums, &to),
                    None => plan.finish.store(k, &sums, &to),
                }
            })
        })
}

/// The first row and column of a tile.
fn origin<'k>(config: &Config, tile: Tile<'k>) -> (Val<'k, u32>, Val<'k, u32>) {
    let (row, col) = (tile.y * config.rows, tile.x * config.cols);
    (row.named("row0"), col.named("col0"))
}

/// Elements before the first of a tile.
pub(crate) fn skip<'k>(major: Major, outer: Val<'k, u32>, pitch: Val<'k, u32>) -> Val<'k, u64> {
    match major {
        Major::Depth => outer.cast::<u64>() * pitch.cast::<u64>(),
        Major::Outer => outer.cast::<u64>(),
    }
}

/// How a block's warps share a tile, or its first rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cut {
    /// Rows of the tile that are worked on.
    pub(crate) rows: u32,
    pub(crate) warp_rows: u32,
    pub(crate) warp_cols: u32,
    /// Warps side by side.
    pub(crate) across: u32,
}

impl Cut {
    /// The whole tile.
    pub(crate) fn of(config: &Config) -> Cut {
        Cut {
            rows: config.rows,
            warp_rows: config.warp_rows,
            warp_cols: config.warp_cols,
            across: config.warps().1,
        }
    }

    /// Its first rows alone, by all warps side by side; `None` where there are
    /// too many warps or too few rows for that.
    pub(crate) fn short(config: &Config, rows: u32) -> Option<Cut> {
        let warps = config.threads() / 32;
        let warp_cols = config.cols / warps;
        let fits = warp_cols >= 16
            && warp_cols.is_multiple_of(16)
            && rows.is_multiple_of(16)
            && (16..=64).contains(&rows)
            && rows < config.rows;
        fits.then_some(Cut {
            rows,
            warp_rows: rows,
            warp_cols,
            across: warps,
        })
    }
}

/// The place of a warp in its block's tile.
#[derive(Clone, Copy)]
pub(crate) struct WarpPlace<'k> {
    pub(crate) row: Val<'k, u32>,
    pub(crate) col: Val<'k, u32>,
}

impl<'k> WarpPlace<'k> {
    pub(crate) fn new(k: &Kernel<'k>, cut: &Cut) -> WarpPlace<'k> {
        let warp = k.warp();
        WarpPlace {
            row: warp / cut.across * cut.warp_rows,
            col: warp % cut.across * cut.warp_cols,
        }
    }
}

/// The stages of a kernel's tiles of A and B.
pub(crate) type Stages<'k, T> = CopyPipeline<'k, (TileSpec<'static, T>, TileSpec<'static, T>)>;

/// Makes them.
pub(crate) fn pipeline<'k, T: Element>(k: &Kernel<'k>, plan: &Plan) -> Stages<'k, T> {
    let spec = (plan.a.spec::<T>(), plan.b.spec::<T>());
    k.copy_pipeline_of(plan.config.stages, spec)
}

/// The mainloop of a warp: its accumulators of the block's tile of A times its tile of B.
pub(crate) fn multiply<'k, T: Element>(
    k: &Kernel<'k>,
    plan: &Plan,
    stages: &Stages<'k, T>,
    cut: &Cut,
    a: From<'k, T>,
    b: From<'k, T>,
) -> WarpTile<'k> {
    let (rows, cols) = (cut.warp_rows, cut.warp_cols);
    let sums = WarpTile::zero(k, (rows / 16) as usize, (cols / 8) as usize);
    let warp = WarpPlace::new(k, cut);
    let depth = plan.a.depth;
    let steps = (a.depth + (depth - 1)) / depth;
    let shifts = (plan.a.shifts(k, a), plan.b.shifts(k, b));
    let fill = |step, (left, right): (FillTile<'k, T>, FillTile<'k, T>)| {
        // Only A of tiles that are stored by rows is ever cut short.
        let left = match plan.a.major {
            Major::Depth => left.top(cut.rows),
            Major::Outer => left,
        };
        plan.a.fill(step, a, left);
        plan.b.fill(step, b, right);
    };
    let load = |(left, right): (SharedTile<'k, T>, SharedTile<'k, T>), part| {
        (
            plan.a.left(left, shifts.0.as_ref(), warp.row, rows, part),
            plan.b.right(right, shifts.1.as_ref(), warp.col, cols, part),
        )
    };
    let work = |(left, right): &(Vec<_>, Vec<_>)| sums.mma(left, right);
    let parts = depth / T::K;
    let stages = stages.again();
    match shifts {
        (None, None) => stages.run_ahead(steps, parts, fill, load, work),
        // Lanes load a word or two of each register by itself: for a step ahead there are none left.
        _ => stages.run(steps, fill, |_, stage| {
            (0..parts).for_each(|part| work(&load(stage, part)));
        }),
    }
    sums
}
