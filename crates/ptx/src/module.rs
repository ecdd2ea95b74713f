//! The intermediate representation: a PTX module as plain data.
//!
//! A [`Module`] says what a PTX file says and nothing more. An instruction is
//! an opcode with its modifiers, and operands; the simulator, the checker and the structural rules
//! add the meaning. Every field is public: a parser and a builder make the same thing, and
//! `parse(print(module)) == module` holds for both.
//!
//! Comments are part of it, because generated PTX uses them to say what it is
//! doing and a formatter must not eat them.

use crate::instruction::{Constant, Instruction};
use crate::span::Span;
use crate::types::{ScalarType, Space, VectorWidth};
use smol_str::SmolStr;

/// A name: of a register, a variable, a label or a function.
///
/// Cheap to clone; short names are stored in place.
pub type Name = SmolStr;

/// A PTX file.
#[derive(Clone, Debug, PartialEq)]
pub struct Module {
    /// Comments before the first directive, without their markers.
    pub preamble: Vec<Comment>,
    /// `.version`.
    pub version: Version,
    /// `.target`, with its options.
    pub target: Target,
    /// `.address_size`. The PTX ISA says that a file without it has 32 bits; ptxas takes
    /// 64 then, and so does the parser.
    pub address_size: AddressSize,
    /// Everything else, in order.
    pub items: Vec<Item>,
}

impl Module {
    /// An empty 64-bit module.
    pub fn new(version: Version, arch: impl Into<Name>) -> Module {
        Module {
            preamble: Vec::new(),
            version,
            target: Target {
                arch: arch.into(),
                options: Vec::new(),
                span: Span::NONE,
            },
            address_size: AddressSize::Bits64,
            items: Vec::new(),
        }
    }

    /// Every function, kernels included, in order.
    pub fn functions(&self) -> impl Iterator<Item = &Function> {
        self.items.iter().filter_map(|item| match item {
            Item::Function(function) => Some(function),
            _ => None,
        })
    }

    /// Every kernel that has a body, in order.
    pub fn entries(&self) -> impl Iterator<Item = &Function> {
        self.functions()
            .filter(|function| function.kind == FunctionKind::Entry && function.body.is_some())
    }

    /// Every variable declared outside a function, in order.
    pub fn variables(&self) -> impl Iterator<Item = &Variable> {
        self.items.iter().filter_map(|item| match item {
            Item::Variable(variable) => Some(variable),
            _ => None,
        })
    }
}

/// A PTX ISA version, such as 8.6.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    /// Before the dot.
    pub major: u8,
    /// After the dot.
    pub minor: u8,
}

impl Version {
    /// `major.minor`.
    pub const fn new(major: u8, minor: u8) -> Version {
        Version { major, minor }
    }
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// `.target sm_90a, debug`.
#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    /// The architecture, such as `sm_90a`.
    pub arch: Name,
    /// What follows it: `debug`, `texmode_independent`, ...
    pub options: Vec<Name>,
    /// Where it is said.
    pub span: Span,
}

/// How wide an address is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressSize {
    /// 32 bits.
    Bits32,
    /// 64 bits.
    Bits64,
}

/// A comment, without its markers and without the blanks around it.
#[derive(Clone, Debug, PartialEq)]
pub struct Comment {
    /// One line of a `//` comment, or a whole `/* */` comment with its line breaks.
    pub text: String,
    /// Whether it shares its line with what comes before it.
    pub trailing: bool,
    /// Where it is.
    pub span: Span,
}

/// Something at the top level of a file.
#[derive(Clone, Debug, PartialEq)]
pub enum Item {
    /// `.entry` or `.func`, defined or only declared.
    Function(Function),
    /// A variable in `.global`, `.const`, `.shared`, `.tex`, ...
    Variable(Variable),
    /// `.alias name, aliasee;`
    Alias {
        /// The new name.
        name: Name,
        /// The function it stands for.
        aliasee: Name,
        /// Where it is said.
        span: Span,
    },
    /// `.file`.
    File(FileDirective),
    /// `.section`: debug information.
    Section(Section),
    /// `.pragma "...", ...;`
    Pragma(Pragma),
    /// A comment of its own.
    Comment(Comment),
}

/// The linkage of a symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Linkage {
    /// The default: private to the file.
    Private,
    /// `.visible`.
    Visible,
    /// `.extern`.
    Extern,
    /// `.weak`.
    Weak,
    /// `.common`.
    Common,
}

/// Whether the host can launch it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FunctionKind {
    /// A kernel.
    Entry,
    /// A device function.
    Func,
}

/// A kernel or a device function.
#[derive(Clone, Debug, PartialEq)]
pub struct Function {
    /// How it is linked.
    pub linkage: Linkage,
    /// Kernel or device function.
    pub kind: FunctionKind,
    /// `.attribute(...)` between linkage and name.
    pub attributes: Vec<Attribute>,
    /// What a device function returns.
    pub returns: Vec<Variable>,
    /// Its name.
    pub name: Name,
    /// Its parameters.
    pub params: Vec<Variable>,
    /// `.maxntid`, `.reqnctapercluster`, `.noreturn`, ...
    pub directives: Vec<FunctionDirective>,
    /// Its statements; none for a declaration.
    pub body: Option<Vec<Statement>>,
    /// Where its name is.
    pub span: Span,
}

/// A directive between a function's parameters and its body.
#[derive(Clone, Debug, PartialEq)]
pub enum FunctionDirective {
    /// A name with up to three numbers: `.maxntid 256, 1, 1`, `.noreturn`.
    Numbers {
        /// The name, without its dot.
        name: Name,
        /// The numbers.
        values: Vec<u64>,
        /// Where it is said.
        span: Span,
    },
    /// `.pragma "...";`
    Pragma(Pragma),
}

/// One `.attribute` of a variable or a function.
#[derive(Clone, Debug, PartialEq)]
pub struct Attribute {
    /// `managed` or `unified`, without its dot.
    pub name: Name,
    /// The two halves of a UUID for `unified`.
    pub values: Vec<u64>,
}

/// A declaration of memory or of a parameter; registers are [`Registers`].
#[derive(Clone, Debug, PartialEq)]
pub struct Variable {
    /// How it is linked; private inside functions.
    pub linkage: Linkage,
    /// Where it lives.
    pub space: Space,
    /// `.const[2]`: the bank of a constant variable.
    pub bank: Option<u32>,
    /// `.attribute(...)`.
    pub attributes: Vec<Attribute>,
    /// `.align`, in bytes.
    pub align: Option<u32>,
    /// `.v2`, `.v4`.
    pub vector: Option<VectorWidth>,
    /// The element type.
    pub ty: ScalarType,
    /// `.ptr` and what it points to, for kernel parameters.
    pub pointer: Option<PointerInfo>,
    /// Its name; `_` where a prototype leaves it out.
    pub name: Name,
    /// Array dimensions; `None` is `[]`.
    pub dims: Vec<Option<u64>>,
    /// `= ...`.
    pub init: Option<Initializer>,
    /// Where its name is.
    pub span: Span,
}

impl Variable {
    /// A plain scalar in `space`; fields say the rest.
    pub fn new(space: Space, ty: ScalarType, name: impl Into<Name>) -> Variable {
        Variable {
            linkage: Linkage::Private,
            space,
            bank: None,
            attributes: Vec::new(),
            align: None,
            vector: None,
            ty,
            pointer: None,
            name: name.into(),
            dims: Vec::new(),
            init: None,
            span: Span::NONE,
        }
    }

    /// Its size in bytes. An open first dimension is as long as its list of
    /// values; `None` where there is no list. A size that no number of 64 bits holds is
    /// the largest that one does: more than any memory has.
    ///
    /// ```
    /// use heist_ptx::{Source, parse};
    /// let text = ".version 8.0 .target sm_80 .address_size 64 .global .u16 a[][2] = {{1, 2}, {3, 4}, {5, 6}}; .extern .shared .b8 b[];";
    /// let module = parse(&Source::new("a.ptx", text)).unwrap();
    /// let sizes: Vec<_> = module.variables().map(|variable| variable.size()).collect();
    /// assert_eq!(sizes, [Some(12), None]);
    /// ```
    pub fn size(&self) -> Option<u64> {
        let element = u64::from(self.ty.bytes()) * self.vector.map_or(1, VectorWidth::lanes);
        let listed = match &self.init {
            Some(Initializer::List(values)) => Some(values.len() as u64),
            _ => None,
        };
        let mut open = listed;
        self.dims.iter().try_fold(element, |size, dim| {
            let first = open.take();
            Some(size.saturating_mul((*dim).or(first)?))
        })
    }

    /// Its alignment in bytes: what it asks for, or its element's own.
    pub fn alignment(&self) -> u64 {
        self.align.map_or(
            u64::from(self.ty.bytes()).max(1) * self.vector.map_or(1, VectorWidth::lanes),
            u64::from,
        )
    }
}

/// `.ptr .global .align 16` on a kernel parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PointerInfo {
    /// The space it points into; generic when not said.
    pub space: Option<Space>,
    /// The alignment of what it points to.
    pub align: Option<u32>,
}

/// The value a variable starts with.
#[derive(Clone, Debug, PartialEq)]
pub enum Initializer {
    /// A number or an address.
    Value(Constant),
    /// `{ ... }`.
    List(Vec<Initializer>),
    /// `addr_mode_0 = wrap`, inside the list of a sampler, texture or surface.
    Field(Name, Constant),
}

/// `.reg .b32 %r<10>, %x;`
#[derive(Clone, Debug, PartialEq)]
pub struct Registers {
    /// `.v2`, `.v4`.
    pub vector: Option<VectorWidth>,
    /// Their type.
    pub ty: ScalarType,
    /// The names, each alone or as a family.
    pub names: Vec<RegisterName>,
}

/// `%x`, or `%r<10>` for `%r0` to `%r9`.
#[derive(Clone, Debug, PartialEq)]
pub struct RegisterName {
    /// The name, or the prefix of a family.
    pub name: Name,
    /// How many a family has.
    pub count: Option<u32>,
    /// Where it is.
    pub span: Span,
}

/// Something inside a function.
#[derive(Clone, Debug, PartialEq)]
pub enum Statement {
    /// An instruction.
    Instruction(Instruction),
    /// `name:`
    Label {
        /// Its name.
        name: Name,
        /// Where it is.
        span: Span,
    },
    /// `.reg`.
    Registers(Registers),
    /// A variable in `.local`, `.shared`, `.param`, ...
    Variable(Variable),
    /// `{ ... }`: a scope of names.
    Block(Vec<Statement>),
    /// `.loc`.
    Loc(Loc),
    /// `label: .branchtargets a, b;`
    BranchTargets {
        /// The label in front of it.
        label: Name,
        /// Where a `brx.idx` may go.
        targets: Vec<Name>,
        /// Where it is.
        span: Span,
    },
    /// `label: .calltargets f, g;`
    CallTargets {
        /// The label in front of it.
        label: Name,
        /// What an indirect call may call.
        targets: Vec<Name>,
        /// Where it is.
        span: Span,
    },
    /// `label: .callprototype (ret) _ (params);`
    CallPrototype(CallPrototype),
    /// `.pragma "...";`
    Pragma(Pragma),
    /// A comment.
    Comment(Comment),
}

/// The shape of an indirectly called function.
#[derive(Clone, Debug, PartialEq)]
pub struct CallPrototype {
    /// The label in front of it.
    pub label: Name,
    /// What it returns.
    pub returns: Vec<Variable>,
    /// The name in it, usually `_`.
    pub name: Name,
    /// What it takes.
    pub params: Vec<Variable>,
    /// `.noreturn`, `.abi_preserve 8`, ...
    pub directives: Vec<FunctionDirective>,
    /// Where it is.
    pub span: Span,
}

/// `.pragma "a", "b";`
#[derive(Clone, Debug, PartialEq)]
pub struct Pragma {
    /// The strings, as written between their quotes.
    pub strings: Vec<String>,
    /// Where it is.
    pub span: Span,
}

/// `.file 1 "path", 1700000000, 1234`
#[derive(Clone, Debug, PartialEq)]
pub struct FileDirective {
    /// The number that `.loc` uses.
    pub index: u32,
    /// The path, as written between its quotes.
    pub path: String,
    /// Timestamp and size.
    pub stamp: Option<(u64, u64)>,
    /// Where it is.
    pub span: Span,
}

/// `.loc 1 20 5, function_name $L__info_string0, inlined_at 1 30 2`
#[derive(Clone, Debug, PartialEq)]
pub struct Loc {
    /// A [`FileDirective::index`].
    pub file: u32,
    /// Line in that file.
    pub line: u32,
    /// Column in that line.
    pub column: u32,
    /// Where the code was inlined from.
    pub inlined: Option<InlinedAt>,
    /// Where it is.
    pub span: Span,
}

/// The call that an inlined piece of code stands for.
#[derive(Clone, Debug, PartialEq)]
pub struct InlinedAt {
    /// The label of the inlined function's name in `.debug_str`.
    pub function: Name,
    /// An offset added to that label.
    pub offset: u64,
    /// File, line and column of the call.
    pub at: (u32, u32, u32),
}

/// `.section .debug_str { ... }`
#[derive(Clone, Debug, PartialEq)]
pub struct Section {
    /// Its name, with its dot.
    pub name: Name,
    /// Its contents, line by line.
    pub lines: Vec<SectionLine>,
    /// Where its name is.
    pub span: Span,
}

/// One line of a debug section.
#[derive(Clone, Debug, PartialEq)]
pub enum SectionLine {
    /// `label:`
    Label(Name),
    /// `.b8 1, 2, 3` and its kind.
    Data {
        /// The width of each value.
        ty: ScalarType,
        /// Numbers, labels, differences of labels.
        values: Vec<Constant>,
    },
}
