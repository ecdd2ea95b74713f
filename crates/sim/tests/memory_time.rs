//! What memory takes in modelled time: DRAM's bandwidth, and atomics on one address.

use heist_launch::{Arg, Arguments, Launch};
use heist_sim::{Device, Options, Program};

/// Cycles of a kernel with a buffer that it may read and write, on an H200. `%rd1` is the buffer and
/// `%r1` the thread's number in the grid.
fn cycles(body: &str, blocks: u32, words: usize, threads: usize) -> u64 {
    let text = format!(
        ".version 8.0\n.target sm_90\n.address_size 64\n\
         .visible .entry test(.param .u64 words) {{\n\
         .reg .pred %p; .reg .b32 %r<20>; .reg .b64 %rd<9>;\n\
         ld.param.u64 %rd1, [words]; mov.u32 %r1, %ctaid.x; mov.u32 %r2, %tid.x;\n\
         mad.lo.u32 %r1, %r1, 256, %r2; mov.u32 %r3, 0;\n\
         {body}\n ret; }}\n"
    );
    let source = heist_ptx::Source::new("test.ptx", text);
    let module = heist_ptx::parse(&source).expect("PTX");
    let arguments = Arguments::new([Arg::in_out(&vec![0u32; words])]);
    let device = Device::named("sim:h200").expect("a device");
    let options = Options {
        threads,
        ..Options::default()
    };
    let launch = Launch::new(blocks, 256);
    let report = Program::new(module)
        .expect("a program")
        .run(&device, "test", &launch, &arguments, &options)
        .expect("a run");
    assert!(report.diagnostics.is_empty(), "{:?}", report.diagnostics);
    report.stats.cycles
}

/// Each thread reads 64 bytes, `apart` bytes from its neighbour's.
fn reads(apart: u32, rest: &str) -> String {
    let load = |at: u32| format!("ld.global.v4.u32 {{%r4, %r5, %r6, %r7}}, [%rd2+{at}];\n");
    let loads: String = [0, 16, 32, 48].map(load).concat();
    format!("mul.wide.u32 %rd2, %r1, {apart}; add.u64 %rd2, %rd1, %rd2;\n{loads}{rest}")
}

/// At least the bytes that DRAM delivers to an H200 in a cycle: 4.8 TB/s at 1.98 GHz.
const RATE: u64 = 2425;

#[test]
fn a_launch_is_no_faster_than_dram() {
    let (blocks, words) = (1024, 1024 * 256 * 16);
    let needed = 4 * words as u64 / RATE;
    // A kernel whose blocks run side by side, on any number of threads, and one that must be run in order.
    let alone = [1, 3].map(|threads| cycles(&reads(64, ""), blocks, words, threads));
    assert_eq!(alone[0], alone[1]);
    let ordered = cycles(&reads(64, "mov.u32 %r8, %clock;"), blocks, words, 1);
    for cycles in [alone[0], ordered] {
        assert!(
            (needed..needed + needed / 4).contains(&cycles),
            "{cycles}, not {needed}"
        );
    }
    // As many bytes, and all blocks ask for the same ones.
    for rest in ["", "mov.u32 %r8, %clock;"] {
        let again = cycles(&reads(0, rest), blocks, words, 1);
        assert!(3 * again < 2 * needed, "{again}");
    }
}

#[test]
fn what_is_written_goes_back() {
    let body = "mul.wide.u32 %rd2, %r1, 16; add.u64 %rd2, %rd1, %rd2;\n\
                st.global.v4.u32 [%rd2], {%r1, %r1, %r1, %r1};";
    let words = 4096 * 256 * 4;
    let needed = 4 * words as u64 / RATE;
    let cycles = cycles(body, 4096, words, 1);
    assert!(cycles >= needed, "{cycles}, not {needed}");
}

/// Each thread does four atomics, `apart` bytes from its neighbour's.
fn atomics(form: &str, apart: u32) -> u64 {
    let body = format!(
        "mul.wide.u32 %rd2, %r1, {apart}; add.u64 %rd2, %rd1, %rd2;\n\
         AGAIN: {form};\n\
         add.u32 %r3, %r3, 1; setp.lt.u32 %p, %r3, 4; @%p bra AGAIN;"
    );
    cycles(&body, 64, 64 * 256, 1)
}

#[test]
fn one_address_takes_one_atomic_after_the_other() {
    let all = 64 * 256 * 4;
    for form in [
        "atom.global.add.u32 %r4, [%rd2], 1",
        "red.global.add.u32 [%rd2], 1",
    ] {
        let one = atomics(form, 0);
        assert!((all..2 * all).contains(&one), "{form}: {one}");
        let own = atomics(form, 4);
        assert!(own < all / 8, "{form}: {own}");
    }
}
