//! The mainloop on Hopper's warpgroups: one producer thread issues the tensor copies of stages, one
//! or two consumer warpgroups multiply them straight from shared memory.
//!
//! [`Tiling`] says how large a tile and a stage are. Of the two operands the left
//! one has the tile's rows and the right one its columns. The matrices are stored either way, in
//! rows that start at multiples of 16 bytes; elements past their edges are zero.

use super::gather::{GATHERERS, Gather};
use super::kernel::left;
use super::pieces::Pieces;
use super::problem::Major;
use super::scales::{BlockScales, Fetched};
use super::tiling::{GROUP_ROWS, Registers, SPAN, Tiling};
use heist_builder::{
    BarrierSpec, Bool, BulkConsumer, BulkGatherer, BulkPipeline, BulkProducer, Kernel, Landing,
    Mbarrier, Ptr, Shared, SharedTile, TensorMapRef, TileLayout, TileSpec, Transaction, Val, Var,
    WgmmaInput, WgmmaOperand, WgmmaResult, WgmmaSums, f16,
};
use heist_launch::{Arg, BufferRef, L2Promotion, Swizzle, TensorElement, TensorMap};
use heist_sched::Pause;

/// How many times 128 bytes of the depth are added by the tensor cores before f32, where sums in two
/// levels have no scales: the error stays that of rounding results to halves (1.7e-3 of the norm), as
/// with 128 bytes.
const PART: u32 = 4;

/// The contents of a stage. Every element type is copied as bits, in rows of 128 bytes.
type Stage = (TileSpec<'static, f16>, TileSpec<'static, f16>);

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
    /// Two warpgroups store one after the other, where they may be a tile apart.
    turns: Option<Turns<'k>>,
    /// Where each of two warpgroups has a tile of its own (ping-pong).
    pingpong: Option<PingPong<'k>>,
}

/// Two warpgroups that take tiles in turns. Each multiplies only once the other has seen all stages of its tile before: a
/// barrier has two phases, so whoever has passed over stages must not look at them before the other has.
#[derive(Clone, Copy)]
struct PingPong<'k> {
    /// The warpgroup whose tile is next.
    next: Var<'k, u32>,
    turns: Turns<'k>,
}

/// Two warpgroups that store their sums in turns, the first one first. So one of them multiplies the next tile
/// while the other stores, and stays ahead of it by as much.
#[derive(Clone, Copy)]
struct Turns<'k> {
    /// Where this warpgroup waits for its turn.
    own: Mbarrier<'k>,
    parity: Var<'k, u32>,
    /// Where the other one does.
    other: Mbarrier<'k>,
}

impl<'k> Turns<'k> {
    /// In the warpgroups numbered 1 and 2.
    fn new(k: &Kernel<'k>, group: Val<'k, u32>) -> Turns<'k> {
        let [turns] = k.mbarriers([BarrierSpec {
            name: "turn",
            count: 2,
            arrivals: 128,
        }]);
        let first = group.eq(1u32);
        Turns {
            own: turns.at(first.select(0u32, 1u32)),
            // The phase before the first counts as ended: the first turn is there.
            parity: k.var(first.select(1u32, 0u32)).named("turn_parity"),
            other: turns.at(first.select(1u32, 0u32)),
        }
    }

    /// Waits for this warpgroup's turn, does something, and gives the turn to the other.
    fn take(&self, work: impl FnOnce()) {
        self.wait();
        work();
        self.give();
    }

    fn wait(&self) {
        self.own.wait(self.parity.get());
        self.parity.update(|parity| parity ^ 1);
    }

    fn give(&self) {
        self.other.arrive();
    }
}

/// One of the two operands as the copy engine knows it, and where a tile begins
/// in it.
#[derive(Clone, Copy)]
pub(crate) struct Side<'k> {
    /// Of several matrices of the same shape.
    pub(crate) map: TensorMapRef<'k, f16, 3>,
    pub(crate) major: Major,
    /// Which of them.
    pub(crate) number: Val<'k, u32>,
    /// The first of the tile's rows, or columns.
    pub(crate) first: Val<'k, u32>,
    /// Elements in 128 bytes.
    pub(crate) span: u32,
    /// Where the second half of the tile's rows or columns begins, behind the first: a gated pair's
    /// halves lie apart, and a tile has as many of one as of the other.
    pub(crate) apart: Option<Val<'k, u32>>,
    /// How the rows or columns of the last tile are copied, where some would lie outside.
    pub(crate) edge: Option<Edge<'k>>,
}

/// The copies of the last tile, whose box ends where the matrix does. The copy engine takes three times as long and more for a row
/// outside as for one inside, and a wave waits for its slowest tile. The rest of a stage keeps what it had, which reaches
/// only sums that nobody stores; the first time it gets the zeros.
#[derive(Clone, Copy)]
pub(crate) struct Edge<'k> {
    pub(crate) map: TensorMapRef<'k, f16, 3>,
    /// How many rows, or columns, the matrix has.
    pub(crate) all: Val<'k, u32>,
    /// Whether each tile has some, and this block copies all of them: no copy lies outside as a whole.
    pub(crate) whole: bool,
}

/// What a tile multiplies: two operands, and the steps of the depth.
#[derive(Clone, Copy)]
pub(crate) struct Factors<'k> {
    pub(crate) left: Side<'k>,
    pub(crate) right: Side<'k>,
    /// Where the left one's rows are, in a ring that gathers them.
    pub(crate) gather: Option<Gather<'k>>,
    /// What comes with each stage besides.
    pub(crate) scales: Option<BlockScales<'k>>,
    /// The first step, in stages.
    pub(crate) from: Val<'k, u32>,
    /// How many there are.
    pub(crate) steps: Val<'k, u32>,
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
// It is copied a few times while a kernel is built, and never kept.
#[allow(clippy::large_enum_variant)]
#[derive(Clone, Copy)]
pub(crate) enum Levels<'k> {
    /// By the tensor cores.
    One,
    /// A part of the depth by the tensor cores; then these sums in f32. Parts are 128 bytes where
    /// blocks have scales, which their sums are multiplied by, and [`PART`] times as many where not.
    Two(Option<BlockScales<'k>>),
}

/// Blocks of a cluster that have an operand in common.
#[derive(Clone, Copy)]
pub(crate) struct Peers<'k> {
    /// How many.
    pub(crate) count: u32,
    /// Which of them this one is.
    pub(crate) number: Val<'k, u32>,
    /// Their ranks, a bit for each.
    pub(crate) ranks: Val<'k, u16>,
}

impl<'k> Peers<'k> {
    /// The blocks with the same rows and those with the same columns, in clusters of so many tiles down and across.
    fn of_tile(k: &Kernel<'k>, [down, across]: [u32; 2]) -> [Peers<'k>; 2] {
        if down == 1 || across == 1 {
            return [across, down].map(|count| Peers::first(k, count));
        }
        // Ranks go along the rows of tiles.
        let rank = k.cluster_rank();
        let (row, col) = (rank / across, rank % across);
        let column = (0..down).fold(0, |ranks, row| ranks | 1u32 << (row * across));
        let of = |count: u32, number, ranks: Val<'k, u32>| Peers {
            count,
            number,
            ranks: ranks.cast(),
        };
        [
            of(across, col, k.c((1u32 << across) - 1) << (row * across)),
            of(down, row, k.c(column) << col),
        ]
    }

    /// The first blocks of the cluster, or this one alone.
    pub(crate) fn first(k: &Kernel<'k>, count: u32) -> Peers<'k> {
        Peers {
            count,
            number: match count {
                1 => k.c(0),
                _ => k.cluster_rank(),
            },
            ranks: k.c(((1u32 << count) - 1) as u16),
        }
    }
}

impl<'k> Side<'k> {
    /// The same as it is copied, and the bytes that a stage of this depth lacks then: the last tiles lack some, in stages that were
    /// `written` before.
    fn ending(
        self,
        written: Val<'k, bool>,
        outer: u32,
        depth: u32,
        peers: &Peers<'k>,
    ) -> (Side<'k>, Option<Val<'k, u32>>) {
        let Some(edge) = self.edge else {
            return (self, None);
        };
        let inside = left(edge.all, self.first).min(outer);
        // Each of its peers copies so many, and this block those from `own` on.
        let high = outer / peers.count;
        let own = peers.number * high;
        let ends = written & inside.lt(own + high);
        let map = self.map.or_edge(ends, edge.map);
        let map = match edge.whole {
            true => map,
            false => map.only_if(inside.gt(own) | !written),
        };
        let less = (self.first.kernel().c(outer) - inside) * (128 * (depth / SPAN));
        let less = written.select(less, 0u32);
        (Side { map, ..self }, Some(less))
    }

    /// Issues the copies of the part of a stage that is `at` deep in the matrix, in pieces as wide
    /// as the swizzle: side by side along the depth, or across it. An operand that `peers`
    /// share is multicast: each block copies its part for all.
    pub(crate) fn copy(
        &self,
        copies: &Transaction<'k>,
        to: Landing<'k, f16>,
        outer: u32,
        depth: u32,
        at: Val<'k, u32>,
        peers: Peers<'k>,
    ) {
        let Peers {
            count: peers,
            number: rank,
            ranks,
        } = peers;
        let (pieces, len) = match self.major {
            Major::Depth => (depth / SPAN, outer * SPAN),
            Major::Outer => (outer.div_ceil(SPAN), depth * SPAN),
        };
        let send = |to: Landing<'k, f16>, [inner, outer]: [Val<'k, u32>; 2]| {
            let place = [inner, outer, self.number].map(|at| at.cast::<i32>());
            match peers {
                1 => copies.copy_tensor(to, self.map, place),
                _ => {
                    copies.copy_tensor_multicast(to, self.map, place, ranks);
                    copies.expect(to.bytes() * (peers - 1));
                }
            }
        };
        let halves = 1 + u32::from(self.apart.is_some());
        let begin = |half: u32| match self.apart {
            Some(apart) if half > 0 => self.first + apart,
            _ => self.first,
        };
        match self.major {
            Major::Depth if halves > 1 => {
                let high = outer / halves;
                for (piece, half) in (0..pieces).flat_map(|piece| [(piece, 0), (piece, 1)]) {
                    let to = to.part(piece * len + half * high * SPAN, high * SPAN);
                    send(to, [at + piece * self.span, begin(half)]);
                }
            }
            Major::Depth => {
                let high = outer / peers;
                for piece in 0..pieces {
                    let to = to
                        .part(piece * len, len)
                        .part_at(rank * (high * SPAN), high * SPAN);
                    send(to, [at + piece * self.span, self.first + rank * high]);
                }
            }
            Major::Outer => {
                let own = pieces / peers;
                let each = own / halves;
                for piece in 0..own {
                    let number = rank * own + piece;
                    let to = to.part_at(number * len, len);
                    let half = piece / each.max(1);
                    let column = rank * own + (piece - half * each);
                    send(to, [begin(half) + column * self.span, at]);
                }
            }
        }
    }

    /// The steps, each 16 deep, of what a stage has from row or column `at` on: a
    /// multiple of 64.
    fn operands<H: WgmmaInput>(
        &self,
        tile: SharedTile<'k, f16>,
        at: Val<'k, u32>,
        outer: u32,
        depth: u32,
    ) -> Vec<WgmmaOperand<'k, H>> {
        let tile = tile.retyped::<H::Stored>();
        let steps = |operand: WgmmaOperand<'k, H>, count: u32| {
            (0..count).map(move |step| operand.step(step))
        };
        match self.major {
            Major::Depth => (0..depth / SPAN)
                .flat_map(|piece| steps(tile.wgmma_operand_of(at + piece * outer), SPAN / 16))
                .collect(),
            Major::Outer => {
                steps(tile.wgmma_operand_across_of(at / SPAN, depth), depth / 16).collect()
            }
        }
    }
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

    /// The same, and tiles can be left half done, unless rows are gathered.
    pub(crate) fn pausing(self, pause: Option<Pause<'k>>) -> Ends<'p, 'k> {
        let pieces = pause.map(|pause| Pieces::new(&self.k, &self.tiling, pause));
        Ends { pieces, ..self }
    }

    /// One tile: `store` receives 64 rows of a warpgroup's accumulators, the first of these
    /// rows in the tile, and what `ahead` read for them before the products. `next` begins the next
    /// tile, in the thread that copies, where that one is known.
    pub(crate) fn tile<H: WgmmaInput, A: Copy>(
        &self,
        factors: Factors<'k>,
        levels: Levels<'k>,
        next: &dyn Fn(),
        ahead: impl Fn(Val<'k, u32>) -> A,
        store: impl Fn(&WgmmaResult<'k>, Val<'k, u32>, A),
    ) {
        self.tile_as::<H, A>(Role::Both, factors, levels, next, ahead, store);
    }

    /// The same for warps of one role, where each has a loop of its own.
    pub(crate) fn tile_as<H: WgmmaInput, A: Copy>(
        &self,
        role: Role,
        factors: Factors<'k>,
        levels: Levels<'k>,
        next: &dyn Fn(),
        ahead: impl Fn(Val<'k, u32>) -> A,
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
                let skip = || self.consumer.skip(factors.steps);
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
    fn parts(&self, levels: Levels<'k>) -> u32 {
        match levels {
            Levels::One => 0,
            Levels::Two(Some(_)) if self.pieces.is_none() => self.tiling.parts(),
            Levels::Two(_) => 1,
        }
    }

    fn moved(&self, levels: Levels<'k>) -> Option<Registers> {
        self.tiling.moved(self.parts(levels))
    }

    /// Moves registers for all tiles of a block, where warpgroups have a loop each ([`TileLoop::each_in_roles`]).
    ///
    /// [`TileLoop::each_in_roles`]: heist_sched::TileLoop::each_in_roles
    pub(crate) fn move_registers(&self, levels: Levels<'k>, role: Role) {
        // The last tiles' pieces take more registers.
        let cut = self.tiling.tail.then(|| self.tiling.movable()).flatten();
        match (self.moved(levels).or(cut), role) {
            (Some(registers), Role::Copies) => self.k.give_registers(registers.copying),
            (Some(registers), Role::Multiplies) => self.k.take_registers(registers.multiplying),
            _ => {}
        }
    }

    /// In the warpgroup that copies: a tile's stages. `next` begins the next tile.
    fn copy_tile(&self, factors: Factors<'k>, next: &dyn Fn()) {
        let k = self.k;
        k.comment("the copies");
        match factors.gather {
            None => {
                k.one_thread(|| {
                    match &self.pieces {
                        None => self.fill(factors, self.ahead.get(), factors.steps),
                        Some(pieces) => self.fill_until_asked(pieces, factors),
                    }
                    self.ahead.set(0u32);
                    next();
                });
                k.sync_warp();
            }
            Some(gather) => {
                self.gather(factors, gather);
                k.one_thread(next);
                k.sync_warp();
            }
        }
    }

    /// In a warpgroup that multiplies: a tile's sums, as [`Ends::tile`] has them stored.
    fn multiply_tile<H: WgmmaInput, A: Copy>(
        &self,
        factors: Factors<'k>,
        levels: Levels<'k>,
        ahead: impl Fn(Val<'k, u32>) -> A,
        store: impl Fn(&WgmmaResult<'k>, Val<'k, u32>, A),
    ) {
        let k = self.k;
        k.comment("the products");
        let places = self.places();
        let read: Vec<_> = places.iter().map(|row| ahead(*row)).collect();
        let factors = match &self.pieces {
            None => factors,
            Some(pieces) => factors.after(pieces.agreed()),
        };
        let sums = match levels {
            Levels::One => self.in_one_level::<H>(factors, &places),
            Levels::Two(None) if places.len() == 1 => {
                vec![self.in_parts::<H>(factors, places[0])]
            }
            Levels::Two(Some(scales)) if self.parts(levels) == 2 => {
                vec![self.in_two_parts::<H>(factors, places[0], scales)]
            }
            Levels::Two(scales) => self.in_two_levels::<H>(factors, &places, scales),
        };
        let store = || {
            let all = || {
                for ((sums, row), read) in sums.iter().zip(&places).zip(&read) {
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

    /// The accumulators of 64 rows from each of `rows` on, added by the tensor cores.
    fn in_one_level<H: WgmmaInput>(
        &self,
        factors: Factors<'k>,
        rows: &[Val<'k, u32>],
    ) -> Vec<WgmmaResult<'k>> {
        let k = self.k;
        let sums: Vec<_> = rows
            .iter()
            .map(|_| WgmmaSums::zero(&k, self.tiling.cols))
            .collect();
        let multiply = || {
            self.each_step(factors, |_| {
                self.consumer.consume_lagging(|stage| {
                    if factors.gather.is_some() {
                        // What threads copied becomes visible to the tensor cores.
                        k.fence_async_shared();
                    }
                    for (sums, row) in sums.iter().zip(rows) {
                        self.multiply::<H>(factors, stage, sums, *row, false);
                    }
                    // The products before have ended: their stage can be released.
                    sums[0].wait_for_older(rows.len() as u32);
                });
            });
        };
        match &self.pieces {
            None => multiply(),
            // Twice: the assembler waits for each product of a loop whose sums may have been
            // loaded.
            Some(pieces) => k.if_else(
                pieces.agreed().ne(0),
                || {
                    pieces.restore(sums.iter().flat_map(WgmmaSums::vars));
                    multiply();
                    sums[0].wait_for_older(0);
                },
                || {
                    multiply();
                    sums[0].wait_for_older(0);
                },
            ),
        }
        if let Some(pingpong) = &self.pingpong {
            // All stages have come, and the last products are on their way.
            pingpong.turns.give();
        }
        let sums = sums.into_iter().map(WgmmaSums::finish).collect();
        self.consumer.release_last();
        sums
    }

    /// The same in two levels without scales: [`PART`] times 128 bytes of the depth by the tensor
    /// cores, whose sums have 13 bits of fraction, then f32. Inside of a part products follow each
    /// other without a wait.
    fn in_parts<H: WgmmaInput>(&self, factors: Factors<'k>, row: Val<'k, u32>) -> WgmmaResult<'k> {
        let k = self.k;
        let Tiling { cols, depth, .. } = self.tiling;
        let part = WgmmaSums::zero(&k, cols);
        let total = WgmmaResult::zero(&k, cols);
        let stage = |fresh| {
            self.consumer.consume_lagging(|stage| {
                self.multiply::<H>(factors, stage, &part, row, fresh);
                part.wait_for_older(1);
            });
        };
        let add = || part.add_to(&total, 0, |_| None);
        let stages = PART / (depth / SPAN);
        self.restore(total.vars());
        self.each_piece(factors, |from, to| {
            let whole = (to - from) / stages;
            k.for_range(0, whole, |_| {
                (0..stages).for_each(|at| stage(at == 0));
                add();
            });
            k.for_range(from + whole * stages, to, |_| {
                stage(true);
                add();
            });
        });
        self.consumer.release_last();
        total
    }

    /// The same in two levels with scales of blocks, and two sets of partial sums: while a warpgroup adds up one of
    /// them, the tensor cores work on the other.
    fn in_two_parts<H: WgmmaInput>(
        &self,
        factors: Factors<'k>,
        row: Val<'k, u32>,
        scales: BlockScales<'k>,
    ) -> WgmmaResult<'k> {
        let k = self.k;
        let cols = self.tiling.cols;
        let parts = [0, 1].map(|_| WgmmaSums::zero(&k, cols));
        let total = WgmmaResult::zero(&k, cols);
        let place = [factors.left.first + row, factors.right.first];
        let fetched = [0, 1].map(|_| scales.room(&k, place, cols));
        // Asks for the products of a stage; those before have ended then.
        let ask = |part: usize, before: bool| {
            self.consumer.consume_lagging(|stage| {
                self.products::<H>(factors, stage, &parts[part], row, 0);
                if before {
                    parts[part].wait_for_older(1);
                }
            });
        };
        // Adds up the block whose scales have been fetched, and fetches those of the block after the next.
        let add = |block: Val<'k, u32>, part: usize, ask: &dyn Fn()| {
            let by = scales.factors(&fetched[part]);
            scales.fetch(&fetched[part], block + 2);
            ask();
            parts[part].add_to(&total, 1, |at| Some(by.block(at)));
        };
        let last = |part: usize| {
            let by = scales.factors(&fetched[part]);
            parts[part].add_to(&total, 0, |at| Some(by.block(at)));
        };
        let all = || {
            scales.fetch(&fetched[0], factors.from);
            scales.fetch(&fetched[1], factors.from + 1);
            ask(0, false);
            let pairs = (factors.steps - 1) / 2;
            k.for_range(0, pairs, |pair| {
                let block = factors.from + pair * 2;
                add(block, 0, &|| ask(1, true));
                add(block + 1, 1, &|| ask(0, true));
            });
            k.if_else(
                (factors.steps & 1).eq(0),
                || {
                    add(factors.from + pairs * 2, 0, &|| ask(1, true));
                    last(1);
                },
                || last(0),
            );
            self.consumer.release_last();
        };
        match self.tiling.split {
            1 => all(),
            // Of more shares than steps some are empty.
            _ => k.if_(factors.steps.ne(0), all),
        }
        total
    }

    /// The same in two levels. While a warpgroup adds up its sums, the other one's products
    /// keep the tensor cores busy.
    fn in_two_levels<H: WgmmaInput>(
        &self,
        factors: Factors<'k>,
        rows: &[Val<'k, u32>],
        scales: Option<BlockScales<'k>>,
    ) -> Vec<WgmmaResult<'k>> {
        let k = self.k;
        let Tiling { cols, depth, .. } = self.tiling;
        let part = WgmmaSums::zero(&k, cols);
        let totals: Vec<_> = rows.iter().map(|_| WgmmaResult::zero(&k, cols)).collect();
        let pieces = depth / SPAN;
        let first = factors.from * pieces;
        let copied = scales.and_then(|scales| Some((scales, scales.copied?)));
        let loaded = scales.filter(|scales| scales.copied.is_none());
        let scaled: Option<Vec<(BlockScales<'k>, Fetched<'k>)>> = loaded.map(|scales| {
            let place = |row: &Val<'k, u32>| [factors.left.first + *row, factors.right.first];
            rows.iter()
                .map(|row| (scales, scales.room(&k, place(row), cols)))
                .collect()
        });
        let fetch = |number: usize, block: Val<'k, u32>| {
            if let Some((scales, fetched)) = scaled.as_ref().map(|scaled| &scaled[number]) {
                scales.fetch(fetched, block);
            }
        };
        (0..rows.len()).for_each(|number| fetch(number, first));
        let last = (pieces - 1, rows.len() - 1);
        self.restore(totals.iter().flat_map(WgmmaResult::vars));
        self.each_step(factors, |step| {
            let block = first + step * pieces;
            // Products of 64 rows and 128 bytes of the depth; the last ones are added after the
            // stage has been released.
            let products = |stage: Staged<'k>, piece: u32, number: usize| {
                self.products::<H>(factors, stage, &part, rows[number], piece);
                let scaled = scaled.as_ref().map(|scaled| &scaled[number]);
                let by = match &copied {
                    Some((scales, copied)) => {
                        let from = self.scales_of(stage);
                        let place = [factors.left.first, factors.right.first];
                        let sides = [self.tiling.rows, cols];
                        let by =
                            scales.copied_factors(copied, from, place, rows[number], sides, block);
                        // The copy engine overwrites what was read.
                        k.fence_async_shared();
                        Some(by)
                    }
                    None => scaled.map(|(scales, fetched)| scales.factors(fetched)),
                };
                fetch(number, block + (piece + 1));
                part.wait_for_older(0);
                by
            };
            let left = self.consumer.consume(|stage| {
                let mut left = None;
                for piece in 0..pieces {
                    for (number, total) in totals.iter().enumerate() {
                        let by = products(stage, piece, number);
                        if (piece, number) == last {
                            left = by;
                        } else {
                            part.add_to(total, 0, |at| by.as_ref().map(|by| by.block(at)));
                        }
                    }
                }
                left
            });
            let by = |at| left.as_ref().map(|by| by.block(at));
            part.add_to(&totals[last.1], 0, by);
        });
        totals
    }

    /// The scales that came with a stage.
    fn scales_of(&self, (left, _): Staged<'k>) -> Ptr<'k, Shared, f32> {
        let behind = left.rows_from(self.tiling.rows, self.tiling.scale_rows());
        behind.ptr().cast()
    }

    /// Sets the sums of a tile that was left half done to what they were.
    fn restore(&self, sums: impl Iterator<Item = Var<'k, f32>>) {
        if let Some(pieces) = &self.pieces {
            let sums: Vec<_> = sums.collect();
            self.k.if_(pieces.agreed().ne(0), || {
                pieces.restore(sums.iter().copied());
            });
        }
    }

    /// Calls `body` with every step of the depth, in a warpgroup that multiplies.
    fn each_step(&self, factors: Factors<'k>, body: impl Fn(Val<'k, u32>)) {
        match &self.pieces {
            None => self.k.for_range(0, factors.steps, body),
            Some(pieces) => pieces.each_step(factors.steps, body),
        }
    }

    /// The same with the first step of each piece, and the one behind its last: all of them at
    /// once, where a tile can't be left half done.
    fn each_piece(&self, factors: Factors<'k>, body: impl Fn(Val<'k, u32>, Val<'k, u32>)) {
        match &self.pieces {
            None => body(self.k.c(0), factors.steps),
            Some(pieces) => pieces.each_piece(factors.steps, body),
        }
    }

    /// Sets sums to the products of a piece of a stage that is 128 bytes deep.
    fn products<H: WgmmaInput>(
        &self,
        factors: Factors<'k>,
        (left, right): (SharedTile<'k, f16>, SharedTile<'k, f16>),
        sums: &WgmmaSums<'k>,
        row: Val<'k, u32>,
        piece: u32,
    ) {
        let Tiling {
            rows, cols, depth, ..
        } = self.tiling;
        let (per, from) = (SPAN as usize / 16, (piece * SPAN / 16) as usize);
        let left = factors.left.operands::<H>(left, row, rows, depth);
        let right = factors.right.operands::<H>(right, self.k.c(0), cols, depth);
        sums.accumulate(|batch| {
            let pairs = left.into_iter().zip(right).skip(from).take(per);
            for (step, (left, right)) in pairs.enumerate() {
                match step {
                    0 => batch.mma_fresh(left, right),
                    _ => batch.mma(left, right),
                }
            }
        });
    }

    /// Adds the products of a stage, or sets the sums to them.
    fn multiply<H: WgmmaInput>(
        &self,
        factors: Factors<'k>,
        (left, right): (SharedTile<'k, f16>, SharedTile<'k, f16>),
        sums: &WgmmaSums<'k>,
        row: Val<'k, u32>,
        fresh: bool,
    ) {
        let Tiling {
            rows, cols, depth, ..
        } = self.tiling;
        let left = factors.left.operands::<H>(left, row, rows, depth);
        let right = factors.right.operands::<H>(right, self.k.c(0), cols, depth);
        sums.accumulate(|batch| {
            for (step, (left, right)) in left.into_iter().zip(right).enumerate() {
                match step {
                    0 if fresh => batch.mma_fresh(left, right),
                    _ => batch.mma(left, right),
                }
            }
        });
    }

    /// Fills the stages from `first` to `last` of a tile.
    fn fill(&self, factors: Factors<'k>, first: Val<'k, u32>, last: Val<'k, u32>) {
        let k = self.k;
        k.for_range(first, last, |step| self.fill_stage(factors, step));
    }

    /// Fills the stages of what is left of a tile until the bell is rung, if it is.
    ///
    /// The tile is left at the second look in a row that hears it. Whoever rings launches its kernel a
    /// few microseconds later: where a block leaves before that, the next one of this launch takes
    /// its place and goes on with a half-done tile. And a block that comes when a visitor is done
    /// would leave once more, for the visitors of other multiprocessors.
    fn fill_until_asked(&self, pieces: &Pieces<'k>, factors: Factors<'k>) {
        let k = self.k;
        let done = pieces.done();
        let factors = factors.after(done);
        let step = k.var(self.ahead.get()).named("step");
        let last = k.var(false).named("last");
        // For a tile whose copies are all in flight.
        let heard = k.var(pieces.pause.listen()).named("heard");
        let before = k.var(0u32).named("heard_before");
        k.while_(
            || step.get().lt(factors.steps) & !last.get(),
            || {
                let next = step.get() + 1;
                k.if_(pieces.ends(next, factors.steps), || {
                    let twice = before.get().ne(0).select(heard.get(), 0);
                    before.set(heard.get());
                    last.set(pieces.pause.look(twice, done + next));
                });
                // It arrives while room for this stage is waited for.
                heard.set(pieces.pause.listen());
                self.fill_stage(factors, step.get());
                step.set(next);
            },
        );
        pieces.pause.heard(heard.get());
    }

    /// Issues the bulk copies of a stage.
    fn fill_stage(&self, factors: Factors<'k>, step: Val<'k, u32>) {
        let Tiling {
            rows, cols, depth, ..
        } = self.tiling;
        let at = (factors.from + step) * (depth / SPAN * factors.left.span);
        let [same_rows, same_cols] = Peers::of_tile(&self.k, self.tiling.cluster.sides());
        let sides = [
            (factors.left, rows, same_rows),
            (factors.right, cols, same_cols),
        ];
        let [(left, less_rows), (right, less_cols)] =
            match sides.iter().any(|(side, ..)| side.edge.is_some()) {
                false => sides.map(|(side, ..)| (side, None)),
                true => {
                    let written = self.filled.get().ge(self.tiling.stages);
                    self.filled.update(|filled| filled + 1);
                    sides.map(|(side, outer, peers)| side.ending(written, outer, depth, &peers))
                }
            };
        let copy = |copies: &Transaction<'k>, (to_left, to_right): (Landing<'k, f16>, _)| {
            if factors.gather.is_none() {
                left.copy(copies, to_left, rows, depth, at, same_rows);
            }
            right.copy(copies, to_right, cols, depth, at, same_cols);
            let copied = factors
                .scales
                .and_then(|scales| Some((scales, scales.copied?)));
            if let Some((scales, copied)) = copied {
                let behind = to_left.part(rows * SPAN, self.tiling.scale_rows() * SPAN);
                let place = [factors.left.first, factors.right.first];
                let block = factors.from + step;
                scales.copy(&copied, copies, behind.cast(), place, [rows, cols], block);
            }
        };
        match less_rows
            .into_iter()
            .chain(less_cols)
            .reduce(|one, other| one + other)
        {
            None => self.producer.fill(copy),
            Some(less) => self.producer.fill_less(less, copy),
        }
    }

    /// The producer warpgroup fills the stages of a tile: one thread issues the bulk copies, all of
    /// them copy rows.
    fn gather(&self, factors: Factors<'k>, gather: Gather<'k>) {
        let k = self.k;
        let Some(gatherer) = &self.gatherer else {
            return k.fail("rows are gathered in a ring that was made for it");
        };
        let rows = gather.rows(&k, &self.tiling);
        k.for_range(0, factors.steps, |step| {
            k.one_thread(|| {
                // Some may have been issued while the tile before was worked on.
                k.if_(step.ge(self.ahead.get()), || self.fill_stage(factors, step));
            });
            k.sync_warp();
            gatherer.fill(|(left, _)| rows.copy(left, factors.from + step));
        });
        self.ahead.set(0u32);
    }

    /// Begins a tile while the one before is still worked on: thread 0 issues the copies of as many
    /// stages as there are.
    pub(crate) fn begin(&self, factors: Factors<'k>) {
        let steps = factors.steps.min(self.tiling.stages);
        self.fill(factors, self.k.c(0), steps);
        self.ahead.set(steps);
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

/// A matrix in memory, or several of the same shape one after the other.
#[derive(Clone, Copy)]
pub(crate) struct Matrices {
    pub(crate) element: TensorElement,
    pub(crate) major: Major,
    /// Rows of A, or columns of B.
    pub(crate) outer: u64,
    pub(crate) depth: u32,
    /// Elements from one stored row to the next.
    pub(crate) pitch: u32,
    pub(crate) count: u32,
}

impl Matrices {
    /// Its map, for stages of `deep` and tiles of `high` rows of A or columns of B.
    pub(crate) fn map(&self, name: &str, high: u32, deep: u32) -> Arg {
        let (depth, count) = (u64::from(self.depth), u64::from(self.count));
        let span = 128 / self.element.bytes() as u32;
        let (dims, boxed) = match self.major {
            Major::Depth => ([depth, self.outer, count], [span, high, 1]),
            Major::Outer => ([self.outer, depth, count], [span, deep, 1]),
        };
        let buffer = BufferRef::Named(name.to_owned());
        let mut map = TensorMap::dense(buffer, self.element, &dims, &boxed);
        let row = u64::from(self.pitch) * self.element.bytes();
        map.strides = vec![row, row * dims[1]];
        // Unaligned rows also fetch the line before.
        map.l2 = match row.is_multiple_of(256) {
            true => L2Promotion::Bytes256,
            false => L2Promotion::Bytes128,
        };
        Arg::TensorMap(map.swizzle(Swizzle::Bytes128))
    }
}
