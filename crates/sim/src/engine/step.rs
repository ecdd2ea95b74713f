//! The inner loop: runs one warp until another one must run.

use super::executable::{Executable, Op};
use crate::access::context::Cx;
use crate::access::doubt;
use crate::code::{Flow, NOWHERE, Reach, Wait};
use crate::lanes::{ALL, LANES, Mask, Row, each};
use crate::state::block::Block;
use crate::state::machine::Machine;
use crate::state::team::Team;
use crate::state::warp::{Fragment, Frame, State, Warp};
use heist_ptx::rule;

/// Instructions after which a warp lets others run even without interacting.
const QUANTUM: u32 = 1 << 14;
/// Interactions of a slice after which the clock is read: one can be a copy that is compared with
/// all others in flight.
const LOOK: u32 = 64;
/// Call frames of a thread.
const MOST_FRAMES: usize = 512;
/// Register rows of a warp, over all frames.
const MOST_ROWS: u32 = 1 << 17;

/// Why a warp stopped running for now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Slice {
    /// Others of the cluster are earlier.
    Later,
    /// Others of the device may be earlier.
    Device,
    /// All of its lanes wait.
    Blocked,
    /// All of its lanes have exited.
    Done,
    /// The launch ends.
    Stop,
}

/// Runs warp `at` of a cluster. It interacts with its cluster only while it is
/// not later than `block_until`, and with the device not later than `device_until`.
#[allow(clippy::too_many_arguments)]
pub(crate) fn run_slice(
    at: usize,
    warp: &mut Warp,
    blocks: &mut [Block],
    team: &mut Team,
    machine: &mut Machine,
    executable: &Executable,
    block_until: u64,
    device_until: u64,
) -> Slice {
    let Some(fragment) = warp.pick() else {
        return if warp.live == 0 {
            Slice::Done
        } else {
            Slice::Blocked
        };
    };
    let Executable { ops, code } = executable;
    let mut cx = Cx {
        code,
        warp,
        fragment,
        blocks,
        team,
        machine,
        mask: 0,
        targets: [0; LANES],
        awaits: Wait::ClusterBarrier,
    };
    let (slice, ran) = run(&mut cx, at, ops, block_until, device_until);
    machine.stats.thread_instructions += ran.threads;
    machine.stats.warp_instructions += ran.warps;
    slice
}

/// How many instructions ran, counted for each thread and for each warp.
#[derive(Default)]
struct Ran {
    threads: u64,
    warps: u64,
}

/// The loop over instructions of a warp whose fragment is picked.
fn run(
    cx: &mut Cx<'_>,
    at: usize,
    ops: &[Op],
    block_until: u64,
    device_until: u64,
) -> (Slice, Ran) {
    let mut ran = Ran::default();
    let (mut left, mut interactions) = (QUANTUM, 0u32);
    let slice = loop {
        if cx.fragment.pc == cx.fragment.stop && !cx.meet() {
            match cx.warp.pick() {
                Some(next) => {
                    cx.fragment = next;
                    continue;
                }
                None => break Slice::Blocked,
            }
        }
        let op: &Op = &ops[cx.fragment.pc as usize];
        if let Some(slice) = cx.has_to_wait(op, left, block_until, device_until) {
            break cx.park(slice);
        }
        left = left.saturating_sub(1);
        ran.warps += 1;
        cx.warp.account(op);
        cx.mask = cx.let_through(op);
        ran.threads += match cx.mask {
            ALL => LANES as u64,
            some => u64::from(some.count_ones()),
        };
        let flow = if cx.warp.doubts.is_none() || !doubt::is_touched(cx) {
            if cx.mask == 0 {
                cx.fragment.pc += 1;
                continue;
            }
            if !cx.code.touched.is_empty() {
                crate::access::products::note(cx);
            }
            op.instr.step(cx)
        } else if let Some(flow) = doubtfully(cx, op) {
            flow
        } else {
            cx.fragment.pc += 1;
            continue;
        };
        let going = match flow {
            Flow::Next => {
                cx.fragment.pc += 1;
                true
            }
            Flow::Branch(target) => {
                cx.branch(target, op.join);
                true
            }
            other => cx.turn(at, other, op.join),
        };
        if op.reach != Reach::Own && going {
            cx.disturb();
            if !cx.warp.fragments.is_empty() {
                cx.take_turns();
            }
            // A warp that nobody else waits for may interact for as long as it likes.
            interactions += 1;
            if interactions.is_multiple_of(LOOK) && cx.machine.is_over() {
                break cx.park(Slice::Stop);
            }
        }
        if going {
            continue;
        }
        if flow == Flow::Stop {
            cx.machine.stopped = true;
            break Slice::Stop;
        }
        match cx.warp.pick() {
            Some(next) => cx.fragment = next,
            None if cx.warp.live == 0 => break Slice::Done,
            None => {
                cx.warp.settle();
                break Slice::Blocked;
            }
        }
    };
    (slice, ran)
}

/// Runs an operation that may touch undefined values; nothing where no lane runs it.
#[cold]
#[inline(never)]
fn doubtfully(cx: &mut Cx<'_>, op: &Op) -> Option<Flow> {
    doubt::guard(cx, op.guard);
    let (uses, mask) = (doubt::uses(cx), cx.mask);
    if mask == 0 {
        return None;
    }
    if !cx.code.touched.is_empty() {
        crate::access::products::note(cx);
    }
    doubt::before(cx, &*op.instr);
    let flow = op.instr.step(cx);
    if let (Some(uses), Flow::Next) = (uses, flow) {
        doubt::after(cx, uses, mask);
    }
    Some(flow)
}

impl Cx<'_> {
    /// Why another warp must run before an operation, if so. An interaction waits for its turn; the
    /// rest runs until the warp's share of instructions is used up.
    #[inline(always)]
    fn has_to_wait(&mut self, op: &Op, left: u32, block: u64, device: u64) -> Option<Slice> {
        if op.reach == Reach::Own {
            if left > 0 {
                return None;
            }
            self.warp.settle();
            return Some(Slice::Later);
        }
        let now = self.warp.settle();
        if now > block {
            Some(Slice::Later)
        } else if op.reach == Reach::Device && now > device {
            Some(Slice::Device)
        } else {
            None
        }
    }

    /// The lanes of the fragment that an operation's guard lets through.
    #[inline(always)]
    fn let_through(&self, op: &Op) -> Mask {
        match op.guard {
            None => self.fragment.mask,
            Some(guard) => {
                let bits = self.warp.preds[(guard.pred.0 + self.fragment.pbase) as usize];
                self.fragment.mask & if guard.negated { !bits } else { bits }
            }
        }
    }

    /// The fragment has come to its join; false if it has to wait there.
    fn meet(&mut self) -> bool {
        let fragment = std::mem::replace(&mut self.fragment, Fragment::NOBODY);
        match self.warp.arrive(fragment) {
            Some(fragment) => {
                self.fragment = fragment;
                // Joins can end at one place; the next one is looked at again.
                if self.fragment.pc == self.fragment.stop && self.is_at_join() {
                    return self.meet();
                }
                true
            }
            None => false,
        }
    }

    fn is_at_join(&self) -> bool {
        self.warp.is_due(&self.fragment)
    }

    /// Puts the fragment back for later.
    fn park(&mut self, slice: Slice) -> Slice {
        let fragment = std::mem::replace(&mut self.fragment, Fragment::NOBODY);
        self.warp.fragments.push_front(fragment);
        slice
    }

    /// Gives the lanes in `lanes` a fragment of their own at `pc`.
    fn split(&mut self, lanes: Mask, pc: u32) {
        if lanes == 0 {
            return;
        }
        self.fragment.mask &= !lanes;
        let part = Fragment {
            pc,
            mask: lanes,
            state: State::Ready,
            spins: 0,
            forced: false,
            resumed: false,
            ..self.fragment.clone()
        };
        self.warp.fragments.push_front(part);
    }

    /// Lets some lanes run the present instruction again by themselves.
    pub(crate) fn divide(&mut self, lanes: Mask) {
        let pc = self.fragment.pc;
        self.expect(pc + 1);
        self.split(lanes, pc);
    }

    /// The warp's number in its cluster.
    pub(crate) fn index(&self) -> usize {
        (self.warp.rank * self.machine.geography.warps_per_block + self.warp.number) as usize
    }

    fn depth(&self) -> u32 {
        self.fragment.frames.len() as u32
    }

    fn expect(&mut self, join: u32) {
        if join != NOWHERE {
            let depth = self.depth();
            self.warp.expect(&mut self.fragment, join, depth);
        }
    }

    #[inline]
    fn branch(&mut self, target: u32, join: u32) {
        if self.mask == self.fragment.mask {
            self.fragment.pc = target;
            return;
        }
        self.expect(join);
        self.split(self.mask, target);
        self.fragment.pc += 1;
    }

    /// Everything but the next instruction and a branch. False if the fragment
    /// is gone: it waits, or has no lanes left.
    fn turn(&mut self, at: usize, flow: Flow, join: u32) -> bool {
        let next = self.fragment.pc + 1;
        let others = self.fragment.mask & !self.mask;
        match flow {
            Flow::Next | Flow::Branch(_) => true,
            Flow::Scatter => {
                self.expect(join);
                if others != 0 {
                    self.split(others, next);
                }
                let mut rest = self.mask;
                while rest != 0 {
                    let target = self.targets[crate::lanes::first(rest)];
                    let there = each(rest)
                        .filter(|&lane| self.targets[lane] == target)
                        .fold(0, |mask, lane| mask | 1 << lane);
                    rest &= !there;
                    if rest == 0 {
                        self.fragment.pc = target;
                    } else {
                        self.split(there, target);
                    }
                }
                true
            }
            Flow::Exit => self.exit(others),
            Flow::Call(function) => {
                self.expect(next);
                self.split(others, next);
                self.enter(function)
            }
            Flow::Return => {
                let Some(frame) = self.fragment.frames.last().copied() else {
                    return self.exit(others);
                };
                self.split(others, next);
                self.fragment.frames.pop();
                self.fragment.pc = frame.pc;
                self.fragment.base = frame.base;
                self.fragment.pbase = frame.pbase;
                self.fragment.local = frame.local;
                self.fragment.function = frame.function;
                true
            }
            Flow::Wait | Flow::Retry => {
                let wait = self.awaits;
                if others != 0 {
                    self.expect(next);
                    self.split(others, next);
                }
                if flow == Flow::Wait {
                    self.fragment.pc = next;
                }
                if let Wait::Mbarrier { until, .. } | Wait::Until { time: until } = wait {
                    self.team.set_timer(at, until);
                }
                let mut fragment = std::mem::replace(&mut self.fragment, Fragment::NOBODY);
                fragment.state = State::Waiting(wait);
                self.warp.fragments.push_back(fragment);
                false
            }
            Flow::Stop => false,
        }
    }

    fn exit(&mut self, others: Mask) -> bool {
        let lanes = self.mask;
        self.warp.retire(lanes);
        self.team.progress += 1;
        self.team.cluster_barrier.changed = true;
        let rank = self.warp.rank;
        let now = self.warp.settle();
        let warp_done = self.warp.live == 0;
        let block = &mut self.blocks[rank as usize];
        block.live -= lanes.count_ones();
        block.live_warps -= u32::from(warp_done);
        block.end = block.end.max(now);
        let live = block.live;
        for id in each(block.used_barriers.into()) {
            let barrier = &mut block.barriers[id];
            if live > 0 && !barrier.is_idle() && barrier.is_complete(live) {
                barrier.latest = barrier.latest.max(now);
                self.team.completed.push((rank, id as u32));
            }
        }
        crate::access::exit::lanes_exited(self, lanes);
        self.fragment.mask = others;
        self.fragment.pc += 1;
        if others == 0 {
            self.fragment = Fragment::NOBODY;
        }
        others != 0
    }

    fn enter(&mut self, function: u32) -> bool {
        let caller = &self.code.functions[self.fragment.function as usize];
        let callee = &self.code.functions[function as usize];
        let frame = Frame {
            pc: self.fragment.pc + 1,
            base: self.fragment.base,
            pbase: self.fragment.pbase,
            local: self.fragment.local,
            function: self.fragment.function,
        };
        let (rows, preds, local) = (caller.rows, caller.preds, caller.frame);
        let base = frame.base + rows;
        let local_end = (frame.local + local).saturating_add(callee.frame);
        let limit = self.machine.device.gpu().arch.limits().local_bytes;
        if self.fragment.frames.len() >= MOST_FRAMES
            || base + callee.rows > MOST_ROWS
            || local_end > limit
        {
            let name = callee.name.clone();
            let depth = self.fragment.frames.len();
            self.report(rule::CALL_DEPTH, self.mask, |_, told| {
                let mut told = told.help("bound the recursion, or turn it into a loop");
                told.message = format!(
                    "the call of `{name}` is {depth} calls deep, past the limit of the stack"
                );
                told
            });
            self.machine.stopped = true;
            return true;
        }
        self.fragment.frames.push(frame);
        self.fragment.base = base;
        self.fragment.pbase = frame.pbase + preds;
        self.fragment.local = frame.local + local;
        self.fragment.function = function;
        self.fragment.pc = callee.start;
        let rows = (base + callee.rows) as usize;
        self.grow(rows, local_end);
        let preds = (self.fragment.pbase + callee.preds) as usize;
        if self.warp.preds.len() < preds {
            self.warp.preds.resize(preds, 0);
        }
        true
    }

    /// Makes room for a callee's registers and its frame, if the budget has it.
    fn grow(&mut self, rows: usize, local: u32) {
        let more_rows = rows.saturating_sub(self.warp.regs.len()) as u64;
        let more_local = u64::from(local).saturating_sub(self.warp.local.len());
        self.machine.grown += more_rows * size_of::<Row>() as u64 + more_local * LANES as u64;
        if more_rows > 0 {
            self.warp.regs.resize(rows, Row::splat(0));
        }
        self.warp.local.grow(local);
        let budget = self.machine.options.budget.memory;
        if self.machine.grown > budget {
            self.report(rule::MEMORY_BUDGET, self.mask, |_, mut told| {
                told.message = format!(
                    "the stacks of the running threads take more than the budget of {budget} bytes"
                );
                told.help("bound the recursion, or launch fewer threads")
            });
            self.machine.stopped = true;
        }
    }

    /// After an interaction: other fragments of the warp get their turn, so that
    /// lanes that wait for each other all get on.
    fn take_turns(&mut self) {
        let mut fragment = std::mem::replace(&mut self.fragment, Fragment::NOBODY);
        self.warp.count_spin(&mut fragment);
        self.warp.fragments.push_back(fragment);
        if let Some(next) = self.warp.pick() {
            self.fragment = next;
        }
    }

    /// After an interaction: what the seed and chaos add to its time.
    fn disturb(&mut self) {
        let chaos = self.machine.options.chaos.delay;
        let most = match (self.machine.options.seed, chaos) {
            (0, 0) => return,
            (_, 0) => 48,
            (_, delay) => u64::from(delay),
        };
        let delay = self.machine.rng.below(most + 1);
        let time = self.warp.cycle + delay;
        self.warp.advance(time);
    }
}
