//! Pointers that know their address space and what they point to.
//!
//! The offset of a constant index goes into the instruction (`[%rd4+16]`); an
//! index in a register costs one multiply-add. So `p.at(i).at(1)` shares the
//! address of `p.at(i)`, while `p.at(i + 1)` makes a new one: step by a value
//! once, then by constants.

use crate::emit::{Base, Opnd, Reg};
use crate::kernel::{Kernel, number};
use crate::scalar::{Class, Sealed, Storable};
use crate::value::{IntoVal, Val, Var};
use std::fmt;
use std::marker::PhantomData;
use std::panic::Location;

/// Memory that all threads of the GPU share. `Global` alone is the space in
/// `Ptr<'k, Global, f32>`; `Global<f32>` is a kernel parameter that points into
/// it.
#[derive(Clone, Copy, Debug)]
pub struct Global<T = ()>(PhantomData<T>);
/// Memory of one block.
#[derive(Clone, Copy, Debug)]
pub struct Shared;
/// The shared memory of any block of the cluster.
#[derive(Clone, Copy, Debug)]
pub struct Cluster;
/// Memory of one thread.
#[derive(Clone, Copy, Debug)]
pub struct Local;

/// An address space.
pub trait Space: Sealed + 'static {
    #[doc(hidden)]
    const NAME: &'static str;
    #[doc(hidden)]
    const WIDE: bool;
}
impl Sealed for Global {}
impl Sealed for Shared {}
impl Sealed for Cluster {}
impl Sealed for Local {}
impl Space for Global {
    const NAME: &'static str = "global";
    const WIDE: bool = true;
}
impl Space for Shared {
    const NAME: &'static str = "shared";
    const WIDE: bool = false;
}
impl Space for Cluster {
    const NAME: &'static str = "shared::cluster";
    const WIDE: bool = false;
}
impl Space for Local {
    const NAME: &'static str = "local";
    const WIDE: bool = true;
}

/// Where tensor-core fragments can be loaded from.
#[diagnostic::on_unimplemented(
    message = "matrix fragments can't be loaded from `{Self}` memory",
    label = "not Shared or Global",
    note = "a tensor-core load from local memory is undefined; stage the tile in a shared array first"
)]
pub trait FragmentSpace: Space {}
impl FragmentSpace for Shared {}
impl FragmentSpace for Global {}

/// Where an atomic operation can be done.
#[diagnostic::on_unimplemented(
    message = "no atomic operations in `{Self}` memory",
    note = "memory of one thread needs none: load, change, store"
)]
pub trait AtomicSpace: Space {}
impl AtomicSpace for Shared {}
impl AtomicSpace for Global {}
impl AtomicSpace for Cluster {}

/// A pointer to `T` in the space `S` of the kernel `'k`.
pub struct Ptr<'k, S, T> {
    pub(crate) k: Kernel<'k>,
    pub(crate) base: Base,
    pub(crate) offset: i64,
    pub(crate) to: PhantomData<fn() -> (S, T)>,
}

impl<S, T> Clone for Ptr<'_, S, T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<S, T> Copy for Ptr<'_, S, T> {}

impl<S, T> fmt::Debug for Ptr<'_, S, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ptr({:?}+{})", self.base, self.offset)
    }
}

/// An index: a constant, or a value of 32 or 64 bits.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub enum Index<'k> {
    Known(i64),
    U32(Val<'k, u32>),
    I32(Val<'k, i32>),
    Wide(Val<'k, i64>),
}

/// What can be an index.
#[diagnostic::on_unimplemented(
    message = "`{Self}` can't index memory",
    note = "use a Rust integer, or a Val of u32, i32, u64 or i64"
)]
pub trait IntoIndex<'k> {
    #[doc(hidden)]
    fn into_index(self) -> Index<'k>;
}
macro_rules! host_index {
    ($($ty:ty)*) => {$(
        impl<'k> IntoIndex<'k> for $ty {
            fn into_index(self) -> Index<'k> {
                Index::Known(self as i64)
            }
        }
    )*};
}
host_index!(i32 u32 usize i64 u64);

impl<'k> IntoIndex<'k> for Val<'k, u32> {
    fn into_index(self) -> Index<'k> {
        self.known()
            .map_or(Index::U32(self), |n| Index::Known(n.into()))
    }
}
impl<'k> IntoIndex<'k> for Val<'k, i32> {
    fn into_index(self) -> Index<'k> {
        self.known()
            .map_or(Index::I32(self), |n| Index::Known(n.into()))
    }
}
impl<'k> IntoIndex<'k> for Val<'k, u64> {
    fn into_index(self) -> Index<'k> {
        self.relabel::<i64>().into_index()
    }
}
impl<'k> IntoIndex<'k> for Val<'k, i64> {
    fn into_index(self) -> Index<'k> {
        self.known().map_or(Index::Wide(self), Index::Known)
    }
}
impl<'k> IntoIndex<'k> for Var<'k, u32> {
    #[track_caller]
    fn into_index(self) -> Index<'k> {
        Index::U32(self.get())
    }
}

/// How a load uses the caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum LoadCache {
    /// The default.
    #[default]
    Default,
    /// In L2 alone.
    L2,
    /// Likely used once: evict first.
    Streaming,
    /// Volatile: every read goes to memory.
    Volatile,
}

/// How a store uses the caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum StoreCache {
    /// The default.
    #[default]
    Default,
    /// In L2 alone.
    L2,
    /// Likely used once: evict first.
    Streaming,
    /// Written at once.
    Volatile,
}

impl<'k, S: Space, T: Storable> Ptr<'k, S, T> {
    pub(crate) fn new(k: Kernel<'k>, base: Base, offset: i64) -> Ptr<'k, S, T> {
        Ptr {
            k,
            base,
            offset,
            to: PhantomData,
        }
    }

    /// The kernel it belongs to.
    pub fn kernel(self) -> Kernel<'k> {
        self.k
    }

    /// The element `index` further on.
    #[track_caller]
    #[must_use]
    pub fn at(self, index: impl IntoIndex<'k>) -> Ptr<'k, S, T> {
        self.advance(index.into_index(), T::BYTES.into())
    }

    /// `bytes` further on.
    #[track_caller]
    #[must_use]
    pub fn byte_offset(self, bytes: impl IntoIndex<'k>) -> Ptr<'k, S, T> {
        self.advance(bytes.into_index(), 1)
    }

    #[track_caller]
    fn advance(self, index: Index<'k>, size: i64) -> Ptr<'k, S, T> {
        let steps = match index {
            Index::Known(n) => {
                let offset = self.offset + n * size;
                return Ptr { offset, ..self };
            }
            other => other,
        };
        let base = Opnd::Reg(self.base_register());
        let size_operand = number(size);
        let reg = match (steps, S::WIDE) {
            // Two instructions, not `mad.wide`: the assembler fuses them where
            // that is best, and splits a `mad.wide` badly where two pointers
            // share an index.
            (Index::U32(i), true) => {
                let bytes = self
                    .k
                    .emit::<u64>("mul.wide.u32", vec![i.operand(), size_operand]);
                self.k
                    .emit::<u64>("add.s64", vec![base, bytes.operand()])
                    .register()
            }
            (Index::I32(i), true) => {
                let bytes = self
                    .k
                    .emit::<u64>("mul.wide.s32", vec![i.operand(), size_operand]);
                self.k
                    .emit::<u64>("add.s64", vec![base, bytes.operand()])
                    .register()
            }
            (Index::Wide(i), true) => {
                let bytes = i * size;
                self.k
                    .emit::<u64>("add.s64", vec![base, bytes.operand()])
                    .register()
            }
            (index, _) => {
                let i = match index {
                    Index::U32(i) => i,
                    Index::I32(i) => i.relabel(),
                    Index::Wide(i) => i.cast::<u32>(),
                    Index::Known(n) => self.k.c(n as u32),
                };
                if size == 1 {
                    let operands = vec![i.operand(), base];
                    self.k.emit::<u32>("add.s32", operands).register()
                } else {
                    let operands = vec![i.operand(), size_operand, base];
                    self.k.emit::<u32>("mad.lo.s32", operands).register()
                }
            }
        };
        Ptr {
            base: Base::Reg(reg),
            ..self
        }
    }

    /// The base without the constant offset, in a register.
    #[track_caller]
    fn base_register(self) -> Reg {
        match self.base {
            Base::Reg(reg) => reg,
            Base::Shared(id) => self.k.rec.shared_base(id, Location::caller()),
            Base::Param(_) | Base::Local(_) => {
                let reg = self.k.rec.reg(Class::B64);
                self.k.rec.prologue_op(
                    "mov.u64",
                    vec![reg.into(), Opnd::AddressOf(self.base, 0)],
                    Location::caller(),
                );
                reg
            }
        }
    }

    /// The whole address in a register: 32 bits for shared memory, 64 for the
    /// others.
    #[track_caller]
    pub(crate) fn address_register(self) -> Reg {
        if self.offset == 0 {
            return self.base_register();
        }
        if let (Base::Shared(_), false) = (self.base, S::WIDE) {
            let address = Opnd::AddressOf(self.base, self.offset);
            return self.k.emit::<u32>("mov.u32", vec![address]).register();
        }
        let operands = vec![Opnd::Reg(self.base_register()), number(self.offset)];
        if S::WIDE {
            self.k.emit::<u64>("add.s64", operands).register()
        } else {
            self.k.emit::<u32>("add.s32", operands).register()
        }
    }

    /// As the address of an instruction.
    pub(crate) fn operand(self) -> Opnd {
        Opnd::Address(self.base, self.offset)
    }

    /// The same address, pointing to another type.
    #[must_use]
    pub fn cast<U: Storable>(self) -> Ptr<'k, S, U> {
        Ptr::new(self.k, self.base, self.offset)
    }

    /// Reads it.
    #[track_caller]
    pub fn load(self) -> Val<'k, T> {
        self.load_cached(LoadCache::Default)
    }

    /// Reads it, with a cache hint.
    #[track_caller]
    pub fn load_cached(self, cache: LoadCache) -> Val<'k, T> {
        let opcode = format!("{}.{}", load_name::<S>(cache), T::KIND.memory());
        self.k.emit::<T>(opcode, vec![self.operand()])
    }

    /// Writes it.
    #[track_caller]
    pub fn store(self, value: impl IntoVal<'k, T>) {
        self.store_cached(StoreCache::Default, value);
    }

    /// Writes it, with a cache hint.
    #[track_caller]
    pub fn store_cached(self, cache: StoreCache, value: impl IntoVal<'k, T>) {
        let value = value.into_val(&self.k).operand();
        let opcode = format!("{}.{}", store_name::<S>(cache), T::KIND.memory());
        self.k.effect(opcode, vec![self.operand(), value]);
    }

    /// Reads it, applies `change`, and writes the result.
    #[track_caller]
    pub fn update(self, change: impl FnOnce(Val<'k, T>) -> Val<'k, T>) {
        self.store(change(self.load()));
    }

    /// Reads `N` neighbours in one instruction. The address must be a multiple
    /// of the `N` elements' size; more than 16 bytes does not compile.
    #[track_caller]
    pub fn load_vec<const N: usize>(self) -> [Val<'k, T>; N] {
        const { vector_fits(N, T::BYTES) }
        self.load_vec_as(load_name::<S>(LoadCache::Default))
    }

    /// Reads `N` neighbours in one instruction, with a cache hint.
    #[track_caller]
    pub fn load_vec_cached<const N: usize>(self, cache: LoadCache) -> [Val<'k, T>; N] {
        const { vector_fits(N, T::BYTES) }
        self.load_vec_as(load_name::<S>(cache))
    }

    #[track_caller]
    pub(crate) fn load_vec_as<const N: usize>(self, name: String) -> [Val<'k, T>; N] {
        let regs: [Reg; N] = std::array::from_fn(|_| self.k.rec.reg(T::KIND.class()));
        let lanes = Opnd::Vector(regs.iter().map(|&reg| reg.into()).collect());
        self.k.effect(
            format!("{name}.v{N}.{}", T::KIND.memory()),
            vec![lanes, self.operand()],
        );
        regs.map(|reg| Val::from_reg(self.k, reg))
    }

    /// Writes `N` neighbours in one instruction. The address must be a multiple
    /// of the `N` elements' size; more than 16 bytes does not compile.
    #[track_caller]
    pub fn store_vec<const N: usize>(self, values: [Val<'k, T>; N]) {
        const { vector_fits(N, T::BYTES) }
        self.store_vec_as(StoreCache::Default, values);
    }

    /// Writes `N` neighbours in one instruction, with a cache hint.
    #[track_caller]
    pub fn store_vec_cached<const N: usize>(self, cache: StoreCache, values: [Val<'k, T>; N]) {
        const { vector_fits(N, T::BYTES) }
        self.store_vec_as(cache, values);
    }

    #[track_caller]
    fn store_vec_as<const N: usize>(self, cache: StoreCache, values: [Val<'k, T>; N]) {
        let lanes = Opnd::Vector(values.iter().map(|v| v.operand()).collect());
        self.k.effect(
            format!("{}.v{N}.{}", store_name::<S>(cache), T::KIND.memory()),
            vec![self.operand(), lanes],
        );
    }
}

/// Stands first in every public function that has lanes: the compiler names the line that called
/// the function whose constant fails, and that is then the user's.
pub(crate) const fn vector_fits(lanes: usize, bytes: u32) {
    assert!(
        lanes == 2 || lanes == 4,
        "a vector access has 2 or 4 lanes: take several, or for eight halves four pairs, \
         `p.cast::<F16x2>().load_vec::<4>()`"
    );
    assert!(
        lanes as u32 * bytes <= 16,
        "a vector access moves at most 16 bytes: use fewer lanes or packed halves"
    );
}

fn load_name<S: Space>(cache: LoadCache) -> String {
    match cache {
        LoadCache::Default => format!("ld.{}", S::NAME),
        LoadCache::Volatile => format!("ld.volatile.{}", S::NAME),
        LoadCache::L2 => format!("ld.{}.cg", S::NAME),
        LoadCache::Streaming => format!("ld.{}.cs", S::NAME),
    }
}

fn store_name<S: Space>(cache: StoreCache) -> String {
    match cache {
        StoreCache::Default => format!("st.{}", S::NAME),
        StoreCache::Volatile => format!("st.volatile.{}", S::NAME),
        StoreCache::L2 => format!("st.{}.cg", S::NAME),
        StoreCache::Streaming => format!("st.{}.cs", S::NAME),
    }
}

impl<'k, T: Storable> Ptr<'k, Global, T> {
    /// Reads through the read-only path: nothing may write it while the kernel
    /// runs.
    #[track_caller]
    pub fn load_readonly(self) -> Val<'k, T> {
        self.k.emit::<T>(
            format!("ld.global.nc.{}", T::KIND.memory()),
            vec![self.operand()],
        )
    }

    /// Reads `N` neighbours through the read-only path.
    #[track_caller]
    pub fn load_vec_readonly<const N: usize>(self) -> [Val<'k, T>; N] {
        const { vector_fits(N, T::BYTES) }
        self.load_vec_as("ld.global.nc".into())
    }

    /// Prefetches the line into L2.
    #[track_caller]
    pub fn prefetch(self) {
        self.k.effect("prefetch.global.L2", vec![self.operand()]);
    }

    /// A pointer from an address computed as a number.
    ///
    /// The caller guarantees that it is valid; the simulator checks accesses.
    pub fn from_address(address: Val<'k, u64>) -> Ptr<'k, Global, T> {
        let reg = address.register();
        Ptr::new(address.k, Base::Reg(reg), 0)
    }

    /// The address as a number.
    #[track_caller]
    pub fn address(self) -> Val<'k, u64> {
        Val::from_reg(self.k, self.address_register())
    }
}

impl<'k, T: Storable> Ptr<'k, Shared, T> {
    /// The address as a number, counted in this block's shared memory.
    #[track_caller]
    pub fn address(self) -> Val<'k, u32> {
        Val::from_reg(self.k, self.address_register())
    }

    /// A pointer from an address computed as a number, such as one that was
    /// swizzled.
    pub fn from_address(address: Val<'k, u32>) -> Ptr<'k, Shared, T> {
        let reg = address.register();
        Ptr::new(address.k, Base::Reg(reg), 0)
    }
}
