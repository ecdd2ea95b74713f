//! A kernel of one's own through the front door.

use heist::builder::{Arch, Global, With, kernel_params};
use heist::launch::Arg;
use heist::run::{Device, Settings};
use heist::sched::{TileSource, Tiled, TiledKernel, Watch};
use heist::tiled::{self, TiledError, TiledRun};

kernel_params! {
    /// What `double` works on.
    pub struct Double { data: Global<u32>, n: u32 }
}

fn double(source: TileSource, arch: Arch) -> TiledKernel<Double> {
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

fn run(device: &str, source: TileSource, own: Double<With<Arg>>) -> Result<TiledRun, TiledError> {
    let device = Device::open(device.parse().expect("a name")).expect("it is simulated");
    let kernel = double(source, device.arch()?);
    tiled::run(&device, &kernel, own, &Settings::default())
}

#[test]
fn it_runs_on_every_device_from_every_source() {
    for device in ["sim:l4", "sim:a100", "sim:h200", "sim:b200", "sim:rtx5090"] {
        for source in TileSource::ALL {
            let clc = matches!(device, "sim:b200" | "sim:rtx5090");
            if source == TileSource::Clc && !clc {
                continue;
            }
            let own = Double {
                data: Arg::in_out(&[21u32; 600]),
                n: 600,
            };
            let ran = run(device, source, own).expect("a run");
            assert_eq!(ran.exactly_once(), Some(true), "{device} {source}");
            let data = ran.output("data").expect("a buffer");
            assert_eq!(data.to_vec::<u32>().expect("of u32"), [42; 600]);
        }
    }
}

#[test]
fn what_is_found_is_an_error_with_its_lines_of_rust_and_of_ptx() {
    let own = Double {
        data: Arg::in_out(&[1u32; 10]),
        n: 600,
    };
    let error = run("sim:h200", TileSource::Ticket, own).expect_err("past the end");
    let TiledError::Found(found) = &error else {
        panic!("{error}");
    };
    let first = &found.execution.findings[0];
    assert_eq!(first.code.0, "M001");
    let line = found.source.position(first.span).line;
    assert!(found.source.line(line).contains("ld.global"), "{error}");
    let said = error.to_string();
    // The line of Rust that made the instruction comes first, and then that of the PTX.
    let (heading, notes) = said.split_once('\n').expect("notes");
    assert!(heading.starts_with(concat!(file!(), ":")), "{said}");
    assert!(heading.contains("error[M001]"), "{said}");
    assert!(
        notes.contains(&format!("in PTX, line {line}: `ld.global")),
        "{said}"
    );
}

/// Each thread reads what its neighbour wrote to shared memory. Without the barrier
/// between them the simulated order still gives the right numbers.
fn rotate(synced: bool, arch: Arch) -> TiledKernel<Double> {
    let tiled = Tiled::<Double>::new("rotate", 1).block(64);
    let built = tiled.build(arch, |k, args, tiles| {
        let scratch = k.shared::<u32>("scratch", 64);
        tiles.each(|tile| {
            let i = tile.x * 64 + k.thread().x;
            scratch.at(k.thread().x).store(args.data.at(i).load());
            if synced {
                k.sync();
            }
            let neighbour = k.thread().x ^ args.n;
            args.data.at(i).store(scratch.at(neighbour).load());
        })
    });
    built.expect("a kernel")
}

#[test]
fn a_dropped_barrier_is_an_error_even_where_the_result_is_right_by_luck() {
    let device = Device::open("sim:h200".parse().expect("a name")).expect("it is simulated");
    let arch = device.arch().expect("one that is known");
    // Neighbours within a warp: the result is right without the barrier as well.
    let own = || Double {
        data: Arg::in_out(&[7u32; 64]),
        n: 1,
    };
    let settings = Settings::default();
    tiled::run(&device, &rotate(true, arch), own(), &settings).expect("no race");
    let racy = rotate(false, arch);
    let error = tiled::run(&device, &racy, own(), &settings).expect_err("a race");
    let said = error.to_string();
    assert!(said.contains("error[R00"), "{said}");
    let seen = tiled::inspect(&device, &racy, own(), &settings).expect("findings are looked at");
    assert!(!seen.execution.findings.is_empty());
    assert_eq!(
        seen.output("data").expect("data").to_vec(),
        Some(vec![7u32; 64])
    );
}

#[test]
fn outputs_are_the_kernels_own_by_name_and_in_order() {
    let own = Double {
        data: Arg::in_out(&[21u32; 600]),
        n: 600,
    };
    let run = run("sim:h200", TileSource::Ticket, own).expect("a run");
    let names: Vec<&str> = run.outputs().map(|(name, _)| name).collect();
    assert_eq!(names, ["data"]);
    assert!(run.output("n").is_none() && run.output("control").is_none());
}
