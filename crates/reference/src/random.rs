//! Random data: uniform in [-1, 1), the same for the same seed on every machine.
//!
//! Large matrices are made on every core: [`Buffer::random`] is the same idea
//! for a handful of elements.

use half::{bf16, f16};
use heist_launch::{Buffer, ElementType};

/// One number of the sequence of `seed`: a hash of its index, so that any part can be generated
/// alone.
fn unit(seed: u64, index: u64) -> f32 {
    let mut bits =
        (seed ^ 0x9E37_79B9_7F4A_7C15).wrapping_add(index.wrapping_mul(0xBF58_476D_1CE4_E5B9));
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    bits ^= bits >> 31;
    (bits >> 40) as f32 / (1u32 << 23) as f32 - 1.0
}

/// `count` elements of a floating-point type; of another type, zeros.
///
/// f32 values have ten bits of fraction at most, so that they are exact in tf32.
pub fn uniform(ty: ElementType, seed: u64, count: usize) -> Buffer {
    let size = ty.bytes();
    let mut bytes = vec![0u8; count * size];
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let part = count.div_ceil(threads).max(1 << 14);
    std::thread::scope(|scope| {
        for (number, bytes) in bytes.chunks_mut(part * size).enumerate() {
            let first = (number * part) as u64;
            scope.spawn(move || {
                for (index, element) in bytes.chunks_exact_mut(size).enumerate() {
                    let value = unit(seed, first + index as u64);
                    match ty {
                        ElementType::F16 => {
                            element.copy_from_slice(&f16::from_f32(value).to_le_bytes());
                        }
                        ElementType::Bf16 => {
                            element.copy_from_slice(&bf16::from_f32(value).to_le_bytes());
                        }
                        ElementType::F32 => {
                            let exact = f32::from_bits(value.to_bits() & !0x1FFF);
                            element.copy_from_slice(&exact.to_le_bytes());
                        }
                        ElementType::F64 => {
                            element.copy_from_slice(&f64::from(value).to_le_bytes());
                        }
                        ElementType::E4m3 | ElementType::E5m2 => {
                            element[0] = ty.from_f64(value.into()) as u8;
                        }
                        _ => {}
                    }
                }
            });
        }
    });
    Buffer::from_bytes(ty, bytes).unwrap_or_else(|| Buffer::zeros(ty, count))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_uniform_and_the_same_again() {
        for ty in [
            ElementType::F16,
            ElementType::Bf16,
            ElementType::F32,
            ElementType::E4m3,
            ElementType::E5m2,
        ] {
            let count = 40_000;
            let data = uniform(ty, 7, count);
            assert_eq!(data, uniform(ty, 7, count), "the seed fixes it");
            assert_ne!(data, uniform(ty, 8, count), "another seed, other data");
            let values: Vec<f64> = data.iter().map(|bits| ty.to_f64(bits)).collect();
            assert!(values.iter().all(|v| (-1.0..=1.0).contains(v)), "{ty}");
            let mean = values.iter().sum::<f64>() / count as f64;
            let square = values.iter().map(|v| v * v).sum::<f64>() / count as f64;
            assert!(mean.abs() < 0.02, "{ty}: mean {mean}");
            assert!(
                (square - 1.0 / 3.0).abs() < 0.02,
                "{ty}: mean square {square}"
            );
        }
    }
}
