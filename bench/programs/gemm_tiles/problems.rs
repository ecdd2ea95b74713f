//! The problems of a set: those of its own shapes, or those that words name.

use heist_kernels::gemm::{Gemm, Input, Layout, Output, Scales, Summing, Tiling};

/// m, n, k.
const SHAPES: &[(u32, u32, u32)] = &[
    // Decode and small batches: projections, MLPs and heads of 7B to 405B models.
    (1, 4096, 4096),
    (1, 8192, 8192),
    (1, 28672, 8192),
    (1, 8192, 28672),
    (4, 6144, 4096),
    (8, 14336, 4096),
    (16, 8192, 8192),
    (16, 4096, 14336),
    (16, 2112, 7168),
    (32, 5120, 5120),
    (32, 57344, 8192),
    (48, 18432, 7168),
    (64, 4096, 4096),
    (64, 8192, 8192),
    (64, 7168, 2048),
    (96, 8192, 8192),
    (128, 8192, 8192),
    (128, 4096, 4096),
    (128, 24576, 1536),
    (192, 4096, 14336),
    (256, 8192, 8192),
    (256, 5120, 13824),
    (256, 1024, 4096),
    // Prefill and training.
    (512, 4096, 4096),
    (512, 14336, 4096),
    (1024, 4096, 4096),
    (1024, 5120, 1280),
    (2048, 4096, 4096),
    (2048, 11008, 4096),
    (4096, 14336, 4096),
    (4096, 4096, 14336),
    (8192, 3072, 768),
    (8192, 8192, 28672),
    (4096, 50264, 768),
    // Squares, odd sizes, deep ones.
    (1000, 1000, 1000),
    (1024, 1024, 1024),
    (1544, 1544, 1544),
    (2048, 2048, 2048),
    (3000, 3000, 3000),
    (4096, 4096, 4096),
    (8192, 8192, 8192),
    (256, 256, 65536),
    (512, 512, 16384),
    (128, 128, 8192),
    (64, 640, 32768),
    (1280, 640, 5120),
];

/// Shapes whose rows do not start at multiples of 128 bytes, and large ones.
const LARGE: &[(u32, u32, u32)] = &[
    (1000, 1000, 1000),
    (1024, 1024, 1000),
    (1000, 1000, 1024),
    (1544, 1544, 1544),
    (3000, 3000, 3000),
    (3072, 3072, 3000),
    (3000, 3000, 3072),
    (512, 4096, 4096),
    (1024, 4096, 4096),
    (2048, 2048, 2048),
    (2048, 4096, 4096),
    (2048, 11008, 4096),
    (4096, 4096, 4096),
    (4096, 14336, 4096),
    (4096, 4096, 14336),
    (8192, 8192, 8192),
    (8192, 28672, 8192),
    (8192, 8192, 28672),
    (8192, 3072, 768),
    (4096, 50264, 768),
    (4096, 50257, 768),
    (4096, 50304, 768),
];

/// Products of 8-bit floats: squares, projections and MLPs, decode.
const TINY: &[(u32, u32, u32)] = &[
    (4096, 4096, 4096),
    (8192, 8192, 8192),
    (4096, 14336, 4096),
    (4096, 4096, 14336),
    (4096, 7168, 2048),
    (4096, 24576, 1536),
    (2048, 4096, 4096),
    (512, 4096, 4096),
    (128, 7168, 16384),
    (64, 8192, 8192),
    (16, 8192, 8192),
    (1, 8192, 8192),
];

/// Kinds of scales, by name.
const KINDS: [&str; 3] = ["tensor", "rows", "blocks"];

/// Each with every kind of scales and both ways to sum.
fn tiny_problems(shapes: &[(u32, u32, u32)]) -> Vec<Gemm> {
    let kinds = [
        (Scales::Tensor, Summing::Fast),
        (Scales::Tensor, Summing::Levels),
        (Scales::Rows, Summing::Fast),
        (Scales::Rows, Summing::Levels),
        (Scales::Blocks, Summing::Levels),
    ];
    let of = |&(m, n, k): &(u32, u32, u32)| {
        let plain = Gemm::new(m, n, k, Input::E4m3, Output::Bf16, Layout::Nt);
        kinds.map(|(scales, sums)| Gemm {
            scales,
            sums,
            ..plain
        })
    };
    shapes.iter().flat_map(of).collect()
}

/// Shapes drawn at random, each side log-uniformly from 64 to 8192: in every other shape all are multiples of 64, in the
/// others n and k of 8.
fn random(seed: u64, count: usize) -> Vec<(u32, u32, u32)> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut all = Vec::new();
    while all.len() < count {
        let step = if all.len() % 2 == 0 { 64.0 } else { 8.0 };
        let mut side = |step: f64| {
            let side = 64.0 * 128f64.powf(random.f64());
            ((side / step).round() * step).max(step) as u32
        };
        let (n, k) = (side(step), side(step));
        let m = side(if step == 64.0 { step } else { 1.0 });
        all.push((m, n, k));
    }
    all
}

/// Shapes drawn between bounds: `drawn:SEED:COUNT:STEP:33-256:2048-16384:2048-16384`, each side log-uniformly, n and k in multiples of the step.
fn between(text: &str) -> Option<Vec<(u32, u32, u32)>> {
    let [seed, count, step, bounds @ ..] = &text.split(':').collect::<Vec<_>>()[..] else {
        return None;
    };
    let (mut random, step) = (
        fastrand::Rng::with_seed(seed.parse().ok()?),
        step.parse().ok()?,
    );
    let bounds: Option<Vec<(f64, f64)>> = bounds
        .iter()
        .map(|bound| bound.split_once('-'))
        .map(|bound| Some((bound?.0.parse().ok()?, bound?.1.parse().ok()?)))
        .collect();
    let [m, n, k] = bounds?[..] else { return None };
    let mut side = |(least, most): (f64, f64), step: u32| {
        let side = least * (most / least).powf(random.f64());
        (side as u32).next_multiple_of(step)
    };
    let mut draw = || (side(m, 1), side(n, step), side(k, step));
    Some((0..count.parse().ok()?).map(|_| draw()).collect())
}

/// The shapes that a word stands for: one, or some drawn at random.
fn shapes(word: &str) -> Result<Vec<(u32, u32, u32)>, String> {
    if let Some(drawn) = word.strip_prefix("drawn:") {
        return between(drawn).ok_or_else(|| {
            format!("`{word}`: write a seed, a number, a step and bounds as drawn:7:40:8:33-256:2048-16384:2048-16384")
        });
    }
    let Some(drawn) = word.strip_prefix("random:") else {
        return Ok(vec![shape(word)?]);
    };
    let numbers = drawn.split_once(':');
    let numbers = numbers.and_then(|(seed, count)| Some((seed.parse().ok()?, count.parse().ok()?)));
    let (seed, count) =
        numbers.ok_or_else(|| format!("`{word}`: write a seed and a number as random:7:40"))?;
    Ok(random(seed, count))
}

/// A shape as it is given: m, n and k with an x between.
fn shape(word: &str) -> Result<(u32, u32, u32), String> {
    let sides: Result<Vec<u32>, _> = word.split('x').map(str::parse).collect();
    match sides.as_deref() {
        Ok(&[m, n, k]) => Ok((m, n, k)),
        _ => Err(format!(
            "`{word}` is no shape: write m, n and k as 1544x1544x1544"
        )),
    }
}

/// The problems of a set: those of its own shapes, or of the given ones, in the type and with the scales that the words name.
pub(super) fn problems(set: &str, words: &[&str]) -> Result<Vec<Gemm>, String> {
    let kind = words.iter().find(|word| KINDS.contains(word));
    let (input, output) = match words {
        words if words.contains(&"tf32") => (Input::Tf32, Output::F32),
        words if words.contains(&"f16") => (Input::F16, Output::F16),
        words if words.contains(&"e4m3") => (Input::E4m3, Output::Bf16),
        _ => (Input::Bf16, Output::Bf16),
    };
    let layouts = words.iter().find_map(|word| word.parse().ok());
    let layout = layouts.unwrap_or(Layout::Nt);
    let half = |&(m, n, k): &(u32, u32, u32)| {
        let plain = Gemm::new(m, n, k, input, output, layout);
        match input.is_tiny() {
            true => Gemm {
                sums: Summing::Fast,
                ..plain.scales(Scales::Tensor)
            },
            false => plain,
        }
    };
    // Several of a shape: `20*264x3672x256`.
    let several = words.iter().filter(|word| word.parse::<Tiling>().is_err());
    let several: Vec<Gemm> = several
        .filter_map(|word| word.split_once('*'))
        .map(|(count, one)| {
            let count = count
                .parse()
                .map_err(|_| format!("`{count}` is no number"))?;
            Ok(half(&shape(one)?).batch(count))
        })
        .collect::<Result<_, String>>()?;
    let named = |word: &&str| {
        word.contains('*')
            || word.parse::<Tiling>().is_ok()
            || word.parse::<Layout>().is_ok()
            || word.starts_with("order=")
            || ["tf32", "f16", "e4m3", "alone", "static", "early"].contains(word)
            || KINDS.contains(word)
    };
    let given: Vec<Vec<_>> = words
        .iter()
        .filter(|word| !named(word))
        .map(|word| shapes(word))
        .collect::<Result<_, _>>()?;
    let given = given.concat();
    let or = |usual: &[(u32, u32, u32)]| match given.is_empty() && several.is_empty() {
        true => usual.to_vec(),
        false => given.clone(),
    };
    let mut problems: Vec<Gemm> = match set {
        "orders" => or(LARGE).iter().map(half).collect(),
        "tiny" => tiny_problems(&or(TINY)),
        "small" => or(SHAPES)
            .iter()
            .map(half)
            .filter(|gemm| gemm.m <= 48)
            .collect(),
        _ => or(SHAPES).iter().map(half).collect(),
    };
    if given.is_empty() && ["orders", "chosen", "kinds"].contains(&set) {
        for size in [2048, 4096, 8192] {
            let word = Gemm::new(size, size, size, Input::Tf32, Output::F32, Layout::Nt);
            problems.push(word);
        }
    }
    problems.extend(several);
    problems.retain(|problem| kind.is_none_or(|kind| problem.scales.to_string() == *kind));
    Ok(problems)
}
