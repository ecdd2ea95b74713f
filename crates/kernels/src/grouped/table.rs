//! Which group a tile belongs to.
//!
//! Tiles form a plane: columns along x, and along y the rows of all groups, one
//! group's tiles after the other's. Each block makes, once, a table in shared memory of where each
//! group's tiles begin, from the shapes on the device; a tile's group is found in it by bisection.
//! Tiles of the launch past the last group's do nothing.

use super::kernel::GroupedArgs;
use super::problem::{Grouped, Shapes};
use heist_builder::{Bool, Kernel, On, SharedArray, Val};

/// A tile's group.
#[derive(Clone, Copy)]
pub(crate) struct Found<'k> {
    /// Which.
    pub(crate) group: Val<'k, u32>,
    /// The first row of the tile in its group.
    pub(crate) row: Val<'k, u32>,
    /// Whether there is one.
    pub(crate) inside: Bool<'k>,
}

/// The shape of a group, and where its matrices begin, in elements.
#[derive(Clone, Copy)]
pub(crate) struct Member<'k> {
    pub(crate) m: Val<'k, u32>,
    pub(crate) n: Val<'k, u32>,
    pub(crate) k: Val<'k, u32>,
    pub(crate) a: Val<'k, u64>,
    pub(crate) b: Val<'k, u64>,
    pub(crate) d: Val<'k, u64>,
}

/// Where each group's tiles begin, along y.
#[derive(Clone, Copy)]
pub(crate) struct Table<'k> {
    k: Kernel<'k>,
    /// One more than groups: the last is the end.
    first: SharedArray<'k, u32>,
    groups: Val<'k, u32>,
    height: u32,
    capacity: u32,
}

/// How groups are described on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Described {
    /// By where their rows end.
    Rows,
    /// By how many of their rows are used, where all have room for as many.
    Masked,
    /// Each by three numbers and three places.
    Own,
}

impl Described {
    pub(crate) fn of(problem: &Grouped) -> Described {
        match problem.shapes {
            Shapes::Rows { .. } => Described::Rows,
            Shapes::Masked { .. } => Described::Masked,
            Shapes::Own(_) => Described::Own,
        }
    }

    /// The rows of a group. Rows that end before they begin count as none: the difference is
    /// signed.
    fn rows<'k>(self, args: &GroupedArgs<On<'k>>, group: Val<'k, u32>) -> Val<'k, u32> {
        match self {
            Described::Rows => {
                let (from, to) = ends(args, group);
                (to.bitcast::<i32>() - from.bitcast::<i32>())
                    .max(0)
                    .bitcast()
            }
            Described::Masked => {
                let count = args.shapes.at(group).load().bitcast::<i32>();
                count.max(0).bitcast::<u32>().min(args.room)
            }
            Described::Own => args.shapes.at(group * 3).load(),
        }
    }

    /// Where a group's rows begin, in the matrix of all rows.
    pub(crate) fn begin<'k>(self, args: &GroupedArgs<On<'k>>, group: Val<'k, u32>) -> Val<'k, u32> {
        match self {
            Described::Masked => group * args.room,
            Described::Rows | Described::Own => ends(args, group).0,
        }
    }

    /// Everything about a group.
    pub(crate) fn member<'k>(self, args: &GroupedArgs<On<'k>>, group: Val<'k, u32>) -> Member<'k> {
        let wide = |value: Val<'k, u32>| value.cast::<u64>();
        match self {
            Described::Rows | Described::Masked => {
                let from = self.begin(args, group);
                let (n, k) = (args.n, args.k);
                Member {
                    m: self.rows(args, group),
                    n,
                    k,
                    a: wide(from) * wide(k),
                    b: wide(group) * (wide(n) * wide(k)),
                    d: wide(from) * wide(n),
                }
            }
            Described::Own => {
                let shape = args.shapes.at(group * 3);
                let place = args.places.at(group * 3);
                Member {
                    m: shape.load(),
                    n: shape.at(1).load(),
                    k: shape.at(2).load(),
                    a: place.load(),
                    b: place.at(1).load(),
                    d: place.at(2).load(),
                }
            }
        }
    }
}

/// Where a group's rows begin and end.
fn ends<'k>(args: &GroupedArgs<On<'k>>, group: Val<'k, u32>) -> (Val<'k, u32>, Val<'k, u32>) {
    let k = group.kernel();
    let to = args.shapes.at(group).load();
    let from = k.if_value(
        group.gt(0u32),
        || args.shapes.at(group - 1).load(),
        || k.c(0),
    );
    (from, to)
}

impl<'k> Table<'k> {
    /// Makes the table. The whole block takes part; a barrier follows.
    pub(crate) fn new(
        k: &Kernel<'k>,
        args: &GroupedArgs<On<'k>>,
        described: Described,
        capacity: u32,
        height: u32,
    ) -> Table<'k> {
        let first = k.shared::<u32>("first_tile", capacity + 1);
        let groups = args.groups;
        k.comment("how many rows of tiles each group has");
        k.for_step(k.thread_index(), groups, k.threads(), |group| {
            let rows = described.rows(args, group);
            // Does not overflow for any value read.
            let tiles = rows / height + (rows % height).gt(0u32).to_u32();
            first.at(group + 1).store(tiles);
        });
        k.sync();
        k.comment("their running sum, by the first warp");
        k.if_(k.warp().eq(0u32), || {
            let before = k.var(0u32);
            let lane = k.lane();
            k.if_(lane.eq(0u32), || first.at(0).store(0u32));
            k.for_step(0u32, groups, 32u32, |from| {
                let group = from + lane;
                let inside = group.lt(groups);
                let sum = k.var(0u32);
                k.if_(inside, || sum.set(first.at(group + 1).load()));
                for distance in [1u32, 2, 4, 8, 16] {
                    let other = sum.get().shuffle_up(distance);
                    sum.set(sum.get() + lane.ge(distance).select(other, 0u32));
                }
                let total = sum.get() + before.get();
                k.if_(inside, || first.at(group + 1).store(total));
                before.set(total.shuffle_from(31u32));
            });
        });
        k.sync();
        Table {
            k: *k,
            first,
            groups,
            height,
            capacity,
        }
    }

    /// How many rows of tiles all groups have.
    pub(crate) fn high(&self) -> Val<'k, u32> {
        self.first.at(self.groups).load()
    }

    /// Finds the group of the tile in row `y` of tiles.
    pub(crate) fn find(&self, y: Val<'k, u32>) -> Found<'k> {
        let k = self.k;
        let inside = y.lt(self.high());
        // The last group that begins at or before `y`: of several that begin
        // there all but the last are empty.
        let (low, high) = (k.var(0u32), k.var(self.groups));
        for _ in 0..=self.capacity.ilog2() {
            let middle = (low.get() + high.get()) / 2;
            let begins = self.first.at(middle).load();
            let right = begins.le(y);
            low.set(right.select(middle, low.get()));
            high.set(right.select(high.get(), middle));
        }
        let group = low.get().named("group");
        Found {
            group,
            row: (y - self.first.at(group).load()) * self.height,
            inside,
        }
    }

    /// Which of its group's tiles the one at column `x` and row `y` is, of `across`
    /// columns: down the group's rows first, in bands, and its column. Tiles that run at
    /// the same time then share all rows of a band, which stay in L2, and each column of
    /// B is read once a band; row after row, B would be read anew for every few rows.
    /// Only for a tile inside.
    pub(crate) fn down_first(
        &self,
        found: Found<'k>,
        [x, y]: [Val<'k, u32>; 2],
        across: Val<'k, u32>,
    ) -> (Found<'k>, Val<'k, u32>) {
        let first = self.first.at(found.group).load();
        let high = self.first.at(found.group + 1).load() - first;
        let number = (y - first) * across + x;
        let band = number / (across * BAND);
        let rest = number - band * (across * BAND);
        let above = band * BAND;
        let high = (high - above).min(BAND);
        let col = rest / high;
        let row = above + (rest - col * high);
        let row = row * self.height;
        (Found { row, ..found }, col)
    }
}

/// Rows of tiles that are gone through column by column.
const BAND: u32 = 32;
