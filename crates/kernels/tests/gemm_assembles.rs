//! ptxas assembles the multiplications for every architecture that they claim,
//! without spills, and there are tensor-core instructions in what it makes.

use heist_kernels::gemm::{
    self, Activation, Epilogue, Gemm, Input, Layout, Output, Scales, Spread, Summing,
};
use heist_kernels::grouped::experts::{self, Experts};
use heist_kernels::grouped::{self, Grouped};
use heist_kernels::{Family, Job, Target, Variant};
use heist_oracle::{MachineCodes, Ptxas, parallel, sample};
use heist_sched::{Schedule, TileSource};

const MACHINES: [(&str, u32); 7] = [
    ("sm_80", 108),
    ("sm_86", 84),
    ("sm_89", 58),
    ("sm_90", 132),
    ("sm_100", 148),
    ("sm_90a", 132),
    ("sm_120", 170),
];

/// Those variants of a family that a machine can run and that are picked by
/// their number.
fn jobs<P>(
    family: &Family<P>,
    problem: &P,
    target: Target,
    pick: impl Fn(usize) -> bool,
    jobs: &mut Vec<(Target, Job)>,
) {
    let suited = |variant: &&&dyn Variant<Problem = P>| variant.suits(problem, target).is_ok();
    for (index, variant) in family.variants.iter().filter(suited).enumerate() {
        if pick(index) {
            let source = [TileSource::Direct, TileSource::Ticket][jobs.len() % 2];
            let job = variant.job(problem, Some(&Schedule::new(source)), target);
            jobs.push((target, job.expect("it suits, so it can be built")));
        }
    }
}

/// Warpgroups keep most of their registers for sums: every layout, with and
/// without edges, an epilogue and groups, has to do with the rest.
fn warpgroups(all: &mut Vec<(Target, Job)>) {
    let arch = heist_builder::Arch::SM_90A;
    let target = Target { arch, sms: 132 };
    use TileSource::{Direct, Static, Ticket};
    for (n, layout, check, sources) in [
        (512, Layout::Nt, false, [Direct, Ticket]),
        (512, Layout::Nn, true, [Static, Direct]),
        (600, Layout::Nn, false, [Ticket, Static]),
        (601, Layout::Nt, true, [Direct, Ticket]),
    ] {
        let mut groups = Grouped::rows(vec![40, 500, 0], n, 512, Input::Bf16, Output::Bf16);
        (groups.layout, groups.check) = (layout, check);
        for source in sources {
            let variant = grouped::FAMILY.choose(Some("wgmma-128x256"), &groups, target);
            let variant = variant.expect("it suits");
            let job = variant.job(&groups, Some(&Schedule::new(source)), target);
            all.push((target, job.expect("it suits, so it can be built")));
        }
    }
    // 8-bit floats: the tiles that suit few and many rows, of which the host expects all or few.
    for (scales, rows, room, n) in [
        (Scales::Blocks, 4000, 4000, 512),
        (Scales::Blocks, 10, 4000, 601),
        (Scales::Rows, 10, 100, 512),
        (Scales::Rows, 4000, 4000, 600),
    ] {
        let groups = Grouped::masked(vec![rows; 8], room, [n, 512], Input::E4m3, Output::Bf16);
        let groups = groups.scales(scales);
        let variant = grouped::FAMILY.choose(None, &groups, target);
        let job = variant.expect("it suits").job(&groups, None, target);
        all.push((target, job.expect("it suits, so it can be built")));
    }
    for (turn, &layout) in Layout::ALL.iter().enumerate() {
        let even = Gemm::new(512, 512, 512, Input::Bf16, Output::Bf16, layout);
        let odd = Gemm::new(504, 600, 264, Input::F16, Output::F32, layout).epilogue(Epilogue {
            alpha: 0.5,
            beta: 2.0,
            bias: true,
            activation: Activation::Gelu,
            ..Epilogue::default()
        });
        let ways = [
            [(Direct, "1x1"), (Ticket, "2x1")],
            [(Ticket, "1x1"), (Static, "1x2")],
        ];
        for (other, problem) in [even, odd].into_iter().enumerate() {
            for (source, cluster) in ways[(turn + other) % 2] {
                let variant = gemm::FAMILY.choose(Some("wgmma-128x256"), &problem, target);
                let variant = variant.expect("it suits");
                let mut schedule = Schedule::new(source);
                schedule.cluster = cluster.parse().expect("a shape");
                let job = variant.job(&problem, Some(&schedule), target);
                all.push((target, job.expect("it suits, so it can be built")));
            }
            if turn % 2 == other {
                let variant = gemm::FAMILY.choose(Some("wgmma-128x256"), &problem, target);
                let schedule = "ticket late pausing until-asked".parse().expect("one");
                let job = variant.and_then(|it| it.job(&problem, Some(&schedule), target));
                all.push((target, job.expect("its tiles can be left half done")));
            }
        }
    }
}

const PAUSING: &str = "ticket late pausing until-asked";
const LOADED: &str = "ticket late loaded: greedy";
const EARLY: &str = "ticket early loaded: greedy";
const STEALS: &str = "ticket late max-steals(4)";

fn schedule(text: &str) -> Schedule {
    text.parse().expect("one")
}

/// To leave a tile half done, or to interpret a policy, takes registers beside those that find its group.
fn groups_let_go(all: &mut Vec<(Target, Job)>) {
    let arch = heist_builder::Arch::SM_90A;
    let target = Target { arch, sms: 132 };
    let of = |scales, sums| {
        let groups = Grouped::rows(vec![1024; 8], 4096, 4096, Input::E4m3, Output::Bf16);
        Grouped {
            sums,
            ..groups.scales(scales)
        }
    };
    let masked = |scales, sums| {
        let rows = vec![100; 16];
        let groups = Grouped::masked(rows, 1024, [4096, 7168], Input::E4m3, Output::Bf16);
        Grouped {
            sums,
            ..groups.scales(scales)
        }
    };
    let fast = of(Scales::Rows, Summing::Fast);
    for (groups, text) in [
        (of(Scales::None, Summing::Levels), PAUSING),
        (of(Scales::Rows, Summing::Levels), PAUSING),
        (of(Scales::Blocks, Summing::Levels), PAUSING),
        (fast.clone(), PAUSING),
        (fast.clone(), EARLY),
        (masked(Scales::Blocks, Summing::Levels), EARLY),
    ] {
        let variant = grouped::FAMILY.choose(None, &groups, target);
        let job = variant.and_then(|it| it.job(&groups, Some(&schedule(text)), target));
        all.push((target, job.expect("some tiles hold it")));
    }
    let given = |groups: &Grouped, tiling: &str, text| {
        let tiling = tiling.parse().expect("a tile shape");
        grouped::job_with_tiling(groups, tiling, Some(&schedule(text)), target)
    };
    let job = given(&fast, "wgmma:128x256x64/4", PAUSING);
    all.push((target, job.expect("registers move")));
    let words = Grouped {
        output: Output::F32,
        ..of(Scales::None, Summing::Fast)
    };
    for (groups, tiling, text) in [
        (&fast, "wgmma:128x192x64/5/pingpong", PAUSING),
        (&fast, "wgmma:128x192x64/5/pingpong", LOADED),
        (&fast, "wgmma:256x192x64/3", LOADED),
        (&fast, "wgmma:128x256x64/4", EARLY),
        (&fast, "wgmma:256x128x64/4", EARLY),
        (&fast, "wgmma:128x256x64/4", STEALS),
        (&words, "wgmma:256x128x64/4", EARLY),
    ] {
        let refused = given(groups, tiling, text);
        let refused = refused.expect_err("it would spill").to_string();
        assert!(refused.contains("registers"), "{refused}");
    }
    // Where tiles of one shape are as fast as those that suit, these are taken, and hold what the schedule takes.
    let many = masked(Scales::Rows, Summing::Fast);
    let variant = grouped::FAMILY.choose(None, &many, target);
    let job = variant.and_then(|it| it.job(&many, Some(&schedule(STEALS)), target));
    job.expect("some tiles hold it");
    // An expert layer's second product, which weighs rows and puts them in their places.
    let layer = Experts {
        rows: vec![256; 64],
        per: 8,
        hidden: 2048,
        inner: 768,
        dtype: Input::Bf16,
    };
    let variant = experts::FAMILY.choose(None, &layer, target);
    let job = variant.and_then(|it| it.job(&layer, Some(&schedule(EARLY)), target));
    let mut job = job.expect("some tiles hold it");
    let at = job
        .steps
        .iter()
        .rposition(|step| step.ptx().contains("wgmma.mma_async"));
    job.steps.swap(0, at.expect("two products"));
    all.push((target, job));
}

/// What takes the most registers of its kind, none of it left to chance: C and bias of swapped operands; C beside what leaves a tile half
/// done or interprets a policy, in the widest tiles that hold both.
fn tight(all: &mut Vec<(Target, Job)>) {
    let arch = heist_builder::Arch::SM_90A;
    let target = Target { arch, sms: 132 };
    let full = Epilogue {
        alpha: 0.5,
        beta: 2.0,
        bias: true,
        activation: Activation::Gelu,
        ..Epilogue::default()
    };
    let with_c = Epilogue {
        beta: 2.0,
        ..Epilogue::default()
    };
    let with_bias = Epilogue {
        beta: 0.0,
        alpha: 1.0,
        ..full
    };
    let small = Gemm::new(500, 600, 512, Input::Bf16, Output::Bf16, Layout::Nt);
    let whole = Gemm::new(8192, 8192, 4096, Input::Bf16, Output::Bf16, Layout::Nn);
    let swapped = Gemm::new(8192, 8192, 4096, Input::Bf16, Output::Bf16, Layout::Nt);
    let none = Epilogue::default();
    let [pausing, loaded, early, steals] = [PAUSING, LOADED, EARLY, STEALS].map(schedule);
    let given = |problem: &Gemm, tiling: &str, schedule: Option<&Schedule>| {
        let tiling = tiling.parse().expect("a tile shape");
        gemm::job_with_tiling(problem, tiling, schedule, target)
    };
    for (problem, epilogue, tiling, schedule) in [
        (small, with_c, "wgmma:128x208x64/4/swapped", None),
        (small, full, "wgmma:128x240x64/4/swapped/cluster=2x2", None),
        (small, with_bias, "wgmma:192x184x64/3/swapped", None),
        (whole, full, "wgmma:128x168x64/5/pingpong", Some(&pausing)),
        (whole, with_c, "wgmma:128x128x64/6/pingpong", Some(&loaded)),
        (whole, full, "wgmma:192x184x64/3", Some(&loaded)),
        (whole, with_c, "wgmma:128x256x64/4", Some(&early)),
        (whole, full, "wgmma:192x152x64/4", Some(&early)),
        (whole, full, "wgmma:256x152x64/3", Some(&early)),
        (swapped, none, "wgmma:256x144x64/4/swapped", Some(&loaded)),
    ] {
        let job = given(&problem.epilogue(epilogue), tiling, schedule);
        all.push((target, job.expect("it can be built")));
    }
    let half = given(&swapped, "wgmma:256x136x64/4/swapped", Some(&loaded));
    half.expect_err("half of 16 columns would spill");
    let words = Gemm::new(8192, 8192, 4096, Input::Bf16, Output::F32, Layout::Nt);
    let words = given(&words, "wgmma:256x192x64/3", Some(&loaded));
    words.expect_err("words would spill");
    let whole = whole.epilogue(full);
    for (schedule, tiling) in [
        (&pausing, "wgmma:128x176x64/5/pingpong"),
        (&loaded, "wgmma:128x176x64/5/pingpong"),
        (&early, "wgmma:256x160x64/3"),
        (&early, "wgmma:192x176x64/4"),
        (&loaded, "wgmma:256x160x64/3/cluster=beside"),
        (&loaded, "wgmma:256x152x64/4/swapped"),
        (&loaded, "wgmma:128x256x64/4/tail"),
        (&early, "wgmma:128x256x64/4/tail"),
        (&steals, "wgmma:128x256x64/4/tail"),
    ] {
        let refused = given(&whole, tiling, Some(schedule));
        let refused = refused.expect_err("it would spill").to_string();
        assert!(refused.contains("registers"), "{refused}");
        let chosen = gemm::FAMILY.choose(None, &whole, target);
        let chosen = chosen.and_then(|it| it.job(&whole, Some(schedule), target));
        chosen.expect("some tiles hold it");
    }
}

/// C of which a row, a column or one element is stored: what is chosen for large and small products, under every kind of schedule.
fn parts_of_c(all: &mut Vec<(Target, Job)>) {
    let arch = heist_builder::Arch::SM_90A;
    let target = Target { arch, sms: 132 };
    let schedules = [PAUSING, LOADED, EARLY, STEALS, "ticket late"].map(schedule);
    let parts = [Spread::Row, Spread::Column, Spread::One];
    let turns = parts
        .into_iter()
        .flat_map(|spread| [true, false].map(|bias| (spread, bias)));
    for (turn, (spread, bias)) in turns.enumerate() {
        let epilogue = Epilogue {
            beta: 2.0,
            spread,
            bias,
            ..Epilogue::default()
        };
        let layout = Layout::ALL[turn % 4];
        let output = [Output::Bf16, Output::F32][turn / 3];
        for (at, [m, n, k]) in [[8192, 8192, 4096], [512, 6144, 512], [24, 4096, 4096]]
            .into_iter()
            .enumerate()
        {
            let problem = Gemm::new(m, n, k, Input::Bf16, output, layout).epilogue(epilogue);
            let own = &schedules[(turn + at) % schedules.len()];
            for schedule in [None, Some(own)] {
                let chosen = gemm::FAMILY.choose(None, &problem, target);
                let job = chosen.and_then(|it| it.job(&problem, schedule, target));
                let job = job.unwrap_or_else(|error| panic!("{problem}: {error}"));
                all.push((target, job));
            }
        }
    }
    let whole = Gemm::new(8192, 8192, 4096, Input::Bf16, Output::Bf16, Layout::Nn);
    for tiling in [
        "wgmma:128x256x64/4",
        "wgmma:256x128x64/4",
        "wgmma:128x240x64/4/swapped",
    ] {
        for spread in parts {
            let epilogue = Epilogue {
                beta: 2.0,
                spread,
                ..Epilogue::default()
            };
            let tiling = tiling.parse().expect("a tile shape");
            let job = gemm::job_with_tiling(&whole.epilogue(epilogue), tiling, None, target);
            all.push((target, job.expect("it can be built")));
        }
    }
}

/// Words that go through registers, in the widest tiles that hold them: with an epilogue that takes many, with what adds up shares and pieces, and beside
/// policies.
fn through_registers(all: &mut Vec<(Target, Job)>) {
    let arch = heist_builder::Arch::SM_90A;
    let target = Target { arch, sms: 132 };
    let full = Epilogue {
        alpha: 0.5,
        beta: 2.0,
        bias: true,
        activation: Activation::Gelu,
        ..Epilogue::default()
    };
    let none = Epilogue::default();
    let [pausing, loaded, early] = [PAUSING, LOADED, EARLY].map(schedule);
    let given = |layout, epilogue, tiling: &str, schedule: Option<&Schedule>| {
        let problem = Gemm::new(8192, 8192, 4096, Input::Tf32, Output::F32, layout);
        let tiling = tiling.parse().expect("a tile shape");
        gemm::job_with_tiling(&problem.epilogue(epilogue), tiling, schedule, target)
    };
    use Layout::{Nn, Tt};
    for (layout, epilogue, tiling, schedule) in [
        (Nn, none, "wgmma:64x240x64/5/swapped", None),
        (Nn, full, "wgmma:128x240x64/4/swapped", None),
        (Nn, none, "wgmma:256x120x64/4/swapped", None),
        (Nn, none, "wgmma:256x128x64/4/swapped/cluster=beside", None),
        (Nn, full, "wgmma:256x176x64/3/swapped", None),
        (Nn, none, "wgmma:192x168x64/4/swapped", None),
        (Nn, none, "wgmma:192x192x64/4/swapped", None),
        (Nn, none, "wgmma:128x176x64/5/swapped/pingpong", None),
        (Nn, none, "wgmma:64x128x64/4/swapped*2", None),
        (Nn, none, "wgmma:64x128x128/4/swapped", None),
        (
            Nn,
            none,
            "wgmma:128x224x64/3/swapped/split=2/cluster=depth",
            None,
        ),
        (
            Nn,
            none,
            "wgmma:192x144x64/4/swapped/split=2/cluster=depth",
            None,
        ),
        (Tt, none, "wgmma:128x128x64/6/tail", None),
        (Nn, none, "wgmma:128x192x64/4/swapped", Some(&pausing)),
        (Nn, full, "wgmma:128x128x64/4/swapped", Some(&loaded)),
        (Nn, none, "wgmma:128x88x64/4/swapped", Some(&early)),
    ] {
        let job = given(layout, epilogue, tiling, schedule);
        all.push((target, job.expect("it can be built")));
    }
    for (tiling, schedule) in [
        ("wgmma:192x200x64/4/swapped", None),
        ("wgmma:128x232x64/3/swapped/split=2/cluster=depth", None),
        ("wgmma:256x128x64/4/swapped", Some(&early)),
        ("wgmma:256x184x64/3/swapped", None),
    ] {
        let refused = given(Nn, full, tiling, schedule);
        let refused = refused.expect_err("it would spill").to_string();
        assert!(refused.contains("registers"), "{refused}");
    }
}

/// Tile shapes on warpgroups, with the epilogue that takes the most registers, and
/// with each way to store.
fn tile_shapes(all: &mut Vec<(Target, Job)>) {
    let arch = heist_builder::Arch::SM_90A;
    let target = Target { arch, sms: 132 };
    let epilogue = Epilogue {
        alpha: 0.5,
        beta: 2.0,
        bias: true,
        activation: Activation::Gelu,
        ..Epilogue::default()
    };
    let problems = [
        Gemm::new(500, 600, 512, Input::Bf16, Output::Bf16, Layout::Nt),
        Gemm::new(500, 600, 512, Input::Bf16, Output::Bf16, Layout::Nt).epilogue(epilogue),
        Gemm::new(500, 601, 512, Input::F16, Output::F16, Layout::Nt).epilogue(epilogue),
        Gemm::new(500, 601, 512, Input::Tf32, Output::F32, Layout::Nt),
    ];
    let tiny = |scales| {
        let problem = Gemm::new(500, 600, 512, Input::E4m3, Output::Bf16, Layout::Nt);
        problem.scales(scales)
    };
    for (problem, tiling) in [
        (tiny(Scales::Blocks), "wgmma:128x128x64/6"),
        (tiny(Scales::Blocks), "wgmma:64x192x64/6"),
        (tiny(Scales::Blocks), "wgmma:64x32x64/6/swapped"),
        (tiny(Scales::Rows).epilogue(epilogue), "wgmma:128x128x64/6"),
        (tiny(Scales::Rows), "wgmma:128x128x64/6/cluster=2"),
        (tiny(Scales::Tensor), "wgmma:64x128x128/3"),
        (
            tiny(Scales::Tensor).epilogue(epilogue),
            "wgmma:128x192x64/4",
        ),
        (tiny(Scales::Rows), "wgmma:128x192x64/4/cluster=2"),
        (tiny(Scales::Tensor), "wgmma:128x128x64/5/cluster=2"),
        (
            Gemm {
                sums: Summing::Fast,
                ..tiny(Scales::Rows)
            },
            "wgmma:128x256x64/4/cluster=2",
        ),
        (
            Gemm {
                sums: Summing::Fast,
                ..tiny(Scales::Rows)
            },
            "wgmma:256x128x64/4/cluster=2",
        ),
    ] {
        let tiling = tiling.parse().expect("a tile shape");
        let job = gemm::job_with_tiling(&problem, tiling, None, target);
        all.push((target, job.expect("it can be built")));
    }
    // A loop for each role leaves the warpgroup that copies few registers: enough to leave a tile, and to interpret a policy.
    let whole = Gemm::new(8192, 8192, 4096, Input::Bf16, Output::Bf16, Layout::Nn);
    for schedule in [
        "ticket late pausing until-asked",
        "ticket late loaded: greedy",
    ] {
        for (tiling, problem) in [
            ("wgmma:128x168x64/5/pingpong", whole.epilogue(epilogue)),
            ("wgmma:192x192x64/3", whole),
        ] {
            let (tiling, schedule) = (tiling.parse().expect("one"), schedule.parse().expect("one"));
            let job = gemm::job_with_tiling(&problem, tiling, Some(&schedule), target);
            all.push((target, job.expect("it can be built")));
        }
    }
    for (turn, tiling) in [
        "wgmma:64x8x64/12/swapped",
        "wgmma:64x16x128/8/swapped/split=4",
        "wgmma:64x64x64/6/swapped*2",
        "wgmma:64x64x64/6*2",
        "wgmma:64x128x64/4*2",
        "wgmma:64x256x64/5",
        "wgmma:128x96x64/7",
        "wgmma:128x128x64/6/split=2",
        "wgmma:128x192x64/5/cluster=2",
        "wgmma:128x224x64/4",
        "wgmma:128x256x64/4/cluster=2",
        "wgmma:256x128x64/4",
        "wgmma:192x176x64/4",
        "wgmma:192x192x64/3/cluster=2",
        "wgmma:192x192x64/3",
        "wgmma:256x192x64/3",
        "wgmma:256x192x64/3/cluster=2",
        "wgmma:256x176x64/3",
        "wgmma:192x184x64/4/cluster=beside",
        "wgmma:128x248x64/4/cluster=beside",
        "wgmma:64x248x64/5",
        "wgmma:256x184x64/3",
        "wgmma:128x128x64/5/split=2/cluster=depth",
        "wgmma:128x128x64/5/split=4/cluster=depth",
        "wgmma:256x64x64/3/split=2/cluster=depth",
        "wgmma:64x64x128/6/swapped/split=8/cluster=depth",
        "wgmma:64x8x128/5/swapped/split=7/cluster=depth*2",
        "wgmma:64x72x64/11/swapped/split=2/cluster=depth",
        "wgmma:256x192x64/3/swapped/cluster=beside",
        "wgmma:128x240x64/4/swapped/cluster=2x2",
        "wgmma:192x192x64/3/swapped/cluster=2",
        "wgmma:128x104x64/6/cluster=1x4",
        "wgmma:64x128x64/8/cluster=2x4",
        "wgmma:192x96x64/4/cluster=2x2",
    ]
    .into_iter()
    .enumerate()
    {
        let problem = &problems[turn % problems.len()];
        let shape = tiling.parse().expect("a tile shape");
        match gemm::job_with_tiling(problem, shape, None, target) {
            Ok(job) => all.push((target, job)),
            // Words that leave row by row take registers that the largest tiles do not have.
            Err(refused) => {
                let expected = ("wgmma:256x192x64/3", Output::F32);
                assert_eq!((tiling, problem.output), expected, "{refused}");
                assert!(refused.to_string().contains("registers"), "{refused}");
            }
        }
    }
}

/// Kernels that spilled until registers moved to them, or something was read in parts; and what does not fit even so, of which the next narrower tiles are taken.
/// They were found by `spills` in `bench/programs`.
fn found_by_the_scan(all: &mut Vec<(Target, Job)>) {
    let arch = heist_builder::Arch::SM_90A;
    let target = Target { arch, sms: 132 };
    let none = Epilogue::default();
    let with_c = Epilogue { beta: 1.0, ..none };
    let bias = Epilogue {
        bias: true,
        activation: Activation::Gelu,
        ..none
    };
    let full = Epilogue { beta: 1.0, ..bias };
    let half = |shape: [u32; 3], layout| {
        let [m, n, k] = shape;
        Gemm::new(m, n, k, Input::Bf16, Output::Bf16, layout)
    };
    let words = |shape: [u32; 3], layout| Gemm {
        output: Output::F32,
        ..half(shape, layout)
    };
    let tiny = |shape: [u32; 3]| {
        let [m, n, k] = shape;
        let plain = Gemm::new(m, n, k, Input::E4m3, Output::Bf16, Layout::Nt);
        Gemm {
            sums: Summing::Fast,
            ..plain.scales(Scales::Rows)
        }
    };
    let even = [8192, 4160, 1408];
    // Rows that begin at every second element, so that threads store them.
    let odd = [6656, 1170, 496];
    // A last wave that is cut.
    let cut = [5120, 2176, 4544];
    let (nt, nn) = (Layout::Nt, Layout::Nn);
    for (problem, epilogue, tiling, text) in [
        (
            half(even, nt).scales(Scales::Rows),
            bias,
            "wgmma:128x208x64/4/swapped",
            EARLY,
        ),
        (half(even, nn), bias, "wgmma:128x240x64/4/swapped", EARLY),
        (
            half(even, nt).scales(Scales::Rows),
            bias,
            "wgmma:128x256x64/4/cluster=4x1",
            EARLY,
        ),
        (tiny(even), none, "wgmma:192x136x64/4/swapped", PAUSING),
        (tiny(even), none, "wgmma:128x136x64/4/swapped", EARLY),
        (
            tiny(even),
            with_c,
            "wgmma:128x224x64/4/swapped/cluster=2",
            STEALS,
        ),
        (tiny(even), full, "wgmma:128x256x64/4/cluster=2", STEALS),
        (words(even, nn), bias, "wgmma:128x128x64/6/pingpong", LOADED),
        (
            words(cut, nn),
            bias,
            "wgmma:128x192x64/4/tail",
            "direct grouped(16)",
        ),
        (
            half(odd, nt),
            full,
            "wgmma:128x128x64/5/pingpong",
            "ticket late",
        ),
        // Four stages leave no room for rows, so threads store.
        (half(odd, nt), with_c, "wgmma:256x184x64/4", STEALS),
    ] {
        let tiling = tiling.parse().expect("a tile shape");
        let job = gemm::job_with_tiling(
            &problem.epilogue(epilogue),
            tiling,
            Some(&schedule(text)),
            target,
        );
        all.push((target, job.expect("registers move")));
    }
    for (problem, epilogue, tiling, text) in [
        (
            half(odd, nt),
            full,
            "wgmma:128x160x64/5/pingpong",
            "ticket late",
        ),
        (
            half(odd, nt),
            bias,
            "wgmma:256x192x64/3/cluster=2",
            "ticket late",
        ),
        (half(odd, nt), bias, "wgmma:256x192x64/3", PAUSING),
        (half(even, nt), none, "wgmma:256x184x64/4", LOADED),
        (half(even, nn), bias, "wgmma:256x192x64/3/swapped", LOADED),
        (
            half(even, nn),
            bias,
            "wgmma:256x176x64/4/swapped/cluster=2",
            EARLY,
        ),
        (half(even, nt), full, "wgmma:256x144x64/4/cluster=2", EARLY),
        (
            half(even, nt),
            full,
            "wgmma:256x184x64/4/cluster=1x4",
            STEALS,
        ),
        (words(cut, nn), bias, "wgmma:128x192x64/4/tail", STEALS),
    ] {
        let (problem, text) = (problem.epilogue(epilogue), schedule(text));
        let tiling = tiling.parse().expect("a tile shape");
        let refused = gemm::job_with_tiling(&problem, tiling, Some(&text), target);
        let refused = refused.expect_err("it would spill").to_string();
        assert!(refused.contains("registers"), "{refused}");
        let chosen = gemm::FAMILY.choose(None, &problem, target);
        let job = chosen.and_then(|it| it.job(&problem, Some(&text), target));
        all.push((target, job.expect("some tiles hold it")));
    }
    // Masked groups know how many rows they use besides.
    let rows = vec![60; 64];
    let masked = Grouped::masked(rows, 2048, [5952, 1408], Input::E4m3, Output::Bf16);
    let fast = Grouped {
        sums: Summing::Fast,
        ..masked
    };
    let given = |groups: &Grouped, tiling: &str, text: Option<&str>| {
        let (tiling, text) = (tiling.parse().expect("a tile shape"), text.map(schedule));
        grouped::job_with_tiling(groups, tiling, text.as_ref(), target)
    };
    let factors = fast.clone().scales(Scales::Rows);
    let job = given(&factors, "wgmma:64x256x64/5/pingpong", None);
    all.push((target, job.expect("registers move")));
    let refused = given(&fast, "wgmma:128x192x64/5/pingpong", Some(LOADED));
    refused.expect_err("it would spill");
}

#[test]
fn every_variant_on_every_architecture() {
    let Some(ptxas) = Ptxas::find_or_say_skipped() else {
        return;
    };
    let mut all = Vec::new();
    for (turn, (name, sms)) in MACHINES.into_iter().enumerate() {
        let arch = heist_builder::Arch::parse(name).expect("a known architecture");
        let target = Target { arch, sms };
        let layout = Layout::ALL[turn % 4];
        let even = Gemm::new(512, 512, 512, Input::Bf16, Output::Bf16, layout);
        // Most are the same text for each: all for two architectures, half for each other.
        let oldest_or_largest = ["sm_80", "sm_90a"].contains(&name);
        let in_turn = |index| oldest_or_largest || (index + turn) % 2 == 0;
        jobs(&gemm::FAMILY, &even, target, in_turn, &mut all);
        // What is added to the sums takes registers beside them.
        let full = even.epilogue(Epilogue {
            alpha: 2.0,
            beta: 0.5,
            bias: true,
            activation: Activation::Gelu,
            ..Epilogue::default()
        });
        jobs(
            &gemm::FAMILY,
            &full,
            target,
            |_| oldest_or_largest,
            &mut all,
        );
        let groups = Grouped::rows(vec![40, 500, 0], 512, 512, Input::Bf16, Output::Bf16);
        jobs(&grouped::FAMILY, &groups, target, in_turn, &mut all);
        // Odd shapes and words take other paths; one kernel each shows them.
        let other = |index| index == turn % 2;
        let odd = Gemm::new(500, 501, 499, Input::F16, Output::F32, layout);
        jobs(&gemm::FAMILY, &odd, target, other, &mut all);
        let words = Gemm::new(500, 500, 500, Input::Tf32, Output::F32, layout);
        jobs(&gemm::FAMILY, &words, target, other, &mut all);
    }
    warpgroups(&mut all);
    tile_shapes(&mut all);
    assert!(all.len() > 40, "{} kernels", all.len());
    let mut all = sample(all);
    groups_let_go(&mut all);
    tight(&mut all);
    through_registers(&mut all);
    let mut found = Vec::new();
    found_by_the_scan(&mut found);
    parts_of_c(&mut found);
    all.extend(sample(found));
    let codes = MachineCodes::default();
    let wrong: Vec<String> = parallel(&all, |(target, job)| {
        let name = format!("{} for {}", job.name, target.arch);
        // The first that multiplies.
        let step = job.steps.iter().find(|step| step.entry != "gemm_anew");
        let (ptx, arch) = (step.expect("a product").ptx(), target.arch.name());
        let cubin = match ptxas.assemble(&ptx, arch) {
            Ok(cubin) => cubin,
            Err(rejected) => return Some(format!("{name}: {}", rejected.log)),
        };
        let complaints = cubin.complaints();
        if !complaints.is_empty() {
            return Some(format!("{name}: {complaints:?}"));
        }
        for usage in cubin.usage().values() {
            if usage.spill_stores + usage.spill_loads + usage.stack > 0 {
                return Some(format!("{name}: {usage:?}"));
            }
        }
        match codes.first_of_its_kind(arch, &ptx, &cubin) {
            Some(listing)
                if !["HMMA", "HGMMA", "QGMMA"]
                    .iter()
                    .any(|core| listing.contains(core)) =>
            {
                Some(format!("{name}: no HMMA"))
            }
            _ => None,
        }
    })
    .into_iter()
    .flatten()
    .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The launch that writes operands anew, in every way and for one and two of them: it asks for all words of a thread before it stores one, so it has few registers to lose.
#[test]
fn operands_are_written_anew_without_spills() {
    let Some(ptxas) = Ptxas::find_or_say_skipped() else {
        return;
    };
    use Layout::{Nn, Nt, Tn, Tt};
    let mut kernels = Vec::new();
    for (arch, sms) in [("sm_90a", 132), ("sm_100a", 148)] {
        let arch = heist_builder::Arch::parse(arch).expect("a known architecture");
        let target = Target { arch, sms };
        for (m, n, k, input, layout) in [
            // Halves one by one, in pairs, and both.
            (500, 501, 499, Input::F16, Nt),
            (500, 502, 500, Input::Bf16, Tn),
            (500, 501, 500, Input::F16, Nn),
            // Words copied and turned.
            (500, 501, 499, Input::Tf32, Tt),
            (501, 501, 499, Input::Tf32, Tn),
            (501, 501, 499, Input::Tf32, Nt),
        ] {
            let problem = Gemm::new(m, n, k, input, Output::F32, layout);
            let plan = gemm::FAMILY.plan(None, &problem, target).expect("one");
            assert_eq!(plan.steps[0].entry, "gemm_anew", "{problem}");
            kernels.push((arch.name(), plan.steps[0].ptx()));
        }
    }
    let wrong = parallel(&kernels, |(arch, ptx)| {
        let cubin = match ptxas.assemble(ptx, arch) {
            Ok(cubin) => cubin,
            Err(rejected) => return Some(rejected.log),
        };
        let spilled = |usage: &heist_oracle::Usage| {
            usage.spill_stores + usage.spill_loads + usage.stack > 0 || usage.registers > 64
        };
        let usage = cubin.usage();
        (usage.values().any(spilled) || !cubin.complaints().is_empty())
            .then(|| format!("{usage:?} {:?}", cubin.complaints()))
    });
    let wrong: Vec<String> = wrong.into_iter().flatten().collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Rows that start anywhere: lanes load single elements of shared memory, in every tile shape of `mma.sync` and for few rows, of every layout and type.
#[test]
fn rows_that_start_anywhere_without_spills() {
    let Some(ptxas) = Ptxas::find_or_say_skipped() else {
        return;
    };
    let full = Epilogue {
        alpha: 2.0,
        beta: 0.5,
        bias: true,
        activation: Activation::Gelu,
        ..Epilogue::default()
    };
    let mut all = Vec::new();
    for (turn, &layout) in Layout::ALL.iter().enumerate() {
        for (index, input) in [Input::F16, Input::Bf16, Input::Tf32]
            .into_iter()
            .enumerate()
        {
            let (arch, sms) = [("sm_90a", 132), ("sm_80", 108)][(turn + index) % 2];
            let arch = heist_builder::Arch::parse(arch).expect("a known architecture");
            let target = Target { arch, sms };
            let odd = Gemm::new(501, 503, 499, input, Output::F32, layout);
            for variant in ["mma-128x256", "mma-128x128", "mma-64x64", "mma-32x32"] {
                all.push((target, odd.epilogue(full), variant));
            }
            let arch = heist_builder::Arch::SM_90A;
            let target = Target { arch, sms: 132 };
            let few = [7, 13, 31][(turn + index) % 3];
            let problem = Gemm::new(few, 4001, 4003, input, Output::Bf16, layout);
            all.push((target, problem.epilogue(full), "thin"));
            let problem = Gemm::new(1003, few, 20_003, input, Output::F32, layout);
            all.push((target, problem, "thin"));
        }
    }
    let wrong = parallel(&sample(all), |(target, problem, variant)| {
        let plan = gemm::FAMILY.plan(Some(variant), problem, *target);
        let (ptx, arch) = (plan.expect("it suits").steps[0].ptx(), target.arch.name());
        let cubin = match ptxas.assemble(&ptx, arch) {
            Ok(cubin) => cubin,
            Err(rejected) => return Some(rejected.log),
        };
        let spilled =
            |usage: &heist_oracle::Usage| usage.spill_stores + usage.spill_loads + usage.stack > 0;
        let usage = cubin.usage();
        (usage.values().any(spilled) || !cubin.complaints().is_empty())
            .then(|| format!("{problem} {variant}: {usage:?} {:?}", cubin.complaints()))
    });
    let wrong: Vec<String> = wrong.into_iter().flatten().collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}
