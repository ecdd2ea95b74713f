//! Expert layers on the simulated GPU, all checks on, against f64.

mod common;

use heist_kernels::gemm::{Input, Tiling};
use heist_kernels::grouped::experts::{Experts, FAMILY, Gathering, plan_with, prepared};
use heist_oracle::Ptxas;
use heist_run::Settings;
use heist_sched::{Schedule, TileSource};
use std::collections::BTreeSet;

fn layer(rows: &[u32], per: u32, hidden: u32, inner: u32, dtype: Input) -> Experts {
    Experts {
        rows: rows.to_vec(),
        per,
        hidden,
        inner,
        dtype,
    }
}

fn right(problem: &Experts, tilings: [&str; 2], schedule: Option<&Schedule>) {
    let (device, target) = common::device("h200");
    let tilings = tilings.map(|text| text.parse::<Tiling>().expect("a tile shape"));
    let what = format!("{problem} {} {}", tilings[0], tilings[1]);
    for (gathering, first) in [(Gathering::Fused, 0), (Gathering::Launch, 1)] {
        let plan = plan_with(problem, tilings, gathering, schedule, target)
            .unwrap_or_else(|error| panic!("{what}: {error}"));
        let sum = usize::from(problem.per > 1);
        assert_eq!(plan.steps.len(), first + 2 + sum);
        let mut prepared = prepared(plan.job(|_| None), problem.clone(), 3);
        common::run(&mut prepared.job, &device, &Settings::default());
        let difference = (prepared.verify)(&prepared.job).expect("a comparison");
        assert!(difference.within(prepared.bound), "{what}: {difference}");
        let elements = problem.tokens() as usize * problem.hidden as usize;
        assert_eq!(difference.count, elements, "{what}: all were looked at");
    }
}

#[test]
fn layers_in_every_tile_shape() {
    let shapes = [
        "wgmma:128x256x64/4",
        "wgmma:64x256x64/5",
        "wgmma:64x128x64/4*2",
    ];
    for (turn, up) in shapes.into_iter().enumerate() {
        let down = shapes[(turn + 1) % 3];
        // Whole tiles and stages; then neither rows nor columns nor depth are whole.
        right(
            &layer(&[128, 64], 2, 128, 128, Input::Bf16),
            [up, down],
            None,
        );
        right(
            &layer(&[40, 0, 131, 1, 8], 3, 72, 200, Input::F16),
            [up, down],
            None,
        );
    }
}

#[test]
fn one_expert_a_token_needs_no_sum() {
    let up = "wgmma:64x128x64/4*2";
    right(&layer(&[3, 0, 65], 1, 64, 64, Input::Bf16), [up, up], None);
}

#[test]
fn blocks_with_many_tiles_and_without_requests() {
    let (device, mut target) = common::device("h200");
    // A few blocks for many tiles: copies of the next tile are issued ahead.
    target.sms = 2;
    let problem = layer(&[150, 20, 0, 70], 4, 136, 264, Input::Bf16);
    for source in [TileSource::Ticket, TileSource::Static, TileSource::Direct] {
        let schedule = Schedule::new(source);
        let variant = FAMILY.choose(None, &problem, target).expect("it suits");
        let plan = variant
            .plan(&problem, Some(&schedule), target)
            .expect("a plan");
        let mut prepared = prepared(plan.job(|_| None), problem.clone(), 7);
        common::run(&mut prepared.job, &device, &Settings::default());
        let difference = (prepared.verify)(&prepared.job).expect("a comparison");
        assert!(difference.within(prepared.bound), "{source}: {difference}");
    }
}

#[test]
fn rows_are_gathered_where_that_is_less_work() {
    let (_, target) = common::device("h200");
    let launches = |problem: &Experts| {
        FAMILY
            .plan(None, problem, target)
            .expect("a plan")
            .steps
            .len()
    };
    // A step of decoding, and prefill with many steps a tile.
    assert_eq!(launches(&layer(&[8; 8], 2, 4096, 14336, Input::Bf16)), 3);
    assert_eq!(launches(&layer(&[1024; 8], 2, 4096, 14336, Input::Bf16)), 4);
}

#[test]
fn layers_assemble_and_do_not_spill() {
    let Some(ptxas) = Ptxas::find_or_say_skipped() else {
        return;
    };
    let (_, target) = common::device("h200");
    let mut texts = BTreeSet::new();
    for (turn, shape) in [
        "wgmma:128x256x64/4",
        "wgmma:64x256x64/5",
        "wgmma:64x128x64/4*2",
    ]
    .into_iter()
    .enumerate()
    {
        let tiling: Tiling = shape.parse().expect("a tile shape");
        // Even ones, and edges, which take registers.
        for problem in [
            layer(&[900, 40], 2, 512, 512, Input::Bf16),
            layer(&[900, 40, 0], 4, 520, 264, Input::F16),
        ] {
            let gathering = [Gathering::Fused, Gathering::Launch][turn % 2];
            let plan = plan_with(&problem, [tiling; 2], gathering, None, target).expect("a plan");
            texts.extend(plan.steps.iter().map(heist_kernels::Step::ptx));
        }
    }
    for text in texts {
        let cubin = ptxas.assemble(&text, "sm_90a").expect("it is accepted");
        assert!(cubin.complaints().is_empty(), "{:?}", cubin.complaints());
        for (name, usage) in cubin.usage() {
            assert_eq!(
                usage.spill_stores + usage.spill_loads,
                0,
                "{name}: {usage:?}"
            );
        }
    }
}

#[test]
fn what_is_not_done_is_refused_with_a_reason() {
    let (_, target) = common::device("h200");
    let refused = |problem: &Experts, target| {
        let error = FAMILY.choose(None, problem, target).err().expect("refused");
        error.to_string()
    };
    let good = layer(&[4, 4], 2, 64, 64, Input::Bf16);
    assert!(FAMILY.choose(None, &good, target).is_ok());
    for (problem, why) in [
        (layer(&[4, 3], 2, 64, 64, Input::Bf16), "no multiple of 2"),
        (layer(&[4, 4], 0, 64, 64, Input::Bf16), "1 to 64 experts"),
        (layer(&[4, 4], 2, 60, 64, Input::Bf16), "multiples of 8"),
        (layer(&[4, 4], 2, 64, 64, Input::Tf32), "f16 and bf16"),
    ] {
        let error = refused(&problem, target);
        assert!(error.contains(why), "{error}");
    }
    let (_, other) = common::device("a100");
    assert!(refused(&good, other).contains("sm_90a"));
    let nothing = layer(&[0, 0], 2, 64, 64, Input::Bf16);
    let plan = FAMILY.plan(None, &nothing, target).expect("a plan");
    assert!(plan.steps.is_empty(), "nothing to do is no launch");
}
