//! Whether a device takes a launch, and how it fits.

use crate::code::{Code as Decoded, Shape};
use crate::device::Device;
use crate::options::Options;
use heist_launch::{Dim3, Launch};
use heist_ptx::arch::{Arch, Footprint};
use heist_ptx::{Code, Diagnostic, Module, Span, rule};

/// A launch that the device takes.
pub(crate) struct Plan {
    pub(crate) cluster: Dim3,
    pub(crate) shared: u32,
    /// Blocks on an SM at a time.
    pub(crate) residency: u32,
}

impl Plan {
    /// Fails with everything that the device has against the launch, each at the
    /// kernel's name.
    pub(crate) fn of(
        module: &Module,
        entry: &str,
        device: &Device,
        code: &Decoded,
        launch: &Launch,
        options: &Options,
    ) -> Result<Plan, Vec<Diagnostic>> {
        let mut errors = Vec::new();
        let limits = device.gpu().arch.limits();
        let target = &module.target;
        let mut kernels = module.entries();
        let kernel = kernels.find(|kernel| kernel.name == entry);
        let kernel = kernel.map_or(Span::NONE, |kernel| kernel.span);
        match Arch::parse(&target.arch) {
            Some(arch) if arch.runs_on(device.gpu().arch) => {}
            Some(arch) => errors.push(
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
        let cluster = launch
            .cluster
            .or_else(|| code.shape.required_cluster.map(Dim3::from))
            .unwrap_or(Dim3::ONE);
        let mut bad = |code, message: String| {
            let told = Diagnostic::error(code, kernel, message);
            errors.push(match help(code) {
                Some(help) => told.help(help),
                None => told,
            });
        };
        let threads = launch.block.count();
        if threads == 0 || threads > u64::from(limits.threads_per_block) {
            bad(
                rule::BLOCK_SIZE,
                format!(
                    "a block of {threads} threads; {device} takes 1 to {}",
                    limits.threads_per_block
                ),
            );
        }
        let axes = |shape: Dim3| ["x", "y", "z"].into_iter().zip(shape.to_array());
        for ((axis, have), most) in axes(launch.block).zip(limits.block) {
            if have > most {
                bad(
                    rule::BLOCK_SIZE,
                    format!("a block has {have} threads along {axis}; the most is {most}"),
                );
            }
        }
        for ((axis, have), most) in axes(launch.grid).zip(limits.grid) {
            if have == 0 || have > most {
                bad(
                    rule::GRID_SIZE,
                    format!("a grid has {have} blocks along {axis}; 1 to {most} are allowed"),
                );
            }
        }
        if launch.grid.count() > 1 << 26 {
            bad(
                rule::GRID_SIZE,
                format!(
                    "{} blocks are more than the simulator takes",
                    launch.grid.count()
                ),
            );
        }
        let size = cluster.count();
        if size == 0 || size > u64::from(limits.cluster_max.max(1)) {
            bad(
                rule::CLUSTER_SIZE,
                format!(
                    "a cluster of {size} blocks; {device} takes up to {}",
                    limits.cluster_max.max(1)
                ),
            );
        } else if launch
            .grid
            .to_array()
            .into_iter()
            .zip(cluster.to_array())
            .any(|(grid, cluster)| !grid.is_multiple_of(cluster))
        {
            bad(
                rule::GRID_CLUSTER,
                format!(
                    "a grid of ({}) blocks is not a multiple of the cluster ({cluster})",
                    launch.grid
                ),
            );
        }
        Plan::directives(&code.shape, launch, cluster, &mut bad);
        let dynamic_start = code.shape.static_shared.next_multiple_of(16);
        let shared = if launch.dynamic_shared > 0 {
            dynamic_start.saturating_add(launch.dynamic_shared)
        } else {
            code.shape.static_shared
        };
        if code.shape.static_shared > limits.shared_static {
            bad(
                rule::STATIC_SHARED,
                format!(
                    "{} bytes of static shared memory; {} is the most, and the rest must be dynamic",
                    code.shape.static_shared, limits.shared_static
                ),
            );
        } else if shared > limits.shared_opt_in {
            bad(
                rule::DYNAMIC_SHARED,
                format!(
                    "{shared} bytes of shared memory a block; {device} has {}",
                    limits.shared_opt_in
                ),
            );
        }
        // What ptxas would allocate is not known. What the kernel declares is far
        // more than what is live, so it counts a third, and never more than fits.
        let registers = code.shape.max_registers.unwrap_or_else(|| {
            let fits = limits.registers_per_block / (threads.max(1) as u32).next_multiple_of(128);
            (code.shape.register_words / 3).clamp(16, 255.min(fits / 8 * 8).max(16))
        });
        let residency = limits.residency(Footprint {
            threads: threads as u32,
            registers,
            shared,
        });
        if errors.is_empty() && residency.blocks == 0 {
            errors.push(Diagnostic::error(
                rule::REGISTER_LIMIT,
                kernel,
                format!(
                    "not even one block fits on an SM of {device}: {:?} are the limit",
                    residency.limiter
                ),
            ));
        }
        let resident = u64::from(residency.blocks) * u64::from(device.gpu().sms);
        if errors.is_empty() && options.cooperative && launch.grid.count() > resident {
            errors.push(
                Diagnostic::error(
                    rule::GRID_SIZE,
                    kernel,
                    format!(
                        "a cooperative launch of {} blocks, of which {device} holds {resident} at once",
                        launch.grid.count()
                    ),
                )
                .help("launch at most as many blocks as are resident, and let each do more"),
            );
        }
        let memory = launch
            .grid
            .count()
            .min(u64::from(residency.blocks * device.gpu().sms))
            * threads
            * u64::from(code.functions.first().map_or(0, |f| f.rows * 4 + f.frame));
        if memory > options.budget.memory {
            errors.push(Diagnostic::error(
                rule::MEMORY_BUDGET,
                kernel,
                format!(
                    "the resident threads need {memory} bytes, and the budget is {}",
                    options.budget.memory
                ),
            ));
        }
        if errors.is_empty() {
            Ok(Plan {
                cluster,
                shared,
                residency: residency.blocks,
            })
        } else {
            Err(errors)
        }
    }

    /// What the kernel says about its own launch.
    fn directives(
        shape: &Shape,
        launch: &Launch,
        cluster: Dim3,
        bad: &mut impl FnMut(Code, String),
    ) {
        let block = launch.block;
        if let Some(required) = shape.required_block
            && Dim3::from(required) != block
        {
            bad(
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
            bad(
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
            bad(
                rule::LAUNCH_CONTRADICTION,
                format!(
                    "the kernel requires clusters of ({}) blocks, and is launched with ({cluster})",
                    Dim3::from(required)
                ),
            );
        }
    }
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
        rule::DYNAMIC_SHARED => "use smaller tiles, or fewer stages",
        _ => return None,
    })
}
