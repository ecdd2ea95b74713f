//! Instructions of the corpus, changed a little: whatever the structural rules
//! call an error, ptxas rejects.
//!
//! Each instruction is taken out of its kernel and put into one of its own, its
//! registers renamed by type; then a type, a modifier, an operand, the target
//! or the version is changed. `HEIST_MUTANTS=20000 cargo test -p heist-ptx
//! --test validate mutants -- --nocapture` tries more of them, and says how
//! many of those that ptxas rejects are found here too.

use super::{ptx_files, read};
use heist_oracle::{Ptxas, parallel, workspace_root};
use heist_ptx::arch::Arch;
use heist_ptx::validate::validate;
use heist_ptx::{
    Address, AddressBase, Constant, Instruction, Module, Opcode, Operand, ScalarType, Severity,
    Source, Statement, Version, parse, print,
};
use std::collections::{BTreeSet, HashMap};

/// A small generator of numbers: what matters is that a seed repeats a run.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) as usize % end.max(1)
    }

    fn pick<'a, T>(&mut self, list: &'a [T]) -> &'a T {
        &list[self.below(list.len())]
    }
}

const REGISTER_TYPES: &[ScalarType] = &[
    ScalarType::Pred,
    ScalarType::B16,
    ScalarType::U16,
    ScalarType::B32,
    ScalarType::U32,
    ScalarType::S32,
    ScalarType::F32,
    ScalarType::B64,
    ScalarType::U64,
    ScalarType::F64,
    ScalarType::B128,
];

const TYPES: &[&str] = &[
    "pred", "b8", "b16", "b32", "b64", "b128", "u8", "u16", "u32", "u64", "s8", "s16", "s32",
    "s64", "f16", "f16x2", "bf16", "bf16x2", "f32", "f64",
];

type Types = HashMap<String, ScalarType>;

/// The types of all registers of a function; the last one of a name wins.
fn register_types(statements: &[Statement], types: &mut Types) {
    for statement in statements {
        match statement {
            Statement::Registers(registers) => {
                for name in &registers.names {
                    match name.count {
                        None => {
                            types.insert(name.name.to_string(), registers.ty);
                        }
                        Some(count) => {
                            for number in 0..count.min(5000) {
                                types.insert(format!("{}{number}", name.name), registers.ty);
                            }
                        }
                    }
                }
            }
            Statement::Block(inner) => register_types(inner, types),
            _ => {}
        }
    }
}

/// Renames the registers of an operand; `None` when it has names of another kind.
fn renamed(operand: &Operand, types: &Types, next: &mut usize) -> Option<Operand> {
    let mut rename = |name: &str| -> Option<String> {
        let ty = types.get(name)?;
        *next += 1;
        REGISTER_TYPES
            .contains(ty)
            .then(|| format!("%{ty}_{}", *next % 40))
    };
    Some(match operand {
        Operand::Name(name) => Operand::name(rename(name)?),
        Operand::Part { name, .. } if name.starts_with('%') => operand.clone(),
        Operand::Part { .. } | Operand::NegatedPart { .. } => return None,
        Operand::Not(name) => Operand::Not(rename(name)?.into()),
        Operand::Address(address) => {
            let AddressBase::Name(name) = &address.base else {
                return None;
            };
            let base = AddressBase::Name(rename(name)?.into());
            let rest: Option<Vec<Operand>> = address
                .rest
                .iter()
                .map(|operand| renamed(operand, types, next))
                .collect();
            Operand::Address(Address {
                base,
                rest: rest?,
                ..address.clone()
            })
        }
        Operand::Vector(list) => Operand::Vector(
            list.iter()
                .map(|operand| renamed(operand, types, next))
                .collect::<Option<_>>()?,
        ),
        Operand::Pair(pair) => Operand::Pair(Box::new((
            renamed(&pair.0, types, next)?,
            renamed(&pair.1, types, next)?,
        ))),
        Operand::Constant(Constant::Symbol(_) | Constant::Binary(..)) => return None,
        Operand::Constant(_) | Operand::Sink => operand.clone(),
        Operand::Tuple(_) => return None,
    })
}

/// Instructions of the corpus, each once, with a target that has it.
fn specimens() -> Vec<(Instruction, Version, Arch)> {
    fn collect(
        statements: &[Statement],
        types: &Types,
        module: &Module,
        arch: Arch,
        seen: &mut BTreeSet<String>,
        found: &mut Vec<(Instruction, Version, Arch)>,
    ) {
        for statement in statements {
            match statement {
                Statement::Block(inner) => collect(inner, types, module, arch, seen, found),
                Statement::Instruction(instruction) => {
                    let mut next = 0;
                    let operands: Option<Vec<Operand>> = instruction
                        .operands
                        .iter()
                        .map(|operand| renamed(operand, types, &mut next))
                        .collect();
                    let Some(operands) = operands else { continue };
                    let instruction = Instruction::new(instruction.opcode.clone(), operands);
                    if seen.insert(instruction.opcode.to_string()) {
                        found.push((instruction, module.version, arch));
                    }
                }
                _ => {}
            }
        }
    }
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    let root = workspace_root();
    let mut files = ptx_files(&root.join("corpus"));
    files.extend(ptx_files(&root.join("tests/ptx")));
    for file in files {
        let module = parse(&read(&file)).expect("the corpus parses");
        let Some(arch) = Arch::parse(&module.target.arch) else {
            continue;
        };
        for function in module.functions() {
            let mut types = Types::new();
            for param in function.params.iter().chain(&function.returns) {
                types.remove(param.name.as_str());
            }
            if let Some(body) = &function.body {
                register_types(body, &mut types);
                collect(body, &types, &module, arch, &mut seen, &mut found);
            }
        }
    }
    found
}

fn kernel(instruction: &Instruction, version: Version, arch: Arch) -> String {
    let mut module = Module::new(version, arch.name());
    let body = vec![Statement::Instruction(instruction.clone())];
    let mut function = parse(&Source::new(
        "frame",
        ".version 6.3\n.target sm_75\n.address_size 64\n.visible .entry k() .reqntid 128 {}\n",
    ))
    .expect("a valid frame")
    .functions()
    .next()
    .expect("one function")
    .clone();
    function.body = Some(body);
    module.items.push(heist_ptx::Item::Function(function));
    let text = print(&module);
    let mut declarations = String::new();
    for ty in REGISTER_TYPES {
        if *ty != ScalarType::B128 || text.contains("%b128_") {
            declarations += &format!(".reg .{ty} %{ty}_<40>;\n");
        }
    }
    text.replacen(
        '{',
        &format!("{{\n.shared .align 128 .b8 sm[128];\n{declarations}LABEL:\n"),
        1,
    )
}

/// Changes one thing.
fn mutate(instruction: &mut Instruction, random: &mut Random, modifiers: &[String]) {
    let at = random.below(instruction.operands.len());
    let mut parts: Vec<String> = instruction
        .opcode
        .as_str()
        .split('.')
        .map(str::to_string)
        .collect();
    match random.below(9) {
        0 | 1 if !instruction.operands.is_empty() => {
            let ty = random.pick(REGISTER_TYPES);
            let name = format!("%{ty}_{}", random.below(40));
            match &mut instruction.operands[at] {
                Operand::Address(address) => address.base = AddressBase::Name(name.into()),
                Operand::Vector(list) if !list.is_empty() => {
                    let inner = random.below(list.len());
                    list[inner] = Operand::name(name);
                }
                Operand::Pair(pair) => pair.1 = Operand::name(name),
                operand => *operand = Operand::name(name),
            }
        }
        2 | 3 => {
            let types: Vec<usize> = (1..parts.len())
                .filter(|&at| TYPES.contains(&parts[at].as_str()))
                .collect();
            if !types.is_empty() {
                let at = *random.pick(&types);
                parts[at] = random.pick(TYPES).to_string();
            }
        }
        4 if !instruction.operands.is_empty() => {
            instruction.operands.remove(at);
        }
        5 if !instruction.operands.is_empty() => {
            let copy = instruction.operands[at].clone();
            instruction.operands.insert(at, copy);
        }
        6 if !instruction.operands.is_empty() => {
            instruction.operands[at] = match random.below(7) {
                0 => Operand::int(1),
                1 => Operand::Constant(Constant::F64(0x3FF8_0000_0000_0000)),
                2 => Operand::Constant(Constant::F32(0x3F80_0000)),
                3 => Operand::Sink,
                4 => Operand::name("sm"),
                5 => Operand::name("LABEL"),
                _ => Operand::name("%laneid"),
            };
        }
        7 if parts.len() > 1 => {
            let at = 1 + random.below(parts.len() - 1);
            parts.remove(at);
        }
        _ => {
            let at = 1 + random.below(parts.len());
            parts.insert(at.min(parts.len()), random.pick(modifiers).clone());
        }
    }
    instruction.opcode = Opcode::from(parts.join("."));
}

#[test]
fn what_is_an_error_here_ptxas_rejects_too() {
    let Some(ptxas) = Ptxas::find_or_say_skipped() else {
        return;
    };
    let wanted: usize = std::env::var("HEIST_MUTANTS")
        .ok()
        .and_then(|count| count.parse().ok())
        .unwrap_or(300);
    let seed: u64 = std::env::var("HEIST_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok())
        .unwrap_or(1);
    let specimens = specimens();
    assert!(
        specimens.len() > 100,
        "only {} instructions",
        specimens.len()
    );
    let modifiers: Vec<String> = specimens
        .iter()
        .flat_map(|(instruction, ..)| {
            let parts: Vec<String> = instruction.opcode.modifiers().map(str::to_string).collect();
            parts
        })
        .collect::<BTreeSet<_>>()
        .into_iter()
        .collect();
    let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let mutants: Vec<(String, Arch)> = (0..wanted)
        .map(|number| {
            let (instruction, version, arch) = &specimens[number % specimens.len()];
            let (mut instruction, mut version, mut arch) = (instruction.clone(), *version, *arch);
            match random.below(8) {
                0 => arch = *random.pick(Arch::ALL),
                1 => {
                    let versions = [(7, 0), (7, 8), (8, 0), (8, 3), (8, 6), (8, 8), (9, 0)];
                    let (major, minor) = *random.pick(&versions);
                    version = Version::new(major, minor);
                }
                _ => mutate(&mut instruction, &mut random, &modifiers),
            }
            let version = version.max(arch.min_ptx());
            (kernel(&instruction, version, arch), arch)
        })
        .collect();
    let results: Vec<(bool, bool, Option<String>)> = parallel(&mutants, |(text, arch)| {
        let source = Source::new("mutant.ptx", text.as_str());
        let found = match parse(&source) {
            Ok(module) => validate(&module, Some(&source)),
            // Not a question for the structural rules.
            Err(_) => return (false, false, None),
        };
        let error = found
            .into_iter()
            .find(|diagnostic| diagnostic.severity == Severity::Error);
        let accepted = ptxas.accepts(text, arch.name());
        let complaint = error.as_ref().filter(|_| accepted).map(|error| {
            let line = source.position(error.span).line;
            format!("{error}\n    {} for {arch}", source.line(line).trim())
        });
        (error.is_some(), !accepted, complaint)
    });
    let here = results.iter().filter(|(error, ..)| *error).count();
    let there = results.iter().filter(|(_, rejected, _)| *rejected).count();
    println!(
        "{} mutants of {} instructions: ptxas rejects {there}, {here} are found here",
        mutants.len(),
        specimens.len(),
    );
    let wrong: Vec<&String> = results
        .iter()
        .filter_map(|(.., wrong)| wrong.as_ref())
        .collect();
    assert!(
        wrong.is_empty(),
        "ptxas accepts {} of them:\n{}",
        wrong.len(),
        wrong
            .iter()
            .map(|text| text.as_str())
            .collect::<Vec<_>>()
            .join("\n")
    );
    assert!(here * 3 > there, "too few errors are found");
}
