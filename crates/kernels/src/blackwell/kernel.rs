//! The kernel, from a problem and a tile shape to a launch.

use super::epilogue::{Origin, Staging, panel_columns, store_by_threads};
use super::mainloop::{Factors, Multiplication, ring, side_by_side};
use super::pipeline::{Pipeline, TileEpilogue};
use super::scaled::{self, BlockFactors, BlockScaled, has_scales};
use super::tiling::{DEPTH, ROW_BYTES, ROWS, THREADS, TensorTiling};
use crate::error::KernelError;
use crate::family::Target;
use crate::gemm::warpgroup::{Matrices, Peers, Side};
use crate::gemm::{Added, Finish, Gemm, Input, MX_BLOCK, Major, Output, Scales, Stored, To, left};
use crate::gemm::{Anew, tensor_element, uncopyable};
use crate::job::{Step, buffer};
use crate::plan::LaunchPlan;
use heist_builder::{
    Arch, BlockGroup, BuildError, E4m3, E5m2, Feature, Global, Kernel, On, OneBlock, PairOfBlocks,
    ScaledInput, TensorInput, TensorMap, TensorSums, Tf32, Val, bf16, f16, kernel_params,
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
        /// Factors of blocks of A, where they have any.
        block_scale_a: TensorMap<u32, 3>,
        /// Of B.
        block_scale_b: TensorMap<u32, 3>,
        /// Rows of the result.
        m: u32,
        /// Its columns.
        n: u32,
        /// Elements from row to row of C and D.
        ldc: u32,
        /// Steps of the depth, each a stage.
        steps: u32,
        /// Blocks of the depth, where they have factors.
        blocks: u32,
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
    let anew = Anew::along(problem, DEEP);
    uncopyable(
        anew.as_ref().map_or(problem, |anew| &anew.problem),
        &[Input::F16, Input::Bf16],
    )
}

/// Words of both operands lie along the depth.
const DEEP: [bool; 2] = [true, true];

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
    /// Whether whole stages cover the depth.
    even_depth: bool,
    /// Pairs that stand side by side in a cluster.
    side_by_side: u32,
}

impl Form {
    fn new(problem: &Gemm, tiling: &TensorTiling, schedule: &Schedule) -> Form {
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
            side_by_side: match tiling.blocks {
                1 => 1,
                _ => schedule.cluster.x,
            },
            even_depth: problem.k.is_multiple_of(ROW_BYTES / problem.input.bytes()),
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

/// A way to multiply, with what a tile of this kernel needs for it.
trait Way: Multiplication + 'static {
    fn from<'k>(args: &TensorArgs<On<'k>>, form: &Form, at: Origin<'k>) -> Self::From<'k>;
}

impl<H: TensorInput + 'static> Way for H {
    fn from<'k>(_: &TensorArgs<On<'k>>, _: &Form, _: Origin<'k>) {}
}

impl<H: ScaledInput + 'static> Way for BlockScaled<H> {
    fn from<'k>(args: &TensorArgs<On<'k>>, form: &Form, at: Origin<'k>) -> BlockFactors<'k> {
        let maps = [args.block_scale_a, args.block_scale_b];
        let blocks = (!form.even_depth).then_some(args.blocks);
        BlockFactors::new(&form.tiling, maps, [at.row, at.col], blocks)
    }
}

fn build<M: Way, O: Stored, G: BlockGroup>(
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
        tiled = tiled.cluster(cluster(schedule)).padded();
    }
    tiled.build(arch, |k, args, tiles| {
        let ring = ring::<M, G>(k, tiling, form.majors);
        let staging = form.staged.then(|| Staging::new(k, args.out));
        k.tensor_memory_of::<G, _>(|memory| {
            let results = Results::<O> {
                k: *k,
                args: &args,
                form,
                staging,
                stored: PhantomData,
            };
            let pipeline = Pipeline::<_, _, M>::new(k, tiling, &ring, memory, results);
            let at = |tile| origin::<G>(k, tiling, tile);
            let of = |at| factors::<M, G>(k, &args, form, at);
            let body = |tile| pipeline.tile(of(at(tile)), at(tile));
            let done = tiles.each_ahead(body, |next| pipeline.begin(of(at(next))));
            pipeline.finish();
            done
        })
    })
}

/// The clusters of pairs: one pair, or as many side by side as the schedule says.
fn cluster(schedule: &Schedule) -> Dim3 {
    Dim3::new(schedule.cluster.x, PairOfBlocks::BLOCKS, 1)
}

/// Where a block's part of its cluster's tiles begins in the result. Ranks go along x first, and a pair
/// is two neighbouring ranks, but its blocks have rows below each other: where pairs stand side by side,
/// blocks are counted anew.
fn origin<'k, G: BlockGroup>(k: &Kernel<'k>, tiling: &TensorTiling, tile: Tile<'k>) -> Origin<'k> {
    let (mut x, mut y) = (tile.x, tile.y);
    if side_by_side::<G>(k) > 1 {
        let at = k.cluster_block();
        x = x - at.x + k.cluster_rank() / G::BLOCKS;
        y = y - at.y + k.rank_in_group::<G>();
    }
    Origin {
        row: y * ROWS,
        col: x * tiling.cols,
        number: tile.z,
    }
}

/// The blocks that have the same rows: of the pairs side by side those with the same place in theirs.
fn peers<'k, G: BlockGroup>(k: &Kernel<'k>) -> Peers<'k> {
    let count = side_by_side::<G>(k);
    if count == 1 {
        return Peers::first(k, 1);
    }
    let leaders = (0..count).fold(0, |ranks, pair| ranks | 1u32 << (pair * G::BLOCKS));
    Peers {
        count,
        number: k.cluster_rank() / G::BLOCKS,
        ranks: (k.c(leaders) << k.rank_in_group::<G>()).cast(),
    }
}

/// What a block has of a tile's factors: its rows of A, its share of the columns of B.
fn factors<'k, M: Way, G: BlockGroup>(
    k: &Kernel<'k>,
    args: &TensorArgs<On<'k>>,
    form: &Form,
    at: Origin<'k>,
) -> Factors<'k, M::From<'k>> {
    let tiling = &form.tiling;
    let share = k.rank_in_group::<G>() * tiling.own_cols();
    let side = |map, major, first: Val<'k, u32>| Side {
        map,
        major,
        number: at.number,
        first,
        span: 128 / form.bytes,
        apart: None,
        edge: None,
    };
    let [rows, cols] = form.majors;
    Factors {
        left: side(args.left, rows, at.row),
        right: side(args.right, cols, at.col + share),
        peers: peers::<G>(k),
        scales: M::from(args, form, at),
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
            c: Added::new(finish.spread, args.c.cast()).at([row, col], first),
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
    let given = problem;
    let anew = Anew::along(problem, DEEP);
    let problem = anew.as_ref().map_or(problem, |anew| &anew.problem);
    tiling.fits(has_scales(problem), target.arch)?;
    if tiling.blocks > 1 && ![Dim3::ONE, cluster(schedule)].contains(&schedule.cluster) {
        return Err(KernelError::unfit(format!(
            "gemm {tiling}: pairs of blocks are clusters of 1x2 or 2x2, two blocks high, and the schedule says {}; leave its cluster out",
            schedule.cluster
        )));
    }
    let form = Form::new(problem, tiling, schedule);
    let tiles = tiles(problem, tiling.cols);
    let (output, scaled) = (problem.output, has_scales(problem));
    let build = match problem.input {
        Input::F16 => with_output::<f16>(output, tiling),
        Input::Bf16 => with_output::<bf16>(output, tiling),
        Input::Tf32 => with_output::<Tf32>(output, tiling),
        Input::E4m3 if scaled => with_output::<BlockScaled<E4m3>>(output, tiling),
        Input::E5m2 if scaled => with_output::<BlockScaled<E5m2>>(output, tiling),
        Input::E4m3 => with_output::<E4m3>(output, tiling),
        Input::E5m2 => with_output::<E5m2>(output, tiling),
    };
    let kernel = build(&form, tiles, schedule, target.arch)?;
    // One block a multiprocessor: its accumulators may take all of the tensor memory.
    let launch = kernel.plan(target.resident(&kernel.built.launch, 255))?;
    // An unused parameter is set to any buffer.
    let either = |used, name| buffer(if used { name } else { "d" });
    let in_epilogue = matches!(problem.scales, Scales::Tensor | Scales::Rows);
    let names = anew.as_ref().map_or(["a", "b"], Anew::names);
    let [left, right, out] = maps(problem, &form, names);
    let [block_scale_a, block_scale_b] = match scaled {
        true => scaled::maps(problem, tiling),
        // The kernel does not look at them.
        false => [left.clone(), left.clone()],
    };
    let args = TensorArgs {
        left,
        right,
        out,
        c: buffer("c"),
        d: buffer("d"),
        bias: buffer("bias"),
        scale_a: either(in_epilogue, "scale_a"),
        scale_b: either(in_epilogue, "scale_b"),
        block_scale_a,
        block_scale_b,
        m: problem.m,
        n: problem.n,
        ldc: problem.ldc,
        steps: problem.k.div_ceil(ROW_BYTES / problem.input.bytes()),
        blocks: problem.k.div_ceil(MX_BLOCK),
        alpha: problem.epilogue.alpha,
        beta: problem.epilogue.beta,
    };
    let name = format!("gemm {given} {tiling}");
    let plan = LaunchPlan::new(name, tiling.to_string(), problem.work());
    let plan = match &anew {
        None => plan,
        Some(anew) => anew.before(plan, target)?,
    };
    Ok(plan.step(Step::tiled(&kernel, &launch, args)))
}

type Build = fn(&Form, Dim3, &Schedule, Arch) -> Result<TiledKernel<TensorArgs>, BuildError>;

fn with_output<M: Way>(output: Output, tiling: &TensorTiling) -> Build {
    match output {
        Output::F16 => with_group::<M, f16>(tiling),
        Output::Bf16 => with_group::<M, bf16>(tiling),
        Output::F32 => with_group::<M, f32>(tiling),
    }
}

fn with_group<M: Way, O: Stored>(tiling: &TensorTiling) -> Build {
    match tiling.blocks {
        1 => build::<M, O, OneBlock>,
        _ => build::<M, O, PairOfBlocks>,
    }
}

/// The tensor maps of both operands and of the result.
fn maps(problem: &Gemm, form: &Form, names: [&str; 2]) -> [Arg; 3] {
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
    // Each of the pairs side by side copies a part for all.
    let left = map(
        names[0],
        a,
        problem.m,
        problem.lda,
        ROWS / form.side_by_side,
    );
    let right = map(names[1], b, problem.n, problem.ldb, form.tiling.own_cols());
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
