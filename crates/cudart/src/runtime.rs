//! The state of a program's GPU: modules, kernels, variables, memory and errors.

use crate::graph::Graphs;
use crate::guard::Guard;
use crate::heap::Heap;
use crate::image::Array;
use crate::maps::Maps;
use crate::objects::{Contexts, Link, Physical, used_by_runtime};
use crate::operation::Wish;
use crate::order::{Clash, Extent, Order, Step};
use crate::raw;
use crate::repeat::{Given, Repeats};
use crate::report::{Ran, ReportFile};
use crate::status::{
    ASSERT, INVALID_CONFIGURATION, INVALID_FUNCTION, INVALID_HANDLE, INVALID_PTX, INVALID_SYMBOL,
    INVALID_VALUE, LAUNCH_FAILURE, NO_IMAGE, NOT_FOUND, NOT_SUPPORTED, UNKNOWN,
};
use heist_fatbin as fatbin;
use heist_launch::{Arg, Arguments, Launch};
use heist_ptx::{Diagnostic, Source, rule};
use heist_sim::{Budget, Device, Needs, Options, Program, Touched};
use serde_json::json;
use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::ffi::{c_int, c_void};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, Once, TryLockError};

/// Where the variables of the first module begin, and how far the next one's are.
const VARIABLES: u64 = 0x10_0000_0000;
const MODULE_ROOM: u64 = 0x1_0000_0000;

/// Device code of one container: a PTX text, or why there is none.
struct Module {
    /// Its file, for the report.
    name: String,
    program: Result<Program, String>,
}

struct Function {
    module: usize,
    name: String,
    /// Bytes of dynamic shared memory that were opted in to.
    dynamic: u32,
}

/// A stream that the program has made.
#[derive(Clone, Copy)]
pub(crate) struct MadeStream {
    pub(crate) flags: u32,
    pub(crate) priority: c_int,
    /// From one on.
    pub(crate) number: usize,
}

/// Whether the default stream waits for a stream, and it for that one.
fn is_blocking(streams: &HashMap<usize, MadeStream>, stream: usize) -> bool {
    const NON_BLOCKING: u32 = 1;
    streams
        .get(&stream)
        .is_none_or(|one| one.flags & NON_BLOCKING == 0)
}

/// All of it.
pub(crate) struct Runtime {
    pub(crate) device: Device,
    pub(crate) heap: Heap,
    pub(crate) report: ReportFile,
    modules: Vec<Module>,
    /// The modules of each registration.
    registered: Vec<Vec<usize>>,
    functions: HashMap<usize, Function>,
    /// Variables: the address on the device, and the bytes.
    symbols: HashMap<usize, (u64, u64)>,
    /// Modelled time since the start.
    pub(crate) now_ns: f64,
    pub(crate) events: HashMap<usize, f64>,
    pub(crate) graphs: Graphs,
    repeats: Repeats,
    /// What was set of pools of memory, by pool and attribute.
    pub(crate) pools: HashMap<(usize, c_int), u64>,
    /// Arrays, by their address.
    pub(crate) arrays: HashMap<u64, Array>,
    handles: usize,
    sticky: c_int,
    missed: HashSet<&'static str>,
    /// Tensor maps that the program has encoded.
    pub(crate) maps: Maps,
    /// The numbers of modules that the program has loaded itself, by handle.
    loaded: HashMap<usize, usize>,
    pub(crate) contexts: Contexts,
    /// Device code that is being linked.
    pub(crate) links: HashMap<usize, Link>,
    /// Memory without an address yet.
    pub(crate) physical: HashMap<usize, Physical>,
    /// Each stream that the program has made, by handle, and how many it has made.
    pub(crate) streams: HashMap<usize, MadeStream>,
    pub(crate) stream_count: usize,
    /// Limits that the program has set.
    pub(crate) limits: HashMap<c_int, usize>,
    pub(crate) order: Order,
    pub(crate) guard: Guard,
    /// What was told of operations that no order holds apart, each once.
    told: HashSet<String>,
}

static RUNTIME: LazyLock<Mutex<Runtime>> = LazyLock::new(|| Mutex::new(Runtime::new()));

thread_local! {
    /// The last error of each of the program's threads: a mistake of one is no other's.
    static LAST: Cell<c_int> = const { Cell::new(0) };
    /// Whether the driver's interface makes this call, under another name.
    static OF_DRIVER: Cell<bool> = const { Cell::new(false) };
}

/// The state, for one call.
pub(crate) fn runtime() -> MutexGuard<'static, Runtime> {
    match RUNTIME.lock() {
        Ok(runtime) => runtime,
        Err(poisoned) => poisoned.into_inner(),
    }
}

/// The same, unless another thread has it.
fn try_runtime() -> Option<MutexGuard<'static, Runtime>> {
    match RUNTIME.try_lock() {
        Ok(runtime) => Some(runtime),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// Lets a function of the program run, whose accesses its stream orders. It may tell any thread of the host how
/// far the stream is, so the host knows.
pub(crate) fn calls_host(stream: usize, function: impl FnOnce()) {
    {
        let mut runtime = runtime();
        runtime.guard.called += 1;
        runtime.guard.open();
        runtime.host_waits(stream);
    }
    function();
    let mut runtime = runtime();
    runtime.guard.called -= 1;
    runtime.close();
}

/// Does a call of the program, and remembers its error.
pub(crate) fn call(act: impl FnOnce(&mut Runtime) -> Result<(), c_int>) -> c_int {
    if !OF_DRIVER.get() {
        used_by_runtime();
    }
    let status = call_driver(act);
    if status != 0 {
        LAST.set(status);
    }
    status
}

/// Does a call of the driver that is the runtime's under another name: it leaves the last error as it was.
pub(crate) fn quietly(act: impl FnOnce() -> c_int) -> c_int {
    let before = (LAST.get(), OF_DRIVER.replace(true));
    let status = act();
    LAST.set(before.0);
    OF_DRIVER.set(before.1);
    status
}

/// Asked when the host touches an address that it may not; whether it was closed by the guard.
fn fault(address: u64, write: bool) -> bool {
    match try_runtime() {
        // Another thread makes a call, which opens everything: the access is tried again.
        None => true,
        Some(mut runtime) => runtime.host_touches(address, write),
    }
}

/// The host has waited for a stream, outside of a call.
pub(crate) fn host_has_waited(stream: usize) {
    let mut runtime = runtime();
    runtime.guard.open();
    runtime.host_waits(stream);
    runtime.close();
}

/// Ends the report when the program ends.
pub(crate) fn at_end() {
    static ONCE: Once = Once::new();
    extern "C" fn end() {
        runtime().end();
    }
    ONCE.call_once(|| {
        // SAFETY: a function without arguments that ends with the program.
        unsafe { libc::atexit(end) };
    });
}

/// Does a call of the driver's interface, whose errors the runtime does not remember.
pub(crate) fn call_driver(act: impl FnOnce(&mut Runtime) -> Result<(), c_int>) -> c_int {
    let act = std::panic::AssertUnwindSafe(act);
    let done = std::panic::catch_unwind(|| {
        let mut runtime = runtime();
        runtime.guard.open();
        let result = match runtime.sticky {
            0 => { act }.0(&mut runtime),
            sticky => Err(sticky),
        };
        runtime.close();
        result.err().unwrap_or(0)
    });
    done.unwrap_or(UNKNOWN)
}

/// A function that the stand-in lacks: named once.
pub(crate) fn missing(name: &'static str) -> c_int {
    call(|runtime| {
        if runtime.missed.insert(name) {
            let error = match name.contains("cuda") {
                true => "cudaErrorNotSupported",
                false => "CUDA_ERROR_NOT_SUPPORTED",
            };
            let text = format!("{name} is not there: it returned {error} (801)");
            runtime.report.remark(&text);
        }
        Err(NOT_SUPPORTED)
    })
}

impl Runtime {
    fn new() -> Runtime {
        let name = std::env::var("HEIST_CUDA_DEVICE").unwrap_or_else(|_| "h200".to_owned());
        let mut report = ReportFile::new();
        let device = Device::named(&name).or_else(|error| {
            report.remark(&format!("{error}: it is an h200"));
            Device::named("h200")
        });
        Runtime {
            device: device.unwrap_or_else(|_| Device::of(heist_ptx::arch::Gpu::H200)),
            heap: Heap::default(),
            report,
            modules: Vec::new(),
            registered: Vec::new(),
            functions: HashMap::new(),
            symbols: HashMap::new(),
            now_ns: 0.0,
            events: HashMap::new(),
            graphs: Graphs::default(),
            repeats: Repeats::default(),
            pools: HashMap::new(),
            arrays: HashMap::new(),
            handles: 0x100,
            sticky: 0,
            missed: HashSet::new(),
            maps: Maps::default(),
            loaded: HashMap::new(),
            contexts: Contexts::default(),
            links: HashMap::new(),
            physical: HashMap::new(),
            streams: HashMap::new(),
            stream_count: 0,
            limits: HashMap::new(),
            order: Order::default(),
            guard: Guard::default(),
            told: HashSet::new(),
        }
    }

    /// A new handle of a stream or an event.
    pub(crate) fn handle(&mut self) -> usize {
        self.handles += 1;
        self.handles
    }

    /// The array behind a handle.
    pub(crate) fn array(&self, handle: u64) -> Result<&Array, c_int> {
        self.arrays.get(&handle).ok_or(INVALID_VALUE)
    }

    /// Notes the time in an event, and how far its stream is.
    pub(crate) fn record(&mut self, event: usize, stream: usize) {
        let streams = &self.streams;
        self.order
            .record(event, stream, |one| is_blocking(streams, one));
        // Two events never have the same time: programs divide by the difference.
        self.now_ns += 1.0;
        self.events.insert(event, self.now_ns);
    }

    /// Closes to the host what the device may still use.
    fn close(&mut self) {
        self.guard.close(&self.order, &mut self.heap, fault);
    }

    /// The host touches an address that may be closed; whether it was.
    fn host_touches(&mut self, address: u64, write: bool) -> bool {
        let Some(at) = self.guard.open_at(address) else {
            return false;
        };
        if let Some(clash) = self.order.disturbed(at, address - at, write) {
            self.tell_host(at, write, &clash);
        }
        true
    }

    /// Whether it is noted what operations touch: a program with one stream and device memory orders everything.
    pub(crate) fn tracks(&self) -> bool {
        self.stream_count > 0 || self.heap.has_shared()
    }

    /// An operation of a stream begins.
    pub(crate) fn begin(&mut self, stream: usize) -> Step {
        let streams = &self.streams;
        self.order.begin(stream, |one| is_blocking(streams, one))
    }

    /// The host waits for a stream.
    pub(crate) fn host_waits(&mut self, stream: usize) {
        let streams = &self.streams;
        self.order
            .host_waits(stream, |one| is_blocking(streams, one));
    }

    /// An operation of a stream is over a whole allocation.
    pub(crate) fn touch_all(&mut self, stream: usize, at: u64, what: &str) {
        let Some((start, len, _)) = self.heap.place(at) else {
            return;
        };
        if !self.tracks() {
            return;
        }
        let step = self.begin(stream);
        let bytes = 0..len;
        let extent = Extent::Range { bytes, write: true };
        let what: Arc<str> = Arc::from(what);
        if let Some(clash) = self.order.access(&step, start, extent, &what, false) {
            self.tell_clash(&what, stream, start, &clash);
        }
    }

    /// A stream in words.
    fn stream_name(&self, stream: usize) -> String {
        match self.streams.get(&stream) {
            Some(one) => format!("stream {}", one.number),
            None if stream <= 2 => "the default stream".to_owned(),
            None => "a stream that is gone".to_owned(),
        }
    }

    /// A finding about two operations that nothing orders; nothing where it was told.
    fn clash(&mut self, what: &str, stream: usize, at: u64, clash: &Clash) -> Option<Diagnostic> {
        if !self.told.insert(format!("{what} {} {at}", clash.what)) {
            return None;
        }
        let (ours, theirs) = (self.stream_name(stream), self.stream_name(clash.stream));
        let text = format!(
            "{what} in {ours} and {} in {theirs} touch byte {} of `{}`, one of them writes it, and nothing orders the two",
            clash.what,
            clash.byte,
            self.heap.name(at),
        );
        let found = Diagnostic::error(rule::STREAM_RACE, heist_ptx::Span::NONE, text);
        Some(found.help(
            "let the second stream wait for the first (`cudaEventRecord` there, `cudaStreamWaitEvent` here), use \
             one stream for both, or let the host wait in between",
        ))
    }

    /// Tells of an operation that is no launch.
    pub(crate) fn tell_clash(&mut self, what: &str, stream: usize, at: u64, clash: &Clash) {
        if let Some(found) = self.clash(what, stream, at, clash) {
            self.report.operation(what, &found);
        }
    }

    /// Tells of the host.
    pub(crate) fn tell_host(&mut self, at: u64, write: bool, clash: &Clash) {
        if !self
            .told
            .insert(format!("the host {write} {} {at}", clash.what))
        {
            return;
        }
        let text = format!(
            "the host {} byte {} of `{}`, and {} in {} may not be over",
            if write { "writes" } else { "reads" },
            clash.byte,
            self.heap.name(at),
            clash.what,
            self.stream_name(clash.stream),
        );
        let found = Diagnostic::error(rule::HOST_RACE, heist_ptx::Span::NONE, text);
        let found = found.help(
            "wait first: `cudaDeviceSynchronize`, `cudaStreamSynchronize` or `cudaEventSynchronize`",
        );
        self.report.operation("the host", &found);
    }

    /// Puts a launch into the order of all operations; what it meets there.
    fn order_launch(
        &mut self,
        step: &Step,
        what: &str,
        touched: Option<&[Touched]>,
    ) -> Option<Diagnostic> {
        let touched = touched?;
        let what: Arc<str> = Arc::from(what);
        // Strong writes that the host sees: it may wait for them, and then the rest is there, too.
        let strong = |one: &Touched| one.lines.iter().any(|(_, bytes)| bytes[3] != 0);
        let signals = touched
            .iter()
            .any(|one| Heap::is_shared(one.at) && strong(one));
        let mut found = None;
        for one in touched {
            let extent = Extent::of(one);
            let clash = self.order.access(step, one.at, extent, &what, signals);
            if let Some(clash) = clash
                && found.is_none()
            {
                found = self.clash(&what, step.stream, one.at, &clash);
            }
        }
        found
    }

    /// Gives memory back.
    pub(crate) fn free(&mut self, at: u64) -> Result<(), c_int> {
        if at == 0 || self.heap.free(at) {
            self.order.release(at);
            return Ok(());
        }
        self.report.remark(&format!(
            "cudaFree of {at:#x}, where no allocation begins (given back already?): it returned \
             cudaErrorInvalidValue (1)"
        ));
        Err(INVALID_VALUE)
    }

    /// The last error of this thread, which is cleared unless it is sticky.
    pub(crate) fn last_error(&mut self, forget: bool) -> c_int {
        let last = if self.sticky != 0 {
            self.sticky
        } else {
            LAST.get()
        };
        if forget {
            LAST.set(0);
        }
        last
    }

    /// Forgets everything, as a new context would.
    pub(crate) fn reset(&mut self) {
        self.guard.open();
        self.order.host_waits_for_all();
        self.sticky = 0;
        LAST.set(0);
    }

    /// Takes a fat binary; the number by which the program means it.
    pub(crate) fn register(&mut self, wrapper: *const c_void) -> usize {
        let mut modules = Vec::new();
        // SAFETY: nvcc's own code registers it.
        let containers = unsafe { fatbin::containers(wrapper) };
        for container in containers {
            let images = fatbin::images(&container);
            if images.ptx.is_empty() && images.machine.is_empty() {
                continue;
            }
            let number = self.modules.len();
            let module = self.module(number, &images);
            modules.push(number);
            self.modules.push(module);
        }
        self.registered.push(modules);
        self.registered.len() - 1
    }

    /// The text for the newest architecture that the device takes.
    fn module(&mut self, number: usize, images: &fatbin::Images) -> Module {
        let best = images.best(self.device.gpu().arch);
        let Some(text) = best else {
            let why = self.no_image(images);
            return Module {
                name: String::new(),
                program: Err(why),
            };
        };
        let name = self.report.keep(number, text);
        let source = Source::new(name.clone(), text.clone());
        let base = VARIABLES + number as u64 * MODULE_ROOM;
        let program = heist_ptx::parse(&source).and_then(|module| Program::based(module, base));
        let program = program.map_err(|found| {
            self.report.refused(&name, "", "as it was loaded", &found);
            "its PTX can't be run".to_owned()
        });
        if let Ok(program) = &program {
            for one in program.variables() {
                let mut bytes = one.init.to_vec();
                bytes.resize(one.size as usize, 0);
                // Constants of all modules lie at the same addresses: each launch has its own.
                if !one.constant {
                    let label = match number {
                        0 => one.name.to_owned(),
                        _ => format!("{} of module {number}", one.name),
                    };
                    self.heap.variable(&label, one.at, bytes);
                }
            }
        }
        Module { name, program }
    }

    fn no_image(&self, images: &fatbin::Images) -> String {
        let here = self.device.gpu().arch;
        let list = |names: Vec<String>| names.join(", ");
        if let Some(broken) = images.broken.first() {
            format!("the program's PTX can't be unpacked: {broken}")
        } else if images.ptx.is_empty() {
            let machine = images.machine.iter().map(|arch| format!("sm_{arch}"));
            format!(
                "the program has machine code for {} and no PTX: build it with \
                 `-gencode arch=compute_{2},code=compute_{2}` as well, where the device is {1}",
                list(machine.collect()),
                self.device,
                here.name()
                    .trim_start_matches("sm_")
                    .trim_end_matches(char::is_alphabetic),
            )
        } else {
            let have = images.ptx.iter().map(|text| said_target(text));
            format!(
                "the program has PTX for {}, which does not run on {} ({}): choose another with --device",
                list(have.collect()),
                self.device,
                here.name()
            )
        }
    }

    /// Notes a kernel of a registration.
    pub(crate) fn add_function(&mut self, handle: usize, host: *const c_void, name: String) {
        let modules = self.registered.get(handle).cloned().unwrap_or_default();
        let has = |module: &usize| match &self.modules[*module].program {
            Ok(program) => program.module().entries().any(|entry| entry.name == *name),
            Err(_) => false,
        };
        let Some(module) = modules
            .iter()
            .copied()
            .find(has)
            .or(modules.first().copied())
        else {
            return;
        };
        let function = Function {
            module,
            name,
            dynamic: 0,
        };
        self.functions.insert(host as usize, function);
    }

    /// Takes device code that the program loads itself; its handle, or an error and what is wrong.
    pub(crate) fn load(&mut self, images: &fatbin::Images) -> Result<usize, (c_int, String)> {
        let number = self.modules.len();
        let has_text = images.best(self.device.gpu().arch).is_some();
        let module = self.module(number, images);
        let why = module.program.as_ref().err().cloned();
        self.modules.push(module);
        if let Some(why) = why {
            if !has_text {
                self.report
                    .remark(&format!("a module can't be loaded: {why}"));
            }
            return Err((if has_text { INVALID_PTX } else { NO_IMAGE }, why));
        }
        let handle = self.handle();
        self.loaded.insert(handle, number);
        Ok(handle)
    }

    /// Forgets a module that the program has loaded, with its kernels and its variables.
    pub(crate) fn unload(&mut self, handle: usize) -> Result<(), c_int> {
        let number = self.loaded.remove(&handle).ok_or(INVALID_HANDLE)?;
        self.functions
            .retain(|_, function| function.module != number);
        let start = VARIABLES + number as u64 * MODULE_ROOM;
        for at in self.heap.starts_in(start, MODULE_ROOM as usize) {
            self.heap.free(at);
        }
        Ok(())
    }

    fn loaded(&self, handle: usize) -> Result<(usize, &Program), c_int> {
        let number = *self.loaded.get(&handle).ok_or(INVALID_HANDLE)?;
        let program = self.modules[number].program.as_ref();
        Ok((number, program.map_err(|_| NO_IMAGE)?))
    }

    /// The names of the kernels of a module that the program has loaded.
    pub(crate) fn kernels_of(&self, handle: usize) -> Result<Vec<String>, c_int> {
        let entries = self.loaded(handle)?.1.module().entries();
        Ok(entries.map(|entry| entry.name.to_string()).collect())
    }

    /// The handle of a kernel of a module that the program has loaded.
    pub(crate) fn function_of(&mut self, handle: usize, name: &str) -> Result<usize, c_int> {
        let (module, program) = self.loaded(handle)?;
        if !program.module().entries().any(|entry| entry.name == *name) {
            return Err(NOT_FOUND);
        }
        let mut known = self.functions.iter();
        let known = known.find(|(_, one)| one.module == module && one.name == name);
        if let Some((&known, _)) = known {
            return Ok(known);
        }
        let function = Function {
            module,
            name: name.to_owned(),
            dynamic: 0,
        };
        let made = self.handle();
        self.functions.insert(made, function);
        Ok(made)
    }

    /// The module that a kernel is of.
    pub(crate) fn module_of(&self, function: usize) -> Result<usize, c_int> {
        let function = self.functions.get(&function).ok_or(INVALID_HANDLE)?;
        let mut all = self.loaded.iter();
        let found = all.find(|(_, number)| **number == function.module);
        found.map(|(handle, _)| *handle).ok_or(INVALID_HANDLE)
    }

    /// The address and the bytes of a variable of a module that the program has loaded.
    pub(crate) fn variable_of(
        &mut self,
        handle: usize,
        name: &str,
    ) -> Result<Option<(u64, u64)>, c_int> {
        let (number, _) = self.loaded(handle)?;
        Ok(self.variable(number, name))
    }

    /// Where a variable of a module is, and how long it is.
    fn variable(&mut self, number: usize, name: &str) -> Option<(u64, u64)> {
        let program = self.modules[number].program.as_ref().ok()?;
        let one = program.variables().find(|one| one.name == name)?;
        if !one.constant {
            return Some((one.at, one.size));
        }
        // Constants are kept under an address of their own.
        let at = VARIABLES + number as u64 * MODULE_ROOM + MODULE_ROOM / 2 + (one.at & 0xffff_ffff);
        if self.heap.place(at).is_none() {
            let mut bytes = one.init.to_vec();
            bytes.resize(one.size as usize, 0);
            let label = format!("{name} (constant, module {number})");
            self.heap.variable(&label, at, bytes);
        }
        Some((at, one.size))
    }

    /// Notes a variable of a registration; its address and its bytes.
    pub(crate) fn add_variable(
        &mut self,
        handle: usize,
        host: *const c_void,
        name: &str,
    ) -> Option<(u64, u64)> {
        let modules = self.registered.get(handle).cloned().unwrap_or_default();
        let found = modules
            .into_iter()
            .filter_map(|number| self.variable(number, name));
        let found = found.last();
        let found = found?;
        self.symbols.insert(host as usize, found);
        Some(found)
    }

    /// The address on the device of a variable, and its bytes.
    pub(crate) fn symbol(&self, host: *const c_void) -> Result<(u64, u64), c_int> {
        let known = self.symbols.get(&(host as usize)).copied();
        known.ok_or(INVALID_SYMBOL)
    }

    /// The kernel behind a host function.
    fn function(&self, host: usize) -> Result<&Function, c_int> {
        self.functions.get(&host).ok_or(INVALID_FUNCTION)
    }

    /// What blocks of a kernel need of the device, and how much dynamic shared memory it was allowed.
    pub(crate) fn needs(
        &self,
        host: *const c_void,
        threads: u32,
        dynamic: u32,
    ) -> Result<(Needs, u32), c_int> {
        let function = self.function(host.addr())?;
        let program = self.modules[function.module].program.as_ref();
        let program = program.map_err(|_| NO_IMAGE)?;
        let needs = program.needs(&self.device, &function.name, threads, dynamic);
        Ok((needs.map_err(|_| INVALID_FUNCTION)?, function.dynamic))
    }

    /// Lets a kernel have more dynamic shared memory.
    pub(crate) fn allow_dynamic(&mut self, host: *const c_void, bytes: u32) -> Result<(), c_int> {
        let most = self.device.gpu().arch.limits().shared_opt_in;
        let function = self.functions.get_mut(&(host as usize));
        let function = function.ok_or(INVALID_FUNCTION)?;
        if bytes > most {
            return Err(INVALID_VALUE);
        }
        function.dynamic = bytes;
        Ok(())
    }

    /// The parameters of a kernel: where each is in the list of arguments, and its bytes.
    pub(crate) fn parameters(&self, host: *const c_void) -> Result<Vec<(usize, usize)>, c_int> {
        let function = self.function(host.addr())?;
        let Ok(program) = &self.modules[function.module].program else {
            return Ok(Vec::new());
        };
        let mut entries = program.module().entries();
        let entry = entries.find(|entry| entry.name == *function.name);
        let params = entry.map_or(&[][..], |entry| &entry.params);
        let mut end = 0usize;
        let place = |param: &heist_ptx::Variable| {
            let len = param.size().unwrap_or(0) as usize;
            let at = end.next_multiple_of(param.alignment().max(1) as usize);
            end = at + len;
            (at, len)
        };
        Ok(params.iter().map(place).collect())
    }

    /// The name of a kernel.
    pub(crate) fn name_of(&self, host: *const c_void) -> Result<&str, c_int> {
        Ok(&self.function(host.addr())?.name)
    }

    /// The arguments of a launch from one buffer, laid out as the parameters are.
    pub(crate) fn unpacked(
        &self,
        host: *const c_void,
        buffer: &[u8],
    ) -> Result<Vec<Vec<u8>>, c_int> {
        let one = |(at, len): (usize, usize)| buffer.get(at..at + len).map(<[u8]>::to_vec);
        let all: Option<Vec<_>> = self.parameters(host)?.into_iter().map(one).collect();
        all.ok_or(INVALID_VALUE)
    }

    /// The arguments of a launch by the kernel's own list: as many bytes as each parameter has.
    pub(crate) fn arguments(
        &self,
        host: *const c_void,
        from: *const *const c_void,
    ) -> Result<Vec<Vec<u8>>, c_int> {
        let value = |(at, (_, len)): (usize, (usize, usize))| {
            let at = raw::element(from, at).unwrap_or(std::ptr::null());
            raw::bytes(at, len)
        };
        let params = self.parameters(host)?;
        Ok(params.into_iter().enumerate().map(value).collect())
    }

    /// Runs a kernel in a stream, at once.
    pub(crate) fn launch(&mut self, wish: &Wish, stream: usize) -> Result<(), c_int> {
        let function = self.function(wish.function)?;
        let (number, kernel, allowed) = (function.module, function.name.clone(), function.dynamic);
        let shape = format!("<<<({}), ({})>>>", wish.grid, wish.block);
        let usual = self.device.gpu().arch.limits().shared_static;
        if wish.shared as u64 > u64::from(usual.max(allowed)) {
            let text = format!(
                "{} bytes of dynamic shared memory are asked for, and {} are allowed: call \
                 cudaFuncSetAttribute with cudaFuncAttributeMaxDynamicSharedMemorySize first",
                wish.shared,
                usual.max(allowed)
            );
            let found = Diagnostic::error(rule::DYNAMIC_SHARED, heist_ptx::Span::NONE, text);
            let name = self.modules[number].name.clone();
            self.report.refused(&name, &kernel, &shape, &[found]);
            return Err(INVALID_VALUE);
        }
        let module = &self.modules[number];
        let (name, program) = match &module.program {
            Ok(program) => (module.name.clone(), program),
            Err(why) => {
                let text = format!("`{kernel}` can't run: {why}");
                self.report.remark(&text);
                return Err(NO_IMAGE);
            }
        };
        let tracks = self.stream_count > 0 || self.heap.has_shared();
        let what = format!("`{kernel}`");
        let mut before = self.heap.lend();
        constants(&mut before, program, number);
        if let Some(given) = self.repeats.find(wish, &before)
            && (!tracks || given.touched.is_some())
        {
            // What was found in it is told already.
            let step = self.begin(stream);
            let touched = given.touched.clone().filter(|_| tracks);
            let found = self.order_launch(&step, &what, touched.as_deref());
            self.take(&name, &kernel, &shape, given, true, found.as_slice());
            return Ok(());
        }
        let arguments = Arguments {
            placed: before,
            foreign: self.heap.foreign(),
            maps: self.maps.for_launch(),
            ..Arguments::new(wish.arguments.iter().cloned().map(Arg::Bytes))
        };
        let mut launch = Launch::new(wish.grid, wish.block).dynamic_shared(wish.shared as u32);
        if let Some(cluster) = wish.cluster {
            launch = launch.cluster(cluster);
        }
        let options = Options {
            cooperative: wish.cooperative,
            budget: budget(),
            touched: tracks,
            ..Options::default()
        };
        let ran = program.run(&self.device, &kernel, &launch, &arguments, &options);
        match ran {
            Ok(mut report) => {
                let touched: Option<Arc<[Touched]>> = tracks.then(|| report.touched.into());
                let step = self.begin(stream);
                let clash = self.order_launch(&step, &what, touched.as_deref());
                report.diagnostics.extend(clash);
                let trace = report.outcome.trace.as_ref();
                self.sticky = stays(&report.diagnostics);
                let given = Given {
                    ns: trace.map_or(0.0, |trace| trace.makespan().ns()),
                    placed: report.placed,
                    printed: report.printed,
                    touched,
                };
                if self.sticky == 0 {
                    self.repeats.remember(wish, arguments.placed, given.clone());
                }
                let found = &report.diagnostics[..];
                self.take(&name, &kernel, &shape, given, false, found);
                Ok(())
            }
            Err(found) => {
                self.report.refused(&name, &kernel, &shape, &found);
                // The functions with which device code launches kernels begin so.
                if found.iter().any(|one| one.message.contains("`__cudaCDP")) {
                    self.report.remark(&format!(
                        "`{kernel}` launches kernels by itself (dynamic parallelism), which is \
                         not there: launch them from the host in a test build"
                    ));
                }
                Err(refusal(&found))
            }
        }
    }

    /// Leaves everything as a launch gave it: one of now with what was found in it, or an earlier one
    /// that this one repeats.
    fn take(
        &mut self,
        module: &str,
        kernel: &str,
        shape: &str,
        given: Given,
        repeated: bool,
        found: &[Diagnostic],
    ) {
        self.now_ns += given.ns.max(1.0);
        self.heap.give_back(given.placed);
        print(&given.printed);
        let ran = Ran {
            module,
            kernel,
            shape,
            ns: given.ns,
            repeated,
        };
        self.report.launch(&ran, found);
    }

    /// Reports leaked memory at the end.
    pub(crate) fn end(&mut self) {
        self.guard.open();
        let (count, bytes) = self.heap.leaked();
        self.report.line(&json!({ "leaked": [count, bytes] }));
    }
}

/// The architecture that a PTX text is for, as it says itself; it may be none that is known here.
fn said_target(text: &str) -> String {
    let said = text
        .lines()
        .find_map(|line| line.trim().strip_prefix(".target"));
    let word = said.and_then(|rest| rest.split([',', ' ']).find(|word| !word.is_empty()));
    word.unwrap_or("no target that it says").to_owned()
}

/// Places a module's constants at the address that its kernels use, and removes those of other
/// modules.
fn constants(placed: &mut Vec<heist_launch::Placed>, program: &Program, number: usize) {
    let start = VARIABLES + number as u64 * MODULE_ROOM + MODULE_ROOM / 2;
    let of = |at: u64| {
        program
            .variables()
            .find(|one| one.constant && start + (one.at & 0xffff_ffff) == at)
    };
    let half = |at: u64| {
        (VARIABLES..VARIABLES + 4096 * MODULE_ROOM).contains(&at)
            && (at - VARIABLES) % MODULE_ROOM >= MODULE_ROOM / 2
    };
    for one in placed.iter_mut() {
        if let Some(constant) = of(one.at) {
            one.at = constant.at;
        }
    }
    placed.retain(|one| !half(one.at));
}

fn budget() -> Budget {
    let seconds = std::env::var("HEIST_CUDA_TIMEOUT").ok();
    let seconds = seconds.and_then(|text| text.parse::<u64>().ok());
    Budget {
        wall_ms: seconds.map_or(600_000, |seconds| seconds.saturating_mul(1000)),
        ..Budget::default()
    }
}

/// Prints through the program's own standard output, so that lines keep their order.
fn print(text: &str) {
    if !text.is_empty() {
        // SAFETY: a format of one string of a given length, which is there.
        unsafe { libc::printf(c"%.*s".as_ptr(), text.len() as c_int, text.as_ptr()) };
    }
}

/// The sticky error that a device would have.
fn stays(found: &[Diagnostic]) -> c_int {
    let has = |codes: &[heist_ptx::Code]| found.iter().any(|one| codes.contains(&one.code));
    if has(&[rule::ASSERTION]) {
        ASSERT
    } else if has(&[rule::TIME_BUDGET, rule::DEADLOCK, rule::LIVELOCK]) {
        LAUNCH_FAILURE
    } else {
        0
    }
}

/// The error of a launch that the device does not take.
fn refusal(found: &[Diagnostic]) -> c_int {
    let shapes = [
        rule::BLOCK_SIZE,
        rule::GRID_SIZE,
        rule::CLUSTER_SIZE,
        rule::GRID_CLUSTER,
    ];
    if found.iter().any(|one| shapes.contains(&one.code)) {
        INVALID_CONFIGURATION
    } else {
        INVALID_VALUE
    }
}
