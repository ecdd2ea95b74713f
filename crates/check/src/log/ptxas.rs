//! ptxas's verbose output: each kernel's resources, and the warnings that matter.

use super::lines::lines;
use super::reading::{KernelUsage, Reading};
use heist_ptx::{Code, Diagnostic, Severity, Source, Span, rule};

/// Whether a text has lines that an assembler writes.
pub(super) fn speaks_of_assembly(text: &str) -> bool {
    text.lines().any(|line| {
        complaint(line).is_some()
            || line.contains("ptxas info")
            || line.contains("ptxas warning")
            || line.contains("ptxas error")
            || line.contains("ptxas fatal")
            || line.contains("ptxas application ptx input")
            || line.contains("bytes stack frame, ")
            || line.contains("bytes spill stores")
            || KNOWN
                .iter()
                .any(|known| known.part.len() > 24 && line.contains(known.part))
            || KNOWN
                .iter()
                .any(|known| known.without_ptxas && is_about(line, known))
    })
}

/// A warning worth explaining, known by a part of its text.
struct Known {
    part: &'static str,
    code: Code,
    severity: Severity,
    message: &'static str,
    note: &'static str,
    remedy: &'static str,
    /// Said by another part of a build, whose log need not speak of ptxas.
    without_ptxas: bool,
}

const KNOWN: &[Known] = &[
    Known {
        part: "cannot perform wmma load or store on local memory",
        code: rule::TENSOR_LOCAL,
        severity: Severity::Error,
        message: "a WMMA load or store works on a local array",
        note: "only a warning of the compiler, but the kernel will die with `unspecified launch \
               failure` or `Invalid __local__ read`: a fragment is spread over the warp, and \
               local memory is each thread's own",
        remedy: "put the array into shared memory (`__shared__`), fill it together, synchronise, \
                 and load the fragment from there",
        without_ptxas: false,
    },
    Known {
        part: "serialized",
        code: rule::WGMMA_SERIALIZED,
        severity: Severity::Warning,
        message: "the assembler serialises the wgmma instructions of this function",
        note: "each one then waits for the one before it: right results, a fraction of the speed",
        remedy: "keep accumulator registers untouched between `wgmma.fence` and \
                 `wgmma.wait_group`, and do not branch or call in between",
        without_ptxas: false,
    },
    Known {
        part: "setmaxnreg",
        code: rule::SETMAXNREG_IGNORED,
        severity: Severity::Warning,
        message: "the assembler ignores a `setmaxnreg`",
        note: "it moves registers between warps out of a number that must be fixed at entry",
        remedy: "give the kernel `__launch_bounds__(threads, 1)`, with the 1, or `-maxrregcount`",
        without_ptxas: false,
    },
    Known {
        part: "uses too much shared data",
        code: rule::STATIC_SHARED,
        severity: Severity::Error,
        message: "a kernel declares more static shared memory than the architecture allows",
        note: "static shared memory ends at 48 KiB; more must be dynamic, with an opt-in",
        remedy: "use `extern __shared__`, pass the size at launch, and opt in with \
                 cudaFuncAttributeMaxDynamicSharedMemorySize",
        without_ptxas: false,
    },
    Known {
        part: "uses too much global constant data",
        code: rule::CONSTANT_LIMIT,
        severity: Severity::Error,
        message: "a file has more constant variables than one may have",
        note: "all constant variables of a file share a bank of 64 KiB, used or not",
        remedy: "keep large tables in global memory, or stage them in shared memory",
        without_ptxas: false,
    },
    Known {
        part: "cudaCGGetIntrinsicHandle",
        code: rule::ASSEMBLER_ERROR,
        severity: Severity::Error,
        message: "a grid-wide group of cooperative groups is used, and its library is not linked",
        note: "`this_grid()` and `grid.sync()` call into the device runtime, which only code that can \
               be relocated is linked with",
        remedy: "compile and link with `-rdc=true` (CMake: CUDA_SEPARABLE_COMPILATION), and launch with \
                 `cudaLaunchCooperativeKernel`",
        without_ptxas: true,
    },
    Known {
        part: "\"cooperative_groups\" has no member",
        code: rule::ASSEMBLER_ERROR,
        severity: Severity::Error,
        message: "the compiler has no such part of cooperative groups for this architecture",
        note: "`this_cluster()` and `cluster_group` are there from compute capability 9.0 on alone, and \
               `this_grid()` from 6.0; nvcc compiles the file once for each architecture that is asked for",
        remedy: "compile for `-arch=sm_90` or later, or keep the code that needs it inside \
                 `#if __CUDA_ARCH__ >= 900`",
        without_ptxas: true,
    },
];

/// Reads the output of ptxas, alone or in the middle of a build's.
pub(super) fn read(source: &Source) -> Reading {
    let mut reading = Reading::default();
    let mut counts: Vec<usize> = Vec::new();
    let mut current: Option<(KernelUsage, Span)> = None;
    let mut finished: Vec<(KernelUsage, Span)> = Vec::new();
    for (span, line) in lines(source) {
        if let Some(known) = KNOWN.iter().find(|known| is_about(line, known)) {
            let again = reading
                .findings
                .iter()
                .position(|finding| finding.message == known.message);
            match again {
                Some(at) => counts[at] += 1,
                None => {
                    let mut finding = Diagnostic::error(known.code, span, known.message)
                        .note(known.note)
                        .help(known.remedy);
                    finding.severity = known.severity;
                    reading.findings.push(finding);
                    counts.push(1);
                }
            }
            continue;
        }
        if let Some((severity, text)) = complaint(line) {
            let (code, mut finding) = match severity {
                Severity::Error => (
                    rule::ASSEMBLER_ERROR,
                    Diagnostic::error(rule::ASSEMBLER_ERROR, span, text),
                ),
                Severity::Warning => (
                    rule::ASSEMBLER_WARNING,
                    Diagnostic::warning(rule::ASSEMBLER_WARNING, span, text),
                ),
            };
            finding.code = code;
            reading
                .findings
                .push(finding.help("`heist check` on the PTX itself may say more"));
            counts.push(1);
            continue;
        }
        usage_line(line, span, &mut current, &mut finished);
    }
    finished.extend(current);
    for (finding, count) in reading.findings.iter_mut().zip(counts) {
        if count > 1 {
            finding.notes.push(format!("reported {count} times"));
        }
    }
    for (usage, span) in &finished {
        if usage.spill_stores + usage.spill_loads > 0 {
            reading.findings.push(
                Diagnostic::warning(
                    rule::SPILLS,
                    *span,
                    format!(
                        "{} spills {} bytes and reads {} bytes back",
                        named(usage),
                        usage.spill_stores,
                        usage.spill_loads
                    ),
                )
                .note(
                    "what does not fit into registers goes to local memory, which is global memory",
                )
                .help("smaller tiles, fewer live values, or a higher register cap"),
            );
        } else if usage.stack > 0 {
            reading.findings.push(
                Diagnostic::warning(
                    rule::STACK_FRAME,
                    *span,
                    format!(
                        "{} keeps {} bytes of each thread's data in local memory",
                        named(usage),
                        usage.stack
                    ),
                )
                .note("an array with an index that is not a constant can't be in registers")
                .help(
                    "unroll the loops over it, inline what takes its address, or use shared memory",
                ),
            );
        }
    }
    reading.usage = finished.into_iter().map(|(usage, _)| usage).collect();
    reading
}

/// What a kernel is called in a message.
fn named(usage: &KernelUsage) -> String {
    match usage.kernel.as_str() {
        "" => "a kernel".to_owned(),
        name => format!("`{name}`"),
    }
}

fn is_about(line: &str, known: &Known) -> bool {
    line.contains(known.part)
        && (known.part.len() > 12 || line.contains("wgmma") || line.contains("ignored"))
}

/// An error or warning without a page: reported verbatim.
fn complaint(line: &str) -> Option<(Severity, String)> {
    let text = |after: &str| {
        line.split_once(after)
            .map(|(_, rest)| rest.trim().to_owned())
    };
    if line.contains("ptxas") {
        if let Some(text) = text("; error   :").or_else(|| text("ptxas error   :")) {
            return Some((Severity::Error, text));
        }
        if let Some(text) = text("ptxas fatal   :") {
            return Some((Severity::Error, text));
        }
        if let Some(text) = text("ptxas warning :") {
            return Some((Severity::Warning, text));
        }
    }
    None
}

/// `Compiling entry function`, `Function properties for`, `Used N registers`.
fn usage_line(
    line: &str,
    span: Span,
    current: &mut Option<(KernelUsage, Span)>,
    finished: &mut Vec<(KernelUsage, Span)>,
) {
    if let Some((_, rest)) = line.split_once("Compiling entry function '") {
        finished.extend(current.take());
        let mut parts = rest.split('\'');
        let kernel = parts.next().unwrap_or_default().to_owned();
        let arch = parts.nth(1).unwrap_or_default().to_owned();
        *current = Some((
            KernelUsage {
                kernel,
                arch,
                ..KernelUsage::default()
            },
            span,
        ));
        return;
    }
    if line.contains("Used ") && line.contains(" registers") && current.is_none() {
        *current = Some((KernelUsage::default(), span));
    }
    // A line without the lines around it belongs to a kernel of unknown name.
    if line.contains("bytes stack frame") && current.is_none() {
        *current = Some((KernelUsage::default(), span));
    }
    let Some((usage, _)) = current else { return };
    let before = |what: &str| number_before(line, what);
    if line.contains("stack frame") {
        usage.stack = before(" bytes stack frame").unwrap_or(0);
        usage.spill_stores = before(" bytes spill stores").unwrap_or(0);
        usage.spill_loads = before(" bytes spill loads").unwrap_or(0);
    }
    if let Some(registers) = before(" registers") {
        usage.registers = registers;
        usage.shared = before(" bytes smem").unwrap_or(0);
        usage.barriers = before(" barriers").unwrap_or(0);
    }
}

/// The number that stands right before `what`.
fn number_before(line: &str, what: &str) -> Option<u32> {
    let (before, _) = line.split_once(what)?;
    before
        .rsplit(|c: char| !c.is_ascii_digit())
        .next()?
        .parse()
        .ok()
}
