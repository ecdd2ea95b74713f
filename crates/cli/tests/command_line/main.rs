//! What all commands have in common: how they answer when the question, the
//! reader or the disk is not what it should be.

#[cfg(unix)]
mod shown;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn heist(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_heist"));
    command
        .args(args)
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."));
    command
}

fn run(args: &[&str]) -> Output {
    heist(args).output().unwrap()
}

fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// An empty folder for one test.
fn folder(test: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(test);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}

const BROKEN: &str = "cases/cp-async/bad-no-wait.ptx";

/// Commands that print, with the exit status that they have.
const SPEAKERS: [(&[&str], i32); 9] = [
    (&["policies"], 0),
    (&["kernels"], 0),
    (&["explain"], 0),
    (&["explain", "L003"], 0),
    (&["doctor"], 0),
    (&["emit", "gemm"], 0),
    (&["fmt", "cases/cp-async/good.ptx"], 0),
    (&["run", "power-law", "--tiles", "20"], 0),
    (&["check", BROKEN], 1),
];

#[test]
fn a_reader_that_goes_away_is_no_error() {
    for (args, status) in SPEAKERS {
        for more in [None, Some("--json")] {
            let (reader, writer) = std::io::pipe().unwrap();
            drop(reader);
            let args: Vec<&str> = args.iter().copied().chain(more).collect();
            let output = heist(&args).stdout(writer).output().unwrap();
            assert_eq!(
                output.status.code(),
                Some(status),
                "{args:?}: {}",
                err(&output)
            );
            // A machine that pauses makes a run long enough to tell of itself.
            let said = err(&output);
            let mut said = said.lines().filter(|line| !line.contains(" s so far; "));
            assert_eq!(said.next(), None, "{args:?}");
        }
    }
}

#[test]
#[cfg(target_os = "linux")]
fn an_answer_that_can_t_be_written_is_an_error() {
    for (args, _) in SPEAKERS {
        for more in [None, Some("--json")] {
            let full = File::options().write(true).open("/dev/full").unwrap();
            let args: Vec<&str> = args.iter().copied().chain(more).collect();
            let output = heist(&args).stdout(full).output().unwrap();
            assert_eq!(output.status.code(), Some(2), "{args:?}: {}", err(&output));
            let said = err(&output);
            assert!(said.contains("can't write the answer"), "{args:?}: {said}");
        }
    }
}

#[test]
fn colours_are_for_terminals_that_want_them() {
    let plain = heist(&["check", BROKEN]).output().unwrap();
    let forced = heist(&["check", BROKEN])
        .env("CLICOLOR_FORCE", "1")
        .output()
        .unwrap();
    let unwanted = heist(&["check", BROKEN])
        .envs([("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")])
        .output()
        .unwrap();
    assert!(!plain.stdout.contains(&0x1b));
    assert!(forced.stdout.contains(&0x1b));
    assert!(!unwanted.stdout.contains(&0x1b));
}

/// What a file holds is its own affair.
#[test]
fn a_formatter_keeps_every_byte_of_a_comment() {
    let file = folder("escape").join("k.ptx");
    let text = ".version 8.0\n.target sm_90\n.address_size 64\n\n// \u{1b}[31mred\u{1b}[0m\n";
    fs::write(&file, text).unwrap();
    let output = run(&["fmt", file.to_str().unwrap()]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), text);
}

/// Where a source is in another encoding, its lines are in the comments of its PTX and in the log of its
/// build. The assembler takes such PTX.
#[test]
fn text_in_another_encoding_is_read_and_not_rewritten() {
    let folder = folder("encoding");
    let mut ptx = UNTIDY.as_bytes().to_vec();
    ptx.extend(b".visible .entry k() { ret; } // gr\xf6\xdfe\n");
    let log = b"// gr\xf6\xdfe\nCUDA error: misaligned address\n";
    let (file, said) = (folder.join("k.ptx"), folder.join("build.log"));
    fs::write(&file, &ptx).unwrap();
    fs::write(&said, log).unwrap();
    let checked = run(&["check", file.to_str().unwrap()]);
    assert_eq!(checked.status.code(), Some(0), "{}", err(&checked));
    let found = run(&["check", said.to_str().unwrap()]);
    assert_eq!(found.status.code(), Some(1), "{}", err(&found));
    assert!(String::from_utf8_lossy(&found.stdout).contains("G005"));
    // What is not understood is not written either.
    let rewritten = run(&["fmt", "--write", file.to_str().unwrap()]);
    assert_eq!(rewritten.status.code(), Some(2));
    assert_eq!(fs::read(&file).unwrap(), ptx);
    // Bytes that are no text at all are none.
    fs::write(&file, b"\x7fELF\x02\x01\x00\xff.version").unwrap();
    let cubin = run(&["check", file.to_str().unwrap()]);
    assert_eq!(cubin.status.code(), Some(2));
    assert!(err(&cubin).contains("cubin"), "{}", err(&cubin));
}

const UNTIDY: &str = ".version 8.0\n  .target sm_90\n.address_size 64\n";
const TIDY: &str = ".version 8.0\n.target sm_90\n.address_size 64\n";

#[test]
#[cfg(unix)]
fn a_link_stays_a_link() {
    let folder = folder("link");
    let (file, link) = (folder.join("k.ptx"), folder.join("link.ptx"));
    fs::write(&file, UNTIDY).unwrap();
    std::os::unix::fs::symlink("k.ptx", &link).unwrap();
    let output = run(&["fmt", "--write", link.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(fs::read_to_string(&file).unwrap(), TIDY);
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 2);
}

/// Classes decide which tile comes next, so nothing else can.
#[test]
fn classes_stand_alone() {
    let classes = ["run", "power-law", "--classes", "10,60,30", "--source"];
    for (more, says) in [
        (&["ticket", "--cluster", "2"][..], "leave --cluster out"),
        (
            &["ticket", "--order", "reversed"],
            "takes the place of --order",
        ),
        (&["static"], "--classes needs ticket or clc"),
    ] {
        let output = run(&[&classes[..], more].concat());
        assert_eq!(output.status.code(), Some(2), "{more:?}");
        assert!(err(&output).contains(says), "{more:?}: {}", err(&output));
    }
}

/// What can't be written is told before the work is done, and leaves nothing behind.
#[test]
fn an_output_is_tried_before_the_work() {
    let folder = folder("unwritable");
    let file = folder.join("here.txt");
    fs::write(&file, "mine").unwrap();
    let under = file.join("x.html");
    let under = under.to_str().unwrap();
    let saved = format!("2={under}");
    let add = "exec tests/ptx/float/add.ptx --entry add_rn_f32 --grid 1 --block 2 \
               --arg in:f32:[1,2] --arg in:f32:[3,4] --arg out:f32:2 --save";
    let add: Vec<&str> = add.split_whitespace().chain([saved.as_str()]).collect();
    for args in [
        &["demo", "--trace", under][..],
        &["run", "power-law", "--trace", under],
        &["run", "gemm", "--trace", under],
        &["run", "power-law", "--source", "auto", "--tuned", under],
        &["bench", "gemm", "--save", under],
        &add,
    ] {
        let output = run(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(output.stdout.is_empty(), "{args:?}");
        let said = err(&output);
        assert!(
            said.contains("can't write") && said.contains(under),
            "{said}"
        );
    }
    for args in [
        &["demo", "--trace", "all.svg"][..],
        &["demo", "--trace", "all.png"],
        &["run", "power-law", "--trace", "one.png"],
    ] {
        let output = run(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(output.stdout.is_empty(), "{args:?}");
    }
    assert_eq!(fs::read_to_string(&file).unwrap(), "mine");
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
}

#[test]
fn emitted_files_are_named() {
    let folder = folder("emitted").join("new");
    let output = run(&["emit", "gemm", "--out", folder.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    let text = fs::read_to_string(told.trim_end()).unwrap();
    assert!(text.contains(".entry gemm"), "{told}");
}

/// As in the checkout of Heist, where most people try it first: cargo takes what is below a
/// workspace for a part of it.
#[test]
fn a_project_inside_a_workspace_is_one_of_its_own() {
    let above = folder("above");
    let mine = above.join("mine");
    let manifest = || {
        let output = run(&["new", mine.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(0), "{}", err(&output));
        fs::read_to_string(mine.join("Cargo.toml")).unwrap()
    };
    fs::write(above.join("Cargo.toml"), "[workspace]\nmembers = []\n").unwrap();
    assert!(manifest().ends_with("\n[workspace]\n"));
    let cargo = Command::new("cargo")
        .args([
            "metadata",
            "--no-deps",
            "--offline",
            "--format-version",
            "1",
        ])
        .current_dir(&mine)
        .output()
        .unwrap();
    assert!(cargo.status.success(), "{}", err(&cargo));
}

/// Two packages of one name don't go into one lock file, and cargo has folders of its own.
#[test]
fn a_project_has_a_name_that_cargo_builds() {
    let folder = folder("names");
    for name in ["heist", "heist-sim", "build", "deps"] {
        let path = folder.join(name);
        let output = run(&["new", path.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(2), "{name}");
        let said = err(&output);
        assert!(
            said.contains(name) && said.contains("another name"),
            "{said}"
        );
        assert!(!path.exists());
    }
    let output = run(&["new", folder.join("heists").to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
}

#[test]
fn an_error_of_the_words_names_what_is_missing_in_json_too() {
    for (args, wanted) in [
        (
            &["--json", "explain", "A001", "B001"][..],
            "unexpected argument 'B001' found",
        ),
        (
            &["--json", "emit"],
            "the following required arguments were not provided: <KERNEL>",
        ),
        (
            &["--json", "run", "uniform", "--seed", "-1"],
            "invalid value '-1' for '--seed <SEED>': a whole number from 0 on is wanted",
        ),
        (
            &["--json", "completions", "nope"],
            "invalid value 'nope' for '<SHELL>' [possible values: bash, elvish, fish, powershell, zsh]",
        ),
    ] {
        let output = run(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        let told: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(told["error"], wanted, "{args:?}");
    }
}

#[test]
fn a_formatter_does_the_files_that_it_can_read() {
    let folder = folder("several");
    let (first, none, last) = (
        folder.join("a.ptx"),
        folder.join("none.ptx"),
        folder.join("z.ptx"),
    );
    fs::write(&first, UNTIDY).unwrap();
    fs::write(&last, UNTIDY).unwrap();
    let names = [&first, &none, &last].map(|path| path.to_str().unwrap());
    let output = run(&[&["fmt", "--write"], &names[..]].concat());
    assert_eq!(output.status.code(), Some(2));
    assert!(err(&output).contains("none.ptx"), "{}", err(&output));
    for file in [first, last] {
        assert_eq!(fs::read_to_string(file).unwrap(), TIDY);
    }
}

#[test]
fn a_negative_number_is_a_wrong_number() {
    let once = |flag, value| {
        let launch = ["exec", BROKEN, "--grid", "1", "--block", "1"];
        [&launch[..], &[flag, value]].concat()
    };
    for args in [
        &["exec", BROKEN, "--grid", "-1", "--block", "1"][..],
        &once("--smem", "-3"),
        &once("--timeout", "-3"),
        &once("--timeout", "0"),
        &once("--explore", "0"),
        &["run", "power-law", "--tiles", "-5"],
        &["selftest", "--threads", "-1"],
        &["bench", "--rounds", "-1"],
    ] {
        let output = run(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        let said = err(&output);
        assert!(said.contains("invalid value"), "{args:?}: {said}");
    }
}

#[test]
fn a_file_without_kernels_has_none_to_choose() {
    let file = folder("none").join("k.ptx");
    fs::write(&file, TIDY).unwrap();
    let output = run(&[
        "exec",
        file.to_str().unwrap(),
        "--grid",
        "1",
        "--block",
        "1",
    ]);
    assert_eq!(output.status.code(), Some(2));
    let said = err(&output);
    assert!(
        said.contains("it has no kernel") && !said.contains("--entry"),
        "{said}"
    );
}

#[test]
fn a_code_is_found_however_it_is_written() {
    let page = run(&["explain", "L003"]).stdout;
    assert!(page.starts_with(b"# L003: "));
    for asked in ["l003", "L3", "[L003]", "error[L003]:"] {
        assert_eq!(run(&["explain", asked]).stdout, page, "{asked}");
    }
    let letter = String::from_utf8(run(&["explain", "l"]).stdout).unwrap();
    assert!(letter.lines().all(|line| line.starts_with('L')), "{letter}");
    assert!(letter.lines().count() > 10, "{letter}");
    for (asked, says) in [
        ("L999", "`heist explain L`"),
        ("Z999", "`heist explain`"),
        ("", "`heist explain`"),
        ("é", "`heist explain`"),
    ] {
        let output = run(&["explain", asked]);
        assert_eq!(output.status.code(), Some(2), "{asked}");
        assert!(err(&output).contains(says), "{asked}: {}", err(&output));
    }
}

#[test]
fn nothing_to_test_is_one_answer() {
    let empty = folder("empty");
    let empty = empty.to_str().unwrap();
    for (args, says) in [
        (&["selftest", "--json", empty][..], "no `.ptx` file"),
        (
            &[
                "selftest",
                "--json",
                "tests/ptx/float/add.ptx",
                "--filter",
                "zzz",
            ],
            "`zzz`",
        ),
    ] {
        let output = run(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one value");
        let said = json["error"].as_str().unwrap_or_default();
        assert!(said.contains(says), "{said}");
    }
}

/// A machine that is too slow or too busy is not blamed on the schedules, and nothing is
/// concluded from runs that did not end.
#[test]
fn a_demo_that_had_no_time_says_so_and_concludes_nothing() {
    let page = folder("hurried").join("demo.html");
    let page = page.to_str().unwrap();
    let output = run(&["demo", "--trace", page, "--timeout", "0.000001"]);
    assert_eq!(output.status.code(), Some(1), "{}", err(&output));
    let told = String::from_utf8(output.stdout).unwrap();
    assert!(told.contains("was stopped before its end: X002"), "{told}");
    assert!(told.contains("`--timeout SECONDS`"), "{told}");
    for conclusion in ["WRONG", "fastest", "2. And when", "In every run"] {
        assert!(!told.contains(conclusion), "{conclusion}: {told}");
    }
    assert!(fs::read_to_string(page).unwrap().contains("X002"));
}

/// Ctrl-C ends long work with a line that says what was done, and writes no file.
#[test]
#[cfg(unix)]
fn an_interrupted_command_says_what_was_done() {
    use std::io::{BufRead, BufReader};
    use std::process::Stdio;
    let page = folder("interrupted").join("demo.html");
    let mut child = heist(&["demo", "--trace", page.to_str().unwrap()])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // The first line comes before the first run begins.
    let mut first = String::new();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    stdout.read_line(&mut first).unwrap();
    let id = child.id().to_string();
    let sent = Command::new("kill").args(["-INT", &id]).status().unwrap();
    assert!(sent.success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", err(&output));
    assert!(
        err(&output).contains("heist: interrupted"),
        "{}",
        err(&output)
    );
    assert!(!page.exists());
}

#[test]
fn the_version_has_what_a_bug_report_needs() {
    let told = String::from_utf8(run(&["--version"]).stdout).unwrap();
    for word in ["heist ", "commit ", "features ", "rustc "] {
        assert!(told.contains(word), "{told}");
    }
    assert_eq!(
        String::from_utf8(run(&["-V"]).stdout)
            .unwrap()
            .lines()
            .count(),
        1
    );
}

#[test]
fn colours_can_be_told() {
    let always = run(&["check", BROKEN, "--color", "always"]);
    let never = heist(&["check", BROKEN, "--color", "never"])
        .env("CLICOLOR_FORCE", "1")
        .output()
        .unwrap();
    assert!(always.stdout.contains(&0x1b));
    assert!(!never.stdout.contains(&0x1b));
}
