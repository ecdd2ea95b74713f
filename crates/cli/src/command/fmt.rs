//! `heist fmt`: canonical PTX.

use crate::answer::{BadQuestion, Output, Verdict};
use crate::file::{self, read_exactly};
use clap::Args;
use heist_ptx::{parse, print};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// Print PTX in its canonical form.
#[derive(Args)]
#[command(after_help = "\
Examples:
  heist fmt kernel.ptx               print the canonical form
  heist fmt --write *.ptx            rewrite the files in place
  heist fmt --check kernel.ptx       exit with 1 if it is not canonical
  nvcc -ptx k.cu -o - | heist fmt -  read standard input

Exit status: 0 done, 1 a file is not canonical (--check), 2 a file is no PTX or can't be written.")]
pub(crate) struct Fmt {
    /// PTX files; `-` is standard input.
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// Rewrite the files instead of printing them.
    #[arg(long, conflicts_with = "check")]
    write: bool,
    /// Only say which files are not canonical.
    #[arg(long)]
    check: bool,
}

impl Fmt {
    pub(crate) fn run(self, out: Output) -> Result<Verdict, BadQuestion> {
        let mut verdict = Verdict::Clean;
        let mut report = Vec::new();
        for path in &self.files {
            match self.format(path, out) {
                Ok((told, canonical)) => {
                    report.push(told);
                    if self.check && !canonical && verdict == Verdict::Clean {
                        verdict = Verdict::Found;
                    }
                }
                // One file that can't be read does not keep the others from being done.
                Err(question) if self.files.len() > 1 => {
                    verdict = Verdict::Partly;
                    question.tell(Output::for_people());
                    let mut told = question.to_json();
                    told["file"] = json!(path.display().to_string());
                    report.push(told);
                }
                Err(question) => return Err(question),
            }
        }
        if out.json {
            out.json(&json!({ "files": report }));
        }
        Ok(verdict)
    }
    /// One file: what to say of it, and whether it was canonical.
    fn format(&self, path: &Path, out: Output) -> Result<(Value, bool), BadQuestion> {
        let source = read_exactly(path)?;
        let module = match parse(&source) {
            Ok(module) => module,
            Err(errors) => return Err(BadQuestion::Diagnostics(errors, source)),
        };
        let formatted = print(&module);
        let canonical = formatted == source.text();
        let printed = !self.check && !self.write;
        if self.write && !canonical {
            if path.as_os_str() == "-" {
                return Err(BadQuestion::Sentence(
                    "standard input can't be rewritten; leave out --write".into(),
                ));
            }
            file::write(path, &formatted)?;
        }
        if !out.json && self.check && !canonical {
            println!("{} is not canonical", source.name());
        } else if !out.json && printed {
            print!("{formatted}");
        }
        let told = json!({
            "file": source.name(),
            "canonical": canonical,
            "formatted": printed.then_some(formatted),
        });
        Ok((told, canonical))
    }
}
