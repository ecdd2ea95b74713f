//! How long a warp may read what nobody writes before it is said to spin.

use heist_launch::{Arg, Arguments, Launch};
use heist_sim::{Device, Options, Program, Report};

/// A thread that reads a word `times` times, strongly, and then writes it.
fn reads(times: u32) -> Report {
    let text = format!(
        ".version 8.0\n.target sm_80\n.address_size 64\n\
         .visible .entry reads(.param .u64 word) {{\n\
         .reg .pred %p; .reg .b32 %r<3>; .reg .b64 %rd;\n\
         ld.param.u64 %rd, [word]; mov.u32 %r1, 0;\n\
         AGAIN: ld.relaxed.gpu.global.u32 %r2, [%rd];\n\
         add.u32 %r1, %r1, 1; setp.lt.u32 %p, %r1, {times}; @%p bra AGAIN;\n\
         st.global.u32 [%rd], %r1; ret; }}\n"
    );
    let source = heist_ptx::Source::new("reads.ptx", text);
    let module = heist_ptx::parse(&source).unwrap();
    let arguments = Arguments::new([Arg::in_out(&[0u32])]);
    let device = Device::named("sim:h200").unwrap();
    Program::new(module)
        .unwrap()
        .run(
            &device,
            "reads",
            &Launch::new(1, 1),
            &arguments,
            &Options::default(),
        )
        .unwrap()
}

#[test]
fn a_read_counts_once() {
    let report = reads(150_000);
    assert!(report.diagnostics.is_empty(), "{:?}", report.diagnostics);
    let left = report.outcome.output(0).unwrap().to_vec::<u32>().unwrap();
    assert_eq!(left, [150_000]);
}

#[test]
fn more_than_enough_reads_in_vain_are_told() {
    let report = reads(250_000);
    assert_eq!(report.diagnostics.len(), 1, "{:?}", report.diagnostics);
    assert_eq!(report.diagnostics[0].code, heist_ptx::rule::LIVELOCK);
}
