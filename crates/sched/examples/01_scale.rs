//! Scales an array tile by tile: a prologue, a body, a policy, a source.
//!
//! `cargo run -p heist-sched --example 01_scale -- ticket 'max-steals(8)' sm_90a`
//! prints the PTX.

use heist_builder::{Arch, BuildError, Global, kernel_params};
use heist_sched::{AnyPolicy, TileSource, Tiled, TiledKernel};

kernel_params! {
    /// What `scale` works on.
    pub struct Scale { data: Global<f32>, factor: f32, n: u32 }
}

/// The kernel, with 256 numbers in a tile.
pub fn scale(
    source: TileSource,
    policy: AnyPolicy,
    arch: Arch,
) -> Result<TiledKernel<Scale>, BuildError> {
    Tiled::<Scale>::new("scale", 1000)
        .source(source)
        .policy(policy)
        .block(256)
        .locations(false)
        .build(arch, |k, args, tiles| {
            let weight = args.factor * args.factor;
            tiles.each(|tile| {
                let i = tile.x * k.block_dim().x + k.thread().x;
                k.if_(i.lt(args.n), || args.data.at(i).update(|v| v * weight));
            })
        })
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut words = std::env::args().skip(1);
    let source = words.next().unwrap_or("ticket".into()).parse()?;
    let policy = words.next().unwrap_or("greedy".into()).parse()?;
    let arch = words.next().unwrap_or("sm_90a".into());
    let arch = Arch::parse(&arch).ok_or(format!("no architecture {arch}"))?;
    print!("{}", scale(source, policy, arch)?.ptx());
    Ok(())
}
