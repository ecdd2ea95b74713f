//! In which order tiles are handed out: a pure map from an index to a tile.
//!
//! Order is independent of policy: the source hands out the next index to whichever block asks, and
//! the order maps it to a tile. An order is a bijection of `0..n` onto the grid of tiles,
//! implemented on the host ([`TileOrder::tile`]) and on the device ([`TileOrder::emit`]); tests
//! compare the two. In a kernel with clusters, a "tile" here is a cluster of tiles.

mod hilbert;

use heist_builder::{Global, Kernel, Ptr, Val};
use heist_launch::Dim3;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// The extent of the grid of tiles inside a kernel, and the order's table.
#[derive(Clone, Copy, Debug)]
pub struct Extent<'k> {
    /// How many along x.
    pub x: Val<'k, u32>,
    /// How many along y.
    pub y: Val<'k, u32>,
    /// How many in all.
    pub count: Val<'k, u32>,
    /// How many axes are longer than one tile: 1, 2 or 3.
    pub rank: u32,
    /// The order's table, where it has one.
    pub table: Ptr<'k, Global, u32>,
}

/// A position inside a kernel.
pub type Position<'k> = heist_builder::Dim3<'k>;

/// In which order tiles are handed out.
pub trait TileOrder: fmt::Debug + Send + Sync {
    /// The tile at `index`, which lies below `extent.count()`.
    fn tile(&self, index: u32, extent: Dim3) -> Dim3;

    /// The same, in a kernel.
    fn emit<'k>(&self, k: &Kernel<'k>, index: Val<'k, u32>, extent: &Extent<'k>) -> Position<'k>;

    /// For an order that is looked up: position of the tile at each index, x
    /// fastest. Called when a launch is planned.
    ///
    /// # Errors
    /// Why the order does not fit this grid.
    fn table(&self, extent: Dim3) -> Result<Option<Vec<u32>>, OrderError> {
        let _ = extent;
        Ok(None)
    }

    /// Its name, as [`AnyOrder`] reads it.
    fn name(&self) -> String;
}

/// Why an order does not fit a grid of tiles.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OrderError {
    /// A table of another size.
    #[error(
        "the order's table has {entries} entries, and the grid has {tiles} tiles (in clusters)"
    )]
    Size {
        /// Entries of the table.
        entries: usize,
        /// Tiles of the grid.
        tiles: u64,
    },
    /// A table that is no permutation.
    #[error("the order's table is no permutation: entry {index} is {value}, {why}")]
    NoPermutation {
        /// Where.
        index: usize,
        /// What is there.
        value: u32,
        /// Twice, or outside of the grid.
        why: &'static str,
    },
    /// A name that is no order's.
    #[error(
        "there is no tile order `{0}`; there are linear, reversed, grouped(ROWS), hilbert, longest-first"
    )]
    Unknown(String),
}

/// `x` fastest, then `y`, then `z`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Linear;

/// From the last tile to the first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reversed;

/// Columns of a band of `rows` rows, band after band: tiles that run at the
/// same time share rows and columns, and with them the L2 cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grouped {
    /// Rows of a band; 0 counts as 1.
    pub rows: u32,
}

/// Along a Hilbert curve in x and y, plane after plane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hilbert;

/// An order from a table: the position of the tile at each index, x fastest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    positions: Vec<u32>,
    name: &'static str,
}

impl Table {
    /// An order from a table, which is checked when a launch is planned.
    pub fn new(positions: Vec<u32>) -> Table {
        Table {
            positions,
            name: "table",
        }
    }

    /// The costliest tile first; among equals, the earlier one.
    pub fn longest_first<C: PartialOrd>(costs: &[C]) -> Table {
        let mut positions: Vec<u32> = (0..costs.len() as u32).collect();
        positions.sort_by(|&a, &b| {
            let (a, b) = (&costs[a as usize], &costs[b as usize]);
            b.partial_cmp(a).unwrap_or(std::cmp::Ordering::Equal)
        });
        Table {
            positions,
            name: "longest-first",
        }
    }
}

/// From a linear index to coordinates, with no division for a line of tiles.
pub(crate) fn unfold<'k>(k: &Kernel<'k>, index: Val<'k, u32>, extent: &Extent<'k>) -> Position<'k> {
    match extent.rank {
        0 | 1 => Position {
            x: index,
            y: k.c(0),
            z: k.c(0),
        },
        2 => {
            let y = index / extent.x;
            Position {
                x: index - y * extent.x,
                y,
                z: k.c(0),
            }
        }
        _ => {
            let rest = index / extent.x;
            let z = rest / extent.y;
            Position {
                x: index - rest * extent.x,
                y: rest - z * extent.y,
                z,
            }
        }
    }
}

impl TileOrder for Linear {
    fn tile(&self, index: u32, extent: Dim3) -> Dim3 {
        extent.coordinates(index.into())
    }
    fn emit<'k>(&self, k: &Kernel<'k>, index: Val<'k, u32>, extent: &Extent<'k>) -> Position<'k> {
        unfold(k, index, extent)
    }
    fn name(&self) -> String {
        "linear".into()
    }
}

impl TileOrder for Reversed {
    fn tile(&self, index: u32, extent: Dim3) -> Dim3 {
        extent.coordinates(extent.count() - 1 - u64::from(index))
    }
    fn emit<'k>(&self, k: &Kernel<'k>, index: Val<'k, u32>, extent: &Extent<'k>) -> Position<'k> {
        unfold(k, extent.count - 1 - index, extent)
    }
    fn name(&self) -> String {
        "reversed".into()
    }
}

impl TileOrder for Grouped {
    fn tile(&self, index: u32, extent: Dim3) -> Dim3 {
        let plane = u64::from(extent.x) * u64::from(extent.y);
        let (z, index) = (u64::from(index) / plane, u64::from(index) % plane);
        let rows = u64::from(self.rows.max(1));
        let band = rows * u64::from(extent.x);
        let (group, inside) = (index / band, index % band);
        let high = rows.min(u64::from(extent.y) - group * rows);
        Dim3::new(
            (inside / high) as u32,
            (group * rows + inside % high) as u32,
            z as u32,
        )
    }
    fn emit<'k>(&self, k: &Kernel<'k>, index: Val<'k, u32>, extent: &Extent<'k>) -> Position<'k> {
        if extent.rank <= 1 {
            return unfold(k, index, extent);
        }
        let (z, index) = if extent.rank == 2 {
            (k.c(0), index)
        } else {
            let plane = extent.x * extent.y;
            let z = index / plane;
            (z, index - z * plane)
        };
        let rows = self.rows.max(1);
        let band = extent.x * rows;
        let group = index / band;
        let inside = index - group * band;
        let first = group * rows;
        let high = (extent.y - first).min(rows);
        let x = inside / high;
        Position {
            x,
            y: first + (inside - x * high),
            z,
        }
    }
    fn name(&self) -> String {
        format!("grouped({})", self.rows)
    }
}

fn look_up<'k>(k: &Kernel<'k>, index: Val<'k, u32>, extent: &Extent<'k>) -> Position<'k> {
    unfold(k, extent.table.at(index).load_readonly(), extent)
}

impl TileOrder for Hilbert {
    fn tile(&self, index: u32, extent: Dim3) -> Dim3 {
        let plane = extent.x.saturating_mul(extent.y).max(1);
        let (x, y) = hilbert::walk(extent.x, extent.y)
            .nth((index % plane) as usize)
            .unwrap_or((0, 0));
        Dim3::new(x, y, index / plane)
    }
    fn emit<'k>(&self, k: &Kernel<'k>, index: Val<'k, u32>, extent: &Extent<'k>) -> Position<'k> {
        if extent.rank <= 1 {
            return unfold(k, index, extent);
        }
        look_up(k, index, extent)
    }
    fn table(&self, extent: Dim3) -> Result<Option<Vec<u32>>, OrderError> {
        let plane: Vec<u32> = hilbert::walk(extent.x, extent.y)
            .map(|(x, y)| x + y * extent.x)
            .collect();
        let size = plane.len() as u32;
        let planes = (0..extent.z).flat_map(|z| plane.iter().map(move |at| at + z * size));
        Ok(Some(planes.collect()))
    }
    fn name(&self) -> String {
        "hilbert".into()
    }
}

impl TileOrder for Table {
    fn tile(&self, index: u32, extent: Dim3) -> Dim3 {
        let position = self.positions.get(index as usize).copied();
        extent.coordinates(position.unwrap_or(0).into())
    }
    fn emit<'k>(&self, k: &Kernel<'k>, index: Val<'k, u32>, extent: &Extent<'k>) -> Position<'k> {
        look_up(k, index, extent)
    }
    fn table(&self, extent: Dim3) -> Result<Option<Vec<u32>>, OrderError> {
        let tiles = extent.count();
        if self.positions.len() as u64 != tiles {
            return Err(OrderError::Size {
                entries: self.positions.len(),
                tiles,
            });
        }
        let mut seen = vec![false; self.positions.len()];
        for (index, &value) in self.positions.iter().enumerate() {
            let why = match seen.get_mut(value as usize) {
                None => "which lies outside of the grid",
                Some(true) => "which was there before",
                Some(new) => {
                    *new = true;
                    continue;
                }
            };
            return Err(OrderError::NoPermutation { index, value, why });
        }
        Ok(Some(self.positions.clone()))
    }
    fn name(&self) -> String {
        self.name.into()
    }
}

/// Any order. Copying it is cheap.
///
/// ```
/// use heist_sched::AnyOrder;
/// assert_eq!("grouped(4)".parse::<AnyOrder>().unwrap().name(), "grouped(4)");
/// ```
#[derive(Clone, Debug)]
pub struct AnyOrder(Arc<dyn TileOrder>);

impl AnyOrder {
    /// Forgets the type of an order.
    pub fn new(order: impl TileOrder + 'static) -> AnyOrder {
        AnyOrder(Arc::new(order))
    }

    /// Its name.
    pub fn name(&self) -> String {
        self.0.name()
    }
}

impl std::ops::Deref for AnyOrder {
    type Target = dyn TileOrder;
    fn deref(&self) -> &Self::Target {
        &*self.0
    }
}

impl FromStr for AnyOrder {
    type Err = OrderError;

    /// Reads `linear`, `reversed`, `grouped(4)` or `hilbert`. An order by a
    /// table needs the table: see [`Table`].
    fn from_str(text: &str) -> Result<AnyOrder, OrderError> {
        let plain: String = text.chars().filter(|c| !c.is_whitespace()).collect();
        match plain.as_str() {
            "linear" => return Ok(AnyOrder::new(Linear)),
            "reversed" => return Ok(AnyOrder::new(Reversed)),
            "hilbert" => return Ok(AnyOrder::new(Hilbert)),
            _ => {}
        }
        plain
            .strip_prefix("grouped(")
            .and_then(|rest| rest.strip_suffix(')'))
            .and_then(|rows| rows.parse().ok())
            .filter(|rows| *rows > 0)
            .map(|rows| AnyOrder::new(Grouped { rows }))
            .ok_or_else(|| OrderError::Unknown(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn covers(order: &dyn TileOrder, extent: Dim3) {
        let tiles: BTreeSet<Dim3> = (0..extent.count() as u32)
            .map(|index| order.tile(index, extent))
            .collect();
        assert_eq!(tiles.len() as u64, extent.count(), "{order:?} {extent}");
        assert!(
            tiles
                .iter()
                .all(|at| at.x < extent.x && at.y < extent.y && at.z < extent.z),
            "{order:?} {extent}"
        );
        if let Some(table) = order.table(extent).expect("it fits") {
            let said: Vec<Dim3> = table
                .iter()
                .map(|&at| extent.coordinates(at.into()))
                .collect();
            let mapped: Vec<Dim3> = (0..extent.count() as u32)
                .map(|index| order.tile(index, extent))
                .collect();
            assert_eq!(said, mapped, "{order:?} {extent}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn every_order_is_a_bijection(x in 1u32..24, y in 1u32..24, z in 1u32..4, rows in 0u32..9, seed: u64) {
            let extent = Dim3::new(x, y, z);
            covers(&Linear, extent);
            covers(&Reversed, extent);
            covers(&Grouped { rows }, extent);
            covers(&Hilbert, extent);
            let costs: Vec<u64> = (0..extent.count())
                .map(|i| (i ^ seed).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 60)
                .collect();
            let longest = Table::longest_first(&costs);
            covers(&longest, extent);
            let sorted: Vec<u64> = (0..extent.count() as u32)
                .map(|i| costs[extent.linear(longest.tile(i, extent)) as usize])
                .collect();
            prop_assert!(sorted.windows(2).all(|pair| pair[0] >= pair[1]));
        }
    }

    #[test]
    fn neighbours_on_the_curve_are_neighbours_on_the_grid() {
        let extent = Dim3::new(16, 16, 1);
        let tiles: Vec<Dim3> = (0..256).map(|i| Hilbert.tile(i, extent)).collect();
        for pair in tiles.windows(2) {
            let step = pair[0].x.abs_diff(pair[1].x) + pair[0].y.abs_diff(pair[1].y);
            assert_eq!(step, 1, "{pair:?}");
        }
    }

    #[test]
    fn a_band_is_walked_column_by_column() {
        let extent = Dim3::new(3, 5, 1);
        let tiles: Vec<(u32, u32)> = (0..15)
            .map(|i| Grouped { rows: 2 }.tile(i, extent))
            .map(|at| (at.x, at.y))
            .collect();
        assert_eq!(tiles[..6], [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1)]);
        assert_eq!(tiles[12..], [(0, 4), (1, 4), (2, 4)]);
    }

    #[test]
    fn tables_that_are_no_orders_are_told_so() {
        let extent = Dim3::linear_x(3);
        let wrong = |positions: &[u32]| {
            let error = Table::new(positions.to_vec()).table(extent);
            error.expect_err("no permutation").to_string()
        };
        assert!(wrong(&[0, 1]).contains("2 entries, and the grid has 3"));
        assert!(wrong(&[0, 1, 1]).contains("entry 2 is 1, which was there before"));
        assert!(wrong(&[0, 9, 1]).contains("entry 1 is 9, which lies outside"));
        assert!("zigzag".parse::<AnyOrder>().is_err());
    }
}
