//! The gradients of attention.

use super::attention::{Attention, Sequences, pairs, slopes};
use super::error::OpError;
use super::library::{Key, Ops};
use super::memory::Memory;
use super::operand::{Operand, Operands, SLOTS};
use super::plan::Plan;
use heist_kernels::attention::{BACKWARD, Backward, Problem, Sums};
use heist_launch::{ElementType, Role};
use heist_sched::Schedule;

/// What is asked: the gradients of queries, keys and values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AttentionBackward {
    /// The attention that they are gradients of; its sequences are not paged.
    pub attention: Attention,
    /// Whether the same inputs give the same bits in every run. Else the parts of a
    /// query's gradient are added in the order in which they come.
    pub deterministic: bool,
}

/// What the gradients are worked out from, and where they go.
#[derive(Clone, Copy, Debug)]
pub struct AttentionBackwardOperands<'m> {
    /// Queries.
    pub q: Memory<'m>,
    /// Keys.
    pub k: Memory<'m>,
    /// Values.
    pub v: Memory<'m>,
    /// The results of the attention.
    pub out: Memory<'m>,
    /// The gradient of the results, laid out as they are.
    pub d_out: Memory<'m>,
    /// The log-sum-exps that the attention gave.
    pub lse: Memory<'m>,
    /// For packed sequences: the first query row of each, and one past the last.
    pub q_starts: Option<Memory<'m>>,
    /// The same for key rows.
    pub k_starts: Option<Memory<'m>>,
    /// The mask of pairs, where the attention had one.
    pub pairs: Option<Memory<'m>>,
    /// The slopes of ALiBi, where it had them.
    pub slopes: Option<Memory<'m>>,
    /// The gradient of the queries. Rows that are in no sequence are not written, here
    /// and in the two below.
    pub dq: Memory<'m>,
    /// The gradient of the keys.
    pub dk: Memory<'m>,
    /// The gradient of the values.
    pub dv: Memory<'m>,
}

impl Operands for AttentionBackwardOperands<'_> {
    const NAMES: &'static [&'static str] = &[
        "q", "k", "v", "out", "d_out", "lse", "q_starts", "k_starts", "dq", "dk", "dv", "pairs",
        "slopes",
    ];

    fn memory(&self) -> [Option<Memory<'_>>; SLOTS] {
        let mut list = [None; SLOTS];
        let given = [self.q, self.k, self.v, self.out, self.d_out, self.lse];
        list[..6].copy_from_slice(&given.map(Some));
        list[6..8].copy_from_slice(&[self.q_starts, self.k_starts]);
        list[8..11].copy_from_slice(&[self.dq, self.dk, self.dv].map(Some));
        list[11..13].copy_from_slice(&[self.pairs, self.slopes]);
        list
    }
}

impl Ops {
    /// Plans the gradients of attention; without a schedule, by the one that suits them.
    ///
    /// # Errors
    /// Why no kernel does it on this device.
    pub fn attention_backward(
        &self,
        problem: &AttentionBackward,
        schedule: Option<&Schedule>,
    ) -> Result<Plan<AttentionBackwardOperands<'static>>, OpError> {
        let mut numbers = problem.attention.numbers();
        numbers.push(problem.deterministic.into());
        let key = Key::new(BACKWARD.name, numbers, schedule);
        self.plan(key, || {
            let asked = Backward {
                attention: problem.attention.problem()?,
                sums: match problem.deterministic {
                    true => Sums::Fixed,
                    false => Sums::Float,
                },
            };
            asked.check()?;
            let variant = BACKWARD.choose(None, &asked, self.target())?;
            let plan = variant.plan(&asked, schedule, self.target())?;
            self.planned(plan, operands(&problem.attention, &asked.attention))
        })
    }
}

fn operands(problem: &Attention, asked: &Problem) -> Vec<Operand> {
    let (q, kv) = asked.elements();
    let (q, kv) = (q as u64, kv as u64);
    let [own, keys, values] = asked.spans().map(|span| span as u64);
    let lse = asked.rows().0 as u64 * u64::from(asked.heads);
    let starts = match problem.sequences {
        Sequences::Same { .. } => 0,
        Sequences::Packed { batch, .. } | Sequences::Paged { batch, .. } => u64::from(batch) + 1,
    };
    let halves = asked.dtype.element();
    let (u32s, f32s) = (ElementType::U32, ElementType::F32);
    let read = |name, count| Operand::tensor(name, Role::In, halves, count, false);
    // Rows that are in no sequence keep their contents.
    let role = if starts == 0 { Role::Out } else { Role::InOut };
    let written = |name, count| Operand::tensor(name, role, halves, count, false);
    let first_rows = |name| Operand::tensor(name, Role::In, u32s, starts, starts == 0).list();
    vec![
        read("q", own),
        read("k", keys),
        read("v", values),
        read("out", q),
        read("d_out", q),
        Operand::tensor("lse", Role::In, f32s, lse, false).list(),
        first_rows("q_starts"),
        first_rows("k_starts"),
        written("dq", q),
        written("dk", kv),
        written("dv", kv),
        pairs(problem, asked),
        slopes(problem),
    ]
}
