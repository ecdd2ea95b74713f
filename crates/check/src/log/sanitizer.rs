//! compute-sanitizer's reports: thousands of lines, few causes.
//!
//! A report is a block of lines that begin with `=========`. Its first line
//! says what happened, `at` lines say where, `by thread` says who. Blocks that
//! say the same of the same place are one finding with a count.

use super::lines::lines;
use heist_ptx::{Code, Diagnostic, Severity, Source, Span, rule};
use std::collections::HashMap;

/// One block of the log.
struct LogBlock<'a> {
    span: Span,
    what: &'a str,
    place: Option<&'a str>,
    thread: Option<&'a str>,
    /// What else it says: the address, the allocation nearest to it, the other access.
    details: Vec<&'a str>,
}

impl LogBlock<'_> {
    fn says(&self, words: &str) -> bool {
        self.what.contains(words) || self.details.iter().any(|detail| detail.contains(words))
    }
}

/// Reports of one cause at one place.
struct Group<'a> {
    first: LogBlock<'a>,
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

fn reports(source: &Source) -> Vec<LogBlock<'_>> {
    let mut found: Vec<LogBlock<'_>> = Vec::new();
    let mut open = false;
    for (span, line) in lines(source) {
        // Excerpts of a log that people paste have lost the markers.
        let text = line.trim_start_matches('=').trim();
        if text.is_empty() {
            open = false;
            continue;
        }
        if classify(text).is_some() {
            found.push(LogBlock {
                span,
                what: text,
                place: None,
                thread: None,
                details: Vec::new(),
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
        } else if ["Address ", "Access ", "and ", "Barrier is located"]
            .iter()
            .any(|start| text.starts_with(start))
        {
            report.details.push(text.trim_end_matches('.'));
        }
    }
    found
}

/// Whether a line is the first one of a report, with or without the marker before it.
pub(super) fn starts_a_report(line: &str) -> bool {
    let text = line.trim_start_matches('=').trim();
    // These two words alone may stand in any log.
    let vague = text == "Unknown Error" || text == "Illegal instruction";
    !vague && classify(text).is_some()
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
    // A hardware exception that the tool only passes on: it has no address.
    if text.starts_with("Out-of-range ") || text == "Unknown Error" {
        return error(rule::SANITIZER_MEMCHECK);
    }
    if text.starts_with("Misaligned ") {
        return error(rule::MISALIGNED_ADDRESS);
    }
    if text == "Illegal instruction" {
        return error(rule::ILLEGAL_INSTRUCTION);
    }
    // racecheck puts `Error:` or `Warning:` before it.
    if text.contains("Race reported between")
        || text.contains("Potential RAW hazard")
        || text.contains("Potential WAR hazard")
        || text.contains("Potential WAW hazard")
    {
        return Some(match text.starts_with("Warning") {
            true => (rule::SANITIZER_RACE, Severity::Warning),
            false => (rule::SANITIZER_RACE, Severity::Error),
        });
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

/// The rules that `heist check` has for what a report says, by the words that tell; the
/// first that fits.
const KIN: [(&str, Code); 10] = [
    ("is misaligned", rule::MISALIGNED),
    ("device heap", rule::USE_AFTER_FREE),
    ("Invalid __remote_shared__", rule::CLUSTER_OUT_OF_BOUNDS),
    ("Invalid __shared__", rule::SHARED_OUT_OF_BOUNDS),
    ("Invalid __global__", rule::GLOBAL_OUT_OF_BOUNDS),
    ("Missing init", rule::MBARRIER_UNINITIALISED),
    ("Barrier overflow", rule::MBARRIER_ARRIVALS),
    ("Missing wait", rule::MBARRIER_PHASE),
    ("Divergent thread(s) in warp", rule::DIVERGENT_BARRIER),
    ("Divergent thread(s) in block", rule::MISMATCHED_BARRIER),
];

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
    if !report.details.is_empty() {
        finding = finding.note(report.details.join(", "));
    }
    let kin = KIN.iter().find(|(words, _)| report.says(words));
    if let Some(kin) = kin.and_then(|(_, code)| code.rule()) {
        finding = finding.note(format!("{}: {}", kin.code, kin.title));
    }
    finding.help(remedy(report, tensor_core && local))
}

fn remedy(report: &LogBlock<'_>, tensor_core_on_local: bool) -> &'static str {
    let what = report.what;
    if tensor_core_on_local {
        "a WMMA fragment is loaded from a local array: put that array into shared memory, fill it \
         together, synchronise, and load from there. The build log has the compiler's own warning"
    } else if what.contains("hazard") || what.contains("Race reported") {
        "put a barrier between the two accesses; `heist check` with the launch shows both, and \
         what orders them"
    } else if what.starts_with("Uninitialized") {
        "write the memory before it is read, or find the write that is missing"
    } else if report.says("Missing init") {
        "initialise the mbarrier in one thread (`mbarrier.init`), and synchronise before anybody uses it"
    } else if report.says("Barrier overflow") {
        "as many arrivals a phase as `mbarrier.init` was given: count who arrives"
    } else if report.says("Missing wait") {
        "wait for each phase of the mbarrier before arriving for the one after the next"
    } else if report.says("is misaligned") || what.starts_with("Misaligned") {
        "an address is a multiple of the access's size; of 16 for bulk copies, of 128 for tensor copies"
    } else if what == "Illegal instruction" {
        "an operand that the instruction does not take: a descriptor, a coordinate of a tensor copy, an \
         address in another space. `heist check` with the PTX and its launch says which"
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
