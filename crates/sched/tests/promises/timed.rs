//! Policies that look at a clock: the simulated one.

use super::run::{Setting, run};
use heist_launch::DecisionKind::{Declined, Requested};
use heist_sched::{Source, Submit};
use heist_sim::Chaos;

/// A decision is written down a little after the policy has looked at the clock.
const LAG_NS: f64 = 400.0;

fn both(seed: u64) -> impl Iterator<Item = Setting> {
    let sources = [Source::Clc, Source::Ticket].into_iter();
    sources.flat_map(move |source| {
        [Submit::Early, Submit::Late]
            .into_iter()
            .map(move |submit| Setting::new(source, seed).submit(submit))
    })
}

#[test]
fn time_budget_stops_asking_once_the_block_has_run_this_long() {
    for (budget, chaos, lag) in [
        (6_000.0, Chaos::NONE, LAG_NS),
        (11_000.0, Chaos::NONE, LAG_NS),
        (11_000.0, Chaos::FULL, 8_000.0),
    ] {
        for setting in both(1) {
            let policy = format!("time-budget({budget}ns)");
            let seen = run(&policy, setting.sleep(2_000, 150).tiles(900).chaos(chaos));
            let mut kinds = (0, 0);
            for block in &seen.blocks {
                for (kind, at) in &block.decisions {
                    let age = at.ns() - block.start.ns();
                    match kind {
                        Requested => {
                            kinds.0 += 1;
                            assert!(age < budget + lag, "asks at {age} ns: {}", seen.what);
                        }
                        Declined => {
                            kinds.1 += 1;
                            assert!(age >= budget, "declines at {age} ns: {}", seen.what);
                        }
                        _ => {}
                    }
                }
                // Until then it goes on.
                let stopped = block.declined() > 0;
                assert!(stopped || block.was_refused() || block.granted() > 1);
            }
            assert!(kinds.0 > 100 && kinds.1 > 10, "{kinds:?} {}", seen.what);
        }
    }
}

#[test]
fn token_bucket_a_request_costs_a_token_a_block_gets_rate_tokens_a_millisecond_and_holds_up_to_burst()
 {
    for (rate, burst) in [(200u32, 1u32), (120, 3), (400, 2)] {
        let mut declines = 0;
        for setting in both(2) {
            let policy = format!("token-bucket({rate}, {burst})");
            let seen = run(&policy, setting.sleep(3_000, 700).tiles(1200));
            let per_ns = f64::from(rate) / 1e6;
            let slack = per_ns * 2.0 * LAG_NS;
            for block in &seen.blocks {
                // The bucket, filled by hand.
                let (mut level, mut before) = (f64::from(burst), block.start.ns());
                for (kind, at) in &block.decisions {
                    let now = at.ns();
                    level = (level + (now - before) * per_ns).min(f64::from(burst));
                    before = now;
                    match kind {
                        Requested => {
                            assert!(level > 1.0 - slack, "{level}: {} {block:?}", seen.what);
                            level -= 1.0;
                        }
                        Declined => {
                            declines += 1;
                            assert!(level < 1.0 + slack, "{level}: {} {block:?}", seen.what);
                        }
                        _ => {}
                    }
                }
            }
        }
        assert!(declines > 50, "token-bucket({rate}, {burst}): {declines}");
    }
}

#[test]
fn adaptive_asks_early_while_tiles_are_alike_late_where_one_took_more_than_twice_the_mean() {
    let alike = run("adaptive", Setting::new(Source::Clc, 1).sleep(3_000, 0));
    assert!(alike.blocks.iter().all(|block| block.declined() == 0));
    let uneven = run("adaptive", Setting::new(Source::Clc, 1).sleep(200, 3_000));
    assert!(uneven.blocks.iter().any(|block| block.declined() > 0));
}
