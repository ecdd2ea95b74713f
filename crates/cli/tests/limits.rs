//! What a launch may ask for, what it need not say, and how much is said about it.

use std::fs;
use std::path::Path;
use std::process::Command;

/// Checks a text; exit status and all that was printed.
fn check(name: &str, text: &str, arguments: &str) -> (Option<i32>, String) {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("limits");
    fs::create_dir_all(&folder).unwrap();
    let file = folder.join(name).with_extension("ptx");
    fs::write(&file, text).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_heist"))
        .arg("check")
        .arg(&file)
        .args(arguments.split_whitespace())
        .output()
        .unwrap();
    let text = [output.stdout, output.stderr].concat();
    (
        output.status.code(),
        String::from_utf8_lossy(&text).into_owned(),
    )
}

fn kernel(variables: &str, directives: &str, body: &str) -> String {
    format!(
        ".version 8.0\n.target sm_90\n.address_size 64\n{variables}\n\
         .visible .entry k(.param .u64 p) {directives}\n{{\n{body}\n}}\n"
    )
}

#[test]
fn too_much_is_refused_with_its_code() {
    let plain = kernel("", "", "ret;");
    let (status, said) = check(
        "block",
        &plain,
        "--grid 1 --block 4294967295 --arg inout:u32:[0]",
    );
    assert_eq!(status, Some(2), "{said}");
    assert!(
        said.contains("X005") && !said.contains("panicked"),
        "{said}"
    );
    let large = kernel(".global .b8 s[1000000000000];", "", "ret;");
    let (status, said) = check("large", &large, "--grid 1 --block 1 --arg inout:u32:[0]");
    assert_eq!(status, Some(2), "{said}");
    assert!(said.contains("X003"), "{said}");
}

#[cfg(unix)]
#[test]
fn an_endless_argument_is_refused() {
    let plain = kernel("", "", "ret;");
    let (status, said) = check(
        "endless",
        &plain,
        "--grid 1 --block 1 --arg in:u8:/dev/zero",
    );
    assert_eq!(status, Some(2), "{said}");
    assert!(said.contains("it has more than"), "{said}");
}

#[test]
fn the_kernel_may_say_its_block() {
    let body = "ret;";
    for said in [".reqntid 64", ".maxntid 128, 1, 1"] {
        let (status, told) = check(
            "said",
            &kernel("", said, body),
            "--grid 2 --arg inout:u32:[0]",
        );
        assert_eq!(status, Some(0), "{told}");
        assert!(told.contains("(modelled)"), "{told}");
    }
    let (status, told) = check(
        "unsaid",
        &kernel("", "", body),
        "--grid 2 --arg inout:u32:[0]",
    );
    assert_eq!(status, Some(2), "{told}");
    assert!(told.contains("say --block"), "{told}");
}

/// The reader is ordered behind the writer only if it comes second, as it does in the first
/// schedule.
#[test]
fn a_few_schedules_are_tried_unasked() {
    let wait = "add.u32 %r3, %r3, 1;\n".repeat(6);
    let body = format!(
        ".reg .pred %q; .reg .b32 %r<6>; .reg .b64 %rd<3>;
         ld.param.u64 %rd1, [p];
         mov.u32 %r1, %tid.x;
         mov.u32 %r3, 0;
         setp.ge.u32 %q, %r1, 32;
         @%q bra READER;
         setp.ne.u32 %q, %r1, 0;
         @%q bra END;
         st.global.u32 [%rd1], 7;
         atom.release.cta.global.add.u32 %r2, [%rd1+4], 1;
         bra END;
         READER: setp.ne.u32 %q, %r1, 32;
         @%q bra END;
         {wait}
         atom.acquire.cta.global.add.u32 %r2, [%rd1+4], %r3;
         ld.global.u32 %r4, [%rd1];
         st.global.u32 [%rd1+8], %r4;
         END: ret;"
    );
    let text = kernel("", "", &body);
    let launch = "--grid 1 --block 64 --arg inout:u32:[0,0,0]";
    let (status, said) = check("one", &text, &format!("{launch} --explore 1"));
    assert_eq!(status, Some(0), "{said}");
    let (status, said) = check("few", &text, launch);
    assert_eq!(status, Some(1), "{said}");
    assert!(
        said.contains("R002") && said.contains("found in schedule"),
        "{said}"
    );
}

#[test]
fn one_bug_is_one_finding() {
    let stores: String = (0..40)
        .map(|at| format!("st.global.u32 [%rd1+{}], %r1;\n", 4 * at))
        .collect();
    let body = format!(
        ".reg .b32 %r<2>; .reg .b64 %rd<2>;
         ld.param.u64 %rd1, [p];
         mov.u32 %r1, %ctaid.x;
         {stores}
         ret;"
    );
    let text = kernel("", "", &body);
    let (status, said) = check("fold", &text, "--grid 2 --block 1 --arg inout:u32:[0*40]");
    assert_eq!(status, Some(1), "{said}");
    assert!(said.contains("1 error, 0 warnings"), "{said}");
    assert!(said.contains("39 more places"), "{said}");
}

/// Two lanes of one instruction write one word.
#[test]
fn both_threads_of_a_race_are_named() {
    let body = ".reg .b32 %r<2>; .reg .b64 %rd<2>;
         ld.param.u64 %rd1, [p];
         mov.u32 %r1, %tid.x;
         st.global.u32 [%rd1], %r1;
         ret;";
    let text = kernel("", "", body);
    let (status, said) = check("named", &text, "--grid 1 --block 4 --arg inout:u32:[0]");
    assert_eq!(status, Some(1), "{said}");
    let line = said.lines().find(|line| line.contains("R00")).unwrap();
    assert!(line.contains("thread (0"), "{said}");
    assert!(line.contains("thread (1"), "{said}");
}

/// A timeline of what had run is not taken for the whole.
#[test]
fn the_page_of_a_run_that_its_limit_stopped_says_so() {
    let page = Path::new(env!("CARGO_TARGET_TMPDIR")).join("stopped.html");
    // More than any machine simulates in that time.
    let words = "run uniform --tiles 10000 --mean 20000 --timeout 0.2 --no-verify --trace";
    let output = Command::new(env!("CARGO_BIN_EXE_heist"))
        .args(words.split(' '))
        .arg(&page)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let page = fs::read_to_string(&page).unwrap();
    let said = page.split_once("<p id=\"story\" class=\"stopped\">");
    let said = said
        .and_then(|(_, rest)| rest.split_once("</p>"))
        .unwrap()
        .0;
    assert!(
        said.contains(
            "clc early greedy was stopped before its end: X002, the kernel was stopped after"
        ),
        "{said}"
    );
    assert!(said.contains(" of 10000 tiles had ended by then"), "{said}");
}
