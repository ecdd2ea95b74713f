//! The loop over tiles: everything between a kernel's prologue and its end.
//!
//! It is emitted by [`TileLoop::each`]. What happens before the prologue (the
//! channel, the policy's state, the claim of a first ticket) was emitted when
//! the loop was set up (`setup`).

mod pipeline;
mod setup;
mod thief;

use crate::channel::{Channel, NONE};
use crate::classes::Drawer;
use crate::context::PolicyCx;
use crate::control::{Control, Sweeper};
use crate::erased::Running;
use crate::hidden::HiddenOn;
use crate::order::{Extent, Position};
use crate::pause::Pause;
use crate::policy::Policy;
use crate::shape::Shape;
use crate::source::{Submit, TileSource};
use crate::ticket::Tickets;
use crate::watch::{RecordKind, Scribe};
use heist_builder::{Bool, Global, Kernel, Ptr, Request, Val, Var};
use pipeline::Flying;
use std::marker::PhantomData;

/// One tile, as the body sees it.
#[derive(Clone, Copy, Debug)]
pub struct Tile<'k> {
    /// Its position along x.
    pub x: Val<'k, u32>,
    /// Along y.
    pub y: Val<'k, u32>,
    /// Along z.
    pub z: Val<'k, u32>,
    /// Whether it lies in the grid of tiles. Always, unless the kernel asked for
    /// the padding of its clusters too ([`Tiled::padded`](crate::Tiled::padded)).
    pub inside: Bool<'k>,
    tiles: [Val<'k, u32>; 3],
}

impl<'k> Tile<'k> {
    /// Its number, x fastest.
    #[track_caller]
    pub fn number(&self) -> Val<'k, u32> {
        let [x, y, _] = self.tiles;
        self.x + x * (self.y + y * self.z)
    }

    /// Where it is.
    pub fn position(&self) -> Position<'k> {
        Position {
            x: self.x,
            y: self.y,
            z: self.z,
        }
    }

    /// How many tiles there are along x, y and z.
    pub fn grid(&self) -> [Val<'k, u32>; 3] {
        self.tiles
    }
}

/// Shows that the loop was emitted: a kernel's body returns it.
#[derive(Debug)]
#[must_use = "return it from the kernel's body"]
pub struct Done<'k>(PhantomData<fn(&'k ()) -> &'k ()>);

/// Where requests go.
enum Asking<'k> {
    /// There are no requests.
    Nobody,
    Clc(Request<'k>),
    Tickets(Tickets<'k>),
}

/// The policy's state in the scheduler thread.
struct Judge<'k> {
    cx: PolicyCx<'k>,
    policy: Box<dyn Running<'k> + 'k>,
    /// A request is in flight.
    pending: Var<'k, bool>,
    /// No more requests.
    stop: Var<'k, bool>,
    /// Of a loaded policy: it always asks, so that nothing was interpreted for the last request.
    plain: Option<Var<'k, bool>>,
}

/// The loop of one kernel, not yet emitted.
pub struct TileLoop<'k> {
    k: Kernel<'k>,
    shape: Shape,
    hidden: HiddenOn<'k>,
    /// The cluster of tiles in hand.
    index: Var<'k, u32>,
    worker: Val<'k, u32>,
    workers: Val<'k, u32>,
    leader: Bool<'k>,
    channel: Option<Channel<'k>>,
    asking: Asking<'k>,
    judge: Option<Judge<'k>>,
    /// The requests in flight, where there may be several.
    flying: Option<Flying<'k>>,
    /// Clears what blocks share, if they share anything.
    sweeper: Option<Sweeper<'k>>,
    /// Leaves tiles half done, where they may be.
    pause: Option<Pause<'k>>,
    /// Says which tile a right is for, where tiles have classes.
    drawer: Option<Drawer<'k>>,
    scribe: Option<Scribe<'k>>,
}

impl std::fmt::Debug for TileLoop<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TileLoop({:?})", self.shape)
    }
}

impl<'k> TileLoop<'k> {
    /// The judge, if its policy is loaded.
    fn loaded(&self) -> Option<&Judge<'k>> {
        let judge = self.judge.as_ref();
        judge.filter(|judge| judge.cx.has_area)
    }

    /// A loaded policy may have been exchanged.
    fn take_up(&self) {
        if let Some(judge) = self.loaded() {
            let take_up = || judge.policy.take_up(&judge.cx);
            self.k.if_(self.leader, take_up);
        }
    }

    /// Draws the first ticket; a cluster that finds none leaves here, before
    /// its prologue.
    fn claim(&self) {
        let k = self.k;
        let (Some(channel), Asking::Tickets(tickets)) = (self.channel, &self.asking) else {
            return;
        };
        k.comment("claim a tile before the prologue");
        let draw = || {
            tickets.draw();
            let first = k.var(NONE);
            tickets.collect(
                |index| first.set(self.drawn(index)),
                || self.note(RecordKind::Refused),
            );
            first.get()
        };
        match &self.pause {
            None => k.if_(self.leader, || channel.send(draw())),
            Some(pause) => {
                let refused = || self.note(RecordKind::Refused);
                let gone = || tickets.are_gone();
                let (first, arrival) = pause.arrive(self.leader, (gone, refused), draw);
                k.if_(self.leader, || {
                    channel.send(first);
                    pause.count_in(&arrival);
                });
            }
        }
        self.index.set(channel.receive());
        k.if_(self.index.get().eq(NONE), || {
            self.finish(self.loaded().is_none());
            k.exit();
        });
        channel.release();
    }

    /// The index of the tile that a right is for.
    fn drawn(&self, right: Val<'k, u32>) -> Val<'k, u32> {
        match &self.drawer {
            Some(drawer) => drawer.draw(right),
            None => right,
        }
    }

    fn note(&self, kind: RecordKind) {
        if let Some(scribe) = &self.scribe {
            scribe.decision(kind);
        }
    }

    /// The launch's bell ([`BELL_BYTES`](crate::BELL_BYTES)): a kernel may ring it
    /// for itself.
    pub fn bell(&self) -> Ptr<'k, Global, u32> {
        Control(self.hidden.control).bell()
    }

    /// How the body can leave a tile half done, under a schedule that
    /// [pauses](crate::Tiled::pausing).
    pub fn pause(&self) -> Option<Pause<'k>> {
        self.pause
    }

    /// Emits the loop; `body` says what happens for one tile.
    ///
    /// All threads of the block run the body, for the same tile; between two tiles there is a
    /// barrier of the block, so that the next tile can use the same shared memory, unless its threads may be
    /// [apart](crate::Tiled::apart). In a cluster all
    /// blocks run the same number of tiles, each the one at its own position.
    #[track_caller]
    pub fn each(self, body: impl Fn(Tile<'k>)) -> Done<'k> {
        self.emit(&body, None)
    }

    /// The same for a body that can begin a tile ahead: `ahead` says what thread 0
    /// does for the next tile as soon as it knows it, while the other threads are
    /// still busy with the one before. It may issue copies, but must not wait at a barrier.
    ///
    /// Some tiles are never passed to `ahead`: the first of a block, and every tile that comes without
    /// a request ([`TileSource::Direct`]).
    #[track_caller]
    pub fn each_ahead(self, body: impl Fn(Tile<'k>), ahead: impl Fn(Tile<'k>)) -> Done<'k> {
        self.emit(&body, Some(&ahead))
    }

    /// The same for a body whose thread 0 says itself when the next tile begins, before the
    /// body ends: it calls what it is given, once. Where the tiles of a block are dealt out
    /// ([`TileSource::Static`]) the next one is known by then; elsewhere the call does nothing, and
    /// the tile begins as with [`each_ahead`](TileLoop::each_ahead).
    #[track_caller]
    pub fn each_followed(
        self,
        body: impl Fn(Tile<'k>, &dyn Fn()),
        ahead: impl Fn(Tile<'k>),
    ) -> Done<'k> {
        if self.shape.source != TileSource::Static {
            return self.each_ahead(|tile| body(tile, &|| ()), ahead);
        }
        let this = self.begun();
        let begin = || {
            let next = this.index.get() + this.workers;
            let there = next.lt(this.hidden.count);
            this.k.if_(there, || this.begin(next, &ahead));
        };
        this.deal(&|tile| body(tile, &begin), None);
        this.finish(true);
        Done(PhantomData)
    }

    /// The same for a block whose warps have one of two roles for good: `first` says which, and thread 0, which asks for tiles,
    /// has the first. Each role has a loop of its own, so that no thread waits for another but for the scheduler's, and registers
    /// that `begin` moves once stay where they are. For kernels whose threads are [apart](crate::Tiled::apart).
    ///
    /// Where tiles may be left half done, thread 0 [looks](Pause::look), and the threads of the other role learn of it before they end
    /// that step: thread 0 looks at no later tile before all of them that take part in that one have.
    ///
    /// `end` comes behind a role's last tile, before any thread waits for the others.
    #[track_caller]
    pub fn each_in_roles(
        self,
        first: Bool<'k>,
        [begin, end]: [&dyn Fn(bool); 2],
        body: impl Fn(Tile<'k>, bool),
    ) -> Done<'k> {
        let this = self.begun();
        this.emit_in_roles(first, [begin, end], &body)
    }

    fn emit_in_roles(
        &self,
        first: Bool<'k>,
        [begin, end]: [&dyn Fn(bool); 2],
        body: &dyn Fn(Tile<'k>, bool),
    ) -> Done<'k> {
        let k = self.k;
        let late = self.shape.submit == Submit::Late && k.cluster_size() == 1;
        let fits = late || self.loaded().is_none();
        if !self.shape.apart || self.never_asks() || !fits {
            k.fail("roles have a loop each where threads are apart and tiles are asked for, late and by blocks alone under a loaded policy");
        }
        let role = |first: bool| {
            begin(first);
            let body = |tile| body(tile, first);
            match self.shape.source {
                TileSource::Direct => self.run(&body),
                TileSource::Static => k.loop_(|flow| {
                    self.run(&body);
                    let next = self.index.get() + self.workers;
                    self.index.set(next);
                    flow.break_if(next.ge(self.hidden.count));
                }),
                TileSource::Clc | TileSource::Ticket => self.steal_in_role(&body, first),
            }
            end(first);
        };
        k.if_else(first, || role(true), || role(false));
        if self.pause.is_some() {
            // Before a tile that was left is queued, all threads have saved its state.
            k.sync();
        }
        self.finish(true);
        Done(PhantomData)
    }

    fn emit(self, body: &dyn Fn(Tile<'k>), ahead: Option<&dyn Fn(Tile<'k>)>) -> Done<'k> {
        let this = self.begun();
        let k = this.k;
        match this.shape.source {
            TileSource::Direct => this.run(body),
            TileSource::Static => this.deal(body, ahead),
            TileSource::Clc | TileSource::Ticket if this.never_asks() && this.pause.is_none() => {
                this.run(body);
                if let Asking::Tickets(tickets) = &this.asking {
                    k.if_(this.leader, || tickets.retire());
                }
            }
            TileSource::Clc | TileSource::Ticket => match &this.flying {
                None => this.steal(body, ahead),
                Some(flying) => this.steal_in_a_row(flying, body, ahead),
            },
        }
        this.finish(true);
        Done(PhantomData)
    }

    fn never_asks(&self) -> bool {
        self.shape.policy.constant() == Some(false)
    }

    /// The request whose answers the hardware sends to every block.
    fn answered(&self) -> Option<Request<'k>> {
        self.channel.and_then(|channel| channel.request())
    }

    /// Begins the tile at `index`, which may be none, ahead; in thread 0 of a block. A tile that is
    /// not run is not begun either.
    fn begin(&self, index: Val<'k, u32>, ahead: &dyn Fn(Tile<'k>)) {
        let k = self.k;
        k.if_(index.ne(NONE), || {
            let tile = self.tile(index);
            k.if_(tile.inside | self.shape.padded, || ahead(tile));
        });
    }

    /// The tile of this block in the cluster of tiles at `index`.
    fn tile(&self, index: Val<'k, u32>) -> Tile<'k> {
        let k = self.k;
        let at = self.position(index);
        let shape = k.cluster_shape();
        let offset = k.cluster_block();
        let [x, y, z] = [
            at.x * shape[0] + offset.x,
            at.y * shape[1] + offset.y,
            at.z * shape[2] + offset.z,
        ];
        let tiles = self.hidden.tiles;
        let mut inside = k.c(true);
        // A grid that is no multiple of the cluster is rounded up.
        for (axis, at) in [x, y, z].into_iter().enumerate() {
            if shape[axis] > 1 {
                inside = inside & at.lt(tiles[axis]);
            }
        }
        Tile {
            x: x.named("tile_x"),
            y: y.named("tile_y"),
            z: z.named("tile_z"),
            inside,
            tiles,
        }
    }

    /// A tile and its work.
    fn run(&self, body: &dyn Fn(Tile<'k>)) {
        let k = self.k;
        let tile = self.tile(self.index.get());
        let inside = tile.inside;
        if let Some(scribe) = &self.scribe {
            k.one_thread(|| scribe.tile_begins());
        }
        k.comment("the tile");
        if self.shape.padded {
            body(tile);
        } else {
            k.if_(inside, || body(tile));
        }
        k.comment("end of the tile");
        if let Some(scribe) = &self.scribe {
            // A tile ends with its last thread, not with the thread that records it.
            k.sync();
            let then = match self.shape.source {
                TileSource::Static => RecordKind::StaticTile,
                TileSource::Ticket => RecordKind::TicketTile,
                _ => RecordKind::StolenTile,
            };
            let ends = || scribe.tile_ends(tile.number(), inside, then);
            k.one_thread(|| match &self.pause {
                None => ends(),
                Some(pause) => k.if_(!pause.left_in_one(), ends),
            });
        }
    }

    fn position(&self, index: Val<'k, u32>) -> Position<'k> {
        let extent = Extent {
            x: self.hidden.clusters[0],
            y: self.hidden.clusters[1],
            count: self.hidden.count,
            rank: self.shape.rank,
            table: self.hidden.table,
        };
        self.shape.order.emit(&self.k, index, &extent)
    }

    /// Every `workers`-th tile.
    fn deal(&self, body: &dyn Fn(Tile<'k>), ahead: Option<&dyn Fn(Tile<'k>)>) {
        let k = self.k;
        k.loop_(|flow| {
            self.run(body);
            let next = self.index.get() + self.workers;
            self.index.set(next);
            flow.break_if(next.ge(self.hidden.count));
            if let Some(ahead) = ahead {
                k.one_thread(|| self.begin(next, ahead));
                // Its warp reconverges here, before the barrier of the block.
                k.sync_warp();
            }
            k.sync();
        });
    }

    /// The end: records, and a barrier of the cluster before any block exits. `decided` says
    /// whether the policy may have been asked anything.
    fn finish(&self, decided: bool) {
        let k = self.k;
        if let Some(scribe) = &self.scribe {
            k.one_thread(|| scribe.block_ends(self.leader));
        }
        let judge = self.judge.as_ref().filter(|_| decided);
        if judge.is_some() || self.sweeper.is_some() {
            k.if_(self.leader, || {
                if let Some(judge) = judge {
                    judge.policy.leave(&judge.cx);
                }
                match (&self.pause, &self.sweeper) {
                    (Some(pause), Some(sweeper)) => {
                        pause.queue_left_or(sweeper, || sweeper.leave(&k));
                    }
                    (_, Some(sweeper)) => sweeper.leave(&k),
                    (_, None) => {}
                }
            });
        }
        if k.cluster_size() > 1 && self.channel.is_some() {
            k.comment("a cluster leaves together");
            k.cluster_sync();
        }
    }
}
