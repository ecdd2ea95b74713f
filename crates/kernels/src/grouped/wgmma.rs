//! The kernel and the variant that multiply groups on Hopper's warpgroups.
//!
//! Groups that differ in their rows alone are one matrix A to the copy engine, in
//! which a group is a row to begin at, and as many matrices B as there are groups.
//! A tile may also load rows of the next group; they are not stored.
//!
//! An expert layer's products ([`super::experts`]) are the same kernel with more in it ([`Fused`]): rows
//! that are gathered on the way in, a gated pair, rows that are weighed and go to their places.

use super::check;
use super::data::places;
use super::kernel::{GroupedArgs, tiles_of};
use super::problem::{Grouped, Shapes, work};
use super::schedule::schedule as usual;
use super::table::{Described, Found, Table};
use crate::error::KernelError;
use crate::family::{Target, Variant};
use crate::gemm::gather::Gather;
use crate::gemm::warpgroup::{Ends, Factors, Levels, Matrices, Side, ring};
use crate::gemm::{
    Epilogue, Finish, Gated, Input, Load, Major, Output, Placed, Scales, Stored, Tiling, To, left,
    tensor_element,
};
use crate::job::{Step, buffer};
use crate::plan::LaunchPlan;
use heist_builder::{
    Arch, BuildError, Feature, Global, Half, Kernel, MmaInput, On, TensorMap, Val, WgmmaResult,
    bf16, f16, kernel_params,
};
use heist_launch::Dim3;
use heist_sched::{Schedule, Tile, Tiled, TiledKernel};

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
    b_major: Major,
    finish: Finish,
    /// Entries of the table of groups.
    capacity: u32,
    check: bool,
    /// Whether whole tiles cover the columns.
    even_cols: bool,
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
            b_major: problem.layout.b(),
            finish,
            capacity: (problem.len() as u32).next_power_of_two().max(32),
            check: problem.check,
            even_cols: n.is_multiple_of(fused.width(tiling)),
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
    Tiled::<WgmmaArgs>::new("grouped_gemm_wgmma", tiles)
        .schedule(schedule)
        .block(tiling.threads())
        .min_blocks(tiling.blocks)
        .build(arch, |k, args, tiles| {
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
            let table = Table::new(k, &known, Described::Rows, form.capacity, tiling.rows);
            let gathered = form.fused.gathered.is_some();
            let ring = ring(k, tiling, [Major::Depth, form.b_major], gathered);
            let maps = [args.b, args.a];
            let maps = if gathered { &maps[..1] } else { &maps[..] };
            let ends = Ends::new(k, tiling, &ring, maps, gathered);
            let groups = Groups {
                args: &args,
                known: &known,
                table,
                form: *form,
            };
            let body = |tile| {
                groups.locate(tile, |found, factors| {
                    let col0 = factors.right.first;
                    let run = || {
                        ends.tile::<H>(factors, Levels::One, |sums, row| {
                            k.comment("the epilogue");
                            groups.store::<O>(k, found, [found.row + row, col0], sums);
                        });
                    };
                    if form.check {
                        let member = Described::Rows.member(&known, found.group);
                        k.if_(check::good(k, &known, &found, &member, col0), run);
                    } else {
                        run();
                    }
                });
            };
            let done = if form.check {
                // No copy is issued before the tile has passed the check.
                tiles.each(body)
            } else {
                let begin = |tile| groups.locate(tile, |_, factors| ends.begin(factors));
                tiles.each_ahead(body, begin)
            };
            ends.finish();
            done
        })
}

/// The groups inside the kernel.
struct Groups<'r, 'k> {
    args: &'r WgmmaArgs<On<'k>>,
    known: &'r GroupedArgs<On<'k>>,
    table: Table<'k>,
    form: Form,
}

impl<'k> Groups<'_, 'k> {
    /// Runs `each` where a tile is some group's: with that group, and where the
    /// tile's rows of A and columns of B are.
    fn locate(&self, tile: Tile<'k>, each: impl Fn(Found<'k>, Factors<'k>)) {
        let k = tile.x.kernel();
        let found = self.table.find(tile.y);
        k.if_(found.inside, || {
            let [across, ..] = tile.grid();
            let (found, col) = self.table.down_first(found, [tile.x, tile.y], across);
            let Form { tiling, fused, .. } = self.form;
            let first = Described::Rows.begin(self.known, found.group) + found.row;
            let left = Side {
                map: self.args.a,
                major: Major::Depth,
                number: k.c(0),
                first,
                span: 64,
                apart: None,
            };
            let right = Side {
                map: self.args.b,
                major: self.form.b_major,
                number: found.group,
                first: col * fused.width(&tiling),
                span: 64,
                apart: fused.gated.then_some(self.args.n),
            };
            let factors = Factors {
                left,
                right,
                gather: fused.gathered.map(|per| self.gather(found, first, per)),
                from: k.c(0),
                steps: (self.args.k + (tiling.depth - 1)) / tiling.depth,
            };
            each(found, factors);
        });
    }

    /// Where the rows of a tile come from, whose first is row `first` of all groups.
    fn gather(&self, found: Found<'k>, first: Val<'k, u32>, per: u32) -> Gather<'k> {
        let member = Described::Rows.member(self.known, found.group);
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
        let Groups { args, form, .. } = self;
        let member = Described::Rows.member(self.known, found.group);
        let (first, placed) = match form.fused.placed {
            false => {
                let first = row.cast::<u64>() * args.n.cast::<u64>() + col.cast::<u64>();
                (member.d + first, None)
            }
            true => {
                let all = Described::Rows.begin(self.known, found.group) + row;
                let placed = Placed {
                    places: args.index.at(all),
                    factors: args.factors,
                };
                (col.cast::<u64>(), Some(placed))
            }
        };
        let d = args.d.cast::<O>().at(first);
        let to = To {
            d,
            c: d,
            bias: d,
            pitch: args.n,
            rows: Some(left(member.m, row)),
            cols: (!form.even_cols).then(|| args.n - col),
            alpha: k.c(1.0),
            beta: k.c(0.0),
            scales: None,
            placed,
        };
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
    let element = tensor_element(problem.input);
    let Shapes::Rows { rows, n, k } = &problem.shapes else {
        return Err(KernelError::unfit("ask first whether it suits"));
    };
    let tiles = tiles_of(problem, tiling.rows, fused.width(tiling));
    let total: u64 = rows.iter().map(|&m| u64::from(m)).sum();
    if tiles.count() == 0 || total == 0 {
        return Ok(None);
    }
    let form = Form::new(problem, [*n, *k], tiling, fused);
    let kernel = match problem.input {
        Input::F16 => build::<f16>(&form, problem.output, tiles, schedule, target.arch)?,
        _ => build::<bf16>(&form, problem.output, tiles, schedule, target.arch)?,
    };
    let launch = kernel.plan(target.resident(&kernel.built.launch, tiling.registers()))?;
    let (_, [a_len, b_len, d_len]) = places(problem);
    let a = Matrices {
        element,
        major: Major::Depth,
        outer: total,
        depth: *k,
        pitch: *k,
        count: 1,
    };
    let (major, outer) = (form.b_major, n * (1 + u32::from(fused.gated)));
    let b = Matrices {
        major,
        outer: outer.into(),
        pitch: match major {
            Major::Depth => *k,
            Major::Outer => outer,
        },
        count: problem.len() as u32,
        ..a
    };
    let b = b.map(names.b, fused.width(tiling), tiling.depth);
    let args = WgmmaArgs {
        // Rows that are gathered have no map: any other stands for it.
        a: match fused.gathered {
            None => a.map(names.a, tiling.rows, tiling.depth),
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
        if !matches!(problem.input, Input::F16 | Input::Bf16) {
            return Err(format!("it multiplies f16 and bf16, not {}", problem.input));
        }
        let Shapes::Rows { n, k, .. } = &problem.shapes else {
            return Err("it takes groups that differ in their rows alone".into());
        };
        let pitch = match problem.layout.b() {
            Major::Depth => *k,
            Major::Outer => *n,
        };
        if *k == 0 || !(k.is_multiple_of(8) && pitch.is_multiple_of(8)) {
            return Err("tensor copies need rows that start at multiples of 16 bytes".into());
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
