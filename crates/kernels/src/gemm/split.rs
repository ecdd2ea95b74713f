//! Split-K: the kernel that adds the partial sums and applies the epilogue.
//!
//! The partial sums of all shares are in memory. Each warp adds some of the shares, then the first
//! warp adds the warps' sums: always in the same order, so that a result does not depend on which
//! share was done first.

use super::epilogue::{Finish, To};
use super::problem::{Gemm, Output, Scales};
use super::spread::Added;
use super::stored::Stored;
use super::tiling::Tiling;
use crate::error::KernelError;
use crate::family::Target;
use crate::job::{Step, buffer};
use crate::overlap::overlap;
use heist_builder::{
    Arch, BuildError, BuiltKernel, Global, Kernel, KernelSpec, On, Val, bf16, f16, kernel_params,
};

kernel_params! {
    /// The kernel's parameters.
    pub(crate) struct SplitArgs {
        /// Sums of each share, share after share.
        partial: Global<f32>,
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
        /// Rows of a share.
        rows: u32,
        /// Elements from row to row of a share, a multiple of 4.
        pitch: u32,
        /// How many shares a product has.
        shares: u32,
        /// Quads of all products.
        quads: u32,
        /// Rows of the result.
        m: u32,
        /// Its columns.
        n: u32,
        /// Elements from row to row of C and D.
        ldc: u32,
        /// The factor of the product.
        alpha: f32,
        /// The factor of C.
        beta: f32,
    }
}

/// Threads of a block.
const THREADS: u32 = 256;
/// Neighbours that a thread adds.
const QUAD: u32 = 4;
/// Shares whose sums are read before the first of them is added.
const BATCH: u32 = 4;

/// Elements from row to row of a share of so many columns.
pub(crate) fn pitch(cols: u32) -> u32 {
    cols.next_multiple_of(QUAD)
}

#[derive(Clone, Copy)]
struct Form {
    finish: Finish,
    swapped: bool,
    /// Whether there are several products.
    batched: bool,
    /// Threads that share the shares of one quad.
    parts: u32,
    /// Whether quads lie inside, and can be stored at once.
    whole: bool,
}

fn build(form: Form, output: Output, arch: Arch) -> Result<BuiltKernel<SplitArgs>, BuildError> {
    KernelSpec::<SplitArgs>::new("gemm_split_sum")
        .block(THREADS)
        .build(arch, |k, args| match output {
            Output::F16 => sum::<f16>(k, &args, form),
            Output::Bf16 => sum::<bf16>(k, &args, form),
            Output::F32 => sum::<f32>(k, &args, form),
        })
}

fn sum<'k, O: Stored>(k: &Kernel<'k>, args: &SplitArgs<On<'k>>, form: Form) {
    overlap(k);
    let quads = THREADS / form.parts;
    let t = k.thread_index();
    let (own, part) = (t % quads, t / quads);
    let all = k.block().x * quads + own;
    let inside = all.lt(args.quads);
    let across = args.pitch / QUAD;
    // Which product, and where in it.
    let (number, quad) = match form.batched {
        false => (k.c(0), all),
        true => (all / (args.rows * across), all % (args.rows * across)),
    };
    // Neighbouring threads store neighbours.
    let (row, col) = if form.swapped {
        (quad % args.rows, quad / args.rows * QUAD)
    } else {
        (quad / across, quad % across * QUAD)
    };
    let sums: [_; 4] = std::array::from_fn(|_| k.var(0.0f32));
    k.if_(inside, || {
        let share = args.rows.mul_wide(args.pitch);
        let before = share * (number * args.shares).cast::<u64>();
        let first = args
            .partial
            .at(before + row.mul_wide(args.pitch) + col.cast::<u64>());
        k.for_step(part, args.shares, k.c(form.parts * BATCH), |from| {
            let read: Vec<_> = (0..BATCH)
                .map(|next| {
                    let number = from + next * form.parts;
                    let there = number.lt(args.shares);
                    let number = there.select(number, from);
                    let at = first.at(share * number.cast::<u64>());
                    (there, at.load_vec::<4>())
                })
                .collect();
            for (there, values) in read {
                for (sum, value) in sums.iter().zip(values) {
                    sum.set(sum.get() + there.select(value, 0.0f32));
                }
            }
        });
    });
    if form.parts > 1 {
        let found = k.shared::<f32>("found", THREADS * QUAD);
        found.at(t * QUAD).store_vec(sums.map(|sum| sum.get()));
        k.sync();
        k.if_(part.eq(0u32), || {
            for other in 1..form.parts {
                let theirs = found.at((own + other * quads) * QUAD).load_vec::<4>();
                for (sum, value) in sums.iter().zip(theirs) {
                    sum.set(sum.get() + value);
                }
            }
        });
    }
    k.if_(inside & part.eq(0u32), || {
        let sums = sums.map(|sum| sum.get());
        store::<O>(k, args, form, number, [row, col], sums);
    });
}

/// Finishes and stores four neighbours of a share's row.
fn store<'k, O: Stored>(
    k: &Kernel<'k>,
    args: &SplitArgs<On<'k>>,
    form: Form,
    number: Val<'k, u32>,
    [row, col]: [Val<'k, u32>; 2],
    sums: [Val<'k, f32>; 4],
) {
    let before = number.mul_wide(args.m) * args.ldc.cast::<u64>();
    let to = To {
        d: args.d.cast::<O>().at(before),
        c: Added::new(form.finish.spread, args.c.cast()),
        bias: args.bias.cast::<O>(),
        pitch: args.ldc,
        rows: None,
        cols: None,
        alpha: form.finish.factor(args.alpha, [args.scale_a, args.scale_b]),
        beta: args.beta,
        scales: form.finish.of_rows([args.scale_a, args.scale_b]),
        placed: None,
    };
    let place = |next: u32| match form.swapped {
        true => (col + next, row),
        false => (row, col + next),
    };
    let finished = |next: u32| {
        let (row, col) = place(next);
        let at = row.mul_wide(args.ldc) + col.cast::<u64>();
        let scale = to
            .scales
            .map(|scales| scales.rows.at(row).load() * scales.cols.at(col).load());
        let c = form
            .finish
            .adds
            .then(|| to.c.at([row, col], before + at).load());
        let bias = form
            .finish
            .bias
            .then(|| to.bias.at(col).load().cast::<f32>());
        let value = form
            .finish
            .single(k, sums[next as usize], [scale, c, bias], &to);
        (to.d.at(at), value)
    };
    if form.whole {
        let all: Vec<_> = (0..QUAD).map(finished).collect();
        for two in all.chunks(2) {
            O::store_pair(two[0].0, [two[0].1, two[1].1]);
        }
        return;
    }
    for next in 0..QUAD {
        let (row, col) = place(next);
        k.if_(row.lt(args.m) & col.lt(args.n), || {
            let (at, value) = finished(next);
            at.store(O::round(value));
        });
    }
}

/// The launch that adds the shares in the buffer `partial`.
pub(crate) fn step(problem: &Gemm, tiling: &Tiling, target: Target) -> Result<Step, KernelError> {
    let (rows, cols) = match tiling.swapped {
        true => (problem.n, problem.m),
        false => (problem.m, problem.n),
    };
    let form = Form {
        finish: Finish::new(&problem.epilogue, problem.scales, problem.ldc),
        swapped: tiling.swapped,
        batched: problem.batch > 1,
        parts: (tiling.split / 2).next_power_of_two().clamp(1, 8),
        whole: !tiling.swapped && problem.n.is_multiple_of(QUAD) && problem.ldc.is_multiple_of(2),
    };
    let kernel = build(form, problem.output, target.arch)?;
    let quads = u64::from(rows) * u64::from(pitch(cols) / QUAD) * u64::from(problem.batch);
    let Ok(all) = u32::try_from(quads) else {
        return Err(KernelError::unfit(format!(
            "{problem}: too many results for shares of the depth"
        )));
    };
    let blocks = quads.div_ceil((THREADS / form.parts).into()) as u32;
    let scales = |name| match problem.scales {
        Scales::None => buffer("d"),
        _ => buffer(name),
    };
    let args = SplitArgs {
        partial: buffer("partial"),
        c: buffer("c"),
        d: buffer("d"),
        bias: buffer("bias"),
        scale_a: scales("scale_a"),
        scale_b: scales("scale_b"),
        rows,
        pitch: pitch(cols),
        shares: tiling.split,
        quads: all,
        m: problem.m,
        n: problem.n,
        ldc: problem.ldc,
        alpha: problem.epilogue.alpha,
        beta: problem.epilogue.beta,
    };
    Ok(Step::plain(&kernel, blocks, args))
}
