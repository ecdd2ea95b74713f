//! Tests that bite: small mistakes are made in the code, one at a time, and each must
//! fail a test.
//!
//! cargo-mutants, which this command installs below `target`, lists the mutants of Rust
//! code. They are built together (`weave`), since a build for each takes hours; what
//! can't be woven is built alone. What Rust can't see into, code that is emitted, is
//! mutated as PTX (`cargo xtask mutate-ptx`). Neither is part of the tests.

mod body;
mod mutant;
mod programs;

mod weave;

use crate::shell::{self, Failed};
use mutant::Mutant;
use programs::{Built, Program};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use weave::{Blame, Woven};

/// The version that is installed; survivors are compared between runs of one version.
const VERSION: &str = "27.1.0";

/// What to mutate.
pub(crate) struct Plan {
    /// Folders of crates. Mutants of several are built together, since a change in one
    /// has those above it compiled again.
    members: Vec<String>,
    choice: Choice,
    /// Crates whose tests judge, or one program of a crate's tests.
    tests: Vec<Tests>,
    /// Only those that are built together: each other one takes a build of its own.
    woven_only: bool,
}

/// Tests that judge: of a crate, or one program of them.
#[derive(Debug, PartialEq)]
struct Tests {
    member: String,
    program: Option<String>,
}

impl Tests {
    /// Reads `CRATE` or `CRATE:PROGRAM`.
    fn read(word: &str) -> Tests {
        let (member, program) = match word.split_once(':') {
            Some((member, program)) => (member, Some(program.to_owned())),
            None => (word, None),
        };
        Tests {
            member: member.to_owned(),
            program,
        }
    }

    /// The file of integration tests, where it is one.
    fn integration(&self) -> Option<&str> {
        let program = self.program.as_deref()?;
        (program != package(&self.member).replace('-', "_")).then_some(program)
    }
}

/// Which of a crate's mutants are tried.
#[derive(Debug, PartialEq)]
enum Choice {
    /// Those in lines that changed since a revision.
    Since(String),
    /// About so many, spread over the crate; another offset is another sample.
    Sample { wanted: usize, offset: usize },
    /// Those that a file names, such as the survivors of a run before.
    Named(String),
}

impl Plan {
    /// Reads `CRATE,... [--sample N [--offset K] | --base REV | --from FILE] [--tests CRATE,...]
    /// [--woven]`.
    pub(crate) fn read(words: &[&str]) -> Result<Plan, Failed> {
        let [first, words @ ..] = words else {
            return Err(Failed("which crate? Such as `mutants sim`".to_owned()));
        };
        if first.starts_with('-') {
            return Err(Failed(format!("a crate goes first, not {first}")));
        }
        let members: Vec<String> = first.split(',').map(str::to_owned).collect();
        let mut plan = Plan {
            tests: members.iter().map(|member| Tests::read(member)).collect(),
            members,
            choice: Choice::Since("HEAD".to_owned()),
            woven_only: false,
        };
        let mut start = None;
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let mut value = |what: &str| {
                let missing = || Failed(format!("{word} needs {what}"));
                words.next().copied().ok_or_else(missing)
            };
            let number = |word: &str| {
                let wrong = || Failed(format!("a number from 0 up, not {word}"));
                word.parse().map_err(|_| wrong())
            };
            match *word {
                "--sample" => {
                    let wanted = number(value("a number of mutants")?)?;
                    if wanted == 0 {
                        return Err(Failed("--sample takes a number from 1 up".to_owned()));
                    }
                    plan.choice = Choice::Sample { wanted, offset: 0 };
                }
                "--offset" => start = Some(number(value("a number")?)?),
                "--base" => plan.choice = Choice::Since(value("a revision")?.to_owned()),
                "--woven" => plan.woven_only = true,
                "--from" => plan.choice = Choice::Named(value("a file")?.to_owned()),
                "--tests" => {
                    let names = value("crates, with commas between")?;
                    plan.tests = names.split(',').map(Tests::read).collect();
                }
                other => return Err(Failed(format!("mutants does not take {other}"))),
            }
        }
        match (&mut plan.choice, start) {
            (_, None) => {}
            (Choice::Sample { offset, .. }, Some(start)) => *offset = start,
            _ => return Err(Failed("--offset goes with --sample".to_owned())),
        }
        Ok(plan)
    }
}

/// How a mutant ended.
#[derive(Clone, Debug, PartialEq)]
enum Verdict {
    /// By a test of this program.
    Caught(String),
    Missed,
    /// It is no program.
    Unviable,
}

/// Tries each mutant; survivors are listed in `target/mutants/CRATE/missed.txt`.
pub(crate) fn run(plan: &Plan) -> Result<(), Failed> {
    let root = shell::root();
    let folder = root.join("target/mutants").join(plan.members.join(","));
    fs::create_dir_all(&folder)
        .map_err(|error| Failed(format!("{}: {error}", folder.display())))?;
    // Before anything is listed: what a killed run has left is put back.
    let mut woven = Woven::new(&root, &root.join("target/mutants/originals"))?;
    let (program, mut mutants) = (install()?, Vec::new());
    for member in &plan.members {
        mutants.extend(choose(member, &plan.choice, &program, &root)?);
    }
    if mutants.is_empty() {
        eprintln!("no mutants");
        return Ok(());
    }
    let mut verdicts: Vec<Option<Verdict>> = vec![None; mutants.len()];
    let mut tell = |number: usize, verdict: Verdict| {
        eprintln!("{}: {verdict:?}", mutants[number - 1].name);
        verdicts[number - 1] = Some(verdict);
    };

    // By number, for who wants to run one by hand.
    let lines = mutants.iter().zip(1..);
    let lines = lines.map(|(mutant, number)| format!("{number} {}\n", mutant.name));
    let list = folder.join("list.txt");
    fs::write(&list, lines.collect::<String>())
        .map_err(|error| Failed(format!("{}: {error}", list.display())))?;

    let built = weave_all(&mut woven, plan, &mutants, &mut tell)?;
    let (together, alone, mut programs) = (built.together, built.alone, built.programs);
    for program in &mut programs {
        program.learn(&folder.join("trace"))?;
    }
    for number in together {
        let catcher = programs::catcher(&programs, number)?;
        tell(number, catcher.map_or(Verdict::Missed, Verdict::Caught));
    }
    for number in alone {
        woven.alone(&mutants[number - 1])?;
        let verdict = match programs::build(&plan.tests)? {
            Built::Mistakes(_) => Verdict::Unviable,
            Built::Programs(built) => {
                let built = programs::in_order(built, &programs);
                let catcher = programs::catcher_of_all(&built)?;
                catcher.map_or(Verdict::Missed, Verdict::Caught)
            }
        };
        tell(number, verdict);
    }
    drop(woven);
    report(&folder, &plan.members, &mutants, &verdicts)
}

/// Mutants by number, and the tests that were built with those that are woven.
struct Together {
    together: Vec<usize>,
    /// Those that must be built alone.
    alone: Vec<usize>,
    programs: Vec<Program>,
}

/// Weaves all that can be, and builds the tests with them.
fn weave_all(
    woven: &mut Woven,
    plan: &Plan,
    mutants: &[Mutant],
    tell: &mut impl FnMut(usize, Verdict),
) -> Result<Together, Failed> {
    let root = shell::root();
    let mut texts = BTreeMap::new();
    for mutant in mutants {
        let text = fs::read_to_string(root.join(&mutant.file));
        let text = text.map_err(|error| Failed(format!("{}: {error}", mutant.file)))?;
        texts.insert(mutant.file.clone(), text);
    }
    let roots = plan
        .members
        .iter()
        .flat_map(|member| ["lib.rs", "main.rs"].map(|file| format!("crates/{member}/src/{file}")));
    let roots: Vec<String> = roots.filter(|file| root.join(file).is_file()).collect();
    let can = weave::can_be_woven(mutants, &texts);
    let (mut together, mut alone): (Vec<usize>, Vec<usize>) =
        (1..=mutants.len()).partition(|&number| can[number - 1]);
    eprintln!("{} mutants together, {} alone", together.len(), alone.len());
    loop {
        woven.weave(mutants, &together, &roots)?;
        let mistakes = match programs::build(&plan.tests)? {
            Built::Mistakes(mistakes) => mistakes,
            Built::Programs(programs) => {
                if plan.woven_only {
                    eprintln!("{} that are built alone are left out", alone.len());
                    alone.clear();
                }
                return Ok(Together {
                    together,
                    alone,
                    programs,
                });
            }
        };
        let mut out = BTreeSet::new();
        for mistake in &mistakes {
            let place = mistake.place.as_ref();
            match place.map_or(Blame::Nobody, |(file, offset)| woven.blame(file, *offset)) {
                Blame::Mutant(number) => {
                    if out.insert(number) {
                        tell(number, Verdict::Unviable);
                    }
                }
                Blame::Function(numbers) => {
                    let new: Vec<usize> = numbers
                        .into_iter()
                        .filter(|&number| out.insert(number))
                        .collect();
                    alone.extend(new);
                }
                Blame::Nobody => {}
            }
        }
        if out.is_empty() {
            let first = mistakes.first().map_or("", |mistake| &mistake.text);
            return Err(Failed(format!("woven sources don't build: {first}")));
        }
        together.retain(|number| !out.contains(number));
    }
}

/// The mutants of a crate that are asked for.
fn choose(
    member: &str,
    choice: &Choice,
    program: &Path,
    root: &Path,
) -> Result<Vec<Mutant>, Failed> {
    let mut command = shell::command(program);
    command.args(["mutants", "--list", "--json", "--package"]);
    command.arg(package(member));
    if let Choice::Since(base) = choice {
        let difference = shell::command("git")
            .args(["diff", base])
            .output()
            .map_err(|error| Failed(format!("git: {error}")))?;
        let file = root.join("target/mutants/diff");
        fs::write(&file, difference.stdout)
            .map_err(|error| Failed(format!("{}: {error}", file.display())))?;
        command.arg("--in-diff").arg(file);
    }
    let listed = command.output();
    let listed = listed.map_err(|error| Failed(format!("cargo-mutants: {error}")))?;
    if !listed.status.success() {
        let why = String::from_utf8_lossy(&listed.stderr);
        return Err(Failed(format!("cargo-mutants: {why}")));
    }
    let all = mutant::read(&listed.stdout, root)?;
    match choice {
        Choice::Since(_) => Ok(all),
        Choice::Sample { wanted, offset } => {
            let every = (all.len() / wanted).max(1);
            eprintln!("{member}: {} mutants; every {every}th is tried", all.len());
            Ok(all
                .into_iter()
                .skip(offset % every)
                .step_by(every)
                .collect())
        }
        Choice::Named(file) => {
            let text =
                fs::read_to_string(file).map_err(|error| Failed(format!("{file}: {error}")))?;
            let names: BTreeSet<String> = text.lines().map(Mutant::change).collect();
            let named = |mutant: &Mutant| names.contains(&Mutant::change(&mutant.name));
            Ok(all.into_iter().filter(named).collect())
        }
    }
}

/// Writes the names down, by how they ended, and prints the figures of each crate.
fn report(
    folder: &Path,
    members: &[String],
    mutants: &[Mutant],
    verdicts: &[Option<Verdict>],
) -> Result<(), Failed> {
    let [mut caught, mut missed, mut unviable] = [const { Vec::new() }; 3];
    for (mutant, verdict) in mutants.iter().zip(verdicts) {
        match verdict {
            Some(Verdict::Caught(_)) => caught.push(&mutant.name[..]),
            Some(Verdict::Unviable) => unviable.push(&mutant.name[..]),
            Some(Verdict::Missed) => missed.push(&mutant.name[..]),
            // Left out, as was asked for.
            None => {}
        }
    }
    for (name, list) in [
        ("caught", &caught),
        ("missed", &missed),
        ("unviable", &unviable),
    ] {
        let path = folder.join(name).with_extension("txt");
        fs::write(&path, list.join("\n"))
            .map_err(|error| Failed(format!("{}: {error}", path.display())))?;
    }
    for member in members {
        let inside = format!("crates/{member}/");
        let of = |list: &[&str]| list.iter().filter(|name| name.starts_with(&inside)).count();
        let (caught, missed, unviable) = (of(&caught), of(&missed), of(&unviable));
        println!(
            "{member}: {} mutants: {caught} caught, {missed} missed; {unviable} more are no programs",
            caught + missed
        );
    }
    if missed.is_empty() {
        return Ok(());
    }
    Err(Failed(format!("no test notices:\n{}", missed.join("\n"))))
}

/// A crate's package: folders leave out the prefix.
fn package(member: &str) -> String {
    match member {
        "heist" | "xtask" => member.to_owned(),
        _ if member.starts_with("heist-") => member.to_owned(),
        _ => format!("heist-{member}"),
    }
}

/// Installs cargo-mutants below `target` unless this version is there.
fn install() -> Result<PathBuf, Failed> {
    let folder = shell::root()
        .join("target/tools")
        .join(format!("cargo-mutants-{VERSION}"));
    let program = folder.join("bin/cargo-mutants");
    if !program.is_file() {
        shell::run(
            shell::command("cargo")
                .args(["install", "--locked", "cargo-mutants", "--version", VERSION])
                .arg("--root")
                .arg(&folder),
        )?;
    }
    Ok(program)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read() {
        let words = [
            "sim",
            "--sample",
            "60",
            "--offset",
            "3",
            "--tests",
            "sim,cli:run,sim:heist_sim",
            "--woven",
        ];
        let plan = Plan::read(&words).ok().unwrap();
        assert_eq!(plan.members, ["sim"]);
        let (wanted, offset) = (60, 3);
        assert_eq!(plan.choice, Choice::Sample { wanted, offset });
        let tests = ["sim", "cli:run", "sim:heist_sim"];
        assert_eq!(plan.tests, tests.map(Tests::read));
        let integration: Vec<Option<&str>> = plan.tests.iter().map(Tests::integration).collect();
        assert_eq!(integration, [None, Some("run"), None]);
        assert!(plan.woven_only);
        let plan = Plan::read(&["ptx,check"]).ok().unwrap();
        assert_eq!(plan.members, ["ptx", "check"]);
        assert_eq!(plan.choice, Choice::Since("HEAD".to_owned()));
        assert_eq!(plan.tests, ["ptx", "check"].map(Tests::read));
        for wrong in [
            &[][..],
            &["--sample", "60"],
            &["sim", "--sample"],
            &["sim", "--sample", "0"],
            &["sim", "--sample", "some"],
            &["sim", "--offset", "3"],
            &["sim", "ptx"],
            &["sim", "--all"],
        ] {
            assert!(Plan::read(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn packages_are_named_after_folders() {
        assert_eq!(package("sim"), "heist-sim");
        assert_eq!(package("heist"), "heist");
    }
}
