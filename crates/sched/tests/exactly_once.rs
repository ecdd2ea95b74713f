//! Every tile runs exactly once, whatever the source, the policy, the cluster,
//! the order and the grid, and whatever the hardware does in between: each case
//! runs on the simulator with chaos (refusals for no reason, delays, launches
//! out of order) and with all checks on.
//!
//! A sample runs by default. `HEIST_MATRIX=5000 cargo test -p heist-sched --test
//! exactly_once` runs that many cases.

#[path = "common/adversaries.rs"]
mod adversaries;
#[allow(dead_code, reason = "not all of it is used here")]
mod common;

use common::{count, few, run_on};
use heist_builder::Arch;
use heist_launch::Dim3;
use heist_run::Settings;
use heist_sched::*;

fn policies() -> Vec<AnyPolicy> {
    let texts = Catalogue::standard();
    let texts = texts.entries().iter().map(|entry| entry.example);
    let mut all: Vec<AnyPolicy> = texts
        .chain([
            "max-steals(1)",
            "every(3)",
            "max-steals(2) & first-half | every(2)",
            "!first-half",
            "time-budget(2us)",
            "token-bucket(1, 1)",
        ])
        .map(|text| text.parse().unwrap_or_else(|error| panic!("{error}")))
        .collect();
    all.extend(adversaries::all());
    all
}

/// A case of the matrix, drawn from a number.
struct Dice(u64);

impl Dice {
    fn roll<T: Clone>(&mut self, sides: &[T]) -> T {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        sides[((x ^ (x >> 31)) % sides.len() as u64) as usize].clone()
    }
}

fn check(seed: u64, policies: &[AnyPolicy]) {
    let mut dice = Dice(seed);
    let (device, arch) = dice.roll(&[
        ("sim:b200", Arch::SM_100A),
        ("sim:b200", Arch::SM_100),
        ("sim:h200", Arch::SM_90A),
        ("sim:h200", Arch::SM_90),
        ("sim:l4", Arch::SM_89),
        ("sim:a100", Arch::SM_80),
    ]);
    let shapes = [
        [1, 1, 1],
        [2, 1, 1],
        [1, 2, 1],
        [2, 2, 1],
        [4, 1, 1],
        [1, 4, 1],
        [3, 1, 1],
        [2, 2, 2],
        [8, 1, 1],
        [1, 8, 1],
    ];
    let mut cluster = Dim3::from(dice.roll(&shapes));
    let mut source = dice.roll(&[
        TileSource::Clc,
        TileSource::Clc,
        TileSource::Ticket,
        TileSource::Ticket,
        TileSource::Static,
        TileSource::Direct,
    ]);
    if TileSource::Direct.check(arch, cluster).is_err() {
        cluster = Dim3::ONE;
    }
    if source.check(arch, cluster).is_err() {
        source = TileSource::Ticket;
    }
    let tiles = Dim3::from(dice.roll(&[
        [1, 1, 1],
        [2, 1, 1],
        [7, 1, 1],
        [61, 1, 1],
        [251, 1, 1],
        [400, 1, 1],
        [13, 11, 1],
        [1, 37, 1],
        [5, 3, 7],
        [3, 1, 29],
    ]));
    let policy = dice.roll(policies);
    let submit = dice.roll(&[Submit::Early, Submit::Late]);
    let watch = dice.roll(&[Watch::Off, Watch::Stats, Watch::Trace]);
    let order = dice.roll(&["linear", "reversed", "grouped(3)", "hilbert", "longest"]);
    let threads = dice.roll(&[32, 64, 96]);
    let resident = dice.roll(&[1, 3, 16, 200]);
    let grid = dice.roll(&[
        None,
        None,
        Some(TicketGrid::Full),
        Some(TicketGrid::Resident),
        Some(TicketGrid::Relief),
    ]);
    let chaos = dice.roll(&[false, true, true]);
    // With few multiprocessors most of the grid is launched late, or taken over.
    let device = match dice.roll(&[1, 3, 8, u32::MAX]) {
        u32::MAX => device.parse().expect("a name"),
        sms => few(device, sms * cluster.count() as u32),
    };
    let what = format!(
        "seed {seed}: {device:?} {arch:?} {source} {submit} `{policy}` {order} tiles {tiles} \
         cluster {cluster} threads {threads} resident {resident} {grid:?} {watch:?} {chaos:?}"
    );

    let mut tiled = Tiled::new("count", tiles)
        .source(source)
        .policy(policy)
        .submit(submit)
        .cluster(cluster)
        .watch(watch)
        .block(threads);
    tiled = match order {
        "longest" => {
            let clusters =
                [0, 1, 2].map(|axis| tiles.to_array()[axis].div_ceil(cluster.to_array()[axis]));
            let costs: Vec<u64> = (0..Dim3::from(clusters).count())
                .map(|at| at * 7919 % 31)
                .collect();
            tiled.order(Table::longest_first(&costs))
        }
        name => tiled.any_order(name.parse().expect("an order")),
    };
    if let Some(grid) = grid {
        tiled = tiled.ticket_grid(grid);
    }
    let kernel = count(tiled, arch).unwrap_or_else(|error| panic!("{what}: {error}"));
    let settings = Settings {
        seed,
        chaos,
        ..Settings::default()
    };
    let run = run_on(&kernel, device, resident, &settings, &what);
    let wrong: Vec<(usize, u32)> = run
        .runs
        .iter()
        .copied()
        .enumerate()
        .filter(|(_, runs)| *runs != 1)
        .collect();
    assert!(wrong.is_empty(), "{what}: tiles and runs {wrong:?}");
    assert!(run.report.counter_is_zero, "{what}: the counter");
    assert_eq!(run.report.ejected, None, "{what}");
    if let Some(stats) = &run.report.stats {
        let clusters = tiles.count().div_ceil(1) as u32;
        let total = stats.total();
        assert!(total.tiles <= clusters, "{what}: {total:?}");
        if cluster.count() == 1 {
            assert_eq!(total.tiles, clusters, "{what}: {total:?}");
        }
        assert!(total.refusals <= total.requests + total.tiles + stats.clusters.len() as u32);
    }
    if let Some(trace) = &run.report.trace {
        assert_eq!(trace.miscounted_tiles(tiles), [], "{what}");
    }
}

#[test]
fn the_matrix() {
    let cases: u64 = std::env::var("HEIST_MATRIX")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(400);
    let policies = policies();
    let seeds: Vec<u64> = (0..cases).collect();
    heist_oracle::parallel(&seeds, |&seed| check(seed, &policies));
}
