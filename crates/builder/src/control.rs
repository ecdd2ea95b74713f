//! Branches and loops.
//!
//! The bodies are closures that run once, while the kernel is built, and emit
//! what the GPU may run many times or not at all. They are `Fn`, not `FnMut`,
//! on purpose: assigning a Rust variable inside would look like a loop-carried value without being
//! one, so it does not compile; use a [`Var`](crate::Var). Nor can a body consume a typestate
//! value. A Rust `for` around emitted code unrolls.
//!
//! What a branch or a loop emits is compiled once, and calls bodies through `dyn`: kernels have
//! hundreds of them, and building one is no hot path.

use crate::emit::{LabelId, Line, Opnd};
use crate::fold::Compare;
use crate::kernel::Kernel;
use crate::scalar::{Integer, Ordered, Scalar};
use crate::value::{Bool, IntoVal, Repr, Val, Var};
use std::panic::Location;

impl<'k> Kernel<'k> {
    /// Runs `then` where `condition` holds.
    ///
    /// A condition known while building decides at once and leaves no branch.
    #[track_caller]
    pub fn if_(&self, condition: impl IntoVal<'k, bool>, then: impl Fn()) {
        self.when(condition.into_val(self), &then);
    }

    #[track_caller]
    fn when(&self, condition: Bool<'k>, then: &dyn Fn()) {
        match condition.known() {
            Some(true) => then(),
            Some(false) => {}
            None => {
                let end = self.rec.label("endif");
                self.branch_unless(condition, end);
                self.rec.deeper(then);
                self.rec.line(Line::Label(end));
            }
        }
    }

    /// Runs `then` where `condition` holds, `otherwise` where it does not.
    #[track_caller]
    pub fn if_else(
        &self,
        condition: impl IntoVal<'k, bool>,
        then: impl Fn(),
        otherwise: impl Fn(),
    ) {
        self.one_of(condition.into_val(self), &mut || then(), &mut || {
            otherwise()
        });
    }

    /// The value of `then` where `condition` holds, else that of `otherwise`;
    /// only one of them is computed. For cheap sides use
    /// [`select`](Val::select).
    #[track_caller]
    pub fn if_value<T: Scalar>(
        &self,
        condition: impl IntoVal<'k, bool>,
        then: impl Fn() -> Val<'k, T>,
        otherwise: impl Fn() -> Val<'k, T>,
    ) -> Val<'k, T> {
        let condition = condition.into_val(self);
        match condition.known() {
            Some(true) => return then(),
            Some(false) => return otherwise(),
            None => {}
        }
        let result = Var::unset(*self);
        self.one_of(condition, &mut || result.set(then()), &mut || {
            result.set(otherwise())
        });
        result.get()
    }

    /// A branch whose sides each run once while building, so that they may consume a typestate
    /// value.
    #[track_caller]
    pub(crate) fn either(
        &self,
        condition: Bool<'k>,
        then: impl FnOnce(),
        otherwise: impl FnOnce(),
    ) {
        let (mut then, mut otherwise) = (once(then), once(otherwise));
        self.one_of(condition, &mut then, &mut otherwise);
    }

    #[track_caller]
    fn one_of(&self, condition: Bool<'k>, then: &mut dyn FnMut(), otherwise: &mut dyn FnMut()) {
        match condition.known() {
            Some(true) => return then(),
            Some(false) => return otherwise(),
            None => {}
        }
        let (other, end) = (self.rec.label("else"), self.rec.label("endif"));
        self.branch_unless(condition, other);
        self.rec.deeper(then);
        self.jump(end);
        self.rec.line(Line::Label(other));
        self.rec.deeper(otherwise);
        self.rec.line(Line::Label(end));
    }

    /// Counts `i` from `low` up to, and without, `high`.
    #[track_caller]
    pub fn for_range<T: Integer + Ordered + From<u8>>(
        &self,
        low: impl IntoVal<'k, T>,
        high: impl IntoVal<'k, T>,
        body: impl Fn(Val<'k, T>),
    ) {
        let step = T::from(1).into_val(self);
        self.count(low.into_val(self), high.into_val(self), step, &body);
    }

    /// Counts `i` from `low` in steps, as long as it is below `high`.
    ///
    /// `high + step` must not exceed the type's range.
    #[track_caller]
    pub fn for_step<T: Integer + Ordered>(
        &self,
        low: impl IntoVal<'k, T>,
        high: impl IntoVal<'k, T>,
        step: impl IntoVal<'k, T>,
        body: impl Fn(Val<'k, T>),
    ) {
        let (low, high, step) = (low.into_val(self), high.into_val(self), step.into_val(self));
        self.count(low, high, step, &body);
    }

    #[track_caller]
    fn count<T: Integer + Ordered>(
        &self,
        low: Val<'k, T>,
        high: Val<'k, T>,
        step: Val<'k, T>,
        body: &dyn Fn(Val<'k, T>),
    ) {
        let enters = low.compare(Compare::Lt, high);
        if enters.known() == Some(false) {
            return;
        }
        let (top, end) = (self.rec.label("loop"), self.rec.label("endloop"));
        let i = Var::<T>::unset(*self);
        i.set(low);
        if enters.known().is_none() {
            self.branch_unless(enters, end);
        }
        self.rec.line(Line::Label(top));
        // The counter is written below only, so the body may read it in place.
        let now = Val::from_reg(*self, i.reg);
        self.rec.deeper(|| body(now));
        self.rec.op(
            format!("add.s{}", T::KIND.width()),
            vec![i.reg.into(), i.reg.into(), step.operand()],
            Location::caller(),
        );
        let again = now.compare(Compare::Lt, high);
        self.branch_if(again, top);
        self.rec.line(Line::Label(end));
    }

    /// Counts from `low` to `high`, `N` bodies per trip with one test, and a
    /// loop of single bodies for the rest.
    #[track_caller]
    pub fn for_unrolled<const N: u32>(
        &self,
        low: impl IntoVal<'k, u32>,
        high: impl IntoVal<'k, u32>,
        body: impl Fn(Val<'k, u32>),
    ) {
        const { assert!(N > 0, "a loop unrolled zero times") }
        let (low, high) = (low.into_val(self), high.into_val(self));
        let whole = low + (high.max(low) - low) / N * N;
        self.for_step(low, whole, N, |i| {
            for step in 0..N {
                body(i + step);
            }
        });
        if whole.known().is_none() || whole.known() != high.known() {
            self.for_range(whole, high, body);
        }
    }

    /// Runs `body` as long as `condition`, computed anew before each trip,
    /// holds.
    #[track_caller]
    pub fn while_(&self, condition: impl Fn() -> Bool<'k>, body: impl Fn()) {
        self.loop_(|flow| {
            flow.break_unless(condition());
            body();
        });
    }

    /// Runs `body` until it breaks out.
    ///
    /// ```
    /// # use heist_builder::*;
    /// # kernel_params! { pub struct No {} }
    /// # KernelSpec::<No>::new("k").build(Arch::SM_80, |k, _| {
    /// let n = k.var(0u32);
    /// k.loop_(|flow| {
    ///     n.set(n + 3);
    ///     flow.break_if(n.get().gt(100));
    /// });
    /// # }).unwrap();
    /// ```
    #[track_caller]
    pub fn loop_(&self, body: impl Fn(Flow<'k>)) {
        self.repeat(&body);
    }

    #[track_caller]
    fn repeat(&self, body: &dyn Fn(Flow<'k>)) {
        let flow = Flow {
            k: *self,
            top: self.rec.label("loop"),
            end: self.rec.label("endloop"),
        };
        self.rec.line(Line::Label(flow.top));
        self.rec.deeper(|| body(flow));
        self.jump(flow.top);
        self.rec.line(Line::Label(flow.end));
    }

    #[track_caller]
    pub(crate) fn branch_unless(&self, condition: Bool<'k>, label: LabelId) {
        self.branch(condition, true, label);
    }

    #[track_caller]
    pub(crate) fn branch_if(&self, condition: Bool<'k>, label: LabelId) {
        self.branch(condition, false, label);
    }

    #[track_caller]
    fn branch(&self, condition: Bool<'k>, negated: bool, label: LabelId) {
        match condition.repr {
            Repr::Imm(holds) if (holds == 1) != negated => self.jump(label),
            Repr::Imm(_) => {}
            Repr::Reg(reg) => self.rec.guarded(
                (reg, negated),
                "bra",
                vec![Opnd::Label(label)],
                Location::caller(),
            ),
        }
    }

    #[track_caller]
    pub(crate) fn jump(&self, label: LabelId) {
        self.rec
            .op("bra", vec![Opnd::Label(label)], Location::caller());
    }
}

/// What runs once, for a caller that could call it twice.
fn once(body: impl FnOnce()) -> impl FnMut() {
    let mut body = Some(body);
    move || {
        if let Some(body) = body.take() {
            body();
        }
    }
}

/// The way out of a [`Kernel::loop_`], and back to its top.
#[derive(Clone, Copy, Debug)]
pub struct Flow<'k> {
    k: Kernel<'k>,
    top: LabelId,
    end: LabelId,
}

impl<'k> Flow<'k> {
    /// Leaves the loop where `condition` holds.
    #[track_caller]
    pub fn break_if(self, condition: impl IntoVal<'k, bool>) {
        let condition = condition.into_val(&self.k);
        self.k.branch_if(condition, self.end);
    }

    /// Leaves the loop where `condition` does not hold.
    #[track_caller]
    pub fn break_unless(self, condition: impl IntoVal<'k, bool>) {
        let condition = condition.into_val(&self.k);
        self.k.branch_unless(condition, self.end);
    }

    /// Leaves the loop.
    #[track_caller]
    pub fn break_(self) {
        self.k.jump(self.end);
    }

    /// Goes back to the top of the loop where `condition` holds.
    #[track_caller]
    pub fn continue_if(self, condition: impl IntoVal<'k, bool>) {
        let condition = condition.into_val(&self.k);
        self.k.branch_if(condition, self.top);
    }
}
