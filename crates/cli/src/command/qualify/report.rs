//! The report, for people and for machines.

use super::part::Part;
use super::plan::Machine;
use super::worker::{Done, Fate};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt;

/// Everything that was seen.
pub(super) struct Report {
    pub(super) machine: Machine,
    /// Versions of the peers, or why there are none.
    pub(super) peers: Result<Value, String>,
    pub(super) seed: u64,
    pub(super) seconds: f64,
    pub(super) done: Vec<Done>,
}

/// How many of each.
#[derive(Default, serde::Serialize)]
struct Counts {
    passed: u64,
    failed: u64,
    skipped: u64,
}

impl Report {
    /// Whether something ran and nothing failed.
    pub(super) fn is_success(&self) -> bool {
        let failed = |done: &Done| matches!(done.fate, Fate::Failed(_));
        let ran = |done: &Done| !matches!(done.fate, Fate::Skipped(_));
        self.done.iter().any(ran) && !self.done.iter().any(failed)
    }

    fn of(&self, part: Part) -> impl Iterator<Item = &Done> {
        self.done.iter().filter(move |done| done.check.part == part)
    }

    /// Cases of test files are counted one by one, other checks as one each.
    fn counts(&self, part: Part) -> Option<Counts> {
        let mut counts = Counts::default();
        let mut any = false;
        for done in self.of(part) {
            any = true;
            if part == Part::Files
                && let Some(devices) = done.answer["counts"].as_object()
            {
                for (device, of) in devices {
                    counts.failed += of["failed"].as_u64().unwrap_or(0);
                    if device == "check" {
                        // Looked at without a launch: that says nothing about the GPU.
                        continue;
                    }
                    counts.passed += of["passed"].as_u64().unwrap_or(0);
                    counts.skipped += of["skipped"].as_u64().unwrap_or(0);
                }
                continue;
            }
            match done.fate {
                Fate::Passed => counts.passed += 1,
                Fate::Failed(_) => counts.failed += 1,
                Fate::Skipped(_) => counts.skipped += 1,
            }
        }
        any.then_some(counts)
    }

    /// Why what was skipped was, and how much of it.
    fn skipped(&self, part: Part) -> BTreeMap<String, u64> {
        let mut whys = BTreeMap::new();
        for done in self.of(part) {
            if let Fate::Skipped(why) = &done.fate {
                *whys.entry(why.clone()).or_default() += 1;
            }
            for case in cases(done, "skipped") {
                let why = case["because"][0].as_str().unwrap_or("no reason");
                *whys.entry(why.to_owned()).or_default() += 1;
            }
        }
        whys
    }

    /// What failed, with its command and reason.
    fn failed(&self, part: Part) -> Vec<(String, String)> {
        let mut all = Vec::new();
        for done in self.of(part) {
            let cases: Vec<_> = cases(done, "failed").collect();
            if let (Fate::Failed(why), true) = (&done.fate, cases.is_empty()) {
                all.push((done.check.command(), why.clone()));
            }
            all.extend(cases.into_iter().map(|case| {
                let word = |name: &str| case[name].as_str().unwrap_or_default().to_owned();
                let why = case["because"][0].as_str().unwrap_or("no reason");
                (
                    format!("{}::{}", word("file"), word("case")),
                    why.to_owned(),
                )
            }));
        }
        all
    }

    /// The rows of the table: the schedule, and what it took.
    fn table(&self) -> Vec<Value> {
        let rows = self.of(Part::Table);
        rows.filter(|done| matches!(done.fate, Fate::Passed))
            .map(|done| {
                json!({
                    "schedule": done.answer["schedule"],
                    "elapsed_ns": done.answer["elapsed_ns"],
                    "clock": done.answer["clock"],
                    "tiles": done.answer["stats"]["tiles"],
                    "stolen": done.answer["stats"]["stolen"],
                    "refusals": done.answer["stats"]["refusals"],
                    "declines": done.answer["stats"]["declines"],
                })
            })
            .collect()
    }

    /// What was timed, by contest: ours and the peers, and who was not there.
    fn contests(&self) -> Vec<Value> {
        let done = self.of(Part::Bench);
        done.filter_map(|done| done.answer["contests"].as_array())
            .flatten()
            .map(|contest| {
                let arms = contest["arms"].as_array().into_iter().flatten();
                let arms = arms.map(|arm| {
                    json!({
                        "name": arm["name"],
                        "ours": arm["ours"],
                        "ns": arm["ns"],
                        "ours_over_this": arm["ours_over_this"],
                    })
                });
                json!({
                    "name": contest["name"],
                    "flops": contest["flops"],
                    "arms": arms.collect::<Vec<_>>(),
                    "absent": contest["absent"],
                })
            })
            .collect()
    }

    pub(super) fn to_json(&self) -> Value {
        let parts = Part::ALL.into_iter().filter_map(|part| {
            let failed = self.failed(part).into_iter();
            Some(json!({
                "part": part,
                "counts": self.counts(part)?,
                "failed": failed.map(|(what, why)| json!({ "what": what, "why": why })).collect::<Vec<_>>(),
                "skipped": self.skipped(part).into_iter()
                    .map(|(why, count)| json!({ "why": why, "count": count })).collect::<Vec<_>>(),
                "checks": self.of(part).map(check).collect::<Vec<_>>(),
            }))
        });
        json!({
            "heist": env!("CARGO_PKG_VERSION"),
            "commit": env!("HEIST_BUILT_FROM"),
            "device": {
                "name": self.machine.name,
                "arch": self.machine.target.arch.to_string(),
                "sms": self.machine.target.sms,
                "driver": self.machine.driver,
            },
            "seed": self.seed,
            "seconds": self.seconds,
            "success": self.is_success(),
            "parts": parts.collect::<Vec<_>>(),
            "table": self.table(),
            "peers": match &self.peers {
                Ok(versions) => json!({ "versions": versions, "why_none": null }),
                Err(why) => json!({ "versions": null, "why_none": why }),
            },
            "bench": self.contests(),
        })
    }
}

impl Report {
    /// A table of what was timed.
    fn write_contests(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let contests = self.contests();
        if contests.is_empty() {
            return Ok(());
        }
        match &self.peers {
            Ok(versions) => writeln!(f, "\npeers: {versions}")?,
            Err(why) => writeln!(f, "\nours alone: {why}")?,
        }
        for contest in &contests {
            writeln!(f, "{}", contest["name"].as_str().unwrap_or_default())?;
            for arm in contest["arms"].as_array().into_iter().flatten() {
                let median = |name: &str| arm[name][1].as_f64();
                let time = median("ns").map_or("-".to_owned(), |ns| format!("{:.1} us", ns / 1e3));
                let ratio = median("ours_over_this").map_or(String::new(), |ratio| {
                    format!(", our speed over it {ratio:.3}")
                });
                let whose = if arm["ours"] == true { " (heist)" } else { "" };
                let name = arm["name"].as_str().unwrap_or_default();
                writeln!(f, "  {name}{whose}: {time}{ratio}")?;
            }
            for absent in contest["absent"].as_array().into_iter().flatten() {
                let word = |at: usize| absent[at].as_str().unwrap_or_default();
                writeln!(f, "  {}: not there: {}", word(0), word(1))?;
            }
        }
        Ok(())
    }
}

/// The cases of test files with this verdict.
fn cases<'d>(done: &'d Done, verdict: &'static str) -> impl Iterator<Item = &'d Value> {
    let results = done.answer["results"].as_array().into_iter().flatten();
    results.filter(move |case| case["verdict"] == verdict)
}

fn check(done: &Done) -> Value {
    let (verdict, why) = match &done.fate {
        Fate::Passed => ("passed", None),
        Fate::Failed(why) => ("failed", Some(why)),
        Fate::Skipped(why) => ("skipped", Some(why)),
    };
    json!({
        "command": done.check.command(),
        "verdict": verdict,
        "why": why,
        "seconds": done.seconds,
    })
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Machine {
            name,
            target,
            driver,
        } = &self.machine;
        write!(f, "{name}: {}, {} multiprocessors", target.arch, target.sms)?;
        if let Some(driver) = driver {
            write!(f, ", driver CUDA {driver}")?;
        }
        writeln!(
            f,
            "; heist {}, commit {}",
            env!("CARGO_PKG_VERSION"),
            env!("HEIST_BUILT_FROM")
        )?;
        for part in Part::ALL {
            let Some(counts) = self.counts(part) else {
                continue;
            };
            let what = match part {
                Part::Files => "test files: cases",
                Part::Schedules => "every tile exactly once: random schedules",
                Part::Kernels => "kernels against f64: variants and problems",
                Part::Table => "schedules of one uneven workload",
                Part::Bench => "our kernels beside their peers: problems",
            };
            let Counts {
                passed,
                failed,
                skipped,
            } = counts;
            writeln!(
                f,
                "\n{what}: {passed} passed, {failed} failed, {skipped} skipped"
            )?;
            for (what, why) in self.failed(part) {
                writeln!(f, "  FAILED {what}\n         {why}")?;
            }
            for (why, count) in self.skipped(part) {
                writeln!(f, "  skipped {count}: {why}")?;
            }
        }
        let table = self.table();
        if !table.is_empty() {
            writeln!(
                f,
                "\n{:<42} {:>10} {:>7} {:>8}",
                "schedule", "us", "stolen", "refusals"
            )?;
        }
        for row in &table {
            let number = |name: &str| row[name].as_u64().map_or("-".to_owned(), |n| n.to_string());
            let time = row["elapsed_ns"]
                .as_f64()
                .map_or("-".to_owned(), |ns| format!("{:.1}", ns / 1e3));
            let schedule = row["schedule"].as_str().unwrap_or_default();
            let modelled = if row["clock"] == "modelled" {
                " modelled"
            } else {
                ""
            };
            writeln!(
                f,
                "{schedule:<42} {time:>10} {:>7} {:>8}{modelled}",
                number("stolen"),
                number("refusals")
            )?;
        }
        self.write_contests(f)?;
        let verdict = match self.is_success() {
            true => "qualified: nothing that ran has failed",
            false => "not qualified",
        };
        write!(f, "\n{verdict} ({:.0} s, seed {})", self.seconds, self.seed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::qualify::plan::Check;
    use heist_run::Device;

    #[test]
    fn a_report_in_which_nothing_ran_is_no_success() {
        let device = Device::open("sim:h200".parse().expect("a name")).expect("a device");
        let with = |fates: Vec<Fate>| {
            let done = |fate| Done {
                check: Check {
                    part: Part::Files,
                    words: Vec::new(),
                    skipped: None,
                },
                fate,
                seconds: 0.0,
                answer: Value::Null,
            };
            let report = Report {
                machine: Machine::of(&device).expect("a machine"),
                peers: Err(String::new()),
                seed: 0,
                seconds: 0.0,
                done: fates.into_iter().map(done).collect(),
            };
            report.is_success()
        };
        let (skipped, failed) = (Fate::Skipped(String::new()), Fate::Failed(String::new()));
        assert!(!with(vec![]) && !with(vec![skipped.clone()]));
        assert!(with(vec![skipped, Fate::Passed]));
        assert!(!with(vec![Fate::Passed, failed]));
    }
}
