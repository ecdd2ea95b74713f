//! Fragments that are loaded one step ahead of the multiplications that use
//! them.
//!
//! A tensor core waits for `ldmatrix` unless the loads of the next step are
//! under way while this step multiplies. The assembler does that by itself only
//! as far as it thinks registers allow, and not across a barrier. Here the order is explicit
//! (software pipelining): the fragments of a stage's next part are loaded before this part is
//! multiplied; those of the next stage's first part are loaded after the barrier that makes it
//! readable, and before this stage's last part is multiplied.
//!
//! ```
//! # use heist_builder::*;
//! # kernel_params! { pub struct Args { a: Global<f16>, b: Global<f16>, out: Global<f32>, k: u32 } }
//! # KernelSpec::<Args>::new("k").block(32).build(Arch::SM_80, |k, args| {
//! let sums = WarpTile::zero(k, 1, 2);
//! k.copy_pipeline::<3, _>((
//!     TileSpec::<f16>::new("a", 16, 32, TileLayout::Swizzled),
//!     TileSpec::<f16>::new("b", 16, 32, TileLayout::Swizzled),
//! ))
//! .run_ahead(
//!     args.k / 32,
//!     2, // parts of a stage: 32 deep, in steps of 16
//!     |step, (a, b)| {
//!         a.copy_all(args.a.at(step * 32), args.k);
//!         b.copy_all(args.b.at(step * 32), args.k);
//!     },
//!     |(a, b), part| (vec![a.a_rows(0).fragment(0, part)], b.b_rows(0).fragments(0, part).to_vec()),
//!     |(left, right)| sums.mma(left, right),
//! );
//! # sums.each_pair(|row, col, pair| args.out.at(row * 16 + col).store_vec(pair));
//! # }).unwrap();
//! ```

use crate::cp_async::{CopyPipeline, StageSpec};
use crate::emit::Reg;
use crate::mma::{FragmentA, FragmentB, MmaInput};
use crate::scalar::Scalar;
use crate::value::{IntoVal, Val};
use std::panic::Location;

/// Loop-carried registers: fragments, and lists and pairs of them.
pub trait Carried<'k>: Sized {
    /// Calls `each` with every register and the type suffix of its `mov`, and returns the same with
    /// the registers that `each` returned.
    #[doc(hidden)]
    fn map(&self, each: &mut dyn FnMut(Reg, &'static str) -> Reg) -> Self;
}

impl<'k, T: MmaInput> Carried<'k> for FragmentA<'k, T> {
    fn map(&self, each: &mut dyn FnMut(Reg, &'static str) -> Reg) -> Self {
        FragmentA {
            regs: self.regs.map(|value| moved(value, each)),
        }
    }
}

impl<'k, T: MmaInput> Carried<'k> for FragmentB<'k, T> {
    fn map(&self, each: &mut dyn FnMut(Reg, &'static str) -> Reg) -> Self {
        FragmentB {
            regs: self.regs.map(|value| moved(value, each)),
        }
    }
}

fn moved<'k, T: Scalar>(
    value: Val<'k, T>,
    each: &mut dyn FnMut(Reg, &'static str) -> Reg,
) -> Val<'k, T> {
    Val::from_reg(value.k, each(value.register(), T::KIND.bits()))
}

impl<'k, F: Carried<'k>> Carried<'k> for Vec<F> {
    fn map(&self, each: &mut dyn FnMut(Reg, &'static str) -> Reg) -> Self {
        self.iter().map(|one| one.map(each)).collect()
    }
}

impl<'k, A: Carried<'k>, B: Carried<'k>> Carried<'k> for (A, B) {
    fn map(&self, each: &mut dyn FnMut(Reg, &'static str) -> Reg) -> Self {
        (self.0.map(each), self.1.map(each))
    }
}

impl<'k, S: StageSpec> CopyPipeline<'k, S> {
    /// Runs `steps` steps like [`run`](CopyPipeline::run), with each stage
    /// consumed in `parts` parts: `load(stage, part)` loads what a part works
    /// on, one part ahead, and `work` works on it. All threads of the block
    /// take part.
    #[track_caller]
    pub fn run_ahead<F: Carried<'k>>(
        self,
        steps: impl IntoVal<'k, u32>,
        parts: u32,
        fill: impl Fn(Val<'k, u32>, S::Filling<'k>),
        load: impl Fn(S::Ready<'k>, u32) -> F,
        work: impl Fn(&F),
    ) {
        let k = self.k;
        k.asked_here();
        let steps = steps.into_val(&k);
        let stages = self.stages;
        let parts = parts.max(1);
        let turn = |stage: Val<'k, u32>| {
            let after = stage + 1;
            after.eq(stages).select(0u32, after)
        };
        let ready = |stage: Val<'k, u32>| self.spec.ready(self.memory, stage);
        let arrived = || {
            k.wait_copies(stages - 2);
            // Everybody's copies have arrived, and everybody has loaded from the
            // stage that is filled next.
            k.sync();
        };
        k.if_(steps.gt(0u32), || {
            k.comment(&format!("fill {} of {stages} stages", stages - 1));
            for index in 0..stages - 1 {
                let stage = self.spec.filling(self.memory, k.c(index));
                k.if_(k.c(index).lt(steps), || fill(k.c(index), stage));
                k.commit_copies();
            }
            let (to_fill, to_read) = (k.var(stages - 1), k.var(0u32));
            arrived();
            let place = Location::caller();
            let mut carried = Vec::new();
            let first = load(ready(k.c(0)), 0).map(&mut |from, bits| {
                let to = k.rec.reg_like(from);
                k.rec
                    .op(format!("mov.{bits}"), vec![to.into(), from.into()], place);
                carried.push(to);
                to
            });
            k.comment("main loop");
            k.for_range(0, steps, |step| {
                let read = to_read.get();
                let mut now = first.map(&mut |reg, _| reg);
                let fill_next = || {
                    let stage = to_fill.get();
                    let ahead = step + (stages - 1);
                    let filling = self.spec.filling(self.memory, stage);
                    k.if_(ahead.lt(steps), || fill(ahead, filling));
                    k.commit_copies();
                    to_fill.set(turn(stage));
                };
                if parts == 1 {
                    // With two stages, this fills the very one that is next.
                    fill_next();
                }
                for part in 0..parts {
                    let next = if part + 1 < parts {
                        load(ready(read), part + 1)
                    } else {
                        arrived();
                        // There is no stage after the last: load this one's again, unused.
                        let more = (step + 1).lt(steps);
                        let after = more.select(turn(read), read);
                        to_read.set(after);
                        load(ready(after), 0)
                    };
                    if part == 0 && parts > 1 {
                        // After the loads: the assembler moves no load from shared memory across a
                        // copy into it.
                        fill_next();
                    }
                    work(&now);
                    now = next;
                }
                let mut to = carried.iter();
                now.map(&mut |from, bits| {
                    if let Some(&to) = to.next() {
                        k.rec
                            .op(format!("mov.{bits}"), vec![to.into(), from.into()], place);
                    }
                    from
                });
            });
            k.wait_copies(0);
            k.sync();
        });
    }
}
