//! How a loop is set up: everything that is emitted before a kernel's prologue.

use super::pipeline::Flying;
use super::{Asking, Judge, TileLoop};
use crate::channel::Channel;
use crate::classes::Drawer;
use crate::context::{PolicyCx, Watchdog};
use crate::control::{Control, Sweeper, Swept};
use crate::hidden::HiddenOn;
use crate::pause::Pause;
use crate::policy::Policy;
use crate::shape::Shape;
use crate::source::{Submit, TicketGrid, TileSource};
use crate::ticket::Tickets;
use crate::watch::{RecordKind, Scribe, Watch};
use heist_builder::{Bool, Feature, Kernel, Val};
use std::cell::OnceCell;

/// What the parts of a loop are made of.
struct Setup<'s, 'k> {
    k: Kernel<'k>,
    shape: &'s Shape,
    hidden: &'s HiddenOn<'k>,
    control: Control<'k>,
    worker: Val<'k, u32>,
    workers: Val<'k, u32>,
    /// The scheduler thread.
    leader: Bool<'k>,
    /// Whether blocks ask for tiles.
    asks: bool,
}

impl<'k> TileLoop<'k> {
    /// Emits what comes before the prologue.
    pub(crate) fn set_up(k: &Kernel<'k>, shape: Shape, hidden: HiddenOn<'k>) -> TileLoop<'k> {
        let [cluster_x, ..] = k.cluster_shape();
        // The grid is folded into x: cluster `i` is the one at x = i.
        let worker = (k.block().x / cluster_x).named("worker");
        let workers = k.grid_dim().x / cluster_x;
        let leader = k.thread_index().eq(0) & k.cluster_rank().eq(0);
        let setup = Setup {
            k: *k,
            shape: &shape,
            hidden: &hidden,
            control: Control(hidden.control),
            worker,
            workers,
            leader,
            asks: asks(&shape),
        };
        let scribe = setup.scribe();
        let channel = setup.channel();
        let asking = setup.asking(channel.as_ref());
        let pause = setup.pause();
        let at_once = !shape.behind_prologue;
        let judge = at_once.then(|| setup.judge(pause)).flatten();
        let sweeper = setup.sweeper(setup.decides());
        let drawer = at_once.then(|| setup.drawer()).flatten();
        if !at_once && scribe.is_some() {
            k.fail("a launch that is watched draws its first tile before the prologue");
        }
        let this = TileLoop {
            k: *k,
            hidden,
            index: k.var(worker).named("tile_index"),
            worker,
            workers,
            leader,
            channel,
            asking,
            judge,
            flying: (shape.in_flight > 1).then(|| Flying::new(k, shape.in_flight)),
            sweeper,
            pause,
            drawer,
            scribe,
            shape,
        };
        if at_once {
            this.first_tile();
        } else if this.hurries() {
            // Others of this launch have ended before it came, so the launch before has, too. Most of these find no tile.
            k.if_(this.comes_late(), || {
                k.wait_for_dependency();
                this.claim();
            });
        }
        this
    }

    /// Whether blocks that come late draw before the prologue all the same. With classes, who says which tile is drawn comes behind it.
    fn hurries(&self) -> bool {
        let shape = &self.shape;
        shape.behind_prologue && shape.claims_first() && shape.classes.is_none()
    }

    /// Whether the block can't be among the first of its launch, or has no tile of its own number where these have.
    fn comes_late(&self) -> Bool<'k> {
        self.worker.ge(match self.shape.numbers_first() {
            true => self.hidden.first(),
            false => self.hidden.resident,
        })
    }

    /// The same with its first tile, where that is drawn behind the prologue: nothing that blocks or launches share is touched before.
    pub(super) fn begun(mut self) -> TileLoop<'k> {
        if !self.shape.behind_prologue {
            return self;
        }
        let setup = Setup {
            k: self.k,
            shape: &self.shape,
            hidden: &self.hidden,
            control: Control(self.hidden.control),
            worker: self.worker,
            workers: self.workers,
            leader: self.leader,
            asks: asks(&self.shape),
        };
        let (judge, drawer) = (setup.judge(self.pause), setup.drawer());
        (self.judge, self.drawer) = (judge, drawer);
        self.first_tile();
        self
    }

    /// The first tile, and what a loaded policy counts from. Of a launch that is built with one that always asks that is its first decision:
    /// which one is loaded is asked of memory, and the first copies do not wait for the answer.
    fn first_tile(&self) {
        self.find_first();
        let begins_with = self.shape.policy.loaded().and_then(|words| words.answer());
        if self.shape.submit == Submit::Late && begins_with != Some(true) {
            // Its first decision comes after its first tile; it counts from here.
            self.take_up();
        }
    }

    /// The tile of the block's own number, unless it has to be drawn.
    fn find_first(&self) {
        if self.shape.numbers_first() {
            if !self.shape.behind_prologue {
                self.k.if_(self.comes_late(), || self.claim());
            }
            // Else those that come late have drawn.
            if let Some(pause) = &self.pause {
                let numbered = self.leader & !self.comes_late();
                self.k.if_(numbered, || pause.begin_with_its_number());
                // Those that drew have met: before the body all threads know the pause's words.
                self.k.sync();
            }
        } else if self.hurries() {
            self.k.if_(!self.comes_late(), || self.claim());
        } else if self.shape.claims_first() {
            self.claim();
        } else if let (Some(drawer), Some(channel)) = (&self.drawer, self.channel) {
            // Its own number is a right like any other.
            self.k
                .if_(self.leader, || channel.send(drawer.draw(self.worker)));
            self.index.set(channel.receive());
            channel.release();
        }
    }
}

/// Whether blocks ask for tiles.
fn asks(shape: &Shape) -> bool {
    shape.source.asks() && shape.policy.constant() != Some(false)
}

impl<'k> Setup<'_, 'k> {
    /// Whether the policy has anything to decide.
    fn decides(&self) -> bool {
        self.asks && self.shape.policy.constant().is_none()
    }

    /// What the scheduler thread makes.
    fn in_leader<T>(&self, make: impl Fn() -> T) -> Option<T> {
        let held = OnceCell::new();
        self.k.if_(self.leader, || {
            // `if_` runs its body once; a second value is no case.
            let _ = held.set(make());
        });
        held.into_inner()
    }

    /// Who records what happens, where it is recorded.
    fn scribe(&self) -> Option<Scribe<'k>> {
        let watch = self.shape.watch;
        let first = match (self.shape.source, self.shape.claims_first()) {
            (TileSource::Static, _) => RecordKind::StaticTile,
            (TileSource::Ticket, true) => RecordKind::TicketTile,
            _ => RecordKind::OwnTile,
        };
        let traces = watch == Watch::Trace;
        (watch != Watch::Off)
            .then(|| Scribe::new(&self.k, self.hidden.watch, self.worker, traces, first))
    }

    /// How all threads learn the next tile, where they can't know it.
    fn channel(&self) -> Option<Channel<'k>> {
        let Setup { k, shape, asks, .. } = self;
        let classes = shape.classes.is_some();
        // Where tiles have classes, an answer is a right: the scheduler says for which tile.
        let answered = *asks
            && shape.source == TileSource::Clc
            && !classes
            && k.cluster_size() > 1
            && k.has(Feature::ClusterLaunchControlMulticast);
        if answered {
            let decides = shape.policy.constant().is_none();
            return Some(Channel::answered(k, decides, shape.in_flight));
        }
        (*asks || shape.claims_first() || classes).then(|| match shape.apart {
            true => Channel::apart(k),
            false => Channel::new(k),
        })
    }

    /// Where requests go: into the channel, where answers come through it.
    fn asking(&self, channel: Option<&Channel<'k>>) -> Asking<'k> {
        let Setup { k, shape, .. } = self;
        match (shape.source, channel.and_then(|channel| channel.request())) {
            (_, Some(request)) => Asking::Clc(request),
            (TileSource::Clc, None) if self.asks => self
                .in_leader(|| k.clc_request(shape.in_flight))
                .map_or(Asking::Nobody, Asking::Clc),
            (TileSource::Ticket, None) => Asking::Tickets(Tickets::new(
                k,
                self.control.counter(),
                self.hidden.count,
                [self.workers, self.hidden.resident],
                match shape.grid {
                    TicketGrid::Resident => self.workers,
                    _ if shape.numbers_first() => self.hidden.first(),
                    _ => k.c(0),
                },
                shape.endings(),
            )),
            _ => Asking::Nobody,
        }
    }

    /// How tiles are left half done, where they may be.
    fn pause(&self) -> Option<Pause<'k>> {
        let state = self.shape.pause;
        // Those that begin with the tile of their number come for nobody.
        let numbered = self.shape.numbers_first() && state.is_some();
        let come = match numbered {
            true => self.workers - self.hidden.first(),
            false => self.workers,
        };
        let counts = [self.hidden.resident, come];
        state.map(|state| Pause::new(&self.k, self.control, counts, numbered, state))
    }

    /// The policy, where it has anything to decide.
    fn judge(&self, pause: Option<Pause<'k>>) -> Option<Judge<'k>> {
        let Setup {
            k, shape, hidden, ..
        } = self;
        if !self.decides() {
            return None;
        }
        let has_area = shape.policy.loaded().is_some();
        let cx = PolicyCx {
            k: *k,
            worker: self.worker,
            workers: self.workers,
            tiles: hidden.count,
            resident: hidden.resident,
            watchdog: Watchdog {
                overruled: k.var(false).named("overruled"),
                record: self.control.record(),
                bound: shape.watchdog,
            },
            control: self.control,
            first_word: 0,
            pause,
            has_area,
        };
        let policy = self.in_leader(|| {
            k.comment(&format!("policy: {}", shape.policy.name()));
            shape.policy.start(&cx)
        });
        policy.map(|policy| Judge {
            cx,
            policy,
            pending: k.var(false).named("pending"),
            stop: k.var(false).named("stop"),
            plain: has_area.then(|| k.var(false).named("plain")),
        })
    }

    /// What clears the words that blocks share.
    fn sweeper(&self, judged: bool) -> Option<Sweeper<'k>> {
        let swept = Swept {
            policy: match judged {
                true => self.shape.policy.shared_words(),
                false => 0,
            },
            classes: self.shape.classes.is_some(),
            pauses: self.shape.pause.is_some(),
        };
        Sweeper::new(&self.k, self.control, swept, self.workers)
    }

    /// Who says which tile a right is for, where tiles have classes.
    fn drawer(&self) -> Option<Drawer<'k>> {
        let classes = self.shape.classes.as_ref()?;
        let (table, count) = (self.hidden.table, self.hidden.count);
        self.in_leader(|| Drawer::new(&self.k, classes, self.control, table, count))
    }
}
