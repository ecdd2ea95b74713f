//! The `heist` command.

mod command;

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    command::Heist::parse().run()
}
