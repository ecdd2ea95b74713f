//! The changes of scores that come with the kernels.

use super::change::{Differentiable, ScoreMod, Table};
use super::soft_cap::SoftCap;

/// Soft-capping: `cap * tanh(score / cap)`, so that no score exceeds `cap`.
///
/// The tangent is worked out from an exponential and a reciprocal, to a few units in the last
/// place of `cap`; `tanh.approx` is one instruction, and has 11 bits.
pub fn softcap(cap: f32) -> ScoreMod {
    ScoreMod::new(
        format!("softcap={cap}"),
        move |_| {
            let cap = SoftCap(cap);
            Box::new(move |score, _| cap.cap(score * cap.factor(), 1.0))
        },
        move |at| f64::from(cap) * (at.score / f64::from(cap)).tanh(),
    )
    .slope(move |at| 1.0 - (at.score / f64::from(cap)).tanh().powi(2))
    .differentiable(Differentiable::SoftCap(SoftCap(cap)))
}

/// ALiBi: a bias that grows with the distance of query and key, by a slope for each head
/// (`slopes`).
pub fn alibi() -> ScoreMod {
    ScoreMod::new(
        "alibi",
        |row| {
            let slope = -row.tables.slopes.at(row.head).load_readonly();
            let position = row.position.cast::<f32>();
            Box::new(move |score, key| (key.float() - position).abs().mul_add(slope, score))
        },
        |at| at.score - at.tables.slopes[at.head] * (at.key - at.position).abs() as f64,
    )
    .table(Table::Slopes)
    .differentiable(Differentiable::Alibi)
}

/// Document masks: a query sees keys of its own document alone (`documents` has the number of
/// each key's document; a query has that of the key at its position).
pub fn documents() -> ScoreMod {
    ScoreMod::new(
        "documents",
        |row| {
            let row = *row;
            let own = row.document(row.position);
            Box::new(move |score, key| {
                let same = row.document(key.number()).eq(own);
                same.select(score, f32::NEG_INFINITY)
            })
        },
        |at| {
            let of =
                |key: i64| at.tables.documents[at.first_key + key.clamp(0, at.keys - 1) as usize];
            if of(at.position) == of(at.key) {
                at.score
            } else {
                f64::NEG_INFINITY
            }
        },
    )
    .table(Table::Documents)
}

/// The slopes that ALiBi was published with: powers of two, evenly spaced over the heads.
pub(super) fn slopes(heads: u32) -> Vec<f32> {
    let step = 8.0 / heads.max(1) as f32;
    (1..=heads)
        .map(|head| (-step * head as f32).exp2())
        .collect()
}

/// Documents to try kernels with: each sequence is cut into some of uneven lengths.
pub(super) fn cut(sequences: &[(u32, u32)]) -> Vec<u32> {
    let mut documents = Vec::new();
    for &(_, keys) in sequences {
        let (mut document, mut left) = (0, 1);
        for _ in 0..keys {
            if left == 0 {
                document += 1;
                left = 5 + document * 37 % 150;
            }
            left -= 1;
            documents.push(document);
        }
    }
    documents
}
