//! `setmaxnreg`: registers that warps of a block give back and take.
//!
//! A block's warps start with the same number. `.dec` puts registers into the
//! block's pool; `.inc` waits until the pool has enough. Nothing else is changed
//! by it: the simulator's registers do not run out.

use crate::access::context::Cx;
use crate::code::{Flow, Reach, Wait};
use crate::decode::map::with;
use crate::decode::mods::{Mods, only, operands};
use crate::decode::{Cost, Decoded, Decoder};
use crate::lanes::ALL;
use heist_ptx::{Instruction, rule};

/// Failed waits, each twice as long as the last, before it counts as a deadlock.
const PATIENCE: u32 = 16;

/// Registers of a thread are handed out in units of so many.
const UNIT: u32 = 8;

pub(crate) fn decode(d: &mut Decoder<'_>, i: &Instruction, mods: &Mods<'_>) -> Decoded<()> {
    only(d, i, mods, &["inc", "dec", "sync", "aligned"])?;
    let o = operands(d, i, 1)?;
    let wanted = d
        .immediate(&o[0])
        .filter(|n| (24..=256).contains(n) && n % 8 == 0);
    let Some(wanted) = wanted else {
        return Err(d.wrong(
            rule::IMMEDIATE_RANGE,
            "a number of registers is a multiple of 8 from 24 to 256",
        ));
    };
    d.shape.moves_registers = true;
    let (wanted, more) = (wanted as u32, mods.has("inc"));
    let instr = with(move |cx| {
        if let Err(flow) = crate::ops::matrix::operands::assemble(cx) {
            return flow;
        }
        run(cx, wanted, more)
    });
    d.emit_reaching(instr, Cost::new(2, 0), Reach::Cluster);
    Ok(())
}

/// Registers a thread starts with, where the kernel fixes it: what it can name, 255 at most, and
/// the rest of the unit that the hardware hands out.
fn at_entry(cx: &Cx<'_>) -> Option<u32> {
    let most = cx
        .code
        .shape
        .most_registers(cx.machine.device.gpu().arch.limits())?;
    Some(most.next_multiple_of(UNIT))
}

fn run(cx: &mut Cx<'_>, wanted: u32, more: bool) -> Flow {
    let Some(entry) = at_entry(cx) else {
        cx.report(rule::SETMAXNREG_IGNORED, ALL, |_, mut told| {
            told.message = "the kernel does not fix how many registers a thread starts with, so that this is going to be ignored".to_owned();
            told.help("give the kernel `.maxnreg`, or `.maxntid` with `.minnctapersm 1` (in CUDA C++ `__launch_bounds__(threads, 1)`)")
        });
        return Flow::Next;
    };
    let (number, now) = (cx.warp.number as usize, cx.warp.cycle);
    let pool = &mut cx.block().registers;
    if pool.held.len() <= number {
        pool.held.resize(number + 1, 0);
    }
    let held = match pool.held[number] {
        0 => entry,
        held => held,
    };
    if !more {
        pool.free += held.saturating_sub(wanted);
        pool.held[number] = held.min(wanted);
        pool.waits = 0;
        return Flow::Next;
    }
    let missing = wanted.saturating_sub(held);
    if missing <= pool.free {
        pool.free -= missing;
        pool.held[number] = held.max(wanted);
        pool.waits = 0;
        return Flow::Next;
    }
    if pool.waits < PATIENCE * 16 {
        // Every warp of a group waits; what counts is how long they have all waited.
        let doubled = pool.waits / 16;
        pool.waits += 1;
        return cx.retry(Wait::Until {
            time: now + (256 << doubled),
        });
    }
    let free = pool.free;
    pool.held[number] = wanted;
    cx.report(rule::SETMAXNREG_POOL, ALL, |_, mut told| {
        told.message = format!(
            "a warp with {held} registers a thread asks for {wanted}, and the block's pool has {free} more for one warp: it waits forever"
        );
        told.note(format!("every warp of the block starts with {entry}"))
            .help("let other warps give back at least as many first (`setmaxnreg.dec`); the sum over the warps never exceeds what they started with")
    });
    Flow::Next
}
