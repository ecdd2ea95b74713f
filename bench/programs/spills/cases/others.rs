//! What other machines are given: `mma.sync`, Blackwell's tensor memory; and attention everywhere.

use super::{
    Draw, HARD, OTHERS, SIZES, Stage, epilogues, group_kinds, kinds, shaped, with_rows, words,
};
use heist_kernels::gemm::{Gemm, Input, Layout, Output, Scales, Summing};

/// Architectures whose products are those of `mma.sync`.
const OLDER: [&str; 6] = ["sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"];

/// What takes registers on Blackwell.
const LAUNCH_CONTROL: [&str; 5] = [
    "clc early greedy grouped(8)",
    "clc late loaded: greedy",
    "clc early loaded: greedy",
    "clc early in-flight(4) greedy",
    "clc late pausing until-asked",
];

/// Tiles of `mma.sync`.
const MMA: [&str; 3] = ["mma-128x256", "mma-128x128", "mma-64x64"];
const GROUPED_MMA: [&str; 6] = [
    "mma-16",
    "mma-64-small",
    "mma-64",
    "mma-128-small",
    "mma-128-deep",
    "mma-128",
];

pub(super) fn chosen(draw: &mut Draw) {
    let halves: Vec<Gemm> = kinds()
        .into_iter()
        .filter(|kind| kind.scales == Scales::None && !kind.input.is_tiny())
        .collect();
    for arch in OLDER {
        for number in 0..48 {
            let kind = halves[draw.random.usize(..halves.len())];
            let shape = super::drawn(draw, &kind, number);
            let told = words(&shaped(&kind, shape));
            let (told, schedule) = (format!("{told} variant={}", draw.one(&MMA)), any(draw));
            draw.push(Stage::Chosen, arch, "gemm", &told, (Vec::new(), schedule));
        }
        for number in 0..24 {
            let kinds = group_kinds();
            let kind = kinds[draw.random.usize(..4)].clone();
            let told = words(&with_rows(draw, &kind, number, false));
            let variant = draw.one(&GROUPED_MMA);
            let (told, schedule) = (format!("{told} variant={variant}"), any(draw));
            draw.push(
                Stage::Chosen,
                arch,
                "grouped-gemm",
                &told,
                (Vec::new(), schedule),
            );
        }
    }
    on_tensor_memory(draw);
    attention(draw);
}

/// One that takes registers, another, or none.
fn any(draw: &mut Draw) -> Option<&'static str> {
    match draw.random.u8(..10) {
        0..=1 => None,
        2..=6 => Some(draw.one(&HARD)),
        _ => Some(draw.one(&OTHERS)),
    }
}

/// The same with launch control.
fn any_by_launch_control(draw: &mut Draw) -> Option<&'static str> {
    match draw.random.bool() {
        true => Some(draw.one(&LAUNCH_CONTROL)),
        false => any(draw),
    }
}

fn on_tensor_memory(draw: &mut Draw) {
    let tiny = |scales, output| {
        let one = Gemm::new(8, 8, 8, Input::E4m3, output, Layout::Nt);
        one.scales(scales)
    };
    let mut all = kinds();
    for output in [Output::Bf16, Output::F32] {
        let mx = tiny(Scales::Mx, output);
        all.extend(epilogues().map(|epilogue| mx.epilogue(epilogue)));
        let fast = Gemm {
            sums: Summing::Fast,
            ..mx
        };
        all.push(fast);
    }
    for number in 0..240 {
        let kind = all[draw.random.usize(..all.len())];
        let shape = super::drawn(draw, &kind, number % SIZES.len());
        let (told, schedule) = (words(&shaped(&kind, shape)), any_by_launch_control(draw));
        draw.push(
            Stage::Chosen,
            "sm_100a",
            "gemm",
            &told,
            (Vec::new(), schedule),
        );
    }
    for number in 0..80 {
        let kinds = group_kinds();
        let kind = kinds[draw.random.usize(..kinds.len())].clone();
        let masked = draw.random.bool();
        let told = words(&with_rows(draw, &kind, number, masked));
        let schedule = any_by_launch_control(draw);
        let kernel = "grouped-gemm";
        draw.push(
            Stage::Chosen,
            "sm_100a",
            kernel,
            &told,
            (Vec::new(), schedule),
        );
    }
}

/// Attention and its gradients, as they are chosen.
fn attention(draw: &mut Draw) {
    for number in 0..360 {
        let arch = draw.one(&["sm_90a", "sm_90a", "sm_90a", "sm_80", "sm_89", "sm_100a"]);
        let backward = number % 4 == 0;
        let dims: &[u32] = match backward {
            true => &[32, 64, 96, 128],
            false => &[32, 64, 64, 80, 96, 128, 128, 128, 192, 256],
        };
        let dim = draw.one(dims);
        let (dtype, mask) = (
            draw.one(&["f16", "bf16"]),
            draw.one(&["full", "causal", "window(99,0)"]),
        );
        let heads = draw.one(&[8, 16, 32]);
        let shared = draw.one(&[1, 1, 4, 8]);
        let lengths = match (backward, draw.random.u8(..5)) {
            // One query a sequence, or a few: decoding.
            (false, 0) => "batch=16 queries=1 keys=4096".to_owned(),
            (false, 1) => "lengths=1:4000,1:70,3:2000 page=64".to_owned(),
            (_, 2) => "lengths=900,17,3000,512".to_owned(),
            _ => format!("batch=4 queries={}", draw.one(&[128, 512, 1024, 4096])),
        };
        let mut told = format!(
            "{lengths} heads={heads} kv-heads={} dim={dim} dtype={dtype} mask={mask}",
            heads / shared
        );
        let more = match backward {
            true => draw.one(&["", "deterministic=true"]),
            false => draw.one(&[
                "",
                "",
                "",
                "out=f32",
                "weights=split",
                "softcap=30",
                "alibi=true",
                "sinks=true",
                "documents=true",
                "softcap=30 alibi=true sinks=true",
                "cache=e4m3",
            ]),
        };
        told.push(' ');
        told.push_str(more);
        let kernel = if backward {
            "attention-backward"
        } else {
            "attention"
        };
        let schedule = match backward {
            true => None,
            false => any(draw).filter(|_| draw.random.bool()),
        };
        draw.push(Stage::Chosen, arch, kernel, &told, (Vec::new(), schedule));
    }
}
