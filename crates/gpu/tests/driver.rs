//! The hardware checks against a stand-in for the driver, so that this crate's own
//! bookkeeping (who faulted, what is cached, what is refused) is tested on
//! machines without a GPU.
//!
//! The driver's library is found when the process starts, so the checks run in a
//! process of their own, this test's program again, which finds the stand-in.

#![cfg(target_os = "linux")]

#[path = "hardware/checks.rs"]
mod checks;

use heist_gpu::{Gpu, GpuError, JitOptions, KernelArg, LaunchOptions, PtxText};
use heist_launch::{Launch, Swizzle, TensorElement, TensorMap};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

const INNER: &str = "HEIST_GPU_TEST_INNER";

#[test]
fn everything_works_against_a_stand_in() {
    if std::env::var_os(INNER).is_some() {
        device();
        refusals();
        shared_memory_of_many_plans();
        green_context();
        tensor_map();
        anothers_context();
        let failed = checks::run_all().unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(failed, 0, "checks failed");
        return;
    }
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("driver");
    std::fs::create_dir_all(&folder).unwrap();
    let built = Command::new("cc")
        .args(["-shared", "-fPIC", "-w", "-O1", "-o"])
        .arg(folder.join("libcuda.so.1"))
        .arg(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/tests/driver/libcuda.c"
        ))
        .status()
        .expect("cc, which links Rust programs too");
    assert!(built.success(), "the stand-in does not compile");
    let output = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "everything_works_against_a_stand_in",
            "--nocapture",
        ])
        .env(INNER, "1")
        .env("LD_LIBRARY_PATH", &folder)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains("Stand-in"),
        "{text}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// What the stand-in says of its device.
fn device() {
    let gpu = Gpu::open(0).unwrap();
    let info = gpu.info();
    assert_eq!(format!("{gpu:?}"), "Gpu(0, Stand-in)");
    assert_eq!(
        (info.name.as_str(), info.uuid, info.sms),
        ("Stand-in", [7; 16], 132)
    );
    assert_eq!((info.memory, info.threads_per_sm), (141 << 30, 2048));
    assert!(info.clusters && info.tensor_maps && !info.cluster_launch_control());
    assert_eq!(info.limits.grid, (0x7fff_ffff, 65535, 65535).into());
    assert_eq!(info.limits.block, (1024, 1024, 64).into());
    assert_eq!(
        (info.limits.blocks_per_cluster, info.limits.shared_per_block),
        (16, 232_448)
    );
    let mut blackwell = info.clone();
    blackwell.capability.major = 10;
    assert!(blackwell.cluster_launch_control());
    assert!(matches!(
        Gpu::open(1),
        Err(GpuError::NoSuchDevice {
            ordinal: 1,
            count: 1
        })
    ));
}

/// What only the stand-in does: it refuses blocks of 13 threads with the status that the
/// grid says, and one such block with 950 and a bit for each attribute.
fn refusals() {
    let gpu = Gpu::open(0).unwrap();
    let text = PtxText::new("kernels.ptx", include_str!("hardware/kernels.ptx"));
    let program = gpu.load(&text, &JitOptions::default()).unwrap();
    assert_eq!(program.log(), "ptxas info    : Used 16 registers");
    let kernel = Arc::new(program.kernel("add_one").unwrap());
    let stream = gpu.stream().unwrap();
    let status_and_note = |result| match result {
        Err(GpuError::Refused { status, note, .. }) => (status.code, note.unwrap_or_default()),
        other => panic!("{other:?}"),
    };
    let refused = |launch: &Launch, options: &LaunchOptions| {
        let arguments = [KernelArg::address(0), KernelArg::scalar(1u32)];
        status_and_note(kernel.launch_with(&stream, launch, &arguments, options))
    };

    let plain = LaunchOptions::default;
    let one = Launch::new(1, 13);
    for (launch, options, status) in [
        (one, plain(), 950),
        (
            one,
            LaunchOptions {
                cooperative: true,
                ..plain()
            },
            951,
        ),
        (one.cluster(1), plain(), 952),
        (
            one,
            LaunchOptions {
                programmatic: true,
                ..plain()
            },
            954,
        ),
        (
            one,
            LaunchOptions {
                priority: Some(-1),
                ..plain()
            },
            958,
        ),
    ] {
        assert_eq!(
            refused(&launch, &options),
            (status, String::new()),
            "{options:?}"
        );
    }
    for (launch, part) in [
        (
            Launch::new(701, 13).dynamic_shared(64),
            "16 registers a thread and 64 bytes of shared",
        ),
        (
            Launch::new(912, 13).cluster(2),
            "66 clusters of this shape fit Stand-in",
        ),
        (Launch::new(912, 13), ""),
        (Launch::new(914, 13).cluster(2), ""),
    ] {
        let (status, note) = refused(&launch, &plain());
        assert_eq!(status, launch.grid.x);
        assert!(
            note.contains(part) && note.is_empty() == part.is_empty(),
            "{launch}: {note}"
        );
    }
    let too_many = LaunchOptions {
        cooperative: true,
        ..plain()
    };
    assert_eq!(refused(&Launch::new(265, 1024), &too_many).0, 720);

    let ready = |launch: Launch| kernel.ready(&launch).unwrap();
    let parameters = vec![0; ready(one).parameter_bytes()];
    let launched = ready(Launch::new(701, 13)).launch(stream.borrowed(), &parameters);
    assert_eq!(status_and_note(launched).0, 701);
    let launched = ready(one)
        .programmatic()
        .launch(stream.borrowed(), &parameters);
    assert_eq!(status_and_note(launched).0, 954);
}

/// Plans look a kernel up each for itself, and launch it with shared memory of their own.
fn shared_memory_of_many_plans() {
    let gpu = Gpu::open(0).unwrap();
    let text = PtxText::new("kernels.ptx", include_str!("hardware/kernels.ptx"));
    let stream = gpu.stream().unwrap();
    let data = gpu.allocate(256).unwrap();
    let plan = |bytes| {
        let program = gpu.load(&text, &JitOptions::default()).unwrap();
        let launch = Launch::new(1, 32).dynamic_shared(bytes);
        (
            Arc::new(program.kernel("last_shared_word").unwrap()),
            launch,
        )
    };
    let plans = [plan(116_224), plan(90_000), plan(200_000), plan(50_000)];
    let ready = plans
        .each_ref()
        .map(|(kernel, launch)| kernel.ready(launch).unwrap());
    for (ready, (_, launch)) in ready.iter().zip(&plans) {
        let address = data.address().to_le_bytes();
        let launched = ready.launch(stream.borrowed(), &address);
        launched.unwrap_or_else(|error| panic!("{launch}: {error}"));
    }
    stream.synchronize().unwrap();
}

/// A graph's kernels would leave the part of the GPU that a green context's stream has.
fn green_context() {
    let gpu = Gpu::open(0).unwrap();
    let text = PtxText::new("kernels.ptx", include_str!("hardware/kernels.ptx"));
    let program = gpu.load(&text, &JitOptions::default()).unwrap();
    let kernel = Arc::new(program.kernel("add_one").unwrap());
    let ready = kernel.ready(&Launch::new(8, 128)).unwrap();
    let parameters = vec![0; ready.parameter_bytes()];
    for (priority, graphs) in [(-13, 0), (-3, 1)] {
        let stream = gpu.stream_with_priority(priority).unwrap();
        for _ in 0..30 {
            ready.launch(stream.borrowed(), &parameters).unwrap();
        }
        stream.synchronize().unwrap();
        assert_eq!(ready.graphs(), graphs);
    }
    // One that may overlap is a graph of one kernel, too, where nothing is captured.
    let ready = kernel.ready(&Launch::new(8, 128)).unwrap().programmatic();
    let stream = gpu.stream_with_priority(-3).unwrap();
    for _ in 0..30 {
        ready.launch(stream.borrowed(), &parameters).unwrap();
    }
    stream.synchronize().unwrap();
    assert_eq!(ready.graphs(), 1);
}

/// The stand-in's tensor map is the address of the tensor and the kind of its swizzle.
fn tensor_map() {
    let gpu = Gpu::open(0).unwrap();
    let mut map = TensorMap::dense(0, TensorElement::F16, &[128, 64], &[64, 8]);
    map.offset = 256;
    for (swizzle, number) in [(Swizzle::None, 0), (Swizzle::Bytes128, 3)] {
        let encoded = gpu.encode_tensor_map(&map.clone().swizzle(swizzle));
        for base in [0x1000u64, 0x7000] {
            let encoded = encoded.as_ref().unwrap().at(&gpu, base).unwrap();
            assert_eq!(encoded[..8], (base + 0x100).to_le_bytes());
            assert_eq!((encoded[8], &encoded[9..]), (number, &[0; 119][..]));
        }
    }
}

/// Work on a caller's stream leaves the context current that was so before.
#[allow(unsafe_code)]
fn anothers_context() {
    let gpu = Gpu::open(0).unwrap();
    let stream = gpu.stream().unwrap();
    // SAFETY: the stand-in has no initialisers.
    let driver = unsafe { libloading::Library::new("libcuda.so.1") }.unwrap();
    // SAFETY: so the stand-in declares them.
    let (set, get) = unsafe {
        (
            driver.get::<extern "C" fn(usize) -> u32>("cuCtxSetCurrent"),
            driver.get::<extern "C" fn(&mut usize) -> u32>("cuCtxGetCurrent"),
        )
    };
    let (set, get) = (set.unwrap(), get.unwrap());
    // A pointer that the stand-in keeps and never follows.
    set(0x1000);
    assert!(!gpu.is_capturing(stream.borrowed()));
    let mut current = 0;
    get(&mut current);
    assert_eq!(current, 0x1000);
    set(0);
}
