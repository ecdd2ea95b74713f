//! Bytes that arrive at an mbarrier (complete_tx), and whether they count in the intended phase.
//!
//! A phase ends when no arrival is pending and its count of bytes is zero. A copy lowers the byte
//! count of the phase in progress when it completes; `expect_tx` raises it. The two may come in
//! either order: the count may be negative for a while, and with a multicast it often is, since a
//! peer's copy can arrive before the receiving block's `expect_tx`. That is harmless as long as an
//! arrival is pending, because the phase can't end meanwhile. The mistakes:
//!
//! - *Late* bytes. The copy was started in one phase of the mbarrier and completes in
//!   another: a phase ended without waiting for it.
//! - *Short* announcements. All arrivals are in and the count is negative: the phase does not wait
//!   for these bytes. Had they come a little later, they would have been late.
//! - *Unclaimed* bytes. The block ends, or the mbarrier is invalidated, with a negative count:
//!   there was no `expect_tx` for them.
//! - *Lost* bytes. The mbarrier was invalidated, or initialised again, while they were in flight.
//!
//! Bytes that are expected and never arrive leave threads waiting, which is reported as a deadlock.
//!
//! A copy belongs to the phase in progress when it starts, also where a peer starts it. The thread
//! that starts it must have observed the end of the phase before, or the bytes could count in that
//! one; after that the phase in progress can't end until the bytes arrive. (A peer observes it
//! through the threads that release the buffer: they have waited for that end.) A program that
//! expects half of its bytes in one phase and half in the next, with either copy ending either
//! phase, would work but is reported: no phase of it guarantees that any of the data has arrived.

use super::context::Cx;
use crate::code::Code;
use crate::race::clock::{Agent, Clock};
use crate::state::block::Block;
use crate::state::flight::What;
use crate::state::machine::Machine;
use crate::state::mbarrier::{Case, Mbarrier, Sender, Trouble};
use crate::state::team::Happening;
use heist_ptx::rule;

/// Bytes in flight to an mbarrier.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Delivery {
    sender: Sender,
    rank: u32,
    offset: u32,
    bytes: u32,
    /// The mbarrier and the phase of it that they are for, if there was one.
    phase: Option<(Agent, u32)>,
}

impl Delivery {
    /// Bytes that are sent to an mbarrier now.
    pub(crate) fn new(
        blocks: &[Block],
        sender: Sender,
        rank: u32,
        offset: u32,
        bytes: u32,
    ) -> Delivery {
        let barrier = blocks[rank as usize].mbarriers.get(offset);
        Delivery {
            sender,
            rank,
            offset,
            bytes,
            phase: barrier.map(Mbarrier::stamp),
        }
    }

    /// The bytes have arrived, after their data; `clock` is the vector clock of the sender.
    pub(crate) fn arrive(self, happening: &mut Happening<'_>, clock: Option<&Clock>) {
        let Delivery {
            sender,
            rank,
            offset,
            bytes,
            phase,
        } = self;
        let mut case = Case {
            sender,
            rank,
            offset,
            bytes: i64::from(bytes),
            trouble: Trouble::Lost,
            init: None,
        };
        let block = &mut happening.blocks[rank as usize];
        let exited = block.has_exited();
        let Some(barrier) = block.mbarriers.get_mut(offset) else {
            case.tell(happening.code, happening.machine);
            return;
        };
        let in_time = phase == Some(barrier.stamp());
        if phase.is_some_and(|(agent, _)| agent == barrier.agent) {
            case.trouble = Trouble::Late {
                ended: barrier.ended,
            };
        }
        case.init = Some(barrier.init_pc);
        if let Some(clock) = clock {
            barrier.told.learn(clock, !sender.own);
        }
        barrier.users.delivered(barrier.phase, sender.pc);
        barrier.count_down(bytes, in_time.then_some(sender));
        happening.team.progress += 1;
        let mut unwaited = barrier.settle(
            &mut happening.team.phases,
            rank,
            offset,
            happening.time,
            sender.pc,
        );
        if exited && unwaited.is_none() {
            unwaited = barrier.unannounced(rank, offset, Trouble::Unclaimed { inval: None });
        }
        if !in_time {
            case.tell(happening.code, happening.machine);
        } else if let Some(unwaited) = unwaited {
            unwaited.tell(happening.code, happening.machine);
        }
    }
}

/// Reports what is unfinished when a block exits.
pub(crate) fn block_exited(cx: &mut Cx<'_>) {
    let rank = cx.warp.rank;
    let barriers = &mut cx.blocks[rank as usize].mbarriers;
    let mut left: Vec<Case> = barriers
        .by_offset
        .iter_mut()
        .filter_map(|(&offset, barrier)| {
            barrier.unannounced(rank, offset, Trouble::Unclaimed { inval: None })
        })
        .collect();
    left.sort_unstable_by_key(|case| case.offset);
    for case in left {
        case.tell(cx.code, cx.machine);
    }
}

impl Case {
    /// Reports it, at the place where the bytes were sent.
    pub(crate) fn tell(self, code: &Code, machine: &mut Machine) {
        let Sender { what, pc, own } = self.sender;
        let rule = match (what, own) {
            (What::Answer, true) => rule::CLC_BYTES,
            (What::Answer, false) => rule::CLC_PEER_UNARMED,
            _ => rule::MBARRIER_UNARMED,
        };
        machine.findings.report(rule, pc, || {
            let (at, bytes) = (self.place(), self.bytes);
            let whose = if what == What::Answer {
                " of an answer"
            } else {
                ""
            };
            let message = match self.trouble {
                Trouble::Late { .. } => format!(
                    "{bytes} bytes{whose} arrive at {at} too late: the phase that they were for has ended without them"
                ),
                Trouble::Short { .. } => format!(
                    "{bytes} bytes{whose} arrive at {at} that nobody has announced, and no arrival is pending that could wait for them"
                ),
                Trouble::Unclaimed { .. } => {
                    format!("{bytes} bytes{whose} arrive at {at} that nobody ever announces")
                }
                Trouble::Lost => format!(
                    "{bytes} bytes{whose} arrive at {at}, which is not the mbarrier any more that they were sent to"
                ),
            };
            let mut told = code.finding(rule, pc, message);
            if let Some(init) = self.init {
                told = told.other(code.span(init), "the mbarrier is initialised here");
            }
            told = match self.trouble {
                Trouble::Late { ended } => {
                    told.other(code.span(ended), "a phase ended with this, and expected no more bytes")
                }
                Trouble::Short { last } if last != pc => {
                    told.other(code.span(last), "no arrival is pending after this")
                }
                Trouble::Unclaimed { inval: Some(inval) } => {
                    told.other(code.span(inval), "it is invalidated here")
                }
                _ => told,
            };
            told.help(match (self.trouble, what) {
                (Trouble::Lost, _) => "wait for everything that is on its way to an mbarrier before it is invalidated or initialised again",
                (_, What::Answer) => "arm the mbarrier of every block with `mbarrier.arrive.expect_tx` of 16 bytes for each request",
                _ => "announce all bytes of a phase with `mbarrier.arrive.expect_tx` (or `expect_tx`) not later than its last arrival",
            })
        });
    }

    fn place(self) -> String {
        let Case { rank, offset, .. } = self;
        if self.sender.own {
            format!("the mbarrier at {offset:#x}")
        } else {
            format!("the mbarrier at {offset:#x} of block rank {rank}")
        }
    }
}
