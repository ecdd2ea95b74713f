//! A block that runs its own tile and then those of blocks that have not
//! started, as long as the hardware has some: cluster launch control.
//!
//! The request is a value. It can't be looked at before its wait, a refusal
//! has no coordinates, and after one there is nothing left to ask with.

use heist_builder::*;

kernel_params! {
    /// What `steal` works on: `runs[tile]` counts how often a tile was run.
    pub struct Steal { runs: Global<u32>, by: Global<u32> }
}

/// The kernel for one architecture; the grid has one block per tile along x.
pub fn steal(arch: Arch) -> Result<BuiltKernel<Steal>, BuildError> {
    KernelSpec::<Steal>::new("steal")
        .block(32)
        .build(arch, |k, args| {
            k.one_thread(|| {
                let tile = k.var(k.block().x).named("tile");
                // The first request is on its way while the first tile runs.
                k.clc().submit().steal_loop(|flow, request| {
                    args.runs.at(tile).atomic_add(1);
                    args.by.at(tile).store(k.block().x);
                    let granted = request.wait().granted_or_break(flow);
                    tile.set(granted.first_block().x);
                    granted.release().submit()
                });
            });
        })
}

fn main() -> Result<(), BuildError> {
    print!("{}", heist_ptx::print(&steal(Arch::SM_100)?.module));
    Ok(())
}
