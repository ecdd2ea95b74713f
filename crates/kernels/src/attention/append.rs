//! New keys and values, which a call puts into the cache: data to try it with, and the check that they are there.

use super::cache::{Append, Cache};
use super::problem::Problem;
use crate::Job;
use crate::random::uniform;
use crate::reference::decode;
use heist_launch::{Buffer, ElementType};

/// The buffers of new keys and values, and the caches that they go to.
pub(super) const NEW: [(&str, &str); 2] = [("k_new", "k"), ("v_new", "v")];

/// Calls `each` with the place of every new row, counted in rows, and its place in the cache: all heads of a token.
fn each_row(problem: &Problem, append: Append, mut each: impl FnMut(usize, usize)) {
    let size = problem.page_size.unwrap_or(1);
    let (table, row) = (problem.page_table(), problem.pages().0);
    for (sequence, (_, keys)) in problem.sequences().into_iter().enumerate() {
        for new in 0..append.rows {
            let key = keys - append.rows + new;
            let page = table[sequence * row + (key / size) as usize];
            let number = sequence * append.rows as usize + new as usize;
            each(number, (page * size + key % size) as usize);
        }
    }
}

/// Fills new keys and values with random numbers, and their places in the cache with NaN: nobody may read those.
pub(super) fn randomise(job: &mut Job, problem: &Problem, seed: u64) {
    let Some(append) = problem.append else {
        return;
    };
    let row =
        problem.kv_heads as usize * problem.head_dim as usize * problem.cache_element().bytes();
    for (index, (new, cache)) in NEW.into_iter().enumerate() {
        for buffer in &mut job.buffers {
            if buffer.name == new {
                let count = buffer.data.len();
                buffer.data = uniform(buffer.data.ty(), seed * 3 + 3 + index as u64, count);
            } else if buffer.name == cache {
                let bytes = buffer.data.bytes_mut();
                each_row(problem, append, |_, to| bytes[to * row..][..row].fill(0xFF));
            }
        }
    }
}

/// A buffer, the number of an element, and what it is.
type Misplaced = (&'static str, usize, f64);

/// The first element of the cache that is not the new one that should be there.
pub(super) fn misplaced(job: &Job, problem: &Problem, scales: [&[f64]; 2]) -> Option<Misplaced> {
    let append = problem.append?;
    let (heads, dim) = (problem.kv_heads as usize, problem.head_dim as usize);
    let row = heads * dim;
    let mut odd = None;
    for ((new, cache), scales) in NEW.into_iter().zip(scales) {
        let (given, held) = (job.data(new)?, job.data(cache)?);
        let (mut wanted, mut found) = (vec![0.0; row], vec![0.0; row]);
        each_row(problem, append, |number, place| {
            decode(given, number * row, &mut wanted);
            if problem.cache == Cache::E4m3 && !append.in_cache_type {
                for (values, scale) in wanted.chunks_exact_mut(dim).zip(scales) {
                    round(problem.cache_element(), values, *scale as f32);
                }
            }
            decode(held, place * row, &mut found);
            let differs = wanted
                .iter()
                .zip(&found)
                .position(|(a, b)| a.to_bits() != b.to_bits());
            if let (None, Some(at)) = (odd, differs) {
                odd = Some((cache, place * row + at, found[at]));
            }
        });
    }
    odd
}

/// What a cache of a narrow type has of some numbers: divided in f32, and rounded.
fn round(element: ElementType, values: &mut [f64], scale: f32) {
    let bytes = values
        .iter()
        .map(|value| element.from_f64((*value as f32 / scale).into()) as u8)
        .collect();
    if let Some(rounded) = Buffer::from_bytes(element, bytes) {
        decode(&rounded, 0, values);
    }
}
