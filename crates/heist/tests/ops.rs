//! The operations over host memory on a simulated GPU.

use half::{bf16, f16};
use heist::kernels::attention::{Cache, Dtype, Layout, Mask};
use heist::kernels::gemm::{
    Activation, Epilogue, Gemm, Input, Layout as GemmLayout, Output, Scales,
};
use heist::ops::{
    Added, Attention, AttentionBackward, AttentionBackwardOperands, AttentionOperands,
    BorrowedStream, ExpertLayer, ExpertOperands, GemmOperands, GroupedGemm, GroupedOperands,
    Memory, OpError, Ops, Sequences, WorkspaceMemory,
};
use heist::run::{Device, DeviceName};

const STREAM: BorrowedStream = BorrowedStream(0);

fn ops() -> Ops {
    let name: DeviceName = "sim:h200".parse().expect("a device");
    Ops::new(Device::open(name).expect("a simulated one is there")).expect("one for kernels")
}

fn random(seed: u64, count: usize) -> Vec<f64> {
    let mut random = fastrand::Rng::with_seed(seed);
    // Eighths: exact in every type here.
    (0..count)
        .map(|_| f64::from(random.i32(-8..=8)) / 8.0)
        .collect()
}

fn halves(values: &[f64]) -> Vec<u16> {
    values.iter().map(|v| f16::from_f64(*v).to_bits()).collect()
}

fn brains(values: &[f64]) -> Vec<u16> {
    values
        .iter()
        .map(|v| bf16::from_f64(*v).to_bits())
        .collect()
}

fn from_halves(bits: &[u16]) -> Vec<f64> {
    bits.iter().map(|b| f16::from_bits(*b).to_f64()).collect()
}

fn from_brains(bits: &[u16]) -> Vec<f64> {
    bits.iter().map(|b| bf16::from_bits(*b).to_f64()).collect()
}

fn close(found: &[f64], expected: &[f64], bound: f64) {
    assert_eq!(found.len(), expected.len());
    for (index, (found, expected)) in found.iter().zip(expected).enumerate() {
        let error = (found - expected).abs();
        assert!(
            error <= bound,
            "element {index}: {found}, and {expected} is right"
        );
    }
}

/// Softmax of one query row over some keys.
fn attend(q: &[f64], keys: &[&[f64]], values: &[&[f64]], scale: f64) -> (Vec<f64>, f64) {
    let dot = |key: &&[f64]| q.iter().zip(*key).map(|(a, b)| a * b).sum::<f64>() * scale;
    let scores: Vec<f64> = keys.iter().map(dot).collect();
    let sum: f64 = scores.iter().map(|s| s.exp()).sum();
    let mut out = vec![0.0; q.len()];
    for (score, value) in scores.iter().zip(values) {
        for (out, v) in out.iter_mut().zip(*value) {
            *out += score.exp() / sum * v;
        }
    }
    (out, sum.ln())
}

#[test]
fn a_product_with_pitches_and_an_epilogue() {
    let ops = ops();
    let (m, n, k, lda, ldc) = (24u32, 16u32, 40u32, 48u32, 24u32);
    let mut problem = Gemm::new(m, n, k, Input::Bf16, Output::F32, GemmLayout::Nt);
    (problem.lda, problem.ldc) = (lda, ldc);
    problem.epilogue = Epilogue {
        alpha: 0.5,
        beta: 2.0,
        bias: true,
        activation: Activation::Relu,
    };
    let plan = ops.gemm(&problem, None).expect("a plan");
    let (a, b) = (random(1, (m * lda) as usize), random(2, (n * k) as usize));
    let bias: Vec<f32> = (0..n).map(|i| i as f32 - 8.0).collect();
    let c: Vec<f32> = random(3, (m * ldc) as usize)
        .iter()
        .map(|v| *v as f32)
        .collect();
    let mut d = vec![-77f32; (m * ldc) as usize];
    let (a_bits, b_bits) = (brains(&a), brains(&b));
    let operands = GemmOperands {
        a: Memory::host(&a_bits),
        b: Memory::host(&b_bits),
        c: Some(Memory::host(&c)),
        d: Memory::host_mut(&mut d),
        bias: Some(Memory::host(&bias)),
        scales: None,
    };
    plan.launch(&operands, WorkspaceMemory::NONE, STREAM)
        .expect("a launch");
    for row in 0..m as usize {
        for col in 0..ldc as usize {
            let at = row * ldc as usize + col;
            let expected = if col < n as usize {
                let product = |i: usize| a[row * lda as usize + i] * b[col * k as usize + i];
                let sum: f64 = (0..k as usize).map(product).sum();
                (0.5 * sum + 2.0 * f64::from(c[at]) + f64::from(bias[col])).max(0.0)
            } else {
                -77.0
            };
            assert!(
                (f64::from(d[at]) - expected).abs() < 1e-3,
                "{row} {col}: {} {expected}",
                d[at]
            );
        }
    }
}

#[test]
fn attention_with_shared_heads() {
    let ops = ops();
    let problem = Attention {
        sequences: Sequences::Same {
            batch: 1,
            queries: 20,
            keys: 36,
        },
        heads: 4,
        kv_heads: 2,
        head_dim: 16,
        value_dim: None,
        dtype: Dtype::F16,
        cache: Cache::Same,
        mask: Mask::Causal,
        layout: Layout::Rows,
        scale: Some(0.5),
        added: Added::default(),
    };
    let plan = ops.attention(&problem, None).expect("a plan");
    let (q, k, v) = (
        random(1, 20 * 4 * 16),
        random(2, 36 * 2 * 16),
        random(3, 36 * 2 * 16),
    );
    let bits = [halves(&q), halves(&k), halves(&v)];
    let mut out = vec![0u16; q.len()];
    let mut lse = vec![0f32; 4 * 20];
    let operands = AttentionOperands {
        q: Memory::host(&bits[0]),
        k: Memory::host(&bits[1]),
        v: Memory::host(&bits[2]),
        out: Memory::host_mut(&mut out),
        lse: Some(Memory::host_mut(&mut lse)),
        q_starts: None,
        k_starts: None,
        pages: None,
        k_scale: None,
        v_scale: None,
        slopes: None,
        sinks: None,
    };
    plan.launch(&operands, WorkspaceMemory::NONE, STREAM)
        .expect("a launch");
    let out = from_halves(&out);
    for row in 0..20 {
        for head in 0..4 {
            let at = (row * 4 + head) * 16;
            let of = |data| -> Vec<&[f64]> {
                let data: &Vec<f64> = data;
                (0..=row + 16)
                    .map(|key| &data[(key * 2 + head / 2) * 16..][..16])
                    .collect()
            };
            let (expected, sum) = attend(&q[at..at + 16], &of(&k), &of(&v), 0.5);
            close(&out[at..at + 16], &expected, 4e-3);
            assert!((f64::from(lse[head * 20 + row]) - sum).abs() < 1e-3);
        }
    }
    // Without anyone who wants it, the log-sum-exp goes to the workspace.
    let operands = AttentionOperands {
        q: Memory::host(&bits[0]),
        k: Memory::host(&bits[1]),
        v: Memory::host(&bits[2]),
        out: Memory::host_mut(&mut lse),
        lse: None,
        q_starts: None,
        k_starts: None,
        pages: None,
        k_scale: None,
        v_scale: None,
        slopes: None,
        sinks: None,
    };
    let error = plan.launch(&operands, WorkspaceMemory::NONE, STREAM);
    let error = error
        .expect_err("the result does not fit there")
        .to_string();
    assert!(
        error.contains("out takes 2560 bytes and has 320"),
        "{error}"
    );
}

/// Scores as a model changes them, and values that are narrower than keys: slopes and sinks are the
/// caller's memory, and all of it is part of the key of a plan.
#[test]
fn what_a_model_adds_to_attention() {
    let ops = ops();
    let (rows, dim, value_dim) = (40, 32, 16);
    let added = Added {
        softcap: Some(1.5),
        alibi: true,
        sinks: true,
    };
    let problem = Attention {
        sequences: Sequences::Same {
            batch: 1,
            queries: rows,
            keys: rows,
        },
        heads: 2,
        kv_heads: 1,
        head_dim: dim,
        value_dim: Some(value_dim),
        dtype: Dtype::F16,
        cache: Cache::Same,
        mask: Mask::Causal,
        layout: Layout::Heads,
        scale: Some(0.5),
        added,
    };
    let (rows, dim, value_dim) = (rows as usize, dim as usize, value_dim as usize);
    let (q, k) = (random(1, 2 * rows * dim), random(2, rows * dim));
    let v = random(3, rows * value_dim);
    let bits = [halves(&q), halves(&k), halves(&v)];
    let (slopes, sinks) = ([0.5f32, 0.125], [1.0f32, -2.0]);
    let run = |problem: &Attention| {
        let plan = ops.attention(problem, None).expect("a plan");
        let mut out = vec![0u16; 2 * rows * value_dim];
        let operands = AttentionOperands {
            q: Memory::host(&bits[0]),
            k: Memory::host(&bits[1]),
            v: Memory::host(&bits[2]),
            out: Memory::host_mut(&mut out),
            lse: None,
            q_starts: None,
            k_starts: None,
            pages: None,
            k_scale: None,
            v_scale: None,
            slopes: problem.added.alibi.then(|| Memory::host(&slopes)),
            sinks: problem.added.sinks.then(|| Memory::host(&sinks)),
        };
        plan.launch(&operands, WorkspaceMemory::NONE, STREAM)
            .expect("a launch");
        from_halves(&out)
    };
    let right = |added: Added, head: usize, row: usize| {
        let product = |key: usize| -> f64 {
            let query = &q[(head * rows + row) * dim..][..dim];
            let score: f64 = query.iter().zip(&k[key * dim..]).map(|(a, b)| a * b).sum();
            let score = added.softcap.map_or(0.5 * score, |cap| {
                f64::from(cap) * (0.5 * score / f64::from(cap)).tanh()
            });
            let slope = if added.alibi { slopes[head] } else { 0.0 };
            (score - f64::from(slope) * (row - key) as f64).exp()
        };
        let weights: Vec<f64> = (0..=row).map(product).collect();
        let sink = if added.sinks {
            f64::from(sinks[head]).exp()
        } else {
            0.0
        };
        let sum = weights.iter().sum::<f64>() + sink;
        (0..value_dim)
            .map(|element| {
                let values = weights.iter().enumerate();
                let weighed = values.map(|(key, weight)| weight * v[key * value_dim + element]);
                weighed.sum::<f64>() / sum
            })
            .collect::<Vec<f64>>()
    };
    for added in [
        added,
        Added {
            sinks: false,
            ..added
        },
        Added::default(),
    ] {
        let found = run(&Attention { added, ..problem });
        for (line, found) in found.chunks_exact(value_dim).enumerate() {
            close(found, &right(added, line / rows, line % rows), 4e-3);
        }
    }
    let none = Added {
        softcap: Some(0.0),
        ..added
    };
    let refused = |problem: Attention| match ops.attention(&problem, None) {
        Ok(plan) => panic!("{} was planned", plan.name()),
        Err(error) => error.to_string(),
    };
    let why = refused(Attention {
        added: none,
        ..problem
    });
    assert!(why.contains("a number above zero"), "{why}");
    let why = refused(Attention {
        value_dim: Some(48),
        ..problem
    });
    assert!(why.contains("at most as many as of keys"), "{why}");
}

#[test]
fn packed_sequences_are_read_on_the_device() {
    let ops = ops();
    let problem = Attention {
        sequences: Sequences::Packed {
            batch: 3,
            most_queries: 17,
            most_keys: 17,
            query_rows: 25,
            key_rows: 25,
        },
        heads: 2,
        kv_heads: 2,
        head_dim: 32,
        value_dim: None,
        dtype: Dtype::Bf16,
        cache: Cache::Same,
        mask: Mask::Full,
        layout: Layout::Rows,
        scale: None,
        added: Added::default(),
    };
    // The same plan for sequences that lie otherwise.
    let plan = ops.attention(&problem, None).expect("a plan");
    let bits: Vec<Vec<f64>> = (1..4).map(|seed| random(seed, 25 * 2 * 32)).collect();
    let [q, k, v] = [0, 1, 2].map(|i| brains(&bits[i]));
    for starts in [[0u32, 17, 17, 25], [0, 5, 11, 25]] {
        let mut out = vec![0u16; q.len()];
        let operands = AttentionOperands {
            q: Memory::host(&q),
            k: Memory::host(&k),
            v: Memory::host(&v),
            out: Memory::host_mut(&mut out),
            lse: None,
            q_starts: Some(Memory::host(&starts)),
            k_starts: Some(Memory::host(&starts)),
            pages: None,
            k_scale: None,
            v_scale: None,
            slopes: None,
            sinks: None,
        };
        plan.launch(&operands, WorkspaceMemory::NONE, STREAM)
            .expect("a launch");
        let out = from_brains(&out);
        for pair in starts.windows(2) {
            for row in pair[0]..pair[1] {
                for head in 0..2 {
                    let at = |row: u32| (row as usize * 2 + head) * 32;
                    let of = |data: usize| -> Vec<&[f64]> {
                        (pair[0]..pair[1])
                            .map(|key| &bits[data][at(key)..][..32])
                            .collect()
                    };
                    let q = &bits[0][at(row)..][..32];
                    let (expected, _) = attend(q, &of(1), &of(2), 1.0 / 32f64.sqrt());
                    close(&out[at(row)..][..32], &expected, 2e-2);
                }
            }
        }
    }
    assert_eq!(ops.len(), 1);
}

#[test]
fn pages_are_read_on_the_device() {
    let ops = ops();
    let (page, most_pages, pages) = (8u32, 3u32, 7u32);
    let problem = Attention {
        sequences: Sequences::Paged {
            batch: 2,
            queries: 1,
            page,
            most_pages,
            pages,
        },
        heads: 4,
        kv_heads: 2,
        head_dim: 64,
        value_dim: None,
        dtype: Dtype::F16,
        cache: Cache::Same,
        mask: Mask::Full,
        layout: Layout::Rows,
        scale: None,
        added: Added::default(),
    };
    let plan = ops.attention(&problem, None).expect("a plan");
    let (q, rows) = (random(1, 2 * 4 * 64), (pages * page) as usize);
    let (k, v) = (random(2, rows * 2 * 64), random(3, rows * 2 * 64));
    let bits = [halves(&q), halves(&k), halves(&v)];
    // The last page of all is in use; one entry is never looked at.
    let (table, lengths, starts) = ([6u32, 0, 2, 5, 1, u32::MAX], [20u32, 9], [0u32, 1, 2]);
    let mut out = vec![0u16; q.len()];
    let operands = AttentionOperands {
        q: Memory::host(&bits[0]),
        k: Memory::host(&bits[1]),
        v: Memory::host(&bits[2]),
        out: Memory::host_mut(&mut out),
        lse: None,
        q_starts: Some(Memory::host(&starts)),
        k_starts: Some(Memory::host(&lengths)),
        pages: Some(Memory::host(&table)),
        k_scale: None,
        v_scale: None,
        slopes: None,
        sinks: None,
    };
    plan.launch(&operands, WorkspaceMemory::NONE, STREAM)
        .expect("a launch");
    let out = from_halves(&out);
    for sequence in 0..2 {
        for head in 0..4 {
            let row = |key: u32| {
                let page_of = table[sequence * 3 + (key / page) as usize];
                (page_of * page + key % page) as usize
            };
            let of = |data| -> Vec<&[f64]> {
                let data: &Vec<f64> = data;
                (0..lengths[sequence])
                    .map(|key| &data[(row(key) * 2 + head / 2) * 64..][..64])
                    .collect()
            };
            let at = (sequence * 4 + head) * 64;
            let (expected, _) = attend(&q[at..at + 64], &of(&k), &of(&v), 0.125);
            close(&out[at..at + 64], &expected, 4e-3);
        }
    }
}

#[test]
fn groups_are_read_on_the_device() {
    let ops = ops();
    let problem = GroupedGemm {
        groups: 3,
        rows: 30,
        n: 16,
        k: 32,
        input: Input::Bf16,
        output: Output::F32,
        layout: GemmLayout::Nn,
    };
    let plan = ops.grouped_gemm(&problem, None).expect("a plan");
    let (a, b) = (random(1, 30 * 32), random(2, 3 * 32 * 16));
    let (a_bits, b_bits) = (brains(&a), brains(&b));
    for ends in [[10u32, 10, 30], [3, 20, 28]] {
        let mut d = vec![-1f32; 30 * 16];
        let operands = GroupedOperands {
            a: Memory::host(&a_bits),
            b: Memory::host(&b_bits),
            d: Memory::host_mut(&mut d),
            ends: Memory::host(&ends),
        };
        plan.launch(&operands, WorkspaceMemory::NONE, STREAM)
            .expect("a launch");
        for row in 0..30 {
            let group = ends.iter().position(|end| row < *end as usize);
            for col in 0..16 {
                let product = |g: usize, i: usize| a[row * 32 + i] * b[(g * 32 + i) * 16 + col];
                let expected = group.map_or(-1.0, |g| (0..32).map(|i| product(g, i)).sum());
                assert!(
                    (f64::from(d[row * 16 + col]) - expected).abs() < 1e-3,
                    "{row} {col}"
                );
            }
        }
    }
}

#[test]
fn experts_find_their_tokens_on_the_device() {
    let ops = ops();
    let (tokens, hidden, inner) = (12usize, 64usize, 32usize);
    let layer = ExpertLayer {
        experts: 3,
        tokens: 12,
        per: 2,
        hidden: 64,
        inner: 32,
        dtype: Input::Bf16,
    };
    let plan = ops.expert_layer(&layer, None).expect("a plan");
    assert_eq!(plan.launches(), 3);
    let x = random(1, tokens * hidden);
    let (up, down) = (
        random(2, 3 * 2 * inner * hidden),
        random(3, 3 * hidden * inner),
    );
    let weights: Vec<f32> = random(4, tokens * 2).iter().map(|w| *w as f32).collect();
    let bits = [brains(&x), brains(&up), brains(&down)];
    // Every slot once; one expert has no token, another has nearly all.
    let order: Vec<u32> = (0..24).map(|i| i * 7 % 24).collect();
    for ends in [[8u32, 15, 24], [1, 1, 24]] {
        let mut d = vec![0u16; tokens * hidden];
        let operands = ExpertOperands {
            x: Memory::host(&bits[0]),
            up: Memory::host(&bits[1]),
            down: Memory::host(&bits[2]),
            weights: Memory::host(&weights),
            order: Memory::host(&order),
            ends: Memory::host(&ends),
            d: Memory::host_mut(&mut d),
        };
        plan.launch(&operands, WorkspaceMemory::NONE, STREAM)
            .expect("a launch");
        let mut expected = vec![0.0; tokens * hidden];
        for (row, slot) in order.iter().enumerate() {
            let slot = *slot as usize;
            let token = slot / 2;
            let expert = ends
                .iter()
                .position(|end| row < *end as usize)
                .expect("one");
            let dot = |weights: &[f64], from: usize, with: &[f64]| -> f64 {
                with.iter().zip(&weights[from..]).map(|(a, b)| a * b).sum()
            };
            let own = &x[token * hidden..][..hidden];
            let gated: Vec<f64> = (0..inner)
                .map(|i| {
                    let gate = dot(&up, (expert * 2 * inner + i) * hidden, own);
                    let other = dot(&up, (expert * 2 * inner + inner + i) * hidden, own);
                    gate / (1.0 + (-gate).exp()) * other
                })
                .collect();
            for col in 0..hidden {
                let sum = dot(&down, (expert * hidden + col) * inner, &gated);
                expected[token * hidden + col] += f64::from(weights[slot]) * sum;
            }
        }
        let largest = expected
            .iter()
            .fold(0.0f64, |most, value| most.max(value.abs()));
        close(&from_brains(&d), &expected, largest * 1e-2);
    }
}

#[test]
fn keys_of_eight_bits_in_pages() {
    let ops = ops();
    let problem = Attention {
        sequences: Sequences::Paged {
            batch: 1,
            queries: 1,
            page: 16,
            most_pages: 3,
            pages: 5,
        },
        heads: 2,
        kv_heads: 1,
        head_dim: 64,
        value_dim: None,
        dtype: Dtype::Bf16,
        cache: Cache::E4m3,
        mask: Mask::Causal,
        layout: Layout::Rows,
        scale: Some(0.125),
        added: Added::default(),
    };
    let plan = ops.attention(&problem, None).expect("a plan");
    let q = random(1, 2 * 64);
    // Of 8-bit floats: a sign, four bits of exponent, three of fraction.
    let mut random = fastrand::Rng::with_seed(2);
    let tiny: [Vec<u8>; 2] =
        [(); 2].map(|()| (0..5 * 16 * 64).map(|_| random.u8(..) & 0xBF).collect());
    let value = |bits: u8| {
        let (exponent, fraction) = (i32::from(bits >> 3 & 15), f64::from(bits & 7) / 8.0);
        let size = match exponent {
            0 => fraction * 2f64.powi(-6),
            _ => (1.0 + fraction) * 2f64.powi(exponent - 7),
        };
        if bits & 0x80 == 0 { size } else { -size }
    };
    let (pages, keys, scales) = ([4u32, 0, 2], 37usize, [0.5f32, 3.0]);
    let (bits, lengths) = (brains(&q), [keys as u32]);
    let mut out = vec![0u16; 2 * 64];
    let operands = AttentionOperands {
        q: Memory::host(&bits),
        k: Memory::host(&tiny[0]),
        v: Memory::host(&tiny[1]),
        out: Memory::host_mut(&mut out),
        lse: None,
        q_starts: Some(Memory::host(&[0u32, 1])),
        k_starts: Some(Memory::host(&lengths)),
        pages: Some(Memory::host(&pages)),
        k_scale: Some(Memory::host(&scales[..1])),
        v_scale: Some(Memory::host(&scales[1..])),
        slopes: None,
        sinks: None,
    };
    plan.launch(&operands, WorkspaceMemory::NONE, STREAM)
        .expect("a launch");
    let rows = |which: usize| -> Vec<Vec<f64>> {
        let row = |key: usize| (pages[key / 16] as usize * 16 + key % 16) * 64;
        let scale = f64::from(scales[which]);
        (0..keys)
            .map(|key| {
                tiny[which][row(key)..][..64]
                    .iter()
                    .map(|bits| value(*bits) * scale)
                    .collect()
            })
            .collect()
    };
    let (keys, values) = (rows(0), rows(1));
    let keys: Vec<&[f64]> = keys.iter().map(Vec::as_slice).collect();
    let values: Vec<&[f64]> = values.iter().map(Vec::as_slice).collect();
    for head in 0..2 {
        let (expected, _) = attend(&q[head * 64..][..64], &keys, &values, 0.125);
        close(&from_brains(&out)[head * 64..][..64], &expected, 2e-2);
    }
}

#[test]
fn plans_are_kept_and_shared() {
    let ops = ops();
    let problem = Gemm::new(16, 16, 16, Input::F16, Output::F16, GemmLayout::Nn);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| ops.gemm(&problem, None).map(|_| ()).expect("a plan"));
        }
    });
    assert_eq!(ops.len(), 1);
    let schedule = heist::sched::Schedule::new(heist::sched::TileSource::Ticket);
    let plan = ops.gemm(&problem, Some(&schedule)).expect("a plan");
    assert_eq!(ops.len(), 2);
    // Tickets are drawn from a counter that must be zero; a block a tile draws none.
    assert!(plan.workspace().counters > 0);
    let direct = heist::sched::Schedule::new(heist::sched::TileSource::Direct);
    let plan = ops.gemm(&problem, Some(&direct)).expect("a plan");
    assert_eq!(plan.workspace().counters, 0);
}

#[test]
fn a_product_whose_rows_and_columns_have_factors() {
    let ops = ops();
    let (m, n, k) = (24usize, 16usize, 32usize);
    let size = [m, n, k].map(|extent| extent as u32);
    let mut problem = Gemm::new(
        size[0],
        size[1],
        size[2],
        Input::Bf16,
        Output::F32,
        GemmLayout::Nt,
    );
    problem.scales = Scales::Rows;
    let plan = ops.gemm(&problem, None).expect("a plan");
    let (a, b) = (random(1, m * k), random(2, n * k));
    let of_rows: Vec<f32> = (0..m).map(|row| 0.5 + row as f32).collect();
    let of_cols: Vec<f32> = (0..n).map(|col| 0.25 * (1 + col) as f32).collect();
    let mut d = vec![-77f32; m * n];
    let (a_bits, b_bits) = (brains(&a), brains(&b));
    let mut operands = GemmOperands {
        a: Memory::host(&a_bits),
        b: Memory::host(&b_bits),
        c: None,
        d: Memory::host_mut(&mut d),
        bias: None,
        scales: Some([Memory::host(&of_rows), Memory::host(&of_cols)]),
    };
    plan.launch(&operands, WorkspaceMemory::NONE, STREAM)
        .expect("a launch");
    operands.scales = None;
    let without = plan.launch(&operands, WorkspaceMemory::NONE, STREAM);
    assert!(matches!(without, Err(OpError::Memory(why)) if why.contains("scale_a is missing")));
    let right: Vec<f64> = (0..m * n)
        .map(|at| {
            let (row, col) = (at / n, at % n);
            let sum: f64 = (0..k).map(|i| a[row * k + i] * b[col * k + i]).sum();
            sum * f64::from(of_rows[row]) * f64::from(of_cols[col])
        })
        .collect();
    let found: Vec<f64> = d.iter().map(|v| f64::from(*v)).collect();
    close(&found, &right, 1e-3);
}

#[test]
fn memory_that_does_not_fit_is_refused() {
    let ops = ops();
    let problem = Gemm::new(16, 16, 16, Input::F16, Output::F16, GemmLayout::Nn);
    let plan = ops.gemm(&problem, None).expect("a plan");
    let (a, mut d) = (vec![0u16; 256 + 8], vec![0u16; 256]);
    let right = GemmOperands {
        a: Memory::host(&a[..256]),
        b: Memory::host(&a[..256]),
        c: None,
        d: Memory::host_mut(&mut d),
        bias: None,
        scales: None,
    };
    let refused = |operands: &GemmOperands<'_>, why: &str| {
        let found = plan.launch(operands, WorkspaceMemory::NONE, STREAM);
        match found {
            Err(OpError::Memory(text)) if text.contains(why) => {}
            other => panic!("{why}: {other:?}"),
        }
    };
    let with = |a| GemmOperands { a, ..right };
    refused(
        &with(Memory::host(&a[..255])),
        "a takes 512 bytes and has 510",
    );
    refused(&with(Memory::host(&a[1..])), "no multiple of 16 bytes");
    refused(&with(Memory::at_device(4096, 512)), "is on a GPU");
    let read_only = GemmOperands {
        d: Memory::host(&a[..256]),
        ..right
    };
    refused(&read_only, "was given to be read");
    assert!(ops.gemm(&Gemm { m: 0, ..problem }, None).is_err());
}

/// What attention gives for these, in f64, and the gradients of a sum with weights
/// `d_out`: rows of heads, one sequence, a query head for each key head.
fn differentiate(data: &[Vec<f64>; 4], rows: (usize, usize), heads: usize, dim: usize) -> Exact {
    let [q, k, v, d_out] = data;
    let scale = 1.0 / (dim as f64).sqrt();
    let mut exact = Exact {
        out: vec![0.0; q.len()],
        lse: vec![0.0; rows.0 * heads],
        gradients: [vec![0.0; q.len()], vec![0.0; k.len()], vec![0.0; v.len()]],
    };
    let dot = |a: &[f64], b: &[f64]| -> f64 { a.iter().zip(b).map(|(a, b)| a * b).sum() };
    for head in 0..heads {
        let at = |row: usize| (row * heads + head) * dim..(row * heads + head + 1) * dim;
        let keys: Vec<&[f64]> = (0..rows.1).map(|key| &k[at(key)]).collect();
        let values: Vec<&[f64]> = (0..rows.1).map(|key| &v[at(key)]).collect();
        for row in 0..rows.0 {
            let (out, lse) = attend(&q[at(row)], &keys, &values, scale);
            let delta = dot(&out, &d_out[at(row)]);
            for key in 0..rows.1 {
                let weight = (dot(&q[at(row)], keys[key]) * scale - lse).exp();
                let d_score = weight * (dot(&d_out[at(row)], values[key]) - delta) * scale;
                let [dq, dk, dv] = &mut exact.gradients;
                for element in 0..dim {
                    dq[at(row)][element] += d_score * keys[key][element];
                    dk[at(key)][element] += d_score * q[at(row)][element];
                    dv[at(key)][element] += weight * d_out[at(row)][element];
                }
            }
            exact.out[at(row)].copy_from_slice(&out);
            exact.lse[head * rows.0 + row] = lse;
        }
    }
    exact
}

struct Exact {
    out: Vec<f64>,
    lse: Vec<f64>,
    gradients: [Vec<f64>; 3],
}

#[test]
fn gradients_of_packed_attention() {
    let ops = ops();
    let (heads, dim) = (2usize, 32usize);
    let attention = Attention {
        sequences: Sequences::Packed {
            batch: 2,
            most_queries: 17,
            most_keys: 20,
            query_rows: 20,
            key_rows: 31,
        },
        heads: 2,
        kv_heads: 2,
        head_dim: 32,
        value_dim: None,
        dtype: Dtype::Bf16,
        cache: Cache::Same,
        mask: Mask::Full,
        layout: Layout::Rows,
        scale: None,
        added: Added::default(),
    };
    // Two rows of keys are in no sequence: their gradients stay as they were, zero.
    let (q_starts, k_starts) = ([0u32, 3, 20], [0u32, 20, 29]);
    let row = heads * dim;
    let lengths = [20, 31, 31, 20].map(|rows| rows * row);
    let data: [Vec<f64>; 4] = std::array::from_fn(|i| random(i as u64 + 11, lengths[i]));
    // One sequence after the other; log-sum-exps lie head after head.
    let (mut out, mut lse) = (vec![0.0; 20 * row], vec![0.0f32; 20 * heads]);
    let mut expected = [20, 31, 31].map(|rows| vec![0.0; rows * row]);
    for sequence in 0..2 {
        let bounds = |starts: &[u32; 3]| starts[sequence] as usize..starts[sequence + 1] as usize;
        let (queries, keys) = (bounds(&q_starts), bounds(&k_starts));
        let part: [Vec<f64>; 4] = std::array::from_fn(|i| {
            let rows = if i == 1 || i == 2 { &keys } else { &queries };
            data[i][rows.start * row..rows.end * row].to_vec()
        });
        let exact = differentiate(&part, (queries.len(), keys.len()), heads, dim);
        out[queries.start * row..queries.end * row].copy_from_slice(&exact.out);
        for (at, value) in exact.lse.iter().enumerate() {
            let (head, query) = (at / queries.len(), at % queries.len());
            lse[head * 20 + queries.start + query] = *value as f32;
        }
        for (i, gradient) in exact.gradients.iter().enumerate() {
            let first = if i == 0 { queries.start } else { keys.start } * row;
            expected[i][first..first + gradient.len()].copy_from_slice(gradient);
        }
    }
    let [q, k, v, d_out] = [0, 1, 2, 3].map(|i| brains(&data[i]));
    let out = brains(&out);
    for deterministic in [false, true] {
        let problem = AttentionBackward {
            attention,
            deterministic,
        };
        let plan = ops.attention_backward(&problem, None).expect("a plan");
        let [mut dq, mut dk, mut dv] = [20, 31, 31].map(|rows| vec![0u16; rows * row]);
        let operands = AttentionBackwardOperands {
            q: Memory::host(&q),
            k: Memory::host(&k),
            v: Memory::host(&v),
            out: Memory::host(&out),
            d_out: Memory::host(&d_out),
            lse: Memory::host(&lse),
            q_starts: Some(Memory::host(&q_starts)),
            k_starts: Some(Memory::host(&k_starts)),
            dq: Memory::host_mut(&mut dq),
            dk: Memory::host_mut(&mut dk),
            dv: Memory::host_mut(&mut dv),
        };
        plan.launch(&operands, WorkspaceMemory::NONE, STREAM)
            .expect("a launch");
        for (found, expected) in [dq, dk, dv].iter().zip(&expected) {
            close(&from_brains(found), expected, 3e-2);
        }
    }
    // Both are kept.
    assert_eq!(ops.len(), 2);
    let wide = AttentionBackward {
        attention: Attention {
            head_dim: 256,
            ..attention
        },
        deterministic: false,
    };
    let refused = ops.attention_backward(&wide, None).err();
    assert!(refused.is_some_and(|why| why.to_string().contains("up to 128")));
}
