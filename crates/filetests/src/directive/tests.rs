use super::*;
use heist_launch::{Arg, Role};

fn read(text: &str) -> TestFile {
    read_directives(Source::new("t.ptx", text)).unwrap_or_else(|errors| panic!("{errors:?}"))
}

fn errors(text: &str) -> Vec<String> {
    read_directives(Source::new("t.ptx", text))
        .expect_err(text)
        .iter()
        .map(ToString::to_string)
        .collect()
}

fn run(file: &TestFile, index: usize) -> &Run {
    match &file.cases[index].action {
        Action::Run(run) => run,
        Action::Check => panic!("a check"),
    }
}

#[test]
fn a_whole_case() {
    let file = read(
        "// heist: run two entry=add grid=2,1,1 block=64 cluster=2,1,1 smem=1024 device=sim:b200 seed=3 chaos gpu=no \"no CLC there\"
// heist: arg in:u32:[0..4]
// heist: arg out:f32:2
// heist: arg ptr:work
// heist: buffer work inout:u8:[1,2]
// heist: expect 1 f32:[1.5, nan] ulp=2 abs=1e-6
// heist: expect work u8:[1,2]
// heist: buffer map out:u64:16
// heist: opaque map \"a tensor map\"
  //   heist:   run three grid=1 block=1 gpu=yes
",
    );
    let two = run(&file, 0);
    assert_eq!(two.entry.as_deref(), Some("add"));
    assert_eq!(
        two.launch,
        Launch::new(2, 64).cluster(2).dynamic_shared(1024)
    );
    assert_eq!(two.device.as_deref(), Some("sim:b200"));
    assert_eq!((two.seed, two.chaos), (Some(3), true));
    assert_eq!(two.gpu, OnGpu::No("no CLC there".to_owned()));
    assert_eq!(two.arguments.params[0], Arg::input(&[0u32, 1, 2, 3]));
    assert_eq!(two.arguments.buffers[0].role, Role::InOut);
    assert_eq!(two.expects[0].tolerance.ulp, Some(2));
    assert_eq!(two.expects[1].buffer, BufferRef::Named("work".to_owned()));
    let map = Opaque {
        line: 9,
        buffer: BufferRef::Named("map".to_owned()),
    };
    assert_eq!(two.opaque, [map]);
    assert_eq!(file.cases[1].name, "three");
    assert!(run(&file, 1).opaque.is_empty());
    assert_eq!(run(&file, 1).gpu, OnGpu::Yes);
}

#[test]
fn a_target_that_a_case_needs_is_no_refusal() {
    let gpu = |why: &str| {
        let line = format!("// heist: run one grid=1 block=1 gpu=no \"{why}\"\n");
        let file = read(&format!(
            ".version 8.0\n.target sm_90\n.address_size 64\n{line}"
        ));
        run(&file, 0).gpu.clone()
    };
    assert_eq!(gpu("needs sm_100a"), OnGpu::Needs("sm_100a".to_owned()));
    for why in ["needs sm_1000", "needs a driver", "it traps on purpose"] {
        assert_eq!(gpu(why), OnGpu::No(why.to_owned()));
    }
}

#[test]
fn marks_and_findings() {
    let file = read(
        "a //~ R001
b
//~^ M002, M003
// heist: run one grid=1 block=1
// heist: finds R001
// heist: run other grid=1 block=1
// heist: clean
// heist: run rest grid=1 block=1
// heist: finds M002 M003
// heist: allows M013
",
    );
    let lines: Vec<_> = file
        .marks
        .iter()
        .map(|mark| (mark.line, mark.code.0))
        .collect();
    assert_eq!(lines, [(1, "R001"), (2, "M002"), (2, "M003")]);
    let codes = |i: usize| -> Vec<&str> {
        file.expected_codes(&file.cases[i])
            .iter()
            .map(|code| code.0)
            .collect()
    };
    assert_eq!(codes(0), ["R001"]);
    assert!(codes(1).is_empty());
    assert_eq!(codes(2), ["M002", "M003"]);
    assert_eq!(file.cases[2].allows, [Code("M013")]);
}

#[test]
fn a_file_without_cases_is_checked() {
    let file = read("// heist: finds P020\nx");
    assert_eq!(file.cases.len(), 1);
    assert_eq!(file.cases[0].action, Action::Check);
    assert_eq!(file.expected_codes(&file.cases[0]), [Code("P020")]);
    assert_eq!(read("").cases[0].name, "check");
    let file = read("// heist: check structure\n x //~ P020");
    assert_eq!(file.cases[0].name, "structure");
}

#[test]
fn bad_files_are_known_by_name() {
    let bad = |path: &str| read_directives(Source::new(path, "")).unwrap().is_bad();
    assert!(bad("rules/R001-x/bad.ptx"));
    assert!(bad("rules/R001-x/bad-two.ptx"));
    assert!(!bad("rules/R001-x/good.ptx"));
    assert!(!bad("bad/good.ptx"));
}

#[test]
fn every_mistake_is_reported_with_its_line() {
    for (text, line, says) in [
        ("// heist: walk", 1, "not a directive"),
        ("// heist: run", 1, "starts with a name"),
        ("// heist: run grid=1 block=1", 1, "starts with a name"),
        ("// heist: run a block=1", 1, "`grid=`"),
        ("// heist: run a grid=1", 1, "`block=`"),
        ("// heist: run a grid=1 block=x", 1, "not a shape"),
        ("// heist: run a grid=1 block=1 smem=x", 1, "whole number"),
        ("// heist: run a grid=1 block=1 gpu=no", 1, "reason"),
        ("// heist: run a grid=1 block=1 gpu=no \"\"", 1, "reason"),
        (
            "// heist: run a grid=1 block=1 fast",
            1,
            "`fast` is nothing",
        ),
        (
            "// heist: run a grid=1 block=1\n// heist: run a grid=1 block=1",
            2,
            "already, at line 1",
        ),
        ("// heist: arg u32:1", 1, "no `run` line"),
        (
            "// heist: run a grid=1 block=1\n// heist: arg u33:1",
            2,
            "`u33` is not a type",
        ),
        (
            "// heist: run a grid=1 block=1\n// heist: expect u32:[1]",
            2,
            "index or name",
        ),
        (
            "// heist: run a grid=1 block=1\n// heist: expect 0 u32:[1]",
            2,
            "no such buffer",
        ),
        (
            "// heist: run a grid=1 block=1\n// heist: arg in:u32:[1]\n// heist: expect 0 u32:[1]",
            3,
            "not read back",
        ),
        (
            "// heist: run a grid=1 block=1\n// heist: arg out:u32:2\n// heist: expect 0 u32:[1]",
            3,
            "lists 4 bytes",
        ),
        (
            "// heist: run a grid=1 block=1\n// heist: arg out:u32:1\n// heist: expect 0 u32:[1] ulps=3",
            3,
            "no tolerance",
        ),
        (
            "// heist: run a grid=1 block=1\n// heist: arg out:u32:1\n// heist: expect 0 u32:[1] rel=-1",
            3,
            "zero or more",
        ),
        (
            "// heist: run a grid=1 block=1\n// heist: arg ptr:nowhere",
            1,
            "no buffer at all",
        ),
        ("// heist: opaque 0 \"why\"", 1, "no `run` line"),
        (
            "// heist: run a grid=1 block=1\n// heist: opaque \"why\"",
            2,
            "index or name",
        ),
        (
            "// heist: run a grid=1 block=1\n// heist: opaque",
            2,
            "index or name",
        ),
        (
            "// heist: run a grid=1 block=1\n// heist: arg out:u32:1\n// heist: opaque 0",
            3,
            "reason in quotes",
        ),
        (
            "// heist: run a grid=1 block=1\n// heist: arg out:u32:1\n// heist: opaque 0 \" \"",
            3,
            "reason in quotes",
        ),
        (
            "// heist: run a grid=1 block=1\n// heist: arg out:u32:1\n// heist: opaque 0 \"why\" ulp=1",
            3,
            "`ulp=1` is nothing",
        ),
        (
            "// heist: run a grid=1 block=1\n// heist: arg out:u32:1\n// heist: opaque 1 \"why\"",
            3,
            "`opaque 1`: case `a` has no such buffer",
        ),
        (
            "// heist: run a grid=1 block=1\n// heist: arg in:u32:[1]\n// heist: opaque 0 \"why\"",
            3,
            "`opaque 0`: the buffer is `in:` and is not read back",
        ),
        (
            "// heist: run a grid=1 block=1\n// heist: arg out:u32:1\n// heist: opaque 0 \"a\"\n// heist: opaque 0 \"b\"",
            4,
            "`opaque 0` twice",
        ),
        (
            "// heist: run a grid=1 block=1\n// heist: arg out:u32:1\n// heist: expect 0 u32:[1]\n// heist: opaque 0 \"why\"",
            3,
            "nothing is expected of a buffer that is `opaque 0`",
        ),
        ("// heist: finds Q123", 1, "not the code of a rule"),
        ("// heist: finds", 1, "code is missing"),
        ("//~ ", 1, "names no code"),
        ("//~^ R001", 1, "above the first line"),
        (
            "x //~ R001\n// heist: run a grid=1 block=1\n// heist: finds M001",
            1,
            "no case of this file",
        ),
        (
            "// heist: finds M001\n// heist: run a grid=1 block=1",
            1,
            "belongs to no case",
        ),
    ] {
        let errors = errors(text);
        assert_eq!(errors.len(), 1, "{text}: {errors:?}");
        assert!(
            errors[0].starts_with(&format!("t.ptx:{line}: ")),
            "{errors:?}"
        );
        assert!(errors[0].contains(says), "{errors:?}");
    }
    assert_eq!(errors("// heist: walk\n// heist: swim").len(), 2);
    // One mistake is one error: what belongs to a broken launch is not to blame.
    let broken = "// heist: run a grid=1 grid=2 block=4\n// heist: arg out:u32:1\n// heist: expect 0 u32:[1]\n";
    let told = errors(broken);
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains("`grid` twice"), "{told:?}");
}

#[test]
fn other_comments_are_left_alone() {
    let file = read("// heist is nice\n// see heist: run\nadd r, a, b; // plain\n");
    assert_eq!(file.cases[0].action, Action::Check);
    assert!(file.marks.is_empty());
}

proptest::proptest! {
    #[test]
    fn no_text_panics(text in "(// heist: (run|arg|expect|opaque|finds|buffer|check)? ?[ -~]{0,40}\n|[ -~]{0,20}//~[ -~^]{0,12}\n){0,6}") {
        // Either answer is fine; both must come.
        match read_directives(Source::new("t.ptx", text)) {
            Ok(file) => proptest::prop_assert!(!file.cases.is_empty()),
            Err(errors) => proptest::prop_assert!(errors.iter().all(|error| !error.message.is_empty())),
        }
    }
}
