//! Where control goes in a text, as far as it takes to tell what comes behind a line.

use crate::mutation::{Line, instruction};

/// Instructions that compute in registers or change where control goes: no other thread sees them.
const SILENT: &[&str] = &[
    "mov",
    "add",
    "sub",
    "mul",
    "mad",
    "fma",
    "neg",
    "abs",
    "min",
    "max",
    "div",
    "rem",
    "rcp",
    "sqrt",
    "rsqrt",
    "ex2",
    "lg2",
    "tanh",
    "and",
    "or",
    "xor",
    "not",
    "lop3",
    "shl",
    "shr",
    "shf",
    "bfe",
    "bfi",
    "popc",
    "clz",
    "prmt",
    "set",
    "setp",
    "selp",
    "slct",
    "cvt",
    "cvta",
    "elect",
    "nanosleep",
    "bra",
    "ret",
    "exit",
];

/// Whether no thread touches memory or orders anything behind a line, counted from 1, until the kernel
/// ends, but for lines and their opcodes of which `harmless` says that they do not matter. Threads may meet at a
/// barrier of which `meets_only_at` says that all who meet there meet at its line: what comes behind it
/// is then known for all of them. False where it can't be told.
pub(crate) fn leads_only_to(
    text: &str,
    line: usize,
    harmless: &dyn Fn(usize, &str) -> bool,
    meets_only_at: &dyn Fn(usize) -> bool,
) -> bool {
    let lines: Vec<&str> = text.lines().map(code).collect();
    let header = lines[..line.min(lines.len())]
        .iter()
        .rev()
        .find(|one| one.contains(".entry") || one.contains(".func"));
    // What comes behind a function's end is not known here.
    if !header.is_some_and(|header| header.contains(".entry")) {
        return false;
    }
    let mut seen = vec![false; lines.len()];
    let mut open = vec![line];
    while let Some(at) = open.pop() {
        // A loop around the line comes back to it.
        if at + 1 == line || seen.get(at) == Some(&true) {
            continue;
        }
        let Some(&whole) = lines.get(at) else {
            return false;
        };
        seen[at] = true;
        match step(whole) {
            Some(Step::On) => open.push(at + 1),
            Some(Step::End) => {}
            Some(Step::Meet) if meets_only_at(at + 1) => open.push(at + 1),
            Some(Step::To(label, falls_through)) => {
                let target = lines
                    .iter()
                    .position(|one| one.strip_suffix(':') == Some(label));
                let Some(target) = target else {
                    return false;
                };
                open.push(target);
                if falls_through {
                    open.push(at + 1);
                }
            }
            None if instruction(whole).is_some_and(|one| harmless(at + 1, one.opcode)) => {
                open.push(at + 1);
            }
            Some(Step::Meet) | None => return false,
        }
    }
    true
}

enum Step<'t> {
    On,
    End,
    /// To a barrier of the block.
    Meet,
    /// To a label, and whether also on to the next line.
    To(&'t str, bool),
}

/// A line without its comment.
fn code(line: &str) -> &str {
    line.split("//").next().unwrap_or_default().trim()
}

/// Where a line leads that nobody else sees; none for any other.
fn step(whole: &str) -> Option<Step<'_>> {
    let harmless = whole.is_empty()
        || matches!(whole, "{" | "}")
        || whole.ends_with(':')
        || [".reg", ".loc", ".pragma"]
            .iter()
            .any(|start| whole.starts_with(start));
    if harmless {
        return Some(Step::On);
    }
    let line = instruction(whole)?;
    if line.is_barrier() && !line.is_guarded() {
        return Some(Step::Meet);
    }
    let name = line.opcode.split('.').next()?;
    if !SILENT.contains(&name) {
        return None;
    }
    Some(match name {
        "ret" | "exit" if !line.is_guarded() => Step::End,
        "bra" => {
            let target = line.rest.trim().trim_end_matches(';').trim();
            Step::To(target, line.is_guarded())
        }
        _ => Step::On,
    })
}

/// The text with another number for the barrier of a line, one that no other line uses: threads that
/// met there at another line now wait for ever. None where it has no number of its own.
pub(crate) fn renumbered(text: &str, line: usize) -> Option<String> {
    let whole = *text.lines().collect::<Vec<_>>().get(line.checked_sub(1)?)?;
    let barrier = instruction(code(whole)).filter(Line::is_barrier)?;
    let operands = barrier.rest.trim().trim_end_matches(';');
    let (number, others) = match operands.split_once(',') {
        Some((number, others)) => (number, format!(",{others}")),
        None => (operands, String::new()),
    };
    number.trim().parse::<u32>().ok()?;
    let numbers: Vec<u32> = text
        .lines()
        .filter_map(|one| instruction(code(one)))
        .filter(Line::is_barrier)
        .map(|one| {
            let number = one.rest.trim().trim_end_matches(';').split(',').next()?;
            number.trim().parse().ok()
        })
        .collect::<Option<_>>()?;
    let free = (0..16).rev().find(|number| !numbers.contains(number))?;
    let new = barrier.with(barrier.opcode, &format!(" {free}{others};"));
    let lines = text.lines().enumerate();
    let lines = lines.map(|(at, one)| if at + 1 == line { &*new } else { one });
    Some(lines.collect::<Vec<_>>().join("\n") + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    const KERNEL: &str = "\
.visible .entry k()
{
    bar.sync 0;
    @p bra done;
    st.shared.u32 [a], 1;
done:    // here
    bar.sync 0;
again:
    ld.acquire.gpu.u32 v, [f];
    setp.eq.u32 p, v, 0;
    @p bra again;
    ret;
}
";

    /// Whether nothing at all comes behind a line.
    fn is_last(text: &str, line: usize, meets_only_at: &dyn Fn(usize) -> bool) -> bool {
        leads_only_to(text, line, &|_, _| false, meets_only_at)
    }

    #[test]
    fn the_last_wait_is_the_last_thing_that_anybody_sees() {
        assert!(is_last(KERNEL, 9, &|_| false));
        assert!(!is_last(KERNEL, 7, &|_| true), "a load follows");
        assert!(
            !is_last(KERNEL, 3, &|_| true),
            "a store follows on one of two ways"
        );
        assert!(!is_last(&KERNEL.replace(".entry", ".func"), 9, &|_| true));
        let with = |line: &str| KERNEL.replace("    ret;\n", &format!("    {line};\n    ret;\n"));
        assert!(!is_last(&with("call f, ()"), 9, &|_| true));
        assert!(is_last(&with("bar.sync 0"), 9, &|line| line == 12));
        assert!(!is_last(&with("bar.sync 0"), 9, &|_| false));
        let stores = |line, opcode: &str| line == 12 && opcode.starts_with("st.");
        let stored = with("st.global.u32 [d], r");
        assert!(!is_last(&stored, 9, &|_| true));
        assert!(leads_only_to(&stored, 9, &stores, &|_| false));
    }

    #[test]
    fn a_barrier_gets_a_number_of_its_own() {
        let other = renumbered(KERNEL, 3).unwrap();
        assert_eq!(other.matches("bar.sync 15;").count(), 1);
        assert_eq!(other.lines().nth(2), Some("bar.sync 15;"));
        assert_eq!(renumbered(KERNEL, 4), None);
        let unknown = KERNEL.replacen("bar.sync 0", "bar.sync %r1, 64", 1);
        assert_eq!(renumbered(&unknown, 7), None, "any number may be that one");
    }
}
