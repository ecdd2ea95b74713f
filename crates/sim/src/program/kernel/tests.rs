//! The decoder against the table of instructions, over every file of the repository.

use super::{Variables, decode};
use crate::decode::variables::Addresses;
use heist_ptx::isa::{Tested, rows};
use heist_ptx::{Source, Statement, parse};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    let entries = std::fs::read_dir(folder).expect("a folder");
    for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
        if path.is_dir() {
            files(&path, found);
        } else if path.extension().is_some_and(|ext| ext == "ptx") {
            found.push(path);
        }
    }
}

fn opcodes(statements: &[Statement], found: &mut BTreeSet<String>) {
    for statement in statements {
        match statement {
            Statement::Instruction(instruction) => {
                found.insert(instruction.opcode.base().to_owned());
            }
            Statement::Block(inner) => opcodes(inner, found),
            _ => {}
        }
    }
}

/// What stands before the first dot of the instructions of every kernel that can be decoded.
fn decoded() -> BTreeSet<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut paths = Vec::new();
    for folder in ["tests/ptx", "rules", "corpus"] {
        files(&root.join(folder), &mut paths);
    }
    let mut found = BTreeSet::new();
    for path in paths {
        let text = std::fs::read_to_string(&path).expect("a file");
        let Ok(module) = parse(&Source::new("", text)) else {
            continue;
        };
        let Ok(variables) = Variables::of(&module, 0, &Addresses::default()) else {
            continue;
        };
        for entry in module.entries() {
            if decode(&module, &variables, &entry.name, 0).is_ok() {
                opcodes(entry.body.as_deref().unwrap_or(&[]), &mut found);
            }
        }
    }
    found
}

#[test]
fn the_decoder_and_the_table_know_the_same_opcodes() {
    let decoded = decoded();
    let of_table: BTreeSet<String> = rows()
        .filter(|row| matches!(row.tested, Tested::By(_)))
        .map(|row| row.name.to_owned())
        .collect();
    let unknown: Vec<_> = decoded.difference(&of_table).collect();
    let missing: Vec<_> = of_table.difference(&decoded).collect();
    assert!(
        unknown.is_empty(),
        "decoded, and the table says that it is not simulated: {unknown:?}"
    );
    assert!(
        missing.is_empty(),
        "the table says that it is simulated, and no kernel with it is decoded: {missing:?}"
    );
}
