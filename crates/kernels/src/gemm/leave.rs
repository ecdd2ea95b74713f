//! The epilogue's stores on warpgroups: from accumulators to global memory.
//!
//! * **Staged**: each warp puts its rows into shared memory and lets the copy
//!   engine store them. Tensor stores clip at the edges of the result, so ragged shapes store as
//!   fast as even ones, and the next tile begins while the stores are in flight. Results are
//!   halves, in rows that start at multiples of 16 bytes. Columns behind the last whole panel of a
//!   buffer's width are stored by threads, 16 bytes each.
//! * **Row by row**: through shared memory too, but stored by threads, for unaligned rows (a
//!   vocabulary of 50257): [`super::rows`].
//! * **By threads**, straight from the registers: everything else.
//! * **As partial sums** in f32: a part of a tile's depth, for split-K ([`super::split`]).
//!
//! A tile with swapped operands is transposed here: by `stmatrix`, or by the addresses of the
//! stores.

mod addend;

use super::epilogue::{Finish, Known, Sums, To};
use super::left::left;
use super::problem::Scales;
use super::stored::Stored;
use super::tiling::Tiling;
use addend::Addend;
pub(crate) use addend::{Addition, Asked};
use heist_builder::{
    F16x2, Global, Kernel, Ptr, SharedTile, TensorMapRef, TileLayout, TileSpec, Val, WgmmaResult,
    f16,
};
use heist_launch::Swizzle;

/// Rows of accumulators that a warp has at a time.
const WARP_ROWS: u32 = 16;

/// Rows of the result whose C, or factors, a thread asks for at a time, where operands are swapped: the assembler would ask for those of all rows at once, and spill.
const TURNED_ROWS: u32 = 32;

/// The most buffers that a warp has.
pub(crate) const MOST_BUFFERS: u32 = 4;

/// The staging buffers of a warp in shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Staging {
    /// Rows of a buffer.
    rows: u32,
    /// Elements of its rows: 64, 32 or 16.
    width: u32,
    /// Buffers that a warp takes in turns.
    buffers: u32,
}

impl Staging {
    /// The widest staging that fits into `room` bytes; `None` where nothing fits.
    pub(crate) fn new(tiling: &Tiling, room: u32, most: u32) -> Option<Staging> {
        let warps = tiling.groups() * 4;
        let shape = |rows, width: u32, turns: u32, most: u32| {
            let bytes = warps * rows * width * 2;
            let mut fit = (1..=turns.min(most)).rev();
            let buffers = fit.find(|buffers| bytes * buffers + 1024 <= room)?;
            Some(Staging {
                rows,
                width,
                buffers,
            })
        };
        if tiling.swapped {
            // All columns at once, or parts of them that two buffers and more take in turns.
            let eights = tiling.cols / 8;
            let parts = (2..=eights).filter(|parts| eights.is_multiple_of(*parts));
            let mut turns =
                parts.map(|parts| shape(tiling.cols / parts, WARP_ROWS, parts, MOST_BUFFERS));
            let in_turns = |staging: &Staging| staging.buffers > 1;
            return shape(tiling.cols, WARP_ROWS, 1, 1)
                .or_else(|| turns.find_map(|staging| staging.filter(in_turns)));
        }
        let mut widths = [64, 32, 16]
            .into_iter()
            .filter(|&width| width <= tiling.cols);
        widths.find_map(|width| shape(WARP_ROWS, width, tiling.cols.div_ceil(width), most))
    }

    /// Columns of a panel.
    pub(crate) fn width(&self) -> u32 {
        self.width
    }

    /// Buffers of each warp.
    pub(crate) fn buffers(&self) -> u32 {
        self.buffers
    }

    /// Panels of 64 rows of such a tile that wait until the one before has left: all, where a warp has one buffer for them.
    pub(crate) fn waiting(&self, tiling: &Tiling) -> u32 {
        let panels = tiling.rows / 64 * tiling.cols.div_ceil(self.width);
        if self.buffers == 1 { panels } else { 0 }
    }

    /// Whether the copy engine stores all columns of such a tile.
    pub(crate) fn in_panels(&self, tiling: &Tiling) -> bool {
        tiling.swapped || tiling.cols.is_multiple_of(self.width)
    }

    /// How many stores of a warp are newer than the last one from the buffer of panel `panel`,
    /// where 64 rows of accumulators have `panels` that the copy engine stores: a panel behind them
    /// is stored by threads. Each 64 rows start again with the first buffer.
    fn newer(&self, panel: u32, panels: u32) -> u32 {
        if panel >= self.buffers {
            return self.buffers - 1;
        }
        if panel == panels {
            // The copy engine never reads its buffer.
            return panels;
        }
        let before = panel + (panels - 1 - panel) / self.buffers * self.buffers;
        panels - 1 - before + panel
    }

    /// The box that one store takes, columns of the result first, and its swizzle.
    pub(crate) fn boxed(&self) -> ([u32; 2], Swizzle) {
        let swizzle = match self.width {
            64 => Swizzle::Bytes128,
            32 => Swizzle::Bytes64,
            _ => Swizzle::Bytes32,
        };
        ([self.width, self.rows], swizzle)
    }
}

/// Columns of a tile that a staging buffer holds.
#[derive(Clone, Copy)]
struct Panel {
    /// The first of them.
    first: u32,
    /// How many.
    wide: u32,
    /// Whether they fill the buffer.
    whole: bool,
}

/// The staging inside a kernel: this warp's part of it.
#[derive(Clone, Copy)]
pub(crate) struct Staged<'k> {
    k: Kernel<'k>,
    shape: Staging,
    memory: SharedTile<'k, f16>,
    /// Columns of a tile as it is multiplied, and whether they are rows of the result.
    cols: u32,
    turned: bool,
    /// The result.
    map: TensorMapRef<'k, f16, 3>,
}

impl<'k> Staged<'k> {
    /// Takes the memory. The multiplying warps are those after the first four.
    pub(crate) fn new(
        k: &Kernel<'k>,
        tiling: &Tiling,
        shape: Staging,
        map: TensorMapRef<'k, f16, 3>,
    ) -> Staged<'k> {
        let own = shape.rows * shape.buffers;
        let all = TileSpec::new(
            "staging",
            own * tiling.groups() * 4,
            shape.width,
            TileLayout::Swizzled,
        );
        let warp = k.warp_uniform() - 4;
        Staged {
            k: *k,
            shape,
            memory: k.tile(all).rows_from(warp * own, own),
            cols: tiling.cols,
            turned: tiling.swapped,
            map,
        }
    }

    /// The buffer of a panel.
    fn buffer(&self, panel: u32) -> SharedTile<'k, f16> {
        let buffer = panel % self.shape.buffers;
        self.memory
            .rows_from(self.k.c(buffer * self.shape.rows), self.shape.rows)
    }

    /// Stores 64 rows of accumulators. `at` is the column and row where they begin in the result,
    /// and the number of the result in a batch; `to` is the same place as addresses. `c` says how C comes.
    pub(crate) fn store<O: Stored>(
        &self,
        finish: &Finish,
        sums: &WgmmaResult<'k>,
        at: [Val<'k, u32>; 3],
        to: &To<'k, O>,
        c: Addition<'k>,
    ) {
        let k = self.k;
        let warp_row = (k.warp_uniform() & 3) * WARP_ROWS;
        let addend = Addend::new(*self, c, *to);
        self.each_panel(finish, sums, to, addend, |panel, tile| match panel.whole {
            true => self.send(tile, [at[0] + panel.first, at[1] + warp_row, at[2]]),
            false => self.put_chunks(tile, panel, to),
        });
    }

    /// The same where behind the rows that `to` has lie others: a warp whose rows are all among them lets the copy engine store them,
    /// and the threads of another one store what there is. The engine would leave out rows behind `end`, the last of the result, without a word:
    /// threads store those, too, so that a group that is said to have more rows than there are is found.
    pub(crate) fn store_among<O: Stored>(
        &self,
        finish: &Finish,
        sums: &WgmmaResult<'k>,
        at: [Val<'k, u32>; 3],
        to: &To<'k, O>,
        end: Val<'k, u32>,
    ) {
        let k = self.k;
        let warp_row = (k.warp_uniform() & 3) * WARP_ROWS;
        let inside = end.ge(at[1] + warp_row + WARP_ROWS);
        let all = to
            .rows
            .map_or(inside, |rows| inside & rows.ge(warp_row + WARP_ROWS));
        // What threads store is none of the engine's stores, which `newer` counts: so none of them is left.
        k.if_(!all & k.lane().eq(0), || k.wait_stores_read(0));
        self.each_panel(finish, sums, to, None, |panel, tile| {
            let put = || self.put_chunks(tile, panel, to);
            let place = [at[0] + panel.first, at[1] + warp_row, at[2]];
            match panel.whole {
                true => k.if_else(all, || self.send(tile, place), put),
                false => put(),
            }
        });
    }

    /// Stores a panel by threads, 16 bytes each.
    fn put_chunks<O: Stored>(&self, tile: SharedTile<'k, f16>, panel: Panel, to: &To<'k, O>) {
        let k = self.k;
        let warp_row = (k.warp_uniform() & 3) * WARP_ROWS;
        let across = panel.wide / 8;
        k.sync_warp();
        for turn in 0..(WARP_ROWS * across).div_ceil(32) {
            let number = k.lane() + turn * 32;
            let (row, chunk) = (number / across, number % across);
            let (below, col) = (warp_row + row, chunk * 8 + panel.first);
            let there = row.lt(WARP_ROWS) & inside([below, col], to);
            k.if_(there, || {
                let words = tile.chunk(row, chunk).cast::<u32>().load_vec::<4>();
                let line = to.d.at(below.mul_add(to.pitch, col));
                line.cast::<u32>().store_vec(words);
            });
        }
        k.sync_warp();
    }

    /// Computes the results panel after panel, and calls `each` with the panel and the staging
    /// buffer that holds it: where it held C, if that is the `addend`.
    fn each_panel<O: Stored>(
        &self,
        finish: &Finish,
        sums: &WgmmaResult<'k>,
        to: &To<'k, O>,
        mut addend: Option<Addend<'k, O>>,
        each: impl Fn(Panel, SharedTile<'k, f16>),
    ) {
        let k = self.k;
        let lane = k.lane();
        let warp_row = (k.warp_uniform() & 3) * WARP_ROWS;
        // The position of this thread's accumulators, for their addends.
        let (row, col) = (warp_row + (lane >> 2), (lane & 3) << 1);
        let lines = [0, 1].map(|half| to.from(row + half * 8, col).half(half as usize));
        let width = self.shape.width;
        let cols = sums.blocks() as u32 * 8;
        let panels = cols / width;
        let mut biases = None;
        for panel in 0..cols.div_ceil(width) {
            let tile = self.buffer(panel);
            match &mut addend {
                Some(addend) => addend.arrive(),
                None => self.free_buffer(self.shape.newer(panel, panels)),
            }
            let first = panel * width;
            let wide = width.min(cols - first);
            let (block, at_a_time) = (first / 8, finish.biases.max(1));
            if block.is_multiple_of(at_a_time) {
                let blocks = block..(block + at_a_time).min(cols / 8);
                biases = finish.biases_of(&k, col, blocks, to);
            }
            for pair in 0..wide.div_ceil(16) {
                let at = || tile.chunk(lane & 15, (lane >> 4) + pair * 2);
                let c = addend.as_ref().map(|_| match wide - pair * 16 {
                    8 => at().load_matrices::<2>().to_vec(),
                    _ => at().load_matrices::<4>().to_vec(),
                });
                let words = [0, 1].map(|next| {
                    let block = first / 8 + pair * 2 + next;
                    // The last 16 columns of a buffer may be 8.
                    let Some(sums) = sums.block(block as usize) else {
                        return [k.c(0u32).bitcast(); 2];
                    };
                    let scale = finish.columns(&k, block * 8, &lines[0]);
                    let known = |half: u32| Known {
                        scale,
                        c: c.as_ref()
                            .and_then(|c| O::pair(c[(next * 2 + half) as usize].bitcast())),
                        bias: biases
                            .as_ref()
                            .and_then(|words| O::pair(words[(block % at_a_time) as usize])),
                    };
                    [0, 1].map(|half| {
                        let two = [sums[half * 2], sums[half * 2 + 1]];
                        let known = known(half as u32);
                        let done = finish.pair(&k, two, block * 8, known, &lines[half]);
                        packed::<O>(&k, done).bitcast()
                    })
                });
                let [[a, b], [c, d]] = words;
                at().store_matrices([a, b, c, d]);
            }
            let whole = panel < panels;
            each(Panel { first, wide, whole }, tile);
            if let Some(addend) = &mut addend {
                addend.follow(panel);
            }
        }
    }

    /// The same for a tile whose rows are columns of the result.
    pub(crate) fn store_turned<O: Stored>(
        &self,
        finish: &Finish,
        sums: &WgmmaResult<'k>,
        at: [Val<'k, u32>; 3],
        to: &To<'k, O>,
        c: Addition<'k>,
    ) {
        let k = self.k;
        let lane = k.lane();
        let warp_col = (k.warp_uniform() & 3) * WARP_ROWS;
        let (col, row) = (warp_col + (lane >> 2), (lane & 3) << 1);
        let blocks = self.shape.rows / 8;
        let parts = sums.blocks() as u32 / blocks;
        let columns = [0, 1].map(|half: u32| TurnedColumn::new(&k, finish, col + half * 8, to));
        let words = |block: u32, c: &[Val<'k, F16x2>]| {
            let sums = sums.block(block as usize).unwrap_or([k.c(0.0); 4]);
            let rows = [0, 1].map(|next: u32| row + (block * 8 + next));
            [0, 1].map(|half: usize| {
                let c = c.get(half).and_then(|word| O::pair(word.bitcast()));
                let done = [0, 1].map(|next: usize| {
                    let c = c.map(|pair| pair[next]);
                    columns[half].result(finish, sums[half * 2 + next], rows[next], c, to)
                });
                packed::<O>(&k, done).bitcast()
            })
        };
        let mut addend = Addend::new(*self, c, *to);
        let chunk = (lane >> 3) & 1;
        for part in 0..parts {
            let memory = self.buffer(part);
            match &mut addend {
                Some(addend) => addend.arrive(),
                None => self.free_buffer(self.shape.newer(part, parts)),
            }
            for pair in 0..blocks.div_ceil(2) {
                let first = pair * 2;
                let asks = finish.adds && addend.is_none() || finish.scales == Scales::Rows;
                if asks && pair > 0 && (pair * 16).is_multiple_of(TURNED_ROWS) {
                    k.sync_warp();
                }
                let one = part * blocks + first;
                if first + 1 < blocks {
                    let row = (lane & 7) + ((lane >> 4) << 3) + first * 8;
                    let at = memory.chunk(row, chunk);
                    let held = addend.as_ref().map(|_| at.load_matrices_transposed::<4>());
                    let held = held.as_ref().map_or(&[][..], |held| held);
                    let [a, b] = words(one, held);
                    let [c, d] = words(one + 1, held.get(2..).unwrap_or_default());
                    at.store_matrices_transposed([a, b, c, d]);
                } else {
                    let at = memory.chunk((lane & 7) + first * 8, chunk);
                    let held = addend.as_ref().map(|_| at.load_matrices_transposed::<2>());
                    let held = held.as_ref().map_or(&[][..], |held| held);
                    at.store_matrices_transposed(words(one, held));
                }
            }
            let first = part * self.shape.rows;
            self.send(memory, [at[0] + warp_col, at[1] + first, at[2]]);
            if let Some(addend) = &mut addend {
                addend.follow(part);
            }
        }
    }

    /// Waits until a buffer may be written: all of this warp's stores but the
    /// newest `newer` have been read.
    fn free_buffer(&self, newer: u32) {
        let k = self.k;
        k.if_(k.lane().eq(0), || k.wait_stores_read(newer));
        k.sync_warp();
    }

    /// Lets the copy engine store a buffer.
    fn send(&self, tile: SharedTile<'k, f16>, at: [Val<'k, u32>; 3]) {
        let k = self.k;
        k.fence_async_shared();
        k.sync_warp();
        k.if_(k.lane().eq(0), || {
            let at = at.map(|at| at.cast::<i32>());
            self.map.store_tile(tile, at).in_flight();
        });
    }

    /// Waits for the stores in flight, before the block exits.
    pub(crate) fn finish(&self) {
        let k = self.k;
        k.if_(k.lane().eq(0), || k.wait_stores_read(0));
    }
}

/// Two neighbours in a word.
fn packed<'k, O: Stored>(k: &Kernel<'k>, pair: [Val<'k, f32>; 2]) -> Val<'k, u32> {
    O::word(pair).unwrap_or_else(|| {
        k.fail("only halves leave through shared memory");
        k.c(0)
    })
}

/// A column of a tile with swapped operands, of which a thread has sums in many rows: what is the same for all of them is read once.
struct TurnedColumn<'k> {
    k: Kernel<'k>,
    /// From where `to` begins.
    col: Val<'k, u32>,
    scale: Option<Val<'k, f32>>,
    bias: Option<Val<'k, f32>>,
    /// C, where all its rows are the same.
    c: Option<Val<'k, f32>>,
}

impl<'k> TurnedColumn<'k> {
    fn new<O: Stored>(
        k: &Kernel<'k>,
        finish: &Finish,
        col: Val<'k, u32>,
        to: &To<'k, O>,
    ) -> TurnedColumn<'k> {
        let inside = || to.cols.map_or(k.c(true), |cols| col.lt(cols));
        let scale = to
            .scales
            .map(|scales| read_if(k, inside(), || scales.cols.at(col).load()));
        let bias = finish
            .bias
            .then(|| read_if(k, inside(), || to.bias.at(col).load().cast::<f32>()));
        let of_columns = finish.adds && to.c.is_of_columns();
        let c = of_columns.then(|| read_if(k, inside(), || to.c.at([k.c(0), col], col).load()));
        TurnedColumn {
            k: *k,
            col,
            scale,
            bias,
            c,
        }
    }

    /// The result of the accumulator in a row, likewise from where `to` begins; C is read unless it is known.
    fn result<O: Stored>(
        &self,
        finish: &Finish,
        sum: Val<'k, f32>,
        row: Val<'k, u32>,
        c: Option<Val<'k, f32>>,
        to: &To<'k, O>,
    ) -> Val<'k, f32> {
        let (k, place) = (&self.k, [row, self.col]);
        let of_row = to
            .scales
            .map(|scales| read_if(k, inside(place, to), || scales.rows.at(row).load()));
        let scale = of_row.zip(self.scale).map(|(row, col)| row * col);
        let at = || row.mul_add(to.pitch, self.col);
        let read = || read_if(k, inside(place, to), || to.c.at(place, at()).load());
        let c = c.or(self.c).or_else(|| finish.adds.then(read));
        finish.single(k, sum, [scale, c, self.bias], to)
    }
}

/// What `read` reads, or zero where nothing is to be read.
fn read_if<'k>(
    k: &Kernel<'k>,
    there: heist_builder::Bool<'k>,
    read: impl Fn() -> Val<'k, f32>,
) -> Val<'k, f32> {
    let value = k.var(0.0f32);
    k.if_(there, || value.set(read()));
    value.get()
}

fn inside<'k, O>([row, col]: [Val<'k, u32>; 2], to: &To<'k, O>) -> heist_builder::Bool<'k> {
    let yes = row.kernel().c(true);
    let rows = to.rows.map_or(yes, |rows| row.lt(rows));
    rows & to.cols.map_or(yes, |cols| col.lt(cols))
}

/// Stores 64 rows of accumulators of a tile with swapped operands, by threads.
pub(crate) fn store_turned<'k, O: Stored>(
    k: &Kernel<'k>,
    finish: &Finish,
    sums: &WgmmaResult<'k>,
    to: &To<'k, O>,
) {
    sums.rows(&|col, row, pairs| {
        let column = TurnedColumn::new(k, finish, col, to);
        for (index, pair) in pairs.iter().enumerate() {
            for (next, sum) in pair.iter().enumerate() {
                let place = [row + (index * 8 + next) as u32, col];
                let value = column.result(finish, *sum, place[0], None, to);
                k.if_(inside(place, to), || {
                    let at = place[0].mul_add(to.pitch, place[1]);
                    to.d.at(at).store(O::round(value));
                });
            }
        }
    });
}

/// Where the partial sums of a split go: rows and columns of the tile as it is multiplied.
#[derive(Clone, Copy)]
pub(crate) struct Share<'k> {
    /// The first of the tile's sums.
    pub(crate) to: Ptr<'k, Global, f32>,
    /// From row to row, a multiple of 4.
    pub(crate) pitch: Val<'k, u32>,
    /// Rows that there are from there on.
    pub(crate) rows: Val<'k, u32>,
    /// Columns, likewise a multiple of 4.
    pub(crate) cols: Val<'k, u32>,
}

/// Stores 64 rows of accumulators unchanged.
pub(crate) fn store_share<'k>(k: &Kernel<'k>, sums: &WgmmaResult<'k>, share: &Share<'k>) {
    sums.rows(&|row, col, pairs| {
        k.if_(row.lt(share.rows), || {
            let line = share.to.at(row.mul_add(share.pitch, col));
            let cols = left(share.cols, col);
            for (index, pair) in pairs.iter().enumerate() {
                let further = index as u32 * 8;
                k.if_(cols.gt(further), || line.at(further).store_vec(*pair));
            }
        });
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_free_when_its_last_store_has_been_read() {
        for panels in 1..=16 {
            for buffers in 1..=panels.min(MOST_BUFFERS) {
                let staging = Staging {
                    rows: WARP_ROWS,
                    width: 16,
                    buffers,
                };
                // All stores of several tiles in order, by the buffer each is from.
                let turns = (0..3 * panels).map(|turn| turn % panels % buffers);
                let stores: Vec<u32> = turns.collect();
                for (at, buffer) in stores.iter().enumerate().skip(panels as usize) {
                    let newer = staging.newer(at as u32 % panels, panels) as usize;
                    let still = &stores[at - newer..at];
                    assert!(
                        !still.contains(buffer),
                        "{panels} panels, {buffers} buffers"
                    );
                    // And it does not wait for more than needed.
                    assert_eq!(stores[at - newer - 1], *buffer);
                }
                // What threads store behind the last panel of a tile is no store of the engine's.
                let newer = staging.newer(panels, panels) as usize;
                let still = &stores[stores.len() - newer..];
                assert!(
                    !still.contains(&(panels % buffers)),
                    "behind {panels} panels, {buffers} buffers"
                );
            }
        }
    }
}
