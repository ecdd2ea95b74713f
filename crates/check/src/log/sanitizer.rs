//! compute-sanitizer's reports: thousands of lines, few causes.
//!
//! A report is a block of lines that begin with `=========`. Its first line
//! says what happened, `at` lines say where, `by thread` says who. Blocks that
//! say the same of the same place are one finding with a count.

use super::lines;
use heist_ptx::{Code, Diagnostic, Severity, Source, Span, rule};
use std::collections::HashMap;

/// One block of the log.
struct Report<'a> {
    span: Span,
    what: &'a str,
    place: Option<&'a str>,
    thread: Option<&'a str>,
    address: Option<&'a str>,
}

/// Reports of one cause at one place.
struct Group<'a> {
    first: Report<'a>,
    count: usize,
    threads: usize,
}

pub(super) fn read(source: &Source) -> Vec<Diagnostic> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    let mut index: HashMap<(String, Option<&str>), usize> = HashMap::new();
    for report in reports(source) {
        let key = (without_numbers(report.what), report.place);
        match index.get(&key) {
            Some(&at) => {
                groups[at].count += 1;
                groups[at].threads += usize::from(report.thread.is_some());
            }
            None => {
                index.insert(key, groups.len());
                groups.push(Group {
                    count: 1,
                    threads: usize::from(report.thread.is_some()),
                    first: report,
                });
            }
        }
    }
    groups.iter().map(finding).collect()
}

fn reports(source: &Source) -> Vec<Report<'_>> {
    let mut found: Vec<Report<'_>> = Vec::new();
    let mut open = false;
    for (span, line) in lines(source) {
        // Excerpts of a log that people paste have lost the markers.
        let text = line.trim_start_matches('=').trim();
        if text.is_empty() {
            open = false;
            continue;
        }
        if classify(text).is_some() {
            found.push(Report {
                span,
                what: text,
                place: None,
                thread: None,
                address: None,
            });
            open = true;
            continue;
        }
        let Some(report) = found.last_mut().filter(|_| open) else {
            continue;
        };
        if let Some(place) = text.strip_prefix("at ") {
            report.place.get_or_insert(place);
        } else if let Some(thread) = text.strip_prefix("by thread ") {
            report.thread.get_or_insert(thread);
        } else if text.starts_with("Address ") || text.starts_with("Access at ") {
            report.address.get_or_insert(text);
        }
    }
    found
}

/// The rule behind a report's first line; `None` for lines that start no report.
fn classify(text: &str) -> Option<(Code, Severity)> {
    let error = |code| Some((code, Severity::Error));
    if text.starts_with("Invalid __local__") {
        return error(rule::LOCAL_OUT_OF_BOUNDS);
    }
    if text.starts_with("Invalid __") || text.starts_with("Invalid access") {
        return error(rule::SANITIZER_MEMCHECK);
    }
    // racecheck puts `Error:` or `Warning:` before it.
    if text.contains("Race reported between")
        || text.contains("Potential RAW hazard")
        || text.contains("Potential WAR hazard")
        || text.contains("Potential WAW hazard")
    {
        return error(rule::SANITIZER_RACE);
    }
    if text.starts_with("Barrier error") || text.starts_with("Divergent thread") {
        return error(rule::SANITIZER_SYNC);
    }
    if text.starts_with("Uninitialized __") {
        return error(rule::SANITIZER_INIT);
    }
    if text.starts_with("Program hit ") {
        return error(rule::SANITIZER_API);
    }
    if text.starts_with("Leaked ") {
        return Some((rule::SANITIZER_LEAK, Severity::Warning));
    }
    None
}

fn finding(group: &Group<'_>) -> Diagnostic {
    let report = &group.first;
    let (code, severity) = classify(report.what).unwrap_or((rule::SANITIZER_API, Severity::Error));
    let tensor_core = report.place.is_some_and(|place| {
        place.contains("load_matrix_sync") || place.contains("store_matrix_sync")
    });
    let local = report.what.starts_with("Invalid __local__");
    let code = if tensor_core && local {
        rule::TENSOR_LOCAL
    } else {
        code
    };
    let mut message = report.what.trim_end_matches('.').to_owned();
    if let Some(place) = report.place {
        message.push_str(" at ");
        message.push_str(place);
    }
    let mut finding = Diagnostic::error(code, report.span, message);
    finding.severity = severity;
    if group.count > 1 {
        finding = finding.note(format!(
            "{} reports of the same cause and place",
            group.count
        ));
    }
    if let Some(thread) = report.thread {
        finding = finding.note(format!("first by thread {thread}"));
    }
    if let Some(address) = report.address {
        finding = finding.note(address.trim_end_matches('.'));
    }
    finding.help(remedy(report.what, tensor_core && local))
}

fn remedy(what: &str, tensor_core_on_local: bool) -> &'static str {
    if tensor_core_on_local {
        "a WMMA fragment is loaded from a local array: put that array into shared memory, fill it \
         together, synchronise, and load from there. The build log has the compiler's own warning"
    } else if what.contains("hazard") || what.contains("Race reported") {
        "put a barrier between the two accesses; `heist check` with the launch shows both, and \
         what orders them"
    } else if what.starts_with("Uninitialized") {
        "write the memory before it is read, or find the write that is missing"
    } else if what.starts_with("Barrier") || what.starts_with("Divergent") {
        "let all threads of the block reach the barrier"
    } else if what.starts_with("Program hit") {
        "usually the consequence of a report above: mend that first"
    } else if what.starts_with("Leaked") {
        "free the allocation before the context goes"
    } else {
        "give the kernel's PTX and its launch to `heist check`: it names the allocation that the \
         address is nearest to"
    }
}

/// A first line without what differs between threads: addresses and counts.
fn without_numbers(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_ascii_digit() { '#' } else { c })
        .collect()
}
