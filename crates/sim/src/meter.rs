//! How far a run is, for somebody who waits for it on another thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Counts the blocks of the run that goes on now. Clones are one meter: keep one, and give the
/// other to [`Options`](crate::Options).
#[derive(Clone, Debug, Default)]
pub struct Meter(Arc<Counts>);

#[derive(Debug)]
struct Counts {
    made: Instant,
    /// When the run began, in milliseconds after the meter was made.
    began: AtomicU64,
    blocks: AtomicU64,
    ended: AtomicU64,
}

impl Default for Counts {
    fn default() -> Counts {
        Counts {
            made: Instant::now(),
            began: AtomicU64::new(0),
            blocks: AtomicU64::new(0),
            ended: AtomicU64::new(0),
        }
    }
}

/// A meter changes nothing of a run: options that differ in it alone are the same.
impl PartialEq for Meter {
    fn eq(&self, _: &Meter) -> bool {
        true
    }
}

/// How far a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Advance {
    /// Blocks that have ended, or that others took over by launch control.
    pub ended: u64,
    /// Blocks of the grid.
    pub blocks: u64,
    /// How long the run has gone on.
    pub spent: Duration,
}

impl Advance {
    /// How long the other blocks will take if they are like those that have ended; none before
    /// the first of them.
    pub fn left(&self) -> Option<Duration> {
        let others = self.blocks.saturating_sub(self.ended);
        (self.ended > 0).then(|| self.spent.mul_f64(others as f64 / self.ended as f64))
    }
}

impl Meter {
    /// A run begins, perhaps after another one.
    pub(crate) fn begin(&self, blocks: u64) {
        let now = self.0.made.elapsed().as_millis() as u64;
        self.0.began.store(now, Relaxed);
        self.0.ended.store(0, Relaxed);
        self.0.blocks.store(blocks, Relaxed);
    }

    /// So many more blocks have ended.
    pub(crate) fn end(&self, blocks: u64) {
        self.0.ended.fetch_add(blocks, Relaxed);
    }

    /// How far the run is; nothing before the first run has begun.
    pub fn read(&self) -> Option<Advance> {
        let blocks = self.0.blocks.load(Relaxed);
        let began = Duration::from_millis(self.0.began.load(Relaxed));
        (blocks > 0).then(|| Advance {
            // A run that is repeated on one thread begins anew: never more than there are.
            ended: self.0.ended.load(Relaxed).min(blocks),
            blocks,
            spent: self.0.made.elapsed().saturating_sub(began),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_meter_counts_the_blocks_of_the_last_run() {
        let meter = Meter::default();
        let other = meter.clone();
        assert_eq!(meter.read(), None);
        other.begin(10);
        other.end(4);
        let advance = meter.read().unwrap();
        assert_eq!((advance.ended, advance.blocks), (4, 10));
        other.begin(3);
        let advance = meter.read().unwrap();
        assert_eq!((advance.ended, advance.blocks), (0, 3));
    }

    #[test]
    fn what_is_left_is_like_what_was() {
        let advance = |ended| Advance {
            ended,
            blocks: 40,
            spent: Duration::from_secs(6),
        };
        assert_eq!(advance(0).left(), None);
        assert_eq!(advance(10).left(), Some(Duration::from_secs(18)));
        assert_eq!(advance(40).left(), Some(Duration::ZERO));
    }
}
