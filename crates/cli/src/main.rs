//! The `heist` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    heist_cli::command::Heist::from_words().run()
}
