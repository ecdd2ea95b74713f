//! Bytes, which of them are written, and forks that are put together.

use super::*;

#[test]
fn written_bytes_are_known_one_by_one() {
    let mut region = Region::unwritten(300);
    region.write(126, 4, 0xddcc_bbaa);
    assert_eq!(region.read(126, 4), 0xddcc_bbaa);
    assert_eq!(region.first_unwritten(126, 4), None);
    assert_eq!(region.first_unwritten(125, 4), Some(125));
    assert_eq!(region.unwritten_in(1, 0b111), 0b100);
}

#[test]
fn a_reset_region_is_unwritten_and_zero() {
    let mut region = Region::unwritten(128);
    region.write(0, 8, 99);
    region.reset(64, true);
    assert_eq!(
        (region.read(0, 8), region.first_unwritten(0, 1)),
        (0, Some(0))
    );
}

#[test]
fn whatever_was_written_is_zero_after_a_reset() {
    let mut region = Region::default();
    region.reset(1024, true);
    for turn in 0..20u64 {
        let at = turn * 389 % 900;
        region.write_bytes(at, &[7; 100]);
        region.scatter(&[(at * 7) % 1000; LANES], 1, 0, &[u32::MAX; LANES]);
        region.put_run((at * 3) % 896, &[1u32; LANES]);
        region.reset(1024, true);
        assert!(region.bytes(0, 1024).iter().all(|byte| *byte == 0));
        assert_eq!(region.first_unwritten(at, 1), Some(at));
    }
    // It may have another length for the next launch.
    region.write(1016, 8, 3);
    region.reset(512, true);
    region.reset(1024, true);
    assert!(region.bytes(0, 1024).iter().all(|byte| *byte == 0));
}

/// Only what a block has touched is cleared for the next one, whatever has touched it.
#[test]
fn what_counts_as_written_is_forgotten_after_a_reset_too() {
    let len = 5 * CHUNK + 3 * LINE;
    let mut region = Region::default();
    region.reset(len, true);
    for turn in 0..6u64 {
        let at = turn * CHUNK as u64;
        region.mark(at + 30, 4);
        region.mark_line(at / LINE as u64 + 1, 7);
        region.write(len as u64 - 4, 4, 9);
        region.reset(len, true);
        let marked = [at + 30, at + LINE as u64, len as u64 - 4];
        for at in marked {
            assert_eq!(region.first_unwritten(at, 1), Some(at));
        }
        assert_eq!(region.read(len as u64 - 4, 4), 0);
    }
}

#[test]
fn forks_are_put_together_byte_by_byte() {
    let mut whole = Region::unwritten(256);
    let (mut a, mut b) = (whole.fork(), whole.fork());
    a.write(4, 4, 0x0101_0101);
    a.note(0, 0xf0, true);
    b.write(8, 4, 0x0202_0202);
    b.note(0, 0xf00, true);
    b.note(1, 0xff, false);
    assert!(Region::are_apart(&[&a, &b]));
    let mut other = whole.fork();
    other.note(1, 0x80, true);
    assert!(!Region::are_apart(&[&other, &b]));
    assert!(!Region::are_apart(&[&b, &other]));
    whole.absorb(vec![a, b]);
    assert_eq!(whole.read(4, 8), 0x0202_0202_0101_0101);
    assert_eq!(whole.first_unwritten(4, 9), Some(12));
}

#[test]
fn what_lies_outside_reads_zero_and_is_not_written() {
    let mut region = Region::of([1; 128]);
    region.write_bytes(127, &[7; 4]);
    assert_eq!(region.read(1 << 40, 4), 0);
    assert_eq!(region.bytes(127, 1), [1]);
}

#[test]
fn a_fork_reads_what_it_has_not_written_from_its_base() {
    let start: Vec<u8> = (0..=255).collect();
    let held = Arc::new(start.clone());
    let mut whole = Region::over(Arc::clone(&held), true);
    let mut fork = whole.fork();
    fork.write(130, 2, 0xffff);
    fork.note(1, 0b1100, true);
    let words = fork.some::<u32, 4>(120);
    assert_eq!(words[1], u32::from_le_bytes([124, 125, 126, 127]));
    assert_eq!(words[2], u32::from_le_bytes([128, 129, 255, 255]));
    assert!(fork.bytes(120, 16).is_empty(), "it lies in two places");
    whole.absorb(vec![fork]);
    let mut after = start.clone();
    (after[130], after[131]) = (255, 255);
    assert_eq!(*whole.into_bytes(256), after);
    assert_eq!(*held, start, "whoever holds the bytes keeps them");
}

#[test]
fn many_lines_are_put_together_by_several_threads() {
    let len = (SHARE + 100) * LINE;
    let mut whole = Region::over(Arc::new(vec![7; len]), false);
    let mut forks = [whole.fork(), whole.fork(), whole.fork()];
    for line in 0..(SHARE + 100) as u64 {
        let fork = &mut forks[line as usize % 3];
        fork.write(line * LINE as u64 + 8, 4, u128::from(line));
        fork.note(line, 0xf00, true);
    }
    let [a, b, c] = &forks;
    assert!(Region::are_apart(&[a, b, c]));
    let mut reads = whole.fork();
    reads.note(SHARE as u64 + 98, 0x100, false);
    let clear = [a, b, c].map(|fork| Region::are_apart(&[fork, &reads]));
    let wrote = (SHARE + 98) % 3;
    assert_eq!(clear, [0, 1, 2].map(|at| at != wrote));
    whole.absorb(forks.into());
    for line in 0..(SHARE + 100) as u64 {
        let at = line * LINE as u64;
        assert_eq!(whole.read(at + 8, 4), u128::from(line));
        assert_eq!(whole.read(at + 12, 1), 7);
        assert_eq!(whole.unwritten_in(line, 0xff00), 0xf000);
    }
}
