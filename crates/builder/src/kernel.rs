//! The handle of the kernel being built: thread and block positions, constants, variables,
//! comments.

use crate::emit::{Line, Opnd, Recorder, TensorMemoryUse};
use crate::error::{BuildError, Problem};
use crate::scalar::{Class, Scalar, Word};
use crate::value::{IntoVal, Val, Var};
use heist_ptx::arch::{Arch, Feature};
use heist_ptx::{Constant, Integer, Part, SmolStr};
use std::fmt;
use std::marker::PhantomData;
use std::panic::Location;

/// The kernel being built: a handle that is copied freely.
///
/// Every value holds one, so operators need none. The lifetime `'k` is a brand
/// that belongs to one call of [`KernelSpec::build`](crate::KernelSpec::build)
/// and to no other.
#[derive(Clone, Copy)]
pub struct Kernel<'k> {
    pub(crate) rec: &'k Recorder,
    /// Makes `'k` invariant: two kernels' brands never unify.
    pub(crate) brand: PhantomData<fn(&'k ()) -> &'k ()>,
}

impl fmt::Debug for Kernel<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Kernel({})", self.rec.arch)
    }
}

/// Three numbers along x, y and z.
#[derive(Clone, Copy, Debug)]
pub struct Dim3<'k> {
    /// Along x.
    pub x: Val<'k, u32>,
    /// Along y.
    pub y: Val<'k, u32>,
    /// Along z.
    pub z: Val<'k, u32>,
}

/// A whole number as an operand.
pub(crate) fn number(value: i64) -> Opnd {
    Opnd::Const(Constant::Int(Integer::decimal(value)))
}

impl<'k> Kernel<'k> {
    /// What it is built for.
    pub fn arch(&self) -> Arch {
        self.rec.arch
    }

    /// Whether its target has `feature`, so that a kernel can choose.
    pub fn has(&self, feature: Feature) -> bool {
        self.rec.arch.supports(feature)
    }

    /// Says that the kernel uses `feature`. Where the target lacks it, the
    /// build fails with an error that says so and points here.
    #[track_caller]
    pub fn require(&self, feature: Feature) {
        self.rec.need(feature, Location::caller());
    }

    /// Fails the build with an error that points here.
    #[track_caller]
    pub fn fail(&self, what: impl Into<String>) {
        self.fail_with(Problem::Other(what.into()));
    }

    /// Fails the build with a problem, at the caller's line.
    #[track_caller]
    pub fn fail_with(&self, problem: Problem) {
        self.rec.fail(BuildError::at(problem, Location::caller()));
    }

    /// Fails the build unless `size` is a multiple of `by`.
    #[track_caller]
    pub fn must_divide(&self, what: &str, size: u64, by: u64) {
        if by == 0 || !size.is_multiple_of(by) {
            self.fail_with(Problem::DoesNotDivide {
                what: what.into(),
                size,
                by,
            });
        }
    }

    /// Fails the build unless `value` is from 1 to `high`.
    #[track_caller]
    pub(crate) fn must_be_up_to(&self, what: &str, value: u32, high: u32) {
        if !(1..=high).contains(&value) {
            self.fail_with(Problem::OutOfRange {
                what: what.into(),
                value: value.into(),
                low: 1,
                high: high.into(),
            });
        }
    }

    /// A constant.
    pub fn c<T: Scalar>(&self, value: T) -> Val<'k, T> {
        Val::constant(*self, value)
    }

    /// A variable that starts with `value`.
    #[track_caller]
    pub fn var<T: Scalar>(&self, value: impl IntoVal<'k, T>) -> Var<'k, T> {
        let var = Var::unset(*self);
        var.set(value);
        var
    }

    /// Writes a comment, to mark a phase of the kernel.
    pub fn comment(&self, text: &str) {
        for line in text.lines() {
            self.rec.line(Line::Comment(line.to_string()));
        }
    }

    /// The position of this thread in its block.
    #[track_caller]
    pub fn thread(&self) -> Dim3<'k> {
        self.position("%tid", ["tid_x", "tid_y", "tid_z"], Some(self.rec.block))
    }

    /// The position of this thread's block in the grid.
    #[track_caller]
    pub fn block(&self) -> Dim3<'k> {
        self.dim3("%ctaid", ["ctaid_x", "ctaid_y", "ctaid_z"])
    }

    /// How many blocks the grid has.
    #[track_caller]
    pub fn grid_dim(&self) -> Dim3<'k> {
        self.dim3("%nctaid", ["nctaid_x", "nctaid_y", "nctaid_z"])
    }

    /// How many threads a block has: constants, since a kernel is built for
    /// one block shape.
    pub fn block_dim(&self) -> Dim3<'k> {
        let [x, y, z] = self.rec.block.map(|n| self.c(n));
        Dim3 { x, y, z }
    }

    /// How many threads a block has.
    pub fn threads(&self) -> u32 {
        self.rec.block.iter().product()
    }

    /// How many warps a block has.
    pub fn warps(&self) -> u32 {
        self.threads().div_ceil(32)
    }

    /// The linear number of this thread in its block.
    #[track_caller]
    pub fn thread_index(&self) -> Val<'k, u32> {
        let [x, y, _] = self.rec.block;
        let at = self.thread();
        at.z.mul_add(x * y, at.y.mul_add(x, at.x))
    }

    /// The number of this thread in its warp, for a block along x.
    #[track_caller]
    pub fn lane(&self) -> Val<'k, u32> {
        self.special32("%laneid", None, "lane")
    }

    /// The number of this thread's warp in its block.
    #[track_caller]
    pub fn warp(&self) -> Val<'k, u32> {
        self.thread_index() >> 5
    }

    /// The number of the multiprocessor it runs on, now.
    #[track_caller]
    pub fn sm(&self) -> Val<'k, u32> {
        self.emit("mov.u32", vec![Opnd::Special("%smid", None)])
    }

    /// Nanoseconds of the GPU's global timer, read now.
    #[track_caller]
    pub fn nanoseconds(&self) -> Val<'k, u64> {
        self.emit("mov.u64", vec![Opnd::Special("%globaltimer", None)])
    }

    /// Cycles of this multiprocessor's clock, read now.
    #[track_caller]
    pub fn cycles(&self) -> Val<'k, u64> {
        self.emit("mov.u64", vec![Opnd::Special("%clock64", None)])
    }

    /// A position, with the constant zero along axes whose extent is one.
    #[track_caller]
    pub(crate) fn position(
        &self,
        register: &'static str,
        names: [&'static str; 3],
        extent: Option<[u32; 3]>,
    ) -> Dim3<'k> {
        let place = Location::caller();
        let part = |index: usize, part: Part| match extent {
            Some(extent) if extent[index] == 1 => self.c(0),
            _ => Val::from_reg(
                *self,
                self.rec
                    .special(register, Some(part), Class::B32, names[index], place),
            ),
        };
        Dim3 {
            x: part(0, Part::X),
            y: part(1, Part::Y),
            z: part(2, Part::Z),
        }
    }

    #[track_caller]
    pub(crate) fn dim3(&self, register: &'static str, names: [&'static str; 3]) -> Dim3<'k> {
        self.position(register, names, None)
    }

    #[track_caller]
    pub(crate) fn special32(
        &self,
        register: &'static str,
        part: Option<Part>,
        name: &'static str,
    ) -> Val<'k, u32> {
        let place = Location::caller();
        Val::from_reg(
            *self,
            self.rec.special(register, part, Class::B32, name, place),
        )
    }

    /// An instruction with a new register of type `T` in front of `operands`.
    #[track_caller]
    pub(crate) fn emit<T: Scalar>(
        &self,
        opcode: impl Into<SmolStr>,
        operands: Vec<Opnd>,
    ) -> Val<'k, T> {
        let reg = self.rec.reg(T::KIND.class());
        let mut all = Vec::with_capacity(operands.len() + 1);
        all.push(Opnd::Reg(reg));
        all.extend(operands);
        self.rec.op(opcode, all, Location::caller());
        Val::from_reg(*self, reg)
    }

    /// Remembers the caller's line for what closures in this crate emit next.
    #[track_caller]
    pub(crate) fn asked_here(&self) {
        self.rec.blame(Location::caller());
    }

    /// An instruction without a result.
    #[track_caller]
    pub(crate) fn effect(&self, opcode: impl Into<SmolStr>, operands: Vec<Opnd>) {
        self.rec.op(opcode, operands, Location::caller());
    }

    /// The same where a predicate holds, if there is one.
    #[track_caller]
    pub(crate) fn effect_only(
        &self,
        only: Option<crate::emit::Reg>,
        opcode: impl Into<SmolStr>,
        operands: Vec<Opnd>,
    ) {
        match only {
            None => self.effect(opcode, operands),
            Some(only) => {
                let place = Location::caller();
                self.rec.guarded((only, false), opcode, operands, place);
            }
        }
    }

    /// Sleeps for about this many nanoseconds, at most a million.
    #[track_caller]
    pub fn nanosleep(&self, nanoseconds: impl IntoVal<'k, u32>) {
        let time = nanoseconds.into_val(self).operand();
        self.effect("nanosleep.u32", vec![time]);
    }

    /// Stops the kernel with an error where it is reached.
    #[track_caller]
    pub fn trap(&self) {
        self.effect("trap", vec![]);
    }

    /// Leaves the kernel: this thread is done.
    #[track_caller]
    pub fn exit(&self) {
        if self.rec.tensor_memory.get() == TensorMemoryUse::Now {
            self.fail("a thread leaves the kernel while the block has tensor memory, which would not be freed");
        }
        self.effect("ret", vec![]);
    }

    /// Limits the registers a thread may use, as `.maxnreg`.
    pub fn max_registers(&self, registers: u32) {
        self.rec.max_registers.set(Some(registers));
    }

    /// Turns off loop-invariant code motion, for kernels that are short of registers: a hoisted
    /// value holds one during the whole loop.
    pub fn keep_arithmetic_in_loops(&self) {
        self.rec.hoists.set(false);
    }

    /// The bits of a 32-bit value as a `u32`.
    #[track_caller]
    pub(crate) fn as_word<T: Word>(&self, value: Val<'k, T>) -> Val<'k, u32> {
        value.bitcast::<u32>()
    }
}

impl<'k> Kernel<'k> {
    /// An uninitialised variable: on every path a write must come before a read. For schedulers;
    /// others use [`Kernel::var`].
    #[doc(hidden)]
    pub fn var_written_first<T: Scalar>(&self) -> Var<'k, T> {
        Var::unset(*self)
    }
}
