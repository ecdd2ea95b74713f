//! A sweep does what it says: guards, disasters, races, and going on after a kill.

use heist_tune::{
    Axis, Bench, Budget, Candidate, Facts, Failure, Journal, Proposal, Row, Shard, Stage, Status,
    Sweep, latest,
};
use serde_json::json;
use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Times by arithmetic, and disasters where they were planted.
#[derive(Default)]
struct Planted {
    solved: RefCell<Vec<String>>,
    exact: bool,
    noise: fastrand::Rng,
}

fn number(candidate: &Candidate, name: &str) -> f64 {
    candidate
        .get(name)
        .and_then(|text| text.parse().ok())
        .unwrap_or(0.0)
}

/// The default takes as long as the middle of the space.
fn time(candidate: &Candidate) -> f64 {
    match *candidate == Candidate::default() {
        true => 1500.0,
        false => {
            1000.0 + (number(candidate, "rows") - 96.0).abs() + 10.0 * number(candidate, "stages")
        }
    }
}

impl Bench for Planted {
    fn solve(&mut self, candidate: &Candidate) -> Result<Facts, Failure> {
        self.solved.borrow_mut().push(candidate.to_string());
        match candidate.get("disaster") {
            Some("hang") => Err(Failure::Hung { seconds: 5.0 }),
            Some("fault") => Err(Failure::Crashed {
                why: "illegal address".into(),
            }),
            Some("wrong") => Err(Failure::Wrong {
                why: "off by a half".into(),
            }),
            Some("spills") => Err(Failure::Refused {
                why: "2000 bytes are spilled".into(),
            }),
            _ => Ok(Facts {
                shared: Some(1024 * number(candidate, "stages") as u32),
                ..Facts::default()
            }),
        }
    }

    fn sample(&mut self, candidate: &Candidate, count: u32) -> Result<Vec<f64>, Failure> {
        let own = time(candidate);
        Ok((0..count)
            .map(|_| {
                if self.exact {
                    own
                } else {
                    own * (1.0 + 0.002 * self.noise.f64())
                }
            })
            .collect())
    }

    fn is_exact(&self) -> bool {
        self.exact
    }
}

fn space() -> Vec<Proposal> {
    let axes = [
        Axis::new("rows", (0..16).map(|at| 16 + 16 * at)),
        Axis::new("stages", 2..8),
    ];
    let mut all: Vec<Proposal> = Axis::product(&axes)
        .into_iter()
        .map(|candidate| {
            let bytes = number(&candidate, "rows") * number(&candidate, "stages") * 256.0;
            Proposal {
                judged: match bytes > 300_000.0 {
                    true => Err(format!(
                        "{bytes} bytes of shared memory, and there are 300000"
                    )),
                    // A model that is about right.
                    false => Ok(Some(time(&candidate) / 1e3 * 1.1)),
                },
                candidate,
            }
        })
        .collect();
    all.extend(
        ["hang", "fault", "wrong", "spills"].map(|disaster| Proposal {
            candidate: Candidate::new([("disaster", disaster)]),
            judged: Ok(Some(0.1)),
        }),
    );
    all
}

fn stage() -> Stage {
    Stage {
        name: "tiles",
        proposals: space(),
        share: 1.0,
    }
}

fn swept(bench: &mut Planted, journal: &mut Journal, budget: Budget) -> (Vec<Row>, Option<Row>) {
    let mut silent = |_: &heist_tune::Progress<'_>| {};
    let mut sweep = Sweep::new(bench, journal, budget, Candidate::default(), &mut silent);
    sweep.stage(&stage()).expect("it ends");
    (sweep.rows(), sweep.best())
}

#[test]
fn the_best_is_found_and_every_disaster_has_its_row() {
    let mut bench = Planted::default();
    let (rows, best) = swept(&mut bench, &mut Journal::in_memory(), Budget::default());
    let best = best.expect("an answer");
    assert_eq!(best.candidate.to_string(), "rows=96 stages=2");
    let status = |name: &str| {
        let found = rows
            .iter()
            .find(|row| row.candidate.get("disaster") == Some(name));
        found.expect("a row").status.clone()
    };
    assert_eq!(status("hang"), Status::Hung { seconds: 5.0 });
    assert!(matches!(status("fault"), Status::Crashed { .. }));
    assert!(matches!(status("wrong"), Status::Wrong { .. }));
    assert!(matches!(status("spills"), Status::Refused { .. }));
    // What arithmetic refused has a row with its numbers and was never built.
    let refused: Vec<&Row> = rows
        .iter()
        .filter(|row| matches!(&row.status, Status::Refused { why } if why.contains("bytes of shared memory")))
        .collect();
    assert!(!refused.is_empty());
    for row in refused {
        assert!(!bench.solved.borrow().contains(&row.candidate.to_string()));
    }
    // The default was in the race, and those that are far behind were not.
    let default = rows.iter().find(|row| row.default).expect("the default");
    assert_eq!(
        default.timing.as_ref().expect("a time").stage,
        "race of tiles"
    );
    assert!(default.timing.as_ref().expect("a time").estimate.samples >= 9);
    assert!(
        rows.iter()
            .filter(|row| row
                .timing
                .as_ref()
                .is_some_and(|t| t.stage == "race of tiles"))
            .count()
            <= 9
    );
    // A racer that is behind beyond doubt gets no more samples than it takes to know.
    let behind = rows
        .iter()
        .find(|row| row.candidate.to_string() == "rows=96 stages=5")
        .and_then(|row| row.timing.as_ref())
        .expect("a racer");
    assert_eq!(
        (behind.stage.as_str(), behind.estimate.samples),
        ("race of tiles", 9)
    );
}

#[test]
fn one_that_is_far_behind_is_given_up() {
    let far = |rows: &str| Proposal {
        candidate: Candidate::new([("rows", rows), ("stages", "2")]),
        judged: Ok(None),
    };
    let mut bench = Planted {
        exact: true,
        ..Planted::default()
    };
    let mut journal = Journal::in_memory();
    let mut silent = |_: &heist_tune::Progress<'_>| {};
    let budget = Budget::default();
    let mut sweep = Sweep::new(
        &mut bench,
        &mut journal,
        budget,
        Candidate::default(),
        &mut silent,
    );
    let stage = Stage {
        name: "tiles",
        proposals: vec![far("96"), far("500"), far("5000")],
        share: 1.0,
    };
    sweep.stage(&stage).expect("it ends");
    let status = |rows: &str| {
        let all = sweep.rows();
        let found = all
            .iter()
            .find(|row| row.candidate.get("rows") == Some(rows));
        found.expect("a row").status.clone()
    };
    assert_eq!(status("96"), Status::Right);
    assert_eq!(
        status("500"),
        Status::Right,
        "1424 ns are less than half as slow again as 1020"
    );
    assert_eq!(status("5000"), Status::Slow);
}

#[test]
fn a_limit_is_kept_and_leaves_room_for_the_unlikely() {
    let mut bench = Planted {
        exact: true,
        ..Planted::default()
    };
    let budget = Budget {
        limit: 16,
        ..Budget::default()
    };
    swept(&mut bench, &mut Journal::in_memory(), budget);
    let solved = bench.solved.borrow();
    assert_eq!(solved.len(), 17, "sixteen and the default");
    // By the model the best have few stages; some others were tried too.
    assert!(
        solved.iter().any(|text| text.contains("stages=5")
            || text.contains("stages=6")
            || text.contains("stages=7")),
        "{solved:?}"
    );
}

#[test]
fn what_no_model_speaks_of_is_not_last() {
    let mut bench = Planted {
        exact: true,
        ..Planted::default()
    };
    let named = |rows: usize, stages: &str, model| Proposal {
        candidate: Candidate::new([("rows", rows.to_string().as_str()), ("stages", stages)]),
        judged: Ok(model),
    };
    // Thirty with a model, which are all slower than it says, and ten that it says nothing of.
    let modelled = (0..30).map(|at| named(200 + at, "7", Some(at as f64)));
    let others = (0..10).map(|at| named(96 + at, "2", None));
    let stage = Stage {
        name: "tiles",
        proposals: modelled.chain(others).collect(),
        share: 1.0,
    };
    let mut journal = Journal::in_memory();
    let mut silent = |_: &heist_tune::Progress<'_>| {};
    let budget = Budget {
        limit: 8,
        ..Budget::default()
    };
    let default = Candidate::default();
    let mut sweep = Sweep::new(&mut bench, &mut journal, budget, default, &mut silent);
    sweep.stage(&stage).expect("it ends");
    let best = sweep.best().expect("an answer").candidate;
    assert_eq!(best.to_string(), "rows=96 stages=2");
}

#[test]
fn a_part_of_the_space_is_kept_to() {
    let mut bench = Planted {
        exact: true,
        ..Planted::default()
    };
    let narrowed = vec![
        "rows=128".parse().expect("a part"),
        "stages=3..4".parse().expect("a part"),
    ];
    let budget = Budget {
        narrowed,
        ..Budget::default()
    };
    let (rows, best) = swept(&mut bench, &mut Journal::in_memory(), budget);
    assert_eq!(
        best.expect("an answer").candidate.to_string(),
        "rows=128 stages=3"
    );
    let tiles = rows
        .iter()
        .filter(|row| row.candidate.get("rows").is_some());
    assert_eq!(tiles.count(), 2);
    let nothing = Budget {
        narrowed: vec![
            "rows=7".parse().expect("a part"),
            "disaster=none".parse().expect("a part"),
        ],
        ..Budget::default()
    };
    let mut silent = |_: &heist_tune::Progress<'_>| {};
    let mut journal = Journal::in_memory();
    let mut sweep = Sweep::new(
        &mut bench,
        &mut journal,
        nothing,
        Candidate::default(),
        &mut silent,
    );
    assert!(sweep.stage(&stage()).is_err());
}

#[test]
fn shards_together_try_what_one_process_tries() {
    let ids = |budget: Budget| {
        let mut bench = Planted {
            exact: true,
            ..Planted::default()
        };
        swept(&mut bench, &mut Journal::in_memory(), budget);
        bench.solved.take()
    };
    let mut whole = ids(Budget::default());
    let mut parts: Vec<String> = (1..=3)
        .flat_map(|part| {
            let shard: Shard = format!("{part}/3").parse().expect("a part");
            ids(Budget {
                shard,
                ..Budget::default()
            })
        })
        .filter(|id| id != "the default")
        .collect();
    whole.retain(|id| id != "the default");
    whole.sort();
    parts.sort();
    assert_eq!(whole, parts);
}

#[test]
fn of_two_that_take_the_same_time_the_order_does_not_matter() {
    let named = |rows: &str| Candidate::new([("rows", rows), ("stages", "2")]);
    // As far from 96 on either side.
    for order in [["64", "128"], ["128", "64"]] {
        let mut bench = Planted {
            exact: true,
            ..Planted::default()
        };
        let mut journal = Journal::in_memory();
        let mut silent = |_: &heist_tune::Progress<'_>| {};
        let budget = Budget::default();
        let default = Candidate::default();
        let mut sweep = Sweep::new(&mut bench, &mut journal, budget, default, &mut silent);
        let stage = Stage {
            name: "tiles",
            proposals: Vec::new(),
            share: 1.0,
        };
        sweep.attempt(&stage, &order.map(named)).expect("rows");
        assert_eq!(sweep.best().expect("one").candidate, named("128"));
    }
}

#[test]
fn a_plan_names_what_is_left_and_is_gone_on_from() {
    let mut bench = Planted {
        exact: true,
        ..Planted::default()
    };
    let (expected, best) = swept(&mut bench, &mut Journal::in_memory(), Budget::default());
    let mut journal = Journal::in_memory();
    let planned = |bench: &mut Planted, journal: &mut Journal| {
        let mut silent = |_: &heist_tune::Progress<'_>| {};
        let budget = Budget {
            plan: true,
            ..Budget::default()
        };
        let default = Candidate::default();
        let mut sweep = Sweep::new(bench, journal, budget, default, &mut silent);
        sweep.stage(&stage()).expect("it ends");
        sweep.planned().to_vec()
    };
    bench.solved.take();
    let named = planned(&mut bench, &mut journal);
    assert!(bench.solved.borrow().is_empty(), "nothing was tried");
    // Others try them, in another order.
    let mut rows = Journal::in_memory();
    {
        let mut silent = |_: &heist_tune::Progress<'_>| {};
        let (budget, default) = (Budget::default(), Candidate::default());
        let mut sweep = Sweep::new(&mut bench, &mut rows, budget, default, &mut silent);
        let backwards: Vec<Candidate> = named.iter().rev().cloned().collect();
        sweep.attempt(&stage(), &backwards).expect("rows");
    }
    for row in rows.rows() {
        journal.add(row.clone()).expect("a row");
    }
    assert_eq!(planned(&mut bench, &mut journal), [], "nothing is left");
    bench.solved.take();
    let (rows, found) = swept(&mut bench, &mut journal, Budget::default());
    assert!(bench.solved.borrow().is_empty(), "nothing is tried again");
    assert_eq!(rows.len(), expected.len());
    assert_eq!(found, best);
}

fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("a folder");
    folder
}

#[test]
fn another_sweep_s_journal_is_refused_and_a_torn_line_is_not() {
    let path = folder("journals").join("one.jsonl");
    let mut bench = Planted {
        exact: true,
        ..Planted::default()
    };
    let mut journal = Journal::open(&path, &json!({"sweep": 1})).expect("a journal");
    let (rows, _) = swept(&mut bench, &mut journal, Budget::default());
    drop(journal);
    let error = Journal::open(&path, &json!({"sweep": 2})).expect_err("another's");
    assert!(error.to_string().contains("another sweep"), "{error}");
    let mut text = std::fs::read_to_string(&path).expect("lines");
    text.push_str("{\"row\":{\"candi");
    std::fs::write(&path, &text).expect("written");
    let mut journal = Journal::open(&path, &json!({"sweep": 1})).expect("the torn line is cut off");
    assert!(latest(journal.rows()) == rows);
    // What is written next begins a line of its own.
    journal.finish("another").expect("written");
    drop(journal);
    let journal = Journal::open(&path, &json!({"sweep": 1})).expect("whole lines");
    assert!(journal.is_done("another") && latest(journal.rows()) == rows);
    drop(journal);
    std::fs::write(&path, "{\"sweep\":{\"sweep\":1}}\nnonsense\n").expect("written");
    let error = Journal::open(&path, &json!({"sweep": 1})).expect_err("nonsense");
    assert!(error.to_string().contains(":2:"), "{error}");
}

/// The sweep that is killed: run by the test below, in a process of its own.
#[test]
#[ignore = "the child of the test below"]
fn child() {
    let path = std::env::var_os("SWEPT_JOURNAL").expect("a journal");
    let mut bench = Planted {
        exact: true,
        ..Planted::default()
    };
    let mut journal = Journal::open(Path::new(&path), &json!("killed")).expect("a journal");
    swept(&mut bench, &mut journal, Budget::default());
}

#[test]
fn killed_fifty_times_it_ends_with_the_same_rows() {
    let folder = folder("killed");
    let path = folder.join("killed.jsonl");
    let lines = || {
        std::fs::read(&path).map_or(0, |bytes| {
            bytes.iter().filter(|byte| **byte == b'\n').count()
        })
    };
    let sweep = || {
        let mut command = Command::new(std::env::current_exe().expect("this test"));
        command
            .args(["--exact", "child", "--ignored"])
            .env("SWEPT_JOURNAL", &path);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        command
    };
    let mut random = fastrand::Rng::with_seed(5);
    for _ in 0..50 {
        let mut running = sweep().spawn().expect("a process");
        // Killed at a random line, if it is not done before.
        let at = lines() + random.usize(0..6);
        while lines() < at && running.try_wait().expect("its state").is_none() {
            std::thread::yield_now();
        }
        let _ = running.kill();
        running.wait().expect("its end");
    }
    assert!(sweep().status().expect("its end").success());
    let (_, rows) = heist_tune::read(&path).expect("rows");
    let mut bench = Planted {
        exact: true,
        ..Planted::default()
    };
    let (expected, _) = swept(&mut bench, &mut Journal::in_memory(), Budget::default());
    let by_candidate = |mut rows: Vec<Row>| {
        rows.sort_by(|one, other| one.candidate.cmp(&other.candidate));
        rows
    };
    let (rows, expected) = (by_candidate(latest(&rows)), by_candidate(expected));
    assert_eq!(rows.len(), expected.len());
    for (row, expected) in rows.iter().zip(&expected) {
        assert_eq!(row, expected);
    }
}
