//! Checks the GPU crate on the GPU of this machine, one thing after another.
//!
//! `cargo run -p heist-bench --bin hardware`; exits with 0 when all is well, 1
//! when a check failed, 2 when there is no GPU to check. The kernels are for
//! sm_90 and later. With a number, it runs only that one of the checks which cost
//! the context.

#[path = "../../crates/gpu/tests/hardware/checks.rs"]
mod checks;

use std::process::ExitCode;

fn main() -> ExitCode {
    let only = std::env::args().nth(1).and_then(|arg| arg.parse().ok());
    let ran = only.map_or_else(checks::run_all, checks::run_fatal);
    match ran {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(if error.is_about_the_machine() { 2 } else { 1 })
        }
    }
}
