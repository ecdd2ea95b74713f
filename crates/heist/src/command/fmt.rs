//! `heist fmt`: canonical PTX.

use super::{BadQuestion, Output, Verdict, file, read_source};
use clap::Args;
use heist_ptx::{parse, print};
use std::path::PathBuf;

/// Print PTX in its canonical form.
#[derive(Args)]
#[command(after_help = "\
Examples:
  heist fmt kernel.ptx               print the canonical form
  heist fmt --write *.ptx            rewrite the files in place
  heist fmt --check kernel.ptx       exit with 1 if it is not canonical
  nvcc -ptx k.cu -o - | heist fmt -  read standard input")]
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
            let source = read_source(path)?;
            let module = match parse(&source) {
                Ok(module) => module,
                Err(errors) => return Err(BadQuestion::Diagnostics(errors, source)),
            };
            let formatted = print(&module);
            let changed = formatted != source.text();
            if self.check && changed {
                verdict = Verdict::Found;
            }
            if out.json {
                report.push(serde_json::json!({
                    "file": source.name(),
                    "canonical": !changed,
                    "formatted": (!self.check && !self.write).then_some(&formatted),
                }));
            } else if self.check && changed {
                println!("{} is not canonical", source.name());
            } else if !self.check && !self.write {
                print!("{formatted}");
            }
            if self.write && changed {
                if path.as_os_str() == "-" {
                    return Err(BadQuestion::Sentence(
                        "standard input can't be rewritten; leave out --write".into(),
                    ));
                }
                file::write(path, &formatted)?;
            }
        }
        if out.json {
            out.json(&report);
        }
        Ok(verdict)
    }
}
