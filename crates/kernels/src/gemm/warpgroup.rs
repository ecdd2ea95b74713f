//! The mainloop on Hopper's warpgroups: one producer thread issues the tensor copies of stages, one
//! or two consumer warpgroups multiply them straight from shared memory.
//!
//! [`Tiling`] says how large a tile and a stage are. Of the two operands the left
//! one has the tile's rows and the right one its columns. The matrices are stored either way, in
//! rows that start at multiples of 16 bytes; elements past their edges are zero.

mod copies;
mod side;
mod sums;
mod turns;

use super::gather::{GATHERERS, Gather};
use super::pieces::Pieces;
use super::problem::Major;
use super::scales::BlockScales;
use super::tiling::{GROUP_ROWS, Registers, SPAN, Tiling};
use heist_builder::{
    Bool, BulkConsumer, BulkGatherer, BulkPipeline, BulkProducer, Kernel, SharedTile, TensorMapRef,
    TileLayout, TileSpec, Val, Var, WgmmaInput, WgmmaResult, f16,
};
use heist_sched::Pause;
pub(crate) use side::{Edge, Matrices, Peers, Side};
use turns::{PingPong, Turns};

/// The contents of a stage. Every element type is copied as bits, in rows of 128 bytes.
pub(crate) type Stage = (TileSpec<'static, f16>, TileSpec<'static, f16>);

/// A stage that has been filled.
type Staged<'k> = (SharedTile<'k, f16>, SharedTile<'k, f16>);

/// The stages of a block, for operands stored like this. Rows of the left one that are `gathered`
/// ([`Gather`]) are copied by the producer warpgroup. Behind the left one lie the `scaled` blocks' scales, where they come with their stage.
pub(crate) fn ring<'k>(
    k: &Kernel<'k>,
    tiling: &Tiling,
    [left, right]: [Major; 2],
    gathered: bool,
    scaled: bool,
) -> BulkPipeline<'k, Stage> {
    let spec = |name, outer, major, besides| {
        let rows = tiling.stage_rows(outer, major) + besides;
        TileSpec::new(name, rows, SPAN, TileLayout::Swizzled)
    };
    let besides = if scaled { tiling.scale_rows() } else { 0 };
    let stage = (
        spec("left", tiling.rows, left, besides),
        spec("right", tiling.cols, right, 0),
    );
    let consumers = tiling.sharing() * 4;
    match gathered {
        false => k.bulk_pipeline_among(tiling.stages, stage, consumers, tiling.cluster.count()),
        true => k.bulk_pipeline_gathered(tiling.stages, stage, consumers, GATHERERS),
    }
}

/// The producer's and the consumers' end of the ring. They are made once a block, and their state
/// continues from tile to tile.
pub(crate) struct Ends<'p, 'k> {
    k: Kernel<'k>,
    tiling: Tiling,
    producer: BulkProducer<'p, 'k, Stage>,
    consumer: BulkConsumer<'p, 'k, Stage>,
    gatherer: Option<BulkGatherer<'p, 'k, Stage>>,
    /// Stages of the next tile that are already in flight.
    ahead: Var<'k, u32>,
    /// How often the producer has filled a stage.
    filled: Var<'k, u32>,
    /// The number of this thread's warpgroup; the first one copies.
    group: Val<'k, u32>,
    /// How a tile is left half done, where it can be.
    pieces: Option<Pieces<'k>>,
    /// Whether the next launch may begin once this block has issued its last copies.
    lets_next: bool,
    /// Whether registers move once a block, or could, and not from tile to tile.
    moves_once: bool,
    /// Registers that the epilogue takes, more than others do.
    more: u32,
    /// Registers that the warpgroup that copies keeps at least: for a policy that is interpreted, or to leave a tile.
    copying: u32,
    /// Two warpgroups store one after the other, where they may be a tile apart.
    turns: Option<Turns<'k>>,
    /// Where each of two warpgroups has a tile of its own (ping-pong).
    pingpong: Option<PingPong<'k>>,
}

/// What a tile multiplies: two operands, and the steps of the depth.
#[derive(Clone, Copy)]
pub(crate) struct Factors<'k> {
    pub(crate) left: Side<'k>,
    pub(crate) right: Side<'k>,
    /// Where the left one's rows are, in a ring that gathers them.
    pub(crate) gather: Option<Gather<'k>>,
    /// The scales of blocks, where there are any ([`Levels::Scaled`]).
    pub(crate) scales: Option<BlockScales<'k>>,
    /// The first step, in stages.
    pub(crate) from: Val<'k, u32>,
    /// How many there are.
    pub(crate) steps: Val<'k, u32>,
    /// Rows of the tile that are of use, where some may not be: 64 that are none are not multiplied.
    pub(crate) used: Option<Val<'k, u32>>,
}

impl<'k> Factors<'k> {
    /// What is left once the first `done` steps are.
    fn after(self, done: Val<'k, u32>) -> Factors<'k> {
        Factors {
            from: self.from + done,
            steps: self.steps - done,
            ..self
        }
    }
}

/// What the warps do that run some code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// They are all warps of a block.
    Both,
    Copies,
    Multiplies,
}

/// How the products of a tile are added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Levels {
    /// By the tensor cores.
    One,
    /// A part of the depth by the tensor cores; then these sums in f32.
    Two,
    /// The same in parts of 128 bytes, whose sums are multiplied by the scales of their blocks.
    Scaled,
}

impl<'p, 'k> Ends<'p, 'k> {
    /// Both ends, for matrices of these maps, and of a ring that was made likewise.
    pub(crate) fn new(
        k: &Kernel<'k>,
        tiling: &Tiling,
        ring: &'p BulkPipeline<'k, Stage>,
        maps: &[TensorMapRef<'k, f16, 3>],
        gathered: bool,
    ) -> Ends<'p, 'k> {
        k.one_thread(|| maps.iter().for_each(TensorMapRef::prefetch));
        Ends {
            k: *k,
            tiling: *tiling,
            producer: ring.producer(),
            consumer: ring.consumer(),
            gatherer: gathered.then(|| ring.gatherer()),
            ahead: k.var(0u32).named("ahead"),
            filled: k.var(0u32).named("filled"),
            group: k.warp_uniform() / 4,
            pieces: None,
            lets_next: false,
            moves_once: false,
            more: 0,
            copying: 0,
            turns: None,
            pingpong: None,
        }
        .with_pingpong()
    }

    fn with_pingpong(self) -> Ends<'p, 'k> {
        let pingpong = self.tiling.pingpong.then(|| PingPong {
            next: self.k.var(1u32).named("next_group"),
            turns: Turns::new(&self.k, self.group),
        });
        Ends { pingpong, ..self }
    }

    /// The same, and its two warpgroups that multiply store in turns: where they may be a tile apart.
    pub(crate) fn in_turns(self, apart: bool) -> Ends<'p, 'k> {
        let turns = apart.then(|| Turns::new(&self.k, self.group));
        Ends { turns, ..self }
    }

    /// The same, and the next launch may begin once this block has issued its last copies.
    pub(crate) fn letting_next(self, lets_next: bool) -> Ends<'p, 'k> {
        Ends { lets_next, ..self }
    }

    /// The same where registers move once a block, or could: each role has a loop of its own, or a block has one tile.
    pub(crate) fn moving_once(self, moves_once: bool) -> Ends<'p, 'k> {
        Ends { moves_once, ..self }
    }

    /// The same with an epilogue that takes so many registers more than others.
    pub(crate) fn taking(self, more: u32) -> Ends<'p, 'k> {
        Ends { more, ..self }
    }

    /// The same where the warpgroup that copies keeps so many registers at least.
    pub(crate) fn copying_with(self, copying: u32) -> Ends<'p, 'k> {
        Ends { copying, ..self }
    }

    /// The same, and tiles can be left half done, unless rows are gathered.
    pub(crate) fn pausing(self, pause: Option<Pause<'k>>) -> Ends<'p, 'k> {
        let pieces = pause.map(|pause| Pieces::new(&self.k, &self.tiling, pause));
        Ends { pieces, ..self }
    }

    /// One tile, in warps of one role where each has a loop of its own: `store` receives 64 rows of a warpgroup's accumulators, the first of these
    /// rows in the tile, and what `ahead` read for them before the products, which is told whether they are the first that are stored. `next` begins the next
    /// tile, in the thread that copies, where that one is known.
    pub(crate) fn tile<H: WgmmaInput, A: Copy>(
        &self,
        role: Role,
        factors: Factors<'k>,
        levels: Levels,
        next: &dyn Fn(),
        ahead: impl Fn(Val<'k, u32>, bool) -> A,
        store: impl Fn(&WgmmaResult<'k>, Val<'k, u32>, A),
    ) {
        let k = self.k;
        let moved = self.moved(levels);
        let multiply = || self.multiply_tile::<H, A>(factors, levels, &ahead, &store);
        match role {
            Role::Copies => return self.copy_tile(factors, next),
            Role::Multiplies => {
                let Some(PingPong { next, turns }) = self.pingpong else {
                    return multiply();
                };
                let own = || {
                    turns.wait();
                    multiply();
                };
                // The stages of the other one's tile lie between.
                let skip = || self.consumer.skip(self.left_of(factors).steps);
                k.if_else(next.get().eq(self.group), own, skip);
                return next.update(|group| group ^ 3);
            }
            Role::Both => {}
        }
        k.if_else(
            self.copies(),
            || {
                if let Some(registers) = moved {
                    k.give_registers(registers.copying);
                }
                self.copy_tile(factors, next);
            },
            || {
                if let Some(registers) = moved {
                    k.take_registers(registers.multiplying);
                }
                multiply();
                if let Some(registers) = moved {
                    k.give_registers(registers.even);
                }
            },
        );
        if let Some(registers) = moved {
            // Not before they have been given back: the other warpgroup would take what is missing.
            k.sync();
            k.if_(self.copies(), || k.take_registers(registers.even));
        }
    }

    /// Whether this warp is of the warpgroup that copies.
    pub(crate) fn copies(&self) -> Bool<'k> {
        self.group.eq(0u32)
    }

    /// Sets of partial sums besides those of a tile.
    fn parts(&self, levels: Levels) -> u32 {
        match levels {
            Levels::One => 0,
            Levels::Scaled if self.pieces.is_none() && self.has_room() => self.tiling.parts(),
            Levels::Two | Levels::Scaled => 1,
        }
    }

    /// Whether a thread has the registers that it could have, or starts with those for two sets of partial sums.
    fn has_room(&self) -> bool {
        self.moves_once || self.tiling.moved(2).is_none()
    }

    fn moved(&self, levels: Levels) -> Option<Registers> {
        let moved = self.tiling.moved_beside(self.parts(levels), self.more);
        moved.map(|moved| self.tiling.keeping(moved, self.copying))
    }

    /// Moves registers for all tiles of a block, where warpgroups have a loop each ([`TileLoop::each_in_roles`]).
    ///
    /// [`TileLoop::each_in_roles`]: heist_sched::TileLoop::each_in_roles
    pub(crate) fn move_registers(&self, levels: Levels, role: Role) {
        // The last tiles' pieces take more registers.
        let cut = self.tiling.tail.then(|| self.tiling.movable()).flatten();
        let cut = cut.map(|moved| self.tiling.keeping(moved, self.copying));
        match (self.moved(levels).or(cut), role) {
            (Some(registers), Role::Copies) => self.k.give_registers(registers.copying),
            (Some(registers), Role::Multiplies) => self.k.take_registers(registers.multiplying),
            _ => {}
        }
    }

    /// In a warpgroup that multiplies: a tile's sums, as [`Ends::tile`] has them stored. Of its rows those 64 are left out of which none is of use.
    fn multiply_tile<H: WgmmaInput, A: Copy>(
        &self,
        factors: Factors<'k>,
        levels: Levels,
        ahead: impl Fn(Val<'k, u32>, bool) -> A,
        store: impl Fn(&WgmmaResult<'k>, Val<'k, u32>, A),
    ) {
        self.k.comment("the products");
        let multiply =
            |places: &[_]| self.multiply_rows::<H, A>(factors, levels, places, &ahead, &store);
        let places = self.places();
        match factors.used.filter(|_| self.pieces.is_none()) {
            None => multiply(&places),
            Some(used) => self.multiply_used(factors, used, &places, &multiply),
        }
    }

    /// As many of the 64 rows from each of `places` on as there are rows of use.
    fn multiply_used(
        &self,
        factors: Factors<'k>,
        used: Val<'k, u32>,
        places: &[Val<'k, u32>],
        multiply: &dyn Fn(&[Val<'k, u32>]),
    ) {
        match places.split_last() {
            None => self.pass_over(factors),
            Some((last, others)) => self.k.if_else(
                used.gt(*last),
                || multiply(places),
                || self.multiply_used(factors, used, others, multiply),
            ),
        }
    }

    /// Gives back the stages of a tile of which this warpgroup has no rows.
    fn pass_over(&self, factors: Factors<'k>) {
        self.k
            .for_range(0, factors.steps, |_| self.consumer.consume(|_| ()));
        if let Some(turns) = &self.turns {
            turns.take(|| ());
        }
    }

    /// The sums of 64 rows of a tile from each of `places` on.
    fn multiply_rows<H: WgmmaInput, A: Copy>(
        &self,
        factors: Factors<'k>,
        levels: Levels,
        places: &[Val<'k, u32>],
        ahead: &impl Fn(Val<'k, u32>, bool) -> A,
        store: &impl Fn(&WgmmaResult<'k>, Val<'k, u32>, A),
    ) {
        let each = places.iter().enumerate();
        let read: Vec<_> = each.map(|(at, row)| ahead(*row, at == 0)).collect();
        let factors = self.left_of(factors);
        let sums = match (levels, factors.scales) {
            (Levels::One, _) => self.in_one_level::<H>(factors, places),
            (Levels::Two, _) if places.len() == 1 => {
                vec![self.in_parts::<H>(factors, places[0])]
            }
            (Levels::Scaled, Some(scales)) if self.parts(levels) == 2 => {
                vec![self.in_two_parts::<H>(factors, places[0], scales)]
            }
            (Levels::Two | Levels::Scaled, _) => self.in_two_levels::<H>(factors, places),
        };
        let store = || {
            let all = || {
                for ((sums, row), read) in sums.iter().zip(places).zip(&read) {
                    store(sums, *row, *read);
                }
            };
            match &self.turns {
                None => all(),
                Some(turns) => turns.take(all),
            }
        };
        match &self.pieces {
            None => store(),
            Some(pieces) => pieces.save_or(&sums, store),
        }
    }

    /// What of a tile is still to be multiplied, in a warpgroup that multiplies.
    fn left_of(&self, factors: Factors<'k>) -> Factors<'k> {
        match &self.pieces {
            None => factors,
            Some(pieces) => factors.after(pieces.agreed()),
        }
    }

    /// The first of each 64 rows of a tile that this warpgroup multiplies.
    fn places(&self) -> Vec<Val<'k, u32>> {
        let rows = self.tiling.rows / self.tiling.sharing();
        let row = match self.pingpong {
            None => (self.group - 1) * rows,
            Some(_) => self.k.c(0),
        };
        let each = (0..rows / GROUP_ROWS).map(|part| row + part * GROUP_ROWS);
        each.collect()
    }

    /// Calls `body` with these, in the warpgroups that multiply.
    pub(crate) fn each_rows(&self, body: impl Fn(Val<'k, u32>)) {
        self.k.if_(self.group.ne(0u32), || {
            self.places().into_iter().for_each(&body);
        });
    }

    /// Waits until no copy is in flight, before the block exits.
    pub(crate) fn finish(&self) {
        let k = self.k;
        k.if_(self.group.eq(0u32), || {
            k.one_thread(|| {
                if self.lets_next {
                    k.launch_dependents();
                }
                self.producer.drain();
            });
            k.sync_warp();
        });
        if self.tiling.cluster.count() > 1 {
            k.comment("nobody leaves while a peer may reach its memory");
            k.cluster_sync();
        }
    }
}
