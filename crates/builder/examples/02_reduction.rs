//! The sum of an array: a grid-stride loop of vector loads, shuffles inside a
//! warp, one word of shared memory per warp, one atomic per block.

use heist_builder::*;

kernel_params! {
    /// What `reduce` works on: `n` is a multiple of 4, `sum` starts at zero.
    pub struct Reduce { x: Global<f32>, sum: Global<f32>, n: u32 }
}

/// The kernel for one architecture.
pub fn reduction(arch: Arch) -> Result<BuiltKernel<Reduce>, BuildError> {
    KernelSpec::<Reduce>::new("reduce")
        .block(256)
        .build(arch, |k, args| {
            let start = (k.block().x * k.block_dim().x + k.thread().x) * 4;
            let stride = k.grid_dim().x * (k.threads() * 4);
            let sum = k.var(0.0f32).named("sum");
            k.for_step(start, args.n, stride, |i| {
                let [a, b, c, d] = args.x.at(i).load_vec_readonly::<4>();
                sum.set(sum + ((a + b) + (c + d)));
            });
            let total = sum.get().block_sum();
            k.one_thread(|| args.sum.reduce_add(total));
        })
}

fn main() -> Result<(), BuildError> {
    print!("{}", heist_ptx::print(&reduction(Arch::SM_80)?.module));
    Ok(())
}
