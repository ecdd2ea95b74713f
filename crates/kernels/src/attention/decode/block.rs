//! The work of a block: a producer thread issues copies of keys and values, four or eight consumer warps
//! process them as they arrive.

use super::DecodeArgs;
use super::append;
use super::combine::{Level, Parts, by_last_block};
use super::rows::{Rows, prefetch_queries, scales};
use super::shape::{Combine, DecodeShape, PANEL, Spec, Storage};
use super::work::{Part, Work};
use crate::attention::meeting::Meeting;
use crate::attention::params::Element;
use crate::attention::problem::Layout;
use crate::attention::score::Scores;
use crate::overlap::overlap;
use heist_builder::{
    Bool, BulkConsumer, BulkPipeline, BulkProducer, Global, Kernel, Landing, On, Order, Ptr, Scope,
    SharedTile, TileSpec, Val, f16,
};
use std::ops::Range;

/// Works on a stage: its rows, the stage, its first key, and whether some rows do not see all of it.
type OnStage<'s, 'k, M> = &'s dyn Fn(&Rows<'k, M>, &SharedTile<'k, f16>, Val<'k, u32>, Bool<'k>);

/// The same for some rows.
type OnRows<'s, 'k> = &'s dyn Fn(&SharedTile<'k, f16>, Val<'k, u32>, Bool<'k>);

/// Puts new keys and values into a stage, of which this is the first key.
type OnNew<'s, 'k> = &'s dyn Fn(&SharedTile<'k, f16>, Val<'k, u32>);

/// The sequence of a share's first unit, and that sequence's first unit ([`Work::locate`]).
type Located<'k> = (Val<'k, u32>, Val<'k, u32>);

/// Registers of a thread that copies, and of one that multiplies, where warps have 32 rows.
const REGISTERS: [u32; 2] = [56, 224];

/// The kernel for queries and results of `T`, with products of `M`.
pub(super) fn emit<'k, T: Element, M: Element>(
    k: &Kernel<'k>,
    shape: &DecodeShape,
    args: &DecodeArgs<On<'k>>,
    scores: &Scores<'_, 'k>,
    combine: Combine,
    fill: &dyn Fn(&Part<'k>, &SharedTile<'k, M>),
    on_stage: OnStage<'_, 'k, M>,
) {
    let (ring, meeting) = k.barriers_together(|| {
        let (stages, stage, warps) = (shape.stages, shape.stage(), shape.warps);
        // Zeros are written to stages of packed and paged sequences, and racecheck has to see that nobody reads these any more.
        let ring = match shape.ragged() {
            true => k.bulk_pipeline_by_lanes(stages, stage, warps, shape.copiers()),
            false => k.bulk_pipeline_of(stages, stage, warps),
        };
        (ring, Meeting::of(k, "met", 1, shape.warps, &k.c(0)))
    });
    k.if_(k.thread_index().eq(32 * shape.warps), || {
        args.k.prefetch();
        args.v.prefetch();
    });
    let queries = k.tile(TileSpec::<M>::new(
        "q",
        shape.rows(),
        shape.head_dim,
        shape.query_layout(),
    ));
    if let Storage::Paged(_) = shape.storage {
        // While lengths are on their way: which of it this block needs hangs on them.
        prefetch_pages(k, args);
    }
    if shape.ragged() && shape.overlaps(scores.scoring) {
        prefetch_lengths(k, args);
        overlap(k);
    } else if shape.ragged() && combine == Combine::Launch {
        // All that was launched before has ended: the blocks that combine set out, and wait for the parts.
        k.launch_dependents();
    }
    let work = Work::new(k, shape, args, scores);
    let begin = (k.block().x * work.share).named("begin");
    let block = Block {
        k: *k,
        shape,
        args,
        scores,
        combine,
        ring: &ring,
        meeting: &meeting,
        queries: &queries,
        work: &work,
        begin,
        warp: k.warp_uniform(),
    };
    // Found before the launch before has ended, where nothing has to be read for it.
    let at = (!shape.ragged()).then(|| work.locate(begin));
    if let Some(at) = at {
        // They are on their way before the copies of keys, behind which they would wait.
        k.if_(begin.lt(work.total), || {
            prefetch_queries(shape, args, &work.tile(at, begin));
        });
    }
    k.if_(begin.lt(work.total), || {
        let at = at.unwrap_or_else(|| work.locate(begin));
        k.if_else(
            block.copies(),
            || block.copy(at),
            || block.multiply::<T>(at, fill, on_stage),
        );
    });
}

/// Brings the page table into the L2 cache, a line by each thread of the grid as far as they go.
fn prefetch_pages<'k>(k: &Kernel<'k>, args: &DecodeArgs<On<'k>>) {
    let entry = (k.block().x * k.block_dim().x + k.thread_index()) * 32;
    k.if_(entry.lt(args.sequences * args.table_row), || {
        args.pages.at(entry).prefetch();
    });
}

/// The same of the lengths, by each block.
fn prefetch_lengths<'k>(k: &Kernel<'k>, args: &DecodeArgs<On<'k>>) {
    let entry = k.thread_index() * 32;
    k.if_(entry.lt(args.sequences), || {
        args.k_starts.at(entry).prefetch();
        args.q_starts.at(entry).prefetch();
    });
}

/// A block with its share of the work.
struct Block<'a, 'k, M: Element> {
    k: Kernel<'k>,
    shape: &'a DecodeShape,
    args: &'a DecodeArgs<On<'k>>,
    scores: &'a Scores<'a, 'k>,
    combine: Combine,
    ring: &'a BulkPipeline<'k, Spec>,
    /// Where the warps that multiply meet.
    meeting: &'a Meeting<'k>,
    queries: &'a SharedTile<'k, M>,
    work: &'a Work<'a, 'k>,
    /// The first unit of its share.
    begin: Val<'k, u32>,
    warp: Val<'k, u32>,
}

impl<'k, M: Element> Block<'_, 'k, M> {
    /// Whether warps have so many rows that registers have to move to them.
    fn is_tall(&self) -> bool {
        self.shape.row_blocks > 1
    }

    /// Waits for the launch before, when a part's place is known: what that takes is over before that launch is. Behind the first part nothing is waited
    /// for.
    fn overlap(&self) {
        if !self.shape.ragged() && self.shape.overlaps(self.scores.scoring) {
            overlap(&self.k);
        }
    }

    /// Whether this warp copies, or is of the warpgroup that does.
    fn copies(&self) -> Bool<'k> {
        self.warp.ge(self.shape.warps)
    }

    /// In the warps that copy: one thread asks for the stages of all parts, or one for their keys and one for their values.
    fn copy(&self, at: Located<'k>) {
        let Block { k, shape, warp, .. } = *self;
        k.comment("the copies");
        if self.is_tall() {
            k.give_registers(REGISTERS[0]);
        }
        if self.is_tall() && shape.ragged() {
            k.if_(warp.ge(shape.warps + shape.copiers()), || {
                self.prefetch_all_queries()
            });
        }
        for number in 0..shape.copiers() {
            let own = shape.asks(warp, shape.warps + number);
            k.if_(own, || {
                let copies = Copies {
                    k,
                    shape,
                    args: self.args,
                    work: self.work,
                    fill: self.ring.producer(),
                    only: (shape.copiers() > 1).then_some(number),
                };
                self.work.each_part(at, self.begin, |part| {
                    self.overlap();
                    copies.part(part);
                    if shape.merges_in_stage() {
                        copies.alone(|| copies.fill.lend());
                    }
                });
                copies.alone(|| copies.fill.drain());
            });
        }
        k.sync_warp();
    }

    /// In the warps of all blocks that nothing else is to do for: the queries of all sequences come into the L2 cache. Asked for behind the copies, they
    /// would wait for as long as these take, and products that take as long as their copies do not catch up.
    fn prefetch_all_queries(&self) {
        let Block { k, shape, args, .. } = *self;
        let first = 32 * (shape.warps + shape.copiers());
        let each = shape.threads() - first;
        let line = k.block().x * each + (k.thread_index() - first);
        // A line of 128 bytes has 64 elements.
        let element = line.mul_wide(64u32);
        let rows = self.work.read(args.q_starts.at(args.sequences));
        k.if_(element.lt(rows.mul_wide(args.q_row)), || {
            args.q.at(element).prefetch();
        });
    }

    /// In the warps that multiply: the results of all parts.
    fn multiply<T: Element>(
        &self,
        at: Located<'k>,
        fill: &dyn Fn(&Part<'k>, &SharedTile<'k, M>),
        on_stage: OnStage<'_, 'k, M>,
    ) {
        let Block {
            k,
            shape,
            args,
            meeting,
            ..
        } = *self;
        k.comment("the products");
        if self.is_tall() {
            k.take_registers(REGISTERS[1]);
        }
        let stages = self.ring.consumer();
        self.work.each_part(at, self.begin, |part| {
            self.overlap();
            // Found before there is something to wait for, where there are registers to keep it in.
            let parts = self.is_tall().then(|| Parts::of(part, self.work.share));
            let own = (self.warp, scales(shape, args, part, self.warp));
            fill(part, self.queries);
            meeting.meet();
            let rows = Rows::<M>::new(&k, shape, args, self.scores, part, self.queries, own);
            let on_rows = |stage: &SharedTile<'k, f16>, first, masked| {
                on_stage(&rows, stage, first, masked);
            };
            let by = (k.thread_index(), 32 * shape.warps);
            let on_new = |stage: &SharedTile<'k, f16>, first| {
                append::into_stage::<T>(shape, args, part, (stage, first), by);
            };
            products(&k, shape, args, part, &stages, (&on_rows, &on_new), meeting);
            self.store::<T>(part, &rows, &stages);
            // Nobody reads what the next part's queries and sums replace.
            meeting.meet();
            if self.combine == Combine::LastBlock {
                k.if_(!part.whole(), || {
                    let parts = parts.unwrap_or_else(|| Parts::of(part, self.work.share));
                    combine_if_last::<T>(&k, shape, args, part, parts, meeting);
                });
            }
        });
    }

    /// Merges what the warps have of a part, in a stage that was lent for it where there is no other room, and stores it.
    fn store<T: Element>(
        &self,
        part: &Part<'k>,
        rows: &Rows<'k, M>,
        stages: &BulkConsumer<'_, 'k, Spec>,
    ) {
        let Block {
            k, shape, meeting, ..
        } = *self;
        let slot = slot(part, self.begin, k.block().x);
        let store = |lent: Option<&SharedTile<'k, f16>>| {
            let to = (self.warp, slot);
            let meet = || meeting.meet();
            rows.merge_and_store::<T>(self.args, self.scores, part, to, lent, meet);
        };
        match shape.merges_in_stage() {
            false => store(None),
            true => stages.consume(|stage| {
                if !shape.ragged() {
                    // One lane of a warp gave the stage back, and racecheck has to see that all have read it.
                    meeting.meet();
                }
                store(Some(&stage));
                k.fence_async_shared();
            }),
        }
    }
}

/// Where a block puts a part of a tile: the part that its share begins with, or the
/// one that it ends with.
pub(super) fn slot<'k>(part: &Part<'k>, begin: Val<'k, u32>, block: Val<'k, u32>) -> Val<'k, u32> {
    block * 2 + part.unit.ne(begin).to_u32()
}

/// Counts the parts of a tile that are written. The block that writes the last one
/// combines them, and sets the counter back for the next launch. Where lengths are on the device a tile may have
/// many parts: then the last of every few combines these, and the last of those what they have.
pub(super) fn combine_if_last<'k, T: Element>(
    k: &Kernel<'k>,
    shape: &DecodeShape,
    args: &DecodeArgs<On<'k>>,
    part: &Part<'k>,
    parts: Parts<'k>,
    meeting: &Meeting<'k>,
) {
    let written = k.shared::<u32>("written", 1);
    // Whether the block that counts here is the last.
    let count = |level: &Level<'k>| {
        let counter = args.counters.at(level.counter);
        k.if_(k.thread_index().eq(0), || {
            // What the block wrote before the meeting is seen by who sees the count, and by whom that one meets.
            let before = counter.atomic_add_with(Order::AcquireRelease, Scope::Gpu, 1u32);
            written.at(0).store(before);
        });
        meeting.meet();
        let last = (written.at(0).load() + 1).eq(level.parts.count);
        k.if_(last, || {
            by_last_block::<T>(k, shape, args, part, level);
            k.if_(k.thread_index().eq(0), || counter.store(0u32));
        });
        meeting.meet();
        last
    };
    if !shape.ragged() {
        count(&Level::only(parts));
        return;
    }
    let (counts, second) = (k.var(true), k.var(false));
    k.loop_(|flow| {
        flow.break_unless(counts.get());
        let level = parts.level(second.get(), k.block().x, args.blocks);
        let last = count(&level);
        counts.set(last & !level.is_last);
        second.set(true);
    });
}

/// Goes through the stages of a part.
fn products<'k>(
    k: &Kernel<'k>,
    shape: &DecodeShape,
    args: &DecodeArgs<On<'k>>,
    part: &Part<'k>,
    stages: &BulkConsumer<'_, 'k, Spec>,
    (work, on_new): (OnRows<'_, 'k>, OnNew<'_, 'k>),
    meeting: &Meeting<'k>,
) {
    let by_all = part
        .sequence
        .mask(shape, args)
        .seen_by_all(part.sequence.queries);
    let first = part.first_key(shape.keys);
    let end = first + part.count * shape.keys;
    k.for_step(first, end, shape.keys, |at| {
        let first = part.sequence.key(at, shape.keys);
        if shape.ragged() {
            // The values after the last key belong to another sequence, or to none, and are set to
            // zero: a weight of zero times an infinity is NaN. New ones are not in the cache yet.
            let inside = |keys: Val<'k, u32>| keys.max(first) - first;
            let copied = match shape.appends() {
                false => part.sequence.keys,
                true => part.sequence.held,
            };
            k.if_(inside(copied).lt(shape.keys), || {
                stages.peek(|stage| {
                    if shape.appends() {
                        on_new(&stage, first);
                    }
                    let inside = inside(part.sequence.keys).min(shape.keys);
                    let by = (k.thread_index(), 32 * shape.consumers());
                    clear_values(k, shape, &stage, inside, by);
                });
                k.fence_async_shared();
                meeting.meet();
            });
        }
        stages.consume(|stage| {
            let masked = !by_all.has_all(first, shape.keys);
            work(&stage, first, masked);
            // These reads come before the copy that fills the stage again.
            k.fence_async_shared();
        });
    });
}

/// Clears the values of a stage from row `inside` on: so many threads, of which this is number `thread`.
pub(super) fn clear_values<'k>(
    k: &Kernel<'k>,
    shape: &DecodeShape,
    stage: &SharedTile<'k, f16>,
    inside: Val<'k, u32>,
    (thread, threads): (Val<'k, u32>, u32),
) {
    let chunks = (k.c(shape.keys) - inside) * stage.chunks();
    k.for_step(thread, chunks, threads, |index| {
        let row = shape.row_of(inside + index / stage.chunks());
        for panel in 0..shape.panels() {
            let row = row + (shape.value_panel() * shape.keys + panel * shape.panel_rows());
            let chunk = stage.chunk(row, index % stage.chunks());
            chunk.cast::<u32>().store_vec([k.c(0u32); 4]);
        }
    });
}

impl DecodeShape {
    /// Whether copies look their pages up, which all threads of a warp do.
    pub(super) fn looks_up(&self) -> bool {
        matches!(self.storage, Storage::Paged(_))
    }

    /// Who runs the copies that are warp `number`'s: its first thread, or all of them where pages are looked up.
    pub(super) fn asks<'k>(&self, warp: Val<'k, u32>, number: u32) -> Bool<'k> {
        match self.looks_up() {
            true => warp.eq(number),
            false => warp.kernel().lane().eq(0) & warp.eq(number),
        }
    }
}

/// Who asks for copies.
pub(super) struct Copies<'a, 'p, 'k> {
    pub(super) k: Kernel<'k>,
    pub(super) shape: &'a DecodeShape,
    pub(super) args: &'a DecodeArgs<On<'k>>,
    pub(super) work: &'a Work<'a, 'k>,
    pub(super) fill: BulkProducer<'p, 'k, Spec>,
    /// Which of several it is: the even ones ask for keys alone, the odd ones for values, and where there are more than two, each for some pages.
    pub(super) only: Option<u32>,
}

impl<'k> Copies<'_, '_, 'k> {
    /// In the one thread of these that asks for copies.
    pub(super) fn alone(&self, ask: impl Fn()) {
        match self.shape.looks_up() {
            true => self.k.if_(self.k.lane().eq(0), ask),
            false => ask(),
        }
    }

    /// Asks for the key blocks of a part and their values.
    pub(super) fn part(&self, part: &Part<'k>) {
        let (k, keys) = (self.k, self.shape.keys);
        let first = part.first_key(keys);
        let end = first + part.count * keys;
        let Storage::Paged(size) = self.shape.storage else {
            return k.for_step(first, end, keys, |at| {
                let key = part.sequence.key(at, keys);
                let row = match self.shape.twins {
                    false => key,
                    true => key / 2,
                };
                self.stage(part, |_| (row, None));
            });
        };
        let pages = Pages {
            work: self.work,
            table: self
                .args
                .pages
                .at(part.sequence.number.mul_wide(self.args.table_row)),
            last: (part.sequence.keys.max(1) - 1) / size,
        };
        let own = self.own_copies();
        // A stage has pages of one line alone: as many as divide a line.
        let stage = |key: Val<'k, u32>, line: Val<'k, u32>| {
            let page = |at| line.shuffle_from((key / size + at) % LINE);
            let pages: Vec<_> = own.clone().map(page).collect();
            self.alone(|| {
                self.stage(part, |at| {
                    let row = key + at * self.shape.copied_rows();
                    (row % size, Some(pages[(at - own.start) as usize]))
                });
            });
        };
        if part.sequence.jumps() {
            // Behind the keys of a prefix comes a window: which line is next is not known.
            return k.for_step(first, end, keys, |at| {
                let key = part.sequence.key(at, keys);
                stage(key, pages.load(key / (LINE * size)));
            });
        }
        let (at, next) = (k.var(first), k.var(pages.load(first / (LINE * size))));
        k.loop_(|flow| {
            flow.break_unless(at.get().lt(end));
            let number = at.get() / (LINE * size) + 1;
            let line = next.get();
            next.set(pages.load(number));
            let last = (number * (LINE * size)).min(end);
            k.for_step(at.get(), last, keys, |key| stage(key, line));
            at.set(last);
        });
    }

    /// The copies of a stage's keys, or of its values, that are this thread's.
    fn own_copies(&self) -> Range<u32> {
        let all = self.shape.key_rows() / self.shape.copied_rows();
        let each = all / (self.shape.copiers() / 2).max(1);
        let first = self.only.map_or(0, |only| only / 2 * each);
        first..first + each
    }

    /// Asks for one stage. `at` says of each copy which row it begins at, and of
    /// which page.
    fn stage(&self, part: &Part<'k>, at: impl Fn(u32) -> (Val<'k, u32>, Option<Val<'k, u32>>)) {
        let (k, shape) = (self.k, self.shape);
        let height = shape.copied_rows();
        let head = part.kv_head.cast::<i32>();
        self.fill.fill(|copies, to: Landing<'k, f16>| {
            let own = self.own_copies();
            for copy in own {
                let (row, page) = at(copy);
                let row = (part.sequence.k_start + row).cast::<i32>();
                let both = [(0, self.args.k), (1, self.args.v)];
                let tensors = (shape.stage_panels() / shape.panels()) as usize;
                let (joined, panels) = match shape.joins_panels() {
                    true => (shape.panels(), 1),
                    false => (1, shape.panels()),
                };
                let all = both.into_iter().take(tensors);
                let own = all.filter(|(which, _)| self.only.is_none_or(|only| only % 2 == *which));
                for (which, from) in own {
                    for panel in 0..panels {
                        let panel_row = (which * shape.panels() + panel) * shape.key_rows();
                        let first = panel_row + copy * joined * height;
                        let to = to.part(first * PANEL, joined * height * PANEL);
                        let element = k.c((panel * shape.panel()) as i32);
                        let page = page.unwrap_or(k.c(0)).cast();
                        let at = match shape.storage {
                            Storage::Dense(Layout::Heads) => {
                                [element, row, head, part.sequence.number.cast()]
                            }
                            Storage::Dense(Layout::Rows) if joined > 1 => {
                                let sequence = part.sequence.number.cast();
                                [k.c(0), row, head * joined as i32, sequence]
                            }
                            Storage::Dense(Layout::Rows) => {
                                [element, head, row, part.sequence.number.cast()]
                            }
                            _ if joined > 1 => [k.c(0), row, head * joined as i32, page],
                            _ => [element, head, row, page],
                        };
                        copies.copy_tensor(to, from, at);
                    }
                }
            }
        });
    }
}

/// Entries of a line of a page table: one for each lane.
const LINE: u32 = 32;

/// The page table of a sequence, of which a warp reads lines: one while the pages of the line before it are copied. Keys that stream through the L2
/// cache drive the table out of it, so that an entry takes as long to come as the keys that were asked for before it: several stages.
struct Pages<'a, 'k> {
    work: &'a Work<'a, 'k>,
    table: Ptr<'k, Global, u32>,
    /// The last page that has keys.
    last: Val<'k, u32>,
}

impl<'k> Pages<'_, 'k> {
    /// This lane's entry of a line.
    fn load(&self, line: Val<'k, u32>) -> Val<'k, u32> {
        let page = (line * LINE + line.kernel().lane()).min(self.last);
        self.work.read(self.table.at(page))
    }
}
