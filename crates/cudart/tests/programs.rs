//! Programs as nvcc makes them, run with the stand-in in front: right ones print and end as on
//! a GPU and nothing is found, broken ones are found at their line.
//!
//! They are compiled here, which needs nvcc with its headers: `HEIST_NVCC`, or the one in `.venv`
//! if the packages nvidia-cuda-crt, nvidia-cuda-runtime, nvidia-cuda-cccl and nvidia-nvvm are there.

use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// An nvcc that can compile whole programs.
fn nvcc() -> Option<PathBuf> {
    let named = std::env::var_os("HEIST_NVCC").map(PathBuf::from);
    let libraries = fs::read_dir(root().join(".venv/lib")).into_iter().flatten();
    let packaged = libraries.flatten().map(|library| {
        let packages = library.path().join("site-packages");
        packages.join("nvidia/cu13/bin/nvcc")
    });
    let whole = |nvcc: &PathBuf| {
        let toolkit = nvcc.ancestors().nth(2);
        // A toolkit of CUDA 13 has the headers of CCCL in a folder of their own, packages may not.
        let needs: [&[&str]; 3] = [
            &["include/cuda_runtime.h"],
            &["include/nv/target", "include/cccl/nv/target"],
            &["nvvm/bin/cicc"],
        ];
        let has = |toolkit: &Path| {
            let there = |file: &&str| toolkit.join(file).exists();
            needs.iter().all(|places| places.iter().any(there))
        };
        toolkit.is_some_and(has)
    };
    named.into_iter().chain(packaged).find(whole)
}

/// The library, which cargo puts beside the tests.
fn library() -> PathBuf {
    let here = std::env::current_exe().expect("the test's own file");
    let mut folders = here.ancestors().skip(1).take(2);
    let found = folders.find_map(|folder| {
        let path = folder.join("libheist_cudart.so");
        path.is_file().then_some(path)
    });
    found.expect("libheist_cudart.so beside the test")
}

struct Program {
    name: String,
    source: String,
    path: PathBuf,
}

impl Program {
    /// What a comment at the start of a line says.
    fn says(&self, what: &str) -> Option<&str> {
        let start = format!("// {what} ");
        self.source
            .lines()
            .find_map(|line| line.strip_prefix(&start))
    }
}

fn programs() -> Vec<Program> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs");
    let files = fs::read_dir(folder).expect("the programs");
    let mut programs: Vec<Program> = files
        .flatten()
        .map(|file| file.path())
        .filter(|path| path.extension().is_some_and(|end| end == "cu"))
        .map(|path| Program {
            name: path
                .file_stem()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned(),
            source: fs::read_to_string(&path).expect("a program"),
            path,
        })
        .collect();
    programs.sort_by(|a, b| a.name.cmp(&b.name));
    programs
}

/// A folder with a driver to link with, as toolkits have it: functions that do nothing.
fn driver() -> PathBuf {
    static MADE: OnceLock<()> = OnceLock::new();
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("driver");
    MADE.get_or_init(|| {
        fs::create_dir_all(&folder).expect("a folder");
        let names = include_str!("../driver-names.txt").lines();
        let functions: String = names
            .map(|name| format!("void {name}(void) {{}}\n"))
            .collect();
        let source = folder.join("empty.c");
        fs::write(&source, functions).expect("a file");
        let done = Command::new("gcc")
            .args(["-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o"])
            .arg(folder.join("libcuda.so"))
            .arg(source)
            .status();
        assert!(done.is_ok_and(|status| status.success()), "gcc links");
        let here = folder.join("libcuda.so.1");
        let _ = fs::remove_file(&here);
        std::os::unix::fs::symlink(library(), here).expect("a link");
    });
    folder
}

fn compile(nvcc: &Path, program: &Program, flags: &[&str], to: &Path) {
    let own = program.says("nvcc:").unwrap_or("").split_whitespace();
    let done = Command::new(nvcc)
        .args(["-arch=sm_90", "-lineinfo", "-w"])
        .arg("-L")
        .arg(driver())
        .args(own)
        .args(flags)
        .arg(&program.path)
        .arg("-o")
        .arg(to)
        .output()
        .expect("nvcc runs");
    let told = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{}: {told}", program.name);
}

/// Runs a program; its end, and the lines of the report.
fn run(path: &Path, report: &Path) -> (Output, Vec<Value>) {
    let _ = fs::remove_dir_all(report);
    fs::create_dir_all(report).expect("a folder");
    let ended = Command::new(path)
        .env("LD_PRELOAD", library())
        .env("LD_LIBRARY_PATH", driver())
        .env("HEIST_CUDA_REPORT", report)
        .env("HEIST_CUDA_TIMEOUT", "60")
        .output()
        .expect("the program runs");
    let text = fs::read_to_string(report.join("report.jsonl")).unwrap_or_default();
    let lines = text
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"));
    (ended, lines.collect())
}

/// Everything that was found: its rule, and the line of the source behind its place.
fn found(lines: &[Value]) -> Vec<(String, Option<usize>)> {
    let mut all = Vec::new();
    for line in lines {
        let module = fs::read_to_string(line["module"].as_str().unwrap_or("")).unwrap_or_default();
        for one in line["found"].as_array().into_iter().flatten() {
            let start = one["span"][0].as_u64().unwrap_or(0) as usize;
            let before = module.get(..start).unwrap_or("");
            let loc = before.rfind("\n.loc").map(|at| &before[at + 5..]);
            let place = loc.and_then(|loc| loc.split_whitespace().nth(1)?.parse().ok());
            all.push((one["code"].as_str().unwrap_or("").to_owned(), place));
        }
    }
    all
}

/// Says so past the test runner, which keeps to itself what a test that passes prints.
fn skipped() {
    use std::io::Write;
    let why =
        "skipped: crates/cudart/tests/programs.rs needs nvcc with its headers; see its first lines";
    writeln!(std::io::stderr(), "{why}").expect("standard error");
}

#[test]
fn programs_run_as_they_are() {
    let Some(nvcc) = nvcc() else {
        skipped();
        return;
    };
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cuda");
    fs::create_dir_all(&folder).expect("a folder");
    let programs = programs();
    assert!(programs.len() >= 50);
    let one = |program: &Program| {
        let to = folder.join(&program.name);
        compile(&nvcc, program, &[], &to);
        let (ended, lines) = run(&to, &folder.join(format!("{}.report", program.name)));
        let found = found(&lines);
        let told = format!(
            "{}: {} {found:?}\n{}{}",
            program.name,
            ended.status,
            String::from_utf8_lossy(&ended.stdout),
            String::from_utf8_lossy(&ended.stderr)
        );
        assert!(ended.status.success(), "{told}");
        if let Some(part) = program.says("remarks") {
            let mut all = lines.iter().filter_map(|line| line["remark"].as_str());
            assert!(all.any(|remark| remark.contains(part)), "{told}");
        }
        if let Some(count) = program.says("repeats") {
            let repeated = lines.iter().filter(|line| line["repeated"] == true);
            assert_eq!(repeated.count().to_string(), count, "{told}");
        }
        match program.says("breaks") {
            None => assert!(found.is_empty(), "{told}"),
            Some(code) => {
                let marked = program
                    .source
                    .lines()
                    .position(|line| line.contains("// BUG"));
                let at = |(rule, line): &(String, Option<usize>)| {
                    rule == code && marked.is_none_or(|marked| *line == Some(marked + 1))
                };
                assert!(found.iter().any(at), "{told}");
            }
        }
    };
    // Compiling is most of the time.
    let next = AtomicUsize::new(0);
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads.min(8) {
            scope.spawn(|| {
                while let Some(program) = programs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    one(program);
                }
            });
        }
    });
}

#[test]
fn every_packing_of_the_image_is_read() {
    let Some(nvcc) = nvcc() else {
        skipped();
        return;
    };
    let programs = programs();
    let printing = programs
        .iter()
        .find(|one| one.name == "device_printf")
        .expect("it");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let sets: [&[&str]; 3] = [
        &["--compress-mode=none"],
        &["--compress-mode=speed"],
        &["--compress-mode=size"],
    ];
    for (at, flags) in sets.iter().enumerate() {
        let to = folder.join(format!("packed{at}"));
        compile(&nvcc, printing, flags, &to);
        let (ended, lines) = run(&to, &folder.join("packed.report"));
        assert!(
            ended.status.success() && found(&lines).is_empty(),
            "{flags:?}"
        );
        // What host and device print keeps its order.
        assert_eq!(
            String::from_utf8_lossy(&ended.stdout),
            "before\nthread 0 of 4: 1.50 none\nthread 1 of 4: 1.50 none\nafter\n"
        );
    }
}

/// What the gallery shows of a program is its own rule, at its own line.
#[test]
fn the_gallery_shows_these_programs() {
    let page = fs::read_to_string(root().join("docs/gallery.md")).expect("the gallery");
    let programs = programs();
    let mut shown = 0;
    for entry in page.split("$ heist cuda ./").skip(1) {
        let block = entry.split("```").next().unwrap_or("");
        let name = block.lines().next().unwrap_or("");
        let program = programs.iter().find(|one| one.name == name);
        let program = program.unwrap_or_else(|| panic!("there is no program {name}"));
        let code = program.says("breaks").unwrap_or("nothing");
        let marked = program
            .source
            .lines()
            .position(|line| line.contains("// BUG"));
        let place = format!("{name}.cu:{}:", marked.map_or(0, |at| at + 1));
        assert!(block.contains(&format!("error[{code}]")), "{name}: {code}");
        assert!(block.contains(&place), "{name}: {place}");
        shown += 1;
    }
    assert!(shown >= 4, "{shown}");
}
