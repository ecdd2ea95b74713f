//! Launches before the multiplication that write operands of words anew, along the depth.
//!
//! Warpgroups read words from shared memory along the depth alone. One operand that is stored across it goes through
//! registers ([`WordsAcross`](heist_builder::WordsAcross)): the one with the tile's rows. Where the one with the tile's columns is stored
//! across the depth, this writes it along the depth into memory of the plan's own first; so it does with operands whose rows do not start at multiples of 16 bytes,
//! as tensor copies want them.

use super::problem::{Gemm, Input, Layout, Major};
use crate::error::KernelError;
use crate::family::Target;
use crate::job::{Step, buffer};
use crate::overlap::overlap;
use crate::plan::{LaunchPlan, Purpose};
use heist_builder::{BuiltKernel, Global, KernelSpec, kernel_params};
use heist_launch::{Dim3, ElementType};

kernel_params! {
    /// The kernel's parameters.
    pub(crate) struct TurnArgs {
        /// The operand.
        from: Global<u32>,
        /// The same with a row for each row of A, or column of B.
        to: Global<u32>,
        /// Rows of A, or columns of B.
        outer: u32,
        /// The depth.
        depth: u32,
        /// Elements from row to row of what is read.
        pitch: u32,
        /// Of what is written.
        written: u32,
    }
}

/// Rows and columns that a block writes.
const SIDE: u32 = 32;
/// Rows that it reads at a time.
const ROWS: u32 = 8;

/// An operand that is written anew before the multiplication.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Anew {
    /// Its name, and that of the buffer that it is written to.
    names: [&'static str; 2],
    /// Whether it is stored across the depth.
    across: bool,
    /// Rows of A, or columns of B.
    outer: u32,
    /// Elements from one stored row to the next.
    pitch: u32,
}

/// What is written anew, and the problem as it is multiplied then.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Turned {
    operands: [Option<Anew>; 2],
    pub(crate) problem: Gemm,
}

/// Such a depth.
const SHALLOW: u32 = 96;

/// Words that tensor copies want the pitch of rows to be a multiple of.
const ALIGNED: u32 = 4;

impl Turned {
    /// The operands that such tiles can't read as they are stored, if there are any: the one with the tile's columns across the depth, and
    /// those whose rows do not start at multiples of 16 bytes.
    pub(crate) fn of(problem: &Gemm, swapped: bool) -> Option<Turned> {
        if problem.input != Input::Tf32 {
            return None;
        }
        let Gemm { layout, k, .. } = *problem;
        let anew = |names, major, outer, pitch: u32, beside: bool| {
            let across = major == Major::Outer;
            let unread = beside && across || !pitch.is_multiple_of(ALIGNED);
            unread.then_some(Anew {
                names,
                across,
                outer,
                pitch,
            })
        };
        let a = anew(
            ["a", "a_turned"],
            layout.a(),
            problem.m,
            problem.lda,
            swapped,
        );
        let b = anew(
            ["b", "b_turned"],
            layout.b(),
            problem.n,
            problem.ldb,
            !swapped,
        );
        if a.is_none() && b.is_none() {
            return None;
        }
        let major = |anew: Option<Anew>, given| anew.map_or(given, |_| Major::Depth);
        let pitch = |anew: Option<Anew>, given| anew.map_or(given, |_| k.next_multiple_of(ALIGNED));
        Some(Turned {
            operands: [a, b],
            problem: Gemm {
                layout: match (major(a, layout.a()), major(b, layout.b())) {
                    (Major::Depth, Major::Depth) => Layout::Nt,
                    (Major::Depth, Major::Outer) => Layout::Nn,
                    (Major::Outer, Major::Depth) => Layout::Tt,
                    (Major::Outer, Major::Outer) => Layout::Tn,
                },
                lda: pitch(a, problem.lda),
                ldb: pitch(b, problem.ldb),
                ..*problem
            },
        })
    }

    /// Whether it costs more to write operands anew, since their rows start anywhere, than `mma.sync` takes to copy them as they are: that one waits for each step of
    /// the depth. 98 x 3672 x 72 took 4.2 us so on an H200, and 301 x 120 x 160 16 us.
    pub(crate) fn costs_more(problem: &Gemm) -> bool {
        let anywhere = [problem.lda, problem.ldb]
            .iter()
            .any(|pitch| !pitch.is_multiple_of(ALIGNED));
        problem.input == Input::Tf32 && problem.batch == 1 && anywhere && problem.k <= SHALLOW
    }

    /// The names of A and B as they are multiplied.
    pub(crate) fn names(&self) -> [&'static str; 2] {
        let [a, b] = self.operands;
        [a.map_or("a", |a| a.names[1]), b.map_or("b", |b| b.names[1])]
    }

    /// How many launches write them.
    pub(crate) fn launches(&self) -> usize {
        self.operands.iter().flatten().count()
    }

    /// Bytes that are read, and as many written.
    pub(crate) fn bytes(&self) -> f64 {
        let Gemm { k, batch, .. } = self.problem;
        let outer: f64 = self
            .operands
            .iter()
            .flatten()
            .map(|one| f64::from(one.outer))
            .sum();
        outer * f64::from(k) * f64::from(batch) * 4.0
    }

    /// The plan with these launches and their buffers.
    ///
    /// # Errors
    /// What could not be built.
    pub(crate) fn before(
        &self,
        plan: LaunchPlan,
        target: Target,
    ) -> Result<LaunchPlan, KernelError> {
        let all = self.operands.into_iter().flatten();
        all.into_iter()
            .try_fold(plan, |plan, one| self.write(plan, &one, target))
    }

    fn write(
        &self,
        plan: LaunchPlan,
        one: &Anew,
        target: Target,
    ) -> Result<LaunchPlan, KernelError> {
        let Gemm { k, batch, .. } = self.problem;
        let &Anew {
            names: [from, to],
            outer,
            pitch,
            ..
        } = one;
        let written = k.next_multiple_of(ALIGNED);
        let squares = outer.div_ceil(SIDE).checked_mul(k.div_ceil(SIDE));
        // The last axis of a grid has 65,535 blocks at most.
        let Some(squares) = squares.filter(|_| batch <= 65535) else {
            return Err(KernelError::unfit(format!(
                "{}: {from} has too many elements to be written along the depth first",
                self.problem
            )));
        };
        let args = TurnArgs {
            from: buffer(from),
            to: buffer(to),
            outer,
            depth: k,
            pitch,
            written,
        };
        let kernel = build(one.across, target)?;
        let grid = Dim3::new(squares, 1, batch);
        let words = outer as usize * written as usize * batch as usize;
        Ok(plan
            .buffer(to, Purpose::Workspace, ElementType::F32, words)
            .step(Step::plain(&kernel, grid, args)))
    }
}

/// Each block writes a square, of an operand that is stored `across` the depth turned: rows are read and written whole.
fn build(across: bool, target: Target) -> Result<BuiltKernel<TurnArgs>, KernelError> {
    let kernel = KernelSpec::<TurnArgs>::new("gemm_turn")
        .block(SIDE * ROWS)
        .build(target.arch, |k, args| {
            // Columns of the square lie in different banks.
            let square = k.shared::<u32>("square", SIDE * (SIDE + 1));
            let (x, y) = (k.thread_index() % SIDE, k.thread_index() / SIDE);
            let wide = (args.outer + (SIDE - 1)) / SIDE;
            let [outer0, depth0] =
                [k.block().x % wide, k.block().x / wide].map(|square| square * SIDE);
            let number = k.block().z;
            overlap(k);
            let rows = if across { args.depth } else { args.outer };
            let read = args
                .from
                .at(number.mul_wide(rows) * args.pitch.cast::<u64>());
            let write = args
                .to
                .at(number.mul_wide(args.outer) * args.written.cast::<u64>());
            let found: Vec<_> = (0..SIDE / ROWS)
                .map(|part| {
                    let down = y + part * ROWS;
                    let (outer, depth) = match across {
                        true => (outer0 + x, depth0 + down),
                        false => (outer0 + down, depth0 + x),
                    };
                    let inside = outer.lt(args.outer) & depth.lt(args.depth);
                    let at = match across {
                        true => depth.mul_wide(args.pitch) + outer.cast::<u64>(),
                        false => outer.mul_wide(args.pitch) + depth.cast::<u64>(),
                    };
                    let word = k.if_value(inside, || read.at(at).load(), || k.c(0u32));
                    (
                        inside,
                        outer.mul_wide(args.written) + depth.cast::<u64>(),
                        word,
                    )
                })
                .collect();
            if !across {
                for (inside, at, word) in found {
                    k.if_(inside, || write.at(at).store(word));
                }
                return;
            }
            for (part, (_, _, word)) in (0..).zip(found) {
                square.at((y + part * ROWS) * (SIDE + 1) + x).store(word);
            }
            k.sync();
            for part in 0..SIDE / ROWS {
                let own = y + part * ROWS;
                let (outer, depth) = (outer0 + own, depth0 + x);
                k.if_(outer.lt(args.outer) & depth.lt(args.depth), || {
                    let word = square.at(x * (SIDE + 1) + own).load();
                    let at = outer.mul_wide(args.written) + depth.cast::<u64>();
                    write.at(at).store(word);
                });
            }
        })?;
    Ok(kernel)
}

/// Whether the operand with a tile's rows goes through registers.
pub(crate) fn through_registers(problem: &Gemm, swapped: bool) -> bool {
    problem.input == Input::Tf32 && majors(problem, swapped)[0] == Major::Outer
}

/// How the operand with a tile's rows and the one with its columns are stored where tiles read them.
pub(crate) fn majors(problem: &Gemm, swapped: bool) -> [Major; 2] {
    let read = Turned::of(problem, swapped);
    let layout = read.map_or(problem.layout, |turned| turned.problem.layout);
    match swapped {
        false => [layout.a(), layout.b()],
        true => [layout.b(), layout.a()],
    }
}
