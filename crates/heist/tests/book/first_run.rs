//! A child of `saxpy`, whose program it runs.

use super::{Saxpy, saxpy};
use crate::numbers;
use heist::launch::Arg;
// book: begin
use heist::run::{Device, Settings};
use heist::tiled;

fn run_saxpy(x: &[f32], y: &[f32]) -> Result<Vec<f32>, Box<dyn std::error::Error>> {
    let device = Device::open("sim:h200".parse()?)?; // or "gpu"
    let kernel = saxpy(device.arch()?)?;
    let own = Saxpy {
        x: Arg::input(x),
        y: Arg::in_out(y),
        a: 2.0,
        n: 1000,
    };
    let run = tiled::run(&device, &kernel, own, &Settings::default())?;
    let y = run.output("y").and_then(|y| y.to_vec::<f32>());
    Ok(y.ok_or("the kernel gave nothing back")?)
}
// book: end

#[test]
fn a_program_runs_it() {
    let (x, y) = (numbers(1000), vec![0.5f32; 1000]);
    let wanted: Vec<f32> = x.iter().map(|x| x.mul_add(2.0, 0.5)).collect();
    assert_eq!(run_saxpy(&x, &y).expect("it runs"), wanted);
}
