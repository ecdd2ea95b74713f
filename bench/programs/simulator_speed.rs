//! How fast the simulator is, with every check on.
//!
//! `cargo run --release -p heist-bench --bin simulator_speed [KERNEL|all] [ROUNDS] [THREADS]`
//!
//! Four kernels, each with one host thread and with two: thread-instructions a
//! second of the wall clock and of processor time (what an idle machine would
//! give), and the most memory the process had. Results are checked: a fast wrong
//! answer is worth nothing.

use heist_launch::{Arg, Arguments, Launch};
use heist_sim::{Device, Options, Program, Report};
use std::fmt::Write;
use std::time::Instant;

const SAXPY: &str = "
.version 8.0
.target sm_80
.address_size 64
.visible .entry saxpy(.param .u32 n, .param .f32 a, .param .u64 x, .param .u64 y) {
    .reg .pred %p<2>; .reg .b32 %r<6>; .reg .f32 %f<5>; .reg .b64 %rd<8>;
    ld.param.u32 %r2, [n];
    mov.u32 %r3, %ctaid.x;
    mov.u32 %r4, %ntid.x;
    mov.u32 %r5, %tid.x;
    mad.lo.s32 %r1, %r3, %r4, %r5;
    setp.ge.u32 %p1, %r1, %r2;
    @%p1 bra DONE;
    ld.param.f32 %f1, [a];
    ld.param.u64 %rd1, [x];
    ld.param.u64 %rd2, [y];
    cvta.to.global.u64 %rd3, %rd1;
    cvta.to.global.u64 %rd4, %rd2;
    mul.wide.u32 %rd5, %r1, 4;
    add.s64 %rd6, %rd3, %rd5;
    add.s64 %rd7, %rd4, %rd5;
    ld.global.f32 %f2, [%rd6];
    ld.global.f32 %f3, [%rd7];
    fma.rn.f32 %f4, %f2, %f1, %f3;
    st.global.f32 [%rd7], %f4;
DONE:
    ret;
}";

/// Each thread adds up 32 elements a grid apart; a tree in shared memory does the rest.
const REDUCE: &str = "
.version 8.0
.target sm_80
.address_size 64
.visible .entry reduce(.param .u32 n, .param .u64 in, .param .u64 out) {
    .reg .pred %p<5>; .reg .b32 %r<16>; .reg .f32 %f<6>; .reg .b64 %rd<8>;
    .shared .align 16 .b8 part[1024];
    ld.param.u32 %r1, [n];
    ld.param.u64 %rd1, [in];
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ntid.x;
    mov.u32 %r4, %tid.x;
    mov.u32 %r5, %nctaid.x;
    mad.lo.s32 %r6, %r2, %r3, %r4;
    mul.lo.s32 %r7, %r3, %r5;
    mov.f32 %f1, 0f00000000;
    setp.ge.u32 %p1, %r6, %r1;
    @%p1 bra SUMMED;
SUM:
    mul.wide.u32 %rd2, %r6, 4;
    add.s64 %rd3, %rd1, %rd2;
    ld.global.f32 %f2, [%rd3];
    add.f32 %f1, %f1, %f2;
    add.s32 %r6, %r6, %r7;
    setp.lt.u32 %p1, %r6, %r1;
    @%p1 bra SUM;
SUMMED:
    shl.b32 %r8, %r4, 2;
    mov.u32 %r9, part;
    add.s32 %r10, %r9, %r8;
    st.shared.f32 [%r10], %f1;
    bar.sync 0;
    shr.u32 %r11, %r3, 1;
TREE:
    setp.ge.u32 %p2, %r4, %r11;
    @%p2 bra SKIP;
    shl.b32 %r12, %r11, 2;
    add.s32 %r13, %r10, %r12;
    ld.shared.f32 %f3, [%r10];
    ld.shared.f32 %f4, [%r13];
    add.f32 %f5, %f3, %f4;
    st.shared.f32 [%r10], %f5;
SKIP:
    bar.sync 0;
    shr.u32 %r11, %r11, 1;
    setp.ne.u32 %p3, %r11, 0;
    @%p3 bra TREE;
    setp.ne.u32 %p4, %r4, 0;
    @%p4 bra DONE;
    ld.shared.f32 %f1, [part];
    ld.param.u64 %rd4, [out];
    mul.wide.u32 %rd5, %r2, 4;
    add.s64 %rd6, %rd4, %rd5;
    st.global.f32 [%rd6], %f1;
DONE:
    ret;
}";

/// C = A B with square tiles of 16 in shared memory, one thread an element.
fn gemm() -> String {
    let mut text = String::from(
        "
.version 8.0
.target sm_80
.address_size 64
.visible .entry gemm(.param .u32 n, .param .u64 a, .param .u64 b, .param .u64 c) {
    .reg .pred %p<2>; .reg .b32 %r<20>; .reg .f32 %f<8>; .reg .b64 %rd<16>;
    .shared .align 16 .b8 as[1024];
    .shared .align 16 .b8 bs[1024];
    ld.param.u32 %r1, [n];
    ld.param.u64 %rd1, [a];
    ld.param.u64 %rd2, [b];
    mov.u32 %r2, %tid.x;
    mov.u32 %r3, %tid.y;
    mov.u32 %r4, %ctaid.x;
    mov.u32 %r5, %ctaid.y;
    shl.b32 %r6, %r4, 4;
    add.s32 %r6, %r6, %r2;
    shl.b32 %r7, %r5, 4;
    add.s32 %r7, %r7, %r3;
    mad.lo.s32 %r8, %r7, %r1, %r2;
    mad.lo.s32 %r9, %r3, %r1, %r6;
    mul.wide.u32 %rd3, %r8, 4;
    add.s64 %rd3, %rd1, %rd3;
    mul.wide.u32 %rd4, %r9, 4;
    add.s64 %rd4, %rd2, %rd4;
    shl.b32 %r10, %r1, 6;
    cvt.u64.u32 %rd5, %r10;
    shl.b32 %r11, %r3, 6;
    shl.b32 %r12, %r2, 2;
    mov.u32 %r13, as;
    mov.u32 %r14, bs;
    add.s32 %r15, %r13, %r11;
    add.s32 %r16, %r14, %r12;
    add.s32 %r17, %r15, %r12;
    add.s32 %r18, %r16, %r11;
    mov.f32 %f1, 0f00000000;
    mov.u32 %r19, 0;
LOOP:
    ld.global.f32 %f2, [%rd3];
    st.shared.f32 [%r17], %f2;
    ld.global.f32 %f3, [%rd4];
    st.shared.f32 [%r18], %f3;
    bar.sync 0;
",
    );
    for k in 0..16 {
        let _ = write!(
            text,
            "    ld.shared.f32 %f4, [%r15+{}];
    ld.shared.f32 %f5, [%r16+{}];
    fma.rn.f32 %f1, %f4, %f5, %f1;
",
            k * 4,
            k * 64
        );
    }
    text.push_str(
        "    bar.sync 0;
    add.s64 %rd3, %rd3, 64;
    add.s64 %rd4, %rd4, %rd5;
    add.s32 %r19, %r19, 16;
    setp.lt.u32 %p1, %r19, %r1;
    @%p1 bra LOOP;
    ld.param.u64 %rd6, [c];
    mad.lo.s32 %r8, %r7, %r1, %r6;
    mul.wide.u32 %rd7, %r8, 4;
    add.s64 %rd8, %rd6, %rd7;
    st.global.f32 [%rd8], %f1;
    ret;
}",
    );
    text
}

/// C = A B on tensor cores: A by rows, B by columns, 16x32 of C a warp, the
/// fragments straight from global memory.
fn tensor() -> String {
    let mut text = String::from(
        "
.version 8.0
.target sm_80
.address_size 64
.visible .entry tensor(.param .u32 n, .param .u64 a, .param .u64 b, .param .u64 c) {
    .reg .pred %p<2>; .reg .b32 %r<40>; .reg .f32 %f<16>; .reg .b64 %rd<20>;
    ld.param.u32 %r1, [n];
    ld.param.u64 %rd1, [a];
    ld.param.u64 %rd2, [b];
    mov.u32 %r2, %laneid;
    mov.u32 %r3, %tid.y;
    mov.u32 %r4, %ctaid.x;
    mov.u32 %r5, %ctaid.y;
    shr.u32 %r6, %r2, 2;
    and.b32 %r7, %r2, 3;
    shl.b32 %r7, %r7, 1;
    shl.b32 %r8, %r5, 2;
    add.s32 %r8, %r8, %r3;
    shl.b32 %r8, %r8, 4;
    add.s32 %r8, %r8, %r6;
    shl.b32 %r9, %r4, 5;
    mad.lo.s32 %r10, %r8, %r1, %r7;
    mul.wide.u32 %rd3, %r10, 2;
    add.s64 %rd3, %rd1, %rd3;
    shl.b32 %r11, %r1, 4;
    cvt.u64.u32 %rd4, %r11;
    add.s64 %rd5, %rd3, %rd4;
    add.s32 %r12, %r9, %r6;
    mad.lo.s32 %r13, %r12, %r1, %r7;
    mul.wide.u32 %rd6, %r13, 2;
    add.s64 %rd6, %rd2, %rd6;
    add.s64 %rd7, %rd6, %rd4;
    add.s64 %rd8, %rd7, %rd4;
    add.s64 %rd9, %rd8, %rd4;
",
    );
    for at in 0..16 {
        let _ = writeln!(text, "    mov.f32 %f{at}, 0f00000000;");
    }
    text.push_str(
        "    mov.u32 %r14, 0;
LOOP:
    ld.global.b32 %r20, [%rd3];
    ld.global.b32 %r21, [%rd5];
    ld.global.b32 %r22, [%rd3+16];
    ld.global.b32 %r23, [%rd5+16];
",
    );
    for tile in 0..4 {
        let (base, f) = (6 + tile, tile * 4);
        let _ = write!(
            text,
            "    ld.global.b32 %r24, [%rd{base}];
    ld.global.b32 %r25, [%rd{base}+16];
    mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {{%f{f},%f{},%f{},%f{}}}, {{%r20,%r21,%r22,%r23}}, {{%r24,%r25}}, {{%f{f},%f{},%f{},%f{}}};
    add.s64 %rd{base}, %rd{base}, 32;
",
            f + 1, f + 2, f + 3, f + 1, f + 2, f + 3
        );
    }
    text.push_str(
        "    add.s64 %rd3, %rd3, 32;
    add.s64 %rd5, %rd5, 32;
    add.s32 %r14, %r14, 16;
    setp.lt.u32 %p1, %r14, %r1;
    @%p1 bra LOOP;
    ld.param.u64 %rd10, [c];
    add.s32 %r15, %r9, %r7;
    mad.lo.s32 %r16, %r8, %r1, %r15;
    mul.wide.u32 %rd11, %r16, 4;
    add.s64 %rd11, %rd10, %rd11;
    shl.b32 %r17, %r1, 5;
    cvt.u64.u32 %rd12, %r17;
    add.s64 %rd13, %rd11, %rd12;
",
    );
    for tile in 0..4 {
        let (f, at) = (tile * 4, tile * 32);
        let _ = write!(
            text,
            "    st.global.v2.f32 [%rd11+{at}], {{%f{f}, %f{}}};
    st.global.v2.f32 [%rd13+{at}], {{%f{}, %f{}}};
",
            f + 1,
            f + 2,
            f + 3
        );
    }
    text.push_str("    ret;\n}");
    text
}

/// A kernel with a launch and a way to tell that it did what it should.
struct Work {
    name: &'static str,
    program: Program,
    launch: Launch,
    arguments: Arguments,
    verify: fn(&Report) -> bool,
}

/// Small whole numbers, so that every sum is exact in any order.
fn number(at: usize) -> f32 {
    (at * 7 % 11) as f32 - 5.0
}

fn f16(value: f32) -> u16 {
    // Whole numbers up to 5 in size.
    let size = value.abs() as u16;
    let sign = if value < 0.0 { 0x8000 } else { 0 };
    sign | match size {
        0 => 0,
        1 => 0x3c00,
        2 => 0x4000,
        3 => 0x4200,
        4 => 0x4400,
        _ => 0x4500,
    }
}

const SAXPY_N: usize = 1 << 22;
const REDUCE_N: usize = 1 << 23;
const REDUCE_BLOCKS: u32 = 1024;
const GEMM_N: usize = 256;
const TENSOR_N: usize = 512;

fn works() -> Vec<Work> {
    let program = |text: &str| {
        let module = heist_ptx::parse(&heist_ptx::Source::new("speed.ptx", text)).expect("PTX");
        Program::new(module).expect("a program")
    };
    let n = |n: usize| Arg::scalar(n as u32);
    let f32s = |count: usize| (0..count).map(number).collect::<Vec<f32>>();
    let f16s = |count: usize| (0..count).map(|at| f16(number(at))).collect::<Vec<u16>>();
    let zeros = |count: usize| Arg::output::<f32>(count);
    vec![
        Work {
            name: "saxpy",
            program: program(SAXPY),
            launch: Launch::new((SAXPY_N / 256) as u32, 256),
            arguments: Arguments::new([
                n(SAXPY_N),
                Arg::scalar(2.0f32),
                Arg::input(&f32s(SAXPY_N)),
                Arg::in_out(&f32s(SAXPY_N)),
            ]),
            verify: |report| {
                floats(report, 3)
                    .iter()
                    .enumerate()
                    .all(|(at, &y)| y == 3.0 * number(at))
            },
        },
        Work {
            name: "reduce",
            program: program(REDUCE),
            launch: Launch::new(REDUCE_BLOCKS, 256),
            arguments: Arguments::new([
                n(REDUCE_N),
                Arg::input(&f32s(REDUCE_N)),
                zeros(REDUCE_BLOCKS as usize),
            ]),
            verify: |report| {
                floats(report, 2).iter().sum::<f32>() == (0..REDUCE_N).map(number).sum::<f32>()
            },
        },
        Work {
            name: "gemm",
            program: program(&gemm()),
            launch: Launch::new([GEMM_N as u32 / 16, GEMM_N as u32 / 16, 1], [16, 16, 1]),
            arguments: Arguments::new([
                n(GEMM_N),
                Arg::input(&f32s(GEMM_N * GEMM_N)),
                Arg::input(&f32s(GEMM_N * GEMM_N)),
                zeros(GEMM_N * GEMM_N),
            ]),
            verify: |report| is_product(report, GEMM_N, |k, column| k * GEMM_N + column),
        },
        Work {
            name: "tensor",
            program: program(&tensor()),
            launch: Launch::new([TENSOR_N as u32 / 32, TENSOR_N as u32 / 64, 1], [32, 4, 1]),
            arguments: Arguments::new([
                n(TENSOR_N),
                Arg::input(&f16s(TENSOR_N * TENSOR_N)),
                Arg::input(&f16s(TENSOR_N * TENSOR_N)),
                zeros(TENSOR_N * TENSOR_N),
            ]),
            verify: |report| is_product(report, TENSOR_N, |k, column| column * TENSOR_N + k),
        },
    ]
}

fn floats(report: &Report, argument: usize) -> Vec<f32> {
    report
        .outcome
        .output(argument)
        .and_then(|buffer| buffer.to_vec())
        .unwrap_or_default()
}

fn is_product(report: &Report, n: usize, b: impl Fn(usize, usize) -> usize) -> bool {
    let c = floats(report, 3);
    // A few rows tell; every element of them is checked.
    [0, 1, n / 2 + 3, n - 1].into_iter().all(|row| {
        (0..n).all(|column| {
            let sum: f32 = (0..n)
                .map(|k| number(row * n + k) * number(b(k, column)))
                .sum();
            c.get(row * n + column) == Some(&sum)
        })
    })
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let only = arguments.first().map(String::as_str);
    let rounds: usize = arguments
        .get(1)
        .map_or(3, |text| text.parse().expect("a number of rounds"));
    let counts: Vec<u32> = arguments.get(2).map_or(vec![1, 2], |text| {
        vec![text.parse().expect("a number of threads")]
    });
    let device = Device::named("sim:h200").expect("a device");
    println!(
        "{:<8} {:>7} {:>14} {:>11} {:>13} {:>12} {:>9}",
        "kernel",
        "threads",
        "thread instr.",
        "wall M/s",
        "processor M/s",
        "ns/warp inst",
        "peak MiB"
    );
    for work in works() {
        if only.is_some_and(|name| name != work.name && name != "all") {
            continue;
        }
        for &threads in &counts {
            let options = Options {
                threads: threads as usize,
                ..Options::default()
            };
            forget_peak();
            let (mut wall, mut busy) = (f64::MAX, f64::MAX);
            let mut stats = None;
            for _ in 0..rounds {
                let (start, used) = (Instant::now(), processor_seconds());
                let report = work
                    .program
                    .run(&device, work.name, &work.launch, &work.arguments, &options)
                    .expect("a launch");
                wall = wall.min(start.elapsed().as_secs_f64());
                busy = busy.min(processor_seconds() - used);
                assert!(report.diagnostics.is_empty(), "{:?}", report.diagnostics);
                assert!((work.verify)(&report), "{} computes wrongly", work.name);
                stats = Some(report.stats);
            }
            let stats = stats.expect("at least one round");
            let done = stats.thread_instructions as f64;
            println!(
                "{:<8} {:>7} {:>14} {:>11.0} {:>13.0} {:>12.1} {:>9}",
                work.name,
                threads,
                stats.thread_instructions,
                done / wall / 1e6,
                done / (busy / f64::from(threads)) / 1e6,
                busy * 1e9 / stats.warp_instructions as f64,
                peak_mib()
            );
        }
    }
}

/// Seconds of processor time that this process has used.
fn processor_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = text.rsplit(')').next().unwrap_or("").split(' ').collect();
    let ticks = |at: usize| {
        fields
            .get(at)
            .and_then(|text| text.parse::<f64>().ok())
            .unwrap_or(f64::NAN)
    };
    (ticks(12) + ticks(13)) / 100.0
}

/// Starts measuring the most memory anew.
fn forget_peak() {
    // Where it can't be written, the figure is of the whole process so far.
    let _ = std::fs::write("/proc/self/clear_refs", "5");
}

/// The most memory that the process had, in MiB.
fn peak_mib() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    text.lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .and_then(|rest| rest.trim().trim_end_matches(" kB").parse::<u64>().ok())
        .unwrap_or(0)
        / 1024
}
