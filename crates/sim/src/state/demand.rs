//! The demand of instructions on the units of an SM, and a warp's load over time.

/// The units of an SM: issue ports, multiply-add pipes, other arithmetic, the path to L2.
pub(crate) const UNITS: usize = 4;

/// Cycles of a scheduler's units, packed for adding, 32 bits each: its issue
/// port, the multiply-add pipe, the other arithmetic, and its quarter of the way
/// to L2.
///
/// A sum over 2^14 instructions fits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Demand(pub(crate) u128);

impl Demand {
    pub(crate) const fn new([issue, multiply, other, memory]: [u32; UNITS]) -> Demand {
        Demand(
            issue as u128
                | (multiply as u128) << 32
                | (other as u128) << 64
                | (memory as u128) << 96,
        )
    }

    /// Issue port, multiply-add pipe, other arithmetic, memory.
    pub(crate) fn parts(self) -> [u32; UNITS] {
        [0, 32, 64, 96].map(|shift| (self.0 >> shift) as u32)
    }

    /// The unit that is busy for the longest.
    pub(crate) fn longest(self) -> u32 {
        self.parts().into_iter().fold(0, u32::max)
    }
}

/// A stretch of a warp's time, and the cycles of a scheduler's units in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stretch {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) busy: [u64; UNITS],
}

impl Stretch {
    /// The same, as told from another time; it may have begun before that.
    pub(crate) fn since(&self, from: u64) -> Stretch {
        Stretch {
            start: self.start.wrapping_sub(from),
            end: self.end.wrapping_sub(from),
            ..*self
        }
    }
}

/// The stretches of a warp that its cluster's pieces do not hold yet, in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stretches(pub(crate) Vec<Stretch>);

/// More of them than this are put together in pairs.
pub(crate) const MOST: usize = 512;

impl Stretches {
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    pub(crate) fn push(&mut self, start: u64, end: u64, demand: Demand) {
        if end <= start || demand == Demand::default() {
            return;
        }
        let busy = demand.parts().map(u64::from);
        if self.0.len() >= MOST {
            let pairs = self.0.chunks(2).map(|pair| {
                let mut one = pair[0];
                if let Some(other) = pair.get(1) {
                    one.end = other.end;
                    for (unit, busy) in one.busy.iter_mut().zip(other.busy) {
                        *unit += busy;
                    }
                }
                one
            });
            self.0 = pairs.collect();
        }
        self.0.push(Stretch { start, end, busy });
    }
}
