//! The operations over host memory on a simulated GPU.

mod attention;
mod gradients;
mod products;

use half::{bf16, f16};
use heist::ops::{BorrowedStream, Ops};
use heist::run::{Device, DeviceName};

pub(crate) const STREAM: BorrowedStream = BorrowedStream(0);

pub(crate) fn ops() -> Ops {
    let name: DeviceName = "sim:h200".parse().expect("a device");
    Ops::new(Device::open(name).expect("a simulated one is there")).expect("one for kernels")
}

pub(crate) fn random(seed: u64, count: usize) -> Vec<f64> {
    let mut random = fastrand::Rng::with_seed(seed);
    // Eighths: exact in every type here.
    (0..count)
        .map(|_| f64::from(random.i32(-8..=8)) / 8.0)
        .collect()
}

pub(crate) fn halves(values: &[f64]) -> Vec<u16> {
    values.iter().map(|v| f16::from_f64(*v).to_bits()).collect()
}

pub(crate) fn brains(values: &[f64]) -> Vec<u16> {
    values
        .iter()
        .map(|v| bf16::from_f64(*v).to_bits())
        .collect()
}

pub(crate) fn from_halves(bits: &[u16]) -> Vec<f64> {
    bits.iter().map(|b| f16::from_bits(*b).to_f64()).collect()
}

pub(crate) fn from_brains(bits: &[u16]) -> Vec<f64> {
    bits.iter().map(|b| bf16::from_bits(*b).to_f64()).collect()
}

pub(crate) fn close(found: &[f64], expected: &[f64], bound: f64) {
    assert_eq!(found.len(), expected.len());
    for (index, (found, expected)) in found.iter().zip(expected).enumerate() {
        let error = (found - expected).abs();
        assert!(
            error <= bound,
            "element {index}: {found}, and {expected} is right"
        );
    }
}

/// Softmax of one query row over some keys.
pub(crate) fn attend(q: &[f64], keys: &[&[f64]], values: &[&[f64]], scale: f64) -> (Vec<f64>, f64) {
    let dot = |key: &&[f64]| q.iter().zip(*key).map(|(a, b)| a * b).sum::<f64>() * scale;
    let scores: Vec<f64> = keys.iter().map(dot).collect();
    let sum: f64 = scores.iter().map(|s| s.exp()).sum();
    let mut out = vec![0.0; q.len()];
    for (score, value) in scores.iter().zip(values) {
        for (out, v) in out.iter_mut().zip(*value) {
            *out += score.exp() / sum * v;
        }
    }
    (out, sum.ln())
}
