//! What commands answer with `--json`, held against `docs/schemas`.

use serde_json::{Map, Value};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn schema(file: &str) -> Value {
    let path = root().join("docs/schemas").join(file);
    let text = std::fs::read_to_string(&path);
    let text = text.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{file}: {error}"))
}

/// Any library serves to be loaded in front of a program that never calls it.
fn c_library() -> PathBuf {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("this process's memory");
    let mut paths = maps
        .lines()
        .filter_map(|line| line.split_whitespace().nth(5));
    let libc = paths.find(|path| path.contains("libc.so") || path.contains("libc-"));
    PathBuf::from(libc.expect("a C library"))
}

/// The words that schemas here use; another one is a mistake in the schema.
const WORDS: [&str; 13] = [
    "$schema",
    "$defs",
    "$ref",
    "title",
    "description",
    "type",
    "properties",
    "required",
    "additionalProperties",
    "items",
    "enum",
    "const",
    "anyOf",
];

/// Where a value is not as the schema says; empty when all is well.
fn wrong(value: &Value, schema: &Value, at: &str) -> Vec<String> {
    let rules = schema.as_object().expect("a schema is an object");
    let unknown = rules.keys().find(|word| !WORDS.contains(&word.as_str()));
    assert!(
        unknown.is_none(),
        "{at}: the schema has the word {unknown:?}"
    );
    let mut found = Vec::new();
    if let Some(place) = rules.get("$ref").and_then(Value::as_str) {
        let (file, pointer) = place.split_once('#').expect("a file and a place");
        let other = self::schema(file);
        let target = other.pointer(pointer).expect("the place is there");
        found.extend(wrong(value, target, at));
    }
    if let Some(choices) = rules.get("anyOf").and_then(Value::as_array) {
        let tries: Vec<Vec<String>> = choices.iter().map(|one| wrong(value, one, at)).collect();
        if tries.iter().all(|try_| !try_.is_empty()) {
            found.extend(tries.into_iter().min_by_key(Vec::len).unwrap_or_default());
        }
    }
    let is = |ty: &str| match ty {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "number" => value.is_number(),
        "integer" => value.is_u64() || value.is_i64(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        other => panic!("{at}: no type is called {other}"),
    };
    if let Some(ty) = rules.get("type").and_then(Value::as_str)
        && !is(ty)
    {
        found.push(format!("{at} is no {ty}: {value}"));
    }
    if rules.get("const").is_some_and(|wanted| wanted != value) {
        found.push(format!("{at} is {value}"));
    }
    let choices = rules.get("enum").and_then(Value::as_array);
    if choices.is_some_and(|choices| !choices.contains(value)) {
        found.push(format!("{at} is {value}"));
    }
    if let (Some(items), Some(list)) = (rules.get("items"), value.as_array()) {
        for (index, item) in list.iter().enumerate() {
            found.extend(wrong(item, items, &format!("{at}[{index}]")));
        }
    }
    if let Some(fields) = value.as_object() {
        found.extend(wrong_fields(fields, rules, at));
    }
    found
}

fn wrong_fields(fields: &Map<String, Value>, rules: &Map<String, Value>, at: &str) -> Vec<String> {
    let mut found = Vec::new();
    let properties = rules.get("properties").and_then(Value::as_object);
    for (name, value) in fields {
        match properties.and_then(|known| known.get(name)) {
            Some(schema) => found.extend(wrong(value, schema, &format!("{at}.{name}"))),
            None if rules.get("additionalProperties") == Some(&Value::Bool(false)) => {
                found.push(format!("{at}.{name} is not in the schema"));
            }
            None => {}
        }
    }
    for name in rules
        .get("required")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
    {
        if !name.as_str().is_some_and(|name| fields.contains_key(name)) {
            found.push(format!("{at} has no {name}"));
        }
    }
    found
}

/// A place of the test's own for what the tuner finds.
fn answers() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("schemas-tuned.jsonl")
}

/// Runs the command with `--json`, and holds what it prints against the schema that it names.
fn answer(words: &[&str]) -> Value {
    let output = Command::new(env!("CARGO_BIN_EXE_heist"))
        .args(words)
        .arg("--json")
        .env("HEIST_TUNED", answers())
        .current_dir(root())
        .output()
        .expect("heist starts");
    held(words, &output)
}

fn held(words: &[&str], output: &Output) -> Value {
    let value: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{words:?}: {error}: {output:?}"));
    let name = value["schema"]
        .as_str()
        .unwrap_or_else(|| panic!("{words:?} has no schema"));
    let file = name
        .strip_prefix("heist-")
        .and_then(|name| name.strip_suffix("/1"));
    let file = format!("{}.json", file.unwrap_or_else(|| panic!("{name}")));
    assert_eq!(
        wrong(&value, &schema(&file), "answer"),
        [""; 0],
        "{words:?}"
    );
    value
}

/// A script that knows the command by its JSON alone: it lists kernels, emits one, formats and
/// checks it, runs it, and reads the rules behind what it finds.
#[test]
fn every_answer_is_as_its_schema_says() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("schemas");
    let _ = std::fs::remove_dir_all(&folder);
    let _ = std::fs::remove_file(answers());
    std::fs::create_dir_all(&folder).expect("a folder");
    let inside = |name: &str| folder.join(name).display().to_string();
    let (page, pages, project) = (inside("demo.html"), inside("man"), inside("mine"));
    let (journal, answered) = (inside("journal.jsonl"), answers().display().to_string());
    let broken = "cases/cp-async/bad-no-wait.ptx";
    let race = "rules/R001-shared-race/bad.ptx";
    let add = "tests/ptx/float/add.ptx --entry add_rn_f32 --grid 1 --block 2 \
               --arg in:f32:[1,2] --arg in:f32:[3,4] --arg out:f32:2";
    let add: Vec<&str> = std::iter::once("exec")
        .chain(add.split_whitespace())
        .collect();
    let kernels = answer(&["kernels"]);
    let first = kernels["kernels"][0]["name"].as_str().expect("a name");
    let emitted = answer(&["emit", first]);
    let ptx = inside("first.ptx");
    std::fs::write(&ptx, emitted["steps"][0]["ptx"].as_str().expect("PTX")).expect("a file");
    answer(&["fmt", &ptx]);
    answer(&["check", &ptx]);
    let found = answer(&["check", broken, "no/such/file.ptx"]);
    let code = found["files"][0]["diagnostics"][0]["code"]
        .as_str()
        .expect("a code");
    answer(&["explain", code]);
    for words in [
        &["explain"][..],
        &["policies"],
        &["policies", "max-steals(2)"],
        &["doctor"],
        &["completions", "bash"],
        &["man"],
        &["man", "--out", &pages],
        &["new", &project],
        &["fmt", "no/such/file.ptx"],
        &["run", "power-law", "--tiles", "20"],
        &["run", "gemm", "m=32", "n=32", "k=16"],
        &[
            "tune",
            "gemm",
            "m=32",
            "n=32",
            "k=32",
            "--limit",
            "2",
            "--device",
            "sim:h200",
            "--journal",
            &journal,
        ],
        &[
            "tune", "gemm", "m=32", "n=32", "k=32", "--device", "sim:h200", "--plan",
        ],
        &[
            "tune",
            "gemm",
            "m=32",
            "n=32",
            "k=32",
            "--device",
            "sim:h200",
            "--candidate",
            "",
        ],
        &["tuned"],
        &["tuned", "merge", &answered],
        &["tuned", "rows", &journal],
        &["evidence", "verify", "docs"],
        &["evidence", "verify", "bench/evidence/h200-gemm-4096"],
        &["tuned", "forget"],
        &[
            "share",
            "gemm",
            "m=256",
            "n=256",
            "k=256",
            "--device",
            "sim:b200",
            "--samples",
            "3",
            "--held",
            "0,8",
            "--trace",
            &page,
        ],
        &["selftest", "--device", "sim", "tests/ptx/float/add.ptx"],
        &[
            "qualify",
            "--device",
            "sim:b200",
            "--only",
            "files",
            "--only",
            "schedules",
            "--schedules",
            "2",
            "--files",
            "tests/ptx/float/add.ptx",
        ],
        &["explain", "R"],
        &["kernels", "gemm"],
        &["check", "crates/cli/tests/command_line/shown/build.log"],
        &["check", race, "--launches", race],
        &[
            "exec",
            race,
            "--grid",
            "1",
            "--block",
            "64",
            "--arg",
            "out:u32:64",
        ],
        &["run", "power-law", "--tiles", "20", "--timeout", "0.000001"],
        &["tuned", "merge", "no/such/file"],
        &["tuned", "rows", "no/such/file"],
        &["bench", "no-such-kernel"],
        &["no-such-command"],
        &["run", "power-law", "--policy", "no-such-policy"],
        &add,
    ] {
        answer(words);
    }
    // Words behind a program are its own, so the flag comes first. Nothing here is a runtime
    // library: the program never calls one.
    let words = ["--json", "cuda", "true"];
    let output = Command::new(env!("CARGO_BIN_EXE_heist"))
        .args(words)
        .env("HEIST_CUDART", env!("CARGO_BIN_EXE_heist"))
        .output()
        .expect("heist starts");
    held(&words, &output);
    let recorded = std::env::temp_dir().join(format!("heist-schema-{}.heist", std::process::id()));
    let recorded = recorded.display().to_string();
    let tells = r#"echo '{"kernel":"k","shape":"<<<(1,1,1), (1,1,1)>>>"}' > "$HEIST_RECORD_REPORT/report.jsonl"
        echo '{"recorded":{"kernel":"k","number":1,"stretches":0,"bytes":0,"status":0,"left_out":[]}}' >> "$HEIST_RECORD_REPORT/report.jsonl""#;
    let words = ["--json", "record", "-o", &recorded, "sh", "-c", tells];
    let output = Command::new(env!("CARGO_BIN_EXE_heist"))
        .args(words)
        .env("HEIST_RECORDER", c_library())
        .output()
        .expect("heist starts");
    held(&words, &output);
    let demo = answer(&["demo", "--device", "sim:l4", "--trace", &page]);
    assert_eq!(
        demo["runs"].as_array().map(Vec::len),
        demo["newcomer"].as_array().map(Vec::len)
    );
}

/// Only a GPU has times to measure: this is what `heist bench gemm m=512 n=512 k=512 --rounds 4` answered on an
/// H200.
#[test]
fn what_bench_answered_on_a_gpu_is_as_its_schema_says() {
    let answer: Value = serde_json::from_str(include_str!("bench.json")).expect("JSON");
    assert_eq!(wrong(&answer, &schema("bench.json"), "bench"), [""; 0]);
}

/// A schema that nothing is held against would be a promise that nobody keeps, and a command
/// without one would promise nothing.
#[test]
fn every_command_has_a_schema_and_every_schema_is_named_in_this_test() {
    let this = include_str!("schemas.rs");
    let files = std::fs::read_dir(root().join("docs/schemas")).expect("the folder");
    let names: BTreeSet<String> = files
        .flatten()
        .map(|file| file.file_name().to_string_lossy().into_owned())
        .filter_map(|name| name.strip_suffix(".json").map(str::to_owned))
        .collect();
    let help = Command::new(env!("CARGO_BIN_EXE_heist")).arg("-h").output();
    let help = String::from_utf8(help.expect("heist starts").stdout).expect("text");
    let commands = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let commands: Vec<&str> = commands
        .take_while(|line| !line.is_empty())
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| *name != "help")
        .collect();
    assert!(commands.len() > 20, "{help}");
    for command in commands {
        assert!(names.contains(command), "{command}");
    }
    let by_other_names = [
        "common",
        "error",
        "rules",
        "policy",
        "kernel-run",
        "tune-plan",
        "tune-rows",
    ];
    for name in names {
        let named = this.contains(&format!("\"{name}\""));
        assert!(named || by_other_names.contains(&name.as_str()), "{name}");
    }
}

/// The test's own judge must be able to say no.
#[test]
fn what_is_not_as_the_schema_says_is_found() {
    let schema = schema("error.json");
    let right = serde_json::json!({ "schema": "heist-error/1", "error": "no", "diagnostics": [] });
    assert_eq!(wrong(&right, &schema, "it"), [""; 0]);
    for (field, value) in [
        ("error", Value::Null),
        ("schema", "heist-error/2".into()),
        ("diagnostics", serde_json::json!([{ "code": 3 }])),
        ("more", true.into()),
    ] {
        let mut bent = right.clone();
        bent[field] = value;
        assert!(!wrong(&bent, &schema, "it").is_empty(), "{field}");
    }
    let mut short = right.clone();
    short.as_object_mut().expect("an object").remove("error");
    assert!(!wrong(&short, &schema, "it").is_empty());
}
