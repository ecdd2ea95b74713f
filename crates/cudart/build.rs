//! Makes the rest of the functions: each name that programs may ask for and that `src/api` (the runtime) or
//! `src/driver` does not have says so when it is called, and the names for per-thread default streams are those
//! without the suffix.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::Path;
use std::{env, fs};

fn main() {
    let out = env::var("OUT_DIR").unwrap_or_default();
    let libraries = [
        ("names.txt", "src/api", "cuda", "rest.rs"),
        ("driver-names.txt", "src/driver", "cu", "driver.rs"),
    ];
    for (names, folder, start, file) in libraries {
        println!("cargo:rerun-if-changed={names}");
        println!("cargo:rerun-if-changed={folder}");
        let names = fs::read_to_string(names).unwrap_or_default();
        let text = functions(&names, &written(folder, start));
        fs::write(Path::new(&out).join(file), text)
            .expect("the folder for what is generated can be written");
    }
    // Programs ask for the symbols of a version of the library; these are the versions.
    let versions = Path::new(&out).join("versions.map");
    let nodes = "libcudart.so.11.0 { };\nlibcudart.so.12 { };\nlibcudart.so.13 { };\n";
    fs::write(&versions, nodes).expect("the folder for what is generated can be written");
    println!(
        "cargo:rustc-cdylib-link-arg=-Wl,--version-script={}",
        versions.display()
    );
}

/// The functions that the files of a folder have: written out, or in a list that a macro takes.
fn written(folder: &str, start: &str) -> BTreeSet<String> {
    let mut here = BTreeSet::new();
    for file in fs::read_dir(folder).into_iter().flatten().flatten() {
        let text = fs::read_to_string(file.path()).unwrap_or_default();
        let is_letter = |c: &char| c.is_alphanumeric() || *c == '_';
        let name = |place: &str| place.chars().take_while(is_letter).collect::<String>();
        let written = text
            .match_indices("extern \"C\" fn ")
            .map(|(at, found)| name(&text[at + found.len()..]));
        let lines = text.lines().map(str::trim);
        let listed = lines.filter(|line| line.ends_with(';')).flat_map(|line| {
            let names: Vec<String> = line.split(", ").map(name).collect();
            let first = names.first().map_or(0, String::len);
            match line.get(first..).and_then(|rest| rest.chars().next()) {
                Some('(' | ' ') => names[..1].to_vec(),
                Some(',') => names,
                _ => Vec::new(),
            }
        });
        let all = written.chain(listed);
        here.extend(all.filter(|name| name.trim_start_matches('_').starts_with(start)));
    }
    here
}

/// What is generated: the functions that are not written, and the table of all.
fn functions(names: &str, here: &BTreeSet<String>) -> String {
    let mut made = String::new();
    let mut table = String::new();
    let mut done = BTreeSet::new();
    for name in names.lines().chain(here.iter().map(String::as_str)) {
        if !done.insert(name) {
            continue;
        }
        let base = name.trim_end_matches("_ptsz").trim_end_matches("_ptds");
        let is_here = here.contains(base);
        let _ = writeln!(
            table,
            "    crate::api::Entry {{ name: \"{name}\", function: {name} as *const (), is_here: {is_here} }},"
        );
        if here.contains(name) {
            continue;
        }
        if is_here {
            let _ = writeln!(
                made,
                "#[unsafe(no_mangle)]\n#[unsafe(naked)]\nextern \"C\" fn {name}() {{\n    std::arch::naked_asm!(\"jmp {{}}\", sym {base})\n}}"
            );
        } else {
            let _ = writeln!(
                made,
                "#[unsafe(no_mangle)]\nextern \"C\" fn {name}() -> std::ffi::c_int {{\n    crate::runtime::missing(\"{name}\")\n}}"
            );
        }
    }
    format!(
        "{made}\n/// Every function by its name.\npub(crate) const FUNCTIONS: &[crate::api::Entry] = &[\n{table}];\n"
    )
}
