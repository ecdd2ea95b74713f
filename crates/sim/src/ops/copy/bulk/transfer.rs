//! The transfer of one copy: into shared memory, or out of it.

use super::{Bulk, Columns, LATENCY, Move, RATE, Shape};
use crate::access::context::Cx;
use crate::access::delivery::Delivery;
use crate::access::flight;
use crate::access::group::Does;
use crate::code::Slot;
use crate::ops::copy::columns::{self, Offsets};
use crate::ops::copy::tensor_map::{self, Piece};
use crate::ops::mbarrier::check_use;
use crate::race::access::AccessKind;
use crate::state::flight::{Flight, What};
use crate::state::mbarrier::{Mbarrier, Sender};
use crate::state::memory::region::Region;
use crate::state::tensor_map::{Encoded, Unready};
use crate::state::users::Part;
use heist_arith::atomic::{Op, Subnormals, Type, apply};
use heist_arith::cvt::float::{Limits, f32_to_tf32};
use heist_arith::float::Rounding;
use heist_launch::TensorElement;
use heist_ptx::rule;

/// What a copy into shared memory brings.
struct Taken {
    data: Vec<u8>,
    /// The bytes of it that nothing has written.
    holes: Vec<u64>,
    /// The rank and offset of its source, if that is a peer's shared memory.
    sent: Option<(u32, u64)>,
}

impl Taken {
    /// Writes the data at `start`, or reduces it into what is there.
    fn put(&self, shared: &mut Region, start: u64, reduce: Option<(Op, Option<Type>)>) {
        let Some((op, ty)) = reduce else {
            shared.write_bytes(start, &self.data);
            for hole in &self.holes {
                shared.unmark(start + hole, 1);
            }
            return;
        };
        let ty = ty.unwrap_or(Type::B32);
        reduce_into(shared, start, &self.data, op, ty, Subnormals::Kept);
    }
}

impl Bulk {
    /// The pieces of the copy, with what is wrong about them reported.
    pub(super) fn describe(
        &self,
        cx: &mut Cx<'_>,
        lane: usize,
        other: u64,
        target: (u32, u32),
    ) -> Option<Move> {
        match &self.shape {
            Shape::Bytes(size) => {
                let mut all = run_of_bytes(cx, lane, *size, other, target)?;
                if let Some(mask) = self.bytes {
                    all.pieces = masked(cx.row(mask)[lane] as u16, all.total, other);
                }
                Some(all)
            }
            Shape::Box(coordinates) => self.tensor_box(cx, lane, coordinates, other, target),
        }
    }

    /// A box of the tensor whose map is at `other`.
    fn tensor_box(
        &self,
        cx: &mut Cx<'_>,
        lane: usize,
        coordinates: &[Slot],
        other: u64,
        target: (u32, u32),
    ) -> Option<Move> {
        let at: Vec<i32> = coordinates
            .iter()
            .map(|&slot| cx.row(slot)[lane] as i32)
            .collect();
        let bytes = cx.map_bytes(lane, other);
        let found = bytes.and_then(|bytes| cx.machine.tensor_maps.find(&bytes));
        let Some(Encoded {
            tensor: address,
            map,
            ..
        }) = found
        else {
            cx.report(rule::TENSOR_MAP, 1 << lane, |_, mut told| {
                told.message = format!("{other:#x} is not the address of a tensor map");
                told.help("pass the map as a `const __grid_constant__` parameter, and give its generic address")
            });
            return None;
        };
        if let Some((pc, why)) = cx.unready_map(lane, other) {
            let (why, remedy) = match why {
                Unready::NotAcquired => (
                    "without having acquired the change",
                    "execute `fence.proxy.tensormap::generic.acquire.gpu [map], 128` in the thread that uses it, after the change was released",
                ),
                Unready::NotReleased => (
                    "and the change was not released before it was acquired",
                    "copy the map with `tensormap.cp_fenceproxy...release.gpu`, or execute `fence.proxy.tensormap::generic.release.gpu` behind the change, and only then tell the thread that acquires it",
                ),
                Unready::Narrow => (
                    "and it was released or acquired in a scope that does not reach from the one to the other",
                    "use `.gpu` (or `.cluster` in one cluster) in both, the fence that releases it and the one that acquires it",
                ),
            };
            cx.report(rule::TENSOR_MAP_FENCE, 1 << lane, |cx, mut told| {
                told.message =
                    format!("uses the tensor map at {other:#x}, which was changed, {why}");
                told.other(cx.code.span(pc), "it was changed here")
                    .help(remedy)
            });
        }
        let aligned = 128;
        let wrong = if !u64::from(target.1).is_multiple_of(aligned) {
            Some(format!(
                "a tensor copy at {:#x} of shared memory, which is not a multiple of {aligned}",
                target.1
            ))
        } else if self.barrier.is_none()
            && self.columns.is_none()
            && at.iter().any(|&axis| axis < 0)
        {
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
        let start = u64::from(target.1);
        let offsets = self.offsets(cx, lane);
        let boxes = match &offsets {
            Some(offsets) => columns::pieces(address, &map, &at, offsets, start),
            None if self.rows => tensor_map::four_rows(address, &map, &at, start),
            None => tensor_map::pieces(address, &map, &at, start),
        };
        let pieces = match (wrong, boxes) {
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
        let element = element_type(map.element);
        let boxes = if self.rows { 4 } else { 1 };
        let (total, counted) = match &offsets {
            Some(offsets) => (columns::bytes(&map, offsets), columns::bytes(&map, offsets)),
            None => (
                tensor_map::box_bytes(&map) * boxes,
                tensor_map::counted_bytes(&map) * boxes,
            ),
        };
        Some(Move {
            lane,
            total,
            counted,
            pieces,
            fill: Some(map),
            element,
        })
    }

    /// What a copy of columns says beside its coordinates.
    fn offsets(&self, cx: &Cx<'_>, lane: usize) -> Option<Offsets> {
        let of = |slot: Slot| cx.row(slot)[lane] & 0xffff;
        Some(match self.columns.as_ref()? {
            Columns::Space(all) => Offsets::Space(all.iter().map(|&slot| of(slot)).collect()),
            Columns::Row(wide, [halo, offset]) => Offsets::Row {
                wide: *wide,
                halo: of(*halo),
                offset: of(*offset),
            },
        })
    }

    /// Into shared memory.
    pub(super) fn load(
        &self,
        cx: &mut Cx<'_>,
        moved: Move,
        target: (u32, u32),
        other: u64,
        barrier: u64,
    ) {
        let lane = moved.lane;
        let Some((barrier_rank, barrier)) = cx.shared_place(lane, barrier) else {
            return;
        };
        let Some(mut targets) = self.targets(cx, lane, target.0, barrier_rank) else {
            return;
        };
        targets.retain(|&(_, rank)| check_use(cx, lane, (rank, barrier), Part::Counts));
        if targets.is_empty() {
            return;
        }
        let Some(taken) = self.taken(cx, &moved, other, (&targets, barrier)) else {
            return;
        };
        let (start, end) = (u64::from(target.1), u64::from(target.1) + moved.total);
        let pc = cx.pc();
        let id = cx.team.new_flight();
        for &(rank, _) in &targets {
            if !cx.is_in_shared(lane, rank, target.1, moved.total, Does::Writes) {
                return;
            }
            cx.check_target(lane, rank, start..end, self.reduce.is_some(), true);
            cx.blocks[rank as usize].flights.push(Flight {
                id,
                what: What::Bulk,
                write: true,
                reduces: self.reduce.is_some(),
                start,
                end,
                pc,
                agent: cx.warp.clock.agent,
                lane: lane as u8,
            });
        }
        if let Some((rank, source)) = taken.sent {
            cx.blocks[rank as usize].flights.push(Flight {
                id,
                what: What::Sent,
                write: false,
                reduces: false,
                start: source,
                end: source + moved.total,
                pc,
                agent: cx.warp.clock.agent,
                lane: lane as u8,
            });
        }
        // What the thread does from here on is not told by the completion.
        let clock = cx.warp.clock.release(1 << lane, cx.warp.live);
        let extra = cx.machine.held_up();
        let time = cx.now() + LATENCY + moved.total / RATE + extra;
        let reduce = self.reduce;
        let deliveries: Vec<Delivery> = targets
            .iter()
            .map(|&(_, to)| {
                let sender = Sender {
                    what: What::Bulk,
                    pc,
                    own: to == cx.warp.rank,
                };
                Delivery::new(cx.blocks, sender, to, barrier, moved.counted as u32)
            })
            .collect();
        cx.team.after(time, move |happening| {
            if let Some((rank, _)) = taken.sent {
                happening.blocks[rank as usize].flights.land(id);
            }
            for (&(rank, barrier_rank), delivery) in targets.iter().zip(deliveries) {
                let stamp = happening.blocks[barrier_rank as usize]
                    .mbarriers
                    .get(barrier)
                    .map(Mbarrier::stamp);
                let block = &mut happening.blocks[rank as usize];
                block.flights.land(id);
                taken.put(&mut block.shared, start, reduce);
                if let Some(stamp) = stamp {
                    let shared = &mut block.shared;
                    flight::written(shared, start..end, AccessKind::Async, stamp, pc);
                }
                delivery.arrive(happening, Some(&clock));
            }
        });
    }

    /// The data of a copy into shared memory, and where it is held at its source if that
    /// is a peer's. It is read until the mbarriers of its targets say that it is there.
    fn taken(
        &self,
        cx: &mut Cx<'_>,
        moved: &Move,
        other: u64,
        (targets, barrier): (&[(u32, u32)], u32),
    ) -> Option<Taken> {
        let lane = moved.lane;
        if self.to_peer {
            let (rank, source) = cx.shared_place(lane, other)?;
            if !cx.is_in_shared(lane, rank, source, moved.total, Does::Reads) {
                return None;
            }
            cx.check_source(lane, rank, u64::from(source), moved.total);
            let (shared, source) = (&cx.blocks[rank as usize].shared, u64::from(source));
            return Some(Taken {
                data: shared.bytes(source, moved.total as usize).to_vec(),
                holes: shared.holes(source, moved.total),
                sent: Some((rank, source)),
            });
        }
        let (checks, pc) = (cx.machine.options.checks, cx.pc());
        let (mut data, mut holes) = (vec![0u8; moved.total as usize], Vec::new());
        for piece in &moved.pieces {
            let range = piece.shared as usize..(piece.shared + piece.len) as usize;
            match piece.global {
                Some(address) => {
                    let (home, offset) = cx.global_place(lane, address, piece.len, Does::Reads)?;
                    let read = (Does::Reads, AccessKind::Async);
                    cx.touch_range(lane, (home, offset, piece.len), read, false);
                    let Some(region) = cx.region(home) else {
                        continue;
                    };
                    data[range].copy_from_slice(region.bytes(offset, piece.len as usize));
                    let missing = region.holes(offset, piece.len).into_iter();
                    holes.extend(missing.map(|hole| piece.shared + hole));
                    if !checks.races || region.history.is_still() {
                        continue;
                    }
                    let source = offset..offset + piece.len;
                    for &(_, rank) in targets {
                        let barriers = &cx.blocks[rank as usize].mbarriers;
                        let end = barriers.get(barrier).map(Mbarrier::stamp);
                        if let (Some(end), Some(region)) = (end, cx.region(home)) {
                            flight::reads(region, source.clone(), end, pc);
                        }
                    }
                }
                None => {
                    if let Some(map) = &moved.fill {
                        data[range].copy_from_slice(&tensor_map::fill(map, piece.len as usize));
                    }
                }
            }
        }
        let element = moved.fill.as_ref().map(|map| map.element);
        if let Some(TensorElement::Tf32 | TensorElement::Tf32Ftz) = element {
            round_to_tf32(&mut data);
        }
        Some(Taken {
            data,
            holes,
            sent: None,
        })
    }

    /// The blocks that a copy goes to, each with the block whose mbarrier counts.
    pub(super) fn targets(
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
            .map(|rank| match self.pair {
                // The block of its pair that has the parity of the mbarrier's.
                true => (rank, (rank & !1 | barrier_rank & 1).min(size - 1)),
                false => (rank, rank),
            })
            .collect();
        (!targets.is_empty()).then_some(targets)
    }

    /// Out of shared memory.
    pub(super) fn store(&self, cx: &mut Cx<'_>, moved: Move, source: (u32, u32), again: bool) {
        let lane = moved.lane;
        let (rank, offset) = source;
        if !cx.is_in_shared(lane, rank, offset, moved.total, Does::Reads) {
            return;
        }
        // What lies outside of the tensor goes nowhere: padding between rows need not be written.
        let partly = moved.pieces.iter().any(|piece| piece.global.is_none());
        if self.bytes.is_some() || partly {
            for piece in moved.pieces.iter().filter(|piece| piece.global.is_some()) {
                cx.check_source(lane, rank, u64::from(offset) + piece.shared, piece.len);
            }
        } else {
            cx.check_source(lane, rank, u64::from(offset), moved.total);
        }
        let shared = &cx.blocks[rank as usize].shared;
        let data = shared
            .bytes(u64::from(offset), moved.total as usize)
            .to_vec();
        let holes = shared.holes(u64::from(offset), moved.total);
        let pc = cx.pc();
        let stamps = cx.machine.options.checks.races.then(|| {
            let block = &mut cx.blocks[cx.warp.rank as usize];
            let new = || block.mbarriers.new_agent(block.number);
            cx.warp.copies.bulk.stamps(lane, new)
        });
        let written = stamps.map(|[written, _]| written);
        // What another lane stores alike is written once; each lane has its own group to wait for.
        for piece in moved.pieces.iter().filter(|_| !again) {
            let Some(address) = piece.global else {
                continue;
            };
            let Some((home, at)) = cx.global_place(lane, address, piece.len, Does::Writes) else {
                return;
            };
            let bytes = &data[piece.shared as usize..(piece.shared + piece.len) as usize];
            let kind = if self.reduce.is_some() {
                AccessKind::Reduction
            } else {
                AccessKind::Plain
            };
            let same = self.reduce.is_none()
                && cx.region(home).is_some_and(|region| {
                    region.bytes(at, bytes.len()) == bytes
                        && region.first_unwritten(at, bytes.len()).is_none()
                });
            cx.touch_range(lane, (home, at, piece.len), (Does::Writes, kind), same);
            let Some(region) = cx.region(home) else {
                return;
            };
            match self.reduce {
                None => {
                    region.write_bytes(at, bytes);
                    let missing = holes
                        .iter()
                        .filter_map(|hole| hole.checked_sub(piece.shared));
                    for hole in missing.filter(|hole| *hole < piece.len) {
                        region.unmark(at + hole, 1);
                    }
                }
                Some((op, ty)) => {
                    let ty = bitwise(op, moved.element.or(ty).unwrap_or(Type::B32));
                    reduce_into(region, at, bytes, op, ty, Subnormals::Flushed);
                }
            }
            let range = at..at + piece.len;
            match written {
                Some(stamp) if self.reduce.is_some() => flight::reduced(region, range, stamp, pc),
                Some(stamp) => flight::written(region, range, AccessKind::Async, stamp, pc),
                None => {}
            }
        }
        let (start, end) = (u64::from(offset), u64::from(offset) + moved.total);
        if let Some([_, read]) = stamps {
            flight::reads(&mut cx.blocks[rank as usize].shared, start..end, read, pc);
        }
        let id = cx.team.new_flight();
        cx.blocks[rank as usize].flights.push(Flight {
            id,
            what: What::Bulk,
            write: false,
            reduces: false,
            start,
            end,
            pc,
            agent: cx.warp.clock.agent,
            lane: lane as u8,
        });
        cx.warp.copies.bulk.start(lane, id);
    }
}

/// Some bytes in a row, with what is wrong about their number and places reported.
fn run_of_bytes(
    cx: &mut Cx<'_>,
    lane: usize,
    size: Slot,
    other: u64,
    target: (u32, u32),
) -> Option<Move> {
    let size = u64::from(cx.row(size)[lane]);
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
            told.help("sizes and both addresses of a bulk copy are multiples of 16 bytes")
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
        counted: size,
        fill: None,
        element: None,
    })
}

/// The bytes of `total` whose bit is set in the mask of their sixteen.
fn masked(mask: u16, total: u64, other: u64) -> Vec<Piece> {
    let mut pieces: Vec<Piece> = Vec::new();
    for at in (0..total).filter(|at| mask >> (at % 16) & 1 != 0) {
        match pieces.last_mut() {
            Some(last) if last.shared + last.len == at => last.len += 1,
            _ => pieces.push(Piece {
                shared: at,
                global: Some(other + at),
                len: 1,
            }),
        }
    }
    pieces
}

/// What a reduction computes on elements of a tensor.
fn element_type(element: TensorElement) -> Option<Type> {
    use TensorElement as E;
    match element {
        E::U32 => Some(Type::U32),
        E::S32 => Some(Type::S32),
        E::U64 => Some(Type::U64),
        E::S64 => Some(Type::S64),
        E::F16 => Some(Type::F16),
        E::Bf16 => Some(Type::Bf16),
        E::F64 => Some(Type::F64),
        E::F32 | E::F32Ftz | E::Tf32 | E::Tf32Ftz => Some(Type::F32),
        E::U8 | E::U16 | E::B4 | E::B4Padded | E::B6Padded => None,
    }
}

/// What a load of tf32 makes of the words: it rounds them to nearest, and keeps subnormal numbers (as an H200 does, with
/// `tf32_ftz`, too). A store and a reduction leave them as they are.
fn round_to_tf32(data: &mut [u8]) {
    for word in data.as_chunks_mut::<4>().0 {
        let bits = u32::from_le_bytes(*word);
        *word = f32_to_tf32(Rounding::Nearest, Limits::default(), bits).to_le_bytes();
    }
}

/// Logic works on bits, whatever the tensor's elements are.
pub(super) fn bitwise(op: Op, ty: Type) -> Type {
    match (op, ty) {
        (Op::And | Op::Or | Op::Xor, Type::U32 | Type::S32 | Type::F32) => Type::B32,
        (Op::And | Op::Or | Op::Xor, Type::U64 | Type::S64 | Type::F64) => Type::B64,
        (_, ty) => ty,
    }
}

pub(super) fn reduce_into(
    region: &mut Region,
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
