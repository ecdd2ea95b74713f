//! Which features an instruction needs, by its spelling.
//!
//! Says nothing about an instruction that every target of the table has. One
//! that needs several features names them all, the most telling one first.

use crate::arch::Feature;
use crate::instruction::{Instruction, Opcode, Operand};

/// What `instruction` needs of its target and of the file's version.
///
/// ```
/// use heist_ptx::arch::Feature;
/// use heist_ptx::validate::features_of;
/// use heist_ptx::Instruction;
/// let wait = Instruction::new("mbarrier.try_wait.parity.shared::cta.b64", vec![]);
/// assert!(features_of(&wait).contains(&Feature::MbarrierTryWait));
/// assert!(features_of(&Instruction::new("add.s32", vec![])).is_empty());
/// ```
pub fn features_of(instruction: &Instruction) -> Vec<Feature> {
    needs_of(instruction, |_| false)
}

/// [`features_of`], for someone who knows which registers are predicates.
pub(super) fn needs_of(instruction: &Instruction, is_pred: impl Fn(&str) -> bool) -> Vec<Feature> {
    use Feature::*;
    let op = &instruction.opcode;
    let has = |modifier: &str| op.has(modifier);
    let mut needs = Needs(Vec::new());
    match op.base() {
        "cp" => copy(op, instruction, is_pred, &mut needs),
        "mbarrier" => mbarrier(op, instruction, &mut needs),
        "mma" => mma(op, &mut needs),
        "wmma" => {
            needs.when(has("bf16") || has("tf32"), WmmaBf16);
            needs.when(has("f64"), WmmaF64);
        }
        "wgmma" => needs.add(Wgmma),
        "tcgen05" => {
            needs.when(has("mma") && has("kind::i8"), Tcgen05Int8);
            needs.add(Tcgen05);
        }
        "setmaxnreg" => needs.add(Setmaxnreg),
        "ldmatrix" => needs.add(if has("b16") { Ldmatrix } else { LdmatrixB8 }),
        "stmatrix" => needs.add(if has("b16") { Stmatrix } else { StmatrixB8 }),
        "movmatrix" => needs.add(Movmatrix),
        "redux" => needs.add(if has("f32") { ReduxF32 } else { Redux }),
        "elect" => needs.add(Elect),
        "barrier" => {
            if has("cluster") {
                needs.when(
                    has("release") || has("acquire") || has("relaxed"),
                    ClusterBarrierSemantics,
                );
                needs.add(ClusterBarrier);
            }
            needs.when(has("cta"), BarrierCta);
        }
        "bar" => needs.when(has("cta"), BarrierCta),
        "mapa" | "getctarank" => needs.add(Mapa),
        "clusterlaunchcontrol" => {
            needs.when(
                has("multicast::cluster::all"),
                ClusterLaunchControlMulticast,
            );
            needs.add(ClusterLaunchControl);
        }
        "griddepcontrol" => needs.add(GridDependency),
        "multimem" => {
            needs.when(
                op.modifiers()
                    .any(|m| m.starts_with("e4m3") || m.starts_with("e5m2")),
                MultimemFp8,
            );
            needs.add(Multimem);
        }
        "tensormap" => needs.add(if has("replace") {
            TensormapReplace
        } else {
            TensormapFence
        }),
        "fence" => fence(op, &mut needs),
        "membar" => needs.when(has("proxy"), ProxyFence),
        "createpolicy" => needs.add(CreatePolicy),
        "applypriority" => needs.add(ApplyPriority),
        "discard" => needs.add(Discard),
        "prefetch" => {
            needs.when(has("tensormap"), TensormapPrefetch);
            needs.when(
                op.modifiers().any(|m| m.starts_with("L2::evict")),
                PrefetchEviction,
            );
        }
        "alloca" | "stacksave" | "stackrestore" => needs.add(Alloca),
        "szext" | "bmsk" => needs.add(SignExtend),
        "ld" | "ldu" | "st" | "atom" | "red" => access(op, &mut needs),
        "cvt" => convert(op, &mut needs),
        "cvta" | "isspacep" => {
            needs.when(op.modifiers().any(|m| m.starts_with("param")), ParamGeneric)
        }
        "tanh" | "ex2" => {
            let bf16 = has("bf16") || has("bf16x2");
            needs.when(bf16, TanhAndEx2Bf16);
            needs.when(
                !bf16 && (op.base() == "tanh" || has("f16") || has("f16x2")),
                TanhAndEx2F16,
            );
        }
        "add" | "sub" | "mul" | "fma" | "min" | "max" | "neg" | "abs" => {
            arithmetic(op, instruction, &mut needs);
        }
        _ => {}
    }
    if !matches!(op.base(), "cp" | "barrier" | "mbarrier") {
        needs.when(has("shared::cluster"), ClusterShared);
        needs.when(has("cluster"), ClusterScope);
    }
    needs.when(
        has("shared::cta") && !matches!(op.base(), "cp" | "mbarrier"),
        SharedCta,
    );
    needs.0
}

/// The features found so far, each once.
struct Needs(Vec<Feature>);

impl Needs {
    fn add(&mut self, feature: Feature) {
        if !self.0.contains(&feature) {
            self.0.push(feature);
        }
    }

    fn when(&mut self, condition: bool, feature: Feature) {
        if condition {
            self.add(feature);
        }
    }
}

fn copy(op: &Opcode, instruction: &Instruction, is_pred: impl Fn(&str) -> bool, needs: &mut Needs) {
    use Feature::*;
    if op.has("reduce") {
        needs.add(BulkReduce);
    }
    if op.has("tensor") {
        needs.when(
            op.has("cta_group::1") || op.has("cta_group::2"),
            TensorCtaGroup,
        );
        needs.when(op.has("tile::gather4"), TensorGather);
        needs.when(op.has("tile::scatter4"), TensorScatter);
        needs.when(
            op.has("im2col::w") || op.has("im2col::w::128"),
            TensorIm2colW,
        );
        needs.add(TensorCopy);
    }
    if op.has("bulk") {
        needs.when(op.has("cp_mask"), BulkByteMask);
        // The destination is the first space of the two.
        let to = op
            .modifiers()
            .find(|m| m.starts_with("shared") || *m == "global");
        needs.when(
            to == Some("shared::cta") && op.has("global") && !op.has("prefetch"),
            BulkCopyCta,
        );
        needs.add(BulkCopy);
        return;
    }
    needs.add(CpAsync);
    let ignore_source = instruction
        .operands
        .get(3)
        .is_some_and(|operand| match operand {
            Operand::Name(name) => is_pred(name),
            Operand::Not(_) => true,
            _ => false,
        });
    needs.when(ignore_source, CpAsyncIgnoreSource);
    needs.when(op.has("L2::cache_hint"), CacheHint);
}

fn mbarrier(op: &Opcode, instruction: &Instruction, needs: &mut Needs) {
    use Feature::*;
    needs.when(op.has("try_wait"), MbarrierTryWait);
    needs.when(
        op.has("expect_tx") || op.has("complete_tx"),
        MbarrierTransactions,
    );
    let arrives = op.has("arrive") || op.has("arrive_drop");
    needs.when(
        arrives && !op.has("noComplete") && !op.has("expect_tx") && instruction.operands.len() == 3,
        MbarrierCount,
    );
    let waits = op.has("try_wait") || op.has("test_wait");
    needs.when(op.has("relaxed") && (arrives || waits), MbarrierRelaxed);
    needs.when(op.has("release") || op.has("acquire"), MbarrierSemantics);
    needs.when(op.has("parity"), MbarrierParity);
    needs.when(op.has("shared::cluster"), ClusterShared);
    needs.when(op.has("shared::cta"), SharedCta);
    needs.add(Mbarrier);
}

fn fence(op: &Opcode, needs: &mut Needs) {
    use Feature::*;
    if op.has("mbarrier_init") {
        needs.add(MbarrierInitFence);
    } else if op.has("proxy") {
        if op.has("tensormap::generic") {
            needs.add(TensormapFence);
        } else if op.has("alias") {
            needs.add(ProxyFence);
        } else {
            needs.add(ProxyFenceAsync);
        }
    } else {
        needs.when(op.has("acquire") || op.has("release"), OneWayFence);
    }
}

fn access(op: &Opcode, needs: &mut Needs) {
    use Feature::*;
    let has = |modifier: &str| op.has(modifier);
    match op.base() {
        "st" if has("async") => needs.add(if has("global") {
            StAsyncGlobal
        } else {
            StAsync
        }),
        "st" if has("bulk") => needs.add(StBulk),
        "red" if has("async") => needs.add(RedAsync),
        _ => {}
    }
    if matches!(op.base(), "atom" | "red") {
        let vector = has("v2") || has("v4") || has("v8");
        needs.when(vector, VectorReduction);
        needs.when(has("b128"), Atomic128);
        needs.when(has("bf16") || has("bf16x2"), AtomicBf16);
    } else {
        needs.when(
            instruction_width(op).is_some_and(|bits| bits > 128),
            Access256,
        );
    }
    needs.when(has("b128"), Access128);
    needs.when(has("mmio"), Mmio);
    needs.when(has("L2::cache_hint"), CacheHint);
    needs.when(has("L2::256B"), Prefetch256);
    needs.when(has("L2::64B") || has("L2::128B"), PrefetchSize);
    needs.when(op.modifiers().any(|m| m.starts_with("L1::")), L1Eviction);
}

/// How many bits a load or store moves for each thread.
fn instruction_width(op: &Opcode) -> Option<u32> {
    let lanes = op.modifiers().find_map(|m| match m {
        "v2" => Some(2),
        "v4" => Some(4),
        "v8" => Some(8),
        _ => None,
    })?;
    let ty: crate::types::ScalarType = op.modifiers().next_back()?.parse().ok()?;
    Some(lanes * ty.bits())
}

fn convert(op: &Opcode, needs: &mut Needs) {
    use Feature::*;
    let any = |starts: &[&str]| {
        op.modifiers()
            .any(|m| starts.iter().any(|start| m.starts_with(start)))
    };
    needs.when(op.has("rs"), StochasticRounding);
    needs.when(any(&["e2m1", "e2m3", "e3m2", "ue8m0"]), Fp4Convert);
    needs.when(any(&["e4m3", "e5m2"]), Fp8Convert);
    let bf16 = op.has("bf16") || op.has("bf16x2") || op.has("tf32");
    let to = op.modifiers().rev().nth(1);
    let from = op.modifiers().next_back();
    let integer = |ty: Option<&str>| {
        ty.is_some_and(|ty| {
            ty.strip_prefix(['u', 's'])
                .is_some_and(|bits| matches!(bits, "8" | "16" | "32" | "64"))
        })
    };
    needs.when(bf16 && (integer(to) || integer(from)), Bf16FromInteger);
    needs.when(
        bf16 && to.is_some_and(|ty| ty.starts_with("bf16") || ty == "tf32"),
        Bf16Convert,
    );
}

fn arithmetic(op: &Opcode, instruction: &Instruction, needs: &mut Needs) {
    use Feature::*;
    let has = |modifier: &str| op.has(modifier);
    let base = op.base();
    let bf16 = has("bf16") || has("bf16x2");
    let f16 = has("f16") || has("f16x2");
    let min_max = matches!(base, "min" | "max");
    if has("f32") && (bf16 || f16) {
        needs.add(MixedPrecision);
        return;
    }
    needs.when(has("f32x2"), F32x2);
    needs.when(has("u8x4") || has("s8x4"), PackedInt8);
    needs.when(
        (has("u16x2") || has("s16x2")) && base != "neg" && base != "abs",
        PackedInt16,
    );
    if bf16 {
        needs.add(if matches!(base, "add" | "sub" | "mul") {
            Bf16Arithmetic
        } else {
            Bf16Fma
        });
    }
    if min_max {
        needs.when(has("xorsign"), XorSignAbs);
        needs.when(has("NaN"), MinMaxNan);
        needs.when(f16, F16MinMax);
        let integer = has("s32") || has("s16x2");
        needs.when(has("relu") && integer, IntegerRelu);
        needs.when(has("f32") && instruction.operands.len() == 4, MinMaxThree);
    }
    needs.when(base == "fma" && has("relu"), FmaRelu);
}

fn mma(op: &Opcode, needs: &mut Needs) {
    use Feature::*;
    let has = |modifier: &str| op.has(modifier);
    let shape = op
        .modifiers()
        .find(|m| m.starts_with('m') && m.contains('n') && m.contains('k'))
        .unwrap_or("");
    if has("block_scale") {
        needs.add(MmaBlockScale);
        return;
    }
    if has("e3m2") || has("e2m3") || has("e2m1") {
        needs.add(MmaFp6);
        return;
    }
    needs.when(has("e4m3") || has("e5m2"), MmaFp8);
    if has("f64") {
        needs.add(if shape == "m8n8k4" {
            MmaF64
        } else {
            MmaF64Large
        });
        return;
    }
    needs.when(has("sp::ordered_metadata"), MmaSparseOrdered);
    needs.when(has("sp"), MmaSparse);
    needs.when(has("bf16") || has("tf32"), MmaBf16);
    needs.when(has("b1") && has("and"), MmaBinaryAnd);
    match shape {
        "m16n8k16" | "m16n8k32" | "m16n8k64" | "m16n8k128" | "m16n8k256" => needs.add(MmaAmpere),
        "m16n8k8" | "m8n8k16" | "m8n8k32" | "m8n8k128" => needs.add(MmaTuring),
        _ => {}
    }
}
