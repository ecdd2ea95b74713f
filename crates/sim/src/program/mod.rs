//! A module made ready to be launched, and launches of it.

mod company;
mod function;
mod kernel;
mod memory;
mod plan;

use crate::code::Code;
use crate::decode::variables::{Addresses, Variables};
use crate::device::Device;
use crate::engine::executable::Executable;
use crate::engine::grid;
use crate::findings::Findings;
use crate::options::Options;
use crate::race::access::Geography;
use crate::race::sync::Flags;
use crate::rng::Rng;
use crate::state::late::{Late, Pass};
use crate::state::machine::{Machine, Stats};
use crate::state::memory::region::Region;
use crate::state::pool::Pool;
use crate::state::tensor_map::TensorMaps;
use heist_launch::{
    Address, Arg, Arguments, BindError, BlockSpan, Bound, Clock, Launch, Outcome, Param, Placed,
    Trace,
};
use heist_ptx::arch::Footprint;
use heist_ptx::{Diagnostic, FunctionKind, Module, Name, Severity, Span, Statement, rule};
use plan::Plan;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Instant;

pub use company::{Host, Order, Ran, Reach, Silent, Stream, together};

/// A PTX module that can be launched.
///
/// Kernels are decoded when they are first launched; later launches use what was
/// decoded then.
pub struct Program {
    module: Arc<Module>,
    variables: Variables,
    /// By entry, and by where shared memory starts on the device.
    decoded: Mutex<HashMap<(Name, u32), Arc<Executable>>>,
}

/// What a launch gave.
#[derive(Clone, Debug)]
pub struct Report {
    /// Buffers that are read back, and the modelled timeline.
    pub outcome: Outcome,
    /// Everything that was found, errors first.
    pub diagnostics: Vec<Diagnostic>,
    /// How much was done.
    pub stats: Stats,
    /// What the kernel printed.
    pub printed: String,
    /// The memory that had an address before the launch, as the kernel left it, and what the kernel
    /// took with `malloc` and did not give back.
    pub placed: Vec<Placed>,
    /// What the kernel has touched of that memory, where [`Options::touched`] asks for it.
    pub touched: Vec<Touched>,
}

/// The bytes of an allocation that a kernel has touched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Touched {
    /// The allocation's address.
    pub at: u64,
    /// Lines of 128 bytes by their number, with a bit for each byte: read and written by weak accesses,
    /// read and written by strong ones.
    pub lines: Vec<(u32, [u128; 4])>,
}

/// A variable of a module in global or constant memory.
#[derive(Clone, Copy, Debug)]
pub struct ModuleMemory<'p> {
    /// Its name.
    pub name: &'p str,
    /// Its generic address.
    pub at: u64,
    /// Its bytes.
    pub size: u64,
    /// What it starts with; zeros behind that.
    pub init: &'p [u8],
    /// Whether it is constant.
    pub constant: bool,
}

/// What a kernel needs of a device, as the check of a launch counts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Needs {
    /// What a block takes. The registers are an estimate: what ptxas would allocate is not known.
    pub block: Footprint,
    /// The blocks that a multiprocessor holds at a time.
    pub resident: u32,
    /// Bytes of shared memory in variables.
    pub static_shared: u32,
    /// Bytes of local memory a thread.
    pub local: u32,
    /// The most threads of a block, where the kernel says.
    pub most_threads: Option<u32>,
}

impl Report {
    /// Whether anything was found that is an error.
    pub fn has_errors(&self) -> bool {
        self.diagnostics
            .iter()
            .any(|diagnostic| diagnostic.severity == Severity::Error)
    }
}

impl Program {
    /// Takes a module and places its variables.
    pub fn new(module: Module) -> Result<Program, Vec<Diagnostic>> {
        Program::based(module, 0)
    }

    /// The same with variables of global memory from an address on, so that several modules
    /// can have theirs at the same time.
    pub fn based(module: Module, base: u64) -> Result<Program, Vec<Diagnostic>> {
        let variables = Variables::of(&module, base, &Addresses::default())?;
        Ok(Program::with(module, variables))
    }

    /// The same with symbols at addresses that another GPU gave them, so that memory which was kept
    /// there can be used here.
    pub fn at(module: Module, addresses: &Addresses) -> Result<Program, Vec<Diagnostic>> {
        let variables = Variables::of(&module, 0, addresses)?;
        Ok(Program::with(module, variables))
    }

    fn with(module: Module, variables: Variables) -> Program {
        Program {
            module: Arc::new(module),
            variables,
            decoded: Mutex::new(HashMap::new()),
        }
    }

    /// The module.
    pub fn module(&self) -> &Module {
        &self.module
    }

    /// The variables in global and constant memory. [`Arguments::placed`] memory at the
    /// address of one is what it holds at the launch; without, it starts anew each time.
    pub fn variables(&self) -> impl Iterator<Item = ModuleMemory<'_>> {
        self.variables.iter().filter_map(memory::of_variable)
    }

    /// The addresses of the module's functions.
    pub fn functions(&self) -> impl Iterator<Item = (&str, u64)> {
        let functions = self.variables.functions.iter();
        functions.map(|(name, &address)| (name.as_str(), address))
    }

    fn executable(&self, entry: &str, device: &Device) -> Result<Arc<Executable>, Vec<Diagnostic>> {
        let start = device.gpu().arch.limits().shared_start;
        let key = (Name::from(entry), start);
        let mut decoded = match self.decoded.lock() {
            Ok(decoded) => decoded,
            Err(poisoned) => poisoned.into_inner(),
        };
        if let Some(code) = decoded.get(&key) {
            return Ok(Arc::clone(code));
        }
        let code = Arc::new(kernel::decode(&self.module, &self.variables, entry, start)?);
        decoded.insert(key, Arc::clone(&code));
        Ok(code)
    }

    /// What blocks of so many threads, with so much dynamic shared memory, need.
    pub fn needs(
        &self,
        device: &Device,
        entry: &str,
        threads: u32,
        dynamic: u32,
    ) -> Result<Needs, Vec<Diagnostic>> {
        let executable = self.executable(entry, device)?;
        let (code, limits) = (&executable.code, device.gpu().arch.limits());
        let shared = plan::shared_bytes(&code.shape, limits, dynamic);
        let block = plan::footprint(&code.shape, limits, threads, shared);
        let said = code.shape.required_block.or(code.shape.max_block);
        Ok(Needs {
            block,
            resident: limits.residency(block).blocks,
            static_shared: code.shape.static_shared,
            local: code.functions.first().map_or(0, |kernel| kernel.frame),
            most_threads: said.map(|block| block.into_iter().fold(1, u32::saturating_mul)),
        })
    }

    /// Runs one launch of a kernel to its end.
    ///
    /// An error is what kept it from starting: PTX that can't be run, a launch that
    /// the device does not take, arguments that do not fit. What is found while
    /// it runs is in the report.
    pub fn run(
        &self,
        device: &Device,
        entry: &str,
        launch: &Launch,
        arguments: &Arguments,
        options: &Options,
    ) -> Result<Report, Vec<Diagnostic>> {
        let started = Instant::now();
        let executable = self.executable(entry, device)?;
        let code = &executable.code;
        let plan = Plan::of(&self.module, entry, device, code, launch, options)?;
        self.fits(arguments, options)?;
        let run = |late: Late, still: bool, options: &Options| {
            let (mut machine, memory) = self.ready(
                device, code, entry, launch, arguments, options, &plan, still,
            )?;
            (machine.started, machine.late) = (started, late);
            let spans = grid::run(&executable, &mut machine, plan.residency);
            Ok::<_, Vec<Diagnostic>>((machine, memory, spans))
        };
        let (mut machine, memory, spans) =
            match run(Late::default(), options.checks.races, options)? {
                // It writes an input, and unrecorded reads may race with that: run again with all reads
                // recorded.
                (machine, ..) if machine.global.is_stirred() => {
                    run(Late::default(), false, options)?
                }
                ran => ran,
            };
        let mut late = std::mem::take(&mut machine.late);
        if !late.told.is_empty() && !machine.findings.is_cut() && !options.checks.same_value {
            let mut how = options.clone();
            how.checks.unwritten = false;
            how.threads = 1;
            for pass in [Pass::Notes, Pass::Follows] {
                late.pass = pass;
                let (again, ..) = run(late, false, &how)?;
                late = again.late;
                // What was not run to its end is not known.
                late.matters |= again.stopped;
            }
            if !late.matters {
                machine.findings.forget(&late.told);
            }
        }
        Ok(report(entry, machine, &memory, spans))
    }

    /// A machine with the arguments in its memory.
    #[expect(
        clippy::too_many_arguments,
        reason = "everything that a launch is made of, in one place"
    )]
    fn ready(
        &self,
        device: &Device,
        code: &Code,
        entry: &str,
        launch: &Launch,
        arguments: &Arguments,
        options: &Options,
        plan: &Plan,
        still: bool,
    ) -> Result<(Machine, Memory), Vec<Diagnostic>> {
        let whole = |message: String, code| vec![Diagnostic::error(code, Span::NONE, message)];
        let bound = match arguments.bind() {
            Err(BindError::TensorMap { .. }) if self.replaces_maps() => arguments.bind_any_map(),
            bound => bound,
        };
        let mut bound = bound.map_err(|error| whole(error.to_string(), rule::ARGUMENTS))?;
        let mut machine = self.machine(device, code, launch, &bound, options, plan);
        let slots = bound.slots.iter();
        let lengths: Vec<usize> = slots.map(|slot| slot.data.bytes().len()).collect();
        let addresses = memory::allocate(&mut machine, &mut bound, still);
        machine.global.know(Arc::clone(&arguments.foreign));
        machine.tensor_maps = TensorMaps::of(Arc::clone(&arguments.maps));
        self.parameters(&mut machine, entry, &bound, &addresses)?;
        let memory = Memory {
            bound,
            lengths,
            addresses,
        };
        Ok((machine, memory))
    }

    /// Whether kernels change tensor maps: what they start with may then be made over a placeholder, and copies with a
    /// map that was left as it is are checked where they are made.
    fn replaces_maps(&self) -> bool {
        let mut bodies: Vec<&[Statement]> = self
            .module
            .functions()
            .filter_map(|one| one.body.as_deref())
            .collect();
        while let Some(body) = bodies.pop() {
            for statement in body {
                match statement {
                    Statement::Block(inner) => bodies.push(inner),
                    Statement::Instruction(one)
                        if one.opcode.base() == "tensormap"
                            && one.opcode.modifiers().any(|name| name == "replace") =>
                    {
                        return true;
                    }
                    _ => {}
                }
            }
        }
        false
    }

    /// Whether the module's variables and the buffers fit in the budget, before any of them
    /// is allocated.
    fn fits(&self, arguments: &Arguments, options: &Options) -> Result<(), Vec<Diagnostic>> {
        let own = arguments.params.iter().map(|argument| match argument {
            Arg::Buffer { data, .. } => data.bytes().len() as u64,
            _ => 0,
        });
        let named = arguments
            .buffers
            .iter()
            .map(|named| named.data.bytes().len() as u64);
        let placed = arguments.placed.iter().map(|one| one.bytes.len() as u64);
        let buffers: u64 = own.chain(named).chain(placed).sum();
        let variables = || self.variables.iter().filter(|one| one.place.is_some());
        let total = variables()
            .map(|variable| variable.size)
            .fold(buffers, u64::saturating_add);
        let budget = options.budget.memory;
        if total <= budget {
            return Ok(());
        }
        let largest = variables().max_by_key(|variable| variable.size);
        let told = match largest.filter(|variable| variable.size > 0) {
            Some(largest) => Diagnostic::error(
                rule::MEMORY_BUDGET,
                largest.span,
                format!("the module's variables and the buffers take {total} bytes, and the budget is {budget}"),
            )
            .label(format!("the largest variable, of {} bytes", largest.size)),
            None => Diagnostic::error(
                rule::MEMORY_BUDGET,
                Span::NONE,
                format!("the buffers take {total} bytes, and the budget is {budget}"),
            ),
        };
        Err(vec![told])
    }

    fn machine(
        &self,
        device: &Device,
        code: &Code,
        launch: &Launch,
        bound: &Bound,
        options: &Options,
        plan: &Plan,
    ) -> Machine {
        let mut rng = Rng::new(options.seed);
        let clusters = (launch.grid.count() / plan.cluster.count()) as u32;
        let shuffle = options.chaos.reorder.then_some(&mut rng);
        let pool = Pool::new(clusters, shuffle);
        let (mut global, constants) = memory::of_variables(&self.variables, bound);
        // The runtime gives cooperative grids a word to count their blocks in.
        let workspace = if options.cooperative {
            global.add(
                "the cooperative grid's workspace".to_owned(),
                64,
                Region::of([0; 64]),
            )
        } else {
            0
        };
        let shared = plan::shared_layout(&code.shape, device.gpu().arch.limits(), plan.shared);
        Machine {
            device: *device,
            options: options.clone(),
            launch: *launch,
            cluster_shape: plan.cluster,
            geography: Geography {
                warps_per_block: (launch.block.count() as u32).div_ceil(32),
                blocks_per_cluster: plan.cluster.count() as u32,
                isolated: code.shape.isolated,
                in_parts: code.shape.in_parts,
            },
            global,
            traffic: 0,
            constant_len: constants.len() as u64,
            constants: Region::of(constants),
            params: Region::default(),
            param_len: u64::from(code.shape.param_bytes),
            flags: Flags::default(),
            findings: Findings::default(),
            late: Default::default(),
            rng,
            stats: Stats {
                interactions: code.shape.interacts,
                ..Stats::default()
            },
            printed: String::new(),
            pool,
            tensor_maps: Default::default(),
            columns: Default::default(),
            decisions: Vec::new(),
            contention: Default::default(),
            shared_len: shared.len,
            shared_start: shared.start,
            shared_reserved: shared.reserved,
            workspace,
            grown: 0,
            changes: 0,
            spinners: Default::default(),
            patterns: Default::default(),
            stopped: false,
            given_up: None,
            yields: false,
            started: Instant::now(),
        }
    }

    /// Where a function that can be called lies.
    fn address_of(&self, name: &str) -> Option<u64> {
        let mut functions = self.module.functions();
        let function = functions.find(|function| {
            function.kind == FunctionKind::Func && function.body.is_some() && function.name == name
        })?;
        self.variables.functions.get(&function.name).copied()
    }

    /// Lays the arguments out in parameter memory.
    fn parameters(
        &self,
        machine: &mut Machine,
        entry: &str,
        bound: &Bound,
        addresses: &[u64],
    ) -> Result<(), Vec<Diagnostic>> {
        let Some(kernel) = self.module.functions().find(|function| {
            function.kind == FunctionKind::Entry
                && function.name == entry
                && function.body.is_some()
        }) else {
            return Ok(());
        };
        let wrong = |span, message: String, help: &str| {
            let told = Diagnostic::error(rule::ARGUMENTS, span, message);
            Err(vec![told.help(help)])
        };
        if kernel.params.len() != bound.params.len() {
            let message = format!(
                "`{entry}` takes {} parameters, and {} arguments are given",
                kernel.params.len(),
                bound.params.len()
            );
            let each = kernel.params.iter().map(|param| {
                let size = param.size().unwrap_or(0);
                let pointer = if size == 8 { ", as a pointer has" } else { "" };
                format!("`{}` ({size} bytes{pointer})", param.name)
            });
            let each = each.collect::<Vec<_>>().join(", ");
            return wrong(
                kernel.span,
                message,
                &format!("give one for each, in order: {each}"),
            );
        }
        let mut bytes = vec![0u8; machine.param_len as usize];
        let mut end = 0usize;
        for (at, (param, argument)) in kernel.params.iter().zip(&bound.params).enumerate() {
            let size = param.size().unwrap_or(0) as usize;
            let start = end.next_multiple_of((param.alignment() as usize).clamp(1, 128));
            end = start + size;
            let value: Vec<u8> = match argument {
                Param::Bytes(bytes) => bytes.clone(),
                Param::Pointer { slot, offset } => {
                    (addresses[*slot] + offset).to_le_bytes().to_vec()
                }
                Param::TensorMap { slot, map } => machine
                    .tensor_maps
                    .add(addresses[*slot] + map.offset, map.clone())
                    .to_vec(),
                Param::Struct(fields) => {
                    let filled = fields.filled(|address| match address {
                        Address::Slot { slot, offset } => Ok(addresses[*slot] + offset),
                        Address::Function(name) => self.address_of(name).ok_or(name.clone()),
                    });
                    match filled {
                        Ok(bytes) => bytes,
                        Err(name) => {
                            let told = format!(
                                "argument {at} is the address of `{name}`, and the module has no such function"
                            );
                            return wrong(param.span, told, "name a `.func` that has a body");
                        }
                    }
                }
            };
            if value.len() != size {
                let told = format!(
                    "parameter {at}, `{}`, has {size} bytes, and its argument has {}",
                    param.name,
                    value.len()
                );
                let help = match size {
                    8 => {
                        "a pointer is a buffer (`in:`, `out:`, `inout:`), or points into one (`ptr:`)"
                    }
                    9.. => {
                        "a struct is `struct(ptr:NAME, u32:7, ...)`, or its bytes, `bytes:[...]`"
                    }
                    _ => "arguments stand in the order of the parameters",
                };
                return wrong(param.span, told, help);
            }
            if let Ok(pointer) = value[..].try_into() {
                let name = Some(param.name.as_str());
                let says = name.filter(|name| !name.ends_with(&format!("_param_{at}")));
                let address = u64::from_le_bytes(pointer);
                machine.global.point_out(address, at, says);
            }
            bytes[start..end].copy_from_slice(&value);
        }
        machine.params = Region::of(bytes);
        Ok(())
    }
}

/// Where a launch's buffers lie.
struct Memory {
    bound: Bound,
    lengths: Vec<usize>,
    addresses: Vec<u64>,
}

/// What a launch gave, once it has ended.
fn report(entry: &str, mut machine: Machine, memory: &Memory, mut spans: Vec<BlockSpan>) -> Report {
    spans.sort_by_key(|span| (span.start, span.block));
    let mut trace = Trace::new(
        machine.device.to_string(),
        entry.to_owned(),
        Clock::Modelled,
        machine.device.gpu().sms,
        machine.launch.grid,
    );
    trace.blocks = spans;
    trace.decisions = std::mem::take(&mut machine.decisions);
    let left = memory::read_back(
        &mut machine,
        &memory.bound,
        &memory.addresses,
        &memory.lengths,
    );
    Report {
        outcome: Outcome {
            outputs: left.outputs,
            trace: Some(trace),
        },
        diagnostics: machine.findings.finish(),
        stats: machine.stats,
        printed: machine.printed,
        placed: left.placed,
        touched: left.touched,
    }
}

#[cfg(test)]
mod tests;
