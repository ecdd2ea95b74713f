//! The configuration of a kernel: the rungs of the ladder, and the options of each.

use super::problem::{Dtype, MaskKind, Output, Problem, Weights};
use crate::KernelError;
use crate::family::Target;
use std::fmt;

/// A step of the ladder from the plainest kernel to the fastest. Each adds one
/// idea, so that each idea can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Rung {
    /// Eight threads to a query row, multiplications one by one.
    Scalar,
    /// Scores on tensor cores, from queries in shared memory; values weighed one
    /// by one.
    Mixed,
    /// Both products on tensor cores, scores and weights in registers.
    Tensor,
    /// Keys and values on their way while the ones before are worked on: 64 x 32
    /// tiles with padded rows.
    Buffered,
    /// The tiles that suit the shape, queries in registers where they fit, keys
    /// shared out among the warps of a block, or among blocks, for small shapes.
    Large,
    /// The same, with blocks that stay and take tile after tile.
    Persistent,
}

impl Rung {
    /// From the plainest to the fastest.
    pub const ALL: [Rung; 6] = [
        Rung::Scalar,
        Rung::Mixed,
        Rung::Tensor,
        Rung::Buffered,
        Rung::Large,
        Rung::Persistent,
    ];

    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Rung::Scalar => "scalar",
            Rung::Mixed => "mixed",
            Rung::Tensor => "tensor",
            Rung::Buffered => "buffered",
            Rung::Large => "large",
            Rung::Persistent => "persistent",
        }
    }
}

impl fmt::Display for Rung {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// How keys and values are brought in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Feed {
    /// A stage holds a block's keys and its values: one meeting a block.
    Pairs,
    /// Keys and values take turns: half the shared memory, two meetings.
    Turns,
}

/// What a kernel is built for, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    /// Which kernel.
    pub rung: Rung,
    /// Elements of a head.
    pub head_dim: u32,
    /// Of what type.
    pub dtype: Dtype,
    /// How weights enter the product with the values.
    pub weights: Weights,
    /// What results are made of.
    pub output: Output,
    /// Which keys a query sees; a kernel for a wider kind does for a narrower.
    pub mask: MaskKind,
    /// Whether sequences have lengths of their own.
    pub ragged: bool,
    /// Whether scores are changed before the softmax, which takes registers.
    pub changed: bool,
    /// Blocks of 16 query rows that a warp holds.
    pub row_blocks: u32,
    /// Warps with rows of their own.
    pub down: u32,
    /// Warps that share rows, each with keys of its own.
    pub across: u32,
    /// Keys that a warp takes in a step: a multiple of 16.
    pub cols: u32,
    /// Stages of the pipeline.
    pub stages: u32,
    /// What a stage is.
    pub feed: Feed,
    /// Rows permuted rather than padded, where they are a power of two.
    pub swizzled: bool,
    /// Queries stay in registers.
    pub q_in_registers: bool,
    /// Addresses are computed before the loop over keys, and held through it.
    pub hoisted: bool,
    /// What only the end needs waits in shared memory, not in registers.
    pub set_aside: bool,
    /// Blocks that share the keys of a tile; a second kernel joins their results.
    pub splits: u32,
    /// Blocks that should fit on a multiprocessor. The assembler keeps registers
    /// low enough for them, and uses all it wants for one.
    pub min_blocks: u32,
}

impl Config {
    /// What suits a problem on a device.
    pub fn suited(rung: Rung, problem: &Problem, target: Target) -> Config {
        let dim = problem.head_dim;
        let plain = Config {
            rung,
            head_dim: dim,
            dtype: problem.dtype,
            weights: problem.weights,
            output: problem.output,
            mask: problem.mask.kind(),
            ragged: problem.is_ragged(),
            changed: !problem.scoring.mods.is_empty(),
            row_blocks: 1,
            down: 4,
            across: 1,
            cols: 32,
            stages: 2,
            feed: Feed::Pairs,
            swizzled: false,
            q_in_registers: false,
            hoisted: false,
            set_aside: false,
            splits: 1,
            min_blocks: 1,
        };
        match rung {
            Rung::Scalar => Config { down: 1, ..plain },
            Rung::Mixed | Rung::Tensor => plain,
            Rung::Buffered => plain.fitted(target),
            Rung::Large | Rung::Persistent => large(plain, problem, target),
        }
    }

    /// Query rows of a tile.
    pub fn rows(&self) -> u32 {
        16 * self.row_blocks * self.down
    }

    /// Keys of a step.
    pub fn width(&self) -> u32 {
        self.cols * self.across
    }

    /// Threads of a block.
    pub fn threads(&self) -> u32 {
        match self.rung {
            Rung::Scalar => 8 * self.rows(),
            _ => 32 * self.down * self.across,
        }
    }

    /// Elements between the end of a row in shared memory and the next: rows
    /// then are an odd number of 16 bytes apart, and no two lanes of a load meet
    /// in a bank.
    pub(crate) fn layout(&self) -> heist_builder::TileLayout {
        if self.swizzled && self.head_dim.is_power_of_two() {
            heist_builder::TileLayout::Swizzled
        } else {
            let chunks = self.head_dim / 8;
            heist_builder::TileLayout::Padded(if chunks.is_multiple_of(2) { 8 } else { 0 })
        }
    }

    /// Bytes of shared memory that a block takes.
    pub fn shared(&self) -> u32 {
        let pitch = match self.layout() {
            heist_builder::TileLayout::Padded(gap) => self.head_dim + gap,
            heist_builder::TileLayout::Swizzled => self.head_dim,
        };
        let (queries, keys) = (2 * pitch * self.rows(), 2 * pitch * self.width());
        let merged = 4 * self.rows() * (self.across - 1) * (self.head_dim + 8);
        let aside = if self.set_aside {
            4 * super::query_tile::SET_ASIDE
        } else {
            0
        };
        match (self.rung, self.feed) {
            (Rung::Scalar, _) => 2 * keys,
            (Rung::Mixed, _) => queries + 2 * keys + 4 * self.rows() * (self.width() + 1),
            (Rung::Tensor, _) => queries + 2 * keys,
            (_, Feed::Pairs) => queries + 2 * self.stages * keys + merged + aside,
            (_, Feed::Turns) => queries + self.stages * keys + merged + aside,
        }
    }

    /// The same, or something smaller that the device has the shared memory for.
    fn fitted(self, target: Target) -> Config {
        // The scheduler has a few words of its own.
        let room = target.arch.limits().shared_opt_in - 256;
        let turns = Config {
            feed: Feed::Turns,
            ..self
        };
        let narrow = Config { cols: 32, ..turns };
        let alone = Config {
            across: 1,
            ..narrow
        };
        let choices = [self, turns, narrow, alone];
        let fits = choices.into_iter().find(|config| config.shared() <= room);
        fits.unwrap_or(alone)
    }

    /// Fails where there is no such kernel, with the reason.
    ///
    /// # Errors
    /// What does not fit, and why.
    pub fn check(&self) -> Result<(), KernelError> {
        let fail = |why: String| Err(KernelError::unfit(why));
        if !self.cols.is_multiple_of(16) || self.cols == 0 {
            return fail(format!(
                "steps of {} keys: a multiple of 16 is wanted",
                self.cols
            ));
        }
        if self.row_blocks == 0 || self.down == 0 || self.across == 0 || self.threads() > 1024 {
            return fail(format!(
                "{} x {} warps of {} x 16 rows: a block has 1 to 1024 threads",
                self.down, self.across, self.row_blocks
            ));
        }
        if !(2..=8).contains(&self.stages) {
            return fail(format!("{} stages: 2 to 8 can be had", self.stages));
        }
        let plain = matches!(self.rung, Rung::Scalar | Rung::Mixed | Rung::Tensor);
        if plain && (self.across > 1 || self.splits > 1) {
            return fail(format!(
                "the {} kernel does not share out keys: across and splits must be 1",
                self.rung
            ));
        }
        if self.min_blocks == 0 {
            return fail("no block on a multiprocessor: at least one must fit".into());
        }
        if self.splits == 0 || self.splits > 64 {
            return fail(format!("{} splits: 1 to 64 can be had", self.splits));
        }
        Ok(())
    }
}

impl fmt::Display for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} {}x{} {}x{} warps",
            self.rung,
            self.rows(),
            self.width(),
            self.down,
            self.across
        )?;
        if matches!(self.rung, Rung::Scalar | Rung::Mixed | Rung::Tensor) {
            return Ok(());
        }
        write!(f, " {} stages", self.stages)?;
        if self.feed == Feed::Turns {
            f.write_str(" in turns")?;
        }
        if self.swizzled {
            f.write_str(" swizzled")?;
        }
        if self.q_in_registers {
            f.write_str(" q in registers")?;
        }
        if self.hoisted {
            f.write_str(" hoisted")?;
        }
        if self.set_aside {
            f.write_str(" set aside")?;
        }
        if self.splits > 1 {
            write!(f, " {} splits", self.splits)?;
        }
        Ok(())
    }
}

/// The tiles that were fastest in the sweep (`bench/programs/attention_sweep.rs`) among
/// those that the device has the shared memory for.
fn large(plain: Config, problem: &Problem, target: Target) -> Config {
    let (queries, keys) = problem.longest();
    let sequences = problem.sequences().len() as u64;
    let tiles =
        |rows: u32| u64::from(queries.div_ceil(rows)) * u64::from(problem.heads) * sequences;
    let sms = u64::from(target.sms);
    let many = for_many_tiles(plain, target);
    if tiles(many.rows()) >= sms {
        return many.fitted(target);
    }
    // Too few tiles to go round: smaller ones, and the keys of each shared out
    // among the warps of a block; where that is not enough, among blocks.
    let (down, across) = match (queries, plain.head_dim) {
        (0..=16, 0..=128) => (1, 4),
        (_, 0..=128) if tiles(32) <= sms => (2, 2),
        (_, 0..=128) => (4, 2),
        _ => (plain.down, 1),
    };
    let few = Config {
        down,
        across,
        cols: if plain.head_dim <= 128 { 64 } else { 32 },
        q_in_registers: plain.head_dim <= 64,
        ..plain
    };
    let few = few.fitted(target);
    let blocks = u64::from(keys.div_ceil(few.width()));
    let splits = (sms / tiles(few.rows()).max(1))
        .min(blocks / 8)
        .clamp(1, 64);
    Config {
        splits: splits as u32,
        ..few
    }
}

/// Tiles for problems that have enough of them. All registers are in use, and
/// whether the assembler has to spill some hangs on small things: the choices
/// here are those that it spills none for.
fn for_many_tiles(plain: Config, target: Target) -> Config {
    let measured = matches!(target.arch.to_string().as_str(), "sm_90" | "sm_90a")
        && !plain.ragged
        && plain.mask != MaskKind::Window
        && !plain.changed
        && plain.weights == Weights::Rounded;
    let stays = plain.rung == Rung::Persistent;
    let wide = Config {
        row_blocks: 2,
        cols: 64,
        min_blocks: 2,
        ..plain
    };
    match plain.head_dim {
        0..=64 if measured && !stays => Config {
            min_blocks: 3,
            ..wide
        },
        0..=64 => Config {
            q_in_registers: true,
            swizzled: true,
            set_aside: plain.changed,
            ..wide
        },
        65..=96 if measured && !stays => Config {
            mask: MaskKind::Causal,
            ..wide
        },
        65..=96 => Config { cols: 32, ..wide },
        128 if measured && stays => Config {
            hoisted: true,
            set_aside: true,
            ..wide
        },
        // The kernel for causal masks also where there is none: see `window`.
        128 if measured => Config {
            mask: MaskKind::Causal,
            hoisted: true,
            swizzled: true,
            ..wide
        },
        97..=128 => Config { cols: 32, ..wide },
        _ if measured && !stays => Config {
            mask: MaskKind::Causal,
            cols: 64,
            feed: Feed::Turns,
            min_blocks: 2,
            hoisted: true,
            swizzled: true,
            ..plain
        },
        _ => Config {
            min_blocks: 2,
            swizzled: true,
            ..plain
        },
    }
}
