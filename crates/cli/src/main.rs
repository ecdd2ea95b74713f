//! The `heist` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    heist_cli::progress::end_cleanly_when_interrupted();
    heist_cli::command::Heist::from_words().run()
}
