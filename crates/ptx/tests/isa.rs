//! The table of instructions against the files of the repository: every row is tested by
//! a file that has its opcode, or says why there is none.

use heist_oracle::workspace_root;
use heist_ptx::isa::{First, Memory, Tested, features_of, rows};
use heist_ptx::{Instruction, Module, Source, Statement, parse};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Every instruction of a module.
fn instructions(module: &Module, look: &mut dyn FnMut(&Instruction)) {
    fn walk(statements: &[Statement], look: &mut dyn FnMut(&Instruction)) {
        for statement in statements {
            match statement {
                Statement::Instruction(instruction) => look(instruction),
                Statement::Block(inner) => walk(inner, look),
                _ => {}
            }
        }
    }
    for function in module.functions() {
        walk(function.body.as_deref().unwrap_or(&[]), look);
    }
}

/// The opcodes of a module, by what stands before the first dot.
fn opcodes(module: &Module) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    instructions(module, &mut |instruction| {
        found.insert(instruction.opcode.base().to_string());
    });
    found
}

fn ptx_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(ptx_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "ptx") {
            files.push(path);
        }
    }
    files.sort();
    files
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
            Tested::NotSimulated(reason) => {
                assert!(reason.len() > 10, "{}", row.name);
                assert_eq!(row.tested.reason(), reason);
            }
        }
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

/// Spellings that no test file has, for needs that have several ways to be spelled.
const SPELLED: &[&str] = &[
    "add.rn.bf16x2",
    "add.rn.f32.bf16",
    "add.rn.f32.f16",
    "add.rn.f32x2",
    "add.s16x2",
    "add.s8x4",
    "add.u16x2",
    "add.u8x4",
    "fma.rn.f32.bf16",
    "ld.global.L2::128B.u32",
    "ld.global.L2::64B.u32",
    "ld.global.v4.b64",
    "ld.global.v8.b32",
    "ld.shared::cta.u32",
    "mbarrier.arrive.release.cta.shared::cta.b64",
    "mbarrier.arrive.relaxed.cluster.shared::cluster.b64",
    "mbarrier.arrive_drop.expect_tx.shared::cta.b64",
    "mbarrier.complete_tx.shared::cta.b64",
    "mbarrier.test_wait.acquire.cta.shared::cta.b64",
    "mbarrier.test_wait.relaxed.cta.shared::cta.b64",
    "mbarrier.try_wait.relaxed.cta.shared::cta.b64",
    "min.s16x2",
    "min.u16x2",
    "neg.bf16",
    "red.global.add.noftz.bf16x2",
    "st.global.v4.b64",
];

/// Every spelling that a test file has.
fn spellings_of_tests() -> BTreeSet<String> {
    let mut found: BTreeSet<String> = SPELLED.iter().map(ToString::to_string).collect();
    for folder in ["tests/ptx", "rules"] {
        for path in ptx_files(&workspace_root().join(folder)) {
            let text = std::fs::read_to_string(&path).unwrap();
            // Files that are no PTX are there as well: they test the parser.
            if let Ok(module) = parse(&Source::new(path.display().to_string(), text)) {
                instructions(&module, &mut |instruction| {
                    found.insert(instruction.opcode.as_str().to_owned());
                });
            }
        }
    }
    found
}

/// What an instruction needs of the target, what it does to memory, what its first
/// operand is; what most instructions are is left out.
fn properties(spelled: &str) -> Vec<String> {
    let instruction = Instruction::new(spelled, vec![]);
    let opcode = &instruction.opcode;
    let Some(row) = opcode.row() else {
        return vec!["unknown".to_owned()];
    };
    let mut found: Vec<String> = features_of(&instruction)
        .iter()
        .map(|feature| format!("needs {}", feature.name()))
        .collect();
    if row.memory_of(opcode) != Memory::None {
        found.push(format!("memory: {:?}", row.memory_of(opcode)));
    }
    if row.first(&instruction) != First::Written {
        found.push(format!("first operand: {:?}", row.first(&instruction)));
    }
    if row.is_asynchronous(opcode) {
        found.push("asynchronous".to_owned());
    }
    if found.is_empty() {
        found.push("nothing special".to_owned());
    }
    found
}

/// The golden file lists spellings by what the table says of them. New spellings in test
/// files come in when it is written anew.
#[test]
fn what_the_table_says_of_spellings_is_golden() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/isa.txt");
    let golden = std::fs::read_to_string(&path).unwrap_or_default();
    let bless = std::env::var_os("HEIST_BLESS").is_some();
    let listed = golden.lines().filter_map(|line| line.strip_prefix("    "));
    let spellings = match bless {
        true => spellings_of_tests(),
        false => listed.map(str::to_owned).collect(),
    };
    let mut told: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for spelled in &spellings {
        for property in properties(spelled) {
            told.entry(property).or_default().push(spelled);
        }
    }
    let mut text = String::new();
    for (property, spelled) in told {
        text.push_str(&format!("{property}\n    {}\n", spelled.join("\n    ")));
    }
    if bless {
        std::fs::write(&path, &text).expect("golden files can be written");
        return;
    }
    assert!(spellings.len() > 1000);
    for (line, expected) in text.lines().zip(golden.lines()) {
        assert_eq!(line, expected, "`cargo xtask bless` accepts a new table");
    }
    assert_eq!(text.len(), golden.len());
}
