//! Groups that differ in their rows alone, as the copy engine knows them.
//!
//! All rows are one matrix A, in which a group is a row to begin at, and there are as many matrices B
//! as groups. A tile may also load rows of the next group; they are not stored.

use super::check;
use super::kernel::GroupedArgs;
use super::problem::{Alike, Grouped};
use super::table::{Described, Found, Member, Table};
use crate::gemm::warpgroup::{Matrices, Side};
use crate::gemm::{Added, Input, Major, Spread, Stored, To, left, tensor_element};
use heist_builder::{Kernel, On, TensorMapRef, Val, f16};
use heist_launch::Arg;
use heist_sched::Tile;

/// How tiles lie in the groups.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cut {
    /// Rows of a tile.
    pub(super) rows: u32,
    /// Columns of the result that a tile has.
    pub(super) width: u32,
    /// How B is stored.
    pub(super) b_major: Major,
    /// How groups are described.
    pub(super) described: Described,
    /// Elements in 128 bytes of A and B.
    pub(super) span: u32,
    /// Whether a tile of the launch stands for several where groups have more of them.
    pub(super) folded: bool,
    /// Entries of the table of groups.
    pub(super) capacity: u32,
    /// Whether B has the columns of a gate and then as many others.
    pub(super) gated: bool,
    /// Whether tiles are validated first.
    pub(super) check: bool,
    /// Whether whole tiles cover the columns.
    pub(super) even_cols: bool,
}

impl Cut {
    pub(super) fn new(problem: &Grouped, n: u32, [rows, width]: [u32; 2], gated: bool) -> Cut {
        Cut {
            rows,
            width,
            b_major: problem.layout.b(),
            described: Described::of(problem),
            span: 128 / problem.input.bytes(),
            folded: false,
            capacity: (problem.len() as u32).next_power_of_two().max(32),
            gated,
            check: problem.check,
            even_cols: n.is_multiple_of(width),
        }
    }
}

/// What the table and the check know of a kernel's parameters, whose structs name them alike. The
/// matrices themselves are the copy engine's.
macro_rules! known {
    ($args:expr) => {
        $crate::grouped::GroupedArgs {
            a: $args.d,
            b: $args.d,
            d: $args.d,
            shapes: $args.shapes,
            places: $args.places,
            record: $args.record,
            groups: $args.groups,
            n: $args.n,
            k: $args.k,
            room: $args.room,
            a_len: $args.a_len,
            b_len: $args.b_len,
            d_len: $args.d_len,
        }
    };
}
pub(super) use known;

/// The groups inside the kernel.
pub(super) struct Groups<'k> {
    pub(super) known: GroupedArgs<On<'k>>,
    maps: [TensorMapRef<'k, f16, 3>; 2],
    table: Table<'k>,
    cut: Cut,
}

impl<'k> Groups<'k> {
    /// Over the maps of A and B. The whole block takes part.
    pub(super) fn new(
        k: &Kernel<'k>,
        known: GroupedArgs<On<'k>>,
        maps: [TensorMapRef<'k, f16, 3>; 2],
        cut: Cut,
    ) -> Groups<'k> {
        let table = Table::new(k, &known, cut.described, cut.capacity, cut.rows);
        Groups {
            known,
            maps,
            table,
            cut,
        }
    }

    /// Runs `each` where a tile is some group's: with that group, and where the
    /// tile's rows of A and columns of B are.
    pub(super) fn locate(&self, tile: Tile<'k>, each: impl Fn(Found<'k>, [Side<'k>; 2])) {
        self.locate_at(tile, tile.y, each);
    }

    /// The same for every tile that this one stands for: where the launch has fewer rows of tiles
    /// than the groups, each one is also those as many rows further down, before the `most` that
    /// there can be.
    pub(super) fn each(
        &self,
        tile: Tile<'k>,
        most: Val<'k, u32>,
        each: impl Fn(Found<'k>, [Side<'k>; 2]),
    ) {
        match self.cut.folded {
            false => self.locate(tile, each),
            true => {
                let k = tile.x.kernel();
                let [_, high, _] = tile.grid();
                let end = self.table.high().min(most);
                k.for_step(tile.y, end, high, |y| self.locate_at(tile, y, &each));
            }
        }
    }

    fn locate_at(&self, tile: Tile<'k>, y: Val<'k, u32>, each: impl Fn(Found<'k>, [Side<'k>; 2])) {
        let k = tile.x.kernel();
        let found = self.table.find(y);
        k.if_(found.inside, || {
            let [across, ..] = tile.grid();
            let (found, col) = self.table.down_first(found, [tile.x, y], across);
            let [a, b] = self.maps;
            let left = Side {
                map: a,
                major: Major::Depth,
                number: k.c(0),
                first: self.begin(found.group) + found.row,
                span: self.cut.span,
                apart: None,
                edge: None,
            };
            let right = Side {
                map: b,
                major: self.cut.b_major,
                number: found.group,
                first: col * self.cut.width,
                span: self.cut.span,
                apart: self.cut.gated.then_some(self.known.n),
                edge: None,
            };
            each(found, [left, right]);
        });
    }

    /// Runs a tile that begins at a column; in check mode where it is good.
    pub(super) fn if_good(&self, found: Found<'k>, col: Val<'k, u32>, run: impl Fn()) {
        let k = col.kernel();
        match self.cut.check {
            false => run(),
            true => {
                let member = self.member(found.group);
                k.if_(check::good(&k, &self.known, &found, &member, col), run);
            }
        }
    }

    /// Where a group's rows begin among the rows of all groups.
    pub(super) fn begin(&self, group: Val<'k, u32>) -> Val<'k, u32> {
        self.cut.described.begin(&self.known, group)
    }

    pub(super) fn member(&self, group: Val<'k, u32>) -> Member<'k> {
        self.cut.described.member(&self.known, group)
    }

    /// Where results go from a row and column of a group on.
    pub(super) fn to<O: Stored>(
        &self,
        group: Val<'k, u32>,
        [row, col]: [Val<'k, u32>; 2],
    ) -> To<'k, O> {
        let (k, n) = (group.kernel(), self.known.n);
        let member = self.member(group);
        let first = row.cast::<u64>() * n.cast::<u64>() + col.cast::<u64>();
        let d = self.known.d.cast::<O>().at(member.d + first);
        To {
            d,
            c: Added::new(Spread::Matrix, d),
            bias: d,
            pitch: n,
            rows: Some(left(member.m, row)),
            cols: (!self.cut.even_cols).then(|| n - col),
            alpha: k.c(1.0),
            beta: k.c(0.0),
            scales: None,
            placed: None,
        }
    }
}

/// Why the copy engine can't bring these groups, of elements of these types.
pub(super) fn refusal(problem: &Grouped, types: &[Input]) -> Option<String> {
    if !types.contains(&problem.input) {
        let types: Vec<_> = types.iter().map(|input| input.as_str()).collect();
        let types = types.join(", ");
        return Some(format!("it multiplies {types}, not {}", problem.input));
    }
    let Some(alike) = problem.alike() else {
        return Some("it takes groups that differ in their rows alone".into());
    };
    let b_major = problem.layout.b();
    if problem.input.is_tiny() && b_major != Major::Depth {
        return Some(format!(
            "it multiplies {} stored along the depth, in layout nt, not {}",
            problem.input, problem.layout
        ));
    }
    let pitch = match b_major {
        Major::Depth => alike.k,
        Major::Outer => alike.n,
    };
    let per = 16 / problem.input.bytes();
    let aligned = alike.k.is_multiple_of(per) && pitch.is_multiple_of(per);
    (alike.k == 0 || !aligned).then(|| {
        let which = if alike.k.is_multiple_of(per) { "n" } else { "k" };
        format!(
            "tensor copies need rows that start at multiples of 16 bytes: pad {which} to a multiple of {per}"
        )
    })
}

/// The maps of A and B, in stages of `depth`.
pub(super) fn maps(
    problem: &Grouped,
    [a, b]: [&str; 2],
    alike: Alike<'_>,
    cut: &Cut,
    depth: u32,
) -> [Arg; 2] {
    let Alike { n, k, .. } = alike;
    let rows = Matrices {
        element: tensor_element(problem.input),
        major: Major::Depth,
        outer: alike.total(),
        depth: k,
        pitch: k,
        count: 1,
    };
    let outer = n * (1 + u32::from(cut.gated));
    let columns = Matrices {
        major: cut.b_major,
        outer: outer.into(),
        pitch: match cut.b_major {
            Major::Depth => k,
            Major::Outer => outer,
        },
        count: problem.len() as u32,
        ..rows
    };
    [
        rows.map(a, cut.rows, depth),
        columns.map(b, cut.width, depth),
    ]
}
