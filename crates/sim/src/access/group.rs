//! Accesses to memory by the lanes of a warp: finding the memory, and checking.
//!
//! An access is split into [`Group`]s of lanes whose addresses lie in one memory. Lanes with a bad
//! address are reported and masked: they read zero and write nothing. [`super::look`] then checks a
//! group for uninitialised bytes and races.

use super::context::Cx;
use crate::lanes::{ALL, LANES, Mask, each, wide};
use crate::race::touch::Touch;
use crate::state::memory::region::Region;
use crate::state::memory::window::{LOCAL_SHIFT, SharedPlace, Window};
use heist_ptx::{Diagnostic, rule};

/// Whose memory it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Home {
    /// An allocation of global memory.
    Global(usize),
    /// The shared memory of the block with this rank.
    Shared(u32),
    Const,
    Param,
    /// Each lane's own.
    Local,
}

impl Home {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Home::Global(_) => "global",
            Home::Shared(_) => "shared",
            Home::Const => "constant",
            Home::Param => "parameter",
            Home::Local => "local",
        }
    }
}

/// Lanes that access one memory, at good addresses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Group {
    pub(crate) home: Home,
    pub(crate) mask: Mask,
    pub(crate) offsets: [u64; LANES],
    pub(crate) size: u32,
}

impl Group {
    pub(crate) fn touch(&self) -> Touch<'_> {
        Touch {
            offsets: &self.offsets,
            mask: self.mask,
            size: self.size,
        }
    }
}

/// What an access does, for messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Does {
    Reads,
    Writes,
}

impl Does {
    pub(crate) fn verb(self) -> &'static str {
        match self {
            Does::Reads => "reads",
            Does::Writes => "writes",
        }
    }
}

/// Calls `act` for each memory that the lanes of [`Cx::mask`] access. `window` is
/// the state space of the instruction, none for generic addresses.
#[inline]
pub(crate) fn groups(
    cx: &mut Cx<'_>,
    window: Option<Window>,
    addresses: &[u64; LANES],
    size: u32,
    does: Does,
    mut act: impl FnMut(&mut Cx<'_>, &Group),
) {
    let mut rest = aligned(cx, addresses, size, does);
    let untagged;
    let local = |address: &u64| address.wrapping_sub(crate::state::memory::window::LOCAL) < 1 << 32;
    let addresses = if window.is_none() && addresses.iter().any(local) {
        untagged = own_local(cx, addresses, &mut rest, does);
        &untagged
    } else {
        addresses
    };
    while rest != 0 {
        let lead = crate::lanes::first(rest);
        let (space, offset) = match window {
            Some(window) => (window, addresses[lead]),
            None => Window::of(addresses[lead]),
        };
        let start = if window.is_some() { 0 } else { space.start() };
        let Some((home, base, len)) = find(cx, space, offset) else {
            let bad = 1 << lead;
            complain(cx, space, offset, bad, size, does, window.is_none());
            rest &= !bad;
            continue;
        };
        if let Home::Shared(rank) = home
            && rank != cx.warp.rank
            && !cx.has_heard_of(rank, lead)
        {
            cx.report(rule::PEER_NOT_STARTED, 1 << lead, |_, mut told| {
                told.message = format!("{} shared memory of block rank {rank} of the cluster, which may not have started", does.verb());
                told.help("let the cluster meet once before its blocks use each other's memory (`barrier.cluster.arrive` and `.wait`)")
            });
        }
        // Offsets of lanes elsewhere wrap around and fall outside.
        let origin = start.wrapping_add(base);
        let limit = len.saturating_sub(u64::from(size));
        let offsets = crate::lanes::map1(*addresses, |address| address.wrapping_sub(origin));
        let inside = within(&offsets, limit) & rest & if len < u64::from(size) { 0 } else { ALL };
        if inside >> lead & 1 == 0 {
            let bad = 1 << lead;
            complain(cx, space, offset, bad, size, does, window.is_none());
            rest &= !bad;
            continue;
        }
        rest &= !inside;
        let group = Group {
            home,
            mask: inside,
            offsets,
            size,
        };
        act(cx, &group);
    }
}

/// Generic addresses of local memory without the thread's tag; lanes that use another thread's are
/// reported and masked.
fn own_local(
    cx: &mut Cx<'_>,
    addresses: &[u64; LANES],
    rest: &mut Mask,
    does: Does,
) -> [u64; LANES] {
    let mut out = *addresses;
    let mut foreign = 0;
    for lane in each(*rest) {
        if let (Window::Local, offset) = Window::of(addresses[lane]) {
            let thread = cx.warp.number * 32 + lane as u32;
            if offset >> LOCAL_SHIFT != u64::from(thread) {
                foreign |= 1 << lane;
            }
            out[lane] = crate::state::memory::window::LOCAL + (offset & ((1 << LOCAL_SHIFT) - 1));
        }
    }
    if foreign != 0 {
        cx.report(rule::LOCAL_ESCAPES, foreign, |_, mut told| {
            told.message = format!(
                "{} another thread's local memory through its generic address",
                does.verb()
            );
            told.help(
                "local memory is each thread's own: hand data on through shared or global memory",
            )
        });
        *rest &= !foreign;
    }
    out
}

/// Lanes whose offset is at most `limit`.
#[inline]
fn within(offsets: &[u64; LANES], limit: u64) -> Mask {
    wide(
        #[inline(always)]
        || {
            let mut all = true;
            for &offset in offsets {
                all &= offset <= limit;
            }
            if all {
                return ALL;
            }
            let mut mask = 0;
            for (lane, &offset) in offsets.iter().enumerate() {
                mask |= u32::from(offset <= limit) << lane;
            }
            mask
        },
    )
}

/// The lanes of [`Cx::mask`] whose address is a multiple of `size`; the others are reported.
#[inline]
fn aligned(cx: &mut Cx<'_>, addresses: &[u64; LANES], size: u32, does: Does) -> Mask {
    let low = u64::from(size) - 1;
    let any = wide(
        #[inline(always)]
        || addresses.iter().fold(0, |all, &address| all | address) & low,
    );
    if any == 0 {
        return cx.mask;
    }
    let bad = each(cx.mask)
        .filter(|&lane| addresses[lane] & low != 0)
        .fold(0, |mask, lane| mask | 1 << lane);
    if bad != 0 {
        let address = addresses[crate::lanes::first(bad)];
        cx.report(rule::MISALIGNED, bad, |_, mut told| {
            told.message = format!(
                "{} {size} bytes at address {address:#x}, which is not a multiple of {size}",
                does.verb()
            );
            told.help("vector and wide accesses need addresses aligned to their whole size: align the buffer or use narrower accesses")
        });
    }
    cx.mask & !bad
}

/// The memory at an address of a space: whose it is, where it starts there, its length.
#[inline]
pub(crate) fn find(cx: &mut Cx<'_>, space: Window, address: u64) -> Option<(Home, u64, u64)> {
    match space {
        Window::Global => {
            let at = cx.machine.global.find(address)?;
            let one = cx.machine.global.get(at)?;
            (!one.freed).then_some((Home::Global(at), one.base, one.len))
        }
        Window::Shared | Window::OwnShared => {
            let SharedPlace { rank, .. } = SharedPlace::of(u32::try_from(address).ok()?);
            let start = SharedPlace {
                rank,
                within: cx.machine.shared_start,
            };
            let peer = || {
                let block = cx.blocks.get(rank as usize);
                space == Window::Shared && block.is_some_and(|block| !block.has_exited())
            };
            let there = rank == cx.warp.rank || peer();
            let len = u64::from(cx.machine.shared_len);
            there.then_some((Home::Shared(rank), u64::from(start.address()), len))
        }
        Window::Const => Some((Home::Const, 0, cx.machine.constant_len)),
        Window::Param => Some((Home::Param, 0, cx.machine.param_len)),
        Window::Local => Some((Home::Local, 0, cx.warp.local.len())),
    }
}

/// Reports an address that lies in no memory.
#[cold]
fn complain(
    cx: &mut Cx<'_>,
    space: Window,
    offset: u64,
    lanes: Mask,
    size: u32,
    does: Does,
    generic: bool,
) {
    let verb = does.verb();
    let told = |told: Diagnostic, message: String| Diagnostic { message, ..told };
    let (actual, _) = Window::of(offset);
    if !generic
        && offset > u64::from(u32::MAX)
        && (space, actual) != (Window::Global, Window::Global)
    {
        cx.report(rule::WRONG_WINDOW, lanes, |_, d| {
            let of = match actual {
                Window::Global => "an address of global memory",
                Window::Shared | Window::OwnShared => "a generic address of shared memory",
                Window::Local => "a generic address of local memory",
                Window::Param => "a generic address of the parameters",
                Window::Const => "a generic address of constant memory",
            };
            told(d, format!("{verb} {} memory at {offset:#x}, which is {of}", space.name()))
                .help(format!("use the access without a state space for a generic address, or `cvta.to` the space it lies in ({})", actual.name()))
        });
        return;
    }
    match space {
        Window::Global => {
            let what = cx.machine.global.describe(offset);
            let freed = cx.machine.global.is_freed(offset);
            let of_host = cx.machine.global.foreign(offset).is_some() && !freed;
            let code = if freed {
                rule::USE_AFTER_FREE
            } else {
                rule::GLOBAL_OUT_OF_BOUNDS
            };
            cx.report(code, lanes, |_, d| {
                let d = told(d, format!("{verb} {size} bytes of global memory at {what}"));
                if freed {
                    d.help("give memory back behind its last use; no copy of the pointer means anything after that")
                } else if of_host {
                    d.help("a kernel can't use memory of `malloc`, `new` or the host's stack: copy it to the device, or get it from `cudaMallocManaged` or `cudaMallocHost`")
                } else if offset < 1 << 32 && !generic {
                    d.help("so small an address is no global address: a shared or local offset may need `cvta`, or the pointer was never set")
                } else {
                    d.help("check the index against the buffer's length before the access")
                }
            });
        }
        Window::OwnShared => complain_of_own(cx, offset as u32, lanes, size, does),
        Window::Shared => complain_of_shared(cx, offset as u32, lanes, size, does),
        Window::Local => {
            let len = cx.warp.local.len();
            cx.report(rule::LOCAL_OUT_OF_BOUNDS, lanes, |_, d| {
                told(d, format!("{verb} {size} bytes at {offset:#x} of local memory, of which the thread has {len} bytes"))
            });
        }
        Window::Param => {
            let len = cx.machine.param_len;
            cx.report(rule::PARAM_OUT_OF_BOUNDS, lanes, |_, d| {
                told(d, format!("{verb} {size} bytes at {offset:#x} of the kernel's parameters, which have {len} bytes"))
            });
        }
        Window::Const => {
            let len = cx.machine.constant_len;
            cx.report(rule::CONST_OUT_OF_BOUNDS, lanes, |_, d| {
                told(d, format!("{verb} {size} bytes at {offset:#x} of constant memory, of which {len} bytes are used"))
            });
        }
    }
}

/// Blocks that a cluster has at most.
const MOST_BLOCKS: u32 = 16;

/// Reports an address that lies in no memory of a block of the cluster.
#[cold]
fn complain_of_shared(cx: &mut Cx<'_>, address: u32, lanes: Mask, size: u32, does: Does) {
    let place = SharedPlace::of(address);
    let (rank, blocks, verb) = (place.rank, cx.blocks.len() as u32, does.verb());
    let told = |told: Diagnostic, message: String| Diagnostic { message, ..told };
    // Where no cluster was launched, a rank that one could have is a peer's; any other is a wild address.
    let no_peer = blocks == 1 && rank >= MOST_BLOCKS;
    if rank == cx.warp.rank || no_peer || place.is_below() {
        complain_of_own(cx, address, lanes, size, does);
    } else if rank >= blocks {
        cx.report(rule::PEER_RANK, lanes, |_, d| {
            told(
                d,
                format!("{verb} shared memory of block rank {rank} in a cluster of {blocks}"),
            )
            .note(format!(
                "{address:#x} has the rank in its upper 8 bits, as all addresses of shared memory in a cluster have"
            ))
            .help(match blocks {
                1 => "launch it with a cluster (`--cluster`), or say one in the kernel (`.reqnctapercluster`)",
                _ => "`mapa` takes ranks below `%cluster_nctarank`",
            })
        });
    } else if cx.blocks[rank as usize].has_exited() {
        cx.report(rule::PEER_EXITED, lanes, |_, d| {
            told(d, format!("{verb} shared memory of block rank {rank} of the cluster, which has exited"))
                .help("let the cluster meet (`barrier.cluster.arrive` and `.wait`) before any of its blocks exits")
        });
    } else {
        let (at, len) = (cx.shared_offset(address, rank), cx.machine.shared_len);
        cx.report(rule::CLUSTER_OUT_OF_BOUNDS, lanes, |_, d| {
            told(d, format!(
                "{verb} {size} bytes at {at} of block rank {rank}'s shared memory, which has {len} bytes"
            ))
        });
    }
}

/// Reports an address outside the block's own shared memory.
#[cold]
fn complain_of_own(cx: &mut Cx<'_>, address: u32, lanes: Mask, size: u32, does: Does) {
    let SharedPlace { rank, .. } = SharedPlace::of(address);
    if rank != cx.warp.rank && (rank as usize) < cx.blocks.len() {
        cx.report(rule::WRONG_WINDOW, lanes, |cx, mut told| {
            told.message = format!(
                "{} shared memory at {address:#x} as the block's own, and it is block rank {rank}'s",
                does.verb()
            );
            told.note(format!(
                "in a cluster an address of shared memory has the rank of its block in its upper 8 bits, and this block's is {}",
                cx.warp.rank
            ))
            .help("use `.shared::cluster` for a peer's memory; for the own one leave the upper bits as they are")
        });
        return;
    }
    let missing = cx.code.shape.uses_dynamic_shared && cx.machine.launch.dynamic_shared == 0;
    let code = if missing {
        rule::DYNAMIC_SHARED_MISSING
    } else {
        rule::SHARED_OUT_OF_BOUNDS
    };
    let at = cx.shared_offset(address, cx.warp.rank);
    let len = cx.machine.shared_len;
    cx.report(code, lanes, |_, mut told| {
        told.message = format!(
            "{} {size} bytes at {at} of shared memory, of which the block has {len} bytes",
            does.verb()
        );
        if missing {
            told.help("the kernel uses dynamic shared memory, and the launch gives none: pass its size (`--smem`)")
        } else {
            told.help("check the index against the array's length, and the launch's dynamic shared memory against what the kernel uses")
        }
    });
    // Without its shared memory the kernel's results mean nothing, and it might never end.
    cx.machine.stopped |= missing;
}

impl Cx<'_> {
    /// Where an address lies in the shared memory of a block; before it, with a sign.
    pub(crate) fn shared_offset(&self, address: u32, rank: u32) -> String {
        let start = SharedPlace {
            rank,
            within: self.machine.shared_start,
        };
        let offset = address.wrapping_sub(start.address()) as i32;
        let sign = if offset < 0 { "-" } else { "" };
        format!("{sign}{:#x}", offset.unsigned_abs())
    }

    /// The region behind a home; local memory has none.
    #[inline]
    pub(crate) fn region(&mut self, home: Home) -> Option<&mut Region> {
        match home {
            Home::Global(at) => self.machine.global.get_mut(at).map(|one| &mut one.region),
            Home::Shared(rank) => self
                .blocks
                .get_mut(rank as usize)
                .map(|block| &mut block.shared),
            Home::Const => Some(&mut self.machine.constants),
            Home::Param => Some(&mut self.machine.params),
            Home::Local => None,
        }
    }
}
