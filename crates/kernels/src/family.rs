//! Kernel families: one thing to compute, and several ways to do it.
//!
//! A *problem* is what to compute: shapes, types, the epilogue. A [`Variant`] is one kernel that
//! computes it: a tensor-core generation, a tile shape, a step of a ladder. A [`Family`] holds the
//! variants and chooses the one that suits problem and device best, so that a variant for a newer
//! GPU only has to be added to the list.
//!
//! ```
//! use heist_builder::Arch;
//! use heist_kernels::Target;
//! use heist_kernels::gemm::{FAMILY, Gemm, Input, Layout, Output};
//!
//! let problem = Gemm::new(4096, 4096, 4096, Input::Bf16, Output::Bf16, Layout::Nt);
//! let best = |arch| FAMILY.choose(None, &problem, Target { arch, sms: 132 });
//! let (hopper, ampere) = (best(Arch::SM_90A)?, best(Arch::SM_80)?);
//! assert!(hopper.name().contains("wgmma") && ampere.name().contains("mma"));
//! assert_ne!(hopper.name(), ampere.name());
//! # Ok::<(), heist_kernels::KernelError>(())
//! ```

use crate::error::KernelError;
use crate::job::Job;
use crate::plan::LaunchPlan;
use heist_builder::{Arch, LaunchInfo};
use heist_launch::Buffer;
use heist_ptx::arch::Footprint;
use heist_sched::Schedule;

/// What a kernel is made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// The architecture.
    pub arch: Arch,
    /// Multiprocessors.
    pub sms: u32,
}

impl Target {
    /// The same without `spare` multiprocessors: persistent kernels leave them free, so that a
    /// small kernel beside them starts at once. At least one remains.
    #[must_use]
    pub fn leaving(self, spare: u32) -> Target {
        Target {
            sms: self.sms.saturating_sub(spare).max(1),
            ..self
        }
    }

    /// How many clusters of a kernel run at a time, when each of its threads
    /// takes `registers` registers. It affects speed only, so an estimate is safe; it is at least
    /// one.
    pub fn resident(&self, kernel: &LaunchInfo, registers: u32) -> u32 {
        let blocks = kernel.cluster.map_or(1, |cluster| cluster.iter().product());
        let footprint = Footprint {
            threads: kernel.block.iter().product(),
            registers,
            shared: kernel.static_shared + kernel.dynamic_shared,
        };
        let resident = self.sms * self.arch.limits().residency(footprint).blocks;
        (resident / blocks.max(1)).max(1)
    }
}

/// One kernel of a family.
pub trait Variant: Sync {
    /// What it solves.
    type Problem;
    /// Its name, as in `--variant NAME`.
    fn name(&self) -> &'static str;
    /// What it is, in a line.
    fn about(&self) -> &'static str;
    /// How well it suits: the highest number is chosen.
    ///
    /// # Errors
    /// Why it can't solve the problem on this device at all.
    fn suits(&self, problem: &Self::Problem, target: Target) -> Result<u32, String>;
    /// Builds it and plans its launches. Without a schedule it takes the one
    /// that suits it.
    ///
    /// # Errors
    /// What could not be built or planned.
    fn plan(
        &self,
        problem: &Self::Problem,
        schedule: Option<&Schedule>,
        target: Target,
    ) -> Result<LaunchPlan, KernelError>;
    /// What a buffer must hold for a problem, such as where sequences begin; zeros do where nothing is
    /// said.
    fn contents(&self, problem: &Self::Problem, buffer: &str) -> Option<Buffer> {
        let _ = (problem, buffer);
        None
    }
    /// The same with data on the host.
    ///
    /// # Errors
    /// What could not be built or planned.
    fn job(
        &self,
        problem: &Self::Problem,
        schedule: Option<&Schedule>,
        target: Target,
    ) -> Result<Job, KernelError> {
        let plan = self.plan(problem, schedule, target)?;
        Ok(plan.job(|buffer| self.contents(problem, buffer)))
    }
}

/// A family of kernels.
pub struct Family<P: 'static> {
    /// Its name.
    pub name: &'static str,
    /// Its kernels.
    pub variants: &'static [&'static dyn Variant<Problem = P>],
}

impl<P> Family<P> {
    /// The names of the variants, with a line about each.
    pub fn list(&self) -> Vec<(&'static str, &'static str)> {
        let variants = self.variants.iter();
        variants
            .map(|variant| (variant.name(), variant.about()))
            .collect()
    }

    /// The launches of the variant of that name, or of the one that suits best.
    ///
    /// # Errors
    /// As [`Family::choose`], and what could not be built or planned.
    pub fn plan(
        &self,
        name: Option<&str>,
        problem: &P,
        target: Target,
    ) -> Result<LaunchPlan, KernelError> {
        self.choose(name, problem, target)?
            .plan(problem, None, target)
    }

    /// The variant of that name, or the one that suits best.
    ///
    /// # Errors
    /// When there is none of that name, or none that can do it: each one's
    /// reason.
    pub fn choose(
        &self,
        name: Option<&str>,
        problem: &P,
        target: Target,
    ) -> Result<&'static dyn Variant<Problem = P>, KernelError> {
        if let Some(name) = name {
            let found = self.variants.iter().find(|variant| variant.name() == name);
            let Some(variant) = found else {
                let known: Vec<_> = self.variants.iter().map(|v| v.name()).collect();
                return Err(KernelError::unfit(format!(
                    "{} has no variant `{name}`; there are {}",
                    self.name,
                    known.join(", ")
                )));
            };
            return match variant.suits(problem, target) {
                Ok(_) => Ok(*variant),
                Err(why) => Err(KernelError::unfit(format!("{} {name}: {why}", self.name))),
            };
        }
        let mut best = None;
        let mut refusals = Vec::new();
        for variant in self.variants {
            match variant.suits(problem, target) {
                Ok(rank) if best.is_none_or(|(other, _)| rank > other) => {
                    best = Some((rank, *variant));
                }
                Ok(_) => {}
                Err(why) => refusals.push(format!("{}: {why}", variant.name())),
            }
        }
        best.map(|(_, variant)| variant).ok_or_else(|| {
            KernelError::unfit(format!(
                "no {} kernel can do this on {}: {}",
                self.name,
                target.arch,
                refusals.join("; ")
            ))
        })
    }
}
