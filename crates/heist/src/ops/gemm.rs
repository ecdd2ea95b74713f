//! `D = activation(alpha * A * B + beta * C + bias)`.

use super::error::OpError;
use super::library::{Key, Ops};
use super::memory::Memory;
use super::operand::{Operand, Operands, SLOTS};
use super::plan::Plan;
use heist_kernels::Tuned;
use heist_kernels::gemm::{FAMILY, Gemm, Major, Scales, Spread};
use heist_launch::Role;
use heist_sched::Schedule;

/// The operands of a multiplication.
#[derive(Clone, Copy, Debug)]
pub struct GemmOperands<'m> {
    /// The left matrix.
    pub a: Memory<'m>,
    /// The right one.
    pub b: Memory<'m>,
    /// What is added, where `beta` is not zero.
    pub c: Option<Memory<'m>>,
    /// The result. It may be the memory of `c`.
    pub d: Memory<'m>,
    /// A vector that is added to every row, where the epilogue has one.
    pub bias: Option<Memory<'m>>,
    /// The factors of A and of B in f32, where the problem has some
    /// ([`Scales`](heist_kernels::gemm::Scales)).
    pub scales: Option<[Memory<'m>; 2]>,
}

impl Operands for GemmOperands<'_> {
    const NAMES: &'static [&'static str] = &["a", "b", "c", "d", "bias", "scale_a", "scale_b"];

    fn memory(&self) -> [Option<Memory<'_>>; SLOTS] {
        let mut list = [None; SLOTS];
        list[..5].copy_from_slice(&[Some(self.a), Some(self.b), self.c, Some(self.d), self.bias]);
        if let Some(scales) = self.scales {
            list[5..7].copy_from_slice(&scales.map(Some));
        }
        list
    }
}

impl Ops {
    /// Plans a multiplication; without a schedule, by the one that suits it.
    ///
    /// # Errors
    /// Why no kernel does it on this device.
    pub fn gemm(
        &self,
        problem: &Gemm,
        schedule: Option<&Schedule>,
    ) -> Result<Plan<GemmOperands<'static>>, OpError> {
        let key = Key::new(FAMILY.name, numbers(problem), schedule);
        self.plan(key, || {
            problem.check()?;
            let target = self.target();
            self.tuned(
                problem,
                schedule,
                operands(problem),
                |answer| match answer {
                    Some(answer) => problem.tuned(answer, target),
                    None => FAMILY
                        .choose(None, problem, target)?
                        .plan(problem, schedule, target),
                },
            )
        })
    }
}

fn numbers(problem: &Gemm) -> Vec<u64> {
    let Gemm {
        m,
        n,
        k,
        batch,
        input,
        output,
        layout,
        scales,
        sums,
        epilogue,
        lda,
        ldb,
        ldc,
        anywhere,
    } = *problem;
    let bits = |value: f32| u64::from(value.to_bits());
    let mut numbers: Vec<u64> = [m, n, k, batch, lda, ldb, ldc].map(u64::from).to_vec();
    numbers.extend([
        input as u64,
        output as u64,
        layout as u64,
        scales as u64,
        sums as u64,
        epilogue.spread as u64,
        epilogue.activation as u64,
        u64::from(epilogue.bias),
        bits(epilogue.alpha),
        bits(epilogue.beta),
    ]);
    numbers.extend(anywhere.map(u64::from));
    numbers
}

fn operands(problem: &Gemm) -> Vec<Operand> {
    let (input, output) = (problem.input.element(), problem.output.element());
    // The last row ends with its last element, not with its pitch.
    let span = |rows: u32, pitch: u32, cols: u32| match rows {
        0 => 0,
        _ => u64::from(rows - 1) * u64::from(pitch) + u64::from(cols),
    };
    let across = |major, outer| match major {
        Major::Depth => problem.k,
        Major::Outer => outer,
    };
    let (m, n) = (problem.m, problem.n);
    // All matrices of a batch but the last include the gap after their last row.
    let span = |rows: u32, pitch: u32, cols: u32| {
        u64::from(problem.batch - 1) * u64::from(rows) * u64::from(pitch) + span(rows, pitch, cols)
    };
    let a = span(
        problem.rows_of_a(),
        problem.lda,
        across(problem.layout.a(), m),
    );
    let b = span(
        problem.rows_of_b(),
        problem.ldb,
        across(problem.layout.b(), n),
    );
    let d = span(m, problem.ldc, n);
    let c = problem.stored_of_c(d);
    let with_bias = problem.epilogue.bias;
    let when = |wanted: bool, count: u64| if wanted { count } else { 0 };
    let ([of_a, of_b], element) = (problem.scale_counts(), problem.scale_element());
    let scale = |name, count: usize| {
        let factors = Operand::tensor(name, Role::In, element, count as u64, count == 0);
        match problem.scales {
            // The copy engine brings those.
            Scales::Blocks => factors,
            _ => factors.list(),
        }
    };
    let factor = |name, count, anywhere| {
        let factor = Operand::tensor(name, Role::In, input, count, false);
        if anywhere { factor.list() } else { factor }
    };
    let added = Operand::tensor("c", Role::In, output, c, c == 0);
    let added = match problem.epilogue.spread {
        Spread::Column | Spread::One => added.list(),
        Spread::Matrix | Spread::Row => added,
    };
    let [a_anywhere, b_anywhere] = problem.anywhere;
    vec![
        factor("a", a, a_anywhere),
        factor("b", b, b_anywhere),
        added,
        // Gaps between its rows keep their contents.
        Operand::tensor(
            "d",
            if problem.ldc == n {
                Role::Out
            } else {
                Role::InOut
            },
            output,
            d,
            false,
        ),
        Operand::tensor(
            "bias",
            Role::In,
            output,
            when(with_bias, n.into()),
            !with_bias,
        ),
        scale("scale_a", of_a),
        scale("scale_b", of_b),
    ]
}
