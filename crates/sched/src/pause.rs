//! Tiles that are left half done when the bell is rung, and resumed exactly once.
//!
//! A body that can pause says how many words its state takes ([`Tiled::state`](crate::Tiled::state)).
//! Under a schedule that [pauses](crate::Schedule::pausing) it looks at the bell between steps. Once
//! the bell is rung it saves its state in a slot of the launch's memory, and the block queues the
//! tile and leaves. A block that arrives takes a queued tile before it draws a ticket.
//!
//! **No tile is without a block.** Let `r` be the blocks that have not arrived yet, `p` the tiles
//! that are half done, and `o` the blocks that left at the end of a tile and have no successor yet. As long as
//! `p + o <= r`, there is an arriving block for each of them. The launch
//! keeps `r - p - o` in a word, *spare*, which begins at the number of blocks in the grid (but for those that begin with the tile of their own
//! number: they come for nobody, and are in none of these), and `o` in another, *owed*:
//!
//! * a block may pause only if it could take one that is spare;
//! * a block whose policy wants to leave may do so if it could take one. Else it draws on;
//! * a block that arrives and takes a half-done tile leaves both words as they are: one block and one tile
//!   less;
//! * a block that arrives and finds none is one that was owed, or takes one that is spare. It draws a ticket, and
//!   leaves if there is none. If it finds neither, a block is just leaving whose successor it is: it
//!   looks again.
//!
//! So no word is ever too high, and whoever has to wait waits for a block that runs. Each block that leaves
//! before the last ticket has a successor of its own, so as many run as fit, or all that are left. Tickets are
//! drawn to the last: once all have arrived none is spare, and nobody pauses or leaves before a
//! draw has failed.
//!
//! **As many leave as are wanted.** A bell may say how many blocks are to be away at a time
//! ([`Bell::For`]). The launch counts those that left before the last tile, less those that
//! came after them. A block that looks at such a bell takes its place among them first, and stays
//! where there is none left. That decides who leaves, and nothing of the above depends on it.
//!
//! **Who has made room once does not make others leave.** The bell is rung until a visitor's last block has ended,
//! and its first ones have ended before. A block that then takes the place of one that left a while ago, under a bell for one launch
//! ([`Bell::Once`]), stands where the visitor has been: it *holds* the place among those that are away, so that nobody
//! leaves for it. It gives the place back once it finds the bell silent or rung anew, or after some time: then whoever
//! rings may be waiting for a place that another kernel had. A block that comes sooner
//! than a visitor's could have ended has taken the place before the visitor came, which still needs one:
//! it counts as back at once.
//!
//! **A half-done tile has one owner.** Its slot belongs to a block from the compare-and-exchange
//! that finds it free until the block queues it (release) or ends the tile; from the queue it goes to
//! the one block that takes its number (acquire).

use crate::bell::Bell;
use crate::channel::NONE;
use crate::control::{CONTROL_WORDS, Control, Sweeper};
use heist_builder::{Bool, Global, IntoVal, Kernel, Order, Ptr, Scope, SharedArray, Val, Var};

/// Slots, and blocks beyond those that [`grid`] says, for each block that the GPU runs at a time.
const SPARE: u32 = 2;
/// Of so many tiles a block may leave once, in the mean, unless the kernel says how many ([`TiledKernel::leaving`](crate::TiledKernel::leaving)).
pub(crate) const TILES_A_LEAVE: u32 = 8;

/// How many blocks a launch has whose tiles may be left half done.
///
/// Blocks that find nothing to do come at the end of a launch, one after the other on each
/// multiprocessor, so there are no more than leaves need: one for a few tiles. A policy
/// that `stays` for no second tile needs one for each.
pub(crate) fn grid(tiles: u32, resident: u32, stays: bool, tiles_a_leave: u32) -> u32 {
    let first = match stays {
        true => resident
            .saturating_add(tiles / tiles_a_leave.max(1))
            .min(tiles),
        false => tiles,
    };
    first.saturating_add(SPARE.saturating_mul(resident))
}

/// 32-bit words of a line of memory. Slots begin with one: warps save and restore whole lines.
const LINE: u32 = 32;
/// Words at the front of a slot: the tile's index, the step it goes on with, and when it was left.
const HEADER: u32 = LINE;
/// Where in them it stands when the tile was left.
const LEFT_AT: u32 = 2;

/// A block's successor comes 1 to 3 us after it; one that comes so much later, in nanoseconds, had a visitor before it. Who is taken for one
/// that was visited, and was not, keeps a visitor waiting; who is not, lets one block more leave.
const VISITED_NS: i32 = 8_000;
/// How long a block at most counts as away that is back, in nanoseconds: as long as a visitor's blocks end behind each other.
const HELD_NS: u32 = 40_000;

/// 64-bit words behind the control words: the queue, which slots are taken, the slots.
pub(crate) fn area_words(resident: u32, state: u32) -> usize {
    let slots = SPARE as usize * resident as usize;
    let before = (2 * (CONTROL_WORDS + slots)).next_multiple_of(LINE as usize);
    (before + slots * slot_words(state) as usize) / 2 - CONTROL_WORDS
}

/// 32-bit words of a slot.
fn slot_words(state: u32) -> u32 {
    (HEADER + state).next_multiple_of(LINE)
}

/// The number of the slot that the tile was saved in, plus one.
const SAVED: u32 = 0;
/// The number of the slot that the tile is to be left in, plus one.
const LEFT: u32 = 1;
/// The step that the tile goes on with.
const FROM: u32 = 2;
/// Whether a block that arrives knows what it does.
const SETTLED: u32 = 3;
/// What the bell said when the tile's last step began, plus one; 0 if nobody listened.
const HEARD: u32 = 4;
/// When a block came that still counts as away; 0 if it does not.
const HELD: u32 = 5;
/// What the bell said then.
const HELD_FOR: u32 = 6;
/// Whether the block began with the tile of its own number and has not been counted in.
const FRESH: u32 = 7;
/// Words in shared memory.
const SHARED: u32 = 8;

/// How a body leaves a tile half done: see [`TileLoop::pause`](crate::TileLoop::pause).
#[derive(Clone, Copy)]
pub struct Pause<'k> {
    k: Kernel<'k>,
    control: Control<'k>,
    /// Blocks that the GPU runs at a time.
    resident: Val<'k, u32>,
    /// Blocks of the launch that come for others, or draw their first tile.
    grid: Val<'k, u32>,
    /// Whether the others begin with the tile of their own number.
    numbered: bool,
    /// 32-bit words of a slot.
    slot_words: u32,
    /// Here and not in registers, which bodies with much state have none to spare of.
    /// [`LEFT`] is written by the thread that looks, the others by the scheduler thread between two
    /// bodies.
    shared: SharedArray<'k, u32>,
}

impl std::fmt::Debug for Pause<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pause({} words a slot)", self.slot_words)
    }
}

/// What the scheduler thread of a block found when it arrived.
pub(crate) struct Arrival<'k> {
    away: Var<'k, i32>,
    bell: Var<'k, u32>,
    came: Var<'k, u32>,
    /// When the block left whose successor it is; 0 if it is nobody's.
    left_at: Var<'k, u32>,
}

/// What a body does about the bell.
impl<'k> Pause<'k> {
    /// The step that the tile begins with: 0, unless it was left half done. In any thread.
    #[track_caller]
    pub fn from(&self) -> Val<'k, u32> {
        self.shared.at(FROM).load()
    }

    /// Where the state of a tile is that was left half done.
    #[track_caller]
    pub fn saved(&self) -> Ptr<'k, Global, u32> {
        self.slot(self.shared.at(SAVED).load()).at(HEADER)
    }

    /// Where to save the state of a tile that is to be [left](Pause::left). It may be where it
    /// was saved before: a thread writes what it has read itself.
    #[track_caller]
    pub fn room(&self) -> Ptr<'k, Global, u32> {
        self.slot(self.shared.at(LEFT).load()).at(HEADER)
    }

    /// In one thread: loads the bell, for the next [look](Pause::look). It takes as long as memory
    /// does, so there is work to be done before that look.
    #[track_caller]
    pub fn listen(&self) -> Val<'k, u32> {
        self.control.bell().load_relaxed(Scope::System)
    }

    /// In the scheduler thread, at the end of a tile's copies: what it [heard](Pause::listen) last. A policy that asks for
    /// the bell behind the tile takes this for it, once, and does not wait for memory before the next tile can begin.
    #[track_caller]
    pub fn heard(&self, word: Val<'k, u32>) {
        self.shared.at(HEARD).store(word + 1);
    }

    /// In that thread: says whether the tile is to be left before `step`, which is not 0, since it
    /// [heard](Pause::listen) the bell. Then all threads of the block save their state and end the
    /// body; the thread tells them by way of [`Pause::left`], and its own call happens before theirs,
    /// and before the end of the body in thread 0.
    #[track_caller]
    pub fn look(&self, heard: Val<'k, u32>, step: impl IntoVal<'k, u32>) -> Bool<'k> {
        self.look_if(heard, self.k.c(true), step)
    }

    /// The same, but the tile is left only where `may` holds.
    #[track_caller]
    pub fn look_if(
        &self,
        heard: Val<'k, u32>,
        may: Bool<'k>,
        step: impl IntoVal<'k, u32>,
    ) -> Bool<'k> {
        let (k, step) = (self.k, step.into_val(&self.k));
        let leaves = k.var(false).named("leaves");
        let stays = self.holds(heard);
        k.if_(heard.ne(0) & may & !stays, || {
            self.leave_if_wanted(heard, step, leaves);
        });
        leaves.get()
    }

    /// The same for a body that looks every few microseconds: the tile is left at the second look in a row that hears the bell, and `before` is
    /// what the look before heard. Whoever rings launches its kernel a few microseconds later: where a block leaves before that, the next one of
    /// this launch takes its place and goes on with a half-done tile. And a block that comes when a visitor is done would leave once more,
    /// for the visitors of other multiprocessors. A visitor that is launched [together with its ring](Bell::ring_launched) is there at the first look.
    #[track_caller]
    pub fn look_twice(
        &self,
        heard: Val<'k, u32>,
        before: Var<'k, u32>,
        step: impl IntoVal<'k, u32>,
    ) -> Bool<'k> {
        let twice = before.get().ne(0) | Bell::is_launched(heard);
        before.set(heard);
        self.look_if(heard, twice, step)
    }

    /// Leaves before `step` if the bell, which said `heard`, wants one more block: takes a place among those that are
    /// away, a spare block and a slot, all at once, since each answer takes as long as memory does and the copies wait. What it
    /// has then but can't use it gives back.
    fn leave_if_wanted(&self, heard: Val<'k, u32>, step: Val<'k, u32>, leaves: Var<'k, bool>) {
        let (k, away) = (self.k, self.control.away());
        k.if_(Bell::wants(heard, away.load_relaxed(Scope::Gpu)), || {
            let own = self.shared.at(SAVED).load();
            let slot = k.var(own).named("slot");
            let first = k.block().x % self.slots();
            let taken = k.var(1u32).named("taken");
            let before = [
                away.atomic_add(1i32),
                self.control.spare().atomic_add(-1i32),
            ];
            k.if_(own.eq(0), || {
                taken.set(self.take_slot(first));
            });
            k.if_(taken.get().eq(0), || slot.set(first + 1));
            let may = Bell::wants(heard, before[0]) & (before[1] + self.grid.cast::<i32>()).gt(0);
            k.if_(may & slot.get().eq(0), || self.find_slot(slot));
            k.if_else(
                may & slot.get().ne(0),
                || {
                    self.slot(slot.get()).at(1).store(step);
                    self.shared.at(LEFT).store(slot.get());
                    leaves.set(true);
                },
                || {
                    k.if_(taken.get().eq(0), || {
                        self.taken(first).store_release(Scope::Gpu, 0u32);
                    });
                    self.give_spare();
                    self.stay();
                },
            );
        });
    }

    /// Whether the tile is to be left, in all threads of a warp, after the [look](Pause::look) that
    /// decided it and before the next one.
    #[track_caller]
    pub fn left(&self) -> Bool<'k> {
        self.slot_left().ne(0)
    }

    /// The same where `looked` holds, which is after a look, and false elsewhere. Without a branch:
    /// a loop that can end in one has nothing in uniform registers.
    #[track_caller]
    pub fn left_if(&self, looked: Bool<'k>) -> Bool<'k> {
        // Nobody writes the other one during a body.
        let word = looked.select(self.k.c(LEFT), SAVED);
        self.shared.at(word).load().shuffle_from(0u32).ne(0) & looked
    }

    /// The same in one thread.
    #[track_caller]
    pub(crate) fn left_in_one(&self) -> Bool<'k> {
        self.shared.at(LEFT).load().ne(0)
    }

    /// From lane 0, so that the assembler knows that a warp agrees: else nothing that a loop counts
    /// would be in uniform registers, once the loop can end here.
    #[track_caller]
    fn slot_left(&self) -> Val<'k, u32> {
        self.shared.at(LEFT).load().shuffle_from(0u32)
    }
}

/// What the tile loop does.
impl<'k> Pause<'k> {
    /// All threads of the block take part; a barrier follows before the body.
    pub(crate) fn new(
        k: &Kernel<'k>,
        control: Control<'k>,
        [resident, grid]: [Val<'k, u32>; 2],
        numbered: bool,
        state: u32,
    ) -> Pause<'k> {
        let shared = k.shared_aligned::<u32>("heist_pause", SHARED, 16);
        k.one_thread(|| {
            for first in (0..SHARED).step_by(4) {
                shared.at(first).store_vec([k.c(0u32); 4]);
            }
        });
        Pause {
            k: *k,
            control,
            resident,
            grid,
            numbered,
            slot_words: slot_words(state),
            shared,
        }
    }

    /// In every thread of a block that arrives: the index of a tile that was left half done, or
    /// what `draw` draws, or [`NONE`], in the scheduler thread. Where `gone` says that
    /// there is nothing to draw, it calls `refused` instead.
    ///
    /// The whole block goes through the loop, though one thread does the work: after a loop of one
    /// thread the assembler takes its warp for split in all that follows, and puts nothing in
    /// uniform registers.
    #[track_caller]
    pub(crate) fn arrive(
        &self,
        leader: Bool<'k>,
        (gone, refused): (impl Fn() -> Bool<'k>, impl Fn()),
        draw: impl Fn() -> Val<'k, u32>,
    ) -> (Val<'k, u32>, Arrival<'k>) {
        let k = self.k;
        let index = k.var(NONE).named("first");
        let place = k.var(0u32).named("place");
        let settled = k.var(false).named("settled");
        // They arrive while the block finds out what to do.
        let away = k.var(0i32).named("away");
        let bell = k.var(0u32).named("bell");
        let came = k.var(0u32).named("came");
        // One that is spare, in advance: most blocks need it, and the others give it back.
        let spare = k.var(0i32).named("spare");
        let (asked, has) = (k.var(true), k.var(false));
        let (asked, has) = (asked.named("asked_spare"), has.named("has_spare"));
        let give_back = || {
            k.if_(has.get(), || {
                has.set(k.c(false));
                self.give_spare();
            });
        };
        k.if_(leader, || {
            came.set(self.now());
            away.set(self.control.away().load_relaxed(Scope::Gpu));
            bell.set(self.listen());
            spare.set(self.control.spare().atomic_add(-1i32));
        });
        // When the block left whose successor this one is.
        let left_at = k.var(0u32).named("left_at");
        k.loop_(|flow| {
            k.if_(leader, || {
                // Asked for at once: each answer takes as long as memory does, and blocks that come for
                // nothing come one after the other. The two may be of different times: they only say what is worth trying.
                let [waiting, owed] = self.control.waiting().load_vec_relaxed(Scope::Gpu);
                let gone = gone();
                k.if_(asked.get(), || {
                    asked.set(k.c(false));
                    has.set(self.took_spare(spare.get()));
                });
                k.if_(place.get().eq(0) & waiting.gt(0), || {
                    place.set(self.take_place());
                });
                k.if_else(
                    place.get().ne(0),
                    || {
                        give_back();
                        self.take(place.get(), index, left_at, settled);
                    },
                    || {
                        k.if_(owed.gt(0), || {
                            settled.set(self.take_owed());
                            left_at.set(self.control.left_at().load_relaxed(Scope::Gpu));
                            k.if_(settled.get(), give_back);
                        });
                        k.if_(!(settled.get() | has.get()), || has.set(self.take_spare()));
                        settled.set(settled.get() | has.get());
                        k.if_(settled.get(), || {
                            k.if_else(gone, &refused, || index.set(draw()));
                        });
                    },
                );
                self.shared.at(SETTLED).store(settled.get().to_u32());
            });
            k.sync();
            flow.break_if(self.shared.at(SETTLED).load().ne(0));
            k.sync();
        });
        let arrival = Arrival {
            away,
            bell,
            came,
            left_at,
        };
        (index.get(), arrival)
    }

    /// In the scheduler thread of a block that has arrived, once the others know its tile: it is back, or still counts as away.
    #[track_caller]
    pub(crate) fn count_in(&self, arrival: &Arrival<'k>) {
        let k = self.k;
        let Arrival {
            away,
            bell,
            came,
            left_at,
        } = arrival;
        k.if_(away.get().gt(0), || {
            let after = (came.get() - left_at.get()).cast::<i32>();
            let visited = left_at.get().ne(0) & after.ge(VISITED_NS);
            k.if_else(
                visited & Bell::is_once(bell.get()),
                || {
                    self.shared.at(HELD).store(came.get());
                    self.shared.at(HELD_FOR).store(bell.get());
                },
                || self.come_back(),
            );
        });
    }

    /// In the scheduler thread of a block that begins with the tile of its own number. Most come first of all. One may come late, where another kernel
    /// had its multiprocessor: then it has taken a place that somebody left, and is counted when it looks at the bell, for the first
    /// copies would wait for it here.
    #[track_caller]
    pub(crate) fn begin_with_its_number(&self) {
        self.shared.at(FRESH).store(1u32);
    }

    /// Counts such a block in, once.
    #[track_caller]
    fn count_in_late(&self) {
        if !self.numbered {
            return;
        }
        let k = self.k;
        k.if_(self.shared.at(FRESH).load().ne(0), || {
            self.shared.at(FRESH).store(0u32);
            let away = self.control.away().load_relaxed(Scope::Gpu);
            k.if_(away.gt(0), || self.come_back());
        });
    }

    /// Behind the body, in the scheduler thread: whether the tile at `index` was left.
    #[track_caller]
    pub(crate) fn leaves(&self, index: Val<'k, u32>) -> Bool<'k> {
        let slot = self.shared.at(LEFT).load();
        let left = slot.ne(0);
        self.k.if_(left, || self.slot(slot).store(index));
        left
    }

    /// In every thread, behind a barrier that follows the body: a slot that the tile had is free,
    /// unless it was left there again. A barrier follows before the next body, where one is needed.
    #[track_caller]
    pub(crate) fn settle(&self, leader: Bool<'k>) {
        let k = self.k;
        let saved = self.shared.at(SAVED).load().shuffle_from(0u32);
        k.if_(saved.ne(0), || {
            k.sync();
            k.if_(leader, || {
                k.if_(self.shared.at(LEFT).load().eq(0), || {
                    self.taken(saved - 1).store_release(Scope::Gpu, 0u32);
                });
                self.shared.at(SAVED).store(0u32);
                self.shared.at(FROM).store(0u32);
            });
            k.sync();
        });
    }

    /// In the scheduler thread of a block that leaves, behind that barrier: queues the tile that
    /// was left, if one was, and else calls `ends`. All threads have saved their state.
    ///
    /// Whoever leaves a tile is not the last of its launch, so it counts itself without waiting for the answer, and its multiprocessor
    /// is free the sooner. It counts before the tile is queued: who takes the tile acquires the count with it, and counts itself later. The other
    /// way round the last block could count before this one's count has arrived, and nobody would clear the words for the next launch.
    #[track_caller]
    pub(crate) fn queue_left_or(&self, sweeper: &Sweeper<'k>, ends: impl Fn()) {
        let slot = self.shared.at(LEFT).load();
        let leaves = || {
            sweeper.count();
            self.queue(slot);
        };
        self.k.if_else(slot.ne(0), leaves, ends);
    }

    /// In the scheduler thread behind a tile: leaves, though there may be tiles to draw, if a block is
    /// still to come that nobody waits for; whether it does.
    #[track_caller]
    pub(crate) fn go_away(&self) -> Bool<'k> {
        let goes = self.take_spare();
        self.k.if_(goes, || {
            self.count_in_late();
            self.control.left_at().store_relaxed(Scope::Gpu, self.now());
            self.control.owed().reduce_add(1i32);
            // A place that it holds is its own.
            let held = self.shared.at(HELD).load();
            self.k
                .if_(held.eq(0), || self.control.away().reduce_add(1i32));
        });
        goes
    }

    /// In the scheduler thread: whether the bell wants one more block to leave.
    #[track_caller]
    pub(crate) fn is_asked(&self) -> Bool<'k> {
        let k = self.k;
        let heard = self.shared.at(HEARD).load();
        let word = k.if_value(
            heard.ne(0),
            || {
                self.shared.at(HEARD).store(0u32);
                heard - 1
            },
            || self.listen(),
        );
        let asked = k.var(false).named("asked");
        let stays = self.holds(word);
        k.if_(word.ne(0) & !stays, || {
            let away = self.control.away().load_relaxed(Scope::Gpu);
            asked.set(Bell::wants(word, away));
        });
        asked.get()
    }

    /// In the thread that looks at the bell, which said `heard`: whether this block still counts as away. Then it
    /// stays; where it need not count any more, it is counted as back.
    #[track_caller]
    fn holds(&self, heard: Val<'k, u32>) -> Bool<'k> {
        let k = self.k;
        self.count_in_late();
        let since = self.shared.at(HELD).load();
        let holds = k.var(false).named("holds");
        k.if_(since.ne(0), || {
            let same = heard.eq(self.shared.at(HELD_FOR).load());
            holds.set(same & (self.now() - since).lt(HELD_NS));
            k.if_(!holds.get(), || {
                self.shared.at(HELD).store(0u32);
                self.come_back();
            });
        });
        holds.get()
    }

    /// A time in nanoseconds that is not 0, to be compared with others of the last seconds.
    #[track_caller]
    fn now(&self) -> Val<'k, u32> {
        self.k.nanoseconds().cast::<u32>() | 1
    }

    /// Takes that back.
    #[track_caller]
    fn stay(&self) {
        self.control.away().reduce_add(-1i32);
    }

    /// Counts a block that came, if one is away.
    #[track_caller]
    fn come_back(&self) {
        let away = self.control.away();
        self.k
            .if_(away.atomic_add(-1i32).le(0), || away.reduce_add(1i32));
    }

    /// Takes a spare block, if there is one. The word begins at zero.
    #[track_caller]
    fn take_spare(&self) -> Bool<'k> {
        self.took_spare(self.control.spare().atomic_add(-1i32))
    }

    /// Whether there was a spare one to take, where the word said so `before` one was taken; else it is given back.
    #[track_caller]
    fn took_spare(&self, before: Val<'k, i32>) -> Bool<'k> {
        let took = (before + self.grid.cast::<i32>()).gt(0);
        self.k.if_(!took, || self.give_spare());
        took
    }

    /// Is the successor of a block that left at the end of a tile, if one has none.
    #[track_caller]
    fn take_owed(&self) -> Bool<'k> {
        let owed = self.control.owed();
        let took = owed.atomic_add(-1i32).gt(0);
        self.k.if_(!took, || owed.reduce_add(1i32));
        took
    }

    #[track_caller]
    fn give_spare(&self) {
        self.control.spare().reduce_add(1i32);
    }

    /// Puts a slot, whose number plus one is given, in the queue.
    #[track_caller]
    fn queue(&self, slot: Val<'k, u32>) {
        let k = self.k;
        let place = self.place(self.control.queued().atomic_add(1u32));
        // Whoever took the tile that was here has read it, or is about to.
        k.while_(|| place.load_relaxed(Scope::Gpu).ne(0), || {});
        self.slot(slot).at(LEFT_AT).store(self.now());
        place.store_release(Scope::Gpu, slot);
        self.control.waiting().reduce_add(1i32);
    }

    /// Takes the number plus one of a place in the queue, if a tile waits, or 0.
    #[track_caller]
    fn take_place(&self) -> Val<'k, u32> {
        let (k, waiting) = (self.k, self.control.waiting());
        let number = k.var(0u32);
        k.if_else(
            waiting.atomic_add(-1i32).gt(0),
            || number.set(self.control.dequeued().atomic_add(1u32) % self.slots() + 1),
            || waiting.reduce_add(1i32),
        );
        number.get()
    }

    /// Takes the tile at a place, whose number plus one is given, if it is there yet.
    #[track_caller]
    fn take(
        &self,
        place: Val<'k, u32>,
        index: Var<'k, u32>,
        left_at: Var<'k, u32>,
        settled: Var<'k, bool>,
    ) {
        let place = self.place(place - 1);
        let slot = place.load_acquire(Scope::Gpu);
        self.k.if_(slot.ne(0), || {
            place.store_relaxed(Scope::Gpu, 0u32);
            let saved = self.slot(slot);
            self.shared.at(SAVED).store(slot);
            self.shared.at(FROM).store(saved.at(1).load());
            left_at.set(saved.at(LEFT_AT).load());
            index.set(saved.load());
            settled.set(true);
        });
    }

    /// Finds a free slot; its number plus one goes to `slot`, which stays 0 if there is none.
    #[track_caller]
    fn find_slot(&self, slot: Var<'k, u32>) {
        let k = self.k;
        // Blocks that pause at a time begin at different ones.
        let first = k.block().x % self.slots();
        let tried = k.var(0u32).named("tried");
        k.while_(
            || slot.get().eq(0) & tried.get().lt(self.slots()),
            || {
                let number = (first + tried.get()) % self.slots();
                slot.set(self.take_slot(number).eq(0).select(number + 1, 0));
                tried.set(tried.get() + 1);
            },
        );
    }

    /// Takes a slot if it is free: 0 if it was.
    #[track_caller]
    fn take_slot(&self, number: Val<'k, u32>) -> Val<'k, u32> {
        let taken = self.taken(number);
        taken.atomic_compare_exchange(Order::AcquireRelease, Scope::Gpu, 0u32, 1u32)
    }

    /// How many slots there are.
    fn slots(&self) -> Val<'k, u32> {
        self.resident * SPARE
    }

    fn area(&self) -> Ptr<'k, Global, u32> {
        self.control.0.at(CONTROL_WORDS as u32).cast::<u32>()
    }

    /// A place in the queue: 0, or the number plus one of a slot.
    fn place(&self, number: Val<'k, u32>) -> Ptr<'k, Global, u32> {
        self.area().at(number % self.slots())
    }

    /// Whether a slot is taken.
    fn taken(&self, number: Val<'k, u32>) -> Ptr<'k, Global, u32> {
        self.area().at(self.slots() + number)
    }

    /// The slot whose number plus one is given: the tile's index, its next step, and its state.
    fn slot(&self, number: Val<'k, u32>) -> Ptr<'k, Global, u32> {
        let words = (number - 1).mul_wide(self.slot_words);
        let before = self.slots() * 2 + (2 * CONTROL_WORDS as u32 + LINE - 1);
        let first = before & !(LINE - 1);
        self.control.0.cast::<u32>().at(first).at(words)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_has_its_header_its_state_and_two_words_to_find_it() {
        assert_eq!((slot_words(0), slot_words(6), slot_words(32)), (32, 64, 64));
        // Control words, two words for each of eight slots, and slots from the next line on, in words of 64 bits.
        assert_eq!(CONTROL_WORDS + area_words(4, 6), (40 + 16 + 8 + 8 * 64) / 2);
    }

    #[test]
    fn a_launch_has_blocks_for_those_that_leave_and_no_more() {
        // A block for every eighth tile, beside those that run at a time; never more than tiles.
        assert_eq!(grid(2050, 132, true, 8), 132 + 256 + 2 * 132);
        assert_eq!(grid(2050, 132, true, 2), 132 + 1025 + 2 * 132);
        assert_eq!(grid(100, 132, true, 8), 100 + 2 * 132);
        assert_eq!(grid(2050, 132, false, 8), 2050 + 2 * 132);
    }
}
