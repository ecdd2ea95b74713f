//! The buffers that a plan takes from its caller.

use super::problem::{Gemm, Scales};
use crate::plan::{LaunchPlan, Purpose};

/// The same plan with the buffers of the caller, under a variant's name.
pub(crate) fn over_operands(mut plan: LaunchPlan, variant: &str, problem: &Gemm) -> LaunchPlan {
    plan.variant = variant.to_owned();
    let (input, output) = (problem.input.element(), problem.output.element());
    let size = |rows: u32, pitch: u32| rows as usize * pitch as usize;
    let size = |rows, pitch| size(rows, pitch) * problem.batch as usize;
    let result = size(problem.m, problem.ldc);
    let c = problem.stored_of_c(result as u64) as usize;
    let a = size(problem.rows_of_a(), problem.lda);
    let b = size(problem.rows_of_b(), problem.ldb);
    let bias = problem.n as usize * usize::from(problem.epilogue.bias);
    let plan = match problem.scales {
        Scales::None => plan,
        _ => {
            let [a, b] = problem.scale_counts();
            let element = problem.scale_element();
            plan.buffer("scale_a", Purpose::Input, element, a).buffer(
                "scale_b",
                Purpose::Input,
                element,
                b,
            )
        }
    };
    plan.buffer("a", Purpose::Input, input, a)
        .buffer("b", Purpose::Input, input, b)
        .buffer("c", Purpose::Input, output, c)
        .buffer("d", Purpose::Output, output, result)
        .buffer("bias", Purpose::Input, output, bias)
}
