//! Laws that hold for every file of the corpus.

use heist_oracle::Ptxas;
use heist_ptx::{Source, parse, print};
use std::fs;
use std::path::{Path, PathBuf};

fn corpus() -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![heist_oracle::workspace_root().join("corpus")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("the corpus is in the repository") {
            let path = entry.expect("a directory entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ext| ext == "ptx") {
                files.push(path);
            }
        }
    }
    files.sort();
    assert!(files.len() >= 20, "the corpus has {} files", files.len());
    files
}

fn read(path: &Path) -> Source {
    let text = fs::read_to_string(path).expect("corpus files are UTF-8");
    Source::new(path.display().to_string(), text)
}

#[test]
fn every_file_survives_printing() {
    for path in corpus() {
        let source = read(&path);
        let module = match parse(&source) {
            Ok(module) => module,
            Err(errors) => {
                let at = source.position(errors[0].span);
                panic!(
                    "{}:{}:{}: {}\n  {}",
                    path.display(),
                    at.line,
                    at.column,
                    errors[0],
                    source.line(at.line)
                );
            }
        };
        let printed = Source::new("printed", print(&module));
        let again = parse(&printed).unwrap_or_else(|errors| {
            let at = printed.position(errors[0].span);
            panic!(
                "{}: the print does not parse: {}\n  {}",
                path.display(),
                errors[0],
                printed.line(at.line)
            )
        });
        assert!(
            module == again,
            "{}: the print says something else",
            path.display()
        );
        assert_eq!(
            printed.text(),
            print(&again),
            "{}: printing is not canonical",
            path.display()
        );
    }
}

/// The architecture that a file's `// ptxas:` line names; none where it says `none`.
fn architecture(source: &Source) -> Option<&str> {
    let arch = source
        .text()
        .lines()
        .find_map(|line| line.strip_prefix("// ptxas:"))
        .unwrap_or_else(|| panic!("{}: no `// ptxas:` line", source.name()))
        .trim();
    (!arch.starts_with("none")).then_some(arch)
}

/// How often a text is assembled before its machine code counts as another.
const ASSEMBLED_AGAIN: u32 = 12;

#[test]
fn the_print_assembles_to_the_same_machine_code() {
    let Some(ptxas) = Ptxas::find_or_say_skipped() else {
        return;
    };
    // What files say alike is printed alike: `every_file_survives_printing` reads them all.
    let files = heist_oracle::sample(corpus());
    let results = heist_oracle::parallel(&files, |path| {
        let source = read(path);
        let arch = architecture(&source)?;
        let printed = print(&parse(&source).expect("every corpus file parses"));
        // Code for a later link step is assembled without one.
        let relocatable = source.text().contains("-rdc=true");
        let options: &[&str] = if relocatable { &["-c"] } else { &[] };
        // Line tables hold the line numbers of the PTX itself, so only code is compared.
        let text = |ptx: &str| {
            ptxas
                .assemble_with(ptx, arch, options)
                .map_err(|refusal| refusal.log)
                .map(|cubin| cubin.text_sections().expect("ptxas writes ELF"))
        };
        // ptxas 13.4 does not make the same machine code of the same text every time: of
        // cute/gemm_tcgen05.sm_100a.e4m3_128x32x64_mn.ptx it makes one of two. So what it makes of
        // ours must be among what it makes of the original.
        let (mut originals, mut ours) = (Vec::new(), Vec::new());
        for _ in 0..ASSEMBLED_AGAIN {
            match text(source.text()) {
                Ok(code) => originals.push(code),
                Err(log) => return Some(Err(format!("{}: {log}", path.display()))),
            }
            match text(&printed) {
                Ok(code) => ours.push(code),
                Err(log) => return Some(Err(format!("{}: the print: {log}", path.display()))),
            }
            if ours.iter().any(|code| originals.contains(code)) {
                return Some(Ok(()));
            }
        }
        Some(Err(format!("{}: other machine code", path.display())))
    });
    let failures: Vec<String> = results
        .iter()
        .flatten()
        .filter_map(|result| result.clone().err())
        .collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    let compared = results.iter().flatten().count();
    println!("{compared} files give the same machine code after a print");
    assert!(compared >= 20);
}
