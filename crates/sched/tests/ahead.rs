//! What a block begins ahead is the tile that it runs next, and nothing else; and warps that have a role for good run every tile once in
//! each.

#[allow(dead_code, reason = "this file brings a kernel of its own")]
mod common;

use common::{Count, run};
use heist_builder::Arch;
use heist_run::Settings;
use heist_sched::*;

/// A tile counts 1 when nobody began it, 2 when it was begun, and 100 when
/// another one was begun in its place. Bodies that are `followed` say themselves when it begins.
fn count(tiled: Tiled<Count>, arch: Arch, followed: bool) -> TiledKernel<Count> {
    let built = tiled.build(arch, |k, args, tiles| {
        let begun = k.var(0u32);
        // A tile that there is not has no memory.
        let touch = |number| {
            args.runs.at(number).atomic_add(0u32);
            number
        };
        let body = |number, next: &dyn Fn()| {
            k.one_thread(|| {
                let own = begun.get().eq(number + 1);
                let none = begun.get().eq(0u32);
                let weight = none.select(1u32, own.select(2u32, 100u32));
                args.runs.at(number).atomic_add(weight);
                begun.set(0u32);
                next();
            });
        };
        match followed {
            true => tiles.each_followed(
                |tile, next| body(tile.number(), next),
                |tile| begun.set(touch(tile.number()) + 1),
            ),
            false => tiles.each_ahead(
                |tile| body(tile.number(), &|| ()),
                |tile| begun.set(touch(tile.number()) + 1),
            ),
        }
    });
    built.unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn the_next_tile_is_begun_and_none_behind_the_last() {
    for (source, policy, cluster, unseen) in [
        // Of each block but the first tile.
        (TileSource::Ticket, "greedy", 1, 3),
        (TileSource::Ticket, "every(2)", 1, 3),
        (TileSource::Ticket, "loaded: greedy", 1, 3),
        (TileSource::Ticket, "loaded: every(2)", 1, 3),
        (TileSource::Static, "greedy", 1, 3),
        (TileSource::Direct, "greedy", 1, 40),
        // Each block of a cluster begins its own.
        (TileSource::Ticket, "greedy", 2, 6),
        (TileSource::Ticket, "every(2)", 2, 6),
        (TileSource::Ticket, "loaded: greedy", 2, 6),
        (TileSource::Ticket, "loaded: every(2)", 2, 6),
        (TileSource::Static, "greedy", 2, 6),
    ] {
        for submit in [Submit::Early, Submit::Late] {
            let tiled = Tiled::<Count>::new("count", [8, 5, 1])
                .source(source)
                .policy(policy.parse::<AnyPolicy>().expect("a policy"))
                .submit(submit)
                .ticket_grid(TicketGrid::Resident)
                .cluster([cluster, 1, 1])
                .block(64);
            for settings in [
                Settings::default(),
                Settings {
                    chaos: true,
                    ..Settings::default()
                },
            ] {
                let followed = settings.chaos == (submit == Submit::Early);
                let what = format!("{source} {submit} {policy} cluster {cluster} {followed}");
                let kernel = count(tiled.clone(), Arch::SM_90A, followed);
                let ran = run(&kernel, "sim:h200", 3, &settings, &what);
                assert!(
                    ran.runs.iter().all(|&count| count == 1 || count == 2),
                    "{what}: {:?}",
                    ran.runs
                );
                let first = ran.runs.iter().filter(|&&count| count == 1).count();
                assert_eq!(first, unseen, "{what}: {:?}", ran.runs);
            }
        }
    }
}

/// Each block ends in the trace as where tiles are begun by the loop.
#[test]
fn blocks_that_begin_their_next_tile_themselves_are_recorded() {
    let tiled = Tiled::<Count>::new("count", [8, 5, 1])
        .source(TileSource::Static)
        .watch(Watch::Trace)
        .block(64);
    let kernel = count(tiled, Arch::SM_90A, true);
    let ran = run(&kernel, "sim:h200", 3, &Settings::default(), &"followed");
    let trace = ran.report.trace.expect("a trace");
    assert_eq!((trace.blocks.len(), trace.tiles.len()), (3, 40));
}

/// A tile counts 1 in the first role and 100 in the second.
fn count_in_roles(tiled: Tiled<Count>) -> Result<TiledKernel<Count>, heist_builder::BuildError> {
    tiled.build(Arch::SM_90A, |k, args, tiles| {
        let (first, begun) = (k.warp_uniform().eq(0), k.var(0u32));
        tiles.each_in_roles(
            first,
            [&|first| begun.set(if first { 1u32 } else { 100 }), &|_| {
                begun.set(0u32)
            }],
            |tile, _| {
                k.if_(k.lane().eq(0) & tile.inside, || {
                    args.runs.at(tile.number()).atomic_add(begun.get());
                });
            },
        )
    })
}

#[test]
fn each_role_runs_every_tile_once() {
    for (source, policy, cluster) in [
        (TileSource::Ticket, "greedy", [1, 1, 1]),
        (TileSource::Ticket, "every(2)", [1, 1, 1]),
        (TileSource::Static, "greedy", [1, 1, 1]),
        (TileSource::Direct, "greedy", [1, 1, 1]),
        (TileSource::Ticket, "greedy", [2, 1, 1]),
        (TileSource::Ticket, "greedy", [2, 2, 1]),
        (TileSource::Static, "greedy", [1, 2, 1]),
    ] {
        for (submit, chaos) in [(Submit::Early, false), (Submit::Late, true)] {
            let tiled = Tiled::<Count>::new("count", [8, 5, 1])
                .source(source)
                .policy(policy.parse::<AnyPolicy>().expect("a policy"))
                .submit(submit)
                .ticket_grid(TicketGrid::Resident)
                .cluster(cluster)
                .block(64);
            let what = format!("{source} {submit} {policy} cluster {cluster:?}");
            let kernel =
                count_in_roles(tiled.apart()).unwrap_or_else(|error| panic!("{what}: {error}"));
            let settings = Settings {
                chaos,
                ..Settings::default()
            };
            let ran = run(&kernel, "sim:h200", 3, &settings, &what);
            assert!(
                ran.runs.iter().all(|&count| count == 101),
                "{what}: {:?}",
                ran.runs
            );
        }
    }
}

/// Only the first role has the interpreter; the others run what is sent, also where blocks are relieved. A policy that always asks
/// counts its last draw behind the word that it sends.
#[test]
fn each_role_runs_every_tile_once_under_a_loaded_policy_and_the_counter_is_cleared() {
    for policy in ["greedy", "every(2)", "max-steals(3)", "never", "at-most(2)"] {
        // The last one has a single block: its first failed draw is the last ending.
        for (tiles, chaos) in [([8, 5, 1], false), ([90, 3, 1], true), ([1, 1, 1], false)] {
            let loaded = format!("loaded: {policy}").parse::<AnyPolicy>();
            let tiled = Tiled::<Count>::new("count", tiles)
                .source(TileSource::Ticket)
                .policy(loaded.expect("a policy"))
                .submit(Submit::Late)
                .block(64);
            let kernel = count_in_roles(tiled.apart());
            let kernel = kernel.unwrap_or_else(|error| panic!("{policy}: {error}"));
            let settings = Settings {
                chaos,
                ..Settings::default()
            };
            let ran = run(&kernel, "sim:h200", 3, &settings, &policy);
            let once = ran.runs.iter().all(|&count| count == 101);
            assert!(once, "{policy}: {:?}", ran.runs);
            assert!(ran.report.counter_is_zero, "{policy}: the counter");
        }
    }
    let early = Tiled::<Count>::new("count", [8, 5, 1])
        .source(TileSource::Ticket)
        .policy("loaded: greedy".parse::<AnyPolicy>().expect("a policy"))
        .submit(Submit::Early)
        .block(64);
    let error = count_in_roles(early.apart()).expect_err("it is asked before the tile");
    assert!(error.to_string().contains("late"), "{error}");
}

/// Where one thread of a warp decides, or begins a tile, the warp meets before it goes on: the assembler does not find that place by
/// itself, and results do not show it. So this reads the text.
#[test]
fn a_warp_meets_behind_the_thread_that_decides() {
    let tiled = |source, policy: &str, submit| {
        Tiled::<Count>::new("count", [8, 5, 1])
            .source(source)
            .policy(policy.parse::<AnyPolicy>().expect("a policy"))
            .submit(submit)
            .ticket_grid(TicketGrid::Resident)
            .block(64)
    };
    let met = |text: &str, what: &str| assert!(text.contains("bar.warp.sync"), "{what}: {text}");
    for (source, policy) in [
        (TileSource::Static, "greedy"),
        (TileSource::Ticket, "greedy"),
        (TileSource::Ticket, "loaded: greedy"),
    ] {
        let text = count(tiled(source, policy, Submit::Late), Arch::SM_90A, false).ptx();
        let (_, behind) = text.split_once("end of the tile").expect("a tile");
        met(behind.split("bar.sync").next().unwrap_or(""), policy);
    }
    for submit in [Submit::Early, Submit::Late] {
        let tiled = tiled(TileSource::Ticket, "every(2)", submit).apart();
        let text = count_in_roles(tiled).expect("a kernel").ptx();
        let (before, behind) = text.split_once("the tile").expect("a tile");
        if submit == Submit::Early {
            met(before.rsplit("atom.").next().unwrap_or(""), "before");
        }
        // What was decided is sent, and then awaited.
        let mut sent = behind.split("mbarrier.arrive").skip(1);
        let awaited = sent.next().and_then(|text| text.split("try_wait").next());
        met(awaited.unwrap_or(""), "behind");
    }
}

#[test]
fn roles_have_no_loop_each_where_threads_meet() {
    let tiled = Tiled::<Count>::new("count", [8, 5, 1])
        .source(TileSource::Ticket)
        .block(64);
    let error = count_in_roles(tiled).expect_err("threads meet from tile to tile");
    assert!(error.to_string().contains("apart"), "{error}");
}

/// Every block of a cluster knows its next tile where the hardware answers all of them, and where the answer is handed on.
#[test]
fn a_cluster_that_is_answered_begins_its_next_tile() {
    for (arch, cluster, policy) in [
        (Arch::SM_100A, [2, 1, 1], "greedy"),
        (Arch::SM_100A, [1, 2, 1], "every(2)"),
        (Arch::SM_100, [2, 1, 1], "greedy"),
    ] {
        // Two blocks fit on a multiprocessor. The last tiles of a cluster lie outside.
        let tiled = Tiled::<Count>::new("count", [33, 21, 1])
            .source(TileSource::Clc)
            .policy(policy.parse::<AnyPolicy>().expect("a policy"))
            .cluster(cluster)
            .block(1024);
        let what = format!("{arch} {policy} {cluster:?}");
        let kernel = count(tiled, arch, false);
        let ran = run(&kernel, "sim:b200", 1, &Settings::default(), &what);
        let of = |weight: u32| ran.runs.iter().filter(|&&count| count == weight).count();
        assert_eq!(of(1) + of(2), 33 * 21, "{what}: {:?}", ran.runs);
        assert!(of(2) > 100, "{what}: {} begun", of(2));
    }
}
