//! What a run has found so far, deduplicated by rule and place.

use heist_ptx::{Code, Diagnostic, Severity};
use rustc_hash::FxHashMap;

/// Findings kept; later ones at new places are only counted.
const MOST: usize = 200;

/// Collects diagnostics; the same rule at the same place is reported once and counted.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    known: FxHashMap<(&'static str, u32), usize>,
    list: Vec<(Diagnostic, u64)>,
    dropped: u64,
}

impl Findings {
    /// Reports `code` at instruction `place`; `make` runs for the first of its kind only.
    pub(crate) fn report(&mut self, code: Code, place: u32, make: impl FnOnce() -> Diagnostic) {
        match self.known.get(&(code.0, place)) {
            Some(&at) => self.list[at].1 += 1,
            None if self.list.len() >= MOST => self.dropped += 1,
            None => {
                self.known.insert((code.0, place), self.list.len());
                self.list.push((make(), 1));
            }
        }
    }

    /// Whether a finding of this rule at this place would be kept, so that its words are wanted.
    pub(crate) fn wants(&self, code: Code, place: u32) -> bool {
        self.list.len() < MOST && !self.known.contains_key(&(code.0, place))
    }

    /// Forgets what was told so often for a reason that is none.
    pub(crate) fn forget(&mut self, told: &FxHashMap<(&'static str, u32), u64>) {
        let known = std::mem::take(&mut self.known);
        let mut gone: Vec<usize> = known
            .into_iter()
            .filter(|(key, at)| told.get(key) == Some(&self.list[*at].1))
            .map(|(_, at)| at)
            .collect();
        gone.sort_unstable();
        for at in gone.into_iter().rev() {
            self.list.remove(at);
        }
    }

    /// Whether there is more than is kept.
    pub(crate) fn is_cut(&self) -> bool {
        self.dropped > 0
    }

    /// How many different findings there are.
    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    /// The findings, errors first, each saying how often it happened.
    pub(crate) fn finish(self) -> Vec<Diagnostic> {
        let dropped = self.dropped;
        let mut list: Vec<Diagnostic> = self
            .list
            .into_iter()
            .map(|(diagnostic, count)| match count {
                1 => diagnostic,
                2 => diagnostic.note("it happened once more at this place"),
                _ => diagnostic.note(format!(
                    "it happened {} more times at this place",
                    count - 1
                )),
            })
            .collect();
        list.sort_by_key(|diagnostic| diagnostic.severity != Severity::Error);
        if dropped > 0
            && let Some(last) = list.last_mut()
        {
            last.notes.push(format!(
                "and {dropped} more findings at other places are not shown"
            ));
        }
        list
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use heist_ptx::{Span, rule};

    #[test]
    fn one_place_is_told_once() {
        let mut findings = Findings::default();
        for _ in 0..3 {
            findings.report(rule::SHARED_RACE, 4, || {
                Diagnostic::error(rule::SHARED_RACE, Span::NONE, "race")
            });
        }
        findings.report(rule::SHARED_RACE, 5, || {
            Diagnostic::warning(rule::SHARED_RACE, Span::NONE, "race")
        });
        assert!(!findings.wants(rule::SHARED_RACE, 5) && findings.wants(rule::SHARED_RACE, 6));
        let list = findings.finish();
        assert_eq!(list.len(), 2);
        assert!(list[0].notes[0].contains("2 more times"));
    }

    #[test]
    fn what_was_told_for_another_reason_too_is_not_forgotten() {
        let mut findings = Findings::default();
        for place in [1, 2, 2, 3] {
            findings.report(rule::GLOBAL_RACE, place, || {
                Diagnostic::error(rule::GLOBAL_RACE, Span::NONE, place.to_string())
            });
        }
        let once = |place| ((rule::GLOBAL_RACE.0, place), 1);
        findings.forget(&[once(1), once(2)].into_iter().collect());
        let left = findings.finish().into_iter().map(|told| told.message);
        assert_eq!(left.collect::<Vec<_>>(), ["2", "3"]);
    }

    #[test]
    fn no_words_are_wanted_for_what_is_only_counted() {
        let mut findings = Findings::default();
        let race = || Diagnostic::error(rule::SHARED_RACE, Span::NONE, "race");
        for place in 0..MOST as u32 {
            assert!(findings.wants(rule::SHARED_RACE, place));
            findings.report(rule::SHARED_RACE, place, race);
        }
        let next = MOST as u32;
        assert!(!findings.wants(rule::SHARED_RACE, next));
        findings.report(rule::SHARED_RACE, next, race);
        let list = findings.finish();
        let note = list.last().and_then(|last| last.notes.last());
        assert!(note.is_some_and(|note| note.contains("1 more finding")));
    }
}
