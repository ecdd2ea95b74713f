//! What comes out of a run does not depend on the threads of the host: buffers,
//! findings, counts and the modelled timeline.

use heist_launch::{Arg, Arguments, Launch};
use heist_sim::{Device, Options, Program, Report};

/// Each thread does as many rounds as its block's number says, so that blocks end
/// at very different times; a barrier and shared memory in each.
const UNEVEN: &str = "
    and.b32 %r5, %r1, 31;
    add.u32 %r5, %r5, 1;
    mov.u32 %r6, 0;
    mov.u32 %r7, tile;
    mad.lo.u32 %r7, %r2, 4, %r7;
ROUND:
    st.shared.u32 [%r7], %r6;
    bar.sync 0;
    ld.shared.u32 %r8, [tile];
    bar.sync 0;
    add.u32 %r6, %r6, %r8;
    add.u32 %r6, %r6, 1;
    sub.u32 %r5, %r5, 1;
    setp.ne.u32 %p1, %r5, 0;
    @%p1 bra ROUND;
    st.global.u32 [%rd2], %r6;";

/// One word for each block, so that blocks share lines and no bytes.
const NARROW: &str = "
    setp.ne.u32 %p1, %r2, 0;
    @%p1 ret;
    mad.wide.u32 %rd3, %r1, 4, %rd1;
    st.global.u32 [%rd3], %r1;";

/// Every block writes its own words, and its neighbour's first one.
const RACES: &str = "
    st.global.u32 [%rd2], %r3;
    setp.ne.u32 %p1, %r2, 0;
    @%p1 ret;
    add.u32 %r5, %r3, %r4;
    setp.ge.u32 %p1, %r5, 8192;
    @%p1 ret;
    mad.wide.u32 %rd3, %r5, 4, %rd1;
    st.global.u32 [%rd3], 7;";

/// Reads the output of the block before, which on the same thread has run already.
const READS_BEFORE: &str = "
    st.global.u32 [%rd2], %r3;
    setp.lt.u32 %p1, %r3, %r4;
    @%p1 ret;
    sub.u32 %r5, %r3, %r4;
    mad.wide.u32 %rd3, %r5, 4, %rd1;
    ld.global.u32 %r6, [%rd3];
    st.global.u32 [%rd2], %r6;";

/// All blocks read the last words, and the last block writes them when all have.
const WRITES_AT_LAST: &str = "
    mad.wide.u32 %rd3, %r2, 4, %rd1;
    ld.global.u32 %r5, [%rd3+32512];
    setp.ne.u32 %p1, %r1, 127;
    @%p1 ret;
    st.global.u32 [%rd2], %r5;";

const OUT_OF_BOUNDS: &str = "
    st.global.u32 [%rd2+4], %r3;";

/// Where a block runs is for it to see: such a kernel runs in order.
const PLACE: &str = "
    mov.u32 %r5, %smid;
    st.global.u32 [%rd2], %r5;";

/// And so is when.
const TIME: &str = "
    mov.u32 %r5, %clock;
    st.global.u32 [%rd2], %r5;";

const ATOMICS: &str = "
    atom.global.add.u32 %r5, [%rd1], 1;";

/// Registers that nothing has set.
const UNSET: &str = "
    add.u32 %r5, %r9, 1;
    mov.u32 %r9, %r3;
    st.global.u32 [%rd2], %r5;";

fn run(body: &str, threads: usize) -> Report {
    run_on(body, threads, Arg::in_out(&vec![0u32; 8192]))
}

fn run_on(body: &str, threads: usize, data: Arg) -> Report {
    let text = format!(
        "
.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 out) {{
    .reg .pred %p<4>; .reg .b32 %r<10>; .reg .b64 %rd<4>;
    .shared .align 4 .b32 tile[64];
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %tid.x;
    mov.u32 %r4, %ntid.x;
    mad.lo.u32 %r3, %r1, %r4, %r2;
    ld.param.u64 %rd1, [out];
    mad.wide.u32 %rd2, %r3, 4, %rd1;
{body}
    ret;
}}"
    );
    let module = heist_ptx::parse(&heist_ptx::Source::new("k.ptx", text)).expect("PTX");
    let program = Program::new(module).expect("a program");
    // Few SMs, so that blocks wait for room.
    let device = Device::of(heist_ptx::arch::Gpu {
        sms: 3,
        ..heist_ptx::arch::Gpu::A100
    });
    let options = Options {
        threads,
        ..Options::default()
    };
    let report = program
        .run(
            &device,
            "k",
            &Launch::new(128, 64),
            &Arguments::new([data]),
            &options,
        )
        .expect("a launch");
    let seen = options.meter.read().expect("a run");
    assert_eq!((seen.ended, seen.blocks), (128, 128));
    report
}

fn same_everywhere(body: &str) -> Report {
    let alone = run(body, 1);
    for threads in [2, 3, 7] {
        let many = run(body, threads);
        assert_eq!(alone.stats, many.stats);
        assert_eq!(alone.diagnostics, many.diagnostics);
        assert_eq!(alone.printed, many.printed);
        assert_eq!(words(&alone), words(&many));
        assert_eq!(
            format!("{:?}", alone.outcome),
            format!("{:?}", many.outcome)
        );
    }
    // Nor does it matter that a kernel writes what the launch calls an input.
    for threads in [1, 3] {
        let input = run_on(body, threads, Arg::input(&vec![0u32; 8192]));
        assert_eq!(alone.stats, input.stats);
        assert_eq!(alone.diagnostics, input.diagnostics);
        assert_eq!(alone.outcome.trace, input.outcome.trace);
    }
    alone
}

fn words(report: &Report) -> Vec<u32> {
    report
        .outcome
        .output(0usize)
        .and_then(|buffer| buffer.to_vec())
        .unwrap_or_default()
}

#[test]
fn blocks_of_any_length_give_one_timeline() {
    let report = same_everywhere(UNEVEN);
    assert!(report.diagnostics.is_empty(), "{:?}", report.diagnostics);
    let trace = report.outcome.trace.as_ref().expect("a trace");
    assert_eq!(trace.blocks.len(), 128);
    let ends: std::collections::BTreeSet<_> = trace.blocks.iter().map(|block| block.end).collect();
    assert!(ends.len() > 32, "they end at different times");
    assert_eq!(words(&report)[64 * 2], 7, "three rounds: 1, 3, 7");
}

#[test]
fn words_of_one_line_by_many_blocks() {
    let report = same_everywhere(NARROW);
    assert!(report.diagnostics.is_empty(), "{:?}", report.diagnostics);
    assert_eq!(words(&report)[..128], (0..128).collect::<Vec<_>>()[..]);
}

#[test]
fn races_between_blocks_are_found() {
    for body in [RACES, READS_BEFORE, WRITES_AT_LAST] {
        let report = same_everywhere(body);
        let codes: Vec<&str> = report
            .diagnostics
            .iter()
            .map(|found| found.code.0)
            .collect();
        assert!(codes.contains(&heist_ptx::rule::GLOBAL_RACE.0), "{codes:?}");
    }
}

#[test]
fn findings_and_their_counts_are_the_same() {
    let report = same_everywhere(OUT_OF_BOUNDS);
    assert!(report.has_errors());
}

#[test]
fn instructions_are_counted_by_lane_and_by_warp() {
    // Six that find a thread's place, and the return.
    let stats = same_everywhere("").stats;
    assert_eq!(stats.thread_instructions, 128 * 64 * 7);
    assert_eq!(stats.warp_instructions, 128 * 2 * 7);
}

#[test]
fn what_can_tell_runs_in_order() {
    for body in [PLACE, TIME] {
        assert!(same_everywhere(body).diagnostics.is_empty());
    }
    assert_eq!(words(&same_everywhere(ATOMICS))[0], 8192);
    assert_eq!(words(&same_everywhere(UNSET)), [1; 8192]);
}
