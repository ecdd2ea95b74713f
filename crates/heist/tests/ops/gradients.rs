//! Gradients of attention.

use super::{STREAM, attend, brains, close, from_brains, ops, random};
use heist::kernels::attention::{Cache, Dtype, Layout, Mask};
use heist::ops::{
    Added, Attention, AttentionBackward, AttentionBackwardOperands, Memory, Sequences,
    WorkspaceMemory,
};

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
        append: None,
        mask: Mask::Full,
        layout: Layout::Rows,
        views: None,
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
            pairs: None,
            slopes: None,
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
