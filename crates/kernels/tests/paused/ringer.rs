//! A bell that is rung at random while a job runs.

use heist_builder::Arch;
use heist_kernels::{Job, Target};
use heist_launch::{BufferRef, Outcome};
use heist_ptx::arch::Gpu;
use heist_run::Program;
use heist_run::company::{Chaos, Checks, Device, Host, Options, Order, Reach, Stream, together};
use heist_sched::{BELL_BYTES, Bell, CONTROL_WORDS, Schedule};

const SMS: u32 = 2;
pub(crate) const TARGET: Target = Target {
    arch: Arch::SM_90A,
    sms: SMS,
};
pub(crate) const PAUSING: &str = "ticket late pausing until-asked";

pub(crate) fn schedule(text: &str) -> Schedule {
    text.parse().unwrap_or_else(|error| panic!("{error}"))
}

/// Rings and silences the bell every now and then.
struct Ringer {
    control: usize,
    at: u64,
    dice: u64,
}

impl Host for Ringer {
    fn next(&self) -> Option<u64> {
        Some(self.at)
    }
    fn act(&mut self, now: u64, reach: &mut dyn Reach) {
        self.dice ^= self.dice << 13;
        self.dice ^= self.dice >> 7;
        self.dice ^= self.dice << 17;
        self.at = now + 500 + (self.dice >> 20) % 20_000;
        let bell = match self.dice >> 40 & 3 {
            0 => Bell::Silent,
            1 => Bell::For(1),
            _ => Bell::All,
        };
        let word = match self.dice >> 42 & 1 {
            0 => bell.ring(0),
            _ => bell.ring_launched(0),
        };
        reach.write(0, self.control, BELL_BYTES as usize, &word.to_le_bytes());
    }
    fn ended(&mut self, _: usize, _: usize, _: u64) {}
}

/// Rings the bell once, for a time.
pub(crate) struct Ring {
    /// When, in nanoseconds.
    pub(crate) at: u64,
    /// For how long.
    pub(crate) lasts: u64,
    /// Whether it says that the visitor was launched together with it.
    pub(crate) launched: bool,
}

/// Rings at the first of these times, and silences the bell at the second.
struct Once {
    control: usize,
    times: Vec<u64>,
    launched: bool,
}

impl Host for Once {
    fn next(&self) -> Option<u64> {
        self.times.first().copied()
    }
    fn act(&mut self, _: u64, reach: &mut dyn Reach) {
        self.times.remove(0);
        let bell = match self.times.is_empty() {
            true => Bell::Silent,
            false => Bell::All,
        };
        let word = match self.launched {
            true => bell.ring_launched(0),
            false => bell.ring(0),
        };
        reach.write(0, self.control, BELL_BYTES as usize, &word.to_le_bytes());
    }
    fn ended(&mut self, _: usize, _: usize, _: u64) {}
}

/// Runs a job of one step with a bell that is rung once, if it is; how many slots tiles were saved in,
/// and when the job ended.
pub(crate) fn ring_once(job: &Job, ring: Option<Ring>, what: &str) -> (usize, u64) {
    let control = job.steps[0]
        .readout
        .as_ref()
        .map_or(0, heist_sched::Readout::control);
    let launched = ring.as_ref().is_some_and(|ring| ring.launched);
    let times = ring.map_or(Vec::new(), |ring| vec![ring.at, ring.at + ring.lasts]);
    let mut host = Once {
        control,
        times,
        launched,
    };
    let (outcome, ended) = run(job, 0, Chaos::NONE, 1, &mut host, what);
    (left_clean(&outcome, control, what), ended)
}

/// Runs a job with a bell that is rung at random, or not at all; how many slots tiles were saved in.
pub(crate) fn ring_beside(job: &mut Job, what: &str, seed: u64, rung: bool) -> usize {
    let mut saved = 0;
    for index in 0..job.steps.len() {
        let readout = job.steps[index].readout.as_ref();
        let control = readout.map(heist_sched::Readout::control);
        let mut ringer = Ringer {
            control: control.unwrap_or(0),
            // A list of tiles, which comes before, has no bell.
            at: control.filter(|_| rung).map_or(u64::MAX, |_| 1),
            dice: seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1,
        };
        let chaos = [Chaos::NONE, Chaos::FULL][seed as usize % 2];
        let (outcome, _) = run(job, index, chaos, seed, &mut ringer, what);
        if let Some(control) = control {
            saved += left_clean(&outcome, control, what);
        }
        job.absorb(&outcome);
    }
    saved
}

/// Runs a step beside a host; what came of it, and when it ended.
fn run(
    job: &Job,
    index: usize,
    chaos: Chaos,
    seed: u64,
    host: &mut dyn Host,
    what: &str,
) -> (Outcome, u64) {
    let device = Device::of(Gpu {
        sms: SMS,
        ..Gpu::H200
    });
    let arguments = job.arguments(index).expect("a step");
    let step = &job.steps[index];
    let program = Program::from_module(&*step.entry, &step.module);
    let stream = Stream {
        priority: 0,
        orders: vec![Order {
            program: program.simulated().expect("a kernel"),
            entry: &step.entry,
            launch: &step.launch,
            arguments: &arguments,
            not_before: 0,
        }],
    };
    let options = Options {
        seed,
        chaos,
        checks: Checks::ALL,
        ..Options::default()
    };
    let mut ran = together(&device, &[stream], &options, host)
        .unwrap_or_else(|error| panic!("{what}: {error:?}"));
    let ran = ran.remove(0).remove(0);
    let found = &ran.report.diagnostics;
    assert!(found.is_empty(), "{what}: {found:#?}");
    (ran.report.outcome, ran.ended)
}

/// The launch leaves its words at zero but for the bell, nobody in the queue and no slot taken. How
/// many slots were used.
fn left_clean(outcome: &Outcome, control: usize, what: &str) -> usize {
    let words = outcome.output(BufferRef::Argument(control)).expect("it");
    let mut words = words.to_vec::<u64>().expect("words");
    words[BELL_BYTES as usize / 8] = 0;
    let (own, behind) = words.split_at(CONTROL_WORDS);
    assert!(own.iter().all(|word| *word == 0), "{what}: {own:?}");
    let slots = 2 * SMS as usize;
    let (queue, behind) = behind.split_at(slots);
    assert!(queue.iter().all(|word| *word == 0), "{what}: {queue:?}");
    // Slots begin with a line of 128 bytes.
    let unused = (CONTROL_WORDS + slots).next_multiple_of(16) - CONTROL_WORDS - slots;
    let behind = &behind[unused..];
    let each = behind.chunks_exact(behind.len() / slots);
    each.filter(|slot| slot.iter().any(|word| *word != 0))
        .count()
}
