//! `heist new`: a project with one kernel, to start from.

use crate::answer::{BadQuestion, Output, Verdict, question};
use clap::Args;
use serde_json::json;
use std::path::{Path, PathBuf};

/// The program that it starts with is an example of the library, so the tests compile and run it.
const PROGRAM: &str = include_str!("../../include/first_kernel.rs");

/// Start a project: a folder with one kernel, its check, and a run on a simulated GPU.
#[derive(Args)]
#[command(after_help = "\
Examples:
  heist new mine && cd mine && cargo run
  heist new mine --heist ~/src/heist       where the toolkit's sources are")]
pub(crate) struct New {
    /// The folder, which must not be there; its last part names the project.
    path: PathBuf,
    /// A checkout of Heist [default: the one that this command was built from].
    #[arg(long, value_name = "FOLDER")]
    heist: Option<PathBuf>,
}

impl New {
    pub(crate) fn run(self, out: Output) -> Result<Verdict, BadQuestion> {
        let name = name(&self.path)?;
        let library = self.library()?;
        if self.path.exists() {
            let path = self.path.display();
            return Err(question(format!(
                "{path} is there already; take another name"
            )));
        }
        let manifest = format!(
            "[package]\nname = \"{name}\"\nversion = \"0.1.0\"\nedition = \"2024\"\nrust-version = \"{}\"\n\n\
             # With the feature \"kernels\" there are also GEMM, attention and the others that ship.\n\
             [dependencies]\nheist = {{ path = {:?}, default-features = false, features = [\"gpu\", \"builder\"] }}\n\n\
             # The simulator is worth optimising also while you debug.\n\
             [profile.dev.package]\nheist-arith.opt-level = 2\nheist-launch.opt-level = 2\nheist-sim.opt-level = 2\n{}",
            env!("CARGO_PKG_RUST_VERSION"),
            library.display().to_string(),
            match inside_a_workspace(&self.path) {
                true => "\n# Not a part of the workspace in a folder above.\n[workspace]\n",
                false => "",
            }
        );
        let files = [
            ("Cargo.toml", manifest.as_str()),
            ("src/main.rs", PROGRAM),
            (".gitignore", "/target\n"),
        ];
        for (file, text) in files {
            let path = self.path.join(file);
            let written = path
                .parent()
                .map_or(Ok(()), std::fs::create_dir_all)
                .and_then(|()| std::fs::write(&path, text));
            written
                .map_err(|error| question(format!("can't write {}: {error}", path.display())))?;
        }
        let path = self.path.display();
        if out.json {
            let made = files.map(|(file, _)| self.path.join(file));
            out.json(&json!({ "name": name, "files": made }));
        } else {
            println!("{path} has a kernel in src/main.rs.\nNow:\n  cd {path}\n  cargo run");
        }
        Ok(Verdict::Clean)
    }

    /// The folder of the library's crate.
    fn library(&self) -> Result<PathBuf, BadQuestion> {
        let root = match &self.heist {
            Some(root) => root.clone(),
            None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."),
        };
        let library = root.join("crates/heist");
        match std::fs::canonicalize(&library) {
            Ok(library) if library.join("Cargo.toml").is_file() => Ok(library),
            _ => Err(question(format!(
                "the toolkit's sources are not in {}; say where they are with --heist FOLDER",
                root.display()
            ))),
        }
    }
}

/// Whether a folder above has a workspace, such as the checkout of Heist: cargo would take the
/// project for a part of it, and refuse it.
fn inside_a_workspace(path: &Path) -> bool {
    let whole = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    whole.ancestors().skip(1).any(|folder| {
        let manifest = std::fs::read_to_string(folder.join("Cargo.toml"));
        manifest.is_ok_and(|text| text.lines().any(|line| line.starts_with("[workspace")))
    })
}

/// The project's name, as cargo takes it.
fn name(path: &Path) -> Result<String, BadQuestion> {
    let name = path
        .file_name()
        .map(|name| name.to_string_lossy().into_owned());
    let fits = |name: &String| {
        let letters = name
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "-_".contains(c));
        letters && name.starts_with(|c: char| c.is_ascii_alphabetic())
    };
    let name = name.filter(fits).ok_or_else(|| {
        question(format!(
            "`{}` names no project: a letter, then letters, digits, - and _",
            path.display()
        ))
    })?;
    // Cargo takes no second package of the library's names, and no program with the name of one of
    // its own folders.
    let taken = name == "heist" || name.starts_with("heist-");
    let folder = ["build", "deps", "examples", "incremental"].contains(&name.as_str());
    match taken || folder {
        false => Ok(name),
        true => Err(question(format!(
            "cargo builds no project `{name}` here: {}; take another name",
            match taken {
                true => "the toolkit's own crates have such names",
                false => "its own folders have such names",
            }
        ))),
    }
}
