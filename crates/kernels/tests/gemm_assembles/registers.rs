//! Kernels that are short of registers: where a tile is left half done, a policy is interpreted, or the epilogue reads much. What does not
//! fit is refused.

use heist_kernels::gemm::{
    self, Activation, Epilogue, Gemm, Input, Layout, Output, Scales, Spread, Summing,
};
use heist_kernels::grouped::experts::{self, Experts};
use heist_kernels::grouped::{self, Grouped};
use heist_kernels::{Job, Target};
use heist_sched::Schedule;

const PAUSING: &str = "ticket late pausing until-asked";
const LOADED: &str = "ticket late loaded: greedy";
const EARLY: &str = "ticket early loaded: greedy";
const STEALS: &str = "ticket late max-steals(4)";

fn schedule(text: &str) -> Schedule {
    text.parse().expect("one")
}

/// To leave a tile half done, or to interpret a policy, takes registers beside those that find its group.
pub(crate) fn groups_let_go(all: &mut Vec<(Target, Job)>) {
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
        let refused = refused
            .map(|job| job.name)
            .expect_err("it would spill")
            .to_string();
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
pub(crate) fn tight(all: &mut Vec<(Target, Job)>) {
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
        let refused = refused
            .map(|job| job.name)
            .expect_err("it would spill")
            .to_string();
        assert!(refused.contains("registers"), "{refused}");
        let chosen = gemm::FAMILY.choose(None, &whole, target);
        let chosen = chosen.and_then(|it| it.job(&whole, Some(schedule), target));
        chosen.expect("some tiles hold it");
    }
}

/// C of which a row, a column or one element is stored: what is chosen for large and small products, under every kind of schedule.
pub(crate) fn parts_of_c(all: &mut Vec<(Target, Job)>) {
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
pub(crate) fn through_registers(all: &mut Vec<(Target, Job)>) {
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
        let refused = refused
            .map(|job| job.name)
            .expect_err("it would spill")
            .to_string();
        assert!(refused.contains("registers"), "{refused}");
    }
}

/// Kernels that spilled until registers moved to them, or something was read in parts; and what does not fit even so, of which the next narrower tiles are taken.
/// They were found by `spills` in `bench/programs`.
pub(crate) fn found_by_the_scan(all: &mut Vec<(Target, Job)>) {
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
            "wgmma:128x224x64/4/cluster=4x1",
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
        (
            half(odd, nt),
            none,
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
            half(even, nt).scales(Scales::Rows),
            bias,
            "wgmma:128x256x64/4/cluster=4x1",
            EARLY,
        ),
        (
            half(odd, nt),
            none,
            "wgmma:128x136x64/5/pingpong",
            "ticket late",
        ),
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
        let refused = refused
            .map(|job| job.name)
            .expect_err("it would spill")
            .to_string();
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
    refused.map(|job| job.name).expect_err("it would spill");
}
