//! `heist cuda`: a program that nvcc has made, on a simulated GPU.

use super::entry;
use super::injected::{self, Folder, Library};
use crate::answer::{BadQuestion, Output, Verdict, question};
use crate::{fold, origin, render, sarif};
use clap::Args;
use heist_ptx::{Diagnostic, Label, Module, Severity, Source, SourceLine, Span, rule};
use heist_run::DeviceName;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

const LIBRARY: Library = Library {
    file: "libheist_cudart.so",
    what: "the stand-in for the CUDA runtime",
    variable: "HEIST_CUDART",
    package: "heist-cudart",
};
/// The names under which programs look for the runtime and the driver.
const NAMES: [&str; 5] = [
    "libcudart.so.11.0",
    "libcudart.so.12",
    "libcudart.so.13",
    "libcuda.so.1",
    "libcuda.so",
];

const EXAMPLES: &str = "\
Examples:
  nvcc -arch=sm_90 -lineinfo app.cu -o app
  heist cuda ./app 1000               as ./app 1000, and what its kernels do wrong
  heist cuda --device a100 --sarif found.sarif -- ./app -v

The program needs PTX in it for the device or an older one, which `-arch=` gives. Programs with a
runtime of their own (nvcc's default) work unless they are stripped; with `-cudart shared` always.
HEIST_CUDART names the stand-in for the runtime, where it does not lie beside this program.

Exit status: 1 something was found (or --error-exitcode), else the program's own.";

/// Run a CUDA program, as it is, on a simulated GPU, and check its kernels.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Cuda {
    /// The simulated GPU.
    #[arg(long, default_value = "sim:h200", value_name = "DEVICE", value_parser = device)]
    device: DeviceName,
    /// Write what was found as SARIF 2.1.0 to a file.
    #[arg(long, value_name = "FILE")]
    sarif: Option<PathBuf>,
    /// Seconds that a launch may take.
    #[arg(long, value_name = "SECONDS")]
    timeout: Option<u64>,
    /// The exit status when something was found.
    #[arg(long, value_name = "STATUS", default_value_t = 1)]
    error_exitcode: u8,
    /// The program and its arguments.
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    program: Vec<OsString>,
}

/// A simulated device; `h200` alone will do.
fn device(word: &str) -> Result<DeviceName, String> {
    let whole = match word.contains(':') || word == "gpu" {
        true => word.to_owned(),
        false => format!("sim:{word}"),
    };
    match whole.parse()? {
        DeviceName::Gpu(_) => Err("a real GPU runs the program without Heist".to_owned()),
        simulated => Ok(simulated),
    }
}

/// A launch in which something was found.
struct Found {
    kernel: String,
    shape: String,
    host: Vec<String>,
    /// Each at the source that it is told at.
    told: Vec<Told>,
}

/// A finding, told at the first launch that had it.
struct Told {
    one: Diagnostic,
    source: Source,
    /// How many later launches of the kernel had it, too.
    later: usize,
}

impl Told {
    /// What makes it the same in another launch: instructions of one line of the source are one
    /// place.
    fn place(&self) -> (&str, &str, Option<u32>) {
        match self.one.span.is_none() {
            true => (self.one.code.0, &self.one.message, None),
            false => {
                let line = self.source.position(self.one.span).line;
                (self.one.code.0, self.source.name(), Some(line))
            }
        }
    }

    /// Notes how many launches had it.
    fn note_launches(&mut self) {
        let note = match self.later {
            0 => return,
            1 => "and in a later launch of this kernel".to_owned(),
            more => format!("and in {more} later launches of this kernel"),
        };
        self.one.notes.push(note);
    }
}

/// What the program's run gave.
#[derive(Default)]
struct ProgramReport {
    launches: usize,
    /// How many of them were taken from an earlier one, over the same memory.
    repeated: usize,
    found: Vec<Found>,
    remarks: Vec<String>,
    leaked: Option<(u64, u64)>,
}

impl Cuda {
    pub(crate) fn run(self, out: Output) -> Result<Verdict, BadQuestion> {
        let folder = Folder::new("cuda")?;
        let library = LIBRARY.find()?;
        for name in NAMES {
            let to = folder.path.join(name);
            std::os::unix::fs::symlink(&library, &to)
                .map_err(|error| question(format!("{}: {error}", to.display())))?;
        }
        let mut command = Command::new(&self.program[0]);
        let mut paths = vec![folder.path.clone()];
        let known = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
        paths.extend(std::env::split_paths(&known));
        let paths = std::env::join_paths(paths).map_err(question)?;
        command
            .args(&self.program[1..])
            .env("LD_LIBRARY_PATH", paths)
            .env("LD_PRELOAD", &library)
            .env("HEIST_CUDA_REPORT", &folder.path)
            .env("HEIST_CUDA_DEVICE", self.device.to_string());
        if let Some(seconds) = self.timeout {
            command.env("HEIST_CUDA_TIMEOUT", seconds.to_string());
        }
        let status = injected::run(&mut command, &self.program[0])?;
        let report = read(&folder);
        if let Some(path) = &self.sarif {
            let text = serde_json::to_string_pretty(&report.sarif()).map_err(question)?;
            fs::write(path, text)
                .map_err(|error| question(format!("{}: {error}", path.display())))?;
        }
        if out.json {
            out.json(&report.json());
        } else {
            report.tell();
        }
        if !report.found.is_empty() {
            return Ok(Verdict::Status(self.error_exitcode));
        }
        Ok(Verdict::Status(injected::code(status)))
    }
}

/// Reads what the program's runtime has told.
fn read(folder: &Folder) -> ProgramReport {
    let mut report = ProgramReport::default();
    let mut modules: HashMap<String, Option<(Source, Module)>> = HashMap::new();
    for line in folder.lines() {
        if let Some(remark) = line["remark"].as_str() {
            report.remarks.push(remark.to_owned());
        } else if let Some(leaked) = line["leaked"].as_array() {
            let number = |at: usize| leaked.get(at).and_then(Value::as_u64).unwrap_or(0);
            report.leaked = Some((number(0), number(1)));
        } else if let Some(list) = line["found"].as_array() {
            report.launches += usize::from(line["operation"].is_null());
            report.repeated += usize::from(line["repeated"] == true);
            let name = line["module"].as_str().unwrap_or("");
            let module = modules
                .entry(name.to_owned())
                .or_insert_with(|| module(name));
            let found: Vec<Diagnostic> = list.iter().filter_map(diagnostic).collect();
            if !found.is_empty() {
                report.add(&line, &found, module.as_ref());
            }
        }
    }
    let found = report.found.iter_mut();
    found
        .flat_map(|launch| &mut launch.told)
        .for_each(Told::note_launches);
    report
}

fn module(path: &str) -> Option<(Source, Module)> {
    let source = Source::new(path, fs::read_to_string(path).ok()?);
    let module = heist_ptx::parse(&source).ok()?;
    Some((source, module))
}

impl ProgramReport {
    fn add(&mut self, line: &Value, found: &[Diagnostic], module: Option<&(Source, Module)>) {
        let text = |key: &str| line[key].as_str().unwrap_or("").to_owned();
        let host = line["host"].as_array();
        let host = host.map(|list| list.iter().filter_map(Value::as_str).map(str::to_owned));
        let empty = Source::new("", String::new());
        let source = module.map_or(&empty, |(source, _)| source);
        let operation = line["operation"].as_str();
        let kernel = operation.map_or_else(|| entry::readable(&text("kernel")), str::to_owned);
        let mut fresh: Vec<Told> = Vec::new();
        for one in fold::fold(found, source) {
            let lifted = module.and_then(|(source, module)| origin::lifted(module, source, &one));
            let (one, source) = lifted.unwrap_or_else(|| (one, source.clone()));
            let told = Told {
                one,
                source,
                later: 0,
            };
            if !fresh.iter().any(|other| other.place() == told.place()) {
                fresh.push(told);
            }
        }
        fresh.retain(|told| {
            let launches = self.found.iter_mut();
            let mut earlier = launches
                .filter(|launch| launch.kernel == kernel)
                .flat_map(|launch| &mut launch.told);
            match earlier.find(|other| other.place() == told.place()) {
                Some(known) => known.later += 1,
                None => return true,
            }
            false
        });
        if !fresh.is_empty() {
            self.found.push(Found {
                kernel,
                shape: text("shape"),
                host: host.map_or(Vec::new(), Iterator::collect),
                told: fresh,
            });
        }
    }

    fn all(&self) -> impl Iterator<Item = &Told> {
        self.found.iter().flat_map(|launch| &launch.told)
    }

    /// For people, on standard error, as the program's own output is on the other.
    fn tell(&self) {
        for launch in &self.found {
            match &launch.shape[..] {
                // What is no launch has no shape.
                "" => eprintln!("in {}:", launch.kernel),
                shape => eprintln!("in `{}` {shape}:", launch.kernel),
            }
            for told in &launch.told {
                let text = render::to_text(&told.one, &told.source);
                eprintln!("{}", anstream::adapter::strip_str(&text));
            }
            if !launch.host.is_empty() {
                match launch.shape.is_empty() {
                    true => eprintln!("  in the program at"),
                    false => eprintln!("  launched by"),
                }
                for frame in &launch.host {
                    let (name, place) = frame.split_once(' ').unwrap_or((frame, ""));
                    eprintln!("    {} {place}", entry::readable(name));
                }
            }
            eprintln!("");
        }
        for remark in &self.remarks {
            eprintln!("heist: {remark}");
        }
        if let Some((count, bytes)) = self.leaked
            && count > 0
        {
            let (what, were) = match count {
                1 => ("allocation", "was"),
                _ => ("allocations", "were"),
            };
            eprintln!("heist: {count} {what} of {bytes} bytes {were} never given back");
        }
        let of = |severity: Severity| {
            self.all()
                .filter(|told| told.one.severity == severity)
                .count()
        };
        let repeated = match self.repeated {
            0 => String::new(),
            some => format!(" ({some} the same as an earlier one, and taken from it)"),
        };
        eprintln!(
            "heist: {}{repeated}, {}, {}",
            many(self.launches, "launch", "launches"),
            many(of(Severity::Error), "error", "errors"),
            many(of(Severity::Warning), "warning", "warnings"),
        );
    }

    fn json(&self) -> Value {
        let launch = |launch: &Found| {
            let told = launch
                .told
                .iter()
                .map(|told| render::to_json(&told.one, &told.source));
            json!({
                "kernel": launch.kernel,
                "shape": launch.shape,
                "host": launch.host,
                "found": told.collect::<Vec<_>>(),
            })
        };
        json!({
            "launches": self.launches,
            "repeated": self.repeated,
            "found": self.found.iter().map(launch).collect::<Vec<_>>(),
            "remarks": self.remarks,
            "leaked": self.leaked,
        })
    }

    fn sarif(&self) -> Value {
        let parts: Vec<(&Source, &[Diagnostic])> = self
            .all()
            .map(|told| (&told.source, std::slice::from_ref(&told.one)))
            .collect();
        sarif::report(&parts)
    }
}

/// A message in which names that C++ has mangled are as people write them.
fn readable(message: &str) -> String {
    let words = message.split('`').enumerate();
    let words = words.map(|(at, word)| match at % 2 == 1 && word.starts_with("_Z") {
        true => entry::readable(word),
        false => word.to_owned(),
    });
    words.collect::<Vec<_>>().join("`")
}

/// A number of things in words.
fn many(count: usize, one: &str, more: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { more })
}

/// A finding as the runtime has written it.
fn diagnostic(value: &Value) -> Option<Diagnostic> {
    let text = |value: &Value| value.as_str().unwrap_or("").to_owned();
    let texts = |value: &Value| -> Vec<String> {
        value
            .as_array()
            .map_or(Vec::new(), |list| list.iter().map(text).collect())
    };
    let span = |value: &Value| {
        let number = |at: usize| value.get(at)?.as_u64()?.try_into().ok();
        let ends = (number(0), number(1));
        ends.0
            .zip(ends.1)
            .map_or(Span::NONE, |(start, end)| Span { start, end })
    };
    let line = |value: &Value| {
        let number = |at: usize| value[at].as_u64()?.try_into().ok();
        Some(SourceLine {
            path: value[0].as_str()?.to_owned(),
            line: number(1)?,
            column: number(2)?,
            text: None,
        })
    };
    let code = rule::find(value["code"].as_str()?)?.code;
    let message = readable(&text(&value["message"]));
    let mut one = Diagnostic::error(code, span(&value["span"]), message);
    if value["warning"] == true {
        one.severity = Severity::Warning;
    }
    one.label = text(&value["label"]);
    one.source_line = line(&value["source_line"]);
    one.notes = texts(&value["notes"]);
    one.helps = texts(&value["helps"]);
    for other in value["others"].as_array().into_iter().flatten() {
        let text = text(&other[1]);
        one.others.push(Label {
            span: span(&other[0]),
            text,
            source_line: line(&other[2]),
        });
    }
    Some(one)
}
