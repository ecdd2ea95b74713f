//! The tiles of a kernel on warpgroups, and what a block has for them.

use crate::KernelError;
use crate::attention::panels::{PANEL, Panels};
use crate::attention::score::Scoring;
use crate::attention::softmax::MOST_KEYS;
use crate::attention::{Layout, MaskKind, Output, Weights};
use crate::family::Target;
use heist_sched::{Policy, Schedule};
use std::fmt;
use std::ops::Range;

/// Query rows of a warpgroup.
pub(super) const GROUP_ROWS: u32 = 64;
/// Registers that ptxas wants for an instruction besides those of its sums.
const BESIDE_SUMS: u32 = 30;
/// Blocks of keys at most, a power of two, between two looks at the bell: about 13 us on an H200.
const LONGEST_PIECE: u32 = 8;

/// What a kernel on warpgroups is built for, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WarpgroupShape {
    /// Elements of a head of queries and keys: a multiple of 8 up to 256.
    pub head_dim: u32,
    /// Elements of a head of values and results: a multiple of 8, at most as many.
    pub value_dim: u32,
    /// Warpgroups with 64 query rows each: 1, 2 or 3.
    pub groups: u32,
    /// The blocks of a cluster that have the same 64 query rows, and each a part of the keys: for fewer tiles than
    /// blocks that run at a time. A cluster has one tile.
    pub sharing: Sharing,
    /// Keys of a block: a multiple of 16 up to 256.
    pub keys: u32,
    /// Blocks of keys, and of values, that are on their way or in use.
    pub stages: u32,
    /// Tiles of one head that a block does one after the other: a long one and a
    /// short one in turns, where a mask makes them so. What the next one needs is
    /// copied while the one before is finished.
    pub strip: u32,
    /// A block does several tiles, one after the other, and the next one's copies do
    /// not wait for this one: see [`Stay`].
    pub stay: Option<Stay>,
    /// A tile can be left half done between blocks of keys, for a schedule that pauses.
    pub pausing: bool,
    /// The policy is interpreted beside the tiles, by the warpgroup that copies: it keeps registers for that.
    pub interprets: bool,
    /// Two warpgroups take turns to ask for products, so that the softmax of one
    /// falls into the products of the other.
    pub turns: bool,
    /// Levels of the softmax are raised where the sums of a block's weights show that they must be, and its highest scores are not
    /// looked for: takes registers for another block's weights in halves.
    pub lazy: bool,
    /// Which keys a query sees.
    pub mask: MaskKind,
    /// Whether sequences have lengths of their own and lie one after the other.
    pub ragged: bool,
    /// Their tiles are listed by a launch before, those with the most keys first, and so many heads
    /// at a time go through the list: a divisor of the query heads. Their keys stay in L2.
    pub listed: Option<u32>,
    /// Whether there are keys from the first on that every query sees: finding their blocks
    /// takes registers of the thread that copies.
    pub prefix: bool,
    /// The blocks of keys that a tile sees are listed by a launch before: what a mask of blocks or documents hide is left out.
    pub seen: bool,
    /// How heads and rows lie: maps have the axis with the larger stride last.
    pub layout: Layout,
    /// How weights enter the product with the values.
    pub weights: Weights,
    /// What results are made of.
    pub output: Output,
}

/// How many blocks, a cluster, share the keys of a tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sharing {
    /// A tile has a block to itself.
    None,
    /// Two blocks share.
    Two,
    /// Four do.
    Four,
    /// Eight do: every GPU with clusters runs as many.
    Eight,
}

impl Sharing {
    /// All of them, the fewest blocks first.
    pub const ALL: [Sharing; 4] = [Sharing::None, Sharing::Two, Sharing::Four, Sharing::Eight];

    /// How many blocks.
    pub fn blocks(self) -> u32 {
        1 << self as u32
    }

    /// Whether there is more than one.
    pub(super) fn is_some(self) -> bool {
        self != Sharing::None
    }
}

/// How blocks that stay take tiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stay {
    /// The most blocks of a launch: as many as run at a time, or more, where each has one tile and the
    /// next block begins as it ends.
    pub blocks: u32,
    /// How many of them a multiprocessor holds: while one waits for scores or stores its
    /// results, the others multiply.
    pub resident: u32,
    /// Whether the next tile's queries come while this one is worked on. Keys and values do in any case.
    pub ahead: bool,
}

impl WarpgroupShape {
    /// Blocks of keys between two looks at the bell: no fewer than stages that the thread that copies is ahead, and two.
    pub(super) fn piece(&self) -> i32 {
        (self.stages + 2).next_power_of_two() as i32
    }

    /// The same for a scheduler to hand out tiles to. Blocks of one warpgroup, which are for blocks
    /// that stay, become blocks of two, and so do those of four, which share keys.
    #[must_use]
    pub fn scheduled(self) -> WarpgroupShape {
        let (groups, keys) = match self.groups {
            1 | 4 => (2, 128),
            groups => (groups, self.keys),
        };
        WarpgroupShape {
            groups,
            keys,
            sharing: Sharing::None,
            stay: None,
            stages: 2,
            ..self
        }
    }

    /// The same with a block for each tile, so that others get a multiprocessor after every tile.
    #[must_use]
    pub fn a_block_each(self) -> WarpgroupShape {
        let stay = self.stay.map(|stay| Stay {
            blocks: u32::MAX,
            ahead: false,
            ..stay
        });
        WarpgroupShape {
            stay,
            strip: 1,
            ..self
        }
    }

    /// The same for a schedule that pauses: tile by tile.
    #[must_use]
    pub fn paused(self) -> WarpgroupShape {
        let shape = WarpgroupShape {
            strip: 1,
            pausing: true,
            ..self
        };
        shape.with_less_room()
    }

    /// The same for a schedule that is given: it hands out tiles, may have them left half done, and may be interpreted.
    #[must_use]
    pub fn under(self, schedule: &Schedule, scoring: &Scoring) -> WarpgroupShape {
        let shape = self.scheduled();
        let shape = match schedule.pausing {
            true => shape.paused(),
            false => shape,
        };
        if schedule.policy.loaded().is_none() {
            return shape;
        }
        // An interpreter leaves no registers for the next tile of a strip, nor for a line of listed blocks, which a mask of blocks alone
        // can't do without, nor for more keys whose scores are changed, whose weights have two terms, or of which a window hides some.
        let shape = WarpgroupShape {
            strip: 1,
            interprets: true,
            seen: shape.seen && scoring.blocks.is_some(),
            keys: match scoring.mods.is_empty()
                && shape.weights == Weights::Rounded
                && shape.mask != MaskKind::Window
            {
                true => shape.keys,
                false => shape.keys.min(64),
            },
            ..shape
        };
        shape.with_less_room()
    }

    /// Where the thread that copies leaves warpgroups fewer registers, three of them have fewer keys a block for weights in two terms, and two whose
    /// results are wide.
    fn with_less_room(self) -> WarpgroupShape {
        let most = match (self.weights, self.groups) {
            (_, 3) if self.interprets => 80,
            (Weights::Split, 3) => 80,
            (Weights::Split, _) if self.interprets && self.value_dim > 192 => 48,
            _ => self.keys,
        };
        WarpgroupShape {
            keys: self.keys.min(most),
            ..self
        }
    }

    /// 32-bit words that a tile's state takes: results, and a level and a sum for each row, as its
    /// threads have them.
    pub(super) fn state_words(&self) -> u32 {
        128 * self.groups * (self.value_dim / 2 + 4)
    }

    /// Stages of queries: the next tile's come while this one is worked on.
    pub(super) fn query_stages(&self) -> u32 {
        match self.stay {
            Some(stay) => 1 + u32::from(stay.ahead),
            None => self.strip.min(2),
        }
    }

    /// Bytes of shared memory that the stages take, and what the blocks of a cluster send.
    pub(in crate::attention) fn stage_bytes(&self) -> u32 {
        let (keys, values) = (self.cut().count(), self.value_cut().count());
        let queries = self.query_stages() * self.rows() * keys;
        let stages = (queries + self.stages * self.keys * (keys + values)) * PANEL * 2;
        let sent = (self.sharing.blocks() - 1) * self.sent_words();
        stages + sent * 128 * 4
    }

    /// Whether a multiprocessor has shared memory for as many blocks as it is to hold. A kilobyte of each block is the
    /// driver's, and barriers and alignment take a little.
    pub fn fits(&self, target: Target) -> bool {
        let room = (target.arch.limits().shared_opt_in + 1024) / self.resident() - 1024 - 2048;
        self.stage_bytes() <= room
    }

    /// Words that a thread sends to each other block of its cluster: its rows' levels and sums, and its
    /// results of that block's columns.
    pub(super) fn sent_words(&self) -> u32 {
        self.value_dim / (2 * self.sharing.blocks()) + 4
    }

    /// Whether a launch may begin before the one before it has ended: nothing is read by loads that
    /// must not see other kernels' writes.
    pub(super) fn overlaps(&self, scoring: &Scoring) -> bool {
        !self.ragged && !self.seen && scoring.is_plain()
    }

    /// Fails where there is no such kernel, with the reason.
    pub(in crate::attention) fn check(&self) -> Result<(), KernelError> {
        let WarpgroupShape {
            groups,
            keys,
            stages,
            ..
        } = *self;
        if !(1..=3).contains(&groups) {
            return Err(KernelError::unfit(format!(
                "{groups} warpgroups: 1 to 3 share the registers of a multiprocessor with one that copies"
            )));
        }
        if !matches!((groups, self.resident()), (1, 2..=4) | (2..=3, 1)) {
            return Err(KernelError::unfit(format!(
                "{} blocks of {groups} warpgroups on a multiprocessor: 2 to 4 of one, or one of more",
                self.resident()
            )));
        }
        if !keys.is_multiple_of(16) || !(16..=256).contains(&keys) {
            return Err(KernelError::unfit(format!(
                "blocks of {keys} keys: a multiple of 16 up to 256 is wanted"
            )));
        }
        self.check_sharing()?;
        if !(2..=16).contains(&stages) {
            return Err(KernelError::unfit(format!(
                "{stages} stages: 2 to 16 can be had"
            )));
        }
        if self.lazy && keys > MOST_KEYS {
            return Err(KernelError::unfit(format!(
                "blocks of {keys} keys whose sums raise the levels: up to {MOST_KEYS}"
            )));
        }
        if self.strip == 0 {
            return Err(KernelError::unfit("a strip of no tiles: one at least"));
        }
        if self.stay.is_some_and(|stay| stay.blocks == 0) {
            return Err(KernelError::unfit("no blocks that stay: one at least"));
        }
        if self.listed.is_some() && !(self.ragged && self.strip == 1) {
            return Err(KernelError::unfit(
                "a list of tiles is for packed sequences, tile by tile",
            ));
        }
        if self.pausing && (self.strip > 1 || self.stay.is_some()) {
            return Err(KernelError::unfit(
                "tiles that can be left half done are taken one by one: no strips, no blocks that stay",
            ));
        }
        if self.pausing && stages + 2 > LONGEST_PIECE {
            return Err(KernelError::unfit(format!(
                "{stages} stages of tiles that can be left half done: {} at most, so that the thread \
                 that copies is never a piece of {LONGEST_PIECE} blocks ahead",
                LONGEST_PIECE - 2
            )));
        }
        if self.turns && groups != 2 {
            return Err(KernelError::unfit(format!(
                "{groups} warpgroups in turns: two can take turns"
            )));
        }
        Ok(())
    }

    fn check_sharing(&self) -> Result<(), KernelError> {
        if !self.sharing.is_some() {
            return Ok(());
        }
        let one = self.groups == 1 && self.stay.is_some_and(|stay| !stay.ahead) && self.strip == 1;
        let alike = !(self.ragged || self.pausing || self.turns || self.seen);
        let blocks = self.sharing.blocks();
        if !(one && alike && self.value_dim.is_multiple_of(8 * blocks)) {
            return Err(KernelError::unfit(format!(
                "{blocks} blocks that share keys have one warpgroup and one tile, values of a multiple of {} elements, \
                 and sequences that are alike: no strips, no turns, no pauses, no listed blocks",
                8 * blocks
            )));
        }
        Ok(())
    }

    /// Query rows of a tile.
    pub(in crate::attention) fn rows(&self) -> u32 {
        GROUP_ROWS * self.groups
    }

    /// The warpgroups, and one more for the warp that copies: registers change
    /// hands between warpgroups.
    pub(super) fn threads(&self) -> u32 {
        128 * (self.groups + 1)
    }

    /// Blocks that a multiprocessor holds.
    pub fn resident(&self) -> u32 {
        self.stay.map_or(1, |stay| stay.resident)
    }

    /// Registers of a thread.
    pub(in crate::attention) fn registers(&self) -> Registers {
        let even = 65536 / (self.threads() * self.resident()) / 8 * 8;
        // Where a window's blocks begin is found for each tile of a strip.
        let finds = self.prefix || self.seen || self.strip > 1 && self.mask == MaskKind::Window;
        let copying = match self.groups {
            // As many as leave the others what 40 would.
            3 if self.pausing => 56,
            // With 48 an interpreter and what lives through it are spilled.
            _ if self.interprets || self.pausing && self.seen => 56,
            3 => 32,
            _ if self.pausing || finds => 40,
            _ => 24,
        };
        // The thread that copies leaves the others what it does not need.
        let multiplying = ((self.groups + 1) * even - copying) / self.groups / 8 * 8;
        Registers {
            even,
            multiplying,
            copying,
        }
    }

    /// The columns of the results that an instruction adds to: all, unless a thread begins with too few registers for
    /// their sums. Then some whole panels, and the rest.
    pub(super) fn products(&self) -> Vec<Range<u32>> {
        let all = self.value_dim;
        let first = match all / 2 + BESIDE_SUMS > self.registers().even {
            true => 2 * PANEL,
            false => all,
        };
        let parts = [0..first, first..all];
        parts.into_iter().filter(|part| !part.is_empty()).collect()
    }

    /// How a head's elements are cut, of queries and keys.
    pub(super) fn cut(&self) -> Panels {
        Panels {
            head_dim: self.head_dim,
        }
    }

    /// The same of values.
    pub(super) fn value_cut(&self) -> Panels {
        Panels {
            head_dim: self.value_dim,
        }
    }
}

impl fmt::Display for WarpgroupShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (rows, keys) = (self.rows(), self.keys);
        write!(f, "wgmma {rows}x{keys} {} stages", self.stages)?;
        if self.sharing.is_some() {
            write!(f, ", keys shared by {} blocks", self.sharing.blocks())?;
        }
        if self.strip > 1 {
            write!(f, " strips of {}", self.strip)?;
        }
        if let Some(heads) = self.listed {
            write!(f, " listed for {heads} heads")?;
        }
        if let Some(stay) = self.stay {
            f.write_str(" staying")?;
            if stay.resident > 1 {
                write!(f, ", {} blocks a multiprocessor", stay.resident)?;
            }
            if !stay.ahead && !self.sharing.is_some() {
                f.write_str(", queries in one stage")?;
            }
        }
        if self.pausing {
            f.write_str(" pausing")?;
        }
        if self.seen {
            f.write_str(" over listed blocks")?;
        }
        if self.lazy {
            f.write_str(" levels by sums")?;
        }
        f.write_str(if self.turns { " in turns" } else { "" })
    }
}

/// Registers of a thread.
#[derive(Clone, Copy, Debug)]
pub(in crate::attention) struct Registers {
    /// Between tiles.
    pub(super) even: u32,
    /// Of those that multiply.
    pub(in crate::attention) multiplying: u32,
    /// Of those that copy.
    pub(super) copying: u32,
}
