//! Attention in the catalogue: the rungs as variants of a family, and their settings.

use super::accuracy::{LSE_BOUND, bound, verify};
use super::append;
use super::cache::Append;
use super::config::{Config, Rung};
use super::decode::Decode;
use super::kernel::{contents, job, ladder_plan, schedule};
use super::order::HeaviestFirst;
use super::problem::{Layout, Lengths, Output, Problem};
use super::reference::Sample;
use super::score::{BlockMask, Scoring, alibi, documents, softcap};
use super::space;
use super::tcgen05::{Tcgen05, tensor_schedule};
use super::warpgroup::{Wgmma, warpgroup_schedule};
use crate::entry::{Parameter, Prepared, Settings, holds, items, parameter};
use crate::family::{Family, Target, Variant};
use crate::listing::{Listing, variant};
use crate::plan::LaunchPlan;
use crate::random::uniform;
use crate::space::Tuned;
use crate::{Job, KernelError};
use heist_launch::Buffer;
use heist_sched::{AnyOrder, Schedule};
use heist_tune::{Candidate, Proposal};

/// A rung as a variant.
struct Step(Rung);

impl Variant for Step {
    type Problem = Problem;

    fn name(&self) -> &'static str {
        self.0.as_str()
    }

    fn about(&self) -> &'static str {
        match self.0 {
            Rung::Scalar => "no tensor cores: eight threads to a query row",
            Rung::Mixed => "scores on tensor cores, values weighed by threads",
            Rung::Tensor => "both products on tensor cores, weights in registers",
            Rung::Buffered => "asynchronous copies, double buffered, 64x32 tiles",
            Rung::Large => "the tiles that suit the shape; keys shared out for small ones",
            Rung::Persistent => "the same, blocks that stay and take tile after tile",
        }
    }

    fn suits(&self, problem: &Problem, _: Target) -> Result<u32, String> {
        problem.check().map_err(|error| error.to_string())?;
        problem
            .has_whole_steps()
            .map_err(|error| error.to_string())?;
        problem.not_paged().map_err(|error| error.to_string())?;
        problem.is_square().map_err(|error| error.to_string())?;
        problem
            .sees_all_blocks()
            .map_err(|error| error.to_string())?;
        problem.lies_whole().map_err(|error| error.to_string())?;
        if matches!(self.0, Rung::Scalar | Rung::Mixed) {
            problem.is_plain().map_err(|error| error.to_string())?;
        }
        Ok(match self.0 {
            Rung::Large => 5,
            Rung::Persistent => 4,
            Rung::Buffered => 3,
            Rung::Tensor => 2,
            Rung::Mixed => 1,
            Rung::Scalar => 0,
        })
    }

    fn contents(&self, problem: &Problem, buffer: &str) -> Option<Buffer> {
        contents(problem)(buffer)
    }

    fn plan(
        &self,
        problem: &Problem,
        given: Option<&Schedule>,
        target: Target,
    ) -> Result<LaunchPlan, KernelError> {
        problem.check()?;
        let config = Config::suited(self.0, problem, target);
        let own = schedule(&config, problem, target);
        ladder_plan(problem, &config, given.unwrap_or(&own), target)
    }
}

/// The attention kernels, from the plainest to the fastest.
pub static FAMILY: Family<Problem> = Family {
    name: "attention",
    variants: &[
        &Step(Rung::Scalar),
        &Step(Rung::Mixed),
        &Step(Rung::Tensor),
        &Step(Rung::Buffered),
        &Step(Rung::Large),
        &Step(Rung::Persistent),
        &Wgmma,
        &Tcgen05,
        &Decode,
    ],
};

/// Fills a job's queries, keys and values, and new ones, with random numbers.
pub fn randomise(job: &mut Job, problem: &Problem, seed: u64) {
    for (index, name) in ["q", "k", "v"].into_iter().enumerate() {
        if let Some(buffer) = job.buffers.iter_mut().find(|buffer| buffer.name == name) {
            let count = buffer.data.len();
            let element = match name {
                "q" => problem.dtype.element(),
                _ => problem.cache_element(),
            };
            buffer.data = uniform(element, seed * 3 + index as u64, count);
        }
    }
    append::randomise(job, problem, seed);
}

/// Of scores, with gradients too.
pub(super) const SOFTCAP: Parameter = parameter(
    "softcap",
    "",
    "scores s become CAP*tanh(s/CAP); none unless given",
);
/// The same.
pub(super) const ALIBI: Parameter = parameter(
    "alibi",
    "false",
    "a bias by distance, with a slope for each query head: true or false",
);

pub(super) const PARAMETERS: &[Parameter] = &[
    parameter("batch", "2", "sequences"),
    parameter("heads", "8", "query heads"),
    parameter("kv-heads", "0", "key heads; 0: as many as query heads"),
    parameter("queries", "512", "query rows of a sequence"),
    parameter("keys", "0", "key rows of a sequence; 0: as many as queries"),
    parameter(
        "lengths",
        "",
        "packed sequences instead: their lengths, as 17,300,5, with keys 1:500,7:7, eight alike 512*8",
    ),
    parameter(
        "dim",
        "64",
        "elements of a head: multiples of 16 up to 256, of a latent cache up to 576; variant=wgmma has multiples of 8",
    ),
    parameter(
        "value-dim",
        "0",
        "elements of a head of values, at most as many as of keys; 0: as many",
    ),
    parameter("dtype", "f16", "f16 or bf16"),
    parameter(
        "cache",
        "same",
        "of keys and values: same as the queries, e4m3 with a factor for each key head, or latent: values are a key's first elements",
    ),
    parameter(
        "weights",
        "rounded",
        "of the softmax, as tensor cores multiply them: rounded to the dtype, or split in two terms",
    ),
    parameter("out", "", "of the results: f32, or the dtype unless given"),
    parameter("mask", "full", "full, causal or window(LEFT,RIGHT)"),
    parameter("layout", "heads", "heads (B,H,S,D) or rows (B,S,H,D)"),
    parameter(
        "page",
        "0",
        "tokens of a page of keys and values, with lengths; 0: sequences lie whole",
    ),
    parameter(
        "append",
        "0",
        "new keys and values of each sequence, in the dtype, which the call puts into the pages; lengths count them",
    ),
    parameter("scale", "", "of the scores; 1/sqrt(dim) unless given"),
    SOFTCAP,
    ALIBI,
    parameter(
        "sinks",
        "false",
        "a score of no key for each query head: true or false",
    ),
    parameter(
        "prefix",
        "0",
        "first keys that every query sees, whatever the mask",
    ),
    parameter(
        "documents",
        "false",
        "a query sees the keys of its own document alone: true or false",
    ),
    parameter(
        "blocks",
        "",
        "a mask of blocks of so many queries and keys, as 128x128: some are hidden; none unless given",
    ),
    parameter(
        "splits",
        "",
        "blocks that share a tile's keys; chosen unless given",
    ),
    parameter(
        "together",
        "",
        "heads whose tiles are handed out in turns, the heaviest first; chosen unless given",
    ),
    parameter("seed", "1", "of the random data"),
    parameter("variant", "", "a rung of the ladder; chosen unless given"),
];

/// What `lengths` is said instead of.
pub(super) const ALIKE: [&str; 4] = ["batch", "queries", "keys", "layout"];

/// Attention in the catalogue.
pub struct Attention;

/// What the settings ask for.
///
/// # Errors
/// What can't be understood.
pub fn problem(settings: &Settings) -> Result<Problem, KernelError> {
    settings.check("attention", PARAMETERS)?;
    settings.instead("lengths", &ALIKE)?;
    let number = |name| settings.read::<u32>(PARAMETERS, name);
    let text = |name| settings.read::<String>(PARAMETERS, name);
    let or = |value: u32, other: u32| if value == 0 { other } else { value };
    let queries = number("queries")?;
    let mut problem = Problem::new(number("batch")?, number("heads")?, queries, number("dim")?);
    problem.kv_heads = or(number("kv-heads")?, problem.heads);
    let values = number("value-dim")?;
    problem.value_dim = (values > 0).then_some(values);
    problem.dtype = text("dtype")?.parse()?;
    problem.cache = text("cache")?.parse()?;
    problem.weights = text("weights")?.parse()?;
    problem.output = match text("out")?.as_str() {
        "f32" => Output::F32,
        out if out.is_empty() || out == problem.dtype.to_string() => Output::Same,
        other => {
            return Err(KernelError::unfit(format!(
                "out: results are f32 or, as the rest, {}; `{other}` is neither",
                problem.dtype
            )));
        }
    };
    problem.mask = text("mask")?.parse()?;
    problem.layout = match text("layout")?.as_str() {
        "heads" => Layout::Heads,
        "rows" => Layout::Rows,
        other => {
            return Err(KernelError::unfit(format!(
                "layout: `{other}` is neither heads nor rows"
            )));
        }
    };
    problem.lengths = Lengths::Same {
        batch: number("batch")?,
        queries,
        keys: or(number("keys")?, queries),
    };
    let scale = text("scale")?;
    if !scale.is_empty() {
        problem.scale = Some(settings.read(PARAMETERS, "scale")?);
    }
    problem.scoring = scoring(settings)?;
    let lengths = text("lengths")?;
    if !lengths.is_empty() {
        let each: Result<Vec<(u32, u32)>, KernelError> =
            items(&lengths)?.into_iter().map(sequence).collect();
        problem.lengths = Lengths::Each(each?);
        problem.layout = Layout::Rows;
    }
    if number("page")? > 0 {
        problem.page_size = Some(number("page")?);
    }
    problem.append = match number("append")? {
        0 => None,
        rows => Some(Append {
            rows,
            in_cache_type: false,
        }),
    };
    if let Lengths::Same { batch, .. } = problem.lengths {
        // Each sequence has an entry of its own from here on.
        const MOST: u32 = 1 << 20;
        if batch > MOST {
            return Err(KernelError::unfit(format!(
                "a batch of {batch}: {MOST} sequences can be made at most"
            )));
        }
    }
    problem.check()?;
    let size = |rows: fn(&(u32, u32)) -> u32, heads: u32| {
        let rows: u64 = problem
            .sequences()
            .iter()
            .map(|pair| u64::from(rows(pair)))
            .sum();
        rows.saturating_mul(u64::from(heads) * u64::from(problem.head_dim))
    };
    holds("Q", size(|pair| pair.0, problem.heads))?;
    holds("K", problem.elements().1 as u64)?;
    Ok(problem)
}

/// What the settings add to attention.
fn scoring(settings: &Settings) -> Result<Scoring, KernelError> {
    let flag = |name| settings.read::<bool>(PARAMETERS, name);
    let mut scoring = Scoring {
        sinks: flag("sinks")?,
        ..Scoring::default()
    };
    if !settings.word(PARAMETERS, "softcap").is_empty() {
        let cap: f32 = settings.read(PARAMETERS, "softcap")?;
        if !(cap.is_finite() && cap > 0.0) {
            return Err(KernelError::unfit(format!(
                "softcap={cap}: a cap is a number above zero; leave it out for none"
            )));
        }
        scoring.mods.push(softcap(cap));
    }
    if flag("alibi")? {
        scoring.mods.push(alibi());
    }
    if flag("documents")? {
        scoring.mods.push(documents());
    }
    let prefix = settings.read(PARAMETERS, "prefix")?;
    scoring.prefix = (prefix > 0).then_some(prefix);
    let blocks = settings.read::<String>(PARAMETERS, "blocks")?;
    if !blocks.is_empty() {
        let (rows, keys) = blocks
            .split_once('x')
            .and_then(|(rows, keys)| Some((rows.parse().ok()?, keys.parse().ok()?)))
            .ok_or_else(|| {
                KernelError::unfit(format!(
                    "blocks: `{blocks}` is not QUERIESxKEYS, as 128x128"
                ))
            })?;
        scoring.blocks = Some(BlockMask {
            rows,
            keys,
            by_sequence: false,
            by_head: false,
        });
    }
    Ok(scoring)
}

/// `17`, or `1:500` for one query and 500 keys.
fn sequence(text: &str) -> Result<(u32, u32), KernelError> {
    let (queries, keys) = text.split_once(':').unwrap_or((text, text));
    match (queries.trim().parse(), keys.trim().parse()) {
        (Ok(queries), Ok(keys)) => Ok((queries, keys)),
        _ => Err(KernelError::unfit(format!(
            "lengths: `{text}` is neither a length nor QUERIES:KEYS"
        ))),
    }
}

impl Listing for Attention {
    type Problem = Problem;
    const FAMILY: &'static Family<Problem> = &FAMILY;
    const ABOUT: &'static str = "softmax(Q K^T) V with its log-sum-exp: f16 and bf16, masks, shared key heads, packed sequences";
    const PARAMETERS: &'static [Parameter] = PARAMETERS;

    fn problem(settings: &Settings) -> Result<Problem, KernelError> {
        problem(settings)
    }

    fn schedule(
        settings: &Settings,
        problem: &Problem,
        target: Target,
    ) -> Result<Option<Schedule>, KernelError> {
        let told = |name| settings.get(name).is_some_and(|text| !text.is_empty());
        if told("splits") || told("together") {
            return Ok(None);
        }
        let chosen = FAMILY.choose(variant(settings), problem, target)?.name();
        if chosen == Wgmma.name() {
            return Ok(Some(warpgroup_schedule(problem, target)));
        }
        if chosen == Tcgen05.name() {
            return Ok(Some(tensor_schedule(problem, target)));
        }
        let rung = Rung::ALL.into_iter().find(|r| r.as_str() == chosen);
        Ok(rung.map(|rung| {
            let config = Config::suited(rung, problem, target);
            schedule(&config, problem, target)
        }))
    }

    fn job(
        settings: &Settings,
        problem: &Problem,
        given: Option<&Schedule>,
        target: Target,
    ) -> Result<Job, KernelError> {
        let named = variant(settings);
        let chosen = FAMILY.choose(named, problem, target)?;
        let told = |name| settings.get(name).is_some_and(|text| !text.is_empty());
        if told("splits") || told("together") {
            let whole = [Wgmma.name(), Tcgen05.name()];
            if let Some(name) = named.filter(|name| whole.contains(name)) {
                return Err(KernelError::unfit(format!(
                    "attention {name}: it neither shares a tile's keys among blocks nor takes heads together; leave splits and together out, or take variant=large"
                )));
            }
            let rung = Rung::ALL.into_iter().find(|r| r.as_str() == chosen.name());
            let rung = rung.unwrap_or(Rung::Large);
            let mut config = Config::suited(rung, problem, target);
            if told("splits") {
                config.splits = settings.read(PARAMETERS, "splits")?;
            }
            let mut own = schedule(&config, problem, target);
            if told("together") {
                let heads = settings.read(PARAMETERS, "together")?;
                own.order = AnyOrder::new(HeaviestFirst { heads });
            }
            job(problem, &config, given.unwrap_or(&own), target)
        } else {
            chosen.job(problem, given, target)
        }
    }

    fn prepared(job: Job, problem: Problem, seed: u64) -> Prepared {
        prepared(job, problem, seed)
    }

    fn proposals(problem: &Problem, target: Target) -> Vec<Proposal> {
        space::proposals(problem, target)
    }

    fn tuned(problem: &Problem, candidate: &Candidate, target: Target) -> Result<Job, KernelError> {
        Ok(problem.tuned(candidate, target)?.job(contents(problem)))
    }

    fn words(problem: &Problem) -> Option<String> {
        problem.words()
    }
}

/// A job with random data and its check.
fn prepared(mut job: Job, problem: Problem, seed: u64) -> Prepared {
    randomise(&mut job, &problem, seed);
    let bound = bound(&problem);
    Prepared {
        job,
        verify: Box::new(move |job| {
            let accuracy = verify(job, &problem, Sample::suited(&problem))?;
            // The caller holds the results against the bound; the rest is held here.
            if let Some(odd) = accuracy.odd {
                return Err(KernelError::unfit(odd.to_string()));
            }
            if !accuracy.lse.within(LSE_BOUND) {
                let why = format!("log-sum-exps: {}, more than {LSE_BOUND}", accuracy.lse);
                return Err(KernelError::unfit(why));
            }
            Ok(accuracy.out)
        }),
        bound,
    }
}
