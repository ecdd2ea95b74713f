//! The table of instructions: one [`Row`] for each opcode of PTX.
//!
//! A row says what everybody who looks at an instruction has to know: what its
//! operands are, which of them it writes, what it does to memory and to control, the
//! unit that runs it, and what it needs of the target. The structural rules, the
//! checker, the simulator's decoder and its model of time read it here. What an
//! instruction *computes* is not here: that is `heist-arith`'s and the simulator's.
//!
//! An opcode stays a string ([`Opcode`]); a row is found by what stands before its
//! first dot. Where a modifier decides, the row says which one.

mod arithmetic;
mod control;
mod logic;
mod matrix;
mod memory;
mod needs;
mod operands;
mod special;
mod sync;
mod tensor;
mod texture;
mod video;
mod warp;

pub use needs::features_of;
pub(crate) use needs::needs_of;
pub(crate) use operands::{BadOpcode, Form, Lookup, OutOfRange, Slot};
pub use special::{Special, special_register};

use crate::instruction::{Instruction, Opcode, Operand};
use crate::types::Space;
use needs::Need;
use operands::{Operands, Range};
use std::collections::HashMap;
use std::sync::LazyLock;

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
    /// Where control goes behind it.
    pub control: Control,
    /// Whether threads wait for each other or order their accesses with it.
    pub synchronises: bool,
    /// Whether it can tell another block nothing, but through memory that both use.
    pub stays_in_block: bool,
    /// The unit that runs it.
    pub unit: Unit,
    /// Whether it reads special registers such as `%tid.x`.
    pub reads_special: bool,
    operands: Operands,
    range: Range,
    needs: Need,
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
enum Results {
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
enum Effect {
    Always(Memory),
    /// By the first of these modifiers that is there; else nothing.
    By(&'static [(&'static str, Memory)]),
}

/// By which path an instruction reaches memory.
#[derive(Clone, Copy, Debug)]
enum ProxyRule {
    /// The asynchronous one.
    Async,
    /// The asynchronous one with this modifier.
    AsyncWith(&'static str),
}

/// Where control goes behind an instruction.
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

/// What shows that an instruction does what it should.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tested {
    /// A file of the repository that runs it.
    By(&'static str),
    /// The simulator does not run it, for this reason.
    NotSimulated(&'static str),
}

impl Row {
    /// A row that writes its first operand and computes it from the others.
    const fn computing(name: &'static str, family: Family, operands: Operands) -> Row {
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
    const fn doing(name: &'static str, family: Family, operands: Operands) -> Row {
        Row {
            value: Value::Elsewhere,
            stays_in_block: false,
            ..Row::computing(name, family, operands)
        }
    }

    const fn results(self, results: Results) -> Row {
        Row { results, ..self }
    }

    const fn value(self, value: Value) -> Row {
        Row { value, ..self }
    }

    const fn memory(self, memory: Memory) -> Row {
        Row {
            memory: Effect::Always(memory),
            ..self
        }
    }

    const fn memory_by(self, by: &'static [(&'static str, Memory)]) -> Row {
        Row {
            memory: Effect::By(by),
            ..self
        }
    }

    const fn proxy(self, proxy: ProxyRule) -> Row {
        Row { proxy, ..self }
    }

    const fn control(self, control: Control) -> Row {
        Row { control, ..self }
    }

    const fn synchronising(self) -> Row {
        Row {
            synchronises: true,
            ..self
        }
    }

    const fn in_block(self) -> Row {
        Row {
            stays_in_block: true,
            ..self
        }
    }

    const fn unit(self, unit: Unit) -> Row {
        Row { unit, ..self }
    }

    const fn reading_special(self) -> Row {
        Row {
            reads_special: true,
            ..self
        }
    }

    const fn range(self, range: Range) -> Row {
        Row { range, ..self }
    }

    const fn needs(self, needs: Need) -> Row {
        Row { needs, ..self }
    }

    const fn tested(self, file: &'static str) -> Row {
        Row {
            tested: Tested::By(file),
            ..self
        }
    }

    const fn untested(self, reason: &'static str) -> Row {
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
        // Whatever it is called: nobody writes an address.
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

impl Opcode {
    /// Its row in the table; none for what PTX does not have.
    ///
    /// ```
    /// use heist_ptx::Opcode;
    /// use heist_ptx::isa::Family;
    /// let row = Opcode::from("ldmatrix.sync.aligned.m8n8.x4.shared.b16").row().unwrap();
    /// assert_eq!(row.family, Family::Matrix);
    /// assert!(Opcode::from("load.global").row().is_none());
    /// ```
    pub fn row(&self) -> Option<&'static Row> {
        find(self.base())
    }
}

/// The rows, by family.
const FAMILIES: &[&[Row]] = &[
    arithmetic::ROWS,
    logic::ROWS,
    memory::ROWS,
    control::ROWS,
    warp::ROWS,
    sync::ROWS,
    tensor::ROWS,
    texture::ROWS,
    video::ROWS,
];

/// Every row.
pub fn rows() -> impl Iterator<Item = &'static Row> {
    FAMILIES.iter().copied().flatten()
}

/// The row of the opcode that begins with `base`.
pub fn find(base: &str) -> Option<&'static Row> {
    static INDEX: LazyLock<HashMap<&str, &Row>> =
        LazyLock::new(|| rows().map(|row| (row.name, row)).collect());
    INDEX.get(base).copied()
}

/// The opcode that `base` was probably meant to be.
pub(crate) fn similar(base: &str) -> Option<&'static str> {
    if base.len() > 32 {
        return None;
    }
    let allowed = if base.len() < 4 { 1 } else { 2 };
    rows()
        .map(|row| (distance(base, row.name), row.name))
        .filter(|&(distance, _)| distance <= allowed)
        .min()
        .map(|(_, name)| name)
}

/// How many letters must be changed, added or taken away to make one of the other.
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut corner = row[0];
        row[0] = i + 1;
        for (j, y) in b.bytes().enumerate() {
            let change = corner + usize::from(x != y);
            corner = row[j + 1];
            row[j + 1] = change.min(row[j] + 1).min(corner + 1);
        }
    }
    row[b.len()]
}

/// The state space that an opcode names; parts of shared memory are shared memory.
pub fn space_of(op: &Opcode) -> Option<Space> {
    op.modifiers().find_map(space_named)
}

/// The state space that a modifier names, if it names one that can be accessed.
pub fn space_named(modifier: &str) -> Option<Space> {
    match modifier.split("::").next()? {
        "global" => Some(Space::Global),
        "shared" => Some(Space::Shared),
        "local" => Some(Space::Local),
        "const" => Some(Space::Const),
        "param" => Some(Space::Param),
        _ => None,
    }
}

/// How many elements a `.v2`, `.v4` or `.v8` moves; one without.
pub fn lanes_of(op: &Opcode) -> Option<u32> {
    op.modifiers().find_map(|modifier| match modifier {
        "v2" => Some(2),
        "v4" => Some(4),
        "v8" => Some(8),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_opcode_has_one_row() {
        let mut names: Vec<&str> = rows().map(|row| row.name).collect();
        names.sort_unstable();
        let count = names.len();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn slips_are_recognised() {
        assert!(find("mbarrier").is_some() && find("mbarier").is_none());
        assert_eq!(similar("mbarier"), Some("mbarrier"));
        assert_eq!(similar("addd"), Some("add"));
        assert_eq!(similar("frobnicate"), None);
    }

    #[test]
    fn modifiers_decide_what_is_written() {
        let first = |op: &str| {
            let instruction = Instruction::new(op, vec![Operand::name("%r1")]);
            instruction.opcode.row().expect("a row").first(&instruction)
        };
        assert_eq!(first("bar.red.popc.u32"), First::Written);
        assert_eq!(first("bar.sync"), First::Read);
        assert_eq!(first("wmma.store.d.sync"), First::Read);
        assert_eq!(first("wgmma.mma_async.sync"), First::Updated);
        assert_eq!(first("wgmma.wait_group.sync"), First::Read);
        assert_eq!(first("st.global.u32"), First::Read);
        assert_eq!(first("mbarrier.test_wait.b64"), First::Written);
    }
}
