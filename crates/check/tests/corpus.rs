//! No rule cries wolf: the corpus is what compilers make of correct sources.

use heist_ptx::{Severity, Source, parse, rule};
use std::fs;

#[test]
fn no_error_on_any_file_of_the_corpus() {
    let mut folders = vec![heist_oracle::workspace_root().join("corpus")];
    let (mut files, mut wolves) = (0, Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("the corpus is in the repository") {
            let path = entry.expect("a directory entry").path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            if path.extension().is_none_or(|ext| ext != "ptx") {
                continue;
            }
            files += 1;
            let text = fs::read_to_string(&path).expect("corpus files are UTF-8");
            let source = Source::new(path.display().to_string(), text);
            let module = parse(&source).expect("every corpus file parses");
            for finding in heist_check::check(&module) {
                // A register that nothing sets is a warning for what may come of it. Compilers make one
                // where a value does not matter; a file in which they do says so.
                let allowed = source
                    .text()
                    .contains(&format!("heist: allows {}", finding.code));
                let unset = finding.code == rule::REGISTER_UNWRITTEN && !allowed;
                if finding.severity == Severity::Error || unset {
                    let line = source.position(finding.span).line;
                    wolves.push(format!("{}:{line}: {finding}", path.display()));
                }
            }
        }
    }
    assert!(files >= 100, "only {files} files");
    assert!(wolves.is_empty(), "{}", wolves.join("\n"));
}
