//! The engine: warps, the clusters that they form, and the grid.
//!
//! Modelled time orders interactions. A warp runs ahead until an instruction with an effect visible
//! to others (an atomic, a barrier, a launch-control request); that one waits until the warp is the
//! earliest in its cluster, or on the device. Plain loads and stores run at once: in a program
//! without races the order makes no difference.
//!
//! A cluster's time is its own, as if its SM were empty; [`site`] says when that is
//! on the device, with what the SM's other blocks take, and [`dram`] what all SMs together do.

pub(crate) mod barrier;
pub(crate) mod cluster;
pub(crate) mod company;
pub(crate) mod deadlock;
pub(crate) mod divergence;
pub(crate) mod dram;
pub(crate) mod executable;
pub(crate) mod grid;
pub(crate) mod load;
pub(crate) mod parallel;
pub(crate) mod replay;
pub(crate) mod site;
pub(crate) mod spares;
pub(crate) mod step;
pub(crate) mod time;
