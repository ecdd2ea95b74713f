//! `heist man`: the manual pages.

use crate::answer::{BadQuestion, Output, Verdict, question};
use crate::file;
use clap::Args;
use serde_json::json;
use std::path::{Path, PathBuf};

/// Print the manual page, or write those of all commands into a folder.
#[derive(Args)]
#[command(after_help = "\
Examples:
  heist man | man -l -                              read it
  heist man --out ~/.local/share/man/man1           all pages; then `man heist-check`")]
pub(crate) struct Man {
    /// A folder for the pages of all commands.
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
}

impl Man {
    /// For the command line `whole`.
    pub(crate) fn run(self, mut whole: clap::Command, out: Output) -> Result<Verdict, BadQuestion> {
        whole.build();
        let pages = pages(&whole)?;
        let Some(folder) = &self.out else {
            let (_, text) = &pages[0];
            if out.json {
                out.json(&json!({ "text": text }));
            } else {
                print!("{text}");
            }
            return Ok(Verdict::Clean);
        };
        let written = write(folder, &pages)?;
        if out.json {
            out.json(&json!({ "files": written }));
        } else {
            println!("{} pages in {}", written.len(), folder.display());
        }
        Ok(Verdict::Clean)
    }
}

/// The page of the command and of each subcommand, by name.
fn pages(command: &clap::Command) -> Result<Vec<(String, String)>, BadQuestion> {
    let commands = command.get_subcommands().filter(|sub| !sub.is_hide_set());
    std::iter::once(command)
        .chain(commands.filter(|sub| sub.get_name() != "help"))
        .map(|one| {
            let name = match one.get_name() {
                "heist" => "heist".to_owned(),
                sub => format!("heist-{sub}"),
            };
            let mut text = Vec::new();
            let page = clap_mangen::Man::new(one.clone()).title(name.clone());
            page.render(&mut text).map_err(question)?;
            Ok((name, String::from_utf8_lossy(&text).into_owned()))
        })
        .collect()
}

fn write(folder: &Path, pages: &[(String, String)]) -> Result<Vec<PathBuf>, BadQuestion> {
    std::fs::create_dir_all(folder)
        .map_err(|error| question(format!("can't write {}: {error}", folder.display())))?;
    pages
        .iter()
        .map(|(name, text)| {
            let path = folder.join(format!("{name}.1"));
            file::write(&path, text.clone())?;
            Ok(path)
        })
        .collect()
}
