//! Who a finding names: the thread that did it, not another one of its warp.

use heist_launch::{Arg, Arguments, Launch};
use heist_ptx::rule;
use heist_sim::{Device, Options, Program};

/// What a warp that runs `body` is told: code, message and notes.
fn told(body: &str) -> Vec<(heist_ptx::Code, String)> {
    let text = format!(
        ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 p)\n{{\n\
         .reg .u64 d; .reg .u32 i, a, v; .reg .pred q;\n.shared .align 16 .b8 s[256];\n\
         ld.param.u64 d, [p];\nmov.u32 i, %tid.x;\nmad.lo.u32 a, i, 4, s;\n{body}\nret;\n}}\n"
    );
    let source = heist_ptx::Source::new("named.ptx", text);
    let program = Program::new(heist_ptx::parse(&source).expect("it is right")).expect("placed");
    let device = Device::named("sim:h200").expect("a device");
    let arguments = Arguments::new([Arg::in_out(&[0u32; 64])]);
    let (launch, options) = (Launch::new(1, 32), Options::default());
    let report = program.run(&device, "k", &launch, &arguments, &options);
    let found = report.expect("it runs").diagnostics;
    let told = found.iter().map(|one| {
        let notes = one.notes.join("; ");
        (one.code, format!("{}; {notes}", one.message))
    });
    told.collect()
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
    }
}
