//! The order of tiles for masks and lengths that make them uneven.

use heist_builder::{Kernel, Val};
use heist_launch::Dim3;
use heist_sched::{Extent, Position, TileOrder};

/// The last rows of a sequence first: under a causal mask they see the most keys.
///
/// A few heads take turns, so that what is left for the end are light tiles of
/// all of them; then the next few, so that the keys of those at work stay in the
/// cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeaviestFirst {
    /// Heads that take turns, over all sequences; 0 counts as 1.
    pub heads: u32,
}

impl TileOrder for HeaviestFirst {
    fn tile(&self, index: u32, extent: Dim3) -> Dim3 {
        let (rows, index) = (u64::from(extent.x), u64::from(index));
        let all = u64::from(extent.y) * u64::from(extent.z);
        let heads = u64::from(self.heads.max(1)).min(all);
        let (turn, inside) = (index / (heads * rows), index % (heads * rows));
        let first = turn * heads;
        let many = heads.min(all - first);
        let head = first + inside % many;
        let row = rows - 1 - inside / many;
        let heads = u64::from(extent.y);
        Dim3::new(row as u32, (head % heads) as u32, (head / heads) as u32)
    }

    fn emit<'k>(&self, k: &Kernel<'k>, index: Val<'k, u32>, extent: &Extent<'k>) -> Position<'k> {
        if extent.rank <= 1 {
            return Position {
                x: extent.count - 1 - index,
                y: k.c(0),
                z: k.c(0),
            };
        }
        let all = extent.count / extent.x;
        let heads = all.min(self.heads.max(1));
        let stretch = heads * extent.x;
        let turn = index / stretch;
        let inside = index - turn * stretch;
        let first = turn * heads;
        let many = heads.min(all - first);
        let row = inside / many;
        let head = first + (inside - row * many);
        let x = extent.x - 1 - row;
        if extent.rank == 2 {
            return Position {
                x,
                y: head,
                z: k.c(0),
            };
        }
        let z = head / extent.y;
        Position {
            x,
            y: head - z * extent.y,
            z,
        }
    }

    fn name(&self) -> String {
        format!("heaviest-first({})", self.heads.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_tile_once_and_heavy_ones_before_light_ones() {
        for extent in [
            Dim3::new(5, 1, 1),
            Dim3::new(4, 7, 1),
            Dim3::new(3, 2, 5),
            Dim3::new(1, 3, 2),
        ] {
            for heads in [0, 1, 2, 3, 7, 100] {
                let order = HeaviestFirst { heads };
                let count = extent.count() as u32;
                let tiles: Vec<Dim3> = (0..count).map(|i| order.tile(i, extent)).collect();
                let linear = |at: &Dim3| at.x + extent.x * (at.y + extent.y * at.z);
                let places: BTreeSet<u32> = tiles.iter().map(linear).collect();
                assert_eq!(places, (0..count).collect(), "{extent} {heads}");
                let turn = heads.max(1).min(extent.y * extent.z) * extent.x;
                for heads in tiles.chunks(turn as usize) {
                    assert!(heads.is_sorted_by(|a, b| a.x >= b.x), "{extent}: {heads:?}");
                }
            }
        }
    }
}
