//! The epilogue: from accumulators in registers to results in memory.

use super::config::Config;
use super::mainloop::WarpMainloop;
use super::params::{AttentionArgs, Element};
use super::problem::Output;
use super::query_tile::Destination;
use super::softmax::{Row, Softmax, scale_rows};
use heist_builder::{Accumulator, Kernel, On, SharedTile, Val, WarpTile};

/// Which warps have which rows: `down` of them rows of their own, and of each rows
/// `across` warps, warp `w` those of warp `w % down`.
#[derive(Clone, Copy)]
pub(crate) struct MergeShape {
    pub(crate) down: u32,
    pub(crate) across: u32,
}

/// Brings together what warps with the same rows and other keys have: the first
/// of them then has all of it. All warps of the shape take part, and `meet` is where
/// they wait for each other.
pub(crate) fn merge<'k>(
    k: &Kernel<'k>,
    MergeShape { down, across }: MergeShape,
    warp: Val<'k, u32>,
    softmax: &Softmax<'k>,
    results: &WarpTile<'k>,
    meet: impl Fn(),
) {
    if across == 1 {
        return;
    }
    // Lane by lane: the same lane of another warp holds the same rows and columns.
    let each = (softmax.rows.len() * 4 + sums(results).len()) as u32 * 32;
    let memory = k.shared::<f32>("merge", each * down * (across - 1));
    let base = |warp: Val<'k, u32>| memory.ptr().at((warp - down).mul_add(each, k.lane()));
    k.if_(warp.ge(down), || {
        let to = base(warp);
        let state = softmax.rows.iter().flatten();
        let values = state
            .flat_map(|row| [row.level.get(), row.sum.get()])
            .chain(sums(results));
        for (index, value) in values.enumerate() {
            to.at(32 * index).store(value);
        }
    });
    meet();
    k.if_(warp.lt(down), || {
        for other in 1..across {
            let from = base(warp + other * down);
            absorb(softmax, results, |index| from.at(32 * index).load());
        }
    });
}

/// Every sum of a tile, block by block.
fn sums<'k>(tile: &WarpTile<'k>) -> Vec<Val<'k, f32>> {
    let (rows, cols) = tile.shape();
    (0..rows)
        .flat_map(|m| (0..cols).map(move |n| (m, n)))
        .filter_map(|(m, n)| tile.block(m, n))
        .flat_map(|block| block.get())
        .collect()
}

/// Adds the state and sums that `other` reads, in the order that [`merge`] wrote.
pub(crate) fn absorb<'k>(
    softmax: &Softmax<'k>,
    results: &WarpTile<'k>,
    other: impl Fn(usize) -> Val<'k, f32>,
) {
    let (_, cols) = results.shape();
    let after_state = softmax.rows.len() * 4;
    for (m, rows) in softmax.rows.iter().enumerate() {
        let factors: Vec<[Val<'k, f32>; 2]> = rows
            .iter()
            .enumerate()
            .map(|(at, row)| join(row, other(m * 4 + at * 2), other(m * 4 + at * 2 + 1)))
            .collect();
        let [upper, lower] = factors[..] else {
            continue;
        };
        scale_rows(results, m, [upper[0], lower[0]]);
        for n in 0..cols {
            let Some(block) = results.block(m, n) else {
                continue;
            };
            let at = after_state + (m * cols + n) * 4;
            let [a, b, c, d] = block.get();
            block.set([
                other(at).mul_add(upper[1], a),
                other(at + 1).mul_add(upper[1], b),
                other(at + 2).mul_add(lower[1], c),
                other(at + 3).mul_add(lower[1], d),
            ]);
        }
    }
}

/// Joins another level and sum to a row's; the factors that bring its results
/// and the other's to the common level.
fn join<'k>(row: &Row<'k>, level: Val<'k, f32>, sum: Val<'k, f32>) -> [Val<'k, f32>; 2] {
    let common = row.level.get().max(level);
    let factors = [row.level.get(), level].map(|level| (level - common).exp2_approx());
    row.level.set(common);
    row.sum
        .update(|own| sum.mul_add(factors[1], own * factors[0]));
    factors
}

/// Writes a warp's results and log-sum-exps. `stage` is shared memory with the
/// warp's rows, which nobody else uses any more.
pub(crate) fn store<'k, T: Element>(
    k: &Kernel<'k>,
    args: &AttentionArgs<On<'k>>,
    config: &Config,
    to: &Destination<'k>,
    warp: &WarpMainloop<'k, T>,
    stage: &SharedTile<'k, T>,
) {
    let mine = k.warp().lt(config.down);
    let mine = if config.across == 1 { k.c(true) } else { mine };
    k.if_(mine, || {
        k.comment("normalise and store");
        warp.softmax.finish();
        if let Some(sink) = warp.sink {
            // Where keys are shared out, the first share has it.
            let sink = match config.splits {
                2.. => to.split.eq(0).select(sink, f32::NEG_INFINITY),
                _ => sink,
            };
            warp.softmax.add_sinks(&warp.results, |_, _| sink);
        }
        for (m, rows) in warp.softmax.rows.iter().enumerate() {
            scale_rows(&warp.results, m, rows.map(|row| row.normaliser()));
        }
        log_sums(k, args, to, warp);
        if config.splits > 1 {
            partial_results(args, config, to, warp);
        } else {
            match config.output {
                Output::Same => results(k, args, config, to, warp, stage),
                Output::F32 => wide_results(args, to, warp),
            }
        }
    });
}

/// One lane of each four writes its rows' log-sum-exps.
fn log_sums<'k, T: Element>(
    k: &Kernel<'k>,
    args: &AttentionArgs<On<'k>>,
    to: &Destination<'k>,
    warp: &WarpMainloop<'k, T>,
) {
    let part = to.split.mul_wide(args.lse_count);
    k.if_((k.lane() & 3).eq(0), || {
        for (m, rows) in warp.softmax.rows.iter().enumerate() {
            for (at, state) in rows.iter().enumerate() {
                let row = warp.row + Accumulator::row(k) + (16 * m + 8 * at) as u32;
                k.if_(row.lt(to.rows), || {
                    let to = args.lse.at(part).at(to.row_number + row);
                    to.store(state.log_sum());
                });
            }
        }
    });
}

/// Results of a part of the keys, in f32.
fn partial_results<'k, T: Element>(
    args: &AttentionArgs<On<'k>>,
    config: &Config,
    to: &Destination<'k>,
    warp: &WarpMainloop<'k, T>,
) {
    let k = warp.results.kernel();
    let part = to.split.mul_wide(args.lse_count) + to.row_number.cast::<u64>();
    let partial = args.partial.at(part * u64::from(config.head_dim));
    warp.results.each_pair(|row, col, pair| {
        let row = warp.row + row;
        k.if_(row.lt(to.rows), || {
            let to = partial.at(row.mul_add(config.head_dim, col));
            to.store_vec(pair);
        });
    });
}

/// Results in f32, straight from the registers: four lanes write 32 bytes.
fn wide_results<'k, T: Element>(
    args: &AttentionArgs<On<'k>>,
    to: &Destination<'k>,
    warp: &WarpMainloop<'k, T>,
) {
    let k = warp.results.kernel();
    let out = args.out.cast::<f32>().at(to.queries);
    warp.results.each_pair(|row, col, pair| {
        let row = warp.row + row;
        k.if_(row.lt(to.rows), || {
            out.at(row.mul_add(args.q_row, col)).store_vec(pair);
        });
    });
}

/// Results in halves, by way of shared memory, so that the stores are whole
/// lines.
fn results<'k, T: Element>(
    k: &Kernel<'k>,
    args: &AttentionArgs<On<'k>>,
    config: &Config,
    to: &Destination<'k>,
    warp: &WarpMainloop<'k, T>,
    stage: &SharedTile<'k, T>,
) {
    // All lanes have read the queries that lie there.
    k.sync_warp();
    warp.results.each_pair(|row, col, [a, b]| {
        let line = stage.at(warp.row + row, col).cast::<T::Pair>();
        line.store(Val::pack_as::<T>(a, b));
    });
    k.sync_warp();
    let chunks = config.head_dim / 8;
    let total = 16 * config.row_blocks * chunks;
    let out = args.out.cast::<T>().at(to.queries);
    for trip in 0..total.div_ceil(32) {
        let index = k.lane() + trip * 32;
        let (row, chunk) = (warp.row + index / chunks, index % chunks);
        k.if_(row.lt(to.rows) & index.lt(total), || {
            let words = stage.chunk(row, chunk).cast::<u32>().load_vec::<4>();
            let to = out.at(row.mul_add(args.q_row, chunk * 8));
            to.cast::<u32>().store_vec(words);
        });
    }
}
