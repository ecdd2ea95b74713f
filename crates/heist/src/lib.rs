//! Heist steals work: GPU kernels whose tiles are scheduled while the kernel runs.
//!
//! This crate is the front door: a program needs no other. Each part is a crate of
//! its own, found here under a short name.
//!
//! | to | start at |
//! |---|---|
//! | write a kernel | [`build`]: typed Rust that makes PTX |
//! | have its tiles scheduled | [`sched::Tiled`], and [`sched::Policy`] for a policy of your own |
//! | run it, on a simulated GPU or a real one | [`tiled::run`], with a whole program |
//! | run any PTX | [`device::Device`] |
//! | run a kernel that is there | [`kernels::catalogue`] and [`job`] |
//! | take the fastest schedule | [`auto::fastest`] for a kernel of yours, [`tune`] for one that is there |
//! | find what is wrong with PTX, or what a log means | [`check`], and [`render`] to show it |
//! | draw a run | [`view`] |

pub mod auto;
pub mod bench;
pub mod device;
pub mod job;
pub mod origin;
pub mod render;
pub mod sarif;
pub mod tiled;
pub mod tune;
pub mod workload;

pub use heist_builder as builder;
pub use heist_check as check;
pub use heist_gpu as gpu;
pub use heist_kernels as kernels;
pub use heist_launch as launch;
pub use heist_ptx as ptx;
pub use heist_sched as sched;
pub use heist_sim as sim;
pub use heist_view as view;

/// The pages that people start with: their programs are tests.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../../../README.md")]
    mod readme {}
    #[doc = include_str!("../../../docs/builder.md")]
    mod builder {}
    #[doc = include_str!("../../../docs/kernels.md")]
    mod kernels {}
    #[doc = include_str!("../../../docs/policies.md")]
    mod policies {}
}
