//! How long the largest kernel of the corpus takes to check, without a launch:
//!
//! ```text
//! cargo xtask bench check
//! ```
//!
//! The best of several rounds, in one process: what the machine does besides makes a
//! round longer, never shorter.

use heist_ptx::{Source, parse, validate};
use std::error::Error;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use std::{fs, io};

const ROUNDS: usize = 20;

/// The largest `.ptx` below a folder.
fn largest(folder: PathBuf) -> io::Result<Option<(u64, PathBuf)>> {
    let mut best = None;
    let mut folders = vec![folder];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ext| ext == "ptx") {
                best = best.max(Some((entry.metadata()?.len(), path)));
            }
        }
    }
    Ok(best)
}

fn main() -> Result<(), Box<dyn Error>> {
    let corpus = heist_oracle::workspace_root().join("corpus");
    let (bytes, path) = largest(corpus)?.ok_or("the corpus is empty")?;
    let mut best = [Duration::MAX; 4];
    for _ in 0..ROUNDS {
        let start = Instant::now();
        let text = fs::read_to_string(&path)?;
        let source = Source::new(path.display().to_string(), text);
        let module = parse(&source).map_err(|found| format!("{found:?}"))?;
        let parsed = start.elapsed();
        let wrong = validate::validate(&module, Some(&source)).len();
        let validated = start.elapsed();
        let found = heist_check::check(&module).len();
        let all = start.elapsed();
        if wrong + found > 0 {
            return Err(format!("{}: {} findings", path.display(), wrong + found).into());
        }
        for (best, now) in best
            .iter_mut()
            .zip([parsed, validated - parsed, all - validated, all])
        {
            *best = now.min(*best);
        }
    }
    let [parse, structure, rules, all] = best.map(|time| time.as_secs_f64() * 1000.0);
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    println!("{name}, {bytes} bytes: {all:.1} ms");
    println!("  read and parse {parse:.1}, structure {structure:.1}, rules {rules:.1}");
    Ok(())
}
