//! One of the two operands: how the copy engine brings it into shared memory, and how tensor cores find it there.

use super::super::left::left;
use super::super::problem::Major;
use super::super::tiling::SPAN;
use heist_builder::{
    Kernel, Landing, SharedTile, TensorMapRef, Transaction, Val, WgmmaInput, WgmmaOperand, f16,
};
use heist_launch::{Arg, BufferRef, L2Promotion, Swizzle, TensorElement, TensorMap};

/// Words in 128 bytes.
const WORDS: u32 = 32;

/// One of the two operands as the copy engine knows it, and where a tile begins
/// in it.
#[derive(Clone, Copy)]
pub(crate) struct Side<'k> {
    /// Of several matrices of the same shape.
    pub(crate) map: TensorMapRef<'k, f16, 3>,
    pub(crate) major: Major,
    /// Which of them.
    pub(crate) number: Val<'k, u32>,
    /// The first of the tile's rows, or columns.
    pub(crate) first: Val<'k, u32>,
    /// Elements in 128 bytes.
    pub(crate) span: u32,
    /// Where the second half of the tile's rows or columns begins, behind the first: a gated pair's
    /// halves lie apart, and a tile has as many of one as of the other.
    pub(crate) apart: Option<Val<'k, u32>>,
    /// How the rows or columns of the last tile are copied, where some would lie outside.
    pub(crate) edge: Option<Edge<'k>>,
}

/// The copies of the last tile, whose box ends where the matrix does. The copy engine takes three times as long and more for a row
/// outside as for one inside, and a wave waits for its slowest tile. The rest of a stage keeps what it had, which reaches
/// only sums that nobody stores; the first time it gets the zeros.
#[derive(Clone, Copy)]
pub(crate) struct Edge<'k> {
    pub(crate) map: TensorMapRef<'k, f16, 3>,
    /// How many rows, or columns, the matrix has.
    pub(crate) all: Val<'k, u32>,
    /// Whether each tile has some, and this block copies all of them: no copy lies outside as a whole.
    pub(crate) whole: bool,
}

/// Blocks of a cluster that have an operand in common.
#[derive(Clone, Copy)]
pub(crate) struct Peers<'k> {
    /// How many.
    pub(crate) count: u32,
    /// Which of them this one is.
    pub(crate) number: Val<'k, u32>,
    /// Their ranks, a bit for each.
    pub(crate) ranks: Val<'k, u16>,
}

impl<'k> Peers<'k> {
    /// The blocks with the same rows and those with the same columns, in clusters of so many tiles down and across.
    pub(super) fn of_tile(k: &Kernel<'k>, [down, across]: [u32; 2]) -> [Peers<'k>; 2] {
        if down == 1 || across == 1 {
            return [across, down].map(|count| Peers::first(k, count));
        }
        // Ranks go along the rows of tiles.
        let rank = k.cluster_rank();
        let (row, col) = (rank / across, rank % across);
        let column = (0..down).fold(0, |ranks, row| ranks | 1u32 << (row * across));
        let of = |count: u32, number, ranks: Val<'k, u32>| Peers {
            count,
            number,
            ranks: ranks.cast(),
        };
        [
            of(across, col, k.c((1u32 << across) - 1) << (row * across)),
            of(down, row, k.c(column) << col),
        ]
    }

    /// The first blocks of the cluster, or this one alone.
    pub(crate) fn first(k: &Kernel<'k>, count: u32) -> Peers<'k> {
        Peers {
            count,
            number: match count {
                1 => k.c(0),
                _ => k.cluster_rank(),
            },
            ranks: k.c(((1u32 << count) - 1) as u16),
        }
    }
}

impl<'k> Side<'k> {
    /// The same as it is copied, and the bytes that a stage of this depth lacks then: the last tiles lack some, in stages that were
    /// `written` before.
    pub(super) fn ending(
        self,
        written: Val<'k, bool>,
        outer: u32,
        depth: u32,
        peers: &Peers<'k>,
    ) -> (Side<'k>, Option<Val<'k, u32>>) {
        let Some(edge) = self.edge else {
            return (self, None);
        };
        let inside = left(edge.all, self.first).min(outer);
        // Each of its peers copies so many, and this block those from `own` on.
        let high = outer / peers.count;
        let own = peers.number * high;
        let ends = written & inside.lt(own + high);
        let map = self.map.or_edge(ends, edge.map);
        let map = match edge.whole {
            true => map,
            false => map.only_if(inside.gt(own) | !written),
        };
        let less = (self.first.kernel().c(outer) - inside) * (128 * (depth / SPAN));
        let less = written.select(less, 0u32);
        (Side { map, ..self }, Some(less))
    }

    /// Issues the copies of the part of a stage that is `at` deep in the matrix, in pieces as wide
    /// as the swizzle: side by side along the depth, or across it. An operand that `peers`
    /// share is multicast: each block copies its part for all.
    pub(crate) fn copy(
        &self,
        copies: &Transaction<'k>,
        to: Landing<'k, f16>,
        outer: u32,
        depth: u32,
        at: Val<'k, u32>,
        peers: Peers<'k>,
    ) {
        let Peers {
            count: peers,
            number: rank,
            ranks,
        } = peers;
        let (pieces, len) = match self.major {
            Major::Depth => (depth / SPAN, outer * SPAN),
            // As deep as a stage is in elements, which may be words.
            Major::Outer => (outer.div_ceil(self.span), depth * self.span),
        };
        let send = |to: Landing<'k, f16>, [inner, outer]: [Val<'k, u32>; 2]| {
            let place = [inner, outer, self.number].map(|at| at.cast::<i32>());
            match peers {
                1 => copies.copy_tensor(to, self.map, place),
                _ => {
                    copies.copy_tensor_multicast(to, self.map, place, ranks);
                    copies.expect(to.bytes() * (peers - 1));
                }
            }
        };
        let halves = 1 + u32::from(self.apart.is_some());
        let begin = |half: u32| match self.apart {
            Some(apart) if half > 0 => self.first + apart,
            _ => self.first,
        };
        match self.major {
            Major::Depth if halves > 1 => {
                let high = outer / halves;
                for (piece, half) in (0..pieces).flat_map(|piece| [(piece, 0), (piece, 1)]) {
                    let to = to.part(piece * len + half * high * SPAN, high * SPAN);
                    send(to, [at + piece * self.span, begin(half)]);
                }
            }
            Major::Depth => {
                let high = outer / peers;
                for piece in 0..pieces {
                    let to = to
                        .part(piece * len, len)
                        .part_at(rank * (high * SPAN), high * SPAN);
                    send(to, [at + piece * self.span, self.first + rank * high]);
                }
            }
            Major::Outer => {
                let own = pieces / peers;
                let each = own / halves;
                for piece in 0..own {
                    let number = rank * own + piece;
                    let to = to.part_at(number * len, len);
                    let half = piece / each.max(1);
                    let column = rank * own + (piece - half * each);
                    send(to, [begin(half) + column * self.span, at]);
                }
            }
        }
    }

    /// Whether threads load it into registers, from where it is multiplied: words that are stored across the depth. Tensor
    /// cores read words from shared memory along the depth alone.
    pub(super) fn through_registers(&self) -> bool {
        self.major == Major::Outer && self.span == WORDS
    }

    /// The steps, each 16 deep, of what a stage has from row or column `at` on: a
    /// multiple of 64.
    pub(super) fn operands<H: WgmmaInput>(
        &self,
        tile: SharedTile<'k, f16>,
        at: Val<'k, u32>,
        outer: u32,
        depth: u32,
    ) -> Vec<WgmmaOperand<'k, H>> {
        let tile = tile.retyped::<H::Stored>();
        let steps = |operand: WgmmaOperand<'k, H>, count: u32| {
            (0..count).map(move |step| operand.step(step))
        };
        match self.major {
            Major::Depth => (0..depth / SPAN)
                .flat_map(|piece| steps(tile.wgmma_operand_of(at + piece * outer), SPAN / 16))
                .collect(),
            Major::Outer => {
                steps(tile.wgmma_operand_across_of(at / SPAN, depth), depth / 16).collect()
            }
        }
    }
}

/// A matrix in memory, or several of the same shape one after the other.
#[derive(Clone, Copy)]
pub(crate) struct Matrices {
    pub(crate) element: TensorElement,
    pub(crate) major: Major,
    /// Rows of A, or columns of B.
    pub(crate) outer: u64,
    pub(crate) depth: u32,
    /// Elements from one stored row to the next.
    pub(crate) pitch: u32,
    pub(crate) count: u32,
}

impl Matrices {
    /// Its map, for stages of `deep` (in elements of 16 bits) and tiles of `high` rows of A or columns of B.
    pub(crate) fn map(&self, name: &str, high: u32, deep: u32) -> Arg {
        let (depth, count) = (u64::from(self.depth), u64::from(self.count));
        let span = 128 / self.element.bytes() as u32;
        let (dims, boxed) = match self.major {
            Major::Depth => ([depth, self.outer, count], [span, high, 1]),
            Major::Outer => ([self.outer, depth, count], [span, deep * span / SPAN, 1]),
        };
        let buffer = BufferRef::Named(name.to_owned());
        let mut map = TensorMap::dense(buffer, self.element, &dims, &boxed);
        let row = u64::from(self.pitch) * self.element.bytes();
        map.strides = vec![row, row * dims[1]];
        // Unaligned rows also fetch the line before.
        map.l2 = match row.is_multiple_of(256) {
            true => L2Promotion::Bytes256,
            false => L2Promotion::Bytes128,
        };
        Arg::TensorMap(map.swizzle(Swizzle::Bytes128))
    }
}
