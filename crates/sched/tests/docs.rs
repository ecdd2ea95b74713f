//! The policy of `docs/policies.md`, word for word, on all sources.

mod common;

use common::{count, run};
use heist_builder::Arch;
use heist_run::Settings;
use heist_sched::*;

/// The page's code, which is public in its own crate.
#[allow(unreachable_pub)]
mod page {
    include!("user_policy/impatient.rs");
}

#[test]
fn the_page_has_this_very_policy() {
    let root = heist_oracle::workspace_root();
    let page = std::fs::read_to_string(root.join("docs/policies.md")).expect("the page");
    let code = page
        .split("```rust\n")
        .nth(1)
        .and_then(|rest| rest.split("// Used like any other").next())
        .expect("a block of code, whose second half uses the first");
    // There it comes through the front door, which is not to be had here.
    let code = code.replace("heist::", "heist_");
    let words = |text: &str| {
        text.split_whitespace()
            .collect::<String>()
            .replace(",)", ")")
    };
    assert_eq!(
        words(&code),
        words(include_str!("user_policy/impatient.rs"))
    );
    let lines = code.lines().filter(|line| !line.trim().is_empty()).count();
    assert!(lines <= 24, "{lines} lines");
}

#[test]
fn it_works_on_every_source() {
    for source in TileSource::ALL {
        for limit in [0, 500, u64::MAX] {
            let tiled = Tiled::new("count", 301)
                .source(source)
                .policy(page::Impatient { limit })
                .watch(Watch::Trace)
                .block(64);
            let kernel = count(tiled, Arch::SM_100A).expect("a kernel");
            let settings = Settings {
                seed: limit ^ 5,
                chaos: true,
                ..Settings::default()
            };
            let what = format!("{source} {limit}");
            let run = run(&kernel, "sim:b200", 64, &settings, &what);
            assert!(run.runs.iter().all(|runs| *runs == 1), "{what}");
            let total = run.report.stats.expect("figures").total();
            if source.asks() && limit == 0 {
                assert!(total.declines > 0, "{what}: {total:?}");
            }
        }
    }
}

/// Waits for something that never comes, in one block or in all of them.
struct Stuck(Option<u32>);

impl Policy for Stuck {
    type State<'k> = ();
    fn init<'k>(&self, _: &PolicyCx<'k>) {}
    fn should_try_steal<'k>(&self, cx: &PolicyCx<'k>, (): &()) -> heist_builder::Bool<'k> {
        cx.wait_until(|| match self.0 {
            Some(block) => cx.worker().ne(block),
            None => cx.nanoseconds().eq(0),
        })
    }
    fn keep_going_after_success<'k>(
        &self,
        cx: &PolicyCx<'k>,
        (): &(),
        _: TileId<'k>,
    ) -> heist_builder::Bool<'k> {
        cx.yes()
    }
}

#[test]
fn a_policy_that_waits_for_ever_is_overruled() {
    let all = [TileSource::Clc, TileSource::Ticket].map(|source| (source, None));
    for (source, block) in all.into_iter().chain([(TileSource::Ticket, Some(3))]) {
        let tiled = Tiled::new("count", 200)
            .source(source)
            .policy(Stuck(block))
            .watchdog(5_000)
            .block(32);
        let kernel = count(tiled, Arch::SM_100A).expect("a kernel");
        let run = run(&kernel, "sim:b200", 64, &Settings::default(), &source);
        assert!(run.runs.iter().all(|runs| *runs == 1), "{source}");
        let ejected = run.report.ejected.expect("an exit record");
        assert_eq!(ejected.policy, "Stuck");
        assert!(ejected.cluster < 200 && ejected.at_ns >= 5_000, "{ejected}");
        let named = block.is_none_or(|block| ejected.cluster == block);
        assert!(named, "block {block:?} waited: {ejected}");
    }
}
