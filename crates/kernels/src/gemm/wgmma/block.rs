//! The kernel: what a block does with its tiles.

use super::super::epilogue::To;
use super::super::halves::Half;
use super::super::leave::{Addition, Asked, Share, Staged, store_share, store_turned};
use super::super::left::left;
use super::super::meet::Meet;
use super::super::pieces::state_words;
use super::super::problem::{Output, Scales};
use super::super::row_scales::Ahead;
use super::super::rows::Rows;
use super::super::scales::{BLOCK, BlockScales, CopiedScales};
use super::super::spread::Added;
use super::super::stored::Stored;
use super::super::tail::{TailOn, Unit};
use super::super::tiling::{Cluster, Tiling};
use super::super::warpgroup::{Edge, Ends, Factors, Levels, Role, Side, Stage, ring};
use super::form::{Form, Way};
use super::registers;
use crate::overlap::{overlap, wait};
use heist_builder::{
    Arch, BuildError, BulkPipeline, Global, Kernel, On, TensorMap, Val, WgmmaInput, WgmmaResult,
    bf16, f16, kernel_params,
};
use heist_launch::Dim3;
use heist_sched::{
    AnyOrder, Extent, Linear, Pause, Policy, Position, Schedule, Submit, Tile, TileSource, Tiled,
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
        /// Steps of a share; where the last tiles are cut, how many are whole, and where some are halved, the first of these.
        share: u32,
        /// The factor of the product.
        alpha: f32,
        /// The factor of C.
        beta: f32,
    }
}

/// The kernel of a form, for operands of `H`.
pub(super) fn build<H: WgmmaInput>(
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
    // Tiles and parts of them are in a row, and the body says which tile that is.
    let in_a_row = || Schedule {
        order: AnyOrder::new(Linear),
        ..schedule.clone()
    };
    let dealt = match tiling.tail || tiling.halves {
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
    // What blocks share is not touched before the launch before has ended.
    let tiled = match overlaps_let_go(form, schedule) {
        true => tiled.behind_prologue(),
        false => tiled,
    };
    tiled.build(arch, |k, args, tiles| {
        let ring = ring(k, tiling, form.majors, false, form.copied);
        let work = Work::new(k, &args, form, schedule, &ring, tiles.pause());
        let done = match roles {
            true => {
                let role = |copies| match copies {
                    true => Role::Copies,
                    false => Role::Multiplies,
                };
                let begin = |copies| (work.ends).move_registers(work.levels, role(copies));
                let end = |copies| work.let_next(role(copies));
                tiles.each_in_roles(work.ends.copies(), [&begin, &end], |tile, copies| {
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
    levels: Levels,
    /// Where results leave through shared memory: by the copy engine, and row by row.
    staged: Option<Staged<'k>>,
    rows: Option<Rows<'k>>,
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
        let behind = overlaps_let_go(form, schedule);
        let edges = [args.left_edge, args.right_edge]
            .into_iter()
            .zip(form.edges);
        let edges = edges.filter_map(|(map, used)| used.then_some(map));
        let used: Vec<_> = [args.left, args.right].into_iter().chain(edges).collect();
        let ends = Ends::new(k, tiling, ring, &used, false)
            .pausing(pause)
            .moving_once(moves_once(form, schedule))
            .taking(registers::more(form, schedule))
            .copying_with(registers::copying(form, schedule))
            .in_turns(in_roles(form, schedule) && stores_in_turns(form))
            .letting_next(late);
        let staged = match form.way {
            Way::Staged(shape) => Some(Staged::new(k, tiling, shape, args.out)),
            _ => None,
        };
        let rows = match form.way {
            Way::Rows(panel) => {
                let warp = k.warp_uniform() - 4;
                Some(Rows::new(k, panel, tiling.groups() * 4, warp))
            }
            _ => None,
        };
        let meet = (form.way == Way::Met).then(|| Meet::new(k, tiling));
        match (waits, late) {
            (false, _) => {}
            (true, true) => wait(k),
            (true, false) if behind => wait(k),
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
            levels: levels(form),
            staged,
            rows,
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
        let ahead = |row, first: bool| {
            let at = OutputOrigin::new(&factors, tile, row);
            let read = self.read_ahead([at.row, at.col]);
            // C of other rows is asked for once the buffers are free.
            let asked = first.then(|| self.ask::<O>(&at, read)).flatten();
            Read { asked, ..read }
        };
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
            .tile::<H, _>(role, factors, self.levels, next, ahead, store);
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

    /// Behind the last tile of warps of a role: the next launch may begin, where no sooner. This block's last copies are on their way, so nothing of
    /// its tiles is left half done any more. Blocks of the next one that were there before would hold multiprocessors, and wait for this one's
    /// last tiles, while a visitor waits for them.
    fn let_next(&self, role: Role) {
        if role == Role::Copies && overlaps_let_go(self.form, self.schedule) {
            self.k.one_thread(|| self.k.launch_dependents());
        }
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
        if self.tail.is_none() && !form.tiling.halves {
            let Tile { x, y, z, .. } = tile;
            return Place::whole(Position { x, y, z });
        }
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
        let at = |index| Place::whole(self.schedule.order.emit(&self.k, index, &extent));
        match &self.tail {
            Some(tail) => {
                let unit = tail.unit(tile.x, args.steps);
                Place {
                    unit: Some(unit),
                    ..at(unit.tile)
                }
            }
            None => {
                let [units, ..] = tile.grid();
                let half = Half::at(tile.x, units, extent.count, args.share, form.tiling.rows);
                Place {
                    half: Some(half),
                    ..at(half.tile)
                }
            }
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
        Read {
            alpha: form.finish.factor(args.alpha, scales),
            ahead,
            asked: None,
        }
    }

    /// Asks for C before the products, where the tile is sure to be stored behind them.
    fn ask<O: Stored>(&self, at: &OutputOrigin<'k>, read: Read<'k>) -> Option<Asked<'k>> {
        let sure = self.tail.is_none() && copies_c(self.form, self.schedule);
        let staged = self.staged.filter(|_| sure)?;
        Some(staged.ask::<O>(&self.to(at, read)))
    }

    /// Stores accumulators as results.
    fn leave<O: Stored>(
        &self,
        at: &OutputOrigin<'k>,
        staged: Option<Staged<'k>>,
        sums: &WgmmaResult<'k>,
        read: Read<'k>,
    ) {
        let Work { k, form, .. } = self;
        let (finish, to) = (&form.finish, self.to::<O>(at, read));
        let [row, col] = self.in_result([at.row, at.col]);
        let place = [col, row, at.number];
        let c = match copies_c(form, self.schedule) {
            true => Addition::Copied(read.asked),
            false => Addition::Read,
        };
        if let Some(rows) = self.rows {
            return rows.store(finish, sums, &to);
        }
        match (staged, form.tiling.swapped) {
            (Some(staged), false) => staged.store(finish, sums, place, &to, c),
            (Some(staged), true) => staged.store_turned(finish, sums, place, &to, c),
            (None, false) => finish.store(k, sums, &to),
            (None, true) => store_turned(k, finish, sums, &to),
        }
    }

    /// The row and column of the result, of those as the tile is multiplied.
    fn in_result(&self, [row, col]: [Val<'k, u32>; 2]) -> [Val<'k, u32>; 2] {
        match self.form.tiling.swapped {
            false => [row, col],
            true => [col, row],
        }
    }

    /// Where 64 rows of accumulators go.
    fn to<O: Stored>(&self, at: &OutputOrigin<'k>, read: Read<'k>) -> To<'k, O> {
        let Work { args, form, .. } = self;
        let swapped = form.tiling.swapped;
        let [row, col] = self.in_result([at.row, at.col]);
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
        To {
            d: args.d.cast::<O>().at(first),
            c: Added::new(form.finish.spread, args.c.cast()).at([row, col], first),
            bias: args.bias.cast::<O>().at(col),
            pitch: args.ldc,
            rows: inside(form.even[0], args.m, row, own_rows),
            cols: inside(form.even[1], args.n, col, own_cols),
            alpha: read.alpha,
            beta: args.beta,
            scales: form
                .finish
                .of_rows([args.scale_a.at(row), args.scale_b.at(col)])
                .map(|scales| scales.ahead(read.ahead)),
            placed: None,
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
    let plain = is_plain(schedule) && schedule.source != TileSource::Clc && !form.ahead;
    plain || overlaps_let_go(form, schedule)
}

/// The same where blocks may be let go: they draw their first tile behind the wait.
fn overlaps_let_go(form: &Form, schedule: &Schedule) -> bool {
    is_let_go(schedule) && in_roles(form, schedule) && !form.ahead
}

/// Whether blocks take tile after tile, and nothing else decides or looks on.
pub(super) fn is_plain(schedule: &Schedule) -> bool {
    schedule.policy.constant() == Some(true)
        && schedule.classes.is_none()
        && schedule.grid.is_none()
        && !schedule.pausing
        && schedule.watch == Watch::Off
}

/// Whether C is copied into the buffers that results leave from. Where tiles can be left half done threads read it: with the copies the kernel spilled 32 bytes.
pub(super) fn copies_c(form: &Form, schedule: &Schedule) -> bool {
    form.finish.adds_matrix() && matches!(form.way, Way::Staged(_)) && !schedule.pausing
}

/// Whether the warpgroup that copies and those that multiply have a loop over tiles each. Then none waits for another from tile to
/// tile but for stages, and registers move once.
pub(super) fn in_roles(form: &Form, schedule: &Schedule) -> bool {
    let alone = !is_let_go(schedule) || form.tiling.cluster == Cluster::Alone;
    takes_tile_after_tile(schedule) && form.way != Way::Met && alone
}

/// Whether registers move once a block: each role has its loop, or a block has one tile. Blocks that share the depth need
/// others besides to add up their sums.
fn moves_once(form: &Form, schedule: &Schedule) -> bool {
    let one = schedule.source == TileSource::Direct && form.way != Way::Met;
    in_roles(form, schedule) || one
}

/// Whether blocks do nothing but take tile after tile, as far as a policy lets them.
pub(crate) fn takes_tile_after_tile(schedule: &Schedule) -> bool {
    let dealt = matches!(schedule.source, TileSource::Ticket | TileSource::Static);
    dealt && is_plain(schedule) || is_let_go(schedule)
}

/// Whether a policy that is loaded decides between tiles that are drawn late, or such tiles may be left half done: as long as nobody
/// wants anything else, that is to cost no more than blocks that take tile after tile.
pub(crate) fn is_let_go(schedule: &Schedule) -> bool {
    (schedule.policy.loaded().is_some() || schedule.pausing)
        && schedule.policy.constant() != Some(false)
        && schedule.source == TileSource::Ticket
        && schedule.submit == Submit::Late
        && schedule.classes.is_none()
        && schedule.watch == Watch::Off
}

/// Registers that a thread takes at least which copies: to interpret a policy, or to leave a tile, without spills.
pub(crate) fn copying_registers(schedule: &Schedule) -> u32 {
    match schedule.policy.loaded().is_some() || schedule.pausing {
        true => 56,
        false => 0,
    }
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

/// What the epilogue of 64 rows needs besides their sums, and is read before the products.
#[derive(Clone, Copy)]
struct Read<'k> {
    /// The factor of all.
    alpha: Val<'k, f32>,
    /// Those of rows and columns.
    ahead: Option<Ahead<'k>>,
    /// C of the first panels.
    asked: Option<Asked<'k>>,
}

/// How its products are added.
fn levels(form: &Form) -> Levels {
    match (form.levels, form.scales) {
        (false, _) => Levels::One,
        (true, Scales::Blocks) => Levels::Scaled,
        (true, _) => Levels::Two,
    }
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
    /// The same where some are halved.
    half: Option<Half<'k>>,
}

impl<'k> Place<'k> {
    /// Of a whole tile.
    fn whole(at: Position<'k>) -> Place<'k> {
        Place {
            at,
            unit: None,
            half: None,
        }
    }
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
    let row = place.half.map_or(row, |half| row + half.row);
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
        scales: (form.scales == Scales::Blocks).then(|| scales(args, form)),
        from,
        steps,
        used: place.half.map(|half| half.used),
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
