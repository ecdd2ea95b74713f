//! What the architectures can do: each feature with where and since when.
//!
//! A feature is a group of instructions that came together; the targets that
//! have it and the PTX ISA version that brought it are in the "Target ISA
//! Notes" and "PTX ISA Notes" of the instruction's section in the PTX ISA.
//! ptxas has the last word: `tests/arch.rs` assembles one instruction of each feature for its first
//! target, the one below, and the version before. [`crate::isa`] says which instruction needs which
//! feature.

use super::Arch;
use crate::module::Version;

/// The targets that have a feature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Support {
    /// Every target from this number on.
    From(u16),
    /// These and no others: instructions of an architecture or a family of its own.
    Only(&'static [Arch]),
}

impl Support {
    /// Whether `arch` is one of them.
    pub fn includes(self, arch: Arch) -> bool {
        match self {
            Support::From(number) => arch.number() >= number,
            Support::Only(archs) => archs.contains(&arch),
        }
    }

    /// The first target, in the order of [`Arch::ALL`].
    pub fn first(self) -> Option<Arch> {
        Arch::ALL.iter().copied().find(|&arch| self.includes(arch))
    }
}

impl std::fmt::Display for Support {
    /// As the end of "needs …": `sm_90 or later`, `sm_90a`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Support::From(number) => write!(f, "sm_{number} or later"),
            Support::Only(archs) => {
                // An `a` target and the `f` target of the same number read as one: sm_100a/f.
                let mut names: Vec<String> = Vec::new();
                for (at, arch) in archs.iter().enumerate() {
                    let before = at.checked_sub(1).and_then(|at| archs.get(at));
                    match names.last_mut() {
                        Some(last) if before.is_some_and(|b| b.number() == arch.number()) => {
                            last.push_str("/f");
                        }
                        _ => names.push(arch.to_string()),
                    }
                }
                match names.split_last() {
                    Some((last, [])) => f.write_str(last),
                    Some((last, others)) => write!(f, "{} or {last}", others.join(", ")),
                    None => f.write_str("no target"),
                }
            }
        }
    }
}

macro_rules! features {
    ($($(#[$doc:meta])* $name:ident = $text:literal, $support:expr, ($major:literal, $minor:literal);)*) => {
        /// A group of instructions that some targets have and others do not.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Feature {
            $(#[doc = concat!($text, ".")] $(#[$doc])* $name,)*
        }

        impl Feature {
            /// All of them.
            pub const ALL: &[Feature] = &[$(Feature::$name,)*];

            /// What it is, in words that begin a sentence about it.
            pub const fn name(self) -> &'static str {
                match self { $(Feature::$name => $text,)* }
            }

            /// The targets that have it.
            pub const fn support(self) -> Support {
                match self { $(Feature::$name => $support,)* }
            }

            /// The PTX ISA version that brought it. A target may be younger:
            /// see [`Arch::ptx_for`].
            pub const fn min_ptx(self) -> Version {
                match self { $(Feature::$name => Version::new($major, $minor),)* }
            }
        }
    };
}

use Support::{From, Only};

/// The families with tensor memory: 10.x and 11.0.
const TENSOR_MEMORY: Support = Only(&[
    Arch::SM_100A,
    Arch::SM_100F,
    Arch::SM_103A,
    Arch::SM_103F,
    Arch::SM_107A,
    Arch::SM_107F,
    Arch::SM_110A,
    Arch::SM_110F,
]);

/// Every `a` and `f` target from 10.0 on.
const BLACKWELL: Support = Only(&[
    Arch::SM_100A,
    Arch::SM_100F,
    Arch::SM_103A,
    Arch::SM_103F,
    Arch::SM_107A,
    Arch::SM_107F,
    Arch::SM_110A,
    Arch::SM_110F,
    Arch::SM_120A,
    Arch::SM_120F,
    Arch::SM_121A,
    Arch::SM_121F,
]);

/// Every `a` and `f` target.
const ANY_SPECIFIC: Support = Only(&[
    Arch::SM_90A,
    Arch::SM_100A,
    Arch::SM_100F,
    Arch::SM_103A,
    Arch::SM_103F,
    Arch::SM_107A,
    Arch::SM_107F,
    Arch::SM_110A,
    Arch::SM_110F,
    Arch::SM_120A,
    Arch::SM_120F,
    Arch::SM_121A,
    Arch::SM_121F,
]);

/// 10.x without 11.0.
const FAMILY_100: Support = Only(&[
    Arch::SM_100A,
    Arch::SM_100F,
    Arch::SM_103A,
    Arch::SM_103F,
    Arch::SM_107A,
    Arch::SM_107F,
]);

/// 12.x.
const FAMILY_120: Support = Only(&[Arch::SM_120A, Arch::SM_120F, Arch::SM_121A, Arch::SM_121F]);

features! {
    // Memory.
    CpAsync = "cp.async", From(80), (7, 0);
    CpAsyncIgnoreSource = "cp.async with an ignore-src predicate", From(80), (7, 5);
    CacheHint = "a `.L2::cache_hint` policy", From(80), (7, 4);
    CreatePolicy = "createpolicy", From(80), (7, 4);
    Prefetch256 = "an `.L2::256B` prefetch size", From(80), (7, 4);
    PrefetchSize = "an `.L2::64B` or `.L2::128B` prefetch size", From(75), (7, 4);
    L1Eviction = "an `.L1::` eviction priority", From(75), (7, 4);
    ApplyPriority = "applypriority", From(80), (7, 4);
    Discard = "discard", From(80), (7, 4);
    PrefetchEviction = "prefetch with an eviction priority", From(80), (7, 4);
    SharedCta = "the state space `.shared::cta`", From(75), (7, 8);
    Mmio = "an `.mmio` access", From(75), (8, 2);
    Access128 = "a `.b128` register", From(75), (8, 3);
    Access256 = "a 256-bit access", From(100), (8, 8);
    Atomic128 = "a 128-bit atomic", From(90), (8, 3);
    AtomicBf16 = "a bf16 atomic", From(90), (7, 8);
    VectorReduction = "a vector red or atom", From(90), (8, 1);
    Alloca = "alloca, stacksave and stackrestore", From(75), (7, 3);
    ParamGeneric = "generic addresses of kernel parameters", From(75), (7, 7);
    StBulk = "st.bulk", From(100), (8, 6);
    StAsyncGlobal = "st.async to global memory", From(100), (8, 7);
    Multimem = "multimem", From(90), (8, 1);
    MultimemFp8 = "multimem on 8-bit floats", Only(&[
        Arch::SM_100A, Arch::SM_100F, Arch::SM_103A, Arch::SM_103F, Arch::SM_107A, Arch::SM_107F,
        Arch::SM_110A, Arch::SM_110F, Arch::SM_120A, Arch::SM_121A,
    ]), (8, 6);

    // Clusters and what crosses blocks.
    Clusters = "thread block clusters", From(90), (7, 8);
    ClusterShared = "the state space `.shared::cluster`", From(90), (7, 8);
    ClusterScope = "the scope `.cluster`", From(90), (7, 8);
    ClusterBarrier = "barrier.cluster", From(90), (7, 8);
    ClusterBarrierSemantics = "barrier.cluster with `.release`, `.acquire` or `.relaxed`", From(90), (8, 0);
    Mapa = "mapa and getctarank", From(90), (7, 8);
    StAsync = "st.async", From(90), (8, 1);
    RedAsync = "red.async", From(90), (8, 1);
    ClusterLaunchControl = "cluster launch control", From(100), (8, 6);
    ClusterLaunchControlMulticast = "cluster launch control with `.multicast::cluster::all`", BLACKWELL, (8, 6);
    GridDependency = "griddepcontrol", From(90), (7, 8);

    // mbarriers and bulk copies.
    Mbarrier = "mbarrier", From(80), (7, 0);
    MbarrierParity = "mbarrier waits by parity", From(80), (7, 1);
    MbarrierTryWait = "mbarrier.try_wait", From(90), (7, 8);
    MbarrierCount = "mbarrier.arrive with a count that is not `.noComplete`", From(90), (7, 8);
    MbarrierTransactions = "mbarrier transaction counts", From(90), (8, 0);
    MbarrierSemantics = "mbarrier operations with `.release` or `.acquire` and a scope", From(90), (8, 0);
    MbarrierRelaxed = "mbarrier arrivals and waits with `.relaxed`", From(90), (8, 6);
    BulkCopy = "cp.async.bulk", From(90), (8, 0);
    BulkCopyCta = "cp.async.bulk into `.shared::cta`", From(90), (8, 6);
    BulkByteMask = "cp.async.bulk with a byte mask", From(100), (8, 6);
    BulkReduce = "cp.reduce.async.bulk", From(90), (8, 0);
    TensorCopy = "cp.async.bulk.tensor", From(90), (8, 0);
    TensorCtaGroup = "cp.async.bulk.tensor with `.cta_group`", TENSOR_MEMORY, (8, 6);
    TensorGather = "cp.async.bulk.tensor with `.tile::gather4`", From(100), (8, 6);
    TensorScatter = "cp.async.bulk.tensor with `.tile::scatter4`", TENSOR_MEMORY, (8, 6);
    TensorIm2colW = "cp.async.bulk.tensor with `.im2col::w`", From(100), (8, 6);
    TensormapReplace = "tensormap.replace", ANY_SPECIFIC, (8, 3);
    TensormapFence = "tensormap proxy fences", From(90), (8, 3);
    TensormapPrefetch = "prefetch.tensormap", From(90), (8, 0);

    // Fences.
    ProxyFence = "fence.proxy.alias", From(75), (7, 5);
    ProxyFenceAsync = "fence.proxy.async", From(90), (8, 0);
    MbarrierInitFence = "fence.mbarrier_init", From(90), (8, 0);
    OneWayFence = "fence.acquire and fence.release", From(90), (8, 6);

    // Tensor cores.
    Ldmatrix = "ldmatrix", From(75), (6, 5);
    LdmatrixB8 = "ldmatrix on bytes", BLACKWELL, (8, 6);
    Stmatrix = "stmatrix", From(90), (7, 8);
    StmatrixB8 = "stmatrix on bytes", BLACKWELL, (8, 6);
    Movmatrix = "movmatrix", From(75), (7, 8);
    MmaTuring = "mma of m16n8k8 f16 and m8n8k16 integers", From(75), (6, 5);
    MmaAmpere = "mma of the larger shapes", From(80), (7, 0);
    MmaBf16 = "mma on bf16 and tf32", From(80), (7, 0);
    MmaF64 = "mma on f64", From(80), (7, 0);
    MmaF64Large = "mma on f64 with m16n8", From(90), (7, 8);
    MmaBinaryAnd = "mma on bits with `.and`", From(80), (7, 1);
    MmaSparse = "mma.sp", From(80), (7, 1);
    MmaSparseOrdered = "mma.sp::ordered_metadata", From(80), (8, 5);
    MmaFp8 = "mma on 8-bit floats", From(89), (8, 4);
    MmaFp6 = "mma on 6- and 4-bit floats", FAMILY_120, (8, 7);
    MmaBlockScale = "mma with block scaling", FAMILY_120, (8, 7);
    WmmaBf16 = "wmma on bf16 and tf32", From(80), (7, 0);
    WmmaF64 = "wmma on f64", From(80), (7, 0);
    Wgmma = "wgmma", Only(&[Arch::SM_90A]), (8, 0);
    Setmaxnreg = "setmaxnreg", ANY_SPECIFIC, (8, 0);
    Tcgen05 = "tcgen05", TENSOR_MEMORY, (8, 6);
    Tcgen05Int8 = "tcgen05.mma on integers", Only(&[Arch::SM_100A, Arch::SM_110A]), (8, 6);

    // Arithmetic and conversions.
    Bf16Fma = "bf16 fma, min, max, neg and abs", From(80), (7, 0);
    Bf16Arithmetic = "bf16 add, sub and mul", From(90), (7, 8);
    F16MinMax = "f16 min and max", From(80), (7, 0);
    FmaRelu = "fma with `.relu`", From(80), (7, 0);
    MinMaxNan = "min and max with `.NaN`", From(80), (7, 0);
    XorSignAbs = "min and max with `.xorsign.abs`", From(86), (7, 2);
    MinMaxThree = "min and max of three", From(100), (8, 8);
    F32x2 = "f32x2 arithmetic", From(100), (8, 6);
    MixedPrecision = "f32 arithmetic with f16 or bf16 operands", From(100), (8, 6);
    PackedInt16 = "u16x2 and s16x2 arithmetic", From(90), (8, 0);
    PackedInt8 = "u8x4 and s8x4 arithmetic", Only(&[
        Arch::SM_107A, Arch::SM_107F, Arch::SM_120A, Arch::SM_120F, Arch::SM_121A, Arch::SM_121F,
    ]), (9, 2);
    IntegerRelu = "integer min and max with `.relu`", From(90), (8, 0);
    TanhAndEx2F16 = "tanh and f16 ex2", From(75), (7, 0);
    TanhAndEx2Bf16 = "bf16 tanh and ex2", From(90), (7, 8);
    SignExtend = "szext and bmsk", From(75), (7, 6);
    Bf16Convert = "cvt to bf16 and tf32", From(80), (7, 0);
    Bf16FromInteger = "cvt between bf16 and integers", From(90), (7, 8);
    /// On sm_89 it came with PTX 8.1, on sm_90 with 7.8.
    Fp8Convert = "cvt to and from 8-bit floats", From(89), (7, 8);
    Fp4Convert = "cvt to and from 4- and 6-bit floats", BLACKWELL, (8, 6);
    StochasticRounding = "cvt with `.rs`", Only(&[Arch::SM_100A, Arch::SM_103A, Arch::SM_107A]), (8, 7);

    // Warps.
    Redux = "redux", From(80), (7, 0);
    ReduxF32 = "redux on f32", FAMILY_100, (8, 6);
    Elect = "elect", From(90), (8, 0);
    BarrierCta = "barrier.cta", From(75), (7, 8);
}

impl Arch {
    /// The PTX ISA version in which this target has `feature`; `None` when it never does.
    pub fn ptx_for(self, feature: Feature) -> Option<Version> {
        if !self.supports(feature) {
            return None;
        }
        let brought = match feature {
            Feature::Fp8Convert if self.number() == 89 => Version::new(8, 1),
            _ => feature.min_ptx(),
        };
        Some(brought.max(self.min_ptx()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_feature_may_come_later_to_one_target() {
        let version =
            |arch: &str, feature| Arch::parse(arch).and_then(|arch| arch.ptx_for(feature));
        assert_eq!(
            version("sm_89", Feature::Fp8Convert),
            Some(Version::new(8, 1))
        );
        assert_eq!(
            version("sm_90", Feature::Fp8Convert),
            Some(Version::new(7, 8))
        );
        assert_eq!(version("sm_80", Feature::Fp8Convert), None);
        // Nothing comes before its target.
        let elect = version("sm_100", Feature::Elect);
        assert_eq!(elect, Arch::parse("sm_100").map(Arch::min_ptx));
    }

    #[test]
    fn every_feature_exists_somewhere_and_no_later_than_now() {
        for &feature in Feature::ALL {
            let first = feature.support().first();
            let first = first.unwrap_or_else(|| panic!("{feature:?} exists nowhere"));
            assert!(first.ptx_for(feature) <= Some(crate::arch::NEWEST_PTX));
        }
    }

    #[test]
    fn support_reads_as_the_end_of_a_sentence() {
        assert_eq!(Feature::CpAsync.support().to_string(), "sm_80 or later");
        assert_eq!(Feature::Wgmma.support().to_string(), "sm_90a");
        assert_eq!(
            Feature::MmaBlockScale.support().to_string(),
            "sm_120a/f or sm_121a/f"
        );
    }
}
