//! Groups that differ in their rows alone, as the copy engine knows them.
//!
//! All rows are one matrix A, in which a group is a row to begin at, and there are as many matrices B
//! as groups. A tile may also load rows of the next group; they are not stored.

use super::check;
use super::kernel::GroupedArgs;
use super::problem::{Grouped, Shapes};
use super::table::{Described, Found, Member, Table};
use crate::gemm::warpgroup::{Matrices, Side};
use crate::gemm::{Input, Major, Stored, To, left, tensor_element};
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
            capacity: (problem.len() as u32).next_power_of_two().max(32),
            gated,
            check: problem.check,
            even_cols: n.is_multiple_of(width),
        }
    }
}

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
        let table = Table::new(k, &known, Described::Rows, cut.capacity, cut.rows);
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
        let k = tile.x.kernel();
        let found = self.table.find(tile.y);
        k.if_(found.inside, || {
            let [across, ..] = tile.grid();
            let (found, col) = self.table.down_first(found, [tile.x, tile.y], across);
            let [a, b] = self.maps;
            let left = Side {
                map: a,
                major: Major::Depth,
                number: k.c(0),
                first: self.begin(found.group) + found.row,
                span: 64,
                apart: None,
            };
            let right = Side {
                map: b,
                major: self.cut.b_major,
                number: found.group,
                first: col * self.cut.width,
                span: 64,
                apart: self.cut.gated.then_some(self.known.n),
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
        Described::Rows.begin(&self.known, group)
    }

    pub(super) fn member(&self, group: Val<'k, u32>) -> Member<'k> {
        Described::Rows.member(&self.known, group)
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
            c: d,
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

/// Why the copy engine can't bring these groups.
pub(super) fn refusal(problem: &Grouped) -> Option<String> {
    if !matches!(problem.input, Input::F16 | Input::Bf16) {
        return Some(format!("it multiplies f16 and bf16, not {}", problem.input));
    }
    let Shapes::Rows { n, k, .. } = &problem.shapes else {
        return Some("it takes groups that differ in their rows alone".into());
    };
    let pitch = match problem.layout.b() {
        Major::Depth => *k,
        Major::Outer => *n,
    };
    let aligned = k.is_multiple_of(8) && pitch.is_multiple_of(8);
    (*k == 0 || !aligned)
        .then(|| "tensor copies need rows that start at multiples of 16 bytes".into())
}

/// The maps of A and B, in stages of `depth`.
pub(super) fn maps(
    problem: &Grouped,
    [a, b]: [&str; 2],
    [n, k]: [u32; 2],
    cut: &Cut,
    depth: u32,
) -> [Arg; 2] {
    let rows = Matrices {
        element: tensor_element(problem.input),
        major: Major::Depth,
        outer: total_rows(problem),
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

/// The rows of all groups.
pub(super) fn total_rows(problem: &Grouped) -> u64 {
    problem
        .groups()
        .iter()
        .map(|group| u64::from(group.m))
        .sum()
}
