//! What nvcc says when it gives up, and what its linker of device code says.

use super::lines::lines;
use heist_ptx::{Code, Diagnostic, Severity, Source, rule};

/// Who speaks in a line.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Tool {
    Nvcc,
    Nvlink,
}

/// What a part of a message means.
struct Known {
    tool: Tool,
    /// In lower case.
    part: &'static str,
    code: Code,
    note: &'static str,
    remedy: &'static str,
}

/// The first that fits counts; the last of each tool fits everything.
const KNOWN: &[Known] = &[
    Known {
        tool: Tool::Nvlink,
        part: "undefined reference",
        code: rule::UNRESOLVED,
        note: "device code calls or reads something that none of the objects defines for this target",
        remedy: "link the object that defines it, compiled with `-rdc=true` and for the same `-arch`; \
                 a `cudaDevice...` needs `-lcudadevrt`. With C++ names look at the types: `extern \
                 \"C\"` on one side only is another name",
    },
    Known {
        tool: Tool::Nvlink,
        part: "multiple definition",
        code: rule::DEVICE_LINKER,
        note: "two objects define the same device function or variable, often through a header that \
               both include",
        remedy: "write `inline` or `static` before the function in the header, or keep its definition \
                 in one `.cu` file and declare it `extern __device__` in the others; look also for an \
                 object that is linked twice, itself and out of a library",
    },
    Known {
        tool: Tool::Nvlink,
        part: "",
        code: rule::DEVICE_LINKER,
        note: "nvlink joins device code that was compiled with `-rdc=true`; it runs before the host's \
               linker",
        remedy: "compile all objects with one toolkit and one `-arch`, and link with the nvcc of that \
                 toolkit",
    },
    Known {
        tool: Tool::Nvcc,
        part: "unsupported gpu architecture",
        code: rule::COMPILER_GIVES_UP,
        note: "this nvcc does not know the architecture: it is older than the GPU, or so new that it \
               has dropped it",
        remedy: "`nvcc --list-gpu-arch` prints what it knows: ask for one of these, or install the \
                 toolkit that knows yours. PTX of an older architecture runs on newer GPUs",
    },
    Known {
        tool: Tool::Nvcc,
        part: "is not defined for option",
        code: rule::COMPILER_GIVES_UP,
        note: "the option does not take this value in this version of nvcc",
        remedy: "`nvcc --help` lists the values of each option; for architectures `nvcc \
                 --list-gpu-arch`",
    },
    Known {
        tool: Tool::Nvcc,
        part: "unknown option",
        code: rule::COMPILER_GIVES_UP,
        note: "nvcc passes on to the host's compiler only what it is told to pass on",
        remedy: "put it behind `-Xcompiler` (for ptxas `-Xptxas`, for the linker `-Xlinker`), or \
                 correct its spelling by `nvcc --help`",
    },
    Known {
        tool: Tool::Nvcc,
        part: "cannot find compiler",
        code: rule::COMPILER_GIVES_UP,
        note: "nvcc compiles device code alone, and calls the host's compiler for the rest",
        remedy: "install it (gcc, clang, or Visual Studio's cl.exe) and put it into PATH, or name it \
                 with `-ccbin`",
    },
    Known {
        tool: Tool::Nvcc,
        part: "no input files",
        code: rule::COMPILER_GIVES_UP,
        note: "the command line names nothing to compile",
        remedy: "look at the whole command (`make V=1`, `ninja -v`, `nvcc --dryrun`): mostly a \
                 variable of the build is empty",
    },
    Known {
        tool: Tool::Nvcc,
        part: "' died ",
        code: rule::COMPILER_GIVES_UP,
        note: "a program that nvcc runs crashed, or was killed: the machine may have had no memory \
               left",
        remedy: "run fewer compilations at once (`-j`), and look for the out-of-memory killer in the \
                 kernel's log; if it crashes alone too, find the function (`-keep` leaves the PTX \
                 behind, which `heist check` reads) or try another toolkit",
    },
    Known {
        tool: Tool::Nvcc,
        part: "",
        code: rule::COMPILER_GIVES_UP,
        note: "nvcc stopped before the file was compiled",
        remedy: "`nvcc --dryrun` with the same options prints what it would run, and `nvcc --help` \
                 what each option takes",
    },
];

/// The tool, how bad it is, and the message: `nvlink error   : Undefined reference ...`.
fn complaint(line: &str) -> Option<(Tool, Severity, &str)> {
    let tools = [(Tool::Nvcc, "nvcc "), (Tool::Nvlink, "nvlink ")];
    tools.iter().find_map(|&(tool, name)| {
        let (before, rest) = line.split_once(name)?;
        if before.ends_with(|c: char| c.is_alphanumeric()) {
            return None;
        }
        let (kind, message) = rest.split_once(':')?;
        let severity = match (kind.trim(), tool) {
            ("fatal" | "error", _) => Severity::Error,
            // nvcc's are about its options and their future.
            ("warning", Tool::Nvlink) => Severity::Warning,
            _ => return None,
        };
        Some((tool, severity, message.trim()))
    })
}

/// Whether a text has lines of nvcc's or nvlink's.
pub(super) fn speaks_of_a_build(text: &str) -> bool {
    text.lines().any(|line| complaint(line).is_some())
}

/// One finding for each message, however often it comes.
pub(super) fn read(source: &Source) -> Vec<Diagnostic> {
    let mut seen: Vec<(Diagnostic, usize)> = Vec::new();
    for (span, line) in lines(source) {
        let Some((tool, severity, message)) = complaint(line) else {
            continue;
        };
        if let Some(again) = seen.iter_mut().find(|(known, _)| known.message == message) {
            again.1 += 1;
            continue;
        }
        let told = if severity == Severity::Warning {
            Diagnostic::warning(rule::ASSEMBLER_WARNING, span, message)
                .note("said by nvlink, which joins device code that was compiled with `-rdc=true`")
                .help("compile all objects for the same `-arch`: what it leaves out is missing at the launch")
        } else {
            let lower = message.to_ascii_lowercase();
            let mut known = KNOWN.iter();
            let known = known.find(|known| known.tool == tool && lower.contains(known.part));
            let known = known.expect("the last of each tool fits everything");
            Diagnostic::error(known.code, span, message)
                .note(known.note)
                .help(known.remedy)
        };
        seen.push((told, 1));
    }
    seen.into_iter()
        .map(|(diagnostic, count)| match count {
            1 => diagnostic,
            _ => diagnostic.note(format!("reported {count} times")),
        })
        .collect()
}
