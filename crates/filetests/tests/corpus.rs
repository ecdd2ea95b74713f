//! The corpus's launches: that each file's directives fit its kernels, and that
//! no kernel is left out without a reason.

use heist_filetests::{Action, find_files, read_directives};
use heist_ptx::{Source, parse};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

#[test]
fn every_kernel_is_launched_with_arguments_that_fit() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../corpus");
    let mut wrong = Vec::new();
    let (mut launches, mut reasons) = (0, 0);
    for path in find_files(&[corpus]).expect("the corpus is in the repository") {
        let name = path.display().to_string();
        let text = fs::read_to_string(&path).expect("corpus files are UTF-8");
        let source = Source::new(&name, text);
        let file = match read_directives(source.clone()) {
            Ok(file) => file,
            Err(errors) => {
                wrong.extend(errors.iter().map(ToString::to_string));
                continue;
            }
        };
        let module = match parse(&source) {
            Ok(module) => module,
            Err(errors) => {
                wrong.push(format!("{name}: {}", errors[0]));
                continue;
            }
        };
        if source
            .text()
            .lines()
            .any(|line| line.starts_with("// not run: "))
        {
            reasons += 1;
            continue;
        }
        let mut left: BTreeSet<&str> = module.entries().map(|kernel| &*kernel.name).collect();
        for case in &file.cases {
            let Action::Run(run) = &case.action else {
                continue;
            };
            launches += 1;
            let entry = run.entry.as_deref().unwrap_or("");
            let Some(kernel) = module.entries().find(|kernel| &*kernel.name == entry) else {
                wrong.push(format!("{name}: {}: no kernel `{entry}`", case.name));
                continue;
            };
            left.remove(entry);
            let bound = run
                .arguments
                .bind()
                .expect("reading the directives bound them");
            let given: Vec<u64> = bound.params.iter().map(|p| p.size() as u64).collect();
            let wanted: Vec<u64> = kernel.params.iter().filter_map(|p| p.size()).collect();
            if given != wanted {
                wrong.push(format!(
                    "{name}: {}: the arguments have {given:?} bytes, the parameters {wanted:?}",
                    case.name
                ));
            }
        }
        wrong.extend(
            left.iter()
                .map(|kernel| format!("{name}: `{kernel}` is never launched")),
        );
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(launches > 250, "only {launches} launches were found");
    assert!(reasons < 20, "{reasons} files are not run");
}
