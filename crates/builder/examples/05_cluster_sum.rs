//! Row sums by clusters of blocks: each block sums its share, and the first
//! one reads the others' sums from their shared memory.

use heist_builder::*;

kernel_params! {
    /// What `cluster_sum` works on: rows of `cols` numbers, one cluster each.
    pub struct Rows { x: Global<f32>, sums: Global<f32>, cols: u32 }
}

/// The kernel for one architecture; a cluster of 4 blocks along x per row.
pub fn cluster_sum(arch: Arch) -> Result<BuiltKernel<Rows>, BuildError> {
    KernelSpec::<Rows>::new("cluster_sum")
        .block(128)
        .cluster([4, 1, 1])
        .build(arch, |k, args| {
            let share = k.shared::<f32>("share", 1);
            let row = k.cluster_position().x;
            let first = k.cluster_rank() * k.threads() + k.thread().x;
            let sum = k.var(0.0f32).named("sum");
            k.for_step(first, args.cols, k.cluster_size() * k.threads(), |col| {
                sum.set(sum + args.x.at(row.mul_add(args.cols, col)).load());
            });
            let total = sum.get().block_sum();
            k.one_thread(|| share.at(0).store(total));

            // Everybody's share is written before anybody reads it, and read
            // before anybody leaves.
            k.cluster_sync();
            k.if_((k.cluster_rank() + k.thread().x).eq(0), || {
                let shares: Vec<_> = (0..k.cluster_size())
                    .map(|rank| share.at(0).on(rank).load())
                    .collect();
                let total = shares.into_iter().reduce(|a, b| a + b);
                args.sums.at(row).store(total.unwrap_or(k.c(0.0)));
            });
            k.cluster_sync();
        })
}

fn main() -> Result<(), BuildError> {
    print!("{}", heist_ptx::print(&cluster_sum(Arch::SM_90)?.module));
    Ok(())
}
