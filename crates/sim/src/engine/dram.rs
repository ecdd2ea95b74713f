//! How DRAM's bandwidth slows a launch down.
//!
//! The SMs' units are shared in a time in which DRAM is always quick enough. Where all that runs at
//! once asks for more bytes than DRAM delivers, that time passes more slowly than the device's, for
//! all SMs alike: as if everybody waited for memory, which in a launch bound by it they do. So a launch takes at
//! least as long as DRAM needs for what [moves](crate::state::memory::traffic), and one that asks
//! for less is not slowed.
//!
//! The bandwidth is that of the data sheet ([`Gpu::bandwidth_gb_s`]).

use heist_ptx::arch::Gpu;

/// DRAM as the SMs see it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dram {
    /// Bytes in a cycle of the SMs.
    rate: f64,
}

impl Dram {
    pub(crate) fn of(gpu: &Gpu) -> Dram {
        Dram {
            rate: f64::from(gpu.bandwidth_gb_s) * 1000.0 / f64::from(gpu.clock_mhz.max(1)),
        }
    }

    /// How many cycles of the device one takes while so many bytes a cycle are asked for, less that
    /// one.
    pub(super) fn delay(&self, demand: f64) -> f64 {
        (demand / self.rate - 1.0).max(0.0)
    }

    /// By how much the times of blocks grow that end at a time and have moved so many bytes. Each of
    /// them is taken to ask for as much as the others, and all the time, so all times grow alike.
    pub(super) fn growth(&self, end: u64, bytes: u64) -> f64 {
        let needed = bytes as f64 / self.rate;
        (needed / end.max(1) as f64).max(1.0)
    }

    /// A time that grows.
    pub(super) fn grown(time: u64, growth: f64) -> u64 {
        (time as f64 * growth) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_needs_no_more_than_there_is_takes_no_longer() {
        let dram = Dram::of(&Gpu::H200);
        assert!((dram.rate - 2424.24).abs() < 0.01, "{}", dram.rate);
        let dram = Dram { rate: 100.0 };
        assert_eq!(
            (dram.growth(2000, 200_000), dram.growth(2000, 300_000)),
            (1.0, 1.5)
        );
        assert_eq!(
            (dram.growth(0, 0), dram.delay(50.0), dram.delay(250.0)),
            (1.0, 0.0, 1.5)
        );
    }
}
