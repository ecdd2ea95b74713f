//! How to run.

use heist_sim::Budget;
use std::time::Duration;

/// How to run, where a device has a choice.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The simulator's schedule: the same seed gives the same run.
    pub seed: u64,
    /// How many schedules the simulator tries, from the seed on, until an error is
    /// found in one. A real GPU runs once.
    pub schedules: u64,
    /// Whether the simulator injects refusals, delays and reorderings.
    pub chaos: bool,
    /// Whether all blocks must be on the device at once.
    pub cooperative: bool,
    /// How long a kernel may take on a real GPU, and its simulation on the host.
    pub limit: Duration,
    /// What else a simulation may cost; the host's time is [`limit`](Self::limit).
    pub budget: Budget,
    /// Whether a driver that is older than the text's PTX version is to read it as
    /// the newest version that it knows.
    pub clamp_version: bool,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            seed: 0,
            schedules: 1,
            chaos: false,
            cooperative: false,
            limit: Duration::from_secs(60),
            budget: Budget::default(),
            clamp_version: false,
        }
    }
}
