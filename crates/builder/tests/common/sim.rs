//! Running built kernels: on the simulated GPU with all checks on, or, with
//! `HEIST_DEVICE=gpu` in the environment, the same runs on the real one.
#![allow(dead_code, reason = "each test file uses a part of it")]

use heist_builder::{Arch, BuiltKernel, Passed};
use heist_gpu::{Gpu, PtxText, RunOptions};
use heist_launch::element::Element;
use heist_launch::{Arg, Arguments, Launch, NamedBuffer, Outcome};
use heist_sim::{Device, Options, Program};

/// A run to be made.
pub(crate) struct Run<'a, A> {
    /// The kernel.
    pub(crate) kernel: &'a BuiltKernel<A>,
    /// The simulated device.
    pub(crate) device: &'a str,
    /// Blocks of the grid.
    pub(crate) grid: [u32; 3],
    /// Its parameters.
    pub(crate) passed: Vec<Passed<Arg>>,
    /// Buffers that tensor maps refer to.
    pub(crate) buffers: Vec<NamedBuffer>,
    /// How to simulate.
    pub(crate) options: Options,
}

/// Runs a kernel; anything that the simulator finds fails the test. `None`,
/// with a line that says so, where the real GPU can't run the kernel.
pub(crate) fn run<A>(
    kernel: &BuiltKernel<A>,
    device: &str,
    grid: [u32; 3],
    passed: Vec<Passed<Arg>>,
) -> Option<Outcome> {
    Run {
        kernel,
        device,
        grid,
        passed,
        buffers: Vec::new(),
        options: Options::default(),
    }
    .run()
}

impl<A> Run<'_, A> {
    /// Runs it, as [`run`] does.
    pub(crate) fn run(self) -> Option<Outcome> {
        let info = &self.kernel.launch;
        let mut launch = Launch::new(self.grid, info.block).dynamic_shared(info.dynamic_shared);
        if let Some(cluster) = info.cluster {
            launch = launch.cluster(cluster);
        }
        let params = self.passed.into_iter().map(|one| match one {
            Passed::Number(number) => Arg::Bytes(number.bytes),
            Passed::Buffer { data, .. } => data,
        });
        let mut arguments = Arguments::new(params);
        arguments.buffers = self.buffers;
        let text = heist_ptx::print(&self.kernel.module);
        if std::env::var_os("HEIST_DEVICE").is_some_and(|device| device == "gpu") {
            return on_gpu(&info.entry, info.arch, text, &launch, &arguments);
        }
        Some(simulated(
            &info.entry,
            self.device,
            text,
            &launch,
            &arguments,
            &self.options,
        ))
    }
}

fn simulated(
    entry: &str,
    device: &str,
    text: String,
    launch: &Launch,
    arguments: &Arguments,
    options: &Options,
) -> Outcome {
    // Through text, so that a finding can show its line.
    let source = heist_ptx::Source::new(entry, text);
    let module = heist_ptx::parse(&source).unwrap_or_else(|errors| panic!("{errors:?}"));
    let program = Program::new(module).unwrap_or_else(|errors| panic!("{errors:#?}"));
    let device = Device::named(device).unwrap_or_else(|error| panic!("{error:?}"));
    let told = |findings: &[heist_ptx::Diagnostic]| -> String {
        findings
            .iter()
            .map(|finding| {
                let at = source.position(finding.span);
                let (line, notes) = (source.line(at.line), finding.notes.join("; "));
                format!("{finding}\n  {}: {line}\n  {notes}\n", at.line)
            })
            .collect()
    };
    let report = program
        .run(&device, entry, launch, arguments, options)
        .unwrap_or_else(|errors| panic!("{}", told(&errors)));
    assert!(
        report.diagnostics.is_empty(),
        "{}",
        told(&report.diagnostics)
    );
    report.outcome
}

fn on_gpu(
    entry: &str,
    arch: Arch,
    text: String,
    launch: &Launch,
    arguments: &Arguments,
) -> Option<Outcome> {
    let gpu = Gpu::open(0).unwrap_or_else(|error| panic!("HEIST_DEVICE=gpu: {error}"));
    let capability = gpu.info().capability;
    let name = format!("sm_{}{}", capability.major, capability.minor);
    let here: Arch = name.parse().unwrap_or_else(|error| panic!("{error}"));
    if !arch.runs_on(here) {
        println!("skipped: {entry} is built for {arch}, and this GPU is {here}");
        return None;
    }
    let text = PtxText::new(entry, text);
    let run = gpu
        .run(&text, entry, launch, arguments, &RunOptions::default())
        .unwrap_or_else(|error| panic!("{entry}: {error}"));
    Some(run.outcome)
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
