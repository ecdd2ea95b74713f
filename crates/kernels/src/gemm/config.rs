//! Tile shapes on `mma.sync`: tiles of blocks and warps, depth, stages.

use crate::error::KernelError;
use std::fmt;
use std::str::FromStr;

/// The shape of a kernel. Written `128x256x32/64x64/4`: the tile of a block
/// with its depth, the tile of a warp, stages; with `*2` behind it, registers
/// are kept low enough for two blocks on a multiprocessor.
///
/// ```
/// use heist_kernels::gemm::Config;
/// let config: Config = "128x256x32/64x64/4".parse().unwrap();
/// assert_eq!(config.threads(), 256);
/// assert_eq!(config.to_string(), "128x256x32/64x64/4");
/// assert!("128x256/4".parse::<Config>().is_err());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    /// Rows of a block's tile.
    pub rows: u32,
    /// Columns of a block's tile.
    pub cols: u32,
    /// How deep a stage is, in elements of 16 bits; half as many of 32 bits.
    pub depth: u32,
    /// Rows of a warp's tile.
    pub warp_rows: u32,
    /// Columns of a warp's tile.
    pub warp_cols: u32,
    /// Stages of the pipeline.
    pub stages: u32,
    /// Blocks that should fit on a multiprocessor.
    pub blocks: u32,
}

impl Config {
    /// Warps of a block, down and across.
    pub fn warps(&self) -> (u32, u32) {
        (
            self.rows / self.warp_rows.max(1),
            self.cols / self.warp_cols.max(1),
        )
    }

    /// Threads of a block.
    pub fn threads(&self) -> u32 {
        let (down, across) = self.warps();
        down * across * 32
    }

    /// Bytes of a stage.
    pub(super) fn stage_bytes(&self) -> u32 {
        (self.rows + self.cols) * self.depth * 2
    }

    /// Registers that a thread takes, about.
    pub fn registers(&self) -> u32 {
        let sums = self.warp_rows * self.warp_cols / 32;
        let fragments = (self.warp_rows + self.warp_cols) / 2;
        (sums + fragments + 40).next_multiple_of(8).min(255)
    }

    /// Fails where the parts do not fit together.
    ///
    /// # Errors
    /// What does not.
    pub fn check(&self) -> Result<(), KernelError> {
        let wrong = |why: &str| Err(KernelError::unfit(format!("tile shape {self}: {why}")));
        if self.warp_rows == 0 || !self.warp_rows.is_multiple_of(16) {
            return wrong("a warp's rows are a multiple of 16");
        }
        if self.warp_cols == 0 || !self.warp_cols.is_multiple_of(16) {
            return wrong("a warp's columns are a multiple of 16");
        }
        if self.rows == 0 || !self.rows.is_multiple_of(self.warp_rows) {
            return wrong("a block's rows are a multiple of a warp's");
        }
        if self.cols == 0 || !self.cols.is_multiple_of(self.warp_cols) {
            return wrong("a block's columns are a multiple of a warp's");
        }
        if !matches!(self.depth, 16 | 32 | 64 | 128) {
            return wrong("the depth is 16, 32, 64 or 128");
        }
        if !(2..=8).contains(&self.stages) {
            return wrong("a pipeline has 2 to 8 stages");
        }
        if !(1..=8).contains(&self.blocks) {
            return wrong("1 to 8 blocks fit on a multiprocessor");
        }
        if self.threads() > 1024 {
            return wrong("a block has at most 32 warps");
        }
        if self.warp_rows * self.warp_cols > 64 * 96 {
            return wrong("a warp's sums do not fit its registers");
        }
        Ok(())
    }
}

impl fmt::Display for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}x{}x{}/{}x{}/{}",
            self.rows, self.cols, self.depth, self.warp_rows, self.warp_cols, self.stages
        )?;
        if self.blocks > 1 {
            write!(f, "*{}", self.blocks)?;
        }
        Ok(())
    }
}

impl FromStr for Config {
    type Err = KernelError;

    fn from_str(text: &str) -> Result<Config, KernelError> {
        let read = || {
            let (shape, blocks) = text.split_once('*').unwrap_or((text, "1"));
            let mut parts = shape.split('/');
            let mut numbers = |count: usize| -> Option<Vec<u32>> {
                let part = parts.next()?;
                let all: Option<Vec<u32>> = part.split('x').map(|n| n.parse().ok()).collect();
                all.filter(|all| all.len() == count)
            };
            let (block, warp, stages) = (numbers(3)?, numbers(2)?, numbers(1)?);
            Some(Config {
                rows: block[0],
                cols: block[1],
                depth: block[2],
                warp_rows: warp[0],
                warp_cols: warp[1],
                stages: stages[0],
                blocks: blocks.parse().ok()?,
            })
        };
        let config = read().ok_or_else(|| {
            KernelError::unfit(format!(
                "`{text}` is no tile shape: write one like 128x256x32/64x64/4"
            ))
        })?;
        config.check()?;
        Ok(config)
    }
}
