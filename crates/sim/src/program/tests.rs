use super::*;
use crate::code::Wait;
use crate::engine::parallel;
use crate::race::clock::WarpClock;
use crate::state::warp::{Fragment, Join, State, Warp};
use std::collections::VecDeque;
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

/// Lanes 0 to 3 and 4 to 7 come to one instruction on different ways, which others wait to see them leave at a place that they will not come to.
#[test]
fn lanes_that_wait_for_each_other_go_on_together_and_are_expected_nowhere_else() {
    let text = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k() { ret; }\n";
    let source = heist_ptx::Source::new("k.ptx", text);
    let program = Program::new(heist_ptx::parse(&source).unwrap()).unwrap();
    let device = Device::named("sim:h200").unwrap();
    let executable = program.executable("k", &device).unwrap();
    let clock = WarpClock::new(0, 0, 1);
    let mut warp = Warp::new(0, 0, 0xffff, &executable.code, clock, 0);
    let waits = State::Waiting(Wait::Gather { members: 0xff });
    let part = |mask, pc, joins: [u32; 2], state| Fragment {
        mask,
        pc,
        joins: joins.to_vec(),
        state,
        ..Fragment::NOBODY
    };
    warp.fragments = VecDeque::from([
        part(0x000f, 7, [0, 1], waits),
        part(0xff00, 9, [0, 1], State::Joining(1)),
        part(0x00f0, 7, [0, 2], waits),
    ]);
    let join = |pc, members| Join {
        pc,
        depth: 0,
        members,
        arrived: 0,
    };
    warp.joins = vec![join(11, 0xffff), join(9, 0xff0f), join(9, 0x00f0)];
    assert!(warp.gather());
    let parts = warp.fragments.iter();
    let parts: Vec<_> = parts.map(|f| (f.mask, f.state, f.stop)).collect();
    assert_eq!(parts[0], (0x00ff, State::Ready, 11));
    assert_eq!(parts[1].0, 0xff00);
    assert_eq!((parts[1].1, parts.len()), (State::Joining(1), 2));
    let expected: Vec<u32> = warp.joins.iter().map(|join| join.members).collect();
    assert_eq!(expected, [0xffff, 0xff00, 0]);
}
