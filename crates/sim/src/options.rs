//! How a run is made: the seed, what to check, how much may be spent.

use crate::meter::Meter;

/// Options of one run.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Fixes the schedule: the same seed gives the same run.
    pub seed: u64,
    /// Faults that the hardware may commit at any time.
    pub chaos: Chaos,
    /// What the run may cost.
    pub budget: Budget,
    /// What is checked.
    pub checks: Checks,
    /// Whether all blocks are to be on the device at once, so that they can meet.
    pub cooperative: bool,
    /// Threads of the host, used for kernels with isolated blocks; 0 is one for each core. Results
    /// do not depend on it.
    pub threads: usize,
    /// Whether to tell which bytes of memory with an address of its own the kernel has touched.
    pub touched: bool,
    /// Shows how far the run is.
    pub meter: Meter,
}

impl Default for Options {
    /// Seed 0, no chaos, all checks, a generous budget.
    fn default() -> Options {
        Options {
            seed: 0,
            chaos: Chaos::NONE,
            budget: Budget::default(),
            checks: Checks::ALL,
            cooperative: false,
            threads: 0,
            touched: false,
            meter: Meter::default(),
        }
    }
}

/// Fault injection: rare but legal behaviour of the hardware.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chaos {
    /// Launch-control requests refused for no visible reason, one in this many; 0 is never.
    pub refusals: u32,
    /// Instructions that interact are delayed by up to this many cycles.
    pub delay: u32,
    /// Clusters are launched in a random order.
    pub reorder: bool,
    /// While ten or more launches are queued, one in forty has half of its launch-control
    /// requests refused for no visible reason, as reported from GPUs that are shared.
    pub crowded: bool,
}

impl Chaos {
    /// Nothing unusual.
    pub const NONE: Chaos = Chaos {
        refusals: 0,
        delay: 0,
        reorder: false,
        crowded: false,
    };
    /// One refusal in sixteen requests, delays of up to 2000 cycles, launches out of order.
    pub const FULL: Chaos = Chaos {
        refusals: 16,
        delay: 2000,
        reorder: true,
        crowded: true,
    };
}

/// What a run may cost before it is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Instructions, counted once a warp.
    pub warp_instructions: u64,
    /// Bytes of device memory.
    pub memory: u64,
    /// Modelled time in nanoseconds.
    pub time_ns: u64,
    /// Wall-clock time of the host in milliseconds.
    pub wall_ms: u64,
}

impl Default for Budget {
    /// 20 billion instructions, 4 GiB, 100 modelled seconds, 10 minutes.
    fn default() -> Budget {
        Budget {
            warp_instructions: 20_000_000_000,
            memory: 4 << 30,
            time_ns: 100_000_000_000,
            wall_ms: 600_000,
        }
    }
}

/// Checks that can be left out for speed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checks {
    /// Races in shared and global memory.
    pub races: bool,
    /// Reads of memory that nothing wrote.
    pub unwritten: bool,
    /// With `races`: stores of the same value by two threads, and loads whose value is dropped, too.
    /// They are a race by the PTX memory model, but without visible effect.
    pub same_value: bool,
}

impl Checks {
    /// Everything, but for stores of the same value.
    pub const ALL: Checks = Checks {
        races: true,
        unwritten: true,
        same_value: false,
    };
    /// Only the checks that execution needs: bounds, alignment, barriers.
    pub const FEWEST: Checks = Checks {
        races: false,
        unwritten: false,
        same_value: false,
    };
}
