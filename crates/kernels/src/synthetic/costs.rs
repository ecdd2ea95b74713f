//! How much work each tile is.

use fastrand::Rng;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// A workload, by what makes it uneven.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Workload {
    /// All tiles alike.
    Uniform,
    /// Sequences of lengths 1 : 2 : 4 : ... up to the imbalance.
    SequenceLengths,
    /// Requests that arrive in bursts: one long prefill, then short decodes.
    DynamicBatching,
    /// Causal attention with blocks left out: rows that grow, with gaps.
    SparseAttention,
    /// Vertices of a graph whose degrees follow a power law.
    PowerLaw,
    /// Experts that get tokens by popularity; the last tile of each is partial.
    MixtureOfExperts,
    /// Groups of pictures: heavy key frames, middling and light ones between.
    VideoFrames,
    /// One tile in twenty is heavy, all of them next to each other.
    ClusteredHeavy,
    /// Loops whose length depends on the data.
    DataDependent,
}

/// Size and shape of a workload.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Parameters {
    /// How many tiles.
    pub tiles: u32,
    /// The mean number of steps of a tile.
    pub mean: u32,
    /// How many times the heaviest tile outweighs the lightest, about.
    pub imbalance: f64,
    /// Steps of the prologue.
    pub prologue: u32,
    /// The seed of the random costs.
    pub seed: u64,
    /// Bytes of shared memory that a block holds, as a tensor kernel's stages
    /// do; with 150,000 one block fits on an SM.
    #[serde(default)]
    pub shared: u32,
}

impl Default for Parameters {
    fn default() -> Parameters {
        Parameters {
            tiles: 4096,
            mean: 500,
            imbalance: 8.0,
            prologue: 0,
            seed: 1,
            shared: 0,
        }
    }
}

impl Workload {
    /// All of them.
    pub const ALL: [Workload; 9] = [
        Workload::Uniform,
        Workload::SequenceLengths,
        Workload::DynamicBatching,
        Workload::SparseAttention,
        Workload::PowerLaw,
        Workload::MixtureOfExperts,
        Workload::VideoFrames,
        Workload::ClusteredHeavy,
        Workload::DataDependent,
    ];

    /// Its name in commands.
    pub const fn as_str(self) -> &'static str {
        match self {
            Workload::Uniform => "uniform",
            Workload::SequenceLengths => "sequence-lengths",
            Workload::DynamicBatching => "dynamic-batching",
            Workload::SparseAttention => "sparse-attention",
            Workload::PowerLaw => "power-law",
            Workload::MixtureOfExperts => "mixture-of-experts",
            Workload::VideoFrames => "video-frames",
            Workload::ClusteredHeavy => "clustered-heavy",
            Workload::DataDependent => "data-dependent",
        }
    }

    /// One sentence.
    pub const fn summary(self) -> &'static str {
        match self {
            Workload::Uniform => "all tiles alike",
            Workload::SequenceLengths => "sequences of lengths 1:2:4:8",
            Workload::DynamicBatching => "bursts of requests: a long prefill, then short decodes",
            Workload::SparseAttention => "causal rows that grow, with blocks left out",
            Workload::PowerLaw => "vertices whose degrees follow a power law",
            Workload::MixtureOfExperts => "experts by popularity, each with a partial last tile",
            Workload::VideoFrames => "heavy key frames, middling and light ones between",
            Workload::ClusteredHeavy => "one tile in twenty heavy, all of them together",
            Workload::DataDependent => "loops whose end only the data knows",
        }
    }

    /// Whether its tiles differ.
    pub fn uneven(self) -> bool {
        self != Workload::Uniform
    }

    /// The steps of each tile; for [`Workload::DataDependent`], the steps to
    /// expect, a power of two.
    ///
    /// Their mean is about `parameters.mean`, and none is zero.
    pub fn costs(self, parameters: &Parameters) -> Vec<u32> {
        let tiles = parameters.tiles as usize;
        let mut rng = Rng::with_seed(parameters.seed ^ 0x5EED_0000 ^ self as u64);
        let imbalance = parameters.imbalance.max(1.0);
        let weights: Vec<f64> = match self {
            Workload::Uniform => vec![1.0; tiles],
            Workload::SequenceLengths | Workload::DataDependent => {
                let lengths = imbalance.log2().floor().max(0.0) as u32 + 1;
                (0..tiles)
                    .map(|_| f64::from(1u32 << rng.u32(0..lengths.min(31))))
                    .collect()
            }
            Workload::DynamicBatching => {
                let mut weights = Vec::with_capacity(tiles);
                while weights.len() < tiles {
                    weights.push(imbalance);
                    let decodes = rng.usize(2..24);
                    weights.extend((0..decodes).map(|_| 1.0 + rng.f64()));
                }
                weights.truncate(tiles);
                weights
            }
            Workload::SparseAttention => {
                let rows = (tiles as f64).sqrt().ceil().max(1.0);
                (0..tiles)
                    .map(|tile| {
                        let row = (tile as f64 / rows).floor() + 1.0;
                        let kept = 0.25 + 0.75 * rng.f64();
                        1.0 + (imbalance - 1.0) * row / rows * kept
                    })
                    .collect()
            }
            Workload::PowerLaw => (0..tiles)
                .map(|_| rng.f64().max(1e-9).powf(-0.8).min(imbalance * 4.0))
                .collect(),
            Workload::MixtureOfExperts => experts(tiles, imbalance, &mut rng),
            Workload::VideoFrames => {
                let mut frame = rng.usize(0..12);
                (0..tiles)
                    .map(|_| {
                        // A cut to another scene starts a new group.
                        frame = if rng.u32(0..100) == 0 { 0 } else { frame + 1 };
                        match frame % 12 {
                            0 => imbalance,
                            3 | 6 | 9 => 1.0 + imbalance / 4.0,
                            _ => 1.0,
                        }
                    })
                    .collect()
            }
            Workload::ClusteredHeavy => {
                let heavy = (tiles / 20).max(1);
                let first = rng.usize(0..=tiles.saturating_sub(heavy));
                (0..tiles)
                    .map(|tile| {
                        let inside = (first..first + heavy).contains(&tile);
                        if inside { imbalance * 2.0 } else { 1.0 }
                    })
                    .collect()
            }
        };
        scale(&weights, parameters.mean, self == Workload::DataDependent)
    }
}

/// Zipf's law over 64 experts, in tiles of equal size but for each expert's last.
fn experts(tiles: usize, imbalance: f64, rng: &mut Rng) -> Vec<f64> {
    let experts = 64.min(tiles.max(1));
    let popularity: Vec<f64> = (0..experts).map(|rank| 1.0 / (rank as f64 + 1.0)).collect();
    let sum: f64 = popularity.iter().sum();
    let mut order: Vec<usize> = (0..experts).collect();
    rng.shuffle(&mut order);
    let mut weights = Vec::with_capacity(tiles);
    for expert in order {
        let full = (tiles as f64 * popularity[expert] / sum) as usize;
        weights.extend(std::iter::repeat_n(imbalance, full));
        weights.push(1.0 + (imbalance - 1.0) * rng.f64());
    }
    // Rounding decides how many there are; the grid has a fixed number.
    while weights.len() < tiles {
        weights.push(1.0);
    }
    weights.truncate(tiles);
    weights
}

/// Steps with the given mean in proportion to the weights.
fn scale(weights: &[f64], mean: u32, powers_of_two: bool) -> Vec<u32> {
    let sum: f64 = weights.iter().sum();
    let unit = f64::from(mean) * weights.len() as f64 / sum.max(1e-9);
    weights
        .iter()
        .map(|weight| {
            let steps = (weight * unit).round().clamp(1.0, 1e9) as u32;
            if powers_of_two {
                steps.next_power_of_two()
            } else {
                steps
            }
        })
        .collect()
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A name that is no workload's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no workload `{name}`; there are {known}")]
pub struct UnknownWorkload {
    name: String,
    known: String,
}

impl FromStr for Workload {
    type Err = UnknownWorkload;
    fn from_str(text: &str) -> Result<Workload, UnknownWorkload> {
        let known = Workload::ALL;
        known
            .into_iter()
            .find(|workload| workload.as_str() == text)
            .ok_or_else(|| UnknownWorkload {
                name: text.to_owned(),
                known: known.map(Workload::as_str).join(", "),
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_have_the_mean_and_the_spread_that_were_asked_for() {
        for workload in Workload::ALL {
            let parameters = Parameters {
                tiles: 5000,
                mean: 400,
                imbalance: 8.0,
                ..Parameters::default()
            };
            let costs = workload.costs(&parameters);
            assert_eq!(costs.len(), 5000);
            assert!(costs.iter().all(|&steps| steps > 0));
            let mean = costs.iter().map(|&c| f64::from(c)).sum::<f64>() / 5000.0;
            let most = if workload == Workload::DataDependent {
                800.0
            } else {
                410.0
            };
            assert!((390.0..most).contains(&mean), "{workload}: mean {mean}");
            let (low, high) = (costs.iter().min(), costs.iter().max());
            let spread = f64::from(*high.unwrap()) / f64::from(*low.unwrap());
            if workload.uneven() {
                assert!(spread > 3.0, "{workload}: {spread}");
            } else {
                assert_eq!(spread, 1.0);
            }
            assert_eq!(costs, workload.costs(&parameters), "the seed fixes it");
            assert_eq!(workload.as_str().parse(), Ok(workload));
        }
        assert!("unknown".parse::<Workload>().is_err());
    }

    #[test]
    fn one_tile_is_enough() {
        for workload in Workload::ALL {
            let parameters = Parameters {
                tiles: 1,
                ..Parameters::default()
            };
            assert_eq!(workload.costs(&parameters).len(), 1);
        }
    }
}
