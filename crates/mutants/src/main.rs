//! Mutation testing of PTX: breaks correct kernels one place at a time, and lists the mutants that
//! survive.
//!
//! ```text
//! heist-mutants [--values] [--explained] [--only TEXT] [--every N [--from K]] [--schedules N] [--texts FOLDER] [--kernel WORDS]... [PATH...]
//! ```
//!
//! Every file whose launches are clean is taken (`rules`, `cases` and `corpus` unless paths
//! are given), or launches of our own kernels (`--kernel 'gemm m=64 n=64 k=64 on=sim:h200'`,
//! `--kernel 'uniform schedule=ticket'`). In each, every fence, wait, commit, arrival, barrier and announcement is
//! taken away or moved behind the next access, and every scope and order is made
//! weaker, one at a time; the mutant is then checked with its launch. With `--values` comparisons
//! are flipped and constants are incremented instead, and the results must differ. Whether a survivor
//! is as right as the original is decided by [`equivalence`]; what that can't decide is listed in
//! `explained.txt` with the reason. Both are printed with `--explained`; all others are always printed,
//! and the status is 1. `--texts` writes the PTX of our own kernels into a folder, where the lines of what is
//! printed can be looked up.

mod equivalence;
mod family;
mod flow;
mod judge;
mod mutation;
mod order;
mod probe;

use equivalence::Redundant;
use heist_filetests::{TestFile, find_files, read_directives};
use heist_ptx::Source;
use judge::{Fate, Original, Place};
use mutation::MutationKind;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{env, fs};

/// Equivalent mutants: `NAME | REASON`.
const EXPLAINED: &str = include_str!("../explained.txt");

/// What the command line asks for.
struct Wish {
    kind: MutationKind,
    only: Option<String>,
    /// Whether explained survivors are printed too.
    explained: bool,
    /// Every n-th mutant is run, and which of the n.
    every: usize,
    from: usize,
    /// Schedules beside the first.
    schedules: u64,
    /// Kernels of our own, in words.
    kernels: Vec<String>,
    /// Where their PTX is written to.
    texts: Option<PathBuf>,
    paths: Vec<PathBuf>,
}

impl Wish {
    fn of(mut words: impl Iterator<Item = String>) -> Result<Wish, String> {
        let mut wish = Wish {
            kind: MutationKind::Order,
            only: None,
            explained: false,
            every: 1,
            from: 0,
            schedules: 4,
            kernels: Vec::new(),
            texts: None,
            paths: Vec::new(),
        };
        while let Some(word) = words.next() {
            let mut value = || {
                words
                    .next()
                    .ok_or_else(|| format!("`{word}` needs a value"))
            };
            let number = |text: String| {
                let parsed = text.parse::<u32>();
                parsed.map_err(|_| format!("`{text}` is no number"))
            };
            match word.as_str() {
                "--values" => wish.kind = MutationKind::Value,
                "--explained" => wish.explained = true,
                "--only" => wish.only = Some(value()?),
                "--every" => wish.every = number(value()?)?.max(1) as usize,
                "--from" => wish.from = number(value()?)? as usize,
                "--kernel" => wish.kernels.push(value()?),
                "--texts" => wish.texts = Some(value()?.into()),
                "--schedules" => wish.schedules = number(value()?)?.into(),
                other if other.starts_with('-') => {
                    return Err(format!("there is no option `{other}`"));
                }
                path => wish.paths.push(path.into()),
            }
        }
        if wish.paths.is_empty() && wish.kernels.is_empty() {
            wish.paths = ["rules", "cases", "corpus"].map(PathBuf::from).into();
        }
        Ok(wish)
    }

    /// Everything that has launches.
    fn files(&self) -> Result<Vec<TestFile>, String> {
        let found = find_files(&self.paths)
            .map_err(|why| format!("{why}: run it in the repository's root, or name files"))?;
        let read = found.iter().filter_map(|path| {
            let text = fs::read_to_string(path).ok()?;
            read_directives(Source::new(path.display().to_string(), text)).ok()
        });
        let mut files: Vec<TestFile> = read.collect();
        for words in &self.kernels {
            let own = family::files(words)?;
            if let Some(folder) = &self.texts {
                own.iter().try_for_each(|file| write(folder, file))?;
            }
            files.extend(own);
        }
        let wanted = |file: &TestFile| match &self.only {
            Some(only) => file.source.name().contains(only.as_str()),
            None => true,
        };
        files.retain(wanted);
        Ok(files)
    }
}

/// Writes the text of a file under its name, which may have any sign in it.
fn write(folder: &Path, file: &TestFile) -> Result<(), String> {
    let plain = |sign: char| {
        if sign.is_ascii_alphanumeric() {
            sign
        } else {
            '-'
        }
    };
    let name: String = file.source.name().chars().map(plain).collect();
    let path = folder.join(name + ".ptx");
    let written = fs::create_dir_all(folder).and_then(|()| fs::write(&path, file.source.text()));
    written.map_err(|error| format!("{}: {error}", path.display()))
}

/// The number of mutants of each fate.
#[derive(Default)]
struct Count {
    made: usize,
    refused: usize,
    unreached: usize,
    found: BTreeMap<String, usize>,
    wrong: usize,
    /// By the rule of PTX that says why they are as right as what they were made of.
    by_rule: BTreeMap<&'static str, usize>,
    /// Beside an instruction that orders the same.
    redundant: usize,
    /// By the reason that is listed for them.
    explained: BTreeMap<&'static str, usize>,
    open: usize,
}

fn main() -> ExitCode {
    let wish = match Wish::of(env::args().skip(1)) {
        Ok(wish) => wish,
        Err(why) => {
            eprintln!("heist-mutants: {why}");
            return ExitCode::from(2);
        }
    };
    let files = match wish.files() {
        Ok(files) => files,
        Err(error) => {
            eprintln!("heist-mutants: {error}");
            return ExitCode::from(2);
        }
    };
    let explained = explained();
    let mut count = Count::default();
    let mut turn = 0;
    for file in files {
        let name = file.source.name();
        let originals = Original::of(&file);
        if originals.is_empty() {
            continue;
        }
        for mutant in mutation::all(file.source.text()) {
            turn += 1;
            if mutant.kind != wish.kind || turn % wish.every != wish.from % wish.every {
                continue;
            }
            let mut fate = judge(&originals, &mutant, &wish);
            let open = matches!(fate, Fate::Survives | Fate::Wrong);
            if open && !reached(&originals, &mutant) {
                fate = Fate::Unreached;
            }
            let name = mutant.name(name);
            let differs = fate == Fate::Wrong && wish.kind == MutationKind::Order;
            if fate == Fate::Survives || differs {
                let verdict = Verdict::of(&mutant, &originals, fate, &name, &explained);
                count.decide(verdict, &name, &wish);
            } else {
                count.add(fate);
            }
        }
    }
    count.tell(wish.kind)
}

/// Whether any case of the file runs what a mutant changes.
fn reached(originals: &[Original<'_>], mutant: &mutation::Mutant) -> bool {
    let mut originals = originals.iter();
    originals.any(|original| original.comes_by(&mutant.probe))
}

/// What becomes of a mutant in the cases of its file: the first that notices it counts.
fn judge(originals: &[Original<'_>], mutant: &mutation::Mutant, wish: &Wish) -> Fate {
    let mut fate = Fate::Survives;
    for original in originals {
        // Long runs are not repeated.
        let schedules = match original.cost() {
            0..200_000 => wish.schedules,
            _ => wish.schedules.min(1),
        };
        match original.judge(&mutant.text, schedules) {
            Fate::Survives => {}
            Fate::Wrong => fate = Fate::Wrong,
            decided => return decided,
        }
    }
    fate
}

/// The names of explained survivors, where `*` stands for anything, and the reasons.
fn explained() -> Vec<(&'static str, &'static str)> {
    let lines = EXPLAINED.lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| line.split_once(" | ")).collect()
}

/// Whether a name is one that a pattern means.
fn matches(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|first| name.strip_prefix(first)) else {
        return false;
    };
    let mut last = None;
    for part in parts {
        let Some(at) = rest.find(part) else {
            return false;
        };
        rest = &rest[at + part.len()..];
        last = Some(part);
    }
    rest.is_empty() || last == Some("")
}

/// Why nobody notices a mutant.
enum Verdict {
    ByRule(&'static str),
    Redundant(Redundant),
    Explained(&'static str),
    /// It is broken, or nobody knows better.
    Open(&'static str),
}

impl Verdict {
    fn of(
        mutant: &mutation::Mutant,
        originals: &[Original<'_>],
        fate: Fate,
        name: &str,
        explained: &[(&str, &'static str)],
    ) -> Verdict {
        if mutant.kind == MutationKind::Order && fate != Fate::Wrong {
            if let Some(rule) = equivalence::by_rule(mutant, originals) {
                return Verdict::ByRule(rule);
            }
            if let Some(redundant) = Redundant::of(mutant, originals) {
                return Verdict::Redundant(redundant);
            }
        }
        let listed = explained.iter().find(|(pattern, _)| matches(pattern, name));
        match listed {
            Some((_, reason)) => Verdict::Explained(reason),
            None if fate == Fate::Wrong => Verdict::Open("wrong results without a word"),
            None => Verdict::Open("no difference"),
        }
    }
}

impl Count {
    fn decide(&mut self, verdict: Verdict, name: &str, wish: &Wish) {
        self.made += 1;
        let (reason, open) = match verdict {
            Verdict::ByRule(rule) => {
                *self.by_rule.entry(rule).or_default() += 1;
                (rule.to_owned(), false)
            }
            Verdict::Redundant(Redundant { lines, found }) => {
                self.redundant += 1;
                let Place { code, line } = found;
                let reason =
                    format!("lines {lines:?} order the same: without all, {code} at line {line}");
                (reason, false)
            }
            Verdict::Explained(reason) => {
                *self.explained.entry(reason).or_default() += 1;
                (reason.to_owned(), false)
            }
            Verdict::Open(what) => {
                self.open += 1;
                (what.to_owned(), true)
            }
        };
        if open || wish.explained {
            println!("{name} | {reason}");
        }
    }

    fn add(&mut self, fate: Fate) {
        self.made += 1;
        match fate {
            Fate::Refused => self.refused += 1,
            Fate::Unreached => self.unreached += 1,
            Fate::Found(code) => *self.found.entry(code).or_default() += 1,
            Fate::Wrong => self.wrong += 1,
            Fate::Survives => self.open += 1,
        }
    }

    fn tell(&self, kind: MutationKind) -> ExitCode {
        let found: usize = self.found.values().sum();
        let codes: Vec<String> = self
            .found
            .iter()
            .map(|(code, count)| format!("{code} {count}"))
            .collect();
        let noticed = found + self.wrong;
        let broken = noticed + self.open;
        println!(
            "{} mutants: {} refused, {} where no launch comes by, {} not broken, {broken} broken, of which {noticed} are noticed ({:.1}%)",
            self.made,
            self.refused,
            self.unreached,
            self.equivalent(),
            100.0 * noticed as f64 / broken.max(1) as f64,
        );
        if kind == MutationKind::Value {
            println!("{} by results, {found} by findings", self.wrong);
        }
        println!("by code: {}", codes.join(", "));
        for (rule, count) in &self.by_rule {
            println!("not broken by rule, {count}: {rule}");
        }
        println!(
            "not broken, {}: others order the same, and without all of them something is found",
            self.redundant
        );
        for (reason, count) in &self.explained {
            println!("not broken, {count}: {reason}");
        }
        ExitCode::from(u8::from(self.open > 0))
    }

    /// Those that are as right as what they were made of.
    fn equivalent(&self) -> usize {
        let rules: usize = self.by_rule.values().sum();
        rules + self.redundant + self.explained.values().sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_anything() {
        assert!(matches(
            "rules/*:7 without *",
            "rules/a/b.ptx:7 without fence"
        ));
        assert!(!matches(
            "rules/*:7 without bar",
            "rules/a/b.ptx:7 without fence"
        ));
        assert!(matches("a:1 x", "a:1 x") && !matches("a:1 x", "a:1 xy"));
    }

    #[test]
    fn what_is_explained_has_a_reason() {
        let lines = EXPLAINED.lines().filter(|line| !line.starts_with('#'));
        for line in lines.filter(|line| !line.is_empty()) {
            let reason = line.split_once(" | ").map_or("", |(_, reason)| reason);
            assert!(reason.len() > 20, "{line}");
        }
    }
}
