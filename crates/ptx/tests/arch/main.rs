//! The architecture table against ptxas: limits at and one past the edge,
//! targets and features at their first version and the one before.

mod limits;
mod snippets;

use heist_oracle::{Ptxas, parallel};
use heist_ptx::arch::{Arch, Feature, NEWEST_PTX, OldTarget, Support};
use heist_ptx::validate::validate;
use heist_ptx::{Code, Source, Version, parse, rule};
use snippets::snippet;

/// Every version since the first with addresses of 64 bits.
const VERSIONS: &[(u8, u8)] = &[
    (2, 3),
    (3, 0),
    (3, 1),
    (3, 2),
    (4, 0),
    (4, 1),
    (4, 2),
    (4, 3),
    (5, 0),
    (5, 1),
    (6, 0),
    (6, 1),
    (6, 2),
    (6, 3),
    (6, 4),
    (6, 5),
    (7, 0),
    (7, 1),
    (7, 2),
    (7, 3),
    (7, 4),
    (7, 5),
    (7, 6),
    (7, 7),
    (7, 8),
    (8, 0),
    (8, 1),
    (8, 2),
    (8, 3),
    (8, 4),
    (8, 5),
    (8, 6),
    (8, 7),
    (8, 8),
    (9, 0),
    (9, 1),
    (9, 2),
    (9, 3),
    (9, 4),
];

fn before(version: Version) -> Option<Version> {
    VERSIONS
        .iter()
        .map(|&(major, minor)| Version::new(major, minor))
        .rfind(|&other| other < version)
}

fn header(version: Version, arch: Arch) -> String {
    format!(".version {version}\n.target {arch}\n.address_size 64\n")
}

/// One question to ptxas, and the answer that the table gives.
struct Question {
    what: String,
    ptx: String,
    arch: Arch,
    accepted: bool,
}

fn ask_all(ptxas: &Ptxas, questions: &[Question]) {
    let wrong: Vec<String> = parallel(questions, |question| {
        let answer = ptxas.assemble(&question.ptx, question.arch.name());
        match (answer, question.accepted) {
            (Ok(_), true) | (Err(_), false) => None,
            (Ok(_), false) => Some(format!("{}: ptxas accepts it", question.what)),
            (Err(refusal), true) => Some(format!("{}: {refusal}", question.what)),
        }
    })
    .into_iter()
    .flatten()
    .collect();
    assert!(
        wrong.is_empty(),
        "{} of {} answers differ:\n{}",
        wrong.len(),
        questions.len(),
        wrong.join("\n")
    );
}

#[test]
fn a_target_exists_from_its_first_version_on() {
    let Some(ptxas) = Ptxas::find_or_say_skipped() else {
        return;
    };
    let mut questions = Vec::new();
    for &arch in Arch::ALL {
        let mut ask = |version: Version, accepted| {
            questions.push(Question {
                what: format!("{arch} in {version}"),
                ptx: format!("{}.visible .entry k() {{ ret; }}\n", header(version, arch)),
                arch,
                accepted,
            });
        };
        ask(arch.min_ptx(), true);
        ask(NEWEST_PTX, true);
        if let Some(earlier) = before(arch.min_ptx()) {
            ask(earlier, false);
        }
    }
    ask_all(&ptxas, &questions);
}

#[test]
fn an_old_target_exists_from_its_first_version_on() {
    let Some(ptxas) = Ptxas::find_or_say_skipped() else {
        return;
    };
    let mut questions = Vec::new();
    for name in OldTarget::names() {
        let old = OldTarget::parse(&name).expect("a name of the list");
        // ptxas makes no code for the target itself; of `sm_101` it takes none at all.
        if old.number > 90 {
            continue;
        }
        let mut ask = |version: Version, accepted| {
            questions.push(Question {
                what: format!("{name} in {version}"),
                ptx: format!(
                    ".version {version}\n.target {name}\n.address_size 64\n.visible .entry k() {{ ret; }}\n"
                ),
                arch: Arch::SM_90,
                accepted,
            });
        };
        ask(old.min_ptx, true);
        if let Some(earlier) = before(old.min_ptx) {
            ask(earlier, false);
        }
    }
    ask_all(&ptxas, &questions);
}

#[test]
fn code_assembles_for_the_machines_that_the_table_says() {
    let Some(ptxas) = Ptxas::find_or_say_skipped() else {
        return;
    };
    // Of each target, the machines on both sides of every edge of its range.
    let mut questions = Vec::new();
    for &target in Arch::ALL {
        for (at, &machine) in Arch::ALL.iter().enumerate() {
            let here = target.assembles_for(machine);
            let edge = [at.wrapping_sub(1), at + 1].into_iter().any(|next| {
                Arch::ALL
                    .get(next)
                    .is_some_and(|&next| target.assembles_for(next) != here)
            });
            if edge {
                questions.push(Question {
                    what: format!("{target} for {machine}"),
                    ptx: format!(
                        "{}.visible .entry k() {{ ret; }}\n",
                        header(NEWEST_PTX, target)
                    ),
                    arch: machine,
                    accepted: here,
                });
            }
        }
    }
    ask_all(&ptxas, &questions);
}

#[test]
fn a_feature_exists_on_its_targets_alone() {
    let Some(ptxas) = Ptxas::find_or_say_skipped() else {
        return;
    };
    let mut questions = Vec::new();
    for &feature in Feature::ALL {
        let archs: Vec<Arch> = match feature.support() {
            // The first, the last, and what lies just below the first.
            Support::From(number) => {
                let from = Arch::ALL.iter().position(|arch| arch.number() >= number);
                let from = from.expect("some target has it");
                let mut archs = vec![Arch::ALL[from], Arch::SM_121];
                if from > 0 {
                    archs.push(Arch::ALL[from - 1]);
                }
                archs
            }
            Support::Only(_) => Arch::ALL.to_vec(),
        };
        for arch in archs {
            questions.push(Question {
                what: format!("{feature:?} on {arch}"),
                ptx: kernel(feature, NEWEST_PTX, arch),
                arch,
                accepted: arch.supports(feature),
            });
        }
    }
    ask_all(&ptxas, &questions);
}

#[test]
fn a_feature_exists_from_its_first_version_on() {
    let Some(ptxas) = Ptxas::find_or_say_skipped() else {
        return;
    };
    let mut questions = Vec::new();
    for &feature in Feature::ALL {
        // The oldest target that has it, and the one that had it in the oldest version.
        let having = || Arch::ALL.iter().filter(|arch| arch.supports(feature));
        let first = having().next();
        let earliest = having().min_by_key(|arch| arch.ptx_for(feature));
        let mut archs: Vec<Arch> = [first, earliest].into_iter().flatten().copied().collect();
        archs.dedup();
        for arch in archs {
            let version = arch.ptx_for(feature).expect("this target has it");
            let mut ask = |version: Version, accepted| {
                questions.push(Question {
                    what: format!("{feature:?} in {version} on {arch}"),
                    ptx: kernel(feature, version, arch),
                    arch,
                    accepted,
                });
            };
            ask(version, true);
            if let Some(earlier) = before(version) {
                ask(earlier, false);
            }
        }
    }
    ask_all(&ptxas, &questions);
}

/// A kernel with one instruction of `feature`.
fn kernel(feature: Feature, version: Version, arch: Arch) -> String {
    let instruction = snippet(feature);
    let wide = if instruction.contains("%q") {
        ".reg .b128 %q<4>;"
    } else {
        ""
    };
    let directive = if feature == Feature::Setmaxnreg {
        ".reqntid 128"
    } else {
        ""
    };
    format!(
        "{}.visible .entry k(.param .u64 input) {directive} {{\n\
         .reg .pred %p<8>; .reg .b8 %b<4>; .reg .b16 %h<16>; .reg .b32 %r<32>; .reg .b64 %rd<8>;\n\
         .reg .f32 %f<8>; .reg .f64 %d<8>; {wide}\n\
         {instruction}\nret;\n}}\n",
        header(version, arch)
    )
}

/// The structural rules find exactly what the table says: no instruction slips
/// through on a target or in a version that lacks it, and none is refused
/// where it exists.
#[test]
fn the_structural_rules_apply_the_table() {
    for &feature in Feature::ALL {
        for &arch in Arch::ALL {
            let mut codes = Vec::new();
            let text = kernel(feature, NEWEST_PTX, arch);
            if !arch.supports(feature) {
                codes.push(rule::FEATURE_NEEDS_TARGET);
            }
            assert_eq!(found(&text), codes, "{feature:?} on {arch}:\n{text}");
            let Some(version) = arch.ptx_for(feature) else {
                continue;
            };
            let text = kernel(feature, version, arch);
            assert_eq!(
                found(&text),
                [],
                "{feature:?} in {version} on {arch}:\n{text}"
            );
            if let Some(earlier) = before(version).filter(|&earlier| earlier >= arch.min_ptx()) {
                let text = kernel(feature, earlier, arch);
                let codes = [rule::FEATURE_NEEDS_VERSION];
                assert_eq!(
                    found(&text),
                    codes,
                    "{feature:?} in {earlier} on {arch}:\n{text}"
                );
            }
        }
    }
}

fn found(text: &str) -> Vec<Code> {
    let source = Source::new("feature.ptx", text);
    let module = parse(&source).expect("a snippet parses");
    validate(&module, Some(&source))
        .into_iter()
        .map(|diagnostic| diagnostic.code)
        .collect()
}
