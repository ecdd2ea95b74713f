//! A kernel whose policy is loaded, on the simulated GPU, and a host that exchanges it.

use heist_builder::{Arch, Global, kernel_params};
use heist_launch::{Arg, BufferRef};
use heist_ptx::arch::Gpu;
use heist_run::Program;
use heist_run::company::{Budget, Chaos, Device, Host, Options, Order, Reach, Stream, together};
use heist_sched::program::PolicyMemory;
use heist_sched::*;

kernel_params! {
    /// How often each tile ran, and how long it sleeps.
    pub struct Count { runs: Global<u32>, sleep: u32 }
}

/// The number of the argument that holds the control words.
const CONTROL: usize = 2;

/// The launch's control words, through the simulator.
struct Through<'r>(&'r mut dyn Reach);

impl PolicyMemory for Through<'_> {
    type Error = &'static str;
    fn write(&mut self, offset: usize, bytes: &[u8]) -> Result<(), &'static str> {
        let written = self.0.write(0, CONTROL, offset, bytes);
        written.then_some(()).ok_or("nothing runs")
    }
    fn read(&mut self, offset: usize, bytes: &mut [u8]) -> Result<(), &'static str> {
        let read = self.0.read(0, CONTROL, offset, bytes);
        read.then_some(()).ok_or("nothing runs")
    }
}

/// Loads policies in turns, one every so often.
pub(crate) struct Swapper {
    pub(crate) policies: Vec<PolicyWords>,
    pub(crate) every: u64,
    at: u64,
    loader: Loader,
    pub(crate) loaded: usize,
    /// How often all slots were still in use.
    pub(crate) in_use: usize,
}

impl Swapper {
    pub(crate) fn new(policies: Vec<PolicyWords>, every: u64) -> Swapper {
        Swapper {
            policies,
            every,
            at: 5_000,
            loader: Loader::new(),
            loaded: 0,
            in_use: 0,
        }
    }
}

impl Host for Swapper {
    fn next(&self) -> Option<u64> {
        (!self.policies.is_empty()).then_some(self.at)
    }
    fn act(&mut self, _: u64, reach: &mut dyn Reach) {
        self.at += self.every;
        let policy = &self.policies[self.loaded % self.policies.len()];
        match self.loader.load(&mut Through(reach), policy) {
            Ok(()) => self.loaded += 1,
            Err(program::Busy::InUse) => self.in_use += 1,
            Err(program::Busy::Refused(refusal)) => panic!("{refusal}"),
            // It has not begun, or has ended.
            Err(program::Busy::Memory(_)) => {}
        }
    }
}

/// Everything about a launch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting {
    pub(crate) source: TileSource,
    pub(crate) submit: Submit,
    pub(crate) tiles: u32,
    pub(crate) sleep: u32,
    pub(crate) seed: u64,
    pub(crate) chaos: bool,
    /// Whether every tile of the ticket source has a block.
    pub(crate) full: bool,
}

/// What a launch left.
pub(crate) struct Left {
    pub(crate) report: LaunchReport,
    /// Instructions of warps.
    pub(crate) instructions: u64,
}

/// Runs it; that every tile ran exactly once, that the launch's memory is as the next one
/// needs it, and that nothing was found is part of it.
pub(crate) fn run(start: &AnyPolicy, setting: Setting, host: &mut dyn Host) -> Left {
    run_changed(start, setting, host, |_| {})
}

/// The same, with other control words than the plan's.
pub(crate) fn run_changed(
    start: &AnyPolicy,
    setting: Setting,
    host: &mut dyn Host,
    change: impl FnOnce(&mut Vec<u64>),
) -> Left {
    let what = format!("`{start}` {setting:?}");
    let (gpu, arch) = match setting.source {
        TileSource::Clc => (Gpu::B200, Arch::SM_100A),
        _ => (Gpu::H200, Arch::SM_90A),
    };
    // Few enough that a short run has many rounds.
    let device = Device::of(Gpu { sms: 24, ..gpu });
    let tiled = Tiled::<Count>::new("count", setting.tiles)
        .source(setting.source)
        .submit(setting.submit)
        .policy(Loaded::new(start).unwrap_or_else(|error| panic!("{error}")))
        .watch(Watch::Stats)
        .block(32);
    let tiled = match setting.full {
        true => tiled.ticket_grid(TicketGrid::Full),
        false => tiled,
    };
    let kernel = tiled
        .build(arch, |k, args, tiles| {
            // One block a multiprocessor.
            let room = k.shared::<u32>("room", 30_000);
            k.one_thread(|| room.at(0).store(0u32));
            tiles.each(|tile| {
                k.one_thread(|| {
                    args.runs.at(tile.x).atomic_add(1u32);
                });
                k.nanosleep(args.sleep);
            })
        })
        .unwrap_or_else(|error| panic!("{what}: {error}"));
    let mut plan = kernel.plan(device.gpu().sms).expect("a launch");
    change(&mut plan.control);
    let own = Count {
        runs: Arg::in_out(&vec![0u32; setting.tiles as usize]),
        sleep: setting.sleep,
    };
    let arguments = kernel.arguments(&plan, own);
    let options = Options {
        seed: setting.seed,
        chaos: if setting.chaos {
            Chaos::FULL
        } else {
            Chaos::NONE
        },
        // Whoever takes so much hangs.
        budget: Budget {
            warp_instructions: 10_000_000 + 20_000 * u64::from(setting.tiles),
            ..Budget::default()
        },
        ..Options::default()
    };
    let entry = &*kernel.built.launch.entry;
    let program = Program::from_module(entry, &kernel.built.module);
    let order = Order {
        program: program.simulated().expect("a kernel"),
        entry,
        launch: &plan.launch,
        arguments: &arguments,
        not_before: 0,
    };
    let streams = [Stream {
        priority: 0,
        orders: vec![order],
    }];
    let mut ran = together(&device, &streams, &options, host)
        .unwrap_or_else(|found| panic!("{what}: {found:?}"));
    let ran = ran[0].pop().unwrap_or_else(|| panic!("{what}: it ran"));
    let found = &ran.report.diagnostics;
    assert!(found.is_empty(), "{what}: {found:#?}\n{}", kernel.ptx());
    let outcome = &ran.report.outcome;
    let runs = kernel.output(outcome, "runs").expect("the counts");
    let runs = runs.to_vec::<u32>().expect("words");
    assert!(runs.iter().all(|runs| *runs == 1), "{what}: {runs:?}");
    let control = outcome.output(BufferRef::Argument(CONTROL));
    let control = control.expect("it").to_vec::<u64>().expect("words");
    let users = &control[CONTROL_WORDS + 1..][..8];
    assert_eq!(users, [0; 8], "{what}: who uses which slot");
    let place = TraceDevice {
        device: device.to_string(),
        sms: device.gpu().sms,
        clock: heist_launch::Clock::Modelled,
    };
    let report = kernel.report(&plan, outcome, &place).expect("a report");
    assert!(report.counter_is_zero, "{what}");
    Left {
        report,
        instructions: ran.report.stats.warp_instructions,
    }
}

/// Both sources that ask, both moments.
pub(crate) fn settings(seed: u64, tiles: u32, sleep: u32) -> Vec<Setting> {
    let mut all = Vec::new();
    for source in [TileSource::Clc, TileSource::Ticket] {
        for submit in [Submit::Early, Submit::Late] {
            all.push(Setting {
                source,
                submit,
                tiles,
                sleep,
                seed,
                chaos: seed % 2 == 1,
                full: false,
            });
        }
    }
    all
}

pub(crate) fn policy(text: &str) -> AnyPolicy {
    text.parse().unwrap_or_else(|error| panic!("{error}"))
}

pub(crate) fn words(text: &str) -> PolicyWords {
    let program = policy(text).program().expect("a program");
    program
        .words()
        .unwrap_or_else(|error| panic!("{text}: {error}"))
}
