//! Measuring several kernels against each other.
//!
//! A time alone says little: clocks change with heat and load. So several arms
//! are measured in turns, round after round, each in every position, and compared
//! within a round. Before each sample the whole L2 is overwritten, which also
//! keeps the GPU busy while the sample is put into the stream, so that launch
//! latency is not measured.

use crate::context::Gpu;
use crate::error::GpuError;
use crate::memory::DeviceMemory;
use crate::stream::{Event, Stream};
use heist_launch::Time;
use std::time::{Duration, Instant};

/// What puts one sample's work into the stream.
type Work<'w> = Box<dyn FnMut(&Stream) -> Result<(), GpuError> + 'w>;

/// Something to measure.
pub struct Arm<'w> {
    name: String,
    work: Work<'w>,
}

impl<'w> Arm<'w> {
    /// `work` puts one sample into the stream, and does not wait for it.
    pub fn new(
        name: impl Into<String>,
        work: impl FnMut(&Stream) -> Result<(), GpuError> + 'w,
    ) -> Arm<'w> {
        Arm {
            name: name.into(),
            work: Box::new(work),
        }
    }
}

/// How to measure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Protocol {
    /// How long to run before measuring, for clocks and power to settle.
    pub warm_up: Duration,
    /// How many rounds, each with one sample of every arm.
    pub rounds: u32,
    /// How often the work is done for one sample; its time is divided by it.
    pub repeats: u32,
}

impl Default for Protocol {
    fn default() -> Protocol {
        Protocol {
            warm_up: Duration::from_millis(300),
            rounds: 50,
            repeats: 1,
        }
    }
}

/// The samples of one arm, by round.
#[derive(Clone, Debug, PartialEq)]
pub struct Figures {
    /// The arm.
    pub name: String,
    /// One time for each round, of one repeat.
    pub samples: Vec<Time>,
}

/// A median with the tenth and the ninetieth percentile.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// A tenth of the samples are below.
    pub p10: f64,
    /// Half are.
    pub median: f64,
    /// Nine tenths are.
    pub p90: f64,
}

impl Spread {
    /// Of any numbers; `None` of none, or when one is not a number.
    pub fn of(numbers: impl IntoIterator<Item = f64>) -> Option<Spread> {
        let mut sorted: Vec<f64> = numbers.into_iter().collect();
        if sorted.is_empty() || sorted.iter().any(|number| number.is_nan()) {
            return None;
        }
        sorted.sort_by(f64::total_cmp);
        // Between the two nearest samples, in proportion.
        let quantile = |part: f64| {
            let at = part * (sorted.len() - 1) as f64;
            let (low, high) = (at.floor() as usize, at.ceil() as usize);
            sorted[low] + (sorted[high] - sorted[low]) * (at - low as f64)
        };
        Some(Spread {
            p10: quantile(0.1),
            median: quantile(0.5),
            p90: quantile(0.9),
        })
    }
}

impl Figures {
    /// Nanoseconds.
    pub fn nanoseconds(&self) -> Option<Spread> {
        Spread::of(self.samples.iter().map(|time| time.ns()))
    }

    /// How many times as long as `other` this took, compared within each round.
    pub fn times_as_long_as(&self, other: &Figures) -> Option<Spread> {
        let pairs = self.samples.iter().zip(&other.samples);
        Spread::of(
            pairs
                .filter(|(_, theirs)| theirs.0 > 0)
                .map(|(ours, theirs)| ours.0 as f64 / theirs.0 as f64),
        )
    }
}

/// Takes one sample at a time, for comparisons whose other arms are not ours to
/// put into a stream.
pub struct Sampler {
    stream: Stream,
    flush: DeviceMemory,
    start: Event,
    end: Event,
}

impl Sampler {
    /// The stream that samples are taken on.
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Does the work `repeats` times on a cold cache and waits for its end; the time
    /// is of one repeat.
    pub fn sample(
        &self,
        repeats: u32,
        mut work: impl FnMut(&Stream) -> Result<(), GpuError>,
    ) -> Result<Time, GpuError> {
        let repeats = repeats.max(1);
        self.flush.fill(0, &self.stream)?;
        self.start.record(&self.stream)?;
        for _ in 0..repeats {
            work(&self.stream)?;
        }
        self.end.record(&self.stream)?;
        self.stream.synchronize()?;
        let time = self.end.since(&self.start)?;
        Ok(Time(time.0 / u64::from(repeats)))
    }

    /// Does the work `repeats` times back to back, after `lead` times that do not count, and waits
    /// for its end; the time is of one repeat. The GPU does not rest, and keeps what is in its cache.
    pub fn back_to_back(
        &self,
        lead: u32,
        repeats: u32,
        mut work: impl FnMut(&Stream) -> Result<(), GpuError>,
    ) -> Result<Time, GpuError> {
        let repeats = repeats.max(1);
        for _ in 0..lead {
            work(&self.stream)?;
        }
        self.start.record(&self.stream)?;
        for _ in 0..repeats {
            work(&self.stream)?;
        }
        self.end.record(&self.stream)?;
        self.stream.synchronize()?;
        let time = self.end.since(&self.start)?;
        Ok(Time(time.0 / u64::from(repeats)))
    }
}

impl Gpu {
    /// What takes samples, with a stream of its own.
    pub fn sampler(&self) -> Result<Sampler, GpuError> {
        Ok(Sampler {
            stream: self.untracked_stream()?,
            flush: self.allocate((self.info().l2 as usize * 2).max(32 << 20))?,
            start: self.event()?,
            end: self.event()?,
        })
    }

    /// Measures arms in turns. A fault in one of them ends the measurement.
    pub fn measure(
        &self,
        arms: &mut [Arm<'_>],
        protocol: &Protocol,
    ) -> Result<Vec<Figures>, GpuError> {
        let sampler = self.sampler()?;
        let sample = |arm: &mut Arm<'_>| sampler.sample(protocol.repeats, &mut arm.work);
        let began = Instant::now();
        while began.elapsed() < protocol.warm_up {
            for arm in arms.iter_mut() {
                sample(arm)?;
            }
            if arms.is_empty() {
                break;
            }
        }
        let mut figures: Vec<Figures> = arms
            .iter()
            .map(|arm| Figures {
                name: arm.name.clone(),
                samples: Vec::with_capacity(protocol.rounds as usize),
            })
            .collect();
        for round in 0..protocol.rounds as usize {
            for turn in 0..arms.len() {
                let index = (round + turn) % arms.len();
                figures[index].samples.push(sample(&mut arms[index])?);
            }
        }
        Ok(figures)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles() {
        let spread = Spread::of((0..=10).map(f64::from)).unwrap();
        assert_eq!((spread.p10, spread.median, spread.p90), (1.0, 5.0, 9.0));
        let one = Spread::of([7.0]).unwrap();
        assert_eq!((one.p10, one.median, one.p90), (7.0, 7.0, 7.0));
        assert_eq!(Spread::of([1.0, 2.0]).unwrap().median, 1.5);
        assert_eq!(Spread::of([]), None);
        assert_eq!(Spread::of([f64::NAN]), None);
    }

    #[test]
    fn ratios_are_taken_within_a_round() {
        let figures = |samples: &[u64]| Figures {
            name: String::new(),
            samples: samples.iter().map(|ns| Time::from_ns(*ns)).collect(),
        };
        // The clock halves midway; the ratio does not notice.
        let ours = figures(&[20, 20, 40, 40]);
        let theirs = figures(&[10, 10, 20, 20]);
        let ratio = ours.times_as_long_as(&theirs).unwrap();
        assert_eq!((ratio.p10, ratio.median, ratio.p90), (2.0, 2.0, 2.0));
        assert_eq!(ours.nanoseconds().unwrap().median, 30.0);
    }
}
