//! Tile shapes on Blackwell's tensor cores.

use crate::error::KernelError;
use crate::gemm::{MX_BLOCK, MX_ROWS, Major};
use heist_ptx::arch::Arch;
use std::fmt;
use std::str::FromStr;

/// Rows that a block has of a tile: those of its tensor memory.
pub(super) const ROWS: u32 = 128;
/// The depth of a stage in elements of 16 bits: the 128 bytes that are swizzled together.
pub(super) const DEPTH: u32 = 64;
/// Columns of tensor memory.
const TENSOR_COLUMNS: u32 = 512;
/// Accumulators in tensor memory.
pub(super) const ACCUMULATORS: u32 = 2;
/// Warps that store the sums.
pub(super) const STORING_WARPS: u32 = 4;
/// Threads of a block: a warp that copies, one that multiplies, four that store.
pub(super) const THREADS: u32 = (2 + STORING_WARPS) * 32;
/// Bytes of a row of a stage, and of a row of the storing warps' buffers.
pub(super) const ROW_BYTES: u32 = 128;
/// Buffers that a storing warp takes in turns.
pub(super) const BUFFERS: u32 = 2;

/// The shape of a kernel on Blackwell's tensor cores. Written `tcgen05:128x256x64/4`: rows and
/// columns of a tile, the depth of a stage in elements of 16 bits, stages. Tiles of 256 rows are
/// those of a pair of blocks, 128 rows each.
///
/// ```
/// use heist_kernels::blackwell::TensorTiling;
/// let tiling: TensorTiling = "tcgen05:256x256x64/6".parse().unwrap();
/// assert_eq!((tiling.blocks, tiling.to_string().as_str()), (2, "tcgen05:256x256x64/6"));
/// assert!("tcgen05:128x48x64/4".parse::<TensorTiling>().is_err());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TensorTiling {
    /// Blocks that multiply a tile: 1, or 2, each 128 of its rows.
    pub blocks: u32,
    /// Columns of a tile: 64, 128, 192 or 256; of a pair's 128 or 256.
    pub cols: u32,
    /// Stages of the ring.
    pub stages: u32,
}

impl TensorTiling {
    /// Rows of 128 bytes that a stage has of one operand.
    pub(super) fn stage_rows(outer: u32, major: Major) -> u32 {
        match major {
            Major::Depth => outer,
            Major::Outer => outer / DEPTH * DEPTH,
        }
    }

    /// Rows of a tile.
    pub(crate) const fn rows(&self) -> u32 {
        ROWS * self.blocks
    }

    /// The depth of a stage in elements of 16 bits.
    pub(crate) const fn depth(&self) -> u32 {
        DEPTH
    }

    /// Threads of a block.
    pub(crate) const fn threads(&self) -> u32 {
        THREADS
    }

    /// Columns that a block has in its shared memory.
    pub(super) const fn own_cols(&self) -> u32 {
        self.cols / self.blocks
    }

    /// Columns with scales of blocks that a tile touches: it may begin in the middle of 128.
    pub(super) const fn scaled_cols(&self) -> u32 {
        self.cols.next_multiple_of(MX_ROWS)
    }

    /// Bytes of a stage's scales of blocks: one for every row or column and 32 elements of the depth.
    const fn scale_bytes(&self) -> u32 {
        (MX_ROWS + self.scaled_cols()) * (ROW_BYTES / MX_BLOCK)
    }

    /// Accumulators that fit beside the scales of all stages.
    pub(super) fn scaled_accumulators(&self) -> u32 {
        // A column of tensor memory has those of 32 rows, in all quarters of its lanes.
        let scales = self.stages * (MX_ROWS + self.scaled_cols()) / 32;
        ACCUMULATORS.min((TENSOR_COLUMNS - scales) / self.cols)
    }

    /// As many stages as fit beside the storing warps' buffers, with scales of blocks where these have
    /// some.
    pub(super) fn deepest(blocks: u32, cols: u32, scaled: bool, arch: Arch) -> TensorTiling {
        let buffers = STORING_WARPS * BUFFERS * 32 * ROW_BYTES;
        // Barriers, the scheduler's words, and what alignment to 1024 bytes leaves.
        let room = arch.limits().shared_opt_in - buffers - 2048;
        let mut tiling = TensorTiling {
            blocks,
            cols,
            stages: 2,
        };
        let scales = u32::from(scaled) * tiling.scale_bytes();
        let stages = room / ((ROWS + tiling.own_cols()) * ROW_BYTES + scales);
        tiling.stages = stages.clamp(2, 16);
        tiling
    }

    /// Fails where the parts do not fit together.
    ///
    /// # Errors
    /// What does not.
    pub fn check(&self) -> Result<(), KernelError> {
        let wrong = |why: &str| Err(KernelError::unfit(format!("tile shape {self}: {why}")));
        match (self.blocks, self.cols) {
            (1, 64 | 128 | 192 | 256) | (2, 128 | 256) => {}
            (1, _) => return wrong("a tile has 64, 128, 192 or 256 columns"),
            (2, _) => return wrong("a pair's tile has 128 or 256 columns"),
            _ => return wrong("a tile is multiplied by one block or a pair"),
        }
        if !(2..=16).contains(&self.stages) {
            return wrong("a ring has 2 to 16 stages");
        }
        Ok(())
    }

    /// Fails where it does not fit the shared memory of a block.
    ///
    /// # Errors
    /// By how much.
    pub(super) fn fits(&self, scaled: bool, arch: Arch) -> Result<(), KernelError> {
        let most = Self::deepest(self.blocks, self.cols, scaled, arch).stages;
        if self.stages > most {
            return Err(KernelError::unfit(format!(
                "tile shape {self}: a block on {arch} has shared memory for {most} such stages"
            )));
        }
        Ok(())
    }
}

impl fmt::Display for TensorTiling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            blocks,
            cols,
            stages,
        } = self;
        write!(f, "tcgen05:{}x{cols}x{DEPTH}/{stages}", blocks * ROWS)
    }
}

impl FromStr for TensorTiling {
    type Err = KernelError;

    fn from_str(text: &str) -> Result<TensorTiling, KernelError> {
        let read = || {
            let (shape, stages) = text.strip_prefix("tcgen05:")?.split_once('/')?;
            let shape: Option<Vec<u32>> = shape.split('x').map(|n| n.parse().ok()).collect();
            let [rows, cols, DEPTH] = <[u32; 3]>::try_from(shape?).ok()? else {
                return None;
            };
            let blocks = match rows / ROWS {
                blocks @ (1 | 2) if rows % ROWS == 0 => blocks,
                _ => return None,
            };
            let stages = stages.parse().ok()?;
            Some(TensorTiling {
                blocks,
                cols,
                stages,
            })
        };
        let tiling = read().ok_or_else(|| {
            KernelError::unfit(format!(
                "`{text}` is no tile shape on Blackwell's tensor cores: write one like tcgen05:128x256x64/4, \
                 with 128 rows, or 256 of a pair of blocks, and a depth of 64"
            ))
        })?;
        tiling.check()?;
        Ok(tiling)
    }
}
