use super::*;
use crate::lanes::ALL;
use crate::race::access::Scope;

const WIDE: Geography = Geography {
    warps_per_block: 2,
    blocks_per_cluster: 1,
    isolated: false,
    in_parts: false,
};

fn identity() -> [u8; 32] {
    std::array::from_fn(|lane| lane as u8)
}

fn access(write: bool, lanes: &[u8; 32]) -> Access<'_> {
    Access {
        write,
        kind: AccessKind::Plain,
        pc: 7,
        bytes: u128::MAX,
        lanes,
        shift: 2,
        first: 0,
        shared: false,
        crowds: None,
        cells: ALL,
        order: None,
    }
}

#[test]
fn unordered_warps_race_and_ordered_ones_do_not() {
    let (mut a, mut b) = (WarpClock::new(0, 0, 2), WarpClock::new(1, 0, 2));
    let floor = Floor::new(0, 2);
    let lanes = identity();
    let mut line = Line::default();
    assert_eq!(line.access(&access(true, &lanes), &a, WIDE, &floor), None);
    let found = line
        .clone()
        .access(&access(false, &lanes), &b, WIDE, &floor);
    assert!(found.is_some_and(|conflict| conflict.agent == 0 && conflict.their_write));
    b.acquire(&a.release(ALL, ALL), ALL, ALL);
    assert_eq!(line.access(&access(false, &lanes), &b, WIDE, &floor), None);
    // That read does not happen before the first warp, so it may not write again.
    assert!(
        line.access(&access(true, &lanes), &a, WIDE, &floor)
            .is_some()
    );
}

#[test]
fn neighbouring_bytes_do_not_race() {
    let (a, b) = (WarpClock::new(0, 0, 2), WarpClock::new(1, 0, 2));
    let floor = Floor::new(0, 2);
    let lanes = identity();
    let mut line = Line::default();
    let even = Access {
        bytes: 0x5555,
        cells: 0x5555,
        shift: 0,
        ..access(true, &lanes)
    };
    let odd = Access {
        bytes: 0xaaaa,
        cells: 0xaaaa,
        ..even
    };
    assert_eq!(line.access(&even, &a, WIDE, &floor), None);
    assert_eq!(line.access(&odd, &b, WIDE, &floor), None);
    assert!(
        line.access(&access(false, &lanes), &b, WIDE, &floor)
            .is_some()
    );
}

#[test]
fn lanes_of_one_warp_race_until_they_synchronise() {
    let mut a = WarpClock::new(0, 0, 2);
    let floor = Floor::new(0, 2);
    let (lanes, mut reversed) = (identity(), identity());
    reversed.reverse();
    let mut line = Line::default();
    assert_eq!(line.access(&access(true, &lanes), &a, WIDE, &floor), None);
    assert_eq!(line.access(&access(false, &lanes), &a, WIDE, &floor), None);
    let found = line
        .clone()
        .access(&access(false, &reversed), &a, WIDE, &floor);
    assert!(found.is_some_and(|conflict| conflict.their_lane != conflict.lane));
    a.sync_lanes(ALL, ALL);
    assert_eq!(
        line.access(&access(false, &reversed), &a, WIDE, &floor),
        None
    );
}

#[test]
fn readers_of_isolated_blocks_are_not_all_remembered() {
    let apart = Geography {
        isolated: true,
        in_parts: false,
        ..WIDE
    };
    let floor = Floor::default();
    let lanes = identity();
    let mut line = Line::default();
    for block in 0..100 {
        let reader = WarpClock::new(2 * block, 2 * block, 2);
        assert_eq!(
            line.access(&access(false, &lanes), &reader, apart, &floor),
            None
        );
    }
    assert_eq!(line.more.as_ref().map(|more| more.list.len()), Some(2));
    // Each of the first two readers too: the other one has read it as well.
    for block in [0, 1, 50] {
        let writer = WarpClock::new(2 * block, 2 * block, 2);
        let found = line
            .clone()
            .access(&access(true, &lanes), &writer, apart, &floor);
        assert!(found.is_some_and(|conflict| !conflict.their_write));
    }
}

#[test]
fn a_cell_keeps_its_own_instruction() {
    let (a, b) = (WarpClock::new(0, 0, 2), WarpClock::new(1, 0, 2));
    let floor = Floor::new(0, 2);
    let lanes = identity();
    let mut line = Line::default();
    for (pc, bytes) in [(7, 0xf), (8, 0xf0), (9, 0xf00)] {
        let part = Access {
            pc,
            bytes,
            cells: cell_mask(bytes, 2, 0),
            ..access(true, &lanes)
        };
        assert_eq!(line.access(&part, &a, WIDE, &floor), None);
    }
    for (pc, bytes) in [(7, 0xf), (8, 0xf0), (9, 0xf00)] {
        let part = Access {
            bytes,
            cells: cell_mask(bytes, 2, 0),
            ..access(false, &lanes)
        };
        let found = line.clone().access(&part, &b, WIDE, &floor);
        assert_eq!(found.map(|conflict| conflict.their_pc), Some(pc));
    }
}

#[test]
fn atomics_do_not_race_within_their_scope() {
    let (a, b) = (WarpClock::new(0, 0, 2), WarpClock::new(2, 2, 2));
    let floor = Floor::default();
    let lanes = identity();
    let of = |scope| Access {
        kind: AccessKind::Strong(scope, 4),
        ..access(true, &lanes)
    };
    let mut line = Line::default();
    assert_eq!(line.access(&of(Scope::Gpu), &a, WIDE, &floor), None);
    assert_eq!(line.clone().access(&of(Scope::Gpu), &b, WIDE, &floor), None);
    assert!(
        line.clone()
            .access(&of(Scope::Block), &b, WIDE, &floor)
            .is_some()
    );
    assert!(
        line.access(&access(false, &lanes), &b, WIDE, &floor)
            .is_some()
    );
}

#[test]
fn accesses_of_different_sizes_are_not_atomic_towards_each_other() {
    let (a, b) = (WarpClock::new(0, 0, 2), WarpClock::new(2, 2, 2));
    let floor = Floor::default();
    let lanes = identity();
    let of = |kind: fn(Scope, u8) -> AccessKind, size, bytes| Access {
        kind: kind(Scope::Gpu, size),
        bytes,
        cells: cell_mask(bytes, 2, 0),
        ..access(true, &lanes)
    };
    let kinds = [AccessKind::Atomic, AccessKind::Strong];
    for (first, then) in kinds
        .into_iter()
        .flat_map(|one| kinds.map(|two| (one, two)))
    {
        let mut line = Line::default();
        assert_eq!(line.access(&of(first, 8, 0xff), &a, WIDE, &floor), None);
        for (size, bytes, races) in [(8, 0xff, false), (4, 0xf0, true), (4, 0xf00, false)] {
            let found = line
                .clone()
                .access(&of(then, size, bytes), &b, WIDE, &floor);
            assert_eq!(found.is_some(), races, "{size} bytes at {bytes:#x}");
        }
    }
    // A part of a word of 32 bits is let pass, but for two atomics.
    for (kind, races) in [
        (AccessKind::Strong as fn(_, _) -> _, false),
        (AccessKind::Atomic, true),
    ] {
        let mut line = Line::default();
        assert_eq!(
            line.access(&of(AccessKind::Atomic, 4, 0xf), &a, WIDE, &floor),
            None
        );
        let found = line.access(&of(kind, 2, 0x3), &b, WIDE, &floor);
        assert_eq!(found.is_some(), races);
    }
}

#[test]
fn the_short_form_and_the_long_one_agree() {
    // Every sequence of three whole-line accesses by two warps, in two orders of the
    // lanes, with a barrier or without before each.
    let floor = Floor::new(0, 2);
    for case in 0..16usize.pow(3) {
        let mut warps = [WarpClock::new(0, 0, 2), WarpClock::new(1, 0, 2)];
        let (mut short, mut long) = (Line::default(), Line::default());
        for step in 0..3 {
            let bits = case >> (4 * step) & 15;
            let (write, who, order, meets) =
                (bits & 1 != 0, bits >> 1 & 1, bits >> 2 & 1, bits >> 3 != 0);
            if meets {
                let [a, b] = &mut warps;
                crate::race::clock::meet(&mut [a, b]);
            }
            let explicit = Access {
                pc: step as u32,
                ..access(write, &IN_ORDER[order])
            };
            let in_order = Access {
                order: Some(order as u8),
                ..explicit
            };
            let found = short.access(&in_order, &warps[who], WIDE, &floor);
            assert_eq!(found, long.access(&explicit, &warps[who], WIDE, &floor));
            let (mut a, mut b) = (Vec::new(), Vec::new());
            short.each(u128::MAX, |seen| a.push(seen));
            long.each(u128::MAX, |seen| b.push(seen));
            assert_eq!(a, b, "case {case:x}, step {step}");
        }
    }
}
