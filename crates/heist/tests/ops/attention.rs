//! Attention: plain, packed, paged, with what a model adds.

use super::{STREAM, attend, brains, close, from_brains, from_halves, halves, ops, random};
use heist::kernels::attention::{Append, BlockMask, Cache, Dtype, Layout, Mask};
use heist::ops::{Added, Attention, AttentionOperands, Memory, Sequences, WorkspaceMemory};

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
        append: None,
        mask: Mask::Causal,
        layout: Layout::Rows,
        views: None,
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
        lse: Some(Memory::host_mut(&mut lse)),
        ..AttentionOperands::new(
            Memory::host(&bits[0]),
            Memory::host(&bits[1]),
            Memory::host(&bits[2]),
            Memory::host_mut(&mut out),
        )
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
    let operands = AttentionOperands::new(
        Memory::host(&bits[0]),
        Memory::host(&bits[1]),
        Memory::host(&bits[2]),
        Memory::host_mut(&mut lse),
    );
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
        ..Added::default()
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
        append: None,
        mask: Mask::Causal,
        layout: Layout::Heads,
        views: None,
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
            slopes: problem.added.alibi.then(|| Memory::host(&slopes)),
            sinks: problem.added.sinks.then(|| Memory::host(&sinks)),
            ..AttentionOperands::new(
                Memory::host(&bits[0]),
                Memory::host(&bits[1]),
                Memory::host(&bits[2]),
                Memory::host_mut(&mut out),
            )
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
        append: None,
        mask: Mask::Full,
        layout: Layout::Rows,
        views: None,
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
            q_starts: Some(Memory::host(&starts)),
            k_starts: Some(Memory::host(&starts)),
            ..AttentionOperands::new(
                Memory::host(&q),
                Memory::host(&k),
                Memory::host(&v),
                Memory::host_mut(&mut out),
            )
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
        append: None,
        mask: Mask::Full,
        layout: Layout::Rows,
        views: None,
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
        q_starts: Some(Memory::host(&starts)),
        k_starts: Some(Memory::host(&lengths)),
        pages: Some(Memory::host(&table)),
        ..AttentionOperands::new(
            Memory::host(&bits[0]),
            Memory::host(&bits[1]),
            Memory::host(&bits[2]),
            Memory::host_mut(&mut out),
        )
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
        append: None,
        mask: Mask::Causal,
        layout: Layout::Rows,
        views: None,
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
        q_starts: Some(Memory::host(&[0u32, 1])),
        k_starts: Some(Memory::host(&lengths)),
        pages: Some(Memory::host(&pages)),
        k_scale: Some(Memory::host(&scales[..1])),
        v_scale: Some(Memory::host(&scales[1..])),
        ..AttentionOperands::new(
            Memory::host(&bits),
            Memory::host(&tiny[0]),
            Memory::host(&tiny[1]),
            Memory::host_mut(&mut out),
        )
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

/// The call puts new keys behind those of each sequence, whose number it reads on the device, and attends to both.
#[test]
fn new_keys_are_appended_by_the_call() {
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
        append: Some(Append {
            rows: 3,
            in_cache_type: true,
        }),
        mask: Mask::Full,
        layout: Layout::Rows,
        views: None,
        scale: None,
        added: Added::default(),
    };
    let plan = ops.attention(&problem, None).expect("a plan");
    let (q, rows) = (random(1, 2 * 4 * 64), (pages * page) as usize);
    let mut caches = [2, 3].map(|seed| random(seed, rows * 2 * 64));
    let new = [4, 5].map(|seed| random(seed, 2 * 3 * 2 * 64));
    let (q_bits, new_bits) = (halves(&q), [halves(&new[0]), halves(&new[1])]);
    let mut bits = [halves(&caches[0]), halves(&caches[1])];
    let before = bits.clone();
    // The second sequence has room for one new key of three.
    let (table, lengths, starts) = ([6u32, 0, 2, 5, 1, 3], [14u32, 23], [0u32, 1, 2]);
    let row = |sequence: usize, key: u32| {
        let page_of = table[sequence * 3 + (key / page) as usize];
        (page_of * page + key % page) as usize
    };
    let mut out = vec![0u16; q.len()];
    let [k, v] = &mut bits;
    let operands = AttentionOperands {
        q_starts: Some(Memory::host(&starts)),
        k_starts: Some(Memory::host(&lengths)),
        pages: Some(Memory::host(&table)),
        k_new: Some(Memory::host(&new_bits[0])),
        v_new: Some(Memory::host(&new_bits[1])),
        ..AttentionOperands::new(
            Memory::host(&q_bits),
            Memory::host_mut(k),
            Memory::host_mut(v),
            Memory::host_mut(&mut out),
        )
    };
    plan.launch(&operands, WorkspaceMemory::NONE, STREAM)
        .expect("a launch");
    let out = from_halves(&out);
    let ends = [17, 24];
    for (which, cache) in caches.iter_mut().enumerate() {
        let mut wanted = before[which].clone();
        for sequence in 0..2 {
            for key in lengths[sequence]..ends[sequence] {
                let from = (sequence * 3 + (key - lengths[sequence]) as usize) * 128;
                let to = row(sequence, key) * 128;
                wanted[to..to + 128].copy_from_slice(&new_bits[which][from..from + 128]);
                cache[to..to + 128].copy_from_slice(&new[which][from..from + 128]);
            }
        }
        assert!(
            bits[which] == wanted,
            "the cache has the new rows and what it had"
        );
    }
    for sequence in 0..2 {
        for head in 0..4 {
            let of = |data: &'static str| -> Vec<&[f64]> {
                let data = &caches[usize::from(data == "values")];
                (0..ends[sequence])
                    .map(|key| &data[(row(sequence, key) * 2 + head / 2) * 64..][..64])
                    .collect()
            };
            let at = (sequence * 4 + head) * 64;
            let (expected, _) = attend(&q[at..at + 64], &of("keys"), &of("values"), 0.125);
            close(&out[at..at + 64], &expected, 4e-3);
        }
    }
}

/// Prefixes, documents and masks of blocks are the caller's memory, and each is part of the key of a plan.
#[test]
fn masks_that_are_data() {
    let ops = ops();
    let rows = 256usize;
    let (prefixes, bytes) = ([70u32], [1u8, 0, 0, 1, 1, 1, 0, 1]);
    let documents: Vec<u32> = (0..rows as u32).map(|key| key / 90).collect();
    let blocks = Some(BlockMask {
        rows: 128,
        keys: 64,
        by_sequence: false,
        by_head: false,
    });
    let (q, k, v) = (
        random(1, rows * 16),
        random(2, rows * 16),
        random(3, rows * 16),
    );
    let bits = [halves(&q), halves(&k), halves(&v)];
    for (which, added) in [
        Added {
            prefixes: true,
            ..Added::default()
        },
        Added {
            documents: true,
            ..Added::default()
        },
        Added {
            blocks,
            ..Added::default()
        },
    ]
    .into_iter()
    .enumerate()
    {
        let problem = Attention {
            sequences: Sequences::Same {
                batch: 1,
                queries: rows as u32,
                keys: rows as u32,
            },
            heads: 1,
            kv_heads: 1,
            head_dim: 16,
            value_dim: None,
            dtype: Dtype::F16,
            cache: Cache::Same,
            append: None,
            mask: Mask::Causal,
            layout: Layout::Heads,
            views: None,
            scale: Some(0.5),
            added,
        };
        let plan = ops.attention(&problem, None).expect("a plan");
        let mut out = vec![0u16; q.len()];
        let operands = AttentionOperands {
            prefixes: added.prefixes.then(|| Memory::host(&prefixes)),
            documents: added.documents.then(|| Memory::host(&documents)),
            block_mask: added.blocks.map(|_| Memory::host(&bytes)),
            ..AttentionOperands::new(
                Memory::host(&bits[0]),
                Memory::host(&bits[1]),
                Memory::host(&bits[2]),
                Memory::host_mut(&mut out),
            )
        };
        plan.launch(&operands, WorkspaceMemory::NONE, STREAM)
            .expect("a launch");
        let out = from_halves(&out);
        for row in (0..rows).step_by(37) {
            let sees = |key: &usize| match which {
                0 => *key <= row || *key < 70,
                1 => *key <= row && documents[*key] == documents[row],
                _ => *key <= row && bytes[row / 128 * 4 + key / 64] != 0,
            };
            let of = |data| -> Vec<&[f64]> {
                let data: &Vec<f64> = data;
                (0..rows)
                    .filter(sees)
                    .map(|key| &data[key * 16..][..16])
                    .collect()
            };
            let (expected, _) = attend(&q[row * 16..][..16], &of(&k), &of(&v), 0.5);
            close(&out[row * 16..][..16], &expected, 4e-3);
        }
    }
    assert_eq!(ops.len(), 3);
}
