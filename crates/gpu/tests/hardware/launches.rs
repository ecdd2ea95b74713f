//! Launches: discovery, arguments, limits, clusters, shared memory.

use super::{Found, KERNELS, equal, kernel, refused, say, text};
use heist_gpu::{Gpu, JitOptions, KernelArg, PtxText, RunOptions, devices};
use heist_launch::{Arg, Arguments, Buffer, Launch, Role};
use std::time::Instant;

pub(super) fn discovery(gpu: &Gpu) -> Found {
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

pub(super) fn add_one(gpu: &Gpu) -> Found {
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
pub(super) fn borrowed(gpu: &Gpu) -> Found {
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

pub(super) fn cache(gpu: &Gpu) -> Found {
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

pub(super) fn run_with_arguments(gpu: &Gpu) -> Found {
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

/// A module with a variable is loaded for each run, and unloaded after it: its memory would soon be
/// missed.
pub(super) fn variables_of_a_run(gpu: &Gpu) -> Found {
    let text = PtxText::new(
        "count.ptx",
        "\
.version 99.0
.target sm_90
.address_size 64
.global .u32 counted;
.global .b8 large[67108864];
.visible .entry count_runs(.param .u64 to)
{
    .reg .b32 %value;
    .reg .b64 %at;
    ld.global.u32 %value, [counted];
    add.u32 %value, %value, 1;
    st.global.u32 [counted], %value;
    st.global.u32 [large], %value;
    ld.param.u64 %at, [to];
    st.global.u32 [%at], %value;
    ret;
}
",
    );
    let arguments = Arguments::new([Arg::output::<u32>(1)]);
    let launch = Launch::new(1, 1);
    // Newer than any driver.
    let mut options = RunOptions::default();
    options.jit.clamp_version = true;
    let kept = gpu.cached_programs();
    let (before, _) = gpu.memory().map_err(say)?;
    for _ in 0..16 {
        let ran = gpu.run(&text, "count_runs", &launch, &arguments, &options);
        let outcome = ran.map_err(say)?.outcome;
        let found = outcome.output(0).and_then(Buffer::to_vec::<u32>);
        equal("the first of its module", found, Some(vec![1]))?;
    }
    equal("none is kept", gpu.cached_programs(), kept)?;
    let (after, _) = gpu.memory().map_err(say)?;
    let missing = before.saturating_sub(after) >> 20;
    equal("they are unloaded", missing < 512, true)?;
    let plain = PtxText::new("plain.ptx", format!("{KERNELS}\n\n"));
    let arguments = Arguments::new([Arg::in_out(&[1u32]), Arg::scalar(1u32)]);
    for _ in 0..2 {
        gpu.run(&plain, "add_one", &launch, &arguments, &options)
            .map_err(say)?;
    }
    equal("without a variable", gpu.cached_programs(), kept + 1)?;
    Ok(format!("{missing} MiB missing after 16 runs with 64 each"))
}

pub(super) fn wrong_arguments(gpu: &Gpu) -> Found {
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

pub(super) fn missing_kernel(gpu: &Gpu) -> Found {
    let program = gpu.load(&text(), &JitOptions::default()).map_err(say)?;
    refused(
        program.kernel("nothing"),
        &["no kernel `nothing`", "add_one"],
    )
}

pub(super) fn wrong_launch(gpu: &Gpu) -> Found {
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

pub(super) fn clusters(gpu: &Gpu) -> Found {
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

pub(super) fn required_cluster(gpu: &Gpu) -> Found {
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

pub(super) fn large_shared(gpu: &Gpu) -> Found {
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

pub(super) fn occupancy(gpu: &Gpu) -> Found {
    let kernel = kernel(gpu, "add_one")?;
    let occupancy = kernel.occupancy(&Launch::new(8, 1024)).map_err(say)?;
    equal(
        "blocks of 1024 on an SM",
        occupancy.blocks_per_sm,
        gpu.info().threads_per_sm / 1024,
    )?;
    Ok(format!("{:?}", kernel.info()))
}
