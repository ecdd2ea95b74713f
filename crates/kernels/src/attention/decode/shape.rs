//! The tiles of a decoding kernel, and what a block has for them.

use super::merge::{round_of, share_pairs};
use crate::KernelError;
use crate::attention::score::Scoring;
use crate::attention::{Cache, Layout, MaskKind, Output, Weights};
use heist_builder::{TileLayout, TileSpec, f16};
use std::fmt;
use std::ops::{Add, Div, Mul};

/// Halves of a row of a stage: 128 bytes, the widest swizzle of the copy engine.
pub(super) const PANEL: u32 = 64;
/// Where the keys and values of a sequence are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Storage {
    /// Sequences of the same length, each an index of the outermost axis.
    Dense(Layout),
    /// Sequences one after the other.
    Packed,
    /// In pages of this many tokens, which a table names.
    Paged(u32),
}

/// What a decoding kernel is built for, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DecodeShape {
    /// Elements of a head: a multiple of 16 up to 256, of a latent cache up to 576.
    pub head_dim: u32,
    /// Elements of a head of values and results: as many, or of a latent cache a multiple of 128 up to 512.
    pub value_dim: u32,
    /// Warps with rows of their own: 1, 2 or 4. The others share their rows and have
    /// other keys.
    pub down: u32,
    /// Blocks of 16 rows that a warp has: 1, or 2 over keys of 8 bits, which it then turns into halves once for both. Its registers
    /// are those that the warps beside the one that copies give away.
    pub row_blocks: u32,
    /// Warps that multiply: 4 or 8. A latent cache has 8, and takes no notice of this.
    pub warps: u32,
    /// Key heads of a tile, which lie next to each other in memory: 1, or as many as `down`. A warp
    /// has rows of one of them.
    pub heads: u32,
    /// Whether a row of 128 bytes of a stage has two keys: where heads have 64 bytes, and the keys
    /// of a head, an even number, are one after the other in memory.
    pub twins: bool,
    /// Keys of a stage: a multiple of 16 for each warp that shares rows.
    pub keys: u32,
    /// Stages of keys and values on their way or in use.
    pub stages: u32,
    /// Whether no sequence has more than one query: no row is divided by the heads of a group to find its query.
    pub one_query: bool,
    /// Rounds in which tiles are numbered: one, in which all tiles of a sequence follow each other, or as many as a key head of the longest sequence has
    /// tiles, so that the first tiles of all sequences come before all second ones, and blocks that have the first ones run beside blocks that read the
    /// same keys for the second ones.
    pub rounds: u32,
    /// Which keys a query sees.
    pub mask: MaskKind,
    /// Where keys and values are.
    pub storage: Storage,
    /// What they are stored as.
    pub cache: Cache,
    /// How weights enter the product with the values.
    pub weights: Weights,
    /// What results are made of.
    pub output: Output,
    /// How new keys and values come into the cache, where there are some.
    pub append: Option<Appended>,
}

/// How new keys and values come into the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Appended {
    /// Who puts them there.
    pub by: Appender,
    /// Whether they are divided by the factors of their head and rounded to the cache's type.
    pub rounds: bool,
}

/// Who puts new keys and values into the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Appender {
    /// The block that multiplies them: a key head of a sequence is one tile.
    Tile,
    /// A launch before: several tiles copy the same keys.
    Launch,
}

/// How the work is dealt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    /// Blocks of the launch.
    pub blocks: u32,
    /// The fewest key blocks of a share.
    pub least: u32,
    /// Who combines tiles that several blocks share.
    pub combine: Combine,
}

/// Who combines the parts of a tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Combine {
    /// Nobody: a share is whole tiles.
    Nobody,
    /// The block that writes a tile's last part: no second launch, but one
    /// multiprocessor reads all parts.
    LastBlock,
    /// A second launch, a block for each row.
    Launch,
}

impl DecodeShape {
    /// Fails where there is no such kernel, with the reason.
    pub(in crate::attention) fn check(&self) -> Result<(), KernelError> {
        let fail = |why: String| Err(KernelError::unfit(why));
        if !matches!(self.down, 1 | 2 | 4) {
            return fail(format!(
                "{} warps with 16 rows of their own: 1, 2 or 4 can be had",
                self.down
            ));
        }
        if !matches!(self.row_blocks, 1 | 2)
            || self.row_blocks == 2
                && (self.cache != Cache::E4m3 || self.warps != 8 || self.heads != 1)
        {
            return fail(format!(
                "{} blocks of 16 rows a warp: one can be had, or two with 8 warps over 8-bit keys of one head",
                self.row_blocks
            ));
        }
        if self.rounds == 0 {
            return fail("no rounds of tiles: one at the least is wanted".into());
        }
        if !matches!(self.warps, 4 | 8) {
            return fail(format!(
                "{} warps that multiply: 4 or 8 can be had",
                self.warps
            ));
        }
        if self.heads != 1 && (self.heads != self.down || !self.adjoin(self.heads)) {
            return fail(format!(
                "tiles of {} key heads with {} warps that have rows of their own: one head can be had, or one for each of these warps where heads adjoin and fill rows of 128 bytes",
                self.heads, self.down
            ));
        }
        if self.keys == 0 || !self.keys.is_multiple_of(16 * self.across()) || self.keys > 256 {
            return fail(format!(
                "stages of {} keys for {} warps: a multiple of 16 each is wanted, 256 in all at most",
                self.keys,
                self.across()
            ));
        }
        if self.twins && (!self.can_have_twins() || !self.cols().is_multiple_of(32)) {
            return fail(format!(
                "two keys a row with {} keys a warp: heads of 64 bytes whose keys are one after the other can have these, 32 keys at a time",
                self.cols()
            ));
        }
        if self.cache == Cache::Latent && (self.rows() != 64 || !matches!(self.keys, 32 | 64)) {
            return fail(format!(
                "tiles of {} rows and stages of {} keys over a latent cache: 64 rows and 32 or 64 keys can be had",
                self.rows(),
                self.keys
            ));
        }
        if !(2..=16).contains(&self.stages) {
            return fail(format!("{} stages: 2 to 16 can be had", self.stages));
        }
        if let Storage::Paged(size) = self.storage {
            let (small, large) = (size.min(self.keys), size.max(self.keys));
            if !size.is_multiple_of(8) || size == 0 || !large.is_multiple_of(small) {
                return fail(format!(
                    "pages of {size} tokens with stages of {} keys: one must be a multiple of the other, and a page of 8",
                    self.keys
                ));
            }
        }
        Ok(())
    }

    /// Warps that share rows, each with keys of its own.
    pub(super) fn across(&self) -> u32 {
        self.warps / self.down
    }

    /// Keys of a stage that are one warp's.
    pub(super) fn cols(&self) -> u32 {
        self.keys / self.across()
    }

    /// Rows of a tile: query heads of a group by queries, of each of its key heads.
    pub fn rows(&self) -> u32 {
        16 * self.row_blocks * self.down
    }

    /// Rows of a tile that are of one key head.
    pub fn head_rows(&self) -> u32 {
        self.rows() / self.heads
    }

    /// Whether tiles of two or four key heads, which adjoin, read more at a time of each row of memory: two up to 512 bytes of both, four 256 bytes of
    /// all. A warp's results of wider heads take more registers than each of eight warps has.
    pub(super) fn suits_heads(&self, heads: u32) -> bool {
        let suits = match heads {
            2 => self.head_chunks() <= 16 && self.head_dim <= 128,
            _ => heads * self.head_chunks() == 16,
        };
        suits && self.adjoin(heads)
    }

    /// Whether a warp keeps the queries of its first 16 rows in registers, and does not load them for each stage. Warps that have 32 of 64 rows, and
    /// 32 keys of a stage, have no registers for them: those kernels spilled, and were 3 to 5 in a hundred slower than without. Nor do those of 32 rows
    /// whose weights have two terms, nor those of 64 rows that have 16 of them and 64 keys of a stage (up to 36 bytes spilled; 3 to 5 in a hundred
    /// faster without), nor in pages those whose rows are several queries (up to 20 bytes).
    pub(super) fn keeps_queries(&self, scoring: &Scoring) -> bool {
        let more = self.down > 1 || self.weights == Weights::Split;
        let long = self.head_rows() > 32 && self.cols() > 32;
        let several = self.looks_up() && !self.one_query && self.head_rows() > 16;
        let full = (self.row_blocks > 1 && more || long || several) && self.head_dim > 64;
        self.head_dim <= 128 && !full && !self.crowded(scoring)
    }

    /// Whether weights in two terms, or changed scores, leave a warp of a tile of 64 rows too few registers for what it has else: 64 keys of a stage,
    /// and queries. With both, and with either, some of these kernels spilled.
    pub(super) fn crowded(&self, scoring: &Scoring) -> bool {
        let more = self.weights == Weights::Split || !scoring.mods.is_empty();
        self.row_blocks == 1 && self.head_rows() > 32 && more
    }

    /// Whether two keys fill a row of 128 bytes and lie there in memory.
    pub(super) fn can_have_twins(&self) -> bool {
        self.cache == Cache::E4m3
            && self.storage == Storage::Dense(Layout::Heads)
            && 2 * self.head_dim == self.panel()
    }

    /// Rows of a stage that the keys of each panel take.
    pub(super) fn key_rows(&self) -> u32 {
        self.keys / (1 + u32::from(self.twins))
    }

    /// Where 16 keys of a warp are, of which these are number `number`: rows from the warp's first, and
    /// pieces of 16 bytes from the first of the head. Of two keys a row, the even ones of 32 come before the odd ones.
    pub(super) fn place_of_keys(&self, number: u32) -> (u32, u32) {
        match self.twins {
            // Those of a warp are in one copy, or are copies as a whole.
            false if self.cols() < self.panel_rows() => (16 * number, 0),
            false => (self.row_of(16 * number), 0),
            true => (16 * (number / 2), number % 2 * self.head_chunks()),
        }
    }

    /// Whether one copy has all panels of its rows: where these are side by side in memory, and full.
    pub(super) fn joins_panels(&self) -> bool {
        let height = self.copied_rows();
        let (small, large) = (self.cols().min(height), self.cols().max(height));
        !matches!(self.storage, Storage::Dense(Layout::Heads))
            && self.cache != Cache::Latent
            && self.panels() > 1
            && (self.heads * self.head_dim).is_multiple_of(self.panel())
            && height.is_multiple_of(16)
            && large.is_multiple_of(small)
    }

    /// Rows of a stage from one panel of a key to the next.
    pub(super) fn panel_rows(&self) -> u32 {
        match self.joins_panels() {
            true => self.copied_rows(),
            false => self.key_rows(),
        }
    }

    /// The row of a stage that a key is in, in its first panel. With the panels of a copy come those of its next rows.
    pub(super) fn row_of<K>(&self, key: K) -> K
    where
        K: Copy + Add<Output = K> + Div<u32, Output = K> + Mul<u32, Output = K>,
    {
        let height = self.panel_rows();
        match height == self.key_rows() {
            true => key,
            false => key + key / height * ((self.panels() - 1) * height),
        }
    }

    /// Whether so many key heads lie next to each other in memory, and in rows of 128 bytes.
    pub(super) fn adjoin(&self, heads: u32) -> bool {
        let next = !matches!(self.storage, Storage::Dense(Layout::Heads));
        let (small, large) = (
            self.head_dim.min(self.panel()),
            self.head_dim.max(self.panel()),
        );
        next && self.cache != Cache::Latent
            && large.is_multiple_of(small)
            && (heads * self.head_dim).is_multiple_of(self.panel())
            && (self.cache == Cache::E4m3 || self.head_dim >= self.panel())
    }

    /// Warps of which one thread asks for copies: of pages one for keys and one for values, since a page is a copy, and one thread
    /// takes as long to ask for small ones as they take to come. Two for each where a stage has eight pages and more: 1 in a hundred faster with 16
    /// bits, and as much slower with 8, whose pages have half the bytes.
    pub(super) fn copiers(&self) -> u32 {
        match (self.storage, self.cache) {
            (_, Cache::Latent) => 1,
            (Storage::Paged(_), Cache::Same) if self.key_rows() / self.copied_rows() >= 8 => 4,
            (Storage::Paged(_), _) => 2,
            (Storage::Dense(_) | Storage::Packed, _) => 1,
        }
    }

    /// The warps that multiply, and those that ask for copies.
    pub(super) fn threads(&self) -> u32 {
        match self.cache {
            // Registers change hands between warpgroups.
            Cache::Latent => 32 * (self.consumers() + 4),
            _ if self.row_blocks == 2 => 32 * (self.warps + 4),
            _ => 32 * (self.warps + self.copiers()),
        }
    }

    /// Warps that multiply: of a latent cache two warpgroups.
    pub(super) fn consumers(&self) -> u32 {
        match self.cache {
            Cache::Latent => 8,
            _ => self.warps,
        }
    }

    /// Panels that a stage has: of keys, and of values, unless they are the same.
    pub(super) fn stage_panels(&self) -> u32 {
        match self.cache {
            Cache::Latent => self.panels(),
            _ => 2 * self.panels(),
        }
    }

    /// The first panel of the values in a stage.
    pub(super) fn value_panel(&self) -> u32 {
        self.stage_panels() - self.panels()
    }

    /// Panels of the elements of a tile's key heads. The last may be part empty: copies fill it
    /// with zeros, and products leave it out.
    pub(super) fn panels(&self) -> u32 {
        (self.heads * self.head_dim).div_ceil(self.panel())
    }

    /// Panels that have elements of one head.
    pub(super) fn head_panels(&self) -> u32 {
        self.head_dim.div_ceil(self.panel())
    }

    /// Elements of a panel: 128 bytes.
    pub(super) fn panel(&self) -> u32 {
        match self.cache {
            Cache::Same | Cache::Latent => PANEL,
            Cache::E4m3 => 2 * PANEL,
        }
    }

    /// Panels of the weights that two warpgroups give each other over a latent cache.
    pub(super) fn weight_panels(&self) -> u32 {
        2 * self.keys / PANEL
    }

    /// Steps of 16 elements that a panel has.
    pub(super) fn steps(&self, panel: u32) -> u32 {
        (self.head_dim - panel * PANEL).min(PANEL) / 16
    }

    /// Rows of one copy: a stage's, or a page's where that is less.
    pub(super) fn copied_rows(&self) -> u32 {
        match self.storage {
            Storage::Paged(size) => size.min(self.keys),
            _ => self.key_rows(),
        }
    }

    /// A stage: the panels of the keys one below the other, of all of them or of each copy, then those of the
    /// values.
    pub(super) fn stage(&self) -> Spec {
        let rows = self.stage_panels() * self.key_rows();
        TileSpec::new("kv", rows, PANEL, TileLayout::Swizzled)
    }

    /// Bytes of a stage.
    pub fn stage_bytes(&self) -> u32 {
        self.stage_panels() * self.key_rows() * PANEL * 2
    }

    /// Elements between rows of queries in shared memory: no two lanes of a load
    /// meet in a bank.
    pub(super) fn query_layout(&self) -> TileLayout {
        TileLayout::Padded(if (self.head_dim / 8).is_multiple_of(2) {
            8
        } else {
            0
        })
    }

    /// Bytes of shared memory besides the stages, with a little room for barriers and
    /// for the stages' alignment.
    pub(in crate::attention) fn other_bytes(&self) -> u32 {
        if self.cache == Cache::Latent {
            // Queries in panels, the weights of both warpgroups, levels and sums.
            return 2 * PANEL * self.rows() * (self.panels() + self.weight_panels()) + 2048;
        }
        let queries = 2 * self.rows() * (self.head_dim + 8);
        let merged = match self.merges_in_stage() {
            true => 0,
            false => self.merge_bytes(1),
        };
        queries + merged + 2048
    }

    /// Bytes in which warps with the same rows bring together what they have, in so many rounds.
    fn merge_bytes(&self, rounds: u32) -> u32 {
        let across = self.across();
        let shares = round_of(across, rounds, 0).len() as u32 * (across - 1);
        let columns = 16 * share_pairs(self.head_dim / 16, across);
        4 * self.rows() * (shares * columns + 8 * across)
    }

    /// In how many rounds they do so: in as few as a stage has room for.
    pub(super) fn merge_rounds(&self) -> u32 {
        let two = self.cache != Cache::Latent
            && self.across() > 1
            && self.merge_bytes(1) > self.stage_bytes()
            && self.merge_bytes(2) <= self.stage_bytes();
        1 + u32::from(two)
    }

    /// Whether they do so in a stage, which is no key block then: a block with less memory leaves room for another, or for a stage.
    pub(super) fn merges_in_stage(&self) -> bool {
        self.cache != Cache::Latent
            && self.across() > 1
            && self.merge_bytes(self.merge_rounds()) <= self.stage_bytes()
    }

    /// Bytes of shared memory, about: no less than what a block has.
    pub fn shared_bytes(&self) -> u32 {
        self.stages * self.stage_bytes() + self.other_bytes()
    }

    /// Whether tiles put new keys and values into the cache.
    pub(super) fn appends(&self) -> bool {
        self.append
            .is_some_and(|append| append.by == Appender::Tile)
    }

    /// Whether a launch may begin before the one before it has ended: nothing is read by loads that
    /// must not see other kernels' writes. Of packed and paged sequences, whose lengths are read first, those alone whose products take as long as their
    /// copies gain by it (1 in a hundred); others lose as much.
    pub(super) fn overlaps(&self, scoring: &Scoring) -> bool {
        let gains = !self.ragged() || self.row_blocks > 1;
        gains && self.append.is_none() && scoring.is_plain()
    }

    /// Pieces of 16 bytes that a row of keys has, of all heads of a tile.
    pub(super) fn row_chunks(&self) -> u32 {
        self.heads * self.head_chunks()
    }

    /// The same of one head.
    pub(super) fn head_chunks(&self) -> u32 {
        self.head_dim / (self.panel() / 8)
    }

    /// Whether sequences have lengths of their own.
    pub(super) fn ragged(&self) -> bool {
        !matches!(self.storage, Storage::Dense(_))
    }
}

impl fmt::Display for DecodeShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (rows, keys, stages) = (self.rows(), self.keys, self.stages);
        write!(f, "decode {rows}x{keys} {stages} stages")?;
        if self.heads > 1 {
            write!(f, ", {} heads", self.heads)?;
        }
        if self.twins {
            f.write_str(", two keys a row")?;
        }
        if self.warps != 4 && self.cache != Cache::Latent {
            write!(f, ", {} warps", self.warps)?;
        }
        if self.row_blocks > 1 {
            write!(f, ", {} rows a warp", 16 * self.row_blocks)?;
        }
        if self.cache != Cache::Same {
            write!(f, " {}", self.cache)?;
        }
        if let Storage::Paged(size) = self.storage {
            write!(f, " pages of {size}")?;
        }
        match self.append.map(|append| append.by) {
            None => {}
            Some(Appender::Tile) => f.write_str(" appending")?,
            Some(Appender::Launch) => f.write_str(" appended before")?,
        }
        Ok(())
    }
}

impl fmt::Display for Grid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} blocks of {}", self.blocks, self.least)?;
        f.write_str(match self.combine {
            Combine::Nobody => "",
            Combine::LastBlock => " combined by the last",
            Combine::Launch => " combined",
        })
    }
}

pub(super) type Spec = TileSpec<'static, f16>;
