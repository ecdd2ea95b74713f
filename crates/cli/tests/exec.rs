//! `heist exec` on the simulated GPU.

use std::path::Path;
use std::process::Command;

/// Exit status, standard output and standard error of `heist exec` on the addition test.
fn add(more: &[&str]) -> (Option<i32>, String, String) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let output = Command::new(env!("CARGO_BIN_EXE_heist"))
        .args(["exec", "tests/ptx/float/add.ptx", "--entry", "add_rn_f32"])
        .args([
            "--grid",
            "1",
            "--arg",
            "in:f32:[1,2]",
            "--arg",
            "in:f32:[3,nan]",
        ])
        .args(more)
        .current_dir(root)
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (
        output.status.code(),
        text(&output.stdout),
        text(&output.stderr),
    )
}

#[test]
fn outputs_are_printed() {
    let (status, out, err) = add(&["--block", "2", "--arg", "out:f32:3"]);
    assert_eq!(status, Some(0), "{err}");
    assert!(out.starts_with("2: f32:[4.0, "), "{out}");
    assert!(out.contains("(unwritten)"), "{out}");
    assert!(err.contains("(modelled) on sim:h200"), "{err}");
}

#[test]
fn what_is_found_is_told_with_its_line() {
    let (status, _, err) = add(&["--block", "3", "--arg", "out:f32:3", "--explore", "4"]);
    assert_eq!(status, Some(1), "{err}");
    assert!(err.contains("error[M001]"), "{err}");
    assert!(err.contains("tests/ptx/float/add.ptx:18:5"), "{err}");
}

#[test]
fn schedules_are_explored() {
    let (status, _, err) = add(&[
        "--block",
        "2",
        "--arg",
        "out:f32:2",
        "--explore",
        "3",
        "--chaos",
    ]);
    assert_eq!(status, Some(0), "{err}");
    assert!(err.contains("3 schedules ran clean"), "{err}");
}

#[test]
fn a_wrong_question_exits_with_two() {
    let (status, _, err) = add(&["--block", "2"]);
    assert_eq!(status, Some(2));
    assert!(err.contains("error[X013]"), "{err}");
    assert!(err.contains("`p_b` (8 bytes, as a pointer has)"), "{err}");
    let (status, _, err) = add(&["--block", "2", "--arg", "u32:7"]);
    assert_eq!(status, Some(2));
    assert!(
        err.contains("error[X013]") && err.contains("`inout:`"),
        "{err}"
    );
    // What is wrong with a launch has a place and a remedy, too.
    for (more, code) in [
        (&["--block", "4096"][..], "X005"),
        (&["--block", "2", "--cluster", "2"], "X007"),
        (&["--block", "2", "--smem", "999999"], "X010"),
    ] {
        let (status, _, err) = add(&[more, &["--arg", "out:f32:2"]].concat());
        assert_eq!(status, Some(2));
        assert!(err.contains(&format!("error[{code}]")), "{err}");
        assert!(
            err.contains("add.ptx:7:17") && err.contains("help: "),
            "{err}"
        );
    }
    let (status, _, err) = add(&["--block", "2", "--arg", "out:f32:2", "--device", "sim:tnt2"]);
    assert_eq!(status, Some(2));
    assert!(err.contains("sim:b200"), "{err}");
    let (status, _, err) = add(&["--block", "2", "--arg", "out:f32:2", "--save", "9=x"]);
    assert_eq!(status, Some(2));
    assert!(err.contains("no output of that name"), "{err}");
}

#[test]
fn machines_get_json() {
    let (status, out, _) = add(&["--block", "2", "--arg", "out:f32:3", "--json"]);
    assert_eq!(status, Some(0));
    let json: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(json["device"], "sim:h200");
    assert_eq!(json["outputs"][0]["values"][0], "4.0");
    assert!(
        json["outputs"][0]["values"][2].is_null(),
        "nobody wrote it: {json}"
    );
    assert_eq!(json["clock"], "modelled");
    assert!(
        json["elapsed_ns"].as_f64().is_some_and(|ns| ns > 0.0),
        "{json}"
    );
    assert_eq!(json["diagnostics"], serde_json::json!([]));
}
