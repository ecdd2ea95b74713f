//! Policies whose blocks share words of the launch, or listen to its bell.

use super::run::{Rung, Seen, Setting, in_turn, run, run_policy, settings};
use heist_launch::DecisionKind::{Declined, Requested};
use heist_sched::{AnyPolicy, AtMost, MaxSteals, Submit, TileSource};

/// The most blocks that steal at a time: from their first request to their end.
fn stealers(seen: &Seen) -> usize {
    let mut edges: Vec<(f64, i32)> = Vec::new();
    for block in &seen.blocks {
        if let Some((_, first)) = block.decisions.iter().find(|(kind, _)| *kind == Requested) {
            edges.extend([(first.ns(), 1), (block.end.ns(), -1)]);
        }
    }
    // Where one leaves and one comes at the same time, the place is free.
    edges.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    let (mut now, mut most) = (0, 0);
    for (_, step) in edges {
        now += step;
        most = most.max(now);
    }
    most as usize
}

#[test]
fn at_most_at_most_n_blocks_of_the_launch_ask_at_a_time() {
    for (turn, limit) in [1, 7, 40].into_iter().enumerate() {
        for setting in in_turn(turn, 0) {
            let seen = run(&format!("at-most({limit})"), setting);
            let most = stealers(&seen);
            assert!(most <= limit, "{most}: {}", seen.what);
            if !setting.chaos {
                assert_eq!(most, limit, "{}", seen.what);
            }
            for block in &seen.blocks {
                // With a place it goes on until it is refused; without, it leaves.
                let answers = block.answers();
                let place = answers.contains(&true);
                let declines = answers.iter().take_while(|asked| !**asked).count();
                assert!(declines + block.requested() as usize == answers.len());
                assert!(place == block.was_refused(), "{} {block:?}", seen.what);
                assert!(place || block.tiles == 1, "{} {block:?}", seen.what);
            }
        }
    }
}

#[test]
fn whoever_leaves_makes_a_place() {
    for setting in settings(3..5) {
        let policy = AnyPolicy::new(AtMost { blocks: 5 } & MaxSteals { limit: 2 });
        let seen = run_policy(policy, setting.tiles(600));
        assert!(stealers(&seen) <= 5, "{}", seen.what);
        let thieves = seen.blocks.iter().filter(|block| block.requested() > 0);
        let thieves = thieves.count();
        assert!(thieves > 5, "{thieves}: {}", seen.what);
    }
}

/// Two policies with words of their own do not take each other's.
#[test]
fn each_of_two_policies_has_words_of_its_own() {
    let both = ["at-most(3) & at-most(5)", "at-most(5) & at-most(3)"];
    for (turn, text) in both.into_iter().enumerate() {
        for setting in in_turn(turn, 5) {
            let seen = run(text, setting);
            assert!(stealers(&seen) <= 3, "{}", seen.what);
        }
    }
    // Both sides take a place, so the first three have one of each.
    let seen = run(
        "at-most(3) | at-most(5)",
        Setting::new(TileSource::Ticket, 5),
    );
    assert_eq!(stealers(&seen), 5, "{}", seen.what);
}

/// What the sides of a policy count is in no other word of the launch, such as its bell or another
/// side's: there is room for every block in each, and not for all of them twice.
#[test]
fn words_of_a_policy_are_nobody_else_s() {
    let text = "at-most(90) & at-most(90) & at-most(90) & until-asked";
    for loaded in [false, true] {
        let seen = run(text, Setting::new(TileSource::Ticket, 6).loaded(loaded));
        assert!((46..=90).contains(&seen.resident), "{}", seen.resident);
        for block in &seen.blocks {
            let asked = block.declined() == 0 && block.was_refused();
            assert!(asked, "{}: {block:?}", seen.what);
        }
    }
}

/// Tile 150 rings and tile 300 stops it.
fn rung(setting: Setting) -> Seen {
    let rung = Rung { from: 150, to: 300 };
    let policy: AnyPolicy = "until-asked".parse().expect("a policy");
    super::run::run_rung(policy, setting.tiles(600).sleep(3_000, 300), Some(rung))
}

#[test]
fn until_asked_keeps_its_blocks_until_the_launch_s_bell_is_rung_then_each_leaves_after_its_tile() {
    for source in [TileSource::Clc, TileSource::Ticket] {
        for submit in [Submit::Early, Submit::Late] {
            // Each source and each moment once loaded and once built in.
            let loaded = (source == TileSource::Clc) ^ (submit == Submit::Late);
            let seen = rung(Setting::new(source, 1).submit(submit).loaded(loaded));
            let (rang, silent) = seen.bell.expect("somebody rang");
            // A decision is written down a little after the bell was read.
            const LAG_NS: f64 = 2_000.0;
            let (mut asked, mut declined) = (0, 0);
            for block in &seen.blocks {
                for (kind, at) in &block.decisions {
                    let at = at.ns();
                    let quiet = at < rang || at > silent + LAG_NS;
                    let loud = at > rang + LAG_NS && at < silent;
                    match kind {
                        Declined => {
                            declined += u32::from(loud);
                            assert!(!quiet, "declines at {at}, {rang}..{silent}: {}", seen.what);
                        }
                        Requested => {
                            asked += u32::from(quiet);
                            assert!(!loud, "asks at {at}, {rang}..{silent}: {}", seen.what);
                        }
                        _ => {}
                    }
                }
                // Its tile ended, a block that declines twice has left.
                if let [.., (Declined, _), (Declined, _)] = block.decisions[..] {
                    assert!(!block.was_refused(), "{} {block:?}", seen.what);
                }
            }
            assert!(
                asked > 40 && declined > 40,
                "{asked} {declined}: {}",
                seen.what
            );
        }
    }
}

/// Whatever the bell does, every tile runs once: `run` counts them.
#[test]
fn a_bell_loses_no_tile() {
    for setting in settings(20..22) {
        rung(setting);
    }
}
