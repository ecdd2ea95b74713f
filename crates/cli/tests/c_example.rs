//! The C program that launches what `heist emit --json` prints, compiled and run against
//! the stand-in for the driver: what the kernel is given is what the JSON says.

#![cfg(target_os = "linux")]

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

fn folder() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("c_example");
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

fn compile(args: &[&str], to: &Path, source: &str, more: &[&str]) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(source);
    let built = Command::new("cc")
        .args(args)
        .arg("-o")
        .arg(to)
        .arg(&source)
        .args(more)
        .output()
        .expect("cc, which links Rust programs too");
    let said = String::from_utf8_lossy(&built.stderr);
    assert!(built.status.success(), "{}:\n{said}", source.display());
}

/// The JSON of a kernel, and the record of its launch by the C program: a line for each
/// launch, and one for each of its parameters.
fn launched(name: &str, words: &[&str], files: &[&str]) -> (Value, Vec<String>) {
    let folder = folder();
    let driver = folder.join("libcuda.so.1");
    let program = folder.join(format!("launch-{name}"));
    // Tests run beside each other, and both compile.
    static COMPILED: std::sync::Once = std::sync::Once::new();
    COMPILED.call_once(|| {
        let stand_in = "../gpu/tests/driver/libcuda.c";
        compile(&["-shared", "-fPIC", "-w", "-O1"], &driver, stand_in, &[]);
    });
    compile(
        &["-Wall", "-Wextra", "-Werror", "-O1"],
        &program,
        "../../docs/examples/launch.c",
        &[driver.to_str().unwrap()],
    );
    let emitted = Command::new(env!("CARGO_BIN_EXE_heist"))
        .arg("emit")
        .args(words)
        .arg("--json")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&emitted.stderr);
    assert!(emitted.status.success(), "{said}");
    let json = folder.join(format!("{name}.json"));
    std::fs::write(&json, &emitted.stdout).unwrap();
    let record = folder.join(format!("{name}.record"));
    let _ = std::fs::remove_file(&record);
    let ran = Command::new(&program)
        .arg(&json)
        .args(files)
        .env("LD_LIBRARY_PATH", &folder)
        .env("STAND_IN_RECORD", &record)
        .current_dir(&folder)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{said}");
    let lines = std::fs::read_to_string(&record).unwrap();
    let json = serde_json::from_slice(&emitted.stdout).unwrap();
    (json, lines.lines().map(str::to_owned).collect())
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("{value}"))
}

fn place(word: &Value, words: &[&str]) -> usize {
    words
        .iter()
        .position(|known| *known == text(word))
        .unwrap_or_else(|| panic!("{word} is none of {words:?}"))
}

fn numbers(list: &Value) -> String {
    let list: Vec<String> = list
        .as_array()
        .unwrap()
        .iter()
        .map(ToString::to_string)
        .collect();
    list.join(",")
}

/// What the driver is to be told of a tensor map, by the order of its enumerations.
fn map(argument: &Value) -> String {
    const TYPES: &[&str] = &[
        "u8", "u16", "u32", "s32", "u64", "s64", "f16", "f32", "f64", "bf16",
    ];
    format!(
        "map type {} interleave {} swizzle {} l2 {} fill {} dims {} strides {} box {} steps {}",
        place(&argument["type"], TYPES),
        place(&argument["interleave"], &["none", "16", "32"]),
        place(&argument["swizzle"], &["none", "32", "64", "128"]),
        place(&argument["l2"], &["none", "64", "128", "256"]),
        place(&argument["fill"], &["zeros", "nan"]),
        numbers(&argument["dims"]),
        numbers(&argument["strides"]),
        numbers(&argument["box"]),
        numbers(&argument["element_strides"]),
    )
}

/// Compares the record of every launch with the JSON.
fn compare(json: &Value, record: &[String]) {
    let mut lines = record.iter();
    // Buffers are allocated in their order, and then what arguments bring themselves.
    let filled = |buffer: &&Value| buffer["bytes"] != 0;
    let buffers: Vec<&Value> = json["buffers"]
        .as_array()
        .unwrap()
        .iter()
        .filter(filled)
        .collect();
    let mut allocated = buffers.len();
    for step in json["steps"].as_array().unwrap() {
        let cluster = step["cluster"]["x"].as_u64().unwrap_or(1);
        assert_eq!(
            *lines.next().unwrap(),
            format!(
                "launch {} blocks {} threads {} shared {} cluster {cluster}",
                text(&step["entry"]),
                step["grid"]["x"],
                step["block"]["x"],
                step["dynamic_shared"],
            )
        );
        for argument in step["arguments"].as_array().unwrap() {
            let line = lines.next().unwrap();
            let (index, said) = line.split_once(' ').unwrap();
            assert_eq!(index, argument["index"].to_string());
            assert!(argument["meaning"].is_string() && argument["bytes"].is_u64());
            let of = |buffer: &Value| buffers.iter().position(|known| known["name"] == *buffer);
            match text(&argument["kind"]) {
                "scalar" => {
                    let bytes = argument["bytes"].as_u64().unwrap() as usize;
                    let bits = argument["bits"].as_u64().unwrap();
                    assert!(
                        said.starts_with(&format!("bytes {bits:0width$x}", width = 2 * bytes)),
                        "{line}: {argument}"
                    );
                }
                "tensor_map" => {
                    let at = of(&argument["buffer"]).unwrap();
                    let want = format!("{} #{at}+{} ", map(argument), argument["offset"]);
                    assert!(said.starts_with(&want), "{line}\n{want}");
                }
                "pointer" => match of(&argument["buffer"]) {
                    Some(at) => {
                        let want = format!(" #{at}+{} ", argument["offset"]);
                        assert!(said.contains(&want), "{line}\n{want}");
                    }
                    None => assert!(said.ends_with(&"0".repeat(16)), "{line}: an empty buffer"),
                },
                "counters" | "constant" => {
                    let contents = argument["contents"].as_array().unwrap();
                    let first = contents.iter().take(8).map(|b| b.as_u64().unwrap());
                    let first: String = first.map(|b| format!("{b:02x}")).collect();
                    let want = format!(" #{allocated}+0 {first}");
                    assert!(said.ends_with(&want), "{line}\n{want}");
                    allocated += 1;
                }
                other => panic!("an argument of the kind {other}"),
            }
        }
    }
    assert_eq!(lines.next(), None);
}

#[test]
fn a_multiplication_is_launched_as_the_json_says() {
    let folder = folder();
    let a: Vec<u8> = (0..96 * 64 * 2).map(|i| (i % 251) as u8).collect();
    std::fs::write(folder.join("a.bin"), &a).unwrap();
    let out = folder.join("d.bin");
    let _ = std::fs::remove_file(&out);
    let words = ["gemm", "m=96", "n=200", "k=64", "--arch", "sm_90a"];
    let (json, record) = launched("gemm", &words, &["a=a.bin", "d=d.bin"]);
    compare(&json, &record);
    // The file's bytes are what the kernel finds behind the map of A.
    let first = "0001020304050607";
    assert!(
        record
            .iter()
            .any(|line| line.contains(" map ") && line.ends_with(first))
    );
    assert_eq!(std::fs::read(&out).unwrap().len(), 96 * 200 * 2);
}

#[test]
fn attention_with_numbers_counters_and_tables_is_launched_as_the_json_says() {
    let words = ["attention", "queries=256", "mask=causal", "--arch", "sm_80"];
    let (json, record) = launched("attention", &words, &[]);
    compare(&json, &record);
}

#[test]
fn several_launches_go_in_order() {
    let words = [
        "attention",
        "splits=4",
        "batch=1",
        "heads=1",
        "queries=64",
        "keys=512",
    ];
    let (json, record) = launched("decode", &words, &[]);
    assert!(json["steps"].as_array().unwrap().len() > 1, "one launch");
    compare(&json, &record);
}

#[test]
fn a_file_that_is_too_short_is_refused() {
    let folder = folder();
    std::fs::write(folder.join("short.bin"), [0; 10]).unwrap();
    let (_, _) = launched("short", &["gemm", "m=64", "n=64", "k=64"], &[]);
    let ran = Command::new(folder.join("launch-short"))
        .args(["short.json", "a=short.bin"])
        .env("LD_LIBRARY_PATH", &folder)
        .env("STAND_IN_RECORD", folder.join("short.record"))
        .current_dir(&folder)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(
        !ran.status.success() && said.contains("too short"),
        "{said}"
    );
}
