//! `bar` and `barrier`: the numbered barriers of a block.

use crate::access::context::Cx;
use crate::code::{Flow, PredSrc, Reach, Slot, Wait};
use crate::decode::map::with;
use crate::decode::mods::{Mods, only};
use crate::decode::{Cost, Decoded, Decoder};
use crate::lanes::{LANES, Mask};
use crate::state::block::BARRIERS;
use heist_ptx::{Instruction, Operand, ScalarType, rule};

/// What a barrier instruction does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    Sync,
    Arrive,
    Reduce(Reduce),
}

/// How `bar.red` combines predicates, and where the result goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reduce {
    Count(Slot),
    And(crate::code::Pred),
    Or(crate::code::Pred),
}

pub(crate) fn decode(d: &mut Decoder<'_>, i: &Instruction, mods: &Mods<'_>) -> Decoded<()> {
    if mods.has("cluster") {
        return super::cluster::decode_barrier(d, i, mods);
    }
    if mods.has("warp") {
        return crate::ops::warp::exchange::decode_barrier(d, i);
    }
    only(
        d,
        i,
        mods,
        &[
            "sync", "arrive", "red", "cta", "aligned", "popc", "and", "or",
        ],
    )?;
    let aligned = i.opcode.base() == "bar" || mods.has("aligned");
    let mut operands = i.operands.iter();
    let mut act = Act::Sync;
    let mut target = None;
    if mods.has("arrive") {
        act = Act::Arrive;
    } else if mods.has("red") {
        target = operands.next();
    }
    let id = operands.next();
    let Some(id) = id else {
        return Err(d.wrong(rule::OPERAND_COUNT, "a barrier has a number"));
    };
    let id = d.src(id, ScalarType::U32)?;
    let rest: Vec<&Operand> = operands.collect();
    let (count, input) = if let Some(target) = target {
        let (count, input) = match rest[..] {
            [input] => (None, input),
            [count, input] => (Some(count), input),
            _ => {
                return Err(d.wrong(
                    rule::OPERAND_COUNT,
                    "bar.red takes a barrier, perhaps a count, and a predicate",
                ));
            }
        };
        act = Act::Reduce(if mods.has("popc") {
            Reduce::Count(d.dst(target, ScalarType::U32)?)
        } else {
            let Some(pred) = d.pred_dst(target)? else {
                return Err(d.wrong(rule::OPERAND_KIND, "the result of a reduction has a place"));
            };
            if mods.has("and") {
                Reduce::And(pred)
            } else {
                Reduce::Or(pred)
            }
        });
        (count, Some(d.pred_src(input)?))
    } else {
        (rest.first().copied(), None)
    };
    let count = count
        .map(|count| d.src(count, ScalarType::U32))
        .transpose()?;
    let instr = with(move |cx| barrier(cx, act, aligned, id, count, input));
    d.emit_reaching(instr, Cost::CONTROL, Reach::Cluster);
    Ok(())
}

fn barrier(
    cx: &mut Cx<'_>,
    act: Act,
    aligned: bool,
    id: Slot,
    count: Option<Slot>,
    input: Option<PredSrc>,
) -> Flow {
    if cx.fragment.resumed {
        cx.fragment.resumed = false;
        return finish(cx, act, id);
    }
    // An aligned barrier is for whole warps: the other lanes of the warp may still arrive.
    let missing = cx.warp.live & !cx.mask;
    if aligned && missing != 0 {
        if !cx.fragment.forced && cx.mask == cx.fragment.mask {
            return cx.retry(Wait::Gather {
                members: cx.warp.live,
            });
        }
        cx.fragment.forced = false;
        let op = if act == Act::Arrive {
            "arrives at"
        } else {
            "waits at"
        };
        cx.report(rule::DIVERGENT_BARRIER, cx.mask, |cx, mut told| {
            told.message = format!(
                "only lanes {:#010x} of a warp reach this barrier; lanes {missing:#010x} are elsewhere",
                cx.mask
            );
            told.label(format!("a part of the warp {op} it"))
                .help("move the barrier to where all threads of the warp come by, or use `barrier.sync` without `.aligned` and a count")
        });
    }
    let lead = crate::lanes::first(cx.mask);
    let number = cx.row(id)[lead];
    if number as usize >= BARRIERS {
        cx.report(rule::BARRIER_ID, cx.mask, |_, mut told| {
            told.message = format!("barrier {number} does not exist: there are 0 to 15");
            told
        });
        return Flow::Next;
    }
    let expected = count.map(|slot| cx.row(slot)[lead]);
    let threads = cx.machine.launch.block.count() as u32;
    if let Some(expected) = expected
        && (expected == 0
            || !expected.is_multiple_of(32)
            || expected > threads.next_multiple_of(32))
    {
        cx.report(rule::BARRIER_COUNT, cx.mask, |_, mut told| {
            told.message = format!("a barrier for {expected} threads in a block of {threads}");
            told.help("the count is a multiple of the warp size, and not more than the block has")
        });
        if expected == 0 {
            return Flow::Next;
        }
    }
    if expected.is_none() && act == Act::Arrive {
        cx.report(rule::BARRIER_COUNT, cx.mask, |_, mut told| {
            told.message = "bar.arrive needs a thread count".to_owned();
            told
        });
        return Flow::Next;
    }
    arrive(cx, act, number, expected, input)
}

fn arrive(
    cx: &mut Cx<'_>,
    act: Act,
    number: u32,
    expected: Option<u32>,
    input: Option<PredSrc>,
) -> Flow {
    let pc = cx.pc();
    let lanes = cx.mask;
    let whole = lanes & cx.warp.live == cx.warp.live;
    let now = cx.now();
    let holds: Mask = input.map_or(0, |source| cx.pred(source)) & lanes;
    let reduces = matches!(act, Act::Reduce(_));
    let at = cx.index();
    let (rank, live) = (cx.warp.rank, cx.blocks[cx.warp.rank as usize].live);
    let again;
    cx.blocks[rank as usize].used_barriers |= 1 << number;
    let mismatch = {
        let barrier = &mut cx.blocks[rank as usize].barriers[number as usize];
        let mismatch = match barrier.first_pc {
            Some(first)
                if barrier.expected != expected
                    || (act != Act::Arrive
                        && barrier.first_reduces != reduces
                        && !barrier.waiting.is_empty()) =>
            {
                Some((first, barrier.expected))
            }
            _ => None,
        };
        if barrier.is_idle() {
            barrier.first_pc = Some(pc);
            barrier.expected = expected;
            barrier.first_reduces = reduces;
            barrier.all = true;
            barrier.any = false;
            barrier.population = 0;
        }
        barrier.counted += if whole { 32 } else { lanes.count_ones() };
        again = barrier
            .came
            .iter()
            .any(|&(warp, came)| warp == at && came & lanes != 0);
        barrier.came.push((at, lanes));
        barrier.threads += lanes.count_ones();
        barrier.latest = barrier.latest.max(now);
        barrier.population += holds.count_ones();
        barrier.all &= !reduces || holds == lanes;
        barrier.any |= holds != 0;
        mismatch
    };
    if again {
        cx.report(rule::BARRIER_REUSE, lanes, |_, mut told| {
            told.message =
                format!("arrives at barrier {number} again before its last round is over");
            told.help("wait for the round (`bar.sync`), or use another barrier for the next one")
        });
    }
    if let Some((first, other)) = mismatch {
        let words = |count: Option<u32>| {
            count.map_or("all threads".to_owned(), |count| format!("{count} threads"))
        };
        cx.report(rule::MISMATCHED_BARRIER, lanes, |cx, mut told| {
            told.message = format!(
                "barrier {number} is for {} here, and for {} where the round began",
                words(expected),
                words(other)
            );
            told.other(cx.code.span(first), "the round began here")
                .help("every thread that meets at a barrier gives the same count")
        });
    }
    if act == Act::Arrive {
        let live_lanes = cx.warp.live;
        let clock = cx.warp.clock.release(lanes, live_lanes);
        let barrier = &mut cx.blocks[rank as usize].barriers[number as usize];
        match &mut barrier.arrived {
            Some(all) => all.join(&clock),
            None => barrier.arrived = Some(clock),
        }
    } else {
        cx.blocks[rank as usize].barriers[number as usize]
            .waiting
            .push((at, lanes));
    }
    cx.team.progress += 1;
    if cx.blocks[rank as usize].barriers[number as usize].is_complete(live) {
        cx.team.completed.push((rank, number));
    }
    match act {
        Act::Arrive => Flow::Next,
        Act::Sync => cx.wait(Wait::Barrier { id: number }),
        Act::Reduce(_) => {
            cx.fragment.resumed = true;
            cx.retry(Wait::Barrier { id: number })
        }
    }
}

/// After a reduction: everybody takes the result.
fn finish(cx: &mut Cx<'_>, act: Act, id: Slot) -> Flow {
    let number = cx.row(id)[crate::lanes::first(cx.mask)];
    let result = cx.block().barriers[number as usize & 15].result;
    let spread = |bit: bool| if bit { u32::MAX } else { 0 };
    if let Act::Reduce(reduce) = act {
        match reduce {
            Reduce::Count(slot) => cx.write(slot, &[result.0; LANES]),
            Reduce::And(pred) => cx.set_pred(pred, spread(result.1)),
            Reduce::Or(pred) => cx.set_pred(pred, spread(result.2)),
        }
    }
    Flow::Next
}
