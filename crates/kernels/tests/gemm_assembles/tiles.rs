//! Tile shapes of warpgroups, in every layout, with and without edges.

use heist_kernels::gemm::{
    self, Activation, Epilogue, Gemm, Input, Layout, Output, Scales, Summing,
};
use heist_kernels::grouped::{self, Grouped};
use heist_kernels::{Job, Target};
use heist_sched::{Schedule, TileSource};

/// Warpgroups keep most of their registers for sums: every layout, with and
/// without edges, an epilogue and groups, has to do with the rest.
pub(crate) fn warpgroups(all: &mut Vec<(Target, Job)>) {
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

/// Tile shapes on warpgroups, with the epilogue that takes the most registers, and
/// with each way to store.
pub(crate) fn tile_shapes(all: &mut Vec<(Target, Job)>) {
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
