//! The interpreter: device code that runs whatever policy is loaded.
//!
//! The scheduler thread keeps a copy of the policy in its block's shared memory, and
//! takes up another one only between two decisions. A policy that always or never asks
//! costs a comparison; for any other, each step costs some twenty instructions.

use super::loader::{SHARED, SLOT_WORDS, SLOTS, area, first, kind};
use super::step::{Op, Section, Type};
use super::words::{HEAD, MIX, PolicyWords};
use super::{MOST_STEPS, REGISTERS, STATES};
use crate::context::{Misdeed, PolicyCx};
use heist_builder::{Bool, Global, Kernel, Order, Ptr, Scope, SharedArray, Val, Var};

/// Words that are copied at a time, so that their latencies overlap.
const CHUNK: u32 = 8;
/// How often a block retries when policies are exchanged faster than it reads.
const TRIES: u32 = 8;

/// The interpreter of one kernel. All of it is for the scheduler thread.
pub(super) struct Interpreter<'k> {
    k: Kernel<'k>,
    /// The current word, as it was when the thread last looked; 0 if it has not.
    next: Var<'k, u32>,
    /// Whether it first looks where it decides.
    looks_late: bool,
    /// The current word of the policy that it follows.
    seen: Var<'k, u32>,
    /// What kind of policy that is.
    kind: Var<'k, u32>,
    /// Where its sections end.
    ends: Var<'k, u32>,
    /// Its slot, in the launch's memory.
    slot: Var<'k, u64>,
    code: SharedArray<'k, u64>,
    registers: SharedArray<'k, u64>,
    states: SharedArray<'k, u64>,
}

/// One step being executed.
struct Stepping<'k> {
    word: Val<'k, u64>,
    number: Val<'k, u32>,
    a: Val<'k, u64>,
    b: Val<'k, u64>,
    granted: Val<'k, u32>,
    value: Var<'k, u64>,
    answer: Var<'k, bool>,
    misdeed: Var<'k, u32>,
}

impl<'k> Interpreter<'k> {
    /// Of a kernel that is built with a policy. Where that one always asks, whether another was loaded before the launch is first looked at
    /// where the block decides: its first copies would wait for the answer of memory, and a decision has stages in flight that hide it.
    pub(super) fn new(cx: &PolicyCx<'k>, built_with: &PolicyWords) -> Interpreter<'k> {
        let k = cx.kernel();
        if !cx.has_area {
            k.fail("a loaded policy can't be a part of another: combine them, then load what comes out");
        }
        let (looks_late, seen) = match built_with.answer() {
            Some(true) => (true, first(built_with)),
            _ => (false, 0),
        };
        let room = (HEAD + MOST_STEPS).next_multiple_of(CHUNK as usize) as u32;
        let interpreter = Interpreter {
            k,
            next: k.var(0u32).named("policy_next"),
            looks_late,
            seen: k.var(seen).named("policy_seen"),
            kind: k.var(kind::ALWAYS).named("policy_kind"),
            ends: k.var(0u32).named("policy_ends"),
            slot: k.var(0u64).named("policy_slot"),
            code: k.shared("heist_policy_code", room),
            registers: k.shared("heist_policy_registers", REGISTERS as u32),
            states: k.shared("heist_policy_states", STATES as u32),
        };
        if !looks_late {
            interpreter.look(cx);
        }
        interpreter
    }

    /// Loads the current word; the value is used later, so that a tile's work hides the latency.
    pub(super) fn look(&self, cx: &PolicyCx<'k>) {
        self.next.set(current(cx).load_relaxed(Scope::System));
    }

    /// Whether the policy that it follows was current at the last look, and always asks.
    pub(super) fn is_plain(&self) -> Bool<'k> {
        self.next.get().eq(self.seen.get()) & self.kind.get().eq(kind::ALWAYS)
    }

    /// Changes over to the policy that was current at the last look.
    pub(super) fn take_up(&self, cx: &PolicyCx<'k>) {
        let k = self.k;
        if self.looks_late {
            k.if_(self.next.get().eq(0), || self.look(cx));
        }
        k.if_(self.next.get().ne(self.seen.get()), || {
            let (now, next) = (self.next.get(), self.next.get() & 3);
            let programs = next.eq(kind::PROGRAM) | self.kind.get().eq(kind::PROGRAM);
            k.if_else(
                programs,
                || self.exchange(cx),
                || {
                    self.seen.set(now);
                    self.kind.set(next);
                },
            );
        });
    }

    /// Changes over from a program or to one.
    fn exchange(&self, cx: &PolicyCx<'k>) {
        let k = self.k;
        self.let_go(cx);
        let tries = k.var(0u32);
        k.loop_(|flow| {
            let now = self.next.get();
            self.seen.set(now);
            self.kind.set(now & 3);
            flow.break_if(self.kind.get().ne(kind::PROGRAM));
            let index = (now >> 2) & (SLOTS as u32 - 1);
            let users = users(cx, index);
            users.atomic_add_with(Order::AcquireRelease, Scope::System, 1u64);
            // Either the loader sees the count, or this thread sees the new policy.
            k.fence_sequential(Scope::System);
            self.next.set(current(cx).load_acquire(Scope::System));
            let offset = index * SLOT_WORDS as u32 + area::slot(0) as u32;
            self.slot.set(offset.cast::<u64>());
            flow.break_if(self.next.get().eq(now));
            users.atomic_add_with(Order::AcquireRelease, Scope::System, u64::MAX);
            self.kind.set(kind::ALWAYS);
            tries.update(|tries| tries + 1);
            flow.break_if(tries.get().ge(TRIES));
        });
        k.if_(self.kind.get().eq(kind::PROGRAM), || {
            let right = self.copy(cx);
            k.if_else(
                right,
                || {
                    self.run(cx, Section::Init, None);
                },
                || self.eject(cx, k.c(Misdeed::Changed as u32)),
            );
        });
    }

    /// Gives back what the policy holds, and its slot.
    pub(super) fn let_go(&self, cx: &PolicyCx<'k>) {
        let k = self.k;
        k.if_(self.kind.get().eq(kind::PROGRAM), || {
            self.run(cx, Section::Leave, None);
            // It may have been ejected there already.
            k.if_(self.kind.get().eq(kind::PROGRAM), || self.count_out(cx));
        });
    }

    fn count_out(&self, cx: &PolicyCx<'k>) {
        let index = (self.seen.get() >> 2) & (SLOTS as u32 - 1);
        let users = users(cx, index);
        users.atomic_add_with(Order::AcquireRelease, Scope::System, u64::MAX);
        self.kind.set(kind::ALWAYS);
    }

    /// A policy that misbehaves is not asked again: the block goes on as greedy until
    /// another one is loaded, and the launch's record says why.
    fn eject(&self, cx: &PolicyCx<'k>, misdeed: Val<'k, u32>) {
        cx.record(misdeed);
        self.count_out(cx);
    }

    /// Copies the policy into shared memory; whether its checksum is right.
    fn copy(&self, cx: &PolicyCx<'k>) -> Bool<'k> {
        let k = self.k;
        let slot = cx.control.0.at(self.slot.get());
        let head = slot.load_relaxed(Scope::Gpu);
        let steps = ((head >> 24).cast::<u32>() & 0xff).min(MOST_STEPS as u32);
        self.ends.set(head.cast::<u32>());
        // No step can read an uninitialised register, whatever the words contain.
        for at in 0..REGISTERS as u32 {
            self.registers.at(at).store(0u64);
        }
        for at in 0..STATES as u32 {
            self.states.at(at).store(0u64);
        }
        let sum = k.var(0u64);
        k.for_step(0u32, steps + HEAD as u32, CHUNK, |first| {
            let words: Vec<_> = (0..CHUNK)
                .map(|at| slot.at(first + at).load_relaxed(Scope::Gpu))
                .collect();
            for (at, word) in words.into_iter().enumerate() {
                let index = first + at as u32;
                self.code.at(index).store(word);
                let counts = index.lt(steps + HEAD as u32) & index.ne(1);
                k.if_(counts, || {
                    let mixed = (sum.get() ^ word) * MIX;
                    sum.set(mixed ^ (mixed >> 29));
                });
            }
        });
        self.code.at(1).load().eq(sum.get())
    }

    /// What the policy says.
    pub(super) fn decide(
        &self,
        cx: &PolicyCx<'k>,
        section: Section,
        granted: Option<Val<'k, u32>>,
    ) -> Bool<'k> {
        let k = self.k;
        let answer = k.var(self.kind.get().ne(kind::NEVER)).named("policy_says");
        k.if_(self.kind.get().eq(kind::PROGRAM), || {
            answer.set(self.run(cx, section, granted));
        });
        answer.get()
    }

    /// Runs a section; its answer.
    fn run(&self, cx: &PolicyCx<'k>, section: Section, granted: Option<Val<'k, u32>>) -> Bool<'k> {
        let k = self.k;
        k.comment(&format!("interpret: {}", section.as_str()));
        // Only the copied steps, whatever the header says.
        let copied = (self.ends.get() >> 24).min(MOST_STEPS as u32);
        let end = |section: usize| ((self.ends.get() >> (8 * section as u32)) & 0xff).min(copied);
        let first = match section as usize {
            0 => k.c(0u32),
            at => end(at - 1),
        };
        let last = end(section as usize);
        let (answer, misdeed) = (k.var(true), k.var(0u32));
        let at = k.var(first).named("policy_step");
        k.while_(
            || at.get().lt(last),
            || {
                let word = self.code.at(at.get() + HEAD as u32).load();
                let low = word.cast::<u32>();
                let register = |shift: u32| self.registers.at((low >> shift) & 15);
                let step = Stepping {
                    word,
                    number: (word >> 32).cast::<u32>(),
                    a: register(12).load(),
                    b: register(16).load(),
                    granted: granted.unwrap_or(k.c(0)),
                    value: k.var(0u64),
                    answer,
                    misdeed,
                };
                self.dispatch(cx, &step, low & 0xff, 0, Op::ALL.len() as u32);
                let wide = (low >> 24).eq(Type::U64 as u32);
                let mask = wide.select(u64::MAX, u64::from(u32::MAX));
                // `set` and `answer`, which are neighbours, leave no value.
                let has_value = ((low & 0xff) - Op::Set as u32).gt(1);
                k.if_(has_value, || {
                    register(8).store(step.value.get() & mask);
                });
                let next = at.get() + 1;
                at.set(misdeed.get().eq(0).select(next, last));
            },
        );
        k.if_(misdeed.get().ne(0), || {
            self.eject(cx, misdeed.get());
            answer.set(true);
        });
        answer.get()
    }

    /// Finds the operation `number` among those from `low` up to `high`.
    fn dispatch(
        &self,
        cx: &PolicyCx<'k>,
        step: &Stepping<'k>,
        number: Val<'k, u32>,
        low: u32,
        high: u32,
    ) {
        let last = high as usize == Op::ALL.len();
        match high - low {
            1 if last => self.k.if_else(
                number.eq(low),
                || self.perform(cx, step, Op::ALL[low as usize]),
                || step.misdeed.set(Misdeed::UnknownStep as u32),
            ),
            1 => self.perform(cx, step, Op::ALL[low as usize]),
            _ => {
                let middle = (low + high) / 2;
                self.k.if_else(
                    number.lt(middle),
                    || self.dispatch(cx, step, number, low, middle),
                    || self.dispatch(cx, step, number, middle, high),
                );
            }
        }
    }

    fn perform(&self, cx: &PolicyCx<'k>, step: &Stepping<'k>, op: Op) {
        let k = self.k;
        let &Stepping { a, b, number, .. } = step;
        let truth = |value: Bool<'k>| value.select(1u64, 0u64);
        let state = || self.states.at(number & (STATES as u32 - 1));
        let shared = |apply: &dyn Fn(Ptr<'k, Global, u64>) -> Val<'k, u64>| {
            let first = self.slot.get() + (HEAD + MOST_STEPS) as u64;
            let at = first + (number & (SHARED as u32 - 1)).cast::<u64>();
            let word = cx.control.0.at(at);
            k.if_value((b & 1u64).ne(0), || apply(word), || k.c(0u64))
        };
        step.value.set(match op {
            Op::Const => number.cast(),
            Op::High => a | (number.cast::<u64>() << 32),
            Op::Get => state().load(),
            Op::Set => {
                state().store(a);
                return;
            }
            Op::Answer => {
                step.answer.set((a & 1u64).ne(0));
                return;
            }
            Op::Nanoseconds => cx.nanoseconds(),
            Op::Sm => cx.sm().cast(),
            Op::Worker => cx.worker().cast(),
            Op::Workers => cx.workers().cast(),
            Op::Tiles => cx.tiles().cast(),
            Op::Resident => cx.resident().cast(),
            Op::Granted => step.granted.cast(),
            Op::Bell => truth(cx.is_asked_to_yield()),
            Op::Add => a + b,
            Op::Sub => a - b,
            Op::Mul => a * b,
            Op::MulHigh => (a * b) >> 32,
            Op::Div => {
                let value = step.value;
                k.if_else(
                    b.eq(0u64),
                    || step.misdeed.set(Misdeed::DividedByZero as u32),
                    || value.set(a / b),
                );
                return;
            }
            Op::Min => a.min(b),
            Op::Max => a.max(b),
            Op::And => a & b,
            Op::Or => a | b,
            Op::Xor => a ^ b,
            Op::Shr => a >> (number & 63),
            Op::Not => (a & 1u64) ^ 1u64,
            Op::Less => truth(a.lt(b)),
            Op::AtMost => truth(a.le(b)),
            Op::Equal => truth(a.eq(b)),
            Op::Select => {
                let low = step.word.cast::<u32>();
                let c = self.registers.at((low >> 20) & 15).load();
                (a & 1u64).ne(0).select(b, c)
            }
            Op::Cast => a,
            Op::WordAdd => shared(&|word| word.atomic_add(a)),
            Op::WordMax => shared(&|word| word.atomic_max(a)),
        });
    }
}

fn current<'k>(cx: &PolicyCx<'k>) -> Ptr<'k, Global, u32> {
    cx.control.0.at(area::CURRENT as u32).cast::<u32>()
}

fn users<'k>(cx: &PolicyCx<'k>, slot: Val<'k, u32>) -> Ptr<'k, Global, u64> {
    cx.control.0.at(area::USERS as u32).at(slot)
}
