//! Heist steals work: GPU kernels whose tiles are scheduled while the kernel runs.
//!
//! A program needs only this crate. Each part is a crate of its own, re-exported here under a short
//! name.
//!
//! | to | start at |
//! |---|---|
//! | write a kernel | [`builder`]: typed Rust that makes PTX |
//! | have its tiles scheduled | [`sched::Tiled`], and [`sched::Policy`] for a policy of your own |
//! | run it, on a simulated GPU or a real one | [`tiled::run`], with a whole program |
//! | run any PTX | [`run::Device`] |
//! | run a GEMM or attention over memory of your own | [`ops`] |
//! | run a kernel that is there | [`kernels::catalogue`] and [`job`] |
//! | take the fastest schedule | [`auto::fastest`] for a kernel of yours, [`tune`] for one that is there |
//! | see what kernels do to each other on a shared GPU | [`share`] |
//! | find what is wrong with PTX, or what a log means | [`check`] |
//! | draw a run | [`view`] |
//!
//! Three features are on unless turned off: `gpu` (real GPUs, through the driver), `builder` (the
//! builder and the scheduler) and `kernels` (the shipped kernels: most of what there is to
//! compile). A program with kernels of its own needs `builder` alone, and one that checks PTX or
//! runs it on a simulated GPU needs none.
//!
//! ```
//! // A kernel, a policy, and a run on a simulated GPU.
//! use heist::builder::{Global, kernel_params};
//! use heist::launch::Arg;
//! use heist::run::{Device, Settings};
//! use heist::sched::{MaxSteals, Tiled};
//!
//! kernel_params! { struct Double { data: Global<f32>, n: u32 } }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let device = Device::open("sim:b200".parse()?)?; // or "gpu"
//! let kernel = Tiled::<Double>::new("double", 4)
//!     .policy(MaxSteals { limit: 8 })
//!     .block(256)
//!     .build(device.arch()?, |k, args, tiles| {
//!         tiles.each(|tile| {
//!             let i = tile.x * 256 + k.thread().x;
//!             k.if_(i.lt(args.n), || args.data.at(i).update(|v| v + v));
//!         })
//!     })?;
//! let own = Double { data: Arg::in_out(&[1.5f32; 1000]), n: 1000 };
//! let run = heist::tiled::run(&device, &kernel, own, &Settings::default())?;
//! assert_eq!(run.output("data").unwrap().to_vec::<f32>().unwrap(), [3.0; 1000]);
//! # Ok(()) }
//! ```

#[cfg(feature = "builder")]
pub mod auto;
#[cfg(feature = "kernels")]
pub mod job;
#[cfg(all(feature = "gpu", feature = "kernels"))]
pub mod ops;
#[cfg(feature = "kernels")]
pub mod share;
#[cfg(all(feature = "gpu", feature = "builder"))]
pub mod swap;
#[cfg(feature = "builder")]
pub mod tiled;
#[cfg(feature = "kernels")]
pub mod tune;
#[cfg(feature = "kernels")]
pub mod workload;

#[cfg(feature = "builder")]
pub use heist_builder as builder;
pub use heist_check as check;
#[cfg(feature = "gpu")]
pub use heist_gpu as gpu;
#[cfg(feature = "kernels")]
pub use heist_kernels as kernels;
pub use heist_launch as launch;
pub use heist_ptx as ptx;
pub use heist_run as run;
#[cfg(feature = "builder")]
pub use heist_sched as sched;
pub use heist_sim as sim;
pub use heist_view as view;

/// The pages that people start with: their programs are tests.
#[cfg(all(doctest, feature = "kernels"))]
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
