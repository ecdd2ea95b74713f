//! A traced launch on the simulated GPU, taken apart by block.

use heist_builder::{Arch, BuildError, Global, Scope, kernel_params};
use heist_launch::{Arg, BufferRef, Clock, DecisionKind, Dim3, Outcome, TileOrigin, Time, Trace};
use heist_run::company::Budget;
use heist_run::{Device, Program, Settings};
use heist_sched::*;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

kernel_params! {
    /// How often each tile ran, and how long tile `i` sleeps: `base + i % 7 * step`
    /// nanoseconds. Tile `ring` rings the bell and tile `silence` stops it; both write
    /// down when.
    pub struct Sleepy { runs: Global<u32>, base: u32, step: u32, ring: u32, silence: u32, rang: Global<u64> }
}

/// Everything about a launch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting {
    pub(crate) source: TileSource,
    pub(crate) submit: Submit,
    pub(crate) grid: Option<TicketGrid>,
    pub(crate) tiles: u32,
    /// Nanoseconds that a tile sleeps: the shortest, and how they grow.
    pub(crate) sleep: (u32, u32),
    pub(crate) seed: u64,
    pub(crate) chaos: bool,
    /// Whether the policy is loaded, and interpreted, in place of built in.
    pub(crate) loaded: bool,
}

impl Setting {
    /// Early, on tickets, without chaos.
    pub(crate) fn new(source: TileSource, seed: u64) -> Setting {
        Setting {
            source,
            submit: Submit::Early,
            grid: None,
            tiles: 420,
            sleep: (300, 90),
            seed,
            chaos: false,
            loaded: false,
        }
    }

    pub(crate) fn loaded(self, loaded: bool) -> Setting {
        Setting { loaded, ..self }
    }

    pub(crate) fn submit(self, submit: Submit) -> Setting {
        Setting { submit, ..self }
    }

    pub(crate) fn chaos(self, chaos: bool) -> Setting {
        Setting { chaos, ..self }
    }

    pub(crate) fn grid(self, grid: TicketGrid) -> Setting {
        Setting {
            grid: Some(grid),
            ..self
        }
    }

    pub(crate) fn tiles(self, tiles: u32) -> Setting {
        Setting { tiles, ..self }
    }

    pub(crate) fn sleep(self, base: u32, step: u32) -> Setting {
        Setting {
            sleep: (base, step),
            ..self
        }
    }
}

/// For each seed, both sources that ask at both moments: half of them with chaos and half of
/// them loaded, the other halves for the next seed. Two seeds in a row have each source at each
/// moment with and without chaos, built in and loaded.
pub(crate) fn settings(seeds: std::ops::Range<u64>) -> Vec<Setting> {
    let mut all = Vec::new();
    for seed in seeds {
        let odd = seed % 2 == 1;
        for source in [TileSource::Clc, TileSource::Ticket] {
            for submit in [Submit::Early, Submit::Late] {
                let late = submit == Submit::Late;
                let setting = Setting::new(source, seed).submit(submit);
                let chaos = (source == TileSource::Clc) ^ late ^ odd;
                all.push(setting.chaos(chaos).loaded(late ^ odd));
            }
        }
    }
    all
}

/// One source early and the other late for one policy or number, the other way round for the next; each
/// with and without chaos, built in and loaded.
pub(crate) fn in_turn(turn: usize, seed: u64) -> impl Iterator<Item = Setting> {
    let first = if turn.is_multiple_of(2) {
        TileSource::Clc
    } else {
        TileSource::Ticket
    };
    let all = settings(seed..seed + 2).into_iter();
    all.filter(move |setting| (setting.source == first) == (setting.submit == Submit::Early))
}

/// What a block did, in order.
#[derive(Clone, Debug)]
pub(crate) struct BlockRun {
    /// Its number among the launched.
    pub(crate) worker: u32,
    pub(crate) sm: u32,
    pub(crate) start: Time,
    pub(crate) end: Time,
    pub(crate) tiles: u32,
    pub(crate) decisions: Vec<(DecisionKind, Time)>,
}

impl BlockRun {
    pub(crate) fn count(&self, kind: DecisionKind) -> u32 {
        self.decisions.iter().filter(|(k, _)| *k == kind).count() as u32
    }

    pub(crate) fn requested(&self) -> u32 {
        self.count(DecisionKind::Requested)
    }

    pub(crate) fn declined(&self) -> u32 {
        self.count(DecisionKind::Declined)
    }

    pub(crate) fn granted(&self) -> u32 {
        self.count(DecisionKind::Granted)
    }

    pub(crate) fn was_refused(&self) -> bool {
        self.count(DecisionKind::Refused) > 0
    }

    /// Its opportunities in order: whether it asked.
    pub(crate) fn answers(&self) -> Vec<bool> {
        let answers = self.decisions.iter().filter_map(|(kind, _)| match kind {
            DecisionKind::Requested => Some(true),
            DecisionKind::Declined => Some(false),
            _ => None,
        });
        answers.collect()
    }
}

/// A launch, taken apart.
pub(crate) struct Seen {
    /// Blocks that ran a tile, by number. A block of a full grid of tickets that
    /// found none is not among them.
    pub(crate) blocks: Vec<BlockRun>,
    pub(crate) workers: u32,
    pub(crate) resident: u32,
    pub(crate) tiles: u32,
    /// Whether every block ends with a failed draw, whatever its policy says.
    pub(crate) fixed_draws: bool,
    /// When the bell was rung and silenced, in nanoseconds of the trace.
    pub(crate) bell: Option<(f64, f64)>,
    pub(crate) what: String,
}

/// Runs a policy. That every tile ran exactly once is part of it.
pub(crate) fn run(policy: &str, setting: Setting) -> Seen {
    let policy: AnyPolicy = policy.parse().unwrap_or_else(|error| panic!("{error}"));
    run_policy(policy, setting)
}

/// The tiles between which the bell rings.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rung {
    pub(crate) from: u32,
    pub(crate) to: u32,
}

pub(crate) fn run_policy(policy: AnyPolicy, setting: Setting) -> Seen {
    run_rung(policy, setting, None)
}

pub(crate) fn run_rung(policy: AnyPolicy, setting: Setting, rung: Option<Rung>) -> Seen {
    let (device, arch, room) = match setting.source {
        TileSource::Clc => ("sim:b200", Arch::SM_100A, 30_000),
        _ => ("sim:l4", Arch::SM_89, 15_000),
    };
    let what = format!("`{policy}` {setting:?}");
    let policy = match setting.loaded {
        true => AnyPolicy::new(Loaded::new(&policy).unwrap_or_else(|error| panic!("{error}"))),
        false => policy,
    };
    let device = Device::open(device.parse().expect("a name")).expect("it is simulated");
    let resident = device.sms();
    let kernel =
        sleepy(&policy, setting, arch, room).unwrap_or_else(|error| panic!("{what}: {error}"));
    let plan = kernel.plan(resident).expect("a launch");
    let runs = vec![0u32; setting.tiles as usize];
    let own = Sleepy {
        runs: Arg::in_out(&runs),
        base: setting.sleep.0,
        step: setting.sleep.1,
        ring: rung.map_or(u32::MAX, |rung| rung.from),
        silence: rung.map_or(u32::MAX, |rung| rung.to),
        rang: Arg::in_out(&[0u64; 2]),
    };
    let arguments = kernel.arguments(&plan, own);
    let settings = Settings {
        seed: setting.seed,
        chaos: setting.chaos,
        // A busy machine is no reason to fail.
        limit: Duration::from_secs(600),
        // Whoever takes so much hangs.
        budget: Budget {
            warp_instructions: 10_000_000,
            time_ns: 1_000_000_000,
            ..Budget::default()
        },
        ..Settings::default()
    };
    let entry = &kernel.built.launch.entry;
    let program = Program::from_module(&**entry, &kernel.built.module);
    let ran = device
        .run(&program, entry, &plan.launch, &arguments, &settings)
        .unwrap_or_else(|error| panic!("{what}: {error}"));
    let counted = kernel.output(&ran.outcome, "runs").expect("the counts");
    let counted = counted.to_vec::<u32>().expect("words");
    assert!(
        counted.iter().all(|runs| *runs == 1),
        "{what}: exactly once"
    );
    let place = TraceDevice {
        device: device.label(),
        sms: resident,
        clock: Clock::Modelled,
    };
    let report = kernel
        .report(&plan, &ran.outcome, &place)
        .unwrap_or_else(|error| panic!("{what}: {error}"));
    assert!(report.counter_is_zero, "{what}: the counter");
    check_control(words(&ran.outcome, CONTROL), setting.loaded, &what);
    let trace = report.trace.expect("a trace");
    assert_eq!(
        trace.miscounted_tiles(Dim3::from(setting.tiles)),
        [],
        "{what}"
    );
    check_origins(&trace, setting.source, kernel.ticket_grid(), &what);
    let blocks = blocks(&trace);
    check_figures(&blocks, &trace, &report.stats.expect("figures"), &what);
    Seen {
        bell: rung.map(|_| bell(&ran.outcome)),
        blocks: with_tiles(blocks, &what),
        workers: plan.workers,
        resident,
        tiles: setting.tiles,
        fixed_draws: setting.source == TileSource::Ticket
            && (kernel.ticket_grid() == TicketGrid::Resident || !policy.may_retire()),
        what,
    }
}

/// The kernel: tiles that are counted and sleep, one block a multiprocessor.
fn sleepy(
    policy: &AnyPolicy,
    setting: Setting,
    arch: Arch,
    room: u32,
) -> Result<TiledKernel<Sleepy>, BuildError> {
    let mut tiled = Tiled::<Sleepy>::new("sleepy", setting.tiles)
        .source(setting.source)
        .submit(setting.submit)
        .policy(policy.clone())
        .watch(Watch::Trace)
        .block(32);
    if let Some(grid) = setting.grid {
        tiled = tiled.ticket_grid(grid);
    }
    tiled.build(arch, |k, args, tiles| {
        // One block a multiprocessor.
        let room = k.shared::<u32>("room", room);
        k.one_thread(|| room.at(0).store(0u32));
        let bell = tiles.bell();
        tiles.each(|tile| {
            let number = tile.number();
            k.one_thread(|| {
                for (at, tile, word) in [(0, args.ring, 1u32), (1, args.silence, 0)] {
                    k.if_(number.eq(tile), || {
                        bell.store_relaxed(Scope::System, word);
                        args.rang.at(at).store(k.nanoseconds());
                    });
                }
            });
            k.one_thread(|| {
                args.runs.at(number).atomic_add(1u32);
            });
            k.nanosleep(args.base + number % 7 * args.step);
        })
    })
}

/// The numbers of the arguments that the launch leaves 64-bit words in: when the bell rang, the control words, the records.
const RANG: usize = 5;
const CONTROL: usize = 6;
const WATCH: usize = 7;

/// What the launch left in an argument.
fn words(outcome: &Outcome, argument: usize) -> Vec<u64> {
    let left = outcome.output(BufferRef::Argument(argument));
    left.expect("an output").to_vec().expect("words")
}

/// The control words are zero, but for those that outlive a launch.
fn check_control(mut control: Vec<u64>, loaded: bool, what: &str) {
    // Out of order, the tile that rings may come last.
    control[BELL_BYTES as usize / 8] = 0;
    // Behind the control words are the current policy, and who uses which slot.
    if loaded {
        control[CONTROL_WORDS] = 0;
    }
    let end = control.len().min(CONTROL_WORDS + 9);
    assert!(
        control[..end].iter().all(|word| *word == 0),
        "{what}: control words are left behind: {control:?}"
    );
}

/// A block's first tile is its own, unless it claims one; the others come from the source.
fn check_origins(trace: &Trace, source: TileSource, grid: TicketGrid, what: &str) {
    let claims = grid != TicketGrid::Resident;
    let mut begun = BTreeSet::new();
    for tile in &trace.tiles {
        let first = begun.insert(tile.block);
        let expected = match (source, first) {
            (TileSource::Clc, true) => TileOrigin::Own,
            (TileSource::Ticket, true) if !claims => TileOrigin::Own,
            (TileSource::Clc, false) => TileOrigin::Stolen,
            _ => TileOrigin::Ticket,
        };
        assert_eq!(tile.origin, expected, "{what}: block {}", tile.block);
    }
}

/// The blocks of a trace, by number.
fn blocks(trace: &Trace) -> BTreeMap<u32, BlockRun> {
    let spans = trace.blocks.iter().map(|span| {
        let block = BlockRun {
            worker: span.block,
            sm: span.sm,
            start: span.start,
            end: span.end,
            tiles: 0,
            decisions: Vec::new(),
        };
        (span.block, block)
    });
    let mut blocks: BTreeMap<u32, BlockRun> = spans.collect();
    for tile in &trace.tiles {
        blocks.get_mut(&tile.block).expect("a block").tiles += 1;
    }
    for decision in &trace.decisions {
        let block = blocks.get_mut(&decision.block).expect("a block");
        block.decisions.push((decision.kind, decision.at));
    }
    blocks
}

/// What the kernel counted is what the trace shows.
fn check_figures(blocks: &BTreeMap<u32, BlockRun>, trace: &Trace, stats: &Stats, what: &str) {
    for (number, block) in blocks {
        let counts = stats.clusters[*number as usize];
        let taken = trace.tiles.iter().filter(|tile| tile.block == *number);
        let taken = taken.filter(|tile| tile.origin != TileOrigin::Own).count() as u32;
        let seen = [
            block.tiles,
            taken,
            block.requested(),
            block.count(DecisionKind::Refused),
            block.declined(),
            block.count(DecisionKind::Overruled),
        ];
        let counted = [
            counts.tiles,
            counts.stolen,
            counts.requests,
            counts.refusals,
            counts.declines,
            counts.overruled,
        ];
        assert_eq!(counted, seen, "{what}: the figures of block {number}");
    }
}

/// The blocks that ran a tile.
fn with_tiles(mut blocks: BTreeMap<u32, BlockRun>, what: &str) -> Vec<BlockRun> {
    // A block of a full grid that found no ticket did nothing else.
    blocks.retain(|_, block| {
        let idle = block.tiles == 0;
        if idle {
            let kinds: Vec<_> = block.decisions.iter().map(|(kind, _)| *kind).collect();
            assert_eq!(kinds, [DecisionKind::Refused], "{what}: {block:?}");
        }
        !idle
    });
    for block in blocks.values() {
        // What was granted was run, also after a stop.
        assert_eq!(block.tiles, 1 + block.granted(), "{what}: {block:?}");
    }
    blocks.into_values().collect()
}

/// When the bell was rung and silenced, in nanoseconds of the trace, which begins with the first record.
fn bell(outcome: &Outcome) -> (f64, f64) {
    let (rang, watch) = (words(outcome, RANG), words(outcome, WATCH));
    let first = watch[2] as usize;
    let records = watch[first..first + 4 * watch[0] as usize].chunks_exact(4);
    let begin = records.map(|record| record[2]).min().expect("a record");
    ((rang[0] - begin) as f64, (rang[1] - begin) as f64)
}
