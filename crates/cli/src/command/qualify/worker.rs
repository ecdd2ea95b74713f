//! One check in a process of its own, and what became of it.

use super::plan::Check;
use serde_json::Value;
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// What became of a check.
#[derive(Clone, Debug)]
pub(super) enum Fate {
    Passed,
    Failed(String),
    Skipped(String),
}

/// A check that was made, or skipped.
#[derive(Clone, Debug)]
pub(super) struct Done {
    pub(super) check: Check,
    pub(super) fate: Fate,
    pub(super) seconds: f64,
    /// What the command answered.
    pub(super) answer: Value,
}

/// Makes a check.
///
/// # Errors
/// When this program can't be started again.
pub(super) fn done(check: Check, limit: Duration) -> Result<Done, String> {
    if let Some(why) = check.skipped.clone() {
        return Ok(Done {
            check,
            fate: Fate::Skipped(why),
            seconds: 0.0,
            answer: Value::Null,
        });
    }
    let began = Instant::now();
    let (status, text, said) = run(&check, limit)?;
    let answer: Value = serde_json::from_str(&text).unwrap_or_default();
    Ok(Done {
        fate: judge(status, &answer, &said),
        seconds: began.elapsed().as_secs_f64(),
        check,
        answer,
    })
}

/// Runs this program with the check's words: its exit status, if it ended, and what it wrote.
fn run(check: &Check, limit: Duration) -> Result<(Option<i32>, String, String), String> {
    let this =
        std::env::current_exe().map_err(|error| format!("where is this program? {error}"))?;
    let mut child = Command::new(this)
        .args(&check.words)
        .arg("--json")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("{} can't be started: {error}", check.command()))?;
    // Read while it runs: a full pipe would stop it.
    let (out, err) = (reader(child.stdout.take()), reader(child.stderr.take()));
    let status = ended(&mut child, limit);
    let text = |read: thread::JoinHandle<String>| read.join().unwrap_or_default();
    Ok((status, text(out), text(err)))
}

fn reader(from: Option<impl Read + Send + 'static>) -> thread::JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut from) = from {
            // What was read before an error is kept.
            let _ = from.read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// Waits for its end, and ends it after the limit; `None` then, and after a signal.
fn ended(child: &mut Child, limit: Duration) -> Option<i32> {
    let began = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return status.code(),
            Ok(None) if began.elapsed() < limit => thread::sleep(Duration::from_millis(5)),
            _ => {
                let _ = child.kill();
                let _ = child.wait();
                return None;
            }
        }
    }
}

/// A check has passed when its command says so in both ways: by its status and in its answer.
fn judge(status: Option<i32>, answer: &Value, said: &str) -> Fate {
    let says = ["exactly_once", "right", "success"];
    let good = says.iter().find_map(|name| answer[name].as_bool());
    match (status, good) {
        (Some(0), Some(true)) => Fate::Passed,
        (None, _) => Fate::Failed(format!(
            "it did not end in time, or died{}",
            last_line(said).map_or(String::new(), |line| format!(": {line}"))
        )),
        (Some(status), _) => Fate::Failed(
            reason(answer, said)
                .unwrap_or_else(|| format!("exit status {status}, and no answer that says why")),
        ),
    }
}

/// Why it failed, as its answer says.
fn reason(answer: &Value, said: &str) -> Option<String> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let steps = answer["steps"].as_array().into_iter().flatten();
    let mut findings = answer["diagnostics"]
        .as_array()
        .into_iter()
        .chain(steps.filter_map(|step| step["diagnostics"].as_array()))
        .flatten()
        .filter_map(|one| {
            Some(format!(
                "{} {}",
                one["code"].as_str()?,
                one["message"].as_str()?
            ))
        });
    let wrong = || {
        let norm = answer["relative_norm"].as_f64()?;
        Some(format!("wrong: relative norm {norm:.2e}"))
    };
    let counts = || {
        let counts = answer["counts"].as_object()?;
        let all = counts.iter().map(|(device, of)| {
            format!("{device}: {} passed, {} failed", of["passed"], of["failed"])
        });
        Some(all.collect::<Vec<_>>().join("; "))
    };
    text(&answer["error"])
        .or_else(|| findings.next())
        .or_else(|| text(&answer["wrong"]))
        .or_else(wrong)
        .or_else(counts)
        .or_else(|| {
            (answer["exactly_once"] == false).then(|| "a tile did not run exactly once".to_owned())
        })
        .or_else(|| last_line(said))
}

fn last_line(said: &str) -> Option<String> {
    let line = said.lines().rfind(|line| !line.trim().is_empty())?;
    Some(line.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_check_passes_by_its_status_and_its_answer() {
        let passes = |status, answer| matches!(judge(status, &answer, ""), Fate::Passed);
        assert!(passes(Some(0), json!({ "exactly_once": true })));
        assert!(passes(Some(0), json!({ "right": true })));
        assert!(!passes(Some(1), json!({ "right": true })));
        assert!(!passes(Some(0), json!({ "right": false })));
        assert!(!passes(Some(0), Value::Null));
        assert!(!passes(None, json!({ "success": true })));
    }

    #[test]
    fn a_failure_says_why() {
        let why = |answer, said: &str| match judge(Some(1), &answer, said) {
            Fate::Failed(why) => why,
            other => panic!("{other:?}"),
        };
        let found = json!({ "right": false, "steps": [{ "diagnostics": [
            { "code": "T102", "message": "read early" }] }] });
        assert_eq!(why(found, ""), "T102 read early");
        assert_eq!(why(json!({ "error": "no driver" }), ""), "no driver");
        assert_eq!(
            why(json!({ "right": false, "relative_norm": 0.5 }), ""),
            "wrong: relative norm 5.00e-1"
        );
        assert_eq!(why(Value::Null, "a\npanicked\n\n"), "panicked");
    }
}
