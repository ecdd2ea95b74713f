//! The kernel and the variant that multiply groups on Hopper's warpgroups.
//!
//! An expert layer's products ([`super::experts`]) are the same kernel with more in it ([`Fused`]): rows
//! that are gathered on the way in, a gated pair, rows that are weighed and go to their places.

use super::data::places;
use super::kernel::{GroupedArgs, tiles_of};
use super::problem::{Grouped, Shapes, work};
use super::schedule::schedule as usual;
use super::stacked::{Cut, Groups, maps, refusal, total_rows};
use super::table::Found;
use crate::error::KernelError;
use crate::family::{Target, Variant};
use crate::gemm::gather::Gather;
use crate::gemm::pieces::state_words;
use crate::gemm::warpgroup::{Ends, Factors, Levels, Side, ring};
use crate::gemm::{
    Epilogue, Finish, Gated, Input, Load, Major, Output, Placed, Scales, Stored, Tiling, left,
};
use crate::job::{Step, buffer};
use crate::plan::LaunchPlan;
use heist_builder::{
    Arch, BuildError, Feature, Global, Half, Kernel, MmaInput, On, TensorMap, Val, WgmmaResult,
    bf16, f16, kernel_params,
};
use heist_launch::Dim3;
use heist_sched::{Schedule, Tiled, TiledKernel};

kernel_params! {
    /// The kernel's parameters.
    pub(crate) struct WgmmaArgs {
        /// The rows of all groups.
        a: TensorMap<f16, 3>,
        /// The right matrices.
        b: TensorMap<f16, 3>,
        /// The results.
        d: Global<u8>,
        /// The matrix whose rows are gathered, where they are.
        x: Global<u16>,
        /// Of each row of all groups, which one it is: where it is gathered from, or goes to.
        index: Global<u32>,
        /// The factor of each place that rows go to.
        factors: Global<f32>,
        /// Where each group's rows end.
        shapes: Global<u32>,
        /// Not read.
        places: Global<u64>,
        /// What was bad, in check mode.
        record: Global<u32>,
        /// How many groups there are.
        groups: u32,
        /// Columns of every group.
        n: u32,
        /// Depth of every group.
        k: u32,
        /// Elements of A, for the check.
        a_len: u64,
        /// Of B.
        b_len: u64,
        /// Of D.
        d_len: u64,
    }
}

/// What else a product of groups does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Fused {
    /// Rows of A are gathered by the index, of which so many entries stand for one row.
    pub(super) gathered: Option<u32>,
    /// B has the columns of a gate and then as many others, and the result is
    /// `silu(A * gate) * (A * others)`.
    pub(super) gated: bool,
    /// Each row is multiplied by its factor, and goes where the index says.
    pub(super) placed: bool,
}

/// Everything that is fixed when a kernel is built.
#[derive(Clone, Copy, Debug)]
struct Form {
    tiling: Tiling,
    fused: Fused,
    cut: Cut,
    finish: Finish,
    /// Whether whole stages cover the depth.
    even_depth: bool,
}

impl Form {
    fn new(problem: &Grouped, [n, k]: [u32; 2], tiling: &Tiling, fused: Fused) -> Form {
        let mut finish = Finish::new(&Epilogue::default(), Scales::None, n);
        finish.scaled = fused.placed;
        Form {
            tiling: *tiling,
            fused,
            cut: Cut::new(problem, n, [tiling.rows, fused.width(tiling)], fused.gated),
            finish,
            even_depth: k.is_multiple_of(tiling.depth),
        }
    }
}

impl Fused {
    /// Columns of the result that a tile has.
    pub(super) fn width(&self, tiling: &Tiling) -> u32 {
        match self.gated {
            false => tiling.cols,
            true => tiling.cols / 2,
        }
    }
}

fn build<H: Half + MmaInput>(
    form: &Form,
    output: Output,
    tiles: Dim3,
    schedule: &Schedule,
    arch: Arch,
) -> Result<TiledKernel<WgmmaArgs>, BuildError> {
    match output {
        Output::F16 => build_typed::<H, f16>(form, tiles, schedule, arch),
        Output::Bf16 => build_typed::<H, bf16>(form, tiles, schedule, arch),
        Output::F32 => build_typed::<H, f32>(form, tiles, schedule, arch),
    }
}

fn build_typed<H: Half + MmaInput, O: Stored>(
    form: &Form,
    tiles: Dim3,
    schedule: &Schedule,
    arch: Arch,
) -> Result<TiledKernel<WgmmaArgs>, BuildError> {
    let tiling = &form.tiling;
    let tiled = Tiled::<WgmmaArgs>::new("grouped_gemm_wgmma", tiles)
        .schedule(schedule)
        .block(tiling.threads())
        .min_blocks(tiling.blocks);
    let tiled = match form.fused.gathered {
        None => tiled.state(state_words(tiling)),
        // The threads that gather rows do not learn when to stop.
        Some(_) => tiled,
    };
    tiled.build(arch, |k, args, tiles| {
        // As the table and the check know them; the matrices themselves are
        // the copy engine's.
        let known = GroupedArgs {
            a: args.d,
            b: args.d,
            d: args.d,
            shapes: args.shapes,
            places: args.places,
            record: args.record,
            groups: args.groups,
            n: args.n,
            k: args.k,
            a_len: args.a_len,
            b_len: args.b_len,
            d_len: args.d_len,
        };
        let gathered = form.fused.gathered.is_some();
        let ring = ring(k, tiling, [Major::Depth, form.cut.b_major], gathered);
        let maps = [args.b, args.a];
        let maps = if gathered { &maps[..1] } else { &maps[..] };
        let ends = Ends::new(k, tiling, &ring, maps, gathered).pausing(tiles.pause());
        let work = Work {
            args: &args,
            groups: Groups::new(k, known, [args.a, args.b], form.cut),
            form: *form,
        };
        let body = |tile| {
            work.groups.locate(tile, |found, sides| {
                let col0 = sides[1].first;
                work.groups.if_good(found, col0, || {
                    ends.tile::<H, ()>(
                        work.factors(found, sides),
                        Levels::One,
                        |_| (),
                        |sums, row, ()| {
                            k.comment("the epilogue");
                            work.store::<O>(k, found, [found.row + row, col0], sums);
                        },
                    );
                });
            });
        };
        let done = if form.cut.check {
            // No copy is issued before the tile has passed the check.
            tiles.each(body)
        } else {
            let begin = |tile| {
                let locate = |found, sides| ends.begin(work.factors(found, sides));
                work.groups.locate(tile, locate);
            };
            tiles.each_ahead(body, begin)
        };
        ends.finish();
        done
    })
}

/// What a kernel makes of its groups.
struct Work<'r, 'k> {
    args: &'r WgmmaArgs<On<'k>>,
    groups: Groups<'k>,
    form: Form,
}

impl<'k> Work<'_, 'k> {
    /// What a tile multiplies.
    fn factors(&self, found: Found<'k>, [left, right]: [Side<'k>; 2]) -> Factors<'k> {
        let Form { tiling, fused, .. } = self.form;
        Factors {
            left,
            right,
            gather: fused
                .gathered
                .map(|per| self.gather(found, left.first, per)),
            from: left.first.kernel().c(0),
            steps: (self.args.k + (tiling.depth - 1)) / tiling.depth,
        }
    }

    /// Where the rows of a tile come from, whose first is row `first` of all groups.
    fn gather(&self, found: Found<'k>, first: Val<'k, u32>, per: u32) -> Gather<'k> {
        let member = self.groups.member(found.group);
        Gather {
            from: self.args.x.cast::<f16>(),
            depth: self.args.k,
            index: self.args.index.at(first),
            per,
            inside: left(member.m, found.row),
            even: self.form.even_depth,
        }
    }

    /// Stores 64 rows of accumulators, which begin at a row and column of a group.
    fn store<O: Stored>(
        &self,
        k: &Kernel<'k>,
        found: Found<'k>,
        [row, col]: [Val<'k, u32>; 2],
        sums: &WgmmaResult<'k>,
    ) {
        let Work { args, groups, form } = self;
        let mut to = groups.to::<O>(found.group, [row, col]);
        if form.fused.placed {
            to.d = args.d.cast::<O>().at(col);
            to.placed = Some(Placed {
                places: args.index.at(groups.begin(found.group) + row),
                factors: args.factors,
            });
        }
        match form.fused.gated {
            false => form.finish.store(k, sums, &to),
            true => form.finish.store(k, &Gated { k: *k, sums }, &to),
        }
    }
}

/// The buffers of a product.
pub(super) struct Names {
    pub(super) a: &'static str,
    pub(super) b: &'static str,
    pub(super) d: &'static str,
    pub(super) index: &'static str,
    pub(super) factors: &'static str,
}

/// The launch of a product in tiles of this shape; `None` where there is nothing to do.
pub(super) fn step(
    problem: &Grouped,
    tiling: &Tiling,
    fused: Fused,
    names: &Names,
    schedule: &Schedule,
    target: Target,
) -> Result<Option<Step>, KernelError> {
    problem.check_shapes()?;
    tiling.check()?;
    let Shapes::Rows { n, k, .. } = &problem.shapes else {
        return Err(KernelError::unfit("ask first whether it suits"));
    };
    let tiles = tiles_of(problem, tiling.rows, fused.width(tiling));
    if tiles.count() == 0 || total_rows(problem) == 0 {
        return Ok(None);
    }
    let form = Form::new(problem, [*n, *k], tiling, fused);
    let kernel = match problem.input {
        Input::F16 => build::<f16>(&form, problem.output, tiles, schedule, target.arch)?,
        _ => build::<bf16>(&form, problem.output, tiles, schedule, target.arch)?,
    };
    let launch = kernel.plan(target.resident(&kernel.built.launch, tiling.registers()))?;
    let (_, [a_len, b_len, d_len]) = places(problem);
    let [a, b] = maps(
        problem,
        [names.a, names.b],
        [*n, *k],
        &form.cut,
        tiling.depth,
    );
    let args = WgmmaArgs {
        // Rows that are gathered have no map: any other stands for it.
        a: match fused.gathered {
            None => a,
            Some(_) => b.clone(),
        },
        b,
        d: buffer(names.d),
        x: buffer(names.a),
        index: buffer(names.index),
        factors: buffer(names.factors),
        shapes: buffer("shapes"),
        places: buffer(if problem.check { "places" } else { "shapes" }),
        record: buffer(if problem.check { "record" } else { "shapes" }),
        groups: problem.len() as u32,
        n: *n,
        k: *k,
        a_len,
        b_len,
        d_len,
    };
    Ok(Some(Step::tiled(&kernel, &launch, args)))
}

/// Microseconds that a product takes in such tiles, about.
pub(super) fn time(problem: &Grouped, tiling: &Tiling, fused: Fused, target: Target) -> f64 {
    let Shapes::Rows { rows, n, k } = &problem.shapes else {
        return f64::INFINITY;
    };
    let tiles: u64 = rows
        .iter()
        .map(|m| u64::from(m.div_ceil(tiling.rows)))
        .sum::<u64>()
        * u64::from(n.div_ceil(fused.width(tiling)));
    // A gated pair has the matrices of the others besides.
    let used = rows.iter().filter(|rows| **rows > 0).count() as f64;
    let others = match fused.gated {
        false => 0.0,
        true => used * f64::from(*n) * f64::from(*k) * f64::from(problem.input.bytes()),
    };
    let load = Load {
        units: tiles as f64,
        steps: f64::from(k.div_ceil(tiling.depth)),
        fetched: tiling.rows + tiling.cols,
        bytes: work(problem).bytes + others,
        astride: !k.is_multiple_of(64),
        longer: match fused.gathered {
            None => 0.0,
            Some(_) => GATHERED * f64::from(tiling.rows) / 128.0,
        },
    };
    load.time(tiling, target)
}

/// Cycles that a step of 128 rows takes longer where threads gather them beside the copy engine: 0.09 us
/// on an H200.
const GATHERED: f64 = 158.0;

/// `wgmma` fed by the copy engine, in tiles of one shape.
#[derive(Debug)]
pub(super) struct Wgmma {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    pub(super) tiling: Tiling,
}

impl Variant for Wgmma {
    type Problem = Grouped;

    fn name(&self) -> &'static str {
        self.name
    }

    fn about(&self) -> &'static str {
        self.about
    }

    fn suits(&self, problem: &Grouped, target: Target) -> Result<u32, String> {
        if !target.arch.supports(Feature::Wgmma) {
            return Err(format!("{} has no wgmma: it needs sm_90a", target.arch));
        }
        if let Some(why) = refusal(problem) {
            return Err(why);
        }
        let time = time(problem, &self.tiling, Fused::default(), target);
        // Wherever it can, it is ahead of `mma.sync`; among its shapes the fastest.
        Ok(u32::MAX - (time * 100.0).min(1e9) as u32)
    }

    fn plan(
        &self,
        problem: &Grouped,
        schedule: Option<&Schedule>,
        target: Target,
    ) -> Result<LaunchPlan, KernelError> {
        let Wgmma { name, tiling, .. } = self;
        let text = format!("grouped-gemm {problem} {tiling}");
        let plan = LaunchPlan::new(text, *name, work(problem));
        let own = usual(target);
        let step = step(
            problem,
            &self.tiling,
            Fused::default(),
            &NAMES,
            schedule.unwrap_or(&own),
            target,
        )?;
        Ok(step.into_iter().fold(plan, LaunchPlan::step))
    }
}

/// The buffers of a product with nothing else in it.
const NAMES: Names = Names {
    a: "a",
    b: "b",
    d: "d",
    index: "shapes",
    factors: "d",
};
