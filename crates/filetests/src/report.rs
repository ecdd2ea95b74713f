//! The report of a selftest, for people and for machines.

use crate::verdict::Verdict;
use serde::Serialize;
use serde::ser::{SerializeStruct, Serializer};
use std::collections::BTreeMap;
use std::fmt;

/// One case on one device.
#[derive(Clone, Debug, PartialEq)]
pub struct CaseResult {
    /// The file's path.
    pub file: String,
    /// The case's name.
    pub case: String,
    /// The device, `check` for a check without a launch, or `a vs b`.
    pub device: String,
    /// What became of it.
    pub verdict: Verdict,
    /// How long it took.
    pub seconds: f64,
}

impl Serialize for CaseResult {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (verdict, because): (_, Vec<&str>) = match &self.verdict {
            Verdict::Passed => ("passed", Vec::new()),
            Verdict::Failed(whys) => ("failed", whys.iter().map(String::as_str).collect()),
            Verdict::Skipped(why) => ("skipped", vec![why]),
        };
        let mut out = serializer.serialize_struct("CaseResult", 6)?;
        out.serialize_field("file", &self.file)?;
        out.serialize_field("case", &self.case)?;
        out.serialize_field("device", &self.device)?;
        out.serialize_field("verdict", verdict)?;
        out.serialize_field("because", &because)?;
        out.serialize_field("seconds", &self.seconds)?;
        out.end()
    }
}

impl fmt::Display for CaseResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = format!("{}::{} [{}]", self.file, self.case, self.device);
        match &self.verdict {
            Verdict::Passed => write!(f, "ok      {name}"),
            Verdict::Skipped(why) => write!(f, "skipped {name}: {why}"),
            Verdict::Failed(whys) => {
                write!(f, "FAILED  {name}")?;
                for line in whys.iter().flat_map(|why| why.lines()) {
                    write!(f, "\n        {line}")?;
                }
                Ok(())
            }
        }
    }
}

/// Every case on every device.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SelftestReport {
    /// By file, case and device.
    pub results: Vec<CaseResult>,
}

/// How many of each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// As expected.
    pub passed: usize,
    /// Not.
    pub failed: usize,
    /// Not run.
    pub skipped: usize,
}

impl SelftestReport {
    /// By file, then by device, cases in the file's order.
    pub(crate) fn sort(&mut self) {
        self.results
            .sort_by(|a, b| (&a.file, &a.device).cmp(&(&b.file, &b.device)));
    }

    /// Counts for each device.
    pub fn counts(&self) -> BTreeMap<&str, Counts> {
        let mut counts: BTreeMap<&str, Counts> = BTreeMap::new();
        for result in &self.results {
            let counts = counts.entry(&result.device).or_default();
            match result.verdict {
                Verdict::Passed => counts.passed += 1,
                Verdict::Failed(_) => counts.failed += 1,
                Verdict::Skipped(_) => counts.skipped += 1,
            }
        }
        counts
    }

    /// Whether nothing failed and something was there to fail.
    pub fn is_success(&self) -> bool {
        !self.results.is_empty()
            && !self
                .results
                .iter()
                .any(|result| matches!(result.verdict, Verdict::Failed(_)))
    }

    /// Everything, for machines.
    pub fn to_json(&self) -> serde_json::Value {
        serde_json::json!({
            "success": self.is_success(),
            "counts": self.counts(),
            "results": self.results,
        })
    }
}

impl fmt::Display for SelftestReport {
    /// What failed, what was skipped for which reason, and the counts.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for result in &self.results {
            if matches!(result.verdict, Verdict::Failed(_)) {
                writeln!(f, "{result}")?;
            }
        }
        let mut skipped: BTreeMap<(&str, &str), Vec<String>> = BTreeMap::new();
        for result in &self.results {
            if let Verdict::Skipped(why) = &result.verdict {
                let name = format!("{}::{}", result.file, result.case);
                skipped.entry((&result.device, why)).or_default().push(name);
            }
        }
        for ((device, why), names) in &skipped {
            writeln!(f, "skipped {} on {device}: {why}", names.len())?;
            for name in names {
                writeln!(f, "        {name}")?;
            }
        }
        if self.results.is_empty() {
            return f.write_str("no test files were found");
        }
        let mut lines = self.counts().into_iter().map(|(device, counts)| {
            format!(
                "{device}: {} passed, {} failed, {} skipped",
                counts.passed, counts.failed, counts.skipped
            )
        });
        f.write_str(&lines.by_ref().collect::<Vec<_>>().join("\n"))
    }
}
