//! From a problem to launches: what every row needs, the gradients, the rounding.

use super::BackwardArgs;
use super::key_gradients;
use super::largest::{self, LargestArgs};
use super::numbers::Numbers;
use super::parts::{elements, parts};
use super::prepare::{self, PrepareArgs, RowShape};
use super::problem::{Backward, Sums};
use super::query_gradient::{self, QueryGradientArgs};
use super::tensor::{self, TensorShape};
use super::warpgroup::{self, WarpgroupArgs, WarpgroupShape};
use crate::attention::kernel::{Strides, contents, log_sum_strides, window};
use crate::attention::problem::Lengths;
use crate::attention::score::Table;
use crate::attention::views::{Input, View};
use crate::attention::warpgroup::map;
use crate::family::{Family, Target, Variant};
use crate::job::buffer;
use crate::plan::{LaunchPlan, Purpose};
use crate::{KernelError, Step};
use heist_builder::{Feature, With};
use heist_launch::{Arg, Buffer, Dim3, ElementType};
use heist_sched::{Schedule, TileSource};
use std::fmt;

/// The kernels for gradients of attention.
pub static BACKWARD: Family<Backward> = Family {
    name: "attention-backward",
    variants: &[&Tensor, &Wgmma],
};

/// On `mma.sync`.
struct Tensor;

/// On warpgroups.
struct Wgmma;

/// How the sums of a block of queries lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    /// Row after row.
    Rows,
    /// As a warpgroup's registers have them: [`warpgroup::layout`]; and tiles of keys are in so
    /// many parts.
    Pieces(u32),
}

/// What all launches of a problem share.
pub(super) struct Common<'p> {
    problem: &'p Backward,
    q: Strides,
    kv: Strides,
    numbers: Numbers,
    lse_batch: u32,
    lse_head: u32,
}

impl<'p> Common<'p> {
    /// For a main kernel with blocks of `height` queries.
    pub(super) fn of(problem: &'p Backward, height: u32) -> Result<Common<'p>, KernelError> {
        let attention = &problem.attention;
        let (queries, keys) = attention.longest();
        let (lse_batch, lse_head) = log_sum_strides(attention);
        let dense = |heads, rows| View::dense(attention, attention.head_dim, heads, rows);
        Ok(Common {
            problem,
            q: Strides::of(attention, dense(attention.heads, queries))?,
            kv: Strides::of(attention, dense(attention.kv_heads, keys))?,
            numbers: Numbers::of(attention, height),
            lse_batch,
            lse_head,
        })
    }

    fn rows(&self) -> RowShape {
        let attention = &self.problem.attention;
        RowShape {
            head_dim: attention.head_dim,
            dtype: attention.dtype,
            sums: self.problem.sums,
            ragged: attention.is_ragged(),
            numbers: self.numbers,
        }
    }

    /// Heads along y, sequences along z, `each` rows at a time along x.
    fn grid(&self, each: u32) -> Dim3 {
        let attention = &self.problem.attention;
        let height = self.numbers.height;
        let rows = attention.longest().0.div_ceil(height) * height;
        let sequences = attention.sequences().len() as u32;
        Dim3::new(rows.div_ceil(each), attention.heads, sequences)
    }

    /// A plan with all buffers: what the forward kernel had and gave, gradients,
    /// workspace.
    pub(super) fn plan(&self, variant: &str, main: impl fmt::Display) -> LaunchPlan {
        let Common { problem, .. } = self;
        let attention = &problem.attention;
        let (q, kv) = attention.elements();
        let halves = attention.dtype.element();
        let f32 = ElementType::F32;
        let rows = self.numbers.count as usize;
        let starts = match &attention.lengths {
            Lengths::Same { .. } => 1,
            Lengths::Each(lengths) => lengths.len() + 1,
        };
        let name = format!("attention backward {problem}: {main}");
        let mut plan = LaunchPlan::new(name, variant, problem.work());
        let [own, keys, values] = attention.spans();
        let inputs = [("q", own), ("k", keys), ("v", values)];
        for (name, len) in inputs.into_iter().chain([("out", q), ("d_out", q)]) {
            plan = plan.buffer(name, Purpose::Input, halves, len);
        }
        let lse = attention.rows().0 * attention.heads as usize;
        plan = plan.buffer("lse", Purpose::Input, f32, lse);
        for name in ["q_starts", "k_starts"] {
            plan = plan.buffer(name, Purpose::Input, ElementType::U32, starts);
        }
        plan = attention.scoring.buffers(plan, attention);
        for (name, len) in [("dq", q), ("dk", kv), ("dv", kv)] {
            plan = plan.buffer(name, Purpose::Output, halves, len);
        }
        let elements = rows * attention.head_dim as usize;
        plan = plan
            .buffer("level", Purpose::Workspace, f32, rows)
            .buffer("delta", Purpose::Workspace, f32, rows)
            .buffer("sums", Purpose::Workspace, f32, elements);
        if problem.sums == Sums::Fixed {
            let heads = self.largest_sequences() * attention.kv_heads * largest::MOST_PARTS;
            plan = plan.buffer("step", Purpose::Workspace, f32, rows).buffer(
                "largest",
                Purpose::Workspace,
                f32,
                2 * heads as usize,
            );
        }
        plan
    }

    /// Sequences that lie apart.
    fn largest_sequences(&self) -> u32 {
        match self.problem.attention.lengths {
            Lengths::Same { batch, .. } => batch,
            Lengths::Each(_) => 1,
        }
    }

    /// The buffer of steps; sums in f32 have none, and nothing looks at it.
    fn step(&self) -> Arg {
        buffer(match self.problem.sums {
            Sums::Float => "delta",
            Sums::Fixed => "step",
        })
    }

    /// What goes before the main kernel.
    pub(super) fn before(
        &self,
        mut plan: LaunchPlan,
        target: Target,
    ) -> Result<LaunchPlan, KernelError> {
        let attention = &self.problem.attention;
        let fixed = self.problem.sums == Sums::Fixed;
        let rows = match attention.lengths {
            Lengths::Same { keys, .. } => keys,
            Lengths::Each(_) => attention.rows().1 as u32,
        };
        let sequences = self.largest_sequences();
        let parts = largest::parts(sequences * attention.kv_heads, rows, target.sms);
        if fixed {
            let [keys, values] = [Input::Keys, Input::Values].map(|input| attention.view(input));
            if keys != values {
                return Err(KernelError::unfit(
                    "keys and values that lie apart in different ways, and gradients that are deterministic: copy one",
                ));
            }
            let keys = Strides::of(attention, keys)?;
            let kernel = largest::build(attention.head_dim, attention.dtype, target.arch)?;
            let args = LargestArgs::<With<Arg>> {
                k: buffer("k"),
                v: buffer("v"),
                largest: buffer("largest"),
                rows,
                k_batch: keys.batch,
                k_row: keys.row,
                k_head: keys.head,
            };
            let grid = Dim3::new(attention.kv_heads, sequences, parts);
            plan = plan.step(Step::plain(&kernel, grid, args));
        }
        let kernel = prepare::build(self.rows(), target.arch)?;
        let args = PrepareArgs::<With<Arg>> {
            out: buffer("out"),
            d_out: buffer("d_out"),
            lse: buffer("lse"),
            level: buffer("level"),
            delta: buffer("delta"),
            step: self.step(),
            sums: buffer("sums"),
            largest: buffer(if fixed { "largest" } else { "delta" }),
            q_starts: buffer("q_starts"),
            q_len: attention.longest().0,
            lse_batch: self.lse_batch,
            lse_head: self.lse_head,
            number_batch: self.numbers.batch,
            number_head: self.numbers.head,
            group: attention.heads / attention.kv_heads,
            parts,
            q_batch: self.q.batch,
            q_row: self.q.row,
            q_head: self.q.head,
        };
        Ok(plan.step(Step::plain(&kernel, self.grid(prepare::ROWS), args)))
    }

    /// What goes after the main kernel, whose sums lie as `order` says.
    fn after(
        &self,
        plan: LaunchPlan,
        order: Order,
        target: Target,
    ) -> Result<LaunchPlan, KernelError> {
        let attention = &self.problem.attention;
        let (kernel, grid) = match order {
            Order::Rows => (
                query_gradient::build(self.rows(), target.arch)?,
                self.grid(query_gradient::ROWS),
            ),
            Order::Pieces(1) => (
                query_gradient::build_pieces(self.rows(), false, target.arch)?,
                self.grid(self.numbers.height / 2),
            ),
            Order::Pieces(_) => {
                let mut grid = self.grid(self.numbers.height / 2);
                let pieces = attention.longest().1.div_ceil(warpgroup::layout::ROWS);
                grid.x = grid.x.max(pieces);
                grid.y += attention.kv_heads * key_gradients::blocks(attention.head_dim);
                (
                    query_gradient::build_pieces(self.rows(), true, target.arch)?,
                    grid,
                )
            }
        };
        let parts = match order {
            Order::Rows => 1,
            Order::Pieces(parts) => parts,
        };
        let args = QueryGradientArgs::<With<Arg>> {
            sums: buffer("sums"),
            step: self.step(),
            dq: buffer("dq"),
            dk: buffer("dk"),
            dv: buffer("dv"),
            partials: partials(parts),
            q_starts: buffer("q_starts"),
            k_starts: buffer("k_starts"),
            q_len: attention.longest().0,
            k_len: attention.longest().1,
            number_batch: self.numbers.batch,
            number_head: self.numbers.head,
            q_batch: self.q.batch,
            q_row: self.q.row,
            q_head: self.q.head,
            k_batch: self.kv.batch,
            k_row: self.kv.row,
            k_head: self.kv.head,
            heads: attention.heads,
            kv_heads: attention.kv_heads,
            key_tiles: attention.longest().1.div_ceil(warpgroup::KEYS),
            parts,
            scale: attention.scale(),
        };
        Ok(plan.step(Step::plain(&kernel, grid, args)))
    }

    /// Tiles of `width` keys along x, key heads along y, sequences along z.
    fn tiles(&self, width: u32) -> Dim3 {
        let attention = &self.problem.attention;
        Dim3::new(
            attention.longest().1.div_ceil(width),
            attention.kv_heads,
            attention.sequences().len() as u32,
        )
    }

    /// The parameters of the kernel on warpgroups.
    fn warpgroup_args(
        &self,
        shape: &WarpgroupShape,
        parts: u32,
    ) -> Result<WarpgroupArgs<With<Arg>>, KernelError> {
        let attention = &self.problem.attention;
        let (queries, keys) = attention.longest();
        let (q_rows, k_rows) = match attention.lengths {
            Lengths::Same { .. } => (queries, keys),
            Lengths::Each(_) => {
                let (q, k) = attention.rows();
                (q as u32, k as u32)
            }
        };
        let (left, right) = window(attention.mask, shape.mask)?;
        let dim = attention.head_dim;
        let of_queries = |name, view| {
            let extents = [attention.heads, q_rows, dim];
            map(name, attention, extents, view, shape.queries())
        };
        let of_keys = |name, input| {
            let extents = [attention.kv_heads, k_rows, dim];
            map(
                name,
                attention,
                extents,
                attention.view(input),
                warpgroup::KEYS,
            )
        };
        let results = View::dense(attention, dim, attention.heads, queries);
        Ok(WarpgroupArgs::<With<Arg>> {
            q: of_queries("q", attention.view(Input::Queries)),
            k: of_keys("k", Input::Keys),
            v: of_keys("v", Input::Values),
            d_out: of_queries("d_out", results),
            dk: buffer("dk"),
            dv: buffer("dv"),
            level: buffer("level"),
            delta: buffer("delta"),
            step: self.step(),
            sums: buffer("sums"),
            q_starts: buffer("q_starts"),
            k_starts: buffer("k_starts"),
            q_len: queries,
            k_len: keys,
            k_batch: self.kv.batch,
            k_row: self.kv.row,
            k_head: self.kv.head,
            partials: partials(parts),
            kv_heads: attention.kv_heads,
            key_tiles: keys.div_ceil(warpgroup::KEYS),
            parts,
            number_batch: self.numbers.batch,
            number_head: self.numbers.head,
            group: attention.heads / attention.kv_heads,
            left,
            right,
            scale: attention.scale(),
            slopes: self.slopes(),
        })
    }

    /// The slopes of ALiBi; without it nothing looks at them.
    fn slopes(&self) -> Arg {
        let tables = self.problem.attention.scoring.tables();
        buffer(match tables.contains(&Table::Slopes) {
            true => "slopes",
            false => "level",
        })
    }

    /// The parameters of the kernel on `mma.sync`.
    fn args(&self) -> Result<BackwardArgs<With<Arg>>, KernelError> {
        let attention = &self.problem.attention;
        let (queries, keys) = attention.longest();
        let (left, right) = window(attention.mask, attention.mask.kind())?;
        let pairs = self.problem.pairs();
        let strides = pairs.map(|mask| mask.strides).unwrap_or_default();
        let [pairs_sequence, pairs_head, pairs_row] = strides;
        Ok(BackwardArgs::<With<Arg>> {
            q: buffer("q"),
            k: buffer("k"),
            v: buffer("v"),
            d_out: buffer("d_out"),
            dk: buffer("dk"),
            dv: buffer("dv"),
            level: buffer("level"),
            delta: buffer("delta"),
            step: self.step(),
            sums: buffer("sums"),
            q_starts: buffer("q_starts"),
            k_starts: buffer("k_starts"),
            q_len: queries,
            k_len: keys,
            q_batch: self.q.batch,
            q_row: self.q.row,
            q_head: self.q.head,
            k_batch: self.kv.batch,
            k_row: self.kv.row,
            k_head: self.kv.head,
            number_batch: self.numbers.batch,
            number_head: self.numbers.head,
            group: attention.heads / attention.kv_heads,
            left,
            right,
            scale: attention.scale(),
            slopes: self.slopes(),
            pairs: buffer(if pairs.is_some() { "pairs" } else { "q_starts" }),
            pairs_sequence,
            pairs_head,
            pairs_row,
        })
    }
}

/// The buffer of parts of dK and dV; whole tiles have none, and nothing looks at it.
fn partials(parts: u32) -> Arg {
    buffer(if parts > 1 { "partials" } else { "sums" })
}

/// The gradients on warpgroups, with every tile cut into so many parts.
///
/// # Errors
/// What does not suit.
pub fn backward_in_parts(
    problem: &Backward,
    parts: u32,
    given: Option<&Schedule>,
    target: Target,
) -> Result<LaunchPlan, KernelError> {
    let parts = parts.max(1);
    let asked = problem;
    let problem = &asked.in_cheapest_sums(warpgroup::KEYS);
    let attention = &problem.attention;
    let shape = WarpgroupShape {
        cut: parts > 1,
        ..WarpgroupShape::of(problem)
    };
    let common = Common::of(problem, shape.queries())?;
    let own = Schedule::new(TileSource::Direct);
    let kernel = warpgroup::build(shape, given.unwrap_or(&own), target.arch)?;
    let resident = target.resident(&kernel.built.launch, WarpgroupShape::registers());
    let mut tiles = common.tiles(warpgroup::KEYS);
    let count = tiles.count() as usize;
    tiles.y *= parts;
    let tiles = kernel.plan_for(tiles, resident)?;
    let mut plan = common.plan(Wgmma.name(), Wgmma.name());
    plan.name = format!("attention backward {asked}: {}", Wgmma.name());
    if parts > 1 {
        let elements = elements(attention.head_dim) as usize;
        let f32 = ElementType::F32;
        let len = count * parts as usize * elements;
        plan = plan.buffer("partials", Purpose::Workspace, f32, len);
    }
    let plan = common.before(plan, target)?;
    let args = common.warpgroup_args(&shape, parts)?;
    let plan = plan.step(Step::tiled(&kernel, &tiles, args));
    common.after(plan, Order::Pieces(parts), target)
}

impl Variant for Tensor {
    type Problem = Backward;

    fn name(&self) -> &'static str {
        "tensor"
    }

    fn about(&self) -> &'static str {
        "mma.sync: four warps with 16 keys each, weights in registers"
    }

    fn suits(&self, problem: &Backward, _: Target) -> Result<u32, String> {
        problem.check().map_err(|error| error.to_string())?;
        problem
            .attention
            .lies_whole()
            .map_err(|error| error.to_string())?;
        Ok(0)
    }

    fn contents(&self, problem: &Backward, buffer: &str) -> Option<Buffer> {
        contents(&problem.attention)(buffer)
    }

    fn plan(
        &self,
        problem: &Backward,
        given: Option<&Schedule>,
        target: Target,
    ) -> Result<LaunchPlan, KernelError> {
        self.suits(problem, target).map_err(KernelError::unfit)?;
        let attention = &problem.attention;
        let shape = TensorShape {
            head_dim: attention.head_dim,
            dtype: attention.dtype,
            mask: attention.mask.kind(),
            ragged: attention.is_ragged(),
            sums: problem.sums,
            pairs: problem.pairs().map(|mask| mask.element),
            change: problem.change(),
        };
        let common = Common::of(problem, shape.queries())?;
        let own = Schedule::new(TileSource::Direct);
        let kernel = tensor::build(shape, given.unwrap_or(&own), target.arch)?;
        let registers = target.arch.limits().registers_per_thread / 8 * 8;
        let resident = target.resident(&kernel.built.launch, registers);
        let tiles = kernel.plan_for(common.tiles(tensor::KEYS), resident)?;
        let plan = common.plan(self.name(), self.name());
        let plan = common.before(plan, target)?;
        let plan = plan.step(Step::tiled(&kernel, &tiles, common.args()?));
        common.after(plan, Order::Rows, target)
    }
}

impl Variant for Wgmma {
    type Problem = Backward;

    fn name(&self) -> &'static str {
        "wgmma"
    }

    fn about(&self) -> &'static str {
        "Hopper's own tensor cores: two warpgroups with 64 keys each, a thread that copies"
    }

    fn suits(&self, problem: &Backward, target: Target) -> Result<u32, String> {
        problem.check().map_err(|error| error.to_string())?;
        if !target.arch.supports(Feature::Wgmma) {
            return Err(format!("{} has no wgmma: it needs sm_90a", target.arch));
        }
        if problem.pairs().is_some() {
            return Err("a mask of pairs: variant=tensor has it".into());
        }
        Ok(1)
    }

    fn contents(&self, problem: &Backward, buffer: &str) -> Option<Buffer> {
        contents(&problem.attention)(buffer)
    }

    fn plan(
        &self,
        problem: &Backward,
        given: Option<&Schedule>,
        target: Target,
    ) -> Result<LaunchPlan, KernelError> {
        self.suits(problem, target).map_err(KernelError::unfit)?;
        let shape = WarpgroupShape::of(problem);
        let parts = parts(&problem.attention, &shape, target.sms);
        backward_in_parts(problem, parts, given, target)
    }
}
