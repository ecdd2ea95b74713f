//! The kernel: tiles of the result, each a pipeline of copies, fragments one
//! step ahead, sums in registers, and an epilogue.

use super::config::Config;
use super::epilogue::{Finish, Stored, To};
use super::operand::{Element, From, Operand, Width};
use super::problem::{Gemm, Input, Major, Output};
use crate::error::KernelError;
use heist_build::{
    Arch, BuildError, Global, Kernel, Tf32, Val, WarpTile, bf16, f16, kernel_params,
};
use heist_launch::Dim3;
use heist_sched::{Schedule, Tile, Tiled, TiledKernel};

kernel_params! {
    /// What a multiplication works on: [`Gemm`] says what is in the buffers.
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
    pub(crate) even_rows: bool,
    pub(crate) even_cols: bool,
    /// Whether tiles with half of their rows or less are worth code of their own.
    pub(crate) short_tiles: bool,
}

impl Plan {
    pub(crate) fn new(problem: &Gemm, config: Config) -> Result<Plan, KernelError> {
        problem.check()?;
        config.check()?;
        let bytes = problem.input.bytes();
        let depth = config.depth * 2 / bytes;
        let even_rows = problem.m.is_multiple_of(config.rows);
        let even_cols = problem.n.is_multiple_of(config.cols);
        let operand = |name, major, outer, pitch, even_outer| Operand {
            name,
            major,
            outer,
            depth,
            width: Width::of(pitch, bytes),
            even_outer,
            even_depth: problem.k.is_multiple_of(depth),
        };
        let (rows, cols) = (config.rows, config.cols);
        Ok(Plan {
            config,
            input: problem.input,
            output: problem.output,
            a: operand("a", problem.layout.a(), rows, problem.lda, even_rows),
            b: operand("b", problem.layout.b(), cols, problem.ldb, even_cols),
            finish: Finish::new(&problem.epilogue, problem.ldc),
            even_rows,
            even_cols,
            short_tiles: false,
        })
    }
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
        Input::Tf32 => build_from::<Tf32>(plan, tiles, schedule, arch),
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
            tiles.each(|tile| {
                let (row0, col0) = origin(&config, tile);
                let a = From {
                    at: args.a.cast::<T>().at(skip(plan.a.major, row0, args.lda)),
                    pitch: args.lda,
                    outer: args.m - row0,
                    depth: args.k,
                };
                let b = From {
                    at: args.b.cast::<T>().at(skip(plan.b.major, col0, args.ldb)),
                    pitch: args.ldb,
                    outer: args.n - col0,
                    depth: args.k,
                };
                let warp = WarpPlace::new(k, &config);
                let sums = multiply(k, plan, a, b, &warp);
                k.comment("the epilogue");
                let (row, col) = (row0 + warp.row, col0 + warp.col);
                let first = row.cast::<u64>() * args.ldc.cast::<u64>() + col.cast::<u64>();
                let to = To {
                    d: args.d.cast::<O>().at(first),
                    c: args.c.cast::<O>().at(first),
                    bias: args.bias.cast::<O>().at(col),
                    pitch: args.ldc,
                    rows: (!plan.even_rows).then(|| left(args.m, row)),
                    cols: (!plan.even_cols).then(|| left(args.n, col)),
                    alpha: args.alpha,
                    beta: args.beta,
                };
                plan.finish.store(k, &sums, &to);
            })
        })
}

/// How many there are from `at` on. A warp's tile may start outside; then
/// nothing of it is inside.
pub(crate) fn left<'k>(all: Val<'k, u32>, at: Val<'k, u32>) -> Val<'k, u32> {
    all.max(at) - at
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

/// The place of a warp in its block's tile.
#[derive(Clone, Copy)]
pub(crate) struct WarpPlace<'k> {
    pub(crate) row: Val<'k, u32>,
    pub(crate) col: Val<'k, u32>,
}

impl<'k> WarpPlace<'k> {
    pub(crate) fn new(k: &Kernel<'k>, config: &Config) -> WarpPlace<'k> {
        let (_, across) = config.warps();
        let warp = k.warp();
        WarpPlace {
            row: warp / across * config.warp_rows,
            col: warp % across * config.warp_cols,
        }
    }
}

/// The sums of a warp: a block's tile of A times its tile of B.
pub(crate) fn multiply<'k, T: Element>(
    k: &Kernel<'k>,
    plan: &Plan,
    a: From<'k, T>,
    b: From<'k, T>,
    warp: &WarpPlace<'k>,
) -> WarpTile<'k> {
    let Config {
        warp_rows,
        warp_cols,
        stages,
        ..
    } = plan.config;
    let sums = WarpTile::zero(k, (warp_rows / 16) as usize, (warp_cols / 8) as usize);
    let pipeline = k.copy_pipeline_of(stages, (plan.a.spec::<T>(), plan.b.spec::<T>()));
    let run = |rows: u32| {
        let sums = sums.top((rows / 16) as usize);
        let depth = plan.a.depth;
        pipeline.again().run_ahead(
            (a.depth + (depth - 1)) / depth,
            depth / T::K,
            |step, (left, right)| {
                plan.a.fill(step, a, left);
                plan.b.fill(step, b, right);
            },
            |(left, right), part| {
                (
                    plan.a.left(left, warp.row, rows, part),
                    plan.b.right(right, warp.col, warp_cols, part),
                )
            },
            |(left, right)| sums.mma(left, right),
        );
    };
    if plan.config.warps().0 == 1 && warp_rows >= 32 && plan.short_tiles {
        // Of a tile with few rows, multiply those alone.
        let half = warp_rows / 2;
        k.if_else(a.outer.le(half), || run(half), || run(warp_rows));
    } else {
        run(warp_rows);
    }
    sums
}
