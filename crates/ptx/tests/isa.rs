//! The table of instructions against the files of the repository: every row is tested by
//! a file that has its opcode, or says why there is none.

use heist_oracle::workspace_root;
use heist_ptx::isa::{Tested, rows};
use heist_ptx::{Module, Source, Statement, parse};
use std::collections::BTreeSet;

/// The opcodes of a module, by what stands before the first dot.
fn opcodes(module: &Module) -> BTreeSet<String> {
    fn walk(statements: &[Statement], found: &mut BTreeSet<String>) {
        for statement in statements {
            match statement {
                Statement::Instruction(instruction) => {
                    found.insert(instruction.opcode.base().to_string());
                }
                Statement::Block(inner) => walk(inner, found),
                _ => {}
            }
        }
    }
    let mut found = BTreeSet::new();
    for function in module.functions() {
        walk(function.body.as_deref().unwrap_or(&[]), &mut found);
    }
    found
}

#[test]
fn every_row_is_tested_or_says_why_not() {
    let mut missing = Vec::new();
    for row in rows() {
        match row.tested {
            Tested::By(file) => {
                let of_tests = ["tests/ptx/", "corpus/", "rules/"];
                assert!(of_tests.iter().any(|folder| file.starts_with(folder)));
                let path = workspace_root().join(file);
                let there = std::fs::read_to_string(&path).is_ok_and(|text| {
                    parse(&Source::new(file, text))
                        .is_ok_and(|module| opcodes(&module).contains(row.name))
                });
                if !there {
                    missing.push(format!("{file} has no `{}`", row.name));
                }
            }
            Tested::NotSimulated(reason) => assert!(reason.len() > 10, "{}", row.name),
        }
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}
