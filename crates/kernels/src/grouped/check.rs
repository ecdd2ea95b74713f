//! The check of every decoded tile, on the device.
//!
//! A scheduler that decodes a wrong coordinate, or shapes that are not what the
//! host thinks, would make a kernel write wherever the numbers point. In check mode a tile touches
//! memory only after its group, its coordinates and the ends of its matrices were checked, and the
//! first bad tile is recorded.

use super::kernel::GroupedArgs;
use super::table::{Found, Member};
use heist_builder::{Kernel, On, Order, Scope, Val};
use heist_launch::Buffer;
use std::fmt;

/// Words of the record.
pub(crate) const WORDS: usize = 8;

/// What was wrong with a tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// Its group is none of the groups.
    Group,
    /// Its first row is none of its group's.
    Row,
    /// Its first column is none of its group's.
    Column,
    /// Its group's part of A ends behind A.
    A,
    /// Its group's part of B ends behind B.
    B,
    /// Its group's part of D ends behind D.
    D,
}

impl Wrong {
    const ALL: [Wrong; 6] = [
        Wrong::Group,
        Wrong::Row,
        Wrong::Column,
        Wrong::A,
        Wrong::B,
        Wrong::D,
    ];

    fn as_str(self) -> &'static str {
        match self {
            Wrong::Group => "its group is none of the groups",
            Wrong::Row => "its first row is none of its group's",
            Wrong::Column => "its first column is none of its group's",
            Wrong::A => "its group's part of A ends behind A",
            Wrong::B => "its group's part of B ends behind B",
            Wrong::D => "its group's part of D ends behind D",
        }
    }
}

/// The first bad tile of a launch in check mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadTile {
    /// What was wrong.
    pub wrong: Wrong,
    /// The group that was decoded.
    pub group: u32,
    /// The first row in it.
    pub row: u32,
    /// The first column.
    pub col: u32,
    /// The shape of the group, as the device had it.
    pub shape: [u32; 3],
    /// How many tiles were bad in all.
    pub count: u32,
}

impl BadTile {
    /// Reads the record of a launch; `None` when no tile was bad.
    pub fn read(record: &Buffer) -> Option<BadTile> {
        let words: Vec<u32> = record.to_vec()?;
        let [code, group, row, col, m, n, k, count] = *words.as_slice() else {
            return None;
        };
        let wrong = *Wrong::ALL.get(code.checked_sub(1)? as usize)?;
        Some(BadTile {
            wrong,
            group,
            row,
            col,
            shape: [m, n, k],
            count,
        })
    }
}

impl fmt::Display for BadTile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [m, n, k] = self.shape;
        write!(
            f,
            "the tile at row {} and column {} of group {} ({m} x {n} x {k}) was not run: {}; {} tiles were bad",
            self.row,
            self.col,
            self.group,
            self.wrong.as_str(),
            self.count
        )
    }
}

/// Whether a tile is good; a bad one is recorded.
pub(crate) fn good<'k>(
    k: &Kernel<'k>,
    args: &GroupedArgs<On<'k>>,
    found: &Found<'k>,
    member: &Member<'k>,
    col: Val<'k, u32>,
) -> heist_builder::Bool<'k> {
    let wide = |value: Val<'k, u32>| value.cast::<u64>();
    let ends = |from: Val<'k, u64>, rows: Val<'k, u32>, cols: Val<'k, u32>| {
        // Each factor is below 2^32, so neither product nor test wraps.
        let size = wide(rows) * wide(cols);
        (from, size)
    };
    let behind = |(from, size): (Val<'k, u64>, Val<'k, u64>), all: Val<'k, u64>| {
        from.gt(all) | size.gt(all - from.min(all))
    };
    let tests = [
        found.group.ge(args.groups),
        found.row.ge(member.m),
        col.ge(member.n),
        behind(ends(member.a, member.m, member.k), args.a_len),
        behind(ends(member.b, member.n, member.k), args.b_len),
        behind(ends(member.d, member.m, member.n), args.d_len),
    ];
    let mut code = k.c(0u32);
    // The first failed test is named, so go from the last to the first.
    for (index, test) in tests.into_iter().enumerate().rev() {
        code = test.select(index as u32 + 1, code);
    }
    let good = code.eq(0u32);
    k.if_(!good, || {
        k.one_thread(|| {
            let record = args.record;
            let first =
                record
                    .at(0)
                    .atomic_compare_exchange(Order::Relaxed, Scope::Gpu, 0u32, code);
            k.if_(first.eq(0u32), || {
                let words = [found.group, found.row, col, member.m, member.n, member.k];
                for (index, word) in words.into_iter().enumerate() {
                    record.at(index as u32 + 1).store(word);
                }
            });
            record.at(7).reduce_add(1u32);
        });
    });
    good
}
