//! The recorder behind every value: registers, statements, sections, needs.
//!
//! While a kernel's body runs, each operation appends to one [`Recorder`].
//! Registers are numbers here and get their names when the kernel is lowered
//! (`lower.rs`), so a value can be named after it was made, and a shared array
//! can move into dynamic memory after it was used.

use crate::error::BuildError;
use crate::scalar::Class;
use heist_ptx::arch::{Arch, Feature};
use heist_ptx::{Constant, Part, SmolStr, Version};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::panic::Location;

/// A Rust source line.
pub(crate) type CallSite = &'static Location<'static>;

/// A register, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Reg(pub(crate) u32);

/// A label, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct LabelId(pub(crate) u32);

/// A piece of shared memory, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SharedId(pub(crate) u32);

/// What an address is counted from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Base {
    /// An address in a register.
    Reg(Reg),
    /// A piece of shared memory that the builder laid out.
    Shared(SharedId),
    /// A kernel parameter, by its position.
    Param(u32),
    /// A piece of local memory, by its position.
    Local(u32),
}

/// An operand before registers and memory have their names.
#[derive(Clone, Debug)]
pub(crate) enum Opnd {
    Reg(Reg),
    Const(Constant),
    Special(&'static str, Option<Part>),
    Address(Base, i64),
    /// `[base, {coordinates}]`.
    TensorAddress(Base, Vec<Opnd>),
    /// The address of a variable as a number.
    AddressOf(Base, i64),
    Label(LabelId),
    Vector(Vec<Opnd>),
    Pair(Box<(Opnd, Opnd)>),
    Sink,
}

impl From<Reg> for Opnd {
    fn from(reg: Reg) -> Opnd {
        Opnd::Reg(reg)
    }
}

/// An instruction before lowering.
#[derive(Clone, Debug)]
pub(crate) struct Op {
    pub(crate) guard: Option<(Reg, bool)>,
    pub(crate) opcode: SmolStr,
    pub(crate) operands: Vec<Opnd>,
    pub(crate) place: CallSite,
    pub(crate) origin: Origin,
}

/// Who wrote an instruction, and so what may be assumed of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The builder: it writes registers in its first operand only.
    Builder,
    /// The builder, into the prologue: removed if its result is not used.
    Prologue,
    /// The kernel's author: it may write any register that it names.
    Raw,
}

/// A line of the body before lowering.
#[derive(Clone, Debug)]
pub(crate) enum Line {
    Op(Op),
    Label(LabelId),
    Comment(String),
}

/// A register's class, and the name it was given.
#[derive(Clone, Debug)]
pub(crate) struct RegInfo {
    pub(crate) class: Class,
    pub(crate) name: Option<SmolStr>,
}

/// A piece of shared memory as asked for.
#[derive(Clone, Debug)]
pub(crate) struct SharedPiece {
    pub(crate) name: SmolStr,
    pub(crate) bytes: u64,
    pub(crate) align: u32,
}

/// A per-thread array as asked for.
#[derive(Clone, Debug)]
pub(crate) struct LocalPiece {
    pub(crate) name: SmolStr,
    pub(crate) bytes: u64,
    pub(crate) align: u32,
}

/// A use of raw PTX.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawUse {
    /// What the author called it.
    pub name: String,
    /// The opcode that was written.
    pub opcode: String,
    /// File and line of the call.
    pub at: String,
}

/// What a kernel has done with tensor memory so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum TensorMemoryUse {
    #[default]
    Never,
    Now,
    Before,
}

/// Everything a kernel's body writes into.
pub(crate) struct Recorder {
    pub(crate) arch: Arch,
    /// The line that builds the kernel, for what no other line asks for.
    pub(crate) place: CallSite,
    /// The last line outside of this crate that asked for something.
    asked_by: Cell<CallSite>,
    pub(crate) block: [u32; 3],
    pub(crate) cluster: Option<[u32; 3]>,
    pub(crate) registers: RefCell<Vec<RegInfo>>,
    pub(crate) prologue: RefCell<Vec<Line>>,
    pub(crate) body: RefCell<Vec<Line>>,
    pub(crate) labels: RefCell<Vec<&'static str>>,
    pub(crate) shared: RefCell<Vec<SharedPiece>>,
    pub(crate) locals: RefCell<Vec<LocalPiece>>,
    pub(crate) errors: RefCell<Vec<BuildError>>,
    pub(crate) raw: RefCell<Vec<RawUse>>,
    pub(crate) version: Cell<Version>,
    pub(crate) features: RefCell<Vec<Feature>>,
    pub(crate) named_barriers: Cell<u32>,
    /// Barriers that are initialised together: where each is, and its arrivals.
    pub(crate) uninitialised: RefCell<Option<Vec<(Opnd, u32)>>>,
    pub(crate) max_registers: Cell<Option<u32>>,
    /// Whether loop-invariant arithmetic is hoisted.
    pub(crate) hoists: Cell<bool>,
    pub(crate) clc_requests: Cell<u32>,
    pub(crate) tensor_memory: Cell<TensorMemoryUse>,
    /// How many emitted branches and loops surround what is emitted now.
    pub(crate) depth: Cell<u32>,
    /// Bytes that each tensor map parameter's box has, as copies use it.
    pub(crate) tensor_boxes: RefCell<Vec<(u32, u64)>>,
    specials: RefCell<HashMap<&'static str, Reg>>,
    shared_bases: RefCell<HashMap<SharedId, Reg>>,
}

impl Recorder {
    pub(crate) fn new(
        arch: Arch,
        block: [u32; 3],
        cluster: Option<[u32; 3]>,
        place: CallSite,
    ) -> Recorder {
        Recorder {
            arch,
            place,
            asked_by: Cell::new(place),
            block,
            cluster,
            registers: RefCell::default(),
            prologue: RefCell::default(),
            body: RefCell::default(),
            labels: RefCell::default(),
            shared: RefCell::default(),
            locals: RefCell::default(),
            errors: RefCell::default(),
            raw: RefCell::default(),
            version: Cell::new(arch.min_ptx()),
            features: RefCell::default(),
            named_barriers: Cell::new(1),
            uninitialised: RefCell::default(),
            max_registers: Cell::new(None),
            hoists: Cell::new(true),
            clc_requests: Cell::new(0),
            tensor_memory: Cell::default(),
            depth: Cell::new(0),
            tensor_boxes: RefCell::default(),
            specials: RefCell::default(),
            shared_bases: RefCell::default(),
        }
    }

    /// A new register.
    pub(crate) fn reg(&self, class: Class) -> Reg {
        let mut registers = self.registers.borrow_mut();
        registers.push(RegInfo { class, name: None });
        Reg(registers.len() as u32 - 1)
    }

    /// A new register of the same class as another.
    pub(crate) fn reg_like(&self, other: Reg) -> Reg {
        let class = self.registers.borrow()[other.0 as usize].class;
        self.reg(class)
    }

    pub(crate) fn name_reg(&self, reg: Reg, name: &str) {
        self.registers.borrow_mut()[reg.0 as usize].name = Some(SmolStr::new(name));
    }

    /// A new label; `what` becomes part of its name.
    pub(crate) fn label(&self, what: &'static str) -> LabelId {
        let mut labels = self.labels.borrow_mut();
        labels.push(what);
        LabelId(labels.len() as u32 - 1)
    }

    pub(crate) fn line(&self, line: Line) {
        self.body.borrow_mut().push(line);
    }

    /// The Rust line to blame for an instruction: `place`, or, where that is
    /// inside this crate or the standard library (a closure hides its caller),
    /// the last line outside.
    pub(crate) fn blame(&self, place: CallSite) -> CallSite {
        // "crates/builder/src/emit.rs" without the file's name.
        let ours = file!().trim_end_matches("emit.rs");
        if place.file().starts_with(ours) || place.file().starts_with("/rustc/") {
            return self.asked_by.get();
        }
        self.asked_by.set(place);
        place
    }

    /// Appends an instruction.
    pub(crate) fn op(&self, opcode: impl Into<SmolStr>, operands: Vec<Opnd>, place: CallSite) {
        self.line(Line::Op(Op {
            guard: None,
            opcode: opcode.into(),
            operands,
            place: self.blame(place),
            origin: Origin::Builder,
        }));
    }

    /// Appends an instruction that the kernel's author wrote out.
    pub(crate) fn raw_op(&self, opcode: impl Into<SmolStr>, operands: Vec<Opnd>, place: CallSite) {
        self.line(Line::Op(Op {
            guard: None,
            opcode: opcode.into(),
            operands,
            place: self.blame(place),
            origin: Origin::Raw,
        }));
    }

    /// Appends an instruction that runs where `guard` holds (or does not).
    pub(crate) fn guarded(
        &self,
        guard: (Reg, bool),
        opcode: impl Into<SmolStr>,
        operands: Vec<Opnd>,
        place: CallSite,
    ) {
        self.line(Line::Op(Op {
            guard: Some(guard),
            opcode: opcode.into(),
            operands,
            place: self.blame(place),
            origin: Origin::Builder,
        }));
    }

    /// Appends an instruction to the kernel's first lines, where it dominates
    /// everything. It is removed if its result is not used.
    pub(crate) fn prologue_op(
        &self,
        opcode: impl Into<SmolStr>,
        operands: Vec<Opnd>,
        place: CallSite,
    ) {
        self.prologue.borrow_mut().push(Line::Op(Op {
            guard: None,
            opcode: opcode.into(),
            operands,
            place: self.blame(place),
            origin: Origin::Prologue,
        }));
    }

    /// A special register that never changes, read once in the first lines.
    pub(crate) fn special(
        &self,
        name: &'static str,
        part: Option<Part>,
        class: Class,
        called: &'static str,
        place: CallSite,
    ) -> Reg {
        if let Some(&reg) = self.specials.borrow().get(called) {
            return reg;
        }
        let reg = self.reg(class);
        self.name_reg(reg, called);
        let opcode = if class == Class::B64 {
            "mov.u64"
        } else {
            "mov.u32"
        };
        self.prologue_op(
            opcode,
            vec![Opnd::Reg(reg), Opnd::Special(name, part)],
            place,
        );
        self.specials.borrow_mut().insert(called, reg);
        reg
    }

    /// The address of a piece of shared memory in a register, taken once.
    pub(crate) fn shared_base(&self, id: SharedId, place: CallSite) -> Reg {
        if let Some(&reg) = self.shared_bases.borrow().get(&id) {
            return reg;
        }
        let reg = self.reg(Class::B32);
        let name = format!("{}_base", self.shared.borrow()[id.0 as usize].name);
        self.name_reg(reg, &name);
        self.prologue_op(
            "mov.u32",
            vec![Opnd::Reg(reg), Opnd::AddressOf(Base::Shared(id), 0)],
            place,
        );
        self.shared_bases.borrow_mut().insert(id, reg);
        reg
    }

    /// Runs `body` one branch or loop deeper.
    pub(crate) fn deeper<R>(&self, body: impl FnOnce() -> R) -> R {
        self.depth.set(self.depth.get() + 1);
        let result = body();
        self.depth.set(self.depth.get() - 1);
        result
    }

    /// Remembers an error; the kernel's build returns the first.
    pub(crate) fn fail(&self, error: BuildError) {
        self.errors.borrow_mut().push(error);
    }

    /// Says that the kernel uses `feature`: an error if the target lacks it.
    pub(crate) fn need(&self, feature: Feature, place: CallSite) {
        let version = feature.min_ptx();
        if version > self.version.get() {
            self.version.set(version);
        }
        let mut features = self.features.borrow_mut();
        if features.contains(&feature) {
            return;
        }
        features.push(feature);
        if !self.arch.supports(feature) {
            self.fail(BuildError::unsupported(feature, self.arch, place));
        }
    }
}
