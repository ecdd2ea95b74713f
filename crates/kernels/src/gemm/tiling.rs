//! Tile shapes on warpgroups.

use super::problem::Major;
use super::scales;
use crate::error::KernelError;
use heist_launch::Dim3;
use heist_ptx::arch::Arch;
use std::fmt;
use std::str::FromStr;

/// Halves in the 128 bytes that are swizzled together.
pub(crate) const SPAN: u32 = 64;
/// Rows of one product of a warpgroup.
pub(crate) const GROUP_ROWS: u32 = 64;
/// Rows that three warpgroups share.
const THREE_GROUPS: u32 = 3 * GROUP_ROWS;
/// Registers that a thread takes besides its sums.
pub(super) const BESIDES: u32 = 36;
/// The same where a tile can be left half done, or a policy is interpreted.
pub(super) const LET_GO: u32 = 32;
/// As many more where C is added there: two addresses, and a panel's words in flight. With twice 64 rows of a thread's, tiles of 168 columns
/// fit and those of 176 do not, as the assembler has it.
pub(super) const LET_GO_WITH_C: u32 = 20;
/// As many more where warpgroups have no loop of their own: 256 x 152 fits with C then, 256 x 160 does not.
const LET_GO_IN_ONE_LOOP: u32 = 16;
/// As many more where operands are swapped, and C or bias is added.
pub(super) const TURNED: u32 = 8;
/// The same where it adds up parts that are multiplied by scales from its stages, and nothing is read ahead.
const COPIED: u32 = 30;

/// As many more where words go through registers: 256 x 120 and 192 x 168 hold them beside what a thread starts with, 256 x 128 and 192 x 176 do not.
pub(super) const THROUGH: u32 = 8;
/// As many where blocks add up their sums, and where the last tiles are cut: 128 x 256 in pieces spilled, 128 x 128 does not.
const THROUGH_AND_MEET: u32 = 20;
const THROUGH_AND_CUT: u32 = 104;

/// Registers that are left for those that multiply.
fn multiplying(even: u32, groups: u32, copying: u32) -> u32 {
    (even * (groups + 1) - copying) / groups / 8 * 8
}

/// Registers that move from the warpgroup that copies to those that multiply, for the time of a
/// tile: so many a thread has then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Registers {
    pub(crate) copying: u32,
    pub(crate) multiplying: u32,
    /// Between tiles, in every thread.
    pub(crate) even: u32,
}

/// Which tiles' blocks are a cluster and copy together what they have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cluster {
    /// Every block copies for itself. Written `1`.
    Alone,
    /// Two tiles, one below the other: they have their columns in common. Written `2`.
    Below,
    /// Two tiles side by side: they have their rows in common. Written `beside`.
    Beside,
    /// So many tiles down and across, four or eight of them: those of a row have their rows in common, those of a
    /// column their columns. Written `2x4`.
    Tiles {
        /// Rows of tiles.
        down: u32,
        /// Columns of tiles.
        across: u32,
    },
    /// The blocks that share a tile's depth: they add their sums up in shared memory. Written `depth`.
    Depth,
}

impl Cluster {
    /// Those of four and eight tiles.
    pub const LARGER: [Cluster; 5] = [
        Cluster::Tiles { down: 4, across: 1 },
        Cluster::Tiles { down: 2, across: 2 },
        Cluster::Tiles { down: 1, across: 4 },
        Cluster::Tiles { down: 4, across: 2 },
        Cluster::Tiles { down: 2, across: 4 },
    ];

    /// How many blocks it has along the rows of tiles, and along their columns. Those that share a depth
    /// have neither in common.
    pub const fn sides(self) -> [u32; 2] {
        match self {
            Cluster::Alone | Cluster::Depth => [1, 1],
            Cluster::Below => [2, 1],
            Cluster::Beside => [1, 2],
            Cluster::Tiles { down, across } => [down, across],
        }
    }

    /// How many tiles its blocks have.
    pub const fn count(self) -> u32 {
        let [down, across] = self.sides();
        down * across
    }
}

impl fmt::Display for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Cluster::Alone => "1",
            Cluster::Below => "2",
            Cluster::Beside => "beside",
            Cluster::Depth => "depth",
            Cluster::Tiles { down, across } => return write!(f, "{down}x{across}"),
        })
    }
}

impl FromStr for Cluster {
    type Err = KernelError;

    fn from_str(text: &str) -> Result<Cluster, KernelError> {
        let all = [
            Cluster::Alone,
            Cluster::Below,
            Cluster::Beside,
            Cluster::Depth,
        ];
        let mut all = all.into_iter().chain(Cluster::LARGER);
        let found = all.find(|one| one.to_string() == text);
        found.ok_or_else(|| {
            KernelError::unfit(format!(
                "`{text}` is no cluster of tiles: 1, 2 (one below the other), beside (side by side), depth \
                 (those that share the depth), or four or eight tiles as 4x1, 2x2, 1x4, 4x2 or 2x4"
            ))
        })
    }
}

/// The shape of a kernel on warpgroups. Written `wgmma:128x256x64/4`: rows and
/// columns of a tile, the depth of a stage, stages. Behind it may follow
/// `/swapped` (the tile's rows are columns of the result), `/split=4` (four
/// blocks share the depth of a tile), `/cluster=2` (two blocks copy their columns
/// together), `/cluster=beside` (their rows), `/cluster=2x4` (eight blocks, two down and four across, both) or
/// `/cluster=depth` (blocks that share the depth add up their sums), `/tail` (tiles of the last wave in pieces of their depth), `/halves` (as many tiles in halves of their rows as the last wave leaves multiprocessors idle), `/pingpong` (two warpgroups have a tile each), and `*2` (two blocks fit on a multiprocessor).
///
/// ```
/// use heist_kernels::gemm::Tiling;
/// let tiling: Tiling = "wgmma:64x16x128/8/swapped/split=2".parse().unwrap();
/// assert_eq!(tiling.threads(), 256);
/// assert_eq!(tiling.to_string(), "wgmma:64x16x128/8/swapped/split=2");
/// assert!("wgmma:96x16x64/4".parse::<Tiling>().is_err());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tiling {
    /// Rows of a tile: 64 for each of one to three warpgroups that multiply, or twice 64 for two.
    pub rows: u32,
    /// Columns of a tile: a multiple of 8.
    pub cols: u32,
    /// The depth of a stage in elements of 16 bits, 64 or 128; half as many of 32 bits.
    pub depth: u32,
    /// Stages of the ring.
    pub stages: u32,
    /// Whether the tile's rows are columns of the result: for results of few
    /// rows, since a product has 64 rows and as few as 8 columns.
    pub swapped: bool,
    /// How many blocks share the depth of a tile.
    pub split: u32,
    /// Blocks that should fit on a multiprocessor.
    pub blocks: u32,
    /// Which tiles' blocks copy together.
    pub cluster: Cluster,
    /// Whether tiles of the last wave are cut in pieces of their depth, so that every multiprocessor has as much of them.
    pub tail: bool,
    /// Whether as many tiles are handed out in two halves of their rows as the last wave leaves multiprocessors idle: where others hold
    /// some, what is left over takes little more than half a wave.
    pub halves: bool,
    /// Whether two warpgroups that multiply have a tile each, in turns: one stores while the other multiplies.
    pub pingpong: bool,
}

impl Tiling {
    /// One block a tile and a multiprocessor.
    pub const fn new(rows: u32, cols: u32, depth: u32, stages: u32) -> Tiling {
        Tiling {
            rows,
            cols,
            depth,
            stages,
            swapped: false,
            split: 1,
            blocks: 1,
            cluster: Cluster::Alone,
            tail: false,
            halves: false,
            pingpong: false,
        }
    }

    /// The same with the operands swapped.
    #[must_use]
    pub const fn swapped(self) -> Tiling {
        Tiling {
            swapped: true,
            ..self
        }
    }

    /// The same with the depth in shares.
    #[must_use]
    pub const fn split(self, split: u32) -> Tiling {
        Tiling { split, ..self }
    }

    /// The same with several blocks on a multiprocessor.
    #[must_use]
    pub const fn blocks(self, blocks: u32) -> Tiling {
        Tiling { blocks, ..self }
    }

    /// The same in clusters.
    #[must_use]
    pub const fn cluster(self, cluster: Cluster) -> Tiling {
        Tiling { cluster, ..self }
    }

    /// The same with the tiles of the last wave in pieces of their depth.
    #[must_use]
    pub const fn tail(self) -> Tiling {
        Tiling { tail: true, ..self }
    }

    /// The same with as many tiles in halves as the last wave leaves multiprocessors idle.
    #[must_use]
    pub const fn halves(self) -> Tiling {
        Tiling {
            halves: true,
            ..self
        }
    }

    /// The same with a tile for each of two warpgroups.
    #[must_use]
    pub const fn pingpong(self) -> Tiling {
        Tiling {
            pingpong: true,
            ..self
        }
    }

    /// Warpgroups that multiply.
    pub const fn groups(&self) -> u32 {
        match self.rows {
            _ if self.pingpong => 2,
            0..=GROUP_ROWS => 1,
            THREE_GROUPS => 3,
            _ => 2,
        }
    }

    /// Of them those that have a tile together.
    pub(crate) const fn sharing(&self) -> u32 {
        if self.pingpong { 1 } else { self.groups() }
    }

    /// Threads of a block: the producer warpgroup and the consumers.
    pub const fn threads(&self) -> u32 {
        (1 + self.groups()) * 128
    }

    /// Registers that a thread starts with.
    pub(crate) fn registers(&self) -> u32 {
        (65536 / (self.threads() * self.blocks) / 8 * 8).min(255)
    }

    /// The registers that could move in such a block: those of a warpgroup that copies and of two
    /// or three that multiply.
    pub(crate) fn movable(&self) -> Option<Registers> {
        let (groups, even) = (self.groups(), self.registers());
        // Where the last tiles are cut, more is to be known of each.
        let copying = match groups {
            _ if self.tail => 80,
            3 => 32,
            _ => 40,
        };
        (groups > 1 && self.blocks == 1).then_some(Registers {
            copying,
            multiplying: multiplying(even, groups, copying),
            even,
        })
    }

    /// The same where the warpgroup that copies keeps this many at least.
    pub(crate) fn keeping(&self, moved: Registers, least: u32) -> Registers {
        let copying = moved.copying.max(least);
        Registers {
            copying,
            multiplying: multiplying(moved.even, self.groups(), copying),
            ..moved
        }
    }

    /// The registers that move, where the sums of a tile, and so many sets of partial sums of 64 rows, take more than
    /// a thread starts with.
    pub(crate) fn moved(&self, parts: u32) -> Option<Registers> {
        self.moved_beside(parts, 0)
    }

    /// The same where a thread takes so many `more` besides.
    pub(crate) fn moved_beside(&self, parts: u32, more: u32) -> Option<Registers> {
        let taken = self.sums() + parts * self.cols / 2 + BESIDES + more;
        self.movable().filter(|_| taken > self.registers())
    }

    /// Sets of partial sums, where blocks have scales: two if a thread can have registers for them. Then it adds one up
    /// while the tensor cores work on the other: tiles of 128 x 128 took 0.97 of the time. Where registers would move from tile to tile
    /// they took 1.02 to 1.18 times as long.
    pub(crate) fn parts(&self) -> u32 {
        let alone = self.rows / self.sharing() == GROUP_ROWS && self.depth == SPAN && !self.swapped;
        1 + u32::from(alone && self.sums() + self.cols + BESIDES <= self.most())
    }

    /// Whether a thread has registers for words that go through them.
    pub(crate) fn can_go_through(&self) -> bool {
        let (most, through) = match self.cluster {
            Cluster::Depth => (self.registers(), THROUGH_AND_MEET),
            _ if self.tail => (self.most(), THROUGH_AND_CUT),
            _ => (self.most(), THROUGH),
        };
        // One instruction has them all, beside the sums of 64 rows.
        self.sums() + BESIDES + through <= most && self.cols / 2 + 30 <= self.registers()
    }

    /// Whether a thread of groups' tiles has registers to leave one half done, or beside a policy that is interpreted, where factors are `read`,
    /// warpgroups have a loop each or are in `one_loop`, and the warpgroup that copies keeps this many at `least`. A single product's are told in `wgmma`.
    pub(crate) fn can_be_let_go(&self, read: bool, one_loop: bool, more: u32, least: u32) -> bool {
        let if_ = |holds: bool, registers: u32| if holds { registers } else { 0 };
        // Where a thread has 64 rows, one thing that is read fits what is left, unless three warpgroups share the registers.
        let (twice, three) = (!self.keeps(), self.groups() == 3);
        let reading = read && (twice || three);
        let taken = LET_GO
            + more
            + if_(reading, LET_GO_WITH_C)
            + if_(one_loop && (twice || reading), LET_GO_IN_ONE_LOOP);
        self.sums() + taken <= self.most_beside(least)
    }

    /// Registers that a thread that multiplies can have where one that copies keeps this many at least.
    pub(crate) fn most_beside(&self, least: u32) -> u32 {
        let moved = self.movable().map(|moved| self.keeping(moved, least));
        moved.map_or(self.registers(), |moved| moved.multiplying)
    }

    /// Registers that a thread that multiplies can have.
    fn most(&self) -> u32 {
        self.most_beside(0)
    }

    /// Rows of [`SPAN`] elements that a stage has of one operand.
    pub(crate) fn stage_rows(&self, outer: u32, major: Major) -> u32 {
        match major {
            Major::Depth => outer * self.depth / SPAN,
            Major::Outer => outer.div_ceil(SPAN) * self.depth,
        }
    }

    /// Bytes of the ring.
    pub(crate) fn ring_bytes(&self, majors: [Major; 2]) -> u32 {
        let rows = self.stage_rows(self.rows, majors[0]) + self.stage_rows(self.cols, majors[1]);
        // The barriers of a stage are 16 bytes.
        self.stages * (rows * SPAN * 2 + 16)
    }

    /// Whether scales of blocks come with their stage ([`CopiedScales`](super::scales::CopiedScales)): where a thread has few of them.
    pub(crate) fn copies_scales(&self) -> bool {
        self.depth == SPAN && !self.swapped
    }

    /// Rows of [`SPAN`] elements that each stage has for its scales then: a multiple of 8, so that operands stay aligned.
    pub(crate) fn scale_rows(&self) -> u32 {
        (scales::floats(self.rows, self.cols) * 4).next_multiple_of(1024) / 128
    }

    /// Bytes that these take in all stages.
    pub(crate) fn scale_bytes(&self, blocks: bool) -> u32 {
        match blocks && self.copies_scales() {
            true => self.stages * self.scale_rows() * 128,
            false => 0,
        }
    }

    /// The blocks of a cluster along columns and rows of tiles, and along shares of the depth.
    pub(crate) fn cluster_shape(&self) -> Dim3 {
        let [below, beside] = self.cluster.sides();
        match self.cluster {
            Cluster::Depth => Dim3::new(1, 1, self.split),
            _ => Dim3::new(beside, below, 1),
        }
    }

    /// Columns that each block of a cluster that shares the depth adds up, the last one of them maybe fewer: a multiple
    /// of 8. Of few columns not all blocks have some ([`Tiling::adders`]).
    pub(crate) fn added_cols(&self) -> u32 {
        (self.cols / 8).div_ceil(self.split) * 8
    }

    /// Whether a block keeps its own sums of the columns that it adds up in registers: those of one 64 rows a thread.
    pub(crate) fn keeps(&self) -> bool {
        self.rows / self.sharing() == GROUP_ROWS
    }

    /// Blocks of the cluster that add up.
    pub(crate) fn adders(&self) -> u32 {
        self.cols.div_ceil(self.added_cols())
    }

    /// Bytes in which the blocks that share a depth send each other their sums.
    pub(crate) fn sent_bytes(&self) -> u32 {
        match self.cluster {
            Cluster::Depth => {
                let sent = self.split - u32::from(self.keeps());
                sent * self.rows * self.added_cols() * 4
            }
            _ => 0,
        }
    }

    /// Shared memory that a block may have.
    pub(crate) fn room(&self, arch: Arch) -> u32 {
        let limit = arch.limits().shared_opt_in;
        // A kilobyte of each block is the driver's.
        ((limit + 1024) / self.blocks - 1024).min(limit)
    }

    /// Fails where the parts do not fit together.
    ///
    /// # Errors
    /// What does not.
    pub fn check(&self) -> Result<(), KernelError> {
        let wrong = |why: &str| Err(KernelError::unfit(format!("tile shape {self}: {why}")));
        if !matches!(self.rows, 64 | 128 | 192 | 256) {
            return wrong("a tile has 64, 128, 192 or 256 rows");
        }
        if !self.cols.is_multiple_of(8) || !(8..=256).contains(&self.cols) {
            return wrong("a tile has 8 to 256 columns, a multiple of 8");
        }
        if !matches!(self.depth, 64 | 128) {
            return wrong("a stage is 64 or 128 deep");
        }
        if !(2..=16).contains(&self.stages) {
            return wrong("a ring has 2 to 16 stages");
        }
        if !(1..=256).contains(&self.split) {
            return wrong("1 to 256 blocks share the depth");
        }
        if !(1..=4).contains(&self.blocks) {
            return wrong("1 to 4 blocks fit on a multiprocessor");
        }
        let [down, _] = self.cluster.sides();
        if !self.cols.is_multiple_of(8 * down) {
            return wrong(
                "the blocks of a cluster each copy a multiple of 8 of the columns they have in common",
            );
        }
        if self.cluster == Cluster::Depth {
            if !(2..=8).contains(&self.split) {
                return wrong("2 to 8 blocks of a cluster share the depth");
            }
            if self.sums() + BESIDES > self.registers() {
                return wrong(
                    "blocks of a cluster that share the depth have registers for their sums",
                );
            }
        }
        if self.tail
            && (self.split > 1
                || self.cluster != Cluster::Alone
                || self.blocks > 1
                || !self.keeps())
        {
            return wrong(
                "tiles of the last wave are cut where a block is alone on a multiprocessor, in no cluster, and a warpgroup has 64 rows",
            );
        }
        if self.tail && self.groups() == 1 && self.cols > 192 {
            return wrong("one warpgroup has registers for pieces of up to 192 columns");
        }
        if self.halves
            && (!matches!(self.rows, 128 | 256)
                || self.split > 1
                || self.cluster != Cluster::Alone
                || self.blocks > 1
                || self.tail
                || self.swapped)
        {
            return wrong(
                "tiles of 128 or 256 rows of the result have halves, where a block is alone on a multiprocessor and in no cluster",
            );
        }
        if self.pingpong
            && (self.rows > 128
                || self.split > 1
                || self.tail
                || self.blocks > 1
                || self.cluster.count() > 2)
        {
            return wrong(
                "two warpgroups have a tile each where it has 64 or 128 rows, its whole depth, and a multiprocessor of its own",
            );
        }
        // ptxas refuses an instruction whose operands do not fit what a thread starts with.
        if self.cols / 2 + 26 > self.registers() {
            return wrong(
                "the sums of so many columns do not fit the registers of so many threads",
            );
        }
        if self.sums() + BESIDES > self.most() {
            return wrong("the sums of so many rows, columns and blocks do not fit the registers");
        }
        Ok(())
    }

    /// Sums that a thread has.
    pub(crate) fn sums(&self) -> u32 {
        self.rows * self.cols / (self.sharing() * 128)
    }

    /// Whether a thread has registers for two levels of accumulators: all of them, and those of 64
    /// rows once more. Where each column is `scaled`, it also holds a factor and an address for
    /// each: more than 32 columns spilled, or were slower.
    pub(crate) fn holds_levels(&self, scaled: bool) -> bool {
        let few = !(scaled && self.swapped) || self.cols <= 32;
        // Scales that are loaded take registers of their own, so that those that could move do not help.
        let (most, besides) = match scaled {
            false => (self.most(), BESIDES),
            // Those that come with their stages take fewer.
            true if self.copies_scales() => (self.most(), COPIED),
            true => (self.registers(), BESIDES),
        };
        few && self.sums() + self.cols / 2 + besides <= most
    }
}

impl fmt::Display for Tiling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Tiling {
            rows,
            cols,
            depth,
            stages,
            ..
        } = self;
        write!(f, "wgmma:{rows}x{cols}x{depth}/{stages}")?;
        if self.swapped {
            f.write_str("/swapped")?;
        }
        if self.split > 1 {
            write!(f, "/split={}", self.split)?;
        }
        if self.cluster != Cluster::Alone {
            write!(f, "/cluster={}", self.cluster)?;
        }
        if self.tail {
            f.write_str("/tail")?;
        }
        if self.halves {
            f.write_str("/halves")?;
        }
        if self.pingpong {
            f.write_str("/pingpong")?;
        }
        if self.blocks > 1 {
            write!(f, "*{}", self.blocks)?;
        }
        Ok(())
    }
}

impl FromStr for Tiling {
    type Err = KernelError;

    fn from_str(text: &str) -> Result<Tiling, KernelError> {
        let read = || {
            let rest = text.strip_prefix("wgmma:")?;
            let (rest, blocks) = rest.split_once('*').unwrap_or((rest, "1"));
            let mut parts = rest.split('/');
            let shape: Option<Vec<u32>> =
                parts.next()?.split('x').map(|n| n.parse().ok()).collect();
            let [rows, cols, depth] = <[u32; 3]>::try_from(shape?).ok()?;
            let stages = parts.next()?.parse().ok()?;
            let mut tiling = Tiling::new(rows, cols, depth, stages).blocks(blocks.parse().ok()?);
            for part in parts {
                match part.split_once('=') {
                    None if part == "swapped" => tiling.swapped = true,
                    None if part == "tail" => tiling.tail = true,
                    None if part == "halves" => tiling.halves = true,
                    None if part == "pingpong" => tiling.pingpong = true,
                    Some(("split", number)) => tiling.split = number.parse().ok()?,
                    Some(("cluster", word)) => tiling.cluster = word.parse().ok()?,
                    _ => return None,
                }
            }
            Some(tiling)
        };
        let tiling = read().ok_or_else(|| {
            KernelError::unfit(format!(
                "`{text}` is no tile shape on warpgroups: write one like wgmma:128x256x64/4, \
                 behind it /swapped, /split=4, /cluster=2, /cluster=beside, /cluster=2x4, /cluster=depth, /tail, /halves, /pingpong or *2"
            ))
        })?;
        tiling.check()?;
        Ok(tiling)
    }
}
