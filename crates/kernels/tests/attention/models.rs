//! What models add: masks, prefixes, sinks, changed scores; what is hidden is not read.

use super::*;

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
