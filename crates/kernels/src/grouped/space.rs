//! The search space of a grouped multiplication: every tile shape that can be tried, with its
//! guards and its modelled time.

use super::entry::{PARAMETERS, ROWS};
use super::problem::{Grouped, Shapes};
use super::tiles::Wgmma;
use super::variant::FAMILY;
use crate::entry::{Settings, runs};
use crate::error::KernelError;
use crate::family::{Target, Variant};
use crate::gemm::Tiling;
use crate::plan::LaunchPlan;
use crate::space::{Tuned, choice, choice_or, only, schedule};
use heist_tune::{Axis, Candidate, Proposal};

/// The candidates of a problem, each judged: tiles on warpgroups where the device has them, and the
/// kernels with fixed tiles.
pub(super) fn proposals(problem: &Grouped, target: Target) -> Vec<Proposal> {
    let named = FAMILY.variants.iter().map(|variant| Proposal {
        candidate: Candidate::new([("variant", variant.name())]),
        judged: variant.suits(problem, target).map(|_| None),
    });
    let axes = [
        Axis::new("rows", [64, 128]),
        Axis::new("cols", [64, 96, 128, 160, 192, 224, 256]),
        Axis::new("depth", [64, 128]),
        Axis::new("stages", [2, 3, 4, 5, 6, 8]),
        Axis::new("blocks", [1, 2]),
    ];
    let tiled = Axis::product(&axes).into_iter().map(|candidate| Proposal {
        judged: judge(problem, &candidate, target).map(Some),
        candidate,
    });
    tiled.chain(named).collect()
}

impl Tuned for Grouped {
    const KERNEL: &'static str = "grouped-gemm";

    fn words(&self) -> Option<String> {
        let mut words = Settings::default();
        let others: &[&str] = match &self.shapes {
            Shapes::Rows { rows, n, k } => {
                words.set("rows", runs(rows));
                words.set("n", n.to_string());
                words.set("k", k.to_string());
                &[]
            }
            Shapes::Masked { counts, room, n, k } => {
                words.set("rows", runs(counts));
                words.set("room", room.to_string());
                words.set("n", n.to_string());
                words.set("k", k.to_string());
                &[]
            }
            Shapes::Own(groups) => {
                words.set("groups", runs(groups));
                &ROWS
            }
        };
        for (name, word) in [
            ("dtype", self.input.as_str()),
            ("out", self.output.as_str()),
            ("layout", self.layout.as_str()),
            ("scales", self.scales.as_str()),
            ("sums", self.sums.as_str()),
        ] {
            words.set(name, word);
        }
        words.set("check", self.check.to_string());
        Some(words.problem(PARAMETERS, others))
    }

    fn tuned(&self, candidate: &Candidate, target: Target) -> Result<LaunchPlan, KernelError> {
        let schedule = schedule(candidate)?;
        if candidate.get("cols").is_none() {
            only(candidate, "a kernel without `cols`", ["variant"])?;
            let variant = FAMILY.choose(candidate.get("variant"), self, target)?;
            return variant.plan(self, schedule.as_ref(), target);
        }
        let choices = ["rows", "cols", "depth", "stages", "blocks", "pingpong"];
        only(candidate, "a tile of warpgroups", choices)?;
        judge(self, candidate, target).map_err(KernelError::unfit)?;
        variant(candidate)?.plan(self, schedule.as_ref(), target)
    }
}

fn variant(candidate: &Candidate) -> Result<Wgmma, KernelError> {
    let number = |name| choice::<u32>(candidate, name);
    let tiling = Tiling::new(
        number("rows")?,
        number("cols")?,
        number("depth")?,
        number("stages")?,
    )
    .blocks(choice_or(candidate, "blocks", 1)?);
    let tiling = Tiling {
        pingpong: choice_or(candidate, "pingpong", 0)? == 1,
        ..tiling
    };
    tiling.check()?;
    Ok(Wgmma {
        name: "wgmma",
        about: "tiles that were tried",
        tiling,
    })
}

fn judge(problem: &Grouped, candidate: &Candidate, target: Target) -> Result<f64, String> {
    let variant = variant(candidate).map_err(|error| error.to_string())?;
    // Among tiles on warpgroups the rank is the model's time, in hundredths of a microsecond
    // down from the highest.
    let rank = variant.suits(problem, target)?;
    Ok(f64::from(u32::MAX - rank) / 100.0)
}
