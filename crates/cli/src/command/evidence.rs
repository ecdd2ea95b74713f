//! `heist evidence`: packs of evidence, verified.

use super::assembler;
use crate::answer::{BadQuestion, Output, Verdict, question};
use crate::bench::pack;
use clap::{Args, Subcommand};
use heist_check::log::Reading;
use heist_ptx::Source;
use serde_json::json;
use std::path::PathBuf;

/// Verify a pack of evidence that `heist bench --evidence` made.
#[derive(Args)]
#[command(after_help = "\
Looks at every item of the pack again: hashes of all files, medians of the samples, kernels and the counts of \
their instructions, spills, the sanitizers' verdicts and logs, the machine; and assembles every kernel where \
there is a ptxas.

Example:
  heist evidence verify bench/evidence

Exit status: 0 everything holds, 1 something is missing or false, 2 there is no pack.")]
pub(crate) struct Evidence {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Check that a pack is consistent, and repeat what can be repeated.
    Verify {
        /// The pack.
        folder: PathBuf,
    },
}

impl Evidence {
    pub(crate) fn run(self, out: Output) -> Result<Verdict, BadQuestion> {
        let What::Verify { folder } = self.what;
        if !folder.is_dir() {
            return Err(question(format!(
                "{}: there is no such folder; `heist bench --evidence DIR` makes a pack",
                folder.display()
            )));
        }
        let assemble = |source: &Source| again(source);
        let ptxas = assembler::find().is_some();
        let verified = pack::verify(&folder, ptxas.then_some(&assemble));
        if out.json {
            out.json(&json!({
                "held": verified.held,
                "broken": verified.broken,
                "skipped": verified.skipped,
            }));
        } else {
            for line in &verified.broken {
                println!("broken: {line}");
            }
            for line in &verified.skipped {
                println!("not looked at: {line}");
            }
            println!(
                "{} items hold, {} do not",
                verified.held,
                verified.broken.len()
            );
        }
        Ok(match verified.broken.is_empty() {
            true => Verdict::Clean,
            false => Verdict::Found,
        })
    }
}

/// Whether each kernel spills when it is assembled here.
fn again(source: &Source) -> Result<Vec<(String, bool)>, String> {
    let module = heist_ptx::parse(source).map_err(|_| "it is no PTX".to_owned())?;
    let reading: Reading = assembler::read(source, &module)?;
    let spilled = |name: &str| {
        let of = |finding: &&heist_ptx::Diagnostic| finding.message.contains(&format!("`{name}`"));
        reading
            .findings
            .iter()
            .filter(of)
            .any(|finding| finding.message.contains("spill"))
    };
    Ok(module
        .entries()
        .map(|entry| (entry.name.to_string(), spilled(entry.name.as_str())))
        .collect())
}
