//! The kernel that multiplies on Hopper's warpgroups: from a problem and a
//! [`Tiling`] to launches.

use super::epilogue::{Finish, Stored, To};
use super::kernel::left;
use super::leave::{Share, Staged, Staging, store_share, store_turned};
use super::meet::Meet;
use super::pieces::state_words;
use super::problem::{Gemm, Input, Layout, Major, Output, Scales};
use super::row_scales::Ahead;
use super::scales::{self, BLOCK, BlockScales, CopiedScales};
use super::split;
use super::tail::{Tail, TailOn, Unit};
use super::tiling::{Cluster, Tiling};
use super::warpgroup::{Edge, Ends, Factors, Levels, Matrices, Role, Side, Stage, ring};
use crate::error::KernelError;
use crate::family::Target;
use crate::job::{Step, buffer};
use crate::overlap::{overlap, wait};
use crate::plan::{LaunchPlan, Purpose};
use heist_builder::{
    Arch, BuildError, BulkPipeline, E4m3, E5m2, Feature, Global, Kernel, On, TensorMap, Tf32, Val,
    WgmmaInput, WgmmaResult, With, bf16, f16, kernel_params,
};
use heist_launch::{Arg, BufferRef, Dim3, ElementType, TensorElement, TensorMap as Map};
use heist_sched::{
    AnyOrder, Extent, Linear, Pause, Policy, Position, Schedule, Tile, TileSource, Tiled,
    TiledKernel, Watch,
};

kernel_params! {
    /// The kernel's parameters.
    pub(crate) struct WgmmaArgs {
        /// The operand with the tile's rows: A, or B where they are swapped.
        left: TensorMap<f16, 3>,
        /// The operand with the tile's columns.
        right: TensorMap<f16, 3>,
        /// The result, where the copy engine stores it.
        out: TensorMap<f16, 3>,
        /// The left operand in boxes of the rows that its last tile has; not read where that one is full.
        left_edge: TensorMap<f16, 3>,
        /// The right one, of its columns.
        right_edge: TensorMap<f16, 3>,
        /// What is added; not read where beta is zero.
        c: Global<u8>,
        /// The result. May be C.
        d: Global<u8>,
        /// What is added to every row; not read where there is none.
        bias: Global<u8>,
        /// Factors of A, where it has any.
        scale_a: Global<f32>,
        /// Of B.
        scale_b: Global<f32>,
        /// Those of A one after the other, where they come with their stages.
        scales_a: TensorMap<f32, 1>,
        /// Those of B.
        scales_b: TensorMap<f32, 1>,
        /// Partial sums of split-K, where the depth is split, or of the last tiles, where these are cut.
        partial: Global<f32>,
        /// Which pieces the last tiles are cut in.
        tail: Global<u32>,
        /// How many pieces of each tile have arrived.
        arrived: Global<u32>,
        /// Rows of the result.
        m: u32,
        /// Its columns.
        n: u32,
        /// Elements from row to row of C and D.
        ldc: u32,
        /// The depth.
        k: u32,
        /// Steps of the depth, each a stage.
        steps: u32,
        /// Steps of a share; where the last tiles are cut, how many are whole.
        share: u32,
        /// The factor of the product.
        alpha: f32,
        /// The factor of C.
        beta: f32,
    }
}

/// As the copy engine calls it.
pub(crate) fn element(input: Input) -> TensorElement {
    match input {
        Input::F16 => TensorElement::F16,
        Input::Bf16 => TensorElement::Bf16,
        // The copy does not round: the tensor cores leave out the lower bits.
        Input::Tf32 => TensorElement::F32,
        Input::E4m3 | Input::E5m2 => TensorElement::U8,
    }
}

/// Why warpgroups can't multiply this on that device.
pub(crate) fn refusal(problem: &Gemm, target: Target) -> Option<String> {
    if !target.arch.supports(Feature::Wgmma) {
        return Some(format!("{} has no wgmma: it needs sm_90a", target.arch));
    }
    if problem.scales == Scales::Mx {
        return Some("warpgroups have no scales of 32 elements: tcgen05 has them (sm_100a)".into());
    }
    uncopyable(problem)
}

/// Why the copy engine can't bring the operands as tensor cores take them from shared memory.
pub(crate) fn uncopyable(problem: &Gemm) -> Option<String> {
    let turned = matches!(problem.input, Input::F16 | Input::Bf16);
    if !turned && problem.layout != Layout::Nt {
        return Some(format!(
            "it multiplies {} stored along the depth, in layout nt, not {}",
            problem.input, problem.layout
        ));
    }
    let per = 16 / problem.input.bytes();
    if problem.k == 0 || !(problem.lda.is_multiple_of(per) && problem.ldb.is_multiple_of(per)) {
        return Some("tensor copies need rows that start at multiples of 16 bytes".into());
    }
    None
}

/// How accumulators are stored.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    Staged(Staging),
    Rows(Staging),
    Threads,
    /// As partial sums in memory.
    Shares,
    /// By threads, once the blocks that share the depth have added them up.
    Met,
}

/// Everything that is fixed when a kernel is built. Kernels of equal forms are
/// the same.
#[derive(Clone, Copy, Debug)]
struct Form {
    tiling: Tiling,
    /// Bytes of an element of the operands.
    bytes: u32,
    /// How the left and the right operand are stored.
    majors: [Major; 2],
    finish: Finish,
    scales: Scales,
    /// Whether products are accumulated in two levels.
    levels: bool,
    /// Whether scales of blocks come with their stages.
    copied: bool,
    /// Whether there are several products.
    batched: bool,
    way: Way,
    /// Whether factors of rows and columns are read before the products.
    ahead: bool,
    /// Whether all tiles lie inside of the result, down and across.
    even: [bool; 2],
    /// Whether the last tiles down and across are copied by maps of their own ([`Edge`]).
    edges: [bool; 2],
    /// Whether the depth is so short that stores take a good part of a tile's time.
    short: bool,
    /// Axes of the grid of tiles.
    rank: u32,
}

/// Such a depth, in elements of 16 bits.
const SHORT: u32 = 1024;

impl Form {
    fn new(problem: &Gemm, tiling: &Tiling, arch: Arch) -> Result<Form, KernelError> {
        let (a, b) = (problem.layout.a(), problem.layout.b());
        let majors = if tiling.swapped { [b, a] } else { [a, b] };
        let finish = Finish::new(&problem.epilogue, problem.scales, problem.ldc);
        let wrong = |why| Err(KernelError::unfit(format!("tile shape {tiling}: {why}")));
        if problem.in_levels() {
            fits_levels(problem.scales, tiling).or_else(wrong)?;
            if tiling.pingpong {
                wrong("two warpgroups with a tile each add up in one level")?;
            }
        }
        let blocks = problem.scales == Scales::Blocks;
        let scales = tiling.scale_bytes(blocks);
        let Some(room) = tiling
            .room(arch)
            .checked_sub(tiling.ring_bytes(majors) + tiling.sent_bytes() + scales + 1024)
        else {
            return Err(KernelError::unfit(format!(
                "tile shape {tiling}: its stages take {} bytes of shared memory, and a block on {arch} has {}",
                tiling.ring_bytes(majors) + tiling.sent_bytes() + scales,
                tiling.room(arch)
            )));
        };
        let whole = finish.aligned == 8;
        let staging = Staging::new(tiling, room, if whole { 4 } else { 1 });
        let way = match staging {
            _ if tiling.cluster == Cluster::Depth => Way::Met,
            _ if tiling.split > 1 => Way::Shares,
            _ if problem.output == Output::F32 => Way::Threads,
            Some(staging) if whole => Way::Staged(staging),
            Some(staging) if !tiling.swapped => Way::Rows(staging),
            _ => Way::Threads,
        };
        let staged = matches!(way, Way::Staged(_));
        // 256 rows leave no registers for them.
        let room = !tiling.swapped && tiling.rows <= 128;
        let ahead = problem.scales == Scales::Rows && staged && room;
        let reads = finish.adds || finish.bias || problem.scales == Scales::Rows && !ahead;
        // The copy engine stores nothing outside.
        let clipped = matches!(way, Way::Staged(staging) if staging.in_panels(tiling)) && !reads;
        // A cluster's last tiles may lie outside.
        let [below, beside] = tiling.cluster.sides();
        let [down, across] = extent(tiling, [tiling.rows * below, tiling.cols * beside]);
        Ok(Form {
            tiling: *tiling,
            bytes: problem.input.bytes(),
            majors,
            finish,
            scales: problem.scales,
            levels: problem.in_levels(),
            copied: blocks && tiling.copies_scales(),
            batched: problem.batch > 1,
            way,
            ahead,
            even: [
                clipped || problem.m.is_multiple_of(down),
                clipped || problem.n.is_multiple_of(across),
            ],
            edges: edges(problem, tiling).map(|inside| inside.is_some()),
            short: problem.k <= SHORT * 2 / problem.input.bytes(),
            rank: 1 + u32::from(tiles(problem, tiling).y > 1),
        })
    }
}

/// Rows that the last tile has to lack before it is copied by a map of its own: fewer cost less than to fetch the map.
const LACKING: u32 = 16;

/// How many rows, and columns, the last boxes have, where tiles lack many and boxes that end with the matrix gain something:
/// those of operands that are stored along the depth, and of stages that are filled more than once. Launches took up to 1.8 times as long without, but those of one round 1.02 times as long with it.
pub(crate) fn edges(problem: &Gemm, tiling: &Tiling) -> [Option<u32>; 2] {
    let (a, b) = (problem.layout.a(), problem.layout.b());
    let [left, right] = if tiling.swapped { [b, a] } else { [a, b] };
    let [high, wide] = extent(tiling, [problem.m, problem.n]);
    let steps = steps(problem, tiling).div_ceil(tiling.split);
    let again = steps > tiling.stages + tiling.stages / 2;
    let inside = |major, all: u32, own: u32, down: u32, peers: u32| {
        let padded = all.next_multiple_of(own * down);
        let ends = again && major == Major::Depth && padded - all >= LACKING;
        // The box of whoever copies the last of them; where all are full, it is not used.
        ends.then(|| all % (own / peers)).map(|rest| rest.max(1))
    };
    let [below, beside] = tiling.cluster.sides();
    [
        inside(left, high, tiling.rows, below, beside),
        inside(right, wide, tiling.cols, beside, below),
    ]
}

/// Steps of the depth, each a stage.
fn steps(problem: &Gemm, tiling: &Tiling) -> u32 {
    problem.k.div_ceil(tiling.depth * 2 / problem.input.bytes())
}

/// Whether such tiles have room for accumulation in two levels.
///
/// # Errors
/// Why not.
pub(crate) fn fits_levels(scales: Scales, tiling: &Tiling) -> Result<(), &'static str> {
    let blocks = scales == Scales::Blocks;
    if !tiling.holds_levels(blocks) {
        return Err("sums in two levels do not fit the registers");
    }
    // Otherwise columns of one thread would have several scales of B.
    let aligned = tiling.cols.is_multiple_of(64) || 64 % tiling.cols == 0;
    if blocks && !tiling.swapped && !aligned {
        return Err(
            "blocks of 128 columns do not begin where its columns do: 8, 16, 32 or multiples of 64",
        );
    }
    Ok(())
}

/// Rows and columns of the result, of which a tile has these as its own rows and columns.
fn extent(tiling: &Tiling, [rows, cols]: [u32; 2]) -> [u32; 2] {
    match tiling.swapped {
        false => [rows, cols],
        true => [cols, rows],
    }
}

/// Why the blocks of a cluster can't share the copies of an operand, for operands stored like this.
pub(crate) fn unshared(tiling: &Tiling, [left, right]: [Major; 2]) -> Option<String> {
    let [down, across] = tiling.cluster.sides();
    let sides = [
        ("rows", tiling.rows, left, across),
        ("columns", tiling.cols, right, down),
    ];
    let apart = |&(_, shared, major, peers): &(_, u32, Major, u32)| {
        major == Major::Outer && peers > 1 && !shared.is_multiple_of(64 * peers)
    };
    sides.into_iter().find(apart).map(|(what, shared, _, peers)| {
        format!(
            "{peers} blocks of a cluster divide {shared} {what}, which are copied 64 at a time across the depth"
        )
    })
}

/// The grid of tiles: columns of the tiles along x, their rows along y, shares of
/// the depth of each product along z.
pub(crate) fn tiles(problem: &Gemm, tiling: &Tiling) -> Dim3 {
    let (rows, cols) = match tiling.swapped {
        false => (problem.m, problem.n),
        true => (problem.n, problem.m),
    };
    Dim3::new(
        cols.div_ceil(tiling.cols),
        rows.div_ceil(tiling.rows),
        tiling.split * problem.batch,
    )
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
    // Tiles and pieces of them are in a row, and the body says which tile that is.
    let in_a_row = || Schedule {
        order: AnyOrder::new(Linear),
        ..schedule.clone()
    };
    let dealt = match tiling.tail {
        false => Tiled::<WgmmaArgs>::new("gemm_wgmma", tiles).schedule(schedule),
        true => Tiled::<WgmmaArgs>::new("gemm_wgmma", tiles).schedule(&in_a_row()),
    };
    let tiled = dealt
        .block(tiling.threads())
        .min_blocks(tiling.blocks)
        .state(state_words(tiling));
    let tiled = match tiling.cluster {
        Cluster::Alone => tiled,
        Cluster::Depth => tiled.cluster(tiling.cluster_shape()),
        // The blocks of a cluster work together past the last tile too.
        _ => tiled.cluster(tiling.cluster_shape()).padded(),
    };
    let roles = in_roles(form, schedule);
    let tiled = if roles { tiled.apart() } else { tiled };
    tiled.build(arch, |k, args, tiles| {
        let ring = ring(k, tiling, form.majors, false, form.copied);
        let work = Work::new(k, &args, form, schedule, &ring, tiles.pause());
        let done = match roles {
            true => {
                let role = |copies| match copies {
                    true => Role::Copies,
                    false => Role::Multiplies,
                };
                let begin = |copies| work.ends.move_registers(work.levels, role(copies));
                tiles.each_in_roles(work.ends.copies(), begin, |tile, copies| {
                    work.tile::<H, O>(role(copies), tile, &|| ());
                })
            }
            false => {
                let begin = |tile| work.ends.begin(work.factors(work.place(tile)));
                tiles.each_followed(
                    |tile, next| work.tile::<H, O>(Role::Both, tile, next),
                    begin,
                )
            }
        };
        work.finish();
        done
    })
}

/// What a block does with its tiles.
struct Work<'w, 'k> {
    k: Kernel<'k>,
    args: &'w WgmmaArgs<On<'k>>,
    form: &'w Form,
    schedule: &'w Schedule,
    ends: Ends<'w, 'k>,
    levels: Levels<'k>,
    /// Where results leave through shared memory.
    staged: Option<Staged<'k>>,
    /// Where the blocks that share the depth add up their sums.
    meet: Option<Meet<'k>>,
    /// How the last tiles are cut.
    tail: Option<TailOn<'k>>,
}

impl<'w, 'k> Work<'w, 'k> {
    /// Emits what comes before the first tile.
    fn new(
        k: &Kernel<'k>,
        args: &'w WgmmaArgs<On<'k>>,
        form: &'w Form,
        schedule: &'w Schedule,
        ring: &'w BulkPipeline<'k, Stage>,
        pause: Option<Pause<'k>>,
    ) -> Work<'w, 'k> {
        let tiling = &form.tiling;
        let waits = overlaps(form, schedule);
        let late = waits && lets_next_late(tiling, schedule);
        let edges = [args.left_edge, args.right_edge]
            .into_iter()
            .zip(form.edges);
        let edges = edges.filter_map(|(map, used)| used.then_some(map));
        let used: Vec<_> = [args.left, args.right].into_iter().chain(edges).collect();
        let ends = Ends::new(k, tiling, ring, &used, false)
            .pausing(pause)
            .in_turns(in_roles(form, schedule) && stores_in_turns(form))
            .letting_next(late);
        let staged = match form.way {
            Way::Staged(shape) => Some(Staged::new(k, tiling, shape, Some(args.out))),
            Way::Rows(shape) => Some(Staged::new(k, tiling, shape, None)),
            Way::Threads | Way::Shares | Way::Met => None,
        };
        let meet = (form.way == Way::Met).then(|| Meet::new(k, tiling));
        match (waits, late) {
            (false, _) => {}
            (true, true) => wait(k),
            (true, false) => overlap(k),
        }
        let tail = tiling.tail.then(|| {
            TailOn::new(
                k,
                tiling,
                [args.tail, args.arrived],
                args.partial,
                args.share,
            )
        });
        Work {
            k: *k,
            args,
            form,
            schedule,
            ends,
            levels: levels(args, form),
            staged,
            meet,
            tail,
        }
    }

    /// What a tile, or a piece of one, multiplies.
    fn factors(&self, place: Place<'k>) -> Factors<'k> {
        factors(self.args, self.form, place)
    }

    /// One tile, or a piece of one, in warps of a role. `next` begins the next tile.
    fn tile<H: WgmmaInput, O: Stored>(&self, role: Role, handed: Tile<'k>, next: &dyn Fn()) {
        let tile = self.place(handed);
        let factors = self.factors(tile);
        let ahead = |row| self.read_ahead([factors.left.first + row, factors.right.first]);
        let store = |sums: &WgmmaResult<'k>, row, read| {
            self.k.comment("the epilogue");
            // Read once more: beside the sums there are few registers for it.
            let (tile, factors) = match self.tail {
                None => (tile, factors),
                Some(_) => {
                    let tile = self.place(handed);
                    (tile, self.factors(tile))
                }
            };
            self.store::<O>(
                tile,
                OutputOrigin::new(&factors, tile, row),
                row,
                sums,
                read,
            );
        };
        self.ends
            .tile_as::<H, _>(role, factors, self.levels, next, ahead, store);
        if let Some(meet) = &self.meet {
            self.add_up::<O>(meet, tile, &factors);
        }
    }

    /// What becomes of 64 rows of a tile's sums, from `row` in it on.
    fn store<O: Stored>(
        &self,
        tile: Place<'k>,
        at: OutputOrigin<'k>,
        row: Val<'k, u32>,
        sums: &WgmmaResult<'k>,
        read: Read<'k>,
    ) {
        let leave = || self.leave::<O>(&at, self.staged, sums, read);
        match (self.form.way, &self.meet) {
            (Way::Shares, _) => self.share(&at, sums),
            (_, Some(meet)) => meet.send(row, sums),
            _ => match (&self.tail, tile.unit) {
                (Some(tail), Some(unit)) => tail.store(&unit, sums, leave),
                _ => leave(),
            },
        }
    }

    /// Once all blocks that share the depth have sent their sums: each adds up some of them, and stores these.
    fn add_up<O: Stored>(&self, meet: &Meet<'k>, tile: Place<'k>, factors: &Factors<'k>) {
        meet.all();
        meet.if_adds(|| {
            self.ends.each_rows(|row| {
                let mut at = OutputOrigin::new(factors, tile, row);
                at.col = at.col + meet.first_col();
                at.cols = meet.left();
                let read = self.read_ahead([at.row, at.col]);
                self.leave::<O>(&at, None, &meet.added(row), read);
            });
        });
    }

    /// Emits what comes after the last tile.
    fn finish(&self) {
        self.ends.finish();
        if let Some(staged) = self.staged {
            staged.finish();
        }
    }

    /// Where a tile is, or the tile that a piece is of.
    fn place(&self, tile: Tile<'k>) -> Place<'k> {
        let Work { args, form, .. } = self;
        let Some(tail) = &self.tail else {
            let Tile { x, y, z, .. } = tile;
            let at = Position { x, y, z };
            return Place { at, unit: None };
        };
        let unit = tail.unit(tile.x, args.steps);
        let [high, wide] = match form.tiling.swapped {
            false => [args.m, args.n],
            true => [args.n, args.m],
        };
        let [x, y] = [(wide, form.tiling.cols), (high, form.tiling.rows)]
            .map(|(all, own)| (all + (own - 1)) / own);
        let extent = Extent {
            x,
            y,
            count: x * y,
            rank: form.rank,
            table: args.tail,
        };
        let at = self.schedule.order.emit(&self.k, unit.tile, &extent);
        Place {
            at,
            unit: Some(unit),
        }
    }

    /// What the epilogue of 64 rows from there on reads before the products.
    fn read_ahead(&self, [row, col]: [Val<'k, u32>; 2]) -> Read<'k> {
        let Work { args, form, .. } = self;
        let scales = [args.scale_a, args.scale_b];
        let ahead = form.ahead.then(|| {
            let scales = [args.scale_a.at(row), args.scale_b.at(col)];
            let inside = [left(args.m, row), left(args.n, col)];
            Ahead::read(&self.k, scales, inside, form.tiling.cols)
        });
        (form.finish.factor(args.alpha, scales), ahead)
    }

    /// Stores accumulators as results.
    fn leave<O: Stored>(
        &self,
        at: &OutputOrigin<'k>,
        staged: Option<Staged<'k>>,
        sums: &WgmmaResult<'k>,
        (alpha, ahead): Read<'k>,
    ) {
        let Work { k, args, form, .. } = self;
        let swapped = form.tiling.swapped;
        let (row, col) = match swapped {
            false => (at.row, at.col),
            true => (at.col, at.row),
        };
        let down = match form.batched {
            false => row.cast::<u64>(),
            true => at.number.mul_wide(args.m) + row.cast::<u64>(),
        };
        let first = down * args.ldc.cast::<u64>() + col.cast::<u64>();
        let [own_rows, own_cols] = match swapped {
            false => [None, at.cols],
            true => [at.cols, None],
        };
        let inside = |even: bool, all, at, own: Option<Val<'k, u32>>| {
            let left = (!even).then(|| left(all, at));
            own.map_or(left, |own| Some(left.map_or(own, |left| left.min(own))))
        };
        let to = To {
            d: args.d.cast::<O>().at(first),
            c: args.c.cast::<O>().at(first),
            bias: args.bias.cast::<O>().at(col),
            pitch: args.ldc,
            rows: inside(form.even[0], args.m, row, own_rows),
            cols: inside(form.even[1], args.n, col, own_cols),
            alpha,
            beta: args.beta,
            scales: form
                .finish
                .of_rows([args.scale_a.at(row), args.scale_b.at(col)])
                .map(|scales| scales.ahead(ahead)),
            placed: None,
        };
        let finish = &form.finish;
        match (staged, swapped) {
            (Some(staged), false) => match form.way {
                Way::Rows(_) => staged.store_rows(finish, sums, &to),
                _ => staged.store(finish, sums, [col, row, at.number], &to),
            },
            (Some(staged), true) => {
                staged.store_turned(finish, sums, [col, row, at.number], &to);
            }
            (None, false) => finish.store(k, sums, &to),
            (None, true) => store_turned(k, finish, sums, &to),
        }
    }

    /// Stores accumulators as partial sums of a split.
    fn share(&self, at: &OutputOrigin<'k>, sums: &WgmmaResult<'k>) {
        let args = self.args;
        let (rows, cols) = match self.form.tiling.swapped {
            false => (args.m, args.n),
            true => (args.n, args.m),
        };
        let pitch = (cols + 3) / 4 * 4;
        let row = at.share.mul_wide(rows) + at.row.cast::<u64>();
        let first = row * pitch.cast::<u64>() + at.col.cast::<u64>();
        let share = Share {
            to: args.partial.at(first),
            pitch,
            rows: left(rows, at.row),
            cols: left(pitch, at.col),
        };
        store_share(&self.k, sums, &share);
    }
}

/// Whether a kernel waits by itself for the launch before it: nothing is touched before that, as some
/// schedules do, and nothing is read by loads that must not see other kernels' writes.
fn overlaps(form: &Form, schedule: &Schedule) -> bool {
    is_plain(schedule) && schedule.source != TileSource::Clc && !form.ahead
}

/// Whether blocks take tile after tile, and nothing else decides or looks on.
fn is_plain(schedule: &Schedule) -> bool {
    schedule.policy.constant() == Some(true)
        && schedule.classes.is_none()
        && schedule.grid.is_none()
        && !schedule.pausing
        && schedule.watch == Watch::Off
}

/// Whether the warpgroup that copies and those that multiply have a loop over tiles each. Then none waits for another from tile to
/// tile but for stages, and registers move once.
fn in_roles(form: &Form, schedule: &Schedule) -> bool {
    takes_tile_after_tile(schedule) && form.way != Way::Met
}

/// Whether blocks do nothing but take tile after tile.
pub(crate) fn takes_tile_after_tile(schedule: &Schedule) -> bool {
    let dealt = matches!(schedule.source, TileSource::Ticket | TileSource::Static);
    dealt && is_plain(schedule)
}

/// Whether the next launch may begin once a block has issued its last copies, and not when it begins. In one wave the
/// blocks of a launch that begins early find some multiprocessors idle and wait for others: then they read the same
/// lines at different times, and lost up to 7%. What follows shares of the depth, and blocks that take tile after tile,
/// gains by beginning early.
fn lets_next_late(tiling: &Tiling, schedule: &Schedule) -> bool {
    schedule.source == TileSource::Direct && tiling.split == 1
}

/// Whether the two warpgroups of a block store in turns, and so stay apart: those of a block that takes tile after
/// tile of a short depth. With 512 to 1024 of the depth it made launches 2 to 5% faster, and with sums in two levels
/// up to 17%; with scales of blocks it gained nothing.
fn stores_in_turns(form: &Form) -> bool {
    let tiling = &form.tiling;
    tiling.sharing() == 2 && form.scales != Scales::Blocks && form.short
}

/// What the epilogue of 64 rows needs besides their sums, and is read before the products: the
/// factor of all, and those of rows and columns.
type Read<'k> = (Val<'k, f32>, Option<Ahead<'k>>);

/// How its products are added.
fn levels<'k>(args: &WgmmaArgs<On<'k>>, form: &Form) -> Levels<'k> {
    if !form.levels {
        return Levels::One;
    }
    Levels::Two((form.scales == Scales::Blocks).then(|| scales(args, form)))
}

/// Scales of blocks.
fn scales<'k>(args: &WgmmaArgs<On<'k>>, form: &Form) -> BlockScales<'k> {
    BlockScales {
        a: args.scale_a,
        pitch: args.m,
        b: args.scale_b,
        m: args.m,
        n: args.n,
        depth: (args.k + (BLOCK - 1)) / BLOCK,
        swapped: form.tiling.swapped,
        copied: form.copied.then(|| CopiedScales {
            maps: [args.scales_a, args.scales_b],
            before: [args.m.kernel().c(0); 2],
        }),
    }
}

/// Where a tile is, or the tile that a piece is of.
#[derive(Clone, Copy)]
struct Place<'k> {
    at: Position<'k>,
    /// What is handed out, where the last tiles are cut.
    unit: Option<Unit<'k>>,
}

/// What a tile multiplies.
fn factors<'k>(args: &WgmmaArgs<On<'k>>, form: &Form, place: Place<'k>) -> Factors<'k> {
    let [rows, cols] = form.majors;
    let tile = place.at;
    let k = tile.x.kernel();
    let (number, share) = match (form.batched, form.tiling.split) {
        (false, _) => (k.c(0), tile.z),
        (true, 1) => (tile.z, k.c(0)),
        (true, split) => (tile.z / split, tile.z % split),
    };
    let side = |map, major, first: Val<'k, u32>, edge: Edge<'k>, used: bool| Side {
        map,
        major,
        number,
        first,
        span: 128 / form.bytes,
        apart: None,
        edge: used.then_some(edge),
    };
    let whole = form.tiling.cluster.count() == 1;
    let [high, wide] = match form.tiling.swapped {
        false => [args.m, args.n],
        true => [args.n, args.m],
    };
    let edge = |map, all| Edge { map, all, whole };
    let [below, behind] = [edge(args.left_edge, high), edge(args.right_edge, wide)];
    let [edge_rows, edge_cols] = form.edges;
    let [row, col] = [tile.y * form.tiling.rows, tile.x * form.tiling.cols];
    let (from, steps) = match form.way {
        Way::Shares | Way::Met => {
            let from = share * args.share;
            (from, left(args.steps, from).min(args.share))
        }
        _ => match place.unit {
            None => (k.c(0), args.steps),
            Some(unit) => (unit.from, unit.steps),
        },
    };
    Factors {
        left: side(args.left, rows, row, below, edge_rows),
        right: side(args.right, cols, col, behind, edge_cols),
        gather: None,
        scales: form.copied.then(|| scales(args, form)),
        from,
        steps,
    }
}

/// The position of 64 rows of accumulators: row and column as the tile is multiplied, the number of
/// the product, and the split of the depth, numbered over all products.
struct OutputOrigin<'k> {
    row: Val<'k, u32>,
    col: Val<'k, u32>,
    /// Columns from there on, where the accumulators have more.
    cols: Option<Val<'k, u32>>,
    number: Val<'k, u32>,
    share: Val<'k, u32>,
}

impl<'k> OutputOrigin<'k> {
    /// That of the 64 rows of a tile from `row` on.
    fn new(factors: &Factors<'k>, tile: Place<'k>, row: Val<'k, u32>) -> OutputOrigin<'k> {
        OutputOrigin {
            row: factors.left.first + row,
            col: factors.right.first,
            cols: None,
            number: factors.left.number,
            share: tile.at.z,
        }
    }
}

/// The launches of a multiplication in these tiles, over buffers called `a`, `b`, `c`, `d` and
/// `bias`. The plan's own workspace is `partial`, for the partial sums of split-K.
///
/// # Errors
/// What could not be built or planned.
pub(crate) fn plan(
    problem: &Gemm,
    tiling: &Tiling,
    schedule: &Schedule,
    target: Target,
) -> Result<LaunchPlan, KernelError> {
    let form = fitting(problem, tiling, schedule, target)?;
    let tail = tail(problem, tiling, schedule, target)?;
    let kernel = kernel(problem, &form, tail.as_ref(), schedule, target.arch)?;
    let resident = target.resident(&kernel.built.launch, tiling.registers());
    let launch = kernel.plan(resident)?;
    let args = arguments(problem, &form, tail.as_ref());
    let name = format!("gemm {problem} {tiling}");
    let mut step = Step::tiled(&kernel, &launch, args);
    // The second launch of shares gains by it, this one loses.
    step.overlaps &= form.way != Way::Shares;
    let plan = LaunchPlan::new(name, tiling.to_string(), problem.work()).step(step);
    if let Some(tail) = &tail {
        let sums = tail.sums(tiling);
        return Ok(plan.buffer("partial", Purpose::Workspace, ElementType::F32, sums));
    }
    if form.way != Way::Shares {
        return Ok(plan);
    }
    let (rows, cols) = match tiling.swapped {
        false => (problem.m, problem.n),
        true => (problem.n, problem.m),
    };
    let shares = tiling.split as usize * problem.batch as usize;
    let sums = rows as usize * split::pitch(cols) as usize * shares;
    Ok(plan
        .buffer("partial", Purpose::Workspace, ElementType::F32, sums)
        .step(split::step(problem, tiling, target)?))
}

/// The form of a kernel for the problem.
///
/// # Errors
/// What does not fit.
fn fitting(
    problem: &Gemm,
    tiling: &Tiling,
    schedule: &Schedule,
    target: Target,
) -> Result<Form, KernelError> {
    problem.check()?;
    tiling.check()?;
    if let Some(why) = refusal(problem, target) {
        return Err(KernelError::unfit(format!("gemm {tiling}: {why}")));
    }
    let form = Form::new(problem, tiling, target.arch)?;
    if let Some(why) = unshared(tiling, form.majors) {
        return Err(KernelError::unfit(format!("tile shape {tiling}: {why}")));
    }
    if form.way == Way::Met && schedule.source != TileSource::Direct {
        return Err(KernelError::unfit(format!(
            "tile shape {tiling}: a cluster that shares the depth has one tile, so {schedule} is nothing for it: take direct"
        )));
    }
    if tiling.pingpong && !in_roles(&form, schedule) {
        return Err(KernelError::unfit(format!(
            "tile shape {tiling}: two warpgroups have a tile each where a block takes tile after tile, so {schedule} is nothing for it"
        )));
    }
    Ok(form)
}

/// The kernel of a form, for the problem's types.
fn kernel(
    problem: &Gemm,
    form: &Form,
    tail: Option<&Tail>,
    schedule: &Schedule,
    arch: Arch,
) -> Result<TiledKernel<WgmmaArgs>, BuildError> {
    let tiles = match tail {
        None => tiles(problem, &form.tiling),
        Some(tail) => Dim3::new(tail.units(), 1, 1),
    };
    match problem.input {
        Input::F16 => build::<f16>(form, problem.output, tiles, schedule, arch),
        Input::Bf16 => build::<bf16>(form, problem.output, tiles, schedule, arch),
        Input::Tf32 => build::<Tf32>(form, problem.output, tiles, schedule, arch),
        Input::E4m3 => build::<E4m3>(form, problem.output, tiles, schedule, arch),
        Input::E5m2 => build::<E5m2>(form, problem.output, tiles, schedule, arch),
    }
}

/// The kernel's arguments.
fn arguments(problem: &Gemm, form: &Form, tail: Option<&Tail>) -> WgmmaArgs<With<Arg>> {
    let tiling = &form.tiling;
    let steps = steps(problem, tiling);
    // An unused parameter is set to any buffer.
    let either = |used, name| buffer(if used { name } else { "d" });
    let scaled = problem.scales != Scales::None;
    let [left, right, out] = maps(problem, form);
    let [scales_a, scales_b] = match form.copied {
        true => scales::maps(problem.scale_counts(), tiling.rows),
        // The kernel does not look at them.
        false => [left.clone(), left.clone()],
    };
    let inside = edges(problem, tiling);
    let [left_edge, right_edge] = edge_maps(problem, form, inside);
    WgmmaArgs {
        left,
        right,
        out,
        left_edge,
        right_edge,
        c: buffer("c"),
        d: buffer("d"),
        bias: buffer("bias"),
        scale_a: either(scaled, "scale_a"),
        scale_b: either(scaled, "scale_b"),
        scales_a,
        scales_b,
        partial: either(form.way == Way::Shares || tail.is_some(), "partial"),
        tail: match tail {
            None => buffer("d"),
            Some(tail) => Arg::input(&tail.table()),
        },
        arrived: match tail {
            None => buffer("d"),
            Some(tail) => Arg::in_out(&tail.arrived(tiling)),
        },
        m: problem.m,
        n: problem.n,
        ldc: problem.ldc,
        k: problem.k,
        steps,
        share: match tail {
            None => steps.div_ceil(tiling.split),
            Some(tail) => tail.whole,
        },
        alpha: problem.epilogue.alpha,
        beta: problem.epilogue.beta,
    }
}

/// The pieces of a launch whose last tiles are cut.
fn tail(
    problem: &Gemm,
    tiling: &Tiling,
    schedule: &Schedule,
    target: Target,
) -> Result<Option<Tail>, KernelError> {
    if !tiling.tail {
        return Ok(None);
    }
    let cut = match can_cut(problem, tiling, Some(schedule)) {
        true => cut(problem, tiling, target),
        false => Err("the last tiles are not cut where the order of tiles is a table"),
    };
    cut.map(Some)
        .map_err(|why| KernelError::unfit(format!("gemm {problem} {tiling}: {why}")))
}

/// The same where the schedule lets them be cut.
///
/// # Errors
/// Why they are not.
pub(crate) fn cut(problem: &Gemm, tiling: &Tiling, target: Target) -> Result<Tail, &'static str> {
    if problem.batch > 1 {
        return Err("the last tiles are not cut in a batch");
    }
    let (tiles, steps) = (
        tiles(problem, tiling).count() as u32,
        steps(problem, tiling),
    );
    Tail::new(tiles, steps, target.sms).ok_or("to cut the last tiles gains nothing")
}

/// Whether the last tiles can be cut under a schedule: what is handed out is no longer a tile, so its order must be arithmetic.
pub(crate) fn can_cut(problem: &Gemm, tiling: &Tiling, schedule: Option<&Schedule>) -> bool {
    schedule.is_none_or(|schedule| {
        let table = schedule.order.table(tiles(problem, tiling));
        schedule.classes.is_none() && table.is_ok_and(|table| table.is_none())
    })
}

/// The tensor maps of the left and the right operand, in boxes of so many rows and columns of the tile.
fn operand_maps(problem: &Gemm, tiling: &Tiling, boxed: [u32; 2]) -> [Arg; 2] {
    let element = element(problem.input);
    let map = |name, major, outer: u32, pitch, high| {
        let matrix = Matrices {
            element,
            major,
            outer: outer.into(),
            depth: problem.k,
            pitch,
            count: problem.batch,
        };
        matrix.map(name, high, tiling.depth)
    };
    let [rows, cols] = extent(tiling, boxed);
    let a = map("a", problem.layout.a(), problem.m, problem.lda, rows);
    let b = map("b", problem.layout.b(), problem.n, problem.ldb, cols);
    if tiling.swapped { [b, a] } else { [a, b] }
}

/// Those of what the last tiles have of them. A map that the kernel does not look at may be any.
fn edge_maps(problem: &Gemm, form: &Form, inside: [Option<u32>; 2]) -> [Arg; 2] {
    let Tiling { rows, cols, .. } = form.tiling;
    let boxed = [inside[0].unwrap_or(rows), inside[1].unwrap_or(cols)];
    operand_maps(problem, &form.tiling, boxed)
}

/// The tensor maps of both operands and of the result.
fn maps(problem: &Gemm, form: &Form) -> [Arg; 3] {
    let tiling = &form.tiling;
    // Of what the blocks of a cluster have in common each copies a part.
    let [below, beside] = tiling.cluster.sides();
    let boxed = [tiling.rows / beside, tiling.cols / below];
    let [left, right] = operand_maps(problem, tiling, boxed);
    let out = match form.way {
        Way::Staged(staging) => {
            let ([width, high], swizzle) = staging.boxed();
            let element = match problem.output {
                Output::F16 => TensorElement::F16,
                _ => TensorElement::Bf16,
            };
            let dims = [problem.n, problem.m, problem.batch].map(u64::from);
            let buffer = BufferRef::Named("d".to_owned());
            let mut map = Map::dense(buffer, element, &dims, &[width, high, 1]);
            let row = u64::from(problem.ldc) * 2;
            map.strides = vec![row, row * u64::from(problem.m)];
            Arg::TensorMap(map.swizzle(swizzle))
        }
        // The kernel does not look at it.
        _ => left.clone(),
    };
    [left, right, out]
}
