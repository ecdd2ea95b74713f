//! The report to `heist cuda`: a line of JSON for each launch or remark.

use heist_ptx::{Diagnostic, Severity, SourceLine, Span};
use serde_json::{Value, json};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::PathBuf;

/// A launch, as the report has it.
pub(crate) struct Ran<'a> {
    pub(crate) module: &'a str,
    pub(crate) kernel: &'a str,
    pub(crate) shape: &'a str,
    /// Modelled time; none where it did not run.
    pub(crate) ns: f64,
    /// Whether it was taken from an earlier one.
    pub(crate) repeated: bool,
}

/// Where the lines go. Without a file, findings are printed in short on standard error.
pub(crate) struct ReportFile {
    file: Option<File>,
    folder: Option<PathBuf>,
}

impl ReportFile {
    /// As the environment says: `HEIST_CUDA_REPORT` is a folder.
    pub(crate) fn new() -> ReportFile {
        let folder = std::env::var_os("HEIST_CUDA_REPORT").map(PathBuf::from);
        let file = folder.as_ref().and_then(|folder| {
            let path = folder.join("report.jsonl");
            OpenOptions::new().create(true).append(true).open(path).ok()
        });
        ReportFile { file, folder }
    }

    /// One line.
    pub(crate) fn line(&mut self, value: &Value) {
        if let Some(file) = &mut self.file {
            // There is nowhere to report that a report can't be written.
            let _ = writeln!(file, "{value}");
        }
    }

    /// Keeps the text of a module; the name by which lines mean it.
    pub(crate) fn keep(&self, number: usize, text: &str) -> String {
        let name = format!("module{number}.ptx");
        match &self.folder {
            Some(folder) => {
                let path = folder.join(format!("{}-{name}", std::process::id()));
                let _ = std::fs::write(&path, text);
                path.display().to_string()
            }
            None => name,
        }
    }

    /// Something that the program's calls have shown, with what was done about it.
    pub(crate) fn remark(&mut self, text: &str) {
        if self.file.is_none() {
            eprintln!("heist: {text}");
        }
        self.line(&json!({ "remark": text }));
    }

    /// A launch that did not come to run, and why.
    pub(crate) fn refused(&mut self, module: &str, kernel: &str, shape: &str, why: &[Diagnostic]) {
        let ran = Ran {
            module,
            kernel,
            shape,
            ns: 0.0,
            repeated: false,
        };
        self.launch(&ran, why);
    }

    /// Something that was found in what is no launch: a copy, a fill, or the host itself.
    pub(crate) fn operation(&mut self, what: &str, found: &Diagnostic) {
        if self.file.is_none() {
            eprintln!("heist: {found}");
        }
        self.line(&json!({
            "operation": what,
            "found": [as_json(found)],
            "host": host_frames(),
        }));
    }

    /// One launch, with everything that was found.
    pub(crate) fn launch(&mut self, ran: &Ran<'_>, found: &[Diagnostic]) {
        let Ran { kernel, shape, .. } = ran;
        let host = match found {
            [] => Vec::new(),
            _ => host_frames(),
        };
        if self.file.is_none() {
            for one in found {
                eprintln!("heist: `{kernel}` {shape}: {one}");
            }
        }
        self.line(&json!({
            "kernel": kernel,
            "shape": shape,
            "module": ran.module,
            "ns": ran.ns,
            "repeated": ran.repeated,
            "found": found.iter().map(as_json).collect::<Vec<_>>(),
            "host": host,
        }));
    }
}

fn as_json(found: &Diagnostic) -> Value {
    let span = |span: Span| json!([span.start, span.end]);
    let line = |line: &Option<SourceLine>| {
        let line = line.as_ref();
        line.map(|line| json!([line.path, line.line, line.column]))
    };
    let others = found.others.iter();
    json!({
        "code": found.code.0,
        "warning": found.severity == Severity::Warning,
        "message": found.message,
        "span": span(found.span),
        "label": found.label,
        "others": others.map(|one| json!([span(one.span), one.text, line(&one.source_line)])).collect::<Vec<_>>(),
        "source_line": line(&found.source_line),
        "notes": found.notes,
        "helps": found.helps,
    })
}

/// Whether a function is one that programs call.
fn is_of_interface(name: &str) -> bool {
    let libraries = [crate::api::FUNCTIONS, crate::driver::FUNCTIONS];
    libraries
        .iter()
        .any(|all| all.iter().any(|one| one.name == name))
}

/// The program's own frames above the launch, innermost first.
fn host_frames() -> Vec<String> {
    let text = std::backtrace::Backtrace::force_capture().to_string();
    let mut frames: Vec<String> = Vec::new();
    let mut lines = text.lines().map(str::trim).peekable();
    while let Some(line) = lines.next() {
        let Some((_, name)) = line.split_once(": ") else {
            continue;
        };
        let place = lines.next_if(|next| next.starts_with("at "));
        if name.contains("__device_stub__") {
            // nvcc's stub of `<<<>>>`: the frames below it are this library and the kernel's stub.
            frames.clear();
            frames.push(String::new());
            continue;
        }
        if is_of_interface(name) {
            // The program's call: the frames below it are this library.
            frames.clear();
            continue;
        }
        if name == "<unknown>"
            || name.starts_with("__libc")
            || ["_start", "__restore_rt"].contains(&name)
        {
            continue;
        }
        frames.push(place.map_or(name.to_owned(), |place| format!("{name} {place}")));
    }
    // The mark of the stub, and the kernel's own function on the host.
    match frames.first().is_some_and(String::is_empty) {
        true => frames.drain(..frames.len().min(2)),
        false => frames.drain(..0),
    };
    // What is left of this library where its frames have names only.
    let ours = |frame: &String| {
        let starts = ["std::", "core::", "__rust", "rust_", "heist_", "<heist_"];
        starts.iter().any(|start| frame.starts_with(start))
    };
    let inner = frames.iter().take_while(|frame| ours(frame)).count();
    frames.drain(..inner);
    frames.retain(|frame| {
        !["/rustc/", "heist_cudart", "crates/cudart"]
            .iter()
            .any(|ours| frame.contains(ours))
    });
    frames
}
