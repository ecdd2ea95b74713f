//! The errors of this crate, each with what to do.

use crate::capability::{Capability, CudaVersion};
use crate::fault::Fault;
use crate::raw::sys::code;
use crate::status::Status;
use heist_launch::{BindError, LaunchError};
use heist_ptx::{Code, Diagnostic, Span, Version, rule};
use thiserror::Error;

/// The error type of this crate.
#[derive(Clone, Debug, Error)]
pub enum GpuError {
    /// No driver library.
    #[error(
        "there is no NVIDIA driver on this machine (libcuda.so.1 can't be loaded)\n  \
         help: install the driver for your GPU, or use a simulated one, such as `--device sim:h200`"
    )]
    NoDriver,
    /// A driver that does not start.
    #[error(
        "the NVIDIA driver is here and does not start: {status}\n  \
         help: `nvidia-smi` shows what the driver itself says; a simulated GPU, such as `--device sim:h200`, needs none"
    )]
    Start {
        /// What it said.
        status: Status,
    },
    /// A driver and no GPU.
    #[error(
        "the NVIDIA driver is here and knows no GPU\n  \
         help: CUDA_VISIBLE_DEVICES may hide it; a simulated GPU, such as `--device sim:h200`, needs none"
    )]
    NoDevice,
    /// A number that no device has.
    #[error(
        "there is no GPU number {ordinal}: there are {count}, counted from 0; or use `--device sim:h200`"
    )]
    NoSuchDevice {
        /// What was asked for.
        ordinal: u32,
        /// How many there are.
        count: u32,
    },
    /// A driver from before the calls that are needed.
    #[error(
        "the NVIDIA driver offers CUDA {version}, and {oldest} is needed\n  \
         help: install a newer driver, or use a simulated GPU, such as `--device sim:h200`"
    )]
    OldDriver {
        /// What is there.
        version: CudaVersion,
        /// What is needed.
        oldest: CudaVersion,
    },
    /// PTX newer than the driver.
    #[error(
        "{module} says `.version {version}`, and the driver (CUDA {driver}) assembles PTX up to {newest}\n  \
         help: compile with an older toolkit or a lower `.version` if nothing in it is newer, or install a newer driver\n  \
         help: `--device sim:...` runs it as it is"
    )]
    PtxTooNew {
        /// The module.
        module: String,
        /// What it says.
        version: Version,
        /// The driver's version.
        driver: CudaVersion,
        /// What that takes.
        newest: Version,
    },
    /// PTX for another chip.
    #[error(
        "{module} can't run here: {why}\n  help: use a GPU that it is for, or `--device sim:...`, or emit it for {}",
        capability
    )]
    WrongTarget {
        /// The module.
        module: String,
        /// In which way.
        why: String,
        /// What this GPU is.
        capability: Capability,
    },
    /// The assembler in the driver refused.
    #[error(
        "the driver does not assemble {module}: {status}\n{}\n  help: `heist check {module}` says more",
        indented(log)
    )]
    Jit {
        /// The module.
        module: String,
        /// What the call said.
        status: Status,
        /// What the assembler said.
        log: String,
    },
    /// A text that can't be handed to the driver.
    #[error("{module} has a zero byte at {at}, and PTX is text")]
    ZeroByte {
        /// The module.
        module: String,
        /// Where.
        at: usize,
    },
    /// A name that the module does not have.
    #[error("{module} has no kernel `{kernel}`{}", known_kernels(known))]
    NoSuchKernel {
        /// The module.
        module: String,
        /// What was asked for.
        kernel: String,
        /// What there is.
        known: Vec<String>,
    },
    /// Arguments that do not fit the kernel.
    #[error("kernel `{kernel}`: {why}")]
    Arguments {
        /// The kernel.
        kernel: String,
        /// In which way.
        why: String,
    },
    /// A launch that the device can't do.
    #[error("kernel `{kernel}` can't be launched: {error}")]
    Launch {
        /// The kernel.
        kernel: String,
        /// Why.
        error: LaunchError,
    },
    /// A launch that the kernel's own directives forbid.
    #[error("kernel `{kernel}` can't be launched so: {why}")]
    Contradiction {
        /// The kernel.
        kernel: String,
        /// In which way.
        why: String,
    },
    /// Arguments that do not fit together.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// A launch that the driver refused.
    #[error("the driver refuses to launch {launch}: {}\n  driver: {status}{}", status.in_words(), note.as_ref().map(|n| format!("\n  {n}")).unwrap_or_default())]
    Refused {
        /// The launch, in words.
        launch: String,
        /// What it said.
        status: Status,
        /// What is known besides.
        note: Option<String>,
    },
    /// No memory.
    #[error("no room for {bytes} bytes on the GPU: {free} of {total} bytes are free")]
    OutOfMemory {
        /// What was asked for.
        bytes: u64,
        /// What is there.
        free: u64,
        /// What the device has.
        total: u64,
    },
    /// A copy or view beyond a buffer.
    #[error("a copy of {bytes} bytes at byte {offset} of a buffer of {len} bytes")]
    OutsideBuffer {
        /// From where.
        offset: usize,
        /// How many.
        bytes: usize,
        /// What there is.
        len: usize,
    },
    /// A kernel faulted.
    #[error("{0}")]
    Fault(Box<Fault>),
    /// A kernel faulted earlier, and its context is gone.
    #[error("the GPU context was lost to an earlier fault, and nothing more runs in it\n{0}")]
    Lost(Box<Fault>),
    /// A kernel that goes on and on.
    #[error(
        "{launch} did not end within {seconds} s on {device}\n  \
         it can't be stopped: the process must end for the GPU to be free again\n  next: {next}"
    )]
    Timeout {
        /// The launch, in words.
        launch: String,
        /// How long it was given.
        seconds: f64,
        /// The device.
        device: String,
        /// The command that says why.
        next: String,
    },
    /// Anything else.
    #[error("{status}\n  {}", status.in_words())]
    Call {
        /// What the driver said.
        status: Status,
    },
}

impl GpuError {
    pub(crate) fn call(status: Status) -> GpuError {
        GpuError::Call { status }
    }

    /// Whether this is about the machine (no driver, no GPU, an old driver), not
    /// about what was asked of it. A command exits with 2 for it.
    pub fn is_about_the_machine(&self) -> bool {
        matches!(
            self,
            GpuError::NoDriver
                | GpuError::Start { .. }
                | GpuError::NoDevice
                | GpuError::NoSuchDevice { .. }
                | GpuError::OldDriver { .. }
        )
    }

    /// Whether the context is gone, so that [`crate::Gpu::reopen`] is needed.
    pub fn is_context_lost(&self) -> bool {
        matches!(
            self,
            GpuError::Fault(_) | GpuError::Lost(_) | GpuError::Timeout { .. }
        )
    }

    /// The rule that stands for it in diagnostics.
    pub fn code(&self) -> Code {
        match self {
            GpuError::NoDriver
            | GpuError::Start { .. }
            | GpuError::NoDevice
            | GpuError::NoSuchDevice { .. } => rule::NO_DEVICE,
            GpuError::OldDriver { .. } | GpuError::PtxTooNew { .. } => rule::DRIVER_TOO_OLD,
            GpuError::WrongTarget { .. } => rule::DEVICE_LACKS,
            GpuError::Jit { .. } | GpuError::ZeroByte { .. } => rule::JIT,
            GpuError::NoSuchKernel { .. } => rule::NO_SUCH_KERNEL,
            GpuError::Arguments { .. } | GpuError::Bind(_) => rule::ARGUMENTS,
            GpuError::Contradiction { .. } => rule::LAUNCH_CONTRADICTION,
            GpuError::Launch { error, .. } => match error {
                LaunchError::ClusterTooLarge { .. } => rule::CLUSTER_SIZE,
                LaunchError::ClusterDoesNotDivide { .. } => rule::GRID_CLUSTER,
                LaunchError::TooMuchShared { .. } => rule::DYNAMIC_SHARED,
                LaunchError::TooManyThreads { .. } => rule::BLOCK_SIZE,
                LaunchError::AxisTooLarge { what: "grid", .. } => rule::GRID_SIZE,
                LaunchError::AxisTooLarge { .. } => rule::BLOCK_SIZE,
                LaunchError::Zero { what, .. } if *what == "grid" => rule::GRID_SIZE,
                LaunchError::Zero { .. } => rule::BLOCK_SIZE,
            },
            GpuError::Refused { status, .. } | GpuError::Call { status } => status.rule(),
            GpuError::OutOfMemory { .. } => rule::OUT_OF_MEMORY,
            GpuError::OutsideBuffer { .. } => rule::INVALID_VALUE,
            GpuError::Fault(fault) => fault.status.rule(),
            GpuError::Lost(_) => rule::STICKY,
            GpuError::Timeout { .. } => rule::LAUNCH_TIMEOUT,
        }
    }

    /// As a diagnostic about the whole module.
    pub fn diagnostic(&self) -> Diagnostic {
        if let GpuError::Fault(fault) = self {
            return fault.diagnostic();
        }
        let text = self.to_string();
        let mut lines = text.lines().map(str::trim);
        let mut diagnostic =
            Diagnostic::error(self.code(), Span::NONE, lines.next().unwrap_or_default());
        for line in lines {
            diagnostic = match line.strip_prefix("help: ").or(line.strip_prefix("next: ")) {
                Some(help) => diagnostic.help(help),
                None => diagnostic.note(line),
            };
        }
        diagnostic
    }

    /// What the assembler's answer means for a module.
    pub(crate) fn from_jit(
        module: &str,
        status: Status,
        log: String,
        says: Option<Version>,
        target: Option<&str>,
        capability: Capability,
        driver: CudaVersion,
    ) -> GpuError {
        let newest = driver.ptx_isa();
        let too_new = says.filter(|&version| {
            status.is(code::UNSUPPORTED_PTX_VERSION)
                || (version > newest && log.contains(".version"))
        });
        if let Some(version) = too_new {
            return GpuError::PtxTooNew {
                module: module.to_owned(),
                version,
                driver,
                newest,
            };
        }
        let unfit = target.and_then(|target| capability.runs(target).err());
        if let Some(why) = unfit {
            return GpuError::WrongTarget {
                module: module.to_owned(),
                why,
                capability,
            };
        }
        GpuError::Jit {
            module: module.to_owned(),
            status,
            log,
        }
    }
}

fn indented(log: &str) -> String {
    if log.is_empty() {
        return "  the assembler said nothing".to_owned();
    }
    log.lines()
        .map(|line| format!("  {line}"))
        .collect::<Vec<_>>()
        .join("\n")
}

fn known_kernels(known: &[String]) -> String {
    match known {
        [] => String::new(),
        names => format!(": it has {}", names.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use heist_launch::Launch;

    const H200: Capability = Capability { major: 9, minor: 0 };
    const CUDA_13: CudaVersion = CudaVersion {
        major: 13,
        minor: 0,
    };

    fn jit(code: u32, log: &str, version: Version, target: &str) -> GpuError {
        GpuError::from_jit(
            "k.ptx",
            Status::new("cuModuleLoadDataEx", code),
            log.to_owned(),
            Some(version),
            Some(target),
            H200,
            CUDA_13,
        )
    }

    #[test]
    fn newer_ptx_is_explained() {
        let error = jit(222, "", Version::new(9, 4), "sm_90");
        let text = error.to_string();
        assert!(text.contains("`.version 9.4`"), "{text}");
        assert!(text.contains("PTX up to 9.0"), "{text}");
        assert!(text.contains("help:"), "{text}");
        assert_eq!(error.code().0, "G010");
        let by_log = jit(
            218,
            "ptxas application ptx input, line 1; fatal : Unsupported .version 9.4; current version is '9.0'",
            Version::new(9, 4),
            "sm_90",
        );
        assert_eq!(by_log.code().0, "G010");
    }

    #[test]
    fn a_version_that_the_driver_knows_is_not_at_fault() {
        let log = "line 3; error : a message that has .version in it";
        assert_eq!(jit(218, log, Version::new(8, 0), "sm_90").code().0, "G003");
        assert_eq!(jit(218, log, Version::new(9, 0), "sm_90").code().0, "G003");
        assert_eq!(
            jit(218, "line 3; error", Version::new(9, 4), "sm_90")
                .code()
                .0,
            "G003"
        );
    }

    #[test]
    fn other_chips_and_bad_text_are_told_apart() {
        let error = jit(218, "", Version::new(8, 0), "sm_100a");
        assert_eq!(error.code().0, "G002");
        assert!(error.to_string().contains("that chip alone"));
        let error = jit(218, "line 7; error", Version::new(8, 0), "sm_90");
        assert_eq!(error.code().0, "G003");
        assert!(error.to_string().contains("  line 7; error\n"));
        assert_eq!(error.diagnostic().helps, ["`heist check k.ptx` says more"]);
    }

    #[test]
    fn a_launch_over_a_limit_has_the_rule_of_the_limit() {
        let limits = heist_launch::Limits::PORTABLE;
        for (launch, rule) in [
            (Launch::new(0, 32), rule::GRID_SIZE),
            (Launch::new((1, 70_000, 1), 32), rule::GRID_SIZE),
            (Launch::new(1, 0), rule::BLOCK_SIZE),
            (Launch::new(1, 2048), rule::BLOCK_SIZE),
            (Launch::new(1, (1, 1, 65)), rule::BLOCK_SIZE),
            (Launch::new(1, (32, 64, 1)), rule::BLOCK_SIZE),
            (Launch::new(16, 32).cluster(16), rule::CLUSTER_SIZE),
            (Launch::new(3, 32).cluster(2), rule::GRID_CLUSTER),
            (
                Launch::new(1, 32).dynamic_shared(300_000),
                rule::DYNAMIC_SHARED,
            ),
        ] {
            let error = launch.validate(&limits).unwrap_err();
            let kernel = "k".to_owned();
            let error = GpuError::Launch { kernel, error };
            assert_eq!(error.code().0, rule.0, "{launch}");
        }
    }

    #[test]
    fn the_machine_is_told_from_the_question() {
        assert!(GpuError::NoDriver.is_about_the_machine());
        assert!(!jit(218, "", Version::new(8, 0), "sm_90").is_about_the_machine());
        assert_eq!(GpuError::NoDriver.diagnostic().code.0, "G001");
        assert_eq!(GpuError::NoDriver.diagnostic().helps.len(), 1);
    }
}
