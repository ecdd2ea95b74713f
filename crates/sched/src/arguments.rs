//! From a kernel's parameter struct to the arguments of a launch, and from a field's
//! name to the buffer that the launch left there.

use crate::hidden::{Scheduled, ScheduledWith};
use crate::plan::Plan;
use crate::tiled::TiledKernel;
use heist_builder::KernelParams;
use heist_launch::{Arg, Arguments, Buffer, BufferRef, Outcome};

impl<A: KernelParams> TiledKernel<A> {
    /// The arguments of a launch: the kernel's own, and the scheduler's behind them.
    ///
    /// The control words are fresh in every call, which is right for a launch
    /// that stands alone; a program with a stream of launches keeps them, with
    /// [`Counters`](crate::Counters).
    ///
    /// ```
    /// use heist_builder::{Arch, Global, kernel_params};
    /// use heist_launch::Arg;
    /// use heist_sched::Tiled;
    /// kernel_params! { pub struct Fill { data: Global<u64>, value: u64 } }
    /// let kernel = Tiled::<Fill>::new("fill", 4)
    ///     .build(Arch::SM_90A, |_, args, tiles| {
    ///         tiles.each(|tile| args.data.at(tile.x).store(args.value))
    ///     })
    ///     .unwrap();
    /// let own = Fill { data: Arg::output::<u64>(4), value: 7 };
    /// let arguments = kernel.arguments(&kernel.plan(8).unwrap(), own);
    /// // A number has the width of its field.
    /// assert_eq!(arguments.params[1], Arg::Bytes(7u64.to_le_bytes().to_vec()));
    /// ```
    pub fn arguments(&self, plan: &Plan, own: A::With<Arg>) -> Arguments {
        Arguments::new(Scheduled::<A>::arguments(ScheduledWith {
            args: own,
            hidden: plan.hidden(),
        }))
    }

    /// The buffer that a field brought to a launch with [`TiledKernel::arguments`],
    /// after the run: `None` for a field that is none, or is not read back.
    pub fn output<'o>(&self, outcome: &'o Outcome, field: &str) -> Option<&'o Buffer> {
        let index = A::layout().iter().position(|param| param.name == field)?;
        outcome.output(BufferRef::Argument(index))
    }
}
