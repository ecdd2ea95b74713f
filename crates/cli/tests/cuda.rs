//! `heist cuda` around programs that tell what the stand-in for the runtime would tell.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Any library serves to be loaded in front of a program that never calls it.
fn library() -> PathBuf {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("this process's memory");
    let mut paths = maps
        .lines()
        .filter_map(|line| line.split_whitespace().nth(5));
    let libc = paths.find(|path| path.contains("libc.so") || path.contains("libc-"));
    PathBuf::from(libc.expect("a C library"))
}

fn heist(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_heist"))
        .args(words)
        .env("HEIST_CUDART", library())
        .output()
        .expect("heist runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A program that reports one launch with one finding in a kernel of two instructions.
const REPORTING: &str = r#"
cat > "$HEIST_CUDA_REPORT/1-module0.ptx" <<'PTX'
.version 8.0
.target sm_90
.address_size 64
.visible .entry _Z4fillPi(.param .u64 x) {
.reg .b64 %rd<2>;
ld.param.u64 %rd1, [x];
ret;
}
PTX
cat > "$HEIST_CUDA_REPORT/report.jsonl" <<JSON
{"kernel":"_Z4fillPi","shape":"<<<(1,1,1), (128,1,1)>>>","module":"$HEIST_CUDA_REPORT/1-module0.ptx","ns":1.0,"host":["main at fill.cu:5:3"],"found":[{"code":"M001","warning":false,"message":"writes 4 bytes outside","span":[103,125],"label":"","others":[],"notes":[],"helps":["check the index"]}]}
{"remark":"cudaGraphCreate is not there: it returned cudaErrorNotSupported (801)"}
{"leaked":[2,800]}
JSON
exit 5"#;

#[test]
fn the_status_is_the_programs_own_unless_something_is_found() {
    let ended = heist(&["cuda", "--", "sh", "-c", "echo $HEIST_CUDA_DEVICE; exit 7"]);
    assert_eq!(
        (ended.status.code(), text(&ended.stdout)),
        (Some(7), "sim:h200\n".to_owned())
    );
    assert!(text(&ended.stderr).contains("0 launches, 0 errors"));
    let ended = heist(&["cuda", "--device", "a100", "sh", "-c", REPORTING]);
    assert_eq!(ended.status.code(), Some(1));
    let told = text(&ended.stderr);
    for part in [
        "in `fill(int*)` <<<(1,1,1), (128,1,1)>>>:",
        "error[M001]: writes 4 bytes outside",
        "ld.param.u64 %rd1, [x];",
        "main at fill.cu:5:3",
        "cudaGraphCreate is not there",
        "2 allocations of 800 bytes were never given back",
        "1 launch, 1 error, 0 warnings",
    ] {
        assert!(told.contains(part), "{part}: {told}");
    }
    let ended = heist(&["cuda", "--error-exitcode", "33", "sh", "-c", REPORTING]);
    assert_eq!(ended.status.code(), Some(33));
}

#[test]
fn launches_that_repeat_another_are_counted() {
    let line = |repeated: bool| {
        format!(
            r#"{{"kernel":"k","shape":"","module":"","ns":1.0,"repeated":{repeated},"host":[],"found":[]}}"#
        )
    };
    let script = format!(
        "printf '%s\\n' '{}' '{}' > \"$HEIST_CUDA_REPORT/report.jsonl\"",
        line(false),
        line(true)
    );
    let ended = heist(&["cuda", "--", "sh", "-c", &script]);
    let told = text(&ended.stderr);
    let said = "2 launches (1 the same as an earlier one, and taken from it), 0 errors";
    assert!(told.contains(said), "{told}");
}

#[test]
fn a_finding_of_several_launches_is_told_once_with_their_number() {
    let line = |kernel: &str, message: &str| {
        format!(
            r#"{{"kernel":"{kernel}","shape":"","module":"","ns":1.0,"host":[],"found":[{{"code":"M001","message":"{message}"}}]}}"#
        )
    };
    let lines = [
        line("k", "a"),
        line("k", "b"),
        line("k", "a"),
        line("other", "a"),
        line("k", "a"),
    ];
    let script = format!(
        "printf '%s\\n' '{}' > \"$HEIST_CUDA_REPORT/report.jsonl\"",
        lines.join("' '")
    );
    let ended = heist(&["cuda", "--", "sh", "-c", &script]);
    let told = text(&ended.stderr);
    assert!(told.contains("5 launches, 3 errors"), "{told}");
    assert_eq!(told.matches("error[M001]: a").count(), 2, "{told}");
    assert_eq!(told.matches("later launch").count(), 1, "{told}");
    let said = "and in 2 later launches of this kernel";
    assert!(told.contains(said), "{told}");
}

#[test]
fn findings_are_there_for_machines_too() {
    let sarif = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cuda.sarif");
    let path = sarif.display().to_string();
    let ended = heist(&["--json", "cuda", "--sarif", &path, "sh", "-c", REPORTING]);
    let answer: serde_json::Value = serde_json::from_slice(&ended.stdout).expect("JSON");
    assert_eq!(answer["launches"], 1);
    assert_eq!(answer["found"][0]["found"][0]["code"], "M001");
    let written: serde_json::Value =
        serde_json::from_slice(&std::fs::read(sarif).expect("a file")).expect("JSON");
    assert_eq!(written["runs"][0]["results"][0]["ruleId"], "M001");
}

#[test]
fn what_cannot_be_run_is_told() {
    let ended = heist(&["cuda", "./no-such-program"]);
    assert_eq!(ended.status.code(), Some(2));
    assert!(text(&ended.stderr).contains("no-such-program"));
    let ended = Command::new(env!("CARGO_BIN_EXE_heist"))
        .args(["cuda", "true"])
        .env("HEIST_CUDART", "/no/such/library.so")
        .output()
        .expect("heist runs");
    assert_eq!(ended.status.code(), Some(2));
    assert!(text(&ended.stderr).contains("/no/such/library.so"));
    let ended = heist(&["cuda", "--device", "gpu", "true"]);
    assert!(text(&ended.stderr).contains("without Heist"));
}
