//! The fastest schedule of a kernel on a device: measured once, and remembered.
//!
//! ```no_run
//! use heist::auto;
//! use heist::run::{Device, Settings};
//! use heist::kernels::synthetic::{Parameters, Synthetic, Workload, build};
//! use heist::sched::{Effort, Schedule, Tuner};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let device = Device::open("gpu".parse()?)?;
//! let arch = device.arch()?;
//! let work = Synthetic::new(Workload::PowerLaw, Parameters::default());
//! let candidates = Schedule::candidates(arch, &"max-steals(8)".parse()?);
//! let mut tuner = Tuner::remembering(Effort::default(), "tuned.json")?;
//! let fastest = auto::fastest(&device, &Settings::default(), &mut tuner, &candidates,
//!     || work.arguments(), |schedule| build(&work, schedule, arch))?;
//! tuner.save()?;
//! println!("{}", candidates[fastest]);
//! # Ok(()) }
//! ```

use crate::tiled::{Ready, TiledError};
use heist_builder::{BuildError, KernelParams};
use heist_launch::Arg;
use heist_run::{Device, Settings};
use heist_sched::{Schedule, TiledKernel, TuneKey, Tuner};
use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// Which of the candidates is the fastest: the one that the tuner remembers for
/// this kernel, grid and device, or the one that it measures now.
///
/// `own` gives the kernel's own arguments, `build` the kernel of a schedule. A candidate is built
/// and launched once before its first sample: a warm-up. Give a [`Tuner`] with
/// [`Effort::EXACT`](heist_sched::Effort::EXACT) for a simulated device.
///
/// # Errors
/// Why a candidate could not be built or run, and the findings of its run.
pub fn fastest<A: KernelParams>(
    device: &Device,
    settings: &Settings,
    tuner: &mut Tuner,
    candidates: &[Schedule],
    own: impl Fn() -> A::With<Arg>,
    build: impl Fn(&Schedule) -> Result<TiledKernel<A>, BuildError>,
) -> Result<usize, TiledError> {
    let Some(first) = candidates.first() else {
        return Err(TiledError::NoCandidates);
    };
    let kernel = build(first).map_err(TiledError::Build)?;
    let key = TuneKey::new(&kernel.ptx(), kernel.tiles(), &device.label());
    let mut ready: HashMap<usize, (TiledKernel<A>, Ready)> = HashMap::new();
    let chosen = tuner.choose(&key, candidates, |at| {
        let run =
            |(kernel, ready): &(TiledKernel<A>, Ready)| ready.run(device, kernel, own(), settings);
        if let Entry::Vacant(place) = ready.entry(at) {
            let kernel = build(&candidates[at]).map_err(TiledError::Build)?;
            let launch = Ready::new(device, &kernel)?;
            let one = (kernel, launch);
            if device.is_real() {
                run(&one)?;
            }
            place.insert(one);
        }
        run(&ready[&at])?
            .execution
            .elapsed
            .ok_or(TiledError::NoTime)
    });
    chosen?.ok_or(TiledError::NoCandidates)
}
