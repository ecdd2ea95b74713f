//! Faults and hangs: these cost the context.

use super::{Found, equal, kernel, refused, say, text};
use heist_gpu::{Gpu, GpuError, KernelArg, LaunchOptions, RunOptions, Suspects};
use heist_launch::{Arg, Arguments, Buffer, ElementType, Launch, Role};
use std::time::Duration;

pub(super) fn fault_is_attributed(gpu: &Gpu) -> Found {
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

pub(super) fn fault_in_run(gpu: &Gpu) -> Found {
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

pub(super) fn misaligned(gpu: &Gpu) -> Found {
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

pub(super) fn fault_of_two_streams(gpu: &Gpu) -> Found {
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

pub(super) fn untracked_fault(gpu: &Gpu) -> Found {
    untracked(gpu, 10, 11)
}

pub(super) fn many_suspects(gpu: &Gpu) -> Found {
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

pub(super) fn timeout(gpu: &Gpu) -> Found {
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
