//! Simulating one kernel: `heist-sim`, with every check on, beside the crate `ptoxide`.
//!
//! `cargo xtask bench simulate`
//!
//! The kernel is a matrix product with tiles of 16 in shared memory, in PTX that
//! both take. Both results are checked, the two take turns, and each figure is
//! the best of the rounds: of the wall clock, and of processor time divided by the
//! threads, which is what a machine with nothing else to do would take. Thread-instructions are counted by `heist-sim`, and are
//! the same for both.

use heist_launch::{Arg, Arguments, Launch};
use heist_sim::{Device, Options, Program};
use ptoxide::{Argument, Context, LaunchParams};
use std::time::{Duration, Instant};

const ROUNDS: usize = 5;
/// Rows and columns.
const N: usize = 256;

const GEMM: &str = "
.version 8.0
.target sm_80
.address_size 64
.visible .entry gemm(
    .param .u64 gemm_a,
    .param .u64 gemm_b,
    .param .u64 gemm_c,
    .param .u64 gemm_n
)
{
    .reg .pred %p<2>;
    .reg .f32 %f<6>;
    .reg .b32 %r<16>;
    .reg .b64 %rd<20>;
    .shared .align 4 .b8 tile_a[1024];
    .shared .align 4 .b8 tile_b[1024];
    ld.param.u64 %rd1, [gemm_a];
    ld.param.u64 %rd2, [gemm_b];
    ld.param.u64 %rd3, [gemm_n];
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, %tid.y;
    mov.u32 %r3, %ctaid.x;
    mov.u32 %r4, %ctaid.y;
    cvt.u32.u64 %r5, %rd3;
    shl.b32 %r6, %r3, 4;
    add.s32 %r6, %r6, %r1;
    shl.b32 %r7, %r4, 4;
    add.s32 %r7, %r7, %r2;
    mad.lo.s32 %r8, %r7, %r5, %r1;
    mad.lo.s32 %r9, %r2, %r5, %r6;
    shl.b32 %r10, %r2, 6;
    mov.u32 %r11, tile_a;
    add.s32 %r11, %r11, %r10;
    shl.b32 %r12, %r1, 2;
    mov.u32 %r13, tile_b;
    add.s32 %r13, %r13, %r12;
    add.s32 %r14, %r11, %r12;
    add.s32 %r15, %r13, %r10;
    mov.f32 %f1, 0f00000000;
    mov.u32 %r10, 0;
LOOP:
    mul.wide.s32 %rd4, %r8, 4;
    add.s64 %rd5, %rd1, %rd4;
    ld.global.f32 %f2, [%rd5];
    st.shared.f32 [%r14], %f2;
    mul.wide.s32 %rd6, %r9, 4;
    add.s64 %rd7, %rd2, %rd6;
    ld.global.f32 %f3, [%rd7];
    st.shared.f32 [%r15], %f3;
    bar.sync 0;
INNER
    bar.sync 0;
    add.s32 %r8, %r8, 16;
    shl.b32 %r12, %r5, 4;
    add.s32 %r9, %r9, %r12;
    add.s32 %r10, %r10, 16;
    setp.lt.s32 %p1, %r10, %r5;
    @%p1 bra LOOP;
    ld.param.u64 %rd8, [gemm_c];
    mad.lo.s32 %r8, %r7, %r5, %r6;
    mul.wide.s32 %rd9, %r8, 4;
    add.s64 %rd10, %rd8, %rd9;
    st.global.f32 [%rd10], %f1;
    ret;
}
";

fn kernel() -> String {
    let inner: String = (0..16)
        .map(|k| {
            format!(
                "    ld.shared.f32 %f4, [%r11+{}];\n    ld.shared.f32 %f5, [%r13+{}];\n    fma.rn.f32 %f1, %f4, %f5, %f1;\n",
                k * 4,
                k * 64
            )
        })
        .collect();
    GEMM.replace("INNER\n", &inner)
}

/// Small whole numbers, so that sums are exact.
fn number(at: usize) -> f32 {
    (at * 7 % 11) as f32 - 5.0
}

fn is_product(c: &[f32]) -> bool {
    (0..N * N).all(|at| {
        let (row, column) = (at / N, at % N);
        let sum: f32 = (0..N)
            .map(|k| number(row * N + k) * number(k * N + column))
            .sum();
        c.get(at) == Some(&sum)
    })
}

/// How long something took: on the wall, and for each of its threads on a processor.
#[derive(Clone, Copy)]
struct Took {
    wall: Duration,
    busy: Duration,
}

impl Took {
    const MOST: Took = Took {
        wall: Duration::MAX,
        busy: Duration::MAX,
    };

    /// Measures `work` on some threads.
    fn of<R>(threads: usize, work: impl FnOnce() -> R) -> (Took, R) {
        let (start, before) = (Instant::now(), processor_time());
        let result = work();
        let took = Took {
            wall: start.elapsed(),
            busy: (processor_time() - before) / threads as u32,
        };
        (took, result)
    }

    fn min(self, other: Took) -> Took {
        Took {
            wall: self.wall.min(other.wall),
            busy: self.busy.min(other.busy),
        }
    }
}

/// Processor time that this process has used, in steps of 10 ms.
fn processor_time() -> Duration {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = text.rsplit(')').next().unwrap_or_default().split(' ');
    let ticks: u64 = fields
        .skip(12)
        .take(2)
        .filter_map(|text| text.parse::<u64>().ok())
        .sum();
    Duration::from_millis(10 * ticks)
}

/// One run of ours: how long the launch took, and the thread-instructions.
fn heist(program: &Program, threads: usize) -> (Took, u64) {
    let device = Device::named("sim:h200").expect("a device");
    let input: Vec<f32> = (0..N * N).map(number).collect();
    let arguments = Arguments::new([
        Arg::input(&input),
        Arg::input(&input),
        Arg::output::<f32>(N * N),
        Arg::scalar(N as u64),
    ]);
    let blocks = (N / 16) as u32;
    let launch = Launch::new([blocks, blocks, 1], [16, 16, 1]);
    let options = Options {
        threads,
        ..Options::default()
    };
    let (took, report) = Took::of(threads, || {
        program
            .run(&device, "gemm", &launch, &arguments, &options)
            .expect("a launch")
    });
    assert!(report.diagnostics.is_empty(), "{:?}", report.diagnostics);
    let c = report
        .outcome
        .output(2usize)
        .and_then(|buffer| buffer.to_vec())
        .expect("a result");
    assert!(is_product(&c), "heist computes wrongly");
    (took, report.stats.thread_instructions)
}

/// One run of theirs.
fn peer(context: &mut Context) -> Took {
    let input: Vec<f32> = (0..N * N).map(number).collect();
    let mut output = vec![0f32; N * N];
    context.reset_mem();
    let (a, b, c) = (
        context.alloc(N * N),
        context.alloc(N * N),
        context.alloc(N * N),
    );
    context.write(a, &input);
    context.write(b, &input);
    context.write(c, &output);
    let blocks = (N / 16) as u32;
    let arguments = [
        Argument::ptr(a),
        Argument::ptr(b),
        Argument::ptr(c),
        Argument::U64(N as u64),
    ];
    let launch = LaunchParams::func("gemm")
        .grid2d(blocks, blocks)
        .block2d(16, 16);
    let (took, ()) = Took::of(1, || {
        context.run(launch, &arguments).expect("ptoxide runs it");
    });
    context.read(c, &mut output);
    assert!(is_product(&output), "ptoxide computes wrongly");
    took
}

fn main() {
    let text = kernel();
    let module = heist_ptx::parse(&heist_ptx::Source::new("gemm.ptx", text.as_str()))
        .expect("PTX that heist takes");
    let program = Program::new(module).expect("a program");
    let mut context = Context::new_with_module(&text).expect("PTX that ptoxide takes");
    let (mut one, mut two, mut theirs) = (Took::MOST, Took::MOST, Took::MOST);
    let mut instructions = 0;
    for _ in 0..ROUNDS {
        let (took, count) = heist(&program, 1);
        one = one.min(took);
        instructions = count;
        two = two.min(heist(&program, 2).0);
        theirs = theirs.min(peer(&mut context));
    }
    println!("tiled matrix product, {N}x{N}, {instructions} thread-instructions, best of {ROUNDS}");
    println!(
        "{:<30} {:>9} {:>8} {:>6}   {:>9} {:>8} {:>6}",
        "", "wall ms", "M/s", "ratio", "busy ms", "M/s", "ratio"
    );
    let rate = |took: Duration| instructions as f64 / took.as_secs_f64() / 1e6;
    let ratio = |theirs: Duration, ours: Duration| theirs.as_secs_f64() / ours.as_secs_f64();
    for (name, took) in [
        ("ptoxide (no checks)", theirs),
        ("heist, 1 thread (all checks)", one),
        ("heist, 2 threads (all checks)", two),
    ] {
        println!(
            "{name:<30} {:>9.1} {:>8.1} {:>6.1}   {:>9.1} {:>8.1} {:>6.1}",
            took.wall.as_secs_f64() * 1e3,
            rate(took.wall),
            ratio(theirs.wall, took.wall),
            took.busy.as_secs_f64() * 1e3,
            rate(took.busy),
            ratio(theirs.busy, took.busy),
        );
    }
}
