//! Policies that look at who or where the block is.

use super::model::among_the_first;
use super::run::{Seen, in_turn, run, settings};

/// Those for which it holds ask until they are refused; the others never do, and
/// run one tile.
fn only_these_ask(seen: &Seen, which: impl Fn(&super::run::BlockRun) -> bool) -> (usize, usize) {
    let mut counts = (0, 0);
    for block in &seen.blocks {
        if which(block) {
            counts.0 += 1;
            assert!(block.declined() == 0, "{}: {block:?}", seen.what);
            assert!(block.was_refused(), "{}: {block:?}", seen.what);
        } else {
            counts.1 += 1;
            assert!(block.requested() == 0, "{}: {block:?}", seen.what);
            assert!(block.tiles == 1, "{}: {block:?}", seen.what);
            assert!(
                block.answers() == [false, false],
                "{}: {block:?}",
                seen.what
            );
        }
    }
    counts
}

#[test]
fn first_half_half_of_the_blocks_that_run_at_a_time_ask_the_others_run_one_tile() {
    for setting in settings(0..2) {
        let seen = run("first-half", setting);
        let (half, others) = only_these_ask(&seen, |block| among_the_first(0.5, block, &seen));
        assert!(half as u32 <= seen.resident / 2, "{}", seen.what);
        if !setting.chaos {
            // Launched out of order, some of the first half come too late to run.
            assert_eq!(half as u32, seen.resident / 2, "{}", seen.what);
            assert!(others as u32 >= seen.resident / 2, "{}", seen.what);
        }
    }
}

#[test]
fn fraction_this_part_of_the_blocks_that_run_at_a_time_ask_the_others_run_one_tile() {
    for (turn, part) in [0.1, 0.25, 0.9].into_iter().enumerate() {
        for setting in in_turn(turn, 0) {
            let seen = run(&format!("fraction({part})"), setting);
            let count = only_these_ask(&seen, |block| among_the_first(part, block, &seen)).0;
            let expected = (f64::from(seen.resident) * part).floor() as usize;
            assert!(count <= expected, "{}", seen.what);
            assert!(count == expected || setting.chaos, "{}", seen.what);
        }
    }
    // Fewer tiles than fit at a time: the part is of the blocks there are.
    for setting in settings(0..2) {
        let seen = run("fraction(0.5)", setting.tiles(20));
        only_these_ask(&seen, |block| block.worker < 10);
    }
    for (text, constant) in [("fraction(0)", false), ("fraction(1)", true)] {
        let policy: heist_sched::AnyPolicy = text.parse().expect("a policy");
        use heist_sched::Policy;
        assert_eq!(policy.constant(), Some(constant));
    }
}

#[test]
fn sm_limit_only_blocks_on_the_first_n_multiprocessors_ask_which_leaves_room_on_the_others() {
    for (turn, sms) in [1, 20, 57].into_iter().enumerate() {
        for setting in in_turn(turn, 0) {
            let seen = run(&format!("sm-limit({sms})"), setting);
            let (first, others) = only_these_ask(&seen, |block| block.sm < sms);
            assert!(first > 0 && others > 0, "{}", seen.what);
        }
    }
}
