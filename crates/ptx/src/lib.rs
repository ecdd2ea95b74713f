//! PTX as data.
//!
//! Everything in Heist meets in one structure, a [`Module`]. A builder makes
//! one, the parser makes one from text that any compiler wrote; the checker,
//! the simulator, the driver and the printer take one. This crate knows what
//! PTX *says*: its text, its structure, which architectures have what. What an
//! instruction *does* is the simulator's subject.
//!
//! ```
//! let text = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k() { ret; }\n";
//! let module = heist_ptx::parse(&heist_ptx::Source::new("k.ptx", text)).expect("it is right");
//! assert!(heist_ptx::print(&module).contains(".visible .entry k()"));
//! ```

pub mod analysis;
pub mod arch;
pub mod diagnostic;
pub mod instruction;
pub mod isa;
mod lex;
pub mod module;
pub mod parse;
mod print;
pub mod rule;
pub mod span;
pub mod types;
pub mod validate;

pub use diagnostic::{Code, Diagnostic, Label, Severity, SourceLine};
pub use instruction::{
    Address, AddressBase, BinaryOp, Constant, Guard, Instruction, Integer, Opcode, Operand, Part,
    Picks, Radix, UnaryOp,
};
pub use module::{
    AddressSize, Attribute, CallPrototype, Comment, FileDirective, Function, FunctionDirective,
    FunctionKind, Initializer, InlinedAt, Item, Linkage, Loc, Module, Name, PointerInfo, Pragma,
    RegisterName, Registers, Section, SectionLine, Statement, Target, Variable, Version,
};
pub use parse::{Limits, parse, parse_within};
pub use print::print;
pub use rule::{RULES, Rule};
pub use smol_str::SmolStr;
pub use span::{Position, Source, Span};
pub use types::{ScalarType, Space, VectorWidth};
