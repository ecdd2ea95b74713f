//! Jobs on the simulated GPU: everything that the simulator finds is an error.
#![allow(dead_code)] // each test uses a part

use heist_kernels::{Job, Target};
use heist_sim::{Device, Options, Program};

/// A simulated device by its name, `h200`.
pub(crate) fn device(name: &str) -> (Device, Target) {
    let device = Device::named(name).expect("a device");
    let (arch, sms) = (device.gpu().arch, device.gpu().sms);
    (device, Target { arch, sms })
}

/// Runs every step of a job; its buffers then hold the results.
pub(crate) fn run(job: &mut Job, device: &Device, options: &Options) {
    for step in 0..job.steps.len() {
        let arguments = job.arguments(step).expect("a step");
        let what = format!("{}, step {step}", job.name);
        let launch = &job.steps[step];
        let program = Program::new(launch.module.clone())
            .unwrap_or_else(|errors| panic!("{what}: {errors:#?}"));
        let report = program
            .run(device, &launch.entry, &launch.launch, &arguments, options)
            .unwrap_or_else(|errors| panic!("{what}: {errors:#?}"));
        // In a cluster the answer of launch control goes on through the channel,
        // with the policy's decision; that is the other way out that the warning
        // names.
        let found: Vec<_> = report
            .diagnostics
            .iter()
            .filter(|found| found.code != heist_ptx::rule::CLC_PLAIN_IN_CLUSTER)
            .collect();
        assert!(found.is_empty(), "{what}: {:#?}", found.first());
        job.absorb(&report.outcome);
    }
}
