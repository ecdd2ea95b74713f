//! Running built kernels on the simulated GPU with all checks on.

use heist_build::{BuiltKernel, Passed};
use heist_launch::element::Element;
use heist_launch::{Arg, Arguments, Launch};
use heist_sim::{Device, Options, Program, Report};

/// Runs a kernel; anything that the simulator finds fails the test.
pub(crate) fn run<A>(
    kernel: &BuiltKernel<A>,
    device: &str,
    grid: [u32; 3],
    passed: Vec<Passed<Arg>>,
) -> Report {
    run_with(kernel, device, grid, passed, &Options::default())
}

/// Runs a kernel with options of its own.
pub(crate) fn run_with<A>(
    kernel: &BuiltKernel<A>,
    device: &str,
    grid: [u32; 3],
    passed: Vec<Passed<Arg>>,
    options: &Options,
) -> Report {
    // Through text, so that a finding can show its line.
    let text = heist_ptx::print(&kernel.module);
    let source = heist_ptx::Source::new(&kernel.launch.entry, text);
    let module = heist_ptx::parse(&source).unwrap_or_else(|errors| panic!("{errors:?}"));
    let program = Program::new(module).unwrap_or_else(|errors| panic!("{errors:#?}"));
    let device = Device::named(device).unwrap_or_else(|error| panic!("{error:?}"));
    let mut launch =
        Launch::new(grid, kernel.launch.block).dynamic_shared(kernel.launch.dynamic_shared);
    if let Some(cluster) = kernel.launch.cluster {
        launch = launch.cluster(cluster);
    }
    let params = passed.into_iter().map(|one| match one {
        Passed::Number(number) => Arg::Bytes(number.bytes),
        Passed::Buffer { data, .. } => data,
    });
    let arguments = Arguments::new(params);
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
        .run(&device, &kernel.launch.entry, &launch, &arguments, options)
        .unwrap_or_else(|errors| panic!("{}", told(&errors)));
    assert!(
        report.diagnostics.is_empty(),
        "{}",
        told(&report.diagnostics)
    );
    report
}

/// The buffer that parameter `index` brought, after the run.
pub(crate) fn output<T: Element>(report: &Report, index: usize) -> Vec<T> {
    report
        .outcome
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
