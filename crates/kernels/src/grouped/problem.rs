//! Many multiplications in one launch.

use crate::error::KernelError;
use crate::gemm::{GROUP_ROWS, Input, Layout, Output, SCALE_BLOCK, Scales, Summing};
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
    /// The same, but every group has room for as many rows, of which the first ones are used, and the
    /// kernel reads how many from the device: the *masked* layout of decoding, in which whoever
    /// sends rows to a group needs to know nothing of the other groups. Rows behind a group's count
    /// are not stored, whatever A has there.
    Masked {
        /// Rows that each group uses, as the device reads them.
        counts: Vec<u32>,
        /// Rows that there is room for in each group. A count above it counts as this.
        room: u32,
        /// Columns of every group.
        n: u32,
        /// Depth of every group.
        k: u32,
    },
    /// Every group has its own; the kernel reads shapes and places from the
    /// device.
    Own(Vec<Group>),
}

/// Groups that differ in their rows alone: one matrix of rows, as many of columns as groups.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Alike<'p> {
    /// Rows of each group.
    pub(crate) rows: &'p [u32],
    /// Rows that there is room for in each, where they are masked.
    pub(crate) room: Option<u32>,
    pub(crate) n: u32,
    pub(crate) k: u32,
}

impl Alike<'_> {
    /// Rows of the matrix of all groups.
    pub(crate) fn total(&self) -> u64 {
        match self.room {
            None => self.rows.iter().map(|&rows| u64::from(rows)).sum(),
            Some(room) => self.rows.len() as u64 * u64::from(room),
        }
    }

    /// Rows of tiles of this height that every distribution of rows over the groups fits into.
    pub(crate) fn most_tiles(&self, height: u32) -> u64 {
        let groups = self.rows.len() as u64;
        match self.room {
            // Every group may have one tile that is not full.
            None => (self.total() + groups * u64::from(height - 1)) / u64::from(height),
            Some(room) => groups * u64::from(room.div_ceil(height)),
        }
    }

    /// Those that this distribution has.
    pub(crate) fn tiles(&self, height: u32) -> u64 {
        let tiles = |rows: &u32| u64::from(rows.div_ceil(height));
        self.rows.iter().map(tiles).sum()
    }

    /// How many of these have up to 64 rows of their group, how many up to 128, and so on: the last of a group may have fewer than the others.
    pub(crate) fn tiles_by_rows(&self, height: u32) -> Vec<u64> {
        let mut tiles = vec![0; height.div_ceil(GROUP_ROWS) as usize];
        for rows in self.rows {
            let (whole, rest) = (rows / height, rows % height);
            if let Some(all) = tiles.last_mut() {
                *all += u64::from(whole);
            }
            if rest > 0 {
                tiles[(rest.div_ceil(GROUP_ROWS) - 1) as usize] += 1;
            }
        }
        tiles
    }
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
    /// What A and B are multiplied by, of 8-bit floats: nothing, factors of rows and columns, or of
    /// blocks. The rows of all groups are those of one matrix A, except that the scales of blocks
    /// lie group after group where groups are masked; each group has a B with scales of its own.
    pub scales: Scales,
    /// How products of 8-bit floats are added.
    pub sums: Summing,
    /// Check every decoded tile on the device, and report the first bad one
    /// instead of touching memory for it.
    pub check: bool,
}

impl Grouped {
    /// In layout nt, without scales and checks.
    fn new(shapes: Shapes, input: Input, output: Output) -> Grouped {
        Grouped {
            shapes,
            input,
            output,
            layout: Layout::Nt,
            scales: Scales::None,
            sums: Summing::Levels,
            check: false,
        }
    }

    /// Groups of the same n and k.
    pub fn rows(rows: Vec<u32>, n: u32, k: u32, input: Input, output: Output) -> Grouped {
        Grouped::new(Shapes::Rows { rows, n, k }, input, output)
    }

    /// Groups of the same n and k with room for as many rows each, of which so many are used.
    pub fn masked(
        counts: Vec<u32>,
        room: u32,
        [n, k]: [u32; 2],
        input: Input,
        output: Output,
    ) -> Grouped {
        let shapes = Shapes::Masked { counts, room, n, k };
        Grouped::new(shapes, input, output)
    }

    /// Groups of their own shapes.
    pub fn own(groups: Vec<Group>, input: Input, output: Output) -> Grouped {
        Grouped::new(Shapes::Own(groups), input, output)
    }

    /// The same with scales.
    #[must_use]
    pub fn scales(mut self, scales: Scales) -> Grouped {
        self.scales = scales;
        self
    }

    /// Its groups, where they differ in their rows alone.
    pub(crate) fn alike(&self) -> Option<Alike<'_>> {
        let (rows, room, n, k) = match &self.shapes {
            Shapes::Rows { rows, n, k } => (rows, None, *n, *k),
            Shapes::Masked { counts, room, n, k } => (counts, Some(*room), *n, *k),
            Shapes::Own(_) => return None,
        };
        Some(Alike { rows, room, n, k })
    }

    /// Whether products are accumulated in two levels.
    pub(crate) fn in_levels(&self) -> bool {
        self.input.is_tiny() && (self.scales == Scales::Blocks || self.sums == Summing::Levels)
    }

    /// How many scales A and B have.
    pub fn scale_counts(&self) -> [usize; 2] {
        let Some(alike) = self.alike() else {
            return [0, 0];
        };
        let [n, k] = [alike.n, alike.k].map(|extent| extent as usize);
        let (total, groups) = (alike.total() as usize, alike.rows.len());
        let blocks = |extent: usize| extent.div_ceil(SCALE_BLOCK as usize);
        match self.scales {
            // Others were refused.
            Scales::None | Scales::Tensor | Scales::Mx => [0, 0],
            Scales::Rows => [total, groups * n],
            Scales::Blocks => [total * blocks(k), groups * blocks(n) * blocks(k)],
        }
    }

    /// How many groups there are.
    pub fn len(&self) -> usize {
        match &self.shapes {
            Shapes::Rows { rows, .. } => rows.len(),
            Shapes::Masked { counts, .. } => counts.len(),
            Shapes::Own(groups) => groups.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Every group's shape.
    pub fn groups(&self) -> Vec<Group> {
        match (&self.shapes, self.alike()) {
            (Shapes::Own(groups), _) => groups.clone(),
            (_, None) => Vec::new(),
            (_, Some(Alike { rows, n, k, .. })) => {
                rows.iter().map(|&m| Group { m, n, k }).collect()
            }
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
        self.check_scales()?;
        if self.len() > 4096 {
            return Err(KernelError::unfit(format!(
                "{} groups are too many for one launch: their table is kept in shared memory, at most 4096",
                self.len()
            )));
        }
        let total = match self.alike() {
            Some(alike) => alike.total(),
            None => self.groups().iter().map(|g| u64::from(g.m)).sum(),
        };
        let most = u32::MAX / 2;
        if total > most.into() {
            return Err(KernelError::unfit(format!(
                "{total} rows are too many for one launch, at most {most}: split the groups"
            )));
        }
        if let Shapes::Masked { counts, room, .. } = &self.shapes
            && let Some(count) = counts.iter().find(|count| *count > room)
        {
            return Err(KernelError::unfit(format!(
                "a group of {count} rows has room for {room}: give it more, or fewer rows"
            )));
        }
        Ok(())
    }

    fn check_scales(&self) -> Result<(), KernelError> {
        let wrong = |why: String| Err(KernelError::unfit(why));
        match self.scales {
            Scales::None => Ok(()),
            Scales::Tensor => wrong(
                "groups have factors of rows and columns or of blocks, not one for all of a matrix: \
                 take scales=rows and repeat it"
                    .into(),
            ),
            Scales::Mx => wrong(
                "groups have factors of rows and columns or of blocks of 128, not of 32 elements: \
                 take scales=blocks"
                    .into(),
            ),
            _ if !self.input.is_tiny() => wrong(format!(
                "scales of groups are for e4m3 and e5m2, not {}: multiply the result instead",
                self.input
            )),
            _ if matches!(self.shapes, Shapes::Own(_)) => wrong(
                "groups of their own n and k have no scales: take groups of the same n and k".into(),
            ),
            _ => Ok(()),
        }
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
        match self.alike() {
            Some(Alike { rows, room, n, k }) => {
                let used: u64 = rows.iter().map(|&m| u64::from(m)).sum();
                write!(f, "{} groups, {used} rows", rows.len())?;
                if let Some(room) = room {
                    write!(f, " in room for {room} each")?;
                }
                write!(f, ", n {n}, k {k}")?;
            }
            None => write!(f, "{} groups of their own shapes", self.len())?,
        }
        write!(f, " {} {}->{}", self.layout, self.input, self.output)?;
        if self.scales != Scales::None {
            write!(f, " scales={}", self.scales)?;
        }
        if self.input.is_tiny() && !self.in_levels() {
            f.write_str(" fast")?;
        }
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
