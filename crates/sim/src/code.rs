//! A kernel made ready to run: a flat list of operations.
//!
//! Names are gone. A register is a [`Slot`] in the window of the function that
//! runs, an immediate is a row of the constant pool, a label is an index into
//! the list, and every instruction has its reconvergence point.

use crate::lanes::{Mask, Row};
use heist_ptx::arch::Limits;
use heist_ptx::{Diagnostic, Name, Severity, SourceLine, Span};

/// No reconvergence point: a branch whose sides never meet.
pub(crate) const NOWHERE: u32 = u32::MAX;

/// A register of the running function, a special register, or a constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Slot(u32);

impl Slot {
    const CONSTANT: u32 = 1 << 31;
    const SPECIAL: u32 = 1 << 30;

    /// Row `row` of the running function's window.
    pub(crate) fn register(row: u32) -> Slot {
        Slot(row)
    }

    /// Row `row` of the constant pool.
    pub(crate) fn constant(row: u32) -> Slot {
        Slot(row | Slot::CONSTANT)
    }

    /// Row `row` of the warp's special registers.
    pub(crate) fn special(row: u32) -> Slot {
        Slot(row | Slot::SPECIAL)
    }

    /// The row of the running function's window, if it is one.
    #[inline(always)]
    pub(crate) fn as_register(self) -> Option<u32> {
        (self.0 < Slot::SPECIAL).then_some(self.0)
    }

    #[inline]
    pub(crate) fn is_special(self) -> bool {
        self.0 & Slot::SPECIAL != 0
    }

    #[inline]
    pub(crate) fn is_constant(self) -> bool {
        self.0 & Slot::CONSTANT != 0
    }

    #[inline]
    pub(crate) fn row(self) -> u32 {
        self.0 & !(Slot::CONSTANT | Slot::SPECIAL)
    }
}

/// A predicate register of the running function's window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Pred(pub(crate) u32);

/// A predicate as a source: a register, perhaps negated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PredSrc {
    pub(crate) pred: Pred,
    pub(crate) negated: bool,
}

/// A choice between two values: the row of each that is a register, and the predicate, or its constant.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Selects {
    pub(crate) from: [Option<u32>; 2],
    pub(crate) by: Result<PredSrc, Mask>,
}

/// A predicate that decides a result alone where it has one value: where the other operand has no effect.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Gate {
    /// Of two predicates: false decides an `and`, true an `or`.
    Both {
        decides: bool,
        of: [Result<PredSrc, Mask>; 2],
    },
    /// Of a comparison and a predicate.
    With { decides: bool, pred: PredSrc },
}

/// A Bloom filter of rows and predicates: those of a set, and perhaps others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Bloom {
    rows: u64,
    preds: u64,
}

impl Bloom {
    pub(crate) fn of(rows: impl Iterator<Item = u32>, preds: impl Iterator<Item = u32>) -> Bloom {
        let bits = |set: u64, one: u32| set | 1 << (one % 64);
        Bloom {
            rows: rows.fold(0, bits),
            preds: preds.fold(0, bits),
        }
    }

    pub(crate) fn add(&mut self, other: Bloom) {
        self.rows |= other.rows;
        self.preds |= other.preds;
    }

    /// Whether two sets may have something in common.
    pub(crate) fn meets(self, other: Bloom) -> bool {
        self.rows & other.rows != 0 || self.preds & other.preds != 0
    }
}

/// What an instruction does with values, see [`crate::access::doubt`].
#[derive(Debug)]
pub(crate) struct Uses {
    /// All that it reads and writes, its guard included.
    pub(crate) touches: Bloom,
    /// Rows of the kernel's window.
    pub(crate) reads: Vec<u32>,
    pub(crate) writes: Vec<u32>,
    pub(crate) asks: Vec<PredSrc>,
    pub(crate) decides: Vec<Pred>,
    pub(crate) how: How,
}

/// How results come of what is read.
#[derive(Debug)]
pub(crate) enum How {
    /// Of all of it.
    Computes,
    /// Of those bytes of it that the instruction itself tells, when it is run with others.
    Derives,
    /// Of all of it, in all lanes.
    Mixes,
    /// A part of each register.
    Packs,
    /// Of one of two registers.
    Selects(Selects),
    /// Of all of it, where no predicate decides alone.
    Gates(Gate),
    /// Another lane's value: so many of the registers, the first ones.
    Shuffles(usize),
    /// From memory, so many bytes to a register; what is read is an address.
    Loads(u32),
    /// There are none: so many bytes of each register go to memory. Other registers that are read are an address.
    Stores(u32, Vec<Option<u32>>),
    /// There are none: memory is copied to memory. What is read are addresses.
    Copies,
    /// Something else happens as well.
    Acts,
}

/// The scope of an instruction's interaction, and so in which time order it must run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Reach {
    /// None, or only through memory that other instructions order.
    Own,
    /// The cluster: barriers, shared atomics.
    Cluster,
    /// The whole device: global atomics, volatile accesses, launch control.
    Device,
}

/// What happens next. Small, since every instruction gives one back.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Flow {
    /// On to the next instruction.
    Next,
    /// The lanes of [`Cx::mask`] go there, the others to the next instruction.
    Branch(u32),
    /// Every lane of [`Cx::mask`] goes where [`Cx::targets`] says.
    Scatter,
    /// The lanes of [`Cx::mask`] are done.
    Exit,
    /// The lanes of [`Cx::mask`] enter a function.
    Call(u32),
    /// The lanes of [`Cx::mask`] leave the function.
    Return,
    /// The fragment waits, see [`Cx::wait`], and then goes on with the next instruction.
    Wait,
    /// The fragment waits, see [`Cx::retry`], and then runs this instruction again.
    Retry,
    /// The launch ends here: a trap, or a fault that can't be survived.
    Stop,
}

/// What a fragment of a warp waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// Barrier `id` of its block.
    Barrier { id: u32 },
    /// The cluster's barrier.
    ClusterBarrier,
    /// The other lanes named in `members`, at the same instruction.
    Gather { members: u32 },
    /// The other lanes named in `members`, at any `bar.warp.sync`.
    WarpBarrier { members: u32 },
    /// A phase of the mbarrier at `offset` of block `rank`'s shared memory, up to a moment.
    Mbarrier { rank: u32, offset: u32, until: u64 },
    /// A moment.
    Until { time: u64 },
}

/// The predicate in front of an instruction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Guard {
    pub(crate) pred: Pred,
    pub(crate) negated: bool,
}

/// Where an operation comes from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Site {
    pub(crate) span: Span,
    /// Index into [`Code::locs`] of the source line, if the PTX tells.
    pub(crate) loc: Option<u32>,
    pub(crate) function: u32,
}

/// A function's place and what its frame needs.
#[derive(Clone, Debug)]
pub(crate) struct FunctionCode {
    pub(crate) name: Name,
    pub(crate) start: u32,
    pub(crate) rows: u32,
    pub(crate) preds: u32,
    /// Bytes of local memory, parameters included.
    pub(crate) frame: u32,
}

/// The facts about a kernel that a run needs besides its operations.
pub(crate) struct Code {
    pub(crate) sites: Vec<Site>,
    /// `.loc` lines: file, line, column.
    pub(crate) locs: Vec<(u32, u32, u32)>,
    /// Paths of `.file`.
    pub(crate) files: Vec<(u32, String)>,
    /// The place of each label, by its number.
    pub(crate) labels: Vec<u32>,
    pub(crate) constants: Vec<Row>,
    pub(crate) functions: Vec<FunctionCode>,
    /// The special registers that are read, in the order of their rows.
    pub(crate) specials: Vec<crate::special::Special>,
    pub(crate) shape: Shape,
    /// What warps store for the value-following checks around operations.
    pub(crate) watched: Watched,
    /// The registers of each instruction; empty where no check needs them.
    pub(crate) touched: Vec<Touched>,
    /// What the instructions of the kernel's own body do with values.
    pub(crate) uses: Vec<Uses>,
    /// Bytes of the registers of the kernel's own body, by their first rows.
    pub(crate) widths: Vec<u8>,
}

/// What the kernel declares about itself, and what it was found to use.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shape {
    pub(crate) static_shared: u32,
    /// What the start of dynamic shared memory is a multiple of.
    pub(crate) dynamic_align: u32,
    pub(crate) param_bytes: u32,
    /// Registers a thread, where the kernel says.
    pub(crate) max_registers: Option<u32>,
    /// Whether it names more than a thread can have.
    pub(crate) all_registers: bool,
    /// Whether `setmaxnreg` moves registers: then a thread starts with all that it may have.
    pub(crate) moves_registers: bool,
    /// Blocks an SM is to hold at least.
    pub(crate) min_blocks: Option<u32>,
    pub(crate) required_block: Option<[u32; 3]>,
    pub(crate) max_block: Option<[u32; 3]>,
    pub(crate) required_cluster: Option<[u32; 3]>,
    pub(crate) uses_dynamic_shared: bool,
    /// Whether it names the shared memory that is reserved for the system.
    pub(crate) uses_reserved_shared: bool,
    /// Whether blocks can't communicate or synchronise with each other; see
    /// [`crate::decode::isolation`].
    pub(crate) isolated: bool,
    /// Whether lanes of a warp may synchronise without the others.
    pub(crate) in_parts: bool,
    /// Whether the result may depend on the schedule: it has an interacting instruction (an atomic,
    /// a barrier, a request), or reads a clock.
    pub(crate) interacts: bool,
    /// Whether something reads or writes shared memory by the asynchronous proxy; see
    /// [`crate::decode::isolation`].
    pub(crate) asynchronous: bool,
    /// Whether the kernel has `tcgen05.fence`: compilers that rely on other means write none.
    pub(crate) tensor_fences: bool,
    /// Whether it has those before an arrival: some compilers write only those after a wait.
    pub(crate) tensor_fences_before: bool,
    /// 32-bit words of all declared registers that are live.
    pub(crate) register_words: u32,
}

impl Shape {
    /// The most registers of a thread that ptxas gives the kernel, by its directives.
    pub(crate) fn most_registers(&self, limits: Limits) -> Option<u32> {
        // ptxas says that it ignores `.maxnreg 256`, and moves registers all the same.
        let blocks = self.min_blocks.or(self.all_registers.then_some(1));
        let block = blocks.zip(self.required_block.or(self.max_block));
        let shared = block.map(|(blocks, block)| {
            let threads = block.iter().fold(1u32, |all, n| all.saturating_mul(*n));
            limits.registers_for(threads, blocks)
        });
        self.max_registers.into_iter().chain(shared).min()
    }
}

impl Code {
    /// The function that an instruction belongs to.
    pub(crate) fn function_of(&self, pc: u32) -> Option<&FunctionCode> {
        let site = self.sites.get(pc as usize)?;
        self.functions.get(site.function as usize)
    }

    /// A finding at an instruction, with the source line behind it.
    pub(crate) fn finding(
        &self,
        rule: heist_ptx::Code,
        pc: u32,
        message: impl Into<String>,
    ) -> Diagnostic {
        let mut told = Diagnostic::error(rule, self.span(pc), message);
        told.severity = rule.rule().map_or(Severity::Error, |rule| rule.severity);
        told.source_line = self.source_line(pc);
        told
    }

    /// The source line behind an instruction.
    pub(crate) fn source_line(&self, pc: u32) -> Option<SourceLine> {
        let (file, line, column) = *self.locs.get(self.sites.get(pc as usize)?.loc? as usize)?;
        let path = self
            .files
            .iter()
            .find(|(index, _)| *index == file)
            .map_or("?", |(_, path)| path.as_str());
        Some(SourceLine {
            path: path.to_owned(),
            line,
            column,
            text: None,
        })
    }

    pub(crate) fn span(&self, pc: u32) -> Span {
        self.sites
            .get(pc as usize)
            .map_or(Span::NONE, |site| site.span)
    }
}

/// The rows that an instruction reads and writes, in the window of its function.
#[derive(Debug, Default)]
pub(crate) struct Touched {
    pub(crate) reads: Box<[u16]>,
    pub(crate) writes: Box<[u16]>,
    /// It only moves values. Compilers put moves behind a `wgmma.fence` that their
    /// source has in front of it, and the assembler puts them back.
    pub(crate) moves: bool,
}

/// What a warp must keep for the checks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Watched {
    /// The rows and names of registers that may be read uninitialised.
    pub(crate) unset: Vec<(u32, Name)>,
    /// Registers that may depend on a granted cluster's coordinates.
    pub(crate) lineage: usize,
    /// Registers that may depend on what a strong load has read.
    pub(crate) updates: usize,
}
