//! `heist record` around programs that tell what the recorder would tell, and records replayed by
//! `heist check`.

#![cfg(target_os = "linux")]

use heist_launch::Launch;
use heist_record::{After, Kind, Map, Memory, Param, Record};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Any library serves to be loaded in front of a program that never calls it.
fn library() -> PathBuf {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("this process's memory");
    let mut paths = maps
        .lines()
        .filter_map(|line| line.split_whitespace().nth(5));
    let libc = paths.find(|path| path.contains("libc.so") || path.contains("libc-"));
    PathBuf::from(libc.expect("a C library"))
}

fn heist(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_heist"))
        .args(words)
        .env("HEIST_RECORDER", library())
        .current_dir(env!("CARGO_TARGET_TMPDIR"))
        .output()
        .expect("heist runs")
}

fn all(output: &Output) -> String {
    String::from_utf8_lossy(&[output.stdout.as_slice(), &output.stderr].concat()).into_owned()
}

/// Writes a record, and checks it.
fn check(name: &str, bytes: &[u8], more: &[&str]) -> (Option<i32>, String) {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, bytes).expect("a file");
    let path = path.display().to_string();
    let output = heist(&[&["check", &path], more].concat());
    (output.status.code(), all(&output))
}

/// `data[i] += kept` for i below n, through a table that has a pointer to the data.
const KERNEL: &str = "\
.version 8.0
.target sm_90
.address_size 64
.visible .global .u32 kept = 1;
.visible .const .u32 factor = 1;
.visible .entry add(.param .u64 table, .param .u32 n, .param .u64 variable)
{
    .reg .pred %outside;
    .reg .b32 %i, %n, %value, %more, %factor;
    .reg .b64 %at, %offset, %kept;
    mov.u32 %i, %tid.x;
    ld.param.u32 %n, [n];
    setp.ge.u32 %outside, %i, %n;
    @%outside ret;
    ld.param.u64 %at, [table];
    ld.global.u64 %at, [%at];
    mul.wide.u32 %offset, %i, 4;
    add.u64 %at, %at, %offset;
    ld.param.u64 %kept, [variable];
    ld.global.u32 %more, [%kept];
    ld.const.u32 %factor, [factor];
    ld.global.u32 %value, [%at];
    mad.lo.u32 %value, %more, %factor, %value;
    st.global.u32 [%at], %value;
    ret;
}
";

fn bytes(words: impl IntoIterator<Item = u32>) -> Vec<u8> {
    words.into_iter().flat_map(u32::to_le_bytes).collect()
}

/// As an H200 would leave it: at the driver's addresses, with variables somewhere of its own.
fn record() -> Record {
    const DATA: u64 = 0x7f7b_93e0_0000;
    const TABLE: u64 = 0x7f40_0000_0000;
    const VARIABLE: u64 = 0x7f80_0000_0100;
    let allocation = |at, before, after| Memory {
        kind: Kind::Allocation,
        at,
        before,
        after,
    };
    let variable = |name: &str, at, before| Memory {
        kind: Kind::Variable(name.to_owned()),
        at,
        before,
        after: After::Same,
    };
    Record {
        program: vec!["./app".to_owned(), "7".to_owned()],
        gpu: "NVIDIA H200".to_owned(),
        capability: 90,
        driver: 13000,
        ptx: KERNEL.to_owned(),
        ptx_from: "the program's own image".to_owned(),
        kernel: "add".to_owned(),
        number: 3,
        launch: Launch::new(1, 32),
        cooperative: false,
        params: vec![
            Param::Bytes(TABLE.to_le_bytes().to_vec()),
            Param::Bytes(20u32.to_le_bytes().to_vec()),
            Param::Bytes(VARIABLE.to_le_bytes().to_vec()),
        ],
        memory: vec![
            allocation(TABLE, DATA.to_le_bytes().to_vec(), After::Same),
            variable("kept", VARIABLE, bytes([6])),
            variable("factor", 0x7f80_0000_0200, bytes([2])),
            allocation(
                DATA,
                bytes(0..20),
                After::Changed(bytes((0..20).map(|i| i + 12))),
            ),
        ],
        left_out: vec!["a texture".to_owned()],
        status: 0,
    }
}

#[test]
fn a_replay_has_the_memory_of_the_gpu() {
    let (status, said) = check("same.heist", &record().to_bytes(), &[]);
    assert_eq!(status, Some(0), "{said}");
    for part in [
        "launch 3 of ./app 7, recorded on NVIDIA H200, replayed on sim:h200",
        "not recorded: a texture",
        "all 96 bytes of memory are as the GPU left them",
        "nothing found",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    // How it runs can be said, as for any launch.
    let how = ["--device", "sim:b200", "--seed", "4", "--explore", "2"];
    let (status, said) = check("how.heist", &record().to_bytes(), &how);
    assert_eq!(status, Some(0), "{said}");
    assert!(said.contains("replayed on sim:b200"), "{said}");
}

#[test]
fn other_memory_than_the_gpus_is_found() {
    let mut other = record();
    other.memory[3].after = After::Changed(bytes((0..20).map(|i| i + 12 + u32::from(i > 17))));
    let (status, said) = check("other.heist", &other.to_bytes(), &[]);
    assert_eq!(status, Some(1), "{said}");
    for part in [
        "G040",
        "2 of 20 words of",
        "0x7f7b93e00048",
        "0x0000001f",
        "0x0000001e",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    // A variable that the GPU has left with another value.
    let mut other = record();
    other.memory[1].after = After::Changed(bytes([7]));
    let (status, said) = check("variable.heist", &other.to_bytes(), &[]);
    assert_eq!(status, Some(1), "{said}");
    assert!(said.contains("1 of 1 words of variable kept"), "{said}");
}

/// A launch that died on the GPU: the replay says where.
#[test]
fn the_replay_of_a_fault_names_the_place() {
    let mut died = record();
    died.status = 700;
    died.params[1] = Param::Bytes(24u32.to_le_bytes().to_vec());
    died.memory
        .iter_mut()
        .for_each(|one| one.after = After::Unknown);
    let (status, said) = check("died.heist", &died.to_bytes(), &[]);
    assert_eq!(status, Some(1), "{said}");
    for part in [
        "M001",
        "ld.global.u32 %value, [%at];",
        "ended with status 700",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
}

#[test]
fn what_can_t_be_replayed_is_told() {
    let whole = record().to_bytes();
    let mut damaged = whole.clone();
    let end = damaged.len() - 1;
    damaged[end] ^= 1;
    let mut newer = whole.clone();
    newer[8] = 2;
    let mut mapped = record();
    mapped.params[0] = Param::Map(Box::new(Map {
        base: 64,
        element: 6,
        dims: vec![64],
        strides: vec![],
        box_dims: vec![64],
        element_strides: vec![1],
        interleave: 0,
        swizzle: 0,
        l2: 0,
        fill: 0,
    }));
    let files: [(&str, &[u8], &[&str], &str); 6] = [
        ("cut", &whole[..whole.len() / 2], &[], "cut off after"),
        ("damaged", &damaged, &[], "checksum"),
        ("newer", &newer, &[], "version 2"),
        (
            "mapped",
            &mapped.to_bytes(),
            &[],
            "memory at 0x40, which was not recorded",
        ),
        (
            "launched",
            &whole,
            &["--grid", "1", "--block", "1"],
            "is a recorded launch",
        ),
        (
            "real",
            &whole,
            &["--device", "gpu"],
            "replayed on a simulated GPU",
        ),
    ];
    for (name, bytes, more, part) in files {
        let (status, said) = check(&format!("{name}.heist"), bytes, more);
        assert_eq!(status, Some(2), "{name}: {said}");
        assert!(said.contains(part), "{name}: {said}");
    }
}

/// A program that tells what the recorder would.
const TELLS: &str = r#"
cat > "$HEIST_RECORD_REPORT/report.jsonl" <<'JSON'
{"kernel":"_Z3addPKfS0_Pfi","shape":"<<<(8,1,1), (128,1,1)>>>"}
{"kernel":"tick","shape":"<<<(1,1,1), (1,1,1)>>>"}
{"remark":"kernels in CUDA graphs are not seen"}
LINE
{"counts":{"_Z3addPKfS0_Pfi":2,"tick":40}}
JSON
echo "$HEIST_RECORD_KERNEL $HEIST_RECORD_LAUNCH $HEIST_RECORD_LIMIT $HEIST_RECORD_FILE"
exit 7"#;

#[test]
fn the_program_keeps_its_status_and_the_launches_are_told() {
    let recorded = r#"{"recorded":{"kernel":"_Z3addPKfS0_Pfi","number":3,"stretches":4,"bytes":12000,"status":700,"left_out":["9 bytes"]}}"#;
    let program = TELLS.replace("LINE", recorded);
    let words = [
        "record",
        "--kernel",
        "add",
        "--launch",
        "2",
        "--limit",
        "3",
        "-o",
        "told.heist",
    ];
    let output = heist(&[&words[..], &["sh", "-c", &program]].concat());
    let said = all(&output);
    assert_eq!(output.status.code(), Some(7), "{said}");
    for part in [
        "add 2 3145728 /",
        "/told.heist\n",
        "       2 x add(float const*, float const*, float*, int) <<<(8,1,1), (128,1,1)>>>",
        "      40 x tick",
        "kernels in CUDA graphs are not seen",
        "left out: 9 bytes",
        "ended with status 700",
        "launch 3 (`add(float const*, float const*, float*, int)`), 4 stretches of memory with 12000 bytes",
        "`heist check told.heist` replays it",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
}

#[test]
fn nothing_recorded_is_told() {
    for (line, part) in [
        ("", "there was no launch 9 of `add`; the program launched"),
        (
            r#"{"refused":"launch 1 of `tick` can't be recorded: no PTX"}"#,
            "can't be recorded: no PTX",
        ),
    ] {
        let program = TELLS.replace("LINE", line);
        let output = heist(&[
            "record", "--kernel", "add", "--launch", "9", "sh", "-c", &program,
        ]);
        assert_eq!(output.status.code(), Some(2));
        assert!(all(&output).contains(part), "{}", all(&output));
    }
    let output = heist(&["record", "true"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        all(&output).contains("launched no kernel"),
        "{}",
        all(&output)
    );
    for (words, part) in [
        (
            &["record", "-o", "/no/such/folder/x", "true"][..],
            "/no/such/folder/x",
        ),
        (&["record", "./no-such-program"], "no-such-program"),
        (&["record", "--ptx", "no-such.ptx", "true"], "no-such.ptx"),
        (&["record", "--launch", "0", "true"], "--launch"),
    ] {
        let output = heist(words);
        assert_eq!(output.status.code(), Some(2), "{words:?}");
        assert!(all(&output).contains(part), "{}", all(&output));
    }
}

/// Launches of nvcc's programs, of either runtime, and of Triton's kernels, recorded on an H200.
#[test]
fn records_of_an_h200_replay_with_its_memory() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/records");
    for (name, status, parts) in [
        (
            "add_static",
            0,
            &["all 12020 bytes of memory are as the GPU left them"][..],
        ),
        ("add_shared", 0, &["all 12020 bytes of memory"]),
        ("clusters", 0, &["all 16 bytes of memory"]),
        ("device_variable", 0, &["all 20 bytes of memory"]),
        ("pointers_in_memory", 0, &["all 84 bytes of memory"]),
        ("tensor_cores", 0, &["all 2048 bytes of memory"]),
        ("triton_double", 0, &["all 2097152 bytes of memory"]),
        // PTX leaves the last bits of these open, and the time.
        (
            "triton_softmax",
            0,
            &["478 of 524288 words", "up to rounding"],
        ),
        ("nbody", 0, &["74 of 512 words", "up to rounding"]),
        (
            "clock",
            0,
            &["1 of 2 words", "which is free with `%clock64`"],
        ),
        (
            "bad_out_of_bounds",
            1,
            &["M001", "thread (100,0,0)", "bad_out_of_bounds.cu:5"],
        ),
        ("bad_assert", 1, &["X018", "ended with status 710"]),
        // Tables of virtual functions hold the GPU's own addresses of them.
        ("virtual_functions", 0, &["all 56 bytes of memory"]),
        ("virtual_objects", 0, &["all 208 bytes of memory"]),
        ("function_pointers", 0, &["all 144 bytes of memory"]),
        (
            "textures",
            2,
            &["reads a texture or a surface", "heist cuda"],
        ),
    ] {
        let path = folder.join(format!("{name}.heist")).display().to_string();
        let output = heist(&["check", &path]);
        let said = all(&output);
        assert_eq!(output.status.code(), Some(status), "{name}: {said}");
        for part in parts {
            assert!(said.contains(part), "{name}: {part}: {said}");
        }
    }
}
