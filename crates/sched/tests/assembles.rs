//! Every combination assembles, on every architecture that has what it needs.

use heist_builder::{Arch, Global, kernel_params};
use heist_oracle::{Ptxas, parallel};
use heist_sched::*;

kernel_params! { struct Count { runs: Global<u32>, n: u32 } }

fn build(tiled: Tiled<Count>, arch: Arch) -> Result<TiledKernel<Count>, heist_builder::BuildError> {
    tiled.block(64).build(arch, |k, args, tiles| {
        let weight = args.n * 3;
        tiles.each(|tile| {
            k.one_thread(|| {
                args.runs.at(tile.number()).atomic_add(1u32);
            });
            k.if_(weight.eq(7), || args.runs.at(0).store(tile.z));
        })
    })
}

#[test]
fn sources_policies_clusters_and_orders_assemble() {
    let ptxas = Ptxas::find_or_say_skipped();
    let archs = [
        Arch::SM_80,
        Arch::SM_89,
        Arch::SM_90,
        Arch::SM_90A,
        Arch::SM_100,
        Arch::SM_120,
    ];
    let policies: Vec<AnyPolicy> = Catalogue::standard()
        .entries()
        .iter()
        .map(|entry| entry.example)
        .chain(["max-steals(8) & first-half | !every(3)"])
        .map(|text| text.parse().expect("a good example"))
        .collect();
    let mut cases = Vec::new();
    for arch in archs {
        for source in TileSource::ALL {
            for (turn, policy) in policies.iter().enumerate() {
                for cluster in [[1, 1, 1], [2, 1, 1], [1, 2, 1], [2, 2, 2], [8, 1, 1]] {
                    let cluster = heist_launch::Dim3::from(cluster);
                    if source.check(arch, cluster).is_err() {
                        continue;
                    }
                    // All of it takes minutes; each turn sees another part.
                    if (cases.len() + turn) % 5 == 0 || policy.constant() == Some(true) {
                        cases.push((arch, source, policy.clone(), cluster, turn));
                    } else {
                        cases.push((arch, source, policy.clone(), cluster, usize::MAX));
                    }
                }
            }
        }
    }
    cases.retain(|case| case.4 != usize::MAX);
    assert!(cases.len() > 50);
    parallel(&cases, |(arch, source, policy, cluster, turn)| {
        let submit = [Submit::Early, Submit::Late][turn % 2];
        let watch = [Watch::Off, Watch::Stats, Watch::Trace][turn % 3];
        let tiles = [[7, 1, 1], [13, 5, 1], [5, 3, 3]][turn % 3];
        let order: AnyOrder = ["linear", "reversed", "grouped(2)", "hilbert"][turn % 4]
            .parse()
            .expect("an order");
        let kernel = build(
            Tiled::new("count", tiles)
                .source(*source)
                .policy(policy.clone())
                .submit(submit)
                .watch(watch)
                .any_order(order)
                .cluster(*cluster),
            *arch,
        )
        .unwrap_or_else(|error| panic!("{arch} {source} {policy} {cluster}: {error}"));
        let text = kernel.ptx();
        if let Some(ptxas) = &ptxas {
            let cubin = ptxas
                .assemble(&text, &arch.to_string())
                .unwrap_or_else(|error| {
                    panic!("{arch} {source} {policy} {cluster}: {error}\n{text}")
                });
            assert_eq!(cubin.complaints(), Vec::<&str>::new());
        }
        kernel.plan(100).expect("a launch");
    });
}
