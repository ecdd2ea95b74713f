//! Registers: what a thread takes besides its sums under a schedule, and which tiles leave it that.
//!
//! The figures are ptxas's: of 3576 kinds of products and groups the widest tiles that it assembles without spills, and of 15,109 kernels those that
//! spilled (`spills` in `bench/programs`, with and without what is refused here). Where registers can move to the threads that multiply they do; what does
//! not fit then is refused, and narrower tiles are chosen.

use super::super::problem::Scales;
use super::super::tiling::{BESIDES, LET_GO, LET_GO_WITH_C, THROUGH, TURNED};
use super::block::{copies_c, copying_registers, in_roles, is_plain};
use super::form::{Form, Way};
use heist_sched::{Policy, Schedule};

/// As many where a condition holds.
fn if_(holds: bool, registers: u32) -> u32 {
    if holds { registers } else { 0 }
}

/// Whether C takes registers. In the buffers that results leave from it takes four words at a time, for which plain loops have room.
fn reads_c(form: &Form, schedule: &Schedule) -> bool {
    let copied = form.finish.adds_matrix() && matches!(form.way, Way::Staged(_));
    form.finish.adds && !(copied && is_plain(schedule))
}

/// What threads read in the epilogue, which takes registers.
struct Reads {
    /// How many things for each sum: C, and factors of rows and columns.
    each: u32,
    /// Whether anything, a bias too.
    any: bool,
    /// The same, counted.
    all: u32,
}

impl Reads {
    fn of(form: &Form, schedule: &Schedule) -> Reads {
        let rows = u32::from(form.scales == Scales::Rows);
        let (adds, bias) = (
            u32::from(reads_c(form, schedule)),
            u32::from(form.finish.bias),
        );
        Reads {
            each: adds + rows,
            any: adds + rows + bias > 0,
            all: adds + rows + bias,
        }
    }
}

/// Of how many blocks of 8 columns a thread has registers for the biases, a pair of columns in a word: 16 beside so few sums that one wait does for
/// 128 columns, 8 for a panel. None where anything else is read, decided or added up, or one loop is for all, which has taken what was left.
pub(super) fn biases(form: &Form, schedule: &Schedule) -> u32 {
    let alone = Reads::of(form, schedule).all == 1 && !form.levels && form.tiling.groups() < 3;
    match is_plain(schedule)
        && in_roles(form, schedule)
        && alone
        && matches!(form.way, Way::Staged(_))
    {
        true if form.tiling.sums() <= 64 => 16,
        true => 8,
        false => 0,
    }
}

/// Rows of halves that threads store from shared memory in words: an address, a row and what is inside, beside all that the epilogue reads. Rows that begin at every other
/// element take no more, since their words are put together one by one.
fn stores_rows(form: &Form) -> bool {
    matches!(form.way, Way::Rows(_)) && !form.words && form.finish.aligned == 2
}

/// The same in f32. They take no more where a policy is interpreted or tiles are left half done.
fn stores_words(form: &Form) -> bool {
    matches!(form.way, Way::Rows(_)) && form.words
}

/// What a thread takes besides its sums where nothing is left half done and no policy is interpreted.
fn besides(form: &Form, schedule: &Schedule) -> u32 {
    let (tiling, reads) = (&form.tiling, Reads::of(form, schedule));
    let twice = !tiling.keeps();
    let clustered = tiling.cluster.count() > 1;
    let (rows, words) = (stores_rows(form), stores_words(form));
    let one_loop = !in_roles(form, schedule);
    // C in the buffers: where it comes from and goes to is known before the products.
    let asked = copies_c(form, schedule);
    if is_plain(schedule) {
        return BESIDES
            + if_(
                (rows || words) && !form.levels,
                if tiling.pingpong || reads.any { 24 } else { 12 },
            )
            + if_(
                rows && tiling.pingpong && !form.levels,
                if reads.any { 16 } else { 40 },
            )
            + if_(rows && twice && reads.any, 16)
            + if_(rows && twice && clustered && reads.all > 1, 24)
            + if_(tiling.pingpong && (reads.each > 1 || asked), 8)
            + if_(
                twice && tiling.swapped && form.finish.bias,
                if clustered { 24 } else { 8 },
            )
            + if_(form.way == Way::Met && form.levels && reads.any, 64);
    }
    BESIDES
        + if_(rows, 24)
        + if_(rows && reads.any, 24)
        + if_(twice && clustered && reads.all > 1, 20)
        + if_(twice && reads.all > 2, 16)
        + if_(twice && tiling.swapped && reads.any, 28)
        + if_(twice && schedule.classes.is_some(), 16)
        + if_(one_loop && twice && form.words && reads.any, 4)
}

/// The same where a tile can be left half done, or a policy is interpreted.
fn let_go(form: &Form, schedule: &Schedule) -> u32 {
    let (tiling, reads) = (&form.tiling, Reads::of(form, schedule));
    let (twice, three) = (!tiling.keeps(), tiling.groups() == 3);
    let clustered = tiling.cluster.count() > 1;
    let many = tiling.cluster.count() > 2;
    let one_loop = !in_roles(form, schedule);
    let each = reads.each.max(form.words.into());
    // Where a thread has 64 rows, one thing that is read fits what is left, unless three warpgroups share the registers.
    let reading = each > 1 || each == 1 && (twice || three);
    let half = !tiling.cols.is_multiple_of(16);
    // Columns behind the last panel, beside panels that are narrow since shared memory is full.
    let narrow = matches!(form.way, Way::Staged(staging) if staging.width() < 64);
    let turned_bias = twice && tiling.swapped && form.finish.bias && !reading;
    let (rows, by_threads) = (stores_rows(form), matches!(form.way, Way::Rows(_)));
    let reading = reading || tiling.pingpong && form.finish.bias;
    // C that comes through the buffers has its own addresses: of three warpgroups 192 x 152 fits, 192 x 160 does not.
    let asked = copies_c(form, schedule);
    LET_GO
        + if_(reading, LET_GO_WITH_C)
        + if_(one_loop && (twice || reading), IN_ONE_LOOP)
        + if_(one_loop && three && !reading, 24)
        + if_(one_loop && three && reading && tiling.swapped, 8)
        + if_(one_loop && three && asked, 8)
        + if_(one_loop && twice && clustered && reads.all > 1, 24)
        + if_(one_loop && twice && clustered && reads.all > 2, 24)
        + if_(tiling.pingpong && each > 1, 8)
        + if_(by_threads && (twice || one_loop && clustered), IN_ONE_LOOP)
        + if_(one_loop && clustered && by_threads, 40)
        + if_(one_loop && many && !twice && reads.all > 1, IN_MANY)
        + if_(twice && tiling.swapped && half, HALF)
        + if_(twice && !tiling.swapped && half && narrow, HALF / 2)
        + if_(turned_bias, if one_loop { 8 } else { 16 })
        + if_(rows, 36)
        + if_(rows && reads.any && !reading, LET_GO_WITH_C)
        + if_(
            twice && tiling.swapped && form.way == Way::Threads && form.finish.aligned < 8,
            16,
        )
        + if_(form.way == Way::Shares, 8)
}

/// As many more in clusters of four where warpgroups have no loop of their own and read two things: 128 x 256 spilled seven words, 128 x 224 fits.
const IN_MANY: u32 = 60;
/// As many more where warpgroups have no loop of their own: 256 x 152 fits with C then, 256 x 160 does not.
const IN_ONE_LOOP: u32 = 16;
/// As many more where operands are swapped, a thread has twice 64 rows, and half of 16 columns is left: 256 x 120 and 256 x 144 fit, 256 x 136 does not.
const HALF: u32 = 64;
/// As many more where 64 rows of a thread's are added up in two levels: 128 x 192 does not fit, 128 x 176 and 256 x 128 do.
const IN_LEVELS: u32 = 8;
/// As many as a thread takes for the pieces that the last tiles are cut in, where a policy decides between them: 128 x 256 has not so many.
const PIECES: u32 = 40;
/// What a thread takes besides its sums there, once registers have moved: in loops of their own, and in one.
const BESIDES_PIECES: [u32; 2] = [100, 136];

/// Registers that a thread keeps which copies: for a policy that is interpreted, or to leave a tile. What all warps of an only loop keep from tile to tile
/// lies in them too, and so does what is known of pieces.
pub(super) fn copying(form: &Form, schedule: &Schedule) -> u32 {
    let turned_or_clustered = form.tiling.swapped || form.tiling.cluster.count() > 1;
    let keeps_more = turned_or_clustered && !in_roles(form, schedule);
    match copying_registers(schedule) {
        0 if is_plain(schedule) => 0,
        0 if form.tiling.tail => 104,
        0 => 56,
        _ if form.tiling.tail => 120,
        least => least + if_(keeps_more, 16),
    }
}

/// What a thread takes besides its sums: partial sums, the epilogue, and what the schedule takes.
fn taken(form: &Form, schedule: &Schedule) -> u32 {
    if copying_registers(schedule) == 0 {
        return besides(form, schedule) + if_(form.levels, form.tiling.cols / 2);
    }
    let part = match (form.levels, form.tiling.keeps()) {
        (true, true) => form.tiling.cols / 2 + IN_LEVELS,
        (true, false) => form.tiling.cols / 2,
        (false, _) => 0,
    };
    part + let_go(form, schedule) + through(form, schedule)
}

/// As many as a thread takes where words go through registers and a policy is interpreted, or tiles are left half done.
const THROUGH_LET_GO: u32 = 24;

/// What words that go through registers take.
fn through(form: &Form, schedule: &Schedule) -> u32 {
    let let_go = copying_registers(schedule) > 0;
    if_(form.through, if let_go { THROUGH_LET_GO } else { THROUGH })
}

/// Registers that a thread takes which multiplies, more than others do: these move to it, if it does not start with them.
pub(super) fn more(form: &Form, schedule: &Schedule) -> u32 {
    let (tiling, reads) = (&form.tiling, Reads::of(form, schedule));
    let swapped = tiling.swapped;
    let roles = in_roles(form, schedule);
    let turned = if_(
        swapped && (reads_c(form, schedule) || form.finish.bias),
        TURNED,
    );
    let own = match copying_registers(schedule) {
        0 => besides(form, schedule).saturating_sub(BESIDES),
        _ if reads_c(form, schedule) => LET_GO_WITH_C,
        _ => 0,
    };
    // In a loop of their own registers move once, so that it costs nothing to have them.
    let room = match (is_plain(schedule), copying_registers(schedule) > 0) {
        (true, _) => 0,
        (false, _) if tiling.tail && !roles => MANY,
        (false, true) if roles => if_(reads.any || form.words, 44),
        (false, true) => {
            if swapped && reads.any {
                44
            } else {
                20
            }
        }
        (false, false) if schedule.classes.is_some() => if_(reads.any, 44),
        (false, false) => if_(reads.any, if swapped { 24 } else { 12 }),
    };
    let cut = if_(tiling.tail && !roles, MANY);
    let stored = own.max(turned).max(room).max(cut);
    let through = through(form, schedule);
    match copying_registers(schedule) {
        // What is read for the epilogue and what goes through registers for the products are not there at a time.
        0 => stored.max(through),
        _ => stored + through,
    }
}

/// More than any thread starts with.
const MANY: u32 = 255;

/// Whether a thread has registers for such tiles under a schedule.
pub(super) fn holds(form: &Form, schedule: &Schedule) -> bool {
    let tiling = &form.tiling;
    let least = copying_registers(schedule);
    let decided = schedule.policy.constant().is_none();
    if tiling.tail && (least > 0 || decided) {
        let through = through(form, schedule);
        let cut = tiling.sums() + LET_GO + PIECES + through <= tiling.registers();
        // One warpgroup that multiplies has no registers from others.
        let alone = tiling.groups() == 1 && reads_c(form, schedule) && least > 0;
        let [own, one] = BESIDES_PIECES;
        let taken = match in_roles(form, schedule) {
            true => own + if_(reads_c(form, schedule), 16) + if_(form.finish.aligned < 8, 32),
            false => one,
        };
        let held = tiling.sums() + taken + through <= tiling.most_beside(copying(form, schedule));
        if !cut || alone || !held && tiling.groups() > 1 {
            return false;
        }
    }
    // Beside words that go through registers C or a bias fits 256 x 176, not 256 x 184, and no pieces.
    if form.through && Reads::of(form, schedule).any {
        let read = tiling.sums() + BESIDES + THROUGH + 8;
        if tiling.tail || read > tiling.most_beside(copying(form, schedule)) {
            return false;
        }
    }
    // In an only loop registers move from tile to tile, and the assembler would wait for each product.
    let moves = tiling.moved_beside(0, more(form, schedule)).is_some();
    if form.through && least > 0 && !in_roles(form, schedule) && moves {
        return false;
    }
    let most = tiling.most_beside(copying(form, schedule));
    // Of what is plain no more is known than what tiles are checked for.
    let checked = least == 0 && besides(form, schedule) == BESIDES;
    checked || tiling.sums() + taken(form, schedule) <= most
}
