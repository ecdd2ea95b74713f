//! Policies that throw dice.

use super::run::{Setting, run, settings};
use heist_sched::TileSource;
use std::collections::BTreeMap;

#[test]
fn probability_takes_each_opportunity_with_this_probability() {
    for p in [0.1f64, 0.5, 0.9] {
        let (mut asked, mut all) = (0u32, 0u32);
        for setting in settings(0..2) {
            let seen = run(&format!("probability({p})"), setting.tiles(600));
            for block in &seen.blocks {
                let answers = block.answers();
                all += answers.len() as u32;
                asked += answers.iter().filter(|asked| **asked).count() as u32;
            }
        }
        // Every opportunity is a throw of its own, also the one a block ends with:
        // four standard deviations.
        let (all, asked) = (f64::from(all), f64::from(asked));
        let bound = 4.0 * (all * p * (1.0 - p)).sqrt();
        assert!((asked - p * all).abs() < bound, "{p}: {asked} of {all}");
        assert!(all > 4_000.0);
    }
}

#[test]
fn a_block_throws_its_own_dice_the_same_ones_in_every_launch() {
    let launch = |seed| -> BTreeMap<u32, Vec<bool>> {
        let seen = run("probability(0.5)", Setting::new(TileSource::Clc, seed));
        let blocks = seen.blocks.iter();
        blocks
            .map(|block| (block.worker, block.answers()))
            .collect()
    };
    let (one, other) = (launch(1), launch(2));
    let mut different = std::collections::BTreeSet::new();
    for (worker, answers) in &one {
        if let Some(again) = other.get(worker) {
            let length = answers.len().min(again.len());
            assert_eq!(answers[..length], again[..length], "block {worker}");
        }
        different.insert(answers.clone());
    }
    assert!(different.len() > 8, "{different:?}");
}

/// Loaded or built in, each block throws the same dice.
#[test]
fn a_loaded_policy_throws_the_same_dice() {
    let run = |loaded| {
        run(
            "probability(0.5)",
            Setting::new(TileSource::Clc, 3).loaded(loaded),
        )
    };
    let (built_in, loaded) = (run(false), run(true));
    let mut compared = 0;
    for block in &built_in.blocks {
        let same = loaded.blocks.iter().find(|b| b.worker == block.worker);
        let Some(same) = same else {
            continue;
        };
        for (at, (a, b)) in block.answers().iter().zip(same.answers()).enumerate() {
            assert_eq!(*a, b, "opportunity {at} of block {}", block.worker);
            compared += 1;
        }
    }
    assert!(compared > 100, "{compared}");
}
