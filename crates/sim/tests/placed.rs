//! Memory that outlives launches: its addresses, what is in it, and what was written of it.

use heist_launch::{Arg, Arguments, Foreign, ForeignKind, Launch, Placed};
use heist_ptx::rule;
use heist_sim::{Device, Options, Program, Report, Touched};

/// Reads a pointer from `[table]`, adds one to what it points to, and counts its launches.
const FOLLOW: &str = "
    .version 8.0
    .target sm_80
    .address_size 64
    .global .align 4 .u32 launches = 40;
    .const .align 4 .u32 step = 1;
    .visible .entry k(.param .u64 table) {
        .reg .b32 %r<5>; .reg .b64 %rd<4>;
        ld.param.u64 %rd1, [table];
        ld.global.u64 %rd2, [%rd1];
        ld.global.u32 %r1, [%rd2];
        ld.const.u32 %r2, [step];
        add.u32 %r1, %r1, %r2;
        st.global.u32 [%rd2], %r1;
        ld.global.u32 %r3, [launches];
        add.u32 %r3, %r3, 1;
        st.global.u32 [launches], %r3;
        ret;
    }";

const BASE: u64 = 0x20_0000_0000;

fn program(base: u64) -> Program {
    let source = heist_ptx::Source::new("follow.ptx", FOLLOW);
    Program::based(heist_ptx::parse(&source).unwrap(), base).unwrap()
}

fn launch(program: &Program, table: u64, placed: Vec<Placed>) -> Report {
    let arguments = Arguments {
        placed,
        ..Arguments::new([Arg::scalar(table)])
    };
    let device = Device::named("sim:h200").unwrap();
    let shape = Launch::new(1, 1);
    let options = Options::default();
    program
        .run(&device, "k", &shape, &arguments, &options)
        .unwrap()
}

fn word(placed: &[Placed], name: &str) -> u32 {
    let one = placed.iter().find(|one| one.name == name).unwrap();
    u32::from_le_bytes(one.bytes[..4].try_into().unwrap())
}

#[test]
fn pointers_in_memory_and_variables_live_from_launch_to_launch() {
    let program = program(BASE + (1 << 30));
    let table = Placed::filled("table", BASE, (BASE + 4096).to_le_bytes().to_vec());
    let data = Placed::filled("data", BASE + 4096, 7u32.to_le_bytes().to_vec());
    let mut placed = vec![data, table];
    for one in program.variables() {
        let mut bytes = one.init.to_vec();
        bytes.resize(one.size as usize, 0);
        if one.constant {
            bytes[0] = 5;
        }
        placed.push(Placed::filled(one.name, one.at, bytes));
    }
    let constant = placed.iter().find(|one| one.name == "step").cloned();
    for _ in 0..2 {
        let report = launch(&program, BASE, placed);
        assert!(report.diagnostics.is_empty(), "{:?}", report.diagnostics);
        placed = report.placed;
        // Nothing writes constants, so they are not given back.
        placed.extend(constant.clone());
    }
    assert_eq!(word(&placed, "data"), 17);
    assert_eq!(word(&placed, "launches"), 42);
}

#[test]
fn what_nobody_wrote_is_told_and_what_one_launch_wrote_the_next_may_read() {
    let program = program(0);
    let table = Placed::filled("table", BASE, (BASE + 4096).to_le_bytes().to_vec());
    let fresh = Placed::fresh("fresh", BASE + 4096, 256);
    let first = launch(&program, BASE, vec![table, fresh]);
    let codes: Vec<_> = first.diagnostics.iter().map(|found| found.code).collect();
    assert_eq!(codes, [rule::GLOBAL_UNWRITTEN]);
    let written = first.placed[1].written.clone().unwrap();
    assert_eq!(written.first_missing(0, 4), None);
    assert_eq!(written.first_missing(0, 8), Some(4));
    assert!(launch(&program, BASE, first.placed).diagnostics.is_empty());
}

#[test]
fn addresses_that_are_none_of_the_device_are_told_as_what_they_are() {
    let foreign = [
        Foreign {
            at: BASE + 4096..BASE + 4160,
            why: ForeignKind::Freed("old".into()),
        },
        Foreign {
            at: 0x7f00_0000_0000..0x7f00_0000_1000,
            why: ForeignKind::Host,
        },
    ];
    let found = |pointer: u64| {
        let arguments = Arguments {
            placed: vec![Placed::filled(
                "table",
                BASE,
                pointer.to_le_bytes().to_vec(),
            )],
            foreign: foreign.clone().into(),
            ..Arguments::new([Arg::scalar(BASE)])
        };
        let device = Device::named("sim:h200").unwrap();
        let (shape, options) = (Launch::new(1, 1), Options::default());
        let ran = program(0).run(&device, "k", &shape, &arguments, &options);
        let found = ran.unwrap().diagnostics.swap_remove(0);
        (found.code, format!("{} {}", found.message, found.helps[0]))
    };
    for (pointer, code, says) in [
        (
            BASE + 4100,
            rule::USE_AFTER_FREE,
            "byte 4 of `old`, which was given back before this launch",
        ),
        (
            BASE + 4160,
            rule::GLOBAL_OUT_OF_BOUNDS,
            "past the end of `table`",
        ),
        (
            0x7f00_0000_0ffc,
            rule::GLOBAL_OUT_OF_BOUNDS,
            "the host's memory a kernel can't use memory of `malloc`",
        ),
        (
            0x7f00_0000_1000,
            rule::GLOBAL_OUT_OF_BOUNDS,
            "far from all memory of the kernel",
        ),
    ] {
        let (told, words) = found(pointer);
        assert_eq!(told, code, "{pointer:#x}");
        assert!(words.contains(says), "{pointer:#x}: {words}");
    }
}

#[test]
fn an_address_outside_is_told_with_the_memory_beside_it() {
    let table = Placed::filled("table", BASE, (BASE + 4160).to_le_bytes().to_vec());
    let data = Placed::filled("data", BASE + 4096, vec![0; 64]);
    let found = launch(&program(0), BASE, vec![table, data]).diagnostics;
    assert_eq!(found[0].code, rule::GLOBAL_OUT_OF_BOUNDS);
    assert!(
        found[0].message.contains("past the end of `data`"),
        "{}",
        found[0].message
    );
    let helps = |table: u64| {
        let table = Placed::filled("table", BASE, table.to_le_bytes().to_vec());
        let found = launch(&program(0), BASE, vec![table]).diagnostics;
        assert_eq!(found[0].code, rule::GLOBAL_OUT_OF_BOUNDS);
        found[0].helps.join("; ")
    };
    assert!(helps(BASE + 4160).contains("the buffer's length"));
    // An offset in shared memory, taken for a pointer.
    assert!(helps(64).contains("`cvta`"), "{}", helps(64));
}

/// `take` stores a pointer that it got from `malloc`, and 7 there; `give` reads it and frees it.
const HEAP: &str = "
    .version 8.0
    .target sm_80
    .address_size 64
    .extern .func (.param .b64 out) malloc (.param .b64 size);
    .extern .func free (.param .b64 pointer);
    .visible .entry take(.param .u64 table) {
        .reg .b32 %r<2>; .reg .b64 %rd<4>;
        ld.param.u64 %rd1, [table];
        mov.u64 %rd2, 8;
        {
        .param .b64 size; .param .b64 out;
        st.param.b64 [size], %rd2;
        call.uni (out), malloc, (size);
        ld.param.b64 %rd3, [out];
        }
        st.global.u64 [%rd1], %rd3;
        mov.u32 %r1, 7;
        st.u32 [%rd3], %r1;
        ret;
    }
    .visible .entry give(.param .u64 table) {
        .reg .b32 %r<2>; .reg .b64 %rd<4>;
        ld.param.u64 %rd1, [table];
        ld.global.u64 %rd3, [%rd1];
        ld.u32 %r1, [%rd3];
        st.global.u32 [%rd1], %r1;
        {
        .param .b64 pointer;
        st.param.b64 [pointer], %rd3;
        call.uni free, (pointer);
        }
        ret;
    }";

#[test]
fn what_a_kernel_allocates_outlives_it_until_a_kernel_frees_it() {
    let source = heist_ptx::Source::new("heap.ptx", HEAP);
    let program = Program::based(heist_ptx::parse(&source).unwrap(), BASE + (1 << 30)).unwrap();
    let run = |entry: &str, placed: Vec<Placed>| {
        let arguments = Arguments {
            placed,
            ..Arguments::new([Arg::scalar(BASE)])
        };
        let device = Device::named("sim:h200").unwrap();
        let options = Options::default();
        let report = program.run(&device, entry, &Launch::new(1, 1), &arguments, &options);
        let report = report.unwrap();
        let codes: Vec<String> = report
            .diagnostics
            .iter()
            .map(|d| d.code.to_string())
            .collect();
        (report.placed, codes)
    };
    let table = Placed::filled("table", BASE, vec![0; 8]);
    let (taken, codes) = run("take", vec![table]);
    assert!(codes.is_empty(), "{codes:?}");
    let (again, codes) = run("take", taken.clone());
    assert!(codes.is_empty(), "{codes:?}");
    let (_, codes) = run("take", again.clone());
    assert!(
        codes.is_empty(),
        "memory of two launches is told apart: {codes:?}"
    );
    let heap = |placed: &[Placed]| placed.iter().filter(|one| one.name != "table").count();
    assert_eq!(
        (heap(&taken), heap(&again)),
        (1, 2),
        "each has an address of its own"
    );
    assert_eq!(
        again.iter().filter(|one| one.written.is_some()).count(),
        2,
        "4 of 8 bytes"
    );
    let (given, codes) = run("give", taken);
    assert!(codes.is_empty(), "{codes:?}");
    assert_eq!((heap(&given), word(&given, "table")), (0, 7));
    // The host's memory is not the kernel's to give back.
    let own = Placed::filled("table", BASE, BASE.to_le_bytes().to_vec());
    let (_, codes) = run("give", vec![own]);
    assert_eq!(codes, ["X028"]);
}

/// Each block adds one to a counter and stores its number; with many blocks they run on several threads of the host.
const COUNT: &str = "
    .version 8.0
    .target sm_80
    .address_size 64
    .visible .entry k(.param .u64 to) {
        .reg .b32 %r<4>; .reg .b64 %rd<4>;
        ld.param.u64 %rd1, [to];
        mov.u32 %r1, %ctaid.x;
        mad.wide.u32 %rd2, %r1, 4, %rd1;
        ld.global.u32 %r2, [%rd2];
        add.u32 %r2, %r2, %r1;
        st.global.u32 [%rd2], %r2;
        ATOMIC
        ret;
    }";

#[test]
fn what_a_kernel_touches_is_told_where_it_is_asked_for() {
    for (atomic, blocks) in [("", 128), ("red.global.add.u32 [%rd1+1024], 1;", 16)] {
        let text = COUNT.replace("ATOMIC", atomic);
        let source = heist_ptx::Source::new("count.ptx", text);
        let program = Program::based(heist_ptx::parse(&source).unwrap(), 0).unwrap();
        let arguments = Arguments {
            placed: vec![
                Placed::filled("to", BASE, vec![0; 2048]),
                Placed::filled("other", BASE + (1 << 20), vec![0; 64]),
            ],
            ..Arguments::new([Arg::scalar(BASE)])
        };
        let device = Device::named("sim:h200").unwrap();
        let run = |touched| {
            let options = Options {
                touched,
                threads: 2,
                ..Options::default()
            };
            let shape = Launch::new(blocks, 1);
            let ran = program.run(&device, "k", &shape, &arguments, &options);
            ran.unwrap()
        };
        assert_eq!(run(false).touched, []);
        let plain = |blocks: u32| u128::MAX >> (128 - 4 * blocks.min(32));
        let mut lines: Vec<_> = (0..blocks.div_ceil(32))
            .map(|line| (line, [plain(blocks), plain(blocks), 0, 0]))
            .collect();
        if !atomic.is_empty() {
            lines.push((8, [0, 0, 0, 0xf]));
        }
        assert_eq!(run(true).touched, [Touched { at: BASE, lines }], "{atomic}");
    }
}
