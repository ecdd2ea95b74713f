//! Tiles of several classes in one launch: the urgent ones first, and a share for the rest.
//!
//! A source hands out rights: as many as there are tiles, each to run one tile. A right then draws
//! its tile from the counter of a class: the class whose turn it is, or, if that is empty, the most
//! urgent class that has tiles left. A draw always succeeds, because there are as many rights as
//! tiles.

use crate::channel::NONE;
use crate::control::Control;
use crate::order::{Extent, OrderError, Position, TileOrder, unfold};
use heist_builder::{Global, Kernel, Ptr, SharedArray, Val, Var};
use heist_launch::Dim3;
use std::fmt;

/// How urgent a tile is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Class {
    /// Before all others.
    Urgent = 0,
    /// As it comes.
    Normal = 1,
    /// When there is time.
    Background = 2,
}

impl Class {
    /// All of them, the most urgent first.
    pub const ALL: [Class; 3] = [Class::Urgent, Class::Normal, Class::Background];
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Class::Urgent => "urgent",
            Class::Normal => "normal",
            Class::Background => "background",
        })
    }
}

/// Turns in a round: shares are counted in sixteenths.
const TURNS: u32 = 16;

/// The class of every tile (in a kernel with clusters: of every cluster of tiles), x
/// fastest, and how the classes share what is handed out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Classes {
    of: Vec<Class>,
    shares: [u32; 3],
}

/// Invalid shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("shares of {0:?} sixteenths are {sum}, not 16", sum = .0.iter().sum::<u32>())]
pub struct SharesError(pub [u32; 3]);

impl Classes {
    /// Of sixteen tiles that are handed out, twelve are urgent while there are such, three
    /// normal and one background.
    pub fn new(of: Vec<Class>) -> Classes {
        Classes {
            of,
            shares: [12, 3, 1],
        }
    }

    /// The same with other shares, in sixteenths; a class with none waits for the others.
    ///
    /// # Errors
    /// Shares that are not sixteen in all.
    pub fn shares(mut self, shares: [u32; 3]) -> Result<Classes, SharesError> {
        if shares.iter().copied().map(u64::from).sum::<u64>() != u64::from(TURNS) {
            return Err(SharesError(shares));
        }
        self.shares = shares;
        Ok(self)
    }

    /// The class of each tile.
    pub fn of(&self) -> &[Class] {
        &self.of
    }

    /// Positions by class, each class in the order of its tiles.
    fn positions(&self) -> Vec<u32> {
        let mut positions: Vec<u32> = (0..self.of.len() as u32).collect();
        positions.sort_by_key(|&at| self.of[at as usize]);
        positions
    }

    /// Where each class ends in that order.
    fn ends(&self) -> [u32; 3] {
        Class::ALL.map(|class| self.of.iter().filter(|of| **of <= class).count() as u32)
    }

    /// The class whose turn it is in each turn of a round, two bits each: as evenly spread
    /// as the shares allow.
    fn pattern(&self) -> u32 {
        let mut given = [0u32; 3];
        let mut pattern = 0;
        for turn in 0..TURNS {
            // How far each is behind its share; of equals the most urgent.
            let behind = |class: usize| {
                i64::from(self.shares[class] * (turn + 1)) - i64::from(given[class] * TURNS)
            };
            let most = (0..3).rev().max_by_key(|class| behind(*class)).unwrap_or(0);
            given[most] += 1;
            pattern |= (most as u32) << (2 * turn);
        }
        pattern
    }
}

impl TileOrder for Classes {
    fn tile(&self, index: u32, extent: Dim3) -> Dim3 {
        let positions = self.positions();
        let at = positions.get(index as usize).copied().unwrap_or(index);
        extent.coordinates(at.into())
    }

    fn emit<'k>(&self, k: &Kernel<'k>, index: Val<'k, u32>, extent: &Extent<'k>) -> Position<'k> {
        unfold(k, extent.table.at(index).load(), extent)
    }

    fn table(&self, extent: Dim3) -> Result<Option<Vec<u32>>, OrderError> {
        if self.of.len() as u64 != extent.count() {
            return Err(OrderError::Size {
                entries: self.of.len(),
                tiles: extent.count(),
            });
        }
        let mut table = self.positions();
        table.extend(self.ends());
        Ok(Some(table))
    }

    fn name(&self) -> String {
        "classes".into()
    }
}

/// The counters of the classes, in the scheduler thread.
#[derive(Clone, Copy)]
pub(crate) struct Drawer<'k> {
    k: Kernel<'k>,
    counters: Ptr<'k, Global, u64>,
    /// Where each class ends in the order of tiles.
    ends: [Val<'k, u32>; 3],
    pattern: u32,
    /// The number of the right that the block uses. Written and never read: a debugger finds it
    /// there, and the checker sees that the granted tile is used.
    right: SharedArray<'k, u32>,
    /// Classes that have nothing left, a bit each.
    spent: Var<'k, u32>,
}

impl<'k> Drawer<'k> {
    /// In the scheduler thread.
    pub(crate) fn new(
        k: &Kernel<'k>,
        classes: &Classes,
        control: Control<'k>,
        table: Ptr<'k, Global, u32>,
        tiles: Val<'k, u32>,
    ) -> Drawer<'k> {
        let ends = table.at(tiles);
        Drawer {
            k: *k,
            counters: control.class_counters(),
            ends: [0, 1, 2].map(|class| ends.at(class).load()),
            pattern: classes.pattern(),
            right: k.shared("heist_right", 1),
            spent: k.var(0u32).named("classes_spent"),
        }
    }

    /// The tile that a right is for. Rights are numbered, and so their numbers are the turns.
    #[track_caller]
    pub(crate) fn draw(&self, right: Val<'k, u32>) -> Val<'k, u32> {
        let k = self.k;
        self.right.at(0).store(right);
        let found = k.var(NONE).named("drawn");
        let first = (k.c(self.pattern) >> ((right & (TURNS - 1)) << 1)) & 3;
        // The class whose turn it is, then the most urgent.
        for class in [first, k.c(0), k.c(1), k.c(2)] {
            let spent = ((self.spent.get() >> class) & 1).ne(0);
            k.if_(found.get().eq(NONE) & !spent, || {
                let [urgent, normal, all] = self.ends;
                let end = class.eq(0).select(urgent, class.eq(1).select(normal, all));
                let begin = class.eq(0).select(0u32, class.eq(1).select(urgent, normal));
                let drawn = self.counters.at(class).cast::<u32>().atomic_add(1u32);
                k.if_else(
                    drawn.lt(end - begin),
                    || found.set(begin + drawn),
                    || self.spent.update(|spent| spent | (k.c(1u32) << class)),
                );
            });
        }
        found.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_have_names() {
        let names = Class::ALL.map(|class| class.to_string());
        assert_eq!(names, ["urgent", "normal", "background"]);
    }

    #[test]
    fn every_class_has_its_share_of_a_round() {
        for shares in [[12, 3, 1], [16, 0, 0], [5, 5, 6], [0, 0, 16], [8, 8, 0]] {
            let classes = Classes::new(Vec::new()).shares(shares).unwrap();
            let pattern = classes.pattern();
            let mut given = [0; 3];
            for turn in 0..TURNS {
                given[(pattern >> (2 * turn) & 3) as usize] += 1;
            }
            assert_eq!(given, shares);
        }
        // Spread: never two of the rare ones in a row.
        let pattern = Classes::new(Vec::new()).pattern();
        let turns: Vec<u32> = (0..TURNS).map(|turn| pattern >> (2 * turn) & 3).collect();
        assert!(
            turns.windows(2).all(|pair| pair[0] == 0 || pair[1] == 0),
            "{turns:?}"
        );
        assert_eq!(
            Classes::new(Vec::new()).shares([1, 2, 3]),
            Err(SharesError([1, 2, 3]))
        );
    }

    #[test]
    fn the_table_has_the_tiles_by_class_and_where_classes_end() {
        use Class::{Background as B, Normal as N, Urgent as U};
        let classes = Classes::new(vec![N, B, U, N, U]);
        let table = classes.table(Dim3::new(5, 1, 1)).unwrap().unwrap();
        assert_eq!(table, [2, 4, 0, 3, 1, 2, 4, 5]);
        assert!(classes.table(Dim3::new(4, 1, 1)).is_err());
        assert_eq!(classes.tile(1, Dim3::new(5, 1, 1)), Dim3::new(4, 0, 0));
    }
}
