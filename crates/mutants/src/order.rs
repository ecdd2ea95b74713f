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
    let starts = |opcode: &str| {
        started.iter().any(|start| opcode.starts_with(start))
            && !groups.iter().any(|group| opcode.contains(group))
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

/// The text without any order: every ordering instruction gone, every load and store weak.
pub(crate) fn unordered(text: &str) -> String {
    const STRENGTH: &[&str] = &[
        "acquire", "release", "relaxed", "volatile", "sys", "gpu", "cluster", "cta",
    ];
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

/// Whether a branch behind a line leads to before it.
fn is_repeated(text: &str, line: usize) -> bool {
    let label = |whole: &str| whole.trim().strip_suffix(':').map(str::to_owned);
    let above: Vec<String> = text.lines().take(line).filter_map(label).collect();
    text.lines().skip(line).filter_map(instruction).any(|one| {
        let target = one.rest.trim().trim_end_matches(';').trim();
        one.opcode.starts_with("bra") && above.iter().any(|label| label == target)
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
