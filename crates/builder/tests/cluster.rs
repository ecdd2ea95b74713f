//! Barriers in shared memory, clusters, and requests for more work, judged by
//! ptxas.

mod common;

use common::{ALL, HOPPER, assembles};
use heist_builder::*;

kernel_params! { struct Out { words: Global<u32>, n: u32 } }

const BLACKWELL: &[Arch] = &[Arch::SM_100, Arch::SM_100A, Arch::SM_100F, Arch::SM_120];

#[test]
fn barriers_on_every_architecture() {
    assembles(ALL, |arch| {
        KernelSpec::<Out>::new("barriers").build(arch, |k, args| {
            let [full, empty] = k.mbarriers([
                BarrierSpec {
                    name: "full",
                    count: 4,
                    arrivals: 1,
                },
                BarrierSpec {
                    name: "empty",
                    count: 4,
                    arrivals: k.threads(),
                },
            ]);
            let value = k.shared::<u32>("value", 4);
            let producer = k.ring_cursor(4, 1);
            let consumer = k.ring_cursor(4, 0);
            k.for_range(0, args.n, |i| {
                k.one_thread(|| {
                    empty.at(producer.stage()).wait(producer.parity());
                    value.at(producer.stage()).store(i);
                    full.at(producer.stage()).arrive();
                    producer.advance();
                });
                full.at(consumer.stage()).wait(consumer.parity());
                let v = value.at(consumer.stage()).load();
                args.words.at(k.thread().x).update(|old| old + v);
                empty.at(consumer.stage()).arrive();
                consumer.advance();
            });
            let waiter = full.first().waiter();
            k.one_thread(|| full.first().arrive());
            waiter.wait();
        })
    });
}

/// One initialisation and one synchronisation, with rings of stages among the barriers.
#[test]
fn barriers_that_are_made_together_synchronise_once() {
    let syncs = |together: bool| {
        let kernel = KernelSpec::<Out>::new("together").build(Arch::SM_90, |k, _| {
            let make = || {
                let ring = k.bulk_pipeline::<3, _>(
                    TileSpec::<f16>::new("t", 8, 64, TileLayout::Swizzled),
                    1,
                );
                (ring, k.mbarrier("one", 1))
            };
            let (_, one) = match together {
                true => k.barriers_together(make),
                false => make(),
            };
            one.arrive();
        });
        let text = heist_ptx::print(&kernel.expect("builds").module);
        ["bar.sync", "mbarrier.init", "fence.mbarrier_init"].map(|part| text.matches(part).count())
    };
    assert_eq!(syncs(false), [2, 7, 2]);
    assert_eq!(syncs(true), [1, 7, 1]);
}

#[test]
fn clusters_and_their_memory() {
    for shape in [[2, 1, 1], [1, 2, 1], [2, 2, 1], [4, 1, 1]] {
        assembles(HOPPER, |arch| {
            KernelSpec::<Out>::new("clusters")
                .cluster(shape)
                .build(arch, |k, args| {
                    let inbox = k.shared::<u32>("inbox", 64);
                    let [arrived] = k.mbarriers([BarrierSpec {
                        name: "arrived",
                        count: 1,
                        arrivals: 1,
                    }]);
                    let next = (k.cluster_rank() + 1) % k.cluster_size();
                    k.one_thread(|| {
                        arrived.first().on(next).arrive_expecting(20);
                        let there = inbox.at(4).on(next);
                        let word = k.cluster_position().x;
                        there.store_async(word, &arrived.first().on(next));
                        inbox
                            .at(8)
                            .on(next)
                            .store_async_vec([word; 4], &arrived.first().on(next));
                    });
                    arrived.first().wait(0);
                    let offset = k.cluster_block();
                    let v = inbox.at(4).load() + inbox.at(8).on(next).load();
                    args.words
                        .at(k.thread().x)
                        .store(v + offset.x + offset.y + offset.z);
                    let arrival = k.cluster_arrive();
                    args.words.at(k.thread().x + 128).store(1);
                    arrival.wait();
                    inbox
                        .at(1)
                        .on(0)
                        .atomic_add_with(Order::Relaxed, Scope::Cluster, 1);
                    k.cluster_sync();
                })
        });
    }
}

#[test]
fn requests_for_more_work() {
    assembles(BLACKWELL, |arch| {
        KernelSpec::<Out>::new("late").build(arch, |k, args| {
            k.one_thread(|| {
                k.clc().steal_loop(|flow, idle| {
                    let granted = idle.submit().wait().granted_or_break(flow);
                    let tile = granted.first_block();
                    args.words.at(tile.x).store(tile.y + tile.z);
                    let idle = granted.release();
                    flow.break_if(&idle, tile.x.eq(7));
                    flow.continue_if(&idle, tile.x.eq(8));
                    idle
                });
            });
        })
    });
    assembles(BLACKWELL, |arch| {
        KernelSpec::<Out>::new("early").build(arch, |k, args| {
            k.one_thread(|| {
                let tile = k.var(k.block().x);
                k.clc().submit().steal_loop(|flow, in_flight| {
                    args.words.at(tile).store(1);
                    let granted = in_flight.wait().granted_or_break(flow);
                    tile.set(granted.first_block().x);
                    granted.release().submit()
                });
            });
        })
    });
    assembles(BLACKWELL, |arch| {
        KernelSpec::<Out>::new("once").build(arch, |k, args| {
            k.one_thread(|| {
                k.clc().submit().wait().decide(
                    |granted| args.words.store(granted.first_block().x),
                    |refused| args.words.store(refused.kernel().c(9)),
                );
            });
        })
    });
}

#[test]
fn what_a_target_lacks_is_told_with_its_line() {
    let error = KernelSpec::<Out>::new("k")
        .build(Arch::SM_90A, |k, _| {
            k.one_thread(|| {
                k.clc().submit().wait().decide(|_| (), |_| ());
            });
        })
        .expect_err("Hopper has none");
    assert!(
        error.to_string().starts_with(
            "sm_90a lacks what this kernel uses: cluster launch control needs sm_100 or later \
             (crates/builder/tests/cluster.rs:"
        ),
        "{error}"
    );
    let error = KernelSpec::<Out>::new("k")
        .cluster([2, 1, 1])
        .build(Arch::SM_80, |_, _| ())
        .expect_err("Ampere has none");
    assert_eq!(
        error.problem,
        Problem::Unsupported {
            feature: Feature::Clusters,
            arch: Arch::SM_80
        }
    );
}

#[test]
fn a_second_submitter_is_refused() {
    let error = KernelSpec::<Out>::new("k")
        .build(Arch::SM_100, |k, _| {
            let (first, second) = (k.clc(), k.clc());
            first.submit().wait().decide(|_| (), |_| ());
            second.submit().wait().decide(|_| (), |_| ());
        })
        .expect_err("one submitter asks for all");
    assert!(error.to_string().contains("a second request"), "{error}");
}
