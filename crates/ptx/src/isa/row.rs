//! A row of the table: what is known of one opcode.

use super::needs::Need;
use super::operands::{Form, Lookup, Operands, OutOfRange, Range};
use crate::instruction::{Instruction, Opcode, Operand};

/// What is known of one opcode.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// What stands before the first dot: `ld`.
    pub name: &'static str,
    /// The group of instructions that it is implemented with.
    pub family: Family,
    /// What becomes of its first operand.
    results: Results,
    /// Where its results come from.
    pub value: Value,
    memory: Effect,
    proxy: ProxyRule,
    /// Where control goes after it.
    pub control: Control,
    /// Whether threads wait for each other or order their accesses with it.
    pub synchronises: bool,
    /// Whether it can communicate with another block only through memory that both use.
    pub stays_in_block: bool,
    /// The unit that runs it.
    pub unit: Unit,
    /// Whether it reads special registers such as `%tid.x`.
    pub reads_special: bool,
    operands: Operands,
    range: Range,
    pub(super) needs: Need,
    /// The file that tests it, or why there is none.
    pub tested: Tested,
}

/// Groups of instructions, much as the chapters of the PTX ISA have them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Family {
    /// Numbers: `add`, `fma`, `rcp`.
    Arithmetic,
    /// Bits: `and`, `shl`, `bfe`.
    Logic,
    /// `setp`, `set`, `selp`, `slct`.
    Compare,
    /// `cvt`.
    Convert,
    /// `mov`, `cvta`, `isspacep`.
    Move,
    /// `ld`, `ldu`.
    Load,
    /// `st`.
    Store,
    /// `atom`, `red`.
    Atomic,
    /// Branches, and the ends of a thread.
    Control,
    /// `call`.
    Call,
    /// `bar`, `barrier`.
    Barrier,
    /// What the lanes of a warp do together: `shfl`, `vote`.
    Warp,
    /// `cp.async` and its kin.
    Copy,
    /// `fence`, `membar`.
    Fence,
    /// `mbarrier`.
    Mbarrier,
    /// `mapa`, `getctarank`.
    Cluster,
    /// `clusterlaunchcontrol`.
    LaunchControl,
    /// Matrices of a warp: `mma`, `ldmatrix`.
    Matrix,
    /// Matrices of a warpgroup: `wgmma`.
    Warpgroup,
    /// `tensormap`.
    TensorMap,
    /// Advice to caches, and the order of grids.
    Hint,
    /// `setmaxnreg`.
    RegisterPool,
    /// `alloca`, `stacksave`, `stackrestore`.
    Stack,
    /// `vadd`, `vmax4` and their kin.
    Video,
    /// `tcgen05`: tensor cores with a memory of their own.
    TensorMemory,
    /// Textures and surfaces.
    Texture,
    /// Memory that several devices share: `multimem`.
    Multimem,
    /// What only the vendor's own compilers use.
    Internal,
}

/// What an instruction does with its first operand; it reads all the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum First {
    /// Writes it.
    Written,
    /// Reads and writes it: an accumulator.
    Updated,
    /// Reads it.
    Read,
}

/// [`First`], before the modifiers are looked at.
#[derive(Clone, Copy, Debug)]
pub(super) enum Results {
    /// Written.
    One,
    /// Read.
    None,
    /// Written with one of these modifiers, else read.
    With(&'static [&'static str]),
    /// Read with this modifier, else written.
    Without(&'static str),
    /// Updated with this modifier, else read.
    Updates(&'static str),
    /// Written where it is a list in parentheses that a function follows.
    Call,
}

/// Where results come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value {
    /// They are the operand.
    Moved,
    /// They are the operand in another width, or another lane's.
    Converted,
    /// They are the sum of two operands.
    Sum,
    /// They are computed from the operands, and nothing else happens.
    Computed,
    /// They are a decision about the operands: a predicate.
    Decided,
    /// All lanes of a warp get the same.
    Agreed,
    /// One lane of a warp gets another than the rest.
    Elected,
    /// From memory, a callee or another unit; or there are none.
    Elsewhere,
}

impl Value {
    /// Whether results are made of registers alone, and nothing else happens.
    pub fn is_pure(self) -> bool {
        matches!(
            self,
            Value::Moved | Value::Converted | Value::Sum | Value::Computed
        )
    }
}

/// What an instruction does to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// Nothing, or nothing that a program sees.
    None,
    /// Reads it into registers.
    Load,
    /// Writes it.
    Store,
    /// Reads and writes it in one step.
    Update,
    /// Copies from one place to another.
    Copy,
}

/// [`Memory`], before the modifiers are looked at.
#[derive(Clone, Copy, Debug)]
pub(super) enum Effect {
    Always(Memory),
    /// By the first of these modifiers that is there; else nothing.
    By(&'static [(&'static str, Memory)]),
}

/// By which path an instruction reaches memory.
#[derive(Clone, Copy, Debug)]
pub(super) enum ProxyRule {
    /// The asynchronous one.
    Async,
    /// The asynchronous one with this modifier.
    AsyncWith(&'static str),
}

/// Where control goes after an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    /// To the next one.
    Next,
    /// To a label.
    Branch,
    /// To one of a list of labels.
    BranchTable,
    /// To a function, and then to the next one.
    Call,
    /// Back to the caller.
    Return,
    /// Nowhere: the thread ends.
    Exit,
    /// Nowhere: the grid ends with an error.
    Trap,
}

impl Control {
    /// Whether the next instruction runs only if the guard is false.
    pub fn leaves(self) -> bool {
        !matches!(self, Control::Next | Control::Call)
    }
}

/// The unit of a multiprocessor that runs an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// None: the assembler merges the registers.
    Merged,
    /// Logic; on predicates the assembler merges it into the comparison.
    Logic,
    /// Additions: of floating-point numbers with the multiply-adds.
    Adder,
    /// Multiplications and multiply-adds.
    Multiplier,
    /// Loads and stores.
    Memory,
    /// Matrix products.
    Tensor,
    /// The rest.
    Other,
}

/// The evidence that an instruction is implemented correctly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tested {
    /// A file of the repository that runs it.
    By(&'static str),
    /// The simulator does not run it, for this reason.
    NotSimulated(&'static str),
}

impl Tested {
    /// Why the simulator does not run it; nothing for what it runs.
    pub fn reason(self) -> &'static str {
        match self {
            Tested::By(_) => "",
            Tested::NotSimulated(reason) => reason,
        }
    }
}

impl Row {
    /// A row that writes its first operand and computes it from the others.
    pub(super) const fn computing(name: &'static str, family: Family, operands: Operands) -> Row {
        Row {
            name,
            family,
            results: Results::One,
            value: Value::Computed,
            memory: Effect::Always(Memory::None),
            proxy: ProxyRule::AsyncWith("async"),
            control: Control::Next,
            synchronises: false,
            stays_in_block: true,
            unit: Unit::Other,
            reads_special: false,
            operands,
            range: |_| None,
            needs: |_, _| {},
            tested: Tested::NotSimulated("no test names it"),
        }
    }

    /// A row of something that has effects beyond its registers, or none.
    pub(super) const fn doing(name: &'static str, family: Family, operands: Operands) -> Row {
        Row {
            value: Value::Elsewhere,
            stays_in_block: false,
            ..Row::computing(name, family, operands)
        }
    }

    pub(super) const fn results(self, results: Results) -> Row {
        Row { results, ..self }
    }

    pub(super) const fn value(self, value: Value) -> Row {
        Row { value, ..self }
    }

    pub(super) const fn memory(self, memory: Memory) -> Row {
        Row {
            memory: Effect::Always(memory),
            ..self
        }
    }

    pub(super) const fn memory_by(self, by: &'static [(&'static str, Memory)]) -> Row {
        Row {
            memory: Effect::By(by),
            ..self
        }
    }

    pub(super) const fn proxy(self, proxy: ProxyRule) -> Row {
        Row { proxy, ..self }
    }

    pub(super) const fn control(self, control: Control) -> Row {
        Row { control, ..self }
    }

    pub(super) const fn synchronising(self) -> Row {
        Row {
            synchronises: true,
            ..self
        }
    }

    pub(super) const fn in_block(self) -> Row {
        Row {
            stays_in_block: true,
            ..self
        }
    }

    pub(super) const fn unit(self, unit: Unit) -> Row {
        Row { unit, ..self }
    }

    pub(super) const fn reading_special(self) -> Row {
        Row {
            reads_special: true,
            ..self
        }
    }

    pub(super) const fn range(self, range: Range) -> Row {
        Row { range, ..self }
    }

    pub(super) const fn needs(self, needs: Need) -> Row {
        Row { needs, ..self }
    }

    pub(super) const fn tested(self, file: &'static str) -> Row {
        Row {
            tested: Tested::By(file),
            ..self
        }
    }

    pub(super) const fn untested(self, reason: &'static str) -> Row {
        Row {
            tested: Tested::NotSimulated(reason),
            ..self
        }
    }

    /// What `instruction` does with its first operand.
    pub fn first(&self, instruction: &Instruction) -> First {
        let op = &instruction.opcode;
        let written = match self.results {
            Results::One => true,
            Results::None => false,
            Results::With(modifiers) => modifiers.iter().any(|modifier| op.has(modifier)),
            Results::Without(modifier) => !op.has(modifier),
            Results::Updates(modifier) if op.has(modifier) => return First::Updated,
            Results::Updates(_) => false,
            Results::Call => {
                matches!(instruction.operands.first(), Some(Operand::Tuple(_)))
                    && instruction.operands.len() > 1
            }
        };
        // An address is never written.
        match instruction.operands.first() {
            Some(Operand::Address(_)) => First::Read,
            _ if written => First::Written,
            _ => First::Read,
        }
    }

    /// What `op` does to memory.
    pub fn memory_of(&self, op: &Opcode) -> Memory {
        match self.memory {
            Effect::Always(memory) => memory,
            Effect::By(list) => list
                .iter()
                .find(|(modifier, _)| op.has(modifier))
                .map_or(Memory::None, |&(_, memory)| memory),
        }
    }

    /// Whether `op` reaches memory by the asynchronous proxy.
    pub fn is_asynchronous(&self, op: &Opcode) -> bool {
        match self.proxy {
            ProxyRule::Async => true,
            ProxyRule::AsyncWith(modifier) => op.has(modifier),
        }
    }

    /// What operands `op` takes; `None` where that is not known.
    pub(crate) fn operands(&self, op: &Opcode) -> Lookup {
        (self.operands)(&Form::of(op))
    }

    /// A constant of `instruction` that only other values are allowed for.
    pub(crate) fn out_of_range(&self, instruction: &Instruction) -> Option<OutOfRange> {
        (self.range)(instruction)
    }
}
