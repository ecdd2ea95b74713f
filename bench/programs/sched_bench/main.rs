//! Schedules on a real GPU: exactly once, how fast, and whether the simulator
//! ranks them alike.
//!
//! ```text
//! cargo run --release -p heist-bench --bin sched_bench -- once 1000 --json once.json
//! cargo run --release -p heist-bench --bin sched_bench -- grouped
//! cargo run --release -p heist-bench --bin sched_bench -- loaded
//! nvcc -O3 -arch=sm_90 -ptx -o plain.ptx bench/sched/plain.cu
//! cargo run --release -p heist-bench --bin sched_bench -- table --peer plain.ptx --json table.json
//! cargo run --release -p heist-bench --bin sched_bench -- agree table.json
//! ```
//!
//! `once`, `grouped`, `loaded` and `table` need a GPU; `agree` compares a table with the simulator and
//! needs none.

#[path = "../../../crates/sched/tests/common/adversaries.rs"]
mod adversaries;
mod agree;
mod grouped;
mod loaded;
mod once;
mod overlap;
mod table;

use std::process::ExitCode;

/// What any part may fail with.
type Failure = Box<dyn std::error::Error>;

/// The value behind a flag.
fn flag(words: &[String], name: &str) -> Option<String> {
    let at = words.iter().position(|word| word == name)?;
    words.get(at + 1).cloned()
}

fn number(words: &[String], name: &str, otherwise: u32) -> Result<u32, Failure> {
    match flag(words, name) {
        Some(text) => Ok(text.parse()?),
        None => Ok(otherwise),
    }
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let ran = match words.first().map(String::as_str) {
        Some("once") => once::run(&words[1..]),
        Some("grouped") => grouped::run(&words[1..]),
        Some("loaded") => loaded::run(&words[1..]),
        Some("table") => table::run(&words[1..]),
        Some("agree") => agree::run(&words[1..]),
        _ => Err(
            "say `once COUNT`, `grouped`, `loaded`, `table --peer plain.ptx` or `agree table.json`"
                .into(),
        ),
    };
    match ran {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("sched_bench: {error}");
            ExitCode::from(2)
        }
    }
}
