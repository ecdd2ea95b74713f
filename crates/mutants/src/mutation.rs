//! One change to one instruction of a PTX text.
//!
//! A change is made in the text, line by line: the files that it is for have one
//! instruction a line, and a finding about a mutant then names the line of the original.

/// The kind of a change, and so what must kill the mutant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MutationKind {
    /// It removes an order: the checker must find that.
    Order,
    /// It computes something else: a test's expectation must fail.
    Value,
}

/// What a change does to an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// The instruction is gone.
    Removed,
    /// It changes places with what was behind it, up to the instruction of this opcode and line.
    Behind(String, usize),
    /// One modifier has become another.
    Weaker(&'static str, &'static str),
    /// None of these: it computes something else.
    Value,
}

/// A text with one change.
#[derive(Clone, Debug)]
pub(crate) struct Mutant {
    pub(crate) kind: MutationKind,
    /// From 1.
    pub(crate) line: usize,
    /// The opcode of what is changed.
    pub(crate) opcode: String,
    pub(crate) change: Change,
    /// In words.
    pub(crate) words: String,
    pub(crate) text: String,
    /// With a trap before what is changed: where no launch stops there, it is not run at all.
    pub(crate) probe: String,
}

impl Mutant {
    /// Where another line of the original is in the mutant.
    pub(crate) fn line_of(&self, original: usize) -> usize {
        match self.change {
            Change::Behind(_, behind) if (self.line + 1..=behind).contains(&original) => {
                original - 1
            }
            _ => original,
        }
    }

    /// What a list of explained ones calls it.
    pub(crate) fn name(&self, file: &str) -> String {
        format!("{file}:{} {}", self.line, self.words)
    }
}

/// Instructions that order something, by how their opcodes begin.
const ORDERING: &[&str] = &[
    "fence",
    "membar",
    "bar.sync",
    "bar.arrive",
    "bar.warp",
    "bar.cta",
    "barrier",
    "mbarrier.arrive",
    "mbarrier.expect_tx",
    "mbarrier.try_wait",
    "mbarrier.test_wait",
    "cp.async.commit_group",
    "cp.async.wait_group",
    "cp.async.wait_all",
    "cp.async.mbarrier",
    "cp.async.bulk.commit_group",
    "cp.async.bulk.wait_group",
    "wgmma.fence",
    "wgmma.commit_group",
    "wgmma.wait_group",
    "tcgen05.fence",
    "tcgen05.commit",
    "tcgen05.wait",
    "tcgen05.dealloc",
    "griddepcontrol.wait",
];

/// Modifiers that order less when they are replaced.
const WEAKER: &[(&str, &str)] = &[
    ("sys", "gpu"),
    ("gpu", "cta"),
    ("cluster", "cta"),
    ("acquire", "relaxed"),
    ("release", "relaxed"),
    ("acq_rel", "relaxed"),
];

/// Comparisons, and what they are turned into.
const FLIPPED: &[(&str, &str)] = &[
    ("lt", "le"),
    ("le", "lt"),
    ("gt", "ge"),
    ("ge", "gt"),
    ("eq", "ne"),
    ("ne", "eq"),
];

/// An instruction in a line.
pub(crate) struct Line<'t> {
    indent: &'t str,
    guard: &'t str,
    pub(crate) opcode: &'t str,
    pub(crate) rest: &'t str,
}

/// The instruction of a line that has one and nothing else.
pub(crate) fn instruction(line: &str) -> Option<Line<'_>> {
    let body = line.trim_start();
    let indent = &line[..line.len() - body.len()];
    let end = body.find(';')?;
    if body[end + 1..].contains(';') || body.starts_with(['.', '/', '{', '}']) {
        return None;
    }
    let (guard, after) = match body.strip_prefix('@') {
        Some(_) => {
            let space = body.find(char::is_whitespace)?;
            (&body[..=space], body[space..].trim_start())
        }
        None => ("", body),
    };
    let opcode_end = after.find(|c: char| c.is_whitespace() || c == ';')?;
    let opcode = &after[..opcode_end];
    let named = opcode.starts_with(|c: char| c.is_ascii_lowercase()) && !opcode.contains(':')
        || opcode.contains("::");
    named.then_some(Line {
        indent,
        guard,
        opcode,
        rest: &after[opcode_end..],
    })
}

impl Line<'_> {
    pub(crate) fn orders(&self) -> bool {
        ORDERING.iter().any(|start| self.opcode.starts_with(start))
    }

    /// Whether threads of a block meet there, all that come.
    pub(crate) fn is_barrier(&self) -> bool {
        let parts: Vec<&str> = self.opcode.split('.').collect();
        matches!(parts[0], "bar" | "barrier")
            && !parts.contains(&"warp")
            && !parts.contains(&"cluster")
    }

    pub(crate) fn is_guarded(&self) -> bool {
        !self.guard.is_empty()
    }

    /// The line without the order that it makes: gone, or for an access relaxed. None where it makes none.
    pub(crate) fn unordered(&self) -> Option<String> {
        if self.orders() {
            return Some(self.removed());
        }
        let mut weaker = self.weaker().into_iter();
        let relaxed = weaker.find(|(_, change)| matches!(change, Change::Weaker(_, "relaxed")));
        relaxed.map(|(opcode, _)| self.with(&opcode, self.rest))
    }

    pub(crate) fn with(&self, opcode: &str, rest: &str) -> String {
        format!("{}{}{opcode}{rest}", self.indent, self.guard)
    }

    /// The line without the instruction. A wait leaves its answer behind: it has come.
    pub(crate) fn removed(&self) -> String {
        let waits = self.opcode.starts_with("mbarrier.try_wait")
            || self.opcode.starts_with("mbarrier.test_wait");
        match self.rest.split(',').next() {
            Some(answer) if waits => self.with("setp.eq.u32", &format!("{answer}, 0, 0;")),
            _ => format!("{}// removed", self.indent),
        }
    }

    /// Every opcode that orders less, and which modifier makes it so.
    fn weaker(&self) -> Vec<(String, Change)> {
        let ordered = self.orders()
            || ["ld.", "st.", "atom.", "red."]
                .iter()
                .any(|start| self.opcode.starts_with(start));
        if !ordered {
            return Vec::new();
        }
        let parts: Vec<&str> = self.opcode.split('.').collect();
        let mut found = Vec::new();
        for (at, part) in parts.iter().enumerate().skip(1) {
            for (strong, weak) in WEAKER {
                let fence = matches!(parts[0], "fence" | "membar");
                let scope = !matches!(*weak, "relaxed");
                // There is no relaxed fence and no relaxed wait at a cluster's barrier, such
                // a barrier has no scope, and neither has a fence of inits; `st.async` and
                // `red.async` have one scope alone.
                let unknown = fence && !scope
                    || parts.get(1) == Some(&"async")
                    || parts[0] == "barrier" && (scope || parts.contains(&"wait"))
                    || parts.contains(&"mbarrier_init");
                if part != strong || unknown {
                    continue;
                }
                let mut changed = parts.clone();
                changed[at] = weak;
                found.push((changed.join("."), Change::Weaker(strong, weak)));
            }
        }
        found
    }
}

/// Every change to every instruction of a text.
pub(crate) fn all(text: &str) -> Vec<Mutant> {
    let lines: Vec<&str> = text.lines().collect();
    let mut mutants = Vec::new();
    for (at, &whole) in lines.iter().enumerate() {
        let Some(line) = instruction(whole) else {
            continue;
        };
        let probe = {
            let trap = line.with("trap", ";\n") + whole;
            let mut changed: Vec<&str> = lines.clone();
            changed[at] = &trap;
            changed.join("\n") + "\n"
        };
        let mut add = |change: Change, words: String, replaced: &[(usize, String)]| {
            let mut changed: Vec<&str> = lines.clone();
            for (at, with) in replaced {
                changed[*at] = with;
            }
            mutants.push(Mutant {
                kind: match change {
                    Change::Value => MutationKind::Value,
                    _ => MutationKind::Order,
                },
                line: at + 1,
                opcode: line.opcode.to_owned(),
                change,
                words,
                text: changed.join("\n") + "\n",
                probe: probe.clone(),
            });
        };
        if line.orders() {
            add(
                Change::Removed,
                format!("without {}", line.opcode),
                &[(at, line.removed())],
            );
            if let Some(behind) = next_access(&lines, at)
                && !line.opcode.contains("wait")
            {
                let mut moved: Vec<(usize, String)> = (at..behind)
                    .map(|to| (to, lines[to + 1].to_owned()))
                    .collect();
                moved.push((behind, whole.to_owned()));
                let past = instruction(lines[behind]).map_or("", |line| line.opcode);
                add(
                    Change::Behind(past.to_owned(), behind + 1),
                    format!("{} later", line.opcode),
                    &moved,
                );
            }
        }
        for (weaker, change) in line.weaker() {
            let words = format!("{} for {}", weaker, line.opcode);
            add(change, words, &[(at, line.with(&weaker, line.rest))]);
        }
        for (opcode, rest) in values(&line) {
            let words = format!(
                "{opcode}{} for {}{}",
                rest.trim_end(),
                line.opcode,
                line.rest.trim_end()
            );
            add(Change::Value, words, &[(at, line.with(&opcode, &rest))]);
        }
    }
    mutants
}

/// The next line that touches memory or orders something, if nothing but instructions that
/// do neither lie between.
fn next_access(lines: &[&str], at: usize) -> Option<usize> {
    const TOUCHING: &[&str] = &[
        "ld.",
        "st.",
        "atom.",
        "red.",
        "cp.",
        "wgmma.mma",
        "ldmatrix",
        "stmatrix",
        "mbarrier.",
    ];
    for (to, line) in lines.iter().enumerate().skip(at + 1) {
        if line.trim().is_empty() || line.trim_start().starts_with("//") {
            continue;
        }
        let line = instruction(line)?;
        if is_jump(line.opcode) {
            return None;
        }
        let param = line.opcode.starts_with("ld.param");
        let touches = TOUCHING.iter().any(|start| line.opcode.starts_with(start));
        if touches && !param || line.orders() {
            return Some(to);
        }
    }
    None
}

fn is_jump(opcode: &str) -> bool {
    ["bra", "brx", "ret", "exit", "call", "trap"]
        .iter()
        .any(|jump| opcode.starts_with(jump))
}

/// Changes that compute something else: a comparison flipped, a constant one more.
fn values(line: &Line<'_>) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let parts: Vec<&str> = line.opcode.split('.').collect();
    if parts[0] == "setp"
        && let Some((_, flipped)) = FLIPPED.iter().find(|(from, _)| parts.get(1) == Some(from))
    {
        let mut changed = parts.clone();
        changed[1] = flipped;
        found.push((changed.join("."), line.rest.to_owned()));
    }
    if matches!(parts[0], "add" | "mad" | "shl" | "shr" | "mul" | "and")
        && let Some((before, last)) = line.rest.trim_end().trim_end_matches(';').rsplit_once(", ")
        && let Ok(number) = last.trim().parse::<u32>()
    {
        let changed = format!("{before}, {};", number.wrapping_add(1));
        found.push((line.opcode.to_owned(), changed));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changes(text: &str) -> Vec<(String, String)> {
        let of = |mutant: Mutant| (mutant.words, mutant.text);
        all(text).into_iter().map(of).collect()
    }

    #[test]
    fn every_order_is_taken_away_moved_and_weakened() {
        let found = changes("    @p fence.acq_rel.gpu;\n    st.global.u32 [d], v;\n");
        let changes: Vec<&str> = found.iter().map(|(change, _)| change.as_str()).collect();
        assert_eq!(
            changes,
            [
                "without fence.acq_rel.gpu",
                "fence.acq_rel.gpu later",
                "fence.acq_rel.cta for fence.acq_rel.gpu",
            ]
        );
        assert_eq!(found[0].1, "    // removed\n    st.global.u32 [d], v;\n");
        assert_eq!(
            found[1].1,
            "    st.global.u32 [d], v;\n    @p fence.acq_rel.gpu;\n"
        );
    }

    #[test]
    fn a_change_knows_what_it_is() {
        let text = "    cp.async.commit_group;\n    add.u32 a, a, 1;\n    ld.shared.u32 v, [a];\n";
        let kinds: Vec<Change> = all(text).into_iter().map(|one| one.change).collect();
        let past = Change::Behind("ld.shared.u32".to_owned(), 3);
        assert_eq!(kinds, [Change::Removed, past, Change::Value]);
        let weaker = &all("    ld.acquire.sys.u32 v, [a];\n")[1].change;
        assert_eq!(*weaker, Change::Weaker("sys", "gpu"));
    }

    #[test]
    fn a_wait_that_is_gone_has_been_answered() {
        let found = changes("wait:\n    mbarrier.try_wait.parity.acquire.cta.b64 p, [bar], 0;\n");
        assert!(found[0].1.contains("    setp.eq.u32 p, 0, 0;"), "{found:?}");
        assert!(
            found[1].1.contains("try_wait.parity.relaxed.cta"),
            "{found:?}"
        );
    }

    #[test]
    fn comparisons_and_constants_change() {
        let found = changes("  setp.lt.u32 p, a, b;\n  add.u32 a, a, 7;\n  label: \n");
        assert_eq!(found.len(), 2);
        assert!(found[0].1.contains("setp.le.u32 p, a, b;"));
        assert!(found[1].1.contains("add.u32 a, a, 8;"));
    }
}
