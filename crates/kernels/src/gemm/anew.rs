//! Operands that tensor cores can't read as they are stored: a launch before the multiplication writes them anew.
//!
//! Tensor copies want rows that start at multiples of 16 bytes. An operand whose rows start elsewhere is copied to memory of the plan's own, with rows that
//! start where they should; the extents that the tensor maps name stay what they are, so what lies between rows is not written.
//!
//! Of words (tf32) tensor cores read shared memory along the depth alone. On warpgroups one operand that is stored across it goes through
//! registers ([`WordsAcross`](heist_builder::WordsAcross)): the one with the tile's rows. The one with the tile's columns is turned: written along the depth.

mod kernel;

use super::problem::{Gemm, Input, Layout, Major};
use super::small;
use crate::error::KernelError;
use crate::family::Target;
use crate::plan::{LaunchPlan, Purpose};
use kernel::{Rewrite, Way};

/// Bytes that tensor copies want the start of each row to be a multiple of.
const ALIGNED: u32 = 16;

/// Bytes of a line. Rows that start with one are read fastest.
const LINE: u32 = 128;

/// From so many lines on a row begins with one: shorter ones would lie too far apart.
const LONG: u32 = 2;

/// An operand that is written anew before the multiplication.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Rewritten {
    /// Its name, and that of the buffer that it is written to.
    names: [&'static str; 2],
    /// Whether it is stored across the depth and written along it.
    turned: bool,
    /// Rows that are read, of one product.
    rows: u32,
    /// Elements of such a row.
    row: u32,
    /// Elements from one to the next.
    pitch: u32,
    /// Elements from one row that is written to the next.
    written: u32,
    /// Whether it begins at any element.
    anywhere: bool,
}

impl Rewritten {
    /// Rows that are written, of one product.
    fn rows_written(&self) -> u32 {
        if self.turned { self.row } else { self.rows }
    }
}

/// What is written anew, and the problem as it is multiplied then.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Anew {
    operands: [Option<Rewritten>; 2],
    pub(crate) problem: Gemm,
}

/// Elements from row to row of so many, as they are written.
fn pitch_of(row: u32, bytes: u32) -> u32 {
    let long = row >= LONG * LINE / bytes;
    let start = if long { LINE } else { ALIGNED };
    // What is no row at all is refused later.
    row.checked_next_multiple_of(start / bytes).unwrap_or(row)
}

impl Anew {
    /// The operands that warpgroups can't read as they are stored, if there are any, in such tiles.
    pub(crate) fn of(problem: &Gemm, swapped: bool) -> Option<Anew> {
        Anew::along(problem, [swapped, !swapped])
    }

    /// The same where words of A, and of B, have to lie along the depth.
    pub(crate) fn along(problem: &Gemm, deep: [bool; 2]) -> Option<Anew> {
        let Gemm { layout, k, .. } = *problem;
        let bytes = problem.input.bytes();
        // 8-bit floats are multiplied as they are stored or not at all.
        if problem.input.is_tiny() || k == 0 {
            return None;
        }
        let words = problem.input == Input::Tf32;
        let sides = [
            ("a", "a_anew", layout.a(), problem.m, problem.lda),
            ("b", "b_anew", layout.b(), problem.n, problem.ldb),
        ];
        let mut operands = [None; 2];
        for (at, (name, written, major, outer, pitch)) in sides.into_iter().enumerate() {
            let across = major == Major::Outer;
            let anywhere = problem.anywhere[at];
            let astray = anywhere || !pitch.is_multiple_of(ALIGNED / bytes);
            // Words that are written anew are turned by the way.
            let turned = words && across && (deep[at] || astray);
            let (rows, row) = if across { (k, outer) } else { (outer, k) };
            operands[at] = (turned || astray).then_some(Rewritten {
                names: [name, written],
                turned,
                rows,
                row,
                pitch,
                written: pitch_of(if turned { k } else { row }, bytes),
                anywhere,
            });
        }
        let [a, b] = operands;
        if a.is_none() && b.is_none() {
            return None;
        }
        let major = |one: Option<Rewritten>, given| match one {
            Some(Rewritten { turned: true, .. }) => Major::Depth,
            _ => given,
        };
        let pitch = |one: Option<Rewritten>, given| one.map_or(given, |one| one.written);
        Some(Anew {
            operands,
            problem: Gemm {
                layout: match (major(a, layout.a()), major(b, layout.b())) {
                    (Major::Depth, Major::Depth) => Layout::Nt,
                    (Major::Depth, Major::Outer) => Layout::Nn,
                    (Major::Outer, Major::Depth) => Layout::Tt,
                    (Major::Outer, Major::Outer) => Layout::Tn,
                },
                lda: pitch(a, problem.lda),
                ldb: pitch(b, problem.ldb),
                anywhere: [false; 2],
                ..*problem
            },
        })
    }

    /// The names of A and B as they are multiplied.
    pub(crate) fn names(&self) -> [&'static str; 2] {
        let [a, b] = self.operands;
        [a.map_or("a", |a| a.names[1]), b.map_or("b", |b| b.names[1])]
    }

    /// Bytes that are read, and as many written.
    pub(crate) fn bytes(&self) -> f64 {
        let elements = |one: &Rewritten| f64::from(one.rows) * f64::from(one.row);
        let all: f64 = self.operands.iter().flatten().map(elements).sum();
        all * f64::from(self.problem.batch) * f64::from(self.problem.input.bytes())
    }

    /// The plan with the launch that writes them, and their buffers.
    ///
    /// # Errors
    /// What could not be built, or is too large.
    pub(crate) fn before(
        &self,
        mut plan: LaunchPlan,
        target: Target,
    ) -> Result<LaunchPlan, KernelError> {
        let Gemm { batch, input, .. } = self.problem;
        let element = input.element();
        let mut all = Vec::new();
        for one in self.operands.iter().flatten() {
            let rewrite = self.rewrite(one).ok_or_else(|| {
                KernelError::unfit(format!(
                    "{}: {} has too many elements to be written anew first",
                    self.problem, one.names[0]
                ))
            })?;
            let count = one.rows_written() as usize * one.written as usize * batch as usize;
            plan = plan.buffer(one.names[1], Purpose::Workspace, element, count);
            all.push(rewrite);
        }
        Ok(plan.step(kernel::step(&all, target)?))
    }

    /// What blocks have to do for an operand; `None` where that is too much to be counted in 32 bits.
    fn rewrite(&self, one: &Rewritten) -> Option<Rewrite> {
        let Gemm { batch, input, .. } = self.problem;
        let bytes = input.bytes();
        let halves = bytes == 2;
        // Two halves are a word where both always are inside and words start where they should.
        let pairs = one.row.is_multiple_of(2) && one.pitch.is_multiple_of(2) && !one.anywhere;
        let way = match one.turned {
            true => Way::Turn,
            false if halves && !pairs => Way::Halves,
            false => Way::Words,
        };
        let rewrite = match way {
            Way::Turn => Rewrite::turn(one.names, [one.rows, one.row], batch),
            // Matrices of a batch follow each other: all their rows are one matrix.
            Way::Halves | Way::Words => Rewrite::copy(
                way,
                one.names,
                one.rows.checked_mul(batch)?,
                one.row * bytes,
            ),
        };
        let per = if way == Way::Words && halves { 2 } else { 1 };
        rewrite.map(|rewrite| rewrite.pitches([one.pitch / per, one.written * bytes / 4]))
    }
}

/// Whether the operand with a tile's rows goes through registers.
pub(crate) fn through_registers(problem: &Gemm, swapped: bool) -> bool {
    problem.input == Input::Tf32 && majors(problem, swapped)[0] == Major::Outer
}

/// How the operand with a tile's rows and the one with its columns are stored where tiles read them.
pub(crate) fn majors(problem: &Gemm, swapped: bool) -> [Major; 2] {
    let read = Anew::of(problem, swapped);
    let layout = read.map_or(problem.layout, |anew| anew.problem.layout);
    match swapped {
        false => [layout.a(), layout.b()],
        true => [layout.b(), layout.a()],
    }
}

/// Microseconds of two launches, a small one before, as far as the next one does not hide it.
const TWO: f64 = 3.0;
/// Megabytes that it reads or writes in a microsecond.
const MOVED: f64 = 2.5;

/// Whether it costs more to write operands anew, since their rows start anywhere, than `mma.sync` takes in all, which reads them as they are: where they have little
/// depth.
pub(crate) fn costs_more(problem: &Gemm, target: Target) -> bool {
    let Some(anew) = Anew::along(problem, [false; 2]) else {
        return false;
    };
    let two = TWO + 2.0 * anew.bytes() / 1e6 / MOVED;
    small::modelled(problem, target) <= two
}
