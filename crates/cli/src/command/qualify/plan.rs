//! What is checked on a machine: command lines, or the reason why not.

use super::contests::{Contest, contests};
use super::part::Part;
use heist_kernels::catalogue::{self, Entry, Settings};
use heist_kernels::synthetic::Workload;
use heist_kernels::{KernelError, Target};
use heist_launch::Dim3;
use heist_run::{Device, DeviceName};
use heist_sched::TileSource;
use std::path::PathBuf;

/// The machine that is looked at.
#[derive(Clone, Debug)]
pub(super) struct Machine {
    pub(super) name: String,
    pub(super) target: Target,
    /// What the driver is; a simulated GPU has none.
    pub(super) driver: Option<String>,
}

impl Machine {
    pub(super) fn of(device: &Device) -> Result<Machine, String> {
        let driver = match device {
            Device::Sim(_) => None,
            Device::Gpu(gpu) => Some(gpu.info().driver.to_string()),
        };
        Ok(Machine {
            name: device.label(),
            target: Target {
                arch: device.arch().map_err(|error| error.to_string())?,
                sms: device.sms(),
            },
            driver,
        })
    }
}

/// One check.
#[derive(Clone, Debug)]
pub(super) struct Check {
    pub(super) part: Part,
    /// What this program is called with.
    pub(super) words: Vec<String>,
    /// Why it does not run here.
    pub(super) skipped: Option<String>,
}

impl Check {
    /// As a person types it.
    pub(super) fn command(&self) -> String {
        let quoted =
            self.words
                .iter()
                .map(|word| match word.chars().any(|c| " &|!()'".contains(c)) {
                    true => format!("'{word}'"),
                    false => word.clone(),
                });
        format!("heist {}", quoted.collect::<Vec<_>>().join(" "))
    }
}

/// How checks are made.
pub(super) struct Plan<'p> {
    pub(super) device: DeviceName,
    pub(super) machine: &'p Machine,
    /// The Python of the peers, where there are any.
    pub(super) python: Option<&'p PathBuf>,
    pub(super) schedules: u32,
    pub(super) seed: u64,
    pub(super) files: &'p [PathBuf],
}

const SOURCES: [TileSource; 4] = [
    TileSource::Clc,
    TileSource::Ticket,
    TileSource::Static,
    TileSource::Direct,
];
const POLICIES: [&str; 14] = [
    "greedy",
    "never",
    "max-steals(3)",
    "every(2)",
    "time-budget(20us)",
    "first-half",
    "fraction(0.25)",
    "fair-share",
    "token-bucket(500, 4)",
    "probability(0.5)",
    "sm-limit(40)",
    "at-most(16)",
    "max-steals(8) & first-half",
    "every(3) | !probability(0.25)",
];
const ORDERS: [&str; 4] = ["linear", "reversed", "grouped(4)", "hilbert"];
const CLUSTERS: [&str; 5] = ["1x1", "2x1", "1x2", "2x2", "4x1"];

/// Problems of each kernel: an even one, and one with edges everywhere.
const PROBLEMS: [(&str, &[&str]); 11] = [
    ("gemm", &["m=512", "n=512", "k=512"]),
    ("gemm", &["m=300", "n=200", "k=136", "out=f32", "layout=nn"]),
    (
        "gemm",
        &["m=200", "n=264", "k=272", "dtype=e4m3", "scales=rows"],
    ),
    (
        "gemm",
        &["m=200", "n=264", "k=272", "dtype=e4m3", "scales=mx"],
    ),
    ("grouped-gemm", &["rows=40,500,0,1,129", "n=256", "k=128"]),
    (
        "grouped-gemm",
        &["rows=7,300", "n=136", "k=72", "dtype=f16"],
    ),
    ("attention", &["batch=2", "heads=4", "queries=512"]),
    (
        "attention",
        &["lengths=17,300,5", "heads=4", "kv-heads=2", "mask=causal"],
    ),
    (
        "attention",
        &["batch=3", "queries=1", "keys=700", "heads=8", "kv-heads=2"],
    ),
    ("attention-backward", &["batch=1", "heads=4", "queries=256"]),
    (
        "attention-backward",
        &["lengths=100,33", "heads=2", "mask=causal"],
    ),
];

impl Plan<'_> {
    /// The checks of a part.
    pub(super) fn checks(&self, part: Part) -> Vec<Check> {
        match part {
            Part::Files => vec![self.files()],
            Part::Schedules => self.schedules(),
            Part::Kernels => self.kernels(),
            Part::Table => self.table(),
            Part::Bench => self.bench(),
        }
    }

    /// A run of something on the device.
    fn run(&self, part: Part, words: Vec<String>, skipped: Option<String>) -> Check {
        let mut all = vec!["run".to_owned()];
        all.extend(words);
        all.extend(["--device".to_owned(), self.device.to_string()]);
        Check {
            part,
            words: all,
            skipped,
        }
    }

    fn files(&self) -> Check {
        let kind = match self.device {
            DeviceName::Sim(_) => "sim",
            DeviceName::Gpu(_) => "gpu",
        };
        let mut words = vec![
            "selftest".to_owned(),
            "--device".to_owned(),
            kind.to_owned(),
        ];
        words.extend(self.files.iter().map(|path| path.display().to_string()));
        let here = !self.files.is_empty() || PathBuf::from("tests/ptx").is_dir();
        let skipped = match self.device {
            DeviceName::Gpu(number) if number > 0 => {
                Some(format!("test files run on the first GPU, not on number {number}"))
            }
            _ if !here => Some(
                "there are no test files here: run it at the root of the repository, or name them with --files"
                    .to_owned(),
            ),
            _ => None,
        };
        Check {
            part: Part::Files,
            words,
            skipped,
        }
    }

    /// Why a source can't be used here.
    fn lacks(&self, source: TileSource, cluster: Dim3) -> Option<String> {
        let refused = source.check(self.machine.target.arch, cluster);
        refused.err().map(|error| error.to_string())
    }

    /// Random schedules of random workloads. Each is drawn whole before it is known whether the
    /// machine has its source, so that a number means the same schedule everywhere.
    fn schedules(&self) -> Vec<Check> {
        let mut dice = Dice(self.seed);
        let drawn = (0..self.schedules).map(|_| {
            let workload = dice.pick(&Workload::ALL);
            let source = dice.pick(&SOURCES);
            let submit = dice.pick(&["early", "late"]);
            let cluster = dice.pick(&CLUSTERS);
            let tiles = 1 + dice.below(3000);
            let words = [
                workload.as_str(),
                "--tiles",
                &tiles.to_string(),
                "--mean",
                "30",
                "--seed",
                &dice.below(1000).to_string(),
                "--source",
                source.as_str(),
                "--policy",
                dice.pick(&POLICIES),
                "--order",
                dice.pick(&ORDERS),
                "--submit",
                submit,
                "--cluster",
                cluster,
            ]
            .map(str::to_owned);
            let lacks = match cluster.parse() {
                Ok(cluster) => self.lacks(source, cluster),
                Err(_) => None,
            };
            self.run(Part::Schedules, words.to_vec(), lacks)
        });
        drawn.collect()
    }

    fn kernels(&self) -> Vec<Check> {
        let mut all = Vec::new();
        for (name, problem) in PROBLEMS {
            let Ok(entry) = catalogue::entry(name) else {
                continue;
            };
            for (variant, _) in entry.variants() {
                let mut words = vec![name.to_owned()];
                words.extend(problem.iter().map(|word| (*word).to_owned()));
                words.push(format!("variant={variant}"));
                let skipped = self.unfit(entry, &words[1..]);
                all.push(self.run(Part::Kernels, words, skipped));
            }
        }
        all
    }

    /// Why a kernel can't solve this here. Anything else that is wrong with it is found by the
    /// run.
    fn unfit(&self, entry: &dyn Entry, words: &[String]) -> Option<String> {
        let settings = Settings::from_words(words).ok()?;
        match entry.launches(&settings, None, self.machine.target) {
            Err(KernelError::Unfit(why)) => Some(why),
            _ => None,
        }
    }

    /// Ours beside the peers, where these are installed.
    fn bench(&self) -> Vec<Check> {
        let contest = |(family, problem): Contest| {
            let mut words = vec!["bench".to_owned(), family.to_owned()];
            words.extend(problem.split(' ').map(str::to_owned));
            let skipped = match (self.device, catalogue::entry(family)) {
                (DeviceName::Sim(_), _) => Some("a simulated GPU's time is a model".to_owned()),
                (_, Ok(entry)) => self.unfit(entry, &words[2..]),
                (_, Err(error)) => Some(error.to_string()),
            };
            words.extend(["--rounds", "10", "--warm-up", "100", "--device"].map(str::to_owned));
            words.push(self.device.to_string());
            match self.python {
                Some(python) => words.extend(["--python".to_owned(), python.display().to_string()]),
                None => words.push("--no-peers".to_owned()),
            }
            Check {
                part: Part::Bench,
                words,
                skipped,
            }
        };
        let all = contests(self.machine.target.sms);
        all.into_iter().map(contest).collect()
    }

    /// One uneven workload under every source and several policies.
    fn table(&self) -> Vec<Check> {
        let mut all = Vec::new();
        for source in SOURCES {
            let asks = source.asks();
            let policies: &[&str] = match asks {
                true => &["greedy", "max-steals(4)", "first-half", "time-budget(50us)"],
                false => &["greedy"],
            };
            let moments: &[&str] = if asks { &["early", "late"] } else { &["early"] };
            for policy in policies {
                for submit in moments {
                    let words = [
                        "power-law",
                        "--source",
                        source.as_str(),
                        "--policy",
                        policy,
                        "--submit",
                        submit,
                    ];
                    let words = words.map(str::to_owned).to_vec();
                    let lacks = self.lacks(source, Dim3::ONE);
                    all.push(self.run(Part::Table, words, lacks));
                }
            }
        }
        all
    }
}

/// Numbers that a seed fixes (SplitMix64).
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % end.max(1)
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use heist_ptx::arch::Arch;

    fn checks(arch: Arch, part: Part) -> Vec<Check> {
        let machine = Machine {
            name: "a machine".into(),
            target: Target { arch, sms: 148 },
            driver: None,
        };
        let plan = Plan {
            device: DeviceName::Gpu(0),
            machine: &machine,
            python: None,
            schedules: 200,
            seed: 7,
            files: &[],
        };
        plan.checks(part)
    }

    fn has(check: &Check, word: &str) -> bool {
        check.words.iter().any(|one| one == word)
    }

    #[test]
    fn what_a_gpu_has_runs_and_what_it_lacks_is_skipped_with_the_reason() {
        let whys = |arch, part, word: &str| -> Vec<Option<String>> {
            let all = checks(arch, part).into_iter();
            all.filter(|check| has(check, word))
                .map(|check| check.skipped)
                .collect()
        };
        for (arch, variant, runs) in [
            (Arch::SM_100A, "variant=tcgen05", true),
            (Arch::SM_100A, "variant=wgmma", false),
            (Arch::SM_90A, "variant=tcgen05", false),
            (Arch::SM_90A, "variant=wgmma", true),
            (Arch::SM_120, "variant=tcgen05", false),
        ] {
            let found = whys(arch, Part::Kernels, variant);
            assert!(found.len() >= 3, "{variant}: {}", found.len());
            let ran = found.iter().filter(|why| why.is_none()).count();
            assert_eq!(ran > 0, runs, "{arch} {variant}: {found:?}");
        }
        for part in [Part::Schedules, Part::Table] {
            for (arch, runs) in [
                (Arch::SM_100A, true),
                (Arch::SM_120, true),
                (Arch::SM_90A, false),
            ] {
                let found = whys(arch, part, "clc");
                assert!(!found.is_empty());
                assert!(
                    found.iter().all(|why| why.is_none() == runs),
                    "{arch} {found:?}"
                );
            }
        }
    }

    #[test]
    fn what_is_timed_is_what_the_gpu_has_without_peers_where_there_are_none() {
        for (arch, has_scales) in [(Arch::SM_100A, true), (Arch::SM_90A, false)] {
            for check in checks(arch, Part::Bench) {
                assert!(has(&check, "--no-peers"), "{}", check.command());
                let runs = has_scales || !has(&check, "scales=mx");
                assert_eq!(check.skipped.is_none(), runs, "{check:?}");
            }
        }
    }

    #[test]
    fn random_schedules_are_the_same_on_every_machine_and_use_every_part() {
        let commands = |arch| -> Vec<String> {
            checks(arch, Part::Schedules)
                .iter()
                .map(Check::command)
                .collect()
        };
        let all = commands(Arch::SM_100A);
        assert_eq!(all, commands(Arch::SM_80));
        for word in SOURCES
            .map(TileSource::as_str)
            .into_iter()
            .chain(POLICIES)
            .chain(ORDERS)
            .chain(CLUSTERS)
        {
            assert!(all.iter().any(|command| command.contains(word)), "{word}");
        }
    }
}
