//! Makes the rest of the runtime's functions: each name that programs may ask for and that
//! `src/api` does not have says so when it is called, and the names for per-thread default
//! streams are those without the suffix.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::Path;
use std::{env, fs};

fn main() {
    println!("cargo:rerun-if-changed=names.txt");
    println!("cargo:rerun-if-changed=src/api");
    let names = fs::read_to_string("names.txt").unwrap_or_default();
    let mut here = BTreeSet::new();
    for file in fs::read_dir("src/api").into_iter().flatten().flatten() {
        let text = fs::read_to_string(file.path()).unwrap_or_default();
        // Written out, or a line of a list that a macro takes.
        let written = text.match_indices("fn ").map(|(at, _)| &text[at + 3..]);
        let listed = text
            .lines()
            .map(str::trim)
            .filter(|line| line.ends_with(");"));
        for place in written.chain(listed) {
            let is_letter = |c: &char| c.is_alphanumeric() || *c == '_';
            let name: String = place.chars().take_while(is_letter).collect();
            let rest = place.chars().nth(name.chars().count());
            if name.trim_start_matches('_').starts_with("cuda") && rest == Some('(') {
                here.insert(name);
            }
        }
    }
    let mut made = String::new();
    let mut table = String::new();
    for name in names.lines().chain(here.iter().map(String::as_str)) {
        if table.contains(&format!("(\"{name}\",")) {
            continue;
        }
        let _ = writeln!(table, "    (\"{name}\", {name} as *const ()),");
        if here.contains(name) {
            continue;
        }
        let base = name.trim_end_matches("_ptsz").trim_end_matches("_ptds");
        if here.contains(base) {
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
    let text = format!(
        "{made}\n/// Every function by its name.\npub(crate) const FUNCTIONS: &[(&str, *const ())] = &[\n{table}];\n"
    );
    let out = env::var("OUT_DIR").unwrap_or_default();
    fs::write(Path::new(&out).join("rest.rs"), text)
        .expect("the folder for what is generated can be written");
    // Programs ask for the symbols of a version of the library; these are the versions.
    let versions = Path::new(&out).join("versions.map");
    let nodes = "libcudart.so.11.0 { };\nlibcudart.so.12 { };\nlibcudart.so.13 { };\n";
    fs::write(&versions, nodes).expect("the folder for what is generated can be written");
    println!(
        "cargo:rustc-cdylib-link-arg=-Wl,--version-script={}",
        versions.display()
    );
}
