//! `y = a * x + y`: parameters, an index, a guarded access.
//!
//! `cargo run -p heist-builder --example 01_saxpy` prints the PTX.

use heist_builder::*;

kernel_params! {
    /// What `saxpy` works on.
    pub struct Saxpy { x: Global<f32>, y: Global<f32>, a: f32, n: u32 }
}

/// The kernel for one architecture.
pub fn saxpy(arch: Arch) -> Result<BuiltKernel<Saxpy>, BuildError> {
    KernelSpec::<Saxpy>::new("saxpy")
        .block(256)
        .build(arch, |k, args| {
            let i = k.thread().x + k.block().x * k.block_dim().x;
            let i = i.named("i");
            k.if_(i.lt(args.n), || {
                let x = args.x.at(i).load();
                args.y.at(i).update(|y| x.mul_add(args.a, y));
            });
        })
}

fn main() -> Result<(), BuildError> {
    print!("{}", heist_ptx::print(&saxpy(Arch::SM_80)?.module));
    Ok(())
}
