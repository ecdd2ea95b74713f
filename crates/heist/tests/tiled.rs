//! A kernel of one's own through the front door.

use heist::builder::{Arch, Global, kernel_params};
use heist::device::{Device, Settings};
use heist::launch::Arg;
use heist::sched::{Source, Tiled, TiledKernel, Watch};
use heist::tiled::{self, RunError};

kernel_params! {
    /// What `double` works on.
    pub struct Double { data: Global<u32>, n: u32 }
}

fn double(source: Source, arch: Arch) -> TiledKernel<Double> {
    let tiled = Tiled::<Double>::new("double", [5, 2])
        .source(source)
        .block(64)
        .watch(Watch::Trace);
    let built = tiled.build(arch, |k, args, tiles| {
        tiles.each(|tile| {
            let i = (tile.y * 5 + tile.x) * 64 + k.thread().x;
            k.if_(i.lt(args.n), || args.data.at(i).update(|v| v * 2));
        })
    });
    built.expect("a kernel")
}

fn run(device: &str, source: Source, own: Vec<Arg>) -> Result<tiled::Ran, RunError> {
    let device = Device::open(device.parse().expect("a name")).expect("it is simulated");
    let kernel = double(source, tiled::arch_of(&device)?);
    tiled::run(&device, &kernel, own, &Settings::default())
}

#[test]
fn it_runs_on_every_device_from_every_source() {
    for device in ["sim:l4", "sim:a100", "sim:h200", "sim:b200", "sim:rtx5090"] {
        for source in Source::ALL {
            let clc = matches!(device, "sim:b200" | "sim:rtx5090");
            if source == Source::Clc && !clc {
                continue;
            }
            let own = vec![Arg::in_out(&[21u32; 600]), Arg::scalar(600u32)];
            let ran = run(device, source, own).expect("a run");
            assert_eq!(ran.diagnostics, [], "{device} {source}");
            assert_eq!(ran.exactly_once(), Some(true), "{device} {source}");
            let data = ran.outcome.output(0).expect("a buffer");
            assert_eq!(data.to_vec::<u32>().expect("of u32"), [42; 600]);
        }
    }
}

#[test]
fn what_is_found_has_a_line_of_its_ptx() {
    let own = vec![Arg::in_out(&[1u32; 10]), Arg::scalar(600u32)];
    let ran = run("sim:h200", Source::Ticket, own).expect("a run");
    let found = ran.diagnostics.first().expect("past the end");
    assert_eq!(found.code.0, "M001");
    let line = ran.text.position(found.span).line as usize;
    let text = ran.text.text().lines().nth(line - 1).expect("a line");
    assert!(text.contains("ld.global"), "{text}");
}

#[test]
fn arguments_are_counted_without_those_of_the_scheduler() {
    let error = run("sim:h200", Source::Ticket, vec![Arg::scalar(1u32)]);
    let said = error.expect_err("one is missing").to_string();
    assert_eq!(said, "the kernel takes 2 arguments (data, n); given: 1");
}
