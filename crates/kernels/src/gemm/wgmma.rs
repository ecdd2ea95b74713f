//! The kernel and the variant that multiply on Hopper's warpgroups.

use super::epilogue::{Finish, Stored, To};
use super::kernel::left;
use super::problem::{Gemm, Input, Layout, Output};
use super::variant::work;
use super::warpgroup::{COLS, Ends, Matrices, ROWS, Side, THREADS, ring};
use crate::error::KernelError;
use crate::family::{Target, Variant};
use crate::job::{Job, Step, buffer};
use heist_builder::{
    Arch, BuildError, Feature, Global, Half, MmaInput, On, TensorMap, Val, bf16, f16, kernel_params,
};
use heist_launch::{Dim3, TensorElement};
use heist_sched::{AnyOrder, Grouped, Schedule, Source, Tile, Tiled, TiledKernel};

kernel_params! {
    /// What a multiplication on warpgroups works on.
    pub(crate) struct WgmmaArgs {
        /// The left matrix.
        a: TensorMap<f16, 3>,
        /// The right matrix.
        b: TensorMap<f16, 3>,
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
        /// Elements from row to row of C and D.
        ldc: u32,
        /// The factor of the product.
        alpha: f32,
        /// The factor of C.
        beta: f32,
    }
}

/// As the copy engine calls it; `None` for what warpgroups here do not multiply.
pub(crate) fn element(input: Input) -> Option<TensorElement> {
    match input {
        Input::F16 => Some(TensorElement::F16),
        Input::Bf16 => Some(TensorElement::Bf16),
        Input::Tf32 => None,
    }
}

fn build<H: Half + MmaInput>(
    problem: &Gemm,
    tiles: Dim3,
    schedule: &Schedule,
    arch: Arch,
) -> Result<TiledKernel<WgmmaArgs>, BuildError> {
    match problem.output {
        Output::F16 => build_typed::<H, f16>(problem, tiles, schedule, arch),
        Output::Bf16 => build_typed::<H, bf16>(problem, tiles, schedule, arch),
        Output::F32 => build_typed::<H, f32>(problem, tiles, schedule, arch),
    }
}

fn build_typed<H: Half + MmaInput, O: Stored>(
    problem: &Gemm,
    tiles: Dim3,
    schedule: &Schedule,
    arch: Arch,
) -> Result<TiledKernel<WgmmaArgs>, BuildError> {
    let finish = Finish::new(&problem.epilogue, problem.ldc);
    let even_rows = problem.m.is_multiple_of(ROWS);
    let even_cols = problem.n.is_multiple_of(COLS);
    Tiled::<WgmmaArgs>::new("gemm_wgmma", tiles)
        .schedule(schedule)
        .block(THREADS)
        .min_blocks(1)
        .build(arch, |k, args, tiles| {
            let ring = ring(k);
            let ends = Ends::new(k, &ring, [args.a, args.b]);
            let body = |tile| {
                let (a, b) = sides(&args, problem.layout, tile);
                let (row0, col0) = (a.first, b.first);
                ends.tile::<H>((a, b), args.k, |sums, row| {
                    k.comment("the epilogue");
                    let row = row0 + row;
                    let first = row.cast::<u64>() * args.ldc.cast::<u64>() + col0.cast::<u64>();
                    let to = To {
                        d: args.d.cast::<O>().at(first),
                        c: args.c.cast::<O>().at(first),
                        bias: args.bias.cast::<O>().at(col0),
                        pitch: args.ldc,
                        rows: (!even_rows).then(|| left(args.m, row)),
                        cols: (!even_cols).then(|| args.n - col0),
                        alpha: args.alpha,
                        beta: args.beta,
                    };
                    finish.store(k, sums, &to);
                });
            };
            let done = tiles.each_ahead(body, |tile| {
                ends.begin(sides(&args, problem.layout, tile), args.k);
            });
            ends.finish();
            done
        })
}

/// Where a tile's rows of A and columns of B are.
fn sides<'k>(args: &WgmmaArgs<On<'k>>, layout: Layout, tile: Tile<'k>) -> (Side<'k>, Side<'k>) {
    let side = |map, major, first: Val<'k, u32>| Side {
        map,
        major,
        number: first.kernel().c(0),
        first,
    };
    (
        side(args.a, layout.a(), tile.y * ROWS),
        side(args.b, layout.b(), tile.x * COLS),
    )
}

/// The schedule that suits: all tiles take the same time, and the copying thread
/// knows the next one without asking. In bands, so that what is read stays in L2.
fn own_schedule() -> Schedule {
    let mut schedule = Schedule::new(Source::Static);
    schedule.order = AnyOrder::new(Grouped { rows: 16 });
    schedule
}

/// `wgmma` fed by the copy engine.
#[derive(Debug)]
pub(super) struct Wgmma;

impl Variant for Wgmma {
    type Problem = Gemm;

    fn name(&self) -> &'static str {
        "wgmma-128x256"
    }

    fn about(&self) -> &'static str {
        "wgmma and tensor copies, 128 x 256 tiles, a warpgroup that copies and two that multiply: Hopper"
    }

    fn suits(&self, problem: &Gemm, target: Target) -> Result<u32, String> {
        if !target.arch.supports(Feature::Wgmma) {
            return Err(format!("{} has no wgmma: it needs sm_90a", target.arch));
        }
        if element(problem.input).is_none() {
            return Err(format!("it multiplies f16 and bf16, not {}", problem.input));
        }
        if problem.k == 0 || !(problem.lda.is_multiple_of(8) && problem.ldb.is_multiple_of(8)) {
            return Err("tensor copies need rows that start at multiples of 16 bytes".into());
        }
        // On the scale of the others, and half as fast again.
        let tiles = f64::from(problem.m.div_ceil(ROWS)) * f64::from(problem.n.div_ceil(COLS));
        let slots = f64::from(target.sms);
        let used = f64::from(problem.m) * f64::from(problem.n);
        let full = used / ((tiles / slots).ceil() * slots * f64::from(ROWS * COLS));
        Ok(1 + (full * 1.5e9) as u32)
    }

    fn job(
        &self,
        problem: &Gemm,
        schedule: Option<&Schedule>,
        target: Target,
    ) -> Result<Job, KernelError> {
        problem.check()?;
        let own = own_schedule();
        let schedule = schedule.unwrap_or(&own);
        let tiles = Dim3::new(problem.n.div_ceil(COLS), problem.m.div_ceil(ROWS), 1);
        let (kernel, element) = match problem.input {
            Input::F16 => (
                build::<f16>(problem, tiles, schedule, target.arch)?,
                TensorElement::F16,
            ),
            _ => (
                build::<bf16>(problem, tiles, schedule, target.arch)?,
                TensorElement::Bf16,
            ),
        };
        let launch = kernel.plan(target.resident(&kernel.built.launch, 168))?;
        let (m, n, k) = (problem.m, problem.n, problem.k);
        let map = |name, major, outer: u32, pitch, high| {
            let matrix = Matrices {
                element,
                major,
                outer: outer.into(),
                depth: k,
                pitch,
                count: 1,
            };
            matrix.map(name, high)
        };
        let args = WgmmaArgs {
            a: map("a", problem.layout.a(), m, problem.lda, ROWS),
            b: map("b", problem.layout.b(), n, problem.ldb, COLS),
            c: buffer("c"),
            d: buffer("d"),
            bias: buffer("bias"),
            m,
            n,
            k,
            ldc: problem.ldc,
            alpha: problem.epilogue.alpha,
            beta: problem.epilogue.beta,
        };
        let step = Step::tiled(&kernel, &launch, args);
        Ok(Job::new(format!("gemm {problem} {}", self.name()), work(problem)).step(step))
    }
}
