//! Random schedules of cluster launch control: every block runs exactly once.
//!
//! Each schedule is a grid, a cluster, a policy, a small device and a seed, all
//! drawn from the schedule's number, with chaos on. The kernels count every block they
//! run, their own and the stolen ones; a count that is not one is a lost or a
//! doubled block. `HEIST_CLC_SCHEDULES` says how many schedules are run, and
//! `HEIST_CLC_FIRST` at which one to begin:
//!
//! `HEIST_CLC_SCHEDULES=1000000 cargo test --release -p heist-sim --test clc_schedules -- --nocapture`

use heist_launch::{Arg, Arguments, DecisionKind, Dim3, Launch};
use heist_ptx::arch::Gpu;
use heist_sim::{Chaos, Device, Options, Program};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// `alone` has one request in flight and `ahead` two, in clusters of one block;
/// `together` answers a whole cluster at once. `limit` bounds how many blocks one
/// block (or cluster) steals before it stops asking, where its low bits and its
/// number say so; `nap` is how long it takes over a tile.
const KERNELS: &str = "
.version 8.6
.target sm_100a
.address_size 64

.visible .entry alone(.param .u64 p_count, .param .u32 p_salt, .param .u32 p_limit, .param .u32 p_nap)
{
    .reg .u32 x, y, z, gx, gy, t, left, limit, nap, phase;
    .reg .u64 count, c;
    .reg .b128 answer;
    .reg .pred first, p, stops;
    .shared .align 16 .b8 slot[16];
    .shared .align 8 .b64 full;
    ld.param.u64 count, [p_count];
    ld.param.u32 left, [p_salt];
    ld.param.u32 limit, [p_limit];
    ld.param.u32 nap, [p_nap];
    mov.u32 x, %ctaid.x;
    mov.u32 y, %ctaid.y;
    mov.u32 z, %ctaid.z;
    mov.u32 gx, %nctaid.x;
    mov.u32 gy, %nctaid.y;
    mad.lo.u32 left, x, 0x9e3779b1, left;
    mad.lo.u32 left, y, 0x85ebca77, left;
    mad.lo.u32 left, z, 0xc2b2ae3d, left;
    shr.u32 left, left, 13;
    and.b32 left, left, limit;
    mov.u32 phase, %tid.x;
    setp.eq.u32 first, phase, 0;
    mov.u32 phase, 0;
    @first mbarrier.init.shared::cta.b64 [full], 1;
    @first fence.mbarrier_init.release.cluster;
    bar.sync 0;
tile:
    setp.eq.u32 stops, left, 0;
    @stops bra count_it;
    @!first bra count_it;
    mbarrier.arrive.expect_tx.relaxed.cta.shared::cta.b64 _, [full], 16;
    clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 [slot], [full];
count_it:
    @!first bra counted;
    mad.lo.u32 t, z, gy, y;
    mad.lo.u32 t, t, gx, x;
    mad.wide.u32 c, t, 4, count;
    red.global.add.u32 [c], 1;
    nanosleep.u32 nap;
counted:
    @stops bra done;
wait:
    mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 p, [full], phase;
    @!p bra wait;
    ld.shared.b128 answer, [slot];
    clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 p, answer;
    @!p bra done;
    clusterlaunchcontrol.query_cancel.get_first_ctaid.v4.b32.b128 {x, y, z, _}, answer;
    fence.proxy.async.shared::cta;
    bar.sync 0;
    xor.b32 phase, phase, 1;
    sub.u32 left, left, 1;
    bra tile;
done:
    ret;
}

.visible .entry ahead(.param .u64 p_count, .param .u32 p_salt, .param .u32 p_limit, .param .u32 p_nap)
{
    .reg .u32 x, y, z, gx, gy, t, s, left, limit, nap, phases, flying, slot_, full_;
    .reg .u64 count, c;
    .reg .b128 answer;
    .reg .pred p, q;
    .shared .align 16 .b8 slot[32];
    .shared .align 8 .b64 full[2];
    mov.u32 t, %tid.x;
    setp.ne.u32 p, t, 0;
    @p bra done;
    ld.param.u64 count, [p_count];
    ld.param.u32 left, [p_salt];
    ld.param.u32 limit, [p_limit];
    ld.param.u32 nap, [p_nap];
    mov.u32 x, %ctaid.x;
    mov.u32 y, %ctaid.y;
    mov.u32 z, %ctaid.z;
    mov.u32 gx, %nctaid.x;
    mov.u32 gy, %nctaid.y;
    mad.lo.u32 left, x, 0x9e3779b1, left;
    mad.lo.u32 left, y, 0x85ebca77, left;
    shr.u32 left, left, 13;
    and.b32 left, left, limit;
    mbarrier.init.shared::cta.b64 [full], 1;
    mbarrier.init.shared::cta.b64 [full+8], 1;
    fence.mbarrier_init.release.cluster;
    mov.u32 phases, 0;
    mov.u32 flying, 3;
    mov.u32 s, 1;
    mbarrier.arrive.expect_tx.relaxed.cta.shared::cta.b64 _, [full], 16;
    clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 [slot], [full];
    mbarrier.arrive.expect_tx.relaxed.cta.shared::cta.b64 _, [full+8], 16;
    clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 [slot+16], [full+8];
tile:
    mad.lo.u32 t, z, gy, y;
    mad.lo.u32 t, t, gx, x;
    mad.wide.u32 c, t, 4, count;
    red.global.add.u32 [c], 1;
    nanosleep.u32 nap;
next:
    // the slot that was asked for longest ago and still flies
    setp.eq.u32 p, flying, 0;
    @p bra done;
    xor.b32 s, s, 1;
    shr.u32 t, flying, s;
    and.b32 t, t, 1;
    setp.eq.u32 p, t, 0;
    @p xor.b32 s, s, 1;
    mov.u32 full_, full;
    mad.lo.u32 full_, s, 8, full_;
    mov.u32 slot_, slot;
    mad.lo.u32 slot_, s, 16, slot_;
    shr.u32 t, phases, s;
    and.b32 t, t, 1;
wait:
    mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 p, [full_], t;
    @!p bra wait;
    ld.shared.b128 answer, [slot_];
    fence.proxy.async.shared::cta;
    mov.u32 t, 1;
    shl.b32 t, t, s;
    xor.b32 phases, phases, t;
    xor.b32 flying, flying, t;
    clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 p, answer;
    @p bra granted;
    mov.u32 left, 0;
    bra next;
granted:
    clusterlaunchcontrol.query_cancel.get_first_ctaid.v4.b32.b128 {x, y, z, _}, answer;
    setp.eq.u32 q, left, 0;
    @q bra tile;
    sub.u32 left, left, 1;
    or.b32 flying, flying, t;
    mbarrier.arrive.expect_tx.relaxed.cta.shared::cta.b64 _, [full_], 16;
    clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 [slot_], [full_];
    bra tile;
done:
    ret;
}

.visible .entry together(.param .u64 p_count, .param .u32 p_salt, .param .u32 p_limit, .param .u32 p_nap)
{
    .reg .u32 x, y, z, ox, oy, oz, gx, gy, t, r, n, k, left, limit, nap, phase, empty_phase, full_, empty_, peer;
    .reg .u64 count, c;
    .reg .b128 answer;
    .reg .pred first, leader, p, stops;
    .shared .align 16 .b8 slot[16];
    .shared .align 8 .b64 full;
    .shared .align 8 .b64 empty;
    ld.param.u64 count, [p_count];
    ld.param.u32 left, [p_salt];
    ld.param.u32 limit, [p_limit];
    ld.param.u32 nap, [p_nap];
    mov.u32 x, %clusterid.x;
    mov.u32 y, %clusterid.y;
    mad.lo.u32 left, x, 0x9e3779b1, left;
    mad.lo.u32 left, y, 0x85ebca77, left;
    shr.u32 left, left, 13;
    and.b32 left, left, limit;
    mov.u32 x, %ctaid.x;
    mov.u32 y, %ctaid.y;
    mov.u32 z, %ctaid.z;
    mov.u32 ox, %cluster_ctaid.x;
    mov.u32 oy, %cluster_ctaid.y;
    mov.u32 oz, %cluster_ctaid.z;
    mov.u32 gx, %nctaid.x;
    mov.u32 gy, %nctaid.y;
    mov.u32 r, %cluster_ctarank;
    mov.u32 n, %cluster_nctarank;
    mov.u32 full_, full;
    mov.u32 empty_, empty;
    mov.u32 phase, 0;
    mov.u32 empty_phase, 1;
    mov.u32 t, %tid.x;
    setp.eq.u32 first, t, 0;
    setp.eq.and.u32 leader, r, 0, first;
    @!first bra ready;
    mbarrier.init.shared::cta.b64 [full_], 1;
    mbarrier.init.shared::cta.b64 [empty_], n;
    fence.mbarrier_init.release.cluster;
ready:
    barrier.cluster.arrive.release;
    barrier.cluster.wait.acquire;
tile:
    setp.eq.u32 stops, left, 0;
    @stops bra work;
    @!leader bra work;
free:
    mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [empty_], empty_phase;
    @!p bra free;
    xor.b32 empty_phase, empty_phase, 1;
    mov.u32 k, 0;
arm:
    mapa.shared::cluster.u32 peer, full_, k;
    mbarrier.arrive.expect_tx.release.cluster.shared::cluster.b64 _, [peer], 16;
    add.u32 k, k, 1;
    setp.lt.u32 p, k, n;
    @p bra arm;
    clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.multicast::cluster::all.b128 [slot], [full_];
work:
    @!first bra worked;
    mad.lo.u32 t, z, gy, y;
    mad.lo.u32 t, t, gx, x;
    mad.wide.u32 c, t, 4, count;
    red.global.add.u32 [c], 1;
    nanosleep.u32 nap;
worked:
    @stops bra done;
wait:
    mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [full_], phase;
    @!p bra wait;
    xor.b32 phase, phase, 1;
    sub.u32 left, left, 1;
    ld.shared.b128 answer, [slot];
    fence.proxy.async.shared::cta;
    bar.sync 0;
    mapa.shared::cluster.u32 peer, empty_, 0;
    @first mbarrier.arrive.release.cluster.shared::cluster.b64 _, [peer];
    clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 p, answer;
    @!p bra done;
    clusterlaunchcontrol.query_cancel.get_first_ctaid.v4.b32.b128 {x, y, z, _}, answer;
    add.u32 x, x, ox;
    add.u32 y, y, oy;
    add.u32 z, z, oz;
    bra tile;
done:
    barrier.cluster.arrive.release;
    barrier.cluster.wait.acquire;
    ret;
}
";

/// A stream of numbers that follows from the schedule's number alone.
struct Draw(u64);

impl Draw {
    fn below(&mut self, end: u32) -> u32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((u64::from((z ^ (z >> 31)) as u32) * u64::from(end)) >> 32) as u32
    }

    fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u32) as usize]
    }
}

/// Everything that one schedule is made of.
#[derive(Debug)]
struct Schedule {
    entry: &'static str,
    device: Device,
    launch: Launch,
    options: Options,
    salt: u32,
    limit: u32,
    nap: u32,
}

impl Schedule {
    fn number(number: u64) -> Schedule {
        let mut draw = Draw(number.wrapping_mul(0xd1b5_4a32_d192_ed03));
        let entry = draw.of(&["alone", "ahead", "together"]);
        let cluster = if entry == "together" {
            draw.of(&[
                Dim3::new(2, 1, 1),
                Dim3::new(1, 2, 1),
                Dim3::new(1, 1, 2),
                Dim3::new(2, 2, 1),
                Dim3::new(4, 1, 1),
                Dim3::new(1, 3, 1),
            ])
        } else {
            Dim3::ONE
        };
        let grid = Dim3::new(
            cluster.x * (1 + draw.below(5)),
            cluster.y * (1 + draw.below(3)),
            cluster.z * (1 + draw.below(2)),
        );
        let sms = cluster.count() as u32 * (1 + draw.below(3));
        Schedule {
            entry,
            device: Device::of(Gpu { sms, ..Gpu::B200 }),
            launch: Launch::new(grid, draw.of(&[1, 32, 33]))
                .cluster(cluster)
                .dynamic_shared(draw.of(&[0, 60_000, 100_000, 200_000])),
            options: Options {
                seed: 1 + u64::from(draw.below(u32::MAX)),
                chaos: Chaos {
                    refusals: draw.of(&[0, 2, 4, 16]),
                    delay: draw.of(&[1, 100, 2000, 20_000]),
                    reorder: draw.below(2) == 0,
                    crowded: false,
                },
                ..Options::default()
            },
            salt: draw.below(u32::MAX),
            limit: draw.of(&[0, 1, 3, 0xffff]),
            nap: draw.of(&[0, 200, 3000]),
        }
    }

    /// Runs it: how many requests were granted and refused, or what went wrong.
    fn run(&self, program: &Program) -> Result<[u64; 2], String> {
        let blocks = self.launch.blocks() as usize;
        let arguments = Arguments::new([
            Arg::in_out(&vec![0u32; blocks]),
            Arg::scalar(self.salt),
            Arg::scalar(self.limit),
            Arg::scalar(self.nap),
        ]);
        let report = program
            .run(
                &self.device,
                self.entry,
                &self.launch,
                &arguments,
                &self.options,
            )
            .map_err(|errors| format!("it does not start: {errors:?}"))?;
        if let Some(found) = report.diagnostics.first() {
            return Err(format!("{}: {}", found.code, found.message));
        }
        let counts = report
            .outcome
            .output(0usize)
            .and_then(|buffer| buffer.to_vec::<u32>())
            .unwrap_or_default();
        let lost = counts.iter().filter(|&&count| count == 0).count();
        let doubled = counts.iter().filter(|&&count| count > 1).count();
        if counts.len() != blocks || lost + doubled > 0 {
            return Err(format!(
                "{lost} blocks lost and {doubled} doubled: {counts:?}"
            ));
        }
        let seen = self.options.meter.read().map(|seen| seen.ended as usize);
        if seen != Some(blocks) {
            return Err(format!("the meter shows {seen:?} of {blocks} blocks"));
        }
        let trace = report.outcome.trace.ok_or("no trace")?;
        let spans: Vec<_> = trace.blocks.iter().map(|one| (one.block, one)).collect();
        for decision in &trace.decisions {
            let own = spans.iter().find(|(block, _)| *block == decision.block);
            let during = own.is_some_and(|(_, own)| (own.start..=own.end).contains(&decision.at));
            if !during {
                return Err(format!("{decision:?} is not while its block runs"));
            }
        }
        Ok([DecisionKind::Granted, DecisionKind::Refused]
            .map(|kind| trace.decisions_by(kind) as u64))
    }
}

fn from_environment(name: &str, otherwise: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name}={text}")),
        Err(_) => otherwise,
    }
}

#[test]
fn no_schedule_loses_or_doubles_a_block() {
    let first = from_environment("HEIST_CLC_FIRST", 0);
    let count = from_environment("HEIST_CLC_SCHEDULES", 2000);
    let source = heist_ptx::Source::new("clc_schedules.ptx", KERNELS);
    let program = Program::new(heist_ptx::parse(&source).expect("PTX")).expect("a program");
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let (next, granted, refused) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let failed: Mutex<Vec<(u64, String)>> = Mutex::default();
    let started = std::time::Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    if at >= count {
                        return;
                    }
                    match Schedule::number(first + at).run(&program) {
                        Ok([yes, no]) => {
                            granted.fetch_add(yes, Ordering::Relaxed);
                            refused.fetch_add(no, Ordering::Relaxed);
                        }
                        Err(why) => failed.lock().expect("no panics").push((first + at, why)),
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().expect("no panics");
    let (granted, refused) = (granted.into_inner(), refused.into_inner());
    println!(
        "{count} schedules from {first} on: {} failed, {granted} requests granted and {refused} refused, in {:.1} s",
        failed.len(),
        started.elapsed().as_secs_f64()
    );
    let told: Vec<String> = failed
        .iter()
        .take(5)
        .map(|(number, why)| format!("schedule {number}: {why}\n{:?}", Schedule::number(*number)))
        .collect();
    assert!(
        failed.is_empty(),
        "{} schedules failed\n{}",
        failed.len(),
        told.join("\n")
    );
    // Schedules in which nothing is stolen or refused would show nothing.
    assert!(
        granted > count / 2 && refused > count / 8,
        "too little was stolen: {granted} of {refused}"
    );
}
