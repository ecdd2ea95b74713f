//! Answers of launch control that the hardware sends to every block of a cluster: each tile runs
//! exactly once, the target that has no multicast keeps the same promise, and the machine code has
//! the instruction and no fence of the whole GPU.

#[allow(dead_code, reason = "not all of it is used here")]
mod common;

use common::{count, few, run_on};
use heist_builder::Arch;
use heist_launch::Dim3;
use heist_oracle::{Ptxas, parallel};
use heist_run::Settings;
use heist_sched::*;

const CLUSTERS: [[u32; 3]; 4] = [[2, 1, 1], [1, 2, 1], [2, 2, 1], [3, 1, 2]];
const POLICIES: [&str; 6] = [
    "greedy",
    "max-steals(2)",
    "every(2)",
    "first-half",
    "probability(0.5)",
    "time-budget(3us)",
];

fn tiled(cluster: [u32; 3], policy: &str, submit: Submit) -> Tiled<common::Count> {
    Tiled::new("count", [7, 5, 2])
        .source(TileSource::Clc)
        .policy(policy.parse::<AnyPolicy>().expect("a policy"))
        .submit(submit)
        .cluster(cluster)
        .block(512)
}

#[test]
fn every_tile_runs_once_in_every_cluster() {
    let mut seed = 0;
    for cluster in CLUSTERS {
        for policy in POLICIES {
            for (submit, arch) in [
                (Submit::Early, Arch::SM_100A),
                (Submit::Late, Arch::SM_100A),
                (Submit::Early, Arch::SM_100),
            ] {
                seed += 1;
                let what = format!("{arch} {cluster:?} {policy} {submit} seed {seed}");
                let kernel = count(tiled(cluster, policy, submit), arch)
                    .unwrap_or_else(|error| panic!("{what}: {error}"));
                let multicast = kernel.ptx().contains(".multicast::cluster::all");
                assert_eq!(multicast, arch == Arch::SM_100A, "{what}");
                // Chaos in turns: every cluster and every policy meets it.
                let settings = Settings {
                    seed,
                    chaos: seed % 2 == 0,
                    ..Settings::default()
                };
                // Eight blocks fit.
                let ran = run_on(&kernel, few("sim:b200", 2), 3, &settings, &what);
                assert!(
                    ran.runs.iter().all(|&runs| runs == 1),
                    "{what}: {:?}",
                    ran.runs
                );
            }
        }
    }
}

/// With classes an answer is a right to some tile, and the scheduler says which: it hands it on.
#[test]
fn tiles_with_classes_are_handed_on() {
    let classes = Classes::new(vec![Class::Normal; 35]);
    let tiled = tiled([2, 1, 1], "greedy", Submit::Early).classes(classes);
    let kernel = count(tiled, Arch::SM_100A).expect("a kernel");
    assert!(!kernel.ptx().contains(".multicast::cluster::all"));
}

#[test]
fn the_machine_code_asks_for_all_blocks_and_no_tile_has_a_fence_of_the_whole_gpu() {
    let Some(ptxas) = Ptxas::find_or_say_skipped() else {
        return;
    };
    let mut cases = Vec::new();
    for arch in [Arch::SM_100A, Arch::SM_103A, Arch::SM_100, Arch::SM_90A] {
        for cluster in [[2, 1, 1], [1, 2, 1], [2, 2, 1]] {
            for policy in ["greedy", "max-steals(8)"] {
                cases.push((arch, cluster, policy));
            }
        }
    }
    parallel(&cases, |&(arch, cluster, policy)| {
        let mut tiled = tiled(cluster, policy, Submit::Early);
        if TileSource::Clc.check(arch, Dim3::from(cluster)).is_err() {
            tiled = tiled.source(TileSource::Ticket);
        }
        let kernel = tiled.build(arch, |k, args, tiles| {
            tiles.each(|tile| k.one_thread(|| args.runs.at(tile.number()).store(1u32)))
        });
        let ptx = kernel.expect("a kernel").ptx();
        let cubin = ptxas
            .assemble(&ptx, arch.name())
            .unwrap_or_else(|refusal| panic!("{refusal}\n{ptx}"));
        let Some(listing) = cubin.disassembly() else {
            println!("skipped: nvdisasm not found");
            return;
        };
        let with = |word: &str| -> Vec<&str> {
            let lines = listing.lines().filter(|line| line.contains(word));
            lines.map(str::trim).collect()
        };
        let what = format!("{arch} {cluster:?} {policy}");
        let multicast = arch.supports(heist_builder::Feature::ClusterLaunchControlMulticast);
        let asked = with("UGETNEXTWORKID");
        let for_all = asked.iter().filter(|line| line.contains(".BROADCAST"));
        assert_eq!(
            for_all.count(),
            asked.len() * usize::from(multicast),
            "{what}: {asked:?}"
        );
        assert!(!asked.is_empty() || arch == Arch::SM_90A, "{what}");
        // The cluster meets before the first tile, and leaves together; that is no tile's cost.
        let meetings = ptx.matches("barrier.cluster.arrive.release").count();
        let fences = with("MEMBAR.ALL.GPU");
        assert!(fences.len() <= meetings, "{what}: {fences:?}\n{ptx}");
    });
}
