use super::*;
use crate::engine::parallel;
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::time::Duration;

#[test]
fn workers_that_are_late_take_no_more_blocks() {
    let text = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k() { ret; }\n";
    let source = heist_ptx::Source::new("k.ptx", text);
    let program = Program::new(heist_ptx::parse(&source).unwrap()).unwrap();
    let device = Device::named("sim:h200").unwrap();
    let (launch, mut options) = (Launch::new(100_000, 32), Options::default());
    options.budget.wall_ms = 0;
    let executable = program
        .executable("k", &crate::Device::named("h200").unwrap())
        .unwrap();
    let code = &executable.code;
    let plan = Plan::of(&program.module, "k", &device, code, &launch, &options).unwrap();
    let bound = Arguments::default().bind().unwrap();
    let mut machine = program.machine(&device, code, &launch, &bound, &options, &plan);
    machine.started -= Duration::from_secs(1);
    let (next, stop, stirred) = (
        AtomicU32::new(0),
        AtomicBool::new(false),
        AtomicBool::new(false),
    );
    let share = parallel::work(&executable, machine, 100_000, &next, (&stop, &stirred));
    assert!(share.is_none());
    let taken = next.into_inner();
    assert!(taken < 1000, "{taken}");
}
