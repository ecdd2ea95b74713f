//! Tiles whose keys blocks share, and those that share a multiprocessor: the same bits, and room.

use super::*;

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
