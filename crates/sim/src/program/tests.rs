use super::*;
use crate::engine::parallel;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::time::Duration;

/// Blocks that a worker takes before it gives up; none if it does not.
fn taken_in_vain(body: &str, options: &Options, waited: Duration) -> Option<u32> {
    let text = format!(
        ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k() {{ {body} ret; }}\n"
    );
    let source = heist_ptx::Source::new("k.ptx", text);
    let program = Program::new(heist_ptx::parse(&source).unwrap()).unwrap();
    let device = Device::named("sim:h200").unwrap();
    let launch = Launch::new(100_000, 32);
    let executable = program
        .executable("k", &crate::Device::named("h200").unwrap())
        .unwrap();
    let code = &executable.code;
    let plan = Plan::of(&program.module, "k", &device, code, &launch, options).unwrap();
    let bound = Arguments::default().bind().unwrap();
    let mut machine = program.machine(&device, code, &launch, &bound, options, &plan);
    machine.started -= waited;
    let (next, stop, stirred) = (AtomicU32::new(0), Arc::default(), AtomicBool::new(false));
    let share = parallel::work(&executable, machine, 100_000, &next, (&stop, &stirred));
    share.is_none().then(|| next.into_inner())
}

#[test]
fn workers_that_are_late_take_no_more_blocks() {
    let mut options = Options::default();
    options.budget.wall_ms = 0;
    let taken = taken_in_vain("", &options, Duration::from_secs(1)).unwrap();
    assert!(taken < 1000, "{taken}");
}

#[test]
fn a_worker_that_has_found_something_does_not_wait_for_the_end_of_its_block() {
    // A barrier for 0 threads in a loop that never ends: the run in order has to say so, and needs
    // what is left of the time.
    let body = "again: bar.sync 1, 0; bra again;";
    let mut options = Options::default();
    options.budget.wall_ms = u64::MAX;
    options.budget.warp_instructions = u64::MAX;
    assert!(taken_in_vain(body, &options, Duration::ZERO).is_some());
}
