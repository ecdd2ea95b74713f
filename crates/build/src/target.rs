//! What a kernel is built for, and what it may use there.

use heist_ptx::Version;
use std::fmt;

/// A GPU architecture, as `.target` names it: `sm_90a`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Arch {
    number: u16,
    kind: ArchKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum ArchKind {
    /// `sm_90`: runs on every later GPU too.
    Plain,
    /// `sm_100f`: runs on its family.
    Family,
    /// `sm_90a`: runs on this one only.
    Exact,
}

impl Arch {
    /// A100.
    pub const SM_80: Arch = Arch::plain(80);
    /// A10, RTX 30.
    pub const SM_86: Arch = Arch::plain(86);
    /// L4, RTX 40.
    pub const SM_89: Arch = Arch::plain(89);
    /// H100 and H200, what later GPUs also have.
    pub const SM_90: Arch = Arch::plain(90);
    /// H100 and H200, with wgmma.
    pub const SM_90A: Arch = Arch::exact(90);
    /// B200, what later GPUs also have.
    pub const SM_100: Arch = Arch::plain(100);
    /// B200 and its family.
    pub const SM_100F: Arch = Arch {
        number: 100,
        kind: ArchKind::Family,
    };
    /// B200.
    pub const SM_100A: Arch = Arch::exact(100);
    /// RTX 50, what later GPUs also have.
    pub const SM_120: Arch = Arch::plain(120);
    /// RTX 50.
    pub const SM_120A: Arch = Arch::exact(120);

    const fn plain(number: u16) -> Arch {
        Arch {
            number,
            kind: ArchKind::Plain,
        }
    }

    const fn exact(number: u16) -> Arch {
        Arch {
            number,
            kind: ArchKind::Exact,
        }
    }

    /// The lowest PTX version that knows this target.
    pub(crate) fn first_version(self) -> Version {
        match (self.number, self.kind) {
            (80, _) => Version::new(7, 0),
            (86, _) => Version::new(7, 1),
            (89 | 90, ArchKind::Plain) => Version::new(7, 8),
            (90, _) => Version::new(8, 0),
            (100, ArchKind::Family) => Version::new(8, 8),
            (100, _) => Version::new(8, 6),
            (120, ArchKind::Family) => Version::new(8, 8),
            _ => Version::new(8, 7),
        }
    }

    /// Whether it has a feature.
    pub fn has(self, feature: Feature) -> bool {
        match feature {
            Feature::Wgmma => self == Arch::SM_90A,
            Feature::ClcMulticast => self.number >= 100 && self.kind != ArchKind::Plain,
            Feature::RegisterBudget => self.number >= 90 && self.kind != ArchKind::Plain,
            other => u32::from(self.number) >= other.first_arch(),
        }
    }

    /// The most shared memory one block can have, in bytes.
    pub fn max_shared(self) -> u64 {
        match self.number {
            80 => 163 * 1024,
            86 | 89 | 120 => 99 * 1024,
            _ => 227 * 1024,
        }
    }
}

impl fmt::Display for Arch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            ArchKind::Plain => "",
            ArchKind::Family => "f",
            ArchKind::Exact => "a",
        };
        write!(f, "sm_{}{kind}", self.number)
    }
}

macro_rules! features {
    ($($(#[$doc:meta])* $name:ident: sm $arch:literal, ptx $major:literal . $minor:literal, $what:literal;)*) => {
        /// Something that not every architecture or PTX version has.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Feature { $($(#[$doc])* $name,)* }

        impl Feature {
            /// All of them.
            pub const ALL: &[Feature] = &[$(Feature::$name,)*];

            /// The lowest PTX version that has it.
            pub fn version(self) -> Version {
                match self { $(Feature::$name => Version::new($major, $minor),)* }
            }

            fn first_arch(self) -> u32 {
                match self { $(Feature::$name => $arch,)* }
            }

            /// What it is, in words.
            pub fn describe(self) -> &'static str {
                match self { $(Feature::$name => $what,)* }
            }
        }
    };
}

features! {
    /// `cp.async`.
    CpAsync: sm 80, ptx 7 . 0, "cp.async, a copy from global to shared memory that goes on by itself";
    /// `mbarrier`.
    Mbarrier: sm 80, ptx 7 . 0, "mbarrier, a barrier in shared memory";
    /// `redux.sync`.
    Redux: sm 80, ptx 7 . 0, "redux.sync, a reduction over a warp in one instruction";
    /// `mma.sync` with f16, bf16 and tf32 inputs.
    Mma: sm 80, ptx 7 . 0, "mma.sync with f16, bf16 or tf32 inputs";
    /// `ldmatrix`.
    Ldmatrix: sm 75, ptx 6 . 5, "ldmatrix, a load of matrix fragments from shared memory";
    /// `stmatrix`.
    Stmatrix: sm 90, ptx 7 . 8, "stmatrix, a store of matrix fragments to shared memory";
    /// Thread block clusters.
    Clusters: sm 90, ptx 7 . 8, "clusters of thread blocks and their distributed shared memory";
    /// `mbarrier.try_wait`, `arrive.expect_tx` and remote arrival.
    TxBarrier: sm 90, ptx 8 . 0, "mbarriers that count bytes (expect_tx)";
    /// `mbarrier.test_wait.parity`.
    ParityWait: sm 80, ptx 7 . 1, "mbarrier.test_wait.parity, a look at a barrier by its parity";
    /// `st.async`.
    AsyncStore: sm 90, ptx 8 . 1, "st.async, a store to another block that an mbarrier counts";
    /// `cp.async.bulk`.
    BulkCopy: sm 90, ptx 8 . 0, "cp.async.bulk, a copy of a whole row of bytes by the copy engine";
    /// `cp.async.bulk.tensor`.
    Tma: sm 90, ptx 8 . 0, "cp.async.bulk.tensor, tensor copies through a tensor map (TMA)";
    /// `elect.sync`.
    Elect: sm 90, ptx 8 . 0, "elect.sync, the choice of one lane of a warp";
    /// `griddepcontrol`.
    DependentLaunch: sm 90, ptx 7 . 8, "griddepcontrol, programmatic dependent launch";
    /// `wgmma`.
    Wgmma: sm 90, ptx 8 . 0, "wgmma, matrix multiplication by a warpgroup";
    /// `setmaxnreg`.
    RegisterBudget: sm 90, ptx 8 . 0, "setmaxnreg, moving registers between warps";
    /// `clusterlaunchcontrol`.
    Clc: sm 100, ptx 8 . 6, "clusterlaunchcontrol, taking over blocks that have not started";
    /// `clusterlaunchcontrol` with `.multicast::cluster::all`.
    ClcMulticast: sm 100, ptx 8 . 6, "clusterlaunchcontrol with a response to every block of a cluster";
}

impl Feature {
    /// Where it is found, in words.
    pub fn found_on(self) -> String {
        match self {
            Feature::Wgmma => "sm_90a alone".into(),
            Feature::RegisterBudget => "the `a` and `f` targets from sm_90a on".into(),
            Feature::ClcMulticast => "the `a` and `f` targets from sm_100a on".into(),
            other => format!("sm_{} and later", other.first_arch()),
        }
    }
}
