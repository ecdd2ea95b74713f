//! A program on the stand-in for the driver, run with the recorder in front: what is in the
//! records.

#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

use heist_record::{After, Kind, Memory, Param, Record};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The library, which cargo puts beside the tests.
fn library() -> PathBuf {
    let here = std::env::current_exe().expect("the test's own file");
    let mut folders = here.ancestors().skip(1).take(2);
    let found = folders.find_map(|folder| {
        let path = folder.join("libheist_recorder.so");
        path.is_file().then_some(path)
    });
    found.expect("libheist_recorder.so beside the test")
}

fn cc(words: &[&str]) {
    let built = Command::new("cc").args(words).status();
    let built = built.expect("cc, which links Rust programs too");
    assert!(built.success(), "cc {words:?}");
}

/// A folder with the stand-in and the program that uses it.
struct Bench {
    folder: PathBuf,
    ptx: PathBuf,
}

impl Bench {
    fn new(test: &str) -> Bench {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(test);
        fs::create_dir_all(&folder).expect("a folder");
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let (driver, program) = (folder.join("libcuda.so.1"), folder.join("program"));
        let gpu = here.join("../gpu/tests");
        let text = |path: &Path| path.display().to_string();
        // The driver calls its own functions, whoever is in front of it.
        let source = text(&gpu.join("driver/libcuda.c"));
        cc(&[
            "-shared",
            "-fPIC",
            "-w",
            "-Wl,-Bsymbolic",
            "-o",
            &text(&driver),
            &source,
        ]);
        let source = text(&here.join("tests/recording/program.c"));
        cc(&["-w", "-o", &text(&program), &source, &text(&driver), "-ldl"]);
        let ptx = folder.join("kernels.ptx");
        let kernels = fs::read_to_string(gpu.join("hardware/kernels.ptx")).expect("the kernels");
        let variables = ".visible .global .u32 kept = 1;\n.global .u32 hidden = 2;\n";
        let kernels = kernels.replacen(
            ".address_size 64\n",
            &format!(".address_size 64\n{variables}"),
            1,
        );
        fs::write(&ptx, kernels).expect("a file");
        Bench { folder, ptx }
    }

    /// Runs the program; its end, the record, and the lines of the report.
    fn run(&self, way: &str, asked: &[(&str, &str)]) -> (Output, Option<Record>, Vec<Value>) {
        let (file, report) = (
            self.folder.join(format!("{way}.heist")),
            self.folder.join("report"),
        );
        let _ = fs::remove_dir_all(&report);
        let _ = fs::remove_file(&file);
        fs::create_dir_all(&report).expect("a folder");
        let ended = Command::new(self.folder.join("program"))
            .arg(way)
            .arg(&self.ptx)
            .env("LD_LIBRARY_PATH", &self.folder)
            .env("LD_PRELOAD", library())
            .env("HEIST_RECORD_REPORT", &report)
            .env("HEIST_RECORD_FILE", &file)
            .envs(asked.iter().copied())
            .output()
            .expect("the program runs");
        let record = fs::read(&file)
            .ok()
            .map(|bytes| Record::from_bytes(&bytes).expect("a record"));
        let text = fs::read_to_string(report.join("report.jsonl")).unwrap_or_default();
        let lines = text
            .lines()
            .map(|line| serde_json::from_str(line).expect("JSON"));
        (ended, record, lines.collect())
    }
}

fn words(bytes: &[u8]) -> Vec<u32> {
    let four = bytes.chunks_exact(4);
    four.map(|four| u32::from_le_bytes(four.try_into().expect("four")))
        .collect()
}

fn allocations(record: &Record) -> Vec<&Memory> {
    let of = |one: &&Memory| one.kind == Kind::Allocation;
    record.memory.iter().filter(of).collect()
}

/// A process is asked for several records: each has its file and its report.
#[test]
fn another_launch_is_asked_for_while_the_program_runs() {
    let bench = Bench::new("again");
    let again = bench.folder.join("second");
    let _ = fs::remove_dir_all(&again);
    fs::create_dir_all(&again).expect("a folder");
    let file = bench.folder.join("first.heist");
    let ended = Command::new(bench.folder.join("program"))
        .args(["linked".as_ref(), bench.ptx.as_os_str(), again.as_os_str()])
        .env("LD_LIBRARY_PATH", &bench.folder)
        .env("LD_PRELOAD", library())
        .env("HEIST_RECORD_REPORT", &bench.folder)
        .env("HEIST_RECORD_FILE", &file)
        .env("HEIST_RECORD_LAUNCH", "0") // none, until it is asked for
        .output()
        .expect("the program runs");
    assert!(!file.exists(), "{ended:?}");
    let record = fs::read(again.join("again.heist")).expect("a record");
    let record = Record::from_bytes(&record).expect("a record");
    assert_eq!((record.kernel.as_str(), record.number), ("copy_box", 3));
    let told = fs::read_to_string(again.join("report.jsonl")).expect("a report");
    assert!(
        told.contains("\"recorded\"") && !told.contains("add_one"),
        "{told}"
    );
}

/// Whatever way the program takes to the driver, its launches are seen and it is not disturbed.
#[test]
fn a_launch_is_recorded_on_every_way_to_the_driver() {
    let bench = Bench::new("ways");
    for way in ["linked", "loader", "driver"] {
        let asked = [
            ("HEIST_RECORD_KERNEL", "add_one"),
            ("HEIST_RECORD_LAUNCH", "2"),
        ];
        let (ended, record, lines) = bench.run(way, &asked);
        let said = String::from_utf8_lossy(&ended.stdout);
        assert_eq!(
            (ended.status.code(), &*said),
            (Some(3), "2 11 11\nstatus 700\n"),
            "{way}"
        );
        let record = record.unwrap_or_else(|| panic!("{way}: {lines:?}"));
        assert_eq!(
            (record.kernel.as_str(), record.number, record.status),
            ("add_one", 2, 0)
        );
        assert_eq!(
            (record.gpu.as_str(), record.capability, record.driver),
            ("Stand-in", 90, 13000)
        );
        assert_eq!(record.launch, heist_launch::Launch::new(2, 32));
        assert!(record.program[0].ends_with("program") && record.program[1] == way);
        assert!(record.ptx.contains(".entry add_one("));
        let [Param::Bytes(data), Param::Bytes(count)] = record.params.as_slice() else {
            panic!("{:?}", record.params);
        };
        assert_eq!(words(count), [40]);
        // The data, and what a word in it points to; not what nothing points to.
        let found = allocations(&record);
        assert_eq!(
            found
                .iter()
                .map(|one| one.before.len())
                .collect::<Vec<_>>()
                .iter()
                .sum::<usize>(),
            256 + 16
        );
        let at = u64::from_le_bytes(data.as_slice().try_into().expect("an address"));
        let numbers = found.iter().find(|one| one.at == at).expect("the data");
        let before: Vec<u32> = (0..62).map(|i| if i < 10 { i + 1 } else { i }).collect();
        assert_eq!(words(&numbers.before)[..62], before);
        let after: Vec<u32> = (0..62)
            .map(|i| before[i as usize] + u32::from(i < 40))
            .collect();
        assert_eq!(words(numbers.left().expect("known"))[..62], after);
        // A variable that the driver shows, and one that it does not.
        let kept = record
            .memory
            .iter()
            .find(|one| one.kind == Kind::Variable("kept".to_owned()));
        assert_eq!(words(&kept.expect("the variable").before), [5]);
        assert!(
            record
                .left_out
                .iter()
                .any(|what| what.ends_with(": hidden")),
            "{:?}",
            record.left_out
        );
        let last = lines.last().expect("lines");
        assert_eq!(
            (&last["counts"]["add_one"], &last["counts"]["copy_box"]),
            (&2.into(), &1.into())
        );
    }
}

#[test]
fn tensor_maps_are_kept_as_they_were_asked_for() {
    let (_, record, _) = Bench::new("maps").run("driver", &[("HEIST_RECORD_KERNEL", "copy_box")]);
    let record = record.expect("a record");
    let Some(Param::Map(map)) = record.params.first() else {
        panic!("{:?}", record.params);
    };
    assert_eq!(
        (map.dims.as_slice(), map.strides.as_slice(), map.swizzle),
        (&[128, 64][..], &[256][..], 3)
    );
    let tensor = allocations(&record)
        .into_iter()
        .find(|one| one.at == map.base);
    assert_eq!(tensor.map(|one| one.before.len()), Some(64 * 128 * 2));
    assert_eq!(record.number, 3);
}

/// The memory before a launch that kills the context is there; the memory after it is not.
#[test]
fn a_launch_that_faults_is_recorded() {
    let (ended, record, _) =
        Bench::new("fault").run("linked", &[("HEIST_RECORD_KERNEL", "store_far")]);
    assert_eq!(ended.status.code(), Some(3));
    let record = record.expect("a record");
    assert_eq!(record.status, 700);
    let found = allocations(&record);
    assert!(!found.is_empty() && found.iter().all(|one| one.after == After::Unknown));
}

#[test]
fn what_is_left_out_or_refused_is_told() {
    let bench = Bench::new("told");
    // Sixteen bytes of the table fit, and the kernel's data do not.
    let (_, record, _) = bench.run("linked", &[("HEIST_RECORD_LIMIT", "100")]);
    let record = record.expect("a record");
    assert!(allocations(&record).is_empty());
    assert!(
        record
            .left_out
            .iter()
            .any(|what| what.contains("256 bytes at 0x") && what.contains("--limit"))
    );
    // Nothing that was launched has the name, or there are not so many.
    for asked in [("HEIST_RECORD_KERNEL", "add"), ("HEIST_RECORD_LAUNCH", "9")] {
        let (_, record, lines) = bench.run("linked", &[asked]);
        assert!(record.is_none() && lines.iter().any(|line| line["kernel"] == "add_one"));
    }
    // PTX without the kernel.
    let other = bench.folder.join("other.ptx");
    fs::write(&other, ".version 8.0\n.target sm_90\n.address_size 64\n").expect("a file");
    let (ended, record, lines) = bench.run(
        "linked",
        &[("HEIST_RECORD_PTX", other.to_str().expect("a path"))],
    );
    assert!(record.is_none() && ended.stdout.starts_with(b"2 11 11"));
    let refused = lines
        .iter()
        .find_map(|line| line["refused"].as_str())
        .expect("a reason");
    assert!(
        refused.contains("other.ptx has no kernel of that name"),
        "{refused}"
    );
    // PTX of the third launch alone: where no kernel is named, the others are passed over.
    let kernels = fs::read_to_string(&bench.ptx).expect("the kernels");
    fs::write(&other, kernels.replace("add_one", "add_none")).expect("a file");
    let (_, record, lines) = bench.run(
        "linked",
        &[("HEIST_RECORD_PTX", other.to_str().expect("a path"))],
    );
    let record = record.expect("a record");
    assert_eq!((record.kernel.as_str(), record.number), ("copy_box", 3));
    let refusals = lines.iter().filter(|line| line["refused"].is_string());
    assert_eq!(refusals.count(), 1, "one for each kernel");
    // The file can't be written.
    let (ended, _, lines) = bench.run("linked", &[("HEIST_RECORD_FILE", "/no/such/folder/record")]);
    assert!(ended.stdout.starts_with(b"2 11 11"));
    assert!(lines.iter().any(|line| {
        line["refused"]
            .as_str()
            .is_some_and(|why| why.contains("can't write"))
    }));
}
