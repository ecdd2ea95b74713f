//! `heist check` from the command line: without a launch, and with one.

use std::path::Path;
use std::process::Command;

/// Exit status and all that was printed.
fn check(arguments: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_heist"))
        .arg("check")
        .args(arguments)
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."))
        .output()
        .unwrap();
    let text = [output.stdout, output.stderr].concat();
    (
        output.status.code(),
        String::from_utf8_lossy(&text).into_owned(),
    )
}

#[test]
fn a_launch_is_not_needed() {
    let (status, said) = check(&["cases/wmma-local/bad-trap.ptx"]);
    assert_eq!(status, Some(1), "{said}");
    assert!(said.contains("T013"), "{said}");
    let (status, said) = check(&["cases/wmma-local/good.ptx", "cases/cp-async/good.ptx"]);
    assert_eq!(status, Some(0), "{said}");
}

#[test]
fn half_a_launch_is_a_bad_question() {
    let (status, said) = check(&["cases/wmma-local/good.ptx", "--grid", "1"]);
    assert_eq!(status, Some(2), "{said}");
    assert!(said.contains("block"), "{said}");
}

#[test]
fn a_launch_past_48_kib_is_told_of_the_opt_in() {
    let launch = "--grid 1 --block 64 --device sim:l4 --arg in:f16:[1*4096] --arg out:f32:4096";
    let mut arguments = vec!["cases/shared-limit/dynamic.ptx", "--smem", "57376"];
    arguments.extend(launch.split(' '));
    let (status, said) = check(&arguments);
    assert_eq!(status, Some(1), "{said}");
    assert!(said.contains("warning[X011]"), "{said}");
}
