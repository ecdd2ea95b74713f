//! Tiles that are scheduled while the kernel runs.
//!
//! You write the body of one tile and pick a [`Policy`]; [`Tiled`] makes the
//! kernel. Where a block's next tile comes from is a [`TileSource`]: cluster launch
//! control on Blackwell, a counter in memory elsewhere, or a fixed assignment. The order in which
//! tiles are handed out is a [`TileOrder`]. The tile loop owns everything else: requests, waits and
//! exits.
//!
//! Whatever a policy answers, every tile runs exactly once, on every source.
//!
//! ```
//! use heist_builder::{Arch, BuildError, Global, kernel_params};
//! use heist_sched::{MaxSteals, Tiled};
//!
//! kernel_params! { struct Double { data: Global<f32>, n: u32 } }
//!
//! let kernel = Tiled::<Double>::new("double", 1000) // tiles
//!     .policy(MaxSteals { limit: 8 })
//!     .block(256)
//!     .build(Arch::SM_100, |k, args, tiles| {
//!         tiles.each(|tile| {
//!             let i = tile.x * 256 + k.thread().x;
//!             k.if_(i.lt(args.n), || args.data.at(i).update(|v| v + v));
//!         })
//!     })?;
//! assert!(kernel.ptx().contains("clusterlaunchcontrol.try_cancel"));
//! # Ok::<(), BuildError>(())
//! ```

mod arguments;
mod bell;
mod channel;
mod classes;
mod context;
mod control;
mod erased;
mod hidden;
mod order;
mod pause;
mod plan;
mod policies;
mod policy;
pub mod program;
mod report;
mod schedule;
mod shape;
mod source;
pub mod text;
mod ticket;
mod tile_loop;
mod tiled;
mod tune;
mod watch;

pub use bell::{BELL_BYTES, Bell};
pub use classes::{Class, Classes, SharesError};
pub use context::PolicyCx;
pub use control::{CONTROL_BYTES, CONTROL_WORDS, POLICY_WORDS};
pub use erased::{AnyPolicy, Held};
pub use hidden::{Hidden, HiddenOn, HiddenWith, Numbers, Scheduled, ScheduledWith};
pub use order::{
    AnyOrder, Extent, Grouped, Hilbert, Linear, OrderError, Position, Reversed, Table, TileOrder,
};
pub use pause::Pause;
pub use plan::{Plan, PlanError};
pub use policies::*;
pub use policy::{And, Inverse, Or, Policy, TileId};
pub use program::{Loaded, Loader, PolicyWords, PortablePolicy, Program};
pub use report::{
    ClusterStats, Ejected, LaunchReport, Misbehaviour, Readout, ReportError, Stats, TraceDevice,
};
pub use schedule::{Schedule, ScheduleError};
pub use source::{Choice, SourceError, Submit, TicketGrid, TileSource};
pub use text::{Catalogue, Named, PolicyError, PolicyExpr, PolicyTextError};
pub use ticket::{Counters, Lease};
pub use tile_loop::{Done, Tile, TileLoop};
pub use tiled::{MOST_REQUESTS, Tiled, TiledKernel};
pub use tune::{Effort, Standing, TuneError, TuneKey, Tuned, Tuner, race};
pub use watch::Watch;
