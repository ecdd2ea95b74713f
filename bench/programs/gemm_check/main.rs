//! Multiplications, one and many at a time, of every type, layout, edge, epilogue
//! and schedule on a device of your choice, each against f64.
//!
//! ```text
//! cargo run --release -p heist-bench --bin gemm_check -- --device gpu
//! compute-sanitizer --tool memcheck target/release/examples/gemm_check --device gpu --small
//! ```
//! `--small` runs a few small ones of each kind, for a sanitizer, and `--part 2/4` the
//! second of every four, so that several processes can share the work, and `--only wgmma:192`
//! those whose words contain this. The exit status is 1 when a result is wrong or a device finds something, and 2 where there is none.

use heist::kernels::catalogue::{Settings as Told, entry};
use heist::run::{Device, DeviceName, Settings};
use heist_sched::{Schedule, TileSource};
use std::process::ExitCode;

type Problem = Box<dyn std::error::Error>;

/// A kernel, what it is told, and its schedule: its own, or a source with a
/// policy and a cluster.
type Case = (
    &'static str,
    String,
    Option<(TileSource, &'static str, &'static str)>,
);

fn gemms(small: bool) -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    let sizes: &[[u32; 3]] = if small {
        &[[129, 70, 40]]
    } else {
        &[
            [129, 70, 40],
            [1, 1, 1],
            [7, 61, 33],
            [64, 64, 64],
            [127, 257, 65],
            [129, 255, 63],
            [128, 256, 128],
            [300, 200, 104],
        ]
    };
    let types = [
        ("bf16", "bf16"),
        ("tf32", "f32"),
        ("f16", "f16"),
        ("f16", "f32"),
    ];
    for (index, [m, n, k]) in sizes.iter().enumerate() {
        for (turn, layout) in ["nn", "nt", "tn", "tt"].into_iter().enumerate() {
            for (number, (dtype, out)) in types.into_iter().enumerate() {
                // The first size has every type in every layout (a sanitizer's
                // two of them), the others one that changes from one to the next.
                let picked = match (small, index) {
                    (true, _) => number < 2,
                    (false, 0) => true,
                    (false, _) => number == (index + turn) % types.len(),
                };
                if picked {
                    let told = format!("m={m} n={n} k={k} layout={layout} dtype={dtype} out={out}");
                    cases.push(("gemm", told, None));
                }
            }
        }
    }
    for activation in if small {
        &["gelu"][..]
    } else {
        &["none", "relu", "gelu", "silu"]
    } {
        let told = format!("m=130 n=100 k=72 alpha=0.5 beta=2 bias=true activation={activation}");
        cases.push(("gemm", told, None));
    }
    for variant in ["wgmma-128x256", "mma-128x256", "mma-128x128", "mma-64x64"] {
        for source in [TileSource::Direct, TileSource::Static, TileSource::Ticket] {
            if small && source != TileSource::Ticket {
                continue;
            }
            let told = format!("m=500 n=600 k=136 variant={variant}");
            let policies: &[&str] = match source {
                TileSource::Ticket if !small => &["greedy", "max-steals(1)", "every(2)", "never"],
                _ => &["greedy"],
            };
            for policy in policies {
                cases.push(("gemm", told.clone(), Some((source, policy, "1x1"))));
            }
        }
    }
    if !small {
        for layout in ["nn", "nt", "tn", "tt"] {
            cases.push((
                "gemm",
                format!("m=2048 n=1024 k=1024 layout={layout}"),
                None,
            ));
        }
    }
    cases
}

/// Multiplications on warpgroups, in every layout: one row or column, primes, one
/// less and one more than a tile where the layout allows it, and every epilogue
/// and schedule.
fn warpgroups(small: bool) -> Vec<Case> {
    let variant = "variant=wgmma-128x256";
    let all: &[(&str, &[[u32; 3]])] = &[
        (
            "nt",
            &[
                [129, 257, 72],
                [1, 1, 8],
                [61, 523, 200],
                [127, 255, 64],
                [128, 256, 56],
            ],
        ),
        (
            "nn",
            &[
                [129, 264, 72],
                [1, 8, 8],
                [61, 520, 200],
                [127, 248, 64],
                [128, 256, 56],
            ],
        ),
        (
            "tn",
            &[
                [136, 264, 67],
                [8, 8, 1],
                [400, 24, 127],
                [120, 248, 63],
                [128, 256, 65],
            ],
        ),
        (
            "tt",
            &[
                [136, 257, 72],
                [8, 1, 8],
                [400, 523, 200],
                [120, 255, 64],
                [128, 256, 56],
            ],
        ),
    ];
    let types = [
        ("bf16", "bf16"),
        ("f16", "f16"),
        ("f16", "f32"),
        ("bf16", "f32"),
        ("tf32", "f32"),
    ];
    let mut cases: Vec<Case> = Vec::new();
    // Tiles whose registers move between warpgroups, one and several of a block.
    for (config, out) in [
        ("192x192x64/3", "bf16"),
        ("256x192x64/3", "bf16"),
        ("256x160x64/3", "f32"),
    ] {
        for source in [TileSource::Direct, TileSource::Static, TileSource::Ticket] {
            let told = format!("m=4100 n=1600 k=200 out={out} config=wgmma:{config}");
            let told = match small {
                true => format!("m=260 n=200 k=72 out={out} config=wgmma:{config}"),
                false => told,
            };
            cases.push(("gemm", told, Some((source, "greedy", "1x1"))));
        }
        let told = format!("m=504 n=600 k=136 layout=tt out={out} config=wgmma:{config}");
        cases.push(("gemm", told, None));
    }
    for (layout, sizes) in all {
        for (index, [m, n, k]) in sizes.iter().enumerate() {
            for (number, (dtype, out)) in types.into_iter().enumerate() {
                // The first size in every type, a sanitizer's in two: tf32 has ways of its own.
                let picked = match (small, index) {
                    (true, _) => index == 0 && (number == 0 || dtype == "tf32"),
                    (false, 0) => true,
                    (false, _) => number == index % types.len(),
                };
                if picked {
                    let told = format!(
                        "m={m} n={n} k={k} layout={layout} dtype={dtype} out={out} {variant}"
                    );
                    cases.push(("gemm", told, None));
                }
            }
        }
        for activation in if small {
            &["gelu"][..]
        } else {
            &["none", "relu", "gelu", "silu"]
        } {
            cases.push((
                "gemm",
                format!(
                    "m=136 n=104 k=72 layout={layout} alpha=0.5 beta=2 bias=true activation={activation} {variant}"
                ),
                None,
            ));
        }
        // In clusters, with one tile more than pairs.
        for (cluster, source) in [
            ("1x2", TileSource::Static),
            ("2x1", TileSource::Static),
            ("1x2", TileSource::Ticket),
            ("2x1", TileSource::Direct),
        ] {
            if !small || (cluster, source) == ("1x2", TileSource::Static) {
                let told = format!("m=648 n=1288 k=136 layout={layout} {variant}");
                cases.push(("gemm", told, Some((source, "greedy", cluster))));
            }
        }
        if !small {
            let told = format!("m=1000 n=2000 k=1000 layout={layout} {variant}");
            cases.push(("gemm", told, None));
        }
    }
    cases
}

/// 8-bit floats with every kind of factors, and batches: edges, swapped operands, shares
/// of the depth, clusters.
fn tiny_and_batches(small: bool) -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    let shapes = [
        ("m=130 n=264 k=400", "wgmma:128x128x64/4"),
        ("m=9 n=200 k=272", "wgmma:64x16x128/3/swapped"),
        ("m=70 n=71 k=656", "wgmma:64x64x64/3/split=3"),
        ("m=66 n=40 k=528", "wgmma:64x32x128/2"),
        ("m=1 n=130 k=272", "wgmma:64x8x64/3/swapped/split=2"),
        ("m=300 n=520 k=1040", "wgmma:128x128x64/4/cluster=2"),
        ("m=1000 n=1000 k=2048", "wgmma:128x128x64/6"),
    ];
    for (number, (shape, tiling)) in shapes.into_iter().enumerate() {
        for scales in ["none", "tensor", "rows", "blocks"] {
            for dtype in ["e4m3", "e5m2"] {
                if !small || (number < 3 && dtype == "e4m3") {
                    let told = format!("{shape} dtype={dtype} scales={scales} config={tiling}");
                    cases.push(("gemm", told, None));
                }
            }
        }
    }
    // Scales of blocks in larger tiles, in pairs, and with two sets of partial sums; one tile a block and several.
    for (number, (shape, tiling)) in [
        ("m=300 n=264 k=400", "wgmma:192x128x64/4"),
        ("m=600 n=264 k=656", "wgmma:256x128x64/4"),
        ("m=1100 n=520 k=528", "wgmma:256x128x64/4/cluster=2"),
        ("m=70 n=200 k=912", "wgmma:64x128x64/6"),
        (
            "m=130 n=136 k=784",
            "wgmma:128x64x64/4/split=2/cluster=depth",
        ),
        ("m=2003 n=1800 k=656", "wgmma:128x128x64/6"),
        ("m=4000 n=2600 k=400", "wgmma:256x128x64/4"),
        ("m=4101 n=2500 k=272", "wgmma:256x128x64/4/cluster=2"),
        ("m=3001 n=2600 k=528", "wgmma:192x128x64/5"),
    ]
    .into_iter()
    .enumerate()
    {
        if !small || number < 5 {
            let told = format!("{shape} dtype=e4m3 scales=blocks config={tiling}");
            cases.push(("gemm", told, None));
        }
    }
    for sums in ["levels", "fast"] {
        let told = format!("m=512 n=768 k=512 dtype=e4m3 scales=rows out=f32 sums={sums}");
        cases.push(("gemm", told, None));
    }
    let told = "alpha=0.5 beta=2 bias=true activation=silu scales=rows dtype=e5m2";
    cases.push(("gemm", format!("m=130 n=104 k=144 {told}"), None));
    for (shape, tiling) in [
        ("m=70 n=72 k=136 batch=3", "wgmma:64x64x64/3"),
        ("m=65 n=67 k=72 batch=5", "wgmma:64x64x64/3"),
        ("m=9 n=72 k=72 batch=4 out=f32", "wgmma:64x16x64/3/swapped"),
        ("m=70 n=71 k=264 batch=2", "wgmma:64x64x64/3/split=2"),
        ("m=130 n=136 k=64 batch=33", "wgmma:128x128x64/3/cluster=2"),
        // Columns behind the last panel of a tile, and blocks that copy rows together.
        ("m=140 n=232 k=264", "wgmma:64x72x64/3"),
        ("m=300 n=408 k=200", "wgmma:128x104x64/4/cluster=beside"),
        ("m=264 n=375 k=136", "wgmma:192x120x64/3/cluster=beside"),
        ("m=300 n=376 k=136", "wgmma:256x184x64/3"),
        ("m=520 n=488 k=200", "wgmma:128x232x64/4/cluster=beside"),
        ("m=392 n=340 k=136", "wgmma:192x168x64/4/cluster=beside"),
        ("m=300 n=340 k=328", "wgmma:128x88x64/6/cluster=beside"),
        ("m=300 n=504 k=264", "wgmma:128x248x64/4"),
        ("m=520 n=336 k=72", "wgmma:256x112x64/4/cluster=2"),
        ("m=200 n=136 k=1032", "wgmma:128x72x64/4/split=4"),
        // Several tiles a block, whose two warpgroups are apart.
        ("m=1300 n=1160 k=200", "wgmma:128x64x64/8"),
        ("m=3000 n=1603 k=72", "wgmma:128x104x64/5"),
        // The last tiles of a launch in halves.
        ("m=2560 n=1603 k=200", "wgmma:128x256x64/4/halves"),
        ("m=2688 n=2504 k=136", "wgmma:128x160x64/5/halves/pingpong"),
        // The same in clusters, and where registers move once.
        ("m=2700 n=1608 k=200", "wgmma:128x128x64/4/cluster=2"),
        ("m=4100 n=1600 k=136", "wgmma:256x160x64/4/cluster=beside"),
        ("m=1600 n=4104 k=200", "wgmma:256x152x64/4/swapped"),
        ("m=2600 n=2504 k=72", "wgmma:192x200x64/3"),
        // Two warpgroups with a tile each.
        ("m=2700 n=1603 k=200", "wgmma:128x128x64/4/pingpong"),
        ("m=2700 n=2504 k=456", "wgmma:128x176x64/5/pingpong"),
        (
            "m=1300 n=3208 k=136",
            "wgmma:64x256x64/5/cluster=2/pingpong",
        ),
        // Clusters of four and eight tiles, some outside.
        ("m=200 n=300 k=328", "wgmma:64x64x64/4/cluster=2x2"),
        ("m=500 n=200 k=264", "wgmma:64x96x64/4/cluster=4x1"),
        ("m=300 n=408 k=200", "wgmma:128x104x64/4/cluster=1x4"),
        ("m=520 n=232 k=1032", "wgmma:64x128x64/8/cluster=4x2"),
        ("m=130 n=504 k=136", "wgmma:128x80x64/4/cluster=2x4"),
        ("m=150 n=520 k=264", "wgmma:128x48x64/4/swapped/cluster=2x2"),
        // Transposed results that leave in parts.
        (
            "m=200 n=264 k=328",
            "wgmma:256x152x64/4/swapped/cluster=beside",
        ),
        ("m=1300 n=300 k=200", "wgmma:128x240x64/4/swapped"),
        // Shares of the depth that add up their sums in a cluster.
        (
            "m=200 n=136 k=1032",
            "wgmma:128x64x64/4/split=4/cluster=depth",
        ),
        (
            "m=300 n=200 k=1032",
            "wgmma:128x128x64/4/split=2/cluster=depth",
        ),
        (
            "m=40 n=300 k=2056",
            "wgmma:64x64x64/6/swapped/split=8/cluster=depth",
        ),
        (
            "m=5 n=300 k=2056",
            "wgmma:64x8x128/5/swapped/split=7/cluster=depth*2",
        ),
        (
            "m=133 n=300 k=1032",
            "wgmma:64x72x64/8/swapped/split=4/cluster=depth",
        ),
        (
            "m=300 n=200 k=1032",
            "wgmma:192x88x64/4/split=3/cluster=depth",
        ),
    ] {
        for layout in ["nt", "nn"] {
            let shape = match layout {
                "nt" => shape.to_owned(),
                _ => in_whole_rows(shape),
            };
            let wide = layout == "nt" || !tiling.contains("cluster");
            if wide && (!small || layout == "nt") {
                let told = format!("{shape} layout={layout} beta=1 bias=true config={tiling}");
                cases.push(("gemm", told, None));
            }
        }
    }
    cases
}

/// The same with columns in a multiple of 8: rows of B that are stored the other way start at multiples of 16 bytes.
fn in_whole_rows(shape: &str) -> String {
    let words = shape.split(' ').map(|word| {
        let cols = word.strip_prefix("n=").and_then(|n| n.parse::<u32>().ok());
        cols.map_or(word.to_owned(), |n| format!("n={}", n.next_multiple_of(8)))
    });
    words.collect::<Vec<_>>().join(" ")
}

/// What a variant must refuse, and a word of its reason.
const REFUSED: [(&str, &str, &str); 3] = [
    (
        "grouped-gemm",
        "groups=8x8x8,16x8x8 variant=wgmma-128x256",
        "rows alone",
    ),
    ("gemm", "m=64 n=64 k=33 variant=wgmma-128x256", "16 bytes"),
    (
        "gemm",
        "m=64 n=65 k=64 layout=nn variant=wgmma-128x256",
        "16 bytes",
    ),
];

fn groups(small: bool) -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    let own = "groups=1x1x1,40x70x64,0x64x32,33x31x17,7x130x0,129x260x72".to_owned();
    for dtype in if small {
        &["bf16"][..]
    } else {
        &["f16", "bf16", "tf32"]
    } {
        for layout in ["nn", "nt"] {
            cases.push((
                "grouped-gemm",
                format!("{own} out=f32 dtype={dtype} layout={layout}"),
                None,
            ));
        }
    }
    for rows in [
        "40,200,0,1,96",
        "0,0,3",
        "1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,7",
    ] {
        for variant in [
            "wgmma-128x256",
            "mma-16",
            "mma-64-small",
            "mma-64",
            "mma-128-small",
            "mma-128-deep",
            "mma-128",
        ] {
            cases.push((
                "grouped-gemm",
                format!("rows={rows} n=264 k=136 variant={variant}"),
                None,
            ));
        }
        if small {
            break;
        }
    }
    for cluster in ["1x1", "1x2", "2x1", "2x2"] {
        for source in [TileSource::Ticket, TileSource::Static, TileSource::Direct] {
            if small && source != TileSource::Ticket {
                continue;
            }
            for variant in ["mma-64", "wgmma-128x256"] {
                let told = format!("rows=40,300,40,96,1 n=512 k=128 check=true variant={variant}");
                cases.push(("grouped-gemm", told, Some((source, "greedy", cluster))));
            }
        }
    }
    // On warpgroups: both layouts, all types, edges of n and k.
    for (number, rest) in [
        "n=257 k=72 dtype=bf16 out=bf16 layout=nt",
        "n=264 k=72 dtype=f16 out=f16 layout=nn",
        "n=8 k=8 dtype=f16 out=f32 layout=nn",
        "n=1 k=200 dtype=bf16 out=f32 layout=nt",
    ]
    .into_iter()
    .enumerate()
    {
        if !small || number < 2 {
            let told = format!("rows=1,0,129,61,127,0,300 {rest} variant=wgmma-128x256");
            cases.push(("grouped-gemm", told, None));
        }
    }
    // A tile for each of two warpgroups, registers that move once, scales of blocks.
    for rest in [
        "rows=40,600,0,1001,96,168 n=2048 k=72 config=wgmma:128x192x64/5/pingpong",
        "rows=40,600,0,1001,96,168 n=2048 k=208 dtype=e4m3 scales=blocks config=wgmma:128x128x64/6",
        "rows=40,600,0,1001,96,168 n=2056 k=1032 config=wgmma:64x256x64/5/pingpong",
        "rows=40,600,0,1001,96,168 n=2048 k=1024 layout=nn config=wgmma:128x160x64/5/pingpong",
        "rows=40,1600,0,2001,96,168 n=2048 k=528 config=wgmma:256x160x64/4",
        "rows=40,1600,0,2001,96,168 n=1160 k=528 dtype=e4m3 scales=blocks config=wgmma:256x128x64/4",
        "rows=40,1600,0,2001,96,168 n=1160 k=784 dtype=e4m3 scales=blocks config=wgmma:192x128x64/5",
        "rows=40,1600,0,2001,96,168 n=1160 k=784 dtype=e4m3 scales=rows config=wgmma:128x192x64/4",
        "rows=40,1600,0,2001,96,168 n=1160 k=784 dtype=e4m3 scales=rows config=wgmma:256x128x64/4",
        "rows=40,600,0,1001,96,168 n=2056 k=1040 dtype=e5m2 scales=rows config=wgmma:128x160x64/5",
    ] {
        cases.push(("grouped-gemm", rest.to_owned(), None));
    }
    if !small {
        for rest in ["", "layout=nn", "variant=mma-128", "variant=wgmma-128x256"] {
            cases.push((
                "grouped-gemm",
                format!("rows=40,600,0,1000,96,168 n=1024 k=1024 {rest}"),
                None,
            ));
        }
    }
    cases
}

/// Tiles that can be left half done and policies that are loaded, beside C: what takes the most registers. These are the kernels as they
/// are shipped; `heist run` counts tiles, which takes a loop that not all of them have.
fn let_go() -> Vec<(&'static str, String, &'static str)> {
    let mut cases = Vec::new();
    for (config, schedules) in [
        ("128x128x64/6/pingpong", &[PAUSING, LOADED][..]),
        ("128x168x64/5/pingpong", &[PAUSING]),
        ("128x256x64/4", &[PAUSING, LOADED, EARLY]),
        ("192x184x64/3", &[PAUSING, LOADED, EARLY]),
        ("256x152x64/3", &[EARLY]),
    ] {
        for epilogue in ["beta=0.5", "beta=0.5 bias=true activation=gelu"] {
            let told = format!("m=1500 n=1152 k=520 {epilogue} config=wgmma:{config}");
            cases.extend(
                schedules
                    .iter()
                    .map(|schedule| ("gemm", told.clone(), *schedule)),
            );
        }
    }
    // Where registers move, or rows are asked for in parts, since it spilled.
    for (told, config, schedule) in [
        ("scales=rows bias=true", "128x208x64/4/swapped", EARLY),
        (
            "layout=nn bias=true activation=gelu",
            "128x240x64/4/swapped",
            EARLY,
        ),
        ("scales=rows bias=true", "128x256x64/4/cluster=4x1", EARLY),
        (
            "dtype=e4m3 scales=rows sums=fast",
            "192x136x64/4/swapped",
            PAUSING,
        ),
        (
            "dtype=e4m3 scales=rows sums=fast",
            "128x136x64/4/swapped",
            EARLY,
        ),
        (
            "dtype=e4m3 scales=rows sums=fast beta=0.5",
            "128x224x64/4/swapped/cluster=2",
            STEALS,
        ),
        (
            "dtype=e4m3 scales=rows sums=fast beta=0.5 bias=true",
            "128x256x64/4/cluster=2",
            STEALS,
        ),
        (
            "layout=nn out=f32 bias=true",
            "128x128x64/6/pingpong",
            LOADED,
        ),
        (
            "scales=tensor bias=true",
            "192x160x64/4/cluster=beside",
            EARLY,
        ),
        ("beta=0.5 bias=true", "128x168x64/5/pingpong", "ticket late"),
    ] {
        for n in [1152, 1170] {
            // Rows that threads store do not fit in clusters' only loop, nor do they begin where `nn` needs it.
            let in_one_loop = schedule == EARLY && config.contains("cluster");
            let fits = n == 1152 || !(told.contains("nn") || in_one_loop);
            let told = format!("m=1504 n={n} k=528 {told} config=wgmma:{config}");
            cases.extend(fits.then_some(("gemm", told, schedule)));
        }
    }
    let told = "m=5120 n=2176 k=1088 layout=nn out=f32 bias=true config=wgmma:128x192x64/4/tail";
    cases.push(("gemm", told.to_owned(), "direct grouped(16)"));
    let told = "rows=60*16 room=256 n=1488 k=528 dtype=e4m3 scales=rows sums=fast config=wgmma:64x256x64/5/pingpong";
    cases.push(("grouped-gemm", told.to_owned(), "ticket late"));
    cases
}

const STEALS: &str = "ticket late max-steals(4)";
const PAUSING: &str = "ticket late pausing until-asked";
const LOADED: &str = "ticket late loaded: greedy";
const EARLY: &str = "ticket early loaded: greedy";

/// A case with its schedule.
fn scheduled(
    (name, told, schedule): Case,
) -> Result<(&'static str, String, Option<Schedule>), Problem> {
    let schedule = match schedule {
        None => None,
        Some((source, policy, cluster)) => {
            let mut schedule = Schedule::new(source).policy(policy.parse()?);
            schedule.cluster = cluster.parse()?;
            Some(schedule)
        }
    };
    Ok((name, told, schedule))
}

fn run() -> Result<bool, Problem> {
    let (mut device, mut small) = ("gpu".parse::<DeviceName>()?, false);
    let (mut parts, mut only) = ((1, 1), String::new());
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--small" => small = true,
            "--device" => device = words.next().ok_or("--device needs a name")?.parse()?,
            "--part" => {
                let part = words.next().ok_or("--part needs a fraction")?;
                let (which, of) = part.split_once('/').ok_or("a part is one like 2/4")?;
                parts = (which.parse::<usize>()?, of.parse::<usize>()?);
            }
            "--only" => only = words.next().ok_or("--only needs a text")?,
            _ => {
                let known = "--device, --small, --part and --only";
                return Err(format!("`{word}` is unknown; there are {known}").into());
            }
        }
    }
    let device = Device::open(device)?;
    let target = heist::job::target(&device)?;
    let (mut right, mut wrong) = (0, 0);
    for (name, told, reason) in REFUSED {
        let words = Told::from_words(told.split_whitespace())?;
        match entry(name)?.prepare(&words, None, target) {
            Err(error) if error.to_string().contains("has no wgmma") => {}
            Err(error) if error.to_string().contains(reason) => {
                println!("refused: {name} {told}: {error}")
            }
            other => {
                wrong += 1;
                let error = other.err().map(|error| error.to_string());
                println!("WRONG: {name} {told} was not refused: {error:?}");
            }
        }
    }
    let cases = gemms(small).into_iter().chain(warpgroups(small));
    let cases = cases.chain(tiny_and_batches(small));
    let cases = cases.chain(groups(small)).map(scheduled);
    let let_go = let_go().into_iter().filter(|_| !small);
    let let_go = let_go.map(|(name, told, schedule)| Ok((name, told, Some(schedule.parse()?))));
    for (number, case) in cases.chain(let_go).enumerate() {
        let (name, told, schedule) = case?;
        if number % parts.1.max(1) + 1 != parts.0 || !told.contains(&only) {
            continue;
        }
        let told_words = Told::from_words(told.split_whitespace())?;
        let what = match &schedule {
            Some(schedule) => format!("{name} {told} {schedule}"),
            None => format!("{name} {told}"),
        };
        let mut prepared = match entry(name)?.prepare(&told_words, schedule.as_ref(), target) {
            Ok(prepared) => prepared,
            // What the device does not have.
            Err(error)
                if ["shared memory", "has no wgmma"]
                    .iter()
                    .any(|lack| error.to_string().contains(lack)) =>
            {
                println!("not here: {what}: {error}");
                continue;
            }
            Err(error) => {
                wrong += 1;
                println!("WRONG: {what} was refused: {error}");
                continue;
            }
        };
        let reports = heist::job::inspect(&device, &mut prepared.job, &Settings::default())?;
        let found = reports.iter().flat_map(|step| &step.execution.findings);
        let found: Vec<_> = found.map(|found| found.message.clone()).collect();
        let difference = (prepared.verify)(&prepared.job)?;
        if found.is_empty() && difference.within(prepared.bound) {
            right += 1;
        } else {
            wrong += 1;
            println!("WRONG: {what}: {difference} {found:?}");
        }
    }
    println!("{right} right, {wrong} wrong");
    Ok(wrong == 0 && right > 0)
}

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(problem) => {
            eprintln!("{problem}");
            ExitCode::from(2)
        }
    }
}
