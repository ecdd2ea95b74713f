//! The `heist` command.

mod command;

use std::process::ExitCode;

fn main() -> ExitCode {
    command::Heist::from_words().run()
}
