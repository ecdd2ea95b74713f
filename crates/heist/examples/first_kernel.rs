//! A kernel, checked, and run on a simulated GPU: `cargo run`, or `cargo run -- gpu`.

use heist::builder::{Global, kernel_params};
use heist::launch::Arg;
use heist::run::{Device, Settings};
use heist::sched::{MaxSteals, Tiled};
use heist::tiled;

kernel_params! {
    /// What the kernel is given.
    pub struct Scale { data: Global<f32>, factor: f32, n: u32 }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let name = std::env::args().nth(1).unwrap_or("sim:b200".to_owned());
    let device = Device::open(name.parse()?)?;
    let kernel = Tiled::<Scale>::new("scale", 4) // tiles
        .policy(MaxSteals { limit: 8 })
        .block(256)
        .build(device.arch()?, |k, args, tiles| {
            tiles.each(|tile| {
                let i = tile.x * k.block_dim().x + k.thread().x;
                k.if_(i.lt(args.n), || args.data.at(i).update(|v| v * args.factor));
            })
        })?;
    let numbers: Vec<f32> = (0..1000u16).map(f32::from).collect();
    let own = Scale {
        data: Arg::in_out(&numbers),
        factor: 3.0,
        n: 1000,
    };
    // A run in which anything is found, a race for example, is an error.
    let run = tiled::run(&device, &kernel, own, &Settings::default())?;
    let scaled = run.output("data").and_then(|data| data.to_vec::<f32>());
    let scaled = scaled.ok_or("the kernel gave nothing back")?;
    assert!(
        scaled
            .iter()
            .zip(&numbers)
            .all(|(new, old)| *new == old * 3.0)
    );
    println!(
        "1000 numbers, times three, on {name}: {:?} ...",
        &scaled[..4]
    );
    Ok(())
}
