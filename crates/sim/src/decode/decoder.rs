//! The decoder of one kernel: what it knows so far, and what it has emitted.

use super::cost::{Cost, Leaves};
use super::names::{Declared, Targets, TargetsKey};
use super::pipe;
use super::trail::Trail;
use super::variables::Variables;
use crate::code::{Guard, NOWHERE, Pred, Reach, Shape, Site, Slot};
use crate::engine::executable::{Instr, Op};
use crate::lanes::{Lane, Row};
use crate::special::Special;
use heist_ptx::analysis::{Graph, Scopes};
use heist_ptx::{Diagnostic, Function, Instruction, Module, Name, Span, rule};
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// Decodes one kernel.
pub(crate) struct Decoder<'m> {
    pub(crate) module: &'m Module,
    pub(crate) variables: &'m Variables,
    /// Functions by name, and those that were called but are not decoded yet.
    pub(crate) by_name: FxHashMap<Name, &'m Function>,
    pub(crate) numbers: FxHashMap<Name, u32>,
    pub(crate) queue: Vec<&'m Function>,
    /// What indirect calls may call.
    pub(crate) targets: FxHashMap<TargetsKey, Targets>,

    pub(crate) ops: Vec<Op>,
    pub(crate) leaves: Vec<Leaves>,
    pub(crate) sites: Vec<Site>,
    pub(crate) locs: Vec<(u32, u32, u32)>,
    pub(crate) labels: Vec<u32>,
    /// Lists of labels that are branched by, and their numbers by the list's own label.
    pub(crate) tables: Vec<Arc<[u32]>>,
    pub(crate) table_of: FxHashMap<usize, u32>,
    /// The control flow of the kernel's own body.
    pub(crate) graph: Option<Graph>,
    pub(crate) functions: Vec<crate::code::FunctionCode>,
    pub(crate) pool: Pool,
    pub(crate) specials: Vec<Special>,
    pub(crate) shape: Shape,
    /// Shared variables that the kernel uses, with their offsets.
    pub(crate) shared: FxHashMap<Name, u32>,
    /// Where the first of them lies in the block's stretch of the window, and how many
    /// bytes they take.
    pub(crate) shared_start: u32,
    pub(crate) shared_end: u32,

    // The function being decoded.
    pub(crate) scopes: Scopes<'m, Declared>,
    /// The number of the function's first label.
    pub(crate) first_label: usize,
    /// The number of its first list of labels.
    pub(crate) first_table: usize,
    /// How many declarations of registers there were.
    pub(crate) declarations: u32,
    /// Where the registers are that were mentioned, by declaration and member.
    pub(crate) registers: FxHashMap<(u32, u32), u32>,
    pub(crate) function: u32,
    pub(crate) rows: u32,
    pub(crate) preds: u32,
    pub(crate) frame: u32,
    pub(crate) loc: Option<u32>,
    /// Results of the function that live in registers, and where `ret` stores them.
    pub(crate) returns: Vec<(Name, u32)>,

    // The instruction being decoded.
    pub(crate) span: Span,
    pub(crate) guard: Option<Guard>,
    pub(crate) reads: Vec<u16>,
    pub(crate) writes: u16,
    /// All rows that it writes.
    pub(crate) all_writes: Vec<u16>,
    /// The registers of the instructions so far, and whether anybody wants to know.
    pub(crate) touched: Vec<crate::code::Touched>,
    pub(crate) tracks_registers: bool,
    /// The instruction at hand only moves values.
    pub(crate) moves: bool,
    /// What the instruction at hand does to registers, and what those of the kernel's own body did.
    pub(crate) trail: Trail,
    pub(crate) trails: Vec<Trail>,
    pub(crate) names: Vec<(u32, Name)>,
    /// Bytes of the registers of the kernel's own body, by their first rows.
    pub(crate) widths: Vec<u8>,
    /// The unit that the instruction at hand runs on, if it is arithmetic.
    pub(crate) pipe: pipe::Pipe,
}

/// Constants, each once.
#[derive(Default)]
pub(crate) struct Pool {
    pub(crate) rows: Vec<Row>,
    pub(crate) words: FxHashMap<u32, u32>,
    pub(crate) longs: FxHashMap<u64, u32>,
}

impl<'m> Decoder<'m> {
    /// The number of a function, which is decoded in turn.
    pub(crate) fn number_of(&mut self, function: &'m Function) -> u32 {
        if let Some(&number) = self.numbers.get(&function.name) {
            return number;
        }
        let number = self.queue.len() as u32;
        self.numbers.insert(function.name.clone(), number);
        self.queue.push(function);
        number
    }

    // Emitting.

    /// Appends an operation for the instruction at hand.
    pub(crate) fn emit(&mut self, instr: Box<dyn Instr>, cost: Cost) {
        self.emit_with(instr, cost, Reach::Own, Leaves::On);
    }

    /// Appends an operation that interacts.
    pub(crate) fn emit_reaching(&mut self, instr: Box<dyn Instr>, cost: Cost, reach: Reach) {
        self.emit_with(instr, cost, reach, Leaves::On);
    }

    pub(crate) fn emit_with(
        &mut self,
        instr: Box<dyn Instr>,
        cost: Cost,
        reach: Reach,
        leaves: Leaves,
    ) {
        self.touched.push(crate::code::Touched {
            reads: self.reads.as_slice().into(),
            writes: self.all_writes.drain(..).collect(),
            moves: self.moves,
        });
        let trail = std::mem::take(&mut self.trail);
        // The instruction may be made of several operations.
        self.trail = Trail {
            role: trail.role,
            pure: trail.pure,
            derives: trail.derives,
            decided: trail.decided,
            mixes: trail.mixes,
            loads: trail.loads,
            ..Trail::default()
        };
        if self.function == 0 {
            self.trails.push(Trail {
                guarded: self.guard.is_some(),
                ..trail
            });
        }
        let mut reads = [0; 4];
        for (slot, row) in reads.iter_mut().zip(self.reads.drain(..)) {
            *slot = row;
        }
        self.ops.push(Op {
            instr,
            guard: self.guard,
            reach,
            issue: cost.issue,
            demand: self.pipe.demand(cost),
            latency: cost.latency,
            reads,
            writes: std::mem::take(&mut self.writes),
            join: NOWHERE,
        });
        self.leaves.push(leaves);
        self.sites.push(Site {
            span: self.span,
            loc: self.loc,
            function: self.function,
        });
    }

    /// Puts something around the operation that was appended last.
    pub(crate) fn around_last(&mut self, make: impl FnOnce(Box<dyn Instr>) -> Box<dyn Instr>) {
        if let Some(op) = self.ops.pop() {
            let instr = make(op.instr);
            self.ops.push(Op { instr, ..op });
        }
    }

    /// Notes that the instruction reads a register.
    pub(crate) fn note_read(&mut self, slot: Slot) {
        if !slot.is_constant() && !slot.is_special() {
            self.reads
                .push((slot.row() + 1).min(u32::from(u16::MAX)) as u16);
            self.trail.reads.push(slot.row());
        }
    }

    /// Notes that the instruction writes a register.
    pub(crate) fn note_write(&mut self, slot: Slot) {
        self.writes = (slot.row() + 1).min(u32::from(u16::MAX)) as u16;
        self.all_writes.push(self.writes);
        self.trail.writes.push(slot.row());
    }

    /// Notes what a register of the kernel's own body is called.
    pub(crate) fn name_row(&mut self, row: u32, name: &Name) {
        self.names.push((row, name.clone()));
    }

    /// The registers noted so far are followed by the instruction itself.
    pub(crate) fn forget_touched(&mut self) {
        self.trail.own_reads = std::mem::take(&mut self.trail.reads);
        self.reads.clear();
        self.all_writes.clear();
        self.writes = 0;
    }

    // Slots.

    /// A new register of some rows.
    pub(crate) fn fresh(&mut self, rows: u32) -> Slot {
        let slot = Slot::register(self.rows);
        self.rows += rows;
        self.set_width(slot.row(), 4 * rows);
        slot
    }

    /// Notes how many bytes a register of the kernel's own body has.
    pub(crate) fn set_width(&mut self, row: u32, bytes: u32) {
        if self.function == 0 {
            let rows = self.rows as usize;
            self.widths.resize(self.widths.len().max(rows), 4);
            self.widths[row as usize] = bytes.min(16) as u8;
        }
    }

    /// A new predicate.
    pub(crate) fn fresh_pred(&mut self) -> Pred {
        self.preds += 1;
        Pred(self.preds - 1)
    }

    /// A 32-bit constant.
    pub(crate) fn word(&mut self, value: u32) -> Slot {
        let pool = &mut self.pool;
        let row = *pool.words.entry(value).or_insert_with(|| {
            pool.rows.push(Row::splat(value));
            pool.rows.len() as u32 - 1
        });
        Slot::constant(row)
    }

    /// What a constant of 64 bits is.
    pub(crate) fn long_at(&self, slot: Slot) -> Option<u64> {
        let known = slot.is_constant();
        let rows = self.pool.rows.get(slot.row() as usize..)?;
        (known && rows.len() >= 2).then(|| u64::unpack(rows)[0])
    }

    /// A 64-bit constant.
    pub(crate) fn long(&mut self, value: u64) -> Slot {
        let pool = &mut self.pool;
        let row = *pool.longs.entry(value).or_insert_with(|| {
            let row = pool.rows.len() as u32;
            pool.rows.extend([Row::splat(0); 2]);
            u64::pack(&[value; 32], &mut pool.rows[row as usize..]);
            row
        });
        Slot::constant(row)
    }

    /// A constant of 128 bits.
    pub(crate) fn huge(&mut self, value: u128) -> Slot {
        let row = self.pool.rows.len() as u32;
        self.pool.rows.extend([Row::splat(0); 4]);
        u128::pack(&[value; 32], &mut self.pool.rows[row as usize..]);
        Slot::constant(row)
    }

    /// A constant of `bits` bits.
    pub(crate) fn constant(&mut self, value: u64, bits: u32) -> Slot {
        match bits {
            128 => self.huge(u128::from(value)),
            64 => self.long(value),
            32 => self.word(value as u32),
            _ => self.word(value as u32 & ((1 << bits) - 1)),
        }
    }

    /// The row of a special register.
    pub(crate) fn special(&mut self, special: Special) -> Slot {
        let mut row = 0;
        for &known in &self.specials {
            if known == special {
                return Slot::special(row);
            }
            row += 1 + u32::from(known.is_wide());
        }
        self.specials.push(special);
        Slot::special(row)
    }

    // Complaints.

    /// An instruction that is PTX, and that the simulator does not run.
    pub(crate) fn unsupported(&self, instruction: &Instruction, why: &str) -> Box<Diagnostic> {
        Box::new(
            Diagnostic::error(
                rule::UNSUPPORTED,
                self.span,
                format!("the simulator does not run `{}`", instruction.opcode),
            )
            .label(why.to_owned()),
        )
    }

    /// Something wrong with the instruction at hand.
    pub(crate) fn wrong(
        &self,
        code: heist_ptx::Code,
        message: impl Into<String>,
    ) -> Box<Diagnostic> {
        Box::new(Diagnostic::error(code, self.span, message))
    }
}
