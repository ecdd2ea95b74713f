//! Tensor maps.

use super::{Found, equal, refused, say, text};
use heist_gpu::{Gpu, KernelArg, RunOptions};
use heist_launch::{Arg, Arguments, Buffer, Launch, Role, Swizzle, TensorElement, TensorMap};

/// A tensor of halves, 128 by 64, that holds its own indices, and one row more.
fn halves() -> Vec<u16> {
    (0..128 * 65).collect()
}

pub(super) fn tensor_map(gpu: &Gpu) -> Found {
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

pub(super) fn wrong_tensor_map(gpu: &Gpu) -> Found {
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
