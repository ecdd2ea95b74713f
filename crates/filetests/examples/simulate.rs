//! Runs test files on the simulator: `cargo run --example simulate -- PATH...`

use heist_filetests::{Selftest, SimDevice, Verdict};
use heist_ptx::{Module, Source};
use std::path::PathBuf;

fn main() {
    let mut args: Vec<String> = std::env::args().skip(1).collect();
    let filter = match args.first().map(String::as_str) {
        Some("-k") => {
            let filter = args.get(1).cloned();
            args.drain(..2);
            filter
        }
        _ => None,
    };
    let paths: Vec<PathBuf> = args.into_iter().map(PathBuf::from).collect();
    let nothing = |_: &Module, _: &Source| Vec::new();
    let selftest = Selftest {
        devices: vec![&SimDevice],
        checker: &nothing,
        filter,
        compare: false,
        threads: 1,
    };
    let (passed, failed) = (
        std::sync::atomic::AtomicUsize::new(0),
        std::sync::atomic::AtomicUsize::new(0),
    );
    let report = selftest.run(&paths, &|result| match &result.verdict {
        Verdict::Failed(why) => {
            failed.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            println!(
                "FAILED {}::{} on {}",
                result.file, result.case, result.device
            );
            for line in why {
                println!("    {line}");
            }
        }
        Verdict::Passed => {
            passed.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }
        _ => {}
    });
    if let Err(error) = report {
        println!("{error}");
    }
    println!(
        "{} passed, {} failed",
        passed.into_inner(),
        failed.into_inner()
    );
}
