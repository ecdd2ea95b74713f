//! Work distribution: the key blocks of all tiles, numbered and dealt evenly to the blocks.
//!
//! A tile is the rows of one key head of one sequence, or of several that lie next to each other. Tiles are numbered sequence
//! by sequence, key head by key head (or in rounds, the first tiles of all key heads of all sequences first), and their key blocks are numbered consecutively: each is a
//! *unit*. Block `g` of the grid has units `g * share` to `(g + 1) * share`. At most one tile
//! continues from one share into the next, so two slots a block are enough for parts of tiles,
//! whatever the batch is.

use super::DecodeArgs;
use super::shape::{DecodeShape, Storage};
use crate::attention::mask::{MaskArgs, TileMask};
use crate::attention::problem::MaskKind;
use crate::attention::score::Scores;
use heist_builder::{Bool, Global, Group, Kernel, On, Ptr, Val, Var};

/// All work of a launch, as a warp sees it. Every lane of a warp takes part in
/// making it and in [`Work::locate`].
pub(super) struct Work<'a, 'k> {
    k: Kernel<'k>,
    shape: DecodeShape,
    args: DecodeArgs<On<'k>>,
    /// What a model adds.
    scores: Scores<'a, 'k>,
    /// Units of all sequences.
    pub(super) total: Val<'k, u32>,
    /// Units of a share.
    pub(super) share: Val<'k, u32>,
    /// Those of the first 32 sequences, where lengths are on the device.
    first: Option<First<'k>>,
}

/// The first sequences, one to a lane: most launches have no more, and find their work without reading lengths again.
#[derive(Clone, Copy)]
struct First<'k> {
    units: Val<'k, u32>,
    /// The units up to this lane's, and of all of them.
    ends: Val<'k, u32>,
    total: Val<'k, u32>,
}

/// How many times 32 sequences are read together.
const AT_ONCE: u32 = 4;

/// A sequence: where its rows are, and how many.
#[derive(Clone, Copy)]
pub(super) struct Sequence<'k> {
    pub(super) number: Val<'k, u32>,
    pub(super) q_start: Val<'k, u32>,
    pub(super) queries: Val<'k, u32>,
    pub(super) k_start: Val<'k, u32>,
    pub(super) keys: Val<'k, u32>,
    /// Keys that the cache has before the call: behind them come new ones.
    pub(super) held: Val<'k, u32>,
    /// Tiles of each key head, and the first row of the first one.
    tiles: Val<'k, u32>,
    first_row: Val<'k, u32>,
    /// The first key block that some row sees, and how many there are. A sequence
    /// without keys has one, of which nothing is seen: its results are zeros.
    pub(super) first_block: Val<'k, u32>,
    pub(super) blocks: Val<'k, u32>,
    prefix: Option<Prefix<'k>>,
}

/// The keys from the first on that every query sees.
#[derive(Clone, Copy)]
struct Prefix<'k> {
    keys: Val<'k, u32>,
    /// The key blocks that come before those of a window, whose first is then the block of
    /// that number.
    blocks: Val<'k, u32>,
}

/// A tile, or the part of it that is one block's.
#[derive(Clone, Copy)]
pub(super) struct Part<'k> {
    pub(super) sequence: Sequence<'k>,
    /// Its first row among the rows of each of its key heads.
    pub(super) first_row: Val<'k, u32>,
    /// Its key head, or the number of its key heads, where it has several.
    pub(super) kv_head: Val<'k, u32>,
    /// How many key heads it has, the rows of each, and whether these are of one query.
    heads: u32,
    head_rows: u32,
    one_query: bool,
    /// The tile's first unit.
    pub(super) tile_unit: Val<'k, u32>,
    /// The part's first unit.
    pub(super) unit: Val<'k, u32>,
    /// How many units it has.
    pub(super) count: Val<'k, u32>,
}

/// Where a tile is whose number is known.
pub(super) struct TileAt<'k> {
    /// Whether there are so many tiles.
    pub(super) is_there: Bool<'k>,
    /// Its sequence, and the first unit and the first tile of this one.
    pub(super) number: Val<'k, u32>,
    pub(super) base: Val<'k, u32>,
    pub(super) tiles: Val<'k, u32>,
}

impl<'k> Part<'k> {
    /// Rows of each of its key heads that there are, from its first on.
    pub(super) fn rows(&self, group: Val<'k, u32>) -> Val<'k, u32> {
        let all = self.sequence.queries * group;
        all.max(self.first_row) - self.first_row
    }

    /// Whether there is row `row` of the tile.
    pub(super) fn has(&self, args: &DecodeArgs<On<'k>>, row: Val<'k, u32>) -> Bool<'k> {
        self.own(row)[1].lt(self.rows(args.group))
    }

    /// Which of its key heads a row of the tile is of, and which row of this head it is.
    pub(super) fn own(&self, row: Val<'k, u32>) -> [Val<'k, u32>; 2] {
        match self.heads {
            1 => [row.kernel().c(0), row],
            _ => [row / self.head_rows, row % self.head_rows],
        }
    }

    /// The row of the tile that is the row number `number`, counting those alone that each head has `rows` of.
    pub(super) fn nth(&self, number: Val<'k, u32>, rows: Val<'k, u32>) -> Val<'k, u32> {
        match self.heads {
            1 => number,
            _ => number / rows * self.head_rows + number % rows,
        }
    }

    /// The key head of a row of the tile.
    pub(super) fn key_head(&self, row: Val<'k, u32>) -> Val<'k, u32> {
        self.kv_head * self.heads + self.own(row)[0]
    }

    /// The query head of row `row` of the tile.
    pub(super) fn head(&self, args: &DecodeArgs<On<'k>>, row: Val<'k, u32>) -> Val<'k, u32> {
        self.token(args, row)[1]
    }

    /// The query row and the head that a row of the tile is.
    fn token(&self, args: &DecodeArgs<On<'k>>, row: Val<'k, u32>) -> [Val<'k, u32>; 2] {
        let number = self.first_row + self.own(row)[1];
        let first = self.key_head(row) * args.group;
        if self.one_query {
            // Rows past the last are as good as the last: what a model has for each head is read for them, too.
            return [self.sequence.q_start, first + number.min(args.group - 1)];
        }
        let token = self.query_number(args, number);
        let head = first + (number - token * args.group);
        [self.sequence.q_start + token, head]
    }

    /// Which query of its sequence a row of a key head is, counted from the sequence's first row on.
    pub(super) fn query_number(
        &self,
        args: &DecodeArgs<On<'k>>,
        number: Val<'k, u32>,
    ) -> Val<'k, u32> {
        match self.one_query {
            true => number.kernel().c(0),
            false => number / args.group,
        }
    }

    /// Where a row of the tile is in the queries, counted in elements.
    pub(super) fn query(&self, args: &DecodeArgs<On<'k>>, row: Val<'k, u32>) -> Val<'k, u64> {
        let [at, head] = self.token(args, row);
        self.sequence.number.mul_wide(args.q_batch)
            + at.mul_wide(args.q_row)
            + head.mul_wide(args.q_head)
    }

    /// Where it is in the results, and its log-sum-exp.
    pub(super) fn result(
        &self,
        args: &DecodeArgs<On<'k>>,
        row: Val<'k, u32>,
    ) -> (Val<'k, u64>, Val<'k, u32>) {
        let [at, head] = self.token(args, row);
        let element = self.sequence.number.mul_wide(args.out_batch)
            + at.mul_wide(args.out_row)
            + head.mul_wide(args.out_head);
        let lse = self.sequence.number * args.lse_batch + head * args.lse_head + at;
        (element, lse)
    }

    /// Whether it is the whole tile.
    pub(super) fn whole(&self) -> Bool<'k> {
        self.unit.eq(self.tile_unit) & self.count.eq(self.sequence.blocks)
    }

    /// Where the part begins among the keys that are gone through.
    pub(super) fn first_key(&self, keys: u32) -> Val<'k, u32> {
        (self.sequence.first_block + (self.unit - self.tile_unit)) * keys
    }
}

impl<'k> Sequence<'k> {
    fn units(&self, kv_heads: Val<'k, u32>) -> Val<'k, u32> {
        kv_heads * self.tiles * self.blocks
    }

    /// Whether blocks that follow each other may have others between them.
    pub(super) fn jumps(&self) -> bool {
        self.prefix.is_some()
    }

    /// The first key of the block at `at`: before a window come the blocks of the prefix.
    pub(super) fn key(&self, at: Val<'k, u32>, keys: u32) -> Val<'k, u32> {
        let Some(Prefix { blocks, .. }) = self.prefix else {
            return at;
        };
        let first = self.first_block * keys;
        let ahead = blocks * keys;
        let past = at - first;
        past.lt(ahead).select(past, at - ahead)
    }

    /// Which of its keys which of its queries sees.
    pub(super) fn mask(&self, shape: &DecodeShape, args: &DecodeArgs<On<'k>>) -> TileMask<'k> {
        let k = self.queries.kernel();
        let mask = MaskArgs {
            kind: shape.mask,
            left: args.left,
            right: args.right,
            prefix: self.prefix.map(|prefix| prefix.keys),
        };
        TileMask::new(k.c(0), self.queries, self.keys, k.c(0), mask)
    }
}

impl<'a, 'k> Work<'a, 'k> {
    /// Before it is counted.
    pub(super) fn of(
        k: &Kernel<'k>,
        shape: &DecodeShape,
        args: &DecodeArgs<On<'k>>,
        scores: &Scores<'a, 'k>,
    ) -> Self {
        Work {
            k: *k,
            shape: *shape,
            args: *args,
            scores: *scores,
            total: k.c(0),
            share: k.c(0),
            first: None,
        }
    }

    pub(super) fn new(
        k: &Kernel<'k>,
        shape: &DecodeShape,
        args: &DecodeArgs<On<'k>>,
        scores: &Scores<'a, 'k>,
    ) -> Self {
        let mut work = Work::of(k, shape, args, scores);
        if !shape.ragged() {
            work.total = work.equal_units() * args.sequences * shape.rounds;
            return work.deal();
        }
        let [units, _] = work.of_lane(k.lane());
        let ends = up_to_lane(units);
        let first = First {
            units,
            ends,
            total: ends.shuffle_from(31),
        };
        let total = k.var(first.total);
        work.each_32(32, |[units, _], _| {
            total.update(|total| total + units.sum(Group::Warp));
        });
        (work.total, work.first) = (total.get(), Some(first));
        work.deal()
    }

    /// With the share of a block, when all work is counted.
    fn deal(mut self) -> Self {
        let even = (self.total + self.args.blocks - 1) / self.args.blocks;
        self.share = even.max(self.args.least).named("share");
        self
    }

    /// The same, and where the tile of that number is, where that hangs on lengths on the device: found while they are counted.
    pub(super) fn with_tile(
        k: &Kernel<'k>,
        shape: &DecodeShape,
        args: &DecodeArgs<On<'k>>,
        scores: &Scores<'a, 'k>,
        tile: Val<'k, u32>,
    ) -> (Self, Option<TileAt<'k>>) {
        if !shape.ragged() {
            return (Work::new(k, shape, args, scores), None);
        }
        let mut work = Work::of(k, shape, args, scores);
        let before = [k.var(0u32), k.var(0u32)];
        let (number, base, tiles) = (k.var(0u32), k.var(0u32), k.var(0u32));
        let found = k.var(false);
        let search = |own: [Val<'k, u32>; 2], of_lane: Val<'k, u32>| {
            let [unit_ends, tile_ends] = [0, 1].map(|at| before[at].get() + up_to_lane(own[at]));
            let past = tile_ends.gt(tile).ballot();
            k.if_(past.ne(0) & !found.get(), || {
                let lane = lowest(past);
                number.set(of_lane.shuffle_from(lane));
                base.set((unit_ends - own[0]).shuffle_from(lane));
                tiles.set((tile_ends - own[1]).shuffle_from(lane));
                found.set(true);
            });
            for (before, ends) in before.iter().zip([unit_ends, tile_ends]) {
                before.set(ends.shuffle_from(31));
            }
        };
        // Most launches have no more than the first ones.
        search(work.of_lane(k.lane()), k.lane());
        work.each_32(32, search);
        work.total = before[0].get();
        let at = TileAt {
            is_there: found.get(),
            number: number.get(),
            base: base.get(),
            tiles: tiles.get(),
        };
        (work.deal(), Some(at))
    }

    /// A length, a start or a page. Read-only loads are not for launches that begin before what wrote it has ended.
    pub(super) fn read(&self, from: Ptr<'k, Global, u32>) -> Val<'k, u32> {
        match self.shape.overlaps(self.scores.scoring) {
            true => from.load(),
            false => from.load_readonly(),
        }
    }

    /// Sequences, those of each round counted anew.
    fn sequences(&self) -> Val<'k, u32> {
        self.args.sequences * self.shape.rounds
    }

    /// Units of a sequence in a round, where all are alike: as many in each.
    fn equal_units(&self) -> Val<'k, u32> {
        self.sequence(self.k.c(0)).units(self.args.kv_heads)
    }

    /// A sequence, by its number. In later rounds it is one of those of the rounds before, with its next tile.
    pub(super) fn sequence(&self, number: Val<'k, u32>) -> Sequence<'k> {
        let (k, args) = (self.k, &self.args);
        let (number, round) = match self.shape.rounds {
            1 => (number, k.c(0)),
            _ => (number % args.sequences, number / args.sequences),
        };
        let (q_start, queries) = match self.shape.ragged() {
            false => (k.c(0), args.q_len),
            true => {
                let starts = args.q_starts.at(number);
                let start = self.read(starts);
                (start, self.read(starts.at(1)) - start)
            }
        };
        let (k_start, keys) = match self.shape.storage {
            Storage::Dense(_) => (k.c(0), args.k_len),
            Storage::Packed => {
                let starts = args.k_starts.at(number);
                let start = self.read(starts);
                (start, self.read(starts.at(1)) - start)
            }
            Storage::Paged(_) => (k.c(0), self.read(args.k_starts.at(number))),
        };
        let held = keys;
        let keys = match (self.shape.append, self.shape.storage) {
            // What the pages have no room for is left out.
            (Some(_), Storage::Paged(size)) => {
                (held + args.new).min(args.table_row * size).max(held)
            }
            _ => held,
        };
        let (first_block, mut blocks) = self.seen_blocks(queries, [held, keys]);
        let prefix = self.scores.prefix(number).map(|prefix| {
            let prefix = prefix.min(keys);
            let ahead = match self.shape.mask {
                MaskKind::Full | MaskKind::Causal => k.c(0),
                MaskKind::Window => prefix.div_ceil(self.shape.keys).min(first_block),
            };
            blocks = blocks + ahead;
            Prefix {
                keys: prefix,
                blocks: ahead,
            }
        });
        Sequence {
            number,
            q_start,
            queries,
            k_start,
            keys,
            held,
            tiles: match (self.shape.appends(), self.shape.rounds) {
                (false, 1) => (queries * args.group).div_ceil(self.shape.head_rows()),
                (false, _) => (queries * args.group)
                    .gt(round * self.shape.head_rows())
                    .to_u32(),
                // One, also without queries: it appends.
                (true, _) => k.c(1),
            },
            first_row: round * self.shape.head_rows(),
            first_block,
            blocks,
            prefix,
        }
    }

    /// The key blocks that some query sees, or that new keys are in: the first, and how many.
    fn seen_blocks(
        &self,
        queries: Val<'k, u32>,
        [held, keys]: [Val<'k, u32>; 2],
    ) -> (Val<'k, u32>, Val<'k, u32>) {
        let (k, width) = (self.k, self.shape.keys);
        let all = keys.cast::<i32>();
        let clamp = |key: Val<'k, i32>| key.max(0).min(all).cast::<u32>();
        let end = match self.shape.mask {
            MaskKind::Full | MaskKind::Causal => keys,
            MaskKind::Window => clamp(all + self.args.right),
        };
        let start = match self.shape.mask {
            MaskKind::Full | MaskKind::Causal => k.c(0),
            MaskKind::Window => clamp(all - queries.cast::<i32>() - self.args.left),
        };
        let start = match self.shape.appends() {
            false => start,
            true => start.min(held),
        };
        let first = start / width;
        let last = end.div_ceil(width).max(first + 1);
        (first, last - first)
    }

    /// The units and the tiles of a sequence, a number for each lane; none of those that there are not.
    fn of_lane(&self, number: Val<'k, u32>) -> [Val<'k, u32>; 2] {
        let (k, args) = (self.k, &self.args);
        let own = [k.var(0u32), k.var(0u32)];
        k.if_(number.lt(self.sequences()), || {
            let sequence = self.sequence(number);
            let tiles = args.kv_heads * sequence.tiles;
            own[0].set(tiles * sequence.blocks);
            own[1].set(tiles);
        });
        own.map(Var::get)
    }

    /// The same without a branch, behind which a load waits for the ones before it: the last sequence is read for those that there are not.
    fn of_lane_at_once(&self, number: Val<'k, u32>) -> [Val<'k, u32>; 2] {
        let (args, sequences) = (&self.args, self.sequences());
        let sequence = self.sequence(number.min(sequences - 1));
        let tiles = args.kv_heads * sequence.tiles;
        let there = number.lt(sequences);
        [tiles * sequence.blocks, tiles].map(|own| there.select(own, 0))
    }

    /// Calls `body` with the units and the tiles of 32 sequences at a time from one on, one to a lane, and the
    /// number of this lane's. The lengths of [`AT_ONCE`] times as many are asked for together.
    fn each_32(&self, from: u32, body: impl Fn([Val<'k, u32>; 2], Val<'k, u32>)) {
        let k = self.k;
        k.for_step(from, self.sequences(), 32 * AT_ONCE, |first| {
            let all: Vec<_> = (0..AT_ONCE)
                .map(|at| {
                    let number = first + 32 * at + k.lane();
                    (self.of_lane_at_once(number), number)
                })
                .collect();
            for (own, number) in all {
                body(own, number);
            }
        });
    }

    /// The sequence that a unit below the total is in, and that sequence's first
    /// unit.
    pub(super) fn locate(&self, unit: Val<'k, u32>) -> (Val<'k, u32>, Val<'k, u32>) {
        let k = self.k;
        if !self.shape.ragged() {
            let units = self.equal_units();
            let number = unit / units;
            return (number, number * units);
        }
        let (found, base) = (k.var(0u32), k.var(0u32));
        let search = |ends: Val<'k, u32>, units: Val<'k, u32>, number: Val<'k, u32>| {
            let past = ends.gt(unit).ballot();
            k.if_(past.ne(0), || {
                // The lowest lane whose sequence ends after the unit.
                let lane = lowest(past);
                found.set(number.shuffle_from(lane));
                base.set((ends - units).shuffle_from(lane));
            });
            past.ne(0)
        };
        let search_from = |from: u32, before: Val<'k, u32>| {
            let (before, searching) = (k.var(before), k.var(true));
            self.each_32(from, |[units, _], number| {
                k.if_(searching, || {
                    let ends = before.get() + up_to_lane(units);
                    searching.set(!search(ends, units, number));
                    before.set(ends.shuffle_from(31));
                });
            });
        };
        match self.first {
            None => search_from(0, k.c(0)),
            Some(first) => k.if_else(
                // Asked of the unit: by a flag that the search sets, and that the loop asks again, ptxas 13.0 takes that flag for set in all of the loop.
                unit.lt(first.total),
                || {
                    search(first.ends, first.units, k.lane());
                },
                || search_from(32, first.total),
            ),
        }
        (found.get(), base.get())
    }

    /// The tile of a unit of a sequence whose first unit is `base`, from the unit to
    /// the tile's end.
    fn part(&self, sequence: Sequence<'k>, base: Val<'k, u32>, unit: Val<'k, u32>) -> Part<'k> {
        let k = self.k;
        // A division takes as long as a branch and a load, and nothing is asked for before it is done, where lengths are on the device.
        let divided = |known: Bool<'k>,
                       quotient: Val<'k, u32>,
                       divide: &dyn Fn() -> Val<'k, u32>| {
            match self.shape.ragged() {
                false => divide(),
                true => k.if_value(known, || quotient, divide),
            }
        };
        let only = (self.args.kv_heads * sequence.tiles).eq(1);
        let tile = divided(only, k.c(0), &|| (unit - base) / sequence.blocks);
        let tile_unit = base + tile * sequence.blocks;
        let kv_head = divided(sequence.tiles.eq(1), tile, &|| tile / sequence.tiles);
        Part {
            sequence,
            first_row: sequence.first_row
                + (tile - kv_head * sequence.tiles) * self.shape.head_rows(),
            kv_head,
            heads: self.shape.heads,
            head_rows: self.shape.head_rows(),
            one_query: self.shape.one_query,
            tile_unit,
            unit,
            count: tile_unit + sequence.blocks - unit,
        }
    }

    /// The tile that a unit below the total is in, and the sequence whose unit it is
    /// is read anew. `number` and `base` are as [`Work::locate`] gives them.
    pub(super) fn tile(
        &self,
        (number, base): (Val<'k, u32>, Val<'k, u32>),
        unit: Val<'k, u32>,
    ) -> Part<'k> {
        self.part(self.sequence(number), base, unit)
    }

    /// The tile of that number.
    pub(super) fn tile_at(&self, at: &TileAt<'k>, tile: Val<'k, u32>) -> Part<'k> {
        let sequence = self.sequence(at.number);
        let unit = at.base + (tile - at.tiles) * sequence.blocks;
        self.part(sequence, at.base, unit)
    }

    /// This block's parts of tiles, one after the other. `at` is where its first unit
    /// is; nothing if it has none.
    pub(super) fn each_part(
        &self,
        at: (Val<'k, u32>, Val<'k, u32>),
        begin: Val<'k, u32>,
        body: impl Fn(&Part<'k>),
    ) {
        let k = self.k;
        let end = (begin + self.share).min(self.total);
        let (number, base, unit) = (k.var(at.0), k.var(at.1), k.var(begin));
        k.loop_(|flow| {
            flow.break_unless(unit.get().lt(end));
            let sequence = self.sequence(number.get());
            let units = sequence.units(self.args.kv_heads);
            let past = (unit.get() - base.get()).ge(units);
            k.if_(past, || {
                base.update(|base| base + units);
                number.update(|number| number + 1);
            });
            flow.continue_if(past);
            let part = self.part(sequence, base.get(), unit.get());
            let part = Part {
                count: part.count.min(end - part.unit),
                ..part
            };
            body(&part);
            unit.update(|unit| unit + part.count);
        });
    }
}

/// The sum of the numbers of all lanes up to this one.
fn up_to_lane<'k>(own: Val<'k, u32>) -> Val<'k, u32> {
    let lane = own.kernel().lane();
    [1u32, 2, 4, 8, 16].into_iter().fold(own, |sum, step| {
        lane.ge(step).select(sum + sum.shuffle_up(step), sum)
    })
}

/// The lowest lane of some.
fn lowest<'k>(lanes: Val<'k, u32>) -> Val<'k, u32> {
    ((lanes & (lanes.kernel().c(0u32) - lanes)) - 1).count_ones()
}
