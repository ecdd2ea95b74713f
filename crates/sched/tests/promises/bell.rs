//! What a bell says, and who leaves: a batch on one stream, a visitor of higher priority on another.

use heist_builder::{Arch, Global, kernel_params};
use heist_launch::{Arg, Clock, DecisionKind, Dim3};
use heist_ptx::arch::Gpu;
use heist_run::Program;
use heist_run::company::{
    Budget, Checks, Device, Host, Options, Order, Ran, Reach, Silent, Stream, together,
};
use heist_sched::{
    BELL_BYTES, Bell, LaunchReport, Plan, Schedule, TileSource, Tiled, TiledKernel, TraceDevice,
    Watch,
};

kernel_params! {
    /// How often each tile ran and, behind that, how often one was left half done, how many steps were done, and how many
    /// blocks had a tile; and how many steps a tile has more than the one before it.
    pub struct Count { runs: Global<u32>, tiles: u32, longer: u32 }
}

const SMS: u32 = 6;
const TILES: u32 = 40;
const STEPS: u32 = 20;
const STEP_NS: u32 = 2_000;
/// When the visitor is launched, in nanoseconds.
const COMES: u64 = 100_000;
const BATCH: usize = 0;
const VISITOR: usize = 1;

/// Whoever takes so much hangs.
fn bounded() -> Options {
    let budget = Budget {
        warp_instructions: 4_000_000,
        time_ns: 100_000_000,
        ..Budget::default()
    };
    // What one thread is to store no other stores too.
    let checks = Checks {
        same_value: true,
        ..Checks::ALL
    };
    Options {
        budget,
        checks,
        ..Options::default()
    }
}

/// Where traces are from.
fn place(sms: u32) -> TraceDevice {
    TraceDevice {
        device: "a simulated one".to_owned(),
        sms,
        clock: Clock::Modelled,
    }
}

/// What bodies do about the bell.
#[derive(Clone, Copy)]
enum Body {
    /// They look at it between steps.
    Looks,
    /// They say at the end of a tile that they heard this.
    Heard(u32),
    /// Nothing.
    Deaf,
}

/// A multiprocessor has room for one block of each.
fn kernel(schedule: &Schedule, tiles: u32, steps: u32, does: Body) -> TiledKernel<Count> {
    watched(Watch::Off, schedule, tiles, steps, does)
}

/// The same whose threads may be apart: its first blocks begin with the tile of their number.
fn numbered(schedule: &Schedule, tiles: u32, steps: u32, does: Body) -> TiledKernel<Count> {
    let tiled = Tiled::<Count>::new("count", tiles).apart();
    built(tiled, Watch::Off, schedule, steps, does)
}

/// The same, traced or not.
fn watched(
    watch: Watch,
    schedule: &Schedule,
    tiles: u32,
    steps: u32,
    does: Body,
) -> TiledKernel<Count> {
    let tiled = Tiled::<Count>::new("count", tiles);
    built(tiled, watch, schedule, steps, does)
}

fn built(
    tiled: Tiled<Count>,
    watch: Watch,
    schedule: &Schedule,
    steps: u32,
    does: Body,
) -> TiledKernel<Count> {
    let tiled = tiled.schedule(schedule).watch(watch).state(0).block(32);
    tiled
        .build(Arch::SM_90A, |k, args, tiles| {
            k.shared::<u8>("room", 200 << 10);
            k.one_thread(|| {
                args.runs.at(args.tiles + 2).atomic_add(1u32);
            });
            let pause = tiles.pause();
            tiles.each(|tile| {
                let step = k.var(pause.map_or(k.c(0), |pause| pause.from()));
                let left = k.var(false);
                let steps = args.longer * tile.x + steps;
                k.while_(
                    || step.get().lt(steps) & !left.get(),
                    || {
                        k.nanosleep(STEP_NS);
                        k.one_thread(|| {
                            args.runs.at(args.tiles + 1).atomic_add(1u32);
                        });
                        step.set(step.get() + 1);
                        if let (Some(pause), Body::Looks) = (pause, does) {
                            let leaves = k.var(false);
                            k.one_thread(|| {
                                k.if_(step.get().lt(steps), || {
                                    leaves.set(pause.look(pause.listen(), step.get()));
                                });
                            });
                            k.sync();
                            left.set(pause.left());
                            k.sync();
                            // Who looks is told the same.
                            let differs = leaves.get().to_u32().ne(left.get().to_u32());
                            k.one_thread(|| {
                                k.if_(differs, || {
                                    args.runs.at(tile.x).atomic_add(1000u32);
                                });
                            });
                        }
                    },
                );
                k.one_thread(|| {
                    if let (Some(pause), Body::Heard(word)) = (pause, does) {
                        pause.heard(k.c(word));
                    }
                    let at = left.get().select(args.tiles, tile.x);
                    args.runs.at(at).atomic_add(1u32);
                });
            })
        })
        .unwrap_or_else(|error| panic!("{schedule}: {error}"))
}

/// When the bell is silenced.
#[derive(Clone, Copy, PartialEq)]
enum Until {
    /// Every block of the visitor has a place.
    Placed,
    /// The last one has ended, as where the bell is written in the visitor's stream.
    Ended,
}

/// Rings from a time on.
struct Ringer {
    control: usize,
    bell: Bell,
    at: u64,
    until: Until,
    /// When it rings once more.
    again: Option<u64>,
    silent: bool,
    rings: u32,
}

impl Host for Ringer {
    fn next(&self) -> Option<u64> {
        Some(self.at)
    }
    fn act(&mut self, now: u64, reach: &mut dyn Reach) {
        self.at = now + 200;
        if self.until == Until::Placed && reach.waiting(VISITOR) == Some(0) {
            self.silent = true;
        }
        if self.again.is_some_and(|at| at <= now) {
            (self.again, self.silent) = (None, false);
            self.rings += 1;
        }
        let bell = if self.silent { Bell::Silent } else { self.bell };
        let word = bell.ring(self.rings).to_le_bytes();
        reach.write(BATCH, self.control, BELL_BYTES as usize, &word);
    }
    fn ended(&mut self, stream: usize, _: usize, _: u64) {
        self.silent |= stream == VISITOR;
    }
}

struct Seen {
    /// Tiles that were left half done.
    left: u32,
    /// Blocks of the batch that had a tile.
    came: u32,
    /// How long the visitor took, in nanoseconds.
    visit: u64,
    /// How long the batch took.
    batch: u64,
    /// Instructions of its warps.
    instructions: u64,
}

/// How many tiles a batch has, how many steps each has more than the one before, what bodies do, and how many multiprocessors it was
/// planned for that it has not got.
#[derive(Clone, Copy)]
struct Batch {
    tiles: u32,
    longer: u32,
    does: Body,
    lacks: u32,
}

/// Tiles of the same length.
fn even(tiles: u32, does: Body) -> Batch {
    Batch {
        tiles,
        longer: 0,
        does,
        lacks: 0,
    }
}

/// A batch whose bell is rung from `from` on, and a visitor of so many blocks.
fn visited(policy: &str, bell: Bell, from: u64, blocks: u32) -> Seen {
    visited_at_work(even(TILES, Body::Looks), policy, bell, from, blocks)
}

/// The same for any batch.
fn visited_at_work(batch: Batch, policy: &str, bell: Bell, from: u64, blocks: u32) -> Seen {
    company(batch, policy, (bell, Until::Placed), from, (blocks, 0))
}

/// The same for a bell that is silenced then, and a visitor whose blocks are so many steps longer than the one before.
fn company(
    batch: Batch,
    policy: &str,
    bell: (Bell, Until),
    from: u64,
    visitor: (u32, u32),
) -> Seen {
    visits(batch, policy, bell, from, visitor, None)
}

/// The same for a visitor that comes `again`, whose last visit is timed.
fn visits(
    Batch {
        tiles,
        longer: own_longer,
        does,
        lacks,
    }: Batch,
    policy: &str,
    (bell, until): (Bell, Until),
    from: u64,
    (blocks, longer): (u32, u32),
    again: Option<u64>,
) -> Seen {
    let device = Device::of(Gpu {
        sms: SMS,
        ..Gpu::H200
    });
    let schedule = format!("ticket late pausing {policy}");
    let schedule = schedule.parse().unwrap_or_else(|error| panic!("{error}"));
    let batch = match lacks {
        0 => kernel(&schedule, tiles, STEPS, does),
        _ => numbered(&schedule, tiles, STEPS, does),
    };
    let visitor = kernel(&Schedule::new(TileSource::Direct), blocks, STEPS, does);
    let mut launches = Vec::new();
    for (kernel, longer, lacks) in [(&batch, own_longer, lacks), (&visitor, longer, 0)] {
        let plan = kernel.plan(SMS + lacks).expect("a launch");
        let tiles = kernel.tiles().x;
        let own = Count {
            runs: Arg::in_out(&vec![0u32; tiles as usize + 3]),
            tiles,
            longer,
        };
        let program = Program::from_module("count.ptx", &kernel.built.module);
        launches.push((program, kernel.arguments(&plan, own), plan));
    }
    let times = [(0, 0), (-5, COMES)];
    let streams = launches.iter().zip(times);
    let streams: Vec<Stream<'_>> = streams
        .map(
            |((program, arguments, plan), (priority, not_before))| Stream {
                priority,
                orders: [Some(not_before), again.filter(|_| priority < 0)]
                    .into_iter()
                    .flatten()
                    .map(|not_before| Order {
                        program: program.simulated().expect("a kernel"),
                        entry: "count",
                        launch: &plan.launch,
                        arguments,
                        not_before,
                    })
                    .collect(),
            },
        )
        .collect();
    let mut ringer = Ringer {
        control: batch.readout(&launches[BATCH].2).control(),
        bell,
        at: from,
        until,
        again,
        silent: false,
        rings: 0,
    };
    let ran = together(&device, &streams, &bounded(), &mut ringer)
        .unwrap_or_else(|found| panic!("{found:?}"));
    let found = &ran[BATCH][0].report.diagnostics;
    assert!(found.is_empty(), "{found:#?}");
    let runs = batch.output(&ran[BATCH][0].report.outcome, "runs");
    let mut runs = runs.and_then(|runs| runs.to_vec::<u32>()).expect("words");
    let came = runs.pop().expect("three more");
    let steps = runs.pop().expect("two more");
    // A tile that was left goes on where it was left: no step is done again.
    let longer = own_longer * (0..tiles).sum::<u32>();
    assert_eq!(steps, tiles * STEPS + longer, "{bell:?}");
    let left = runs.pop().expect("one more");
    assert!(runs.iter().all(|runs| *runs == 1), "{bell:?}: {runs:?}");
    let took = |stream: usize| ran[stream].last().map_or(0, |ran| ran.ended - ran.ready);
    Seen {
        left,
        came,
        visit: took(VISITOR),
        batch: took(BATCH),
        instructions: ran[BATCH][0].report.stats.warp_instructions,
    }
}

/// What the visitor takes at least: it has no blocks behind others.
const VISIT_NS: u64 = STEPS as u64 * STEP_NS as u64;
/// How long it waits for a step of the batch, and for what a block does before and after.
const WAIT_NS: u64 = 10_000;

#[test]
fn a_bell_for_some_has_as_many_blocks_leave() {
    for blocks in [1, 2, 4] {
        for policy in ["until-asked", "greedy", "until-asked & max-steals(30)"] {
            let seen = visited(policy, Bell::For(blocks), COMES + 1_000, blocks);
            assert_eq!(seen.left, blocks, "{policy}");
            assert!(seen.visit < VISIT_NS + WAIT_NS, "{policy}: {}", seen.visit);
        }
        let seen = visited("until-asked", Bell::All, COMES + 1_000, blocks);
        assert!(seen.left > blocks, "{}", seen.left);
    }
}

/// The bell is rung before the visitor has come: blocks of the batch take the places that its blocks
/// left, and make room again.
#[test]
fn who_comes_back_makes_room_for_another_that_leaves() {
    for bell in [Bell::For(2), Bell::Once(2)] {
        let seen = visited("until-asked", bell, COMES - 20_000, 2);
        assert!(seen.left > 4, "{bell:?}: {}", seen.left);
        assert!(seen.visit < VISIT_NS + WAIT_NS, "{bell:?}: {}", seen.visit);
    }
}

/// The same where those that come begin with the tile of their own number: they were planned to be among the first, and found no place.
#[test]
fn who_comes_late_to_its_own_tile_makes_room_for_another_that_leaves() {
    let batch = Batch {
        lacks: 2,
        ..even(TILES, Body::Looks)
    };
    let seen = visited_at_work(batch, "until-asked", Bell::For(2), COMES - 20_000, 2);
    // 8; one that is counted in at each of its looks has 14 leave.
    assert!((4..=10).contains(&seen.left), "{}", seen.left);
    assert!(seen.visit < VISIT_NS + WAIT_NS, "{}", seen.visit);
}

/// A bell that is silenced at the end of a visitor whose blocks are so many steps longer than the one before.
fn rung_to_the_end(policy: &str, bell: Bell, blocks: u32, longer: u32) -> Seen {
    let (batch, bell) = (even(TILES, Body::Looks), (bell, Until::Ended));
    company(batch, policy, bell, COMES + 1_000, (blocks, longer))
}

/// The bell is rung until the visitor's last block has ended, and the others end before: blocks of the batch come back
/// while it is rung. Where it says that the visitor is one launch they were not needed any more, and nobody leaves
/// in their place. Rung for more launches they make room for the next one.
#[test]
fn who_comes_back_behind_a_visitor_makes_nobody_leave() {
    for (blocks, policy) in [(3, "greedy"), (5, "until-asked")] {
        let once = rung_to_the_end(policy, Bell::Once(blocks), blocks, 4);
        let more = rung_to_the_end(policy, Bell::For(blocks), blocks, 4);
        assert_eq!(once.left, blocks, "{policy}");
        assert!(more.left > 2 * blocks, "{policy}: {}", more.left);
        assert!(once.batch < more.batch, "{policy}");
        assert!(once.visit <= more.visit, "{policy}");
    }
}

/// Another kernel may have been in the place, and the visitor still needs one: who is back counts as away for some time
/// only.
#[test]
fn who_is_back_for_long_makes_room_again() {
    let seen = rung_to_the_end("until-asked", Bell::Once(5), 5, 12);
    assert!(seen.left > 5, "{}", seen.left);
}

/// A block that is back is there for the next visitor, though the bell was silent for less than a step in between.
#[test]
fn who_is_back_leaves_for_the_next_visitor() {
    let (longer, batch) = (4, even(2 * TILES, Body::Looks));
    let longest = VISIT_NS + 3 * u64::from(longer * STEP_NS);
    let (bell, again) = ((Bell::Once(4), Until::Ended), COMES + longest + 6_000);
    let seen = visits(
        batch,
        "until-asked",
        bell,
        COMES + 1_000,
        (4, longer),
        Some(again),
    );
    assert!(seen.visit < longest + WAIT_NS, "{}", seen.visit);
}

/// A visitor that needs more blocks than the bell says waits for its own.
#[test]
fn a_bell_for_fewer_than_come_leaves_the_others_at_work() {
    let seen = visited("until-asked", Bell::For(1), COMES + 1_000, 2);
    assert!(seen.left < SMS, "{}", seen.left);
    assert!(seen.visit > VISIT_NS + WAIT_NS, "{}", seen.visit);
}

/// Nobody asks, so a policy that keeps its blocks keeps them to the last tile, though others are there
/// to go on.
#[test]
fn who_is_not_asked_does_not_leave() {
    for policy in ["greedy", "until-asked"] {
        let seen = visited(policy, Bell::Silent, COMES, 1);
        let rest = u64::from(TILES / SMS) * VISIT_NS - COMES;
        assert_eq!(seen.left, 0, "{policy}");
        assert!(seen.visit > rest, "{policy}: {} of {rest}", seen.visit);
    }
}

/// All blocks want to leave at the same moment, behind equal tiles, and no more do than are still to come.
#[test]
fn who_leaves_at_the_end_of_a_tile_has_a_successor_of_its_own() {
    for policy in ["max-steals(1)", "never"] {
        // With a block for each tile, as `never` has it, nobody is overruled.
        let tiles = 250;
        let batch = even(tiles, Body::Looks);
        let seen = visited_at_work(batch, policy, Bell::Silent, COMES, 1);
        let least = u64::from(tiles.div_ceil(SMS)) * VISIT_NS;
        assert!(
            seen.batch < least * 5 / 4,
            "{policy}: {} of {least}",
            seen.batch
        );
    }
}

/// A body that says what it heard spares the policy a look of its own. It is taken once, at the end of its tile: a bell that is silent
/// by then is not answered, and whoever says nothing is asked what the bell says now.
#[test]
fn what_a_body_heard_stands_for_the_bell_at_the_end_of_its_tile() {
    let visit = |does, bell| {
        let seen = visited_at_work(even(TILES, does), "until-asked", bell, 0, 1);
        assert_eq!(seen.left, 0);
        seen.visit
    };
    let tile = VISIT_NS + WAIT_NS;
    let (rung, rest) = (Bell::All, u64::from(TILES / SMS) * VISIT_NS - COMES);
    assert!(visit(Body::Deaf, rung) < VISIT_NS + tile);
    assert!(visit(Body::Heard(rung.word()), rung) < VISIT_NS + tile);
    assert!(visit(Body::Heard(0), rung) > rest);
    assert!(visit(Body::Heard(rung.word()), Bell::Silent) > rest);
}

/// Blocks that end their tiles one after the other, and do not look at the bell before: one leaves, and counts as away as long as
/// the visitor has its place.
#[test]
fn who_leaves_at_the_end_of_a_tile_counts_as_away() {
    let batch = Batch {
        longer: 1,
        ..even(TILES, Body::Deaf)
    };
    // Of the last visitor one block ends long before the other: who comes behind it holds the place.
    for (blocks, bell, longer) in [
        (1, Bell::For(1), 0),
        (2, Bell::For(2), 0),
        (2, Bell::Once(2), 8),
    ] {
        let (rung, visitor) = ((bell, Until::Ended), (blocks, longer));
        let seen = company(batch, "until-asked", rung, COMES + 1_000, visitor);
        assert_eq!((seen.left, seen.came), (0, SMS + blocks), "{bell:?}");
    }
}

/// A block has one tile, whether bodies look at the bell or not: there is a block for each.
#[test]
fn never_leaves_after_one_tile_where_tiles_may_be_left() {
    for does in [Body::Looks, Body::Deaf] {
        let seen = visited_at_work(even(TILES, does), "never", Bell::Silent, COMES, 1);
        assert_eq!((seen.left, seen.came), (0, TILES));
    }
}

/// A launch that has so many multiprocessors to itself.
fn alone(
    kernel: &TiledKernel<Count>,
    plan: &Plan,
    [tiles, longer]: [u32; 2],
    sms: u32,
    host: &mut dyn Host,
) -> Ran {
    let own = Count {
        runs: Arg::in_out(&vec![0u32; tiles as usize + 3]),
        tiles,
        longer,
    };
    let arguments = kernel.arguments(plan, own);
    let program = Program::from_module("count.ptx", &kernel.built.module);
    let streams = [Stream {
        priority: 0,
        orders: vec![Order {
            program: program.simulated().expect("a kernel"),
            entry: "count",
            launch: &plan.launch,
            arguments: &arguments,
            not_before: 0,
        }],
    }];
    let device = Device::of(Gpu { sms, ..Gpu::H200 });
    let mut ran =
        together(&device, &streams, &bounded(), host).unwrap_or_else(|found| panic!("{found:?}"));
    let ran = ran.remove(BATCH).remove(0);
    let found = &ran.report.diagnostics;
    assert!(found.is_empty(), "{found:#?}");
    ran
}

/// Blocks that come for nothing come one after the other, and those that look at the bell do so at every step: neither tries what the words
/// that it loads anyway say to be in vain. By instructions of warps.
#[test]
fn who_comes_or_looks_in_vain_touches_nothing() {
    let schedule = "ticket late pausing greedy".parse().expect("a schedule");
    let cost = |leaving| {
        let kernel = kernel(&schedule, TILES, STEPS, Body::Deaf).leaving(leaving);
        let plan = kernel.plan(SMS).expect("a launch");
        let stats = alone(&kernel, &plan, [TILES, 0], SMS, &mut Silent)
            .report
            .stats;
        (stats.warp_instructions, stats.blocks)
    };
    let (more, fewer) = (cost(1), cost(8));
    let (cost, blocks) = (more.0 - fewer.0, more.1 - fewer.1);
    assert_eq!(blocks, 29);
    // 121 each.
    assert!(cost < blocks * 125, "{}", cost / blocks);
    let looks = |bell| {
        let (batch, bell) = (even(TILES, Body::Looks), (bell, Until::Ended));
        company(batch, "greedy", bell, COMES + 1_000, (1, 0)).instructions
    };
    // One leaves, and the others look as often as the visitor has steps: 11 instructions each, with what the one does.
    let cost = looks(Bell::For(1)) - looks(Bell::Silent);
    let looks = u64::from((SMS - 1) * STEPS);
    assert!(cost < looks * 20, "{}", cost / looks);
}

/// Three blocks run at a time where one was expected, so that the last block to come finds more tiles than blocks that are still to come.
#[test]
fn never_is_overruled_where_no_block_would_come_for_the_rest() {
    let schedule = "ticket late pausing never".parse().expect("a schedule");
    let kernel = watched(Watch::Trace, &schedule, 9, 2, Body::Deaf);
    let plan = kernel.plan(1).expect("a launch");
    let report = alone(&kernel, &plan, [9, 0], 3, &mut Silent).report;
    let report = kernel.report(&plan, &report.outcome, &place(3));
    let trace = report.expect("a report").trace.expect("a trace");
    assert_eq!(trace.miscounted_tiles(Dim3::from(9)), []);
    let overruled = trace.decisions.iter();
    let overruled = overruled.filter(|one| one.kind == DecisionKind::Overruled);
    assert_eq!(overruled.count(), 1);
}

/// Rings for all until two tiles were left, and once more, for a step, when the second tile has ended.
struct Twice {
    control: usize,
    at: u64,
    again: Option<u64>,
}

impl Host for Twice {
    fn next(&self) -> Option<u64> {
        Some(self.at)
    }
    fn act(&mut self, now: u64, reach: &mut dyn Reach) {
        self.at = now + 500;
        let mut count = |at: usize| {
            let mut word = [0; 4];
            reach.read(BATCH, 0, 4 * at, &mut word);
            u32::from_le_bytes(word)
        };
        let (second, left) = (count(1), count(4));
        if second == 1 {
            self.again.get_or_insert(now + 10_000);
        }
        let again = self.again.is_some_and(|at| (at..at + 3_000).contains(&now));
        let rung = left < 2 || again;
        let bell = if rung { Bell::All } else { Bell::Silent };
        let word = bell.ring(0).to_le_bytes();
        reach.write(BATCH, self.control, BELL_BYTES as usize, &word);
    }
}

/// Two blocks at a time and four slots. Both are left early; the longest goes on, and keeps its slot, while the other one ends.
/// The next block to come is the fifth: the slot that it tries first is that of the longest.
fn rung_twice(watch: Watch) -> LaunchReport {
    const LONGEST: u32 = 60;
    const SHORTER: u32 = 15;
    let schedule = "ticket late pausing never".parse().expect("a schedule");
    let kernel = watched(watch, &schedule, 4, LONGEST, Body::Looks);
    let plan = kernel.plan(2).expect("a launch");
    let mut host = Twice {
        control: kernel.readout(&plan).control(),
        at: 0,
        again: None,
    };
    let report = alone(&kernel, &plan, [4, SHORTER.wrapping_neg()], 2, &mut host).report;
    let runs = kernel.output(&report.outcome, "runs");
    let runs = runs.and_then(|runs| runs.to_vec::<u32>()).expect("words");
    let steps = 4 * LONGEST - 6 * SHORTER;
    assert_eq!(runs[..6], [1, 1, 1, 1, 4, steps]);
    kernel
        .report(&plan, &report.outcome, &place(2))
        .expect("a report")
}

#[test]
fn a_block_whose_first_slot_is_taken_leaves_its_tile_in_another() {
    rung_twice(Watch::Off);
}

#[test]
fn a_tile_is_recorded_where_it_ends_and_not_where_it_is_left() {
    let trace = rung_twice(Watch::Trace).trace.expect("a trace");
    assert_eq!(trace.miscounted_tiles(Dim3::from(4)), []);
}

/// Rings for all from then on.
struct Always {
    control: usize,
    at: u64,
}

impl Host for Always {
    fn next(&self) -> Option<u64> {
        (self.at < u64::MAX).then_some(self.at)
    }
    fn act(&mut self, _: u64, reach: &mut dyn Reach) {
        let word = Bell::All.word().to_le_bytes();
        let rang = reach.write(BATCH, self.control, BELL_BYTES as usize, &word);
        assert!(rang, "the batch has not begun");
        self.at = u64::MAX;
    }
}

/// Three blocks at a time and two slots. The first leaves its tile in the first slot, the fourth ends it and begins another. Then the
/// third, whose slot is the first too, and the fourth leave theirs, and a visitor keeps both waiting.
#[test]
fn a_block_that_has_ended_a_tile_from_a_slot_keeps_nothing_of_the_slot() {
    const STEPS: u32 = 30;
    let schedule = "ticket late pausing greedy".parse::<Schedule>();
    let tiled = Tiled::<Count>::new("count", 9)
        .schedule(&schedule.expect("a schedule"))
        .state(0)
        .block(32);
    let batch = tiled.build(Arch::SM_90A, |k, args, tiles| {
        k.shared::<u8>("room", 200 << 10);
        let pause = tiles.pause().expect("it pauses");
        let (had, block) = (k.var(0u32), k.block().x);
        tiles.each(|tile| {
            let (step, left) = (k.var(pause.from()), k.var(false));
            had.set(had.get() + 1);
            k.while_(
                || step.get().lt(STEPS) & !left.get(),
                || {
                    k.nanosleep(STEP_NS);
                    step.set(step.get() + 1);
                    let leaves = |number, tile, at| {
                        block.eq(number) & had.get().eq(tile) & step.get().eq(at)
                    };
                    let may = leaves(0u32, 1u32, 25u32) | leaves(2, 2, 8) | leaves(3, 2, 8);
                    k.one_thread(|| {
                        let _ = pause.look_if(pause.listen(), may, step.get());
                    });
                    k.sync();
                    left.set(pause.left());
                    k.sync();
                },
            );
            k.one_thread(|| {
                let at = left.get().select(args.tiles, tile.x);
                args.runs.at(at).atomic_add(1u32);
            });
        })
    });
    let batch = batch.expect("a kernel").leaving(1);
    let visitor = Schedule::new(TileSource::Direct);
    let visitor = kernel(&visitor, 2, 2 * STEPS, Body::Deaf);
    // As if one block ran at a time: fewer slots.
    let plans = [batch.plan(1).expect("it"), visitor.plan(3).expect("it")];
    let own = |tiles: u32| Count {
        runs: Arg::in_out(&vec![0u32; tiles as usize + 3]),
        tiles,
        longer: 0,
    };
    let arguments = [
        batch.arguments(&plans[0], own(9)),
        visitor.arguments(&plans[1], own(2)),
    ];
    let programs =
        [&batch, &visitor].map(|kernel| Program::from_module("count.ptx", &kernel.built.module));
    let streams: Vec<Stream<'_>> = [(0, 0), (-5, 64_000)]
        .into_iter()
        .enumerate()
        .map(|(at, (priority, not_before))| Stream {
            priority,
            orders: vec![Order {
                program: programs[at].simulated().expect("a kernel"),
                entry: "count",
                launch: &plans[at].launch,
                arguments: &arguments[at],
                not_before,
            }],
        })
        .collect();
    let mut host = Always {
        control: batch.readout(&plans[0]).control(),
        at: 20_000,
    };
    let device = Device::of(Gpu {
        sms: 3,
        ..Gpu::H200
    });
    let ran = together(&device, &streams, &bounded(), &mut host)
        .unwrap_or_else(|found| panic!("{found:?}"));
    let report = &ran[BATCH][0].report;
    assert!(report.diagnostics.is_empty(), "{:#?}", report.diagnostics);
    let runs = batch.output(&report.outcome, "runs");
    let runs = runs.and_then(|runs| runs.to_vec::<u32>()).expect("words");
    assert_eq!(runs[..10], [1, 1, 1, 1, 1, 1, 1, 1, 1, 3]);
}
