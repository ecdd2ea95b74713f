//! How long a warp may read what nobody writes before it is said to spin.

use heist_launch::{Arg, Arguments, Launch};
use heist_sim::{Device, Options, Program, Report};

/// A thread of each block reads a word of its own `times` times, strongly, and then writes it; `first`
/// is what it does before.
fn reads(blocks: u32, times: u32, first: &str) -> Report {
    repeats(
        blocks,
        times,
        first,
        "ld.relaxed.gpu.global.u32 %r2, [%rd1]",
    )
}

/// The same with another instruction than a load.
fn repeats(blocks: u32, times: u32, first: &str, instruction: &str) -> Report {
    let text = format!(
        ".version 8.0\n.target sm_80\n.address_size 64\n\
         .visible .entry reads(.param .u64 words) {{\n\
         .reg .pred %p; .reg .b32 %r<4>; .reg .b64 %rd<3>;\n\
         {first} ld.param.u64 %rd1, [words]; mov.u32 %r1, 0;\n\
         mov.u32 %r3, %ctaid.x; mad.wide.u32 %rd1, %r3, 4, %rd1;\n\
         AGAIN: {instruction};\n\
         add.u32 %r1, %r1, 1; setp.lt.u32 %p, %r1, {times}; @%p bra AGAIN;\n\
         st.global.u32 [%rd1], %r1; ret; }}\n"
    );
    let source = heist_ptx::Source::new("reads.ptx", text);
    let module = heist_ptx::parse(&source).unwrap();
    let arguments = Arguments::new([Arg::in_out(&vec![0u32; blocks as usize])]);
    let device = Device::named("sim:h200").unwrap();
    Program::new(module)
        .unwrap()
        .run(
            &device,
            "reads",
            &Launch::new(blocks, 1),
            &arguments,
            &Options::default(),
        )
        .unwrap()
}

#[test]
fn a_read_counts_once() {
    let report = reads(1, 150_000, "");
    assert!(report.diagnostics.is_empty(), "{:?}", report.diagnostics);
    let left = report.outcome.output(0).unwrap().to_vec::<u32>().unwrap();
    assert_eq!(left, [150_000]);
}

#[test]
fn more_than_enough_reads_in_vain_are_told() {
    let report = reads(1, 250_000, "");
    assert_eq!(report.diagnostics.len(), 1, "{:?}", report.diagnostics);
    assert_eq!(report.diagnostics[0].code, heist_ptx::rule::LIVELOCK);
}

#[test]
fn an_atomic_that_only_asks_is_a_read_and_work_that_changes_nothing_is_not() {
    for (operation, told) in [("exch.b32", true), ("max.u32", false)] {
        let instruction = format!("atom.relaxed.gpu.global.{operation} %r2, [%rd1], 0");
        let report = repeats(1, 201_000, "", &instruction);
        let codes: Vec<_> = report.diagnostics.iter().map(|told| told.code).collect();
        let livelock = told.then_some(heist_ptx::rule::LIVELOCK);
        assert_eq!(codes, Vec::from_iter(livelock), "{instruction}");
    }
}

#[test]
fn many_warps_that_all_spin_are_told_sooner_unless_one_has_read_a_clock() {
    // Together more than half a million reads, of each warp far fewer than alone are in vain.
    let spinning = reads(132, 5_000, "");
    assert_eq!(spinning.diagnostics.len(), 1, "{:?}", spinning.diagnostics);
    assert_eq!(spinning.diagnostics[0].code, heist_ptx::rule::LIVELOCK);
    let timed = reads(132, 5_000, "mov.u64 %rd2, %clock64;");
    assert!(timed.diagnostics.is_empty(), "{:?}", timed.diagnostics);
}

/// The second block waits by plain loads for what the first one writes.
fn waits_by_plain_loads(store: &str) -> Report {
    let text = format!(
        ".version 8.0\n.target sm_80\n.address_size 64\n\
         .visible .entry waits(.param .u64 words) {{\n\
         .reg .pred %p; .reg .b32 %r<3>; .reg .b64 %rd<2>;\n\
         ld.param.u64 %rd1, [words]; mov.u32 %r1, %ctaid.x; setp.eq.u32 %p, %r1, 0; @%p bra SETS;\n\
         AGAIN: ld.global.u32 %r2, [%rd1]; setp.eq.u32 %p, %r2, 0; @%p bra AGAIN;\n\
         st.global.u32 [%rd1+4], %r2; ret;\n\
         SETS: {store} [%rd1], 7; ret; }}\n"
    );
    let source = heist_ptx::Source::new("waits.ptx", text);
    let module = heist_ptx::parse(&source).unwrap();
    let arguments = Arguments::new([Arg::in_out(&[0u32, 0])]);
    let device = Device::named("sim:h200").unwrap();
    let launch = Launch::new(2, 1);
    Program::new(module)
        .unwrap()
        .run(&device, "waits", &launch, &arguments, &Options::default())
        .unwrap()
}

#[test]
fn a_block_that_waits_by_plain_loads_lets_the_others_run() {
    let report = waits_by_plain_loads("st.release.gpu.global.u32");
    let mut codes: Vec<_> = report.diagnostics.iter().map(|told| told.code).collect();
    codes.dedup();
    assert_eq!(codes, [heist_ptx::rule::MIXED_ATOMICITY]);
    let left = report.outcome.output(0).unwrap().to_vec::<u32>().unwrap();
    assert_eq!(left, [7, 7]);
}
