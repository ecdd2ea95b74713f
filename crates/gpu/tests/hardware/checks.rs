//! The checks: each takes an open GPU and says what it found.
//!
//! They also run against the stand-in for a driver in `tests/driver`, so what is
//! checked of this crate's own bookkeeping is checked without a GPU too.

use heist_gpu::{
    Arm, Gpu, GpuError, JitOptions, Kernel, KernelArg, LaunchOptions, Protocol, PtxText,
    RunOptions, Suspects, devices,
};
use heist_launch::{
    Arg, Arguments, Buffer, ElementType, Launch, Role, Swizzle, TensorElement, TensorMap,
};
use std::time::{Duration, Instant};

const KERNELS: &str = include_str!("kernels.ptx");

/// What a check found: a remark, or what is wrong.
type Found = Result<String, String>;
type Check = (&'static str, fn(&Gpu) -> Found);

/// Checks that leave the context as it was.
const PEACEFUL: &[Check] = &[
    ("devices are discovered", discovery),
    ("a kernel runs and its buffers come back", add_one),
    ("a launch into a stream that is only a handle", borrowed),
    ("the cache knows text and options", cache),
    ("the same run through arguments as data", run_with_arguments),
    ("arguments that do not fit are refused", wrong_arguments),
    ("a kernel that is not there is refused", missing_kernel),
    ("a launch over the limits is refused", wrong_launch),
    ("clusters by launch attribute", clusters),
    ("clusters by the kernel's own word", required_cluster),
    ("more than 48 KiB of shared memory", large_shared),
    ("attributes and occupancy", occupancy),
    ("a tensor map and a bulk tensor copy", tensor_map),
    (
        "a tensor map that breaks a rule is refused",
        wrong_tensor_map,
    ),
    ("memory is filled, and says how much there is", memory),
    (
        "memory is written by a stream, copied, and free again",
        memory_in_order,
    ),
    ("streams, events and graphs are given back", given_back),
    ("events measure", events),
    ("a stream waits for an event of another", waiting),
    ("warming up is not measuring", warm_up),
    ("a sample of several is one's share", share_of_a_sample),
    ("a graph is captured and replayed", graph),
    ("arms are measured in turns", measure),
    ("the assembler's log is in the error", jit_error),
    ("PTX newer than the driver is explained", newer_ptx),
    (
        "a version that nothing needs is lowered on request",
        clamped_version,
    ),
    ("PTX for another chip is explained", other_chip),
    ("out of memory is explained", out_of_memory),
];

/// Checks that cost the context.
const FATAL: &[Check] = &[
    (
        "a fault is laid at the launch that caused it",
        fault_is_attributed,
    ),
    (
        "a fault in a run names the command to run next",
        fault_in_run,
    ),
    ("a misaligned access is named", misaligned),
    (
        "a fault is laid at its launch while other streams work",
        fault_of_two_streams,
    ),
    (
        "a fault on an untracked stream lists the suspects",
        untracked_fault,
    ),
    ("... and the last of many", many_suspects),
];

/// Runs one of the checks that cost the context, and nothing else.
#[allow(dead_code)] // The test against the stand-in always runs all.
pub(crate) fn run_fatal(index: usize) -> Result<u32, GpuError> {
    let gpu = Gpu::open(0)?;
    let Some((name, check)) = FATAL.get(index) else {
        println!("there are fatal checks 0 to {}", FATAL.len() - 1);
        return Ok(1);
    };
    match check(&gpu) {
        Ok(remark) => {
            println!("ok      {name}{}", indent(&remark));
            Ok(0)
        }
        Err(wrong) => {
            println!("FAILED  {name}{}", indent(&wrong));
            Ok(1)
        }
    }
}

/// Runs every check, tells about each, and counts those that failed; an error
/// when there is no GPU to check.
pub(crate) fn run_all() -> Result<u32, GpuError> {
    let mut gpu = Gpu::open(0)?;
    let mut failed = 0;
    let mut run = |gpu: &Gpu, (name, check): &Check| {
        let start = Instant::now();
        let found = check(gpu);
        let ms = start.elapsed().as_secs_f64() * 1e3;
        match found {
            Ok(remark) => println!("ok      {name} ({ms:.1} ms){}", indent(&remark)),
            Err(wrong) => {
                failed += 1;
                println!("FAILED  {name}{}", indent(&wrong));
            }
        }
    };
    for check in PEACEFUL {
        run(&gpu, check);
    }
    for (index, check) in FATAL.iter().enumerate() {
        run(&gpu, check);
        match gpu.reopen() {
            Ok(fresh) => gpu = fresh,
            Err(error) => {
                println!(
                    "FAILED  the GPU is opened again after a fault{}",
                    indent(&say(error))
                );
                println!(
                    "        not run: what comes after; `hardware N` runs fatal check N alone, and {index} was the last"
                );
                return Ok(failed + 1);
            }
        }
        run(
            &gpu,
            &("... and the GPU is opened again and works", add_one),
        );
    }
    // Last, because a kernel that is still running can't be taken back.
    run(&gpu, &("a kernel that does not end is given up", timeout));
    println!("{failed} failed");
    Ok(failed)
}

fn indent(text: &str) -> String {
    text.lines()
        .map(|line| format!("\n        {line}"))
        .collect()
}

fn text() -> PtxText {
    PtxText::new("kernels.ptx", KERNELS)
}

fn kernel(gpu: &Gpu, name: &str) -> Result<Kernel, String> {
    gpu.load(&text(), &JitOptions::default())
        .and_then(|program| program.kernel(name))
        .map_err(say)
}

#[allow(clippy::needless_pass_by_value)] // For `map_err`.
fn say(error: GpuError) -> String {
    error.to_string()
}

fn equal<T: PartialEq + std::fmt::Debug>(what: &str, found: T, expected: T) -> Result<(), String> {
    if found == expected {
        Ok(())
    } else {
        Err(format!("{what}: expected {expected:?}, found {found:?}"))
    }
}

/// The message of an error that had to come, with all of these parts in it.
fn refused<T>(result: Result<T, GpuError>, parts: &[&str]) -> Found {
    let Err(error) = result else {
        return Err("it was accepted".to_owned());
    };
    let text = error.to_string();
    match parts.iter().find(|part| !text.contains(**part)) {
        None => Ok(text),
        Some(part) => Err(format!("the message lacks `{part}`:\n{text}")),
    }
}

fn discovery(gpu: &Gpu) -> Found {
    let all = devices().map_err(say)?;
    let info = &all[0];
    equal("the first device", info, gpu.info())?;
    if info.sms == 0 || info.memory == 0 || info.name.is_empty() {
        return Err(format!("{info:?}"));
    }
    let (free, total) = gpu.memory().map_err(say)?;
    Ok(format!(
        "{}, {}, {} SMs, {} MiB ({} free of {}), driver CUDA {}, PTX up to {}\n{:?}",
        info.name,
        info.capability,
        info.sms,
        info.memory >> 20,
        free >> 20,
        total >> 20,
        info.driver,
        info.driver.ptx_isa(),
        info.limits
    ))
}

fn add_one(gpu: &Gpu) -> Found {
    let kernel = kernel(gpu, "add_one")?;
    let values: Vec<u32> = (0..1000).collect();
    let data = gpu.upload(&values).map_err(say)?;
    let stream = gpu.stream().map_err(say)?;
    let arguments = [KernelArg::pointer(&data), KernelArg::scalar(1000u32)];
    for _ in 0..3 {
        kernel
            .launch(&stream, &Launch::new(8, 128), &arguments)
            .map_err(say)?;
    }
    stream.synchronize().map_err(say)?;
    let expected: Vec<u32> = (3..1003).collect();
    equal("the sums", data.read().map_err(say)?, expected)?;
    Ok(String::new())
}

/// As a library is called by a program with streams and memory of its own.
fn borrowed(gpu: &Gpu) -> Found {
    let kernel = std::sync::Arc::new(kernel(gpu, "add_one")?);
    let ready = kernel.ready(&Launch::new(8, 128)).map_err(say)?;
    let data = gpu.upload(&[7u32; 1000]).map_err(say)?;
    let mut parameters = vec![0; ready.parameter_bytes()];
    for (offset, bytes) in ready
        .offsets()
        .iter()
        .zip([data.address().to_le_bytes(), 1000u64.to_le_bytes()])
    {
        parameters[*offset..*offset + 8].copy_from_slice(&bytes);
    }
    let stream = gpu.stream().map_err(say)?;
    for _ in 0..3 {
        ready.launch(stream.borrowed(), &parameters).map_err(say)?;
    }
    // A thread that has no context yet gets by as well.
    let elsewhere = std::thread::scope(|threads| {
        let launch = || ready.launch(stream.borrowed(), &parameters);
        threads.spawn(launch).join()
    });
    elsewhere.map_err(|_| "a panic")?.map_err(say)?;
    let short = ready.launch(stream.borrowed(), &parameters[8..]);
    let short = short.err().map(say).unwrap_or_default();
    equal("a refusal", short.contains("were given"), true)?;
    stream.synchronize().map_err(say)?;
    equal("the sums", data.read().map_err(say)?, vec![11u32; 1000])?;
    Ok(String::new())
}

fn cache(gpu: &Gpu) -> Found {
    let plain = JitOptions::default();
    let lean = JitOptions {
        max_registers: Some(32),
        ..plain.clone()
    };
    let load = |text: &PtxText, options: &JitOptions| gpu.load(text, options).map_err(say);
    let first = load(&text(), &plain)?;
    let start = Instant::now();
    let again = load(&text(), &plain)?;
    let hit = start.elapsed();
    equal("a second load is the first", first.is_same(&again), true)?;
    equal(
        "other options are another",
        load(&text(), &lean)?.is_same(&first),
        false,
    )?;
    let changed = PtxText::new("changed.ptx", format!("{KERNELS}\n"));
    equal(
        "another text is another",
        load(&changed, &plain)?.is_same(&first),
        false,
    )?;
    equal("three are kept", gpu.cached_programs() >= 3, true)?;
    Ok(format!(
        "{} programs, a hit takes {:.1} us",
        gpu.cached_programs(),
        hit.as_secs_f64() * 1e6
    ))
}

fn run_with_arguments(gpu: &Gpu) -> Found {
    let arguments = Arguments::new([Arg::in_out(&[1u32, 2, 3]), Arg::scalar(2u32)]);
    let ran = gpu
        .run(
            &text(),
            "add_one",
            &Launch::new(1, 32),
            &arguments,
            &RunOptions::default(),
        )
        .map_err(say)?;
    let found = ran.outcome.output(0).and_then(Buffer::to_vec::<u32>);
    equal("the buffer", found, Some(vec![2, 3, 3]))?;
    let from_the_second = Arg::Pointer {
        buffer: "data".into(),
        offset: 4,
    };
    let arguments = Arguments::new([from_the_second, Arg::scalar(2u32)]).buffer(
        "data",
        Role::InOut,
        Buffer::from_slice(&[1u32, 2, 3, 4]),
    );
    let (launch, options) = (Launch::new(1, 32), RunOptions::default());
    let pointed = gpu.run(&text(), "add_one", &launch, &arguments, &options);
    let outputs = pointed.map_err(say)?.outcome.outputs;
    let found = outputs.first().and_then(|(_, data)| data.to_vec::<u32>());
    equal("behind an offset", found, Some(vec![1, 3, 4, 4]))?;
    Ok(format!("{:?}, {}", ran.kernel, ran.elapsed))
}

fn wrong_arguments(gpu: &Gpu) -> Found {
    let kernel = kernel(gpu, "add_one")?;
    let stream = gpu.stream().map_err(say)?;
    let launch = Launch::new(1, 32);
    refused(
        kernel.launch(&stream, &launch, &[KernelArg::scalar(1u64)]),
        &["takes 2 arguments and was given 1"],
    )?;
    refused(
        kernel.launch(
            &stream,
            &launch,
            &[KernelArg::scalar(1u64), KernelArg::scalar(1u64)],
        ),
        &["parameter 1 takes 4 bytes and was given 8"],
    )
}

fn missing_kernel(gpu: &Gpu) -> Found {
    let program = gpu.load(&text(), &JitOptions::default()).map_err(say)?;
    refused(
        program.kernel("nothing"),
        &["no kernel `nothing`", "add_one"],
    )
}

fn wrong_launch(gpu: &Gpu) -> Found {
    let kernel = kernel(gpu, "store_far")?;
    let stream = gpu.stream().map_err(say)?;
    let launch = |launch: Launch| kernel.launch(&stream, &launch, &[KernelArg::scalar(0u64)]);
    refused(launch(Launch::new(1, 2048)), &["2048"])?;
    refused(
        launch(Launch::new((1, 70_000, 1), 1)),
        &["fold the grid into x"],
    )?;
    refused(launch(Launch::new(3, 1).cluster(2)), &["not a multiple"])?;
    refused(
        launch(Launch::new(1, 1).dynamic_shared(1 << 20)),
        &["shared memory"],
    )
}

fn clusters(gpu: &Gpu) -> Found {
    let kernel = kernel(gpu, "cluster_ranks")?;
    let stream = gpu.stream().map_err(say)?;
    let mut remarks = Vec::new();
    for size in [1u32, 2, 4, 8, 16] {
        let data = gpu.output::<u32>(32).map_err(say)?;
        let launch = Launch::new(32, 32).cluster(size);
        kernel
            .launch(&stream, &launch, &[KernelArg::pointer(&data)])
            .map_err(say)?;
        stream.synchronize().map_err(say)?;
        let expected: Vec<u32> = (0..32).map(|block| size * 100 + block % size).collect();
        equal("ranks", data.read().map_err(say)?, expected)?;
        let occupancy = kernel.occupancy(&launch).map_err(say)?;
        remarks.push(format!("{size}: {occupancy:?}"));
    }
    Ok(remarks.join("\n"))
}

fn required_cluster(gpu: &Gpu) -> Found {
    let kernel = kernel(gpu, "cluster_of_two")?;
    let stream = gpu.stream().map_err(say)?;
    for launch in [Launch::new(4, 32), Launch::new(4, 32).cluster(2)] {
        let data = gpu.output::<u32>(4).map_err(say)?;
        kernel
            .launch(&stream, &launch, &[KernelArg::pointer(&data)])
            .map_err(say)?;
        stream.synchronize().map_err(say)?;
        equal("ranks", data.read().map_err(say)?, vec![200, 201, 200, 201])?;
    }
    let [own, said] = [Launch::new(4, 32), Launch::new(4, 32).cluster(2)].map(|launch| {
        let occupancy = kernel.occupancy(&launch).map_err(say)?;
        occupancy
            .active_clusters
            .ok_or_else(|| "no clusters".to_owned())
    });
    equal("clusters at a time", own?, said?)?;
    refused(
        kernel.launch(
            &stream,
            &Launch::new(4, 32).cluster(4),
            &[KernelArg::scalar(0u64)],
        ),
        &[".reqnctapercluster"],
    )
}

fn large_shared(gpu: &Gpu) -> Found {
    let kernel = kernel(gpu, "last_shared_word")?;
    let stream = gpu.stream().map_err(say)?;
    let most = gpu.info().limits.shared_per_block;
    for bytes in [16, 48 << 10, 64 << 10, most] {
        let data = gpu.output::<u32>(2).map_err(say)?;
        let launch = Launch::new(1, 1).dynamic_shared(bytes);
        kernel
            .launch(&stream, &launch, &[KernelArg::pointer(&data)])
            .map_err(say)?;
        stream.synchronize().map_err(say)?;
        equal("the last word", data.read().map_err(say)?, vec![42, bytes])?;
    }
    Ok(format!("up to {most} bytes"))
}

fn occupancy(gpu: &Gpu) -> Found {
    let kernel = kernel(gpu, "add_one")?;
    let occupancy = kernel.occupancy(&Launch::new(8, 1024)).map_err(say)?;
    equal(
        "blocks of 1024 on an SM",
        occupancy.blocks_per_sm,
        gpu.info().threads_per_sm / 1024,
    )?;
    Ok(format!("{:?}", kernel.info()))
}

/// A tensor of halves, 128 by 64, that holds its own indices, and one row more.
fn halves() -> Vec<u16> {
    (0..128 * 65).collect()
}

fn tensor_map(gpu: &Gpu) -> Found {
    let plain = TensorMap::dense("tensor", TensorElement::F16, &[128, 64], &[64, 8]);
    let mut second_row = plain.clone();
    second_row.offset = 256;
    for (map, swizzled, skipped) in [
        (plain.clone(), false, 0),
        (second_row, false, 128),
        (plain.swizzle(Swizzle::Bytes128), true, 0),
    ] {
        let arguments = Arguments::new([
            Arg::TensorMap(map),
            Arg::output::<u16>(512),
            Arg::scalar(64u32),
            Arg::scalar(16u32),
        ])
        .buffer("tensor", Role::In, Buffer::from_slice(&halves()));
        let ran = gpu
            .run(
                &text(),
                "copy_box",
                &Launch::new(1, 128),
                &arguments,
                &RunOptions::default(),
            )
            .map_err(say)?;
        let found = ran.outcome.output(1).and_then(Buffer::to_vec::<u16>);
        // A row of the box is 128 bytes: eight chunks of eight halves, which the
        // swizzle exchanges by the row's number.
        let expected: Vec<u16> = (0..512)
            .map(|at: u16| {
                let (row, chunk, half) = (at / 64, at % 64 / 8, at % 8);
                let from = if swizzled { chunk ^ row } else { chunk };
                skipped + (16 + row) * 128 + 64 + from * 8 + half
            })
            .collect();
        equal("the box", found, Some(expected))?;
    }
    Ok("plain, at an offset, and with a 128-byte swizzle".to_owned())
}

fn wrong_tensor_map(gpu: &Gpu) -> Found {
    let memory = gpu.allocate(4096).map_err(say)?;
    let map =
        TensorMap::dense(0, TensorElement::F16, &[128, 64], &[128, 8]).swizzle(Swizzle::Bytes128);
    refused(
        KernelArg::tensor_map(gpu, "copy_box", &map, &memory),
        &["takes at most 128"],
    )?;
    let map = TensorMap::dense(0, TensorElement::F16, &[128, 64], &[64, 8]);
    refused(
        KernelArg::tensor_map(gpu, "copy_box", &map, &memory),
        &["buffer of 4096 bytes"],
    )
}

fn memory(gpu: &Gpu) -> Found {
    let (free, total) = gpu.memory().map_err(say)?;
    if free == 0 || free > total {
        return Err(format!("{free} bytes of {total} are free"));
    }
    let data = gpu.allocate_with(&[1u8; 64]).map_err(say)?;
    equal("emptiness", data.is_empty(), false)?;
    let stream = gpu.stream().map_err(say)?;
    data.fill(7, &stream).map_err(say)?;
    stream.synchronize().map_err(say)?;
    let mut bytes = [0; 64];
    data.read(0, &mut bytes).map_err(say)?;
    equal("the bytes", bytes, [7; 64])?;
    Ok(format!("{free} bytes of {total} are free"))
}

fn memory_in_order(gpu: &Gpu) -> Found {
    const MANY: usize = 1 << 30;
    let free = || gpu.memory().map(|(free, _)| free).map_err(say);
    let before = free()?;
    let (from, to) = (
        gpu.upload(&[1u32, 2, 3, 4]).map_err(say)?,
        gpu.zeros::<u32>(6).map_err(say)?,
    );
    let large = gpu.allocate(MANY).map_err(say)?;
    let written = format!("{MANY} bytes at {:#x}", large.address());
    equal("what memory says", format!("{large:?}"), written)?;
    let written = format!("u32[4] at {:#x}", from.address());
    equal("what an array says", format!("{from:?}"), written)?;
    equal("taken", before - free()? >= MANY as u64, true)?;
    drop(large);
    equal("free again", before - free()? < MANY as u64, true)?;

    let stream = gpu.stream().map_err(say)?;
    from.memory().write_in(&stream, 8, 7).map_err(say)?;
    stream.synchronize().map_err(say)?;
    let mut word = [0; 4];
    from.memory().peek(8, &mut word).map_err(say)?;
    equal("the word", u32::from_le_bytes(word), 7)?;
    to.memory().copy_from(from.memory(), &stream).map_err(say)?;
    stream.synchronize().map_err(say)?;
    equal("the copy", to.read().map_err(say)?, vec![1, 2, 7, 4, 0, 0])?;
    refused(from.memory().copy_from(to.memory(), &stream), &["24"])?;
    refused(from.memory().write_in(&stream, 13, 7), &["13"])?;
    refused(from.memory().peek(13, &mut word), &["13"])
}

/// More of them, one after the other, than are tracked at a time.
fn given_back(gpu: &Gpu) -> Found {
    let stream = gpu.stream().map_err(say)?;
    for _ in 0..300 {
        gpu.stream().map_err(say)?;
        gpu.event().map_err(say)?;
        stream.capture(|_| Ok(())).map_err(say)?;
    }
    Ok(String::new())
}

fn waiting(gpu: &Gpu) -> Found {
    let (long, short) = (kernel(gpu, "linger")?, kernel(gpu, "add_one")?);
    let (first, second) = (gpu.stream().map_err(say)?, gpu.stream().map_err(say)?);
    let [middle, end] = [gpu.event().map_err(say)?, gpu.event().map_err(say)?];
    let data = gpu.zeros::<u32>(64).map_err(say)?;
    let nanoseconds = [KernelArg::scalar(100_000_000u64)];
    long.launch(&first, &Launch::new(1, 1), &nanoseconds)
        .map_err(say)?;
    middle.record(&first).map_err(say)?;
    equal("early", middle.has_happened().map_err(say)?, false)?;
    second.wait_for(&middle).map_err(say)?;
    let arguments = [KernelArg::pointer(&data), KernelArg::scalar(64u32)];
    short
        .launch(&second, &Launch::new(1, 64), &arguments)
        .map_err(say)?;
    end.record(&second).map_err(say)?;
    second.synchronize().map_err(say)?;
    equal("late", middle.has_happened().map_err(say)?, true)?;
    let time = end.since(&middle).map_err(say)?;
    Ok(format!("{time} from the event to the end"))
}

/// As long as warming up takes, nothing is measured: a minute is over by a failure here.
fn warm_up(gpu: &Gpu) -> Found {
    let mut samples = 0;
    let work = |_: &heist_gpu::Stream| {
        samples += 1;
        match samples {
            3 => Err(GpuError::NoDevice),
            _ => Ok(()),
        }
    };
    let protocol = Protocol {
        warm_up: Duration::from_secs(60),
        rounds: 0,
        repeats: 1,
    };
    let measured = gpu.measure(&mut [Arm::new("fails", work)], &protocol);
    let found = refused(measured, &[])?;
    equal("samples", samples, 3)?;
    Ok(found)
}

fn share_of_a_sample(gpu: &Gpu) -> Found {
    let kernel = kernel(gpu, "linger")?;
    let sampler = gpu.sampler().map_err(say)?;
    let time = sampler
        .sample(4, |stream| {
            kernel.launch(
                stream,
                &Launch::new(1, 1),
                &[KernelArg::scalar(1_000_000u64)],
            )
        })
        .map_err(say)?;
    match (1e6..4e6).contains(&time.ns()) {
        true => Ok(format!("1 ms took {time}")),
        false => Err(format!("1 ms, four times, took {time} each")),
    }
}

fn events(gpu: &Gpu) -> Found {
    let kernel = kernel(gpu, "linger")?;
    let stream = gpu.stream().map_err(say)?;
    let (start, end) = (gpu.event().map_err(say)?, gpu.event().map_err(say)?);
    start.record(&stream).map_err(say)?;
    kernel
        .launch(
            &stream,
            &Launch::new(1, 1),
            &[KernelArg::scalar(5_000_000u64)],
        )
        .map_err(say)?;
    end.record(&stream).map_err(say)?;
    end.synchronize().map_err(say)?;
    let time = end.since(&start).map_err(say)?;
    if (5e6..100e6).contains(&time.ns()) {
        Ok(format!("5 ms took {time}"))
    } else {
        Err(format!("5 ms took {time}"))
    }
}

fn measure(gpu: &Gpu) -> Found {
    let kernel = kernel(gpu, "linger")?;
    let linger = |ns: u64| {
        let kernel = &kernel;
        move |stream: &heist_gpu::Stream| {
            kernel.launch(stream, &Launch::new(1, 1), &[KernelArg::scalar(ns)])
        }
    };
    let mut arms = [
        Arm::new("100 us", linger(100_000)),
        Arm::new("200 us", linger(200_000)),
    ];
    let protocol = Protocol {
        warm_up: Duration::from_millis(20),
        rounds: 20,
        repeats: 1,
    };
    let figures = gpu.measure(&mut arms, &protocol).map_err(say)?;
    let ratio = figures[1].times_as_long_as(&figures[0]).ok_or("no ratio")?;
    let remark = format!("{:?}\nratio {ratio:?}", figures[0].nanoseconds());
    if (1.7..2.3).contains(&ratio.median) {
        Ok(remark)
    } else {
        Err(remark)
    }
}

fn graph(gpu: &Gpu) -> Found {
    let kernel = kernel(gpu, "add_one")?;
    let data = gpu.zeros::<u32>(64).map_err(say)?;
    let stream = gpu.stream().map_err(say)?;
    let arguments = [KernelArg::pointer(&data), KernelArg::scalar(64u32)];
    let is_capturing = || gpu.is_capturing(stream.borrowed());
    equal("capturing before", is_capturing(), false)?;
    let mut during = false;
    let graph = stream
        .capture(|stream| {
            during = gpu.is_capturing(stream.borrowed());
            for _ in 0..5 {
                kernel.launch(stream, &Launch::new(1, 64), &arguments)?;
            }
            Ok(())
        })
        .map_err(say)?;
    equal("capturing", (during, is_capturing()), (true, false))?;
    equal("nodes", graph.nodes(), 5)?;
    equal("launches", graph.launches().len(), 5)?;
    equal("before the replay", data.read().map_err(say)?, vec![0; 64])?;
    for _ in 0..3 {
        graph.launch(&stream).map_err(say)?;
    }
    stream.synchronize().map_err(say)?;
    equal("after the replay", data.read().map_err(say)?, vec![15; 64])?;
    gpu.fill_borrowed(data.address(), 1, 128, stream.borrowed())
        .map_err(say)?;
    stream.synchronize().map_err(say)?;
    let expected = [vec![0x0101_0101; 32], vec![15; 32]].concat();
    equal("what was filled", data.read().map_err(say)?, expected)?;
    Ok(String::new())
}

fn jit_error(gpu: &Gpu) -> Found {
    let broken = PtxText::new(
        "broken.ptx",
        KERNELS.replace(
            "st.global.u32 [%at], %value;",
            "st.global.u33 [%at], %value;",
        ),
    );
    refused(
        gpu.load(&broken, &JitOptions::default()),
        &["broken.ptx", "line", "heist check broken.ptx"],
    )
}

fn newer_ptx(gpu: &Gpu) -> Found {
    let newer = PtxText::new(
        "newer.ptx",
        KERNELS.replace(".version 8.0", ".version 99.0"),
    );
    refused(
        gpu.load(&newer, &JitOptions::default()),
        &["`.version 99.0`", "PTX up to"],
    )
}

fn clamped_version(gpu: &Gpu) -> Found {
    let newer = PtxText::new(
        "newer.ptx",
        KERNELS.replace(".version 8.0", ".version 99.0"),
    );
    let options = JitOptions {
        clamp_version: true,
        ..JitOptions::default()
    };
    let program = gpu.load(&newer, &options).map_err(say)?;
    program.kernel("add_one").map_err(say)?;
    Ok(String::new())
}

fn other_chip(gpu: &Gpu) -> Found {
    let other = PtxText::new(
        "other.ptx",
        KERNELS.replace(".target sm_90", ".target sm_80a"),
    );
    let far = PtxText::new(
        "far.ptx",
        ".version 8.8\n.target sm_121a\n.address_size 64\n.visible .entry k()\n{ ret; }\n",
    );
    let found = refused(
        gpu.load(&far, &JitOptions::default()),
        &["sm_121a", "that chip alone"],
    )?;
    refused(gpu.load(&other, &JitOptions::default()), &["other.ptx"])?;
    Ok(found)
}

fn out_of_memory(gpu: &Gpu) -> Found {
    let bytes = gpu.info().memory as usize * 2;
    refused(gpu.allocate(bytes), &["no room for", "are free"])
}

fn fault_is_attributed(gpu: &Gpu) -> Found {
    let (good, bad) = (kernel(gpu, "add_one")?, kernel(gpu, "store_far")?);
    let data = gpu.zeros::<u32>(64).map_err(say)?;
    let stream = gpu.stream().map_err(say)?;
    let arguments = [KernelArg::pointer(&data), KernelArg::scalar(64u32)];
    let launched = || {
        good.launch(&stream, &Launch::new(1, 64), &arguments)?;
        bad.launch_with(
            &stream,
            &Launch::new(2, 32),
            &[KernelArg::pointer(&data)],
            &LaunchOptions {
                flags: Some("--arg inout:u32:zeros(64)".to_owned()),
                ..LaunchOptions::default()
            },
        )?;
        good.launch(&stream, &Launch::new(4, 16), &arguments)?;
        good.launch(&stream, &Launch::new(8, 8), &arguments)
    };
    // The fault may surface in a later launch or in the wait.
    let result = launched().and_then(|()| stream.synchronize());
    let message = refused(
        result,
        &[
            "kernel `store_far` faulted on",
            "not in any allocation",
            "CUDA_ERROR_ILLEGAL_ADDRESS",
            "--grid 2,1,1 --block 32,1,1",
            "next: heist check kernels.ptx --entry store_far --grid 2,1,1 --block 32,1,1 --arg inout:u32:zeros(64)",
        ],
    )?;
    // Everything after it repeats it, and nothing panics.
    refused(data.read(), &["lost to an earlier fault", "store_far"])?;
    refused(gpu.stream().map(|_| ()), &["lost to an earlier fault"])?;
    Ok(message)
}

fn fault_in_run(gpu: &Gpu) -> Found {
    let arguments = Arguments::new([Arg::in_out(&[1u32, 2, 3])]);
    refused(
        gpu.run(
            &text(),
            "store_far",
            &Launch::new(1, 32),
            &arguments,
            &RunOptions::default(),
        ),
        &["kernel `store_far` faulted on", "--arg 'inout:u32:[1,2,3]'"],
    )
}

fn misaligned(gpu: &Gpu) -> Found {
    let arguments = Arguments::new([Arg::Buffer {
        role: Role::InOut,
        data: Buffer::zeros(ElementType::U32, 4),
    }]);
    refused(
        gpu.run(
            &text(),
            "load_odd",
            &Launch::new(1, 1),
            &arguments,
            &RunOptions::default(),
        ),
        &[
            "kernel `load_odd` faulted on",
            "not a multiple of the access's size",
        ],
    )
}

fn fault_of_two_streams(gpu: &Gpu) -> Found {
    let (good, bad) = (kernel(gpu, "add_one")?, kernel(gpu, "store_far")?);
    let long = kernel(gpu, "linger")?;
    let data = gpu.zeros::<u32>(64).map_err(say)?;
    let (other, stream) = (gpu.stream().map_err(say)?, gpu.stream().map_err(say)?);
    let arguments = [KernelArg::pointer(&data), KernelArg::scalar(64u32)];
    let launched = || {
        let shape = Launch::new(1, 64);
        good.launch(&stream, &shape, &arguments)?;
        stream.synchronize()?;
        // So long that the other stream is done before the fault.
        let nanoseconds = [KernelArg::scalar(50_000_000u64)];
        long.launch(&stream, &Launch::new(1, 1), &nanoseconds)?;
        bad.launch(&stream, &shape, &[KernelArg::pointer(&data)])?;
        good.launch(&other, &shape, &arguments)?;
        other.synchronize()?;
        // A stream that goes takes its own launches with it.
        let third = gpu.stream()?;
        good.launch(&third, &shape, &arguments)
    };
    launched().map_err(say)?;
    let Err(GpuError::Fault(fault)) = stream.synchronize() else {
        return Err("not a fault".to_owned());
    };
    match &fault.suspects {
        Suspects::One(record) if record.kernel == "store_far" => Ok(fault.to_string()),
        other => Err(format!("{other:?}")),
    }
}

fn untracked_fault(gpu: &Gpu) -> Found {
    untracked(gpu, 10, 11)
}

fn many_suspects(gpu: &Gpu) -> Found {
    untracked(gpu, 40, 32)
}

/// A fault after good launches that nobody waited for, and how many are suspects then.
fn untracked(gpu: &Gpu, before: usize, suspects: usize) -> Found {
    let (good, bad) = (kernel(gpu, "add_one")?, kernel(gpu, "store_far")?);
    let data = gpu.zeros::<u32>(64).map_err(say)?;
    let stream = gpu.untracked_stream().map_err(say)?;
    let arguments = [KernelArg::pointer(&data), KernelArg::scalar(64u32)];
    // What was waited for is no suspect.
    good.launch(&stream, &Launch::new(1, 64), &arguments)
        .and_then(|()| stream.synchronize())
        .map_err(say)?;
    let mut before = (0..before).map(|_| good.launch(&stream, &Launch::new(1, 64), &arguments));
    let result = before
        .try_for_each(|launched| launched)
        .and_then(|()| bad.launch(&stream, &Launch::new(2, 32), &[KernelArg::pointer(&data)]))
        .and_then(|()| stream.synchronize());
    let Err(GpuError::Fault(fault)) = result else {
        return Err(format!("not a fault: {:?}", result.err()));
    };
    match &fault.suspects {
        Suspects::Several(records) if records.iter().any(|r| r.kernel == "store_far") => {
            equal("the launches that are remembered", records.len(), suspects)?;
            Ok(fault.to_string())
        }
        other => Err(format!("{other:?}")),
    }
}

fn timeout(gpu: &Gpu) -> Found {
    // A launch of another stream is not to blame.
    let (other, innocent) = (gpu.stream().map_err(say)?, self::kernel(gpu, "add_one")?);
    let data = gpu.zeros::<u32>(64).map_err(say)?;
    let arguments = [KernelArg::pointer(&data), KernelArg::scalar(64u32)];
    innocent
        .launch(&other, &Launch::new(1, 64), &arguments)
        .map_err(say)?;
    let kernel = kernel(gpu, "linger")?;
    let stream = gpu.stream().map_err(say)?;
    kernel
        .launch(
            &stream,
            &Launch::new(1, 1),
            &[KernelArg::scalar(2_000_000_000u64)],
        )
        .map_err(say)?;
    // Only a stream that is still at work gives this answer: it was given up before its end.
    refused(
        stream.synchronize_within(Duration::from_millis(100)),
        &["did not end within 0.1 s", "`linger`", "heist check"],
    )
}
