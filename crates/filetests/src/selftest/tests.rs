use super::*;
use heist_launch::{Arg, Buffer, BufferRef, Outcome};
use heist_ptx::{Code, Module, Span};
use heist_run::Execution;
use std::sync::atomic::AtomicU32;

/// A device that doubles: output `i + 1` is input `i` times two. Kernels named
/// `fault` are reported, `panic` panics, `hopper` is for others.
struct Doubler {
    name: &'static str,
    real: bool,
    off_by: u32,
    runs: AtomicU32,
}

impl Doubler {
    fn new(name: &'static str, real: bool, off_by: u32) -> Doubler {
        Doubler {
            name,
            real,
            off_by,
            runs: AtomicU32::new(0),
        }
    }
}

impl TestDevice for Doubler {
    fn name(&self) -> &str {
        self.name
    }
    fn is_real(&self) -> bool {
        self.real
    }
    fn run(&self, request: &Request<'_>) -> Result<Execution, CaseError> {
        self.runs.fetch_add(1, Ordering::Relaxed);
        let mut ran = Execution::default();
        match request.entry {
            "panic" => panic!("oops"),
            "hopper" => return Err(CaseError::NotForThisDevice("needs sm_90".to_owned())),
            "fault" => {
                ran.findings
                    .push(Diagnostic::error(Code("M001"), Span::NONE, "outside"));
            }
            _ => {}
        }
        let Some(Arg::Buffer { data, .. }) = request.run.arguments.params.first() else {
            return Ok(ran);
        };
        let doubled = data.iter().map(|bits| bits * 2 + u64::from(self.off_by));
        ran.outcome = Outcome {
            outputs: vec![(
                BufferRef::Argument(1),
                Buffer::from_bits(data.ty(), doubled),
            )],
            trace: None,
        };
        Ok(ran)
    }
}

fn no_findings(_: &Module, _: &Source) -> Vec<Diagnostic> {
    Vec::new()
}

const HEAD: &str = ".version 8.0\n.target sm_80\n.address_size 64\n";

fn kernel(name: &str) -> String {
    format!(".visible .entry {name}()\n{{\n ret;\n}}\n")
}

fn folder(files: &[(&str, String)]) -> tempdir::Folder {
    let folder = tempdir::Folder::new();
    for (name, text) in files {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    folder
}

/// A folder that goes away with its value.
mod tempdir {
    use std::path::{Path, PathBuf};
    use std::sync::atomic::{AtomicU32, Ordering};

    pub(super) struct Folder(PathBuf);

    impl Folder {
        pub(super) fn new() -> Folder {
            static NEXT: AtomicU32 = AtomicU32::new(0);
            let n = NEXT.fetch_add(1, Ordering::Relaxed);
            let path = std::env::temp_dir().join(format!("filetests-{}-{n}", std::process::id()));
            std::fs::create_dir_all(&path).unwrap();
            Folder(path)
        }
        pub(super) fn path(&self) -> &Path {
            &self.0
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }
}

fn run_on(
    devices: Vec<&dyn TestDevice>,
    compare: bool,
    files: &[(&str, String)],
) -> SelftestReport {
    let folder = folder(files);
    let selftest = Selftest {
        devices,
        checker: &no_findings,
        filter: None,
        compare,
        threads: 2,
    };
    selftest
        .run(&[folder.path().to_owned()], &|_, _| {})
        .unwrap()
}

fn verdict<'r>(report: &'r SelftestReport, case: &str, device: &str) -> &'r Verdict {
    &report
        .results
        .iter()
        .find(|result| result.case == case && result.device == device)
        .unwrap_or_else(|| panic!("no {case} on {device}: {report}"))
        .verdict
}

fn doubling(expected: &str) -> String {
    format!(
        "{HEAD}{}// heist: run twice grid=1 block=1\n// heist: arg in:u32:[1,2]\n// heist: arg out:u32:2\n// heist: expect 1 u32:{expected}\n",
        kernel("double")
    )
}

#[test]
fn right_and_wrong_outputs() {
    let sim = Doubler::new("sim", false, 0);
    let report = run_on(
        vec![&sim],
        false,
        &[
            ("a/right.ptx", doubling("[2,4]")),
            ("wrong.ptx", doubling("[2,5]")),
        ],
    );
    assert!(!report.is_success());
    let counts = report.counts()["sim"];
    assert_eq!((counts.passed, counts.failed), (1, 1));
    assert_eq!(report.counts()["check"].passed, 2);
    let text = report.to_string();
    assert!(
        text.contains("[1] expected 5 (0x00000005), found 4 (0x00000004)"),
        "{text}"
    );
    assert!(
        text.contains("sim: 1 passed, 1 failed, 0 skipped"),
        "{text}"
    );
    let json = report.to_json();
    assert_eq!(json["success"], false);
    assert_eq!(json["counts"]["sim"]["failed"], 1);
}

#[test]
fn bad_files_stay_away_from_real_devices() {
    let (sim, gpu) = (Doubler::new("sim", false, 0), Doubler::new("gpu", true, 0));
    let text = format!(
        "{HEAD}{}// heist: run plain grid=1 block=1\n// heist: finds M001\n// heist: run forced grid=1 block=1 gpu=yes\n// heist: finds M001\n// heist: run never grid=1 block=1 gpu=no \"hangs\"\n// heist: finds M001\n",
        kernel("fault")
    );
    let report = run_on(vec![&sim, &gpu], false, &[("bad.ptx", text)]);
    for case in ["plain", "forced", "never"] {
        assert_eq!(verdict(&report, case, "sim"), &Verdict::Passed);
    }
    assert!(
        matches!(verdict(&report, "plain", "gpu"), Verdict::Skipped(why) if why.contains("on purpose"))
    );
    assert_eq!(verdict(&report, "forced", "gpu"), &Verdict::Passed);
    assert_eq!(
        verdict(&report, "never", "gpu"),
        &Verdict::Skipped("hangs".to_owned())
    );
    assert_eq!(gpu.runs.load(Ordering::Relaxed), 1);
    assert!(report.to_string().contains("skipped 1 on gpu: hangs"));
}

#[test]
fn panics_and_strangers_are_told_apart() {
    let sim = Doubler::new("sim", false, 0);
    let text = format!(
        "{HEAD}{}{}// heist: run a entry=panic grid=1 block=1\n// heist: run b entry=hopper grid=1 block=1\n// heist: run c grid=1 block=1\n",
        kernel("panic"),
        kernel("hopper")
    );
    let report = run_on(vec![&sim], false, &[("x.ptx", text)]);
    assert!(
        matches!(verdict(&report, "a", "sim"), Verdict::Failed(whys) if whys[0].contains("oops"))
    );
    assert_eq!(
        verdict(&report, "b", "sim"),
        &Verdict::Skipped("needs sm_90".to_owned())
    );
    assert!(
        matches!(verdict(&report, "c", "sim"), Verdict::Failed(whys) if whys[0].contains("several kernels"))
    );
}

#[test]
fn two_devices_are_compared() {
    let (sim, gpu) = (Doubler::new("sim", false, 0), Doubler::new("gpu", true, 1));
    let text = doubling("[2,4]");
    let report = run_on(vec![&sim, &gpu], true, &[("x.ptx", text)]);
    assert_eq!(verdict(&report, "twice", "sim"), &Verdict::Passed);
    assert!(matches!(
        verdict(&report, "twice", "gpu"),
        Verdict::Failed(_)
    ));
    let Verdict::Failed(whys) = verdict(&report, "twice", "sim vs gpu") else {
        panic!("they differ");
    };
    assert!(
        whys[0].starts_with("buffer 1: 2 of 2 elements differ"),
        "{whys:?}"
    );
    let same = Doubler::new("gpu", true, 0);
    let report = run_on(vec![&sim, &same], true, &[("x.ptx", doubling("[2,4]"))]);
    assert!(report.is_success(), "{report}");
}

#[test]
fn what_is_compared_is_what_was_judged() {
    let (sim, gpu) = (Doubler::new("sim", false, 0), Doubler::new("gpu", true, 0));
    let text = format!(
        "{HEAD}{}{}{}// heist: run a entry=double grid=1 block=1\n// heist: run b entry=panic grid=1 block=1\n// heist: run c entry=hopper grid=1 block=1\n// heist: run d entry=double grid=1 block=1 gpu=no \"hangs\"\n",
        kernel("double"),
        kernel("panic"),
        kernel("hopper")
    );
    let report = run_on(vec![&sim, &gpu], true, &[("x.ptx", text)]);
    assert_eq!(sim.runs.load(Ordering::Relaxed), 4);
    assert_eq!(gpu.runs.load(Ordering::Relaxed), 3);
    let agreed = |case| verdict(&report, case, "sim vs gpu");
    assert_eq!(agreed("a"), &Verdict::Passed);
    assert!(
        matches!(agreed("b"), Verdict::Failed(whys) if whys[0].starts_with("sim: panicked") && whys[0].ends_with("oops")),
        "{report}"
    );
    assert_eq!(agreed("c"), &Verdict::Skipped("needs sm_90".to_owned()));
    assert_eq!(agreed("d"), &Verdict::Skipped("hangs".to_owned()));
}

#[test]
fn each_case_is_compared_with_itself() {
    // Three cases on two threads, of which each has answers of its own.
    let text = |n: u32| {
        format!(
            "{HEAD}{}// heist: run case{n} grid=1 block=1\n// heist: arg in:u32:[{n}]\n// heist: arg out:u32:1\n",
            kernel("double")
        )
    };
    let files = [("a.ptx", text(1)), ("b.ptx", text(2)), ("c.ptx", text(3))];
    let (sim, gpu) = (Doubler::new("sim", false, 0), Doubler::new("gpu", true, 0));
    let report = run_on(vec![&sim, &gpu], true, &files);
    assert_eq!(report.counts()["sim vs gpu"].passed, 3, "{report}");
}

#[test]
fn opaque_buffers_are_not_compared() {
    // Devices differ in what they leave, and no case says what must be there.
    let case = |name: &str, opaque: &str| {
        format!(
            "// heist: run {name} grid=1 block=1\n// heist: arg in:u32:[1,2]\n// heist: arg out:u32:2\n// heist: arg out:u32:2\n{opaque}"
        )
    };
    let text = format!(
        "{HEAD}{}{}{}{}",
        kernel("double"),
        case("opaque", "// heist: opaque 1 \"its own format\"\n"),
        case("other", "// heist: opaque 2 \"its own format\"\n"),
        case("plain", ""),
    );
    let (sim, gpu) = (Doubler::new("sim", false, 0), Doubler::new("gpu", true, 1));
    let report = run_on(vec![&sim, &gpu], true, &[("x.ptx", text)]);
    assert_eq!(verdict(&report, "opaque", "sim vs gpu"), &Verdict::Passed);
    for case in ["other", "plain"] {
        let compared = verdict(&report, case, "sim vs gpu");
        assert!(
            matches!(compared, Verdict::Failed(whys) if whys[0].starts_with("buffer 1: 2 of 2")),
            "{case}: {compared:?}"
        );
    }
}

#[test]
fn unparsable_files_and_bad_directives_fail() {
    let sim = Doubler::new("sim", false, 0);
    let report = run_on(
        vec![&sim],
        false,
        &[
            ("syntax.ptx", "this is not PTX\n".to_owned()),
            ("directive.ptx", "// heist: walk\n".to_owned()),
        ],
    );
    assert!(matches!(
        verdict(&report, "check", "check"),
        Verdict::Failed(_)
    ));
    assert!(matches!(
        verdict(&report, "directives", "check"),
        Verdict::Failed(_)
    ));
}

#[test]
fn the_filter_chooses_and_nothing_is_no_success() {
    let sim = Doubler::new("sim", false, 0);
    let folder = folder(&[("x.ptx", doubling("[2,4]"))]);
    let mut selftest = Selftest {
        devices: vec![&sim],
        checker: &no_findings,
        filter: Some("x.ptx::twice".to_owned()),
        compare: false,
        threads: 1,
    };
    let paths = [folder.path().to_owned()];
    assert!(selftest.run(&paths, &|_, _| {}).unwrap().is_success());
    selftest.filter = Some("nothing like it".to_owned());
    let report = selftest.run(&paths, &|_, _| {}).unwrap();
    assert!(!report.is_success());
    assert_eq!(report.to_string(), "no test files were found");
    assert!(
        selftest
            .run(&[PathBuf::from("/nowhere/at/all")], &|_, _| {})
            .is_err()
    );
}

#[test]
fn a_case_must_say_what_the_checker_finds() {
    let finder =
        |_: &Module, _: &Source| vec![Diagnostic::warning(Code("M013"), Span::NONE, "unwritten")];
    let sim = Doubler::new("sim", false, 0);
    let folder = folder(&[
        ("good.ptx", doubling("[2,4]")),
        (
            "good-open.ptx",
            doubling("[2,4]") + "// heist: allows M013\n",
        ),
        ("warned.ptx", doubling("[2,4]")),
    ]);
    let selftest = Selftest {
        devices: vec![&sim],
        checker: &finder,
        filter: None,
        compare: false,
        threads: 1,
    };
    let report = selftest
        .run(&[folder.path().to_owned()], &|_, _| {})
        .unwrap();
    let failed: Vec<_> = report
        .results
        .iter()
        .filter(|result| matches!(result.verdict, Verdict::Failed(_)))
        .collect();
    assert_eq!(failed.len(), 1, "{report}");
    assert!(failed[0].file.ends_with("good.ptx"));
}
