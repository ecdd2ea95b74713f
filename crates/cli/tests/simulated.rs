//! Every test file of the repository: through the checker, and on the simulated
//! GPU with all checks on.

use heist_filetests::{Selftest, SimDevice};
use heist_ptx::{Diagnostic, Module, Source, validate};
use std::path::Path;

#[test]
fn every_test_file_holds() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let folders = ["tests/ptx", "rules", "cases", "corpus"].map(|folder| root.join(folder));
    let checker = |module: &Module, source: &Source| -> Vec<Diagnostic> {
        let found = validate::validate(module, Some(source));
        if found.is_empty() {
            heist_check::check(module)
        } else {
            found
        }
    };
    let selftest = Selftest {
        devices: vec![&SimDevice],
        compare: false,
        checker: &checker,
        filter: None,
        threads: 2,
    };
    let report = selftest
        .run(&folders, &|_| {})
        .expect("the test files can be read");
    let failed: Vec<String> = report
        .results
        .iter()
        .map(ToString::to_string)
        .filter(|line| line.starts_with("FAILED"))
        .collect();
    assert!(failed.is_empty(), "{failed:#?}");
    assert!(
        report.results.len() > 2000,
        "only {} results",
        report.results.len()
    );
}
