//! The fastest schedule is measured once on a device, and remembered.

use heist::auto::fastest;
use heist::kernels::synthetic::{Parameters, Synthetic, Workload, build};
use heist::ptx::arch::Arch;
use heist::run::{Device, Settings};
use heist::sched::{Effort, Schedule, TileSource, Tuner};
use heist::tiled::TiledError;
use std::cell::Cell;

#[test]
fn with_a_long_prologue_tiles_share_blocks_and_that_is_remembered() {
    let device = Device::open("sim:h200".parse().expect("a device")).expect("it is simulated");
    let parameters = Parameters {
        tiles: 3000,
        mean: 4,
        prologue: 400,
        ..Parameters::default()
    };
    let work = Synthetic::new(Workload::Uniform, parameters);
    let candidates = [TileSource::Direct, TileSource::Static].map(Schedule::new);
    let path = std::env::temp_dir().join(format!("heist-auto-{}.json", std::process::id()));
    let built = Cell::new(0);
    let choose = |tuner: &mut Tuner, candidates: &[Schedule]| {
        let own = || work.arguments();
        let settings = Settings::default();
        fastest(&device, &settings, tuner, candidates, own, |schedule| {
            built.set(built.get() + 1);
            build(&work, schedule, Arch::SM_90A)
        })
    };
    let mut tuner = Tuner::remembering(Effort::EXACT, &path).expect("no file is fine");
    let chosen = choose(&mut tuner, &candidates).expect("both run");
    // A thousand blocks at a time do the prologue once, not three times.
    assert_eq!(candidates[chosen].source, TileSource::Static);
    assert_eq!(built.get(), 3);
    tuner.save().expect("written");
    let mut again = Tuner::remembering(Effort::EXACT, &path).expect("read");
    assert_eq!(choose(&mut again, &candidates).expect("known"), chosen);
    assert_eq!(built.get(), 4, "nothing was measured");
    std::fs::remove_file(&path).expect("removed");
    let nothing = choose(&mut again, &[]);
    assert!(matches!(nothing, Err(TiledError::NoCandidates)));
}
