//! What an instruction takes from the SM, by the unit that runs it.
//!
//! An SM has four schedulers; each issues one instruction of a warp a cycle, and
//! has a pipe for multiply-adds and one for other arithmetic. From the
//! throughput table of the CUDA programming guide (results a cycle and SM): 128
//! single-precision multiply-adds (64 on sm_80), 64 of integers, and 64
//! additions, shifts, comparisons and logic of integers. So a pipe is busy for
//! one or two cycles with an instruction of 32 lanes.
//!
//! PTX is not what runs: the assembler merges registers, so copies cost nothing,
//! and leaves out what nobody reads.

use super::Cost;
use crate::code::{Op, Site};
use crate::ops::wgmma::pending::Touched;
use heist_ptx::Instruction;
use rustc_hash::FxHashSet;

/// Cycles of a scheduler's units, packed for adding: its issue port in the low
/// 24 bits, the multiply-add pipe in 20, the other arithmetic in 20.
///
/// A sum over 2^14 instructions fits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Demand(pub(crate) u64);

impl Demand {
    const fn new(issue: u64, multiply: u64, other: u64) -> Demand {
        Demand(issue | multiply << 24 | other << 44)
    }

    /// Issue port, multiply-add pipe, other arithmetic.
    pub(crate) fn parts(self) -> [u32; 3] {
        [
            self.0 as u32 & 0xFF_FFFF,
            (self.0 >> 24) as u32 & 0xF_FFFF,
            (self.0 >> 44) as u32,
        ]
    }

    /// The unit that is busy for the longest.
    pub(crate) fn longest(self) -> u32 {
        let [issue, multiply, other] = self.parts();
        issue.max(multiply).max(other)
    }
}

/// The unit that an arithmetic instruction runs on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Pipe {
    /// Additions, shifts, comparisons, logic: half rate.
    #[default]
    Other,
    /// Single-precision and packed half arithmetic.
    Float,
    /// Integer multiplications: half rate.
    Multiply,
    /// Nothing: the assembler merges the registers, or the predicates.
    None,
}

impl Pipe {
    /// Of an instruction whose cost is [`Cost::ALU`].
    pub(crate) fn of(i: &Instruction) -> Pipe {
        let has = |names: &[&str]| i.opcode.modifiers().any(|m| names.contains(&m));
        match i.opcode.base() {
            "mov" => Pipe::None,
            "and" | "or" | "xor" | "not" if has(&["pred"]) => Pipe::None,
            "add" | "sub" | "mul" | "fma" | "mad"
                if has(&["f32", "f16", "bf16", "f16x2", "bf16x2", "f32x2"]) =>
            {
                Pipe::Float
            }
            "mul" | "mad" | "mul24" | "mad24" | "madc" | "dp4a" | "dp2a" => Pipe::Multiply,
            _ => Pipe::Other,
        }
    }

    /// What an instruction of this cost takes.
    pub(crate) fn demand(self, cost: Cost) -> Demand {
        let issue = u64::from(cost.issue.min(1023));
        if cost != Cost::ALU {
            return Demand::new(issue, 0, 0);
        }
        match self {
            Pipe::Other => Demand::new(issue, 0, 2),
            Pipe::Float => Demand::new(issue, 1, 0),
            Pipe::Multiply => Demand::new(issue, 2, 0),
            Pipe::None => Demand::default(),
        }
    }
}

/// Takes the demand from arithmetic whose result no instruction of its function
/// reads.
pub(super) fn leave_out_unread(ops: &mut [Op], sites: &[Site], touched: &[Touched]) {
    let read: FxHashSet<(u32, u16)> = touched
        .iter()
        .zip(sites)
        .flat_map(|(touched, site)| touched.reads.iter().map(|&row| (site.function, row)))
        .collect();
    for (op, site) in ops.iter_mut().zip(sites) {
        let [_, multiply, other] = op.demand.parts();
        // The last number stands for all rows beyond it.
        let known = op.writes != 0 && op.writes != u16::MAX;
        if multiply + other > 0 && known && !read.contains(&(site.function, op.writes)) {
            op.demand = Demand::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_keep_their_parts_apart() {
        let all: u64 = [Pipe::Other, Pipe::Float, Pipe::Multiply, Pipe::None]
            .iter()
            .map(|pipe| pipe.demand(Cost::ALU).0)
            .sum();
        assert_eq!(
            Demand(all * 16384).parts(),
            [3 * 16384, 3 * 16384, 2 * 16384]
        );
        assert_eq!(Demand(all).longest(), 3);
        let memory = Pipe::Other.demand(Cost::GLOBAL);
        assert_eq!(memory.parts(), [4, 0, 0]);
        let most = Pipe::Other.demand(Cost::new(u16::MAX, 0));
        assert_eq!(Demand(most.0 * 16384).parts(), [1023 * 16384, 0, 0]);
    }
}
