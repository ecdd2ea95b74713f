//! `heist completions`: what a shell asks when Tab is pressed.

use crate::answer::{BadQuestion, Output, Verdict};
use clap::Args;
use clap_complete::Shell;
use serde_json::json;

/// Print completions for a shell.
#[derive(Args)]
#[command(after_help = "\
Examples:
  heist completions bash > ~/.local/share/bash-completion/completions/heist
  heist completions zsh > ~/.zfunc/_heist          with ~/.zfunc in fpath
  heist completions fish > ~/.config/fish/completions/heist.fish")]
pub(crate) struct Completions {
    /// Which shell.
    #[arg(value_enum)]
    shell: Shell,
}

impl Completions {
    /// For the command line `whole`.
    pub(crate) fn run(self, mut whole: clap::Command, out: Output) -> Result<Verdict, BadQuestion> {
        let mut text = Vec::new();
        clap_complete::generate(self.shell, &mut whole, "heist", &mut text);
        let text = String::from_utf8_lossy(&text);
        if out.json {
            out.json(&json!({ "shell": self.shell.to_string(), "text": text }));
        } else {
            print!("{text}");
        }
        Ok(Verdict::Clean)
    }
}
