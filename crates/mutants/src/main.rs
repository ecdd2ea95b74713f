//! Mutation testing of PTX: breaks correct kernels one place at a time, and lists the mutants that
//! survive.
//!
//! ```text
//! heist-mutants [--values] [--explained] [--only TEXT] [--every N] [--schedules N] [PATH...]
//! ```
//!
//! Every file whose launches are clean is taken (`rules`, `cases` and `corpus` unless paths
//! are given). In each, every fence, wait, commit, arrival, barrier and announcement is
//! taken away or moved behind the next access, and every scope and order is made
//! weaker, one at a time; the mutant is then checked with its launch. With `--values` comparisons
//! are flipped and constants are incremented instead, and the results must differ. Survivors that
//! are equivalent to the original are listed in `explained.txt` with the reason, and printed with
//! `--explained`; all others are always printed, and the status is 1.

mod judge;
mod mutation;

use heist_filetests::{find_files, read_directives};
use heist_ptx::Source;
use judge::{Fate, Original};
use mutation::MutationKind;
use std::collections::BTreeMap;
use std::path::PathBuf;
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
    /// Every n-th mutant is run.
    every: usize,
    /// Schedules beside the first.
    schedules: u64,
    paths: Vec<PathBuf>,
}

impl Wish {
    fn of(mut words: impl Iterator<Item = String>) -> Result<Wish, String> {
        let mut wish = Wish {
            kind: MutationKind::Order,
            only: None,
            explained: false,
            every: 1,
            schedules: 4,
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
                "--schedules" => wish.schedules = number(value()?)?.into(),
                other if other.starts_with('-') => {
                    return Err(format!("there is no option `{other}`"));
                }
                path => wish.paths.push(path.into()),
            }
        }
        if wish.paths.is_empty() {
            wish.paths = ["rules", "cases", "corpus"].map(PathBuf::from).into();
        }
        Ok(wish)
    }
}

/// The number of mutants of each fate.
#[derive(Default)]
struct Count {
    made: usize,
    refused: usize,
    unreached: usize,
    found: BTreeMap<String, usize>,
    wrong: usize,
    /// By the reason why they are as right as what they were made of.
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
    let files = match find_files(&wish.paths) {
        Ok(files) => files,
        Err(error) => {
            eprintln!("heist-mutants: {error}: run it in the repository's root, or name files");
            return ExitCode::from(2);
        }
    };
    let explained = explained();
    let mut count = Count::default();
    let mut turn = 0;
    for path in files {
        let name = path.display().to_string();
        if wish
            .only
            .as_ref()
            .is_some_and(|only| !name.contains(only.as_str()))
        {
            continue;
        }
        let Ok(text) = fs::read_to_string(&path) else {
            continue;
        };
        let Ok(file) = read_directives(Source::new(&*name, text)) else {
            continue;
        };
        let originals = Original::of(&file);
        if originals.is_empty() {
            continue;
        }
        for mutant in mutation::all(file.source.text()) {
            turn += 1;
            if mutant.kind != wish.kind || turn % wish.every != 0 {
                continue;
            }
            let mut fate = judge(&originals, &mutant, &wish);
            let open = matches!(fate, Fate::Survives | Fate::Wrong);
            if open && !reached(&originals, &mutant) {
                fate = Fate::Unreached;
            }
            count.add(fate, &mutant.name(&name), &explained, &wish);
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

impl Count {
    fn add(&mut self, fate: Fate, name: &str, explained: &[(&str, &'static str)], wish: &Wish) {
        self.made += 1;
        let open = match fate {
            Fate::Refused => {
                self.refused += 1;
                return;
            }
            Fate::Unreached => {
                self.unreached += 1;
                return;
            }
            Fate::Found(code) => {
                *self.found.entry(code).or_default() += 1;
                return;
            }
            Fate::Wrong if wish.kind == MutationKind::Value => {
                self.wrong += 1;
                return;
            }
            Fate::Wrong => "wrong results without a word",
            Fate::Survives => "no difference",
        };
        let reason = explained.iter().find(|(pattern, _)| matches(pattern, name));
        if let Some((_, reason)) = reason {
            *self.explained.entry(reason).or_default() += 1;
            if wish.explained {
                println!("{name} | {reason}");
            }
        } else {
            self.open += 1;
            println!("{name} | {open}");
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
            self.explained.values().sum::<usize>(),
            100.0 * noticed as f64 / broken.max(1) as f64,
        );
        if kind == MutationKind::Value {
            println!("{} by results, {found} by findings", self.wrong);
        }
        println!("by code: {}", codes.join(", "));
        for (reason, count) in &self.explained {
            println!("not broken, {count}: {reason}");
        }
        ExitCode::from(u8::from(self.open > 0))
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
