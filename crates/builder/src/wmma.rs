//! WMMA: 16x16x16 multiplications whose fragment layout is the hardware's own.
//!
//! Simpler than [`mma.sync`](crate::Accumulator), but the position of an element in a fragment is
//! unknown: fragments are loaded and stored whole. They load from shared or global memory; a
//! pointer into any other space does not compile.

use crate::emit::{Opnd, Reg};
use crate::kernel::Kernel;
use crate::pointer::{FragmentSpace, Ptr};
use crate::scalar::Half;
use crate::value::{IntoVal, Val, Var};
use heist_ptx::arch::Feature;
use std::marker::PhantomData;

/// How a matrix lies in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MatrixOrder {
    /// Row after row.
    Rows,
    /// Column after column.
    Columns,
}

impl MatrixOrder {
    fn as_str(self) -> &'static str {
        match self {
            MatrixOrder::Rows => "row",
            MatrixOrder::Columns => "col",
        }
    }
}

/// The left (16 x 16) matrix of a multiplication.
#[derive(Clone, Debug)]
pub struct WmmaA<'k, H> {
    regs: Vec<Reg>,
    order: MatrixOrder,
    of: PhantomData<(Kernel<'k>, H)>,
}

/// The right (16 x 16) matrix of a multiplication.
#[derive(Clone, Debug)]
pub struct WmmaB<'k, H> {
    regs: Vec<Reg>,
    order: MatrixOrder,
    of: PhantomData<(Kernel<'k>, H)>,
}

/// A half that WMMA multiplies, and how many registers its fragment takes.
pub trait WmmaInput: Half {
    #[doc(hidden)]
    const REGISTERS: usize;
}
impl WmmaInput for half::f16 {
    const REGISTERS: usize = 8;
}
impl WmmaInput for half::bf16 {
    const REGISTERS: usize = 4;
}

#[track_caller]
fn load<'k, S: FragmentSpace, H: WmmaInput>(
    which: &str,
    at: Ptr<'k, S, H>,
    order: MatrixOrder,
    pitch: Val<'k, u32>,
) -> Vec<Reg> {
    let k = at.kernel();
    k.require(Feature::WmmaBf16);
    let regs: Vec<Reg> = (0..H::REGISTERS)
        .map(|_| k.rec.reg(crate::scalar::Class::B32))
        .collect();
    let (order, space, ty) = (order.as_str(), S::NAME, H::NAME);
    k.effect(
        format!("wmma.load.{which}.sync.aligned.{order}.m16n16k16.{space}.{ty}"),
        vec![vector(&regs), at.operand(), pitch.operand()],
    );
    regs
}

fn vector(regs: &[Reg]) -> Opnd {
    Opnd::Vector(regs.iter().map(|&reg| reg.into()).collect())
}

impl<'k, H: WmmaInput> WmmaA<'k, H> {
    /// Loads it from shared or global memory; rows (or columns) are `pitch`
    /// elements apart.
    #[track_caller]
    pub fn load<S: FragmentSpace>(
        at: Ptr<'k, S, H>,
        order: MatrixOrder,
        pitch: impl IntoVal<'k, u32>,
    ) -> Self {
        let pitch = pitch.into_val(&at.kernel());
        WmmaA {
            regs: load("a", at, order, pitch),
            order,
            of: PhantomData,
        }
    }
}

impl<'k, H: WmmaInput> WmmaB<'k, H> {
    /// Loads it from shared or global memory; rows (or columns) are `pitch`
    /// elements apart.
    #[track_caller]
    pub fn load<S: FragmentSpace>(
        at: Ptr<'k, S, H>,
        order: MatrixOrder,
        pitch: impl IntoVal<'k, u32>,
    ) -> Self {
        let pitch = pitch.into_val(&at.kernel());
        WmmaB {
            regs: load("b", at, order, pitch),
            order,
            of: PhantomData,
        }
    }
}

/// An accumulator of 16 x 16 in an opaque layout.
#[derive(Clone, Copy, Debug)]
pub struct WmmaSums<'k> {
    sums: [Var<'k, f32>; 8],
}

impl<'k> WmmaSums<'k> {
    /// All zero.
    #[track_caller]
    pub fn zero(k: &Kernel<'k>) -> WmmaSums<'k> {
        k.asked_here();
        WmmaSums {
            sums: [(); 8].map(|()| k.var(0.0f32)),
        }
    }

    fn operand(&self) -> Opnd {
        Opnd::Vector(self.sums.iter().map(|sum| sum.reg.into()).collect())
    }

    /// Adds the product of `a` and `b`.
    #[track_caller]
    pub fn mma<H: WmmaInput>(&self, a: &WmmaA<'k, H>, b: &WmmaB<'k, H>) {
        let (left, right) = (a.order.as_str(), b.order.as_str());
        let opcode = if H::NAME == "f16" {
            format!("wmma.mma.sync.aligned.{left}.{right}.m16n16k16.f32.f32")
        } else {
            format!("wmma.mma.sync.aligned.{left}.{right}.m16n16k16.f32.bf16.bf16.f32")
        };
        self.sums[0].k.effect(
            opcode,
            vec![
                self.operand(),
                vector(&a.regs),
                vector(&b.regs),
                self.operand(),
            ],
        );
    }

    /// Changes every element: to scale, to clamp.
    #[track_caller]
    pub fn map(&self, change: impl Fn(Val<'k, f32>) -> Val<'k, f32>) {
        for sum in self.sums {
            sum.set(change(sum.get()));
        }
    }

    /// Stores the block to shared or global memory.
    #[track_caller]
    pub fn store<S: FragmentSpace>(
        &self,
        at: Ptr<'k, S, f32>,
        order: MatrixOrder,
        pitch: impl IntoVal<'k, u32>,
    ) {
        let k = at.kernel();
        let pitch = pitch.into_val(&k);
        let (order, space) = (order.as_str(), S::NAME);
        k.effect(
            format!("wmma.store.d.sync.aligned.{order}.m16n16k16.{space}.f32"),
            vec![at.operand(), self.operand(), pitch.operand()],
        );
    }
}
