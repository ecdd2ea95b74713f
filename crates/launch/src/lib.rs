//! A launch and its outcome, independent of the device.
//!
//! The simulator and the GPU take the same [`Launch`] and [`Arguments`] and give
//! the same [`Outcome`], so that a kernel, a test or a command describes a launch once and runs it
//! on either. Nothing here depends on PTX, a driver, or a device.
//!
//! * [`Launch`]: grid, block, cluster, dynamic shared memory, and their limits.
//! * [`Arg`], [`Arguments`]: what a kernel is called with. The textual form that
//!   `heist exec --arg` and the file tests use is in [`text`].
//! * [`Bound`]: the same, as a device wants it: a table of buffers, and
//!   parameters that are bytes, pointers into the table, or tensor maps.
//! * [`Outcome`]: the buffers after the run, and a [`Trace`] of it.
//!
//! ```
//! use heist_launch::{Arg, Arguments, Launch};
//!
//! let launch = Launch::new(4, 256); // four blocks of 256 threads
//! let arguments = Arguments::new([Arg::input(&[1.0f32; 1000]), Arg::output::<f32>(1000)]);
//! assert_eq!(launch.grid.count() * launch.block.count(), 1024);
//! assert_eq!(arguments.params.len(), 2);
//! ```

pub mod argument;
pub mod buffer;
pub mod element;
pub mod outcome;
pub mod placed;
pub mod shape;
pub mod tensor_map;
pub mod text;
pub mod texture;
mod tiny;
pub mod trace;

pub use argument::{
    Address, Arg, Arguments, BindError, Bound, BufferRef, Fields, NamedBuffer, Param, Placement,
    Role, Slot,
};
pub use buffer::Buffer;
pub use element::{ElementType, Scalar, ValueError};
pub use outcome::Outcome;
pub use placed::{Foreign, ForeignKind, Placed, Written};
pub use shape::{Dim3, Launch, LaunchError, Limits};
pub use tensor_map::{
    Fill, HostMaps, Im2col, Interleave, L2Promotion, Swizzle, TensorElement, TensorMap,
    TensorMapError, Wide,
};
pub use text::{ArgTextError, parse_arg, parse_values};
pub use texture::{Outside, TexelFormat, TexelKind, Texture};
pub use trace::{
    BlockSpan, Clock, Decision, DecisionKind, Summary, TileOrigin, TileSpan, Time, Trace,
};
