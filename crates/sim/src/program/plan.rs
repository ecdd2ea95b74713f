//! Whether a device takes a launch, and how it fits.

use crate::code::{Code as Decoded, Shape};
use crate::device::Device;
use crate::options::Options;
use heist_launch::{Dim3, Launch};
use heist_ptx::arch::{Arch, Footprint, Limits};
use heist_ptx::{Code, Diagnostic, Module, Span, rule};
use std::ops::Range;

/// The blocks of a grid that the simulator takes.
const MOST_BLOCKS: u64 = 1 << 26;

/// Bytes that a block takes in the timeline, while that is made.
const TRACE_BYTES: u64 =
    (size_of::<heist_launch::BlockSpan>() + size_of::<crate::engine::replay::Launched>()) as u64;
/// Bytes of parameters that are kept; no device takes as many.
const MOST_PARAM_BYTES: u64 = 1 << 20;

/// A launch that the device takes.
pub(crate) struct Plan {
    pub(crate) cluster: Dim3,
    pub(crate) shared: u32,
    /// Blocks on an SM at a time.
    pub(crate) residency: u32,
    /// What a block takes.
    pub(crate) block: Footprint,
}

impl Plan {
    /// Fails with every limit of the device that the launch breaks, each at the kernel's name.
    pub(crate) fn of(
        module: &Module,
        entry: &str,
        device: &Device,
        code: &Decoded,
        launch: &Launch,
        options: &Options,
    ) -> Result<Plan, Vec<Diagnostic>> {
        let mut kernels = module.entries();
        let kernel = kernels.find(|kernel| kernel.name == entry);
        let cluster = launch
            .cluster
            .or_else(|| code.shape.required_cluster.map(Dim3::from))
            .unwrap_or(Dim3::ONE);
        let mut check = Check {
            kernel: kernel.map_or(Span::NONE, |kernel| kernel.span),
            device,
            launch,
            cluster,
            errors: Vec::new(),
        };
        check.target(module);
        check.block();
        check.grid();
        check.cluster();
        check.directives(&code.shape);
        let shared = check.shared(&code.shape);
        check.local(code);
        // An invalid launch has no residency.
        if !check.errors.is_empty() {
            return Err(check.errors);
        }
        let block = footprint(
            &code.shape,
            check.limits(),
            launch.block.count() as u32,
            shared,
        );
        let residency = check.residency(block, options);
        check.memory(code, residency, options);
        if check.errors.is_empty() {
            Ok(Plan {
                cluster,
                shared,
                residency,
                block,
            })
        } else {
            Err(check.errors)
        }
    }
}

/// The bytes of shared memory of a block: the variables, and behind them what the launch adds.
pub(crate) fn shared_bytes(shape: &Shape, limits: Limits, dynamic: u32) -> u32 {
    if dynamic == 0 {
        return shape.static_shared;
    }
    let before = limits.shared_start;
    let all = before.saturating_add(shape.static_shared);
    let aligned = all.checked_next_multiple_of(shape.dynamic_align.max(16));
    let start = aligned.map_or(u32::MAX, |aligned| aligned - before);
    start.saturating_add(dynamic)
}

/// A block's shared memory in its stretch of the window.
pub(crate) struct SharedLayout {
    pub(crate) start: u32,
    pub(crate) len: u32,
    /// What of it is reserved for the system, counted from its start; nothing where no instruction can name it.
    pub(crate) reserved: Range<u32>,
}

/// Where `shared` bytes of a block lie. What is reserved lies before them from compute capability 9.0 on, and elsewhere
/// before that: here behind them.
pub(crate) fn shared_layout(shape: &Shape, limits: Limits, shared: u32) -> SharedLayout {
    let (start, size) = (limits.shared_start, limits.shared_reserved);
    if !shape.uses_reserved_shared {
        return SharedLayout {
            start,
            len: shared,
            reserved: 0..0,
        };
    }
    let at = match start {
        0 => shared.next_multiple_of(limits.shared_unit),
        _ => 0,
    };
    SharedLayout {
        start: 0,
        len: (start + shared).max(at + size),
        reserved: at..at + size,
    }
}

/// What a block takes of its SM.
pub(crate) fn footprint(shape: &Shape, limits: Limits, threads: u32, shared: u32) -> Footprint {
    // What ptxas would allocate is known where registers are moved: all that a bound allows. Else
    // `.maxnreg` is taken, or, since a kernel declares far more than what is live, a third of that;
    // never more than fits.
    let fits = limits.registers_for(threads, 1).max(16);
    let bound = shape.most_registers(limits);
    let most = fits.min(bound.unwrap_or(fits)).max(16);
    let registers = match bound {
        Some(bound) if shape.moves_registers => bound,
        _ if shape.max_registers.is_some() => most,
        _ => (shape.register_words / 3).clamp(16, most),
    };
    Footprint {
        threads,
        registers,
        shared,
    }
}

/// A launch while it is validated against a device.
struct Check<'c> {
    kernel: Span,
    device: &'c Device,
    launch: &'c Launch,
    cluster: Dim3,
    errors: Vec<Diagnostic>,
}

impl Check<'_> {
    fn limits(&self) -> Limits {
        self.device.gpu().arch.limits()
    }

    fn refuse(&mut self, code: Code, message: String) {
        let told = Diagnostic::error(code, self.kernel, message);
        self.errors.push(match help(code) {
            Some(help) => told.help(help),
            None => told,
        });
    }

    /// Whether the code is for this device.
    fn target(&mut self, module: &Module) {
        let (device, target) = (self.device, &module.target);
        match Arch::parse(&target.arch) {
            Some(arch) if arch.runs_on(device.gpu().arch) => {}
            Some(arch) => self.errors.push(
                Diagnostic::error(
                    rule::WRONG_DEVICE,
                    target.span,
                    format!(
                        "code for {} does not run on {device}, which is {}",
                        arch.name(),
                        device.gpu().arch.name()
                    ),
                )
                .help("choose a device of that architecture, or build for this one"),
            ),
            None => {}
        }
    }

    fn block(&mut self) {
        let (device, limits) = (self.device, self.limits());
        let threads = self.launch.block.count();
        if threads == 0 || threads > u64::from(limits.threads_per_block) {
            self.refuse(
                rule::BLOCK_SIZE,
                format!(
                    "a block of {threads} threads; {device} takes 1 to {}",
                    limits.threads_per_block
                ),
            );
        }
        for ((axis, have), most) in axes(self.launch.block).zip(limits.block) {
            if have > most {
                self.refuse(
                    rule::BLOCK_SIZE,
                    format!("a block has {have} threads along {axis}; the most is {most}"),
                );
            }
        }
    }

    fn grid(&mut self) {
        for ((axis, have), most) in axes(self.launch.grid).zip(self.limits().grid) {
            if have == 0 || have > most {
                self.refuse(
                    rule::GRID_SIZE,
                    format!("a grid has {have} blocks along {axis}; 1 to {most} are allowed"),
                );
            }
        }
        let blocks = self.launch.grid.count();
        if blocks > MOST_BLOCKS {
            self.refuse(
                rule::GRID_SIZE,
                format!("{blocks} blocks are more than the simulator takes"),
            );
        }
    }

    fn cluster(&mut self) {
        let (device, cluster, grid) = (self.device, self.cluster, self.launch.grid);
        let most = self.limits().cluster_max.max(1);
        let size = cluster.count();
        let divides = |(grid, cluster): (u32, u32)| grid.is_multiple_of(cluster);
        if size == 0 || size > u64::from(most) {
            self.refuse(
                rule::CLUSTER_SIZE,
                format!("a cluster of {size} blocks; {device} takes up to {most}"),
            );
        } else if !grid
            .to_array()
            .into_iter()
            .zip(cluster.to_array())
            .all(divides)
        {
            self.refuse(
                rule::GRID_CLUSTER,
                format!("a grid of ({grid}) blocks is not a multiple of the cluster ({cluster})"),
            );
        }
    }

    /// What the kernel says about its own launch.
    fn directives(&mut self, shape: &Shape) {
        let (block, cluster) = (self.launch.block, self.cluster);
        if let Some(required) = shape.required_block
            && Dim3::from(required) != block
        {
            self.refuse(
                rule::LAUNCH_CONTRADICTION,
                format!(
                    "the kernel requires blocks of ({}) threads, and is launched with ({block})",
                    Dim3::from(required)
                ),
            );
        }
        if let Some(most) = shape.max_block
            && block.count() > Dim3::from(most).count()
        {
            self.refuse(
                rule::LAUNCH_CONTRADICTION,
                format!(
                    "the kernel takes at most {} threads a block, and is launched with {}",
                    Dim3::from(most).count(),
                    block.count()
                ),
            );
        }
        if let Some(required) = shape.required_cluster
            && Dim3::from(required) != cluster
        {
            self.refuse(
                rule::LAUNCH_CONTRADICTION,
                format!(
                    "the kernel requires clusters of ({}) blocks, and is launched with ({cluster})",
                    Dim3::from(required)
                ),
            );
        }
    }

    /// The bytes of shared memory of a block.
    fn shared(&mut self, shape: &Shape) -> u32 {
        let (device, limits) = (self.device, self.limits());
        let fixed = shape.static_shared;
        let shared = shared_bytes(shape, limits, self.launch.dynamic_shared);
        if fixed > limits.shared_static {
            self.refuse(
                rule::STATIC_SHARED,
                format!(
                    "{fixed} bytes of static shared memory; {} is the most, and the rest must be dynamic",
                    limits.shared_static
                ),
            );
        } else if shared > limits.shared_opt_in {
            self.refuse(
                rule::DYNAMIC_SHARED,
                format!(
                    "{shared} bytes of shared memory a block; {device} has {}",
                    limits.shared_opt_in
                ),
            );
        }
        shared
    }

    /// What the kernel's own frame takes of a thread's local memory.
    fn local(&mut self, code: &Decoded) {
        let most = self.limits().local_bytes;
        let frame = code.functions.first().map_or(0, |kernel| kernel.frame);
        if frame > most {
            self.refuse(
                rule::LOCAL_LIMIT,
                format!("{frame} bytes of local memory a thread; {most} is the most"),
            );
        }
    }

    /// The blocks that an SM holds at a time.
    fn residency(&mut self, block: Footprint, options: &Options) -> u32 {
        let (device, limits) = (self.device, self.limits());
        let residency = limits.residency(block);
        if residency.blocks == 0 {
            self.errors.push(Diagnostic::error(
                rule::REGISTER_LIMIT,
                self.kernel,
                format!(
                    "not even one block fits on an SM of {device}: {:?} are the limit",
                    residency.limiter
                ),
            ));
            return 0;
        }
        let blocks = self.launch.grid.count();
        let resident = u64::from(residency.blocks) * u64::from(device.gpu().sms);
        if options.cooperative && blocks > resident {
            self.errors.push(
                Diagnostic::error(
                    rule::GRID_SIZE,
                    self.kernel,
                    format!(
                        "a cooperative launch of {blocks} blocks, of which {device} holds {resident} at once"
                    ),
                )
                .help("launch at most as many blocks as are resident, and let each do more"),
            );
        }
        residency.blocks
    }

    /// Whether the registers and stacks of the resident threads fit in the budget, and what
    /// is kept of each block.
    fn memory(&mut self, code: &Decoded, residency: u32, options: &Options) {
        let resident = u64::from(residency) * u64::from(self.device.gpu().sms);
        let blocks = self.launch.grid.count().min(resident);
        let each = code.functions.first().map_or(0, |function| {
            u64::from(function.rows) * 4 + u64::from(function.frame)
        });
        let threads = (blocks * self.launch.block.count()).saturating_mul(each);
        let trace = self.launch.grid.count() * TRACE_BYTES;
        let params = u64::from(code.shape.param_bytes);
        let budget = options.budget.memory;
        let what = if threads > budget {
            format!("the resident threads need {threads} bytes")
        } else if params > MOST_PARAM_BYTES {
            format!("the parameters take {params} bytes")
        } else if trace > budget {
            format!(
                "the timeline of {} blocks takes {trace} bytes",
                self.launch.grid
            )
        } else {
            return;
        };
        let message = format!("{what}, and the budget is {budget}");
        self.errors
            .push(Diagnostic::error(rule::MEMORY_BUDGET, self.kernel, message));
    }
}

fn axes(shape: Dim3) -> impl Iterator<Item = (&'static str, u32)> {
    ["x", "y", "z"].into_iter().zip(shape.to_array())
}

/// What to do about a launch that is refused.
fn help(code: Code) -> Option<&'static str> {
    Some(match code {
        rule::BLOCK_SIZE => "launch more blocks of fewer threads, or let each thread do more",
        rule::GRID_SIZE => {
            "fold y and z, which end at 65535, into x; a grid without blocks runs nothing"
        }
        rule::CLUSTER_SIZE => {
            "clusters of up to 8 blocks run on every GPU from sm_90 on, and on no older one"
        }
        rule::GRID_CLUSTER => {
            "round the grid up to whole clusters, and let the blocks that are too many do nothing"
        }
        rule::LAUNCH_CONTRADICTION => {
            "launch it as its directives say (`.reqntid`, `.maxntid`, `.reqnctapercluster`), or change them"
        }
        rule::STATIC_SHARED => {
            "declare the array `.extern .shared` without a size, and give the bytes with the launch"
        }
        rule::LOCAL_LIMIT => {
            "keep large arrays in global memory, a slice for each thread, or let the block share one"
        }
        rule::DYNAMIC_SHARED => "use smaller tiles, or fewer stages",
        _ => return None,
    })
}
