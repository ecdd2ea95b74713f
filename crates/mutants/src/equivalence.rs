//! Why a mutant that nobody notices may be as right as what it was made of.
//!
//! First what PTX says by itself ([`by_rule`]): how far a scope must reach, what a group holds. Then what
//! two mutants say together ([`Redundant`]): an order that two instructions make is lost only when both
//! are gone. The checker then has a finding that it has neither without the one nor without the other,
//! which shows that it does see the accesses in question.

use crate::judge::{Original, Place};
use crate::mutation::{Change, Mutant};
use crate::order::{ordering, without};

/// Other instructions that are looked at, the nearest first.
const NEAREST: usize = 12;
/// Of those of one kind, how many are taken away together.
const TOGETHER: usize = 6;

/// The rule by which a change breaks nothing.
pub(crate) fn by_rule(mutant: &Mutant, originals: &[Original<'_>]) -> Option<&'static str> {
    let opcode = mutant.opcode.as_str();
    let idle = |line: usize| originals.iter().all(|one| one.is_idle_at(line));
    if idle(mutant.line) {
        return Some(
            "nothing that it could wait for, collect or fence has been started when it runs",
        );
    }
    match &mutant.change {
        Change::Weaker("sys", "gpu") => {
            Some("all threads of a launch are on one GPU: `.gpu` reaches whom `.sys` does")
        }
        Change::Weaker(_, "cta") if originals.iter().all(Original::is_one_block) => {
            Some("the launch is one block: `.cta` reaches every thread of it")
        }
        Change::Behind(_, line) if idle(*line) => {
            Some("it changes places with what has nothing to wait for, to collect or to fence")
        }
        Change::Behind(past, _) => {
            let groups = [
                ("cp.async.commit_group", "cp.async.c"),
                ("cp.async.bulk.commit_group", "cp."),
                ("wgmma.commit_group", "wgmma."),
                ("tcgen05.commit", "tcgen05."),
            ];
            let group = groups.iter().find(|(commit, _)| opcode.starts_with(commit));
            let same = group.is_some_and(|(_, member)| !past.starts_with(member));
            let announces = opcode.contains("expect_tx") && past.starts_with("cp.async.bulk");
            match (same, announces) {
                (true, _) => {
                    Some("a group is what was started before its commit: it has the same members")
                }
                (_, true) => Some(
                    "bytes may be announced behind the copy, as long as the arrival that goes with it is still to come",
                ),
                _ => None,
            }
        }
        _ if originals.iter().all(|one| one.shares_nothing(mutant)) => {
            Some("no two threads use the same bytes: without any order at all, nothing is found")
        }
        _ => None,
    }
}

/// Other instructions that order the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Redundant {
    /// Their lines, from 1.
    pub(crate) lines: Vec<usize>,
    /// What is found where all are gone.
    pub(crate) found: Place,
}

impl Redundant {
    /// Looks for them beside a mutant: each of the nearest alone, then the nearest of its own kind
    /// together.
    pub(crate) fn of(mutant: &Mutant, originals: &[Original<'_>]) -> Option<Redundant> {
        let text = originals.first()?.text();
        let mut others = ordering(text);
        others.retain(|&(line, _)| line != mutant.line);
        others.sort_by_key(|(line, _)| line.abs_diff(mutant.line));
        let family = |opcode: &str| opcode.split('.').next().map(|name| name.replace("ier", ""));
        let own = family(&mutant.opcode);
        let alike = others.iter().filter(|(_, opcode)| family(opcode) == own);
        let alike: Vec<usize> = alike.map(|&(line, _)| line).collect();
        let alone = others.iter().take(NEAREST).map(|&(line, _)| vec![line]);
        let together = (2..=TOGETHER.min(alike.len())).map(|count| alike[..count].to_vec());
        alone.chain(together).find_map(|lines| {
            let all_gone = |text: &str| {
                let mut lines = lines.iter();
                lines.try_fold(text.to_owned(), |text, &line| without(&text, line))
            };
            let (beside, all) = (all_gone(text)?, all_gone(&mutant.text)?);
            let found = originals.iter().find_map(|original| {
                let beside = original.findings(&beside)?;
                let mut all = original.findings(&all)?.into_iter();
                all.find(|place| !beside.contains(place))
            })?;
            Some(Redundant { lines, found })
        })
    }
}
