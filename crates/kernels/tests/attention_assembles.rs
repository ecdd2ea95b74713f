//! The attention kernels, judged by ptxas: no spills on any architecture they
//! claim, and tensor-core instructions where there should be some.

use heist_builder::Arch;
use heist_kernels::attention::{
    Append, BlockMask, Cache, Config, Dtype, FAMILY, Layout, Lengths, Mask, Output, PairElement,
    PairMask, Problem, Rung, Scoring, Weights, alibi, documents, job, pairs, schedule, softcap,
    warpgroup_job, warpgroup_shape,
};
use heist_kernels::{LaunchPlan, Step, Target};
use heist_oracle::{MachineCodes, Ptxas, parallel, sample};
use heist_sched::{Schedule, TileSource};

/// A kernel that some shape is given.
#[derive(Debug)]
struct Case {
    arch: Arch,
    rung: Rung,
    problem: Problem,
}

fn case(arch: Arch, rung: Rung, dim: u32, which: usize) -> Case {
    // Few tiles and many: the last rungs choose other shapes for them.
    let mut problem = Problem::new([1, 16][which % 2], 8, 1024, dim);
    problem.dtype = Dtype::ALL[which % 2];
    problem.mask = [
        Mask::Causal,
        Mask::Full,
        Mask::Window { left: 99, right: 0 },
    ][which % 3];
    if which % 5 == 4 {
        problem = Problem {
            mask: problem.mask,
            ..Problem::ragged(vec![(900, 900), (1, 700)], 8, dim)
        };
    }
    Case {
        arch,
        rung,
        problem,
    }
}

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (index, rung) in Rung::ALL.into_iter().enumerate() {
        let all = rung >= Rung::Large;
        let dims = if all {
            &[32, 64, 96, 128, 256][..]
        } else {
            &[64, 256]
        };
        for (other, &dim) in dims.iter().enumerate() {
            cases.push(case(Arch::SM_90, rung, dim, index + other));
        }
        let others = [
            Arch::SM_80,
            Arch::SM_86,
            Arch::SM_89,
            Arch::SM_100,
            Arch::SM_120,
        ];
        for (other, arch) in others.into_iter().enumerate() {
            if all {
                let (dim, which) = [(64, 2 * index + 1), (128, index + other)][(index + other) % 2];
                cases.push(case(arch, rung, dim, which));
            } else if index == other % 4 {
                cases.push(case(arch, rung, 64, index + other));
            }
        }
    }
    // The shapes that are measured, and with weights in two terms: in turns, since ptxas takes
    // its time for each.
    for (index, dim) in [32, 64, 96, 128, 256].into_iter().enumerate() {
        for (which, mask) in [Mask::Full, Mask::Causal].into_iter().enumerate() {
            let mut problem = Problem::new(16, 2048 / dim, 1024, dim);
            (problem.mask, problem.dtype) = (mask, Dtype::ALL[(index + which) % 2]);
            cases.push(Case {
                arch: Arch::SM_90,
                rung: [Rung::Large, Rung::Persistent][(index + which) % 2],
                problem: problem.clone(),
            });
            (problem.dtype, problem.weights) = (Dtype::Bf16, Weights::Split);
            problem.output = [Output::Same, Output::F32][(index + which) % 2];
            let (arch, rung) = [
                (Arch::SM_90, Rung::Large),
                (Arch::SM_90, Rung::Persistent),
                ([Arch::SM_80, Arch::SM_89][index % 2], Rung::Large),
            ][(2 * index + which) % 3];
            cases.push(Case {
                arch,
                rung,
                problem,
            });
        }
    }
    cases
}

/// What ptxas spills or complains about in the kernels of a plan.
fn spills_and_complaints(ptxas: &Ptxas, plan: &LaunchPlan, arch: Arch) -> Vec<String> {
    let judge = |step: &Step| {
        let cubin = ptxas
            .assemble(&step.ptx(), &arch.to_string())
            .unwrap_or_else(|refusal| panic!("{}: {refusal}", plan.name));
        let usage = cubin.usage()[&step.entry];
        let spills = usage.spill_loads + usage.spill_stores > 0;
        let wrong = spills || !cubin.complaints().is_empty();
        wrong.then(|| format!("{}: {usage:?} {:?}", plan.name, cubin.complaints()))
    };
    plan.steps.iter().filter_map(judge).collect()
}

/// What is wrong with a kernel.
fn judge(
    (ptxas, codes): (&Ptxas, &MachineCodes),
    case: &Case,
    config: &Config,
    step: &Step,
) -> Vec<String> {
    let what = format!("{} {}: {config}", case.arch, case.problem);
    let mut wrong = Vec::new();
    let mut expect = |holds: bool, but: String| {
        if !holds {
            wrong.push(format!("{what}: {but}"));
        }
    };
    let text = step.ptx();
    let cubin = ptxas
        .assemble(&text, &case.arch.to_string())
        .unwrap_or_else(|refusal| panic!("{what}: {refusal}"));
    let complaints = cubin.complaints();
    expect(complaints.is_empty(), format!("{complaints:?}"));
    let usage = cubin.usage()[&step.entry];
    let spilled = usage.spill_loads + usage.spill_stores;
    let registers = usage.registers;
    expect(
        spilled == 0,
        format!("{registers} registers, {spilled} bytes spilled"),
    );
    let arch = case.arch.to_string();
    let Some(machine_code) = codes.first_of_its_kind(&arch, &text, &cubin) else {
        return wrong;
    };
    let tile = step.entry != "attention_combine";
    let tensor = tile && case.rung > Rung::Scalar;
    let copies = tile && case.rung >= Rung::Buffered;
    for (name, wanted) in [
        ("HMMA", tensor),
        ("LDSM", tensor),
        ("LDGSTS", copies),
        ("LDL", false),
    ] {
        let found = machine_code.contains(name);
        expect(found == wanted, format!("{name}: {found}, not {wanted}"));
    }
    wrong
}

#[test]
fn no_spills_and_tensor_cores_where_they_should_be() {
    let Some(ptxas) = Ptxas::find_or_say_skipped() else {
        return;
    };
    let codes = MachineCodes::default();
    let wrong = parallel(&sample(cases()), |case| {
        let target = Target {
            arch: case.arch,
            sms: 132,
        };
        let config = Config::suited(case.rung, &case.problem, target);
        let schedule = schedule(&config, &case.problem, target);
        let job = job(&case.problem, &config, &schedule, target)
            .unwrap_or_else(|error| panic!("{case:?}: {error}"));
        let steps = job.steps.iter();
        steps
            .flat_map(|step| judge((&ptxas, &codes), case, &config, step))
            .collect::<Vec<_>>()
    });
    let wrong = wrong.concat();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The kernel on warpgroups: what ptxas says when it can't keep products in
/// flight, it says as a complaint.
#[test]
fn warpgroups_neither_spill_nor_wait_for_each_product() {
    let Some(ptxas) = Ptxas::find_or_say_skipped() else {
        return;
    };
    let masks = [
        Mask::Full,
        Mask::Causal,
        Mask::Window { left: 99, right: 0 },
    ];
    let target = Target {
        arch: Arch::SM_90A,
        sms: 132,
    };
    let mut cases = Vec::new();
    let packed = |dim| Problem::ragged(vec![(4096, 4096); 4], 16, dim);
    for (index, dim) in [32, 80, 96, 160, 192, 256, 64, 128].into_iter().enumerate() {
        let mut problem = match index % 2 {
            0 => packed(dim),
            _ => Problem::new(4, 16, 4096, dim),
        };
        (problem.mask, problem.dtype) = (masks[index % 3], Dtype::ALL[index / 2 % 2]);
        problem.weights = Weights::ALL[index / 2 % 2];
        cases.push((problem, Schedule::new(TileSource::Direct)));
    }
    // Several blocks of one warpgroup on a multiprocessor, and warpgroups that share keys.
    for (index, (batch, length, dim)) in [
        (64, 128, 64),
        (32, 256, 64),
        (16, 128, 128),
        (1, 512, 128),
        (1, 1024, 64),
    ]
    .into_iter()
    .enumerate()
    {
        for mask in [Mask::Full, Mask::Causal] {
            let heads = if length > 512 { 8 } else { 16 };
            let mut problem = Problem::new(batch, heads, length, dim);
            (problem.mask, problem.dtype) = (mask, Dtype::ALL[index % 2]);
            if index == 1 {
                (problem.output, problem.layout) = (Output::F32, Layout::Rows);
            }
            cases.push((problem, Schedule::new(TileSource::Direct)));
        }
    }
    for (index, (dim, values)) in [(192, 128), (256, 128), (192, 176)].into_iter().enumerate() {
        for weights in Weights::ALL {
            let mut problem = Problem::new(4, 16, 4096, dim);
            (problem.value_dim, problem.mask) = (Some(values), masks[index]);
            problem.weights = weights;
            cases.push((problem, Schedule::new(TileSource::Direct)));
        }
    }
    for dim in [64, 128] {
        for (index, mask) in masks.into_iter().enumerate() {
            for (source, weights) in [
                (TileSource::Direct, Weights::Rounded),
                (TileSource::Direct, Weights::Split),
                (TileSource::Ticket, Weights::Rounded),
            ] {
                let mut problem = Problem::new(4, 16, 4096, dim);
                (problem.mask, problem.dtype) = (mask, Dtype::ALL[index % 2]);
                problem.weights = weights;
                if index == 1 && source == TileSource::Direct {
                    (problem.output, problem.layout) = (Output::F32, Layout::Rows);
                }
                if source == TileSource::Ticket {
                    let pausing: Schedule = "ticket late pausing until-asked"
                        .parse()
                        .expect("a schedule");
                    cases.push((problem.clone(), pausing.clone()));
                    let packed = Problem {
                        mask,
                        weights: Weights::ALL[index % 2],
                        ..packed(dim)
                    };
                    cases.push((packed, pausing));
                }
                cases.push((problem, Schedule::new(source)));
            }
        }
    }
    // Few tiles whose keys clusters of two, four and eight share, and wide heads in tiles of one warpgroup.
    let mut apart = Vec::new();
    for (index, (heads, queries, keys, dim, blocks)) in [
        (8, 512, 512, 64, 2),
        (8, 512, 512, 128, 2),
        (2, 1088, 1088, 80, 2),
        (1, 2048, 2048, 64, 4),
        (1, 2048, 2048, 128, 4),
        (2, 640, 9000, 96, 4),
        (2, 640, 9000, 64, 8),
        (2, 640, 9000, 128, 8),
    ]
    .into_iter()
    .enumerate()
    {
        let mut problem = Problem::new(1, heads, queries, dim);
        problem.lengths = Lengths::Same {
            batch: 1,
            queries,
            keys,
        };
        (problem.mask, problem.dtype) = (masks[index / 2 % 2], Dtype::ALL[index % 2]);
        problem.output = [Output::Same, Output::F32][index / 3 % 2];
        problem.layout = [Layout::Heads, Layout::Rows][index / 2 % 2];
        problem.scoring.sinks = index % 3 == 0;
        let shape = warpgroup_shape(&problem, target);
        assert_eq!(shape.sharing.blocks(), blocks, "{problem}: {shape}");
        apart.push((problem, Schedule::new(TileSource::Direct)));
    }
    for (index, (tokens, dim, keys)) in [
        (87, 144, 32),
        (95, 160, 32),
        (110, 192, 32),
        (429, 192, 48),
        (240, 176, 48),
        (52, 240, 32),
        (301, 256, 32),
    ]
    .into_iter()
    .enumerate()
    {
        let mut problem = Problem::new(29, 32, tokens, dim);
        (problem.mask, problem.dtype) = (masks[usize::from(keys == 32)], Dtype::ALL[index % 2]);
        problem.output = [Output::Same, Output::F32][index / 2 % 2];
        let shape = warpgroup_shape(&problem, target);
        assert_eq!((shape.groups, shape.keys), (1, keys), "{problem}: {shape}");
        apart.push((problem, Schedule::new(TileSource::Direct)));
    }
    let codes = MachineCodes::default();
    cases = sample(cases);
    cases.extend(sample(apart));
    let wrong = parallel(&cases, |(problem, schedule)| {
        let mut shape = warpgroup_shape(problem, target);
        if schedule.source != TileSource::Direct {
            shape = shape.scheduled();
        }
        if schedule.pausing {
            shape = shape.paused();
        }
        let what = format!("{problem}: {shape}, {schedule}");
        let job = warpgroup_job(problem, shape, schedule, target)
            .unwrap_or_else(|error| panic!("{what}: {error}"));
        // Packed sequences have a launch before, which lists their tiles.
        let step = job.steps.last().expect("a launch");
        let (ptx, arch) = (step.ptx(), target.arch.to_string());
        let cubin = ptxas
            .assemble(&ptx, &arch)
            .unwrap_or_else(|refusal| panic!("{what}: {refusal}"));
        let usage = cubin.usage()[&step.entry];
        let mut wrong: Vec<String> = cubin
            .complaints()
            .iter()
            .map(|c| format!("{what}: {c:?}"))
            .collect();
        if usage.spill_loads + usage.spill_stores > 0 {
            wrong.push(format!("{what}: {usage:?}"));
        }
        if let Some(machine_code) = codes.first_of_its_kind(&arch, &ptx, &cubin) {
            for (name, wanted) in [("HGMMA", true), ("UTMALDG", true), ("LDL", false)] {
                if machine_code.contains(name) != wanted {
                    wrong.push(format!("{what}: {name}, not {wanted}"));
                }
            }
        }
        wrong
    });
    let wrong = wrong.concat();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// What models add, with the tiles that are chosen for it: one change of scores at a time, and
/// all that there is.
#[test]
fn what_models_add_does_not_spill() {
    let Some(ptxas) = Ptxas::find_or_say_skipped() else {
        return;
    };
    let window = Mask::Window { left: 99, right: 0 };
    let plain = Scoring::default;
    let scorings = [
        (vec![softcap(30.0)], plain(), Mask::Causal),
        (vec![softcap(30.0)], plain(), Mask::Full),
        (vec![alibi()], plain(), Mask::Causal),
        (vec![documents()], plain(), Mask::Causal),
        (
            Vec::new(),
            Scoring {
                prefix: Some(64),
                ..plain()
            },
            window,
        ),
        (
            vec![softcap(30.0), alibi(), documents()],
            Scoring {
                sinks: true,
                prefix: Some(64),
                ..plain()
            },
            window,
        ),
    ];
    let mut cases = Vec::new();
    for (index, (mods, scoring, mask)) in scorings.into_iter().enumerate() {
        for (variant, dim, arch) in [
            ("wgmma", 64, Arch::SM_90A),
            ("wgmma", 128, Arch::SM_90A),
            ("large", [64, 128][index % 2], Arch::SM_90),
            ("large", [128, 64][index % 2], Arch::SM_80),
            ("decode", [64, 128][index % 2], Arch::SM_90),
        ] {
            let mut problem = Problem::new(8, 16, 4096, dim);
            if variant == "decode" {
                problem.kv_heads = 4;
                problem.lengths = Lengths::Same {
                    batch: 8,
                    queries: 1 + 8 * (index as u32 % 2),
                    keys: 20_000,
                };
            }
            (problem.mask, problem.dtype) = (mask, Dtype::ALL[index % 2]);
            problem.scoring = Scoring {
                mods: mods.clone(),
                ..scoring.clone()
            };
            cases.push((problem, variant, Target { arch, sms: 132 }));
        }
    }
    for (index, dim) in [64, 128, 256].into_iter().enumerate() {
        let mut problem = Problem::new(8, 16, 4096, dim);
        problem.mask = [Mask::Causal, window, Mask::Full][index];
        problem.scoring.blocks = Some(BlockMask {
            rows: 128,
            keys: 128,
            by_sequence: index > 0,
            by_head: index > 1,
        });
        let arch = Arch::SM_90A;
        cases.push((problem, "wgmma", Target { arch, sms: 132 }));
    }
    let wrong = parallel(&sample(cases), |(problem, variant, target)| {
        let plan = FAMILY
            .plan(Some(variant), problem, *target)
            .unwrap_or_else(|error| panic!("{variant} {problem}: {error}"));
        spills_and_complaints(&ptxas, &plan, target.arch)
    });
    let wrong = wrong.concat();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// What a schedule takes beside the tiles: a policy that is interpreted, or the blocks of a window that are found for each tile of a strip.
#[test]
fn what_a_schedule_takes_does_not_spill() {
    let Some(ptxas) = Ptxas::find_or_say_skipped() else {
        return;
    };
    let window = Mask::Window { left: 99, right: 0 };
    let mut cases = Vec::new();
    let mut push = |arch: Arch, told: &str, problem: Problem| {
        let variant = if arch == Arch::SM_90A {
            "wgmma"
        } else {
            "tcgen05"
        };
        let schedule: Schedule = told.parse().expect("a schedule");
        cases.push((arch, variant, schedule, problem));
    };
    let late = "ticket late loaded: greedy hilbert";
    let early = "ticket early loaded: greedy";
    push(Arch::SM_90A, late, Problem::new(4, 16, 128, 128));
    let packed = Problem::ragged(vec![(900, 900), (17, 17), (3000, 3000)], 16, 64);
    push(Arch::SM_90A, early, packed);
    let mut hidden = Problem::new(4, 8, 512, 128);
    hidden.mask = window;
    push(Arch::SM_90A, "ticket late loaded: greedy", hidden);
    let mut strips = Problem::new(4, 32, 1024, 64);
    (strips.mask, strips.output) = (window, Output::F32);
    push(Arch::SM_90A, "ticket late hilbert", strips);
    let mut changed = Problem::new(4, 8, 4096, 128);
    (changed.mask, changed.scoring.mods) = (window, vec![documents()]);
    push(Arch::SM_90A, early, changed);
    let mut changed = Problem::new(4, 8, 128, 128);
    changed.scoring.mods = vec![alibi()];
    push(Arch::SM_100A, late, changed);
    let mut changed = Problem::new(4, 32, 4096, 96);
    (changed.mask, changed.scoring.mods) = (Mask::Causal, vec![documents()]);
    push(Arch::SM_100A, "clc early greedy", changed);
    let wrong = parallel(&cases, |(arch, variant, schedule, problem)| {
        let target = Target {
            arch: *arch,
            sms: 132,
        };
        let variant = FAMILY.choose(Some(variant), problem, target);
        let plan = variant.and_then(|variant| variant.plan(problem, Some(schedule), target));
        let plan = plan.unwrap_or_else(|error| panic!("{problem}, {schedule}: {error}"));
        spills_and_complaints(&ptxas, &plan, *arch)
    });
    let wrong = wrong.concat();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Decoding and its combining kernel: tiles of every size on every architecture with
/// tensor copies.
#[test]
fn decoding_does_not_spill() {
    let Some(ptxas) = Ptxas::find_or_say_skipped() else {
        return;
    };
    let mut cases = Vec::new();
    for (index, (dim, group, queries)) in [
        (64, 4, 1),
        (128, 8, 1),
        (128, 16, 2),
        (128, 8, 8),
        (64, 8, 8),
        (80, 1, 16),
        (256, 4, 1),
        (256, 32, 1),
        (192, 8, 8),
    ]
    .into_iter()
    .enumerate()
    {
        let lengths = vec![(queries, 900), (queries, 70_000)];
        let mut problem = Problem::ragged(lengths, 2 * group, dim);
        problem.kv_heads = 2;
        problem.page_size = [None, Some(16), Some(64)][index % 3];
        problem.append = problem.page_size.map(|_| Append {
            rows: 3,
            in_cache_type: false,
        });
        if index % 2 == 0 {
            (problem.page_size, problem.append) = (None, None);
            problem.lengths = Lengths::Same {
                batch: 2,
                queries,
                keys: 70_000,
            };
        }
        problem.mask = [
            Mask::Full,
            Mask::Causal,
            Mask::Window { left: 99, right: 0 },
        ][index / 2 % 3];
        (problem.dtype, problem.weights) = (Dtype::ALL[index % 2], Weights::ALL[index / 3 % 2]);
        let arch = [Arch::SM_90, Arch::SM_90A, Arch::SM_100][index % 3];
        if dim % 32 == 0 {
            let mut tiny = problem.clone();
            tiny.cache = Cache::E4m3;
            cases.push((tiny, Target { arch, sms: 132 }));
        }
        cases.push((problem, Target { arch, sms: 132 }));
    }
    let mut cases = sample(cases);
    // Four key heads a tile.
    for page_size in [None, Some(16)] {
        let mut problem = Problem::ragged(vec![(1, 5000); 80], 16, 64);
        (problem.kv_heads, problem.cache) = (4, Cache::E4m3);
        (problem.page_size, problem.dtype) = (page_size, Dtype::Bf16);
        let arch = Arch::SM_90A;
        cases.push((problem, Target { arch, sms: 132 }));
    }
    // 64 rows, of which a warp has 16 and 64 keys of a stage.
    for page_size in [None, Some(16)] {
        let mut problem = Problem::ragged(vec![(1, 12_288); 16], 64, 128);
        (problem.kv_heads, problem.page_size) = (1, page_size);
        problem.dtype = Dtype::Bf16;
        let arch = Arch::SM_90A;
        cases.push((problem, Target { arch, sms: 132 }));
    }
    // 32 rows and more over 8-bit keys, of which a warp has 32.
    for (index, (group, queries, dim)) in [(32, 1, 128), (16, 4, 128), (8, 3, 64), (32, 1, 96)]
        .into_iter()
        .enumerate()
    {
        for page_size in [None, Some(16)] {
            let mut problem = Problem::ragged(vec![(queries, 5000); 20], 2 * group, dim);
            (problem.kv_heads, problem.cache) = (2, Cache::E4m3);
            (problem.page_size, problem.mask) = (page_size, [Mask::Full, Mask::Causal][index % 2]);
            problem.append = page_size.map(|_| Append {
                rows: queries,
                in_cache_type: index % 2 == 0,
            });
            for weights in Weights::ALL {
                problem.weights = weights;
                let arch = Arch::SM_90A;
                cases.push((problem.clone(), Target { arch, sms: 132 }));
            }
        }
    }
    // Keys and values that are one row, on warpgroups.
    for (index, (heads, dim, values)) in [(16, 576, 512), (128, 576, 512), (64, 192, 128)]
        .into_iter()
        .enumerate()
    {
        let mut problem = Problem::ragged(vec![(1 + index as u32, 5000); 4], heads, dim);
        (problem.kv_heads, problem.cache) = (1, Cache::Latent);
        (problem.value_dim, problem.page_size) = (Some(values), [Some(64), Some(8), None][index]);
        (problem.dtype, problem.mask) =
            (Dtype::ALL[index % 2], [Mask::Causal, Mask::Full][index % 2]);
        let arch = Arch::SM_90A;
        cases.push((problem, Target { arch, sms: 132 }));
    }
    let wrong = parallel(&cases, |(problem, target)| {
        let plan = FAMILY
            .plan(Some("decode"), problem, *target)
            .unwrap_or_else(|error| panic!("{problem}: {error}"));
        spills_and_complaints(&ptxas, &plan, target.arch)
    });
    let wrong = wrong.concat();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn masks_of_pairs_spill_nothing_on_warpgroups() {
    let Some(ptxas) = Ptxas::find_or_say_skipped() else {
        return;
    };
    let target = Target {
        arch: Arch::SM_90A,
        sms: 132,
    };
    let mut plans = Vec::new();
    for (index, element) in PairElement::ALL.into_iter().enumerate() {
        for (which, (dim, length)) in [(64, 300), (64, 4096), (128, 2048), (256, 1024)]
            .into_iter()
            .enumerate()
        {
            let mut problem = Problem::new(4, 8, length, dim);
            (problem.dtype, problem.mask) = (
                Dtype::ALL[(index + which) % 2],
                [Mask::Full, Mask::Causal][(index / 2 + which) % 2],
            );
            let strides = [0, 0, length];
            problem.scoring.mods = vec![pairs(PairMask { element, strides })];
            let variant = FAMILY.choose(Some("wgmma"), &problem, target);
            let plan = variant.and_then(|variant| variant.plan(&problem, None, target));
            plans.push(plan.unwrap_or_else(|error| panic!("{problem}: {error}")));
        }
    }
    let wrong = parallel(&sample(plans), |plan| {
        spills_and_complaints(&ptxas, plan, target.arch)
    });
    let wrong: Vec<String> = wrong.into_iter().flatten().collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
