//! Whether a mutant is killed: by the static rules, by a run, or by its results.

use crate::family::device_named;
use crate::flow::renumbered;
use crate::mutation::Mutant;
use crate::order::{
    raced_to, trapped, trapped_in_even_phase, unordered, with_only_last, without,
    without_barriers_above, without_flags, without_warp_barriers,
};
use crate::probe;
use heist_filetests::{Action, Run, TestFile, compare};
use heist_launch::Outcome;
use heist_ptx::arch::{Arch, Gpu};
use heist_ptx::{Code, Diagnostic, Module, Severity, Source, Span};
use heist_sim::{Budget, Chaos, Device, Options, Program};
use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::rc::Rc;

/// What became of a mutant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// No launch runs what it changes.
    Unreached,
    /// It is not valid PTX any more.
    Refused,
    /// Killed by a finding; this is the first.
    Found(String),
    /// No finding, but different results.
    Wrong,
    /// It survives: no difference.
    Survives,
}

/// A finding, as far as two texts can have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) code: Code,
    /// From 1.
    pub(crate) line: usize,
}

/// A clean case, with which mutants are compared.
pub(crate) struct Original<'f> {
    file: &'f TestFile,
    run: &'f Run,
    outcome: Outcome,
    /// Instructions that it took.
    cost: u64,
    /// What it is warned of as it stands.
    warned: Vec<Code>,
    /// What was found in texts, by their hashes: mutants of one file ask for many of them again.
    known: RefCell<HashMap<u64, Option<Rc<Found>>>>,
}

/// What is found in a text.
struct Found {
    places: Vec<Place>,
    /// The lines of all that the findings name, from 1.
    named: Vec<usize>,
}

fn device(run: &Run, module: &Module) -> Option<Device> {
    if let Some(name) = &run.device {
        return device_named(name).ok();
    }
    let arch = Arch::parse(&module.target.arch);
    let gpus = [Gpu::H200, Gpu::B200, Gpu::RTX5090, Gpu::L4, Gpu::A100];
    let fits = |gpu: &Gpu| arch.is_some_and(|arch| arch.runs_on(gpu.arch));
    Some(Device::of(gpus.into_iter().find(fits).unwrap_or(Gpu::H200)))
}

fn entry(run: &Run, module: &Module) -> Option<String> {
    let only = || module.entries().next().map(|entry| entry.name.to_string());
    run.entry.clone().or_else(only)
}

fn errors(found: &[Diagnostic]) -> Option<String> {
    let error = found.iter().find(|one| one.severity == Severity::Error)?;
    Some(error.code.0.to_owned())
}

/// One run of a module as a case says.
fn execute(
    run: &Run,
    module: &Module,
    (seed, chaos): (u64, Chaos),
    instructions: u64,
) -> Option<(Outcome, Vec<Diagnostic>, u64)> {
    let program = match Program::new(module.clone()) {
        Ok(program) => program,
        Err(found) => return Some((Outcome::default(), found, 0)),
    };
    let options = Options {
        seed,
        chaos,
        budget: Budget {
            warp_instructions: instructions,
            memory: 1 << 30,
            time_ns: 1_000_000_000,
            wall_ms: 20_000,
        },
        cooperative: run.cooperative,
        threads: 1,
        ..Options::default()
    };
    let entry = entry(run, module)?;
    let device = device(run, module)?;
    match program.run(&device, &entry, &run.launch, &run.arguments, &options) {
        Ok(report) => Some((
            report.outcome,
            report.diagnostics,
            report.stats.warp_instructions,
        )),
        Err(found) => Some((Outcome::default(), found, 0)),
    }
}

fn parsed(name: &str, text: &str) -> Option<Module> {
    let source = Source::new(name, text);
    let module = heist_ptx::parse(&source).ok()?;
    let broken = heist_ptx::validate::validate(&module, Some(&source));
    errors(&broken).is_none().then_some(module)
}

impl<'f> Original<'f> {
    /// The cases of a file that run clean, each with what it computes.
    pub(crate) fn of(file: &'f TestFile) -> Vec<Original<'f>> {
        let Some(module) = parsed(file.source.name(), file.source.text()) else {
            return Vec::new();
        };
        if errors(&heist_check::check(&module)).is_some() {
            return Vec::new();
        }
        let runs = file.cases.iter().filter_map(|case| match &case.action {
            Action::Run(run) if file.expected_codes(case).is_empty() => Some(&**run),
            _ => None,
        });
        runs.filter_map(|run| {
            let chaos = if run.chaos { Chaos::FULL } else { Chaos::NONE };
            let seed = run.seed.unwrap_or(0);
            let (outcome, found, cost) = execute(run, &module, (seed, chaos), 20_000_000)?;
            errors(&found).is_none().then_some(Original {
                file,
                run,
                outcome,
                cost,
                warned: found.iter().map(|one| one.code).collect(),
                known: RefCell::default(),
            })
        })
        .collect()
    }

    /// The text of the file.
    pub(crate) fn text(&self) -> &str {
        self.file.source.text()
    }

    /// Whether no other block takes part.
    pub(crate) fn is_one_block(&self) -> bool {
        self.run.launch.grid.count() == 1
    }

    /// What is found in a text, by the rules and on the first schedule; nothing if it is not PTX.
    pub(crate) fn findings(&self, text: &str) -> Option<Vec<Place>> {
        self.found(text).map(|found| found.places.clone())
    }

    fn found(&self, text: &str) -> Option<Rc<Found>> {
        let mut hasher = DefaultHasher::new();
        text.hash(&mut hasher);
        let key = hasher.finish();
        if let Some(known) = self.known.borrow().get(&key) {
            return known.clone();
        }
        let source = Source::new(self.file.source.name(), text);
        let line = |span: Span| source.position(span).line as usize;
        let found = self.diagnostics(text).map(|all| {
            let (mut places, mut named) = (Vec::new(), Vec::new());
            for one in all {
                places.push(Place {
                    code: one.code,
                    line: line(one.span),
                });
                named.push(line(one.span));
                named.extend(one.others.iter().map(|other| line(other.span)));
            }
            Rc::new(Found { places, named })
        });
        self.known.borrow_mut().insert(key, found.clone());
        found
    }

    fn diagnostics(&self, text: &str) -> Option<impl Iterator<Item = Diagnostic> + '_> {
        let module = parsed(self.file.source.name(), text)?;
        let limit = self.cost.saturating_mul(20).max(100_000);
        let (_, found, _) = execute(self.run, &module, (0, Chaos::NONE), limit)?;
        let all = heist_check::check(&module).into_iter().chain(found);
        let counts =
            |one: &Diagnostic| one.severity == Severity::Error || !self.warned.contains(&one.code);
        Some(all.filter(counts))
    }

    /// Whether it does not come by a line, or the access there conflicts with no other: it is run
    /// without any order at all, and nothing that is found then names it.
    pub(crate) fn needs_no_order_at(&self, line: usize) -> bool {
        if !trapped(self.text(), line).is_some_and(|probe| self.stops_at(&probe, line)) {
            return true;
        }
        self.says_nothing_of(&unordered(self.text()), line)
    }

    /// Whether the access of a line of the original that a mutant's barrier has been moved behind conflicts
    /// with nothing that another thread does before the barrier. All barriers above are gone, too, so that
    /// none of them hides it.
    pub(crate) fn needs_no_barrier_before(&self, mutant: &Mutant, line: usize) -> bool {
        let text = without_barriers_above(&mutant.text, mutant.line);
        self.says_nothing_of(&text, mutant.line_of(line))
    }

    /// Whether a text comes by a line, and nothing that is found names it.
    fn says_nothing_of(&self, text: &str, line: usize) -> bool {
        let found = self.found(text);
        let probe = trapped(text, line);
        found.is_some_and(|found| !found.named.contains(&line))
            && probe.is_some_and(|probe| self.stops_at(&probe, line))
    }

    /// Whether nothing is found without any fence and with relaxed atomics: no thread learns by one what
    /// another has done.
    pub(crate) fn needs_no_flags(&self) -> bool {
        let found = without_flags(self.text()).and_then(|text| self.findings(&text));
        found.is_some_and(|found| found.is_empty())
    }

    /// Whether nothing is found without any barrier of a warp: lanes only come together there.
    pub(crate) fn needs_no_warp_barrier(&self) -> bool {
        let found = self.findings(&without_warp_barriers(self.text()));
        found.is_some_and(|found| found.is_empty())
    }

    /// Whether nothing is found with the last alone of the instructions whose opcodes begin so.
    pub(crate) fn needs_only_the_last(&self, start: &str) -> bool {
        let found = self.findings(&with_only_last(self.text(), start));
        found.is_some_and(|found| found.is_empty())
    }

    /// Whether nothing is found without what a line orders.
    pub(crate) fn stands_without(&self, line: usize) -> bool {
        let found = without(self.text(), line).and_then(|text| self.findings(&text));
        found.is_some_and(|found| found.is_empty())
    }

    /// Whether it does not come by a mutant's warp barrier, or two lanes are seen apart in its place: a race
    /// that is put there is found, and with the barrier it is not.
    pub(crate) fn sees_lanes_apart(&self, mutant: &Mutant) -> bool {
        let threads = self.run.launch.grid.count() * self.run.launch.block.count();
        if threads > probe::THREADS {
            return false;
        }
        let found_there = |kept: bool| {
            let text = probe::around_warp_barrier(self.text(), mutant.line, kept)?;
            let found = self.findings(&text)?;
            Some(found.iter().any(|one| one.line == mutant.line))
        };
        !self.comes_by(&mutant.probe)
            || found_there(false) == Some(true) && found_there(true) == Some(false)
    }

    /// Whether it passes the wait of a line on the first use of each mbarrier alone: every time for the
    /// phase before the first. Waits for the next one, of the other parity, do not come.
    pub(crate) fn waits_for_nothing_at(&self, line: usize) -> bool {
        let probe = trapped_in_even_phase(self.text(), line);
        let found = probe.and_then(|text| self.findings(&text));
        found.is_some_and(|found| found.is_empty())
    }

    /// Whether the trap of a line is what stops a text.
    fn stops_at(&self, text: &str, line: usize) -> bool {
        let found = self.findings(text).unwrap_or_default();
        let trap = |one: &Place| one.code == heist_ptx::rule::TRAP && one.line == line;
        found.iter().any(trap)
    }

    /// Whether it does not come by a mutant's change, or needs no order at all.
    pub(crate) fn shares_nothing(&self, mutant: &Mutant) -> bool {
        let found = || self.findings(&unordered(self.text()));
        !self.comes_by(&mutant.probe) || found().is_some_and(|found| found.is_empty())
    }

    /// Whether all threads that meet at the barrier of a line meet at that line.
    pub(crate) fn meets_only_at(&self, line: usize) -> bool {
        let found = renumbered(self.text(), line).and_then(|text| self.findings(&text));
        found.is_some_and(|found| found.is_empty())
    }

    /// Whether nothing that a line could order has been started when it runs, the first time and the
    /// last.
    pub(crate) fn is_idle_at(&self, line: usize) -> bool {
        let Some(text) = raced_to(self.text(), line) else {
            return false;
        };
        let found = self.findings(&text).unwrap_or_default();
        let mut traps = found.iter().filter(|one| one.code == heist_ptx::rule::TRAP);
        traps.next().is_some_and(|first| first.line == line)
    }

    /// How many instructions it takes.
    pub(crate) fn cost(&self) -> u64 {
        self.cost
    }

    /// Runs a mutant as the case says, on the first schedule and on `more` others, until
    /// something is found.
    pub(crate) fn judge(&self, text: &str, more: u64) -> Fate {
        let Some(module) = parsed(self.file.source.name(), text) else {
            return Fate::Refused;
        };
        if let Some(code) = errors(&heist_check::check(&module)) {
            return Fate::Found(code);
        }
        let mut wrong = false;
        let limit = self.cost.saturating_mul(20).max(100_000);
        for seed in 0..=more {
            let chaos = match seed {
                0 => Chaos::NONE,
                _ => Chaos::FULL,
            };
            let Some((outcome, found, _)) = execute(self.run, &module, (seed, chaos), limit) else {
                return Fate::Refused;
            };
            if let Some(code) = errors(&found).or_else(|| self.new_warning(&found)) {
                return Fate::Found(code);
            }
            wrong |= seed == 0 && self.differs(&outcome);
        }
        if wrong { Fate::Wrong } else { Fate::Survives }
    }

    /// A warning that the original does not have.
    fn new_warning(&self, found: &[Diagnostic]) -> Option<String> {
        let new = found.iter().find(|one| !self.warned.contains(&one.code));
        new.map(|one| one.code.0.to_owned())
    }

    /// Whether the case comes by the trap in a text.
    pub(crate) fn comes_by(&self, probe: &str) -> bool {
        let stops = |found: Vec<Place>| found.iter().any(|one| one.code == heist_ptx::rule::TRAP);
        self.findings(probe).is_none_or(stops)
    }

    /// Whether results are not what the case expects, or not what they were.
    fn differs(&self, outcome: &Outcome) -> bool {
        let expected = self.run.expects.iter().any(|expect| {
            let found = outcome.output(expect.buffer.clone());
            found.is_none_or(|found| compare(&expect.values, found, expect.tolerance).is_some())
        });
        expected
            || self
                .outcome
                .outputs
                .iter()
                .any(|(name, before)| outcome.output(name.clone()).is_none_or(|now| now != before))
    }
}
