//! Heist steals work: GPU kernels whose tiles are scheduled while the kernel runs.
//!
//! This crate is the front door. Each part is a crate of its own, found here
//! under a short name; [`render`] turns what they find into text for people and
//! for machines.

pub mod auto;
pub mod bench;
pub mod device;
pub mod job;
pub mod origin;
pub mod render;
pub mod sarif;
pub mod tune;
pub mod workload;

pub use heist_gpu as gpu;
pub use heist_kernels as kernels;
pub use heist_launch as launch;
pub use heist_ptx as ptx;
pub use heist_sched as sched;
pub use heist_sim as sim;
pub use heist_view as view;
