//! How long another kernel would wait for a multiprocessor.
//!
//! The hardware never stops a running block. A kernel of higher priority that arrives while this
//! one runs gets a free block slot, or the next one that a block frees. Both are in the trace, so
//! the wait is known for every moment of arrival.

use crate::lanes::blocks;
use heist_launch::{Time, Trace};
use serde::Serialize;
use std::collections::BTreeSet;

/// How long a newcomer waits, in nanoseconds, if it comes while the device is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Wait {
    /// Half of all moments wait no longer than this.
    pub typical: f64,
    /// 99 of 100 moments wait no longer than this.
    pub p99: f64,
}

/// How many moments are looked at.
const MOMENTS: u64 = 4096;

/// The wait of a newcomer that needs one block slot, over all moments at which none is free;
/// zero where there is no such moment, as when a multiprocessor is never used.
///
/// ```
/// use heist_launch::{BlockSpan, Clock, Dim3, Time, Trace};
/// let mut trace = Trace::new("sim:b200", "k", Clock::Modelled, 1, Dim3::linear_x(1));
/// let (start, end) = (Time::from_ns(0), Time::from_ns(1000));
/// trace.blocks.push(BlockSpan { block: 0, cluster: 0, sm: 0, start, end });
/// let wait = heist_view::newcomer(&trace);
/// assert!((wait.typical - 500.0).abs() < 1.0); // one block all the time: on average half of it
/// ```
pub fn newcomer(trace: &Trace) -> Wait {
    let Some((begin, end)) = trace.window() else {
        return Wait::default();
    };
    let blocks = blocks(trace, 0);
    let used: BTreeSet<u32> = blocks.iter().map(|block| block.sm).collect();
    if used.len() < trace.sm_count as usize {
        return Wait::default();
    }
    let mut ends: Vec<Time> = blocks.iter().map(|block| block.end).collect();
    ends.sort_unstable();
    let mut changes: Vec<(Time, i64)> = Vec::with_capacity(2 * blocks.len());
    for block in &blocks {
        changes.push((block.start, 1));
        changes.push((block.end, -1));
    }
    changes.sort_unstable();
    // As many blocks as were ever there at once fill the device.
    let mut there = 0;
    let resident: Vec<(Time, i64)> = changes
        .iter()
        .map(|(at, change)| {
            there += change;
            (*at, there)
        })
        .collect();
    let room = resident.iter().map(|(_, there)| *there).max().unwrap_or(0);
    let length = end.since(begin).0;
    let mut waits: Vec<u64> = (0..MOMENTS)
        .filter_map(|moment| {
            let now = Time(begin.0 + (length as u128 * moment as u128 / MOMENTS as u128) as u64);
            let before = resident.partition_point(|(at, _)| *at <= now);
            let there = before.checked_sub(1).map_or(0, |last| resident[last].1);
            if there < room {
                return None;
            }
            let next = ends.partition_point(|at| *at <= now);
            ends.get(next).map(|at| at.since(now).0)
        })
        .collect();
    waits.sort_unstable();
    let at = |part: usize| {
        waits
            .get(waits.len() * part / 100)
            .map_or(0.0, |ps| *ps as f64 / 1000.0)
    };
    Wait {
        typical: at(50),
        p99: at(99),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use heist_launch::{BlockSpan, Clock, Dim3};

    fn trace(blocks: &[(u32, u64, u64)]) -> Trace {
        let mut trace = Trace::new("sim:b200", "k", Clock::Modelled, 2, Dim3::linear_x(4));
        for (block, &(sm, start, end)) in (0..).zip(blocks) {
            trace.blocks.push(BlockSpan {
                block,
                cluster: block,
                sm,
                start: Time::from_ns(start),
                end: Time::from_ns(end),
            });
        }
        trace
    }

    #[test]
    fn blocks_that_stay_keep_others_waiting_and_blocks_that_leave_do_not() {
        let stay = newcomer(&trace(&[(0, 0, 1000), (1, 0, 1000)]));
        assert!((stay.p99 - 990.0).abs() < 2.0, "{stay:?}");
        let leave: Vec<(u32, u64, u64)> = (0..10u64)
            .flat_map(|turn| (0..2).map(move |sm| (sm, turn * 100, turn * 100 + 100)))
            .collect();
        let leave = newcomer(&trace(&leave));
        assert!(leave.p99 <= 100.0 && leave.typical <= 51.0, "{leave:?}");
    }

    #[test]
    fn only_the_time_counts_at_which_the_device_is_full() {
        // Both are held for the first tenth of the time.
        let wait = newcomer(&trace(&[(0, 0, 1000), (1, 0, 100)]));
        assert!((wait.typical - 50.0).abs() < 2.0, "{wait:?}");
        assert_eq!(newcomer(&trace(&[])), Wait::default());
    }

    #[test]
    fn nobody_waits_where_a_multiprocessor_stays_free() {
        let free = newcomer(&trace(&[(1, 0, 1000), (1, 0, 1000)]));
        assert_eq!(free, Wait::default());
    }
}
