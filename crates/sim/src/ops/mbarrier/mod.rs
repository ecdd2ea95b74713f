//! The instructions of mbarriers; [`crate::state::mbarrier`] says what one is.

mod wait;

use crate::access::context::Cx;
use crate::access::group::{Does, Group, Home, groups};
use crate::access::look::watch;
use crate::code::{Flow, Reach, Slot};
use crate::decode::address::Addr;
use crate::decode::map::with;
use crate::decode::mods::Mods;
use crate::decode::{Cost, Decoded, Decoder};
use crate::engine::executable::Instr;
use crate::lanes::{LANES, each, first};
use crate::race::access::{AccessKind, Scope};
use crate::race::clock::{Behind, Clock};
use crate::state::flight::What;
use crate::state::mbarrier::{Mbarrier, Order, Sender, Told};
use crate::state::memory::window::Window;
use crate::state::users::{Ended, Part, Unordered, Users};
use heist_ptx::{Instruction, Operand, ScalarType, rule};
use std::sync::Arc;

/// The most arrivals and bytes that a phase can count.
const MOST: i64 = (1 << 20) - 1;

/// What an instruction does to an mbarrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    Init,
    Invalidate,
    Arrive {
        drop: bool,
        expect: bool,
        complete: bool,
        order: Order,
    },
    Expect,
    Complete,
}

/// The semantics and the scope that an instruction names.
fn order_of(mods: &Mods<'_>) -> Order {
    Order {
        synchronises: !mods.has("relaxed"),
        narrow: mods.has("cta"),
    }
}

pub(crate) fn decode(d: &mut Decoder<'_>, i: &Instruction, mods: &Mods<'_>) -> Decoded<()> {
    let o = &i.operands;
    let order = order_of(mods);
    let expect = mods.has("expect_tx");
    let complete = !mods.has("noComplete");
    let what = mods.all.first().copied().unwrap_or("");
    let count_of = |d: &mut Decoder<'_>, at: usize| {
        o.get(at)
            .map(|operand| d.src(operand, ScalarType::U32))
            .transpose()
    };
    match what {
        "init" => {
            let (addr, count) = (d.address(at(d, o, 0)?)?, count_of(d, 1)?);
            emit(d, Act::Init, addr, count, None);
        }
        "inval" => {
            let addr = d.address(at(d, o, 0)?)?;
            emit(d, Act::Invalidate, addr, None, None);
        }
        "arrive" | "arrive_drop" => {
            // `arrive _, [a], n`, `arrive s, [a]`, and for peers `arrive [a]` too.
            let (state, rest) = match o.first() {
                Some(Operand::Address(_)) => (None, 0),
                Some(Operand::Sink) => (None, 1),
                Some(operand) => (Some(d.dst(operand, ScalarType::B64)?), 1),
                None => (None, 0),
            };
            let addr = d.address(at(d, o, rest)?)?;
            let count = count_of(d, rest + 1)?;
            let act = Act::Arrive {
                drop: what == "arrive_drop",
                expect,
                complete,
                order,
            };
            emit(d, act, addr, count, state);
        }
        "expect_tx" | "complete_tx" => {
            let (addr, count) = (d.address(at(d, o, 0)?)?, count_of(d, 1)?);
            let act = if what == "expect_tx" {
                Act::Expect
            } else {
                Act::Complete
            };
            emit(d, act, addr, count, None);
        }
        "test_wait" | "try_wait" => wait::decode(d, i, mods)?,
        "pending_count" => {
            let state = d.src(at(d, o, 1)?, ScalarType::B64)?;
            let target = d.dst(at(d, o, 0)?, ScalarType::U32)?;
            let instr = crate::decode::map::map1::<u64, u32>(target, state, |state| {
                (state & 0xf_ffff) as u32
            });
            d.emit(instr, Cost::ALU);
        }
        _ => return Err(d.unsupported(i, "mbarrier has no such operation")),
    }
    Ok(())
}

fn at<'o>(d: &Decoder<'_>, operands: &'o [Operand], index: usize) -> Decoded<&'o Operand> {
    operands
        .get(index)
        .ok_or_else(|| d.wrong(rule::OPERAND_COUNT, "an operand is missing"))
}

fn emit(d: &mut Decoder<'_>, act: Act, addr: Addr, count: Option<Slot>, state: Option<Slot>) {
    let instr: Box<dyn Instr> = with(move |cx| {
        let addresses = addr.eval(cx);
        let counts = count.map_or([1; LANES], |slot| *cx.row(slot));
        let mut states = [0u64; LANES];
        each_barrier(cx, &addresses, |cx, lane, rank, offset| {
            states[lane] = act_on(cx, act, lane, rank, offset, counts[lane]);
        });
        if let Some(state) = state {
            cx.write(state, &states);
        }
        Flow::Next
    });
    d.emit_reaching(instr, Cost::new(2, 20), Reach::Cluster);
}

/// Calls `f` for each lane whose address is a place in shared memory.
pub(crate) fn each_barrier(
    cx: &mut Cx<'_>,
    addresses: &[u64; LANES],
    mut f: impl FnMut(&mut Cx<'_>, usize, u32, u32),
) {
    // Generic addresses are allowed where no space is named.
    let generic = addresses[first(cx.mask)] >= 1 << 32;
    let window = if generic { None } else { Some(Window::Shared) };
    groups(cx, window, addresses, 8, Does::Writes, |cx, group| {
        let Home::Shared(rank) = group.home else {
            let name = group.home.name();
            cx.report(rule::WRONG_WINDOW, group.mask, |_, mut told| {
                told.message =
                    format!("an mbarrier in {name} memory; mbarriers live in shared memory");
                told
            });
            return;
        };
        for lane in each(group.mask) {
            f(cx, lane, rank, group.offsets[lane] as u32);
        }
    });
}

/// The number that a thread gets back: the phase, and the arrivals still to come.
fn token(offset: u32, barrier: &Mbarrier) -> u64 {
    1 << 63
        | (barrier.phase & 0xff_ffff) << 36
        | u64::from(offset >> 3 & 0xffff) << 20
        | u64::from(barrier.pending)
}

fn act_on(cx: &mut Cx<'_>, act: Act, lane: usize, rank: u32, offset: u32, count: u32) -> u64 {
    let remote = rank != cx.warp.rank;
    if remote && matches!(act, Act::Init | Act::Invalidate) {
        cx.report(rule::MBARRIER_REMOTE, 1 << lane, |_, mut told| {
            told.message = "initialises or invalidates an mbarrier of a peer block".to_owned();
            told.help("every block initialises its own mbarriers; peers may only arrive, expect and complete")
        });
        return 0;
    }
    if act == Act::Init {
        init(cx, lane, rank, offset, count);
        return 0;
    }
    if act == Act::Invalidate {
        if is_there(cx, lane, rank, offset) {
            invalidate(cx, lane, rank, offset);
        }
        return 0;
    }
    if !check_use(cx, lane, (rank, offset), Part::Counts) {
        return 0;
    }
    let (now, pc) = (cx.now(), cx.pc());
    // The arrival carries the lane's clock, or, if it is not a release, what an earlier fence
    // covers.
    let mut carried: Vec<Arc<Clock>> = Vec::new();
    let mut narrow = false;
    if let Act::Arrive { order, .. } = act
        && cx.machine.options.checks.races
    {
        narrow = !order.reaches(remote);
        if order.synchronises {
            let clock = cx.warp.clock.release(1 << lane, cx.warp.live);
            carried.push(Arc::new(clock));
        } else {
            let covered = cx.warp.fences.covered(1 << lane);
            let reaching = covered.filter(|&(scope, _)| !remote || scope >= Scope::Cluster);
            carried.extend(reaching.map(|(_, clock)| Arc::clone(clock)));
        }
    }
    let team = &mut *cx.team;
    let Some(barrier) = cx.blocks[rank as usize].mbarriers.get_mut(offset) else {
        return 0;
    };
    let state = token(offset, barrier);
    for clock in &carried {
        if narrow {
            barrier.told.missed = Some(Arc::clone(clock));
        } else {
            barrier.told.learn(clock, remote);
        }
    }
    let sender = Sender {
        what: What::Bulk,
        pc,
        own: !remote,
    };
    let trouble = count_in(barrier, act, count, sender);
    let bytes = barrier.bytes;
    team.progress += 1;
    if bytes.abs() <= MOST
        && let Some(short) = barrier.settle(&mut team.phases, rank, offset, now, sender.pc)
    {
        short.tell(cx.code, cx.machine);
    }
    if let Some(trouble) = trouble {
        report_arrivals(cx, lane, trouble);
    }
    if bytes.abs() > MOST {
        cx.report(rule::MBARRIER_BYTES, 1 << lane, |_, mut told| {
            told.message = format!(
                "the mbarrier's transaction count becomes {bytes}, and its range ends at {MOST}"
            );
            told.help(
                "a phase can count a little less than a megabyte: split the transfer over phases",
            )
        });
    }
    state
}

fn invalidate(cx: &mut Cx<'_>, lane: usize, rank: u32, offset: u32) {
    let clock = &cx.warp.clock;
    let inval = Ended {
        agent: clock.agent,
        clock: clock.now,
        lane: lane as u8,
        pc: cx.pc(),
    };
    let barriers = &mut cx.blocks[rank as usize].mbarriers;
    let Some(mut old) = barriers.by_offset.remove(&offset) else {
        return;
    };
    barriers.ended.insert(offset, inval);
    if barriers.by_offset.is_empty() {
        barriers.span = None;
    }
    let unordered = old.unknown_to(&cx.warp.clock, lane as u8);
    write_over(cx, lane, rank, offset);
    if let Some(case) = old.invalidated(rank, offset, inval.pc) {
        case.tell(cx.code, cx.machine);
    } else if cx.machine.options.checks.races
        && let Some(unordered) = unordered
    {
        report_unordered(cx, offset, inval, unordered);
    }
}

/// Where an mbarrier begins or ends there may be data before it or behind it: its bytes are written.
fn write_over(cx: &mut Cx<'_>, lane: usize, rank: u32, offset: u32) {
    let group = Group {
        home: Home::Shared(rank),
        mask: 1 << lane,
        offsets: [u64::from(offset); LANES],
        size: 8,
    };
    watch(cx, &group, false, Does::Writes, AccessKind::Plain);
}

/// Reports an invalidation and a use without an order between them, at the invalidation.
#[cold]
fn report_unordered(cx: &mut Cx<'_>, offset: u32, inval: Ended, Unordered { user, pc }: Unordered) {
    let by = cx.whom(inval.agent, inval.lane);
    let (used, help) = match user {
        Some((agent, lane)) => (
            format!("{} uses it here", cx.whom(agent, lane)),
            "let all threads meet (`bar.sync`) behind their last wait, before one of them invalidates it",
        ),
        None => (
            "bytes of this copy complete at it".to_owned(),
            "wait for the phase that they belong to before it is invalidated",
        ),
    };
    let code = rule::MBARRIER_INVAL_UNORDERED;
    let there = cx.code.span(pc);
    cx.machine.findings.report(code, inval.pc, || {
        let message = format!(
            "invalidates the mbarrier at {offset:#x}, and nothing orders that behind its last use"
        );
        let mut told = cx.code.finding(code, inval.pc, message);
        told.notes.push(format!("by {by}"));
        told.other(there, used).help(help)
    });
}

/// A broken rule, the arrivals that a phase expects, those still to come, and those now.
type Trouble = (heist_ptx::Code, u32, u32, u32);

/// Counts what an instruction does to the phase in progress.
fn count_in(barrier: &mut Mbarrier, act: Act, count: u32, sender: Sender) -> Option<Trouble> {
    let mut trouble = None;
    match act {
        Act::Expect => barrier.bytes += i64::from(count),
        Act::Complete => barrier.count_down(count, Some(sender)),
        Act::Arrive {
            drop,
            expect,
            complete,
            ..
        } => {
            let arrivals = if expect { 1 } else { count };
            if expect {
                barrier.bytes += i64::from(count);
            }
            if arrivals == 0 || arrivals > barrier.pending {
                trouble = Some((
                    rule::MBARRIER_ARRIVALS,
                    barrier.count,
                    barrier.pending,
                    arrivals,
                ));
            }
            if !complete && arrivals >= barrier.pending {
                trouble = Some((
                    rule::MBARRIER_NO_COMPLETE,
                    barrier.count,
                    barrier.pending,
                    arrivals,
                ));
            }
            barrier.pending -= arrivals.min(barrier.pending);
            if drop {
                barrier.count -= arrivals.min(barrier.count);
            }
        }
        Act::Init | Act::Invalidate => {}
    }
    trouble
}

#[cold]
fn report_arrivals(cx: &mut Cx<'_>, lane: usize, (code, expected, pending, arrivals): Trouble) {
    cx.report(code, 1 << lane, |_, mut told| {
        told.message = if code == rule::MBARRIER_ARRIVALS {
            format!("{arrivals} arrivals at an mbarrier whose phase expects {expected}, of which {pending} are still to come")
        } else {
            "an arrive.noComplete is the last arrival of the phase".to_owned()
        };
        told.help("initialise the mbarrier with the number of arrivals of one phase, and let everybody arrive once")
    });
}

fn init(cx: &mut Cx<'_>, lane: usize, rank: u32, offset: u32, count: u32) {
    if count == 0 || i64::from(count) > MOST {
        cx.report(rule::MBARRIER_COUNT, 1 << lane, |_, mut told| {
            told.message = format!("an mbarrier for {count} arrivals; 1 to {MOST} are possible");
            told
        });
    }
    let old = cx.blocks[rank as usize].mbarriers.get(offset);
    if let Some(before) = old.map(|old| old.init_pc) {
        cx.report(rule::MBARRIER_REINIT, 1 << lane, |cx, mut told| {
            told.message = format!(
                "initialises the mbarrier at {offset:#x} again, and no `mbarrier.inval` has ended its use"
            );
            told.other(cx.code.span(before), "it was initialised here")
                .help("`mbarrier.inval` gives its bytes back; an mbarrier is good for any number of phases")
        });
    } else {
        write_over(cx, lane, rank, offset);
    }
    let (agent, now) = (cx.warp.clock.agent, cx.warp.clock.now);
    let first_agent = cx.team.first;
    let agents = cx.team.agents;
    let pc = cx.pc();
    let block = &mut cx.blocks[rank as usize];
    let own = block.mbarriers.new_agent(block.number);
    let (start, end) = (u64::from(offset), u64::from(offset) + 8);
    let span = block.mbarriers.span.get_or_insert((start, end));
    *span = (span.0.min(start), span.1.max(end));
    block.shared.mark(start, 8);
    block.mbarriers.ended.remove(&offset);
    block.mbarriers.by_offset.insert(
        offset,
        Mbarrier {
            count: count.max(1),
            pending: count.max(1),
            bytes: 0,
            phase: 0,
            early: None,
            ended: pc,
            told: Told::new(first_agent, agents),
            done: Told::new(first_agent, agents),
            agent: own,
            init: (agent, now, lane as u8),
            init_pc: pc,
            users: Users::default(),
            control: false,
            latest: 0,
        },
    );
    cx.team.progress += 1;
}

/// Whether there is an mbarrier to use. Checks that its init is known here, and notes the use.
pub(crate) fn check_use(
    cx: &mut Cx<'_>,
    lane: usize,
    (rank, offset): (u32, u32),
    part: Part,
) -> bool {
    if !is_there(cx, lane, rank, offset) {
        return false;
    }
    let pc = cx.pc();
    if cx.machine.options.checks.races
        && let Some(barrier) = cx.blocks[rank as usize].mbarriers.get_mut(offset)
    {
        let found = (part, barrier.phase);
        barrier.users.note(found, &cx.warp.clock, lane as u8, pc);
    }
    true
}

/// The end of an mbarrier's use that a lane does not know of.
fn invalidated_meanwhile(cx: &Cx<'_>, lane: usize, rank: u32, offset: u32) -> Option<Ended> {
    let ended = cx.blocks[rank as usize].mbarriers.ended.get(&offset)?;
    let own = ended.agent == cx.warp.clock.agent && usize::from(ended.lane) == lane;
    let clock = &cx.warp.clock;
    let known = own || clock.knows(ended.agent, ended.clock, ended.lane, lane as u8);
    (cx.machine.options.checks.races && !known).then_some(*ended)
}

/// Whether there is an mbarrier; checks that its init is known here.
fn is_there(cx: &mut Cx<'_>, lane: usize, rank: u32, offset: u32) -> bool {
    let Some(barrier) = cx.blocks[rank as usize].mbarriers.get(offset) else {
        if let Some(inval) = invalidated_meanwhile(cx, lane, rank, offset) {
            let user = Some((cx.warp.clock.agent, lane as u8));
            let pc = cx.pc();
            report_unordered(cx, offset, inval, Unordered { user, pc });
            return false;
        }
        cx.report(rule::MBARRIER_UNINITIALISED, 1 << lane, |cx, mut told| {
            told.message = format!(
                "uses {} as an mbarrier, and nobody has initialised one there",
                crate::access::conflict::place(cx, Home::Shared(rank), u64::from(offset))
            );
            told.help("`mbarrier.init` it first, in one thread, and let the others wait for that (`bar.sync`, or a cluster barrier for peers)")
        });
        return false;
    };
    let (agent, clock, their) = barrier.init;
    let init_pc = barrier.init_pc;
    let own = agent == cx.warp.clock.agent && their as usize == lane;
    if cx.machine.options.checks.races
        && !own
        && !cx.warp.clock.knows(agent, clock, their, lane as u8)
        && !cx
            .warp
            .clock
            .knows_fenced(Behind::Inits, (agent, clock, their), lane as u8)
    {
        let them = cx.whom(agent, their);
        cx.report(rule::MBARRIER_INIT_UNSEEN, 1 << lane, |cx, mut told| {
            told.message = format!("uses the mbarrier at {offset:#x}, and nothing makes its init visible here");
            told.other(cx.code.span(init_pc), format!("{them} initialises it here"))
                .help("put `bar.sync` between the init and the first use; for peers `fence.mbarrier_init.release.cluster` and a cluster barrier")
        });
    }
    true
}
