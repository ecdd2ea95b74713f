//! What memory takes in modelled time: DRAM's bandwidth, atomics on one address, and what tensor
//! cores read.

use heist_launch::{Arg, Arguments, Launch};
use heist_sim::{Checks, Device, Options, Program};

/// Cycles of a kernel with a buffer that it may read and write, on an H200. `%rd1` is the buffer and
/// `%r1` the thread's number in the grid.
fn cycles(body: &str, blocks: u32, words: usize, threads: usize) -> u64 {
    let [all, fewest] =
        [Checks::ALL, Checks::FEWEST].map(|checks| checked(body, blocks, words, threads, checks));
    assert_eq!(all, fewest, "checks take no modelled time");
    all
}

fn checked(body: &str, blocks: u32, words: usize, threads: usize, checks: Checks) -> u64 {
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
        checks,
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

/// Cycles that a B200 takes for as many repetitions of something that a thread does with tensor memory
/// at `%r1`, and until it has come to its end: `%rd1` and `%rd2` describe matrices in shared memory.
fn on_tensor_cores(setup: &str, body: &str, rounds: u32) -> u64 {
    let text = format!(
        ".version 8.6\n.target sm_100a\n.address_size 64\n\
         .visible .entry test(.param .u64 words) {{\n\
         .reg .pred %p, %q; .reg .b32 %r<40>; .reg .b64 %rd<9>;\n\
         .shared .align 1024 .b8 a[16384]; .shared .align 8 .b64 bar; .shared .align 4 .b8 where[4];\n\
         mov.u32 %r2, %tid.x; setp.eq.u32 %q, %r2, 0; mov.u32 %r3, where;\n\
         @%q mbarrier.init.shared::cta.b64 [bar], 1;\n\
         tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r3], 512;\n\
         tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;\n\
         ld.shared.u32 %r1, [%r3]; mov.u32 %r4, 0; mov.u32 %r5, a;\n\
         and.b32 %r5, %r5, 0x3ffff; shr.u32 %r5, %r5, 4; cvt.u64.u32 %rd1, %r5; add.u64 %rd1, %rd1, {A};\n\
         add.u64 %rd2, %rd1, 512;\n\
         {setup}\n\
         AGAIN: {body}\n\
         add.u32 %r4, %r4, 1; setp.lt.u32 %p, %r4, {rounds}; @%p bra AGAIN;\n\
         @%q tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [bar];\n\
         WAIT: mbarrier.try_wait.parity.shared::cta.b64 %p, [bar], 0; @!%p bra WAIT;\n\
         tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r1, 512;\n ret; }}\n",
        // Core matrices without a swizzle: 128 bytes to the next rows, 4096 to the next columns.
        A = (1u64 << 46) | (8 << 32) | (256 << 16),
    );
    let source = heist_ptx::Source::new("test.ptx", text);
    let program = Program::new(heist_ptx::parse(&source).expect("PTX")).expect("a program");
    let device = Device::named("sim:b200").expect("a device");
    let options = Options {
        checks: Checks::FEWEST,
        ..Options::default()
    };
    let arguments = Arguments::new([Arg::in_out(&[0u32])]);
    let report = program.run(&device, "test", &Launch::new(1, 32), &arguments, &options);
    let report = report.expect("a run");
    assert!(report.diagnostics.is_empty(), "{:?}", report.diagnostics);
    report.stats.cycles
}

/// Cycles of one of many.
fn each_on_tensor_cores(setup: &str, body: &str) -> u64 {
    let [few, many] = [64, 192].map(|rounds| on_tensor_cores(setup, body, rounds));
    (many - few) / 128
}

/// 128 rows and 16 halves of depth, by columns.
fn product(first: &str, columns: u32) -> u64 {
    let form = 1 << 4 | (columns / 8) << 17 | 8 << 24;
    each_on_tensor_cores(
        &format!("mov.u32 %r6, {form};"),
        &format!("@%q tcgen05.mma.cta_group::1.kind::f16 [%r1], {first}, %rd2, %r6, 1;"),
    )
}

#[test]
fn products_take_what_the_tensor_cores_or_shared_memory_do() {
    // 4096 products a cycle, so 128 x 256 x 16 are 128 cycles.
    assert_eq!([256, 128].map(|n| product("%rd1", n)), [128, 64]);
    // 32 bytes of 128 rows and 64 columns, 128 a cycle; from tensor memory the rows cost nothing.
    assert_eq!([product("%rd1", 64), product("[%r1]", 64)], [48, 32]);
}

#[test]
fn a_warp_moves_a_register_a_cycle_to_tensor_memory_and_back() {
    let list = |first: u32| {
        let registers = (first..first + 16).map(|at| format!("%r{at}"));
        registers.collect::<Vec<_>>().join(", ")
    };
    let load = |first: u32| {
        let list = list(first);
        format!("tcgen05.ld.sync.aligned.32x32b.x16.b32 {{{list}}}, [%r1];\n")
    };
    let wait = "tcgen05.wait::ld.sync.aligned;";
    let each = |body: &str| each_on_tensor_cores("", body);
    // 2048 bytes: 57 a cycle where each is waited for, and more where two are.
    let one = each(&format!("{}{wait}", load(8)));
    assert!((36..46).contains(&one), "{one}");
    let two = each(&format!("{}{}{wait}", load(8), load(24)));
    assert_eq!(two, one + 16);
    let store = format!(
        "tcgen05.st.sync.aligned.32x32b.x16.b32 [%r1], {{{}}};\n",
        list(8)
    );
    let store = each(&store);
    assert!((16..26).contains(&store), "{store}");
}

#[test]
fn what_nobody_reads_takes_no_time_unless_it_comes_from_memory() {
    let words = 256 * 256;
    let many = |one: &str| one.repeat(400);
    let time = |body: &str, rest: &str| cycles(&format!("{body}{rest}"), 1, words, 1);
    let use_it = "add.u32 %r5, %r4, 1;";
    let products = many("mul.lo.u32 %r4, %r1, %r2;\n");
    let (left_out, computed) = (time(&products, ""), time(&products, use_it));
    assert!(4 * left_out < 3 * computed, "{left_out} and {computed}");
    let loads = many("ld.global.u32 %r4, [%rd1];\n");
    let (dropped, used) = (time(&loads, ""), time(&loads, use_it));
    assert!(dropped + 1000 > used, "{dropped} and {used}");
}
