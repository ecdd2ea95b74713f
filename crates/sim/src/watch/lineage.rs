//! Taint tracking of a stolen tile's coordinates.
//!
//! A grant names the first block of its cluster, and every block adds its own offset
//! dimension by dimension. Two ways to get that wrong are followed here, in kernels that
//! decode grants and run in clusters: adding what is not the block's offset in that
//! dimension (the linear rank to x, or another dimension's offset), which is reported at
//! the addition; and adding nothing, which is reported when a second block of the cluster
//! stores to where the first one did, at an address that comes from the same grant.
//! A third mistake, also in kernels without clusters: a grant that is never used, for no access, no
//! branch and no message to others.
//!
//! The origin is tracked for each lane of each register that may depend on a coordinate, but not
//! through memory.

use super::body::{Body, around, base_row};
use crate::access::context::Cx;
use crate::code::{Flow, Slot};
use crate::decode::address::Addr;
use crate::decode::trail::Role;
use crate::engine::executable::Instr;
use crate::lanes::{LANES, each};
use crate::special::Axis;
use crate::state::follow::{ClusterRegister, Stock};
use crate::state::memory::window::Window;
use heist_launch::Dim3;
use heist_ptx::rule;

/// How many addresses of tiles a cluster remembers.
const MOST_PLACES: usize = 1 << 16;

/// Follows the registers that can hold a part of a grant; how many there are.
pub(super) fn wrap(body: &mut Body<'_>) -> usize {
    if body.trails.iter().all(|trail| trail.first.is_empty()) {
        return 0;
    }
    let first = body.trails.iter().flat_map(|trail| {
        let decoded = trail.first.iter().map(|&(_, row)| row);
        let own = trail.writes.iter().copied();
        decoded.chain(own.filter(|_| trail.place.is_some()))
    });
    let numbers = body.computed_from(first);
    for (at, trail) in body.trails.iter().enumerate() {
        let number = |row: &u32| numbers.get(row).copied();
        let writes: Vec<u32> = trail.writes.iter().filter_map(number).collect();
        let store = match trail.role {
            Role::Stores(addr) => base_row(addr)
                .and_then(|row| number(&row))
                .map(|n| (addr, n)),
            _ => None,
        };
        let uses: Vec<u32> = match trail.only_computes() {
            true => Vec::new(),
            false => trail.reads.iter().filter_map(number).collect(),
        };
        if writes.is_empty() && store.is_none() && trail.first.is_empty() && uses.is_empty() {
            continue;
        }
        let reads = trail
            .reads
            .iter()
            .filter(|_| !trail.loads)
            .map(|row| (*row, number(row)))
            .collect();
        let first = trail
            .first
            .iter()
            .filter_map(|(axis, row)| Some((*axis, number(row)?)))
            .collect();
        let (role, place) = (trail.role, trail.place);
        around(&mut body.ops[at], |inner| {
            Box::new(Follow {
                inner,
                role,
                reads,
                writes,
                uses,
                place,
                first,
                store,
            })
        });
    }
    numbers.len()
}

/// An operation that touches a followed register.
struct Follow {
    inner: Box<dyn Instr>,
    role: Role,
    /// Its operands: row, and number where it is followed.
    reads: Vec<(u32, Option<u32>)>,
    writes: Vec<u32>,
    /// Those that it does something with.
    uses: Vec<u32>,
    place: Option<ClusterRegister>,
    first: Vec<(Axis, u32)>,
    store: Option<(Addr, u32)>,
}

impl Instr for Follow {
    fn inner(&self) -> Option<&dyn Instr> {
        Some(&*self.inner)
    }

    fn step(&self, cx: &mut Cx<'_>) -> Flow {
        let mask = cx.mask;
        for &number in &self.uses {
            let stocks = cx.warp.lineage[number as usize];
            for grant in each(mask).filter_map(|lane| stocks[lane].grant()) {
                if let Some(grant) = cx.team.control.granted.get_mut(grant as usize) {
                    grant.used = true;
                }
            }
        }
        if let Some((addr, number)) = self.store
            && cx.blocks.len() > 1
        {
            check_store(cx, addr, number);
        }
        if !self.writes.is_empty() {
            let made = self.made(cx);
            for &number in &self.writes {
                let row = &mut cx.warp.lineage[number as usize];
                for lane in each(mask) {
                    row[lane] = made[lane];
                }
            }
        }
        if self.first.is_empty() {
            return self.inner.step(cx);
        }
        cx.warp.decoding = Some(Box::new([None; LANES]));
        let flow = self.inner.step(cx);
        let grants = cx.warp.decoding.take().unwrap_or_default();
        for &(axis, number) in &self.first {
            let row = &mut cx.warp.lineage[number as usize];
            for lane in each(mask) {
                row[lane] = grants[lane].map_or(Stock::Other, |grant| Stock::First(axis, grant));
            }
        }
        flow
    }
}

impl Follow {
    /// What the result is made of, lane by lane.
    fn made(&self, cx: &mut Cx<'_>) -> [Stock; LANES] {
        let of = |cx: &Cx<'_>, at: usize| match self.reads.get(at) {
            Some(&(_, Some(number))) => cx.warp.lineage[number as usize],
            _ => [Stock::Other; LANES],
        };
        match (self.role, self.place) {
            (Role::Moves | Role::Copies, Some(place)) => [Stock::Own(place); LANES],
            (Role::Moves | Role::Copies, None) => of(cx, 0),
            (Role::Adds, None) if self.reads.len() == 2 => {
                let (a, b) = (of(cx, 0), of(cx, 1));
                for (stocks, other) in [(&a, 1), (&b, 0)] {
                    let others = if other == 1 { &b } else { &a };
                    self.check_sum(cx, stocks, others, self.reads[other].0);
                }
                std::array::from_fn(|lane| a[lane].mixed(b[lane]))
            }
            (_, place) => {
                let start = place.map_or(Stock::Other, |_| Stock::FromOwn(None));
                let mut all = [start; LANES];
                for at in 0..self.reads.len() {
                    for (all, one) in all.iter_mut().zip(of(cx, at)) {
                        *all = all.mixed(one);
                    }
                }
                all
            }
        }
    }

    /// Checks that a decoded coordinate is added to the block's offset in its own dimension.
    fn check_sum(&self, cx: &mut Cx<'_>, firsts: &[Stock], owns: &[Stock], own_row: u32) {
        let within = within(cx);
        let wrong = each(cx.mask).find_map(|lane| match (firsts[lane], owns[lane]) {
            (Stock::First(axis, _), Stock::Own(place)) => {
                let added = cx.row(Slot::register(own_row))[lane];
                (added != axis.pick(within)).then_some((lane, axis, place, added))
            }
            _ => None,
        });
        if let Some((lane, axis, place, added)) = wrong {
            report_sum(cx, lane, axis, place, added, within);
        }
    }
}

/// The block's place in its cluster.
fn within(cx: &Cx<'_>) -> Dim3 {
    cx.machine
        .cluster_shape
        .coordinates(u64::from(cx.warp.rank))
}

fn letter(axis: Axis) -> &'static str {
    match axis {
        Axis::X => "x",
        Axis::Y => "y",
        Axis::Z => "z",
    }
}

#[cold]
fn report_sum(
    cx: &mut Cx<'_>,
    lane: usize,
    axis: Axis,
    place: ClusterRegister,
    added: u32,
    within: Dim3,
) {
    cx.report(rule::CLC_OFFSET, 1 << lane, |cx, mut told| {
        let what = match place {
            ClusterRegister::Rank => "its rank in the cluster".to_owned(),
            ClusterRegister::Offset(other) => format!("its offset in {}", letter(other)),
        };
        told.message = format!(
            "block ({}) adds {what}, {added}, to the {} of a granted cluster's first block, where its own offset is {}",
            cx.blocks[cx.warp.rank as usize].ctaid,
            letter(axis),
            axis.pick(within),
        );
        told.note(format!(
            "the cluster is {} blocks, and this is block ({within}) of it",
            cx.machine.cluster_shape
        ))
        .help("add `%cluster_ctaid.x` to x, `.y` to y and `.z` to z; the rank counts through all three")
    });
}

/// Reports two blocks of a cluster that store to one address for one grant: they run the same tile.
fn check_store(cx: &mut Cx<'_>, addr: Addr, number: u32) {
    let stocks = cx.warp.lineage[number as usize];
    let raw = |stock: Stock| matches!(stock, Stock::FromFirst(_) | Stock::First(..));
    if !each(cx.mask).any(|lane| raw(stocks[lane])) {
        return;
    }
    let addresses = addr.eval(cx);
    let (pc, rank) = (cx.pc(), cx.warp.rank);
    for lane in each(cx.mask).filter(|&lane| raw(stocks[lane])) {
        let global = match addr.window {
            Some(window) => window == Window::Global,
            None => Window::of(addresses[lane]).0 == Window::Global,
        };
        if !global {
            continue;
        }
        let known = &mut cx.team.control.unplaced;
        let before = *known.entry((pc, addresses[lane])).or_insert(rank);
        if known.len() > MOST_PLACES {
            known.clear();
        }
        if before != rank {
            cx.report(rule::CLC_OFFSET, 1 << lane, |_, mut told| {
                told.message = format!(
                    "blocks of rank {before} and {rank} of a cluster store to the same place for the tile that they were granted"
                );
                told.note("the address comes from the id of the granted cluster's first block, and from nothing of the block's own")
                    .help("add the block's own `%cluster_ctaid` to the id, dimension by dimension")
            });
            return;
        }
    }
}
