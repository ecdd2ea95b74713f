//! The kernel that multiplies groups on Hopper's warpgroups.
//!
//! An expert layer's products ([`super::experts`]) are the same kernel with more in it ([`Fused`]): rows
//! that are gathered on the way in, a gated pair, rows that are weighed and go to their places.

use super::data::places;
use super::kernel::tiles_of;
use super::problem::{Alike, Grouped};
use super::stacked::{Cut, Groups, known, maps};
use super::table::{Described, Found};
use super::tiles;
use crate::error::KernelError;
use crate::family::Target;
use crate::gemm::gather::Gather;
use crate::gemm::pieces::{state_words, tile_time};
use crate::gemm::warpgroup::{Ends, Factors, Levels, Role, Side, ring};
use crate::gemm::{
    Ahead, BlockScales, CopiedScales, Epilogue, Finish, Gated, Input, Major, Output, Placed,
    SCALE_BLOCK, Scales, Staged, Staging, Stored, Tiling, left, scale_maps,
};
use crate::job::{Step, buffer};
use crate::overlap::tiles_a_leave;
use heist_builder::{
    Arch, BuildError, E4m3, E5m2, Global, Kernel, On, Ptr, TensorMap, Val, WgmmaInput, WgmmaResult,
    bf16, f16, kernel_params,
};
use heist_launch::{Arg, BufferRef, Dim3, TensorElement, TensorMap as Map};
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
        /// The same, where the copy engine stores them.
        out: TensorMap<f16, 3>,
        /// The matrix whose rows are gathered, where they are.
        x: Global<u16>,
        /// Of each row of all groups, which one it is: where it is gathered from, or goes to.
        index: Global<u32>,
        /// The factor of each place that rows go to.
        factors: Global<f32>,
        /// Factors of A, where it has any.
        scale_a: Global<f32>,
        /// Of the right matrices.
        scale_b: Global<f32>,
        /// Those of A one after the other, where they come with their stages.
        scales_a: TensorMap<f32, 1>,
        /// Those of the right matrices.
        scales_b: TensorMap<f32, 1>,
        /// Where each group's rows end, or how many it uses.
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
        /// Steps of the depth, each a stage.
        steps: u32,
        /// Rows that there is room for in every group, where they are masked.
        room: u32,
        /// Rows of the matrix of all groups.
        rows: u32,
        /// Rows of tiles that the groups have at most.
        most: u32,
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
    scales: Scales,
    /// Whether products are accumulated in two levels.
    levels: bool,
    /// Whether scales of blocks come with their stages.
    copied: bool,
    /// Whether whole stages cover the depth.
    even_depth: bool,
    /// How results leave through shared memory, where they do.
    staging: Option<Staging>,
    /// Whether factors of rows and columns are read before the products.
    ahead: bool,
    /// Whether two warpgroups store in turns, since the depth is short.
    in_turns: bool,
    /// What the schedule leaves of the registers.
    left: tiles::Left,
}

/// Bytes of such a depth.
const SHORT: u32 = 2048;

impl Form {
    fn new(problem: &Grouped, [n, k]: [u32; 2], tiling: &Tiling, fused: Fused) -> Form {
        let mut finish = Finish::new(&Epilogue::default(), problem.scales, n);
        finish.scaled = fused.placed;
        finish.eights = n.is_multiple_of(8);
        Form {
            tiling: *tiling,
            fused,
            cut: Cut::new(problem, n, [tiling.rows, fused.width(tiling)], fused.gated),
            finish,
            scales: problem.scales,
            levels: problem.in_levels(),
            copied: problem.scales == Scales::Blocks && tiling.copies_scales(),
            even_depth: k.is_multiple_of(tiling.depth),
            staging: None,
            ahead: false,
            in_turns: tiling.sharing() == 2
                && problem.scales != Scales::Blocks
                && k * problem.input.bytes() <= SHORT,
            left: tiles::Left::by(problem, None, fused),
        }
    }

    /// How the products of a tile are added.
    fn sums(&self) -> Levels {
        match (self.levels, self.scales) {
            (false, _) => Levels::One,
            (true, Scales::Blocks) => Levels::Scaled,
            (true, _) => Levels::Two,
        }
    }

    /// Whether the warpgroup that copies and those that multiply have a loop over tiles each, as in a single product. In check
    /// mode no copy is issued before the tile has passed, which threads of both find out together.
    fn in_roles(&self, schedule: &Schedule) -> bool {
        let gathered = self.fused.gathered.is_some();
        tiles::in_roles(schedule, gathered) && !self.cut.check
    }

    /// The same with results that leave through shared memory, where they can and there is room for it.
    fn staged(self, problem: &Grouped, target: Target) -> Form {
        let Fused { gated, placed, .. } = self.fused;
        // Factors of rows and columns that are read panel by panel make it up to 4% slower, and 256 rows leave no registers to read them ahead.
        let ahead = problem.scales == Scales::Rows && self.tiling.rows <= 128;
        let plain = (ahead || !self.finish.reads()) && self.finish.aligned == 8;
        let halves = problem.output != Output::F32 && plain;
        let used = tiles::shared_bytes(problem, &self.tiling);
        let room = self.tiling.room(target.arch).saturating_sub(used);
        let staging = (halves && !gated && !placed)
            .then(|| Staging::new(&self.tiling, room, 4))
            .flatten()
            .filter(|staging| staging.in_panels(&self.tiling));
        Form {
            staging,
            ahead: ahead && staging.is_some(),
            ..self
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

fn build<H: WgmmaInput>(
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

fn build_typed<H: WgmmaInput, O: Stored>(
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
    let roles = form.in_roles(schedule);
    let tiled = if roles { tiled.apart() } else { tiled };
    // 256 rows of 8-bit floats leave no register to begin with the tile of a block's number: it spilled.
    let tiled = match size_of::<H::Stored>() {
        1 => tiled.draws_all(),
        _ => tiled,
    };
    tiled.build(arch, |k, args, tiles| {
        let gathered = form.fused.gathered.is_some();
        let ring = ring(
            k,
            tiling,
            [Major::Depth, form.cut.b_major],
            gathered,
            form.copied,
        );
        let maps = [args.b, args.a];
        let maps = if gathered { &maps[..1] } else { &maps[..] };
        let ends = Ends::new(k, tiling, &ring, maps, gathered)
            .pausing(tiles.pause())
            .moving_once(roles)
            .taking(form.left.more)
            .copying_with(form.left.copying)
            .in_turns(roles && form.in_turns);
        let staged = form
            .staging
            .map(|shape| Staged::new(k, tiling, shape, args.out));
        let work = Work {
            args: &args,
            staged,
            groups: Groups::new(k, known!(args), [args.a, args.b], form.cut),
            form: *form,
        };
        let levels = form.sums();
        let body = |role: Role, tile| {
            work.groups.each(tile, args.most, |found, sides| {
                let col0 = sides[1].first;
                work.groups.if_good(found, col0, || {
                    ends.tile::<H, _>(
                        role,
                        work.factors(found, sides),
                        levels,
                        &|| (),
                        |row, _| work.read_ahead(k, found, [found.row + row, col0]),
                        |sums, row, read| {
                            k.comment("the epilogue");
                            work.store::<O>(k, found, [found.row + row, col0], sums, read);
                        },
                    );
                });
            });
        };
        let done = if roles {
            let role = |copies| match copies {
                true => Role::Copies,
                false => Role::Multiplies,
            };
            let begin = |copies| ends.move_registers(levels, role(copies));
            let moves: [&dyn Fn(bool); 2] = [&begin, &|_| ()];
            tiles.each_in_roles(ends.copies(), moves, |tile, copies| {
                body(role(copies), tile);
            })
        } else if form.cut.check {
            // No copy is issued before the tile has passed the check.
            tiles.each(|tile| body(Role::Both, tile))
        } else {
            let begin = |tile| {
                let locate = |found, sides| ends.begin(work.factors(found, sides));
                work.groups.locate(tile, locate);
            };
            tiles.each_ahead(|tile| body(Role::Both, tile), begin)
        };
        ends.finish();
        if let Some(staged) = staged {
            staged.finish();
        }
        done
    })
}

/// What a kernel makes of its groups.
struct Work<'r, 'k> {
    args: &'r WgmmaArgs<On<'k>>,
    staged: Option<Staged<'k>>,
    groups: Groups<'k>,
    form: Form,
}

impl<'k> Work<'_, 'k> {
    /// What a tile multiplies.
    fn factors(&self, found: Found<'k>, [left, right]: [Side<'k>; 2]) -> Factors<'k> {
        let Form { fused, .. } = self.form;
        Factors {
            left,
            right,
            gather: fused
                .gathered
                .map(|per| self.gather(found, left.first, per)),
            scales: (self.form.scales == Scales::Blocks).then(|| self.scales(found)),
            from: left.first.kernel().c(0),
            steps: self.args.steps,
            used: self.used(found),
        }
    }

    /// Rows of a tile that are its group's, where its warpgroups share it and one may have none.
    fn used(&self, found: Found<'k>) -> Option<Val<'k, u32>> {
        (self.form.tiling.sharing() > 1).then(|| {
            let member = self.groups.member(found.group);
            left(member.m, found.row)
        })
    }

    /// The scales of a tile's group.
    fn scales(&self, found: Found<'k>) -> BlockScales<'k> {
        let Work {
            args, groups, form, ..
        } = self;
        let begin = groups.begin(found.group);
        let depth = (args.k + (SCALE_BLOCK - 1)) / SCALE_BLOCK;
        let across = (args.n + (SCALE_BLOCK - 1)) / SCALE_BLOCK;
        // Of masked groups the scales lie group after group, and rows count from the first
        // group's on: before a group's scales lie `depth` of each row before it, not one.
        let (before, pitch) = match form.cut.described {
            Described::Masked => (begin.mul_wide(depth - 1), args.room),
            _ => (begin.kernel().c(0u64), args.rows),
        };
        let before_b = found.group.mul_wide(across * depth);
        BlockScales {
            a: args.scale_a.at(before),
            pitch,
            b: args.scale_b.at(before_b),
            m: begin + groups.member(found.group).m,
            n: args.n,
            depth,
            swapped: false,
            copied: form.copied.then(|| CopiedScales {
                maps: [args.scales_a, args.scales_b],
                before: [before.cast(), before_b.cast()],
            }),
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

    /// The factors of rows and columns, from the first of these on in a group.
    fn row_factors(
        &self,
        found: Found<'k>,
        [row, col]: [Val<'k, u32>; 2],
    ) -> [Ptr<'k, Global, f32>; 2] {
        let Work { args, groups, .. } = self;
        let of_rows = args.scale_a.at(groups.begin(found.group) + row);
        let of_cols = args.scale_b.at(found.group.mul_wide(args.n));
        [of_rows, of_cols.at(col)]
    }

    /// What the epilogue of 64 rows from there on reads before the products.
    fn read_ahead(
        &self,
        k: &Kernel<'k>,
        found: Found<'k>,
        [row, col]: [Val<'k, u32>; 2],
    ) -> Option<Ahead<'k>> {
        self.form.ahead.then(|| {
            let member = self.groups.member(found.group);
            let inside = [left(member.m, row), left(self.args.n, col)];
            let factors = self.row_factors(found, [row, col]);
            Ahead::read(k, factors, inside, self.form.tiling.cols)
        })
    }

    /// Stores 64 rows of accumulators, which begin at a row and column of a group.
    fn store<O: Stored>(
        &self,
        k: &Kernel<'k>,
        found: Found<'k>,
        [row, col]: [Val<'k, u32>; 2],
        sums: &WgmmaResult<'k>,
        read: Option<Ahead<'k>>,
    ) {
        let Work {
            args, groups, form, ..
        } = self;
        let mut to = groups.to::<O>(found.group, [row, col]);
        let scales = form.finish.of_rows(self.row_factors(found, [row, col]));
        to.scales = scales.map(|scales| scales.ahead(read));
        if form.fused.placed {
            to.d = args.d.cast::<O>().at(col);
            to.placed = Some(Placed {
                places: args.index.at(groups.begin(found.group) + row),
                factors: args.factors,
            });
        }
        match form.fused.gated {
            false => match self.staged {
                None => form.finish.store(k, sums, &to),
                Some(staged) => {
                    let at = [col, groups.begin(found.group) + row, k.c(0)];
                    staged.store_among(&form.finish, sums, at, &to, args.rows);
                }
            },
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
    let Some(alike) = problem.alike() else {
        return Err(KernelError::unfit("ask first whether it suits"));
    };
    let left = tiles::Left::by(problem, Some(schedule), fused);
    if let Some(why) = tiles::unfit(problem, tiling, left, target) {
        return Err(KernelError::unfit(format!("tile shape {tiling}: {why}")));
    }
    let most = tiles_of(problem, tiling.rows, fused.width(tiling));
    if most.count() == 0 || alike.total() == 0 {
        return Ok(None);
    }
    let Alike { n, k, .. } = alike;
    let mut form = Form::new(problem, [n, k], tiling, fused).staged(problem, target);
    form.left = left;
    // A tile that stands for several can't be left half done, and in check mode every decoded tile is
    // one of the launch.
    let tiles = match schedule.pausing || problem.check {
        true => most,
        false => tiles::expected(alike, tiling, most, target),
    };
    form.cut.folded = tiles != most;
    let kernel = match problem.input {
        Input::F16 => build::<f16>(&form, problem.output, tiles, schedule, target.arch)?,
        Input::E4m3 => build::<E4m3>(&form, problem.output, tiles, schedule, target.arch)?,
        Input::E5m2 => build::<E5m2>(&form, problem.output, tiles, schedule, target.arch)?,
        // Others were refused.
        _ => build::<bf16>(&form, problem.output, tiles, schedule, target.arch)?,
    };
    let kernel = kernel.leaving(tiles_a_leave(tile_time(tiling, k * problem.input.bytes())));
    let launch = kernel.plan(target.resident(&kernel.built.launch, tiling.registers()))?;
    let (_, [a_len, b_len, d_len]) = places(problem);
    let [a, b] = maps(problem, [names.a, names.b], alike, &form.cut, tiling.depth);
    let out = match form.staging {
        // The kernel does not look at it.
        None => b.clone(),
        Some(staging) => results(problem, names.d, alike, staging),
    };
    // An unused parameter is set to any buffer.
    let either = |name| {
        buffer(if problem.scales == Scales::None {
            names.d
        } else {
            name
        })
    };
    let [scales_a, scales_b] = match form.copied {
        true => scale_maps(problem.scale_counts(), tiling.rows),
        // The kernel does not look at them.
        false => [b.clone(), b.clone()],
    };
    let args = WgmmaArgs {
        // Rows that are gathered have no map: any other stands for it.
        a: match fused.gathered {
            None => a,
            Some(_) => b.clone(),
        },
        b,
        d: buffer(names.d),
        out,
        x: buffer(names.a),
        index: buffer(names.index),
        factors: buffer(names.factors),
        scale_a: either("scale_a"),
        scale_b: either("scale_b"),
        scales_a,
        scales_b,
        shapes: buffer("shapes"),
        places: buffer(if problem.check { "places" } else { "shapes" }),
        record: buffer(if problem.check { "record" } else { "shapes" }),
        groups: problem.len() as u32,
        n,
        k,
        steps: k.div_ceil(tiling.depth * 2 / problem.input.bytes()),
        room: alike.room.unwrap_or(0),
        rows: alike.total() as u32,
        most: most.y,
        a_len,
        b_len,
        d_len,
    };
    Ok(Some(Step::tiled(&kernel, &launch, args)))
}

/// The map of the results: the rows of all groups.
fn results(problem: &Grouped, name: &str, alike: Alike<'_>, staging: Staging) -> Arg {
    let ([width, high], swizzle) = staging.boxed();
    let element = match problem.output {
        Output::F16 => TensorElement::F16,
        _ => TensorElement::Bf16,
    };
    let dims = [u64::from(alike.n), alike.total(), 1];
    let buffer = BufferRef::Named(name.to_owned());
    Arg::TensorMap(Map::dense(buffer, element, &dims, &[width, high, 1]).swizzle(swizzle))
}
