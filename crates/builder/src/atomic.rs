//! Atomic operations, ordered accesses and fences.

use crate::emit::Opnd;
use crate::kernel::Kernel;
use crate::pointer::{AtomicSpace, Global, Ptr, vector_fits};
use crate::scalar::{ScalarKind, Storable};
use crate::value::{IntoVal, Val};
use heist_ptx::arch::Feature;

/// The memory order of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Orders no other access.
    Relaxed,
    /// Later accesses are not moved before it.
    Acquire,
    /// Earlier accesses are not moved after it.
    Release,
    /// Both.
    AcquireRelease,
}

/// The threads for which an order holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The threads of a block.
    Block,
    /// The threads of a cluster.
    Cluster,
    /// The threads of the GPU.
    Gpu,
    /// The host and other GPUs too.
    System,
}

impl Order {
    fn as_str(self) -> &'static str {
        match self {
            Order::Relaxed => "relaxed",
            Order::Acquire => "acquire",
            Order::Release => "release",
            Order::AcquireRelease => "acq_rel",
        }
    }
}

impl Scope {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Scope::Block => "cta",
            Scope::Cluster => "cluster",
            Scope::Gpu => "gpu",
            Scope::System => "sys",
        }
    }
}

/// A type that atomic additions and exchanges exist for.
#[diagnostic::on_unimplemented(
    message = "no atomic operations on `{Self}`",
    note = "use u32, i32, u64 or f32"
)]
pub trait Atomic: Storable {
    #[doc(hidden)]
    const ADD: &'static str;
    #[doc(hidden)]
    const BITS: &'static str;
}
macro_rules! atomic {
    ($($ty:ty: $add:literal, $bits:literal;)*) => {$(
        impl Atomic for $ty {
            const ADD: &'static str = $add;
            const BITS: &'static str = $bits;
        }
    )*};
}
atomic! { u32: "u32", "b32"; i32: "s32", "b32"; u64: "u64", "b64"; f32: "f32", "b32"; }

/// A whole number with atomic minimum, maximum and bit operations.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no atomic minimum, maximum or bit operations"
)]
pub trait AtomicInteger: Atomic {}
impl AtomicInteger for u32 {}
impl AtomicInteger for i32 {}
impl AtomicInteger for u64 {}

impl<'k> Ptr<'k, Global, f32> {
    /// Adds to 2 or 4 neighbours in one instruction, without returning the old values: each
    /// addition is atomic alone, relaxed, over the whole GPU. The address is a multiple of their
    /// size. From Hopper on.
    #[track_caller]
    pub fn reduce_add_vec<const N: usize>(self, values: [Val<'k, f32>; N]) {
        const { assert!(N == 2 || N == 4, "a vector reduction has 2 or 4 numbers") }
        self.k.require(Feature::VectorReduction);
        let name = atomic_name::<Global>("red", Order::Relaxed, Scope::Gpu);
        let lanes = values.iter().map(|value| value.register().into()).collect();
        self.k.effect(
            format!("{name}.add.v{N}.f32"),
            vec![self.operand(), Opnd::Vector(lanes)],
        );
    }
}

impl<'k, S: AtomicSpace, T: Atomic> Ptr<'k, S, T> {
    #[track_caller]
    fn atomic(
        self,
        order: Order,
        scope: Scope,
        op: &str,
        ty: &str,
        values: Vec<Opnd>,
    ) -> Val<'k, T> {
        let name = atomic_name::<S>("atom", order, scope);
        let mut operands = vec![self.operand()];
        operands.extend(values);
        self.k.emit::<T>(format!("{name}.{op}.{ty}"), operands)
    }

    /// Adds and returns the old value; relaxed, over the whole GPU.
    #[track_caller]
    pub fn atomic_add(self, value: impl IntoVal<'k, T>) -> Val<'k, T> {
        self.atomic_add_with(Order::Relaxed, Scope::Gpu, value)
    }

    /// Adds and returns the old value.
    #[track_caller]
    pub fn atomic_add_with(
        self,
        order: Order,
        scope: Scope,
        value: impl IntoVal<'k, T>,
    ) -> Val<'k, T> {
        let value = value.into_val(&self.k).operand();
        self.atomic(order, scope, "add", T::ADD, vec![value])
    }

    /// Adds without returning the old value; relaxed, over the whole GPU.
    #[track_caller]
    pub fn reduce_add(self, value: impl IntoVal<'k, T>) {
        let value = value.into_val(&self.k).operand();
        let name = atomic_name::<S>("red", Order::Relaxed, Scope::Gpu);
        self.k.effect(
            format!("{name}.add.{}", T::ADD),
            vec![self.operand(), value],
        );
    }

    /// Writes `value` and returns the old value.
    #[track_caller]
    pub fn atomic_exchange(
        self,
        order: Order,
        scope: Scope,
        value: impl IntoVal<'k, T>,
    ) -> Val<'k, T> {
        let value = value.into_val(&self.k).operand();
        self.atomic(order, scope, "exch", T::BITS, vec![value])
    }

    /// Writes `new` where `old` is there; returns the old value.
    #[track_caller]
    pub fn atomic_compare_exchange(
        self,
        order: Order,
        scope: Scope,
        old: impl IntoVal<'k, T>,
        new: impl IntoVal<'k, T>,
    ) -> Val<'k, T> {
        let (old, new) = (old.into_val(&self.k), new.into_val(&self.k));
        let values = vec![old.operand(), new.operand()];
        self.atomic(order, scope, "cas", T::BITS, values)
    }
}

impl<'k, S: AtomicSpace, T: AtomicInteger> Ptr<'k, S, T> {
    /// Writes the smaller one and returns the old value; relaxed, over the GPU.
    #[track_caller]
    pub fn atomic_min(self, value: impl IntoVal<'k, T>) -> Val<'k, T> {
        let value = value.into_val(&self.k).operand();
        self.atomic(Order::Relaxed, Scope::Gpu, "min", T::ADD, vec![value])
    }

    /// Writes the larger one and returns the old value; relaxed, over the GPU.
    #[track_caller]
    pub fn atomic_max(self, value: impl IntoVal<'k, T>) -> Val<'k, T> {
        let value = value.into_val(&self.k).operand();
        self.atomic(Order::Relaxed, Scope::Gpu, "max", T::ADD, vec![value])
    }

    /// Sets bits and returns the old value; relaxed, over the GPU.
    #[track_caller]
    pub fn atomic_or(self, value: impl IntoVal<'k, T>) -> Val<'k, T> {
        let value = value.into_val(&self.k).operand();
        self.atomic(Order::Relaxed, Scope::Gpu, "or", T::BITS, vec![value])
    }

    /// Keeps bits and returns the old value; relaxed, over the GPU.
    #[track_caller]
    pub fn atomic_and(self, value: impl IntoVal<'k, T>) -> Val<'k, T> {
        let value = value.into_val(&self.k).operand();
        self.atomic(Order::Relaxed, Scope::Gpu, "and", T::BITS, vec![value])
    }
}

impl<'k, S: AtomicSpace> Ptr<'k, S, u32> {
    /// Counts up to `last` and then wraps to zero; returns the old value. A counter that resets
    /// itself.
    #[track_caller]
    pub fn atomic_wrapping_inc(
        self,
        order: Order,
        scope: Scope,
        last: impl IntoVal<'k, u32>,
    ) -> Val<'k, u32> {
        let last = last.into_val(&self.k).operand();
        self.atomic(order, scope, "inc", "u32", vec![last])
    }
}

impl<'k, S: AtomicSpace, T: Storable> Ptr<'k, S, T> {
    /// An acquire load: later accesses are not moved before it.
    #[track_caller]
    pub fn load_acquire(self, scope: Scope) -> Val<'k, T> {
        self.ordered_load("acquire", scope)
    }

    /// A relaxed load: it is never torn, and orders nothing else.
    #[track_caller]
    pub fn load_relaxed(self, scope: Scope) -> Val<'k, T> {
        self.ordered_load("relaxed", scope)
    }

    /// Relaxed loads of `N` neighbours in one instruction: each is never torn, and they may be of different times. The
    /// address must be a multiple of the `N` elements' size.
    #[track_caller]
    pub fn load_vec_relaxed<const N: usize>(self, scope: Scope) -> [Val<'k, T>; N] {
        const { vector_fits(N, T::BYTES) }
        self.load_vec_as(format!("ld.relaxed.{}.{}", scope.as_str(), S::NAME))
    }

    #[track_caller]
    fn ordered_load(self, order: &str, scope: Scope) -> Val<'k, T> {
        let (scope, space, ty) = (scope.as_str(), S::NAME, ordered_type(T::KIND));
        self.k.emit::<T>(
            format!("ld.{order}.{scope}.{space}.{ty}"),
            vec![self.operand()],
        )
    }

    /// A release store: earlier accesses are not moved after it.
    #[track_caller]
    pub fn store_release(self, scope: Scope, value: impl IntoVal<'k, T>) {
        self.ordered_store("release", scope, value.into_val(&self.k));
    }

    /// A relaxed store: it is never torn, and orders nothing else.
    #[track_caller]
    pub fn store_relaxed(self, scope: Scope, value: impl IntoVal<'k, T>) {
        self.ordered_store("relaxed", scope, value.into_val(&self.k));
    }

    #[track_caller]
    fn ordered_store(self, order: &str, scope: Scope, value: Val<'k, T>) {
        let (scope, space, ty) = (scope.as_str(), S::NAME, ordered_type(T::KIND));
        self.k.effect(
            format!("st.{order}.{scope}.{space}.{ty}"),
            vec![self.operand(), value.operand()],
        );
    }
}

fn ordered_type(kind: ScalarKind) -> &'static str {
    kind.memory()
}

/// `atom.acquire.gpu.global`; the relaxed order over the GPU is the default and
/// is left out.
fn atomic_name<S: AtomicSpace>(name: &str, order: Order, scope: Scope) -> String {
    if order == Order::Relaxed && scope == Scope::Gpu {
        format!("{name}.{}", S::NAME)
    } else {
        format!("{name}.{}.{}.{}", order.as_str(), scope.as_str(), S::NAME)
    }
}

impl<'k> Kernel<'k> {
    /// A fence: orders earlier accesses before later ones, for the threads of `scope`.
    #[track_caller]
    pub fn fence(&self, scope: Scope) {
        self.effect(format!("fence.acq_rel.{}", scope.as_str()), vec![]);
    }

    /// A sequentially consistent fence: for two threads that each write one word and then read the
    /// other's.
    #[track_caller]
    pub fn fence_sequential(&self, scope: Scope) {
        self.effect(format!("fence.sc.{}", scope.as_str()), vec![]);
    }

    /// Makes ordinary accesses to this block's shared memory that came before
    /// visible to asynchronous ones (bulk copies, CLC, wgmma) that come later.
    #[track_caller]
    pub fn fence_async_shared(&self) {
        self.require(crate::Feature::BulkCopy);
        self.effect("fence.proxy.async.shared::cta", vec![]);
    }

    /// Makes ordinary accesses to global memory that came before visible to
    /// bulk copies that come later.
    #[track_caller]
    pub fn fence_async_global(&self) {
        self.require(crate::Feature::BulkCopy);
        self.effect("fence.proxy.async.global", vec![]);
    }
}
