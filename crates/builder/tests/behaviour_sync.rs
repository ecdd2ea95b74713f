//! Barriers, clusters and requests, run on the simulated GPU with all checks
//! on and with several schedules.

#[path = "common/sim.rs"]
mod sim;

use heist_builder::*;
use heist_launch::{Arg, Outcome};
use heist_run::Settings;
use sim::output;

kernel_params! { struct Words { out: Global<u32>, n: u32 } }

/// Runs a kernel under a few seeds with chaos on, and checks each outcome.
fn explore<A: KernelParams>(
    kernel: &BuiltKernel<A>,
    device: &str,
    grid: [u32; 3],
    args: impl Fn() -> A::With<Arg>,
    check: impl Fn(Outcome),
) {
    for seed in 0..4 {
        let settings = Settings {
            seed,
            chaos: true,
            ..Settings::default()
        };
        let run = sim::Run {
            kernel,
            device,
            grid,
            args: args(),
            buffers: Vec::new(),
            settings,
        };
        if let Some(outcome) = run.run() {
            check(outcome);
        }
    }
}

/// One warp produces, the others consume, through a ring of barriers.
#[test]
fn a_ring_of_barriers_hands_over_every_value() {
    for (device, arch) in [
        ("sim:a100", Arch::SM_80),
        ("sim:h200", Arch::SM_90),
        ("sim:b200", Arch::SM_100),
    ] {
        let kernel = KernelSpec::<Words>::new("ring")
            .block(96)
            .build(arch, |k, args| {
                let [full, empty] = k.mbarriers([
                    BarrierSpec {
                        name: "full",
                        count: 3,
                        arrivals: 32,
                    },
                    BarrierSpec {
                        name: "empty",
                        count: 3,
                        arrivals: 64,
                    },
                ]);
                let ring = k.shared::<u32>("ring", 3 * 32);
                k.if_else(
                    k.warp().eq(0),
                    || {
                        let cursor = k.ring_cursor(3, 1);
                        k.for_range(0, args.n, |i| {
                            let stage = cursor.stage();
                            empty.at(stage).wait(cursor.parity());
                            ring.at(stage * 32 + k.lane()).store(i * 100 + k.lane());
                            full.at(stage).arrive();
                            cursor.advance();
                        });
                    },
                    || {
                        let cursor = k.ring_cursor(3, 0);
                        let sum = k.var(0u32);
                        k.for_range(0, args.n, |_| {
                            let stage = cursor.stage();
                            full.at(stage).wait(cursor.parity());
                            let mirrored = 31 - k.lane();
                            sum.set(sum + ring.at(stage * 32 + mirrored).load());
                            empty.at(stage).arrive();
                            cursor.advance();
                        });
                        args.out.at(k.thread().x - 32).store(sum);
                    },
                );
            })
            .expect("builds");
        let n = 10u32;
        let own = || Words {
            out: Arg::output::<u32>(64),
            n,
        };
        explore(&kernel, device, [1, 1, 1], own, |outcome| {
            let expected: Vec<u32> = (0..64u32)
                .map(|t| (0..n).map(|i| i * 100 + 31 - t % 32).sum())
                .collect();
            assert_eq!(output::<u32>(&outcome, 0), expected);
        });
    }
}

/// Every block of a cluster writes into the next one's memory and arrives there.
#[test]
fn blocks_of_a_cluster_write_to_each_other() {
    for shape in [[2, 1, 1], [1, 2, 1], [2, 2, 1], [4, 1, 1]] {
        let blocks: u32 = shape.iter().product();
        let kernel = KernelSpec::<Words>::new("write")
            .block(32)
            .cluster(shape)
            .build(Arch::SM_90, |k, args| {
                let inbox = k.shared::<u32>("inbox", 2);
                let arrived = k.mbarrier("arrived", 1);
                let rank = k.cluster_rank();
                let next = (rank + 1) % blocks;
                k.one_thread(|| {
                    inbox.at(1).on(next).store(rank + 200);
                    arrived.on(next).arrive();
                });
                arrived.wait(0);
                k.one_thread(|| {
                    let offset = k.cluster_block();
                    let place = offset.y.mul_add(shape[0], offset.x);
                    args.out.at(rank * 2).store(inbox.at(1).load());
                    args.out.at(rank * 2 + 1).store(place);
                });
                k.cluster_sync();
            })
            .expect("builds");
        let own = || Words {
            out: Arg::output::<u32>(blocks as usize * 2),
            n: 0,
        };
        explore(&kernel, "sim:h200", shape, own, |outcome| {
            let expected: Vec<u32> = (0..blocks)
                .flat_map(|rank| [(rank + blocks - 1) % blocks + 200, rank])
                .collect();
            assert_eq!(output::<u32>(&outcome, 0), expected, "{shape:?}");
        });
    }
}

/// Every block of a cluster sends to the next one by stores that a barrier
/// there counts.
#[test]
fn blocks_of_a_cluster_send_to_each_other() {
    for shape in [[2, 1, 1], [1, 2, 1], [2, 2, 1], [4, 1, 1]] {
        let blocks: u32 = shape.iter().product();
        let kernel = KernelSpec::<Words>::new("send")
            .block(32)
            .cluster(shape)
            .build(Arch::SM_90, |k, args| {
                let inbox = k.shared::<u32>("inbox", 8);
                let arrived = k.mbarrier("arrived", 1);
                let rank = k.cluster_rank();
                let next = (rank + 1) % blocks;
                k.one_thread(|| {
                    let there = arrived.on(next);
                    there.arrive_expecting(20);
                    inbox.at(0).on(next).store_async(rank + 100, &there);
                    let four = [1, 2, 3, 4].map(|i| rank * 10 + i);
                    inbox.at(4).on(next).store_async_vec(four, &there);
                });
                arrived.wait(0);
                k.one_thread(|| {
                    let at = args.out.at(rank * 5);
                    for (to, from) in [0, 4, 5, 6, 7].into_iter().enumerate() {
                        at.at(to).store(inbox.at(from).load());
                    }
                });
                k.cluster_sync();
            })
            .expect("builds");
        let own = || Words {
            out: Arg::output::<u32>(blocks as usize * 5),
            n: 0,
        };
        explore(&kernel, "sim:h200", shape, own, |outcome| {
            let expected: Vec<u32> = (0..blocks)
                .flat_map(|rank| {
                    let from = (rank + blocks - 1) % blocks;
                    let ten = from * 10;
                    [from + 100, ten + 1, ten + 2, ten + 3, ten + 4]
                })
                .collect();
            assert_eq!(output::<u32>(&outcome, 0), expected, "{shape:?}");
        });
    }
}

/// Named barriers let two halves of a block meet apart from each other.
#[test]
fn named_barriers_meet_apart() {
    let kernel = KernelSpec::<Words>::new("halves")
        .block(128)
        .build(Arch::SM_80, |k, args| {
            let [low, high] = [k.named_barrier(64), k.named_barrier(64)];
            let shared = k.shared::<u32>("words", 128);
            let t = k.thread().x;
            shared.at(t).store(t * 3);
            k.if_else(t.lt(64), || low.sync(), || high.sync());
            let partner = t ^ 63;
            args.out.at(t).store(shared.at(partner).load());
        })
        .expect("builds");
    let own = || Words {
        out: Arg::output::<u32>(128),
        n: 0,
    };
    explore(&kernel, "sim:a100", [1, 1, 1], own, |outcome| {
        let expected: Vec<u32> = (0..128u32).map(|t| (t ^ 63) * 3).collect();
        assert_eq!(output::<u32>(&outcome, 0), expected);
    });
}

/// Requests one after the other, each looked at before the next: every tile is
/// run once, and a stop is a stop.
#[test]
fn late_requests_run_every_tile_once() {
    let tiles = 6000u32;
    let kernel = KernelSpec::<Words>::new("late")
        .block(32)
        .build(Arch::SM_100, |k, args| {
            k.one_thread(|| {
                args.out.at(k.block().x).atomic_add(1);
                let stolen = k.var(0u32);
                k.clc().steal_loop(|flow, idle| {
                    flow.break_if(&idle, stolen.get().ge(args.n));
                    let granted = idle.submit().wait().granted_or_break(flow);
                    args.out.at(granted.first_block().x).atomic_add(1);
                    stolen.set(stolen + 1);
                    granted.release()
                });
            });
        })
        .expect("builds");
    let own = || Words {
        out: Arg::in_out(&vec![0u32; tiles as usize]),
        n: 3,
    };
    explore(&kernel, "sim:b200", [tiles, 1, 1], own, |outcome| {
        assert_eq!(output::<u32>(&outcome, 0), vec![1; tiles as usize]);
    });
}
