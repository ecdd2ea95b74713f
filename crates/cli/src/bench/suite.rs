//! The problems that are measured: the shapes that people ask about, each with
//! the kernels of ours and of others that solve it.

use super::peers::{Problem, Tensor};
use super::{Candidate, Contest};
use heist::job::{JobError, OnGpu, output_of};
use heist_gpu::{Gpu, GpuError, KernelInfo, PtxText, Stream};
use heist_kernels::catalogue::{self, Parameter, Settings};
use heist_kernels::{Job, KernelError, Step, Target};
use heist_launch::{Arg, Buffer, ElementType, Launch};
use heist_sched::{Schedule, TileSource};
use heist_tune::Candidate as Tuned;
use serde_json::json;

/// One of our kernels in a contest: its settings besides the problem.
#[derive(Clone, Debug)]
pub struct Ours {
    /// What it is called.
    pub name: String,
    /// Settings on top of the problem's.
    pub told: Vec<(&'static str, String)>,
    /// Its schedule; its own unless given.
    pub schedule: Option<Schedule>,
    /// What the tuner found for the problem, which says both.
    pub tuned: Option<Tuned>,
}

impl Ours {
    /// The kernel that suits best.
    fn best() -> Ours {
        Ours {
            name: "best".into(),
            told: Vec::new(),
            schedule: None,
            tuned: None,
        }
    }

    /// The attention that suits best, its weights in two terms.
    fn split_weights() -> Ours {
        Ours {
            name: "split weights".into(),
            told: vec![("weights", "split".into())],
            schedule: None,
            tuned: None,
        }
    }

    /// The gradients that suit best, the same bits in every run.
    fn deterministic() -> Ours {
        Ours {
            name: "deterministic".into(),
            told: vec![("deterministic", "true".into())],
            schedule: None,
            tuned: None,
        }
    }

    /// What the tuner found.
    pub fn tuned(candidate: Tuned) -> Ours {
        Ours {
            name: format!("tuned: {candidate}"),
            told: Vec::new(),
            schedule: None,
            tuned: Some(candidate),
        }
    }

    /// A variant by name.
    fn variant(name: &str) -> Ours {
        Ours {
            name: name.to_owned(),
            told: vec![("variant", name.to_owned())],
            schedule: None,
            tuned: None,
        }
    }
}

/// A contest before it is on a GPU.
#[derive(Clone, Debug)]
pub struct Spec {
    /// The kernel family.
    pub family: &'static str,
    /// What it is called in the table.
    pub name: String,
    /// The problem.
    pub told: Settings,
    /// Ours.
    pub ours: Vec<Ours>,
    /// Theirs.
    pub peers: &'static [&'static str],
    /// Calls in a sample's graph: many where a call is short.
    pub calls: u32,
}

impl Spec {
    /// A contest of a family's best kernel over a problem, against all its peers.
    ///
    /// # Errors
    /// When there is no such family, or a word is not of the form name=value.
    pub fn new(family: &str, words: &[String]) -> Result<Spec, KernelError> {
        let entry = catalogue::entry(family)?;
        let name = if words.is_empty() {
            family.to_owned()
        } else {
            format!("{family} {}", words.join(" "))
        };
        Ok(Spec {
            family: entry.name(),
            name,
            told: Settings::from_words(words)?,
            ours: vec![Ours::best()],
            peers: peers_of(entry.name()),
            calls: 1,
        })
    }

    /// Puts it on a GPU.
    ///
    /// # Errors
    /// When a kernel can't be built for the GPU, or does not fit into its memory.
    pub fn contest(&self, gpu: &Gpu, target: Target) -> Result<Contest<'static>, JobError> {
        let entry = catalogue::entry(self.family)?;
        let mut contest: Option<Contest<'static>> = None;
        let mut codes: Vec<Vec<Code>> = Vec::new();
        for ours in &self.ours {
            let mut told = self.told.clone();
            for (name, value) in &ours.told {
                told.set(*name, value.clone());
            }
            let prepared = match &ours.tuned {
                Some(candidate) => entry.tuned(&told, candidate, target)?,
                None => entry.prepare(&told, ours.schedule.as_ref(), target)?,
            };
            let job = prepared.job;
            let name = match ours.name.as_str() {
                "best" => job.name.clone(),
                other => other.to_owned(),
            };
            let code = job.steps.iter().map(Code::of).collect();
            let before = codes.iter().position(|before| *before == code);
            if let (Some(before), Some(contest)) = (before, &mut contest) {
                contest.ours[before].0 += &format!(" = {name}");
                continue;
            }
            codes.push(code);
            let ready = Ready::new(gpu, &job, output_of(self.family))?;
            let contest = match &mut contest {
                Some(contest) => contest,
                None => contest.insert(self.empty(&job, entry.parameters())),
            };
            contest.ours.push((name, Box::new(ready)));
        }
        contest.ok_or_else(|| KernelError::unfit("a contest without a kernel of ours").into())
    }

    fn empty(&self, job: &Job, known: &[Parameter]) -> Contest<'static> {
        // Both sides round their results to this type, and weights on the way.
        let tolerance = match output_type(self.family, job) {
            ElementType::Bf16 => 1e-2,
            _ => 2e-3,
        };
        let problem = problem(self.family, &self.told, known, job, self.calls);
        Contest {
            name: self.name.clone(),
            problem: problem.map_err(|why| why.to_string()),
            calls: self.calls,
            flops: job.work.flops,
            bytes: job.work.bytes,
            ours: Vec::new(),
            peers: self.peers.to_vec(),
            tolerance,
        }
    }
}

fn peers_of(family: &str) -> &'static [&'static str] {
    match family {
        "gemm" => &["cublas", "triton"],
        "grouped-gemm" => &["torch", "cublas-loop"],
        "experts" => &["torch", "torch-compiled"],
        "attention" | "attention-backward" => &["flash", "cudnn"],
        _ => &[],
    }
}

/// The type of a job's results.
fn output_type(family: &str, job: &Job) -> ElementType {
    let data = job.data(output_of(family));
    data.map_or(ElementType::F32, Buffer::ty)
}

/// What the peers of attention can't do, of what a problem asks for.
fn beyond_the_peers(told: &Settings, known: &[Parameter]) -> Option<String> {
    let word = |name| told.word(known, name);
    if !matches!(word("mask"), "full" | "causal") || word("layout") != "heads" {
        return Some("the peers take full and causal masks and layout=heads".into());
    }
    let changed = known.iter().find(|parameter| {
        const OURS: [&str; 6] = [
            "softcap",
            "alibi",
            "sinks",
            "prefix",
            "documents",
            "lengths",
        ];
        OURS.contains(&parameter.name) && word(parameter.name) != parameter.default
    });
    if let Some(changed) = changed {
        return Some(format!("the peers are run without `{}`", changed.name));
    }
    let (queries, keys) = (word("queries"), word("keys"));
    let square = matches!(keys, "" | "0") || keys == queries;
    (word("mask") == "causal" && !square).then(|| {
        "the peers' causal mask begins at the first key, ours ends at the last: they agree where \
         queries and keys are as many"
            .into()
    })
}

/// A problem as the peers take it, with the data of a job.
fn problem(
    family: &'static str,
    told: &Settings,
    known: &[Parameter],
    job: &Job,
    calls: u32,
) -> Result<Problem, KernelError> {
    let number = |name| told.read::<usize>(known, name);
    let word = |name| told.read::<String>(known, name);
    let tensor = |name: &'static str, shape: Vec<usize>| match job.data(name) {
        Some(data) => Ok(Tensor {
            name,
            shape,
            data: data.clone(),
        }),
        None => Err(KernelError::unfit(format!("the job has no buffer {name}"))),
    };
    let output = output_type(family, job);
    let (inputs, options) = match family {
        "gemm" => {
            let (m, n, k) = (number("m")?, number("n")?, number("k")?);
            let layout = word("layout")?;
            let stored = |transposed, rows, columns| {
                if transposed {
                    vec![columns, rows]
                } else {
                    vec![rows, columns]
                }
            };
            let a = tensor("a", stored(layout.starts_with('t'), m, k))?;
            let b = tensor("b", stored(layout.ends_with('t'), k, n))?;
            let mut inputs = vec![a, b];
            for name in ["scale_a", "scale_b"] {
                if let Some(data) = job.data(name) {
                    inputs.push(tensor(name, vec![data.len()])?);
                }
            }
            let (scales, sums) = (word("scales")?, word("sums")?);
            let options = json!({ "layout": layout, "scales": scales, "sums": sums });
            (inputs, options)
        }
        "attention" | "attention-backward" => {
            let (batch, heads, dim) = (number("batch")?, number("heads")?, number("dim")?);
            let or = |value: usize, other| if value == 0 { other } else { value };
            let kv_heads = or(number("kv-heads")?, heads);
            let queries = number("queries")?;
            let keys = or(number("keys")?, queries);
            let mask = word("mask")?;
            if let Some(why) = beyond_the_peers(told, known) {
                return Err(KernelError::unfit(why));
            }
            let q = tensor("q", vec![batch, heads, queries, dim])?;
            let k = tensor("k", vec![batch, kv_heads, keys, dim])?;
            let narrow = match family {
                "attention" => number("value-dim")?,
                _ => 0,
            };
            let value_dim = if narrow == 0 { dim } else { narrow };
            let v = tensor("v", vec![batch, kv_heads, keys, value_dim])?;
            let mut inputs = vec![q, k, v];
            if family == "attention-backward" {
                for name in ["out", "d_out"] {
                    inputs.push(tensor(name, vec![batch, heads, queries, dim])?);
                }
                inputs.push(tensor("lse", vec![batch, heads, queries])?);
            }
            (inputs, json!({ "causal": mask == "causal" }))
        }
        "grouped-gemm" => {
            let rows = word("rows")?;
            let rows: Result<Vec<u32>, _> =
                rows.split(',').map(|text| text.trim().parse()).collect();
            let (Ok(rows), None) = (rows, told.get("groups")) else {
                return Err(KernelError::unfit(
                    "the peers take groups of the same n and k: rows=40,7 and no groups=",
                ));
            };
            let (n, k, layout) = (number("n")?, number("k")?, word("layout")?);
            let total = rows.iter().map(|&rows| rows as usize).sum();
            let b = match layout.as_str() {
                "nn" => vec![rows.len(), k, n],
                _ => vec![rows.len(), n, k],
            };
            let inputs = vec![
                tensor("a", vec![total, k])?,
                tensor("b", b)?,
                Tensor {
                    name: "rows",
                    shape: vec![rows.len()],
                    data: Buffer::from_slice(&rows),
                },
            ];
            (inputs, json!({ "layout": layout }))
        }
        "experts" => {
            let (hidden, inner, per) = (number("hidden")?, number("inner")?, number("per")?);
            let length = |name| job.data(name).map_or(0, Buffer::len);
            let experts = length("shapes");
            let inputs = vec![
                tensor("x", vec![length("x") / hidden.max(1), hidden])?,
                tensor("up", vec![experts, 2 * inner, hidden])?,
                tensor("down", vec![experts, hidden, inner])?,
                tensor("weights", vec![length("weights")])?,
                tensor("order", vec![length("order")])?,
                tensor("shapes", vec![experts])?,
            ];
            (inputs, json!({ "per": per }))
        }
        other => {
            return Err(KernelError::unfit(format!("{other} has no peers to race")));
        }
    };
    Ok(Problem {
        family,
        inputs,
        options,
        output,
        calls,
    })
}

/// The shapes of a family that `heist bench` measures by itself.
pub fn suite(family: &str) -> Vec<Spec> {
    match family {
        "gemm" => gemm(),
        "grouped-gemm" => grouped(),
        "experts" => experts(),
        "attention" => attention(),
        "attention-backward" => backward(),
        _ => Vec::new(),
    }
}

/// The families that have a suite.
pub const FAMILIES: [&str; 5] = [
    "gemm",
    "grouped-gemm",
    "experts",
    "attention",
    "attention-backward",
];

/// A problem of a family that is small enough for a sanitizer.
pub fn small(family: &str) -> &'static [&'static str] {
    match family {
        "gemm" => &["m=200", "n=136", "k=72"],
        "grouped-gemm" => &["rows=40,0,130,1", "n=136", "k=72"],
        "experts" => &["rows=40,0,130,1", "per=3", "hidden=72", "inner=136"],
        "attention" | "attention-backward" => &["batch=1", "heads=2", "queries=130", "mask=causal"],
        _ => &[],
    }
}

fn told<const N: usize>(words: [(&str, String); N]) -> Settings {
    let mut settings = Settings::default();
    for (name, value) in words {
        settings.set(name, value);
    }
    settings
}

fn gemm() -> Vec<Spec> {
    let square = |size: u32, layout: &str| Spec {
        family: "gemm",
        name: format!("gemm bf16 {layout} {size}"),
        told: told([
            ("m", size.to_string()),
            ("n", size.to_string()),
            ("k", size.to_string()),
            ("layout", layout.to_owned()),
        ]),
        // The best, and on Hopper also what every other architecture has.
        ours: vec![Ours::best(), Ours::variant("mma-128x256")],
        peers: peers_of("gemm"),
        calls: 1,
    };
    vec![
        square(2048, "nt"),
        square(4096, "nt"),
        square(4096, "nn"),
        square(8192, "nt"),
    ]
}

/// Mixtures of experts and their like: even, small, skewed, many.
fn grouped() -> Vec<Spec> {
    let repeat = |count: usize, rows: u32| vec![rows; count];
    // Rounded to 8, as layers that pad do.
    let skewed = (1..=64)
        .map(|i: u32| ((8192 / i) / 8 * 8).max(16))
        .collect();
    let many = (0..256).map(|i: u32| 8 + (i * 37) % 15 * 8).collect();
    let cases: [(&str, Vec<u32>, u32, u32); 5] = [
        ("8 groups of 1024 rows", repeat(8, 1024), 4096, 4096),
        ("8 groups of 40 rows", repeat(8, 40), 4096, 7168),
        (
            "8 groups, 40 to 3752 rows",
            vec![40, 2048, 96, 40, 512, 1536, 168, 3752],
            4096,
            7168,
        ),
        ("64 groups, 8192/i rows", skewed, 2048, 2048),
        ("256 groups, 8 to 120 rows", many, 2048, 7168),
    ];
    let spec = |(name, rows, n, k): (&str, Vec<u32>, u32, u32)| {
        let rows: Vec<String> = rows.iter().map(u32::to_string).collect();
        Spec {
            family: "grouped-gemm",
            name: format!("grouped-gemm bf16 {name}, N {n} K {k}"),
            told: told([
                ("rows", rows.join(",")),
                ("n", n.to_string()),
                ("k", k.to_string()),
            ]),
            ours: vec![
                Ours::best(),
                Ours {
                    name: "static schedule".into(),
                    told: Vec::new(),
                    schedule: Some(Schedule::new(TileSource::Static)),
                    tuned: None,
                },
            ],
            peers: peers_of("grouped-gemm"),
            calls: 1,
        }
    };
    cases.into_iter().map(spec).collect()
}

/// Layers of experts, as models have them: tokens spread unevenly, in prefill and in decode. Of
/// DeepSeek's 256 experts a GPU has 32 here.
fn experts() -> Vec<Spec> {
    let mixtral = vec![900, 1200, 1024, 800, 1100, 1000, 1144, 1024];
    let deepseek: Vec<u32> = (0..32).map(|i: u32| 128 + (i * 37) % 17 * 16).collect();
    let cases: [(&str, Vec<u32>, u32, u32, u32); 4] = [
        ("as Mixtral's, 4096 tokens", mixtral, 2, 4096, 14336),
        ("as Mixtral's, 32 tokens", vec![8; 8], 2, 4096, 14336),
        ("as DeepSeek's, 1024 tokens", deepseek, 8, 7168, 2048),
        ("as DeepSeek's, 48 tokens", vec![12; 32], 8, 7168, 2048),
    ];
    let spec = |(name, rows, per, hidden, inner): (&str, Vec<u32>, u32, u32, u32)| {
        let rows: Vec<String> = rows.iter().map(u32::to_string).collect();
        Spec {
            family: "experts",
            name: format!("experts bf16 {name}"),
            told: told([
                ("rows", rows.join(",")),
                ("per", per.to_string()),
                ("hidden", hidden.to_string()),
                ("inner", inner.to_string()),
            ]),
            ours: vec![Ours::best()],
            peers: peers_of("experts"),
            calls: 1,
        }
    };
    cases.into_iter().map(spec).collect()
}

fn attention() -> Vec<Spec> {
    let mut specs = Vec::new();
    // The ladder, at the shape of the field reports, twenty calls in a graph.
    for batch in [1, 2] {
        specs.push(Spec {
            family: "attention",
            name: format!("attention f16 full B{batch} H8 S512 D64"),
            told: told([
                ("batch", batch.to_string()),
                ("heads", "8".into()),
                ("queries", "512".into()),
                ("dim", "64".into()),
                ("dtype", "f16".into()),
                ("mask", "full".into()),
            ]),
            ours: heist_kernels::attention::Rung::ALL
                .iter()
                .map(|rung| Ours::variant(rung.as_str()))
                .collect(),
            peers: peers_of("attention"),
            calls: 20,
        });
    }
    // 16 thousand tokens, hidden size 2048.
    for dim in [64u32, 128] {
        for (length, dtype) in [(1024u32, "f16"), (4096, "bf16"), (16384, "bf16")] {
            for mask in ["full", "causal"] {
                let heads = 2048 / dim;
                let batch = 16384 / length;
                let mut ours = vec![Ours::best(), Ours::variant("large")];
                if dtype == "bf16" {
                    // Closer to f64 than either peer.
                    ours.push(Ours::split_weights());
                }
                specs.push(Spec {
                    family: "attention",
                    name: format!("attention {dtype} {mask} B{batch} H{heads} S{length} D{dim}"),
                    told: told([
                        ("batch", batch.to_string()),
                        ("heads", heads.to_string()),
                        ("queries", length.to_string()),
                        ("dim", dim.to_string()),
                        ("dtype", dtype.into()),
                        ("mask", mask.into()),
                    ]),
                    ours,
                    peers: peers_of("attention"),
                    calls: 1,
                });
            }
        }
    }
    specs
}

/// Gradients: 16k tokens and a hidden size of 2048, as training has them.
fn backward() -> Vec<Spec> {
    let mut specs = Vec::new();
    for (dim, mask) in [(64, "full"), (64, "causal"), (128, "full"), (128, "causal")] {
        for queries in [2048, 4096, 8192, 16384] {
            let (batch, heads) = (16384 / queries, 2048 / dim);
            specs.push(Spec {
                family: "attention-backward",
                name: format!("attention backward B{batch} H{heads} S{queries} D{dim} bf16 {mask}"),
                told: told([
                    ("batch", batch.to_string()),
                    ("heads", heads.to_string()),
                    ("queries", queries.to_string()),
                    ("dim", dim.to_string()),
                    ("dtype", "bf16".to_owned()),
                    ("mask", mask.to_owned()),
                ]),
                ours: vec![Ours::best(), Ours::deterministic()],
                peers: peers_of("attention-backward"),
                calls: 1,
            });
        }
    }
    specs
}

/// The identity of a step's code. Several variants may be the same code for some shape: their times
/// would differ only by chance, so they are one contestant, under both names.
#[derive(PartialEq)]
struct Code {
    ptx: String,
    launch: Launch,
    params: Vec<Arg>,
}

impl Code {
    fn of(step: &Step) -> Code {
        Code {
            ptx: step.ptx().replace(&step.entry, "kernel"),
            launch: step.launch,
            params: step.params.clone(),
        }
    }
}

/// A job on a GPU, as a contestant.
struct Ready {
    on_gpu: OnGpu,
    texts: Vec<PtxText>,
    output: &'static str,
    ty: ElementType,
}

impl Ready {
    fn new(gpu: &Gpu, job: &Job, output: &'static str) -> Result<Ready, JobError> {
        let Some(result) = job.data(output) else {
            return Err(KernelError::unfit(format!("the job has no buffer {output}")).into());
        };
        let text = |step: &Step| PtxText::new(step.entry.clone(), step.ptx());
        Ok(Ready {
            on_gpu: OnGpu::new(gpu, job)?,
            texts: job.steps.iter().map(text).collect(),
            output,
            ty: result.ty(),
        })
    }
}

impl Candidate for Ready {
    fn enqueue(&self, stream: &Stream) -> Result<(), GpuError> {
        self.on_gpu.launch(stream)
    }

    fn poison(&self, stream: &Stream) -> Result<(), GpuError> {
        match self.on_gpu.memory(self.output) {
            Some(memory) => memory.fill(0xff, stream),
            None => Ok(()),
        }
    }

    fn result(&self) -> Result<Buffer, GpuError> {
        let Some(memory) = self.on_gpu.memory(self.output) else {
            return Ok(Buffer::zeros(self.ty, 0));
        };
        let mut bytes = vec![0; memory.len()];
        memory.read(0, &mut bytes)?;
        // As many bytes as the buffer had, so they are whole elements.
        Ok(Buffer::from_bytes(self.ty, bytes).unwrap_or(Buffer::zeros(self.ty, 0)))
    }

    fn kernels(&self) -> Vec<(PtxText, KernelInfo)> {
        let infos = self.on_gpu.kernels().cloned();
        self.texts.iter().cloned().zip(infos).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use heist_ptx::arch::Gpu as Simulated;

    #[test]
    fn peers_are_compared_only_where_they_compute_the_same() {
        let known = catalogue::entry("attention").unwrap().parameters();
        let why = |words: &[(&str, &str)]| {
            let mut told = Settings::default();
            for (name, value) in words {
                told.set(*name, *value);
            }
            beyond_the_peers(&told, known)
        };
        let long = [("mask", "causal"), ("queries", "64"), ("keys", "64")];
        for alike in [&[][..], &[("mask", "causal")], &[("alibi", "false")], &long] {
            assert_eq!(why(alike), None, "{alike:?}");
        }
        for (words, told) in [
            (&[("mask", "window(9,0)")][..], "full and causal"),
            (&[("layout", "rows")], "layout=heads"),
            (&[("softcap", "30")], "without `softcap`"),
            (&[("sinks", "true")], "without `sinks`"),
            (&[("lengths", "7,9")], "without `lengths`"),
            (
                &[("mask", "causal"), ("queries", "1"), ("keys", "64")],
                "first key",
            ),
        ] {
            let why = why(words).unwrap_or_default();
            assert!(why.contains(told), "{words:?}: {why}");
        }
    }

    fn target() -> Target {
        let Simulated { arch, sms, .. } = Simulated::H200;
        Target { arch, sms }
    }

    #[test]
    fn rungs_that_come_to_the_same_are_one_contestant() {
        let spec = suite("attention").swap_remove(0);
        let entry = catalogue::entry(spec.family).unwrap();
        let code = |variant: &str| -> Vec<Code> {
            let mut told = spec.told.clone();
            told.set("variant", variant);
            let job = entry.prepare(&told, None, target()).unwrap().job;
            job.steps.iter().map(Code::of).collect()
        };
        assert!(spec.name.contains("B1 H8 S512"), "{}", spec.name);
        assert!(code("large") == code("persistent"));
        assert!(code("large") != code("buffered"));
    }

    #[test]
    fn every_kernel_of_the_suite_builds() {
        let target = target();
        // The shapes are large; their kernels are not. Shrink what has data.
        for spec in FAMILIES.iter().flat_map(|family| suite(family)) {
            let entry = catalogue::entry(spec.family).unwrap();
            for ours in &spec.ours {
                let mut told = spec.told.clone();
                for (name, value) in &ours.told {
                    told.set(*name, value.clone());
                }
                for (name, small) in [
                    ("m", "256"),
                    ("n", "256"),
                    ("k", "64"),
                    ("rows", "40,0,8"),
                    ("hidden", "64"),
                    ("inner", "128"),
                    ("batch", "1"),
                    ("heads", "2"),
                    ("queries", "64"),
                ] {
                    if told.get(name).is_some() {
                        told.set(name, small);
                    }
                }
                let job = entry.prepare(&told, ours.schedule.as_ref(), target);
                let job = job
                    .unwrap_or_else(|error| panic!("{}: {error}", spec.name))
                    .job;
                let mut small = spec.clone();
                small.told = told;
                let contest = small.empty(&job, entry.parameters());
                for tensor in &contest.problem.unwrap().inputs {
                    let count: usize = tensor.shape.iter().product();
                    assert_eq!(count, tensor.data.len(), "{}: {}", spec.name, tensor.name);
                }
            }
        }
    }
}
