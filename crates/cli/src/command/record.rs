//! `heist record`: a launch of a program on a GPU, kept in a file.

use super::entry;
use super::injected::{self, Folder, Library};
use crate::answer::{BadQuestion, Output, Verdict, question};
use crate::file;
use clap::Args;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;

const LIBRARY: Library = Library {
    file: "libheist_recorder.so",
    what: "which sees the program's launches",
    variable: "HEIST_RECORDER",
    package: "heist-recorder",
};

const EXAMPLES: &str = "\
Examples:
  heist record ./app 1000                       the first launch, into record.heist
  heist record --kernel add --launch 3 -o add.heist ./app
  heist record --kernel softmax python train.py  a Triton kernel
  heist check record.heist                      replays it, anywhere, on a simulated GPU

The kernel's PTX is taken from the program, as nvcc's -arch= leaves it there, from what the program
gives to the driver, or from Triton's cache. Memory: the allocations that parameters point into, and
those that tables of up to 1 MiB there point into, and the module's variables, before and after.

Exit status: the program's own; 2 if nothing was recorded.";

/// Run a program on this machine's GPU, and keep one of its launches in a file.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct RecordCommand {
    /// The kernel, as the PTX or C++ names it [default: any].
    #[arg(long, value_name = "NAME")]
    kernel: Option<String>,
    /// Which of its launches, from 1.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    launch: u64,
    /// The file to write.
    #[arg(long, short, value_name = "FILE", default_value = "record.heist")]
    output: PathBuf,
    /// The most memory that is kept, in MiB; what is left out is told.
    #[arg(long, value_name = "MIB", default_value_t = 1024)]
    limit: u64,
    /// The kernel's PTX, where the program has machine code alone.
    #[arg(long, value_name = "FILE")]
    ptx: Option<PathBuf>,
    /// The program and its arguments.
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    program: Vec<OsString>,
}

/// What the program's run gave.
#[derive(Default)]
struct Seen {
    /// Kernels in the order of their first launches, with its shape and how many there were, where
    /// the program came to its end.
    kernels: Vec<(String, String, Option<u64>)>,
    recorded: Option<Value>,
    refused: Option<String>,
    remarks: Vec<String>,
}

impl RecordCommand {
    pub(crate) fn run(self, out: Output) -> Result<Verdict, BadQuestion> {
        file::writable(&self.output)?;
        let folder = Folder::new("record")?;
        let library = LIBRARY.find()?;
        let here = std::env::current_dir().map_err(question)?;
        let mut command = Command::new(&self.program[0]);
        let mut preload = library.into_os_string();
        if let Some(others) = std::env::var_os("LD_PRELOAD") {
            preload.push(":");
            preload.push(others);
        }
        // The program may go to another folder before it launches.
        command
            .args(&self.program[1..])
            .env("LD_PRELOAD", preload)
            .env("HEIST_RECORD_REPORT", &folder.path)
            .env("HEIST_RECORD_FILE", here.join(&self.output))
            .env("HEIST_RECORD_LAUNCH", self.launch.to_string())
            .env(
                "HEIST_RECORD_LIMIT",
                self.limit.saturating_mul(1 << 20).to_string(),
            );
        if let Some(kernel) = &self.kernel {
            command.env("HEIST_RECORD_KERNEL", kernel);
        }
        if let Some(ptx) = &self.ptx {
            std::fs::metadata(ptx)
                .map_err(|error| question(format!("{}: {error}", ptx.display())))?;
            command.env("HEIST_RECORD_PTX", here.join(ptx));
        }
        let status = injected::run(&mut command, &self.program[0])?;
        let seen = Seen::read(&folder);
        let Some(recorded) = &seen.recorded else {
            return Err(question(self.nothing(&seen)));
        };
        match out.json {
            true => out.json(&self.json(&seen, recorded)),
            false => self.tell(&seen, recorded),
        }
        Ok(Verdict::Status(injected::code(status)))
    }

    /// Why there is no record.
    fn nothing(&self, seen: &Seen) -> String {
        if let Some(refused) = &seen.refused {
            return refused.clone();
        }
        if seen.kernels.is_empty() {
            return "the program launched no kernel through the CUDA driver: does it find a GPU \
                    (`heist doctor`), and is it linked dynamically?"
                .to_owned();
        }
        let which = match &self.kernel {
            Some(kernel) => format!("launch {} of `{kernel}`", self.launch),
            None => format!("launch {}", self.launch),
        };
        let lines: Vec<String> = seen.kernels.iter().map(line).collect();
        format!(
            "there was no {which}; the program launched\n{}",
            lines.join("\n")
        )
    }

    /// For people, on standard error, as the program's own output is on the other.
    fn tell(&self, seen: &Seen, recorded: &Value) {
        eprintln!("heist: the program launched");
        for one in &seen.kernels {
            eprintln!("{}", line(one));
        }
        for remark in &seen.remarks {
            eprintln!("heist: {remark}");
        }
        for left in recorded["left_out"].as_array().into_iter().flatten() {
            eprintln!("heist: left out: {}", left.as_str().unwrap_or(""));
        }
        if recorded["status"] != 0 {
            eprintln!(
                "heist: the launch ended with status {} of the driver, so the memory after it is not known",
                recorded["status"]
            );
        }
        let name = self.output.display();
        eprintln!(
            "heist: {name}: launch {} (`{}`), {} stretches of memory with {} bytes; `heist check {name}` replays it",
            recorded["number"],
            entry::readable(recorded["kernel"].as_str().unwrap_or("")),
            recorded["stretches"],
            recorded["bytes"],
        );
    }

    fn json(&self, seen: &Seen, recorded: &Value) -> Value {
        let kernel = |(name, shape, count): &(String, String, Option<u64>)| json!({ "kernel": entry::readable(name), "shape": shape, "launches": count });
        json!({
            "file": self.output.display().to_string(),
            "kernel": recorded["kernel"],
            "number": recorded["number"],
            "stretches": recorded["stretches"],
            "bytes": recorded["bytes"],
            "status": recorded["status"],
            "left_out": recorded["left_out"],
            "kernels": seen.kernels.iter().map(kernel).collect::<Vec<_>>(),
            "remarks": seen.remarks,
        })
    }
}

/// A kernel that was launched, and how often.
fn line((name, shape, count): &(String, String, Option<u64>)) -> String {
    let count = count.map_or("?".to_owned(), |count| count.to_string());
    format!("{count:>8} x {} {shape}", entry::readable(name))
}

impl Seen {
    fn read(folder: &Folder) -> Seen {
        let mut seen = Seen::default();
        let mut counts: BTreeMap<String, u64> = BTreeMap::new();
        for line in folder.lines() {
            let text = |key: &str| line[key].as_str().map(str::to_owned);
            if let Some((kernel, shape)) = text("kernel").zip(text("shape")) {
                seen.kernels.push((kernel, shape, None));
            } else if let Some(all) = line["counts"].as_object() {
                // Each process of the program has its own.
                for (name, count) in all {
                    *counts.entry(name.clone()).or_default() += count.as_u64().unwrap_or(0);
                }
            } else if line["recorded"].is_object() {
                seen.recorded = Some(line["recorded"].clone());
            } else if let Some(refused) = text("refused") {
                seen.refused = Some(refused);
            } else if let Some(remark) = text("remark") {
                seen.remarks.push(remark);
            }
        }
        let mut known = std::collections::HashSet::new();
        seen.kernels.retain(|(name, ..)| known.insert(name.clone()));
        for (name, _, count) in &mut seen.kernels {
            *count = counts.get(name).copied();
        }
        seen
    }
}
