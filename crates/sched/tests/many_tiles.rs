//! More tiles than sixteen bits count, from every source, with chaos: each runs exactly
//! once.
//!
//! One grid of that size for every source runs by default, in lines, planes and
//! clusters. `HEIST_TILES=all cargo test --release -p heist-sched --test many_tiles`
//! runs a hundred thousand tiles, and every source with every policy that does its worst.

#[path = "common/adversaries.rs"]
mod adversaries;
mod common;

use common::{count, run};
use heist_builder::Arch;
use heist_launch::Dim3;
use heist_run::Settings;
use heist_sched::{AnyPolicy, Submit, TicketGrid, TileSource, Tiled};

struct Case {
    source: TileSource,
    tiles: [u32; 3],
    cluster: [u32; 3],
    policy: AnyPolicy,
    submit: Submit,
    order: &'static str,
    grid: Option<TicketGrid>,
}

fn check(case: &Case) {
    let (device, arch) = match case.source {
        TileSource::Clc => ("sim:b200", Arch::SM_100A),
        _ => ("sim:h200", Arch::SM_90A),
    };
    let tiles = Dim3::from(case.tiles);
    assert!(tiles.count() > 1 << 16);
    let what = format!(
        "{} {} `{}` {} tiles {tiles} cluster {:?} {:?}",
        case.source, case.submit, case.policy, case.order, case.cluster, case.grid
    );
    let mut tiled = Tiled::new("count", tiles)
        .source(case.source)
        .policy(case.policy.clone())
        .submit(case.submit)
        .cluster(case.cluster)
        .any_order(case.order.parse().expect("an order"))
        .block(32);
    if let Some(grid) = case.grid {
        tiled = tiled.ticket_grid(grid);
    }
    let kernel = count(tiled, arch).unwrap_or_else(|error| panic!("{what}: {error}"));
    let settings = Settings {
        seed: 9,
        chaos: true,
        ..Settings::default()
    };
    let run = run(&kernel, device, 1500, &settings, &what);
    let wrong = run.runs.iter().filter(|runs| **runs != 1).count();
    assert_eq!((wrong, run.runs.len() as u64), (0, tiles.count()), "{what}");
    assert!(run.report.counter_is_zero, "{what}: the counter");
}

#[test]
fn more_tiles_than_sixteen_bits_count_run_once() {
    let parse = |text: &str| text.parse::<AnyPolicy>().expect("a policy");
    let all = std::env::var("HEIST_TILES").is_ok_and(|what| what == "all");
    let (line, plane, cube) = match all {
        true => ([100_000, 1, 1], [317, 317, 1], [47, 47, 46]),
        false => ([66_000, 1, 1], [257, 257, 1], [41, 41, 40]),
    };
    let case = |source, tiles, cluster, policy: &str, submit, order, grid| Case {
        source,
        tiles,
        cluster,
        policy: parse(policy),
        submit,
        order,
        grid,
    };
    let (early, late) = (Submit::Early, Submit::Late);
    let mut cases = vec![
        case(
            TileSource::Clc,
            line,
            [1, 1, 1],
            "greedy",
            early,
            "linear",
            None,
        ),
        case(
            TileSource::Clc,
            plane,
            [1, 2, 1],
            "max-steals(3)",
            late,
            "grouped(3)",
            None,
        ),
        case(
            TileSource::Ticket,
            line,
            [1, 1, 1],
            "greedy",
            late,
            "hilbert",
            None,
        ),
        case(
            TileSource::Ticket,
            cube,
            [2, 1, 1],
            "every(2)",
            early,
            "reversed",
            None,
        ),
        case(
            TileSource::Static,
            plane,
            [1, 1, 1],
            "greedy",
            early,
            "hilbert",
            None,
        ),
        case(
            TileSource::Direct,
            line,
            [1, 1, 1],
            "greedy",
            early,
            "reversed",
            None,
        ),
    ];
    if all {
        for source in [TileSource::Clc, TileSource::Ticket] {
            for policy in adversaries::all() {
                for grid in [TicketGrid::Full, TicketGrid::Resident, TicketGrid::Relief] {
                    cases.push(Case {
                        source,
                        tiles: line,
                        cluster: [1, 1, 1],
                        policy: policy.clone(),
                        submit: early,
                        order: "linear",
                        grid: Some(grid),
                    });
                }
            }
        }
    }
    heist_oracle::parallel(&cases, check);
}
