//! Parsing the corpus: `heist-ptx` beside the crate `ptx-syntax`.
//!
//! `cargo run --release -p heist-bench-peers --bin parse`
//!
//! Only files that both accept are timed; the two take turns, file by file, and
//! each figure is the median of the rounds.

use heist_ptx::{Source, parse};
use std::fs;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const ROUNDS: usize = 15;

fn main() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../corpus");
    let mut files = Vec::new();
    collect(&root, &mut files);
    files.sort();
    let mut total = Totals::default();
    println!(
        "{:<44} {:>9} {:>11} {:>11} {:>8}",
        "file", "bytes", "heist MB/s", "peer MB/s", "ratio"
    );
    for path in &files {
        let text = fs::read_to_string(path).expect("corpus files are UTF-8");
        let source = Source::new(path.display().to_string(), text.clone());
        let ours = parse(&source).is_ok();
        let theirs = std::panic::catch_unwind(|| ptx_syntax::parse_ptx(&text).is_ok());
        let theirs = theirs.unwrap_or(false);
        total.ours += usize::from(ours);
        total.theirs += usize::from(theirs);
        total.files += 1;
        if !ours || !theirs {
            continue;
        }
        let (heist, peer) = interleaved(
            || {
                black_box(parse(&source)).is_ok();
            },
            || {
                black_box(ptx_syntax::parse_ptx(&text)).is_ok();
            },
        );
        total.bytes += text.len();
        total.heist += heist;
        total.peer += peer;
        let name = path
            .strip_prefix(&root)
            .unwrap_or(path)
            .display()
            .to_string();
        println!(
            "{name:<44} {:>9} {:>11.1} {:>11.2} {:>7.0}x",
            text.len(),
            rate(text.len(), heist),
            rate(text.len(), peer),
            peer.as_secs_f64() / heist.as_secs_f64()
        );
    }
    println!(
        "accepted: heist {} of {}, ptx-syntax {} of {}",
        total.ours, total.files, total.theirs, total.files
    );
    println!(
        "files both accept ({} bytes): heist {:.1} MB/s, ptx-syntax {:.2} MB/s, ratio {:.0}x",
        total.bytes,
        rate(total.bytes, total.heist),
        rate(total.bytes, total.peer),
        total.peer.as_secs_f64() / total.heist.as_secs_f64()
    );
}

#[derive(Default)]
struct Totals {
    files: usize,
    ours: usize,
    theirs: usize,
    bytes: usize,
    heist: Duration,
    peer: Duration,
}

fn rate(bytes: usize, time: Duration) -> f64 {
    bytes as f64 / time.as_secs_f64() / 1e6
}

/// The medians of two things that take turns.
fn interleaved(mut a: impl FnMut(), mut b: impl FnMut()) -> (Duration, Duration) {
    let mut times = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        times.0.push(time(&mut a));
        times.1.push(time(&mut b));
    }
    times.0.sort();
    times.1.sort();
    (times.0[ROUNDS / 2], times.1[ROUNDS / 2])
}

fn time(work: &mut impl FnMut()) -> Duration {
    let start = Instant::now();
    work();
    start.elapsed()
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("the corpus is in the repository") {
        let path = entry.expect("a directory entry").path();
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|ext| ext == "ptx") {
            files.push(path);
        }
    }
}
