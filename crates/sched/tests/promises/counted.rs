//! Policies that count.

use super::run::{Setting, in_turn, run, settings};
use heist_launch::DecisionKind;
use heist_sched::{Submit, TicketGrid, TileSource};

/// Whether it is so; the run is named where it is not.
macro_rules! promise {
    ($seen:expr, $block:expr, $kept:expr) => {
        assert!($kept, "{}: {:?}", $seen.what, $block)
    };
}

#[test]
fn greedy_always_asks_costs_nothing() {
    // That it costs nothing is counted in instructions, in `free.rs`.
    for setting in settings(0..2) {
        let seen = run("greedy", setting);
        for block in &seen.blocks {
            promise!(seen, block, block.declined() == 0);
            promise!(seen, block, block.was_refused());
            promise!(seen, block, block.requested() == block.granted() + 1);
        }
    }
}

#[test]
fn never_never_asks_each_block_runs_its_own_tile_and_retires() {
    for setting in settings(0..2) {
        let seen = run("never", setting);
        assert_eq!(seen.blocks.len() as u32, seen.tiles, "{}", seen.what);
        for block in &seen.blocks {
            // Built in, it is not even asked.
            let asked = if setting.loaded { 2 } else { 0 };
            promise!(seen, block, block.declined() == asked);
            promise!(seen, block, block.requested() == 0 && block.tiles == 1);
        }
    }
}

#[test]
fn max_steals_stops_after_n_stolen_tiles() {
    for (turn, limit) in [1, 2, 5].into_iter().enumerate() {
        let mut reached = 0;
        for setting in in_turn(turn, 0) {
            let seen = run(&format!("max-steals({limit})"), setting);
            for block in &seen.blocks {
                promise!(seen, block, block.granted() <= limit);
                // And n where work is left.
                promise!(seen, block, block.granted() == limit || block.was_refused());
                reached += u32::from(block.granted() == limit);
            }
        }
        assert!(reached > 50, "max-steals({limit}): {reached} blocks");
    }
    // None is none: its own tile, and two declines.
    let seen = run("max-steals(0)", Setting::new(TileSource::Ticket, 1));
    for block in &seen.blocks {
        promise!(seen, block, block.answers() == [false, false]);
    }
}

#[test]
fn every_takes_the_first_of_every_n_opportunities_a_last_call_is_one_too() {
    for (turn, n) in [1u32, 2, 3, 5].into_iter().enumerate() {
        for setting in in_turn(turn, 0) {
            let seen = run(&format!("every({n})"), setting);
            for block in &seen.blocks {
                // It says itself where it may retire a block: nobody overrules it.
                promise!(seen, block, block.count(DecisionKind::Overruled) == 0);
                for (at, asked) in block.answers().into_iter().enumerate() {
                    promise!(seen, block, asked == (at as u32).is_multiple_of(n));
                }
            }
        }
    }
}

#[test]
fn fair_share_stops_at_an_equal_share_of_the_tiles() {
    // Also where the share comes out even, on either device.
    for (turn, tiles) in [420, 444, 174, 1].into_iter().enumerate() {
        for setting in in_turn(turn, 0) {
            let seen = run("fair-share", setting.tiles(tiles));
            let share = tiles.div_ceil(seen.resident);
            for block in &seen.blocks {
                promise!(seen, block, block.tiles <= share);
                promise!(seen, block, block.tiles == share || block.was_refused());
            }
        }
    }
}

#[test]
fn a_resident_grid_overrules_a_policy_that_would_lose_tiles() {
    use heist_launch::DecisionKind::Overruled;
    for policy in ["max-steals(1)", "sm-limit(0)", "every(4)"] {
        for submit in [Submit::Early, Submit::Late] {
            let setting = Setting::new(TileSource::Ticket, 3).submit(submit);
            let seen = run(policy, setting.grid(TicketGrid::Resident));
            assert!(seen.blocks.len() as u32 <= seen.resident);
            for block in &seen.blocks {
                promise!(seen, block, block.was_refused());
                promise!(
                    seen,
                    block,
                    block.count(Overruled) > 0 || block.granted() < 4
                );
            }
        }
    }
}

#[test]
fn a_relief_grid_lets_one_retire_for_each_that_comes_and_no_more() {
    use heist_launch::DecisionKind::Overruled;
    for (policy, loaded, submit, sleep) in [
        ("never", true, Submit::Early, (300, 90)),
        ("max-steals(1)", true, Submit::Late, (300, 90)),
        // Equal tiles: all decide at the same moment.
        ("max-steals(1)", false, Submit::Early, (500, 0)),
        ("never", true, Submit::Late, (500, 0)),
    ] {
        let setting = Setting::new(TileSource::Ticket, 5).submit(submit);
        let setting = Setting {
            tiles: 700,
            loaded,
            sleep,
            ..setting.grid(TicketGrid::Relief)
        };
        let seen = run(policy, setting);
        let what = &seen.what;
        let come = seen.resident + seen.tiles / 32;
        assert_eq!(seen.workers, seen.resident + come, "{what}");
        // Two tiles each, and all of them have come before the last.
        assert!(seen.tiles > 2 * seen.workers, "{what}");
        let retired = seen.blocks.iter().filter(|block| !block.was_refused());
        assert_eq!(retired.count() as u32, come, "{what}");
        let overruled = seen.blocks.iter().map(|block| block.count(Overruled));
        assert!(overruled.sum::<u32>() > 0, "{what}");
    }
}
