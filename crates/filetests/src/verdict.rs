//! Judges whether a case passed.

use crate::case::{Case, Run, TestFile};
use crate::compare::{Tolerance, compare, compare_devices};
use heist_launch::Outcome;
use heist_ptx::{Code, Diagnostic};
use heist_run::Execution;

/// What became of a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// As expected.
    Passed,
    /// Not, and why; never empty.
    Failed(Vec<String>),
    /// Not run, and why.
    Skipped(String),
}

impl Verdict {
    /// Passed, unless there are complaints.
    pub fn from_complaints(complaints: Vec<String>) -> Verdict {
        if complaints.is_empty() {
            Verdict::Passed
        } else {
            Verdict::Failed(complaints)
        }
    }
}

/// Judges everything a run gave.
pub(crate) fn judge_run(file: &TestFile, case: &Case, run: &Run, ran: &Execution) -> Vec<String> {
    let mut complaints = judge_findings(file, case, &ran.findings);
    complaints.extend(judge_outputs(run, &ran.outcome));
    complaints
}

/// Compares diagnostics with the codes and lines that a case expects.
pub(crate) fn judge_findings(
    file: &TestFile,
    case: &Case,
    diagnostics: &[Diagnostic],
) -> Vec<String> {
    let mut complaints = Vec::new();
    let line_of = |diagnostic: &Diagnostic| {
        (!diagnostic.span.is_none()).then(|| file.source.position(diagnostic.span).line)
    };
    let expected = file.expected_codes(case);
    for &code in &expected {
        let reported = || diagnostics.iter().filter(|d| d.code == code);
        if reported().next().is_none() {
            complaints.push(format!("{code} was expected and not reported"));
            continue;
        }
        let marked: Vec<u32> = file
            .marks_of(case)
            .filter(|mark| mark.code == code)
            .map(|mark| mark.line)
            .collect();
        if marked.is_empty() {
            continue;
        }
        for &line in &marked {
            if !reported().any(|d| line_of(d) == Some(line)) {
                complaints.push(format!(
                    "{code} was expected at line {line} and not reported there"
                ));
            }
        }
        for diagnostic in reported() {
            match line_of(diagnostic) {
                Some(line) if marked.contains(&line) => {}
                Some(line) => complaints.push(format!(
                    "{code} was reported at line {line}, where no `//~ {code}` stands: {}",
                    diagnostic.message
                )),
                None => complaints.push(format!(
                    "{code} was reported without a place: {}",
                    diagnostic.message
                )),
            }
        }
    }
    complaints.extend(unexpected(file, &expected, &case.allows, diagnostics));
    complaints
}

fn unexpected(
    file: &TestFile,
    expected: &[Code],
    allowed: &[Code],
    diagnostics: &[Diagnostic],
) -> Vec<String> {
    diagnostics
        .iter()
        .filter(|d| !expected.contains(&d.code) && !allowed.contains(&d.code))
        .map(|d| {
            let place = if d.span.is_none() {
                String::new()
            } else {
                format!(" (line {})", file.source.position(d.span).line)
            };
            format!("unexpected {d}{place}")
        })
        .collect()
}

fn judge_outputs(run: &Run, outcome: &Outcome) -> Vec<String> {
    let mut complaints = Vec::new();
    for expect in &run.expects {
        match outcome.output(expect.buffer.clone()) {
            None => complaints.push(format!(
                "line {}: the device gave no buffer {}",
                expect.line, expect.buffer
            )),
            Some(found) => {
                if let Some(difference) = compare(&expect.values, found, expect.tolerance) {
                    complaints.push(format!(
                        "line {}: buffer {}: {difference}",
                        expect.line, expect.buffer
                    ));
                }
            }
        }
    }
    complaints
}

/// Compares what two devices made of one case.
pub(crate) fn judge_agreement(run: &Run, one: &Outcome, other: &Outcome) -> Vec<String> {
    let mut complaints = Vec::new();
    for (name, left) in &one.outputs {
        if run.opaque.iter().any(|opaque| opaque.buffer == *name) {
            continue;
        }
        let Some(right) = other.output(name.clone()) else {
            complaints.push(format!("buffer {name}: the second device gave none"));
            continue;
        };
        let tolerance = run
            .expects
            .iter()
            .find(|expect| expect.buffer == *name)
            .map_or(Tolerance::EXACT, |expect| expect.tolerance);
        if let Some(difference) = compare_devices(left, right, tolerance) {
            complaints.push(format!("buffer {name}: {difference}"));
        }
    }
    complaints
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::directive::read_directives;
    use heist_ptx::{Source, Span};

    fn findings(text: &str, reported: &[(&'static str, Span)]) -> Vec<String> {
        let file = read_directives(Source::new("t.ptx", text)).unwrap();
        let diagnostics: Vec<_> = reported
            .iter()
            .map(|(code, span)| Diagnostic::error(Code(code), *span, "said"))
            .collect();
        judge_findings(&file, &file.cases[0], &diagnostics)
    }

    const FIRST: Span = Span { start: 0, end: 1 };

    #[test]
    fn what_is_expected_must_come() {
        assert_eq!(
            findings("// heist: finds R001", &[("R001", Span::NONE)]),
            [""; 0]
        );
        assert_eq!(
            findings("// heist: finds R001", &[]),
            ["R001 was expected and not reported"]
        );
    }

    #[test]
    fn what_is_not_expected_must_not() {
        assert_eq!(findings("x", &[]), [""; 0]);
        assert_eq!(
            findings("x", &[("R001", FIRST)]),
            ["unexpected error[R001]: said (line 1)"]
        );
        assert_eq!(
            findings("// heist: allows R001", &[("R001", FIRST)]),
            [""; 0]
        );
    }

    #[test]
    fn marked_lines_are_exact() {
        let text = "a //~ R001\nb\n";
        let second = Span::new(12, 13);
        assert_eq!(findings(text, &[("R001", FIRST)]), [""; 0]);
        let complaints = findings(text, &[("R001", second)]);
        assert_eq!(complaints.len(), 2, "{complaints:?}");
        assert!(complaints[0].contains("at line 1 and not reported there"));
        assert!(complaints[1].contains("reported at line 2"));
        assert_eq!(
            findings(text, &[("R001", FIRST), ("R001", Span::NONE)]).len(),
            1
        );
    }
}
