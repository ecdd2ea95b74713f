//! How many registers the matrices of `mma` and `wgmma` take.

use super::operands::{Form, Lookup, Slot, UNKNOWN, at_least, exactly};
use crate::types::ScalarType;

/// The numbers in `m16n8k16`.
fn shape(modifier: &str) -> Option<(u32, u32, u32)> {
    let (m, rest) = modifier.strip_prefix('m')?.split_once('n')?;
    let (n, k) = rest.split_once('k')?;
    // No matrix is larger, and no product of these overflows.
    let side = |text: &str| text.parse().ok().filter(|&side: &u32| side <= 1024);
    Some((side(m)?, side(n)?, side(k)?))
}

/// Each thread of a warp holds a 32nd of every matrix, packed into 32-bit
/// registers (f64: into 64-bit ones).
pub(super) fn mma(form: &Form<'_>) -> Lookup {
    use ScalarType::*;
    use Slot::*;
    let Some((m, n, k)) = form.op.modifiers().find_map(shape) else {
        return UNKNOWN;
    };
    let kinds: Vec<&str> = form
        .op
        .modifiers()
        .skip_while(|part| *part != "row" && *part != "col")
        .filter(|part| {
            matches!(
                *part,
                "f16"
                    | "bf16"
                    | "tf32"
                    | "f32"
                    | "f64"
                    | "s32"
                    | "s8"
                    | "u8"
                    | "s4"
                    | "u4"
                    | "b1"
                    | "e4m3"
                    | "e5m2"
                    | "e3m2"
                    | "e2m3"
                    | "e2m1"
            )
        })
        .collect();
    // Sparse and scaled forms have more operands, and Volta's m8n8k4 on f16
    // spreads its matrices in another way.
    let plain = !form.has("sp") && !form.has("sp::ordered_metadata") && !form.has("block_scale");
    let [d, a, b, c] = kinds[..] else {
        return UNKNOWN;
    };
    if !plain || ((m, n, k) == (8, 8, 4) && a != "f64") {
        return UNKNOWN;
    }
    let width = |kind: &str| match kind {
        "b1" => 1,
        "s4" | "u4" => 4,
        "f16" | "bf16" => 16,
        "f32" | "s32" | "tf32" => 32,
        "f64" => 64,
        _ => 8,
    };
    let registers = |elements: u32, kind: &str| match kind {
        "f64" => elements / 32,
        _ => elements * width(kind) / 1024,
    };
    let result = |kind: &str| match kind {
        "f32" => Some(F32),
        "f64" => Some(F64),
        "s32" => Some(S32),
        "f16" => None,
        _ => None,
    };
    let input = |elements: u32, kind: &str| match kind {
        "f64" => InList(registers(elements, kind), F64),
        _ => Packed(registers(elements, kind)),
    };
    let to = match result(d) {
        Some(ty) => OutList(registers(m * n, d), ty),
        None => Packed(registers(m * n, d)),
    };
    let from = match result(c) {
        Some(ty) => InList(registers(m * n, c), ty),
        None => Packed(registers(m * n, c)),
    };
    exactly(vec![to, input(m * k, a), input(n * k, b), from])
}

/// The accumulator of a wgmma is spread over the 128 threads of a warpgroup.
pub(super) fn wgmma(form: &Form<'_>) -> Lookup {
    use ScalarType::*;
    use Slot::*;
    if form.has("fence") || form.has("commit_group") {
        return exactly(vec![]);
    }
    if form.has("wait_group") {
        return exactly(vec![Immediate]);
    }
    let Some((_, n, _)) = form.op.modifiers().find_map(shape) else {
        return UNKNOWN;
    };
    if form.has("sp") {
        return UNKNOWN;
    }
    let result = match form.first() {
        Some(F32) => OutList(n / 2, F32),
        Some(S32) => OutList(n / 2, S32),
        Some(F16) => Packed(n / 4),
        _ => return UNKNOWN,
    };
    at_least(4, vec![result, Any, In(B64), InPred, Any, Any, Any, Any])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::instruction::Opcode;

    fn of(op: &str) -> Lookup {
        let op = Opcode::from(op);
        op.row().expect("a row").operands(&op)
    }

    #[test]
    fn mma_counts_its_registers() {
        use ScalarType::*;
        use Slot::*;
        let counts = |op: &str| of(op).unwrap().unwrap().slots;
        assert_eq!(
            counts("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"),
            [OutList(4, F32), Packed(4), Packed(2), InList(4, F32)]
        );
        assert_eq!(
            counts("mma.sync.aligned.m16n8k32.row.col.satfinite.s32.s8.u8.s32"),
            [OutList(4, S32), Packed(4), Packed(2), InList(4, S32)]
        );
        assert_eq!(
            counts("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64"),
            [
                OutList(2, F64),
                InList(1, F64),
                InList(1, F64),
                InList(2, F64)
            ]
        );
        assert_eq!(
            counts("mma.sync.aligned.m16n8k8.row.col.f16.f16.f16.f16"),
            [Packed(2), Packed(2), Packed(1), Packed(2)]
        );
        assert_eq!(
            of("mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32"),
            UNKNOWN
        );
    }
}
