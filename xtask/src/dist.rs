//! A release: the crates as packages, the command in an archive with manual pages and completions,
//! the wheel, notes, the list of parts, and checksums, all in `target/dist`.

use crate::packages;
use crate::shell::{self, Failed};
use crate::wheel;
use std::fs;
use std::path::{Path, PathBuf};

/// The most that the command may take without its symbols.
const MOST_BYTES: u64 = 15_000_000;

/// Makes everything.
pub(crate) fn dist() -> Result<(), Failed> {
    let packages = packages::packages()?;
    packages::deny()?;
    let own = packages.iter().filter(|package| package.source.is_none());
    let versions: std::collections::BTreeSet<&str> = own.map(|p| p.version.as_str()).collect();
    let version = match versions.iter().collect::<Vec<_>>()[..] {
        [one] => (*one).to_owned(),
        _ => {
            return Err(Failed(format!(
                "the crates have several versions: {versions:?}"
            )));
        }
    };
    let folder = shell::root().join("target/dist");
    let _ = fs::remove_dir_all(&folder);
    make(&folder)?;
    let mut files = crates(&folder, &version)?;
    let archive = command(&folder, &version)?;
    let wheel = wheel::wheel()?;
    let wheel_here = folder.join(wheel.file_name().unwrap_or_default());
    fs::copy(&wheel, &wheel_here).map_err(|error| failed(&wheel, error))?;
    let changes = shell::root().join("CHANGELOG.md");
    let changes = fs::read_to_string(&changes).map_err(|error| failed(&changes, error))?;
    let notes = folder.join("NOTES.md");
    write(&notes, &notes_of(&changes, &version)?)?;
    let list = folder.join("heist.cdx.json");
    write(
        &list,
        &format!("{:#}\n", packages::parts(&version, &packages)),
    )?;
    files.extend([archive, wheel_here, notes, list]);
    checksums(&folder, &files)?;
    println!("{}", folder.display());
    Ok(())
}

fn failed(path: &Path, why: impl std::fmt::Display) -> Failed {
    Failed(format!("{}: {why}", path.display()))
}

fn make(folder: &Path) -> Result<(), Failed> {
    fs::create_dir_all(folder).map_err(|error| failed(folder, error))
}

fn write(path: &Path, text: &str) -> Result<(), Failed> {
    fs::write(path, text).map_err(|error| failed(path, error))
}

/// Packs the command's crates as a registry takes them. Each package is unpacked and compiled, so
/// what is missing in one is found.
fn crates(folder: &Path, version: &str) -> Result<Vec<PathBuf>, Failed> {
    let names = packages::of_the_command()?;
    let mut words = vec!["package", "--locked", "--offline", "--allow-dirty"];
    words.extend(names.iter().flat_map(|name| ["--package", name.as_str()]));
    shell::cargo(&words)?;
    let mut packed = Vec::new();
    for name in &names {
        let file = format!("{name}-{version}.crate");
        let made = shell::root().join("target/package").join(&file);
        let here = folder.join(&file);
        fs::copy(&made, &here).map_err(|error| failed(&made, error))?;
        packed.push(here);
    }
    Ok(packed)
}

/// Builds the command and packs it with what belongs to it.
fn command(folder: &Path, version: &str) -> Result<PathBuf, Failed> {
    let parts = [
        "-p",
        "heist-cli",
        "-p",
        "heist-cudart",
        "-p",
        "heist-recorder",
    ];
    shell::cargo(&[&["build", "--release", "--locked"], &parts[..]].concat())?;
    let name = format!(
        "heist-{version}-{}-{}",
        std::env::consts::ARCH,
        std::env::consts::OS
    );
    let inside = folder.join(&name);
    make(&inside.join("completions"))?;
    let program = inside.join("heist");
    // `heist cuda` and `heist record` look for their libraries beside themselves.
    for file in ["heist", "libheist_cudart.so", "libheist_recorder.so"] {
        let built = shell::root().join("target/release").join(file);
        fs::copy(&built, inside.join(file)).map_err(|error| failed(&built, error))?;
        shell::run(shell::command("strip").arg(inside.join(file)))?;
    }
    let bytes = fs::metadata(&program).map_or(0, |file| file.len());
    println!("heist: {:.1} MB without symbols", bytes as f64 / 1e6);
    if bytes > MOST_BYTES {
        return Err(Failed(format!(
            "heist takes {bytes} bytes, more than {MOST_BYTES}"
        )));
    }
    for shell_name in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let text = shell::command(&program)
            .args(["completions", shell_name])
            .output();
        let text = text.map_err(|error| failed(&program, error))?.stdout;
        let path = inside
            .join("completions")
            .join(format!("heist.{shell_name}"));
        fs::write(&path, text).map_err(|error| failed(&path, error))?;
    }
    shell::run(
        shell::command(&program)
            .args(["man", "--out"])
            .arg(inside.join("man")),
    )?;
    for file in ["README.md", "LICENSE-MIT", "LICENSE-APACHE"] {
        let from = shell::root().join(file);
        fs::copy(&from, inside.join(file)).map_err(|error| failed(&from, error))?;
    }
    let archive = folder.join(format!("{name}.tar.gz"));
    let mut tar = shell::command("tar");
    // The same input gives the same archive.
    tar.args([
        "--sort=name",
        "--owner=0",
        "--group=0",
        "--numeric-owner",
        "--mtime=@0",
    ]);
    shell::run(
        tar.arg("-czf")
            .arg(&archive)
            .arg("-C")
            .arg(folder)
            .arg(&name),
    )?;
    let _ = fs::remove_dir_all(&inside);
    Ok(archive)
}

/// What changed in this version: its section of the changelog, or what is not released yet.
fn notes_of(changes: &str, version: &str) -> Result<String, Failed> {
    let sections: Vec<&str> = changes.split("\n## ").skip(1).collect();
    let named = |name: &str| sections.iter().find(|text| text.starts_with(name));
    let section = named(version).or_else(|| named("Unreleased"));
    let section =
        section.ok_or_else(|| Failed(format!("CHANGELOG.md has no section {version}")))?;
    let (_, body) = section.split_once('\n').unwrap_or((section, ""));
    Ok(format!("# Heist {version}\n\n{}\n", body.trim()))
}

/// `SHA256SUMS`, as `sha256sum --check` reads it.
fn checksums(folder: &Path, files: &[PathBuf]) -> Result<(), Failed> {
    let names = files.iter().filter_map(|path| path.file_name());
    let sums = shell::command("sha256sum")
        .current_dir(folder)
        .args(names)
        .output();
    let sums = sums.map_err(|error| Failed(format!("sha256sum can't be started: {error}")))?;
    let path = folder.join("SHA256SUMS");
    fs::write(&path, sums.stdout).map_err(|error| failed(&path, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_are_the_section_of_the_version_or_what_is_unreleased() {
        let changes = "# Changes\n\n## Unreleased\n\n- new\n\n## 0.1.0\n\n- old\n";
        assert_eq!(
            notes_of(changes, "0.1.0").ok(),
            Some("# Heist 0.1.0\n\n- old\n".to_owned())
        );
        assert_eq!(
            notes_of(changes, "0.2.0").ok(),
            Some("# Heist 0.2.0\n\n- new\n".to_owned())
        );
        assert!(notes_of("# Changes\n", "0.1.0").is_err());
    }
}
