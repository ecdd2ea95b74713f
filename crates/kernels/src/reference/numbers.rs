//! Buffers as f64, and work dealt out to the host's cores.

use half::{bf16, f16};
use heist_launch::{Buffer, ElementType};

/// The elements of a buffer as f64. Integers are what they are; nothing is
/// rounded.
pub fn numbers(buffer: &Buffer) -> Vec<f64> {
    let bytes = buffer.bytes();
    let half = |pair: &[u8]| u16::from_le_bytes([pair[0], pair[1]]);
    match buffer.ty() {
        ElementType::F16 => bytes
            .chunks_exact(2)
            .map(|pair| f16::from_bits(half(pair)).to_f64())
            .collect(),
        ElementType::Bf16 => bytes
            .chunks_exact(2)
            .map(|pair| bf16::from_bits(half(pair)).to_f64())
            .collect(),
        ty => buffer.iter().map(|bits| ty.to_f64(bits)).collect(),
    }
}

/// Calls `work` with parts of `items`, each of whole groups of `group`, and the
/// number of its first group: on every core.
pub(crate) fn each_part<T: Send>(
    items: &mut [T],
    group: usize,
    work: impl Fn(usize, &mut [T]) + Sync,
) {
    if group == 0 || items.is_empty() {
        return;
    }
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let groups = items.len().div_ceil(group);
    let each = groups.div_ceil(threads);
    std::thread::scope(|scope| {
        for (number, part) in items.chunks_mut(each * group).enumerate() {
            let work = &work;
            scope.spawn(move || work(number * each, part));
        }
    });
}
