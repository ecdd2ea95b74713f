//! `softmax(scale * Q K^T) V`.

use super::error::OpError;
use super::library::{Key, Ops};
use super::memory::Memory;
use super::operand::{Operand, Operands, SLOTS};
use super::plan::Plan;
use heist_kernels::attention::{
    Append, BlockMask, Cache, Dtype, FAMILY, Layout, Lengths, Mask, Output, PairMask, Problem,
    Scoring, View, Views, Weights, alibi, documents, pairs as of_pairs, softcap,
};
use heist_kernels::{KernelError, LaunchPlan, Tuned};
use heist_launch::{Arg, ElementType, Role};
use heist_sched::Schedule;

/// Which sequences there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Sequences {
    /// All alike.
    Same {
        /// How many.
        batch: u32,
        /// Queries of each.
        queries: u32,
        /// Keys of each.
        keys: u32,
    },
    /// Packed one after the other, with different lengths: their starts are read on the device.
    Packed {
        /// How many.
        batch: u32,
        /// No sequence has more queries.
        most_queries: u32,
        /// No sequence has more keys.
        most_keys: u32,
        /// Query rows of the whole tensor.
        query_rows: u32,
        /// Key rows of the whole tensor.
        key_rows: u32,
    },
    /// The same number of queries each, over paged keys and values (page, token, head, element).
    /// The number of keys of a sequence, and its pages, are read on the device.
    Paged {
        /// How many.
        batch: u32,
        /// Queries of each.
        queries: u32,
        /// Tokens of a page.
        page: u32,
        /// The most pages of a sequence: the columns of the table.
        most_pages: u32,
        /// Pages in all.
        pages: u32,
    },
}

/// What a model adds to the scores and to the mask; nothing unless said.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Added {
    /// Scores become `cap * tanh(score / cap)`: a number above zero.
    pub softcap: Option<f32>,
    /// A score loses its head's slope times the distance of query and key; behind the soft-cap.
    pub alibi: bool,
    /// Each query head has one more score, of no key.
    pub sinks: bool,
    /// The first keys of each sequence are seen by all of its queries: with a causal mask or a window.
    pub prefixes: bool,
    /// A query sees the keys of its own document alone; not over pages.
    pub documents: bool,
    /// Whole blocks of keys that blocks of queries do not see, which are skipped: on Hopper's GPUs, not over
    /// pages. Blocks of packed sequences are counted from the first row of each.
    pub blocks: Option<BlockMask>,
    /// A number for each query and key, which hides the key or is added to its score; where sequences are all alike.
    pub pairs: Option<PairMask>,
}

impl Added {
    /// As the kernels take it.
    fn scoring(&self, most_keys: u32) -> Result<Scoring, KernelError> {
        let mut scoring = Scoring {
            mods: Vec::new(),
            sinks: self.sinks,
            prefix: self.prefixes.then_some(most_keys),
            blocks: self.blocks,
        };
        if let Some(cap) = self.softcap {
            if !(cap.is_finite() && cap > 0.0) {
                return Err(KernelError::unfit(format!(
                    "a soft-cap of {cap}: a cap is a number above zero; leave it out for none"
                )));
            }
            scoring.mods.push(softcap(cap));
        }
        if self.alibi {
            scoring.mods.push(alibi());
        }
        if self.documents {
            scoring.mods.push(documents());
        }
        scoring.mods.extend(self.pairs.map(of_pairs));
        Ok(scoring)
    }
}

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Attention {
    /// Which sequences.
    pub sequences: Sequences,
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
    /// What keys and values are stored as; in 8 bits for decoding alone.
    pub cache: Cache,
    /// New keys and values, which the call puts into the pages behind those that a sequence has, and attends to: for paged
    /// sequences. A cache that lies whole is one of pages in order. What there is no room for is left out.
    pub append: Option<Append>,
    /// Which keys a query sees.
    pub mask: Mask,
    /// How heads and rows lie; packed sequences are rows of heads.
    pub layout: Layout,
    /// Queries, keys and values that are parts of larger tensors, whose axes follow each other as the layout says; results are not.
    pub views: Option<Views>,
    /// The factor of the scores; one over the root of the head dimension unless
    /// given.
    pub scale: Option<f32>,
    /// What a model adds to the scores.
    pub added: Added,
}

/// What attention works on.
#[derive(Clone, Copy, Debug)]
pub struct AttentionOperands<'m> {
    /// Queries.
    pub q: Memory<'m>,
    /// Keys.
    pub k: Memory<'m>,
    /// Values; of a latent cache, the keys again.
    pub v: Memory<'m>,
    /// Results, laid out as the queries, with the elements of a value's head.
    pub out: Memory<'m>,
    /// The log-sum-exp of every query row, in f32, head after head; optional.
    pub lse: Option<Memory<'m>>,
    /// For packed and paged sequences: the first query row of each, and one past the
    /// last.
    pub q_starts: Option<Memory<'m>>,
    /// The same for key rows; for paged sequences, how many keys each has, without new ones.
    pub k_starts: Option<Memory<'m>>,
    /// For paged sequences: the pages of each, a row of the table after the other.
    pub pages: Option<Memory<'m>>,
    /// For keys of 8 bits: the factor of each key head's, in f32.
    pub k_scale: Option<Memory<'m>>,
    /// The same for values.
    pub v_scale: Option<Memory<'m>>,
    /// For ALiBi: the slope of each query head, in f32.
    pub slopes: Option<Memory<'m>>,
    /// The score of no key of each query head, in f32, where they have one.
    pub sinks: Option<Memory<'m>>,
    /// New keys (sequence, row, key head, element), where some are appended; keys and values are then written.
    pub k_new: Option<Memory<'m>>,
    /// The same for values.
    pub v_new: Option<Memory<'m>>,
    /// How many keys of each sequence all of its queries see, in u32.
    pub prefixes: Option<Memory<'m>>,
    /// The document of each key of each sequence, in u32; a query has that of the key at its position.
    pub documents: Option<Memory<'m>>,
    /// The mask of blocks: a byte for each pair (sequence, query head, block of queries, block of keys), zero for hidden.
    pub block_mask: Option<Memory<'m>>,
    /// The mask of pairs.
    pub pairs: Option<Memory<'m>>,
}

impl<'m> AttentionOperands<'m> {
    /// Queries, keys, values and results, and nothing that only some problems have.
    pub fn new(q: Memory<'m>, k: Memory<'m>, v: Memory<'m>, out: Memory<'m>) -> Self {
        AttentionOperands {
            q,
            k,
            v,
            out,
            lse: None,
            q_starts: None,
            k_starts: None,
            pages: None,
            k_scale: None,
            v_scale: None,
            slopes: None,
            sinks: None,
            k_new: None,
            v_new: None,
            prefixes: None,
            documents: None,
            block_mask: None,
            pairs: None,
        }
    }
}

impl Operands for AttentionOperands<'_> {
    const NAMES: &'static [&'static str] = &[
        "q",
        "k",
        "v",
        "out",
        "lse",
        "q_starts",
        "k_starts",
        "pages",
        "k_scale",
        "v_scale",
        "slopes",
        "sinks",
        "k_new",
        "v_new",
        "prefixes",
        "documents",
        "block_mask",
        "pairs",
    ];

    fn memory(&self) -> [Option<Memory<'_>>; SLOTS] {
        let mut list = [None; SLOTS];
        list[..4].copy_from_slice(&[self.q, self.k, self.v, self.out].map(Some));
        list[4..8].copy_from_slice(&[self.lse, self.q_starts, self.k_starts, self.pages]);
        list[8..12].copy_from_slice(&[self.k_scale, self.v_scale, self.slopes, self.sinks]);
        list[12..14].copy_from_slice(&[self.k_new, self.v_new]);
        list[14..17].copy_from_slice(&[self.prefixes, self.documents, self.block_mask]);
        list[17] = self.pairs;
        list
    }
}

impl Attention {
    pub(super) fn numbers(&self) -> Vec<u64> {
        let mut numbers = match self.sequences {
            Sequences::Same {
                batch,
                queries,
                keys,
            } => vec![0, batch, queries, keys],
            Sequences::Packed {
                batch,
                most_queries,
                most_keys,
                query_rows,
                key_rows,
            } => vec![1, batch, most_queries, most_keys, query_rows, key_rows],
            Sequences::Paged {
                batch,
                queries,
                page,
                most_pages,
                pages,
            } => vec![2, batch, queries, page, most_pages, pages],
        };
        numbers.extend([self.heads, self.kv_heads, self.head_dim]);
        numbers.push(self.value_dim.unwrap_or(self.head_dim));
        numbers.extend(match self.mask {
            Mask::Full => [0, 0, 0],
            Mask::Causal => [1, 0, 0],
            Mask::Window { left, right } => [2, left, right],
        });
        let scale = self.scale.map_or(u32::MAX, f32::to_bits);
        numbers.extend([
            self.dtype as u32,
            self.layout as u32,
            scale,
            self.cache as u32,
            self.added.softcap.map_or(u32::MAX, f32::to_bits),
            self.added.alibi.into(),
            self.added.sinks.into(),
            self.added.prefixes.into(),
            self.added.documents.into(),
        ]);
        let blocks = self.added.blocks.map(|blocks| {
            let own = [blocks.by_sequence.into(), blocks.by_head.into()];
            [blocks.rows, blocks.keys, own[0], own[1]]
        });
        numbers.extend(blocks.unwrap_or_default());
        let pairs = self.added.pairs.map(|pairs| {
            let [sequence, head, row] = pairs.strides;
            [pairs.element as u32 + 1, sequence, head, row]
        });
        numbers.extend(pairs.unwrap_or_default());
        let append = self
            .append
            .map(|append| [append.rows, append.in_cache_type.into()]);
        numbers.extend(append.unwrap_or_default());
        let numbers = numbers.into_iter().map(u64::from);
        let of = |View { batch, row, head }| [batch, row, head];
        let views = self.views.map(|Views { q, k, v }| [q, k, v].map(of));
        numbers
            .chain(views.into_iter().flatten().flatten())
            .collect()
    }

    /// As the kernels take it.
    pub(super) fn problem(&self) -> Result<Problem, KernelError> {
        let lengths = match self.sequences {
            Sequences::Same {
                batch,
                queries,
                keys,
            } => Lengths::Same {
                batch,
                queries,
                keys,
            },
            Sequences::Packed {
                batch,
                most_queries,
                most_keys,
                query_rows,
                key_rows,
            } => {
                let queries = lengths_like("queries", batch, most_queries, query_rows)?;
                // Memory past the last sequence of keys is not accessed.
                let reached = u64::from(batch) * u64::from(most_keys);
                let key_rows = u64::from(key_rows).min(reached) as u32;
                let keys = lengths_like("keys", batch, most_keys, key_rows)?;
                Lengths::Each(queries.into_iter().zip(keys).collect())
            }
            Sequences::Paged {
                batch,
                queries,
                page,
                most_pages,
                ..
            } => {
                let Some(keys) = page.checked_mul(most_pages) else {
                    return Err(KernelError::unfit(format!(
                        "{most_pages} pages of {page} tokens are too many for a sequence"
                    )));
                };
                Lengths::Each(vec![(queries, keys); batch as usize])
            }
        };
        let page_size = match self.sequences {
            Sequences::Paged { page, .. } => Some(page),
            _ => None,
        };
        let packed = matches!(lengths, Lengths::Each(_));
        let most_keys = match &lengths {
            Lengths::Same { keys, .. } => *keys,
            Lengths::Each(each) => each.iter().map(|&(_, keys)| keys).max().unwrap_or(0),
        };
        let scoring = self.added.scoring(most_keys)?;
        Ok(Problem {
            lengths,
            heads: self.heads,
            kv_heads: self.kv_heads,
            head_dim: self.head_dim,
            value_dim: self.value_dim,
            dtype: self.dtype,
            cache: self.cache,
            mask: self.mask,
            layout: if packed { Layout::Rows } else { self.layout },
            views: self.views,
            page_size,
            append: self.append,
            weights: Weights::Rounded,
            output: Output::Same,
            scale: self.scale,
            scoring,
        })
    }
}

/// Lengths with this sum, the first of them the longest. The choice of kernel and grid depends only
/// on their number, sum and maximum; the real lengths are read on the device.
fn lengths_like(what: &str, batch: u32, most: u32, rows: u32) -> Result<Vec<u32>, KernelError> {
    if most > rows {
        return Err(KernelError::unfit(format!(
            "a sequence of {most} {what} in a tensor of {rows} rows: the longest can't have more than there are"
        )));
    }
    if u64::from(batch) * u64::from(most) < u64::from(rows) {
        return Err(KernelError::unfit(format!(
            "{batch} sequences of at most {most} {what} are fewer than the {rows} rows of the tensor: \
             say the length of the longest sequence"
        )));
    }
    let mut left = rows;
    let mut lengths = Vec::with_capacity(batch as usize);
    for index in 0..batch {
        // The others are as even as possible.
        let even = left.div_ceil(batch - index);
        let length = if index == 0 { most } else { even };
        lengths.push(length);
        left -= length;
    }
    Ok(lengths)
}

impl Ops {
    /// Plans attention; without a schedule, by the one that suits it.
    ///
    /// # Errors
    /// Why no kernel does it on this device.
    pub fn attention(
        &self,
        problem: &Attention,
        schedule: Option<&Schedule>,
    ) -> Result<Plan<AttentionOperands<'static>>, OpError> {
        let key = Key::new(FAMILY.name, problem.numbers(), schedule);
        self.plan(key, || {
            let asked = problem.problem()?;
            asked.check()?;
            let target = self.target();
            let untuned = || {
                let mut variant = FAMILY.choose(None, &asked, target)?;
                // The decoding kernel distributes its keys itself.
                if schedule.is_some() && variant.name() == "decode" {
                    variant = FAMILY.choose(Some("large"), &asked, target)?;
                }
                variant.plan(&asked, schedule, target)
            };
            let operands = operands(problem, &asked);
            self.tuned(&asked, schedule, operands, |answer| {
                let mut plan = match answer {
                    Some(answer) => asked.tuned(answer, target)?,
                    None => untuned()?,
                };
                if let Sequences::Paged { pages, .. } = problem.sequences {
                    reach_pages(&mut plan, pages);
                }
                Ok(plan)
            })
        })
    }
}

/// Extends the tensor maps of keys and values to all pages: a plan covers only those of its
/// sequences.
fn reach_pages(plan: &mut LaunchPlan, pages: u32) {
    let params = plan.steps.iter_mut().flat_map(|step| &mut step.params);
    for param in params {
        if let Arg::TensorMap(map) = param
            && let Some(last) = map.dims.last_mut()
        {
            *last = pages.into();
        }
    }
}

fn operands(problem: &Attention, asked: &Problem) -> Vec<Operand> {
    let ([q, mut k, mut v], (out, _)) = (asked.spans(), asked.value_elements());
    let lse = asked.rows().0 * asked.heads as usize;
    let halves = asked.dtype.element();
    let starts = match problem.sequences {
        Sequences::Same { .. } => 0,
        Sequences::Packed { batch, .. } | Sequences::Paged { batch, .. } => u64::from(batch) + 1,
    };
    let mut ends = starts;
    let mut table = 0;
    if let Sequences::Paged {
        batch,
        page,
        most_pages,
        pages,
        ..
    } = problem.sequences
    {
        let rows = u64::from(pages) * u64::from(page) * u64::from(asked.kv_heads);
        let all = |dim: u32| (rows * u64::from(dim)) as usize;
        (k, v) = (all(asked.head_dim), all(asked.value_dim()));
        ends = batch.into();
        table = u64::from(batch) * u64::from(most_pages);
    }
    let [q, k, v, out, lse] = [q, k, v, out, lse].map(|count| count as u64);
    let (u32s, f32s) = (ElementType::U32, ElementType::F32);
    let scales = match asked.cache {
        Cache::Same | Cache::Latent => 0,
        Cache::E4m3 => asked.kv_heads.into(),
    };
    // Values are a part of the keys there.
    let latent = asked.cache == Cache::Latent;
    let v = if latent { 0 } else { v };
    let cached = match asked.append {
        None => Role::In,
        Some(_) => Role::InOut,
    };
    let new = |name| match asked.appended() {
        None => Operand::tensor(name, Role::In, halves, 0, true),
        Some((element, count)) => Operand::tensor(name, Role::In, element, count as u64, false),
    };
    // What is left out where there is none of it.
    let list = |name, element, count: u64| {
        Operand::tensor(name, Role::In, element, count, count == 0).list()
    };
    let of_heads = |name, there: bool| list(name, f32s, if there { asked.heads.into() } else { 0 });
    let (sequences, key_rows) = (asked.sequences().len() as u64, asked.rows().1 as u64);
    let blocks = asked
        .scoring
        .blocks
        .map_or(0, |blocks| blocks.bytes(asked.extents()) as u64);
    vec![
        Operand::tensor("q", Role::In, halves, q, false),
        Operand::tensor("k", cached, asked.cache_element(), k, false),
        Operand::tensor("v", cached, asked.cache_element(), v, latent),
        Operand::tensor("out", Role::Out, halves, out, false),
        Operand::tensor("lse", Role::Out, f32s, lse, true).list(),
        list("q_starts", u32s, starts),
        list("k_starts", u32s, ends),
        list("pages", u32s, table),
        list("k_scale", f32s, scales),
        list("v_scale", f32s, scales),
        slopes(problem),
        of_heads("sinks", problem.added.sinks),
        new("k_new"),
        new("v_new"),
        list(
            "prefixes",
            u32s,
            if problem.added.prefixes { sequences } else { 0 },
        ),
        list(
            "documents",
            u32s,
            if problem.added.documents { key_rows } else { 0 },
        ),
        list("block_mask", ElementType::U8, blocks),
        pairs(problem, asked),
    ]
}

/// The mask of pairs, as an operand.
/// The slopes of ALiBi, where there is any.
pub(super) fn slopes(problem: &Attention) -> Operand {
    let count = match problem.added.alibi {
        true => problem.heads.into(),
        false => 0,
    };
    Operand::tensor("slopes", Role::In, ElementType::F32, count, count == 0).list()
}

pub(super) fn pairs(problem: &Attention, asked: &Problem) -> Operand {
    let (element, count) = problem.added.pairs.map_or((ElementType::U8, 0), |mask| {
        let count = mask.elements(asked.extents());
        (mask.element.element(), count as u64)
    });
    Operand::tensor("pairs", Role::In, element, count, count == 0).list()
}
