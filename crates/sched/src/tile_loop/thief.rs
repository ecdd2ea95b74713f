//! The loop that asks for more tiles, and its scheduler thread.

use super::{Asking, Judge, Tile, TileLoop};
use crate::channel::{ASK, Channel, NONE};
use crate::policy::TileId;
use crate::source::Submit;
use crate::ticket::Endings;
use crate::watch::RecordKind;
use heist_builder::{Bool, Dim3, Val, Var};

impl<'k> TileLoop<'k> {
    /// The loop that asks for more.
    pub(super) fn steal(&self, body: &dyn Fn(Tile<'k>), ahead: Option<&dyn Fn(Tile<'k>)>) {
        let k = self.k;
        let Some(channel) = self.channel else {
            return;
        };
        let late = self.shape.submit == Submit::Late && k.cluster_size() == 1;
        if let Some(judge) = self.loaded().filter(|_| late) {
            return self.steal_loaded(judge, channel, body, ahead);
        }
        // In a cluster every block looks at the word that was sent to it.
        let looks = self.answered().is_some() || k.cluster_size() > 1;
        let send = |next: Val<'k, u32>| {
            channel.send(next);
            if let (Some(ahead), false) = (ahead, looks) {
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
            let quiet = self.is_quiet();
            let decide = || self.decide(&send);
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
            if let (Some(ahead), true) = (ahead, looks) {
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

    /// The same under a loaded policy, in two loops. In the inner one tiles follow each other as under a greedy policy
    /// that is built in, as long as the loaded one always asks. Where it is to be interpreted all threads
    /// go to the outer one: the interpreter is long, and every tile would have to jump over it.
    fn steal_loaded(
        &self,
        judge: &Judge<'k>,
        channel: Channel<'k>,
        body: &dyn Fn(Tile<'k>),
        ahead: Option<&dyn Fn(Tile<'k>)>,
    ) {
        let k = self.k;
        let send = |next: Val<'k, u32>| {
            channel.send(next);
            if let Some(ahead) = ahead {
                self.begin(next, ahead);
            }
        };
        let receive = || {
            // The assembler does not find the reconvergence point by itself.
            k.sync_warp();
            let next = channel.receive();
            self.index.set(next);
            next
        };
        k.loop_(|asked| {
            k.loop_(|plain| {
                self.run(body);
                k.if_(self.leader, || {
                    k.if_else(
                        self.always_asks(judge),
                        || self.ask_as_always(judge, &send),
                        || channel.send(k.c(ASK)),
                    );
                });
                let next = receive();
                plain.continue_if(next.lt(ASK));
                plain.break_();
            });
            asked.break_if(self.index.get().eq(NONE));
            k.if_(self.leader, || self.ask_interpreted(judge, &send));
            let next = receive();
            asked.continue_if(next.ne(NONE));
            asked.break_();
        });
    }

    /// Whether a loaded policy, as it was when its thread last looked, always asks.
    fn always_asks(&self, judge: &Judge<'k>) -> Bool<'k> {
        let plain = judge.policy.is_plain(&judge.cx);
        plain.unwrap_or(self.k.c(false)) & !judge.stop.get()
    }

    /// Sends the next tile under a loaded policy that always asks.
    fn ask_as_always(&self, judge: &Judge<'k>, send: &dyn Fn(Val<'k, u32>)) {
        let quiet = self.drawer.is_none() && self.scribe.is_none();
        self.submit();
        // It arrives with the answer, and is for the next tile.
        judge.policy.look_ahead(&judge.cx);
        match &self.asking {
            Asking::Tickets(tickets) if quiet => {
                send(tickets.word());
                tickets.end_if_refused();
            }
            _ => {
                let next = self.k.var(NONE).named("next");
                self.collect(next, None);
                send(next.get());
            }
        }
    }

    /// Sends the next tile, or none, under a loaded policy that is to be interpreted.
    fn ask_interpreted(&self, judge: &Judge<'k>, send: &dyn Fn(Val<'k, u32>)) {
        judge.policy.take_up(&judge.cx);
        let next = self.k.var(NONE).named("next");
        self.settle(next);
        judge.policy.look_ahead(&judge.cx);
        send(next.get());
    }

    /// The loop of warps that have a role for good. Those of the `first` role have the scheduler thread, and, under a loaded
    /// policy, its interpreter: the others wait for a tile, whoever decided on it.
    pub(super) fn steal_in_role(&self, body: &dyn Fn(Tile<'k>), first: bool) {
        let k = self.k;
        let (Some(channel), None) = (self.channel, self.answered()) else {
            return k.fail("roles have a loop each where the scheduler sends every tile's number");
        };
        let send = |next| channel.send(next);
        let decide = || match (self.loaded(), &self.pause) {
            (None, None) => self.decide(&send),
            (None, Some(pause)) => {
                let left = pause.leaves(self.index.get());
                k.if_else(left, || send(k.c(NONE)), || self.decide(&send));
            }
            (Some(judge), _) => k.if_else(
                self.always_asks(judge),
                || self.ask_as_always(judge, &send),
                || self.ask_interpreted(judge, &send),
            ),
        };
        k.loop_(|flow| {
            if first && self.shape.submit == Submit::Early {
                k.if_(self.leader, || {
                    self.unless_plain(|| self.submit(), || self.opportunity());
                });
                k.sync_warp();
            }
            self.run(body);
            if first {
                k.if_(self.leader, decide);
                k.sync_warp();
            }
            let next = channel.receive();
            self.index.set(next);
            if let Some(pause) = &self.pause {
                pause.settle(self.leader);
            }
            flow.continue_if(next.ne(NONE));
            flow.break_();
        });
    }

    /// Whether nothing but a request decides on the next tile.
    fn is_quiet(&self) -> bool {
        self.judge.is_none() && self.drawer.is_none() && self.scribe.is_none()
    }

    /// After a tile, in the scheduler thread: sends the next one, or none.
    fn decide(&self, send: &dyn Fn(Val<'k, u32>)) {
        let fixed = self.is_quiet() && self.shape.fixed_draws();
        if let (true, Asking::Tickets(tickets)) = (fixed, &self.asking) {
            if self.shape.submit == Submit::Late {
                self.submit();
            }
            return send(tickets.word());
        }
        let next = self.k.var(NONE).named("next");
        self.answer(next);
        send(next.get());
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
    pub(super) fn ask(&self, judge: &Judge<'k>) -> Bool<'k> {
        let answer = judge.policy.should_try_steal(&judge.cx);
        let ask = answer | judge.cx.watchdog.overruled.get();
        if self.scribe.is_some() {
            self.k.if_(!ask, || self.note(RecordKind::Declined));
        }
        ask
    }

    pub(super) fn submit(&self) {
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
                return k.if_(!pause.go_away(), || {
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
        // The same where no block is to come that could.
        let unless = |leaves: Bool<'k>| {
            k.if_(!leaves, || {
                self.note(RecordKind::Overruled);
                self.submit();
                judge.pending.set(true);
            });
        };
        match (&self.pause, &self.asking) {
            (Some(pause), _) => k.if_(!judge.pending.get(), || unless(pause.go_away())),
            (None, Asking::Tickets(tickets)) if self.shape.endings() == Endings::Relieved => {
                k.if_(!judge.pending.get(), || unless(tickets.retire_relieved()));
            }
            _ => {}
        }
        k.if_else(
            judge.pending.get(),
            || self.collect(next, Some(judge)),
            || match (&self.pause, &self.asking, self.channel) {
                (Some(_), ..) => {}
                (None, Asking::Tickets(tickets), _) => tickets.retire(),
                (None, Asking::Clc(_), Some(channel)) => channel.decline(),
                _ => {}
            },
        );
    }

    /// Waits for the answer and writes it into `next`, which holds [`NONE`]. A judge, where there
    /// is one to be asked, says whether to go on.
    pub(super) fn collect(&self, next: Var<'k, u32>, judge: Option<&Judge<'k>>) {
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
        let refused = || {
            self.note(RecordKind::Refused);
            if let Some(flying) = &self.flying {
                flying.refused.set(true);
            }
        };
        match &self.asking {
            Asking::Clc(request) => {
                let [cluster_x, ..] = k.cluster_shape();
                let granted = |first: Dim3<'k>| granted(first.x / cluster_x);
                match self.answered() {
                    None => request.collect(granted, refused),
                    // Later this thread receives it as all others do.
                    Some(_) => request.judge(granted, refused),
                }
            }
            Asking::Tickets(tickets) => tickets.collect(granted, refused),
            Asking::Nobody => {}
        }
    }
}
