//! How to run.

use heist_sim::{Budget, Meter};
use std::time::Duration;

/// How to run, where a device has a choice.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The simulator's schedule: the same seed gives the same run.
    pub seed: u64,
    /// How many schedules the simulator tries, from the seed on, until an error is
    /// found in one. A real GPU runs once.
    pub schedules: Schedules,
    /// Whether the simulator injects refusals, delays and reorderings.
    pub chaos: bool,
    /// Whether stores of the same value by two threads are races to the simulator, too.
    pub same_value: bool,
    /// Whether all blocks must be on the device at once.
    pub cooperative: bool,
    /// How long a kernel may take on a real GPU, and its simulation on the host.
    pub limit: Duration,
    /// What else a simulation may cost; the host's time is [`limit`](Self::limit).
    pub budget: Budget,
    /// Whether a driver that is older than the text's PTX version is to read it as
    /// the newest version that it knows.
    pub clamp_version: bool,
    /// Shows how far a simulation is. Clones of the settings share it.
    pub meter: Meter,
}

/// How many schedules are tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Schedules {
    /// So many, or as many as the time limit has room for; at least one.
    Exactly(u64),
    /// A few where blocks or warps interact and a run is short, else one.
    WhileCheap,
}

impl Schedules {
    /// Schedules that are tried by default.
    const FEW: u64 = 4;
    /// Instructions of warps up to which a run is short: some tens of milliseconds.
    const SHORT: u64 = 500_000;

    /// How many there are, now that the first has run.
    pub(crate) fn count(self, first: &heist_sim::Stats) -> u64 {
        match self {
            Schedules::Exactly(count) => count,
            Schedules::WhileCheap
                if first.interactions && first.warp_instructions <= Self::SHORT =>
            {
                Self::FEW
            }
            Schedules::WhileCheap => 1,
        }
    }
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            seed: 0,
            schedules: Schedules::Exactly(1),
            chaos: false,
            same_value: false,
            cooperative: false,
            limit: Duration::from_secs(60),
            budget: Budget::default(),
            clamp_version: false,
            meter: Meter::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_schedules_are_tried_of_short_runs_that_interact() {
        let tried = |interactions, warp_instructions| {
            Schedules::WhileCheap.count(&heist_sim::Stats {
                interactions,
                warp_instructions,
                ..Default::default()
            })
        };
        assert_eq!(tried(true, Schedules::SHORT), Schedules::FEW);
        assert_eq!(tried(true, Schedules::SHORT + 1), 1);
        assert_eq!(tried(false, 1), 1, "another order changes nothing");
        assert_eq!(Schedules::Exactly(7).count(&Default::default()), 7);
    }
}
