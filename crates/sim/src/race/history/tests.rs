//! Deferring and forgetting accesses does not change which races are found.

use super::*;
use crate::lanes::{ALL, each};
use crate::race::clock::meet;
use crate::rng::Rng;

const ONE_BLOCK: Geography = Geography {
    warps_per_block: 3,
    blocks_per_cluster: 1,
    isolated: true,
    in_parts: false,
};

/// An access of a warp.
#[derive(Clone, Copy)]
struct One {
    offsets: [u64; LANES],
    mask: Mask,
    size: u32,
    write: bool,
    pc: u32,
}

impl One {
    fn touch(&self) -> Touch<'_> {
        Touch {
            offsets: &self.offsets,
            mask: self.mask,
            size: self.size,
        }
    }

    /// Recorded at once: the first conflict, and its line.
    fn record(
        &self,
        history: &mut History,
        clock: &WarpClock,
        floor: &Floor,
    ) -> Option<(u64, Conflict)> {
        let mut found = None;
        let touch = self.touch();
        touch.lines(touch.is_contiguous(), |part| {
            let access = Access::of(part, self.write, AccessKind::Plain, self.pc);
            let conflict = history.access(part.line, &access, clock, ONE_BLOCK, floor);
            found = found.or(conflict.map(|conflict| (part.line, conflict)));
        });
        found
    }

    /// Deferred, if possible.
    fn put_off(&self, history: &mut History, clock: &WarpClock) -> bool {
        let offsets = self.offsets.map(|offset| offset as u32);
        let read = Read::of(offsets, (self.mask, self.size), self.pc, clock);
        let lines = each(self.mask).map(|lane| self.offsets[lane] / 128);
        history.put_off(lines, || read)
    }
}

/// Lane after lane from an offset on.
fn in_order(start: u64, size: u32, write: bool, pc: u32) -> One {
    One {
        offsets: std::array::from_fn(|lane| start + u64::from(size) * lane as u64),
        mask: ALL,
        size,
        write,
        pc,
    }
}

fn shared_memory(defers: bool) -> History {
    let mut history = History::default();
    history.restart(8, defers);
    history
}

#[test]
fn a_write_finds_a_read_that_was_put_off_until_all_have_met() {
    let floor = Floor::new(0, 2);
    let (mut a, mut b) = (WarpClock::new(0, 0, 2), WarpClock::new(1, 0, 2));
    let mut history = shared_memory(true);
    let read = One {
        mask: 0b1000,
        ..in_order(128, 4, false, 17)
    };
    assert!(read.put_off(&mut history, &a));
    let [before, there] = [0, 128].map(|at| in_order(at, 4, true, 30));
    assert_eq!(before.record(&mut history, &b, &floor), None);
    assert_eq!(history.waiting, 1, "that was another line");
    let conflict = there.record(&mut history, &b, &floor);
    assert!(
        conflict.is_some_and(|(line, found)| {
            (
                line,
                found.agent,
                found.their_lane,
                found.their_pc,
                found.byte,
            ) == (1, 0, 3, 17, 12)
        }),
        "{conflict:?}"
    );
    assert!(!read.put_off(&mut history, &a), "not all know of the write");

    assert!(meet(&mut [&mut a, &mut b]));
    history.all_met();
    assert!(read.put_off(&mut history, &a));
    assert!(meet(&mut [&mut a, &mut b]));
    history.all_met();
    assert_eq!(there.record(&mut history, &b, &floor), None);
}

#[test]
fn what_an_asynchronous_operation_wrote_ends_putting_off() {
    let a = WarpClock::new(0, 0, 1);
    let read = in_order(128, 4, false, 5);
    let mut history = shared_memory(true);
    history.overwrite(0, 0xf, AccessKind::Async, (9, 1), 3);
    history.all_met();
    assert!(!read.put_off(&mut history, &a));
    history.restart(8, true);
    assert!(read.put_off(&mut history, &a));
}

/// Whether a line was accessed in an order of the lanes, or in any.
#[test]
fn the_next_block_finds_nothing_of_the_one_before() {
    let floor = Floor::new(0, 2);
    let (a, b) = (WarpClock::new(0, 0, 2), WarpClock::new(1, 0, 2));
    let mut history = History::default();
    history.restart(2 * PAGE, false);
    for line in [0, 1, PAGE - 1, PAGE, 2 * PAGE - 1] {
        let write = in_order(line as u64 * 128, 4, true, 30);
        assert_eq!(write.record(&mut history, &a, &floor), None);
        assert!(write.record(&mut history, &b, &floor).is_some());
        history.restart(2 * PAGE, false);
        assert!(history.access_in_order(line as u64, (true, 0), 30, &a));
        assert!(write.record(&mut history, &b, &floor).is_some());
        history.restart(2 * PAGE, false);
        assert!(history.access_in_order(line as u64, (true, 0), 30, &a));
        history.restart(2 * PAGE, false);
        assert_eq!(write.record(&mut history, &b, &floor), None);
        history.restart(2 * PAGE, false);
    }
}

#[test]
fn there_is_an_end_to_putting_off() {
    let a = WarpClock::new(0, 0, 1);
    let read = in_order(0, 4, false, 5);
    let mut history = shared_memory(true);
    let put_off = (0..9999).filter(|_| read.put_off(&mut history, &a));
    assert_eq!(put_off.count(), PUT_OFF.end);
    history.all_met();
    assert!(read.put_off(&mut history, &a));
}

#[test]
fn marks_survive_more_meetings_than_can_be_counted() {
    let (a, floor) = (WarpClock::new(0, 0, 1), Floor::new(0, 1));
    let mut history = shared_memory(true);
    in_order(0, 4, true, 5).record(&mut history, &a, &floor);
    let written = history.met;
    history.met = u32::MAX;
    history.all_met();
    history.met = written;
    assert!(in_order(0, 4, false, 6).put_off(&mut history, &a));
}

#[test]
fn memory_that_is_still_remembers_no_read_and_is_stirred_by_a_write() {
    let (a, b, floor) = (
        WarpClock::new(0, 0, 2),
        WarpClock::new(1, 0, 2),
        Floor::new(0, 2),
    );
    let mut history = History::new(8);
    history.keep_still();
    assert_eq!(
        in_order(0, 8, false, 1).record(&mut history, &a, &floor),
        None
    );
    assert!(history.pages.iter().all(Option::is_none));
    assert!(!history.is_stirred() && !history.fork(8).is_stirred());
    in_order(256, 4, true, 2).record(&mut history, &b, &floor);
    assert!(history.is_stirred() && history.fork(8).is_still());
}

/// The same accesses and barriers with deferred reads and without: every access finds the same
/// conflict.
#[test]
fn putting_off_changes_nothing_that_is_found() {
    let mut found = 0;
    for seed in 1..1000 {
        let mut rng = Rng::new(seed);
        let mut clocks: Vec<WarpClock> = (0..3).map(|at| WarpClock::new(at, 0, 3)).collect();
        let mut floor = Floor::new(0, 3);
        let (mut lazy, mut eager) = (shared_memory(true), shared_memory(false));
        for pc in 0..60 {
            let what = rng.below(12);
            if what == 0 {
                let mut all: Vec<&mut WarpClock> = clocks.iter_mut().collect();
                assert!(meet(&mut all));
                for clock in all {
                    floor.raise(clock.agent, clock.now);
                }
                lazy.all_met();
                eager.all_met();
                continue;
            }
            let at = rng.below(3) as usize;
            if what == 1 {
                clocks[at].sync_lanes(ALL, ALL);
                continue;
            }
            let size = 1 << rng.below(5);
            let mut one = in_order(128 * rng.below(3), size, what > 8, pc);
            match rng.below(4) {
                0 => one.offsets.reverse(),
                1 => one.offsets = one.offsets.map(|offset| offset / 32 * 32),
                2 => one.offsets.swap(3, 17),
                _ => {}
            }
            if rng.below(2) == 0 {
                one.mask = [0xf, 0xffff_0000, 0x1111_1111, 1][rng.below(4) as usize];
            }
            let clock = &clocks[at];
            let eagerly = one.record(&mut eager, clock, &floor);
            let lazily = if !one.write && one.put_off(&mut lazy, clock) {
                None
            } else {
                one.record(&mut lazy, clock, &floor)
            };
            assert_eq!(lazily, eagerly, "seed {seed}, access {pc}");
            found += u32::from(eagerly.is_some());
        }
    }
    assert!(found > 1000, "{found} conflicts are too few to tell");
}
