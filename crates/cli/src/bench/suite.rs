//! The problems that are measured: the shapes that people ask about, each with
//! the kernels of ours and of others that solve it.

use super::spec::{Ours, Spec, peers_of};
use heist_kernels::catalogue::Settings;
use heist_sched::{Schedule, TileSource};

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
    cases.into_iter().map(spec).chain(eight_bits()).collect()
}

/// Groups of 8-bit floats with scales of blocks and of rows, in both layouts: prefill and decode as
/// DeepSeek's models have them.
fn eight_bits() -> impl Iterator<Item = Spec> {
    let cases = [
        ("8 groups of 4096 rows", "4096*8", "", "blocks", 4096, 7168),
        ("8 groups of 4096 rows", "4096*8", "", "rows", 4096, 7168),
        ("32 groups of 256 rows", "256*32", "", "blocks", 7168, 2048),
        (
            "32 groups of 12 rows",
            "12*32",
            "1024",
            "blocks",
            4096,
            7168,
        ),
        (
            "4 groups of 256 rows",
            "256*4",
            "1024",
            "blocks",
            4096,
            7168,
        ),
    ];
    cases.into_iter().map(|(name, rows, room, scales, n, k)| {
        let masked = if room.is_empty() { "" } else { " masked" };
        let mut told = told([
            ("rows", rows.to_owned()),
            ("n", n.to_string()),
            ("k", k.to_string()),
            ("dtype", "e4m3".to_owned()),
            ("scales", scales.to_owned()),
        ]);
        if !room.is_empty() {
            told.set("room", room);
        }
        Spec {
            family: "grouped-gemm",
            name: format!("grouped-gemm e4m3 scales={scales}{masked} {name}, N {n} K {k}"),
            told,
            ours: vec![Ours::best()],
            peers: peers_of("grouped-gemm"),
            calls: 1,
        }
    })
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

#[cfg(test)]
mod tests {
    use super::*;
    use heist_kernels::{Target, catalogue};
    use heist_ptx::arch::Gpu as Simulated;

    #[test]
    fn every_kernel_of_the_suite_builds() {
        let Simulated { arch, sms, .. } = Simulated::H200;
        let target = Target { arch, sms };
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
