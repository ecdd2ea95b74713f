//! The tiles of the kernel on tensor memory, and what a block has for them.

use crate::KernelError;
use crate::attention::panels::{PANEL, Panels};
use crate::attention::problem::{Layout, MaskKind, Output, Problem, Weights};
use heist_builder::Arch;
use heist_sched::{Policy, Schedule};
use std::fmt;

/// Query rows of a tile: one for each lane of tensor memory.
pub(super) const ROWS: u32 = 128;
/// The warp whose first thread copies. It is the scheduler's thread too.
pub(super) const COPYING_WARP: u32 = 0;
/// The warp with the thread that multiplies.
pub(super) const MULTIPLYING_WARP: u32 = 1;
/// Warps that make weights of scores and store results: a thread has a row.
pub(super) const ROW_WARPS: u32 = 4;
/// Threads of a block.
pub(super) const THREADS: u32 = (2 + ROW_WARPS) * 32;
/// Scores, and weights, of as many blocks of keys are in tensor memory.
pub(super) const BUFFERS: u32 = 2;
/// Columns of tensor memory.
const COLUMNS: u32 = 512;
/// Bytes of a row of a panel, and of the rows that results are stored by.
pub(super) const ROW_BYTES: u32 = 2 * PANEL;

/// What the kernel is built for, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TensorShape {
    /// Elements of a head: a multiple of 16 up to 256.
    pub head_dim: u32,
    /// Keys of a block: 64 or 128.
    pub keys: u32,
    /// Blocks of keys, and of values, that are on their way or in use.
    pub stages: u32,
    /// Which keys a query sees.
    pub mask: MaskKind,
    /// Whether sequences have lengths of their own and lie one after the other.
    pub ragged: bool,
    /// How heads and rows lie.
    pub layout: Layout,
    /// How weights enter the product with the values.
    pub weights: Weights,
    /// What results are made of.
    pub output: Output,
}

impl TensorShape {
    /// The shape that suits a problem: blocks of 128 keys where tensor memory has room for two of
    /// them beside the results, else of 64; as many stages as shared memory has room for. Changed scores have blocks of 64: a thread has a
    /// row's scores in registers, and what is loaded for each of 128 was spilled; so was where a window's blocks of packed sequences are.
    pub fn suited(problem: &Problem, arch: Arch) -> TensorShape {
        let shape = |keys, stages| TensorShape {
            head_dim: problem.head_dim,
            keys,
            stages,
            mask: problem.mask.kind(),
            ragged: problem.is_ragged(),
            layout: problem.layout,
            weights: problem.weights,
            output: problem.output,
        };
        let room_for_two = shape(128, 2).columns() <= COLUMNS;
        let window = problem.is_ragged() && problem.mask.kind() == MaskKind::Window;
        let keys = match room_for_two && problem.scoring.mods.is_empty() && !window {
            true => 128,
            false => 64,
        };
        let fits = |stages: &u32| shape(keys, *stages).shared_bytes() <= room(arch);
        let stages = (2..=4).rev().find(fits).unwrap_or(2);
        shape(keys, stages)
    }

    /// The same under a schedule: where a policy is interpreted, registers live from tile to tile that blocks of 128 keys do not leave.
    #[must_use]
    pub fn under(self, schedule: &Schedule) -> TensorShape {
        let keys = match schedule.policy.loaded() {
            Some(_) => 64,
            None => self.keys,
        };
        TensorShape { keys, ..self }
    }

    pub(super) fn panels(&self) -> Panels {
        Panels {
            head_dim: self.head_dim,
        }
    }

    /// Terms that a weight has in the product with the values.
    pub(super) fn terms(&self) -> u32 {
        match self.weights {
            Weights::Rounded => 1,
            Weights::Split => 2,
        }
    }

    /// Columns of tensor memory: scores in f32, weights in halves, results.
    fn columns(&self) -> u32 {
        BUFFERS * (self.keys + self.terms() * self.keys / 2) + self.head_dim
    }

    /// Bytes of shared memory: queries, stages, and the rows that results are stored by.
    fn shared_bytes(&self) -> u32 {
        let rows = ROWS + 2 * self.stages * self.keys;
        (rows * self.panels().count() + ROW_WARPS * 32) * ROW_BYTES
    }

    /// Fails where there is no such kernel, with the reason.
    pub(super) fn check(&self, arch: Arch) -> Result<(), KernelError> {
        let wrong = |why: String| Err(KernelError::unfit(format!("{self}: {why}")));
        if !matches!(self.keys, 64 | 128) {
            return wrong("a block has 64 or 128 keys".into());
        }
        if !(1..=16).contains(&self.stages) {
            return wrong("1 to 16 stages can be had".into());
        }
        if self.columns() > COLUMNS {
            return wrong(format!(
                "it takes {} columns of tensor memory, and there are {COLUMNS}; take blocks of 64 keys",
                self.columns()
            ));
        }
        if self.shared_bytes() > room(arch) {
            return wrong(format!(
                "its stages take {} bytes of shared memory, and a block on {arch} has {}; take fewer",
                self.shared_bytes(),
                room(arch)
            ));
        }
        Ok(())
    }
}

/// Bytes of shared memory of a block, without what barriers, the scheduler and alignment take.
fn room(arch: Arch) -> u32 {
    arch.limits().shared_opt_in - 3072
}

impl fmt::Display for TensorShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tcgen05 {ROWS}x{} {} stages", self.keys, self.stages)
    }
}
