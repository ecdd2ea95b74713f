//! What a finding says: its code, the place, and the thread that did it, not another one of its warp.

use heist_launch::{Arg, Arguments, Launch};
use heist_ptx::rule;
use heist_sim::{Device, Options, Program};

/// What a kernel is told: code, message and notes.
fn told_of(
    text: &str,
    entry: &str,
    device: &str,
    launch: &Launch,
) -> Vec<(heist_ptx::Code, String)> {
    let source = heist_ptx::Source::new("named.ptx", text);
    let program = Program::new(heist_ptx::parse(&source).expect("it is right")).expect("placed");
    let device = Device::named(device).expect("a device");
    let arguments = Arguments::new([Arg::in_out(&[0u32; 800])]);
    let report = program.run(&device, entry, launch, &arguments, &Options::default());
    let found = report.expect("it runs").diagnostics;
    let told = found.iter().map(|one| {
        let notes = one.notes.join("; ");
        (one.code, format!("{}; {notes}", one.message))
    });
    told.collect()
}

/// What threads that run `body` are told, on a GPU of a target.
fn told_on(
    (target, device): (&str, &str),
    launch: &Launch,
    body: &str,
) -> Vec<(heist_ptx::Code, String)> {
    let text = format!(
        ".version 8.6\n.target {target}\n.address_size 64\n.visible .entry k(.param .u64 p)\n{{\n\
         .reg .u64 d; .reg .u32 i, a, v, w; .reg .pred q, r;\n.shared .align 16 .b8 s[256];\n\
         ld.param.u64 d, [p];\nmov.u32 i, %tid.x;\nmad.lo.u32 a, i, 4, s;\n{body}\nend: ret;\n}}\n"
    );
    told_of(&text, "k", device, launch)
}

const HOPPER: (&str, &str) = ("sm_90", "sim:h200");
const BLACKWELL: (&str, &str) = ("sm_100a", "sim:b200");

/// What a warp that runs `body` is told.
fn told(body: &str) -> Vec<(heist_ptx::Code, String)> {
    told_on(HOPPER, &Launch::new(1, 32), body)
}

/// The one thing that is told.
#[track_caller]
fn only(told: Vec<(heist_ptx::Code, String)>, code: heist_ptx::Code) -> String {
    match &told[..] {
        [(found, text)] if *found == code => text.clone(),
        _ => panic!("{told:?}"),
    }
}

#[test]
fn the_thread_that_reads_what_a_copy_has_not_written_is_named() {
    let told = told(
        "st.shared.u32 [a], i;
         bar.warp.sync -1;
         setp.eq.u32 q, i, 0;
         @q cp.async.ca.shared.global [s+12], [d], 4;
         bar.warp.sync -1;
         @!q ld.shared.u32 v, [a];
         cp.async.wait_all;",
    );
    let [(rule::CP_ASYNC_EARLY, text)] = &told[..] else {
        panic!("{told:?}");
    };
    assert!(
        text.ends_with("by thread (3,0,0) of block (0,0,0)"),
        "{text}"
    );
}

#[test]
fn both_lanes_of_a_race_in_a_warp_are_named() {
    let store = "st.shared.u32 [a], i;";
    for (read, reader, writer) in [
        // One lane reads another's word, or each its neighbour's.
        ("setp.eq.u32 q, i, 4; @q ld.shared.u32 v, [s+28];", 4, 7),
        ("xor.b32 a, a, 4; ld.shared.u32 v, [a];", 1, 0),
        // All read the word of the first.
        ("ld.shared.u32 v, [s];", 1, 0),
    ] {
        let told = told(&format!("{store}\n{read}"));
        let [(rule::WARP_RACE, text)] = &told[..] else {
            panic!("{told:?}");
        };
        let names = format!("thread ({reader},0,0) of block (0,0,0) reads ");
        let other = format!(" and thread ({writer},0,0) of block (0,0,0) wrote it ");
        assert!(text.starts_with(&names) && text.contains(&other), "{text}");
        assert!(text.contains(" of the block's shared memory"), "{text}");
    }
}

#[test]
fn lanes_of_two_warps_are_told_apart() {
    let text = only(
        told_on(
            HOPPER,
            &Launch::new(1, 64),
            "setp.eq.u32 q, i, 0;
             @q st.shared.u32 [s], i;
             setp.lt.u32 q, i, 32;
             @q bra end;
             nanosleep.u32 5000;
             ld.shared.u32 v, [s];",
        ),
        rule::SHARED_RACE,
    );
    let names = "thread (32,0,0) of block (0,0,0) reads 0x0 of the block's shared memory, and thread (0,0,0) of";
    assert!(text.starts_with(names), "{text}");
}

/// Of two reasons why a copy may not read, the order of threads comes before the fence.
#[test]
fn a_write_that_nothing_orders_is_told_before_one_that_no_fence_covers() {
    let copy = "@q cp.async.bulk.global.shared::cta.bulk_group [d], [s], 16;
        cp.async.bulk.commit_group;
        cp.async.bulk.wait_group 0;";
    let store = "setp.eq.u32 q, i, 0; st.shared.u32 [a], i;";
    for (between, says) in [
        (
            "",
            "copies 0x4 of the block's shared memory, which thread (1,0,0) of block (0,0,0) wrote and nothing orders",
        ),
        (
            "bar.warp.sync -1;",
            "copies 0x0 of the block's shared memory, which thread (0,0,0) of block (0,0,0) wrote without",
        ),
    ] {
        let text = only(
            told(&format!("{store}\n{between}\n{copy}")),
            rule::PROXY_FENCE_BEFORE_ASYNC_READ,
        );
        assert!(text.starts_with(says), "{text}");
    }
}

/// One half of a pair is written by another thread, and the other by nobody: both are told.
#[test]
fn a_race_does_not_hide_what_nothing_has_written() {
    let told = told(
        "setp.eq.u32 q, i, 1;
         @q st.shared.u32 [s+4], i;
         setp.eq.u32 q, i, 0;
         @q ld.shared.v2.u32 {v, w}, [s];
         setp.eq.and.u32 r, v, 5, q;
         @r st.global.u32 [d], 1;",
    );
    let codes: Vec<_> = told.iter().map(|(code, _)| *code).collect();
    assert!(codes.contains(&rule::WARP_RACE), "{told:?}");
    assert!(codes.contains(&rule::SHARED_UNWRITTEN), "{told:?}");
}

#[test]
fn bytes_that_nobody_announces_are_told_with_their_mbarrier() {
    let told = told(
        "setp.eq.u32 q, i, 0;
         @q mbarrier.init.shared.b64 [s+128], 1;
         bar.warp.sync -1;
         @q cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [s], [d], 16, [s+128];",
    );
    let unarmed = told
        .iter()
        .find(|(code, _)| *code == rule::MBARRIER_UNARMED);
    let text = &unarmed.expect("it is told").1;
    assert!(
        text.starts_with("16 bytes arrive at the mbarrier at 0x80 that nobody"),
        "{text}"
    );
}

/// Whichever lane initialises it.
#[test]
fn an_mbarrier_where_another_thread_has_just_written_is_a_race() {
    let text = only(
        told(
            "st.shared.u32 [a], i;
             setp.eq.u32 q, i, 3;
             @q mbarrier.init.shared.b64 [s+24], 1;",
        ),
        rule::WARP_RACE,
    );
    let names = "thread (3,0,0) of block (0,0,0) writes 0x18 of the block's shared memory, and thread (6,0,0) of";
    assert!(text.starts_with(names), "{text}");
}

/// Reductions do not disturb each other; a copy disturbs one.
#[test]
fn a_copy_over_a_reduction_in_flight_is_told() {
    let reduce = "cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes.add.u32 [s], [s+16], 16, [s+128];";
    let copy =
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [s], [d], 16, [s+128];";
    let both = |second: &str| {
        told(&format!(
            "setp.eq.u32 q, i, 0;
             st.shared.u32 [a], i;
             fence.proxy.async.shared::cta;
             bar.warp.sync -1;
             @!q bra end;
             mbarrier.init.shared.b64 [s+128], 1;
             fence.mbarrier_init.release.cluster;
             mbarrier.arrive.expect_tx.shared.b64 _, [s+128], 32;
             {reduce}
             {second}
             wait: mbarrier.try_wait.parity.shared.b64 q, [s+128], 0;
             @!q bra wait;"
        ))
    };
    assert_eq!(both(reduce), []);
    let text = only(both(copy), rule::ASYNC_OVERLAP);
    assert!(
        text.starts_with("copies to 0x0 of the block's shared memory, which another"),
        "{text}"
    );
}

/// Block 1 writes a word and then a flag; block 0 waits for the flag and reads the word.
fn handed_on([release, acquire]: [&str; 2]) -> Vec<(heist_ptx::Code, String)> {
    let body = format!(
        "setp.ne.u32 q, i, 0;
         @q bra end;
         mov.u32 v, %ctaid.x;
         setp.eq.u32 q, v, 0;
         @q bra wait;
         st.global.u32 [d], 7;
         fence.acq_rel.{release};
         st.relaxed.gpu.global.u32 [d+128], 1;
         bra end;
         wait: ld.relaxed.gpu.global.u32 v, [d+128];
         setp.eq.u32 q, v, 0;
         @q bra wait;
         fence.acq_rel.{acquire};
         ld.global.u32 v, [d];
         st.global.u32 [d+64], v;"
    );
    told_on(HOPPER, &Launch::new(2, 32), &body)
}

/// Also for the first block of a grid, whose number is that of its cluster.
#[test]
fn a_fence_of_the_cluster_orders_nothing_in_another_cluster() {
    assert_eq!(handed_on(["gpu", "gpu"]), []);
    for scopes in [
        ["gpu", "cluster"],
        ["gpu", "cta"],
        ["cluster", "gpu"],
        ["cta", "gpu"],
    ] {
        let told = handed_on(scopes);
        let narrow = told.iter().any(|(code, _)| *code == rule::NARROW_SCOPE);
        assert!(narrow, "{scopes:?} {told:?}");
    }
}

/// Blocks 1 and 2 write a word and then a flag each, and block 0 sees both flags. Who acquires through one of them knows
/// nothing of what was released through the other.
#[test]
fn an_acquire_is_of_what_its_own_flag_released() {
    let seen = |flag: u32| {
        let body = format!(
            "setp.ne.u32 q, i, 0;
             @q bra end;
             mov.u32 v, %ctaid.x;
             mad.wide.u32 d, v, 128, d;
             setp.eq.u32 q, v, 0;
             @q bra second;
             st.global.u32 [d], 7;
             fence.acq_rel.gpu;
             st.relaxed.gpu.global.u32 [d+384], 1;
             bra end;
             second: ld.relaxed.gpu.global.u32 v, [d+640];
             setp.eq.u32 q, v, 0;
             @q bra second;
             first: ld.relaxed.gpu.global.u32 v, [d+512];
             setp.eq.u32 q, v, 0;
             @q bra first;
             ld.acquire.gpu.global.u32 v, [d+{flag}];
             ld.global.u32 v, [d+128];
             st.global.u32 [d], v;"
        );
        told_on(HOPPER, &Launch::new(3, 32), &body)
    };
    assert_eq!(seen(512), []);
    only(seen(640), rule::GLOBAL_RACE);
}

/// Two threads write a word each; another one has seen the first word, and knows nothing of the second.
#[test]
fn who_has_seen_a_word_has_not_seen_the_one_beside_it() {
    let read = |word: u32| {
        let body = format!(
            "mov.u32 v, %ctaid.x;
             mad.wide.u32 d, i, 4, d;
             setp.eq.u32 q, v, 0;
             @q bra reads;
             setp.gt.u32 q, i, 1;
             @q bra end;
             st.relaxed.gpu.global.u32 [d], 1;
             bra end;
             reads: setp.ne.u32 q, i, 0;
             @q bra end;
             wait: ld.relaxed.gpu.global.u32 v, [d];
             setp.eq.u32 q, v, 0;
             @q bra wait;
             ld.relaxed.gpu.global.u32 v, [d];
             ld.global.u32 v, [d+{word}];
             st.global.u32 [d+128], v;"
        );
        told_on(HOPPER, &Launch::new(2, 32), &body)
    };
    assert_eq!(read(0), []);
    only(read(4), rule::MIXED_ATOMICITY);
}

/// One thread alone has waited for the first answer. It reads the second one, for which it has not: that is late, not early.
#[test]
fn who_has_waited_for_an_answer_before_reads_late() {
    let ask = "mbarrier.arrive.expect_tx.relaxed.cta.shared::cta.b64 _, [s+128], 16;
         clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 [s], [s+128];";
    let wait = "wait: mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 q, [s+128], 0;
         @!q bra wait;";
    for (waits, code) in [
        (wait, rule::CLC_SLOT_OVERWRITTEN),
        ("", rule::CLC_EARLY_READ),
    ] {
        let asked = if waits.is_empty() { "" } else { ask };
        let body = format!(
            ".reg .b128 answer;
             setp.eq.u32 q, i, 0;
             @q mbarrier.init.shared::cta.b64 [s+128], 1;
             @q fence.mbarrier_init.release.cluster;
             bar.sync 0;
             @!q bra end;
             {asked}
             {waits}
             {ask}
             nanosleep.u32 100000;
             ld.shared.b128 answer, [s];
             clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 q, answer;"
        );
        let told = told_on(BLACKWELL, &Launch::new(4, 32), &body);
        assert!(told.iter().any(|(found, _)| *found == code), "{told:?}");
    }
}

/// Where the checker does not see it, the run does.
#[test]
fn an_answer_that_is_not_handed_on_in_a_cluster_is_told() {
    let rule = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../rules/L015-plain-request-in-cluster/bad.ptx"
    );
    let text = std::fs::read_to_string(rule).expect("a file");
    for (grid, told) in [((200, 4, 1), true), ((1, 2, 1), false)] {
        // One cluster alone is granted nothing that it could keep.
        let launch = Launch::new(grid, 32)
            .cluster((1, 2, 1))
            .dynamic_shared(200_000);
        let found = told_of(&text, "steal", "sim:b200", &launch);
        let kept = found
            .iter()
            .any(|(code, _)| *code == rule::CLC_PLAIN_IN_CLUSTER);
        assert_eq!(kept, told, "{grid:?}: {found:?}");
    }
}

/// Columns that were given back and allocated again hold nothing, also behind others.
#[test]
fn columns_that_are_allocated_again_are_unwritten() {
    let body = |written: &str| {
        format!(
            ".reg .b32 first, second;
             tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [s], 32;
             tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [s+4], 32;
             bar.warp.sync -1;
             ld.shared.b32 first, [s];
             ld.shared.b32 second, [s+4];
             mov.u32 v, 5;
             tcgen05.st.sync.aligned.32x32b.x1.b32 [second+31], {{v}};
             tcgen05.wait::st.sync.aligned;
             tcgen05.dealloc.cta_group::1.sync.aligned.b32 second, 32;
             tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [s+8], 32;
             tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;
             bar.warp.sync -1;
             ld.shared.b32 second, [s+8];
             {written}
             tcgen05.ld.sync.aligned.32x32b.x1.b32 {{v}}, [second+31];
             tcgen05.wait::ld.sync.aligned;
             mad.wide.u32 d, i, 4, d;
             st.global.u32 [d], v;
             tcgen05.dealloc.cta_group::1.sync.aligned.b32 second, 32;
             tcgen05.dealloc.cta_group::1.sync.aligned.b32 first, 32;"
        )
    };
    let run = |written: &str| told_on(BLACKWELL, &Launch::new(1, 32), &body(written));
    let write =
        "tcgen05.st.sync.aligned.32x32b.x1.b32 [second+31], {v}; tcgen05.wait::st.sync.aligned;";
    assert_eq!(run(write), []);
    only(run(""), rule::TENSOR_UNWRITTEN);
}
