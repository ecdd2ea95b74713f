//! The fastest schedule of a kernel on a device: measured once, and remembered.
//!
//! ```no_run
//! use heist::auto;
//! use heist::device::{Device, Settings};
//! use heist::kernels::synthetic::{Parameters, Synthetic, Workload, build};
//! use heist::sched::{Effort, Schedule, Tuner};
//! use heist::tiled::arch_of;
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let device = Device::open("gpu".parse()?)?;
//! let arch = arch_of(&device)?;
//! let work = Synthetic::new(Workload::PowerLaw, Parameters::default());
//! let candidates = Schedule::candidates(arch, &"max-steals(8)".parse()?);
//! let mut tuner = Tuner::remembering(Effort::default(), "tuned.json")?;
//! let fastest = auto::fastest(&device, &Settings::default(), &mut tuner, &candidates,
//!     || work.arguments(), |schedule| build(&work, schedule, arch))?;
//! tuner.save()?;
//! println!("{}", candidates[fastest]);
//! # Ok(()) }
//! ```

use crate::device::{Device, Settings};
use crate::tiled::{Ready, RunError};
use heist_builder::{BuildError, KernelParams};
use heist_launch::Arg;
use heist_sched::{Schedule, TiledKernel, TuneKey, Tuner};
use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// Which of the candidates is the fastest: the one that the tuner remembers for
/// this kernel, grid and device, or the one that it measures now.
///
/// `own` gives the kernel's own arguments, `build` the kernel of a schedule. A
/// candidate is built and launched once before its first sample, so that what
/// happens once is not in the time. Give a [`Tuner`] with
/// [`Effort::EXACT`](heist_sched::Effort::EXACT) for a simulated device.
///
/// # Errors
/// What kept a candidate from being built or run.
pub fn fastest<A: KernelParams>(
    device: &Device,
    settings: &Settings,
    tuner: &mut Tuner,
    candidates: &[Schedule],
    own: impl Fn() -> Vec<Arg>,
    build: impl Fn(&Schedule) -> Result<TiledKernel<A>, BuildError>,
) -> Result<usize, RunError> {
    let Some(first) = candidates.first() else {
        return Err(RunError::NoCandidates);
    };
    let name = match device {
        Device::Sim(device) => device.to_string(),
        Device::Gpu(gpu) => gpu.info().name.clone(),
    };
    let kernel = build(first).map_err(RunError::Build)?;
    let key = TuneKey::new(&kernel.ptx(), kernel.tiles(), &name);
    let mut ready: HashMap<usize, (TiledKernel<A>, Ready)> = HashMap::new();
    let chosen = tuner.choose(&key, candidates, |at| {
        let run =
            |(kernel, ready): &(TiledKernel<A>, Ready)| ready.run(device, kernel, own(), settings);
        if let Entry::Vacant(place) = ready.entry(at) {
            let kernel = build(&candidates[at]).map_err(RunError::Build)?;
            let launch = Ready::new(device, &kernel)?;
            let one = (kernel, launch);
            if let Device::Gpu(_) = device {
                run(&one)?;
            }
            place.insert(one);
        }
        let report = run(&ready[&at])?;
        if let Some(found) = report.diagnostics.into_iter().next() {
            return Err(RunError::Found(found.message));
        }
        report.elapsed.ok_or(RunError::NoTime)
    });
    chosen?.ok_or(RunError::NoCandidates)
}
