//! Bulk and tensor copies, bulk reductions, `st.async` and `red.async`.
//!
//! A copy into shared memory is asynchronous to the end: its data is taken when it
//! starts and put down when it completes, with its bytes counted at an mbarrier.
//! A copy out of shared memory writes at once and holds its source until its group
//! is waited for.

use super::access::{Does, Home, place, report_race};
use super::atomic::{op_of, type_of};
use super::flight::{self, Flight, What};
use super::map::with;
use super::mbarrier::{check_use, complete_bytes};
use super::tensor_map::{self, Piece};
use super::{Mods, operands};
use crate::code::{Flow, Reach, Slot};
use crate::context::Cx;
use crate::decode::operand::Addr;
use crate::decode::{Cost, Decoded, Decoder};
use crate::lanes::{LANES, each};
use crate::memory::window::{SharedPlace, Window};
use crate::race::shadow::{Access, Kind, LINE, Scope};
use heist_arith::atomic::{Op, Subnormals, Type, apply};
use heist_ptx::{Address, Instruction, Operand, ScalarType, rule};

/// Cycles until the first byte of a copy from global memory is there, and bytes a cycle then.
const LATENCY: u64 = 700;
const RATE: u64 = 64;

/// How the data is described.
#[derive(Clone, Debug)]
enum Shape {
    /// This many bytes in a row.
    Bytes(Slot),
    /// A box of a tensor: its coordinates.
    Box(Vec<Slot>),
}

/// One copy instruction.
#[derive(Clone, Debug)]
struct Bulk {
    shape: Shape,
    /// In shared memory, and in global memory or the tensor map's address.
    shared: Addr,
    other: Addr,
    /// The other side is shared memory too: a copy to a peer.
    to_peer: bool,
    reduce: Option<(Op, Option<Type>)>,
    barrier: Option<Addr>,
    multicast: Option<Slot>,
}

pub(crate) fn decode(d: &mut Decoder<'_>, i: &Instruction, mods: &Mods<'_>) -> Decoded<()> {
    if mods.has("commit_group") {
        let instr = with(|cx| {
            let open = std::mem::take(&mut cx.warp.copies.bulk_open);
            cx.warp.copies.bulk_groups.push_back(open);
            Flow::Next
        });
        d.emit(instr, Cost::ALU);
        return Ok(());
    }
    if mods.has("wait_group") {
        let o = operands(d, i, 1)?;
        let left = d.immediate(&o[0]).unwrap_or(0) as usize;
        let instr = with(move |cx| {
            let now = cx.now() + LATENCY;
            let mut any = false;
            while cx.warp.copies.bulk_groups.len() > left {
                for id in cx.warp.copies.bulk_groups.pop_front().unwrap_or_default() {
                    any = true;
                    cx.blocks
                        .iter_mut()
                        .for_each(|block| block.flights.land(id));
                }
            }
            if any {
                cx.warp.advance(now);
            }
            Flow::Next
        });
        d.emit(instr, Cost::CONTROL);
        return Ok(());
    }
    if mods.has("prefetch") {
        // Nothing that a program can see.
        d.emit(with(|_| Flow::Next), Cost::new(2, 0));
        return Ok(());
    }
    if mods.has("im2col")
        || mods
            .all
            .iter()
            .any(|text| text.starts_with("tile::") || text.starts_with("im2col::"))
    {
        return Err(d.unsupported(i, "only tiled tensor copies are simulated"));
    }
    copy(d, i, mods)
}

fn copy(d: &mut Decoder<'_>, i: &Instruction, mods: &Mods<'_>) -> Decoded<()> {
    let o = &i.operands;
    let tensor = mods.has("tensor");
    if o.len() < 2 {
        operands(d, i, 2)?;
    }
    let spaces: Vec<&str> = mods
        .all
        .iter()
        .copied()
        .filter(|text| matches!(*text, "global" | "shared::cta" | "shared::cluster"))
        .collect();
    let [to, from] = spaces[..] else {
        return Err(d.wrong(
            rule::MISSING_MODIFIER,
            "a bulk copy names where it goes and where it comes from",
        ));
    };
    let into_shared = to != "global";
    let to_peer = into_shared && from != "global";
    let (first, second) = (&o[0], &o[1]);
    let coordinates = |operand: &Operand| match operand {
        Operand::Address(Address { rest, .. }) => match rest.first() {
            Some(Operand::Vector(list)) => list.clone(),
            _ => rest.clone(),
        },
        _ => Vec::new(),
    };
    let (shared, other) = if into_shared {
        (first, second)
    } else {
        (second, first)
    };
    let mut next = 2;
    let shape = if tensor {
        let mut list = Vec::new();
        for operand in coordinates(other) {
            list.push(d.src(&operand, ScalarType::S32)?);
        }
        Shape::Box(list)
    } else {
        next = 3;
        let Some(size) = o.get(2) else {
            return Err(d.wrong(rule::OPERAND_COUNT, "a bulk copy has a size"));
        };
        Shape::Bytes(d.src(size, ScalarType::U32)?)
    };
    let (shared, other) = (d.address(shared)?, d.address(other)?);
    let barrier = if into_shared {
        let Some(operand) = o.get(next) else {
            return Err(d.wrong(
                rule::OPERAND_COUNT,
                "a copy into shared memory has an mbarrier",
            ));
        };
        next += 1;
        Some(d.address(operand)?)
    } else {
        None
    };
    let multicast = if mods.has("multicast::cluster") {
        let Some(operand) = o.get(next) else {
            return Err(d.wrong(rule::OPERAND_COUNT, "a multicast names its blocks"));
        };
        Some(d.src_any(operand, ScalarType::U16)?.0)
    } else {
        None
    };
    if mods.has("cp_mask") {
        return Err(d.unsupported(i, "byte masks of bulk copies are not simulated"));
    }
    let reduce = if i.opcode.base() == "cp" && mods.has("reduce") {
        let Some(op) = op_of(mods) else {
            return Err(d.wrong(rule::MISSING_MODIFIER, "a reduction names its operation"));
        };
        Some((op, mods.ty().and_then(type_of)))
    } else {
        None
    };
    let bulk = Bulk {
        shape,
        shared,
        other,
        to_peer,
        reduce,
        barrier,
        multicast,
    };
    d.emit_reaching(
        with(move |cx| bulk.run(cx)),
        Cost::new(8, 0),
        Reach::Cluster,
    );
    Ok(())
}

/// What one thread's copy moves.
struct Move {
    lane: usize,
    pieces: Vec<Piece>,
    total: u64,
    fill: Option<heist_launch::TensorMap>,
    element: Option<Type>,
}

impl Bulk {
    fn run(&self, cx: &mut Cx<'_>) -> Flow {
        let shared = self.shared.eval(cx);
        let other = self.other.eval(cx);
        let barriers = self.barrier.map(|addr| addr.eval(cx));
        let lead = crate::lanes::first(cx.mask);
        let repeated = each(cx.mask)
            .filter(|&lane| shared[lane] == shared[lead])
            .count();
        if repeated > 1 && self.reduce.is_none() {
            cx.report(rule::BULK_REPEATED, cx.mask, |_, mut told| {
                told.message = format!("{repeated} threads start the same bulk copy");
                told.help("elect one thread: `elect.sync`, or a test of the thread's number")
            });
        }
        for lane in each(cx.mask) {
            let Some(target) = cx.shared_place(lane, shared[lane]) else {
                continue;
            };
            let Some(moved) = self.describe(cx, lane, other[lane], target) else {
                continue;
            };
            match &barriers {
                Some(barriers) => self.load(cx, moved, target, other[lane], barriers[lane]),
                None => self.store(cx, moved, target),
            }
        }
        cx.team.progress += 1;
        Flow::Next
    }

    /// The pieces of the copy, with what is wrong about them reported.
    fn describe(
        &self,
        cx: &mut Cx<'_>,
        lane: usize,
        other: u64,
        target: (u32, u32),
    ) -> Option<Move> {
        match &self.shape {
            Shape::Bytes(size) => {
                let size = u64::from(cx.row(*size)[lane]);
                let wrong = if !size.is_multiple_of(16) {
                    Some(format!("{size} bytes, which is not a multiple of 16"))
                } else if !u64::from(target.1).is_multiple_of(16) || !other.is_multiple_of(16) {
                    Some(format!(
                        "between {:#x} of shared memory and {other:#x}, which are not both multiples of 16",
                        target.1
                    ))
                } else {
                    None
                };
                if let Some(wrong) = wrong {
                    cx.report(rule::BULK_SHAPE, 1 << lane, |_, mut told| {
                        told.message = format!("a bulk copy of {wrong}");
                        told.help(
                            "sizes and both addresses of a bulk copy are multiples of 16 bytes",
                        )
                    });
                    return None;
                }
                Some(Move {
                    lane,
                    pieces: vec![Piece {
                        shared: 0,
                        global: Some(other),
                        len: size,
                    }],
                    total: size,
                    fill: None,
                    element: None,
                })
            }
            Shape::Box(coordinates) => {
                let at: Vec<i32> = coordinates
                    .iter()
                    .map(|&slot| cx.row(slot)[lane] as i32)
                    .collect();
                let bytes = cx.map_bytes(lane, other);
                let found = bytes.and_then(|bytes| cx.machine.tensor_maps.find(&bytes).cloned());
                let Some((address, map)) = found else {
                    cx.report(rule::TENSOR_MAP, 1 << lane, |_, mut told| {
                        told.message = format!("{other:#x} is not the address of a tensor map");
                        told.help("pass the map as a `const __grid_constant__` parameter, and give its generic address")
                    });
                    return None;
                };
                if let Some(pc) = cx.machine.tensor_maps.settle(other) {
                    cx.report(rule::TENSOR_MAP_FENCE, 1 << lane, |cx, mut told| {
                        told.message = format!(
                            "uses the tensor map at {other:#x}, which was changed, without having acquired the change"
                        );
                        told.other(cx.code.span(pc), "it was changed here").help(
                            "execute `fence.proxy.tensormap::generic.acquire.gpu [map], 128` in the thread that uses it, after the change was released",
                        )
                    });
                }
                let aligned = 128;
                let wrong = if !u64::from(target.1).is_multiple_of(aligned) {
                    Some(format!(
                        "a tensor copy at {:#x} of shared memory, which is not a multiple of {aligned}",
                        target.1
                    ))
                } else if self.barrier.is_none() && at.iter().any(|&axis| axis < 0) {
                    Some(format!(
                        "a tensor store at ({}): a load may begin before the tensor, a store or reduction may not",
                        at.iter()
                            .map(ToString::to_string)
                            .collect::<Vec<_>>()
                            .join(", ")
                    ))
                } else {
                    None
                };
                let pieces = match (
                    wrong,
                    tensor_map::pieces(address, &map, &at, u64::from(target.1)),
                ) {
                    (None, Ok(pieces)) => pieces,
                    (wrong, pieces) => {
                        let why = wrong
                            .or_else(|| pieces.err().map(str::to_owned))
                            .unwrap_or_default();
                        cx.report(rule::TENSOR_COPY, 1 << lane, |_, mut told| {
                            told.message = why;
                            told.help("align the box in shared memory to 128 bytes (1024 for a 128-byte swizzle), and give one coordinate for each axis")
                        });
                        return None;
                    }
                };
                use heist_launch::TensorElement as E;
                let element = match map.element {
                    E::U32 => Some(Type::U32),
                    E::S32 => Some(Type::S32),
                    E::U64 => Some(Type::U64),
                    E::S64 => Some(Type::S64),
                    E::F16 => Some(Type::F16),
                    E::Bf16 => Some(Type::Bf16),
                    E::F64 => Some(Type::F64),
                    E::F32 | E::F32Ftz | E::Tf32 | E::Tf32Ftz => Some(Type::F32),
                    E::U8 | E::U16 => None,
                };
                Some(Move {
                    lane,
                    total: tensor_map::box_bytes(&map),
                    pieces,
                    fill: Some(map),
                    element,
                })
            }
        }
    }

    /// Into shared memory.
    fn load(&self, cx: &mut Cx<'_>, moved: Move, target: (u32, u32), other: u64, barrier: u64) {
        let lane = moved.lane;
        let Some((barrier_rank, barrier)) = cx.shared_place(lane, barrier) else {
            return;
        };
        if !check_use(cx, lane, barrier_rank, barrier) {
            return;
        }
        let mut data = vec![0u8; moved.total as usize];
        if self.to_peer {
            let Some((rank, source)) = cx.shared_place(lane, other) else {
                return;
            };
            if !cx.is_in_shared(lane, rank, source, moved.total, Does::Reads) {
                return;
            }
            cx.check_source(lane, rank, u64::from(source), moved.total);
            data.copy_from_slice(
                cx.blocks[rank as usize]
                    .shared
                    .bytes(u64::from(source), moved.total as usize),
            );
        } else {
            for piece in &moved.pieces {
                let range = piece.shared as usize..(piece.shared + piece.len) as usize;
                match piece.global {
                    Some(address) => {
                        let Some((home, offset)) =
                            cx.global_place(lane, address, piece.len, Does::Reads)
                        else {
                            return;
                        };
                        cx.touch_range(lane, home, offset, piece.len, Does::Reads, Kind::Plain);
                        if let Some(region) = cx.region(home) {
                            data[range].copy_from_slice(region.bytes(offset, piece.len as usize));
                        }
                    }
                    None => {
                        if let Some(map) = &moved.fill {
                            data[range].copy_from_slice(&tensor_map::fill(map, piece.len as usize));
                        }
                    }
                }
            }
        }
        let Some(targets) = self.targets(cx, lane, target.0, barrier_rank) else {
            return;
        };
        let (start, end) = (u64::from(target.1), u64::from(target.1) + moved.total);
        let pc = cx.pc();
        let id = cx.team.new_flight();
        for &(rank, _) in &targets {
            if !cx.is_in_shared(lane, rank, target.1, moved.total, Does::Writes) {
                return;
            }
            cx.check_target(lane, rank, start..end);
            cx.blocks[rank as usize].flights.push(Flight {
                id,
                what: What::Bulk,
                write: true,
                start,
                end,
                pc,
                agent: cx.warp.clock.agent,
                lane: lane as u8,
            });
        }
        let clock = cx.warp.clock.snapshot(1 << lane, cx.warp.live);
        let delay = u64::from(cx.machine.options.chaos.delay);
        let extra = if delay > 0 {
            cx.machine.rng.below(delay + 1)
        } else {
            0
        };
        let time = cx.now() + LATENCY + moved.total / RATE + extra;
        let reduce = self.reduce;
        let bytes = moved.total as u32;
        cx.team.after(time, move |happening| {
            for &(rank, barrier_rank) in &targets {
                let stamp = happening.blocks[barrier_rank as usize]
                    .mbarriers
                    .get(barrier)
                    .map(|barrier| (barrier.stamp(), barrier.armed));
                let block = &mut happening.blocks[rank as usize];
                block.flights.land(id);
                match reduce {
                    None => block.shared.write_bytes(start, &data),
                    Some((op, ty)) => {
                        let ty = ty.unwrap_or(Type::B32);
                        reduce_into(&mut block.shared, start, &data, op, ty, Subnormals::Kept);
                    }
                }
                let Some((stamp, armed)) = stamp else { continue };
                flight::written(&mut block.shared, start, end - start, stamp, pc);
                let barriers = &mut happening.blocks[barrier_rank as usize].mbarriers;
                complete_bytes(barriers, happening.team, barrier_rank, barrier, bytes, Some(&clock), happening.time);
                if !armed {
                    happening.report(
                        rule::MBARRIER_UNARMED,
                        pc,
                        format!("{bytes} bytes arrive at the mbarrier at {barrier:#x}, which expects none"),
                        "announce them with `mbarrier.arrive.expect_tx` (or `expect_tx`) before or right after the copy",
                    );
                }
            }
        });
    }

    /// The blocks that a copy goes to, each with the block whose mbarrier counts.
    fn targets(
        &self,
        cx: &mut Cx<'_>,
        lane: usize,
        rank: u32,
        barrier_rank: u32,
    ) -> Option<Vec<(u32, u32)>> {
        let Some(mask) = self.multicast else {
            return Some(vec![(rank, barrier_rank)]);
        };
        let mask = cx.row(mask)[lane] & 0xffff;
        let size = cx.blocks.len() as u32;
        if mask >> size.min(31) != 0 || mask == 0 {
            cx.report(rule::MULTICAST_MASK, 1 << lane, |_, mut told| {
                told.message = format!("a multicast to blocks {mask:#06x} in a cluster of {size}");
                told.help("the mask has one bit for each rank of the cluster")
            });
        }
        let targets: Vec<(u32, u32)> = (0..size)
            .filter(|rank| mask >> rank & 1 != 0)
            .map(|rank| (rank, rank))
            .collect();
        (!targets.is_empty()).then_some(targets)
    }

    /// Out of shared memory.
    fn store(&self, cx: &mut Cx<'_>, moved: Move, source: (u32, u32)) {
        let lane = moved.lane;
        let (rank, offset) = source;
        if !cx.is_in_shared(lane, rank, offset, moved.total, Does::Reads) {
            return;
        }
        cx.check_source(lane, rank, u64::from(offset), moved.total);
        let data = cx.blocks[rank as usize]
            .shared
            .bytes(u64::from(offset), moved.total as usize)
            .to_vec();
        for piece in &moved.pieces {
            let Some(address) = piece.global else {
                continue;
            };
            let Some((home, at)) = cx.global_place(lane, address, piece.len, Does::Writes) else {
                return;
            };
            let bytes = &data[piece.shared as usize..(piece.shared + piece.len) as usize];
            let kind = if self.reduce.is_some() {
                Kind::Strong(Scope::Gpu)
            } else {
                Kind::Plain
            };
            cx.touch_range(lane, home, at, piece.len, Does::Writes, kind);
            let Some(region) = cx.region(home) else {
                return;
            };
            match self.reduce {
                None => region.write_bytes(at, bytes),
                Some((op, ty)) => {
                    let ty = bitwise(op, moved.element.or(ty).unwrap_or(Type::B32));
                    reduce_into(region, at, bytes, op, ty, Subnormals::Flushed);
                }
            }
        }
        let id = cx.team.new_flight();
        let pc = cx.pc();
        cx.blocks[rank as usize].flights.push(Flight {
            id,
            what: What::Bulk,
            write: false,
            start: u64::from(offset),
            end: u64::from(offset) + moved.total,
            pc,
            agent: cx.warp.clock.agent,
            lane: lane as u8,
        });
        cx.warp.copies.bulk_open.push(id);
    }
}

/// Logic works on bits, whatever the tensor's elements are.
fn bitwise(op: Op, ty: Type) -> Type {
    match (op, ty) {
        (Op::And | Op::Or | Op::Xor, Type::U32 | Type::S32 | Type::F32) => Type::B32,
        (Op::And | Op::Or | Op::Xor, Type::U64 | Type::S64 | Type::F64) => Type::B64,
        (_, ty) => ty,
    }
}

fn reduce_into(
    region: &mut crate::memory::region::Region,
    start: u64,
    data: &[u8],
    op: Op,
    ty: Type,
    sub: Subnormals,
) {
    let size = ty.bytes() as usize;
    for (at, bytes) in data.chunks_exact(size).enumerate() {
        let offset = start + (at * size) as u64;
        let mut value = [0u8; 8];
        value[..size].copy_from_slice(bytes);
        let old = region.read(offset, size) as u64;
        let new = apply(op, ty, sub, old, u64::from_le_bytes(value), 0).unwrap_or(old);
        region.write(offset, size, u128::from(new));
    }
}

impl Cx<'_> {
    /// The block and offset of an address in the shared window.
    fn shared_place(&mut self, lane: usize, address: u64) -> Option<(u32, u32)> {
        let offset = if address < 1 << 32 {
            address
        } else {
            match Window::of(address) {
                (Window::Shared, offset) => offset,
                _ => {
                    self.report(rule::WRONG_WINDOW, 1 << lane, |_, mut told| {
                        told.message = format!("{address:#x} is not an address of shared memory");
                        told
                    });
                    return None;
                }
            }
        };
        let place = SharedPlace::of(offset as u32);
        let rank = place.rank.unwrap_or(self.warp.rank);
        if rank as usize >= self.blocks.len() {
            let size = self.blocks.len();
            self.report(rule::PEER_RANK, 1 << lane, |_, mut told| {
                told.message =
                    format!("uses shared memory of block rank {rank} in a cluster of {size}");
                told
            });
            return None;
        }
        Some((rank, place.offset))
    }

    fn is_in_shared(&mut self, lane: usize, rank: u32, offset: u32, len: u64, does: Does) -> bool {
        let have = u64::from(self.machine.shared_len);
        let fits = u64::from(offset) + len <= have;
        if !fits {
            self.report(rule::SHARED_OUT_OF_BOUNDS, 1 << lane, |_, mut told| {
                told.message = format!("{} {len} bytes at {offset:#x} of shared memory, of which the block has {have} bytes", does.verb());
                told
            });
        }
        if fits && self.blocks[rank as usize].has_exited() {
            self.report(rule::PEER_EXITED, 1 << lane, |_, mut told| {
                told.message = format!(
                    "{} shared memory of block rank {rank} of the cluster, which has exited",
                    does.verb()
                );
                told
            });
            return false;
        }
        fits
    }

    /// The allocation of a stretch of global memory.
    fn global_place(
        &mut self,
        lane: usize,
        address: u64,
        len: u64,
        does: Does,
    ) -> Option<(Home, u64)> {
        if let Some(at) = self.machine.global.find(address)
            && let Some(one) = self.machine.global.get(at)
            && address - one.base + len <= one.len
        {
            return Some((Home::Global(at), address - one.base));
        }
        let what = self.machine.global.describe(address);
        self.report(rule::GLOBAL_OUT_OF_BOUNDS, 1 << lane, |_, mut told| {
            told.message = format!("{} {len} bytes of global memory at {what}", does.verb());
            told.help("check the copy's size and address against the buffer")
        });
        None
    }

    /// The bytes of a tensor map, wherever it lies.
    fn map_bytes(&mut self, lane: usize, address: u64) -> Option<Vec<u8>> {
        let (window, offset) = Window::of(address);
        match window {
            Window::Param => Some(self.machine.params.bytes(offset, 128).to_vec()),
            Window::Const => Some(self.machine.constants.bytes(offset, 128).to_vec()),
            Window::Global if address >= crate::memory::window::GLOBAL => {
                let (home, offset) = self.global_place(lane, address, 128, Does::Reads)?;
                self.region(home)
                    .map(|region| region.bytes(offset, 128).to_vec())
            }
            _ => Some(self.machine.params.bytes(address, 128).to_vec()),
        }
    }

    /// Records an access of one lane to a stretch of memory, and checks it.
    fn touch_range(
        &mut self,
        lane: usize,
        home: Home,
        start: u64,
        len: u64,
        does: Does,
        kind: Kind,
    ) {
        let checks = self.machine.options.checks;
        let (pc, geography, lanes) = (self.pc(), self.machine.geography, [lane as u8; 32]);
        let write = does == Does::Writes;
        let mut found = None;
        let mut missing = None;
        {
            let region = match home {
                Home::Global(at) => match self.machine.global.get_mut(at) {
                    Some(one) => &mut one.region,
                    None => return,
                },
                Home::Shared(rank) => &mut self.blocks[rank as usize].shared,
                _ => return,
            };
            if !write && checks.unwritten {
                missing = region.first_unwritten(start, len as usize);
            }
            let end = start + len;
            let mut at = start;
            while at < end && checks.races {
                let line = at / LINE as u64;
                let stop = end.min((line + 1) * LINE as u64);
                let (from, count) = (at % LINE as u64, stop - at);
                let bytes = if count >= 128 {
                    u128::MAX
                } else {
                    ((1u128 << count) - 1) << from
                };
                if let Some(shadow) = region.shadow(line) {
                    let access = Access {
                        write,
                        kind,
                        pc,
                        bytes,
                        lanes: &lanes,
                        shift: 2,
                        first: 0,
                        shared: false,
                        cells: crate::race::trace::cell_mask(bytes, 2, 0),
                        order: None,
                    };
                    let conflict =
                        shadow.access(&access, &self.warp.clock, geography, &self.team.floor);
                    if let Some(conflict) = conflict
                        && found.is_none()
                    {
                        found = Some((conflict, line * LINE as u64 + u64::from(conflict.byte)));
                    }
                }
                at = stop;
            }
        }
        if let Some(offset) = missing {
            let code = if matches!(home, Home::Shared(_)) {
                rule::SHARED_UNWRITTEN
            } else {
                rule::GLOBAL_UNWRITTEN
            };
            self.report(code, 1 << lane, |cx, mut told| {
                told.message = format!(
                    "copies {}, which nothing has written",
                    place(cx, home, offset)
                );
                told
            });
        }
        if let Some((conflict, offset)) = found {
            report_race(self, home, offset, conflict, does, kind);
        }
    }

    /// Whether what a copy reads from shared memory is ready for the async proxy.
    fn check_source(&mut self, lane: usize, rank: u32, start: u64, len: u64) {
        if self.machine.options.checks.unwritten
            && let Some(offset) = self.blocks[rank as usize]
                .shared
                .first_unwritten(start, len as usize)
        {
            self.report(rule::SHARED_UNWRITTEN, 1 << lane, |cx, mut told| {
                told.message = format!(
                    "copies {}, which nothing has written",
                    place(cx, Home::Shared(rank), offset)
                );
                told
            });
        }
        if !self.machine.options.checks.races {
            return;
        }
        let region = &mut self.blocks[rank as usize].shared;
        let found = flight::unready(
            region,
            &self.warp.clock,
            &self.team.proxied,
            lane as u8,
            start..start + len,
            false,
            true,
        );
        let Some(found) = found else { return };
        let them = self.whom(found.agent, found.lane);
        // Without an order there is no fence either: both are told by the fence's rule.
        self.report(rule::PROXY_FENCE_BEFORE_ASYNC_READ, 1 << lane, |cx, mut told| {
            let why = if found.known { "without `fence.proxy.async` since" } else { "and nothing orders that before the copy" };
            told.message = format!("copies {}, which {them} wrote {why}", place(cx, Home::Shared(rank), found.offset));
            told.other(cx.code.span(found.pc), "it was written here")
                .help("every thread that wrote runs `fence.proxy.async.shared::cta`, then they meet, then one thread copies")
        });
    }

    /// Whether everybody is done with what a copy is going to overwrite.
    fn check_target(&mut self, lane: usize, rank: u32, range: std::ops::Range<u64>) {
        if let Some(flight) = self.blocks[rank as usize]
            .flights
            .disturbed(range.start, range.end, true)
            .copied()
            && flight.write
        {
            self.report(rule::ASYNC_OVERLAP, 1 << lane, |cx, mut told| {
                told.message = format!(
                    "copies to {}, which another copy in flight writes too",
                    place(cx, Home::Shared(rank), range.start)
                );
                told.other(cx.code.span(flight.pc), "that one starts here")
                    .help("wait for the first copy before the next one to the same place")
            });
        }
        if !self.machine.options.checks.races {
            return;
        }
        let region = &mut self.blocks[rank as usize].shared;
        let found = flight::unready(
            region,
            &self.warp.clock,
            &self.team.proxied,
            lane as u8,
            range,
            true,
            true,
        );
        let Some(found) = found else { return };
        let them = self.whom(found.agent, found.lane);
        let code = match (found.known, rank == self.warp.rank) {
            (true, _) => rule::PROXY_FENCE_BEFORE_ASYNC_WRITE,
            (false, true) => rule::SHARED_RACE,
            (false, false) => rule::CLUSTER_RACE,
        };
        self.report(code, 1 << lane, |cx, mut told| {
            let verb = if found.write { "wrote" } else { "read" };
            let why = if found.known { "without `fence.proxy.async` since" } else { "and nothing orders that before the copy" };
            told.message = format!("copies to {}, which {them} {verb} {why}", place(cx, Home::Shared(rank), found.offset));
            told.other(cx.code.span(found.pc), format!("{them} {verb} it here")).help(if found.known {
                "run `fence.proxy.async.shared::cta` behind the last ordinary access, before the threads meet"
            } else {
                "let the threads that use the buffer arrive at an mbarrier when they are done, and wait for that before the next copy"
            })
        });
    }
}

/// `st.async` and `red.async`: a word or a few to a peer, counted at its mbarrier.
pub(crate) fn decode_remote(d: &mut Decoder<'_>, i: &Instruction, mods: &Mods<'_>) -> Decoded<()> {
    let o = operands(d, i, 3)?;
    let Some(ty) = mods.ty() else {
        return Err(d.wrong(rule::MISSING_MODIFIER, "st.async names its type"));
    };
    let addr = d.address(&o[0])?;
    let barrier = d.address(&o[2])?;
    let mut sources = Vec::new();
    match &o[1] {
        Operand::Vector(list) => {
            for operand in list {
                sources.push(d.src_any(operand, ty)?);
            }
        }
        one => sources.push(d.src_any(one, ty)?),
    }
    let reduce = if i.opcode.base() == "red" {
        match (op_of(mods), type_of(ty)) {
            (Some(op), Some(ty)) => Some((op, bitwise(op, ty))),
            _ => return Err(d.unsupported(i, "there is no such reduction")),
        }
    } else {
        None
    };
    let size = ty.bytes() as usize;
    let instr = with(move |cx| {
        let (addresses, barriers) = (addr.eval(cx), barrier.eval(cx));
        let values: Vec<[u64; LANES]> = sources
            .iter()
            .map(|&(slot, rows)| super::memory::read_bits(cx, slot, rows))
            .collect();
        for lane in each(cx.mask) {
            let (Some((rank, offset)), Some((barrier_rank, barrier))) = (
                cx.shared_place(lane, addresses[lane]),
                cx.shared_place(lane, barriers[lane]),
            ) else {
                continue;
            };
            let mut data = Vec::new();
            for value in &values {
                data.extend_from_slice(&value[lane].to_le_bytes()[..size]);
            }
            let len = data.len() as u64;
            if !u64::from(offset).is_multiple_of(len) {
                cx.report(rule::MISALIGNED, 1 << lane, |_, mut told| {
                    told.message = format!(
                        "writes {len} bytes at {offset:#x}, which is not a multiple of {len}"
                    );
                    told
                });
                continue;
            }
            if !cx.is_in_shared(lane, rank, offset, len, Does::Writes)
                || !check_use(cx, lane, barrier_rank, barrier)
            {
                continue;
            }
            let pc = cx.pc();
            let clock = cx.warp.clock.snapshot(1 << lane, cx.warp.live);
            let time = cx.now() + 300;
            cx.team.after(time, move |happening| {
                let stamp = happening.blocks[barrier_rank as usize]
                    .mbarriers
                    .get(barrier)
                    .map(super::mbarrier::Mbarrier::stamp);
                let region = &mut happening.blocks[rank as usize].shared;
                match reduce {
                    None => region.write_bytes(u64::from(offset), &data),
                    Some((op, ty)) => {
                        reduce_into(region, u64::from(offset), &data, op, ty, Subnormals::Kept)
                    }
                }
                if let Some(stamp) = stamp {
                    flight::written(region, u64::from(offset), len, stamp, pc);
                }
                let barriers = &mut happening.blocks[barrier_rank as usize].mbarriers;
                complete_bytes(
                    barriers,
                    happening.team,
                    barrier_rank,
                    barrier,
                    len as u32,
                    Some(&clock),
                    happening.time,
                );
            });
        }
        cx.team.progress += 1;
        Flow::Next
    });
    d.emit_reaching(instr, Cost::new(4, 0), Reach::Cluster);
    Ok(())
}

/// What a block that exits leaves behind.
pub(crate) fn block_exited(cx: &mut Cx<'_>) {
    let rank = cx.warp.rank;
    let loads = cx.blocks[rank as usize]
        .flights
        .iter()
        .find(|flight| flight.what == What::Bulk && flight.write)
        .copied();
    if let Some(flight) = loads {
        let span = cx.code.span(flight.pc);
        cx.report(rule::ASYNC_AT_EXIT, cx.mask, |_, mut told| {
            told.message =
                "a block exits while a bulk copy into its shared memory is in flight".to_owned();
            told.other(span, "the copy starts here")
                .help("wait for its mbarrier before the block exits")
        });
    }
}

/// What a warp that exits leaves behind.
pub(crate) fn warp_exited(cx: &mut Cx<'_>) {
    let rank = cx.warp.rank as usize;
    let open = cx.warp.copies.bulk_open.first().copied();
    let grouped = cx.warp.copies.bulk_groups.iter().flatten().next().copied();
    let Some(id) = open.or(grouped) else { return };
    let Some(flight) = cx.blocks[rank]
        .flights
        .iter()
        .find(|flight| flight.id == id)
        .copied()
    else {
        return;
    };
    let span = cx.code.span(flight.pc);
    cx.report(rule::BULK_UNCOMMITTED, cx.mask, |_, mut told| {
        told.message = if open.is_some() {
            "a thread exits with a bulk store that no group covers".to_owned()
        } else {
            "a thread exits with a bulk store that it has not waited for".to_owned()
        };
        told.other(span, "the copy starts here")
            .help("`cp.async.bulk.commit_group` and `cp.async.bulk.wait_group` (at least `.read`) before the shared memory goes away")
    });
}
