//! The conclusion from a set of runs, in a sentence or two.
//!
//! ```
//! # use heist_launch::{BlockSpan, Clock, Dim3, Time, Trace};
//! # let mut trace = Trace::new("sim:b200", "k", Clock::Modelled, 2, Dim3::linear_x(2));
//! # for block in 0..2 {
//! #     let (start, end) = (Time::ZERO, Time::from_ns(1000 * (1 + u64::from(block))));
//! #     trace.blocks.push(BlockSpan { block, cluster: block, sm: block, start, end });
//! # }
//! let said = heist_view::story(&[heist_view::Run::new("direct", &trace)]);
//! assert!(said.starts_with("direct takes 2.00 us on sim:b200: multiprocessors work 75% of that time"));
//! ```

use crate::Run;
use crate::account::{Account, account};
use heist_launch::Time;

/// What a state of a multiprocessor is called in a sentence.
fn in_words(part: &str) -> &str {
    match part {
        "waiting" => "blocks that wait between tiles",
        "launching" => "launching blocks",
        "tail" => "the tail, when some multiprocessors have nothing left to do",
        "unused" => "multiprocessors that are never used",
        "others" => "multiprocessors that another kernel holds",
        other => other,
    }
}

/// Whether runs are the steps of one problem, and no rivals: each has the name of its kernel, and not
/// of a schedule.
fn are_steps(runs: &[Run<'_>]) -> bool {
    runs.len() > 1 && runs.iter().all(|run| run.name == run.trace.kernel)
}

/// The order of the runs, fastest first, within each device: indices. A run that was stopped comes
/// behind those that ended. Steps stay in their order.
pub fn ranked(runs: &[Run<'_>]) -> Vec<usize> {
    let first_on = |at: usize| {
        runs.iter()
            .position(|run| run.trace.device == runs[at].trace.device)
    };
    let mut order: Vec<usize> = (0..runs.len()).collect();
    if are_steps(runs) {
        return order;
    }
    let key = |&at: &usize| {
        let Run { trace, stopped, .. } = &runs[at];
        (first_on(at), stopped.is_some(), trace.makespan(), at)
    };
    order.sort_by_key(key);
    order
}

/// The fastest run on each device and where the slowest loses its time, or where the time of a
/// single run goes, or of the longest of several steps. What stopped a run is said first, and such
/// a run is compared with none.
pub fn story(runs: &[Run<'_>]) -> String {
    let mut sentences: Vec<String> = runs.iter().filter_map(Run::stop).collect();
    if are_steps(runs) {
        sentences.push(steps(runs));
        return sentences.join(" ");
    }
    let mut order = ranked(runs);
    order.retain(|&at| runs[at].stopped.is_none());
    for group in order.chunk_by(|&a, &b| runs[a].trace.device == runs[b].trace.device) {
        let (Some(&fastest), Some(&slowest)) = (group.first(), group.last()) else {
            continue;
        };
        sentences.push(match group {
            [only] => alone(&runs[*only]),
            _ => against(&runs[fastest], &runs[slowest]),
        });
    }
    sentences.extend(guest(runs));
    match sentences.is_empty() {
        true => "Nothing was recorded.".to_owned(),
        false => sentences.join(" "),
    }
}

fn steps(runs: &[Run<'_>]) -> String {
    let all: f64 = runs.iter().map(|run| run.trace.makespan().ns()).sum();
    let longest = runs.iter().max_by_key(|run| run.trace.makespan());
    format!(
        "{} kernels run one after the other, {} in all. {}",
        runs.len(),
        Time::from_ns_f64(all),
        longest.map(alone).unwrap_or_default()
    )
}

fn alone(run: &Run<'_>) -> String {
    let account = account(run);
    let total = run.trace.makespan();
    if total == Time::ZERO {
        return format!("{} left no timeline.", run.name);
    }
    let share = |ns: f64| format!("{:.0}%", ns / total.ns() * 100.0);
    let (idle, ns) = account.most_idle();
    let mut text = format!(
        "{} takes {total} on {}: multiprocessors work {} of that time",
        run.name,
        run.trace.device,
        share(account.working)
    );
    if ns >= total.ns() / 100.0 {
        text.push_str(&format!(
            "; what costs most besides is {} ({})",
            in_words(idle),
            share(ns)
        ));
    }
    text.push('.');
    text
}

fn against(fast: &Run<'_>, slow: &Run<'_>) -> String {
    let (least, most) = (fast.trace.makespan(), slow.trace.makespan());
    let device = &fast.trace.device;
    if most.ns() <= least.ns() * 1.01 {
        return format!("On {device} all schedules take about {least}: there is little to choose.");
    }
    let (part, more) = grown(&account(fast), &account(slow));
    let gap = most.since(least);
    let lost = match part {
        "working" => "work itself".to_owned(),
        idle => format!("lost to {}", in_words(idle)),
    };
    let why = match more >= gap.ns() * 0.95 {
        true => format!("The {gap} between them are {lost}."),
        false => format!(
            "Of the {gap} between them {} are {lost}.",
            Time::from_ns_f64(more)
        ),
    };
    format!(
        "On {device} {} is the fastest: {least}, {:.2} times as fast as {}, the slowest. {why}",
        fast.name,
        most.ns() / least.ns(),
        slow.name,
    )
}

/// Under which run another kernel, one and the same beside all of them, ended first and last.
fn guest(runs: &[Run<'_>]) -> Option<String> {
    let name = runs.first()?.beside.first()?.0;
    let mut ends = Vec::new();
    for run in runs.iter().filter(|run| run.stopped.is_none()) {
        let (_, trace) = run.beside.iter().find(|(other, _)| *other == name)?;
        let (start, end) = trace.window()?;
        ends.push((end.since(run.trace.window()?.0), end.since(start), run.name));
    }
    let first = ends.iter().min()?;
    let last = ends.iter().max()?;
    if ends.len() == 1 || last.0.ns() <= first.0.ns() * 1.01 {
        return Some(format!("{name} beside it ends at {}.", first.0));
    }
    Some(format!(
        "{name} beside it ends first under {}, at {}, and last under {}, at {}.",
        first.2, first.0, last.2, last.0
    ))
}

/// The part that grew the most from one account to another.
fn grown(from: &Account, to: &Account) -> (&'static str, f64) {
    let parts = from.parts().into_iter().zip(to.parts());
    let grown = parts.map(|((name, before), (_, after))| (name, after - before));
    grown
        .max_by(|a, b| a.1.total_cmp(&b.1))
        .unwrap_or(("working", 0.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Stopped;
    use heist_launch::{BlockSpan, Clock, Dim3, Trace};

    fn trace(device: &str, ends: &[u64]) -> Trace {
        let mut trace = Trace::new(device, "k", Clock::Modelled, 2, Dim3::linear_x(2));
        for (block, &end) in (0..).zip(ends) {
            let (start, end) = (Time::ZERO, Time::from_ns(end));
            trace.blocks.push(BlockSpan {
                block,
                cluster: block,
                sm: block,
                start,
                end,
            });
        }
        trace
    }

    #[test]
    fn the_sentence_names_the_fastest_the_slowest_and_why() {
        let (slow, fast) = (
            trace("sim:b200", &[9000, 3000]),
            trace("sim:b200", &[6000, 6000]),
        );
        let runs = [Run::new("static", &slow), Run::new("greedy", &fast)];
        assert_eq!(ranked(&runs), [1, 0]);
        assert_eq!(
            story(&runs),
            "On sim:b200 greedy is the fastest: 6.00 us, 1.50 times as fast as static, the slowest. \
             The 3.00 us between them are lost to the tail, when some multiprocessors have nothing left \
             to do."
        );
    }

    #[test]
    fn a_single_run_says_where_its_time_goes() {
        let only = trace("sim:b200", &[9000, 3000]);
        assert_eq!(
            story(&[Run::new("static", &only)]),
            "static takes 9.00 us on sim:b200: multiprocessors work 67% of that time; what costs most \
             besides is the tail, when some multiprocessors have nothing left to do (33%)."
        );
    }

    #[test]
    fn steps_of_one_problem_are_no_rivals() {
        let (mut long, mut short) = (
            trace("sim:b200", &[9000, 3000]),
            trace("sim:b200", &[1000, 1000]),
        );
        (long.kernel, short.kernel) = ("long".to_owned(), "short".to_owned());
        let runs = [Run::new("long", &long), Run::new("short", &short)];
        assert_eq!(ranked(&runs), [0, 1], "in the order of their launches");
        assert_eq!(
            story(&runs),
            "2 kernels run one after the other, 10.00 us in all. long takes 9.00 us on sim:b200: \
             multiprocessors work 67% of that time; what costs most besides is the tail, when some \
             multiprocessors have nothing left to do (33%)."
        );
    }

    #[test]
    fn what_stopped_a_run_is_said_first_and_it_wins_nothing() {
        let (ended, cut) = (trace("sim:b200", &[9000, 3000]), trace("sim:b200", &[50]));
        let stopped = Stopped {
            why: "X002, the kernel was stopped after 5 milliseconds",
            tiles: None,
        };
        let cut = Run::new("greedy", &cut).stopped(Some(stopped));
        let said = "greedy was stopped before its end: X002, the kernel was stopped after 5 \
                    milliseconds. 1 of 2 blocks had ended by then, and all figures are of these alone.";
        assert_eq!(story(&[cut]), said);
        let runs = [cut, Run::new("static", &ended)];
        assert_eq!(ranked(&runs), [1, 0]);
        assert_eq!(
            story(&runs),
            format!("{said} {}", story(&[Run::new("static", &ended)]))
        );
    }

    #[test]
    fn a_kernel_beside_the_runs_is_told_by_its_ends() {
        let (slow, fast) = (trace("sim:b200", &[9000]), trace("sim:b200", &[6000]));
        let (early, late) = (trace("sim:b200", &[7000]), trace("sim:b200", &[12000]));
        let (one, other) = ([("guest", &late)], [("guest", &early)]);
        let runs = [
            Run::new("static", &slow).beside(&one),
            Run::new("greedy", &fast).beside(&other),
        ];
        let said = story(&runs);
        let wanted = " guest beside it ends first under greedy, at 7.00 us, and last under static, at 12.00 us.";
        assert!(said.ends_with(wanted), "{said}");
        let said = story(&runs[..1]);
        assert!(
            said.ends_with(" guest beside it ends at 12.00 us."),
            "{said}"
        );
    }

    #[test]
    fn devices_are_ranked_apart_and_nothing_is_no_error() {
        let (here, there) = (trace("sim:b200", &[9, 3]), trace("sim:h200", &[6, 6]));
        let again = trace("sim:b200", &[8, 8]);
        let runs = [
            Run::new("a", &here),
            Run::new("b", &there),
            Run::new("c", &again),
        ];
        assert_eq!(ranked(&runs), [2, 0, 1]);
        assert_eq!(story(&[]), "Nothing was recorded.");
    }
}
