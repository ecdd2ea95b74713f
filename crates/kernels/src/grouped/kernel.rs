//! The kernel: a table of groups once a block, then tiles, each a
//! multiplication of its group.

use super::check;
use super::problem::Grouped;
use super::table::{Described, Table};
use crate::error::KernelError;
use crate::gemm::{Added, Config, Epilogue, Input, Major, Output, Scales, Spread, Width};
use crate::gemm::{
    Cut, Element, Finish, From, Operand, Plan, Stored, To, WarpPlace, left, multiply, pipeline,
    skip,
};
use heist_builder::{Arch, BuildError, Global, Kernel, Tf32, Val, bf16, f16, kernel_params};
use heist_launch::Dim3;
use heist_sched::{Schedule, Tiled, TiledKernel};

kernel_params! {
    /// The kernel's parameters.
    pub struct GroupedArgs {
        /// The left matrices.
        a: Global<u8>,
        /// The right matrices.
        b: Global<u8>,
        /// The results.
        d: Global<u8>,
        /// Where each group's rows end; how many it uses; or m, n and k of each group.
        shapes: Global<u32>,
        /// Where each group's A, B and D begin, in elements; not read where
        /// groups differ in their rows alone.
        places: Global<u64>,
        /// What was bad, in check mode.
        record: Global<u32>,
        /// How many groups there are.
        groups: u32,
        /// Columns of every group, where they are the same.
        n: u32,
        /// Depth of every group, where it is the same.
        k: u32,
        /// Rows that there is room for in every group, where they are masked.
        room: u32,
        /// Elements of A, for the check.
        a_len: u64,
        /// Of B.
        b_len: u64,
        /// Of D.
        d_len: u64,
    }
}

/// Everything that is fixed when the kernel is built.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GroupedPlan {
    pub(crate) tile: Plan,
    described: Described,
    capacity: u32,
    check: bool,
}

impl GroupedPlan {
    pub(crate) fn new(problem: &Grouped, config: Config) -> Result<GroupedPlan, KernelError> {
        problem.check_shapes()?;
        if let Some(why) = refusal(problem) {
            return Err(KernelError::unfit(format!("grouped-gemm {config}: {why}")));
        }
        config.check()?;
        let bytes = problem.input.bytes();
        let depth = config.depth * 2 / bytes;
        let groups = problem.groups();
        // Places and pitches are multiples of every group's k (and, for the
        // other layout, n), so the least aligned of them decides.
        let narrowest = |pitch: &dyn Fn(&super::Group) -> u32| {
            let widths = groups.iter().map(|group| Width::of(pitch(group), bytes));
            widths.min().unwrap_or(Width::Sixteen)
        };
        let along_k = narrowest(&|group| group.k);
        let b_major = problem.layout.b();
        let b_width = match b_major {
            Major::Depth => along_k,
            Major::Outer => narrowest(&|group| group.n),
        };
        let even_depth = groups.iter().all(|group| group.k.is_multiple_of(depth));
        let even_cols = groups
            .iter()
            .all(|group| group.n.is_multiple_of(config.cols));
        let operand = |name, major, outer, width, even_outer| Operand {
            name,
            major,
            outer,
            depth,
            width,
            even_outer,
            even_depth,
            kept: false,
        };
        let aligned = |to: u32| groups.iter().all(|group| group.n.is_multiple_of(to));
        let pitch = [8, 2].into_iter().find(|to| aligned(*to)).unwrap_or(1);
        let finish = Finish::new(&Epilogue::default(), Scales::None, pitch);
        Ok(GroupedPlan {
            tile: Plan {
                rows: None,
                config,
                input: problem.input,
                output: problem.output,
                a: operand("a", Major::Depth, config.rows, along_k, false),
                b: operand("b", b_major, config.cols, b_width, even_cols),
                finish,
                even_rows: false,
                even_cols,
            },
            described: Described::of(problem),
            capacity: (groups.len() as u32).next_power_of_two().max(32),
            check: problem.check,
        })
    }
}

/// Why `mma.sync` can't multiply this.
pub(crate) fn refusal(problem: &Grouped) -> Option<String> {
    problem.input.is_tiny().then(|| {
        format!(
            "it multiplies f16, bf16 and tf32; {} takes warpgroups (sm_90a)",
            problem.input
        )
    })
}

/// The grid of tiles that covers every distribution of `total` rows over groups, or exactly the
/// groups where each has its own shape.
pub(crate) fn tiles_of(problem: &Grouped, height: u32, width: u32) -> Dim3 {
    let groups = problem.groups();
    let wide = groups.iter().map(|g| g.n.div_ceil(width)).max();
    let high: u64 = match problem.alike() {
        Some(alike) => alike.most_tiles(height),
        None => {
            let high = groups.iter().map(|g| u64::from(g.m.div_ceil(height)));
            high.sum()
        }
    };
    Dim3::new(wide.unwrap_or(0), high as u32, 1)
}

/// Builds the kernel of a plan.
pub(crate) fn build(
    plan: &GroupedPlan,
    tiles: Dim3,
    schedule: &Schedule,
    arch: Arch,
) -> Result<TiledKernel<GroupedArgs>, BuildError> {
    match plan.tile.input {
        Input::F16 => build_from::<f16>(plan, tiles, schedule, arch),
        Input::Bf16 => build_from::<bf16>(plan, tiles, schedule, arch),
        // Others were refused.
        _ => build_from::<Tf32>(plan, tiles, schedule, arch),
    }
}

fn build_from<T: Element>(
    plan: &GroupedPlan,
    tiles: Dim3,
    schedule: &Schedule,
    arch: Arch,
) -> Result<TiledKernel<GroupedArgs>, BuildError> {
    match plan.tile.output {
        Output::F16 => build_typed::<T, f16>(plan, tiles, schedule, arch),
        Output::Bf16 => build_typed::<T, bf16>(plan, tiles, schedule, arch),
        Output::F32 => build_typed::<T, f32>(plan, tiles, schedule, arch),
    }
}

fn build_typed<T: Element, O: Stored>(
    plan: &GroupedPlan,
    tiles: Dim3,
    schedule: &Schedule,
    arch: Arch,
) -> Result<TiledKernel<GroupedArgs>, BuildError> {
    let (tile_plan, config) = (&plan.tile, plan.tile.config);
    let cuts = cuts(&config);
    Tiled::<GroupedArgs>::new("grouped_gemm", tiles)
        .schedule(schedule)
        .block(config.threads())
        .min_blocks(config.blocks)
        .build(arch, |k, args, tiles| {
            let table = Table::new(k, &args, plan.described, plan.capacity, config.rows);
            let stages = pipeline::<T>(k, tile_plan);
            tiles.each(|tile| {
                let found = table.find(tile.y);
                k.if_(found.inside, || {
                    let member = plan.described.member(&args, found.group);
                    let col0 = tile.x * config.cols;
                    let run = || {
                        let a = From {
                            at: args.a.cast::<T>().at(member.a).at(skip(
                                Major::Depth,
                                found.row,
                                member.k,
                            )),
                            pitch: member.k,
                            outer: member.m - found.row,
                            depth: member.k,
                            follows: k.c(false),
                            row: found.row,
                            joined: k.c(true),
                        };
                        let b_pitch = match tile_plan.b.major {
                            Major::Depth => member.k,
                            Major::Outer => member.n,
                        };
                        let b = From {
                            at: args.b.cast::<T>().at(member.b).at(skip(
                                tile_plan.b.major,
                                col0,
                                b_pitch,
                            )),
                            pitch: b_pitch,
                            outer: member.n - col0,
                            depth: member.k,
                            follows: tile_plan.b.follows(col0),
                            row: tile_plan.b.stored_row(col0, k.c(0)),
                            joined: k.c(true),
                        };
                        let finish = |cut: &Cut| {
                            let warp = WarpPlace::new(k, cut);
                            let sums = multiply(k, tile_plan, &stages, cut, a, b);
                            k.comment("the epilogue");
                            // Read again: registers are short in the main loop.
                            let member = plan.described.member(&args, found.group);
                            let (row, col) = (found.row + warp.row, col0 + warp.col);
                            let first =
                                row.cast::<u64>() * member.n.cast::<u64>() + col.cast::<u64>();
                            let d = args.d.cast::<O>().at(member.d).at(first);
                            let to = To {
                                d,
                                c: Added::new(Spread::Matrix, d),
                                bias: d,
                                pitch: member.n,
                                rows: Some(left(member.m, row)),
                                cols: (!tile_plan.even_cols).then(|| left(member.n, col)),
                                alpha: k.c(1.0),
                                beta: k.c(0.0),
                                scales: None,
                                placed: None,
                            };
                            tile_plan.finish.store(k, &sums, &to);
                        };
                        cases(k, &cuts, a.outer, &finish);
                    };
                    // Groups of fewer columns than others have no tile here.
                    let has_column = match plan.described {
                        Described::Rows | Described::Masked => k.c(true),
                        Described::Own => col0.lt(member.n),
                    };
                    k.if_(has_column, || {
                        if plan.check {
                            k.if_(check::good(k, &args, &found, &member, col0), run);
                        } else {
                            run();
                        }
                    });
                });
            })
        })
}

/// Tile heights from the smallest to the whole tile: a group with few rows is multiplied with
/// little more than those.
fn cuts(config: &Config) -> Vec<Cut> {
    let short = [32, 64]
        .into_iter()
        .filter_map(|rows| Cut::short(config, rows));
    short.chain([Cut::of(config)]).collect()
}

/// Runs `each` with the first cut that has enough rows.
fn cases<'k>(k: &Kernel<'k>, cuts: &[Cut], rows: Val<'k, u32>, each: &dyn Fn(&Cut)) {
    match cuts {
        [] => {}
        [last] => each(last),
        [first, rest @ ..] => k.if_else(
            rows.le(first.rows),
            || each(first),
            || cases(k, rest, rows, each),
        ),
    }
}
