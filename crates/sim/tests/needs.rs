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
