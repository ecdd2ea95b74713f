//! From a PTX module to code that runs: names become slots, labels become places,
//! and every instruction becomes an [`Instr`] made by its family in [`crate::ops`].
//!
//! Only what the kernel can reach is decoded. An instruction that the simulator
//! can't run is an error here, before anything has run.

pub(crate) mod constant;
pub(crate) mod flowgraph;
pub(crate) mod function;
pub(crate) mod isolation;
pub(crate) mod map;
pub(crate) mod mods;
pub(crate) mod names;
pub(crate) mod operand;
pub(crate) mod pipe;
pub(crate) mod qualifier;
pub(crate) mod variables;

use crate::code::{Code, Guard, Instr, NOWHERE, Op, Pred, Reach, Shape, Site, Slot};
use crate::lanes::{Lane, Row};
use crate::special::Special;
use crate::watch::{self, Trail};
use heist_ptx::{Diagnostic, Function, FunctionKind, Instruction, Module, Name, Span, rule};
use names::Scope;
use rustc_hash::FxHashMap;
use variables::Variables;

/// A result that says what is wrong with the PTX.
pub(crate) type Decoded<T> = Result<T, Box<Diagnostic>>;

/// How control leaves an operation, for the flow graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Leaves {
    /// To the next one.
    On,
    /// To a label, or on as well if guarded.
    To(Vec<u32>),
    /// Nowhere: exit, return, trap.
    Ends,
}

/// Cycles of the issue port, and cycles until the result is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cost {
    pub(crate) issue: u16,
    pub(crate) latency: u16,
}

impl Cost {
    /// Integer and single-precision arithmetic.
    pub(crate) const ALU: Cost = Cost::new(1, 4);
    /// Multiplications of 64 bits and other sequences of a few instructions.
    pub(crate) const WIDE: Cost = Cost::new(4, 12);
    /// Double precision.
    pub(crate) const DOUBLE: Cost = Cost::new(2, 8);
    /// The special function unit.
    pub(crate) const SPECIAL: Cost = Cost::new(4, 18);
    /// Division and its kind: a call of a routine.
    pub(crate) const ROUTINE: Cost = Cost::new(20, 60);
    /// Shared memory.
    pub(crate) const SHARED: Cost = Cost::new(2, 24);
    /// Global memory.
    pub(crate) const GLOBAL: Cost = Cost::new(4, 500);
    /// An atomic in global memory.
    pub(crate) const ATOMIC: Cost = Cost::new(4, 600);
    /// Constants and parameters.
    pub(crate) const CONSTANT: Cost = Cost::new(1, 8);
    /// Branches and barriers.
    pub(crate) const CONTROL: Cost = Cost::new(1, 0);

    pub(crate) const fn new(issue: u16, latency: u16) -> Cost {
        Cost { issue, latency }
    }
}

/// Decodes one kernel.
pub(crate) struct Decoder<'m> {
    pub(crate) module: &'m Module,
    pub(crate) variables: &'m Variables,
    /// Functions by name, and those that were called but are not decoded yet.
    pub(crate) by_name: FxHashMap<Name, &'m Function>,
    pub(crate) numbers: FxHashMap<Name, u32>,
    queue: Vec<&'m Function>,

    ops: Vec<Op>,
    leaves: Vec<Leaves>,
    sites: Vec<Site>,
    locs: Vec<(u32, u32, u32)>,
    pub(crate) labels: Vec<u32>,
    functions: Vec<crate::code::FunctionCode>,
    pool: Pool,
    specials: Vec<Special>,
    pub(crate) shape: Shape,
    /// Shared variables that the kernel uses, with their offsets.
    pub(crate) shared: FxHashMap<Name, u32>,
    pub(crate) shared_end: u32,

    // The function being decoded.
    pub(crate) scopes: Vec<Scope<'m>>,
    pub(crate) function: u32,
    pub(crate) rows: u32,
    pub(crate) preds: u32,
    pub(crate) frame: u32,
    loc: Option<u32>,
    /// Results of the function that live in registers, and where `ret` stores them.
    pub(crate) returns: Vec<(Name, u32)>,

    // The instruction being decoded.
    pub(crate) span: Span,
    guard: Option<Guard>,
    reads: Vec<u16>,
    writes: u16,
    /// All rows that it writes.
    all_writes: Vec<u16>,
    /// The registers of the instructions so far, and whether anybody wants to know.
    touched: Vec<crate::ops::wgmma::pending::Touched>,
    pub(crate) tracks_registers: bool,
    /// The instruction at hand only moves values.
    pub(crate) moves: bool,
    /// What the instruction at hand does to registers, and what those of the kernel's own body did.
    pub(crate) trail: Trail,
    trails: Vec<Trail>,
    names: Vec<(u32, Name)>,
    /// The unit that the instruction at hand runs on, if it is arithmetic.
    pub(crate) pipe: pipe::Pipe,
}

/// Constants, each once.
#[derive(Default)]
struct Pool {
    rows: Vec<Row>,
    words: FxHashMap<u32, u32>,
    longs: FxHashMap<u64, u32>,
    /// Rows that hold an address in dynamic shared memory: the first row, whether
    /// it is 64 bits wide, and what is added to the start.
    dynamic: Vec<(u32, bool, u64)>,
}

/// Decodes `entry` of a module and everything that it calls.
pub(crate) fn decode(
    module: &Module,
    variables: &Variables,
    entry: &str,
) -> Result<Code, Vec<Diagnostic>> {
    let by_name: FxHashMap<Name, &Function> = defined(module);
    let Some(kernel) = by_name
        .get(entry)
        .copied()
        .filter(|function| function.kind == FunctionKind::Entry)
    else {
        let known: Vec<String> = module.entries().map(|f| format!("`{}`", f.name)).collect();
        return Err(vec![
            Diagnostic::error(
                rule::NO_SUCH_KERNEL,
                Span::NONE,
                format!("there is no kernel `{entry}` in the module"),
            )
            .help(if known.is_empty() {
                "the module has no kernel at all".to_owned()
            } else {
                format!("its kernels are {}", known.join(", "))
            }),
        ]);
    };
    let mut decoder = Decoder {
        module,
        variables,
        by_name,
        numbers: FxHashMap::default(),
        queue: Vec::new(),
        ops: Vec::new(),
        leaves: Vec::new(),
        sites: Vec::new(),
        locs: Vec::new(),
        labels: Vec::new(),
        functions: Vec::new(),
        pool: Pool::default(),
        specials: Vec::new(),
        shape: Shape::default(),
        shared: FxHashMap::default(),
        shared_end: 0,
        scopes: Vec::new(),
        function: 0,
        rows: 0,
        preds: 0,
        frame: 0,
        loc: None,
        returns: Vec::new(),
        span: Span::NONE,
        guard: None,
        reads: Vec::new(),
        writes: 0,
        all_writes: Vec::new(),
        touched: Vec::new(),
        tracks_registers: false,
        moves: false,
        trail: Trail::default(),
        trails: Vec::new(),
        names: Vec::new(),
        pipe: Default::default(),
    };
    decoder.directives(kernel);
    decoder.number_of(kernel);
    let mut errors = Vec::new();
    let mut at = 0;
    while at < decoder.queue.len() {
        let function = decoder.queue[at];
        decoder.function_body(at as u32, function, &mut errors);
        at += 1;
    }
    if errors.is_empty() {
        Ok(decoder.finish())
    } else {
        Err(errors)
    }
}

/// Functions with bodies by name, aliases included.
fn defined(module: &Module) -> FxHashMap<Name, &Function> {
    let mut map: FxHashMap<Name, &Function> = FxHashMap::default();
    for function in module.functions() {
        if function.body.is_some() || !map.contains_key(&function.name) {
            map.insert(function.name.clone(), function);
        }
    }
    for item in &module.items {
        if let heist_ptx::Item::Alias { name, aliasee, .. } = item
            && let Some(function) = map.get(aliasee).copied()
        {
            map.insert(name.clone(), function);
        }
    }
    map
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

    fn directives(&mut self, kernel: &Function) {
        let triple = |values: &[u64]| {
            let at = |index: usize| values.get(index).copied().unwrap_or(1) as u32;
            [at(0), at(1), at(2)]
        };
        for directive in &kernel.directives {
            let heist_ptx::FunctionDirective::Numbers { name, values, .. } = directive else {
                continue;
            };
            match name.as_str() {
                "maxntid" => self.shape.max_block = Some(triple(values)),
                "reqntid" => self.shape.required_block = Some(triple(values)),
                "reqnctapercluster" => self.shape.required_cluster = Some(triple(values)),
                "minnctapersm" => self.shape.min_blocks = values.first().map(|&n| n as u32),
                "maxnreg" => self.shape.max_registers = values.first().map(|&n| n as u32),
                _ => {}
            }
        }
    }

    fn finish(mut self) -> Code {
        // Dynamic shared memory begins behind the static variables, as aligned as can be asked for.
        let dynamic = self.shared_end.next_multiple_of(16);
        for &(row, wide, addend) in &self.pool.dynamic {
            let value = u64::from(dynamic) + addend;
            let rows = &mut self.pool.rows[row as usize..];
            if wide {
                u64::pack(&[value; 32], rows);
            } else {
                u32::pack(&[value as u32; 32], rows);
            }
        }
        pipe::leave_out_unread(&mut self.ops, &self.sites, &self.touched);
        self.shape.static_shared = self.shared_end;
        self.shape.uses_dynamic_shared = !self.pool.dynamic.is_empty();
        self.shape.isolated = self
            .queue
            .iter()
            .all(|function| isolation::is_isolated(function))
            && self.ops.iter().all(|op| op.reach != Reach::Device);
        self.shape.asynchronous = self
            .queue
            .iter()
            .any(|function| isolation::is_asynchronous(function));
        let own = self.trails.len();
        let watched = watch::wrap(watch::Body {
            ops: &mut self.ops[..own],
            leaves: &self.leaves[..own],
            trails: &self.trails,
            labels: &self.labels,
            rows: self.functions.first().map_or(0, |kernel| kernel.rows),
            names: &self.names,
        });
        Code {
            watched,
            ops: self.ops,
            sites: self.sites,
            locs: self.locs,
            files: self
                .module
                .items
                .iter()
                .filter_map(|item| match item {
                    heist_ptx::Item::File(file) => Some((file.index, file.path.clone())),
                    _ => None,
                })
                .collect(),
            labels: self.labels,
            constants: self.pool.rows,
            functions: self.functions,
            specials: self.specials,
            shape: self.shape,
            touched: if self.tracks_registers {
                self.touched
            } else {
                Vec::new()
            },
        }
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
        self.touched.push(crate::ops::wgmma::pending::Touched {
            reads: self.reads.as_slice().into(),
            writes: self.all_writes.drain(..).collect(),
            moves: self.moves,
        });
        let trail = std::mem::take(&mut self.trail);
        // The instruction may be made of several operations.
        self.trail = Trail {
            role: trail.role,
            pure: trail.pure,
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
        self.trail.reads.clear();
        self.reads.clear();
        self.all_writes.clear();
        self.writes = 0;
    }

    // Slots.

    /// A new register of some rows.
    pub(crate) fn fresh(&mut self, rows: u32) -> Slot {
        let slot = Slot::register(self.rows);
        self.rows += rows;
        slot
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

    /// What a constant of 64 bits is; none for what is known at the end only.
    pub(crate) fn long_at(&self, slot: Slot) -> Option<u64> {
        let known = slot.is_constant() && !self.pool.dynamic.iter().any(|one| one.0 == slot.row());
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

    /// An address in dynamic shared memory, known when everything is decoded.
    pub(crate) fn dynamic_shared(&mut self, addend: u64, wide: bool) -> Slot {
        let row = self.pool.rows.len() as u32;
        self.pool.rows.extend([Row::splat(0); 2]);
        self.pool.dynamic.push((row, wide, addend));
        Slot::constant(row)
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
