//! How fast the simulator runs, all checks on: thread-instructions a second on a
//! vector addition, a tree reduction and a tiled matrix product.
//!
//! `cargo run --release -p heist-sim --example speed`

use heist_launch::{Arg, Arguments, Launch};
use heist_ptx::Source;
use heist_sim::{Checks, Device, Options, Program};
use std::time::Instant;

const SAXPY: &str = r#"
.version 8.0
.target sm_80
.address_size 64
.visible .entry saxpy(.param .u64 px, .param .u64 py, .param .f32 pa, .param .u32 pn)
{
    .reg .pred %p<2>; .reg .b32 %r<8>; .reg .f32 %f<5>; .reg .b64 %rd<8>;
    ld.param.u64 %rd1, [px];
    ld.param.u64 %rd2, [py];
    ld.param.f32 %f1, [pa];
    ld.param.u32 %r1, [pn];
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ntid.x;
    mov.u32 %r4, %tid.x;
    mad.lo.s32 %r5, %r2, %r3, %r4;
    setp.ge.s32 %p1, %r5, %r1;
    @%p1 bra DONE;
    cvta.to.global.u64 %rd3, %rd1;
    cvta.to.global.u64 %rd4, %rd2;
    mul.wide.s32 %rd5, %r5, 4;
    add.s64 %rd6, %rd3, %rd5;
    add.s64 %rd7, %rd4, %rd5;
    ld.global.f32 %f2, [%rd6];
    ld.global.f32 %f3, [%rd7];
    fma.rn.f32 %f4, %f1, %f2, %f3;
    st.global.f32 [%rd7], %f4;
DONE:
    ret;
}
"#;

const REDUCE: &str = r#"
.version 8.0
.target sm_80
.address_size 64
.visible .entry reduce(.param .u64 pin, .param .u64 pout)
{
    .reg .pred %p<3>; .reg .b32 %r<12>; .reg .f32 %f<4>; .reg .b64 %rd<6>;
    .shared .align 4 .b8 tile[1024];
    ld.param.u64 %rd1, [pin];
    ld.param.u64 %rd2, [pout];
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, %ctaid.x;
    shl.b32 %r3, %r2, 8;
    add.s32 %r4, %r3, %r1;
    mul.wide.s32 %rd3, %r4, 4;
    add.s64 %rd4, %rd1, %rd3;
    ld.global.f32 %f1, [%rd4];
    shl.b32 %r5, %r1, 2;
    mov.u32 %r6, tile;
    add.s32 %r7, %r6, %r5;
    st.shared.f32 [%r7], %f1;
    bar.sync 0;
    mov.u32 %r8, 128;
LOOP:
    setp.ge.u32 %p1, %r1, %r8;
    @%p1 bra SKIP;
    shl.b32 %r9, %r8, 2;
    add.s32 %r10, %r7, %r9;
    ld.shared.f32 %f2, [%r10];
    ld.shared.f32 %f3, [%r7];
    add.f32 %f3, %f3, %f2;
    st.shared.f32 [%r7], %f3;
SKIP:
    bar.sync 0;
    shr.u32 %r8, %r8, 1;
    setp.ne.s32 %p2, %r8, 0;
    @%p2 bra LOOP;
    setp.ne.s32 %p1, %r1, 0;
    @%p1 bra DONE;
    ld.shared.f32 %f1, [tile];
    mul.wide.s32 %rd3, %r2, 4;
    add.s64 %rd5, %rd2, %rd3;
    st.global.f32 [%rd5], %f1;
DONE:
    ret;
}
"#;

/// A 16x16 tile product, its inner loop unrolled as a compiler does.
fn gemm() -> String {
    let mut body = String::new();
    for k in 0..16 {
        body += &format!(
            "    ld.shared.f32 %f1, [%r20+{}];\n    ld.shared.f32 %f2, [%r21+{}];\n    fma.rn.f32 %f10, %f1, %f2, %f10;\n",
            k * 4,
            k * 64
        );
    }
    format!(
        r#"
.version 8.0
.target sm_80
.address_size 64
.visible .entry gemm(.param .u64 pa, .param .u64 pb, .param .u64 pc, .param .u32 pn)
{{
    .reg .pred %p<3>; .reg .b32 %r<40>; .reg .f32 %f<12>; .reg .b64 %rd<20>;
    .shared .align 4 .b8 as_[1024];
    .shared .align 4 .b8 bs_[1024];
    ld.param.u64 %rd1, [pa];
    ld.param.u64 %rd2, [pb];
    ld.param.u64 %rd3, [pc];
    ld.param.u32 %r1, [pn];
    mov.u32 %r2, %tid.x;
    mov.u32 %r3, %tid.y;
    mov.u32 %r4, %ctaid.x;
    mov.u32 %r5, %ctaid.y;
    shl.b32 %r6, %r5, 4;
    add.s32 %r7, %r6, %r3;
    shl.b32 %r8, %r4, 4;
    add.s32 %r9, %r8, %r2;
    mov.u32 %r10, as_;
    mov.u32 %r11, bs_;
    shl.b32 %r12, %r3, 6;
    shl.b32 %r13, %r2, 2;
    add.s32 %r20, %r10, %r12;
    add.s32 %r21, %r11, %r13;
    add.s32 %r22, %r20, %r13;
    add.s32 %r23, %r21, %r12;
    mov.f32 %f10, 0f00000000;
    mov.u32 %r14, 0;
LOOP:
    add.s32 %r15, %r14, %r2;
    mad.lo.s32 %r16, %r7, %r1, %r15;
    mul.wide.s32 %rd4, %r16, 4;
    add.s64 %rd5, %rd1, %rd4;
    ld.global.f32 %f3, [%rd5];
    st.shared.f32 [%r22], %f3;
    add.s32 %r17, %r14, %r3;
    mad.lo.s32 %r18, %r17, %r1, %r9;
    mul.wide.s32 %rd6, %r18, 4;
    add.s64 %rd7, %rd2, %rd6;
    ld.global.f32 %f4, [%rd7];
    st.shared.f32 [%r23], %f4;
    bar.sync 0;
{body}    bar.sync 0;
    add.s32 %r14, %r14, 16;
    setp.lt.s32 %p1, %r14, %r1;
    @%p1 bra LOOP;
    mad.lo.s32 %r19, %r7, %r1, %r9;
    mul.wide.s32 %rd8, %r19, 4;
    add.s64 %rd9, %rd3, %rd8;
    st.global.f32 [%rd9], %f10;
    ret;
}}
"#
    )
}

fn run(
    only: Option<&str>,
    name: &str,
    text: &str,
    entry: &str,
    launch: Launch,
    arguments: Arguments,
    checks: Checks,
) {
    if only.is_some_and(|only| only != name) {
        return;
    }
    let source = Source::new(name, text);
    let module = heist_ptx::parse(&source).expect("the kernel is PTX");
    let program = Program::new(module).expect("its variables can be placed");
    let device = Device::named("sim:h200").expect("a known device");
    let options = Options {
        checks,
        ..Options::default()
    };
    let started = Instant::now();
    let report = program
        .run(&device, entry, &launch, &arguments, &options)
        .expect("the launch is accepted");
    let seconds = started.elapsed().as_secs_f64();
    assert!(report.diagnostics.is_empty(), "{:?}", report.diagnostics);
    let millions = report.stats.thread_instructions as f64 / 1e6;
    println!(
        "{name:8} {:8.1} M thread-instructions in {:6.1} ms: {:7.0} M/s, {:5.1} ns a warp instruction",
        millions,
        seconds * 1e3,
        millions / seconds,
        seconds * 1e9 / report.stats.warp_instructions as f64,
    );
}

fn main() {
    let only = std::env::args().nth(1);
    for checks in [Checks::ALL, Checks::FEWEST] {
        println!(
            "{}",
            if checks == Checks::ALL {
                "all checks on"
            } else {
                "bounds and barriers only"
            }
        );
        let n = 1 << 22;
        let x: Vec<f32> = (0..n).map(|i| i as f32).collect();
        run(
            only.as_deref(),
            "saxpy",
            SAXPY,
            "saxpy",
            Launch::new(n as u32 / 256, 256),
            Arguments::new([
                Arg::input(&x),
                Arg::in_out(&x),
                Arg::scalar(2.0f32),
                Arg::scalar(n as u32),
            ]),
            checks,
        );
        run(
            only.as_deref(),
            "reduce",
            REDUCE,
            "reduce",
            Launch::new(n as u32 / 256, 256),
            Arguments::new([Arg::input(&x), Arg::output::<f32>(n / 256)]),
            checks,
        );
        let size = 256usize;
        let a: Vec<f32> = (0..size * size).map(|i| (i % 7) as f32).collect();
        run(
            only.as_deref(),
            "gemm",
            &gemm(),
            "gemm",
            Launch::new((16, 16, 1), (16, 16, 1)),
            Arguments::new([
                Arg::input(&a),
                Arg::input(&a),
                Arg::output::<f32>(size * size),
                Arg::scalar(size as u32),
            ]),
            checks,
        );
    }
}
