//! The kernel, from a problem and a tile shape to a launch.

use super::epilogue::{Origin, Staging, panel_columns, store_by_threads};
use super::mainloop::{Factors, ring};
use super::pipeline::{Pipeline, TileEpilogue};
use super::tiling::{DEPTH, ROWS, THREADS, TensorTiling};
use crate::error::KernelError;
use crate::family::Target;
use crate::gemm::warpgroup::{Matrices, Side};
use crate::gemm::{Finish, Gemm, Input, Major, Output, Scales, Stored, To, left};
use crate::gemm::{tensor_element, uncopyable};
use crate::job::{Step, buffer};
use crate::plan::LaunchPlan;
use heist_builder::{
    Arch, BlockGroup, BuildError, E4m3, E5m2, Feature, Global, Kernel, On, OneBlock, PairOfBlocks,
    TensorInput, TensorMap, TensorSums, Tf32, Val, bf16, f16, kernel_params,
};
use heist_launch::{Arg, BufferRef, Dim3, Swizzle, TensorElement, TensorMap as Map};
use heist_sched::{Schedule, Tile, Tiled, TiledKernel};
use std::marker::PhantomData;

kernel_params! {
    /// The kernel's parameters.
    pub(crate) struct TensorArgs {
        /// A.
        left: TensorMap<f16, 3>,
        /// B.
        right: TensorMap<f16, 3>,
        /// The result, where the copy engine stores it.
        out: TensorMap<f16, 3>,
        /// What is added; not read where beta is zero.
        c: Global<u8>,
        /// The result. May be C.
        d: Global<u8>,
        /// What is added to every row; not read where there is none.
        bias: Global<u8>,
        /// Factors of A, where it has any.
        scale_a: Global<f32>,
        /// Of B.
        scale_b: Global<f32>,
        /// Rows of the result.
        m: u32,
        /// Its columns.
        n: u32,
        /// Elements from row to row of C and D.
        ldc: u32,
        /// Steps of the depth, each a stage.
        steps: u32,
        /// The factor of the product.
        alpha: f32,
        /// The factor of C.
        beta: f32,
    }
}

/// What to say where a device has no such tensor cores.
pub(crate) fn no_tcgen05(target: Target) -> Option<String> {
    (!target.arch.supports(Feature::Tcgen05)).then(|| {
        format!(
            "{} has no tcgen05: it needs sm_100a, sm_103a or sm_110a",
            target.arch
        )
    })
}

/// Why these tensor cores can't multiply this on that device.
pub(crate) fn refusal(problem: &Gemm, target: Target) -> Option<String> {
    if let Some(why) = no_tcgen05(target) {
        return Some(why);
    }
    if problem.scales == Scales::Blocks {
        return Some("scales of blocks are applied between products, which wgmma does".into());
    }
    uncopyable(problem)
}

/// Everything that is fixed when a kernel is built.
#[derive(Clone, Copy, Debug)]
struct Form {
    tiling: TensorTiling,
    /// Bytes of an element of the operands.
    bytes: u32,
    /// How A and B are stored.
    majors: [Major; 2],
    finish: Finish,
    /// Whether the copy engine stores the result.
    staged: bool,
    /// Whether all tiles lie inside of the result, down and across.
    even: [bool; 2],
}

impl Form {
    fn new(problem: &Gemm, tiling: &TensorTiling) -> Form {
        let finish = Finish::new(&problem.epilogue, problem.scales, problem.ldc);
        let row = problem.ldc * output_bytes(problem);
        let staged = row.is_multiple_of(16);
        // The copy engine clips what it stores; what is read has to be looked at.
        let clipped = staged && !finish.reads();
        Form {
            tiling: *tiling,
            bytes: problem.input.bytes(),
            majors: [problem.layout.a(), problem.layout.b()],
            finish,
            staged,
            even: [
                clipped || problem.m.is_multiple_of(ROWS * tiling.blocks),
                clipped || problem.n.is_multiple_of(tiling.cols),
            ],
        }
    }
}

fn output_bytes(problem: &Gemm) -> u32 {
    problem.output.element().bytes() as u32
}

/// The grid of what blocks have of tiles: columns along x, rows along y, the products of a batch
/// along z. The blocks of a pair are neighbours along y.
pub(super) fn tiles(problem: &Gemm, cols: u32) -> Dim3 {
    Dim3::new(
        problem.n.div_ceil(cols),
        problem.m.div_ceil(ROWS),
        problem.batch,
    )
}

fn build<H: TensorInput, O: Stored, G: BlockGroup>(
    form: &Form,
    tiles: Dim3,
    schedule: &Schedule,
    arch: Arch,
) -> Result<TiledKernel<TensorArgs>, BuildError> {
    let tiling = &form.tiling;
    let mut tiled = Tiled::<TensorArgs>::new("gemm_tcgen05", tiles)
        .schedule(schedule)
        .block(THREADS)
        .min_blocks(1);
    if G::BLOCKS > 1 {
        // A block past the edge still has its columns to copy.
        tiled = tiled.cluster(cluster(tiling)).padded();
    }
    tiled.build(arch, |k, args, tiles| {
        let ring = ring::<G>(k, tiling, form.majors);
        let staging = form.staged.then(|| Staging::new(k, args.out));
        k.tensor_memory_of::<G, _>(|memory| {
            let results = Results::<O> {
                k: *k,
                args: &args,
                form,
                staging,
                stored: PhantomData,
            };
            let pipeline = Pipeline::new(k, tiling, &ring, memory, results);
            let of = |tile| factors(k, &args, form, tile);
            let body = |tile| pipeline.tile::<H>(of(tile), origin(tiling, tile));
            let done = tiles.each_ahead(body, |next| pipeline.begin(of(next)));
            pipeline.finish();
            done
        })
    })
}

/// The blocks that multiply a tile together.
fn cluster(tiling: &TensorTiling) -> Dim3 {
    Dim3::new(1, tiling.blocks, 1)
}

/// Where a tile begins in the result.
fn origin<'k>(tiling: &TensorTiling, tile: Tile<'k>) -> Origin<'k> {
    Origin {
        row: tile.y * ROWS,
        col: tile.x * tiling.cols,
        number: tile.z,
    }
}

/// What a block has of a tile's factors: its rows of A, its share of the columns of B.
fn factors<'k>(
    k: &Kernel<'k>,
    args: &TensorArgs<On<'k>>,
    form: &Form,
    tile: Tile<'k>,
) -> Factors<'k> {
    let tiling = &form.tiling;
    let share = match tiling.blocks {
        1 => k.c(0),
        _ => k.cluster_rank() * tiling.own_cols(),
    };
    let side = |map, major, first: Val<'k, u32>| Side {
        map,
        major,
        number: tile.z,
        first,
        span: 128 / form.bytes,
        apart: None,
    };
    let [rows, cols] = form.majors;
    Factors {
        left: side(args.left, rows, tile.y * ROWS),
        right: side(args.right, cols, tile.x * tiling.cols + share),
        steps: args.steps,
    }
}

/// The results inside the kernel.
struct Results<'r, 'k, O> {
    k: Kernel<'k>,
    args: &'r TensorArgs<On<'k>>,
    form: &'r Form,
    staging: Option<Staging<'k>>,
    stored: PhantomData<fn() -> O>,
}

impl<'k, O: Stored> TileEpilogue<'k> for Results<'_, 'k, O> {
    fn store(&self, sums: &TensorSums<'k>, at: Origin<'k>) {
        let Results { args, form, .. } = self;
        let Origin { row, col, number } = at;
        let down = number.mul_wide(args.m) + row.cast::<u64>();
        let first = down * args.ldc.cast::<u64>() + col.cast::<u64>();
        let finish = &form.finish;
        let to = To {
            d: args.d.cast::<O>().at(first),
            c: args.c.cast::<O>().at(first),
            bias: args.bias.cast::<O>().at(col),
            pitch: args.ldc,
            rows: (!form.even[0]).then(|| left(args.m, row)),
            cols: (!form.even[1]).then(|| left(args.n, col)),
            alpha: finish.factor(args.alpha, [args.scale_a, args.scale_b]),
            beta: args.beta,
            scales: finish.of_rows([args.scale_a.at(row), args.scale_b.at(col)]),
            placed: None,
        };
        match self.staging {
            Some(staging) => staging.store(finish, sums, at, &to),
            None => store_by_threads(&self.k, finish, sums, &to),
        }
    }

    fn finish(&self) {
        self.staging.iter().for_each(Staging::finish);
    }
}

/// The launch of a multiplication in these tiles, over buffers called `a`, `b`, `c`, `d` and
/// `bias`.
///
/// # Errors
/// What could not be built or planned.
pub(super) fn plan(
    problem: &Gemm,
    tiling: &TensorTiling,
    schedule: &Schedule,
    target: Target,
) -> Result<LaunchPlan, KernelError> {
    problem.check()?;
    tiling.check()?;
    if let Some(why) = refusal(problem, target) {
        return Err(KernelError::unfit(format!("gemm {tiling}: {why}")));
    }
    tiling.fits(target.arch)?;
    if tiling.blocks > 1 && ![Dim3::ONE, cluster(tiling)].contains(&schedule.cluster) {
        return Err(KernelError::unfit(format!(
            "gemm {tiling}: a pair of blocks is a cluster of 1x2, and the schedule says {}; leave its cluster out",
            schedule.cluster
        )));
    }
    let form = Form::new(problem, tiling);
    let tiles = tiles(problem, tiling.cols);
    let build = match problem.input {
        Input::F16 => with_output::<f16>(problem.output, tiling),
        Input::Bf16 => with_output::<bf16>(problem.output, tiling),
        Input::Tf32 => with_output::<Tf32>(problem.output, tiling),
        Input::E4m3 => with_output::<E4m3>(problem.output, tiling),
        Input::E5m2 => with_output::<E5m2>(problem.output, tiling),
    };
    let kernel = build(&form, tiles, schedule, target.arch)?;
    // One block a multiprocessor: its accumulators may take all of the tensor memory.
    let launch = kernel.plan(target.resident(&kernel.built.launch, 255))?;
    // An unused parameter is set to any buffer.
    let either = |used, name| buffer(if used { name } else { "d" });
    let scaled = problem.scales != Scales::None;
    let [left, right, out] = maps(problem, &form);
    let args = TensorArgs {
        left,
        right,
        out,
        c: buffer("c"),
        d: buffer("d"),
        bias: buffer("bias"),
        scale_a: either(scaled, "scale_a"),
        scale_b: either(scaled, "scale_b"),
        m: problem.m,
        n: problem.n,
        ldc: problem.ldc,
        steps: problem.k.div_ceil(DEPTH * 2 / problem.input.bytes()),
        alpha: problem.epilogue.alpha,
        beta: problem.epilogue.beta,
    };
    let name = format!("gemm {problem} {tiling}");
    Ok(LaunchPlan::new(name, tiling.to_string(), problem.work())
        .step(Step::tiled(&kernel, &launch, args)))
}

type Build = fn(&Form, Dim3, &Schedule, Arch) -> Result<TiledKernel<TensorArgs>, BuildError>;

fn with_output<H: TensorInput>(output: Output, tiling: &TensorTiling) -> Build {
    match output {
        Output::F16 => with_group::<H, f16>(tiling),
        Output::Bf16 => with_group::<H, bf16>(tiling),
        Output::F32 => with_group::<H, f32>(tiling),
    }
}

fn with_group<H: TensorInput, O: Stored>(tiling: &TensorTiling) -> Build {
    match tiling.blocks {
        1 => build::<H, O, OneBlock>,
        _ => build::<H, O, PairOfBlocks>,
    }
}

/// The tensor maps of both operands and of the result.
fn maps(problem: &Gemm, form: &Form) -> [Arg; 3] {
    let map = |name, major, outer: u32, pitch, high| {
        let matrix = Matrices {
            element: tensor_element(problem.input),
            major,
            outer: outer.into(),
            depth: problem.k,
            pitch,
            count: problem.batch,
        };
        matrix.map(name, high, DEPTH)
    };
    let [a, b] = form.majors;
    let left = map("a", a, problem.m, problem.lda, ROWS);
    let right = map("b", b, problem.n, problem.ldb, form.tiling.own_cols());
    if !form.staged {
        // The kernel does not look at it.
        return [left.clone(), right, left];
    }
    let dims = [problem.n, problem.m, problem.batch];
    [left, right, result_map(problem.output, dims, problem.ldc)]
}

/// The map of results `d` of so many columns and rows, some of them in a row, for the storing warps.
pub(crate) fn result_map(output: Output, dims: [u32; 3], pitch: u32) -> Arg {
    let element = match output {
        Output::F16 => TensorElement::F16,
        Output::Bf16 => TensorElement::Bf16,
        Output::F32 => TensorElement::F32,
    };
    let bytes = output.element().bytes() as u32;
    let [n, m, batch] = dims.map(u64::from);
    let d = BufferRef::Named("d".to_owned());
    let mut out = Map::dense(d, element, &[n, m, batch], &[panel_columns(bytes), 32, 1]);
    let row = u64::from(pitch) * u64::from(bytes);
    out.strides = vec![row, row * m];
    Arg::TensorMap(out.swizzle(Swizzle::Bytes128))
}
