//! The epilogue: from tensor memory to global memory.
//!
//! A thread has one row of a tile. Each warp puts 128 bytes of its 32 rows into shared memory and
//! lets the copy engine store them: tensor stores clip at the edges of the result, and the next
//! 128 bytes are computed meanwhile. Rows that do not start at multiples of 16 bytes are stored by
//! the threads.

use super::tiling::{BUFFERS, ROW_BYTES, STORING_WARPS};
use crate::gemm::{Finish, Known, Stored, To};
use heist_builder::{Kernel, SharedTile, TensorMapRef, TensorSums, TileLayout, TileSpec, Val, f16};

/// Rows of a warp.
const WARP_ROWS: u32 = 32;

/// The place of a tile in the result.
#[derive(Clone, Copy)]
pub(crate) struct Origin<'k> {
    pub(crate) row: Val<'k, u32>,
    pub(crate) col: Val<'k, u32>,
    /// Of the result in a batch.
    pub(crate) number: Val<'k, u32>,
}

/// Columns of the result in the 128 bytes that are stored at a time.
pub(super) const fn panel_columns(element_bytes: u32) -> u32 {
    ROW_BYTES / element_bytes
}

/// Buffers of a warp in shared memory, which the copy engine stores from.
#[derive(Clone, Copy)]
pub(crate) struct Staging<'k> {
    k: Kernel<'k>,
    memory: SharedTile<'k, f16>,
    map: TensorMapRef<'k, f16, 3>,
}

impl<'k> Staging<'k> {
    /// The memory of all storing warps, and this one's part of it.
    pub(crate) fn new(k: &Kernel<'k>, map: TensorMapRef<'k, f16, 3>) -> Staging<'k> {
        let own = WARP_ROWS * BUFFERS;
        let rows = own * STORING_WARPS;
        let all = TileSpec::new("staging", rows, ROW_BYTES / 2, TileLayout::Swizzled);
        // Warps of other roles do not use theirs.
        let warp = k.warp_uniform() & (STORING_WARPS - 1);
        Staging {
            k: *k,
            memory: k.tile(all).rows_from(warp * own, own),
            map,
        }
    }

    /// Stores a tile.
    pub(crate) fn store<O: Stored>(
        &self,
        finish: &Finish,
        sums: &TensorSums<'k>,
        at: Origin<'k>,
        to: &To<'k, O>,
    ) {
        let (k, width) = (self.k, panel_columns(O::BYTES));
        let panels = sums.columns() / width;
        let line = to.from(sums.row(), k.c(0));
        let first_row = sums.row() - k.lane();
        for panel in 0..panels {
            let col = panel * width;
            let words = words(&k, finish, sums, col, width, &line);
            let buffer = self
                .memory
                .rows_from(panel % BUFFERS * WARP_ROWS, WARP_ROWS);
            self.free_buffer(panel, panels);
            for (chunk, words) in words.chunks_exact(4).enumerate() {
                let words = [words[0], words[1], words[2], words[3]];
                let to = buffer.chunk(k.lane(), chunk as u32);
                to.cast::<u32>().store_vec(words);
            }
            self.send(buffer, [at.col + col, at.row + first_row, at.number]);
        }
    }

    /// Waits until a panel's buffer may be written again. Each tile begins with the first buffer:
    /// after an odd number of panels that is the one which was sent last.
    fn free_buffer(&self, panel: u32, panels: u32) {
        let newer = match (panel, panels % BUFFERS) {
            (0, 1) => 0,
            _ => BUFFERS - 1,
        };
        let k = self.k;
        k.if_(k.lane().eq(0), || k.wait_stores_read(newer));
        k.sync_warp();
    }

    fn send(&self, buffer: SharedTile<'k, f16>, at: [Val<'k, u32>; 3]) {
        let k = self.k;
        k.fence_async_shared();
        k.sync_warp();
        k.if_(k.lane().eq(0), || {
            let at = at.map(|at| at.cast::<i32>());
            self.map.store_tile(buffer, at).in_flight();
        });
    }

    /// Waits for the stores in flight, before the block exits.
    pub(crate) fn finish(&self) {
        let k = self.k;
        k.if_(k.lane().eq(0), || k.wait_stores_read(0));
    }
}

/// The results of `width` columns of a row from `col` on, in words.
fn words<'k, O: Stored>(
    k: &Kernel<'k>,
    finish: &Finish,
    sums: &TensorSums<'k>,
    col: u32,
    width: u32,
    line: &To<'k, O>,
) -> Vec<Val<'k, u32>> {
    pairs(k, finish, sums, col, width, line)
        .into_iter()
        .flat_map(|pair| match O::word(pair) {
            Some(word) => vec![word],
            None => pair.map(Val::bitcast).to_vec(),
        })
        .collect()
}

/// The same in pairs of neighbours, in f32.
fn pairs<'k, O: Stored>(
    k: &Kernel<'k>,
    finish: &Finish,
    sums: &TensorSums<'k>,
    col: u32,
    width: u32,
    line: &To<'k, O>,
) -> Vec<[Val<'k, f32>; 2]> {
    let sums = match width {
        64 => sums.load::<64>(col).wait().to_vec(),
        _ => sums.load::<32>(col).wait().to_vec(),
    };
    sums.chunks_exact(2)
        .enumerate()
        .map(|(index, pair)| {
            let further = col + index as u32 * 2;
            let known = Known {
                scale: finish.columns(k, further, line),
                c: None,
                bias: None,
            };
            finish.pair(k, [pair[0], pair[1]], further, known, line)
        })
        .collect()
}

/// Stores a tile by threads, each its row.
pub(crate) fn store_by_threads<'k, O: Stored>(
    k: &Kernel<'k>,
    finish: &Finish,
    sums: &TensorSums<'k>,
    to: &To<'k, O>,
) {
    let line = to.from(sums.row(), k.c(0));
    for col in (0..sums.columns()).step_by(32) {
        // All lanes of a warp load; only rows inside are stored.
        let pairs = pairs(k, finish, sums, col, 32, &line);
        let there = line.rows.map_or(k.c(true), |rows| rows.gt(0u32));
        k.if_(there, || {
            for (index, pair) in pairs.iter().enumerate() {
                let further = col + index as u32 * 2;
                let at = line.d.at(further);
                let both = || finish.put(at, *pair);
                match line.cols {
                    None => both(),
                    Some(cols) => k.if_else(cols.gt(further + 1), both, || {
                        k.if_(cols.gt(further), || at.store(O::round(pair[0])));
                    }),
                }
            }
        });
    }
}
