//! Jobs on the simulated GPU: everything that the simulator finds is an error.
#![allow(dead_code)] // each test uses a part

use heist_kernels::{Job, Step, Target};
use heist_ptx::analysis::{Flow, Globals};
use heist_run::{Device, Program, Settings};
use heist_sched::Schedule;
use std::time::Duration;

/// A simulated device by its name: `h200`, or `sim:h200`.
pub(crate) fn device(name: &str) -> (Device, Target) {
    let name = name.strip_prefix("sim:").unwrap_or(name);
    let name = format!("sim:{name}").parse().expect("a name");
    let device = Device::open(name).expect("it is simulated");
    let (arch, sms) = (device.arch().expect("known"), device.sms());
    (device, Target { arch, sms })
}

/// The same with so many multiprocessors: a small grid then has several waves.
pub(crate) fn small(name: &str, sms: u32) -> (Device, Target) {
    let (device, target) = device(name);
    let Device::Sim(device) = device else {
        unreachable!("it is simulated")
    };
    let gpu = heist_ptx::arch::Gpu {
        sms,
        ..*device.gpu()
    };
    let device = Device::Sim(heist_sim::Device::of(gpu));
    (device, Target { sms, ..target })
}

/// Runs every step of a job; its buffers then hold the results.
pub(crate) fn run(job: &mut Job, device: &Device, settings: &Settings) {
    // A busy machine is no reason to fail.
    let settings = Settings {
        limit: Duration::from_secs(600),
        ..settings.clone()
    };
    for index in 0..job.steps.len() {
        let arguments = job.arguments(index).expect("a step");
        let what = format!("{}, step {index}", job.name);
        let step = &job.steps[index];
        let program = Program::from_module(&*step.entry, &step.module);
        let execution = device
            .inspect(&program, &step.entry, &step.launch, &arguments, &settings)
            .unwrap_or_else(|error| panic!("{what}: {error}"));
        let found = &execution.findings;
        assert!(found.is_empty(), "{what}: {:#?}", found.first());
        job.absorb(&execution.outcome);
    }
}

/// Fails where a launch that may begin before the one before it has ended touches memory before its wait, or reads it by
/// loads of read-only data: those may have been cached before that launch ended. What it brings into the L2 cache it does not read.
pub(crate) fn waits_before_it_touches(step: &Step, what: &str) {
    let constant = step.ptx().contains("ld.global.nc");
    assert!(!constant, "{what}: a load of read-only data");
    waits(step, what);
}

/// The same for one that follows a launch which does wait for all before it: what that one does not write, it may read by loads of
/// read-only data, and at any time.
#[allow(dead_code)] // not in every test
pub(crate) fn waits_before_it_touches_results(step: &Step, what: &str) {
    waits(step, what);
}

/// Along every path, since some blocks may wait in a branch of their own.
fn waits(step: &Step, what: &str) {
    let globals = Globals::of(&step.module);
    let mut functions = step.module.functions();
    let kernel = functions.find(|function| function.name == step.entry);
    let flow = kernel.and_then(|kernel| Flow::new(&globals, kernel));
    let flow = flow.expect("the kernel");
    let waits = |at: usize| flow.ops[at].is("griddepcontrol.wait");
    let does = (0..flow.ops.len()).any(waits);
    assert!(does, "{what}: {} does not wait", step.entry);
    let without_wait = flow.graph.reached(&[0], waits);
    for (op, _) in flow.ops.iter().zip(without_wait).filter(|(_, it)| *it) {
        for early in ["ld.global", "st.global", "atom", "red", "cp.async"] {
            let touches = op.is(early) && !op.has("nc");
            assert!(!touches, "{what}: {early} before the wait");
        }
    }
}

/// Launch control under five policies in clusters of each shape, and the multiprocessors that hold one
/// cluster: what it has besides is stolen.
pub(crate) fn launch_control() -> Vec<(Schedule, u32)> {
    let policies = [
        "clc early greedy grouped(16)",
        "clc late max-steals(1)",
        "clc early every(2)",
        "clc late first-half",
        "clc early time-budget(5us)",
    ];
    let clusters = [("1x1", 1), ("2x1", 2), ("1x2", 2), ("2x2", 4)];
    let each = policies.map(|policy| {
        clusters.map(|(cluster, sms)| {
            let mut schedule: Schedule = policy.parse().expect("a schedule");
            schedule.cluster = cluster.parse().expect("a shape");
            (schedule, sms)
        })
    });
    each.concat()
}

/// One of so many cases with its number, or every case where `HEIST_CASES=all`; the number is the seed
/// of its chaos.
pub(crate) fn few<T>(cases: Vec<T>, one_of: usize) -> Vec<(Settings, T)> {
    let everything = std::env::var_os("HEIST_CASES").is_some_and(|told| told == "all");
    let settings = |seed: usize| Settings {
        seed: seed as u64,
        chaos: true,
        ..Settings::default()
    };
    let cases = cases.into_iter().enumerate();
    let chosen = cases.filter(|(at, _)| everything || at % one_of == 7);
    let chosen: Vec<_> = chosen.map(|(at, case)| (settings(at), case)).collect();
    println!("{} cases", chosen.len());
    chosen
}
