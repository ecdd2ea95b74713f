//! A GPU on the CPU: runs PTX, and checks it while it runs.
//!
//! A [`Program`] is a PTX module; [`Program::run`] launches one of its kernels on a
//! [`Device`] and gives a [`Report`]: the buffers, a modelled timeline, and
//! everything that was wrong, each with its rule, its line, its threads and a remedy.
//!
//! The layers, from the bottom up; imports go down only:
//!
//! - `lanes`: a register of a warp is 32 values side by side, and an operation is
//!   one vectorised loop.
//! - `race`: a vector clock for each warp tells a race from an ordered pair of accesses,
//!   whatever order the run took.
//! - `state`: memories, barriers, copies in flight, warps, blocks, the machine. Addresses are
//!   virtual; every byte has a written bit, and every 128-byte line its access history.
//! - `access`: how lanes touch memory, and what is checked and recorded then.
//! - `engine`: runs warps whose lanes may diverge, clusters of blocks, and the grid,
//!   in the order of modelled time wherever the order matters.
//! - `decode` and `ops`: one folder for each family of instructions, with how it is
//!   decoded and what it does.
//! - `program`: a module made ready to launch, and its launches.
//!
//! ```
//! use heist_launch::{Arg, Arguments, Launch};
//! let source = heist_ptx::Source::new("double.ptx", "
//!     .version 8.0
//!     .target sm_80
//!     .address_size 64
//!     .visible .entry double(.param .u64 data) {
//!         .reg .b32 %r<3>; .reg .b64 %rd<4>;
//!         mov.u32 %r1, %tid.x;
//!         ld.param.u64 %rd1, [data];
//!         mul.wide.u32 %rd2, %r1, 4;
//!         add.s64 %rd3, %rd1, %rd2;
//!         ld.global.u32 %r2, [%rd3];
//!         add.u32 %r2, %r2, %r2;
//!         st.global.u32 [%rd3], %r2;
//!         ret;
//!     }");
//! let program = heist_sim::Program::new(heist_ptx::parse(&source).unwrap()).unwrap();
//! let device = heist_sim::Device::named("sim:h200").unwrap();
//! let arguments = Arguments::new([Arg::in_out(&[1u32, 2, 3])]);
//! let report = program
//!     .run(&device, "double", &Launch::new(1, 3), &arguments, &Default::default())
//!     .unwrap();
//! assert!(report.diagnostics.is_empty());
//! assert_eq!(report.outcome.output(0usize).unwrap().to_vec::<u32>().unwrap(), [2, 4, 6]);
//! ```

mod access;
mod code;
mod decode;
mod device;
mod engine;
mod findings;
mod lanes;
mod meter;
mod ops;
mod options;
mod program;
mod race;
mod rng;
mod special;
mod state;
mod watch;

pub use decode::variables::Addresses;
pub use device::{Device, UnknownDevice};
pub use meter::{Advance, Meter};
pub use options::{Budget, Chaos, Checks, Options};
pub use program::{
    Host, ModuleMemory, Needs, Order, Program, Ran, Reach, Report, Silent, Stream, Touched,
    together,
};
pub use state::machine::Stats;
