//! Instructions that compute each lane from its own registers.

use super::{Cost, Decoded, Decoder};
use crate::access::context::Cx;
use crate::code::{Flow, Pred, PredSrc, Slot};
use crate::engine::executable::Instr;
use crate::lanes::{self, Lane};
use heist_ptx::{Instruction, ScalarType};
use std::marker::PhantomData;

/// A function that is the same for every lane and every warp.
pub(crate) trait Func: Send + Sync + 'static {}
impl<T: Send + Sync + 'static> Func for T {}

// The whole of a step is compiled for wide vectors, so that a result goes from
// the vector registers straight to where it belongs. For machines without them there is one step for
// all functions of the same types, which calls a function lane by lane.

struct Map1<A, R, F>(Slot, Slot, F, PhantomData<fn(A) -> R>);
impl<A: Lane, R: Lane, F: Fn(A) -> R + Func> Instr for Map1<A, R, F> {
    fn step(&self, cx: &mut Cx<'_>) -> Flow {
        lanes::either(
            cx,
            #[inline(always)]
            |cx| map1_lanes(cx, self.0, self.1, &self.2),
            |cx| map1_plain(cx, self.0, self.1, &self.2),
        )
    }
}

#[inline(always)]
fn map1_lanes<A: Lane, R: Lane, F: Fn(A) -> R + ?Sized>(
    cx: &mut Cx<'_>,
    d: Slot,
    a: Slot,
    f: &F,
) -> Flow {
    let a = cx.view::<A>(a);
    let mut out = [R::default(); lanes::LANES];
    for lane in 0..lanes::LANES {
        out[lane] = f(A::of(a[lane]));
    }
    cx.write(d, &out);
    Flow::Next
}

#[inline(never)]
fn map1_plain<A: Lane, R: Lane>(cx: &mut Cx<'_>, d: Slot, a: Slot, f: &dyn Fn(A) -> R) -> Flow {
    map1_lanes(cx, d, a, f)
}

struct Map2<A, B, R, F>(Slot, [Slot; 2], F, PhantomData<fn(A, B) -> R>);
impl<A: Lane, B: Lane, R: Lane, F: Fn(A, B) -> R + Func> Instr for Map2<A, B, R, F> {
    fn step(&self, cx: &mut Cx<'_>) -> Flow {
        lanes::either(
            cx,
            #[inline(always)]
            |cx| map2_lanes(cx, self.0, self.1, &self.2),
            |cx| map2_plain(cx, self.0, self.1, &self.2),
        )
    }
}

#[inline(always)]
fn map2_lanes<A: Lane, B: Lane, R: Lane, F: Fn(A, B) -> R + ?Sized>(
    cx: &mut Cx<'_>,
    d: Slot,
    [a, b]: [Slot; 2],
    f: &F,
) -> Flow {
    let (a, b) = (cx.view::<A>(a), cx.view::<B>(b));
    let mut out = [R::default(); lanes::LANES];
    for lane in 0..lanes::LANES {
        out[lane] = f(A::of(a[lane]), B::of(b[lane]));
    }
    cx.write(d, &out);
    Flow::Next
}

#[inline(never)]
fn map2_plain<A: Lane, B: Lane, R: Lane>(
    cx: &mut Cx<'_>,
    d: Slot,
    sources: [Slot; 2],
    f: &dyn Fn(A, B) -> R,
) -> Flow {
    map2_lanes(cx, d, sources, f)
}

struct Map3<A, B, C, R, F>(Slot, [Slot; 3], F, PhantomData<fn(A, B, C) -> R>);
impl<A: Lane, B: Lane, C: Lane, R: Lane, F: Fn(A, B, C) -> R + Func> Instr for Map3<A, B, C, R, F> {
    fn step(&self, cx: &mut Cx<'_>) -> Flow {
        lanes::either(
            cx,
            #[inline(always)]
            |cx| map3_lanes(cx, self.0, self.1, &self.2),
            |cx| map3_plain(cx, self.0, self.1, &self.2),
        )
    }
}

#[inline(always)]
fn map3_lanes<A: Lane, B: Lane, C: Lane, R: Lane, F: Fn(A, B, C) -> R + ?Sized>(
    cx: &mut Cx<'_>,
    d: Slot,
    [a, b, c]: [Slot; 3],
    f: &F,
) -> Flow {
    let (a, b, c) = (cx.view::<A>(a), cx.view::<B>(b), cx.view::<C>(c));
    let mut out = [R::default(); lanes::LANES];
    for lane in 0..lanes::LANES {
        out[lane] = f(A::of(a[lane]), B::of(b[lane]), C::of(c[lane]));
    }
    cx.write(d, &out);
    Flow::Next
}

#[inline(never)]
fn map3_plain<A: Lane, B: Lane, C: Lane, R: Lane>(
    cx: &mut Cx<'_>,
    d: Slot,
    sources: [Slot; 3],
    f: &dyn Fn(A, B, C) -> R,
) -> Flow {
    map3_lanes(cx, d, sources, f)
}

/// `d = f(a)`.
pub(crate) fn map1<A: Lane, R: Lane>(
    d: Slot,
    a: Slot,
    f: impl Fn(A) -> R + Func,
) -> Box<dyn Instr> {
    Box::new(Map1(d, a, f, PhantomData))
}

/// `d = f(a, b)`.
pub(crate) fn map2<A: Lane, B: Lane, R: Lane>(
    d: Slot,
    sources: [Slot; 2],
    f: impl Fn(A, B) -> R + Func,
) -> Box<dyn Instr> {
    Box::new(Map2(d, sources, f, PhantomData))
}

/// `d = f(a, b, c)`.
pub(crate) fn map3<A: Lane, B: Lane, C: Lane, R: Lane>(
    d: Slot,
    sources: [Slot; 3],
    f: impl Fn(A, B, C) -> R + Func,
) -> Box<dyn Instr> {
    Box::new(Map3(d, sources, f, PhantomData))
}

/// An instruction with whatever surroundings its closure needs.
pub(crate) struct With<F>(pub(crate) F);
impl<F: Fn(&mut Cx<'_>) -> Flow + Func> Instr for With<F> {
    fn step(&self, cx: &mut Cx<'_>) -> Flow {
        (self.0)(cx)
    }
}

/// An instruction as a closure.
pub(crate) fn with(f: impl Fn(&mut Cx<'_>) -> Flow + Func) -> Box<dyn Instr> {
    Box::new(With(f))
}

struct Test2<A, F>(Targets, [Slot; 2], F, PhantomData<fn(A)>);
impl<A: Lane, F: Fn(A, A) -> bool + Func> Instr for Test2<A, F> {
    fn step(&self, cx: &mut Cx<'_>) -> Flow {
        let (a, b) = (cx.view::<A>(self.1[0]), cx.view::<A>(self.1[1]));
        let bits = lanes::wide(
            #[inline(always)]
            || {
                let mut bits = 0;
                for lane in 0..lanes::LANES {
                    bits |= u32::from((self.2)(A::of(a[lane]), A::of(b[lane]))) << lane;
                }
                bits
            },
        );
        self.0.set(cx, bits);
        Flow::Next
    }
}

/// Where a comparison's result goes: `p|q`, perhaps combined with a third.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Targets {
    pub(crate) p: Option<Pred>,
    pub(crate) q: Option<Pred>,
    pub(crate) with: Option<(Combine, PredSrc)>,
}

/// How `setp` combines its result with a predicate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Combine {
    And,
    Or,
    Xor,
}

impl Combine {
    /// The value of the predicate that decides the result alone.
    pub(crate) fn decides(self) -> Option<bool> {
        match self {
            Combine::And => Some(false),
            Combine::Or => Some(true),
            Combine::Xor => None,
        }
    }
}

impl Targets {
    #[inline(always)]
    pub(crate) fn set(self, cx: &mut Cx<'_>, bits: u32) {
        let (p, q) = match self.with {
            None => (bits, !bits),
            Some((how, source)) => {
                let other = cx.pred(source);
                match how {
                    Combine::And => (bits & other, !bits & other),
                    Combine::Or => (bits | other, !bits | other),
                    Combine::Xor => (bits ^ other, !bits ^ other),
                }
            }
        };
        if let Some(pred) = self.p {
            cx.set_pred(pred, p);
        }
        if let Some(pred) = self.q {
            cx.set_pred(pred, q);
        }
    }
}

/// `p|q = f(a, b)`.
pub(crate) fn test2<A: Lane>(
    targets: Targets,
    sources: [Slot; 2],
    f: impl Fn(A, A) -> bool + Func,
) -> Box<dyn Instr> {
    Box::new(Test2(targets, sources, f, PhantomData))
}

/// The registers of `op d, a, ...`. Apart from what depends on the function, and never inlined,
/// because there are hundreds of functions.
#[inline(never)]
fn slots<const N: usize>(
    d: &mut Decoder<'_>,
    i: &Instruction,
    to: ScalarType,
    from: [ScalarType; N],
) -> Decoded<(Slot, [Slot; N])> {
    let operands = super::mods::operands(d, i, N + 1)?;
    let mut sources = [Slot::constant(0); N];
    for ((source, operand), ty) in sources.iter_mut().zip(&operands[1..]).zip(from) {
        *source = d.src(operand, ty)?;
    }
    let target = d.dst(&operands[0], to)?;
    Ok((target, sources))
}

/// Decodes `op d, a` and emits it, all of one type.
pub(crate) fn one<T: Lane>(
    d: &mut Decoder<'_>,
    i: &Instruction,
    ty: ScalarType,
    cost: Cost,
    f: impl Fn(T) -> T + Func,
) -> Decoded<()> {
    one_to::<T, T>(d, i, ty, ty, cost, f)
}

/// Decodes `op d, a` with a result of another type.
pub(crate) fn one_to<A: Lane, R: Lane>(
    d: &mut Decoder<'_>,
    i: &Instruction,
    from: ScalarType,
    to: ScalarType,
    cost: Cost,
    f: impl Fn(A) -> R + Func,
) -> Decoded<()> {
    let (target, [a]) = slots(d, i, to, [from])?;
    d.emit(map1(target, a, f), cost);
    Ok(())
}

/// Decodes `op d, a, b`, all of one type.
pub(crate) fn two<T: Lane>(
    d: &mut Decoder<'_>,
    i: &Instruction,
    ty: ScalarType,
    cost: Cost,
    f: impl Fn(T, T) -> T + Func,
) -> Decoded<()> {
    two_to::<T, T, T>(d, i, [ty, ty, ty], cost, f)
}

/// Decodes `op d, a, b` with types `[d, a, b]`.
pub(crate) fn two_to<A: Lane, B: Lane, R: Lane>(
    d: &mut Decoder<'_>,
    i: &Instruction,
    types: [ScalarType; 3],
    cost: Cost,
    f: impl Fn(A, B) -> R + Func,
) -> Decoded<()> {
    let [to, from @ ..] = types;
    let (target, sources) = slots(d, i, to, from)?;
    d.emit(map2(target, sources, f), cost);
    Ok(())
}

/// Decodes `op d, a, b, c`, all of one type.
pub(crate) fn three<T: Lane>(
    d: &mut Decoder<'_>,
    i: &Instruction,
    ty: ScalarType,
    cost: Cost,
    f: impl Fn(T, T, T) -> T + Func,
) -> Decoded<()> {
    three_to::<T, T, T, T>(d, i, [ty, ty, ty, ty], cost, f)
}

/// Decodes `op d, a, b, c` with types `[d, a, b, c]`.
pub(crate) fn three_to<A: Lane, B: Lane, C: Lane, R: Lane>(
    d: &mut Decoder<'_>,
    i: &Instruction,
    types: [ScalarType; 4],
    cost: Cost,
    f: impl Fn(A, B, C) -> R + Func,
) -> Decoded<()> {
    let [to, from @ ..] = types;
    let (target, sources) = slots(d, i, to, from)?;
    d.emit(map3(target, sources, f), cost);
    Ok(())
}
