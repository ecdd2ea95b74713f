//! Runs a program on a device: one interface to the simulated GPUs and the real one.
//!
//! * [`Program`]: PTX, as text and as a module, parsed once.
//! * [`Device`]: where it runs; [`DeviceName`] is how people write that.
//! * [`Settings`]: how it runs, where a device has a choice.
//! * [`Execution`]: what a launch gave. Findings are part of it: [`Device::run`] fails if there are
//!   any, and [`Device::inspect`] returns them.
//!
//! ```
//! use heist_launch::{Arg, Arguments, Launch};
//! use heist_ptx::Source;
//! use heist_run::{Device, Program, Settings};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let program = Program::new(Source::new("add.ptx", "
//!     .version 8.0
//!     .target sm_80
//!     .address_size 64
//!     .visible .entry add(.param .u64 data) {
//!         .reg .b32 %r<2>; .reg .b64 %rd<2>;
//!         ld.param.u64 %rd1, [data];
//!         ld.global.u32 %r1, [%rd1];
//!         add.u32 %r1, %r1, 1;
//!         st.global.u32 [%rd1], %r1;
//!         ret;
//!     }"))?;
//! let device = Device::open("sim:h200".parse()?)?; // or "gpu"
//! let arguments = Arguments::new([Arg::in_out(&[41u32])]);
//! let launch = Launch::new(1, 1);
//! let execution = device.run(&program, "add", &launch, &arguments, &Settings::default())?;
//! assert_eq!(execution.outcome.output(0).unwrap().to_vec::<u32>().unwrap(), [42]);
//!
//! // Two threads that write different values to one place: the run is an error.
//! let racy = program.source().text().replace("%r1, 1;", "%r1, %tid.x;");
//! let racy = Program::new(Source::new("racy.ptx", racy))?;
//! let error = device
//!     .run(&racy, "add", &Launch::new(1, 64), &arguments, &Settings::default())
//!     .unwrap_err();
//! assert!(error.to_string().contains("racy.ptx:10: error[R006]"), "{error}");
//! # Ok(()) }
//! ```

mod device;
mod execution;
mod name;
mod program;
mod settings;

pub use device::{Device, OpenError, UnknownArch};
pub use execution::{Execution, Found, NotRun, Resources, RunError};
pub use heist_sim::{Advance, Meter};
pub use name::DeviceName;
pub use program::{EntryError, Program, some_of};
pub use settings::{Schedules, Settings};

/// Several kernels on one simulated GPU.
///
/// ```
/// use heist_launch::{Arg, Arguments, Launch};
/// use heist_ptx::{Source, arch::Gpu};
/// use heist_run::Program;
/// use heist_run::company::{Device, Options, Order, Silent, Stream, together};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let program = Program::new(Source::new("count.ptx", "
///     .version 8.0
///     .target sm_80
///     .address_size 64
///     .visible .entry count(.param .u64 total) {
///         .reg .b64 %rd<2>;
///         ld.param.u64 %rd1, [total];
///         red.global.add.u32 [%rd1], 1;
///         ret;
///     }"))?;
/// let arguments = Arguments::new([Arg::in_out(&[0u32])]);
/// let launch = Launch::new(4, 32);
/// let order = |not_before| Order {
///     program: program.simulated().unwrap(),
///     entry: "count",
///     launch: &launch,
///     arguments: &arguments,
///     not_before, // nanoseconds
/// };
/// // A batch of two launches, and one that comes later and has precedence.
/// let streams = [
///     Stream { priority: 0, orders: vec![order(0), order(0)] },
///     Stream { priority: -1, orders: vec![order(500)] },
/// ];
/// let device = Device::of(Gpu::A100);
/// let ran = together(&device, &streams, &Options::default(), &mut Silent).expect("it runs");
/// assert_eq!((ran[0].len(), ran[1].len()), (2, 1));
/// // A stream's launches follow each other.
/// assert!(ran[0][0].ended <= ran[0][1].ended && ran[1][0].ended > 500);
/// for ran in ran.iter().flatten() {
///     assert!(!ran.report.has_errors());
///     assert_eq!(ran.report.outcome.output(0).unwrap().to_vec::<u32>().unwrap(), [128]);
/// }
/// # Ok(()) }
/// ```
pub mod company {
    pub use heist_sim::{
        Budget, Chaos, Checks, Device, Host, Options, Order, Ran, Reach, Silent, Stream, together,
    };
}
