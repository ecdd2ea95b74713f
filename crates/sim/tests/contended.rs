//! Atomics on one address wait for each other in modelled time; on addresses of their own they do
//! not.

use heist_launch::{Arg, Arguments, Launch};
use heist_sim::{Device, Options, Program};

/// Cycles of 64 blocks of 256 threads whose threads each do four atomics, `apart` bytes from their
/// neighbour's; `form` says which.
fn cycles(form: &str, apart: u32) -> u64 {
    let text = format!(
        ".version 8.0\n.target sm_90\n.address_size 64\n\
         .visible .entry add(.param .u64 words) {{\n\
         .reg .pred %p; .reg .b32 %r<6>; .reg .b64 %rd<3>;\n\
         ld.param.u64 %rd1, [words]; mov.u32 %r1, %ctaid.x; mov.u32 %r2, %tid.x;\n\
         mad.lo.u32 %r1, %r1, 256, %r2; mul.wide.u32 %rd2, %r1, {apart};\n\
         add.u64 %rd1, %rd1, %rd2; mov.u32 %r3, 0;\n\
         AGAIN: {form};\n\
         add.u32 %r3, %r3, 1; setp.lt.u32 %p, %r3, 4; @%p bra AGAIN; ret; }}\n"
    );
    let source = heist_ptx::Source::new("add.ptx", text);
    let module = heist_ptx::parse(&source).unwrap();
    let arguments = Arguments::new([Arg::in_out(&vec![0u32; 64 * 256])]);
    let device = Device::named("sim:h200").unwrap();
    let report = Program::new(module)
        .unwrap()
        .run(
            &device,
            "add",
            &Launch::new(64, 256),
            &arguments,
            &Options::default(),
        )
        .unwrap();
    assert!(report.diagnostics.is_empty(), "{:?}", report.diagnostics);
    report.stats.cycles
}

#[test]
fn one_address_takes_one_atomic_a_clock() {
    let all = 64 * 256 * 4;
    let fetched = "atom.global.add.u32 %r4, [%rd1], 1";
    let one = cycles(fetched, 0);
    assert!((all..2 * all).contains(&one), "{one}");
    let own = cycles(fetched, 4);
    assert!(own < all / 8, "{own}");
}

#[test]
fn nobody_waits_for_a_sum_that_is_not_read() {
    let sent = cycles("red.global.add.u32 [%rd1], 1", 0);
    let own = cycles("red.global.add.u32 [%rd1], 1", 4);
    assert!(sent < 2 * own, "{sent} {own}");
}
