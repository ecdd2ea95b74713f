//! What people see when a file is broken, as golden files.
//!
//! Each `broken/NAME.ptx` is parsed; what is said of it is in `NAME.txt`.
//! `cargo xtask bless` rewrites those.

use heist_cli::render;
use heist_ptx::{Source, parse};
use std::fs;
use std::path::Path;

#[test]
fn golden_messages_for_broken_files() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/broken");
    let mut seen = 0;
    for entry in fs::read_dir(&folder).expect("the folder of broken files") {
        let path = entry.expect("a directory entry").path();
        if path.extension().is_none_or(|ext| ext != "ptx") {
            continue;
        }
        seen += 1;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let text = fs::read_to_string(&path).expect("broken, but UTF-8");
        let source = Source::new(name.as_ref(), text);
        let errors = parse(&source).expect_err("a broken file is refused");
        let told: String = errors
            .iter()
            .map(|error| {
                let text = render::to_text(error, &source);
                format!("{}\n\n", anstream::adapter::strip_str(&text))
            })
            .collect();
        let golden = path.with_extension("txt");
        if std::env::var_os("HEIST_BLESS").is_some() {
            fs::write(&golden, &told).expect("golden files can be written");
        }
        let expected = fs::read_to_string(&golden).unwrap_or_default();
        assert_eq!(
            told, expected,
            "{name}: `cargo xtask bless` accepts a new message"
        );
    }
    assert!(seen >= 20, "only {seen} broken files");
}
