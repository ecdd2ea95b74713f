//! `heist share` on simulated GPUs.

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};

fn share(words: &[&str]) -> Output {
    let output = Command::new(env!("CARGO_BIN_EXE_heist"))
        .arg("share")
        .args(words)
        .output();
    output.expect("heist starts")
}

#[test]
fn both_tenants_are_tabled_and_drawn() {
    let page = Path::new(env!("CARGO_TARGET_TMPDIR")).join("share.html");
    let _ = std::fs::remove_file(&page);
    let problem = "gemm m=4096 n=4096 k=1024 --device sim:h200 --samples 6 --held 0,1";
    let interactive = "m=128,n=128,k=128";
    let mut words: Vec<&str> = problem.split(' ').collect();
    let path = page.display().to_string();
    words.extend(["--interactive", interactive, "--trace", &path, "--json"]);
    words.extend(["--row", "static", "--row", "direct"]);
    let output = share(&words);
    assert!(output.status.success(), "{output:?}");
    let answer: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(answer["clock"], "modelled");
    let held = |row: usize, at: usize| answer["rows"][row]["held_us"][at].as_f64().expect("it");
    // Dealt out in advance, the tiles of one multiprocessor wait for another round.
    assert!(held(0, 1) > 1.4 * held(0, 0), "{answer}");
    assert!(held(1, 1) < 1.4 * held(1, 0), "{answer}");
    let text = std::fs::read_to_string(&page).expect("a page");
    assert!(text.contains(interactive) && text.contains("static"));
}

#[test]
fn the_tables_say_what_they_are_of() {
    let words = "gemm m=256 n=256 k=256 --device sim:b200 --samples 3 --held 0,8 \
                 --interactive m=128,n=128,k=128";
    let output = share(&words.split_whitespace().collect::<Vec<_>>());
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{output:?}");
    for part in [
        "on sim:b200, in microseconds, modelled",
        "stands in for it: ",
        "Every tile ran exactly once",
        "clc late until-asked",
        "one launch while multiprocessors are held",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
}

#[test]
fn a_row_that_can_t_be_is_told() {
    for (row, part) in [
        (
            "ticket late pausing until-asked",
            "can't be left half done on sm_100a",
        ),
        ("ticket late greedy grouped(0)", "1 or more"),
    ] {
        let output = share(&["gemm", "--device", "sim:b200", "--row", row]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{row}: {said}");
        assert!(said.contains(part), "{row}: {said}");
    }
}

#[test]
fn what_can_t_be_asked_is_told() {
    for (words, part) in [
        (
            "gemm --device sim:h200 --held 132",
            "132 multiprocessors can't be held",
        ),
        ("gemm --device sim:h200 --trace both.svg", "write an .html"),
        (
            "gemm --device sim:h200 --row own+x",
            "how many multiprocessors are left free",
        ),
        ("gemm --device sim:h200 --row clc", "use the ticket source"),
        (
            "gemm --device sim:h200 --row own+132",
            "132 multiprocessors can't be left free: the GPU has 132",
        ),
        (
            "gemm --device sim:h200 --interactive m=64,x",
            "`x` is not of the form",
        ),
        ("gem --device sim:h200", "there is no kernel `gem`"),
    ] {
        let output = share(&words.split(' ').collect::<Vec<_>>());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{words}: {said}");
        assert!(
            said.to_lowercase().contains(&part.to_lowercase()),
            "{words}: {said}"
        );
    }
}
