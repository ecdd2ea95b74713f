//! The workloads' kernels.

use super::{FACTOR, PROLOGUE_ADDEND, PROLOGUE_FACTOR, Synthetic, THREADS, Workload};
use heist_builder::{Arch, BuildError, Global, Kernel, Val, With, kernel_params};
use heist_launch::Arg;
use heist_sched::{Schedule, Tiled, TiledKernel};

kernel_params! {
    /// The kernel's parameters.
    pub struct SyntheticArgs {
        /// The steps of each tile.
        costs: Global<u32>,
        /// A number for each thread of each tile.
        input: Global<u32>,
        /// Where it ends.
        output: Global<u32>,
        /// Steps of the prologue.
        prologue: u32,
        /// Where the prologue starts.
        seed: u32,
    }
}

impl Synthetic {
    /// The field of the output among the arguments.
    pub const OUTPUT: &str = "output";

    /// The kernel's own arguments; the output is the field [`Self::OUTPUT`].
    pub fn arguments(&self) -> SyntheticArgs<With<Arg>> {
        SyntheticArgs {
            costs: Arg::input(&self.costs),
            input: Arg::input(self.input()),
            output: Arg::output::<u32>(self.input().len()),
            prologue: self.parameters.prologue,
            seed: self.seed(),
        }
    }
}

/// Builds a workload's kernel.
///
/// # Errors
/// Why the schedule is not possible on `arch`.
pub fn build(
    synthetic: &Synthetic,
    schedule: &Schedule,
    arch: Arch,
) -> Result<TiledKernel<SyntheticArgs>, BuildError> {
    let (workload, shared) = (synthetic.workload, synthetic.parameters.shared);
    let name = workload.as_str().replace('-', "_");
    Tiled::<SyntheticArgs>::new(name, synthetic.tiles())
        .schedule(schedule)
        .block(THREADS)
        .build(arch, |k, args, tiles| {
            // As many blocks as an SM takes: eight of 256 threads.
            k.max_registers(32);
            if shared > 0 {
                k.shared::<u8>("workspace", shared);
            }
            k.comment("the prologue");
            let addend = k.var(args.seed).named("addend");
            k.for_unrolled::<4>(0u32, args.prologue, |_| {
                let next = addend
                    .get()
                    .mul_add(k.c(PROLOGUE_FACTOR), k.c(PROLOGUE_ADDEND));
                addend.set(next);
            });
            let addend = addend.get().named("addend");
            tiles.each(|tile| {
                let number = tile.number();
                let steps = args.costs.at(number).load_readonly().named("steps");
                let at = number * THREADS + k.thread().x;
                let start = args.input.at(at).load_readonly();
                let end = match workload {
                    Workload::DataDependent => search(k, start, addend, steps),
                    _ => chain(k, start, addend, steps),
                };
                args.output.at(at).store(end);
            })
        })
}

/// `steps` times `value * FACTOR + addend`.
fn chain<'k>(
    k: &Kernel<'k>,
    start: Val<'k, u32>,
    addend: Val<'k, u32>,
    steps: Val<'k, u32>,
) -> Val<'k, u32> {
    let value = k.var(start).named("value");
    k.for_unrolled::<4>(0u32, steps, |_| {
        value.set(value.get().mul_add(k.c(FACTOR), addend));
    });
    value.get()
}

/// The same, until the number's high bits are zero: after `expected` steps in the
/// mean, and after eight times as many at the latest.
fn search<'k>(
    k: &Kernel<'k>,
    start: Val<'k, u32>,
    addend: Val<'k, u32>,
    expected: Val<'k, u32>,
) -> Val<'k, u32> {
    let value = k.var(start).named("value");
    let step = k.var(0u32).named("step");
    // `expected` is a power of two: as many high bits as it has below its one.
    let shift = (k.c(32) - (expected - 1).count_ones()).named("shift");
    let limit = expected * 8;
    k.loop_(|flow| {
        value.set(value.get().mul_add(k.c(FACTOR), addend));
        step.set(step.get() + 1);
        // Two conditions to continue, rather than one to stop: the branch can use both as its
        // predicate.
        flow.continue_if((value.get() >> shift).ne(0) & step.get().lt(limit));
        flow.break_();
    });
    value.get()
}
