//! A finished kernel besides its PTX: its launch requirements and its contents.

use crate::emit::RawUse;
use crate::params::ParamInfo;
use heist_ptx::arch::{Arch, Feature};
use std::fmt;

/// How a kernel must be launched, apart from its grid.
#[derive(Clone, Debug, PartialEq)]
pub struct LaunchInfo {
    /// The entry's name.
    pub entry: String,
    /// Threads in a block.
    pub block: [u32; 3],
    /// Blocks in a cluster; the grid must be a multiple. `None` for no clusters.
    pub cluster: Option<[u32; 3]>,
    /// Shared memory that the module itself declares, in bytes.
    pub static_shared: u32,
    /// Shared memory to ask for at the launch, in bytes.
    pub dynamic_shared: u32,
    /// What it was built for.
    pub arch: Arch,
    /// Its parameters.
    pub params: Vec<ParamInfo>,
    /// For each tensor map parameter that copies use, its position and how many
    /// bytes its box must have.
    pub tensor_boxes: Vec<(u32, u64)>,
}

/// What went into a kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct Contents {
    /// Instructions in the PTX.
    pub instructions: usize,
    /// Virtual registers in the PTX.
    pub registers: usize,
    /// Arrays in shared memory: name, offset, bytes.
    pub shared: Vec<SharedUse>,
    /// What it needs of the architecture.
    pub features: Vec<Feature>,
    /// Each use of raw PTX, in order.
    pub raw: Vec<RawUse>,
}

/// An array in shared memory and where it lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedUse {
    /// Its name in the PTX.
    pub name: String,
    /// Bytes from the start of the block's memory.
    pub offset: u64,
    /// Its size in bytes.
    pub bytes: u64,
}

impl fmt::Display for Contents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} instructions, {} virtual registers",
            self.instructions, self.registers
        )?;
        for piece in &self.shared {
            writeln!(
                f,
                "shared {:>8}+{:<8} {}",
                piece.offset, piece.bytes, piece.name
            )?;
        }
        match self.raw.len() {
            0 => write!(f, "no raw PTX"),
            count => {
                write!(f, "{count} uses of raw PTX:")?;
                self.raw.iter().try_for_each(|raw| {
                    write!(f, "\n  {} `{}` at {}", raw.name, raw.opcode, raw.at)
                })
            }
        }
    }
}
