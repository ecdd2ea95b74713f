//! Cases on a device in a child process, some of which take the child with them.
//!
//! The program starts itself with `serve`, which is why it has a `main` of its own.

use heist_filetests::{
    CaseError, ChildDevice, Losable, NoDevice, Request, Selftest, SelftestReport, TestDevice, serve,
};
use heist_launch::{Arg, Buffer, BufferRef, Outcome};
use heist_ptx::{Diagnostic, Module, Source, Span, rule};
use heist_run::Execution;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use std::{env, fs, io, thread};

/// Doubles its first argument into the second; some kernels are the death of it.
#[derive(Default)]
struct Mortal {
    lost: AtomicBool,
}

impl TestDevice for Mortal {
    fn name(&self) -> &str {
        "mortal"
    }

    fn is_real(&self) -> bool {
        true
    }

    fn run(&self, request: &Request<'_>) -> Result<Execution, CaseError> {
        match request.entry {
            "faults" => {
                self.lost.store(true, Ordering::Relaxed);
                return Ok(Execution {
                    findings: vec![Diagnostic::error(
                        rule::ILLEGAL_ADDRESS,
                        Span::NONE,
                        "kernel `faults` faulted",
                    )],
                    ..Execution::default()
                });
            }
            "aborts" => std::process::exit(77),
            "hangs" => loop {
                thread::park();
            },
            "other" => return Err(CaseError::NotForThisDevice("needs sm_100".to_owned())),
            "prints" => print!("no newline after this"),
            _ => {}
        }
        let Some(Arg::Buffer { data, .. }) = request.run.arguments.params.first() else {
            return Err(CaseError::Failed("no input".to_owned()));
        };
        let doubled = data.iter().map(|bits| bits * 2);
        Ok(Execution {
            outcome: Outcome {
                outputs: vec![(
                    BufferRef::Argument(1),
                    Buffer::from_bits(data.ty(), doubled),
                )],
                trace: None,
            },
            ..Execution::default()
        })
    }
}

impl Losable for Mortal {
    fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Relaxed)
    }
}

fn no_findings(_: &Module, _: &Source) -> Vec<Diagnostic> {
    Vec::new()
}

fn child(mode: &'static str) -> Result<ChildDevice, NoDevice> {
    // The case that never answers is given up soon; the others may take as long as a busy
    // machine makes them.
    let patience = |case: &str| match case {
        "hangs" => Duration::from_millis(500),
        _ => Duration::from_secs(3600),
    };
    ChildDevice::start_with("gpu", patience, move || {
        let mut command = Command::new(env::current_exe().unwrap());
        command.arg(mode);
        command
    })
}

fn selftest(device: &dyn TestDevice, path: PathBuf) -> SelftestReport {
    Selftest {
        devices: vec![device],
        checker: &no_findings,
        filter: None,
        compare: false,
        threads: 1,
    }
    .run(&[path], &|_, _| {})
    .unwrap()
}

const KERNELS: [&str; 9] = [
    "before", "faults", "between", "aborts", "other", "prints", "hangs", "expected", "after",
];

fn file() -> String {
    let mut text = ".version 8.0\n.target sm_80\n.address_size 64\n".to_owned();
    for name in KERNELS {
        let entry = if name == "expected" { "faults" } else { name };
        if entry == name {
            text +=
                &format!(".visible .entry {name}(.param .u64 a, .param .u64 b)\n{{\n ret;\n}}\n");
        }
        text += &format!(
            "// heist: run {name} entry={entry} grid=1 block=1 gpu=yes\n\
             // heist: arg in:u32:[1,2,3]\n// heist: arg out:u32:3\n"
        );
        text += if name == "expected" {
            "// heist: finds G004\n"
        } else {
            "// heist: expect 1 u32:[2,4,6]\n"
        };
    }
    text
}

fn a_loss_costs_one_case() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("lost_device");
    fs::create_dir_all(&folder).unwrap();
    let path = folder.join("cases.ptx");
    fs::write(&path, file()).unwrap();
    let device = child("serve").expect("the child has a device");
    let report = selftest(&device, path);
    let line = |case: &str| {
        report
            .results
            .iter()
            .find(|result| result.case == case && result.device == "gpu")
            .unwrap_or_else(|| panic!("no result for {case}"))
            .to_string()
    };
    for passed in ["before", "between", "prints", "expected", "after"] {
        assert!(line(passed).starts_with("ok "), "{}", line(passed));
    }
    for (failed, why) in [
        ("faults", "G004"),
        ("aborts", "77"),
        ("hangs", "said nothing for 0.5 s"),
    ] {
        let text = line(failed);
        assert!(text.starts_with("FAILED") && text.contains(why), "{text}");
    }
    assert!(line("other").contains("needs sm_100"), "{}", line("other"));
}

fn a_child_without_a_device_says_why() {
    let none = child("serve-nothing").err().expect("no device");
    assert_eq!(none.why, "there is no GPU here");
    assert!(none.about_the_machine);
    let none = child("dies").err().expect("no device");
    assert!(none.why.contains("died"), "{}", none.why);
    assert!(!none.about_the_machine);
}

fn main() -> io::Result<()> {
    match env::args().nth(1).as_deref() {
        Some("serve") => serve(|| Ok(Mortal::default()), io::stdin().lock(), io::stdout()),
        Some("serve-nothing") => {
            let none = NoDevice {
                why: "there is no GPU here".to_owned(),
                about_the_machine: true,
            };
            serve::<Mortal>(|| Err(none), io::stdin().lock(), io::stdout())
        }
        Some("dies") => std::process::exit(3),
        _ => {
            a_loss_costs_one_case();
            a_child_without_a_device_says_why();
            println!("a loss costs one case; a child without a device says why: ok");
            Ok(())
        }
    }
}
