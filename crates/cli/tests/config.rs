//! `heist.toml`: flags that are always given.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A project with a configuration file, and a folder in it.
fn project(test: &str, config: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join("config")
        .join(test);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(folder.join("kernels")).unwrap();
    fs::write(folder.join("heist.toml"), config).unwrap();
    folder
}

fn heist(folder: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_heist"));
    command.args(args).current_dir(folder).output().unwrap()
}

fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// What is said about a wrong file, which ends with status 2.
fn refused(test: &str, config: &str) -> String {
    let output = heist(&project(test, config), &["policies"]);
    assert_eq!(output.status.code(), Some(2), "{}", out(&output));
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn device(folder: &Path, more: &[&str]) -> String {
    let args = [&["run", "uniform", "--tiles", "20", "--json"], more].concat();
    let output = heist(folder, &args);
    let answer: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    answer["device"].as_str().unwrap().to_owned()
}

#[test]
fn a_file_says_flags_and_the_command_line_wins() {
    let folder = project("wins", "device = \"sim:h200\"\n");
    assert_eq!(device(&folder, &[]), "sim:h200");
    // From a folder below as well.
    assert_eq!(device(&folder.join("kernels"), &[]), "sim:h200");
    assert_eq!(device(&folder, &["--device", "sim:a100"]), "sim:a100");
    assert_eq!(device(&folder, &["--config", "none"]), "sim:b200");
    fs::write(folder.join("other.toml"), "[run]\ndevice = \"sim:l4\"\n").unwrap();
    assert_eq!(device(&folder, &["--config", "other.toml"]), "sim:l4");
    assert_eq!(device(&folder, &["--config=other.toml"]), "sim:l4");
}

#[test]
fn a_section_is_for_one_command_and_wins_over_the_top() {
    let folder = project(
        "section",
        "device = \"sim:h200\"\n[run]\ndevice = \"sim:l4\"\n",
    );
    assert_eq!(device(&folder, &[]), "sim:l4");
    let others = project("others", "[tune]\ndevice = \"sim:l4\"\n");
    assert_eq!(device(&others, &[]), "sim:b200");
}

#[test]
fn a_switch_is_turned_on_by_the_file_and_off_by_the_command_line() {
    let folder = project("switch", "[check]\nsarif = true\n");
    let ptx = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../cases/cp-async/good.ptx");
    let ptx = ptx.to_str().unwrap();
    assert!(out(&heist(&folder, &["check", ptx])).contains("\"runs\""));
    assert!(out(&heist(&folder, &["check", ptx, "--sarif"])).contains("\"runs\""));
    assert!(!out(&heist(&folder, &["check", ptx, "--sarif=false"])).contains("\"runs\""));
}

#[test]
fn a_flag_of_a_launch_does_not_make_one() {
    // `heist check` takes --seed only with a launch; the file's seed is for when there is one.
    let folder = project("launch", "seed = 7\n[check]\nexplore = 3\nchaos = true\n");
    let ptx = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../cases/cp-async/good.ptx");
    let output = heist(&folder, &["check", ptx.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(out(&output).contains("a run finds more"), "{output:?}");
    let good = "../../rules/A001-cp-async-early/good.ptx";
    let good = Path::new(env!("CARGO_MANIFEST_DIR")).join(good);
    let good = good.to_str().unwrap();
    let launched = heist(&folder, &["check", good, "--launches", good]);
    assert_eq!(launched.status.code(), Some(0), "{launched:?}");
}

#[test]
fn a_flag_that_excludes_the_files_one_is_taken() {
    // A policy that is none: a run that takes it from the file fails.
    let folder = project("excludes", "[run]\npolicy = \"no-such-policy\"\n");
    let run = |more: &[&str]| {
        let words = [
            "run", "gemm", "m=64", "n=64", "k=64", "--device", "sim:h200",
        ];
        heist(&folder, &[&words, more].concat())
    };
    assert_eq!(run(&[]).status.code(), Some(2));
    let candidate = run(&["--candidate", "rows=64 cols=64 depth=64 stages=4"]);
    assert_eq!(candidate.status.code(), Some(0), "{candidate:?}");
}

#[test]
fn doctor_tells_which_file_holds() {
    let folder = project("doctor", "color = \"never\"\n");
    let answer = heist(&folder.join("kernels"), &["doctor", "--json"]);
    let answer: serde_json::Value = serde_json::from_slice(&answer.stdout).unwrap();
    let file = folder.join("heist.toml").canonicalize().unwrap();
    let told = Path::new(answer["config"].as_str().unwrap()).canonicalize();
    assert_eq!(told.unwrap(), file);
    let none = heist(&folder, &["doctor", "--config", "none"]);
    assert!(out(&none).contains("no heist.toml"), "{}", out(&none));
}

#[test]
fn what_is_wrong_is_told_with_its_line_and_a_remedy() {
    let told = refused("key", "\n\ntimeuot = 3\n");
    assert!(
        told.contains("heist.toml:3: no command has a flag `--timeuot`"),
        "{told}"
    );
    assert!(told.contains("timeout"), "{told}");
    let told = refused("command", "[chekc]\nseed = 1\n");
    assert!(
        told.contains("heist.toml:1: there is no command `chekc`"),
        "{told}"
    );
    assert!(told.contains("check"), "{told}");
    let told = refused("in-section", "[check]\nseed = 1\npolicy = \"never\"\n");
    assert!(
        told.contains("heist.toml:3: `heist check` has no flag `--policy`"),
        "{told}"
    );
    assert!(told.contains("explore"), "{told}");
    let told = refused("value", "[run]\n\ndevice = \"sim:h300\"\n");
    assert!(
        told.contains("heist.toml:3: invalid value 'sim:h300' for '--device"),
        "{told}"
    );
    assert!(told.contains("heist run --help"), "{told}");
    let told = refused("number", "timeout = -3\n");
    assert!(told.contains("heist.toml:1: invalid value '-3'"), "{told}");
    let told = refused("choice", "color = \"mauve\"\n");
    assert!(told.contains("one of auto, always, never"), "{told}");
    let told = refused("switch-value", "[run]\nchaos = \"yes\"\n");
    assert!(
        told.contains("heist.toml:2: `chaos` is true or false"),
        "{told}"
    );
    let told = refused("many", "[run]\nseed = [1, 2]\n");
    assert!(told.contains("takes one value, not 2"), "{told}");
    let told = refused("kind", "[run]\nseed = 2026-11-16\n");
    assert!(told.contains("heist.toml:2: `seed` is a text"), "{told}");
    let told = refused("toml", "device = \n");
    assert!(told.contains("heist.toml:1: this is not TOML"), "{told}");
    let told = refused("one-launch", "[check]\ngrid = \"8\"\n");
    assert!(
        told.contains("no flag `--grid` that a file can set"),
        "{told}"
    );
    let told = refused("shape", "json = true\n");
    assert!(
        told.contains("no command has a flag `--json` that a file can set"),
        "{told}"
    );
    let folder = project("absent", "");
    let output = heist(&folder, &["policies", "--config", "absent.toml"]);
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        told.contains("can't read absent.toml, the configuration file"),
        "{told}"
    );
}

#[test]
fn help_is_there_also_where_the_file_is_wrong() {
    let folder = project("help", "nonsense = 1\n");
    for words in [&["--help"][..], &["check", "--help"], &["--version"]] {
        let output = heist(&folder, words);
        assert_eq!(output.status.code(), Some(0), "{words:?}");
    }
    let output = heist(&folder, &["policies", "--json"]);
    let answer: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(answer["schema"], "heist-error/1");
    assert!(answer["error"].as_str().unwrap().contains("heist.toml:1:"));
}
