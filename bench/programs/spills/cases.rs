//! What is assembled: problems, tiles and schedules.

mod others;
mod tiles;

use heist_builder::Arch;
use heist_kernels::catalogue::{Settings, entry};
use heist_kernels::gemm::{
    Activation, Epilogue, Gemm, Input, Layout, Output, Scales, Spread, Summing,
};
use heist_kernels::grouped::Grouped;
use heist_kernels::{Job, Target, Tuned};
use heist_sched::{Class, Classes, Schedule, Watch};
use std::fmt;

/// How a case was come by, in the order in which they are assembled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    /// What the family takes by itself.
    Chosen,
    /// The widest tiles of a kind that can be built.
    Widest,
    /// Any tiles.
    Drawn,
}

/// A problem in words, its tiles, and a schedule.
pub(crate) struct Case {
    pub(crate) stage: Stage,
    pub(crate) arch: &'static str,
    kernel: &'static str,
    told: String,
    /// Tile shapes of which the first is taken that can be built; none where the choice is the family's.
    tilings: Vec<String>,
    /// Its own where there is none.
    schedule: Option<String>,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kernel, self.told)?;
        if let Some(first) = self.tilings.first() {
            write!(f, " config={first}")?;
        }
        if self.tilings.len() > 1 {
            f.write_str(" or narrower")?;
        }
        write!(f, ", {}", self.arch)?;
        match &self.schedule {
            Some(schedule) => write!(f, ", {schedule}"),
            None => Ok(()),
        }
    }
}

/// Multiprocessors of a GPU of each kind.
const MACHINES: [(&str, u32); 8] = [
    ("sm_80", 108),
    ("sm_86", 84),
    ("sm_89", 58),
    ("sm_90", 132),
    ("sm_90a", 132),
    ("sm_100a", 148),
    ("sm_100", 148),
    ("sm_120", 170),
];

/// The GPU of an architecture.
fn target(arch: &str) -> Result<Target, String> {
    let machine = MACHINES.iter().find(|(name, _)| *name == arch);
    let known = machine.and_then(|(name, sms)| Some((Arch::parse(name)?, *sms)));
    let (arch, sms) = known.ok_or_else(|| format!("{arch} is no machine of these"))?;
    Ok(Target { arch, sms })
}

/// Reads a schedule: behind its text may stand `classes`, `stats` and `trace`, which no text of a schedule has.
fn schedule(text: &str, tiles: Option<usize>) -> Result<Schedule, String> {
    let (mut text, mut classes, mut watch) = (text, false, Watch::Off);
    while let Some((before, last)) = text.rsplit_once(' ') {
        match last {
            "classes" => classes = true,
            "stats" => watch = Watch::Stats,
            "trace" => watch = Watch::Trace,
            _ => break,
        }
        text = before;
    }
    let schedule: Schedule = text.parse().map_err(|error| format!("{error}"))?;
    let mut schedule = schedule.watch(watch);
    if classes {
        let tiles = tiles.ok_or("classes of an unknown number of tiles")?;
        let of = (0..tiles).map(|tile| Class::ALL[tile % 3]).collect();
        schedule.classes = Some(Classes::new(of));
    }
    Ok(schedule)
}

impl Case {
    /// The launches of a case.
    ///
    /// # Errors
    /// Why there is no such kernel.
    pub(crate) fn job(&self) -> Result<Job, String> {
        if self.tilings.is_empty() {
            return self.job_in(None);
        }
        let mut why = String::new();
        for tiling in &self.tilings {
            match self.job_in(Some(tiling)) {
                Ok(job) => return Ok(job),
                Err(error) => why = error,
            }
        }
        Err(why)
    }

    fn job_in(&self, tiling: Option<&str>) -> Result<Job, String> {
        let words = self.told.split_whitespace().map(str::to_owned);
        let words = words.chain(tiling.map(|tiling| format!("config={tiling}")));
        let told = Settings::from_words(words).map_err(|error| error.to_string())?;
        let tiles = tiling.and_then(|tiling| tiles::count(&told, tiling));
        let given = self.schedule.as_deref();
        let schedule = given.map(|text| schedule(text, tiles)).transpose()?;
        let target = target(self.arch)?;
        let entry = entry(self.kernel).map_err(|error| error.to_string())?;
        let job = entry.launches(&told, schedule.as_ref(), target);
        job.map_err(|error| error.to_string())
    }
}

/// Schedules that take registers beside the tiles: to leave a tile half done, to interpret a policy, to decide in the kernel's own code.
const HARD: [&str; 7] = [
    "ticket late pausing until-asked grouped(16)",
    "ticket late loaded: greedy",
    "ticket early loaded: greedy",
    "ticket late max-steals(4)",
    "ticket late pausing until-asked",
    "ticket late loaded: greedy hilbert",
    "ticket early loaded: greedy grouped(16)",
];

/// The others: every source, other orders, every policy that comes with Heist, classes, and kernels that are watched.
const OTHERS: [&str; 30] = [
    "direct",
    "direct grouped(16)",
    "static",
    "static grouped(16)",
    "ticket early",
    "ticket late",
    "ticket late grouped(16)",
    "ticket late hilbert",
    "ticket late reversed",
    "ticket early max-steals(4)",
    "ticket late until-asked",
    "ticket early until-asked",
    "ticket late never",
    "ticket late every(2)",
    "ticket late time-budget(100us)",
    "ticket early first-half & max-steals(8)",
    "ticket late fraction(0.25)",
    "ticket late fair-share",
    "ticket late token-bucket(500, 4)",
    "ticket late probability(0.75)",
    "ticket late sm-limit(100)",
    "ticket late at-most(64)",
    "ticket late shared-bucket(5000, 200)",
    "ticket late pausing max-steals(4)",
    "ticket late pausing time-budget(100us) hilbert",
    "ticket late loaded: greedy grouped(16)",
    "ticket late stats",
    "ticket late pausing until-asked trace",
    "ticket early loaded: greedy trace",
    "direct trace",
];

/// Those that are given to tiles whose number is known besides.
const WITH_CLASSES: [&str; 2] = ["ticket late classes", "ticket early max-steals(4) classes"];

/// Draws cases.
struct Draw {
    random: fastrand::Rng,
    all: Vec<Case>,
}

impl Draw {
    fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.random.usize(..of.len())]
    }

    /// A side of a matrix, log-uniform, a multiple of `step`.
    fn side(&mut self, least: u32, most: u32, step: u32) -> u32 {
        let (least, most) = (f64::from(least), f64::from(most));
        let side = least * (most / least).powf(self.random.f64());
        (side as u32).next_multiple_of(step)
    }

    fn push(
        &mut self,
        stage: Stage,
        arch: &'static str,
        kernel: &'static str,
        told: &str,
        (tilings, schedule): (Vec<String>, Option<&str>),
    ) {
        self.all.push(Case {
            stage,
            arch,
            kernel,
            told: told.to_owned(),
            tilings,
            schedule: schedule.map(str::to_owned),
        });
    }

    /// A case for each schedule that takes registers, for the kernel's own, and for `others` of the others.
    fn chosen(
        &mut self,
        arch: &'static str,
        kernel: &'static str,
        told: &str,
        hard: &[&'static str],
        others: usize,
    ) {
        let drawn: Vec<_> = (0..others).map(|_| self.one(&OTHERS)).collect();
        let schedules = hard.iter().copied().chain(drawn).map(Some);
        for schedule in schedules.chain([None]) {
            self.push(Stage::Chosen, arch, kernel, told, (Vec::new(), schedule));
        }
    }
}

/// The epilogues that differ in what they read.
fn epilogues() -> [Epilogue; 6] {
    let none = Epilogue::default();
    let with_c = Epilogue { beta: 1.0, ..none };
    let bias = Epilogue {
        bias: true,
        activation: Activation::Gelu,
        ..none
    };
    let full = Epilogue { beta: 1.0, ..bias };
    let [row, column] = [Spread::Row, Spread::Column].map(|spread| Epilogue { spread, ..full });
    [none, with_c, bias, full, row, column]
}

/// Every kind of product: types, layouts, scales, sums and epilogues, of no shape yet.
fn kinds() -> Vec<Gemm> {
    let of = |input, output, layout| Gemm::new(8, 8, 8, input, output, layout);
    let mut plain = Vec::new();
    for (turn, &layout) in Layout::ALL.iter().enumerate() {
        // The types of 16 bits take the same registers: in turns.
        let (input, output) = [(Input::Bf16, Output::Bf16), (Input::F16, Output::F16)][turn % 2];
        plain.push(of(input, output, layout));
        plain.push(of(input, Output::F32, layout));
    }
    plain.push(of(Input::Tf32, Output::F32, Layout::Nt));
    plain.push(of(Input::Tf32, Output::Bf16, Layout::Nt));
    for scales in [Scales::Rows, Scales::Tensor] {
        plain.push(of(Input::Bf16, Output::Bf16, Layout::Nt).scales(scales));
    }
    for (scales, sums) in [
        (Scales::None, Summing::Fast),
        (Scales::None, Summing::Levels),
        (Scales::Tensor, Summing::Fast),
        (Scales::Rows, Summing::Fast),
        (Scales::Rows, Summing::Levels),
        (Scales::Blocks, Summing::Levels),
    ] {
        for output in [Output::Bf16, Output::F32] {
            let one = of(Input::E4m3, output, Layout::Nt).scales(scales);
            plain.push(Gemm { sums, ..one });
        }
    }
    let with = |one: Gemm| epilogues().map(|epilogue| one.epilogue(epilogue));
    plain.into_iter().flat_map(with).collect()
}

/// A kind in a shape.
fn shaped(kind: &Gemm, [m, n, k]: [u32; 3]) -> Gemm {
    let plain = Gemm::new(m, n, k, kind.input, kind.output, kind.layout);
    Gemm {
        scales: kind.scales,
        sums: kind.sums,
        ..plain.epilogue(kind.epilogue)
    }
}

/// Sizes of shapes: rows, columns and depth at least and at most. Many waves, short and deep; one wave; few rows; few tiles of a large depth.
const SIZES: [[(u32, u32); 3]; 6] = [
    [(2048, 8192), (2048, 8192), (1100, 8192)],
    [(1024, 8192), (1024, 8192), (64, 1024)],
    [(256, 2048), (256, 4096), (256, 8192)],
    [(1, 64), (1024, 8192), (512, 8192)],
    [(64, 512), (64, 1024), (4096, 16384)],
    [(65, 1024), (2048, 8192), (1024, 8192)],
];

/// A shape of a size: sides in multiples of 64, of 8 (8-bit floats 16), or as odd as the layout lets them be.
fn drawn(draw: &mut Draw, kind: &Gemm, size: usize) -> [u32; 3] {
    let [m, n, k] = SIZES[size % SIZES.len()];
    let per = 16 / kind.input.bytes();
    let steps = match draw.one(&[64, 64, 8, 1]) {
        64 => [64; 3],
        8 => [8, 8, per],
        _ => match kind.layout {
            Layout::Nt => [1, 1, per],
            Layout::Nn => [1, per, per],
            Layout::Tn => [per, per, 1],
            Layout::Tt => [per, 1, per],
        },
    };
    let [m, n, k] = [(m, steps[0]), (n, steps[1]), (k, steps[2])]
        .map(|((least, most), step)| draw.side(least, most, if least < 64 { 1 } else { step }));
    match kind.layout {
        Layout::Tn | Layout::Tt => [m.next_multiple_of(per), n, k],
        _ => [m, n, k],
    }
}

/// The words of a product, in what order the catalogue takes them.
fn words(problem: &impl Tuned) -> String {
    problem.words().unwrap_or_default()
}

/// Products as they are chosen, on Hopper.
fn chosen_products(draw: &mut Draw) {
    for (number, kind) in kinds().iter().enumerate() {
        for size in 0..SIZES.len() {
            let shape = drawn(draw, kind, size);
            let mut problem = shaped(kind, shape);
            if (number + size) % 7 == 0 && matches!(kind.scales, Scales::None | Scales::Tensor) {
                problem = problem.batch(3);
            }
            draw.chosen("sm_90a", "gemm", &words(&problem), &HARD[..5], 2);
        }
    }
}

/// Kinds of groups, of no rows yet.
fn group_kinds() -> Vec<Grouped> {
    let of = |input, output| Grouped::rows(Vec::new(), 8, 8, input, output);
    let halves = of(Input::Bf16, Output::Bf16);
    let mut all = vec![
        halves.clone(),
        of(Input::F16, Output::F32),
        Grouped {
            layout: Layout::Nn,
            ..halves.clone()
        },
        Grouped {
            check: true,
            ..halves
        },
    ];
    for (scales, sums) in [
        (Scales::None, Summing::Fast),
        (Scales::None, Summing::Levels),
        (Scales::Rows, Summing::Fast),
        (Scales::Rows, Summing::Levels),
        (Scales::Blocks, Summing::Levels),
    ] {
        for output in [Output::Bf16, Output::F32] {
            let one = of(Input::E4m3, output).scales(scales);
            all.push(Grouped { sums, ..one });
        }
    }
    all
}

/// A kind of groups with rows: a few each, tens, hundreds, a thousand; one after the other or masked.
fn with_rows(draw: &mut Draw, kind: &Grouped, size: usize, masked: bool) -> Grouped {
    let (count, most) = [(64, 8), (32, 64), (16, 400), (8, 2048)][size % 4];
    let rows = (0..count)
        .map(|_| draw.random.u32(most / 2..=most))
        .collect();
    let step = draw.one(&[64, 64, 16, 8]).max(16 / kind.input.bytes());
    // Columns may be odd, where B is stored along the depth.
    let odd = kind.layout == Layout::Nt && draw.random.u8(..4) == 0;
    let n = draw.side(512, 8192, if odd { 1 } else { step });
    let k = draw.side(512, 8192, step);
    let plain = match masked {
        true => Grouped::masked(rows, 2048, [n, k], kind.input, kind.output),
        false => Grouped::rows(rows, n, k, kind.input, kind.output),
    };
    Grouped {
        shapes: plain.shapes,
        ..kind.clone()
    }
}

fn chosen_groups(draw: &mut Draw) {
    for kind in group_kinds() {
        for size in 0..4 {
            for masked in [false, true] {
                let problem = with_rows(draw, &kind, size, masked);
                draw.chosen("sm_90a", "grouped-gemm", &words(&problem), &HARD[..5], 2);
            }
        }
    }
}

/// A layer of experts, in words.
fn layer(draw: &mut Draw, size: usize) -> String {
    let (experts, most) = [(64, 8), (32, 64), (16, 256), (8, 1024)][size % 4];
    let per = draw.one(&[1, 2, 8]);
    let rows = (0..experts).map(|_| (draw.random.u32(most / 2..=most) / 8 * 8).max(8));
    let rows: Vec<String> = rows.map(|rows| rows.to_string()).collect();
    let step = draw.one(&[64, 8]);
    let [hidden, inner] = [(); 2].map(|()| draw.side(512, 4096, step));
    let dtype = draw.one(&["bf16", "f16"]);
    format!(
        "rows={} per={per} hidden={hidden} inner={inner} dtype={dtype}",
        rows.join(",")
    )
}

fn chosen_layers(draw: &mut Draw) {
    for size in 0..16 {
        let told = layer(draw, size);
        draw.chosen("sm_90a", "experts", &told, &HARD[..5], 3);
    }
}

/// All cases in their order: by stage, and in each as the seed has them.
pub(crate) fn all(seed: u64) -> Vec<Case> {
    let mut draw = Draw {
        random: fastrand::Rng::with_seed(seed),
        all: Vec::new(),
    };
    chosen_products(&mut draw);
    chosen_groups(&mut draw);
    chosen_layers(&mut draw);
    others::chosen(&mut draw);
    tiles::widest(&mut draw);
    tiles::drawn(&mut draw);
    let Draw {
        mut random,
        mut all,
    } = draw;
    random.shuffle(&mut all);
    all.sort_by_key(|case| case.stage);
    all
}
