//! ptxas, where there is one: where it is, and what it makes of a module.

use heist_check::log::{self, Reading, TextKind};
use heist_ptx::{Module, Source, Span};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{fs, process};

/// The assembler and its version line: by `HEIST_PTXAS`, in `.venv` here, or on
/// the path.
pub(super) fn find() -> Option<(PathBuf, String)> {
    let named = std::env::var_os("HEIST_PTXAS").map(PathBuf::from);
    let candidates = named
        .into_iter()
        .chain(in_virtual_environment(Path::new(".venv")))
        .chain([PathBuf::from("ptxas")]);
    candidates.into_iter().find_map(|path| {
        let answer = Command::new(&path).arg("--version").output().ok()?;
        let text = String::from_utf8_lossy(&answer.stdout).into_owned();
        let version = text.lines().find(|line| line.contains("release"))?;
        Some((path, version.trim().to_owned()))
    })
}

fn in_virtual_environment(root: &Path) -> Vec<PathBuf> {
    let Ok(pythons) = fs::read_dir(root.join("lib")) else {
        return Vec::new();
    };
    pythons
        .flatten()
        .map(|python| python.path().join("site-packages/nvidia/cu13/bin/ptxas"))
        .filter(|path| path.exists())
        .collect()
}

/// The assembler's log of each kernel for its target, read: resources, and findings such as spills.
/// Or why that is not known.
pub(super) fn read(source: &Source, module: &Module) -> Result<Reading, String> {
    let Some((ptxas, _)) = find() else {
        return Err(
            "there is no ptxas here: put it on the path, or name it in HEIST_PTXAS".to_owned(),
        );
    };
    // It reads files alone, and the text may have come from standard input.
    let file = std::env::temp_dir().join(format!("heist-{}.ptx", process::id()));
    fs::write(&file, source.text()).map_err(|error| error.to_string())?;
    let done = Command::new(ptxas)
        .args(["-v", "-o", "/dev/null"])
        .arg(format!("-arch={}", module.target.arch))
        .arg(&file)
        .stdin(Stdio::null())
        .output();
    let _ = fs::remove_file(&file);
    let done = done.map_err(|error| error.to_string())?;
    let said = String::from_utf8_lossy(&[done.stdout, done.stderr].concat()).into_owned();
    if !done.status.success() {
        let first = said.lines().next().unwrap_or_default();
        return Err(format!("ptxas does not assemble it: {first}"));
    }
    let mut reading = log::read(TextKind::Assembler, &Source::new("ptxas", said));
    // The places are lines of the log; here they are the kernels that it speaks of.
    for finding in &mut reading.findings {
        let named = |name: &str| finding.message.contains(&format!("`{name}`"));
        let kernel = module.entries().find(|entry| named(entry.name.as_str()));
        finding.span = kernel.map_or(Span::NONE, |entry| entry.span);
        finding.others.clear();
    }
    Ok(reading)
}
