//! The blocks of keys that each tile sees, listed on the device before the tiles are worked on.
//!
//! A mask of blocks is data, and so are documents: the host knows neither. A warp goes through the blocks that the other
//! masks leave to a tile, in the order in which the tile's block would go, and writes down those that are
//! seen. What is left out costs nothing afterwards. Of documents the range of each block's numbers is compared
//! with the range of the tile's rows, which is exact where documents lie one after the other; the rest is hidden
//! score by score.

use super::shape::WarpgroupShape;
use crate::KernelError;
use crate::Step;
use crate::attention::mask::{LINE_HEAD, MaskArgs, TileMask};
use crate::attention::problem::{MaskKind, Problem};
use crate::attention::score::BlockMask;
use crate::family::Target;
use crate::job::buffer;
use crate::plan::{LaunchPlan, Purpose};
use heist_builder::{
    Arch, Bool, BuildError, BuiltKernel, Global, Group, Kernel, KernelSpec, On, Ptr, SharedArray,
    Val, With, kernel_params,
};
use heist_launch::{Arg, Dim3, ElementType};

kernel_params! {
    /// What the kernel works on. What there is no use for is some other buffer.
    pub(super) struct SeenArgs {
        /// A byte for each pair of blocks.
        block_mask: Global<u8>,
        /// The document of each key.
        documents: Global<u32>,
        /// How many keys of each sequence all of its queries see.
        prefixes: Global<u32>,
        /// The first query row of each packed sequence, and one past the last.
        q_starts: Global<u32>,
        /// The same for keys.
        k_starts: Global<u32>,
        /// A line for each tile.
        lines: Global<u32>,
        /// Query rows of a sequence, or of the longest packed one.
        q_len: u32,
        /// Key rows of a sequence, or of the longest packed one.
        k_len: u32,
        /// Keys before its own that a query sees, in a window.
        left: i32,
        /// Keys after its own that a query sees.
        right: i32,
        /// Tiles of a head.
        tiles: u32,
        /// Query heads with lines of their own.
        heads: u32,
        /// Bytes of the mask from one sequence to the next.
        mask_batch: u32,
        /// From one head to the next.
        mask_head: u32,
        /// Blocks of keys of the mask.
        mask_row: u32,
        /// Words of a line.
        line: u32,
    }
}

const WARPS: u32 = 16;

/// The most blocks of keys whose documents are compared: their ranges lie in shared memory.
const MOST_RANGES: u32 = 4096;

/// The fewest that a launch to compare them is worth.
const FEWEST: u32 = 5;

/// Whether tiles of a problem have their blocks of keys listed.
pub(super) fn is_listed(problem: &Problem, keys: u32) -> bool {
    let (_, all) = problem.longest();
    let ranges =
        problem.scoring.documents() && (FEWEST..=MOST_RANGES).contains(&all.div_ceil(keys));
    problem.scoring.blocks.is_some() || ranges && !problem.is_ragged()
}

/// What is listed.
#[derive(Clone, Copy, Debug)]
struct Seen {
    /// Rows of a tile.
    height: u32,
    /// Keys of a block.
    keys: u32,
    mask: MaskKind,
    /// Whether sequences have lengths of their own and lie one after the other.
    ragged: bool,
    prefix: bool,
    blocks: Option<BlockMask>,
    /// Blocks of keys of a sequence, where their documents are compared.
    ranges: Option<u32>,
}

/// How lines lie: from one sequence to the next, from one head to the next, and the words of one.
pub(super) struct Lines {
    pub(super) batch: u32,
    pub(super) head: u32,
    pub(super) words: u32,
    /// Sequences and heads with lines of their own.
    own: [u32; 2],
    tiles: u32,
}

impl Lines {
    pub(super) fn of(problem: &Problem, shape: &WarpgroupShape) -> Lines {
        let (queries, keys) = problem.longest();
        let blocks = problem.scoring.blocks;
        let apart = blocks.is_some_and(|blocks| blocks.by_sequence)
            || problem.is_ragged()
            || problem.scoring.documents()
            || problem.scoring.prefix.is_some();
        let tiles = queries.div_ceil(shape.rows());
        let sequences = if apart {
            problem.sequences().len() as u32
        } else {
            1
        };
        let heads = if blocks.is_some_and(|blocks| blocks.by_head) {
            problem.heads
        } else {
            1
        };
        Lines {
            batch: if sequences > 1 { heads * tiles } else { 0 },
            head: if heads > 1 { tiles } else { 0 },
            words: LINE_HEAD + keys.div_ceil(shape.keys),
            own: [sequences, heads],
            tiles,
        }
    }
}

/// The same with the lines, and the launch that writes them.
pub(super) fn listed(
    plan: LaunchPlan,
    problem: &Problem,
    shape: &WarpgroupShape,
    [left, right]: [i32; 2],
    target: Target,
) -> Result<LaunchPlan, KernelError> {
    let scoring = &problem.scoring;
    if let Some(blocks) = scoring.blocks
        && !(blocks.rows.is_multiple_of(shape.rows()) && blocks.keys.is_multiple_of(shape.keys))
    {
        return Err(KernelError::unfit(format!(
            "{shape}: tiles must divide the blocks of the mask, {blocks}"
        )));
    }
    let (queries, keys) = problem.longest();
    let lines = Lines::of(problem, shape);
    let ranges = keys.div_ceil(shape.keys);
    let kernel = Seen {
        height: shape.rows(),
        keys: shape.keys,
        mask: shape.mask,
        ragged: shape.ragged,
        prefix: scoring.prefix.is_some(),
        blocks: scoring.blocks,
        ranges: (scoring.documents() && !shape.ragged && ranges <= MOST_RANGES).then_some(ranges),
    }
    .build(target.arch)?;
    let [mask_batch, mask_head, _] = scoring
        .blocks
        .map_or([0; 3], |blocks| blocks.strides(problem.extents()));
    let or = |there: bool, name: &str| buffer(if there { name } else { "q_starts" });
    let args = SeenArgs::<With<Arg>> {
        block_mask: or(scoring.blocks.is_some(), "block_mask"),
        documents: or(scoring.documents(), "documents"),
        prefixes: or(scoring.prefix.is_some(), "prefixes"),
        q_starts: buffer("q_starts"),
        k_starts: buffer("k_starts"),
        lines: buffer("lines"),
        q_len: queries,
        k_len: keys,
        left,
        right,
        tiles: lines.tiles,
        heads: lines.own[1],
        mask_batch: mask_batch as u32,
        mask_head: mask_head as u32,
        mask_row: scoring
            .blocks
            .map_or(0, |blocks| blocks.blocks(problem.extents())[1] as u32),
        line: lines.words,
    };
    let all = lines.own[0] * lines.own[1];
    let words = all as usize * lines.tiles as usize * lines.words as usize;
    let grid = Dim3::new(all, lines.tiles.div_ceil(WARPS), 1);
    Ok(plan
        .buffer("lines", Purpose::Workspace, ElementType::U32, words)
        .step(Step::plain(&kernel, grid, args)))
}

/// The lowest number of some documents, and the highest.
#[derive(Clone, Copy)]
struct Range<'k> {
    low: Val<'k, u32>,
    high: Val<'k, u32>,
}

impl Seen {
    fn build(self, arch: Arch) -> Result<BuiltKernel<SeenArgs>, BuildError> {
        KernelSpec::<SeenArgs>::new("attention_seen")
            .block(32 * WARPS)
            .build(arch, |k, args| self.emit(k, &args))
    }

    /// A line for each warp: sequences and heads along x, tiles along y.
    fn emit<'k>(self, k: &Kernel<'k>, args: &SeenArgs<On<'k>>) {
        let sequence = k.block().x / args.heads;
        let head = k.block().x - sequence * args.heads;
        let documents = args.documents.at(sequence.mul_wide(args.k_len));
        let ranges = self.ranges.map(|count| {
            k.comment("the documents of each block of keys");
            let ranges = [
                k.shared::<u32>("low", count),
                k.shared::<u32>("high", count),
            ];
            k.for_step(k.warp(), count, WARPS, |block| {
                let first = block * self.keys;
                let range = documents_of(k, documents, [first, args.k_len.min(first + self.keys)]);
                k.if_(k.lane().eq(0), || {
                    ranges[0].at(block).store(range.low);
                    ranges[1].at(block).store(range.high);
                });
            });
            k.sync();
            ranges
        });
        let tile = k.block().y * WARPS + k.warp();
        let first = tile * self.height;
        let [queries, keys] = self.lengths(args, sequence);
        k.if_(first.lt(queries) & tile.lt(args.tiles), || {
            let mask = MaskArgs {
                kind: self.mask,
                left: args.left,
                right: args.right,
                prefix: self
                    .prefix
                    .then(|| args.prefixes.at(sequence).load_readonly()),
            };
            let mask = TileMask::new(first, queries, keys, k.c(0), mask);
            let own = ranges.map(|ranges| {
                // A query has the document of the key at its place, or of the nearest that there is.
                let last = args.k_len.cast::<i32>() - 1;
                let place = |row: Val<'k, u32>| mask.position(row).max(0).min(last).cast::<u32>();
                let rows = mask.rows.min(self.height);
                let end = place(rows - 1) + 1;
                (ranges, documents_of(k, documents, [place(k.c(0)), end]))
            });
            let in_mask = self.blocks.map(|blocks| {
                let line = sequence.mul_wide(args.mask_batch)
                    + head.mul_wide(args.mask_head)
                    + (first / blocks.rows).mul_wide(args.mask_row);
                (blocks, args.block_mask.at(line))
            });
            let line = (k.block().x * args.tiles + tile).mul_wide(args.line);
            self.write(k, args.lines.at(line), &mask, |key| {
                let mut seen = k.c(true);
                if let Some((blocks, line)) = in_mask {
                    seen = seen
                        & line
                            .at(key / blocks.keys)
                            .load_readonly()
                            .cast::<u32>()
                            .ne(0);
                }
                if let Some((ranges, own)) = own {
                    seen = seen & meets(ranges, key / self.keys, own);
                }
                seen
            });
        });
    }

    /// The queries of a sequence, and its keys: of a packed one those that lines have room for.
    fn lengths<'k>(self, args: &SeenArgs<On<'k>>, sequence: Val<'k, u32>) -> [Val<'k, u32>; 2] {
        if !self.ragged {
            return [args.q_len, args.k_len];
        }
        let length = |starts: Ptr<'k, Global, u32>| {
            let from = starts.at(sequence);
            from.at(1).load_readonly() - from.load_readonly()
        };
        [length(args.q_starts), length(args.k_starts).min(args.k_len)]
    }

    /// Writes the line of a tile: of the blocks that its mask leaves those of whose first key `seen` holds.
    fn write<'k>(
        self,
        k: &Kernel<'k>,
        line: Ptr<'k, Global, u32>,
        mask: &TileMask<'k>,
        seen: impl Fn(Val<'k, u32>) -> Bool<'k>,
    ) {
        let blocks = mask.blocks(self.height, self.keys, 1);
        let (count, edges) = (k.var(0u32), k.var(0u32));
        k.for_step(0u32, blocks.count(), 32u32, |from| {
            let number = blocks.begin + (from + k.lane()).cast::<i32>();
            let key = k.var(0u32);
            let listed = k.var(false);
            k.if_(blocks.has(number), || {
                key.set(blocks.first_key(number));
                listed.set(seen(key.get()));
            });
            let all = listed.get().ballot();
            let before = all & ((k.c(1u32) << k.lane()) - 1);
            k.if_(listed.get(), || {
                let place = count.get() + before.count_ones();
                line.at(place + LINE_HEAD).store(key.get());
            });
            let at_edge = (listed.get() & blocks.at_edge(number)).ballot();
            count.update(|count| count + all.count_ones());
            edges.update(|edges| edges + at_edge.count_ones());
        });
        k.if_(k.lane().eq(0), || {
            line.at(0u32).store(count.get());
            line.at(1u32).store(edges.get());
        });
    }
}

/// The range of the documents of some keys, of which a warp has each lane look at some. No keys have the range of none.
fn documents_of<'k>(
    k: &Kernel<'k>,
    documents: Ptr<'k, Global, u32>,
    [first, end]: [Val<'k, u32>; 2],
) -> Range<'k> {
    let (low, high) = (k.var(u32::MAX), k.var(0u32));
    k.for_step(first + k.lane(), end, 32u32, |key| {
        let own = documents.at(key).load_readonly();
        low.update(|low| low.min(own));
        high.update(|high| high.max(own));
    });
    Range {
        low: low.get().group_min(Group::Warp),
        high: high.get().group_max(Group::Warp),
    }
}

/// Whether the documents of a block of keys may be some of a range.
fn meets<'k>(
    [low, high]: [SharedArray<'k, u32>; 2],
    block: Val<'k, u32>,
    own: Range<'k>,
) -> Bool<'k> {
    low.at(block).load().le(own.high) & high.at(block).load().ge(own.low)
}
