//! Loading tiles by ordinary loads and stores, for the rungs without asynchronous copies.

use super::params::Element;
use heist_builder::{Global, Kernel, Ptr, SharedTile, Val};

/// The whole block fills a tile with rows that are `pitch` elements apart; rows
/// at or past `inside` become zeros. A barrier must follow.
pub(crate) fn fill<'k, T: Element>(
    k: &Kernel<'k>,
    tile: &SharedTile<'k, T>,
    from: Ptr<'k, Global, T>,
    pitch: Val<'k, u32>,
    inside: Val<'k, u32>,
) {
    let (threads, chunks) = (k.threads(), tile.chunks());
    let total = tile.rows() * chunks;
    for trip in 0..total.div_ceil(threads) {
        let index = k.thread_index() + trip * threads;
        let (row, chunk) = (index / chunks, index % chunks);
        let whole = (trip + 1) * threads <= total;
        k.if_(k.c(whole) | index.lt(total), || {
            let words = [(); 4].map(|()| k.var(0u32));
            k.if_(row.lt(inside), || {
                let from = from.at(row.mul_add(pitch, chunk * 8)).cast::<u32>();
                for (word, value) in words.iter().zip(from.load_vec_readonly::<4>()) {
                    word.set(value);
                }
            });
            let to = tile.chunk(row, chunk).cast::<u32>();
            to.store_vec(words.map(heist_builder::Var::get));
        });
    }
}
