//! Readers of logs: ptxas's verbose output, what nvcc and nvlink give up with, compute-sanitizer's
//! reports, CUDA error names, messages of Triton and CUTLASS, the kernel log's Xid lines.
//!
//! [`recognise`] finds out what a text is; [`read`] turns it into findings, one
//! for each cause and place however often it was repeated, and into a table of each kernel's
//! resources. A finding points at the first line of the log that mentions it.
//!
//! ```
//! use heist_check::log::{read, recognise};
//! use heist_ptx::Source;
//!
//! let text = "\
//! ptxas info    : Compiling entry function 'scan' for 'sm_90a'
//! ptxas info    : Function properties for scan
//!     96 bytes stack frame, 92 bytes spill stores, 88 bytes spill loads
//! ptxas info    : Used 255 registers, used 1 barriers, 4096 bytes smem
//! ";
//! let kind = recognise(text).expect("a log that we read");
//! let reading = read(kind, &Source::new("build.log", text));
//! let scan = &reading.usage[0];
//! assert_eq!((scan.kernel.as_str(), scan.registers, scan.spill_stores), ("scan", 255, 92));
//! // Spills are slow: a finding, with a page that `heist explain` shows.
//! assert_eq!(reading.findings.len(), 1);
//! ```

mod build;
mod cuda;
mod lines;
mod ptxas;
mod reading;
mod sanitizer;
mod xid;

use heist_ptx::{Diagnostic, Source, rule};

pub use reading::{KernelUsage, Reading};

/// What kind of text this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextKind {
    /// PTX.
    Ptx,
    /// Output of ptxas, nvcc or nvlink, of a build that ran them, or of the driver's assembler.
    Assembler,
    /// A report of compute-sanitizer.
    Sanitizer,
    /// Some output that names a CUDA error.
    CudaError,
    /// The kernel's log, with Xid lines of the driver.
    KernelLog,
}

/// Finds out what a text is; `None` if it is nothing that we read.
///
/// ```
/// use heist_check::log::{TextKind, recognise};
/// assert_eq!(recognise(".version 8.0\n.target sm_90\n"), Some(TextKind::Ptx));
/// assert_eq!(recognise("ptxas info    : Used 68 registers\n"), Some(TextKind::Assembler));
/// assert_eq!(recognise("========= COMPUTE-SANITIZER\n"), Some(TextKind::Sanitizer));
/// assert_eq!(recognise("RuntimeError: CUDA error: unspecified launch failure"), Some(TextKind::CudaError));
/// assert_eq!(recognise("nvcc fatal   : Unknown option '-fast'"), Some(TextKind::Assembler));
/// assert_eq!(recognise("NVRM: Xid (PCI:0000:65:00): 79, GPU lost"), Some(TextKind::KernelLog));
/// assert_eq!(recognise("hello"), None);
/// ```
pub fn recognise(text: &str) -> Option<TextKind> {
    let directive = |line: &str| line.starts_with(".version") || line.starts_with(".target");
    if text.lines().map(str::trim_start).take(400).any(directive) {
        return Some(TextKind::Ptx);
    }
    if text.contains("=========")
        && (text.contains("COMPUTE-SANITIZER") || text.contains("=========     "))
    {
        return Some(TextKind::Sanitizer);
    }
    // A line of a report that has lost its markers and its neighbours.
    if text.lines().any(sanitizer::starts_a_report) {
        return Some(TextKind::Sanitizer);
    }
    if ptxas::speaks_of_assembly(text) || build::speaks_of_a_build(text) {
        return Some(TextKind::Assembler);
    }
    if xid::has_events(text) {
        return Some(TextKind::KernelLog);
    }
    cuda::first_error(text).map(|_| TextKind::CudaError)
}

/// Reads a log of the given kind. PTX is not a log and gives nothing. CUDA errors beside a
/// sanitizer's reports are the reports' consequence, and are left out.
pub fn read(kind: TextKind, source: &Source) -> Reading {
    if kind == TextKind::Ptx {
        return Reading::default();
    }
    // A log may hold a build and a run; each part has its own reader.
    let mut reading = ptxas::read(source);
    reading.findings.extend(build::read(source));
    reading.findings.extend(xid::read(source));
    let refused = |finding: &Diagnostic| finding.code == rule::ASSEMBLER_ERROR;
    let assembled = !reading.findings.iter().any(refused);
    if kind == TextKind::Sanitizer {
        reading.findings.extend(sanitizer::read(source));
    } else {
        let errors = cuda::read(source).into_iter();
        // What the assembler says is why the driver did not take it.
        reading
            .findings
            .extend(errors.filter(|error| assembled || error.code != rule::JIT));
    }
    reading
        .findings
        .sort_by_key(|finding| (std::cmp::Reverse(finding.severity), finding.span.start));
    reading
}
