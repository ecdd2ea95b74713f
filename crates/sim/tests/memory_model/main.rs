//! Random small kernels against PTX's memory model, worked out by brute force.
//!
//! A kernel is four threads in two blocks, of one cluster or of two, each with a few
//! accesses to a few words of global and shared memory: weak, relaxed, acquire, release and
//! read-modify-write, of every scope, with fences, barriers, arrivals and looks at
//! mbarriers, bulk copies both ways, bulk reductions and fences of the proxies between them. Every write
//! has a value of its own, so that a run tells which write each read has seen. From
//! that the [`definition`] says what is ordered: program order, barriers, release and
//! acquire patterns whose every step is morally strong, and what a strong read has seen,
//! closed over each other; between the generic and the async proxy only by way of
//! a fence of both. Two accesses race that conflict, are not both strong towards each
//! other, and are not ordered. The detector must say so of the same run, and must say
//! nothing of any other.
//!
//! `HEIST_PROGRAMS` is how many kernels are tried, and `HEIST_FIRST_PROGRAM` the number of the
//! first, so that several processes can share a million.

mod definition;
mod kernel;

use definition::Execution;
use heist_launch::{Arg, Arguments, Launch};
use heist_sim::{Budget, Device, Options, Program, Report};
use kernel::{Kernel, Kind, MOST_ACTS, RESULTS, Random, THREADS, WORDS};

/// What the detector calls two accesses that nothing orders, of either proxy.
const RACES: &[&str] = &[
    "R001", "R002", "R003", "R004", "R005", "R006", "R007", "R008", "A005", "A006", "A007", "A008",
    "A009", "A029",
];

/// The number of the first kernel that has bulk reductions.
const REDUCTIONS: u64 = 1 << 40;
/// And of the first whose bulk copies are from and to memory that threads use.
const COPIES: u64 = 2 << 40;

/// A kernel as PTX, run, and what its reads have seen.
fn run(kernel: &Kernel, text: &str, device: &Device, seed: u64) -> (Report, Vec<u32>) {
    let source = heist_ptx::Source::new("random.ptx", text);
    let module = heist_ptx::parse(&source).expect("it is PTX");
    let program = Program::new(module).expect("it can be run");
    let arguments = Arguments::new([
        Arg::in_out(&[0u32; WORDS]),
        Arg::in_out(&[0u32; RESULTS * THREADS]),
        Arg::in_out(&[u32::MAX; 4 + 4 * THREADS * MOST_ACTS]),
    ]);
    // Stores of the same value are races by the definition.
    let mut checks = Options::default().checks;
    checks.same_value = true;
    let options = Options {
        seed,
        checks,
        threads: 1,
        budget: Budget {
            warp_instructions: 100_000,
            ..Budget::default()
        },
        ..Options::default()
    };
    let launch = match kernel.clustered {
        true => Launch::new(2, 64).cluster(2),
        false => Launch::new(2, 64),
    };
    let report = program
        .run(device, "k", &launch, &arguments, &options)
        .expect("it runs");
    let results = report.outcome.output(1usize).expect("results");
    let results = results.to_vec::<u32>().expect("words");
    (report, results)
}

/// A number from the environment.
fn asked(name: &str, unless: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text.parse().expect("it is a number"),
        Err(_) => unless,
    }
}

/// Whether a kernel has a race by the definition, and what is told where the detector says otherwise.
fn judge(number: u64, device: &Device) -> (bool, Option<String>) {
    let mut random = Random(number.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5eed);
    let kind = match number {
        COPIES.. => Kind::Copies,
        REDUCTIONS.. => Kind::Reductions,
        _ => Kind::Nothing,
    };
    let kernel = Kernel::random(&mut random, kind);
    let text = kernel.text();
    let (report, results) = run(&kernel, &text, device, number);
    let mut said = report.diagnostics.iter();
    let said = said.find(|one| RACES.contains(&one.code.0));
    let race = Execution::of(&kernel, &results).race();
    let told = (said.is_some() != race.is_some()).then(|| {
        format!(
            "kernel {number}: the definition says {race:?}, the detector {said:#?}\nresults {results:?}\n{text}"
        )
    });
    (race.is_some(), told)
}

#[test]
fn the_detector_agrees_with_the_definition() {
    agrees(
        asked("HEIST_FIRST_PROGRAM", 0),
        asked("HEIST_PROGRAMS", 2000),
    );
}

#[test]
fn the_detector_agrees_with_the_definition_about_reductions() {
    let first = asked("HEIST_FIRST_PROGRAM", 0);
    agrees(REDUCTIONS + first, asked("HEIST_PROGRAMS", 1000));
}

#[test]
fn the_detector_agrees_with_the_definition_about_copies_of_global_memory() {
    let first = asked("HEIST_FIRST_PROGRAM", 0);
    agrees(COPIES + first, asked("HEIST_PROGRAMS", 1000));
}

fn agrees(first: u64, programs: u64) {
    let device = Device::named("sim:h200").expect("there is such a device");
    let (mut races, mut wrong) = (0, Vec::new());
    for number in first..first + programs {
        let (race, told) = judge(number, &device);
        races += u64::from(race);
        if let Some(told) = told {
            wrong.push(number);
            if wrong.len() <= 3 {
                println!("{told}");
            }
        }
    }
    println!(
        "{programs} kernels, {races} with a race, {} judged otherwise",
        wrong.len()
    );
    assert!(
        wrong.is_empty(),
        "{} of {programs}: {:?}",
        wrong.len(),
        &wrong[..wrong.len().min(20)]
    );
    assert!(
        races > programs / 10 && races < programs - programs / 10,
        "{races} races"
    );
}

/// Kernels that were judged otherwise once: the first half have a race behind the start of a copy, of
/// which the copy's mbarrier says nothing; the others have two strong stores of one thread, of which
/// one was seen, a copy behind a fence behind a read that has seen a strong store, and two swaps of one
/// thread with another's store between them.
#[test]
fn what_was_judged_otherwise_once_is_judged_right() {
    let device = Device::named("sim:h200").expect("there is such a device");
    let racy = [5_017_038, 5_020_909, 5_709_469, 5_734_945];
    // Between a weak access and a reduction without a fence came a reduction that had one.
    let hidden = [200_005_855, 200_111_259, 200_407_478, 200_609_488];
    let free = [5_040_076, 5_484_808, 5_993_057, 10_067_416];
    for (number, expected) in racy
        .into_iter()
        .chain(hidden.map(|one| REDUCTIONS + one))
        .map(|one| (one, true))
        .chain(free.map(|one| (one, false)))
    {
        let (race, told) = judge(number, &device);
        assert_eq!((race, told), (expected, None), "kernel {number}");
    }
}
