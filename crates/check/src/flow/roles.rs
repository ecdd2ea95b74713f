//! Which registers an instruction reads and which it writes.

use super::registers::{Register, RegisterTable};
use heist_ptx::{AddressBase, Instruction, Name, Operand};

/// The registers of one instruction.
#[derive(Default, Debug)]
pub(crate) struct Roles {
    pub(crate) reads: Vec<Register>,
    pub(crate) writes: Vec<Register>,
    /// The guard's predicate, which is also among the reads.
    pub(crate) guard: Option<Register>,
    /// What each name in it that is a register stands for.
    names: Vec<(Name, Register)>,
}

/// What an instruction does with its first operand.
#[derive(Clone, Copy, PartialEq, Eq)]
enum First {
    /// Writes it.
    Written,
    /// Writes it and reads it: an accumulator.
    Updated,
    /// Reads it, like the others.
    Read,
}

impl Roles {
    pub(crate) fn of(instruction: &Instruction, registers: &mut RegisterTable) -> Roles {
        let mut roles = Roles::default();
        if let Some(guard) = &instruction.guard {
            roles.guard = registers.find(&guard.register);
            roles.reads.extend(roles.guard);
        }
        let first = first_operand(instruction);
        for (at, operand) in instruction.operands.iter().enumerate() {
            let written = at == 0 && first != First::Read;
            roles.operand(operand, written, registers);
            if at == 0 && first == First::Updated {
                roles.operand(operand, false, registers);
            }
        }
        roles
    }

    /// What a register is called in this instruction.
    pub(crate) fn name_of(&self, register: Register) -> Option<&str> {
        self.names
            .iter()
            .find(|(_, known)| *known == register)
            .map(|(name, _)| name.as_str())
    }

    /// The register that `name` stands for in this instruction.
    pub(crate) fn register_named(&self, name: &str) -> Option<Register> {
        self.names
            .iter()
            .find(|(known, _)| known == name)
            .map(|&(_, register)| register)
    }

    fn operand(&mut self, operand: &Operand, written: bool, registers: &mut RegisterTable) {
        let mut add = |name: &Name, written: bool| {
            if let Some(register) = registers.find(name) {
                self.names.push((name.clone(), register));
                let list = if written {
                    &mut self.writes
                } else {
                    &mut self.reads
                };
                list.push(register);
            }
        };
        match operand {
            Operand::Name(name) => add(name, written),
            Operand::Part { name, .. } => add(name, written),
            Operand::Not(name) | Operand::NegatedPart { name, .. } => add(name, false),
            Operand::Address(address) => {
                if let AddressBase::Name(name) | AddressBase::Part { name, .. } = &address.base {
                    add(name, false);
                }
                for inner in &address.rest {
                    self.operand(inner, false, registers);
                }
            }
            Operand::Vector(inner) | Operand::Tuple(inner) => {
                for inner in inner {
                    self.operand(inner, written, registers);
                }
            }
            Operand::Pair(pair) => {
                self.operand(&pair.0, written, registers);
                self.operand(&pair.1, written, registers);
            }
            Operand::Constant(_) | Operand::Sink => {}
        }
    }
}

/// Most instructions write their first operand; these do not.
fn first_operand(instruction: &Instruction) -> First {
    let opcode = &instruction.opcode;
    let reads_all = match opcode.base() {
        "st" | "red" | "bra" | "brx" | "ret" | "exit" | "membar" | "fence" | "prefetch"
        | "prefetchu" | "trap" | "brkpt" | "nanosleep" | "pmevent" | "discard"
        | "applypriority" | "sust" | "sured" | "stmatrix" | "setmaxnreg" | "griddepcontrol"
        | "cp" | "tensormap" | "stackrestore" => true,
        "bar" | "barrier" => !opcode.has("red"),
        "wmma" => opcode.has("store"),
        "mbarrier" => {
            !opcode.has("test_wait")
                && !opcode.has("try_wait")
                && !opcode.has("pending_count")
                && !opcode.has("arrive")
                && !opcode.has("arrive_drop")
        }
        "clusterlaunchcontrol" => opcode.has("try_cancel"),
        "multimem" => !opcode.has("ld_reduce"),
        "tcgen05" => !opcode.has("ld"),
        "wgmma" if opcode.has("mma_async") => return First::Updated,
        "wgmma" => true,
        "call" => {
            !matches!(instruction.operands.first(), Some(Operand::Tuple(_)))
                || instruction.operands.len() == 1
        }
        _ => false,
    };
    // Whatever it is called: nobody writes an address.
    if reads_all || matches!(instruction.operands.first(), Some(Operand::Address(_))) {
        First::Read
    } else {
        First::Written
    }
}
