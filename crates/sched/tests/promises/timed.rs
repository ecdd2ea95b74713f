//! Policies that look at a clock: the simulated one.

use super::run::{Setting, run};
use heist_builder::{Arch, kernel_params};
use heist_launch::DecisionKind::{Declined, Granted, Requested};
use heist_launch::Time;
use heist_run::{Device, Program, Settings};
use heist_sched::{Submit, TileSource, Tiled, TraceDevice, Watch};

/// A decision is written down a little after the policy has looked at the clock.
const LAG_NS: f64 = 400.0;
/// A loaded policy is taken up a while after the block began, and interpreted.
const LOADED_LAG_NS: f64 = 6_000.0;

fn lag(setting: Setting) -> f64 {
    match setting.loaded {
        true => LOADED_LAG_NS,
        false => LAG_NS,
    }
}

fn both(seed: u64) -> impl Iterator<Item = Setting> {
    let sources = [TileSource::Clc, TileSource::Ticket].into_iter();
    sources.flat_map(move |source| {
        [Submit::Early, Submit::Late]
            .into_iter()
            .map(move |submit| {
                let loaded = (source == TileSource::Clc) ^ (submit == Submit::Late);
                let loaded = loaded ^ (seed % 2 == 1);
                Setting::new(source, seed).submit(submit).loaded(loaded)
            })
    })
}

#[test]
fn time_budget_stops_asking_once_the_block_has_run_this_long() {
    for (budget, chaos, lag) in [
        (6_000.0, false, 0.0),
        (11_000.0, false, 0.0),
        (11_000.0, true, 7_600.0),
    ] {
        for setting in both(1) {
            // Chaos holds up every look at memory while a policy is taken up.
            let setting = setting.loaded(setting.loaded && !chaos);
            let lag = lag + self::lag(setting);
            let policy = format!("time-budget({budget}ns)");
            let seen = run(&policy, setting.sleep(2_000, 150).tiles(900).chaos(chaos));
            let mut stops = 0;
            for block in &seen.blocks {
                let age = |at: &Time| at.ns() - block.start.ns();
                for (kind, at) in &block.decisions {
                    let age = age(at);
                    match kind {
                        Requested => assert!(age < budget + lag, "asks at {age}: {}", seen.what),
                        Declined => assert!(age >= budget, "declines at {age}: {}", seen.what),
                        _ => {}
                    }
                }
                // A grant is the last one exactly where the budget is spent.
                let granted = block.decisions.iter().filter(|(kind, _)| *kind == Granted);
                let ages: Vec<f64> = granted.map(|(_, at)| age(at)).collect();
                if let [before @ .., last] = ages.as_slice() {
                    let in_time = before.iter().all(|age| *age < budget + lag);
                    assert!(in_time, "{} {ages:?}", seen.what);
                    if block.declined() == 0 && !block.was_refused() {
                        assert!(last + lag >= budget, "{} {ages:?}", seen.what);
                        stops += 1;
                    }
                }
                stops += block.declined();
            }
            assert!(stops > 50, "{stops}: {}", seen.what);
        }
    }
}

#[test]
fn token_bucket_a_request_costs_a_token_a_block_gets_rate_tokens_a_millisecond_and_holds_up_to_burst()
 {
    for (rate, burst) in [(200u32, 1u32), (120, 3), (60, 2)] {
        let mut declines = 0;
        for setting in both(2) {
            let policy = format!("token-bucket({rate}, {burst})");
            let seen = run(&policy, setting.sleep(3_000, 700).tiles(1200));
            let per_ns = f64::from(rate) / 1e6;
            let slack = per_ns * 2.0 * lag(setting);
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
fn shared_bucket_a_request_costs_a_token_the_launch_gets_rate_tokens_a_millisecond_and_holds_up_to_burst()
 {
    for (rate, burst) in [(2_000u32, 10u32), (4_000, 40)] {
        for setting in both(4) {
            let policy = format!("shared-bucket({rate}, {burst})");
            let seen = run(&policy, setting.sleep(3_000, 700).tiles(900));
            let mut all: Vec<(f64, bool)> = Vec::new();
            for block in &seen.blocks {
                for (kind, at) in &block.decisions {
                    match kind {
                        Requested => all.push((at.ns(), true)),
                        // Others may have taken their tokens before, and written it down since.
                        Declined => all.push((at.ns() + 2.0 * lag(setting), false)),
                        _ => {}
                    }
                }
            }
            all.sort_by(|a, b| a.0.total_cmp(&b.0));
            let per_ns = f64::from(rate) / 1e6;
            let slack = per_ns * 4.0 * lag(setting);
            // The one bucket, filled by hand.
            let (mut level, mut before) = (f64::from(burst), 0.0);
            for (now, asked) in &all {
                level = (level + (now - before) * per_ns).min(f64::from(burst));
                before = *now;
                if *asked {
                    assert!(level > 1.0 - slack, "{level} at {now}: {}", seen.what);
                    level -= 1.0;
                } else if !setting.loaded {
                    // Who asks while another one is turned away may be turned away as well;
                    // interpreted, that while is long.
                    let most = 0.75 * f64::from(burst);
                    assert!(level < most, "{level} at {now}: {}", seen.what);
                }
            }
            let asked = all.iter().filter(|(_, asked)| *asked).count();
            assert!(asked as u32 >= burst, "{asked}: {}", seen.what);
            assert!(all.len() > asked, "nobody declined: {}", seen.what);
        }
    }
}

/// The first tile takes longer than the budget.
#[test]
fn a_loaded_budget_counts_from_the_beginning_of_its_block() {
    let setting = Setting::new(TileSource::Clc, 1).submit(Submit::Late);
    let setting = setting.loaded(true).sleep(20_000, 0).tiles(600);
    let seen = run("time-budget(8us)", setting);
    for block in &seen.blocks {
        assert_eq!(block.requested(), 0, "{}: {block:?}", seen.what);
    }
}

kernel_params! {
    /// How long the last warp of a block takes for a tile.
    pub struct Late { sleep: u32 }
}

/// The thread that records a tile is done with it at once. (It writes down the beginning a little after the other warp has begun.)
#[test]
fn a_tile_ends_with_the_last_warp_of_its_block() {
    let tiled = Tiled::<Late>::new("late", 40)
        .source(TileSource::Ticket)
        .watch(Watch::Trace)
        .block(64);
    let kernel = tiled
        .build(Arch::SM_90A, |k, args, tiles| {
            tiles.each(|_| k.if_(k.thread_index().ge(32), || k.nanosleep(args.sleep)))
        })
        .unwrap_or_else(|error| panic!("{error}"));
    let device = Device::open("sim:h200".parse().expect("a name")).expect("it is simulated");
    let plan = kernel.plan(4).expect("a launch");
    let arguments = kernel.arguments(&plan, Late { sleep: 7_000 });
    let entry = &*kernel.built.launch.entry;
    let program = Program::from_module(entry, &kernel.built.module);
    let ran = device
        .run(
            &program,
            entry,
            &plan.launch,
            &arguments,
            &Settings::default(),
        )
        .unwrap_or_else(|error| panic!("{error}"));
    let place = TraceDevice {
        device: device.label(),
        sms: device.sms(),
        clock: device.clock(),
    };
    let report = kernel
        .report(&plan, &ran.outcome, &place)
        .expect("a report");
    let tiles = report.trace.expect("a trace").tiles;
    assert_eq!(tiles.len(), 40);
    for tile in tiles {
        assert!(tile.end.ns() - tile.start.ns() > 6_000.0, "{tile:?}");
    }
}
