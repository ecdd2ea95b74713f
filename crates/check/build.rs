//! Takes the pages of the rules into the library.
//!
//! Each folder `rules/CODE-slug` holds what is to be said of one rule: a page,
//! a kernel that breaks it and its twin that keeps it. The same files are the
//! tests, so what `heist explain` shows is what was tested. `rules` is a link beside this file, so
//! that a package of the crate has the pages too.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let here = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
    let rules = here.join("rules").canonicalize()?;
    println!("cargo::rerun-if-changed={}", rules.display());
    let mut folders: Vec<PathBuf> = fs::read_dir(&rules)?
        .map(|entry| Ok(entry?.path()))
        .collect::<io::Result<_>>()?;
    folders.retain(|folder| folder.is_dir());
    folders.sort();
    let mut out = String::from("&[\n");
    for folder in &folders {
        let name = folder.file_name().unwrap_or_default().to_string_lossy();
        let code = name.split('-').next().unwrap_or_default();
        let _ = writeln!(
            out,
            "    Page {{ code: {code:?}, text: {}, bad: {}, good: {} }},",
            include(&folder.join("page.md")),
            include(&folder.join("bad.ptx")),
            include(&folder.join("good.ptx")),
        );
        println!("cargo::rerun-if-changed={}", folder.display());
    }
    out.push_str("]\n");
    let target = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default()).join("pages.rs");
    fs::write(target, out)
}

fn include(path: &Path) -> String {
    match path.canonicalize() {
        Ok(path) => format!("Some(include_str!({:?}))", path.display().to_string()),
        Err(_) => "None".into(),
    }
}
