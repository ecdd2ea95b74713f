//! `heist fmt`: canonical PTX.

use super::{BadQuestion, Output, Verdict, read_source};
use clap::Args;
use heist_ptx::{parse, print};
use std::io::Write;
use std::path::{Path, PathBuf};

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
                // A reader that went away is no error of ours.
                let _ = std::io::stdout().write_all(formatted.as_bytes());
            }
            if self.write && changed {
                replace(path, &formatted)?;
            }
        }
        if out.json {
            out.json(&report);
        }
        Ok(verdict)
    }
}

/// Puts `text` in place of a file, whole or not at all: it is written beside
/// the file first, so that a full disk can't cost anyone a kernel.
fn replace(path: &Path, text: &str) -> Result<(), BadQuestion> {
    let failed = |error: std::io::Error| {
        BadQuestion::Sentence(format!("can't write {}: {error}", path.display()))
    };
    if path.as_os_str() == "-" {
        return Err(BadQuestion::Sentence(
            "standard input can't be rewritten; leave out --write".into(),
        ));
    }
    let mut beside = path.as_os_str().to_owned();
    beside.push(".heist-tmp");
    let written = std::fs::write(&beside, text).and_then(|()| {
        std::fs::set_permissions(&beside, std::fs::metadata(path)?.permissions())?;
        std::fs::rename(&beside, path)
    });
    written.map_err(|error| {
        let _ = std::fs::remove_file(&beside);
        failed(error)
    })
}
