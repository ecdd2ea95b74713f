//! A layer of experts: tokens that were routed on the device go through gated MLPs.

use super::error::OpError;
use super::library::{Key, Ops};
use super::memory::Memory;
use super::operand::{Operand, Operands, SLOTS};
use super::plan::Plan;
use heist_kernels::gemm::Input;
use heist_kernels::grouped::experts::{Experts, FAMILY};
use heist_launch::{ElementType, Role};
use heist_sched::Schedule;

/// `D[t] = sum over the experts e of token t: weight * (silu(X[t] * gate_e) * (X[t] * up_e)) * down_e`.
///
/// The slots of a token follow each other: token `t` has slots `t * per` to `t * per + per - 1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ExpertLayer {
    /// How many experts there are.
    pub experts: u32,
    /// Tokens.
    pub tokens: u32,
    /// Experts of each token.
    pub per: u32,
    /// Elements of a token.
    pub hidden: u32,
    /// Elements between the two products.
    pub inner: u32,
    /// The type of tokens, experts and results: f16 or bf16.
    pub dtype: Input,
}

/// The operands of a layer of experts.
#[derive(Clone, Copy, Debug)]
pub struct ExpertOperands<'m> {
    /// The tokens: tokens x hidden.
    pub x: Memory<'m>,
    /// Of each expert, 2 * inner rows of hidden elements: the gate's, then those that it gates.
    pub up: Memory<'m>,
    /// Of each expert, hidden rows of inner elements.
    pub down: Memory<'m>,
    /// The weight of each slot, f32.
    pub weights: Memory<'m>,
    /// Every slot once, sorted by its expert, as 32-bit numbers. Their values are trusted.
    pub order: Memory<'m>,
    /// Where each expert's part of the order ends, as 32-bit numbers that do not fall; the last one
    /// is the number of slots.
    pub ends: Memory<'m>,
    /// The results: tokens x hidden.
    pub d: Memory<'m>,
}

impl Operands for ExpertOperands<'_> {
    const NAMES: &'static [&'static str] = &["x", "up", "down", "weights", "order", "shapes", "d"];

    fn memory(&self) -> [Option<Memory<'_>>; SLOTS] {
        let mut list = [None; SLOTS];
        let given = [
            self.x,
            self.up,
            self.down,
            self.weights,
            self.order,
            self.ends,
            self.d,
        ];
        list[..given.len()].copy_from_slice(&given.map(Some));
        list
    }
}

impl ExpertLayer {
    /// As the kernels take it. Which slots belong to which expert is read on the device, so any
    /// distribution is right here.
    fn problem(&self) -> Result<Experts, OpError> {
        let slots = u64::from(self.tokens) * u64::from(self.per);
        let experts = u64::from(self.experts.max(1));
        let rows = (0..u64::from(self.experts))
            .map(|expert| {
                let more = expert < slots % experts;
                u32::try_from(slots / experts + u64::from(more)).unwrap_or(u32::MAX)
            })
            .collect();
        let problem = Experts {
            rows,
            per: self.per,
            hidden: self.hidden,
            inner: self.inner,
            dtype: self.dtype,
        };
        problem.check()?;
        Ok(problem)
    }
}

impl Ops {
    /// Plans a layer of experts; without a schedule, by the one that suits it. It is three launches,
    /// or two where a token has one expert.
    ///
    /// # Errors
    /// Why no kernel does it on this device.
    pub fn expert_layer(
        &self,
        layer: &ExpertLayer,
        schedule: Option<&Schedule>,
    ) -> Result<Plan<ExpertOperands<'static>>, OpError> {
        let ExpertLayer {
            experts,
            tokens,
            per,
            hidden,
            inner,
            dtype,
        } = *layer;
        let mut numbers = [experts, tokens, per, hidden, inner]
            .map(u64::from)
            .to_vec();
        numbers.push(dtype as u64);
        let key = Key::new(FAMILY.name, numbers, schedule);
        self.plan(key, || {
            let problem = layer.problem()?;
            let variant = FAMILY.choose(None, &problem, self.target())?;
            let plan = variant.plan(&problem, schedule, self.target())?;
            let ty = dtype.element();
            let [e, t, p, h, i] = [experts, tokens, per, hidden, inner].map(u64::from);
            let operands = vec![
                Operand::tensor("x", Role::In, ty, t * h, false),
                Operand::tensor("up", Role::In, ty, e * 2 * i * h, false),
                Operand::tensor("down", Role::In, ty, e * h * i, false),
                Operand::tensor("weights", Role::In, ElementType::F32, t * p, false).list(),
                Operand::tensor("order", Role::In, ElementType::U32, t * p, false).list(),
                Operand::tensor("shapes", Role::In, ElementType::U32, e, false).list(),
                Operand::tensor("d", Role::Out, ty, t * h, false),
            ];
            self.planned(plan, operands)
        })
    }
}
