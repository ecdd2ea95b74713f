//! Why a mutant that nobody notices may be as right as what it was made of.
//!
//! First what PTX says by itself ([`by_rule`]): how far a scope must reach, what a group holds. Then what
//! two mutants say together ([`Redundant`]): an order that two instructions make is lost only when both
//! are gone. The checker then has a finding that it has neither without the one nor without the other,
//! which shows that it does see the accesses in question.

use crate::flow::leads_only_to;
use crate::judge::{Original, Place};
use crate::mutation::{Change, Mutant, instruction};
use crate::order::{is_repeated, ordering, without};

/// Other instructions that are taken away one at a time, the nearest first.
const NEAREST: usize = 12;
/// How many are taken away together.
const TOGETHER: &[usize] = &[1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32, 48, 64];

/// The rule by which a change breaks nothing.
pub(crate) fn by_rule(mutant: &Mutant, originals: &[Original<'_>]) -> Option<&'static str> {
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
        Change::Behind(past, _) if has_the_same_members(&mutant.opcode, past) => {
            Some("a group is what was started before its commit: it has the same members")
        }
        Change::Behind(past, _)
            if mutant.opcode.contains("expect_tx") && past.starts_with("cp.async.bulk") =>
        {
            Some(
                "bytes may be announced behind the copy, as long as the arrival that goes with it is still to come",
            )
        }
        Change::Behind(_, line) if is_fenced_by_all(mutant, *line, originals) => {
            Some("all threads that meet there fence behind the barrier instead of before it")
        }
        Change::Behind(past, _) if is_block_barrier(mutant) && is_own_wait(past) => Some(
            "a thread waits for what it has started before it meets the others, not behind that",
        ),
        Change::Behind(past, line) if is_only_passed(mutant, past, *line, originals) => {
            Some("what it changes places with conflicts with nothing that another thread does")
        }
        Change::Behind(past, line) if is_passed_unharmed(mutant, past, *line, originals) => Some(
            "nothing that another thread does before conflicts with what it changes places with, whatever barriers are gone",
        ),
        Change::Weaker("acquire" | "release" | "acq_rel", "relaxed")
            if is_atomic(mutant) && originals.iter().all(Original::needs_no_flags) =>
        {
            Some(
                "no atomic hands anything over: with all of them relaxed and without fences, nothing is found",
            )
        }
        Change::Behind(past, _)
            if mutant.opcode.starts_with("tcgen05.fence") && past.starts_with("bar.warp.sync") =>
        {
            Some(
                "a warp loads and stores tensor memory as one: between its lanes nothing of that is handed over",
            )
        }
        Change::Behind(past, line)
            if past.starts_with("tcgen05.fence") && frees_only(*line, originals) =>
        {
            Some("it changes places with a fence behind which tensor memory is only freed")
        }
        Change::Behind(past, _)
            if past.starts_with("wgmma.fence") && !mutant.opcode.starts_with("wgmma") =>
        {
            Some("it changes places with `wgmma.fence`, which is about registers")
        }
        Change::Removed
            if bulk_group(mutant)
                .is_some_and(|kind| originals.iter().all(|one| one.needs_only_the_last(kind))) =>
        {
            Some(
                "no source of a copy is written again: with the last of its kind alone, nothing is found",
            )
        }
        Change::Removed if is_arrival(&mutant.opcode) => {
            Some("nobody waits for the phase that it completes: a wait for it would never end")
        }
        _ if mutant.opcode.starts_with("griddepcontrol") => {
            Some("the launch comes behind no other that it would wait for")
        }
        _ if has_nothing_behind(mutant, originals) => {
            Some("nothing that another thread uses is touched behind it until the kernel ends")
        }
        _ if mutant.opcode.starts_with("tcgen05.fence") && frees_only(mutant.line, originals) => {
            Some("tensor memory is only freed behind it, and a free is synchronous")
        }
        Change::Removed if is_wait(&mutant.opcode) && frees_only(mutant.line, originals) => Some(
            "only the end comes behind it, and what is still in flight there or at a free would be found",
        ),
        _ if is_wait(&mutant.opcode)
            && originals
                .iter()
                .all(|one| one.waits_for_nothing_at(mutant.line)) =>
        {
            Some("the launch uses each stage once: the wait is for the phase before the first")
        }
        _ if mutant.opcode.starts_with("bar.warp.sync")
            && originals.iter().all(Original::needs_no_warp_barrier) =>
        {
            Some(
                "no lane hands anything to another: without any barrier of a warp nothing is found",
            )
        }
        Change::Removed
            if mutant.opcode.starts_with("bar.warp.sync")
                && originals.iter().all(|one| one.sees_lanes_apart(mutant)) =>
        {
            Some(
                "lanes only come together there: a race put in its place is found, and there is no other",
            )
        }
        _ if originals.iter().all(|one| one.shares_nothing(mutant)) => {
            Some("no two threads use the same bytes: without any order at all, nothing is found")
        }
        _ => None,
    }
}

/// Whether a commit does not change places with what would be in its group.
fn has_the_same_members(opcode: &str, past: &str) -> bool {
    let groups = [
        ("cp.async.commit_group", "cp.async.c"),
        ("cp.async.bulk.commit_group", "cp."),
        ("wgmma.commit_group", "wgmma."),
        ("tcgen05.commit", "tcgen05."),
    ];
    let group = groups.iter().find(|(commit, _)| opcode.starts_with(commit));
    group.is_some_and(|(_, member)| !past.starts_with(member))
}

/// Whether a fence between proxies changes places with a barrier, and everybody who comes by that
/// barrier comes by the fence right behind it. A way from one thread to another leads through the
/// barrier, and has the other's fence on it in place of the one's: PTX asks for a fence on the way.
fn is_fenced_by_all(mutant: &Mutant, line: usize, originals: &[Original<'_>]) -> bool {
    let Some(text) = originals.first().map(Original::text) else {
        return false;
    };
    let unguarded = |line: usize| {
        let one = instruction(text.lines().nth(line.checked_sub(1)?)?)?;
        (!one.is_guarded()).then_some(one)
    };
    let meets =
        |line| unguarded(line).is_some_and(|one| one.is_barrier() && one.opcode.contains("sync"));
    mutant.opcode.starts_with("fence.proxy.async")
        && unguarded(mutant.line).is_some()
        && meets(line)
        && originals.iter().all(|one| one.meets_only_at(line))
}

/// Whether threads of a block wait for each other at what a mutant has moved.
fn is_block_barrier(mutant: &Mutant) -> bool {
    ["bar.sync", "barrier.sync"]
        .iter()
        .any(|start| mutant.opcode.starts_with(start))
}

fn is_atomic(mutant: &Mutant) -> bool {
    mutant.opcode.starts_with("atom.") || mutant.opcode.starts_with("red.")
}

/// Whether a thread waits there for its own copies, loads or products. They come to their end by
/// themselves, so it may wait sooner.
fn is_own_wait(opcode: &str) -> bool {
    let waits = [
        "cp.async.wait_",
        "cp.async.bulk.wait_group",
        "wgmma.wait_group",
        "tcgen05.wait",
    ];
    waits.iter().any(|start| opcode.starts_with(start))
}

/// Whether an access hands nothing over itself.
fn hands_nothing_over(opcode: &str) -> bool {
    let plain = [
        "ld.",
        "st.",
        "cp.async",
        "ldmatrix",
        "stmatrix",
        "wgmma.mma",
    ];
    let hands_over = [
        "acquire",
        "release",
        "relaxed",
        "volatile",
        "multicast",
        "cluster.shared",
        "commit",
        "wait",
        "mbarrier.arrive",
    ];
    plain.iter().any(|start| opcode.starts_with(start))
        && !hands_over.iter().any(|word| opcode.contains(word))
}

/// Whether a barrier changes places with one access that hands nothing over itself and needs no order.
/// What the barrier orders before all that follows is ordered as before: threads of the block that see the
/// end of a copy have come by the barrier, too.
fn is_only_passed(mutant: &Mutant, past: &str, line: usize, originals: &[Original<'_>]) -> bool {
    is_block_barrier(mutant)
        && hands_nothing_over(past)
        && originals.iter().all(|one| one.meets_only_at(mutant.line))
        && originals.iter().all(|one| one.needs_no_order_at(line))
}

/// Whether a barrier that all threads come by once changes places with an access that conflicts with
/// nothing before the barrier. What comes behind is ordered as before. An arrival may be passed, too, where
/// nobody has counted at its mbarrier before: those who wait for it have come by the barrier.
fn is_passed_unharmed(
    mutant: &Mutant,
    past: &str,
    line: usize,
    originals: &[Original<'_>],
) -> bool {
    let Some(text) = originals.first().map(Original::text) else {
        return false;
    };
    let harmless =
        hands_nothing_over(past) || past.starts_with("mbarrier.inval") || counts_first(text, line);
    is_block_barrier(mutant)
        && harmless
        && !is_repeated(text, mutant.line)
        && originals.iter().all(|one| one.meets_only_at(mutant.line))
        && originals
            .iter()
            .all(|one| one.needs_no_barrier_before(mutant, line))
}

/// Whether a line arrives at an mbarrier of its own block, and no line above counts at that one.
fn counts_first(text: &str, line: usize) -> bool {
    let counting = [
        "mbarrier.arrive",
        "mbarrier.expect_tx",
        "mbarrier.complete_tx",
        "cp.async.mbarrier",
        "tcgen05.commit",
    ];
    let counts = |opcode: &str| {
        counting.iter().any(|start| opcode.starts_with(start)) || opcode.contains("complete_tx")
    };
    let Some(own) = text.lines().nth(line - 1).and_then(instruction) else {
        return false;
    };
    let place = own
        .rest
        .split_once('[')
        .and_then(|(_, rest)| rest.split_once(']'));
    let Some((place, _)) = place else {
        return false;
    };
    let place = format!("[{place}]");
    let mut above = text.lines().take(line - 1).filter_map(instruction);
    own.opcode.starts_with("mbarrier.arrive")
        && !own.opcode.contains("cluster")
        && !above.any(|one| counts(one.opcode) && one.rest.contains(&place))
}

/// Whether an instruction orders something before what comes behind it, in its own thread or for a
/// barrier in those that meet there, and nothing comes.
fn has_nothing_behind(mutant: &Mutant, originals: &[Original<'_>]) -> bool {
    let Some(text) = originals.first().map(Original::text) else {
        return false;
    };
    let Some(line) = text.lines().nth(mutant.line - 1).and_then(instruction) else {
        return false;
    };
    let is = |starts: &[&str]| starts.iter().any(|start| line.opcode.starts_with(start));
    // A block must not end before what it has started asynchronously.
    let asynchronous = ["complete_tx", "cp.async.mbarrier", "tcgen05.commit"];
    let arrives_late = || asynchronous.iter().any(|how| text.contains(how));
    let looks_back = is(&["fence.", "membar"])
        || matches!(mutant.change, Change::Weaker("acquire", _))
        || is(&["mbarrier.try_wait", "mbarrier.test_wait"]) && !arrives_late();
    let meets = |line: usize| originals.iter().all(|one| one.meets_only_at(line));
    let own = |line: usize, opcode: &str| {
        hands_nothing_over(opcode) && originals.iter().all(|one| one.needs_no_order_at(line))
    };
    (looks_back || line.is_barrier() && meets(mutant.line))
        && leads_only_to(text, mutant.line, &own, &meets)
}

/// How the opcodes of a mutant's kind begin, if it is about groups of bulk copies.
fn bulk_group(mutant: &Mutant) -> Option<&'static str> {
    let kinds = ["cp.async.bulk.wait_group", "cp.async.bulk.commit_group"];
    kinds
        .into_iter()
        .find(|kind| mutant.opcode.starts_with(kind))
}

/// Whether a thread arrives there by itself, and announces nothing.
fn is_arrival(opcode: &str) -> bool {
    opcode.starts_with("mbarrier.arrive") && !opcode.contains("expect_tx")
}

fn is_wait(opcode: &str) -> bool {
    opcode.starts_with("mbarrier.try_wait") || opcode.starts_with("mbarrier.test_wait")
}

/// Whether all threads go on from a line to nothing but waits and the end of tensor memory. They may arrive
/// where nobody waits for it: the kernel comes to its end without that.
fn frees_only(line: usize, originals: &[Original<'_>]) -> bool {
    let Some(text) = originals.first().map(Original::text) else {
        return false;
    };
    let quiet = [
        "tcgen05.dealloc",
        "tcgen05.relinquish",
        "tcgen05.fence",
        "bar.warp.sync",
        "shfl.sync",
    ];
    let unawaited = |line: usize| {
        let mut originals = originals.iter();
        originals.all(|one| one.stands_without(line))
    };
    let harmless = |line: usize, opcode: &str| {
        quiet.iter().any(|start| opcode.starts_with(start))
            || is_wait(opcode)
            || is_own_wait(opcode)
            || hands_nothing_over(opcode)
            || is_arrival(opcode) && unawaited(line)
    };
    let meets = |line: usize| originals.iter().all(|one| one.meets_only_at(line));
    leads_only_to(text, line, &harmless, &meets)
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
    /// Looks for them beside a mutant: each of the nearest alone, then more and more of the nearest
    /// together, those of its own opcode first, then those of its own kind.
    pub(crate) fn of(mutant: &Mutant, originals: &[Original<'_>]) -> Option<Redundant> {
        let text = originals.first()?.text();
        let mut others = ordering(text);
        others.retain(|&(line, _)| line != mutant.line);
        others.sort_by_key(|(line, _)| line.abs_diff(mutant.line));
        let family = |opcode: &str| {
            let name = opcode.split('.').next().unwrap_or_default();
            name.strip_suffix("rier").unwrap_or(name).to_owned()
        };
        let own = family(&mutant.opcode);
        let alike = others.iter().filter(|(_, opcode)| family(opcode) == own);
        let alike: Vec<usize> = alike.map(|&(line, _)| line).collect();
        let same = others.iter().filter(|(_, opcode)| *opcode == mutant.opcode);
        let same: Vec<usize> = same.map(|&(line, _)| line).collect();
        let all: Vec<usize> = others.iter().map(|&(line, _)| line).collect();
        let alone = all.iter().take(NEAREST).map(|&line| vec![line]);
        let together = [&same, &alike, &all].into_iter().flat_map(|lines| {
            let counts = TOGETHER
                .iter()
                .copied()
                .filter(|&count| count < lines.len());
            counts
                .chain([lines.len()])
                .map(|count| lines[..count].to_vec())
        });
        alone.chain(together).find_map(|lines| {
            let gone = |text: &str, place: &dyn Fn(usize) -> usize| {
                let mut lines = lines.iter();
                lines.try_fold(text.to_owned(), |text, &line| without(&text, place(line)))
            };
            let beside = gone(text, &|line| line)?;
            let all = gone(&mutant.text, &|line| mutant.line_of(line))?;
            let found = originals.iter().find_map(|original| {
                let beside = original.findings(&beside)?;
                // A finding of the mutant's may stand where the original's line has moved to.
                let known = |place: &Place| {
                    let same = |one: &Place| {
                        one.code == place.code && mutant.line_of(one.line) == place.line
                    };
                    beside.iter().any(same)
                };
                let mut all = original.findings(&all)?.into_iter();
                all.find(|place| !known(place))
            })?;
            Some(Redundant { lines, found })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_arrival_is_the_first_at_its_mbarrier() {
        let text = "\
    mbarrier.init.shared::cta.b64 [b], 1;
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [a], 16;
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [b], 16;
    mbarrier.arrive.shared::cta.b64 _, [b];
    mbarrier.arrive.shared::cluster.b64 _, [c];
";
        assert!(counts_first(text, 2) && counts_first(text, 3));
        assert!(!counts_first(text, 1) && !counts_first(text, 4));
        assert!(!counts_first(text, 5), "of another block");
    }
}
