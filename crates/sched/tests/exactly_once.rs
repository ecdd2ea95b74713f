//! Every tile runs exactly once, whatever the source, the policy, the cluster,
//! the order and the grid, and whatever the hardware does in between: each case
//! runs on the simulator with chaos (refusals for no reason, delays, launches
//! out of order) and with all checks on.
//!
//! A sample runs by default. `HEIST_MATRIX=5000 cargo test -p heist-sched --test
//! exactly_once` runs that many cases.

#[path = "common/adversaries.rs"]
mod adversaries;
#[allow(dead_code, reason = "not all of it is used here")]
mod common;

use common::{count, few, run_on};
use heist_builder::Arch;
use heist_launch::Dim3;
use heist_run::{DeviceName, Settings};
use heist_sched::*;
use std::fmt;

fn policies() -> Vec<AnyPolicy> {
    let texts = Catalogue::standard();
    let texts = texts.entries().iter().map(|entry| entry.example);
    let mut all: Vec<AnyPolicy> = texts
        .chain([
            "max-steals(1)",
            "every(3)",
            "max-steals(2) & first-half | every(2)",
            "!first-half",
            "time-budget(2us)",
            "token-bucket(1, 1)",
        ])
        .map(|text| text.parse().unwrap_or_else(|error| panic!("{error}")))
        .collect();
    all.extend(adversaries::all());
    all
}

/// Random numbers, for a case.
struct Dice(u64);

impl Dice {
    fn roll<T: Clone>(&mut self, sides: &[T]) -> T {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        sides[((x ^ (x >> 31)) % sides.len() as u64) as usize].clone()
    }
}

/// A case of the matrix.
struct Case {
    device: DeviceName,
    arch: Arch,
    source: TileSource,
    submit: Submit,
    policy: AnyPolicy,
    order: &'static str,
    tiles: Dim3,
    cluster: Dim3,
    threads: u32,
    resident: u32,
    grid: Option<TicketGrid>,
    watch: Watch,
    chaos: bool,
}

impl Case {
    /// That of a number.
    fn drawn(seed: u64, policies: &[AnyPolicy]) -> Case {
        let mut dice = Dice(seed);
        let (device, arch) = dice.roll(&[
            ("sim:b200", Arch::SM_100A),
            ("sim:b200", Arch::SM_100),
            ("sim:h200", Arch::SM_90A),
            ("sim:h200", Arch::SM_90),
            ("sim:l4", Arch::SM_89),
            ("sim:a100", Arch::SM_80),
        ]);
        let shapes = [
            [1, 1, 1],
            [2, 1, 1],
            [1, 2, 1],
            [2, 2, 1],
            [4, 1, 1],
            [1, 4, 1],
            [3, 1, 1],
            [2, 2, 2],
            [8, 1, 1],
            [1, 8, 1],
        ];
        let mut cluster = Dim3::from(dice.roll(&shapes));
        let mut source = dice.roll(&[
            TileSource::Clc,
            TileSource::Clc,
            TileSource::Ticket,
            TileSource::Ticket,
            TileSource::Static,
            TileSource::Direct,
        ]);
        if TileSource::Direct.check(arch, cluster).is_err() {
            cluster = Dim3::ONE;
        }
        if source.check(arch, cluster).is_err() {
            source = TileSource::Ticket;
        }
        let tiles = Dim3::from(dice.roll(&[
            [1, 1, 1],
            [2, 1, 1],
            [7, 1, 1],
            [61, 1, 1],
            [251, 1, 1],
            [400, 1, 1],
            [13, 11, 1],
            [1, 37, 1],
            [5, 3, 7],
            [3, 1, 29],
        ]));
        let policy = dice.roll(policies);
        let submit = dice.roll(&[Submit::Early, Submit::Late]);
        let watch = dice.roll(&[Watch::Off, Watch::Stats, Watch::Trace]);
        let order = dice.roll(&["linear", "reversed", "grouped(3)", "hilbert", "longest"]);
        let threads = dice.roll(&[32, 64, 96]);
        let resident = dice.roll(&[1, 3, 16, 200]);
        let grid = dice.roll(&[
            None,
            None,
            Some(TicketGrid::Full),
            Some(TicketGrid::Resident),
            Some(TicketGrid::Relief),
        ]);
        let chaos = dice.roll(&[false, true, true]);
        // With few multiprocessors most of the grid is launched late, or taken over.
        let device = match dice.roll(&[1, 3, 8, u32::MAX]) {
            u32::MAX => device.parse().expect("a name"),
            sms => few(device, sms * cluster.count() as u32),
        };
        Case {
            device,
            arch,
            source,
            submit,
            policy,
            order,
            tiles,
            cluster,
            threads,
            resident,
            grid,
            watch,
            chaos,
        }
    }

    /// The kernel that counts how often each tile runs.
    fn tiled(&self) -> Tiled<common::Count> {
        let Case { tiles, cluster, .. } = *self;
        let mut tiled = Tiled::new("count", tiles)
            .source(self.source)
            .policy(self.policy.clone())
            .submit(self.submit)
            .cluster(cluster)
            .watch(self.watch)
            .block(self.threads);
        tiled = match self.order {
            "longest" => {
                let clusters =
                    [0, 1, 2].map(|axis| tiles.to_array()[axis].div_ceil(cluster.to_array()[axis]));
                let costs: Vec<u64> = (0..Dim3::from(clusters).count())
                    .map(|at| at * 7919 % 31)
                    .collect();
                tiled.order(Table::longest_first(&costs))
            }
            name => tiled.any_order(name.parse().expect("an order")),
        };
        if let Some(grid) = self.grid {
            tiled = tiled.ticket_grid(grid);
        }
        tiled
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Case {
            device,
            arch,
            source,
            submit,
            policy,
            order,
            tiles,
            cluster,
            threads,
            resident,
            grid,
            watch,
            chaos,
        } = self;
        write!(
            f,
            "{device:?} {arch:?} {source} {submit} `{policy}` {order} tiles {tiles} \
             cluster {cluster} threads {threads} resident {resident} {grid:?} {watch:?} {chaos:?}"
        )
    }
}

fn check(seed: u64, policies: &[AnyPolicy]) {
    let case = Case::drawn(seed, policies);
    let what = format!("seed {seed}: {case}");
    let kernel = count(case.tiled(), case.arch).unwrap_or_else(|error| panic!("{what}: {error}"));
    let settings = Settings {
        seed,
        chaos: case.chaos,
        ..Settings::default()
    };
    let run = run_on(&kernel, case.device, case.resident, &settings, &what);
    let wrong: Vec<(usize, u32)> = run
        .runs
        .iter()
        .copied()
        .enumerate()
        .filter(|(_, runs)| *runs != 1)
        .collect();
    assert!(wrong.is_empty(), "{what}: tiles and runs {wrong:?}");
    assert!(run.report.counter_is_zero, "{what}: the counter");
    assert_eq!(run.report.ejected, None, "{what}");
    if let Some(stats) = &run.report.stats {
        let clusters = case.tiles.count().div_ceil(1) as u32;
        let total = stats.total();
        assert!(total.tiles <= clusters, "{what}: {total:?}");
        if case.cluster.count() == 1 {
            assert_eq!(total.tiles, clusters, "{what}: {total:?}");
        }
        assert!(total.refusals <= total.requests + total.tiles + stats.clusters.len() as u32);
    }
    if let Some(trace) = &run.report.trace {
        assert_eq!(trace.miscounted_tiles(case.tiles), [], "{what}");
    }
}

#[test]
fn the_matrix() {
    let cases: u64 = std::env::var("HEIST_MATRIX")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(400);
    let policies = policies();
    let seeds: Vec<u64> = (0..cases).collect();
    heist_oracle::parallel(&seeds, |&seed| check(seed, &policies));
}

/// What a kernel does with an order's index is what the order says on the host.
#[test]
fn a_gpu_walks_as_the_order_says() {
    for (name, extent) in [
        ("linear", [5, 3, 2]),
        ("reversed", [5, 3, 2]),
        ("grouped(2)", [5, 3, 2]),
        ("hilbert", [5, 3, 2]),
        ("hilbert", [7, 1, 1]),
    ] {
        let order: AnyOrder = name.parse().expect("an order");
        // Block i has the tile at index i, and adds i + 1 there.
        let tiled = Tiled::<common::Count>::new("count", extent)
            .source(TileSource::Direct)
            .any_order(order.clone())
            .block(32);
        let kernel = tiled.build(Arch::SM_90A, |k, args, tiles| {
            tiles.each(|tile| {
                k.one_thread(|| {
                    let index = k.block().x + 1;
                    args.runs.at(tile.number()).atomic_add(index);
                });
            })
        });
        let kernel = kernel.unwrap_or_else(|error| panic!("{name}: {error}"));
        let device = few("sim:h200", 2);
        let run = run_on(&kernel, device, 2, &Settings::default(), &name);
        let extent = Dim3::from(extent);
        for index in 0..extent.count() as u32 {
            let at = order.tile(index, extent);
            let number = at.x + extent.x * (at.y + extent.y * at.z);
            assert_eq!(
                run.runs[number as usize],
                index + 1,
                "{name} {index}: {at:?}"
            );
        }
    }
}

/// Stops where it is told of a tile that no cluster of two blocks along each axis begins with.
struct Aligned;

impl Policy for Aligned {
    type State<'k> = ();
    fn init<'k>(&self, _: &PolicyCx<'k>) {}
    fn should_try_steal<'k>(&self, cx: &PolicyCx<'k>, (): &()) -> heist_builder::Bool<'k> {
        cx.yes()
    }
    fn keep_going_after_success<'k>(
        &self,
        _: &PolicyCx<'k>,
        (): &(),
        stolen: TileId<'k>,
    ) -> heist_builder::Bool<'k> {
        // 4 x 2 x 3 clusters.
        let [x, y, z] = [stolen.x, stolen.y, stolen.z].map(|at| at / 2);
        let even = ((stolen.x | stolen.y | stolen.z) & 1).eq(0);
        even & (x + (y + z * 2) * 4).eq(stolen.index)
    }
}

#[test]
fn a_policy_is_told_the_first_tile_of_a_cluster() {
    for source in [TileSource::Clc, TileSource::Ticket] {
        let tiled = Tiled::new("count", [8, 4, 6])
            .source(source)
            .policy(Aligned)
            .cluster([2, 2, 2])
            .watch(Watch::Stats)
            .block(512);
        let kernel = count(tiled, Arch::SM_100A).expect("a kernel");
        let device = few("sim:b200", 4);
        let run = run_on(&kernel, device, 2, &Settings::default(), &source);
        assert!(run.runs.iter().all(|runs| *runs == 1), "{source}");
        let stats = run.report.stats.expect("figures");
        assert!(stats.total().stolen > 3, "{source}: {stats:?}");
        // Nobody who ran stopped before the last tile.
        let mut ran = stats.clusters.iter().filter(|cluster| cluster.tiles > 0);
        assert!(
            ran.all(|cluster| cluster.refusals > 0),
            "{source}: {stats:?}"
        );
    }
}

/// In a relief grid all that may retire have, and all others have drawn in vain, while one block is at a long
/// tile. It wanted to retire when it began; now it may not, and draws once more.
#[test]
fn a_late_block_draws_in_vain_before_the_counter_is_cleared() {
    for submit in [Submit::Early, Submit::Late] {
        let tiled = Tiled::<common::Count>::new("count", 40)
            .source(TileSource::Ticket)
            .submit(submit)
            .policy(adversaries::AlwaysDecline)
            .ticket_grid(TicketGrid::Relief)
            .watch(Watch::Stats)
            .block(32);
        let kernel = tiled.build(Arch::SM_90A, |k, args, tiles| {
            // One block a multiprocessor.
            let room = k.shared::<u32>("room", 30_000);
            k.one_thread(|| room.at(0).store(0u32));
            tiles.each(|tile| {
                k.one_thread(|| {
                    args.runs.at(tile.x).atomic_add(1u32);
                });
                k.nanosleep(tile.x.eq(1).select(k.c(900_000u32), 500));
            })
        });
        let kernel = kernel.unwrap_or_else(|error| panic!("{error}"));
        let device = few("sim:h200", 2);
        let run = run_on(&kernel, device, 2, &Settings::default(), &submit);
        assert!(
            run.runs.iter().all(|runs| *runs == 1),
            "{submit}: {:?}",
            run.runs
        );
        assert!(run.report.counter_is_zero, "{submit}");
        // Three of five may retire.
        let stats = run.report.stats.expect("figures");
        let refused = stats.clusters.iter().filter(|cluster| cluster.refusals > 0);
        assert_eq!(
            (refused.count(), stats.clusters.len()),
            (2, 5),
            "{submit}: {stats:?}"
        );
    }
}
