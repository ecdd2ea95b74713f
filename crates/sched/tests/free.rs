//! Greedy costs nothing, and neither does watching when it is off: the machine
//! code of the tile loop is as long as that of a loop written by hand, with no
//! policy in it.

use heist_builder::{Arch, Global, kernel_params};
use heist_oracle::Ptxas;
use heist_sched::{AnyPolicy, Greedy, MaxSteals, Policy, Submit, TileSource, Tiled, Watch};

kernel_params! { struct Scale { data: Global<f32>, factor: f32, n: u32 } }

fn built(
    arch: Arch,
    source: TileSource,
    policy: impl Policy + Send + Sync + 'static,
    watch: Watch,
) -> String {
    built_when(arch, source, Submit::Early, policy, watch)
}

fn built_when(
    arch: Arch,
    source: TileSource,
    submit: Submit,
    policy: impl Policy + Send + Sync + 'static,
    watch: Watch,
) -> String {
    Tiled::<Scale>::new("scale", 1000)
        .source(source)
        .policy(policy)
        .submit(submit)
        .watch(watch)
        .block(256)
        .locations(false)
        .build(arch, |k, args, tiles| {
            let weight = args.factor * args.factor;
            tiles.each(|tile| {
                let i = tile.x * k.block_dim().x + k.thread().x;
                k.if_(i.lt(args.n), || args.data.at(i).update(|v| v * weight));
            })
        })
        .expect("a kernel")
        .ptx()
}

/// Instructions of the machine code, without the padding behind its end.
fn instructions(ptxas: &Ptxas, ptx: &str, arch: Arch) -> Option<(usize, String)> {
    let cubin = ptxas
        .assemble(ptx, &arch.to_string())
        .unwrap_or_else(|refusal| panic!("{refusal}\n{ptx}"));
    let listing = cubin.disassembly()?;
    let count = listing
        .lines()
        .filter(|line| line.trim_start().starts_with("/*0") && line.contains(';'))
        .filter(|line| !line.contains(" NOP"))
        .count();
    assert!(count > 20, "{listing}");
    Some((count, listing))
}

fn compare(source: TileSource, hand: &str, archs: &[Arch]) {
    let Some(ptxas) = Ptxas::find_or_say_skipped() else {
        return;
    };
    for &arch in archs {
        let hand = hand.replace("TARGET", &arch.to_string());
        let greedy = built(arch, source, Greedy, Watch::Off);
        let (Some((by_hand, listing)), Some((ours, our_listing))) = (
            instructions(&ptxas, &hand, arch),
            instructions(&ptxas, &greedy, arch),
        ) else {
            println!("skipped: nvdisasm not found");
            return;
        };
        assert!(
            ours <= by_hand,
            "{arch} {source}: {ours} instructions, {by_hand} by hand\n{our_listing}\n{listing}"
        );
        // A policy that is known only at run time as text costs the same.
        let text: AnyPolicy = "greedy | max-steals(3)".parse().expect("a policy");
        let same = built(arch, source, text, Watch::Off);
        assert_eq!(
            instructions(&ptxas, &same, arch).map(|(n, _)| n),
            Some(ours)
        );
        // And the measure can tell: a policy and watching are seen.
        let counted = built(arch, source, MaxSteals { limit: 8 }, Watch::Off);
        assert!(instructions(&ptxas, &counted, arch).map(|(n, _)| n) > Some(ours));
        let watched = built(arch, source, Greedy, Watch::Stats);
        assert!(instructions(&ptxas, &watched, arch).map(|(n, _)| n) > Some(ours));
    }
}

#[test]
fn greedy_tickets_cost_what_a_loop_by_hand_costs() {
    let archs = [Arch::SM_80, Arch::SM_89, Arch::SM_90A, Arch::SM_100];
    compare(TileSource::Ticket, include_str!("hand/ticket.ptx"), &archs);
}

#[test]
fn greedy_launch_control_costs_what_a_loop_by_hand_costs() {
    let archs = [Arch::SM_100, Arch::SM_100A];
    compare(TileSource::Clc, include_str!("hand/clc.ptx"), &archs);
}

/// Where nobody is asked, nothing is there to ask with.
#[test]
fn a_source_that_asks_nobody_has_no_code_for_it() {
    let arch = Arch::SM_100A;
    let with = |source, policy: &str| {
        let policy: AnyPolicy = policy.parse().expect("a policy");
        built(arch, source, policy, Watch::Off)
    };
    for source in [TileSource::Static, TileSource::Direct] {
        assert!(!source.asks());
        let never = with(source, "never");
        assert_eq!(with(source, "greedy"), never, "{source}");
        assert_eq!(with(source, "max-steals(3)"), never, "{source}");
    }
    assert!(with(TileSource::Clc, "greedy").contains("clusterlaunchcontrol"));
    let (never, direct) = (
        with(TileSource::Clc, "never"),
        with(TileSource::Direct, "never"),
    );
    assert!(!never.contains("clusterlaunchcontrol"), "{never}");
    assert_eq!(
        never.matches(".shared").count(),
        direct.matches(".shared").count(),
        "{never}"
    );
}

/// What is interpreted lies behind the loop of tiles whose policy always asks: between a tile and the next are the request, a look at which
/// policy is current, and the way back.
#[test]
fn tiles_of_a_loaded_policy_that_always_asks_do_not_pass_the_interpreter() {
    for source in [TileSource::Ticket, TileSource::Clc] {
        let loaded: AnyPolicy = "loaded: greedy".parse().expect("a policy");
        let ptx = built_when(Arch::SM_100, source, Submit::Late, loaded, Watch::Off);
        let (before, after) = ptx.split_once("// end of the tile").expect("a tile");
        let (between, interpreter) = after.split_once("// interpret:").expect("an interpreter");
        let top = before.rsplit_once("_loop:").expect("a loop").0;
        let top = top.rsplit_once('\n').expect("a line").1;
        assert!(
            between.contains(&format!("bra {top}_loop")),
            "{source}: {between}"
        );
        assert!(between.contains("ld.relaxed.sys"), "{source}: {between}");
        assert!(interpreter.contains("// interpret: ask"), "{source}");
    }
}
