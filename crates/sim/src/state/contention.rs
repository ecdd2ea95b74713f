//! How long atomics wait for each other in L2.
//!
//! L2 takes one turn after the other on a line. In a turn it performs the atomics of one warp
//! instruction on different words of a sector; each one on a word that is wanted again has a turn of its
//! own. On an H200, 132 blocks that add to one word do 0.69 atomics a cycle, with one lane of a warp or
//! with all 32, as do exchanges and swaps; on a line with a word for every lane it is 0.2 instructions
//! a cycle, so about a cycle for each sector (`bench/memory/h200-atomics.txt`). That is the clock of L2,
//! and agrees with what NVIDIA wrote of Kepler (GK110 whitepaper, 2012): one operation a clock on a
//! common address. For Blackwell NVIDIA publishes nothing; the same is assumed.

/// A turn, in 64ths of a cycle: 1 / 0.69.
const TURN: u64 = 93;

/// Lines that are remembered.
const PLACES: usize = 1 << 10;

/// A line with its last turn.
#[derive(Clone, Copy, Debug)]
struct Place {
    /// The allocation and the line in it.
    line: u64,
    /// When the next turn may begin, in 64ths of a cycle.
    free: u64,
    /// Whose the last one was, on which sector and words of it.
    by: u64,
    sector: u8,
    words: u8,
}

/// Until when lines of global memory are taken. Of two that fall on one place only the later one is
/// remembered.
#[derive(Debug, Default)]
pub(crate) struct Contention {
    places: Vec<Place>,
    /// Instructions so far.
    count: u64,
}

impl Contention {
    /// The atomics of an instruction at a time of the device, on offsets of an allocation: how many
    /// cycles the last of them waits for those before it.
    pub(crate) fn wait(
        &mut self,
        allocation: usize,
        offsets: impl Iterator<Item = u64>,
        time: u64,
    ) -> u64 {
        if self.places.is_empty() {
            let nobody = Place {
                line: u64::MAX,
                free: 0,
                by: 0,
                sector: 0,
                words: 0,
            };
            self.places = vec![nobody; PLACES];
        }
        self.count += 1;
        let now = 64 * time;
        let mut last = now;
        for offset in offsets {
            let line = ((allocation as u64) << 48) | (offset / 128);
            let spread = line.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 54;
            let place = &mut self.places[spread as usize];
            let (sector, word) = ((offset / 32 % 4) as u8, 1 << (offset / 4 % 8));
            let same = place.line == line;
            if same && place.by == self.count && place.sector == sector && place.words & word == 0 {
                place.words |= word;
                continue;
            }
            let start = if same { now.max(place.free) } else { now };
            last = last.max(start);
            *place = Place {
                line,
                free: start + TURN,
                by: self.count,
                sector,
                words: word,
            };
        }
        (last - now) / 64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait(lines: &mut Contention, allocation: usize, offsets: &[u64], time: u64) -> u64 {
        lines.wait(allocation, offsets.iter().copied(), time)
    }

    #[test]
    fn those_on_one_address_wait_and_others_do_not() {
        let mut lines = Contention::default();
        assert_eq!(wait(&mut lines, 0, &[8; 65], 100), 64 * TURN / 64);
        assert_eq!(wait(&mut lines, 0, &[8], 100), 65 * TURN / 64);
        assert_eq!(wait(&mut lines, 0, &[8], 100 + TURN), TURN / 32);
        assert_eq!(wait(&mut lines, 1, &[8], 100), 0);
        assert_eq!(wait(&mut lines, 0, &[128], 100), 0);
        assert_eq!(wait(&mut lines, 0, &[8], 5000), 0);
    }

    #[test]
    fn words_of_a_sector_are_one_turn() {
        let mut lines = Contention::default();
        let words: Vec<u64> = (0..32).map(|lane| 4 * lane).collect();
        assert_eq!(wait(&mut lines, 0, &words, 100), 3 * TURN / 64);
        assert_eq!(wait(&mut lines, 0, &words, 100), 7 * TURN / 64);
        // Two words in turn, three times.
        let mut lines = Contention::default();
        assert_eq!(wait(&mut lines, 0, &[0, 4, 0, 4, 0, 4], 9), 2 * TURN / 64);
    }
}
