//! Two or three kernels on one simulated GPU, at random: priorities, policies of every kind,
//! bells, policies that are exchanged, tiles that are left half done, classes, chaos. Every tile of
//! every launch runs exactly once, nobody hangs, and every launch leaves its memory as the next
//! one needs it.
//!
//! `HEIST_SCHEDULES=100000 cargo test -p heist-sched --test company small` tries that many.

use heist_builder::{Arch, BarrierSpec, Global, kernel_params};
use heist_launch::{Arg, Arguments, BufferRef};
use heist_ptx::arch::Gpu;
use heist_run::Program;
use heist_run::company::{
    Budget, Chaos, Checks, Device, Host, Options, Order, Reach, Stream, together,
};
use heist_sched::program::PolicyMemory;
use heist_sched::*;

kernel_params! {
    /// How often each tile ran, and, behind that, how often one was left half done; and how long
    /// a tile sleeps.
    pub struct Count { runs: Global<u32>, sleep: u32 }
}

/// The number of the argument that holds the control words.
const CONTROL: usize = 2;

/// Whoever takes so much hangs; a machine that stands still does not.
const BUDGET: Budget = Budget {
    warp_instructions: 4_000_000,
    memory: 4 << 30,
    time_ns: 100_000_000,
    wall_ms: u64::MAX,
};

struct Dice(u64);

impl Dice {
    fn below(&mut self, most: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % most
    }
    fn of<T: Clone>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize].clone()
    }
}

const POLICIES: &[&str] = &[
    "greedy",
    "never",
    "max-steals(1)",
    "max-steals(3)",
    "every(2)",
    "every(3)",
    "time-budget(5us)",
    "first-half",
    "fair-share",
    "token-bucket(300, 2)",
    "probability(0.5)",
    "sm-limit(2)",
    "at-most(2)",
    "shared-bucket(400, 3)",
    "until-asked",
    "until-asked & max-steals(4)",
    "!first-half | at-most(1)",
];

/// A kernel of the pool: the same tiles under some schedule.
struct Pooled {
    what: String,
    kernel: TiledKernel<Count>,
    program: Program,
    loaded: bool,
    pausing: bool,
    tiles: u32,
}

/// Policies of kernels whose tiles are left half done.
const PAUSING: &[&str] = &[
    "until-asked",
    "greedy",
    "never",
    "max-steals(2)",
    "until-asked & max-steals(4)",
    "probability(0.5)",
];
/// Steps of their tiles.
const STEPS: u32 = 6;

/// How large companies are, and what is looked for in them.
#[derive(Clone, Copy, PartialEq)]
enum Size {
    /// Dozens of tiles, up to four launches a stream, every check.
    Large,
    /// A few tiles and one or two launches a stream: a million of them take minutes. Tiles are
    /// counted; races are looked for in the large ones.
    Small,
    /// The same of short tiles that are left half done, more blocks than a launch has slots for, and a bell that is rung and silenced
    /// all the while: blocks come and leave at the same moment.
    Crowded,
}

fn pool(clc: bool, size: Size) -> Vec<Pooled> {
    let mut all = Vec::new();
    let policies = if size == Size::Crowded { &[] } else { POLICIES };
    for (at, text) in policies.iter().enumerate() {
        for submit in [Submit::Early, Submit::Late] {
            let source = match (clc, at % 8) {
                (_, 6) => TileSource::Static,
                (_, 7) => TileSource::Direct,
                (true, _) => TileSource::Clc,
                _ => TileSource::Ticket,
            };
            let loaded = (at + submit as usize) % 2 == 1 && source.asks();
            // Loaded, with and without classes.
            let roles = source == TileSource::Ticket && submit == Submit::Late && at % 4 == 0;
            let behind = roles && at % 8 == 0;
            let classes = at % 3 == 0 && source.asks() && !behind;
            let policy = match loaded {
                true => format!("loaded: {text}"),
                false => (*text).to_owned(),
            };
            let tiles = match size {
                Size::Large => 7 + 5 * at as u32,
                _ => 3 + (at as u32 * 7 + submit as u32) % 10,
            };
            let mut tiled = Tiled::<Count>::new("count", tiles)
                .source(source)
                .submit(submit)
                .policy(
                    policy
                        .parse::<AnyPolicy>()
                        .unwrap_or_else(|error| panic!("{error}")),
                )
                .block(if roles { 64 } else { 32 });
            if roles {
                tiled = tiled.apart();
            }
            if behind {
                tiled = tiled.behind_prologue();
            }
            if classes {
                let of = (0..tiles as usize).map(|tile| Class::ALL[tile * 7 % 3]);
                tiled = tiled.classes(Classes::new(of.collect()));
            }
            let arch = if clc { Arch::SM_100A } else { Arch::SM_90A };
            let room = 10_000 + 10_000 * (at as u32 % 3);
            let kernel = tiled
                .build(arch, |k, args, tiles| {
                    let room = k.shared::<u32>("room", room);
                    k.one_thread(|| room.at(0).store(0u32));
                    let body = |at, counts| {
                        k.if_(k.lane().eq(0) & counts, || {
                            args.runs.at(at).atomic_add(1u32);
                        });
                        k.nanosleep(args.sleep);
                    };
                    match roles {
                        false => tiles.each(|tile| body(tile.x, k.c(true))),
                        // The role without the scheduler thread counts.
                        true => {
                            let first = k.warp_uniform().eq(0);
                            tiles.each_in_roles(first, [&|_| (), &|_| ()], |tile, first| {
                                body(tile.x, k.c(!first))
                            })
                        }
                    }
                })
                .unwrap_or_else(|error| panic!("{text}: {error}"));
            all.push(Pooled {
                what: format!("{source} {submit} {policy}, roles: {roles}"),
                program: Program::from_module("count.ptx", &kernel.built.module),
                kernel,
                loaded,
                pausing: false,
                tiles,
            });
        }
    }
    if !clc {
        // Each twice, since they are who hears bells: with threads that meet, and with a loop for each role.
        all.extend((0..).zip(PAUSING.iter().chain(PAUSING)).map(|(at, text)| {
            let tiles = match size {
                Size::Large => 9 + 4 * at,
                Size::Small => 1 + at,
                Size::Crowded => 10 + at,
            };
            match at as usize >= PAUSING.len() && *text != "never" {
                false => pausing(text, tiles),
                // Every second one draws its first tile behind its prologue.
                true => pausing_in_roles(text, tiles, at % 2 == 1),
            }
        }));
    }
    all
}

/// A kernel whose tiles are left half done: a tile is so many steps, each thread counts those that
/// it did, and a tile counts as run if all threads have counted all.
fn pausing(text: &str, tiles: u32) -> Pooled {
    let schedule: Schedule = format!("ticket late pausing {text}").parse().expect("one");
    let tiled = Tiled::<Count>::new("count", tiles)
        .schedule(&schedule)
        .state(64)
        .block(64);
    let kernel = tiled
        .build(Arch::SM_90A, |k, args, loop_| {
            let room = k.shared::<u32>("room", 10_000);
            k.one_thread(|| room.at(0).store(0u32));
            let pause = loop_.pause().expect("it pauses");
            loop_.each(|tile| {
                let (did, step) = (k.var(0u32), k.var(pause.from()));
                let left = k.var(false);
                k.if_(step.get().ne(0), || {
                    did.set(pause.saved().at(k.thread_index()).load())
                });
                k.while_(
                    || step.get().lt(STEPS) & !left.get(),
                    || {
                        k.nanosleep(args.sleep / STEPS);
                        did.set(did.get() + 1);
                        step.set(step.get() + 1);
                        k.if_(step.get().lt(STEPS), || {
                            // Not the scheduler's thread, nor in its warp.
                            k.if_(k.thread_index().eq(32), || {
                                let _ = pause.look(pause.listen(), step.get());
                            });
                            k.sync();
                            left.set(pause.left());
                            k.sync();
                        });
                    },
                );
                k.if_(left.get(), || {
                    pause.room().at(k.thread_index()).store(did.get());
                });
                let all = (did.get().eq(STEPS).to_u32()).block_sum();
                k.one_thread(|| {
                    let at = left.get().select(tiles, tile.x);
                    let wrong = !left.get() & all.ne(64);
                    args.runs.at(at).atomic_add(wrong.select(1000u32, 1u32));
                });
            })
        })
        .unwrap_or_else(|error| panic!("{text}: {error}"));
    Pooled {
        what: schedule.to_string(),
        program: Program::from_module("count.ptx", &kernel.built.module),
        kernel,
        loaded: false,
        pausing: true,
        tiles,
    }
}

/// The same with a loop for each role: the first one's thread looks at the bell before every step and then hands the step to the
/// other role, which counts it, learns what was decided, and asks for the next.
fn pausing_in_roles(text: &str, tiles: u32, behind: bool) -> Pooled {
    let schedule: Schedule = format!("ticket late pausing {text}").parse().expect("one");
    let tiled = Tiled::<Count>::new("count", tiles)
        .schedule(&schedule)
        .state(32)
        .block(64)
        .apart();
    let tiled = match behind {
        true => tiled.behind_prologue(),
        false => tiled,
    };
    let kernel = tiled
        .build(Arch::SM_90A, |k, args, loop_| {
            let room = k.shared::<u32>("room", 10_000);
            k.one_thread(|| room.at(0).store(0u32));
            let step_barrier = |name| BarrierSpec {
                name,
                count: 1,
                arrivals: 32,
            };
            let [handed, counted] = k.mbarriers([step_barrier("handed"), step_barrier("counted")]);
            let [handed, counted] = [handed.first().waiter(), counted.first().waiter()];
            // Nothing was handed yet.
            counted.advance();
            let pause = loop_.pause().expect("it pauses");
            let first = k.warp_uniform().eq(0);
            loop_.each_in_roles(first, [&|_| (), &|_| ()], |tile, first| {
                let (did, step) = (k.var(0u32), k.var(pause.from()));
                let left = k.var(false);
                let goes_on = || step.get().lt(STEPS) & !left.get();
                if first {
                    return k.while_(goes_on, || {
                        counted.wait();
                        k.nanosleep(args.sleep / STEPS);
                        step.set(step.get() + 1);
                        k.one_thread(|| {
                            k.if_(step.get().lt(STEPS), || {
                                let _ = pause.look(pause.listen(), step.get());
                            });
                        });
                        k.sync_warp();
                        left.set(pause.left_if(step.get().lt(STEPS)));
                        handed.barrier().arrive();
                    });
                }
                k.if_(step.get().ne(0), || {
                    did.set(pause.saved().at(k.lane()).load())
                });
                k.while_(goes_on, || {
                    handed.wait();
                    did.set(did.get() + 1);
                    step.set(step.get() + 1);
                    left.set(pause.left_if(step.get().lt(STEPS)));
                    counted.barrier().arrive();
                });
                k.if_(left.get(), || {
                    // Whoever goes on with the tile waits for this, however long it takes: of the first tile longer
                    // than others need to be saved and to come back.
                    k.nanosleep(tile.x.eq(0).select(args.sleep * 8, args.sleep));
                    pause.room().at(k.lane()).store(did.get());
                });
                k.if_(!left.get() & did.get().ne(STEPS), || {
                    args.runs.at(tile.x).atomic_add(1000u32);
                });
                k.if_(k.lane().eq(0), || {
                    let at = left.get().select(tiles, tile.x);
                    args.runs.at(at).atomic_add(1u32);
                });
            })
        })
        .unwrap_or_else(|error| panic!("{text}: {error}"));
    Pooled {
        what: format!("{schedule} in roles, behind the prologue: {behind}"),
        program: Program::from_module("count.ptx", &kernel.built.module),
        kernel,
        loaded: false,
        pausing: true,
        tiles,
    }
}

/// Rings, silences and loads at random.
struct Meddler {
    dice: Dice,
    at: u64,
    streams: Vec<(bool, Loader)>,
    words: Vec<PolicyWords>,
    /// The most between two acts, in nanoseconds, but for the least.
    pause: u64,
    loaded: usize,
}

struct Through<'r>(&'r mut dyn Reach, usize);

impl PolicyMemory for Through<'_> {
    type Error = ();
    fn write(&mut self, offset: usize, bytes: &[u8]) -> Result<(), ()> {
        let written = self.0.write(self.1, CONTROL, offset, bytes);
        written.then_some(()).ok_or(())
    }
    fn read(&mut self, offset: usize, bytes: &mut [u8]) -> Result<(), ()> {
        let read = self.0.read(self.1, CONTROL, offset, bytes);
        read.then_some(()).ok_or(())
    }
}

impl Host for Meddler {
    fn next(&self) -> Option<u64> {
        Some(self.at)
    }
    fn act(&mut self, now: u64, reach: &mut dyn Reach) {
        self.at = now + 200 + self.dice.below(self.pause);
        let stream = self.dice.below(self.streams.len() as u64) as usize;
        let (loads, loader) = &mut self.streams[stream];
        if *loads && self.dice.below(2) == 0 {
            let words = self.dice.of(&self.words);
            self.loaded += usize::from(loader.load(&mut Through(reach, stream), &words).is_ok());
        } else {
            let for_some = Bell::For(1 + self.dice.below(3) as u32);
            let once = Bell::Once(1 + self.dice.below(3) as u32);
            let bell = self.dice.of(&[Bell::Silent, Bell::All, for_some, once]);
            let number = self.dice.below(3) as u32;
            let word = match self.dice.below(2) {
                0 => bell.ring(number),
                _ => bell.ring_launched(number),
            };
            let word = word.to_le_bytes();
            reach.write(stream, CONTROL, BELL_BYTES as usize, &word);
        }
    }
    fn ended(&mut self, stream: usize, _: usize, _: u64) {
        // The next launch has control words of its own.
        self.streams[stream].1 = Loader::new();
    }
}

/// One random company; how many launches ran, how many policies were loaded, and how many tiles
/// were left half done.
fn one(
    seed: u64,
    size: Size,
    pools: &[(Gpu, Vec<Pooled>)],
    words: &[PolicyWords],
) -> (usize, usize, usize) {
    let mut dice = Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let (gpu, pool) = &pools[dice.below(pools.len() as u64) as usize];
    let device = Device::of(Gpu {
        sms: match size {
            Size::Large => 2 + dice.below(5) as u32,
            _ => 1 + dice.below(3) as u32,
        },
        ..*gpu
    });
    struct Tenant<'p> {
        pooled: &'p Pooled,
        resident: u32,
        plan: Plan,
        arguments: Arguments,
        priority: i32,
        launches: Vec<u64>,
    }
    let crowded = size == Size::Crowded;
    let tenants: Vec<Tenant<'_>> = (0..2 + dice.below(2))
        .map(|_| {
            let pooled = &pool[dice.below(pool.len() as u64) as usize];
            // A multiprocessor has room for five.
            let resident = match crowded {
                true => 1 + dice.below(2) as u32,
                false => device.gpu().sms,
            };
            let plan = pooled.kernel.plan(resident).expect("a launch");
            let own = Count {
                runs: Arg::in_out(&vec![0u32; pooled.tiles as usize + 1]),
                sleep: match crowded {
                    true => dice.of(&[50, 300, 900]),
                    false => dice.of(&[50, 700, 4_000]),
                },
            };
            Tenant {
                arguments: pooled.kernel.arguments(&plan, own),
                pooled,
                resident,
                plan,
                priority: -(dice.below(3) as i32),
                launches: match size {
                    Size::Large => (0..1 + dice.below(4)).map(|_| dice.below(30_000)).collect(),
                    _ => (0..1 + dice.below(2)).map(|_| dice.below(8_000)).collect(),
                },
            }
        })
        .collect();
    let streams: Vec<Stream<'_>> = tenants
        .iter()
        .map(|tenant| Stream {
            priority: tenant.priority,
            orders: tenant
                .launches
                .iter()
                .map(|at| Order {
                    program: tenant.pooled.program.simulated().expect("a kernel"),
                    entry: "count",
                    launch: &tenant.plan.launch,
                    arguments: &tenant.arguments,
                    not_before: *at,
                })
                .collect(),
        })
        .collect();
    let options = Options {
        seed: seed + 1,
        chaos: dice.of(&[Chaos::NONE, Chaos::FULL]),
        checks: match size {
            Size::Large | Size::Crowded => Checks::ALL,
            Size::Small => Checks::FEWEST,
        },
        budget: BUDGET,
        ..Options::default()
    };
    let mut host = Meddler {
        at: dice.below(10_000),
        dice: Dice(seed | 1 << 40),
        streams: tenants
            .iter()
            .map(|tenant| (tenant.pooled.loaded, Loader::new()))
            .collect(),
        words: words.to_vec(),
        pause: if crowded { 700 } else { 5_000 },
        loaded: 0,
    };
    let ran = together(&device, &streams, &options, &mut host)
        .unwrap_or_else(|found| panic!("seed {seed}: {found:?}"));
    // A finding ends all of them.
    for (ran, tenant) in ran.iter().zip(&tenants) {
        let found: Vec<_> = ran.iter().flat_map(|ran| &ran.report.diagnostics).collect();
        let what = &tenant.pooled.what;
        assert!(found.is_empty(), "seed {seed}: {what}: {found:#?}");
    }
    let (mut launches, mut paused) = (0, 0);
    for (ran, tenant) in ran.iter().zip(&tenants) {
        let what = format!("seed {seed}: {} on {device}", tenant.pooled.what);
        assert_eq!(ran.len(), tenant.launches.len(), "{what}: not all ran");
        for ran in ran {
            launches += 1;
            let outcome = &ran.report.outcome;
            let spans = outcome.trace.iter().flat_map(|trace| &trace.blocks);
            for span in spans {
                let during = [span.start.ns(), span.end.ns()];
                let order = [
                    ran.ready as f64,
                    during[0],
                    during[1],
                    ran.ended as f64 + 1.0,
                ];
                assert!(order.is_sorted(), "{what}: {order:?}");
            }
            let runs = tenant.pooled.kernel.output(outcome, "runs").expect("it");
            let mut runs = runs.to_vec::<u32>().expect("words");
            paused += runs.pop().expect("one more") as usize;
            assert!(runs.iter().all(|runs| *runs == 1), "{what}: {runs:?}");
            let control = outcome.output(BufferRef::Argument(CONTROL)).expect("it");
            let mut control = control.to_vec::<u64>().expect("words");
            control[BELL_BYTES as usize / 8] = 0;
            let (own, behind) = control.split_at(CONTROL_WORDS);
            assert!(own.iter().all(|word| *word == 0), "{what}: {own:?}");
            if tenant.pooled.pausing {
                // The queue, and which slots are taken.
                let words = 2 * tenant.resident as usize;
                let rest = behind[..words].iter().all(|word| *word == 0);
                assert!(rest, "{what}: {:?}", &behind[..words]);
            } else if !behind.is_empty() {
                assert_eq!(behind[1..9], [0; 8], "{what}: who uses which slot");
            }
        }
    }
    (launches, host.loaded, paused)
}

/// A number from the environment.
fn asked(name: &str, default: u64) -> u64 {
    let told = std::env::var(name).ok();
    told.map_or(default, |text| text.parse().expect("a number"))
}

fn random_companies(size: Size, count: u64) {
    let first = asked("HEIST_FIRST_SEED", 1);
    let mut pools = vec![(Gpu::H200, pool(false, size))];
    if size != Size::Crowded {
        pools.push((Gpu::B200, pool(true, size)));
    }
    let words: Vec<PolicyWords> = POLICIES
        .iter()
        .map(|text| {
            let policy: AnyPolicy = text.parse().expect("a policy");
            let program = policy.program().expect("a program");
            program.words().expect("it fits")
        })
        .collect();
    let (mut launches, mut loaded, mut paused) = (0, 0, 0);
    for seed in first..first + count {
        let (ran, swapped, left) = one(seed, size, &pools, &words);
        launches += ran;
        loaded += swapped;
        paused += left;
    }
    println!(
        "{count} companies, {launches} launches, {loaded} policies loaded while they ran, \
         {paused} tiles left half done"
    );
    assert!(
        launches as u64 > 2 * count && (loaded > 0 || size == Size::Crowded) && paused > 0,
        "{launches} {loaded} {paused}"
    );
}

#[test]
fn random_companies_run_every_tile_exactly_once_and_end() {
    random_companies(Size::Large, asked("HEIST_COMPANIES", 60));
}

/// `HEIST_SCHEDULES=1000000 cargo test --release -p heist-sched --test company small` runs a
/// million.
#[test]
fn many_small_companies_run_every_tile_exactly_once_and_end() {
    random_companies(Size::Small, asked("HEIST_SCHEDULES", 400));
}

#[test]
fn blocks_that_come_and_leave_at_once_lose_no_tile() {
    random_companies(Size::Crowded, asked("HEIST_CROWDS", 60));
}

/// Rings for all from a time on, until another.
struct Ring {
    next: u64,
    until: u64,
}

impl Host for Ring {
    fn next(&self) -> Option<u64> {
        (self.next <= self.until).then_some(self.next)
    }
    fn act(&mut self, now: u64, reach: &mut dyn Reach) {
        let rung = now < self.until;
        let bell = if rung { Bell::All } else { Bell::Silent };
        let word = bell.ring(0).to_le_bytes();
        reach.write(0, CONTROL, BELL_BYTES as usize, &word);
        self.next = if rung { self.until } else { u64::MAX };
    }
}

/// Who takes a tile that was left acquires the count of the block that left it. The simulator counts at once, so that the order is read
/// from the text.
#[test]
fn a_block_that_leaves_a_tile_counts_itself_before_the_tile_is_queued() {
    let text = pausing_in_roles("until-asked", 24, true).kernel.ptx();
    let mut after = text.split("red.global.add.u64");
    after.next();
    let counts: Vec<&str> = after.collect();
    assert!(!counts.is_empty(), "{text}");
    for after in counts {
        // The other way to end is a count that is waited for.
        let (queued, ends) = (after.find("st.release.gpu"), after.find("atom.acq_rel"));
        let queued = queued.expect("it is queued");
        assert!(ends.is_none_or(|ends| queued < ends), "{text}");
    }
}

/// The first tile is left while others are, and its state is saved long after theirs: blocks that come in between
/// must not find it.
#[test]
fn a_tile_that_is_left_is_queued_once_its_last_thread_has_saved_its_state() {
    let device = Device::of(Gpu {
        sms: 2,
        ..Gpu::H200
    });
    let pooled = pausing_in_roles("until-asked", 24, true);
    // A multiprocessor has room for five.
    let plan = pooled.kernel.plan(10).expect("a launch");
    let own = Count {
        runs: Arg::in_out(&vec![0u32; pooled.tiles as usize + 1]),
        sleep: 3_000,
    };
    let arguments = pooled.kernel.arguments(&plan, own);
    for checks in [Checks::ALL, Checks::FEWEST] {
        let streams = [Stream {
            priority: 0,
            orders: vec![Order {
                program: pooled.program.simulated().expect("a kernel"),
                entry: "count",
                launch: &plan.launch,
                arguments: &arguments,
                not_before: 0,
            }],
        }];
        let options = Options {
            checks,
            budget: BUDGET,
            ..Options::default()
        };
        let mut host = Ring {
            next: 2_000,
            until: 20_000,
        };
        let ran = together(&device, &streams, &options, &mut host)
            .unwrap_or_else(|found| panic!("{found:?}"));
        let report = &ran[0][0].report;
        assert!(report.diagnostics.is_empty(), "{:#?}", report.diagnostics);
        let runs = pooled.kernel.output(&report.outcome, "runs");
        let mut runs = runs.and_then(|runs| runs.to_vec::<u32>()).expect("words");
        let left = runs.pop().expect("one more");
        assert!(runs.iter().all(|runs| *runs == 1), "{runs:?}");
        assert!(left > 2, "{left} were left");
    }
}
