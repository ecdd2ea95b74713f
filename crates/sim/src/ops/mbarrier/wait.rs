//! Waiting for a phase of an mbarrier.

use super::{at, check_use, each_barrier, order_of};
use crate::access::context::Cx;
use crate::code::{Flow, Pred, Reach, Slot, Wait};
use crate::decode::address::Addr;
use crate::decode::map::with;
use crate::decode::mods::Mods;
use crate::decode::qualifier::read_bits;
use crate::decode::{Cost, Decoded, Decoder};
use crate::lanes::Mask;
use crate::race::sync::Offer;
use crate::state::mbarrier::Order;
use crate::state::users::Part;
use heist_ptx::{Instruction, ScalarType, rule};
use std::sync::Arc;

/// How long a `try_wait` waits before it gives up, in cycles.
const PATIENCE: u64 = 2000;

/// One in so many gives up at once in schedules other than the first: the time is the system's.
const HASTY: u64 = 2;

/// The bits of a phase's number that a state has room for.
const TOKEN_PHASE: u64 = 0xff_ffff;

/// `test_wait` and `try_wait`, by state or by parity.
pub(super) fn decode(d: &mut Decoder<'_>, i: &Instruction, mods: &Mods<'_>) -> Decoded<()> {
    let o = &i.operands;
    let parity = mods.has("parity");
    let Some(target) = d.pred_dst(at(d, o, 0)?)? else {
        return Err(d.wrong(rule::OPERAND_KIND, "the result of a wait has a place"));
    };
    let addr = d.address(at(d, o, 1)?)?;
    let ty = if parity {
        ScalarType::U32
    } else {
        ScalarType::B64
    };
    let (token, rows) = d.src_any(at(d, o, 2)?, ty)?;
    let blocks = mods.has("try_wait");
    let order = order_of(mods);
    let waiter = Waiter {
        target,
        addr,
        token,
        rows,
        parity,
        blocks,
        order,
    };
    d.emit_reaching(
        with(move |cx| waiter.run(cx)),
        Cost::new(2, 20),
        Reach::Cluster,
    );
    Ok(())
}

#[derive(Clone, Copy)]
struct Waiter {
    target: Pred,
    addr: Addr,
    token: Slot,
    rows: u32,
    parity: bool,
    blocks: bool,
    order: Order,
}

impl Waiter {
    fn run(self, cx: &mut Cx<'_>) -> Flow {
        let addresses = self.addr.eval(cx);
        let tokens = read_bits(cx, self.token, self.rows);
        let resumed = std::mem::replace(&mut cx.fragment.resumed, false);
        let (mut over, mut waits) = (0, None);
        let mut known: Vec<(u32, u32, Mask)> = Vec::new();
        each_barrier(cx, &addresses, |cx, lane, rank, offset| {
            if rank != cx.warp.rank {
                cx.report(rule::MBARRIER_REMOTE, 1 << lane, |_, mut told| {
                    told.message = "waits at an mbarrier of a peer block".to_owned();
                    told.help("a thread can only wait at its own block's mbarriers: let the peer arrive at one of those")
                });
                return;
            }
            if !check_use(cx, lane, (rank, offset), Part::Looks) {
                over |= 1 << lane;
                return;
            }
            let Some(barrier) = cx.blocks[rank as usize].mbarriers.get(offset) else {
                return;
            };
            let phase = barrier.phase & TOKEN_PHASE;
            let done = match self.parity {
                true => barrier.is_over(tokens[lane] as u32),
                false => is_over_by_state(cx, lane, offset, phase, tokens[lane]),
            };
            if done {
                over |= 1 << lane;
                match known
                    .iter_mut()
                    .find(|(r, o, _)| (*r, *o) == (rank, offset))
                {
                    Some((_, _, lanes)) => *lanes |= 1 << lane,
                    None => known.push((rank, offset, 1 << lane)),
                }
            } else if waits.is_none() {
                waits = Some((rank, offset));
            }
        });
        let live = cx.warp.live;
        if let Some((rank, offset)) = waits {
            let stuck = cx.note_failure();
            let hasty = cx.machine.options.seed != 0 && cx.machine.rng.one_in(HASTY);
            if (self.blocks && !resumed && !hasty) || stuck {
                cx.fragment.resumed = true;
                // A wait that has failed often while nothing happened lasts until something does.
                let until = if stuck { u64::MAX } else { cx.now() + PATIENCE };
                return cx.retry(Wait::Mbarrier {
                    rank,
                    offset,
                    until,
                });
            }
        } else {
            cx.warp.stuck.1 = 0;
        }
        for (rank, offset, lanes) in known {
            self.acquire(cx, (rank, offset), lanes, live);
        }
        cx.set_pred(self.target, over);
        Flow::Next
    }

    /// What the threads that see the phase over may read since: what the arrivals have released.
    fn acquire(self, cx: &mut Cx<'_>, (rank, offset): (u32, u32), lanes: Mask, live: Mask) {
        let Some(barrier) = cx.blocks[rank as usize].mbarriers.get(offset) else {
            return;
        };
        let done = &barrier.done;
        if let Some(missed) = &done.missed {
            cx.warp.fences.miss(Arc::clone(missed));
        }
        if done.near.is_some() && !self.order.reaches(true) {
            cx.warp.fences.miss(Arc::new(done.all.clone()));
        }
        for (needs, clock) in done.offers(self.order) {
            if self.order.synchronises {
                cx.warp.clock.acquire(clock, lanes, live);
            } else {
                // For a fence behind the wait.
                let place = 1 << 62 | u64::from(rank) << 32 | u64::from(offset);
                let clock = Arc::new(clock.clone());
                cx.warp.fences.saw(lanes, place, Offer { needs, clock });
            }
        }
    }
}

/// Whether the phase that a state (token) of `mbarrier.arrive` names is over. A state that is none
/// of this mbarrier is told, and waits for nothing.
fn is_over_by_state(cx: &mut Cx<'_>, lane: usize, offset: u32, phase: u64, token: u64) -> bool {
    let theirs = token >> 36 & TOKEN_PHASE;
    let named = (token >> 20 & 0xffff) as u32;
    let strange = token >> 63 == 0 || named != offset >> 3 & 0xffff || theirs > phase;
    if strange {
        cx.report(rule::MBARRIER_TOKEN, 1 << lane, |_, mut told| {
            told.message =
                format!("waits at the mbarrier at {offset:#x} with a state that is not one of it");
            told.help("pass the state that `mbarrier.arrive` on this mbarrier gave in this phase")
        });
    } else if theirs + 1 < phase {
        cx.report(rule::MBARRIER_PHASE, 1 << lane, |_, mut told| {
            told.message = format!(
                "waits at the mbarrier at {offset:#x} for phase {theirs}, and it is in phase {phase}"
            );
            told.help("a wait may ask for the phase in progress or the one before it: wait before the barrier is two phases further")
        });
    }
    strange || phase > theirs
}

impl Cx<'_> {
    /// Counts a wait that failed; true when many have and nothing has happened since.
    fn note_failure(&mut self) -> bool {
        let progress = self.team.progress;
        if self.warp.stuck.0 == progress {
            self.warp.stuck.1 += 1;
        } else {
            self.warp.stuck = (progress, 0);
        }
        self.warp.stuck.1 > 64
    }
}
