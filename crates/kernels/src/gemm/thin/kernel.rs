//! The kernel: a tile's share of the depth, multiplied and added up.

use super::tile::{Form, THREADS, majors, sides, swapped};
use crate::error::KernelError;
use crate::family::Target;
use crate::gemm::epilogue::{Finish, To};
use crate::gemm::kernel::{Stages, skip};
use crate::gemm::operand::{Element, From, Operand, Span, Width};
use crate::gemm::problem::{Gemm, Input, Major, Output, Scales};
use crate::gemm::spread::Added;
use crate::gemm::stored::Stored;
use crate::job::{Step, buffer};
use crate::overlap::overlap;
use heist_builder::{
    Arch, Bool, BuildError, Global, Kernel, On, Ptr, SharedArray, Tf32, Val, WarpTile, bf16, f16,
    kernel_params,
};
use heist_launch::Dim3;
use heist_sched::{Schedule, TileSource, Tiled, TiledKernel};

kernel_params! {
    /// The kernel's parameters.
    pub(crate) struct ThinArgs {
        /// The large operand.
        large: Global<u8>,
        /// The one of few rows.
        small: Global<u8>,
        /// What is added; not read where beta is zero.
        c: Global<u8>,
        /// The result. May be C.
        d: Global<u8>,
        /// What is added to every row; not read where there is none.
        bias: Global<u8>,
        /// Rows of the large operand.
        outer: u32,
        /// Few rows.
        few: u32,
        /// The depth.
        depth: u32,
        /// How many products there are.
        batch: u32,
        /// Elements from row to row of the large operand as it is stored.
        large_pitch: u32,
        /// Of the other one.
        small_pitch: u32,
        /// Of C and D.
        ldc: u32,
        /// The factor of the product.
        alpha: f32,
        /// The factor of C.
        beta: f32,
    }
}

/// Everything that is fixed when the kernel is built.
#[derive(Clone, Copy, Debug)]
struct Plan {
    form: Form,
    large: Operand,
    small: Operand,
    swapped: bool,
    finish: Finish,
}

impl Plan {
    fn new(problem: &Gemm, form: Form) -> Plan {
        let swapped = swapped(problem);
        let operand = |name, major, outer, kept| Operand {
            name,
            major,
            outer,
            depth: form.depth,
            width: Width::Shifted,
            even_outer: false,
            even_depth: false,
            kept,
        };
        let [large, small] = majors(problem);
        Plan {
            form,
            large: operand("large", large, form.tile.outer, false),
            small: operand("small", small, form.few, true),
            swapped,
            finish: Finish::new(&problem.epilogue, Scales::None, problem.ldc),
        }
    }

    /// Words from a row of sums to the next, as rows of the result: threads add up and store neighbours, most of them of other blocks, whose shared memory
    /// gives 32 bytes as fast as four. The warps that leave the sums do so in different banks.
    fn pitch(&self) -> u32 {
        let Form { tile, few, .. } = self.form;
        match self.swapped {
            true => tile.outer + 4,
            false if few.is_multiple_of(16) => few + 8,
            false => few,
        }
    }

    /// Words of the sums of a part of the depth.
    fn part(&self) -> u32 {
        let Form { tile, few, .. } = self.form;
        self.pitch() * if self.swapped { few } else { tile.outer }
    }

    /// Where a sum is among those of its part.
    fn place<'k>(&self, few: Val<'k, u32>, outer: Val<'k, u32>) -> Val<'k, u32> {
        match self.swapped {
            true => few.mul_add(self.pitch(), outer),
            false => outer.mul_add(self.pitch(), few),
        }
    }
}

/// The launch.
///
/// # Errors
/// What could not be built or planned.
pub(super) fn step(
    problem: &Gemm,
    form: &Form,
    schedule: &Schedule,
    target: Target,
) -> Result<Step, KernelError> {
    let plan = Plan::new(problem, *form);
    let tile = form.tile;
    let [few, outer] = sides(problem);
    let tiles = Dim3::new(tile.shares, outer.div_ceil(tile.outer), problem.batch);
    let kernel = build(&plan, problem, tiles, schedule, target.arch)?;
    let launch = kernel.plan(target.resident(&kernel.built.launch, registers(form)))?;
    let [large, small] = match plan.swapped {
        true => [("b", problem.ldb), ("a", problem.lda)],
        false => [("a", problem.lda), ("b", problem.ldb)],
    };
    let args = ThinArgs {
        large: buffer(large.0),
        small: buffer(small.0),
        c: buffer("c"),
        d: buffer("d"),
        bias: buffer("bias"),
        outer,
        few,
        depth: problem.k,
        batch: problem.batch,
        large_pitch: large.1,
        small_pitch: small.1,
        ldc: problem.ldc,
        alpha: problem.epilogue.alpha,
        beta: problem.epilogue.beta,
    };
    Ok(Step::tiled(&kernel, &launch, args))
}

/// Registers of a thread, about: beside its sums.
fn registers(form: &Form) -> u32 {
    96 + form.warp_outer * form.few / 32
}

fn build(
    plan: &Plan,
    problem: &Gemm,
    tiles: Dim3,
    schedule: &Schedule,
    arch: Arch,
) -> Result<TiledKernel<ThinArgs>, BuildError> {
    match problem.input {
        Input::F16 => build_from::<f16>(plan, problem.output, tiles, schedule, arch),
        Input::Bf16 => build_from::<bf16>(plan, problem.output, tiles, schedule, arch),
        // Others were refused.
        _ => build_from::<Tf32>(plan, problem.output, tiles, schedule, arch),
    }
}

fn build_from<T: Element>(
    plan: &Plan,
    output: Output,
    tiles: Dim3,
    schedule: &Schedule,
    arch: Arch,
) -> Result<TiledKernel<ThinArgs>, BuildError> {
    match output {
        Output::F16 => build_typed::<T, f16>(plan, tiles, schedule, arch),
        Output::Bf16 => build_typed::<T, bf16>(plan, tiles, schedule, arch),
        Output::F32 => build_typed::<T, f32>(plan, tiles, schedule, arch),
    }
}

fn build_typed<T: Element, O: Stored>(
    plan: &Plan,
    tiles: Dim3,
    schedule: &Schedule,
    arch: Arch,
) -> Result<TiledKernel<ThinArgs>, BuildError> {
    let form = &plan.form;
    Tiled::<ThinArgs>::new("gemm_thin", tiles)
        .schedule(schedule)
        .block(THREADS)
        .min_blocks(2)
        .build(arch, |k, args, tiles| {
            // Other sources touch what launches share before this.
            if schedule.source == TileSource::Direct {
                overlap(k);
            }
            // The sums lie where the stages were.
            let spec = (plan.large.spec::<T>(), plan.small.spec::<T>());
            let [large, small] = [spec.0.bytes(), spec.1.bytes()].map(|one| one * form.stages);
            let sums = form.deep() * plan.part() * 4;
            let memory = k.shared_aligned::<u8>("stages", sums.max(large + small), 128);
            let rows = if plan.swapped { args.few } else { args.outer };
            let written = || Span::of::<O>(args.d, rows.mul_wide(args.batch), args.ldc);
            let work = Work {
                k: *k,
                plan,
                joined: [
                    (&plan.large, args.large, args.large_pitch, args.outer),
                    (&plan.small, args.small, args.small_pitch, args.few),
                ]
                .map(|(operand, at, pitch, outer)| {
                    operand.joined::<T>(at, pitch, [outer, args.depth, args.batch], written)
                }),
                args,
                sums: memory.part(0, sums).cast(),
            };
            let parts = (
                memory.part(0, large).cast(),
                memory.part(large, small).cast(),
            );
            let stages = k.copy_pipeline_over(form.stages, spec, parts);
            tiles.each(|tile| {
                let outer = tile.y * form.tile.outer;
                let [large, small] = work.share::<T>(tile.x, outer, tile.z);
                let sums = work.multiply(stages.again(), large, small);
                work.leave(&sums);
                k.comment("the shares of a tile meet");
                k.cluster_sync();
                work.add_up::<O>(outer, tile.z);
                // Nobody ends, or leaves other sums, while these are read.
                k.cluster_sync();
            })
        })
}

/// What a block has at hand.
struct Work<'p, 'k> {
    k: Kernel<'k>,
    plan: &'p Plan,
    args: ThinArgs<On<'k>>,
    /// Whether what lies between rows of the large operand, and of the other one, may be read.
    joined: [Bool<'k>; 2],
    /// The sums of each part of a stage's depth, one after the other.
    sums: SharedArray<'k, f32>,
}

impl<'k> Work<'_, 'k> {
    /// A share's part of both operands.
    fn share<T: Element>(
        &self,
        share: Val<'k, u32>,
        outer: Val<'k, u32>,
        number: Val<'k, u32>,
    ) -> [From<'k, T>; 2] {
        let (k, plan, args) = (self.k, self.plan, &self.args);
        let (depth, shares) = (plan.form.depth, plan.form.tile.shares);
        let steps = (args.depth + (depth - 1)) / depth;
        let each = (steps + (shares - 1)) / shares;
        let first = (share * each * depth).min(args.depth);
        let end = (first + each * depth).min(args.depth);
        let of = |which: usize, at: Ptr<'k, Global, u8>, outer0, all: Val<'k, u32>, pitch| {
            let (operand, joined) = ([&plan.large, &plan.small][which], self.joined[which]);
            let rows = match operand.major {
                Major::Depth => all,
                Major::Outer => args.depth,
            };
            let matrix = at
                .cast::<T>()
                .at(skip(Major::Depth, number, rows) * wide(pitch));
            let (inner, row) = match operand.major {
                Major::Depth => (first, outer0),
                Major::Outer => (outer0, first),
            };
            From {
                at: matrix.at(wide(row) * wide(pitch) + wide(inner)),
                pitch,
                outer: all - outer0,
                depth: end - first,
                follows: inner.gt(0u32),
                row: operand.stored_row(outer0, first),
                joined,
            }
        };
        [
            of(0, args.large, outer, args.outer, args.large_pitch),
            of(1, args.small, k.c(0), args.few, args.small_pitch),
        ]
    }

    /// The warp's sums: of its rows of the large operand times all few rows, over its part of each stage's depth.
    fn multiply<T: Element>(
        &self,
        stages: Stages<'k, T>,
        large: From<'k, T>,
        small: From<'k, T>,
    ) -> WarpTile<'k> {
        let (k, plan) = (self.k, self.plan);
        let Form {
            warp_outer,
            few,
            depth,
            ..
        } = plan.form;
        let sums = WarpTile::zero(&k, (warp_outer / 16) as usize, (few / 8) as usize);
        let part = depth / plan.form.deep();
        let (outer, begin) = (self.place().0 * warp_outer, self.place().1 * part);
        let shifts = [(&plan.large, large), (&plan.small, small)]
            .map(|(operand, from)| operand.row_shifts(&k, from));
        stages.run(
            (large.depth + (depth - 1)) / depth,
            |step, (left, right)| {
                plan.large.fill(step, large, left);
                plan.small.fill(step, small, right);
            },
            |_, (left, right)| {
                let left = left.shifted(outer, begin, &shifts[0]);
                let right = right.shifted(0, begin, &shifts[1]);
                for step in 0..part / T::K {
                    let rows: Vec<_> = (0..warp_outer / 16)
                        .map(|block| left.left(block, step))
                        .collect();
                    let cols: Vec<_> = (0..few / 8).map(|block| right.right(block, step)).collect();
                    sums.mma(&rows, &cols);
                }
            },
        );
        sums
    }

    /// The warp's number among those side by side, and its part of the depth.
    fn place(&self) -> (Val<'k, u32>, Val<'k, u32>) {
        let (warp, deep) = (self.k.warp_uniform(), self.plan.form.deep());
        (warp / deep, warp % deep)
    }

    /// Leaves the warp's sums in shared memory.
    fn leave(&self, sums: &WarpTile<'k>) {
        let plan = self.plan;
        let (beside, part) = self.place();
        let own = self.sums.ptr().at(part * plan.part());
        let outer = beside * plan.form.warp_outer;
        let next = if plan.swapped { plan.pitch() } else { 1 };
        sums.each_pair(|row, col, pair| {
            let at = own.at(plan.place(col, outer + row));
            at.store(pair[0]);
            at.at(next).store(pair[1]);
        });
    }

    /// Adds up this block's results, of the tile from row `outer0` of the large operand on, and stores them.
    fn add_up<O: Stored>(&self, outer0: Val<'k, u32>, number: Val<'k, u32>) {
        let (k, form, args) = (self.k, &self.plan.form, &self.args);
        let tile = form.tile;
        let own = k.cluster_rank() * THREADS + k.thread_index();
        let (all, turn) = (form.few * tile.outer, tile.shares * THREADS);
        for before in (0..all).step_by(turn as usize) {
            let index = own + before;
            // Neighbouring threads store neighbours.
            let (few, outer) = match self.plan.swapped {
                true => (index / tile.outer, index % tile.outer),
                false => (index % form.few, index / form.few),
            };
            let inside = few.lt(args.few) & (outer0 + outer).lt(args.outer);
            let inside = match before + turn <= all {
                true => inside,
                false => inside & index.lt(all),
            };
            k.if_(inside, || {
                let sum = self.added(self.plan.place(few, outer));
                self.store::<O>(number, [few, outer0 + outer], sum);
            });
        }
    }

    /// What all parts of the depth have there, in their order.
    fn added(&self, at: Val<'k, u32>) -> Val<'k, f32> {
        let form = &self.plan.form;
        let shares = form.tile.shares;
        let first = self.sums.ptr().at(at);
        let mut parts = Vec::new();
        for share in 0..shares {
            for part in 0..form.deep() {
                let further = part * self.plan.part();
                parts.push(match shares {
                    1 => first.at(further).load(),
                    _ => first.on(share).at(further).load(),
                });
            }
        }
        let all = parts.into_iter().reduce(|sum, part| sum + part);
        all.unwrap_or(self.k.c(0.0))
    }

    /// Finishes and stores a result.
    fn store<O: Stored>(
        &self,
        number: Val<'k, u32>,
        [few, outer]: [Val<'k, u32>; 2],
        sum: Val<'k, f32>,
    ) {
        let (k, args, finish) = (self.k, &self.args, &self.plan.finish);
        let (rows, row, col) = match self.plan.swapped {
            true => (args.few, few, outer),
            false => (args.outer, outer, few),
        };
        let first = (wide(number) * wide(rows) + wide(row)) * wide(args.ldc) + wide(col);
        let to = To {
            d: args.d.cast::<O>().at(first),
            c: Added::new(finish.spread, args.c.cast()).at([row, col], first),
            bias: args.bias.cast::<O>().at(col),
            pitch: args.ldc,
            rows: None,
            cols: None,
            alpha: args.alpha,
            beta: args.beta,
            scales: None,
            placed: None,
        };
        let c = finish.adds.then(|| to.c.load());
        let bias = finish.bias.then(|| to.bias.load().cast::<f32>());
        let value = finish.single(&k, sum, [None, c, bias], &to);
        to.d.store(O::round(value));
    }
}

fn wide(value: Val<'_, u32>) -> Val<'_, u64> {
    value.cast()
}
