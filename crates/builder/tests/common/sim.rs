//! Running built kernels: on the simulated GPU with all checks on, or, with
//! `HEIST_DEVICE=gpu` in the environment, the same runs on the real one.
#![allow(dead_code, reason = "each test file uses a part of it")]

use heist_builder::{BuiltKernel, KernelParams};
use heist_launch::element::Element;
use heist_launch::{Arg, Arguments, Launch, NamedBuffer, Outcome};
use heist_run::{Device, DeviceName, Program, Settings};
use std::time::Duration;

/// A run to be made.
pub(crate) struct Run<'a, A: KernelParams> {
    /// The kernel.
    pub(crate) kernel: &'a BuiltKernel<A>,
    /// The simulated device.
    pub(crate) device: &'a str,
    /// Blocks of the grid.
    pub(crate) grid: [u32; 3],
    /// Its parameters.
    pub(crate) args: A::With<Arg>,
    /// Buffers that tensor maps refer to.
    pub(crate) buffers: Vec<NamedBuffer>,
    /// How to run.
    pub(crate) settings: Settings,
}

/// Runs a kernel; anything that the device finds fails the test. `None`,
/// with a line that says so, where the real GPU can't run the kernel.
pub(crate) fn run<A: KernelParams>(
    kernel: &BuiltKernel<A>,
    device: &str,
    grid: [u32; 3],
    args: A::With<Arg>,
) -> Option<Outcome> {
    Run {
        kernel,
        device,
        grid,
        args,
        buffers: Vec::new(),
        settings: Settings::default(),
    }
    .run()
}

impl<A: KernelParams> Run<'_, A> {
    /// Runs it, as [`run`] does.
    pub(crate) fn run(self) -> Option<Outcome> {
        let info = &self.kernel.launch;
        let mut launch = Launch::new(self.grid, info.block).dynamic_shared(info.dynamic_shared);
        if let Some(cluster) = info.cluster {
            launch = launch.cluster(cluster);
        }
        let mut arguments = Arguments::new(A::arguments(self.args));
        arguments.buffers = self.buffers;
        let name = match std::env::var_os("HEIST_DEVICE").is_some_and(|device| device == "gpu") {
            true => DeviceName::Gpu(0),
            false => self.device.parse().expect("a simulated device"),
        };
        let device = Device::open(name).unwrap_or_else(|error| panic!("{name}: {error}"));
        if let (true, Err(why)) = (device.is_real(), device.takes(&info.arch.to_string())) {
            println!("skipped: {}: {why}", info.entry);
            return None;
        }
        // A busy machine is no reason to fail.
        let settings = Settings {
            limit: Duration::from_secs(600),
            ..self.settings
        };
        let program = Program::from_module(info.entry.clone(), &self.kernel.module);
        let execution = device
            .run(&program, &info.entry, &launch, &arguments, &settings)
            .unwrap_or_else(|error| panic!("{error}"));
        Some(execution.outcome)
    }
}

/// The buffer that parameter `index` brought, after the run.
pub(crate) fn output<T: Element>(outcome: &Outcome, index: usize) -> Vec<T> {
    outcome
        .output(index)
        .and_then(|buffer| buffer.to_vec())
        .unwrap_or_else(|| panic!("parameter {index} is no buffer that is read back"))
}

/// Numbers in [-1, 1) that are the same each time.
#[allow(dead_code)]
pub(crate) fn random(seed: u64, count: usize) -> Vec<f32> {
    heist_launch::Buffer::random(heist_launch::ElementType::F32, seed, count)
        .to_vec()
        .unwrap_or_default()
}
