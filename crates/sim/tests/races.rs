//! The race detector beside a plain one that compares every access with every other.
//!
//! Random straight-line kernels of one block read, write and add to shared and
//! global memory, by bytes up to vectors and by all or some of the threads, with
//! barriers of the block and of the warp in between. What is
//! unordered in such a kernel can be said without running it, so every race that
//! the simulator finds must be one, and where there is one it must find one.
//! `HEIST_RACES` says how many kernels are run, and `HEIST_RACES_FIRST` at which
//! one to begin:
//!
//! `HEIST_RACES=100000 cargo test --release -p heist-sim --test races -- --nocapture`

use heist_launch::{Arg, Arguments, Launch};
use heist_sim::{Device, Options, Program};
use std::collections::BTreeSet;
use std::fmt::Write;

const BYTES: u32 = 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Space {
    Shared,
    Global,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Read,
    Write,
    Add,
}

/// The word that a thread accesses.
#[derive(Clone, Copy, Debug)]
enum Place {
    /// `thread * factor + offset`.
    Strided { factor: u32, offset: u32 },
    /// `(thread ^ mask) + offset`.
    Mixed { mask: u32, offset: u32 },
    /// `(thread >> shift) + offset`.
    Together { shift: u32, offset: u32 },
}

impl Place {
    fn word(self, thread: u32) -> u32 {
        let word = match self {
            Place::Strided { factor, offset } => thread * factor + offset,
            Place::Mixed { mask, offset } => (thread ^ mask) + offset,
            Place::Together { shift, offset } => (thread >> shift) + offset,
        };
        word % (BYTES / 4)
    }

    fn ptx(self) -> String {
        let (first, offset) = match self {
            Place::Strided { factor, offset } => (format!("mul.lo.u32 w, t, {factor};"), offset),
            Place::Mixed { mask, offset } => (format!("xor.b32 w, t, {mask};"), offset),
            Place::Together { shift, offset } => (format!("shr.u32 w, t, {shift};"), offset),
        };
        let last = BYTES / 4 - 1;
        format!("{first} add.u32 w, w, {offset}; and.b32 w, w, {last}; shl.b32 w, w, 2;")
    }
}

/// How much a thread accesses, at its word or just below it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Width {
    /// Bytes as one number.
    One(u32),
    /// Two or four words as a vector.
    Words(u32),
    /// A row of a matrix, by the lane that gives its address.
    Row,
}

impl Width {
    fn bytes(self) -> u32 {
        match self {
            Width::One(bytes) => bytes,
            Width::Words(count) => 4 * count,
            Width::Row => 16,
        }
    }

    /// The modifiers, and a register of that size for `name`.
    fn ptx(self, name: char) -> (String, String) {
        match self {
            Width::One(8) => ("u64".to_owned(), format!("{name}l")),
            Width::One(bytes) => (format!("u{}", bytes * 8), name.to_string()),
            Width::Words(2) => ("v2.u32".to_owned(), format!("{{{name}, {name}1}}")),
            Width::Words(_) | Width::Row => (
                "v4.u32".to_owned(),
                format!("{{{name}, {name}1, {name}2, {name}3}}"),
            ),
        }
    }
}

/// The threads that take part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Who {
    All,
    Below(u32),
    /// Those with this bit in their number.
    With(u32),
}

impl Who {
    fn takes_part(self, thread: u32) -> bool {
        match self {
            Who::All => true,
            Who::Below(end) => thread < end,
            Who::With(bit) => thread & bit != 0,
        }
    }

    fn guard(self) -> String {
        match self {
            Who::All => String::new(),
            Who::Below(end) => format!("setp.lt.u32 q, t, {end}; @q "),
            Who::With(bit) => format!("and.b32 v, t, {bit}; setp.ne.u32 q, v, 0; @q "),
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Access {
        kind: Kind,
        space: Space,
        place: Place,
        width: Width,
        who: Who,
    },
    Barrier,
    WarpBarrier,
}

/// Numbers drawn from a seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: usize) -> usize {
        // Knuth's multiplier; the high bits are the good ones.
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % end
    }

    fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }
}

#[derive(Debug)]
struct Kernel {
    threads: u32,
    /// Whether global memory is said to be an input, which the kernel may still write.
    input: bool,
    steps: Vec<Step>,
}

impl Kernel {
    fn number(number: u64) -> Kernel {
        let mut dice = Dice(number.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0x5DEE_CE66);
        for _ in 0..4 {
            dice.below(2);
        }
        // Some kernels are careful, others are not.
        let careful = dice.of(&[1, 3, 6]);
        let mut steps = Vec::new();
        for _ in 0..2 + dice.below(10) {
            let offset = dice.of(&[0, 0, 0, 1, 32, 64]);
            let place = match dice.below(6) {
                0..3 => Place::Strided {
                    factor: dice.of(&[1, 1, 2, 4]),
                    offset,
                },
                3 => Place::Mixed {
                    mask: dice.of(&[1, 16, 31, 32]),
                    offset,
                },
                _ => Place::Together {
                    shift: dice.of(&[1, 5, 9]),
                    offset,
                },
            };
            let kind = dice.of(&[Kind::Read, Kind::Read, Kind::Write, Kind::Add]);
            let space = dice.of(&[Space::Shared, Space::Shared, Space::Global]);
            let rows = kind == Kind::Read && space == Space::Shared && dice.below(4) == 0;
            steps.push(Step::Access {
                kind,
                space,
                place,
                width: if kind == Kind::Add {
                    Width::One(4)
                } else if rows {
                    Width::Row
                } else {
                    let (one, words) = (Width::One, Width::Words);
                    dice.of(&[one(4), one(4), one(2), one(1), one(8), words(2), words(4)])
                },
                // All lanes load a matrix together.
                who: if rows {
                    Who::All
                } else {
                    dice.of(&[
                        Who::All,
                        Who::All,
                        Who::All,
                        Who::Below(1),
                        Who::Below(17),
                        Who::Below(33),
                        Who::With(2),
                    ])
                },
            });
            if dice.below(7) < careful {
                steps.push(dice.of(&[Step::Barrier, Step::Barrier, Step::WarpBarrier]));
            }
        }
        Kernel {
            threads: dice.of(&[32, 64, 96]),
            input: dice.below(2) == 0,
            steps,
        }
    }

    /// The text, a line for each step from the returned line on.
    fn ptx(&self) -> (String, usize) {
        let mut text = format!(
            ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 data)\n{{\n\
             .reg .b32 t, t1, t2, t3, w, v, v1, v2, v3, a; .reg .b64 tl, vl; .reg .b64 g, p; .reg .pred q;\n.shared .align 16 .b8 s[{BYTES}];\n\
             ld.param.u64 g, [data]; mov.u32 t, %tid.x;\n\
             mov.u32 t1, t; mov.u32 t2, t; mov.u32 t3, t; cvt.u64.u32 tl, t; shl.b32 w, t, 2; mov.u32 a, s; add.u32 a, a, w;\n\
             clear: st.shared.u32 [a], 0; add.u32 w, w, {stride}; add.u32 a, a, {stride};\n\
             setp.lt.u32 q, w, {BYTES}; @q bra clear; bar.sync 0;\n",
            stride = self.threads * 4
        );
        let first = text.lines().count() + 1;
        for step in &self.steps {
            let line = match step {
                Step::Barrier => "bar.sync 0;".to_owned(),
                Step::WarpBarrier => "bar.warp.sync 0xffffffff;".to_owned(),
                Step::Access {
                    kind,
                    space,
                    place,
                    width,
                    who,
                } => {
                    let (name, base, address) = match space {
                        Space::Shared => ("shared", "mov.u32 a, s; add.u32 a, a, w;", "[a]"),
                        Space::Global => ("global", "cvt.u64.u32 p, w; add.u64 p, p, g;", "[p]"),
                    };
                    let access = match kind {
                        Kind::Read if *width == Width::Row => format!(
                            "ldmatrix.sync.aligned.m8n8.x4.{name}.b16 {{v, v1, v2, v3}}, {address};"
                        ),
                        Kind::Read => {
                            let (ty, to) = width.ptx('v');
                            format!("ld.{name}.{ty} {to}, {address};")
                        }
                        Kind::Write => {
                            let (ty, from) = width.ptx('t');
                            format!("st.{name}.{ty} {address}, {from};")
                        }
                        Kind::Add => format!("red.{name}.add.u32 {address}, 1;"),
                    };
                    let align = format!("and.b32 w, w, -{};", width.bytes().max(4));
                    format!("{} {align} {base} {}{access}", place.ptx(), who.guard())
                }
            };
            let _ = writeln!(text, "{line}");
        }
        text.push_str("ret;\n}\n");
        (text, first)
    }

    /// The steps that take part in a race.
    fn racing(&self) -> BTreeSet<usize> {
        struct One {
            step: usize,
            thread: u32,
            kind: Kind,
            space: Space,
            bytes: std::ops::Range<u32>,
            /// Barriers of the block, and of any kind, that came before.
            since: [u32; 2],
        }
        let mut all: Vec<One> = Vec::new();
        let mut since = [0, 0];
        for (step, one) in self.steps.iter().enumerate() {
            match *one {
                Step::Barrier => since = since.map(|count| count + 1),
                Step::WarpBarrier => since[1] += 1,
                Step::Access {
                    kind,
                    space,
                    place,
                    width,
                    who,
                } => {
                    let bytes = width.bytes();
                    for thread in (0..self.threads).filter(|&one| who.takes_part(one)) {
                        let at = place.word(thread) * 4 / bytes.max(4) * bytes.max(4);
                        all.push(One {
                            step,
                            thread,
                            kind,
                            space,
                            bytes: at..at + bytes,
                            since,
                        });
                    }
                }
            }
        }
        let mut racing = BTreeSet::new();
        for (index, one) in all.iter().enumerate() {
            for other in &all[index + 1..] {
                let apart =
                    one.bytes.end <= other.bytes.start || other.bytes.end <= one.bytes.start;
                let writes = one.kind != Kind::Read || other.kind != Kind::Read;
                let atomic = one.kind == Kind::Add && other.kind == Kind::Add;
                let same_warp = one.thread / 32 == other.thread / 32;
                let level = usize::from(same_warp);
                if one.thread != other.thread
                    && one.space == other.space
                    && !apart
                    && writes
                    && !atomic
                    && one.since[level] == other.since[level]
                {
                    racing.extend([one.step, other.step]);
                }
            }
        }
        racing
    }

    /// How the simulator's findings differ from what is so.
    fn check(&self, seed: u64) -> Result<bool, String> {
        let (text, first) = self.ptx();
        let source = heist_ptx::Source::new("races.ptx", text);
        let module = heist_ptx::parse(&source).map_err(|errors| format!("{errors:?}"))?;
        let program = Program::new(module).map_err(|errors| format!("{errors:?}"))?;
        let words: Vec<u32> = vec![0; BYTES as usize / 4];
        let arguments = Arguments::new([match self.input {
            true => Arg::input(&words),
            false => Arg::in_out(&words),
        }]);
        // What is read is dropped, and is a race all the same.
        let mut options = Options {
            seed,
            ..Options::default()
        };
        options.checks.same_value = true;
        let device = Device::named("h200").expect("a device");
        let launch = Launch::new(1, self.threads);
        let report = program
            .run(&device, "k", &launch, &arguments, &options)
            .map_err(|errors| format!("{errors:?}"))?;
        let racing = self.racing();
        for found in &report.diagnostics {
            let line = source.position(found.span).line as usize;
            let step = line.checked_sub(first);
            if !found.code.0.starts_with('R') || !step.is_some_and(|step| racing.contains(&step)) {
                return Err(format!(
                    "{} at line {line}: {}\nracing are the lines {:?}\n{}",
                    found.code,
                    found.message,
                    racing.iter().map(|step| step + first).collect::<Vec<_>>(),
                    source.text()
                ));
            }
        }
        if report.diagnostics.is_empty() && !racing.is_empty() {
            return Err(format!(
                "nothing found, and {racing:?} race\n{}",
                source.text()
            ));
        }
        Ok(!racing.is_empty())
    }
}

fn from_environment(name: &str, otherwise: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name}={text}")),
        Err(_) => otherwise,
    }
}

#[test]
fn a_race_is_found_where_there_is_one_and_nowhere_else() {
    let first = from_environment("HEIST_RACES_FIRST", 0);
    let count = from_environment("HEIST_RACES", 400);
    let mut racy = 0;
    for number in first..first + count {
        match Kernel::number(number).check(number % 3) {
            Ok(races) => racy += u64::from(races),
            Err(why) => panic!("kernel {number}: {why}"),
        }
    }
    println!("{count} kernels from {first} on, {racy} with a race");
    // Kernels that all race, or none of which does, would show little.
    assert!(
        racy > count / 8 && racy < count - count / 8,
        "{racy} of {count} race"
    );
}
