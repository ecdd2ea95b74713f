//! Estimates from a few samples.

use serde::{Deserialize, Serialize};

/// The median of some samples, and between which two of them it lies.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// The median, in nanoseconds.
    pub median_ns: f64,
    /// The lower end of the interval.
    pub low_ns: f64,
    /// The upper end.
    pub high_ns: f64,
    /// How many samples.
    pub samples: u32,
}

impl Estimate {
    /// Whether it is significantly slower than another: the intervals do not overlap.
    pub fn is_slower_than(&self, other: &Estimate) -> bool {
        self.low_ns > other.high_ns
    }
}

/// The median with a distribution-free interval: the order statistics between which the true
/// median lies with at least 95% probability (a binomial of one half), or the extremes where there
/// are too few samples for that. `None` without samples.
pub fn estimate(samples: &[f64]) -> Option<Estimate> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let count = sorted.len();
    let (first, last) = (*sorted.first()?, *sorted.last()?);
    let median_ns = match count % 2 {
        1 => sorted[count / 2],
        _ => (sorted[count / 2 - 1] + sorted[count / 2]) / 2.0,
    };
    let outside = outside(count);
    let (low_ns, high_ns) = match outside {
        0 => (first, last),
        skipped => (sorted[skipped], sorted[count - 1 - skipped]),
    };
    Some(Estimate {
        median_ns,
        low_ns,
        high_ns,
        samples: count as u32,
    })
}

/// How many samples may be left out at each end of an interval of 95%.
fn outside(count: usize) -> usize {
    let mut weight = 0.5f64.powi(count.min(1000) as i32);
    let mut below = 0.0;
    let mut skipped = 0;
    for at in 0..count / 2 {
        below += weight;
        // Both tails together.
        if 2.0 * below > 0.05 {
            break;
        }
        skipped = at;
        weight *= (count - at) as f64 / (at + 1) as f64;
    }
    skipped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_samples_give_their_extremes() {
        let found = estimate(&[3.0, 1.0, 2.0]).expect("samples");
        assert_eq!(
            (found.low_ns, found.median_ns, found.high_ns),
            (1.0, 2.0, 3.0)
        );
        assert!(estimate(&[]).is_none());
    }

    #[test]
    fn the_interval_is_that_of_the_tables() {
        // The sign test's table: of 10 samples the second and the ninth, of 20 the sixth
        // and the fifteenth, of 30 the tenth and the twenty-first.
        for (count, low, high) in [(10u32, 2.0, 9.0), (20, 6.0, 15.0), (30, 10.0, 21.0)] {
            let samples: Vec<f64> = (1..=count).rev().map(f64::from).collect();
            let found = estimate(&samples).expect("samples");
            assert_eq!((found.low_ns, found.high_ns), (low, high), "of {count}");
        }
    }

    #[test]
    fn slower_means_apart() {
        let at = |low_ns, high_ns| Estimate {
            median_ns: (low_ns + high_ns) / 2.0,
            low_ns,
            high_ns,
            samples: 9,
        };
        assert!(at(11.0, 12.0).is_slower_than(&at(9.0, 10.0)));
        assert!(!at(9.5, 12.0).is_slower_than(&at(9.0, 10.0)));
    }
}
