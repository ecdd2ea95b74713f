//! Buffers as f64, and work divided among the host's cores.

use half::{bf16, f16};
use heist_launch::{Buffer, ElementType};
use std::ops::Range;

/// The elements of a buffer as f64. Integers keep their value; nothing is rounded.
pub fn numbers(buffer: &Buffer) -> Vec<f64> {
    numbers_in(buffer, 0..buffer.len())
}

/// The elements of a part of a buffer as f64; none where there is no such part.
pub fn numbers_in(buffer: &Buffer, part: Range<usize>) -> Vec<f64> {
    let ty = buffer.ty();
    let size = ty.bytes();
    let whole = part.start.checked_mul(size).zip(part.end.checked_mul(size));
    let bytes = whole.and_then(|(from, to)| buffer.bytes().get(from..to));
    let Some(bytes) = bytes else {
        return Vec::new();
    };
    let half = |pair: &[u8]| u16::from_le_bytes([pair[0], pair[1]]);
    match ty {
        ElementType::F16 => bytes
            .chunks_exact(2)
            .map(|pair| f16::from_bits(half(pair)).to_f64())
            .collect(),
        ElementType::Bf16 => bytes
            .chunks_exact(2)
            .map(|pair| bf16::from_bits(half(pair)).to_f64())
            .collect(),
        _ => buffer
            .iter()
            .skip(part.start)
            .take(part.len())
            .map(|bits| ty.to_f64(bits))
            .collect(),
    }
}

/// The elements of a buffer from `first` on; NaNs past its end.
#[inline(never)]
pub fn decode(buffer: &Buffer, first: usize, to: &mut [f64]) {
    let size = buffer.ty().bytes();
    let bytes = buffer.bytes().get(first * size..).unwrap_or_default();
    to.fill(f64::NAN);
    let half = |pair: &[u8]| u16::from_le_bytes([pair[0], pair[1]]);
    for (to, bytes) in to.iter_mut().zip(bytes.chunks_exact(size)) {
        *to = match buffer.ty() {
            ElementType::F16 => f16::from_bits(half(bytes)).to_f64(),
            ElementType::Bf16 => f64::from(bf16::from_bits(half(bytes)).to_f32()),
            ElementType::F32 => match bytes {
                &[a, b, c, d] => f32::from_le_bytes([a, b, c, d]).into(),
                _ => f64::NAN,
            },
            ElementType::U8 => bytes[0].into(),
            ty @ ElementType::E4m3 => ty.to_f64(bytes[0].into()),
            ElementType::U32 => match bytes {
                &[a, b, c, d] => u32::from_le_bytes([a, b, c, d]).into(),
                _ => f64::NAN,
            },
            _ => f64::NAN,
        };
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
