//! The state of a program's GPU: modules, kernels, variables, memory and errors.

mod code;
mod streams;

use crate::dependence::Dependence;
use crate::graph::Graphs;
use crate::guard::Guard;
use crate::heap::Heap;
use crate::image::Array;
use crate::maps::Maps;
use crate::objects::{Contexts, Link, Physical, used_by_runtime};
use crate::operation::Wish;
use crate::order::Order;
use crate::repeat::{Given, Repeats};
use crate::report::{Ran, ReportFile};
use crate::status::{
    ASSERT, INVALID_CONFIGURATION, INVALID_VALUE, LAUNCH_FAILURE, NO_IMAGE, NOT_SUPPORTED, UNKNOWN,
};
use heist_launch::{Arg, Arguments, Launch};
use heist_ptx::{Diagnostic, rule};
use heist_sim::{Budget, Device, Options, Program, Touched};
use serde_json::json;
use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::ffi::c_int;
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
        let depends = Dependence::of(program.module(), &kernel, wish.early);
        let tracks = self.tracks() || depends != Dependence::default();
        let what = format!("`{kernel}`");
        let mut before = self.heap.lend();
        constants(&mut before, program, number);
        if let Some(given) = self.repeats.find(wish, &before)
            && (!tracks || given.touched.is_some())
        {
            // What was found in it is told already.
            let step = self.begin_launch(stream, depends);
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
                let step = self.begin_launch(stream, depends);
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
