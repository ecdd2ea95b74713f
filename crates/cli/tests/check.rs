//! `heist check` from the command line: without a launch, and with one.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Exit status and all that was printed.
fn check(arguments: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_heist"))
        .arg("check")
        .args(arguments)
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."))
        .output()
        .unwrap();
    let text = [output.stdout, output.stderr].concat();
    (
        output.status.code(),
        String::from_utf8_lossy(&text).into_owned(),
    )
}

#[test]
fn a_launch_is_not_needed() {
    let (status, said) = check(&["cases/wmma-local/bad-trap.ptx"]);
    assert_eq!(status, Some(1), "{said}");
    assert!(said.contains("T013"), "{said}");
    let (status, said) = check(&["cases/wmma-local/good.ptx", "cases/cp-async/good.ptx"]);
    assert_eq!(status, Some(0), "{said}");
    assert_eq!(said.matches("a run finds more").count(), 1, "{said}");
}

#[test]
fn half_a_launch_is_a_bad_question() {
    let (status, said) = check(&["cases/wmma-local/good.ptx", "--grid", "1"]);
    assert_eq!(status, Some(2), "{said}");
    assert!(said.contains("--block"), "{said}");
    for part in [&["--chaos"][..], &["--arg", "u32:1"], &["--seed", "3"]] {
        let (status, said) = check(&[&["cases/wmma-local/good.ptx"], part].concat());
        assert_eq!(status, Some(2), "{said}");
        assert!(
            said.contains("--grid") && said.contains("heist check"),
            "{said}"
        );
    }
}

/// Of several files, one that can't be read hides nothing of the others.
#[test]
fn every_file_is_answered() {
    let bad = "cases/wmma-local/bad-trap.ptx";
    let (status, said) = check(&["no/such/file.ptx", bad]);
    assert_eq!(status, Some(2), "{said}");
    assert!(
        said.contains("T013") && said.contains("no/such/file.ptx"),
        "{said}"
    );
    let output = Command::new(env!("CARGO_BIN_EXE_heist"))
        .args(["check", "--json", bad, "no/such/file.ptx"])
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."))
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one value");
    assert_eq!(json["files"][0]["diagnostics"][0]["code"], "T013");
    assert_eq!(json["files"][1]["file"], "no/such/file.ptx");
    assert!(
        json["files"][1]["error"]
            .as_str()
            .is_some_and(|why| why.contains("can't read"))
    );
}

#[test]
fn a_log_can_t_be_launched() {
    let log = "bench/sanitizer/logs/M002-shared-out-of-bounds.bad.halo.memcheck.log";
    for more in [&["--grid", "1", "--block", "1"][..], &["--ptxas"]] {
        let (status, said) = check(&[&[log], more].concat());
        assert_eq!(status, Some(2), "{said}");
        assert!(said.contains("is a log"), "{said}");
    }
}

#[test]
fn a_launch_past_48_kib_is_told_of_the_opt_in() {
    let launch = "--grid 1 --block 64 --device sim:l4 --arg in:f16:[1*4096] --arg out:f32:4096";
    let mut arguments = vec!["cases/shared-limit/dynamic.ptx", "--smem", "57376"];
    arguments.extend(launch.split(' '));
    let (status, said) = check(&arguments);
    // Only the host's code can say whether it is there: told, and no reason to fail.
    assert_eq!(status, Some(0), "{said}");
    assert!(said.contains("warning[X011]"), "{said}");
}

/// The kernel of one report, in its three broken forms and mended, with the launch that it had.
#[test]
fn a_run_and_the_rules_say_each_thing_once() {
    let launch = "--grid 1 --block 128 --smem 64000 --arg in:f16:rand(1,4096) --arg in:f16:rand(2,4096) \
                  --arg in:f16:rand(3,4096) --arg out:f32:4096 --arg u32:2 --json";
    for (file, codes) in [
        ("bad-no-wait", &["A001", "A003", "X011"][..]),
        ("bad-no-commit", &["A001", "A002", "X011"][..]),
        ("bad-stride", &["M007", "M010", "T009", "X011"][..]),
        ("good", &["X011"][..]),
    ] {
        let path = format!("cases/cp-async/{file}.ptx");
        let mut arguments = vec![path.as_str()];
        arguments.extend(launch.split_whitespace());
        let (status, said) = check(&arguments);
        let expected = if codes == ["X011"] { 0 } else { 1 };
        assert_eq!(status, Some(expected), "{said}");
        let json: serde_json::Value = serde_json::from_str(&said).expect("JSON");
        let found: Vec<(String, u64)> = json["files"][0]["diagnostics"]
            .as_array()
            .expect("findings")
            .iter()
            .map(|one| {
                let code = one["code"].as_str().unwrap_or_default().to_owned();
                (code, one["line"].as_u64().unwrap_or_default())
            })
            .collect();
        let places: BTreeSet<_> = found.iter().collect();
        assert_eq!(
            places.len(),
            found.len(),
            "{file} repeats itself: {found:?}"
        );
        let named: BTreeSet<&str> = found.iter().map(|(code, _)| code.as_str()).collect();
        assert_eq!(Vec::from_iter(named), codes, "{file}");
    }
}

/// A kernel with a source beside it, which starts from a register that nobody set.
fn with_source(test: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(test);
    fs::create_dir_all(&folder).unwrap();
    fs::write(
        folder.join("sum.cu"),
        "__global__ void sum(float* out) {\n  extern __shared__ float s[];\n  *out = s[threadIdx.x];\n}\n",
    )
    .unwrap();
    let ptx = folder.join("sum.ptx");
    fs::write(
        &ptx,
        ".version 8.0\n.target sm_90\n.address_size 64\n.file 1 \"/somewhere/else/sum.cu\"\n\
         .visible .entry sum(.param .u64 out)\n{\n    .reg .u64 at;\n    .reg .u32 v;\n    .shared .align 4 .b8 s[4];\n    \
         .loc 1 3 3\n    ld.shared.u32 v, [s];\n    ld.param.u64 at, [out];\n    st.global.u32 [at], v;\n    ret;\n}\n",
    )
    .unwrap();
    ptx
}

#[test]
fn the_source_line_is_shown_where_the_source_is() {
    let ptx = with_source("source");
    let ptx = ptx.to_str().unwrap();
    let launch = ["--grid", "1", "--block", "1", "--arg", "out:u32:1"];
    let (status, said) = check(&[&[ptx][..], &launch[..]].concat());
    assert_eq!(status, Some(1), "{said}");
    assert!(said.contains("M010"), "{said}");
    let line = "source line /somewhere/else/sum.cu:3:3: `*out = s[threadIdx.x];`";
    assert_eq!(said.matches("source line").count(), 1, "{said}");
    assert!(said.contains(line), "{said}");
}

#[test]
fn ptxas_gives_figures_where_it_is() {
    let ptx = with_source("figures");
    let (status, said) = check(&[ptx.to_str().unwrap(), "--ptxas", "--json"]);
    if heist_oracle::Ptxas::find_or_say_skipped().is_none() {
        assert_eq!(status, Some(2), "{said}");
        assert!(said.contains("HEIST_PTXAS"), "{said}");
        return;
    }
    assert_eq!(status, Some(0), "{said}");
    let json: serde_json::Value = serde_json::from_str(&said).expect("JSON");
    assert_eq!(json["files"][0]["usage"][0]["kernel"], "sum");
    assert!(
        json["files"][0]["usage"][0]["registers"]
            .as_u64()
            .is_some_and(|n| n > 0),
        "{said}"
    );
    assert_eq!(json["files"][0]["usage"][0]["shared"], 4);
}

/// Whatever people have: each kind of log, and what is none.
#[test]
fn a_log_is_recognised_for_what_it_is() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("kinds");
    fs::create_dir_all(&folder).unwrap();
    let sanitizer = "bench/sanitizer/logs/M002-shared-out-of-bounds.bad.halo.memcheck.log";
    let (status, said) = check(&[sanitizer]);
    assert_eq!(status, Some(1), "{said}");
    assert!(
        said.contains("G030") && said.contains("2 reports"),
        "{said}"
    );
    for (name, text, status, says) in [
        (
            "build.log",
            "ptxas info    : Compiling entry function 'k' for 'sm_90'\nptxas info    : Function properties for k\n    \
             0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\nptxas info    : Used 8 registers\n",
            0,
            "nothing found",
        ),
        (
            "spills.log",
            "ptxas info    : Compiling entry function 'k' for 'sm_90'\nptxas info    : Function properties for k\n    \
             64 bytes stack frame, 24 bytes spill stores, 48 bytes spill loads\nptxas info    : Used 255 registers\n",
            1,
            "G020",
        ),
        (
            "jit.log",
            "ptxas application ptx input, line 9; error   : Arguments mismatch for instruction 'add'\n\
             ptxas fatal   : Ptx assembly aborted due to errors\n",
            1,
            "G022",
        ),
        (
            "run.log",
            "step 12\nRuntimeError: CUDA error: an illegal memory access was encountered\n",
            1,
            "G004",
        ),
        ("notes.txt", "buy milk\n", 2, "neither PTX"),
    ] {
        let path = folder.join(name);
        fs::write(&path, text).unwrap();
        let (got, said) = check(&[path.to_str().unwrap()]);
        assert_eq!(got, Some(status), "{name}: {said}");
        assert!(said.contains(says), "{name}: {said}");
    }
    assert_eq!(check(&["no/such/file.ptx"]).0, Some(2));
}

/// The same mistake at two places is two findings, however many launches find each.
#[test]
fn launches_of_a_file_find_each_place_once() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("places");
    fs::create_dir_all(&folder).unwrap();
    let run = |entry: &str| {
        format!("// heist: run {entry} entry={entry} grid=1 block=1\n// heist: arg out:u32:1\n")
    };
    let kernel = |entry: &str| {
        format!(
            ".visible .entry {entry}(.param .u64 p)\n{{\n.reg .u32 v;\n.reg .u64 d;\nld.param.u64 d, [p];\n\
             div.u32 v, 1, 0;\nst.global.u32 [d], v;\nret;\n}}\n"
        )
    };
    let text = [
        ".version 8.0\n.target sm_90\n.address_size 64\n".to_owned(),
        run("one"),
        run("one").replace("run one", "run again"),
        run("two"),
        kernel("one"),
        kernel("two"),
    ];
    let file = folder.join("places.ptx");
    fs::write(&file, text.concat()).unwrap();
    let file = file.to_str().unwrap();
    let (status, said) = check(&[file, "--launches", file]);
    assert_eq!(status, Some(1), "{said}");
    assert!(said.contains("3 launches were run"), "{said}");
    // At the second place "the same here" points at it.
    assert!(said.contains("the same at one more place"), "{said}");
}

#[test]
fn sarif_is_one_document_with_json_asked_for_too() {
    let (status, said) = check(&["cases/wmma-local/bad-trap.ptx", "--sarif", "--json"]);
    assert_eq!(status, Some(1), "{said}");
    let document: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!(document["version"], "2.1.0");
}

#[test]
fn launches_may_stand_in_a_file() {
    let bad = "cases/tensor-map-workspace/bad.ptx";
    let (status, said) = check(&[bad, "--launches", bad]);
    assert_eq!(status, Some(1), "{said}");
    assert!(said.contains("M001"), "{said}");
    let good = "rules/M001-global-out-of-bounds/good.ptx";
    let (status, said) = check(&[good, "--launches", good]);
    assert_eq!(status, Some(0), "{said}");
    assert!(said.contains("one launch was run"), "{said}");
    assert!(!said.contains("compared"), "{said}");
    // What is not looked at is said.
    let expects = "rules/M018-peer-rank/good-no-cluster.ptx";
    let (status, said) = check(&[expects, "--launches", expects]);
    assert_eq!(status, Some(0), "{said}");
    assert!(
        said.contains("not compared") && said.contains("heist selftest"),
        "{said}"
    );
    let (status, said) = check(&[bad, "--launches", "cases/wmma-local/bad-trap.ptx"]);
    assert_eq!(status, Some(2), "{said}");
    assert!(said.contains("// heist: run"), "{said}");
    let (status, said) = check(&[bad, "--launches", bad, "--grid", "1", "--block", "1"]);
    assert_eq!(status, Some(2), "{said}");
}

/// A mistake that not every schedule shows, with as many schedules as the file says.
#[test]
fn a_file_says_how_many_schedules() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("schedules");
    fs::create_dir_all(&folder).unwrap();
    let file = folder.join("refused.ptx");
    // It reads past the end at certain times, and the schedule decides when it is.
    let text = |explore: &str| {
        format!(
            ".version 8.7\n.target sm_100a\n.address_size 64\n\
             // heist: run some grid=1 block=1 chaos seed=0 explore={explore}\n\
             // heist: arg in:u32:[7]\n\
             .visible .entry k(.param .u64 data)\n{{\n    .reg .b64 %a, %t;\n    .reg .b32 %v;\n    .reg .pred %p;\n    \
             ld.param.u64 %a, [data];\n    mov.u64 %t, %globaltimer;\n    and.b64 %t, %t, 7;\n    \
             setp.eq.u64 %p, %t, 5;\n    @%p add.u64 %a, %a, 64;\n    ld.global.u32 %v, [%a];\n    ret;\n}}\n"
        )
    };
    let status = |explore: &str| {
        fs::write(&file, text(explore)).unwrap();
        let name = file.to_str().unwrap();
        check(&[name, "--launches", name])
    };
    let (one, said) = status("1");
    assert_eq!(one, Some(0), "{said}");
    let (many, said) = status("200");
    assert_eq!(many, Some(1), "{said}");
    assert!(said.contains("M001"), "{said}");
    // What the command line says goes before what the file says.
    status("1");
    let name = file.to_str().unwrap();
    let (many, said) = check(&[name, "--launches", name, "--explore", "200"]);
    assert_eq!(many, Some(1), "{said}");
    assert!(said.contains("M001"), "{said}");
    let more = ["--timeout", "30", "--seed", "0", "--chaos"];
    let (one, said) = check(&[&[name, "--launches", name][..], &more].concat());
    assert_eq!(one, Some(0), "{said}");
    let (other, said) = check(&[name, "--launches", name, "--device", "sim:l4"]);
    assert_eq!(other, Some(2), "{said}");
    assert!(said.contains("sm_100a"), "{said}");
}

/// A schedule in which something is found can be run again.
#[test]
fn the_schedule_is_told() {
    let launch = "--grid 2 --block 1 --explore 3 --arg inout:u32:[0]";
    let race = "rules/R002-global-race/bad-sum.ptx";
    let mut arguments = vec![race];
    arguments.extend(launch.split(' '));
    let (status, said) = check(&arguments);
    assert_eq!(status, Some(1), "{said}");
    assert!(said.contains("(modelled) on sim:h200"), "{said}");
    let good = "rules/R002-global-race/good-sum.ptx";
    arguments[0] = good;
    let (status, said) = check(&arguments);
    assert_eq!(status, Some(0), "{said}");
    assert!(said.contains("3 schedules ran clean"), "{said}");
}

/// A file in a folder of the test.
fn written(test: &str, text: &str) -> String {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(test);
    fs::create_dir_all(&folder).unwrap();
    let file = folder.join("k.ptx");
    fs::write(&file, text).unwrap();
    file.display().to_string()
}

const HEAD: &str = ".version 8.0\n.target sm_80\n.address_size 64\n";

#[test]
fn findings_of_other_kernels_are_left_out() {
    let text = format!(
        "{HEAD}.visible .entry _Z5unsetPj(.param .u64 out)\n{{\n    .reg .u64 a;\n    .reg .u32 v;\n    \
         ld.param.u64 a, [out];\n    st.global.u32 [a], v;\n    ret;\n}}\n\
         .visible .entry fine()\n{{\n    ret;\n}}\n"
    );
    let file = written("entries", &text);
    let (status, said) = check(&[&file]);
    assert_eq!(status, Some(1), "{said}");
    let (status, said) = check(&[&file, "--entry", "fine"]);
    assert_eq!(status, Some(0), "{said}");
    let launch = ["--grid", "1", "--block", "1"];
    let (status, said) = check(&[&[&*file, "--entry", "fine"], &launch[..]].concat());
    assert_eq!(status, Some(0), "{said}");
    // And the kernel itself is not, by whichever of its names.
    for name in ["_Z5unsetPj", "unset(unsigned int*)", "unset"] {
        let (status, said) = check(&[&file, "--entry", name]);
        assert_eq!(status, Some(1), "{name}: {said}");
    }
    let (status, said) = check(&[&file, "--entry", "other"]);
    assert_eq!(status, Some(2), "{said}");
}

/// Threads past the end leave before a barrier, which may be wrong, and is not with a
/// block that is full.
#[test]
fn what_a_run_refutes_is_no_finding() {
    let text = format!(
        "{HEAD}.visible .entry k(.param .u32 n)\n{{\n    .reg .u32 i, n;\n    .reg .pred past;\n    \
         ld.param.u32 n, [n];\n    mov.u32 i, %tid.x;\n    setp.ge.u32 past, i, n;\n    \
         @past bra END;\n    bar.sync 0;\nEND:\n    ret;\n}}\n"
    )
    .replace("[n]", "[k_n]")
    .replace(".param .u32 n", ".param .u32 k_n");
    let file = written("refuted", &text);
    let (status, said) = check(&[&file]);
    assert_eq!(status, Some(1), "{said}");
    assert!(said.contains(" may "), "{said}");
    let launch = ["--grid", "1", "--block", "64", "--arg", "u32:64"];
    let (status, said) = check(&[&[&*file], &launch[..]].concat());
    assert_eq!(status, Some(0), "{said}");
    assert!(said.contains("only possible, and not so"), "{said}");
}

#[test]
fn ptxas_spills_fail_a_check_as_its_log_does() {
    if heist_oracle::Ptxas::find_or_say_skipped().is_none() {
        return;
    }
    let mut text = format!(
        "{HEAD}.visible .entry spills(.param .u64 data)\n.maxnreg 24\n{{\n    .reg .u64 a;\n    .reg .u32 v<64>;\n    \
         ld.param.u64 a, [data];\n"
    );
    for i in 0..64 {
        text += &format!("    ld.volatile.global.u32 v{i}, [a+{}];\n", 4 * i);
    }
    for i in (0..64).rev() {
        text += &format!("    st.volatile.global.u32 [a+{}], v{i};\n", 4 * (63 - i));
    }
    let file = written("spills", &(text + "    ret;\n}\n"));
    let (status, said) = check(&[&file]);
    assert_eq!(status, Some(0), "{said}");
    let (status, said) = check(&[&file, "--ptxas"]);
    assert_eq!(status, Some(1), "{said}");
    assert!(said.contains("G020") && said.contains("spills"), "{said}");
}

/// Two threads that store the same value: a race by the book, told when asked for.
#[test]
fn stores_of_the_same_value_are_told_when_asked_for() {
    let text = format!(
        "{HEAD}.visible .entry k(.param .u64 p)\n{{\n    .reg .b64 %a;\n    ld.param.u64 %a, [p];\n    \
         st.global.u32 [%a], 1;\n    ret;\n}}\n"
    );
    let file = written("same-value", &text);
    let launch = ["--grid", "1", "--block", "64", "--arg", "out:u32:1"];
    let (status, said) = check(&[&[&*file][..], &launch].concat());
    assert_eq!(status, Some(0), "{said}");
    let (status, said) = check(&[&[&*file, "--same-value"][..], &launch].concat());
    assert_eq!(status, Some(1), "{said}");
    assert!(said.contains("[R"), "{said}");
}

#[test]
fn a_run_says_how_many_granted_tiles_were_dropped() {
    let file = "rules/L013-grant-dropped/bad-limit.ptx";
    let (status, told) = check(&[file, "--launches", file]);
    assert_eq!(status, Some(1), "{told}");
    assert!(told.contains("error[L013]"), "{told}");
    // Each block that steals runs one of the two tiles that it is granted.
    assert!(
        told.contains("1 of 2 granted clusters are dropped here"),
        "{told}"
    );
    assert!(told.contains("more times at this place"), "{told}");
}

/// Without a launch, too, the limit is for reading and for the rules.
#[test]
fn a_limit_of_time_is_for_reading_too() {
    let file = written(
        "limit-of-reading",
        &format!("{HEAD}.visible .entry k() {{ ret; }}"),
    );
    let (status, said) = check(&[&*file, "--timeout", "0.000000001"]);
    assert_eq!(status, Some(1), "{said}");
    assert!(said.contains("X002") && said.contains("reading"), "{said}");
    let (status, said) = check(&[&*file, "--timeout", "3600"]);
    assert_eq!(status, Some(0), "{said}");
}

/// The limit is for all launches of a file: what is left when the first has used it up is nothing.
#[test]
fn one_limit_is_for_all_launches_of_a_file() {
    let endless = "\
.visible .entry k()\n{\n    .reg .u64 %t;\nloop:\n    mov.u64 %t, %clock64;\n    bra loop;\n}\n\
.visible .entry quick()\n{\n    ret;\n}\n\
// heist: run first entry=k grid=1 block=32\n\
// heist: run second entry=quick grid=1 block=32\n";
    let file = written("one-limit", &format!("{HEAD}{endless}"));
    let (status, said) = check(&[&*file, "--launches", &*file, "--timeout", "0.2"]);
    assert_eq!(status, Some(1), "{said}");
    assert!(said.contains("X002"), "{said}");
}

/// The step of the ready-made action that checks a repository, as a forge runs it.
#[test]
fn the_action_writes_a_report_and_tells_where_no_file_matches() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let action = fs::read_to_string(root.join(".github/actions/heist-check/action.yml")).unwrap();
    let (_, step) = action.split_once("- name: Check\n").expect("the step");
    let (_, step) = step.split_once("run: |\n").expect("its lines");
    let lines = step.lines().take_while(|line| line.starts_with("        "));
    let script = lines.map(str::trim_start).collect::<Vec<_>>().join("\n");
    let repository = Path::new(env!("CARGO_TARGET_TMPDIR")).join("action");
    let _ = fs::remove_dir_all(&repository);
    fs::create_dir_all(repository.join("kernels/deep")).unwrap();
    let broken = root.join("cases/cp-async/bad-no-wait.ptx");
    fs::copy(broken, repository.join("kernels/deep/a.ptx")).unwrap();
    let program = Path::new(env!("CARGO_BIN_EXE_heist")).parent().unwrap();
    let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap());
    let run = |files: &str| {
        let ran = Command::new("bash")
            .args(["--noprofile", "--norc", "-eo", "pipefail", "-c", &script])
            .current_dir(&repository)
            .env("PATH", &path)
            .env("GITHUB_OUTPUT", repository.join("said"))
            .envs([("FILES", files), ("ARGUMENTS", "")])
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&ran.stdout).into_owned();
        (ran.status.success(), said)
    };
    assert_eq!(run("**/*.ptx"), (true, String::new()));
    let said = fs::read_to_string(repository.join("said")).unwrap();
    assert_eq!(said, "status=1\n");
    let report = fs::read(repository.join("heist.sarif")).unwrap();
    let report: serde_json::Value = serde_json::from_slice(&report).unwrap();
    let place = &report["runs"][0]["results"][0]["locations"][0]["physicalLocation"];
    assert_eq!(place["artifactLocation"]["uri"], "kernels/deep/a.ptx");
    let (taken, said) = run("no/such/*.ptx");
    assert!(
        !taken && said.contains("no file matches 'no/such/*.ptx'"),
        "{said}"
    );
}
