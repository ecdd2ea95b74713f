//! Attention on the simulated GPU: every rung against softmax in f64, with all
//! checks on.

mod common;

use heist_builder::f16;
use heist_kernels::attention::*;
use heist_kernels::{Job, Target};
use heist_launch::Buffer;
use heist_run::Settings;
use heist_sched::{Schedule, TileSource};

/// Runs the cases of a topic, a fifth of them where there are many; results and log-sum-exps are
/// within the bound.
fn right(topic: Topic, device: &str) {
    const MANY: usize = 16;
    let (device, target) = common::device(device);
    let cases = cases(topic, target);
    assert!(!cases.is_empty(), "{topic:?}");
    let cases = match cases.len() {
        0..MANY => cases,
        _ => heist_oracle::sample(cases),
    };
    for case in cases {
        let mut job = case
            .job(target)
            .unwrap_or_else(|error| panic!("{case}: {error}"));
        let problem = &case.problem;
        randomise(&mut job, problem, 7);
        common::run(&mut job, &device, &Settings::default());
        let verdict = verify(&job, problem, Sample::All).expect("its buffers");
        if let Err(wrong) = verdict.judge(problem) {
            panic!("{case}: {wrong}");
        }
    }
}

fn target() -> Target {
    common::device("sim:h200").1
}

/// Nothing else than what lies where the views say is read.
#[test]
fn of_views() {
    right(Topic::Views, "sim:h200");
    let cases = cases(Topic::Views, target());
    let decoded = |case: &&Case| matches!(case.kernel, Which::Decode(..));
    assert!(cases.iter().filter(decoded).count() > 6, "{}", cases.len());
}

#[test]
fn every_rung_type_mask_and_layout_within_a_500th() {
    right(Topic::Rungs, "sim:h200");
    let cases = cases(Topic::Rungs, target());
    assert!(cases.iter().all(|case| bound(&case.problem) <= 2e-3));
}

#[test]
fn every_head_dimension_with_its_own_tiles() {
    right(Topic::HeadDimensions, "sim:h200");
    right(Topic::HeadDimensions, "sim:l4");
}

#[test]
fn the_tiles_of_large_problems() {
    right(Topic::ManyTiles, "sim:h200");
    right(Topic::ManyTiles, "sim:l4");
}

#[test]
fn lengths_at_the_edges_of_tiles() {
    right(Topic::Edges, "sim:h200");
}

#[test]
fn heads_that_share_keys() {
    right(Topic::SharedHeads, "sim:a100");
}

#[test]
fn packed_sequences_with_lengths_of_their_own() {
    right(Topic::Packed, "sim:h200");
}

#[test]
fn keys_shared_out_among_warps_and_blocks() {
    right(Topic::SharedKeys, "sim:h200");
}

#[test]
fn every_way_to_feed_and_to_lay_out() {
    right(Topic::Feeds, "sim:h200");
}

#[test]
fn every_source_and_policy() {
    right(Topic::Schedules, "sim:b200");
    right(Topic::Schedules, "sim:rtx5090");
}

#[test]
fn the_whole_range_of_scores() {
    right(Topic::Scales, "sim:h200");
}

#[test]
fn weights_in_two_terms_and_results_in_f32() {
    right(Topic::Precision, "sim:h200");
    right(Topic::Precision, "sim:a100");
}

#[test]
fn on_warpgroups() {
    right(Topic::Warpgroups, "sim:h200");
    let without = common::device("sim:b200").1;
    assert!(cases(Topic::Warpgroups, without).is_empty());
}

#[test]
fn keys_that_the_blocks_of_a_cluster_share() {
    right(Topic::Clusters, "sim:h200");
}

/// Blocks add up what the others sent in an order that their numbers say, not in that of arrival: the same bits in every order in which blocks run.
#[test]
fn blocks_of_a_cluster_give_the_same_bits_in_any_order() {
    let (device, target) = common::device("sim:h200");
    let of = |sharing: Sharing, keys: u32| {
        let mut problem = Problem::new(1, 2, 1, 64);
        problem.lengths = Lengths::Same {
            batch: 1,
            queries: 70,
            keys,
        };
        problem.mask = Mask::Causal;
        let shape = WarpgroupShape {
            groups: 1,
            keys: 64,
            sharing,
            ..warpgroup_shape(&problem, target).scheduled()
        };
        (problem.clone(), staying(&problem, shape, 2, target))
    };
    for (problem, shape) in [
        of(Sharing::Two, 300),
        of(Sharing::Four, 500),
        of(Sharing::Eight, 900),
    ] {
        let results = [1, 2, 5, 9].map(|seed| {
            let direct = Schedule::new(TileSource::Direct);
            let mut job = warpgroup_job(&problem, shape, &direct, target).expect("a job");
            randomise(&mut job, &problem, 3);
            let settings = Settings {
                seed,
                chaos: seed > 1,
                ..Settings::default()
            };
            common::run(&mut job, &device, &settings);
            let verdict = verify(&job, &problem, Sample::All).expect("its buffers");
            verdict.judge(&problem).expect("right");
            ["out", "lse"].map(|name| job.data(name).cloned().expect("a result"))
        });
        for other in &results[1..] {
            assert!(*other == results[0], "{problem}: {shape}");
        }
    }
}

/// The same bits whatever block has a tile, and from run to run.
#[test]
fn wide_heads_have_the_same_bits_under_any_number_of_blocks() {
    let (device, target) = common::device("sim:h200");
    for (dim, keys) in [(192, 48), (256, 32)] {
        let mut problem = Problem::new(2, 2, 130, dim);
        problem.mask = Mask::Causal;
        let shape = WarpgroupShape {
            groups: 1,
            keys,
            ..warpgroup_shape(&problem, target).scheduled()
        };
        let shape = with_levels(&problem, staying(&problem, shape, 2, target));
        let results = [(u32::MAX, 1), (1, 2), (5, 3), (5, 4)].map(|(blocks, seed)| {
            let stay = shape.stay.map(|stay| Stay { blocks, ..stay });
            let shape = WarpgroupShape { stay, ..shape };
            let direct = Schedule::new(TileSource::Direct);
            let mut job = warpgroup_job(&problem, shape, &direct, target).expect("a job");
            randomise(&mut job, &problem, 3);
            let settings = Settings {
                seed,
                chaos: seed > 1,
                ..Settings::default()
            };
            common::run(&mut job, &device, &settings);
            ["out", "lse"].map(|name| job.data(name).cloned().expect("a result"))
        });
        for other in &results[1..] {
            assert!(*other == results[0], "{problem}: {shape}");
        }
    }
}

/// As many blocks as a multiprocessor is to hold have room in its shared memory, a kilobyte of each for the driver.
#[test]
fn blocks_that_are_to_share_a_multiprocessor_have_room() {
    let target = target();
    let direct = Schedule::new(TileSource::Direct);
    let resident = |problem: &Problem, shape: WarpgroupShape| {
        let job = warpgroup_job(problem, shape, &direct, target).expect("a job");
        let launch = &job.steps.last().expect("a launch").launch;
        assert!(launch.dynamic_shared > 0, "{problem}: {shape}");
        let all = target.arch.limits().shared_opt_in + 1024;
        let room = all / (launch.dynamic_shared + 1024);
        assert!(
            room >= shape.resident(),
            "{problem}: {shape}, room for {room}"
        );
    };
    for (dim, sharing) in [64, 96, 128]
        .into_iter()
        .flat_map(|dim| Sharing::ALL.map(|all| (dim, all)))
    {
        if sharing == Sharing::Eight && dim == 96 {
            continue;
        }
        let problem = Problem::new(1, 1, 640, dim);
        let shape = WarpgroupShape {
            groups: 1,
            keys: clustered_keys(&problem, sharing),
            sharing,
            ..warpgroup_shape(&problem, target).scheduled()
        };
        resident(&problem, staying(&problem, shape, 2, target));
    }
    for (tokens, dim) in [
        (95, 144),
        (110, 160),
        (87, 192),
        (429, 192),
        (62, 240),
        (301, 256),
    ] {
        let problem = Problem::new(29, 32, tokens, dim);
        let shape = warpgroup_shape(&problem, target);
        assert_eq!(shape.resident(), 2, "{problem}: {shape}");
        // The next tile's queries come ahead where there is room for them.
        let ahead = shape.stay.is_some_and(|stay| stay.ahead);
        assert_eq!(ahead, shape.keys == 32 && dim <= 192, "{problem}: {shape}");
        resident(&problem, shape);
    }
}

/// Packed sequences never share: a cluster has one tile, and a list may have an entry without one. Asked for all the same, that is refused.
#[test]
fn packed_sequences_do_not_share_keys_among_blocks() {
    let target = target();
    let problem = Problem::ragged(vec![(64, 4000); 4], 2, 64);
    let chosen = warpgroup_shape(&problem, target);
    assert_eq!(chosen.sharing, Sharing::None, "{chosen}");
    let shape = WarpgroupShape {
        groups: 1,
        sharing: Sharing::Four,
        listed: None,
        ..chosen.scheduled()
    };
    let shape = staying(&problem, shape, 2, target);
    let direct = Schedule::new(TileSource::Direct);
    let error = warpgroup_job(&problem, shape, &direct, target).expect_err("packed");
    let told = error.to_string();
    assert!(told.contains("4 blocks that share keys"), "{told}");
    assert!(told.contains("sequences that are alike"), "{told}");
}

#[test]
fn wide_heads_of_one_warpgroup() {
    right(Topic::WideHeads, "sim:h200");
}

#[test]
fn heads_with_half_a_step_of_elements() {
    right(Topic::HalfSteps, "sim:h200");
}

#[test]
fn decoding() {
    right(Topic::Decode, "sim:h200");
    let by = |appender| {
        let append = |case: &Case| match case.kernel {
            Which::Decode(shape, _) => shape.append.map(|append| append.by),
            _ => None,
        };
        let cases = cases(Topic::Decode, target());
        cases
            .iter()
            .filter(|case| append(case) == Some(appender))
            .count()
    };
    assert!(by(Appender::Tile) > 5 && by(Appender::Launch) > 1);
    let like = |wanted: fn(&DecodeShape) -> bool| {
        let like = |case: &Case| matches!(&case.kernel, Which::Decode(shape, _) if wanted(shape));
        cases(Topic::Decode, target()).iter().any(like)
    };
    assert!(like(|shape| shape.heads == 4 && shape.append.is_some()));
    assert!(like(
        |shape| shape.heads == 2 && shape.append.is_some_and(|append| append.rounds)
    ));
    assert!(like(|shape| shape.twins && shape.rows() > 16));
    let without = common::device("sim:a100").1;
    assert!(cases(Topic::Decode, without).is_empty());
}

#[test]
fn keys_and_values_that_are_one_row() {
    right(Topic::Latent, "sim:h200");
    let cases = cases(Topic::Latent, target());
    let by = |wanted| {
        let combines =
            |case: &&Case| matches!(case.kernel, Which::Decode(_, grid) if grid.combine == wanted);
        cases.iter().filter(combines).count()
    };
    assert!(
        [Combine::Nobody, Combine::LastBlock, Combine::Launch]
            .map(by)
            .iter()
            .all(|&count| count > 0)
    );
    let told = |change: &dyn Fn(&mut Problem), device: &str| {
        let mut problem = Problem::ragged(vec![(1, 70)], 16, 576);
        (problem.kv_heads, problem.cache) = (1, Cache::Latent);
        (problem.value_dim, problem.page_size) = (Some(512), Some(64));
        change(&mut problem);
        let refused = FAMILY.choose(None, &problem, common::device(device).1);
        refused.err().expect("a refusal").to_string()
    };
    type Change = fn(&mut Problem);
    let refused: [(Change, &str); 5] = [
        (|problem| problem.value_dim = None, "say value-dim"),
        (|problem| problem.value_dim = Some(192), "multiples of 128"),
        (|problem| problem.head_dim = 640, "up to 576"),
        (|problem| problem.scoring.sinks = true, "leave them out"),
        (
            |problem| {
                problem.append = Some(Append {
                    rows: 1,
                    in_cache_type: false,
                });
            },
            "put them there before",
        ),
    ];
    for (change, why) in refused {
        let error = told(&change, "sim:h200");
        assert!(error.contains(why), "{why}: {error}");
    }
    for device in ["sim:a100", "sim:b200"] {
        let error = told(&|_| {}, device);
        assert!(error.contains("sm_90"), "{device}: {error}");
    }
}

#[test]
fn what_models_add() {
    right(Topic::Models, "sim:h200");
    right(Topic::Models, "sim:a100");
    let listed = |case: &&Case| matches!(case.kernel, Which::Warpgroups(shape) if shape.seen);
    assert!(cases(Topic::Models, target()).iter().filter(listed).count() > 6);
}

/// Runs a problem with these tables, and with keys and values that are NaN where they are hidden: nothing of those is
/// read.
fn right_without(hidden: std::ops::Range<usize>, problem: &Problem, tables: &[(&str, Buffer)]) {
    let (device, target) = common::device("sim:h200");
    let variant = FAMILY.choose(Some("wgmma"), problem, target);
    let job = variant.and_then(|variant| variant.job(problem, None, target));
    let mut job = job.expect("a job");
    randomise(&mut job, problem, 7);
    let row = problem.head_dim as usize * 2;
    let set_hidden = |job: &mut Job, byte| {
        for buffer in &mut job.buffers {
            if let "k" | "v" = buffer.name.as_str() {
                buffer.data.bytes_mut()[hidden.start * row..hidden.end * row].fill(byte);
            }
        }
    };
    for buffer in &mut job.buffers {
        if let Some((_, table)) = tables.iter().find(|(name, _)| *name == buffer.name) {
            assert_eq!(table.len(), buffer.data.len(), "{}", buffer.name);
            buffer.data = table.clone();
        }
    }
    set_hidden(&mut job, 0xFF);
    common::run(&mut job, &device, &Settings::default());
    // The reference multiplies all values, some by zero.
    set_hidden(&mut job, 0);
    let verdict = verify(&job, problem, Sample::All).expect("its buffers");
    verdict.judge(problem).expect("nothing of what is hidden");
}

#[test]
fn hidden_blocks_are_skipped() {
    let mut problem = Problem::new(1, 1, 256, 64);
    problem.scoring.blocks = Some(BlockMask {
        rows: 128,
        keys: 64,
        by_sequence: false,
        by_head: false,
    });
    // Both blocks of queries see the first and the last block of keys.
    let mask = Buffer::from_slice(&[1u8, 0, 0, 1, 1, 0, 0, 1]);
    right_without(64..192, &problem, &[("block_mask", mask)]);
}

/// The queries stand at the last keys, which are of the second document.
#[test]
fn documents_of_others_are_skipped() {
    let mut problem = Problem::new(1, 1, 128, 64);
    problem.lengths = Lengths::Same {
        batch: 1,
        queries: 128,
        keys: 1024,
    };
    problem.scoring.mods.push(documents());
    let numbers: Vec<u32> = (0..1024).map(|key| key / 512).collect();
    let documents = Buffer::from_slice(&numbers);
    right_without(0..512, &problem, &[("documents", documents)]);
}

#[test]
fn masks_of_blocks_and_new_keys_that_can_not_be_are_told() {
    let blocks = |rows, keys| BlockMask {
        rows,
        keys,
        by_sequence: false,
        by_head: false,
    };
    let told = |problem: &Problem, variant: Option<&str>| {
        let refused = FAMILY.choose(variant, problem, target()).err();
        refused.expect("a refusal").to_string()
    };
    let mut problem = Problem::new(1, 1, 256, 64);
    problem.scoring.blocks = Some(blocks(64, 64));
    assert!(told(&problem, None).contains("multiples of 128 queries"));
    problem.scoring.blocks = Some(blocks(128, 128));
    for variant in ["large", "decode"] {
        let why = told(&problem, Some(variant));
        assert!(why.contains("variant=wgmma alone"), "{why}");
    }
    let gradients = Backward::of(problem.clone()).check().expect_err("none");
    assert!(
        gradients.to_string().contains("packed sequences"),
        "{gradients}"
    );
    let mut problem = Problem::ragged(vec![(1, 5), (1, 2)], 1, 64);
    let mut append = |rows, page| {
        problem.page_size = page;
        problem.append = Some(Append {
            rows,
            in_cache_type: false,
        });
        told(&problem, None)
    };
    assert!(append(1, None).contains("give `page`"));
    assert!(append(0, Some(16)).contains("leave them out"));
    assert!(append(3, Some(16)).contains("lengths count the new ones"));
}

/// Runs a problem on a variant with what `change` makes of its buffers; within the bound.
fn right_on(variant: &str, problem: &Problem, change: impl Fn(&str) -> Option<Buffer>) {
    let (device, target) = common::device("sim:h200");
    let chosen = FAMILY.choose(Some(variant), problem, target);
    let chosen = chosen.unwrap_or_else(|error| panic!("{variant} {problem}: {error}"));
    let mut job = chosen.job(problem, None, target).expect("a job");
    randomise(&mut job, problem, 7);
    for buffer in &mut job.buffers {
        if let Some(data) = change(&buffer.name) {
            assert_eq!(data.len(), buffer.data.len(), "{}", buffer.name);
            buffer.data = data;
        }
    }
    common::run(&mut job, &device, &Settings::default());
    let verdict = verify(&job, problem, Sample::All).expect("its buffers");
    if let Err(wrong) = verdict.judge(problem) {
        panic!("{variant} {problem}: {wrong}");
    }
}

/// Every sequence has a prefix of its own: none, one that ends inside of a block, at an edge of
/// one, behind the last key.
#[test]
fn prefixes_are_read_on_the_device() {
    let lengths = vec![(70, 130), (33, 33), (5, 200), (1, 64), (40, 9)];
    for variant in ["tensor", "large", "wgmma", "decode"] {
        for mask in [Mask::Causal, Mask::Window { left: 11, right: 2 }] {
            let mut problem = Problem::ragged(lengths.clone(), 2, 64);
            if variant == "decode" {
                problem.lengths =
                    Lengths::Each(vec![(3, 200), (1, 300), (2, 500), (1, 64), (4, 9)]);
            }
            (problem.mask, problem.scoring.prefix) = (mask, Some(200));
            let prefixes = [17u32, 0, 128, 64, 200];
            right_on(variant, &problem, |name| {
                (name == "prefixes").then(|| Buffer::from_slice(&prefixes))
            });
        }
    }
}

/// A sink that is far above every score, one far below, and rows that see no key.
#[test]
fn sinks_of_any_size() {
    for variant in ["tensor", "large", "wgmma", "decode"] {
        let mut problem = Problem::ragged(vec![(3, 130), (4, 1), (2, 0), (1, 70)], 4, 64);
        (problem.mask, problem.scoring.sinks) = (Mask::Causal, true);
        // Small results are not zeros in f32.
        problem.output = Output::F32;
        let sinks = [60.0f32, -200.0, f32::NEG_INFINITY, 0.0];
        right_on(variant, &problem, |name| {
            (name == "sinks").then(|| Buffer::from_slice(&sinks))
        });
    }
}

/// A change of scores that this crate does not ship: a bias for each distance, from a table.
#[test]
fn a_change_of_ones_own() {
    const FAR: i64 = 20;
    let relative = ScoreMod::new(
        "relative",
        |row| {
            let row = *row;
            Box::new(move |score, key| {
                let distance = (row.position - key.number()).abs().min(FAR as i32);
                score + row.tables.custom.at(distance.cast::<u32>()).load_readonly()
            })
        },
        |at| at.score + at.tables.custom[(at.position - at.key).abs().min(FAR) as usize],
    )
    .table(Table::Custom(FAR as usize + 1));
    let biases: Vec<f32> = (0..=FAR).map(|i| (i as f32 * 0.7).sin()).collect();
    for variant in ["tensor", "large", "persistent", "wgmma", "decode"] {
        let mut problem = Problem::ragged(vec![(5, 90), (2, 33)], 2, 64);
        problem.scoring.mods = vec![softcap(4.0), relative.clone()];
        problem.mask = Mask::Causal;
        right_on(variant, &problem, |name| {
            (name == "custom").then(|| Buffer::from_slice(&biases))
        });
    }
}

#[test]
fn what_is_not_added_is_not_in_the_kernel() {
    let target = target();
    let mut problem = Problem::ragged(vec![(5, 90), (2, 33)], 2, 64);
    for variant in ["tensor", "large", "wgmma", "decode"] {
        let plan = |problem: &Problem| {
            let plan = FAMILY.plan(Some(variant), problem, target).expect("a plan");
            let texts: Vec<_> = plan.steps.iter().map(heist_kernels::Step::ptx).collect();
            texts.concat()
        };
        let plain = plan(&problem);
        for name in ["slopes", "sinks", "prefixes", "documents", "custom"] {
            assert!(!plain.contains(name), "{variant}: {name}");
        }
        problem.scoring.sinks = true;
        assert!(plan(&problem).contains("sinks"), "{variant}");
        problem.scoring.sinks = false;
        assert_eq!(plan(&problem), plain, "{variant}");
    }
}

#[test]
fn what_makes_no_sense_is_refused() {
    let told = |words: &[&str]| {
        let settings = heist_kernels::catalogue::Settings::from_words(words).expect("words");
        problem(&settings).map_err(|error| error.to_string())
    };
    assert!(told(&["softcap=30", "sinks=true", "alibi=true", "documents=true"]).is_ok());
    for (words, why) in [
        (&["prefix=5"][..], "mask=causal"),
        (&["softcap=0"], "above zero"),
        (&["softcap=x"], "not a number"),
        (&["sinks=2"], "true or false"),
        (
            &["documents=true", "lengths=1:9", "page=16"],
            "leave page out",
        ),
    ] {
        let error = told(words).expect_err(why);
        assert!(error.contains(why), "{words:?}: {error}");
    }
    let mut asked = Problem::new(1, 1, 64, 64);
    asked.scoring.sinks = true;
    for variant in ["scalar", "mixed"] {
        let error = FAMILY.choose(Some(variant), &asked, target());
        let error = error.err().expect("refused").to_string();
        assert!(
            error.contains("sinks") && error.contains("wgmma"),
            "{error}"
        );
    }
    let error = Backward::of(asked).check().expect_err("no gradients");
    assert!(error.to_string().contains("sinks"), "{error}");
}

/// What is in a page past the end of its sequence is nobody's: it may be anything.
#[test]
fn decoding_does_not_see_past_the_end_of_a_page() {
    for (cache, dim, values) in [(Cache::Same, 64, 64), (Cache::Latent, 192, 128)] {
        let mut problem = Problem::ragged(vec![(1, 70), (2, 5), (1, 33)], 4, dim);
        (problem.kv_heads, problem.page_size) = (2, Some(32));
        (problem.cache, problem.value_dim) = (cache, Some(values));
        sees_no_poison(&problem);
    }
}

/// Of more parts than one block combines, the last of every few does, and then the last of those: whatever the order is in which they end.
#[test]
fn many_parts_of_ragged_tiles_are_combined_in_two_levels() {
    let all = cases(Topic::Decode, target());
    let many = all.into_iter().filter(|case| {
        let Which::Decode(_, grid) = case.kernel else {
            return false;
        };
        case.problem.is_ragged() && grid.combine == Combine::LastBlock && grid.blocks > 16
    });
    let many: Vec<Case> = many.collect();
    assert!(many.len() > 1);
    for (seed, case) in (1..).zip(&many) {
        runs_right(case.job(target()).expect("a job"), &case.problem, seed);
    }
}

/// A page table is read line by line. Behind the keys of a prefix, which are in its first line, come those of a window, in a later one.
#[test]
fn pages_behind_a_prefix_are_of_another_line() {
    let mut problem = Problem::ragged(vec![(1, 1400), (1, 700)], 2, 64);
    (problem.kv_heads, problem.page_size) = (1, Some(16));
    problem.mask = Mask::Window { left: 90, right: 0 };
    problem.scoring.prefix = Some(20);
    let variant = FAMILY.choose(Some("decode"), &problem, target());
    let job = variant.and_then(|variant| variant.job(&problem, None, target()));
    runs_right(job.expect("a job"), &problem, 3);
}

/// Runs a job in an order that a number says; its results are right.
fn runs_right(mut job: Job, problem: &Problem, seed: u64) {
    let (device, _) = common::device("sim:h200");
    randomise(&mut job, problem, seed);
    let settings = Settings {
        seed,
        chaos: true,
        ..Settings::default()
    };
    common::run(&mut job, &device, &settings);
    let verdict = verify(&job, problem, Sample::All).expect("its buffers");
    verdict.judge(problem).expect("right");
}

/// Runs three sequences in pages of 32 tokens whose last page is NaN after the last token.
fn sees_no_poison(problem: &Problem) {
    let (device, target) = common::device("sim:h200");
    let plan = FAMILY
        .plan(Some("decode"), problem, target)
        .expect("a plan");
    // Parts of tiles are combined by the last block, without a launch of its own.
    assert!(plan.workspace_bytes() > 0 && plan.steps.len() == 1);
    let variant = FAMILY.choose(None, problem, target).expect("pages");
    assert_eq!(variant.name(), "decode");
    let mut job = variant.job(problem, None, target).expect("a job");
    randomise(&mut job, problem, 7);
    let table = problem.page_table();
    let row = 2 * problem.head_dim as usize * 2;
    for buffer in job
        .buffers
        .iter_mut()
        .filter(|b| b.name == "k" || b.name == "v")
    {
        for (sequence, (last, used)) in [(2, 6), (0, 5), (1, 1)].into_iter().enumerate() {
            let page = table[sequence * 3 + last] as usize;
            let (from, to) = ((page * 32 + used) * row, (page + 1) * 32 * row);
            buffer.data.bytes_mut()[from..to].fill(0xFF);
        }
    }
    common::run(&mut job, &device, &Settings::default());
    // The reference would call the poison the largest value.
    let out: Vec<f16> = job.data("out").and_then(|out| out.to_vec()).expect("f16");
    assert!(out.iter().all(|value| value.is_finite()));
}

#[test]
fn decoding_is_chosen_where_it_is_ahead() {
    let decodes = |batch, heads, kv_heads, queries, keys, device| {
        let mut problem = Problem::new(batch, heads, queries, 128);
        problem.kv_heads = kv_heads;
        problem.lengths = Lengths::Same {
            batch,
            queries,
            keys,
        };
        let target = common::device(device).1;
        let variant = FAMILY.choose(None, &problem, target).expect("a variant");
        variant.name() == "decode"
    };
    assert!(decodes(32, 32, 8, 1, 8192, "sim:h200"));
    assert!(decodes(1, 32, 32, 1, 131_072, "sim:h200"));
    assert!(decodes(8, 64, 8, 16, 4096, "sim:h200"));
    assert!(decodes(1, 8, 1, 1, 5, "sim:b200"));
    assert!(!decodes(32, 32, 8, 1, 8192, "sim:a100"));
    assert!(!decodes(4, 32, 8, 512, 8192, "sim:h200"));
    assert!(!decodes(4, 32, 8, 16, 16, "sim:h200"));
}

/// No share is empty while another has two, and a share that is whole tiles needs no
/// second launch.
#[test]
fn decoding_is_dealt_evenly() {
    let target = target();
    for (batch, kv_heads, keys, combine) in [
        (32, 8, 8192, Combine::Nobody),
        (132, 1, 4096, Combine::Nobody),
        (4, 8, 65536, Combine::LastBlock),
        (1, 8, 8192, Combine::LastBlock),
        (1, 1, 131_072, Combine::Launch),
    ] {
        let mut problem = Problem::new(batch, 4 * kv_heads, 1, 128);
        problem.kv_heads = kv_heads;
        problem.lengths = Lengths::Same {
            batch,
            queries: 1,
            keys,
        };
        let shape = decode_shape(&problem, target);
        let grid = decode_grid(&problem, &shape, target);
        assert_eq!(grid.combine, combine, "{problem}: {grid}");
        assert!(
            grid.blocks <= 2 * target.sms && grid.blocks > 120,
            "{problem}: {grid}"
        );
    }
}

/// Rows of keys that are short in memory are read together: those of two heads or four where heads adjoin, of two keys where keys do.
#[test]
fn short_rows_of_keys_are_read_together() {
    let shape = |change: &dyn Fn(&mut Problem)| {
        let mut problem = Problem::ragged(vec![(1, 500); 3], 32, 64);
        (problem.kv_heads, problem.page_size) = (8, Some(16));
        change(&mut problem);
        decode_shape(&problem, target())
    };
    assert_eq!(shape(&|_| {}).heads, 2);
    assert_eq!(shape(&|problem| problem.page_size = None).heads, 2);
    // 64 bytes a head: four have 256, and two where four can't be had or tiles of four would be in many parts.
    let tiny = |(kv_heads, batch)| {
        move |problem: &mut Problem| {
            problem.lengths = Lengths::Each(vec![(1, 500); batch]);
            (problem.cache, problem.kv_heads) = (Cache::E4m3, kv_heads);
        }
    };
    let heads = |of| shape(&tiny(of)).heads;
    assert_eq!(
        [(8, 33), (8, 32), (2, 200), (1, 200)].map(heads),
        [4, 2, 2, 1]
    );
    assert_eq!(shape(&|problem| problem.kv_heads = 1).heads, 1);
    assert_eq!(shape(&|problem| problem.head_dim = 80).heads, 1);
    let whole = |keys: u32| {
        move |problem: &mut Problem| {
            let (batch, queries) = (2, 1);
            *problem = Problem::new(batch, 32, queries, 64);
            (problem.kv_heads, problem.cache) = (8, Cache::E4m3);
            problem.lengths = Lengths::Same {
                batch,
                queries,
                keys,
            };
        }
    };
    let twins = shape(&whole(500));
    assert!(twins.twins && twins.heads == 1, "{twins}");
    assert!(!shape(&whole(501)).twins, "an odd number of keys");
    let capped = shape(&|problem| {
        whole(500)(problem);
        problem.scoring.mods.push(softcap(2.0));
    });
    assert!(!capped.twins, "scores are changed by the numbers of keys");
}

/// What a decoding kernel of 32 query heads a key head is made of, in pages of 16 tokens or whole.
fn decoding_text(cache: Cache, pages: bool) -> (DecodeShape, String) {
    let mut problem = Problem::ragged(vec![(1, 500); 3], 32, 128);
    (problem.kv_heads, problem.cache) = (1, cache);
    match pages {
        true => problem.page_size = Some(16),
        false => {
            problem.lengths = Lengths::Same {
                batch: 3,
                queries: 1,
                keys: 500,
            }
        }
    }
    let plan = FAMILY.plan(None, &problem, target()).expect("a plan");
    (decode_shape(&problem, target()), plan.steps[0].ptx())
}

/// A page is one copy of keys and one of values, whatever its rows have, and another thread asks for either.
#[test]
fn a_page_is_asked_for_once() {
    for cache in [Cache::Same, Cache::E4m3] {
        let (shape, text) = decoding_text(cache, true);
        let copies = text.matches("cp.async.bulk.tensor").count() as u32;
        assert_eq!(copies, 2 * shape.keys / 16, "{shape}");
        // The table is on its way while lengths are; before products that don't catch up so are all queries, and lengths before the launch before
        // has ended.
        let early = text.matches("prefetch.global.L2").count();
        assert_eq!(early, 1 + 3 * usize::from(cache == Cache::E4m3), "{shape}");
        // A warp has a line of the table, and each copy's page from one of its lanes: no copy waits for an entry of its own.
        let entries = text.matches("shfl.sync.idx").count() as u32;
        assert!(entries >= copies, "{shape}");
    }
}

/// Warps that merge what they have run the same instructions: what each runs once for itself takes longer to come than to run.
#[test]
fn warps_that_merge_share_their_code() {
    let (shape, text) = decoding_text(Cache::E4m3, false);
    assert_eq!((shape.warps, shape.rows()), (8, 32), "{shape}");
    // Of 32 rows a lane has four, and of each a log-sum-exp and four neighbours: of whole tiles and of parts.
    let stores = text.matches("st.global").count();
    assert_eq!(stores, 2 * 4 * 2, "{shape}");
    let early = text.split("griddepcontrol.wait").next().unwrap_or_default();
    assert!(early.contains("prefetch.global.L2"), "{shape}: its queries");
}

/// Narrow values leave room for more keys, in registers and in shared memory; the kernels without a width
/// of their own for values say so.
#[test]
fn narrow_values_have_larger_blocks_of_keys_on_warpgroups_alone() {
    let problem = |dim, values| {
        let mut problem = Problem::new(4, 16, 4096, dim);
        problem.value_dim = Some(values);
        problem
    };
    let keys = |dim, values| warpgroup_shape(&problem(dim, values), target()).keys;
    assert_eq!(
        [keys(192, 192), keys(192, 128), keys(256, 128)],
        [80, 128, 96]
    );
    assert_eq!([keys(192, 176), keys(256, 256)], [112, 64]);
    let narrow = problem(192, 128);
    assert_eq!(
        FAMILY.choose(None, &narrow, target()).expect("one").name(),
        "wgmma"
    );
    for other in ["scalar", "large", "decode"] {
        let refused = FAMILY.choose(Some(other), &narrow, target());
        let why = refused.err().expect("it has one width").to_string();
        assert!(why.contains("variant=wgmma alone"), "{other}: {why}");
    }
}

#[test]
fn warpgroups_are_chosen_where_they_are_ahead() {
    let chosen = |problem: &Problem, device| {
        let target = common::device(device).1;
        let variant = FAMILY.choose(None, problem, target).expect("a variant");
        variant.name()
    };
    let mut large = Problem::new(4, 16, 4096, 128);
    assert_eq!(chosen(&large, "sim:h200"), "wgmma");
    assert_eq!(chosen(&large, "sim:a100"), "large");
    assert_eq!(chosen(&large, "sim:b200"), "tcgen05");
    assert_eq!(chosen(&Problem::new(1, 8, 512, 64), "sim:h200"), "wgmma");
    assert_eq!(chosen(&Problem::new(1, 8, 256, 64), "sim:h200"), "wgmma");
    // Few tiles, few queries, few keys, and keys of another number.
    assert_eq!(chosen(&Problem::new(1, 3, 256, 64), "sim:h200"), "wgmma");
    assert_eq!(chosen(&Problem::new(2, 12, 100, 64), "sim:h200"), "wgmma");
    let mut across = Problem::new(10, 4, 353, 128);
    across.lengths = Lengths::Same {
        batch: 10,
        queries: 353,
        keys: 1222,
    };
    assert_eq!(chosen(&across, "sim:h200"), "wgmma");
    // Wide heads with few tiles and many keys have them shared out; narrow ones have the ladder but for long full masks.
    assert_eq!(chosen(&Problem::new(1, 4, 300, 192), "sim:h200"), "wgmma");
    assert_eq!(chosen(&Problem::new(1, 1, 2153, 192), "sim:h200"), "large");
    assert_eq!(chosen(&Problem::new(8, 16, 512, 32), "sim:h200"), "large");
    assert_eq!(chosen(&Problem::new(8, 16, 1024, 32), "sim:h200"), "wgmma");
    let packed = Problem::ragged(vec![(4096, 4096); 16], 16, 128);
    assert_eq!(chosen(&packed, "sim:h200"), "wgmma");
    let short = Problem::ragged(vec![(100, 100); 64], 16, 128);
    assert_eq!(chosen(&short, "sim:h200"), "large");
    let middling = Problem::ragged(vec![(350, 350); 64], 16, 64);
    assert_eq!(chosen(&middling, "sim:h200"), "wgmma");
    assert_eq!(chosen(&Problem::new(4, 16, 4096, 256), "sim:h200"), "wgmma");
    let named = FAMILY.choose(Some("wgmma"), &large, common::device("sim:a100").1);
    let error = named.err().expect("a refusal").to_string();
    assert!(error.contains("it needs sm_90a"), "{error}");
    large.weights = Weights::Split;
    assert_eq!(chosen(&large, "sim:h200"), "wgmma");
}

/// A kernel that waits for the launch before it touches nothing of another launch's earlier, and nothing by
/// loads of read-only data: those may have been cached before that launch ended.
#[test]
fn launches_that_overlap_read_nothing_too_early() {
    let target = common::device("sim:h200").1;
    let mut overlapping = [0, 0];
    for (which, topic) in [Topic::Warpgroups, Topic::Decode].into_iter().enumerate() {
        for case in cases(topic, target) {
            let job = case
                .job(target)
                .unwrap_or_else(|error| panic!("{case}: {error}"));
            for (at, step) in job.steps.iter().enumerate() {
                if !step.overlaps {
                    continue;
                }
                overlapping[which] += 1;
                match at > 0 && !job.steps[at - 1].overlaps {
                    false => common::waits_before_it_touches(step, &case.to_string()),
                    true => common::waits_before_it_touches_results(step, &case.to_string()),
                }
            }
        }
    }
    assert!(
        overlapping.iter().all(|&count| count >= 8),
        "{overlapping:?}"
    );
}

/// Where there are few rounds of tiles, and not where few rows are combined.
#[test]
fn short_launches_overlap() {
    let target = common::device("sim:h200").1;
    let overlaps = |problem: &Problem| {
        let plan = FAMILY.plan(None, problem, target).expect("a plan");
        plan.steps
            .iter()
            .map(|step| step.overlaps)
            .collect::<Vec<_>>()
    };
    assert_eq!(overlaps(&Problem::new(1, 8, 512, 64)), [true]);
    assert_eq!(overlaps(&Problem::new(64, 12, 128, 64)), [false]);
    assert_eq!(overlaps(&Problem::new(4, 16, 4096, 128)), [false]);
    let mut decoding = Problem::new(2, 64, 1, 128);
    for (batch, kv_heads, combined) in [(1, 8, true), (1, 1, false)] {
        decoding.kv_heads = kv_heads;
        decoding.heads = if kv_heads == 1 { 32 } else { 64 };
        decoding.lengths = Lengths::Same {
            batch,
            queries: 1,
            keys: 65536 / batch,
        };
        assert_eq!(overlaps(&decoding), [true, combined]);
    }
}

/// Products with the rows of the next sequence must not be made at all: no weight
/// times infinity is not nothing.
#[test]
fn packed_sequences_do_not_see_each_other() {
    let (device, target) = common::device("sim:h200");
    let problem = Problem::ragged(vec![(100, 70), (30, 200)], 2, 64);
    for variant in ["large", "wgmma"] {
        let variant = FAMILY.choose(Some(variant), &problem, target);
        let mut job = variant
            .and_then(|variant| variant.job(&problem, None, target))
            .expect("a job");
        randomise(&mut job, &problem, 7);
        let values = job.buffers.iter_mut().find(|buffer| buffer.name == "v");
        let next = 70 * 2 * 64 * 2;
        for half in values.expect("values").data.bytes_mut()[next..].chunks_exact_mut(2) {
            half.copy_from_slice(&f16::INFINITY.to_le_bytes());
        }
        common::run(&mut job, &device, &Settings::default());
        let out: Vec<f16> = job.data("out").and_then(|out| out.to_vec()).expect("f16");
        let (first, second) = out.split_at(100 * 2 * 64);
        assert!(first.iter().all(|value| value.is_finite()), "{}", job.name);
        assert!(
            second.iter().all(|value| !value.is_finite()),
            "{}",
            job.name
        );
    }
}

#[test]
fn what_can_not_be_is_told() {
    let mut problem = Problem::new(1, 6, 8, 64);
    problem.kv_heads = 4;
    let error = problem.check().expect_err("6 heads over 4");
    assert!(
        error.to_string().contains("multiple of the key heads"),
        "{error}"
    );
    for dim in [8, 20, 264] {
        let error = Problem::new(1, 1, 8, dim).check().expect_err("elements");
        assert!(
            error.to_string().contains("multiples of 8 up to 256"),
            "{error}"
        );
    }
    // Half a step is filled for warpgroups alone.
    let problem = Problem::new(1, 1, 8, 24);
    for (device, variant) in [
        ("sim:h200", "large"),
        ("sim:h200", "decode"),
        ("sim:b200", "tcgen05"),
        ("sim:a100", "tensor"),
    ] {
        let refused = FAMILY.choose(Some(variant), &problem, common::device(device).1);
        let error = refused.map(|_| ()).expect_err(variant).to_string();
        assert!(error.contains("multiples of 16"), "{variant}: {error}");
    }
    let backward = Backward::of(Problem::new(1, 1, 8, 24));
    let error = backward.check().expect_err("gradients").to_string();
    assert!(error.contains("gradients of heads of 24"), "{error}");
    assert!(Problem::new(0, 1, 8, 64).check().is_err());
    assert!(Problem::ragged(vec![(0, 5)], 1, 64).check().is_err());
    let problem = Problem::new(1, 1, 8, 64);
    let config = Config {
        splits: 2,
        ..Config::suited(Rung::Scalar, &problem, target())
    };
    let error = config.check().expect_err("splits of a scalar kernel");
    assert!(
        error.to_string().contains("does not share out keys"),
        "{error}"
    );
    for text in ["window(1)", "windows", "causal,"] {
        assert!(text.parse::<Mask>().is_err(), "{text}");
    }
    assert_eq!(
        "window(4, 0)".parse::<Mask>().expect("a window"),
        Mask::Window { left: 4, right: 0 }
    );
}

#[test]
fn shared_memory_is_foretold() {
    for (index, rung) in Rung::ALL.into_iter().enumerate() {
        for dim in [32, 64, 96, 128, 256] {
            for (across, swizzled) in [(1, false), (2, false), (1, true)] {
                let problem = Problem::new(1, 1, 64, dim);
                let mut config = small_tiles(rung, &problem, target());
                if rung >= Rung::Buffered {
                    config.across = across;
                    config.swizzled = swizzled;
                    config.feed = [Feed::Pairs, Feed::Turns][index % 2];
                }
                let schedule = Schedule::new(TileSource::Direct);
                let kernel = build(&config, &schedule, target().arch).expect("a kernel");
                let launch = &kernel.built.launch;
                let bytes = launch.static_shared + launch.dynamic_shared;
                assert_eq!(bytes, config.shared(), "{config}, heads of {dim}");
            }
        }
    }
}

#[test]
fn a_problem_names_its_heads_of_keys_where_there_are_fewer() {
    let mut problem = Problem::new(2, 8, 64, 128);
    assert!(problem.to_string().contains(" H8 D128 "), "{problem}");
    problem.kv_heads = 2;
    assert!(problem.to_string().contains(" H8/2 D128 "), "{problem}");
}

/// With more columns the assembler spills registers.
#[test]
fn heads_of_96_have_two_blocks_of_rows_and_32_columns() {
    let target = common::device("sim:a100").1;
    let problem = Problem::new(8, 32, 4096, 96);
    let config = Config::suited(Rung::Large, &problem, target);
    assert_eq!((config.row_blocks, config.cols), (2, 32));
}
