//! Checks this crate on the GPU of this machine, one thing after another.
//!
//! `cargo run --example hardware -p heist-gpu`; exits with 0 when all is well, 1
//! when a check failed, 2 when there is no GPU to check. The kernels are for
//! sm_90 and later.

mod checks;

use std::process::ExitCode;

fn main() -> ExitCode {
    match checks::run_all() {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(if error.is_about_the_machine() { 2 } else { 1 })
        }
    }
}
