//! Disasters in a space of candidates are told apart, and cost nothing but themselves.

#[path = "planted/space.rs"]
mod space;

use heist::run::{Device, Settings};
use heist::tune::{self, DeviceBench};
use heist_tune::{Budget, Candidate, Journal, Progress, Status};
use space::Planted;
use std::time::Duration;

#[test]
fn every_disaster_has_a_row_of_its_own() {
    let device = Device::open("sim:h200".parse().expect("a name")).expect("a device");
    let settings = Settings {
        // What waits for ever is ended by this; nothing else comes near it.
        limit: Duration::from_secs(5),
        ..Settings::default()
    };
    let mut bench = DeviceBench::new(&device, &Planted, settings).expect("a bench");
    let mut silent = |_: &Progress<'_>| {};
    let found = tune::search(
        &Planted,
        tune::target(&device).expect("a target"),
        &mut bench,
        &mut Journal::in_memory(),
        &Budget::default(),
        &mut silent,
    )
    .expect("a sweep");
    let status = |name: &str, value: &str| {
        let candidate = Candidate::new([(name, value)]);
        let row = found.rows.iter().find(|row| row.candidate == candidate);
        row.expect("a row").status.clone()
    };
    let hung = status("disaster", "hang");
    assert!(matches!(hung, Status::Hung { .. }), "{hung}");
    let fault = status("disaster", "fault");
    assert!(
        matches!(&fault, Status::Crashed { why } if why.contains("0x40")),
        "{fault}"
    );
    let wrong = status("disaster", "wrong");
    assert!(
        matches!(&wrong, Status::Wrong { why } if why.contains("differs")),
        "{wrong}"
    );
    let shared = status("disaster", "shared");
    assert!(
        matches!(&shared, Status::Refused { why } if why.contains("307200 bytes")),
        "{shared}"
    );
    // A simulated GPU has every register that is asked for; an assembler tells of spills.
    assert!(status("disaster", "spills").is_timed());
    for threads in ["32", "64", "128", "256"] {
        assert!(status("threads", threads).is_timed(), "{threads}");
    }
    assert_eq!(
        found.rows.len(),
        10,
        "five disasters, four others, and the default"
    );
    assert!(
        found
            .best
            .is_some_and(|best| best.candidate.get("disaster").is_none())
    );
}
