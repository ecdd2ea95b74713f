//! How long atomics on one address wait for each other.
//!
//! The L2 performs one atomic on an address in a clock, whoever asks: NVIDIA's figure for atomics
//! to a common address (Kepler GK110 whitepaper, 2012). For later GPUs none is published; that it is
//! the same, in clocks of the SM, is not confirmed.

use rustc_hash::FxHashMap;

/// Cycles of an atomic on an address that is wanted again.
const TURN: u64 = 1;

/// More addresses than this are not remembered: those that nobody waits for are forgotten.
const MANY: usize = 1 << 14;

/// Until when the addresses of global memory are taken, by allocation and offset.
#[derive(Debug, Default)]
pub(crate) struct Turns(FxHashMap<(u32, u64), u64>);

impl Turns {
    /// An atomic at a time of the device: how long it waits for those before it.
    pub(crate) fn take(&mut self, at: (u32, u64), time: u64) -> u64 {
        if self.0.len() >= MANY {
            self.0.retain(|_, free| *free > time);
        }
        let free = self.0.entry(at).or_default();
        let start = time.max(*free);
        *free = start + TURN;
        start - time
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_on_one_address_wait_and_others_do_not() {
        let mut turns = Turns::default();
        let waits = [(0, 8), (0, 8), (0, 16), (1, 8), (0, 8)].map(|at| turns.take(at, 100));
        assert_eq!(waits, [0, 1, 0, 0, 2]);
        assert_eq!(turns.take((0, 8), 102), 1);
        assert_eq!(turns.take((0, 8), 500), 0);
        for other in 0..2 * MANY as u64 {
            turns.take((2, other), 1000 + other);
        }
        assert!(turns.0.len() <= MANY);
    }
}
