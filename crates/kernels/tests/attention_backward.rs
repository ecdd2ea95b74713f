//! Gradients of attention on the simulated GPU, against those in f64, with all checks
//! on.

mod common;

use heist_builder::Arch;
use heist_kernels::attention::*;
use heist_kernels::{Job, Target};
use heist_oracle::{MachineCodes, Ptxas};
use heist_run::{Device, Settings};
use heist_sched::{AnyOrder, Schedule, TileSource};

const MASKS: [Mask; 3] = [
    Mask::Full,
    Mask::Causal,
    Mask::Window { left: 20, right: 3 },
];

fn job(problem: &Backward, variant: &str, target: Target) -> Job {
    let variant = BACKWARD
        .choose(Some(variant), problem, target)
        .unwrap_or_else(|error| panic!("{problem}: {error}"));
    let mut job = variant
        .job(problem, None, target)
        .unwrap_or_else(|error| panic!("{problem}: {error}"));
    fill_backward(&mut job, problem, 3);
    job
}

/// On warpgroups, with every tile cut into so many parts.
fn in_parts(problem: &Backward, parts: u32, target: Target) -> Job {
    let plan = backward_in_parts(problem, parts, None, target)
        .unwrap_or_else(|error| panic!("{problem}: {error}"));
    let variant = BACKWARD.choose(Some("wgmma"), problem, target);
    let variant = variant.expect("a variant");
    let mut job = plan.job(|buffer| variant.contents(problem, buffer));
    fill_backward(&mut job, problem, 3);
    job
}

fn right(problem: &Backward, variant: &str, (device, target): &(Device, Target)) -> Job {
    judged(job(problem, variant, *target), problem, variant, device)
}

fn judged(mut job: Job, problem: &Backward, variant: &str, device: &Device) -> Job {
    common::run(&mut job, device, &Settings::default());
    let verdict = verify_backward(&job, problem, Sample::All).expect("its buffers");
    if let Err(wrong) = verdict.judge(problem) {
        panic!("{problem}, {variant}: {wrong}");
    }
    job
}

/// Lengths at the edges of tiles, every mask, type, layout, width and kind of sums, in
/// turns.
fn cases() -> Vec<Backward> {
    let lengths = [
        (1, 1),
        (63, 65),
        (65, 63),
        (64, 128),
        (33, 130),
        (130, 31),
        (100, 2),
        (2, 100),
        (97, 97),
        (128, 64),
    ];
    let dims = [64, 128, 64, 128, 16, 96, 80, 112, 32, 48];
    let mut cases = Vec::new();
    for (index, (queries, keys)) in lengths.into_iter().enumerate() {
        for which in 0..2 {
            let mut problem =
                Problem::new(1 + which, 2, queries, dims[(index + which as usize) % 10]);
            problem.lengths = Lengths::Same {
                batch: 1 + which,
                queries,
                keys,
            };
            problem.mask = MASKS[(index + which as usize) % 3];
            problem.dtype = Dtype::ALL[(index / 2 + which as usize) % 2];
            problem.kv_heads = [2, 1][(index + index / 3) % 2];
            problem.layout = [Layout::Heads, Layout::Rows][(index / 2) % 2];
            let sums = [Sums::Float, Sums::Fixed][which as usize];
            cases.push(Backward {
                attention: problem,
                sums,
            });
        }
    }
    let packed = vec![
        (5, 5),
        (0, 7),
        (66, 70),
        (1, 130),
        (70, 3),
        (17, 0),
        (40, 64),
    ];
    for (index, dim) in [64, 128, 32].into_iter().enumerate() {
        let mut problem = Problem::ragged(packed.clone(), 4, dim);
        problem.kv_heads = [2, 4, 1][index];
        problem.mask = MASKS[(index + 1) % 3];
        problem.dtype = Dtype::ALL[index % 2];
        cases.push(Backward {
            attention: problem,
            sums: [Sums::Fixed, Sums::Float, Sums::Fixed][index],
        });
    }
    for (index, element) in PairElement::ALL.into_iter().enumerate() {
        let (queries, keys) = [(63, 65), (40, 90), (130, 31), (65, 100)][index];
        let mut problem = Problem::new(2, 2, queries, [64, 32, 128, 48][index]);
        problem.lengths = Lengths::Same {
            batch: 2,
            queries,
            keys,
        };
        problem.kv_heads = [2, 1][index % 2];
        problem.dtype = Dtype::ALL[index % 2];
        problem.mask = [Mask::Full, Mask::Causal][index / 2 % 2];
        let row = keys + 3;
        let strides = [
            [2 * queries * row, queries * row, row],
            [keys, 0, 0],
            [0, queries * keys, keys],
            [0, 0, row],
        ][index];
        problem.scoring.mods = vec![pairs(PairMask { element, strides })];
        cases.push(Backward {
            attention: problem,
            sums: [Sums::Float, Sums::Fixed][index % 2],
        });
    }
    cases
}

#[test]
fn on_every_shape_mask_and_type() {
    let device = common::device("sim:h200");
    for problem in cases() {
        right(&problem, "tensor", &device);
    }
}

/// The same on warpgroups, which take all but masks of pairs, and longer sequences: their
/// tiles have 128 keys.
#[test]
fn on_warpgroups() {
    let device = common::device("sim:h200");
    let (mut cases, mut taken) = (cases(), 0);
    for (index, length) in [200, 257, 300].into_iter().enumerate() {
        let mut problem = Problem::new(1, 2, length, [64, 128, 48][index]);
        problem.mask = MASKS[(index + 1) % 3];
        problem.kv_heads = 1 + index as u32 % 2;
        problem.dtype = Dtype::ALL[index % 2];
        cases.push(Backward {
            attention: problem,
            sums: [Sums::Float, Sums::Fixed][index % 2],
        });
    }
    for problem in cases {
        let attention = &problem.attention;
        if attention.scoring.is_plain() {
            right(&problem, "wgmma", &device);
            taken += 1;
        }
    }
    assert!(taken > 24, "{taken}");
}

/// A cap that scores come near and ALiBi's slopes, with every mask, shared keys, packed sequences, whole numbers as sums, and tiles
/// in parts.
#[test]
fn under_a_soft_cap_and_slopes() {
    let device = common::device("sim:h200");
    for (index, (queries, keys, dim)) in [
        (70, 70, 64),
        (130, 200, 128),
        (33, 140, 80),
        (257, 257, 64),
        (5, 5, 128),
    ]
    .into_iter()
    .enumerate()
    {
        let mut problem = match index {
            4 => Problem::ragged(vec![(5, 5), (0, 7), (66, 70), (1, 130)], 2, dim),
            _ => Problem::new(2, 2, queries, dim),
        };
        if index < 4 {
            problem.lengths = Lengths::Same {
                batch: 2,
                queries,
                keys,
            };
        }
        (problem.kv_heads, problem.mask) = (1 + index as u32 % 2, MASKS[index % 3]);
        problem.dtype = Dtype::ALL[index % 2];
        // Scores are a few tenths: a cap of as much bends them.
        let cap = softcap([0.5, 1.5][index % 2]);
        problem.scale = Some(0.25);
        problem.scoring.mods = match index {
            0 | 3 | 4 => vec![cap],
            _ => vec![alibi()],
        };
        let problem = Backward {
            attention: problem,
            sums: [Sums::Float, Sums::Fixed][index / 2 % 2],
        };
        for variant in ["tensor", "wgmma"] {
            right(&problem, variant, &device);
        }
        judged(
            in_parts(&problem, 3, device.1),
            &problem,
            "in parts",
            &device.0,
        );
    }
}

/// Inputs that are the three of one projection, of sequences that are alike and of packed ones.
#[test]
fn of_views() {
    let device = common::device("sim:h200");
    for (index, sums) in [Sums::Float, Sums::Fixed, Sums::Fixed]
        .into_iter()
        .enumerate()
    {
        let mut problem = match index {
            2 => Problem::ragged(vec![(5, 5), (0, 7), (66, 70), (1, 130)], 2, 64),
            _ => Problem::new(2, 2, [130, 70][index], [64, 96][index]),
        };
        problem.layout = Layout::Rows;
        (problem.kv_heads, problem.mask) = (1, MASKS[index]);
        problem.views = Some(Views::of_projection(&problem));
        let problem = Backward {
            attention: problem,
            sums,
        };
        right(&problem, "wgmma", &device);
        assert!(BACKWARD.choose(Some("tensor"), &problem, device.1).is_err());
    }
}

/// Tiles of keys in parts: more than there are blocks of queries, and parts that begin and end inside of a head.
#[test]
fn tiles_in_parts_give_the_same_gradients() {
    let (device, target) = common::device("sim:h200");
    let cases = [
        (1, [4, 1], (100, 140), 128),
        (3, [4, 1], (130, 100), 96),
        (2, [2, 2], (257, 33), 64),
        (5, [4, 2], (65, 129), 48),
        (8, [8, 1], (20, 70), 112),
        (7, [3, 1], (129, 200), 32),
    ];
    for (index, (parts, [heads, kv_heads], (queries, keys), dim)) in cases.into_iter().enumerate() {
        let mut attention = Problem::new(2, heads, queries, dim);
        if index == 3 {
            attention =
                Problem::ragged(vec![(queries, keys), (0, 3), (9, 0), (70, 60)], heads, dim);
        } else {
            let batch = 1 + index as u32 % 2;
            attention.lengths = Lengths::Same {
                batch,
                queries,
                keys,
            };
        }
        attention.kv_heads = kv_heads;
        attention.mask = MASKS[index % 3];
        attention.dtype = Dtype::ALL[index % 2];
        attention.layout = [Layout::Heads, Layout::Rows][index / 2 % 2];
        let sums = [Sums::Float, Sums::Fixed][index / 3 % 2];
        let problem = Backward { attention, sums };
        let job = in_parts(&problem, parts, target);
        judged(job, &problem, &format!("{parts} parts"), &device);
    }
}

/// Without being asked to.
#[test]
fn few_tiles_are_cut_into_parts() {
    let target = common::device("sim:h200").1;
    let tiles_of = |batch, keys| {
        let mut attention = Problem::new(batch, 8, keys, 128);
        attention.kv_heads = 2;
        let plan = BACKWARD.plan(None, &Backward::of(attention), target);
        let plan = plan.expect("a plan");
        let main = |step: &&heist_kernels::Step| step.entry == "attention_backward_wgmma";
        plan.steps
            .iter()
            .find(main)
            .expect("it")
            .launch
            .grid
            .count()
    };
    assert_eq!(tiles_of(8, 2048), 256);
    assert!(tiles_of(1, 1024) > 100);
}

/// Whole numbers add up to the same in every order: whatever the schedule, and so
/// whatever the order in which blocks run, the bits are the same.
/// The rows are prepared while the largest keys are searched for, by a launch that lets the next begin only when all before it has ended;
/// what that one writes is read behind the wait, and no kernel behind these begins early.
#[test]
fn rows_are_prepared_beside_the_search_for_the_largest() {
    let target = common::device("sim:h200").1;
    let mut problem = Backward {
        attention: Problem::new(1, 2, 257, 64),
        sums: Sums::Fixed,
    };
    let overlaps = |job: &Job| {
        job.steps
            .iter()
            .map(|step| step.overlaps)
            .collect::<Vec<_>>()
    };
    let job_of = |problem: &Backward| job(problem, "wgmma", target);
    let fixed = job_of(&problem);
    assert_eq!(overlaps(&fixed), [true, true, false, false]);
    common::waits_before_it_touches(&fixed.steps[0], &fixed.name);
    let text = fixed.steps[0].ptx();
    let [wait, lets] = ["griddepcontrol.wait", "griddepcontrol.launch_dependents"];
    assert!(text.find(wait) < text.find(lets), "{text}");
    let text = fixed.steps[1].ptx();
    let (before, after) = text.split_once(wait).expect("it waits");
    // The largest keys, and the units that follow from them.
    assert!(!text.contains(lets) && !text.contains("ld.global.nc"));
    assert!(!before.contains("ld.global.v2.f32") && after.contains("ld.global.v2.f32"));
    problem.sums = Sums::Float;
    assert_eq!(overlaps(&job_of(&problem)), [false; 3]);
}

#[test]
fn fixed_point_sums_do_not_depend_on_the_order() {
    let (device, target) = common::device("sim:h200");
    let mut attention = Problem::new(1, 4, 260, 64);
    (attention.kv_heads, attention.mask) = (2, Mask::Causal);
    let problem = Backward {
        attention,
        sums: Sums::Fixed,
    };
    for variant in ["tensor", "wgmma"] {
        let results = [TileSource::Direct, TileSource::Static, TileSource::Ticket].map(|source| {
            let variant = BACKWARD
                .choose(Some(variant), &problem, target)
                .expect("a variant");
            let mut schedule = Schedule::new(source);
            schedule.order = AnyOrder::new(HeaviestFirst { heads: 1 });
            let mut job = variant
                .job(&problem, Some(&schedule), target)
                .expect("a job");
            fill_backward(&mut job, &problem, 3);
            common::run(&mut job, &device, &Settings::default());
            ["dq", "dk", "dv"].map(|name| job.data(name).cloned())
        });
        assert!(results[0] == results[1] && results[1] == results[2]);
    }
}

/// Two numbers are added to zero at the most where a query sees two tiles of keys: in either order that is the same in f32, and the launch that looks
/// for the largest keys is left out.
#[test]
fn two_tiles_of_keys_are_added_in_f32() {
    let target = common::device("sim:h200").1;
    let looks = |keys, mask| {
        let mut attention = Problem::new(1, 2, keys, 64);
        attention.mask = mask;
        let sums = Sums::Fixed;
        let job = job(&Backward { attention, sums }, "wgmma", target);
        job.steps
            .iter()
            .any(|step| step.entry == "attention_largest")
    };
    assert!(!looks(256, Mask::Full) && !looks(90, Mask::Causal));
    assert!(looks(257, Mask::Full) && looks(257, Mask::Causal));
    // Keys of a window of 129 lie in two tiles, those of one of 130 may lie in three.
    let window = |left| Mask::Window { left, right: 1 };
    assert!(!looks(2000, window(127)) && looks(2000, window(128)));
}

/// The same bits from tiles in any order, where sums are in f32 for that.
#[test]
fn two_tiles_give_the_same_bits_in_any_order() {
    let (device, target) = common::device("sim:h200");
    for (keys, mask) in [
        (200, Mask::Full),
        (
            500,
            Mask::Window {
                left: 70,
                right: 58,
            },
        ),
    ] {
        let mut attention = Problem::new(1, 2, keys, 64);
        attention.mask = mask;
        let problem = Backward {
            attention,
            sums: Sums::Fixed,
        };
        let results = [1, 2, 5].map(|seed| {
            let variant = BACKWARD.choose(Some("wgmma"), &problem, target);
            let mut schedule = Schedule::new(TileSource::Ticket);
            if seed > 1 {
                schedule.order = AnyOrder::new(HeaviestFirst { heads: 1 });
            }
            let variant = variant.expect("a variant");
            let mut job = variant
                .job(&problem, Some(&schedule), target)
                .expect("a job");
            fill_backward(&mut job, &problem, 3);
            let settings = Settings {
                seed,
                ..Settings::default()
            };
            common::run(&mut job, &device, &settings);
            ["dq", "dk", "dv"].map(|name| job.data(name).cloned())
        });
        assert!(
            results[0] == results[1] && results[1] == results[2],
            "{keys} keys"
        );
    }
}

/// One block for all tiles, some of which are empty: what it waits for at the end of a tile does not change what it waits for in the next.
#[test]
fn a_block_takes_one_tile_after_the_other() {
    let (device, target) = common::device("sim:h200");
    let target = Target { sms: 1, ..target };
    for (index, source) in [TileSource::Static, TileSource::Ticket]
        .into_iter()
        .enumerate()
    {
        let mut attention = Problem::ragged(vec![(70, 300), (0, 5), (9, 0), (130, 129)], 2, 64);
        attention.mask = MASKS[index];
        let problem = Backward::of(attention);
        let variant = BACKWARD.choose(Some("wgmma"), &problem, target);
        let mut job = variant
            .and_then(|variant| variant.job(&problem, Some(&Schedule::new(source)), target))
            .expect("a job");
        fill_backward(&mut job, &problem, 3);
        judged(job, &problem, "wgmma", &device);
    }
}

/// Sums in fixed point are those in f32, but for what they are rounded to.
#[test]
fn fixed_point_is_as_exact_as_f32() {
    let device = common::device("sim:h200");
    for keys in [260, 400] {
        let [float, fixed] = [Sums::Float, Sums::Fixed].map(|sums| {
            let mut attention = Problem::new(1, 1, 20, 64);
            attention.lengths = Lengths::Same {
                batch: 1,
                queries: 20,
                keys,
            };
            let job = right(&Backward { attention, sums }, "wgmma", &device);
            let dq = job.data("dq").expect("it");
            dq.iter()
                .map(|bits| dq.ty().to_f64(bits))
                .collect::<Vec<_>>()
        });
        let square = |sum: f64, one: f64| sum + one * one;
        let apart = float.iter().zip(&fixed).map(|(a, b)| a - b);
        let apart = (apart.fold(0.0, square) / float.iter().copied().fold(0.0, square)).sqrt();
        assert!(apart < 1e-4, "{keys} keys: {apart}");
    }
}

/// A gradient that is not finite is told, and no whole number in its place.
#[test]
fn an_infinite_gradient_is_not_lost_in_fixed_point() {
    let (device, target) = common::device("sim:h200");
    let problem = Backward {
        attention: Problem::new(1, 1, 70, 64),
        sums: Sums::Fixed,
    };
    let mut job = job(&problem, "tensor", target);
    let d_out = job.buffers.iter_mut().find(|b| b.name == "d_out");
    let bytes = d_out.expect("it").data.bytes_mut();
    bytes[2 * 64 * 5..][..2].copy_from_slice(&0x7C00u16.to_le_bytes());
    common::run(&mut job, &device, &Settings::default());
    let dq = job.data("dq").expect("it");
    let value = |at| dq.ty().to_f64(dq.iter().nth(at).expect("an element"));
    assert!(value(64 * 5).is_nan() && value(64 * 4).is_finite());
}

/// What lies past the end of a packed sequence may be anything.
#[test]
fn a_neighbour_that_is_not_finite_does_no_harm() {
    let (device, target) = common::device("sim:h200");
    let mut attention = Problem::ragged(vec![(70, 75), (60, 60)], 1, 64);
    attention.mask = Mask::Causal;
    let problem = Backward::of(attention);
    for variant in ["tensor", "wgmma"] {
        let mut job = job(&problem, variant, target);
        for (name, first) in [("q", 70), ("d_out", 70), ("k", 75), ("v", 75)] {
            let buffer = job.buffers.iter_mut().find(|b| b.name == name);
            for pair in buffer.expect("it").data.bytes_mut()[first * 128..].chunks_exact_mut(2) {
                pair.copy_from_slice(&0x7C00u16.to_le_bytes());
            }
        }
        common::run(&mut job, &device, &Settings::default());
        for (name, rows) in [("dq", 70), ("dk", 75), ("dv", 75)] {
            let data = job.data(name).expect("it");
            let mut own = data
                .iter()
                .take(rows * 64)
                .map(|bits| data.ty().to_f64(bits));
            assert!(own.all(f64::is_finite), "{variant} {name}");
        }
    }
}

/// Some problem for the assembler.
fn some(dim: u32, which: usize) -> Backward {
    let mut problem = Problem::new(2, 8, 1024, dim);
    if which % 4 == 3 {
        problem = Problem::ragged(vec![(900, 900), (1, 700)], 8, dim);
    }
    problem.dtype = Dtype::ALL[which % 2];
    problem.mask = MASKS[which % 3];
    Backward {
        attention: problem,
        sums: [Sums::Float, Sums::Fixed][(which / 2) % 2],
    }
}

/// Bytes that may be spilled: by `mma.sync` with the widest heads, which takes every register that there is, three words of what a block of queries
/// begins with.
fn spill_allowed(variant: &str, problem: &Backward) -> u64 {
    match (variant, problem.attention.head_dim) {
        ("tensor", 128) => 24,
        _ => 0,
    }
}

#[test]
fn few_spills_and_tensor_cores_where_they_belong() {
    let Some(ptxas) = Ptxas::find_or_say_skipped() else {
        return;
    };
    let others = [
        (Arch::SM_80, 128),
        (Arch::SM_86, 64),
        (Arch::SM_89, 96),
        (Arch::SM_100, 112),
        (Arch::SM_120, 64),
    ];
    let mut cases = Vec::new();
    for (index, (arch, dim)) in others.into_iter().enumerate() {
        cases.push((arch, "tensor", some(dim, index)));
    }
    for which in 0..4 {
        cases.push((Arch::SM_90A, "tensor", some(128, which)));
        cases.push((Arch::SM_90A, "wgmma", some(64, which)));
        cases.push((Arch::SM_90A, "wgmma", some(128, which)));
    }
    for (index, dim) in [80, 48, 128, 96, 64, 112, 32].into_iter().enumerate() {
        cases.push((Arch::SM_90A, ["cut", "wgmma"][index % 2], some(dim, index)));
    }
    let changes = [
        ("wgmma", 64, vec![softcap(30.0)]),
        ("wgmma", 128, vec![softcap(30.0)]),
        ("cut", 96, vec![softcap(30.0)]),
        ("tensor", 64, vec![softcap(30.0)]),
        ("wgmma", 64, vec![alibi()]),
        ("wgmma", 128, vec![alibi()]),
        ("wgmma", 64, vec![softcap(30.0)]),
        ("tensor", 128, vec![alibi()]),
        ("wgmma", 128, vec![softcap(30.0)]),
    ];
    for (index, (variant, dim, mods)) in changes.into_iter().enumerate() {
        let mut changed = some(dim, index);
        changed.attention.scoring.mods = mods;
        cases.push((Arch::SM_90A, variant, changed));
    }
    let codes = MachineCodes::default();
    let wrong = heist_oracle::parallel(&cases, |(arch, variant, problem)| {
        let target = Target {
            arch: *arch,
            sms: 132,
        };
        let plan = match *variant {
            "cut" => backward_in_parts(problem, 3, None, target),
            "wgmma" => backward_in_parts(problem, 1, None, target),
            _ => BACKWARD.plan(Some(variant), problem, target),
        };
        let plan = plan.unwrap_or_else(|error| panic!("{problem}: {error}"));
        let mut wrong = Vec::new();
        for step in &plan.steps {
            let what = format!("{arch} {problem}: {variant}, {}", step.entry);
            let (ptx, name) = (step.ptx(), arch.to_string());
            let cubin = ptxas
                .assemble(&ptx, &name)
                .unwrap_or_else(|refusal| panic!("{what}: {refusal}"));
            let complaints = cubin.complaints();
            let usage = cubin.usage()[&step.entry];
            let spilled = usage.spill_loads + usage.spill_stores;
            let allowed = match step.entry.as_str() {
                "attention_backward" => spill_allowed(variant, problem),
                _ => 0,
            };
            if spilled > allowed || !complaints.is_empty() {
                wrong.push(format!("{what}: {spilled} bytes spilled, {complaints:?}"));
            }
            let products = match (step.entry.as_str(), *variant) {
                ("attention_backward", _) => Some("HMMA"),
                ("attention_backward_wgmma", _) => Some("HGMMA"),
                _ => None,
            };
            if let Some(products) = products
                && let Some(code) = codes.first_of_its_kind(&name, &ptx, &cubin)
                && !code.contains(products)
            {
                wrong.push(format!("{what}: no {products}"));
            }
        }
        wrong
    });
    let wrong = wrong.concat();
    assert!(wrong.is_empty(), "{wrong:#?}");
}
