//! The architectures: their names, what fits on them, and what they can do.
//!
//! An [`Arch`] is a target that today's assembler knows, `sm_75` and up. Its
//! [`Limits`] say how much of everything a block and an SM have, [`Feature`]
//! says which instructions exist from where on, and [`Gpu`] names the products
//! that the simulator can stand in for. The assembler is the judge of all that
//! it can see: `tests/arch.rs` asks it about every row.
//!
//! ```
//! use heist_ptx::arch::{Arch, Feature};
//! let hopper: Arch = "sm_90a".parse().unwrap();
//! assert!(hopper.supports(Feature::Wgmma));
//! assert!(!hopper.supports(Feature::ClusterLaunchControl));
//! assert_eq!(hopper.limits().shared_opt_in, 227 * 1024);
//! assert_eq!(hopper.min_ptx().to_string(), "8.0");
//! ```

mod feature;
mod gpu;
mod limits;

pub use feature::{Feature, Support};
pub use gpu::Gpu;
pub use limits::{Footprint, Limiter, Limits, Residency};

use crate::module::Version;
use std::fmt;
use std::str::FromStr;

/// The newest PTX ISA version that is known here.
pub const NEWEST_PTX: Version = Version::new(9, 4);

/// Which instructions a target name promises, and where its code may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Variant {
    /// `sm_90`: runs on every later architecture too.
    Plain,
    /// `sm_100f`: has the family's own instructions, and runs in that family
    /// from this member on.
    Family,
    /// `sm_90a`: has all of the architecture's own instructions, and runs on
    /// nothing else.
    Specific,
}

/// A target that the assembler can make code for.
///
/// Only the names in [`Arch::ALL`] exist; older targets, which are legal in a
/// file but have no machine any more, are [`OldTarget`]s.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Arch {
    number: u16,
    variant: Variant,
}

macro_rules! archs {
    ($($name:ident = $number:literal $variant:ident $text:literal ($major:literal, $minor:literal);)*) => {
        impl Arch {
            $(
                #[doc = concat!("`", $text, "`.")]
                pub const $name: Arch = Arch { number: $number, variant: Variant::$variant };
            )*

            /// All of them, oldest first; of one number the plain one, then `a`, then `f`.
            pub const ALL: &[Arch] = &[$(Arch::$name,)*];

            /// How `.target` spells it.
            pub const fn name(self) -> &'static str {
                match (self.number, self.variant) {
                    $(($number, Variant::$variant) => $text,)*
                    // The fields are private and every constant is in the table.
                    _ => "sm_75",
                }
            }

            /// The first PTX ISA version that has this target.
            pub const fn min_ptx(self) -> Version {
                match (self.number, self.variant) {
                    $(($number, Variant::$variant) => Version::new($major, $minor),)*
                    _ => NEWEST_PTX,
                }
            }
        }
    };
}

// PTX ISA, "Release Notes" and ".target"; every row is asked of ptxas.
archs! {
    SM_75 = 75 Plain "sm_75" (6, 3);
    SM_80 = 80 Plain "sm_80" (7, 0);
    SM_86 = 86 Plain "sm_86" (7, 1);
    SM_87 = 87 Plain "sm_87" (7, 4);
    SM_88 = 88 Plain "sm_88" (9, 0);
    SM_89 = 89 Plain "sm_89" (7, 8);
    SM_90 = 90 Plain "sm_90" (7, 8);
    SM_90A = 90 Specific "sm_90a" (8, 0);
    SM_100 = 100 Plain "sm_100" (8, 6);
    SM_100A = 100 Specific "sm_100a" (8, 6);
    SM_100F = 100 Family "sm_100f" (8, 8);
    SM_103 = 103 Plain "sm_103" (8, 8);
    SM_103A = 103 Specific "sm_103a" (8, 8);
    SM_103F = 103 Family "sm_103f" (8, 8);
    SM_107 = 107 Plain "sm_107" (9, 4);
    SM_107A = 107 Specific "sm_107a" (9, 4);
    SM_107F = 107 Family "sm_107f" (9, 4);
    SM_110 = 110 Plain "sm_110" (9, 0);
    SM_110A = 110 Specific "sm_110a" (9, 0);
    SM_110F = 110 Family "sm_110f" (9, 0);
    SM_120 = 120 Plain "sm_120" (8, 7);
    SM_120A = 120 Specific "sm_120a" (8, 7);
    SM_120F = 120 Family "sm_120f" (8, 8);
    SM_121 = 121 Plain "sm_121" (8, 8);
    SM_121A = 121 Specific "sm_121a" (8, 8);
    SM_121F = 121 Family "sm_121f" (8, 8);
}

impl Arch {
    /// The architecture called `name`, `sm_90a`; the virtual spelling
    /// `compute_90a` is the same thing.
    pub fn parse(name: &str) -> Option<Arch> {
        let tail = name
            .strip_prefix("sm_")
            .or_else(|| name.strip_prefix("compute_"))?;
        Arch::ALL
            .iter()
            .copied()
            .find(|arch| arch.name().strip_prefix("sm_") == Some(tail))
    }

    /// The number in its name: 90 for `sm_90a`.
    pub const fn number(self) -> u16 {
        self.number
    }

    /// What its suffix says.
    pub const fn variant(self) -> Variant {
        self.variant
    }

    /// Compute capability, major and minor: (9, 0) for `sm_90a`.
    pub const fn capability(self) -> (u8, u8) {
        ((self.number / 10) as u8, (self.number % 10) as u8)
    }

    /// The same architecture without its suffix.
    pub const fn plain(self) -> Arch {
        Arch {
            number: self.number,
            variant: Variant::Plain,
        }
    }

    /// How much a block and an SM have.
    pub const fn limits(self) -> Limits {
        limits::of(self.number)
    }

    /// Whether instructions of this kind exist on it.
    pub fn supports(self, feature: Feature) -> bool {
        feature.support().includes(self)
    }

    /// How much static `.shared` the assembler accepts in a kernel: 48 KiB, but
    /// on an `a` target, whose code runs nowhere else, all that a block can
    /// opt in to.
    pub const fn static_shared_limit(self) -> u32 {
        match self.variant {
            Variant::Specific => self.limits().shared_opt_in,
            _ => self.limits().shared_static,
        }
    }

    /// How many bytes the parameters of a kernel may take in a file of this version.
    pub fn param_limit(self, version: Version) -> u32 {
        let limits = self.limits();
        if version >= Version::new(8, 1) {
            limits.param_bytes
        } else {
            limits.param_bytes_before_8_1
        }
    }

    /// Whether PTX for this target can be assembled for `machine` (what follows
    /// `ptxas -arch=`), or by a driver for it: plain code for everything from
    /// its number on, an `a` target's for itself alone, an `f` target's in
    /// its family from its number on.
    pub const fn assembles_for(self, machine: Arch) -> bool {
        match self.variant {
            Variant::Plain => machine.number >= self.number,
            Variant::Specific => {
                machine.number == self.number && matches!(machine.variant, Variant::Specific)
            }
            Variant::Family => {
                machine.number >= self.number && machine.number / 10 == self.number / 10
            }
        }
    }

    /// Whether PTX for this target runs on a device with the capability of
    /// `device`, whatever suffix that is written with: a real device has all
    /// of its own instructions.
    pub const fn runs_on(self, device: Arch) -> bool {
        self.assembles_for(Arch {
            number: device.number,
            variant: Variant::Specific,
        })
    }
}

impl fmt::Display for Arch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Debug for Arch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Arch {
    type Err = UnknownArch;
    fn from_str(name: &str) -> Result<Arch, UnknownArch> {
        Arch::parse(name).ok_or_else(|| UnknownArch(name.to_string()))
    }
}

/// A name that no architecture here has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownArch(pub String);

impl fmt::Display for UnknownArch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "`{}` is not an architecture; there are sm_75 to sm_121f",
            self.0
        )
    }
}

impl std::error::Error for UnknownArch {}

/// A target that is still legal in a file, although the assembler makes no code for
/// the machine itself any more (or never did: `sm_101` is the old number of `sm_110`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OldTarget {
    /// The number in its name.
    pub number: u16,
    /// The first PTX ISA version with which ptxas takes it. With addresses of 64 bits there is
    /// none below 2.3.
    pub min_ptx: Version,
}

impl OldTarget {
    const ALL: &[(&str, u16, Version)] = &[
        ("10", 10, Version::new(2, 3)),
        ("11", 11, Version::new(2, 3)),
        ("12", 12, Version::new(2, 3)),
        ("13", 13, Version::new(2, 3)),
        ("20", 20, Version::new(2, 3)),
        ("21", 21, Version::new(2, 3)),
        ("30", 30, Version::new(3, 0)),
        ("32", 32, Version::new(4, 0)),
        ("35", 35, Version::new(3, 1)),
        ("37", 37, Version::new(4, 1)),
        ("50", 50, Version::new(4, 0)),
        ("52", 52, Version::new(4, 1)),
        ("53", 53, Version::new(4, 2)),
        ("60", 60, Version::new(5, 0)),
        ("61", 61, Version::new(5, 0)),
        ("62", 62, Version::new(5, 0)),
        ("70", 70, Version::new(5, 1)),
        ("72", 72, Version::new(6, 1)),
        ("82", 82, Version::new(6, 2)),
        ("101", 101, Version::new(8, 6)),
        ("101a", 101, Version::new(8, 6)),
        ("101f", 101, Version::new(8, 8)),
    ];

    /// The names of all of them.
    pub fn names() -> impl Iterator<Item = String> {
        OldTarget::ALL.iter().map(|(tail, ..)| format!("sm_{tail}"))
    }

    /// The old target called `name`.
    pub fn parse(name: &str) -> Option<OldTarget> {
        let tail = name
            .strip_prefix("sm_")
            .or_else(|| name.strip_prefix("compute_"))?;
        OldTarget::ALL
            .iter()
            .find(|(known, ..)| *known == tail)
            .map(|&(_, number, min_ptx)| OldTarget { number, min_ptx })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_parse_back() {
        for &arch in Arch::ALL {
            assert_eq!(Arch::parse(arch.name()), Some(arch));
            let virtual_name = arch.name().replace("sm_", "compute_");
            assert_eq!(Arch::parse(&virtual_name), Some(arch));
            assert_eq!(OldTarget::parse(arch.name()), None);
        }
        for wrong in [
            "sm_", "sm_9", "sm_90b", "90", "SM_90", "sm_070", "sm_75a", "",
        ] {
            assert_eq!(Arch::parse(wrong), None, "{wrong}");
        }
        assert_eq!(OldTarget::parse("sm_70").map(|old| old.number), Some(70));
    }

    #[test]
    fn code_runs_where_its_target_says() {
        assert!(Arch::SM_80.assembles_for(Arch::SM_121F));
        assert!(!Arch::SM_90A.assembles_for(Arch::SM_100A));
        assert!(!Arch::SM_90A.assembles_for(Arch::SM_90));
        assert!(Arch::SM_90A.runs_on(Arch::SM_90));
        assert!(Arch::SM_100F.assembles_for(Arch::SM_103));
        assert!(!Arch::SM_100F.assembles_for(Arch::SM_110A));
        assert!(!Arch::SM_103F.assembles_for(Arch::SM_100A));
    }
}
