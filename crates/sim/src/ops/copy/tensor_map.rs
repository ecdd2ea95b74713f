//! The box of a tensor that a copy moves: its pieces in shared and in global memory.

use heist_arith::tensor::swizzle::Swizzle;
use heist_launch::{Fill, Interleave, Swizzle as MapSwizzle, TensorElement, TensorMap};

/// A stretch of one copy: where it is in shared memory, and where in the tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    /// Bytes from the start of the box.
    pub(crate) shared: u64,
    /// Address in global memory; none outside the tensor.
    pub(crate) global: Option<u64>,
    pub(crate) len: u64,
}

/// The elements of a box along each axis. It takes every n-th of those that it spans
/// where the map says so, except along the innermost axis.
fn extents(map: &TensorMap) -> impl Iterator<Item = u64> {
    let steps = std::iter::once(&1).chain(map.element_strides.iter().skip(1));
    map.box_dims
        .iter()
        .zip(steps)
        .map(|(&extent, &step)| u64::from(extent.div_ceil(step.max(1))))
}

/// The bytes of shared memory that a box takes.
pub(crate) fn box_bytes(map: &TensorMap) -> u64 {
    let elements = extents(map).fold(1, u64::saturating_mul);
    map.element.shared_bytes_of(elements)
}

/// The bytes of a box that an mbarrier counts: those of the tensor, without padding.
pub(crate) fn counted_bytes(map: &TensorMap) -> u64 {
    let elements = extents(map).fold(1, u64::saturating_mul);
    map.element.bytes_of(elements)
}

/// What is wrong about coordinates, whatever the map's mode.
pub(crate) fn misplaced(map: &TensorMap, at: &[i32]) -> Option<&'static str> {
    if map.interleave != Interleave::None {
        return Some("interleaved tensors are not simulated");
    }
    let group = match map.element {
        TensorElement::B4 => 32,
        other => 16 / other.bytes() as i64,
    };
    if i64::from(at.first().copied().unwrap_or(0)).rem_euclid(group) != 0 {
        return Some("the box does not begin at a multiple of 16 bytes in the innermost axis");
    }
    if at.len() != map.rank() {
        return Some("the coordinates have another number of dimensions than the tensor map");
    }
    None
}

/// The pieces of a box at some coordinates, or why it can't be copied.
pub(crate) fn pieces(
    address: u64,
    map: &TensorMap,
    at: &[i32],
    target: u64,
) -> Result<Vec<Piece>, &'static str> {
    if map.im2col.is_some() {
        return Err("a copy in tiles with a tensor map that was made for im2col");
    }
    if let Some(why) = misplaced(map, at) {
        return Err(why);
    }
    // Maps that kernels make can be anything.
    let rank = map.rank();
    if rank == 0
        || map.box_dims.len() != rank
        || map.element_strides.len() != rank
        || map.strides.len() + 1 != rank
    {
        return Err("the tensor map does not have all its dimensions");
    }
    if map
        .box_dims
        .iter()
        .any(|extent| !(1..=256).contains(extent))
        || map
            .element_strides
            .iter()
            .any(|stride| !(1..=8).contains(stride))
    {
        return Err("a box has 1 to 256 elements along each axis, 1 to 8 apart");
    }
    if map.element.is_padded() && (map.box_dims[0] != 128 || at[0].rem_euclid(128) != 0) {
        return Err("padded elements are copied in groups of 128: box and coordinate");
    }
    if map.element == TensorElement::B4 {
        // Two in a byte: the same box of bytes.
        let (mut map, mut at) = (map.clone(), at.to_vec());
        map.element = TensorElement::U8;
        map.dims[0] /= 2;
        map.box_dims[0] /= 2;
        at[0] /= 2;
        return pieces(address, &map, &at, target);
    }
    let element = map.element.bytes();
    let row = u64::from(map.box_dims[0]) * element;
    let rows = extents(map).skip(1).product::<u64>();
    if row * rows > 1 << 20 {
        return Err("the box is larger than any shared memory");
    }
    let mut out = Vec::new();
    for index in 0..rows {
        let mut rest = index;
        let mut inside = true;
        let mut start = address;
        let outer = extents(map)
            .zip(&map.element_strides)
            .zip(at)
            .zip(&map.dims)
            .skip(1)
            .zip(&map.strides);
        for ((((extent, &step), &origin), &dim), &stride) in outer {
            let coordinate = i64::from(origin) + (rest % extent) as i64 * i64::from(step);
            rest /= extent;
            inside &= coordinate >= 0 && (coordinate as u64) < dim;
            start = start.wrapping_add((coordinate as u64).wrapping_mul(stride));
        }
        let row = Row {
            at: index * row,
            inside,
            start,
        };
        row.cut(map, at[0], target, &mut out);
    }
    Ok(out)
}

/// Elements in a row of the innermost axis.
pub(super) struct Row {
    /// Bytes from the start of the copy.
    pub(super) at: u64,
    /// Whether the row lies in the tensor.
    pub(super) inside: bool,
    /// Address of the first element of the row.
    pub(super) start: u64,
}

impl Row {
    /// The pieces of those from `first` on that one copy takes, element by element only where they
    /// leave the tensor.
    pub(super) fn cut(&self, map: &TensorMap, first: i32, target: u64, out: &mut Vec<Piece>) {
        let swizzle = match map.swizzle {
            MapSwizzle::None => Swizzle::None,
            MapSwizzle::Bytes32 => Swizzle::B32,
            MapSwizzle::Bytes64 => Swizzle::B64,
            MapSwizzle::Bytes128 => Swizzle::B128,
        };
        let padded = map.element.is_padded();
        let element = map.element.bytes();
        let row = u64::from(map.box_dims[0]) * element;
        let (low, high) = (
            i64::from(first),
            i64::from(first) + i64::from(map.box_dims[0]),
        );
        let valid = low.clamp(0, map.dims[0] as i64)..high.clamp(0, map.dims[0] as i64);
        let mut done = 0;
        while done < row {
            let coordinate = low + (done / element) as i64;
            let in_tensor = self.inside && valid.contains(&coordinate);
            let stop = if in_tensor {
                ((valid.end - low) as u64 * element).min(row)
            } else if self.inside && coordinate < valid.start && valid.start < high {
                (valid.start - low) as u64 * element
            } else {
                row
            };
            // Swizzled memory moves in chunks of 16 bytes.
            let place = target + self.at + done;
            let chunk_end = if swizzle == Swizzle::None && !padded {
                stop
            } else {
                stop.min(done + 16 - place % 16)
            };
            let mut piece = Piece {
                shared: swizzle.apply(place) - target,
                global: in_tensor.then(|| {
                    let behind = map.element.bytes_of(coordinate as u64);
                    self.start.wrapping_add(behind)
                }),
                len: chunk_end - done,
            };
            if padded {
                let whole = piece.len;
                piece.len = map.element.bytes_of(whole);
                out.push(Piece {
                    shared: piece.shared + piece.len,
                    global: None,
                    len: whole - piece.len,
                });
            }
            out.push(piece);
            done = chunk_end;
        }
    }
}

/// The pieces of four rows of a matrix, whose coordinates are the column and the four rows.
pub(crate) fn four_rows(
    address: u64,
    map: &TensorMap,
    at: &[i32],
    target: u64,
) -> Result<Vec<Piece>, &'static str> {
    let &[column, ref rows @ ..] = at else {
        return Err("a copy of four rows has five coordinates");
    };
    if rows.len() != 4 {
        return Err("a copy of four rows has five coordinates");
    }
    if map.rank() != 2 || map.box_dims.get(1) != Some(&1) {
        return Err("a copy of four rows is of a matrix, and its box has one row");
    }
    let mut all = Vec::new();
    for (number, &row) in rows.iter().enumerate() {
        let behind = number as u64 * box_bytes(map);
        let one = pieces(address, map, &[column, row], target + behind)?;
        all.extend(one.into_iter().map(|piece| Piece {
            shared: piece.shared + behind,
            ..piece
        }));
    }
    Ok(all)
}

/// What a load finds outside the tensor, as bytes that repeat.
pub(crate) fn fill(map: &TensorMap, len: usize) -> Vec<u8> {
    match map.fill {
        Fill::Zeros => vec![0; len],
        Fill::Nan => heist_arith::float::OOB_NAN
            .to_le_bytes()
            .into_iter()
            .cycle()
            .take(len)
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use heist_launch::BufferRef;

    /// Sixteen numbers of four bits are 8 bytes of the tensor and 16 of shared memory; the mbarrier
    /// counts those of the tensor.
    #[test]
    fn padding_follows_sixteen_small_numbers() {
        let tensor = BufferRef::Argument(0);
        let map = TensorMap::dense(tensor, TensorElement::B4Padded, &[256, 4], &[128, 2])
            .swizzle(MapSwizzle::Bytes128);
        let all = pieces(4096, &map, &[128, 1], 0).expect("a padded map");
        assert_eq!((box_bytes(&map), counted_bytes(&map)), (256, 128));
        let (data, padding): (Vec<Piece>, Vec<Piece>) =
            all.iter().partition(|piece| piece.global.is_some());
        assert_eq!((data.len(), padding.len()), (16, 16));
        assert!(all.iter().all(|piece| piece.len == 8));
        // The second row of the box begins with its chunks exchanged in pairs.
        let at = |row: u64, chunk: u64| Piece {
            shared: 128 * row + 16 * (chunk ^ row),
            global: Some(4096 + (1 + row) * 128 + 64 + 8 * chunk),
            len: 8,
        };
        for (row, chunk) in [(0, 0), (0, 7), (1, 0), (1, 7)] {
            assert!(data.contains(&at(row, chunk)), "{row} {chunk}: {data:?}");
        }
        assert!(pieces(4096, &map, &[64, 1], 0).is_err());
    }

    /// Coordinates and extents count elements, of which a byte has two.
    #[test]
    fn a_box_of_numbers_of_four_bits_begins_at_half_their_count() {
        let map = TensorMap::dense(
            BufferRef::Argument(0),
            TensorElement::B4,
            &[512, 4],
            &[128, 2],
        );
        assert_eq!((box_bytes(&map), counted_bytes(&map)), (128, 128));
        let piece = |row: u64, global| Piece {
            shared: 64 * row,
            global,
            len: 64,
        };
        let all = pieces(4096, &map, &[256, 3], 0).expect("a plain map");
        assert_eq!(all, [piece(0, Some(4096 + 3 * 256 + 128)), piece(1, None)]);
        assert!(pieces(4096, &map, &[16, 0], 0).is_err());
    }

    /// Sixteen numbers of six bits are 12 bytes of the tensor.
    #[test]
    fn less_padding_follows_numbers_of_six_bits() {
        let tensor = BufferRef::Argument(0);
        let map = TensorMap::dense(tensor, TensorElement::B6Padded, &[256, 4], &[128, 2]);
        let all = pieces(4096, &map, &[128, 1], 0).expect("a padded map");
        assert_eq!((box_bytes(&map), counted_bytes(&map)), (256, 192));
        let third = [(44, None, 4), (32, Some(4096 + 192 + 96 + 24), 12)];
        let third = third.map(|(shared, global, len)| Piece {
            shared,
            global,
            len,
        });
        assert_eq!(all[4..6], third);
    }

    #[test]
    fn a_box_over_the_edge_is_cut() {
        let map = TensorMap::dense(BufferRef::Argument(0), TensorElement::U32, &[6, 4], &[4, 2]);
        let pieces = pieces(1000, &map, &[4, 3], 0).expect("a plain map");
        assert_eq!(
            pieces,
            [
                Piece {
                    shared: 0,
                    global: Some(1000 + (3 * 6 + 4) * 4),
                    len: 8
                },
                Piece {
                    shared: 8,
                    global: None,
                    len: 8
                },
                Piece {
                    shared: 16,
                    global: None,
                    len: 16
                },
            ]
        );
    }
}
