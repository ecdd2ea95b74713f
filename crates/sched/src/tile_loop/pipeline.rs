//! The loop that has several requests in flight.
//!
//! The scheduler thread fills the pipeline before the first tile. After each tile it takes the
//! answers in the order of its requests, up to a grant, and fills the pipeline again. A refusal ends
//! the requests, not the answers: what is still in flight is waited for, and what is granted is run.
//!
//! It fills it *before* the block's threads meet for the next tile. Where the hardware answers every
//! block, any of them may see the next answer after that, and a block that has seen a refusal must
//! not ask again.

use super::{Tile, TileLoop};
use crate::channel::NONE;
use heist_builder::{Bool, Kernel, Val, Var};

/// The requests in flight, in the scheduler thread.
pub(super) struct Flying<'k> {
    most: u32,
    count: Var<'k, u32>,
    /// A refusal was seen.
    pub(super) refused: Var<'k, bool>,
}

impl<'k> Flying<'k> {
    pub(super) fn new(k: &Kernel<'k>, most: u32) -> Flying<'k> {
        Flying {
            most,
            count: k.var(0u32).named("flying"),
            refused: k.var(false).named("refused"),
        }
    }
}

impl<'k> TileLoop<'k> {
    /// The loop that asks for more, several at a time.
    pub(super) fn steal_in_a_row(
        &self,
        flying: &Flying<'k>,
        body: &dyn Fn(Tile<'k>),
        ahead: Option<&dyn Fn(Tile<'k>)>,
    ) {
        let k = self.k;
        let Some(channel) = self.channel else {
            return;
        };
        k.if_(self.leader, || self.fill(flying));
        if self.answered().is_some() {
            k.comment("nobody sees an answer before the first requests are made");
            k.sync();
        }
        k.loop_(|flow| {
            self.run(body);
            k.if_(self.leader, || {
                let next = self.next_of(flying);
                if self.answered().is_some() {
                    k.if_(next.eq(NONE), || channel.decline());
                } else {
                    channel.send(next);
                    if let Some(ahead) = ahead {
                        self.begin(next, ahead);
                    }
                }
            });
            if let (Some(ahead), Some(_)) = (ahead, self.answered()) {
                k.one_thread(|| self.begin(channel.peek(), ahead));
            }
            if ahead.is_some() {
                // Its warp reconverges here, before the barrier of the block.
                k.sync_warp();
            }
            let next = channel.receive();
            self.index.set(next);
            flow.break_if(next.eq(NONE));
            if k.cluster_size() > 1 {
                channel.release();
            }
        });
    }

    /// Whether another request may be made.
    fn may_ask(&self, flying: &Flying<'k>) -> Bool<'k> {
        let open = !flying.refused.get();
        match &self.judge {
            Some(judge) => open & !judge.stop.get(),
            None => open,
        }
    }

    /// In the scheduler thread: asks, if the policy wants to; whether it did.
    fn ask_once(&self, flying: &Flying<'k>) -> Bool<'k> {
        let asks = match &self.judge {
            Some(judge) => self.ask(judge),
            None => self.k.c(true),
        };
        self.k.if_(asks, || {
            self.submit();
            flying.count.update(|count| count + 1);
        });
        asks
    }

    /// In the scheduler thread: asks until as many requests are in flight as may be, or the policy
    /// declines one.
    fn fill(&self, flying: &Flying<'k>) {
        self.k.loop_(|flow| {
            let room = flying.count.get().lt(flying.most);
            flow.break_unless(room & self.may_ask(flying));
            flow.break_unless(self.ask_once(flying));
        });
    }

    /// After a tile, in the scheduler thread: the next one, or none. Then nothing is in flight.
    fn next_of(&self, flying: &Flying<'k>) -> Val<'k, u32> {
        let k = self.k;
        if self.judge.is_some() {
            // The last call of a block that holds nothing.
            k.if_(flying.count.get().eq(0u32) & self.may_ask(flying), || {
                self.ask_once(flying);
            });
        }
        let next = k.var(NONE).named("next");
        k.while_(
            || next.get().eq(NONE) & flying.count.get().ne(0u32),
            || {
                flying.count.update(|count| count - 1);
                self.collect(next, self.judge.as_ref());
            },
        );
        k.if_(next.get().ne(NONE), || self.fill(flying));
        next.get()
    }
}
