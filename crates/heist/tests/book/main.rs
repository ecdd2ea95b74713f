//! The programs of the book, each run on a simulated GPU with every check on.
//!
//! What stands between `// book: begin` and `// book: end` is in a page of `docs`, word for
//! word: `cargo xtask book` writes it there, and the tests compare.

mod chained_scan;
mod cheatsheet;
mod compact;
mod edit_distance;
mod gemm;
mod histogram;
mod layer_norm;
mod long_top_k;
mod mistakes;
mod pipelined_softmax;
mod runs;
mod saxpy;
mod scan;
mod segmented_scan;
mod softmax;
mod sort;
mod sparse;
mod stencil;
mod sum;
mod top_k;
mod transpose;
mod unit_rows;
mod window_max;

use heist::builder::{Arch, BuildError, KernelParams};
use heist::launch::Arg;
use heist::launch::element::Element;
use heist::run::{Device, Settings};
use heist::sched::TiledKernel;
use heist::tiled::{self, TiledRun};

/// Builds a kernel for a simulated GPU and runs it; anything that is found fails.
fn run<A: KernelParams>(
    kernel: impl Fn(Arch) -> Result<TiledKernel<A>, BuildError>,
    own: A::With<Arg>,
) -> TiledRun {
    let device = Device::open("sim:h200".parse().expect("a device")).expect("it is simulated");
    let kernel = kernel(device.arch().expect("known")).expect("it builds");
    tiled::run(&device, &kernel, own, &Settings::default())
        .unwrap_or_else(|error| panic!("{error}"))
}

fn output<T: Element>(run: &TiledRun, name: &str) -> Vec<T> {
    let buffer = run
        .output(name)
        .unwrap_or_else(|| panic!("no output {name}"));
    buffer.to_vec::<T>().expect("of that type")
}

/// Numbers from -1 to 1 that are the same every time.
fn numbers(count: usize) -> Vec<f32> {
    let mut random = fastrand::Rng::with_seed(7);
    (0..count).map(|_| random.f32() * 2.0 - 1.0).collect()
}

fn assert_close(got: &[f32], wanted: &[f32]) {
    assert_eq!(got.len(), wanted.len());
    for (at, (got, wanted)) in got.iter().zip(wanted).enumerate() {
        let far = (got - wanted).abs() > 1e-5 + 1e-5 * wanted.abs();
        assert!(!far, "element {at}: {got} instead of {wanted}");
    }
}
