//! The loop over tiles: everything between a kernel's prologue and its end.
//!
//! It is emitted by [`TileLoop::each`]. What happens before the prologue (the
//! channel, the policy's state, the claim of a first ticket) was emitted when
//! the loop was set up.

use crate::channel::{Channel, NONE};
use crate::classes::Drawer;
use crate::context::{PolicyCx, Watchdog};
use crate::control::{Control, Sweeper, Swept};
use crate::erased::Running;
use crate::hidden::HiddenOn;
use crate::order::{Extent, Position};
use crate::pause::Pause;
use crate::policy::{Policy, TileId};
use crate::source::{Submit, TicketGrid, TileSource};
use crate::ticket::Tickets;
use crate::tiled::Shape;
use crate::watch::{RecordKind, Scribe, Watch};
use heist_builder::{Bool, Dim3, Feature, Global, Kernel, Ptr, Request, Val, Var};
use std::cell::OnceCell;
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
    workers: Val<'k, u32>,
    leader: Bool<'k>,
    channel: Option<Channel<'k>>,
    asking: Asking<'k>,
    judge: Option<Judge<'k>>,
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
    /// Emits what comes before the prologue.
    pub(crate) fn set_up(k: &Kernel<'k>, shape: Shape, hidden: HiddenOn<'k>) -> TileLoop<'k> {
        let [cluster_x, ..] = k.cluster_shape();
        // The grid is folded into x: cluster `i` is the one at x = i.
        let worker = (k.block().x / cluster_x).named("worker");
        let workers = k.grid_dim().x / cluster_x;
        let leader = k.thread_index().eq(0) & k.cluster_rank().eq(0);
        let constant = shape.policy.constant();
        let asks = shape.source.asks() && constant != Some(false);
        let claims = shape.claims_first();
        let scribe = (shape.watch != Watch::Off).then(|| {
            let first = match (shape.source, claims) {
                (TileSource::Static, _) => RecordKind::StaticTile,
                (TileSource::Ticket, true) => RecordKind::TicketTile,
                _ => RecordKind::OwnTile,
            };
            Scribe::new(k, hidden.watch, worker, shape.watch == Watch::Trace, first)
        });
        let control = Control(hidden.control);
        let classes = shape.classes.as_ref();
        // Where tiles have classes, an answer is a right: the scheduler says for which tile.
        let answered = asks
            && shape.source == TileSource::Clc
            && classes.is_none()
            && k.cluster_size() > 1
            && k.has(Feature::ClusterLaunchControlMulticast);
        let channel = match answered {
            true => Some(Channel::answered(k, constant.is_none())),
            false => (asks || claims || classes.is_some()).then(|| Channel::new(k)),
        };
        let asking = match (shape.source, channel.and_then(|channel| channel.request())) {
            (_, Some(request)) => Asking::Clc(request),
            (TileSource::Clc, None) if asks => {
                let request = OnceCell::new();
                k.if_(leader, || {
                    // `if_` runs its body once; a second value is no case.
                    let _ = request.set(k.clc().into_request());
                });
                request.into_inner().map_or(Asking::Nobody, Asking::Clc)
            }
            (TileSource::Ticket, None) => Asking::Tickets(Tickets::new(
                k,
                control.counter(),
                hidden.count,
                workers,
                shape.grid == TicketGrid::Resident,
                shape.endings(),
            )),
            _ => Asking::Nobody,
        };
        let has_area = shape.policy.loaded().is_some();
        let judge = (asks && constant.is_none()).then(|| {
            let held = OnceCell::new();
            let cx = PolicyCx {
                k: *k,
                worker,
                workers,
                tiles: hidden.count,
                resident: hidden.resident,
                watchdog: Watchdog {
                    overruled: k.var(false).named("overruled"),
                    record: control.record(),
                    bound: shape.watchdog,
                },
                control,
                first_word: 0,
                has_area,
            };
            k.if_(leader, || {
                k.comment(&format!("policy: {}", shape.policy.name()));
                let _ = held.set(shape.policy.start(&cx));
            });
            held.into_inner().map(|policy| Judge {
                cx,
                policy,
                pending: k.var(false).named("pending"),
                stop: k.var(false).named("stop"),
                plain: has_area.then(|| k.var(false).named("plain")),
            })
        });
        let shared = match judge {
            Some(_) => shape.policy.shared_words(),
            None => 0,
        };
        let swept = Swept {
            policy: shared,
            classes: classes.is_some(),
            pauses: shape.pause.is_some(),
        };
        let sweeper = Sweeper::new(k, control, swept, workers);
        let pause = shape
            .pause
            .map(|state| Pause::new(k, control, [hidden.resident, workers], state));
        let drawer = classes.and_then(|classes| {
            let held = OnceCell::new();
            k.if_(leader, || {
                let drawer = Drawer::new(k, classes, control, hidden.table, hidden.count);
                let _ = held.set(drawer);
            });
            held.into_inner()
        });
        let this = TileLoop {
            k: *k,
            hidden,
            index: k.var(worker).named("tile_index"),
            workers,
            leader,
            channel,
            asking,
            judge: judge.flatten(),
            sweeper,
            pause,
            drawer,
            scribe,
            shape,
        };
        if claims {
            this.claim();
        } else if let (Some(drawer), Some(channel)) = (&this.drawer, this.channel) {
            // Its own number is a right like any other.
            k.if_(leader, || channel.send(drawer.draw(worker)));
            this.index.set(channel.receive());
            channel.release();
        }
        if this.shape.submit == Submit::Late {
            // Its first decision comes after its first tile; it counts from here.
            this.take_up();
        }
        this
    }

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
                let first = pause.arrive(self.leader, draw);
                k.if_(self.leader, || channel.send(first));
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
    /// barrier of the block, so that the next tile can use the same shared memory. In a cluster all
    /// blocks run the same number of tiles, each the one at its own position.
    #[track_caller]
    pub fn each(self, body: impl Fn(Tile<'k>)) -> Done<'k> {
        self.emit(&body, None)
    }

    /// The same for a body that can begin a tile ahead: `ahead` says what thread 0
    /// does for the next tile as soon as it knows it, while the other threads are
    /// still busy with the one before. It may issue copies, but must not wait at a barrier.
    ///
    /// Many tiles are never passed to `ahead`: the first of a block, every tile that comes without
    /// a request ([`TileSource::Direct`]), and every tile that a cluster requests, unless the
    /// hardware answers all of its blocks.
    #[track_caller]
    pub fn each_ahead(self, body: impl Fn(Tile<'k>), ahead: impl Fn(Tile<'k>)) -> Done<'k> {
        // In a cluster the next tile is known to every block where none asks, or where the
        // hardware answers them all.
        let known = self.k.cluster_size() == 1
            || self.shape.source == TileSource::Static
            || self.answered().is_some();
        self.emit(&body, known.then_some(&ahead))
    }

    fn emit(self, body: &dyn Fn(Tile<'k>), ahead: Option<&dyn Fn(Tile<'k>)>) -> Done<'k> {
        let k = self.k;
        match self.shape.source {
            TileSource::Direct => self.run(body),
            TileSource::Static => self.deal(body, ahead),
            TileSource::Clc | TileSource::Ticket if self.never_asks() && self.pause.is_none() => {
                self.run(body);
                if let Asking::Tickets(tickets) = &self.asking {
                    k.if_(self.leader, || tickets.retire());
                }
            }
            TileSource::Clc | TileSource::Ticket => self.steal(body, ahead),
        }
        self.finish(true);
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

    /// The loop that asks for more.
    fn steal(&self, body: &dyn Fn(Tile<'k>), ahead: Option<&dyn Fn(Tile<'k>)>) {
        let k = self.k;
        let Some(channel) = self.channel else {
            return;
        };
        let send = |next: Val<'k, u32>| {
            channel.send(next);
            if let (Some(ahead), None) = (ahead, self.answered()) {
                self.begin(next, ahead);
            }
        };
        k.loop_(|flow| {
            if self.shape.submit == Submit::Early {
                k.if_(self.leader, || {
                    self.unless_plain(|| self.submit(), || self.opportunity());
                });
            }
            if let Some(judge) = self.loaded() {
                k.if_(self.leader, || judge.policy.look_ahead(&judge.cx));
                // The assembler does not find the reconvergence point after the interpreter;
                // without this the scheduler thread would run the tile apart from its warp.
                k.sync_warp();
            }
            self.run(body);
            let plain = self.judge.is_none() && self.drawer.is_none();
            let quiet = plain && self.scribe.is_none();
            let decide = || {
                let fixed = quiet && self.shape.fixed_draws();
                if let (true, Asking::Tickets(tickets)) = (fixed, &self.asking) {
                    if self.shape.submit == Submit::Late {
                        self.submit();
                    }
                    if let Some(word) = tickets.word() {
                        return send(word);
                    }
                }
                let next = k.var(NONE).named("next");
                self.answer(next);
                send(next.get());
            };
            match (self.answered(), self.shape.submit) {
                // Nobody has to look before all blocks do.
                (Some(_), Submit::Early) if quiet => {}
                (Some(_), Submit::Late) if quiet => k.if_(self.leader, || self.submit()),
                _ => k.if_(self.leader, || match &self.pause {
                    None => decide(),
                    Some(pause) => {
                        let left = pause.leaves(self.index.get());
                        k.if_else(left, || channel.send(k.c(NONE)), decide);
                    }
                }),
            }
            if let (Some(ahead), Some(_)) = (ahead, self.answered()) {
                k.one_thread(|| self.begin(channel.peek(), ahead));
            }
            if ahead.is_some() {
                // Its warp reconverges here, before the barrier of the block.
                k.sync_warp();
            }
            let next = channel.receive();
            self.index.set(next);
            if let Some(pause) = &self.pause {
                pause.settle(self.leader);
            }
            if k.cluster_size() > 1 {
                flow.break_if(next.eq(NONE));
                channel.release();
            } else {
                flow.continue_if(next.ne(NONE));
                flow.break_();
            }
        });
    }

    /// Before a request, in the scheduler thread: `ask` where a loaded policy always asks, else
    /// `decide`, after a change of policies if there was one. The first is what a greedy policy
    /// that is built in does; the other jumps over the interpreter, which is long.
    fn unless_plain(&self, ask: impl Fn(), decide: impl Fn()) {
        let found = self.judge.as_ref().and_then(|judge| {
            let plain = judge.policy.is_plain(&judge.cx)?;
            Some((judge, judge.plain?, plain & !judge.stop.get()))
        });
        let Some((judge, held, plain)) = found else {
            return decide();
        };
        held.set(plain);
        self.k.if_else(plain, ask, || {
            judge.policy.take_up(&judge.cx);
            decide();
        });
    }

    /// After a tile, in the scheduler thread: the next one, or none.
    fn answer(&self, next: Var<'k, u32>) {
        let plain = || {
            self.submit();
            self.collect(next, None);
        };
        if self.shape.submit == Submit::Late {
            return self.unless_plain(plain, || self.settle(next));
        }
        match self.judge.as_ref().and_then(|judge| judge.plain) {
            Some(plain) => self.k.if_else(
                plain.get(),
                || self.collect(next, None),
                || self.settle(next),
            ),
            None => self.settle(next),
        }
    }

    /// The early opportunity, in the scheduler thread.
    fn opportunity(&self) {
        let k = self.k;
        let Some(judge) = &self.judge else {
            self.submit();
            return;
        };
        judge.pending.set(false);
        k.if_(!judge.stop.get(), || {
            let ask = self.ask(judge);
            judge.pending.set(ask);
            k.if_(ask, || self.submit());
        });
    }

    /// What the policy says, or the watchdog in its place.
    fn ask(&self, judge: &Judge<'k>) -> Bool<'k> {
        let answer = judge.policy.should_try_steal(&judge.cx);
        let ask = answer | judge.cx.watchdog.overruled.get();
        if self.scribe.is_some() {
            self.k.if_(!ask, || self.note(RecordKind::Declined));
        }
        ask
    }

    fn submit(&self) {
        self.note(RecordKind::Requested);
        match &self.asking {
            Asking::Clc(request) => request.submit(),
            Asking::Tickets(tickets) => tickets.draw(),
            Asking::Nobody => {}
        }
    }

    /// After a tile, in the scheduler thread: the last call, and the answer.
    fn settle(&self, next: Var<'k, u32>) {
        let k = self.k;
        let late = self.shape.submit == Submit::Late;
        let ask = || {
            if late {
                self.submit();
            }
            self.collect(next, None);
        };
        let judge = match (&self.judge, &self.pause) {
            (Some(judge), _) => judge,
            (None, Some(pause)) if self.never_asks() => {
                return k.if_(!pause.is_spare(), || {
                    self.note(RecordKind::Overruled);
                    ask();
                });
            }
            (None, _) => return ask(),
        };
        if late {
            judge.pending.set(false);
        }
        k.if_(!(judge.pending.get() | judge.stop.get()), || {
            judge.pending.set(self.ask(judge));
            if late {
                // That was the opportunity; this is the last call.
                k.if_(!judge.pending.get(), || {
                    judge.pending.set(self.ask(judge));
                });
            }
            k.if_(judge.pending.get(), || self.submit());
        });
        if let (Asking::Tickets(_), true) = (&self.asking, self.shape.fixed_draws()) {
            // No other block would run the remaining tiles, so the policy is overruled.
            k.if_(!judge.pending.get(), || {
                self.note(RecordKind::Overruled);
                self.submit();
            });
            self.collect(next, Some(judge));
            return;
        }
        if let Some(pause) = &self.pause {
            // The same where no block is to come that could.
            k.if_(!judge.pending.get(), || {
                k.if_(!pause.is_spare(), || {
                    self.note(RecordKind::Overruled);
                    self.submit();
                    judge.pending.set(true);
                });
            });
        }
        k.if_else(
            judge.pending.get(),
            || self.collect(next, Some(judge)),
            || match (&self.asking, self.channel) {
                (Asking::Tickets(tickets), _) => tickets.retire(),
                (Asking::Clc(_), Some(channel)) => channel.decline(),
                _ => {}
            },
        );
    }

    /// Waits for the answer and writes it into `next`, which holds [`NONE`]. A judge, where there
    /// is one to be asked, says whether to go on.
    fn collect(&self, next: Var<'k, u32>, judge: Option<&Judge<'k>>) {
        let k = self.k;
        let granted = |right: Val<'k, u32>| {
            self.note(RecordKind::Granted);
            let index = self.drawn(right);
            next.set(index);
            if let (Some(sweeper), Asking::Clc(_)) = (&self.sweeper, &self.asking) {
                // The cluster that was taken over will not report.
                sweeper.share.update(|share| share + 1);
            }
            let Some(judge) = judge else {
                return;
            };
            let at = self.position(index);
            let shape = k.cluster_shape();
            let stolen = TileId {
                index,
                x: at.x * shape[0],
                y: at.y * shape[1],
                z: at.z * shape[2],
            };
            let keep = judge.policy.keep_going_after_success(&judge.cx, stolen);
            judge.stop.set(!(keep | judge.cx.watchdog.overruled.get()));
        };
        let refused = || self.note(RecordKind::Refused);
        match &self.asking {
            Asking::Clc(request) => {
                let [cluster_x, ..] = k.cluster_shape();
                let granted = |first: Dim3<'k>| granted(first.x / cluster_x);
                match self.answered() {
                    None => request.collect(granted, refused),
                    Some(_) => {
                        // Later this thread receives it as all others do.
                        request.wait();
                        request.look(granted, refused);
                    }
                }
            }
            Asking::Tickets(tickets) => tickets.collect(granted, refused),
            Asking::Nobody => {}
        }
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
                if let Some(pause) = &self.pause {
                    pause.queue_left();
                }
                if let Some(judge) = judge {
                    judge.policy.leave(&judge.cx);
                }
                if let Some(sweeper) = &self.sweeper {
                    sweeper.leave(&k);
                }
            });
        }
        if k.cluster_size() > 1 && self.channel.is_some() {
            k.comment("a cluster leaves together");
            k.cluster_sync();
        }
    }
}
