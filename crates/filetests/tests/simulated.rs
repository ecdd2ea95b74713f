//! Every test file of the repository: through the checker, and on the simulated
//! GPU with all checks on.

use heist_filetests::{Selftest, SimDevice};
use heist_ptx::{Diagnostic, Module, Source, validate};
use std::path::Path;

/// What fails when everything under these folders runs on the simulator.
fn failures(folders: &[&str], sim: SimDevice, least: usize) -> Vec<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let folders: Vec<_> = folders.iter().map(|folder| root.join(folder)).collect();
    let checker = |module: &Module, source: &Source| -> Vec<Diagnostic> {
        let found = validate::validate(module, Some(source));
        if found.is_empty() {
            heist_check::check(module)
        } else {
            found
        }
    };
    let selftest = Selftest {
        devices: vec![&sim],
        compare: false,
        checker: &checker,
        filter: None,
        threads: 2,
    };
    let report = selftest
        .run(&folders, &|_, _| {})
        .expect("the test files can be read");
    let results = report.results.len();
    assert!(results > least, "only {results} results");
    let lines = report.results.iter().map(ToString::to_string);
    lines.filter(|line| line.starts_with("FAILED")).collect()
}

#[test]
fn every_test_file_holds() {
    let folders = ["tests/ptx", "rules", "cases", "corpus"];
    let failed = failures(&folders, SimDevice::default(), 2000);
    assert!(failed.is_empty(), "{failed:#?}");
}

/// A few schedules in the tests; `heist selftest rules --explore 50 --chaos` tries more.
#[test]
fn every_pair_of_a_rule_holds_on_other_schedules() {
    let sim = SimDevice {
        explore: 3,
        chaos: true,
    };
    let failed = failures(&["rules", "cases"], sim, 500);
    assert!(failed.is_empty(), "{failed:#?}");
}
