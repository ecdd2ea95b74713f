//! The sum of each token's slots, in their order.

use crate::error::KernelError;
use crate::family::Target;
use crate::gemm::Input;
use crate::job::{Step, buffer};
use heist_builder::{
    BuildError, BuiltKernel, Global, Half, Kernel, KernelSpec, On, Val, bf16, f16, kernel_params,
};

kernel_params! {
    /// What the kernel works on.
    pub(super) struct SumArgs {
        /// The slots of all tokens, weighed.
        slots: Global<u16>,
        /// The results.
        d: Global<u16>,
        /// Eight elements each, in all.
        pieces: u32,
        /// Such pieces of a row.
        row: u32,
    }
}

/// Threads of a block, each with a piece of eight elements.
const THREADS: u32 = 256;

/// The launch.
pub(super) fn step(
    dtype: Input,
    per: u32,
    tokens: u64,
    hidden: u32,
    target: Target,
) -> Result<Step, KernelError> {
    let row = hidden / 8;
    let pieces = tokens * u64::from(row);
    let Ok(pieces) = u32::try_from(pieces) else {
        return Err(KernelError::unfit(format!(
            "{tokens} tokens of {hidden} elements are too many to be added in one launch"
        )));
    };
    let kernel = match dtype {
        Input::F16 => build::<f16>(per, target, |pair| pair.unpack().map(Val::cast)),
        _ => build::<bf16>(per, target, |pair| pair.unpack().map(Val::cast)),
    }?;
    let args = SumArgs {
        slots: buffer("slots"),
        d: buffer("d"),
        pieces,
        row,
    };
    Ok(Step::plain(&kernel, pieces.div_ceil(THREADS), args))
}

fn build<H: Half>(
    per: u32,
    target: Target,
    halves: impl for<'k> Fn(Val<'k, H::Pair>) -> [Val<'k, f32>; 2],
) -> Result<BuiltKernel<SumArgs>, BuildError> {
    KernelSpec::<SumArgs>::new("expert_sum")
        .block(THREADS)
        .build(target.arch, |k, args| {
            let piece = k.block().x * THREADS + k.thread_index();
            k.if_(piece.lt(args.pieces), || {
                token::<H>(k, &args, per, piece, &halves);
            });
        })
}

/// One piece of a token.
fn token<'k, H: Half>(
    k: &Kernel<'k>,
    args: &SumArgs<On<'k>>,
    per: u32,
    piece: Val<'k, u32>,
    halves: &dyn Fn(Val<'k, H::Pair>) -> [Val<'k, f32>; 2],
) {
    let token = piece / args.row;
    let at = (piece - token * args.row) * 8;
    let row = args.row * 8;
    let first = (token * per).mul_wide(row) + at.cast::<u64>();
    let from = args.slots.cast::<H>().at(first);
    let sums = [(); 8].map(|()| k.var(0.0f32));
    let mut slot = from;
    // All loads of a few slots are in flight before the first sum.
    for batch in (0..per).step_by(8) {
        let loaded: Vec<[Val<'k, H::Pair>; 4]> = (batch..per.min(batch + 8))
            .map(|_| {
                let words = slot.cast::<H::Pair>().load_vec_readonly();
                slot = slot.at(row);
                words
            })
            .collect();
        for words in loaded {
            let values = words.map(halves);
            for (sum, value) in sums.iter().zip(values.as_flattened()) {
                sum.set(sum.get() + *value);
            }
        }
    }
    let [a, b, c, d] = [0, 2, 4, 6].map(|i| Val::pack_as::<H>(sums[i].get(), sums[i + 1].get()));
    let to = args.d.cast::<H>().at(piece.mul_wide(8u32));
    to.cast::<H::Pair>().store_vec([a, b, c, d]);
}
