//! Streams, events, graphs, and what is measured with them.

use super::{Found, equal, kernel, refused, say};
use heist_gpu::{Arm, Gpu, GpuError, KernelArg, Protocol};
use heist_launch::Launch;
use std::time::Duration;

/// More of them, one after the other, than are tracked at a time.
pub(super) fn given_back(gpu: &Gpu) -> Found {
    let stream = gpu.stream().map_err(say)?;
    for _ in 0..300 {
        gpu.stream().map_err(say)?;
        gpu.event().map_err(say)?;
        stream.capture(|_| Ok(())).map_err(say)?;
    }
    Ok(String::new())
}

pub(super) fn waiting(gpu: &Gpu) -> Found {
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
pub(super) fn warm_up(gpu: &Gpu) -> Found {
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

pub(super) fn share_of_a_sample(gpu: &Gpu) -> Found {
    let kernel = kernel(gpu, "linger")?;
    let sampler = gpu.sampler().map_err(say)?;
    let linger = |stream: &heist_gpu::Stream| {
        kernel.launch(
            stream,
            &Launch::new(1, 1),
            &[KernelArg::scalar(1_000_000u64)],
        )
    };
    let time = sampler.back_to_back(1, 4, linger).map_err(say)?;
    equal("1 ms back to back, at least", time.ns() >= 1e6, true)?;
    let time = sampler.sample(4, linger).map_err(say)?;
    match (1e6..4e6).contains(&time.ns()) {
        true => Ok(format!("1 ms took {time}")),
        false => Err(format!("1 ms, four times, took {time} each")),
    }
}

pub(super) fn events(gpu: &Gpu) -> Found {
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

pub(super) fn measure(gpu: &Gpu) -> Found {
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
    for arm in &figures {
        equal("samples of each", arm.samples.len(), 20)?;
    }
    let ratio = figures[1].times_as_long_as(&figures[0]).ok_or("no ratio")?;
    let remark = format!("{:?}\nratio {ratio:?}", figures[0].nanoseconds());
    if (1.7..2.3).contains(&ratio.median) {
        Ok(remark)
    } else {
        Err(remark)
    }
}

pub(super) fn graph(gpu: &Gpu) -> Found {
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
