//! From a problem and a [`Tiling`] to launches.

use super::super::anew::Anew;
use super::super::halves::Halves;
use super::super::pieces::tile_time;
use super::super::problem::{Gemm, Input, Output, Scales};
use super::super::tail::Tail;
use super::super::tiling::Tiling;
use super::super::warpgroup::Matrices;
use super::super::{scales, split};
use super::block::{WgmmaArgs, build, in_roles, is_plain};
use super::form::{Form, Way, edges, element, extent, refusal, steps, tiles, unshared};
use super::registers;
use crate::error::KernelError;
use crate::family::Target;
use crate::job::{Step, buffer};
use crate::overlap::tiles_a_leave;
use crate::plan::{LaunchPlan, Purpose};
use heist_builder::{Arch, BuildError, E4m3, E5m2, Tf32, With, bf16, f16};
use heist_launch::{Arg, BufferRef, Dim3, ElementType, TensorElement, TensorMap as Map};
use heist_sched::{Schedule, TileSource, TiledKernel};

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
    let given = problem;
    let anew = Anew::of(problem, tiling.swapped);
    let problem = anew.as_ref().map_or(problem, |anew| &anew.problem);
    let form = fitting(problem, tiling, schedule, target)?;
    let parts = parts(problem, tiling, schedule, target)?;
    let kernel = kernel(problem, &form, &parts, schedule, target.arch)?;
    let kernel = kernel.leaving(tiles_a_leave(tile_time(
        tiling,
        problem.k * problem.input.bytes(),
    )));
    let resident = target.resident(&kernel.built.launch, tiling.registers());
    let launch = kernel.plan(resident)?;
    let names = anew.as_ref().map_or(["a", "b"], Anew::names);
    let args = arguments(problem, &form, names, &parts);
    let name = format!("gemm {given} {tiling}");
    let mut step = Step::tiled(&kernel, &launch, args);
    // The second launch of shares gains by it, this one loses.
    step.overlaps &= form.way != Way::Shares;
    step.halves = match &parts {
        Parts::Halves(halves) => Some(halves.told()),
        _ => None,
    };
    let plan = LaunchPlan::new(name, tiling.to_string(), problem.work());
    let plan = match &anew {
        None => plan,
        Some(anew) => anew.before(plan, target)?,
    };
    let plan = plan.step(step);
    if let Parts::Tail(tail) = &parts {
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
    let mut form = Form::new(problem, tiling, target.arch)?;
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
    if !registers::holds(&form, schedule) {
        return Err(KernelError::unfit(format!(
            "tile shape {tiling}: its sums, what is read for them and what {schedule} takes do not fit the registers"
        )));
    }
    if problem.n.is_multiple_of(2) {
        form.finish.biases = registers::biases(&form, schedule);
    }
    Ok(form)
}

/// Whether a thread has registers for such tiles under a schedule.
pub(crate) fn holds(problem: &Gemm, tiling: &Tiling, schedule: &Schedule, target: Target) -> bool {
    let form = Form::new(problem, tiling, target.arch);
    form.is_ok_and(|form| registers::holds(&form, schedule))
}

/// The kernel of a form, for the problem's types.
fn kernel(
    problem: &Gemm,
    form: &Form,
    parts: &Parts,
    schedule: &Schedule,
    arch: Arch,
) -> Result<TiledKernel<WgmmaArgs>, BuildError> {
    let tiles = match parts {
        Parts::None => tiles(problem, &form.tiling),
        Parts::Tail(tail) => Dim3::new(tail.units(), 1, 1),
        Parts::Halves(halves) => Dim3::new(halves.units(), 1, 1),
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
fn arguments(problem: &Gemm, form: &Form, names: [&str; 2], parts: &Parts) -> WgmmaArgs<With<Arg>> {
    let tail = match parts {
        Parts::Tail(tail) => Some(tail),
        _ => None,
    };
    let tiling = &form.tiling;
    let steps = steps(problem, tiling);
    // An unused parameter is set to any buffer.
    let either = |used, name| buffer(if used { name } else { "d" });
    let scaled = problem.scales != Scales::None;
    let [left, right, out] = maps(problem, form, names);
    let [scales_a, scales_b] = match form.copied {
        true => scales::maps(problem.scale_counts(), tiling.rows),
        // The kernel does not look at them.
        false => [left.clone(), left.clone()],
    };
    let inside = edges(problem, tiling);
    let [left_edge, right_edge] = edge_maps(problem, form, names, inside);
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
        share: match parts {
            Parts::None => steps.div_ceil(tiling.split),
            Parts::Tail(tail) => tail.whole,
            Parts::Halves(halves) => halves.first,
        },
        alpha: problem.epilogue.alpha,
        beta: problem.epilogue.beta,
    }
}

/// What some tiles of a launch are cut in.
enum Parts {
    None,
    Tail(Tail),
    Halves(Halves),
}

/// Those of these tiles.
fn parts(
    problem: &Gemm,
    tiling: &Tiling,
    schedule: &Schedule,
    target: Target,
) -> Result<Parts, KernelError> {
    let parts = match (tiling.tail, tiling.halves) {
        (true, _) => match can_cut(problem, tiling, Some(schedule)) {
            true => cut(problem, tiling, target).map(Parts::Tail),
            false => Err("the last tiles are not cut where the order of tiles is a table"),
        },
        (_, true) => match can_halve(problem, tiling, schedule) {
            true => Halves::new(tiles(problem, tiling).count() as u32, target.sms)
                .map(Parts::Halves)
                .ok_or("the last wave leaves no multiprocessor idle, so that no tile is halved"),
            false => Err(
                "tiles are halved where blocks take tile after tile, of one product of whole rows of tiles without scales, added in one level",
            ),
        },
        _ => Ok(Parts::None),
    };
    parts.map_err(|why| KernelError::unfit(format!("gemm {problem} {tiling}: {why}")))
}

/// Whether some tiles can be handed out in halves of their rows. A tile that may be left half done is whole.
fn can_halve(problem: &Gemm, tiling: &Tiling, schedule: &Schedule) -> bool {
    let dealt = matches!(schedule.source, TileSource::Ticket | TileSource::Static);
    let plain = problem.batch == 1 && !problem.in_levels() && problem.scales == Scales::None;
    let rows = problem.m.is_multiple_of(tiling.rows);
    dealt && is_plain(schedule) && plain && rows && can_cut(problem, tiling, Some(schedule))
}

/// Steps of a tile's depth from which on halves are worth it: alone they cost 0 to 0.6%, and with 32 steps and 16 up to 1%.
const DEEP: u32 = 64;

/// The same tiles, some of them in halves where that helps beside others that hold multiprocessors. Tiles of 256 rows take 1% longer in halves.
pub(crate) fn halved(
    problem: &Gemm,
    tiling: Tiling,
    schedule: &Schedule,
    target: Target,
) -> Tiling {
    let halved = tiling.halves();
    let count = tiles(problem, &tiling).count() as u32;
    let deep = steps(problem, &tiling) >= DEEP && tiling.rows == 128;
    let helps = || Halves::worth(count, target.sms).is_some();
    match deep && can_halve(problem, &tiling, schedule) && helps() && halved.check().is_ok() {
        true => halved,
        false => tiling,
    }
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
fn operand_maps(problem: &Gemm, tiling: &Tiling, [a, b]: [&str; 2], boxed: [u32; 2]) -> [Arg; 2] {
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
    let a = map(a, problem.layout.a(), problem.m, problem.lda, rows);
    let b = map(b, problem.layout.b(), problem.n, problem.ldb, cols);
    if tiling.swapped { [b, a] } else { [a, b] }
}

/// Those of what the last tiles have of them. A map that the kernel does not look at may be any.
fn edge_maps(problem: &Gemm, form: &Form, names: [&str; 2], inside: [Option<u32>; 2]) -> [Arg; 2] {
    let Tiling { rows, cols, .. } = form.tiling;
    let boxed = [inside[0].unwrap_or(rows), inside[1].unwrap_or(cols)];
    operand_maps(problem, &form.tiling, names, boxed)
}

/// The tensor maps of both operands and of the result.
fn maps(problem: &Gemm, form: &Form, names: [&str; 2]) -> [Arg; 3] {
    let tiling = &form.tiling;
    // Of what the blocks of a cluster have in common each copies a part.
    let [below, beside] = tiling.cluster.sides();
    let boxed = [tiling.rows / beside, tiling.cols / below];
    let [left, right] = operand_maps(problem, tiling, names, boxed);
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
