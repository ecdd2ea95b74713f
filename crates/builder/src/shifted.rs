//! Fragments of matrices whose rows begin anywhere.
//!
//! Copies of 16 bytes begin at multiples of 16 bytes on both sides. A row that begins at any element is copied from the multiple
//! below on, so it lies in shared memory as it lies in global memory: so many elements behind the beginning of its row of the tile. That is
//! its *shift*. `ldmatrix` reads 16 bytes that begin at a multiple of 16; here each lane loads its elements one by one, from where they are.

use crate::kernel::Kernel;
use crate::mma::{FragmentA, FragmentB, MmaInput};
use crate::pointer::{Ptr, Shared};
use crate::tile::SharedTile;
use crate::value::{IntoVal, Val};

/// The shifts of the rows that a lane's elements are in. They are the same again some rows further on, since a pitch times
/// the elements of 16 bytes is a multiple of 16 bytes: so one lane has to know one or two of them.
#[derive(Clone, Copy, Debug)]
pub struct RowShifts<'k> {
    lane: [Val<'k, u32>; 2],
    across: bool,
}

impl<'k> RowShifts<'k> {
    /// Of a tile whose rows run along the depth: `of` is the shift of a row of it.
    #[track_caller]
    pub fn along(k: &Kernel<'k>, of: impl Fn(Val<'k, u32>) -> Val<'k, u32>) -> RowShifts<'k> {
        k.asked_here();
        RowShifts {
            lane: [of(k.lane() >> 2); 2],
            across: false,
        }
    }

    /// Of a tile whose rows are steps of the depth, of elements `T`.
    #[track_caller]
    pub fn across<T: MmaInput>(
        k: &Kernel<'k>,
        of: impl Fn(Val<'k, u32>) -> Val<'k, u32>,
    ) -> RowShifts<'k> {
        k.asked_here();
        let first = first_depth::<T>(k);
        let low = of(first);
        let high = if T::BYTES == 2 { of(first + 1) } else { low };
        RowShifts {
            lane: [low, high],
            across: true,
        }
    }
}

/// The first element of the depth, of a fragment, that a lane has.
#[track_caller]
fn first_depth<'k, T: MmaInput>(k: &Kernel<'k>) -> Val<'k, u32> {
    (k.lane() & 3) * (4 / T::BYTES)
}

/// A part of a tile with shifted rows that a warp loads fragments from.
#[derive(Clone, Copy, Debug)]
pub struct ShiftedSource<'k, T> {
    /// Of the elements of a register: where this lane has the first of each.
    first: [Ptr<'k, Shared, T>; 2],
    pitch: u32,
    across: bool,
}

impl<'k, T: MmaInput> SharedTile<'k, T> {
    /// Fragments of the matrix from row `outer` (or column, of the right one), a multiple of 8, and from `depth` on, a multiple of 16.
    /// Rows of the tile are not swizzled.
    #[track_caller]
    pub fn shifted(
        &self,
        outer: impl IntoVal<'k, u32>,
        depth: impl IntoVal<'k, u32>,
        shifts: &RowShifts<'k>,
    ) -> ShiftedSource<'k, T> {
        let k = self.kernel();
        k.asked_here();
        let outer = outer.into_val(&k) + (k.lane() >> 2);
        let depth = depth.into_val(&k) + first_depth::<T>(&k);
        let [low, high] = shifts.lane;
        let first = match shifts.across {
            false => {
                let low = self.at(outer, depth + low);
                [low, low.at(1)]
            }
            true => [
                self.at(depth, outer + low),
                self.at(depth + 1, outer + high),
            ],
        };
        ShiftedSource {
            first,
            pitch: self.pitch(),
            across: shifts.across,
        }
    }
}

impl<'k, T: MmaInput> ShiftedSource<'k, T> {
    /// The left fragment `block` blocks of 16 rows down and `step` steps deep.
    #[track_caller]
    pub fn left(&self, block: u32, step: u32) -> FragmentA<'k, T> {
        let register = |outer: u32, part: u32| self.register(block * 16 + outer, step, part);
        FragmentA {
            regs: [
                register(0, 0),
                register(8, 0),
                register(0, 1),
                register(8, 1),
            ],
        }
    }

    /// The right fragment `block` blocks of 8 columns over and `step` steps deep.
    #[track_caller]
    pub fn right(&self, block: u32, step: u32) -> FragmentB<'k, T> {
        FragmentB {
            regs: [0, 1].map(|part| self.register(block * 8, step, part)),
        }
    }

    /// The elements of a register: of the first or the second half of a step.
    #[track_caller]
    fn register(&self, outer: u32, step: u32, half: u32) -> Val<'k, T::Reg> {
        let depth = step * T::K + half * (T::K / 2);
        let further = match self.across {
            false => outer * self.pitch + depth,
            true => depth * self.pitch + outer,
        };
        T::gather(self.first.map(|first| first.at(further)))
    }
}
