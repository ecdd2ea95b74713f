//! Grouped GEMM: many multiplications at once, whose rows are assigned to groups on the device.

use super::error::OpError;
use super::library::{Key, Ops};
use super::memory::Memory;
use super::operand::{Operand, Operands, SLOTS};
use super::plan::Plan;
use heist_kernels::gemm::{Input, Layout, Output, Scales, Summing};
use heist_kernels::grouped::{FAMILY, Grouped};
use heist_kernels::{KernelError, Tuned};
use heist_launch::{ElementType, Role};
use heist_sched::Schedule;

/// `D[rows of g] = A[rows of g] * B[g]` for every group g. The rows of a group
/// follow those of the group before, and where each group ends is read on the device; or every
/// group has room for as many rows, and how many it uses is read (*masked*).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GroupedGemm {
    /// How many groups there are.
    pub groups: u32,
    /// Rows of A and D in all.
    pub rows: u32,
    /// Columns of every group.
    pub n: u32,
    /// Depth of every group.
    pub k: u32,
    /// The type of A and B.
    pub input: Input,
    /// The type of D.
    pub output: Output,
    /// `nt` (each B is n x k) or `nn` (k x n).
    pub layout: Layout,
    /// Where groups are masked, each with an equal part of the rows: how many of them it is
    /// expected to use. Tiles are chosen for that; any number is right.
    pub masked: Option<u32>,
    /// What A and B are multiplied by, of 8-bit floats ([`Grouped::scales`]).
    pub scales: Scales,
    /// How products of 8-bit floats are added.
    pub sums: Summing,
}

/// The operands of a grouped multiplication.
#[derive(Clone, Copy, Debug)]
pub struct GroupedOperands<'m> {
    /// The left matrices, one after the other: rows x k.
    pub a: Memory<'m>,
    /// The right ones.
    pub b: Memory<'m>,
    /// The results: rows x n.
    pub d: Memory<'m>,
    /// Where each group's rows end, as 32-bit numbers that do not fall; of masked groups, how many
    /// rows each uses.
    pub ends: Memory<'m>,
    /// The factors of A and of the matrices B in f32, where the problem has some.
    pub scales: Option<[Memory<'m>; 2]>,
}

impl Operands for GroupedOperands<'_> {
    const NAMES: &'static [&'static str] = &["a", "b", "d", "shapes", "scale_a", "scale_b"];

    fn memory(&self) -> [Option<Memory<'_>>; SLOTS] {
        let mut list = [None; SLOTS];
        list[..4].copy_from_slice(&[self.a, self.b, self.d, self.ends].map(Some));
        if let Some(scales) = self.scales {
            list[4..6].copy_from_slice(&scales.map(Some));
        }
        list
    }
}

impl GroupedGemm {
    /// As the kernels take it. They depend on the number of rows and of groups; which rows belong
    /// to which group is read on the device, so any distribution is right here.
    ///
    /// # Errors
    /// When masked groups do not have as many rows each.
    fn problem(&self) -> Result<Grouped, KernelError> {
        let groups = self.groups.max(1);
        let (each, more) = (self.rows / groups, self.rows % groups);
        let mut problem = match self.masked {
            None => {
                let rows = (0..self.groups)
                    .map(|group| each + u32::from(group < more))
                    .collect();
                Grouped::rows(rows, self.n, self.k, self.input, self.output)
            }
            Some(_) if more > 0 => {
                return Err(KernelError::unfit(format!(
                    "{} rows are no room of as many for each of {groups} masked groups: pad them",
                    self.rows
                )));
            }
            Some(expected) => {
                let counts = vec![expected.min(each); self.groups as usize];
                Grouped::masked(counts, each, [self.n, self.k], self.input, self.output)
            }
        };
        problem.layout = self.layout;
        problem.scales = self.scales;
        problem.sums = self.sums;
        Ok(problem)
    }
}

impl Ops {
    /// Plans a grouped multiplication; without a schedule, by the one that suits it.
    ///
    /// # Errors
    /// Why no kernel does it on this device.
    pub fn grouped_gemm(
        &self,
        problem: &GroupedGemm,
        schedule: Option<&Schedule>,
    ) -> Result<Plan<GroupedOperands<'static>>, OpError> {
        let GroupedGemm {
            groups, rows, n, k, ..
        } = *problem;
        let mut numbers: Vec<u64> = [groups, rows, n, k].map(u64::from).to_vec();
        numbers.extend([
            problem.input as u64,
            problem.output as u64,
            problem.layout as u64,
            // No number of rows is as large.
            problem.masked.map_or(u64::MAX, u64::from),
            problem.scales as u64,
            problem.sums as u64,
        ]);
        let key = Key::new(FAMILY.name, numbers, schedule);
        self.plan(key, || {
            let grouped = problem.problem()?;
            grouped.check_shapes()?;
            let (input, output) = (problem.input.element(), problem.output.element());
            let [g, m, n, k] = [groups, rows, n, k].map(u64::from);
            let mut operands = vec![
                Operand::tensor("a", Role::In, input, m * k, false),
                Operand::tensor("b", Role::In, input, g * n * k, false),
                // Rows after the last group's end keep their contents.
                Operand::tensor("d", Role::InOut, output, m * n, false),
                Operand::tensor("shapes", Role::In, ElementType::U32, g, false).list(),
            ];
            for (name, count) in ["scale_a", "scale_b"]
                .into_iter()
                .zip(grouped.scale_counts())
            {
                let count = count as u64;
                let factors = Operand::tensor(name, Role::In, ElementType::F32, count, count == 0);
                operands.push(match grouped.scales {
                    // The copy engine brings those.
                    Scales::Blocks => factors,
                    _ => factors.list(),
                });
            }
            // Read only in other forms of the problem.
            for name in ["places", "record"] {
                operands.push(Operand::tensor(name, Role::In, ElementType::U32, 0, true));
            }
            let target = self.target();
            self.tuned(&grouped, schedule, operands, |answer| match answer {
                Some(answer) => grouped.tuned(answer, target),
                None => FAMILY
                    .choose(None, &grouped, target)?
                    .plan(&grouped, schedule, target),
            })
        })
    }
}
