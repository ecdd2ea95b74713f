//! The choices against what was timed: sets `spread`, `lone` and `broad` of `attention_plans`, an H200, 2026-11-19.

use super::shape::Sharing;
use super::{clusters, warpgroup_shape, wide};
use crate::attention::problem::{Lengths, Mask, Problem, Weights};
use crate::attention::score::{BlockMask, alibi, softcap};
use crate::family::Target;
use heist_builder::Arch;

const H200: Target = Target {
    arch: Arch::SM_90A,
    sms: 132,
};

/// Sequences, heads, queries, keys and elements of a head.
type Shape = (u32, u32, u32, u32, u32);

const FULL: Mask = Mask::Full;
const CAUSAL: Mask = Mask::Causal;

/// Microseconds of tiles whose keys one, two, four and eight blocks share; zero where it was not timed.
const SPREAD: [(Shape, Mask, [f64; 4]); 20] = [
    ((4, 4, 97, 4655, 64), FULL, [30.12, 17.5, 14.03, 17.87]),
    ((1, 1, 2593, 2593, 64), FULL, [17.91, 10.92, 9.61, 14.25]),
    ((1, 1, 1493, 1493, 128), FULL, [16.79, 10.29, 7.41, 8.89]),
    ((2, 1, 5141, 5141, 64), CAUSAL, [39.88, 23.99, 26.61, 0.0]),
    ((1, 1, 3438, 693, 64), FULL, [7.04, 5.3, 5.79, 10.74]),
    ((1, 1, 2274, 7996, 128), FULL, [76.08, 40.53, 27.92, 34.34]),
    ((1, 2, 1386, 1386, 64), CAUSAL, [10.59, 7.37, 6.58, 10.55]),
    (
        (1, 4, 1465, 1465, 128),
        CAUSAL,
        [16.46, 12.46, 13.85, 27.17],
    ),
    ((4, 8, 155, 479, 64), FULL, [6.19, 6.11, 10.11, 20.22]),
    ((1, 2, 1088, 534, 128), FULL, [8.3, 6.23, 7.27, 12.18]),
    ((1, 8, 1132, 1132, 64), CAUSAL, [12.01, 9.1, 15.47, 0.0]),
    ((1, 4, 375, 375, 128), CAUSAL, [6.32, 4.98, 4.71, 6.85]),
    ((4, 8, 91, 4960, 64), FULL, [32.64, 20.71, 27.76, 31.21]),
    ((1, 2, 814, 5662, 128), FULL, [55.16, 29.91, 17.68, 15.59]),
    ((2, 8, 488, 488, 64), CAUSAL, [6.27, 6.17, 13.13, 0.0]),
    ((1, 1, 3440, 3440, 128), CAUSAL, [32.34, 18.24, 14.47, 18.3]),
    ((1, 4, 868, 364, 64), FULL, [4.95, 4.43, 4.99, 10.43]),
    ((1, 2, 1630, 482, 128), FULL, [7.97, 6.01, 7.27, 14.06]),
    ((1, 2, 1189, 1189, 64), CAUSAL, [9.69, 6.59, 6.07, 9.81]),
    ((1, 8, 859, 859, 128), CAUSAL, [11.67, 10.07, 13.8, 0.0]),
];

/// Microseconds of tiles of 64 rows with one block and with two, and of larger ones, under a causal mask (set `lone`).
const LONE: [(Shape, [f64; 3]); 28] = [
    ((2, 1, 7853, 7853, 64), [63.85, 38.31, 89.93]),
    ((1, 5, 4214, 4214, 64), [39.92, 33.44, 51.59]),
    ((1, 10, 2417, 2417, 128), [40.09, 38.75, 33.33]),
    ((1, 9, 1851, 1851, 64), [18.54, 16.22, 25.14]),
    ((1, 10, 1207, 1207, 128), [18.6, 14.83, 19.39]),
    ((1, 2, 9581, 9581, 64), [81.49, 54.54, 107.03]),
    ((1, 3, 3834, 3834, 128), [46.16, 28.72, 43.37]),
    ((1, 4, 2474, 2474, 128), [31.52, 20.36, 30.45]),
    ((1, 10, 2342, 2342, 128), [56.37, 37.28, 32.24]),
    ((1, 2, 19513, 19513, 64), [235.26, 190.68, 212.7]),
    ((1, 8, 3580, 3580, 64), [35.25, 39.27, 45.35]),
    ((1, 5, 1910, 1910, 128), [25.02, 16.63, 24.65]),
    ((1, 2, 16382, 16382, 64), [135.7, 139.91, 179.43]),
    ((1, 10, 2081, 2081, 128), [34.69, 32.52, 29.49]),
    ((1, 2, 9881, 9881, 128), [125.18, 96.31, 104.07]),
    ((1, 3, 6945, 6945, 64), [70.02, 46.49, 78.69]),
    ((1, 6, 3376, 3376, 128), [50.69, 42.22, 41.09]),
    ((1, 19, 2137, 2137, 64), [39.3, 41.24, 36.95]),
    ((1, 3, 7927, 7927, 64), [68.51, 56.72, 88.9]),
    ((1, 1, 34010, 34010, 128), [743.72, 468.7, 373.07]),
    ((1, 1, 23972, 23972, 128), [298.26, 251.24, 245.03]),
    ((1, 4, 5995, 5995, 64), [54.05, 46.58, 69.67]),
    ((1, 1, 19042, 19042, 128), [237.05, 163.22, 191.38]),
    ((1, 2, 14641, 14641, 64), [177.47, 113.0, 160.64]),
    ((1, 4, 5548, 5548, 64), [77.89, 41.89, 65.54]),
    ((1, 10, 3230, 3230, 128), [74.51, 61.8, 47.54]),
    ((1, 13, 1951, 1951, 64), [33.5, 27.22, 25.98]),
    ((1, 13, 1699, 1699, 128), [38.14, 30.26, 29.49]),
];

/// The same of wide heads, in tiles of one warpgroup with 32 and 48 keys a block, and of two.
const BROAD: [(Shape, Mask, [f64; 3]); 20] = [
    ((12, 64, 52, 52, 256), CAUSAL, [23.05, 0.0, 39.67]),
    ((5, 16, 161, 57, 256), FULL, [8.64, 0.0, 13.72]),
    ((29, 32, 532, 532, 256), CAUSAL, [396.08, 0.0, 454.39]),
    ((52, 16, 87, 87, 192), CAUSAL, [32.06, 40.16, 54.78]),
    ((9, 32, 249, 249, 192), CAUSAL, [36.06, 40.56, 46.69]),
    ((33, 16, 95, 95, 192), FULL, [22.65, 25.1, 31.97]),
    ((55, 32, 110, 110, 160), CAUSAL, [62.78, 78.86, 100.46]),
    ((42, 16, 294, 294, 160), CAUSAL, [95.98, 98.51, 130.93]),
    ((6, 32, 36, 36, 256), FULL, [7.59, 0.0, 13.29]),
    ((13, 32, 296, 296, 192), CAUSAL, [62.35, 65.5, 90.22]),
    ((3, 32, 38, 38, 256), CAUSAL, [5.79, 0.0, 7.63]),
    ((26, 32, 72, 72, 160), FULL, [30.93, 34.19, 38.84]),
    ((3, 8, 78, 78, 192), CAUSAL, [4.93, 5.0, 6.52]),
    ((3, 32, 301, 301, 256), CAUSAL, [23.97, 0.0, 28.31]),
    ((2, 16, 485, 485, 144), FULL, [17.59, 17.72, 14.75]),
    ((12, 32, 277, 277, 192), CAUSAL, [62.37, 65.01, 85.78]),
    ((9, 32, 105, 105, 256), CAUSAL, [23.17, 0.0, 26.3]),
    ((29, 32, 429, 429, 192), FULL, [294.22, 268.88, 317.42]),
    ((2, 16, 62, 62, 256), CAUSAL, [5.37, 0.0, 6.99]),
    ((2, 32, 76, 76, 160), CAUSAL, [5.38, 5.69, 7.31]),
];

fn problem((batch, heads, queries, keys, dim): Shape, mask: Mask) -> Problem {
    let mut problem = Problem::new(batch, heads, queries, dim);
    problem.lengths = Lengths::Same {
        batch,
        queries,
        keys,
    };
    problem.mask = mask;
    problem
}

/// What is chosen in the best one's times: the geometric mean is small, and so is each.
fn good(name: &str, chosen: &[(String, f64)]) {
    for (problem, slower) in chosen {
        assert!(
            *slower < 1.06,
            "{name}: {problem} takes {slower:.3} of the best"
        );
    }
    let mean = chosen.iter().map(|(_, slower)| slower.ln()).sum::<f64>() / chosen.len() as f64;
    assert!(mean.exp() < 1.01, "{name}: {} in the mean", mean.exp());
}

/// `times` of the arm that is chosen, in those of the best.
fn slower(problem: &Problem, times: &[f64], arm: usize) -> (String, f64) {
    let timed = times.iter().copied().filter(|time| *time > 0.0);
    let best = timed.fold(f64::INFINITY, f64::min);
    assert!(times[arm] > 0.0, "{problem}: it was not timed");
    (problem.to_string(), times[arm] / best)
}

#[test]
fn keys_are_shared_by_as_many_blocks_as_were_fastest() {
    let chosen = SPREAD.map(|(shape, mask, times)| {
        let problem = problem(shape, mask);
        let shape = warpgroup_shape(&problem, H200);
        assert_eq!(
            (shape.groups, shape.resident()),
            (1, 2),
            "{problem}: {shape}"
        );
        let arm = Sharing::ALL.iter().position(|all| *all == shape.sharing);
        slower(&problem, &times, arm.expect("one of them"))
    });
    good("spread", &chosen);
}

/// Tiles of few heads, more than a wave of them.
#[test]
fn long_sequences_of_few_heads_share_keys() {
    let mut slower = Vec::new();
    for (shape, times) in LONE {
        let problem = problem(shape, CAUSAL);
        let shape = warpgroup_shape(&problem, H200);
        let arm = match (shape.groups, shape.sharing) {
            // A long tile and a short one are no arm of this set: see `causal`.
            (1, Sharing::None) if shape.strip == 2 => continue,
            (1, Sharing::None) => 0,
            (1, Sharing::Two) => 1,
            (2 | 3, Sharing::None) => 2,
            _ => panic!("{problem}: {shape} was not timed"),
        };
        let best = times.into_iter().fold(f64::INFINITY, f64::min);
        let own = times[arm] / best;
        assert!(own < 1.2, "{problem}: {shape} takes {own} of the best");
        slower.push(own.ln());
    }
    let mean = (slower.iter().sum::<f64>() / slower.len() as f64).exp();
    assert!(mean < 1.03, "{mean} in the mean");
}

#[test]
fn wide_heads_have_the_tiles_that_were_fastest() {
    let chosen = BROAD.map(|(shape, mask, times)| {
        let problem = problem(shape, mask);
        let shape = warpgroup_shape(&problem, H200);
        let arm = match (shape.groups, shape.keys) {
            (1, 32) => 0,
            (1, 48) => 1,
            (2, 64 | 80) => 2,
            _ => panic!("{problem}: {shape} was not timed"),
        };
        slower(&problem, &times, arm)
    });
    good("broad", &chosen);
}

/// The models are near what was timed, where all clusters ran at once.
#[test]
fn models_foretell_what_was_timed() {
    let near = |what: String, model: f64, timed: f64| {
        let off = model / timed;
        assert!(
            (0.8..1.25).contains(&off),
            "{what}: {model:.2} us, was {timed}"
        );
    };
    for (shape, mask, times) in SPREAD {
        let problem = problem(shape, mask);
        for (sharing, timed) in Sharing::ALL.into_iter().zip(times) {
            let blocks = u64::from(sharing.blocks()) * clusters::small_tiles(&problem);
            let at_once = sharing <= Sharing::Two || blocks <= 224;
            if timed > 0.0 && at_once {
                let model = clusters::time(&problem, sharing, H200);
                near(format!("{problem}, {sharing:?}"), model, timed);
            }
        }
    }
    for (shape, mask, times) in BROAD {
        let problem = problem(shape, mask);
        let timed = times.into_iter().filter(|time| *time > 0.0);
        for (tiles, timed) in wide::tiles_of(problem.head_dim).iter().zip(timed) {
            let model = wide::time(&problem, tiles, H200);
            let what = format!(
                "{problem}, {} warpgroups, {} keys",
                tiles.groups, tiles.keys
            );
            near(what, model, timed);
        }
    }
}

/// Of 160 tiles shared by two, those that wait for a place are light where a sequence attends to itself, and not where few queries attend to many keys.
#[test]
fn light_tiles_that_wait_are_no_round() {
    let time = |heads, queries| {
        let problem = problem((1, heads, queries, 2048, 64), CAUSAL);
        assert_eq!(clusters::small_tiles(&problem), 160);
        clusters::time(&problem, Sharing::Two, H200)
    };
    let (itself, few) = (time(5, 2048), time(80, 128));
    assert!(few > 1.1 * itself, "{few} and {itself}");
}

/// A causal sequence by itself takes as long as its longest tile, which sees all keys.
#[test]
fn the_longest_tile_is_waited_for() {
    let time = |mask| {
        let problem = problem((1, 1, 1024, 1024, 192), mask);
        let tiles = wide::tiles_of(192);
        tiles
            .iter()
            .map(|tiles| wide::time(&problem, tiles, H200))
            .collect::<Vec<_>>()
    };
    for (causal, full) in time(CAUSAL).into_iter().zip(time(FULL)) {
        assert!((causal - full).abs() < 1e-9, "{causal} and {full}");
    }
}

/// Whatever is asked for, the tiles that are chosen can be built, and as many blocks as are to be on a multiprocessor have room.
#[test]
fn what_is_chosen_can_be_had() {
    let mut rng = fastrand::Rng::with_seed(5);
    let mut shared = [0; 4];
    for _ in 0..4000 {
        let dim = 16 * rng.u32(1..=16);
        let [queries, keys] = [(); 2]
            .map(|()| 1 << rng.u32(3..14))
            .map(|most| rng.u32(1..=most));
        let (batch, heads) = (rng.u32(1..=8), rng.u32(1..=8));
        let window = Mask::Window { left: 99, right: 1 };
        let mask = [FULL, CAUSAL, window][rng.usize(..3)];
        let mut problem = problem((batch, heads, queries, keys, dim), mask);
        if rng.u32(..6) == 0 {
            let lengths = (0..batch).map(|_| (rng.u32(0..=queries), rng.u32(1..=keys)));
            problem.lengths = Problem::ragged(lengths.collect(), heads, dim).lengths;
        }
        problem.value_dim = (rng.u32(..5) == 0).then(|| 16 * rng.u32(1..=dim / 16));
        problem.weights = Weights::ALL[usize::from(rng.u32(..5) == 0)];
        let scoring = &mut problem.scoring;
        match rng.u32(..8) {
            0 => scoring.mods = vec![softcap(3.0)],
            1 => scoring.mods = vec![softcap(3.0), alibi()],
            2 => scoring.prefix = Some(30),
            3 => {
                scoring.blocks = Some(BlockMask {
                    rows: 128,
                    keys: 128,
                    by_sequence: false,
                    by_head: false,
                });
            }
            4 => scoring.sinks = true,
            _ => {}
        }
        if problem.check().is_err() {
            continue;
        }
        let shape = warpgroup_shape(&problem, H200);
        let checked = shape.check().map_err(|error| error.to_string());
        assert_eq!(checked, Ok(()), "{problem}: {shape}");
        assert!(shape.fits(H200), "{problem}: {shape}");
        shared[shape.sharing as usize] += 1;
    }
    assert!(shared.iter().all(|count| *count > 5), "{shared:?}");
}
