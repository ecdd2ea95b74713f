//! The simulated GPU ranks what `heist share` tables as a real one does.
//!
//! `share/h200.json` holds the answers of `heist share --json --no-peers` on an H200. The same
//! questions are put to the simulated H200, and every two figures of a table that a user may
//! compare are compared: two schedules in one column, or the same schedule with more or fewer
//! multiprocessors held.

use serde_json::Value;
use std::process::Command;

/// Figures that differ by less are not told apart.
const APART: f64 = 1.05;

/// A measured figure and its model.
#[derive(Clone, Copy)]
struct Figure {
    measured: f64,
    modelled: f64,
}

/// Figures that may be compared with each other, and what they are.
struct Column {
    name: String,
    figures: Vec<(String, Figure)>,
}

fn words(value: &Value) -> Vec<&str> {
    let list = value.as_array().expect("a list");
    list.iter()
        .map(|word| word.as_str().expect("a word"))
        .collect()
}

/// The same question to the simulated GPU.
fn modelled(measured: &Value) -> Value {
    let held: Vec<String> = measured["held"]
        .as_array()
        .expect("a list")
        .iter()
        .map(Value::to_string)
        .collect();
    let mut command = Command::new(env!("CARGO_BIN_EXE_heist"));
    command
        .args(["share", measured["kernel"].as_str().expect("a kernel")])
        .args(words(&measured["told"]))
        .args(["--device", "sim:h200", "--json", "--samples", "2"])
        .args(["--held", &held.join(",")]);
    for row in measured["rows"].as_array().expect("rows") {
        command.args(["--row", row["schedule"].as_str().expect("a schedule")]);
    }
    for interactive in words(&measured["interactive"]) {
        command.args(["--interactive", interactive]);
    }
    let output = command.output().expect("heist starts");
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

fn columns(measured: &Value, modelled: &Value) -> Vec<Column> {
    let kernel = format!(
        "{} {}",
        measured["kernel"].as_str().expect("a kernel"),
        words(&measured["told"]).join(" ")
    );
    let rows = measured["rows"].as_array().expect("rows").len();
    let figure = |row: usize, place: &str| {
        let at = |answer: &Value| answer["rows"][row].pointer(place).and_then(Value::as_f64);
        Figure {
            measured: at(measured).expect("measured"),
            modelled: at(modelled).expect("modelled"),
        }
    };
    let schedule = |row: usize| {
        measured["rows"][row]["schedule"]
            .as_str()
            .expect("it")
            .to_owned()
    };
    let mut places = vec!["/alone_us".to_owned()];
    for at in 0..words(&measured["interactive"]).len() {
        places.extend(["p50_us", "p99_us", "batch_us"].map(|what| format!("/beside/{at}/{what}")));
    }
    let held = measured["held"].as_array().expect("a list");
    let held_at: Vec<String> = (0..held.len()).map(|at| format!("/held_us/{at}")).collect();
    places.extend(held_at.iter().cloned());
    let mut columns: Vec<Column> = places
        .iter()
        .map(|place| Column {
            name: format!("{kernel} {place}"),
            figures: (0..rows)
                .map(|row| (schedule(row), figure(row, place)))
                .collect(),
        })
        .collect();
    columns.extend((0..rows).map(|row| {
        Column {
            name: format!("{kernel} {}", schedule(row)),
            figures: held
                .iter()
                .zip(&held_at)
                .map(|(sms, place)| (format!("{sms} held"), figure(row, place)))
                .collect(),
        }
    }));
    columns
}

#[test]
fn of_ten_pairs_the_simulated_gpu_ranks_nine_as_the_real_one() {
    let measured: Value = serde_json::from_str(include_str!("share/h200.json")).expect("JSON");
    let (mut right, mut all, mut wrong) = (0, 0, Vec::new());
    let measured = measured.as_array().expect("answers");
    let modelled = heist_oracle::parallel(measured, modelled);
    for (measured, modelled) in measured.iter().zip(&modelled) {
        for column in columns(measured, modelled) {
            for (at, (one, a)) in column.figures.iter().enumerate() {
                for (other, b) in &column.figures[at + 1..] {
                    if a.measured.max(b.measured) <= a.measured.min(b.measured) * APART {
                        continue;
                    }
                    all += 1;
                    if (a.measured < b.measured) == (a.modelled < b.modelled)
                        && a.modelled != b.modelled
                    {
                        right += 1;
                    } else {
                        wrong.push(format!(
                            "{}: {one} {:.1} (modelled {:.1}), {other} {:.1} ({:.1})",
                            column.name, a.measured, a.modelled, b.measured, b.modelled
                        ));
                    }
                }
            }
        }
    }
    println!(
        "{right} of {all} pairs in order, {:.1}%; not in order:\n{}",
        100.0 * right as f64 / all as f64,
        wrong.join("\n")
    );
    assert!(all > 400 && right * 10 >= all * 9, "{right} of {all}");
}
