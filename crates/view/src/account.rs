//! Accounting of the multiprocessors' time.
//!
//! At each moment of a run a multiprocessor is in one of six states. Averaged over the
//! multiprocessors the times in them add up to the time that the run took, so two runs can
//! be compared part by part.

use crate::Run;
use crate::lanes::{Block, blocks};
use heist_launch::{Time, Trace};
use serde::Serialize;
use std::collections::BTreeMap;

/// How long a multiprocessor was in each state, on average, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Account {
    /// A tile is at work (a block, in a kernel whose tiles were not measured).
    pub working: f64,
    /// A block is there and no tile is at work: its prologue, a request under way, its end.
    pub waiting: f64,
    /// No block is there, and one will come.
    pub launching: f64,
    /// No block is there, and none will come: the run goes on elsewhere.
    pub tail: f64,
    /// The multiprocessor never had a block of this run.
    pub unused: f64,
    /// Another kernel holds it, and no block of this run is there.
    pub others: f64,
}

impl Account {
    /// The parts with their names, in the order in which they are shown.
    pub fn parts(&self) -> [(&'static str, f64); 6] {
        [
            ("working", self.working),
            ("waiting", self.waiting),
            ("launching", self.launching),
            ("tail", self.tail),
            ("unused", self.unused),
            ("others", self.others),
        ]
    }

    /// The part without work that is the longest.
    pub fn most_idle(&self) -> (&'static str, f64) {
        let idle = &self.parts()[1..];
        let longer = |a: &(&'static str, f64), b: &(&'static str, f64)| a.1.total_cmp(&b.1);
        idle.iter()
            .copied()
            .max_by(longer)
            .unwrap_or(("waiting", 0.0))
    }
}

/// The change at a moment: numbers of tiles and blocks, of this run and of others.
#[derive(Clone, Copy, Default)]
struct There {
    tiles: i32,
    own: i32,
    others: i32,
}

/// Accounts for the time of a run.
///
/// ```
/// use heist_launch::{BlockSpan, Clock, Dim3, Time, Trace};
/// let mut trace = Trace::new("sim:b200", "k", Clock::Modelled, 2, Dim3::linear_x(2));
/// for (block, end) in [(0, 10), (1, 6)] {
///     let (start, end) = (Time::from_ns(0), Time::from_ns(end));
///     trace.blocks.push(BlockSpan { block, cluster: block, sm: block, start, end });
/// }
/// let account = heist_view::account(&heist_view::Run::new("two blocks", &trace));
/// assert_eq!((account.working, account.tail), (8.0, 2.0)); // of 10 ns, on average
/// ```
pub fn account(run: &Run<'_>) -> Account {
    let Some((begin, end)) = run.trace.window() else {
        return Account::default();
    };
    let mut moments: BTreeMap<u32, Vec<(Time, There)>> = BTreeMap::new();
    let mut last: BTreeMap<u32, Time> = BTreeMap::new();
    for (tenant, (_, trace)) in (0..).zip(run.tenants()) {
        for block in blocks(trace, tenant) {
            let mut change = There::default();
            if tenant == 0 {
                let latest = last.entry(block.sm).or_insert(block.end);
                *latest = block.end.max(*latest);
                change.own = 1;
                change.tiles = i32::from(trace.tiles.is_empty());
            } else {
                change.others = 1;
            }
            span(&mut moments, &block, change);
        }
    }
    for tile in &run.trace.tiles {
        let work = Block {
            sm: tile.sm,
            start: tile.start,
            end: tile.end,
            tenant: 0,
            block: tile.block,
        };
        let change = There {
            tiles: 1,
            ..There::default()
        };
        span(&mut moments, &work, change);
    }
    let mut sum = [0u64; 6];
    for (sm, moments) in &mut moments {
        moments.sort_unstable_by_key(|(at, _)| *at);
        one(moments, (begin, end), last.get(sm).copied(), &mut sum);
    }
    let sms = sm_count(run.trace, moments.len());
    sum[4] += end.since(begin).0 * (sms - moments.len() as u64);
    let mean = |part: u64| part as f64 / 1000.0 / sms as f64;
    Account {
        working: mean(sum[0]),
        waiting: mean(sum[1]),
        launching: mean(sum[2]),
        tail: mean(sum[3]),
        unused: mean(sum[4]),
        others: mean(sum[5]),
    }
}

/// How many multiprocessors there are: the trace's number, or more if the trace shows more.
fn sm_count(trace: &Trace, shown: usize) -> u64 {
    u64::from(trace.sm_count).max(shown as u64).max(1)
}

fn span(moments: &mut BTreeMap<u32, Vec<(Time, There)>>, block: &Block, change: There) {
    let of_sm = moments.entry(block.sm).or_default();
    let back = There {
        tiles: -change.tiles,
        own: -change.own,
        others: -change.others,
    };
    of_sm.push((block.start, change));
    of_sm.push((block.end.max(block.start), back));
}

/// Adds up one multiprocessor. `last` is when its last block of this run ended.
fn one(moments: &[(Time, There)], window: (Time, Time), last: Option<Time>, sum: &mut [u64; 6]) {
    let (begin, end) = window;
    let mut now = begin;
    let mut there = There::default();
    let nothing = (end, There::default());
    for &(at, change) in moments.iter().chain([&nothing]) {
        let at = at.clamp(begin, end);
        let state = match (there, last) {
            (There { tiles: 1.., .. }, _) => 0,
            (There { own: 1.., .. }, _) => 1,
            (There { others: 1.., .. }, _) => 5,
            (_, None) => 4,
            (_, Some(last)) if now < last => 2,
            _ => 3,
        };
        sum[state] += at.since(now).0;
        now = now.max(at);
        there.tiles += change.tiles;
        there.own += change.own;
        there.others += change.others;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use heist_launch::{BlockSpan, Clock, Dim3, TileOrigin, TileSpan};

    fn trace(blocks: &[(u32, u64, u64)], tiles: &[(u32, u64, u64)]) -> Trace {
        let mut trace = Trace::new("sim:b200", "k", Clock::Modelled, 4, Dim3::linear_x(4));
        for (block, &(sm, start, end)) in (0..).zip(blocks) {
            trace.blocks.push(BlockSpan {
                block,
                cluster: block,
                sm,
                start: Time::from_ns(start),
                end: Time::from_ns(end),
            });
        }
        for (tile, &(sm, start, end)) in (0..).zip(tiles) {
            trace.tiles.push(TileSpan {
                tile: Dim3::new(tile, 0, 0),
                block: sm,
                sm,
                start: Time::from_ns(start),
                end: Time::from_ns(end),
                origin: TileOrigin::Own,
            });
        }
        trace
    }

    #[test]
    fn the_parts_add_up_to_the_time_of_the_run() {
        // SM 0 works, waits and works; SM 1 starts late and ends early; SM 2 and 3 do nothing.
        let trace = trace(
            &[(0, 0, 100), (1, 40, 60)],
            &[(0, 0, 30), (0, 50, 100), (1, 45, 60)],
        );
        let account = account(&Run::new("a", &trace));
        let quarter = |ns: f64| ns / 4.0;
        assert_eq!(account.working, quarter(30.0 + 50.0 + 15.0));
        assert_eq!(account.waiting, quarter(20.0 + 5.0));
        assert_eq!(account.launching, quarter(40.0));
        assert_eq!(account.tail, quarter(40.0));
        assert_eq!(account.unused, quarter(200.0));
        let sum: f64 = account.parts().iter().map(|(_, ns)| ns).sum();
        assert_eq!(sum, 100.0);
        assert_eq!(account.most_idle(), ("unused", 50.0));
    }

    #[test]
    fn what_another_kernel_holds_is_told_apart() {
        let own = trace(&[(0, 0, 100), (1, 60, 100)], &[]);
        let guest = trace(&[(1, 0, 60), (2, 0, 200)], &[]);
        let beside = [("guest", &guest)];
        let account = account(&Run::new("a", &own).beside(&beside));
        assert_eq!(account.others, (60.0 + 100.0) / 4.0);
        assert_eq!(account.working, 140.0 / 4.0);
        assert_eq!(account.launching, 0.0);
    }

    #[test]
    fn an_empty_run_accounts_for_nothing() {
        assert_eq!(
            account(&Run::new("a", &trace(&[], &[]))),
            Account::default()
        );
    }
}
