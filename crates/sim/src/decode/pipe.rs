//! The throughput model: how long an instruction keeps a unit of the SM busy.
//!
//! An SM has four schedulers; each issues one instruction of a warp a cycle, and
//! has a pipe for multiply-adds and one for other arithmetic. From the
//! throughput table of the CUDA programming guide (results a cycle and SM): 128
//! single-precision multiply-adds (64 on sm_80), 64 of integers, and 64
//! additions, shifts, comparisons and logic of integers. So a pipe is busy for
//! one or two cycles with an instruction of 32 lanes. Between an SM and L2 go 64 bytes a cycle; what
//! comes from DRAM is [`crate::engine::dram`]'s.
//!
//! The hardware does not run PTX itself: the assembler merges registers, so moves cost nothing, and
//! it removes dead code.

use super::cost::Cost;
use crate::code::{Site, Touched};
use crate::engine::executable::Op;
use crate::state::demand::Demand;
use heist_ptx::isa::{Unit, lanes_of};
use heist_ptx::{Instruction, ScalarType};
use rustc_hash::FxHashSet;

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
    /// Global memory: these bytes of a warp.
    Memory(u32),
}

/// Bytes a cycle to L2, for each of the SM's schedulers.
const BYTES_OF_A_SCHEDULER: u32 = 64 / 4;

impl Pipe {
    /// Of an instruction whose cost is [`Cost::ALU`].
    pub(crate) fn of(i: &Instruction) -> Pipe {
        let has = |names: &[&str]| i.opcode.modifiers().any(|m| names.contains(&m));
        let floats = || has(&["f32", "f16", "bf16", "f16x2", "bf16x2", "f32x2"]);
        match i.opcode.row().map_or(Unit::Other, |row| row.unit) {
            Unit::Merged => Pipe::None,
            Unit::Logic if has(&["pred"]) => Pipe::None,
            Unit::Adder | Unit::Multiplier if floats() => Pipe::Float,
            Unit::Multiplier => Pipe::Multiply,
            Unit::Memory if has(&["global"]) => {
                let lanes = lanes_of(&i.opcode).unwrap_or(1);
                let mut names = i.opcode.modifiers().filter_map(|m| m.parse().ok());
                let bits = names.next_back().map_or(32, ScalarType::bits);
                Pipe::Memory(32 * lanes * bits / 8)
            }
            _ => Pipe::Other,
        }
    }

    /// What an instruction of this cost takes.
    pub(crate) fn demand(self, cost: Cost) -> Demand {
        let issue = u32::from(cost.issue);
        match self {
            Pipe::Memory(bytes) => Demand::new([issue, 0, 0, bytes / BYTES_OF_A_SCHEDULER]),
            _ if cost != Cost::ALU => Demand::new([issue, 0, 0, 0]),
            Pipe::Other => Demand::new([issue, 0, 2, 0]),
            Pipe::Float => Demand::new([issue, 1, 0, 0]),
            Pipe::Multiply => Demand::new([issue, 2, 0, 0]),
            Pipe::None => Demand::default(),
        }
    }
}

/// Sets the demand of dead arithmetic to zero.
pub(crate) fn leave_out_unread(ops: &mut [Op], sites: &[Site], touched: &[Touched]) {
    let read: FxHashSet<(u32, u16)> = touched
        .iter()
        .zip(sites)
        .flat_map(|(touched, site)| touched.reads.iter().map(|&row| (site.function, row)))
        .collect();
    for (op, site) in ops.iter_mut().zip(sites) {
        let [_, multiply, other, _] = op.demand.parts();
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
    use heist_ptx::{Item, Statement};

    #[test]
    fn sums_keep_their_parts_apart() {
        let all: u128 = [Pipe::Other, Pipe::Float, Pipe::Multiply, Pipe::None]
            .iter()
            .map(|pipe| pipe.demand(Cost::ALU).0)
            .sum();
        let many = 16384;
        assert_eq!(
            Demand(all * many).parts(),
            [3 * 16384, 3 * 16384, 2 * 16384, 0]
        );
        assert_eq!(Demand(all).longest(), 3);
        let memory = Pipe::Memory(128).demand(Cost::GLOBAL);
        assert_eq!(memory.parts(), [4, 0, 0, 8]);
        let most = Pipe::Other.demand(Cost::new(u16::MAX, 0));
        assert_eq!(Demand(most.0 * many).parts(), [65535 * 16384, 0, 0, 0]);
    }
    #[test]
    fn global_memory_takes_the_bytes_of_a_warp() {
        for (access, bytes) in [
            ("ld.global.u8 h, [d]", 32),
            ("ld.global.b32 v, [d]", 128),
            ("st.global.v2.b64 [d], {d, d}", 512),
            ("ld.global.v4.f32 {f, f, f, f}, [d]", 512),
        ] {
            let text = format!(
                ".version 8.0\n.target sm_90\n.address_size 64\n.entry k() {{ .reg .b64 d; .reg .b32 v; .reg .b16 h; .reg .f32 f;\n{access};\n}}"
            );
            let module = heist_ptx::parse(&heist_ptx::Source::new("k.ptx", text)).expect("PTX");
            let Some(Item::Function(kernel)) = module.items.first() else {
                panic!("{access}");
            };
            let body = kernel.body.iter().flatten();
            let pipes = body.filter_map(|statement| match statement {
                Statement::Instruction(i) => Some(Pipe::of(i)),
                _ => None,
            });
            let pipes: Vec<Pipe> = pipes.collect();
            assert_eq!(pipes, [Pipe::Memory(bytes)], "{access}");
        }
    }
}
