//! What operands an instruction takes, for the opcodes whose rules are known.
//!
//! A signature is a list of [`Slot`]s, the last few of which may be left out.
//! An opcode, or a form of one, that is not here takes whatever it is given: a
//! missing signature loses a check, a wrong one would condemn a good file.

mod matrix;

use crate::instruction::Opcode;
use crate::types::ScalarType;
use matrix::{mma, wgmma};

/// What one operand must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Slot {
    /// A register that is written.
    Out(ScalarType),
    /// The same, and it may be wider than the type.
    OutWide(ScalarType),
    /// The same, or `_`.
    OutOrSink(ScalarType),
    /// A predicate that is written, or `_`, or a pair `p|q`.
    OutPreds,
    /// A predicate that is written.
    OutPred,
    /// `d|p`, or `d` alone.
    OutMaybePred(ScalarType),
    /// `d|p`, where `d` may be `_`.
    OutAndPred(ScalarType),
    /// `{a, b, ...}` of registers that are written, or of `_`.
    OutList(u32, ScalarType),
    /// A register or a constant.
    In(ScalarType),
    /// The same, and the register may be wider than the type.
    InWide(ScalarType),
    /// The same, or the address of a variable.
    InOrAddress(ScalarType),
    /// A predicate, perhaps negated, or a constant.
    InPred,
    /// `{a, b, ...}` of registers or constants.
    InList(u32, ScalarType),
    /// `{a, b, ...}` of this many 32-bit registers that hold packed values.
    Packed(u32),
    /// A constant.
    Immediate,
    /// `[...]`.
    Address,
    /// A label.
    Label,
    /// Anything.
    Any,
}

/// The operands of an instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Signature {
    /// What each operand must be.
    pub(super) slots: Vec<Slot>,
    /// How many of them must be there.
    pub(super) required: usize,
}

/// Why an opcode has no signature although its rules are known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum BadOpcode {
    /// A type is missing, or something else that it can't do without.
    Missing(&'static str),
    /// It has a type that it does not take.
    Type(ScalarType, &'static str),
}

type Lookup = Result<Option<Signature>, BadOpcode>;

fn exactly(slots: Vec<Slot>) -> Lookup {
    Ok(Some(Signature {
        required: slots.len(),
        slots,
    }))
}

fn at_least(required: usize, slots: Vec<Slot>) -> Lookup {
    Ok(Some(Signature { slots, required }))
}

const UNKNOWN: Lookup = Ok(None);

/// The types among an opcode's modifiers, in order; `None` when there is one
/// that registers and variables can't have, so that nothing is said about it.
fn types(op: &Opcode) -> Vec<ScalarType> {
    op.modifiers().filter_map(|m| m.parse().ok()).collect()
}

/// The signature of `op`; `None` when its rules are not known here.
pub(super) fn signature(op: &Opcode) -> Lookup {
    use ScalarType::*;
    use Slot::*;
    let types = types(op);
    let has = |modifier: &str| op.has(modifier);
    let first = types.first().copied();
    match op.base() {
        "add" | "sub" | "mul" | "div" | "rem" | "min" | "max" | "mad" | "fma" | "addc" | "subc"
        | "madc" | "mul24" | "mad24" | "sad" | "abs" | "neg" | "sqrt" | "rsqrt" | "rcp" | "sin"
        | "cos" | "lg2" | "ex2" | "tanh" | "copysign" => arithmetic(op, &types),
        "and" | "or" | "xor" | "not" | "cnot" | "shl" | "shr" | "shf" | "lop3" | "prmt"
        | "popc" | "clz" | "brev" | "bfe" | "bfi" | "bfind" | "fns" | "bmsk" | "szext" | "dp4a"
        | "dp2a" => bits(op, first),
        "setp" => {
            if !op.modifiers().any(is_comparison) {
                return Err(BadOpcode::Missing("a comparison such as `.eq` or `.lt`"));
            }
            let Some(&ty) = types.last() else {
                return Err(BadOpcode::Missing("a type such as `.s32`"));
            };
            at_least(3, vec![OutPreds, In(ty), In(ty), InPred])
        }
        "set" => match types[..] {
            [to, from] => at_least(3, vec![Out(to), In(from), In(from), InPred]),
            _ => UNKNOWN,
        },
        "selp" => match first {
            Some(ty) => exactly(vec![Out(ty), In(ty), In(ty), InPred]),
            None => Err(BadOpcode::Missing("a type such as `.b32`")),
        },
        "slct" => match types[..] {
            [ty, by] => exactly(vec![Out(ty), In(ty), In(ty), In(by)]),
            _ => UNKNOWN,
        },
        "testp" => match first {
            Some(ty) => exactly(vec![OutPred, In(ty)]),
            None => UNKNOWN,
        },
        "mov" => match first {
            None => Err(BadOpcode::Missing("a type such as `.b32`")),
            Some(_) => exactly(vec![Any, Any]),
        },
        "cvt" => convert(op, &types),
        "cvta" => match first {
            Some(ty) if has("to") => exactly(vec![Out(ty), In(ty)]),
            Some(ty) => exactly(vec![Out(ty), InOrAddress(ty)]),
            None => UNKNOWN,
        },
        "isspacep" => exactly(vec![OutPred, Any]),
        "ld" | "ldu" | "st" | "atom" | "red" => memory(op, first),
        "prefetch" | "prefetchu" => exactly(vec![Address]),
        "vote" | "shfl" | "match" | "redux" | "activemask" | "elect" => warp(op, first),
        "bra" => exactly(vec![Label]),
        "brx" => exactly(vec![In(U32), Label]),
        "ret" | "exit" | "trap" | "brkpt" | "griddepcontrol" => exactly(vec![]),
        "bar" | "barrier" => barrier(op),
        "membar" => exactly(vec![]),
        "fence" if !has("tensormap::generic") => exactly(vec![]),
        "nanosleep" => exactly(vec![In(U32)]),
        "pmevent" | "setmaxnreg" => exactly(vec![Immediate]),
        "mapa" => match first {
            Some(ty) => exactly(vec![Out(ty), InOrAddress(ty), In(U32)]),
            None => UNKNOWN,
        },
        "getctarank" => exactly(vec![Out(U32), Any]),
        "cp" => copy(op),
        "mbarrier" => mbarrier(op),
        "ldmatrix" | "stmatrix" if has("m8n8") && has("b16") => {
            let count = match () {
                () if has("x1") => 1,
                () if has("x2") => 2,
                () if has("x4") => 4,
                () => return Err(BadOpcode::Missing("`.x1`, `.x2` or `.x4`")),
            };
            if op.base() == "ldmatrix" {
                exactly(vec![OutList(count, B32), Address])
            } else {
                exactly(vec![Address, InList(count, B32)])
            }
        }
        "movmatrix" => exactly(vec![Out(B32), In(B32)]),
        "mma" => mma(op),
        "wgmma" => wgmma(op),
        "clusterlaunchcontrol" => {
            if has("try_cancel") {
                exactly(vec![Address, Address])
            } else if has("is_canceled") {
                exactly(vec![OutPred, In(B128)])
            } else if has("get_first_ctaid") {
                exactly(vec![OutList(4, B32), In(B128)])
            } else {
                exactly(vec![Out(B32), In(B128)])
            }
        }
        _ => UNKNOWN,
    }
}

fn is_comparison(modifier: &str) -> bool {
    matches!(
        modifier,
        "eq" | "ne"
            | "lt"
            | "le"
            | "gt"
            | "ge"
            | "lo"
            | "ls"
            | "hi"
            | "hs"
            | "equ"
            | "neu"
            | "ltu"
            | "leu"
            | "gtu"
            | "geu"
            | "num"
            | "nan"
    )
}

fn is_integer(ty: ScalarType) -> bool {
    use ScalarType::*;
    matches!(ty, U8 | U16 | U32 | U64 | S8 | S16 | S32 | S64)
}

fn is_bits(ty: ScalarType) -> bool {
    use ScalarType::*;
    matches!(ty, B8 | B16 | B32 | B64 | B128)
}

fn doubled(ty: ScalarType) -> Option<ScalarType> {
    use ScalarType::*;
    Some(match ty {
        U16 => U32,
        S16 => S32,
        U32 => U64,
        S32 => S64,
        _ => return None,
    })
}

fn arithmetic(op: &Opcode, types: &[ScalarType]) -> Lookup {
    use Slot::*;
    let ty = match types {
        [] if op.modifiers().any(|m| m.ends_with("8x4")) => return UNKNOWN,
        [] => return Err(BadOpcode::Missing("a type such as `.s32`")),
        [ty] => *ty,
        // Mixed precision.
        _ => return UNKNOWN,
    };
    if is_bits(ty) || ty == ScalarType::Pred {
        return Err(BadOpcode::Type(
            ty,
            "arithmetic is on integers or floating-point numbers, not on untyped bits",
        ));
    }
    match op.base() {
        "abs" | "neg" | "sqrt" | "rsqrt" | "rcp" | "sin" | "cos" | "lg2" | "ex2" | "tanh" => {
            exactly(vec![Out(ty), In(ty)])
        }
        "mul" | "mad" if op.has("wide") => match doubled(ty) {
            Some(wide) if op.base() == "mul" => exactly(vec![Out(wide), In(ty), In(ty)]),
            Some(wide) => exactly(vec![Out(wide), In(ty), In(ty), In(wide)]),
            None => Err(BadOpcode::Type(
                ty,
                "`.wide` takes 16-bit and 32-bit integers",
            )),
        },
        "mul" | "mad" | "mul24" | "mad24"
            if is_integer(ty) && !op.has("lo") && !op.has("hi") && !op.has("wide") =>
        {
            Err(BadOpcode::Missing(
                "`.lo`, `.hi` or `.wide`: which half of the product is meant",
            ))
        }
        "mad" | "fma" | "madc" | "mad24" | "sad" => exactly(vec![Out(ty), In(ty), In(ty), In(ty)]),
        "min" | "max" => at_least(3, vec![Out(ty), In(ty), In(ty), In(ty)]),
        _ => exactly(vec![Out(ty), In(ty), In(ty)]),
    }
}

fn bits(op: &Opcode, first: Option<ScalarType>) -> Lookup {
    use ScalarType::*;
    use Slot::*;
    let Some(ty) = first else {
        return match op.base() {
            "dp4a" | "dp2a" => UNKNOWN,
            _ => Err(BadOpcode::Missing("a type such as `.b32`")),
        };
    };
    if matches!(op.base(), "and" | "or" | "xor" | "not" | "cnot" | "shl")
        && !is_bits(ty)
        && ty != Pred
    {
        return Err(BadOpcode::Type(
            ty,
            "logic is on untyped bits: `.b16`, `.b32` or `.b64`",
        ));
    }
    match op.base() {
        "not" if ty == Pred => exactly(vec![OutPred, InPred]),
        "and" | "or" | "xor" if ty == Pred => exactly(vec![OutPred, InPred, InPred]),
        "and" | "or" | "xor" => exactly(vec![Out(ty), In(ty), In(ty)]),
        "not" | "cnot" | "brev" => exactly(vec![Out(ty), In(ty)]),
        "shl" | "shr" => exactly(vec![Out(ty), In(ty), In(U32)]),
        "shf" => exactly(vec![Out(ty), In(ty), In(ty), In(U32)]),
        "lop3" => at_least(
            5,
            vec![OutMaybePred(ty), In(ty), In(ty), In(ty), Immediate, InPred],
        ),
        "prmt" => exactly(vec![Out(ty), In(ty), In(ty), In(ty)]),
        "popc" | "clz" | "bfind" => exactly(vec![Out(U32), In(ty)]),
        "bfe" => exactly(vec![Out(ty), In(ty), In(U32), In(U32)]),
        "bfi" => exactly(vec![Out(ty), In(ty), In(ty), In(U32), In(U32)]),
        "fns" => exactly(vec![Out(ty), In(ty), In(ty), In(S32)]),
        "bmsk" | "szext" => exactly(vec![Out(ty), In(ty), In(U32)]),
        "dp4a" | "dp2a" => exactly(vec![Out(B32), In(B32), In(B32), In(B32)]),
        _ => UNKNOWN,
    }
}

fn convert(op: &Opcode, types: &[ScalarType]) -> Lookup {
    use ScalarType::*;
    use Slot::*;
    let simple = |ty: ScalarType| {
        matches!(
            ty,
            U8 | U16 | U32 | U64 | S8 | S16 | S32 | S64 | F16 | Bf16 | F32 | F64
        )
    };
    match types {
        [to, from] if simple(*to) && simple(*from) && !op.has("pack") => {
            exactly(vec![OutWide(*to), InWide(*from)])
        }
        [ty] if simple(*ty) && op.modifiers().all(|m| m != "pack" && !m.contains("x2")) => {
            // One type of two; narrow formats are not in the list of types.
            let narrow = op
                .modifiers()
                .any(|m| m.starts_with('e') || m.starts_with("ue") || m.contains("x4"));
            if narrow {
                UNKNOWN
            } else {
                Err(BadOpcode::Missing("two types: to and from"))
            }
        }
        _ => UNKNOWN,
    }
}

fn lanes(op: &Opcode) -> Option<u32> {
    op.modifiers().find_map(|m| match m {
        "v2" => Some(2),
        "v4" => Some(4),
        "v8" => Some(8),
        _ => None,
    })
}

fn memory(op: &Opcode, first: Option<ScalarType>) -> Lookup {
    use ScalarType::*;
    use Slot::*;
    if op.has("async") || op.has("bulk") {
        return UNKNOWN;
    }
    let Some(ty) = first else {
        return Err(BadOpcode::Missing("a type such as `.b32`"));
    };
    let hint = |mut slots: Vec<Slot>| {
        let required = slots.len();
        if op.has("L2::cache_hint") {
            slots.push(In(B64));
        } else if op.base() == "atom" && is_bits(ty) {
            // ptxas overlooks one operand too many here.
            slots.push(Any);
        }
        at_least(required, slots)
    };
    match op.base() {
        "ld" | "ldu" | "st" => {
            if !is_bits(ty) && !is_integer(ty) && !matches!(ty, F32 | F64) {
                return Err(BadOpcode::Type(
                    ty,
                    "loads and stores move `.b8` to `.b128`, integers, `.f32` and `.f64`",
                ));
            }
            match (op.base(), lanes(op)) {
                ("st", None) => hint(vec![Address, InWide(ty)]),
                ("st", Some(count)) => hint(vec![Address, InList(count, ty)]),
                (_, None) => hint(vec![OutWide(ty), Address]),
                (_, Some(count)) => hint(vec![OutList(count, ty), Address]),
            }
        }
        "red" if lanes(op).is_some() => {
            let count = lanes(op).unwrap_or(1);
            hint(vec![Address, InList(count, ty)])
        }
        _ if lanes(op).is_some() => UNKNOWN,
        "red" => hint(vec![Address, In(ty)]),
        _ if op.has("cas") => hint(vec![OutOrSink(ty), Address, In(ty), In(ty)]),
        _ => hint(vec![OutOrSink(ty), Address, In(ty)]),
    }
}

fn warp(op: &Opcode, first: Option<ScalarType>) -> Lookup {
    use ScalarType::*;
    use Slot::*;
    let sync = op.has("sync");
    match (op.base(), first) {
        ("vote", Some(ty)) => {
            let result = if ty == Pred { OutPred } else { Out(ty) };
            if sync {
                exactly(vec![result, InPred, In(U32)])
            } else {
                exactly(vec![result, InPred])
            }
        }
        ("shfl", Some(ty)) if sync => {
            exactly(vec![OutMaybePred(ty), In(ty), In(B32), In(B32), In(B32)])
        }
        ("match", Some(ty)) => exactly(vec![OutMaybePred(B32), In(ty), In(U32)]),
        ("redux", Some(ty)) => exactly(vec![Out(ty), In(ty), In(U32)]),
        ("activemask", _) => exactly(vec![Out(B32)]),
        ("elect", _) => exactly(vec![OutAndPred(B32), In(U32)]),
        _ => UNKNOWN,
    }
}

fn barrier(op: &Opcode) -> Lookup {
    use ScalarType::*;
    use Slot::*;
    if op.has("cluster") {
        return exactly(vec![]);
    }
    if op.has("warp") {
        return exactly(vec![In(U32)]);
    }
    if op.has("arrive") {
        return exactly(vec![In(U32), In(U32)]);
    }
    if op.has("sync") {
        return at_least(1, vec![In(U32), In(U32)]);
    }
    if op.has("red") {
        // The predicate comes last, with or without a count before it.
        let result = if op.has("pred") { OutPred } else { Out(U32) };
        return at_least(3, vec![result, In(U32), Any, InPred]);
    }
    UNKNOWN
}

fn copy(op: &Opcode) -> Lookup {
    use ScalarType::*;
    use Slot::*;
    if op.has("commit_group") || op.has("wait_all") {
        return exactly(vec![]);
    }
    if op.has("wait_group") {
        return exactly(vec![Immediate]);
    }
    if op.has("mbarrier") {
        return exactly(vec![Address]);
    }
    if op.has("tensor") {
        if op.has("prefetch") {
            return at_least(1, vec![Address, Any, Any]);
        }
        return if op.has("mbarrier::complete_tx::bytes") {
            // ptxas looks at the tensor map alone.
            at_least(3, vec![Any, Address, Any, Any, Any, Any])
        } else {
            at_least(2, vec![Address, Any, Any, Any, Any])
        };
    }
    if op.has("bulk") {
        if op.has("prefetch") {
            return at_least(2, vec![Address, In(U32), Any]);
        }
        return if op.has("mbarrier::complete_tx::bytes") {
            at_least(4, vec![Address, Address, In(U32), Address, Any, Any])
        } else {
            at_least(3, vec![Address, Address, In(U32), Any, Any])
        };
    }
    if op.has("ca") || op.has("cg") {
        return at_least(3, vec![Address, Address, Immediate, Any, Any]);
    }
    UNKNOWN
}

fn mbarrier(op: &Opcode) -> Lookup {
    use ScalarType::*;
    use Slot::*;
    if op.has("init") {
        exactly(vec![Address, In(U32)])
    } else if op.has("inval") {
        exactly(vec![Address])
    } else if op.has("arrive") || op.has("arrive_drop") {
        let required = if op.has("expect_tx") || op.has("noComplete") {
            3
        } else {
            2
        };
        at_least(required, vec![OutOrSink(B64), Address, In(U32)])
    } else if op.has("expect_tx") || op.has("complete_tx") {
        exactly(vec![Address, In(U32)])
    } else if op.has("test_wait") || op.has("try_wait") {
        let phase = if op.has("parity") { In(U32) } else { In(B64) };
        if op.has("try_wait") {
            at_least(3, vec![OutPred, Address, phase, In(U32)])
        } else {
            exactly(vec![OutPred, Address, phase])
        }
    } else if op.has("pending_count") {
        exactly(vec![Out(U32), In(B64)])
    } else {
        UNKNOWN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(op: &str) -> Lookup {
        signature(&Opcode::from(op))
    }

    #[test]
    fn what_is_missing_is_said() {
        assert!(matches!(of("mul.s32"), Err(BadOpcode::Missing(_))));
        assert!(matches!(of("add"), Err(BadOpcode::Missing(_))));
        assert!(matches!(of("setp.s32"), Err(BadOpcode::Missing(_))));
        assert!(matches!(of("and.u32"), Err(BadOpcode::Type(..))));
        assert_eq!(of("tex.2d.v4.f32.f32"), UNKNOWN);
    }
}
