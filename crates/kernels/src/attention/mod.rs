//! Attention forward: `softmax(Q K^T) V` without the matrix in the middle.
//!
//! f16 or bf16 in and out, softmax in f32; heads of 16 to 256 elements, fewer key
//! heads than query heads, full, causal and windowed masks, sequences of the same
//! length or packed with lengths of their own (read on the device), and the
//! log-sum-exp of every row. What models add besides, soft-caps, biases, sinks, prefixes,
//! documents, is in [`Scoring`].
//!
//! There are six kernels, the rungs of a ladder ([`Rung`]): each adds one idea to
//! the one before; and one for Hopper's warpgroups ([`WarpgroupShape`]). A tile is some query rows
//! of one head of one sequence; the scheduler decides which block runs which tile, so every kernel
//! runs under every [`Schedule`](heist_sched::Schedule).
//!
//! ```
//! use heist_builder::Arch;
//! use heist_kernels::Target;
//! use heist_kernels::attention::{FAMILY, Mask, Problem};
//!
//! let problem = Problem { mask: Mask::Causal, ..Problem::new(2, 8, 300, 64) };
//! let plan = FAMILY.plan(None, &problem, Target { arch: Arch::SM_90A, sms: 132 })?;
//! assert!(plan.buffers.iter().any(|buffer| buffer.name == "q"));
//! # Ok::<(), heist_kernels::KernelError>(())
//! ```

mod accuracy;
mod append;
mod backward;
mod buffered;
mod cache;
mod cases;
mod combine;
mod config;
mod decode;
mod decode_cases;
mod entry;
mod epilogue;
mod kernel;
mod large_cases;
mod load;
mod mainloop;
mod mask;
mod meeting;
mod mixed;
mod model_cases;
mod order;
mod panels;
mod params;
mod placement;
mod problem;
mod query_tile;
mod reference;
mod scalar;
mod score;
mod softmax;
mod space;
mod tcgen05;
mod tensor;
mod view_cases;
mod views;
mod warpgroup;
mod warpgroup_cases;

pub use accuracy::{Accuracy, LSE_BOUND, Odd, bound, verify};
pub use backward::{
    AttentionBackward, BACKWARD, Backward, BackwardAccuracy, Gradients, Sums, backward_bound,
    backward_in_parts, fill_backward, gradients, verify_backward,
};
pub use cache::{Append, Cache};
pub use cases::{Case, Topic, Which, cases, small_tiles};
pub use combine::CombineArgs;
pub use config::{Config, Feed, Rung};
pub use decode::{
    Appended, Appender, Combine, DecodeShape, Grid, Storage, decode_grid, decode_plan, decode_shape,
};
pub use entry::{Attention, FAMILY, problem, randomise};
pub use kernel::{build, job, schedule, tiles};
pub use order::HeaviestFirst;
pub use params::AttentionArgs;
pub use problem::{Dtype, Layout, Lengths, Mask, MaskKind, Output, Problem, Weights};
pub use reference::{Attended, Row, Sample, attend};
pub use score::{
    BlockMask, Extents, HostScore, Key, PairElement, PairMask, Rule, ScoreArgs, ScoreMod, ScoreRow,
    Scoring, Table, Tables, alibi, documents, pairs, softcap,
};
pub use tcgen05::{TensorShape, tensor_plan, tensor_schedule};
pub use views::{View, Views};
pub use warpgroup::{
    Sharing, Stay, WarpgroupShape, clustered_keys, staying, warpgroup_job, warpgroup_plan,
    warpgroup_schedule, warpgroup_shape, with_levels,
};
