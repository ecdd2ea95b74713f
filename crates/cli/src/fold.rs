//! One bug is one finding: the same finding at many places is reported once.

use heist_ptx::{Diagnostic, Source};
use std::collections::HashMap;

/// Places that are shown beside the first; the others are named by their lines.
const SHOWN: usize = 3;
/// Lines that are named.
const NAMED: usize = 12;

/// Findings with those put together that say the same of different places, in the order of
/// the first of each.
pub(crate) fn fold(found: &[Diagnostic], source: &Source) -> Vec<Diagnostic> {
    let mut groups: Vec<Vec<&Diagnostic>> = Vec::new();
    let mut numbers: HashMap<String, usize> = HashMap::new();
    for one in found {
        let number = *numbers.entry(shape(one)).or_insert(groups.len());
        match groups.get_mut(number) {
            Some(list) => list.push(one),
            None => groups.push(vec![one]),
        }
    }
    groups.iter().map(|list| together(list, source)).collect()
}

/// What a finding says, without its numbers: threads, addresses and counts differ from place
/// to place. The number of an argument does not.
fn shape(one: &Diagnostic) -> String {
    let mut shape = format!("{} {:?} ", one.code, one.severity);
    let mut kept = "";
    for word in one.message.split_inclusive(' ') {
        if word.starts_with(|c: char| c.is_ascii_digit() || c == '(') && kept != "argument " {
            shape.push('#');
        } else {
            shape.push_str(word);
        }
        kept = word;
    }
    shape
}

fn together(list: &[&Diagnostic], source: &Source) -> Diagnostic {
    let [first, rest @ ..] = list else {
        unreachable!("a group has a first finding")
    };
    let mut told = (*first).clone();
    if rest.is_empty() {
        return told;
    }
    for other in rest.iter().take(SHOWN) {
        told = told.other(other.span, "the same here");
    }
    let mut lines: Vec<u32> = rest
        .iter()
        .filter(|other| !other.span.is_none())
        .map(|other| source.position(other.span).line)
        .collect();
    lines.sort_unstable();
    lines.dedup();
    let named: Vec<String> = lines.iter().take(NAMED).map(ToString::to_string).collect();
    let more = match lines.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let places = match list.len() - 1 {
        1 => "one more place".to_owned(),
        many => format!("{many} more places"),
    };
    told.note(format!(
        "the same at {places}: lines {}{more}",
        named.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use heist_ptx::{Span, rule};

    fn race(at: u32, thread: u32, argument: u32) -> Diagnostic {
        let span = Span {
            start: at,
            end: at + 1,
        };
        let message = format!(
            "thread ({thread},0,0) of block (0,0,0) writes byte {at} of the buffer of argument {argument}, and thread (9,0,0) read it"
        );
        Diagnostic::error(rule::GLOBAL_RACE, span, message)
    }

    #[test]
    fn the_same_at_many_places_is_told_once() {
        let source = Source::new("k.ptx", "a\n".repeat(100));
        let mut found: Vec<Diagnostic> = (0..40).map(|at| race(2 * at, at, 0)).collect();
        found.push(race(90, 1, 1));
        let told = fold(&found, &source);
        assert_eq!(told.len(), 2, "another buffer is another bug");
        assert_eq!(told[0].others.len(), SHOWN);
        let note = told[0].notes.last().unwrap();
        assert!(note.contains("39 more places: lines 2, 3, 4"), "{note}");
        assert!(note.ends_with("13 and 27 more"), "{note}");
        assert_eq!(told[1], race(90, 1, 1));
    }
}
