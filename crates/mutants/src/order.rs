//! The orders of a text: which lines make them, and the text without some of them.

use crate::mutation::instruction;

/// The text without the order that a line makes, counted from 1, if it makes one.
pub(crate) fn without(text: &str, line: usize) -> Option<String> {
    let mut lines: Vec<&str> = text.lines().collect();
    let removed = lines
        .get(line.checked_sub(1)?)
        .and_then(|line| instruction(line))?
        .unordered()?;
    lines[line - 1] = &removed;
    Some(lines.join("\n") + "\n")
}

/// Instructions that order what others have started: how their opcodes begin, and how the opcodes of
/// those others do.
const STARTED: &[(&str, &[&str])] = &[
    (
        "tcgen05.fence",
        &[
            "tcgen05.mma",
            "tcgen05.cp",
            "tcgen05.shift",
            "tcgen05.ld",
            "tcgen05.st",
        ],
    ),
    ("cp.async.bulk.", &["cp.async.bulk.", "cp.reduce."]),
    ("cp.async.commit", &["cp.async.c"]),
    ("cp.async.wait", &["cp.async.c"]),
    ("wgmma.commit", &["wgmma.mma"]),
    ("wgmma.wait", &["wgmma.mma"]),
    ("tcgen05.wait", &["tcgen05.ld", "tcgen05.st"]),
];

/// The text with a trap before a line and before everything that it could order the end of: which trap
/// stops a launch tells what runs first. None where the line may run again, or orders something else.
pub(crate) fn raced_to(text: &str, line: usize) -> Option<String> {
    let of = text.lines().nth(line.checked_sub(1)?)?;
    let opcode = instruction(of)?.opcode;
    let (_, started) = STARTED
        .iter()
        .find(|(start, _)| opcode.starts_with(start))?;
    if is_repeated(text, line) {
        return None;
    }
    let groups = ["commit", "wait", "prefetch"];
    // Copies to shared memory complete at an mbarrier, and are in no group.
    let in_no_group =
        |opcode: &str| opcode.starts_with("cp.async.bulk.") && !opcode.contains("bulk_group");
    let starts = |opcode: &str| {
        started.iter().any(|start| opcode.starts_with(start))
            && !groups.iter().any(|group| opcode.contains(group))
            && !in_no_group(opcode)
    };
    let lines = text.lines().enumerate().map(|(at, whole)| {
        let trapped = instruction(whole).filter(|one| at + 1 == line || starts(one.opcode));
        trapped.map_or_else(|| whole.to_owned(), |one| one.with("trap", "; ") + whole)
    });
    Some(lines.collect::<Vec<_>>().join("\n") + "\n")
}

/// The text with a trap before the instruction of a line.
pub(crate) fn trapped(text: &str, line: usize) -> Option<String> {
    let mut lines: Vec<&str> = text.lines().collect();
    let whole = lines.get_mut(line.checked_sub(1)?)?;
    let with = instruction(whole)?.with("trap", "; ") + whole;
    *whole = &with;
    Some(lines.join("\n") + "\n")
}

/// The text with a trap before a wait, which is for a phase of parity zero. None where the parity is not in
/// a register. A wait for parity one passes at once as long as no phase is over.
pub(crate) fn trapped_in_even_phase(text: &str, line: usize) -> Option<String> {
    let mut lines: Vec<&str> = text.lines().collect();
    let whole = lines.get_mut(line.checked_sub(1)?)?;
    let wait = instruction(whole).filter(|one| !one.is_guarded())?;
    let parity = wait.rest.split(',').nth(2)?.trim().trim_end_matches(';');
    if !wait.opcode.contains("parity") || !parity.starts_with('%') {
        return None;
    }
    let with = format!(
        "{{ .reg .pred %heist_p; setp.eq.u32 %heist_p, {parity}, 0; @%heist_p trap; }} {whole}"
    );
    *whole = &with;
    Some(lines.join("\n") + "\n")
}

/// The text without the block's barriers above a line.
pub(crate) fn without_barriers_above(text: &str, line: usize) -> String {
    let lines = text.lines().enumerate().map(|(at, whole)| {
        let barrier = instruction(whole).filter(|one| at + 1 < line && one.is_barrier());
        barrier.map_or_else(|| whole.to_owned(), |one| one.removed())
    });
    lines.collect::<Vec<_>>().join("\n") + "\n"
}

/// The text with the last alone of the instructions whose opcodes begin so.
pub(crate) fn with_only_last(text: &str, start: &str) -> String {
    let is_one = |line: &str| instruction(line).is_some_and(|one| one.opcode.starts_with(start));
    let last = text.lines().filter(|line| is_one(line)).count();
    let mut seen = 0;
    let lines = text.lines().map(|whole| match instruction(whole) {
        Some(one) if one.opcode.starts_with(start) => {
            seen += 1;
            if seen == last {
                whole.to_owned()
            } else {
                one.removed()
            }
        }
        _ => whole.to_owned(),
    });
    lines.collect::<Vec<_>>().join("\n") + "\n"
}

/// The text without the barriers of warps.
pub(crate) fn without_warp_barriers(text: &str) -> String {
    let lines = text.lines().map(|whole| {
        let barrier = instruction(whole).filter(|one| one.opcode.starts_with("bar.warp.sync"));
        barrier.map_or_else(|| whole.to_owned(), |one| one.removed())
    });
    lines.collect::<Vec<_>>().join("\n") + "\n"
}

/// The modifiers of accesses that others may meet at without a race.
const STRENGTH: &[&str] = &[
    "acquire", "release", "relaxed", "volatile", "sys", "gpu", "cluster", "cta",
];

/// The text without fences and with every atomic relaxed. None where a load or store is strong: it may
/// be a flag.
pub(crate) fn without_flags(text: &str) -> Option<String> {
    let lines = text.lines().map(|whole| {
        let Some(line) = instruction(whole) else {
            return Some(whole.to_owned());
        };
        let mut parts = line.opcode.split('.');
        Some(match parts.next()? {
            "ld" | "st" if parts.any(|part| STRENGTH.contains(&part)) => return None,
            "fence" | "membar" => line.removed(),
            "atom" | "red" => {
                let relax = |part| match part {
                    "acquire" | "release" | "acq_rel" => "relaxed",
                    part => part,
                };
                let relaxed: Vec<&str> = line.opcode.split('.').map(relax).collect();
                line.with(&relaxed.join("."), line.rest)
            }
            _ => whole.to_owned(),
        })
    });
    let lines: Option<Vec<String>> = lines.collect();
    Some(lines?.join("\n") + "\n")
}

/// The text without any order: every ordering instruction gone, every load and store weak.
pub(crate) fn unordered(text: &str) -> String {
    let lines = text.lines().map(|whole| match instruction(whole) {
        Some(line) if line.orders() => line.removed(),
        Some(line) if line.opcode.starts_with("ld.") || line.opcode.starts_with("st.") => {
            let parts = line.opcode.split('.');
            let weak: Vec<&str> = parts.filter(|part| !STRENGTH.contains(part)).collect();
            line.with(&weak.join("."), line.rest)
        }
        _ => whole.to_owned(),
    });
    lines.collect::<Vec<_>>().join("\n") + "\n"
}

/// Whether a branch behind a line leads to before it. Of several labels of one name, each in braces of its
/// own, the last one above a branch is meant.
pub(crate) fn is_repeated(text: &str, line: usize) -> bool {
    let label = |whole: &str| whole.trim().strip_suffix(':').map(str::to_owned);
    let above: Vec<String> = text.lines().take(line).filter_map(label).collect();
    let mut below = Vec::new();
    text.lines().skip(line).any(|whole| {
        below.extend(label(whole));
        instruction(whole).is_some_and(|one| {
            let target = one.rest.trim().trim_end_matches(';').trim();
            let is_target = |label: &String| label == target;
            one.opcode.starts_with("bra")
                && above.iter().any(is_target)
                && !below.iter().any(is_target)
        })
    })
}

/// The lines of a text that order something, counted from 1, and their opcodes.
pub(crate) fn ordering(text: &str) -> Vec<(usize, &str)> {
    let lines = text.lines().enumerate();
    let orders = |line| instruction(line).filter(|one| one.unordered().is_some());
    lines
        .filter_map(|(at, line)| Some((at + 1, orders(line)?.opcode)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_runs_again_is_no_first_time() {
        let text = "a:\n    tcgen05.fence::before_thread_sync;\n    tcgen05.ld.x1 {v}, [t];\n";
        let raced = raced_to(text, 2).unwrap();
        assert_eq!(raced.matches("    trap; ").count(), 2, "{raced}");
        assert_eq!(raced.lines().count(), text.lines().count());
        assert_eq!(raced_to(&format!("{text}    @p bra a;\n"), 2), None);
        assert!(raced_to(&format!("{text}    @p bra b;\n"), 2).is_some());
        let scoped = format!("{text}    {{\n    a:\n    @p bra a;\n    }}\n");
        assert!(raced_to(&scoped, 2).is_some(), "another label of that name");
    }

    #[test]
    fn a_wait_for_groups_is_not_for_copies_to_shared_memory() {
        let load =
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [s], [g], 16, [b];";
        let store = "cp.async.bulk.global.shared::cta.bulk_group [g], [s], 16;";
        let traps = |copy: &str| {
            let text = format!("    {copy}\n    cp.async.bulk.wait_group.read 0;\n");
            raced_to(&text, 2).unwrap().matches("trap;").count()
        };
        assert_eq!((traps(load), traps(store)), (1, 2));
    }

    #[test]
    fn a_wait_is_probed_by_its_parity() {
        let text = "    mbarrier.try_wait.parity.shared::cta.b64 %p, [%b+8], %r;\n";
        let probe = trapped_in_even_phase(text, 1).unwrap();
        assert!(probe.contains("setp.eq.u32 %heist_p, %r, 0;") && probe.lines().count() == 1);
        assert_eq!(trapped_in_even_phase(&text.replace("%r", "1"), 1), None);
        assert_eq!(trapped_in_even_phase(&text.replace(".parity", ""), 1), None);
    }

    #[test]
    fn flags_and_barriers_are_taken_away() {
        let text = "    fence.acq_rel.gpu;\n    @p atom.global.gpu.acq_rel.max.s32 o, [a], v;\n";
        let relaxed = "    // removed\n    @p atom.global.gpu.relaxed.max.s32 o, [a], v;\n";
        assert_eq!(without_flags(text).as_deref(), Some(relaxed));
        assert_eq!(without_flags("    ld.volatile.global.u32 v, [a];\n"), None);
        let text = "    bar.sync 0;\n    bar.warp.sync -1;\n    barrier.sync 1;\n    bar.sync 0;\n";
        let rest = "    // removed\n    bar.warp.sync -1;\n    // removed\n    bar.sync 0;\n";
        assert_eq!(without_barriers_above(text, 4), rest);
    }

    #[test]
    fn the_last_of_its_kind_stays() {
        let text =
            "    cp.async.bulk.wait_group.read 1;\n    ret;\n    cp.async.bulk.wait_group 0;\n";
        let rest = "    // removed\n    ret;\n    cp.async.bulk.wait_group 0;\n";
        assert_eq!(with_only_last(text, "cp.async.bulk.wait"), rest);
    }

    #[test]
    fn without_any_order_every_access_is_weak() {
        let text =
            "    membar.gl;\n    @p ld.acquire.gpu.global.u32 v, [a];\n    add.u32 v, v, 1;\n";
        let weak = "    // removed\n    @p ld.global.u32 v, [a];\n    add.u32 v, v, 1;\n";
        assert_eq!(unordered(text), weak);
    }

    #[test]
    fn an_order_is_taken_away() {
        let text = "    cp.async.commit_group;\n    add.u32 a, a, 1;\n    ld.shared.u32 v, [a];\n";
        assert_eq!(ordering(text), [(1, "cp.async.commit_group")]);
        assert!(without(text, 1).is_some_and(|text| text.starts_with("    // removed\n")));
        assert_eq!(without(text, 3), None);
    }
}
