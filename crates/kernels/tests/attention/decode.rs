//! Few queries and many keys: caches, pages, parts that are combined.

use super::*;

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
