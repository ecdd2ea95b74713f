//! Many multiplications in one launch.

use crate::error::KernelError;
use crate::gemm::{Input, Layout, Output};
use crate::job::Work;
use std::fmt;

/// The shape of one group: `D = A * B`, A m x k, B k x n.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group {
    /// Rows; zero is fine.
    pub m: u32,
    /// Columns.
    pub n: u32,
    /// Depth.
    pub k: u32,
}

/// Who has which shape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shapes {
    /// Every group has the same n and k, and its rows follow those of the group
    /// before: A is one matrix of `total` rows, and the kernel reads where each
    /// group ends from the device, as `torch._grouped_mm` does. The host knows
    /// the sum alone.
    Rows {
        /// Rows of each group, for whoever makes the data: what the device
        /// reads is their running sum.
        rows: Vec<u32>,
        /// Columns of every group.
        n: u32,
        /// Depth of every group.
        k: u32,
    },
    /// Every group has its own; the kernel reads shapes and places from the
    /// device.
    Own(Vec<Group>),
}

/// A grouped multiplication.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grouped {
    /// The groups.
    pub shapes: Shapes,
    /// The type of A and B.
    pub input: Input,
    /// The type of the result.
    pub output: Output,
    /// `nt` (B is n x k) or `nn` (B is k x n).
    pub layout: Layout,
    /// Check every decoded tile on the device, and report the first bad one
    /// instead of touching memory for it.
    pub check: bool,
}

impl Grouped {
    /// Groups of the same n and k.
    pub fn rows(rows: Vec<u32>, n: u32, k: u32, input: Input, output: Output) -> Grouped {
        Grouped {
            shapes: Shapes::Rows { rows, n, k },
            input,
            output,
            layout: Layout::Nt,
            check: false,
        }
    }

    /// Groups of their own shapes.
    pub fn own(groups: Vec<Group>, input: Input, output: Output) -> Grouped {
        Grouped {
            shapes: Shapes::Own(groups),
            input,
            output,
            layout: Layout::Nt,
            check: false,
        }
    }

    /// How many groups there are.
    pub fn len(&self) -> usize {
        match &self.shapes {
            Shapes::Rows { rows, .. } => rows.len(),
            Shapes::Own(groups) => groups.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Every group's shape.
    pub fn groups(&self) -> Vec<Group> {
        match &self.shapes {
            Shapes::Rows { rows, n, k } => {
                let group = |&m: &u32| Group { m, n: *n, k: *k };
                rows.iter().map(group).collect()
            }
            Shapes::Own(groups) => groups.clone(),
        }
    }

    /// Fails on what the kernels do not do.
    ///
    /// # Errors
    /// What is wrong.
    pub fn check_shapes(&self) -> Result<(), KernelError> {
        if !matches!(self.layout, Layout::Nt | Layout::Nn) {
            return Err(KernelError::unfit(format!(
                "a grouped multiplication has A stored row after row (nt, nn), not {}",
                self.layout
            )));
        }
        if self.input.is_tiny() {
            return Err(KernelError::unfit(format!(
                "a grouped multiplication takes f16, bf16 and tf32, not {}",
                self.input
            )));
        }
        if self.len() > 4096 {
            return Err(KernelError::unfit(format!(
                "{} groups are too many for one launch: their table is kept in shared memory, at most 4096",
                self.len()
            )));
        }
        let total: u64 = self.groups().iter().map(|g| u64::from(g.m)).sum();
        if total > u64::from(u32::MAX / 2) {
            return Err(KernelError::unfit(format!("{total} rows are too many")));
        }
        Ok(())
    }
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Group { m, n, k } = self;
        write!(f, "{m}x{n}x{k}")
    }
}

impl fmt::Display for Grouped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.shapes {
            Shapes::Rows { rows, n, k } => {
                let total: u64 = rows.iter().map(|&m| u64::from(m)).sum();
                write!(f, "{} groups, {total} rows, n {n}, k {k}", rows.len())?;
            }
            Shapes::Own(groups) => write!(f, "{} groups of their own shapes", groups.len())?,
        }
        write!(f, " {} {}->{}", self.layout, self.input, self.output)?;
        if self.check {
            f.write_str(" checked")?;
        }
        Ok(())
    }
}

/// What it costs at least.
pub(super) fn work(problem: &Grouped) -> Work {
    let bytes = f64::from(problem.input.bytes());
    let result = problem.output.element().bytes() as f64;
    let mut work = Work::default();
    for group in problem.groups() {
        let [m, n, k] = [group.m, group.n, group.k].map(f64::from);
        work.flops += 2.0 * m * n * k;
        if group.m > 0 {
            work.bytes += (m + n) * k * bytes + m * n * result;
        }
    }
    work
}
