//! The expected result of a workload, and its verification.

use super::{FACTOR, PROLOGUE_ADDEND, PROLOGUE_FACTOR, Parameters, THREADS, Workload};
use heist_launch::Dim3;

/// A workload with its data.
#[derive(Clone, Debug)]
pub struct Synthetic {
    /// Which.
    pub workload: Workload,
    /// How large.
    pub parameters: Parameters,
    /// The steps of each tile.
    pub costs: Vec<u32>,
    input: Vec<u32>,
}

/// An element that is not what it must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "tile {tile}, element {element}: {found:#010x} instead of {expected:#010x}; {wrong} of {checked} elements are wrong"
)]
pub struct Mismatch {
    /// The tile.
    pub tile: usize,
    /// The element of the tile.
    pub element: usize,
    /// What is there.
    pub found: u32,
    /// What should be there.
    pub expected: u32,
    /// Elements that are wrong.
    pub wrong: usize,
    /// Elements that were looked at.
    pub checked: usize,
}

impl Synthetic {
    /// Makes costs and inputs.
    pub fn new(workload: Workload, parameters: Parameters) -> Synthetic {
        let count = parameters.tiles as usize * THREADS as usize;
        let mut rng = fastrand::Rng::with_seed(parameters.seed);
        Synthetic {
            workload,
            parameters,
            costs: workload.costs(&parameters),
            input: (0..count).map(|_| rng.u32(..)).collect(),
        }
    }

    /// The grid of tiles: a line.
    pub fn tiles(&self) -> Dim3 {
        Dim3::linear_x(self.parameters.tiles)
    }

    /// The inputs, for a program that keeps its own buffers.
    pub fn input(&self) -> &[u32] {
        &self.input
    }

    /// Where the prologue starts.
    pub fn seed(&self) -> u32 {
        self.parameters.seed as u32 | 1
    }

    /// Checks every element of the output; of a large data-dependent one, whose
    /// end can't be known without walking, every 61st.
    ///
    /// # Errors
    /// The first element that is wrong, and how many are.
    pub fn verify(&self, output: &[u32]) -> Result<usize, Mismatch> {
        let addend = jump(
            self.seed(),
            PROLOGUE_FACTOR,
            PROLOGUE_ADDEND,
            self.parameters.prologue,
        );
        let walks = self.workload == Workload::DataDependent;
        let stride = if walks && self.input.len() > 1 << 18 {
            61
        } else {
            1
        };
        let mut first = None;
        let (mut wrong, mut checked) = (0, 0);
        for (at, &start) in self.input.iter().enumerate().step_by(stride) {
            let tile = at / THREADS as usize;
            let steps = self.costs[tile];
            let expected = if walks {
                search(start, addend, steps)
            } else {
                jump(start, FACTOR, addend, steps)
            };
            let found = output.get(at).copied().unwrap_or(!expected);
            checked += 1;
            if found != expected {
                wrong += 1;
                first.get_or_insert((tile, at % THREADS as usize, found, expected));
            }
        }
        match first {
            None => Ok(checked),
            Some((tile, element, found, expected)) => Err(Mismatch {
                tile,
                element,
                found,
                expected,
                wrong,
                checked,
            }),
        }
    }
}

/// `steps` times `value * factor + addend`, by squaring.
fn jump(value: u32, factor: u32, addend: u32, steps: u32) -> u32 {
    let (mut factor, mut addend, mut steps) = (factor, addend, steps);
    let (mut total_factor, mut total_addend) = (1u32, 0u32);
    while steps > 0 {
        if steps & 1 == 1 {
            total_factor = total_factor.wrapping_mul(factor);
            total_addend = total_addend.wrapping_mul(factor).wrapping_add(addend);
        }
        addend = addend.wrapping_mul(factor.wrapping_add(1));
        factor = factor.wrapping_mul(factor);
        steps >>= 1;
    }
    value.wrapping_mul(total_factor).wrapping_add(total_addend)
}

/// The kernel's search, step by step.
fn search(start: u32, addend: u32, expected: u32) -> u32 {
    let shift = 32 - (expected - 1).count_ones();
    let mut value = start;
    for _ in 0..expected.saturating_mul(8) {
        value = value.wrapping_mul(FACTOR).wrapping_add(addend);
        if value.checked_shr(shift).unwrap_or(0) == 0 {
            break;
        }
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_jump_is_as_good_as_a_walk() {
        let mut value = 77u32;
        for steps in 0..200 {
            assert_eq!(jump(77, FACTOR, 99, steps), value, "{steps} steps");
            value = value.wrapping_mul(FACTOR).wrapping_add(99);
        }
    }

    #[test]
    fn a_wrong_element_is_found() {
        let parameters = Parameters {
            tiles: 3,
            mean: 5,
            prologue: 7,
            ..Parameters::default()
        };
        for workload in Workload::ALL {
            let synthetic = Synthetic::new(workload, parameters);
            let error = synthetic.verify(&vec![0; 3 * 256]).unwrap_err();
            assert!(error.wrong > 700, "{workload}: {error}");
            assert!(synthetic.verify(&[]).is_err());
        }
    }
}
