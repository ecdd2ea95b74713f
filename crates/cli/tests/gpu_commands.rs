//! The commands that use a GPU: without a driver, where they must explain
//! themselves and exit with 2, and with the GPU crate's stand-in for one.

#![cfg(target_os = "linux")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A folder with a stand-in for the driver, built once for each test.
fn stand_in(test: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(test);
    std::fs::create_dir_all(&folder).unwrap();
    let built = Command::new("cc")
        .args(["-shared", "-fPIC", "-w", "-o"])
        .arg(folder.join("libcuda.so.1"))
        .arg(root().join("crates/gpu/tests/driver/libcuda.c"))
        .status()
        .expect("cc, which links Rust programs too");
    assert!(built.success(), "the stand-in does not compile");
    folder
}

/// An empty folder for the loader to look in: any real driver is hidden as far as
/// the environment can.
fn heist(libraries: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_heist"))
        .args(args)
        .current_dir(root())
        .env("LD_LIBRARY_PATH", libraries)
        .env("CUDA_VISIBLE_DEVICES", "")
        .output()
        .unwrap()
}

fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

const KERNELS: &str = "crates/gpu/tests/hardware/kernels.ptx";

#[test]
fn without_a_gpu_every_command_explains_itself() {
    let nowhere = Path::new("/nonexistent");
    let exec = [
        "exec",
        KERNELS,
        "--device",
        "gpu",
        "--entry",
        "store_far",
        "--grid",
        "1",
        "--block",
        "1",
        "--arg",
        "out:u32:1",
    ];
    let selftest = ["selftest", "--device", "gpu", "tests/ptx/float"];
    let workload = ["run", "power-law", "--device", "gpu"];
    let kernel = ["run", "gemm", "--device", "gpu"];
    let bench = ["bench", "gemm"];
    let qualify = ["qualify"];
    for args in [
        &qualify[..],
        &exec[..],
        &selftest[..],
        &workload[..],
        &kernel[..],
        &bench[..],
    ] {
        let output = heist(nowhere, args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        let text = err(&output);
        assert!(text.contains("NVIDIA driver"), "{text}");
        assert!(text.contains("sim:"), "{text}");
        assert!(!text.contains("panicked"), "{text}");
    }
    let doctor = heist(nowhere, &["doctor"]);
    assert_eq!(doctor.status.code(), Some(0));
    assert!(out(&doctor).contains("sim:h200"));
    let json: serde_json::Value =
        serde_json::from_slice(&heist(nowhere, &["doctor", "--json"]).stdout).unwrap();
    assert!(json["gpu_problem"].is_string());
}

#[test]
fn exec_runs_and_prints() {
    let driver = stand_in("exec");
    let run = |more: &[&str]| {
        let mut args = vec!["exec", KERNELS, "--device", "gpu", "--grid", "1"];
        args.extend(more);
        heist(&driver, &args)
    };
    let output = run(&[
        "--entry",
        "add_one",
        "--block",
        "4",
        "--arg",
        "inout:u32:[1,2,3,4]",
        "--arg",
        "u32:3",
    ]);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    assert_eq!(out(&output), "0: u32:[2, 3, 4, 4]\n");
    let saved = driver.join("out.bin");
    let save = format!("0={}", saved.display());
    let output = run(&[
        "--entry",
        "add_one",
        "--block",
        "4",
        "--arg",
        "inout:u8:[255,0,0,0]",
        "--arg",
        "u32:1",
        "--json",
        "--save",
        &save,
    ]);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        json["outputs"][0]["values"],
        serde_json::json!(["0", "1", "0", "0"])
    );
    assert_eq!(std::fs::read(saved).unwrap(), [0, 1, 0, 0]);

    let output = run(&[
        "--entry",
        "store_far",
        "--block",
        "1",
        "--arg",
        "inout:u32:[7]",
    ]);
    assert_eq!(output.status.code(), Some(1));
    let text = err(&output);
    for part in [
        "G004",
        "kernel `store_far` faulted",
        "not in any allocation",
        "heist check crates/gpu/tests/hardware/kernels.ptx --entry store_far --grid 1,1,1 --block 1,1,1 --arg 'inout:u32:[7]'",
    ] {
        assert!(text.contains(part), "{part} in:\n{text}");
    }

    for (args, says) in [
        (
            &["--entry", "add_one", "--block", "1"][..],
            "takes 2 arguments and was given 0",
        ),
        (&["--entry", "add_one", "--block", "2048"][..], "2048"),
        (&["--block", "1"][..], "say --entry"),
        (
            &["--entry", "nothing", "--block", "1"][..],
            "it has add_one",
        ),
        (
            &["--entry", "add_one", "--block", "1", "--arg", "u32:x"][..],
            "at column 5",
        ),
    ] {
        let output = run(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(err(&output).contains(says), "{}", err(&output));
    }
}

/// A GPU that we have none of: what needs it is not skipped there. The stand-in computes a few
/// kernels alone, so schedules fail on it; that they ran is what is looked at.
#[test]
fn qualify_runs_what_the_gpu_has_and_says_what_it_skips() {
    let driver = stand_in("qualify");
    let files = driver.join("files");
    std::fs::create_dir_all(&files).unwrap();
    let kernels = std::fs::read_to_string(root().join(KERNELS)).unwrap();
    let case = "
// heist: run gated entry=add_one grid=1 block=4 gpu=no \"needs sm_100\"
// heist: arg inout:u32:[1,2]
// heist: arg u32:2
// heist: expect 0 u32:[2,3]
// heist: run other entry=add_one grid=1 block=4 gpu=no \"needs sm_120\"
// heist: arg inout:u32:[1,2]
// heist: arg u32:2
// heist: run broken entry=store_far grid=1 block=1 gpu=no \"needs sm_100\"
// heist: arg inout:u32:[1]
// heist: finds M001
";
    std::fs::write(files.join("a.ptx"), format!("{kernels}{case}")).unwrap();
    let qualify = |capability: &str, more: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_heist"))
            .args(["qualify", "--json", "--files"])
            .arg(&files)
            .args(more)
            .current_dir(root())
            .env("LD_LIBRARY_PATH", &driver)
            .env("CUDA_VISIBLE_DEVICES", "")
            .env("STAND_IN_CAPABILITY", capability)
            .env("STAND_IN_SMS", "1")
            .env("STAND_IN_RECORD", driver.join("launches"))
            .output()
            .unwrap();
        let json: serde_json::Value = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}", err(&output)));
        (output.status.code(), json)
    };
    let only_files = ["--only", "files"];
    let (status, hopper) = qualify("90", &only_files);
    assert_eq!(hopper["device"]["arch"], "sm_90a", "{hopper}");
    let counts = &hopper["parts"][0]["counts"];
    assert_eq!(
        (&counts["passed"], &counts["skipped"]),
        (&0.into(), &3.into()),
        "{hopper}"
    );
    assert_eq!(status, Some(0), "{hopper}");
    let whys = hopper["parts"][0]["skipped"].to_string();
    assert!(whys.contains("sm_100") && whys.contains("sm_120"), "{whys}");
    assert!(whys.contains("breaks a rule on purpose"), "{whys}");

    let (status, blackwell) = qualify("100", &only_files);
    assert_eq!(blackwell["device"]["arch"], "sm_100a", "{blackwell}");
    let counts = &blackwell["parts"][0]["counts"];
    assert_eq!(
        (&counts["passed"], &counts["skipped"]),
        (&1.into(), &2.into()),
        "{blackwell}"
    );
    assert_eq!(
        (status, &blackwell["success"]),
        (Some(0), &true.into()),
        "{blackwell}"
    );

    // There are schedules with launch control among these.
    let schedules = ["--only", "schedules", "--schedules", "6", "--seed", "3"];
    let (status, blackwell) = qualify("100", &schedules);
    let part = &blackwell["parts"][0];
    assert_eq!(part["counts"]["skipped"], 0, "{blackwell}");
    assert_eq!(
        (status, &blackwell["success"]),
        (Some(1), &false.into()),
        "{blackwell}"
    );
    assert!(
        part["checks"].to_string().contains("--source clc"),
        "{part}"
    );
    let (_, hopper) = qualify("90", &schedules);
    let skipped = hopper["parts"][0]["skipped"].to_string();
    assert!(skipped.contains("launch control"), "{hopper}");

    // Kernels are timed, here without peers; a GPU of one multiprocessor has small problems.
    let bench = ["--only", "bench", "--python", "/nonexistent/python"];
    let (status, blackwell) = qualify("100", &bench);
    let part = &blackwell["parts"][0];
    assert_eq!(
        (&part["counts"]["failed"], status),
        (&0.into(), Some(0)),
        "{part}"
    );
    assert_eq!(part["counts"]["skipped"], 0, "{part}");
    let why = blackwell["peers"]["why_none"].as_str().unwrap_or_default();
    assert!(why.contains("/nonexistent/python"), "{why}");
    let contests = blackwell["bench"].as_array().expect("contests");
    assert_eq!(part["counts"]["passed"], contests.len(), "{part}");
    for contest in contests {
        let arms = contest["arms"].as_array().expect("arms");
        assert!(arms.len() == 1 && arms[0]["ours"] == true, "{contest}");
        assert!(arms[0]["ns"][1].is_number(), "{contest}");
    }
    assert!(part["checks"].to_string().contains("scales=mx"), "{part}");
}

#[test]
fn doctor_and_selftest_see_the_gpu() {
    let driver = stand_in("doctor");
    let doctor = heist(&driver, &["doctor"]);
    let text = out(&doctor);
    assert!(text.contains("Stand-in, sm_90, 132 SMs"), "{text}");
    assert!(text.contains("PTX up to 9.0"), "{text}");

    let files = driver.join("files");
    std::fs::create_dir_all(&files).unwrap();
    let kernels = std::fs::read_to_string(root().join(KERNELS)).unwrap();
    let case = "\
// heist: run right entry=add_one grid=1 block=4
// heist: arg inout:u32:[1,2]
// heist: arg u32:2
// heist: expect 0 u32:[2,3]
// heist: run faults entry=store_far grid=1 block=1 gpu=yes
// heist: arg inout:u32:[1]
// heist: finds G004
// heist: run after entry=add_one grid=1 block=4
// heist: arg inout:u32:[1,2]
// heist: arg u32:2
// heist: expect 0 u32:[2,WRONG]
// heist: run kept entry=add_one grid=1 block=4 gpu=no \"for this test\"
// heist: arg inout:u32:[1]
// heist: arg u32:1
";
    let write = |name: &str, text: &str| std::fs::write(files.join(name), text).unwrap();
    let path = files.display().to_string();
    write("a.ptx", &format!("{kernels}{}", case.replace("WRONG", "3")));
    let good = heist(&driver, &["selftest", "--device", "gpu", &path]);
    let text = out(&good);
    assert!(
        text.contains("gpu: 3 passed, 0 failed, 1 skipped"),
        "{text}"
    );
    assert!(text.contains("skipped 1 on gpu: for this test"), "{text}");
    write("a.ptx", &format!("{kernels}{}", case.replace("WRONG", "9")));
    let bad = heist(&driver, &["selftest", "--device", "gpu", &path]);
    assert_eq!(bad.status.code(), Some(1));
    let text = out(&bad);
    assert!(
        text.contains("[1] expected 9 (0x00000009), found 3"),
        "{text}"
    );
}
