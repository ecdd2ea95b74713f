//! Several requests of launch control in flight: every tile runs exactly once whatever is refused
//! in between, policies keep what they promise, the machine code has what it should, and short
//! tiles are faster.

#[allow(dead_code, reason = "not all of it is used here")]
mod common;

use common::{count, few, run_on};
use heist_builder::{Arch, Feature};
use heist_launch::Dim3;
use heist_oracle::{Ptxas, parallel};
use heist_run::Settings;
use heist_sched::*;

const DEPTHS: [u32; 4] = [1, 2, 4, MOST_REQUESTS];
const CLUSTERS: [[u32; 3]; 4] = [[1, 1, 1], [2, 1, 1], [1, 2, 1], [2, 2, 1]];
/// Policies, and whether they can be asked before the last answer is there.
const POLICIES: [(&str, bool); 8] = [
    ("greedy", true),
    ("every(2)", true),
    ("first-half", true),
    ("probability(0.5)", true),
    ("time-budget(3us)", true),
    ("at-most(2) & token-bucket(1000, 3)", true),
    ("max-steals(2)", false),
    ("until-asked", false),
];

fn tiled(cluster: [u32; 3], policy: &str, depth: u32) -> Tiled<common::Count> {
    Tiled::new("count", [7, 5, 2])
        .source(TileSource::Clc)
        .policy(policy.parse::<AnyPolicy>().expect("a policy"))
        .in_flight(depth)
        .cluster(cluster)
        .block(512)
}

#[test]
fn every_tile_runs_once_with_any_number_in_flight() {
    let mut cases = Vec::new();
    for (d, depth) in DEPTHS.into_iter().enumerate() {
        for (c, cluster) in CLUSTERS.into_iter().enumerate() {
            for (p, (policy, _)) in POLICIES.into_iter().enumerate() {
                // Both architectures with every two of depth, cluster and policy, and a quarter of
                // the launches in order.
                let arch = [Arch::SM_100A, Arch::SM_100][(d + c + p) % 2];
                let chaos = !(d + 2 * c + p).is_multiple_of(4);
                cases.push((depth, cluster, policy, arch, chaos, cases.len() as u64));
            }
        }
    }
    parallel(&cases, |&(depth, cluster, policy, arch, chaos, seed)| {
        let what = format!("{arch} {cluster:?} {policy} in-flight({depth}) seed {seed}");
        // Every third one is traced, which takes another way through the loop.
        let watch = [Watch::Off, Watch::Trace, Watch::Off][seed as usize % 3];
        let kernel = count(tiled(cluster, policy, depth).watch(watch), arch)
            .unwrap_or_else(|error| panic!("{what}: {error}"));
        let settings = Settings {
            seed,
            chaos,
            ..Settings::default()
        };
        // Eight blocks fit.
        let ran = run_on(&kernel, few("sim:b200", 2), 3, &settings, &what);
        let runs = &ran.runs;
        assert!(runs.iter().all(|&runs| runs == 1), "{what}: {runs:?}");
    });
}

/// A refusal is not the end of the answers: a request made after the refused one may be granted.
#[test]
fn what_is_granted_behind_a_refusal_is_run() {
    let mut behind = 0;
    for cluster in CLUSTERS {
        for seed in 0..12 {
            let what = format!("{cluster:?} seed {seed}");
            let tiled = tiled(cluster, "greedy", 4).watch(Watch::Trace);
            let kernel = count(tiled, Arch::SM_100A).expect("a kernel");
            let settings = Settings {
                seed,
                chaos: true,
                ..Settings::default()
            };
            let ran = run_on(&kernel, few("sim:b200", 2), 3, &settings, &what);
            assert!(
                ran.runs.iter().all(|&runs| runs == 1),
                "{what}: {:?}",
                ran.runs
            );
            let trace = ran.report.trace.expect("a trace");
            for block in &trace.blocks {
                let mut refused = false;
                let of = trace
                    .decisions
                    .iter()
                    .filter(|one| one.block == block.block);
                for decision in of {
                    use heist_launch::DecisionKind::*;
                    match decision.kind {
                        Refused => refused = true,
                        Granted if refused => behind += 1,
                        Requested => assert!(!refused, "{what}: a request behind a refusal"),
                        _ => {}
                    }
                }
            }
        }
    }
    // Else the test has not seen what it is for.
    assert!(behind > 20, "{behind} grants behind a refusal");
}

#[test]
fn a_policy_that_counts_grants_has_one_in_flight() {
    for (policy, ahead) in POLICIES {
        let kernel = count(tiled([1, 1, 1], policy, 4), Arch::SM_100).expect("a kernel");
        assert_eq!(kernel.in_flight(), if ahead { 4 } else { 1 }, "{policy}");
    }
    for (policy, ahead) in [
        ("max-steals(2) | every(2)", false),
        ("!max-steals(2)", false),
        ("!every(2)", true),
        ("fair-share", false),
        ("loaded: greedy", false),
        ("never", false),
    ] {
        let kernel = count(tiled([1, 1, 1], policy, 4), Arch::SM_100).expect("a kernel");
        assert_eq!(kernel.in_flight(), if ahead { 4 } else { 1 }, "{policy}");
    }
    // So that none steals more than it may.
    let tiled = tiled([1, 1, 1], "max-steals(2)", 4).watch(Watch::Stats);
    let kernel = count(tiled, Arch::SM_100).expect("a kernel");
    let what = "max-steals(2)";
    let ran = run_on(&kernel, few("sim:b200", 2), 3, &Settings::default(), &what);
    let stats = ran.report.stats.expect("figures");
    assert!(stats.clusters.iter().all(|cluster| cluster.stolen <= 2));
}

#[test]
fn what_cannot_be_is_refused_with_its_reason() {
    let why = |tiled: Tiled<common::Count>| {
        let refused = count(tiled, Arch::SM_100).expect_err("it can't be");
        refused.to_string()
    };
    let plain = || tiled([1, 1, 1], "greedy", 4);
    for (tiled, reason) in [
        (plain().submit(Submit::Late), "need early submission"),
        (plain().source(TileSource::Ticket), "need the source clc"),
        (plain().in_flight(0), "there can be 1 to 16"),
        (plain().in_flight(17), "there can be 1 to 16"),
    ] {
        let why = why(tiled);
        assert!(why.contains(reason), "{why}");
    }
    count(
        plain().source(TileSource::Ticket).in_flight(1),
        Arch::SM_100,
    )
    .expect("one is as usual");
}

#[test]
fn it_assembles_and_the_machine_code_asks_for_all_blocks() {
    let Some(ptxas) = Ptxas::find_or_say_skipped() else {
        return;
    };
    let mut cases = Vec::new();
    for arch in [Arch::SM_100, Arch::SM_100A, Arch::SM_103A, Arch::SM_120] {
        for cluster in CLUSTERS {
            for (policy, depth) in [("greedy", 2), ("greedy", 4), ("every(2)", 4)] {
                cases.push((arch, cluster, policy, depth));
            }
        }
    }
    parallel(&cases, |&(arch, cluster, policy, depth)| {
        let what = format!("{arch} {cluster:?} {policy} in-flight({depth})");
        let kernel = count(tiled(cluster, policy, depth), arch).expect("a kernel");
        let ptx = kernel.ptx();
        let cubin = ptxas
            .assemble(&ptx, arch.name())
            .unwrap_or_else(|refusal| panic!("{what}: {refusal}\n{ptx}"));
        assert_eq!(cubin.complaints(), Vec::<&str>::new(), "{what}");
        let Some(listing) = cubin.disassembly() else {
            println!("skipped: nvdisasm not found");
            return;
        };
        let for_all = arch.supports(Feature::ClusterLaunchControlMulticast)
            && Dim3::from(cluster).count() > 1;
        let mut asked = listing
            .lines()
            .filter(|line| line.contains("UGETNEXTWORKID"));
        let first = asked
            .next()
            .unwrap_or_else(|| panic!("{what}: it never asks"));
        for line in std::iter::once(first).chain(asked) {
            assert_eq!(line.contains(".BROADCAST"), for_all, "{what}: {line}");
        }
    });
}

/// The time of a launch on the simulated B200, in nanoseconds: `tiles` tiles that each sleep.
fn time(depth: u32, tiles: u32, sleep: u32) -> f64 {
    heist_builder::kernel_params! { struct Sleep { runs: heist_builder::Global<u32>, sleep: u32 } }
    let kernel = Tiled::<Sleep>::new("sleep", tiles)
        .source(TileSource::Clc)
        .in_flight(depth)
        .block(32)
        .build(Arch::SM_100, |k, args, tiles| {
            // One block a multiprocessor.
            let room = k.shared::<u32>("room", 30_000);
            k.one_thread(|| room.at(0).store(0u32));
            tiles.each(|tile| {
                k.one_thread(|| {
                    args.runs.at(tile.number()).atomic_add(1u32);
                });
                k.nanosleep(args.sleep);
            })
        })
        .expect("a kernel");
    let device = heist_run::Device::open(few("sim:b200", 8)).expect("it is simulated");
    let plan = kernel.plan(8).expect("a launch");
    let own = Sleep {
        runs: heist_launch::Arg::in_out(&vec![0u32; tiles as usize]),
        sleep,
    };
    let arguments = kernel.arguments(&plan, own);
    let entry = &kernel.built.launch.entry;
    let program = heist_run::Program::from_module(&**entry, &kernel.built.module);
    let settings = Settings::default();
    let ran = device
        .run(&program, entry, &plan.launch, &arguments, &settings)
        .unwrap_or_else(|error| panic!("{error}"));
    let counted = kernel.output(&ran.outcome, "runs").expect("the counts");
    let counted = counted.to_vec::<u32>().expect("words");
    assert!(counted.iter().all(|runs| *runs == 1), "exactly once");
    ran.elapsed.expect("a modelled time").ns()
}

/// Where a tile is shorter than an answer takes, more requests in flight make it faster; where it
/// is longer, one is enough. Both figures are the model's, and the reason for the default.
#[test]
fn short_tiles_are_faster_with_more_in_flight() {
    let short: Vec<f64> = [1, 2, 4].map(|depth| time(depth, 400, 100)).to_vec();
    let long: Vec<f64> = [1, 2, 4].map(|depth| time(depth, 200, 4000)).to_vec();
    println!("tiles of 100 ns: {short:?}; of 4 us: {long:?}");
    assert!(short[1] < 0.75 * short[0], "{short:?}");
    assert!(short[2] < 0.75 * short[1], "{short:?}");
    assert!(long[0] < 1.01 * long[2], "{long:?}");
}

/// One that counts what it was granted would be asked too early.
#[test]
fn two_policies_are_asked_ahead_where_both_may_be() {
    for (text, ahead) in [
        ("first-half & sm-limit(3)", true),
        ("first-half | sm-limit(3)", true),
        ("max-steals(2) & first-half", false),
        ("first-half & max-steals(2)", false),
        ("first-half | max-steals(2)", false),
        ("!max-steals(2)", false),
        ("!first-half", true),
    ] {
        let policy: AnyPolicy = text.parse().expect("a policy");
        assert_eq!(policy.asks_ahead(), ahead, "{text}");
    }
}
