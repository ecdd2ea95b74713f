//! The problem: shapes, masks, and their cost.

mod precision;

pub use precision::{Dtype, Output, Weights};

use super::cache::{Append, Cache};
use super::score::{Extents, Scoring};
use super::views::Views;
use crate::{KernelError, Work};
use heist_launch::ElementType;
use std::fmt;
use std::str::FromStr;

/// Which keys a query sees.
///
/// The last query has the place of the last key, as is right for a step of
/// decoding; with as many queries as keys, query `i` has the place of key `i`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mask {
    /// All.
    Full,
    /// Its own and those before.
    Causal,
    /// Its own, `left` before and `right` after.
    Window {
        /// How many before.
        left: u32,
        /// How many after.
        right: u32,
    },
}

/// A mask without its numbers: what a kernel is built for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MaskKind {
    /// All keys.
    Full,
    /// No keys after a query's own.
    Causal,
    /// Keys near a query's own.
    Window,
}

impl Mask {
    /// Without its numbers.
    pub fn kind(self) -> MaskKind {
        match self {
            Mask::Full => MaskKind::Full,
            Mask::Causal => MaskKind::Causal,
            Mask::Window { .. } => MaskKind::Window,
        }
    }

    /// The keys that query `row` of `queries` sees, of `keys`.
    pub fn seen(self, row: u32, queries: u32, keys: u32) -> std::ops::Range<u32> {
        let own = i64::from(row) + i64::from(keys) - i64::from(queries);
        let clamp = |key: i64| key.clamp(0, keys.into()) as u32;
        match self {
            Mask::Full => 0..keys,
            Mask::Causal => 0..clamp(own + 1),
            Mask::Window { left, right } => {
                let from = clamp(own - i64::from(left));
                from..clamp(own + i64::from(right) + 1).max(from)
            }
        }
    }
}

impl fmt::Display for Mask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Mask::Full => f.write_str("full"),
            Mask::Causal => f.write_str("causal"),
            Mask::Window { left, right } => write!(f, "window({left},{right})"),
        }
    }
}

impl FromStr for Mask {
    type Err = KernelError;
    fn from_str(text: &str) -> Result<Mask, KernelError> {
        let numbers = || {
            let inside = text.strip_prefix("window(")?.strip_suffix(')')?;
            let (left, right) = inside.split_once(',')?;
            Some(Mask::Window {
                left: left.trim().parse().ok()?,
                right: right.trim().parse().ok()?,
            })
        };
        match text {
            "full" => Ok(Mask::Full),
            "causal" => Ok(Mask::Causal),
            _ => numbers().ok_or_else(|| {
                KernelError::unfit(format!(
                    "`{text}` is not a mask: full, causal, or window(LEFT,RIGHT)"
                ))
            }),
        }
    }
}

/// How long the sequences are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lengths {
    /// All alike.
    Same {
        /// How many sequences.
        batch: u32,
        /// Queries of each.
        queries: u32,
        /// Keys of each.
        keys: u32,
    },
    /// Each its own: (queries, keys), packed one after the other.
    Each(Vec<(u32, u32)>),
}

/// How heads and rows lie, for sequences that are all alike. Packed sequences
/// are always rows of heads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Layout {
    /// Sequence, row, head, element: rows of heads.
    Rows,
    /// Sequence, head, row, element.
    Heads,
}

/// What is asked.
#[derive(Clone, Debug, PartialEq)]
pub struct Problem {
    /// How long the sequences are.
    pub lengths: Lengths,
    /// Query heads.
    pub heads: u32,
    /// Key and value heads; a divisor of the query heads.
    pub kv_heads: u32,
    /// Elements of a head of queries and keys.
    pub head_dim: u32,
    /// Elements of a head of values and results; as many as of keys unless given.
    pub value_dim: Option<u32>,
    /// Of what type.
    pub dtype: Dtype,
    /// What keys and values are stored as.
    pub cache: Cache,
    /// Which keys a query sees.
    pub mask: Mask,
    /// How heads and rows lie.
    pub layout: Layout,
    /// Queries, keys and values that are parts of larger tensors, whose axes follow each other as the layout says.
    pub views: Option<Views>,
    /// Keys and values lie in pages of this many tokens (page, token, head,
    /// element), and a table has the pages of each sequence. For sequences with
    /// lengths of their own.
    pub page_size: Option<u32>,
    /// New keys and values, which are put into the pages; the lengths count them.
    pub append: Option<Append>,
    /// How weights enter the product with the values.
    pub weights: Weights,
    /// What results are made of.
    pub output: Output,
    /// The factor of the scores; one over the root of the head dimension unless
    /// given.
    pub scale: Option<f32>,
    /// What a model adds: changes of scores, sinks, prefixes.
    pub scoring: Scoring,
}

/// The largest window, length and head count: sums of a few fit in 31 bits.
pub(crate) const MOST: u32 = 1 << 28;

impl Problem {
    /// Sequences that are all alike, as many keys as queries, f16, no mask.
    pub fn new(batch: u32, heads: u32, length: u32, head_dim: u32) -> Problem {
        Problem {
            lengths: Lengths::Same {
                batch,
                queries: length,
                keys: length,
            },
            heads,
            kv_heads: heads,
            head_dim,
            value_dim: None,
            dtype: Dtype::F16,
            cache: Cache::Same,
            mask: Mask::Full,
            layout: Layout::Heads,
            views: None,
            page_size: None,
            append: None,
            weights: Weights::Rounded,
            output: Output::Same,
            scale: None,
            scoring: Scoring::default(),
        }
    }

    /// Packed sequences of (queries, keys).
    pub fn ragged(lengths: Vec<(u32, u32)>, heads: u32, head_dim: u32) -> Problem {
        Problem {
            lengths: Lengths::Each(lengths),
            layout: Layout::Rows,
            ..Problem::new(1, heads, 1, head_dim)
        }
    }

    /// Fails where heads have half a step of 16 elements: the copy engine fills it with zeros for warpgroups, and nobody for other kernels.
    ///
    /// # Errors
    /// That they have.
    pub(super) fn has_whole_steps(&self) -> Result<(), KernelError> {
        let (dim, values) = (self.head_dim, self.value_dim());
        match dim.is_multiple_of(16) && values.is_multiple_of(16) {
            true => Ok(()),
            false => Err(KernelError::unfit(format!(
                "heads of {dim} elements, and {values} of values: it has multiples of 16; variant=wgmma (sm_90a) has multiples of 8"
            ))),
        }
    }

    /// Fails where it makes no sense, with the reason.
    ///
    /// # Errors
    /// What does not fit, and why.
    pub fn check(&self) -> Result<(), KernelError> {
        let fail = |why: String| Err(KernelError::unfit(why));
        if self.heads == 0 || self.kv_heads == 0 || !self.heads.is_multiple_of(self.kv_heads) {
            return fail(format!(
                "{} query heads over {} key heads: there must be at least one of each, and the query heads a multiple of the key heads",
                self.heads, self.kv_heads
            ));
        }
        let most = match self.cache {
            Cache::Latent => 576,
            _ => 256,
        };
        if self.head_dim < 16 || self.head_dim > most || !self.head_dim.is_multiple_of(8) {
            return fail(format!(
                "heads of {} elements: multiples of 8 up to {most} can be had, 16 at least",
                self.head_dim
            ));
        }
        if self.cache == Cache::Latent {
            self.is_latent()?;
        }
        let values = self.value_dim();
        if values < 16 || values > self.head_dim || !values.is_multiple_of(8) {
            return fail(format!(
                "heads of {values} elements of values and {} of keys: multiples of 8 can be had, 16 at least, and of values at most as many as of keys",
                self.head_dim
            ));
        }
        let lengths = self.sequences();
        if lengths.is_empty() {
            return fail("a batch without sequences: there is nothing to do".into());
        }
        let rows: u64 = lengths.iter().map(|&(q, _)| u64::from(q)).sum();
        if rows == 0 {
            return fail("no query rows: there is nothing to do".into());
        }
        let most = lengths.iter().map(|&(q, k)| q.max(k)).max().unwrap_or(0);
        if most > MOST || rows * u64::from(self.heads) > u64::from(MOST) * 8 {
            return fail(format!(
                "sequences of {most} and {rows} rows of {} heads: the kernels count rows in 31 bits",
                self.heads
            ));
        }
        if let Mask::Window { left, right } = self.mask
            && left.max(right) > MOST
        {
            return fail(format!(
                "a window of {left} before and {right} after is wider than {MOST}"
            ));
        }
        if let Some(size) = self.page_size {
            if !self.is_ragged() {
                return fail(
                    "keys in pages: sequences have lengths of their own there; give `lengths`"
                        .into(),
                );
            }
            if !(8..=4096).contains(&size) || !size.is_multiple_of(8) {
                return fail(format!(
                    "pages of {size} tokens: multiples of 8 up to 4096 can be had"
                ));
            }
        }
        if self.cache == Cache::E4m3 && !self.head_dim.is_multiple_of(32) {
            return fail(format!(
                "keys in e4m3 with heads of {} elements: multiples of 32 can be had",
                self.head_dim
            ));
        }
        if let Some(append) = self.append {
            self.can_append(append)?;
        }
        if let Some(views) = self.views {
            self.can_view(views)?;
        }
        let scale = self.scale();
        if !(scale.is_finite() && scale > 0.0) {
            return fail(format!("a scale of {scale}: it must be above zero"));
        }
        self.scoring.check(self)
    }

    /// Fails where new keys make no sense, with the reason.
    fn can_append(&self, append: Append) -> Result<(), KernelError> {
        let fail = |why: String| Err(KernelError::unfit(why));
        let rows = append.rows;
        if self.page_size.is_none() {
            return fail(format!(
                "{rows} new keys of each sequence: they are put into pages; give `page`, and a cache that lies whole as its pages in order"
            ));
        }
        if self.cache == Cache::Latent {
            return fail("new keys of a latent cache: put them there before".into());
        }
        if rows == 0 {
            return fail("no new keys of each sequence: leave them out".into());
        }
        let short = |&&(_, keys): &&(u32, u32)| keys < rows;
        if let Some((_, keys)) = self.sequences().iter().find(short) {
            return fail(format!(
                "{rows} new keys in a sequence of {keys}: lengths count the new ones"
            ));
        }
        Ok(())
    }

    /// What new keys and values are made of, and how many elements the keys have in all.
    pub fn appended(&self) -> Option<(ElementType, usize)> {
        let append = self.append?;
        let element = match append.in_cache_type {
            true => self.cache_element(),
            false => self.dtype.element(),
        };
        let rows = self.sequences().len() * append.rows as usize;
        let elements = rows * self.kv_heads as usize * self.head_dim as usize;
        Some((element, elements))
    }

    /// Fails where values that are a part of the keys make no sense, with the reason.
    fn is_latent(&self) -> Result<(), KernelError> {
        let values = self.value_dim();
        if !values.is_multiple_of(128) || values > 512 {
            return Err(KernelError::unfit(format!(
                "values that are the first {values} elements of the keys: multiples of 128 up to 512 can be had; say value-dim"
            )));
        }
        if !self.scoring.is_plain() || self.weights != Weights::Rounded {
            return Err(KernelError::unfit(
                "a latent cache with changed scores, masks of a model or split weights: leave them out, or keep keys and values apart",
            ));
        }
        Ok(())
    }

    /// Elements of a row of keys in memory, and of a row of values.
    pub(super) fn stored_dims(&self) -> [u32; 2] {
        match self.cache {
            Cache::Latent => [self.head_dim; 2],
            _ => [self.head_dim, self.value_dim()],
        }
    }

    /// Elements of a head of values and results.
    pub fn value_dim(&self) -> u32 {
        self.value_dim.unwrap_or(self.head_dim)
    }

    /// Fails where values have other heads than keys, for kernels that have one width for both.
    pub(super) fn is_square(&self) -> Result<(), KernelError> {
        match self.value_dim() == self.head_dim {
            true => Ok(()),
            false => Err(KernelError::unfit(format!(
                "heads of {} elements of keys and {} of values: variant=wgmma alone has them, on sm_90a; elsewhere fill the values up with zeros",
                self.head_dim,
                self.value_dim()
            ))),
        }
    }

    /// Fails where whole blocks of keys are hidden, for kernels that go through all of them.
    pub(super) fn sees_all_blocks(&self) -> Result<(), KernelError> {
        match self.scoring.blocks {
            None => Ok(()),
            Some(blocks) => Err(KernelError::unfit(format!(
                "a mask of blocks of {blocks}: variant=wgmma alone has it, on sm_90a; elsewhere hide keys by a window, by documents or by a change of scores"
            ))),
        }
    }

    /// The factor of the scores.
    pub fn scale(&self) -> f32 {
        self.scale
            .unwrap_or_else(|| 1.0 / (self.head_dim as f32).sqrt())
    }

    /// Queries and keys of each sequence.
    pub fn sequences(&self) -> Vec<(u32, u32)> {
        match &self.lengths {
            Lengths::Same {
                batch,
                queries,
                keys,
            } => vec![(*queries, *keys); *batch as usize],
            Lengths::Each(lengths) => lengths.clone(),
        }
    }

    /// What results are made of.
    pub fn output_element(&self) -> ElementType {
        match self.output {
            Output::Same => self.dtype.element(),
            Output::F32 => ElementType::F32,
        }
    }

    /// Whether the sequences have lengths of their own.
    pub fn is_ragged(&self) -> bool {
        matches!(self.lengths, Lengths::Each(_))
    }

    /// The most queries of a sequence, and the most keys.
    pub fn longest(&self) -> (u32, u32) {
        match &self.lengths {
            Lengths::Same { queries, keys, .. } => (*queries, *keys),
            Lengths::Each(lengths) => (
                lengths.iter().map(|&(q, _)| q).max().unwrap_or(0),
                lengths.iter().map(|&(_, k)| k).max().unwrap_or(0),
            ),
        }
    }

    /// How many sequences and heads, and how long the longest sequence is.
    pub fn extents(&self) -> Extents {
        let (queries, keys) = self.longest();
        Extents {
            sequences: self.sequences().len(),
            heads: self.heads as usize,
            queries: queries as usize,
            keys: keys as usize,
        }
    }

    /// Query rows and key rows of all sequences.
    pub fn rows(&self) -> (usize, usize) {
        let lengths = self.sequences();
        lengths.iter().fold((0, 0), |(q, k), &(queries, keys)| {
            (q + queries as usize, k + keys as usize)
        })
    }

    /// The most pages of a sequence, and pages in all; at least one each.
    pub fn pages(&self) -> (usize, usize) {
        let Some(size) = self.page_size else {
            return (1, 1);
        };
        let pages = |&(_, keys): &(u32, u32)| keys.div_ceil(size.max(1)) as usize;
        let sequences = self.sequences();
        let most = sequences.iter().map(pages).max().unwrap_or(0);
        (
            most.max(1),
            sequences.iter().map(pages).sum::<usize>().max(1),
        )
    }

    /// A table of pages to try kernels with: each page is one sequence's, and
    /// neighbours of a sequence are none of the memory.
    pub fn page_table(&self) -> Vec<u32> {
        let (row, total) = self.pages();
        let Some(size) = self.page_size else {
            return Vec::new();
        };
        // A step that shares no divisor with the number of pages visits them all.
        let divides =
            |step: usize| (2..=step).any(|d| step.is_multiple_of(d) && total.is_multiple_of(d));
        let step = (total / 3 + 1..).find(|step| !divides(*step)).unwrap_or(1);
        let sequences = self.sequences();
        let mut table = Vec::with_capacity(row * sequences.len());
        let mut next = 0usize;
        for &(_, keys) in &sequences {
            let pages = keys.div_ceil(size.max(1)) as usize;
            for at in 0..row {
                // What is past a sequence's last page is never looked at.
                table.push(if at < pages {
                    (next % total) as u32
                } else {
                    u32::MAX
                });
                next += if at < pages { step } else { 0 };
            }
        }
        table
    }

    /// Fails where keys lie in pages or have 8 bits, for kernels that can't read them.
    pub(super) fn not_paged(&self) -> Result<(), KernelError> {
        let what = match (self.page_size, self.cache) {
            (None, Cache::Same) => return Ok(()),
            (Some(_), _) => "keys in pages",
            (None, Cache::E4m3) => "keys in e4m3",
            (None, Cache::Latent) => "a latent cache",
        };
        Err(KernelError::unfit(format!(
            "{what}: variant=decode alone takes them"
        )))
    }

    /// The type of keys and values in memory.
    pub fn cache_element(&self) -> ElementType {
        match self.cache {
            Cache::Same | Cache::Latent => self.dtype.element(),
            Cache::E4m3 => ElementType::E4m3,
        }
    }

    /// Fails where something is added to attention, for kernels that can't.
    pub(super) fn is_plain(&self) -> Result<(), KernelError> {
        match self.scoring.is_plain() {
            true => Ok(()),
            false => Err(KernelError::unfit(format!(
                "attention with{}: the variants tensor, buffered, large, persistent, wgmma and decode have it",
                self.scoring
            ))),
        }
    }

    /// Elements of the queries and of the keys.
    pub fn elements(&self) -> (usize, usize) {
        let (q, k) = self.heads_in_all();
        let dim = self.head_dim as usize;
        (q * dim, k * dim)
    }

    /// Elements of the results and of the values.
    pub fn value_elements(&self) -> (usize, usize) {
        let (q, k) = self.heads_in_all();
        let dim = self.value_dim() as usize;
        (q * dim, k * dim)
    }

    /// Heads of all query rows, and of all key rows.
    fn heads_in_all(&self) -> (usize, usize) {
        let (q, mut k) = self.rows();
        if let Some(size) = self.page_size {
            k = self.pages().1 * size as usize;
        }
        (q * self.heads as usize, k * self.kv_heads as usize)
    }

    /// Pairs of a query and a key that it sees, in one head of one sequence.
    fn pairs(&self, queries: u32, keys: u32) -> f64 {
        match self.mask {
            Mask::Full => f64::from(queries) * f64::from(keys),
            _ => (0..queries)
                .map(|row| {
                    let seen = self.mask.seen(row, queries, keys);
                    let prefix = self.scoring.prefix.unwrap_or(0).min(keys);
                    let both = prefix.min(seen.end).saturating_sub(seen.start);
                    f64::from(seen.end - seen.start + prefix - both)
                })
                .sum(),
        }
    }

    /// Two multiplications and additions for each element of each pair, and the
    /// bytes of queries, keys, values, results and log-sum-exps.
    pub fn work(&self) -> Work {
        let pairs: f64 = match self.lengths {
            Lengths::Same {
                batch,
                queries,
                keys,
            } => f64::from(batch) * self.pairs(queries, keys),
            Lengths::Each(ref lengths) => lengths.iter().map(|&(q, k)| self.pairs(q, k)).sum(),
        };
        let (q, out) = (self.elements().0, self.value_elements().0);
        let (rows, keys) = self.rows();
        let both = self.head_dim + self.value_dim();
        let stored = match self.cache {
            Cache::Latent => self.head_dim,
            _ => both,
        };
        let kv = keys * self.kv_heads as usize * stored as usize;
        let rows = rows * self.heads as usize;
        Work {
            flops: 2.0 * pairs * f64::from(self.heads) * f64::from(both),
            bytes: (2 * q
                + self.cache_element().bytes() * kv
                + self.output_element().bytes() * out
                + 4 * rows) as f64,
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.lengths {
            Lengths::Same {
                batch,
                queries,
                keys,
            } if queries == keys => write!(f, "B{batch} S{queries}")?,
            Lengths::Same {
                batch,
                queries,
                keys,
            } => write!(f, "B{batch} S{queries}/{keys}")?,
            Lengths::Each(lengths) => {
                write!(f, "{} ragged sequences", lengths.len())?;
            }
        }
        write!(f, " H{}", self.heads)?;
        if self.kv_heads != self.heads {
            write!(f, "/{}", self.kv_heads)?;
        }
        write!(f, " D{}", self.head_dim)?;
        if self.value_dim() != self.head_dim {
            write!(f, "/{}", self.value_dim())?;
        }
        write!(f, " {} {}", self.dtype, self.mask)?;
        if self.cache != Cache::Same {
            write!(f, " keys {}", self.cache)?;
        }
        if let Some(size) = self.page_size {
            write!(f, " pages of {size}")?;
        }
        if let Some(append) = self.append {
            write!(f, " appending {}", append.rows)?;
        }
        if self.weights == Weights::Split {
            f.write_str(" split weights")?;
        }
        if self.output == Output::F32 {
            f.write_str(" out f32")?;
        }
        if self.views.is_some() {
            f.write_str(" of views")?;
        }
        self.scoring.fmt(f)
    }
}
