//! What is fixed when a kernel on warpgroups is built, and which problems and tiles fit.

use super::super::anew::{Anew, majors, through_registers};
use super::super::epilogue::Finish;
use super::super::leave::{MOST_BUFFERS, Staging};
use super::super::problem::{Gemm, Input, Layout, Major, Output, Scales};
use super::super::rows::Panel;
use super::super::tiling::{Cluster, Tiling};
use crate::error::KernelError;
use crate::family::Target;
use heist_builder::{Arch, Feature};
use heist_launch::{Dim3, TensorElement};

/// As the copy engine calls it.
pub(crate) fn element(input: Input) -> TensorElement {
    match input {
        Input::F16 => TensorElement::F16,
        Input::Bf16 => TensorElement::Bf16,
        // The copy engine rounds. Of f32 the tensor cores would leave out the lower bits.
        Input::Tf32 => TensorElement::Tf32,
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
    let across = [Input::F16, Input::Bf16, Input::Tf32];
    // What can't be copied as it is stored is written anew, but for 8-bit floats.
    let anew = Anew::of(problem, false);
    let read = anew.as_ref().map_or(problem, |anew| &anew.problem);
    uncopyable(read, &across)
}

/// Why the copy engine can't bring the operands as tensor cores take them, of which these types may be stored `across` the depth.
pub(crate) fn uncopyable(problem: &Gemm, across: &[Input]) -> Option<String> {
    if !across.contains(&problem.input) && problem.layout != Layout::Nt {
        return Some(format!(
            "it multiplies {} stored along the depth, in layout nt, not {}",
            problem.input, problem.layout
        ));
    }
    let per = 16 / problem.input.bytes();
    let astray = problem.anywhere.contains(&true)
        || [problem.lda, problem.ldb]
            .iter()
            .any(|pitch| !pitch.is_multiple_of(per));
    if problem.k == 0 || astray {
        return Some("tensor copies need rows that start at multiples of 16 bytes".into());
    }
    None
}

/// How accumulators are stored.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Way {
    Staged(Staging),
    Rows(Panel),
    Threads,
    /// As partial sums in memory.
    Shares,
    /// By threads, once the blocks that share the depth have added them up.
    Met,
}

/// Everything that is fixed when a kernel is built. Kernels of equal forms are
/// the same.
#[derive(Clone, Copy, Debug)]
pub(super) struct Form {
    pub(super) tiling: Tiling,
    /// Bytes of an element of the operands.
    pub(super) bytes: u32,
    /// How the left and the right operand are stored.
    pub(super) majors: [Major; 2],
    /// Whether the left one goes through registers.
    pub(super) through: bool,
    pub(super) finish: Finish,
    pub(super) scales: Scales,
    /// Whether products are accumulated in two levels.
    pub(super) levels: bool,
    /// Whether scales of blocks come with their stages.
    pub(super) copied: bool,
    /// Whether there are several products.
    pub(super) batched: bool,
    /// Whether results are stored as they are added up.
    pub(super) words: bool,
    pub(super) way: Way,
    /// Whether factors of rows and columns are read before the products.
    pub(super) ahead: bool,
    /// Whether all tiles lie inside of the result, down and across.
    pub(super) even: [bool; 2],
    /// Whether the last tiles down and across are copied by maps of their own ([`Edge`](super::super::warpgroup::Edge)).
    pub(super) edges: [bool; 2],
    /// Whether the depth is so short that stores take a good part of a tile's time.
    pub(super) short: bool,
    /// Axes of the grid of tiles.
    pub(super) rank: u32,
}

/// Such a depth, in elements of 16 bits.
pub(crate) const SHORT: u32 = 1024;

/// Sums of a thread up to which whole rows of f32 leave row by row too: of a short depth that took 0.7 to 0.9 of the time of pairs.
const MOST_IN_ROWS: u32 = 128;

impl Form {
    pub(super) fn new(problem: &Gemm, tiling: &Tiling, arch: Arch) -> Result<Form, KernelError> {
        let majors = majors(problem, tiling.swapped);
        let finish = Finish::new(&problem.epilogue, problem.scales, problem.ldc);
        let wrong = |why| Err(KernelError::unfit(format!("tile shape {tiling}: {why}")));
        if problem.in_levels() {
            fits_levels(problem.scales, tiling).or_else(wrong)?;
            if tiling.pingpong {
                wrong("two warpgroups with a tile each add up in one level")?;
            }
        }
        let through = through_registers(problem, tiling.swapped);
        if through && !tiling.can_go_through() {
            wrong("words stored across the depth go through registers, and its sums leave none")?;
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
        let words = problem.output == Output::F32;
        let staged = || Staging::new(tiling, room, MOST_BUFFERS).map(Way::Staged);
        let rows = || {
            let (bytes, warps) = (problem.output.bytes(), tiling.groups() * 4);
            Panel::new(bytes, tiling.cols, warps, room.checked_sub(1024)?).map(Way::Rows)
        };
        let stored = match (words, whole) {
            _ if tiling.cluster == Cluster::Depth => Some(Way::Met),
            _ if tiling.split > 1 => Some(Way::Shares),
            (false, true) => staged(),
            _ if tiling.swapped => None,
            // Pairs of words that begin with sectors fill them, and larger tiles leave no registers for rows.
            (true, true) if tiling.sums() > MOST_IN_ROWS => None,
            _ => rows(),
        };
        let way = stored.unwrap_or(Way::Threads);
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
            through,
            finish,
            scales: problem.scales,
            levels: problem.in_levels(),
            copied: blocks && tiling.copies_scales(),
            batched: problem.batch > 1,
            words,
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
    let [left, right] = majors(problem, tiling.swapped);
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
pub(super) fn steps(problem: &Gemm, tiling: &Tiling) -> u32 {
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
pub(super) fn extent(tiling: &Tiling, [rows, cols]: [u32; 2]) -> [u32; 2] {
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
