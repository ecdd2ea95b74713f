//! The search space of attention: every tile shape that can be tried, with its guards and its
//! modelled time.

use super::decode::{Combine, Decode, decode_grid, decode_plan, decode_shape};
use super::entry::{ALIKE, FAMILY, PARAMETERS};
use super::problem::{Layout, Lengths, Mask, Output, Problem, Weights};
use super::warpgroup::{
    Sharing, Stay, WarpgroupShape, Wgmma, warpgroup_plan, warpgroup_schedule, warpgroup_shape,
    with_levels,
};
use crate::entry::{Settings, runs};
use crate::error::KernelError;
use crate::family::{Target, Variant};
use crate::plan::LaunchPlan;
use crate::space::{Tuned, choice, choice_or, names_of, only, schedule, too_much_shared};
use heist_sched::{Schedule, TileSource};
use heist_tune::{Axis, Candidate, Proposal};

/// The candidates of a problem, each judged: the variants as they are, warpgroups and decoding
/// kernels in other tiles.
pub(super) fn proposals(problem: &Problem, target: Target) -> Vec<Proposal> {
    let named = FAMILY.variants.iter().map(|variant| Proposal {
        candidate: Candidate::new([("variant", variant.name())]),
        judged: variant.suits(problem, target).map(|_| None),
    });
    let mut all: Vec<Proposal> = Vec::new();
    if Wgmma.suits(problem, target).is_ok() {
        all.extend(
            Axis::product(&on_warpgroups())
                .into_iter()
                .map(|candidate| Proposal {
                    judged: judge_warpgroups(problem, &candidate, target).map(Some),
                    candidate,
                }),
        );
    }
    if Decode.suits(problem, target).is_ok_and(|rank| rank > 0) {
        all.extend(
            Axis::product(&of_decoding())
                .into_iter()
                .map(|candidate| Proposal {
                    judged: judge_decode(problem, &candidate, target).map(Some),
                    candidate,
                }),
        );
    }
    all.extend(named);
    all
}

/// The choices of a tile on warpgroups.
fn on_warpgroups() -> [Axis; 7] {
    [
        Axis::new("kernel", ["wgmma"]),
        Axis::new("groups", [2, 3]),
        Axis::new("keys", [48, 64, 80, 96, 112, 128, 144, 160, 176]),
        Axis::new("stages", [2, 3, 4]),
        Axis::new("strip", [1, 2, 4]),
        Axis::new("stay", [false, true]),
        Axis::new("turns", [false, true]),
    ]
}

/// Those of a decoding kernel.
fn of_decoding() -> [Axis; 5] {
    [
        Axis::new("kernel", ["decode"]),
        Axis::new("keys", [16, 32, 64, 128, 256]),
        Axis::new("stages", [2, 3, 4, 6]),
        Axis::new("blocks", [1, 2, 3]),
        Axis::new("combine", ["nobody", "last", "launch"]),
    ]
}

impl Tuned for Problem {
    const KERNEL: &'static str = "attention";

    /// Sequences whose lengths are read on the device have those that they are planned for. The
    /// factor of the scores is no part of it: it costs the same whatever it is.
    fn words(&self) -> Option<String> {
        let mut words = Settings::default();
        let same = |one: u32, other: u32| if one == other { 0 } else { one };
        let others: &[&str] = match &self.lengths {
            Lengths::Same {
                batch,
                queries,
                keys,
            } => {
                words.set("batch", batch.to_string());
                words.set("queries", queries.to_string());
                words.set("keys", same(*keys, *queries).to_string());
                if self.layout == Layout::Rows {
                    words.set("layout", "rows");
                }
                &[]
            }
            Lengths::Each(each) => {
                let one = |&(queries, keys): &(u32, u32)| match queries == keys {
                    true => queries.to_string(),
                    false => format!("{queries}:{keys}"),
                };
                words.set("lengths", runs(each.iter().map(one)));
                &ALIKE
            }
        };
        for (name, number) in [
            ("heads", self.heads),
            ("kv-heads", same(self.kv_heads, self.heads)),
            ("dim", self.head_dim),
            ("value-dim", same(self.value_dim(), self.head_dim)),
            ("page", self.page_size.unwrap_or(0)),
            ("append", self.append.map_or(0, |append| append.rows)),
            ("prefix", self.scoring.prefix.unwrap_or(0)),
        ] {
            words.set(name, number.to_string());
        }
        if self.scoring.blocks.is_some() {
            // How much of the work a mask leaves is data.
            return None;
        }
        words.set("dtype", self.dtype.to_string());
        words.set("cache", self.cache.to_string());
        words.set("weights", self.weights.to_string());
        words.set("mask", self.mask.to_string());
        if self.output == Output::F32 {
            words.set("out", "f32");
        }
        words.set("sinks", self.scoring.sinks.to_string());
        for change in &self.scoring.mods {
            match change.name().split_once('=') {
                Some(("softcap", cap)) => words.set("softcap", cap),
                None if matches!(change.name(), "alibi" | "documents") => {
                    words.set(change.name(), "true");
                }
                // A change of the caller's own has no word.
                _ => return None,
            }
        }
        Some(words.problem(PARAMETERS, others))
    }

    fn tuned(&self, candidate: &Candidate, target: Target) -> Result<LaunchPlan, KernelError> {
        let given = schedule(candidate)?;
        match candidate.get("kernel") {
            Some("wgmma") => {
                only(
                    candidate,
                    "attention on warpgroups",
                    names_of(&on_warpgroups()),
                )?;
                judge_warpgroups(self, candidate, target).map_err(KernelError::unfit)?;
                let shape = shape(self, candidate, target)?;
                let own = match shape.stay {
                    Some(_) => Schedule::new(TileSource::Direct),
                    None => warpgroup_schedule(self, target),
                };
                warpgroup_plan(self, shape, given.as_ref().unwrap_or(&own), target)
            }
            Some("decode") => {
                only(candidate, "attention in decoding", names_of(&of_decoding()))?;
                if let Some(given) = given {
                    return Err(KernelError::unfit(format!(
                        "attention decode deals its keys by itself, and takes no schedule such as {given}"
                    )));
                }
                judge_decode(self, candidate, target).map_err(KernelError::unfit)?;
                let (shape, grid) = decoding(self, candidate, target)?;
                decode_plan(self, shape, grid, target)
            }
            Some(other) => Err(KernelError::unfit(format!(
                "attention has no kernel `{other}` to try: there are wgmma and decode"
            ))),
            None => {
                only(candidate, "attention without `kernel`", ["variant"])?;
                let variant = FAMILY.choose(candidate.get("variant"), self, target)?;
                variant.plan(self, given.as_ref(), target)
            }
        }
    }
}

fn shape(
    problem: &Problem,
    candidate: &Candidate,
    target: Target,
) -> Result<WarpgroupShape, KernelError> {
    let shape = WarpgroupShape {
        groups: choice(candidate, "groups")?,
        sharing: Sharing::None,
        keys: choice(candidate, "keys")?,
        stages: choice_or(candidate, "stages", 2)?,
        strip: choice_or(candidate, "strip", 1)?,
        stay: choice_or(candidate, "stay", false)?.then_some(Stay {
            blocks: target.sms,
            resident: 1,
            ahead: true,
        }),
        turns: choice_or(candidate, "turns", false)?,
        ..warpgroup_shape(problem, target)
    };
    let shape = with_levels(problem, shape);
    shape.check()?;
    Ok(shape)
}

/// Microseconds that warpgroups take in these tiles, about: products at three quarters of the
/// peak, what a block of keys and a tile cost besides, and whole rounds where tiles are equal.
fn judge_warpgroups(
    problem: &Problem,
    candidate: &Candidate,
    target: Target,
) -> Result<f64, String> {
    const FLOPS_A_CYCLE: f64 = 4096.0 * 0.75;
    const BLOCK: f64 = 260.0;
    const TILE: f64 = 2600.0;
    const CLOCK: f64 = 1700.0;
    let shape = shape(problem, candidate, target).map_err(|error| error.to_string())?;
    let room = target.arch.limits().shared_opt_in - 2048;
    if let Some(why) = too_much_shared(shape.stage_bytes().into(), room.into(), target) {
        return Err(why);
    }
    // Sums of results and scores, the scores as halves, and what addresses and maxima take.
    let split = u32::from(problem.weights == Weights::Split);
    let registers = problem.value_dim() / 2 + shape.keys / 2 + shape.keys / 4 * (1 + split) + 28;
    let most = shape.registers().multiplying;
    if registers > most {
        return Err(format!(
            "about {registers} registers a thread of the warpgroups that multiply, and they have {most}"
        ));
    }
    let (queries, keys) = problem.longest();
    let seen = match problem.mask {
        Mask::Full => f64::from(keys),
        Mask::Causal => f64::from(keys) / 2.0,
        Mask::Window { left, right } => f64::from(keys.min(left.saturating_add(right))),
    };
    let rows = f64::from(shape.rows());
    let tiles = f64::from(queries.div_ceil(shape.rows()) * problem.heads)
        * problem.sequences().len() as f64;
    let blocks = (seen / f64::from(shape.keys)).ceil();
    let both = f64::from(problem.head_dim + problem.value_dim());
    let product = 2.0 * rows * f64::from(shape.keys) * both / FLOPS_A_CYCLE;
    let finished_aside = if shape.stay.is_some() {
        0.3
    } else {
        1.0 / f64::from(shape.strip)
    };
    let tile = blocks * (product + BLOCK) + TILE * finished_aside.max(0.3);
    Ok(most_tiles(problem, &shape, tiles, target) * tile / CLOCK)
}

/// How many tiles' time the multiprocessor with the most work takes.
fn most_tiles(problem: &Problem, shape: &WarpgroupShape, tiles: f64, target: Target) -> f64 {
    let share = tiles / f64::from(target.sms);
    let strip = f64::from(shape.strip);
    let (queries, _) = problem.longest();
    let equal = queries.div_ceil(shape.rows()).is_multiple_of(shape.strip);
    match problem.mask {
        // Under a causal mask a tile takes up to twice the mean, and the last ones begin late;
        // blocks that stay have theirs dealt beforehand. Measured: 1.0 and 1.4 at 4096 tokens.
        Mask::Causal if shape.strip == 1 && shape.stay.is_none() => share + 1.0,
        Mask::Causal if shape.strip == 1 => share + 1.4,
        // Strips have long tiles and short ones, and take the same time.
        Mask::Full | Mask::Causal if equal => (share / strip).ceil() * strip,
        _ => share + strip / 4.0,
    }
}

fn decoding(
    problem: &Problem,
    candidate: &Candidate,
    target: Target,
) -> Result<(super::decode::DecodeShape, super::decode::Grid), KernelError> {
    let mut shape = decode_shape(problem, target);
    shape.keys = choice(candidate, "keys")?;
    shape.stages = choice(candidate, "stages")?;
    let mut grid = decode_grid(problem, &shape, target);
    let wanted = match candidate.get("combine") {
        Some("nobody") => Combine::Nobody,
        Some("last") => Combine::LastBlock,
        None | Some("launch") => Combine::Launch,
        Some(other) => {
            return Err(KernelError::unfit(format!(
                "combine: parts are combined by nobody, by the last block or by a launch (nobody, last, launch), and `{other}` is none of these"
            )));
        }
    };
    if (wanted == Combine::Nobody) != (grid.combine == Combine::Nobody) {
        return Err(KernelError::unfit(format!(
            "shares of whole tiles are combined by nobody, and others by somebody: here they are {grid}"
        )));
    }
    let times: u32 = choice_or(candidate, "blocks", 1)?;
    grid.combine = wanted;
    if wanted != Combine::Nobody {
        grid.blocks *= times;
    } else if times > 1 {
        return Err(KernelError::unfit(
            "whole tiles have as many blocks as they need",
        ));
    }
    Ok((shape, grid))
}

/// Microseconds that decoding takes with these stages, about: it reads keys and values, as fast
/// as memory gives them and as its stages ask for them.
fn judge_decode(problem: &Problem, candidate: &Candidate, target: Target) -> Result<f64, String> {
    // What a multiprocessor of an H200 got of 3.7 TB/s, in bytes a microsecond.
    const RATE: f64 = 28_000.0;
    const LATENCY: f64 = 1.0;
    const LAUNCH: f64 = 3.0;
    let (shape, grid) = decoding(problem, candidate, target).map_err(|error| error.to_string())?;
    shape.check().map_err(|error| error.to_string())?;
    let bytes = shape.stages * shape.stage_bytes() + shape.other_bytes();
    let limits = target.arch.limits();
    if let Some(why) = too_much_shared(bytes.into(), limits.shared_opt_in.into(), target) {
        return Err(why);
    }
    let group = problem.heads / problem.kv_heads;
    let stages: f64 = problem
        .sequences()
        .iter()
        .map(|&(queries, keys)| {
            let tiles =
                (queries * group).div_ceil(shape.head_rows()) * (problem.kv_heads / shape.heads);
            f64::from(tiles) * f64::from(keys.div_ceil(shape.keys))
        })
        .sum();
    let stage = f64::from(shape.stage_bytes());
    let own = stages / f64::from(grid.blocks.max(1)) * stage;
    let resident = (limits.shared_per_sm / bytes).max(1);
    let together = grid.blocks.div_ceil(target.sms).min(resident);
    let rounds = grid.blocks.div_ceil(target.sms * together).max(1);
    let asked = f64::from(together * shape.stages) * stage / LATENCY;
    let combined = match grid.combine {
        Combine::Nobody => 0.0,
        Combine::LastBlock => 2.0,
        Combine::Launch => 4.0,
    };
    let read = f64::from(rounds * together) * own / asked.min(RATE);
    Ok(LAUNCH + read + combined)
}

#[cfg(test)]
mod tests {
    use super::*;
    use heist_builder::Arch;

    const H200: Target = Target {
        arch: Arch::SM_90A,
        sms: 132,
    };

    /// A choice that nobody looks at would try another kernel than the one that was asked for.
    #[test]
    fn a_candidate_is_used_to_the_last_word() {
        let words = |words: &[(&'static str, &'static str)]| Candidate::new(words.to_vec());
        let problem = Problem::new(1, 8, 1024, 64);
        let on_warpgroups = ("kernel", "wgmma");
        let decoding = [("kernel", "decode"), ("keys", "64"), ("stages", "2")];
        let wrong = [
            (words(&[("variant", "wgmma"), ("keys", "64")]), "keys=64"),
            (
                words(&[
                    on_warpgroups,
                    ("groups", "2"),
                    ("keys", "64"),
                    ("rows", "9"),
                ]),
                "rows=9",
            ),
            (
                words(&[&decoding[..], &[("strip", "2")]].concat()),
                "strip=2",
            ),
            (
                words(&[&decoding[..], &[("combine", "all")]].concat()),
                "`all`",
            ),
        ];
        for (candidate, word) in wrong {
            let refused = problem.tuned(&candidate, H200).expect_err("no choice");
            assert!(refused.to_string().contains(word), "{refused}");
        }
        let right = words(&[on_warpgroups, ("groups", "2"), ("keys", "64")]);
        assert!(problem.tuned(&right, H200).is_ok());
    }

    /// The candidate that the model puts first.
    fn first(problem: &Problem) -> Candidate {
        let timed = proposals(problem, H200).into_iter().filter_map(|proposal| {
            let time = proposal.judged.ok().flatten()?;
            Some((time, proposal.candidate))
        });
        let first = timed.min_by(|(a, _), (b, _)| a.total_cmp(b));
        first.expect("one can be modelled").1
    }

    #[test]
    fn under_a_causal_mask_long_tiles_and_short_ones_are_put_together() {
        let mut problem = Problem::new(1, 16, 4096, 128);
        problem.mask = Mask::Causal;
        let first = first(&problem);
        assert_ne!(first.get("strip"), Some("1"), "{first}");
    }

    #[test]
    fn one_query_is_for_the_kernel_that_reads_at_the_speed_of_memory() {
        let mut problem = Problem::new(16, 32, 4096, 128);
        problem.kv_heads = 8;
        problem.lengths = Lengths::Same {
            batch: 16,
            queries: 1,
            keys: 4096,
        };
        let first = first(&problem);
        assert_eq!(first.get("kernel"), Some("decode"), "{first}");
        // 268 MB at 3.7 TB/s.
        let time = judge_decode(&problem, &first, H200).expect("it fits");
        assert!((65.0..90.0).contains(&time), "{time}");
    }
}
