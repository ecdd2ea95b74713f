//! The commands about kernels: what there is, running one, writing its PTX.

use std::process::{Command, Output};

fn heist(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_heist"))
        .args(args)
        .output()
        .unwrap()
}

fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn json(args: &[&str]) -> serde_json::Value {
    let output = heist(args);
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}{}", out(&output), err(&output)))
}

#[test]
fn every_kernel_is_listed_with_its_parameters() {
    let list = json(&["kernels", "--json"]);
    let names: Vec<&str> = list["kernels"]
        .as_array()
        .unwrap()
        .iter()
        .map(|kernel| kernel["name"].as_str().unwrap())
        .collect();
    for name in ["gemm", "attention"] {
        assert!(names.contains(&name), "{names:?}");
        let text = out(&heist(&["kernels", name]));
        assert!(
            text.contains("parameters") && text.contains("variants"),
            "{text}"
        );
    }
    let unknown = heist(&["kernels", "gem"]);
    assert_eq!(unknown.status.code(), Some(2));
    assert!(err(&unknown).contains("gemm"), "{}", err(&unknown));
}

#[test]
fn a_kernel_runs_under_a_schedule_and_is_checked() {
    let args = ["run", "gemm", "m=70", "n=33", "k=40", "--json", "--source"];
    for source in ["clc", "ticket", "static", "direct"] {
        let mut args = args.to_vec();
        args.extend([source, "--device", "sim:b200"]);
        let answer = json(&args);
        assert_eq!(answer["right"], true, "{answer}");
        assert_eq!(answer["device"], "sim:b200");
        // Tiles that nobody counted are no zero.
        let tiles = &answer["steps"][0]["summary"]["tiles"];
        assert!(tiles.is_null() || tiles.as_u64() > Some(0), "{answer}");
        assert!(answer["relative_norm"].as_f64().unwrap() < 2e-3, "{answer}");
    }
}

/// A kernel is watched as workloads are, under its own schedule and under any other.
#[test]
fn rounding_over_few_rows_is_no_error() {
    // Four rows of bf16 whose difference of 2.54e-3 is rounding alone: a mean over many is 2.1e-3.
    let words = "run attention heads=1 dim=32 kv-heads=1 dtype=bf16 mask=window(50,10) layout=rows batch=1 \
                 queries=4 keys=47 alibi=true softcap=20 seed=1049 --device sim:a100 --json";
    let answer = json(&words.split_whitespace().collect::<Vec<_>>());
    assert_eq!(answer["right"], true, "{answer}");
    assert!(
        answer["relative_norm"].as_f64().unwrap() > 2.5e-3,
        "{answer}"
    );
}

#[test]
fn the_tiles_of_a_kernel_are_counted() {
    for (words, device) in [
        (&["gemm", "m=256", "n=192", "k=32"][..], "sim:h200"),
        (
            &[
                "gemm", "m=256", "n=192", "k=32", "--source", "ticket", "--policy", "never",
            ],
            "sim:l4",
        ),
        (&["attention", "queries=200"], "sim:b200"),
        (&["grouped-gemm", "rows=40,100"], "sim:h200"),
    ] {
        let answer = json(&[&["run"], words, &["--json", "--device", device]].concat());
        let step = &answer["steps"][0];
        let tiles = step["stats"]["tiles"].as_u64();
        assert!(tiles.is_some_and(|tiles| tiles > 0), "{answer}");
        assert_eq!(step["summary"]["tiles"].as_u64(), tiles, "{answer}");
        if words.contains(&"never") {
            // Every block draws its one tile.
            assert_eq!(step["stats"]["stolen"].as_u64(), tiles, "{answer}");
        }
    }
    let said = out(&heist(&[
        "run",
        "grouped-gemm",
        "rows=40,100",
        "--device",
        "sim:h200",
    ]));
    assert!(said.contains(" tiles on "), "{said}");
}

/// In clusters, too, where the tile loop hands the answers of launch control on.
/// A run in which tiles are watched takes another time than the kernel itself: both are told.
#[test]
fn a_timeline_of_a_kernel_says_that_it_is_of_a_second_run() {
    let page = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("watched.html");
    let file = page.to_str().unwrap();
    let small = ["m=70", "n=33", "k=40", "--device", "sim:b200"];
    let output = heist(&[&["run", "gemm", "--trace", file], &small[..]].concat());
    let told = out(&output);
    assert!(told.contains("(of a second run"), "{told}{}", err(&output));
    let time = told.lines().find_map(|line| {
        let (_, times) = line.split_once(".ptx: ")?;
        Some(times.split_once(", modelled")?.0.to_owned())
    });
    let sentence = format!("Without that it takes {}.", time.unwrap_or_default());
    assert!(std::fs::read_to_string(&page).unwrap().contains(&sentence));
}

#[test]
fn what_launch_control_gives_a_cluster_is_clean() {
    for words in [
        &["gemm", "m=256", "n=128", "k=64"][..],
        &["grouped-gemm", "rows=40,100"],
        &["attention", "queries=100", "variant=persistent"],
        &["power-law", "--tiles", "100"],
        &["power-law", "--tiles", "100", "--policy", "max-steals(2)"],
    ] {
        let schedule = [
            "--cluster",
            "2",
            "--source",
            "clc",
            "--device",
            "sim:b200",
            "--json",
        ];
        let output = heist(&[&["run"], words, &schedule].concat());
        let answer: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(0), "{answer}");
        let found = [&answer["diagnostics"], &answer["steps"][0]["diagnostics"]];
        assert!(found.contains(&&serde_json::json!([])), "{answer}");
        assert!(
            answer["right"] == true || answer["exactly_once"] == true,
            "{answer}"
        );
        // Every time says its unit.
        let summary = [&answer["summary"], &answer["steps"][0]["summary"]];
        let length = summary.iter().find_map(|one| one["makespan_ns"].as_f64());
        assert!(
            length.is_some_and(|ns| (100.0..1e6).contains(&ns)),
            "{answer}"
        );
    }
}

#[test]
fn what_a_kernel_does_not_take_is_told() {
    for (args, says) in [
        (&["run", "gemm", "rows=5"][..], "rows"),
        (&["run", "gemm", "m"], "name=value"),
        (&["run", "uniform", "m=5"], "--tiles"),
        (&["run", "gem"], "gemm"),
        (
            &["run", "gemm", "--source", "clc", "--device", "sim:h200"],
            "clc",
        ),
        (&["emit", "gemm", "--arch", "sm_75"], "sm_80"),
        (&["emit", "gemm", "--arch", "h100"], "sm_90a"),
        (&["bench", "gemm", "--device", "sim:h200"], "real"),
        (&["bench", "gemm", "--only", "nothing of that name"], "name"),
        // Twice, not at all, or in the wrong place.
        (&["run", "gemm", "m=3", "m=4"], "twice"),
        (
            &[
                "run",
                "gemm",
                "variant=mma-64x64",
                "config=64x64x32/32x32/4*2",
            ],
            "instead",
        ),
        (&["run", "grouped-gemm", "groups=1x8x8", "n=8"], "instead"),
        (&["run", "attention", "lengths=17", "queries=5"], "instead"),
        (&["run", "gemm", "m=-3"], "whole number"),
        (&["run", "gemm", "m="], "no value"),
        (&["run", "gemm", "alpha=x"], "not a number"),
        (&["run", "gemm", "bias=yes"], "true or false"),
        (&["run", "grouped-gemm", "rows=1,x"], "40,200,0"),
        (&["run", "grouped-gemm", "groups=1x2"], "m x n x k"),
        (&["run", "gemm", "--tiles", "5"], "heist kernels gemm"),
        (&["run", "gemm", "--order", "longest-first"], "cost"),
        (&["run", "uniform", "--tuned", "x.json"], "--source auto"),
        (
            &["run", "uniform", "--source", "auto", "--submit", "late"],
            "--submit",
        ),
        (&["run", "uniform", "--pausing"], "is for kernels"),
        (&["emit", "gemm", "--pausing", "--submit", "early"], "late"),
        (
            &["emit", "gemm", "--pausing", "--arch", "sm_80"],
            "can't be left half done",
        ),
        (
            &["emit", "gemm", "--pausing", "--arch", "sm_100a"],
            "can't be left half done on sm_100a",
        ),
        (
            &["run", "attention", "--pausing", "--device", "sim:b200"],
            "--device sim:h200",
        ),
        (
            &["emit", "gemm", "--in-flight", "0", "--arch", "sm_100a"],
            "1 to 16",
        ),
        (&["emit", "gemm", "--order", "grouped(0)"], "1 or more"),
        (&["run", "gemm", "--order", "grouped( 0 )"], "1 or more"),
        (&["run", "uniform", "--order", "grouped(x)"], "1 or more"),
        (&["run", "uniform", "--order", "group"], "grouped(ROWS)"),
        (
            &["run", "uniform", "--source", "tickets"],
            "direct, and auto",
        ),
        (&["run", "uniform", "--tiles", "0"], "from 1 on"),
        (&["run", "uniform", "--mean", "0"], "from 1 on"),
        (&["run", "uniform", "--seed", "-1"], "from 0 on"),
        (&["run", "uniform", "--imbalance", "-3"], "from 1"),
        (&["run", "uniform", "--imbalance", "nan"], "from 1"),
        (&["emit", "gemm", "--arch", "90"], "sm_100a"),
        (&["bench", "gemm"], "heist tune"),
        // Two modules are no file of PTX.
        (&["emit", "attention", "splits=2", "queries=64"], "--out"),
    ] {
        let output = heist(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(err(&output).contains(says), "{args:?}: {}", err(&output));
        // Where in our sources it was noticed tells nobody anything.
        assert!(!err(&output).contains(".rs:"), "{args:?}: {}", err(&output));
    }
}

#[test]
fn emitted_ptx_is_ptx_for_that_architecture() {
    for arch in ["sm_80", "sm_90a", "sm_120"] {
        let text = out(&heist(&["emit", "attention", "dim=64", "--arch", arch]));
        let source = heist_ptx::Source::new("emitted.ptx", text);
        let module = heist_ptx::parse(&source).unwrap_or_else(|errors| panic!("{errors:?}"));
        assert_eq!(module.target.arch, arch);
        assert_eq!(module.entries().count(), 1);
    }
    for (args, pauses) in [
        (&["emit", "gemm", "--pausing"][..], true),
        (&["emit", "gemm", "--policy", "until-asked"], false),
    ] {
        let text = out(&heist(args));
        assert_eq!(text.contains("heist_pause"), pauses, "{args:?}");
    }
}

#[test]
fn emitted_json_has_every_argument_in_order() {
    let emitted = json(&["emit", "gemm", "m=256", "n=512", "k=64", "--json"]);
    let step = &emitted["steps"][0];
    let source = heist_ptx::Source::new("emitted.ptx", step["ptx"].as_str().unwrap());
    let module = heist_ptx::parse(&source).unwrap_or_else(|errors| panic!("{errors:?}"));
    let params = &module.entries().next().unwrap().params;
    let arguments = step["arguments"].as_array().unwrap();
    assert_eq!(arguments.len(), params.len());
    for (index, (argument, param)) in arguments.iter().zip(params).enumerate() {
        assert_eq!(argument["index"], index);
        assert_eq!(argument["name"], param.name.as_str());
        assert_eq!(argument["bytes"].as_u64(), param.size(), "{argument}");
        assert!(!argument["meaning"].as_str().unwrap().is_empty());
    }
    let map = &arguments[0];
    assert_eq!(map["kind"], "tensor_map");
    assert_eq!(map["buffer"], "a");
    assert_eq!(map["dims"], serde_json::json!([64, 256, 1]));
    assert_eq!(map["swizzle"], "128");
    let kinds: Vec<&str> = arguments
        .iter()
        .map(|argument| argument["kind"].as_str().unwrap())
        .collect();
    for kind in ["pointer", "scalar", "counters", "constant"] {
        assert!(kinds.contains(&kind), "{kinds:?}");
    }
    // Every buffer that an argument names is told, with its size.
    let buffers = emitted["buffers"].as_array().unwrap();
    for argument in arguments {
        if let Some(name) = argument["buffer"].as_str() {
            assert!(
                buffers.iter().any(|buffer| buffer["name"] == name),
                "{name}"
            );
        }
    }
}

/// Runs the command with a place of its own for answers.
fn with_answers(place: &std::path::Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_heist"))
        .args(args)
        .env("HEIST_TUNED", place)
        .output()
        .unwrap()
}

fn parsed(output: &Output) -> serde_json::Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", err(output)))
}

#[test]
fn tuning_finds_what_run_takes() {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("tuning");
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    let (answers, page) = (folder.join("tuned.jsonl"), folder.join("sweep.html"));
    let problem = ["gemm", "m=100", "n=130", "k=64", "--device", "sim:h200"];
    let page_name = page.to_str().unwrap();
    let words = [
        &["tune"],
        &problem[..],
        &[
            "--limit",
            "6",
            "--only",
            "stages=2..4",
            "--policy",
            "max-steals(2)",
            "--page",
            page_name,
        ],
    ]
    .concat();
    let tuned = with_answers(&answers, &[&words[..], &["--json"]].concat());
    assert_eq!(tuned.status.code(), Some(0), "{}", err(&tuned));
    let found = parsed(&tuned);
    let rows = found["rows"].as_array().unwrap();
    let with = |status: &str| rows.iter().filter(|row| row["status"] == status).count();
    assert!(with("right") + with("slow") >= 12, "{}", with("right"));
    assert!(with("refused") > 50, "what does not fit has a row");
    assert_eq!(with("wrong") + with("crashed") + with("hung"), 0);
    let schedules: Vec<&str> = rows
        .iter()
        .filter_map(|row| row["candidate"]["schedule"].as_str())
        .collect();
    assert!(!schedules.is_empty());
    // Whatever was narrowed was kept to.
    for row in rows.iter().filter(|row| row["status"] == "right") {
        let stages = row["candidate"]["stages"]
            .as_str()
            .map(|text| text.parse::<u32>().unwrap());
        assert!(
            stages.is_none_or(|stages| (2..=4).contains(&stages)),
            "{row}"
        );
    }
    let best = found["best"]["timing"]["median_ns"].as_f64().unwrap();
    let default = found["default"]["timing"]["median_ns"].as_f64().unwrap();
    assert!(best <= default);
    assert!(
        std::fs::read_to_string(&page)
            .unwrap()
            .contains("Every candidate")
    );
    // What was found is remembered, taken, told, and takes the time that was said.
    let listed = parsed(&with_answers(&answers, &["tuned", "--json"]));
    assert_eq!(listed["answers"].as_array().unwrap().len(), 1);
    let run = [&["run"], &problem[..]].concat();
    let ran = parsed(&with_answers(&answers, &[&run[..], &["--json"]].concat()));
    assert_eq!(ran["right"], true);
    assert_eq!(ran["tuned"], found["best"]["candidate"]);
    let elapsed: f64 = ran["steps"]
        .as_array()
        .unwrap()
        .iter()
        .map(|step| step["elapsed_ns"].as_f64().unwrap())
        .sum();
    assert_eq!(elapsed, best);
    // Another problem, or a choice of one's own, goes without it.
    let other = with_answers(
        &answers,
        &[
            "run", "gemm", "m=100", "n=130", "k=96", "--device", "sim:h200", "--json",
        ],
    );
    assert!(parsed(&other)["tuned"].is_null());
    let own = with_answers(
        &answers,
        &[&run[..], &["variant=mma-64x64", "--json"]].concat(),
    );
    assert!(parsed(&own)["tuned"].is_null());
    // An answer of another version is told, and not obeyed.
    {
        let store = heist_tune::Store::open(&answers).unwrap();
        let mut answer = store.all().unwrap().remove(0);
        answer.key.version = "0.0.1".to_owned();
        store.forget(None).unwrap();
        store.keep(&answer).unwrap();
    }
    let stale = with_answers(&answers, &[&run[..], &["--json"]].concat());
    assert_eq!(stale.status.code(), Some(0));
    assert!(parsed(&stale)["tuned"].is_null());
    let said = err(&stale);
    assert!(
        said.contains("version 0.0.1, and is not taken") && said.contains("`heist tune gemm "),
        "{said}"
    );
    // A broken file is told, and not obeyed.
    std::fs::write(&answers, "no database at all, but a text that is long enough to have a header in it: one hundred bytes and more").unwrap();
    let broken = with_answers(&answers, &[&run[..], &["--json"]].concat());
    assert_eq!(broken.status.code(), Some(0));
    assert!(
        err(&broken).contains("not a store of tuned answers"),
        "{}",
        err(&broken)
    );
    assert!(parsed(&broken)["tuned"].is_null());
    assert_eq!(with_answers(&answers, &["tuned"]).status.code(), Some(2));
}

/// The rows of a sweep by candidate, as text.
fn rows_of(found: &serde_json::Value) -> std::collections::BTreeMap<String, serde_json::Value> {
    let rows = found["rows"].as_array().unwrap();
    let by = |row: &serde_json::Value| (row["candidate"].to_string(), row.clone());
    rows.iter().map(by).collect()
}

#[test]
fn shards_and_plans_come_to_what_one_process_finds() {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("shards");
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    let nowhere = std::path::Path::new("");
    let problem = [
        "tune", "gemm", "m=32", "n=32", "k=32", "--device", "sim:h200", "--json",
    ];
    let limit = ["--limit", "12"];
    let tune = |more: &[&str]| {
        let ran = with_answers(nowhere, &[&problem[..], more].concat());
        assert_eq!(ran.status.code(), Some(0), "{}{}", out(&ran), err(&ran));
        parsed(&ran)
    };
    let alone = tune(&limit);
    // In parts, each with a journal, that are put together and gone on from.
    let file = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let parts = ["1/3", "2/3", "3/3"].map(|shard| {
        let part = file(&format!("{}.jsonl", &shard[..1]));
        tune(&[&limit[..], &["--shard", shard, "--journal", &part]].concat());
        part
    });
    let whole = file("whole.jsonl");
    let merge = [
        "tuned",
        "rows",
        &parts[0],
        &parts[1],
        &parts[2],
        "--journal",
        &whole,
        "--json",
    ];
    assert_eq!(with_answers(nowhere, &merge).status.code(), Some(0));
    let again = with_answers(nowhere, &merge);
    assert_eq!(
        again.status.code(),
        Some(2),
        "a journal is not written over"
    );
    // Nothing of the tiles is left to try.
    let named = tune(&[&limit[..], &["--journal", &whole, "--plan"]].concat());
    let named = named["planned"].as_array().unwrap().clone();
    let is_schedule = |one: &serde_json::Value| one.as_str().unwrap().contains("schedule=");
    assert!(
        !named.is_empty() && named.iter().all(is_schedule),
        "{named:?}"
    );
    let together = tune(&[&limit[..], &["--journal", &whole]].concat());
    let (one, many) = (rows_of(&alone), rows_of(&together));
    assert_eq!(one.len(), many.len());
    for (name, row) in &one {
        assert_eq!(
            row["timing"]["median_ns"],
            many[name]["timing"]["median_ns"]
        );
        assert_eq!(row["facts"], many[name]["facts"]);
    }
    assert_eq!(alone["best"]["candidate"], together["best"]["candidate"]);
    // One candidate by itself has the row that it has in the sweep.
    let schedule = named[0].as_str().unwrap();
    let row = tune(&["--candidate", schedule, "--candidate", ""]);
    let tried = rows_of(&row);
    assert_eq!(tried.len(), 2, "the default is a candidate without words");
    for (name, row) in tried {
        assert_eq!(row["facts"], one[&name]["facts"]);
        assert_eq!(
            row["timing"]["median_ns"],
            one[&name]["timing"]["median_ns"]
        );
    }
    let refused = tune(&["--candidate", "rows=7 cols=3"]);
    assert_eq!(refused["rows"][0]["status"], "refused", "{refused}");
}

#[test]
fn the_pack_of_evidence_from_a_gpu_holds() {
    let pack = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../bench/evidence/h200-gemm-4096"
    );
    let verified = heist(&["evidence", "verify", pack]);
    assert_eq!(verified.status.code(), Some(0), "{}", out(&verified));
    assert_eq!(
        heist(&["evidence", "verify", "no/such/pack"]).status.code(),
        Some(2)
    );
}

#[test]
fn a_sweep_without_candidates_says_so() {
    let none = heist(&["tune", "gemm", "m=0", "--device", "sim:h200"]);
    assert_eq!(none.status.code(), Some(2));
    assert!(err(&none).contains("no elements"));
    let narrow = heist(&[
        "tune", "gemm", "m=64", "--only", "rows=7", "--device", "sim:h200",
    ]);
    assert_eq!(narrow.status.code(), Some(2));
    assert!(err(&narrow).contains("nothing to try"), "{}", err(&narrow));
    // A choice that is misspelt would narrow nothing.
    let misspelt = heist(&[
        "tune", "gemm", "m=64", "--only", "row=64", "--device", "sim:h200",
    ]);
    assert_eq!(misspelt.status.code(), Some(2), "{}", out(&misspelt));
    let said = err(&misspelt);
    assert!(
        said.contains("`row`") && said.contains("rows") && said.contains("schedule"),
        "{said}"
    );
}

/// What nobody looks at would leave another kernel under the words that were asked for.
#[test]
fn a_candidate_is_used_to_the_last_word() {
    for (kernel, device, words, named) in [
        ("gemm", "sim:h200", "rows=128", "rows=128"),
        ("gemm", "sim:h200", "foo=1 schedule=static", "foo=1"),
        (
            "gemm",
            "sim:h200",
            "rows=64 cols=64 depth=64 stages=4 stage=3",
            "stage=3",
        ),
        ("gemm", "sim:b200", "cols=64 stages=4 warp=1", "warp=1"),
        (
            "gemm",
            "sim:a100",
            "rows=64 cols=64 depth=32 warp=32x32 stages=4 split=2",
            "split=2",
        ),
        ("grouped-gemm", "sim:h200", "rows=64", "rows=64"),
        (
            "grouped-gemm",
            "sim:h200",
            "rows=64 cols=64 depth=64 stages=4 x=1",
            "x=1",
        ),
        ("experts", "sim:h200", "gather=fused", "gather=fused"),
    ] {
        let run = heist(&["run", kernel, "--candidate", words, "--device", device]);
        assert_eq!(
            run.status.code(),
            Some(2),
            "{kernel} {words}: {}",
            out(&run)
        );
        let said = err(&run);
        let no_choice = format!("`{named}` of the candidate");
        assert!(
            said.contains(&no_choice) && said.contains("is no choice"),
            "{said}"
        );
    }
    for words in ["", "schedule=static", "variant=wgmma schedule=direct"] {
        let small = [
            "run", "gemm", "m=64", "n=64", "k=64", "--device", "sim:h200",
        ];
        let run = heist(&[&small[..], &["--candidate", words]].concat());
        assert_eq!(run.status.code(), Some(0), "{words}: {}", err(&run));
    }
}

/// A sweep takes minutes: its answer is not lost where it can't be kept.
#[test]
fn an_answer_that_can_t_be_kept_is_told() {
    let output = Command::new(env!("CARGO_BIN_EXE_heist"))
        .args(["tune", "gemm", "m=16", "n=16", "k=16", "--limit", "1"])
        .args(["--device", "sim:h200"])
        .env("HEIST_TUNED", "/dev/null/tuned.jsonl")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    assert!(out(&output).contains("best: heist run gemm"));
    assert!(!out(&output).contains("kept in"), "{}", out(&output));
    assert!(err(&output).contains("not kept"), "{}", err(&output));
}

#[test]
fn a_run_ends_when_its_time_is_up() {
    for words in [
        &["power-law", "--tiles", "10", "--mean", "4000000000"][..],
        &["gemm", "m=2048", "n=2048", "k=2048"],
    ] {
        let output = heist(&[&["run"], words, &["--timeout", "0.2"]].concat());
        assert_eq!(output.status.code(), Some(1), "{}", err(&output));
        let said = err(&output);
        assert!(
            said.contains("X002") && said.contains("--timeout"),
            "{said}"
        );
    }
}

/// `heist emit gemm | heist check -` finds nothing: our own kernels keep our own rules,
/// under every source, moment and policy.
#[test]
fn our_kernels_keep_our_rules() {
    use heist::builder::Arch;
    use heist::kernels::synthetic::{Parameters, Synthetic, Workload, build};
    use heist::sched::{Schedule, Submit, TileSource};
    let parameters = Parameters {
        tiles: 100,
        prologue: 5,
        ..Parameters::default()
    };
    let work = Synthetic::new(Workload::PowerLaw, parameters);
    for arch in [Arch::SM_80, Arch::SM_90A, Arch::SM_100A] {
        for source in TileSource::ALL {
            for (policy, cluster) in [
                ("greedy", 1),
                ("never", 1),
                ("max-steals(3)", 1),
                ("every(2) | probability(0.5)", 1),
                ("greedy", 2),
                ("at-most(9)", 2),
            ] {
                let cluster = heist::launch::Dim3::from(cluster);
                if source.check(arch, cluster).is_err() {
                    continue;
                }
                for submit in [Submit::Early, Submit::Late] {
                    let policy = policy.parse().expect("a policy");
                    let mut schedule = Schedule::new(source).policy(policy).submit(submit);
                    schedule.cluster = cluster;
                    let kernel = build(&work, &schedule, arch).expect("a kernel");
                    let found = heist::check::check(&kernel.built.module);
                    assert!(found.is_empty(), "{schedule} on {arch}: {found:#?}");
                }
            }
        }
    }
    for arch in ["sm_80", "sm_90a", "sm_100a", "sm_120a"] {
        for kernel in ["gemm", "grouped-gemm", "attention"] {
            let text = out(&heist(&["emit", kernel, "--arch", arch]));
            let source = heist_ptx::Source::new("emitted.ptx", text);
            let module = heist_ptx::parse(&source).unwrap_or_else(|errors| panic!("{errors:?}"));
            let found = heist::check::check(&module);
            assert!(found.is_empty(), "{kernel} for {arch}: {found:#?}");
        }
    }
}
