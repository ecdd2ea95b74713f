//! The rows of all experts in their order, copied by a launch of its own.

use super::problem::Experts;
use crate::error::KernelError;
use crate::family::Target;
use crate::job::{Step, buffer};
use heist_builder::{Global, KernelSpec, kernel_params};

kernel_params! {
    /// What the kernel works on.
    pub(super) struct CopyArgs {
        /// The tokens.
        x: Global<u16>,
        /// Of each row, its slot.
        order: Global<u32>,
        /// The rows.
        rows: Global<u16>,
        /// Eight elements each, in all.
        pieces: u32,
        /// Such pieces of a row.
        row: u32,
    }
}

/// Threads of a block, each with a piece of eight elements.
const THREADS: u32 = 256;

/// The launch.
pub(super) fn step(problem: &Experts, target: Target) -> Result<Step, KernelError> {
    let (per, row) = (problem.per, problem.hidden / 8);
    let Ok(pieces) = u32::try_from(problem.slots() * u64::from(row)) else {
        return Err(KernelError::unfit(format!(
            "{} rows of {} elements are too many to be copied in one launch",
            problem.slots(),
            problem.hidden
        )));
    };
    let kernel = KernelSpec::<CopyArgs>::new("expert_rows")
        .block(THREADS)
        .build(target.arch, |k, args| {
            let piece = k.block().x * THREADS + k.thread_index();
            k.if_(piece.lt(args.pieces), || {
                let row = piece / args.row;
                let at = (piece - row * args.row) * 8;
                let token = args.order.at(row).load_readonly() / per;
                let from = args.x.at(token.mul_wide(args.row * 8)).at(at);
                let words = from.cast::<u32>().load_vec_readonly::<4>();
                let to = args.rows.at(piece.mul_wide(8u32));
                to.cast::<u32>().store_vec(words);
            });
        })?;
    let args = CopyArgs {
        x: buffer("x"),
        order: buffer("order"),
        rows: buffer("rows"),
        pieces,
        row,
    };
    Ok(Step::plain(&kernel, pieces.div_ceil(THREADS), args))
}
