//! What a kernel is said to need is what a launch of it is judged by.

use heist_launch::{Arguments, Launch};
use heist_ptx::rule;
use heist_sim::{Device, Options, Program};

/// A block of it has 20,000 bytes of shared memory of its own.
const STATIC: &str = "
.version 8.0
.target sm_90
.address_size 64
.visible .entry quiet()
    .maxntid 256, 1, 1
{
    .shared .align 4 .b8 own[20000];
    .reg .u32 r;
    mov.u32 r, own;
    st.shared.u32 [r], r;
    ret;
}
";

fn program() -> Program {
    let source = heist_ptx::Source::new("static.ptx", STATIC);
    Program::new(heist_ptx::parse(&source).expect("it is right")).expect("it can be placed")
}

/// The largest cooperative grid that is promised is taken, and one block more is not.
#[test]
fn a_cooperative_grid_of_the_promised_size_is_taken() {
    let device = Device::named("sim:h200").expect("a device");
    let options = Options {
        cooperative: true,
        ..Options::default()
    };
    let program = program();
    for (threads, dynamic) in [(64, 0), (256, 0), (32, 30_000), (256, 1)] {
        let needs = program
            .needs(&device, "quiet", threads, dynamic)
            .expect("a kernel");
        assert_eq!(needs.static_shared, 20_000);
        assert_eq!(needs.most_threads, Some(256));
        let run = |blocks: u32| {
            let mut launch = Launch::new(blocks, threads);
            launch.dynamic_shared = dynamic;
            program.run(&device, "quiet", &launch, &Arguments::default(), &options)
        };
        let most = needs.resident * device.gpu().sms;
        assert!(run(most).is_ok(), "{threads} threads, {dynamic} bytes");
        let refused = run(most + 1).expect_err("one block more");
        assert_eq!(refused[0].code, rule::GRID_SIZE);
    }
}

#[test]
fn a_launch_that_is_refused_is_told_what_to_do() {
    let (program, device) = (program(), Device::named("sim:h200").expect("a device"));
    for (launch, code, help) in [
        (Launch::new((1, 70_000, 1), 32), rule::GRID_SIZE, "65535"),
        (Launch::new(1, 2048), rule::BLOCK_SIZE, "fewer threads"),
    ] {
        let none = Arguments::default();
        let refused = program.run(&device, "quiet", &launch, &none, &Options::default());
        let refused = refused.expect_err("too much");
        let found = refused.iter().find(|one| one.code == code);
        let helps = &found.expect("it is refused").helps;
        assert!(helps.iter().any(|one| one.contains(help)), "{helps:?}");
    }
}

/// 600 registers that are live at once, under directives.
fn wide(directives: &str) -> Program {
    let numbers = 0..600;
    let loads = numbers
        .clone()
        .map(|i| format!("ld.global.u32 r{i}, [d+{}];\n", 4 * i));
    let stores = numbers.map(|i| format!("st.global.u32 [d+{}], r{i};\n", 4 * i));
    let text = format!(
        ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry wide(.param .u64 p) {directives}\n\
         {{ .reg .u64 d; .reg .u32 r<600>; ld.param.u64 d, [p];\n{}{}ret; }}",
        loads.collect::<String>(),
        stores.collect::<String>(),
    );
    let source = heist_ptx::Source::new("wide.ptx", text);
    Program::new(heist_ptx::parse(&source).expect("it is right")).expect("it can be placed")
}

/// ptxas keeps to so many registers that the blocks of `.minnctapersm` fit; what fits then is what it makes of the same text.
#[test]
fn as_many_blocks_are_resident_as_the_kernel_asks_for() {
    let device = Device::named("sim:h200").expect("a device");
    let resident = |directives: &str, threads: u32| {
        let needs = wide(directives).needs(&device, "wide", threads, 0);
        needs.expect("a kernel").resident
    };
    assert_eq!(resident("", 160), 1);
    assert_eq!(resident(".maxntid 160, 1, 1", 160), 1);
    assert_eq!(resident(".maxntid 160, 1, 1 .minnctapersm 5", 160), 5);
    // Without a number of threads the directive says nothing.
    assert_eq!(resident(".minnctapersm 5", 160), 1);
    assert_eq!(resident(".reqntid 96, 1, 1 .minnctapersm 6", 96), 6);
    // The smaller bound holds.
    assert_eq!(
        resident(".maxntid 160, 1, 1 .minnctapersm 5 .maxnreg 128", 160),
        5
    );
    assert_eq!(
        resident(".maxntid 160, 1, 1 .minnctapersm 2 .maxnreg 32", 160),
        12
    );
}
