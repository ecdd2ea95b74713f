//! Device memory.

use super::{Found, equal, refused, say};
use heist_gpu::Gpu;

pub(super) fn memory(gpu: &Gpu) -> Found {
    let (free, total) = gpu.memory().map_err(say)?;
    if free == 0 || free > total {
        return Err(format!("{free} bytes of {total} are free"));
    }
    let data = gpu.allocate_with(&[1u8; 64]).map_err(say)?;
    equal("emptiness", data.is_empty(), false)?;
    let [some, none] = [1, 0].map(|count| gpu.zeros::<u32>(count));
    let empty = (some.map_err(say)?.is_empty(), none.map_err(say)?.is_empty());
    equal("emptiness of arrays", empty, (false, true))?;
    let stream = gpu.stream().map_err(say)?;
    data.fill(7, &stream).map_err(say)?;
    stream.synchronize().map_err(say)?;
    let mut bytes = [0; 64];
    data.read(0, &mut bytes).map_err(say)?;
    equal("the bytes", bytes, [7; 64])?;
    Ok(format!("{free} bytes of {total} are free"))
}

pub(super) fn memory_in_order(gpu: &Gpu) -> Found {
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

pub(super) fn out_of_memory(gpu: &Gpu) -> Found {
    let bytes = gpu.info().memory as usize * 2;
    refused(gpu.allocate(bytes), &["no room for", "are free"])
}
