//! The hardware checks against a stand-in for the driver, so that this crate's own
//! bookkeeping (who faulted, what is cached, what is refused) is tested on
//! machines without a GPU.
//!
//! The driver's library is found when the process starts, so the checks run in a
//! process of their own, this test's program again, which finds the stand-in.

#![cfg(target_os = "linux")]

#[path = "hardware/checks.rs"]
mod checks;

use std::path::Path;
use std::process::Command;

const INNER: &str = "HEIST_GPU_TEST_INNER";

#[test]
fn everything_works_against_a_stand_in() {
    if std::env::var_os(INNER).is_some() {
        let failed = checks::run_all().unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(failed, 0, "checks failed");
        return;
    }
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("driver");
    std::fs::create_dir_all(&folder).unwrap();
    let built = Command::new("cc")
        .args(["-shared", "-fPIC", "-w", "-O1", "-o"])
        .arg(folder.join("libcuda.so.1"))
        .arg(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/tests/driver/libcuda.c"
        ))
        .status()
        .expect("cc, which links Rust programs too");
    assert!(built.success(), "the stand-in does not compile");
    let output = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "everything_works_against_a_stand_in",
            "--nocapture",
        ])
        .env(INNER, "1")
        .env("LD_LIBRARY_PATH", &folder)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains("Stand-in"),
        "{text}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
}
