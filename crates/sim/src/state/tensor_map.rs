//! The tensor maps of a launch.
//!
//! A map is 128 opaque bytes. Here they hold a mark and a number, and the map
//! itself is kept beside the memory.

use crate::lanes::{Mask, each};
use crate::race::access::{Geography, Scope};
use crate::race::clock::{Agent, Clock, WarpClock};
use heist_launch::{HostMaps, TensorElement, TensorMap};
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// The most axes of a map.
const AXES: usize = 5;

/// A map as its bits have it: room for five axes, and beside it how many of them count.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Encoded {
    /// The address of the tensor.
    pub(crate) tensor: u64,
    /// With as many axes as count. What is not about an axis may be changed here.
    pub(crate) map: TensorMap,
    dims: [u64; AXES],
    strides: [u64; AXES - 1],
    box_dims: [u32; AXES],
    element_strides: [u32; AXES],
}

impl Encoded {
    fn new(tensor: u64, map: TensorMap) -> Encoded {
        Encoded {
            tensor,
            dims: padded(&map.dims, 1),
            strides: padded(&map.strides, 0),
            box_dims: padded(&map.box_dims, 1),
            element_strides: padded(&map.element_strides, 1),
            map,
        }
    }

    /// A map of one element, for bytes that are no map yet.
    pub(crate) fn blank() -> Encoded {
        let map = TensorMap::dense(0usize, TensorElement::U8, &[1], &[1]);
        Encoded::new(0, map)
    }

    /// So many axes count from now on, whatever was said of the others.
    pub(crate) fn set_rank(&mut self, rank: usize) -> Option<()> {
        if !(1..=AXES).contains(&rank) {
            return None;
        }
        self.map.dims = self.dims[..rank].to_vec();
        self.map.strides = self.strides[..rank - 1].to_vec();
        self.map.box_dims = self.box_dims[..rank].to_vec();
        self.map.element_strides = self.element_strides[..rank].to_vec();
        Some(())
    }

    /// Changes an axis, which may be one that does not count.
    pub(crate) fn set_axis(&mut self, axis: Axis, value: u64) -> Option<()> {
        match axis {
            Axis::Dim(at) => *self.dims.get_mut(at)? = u64::from(value as u32),
            Axis::Stride(at) => *self.strides.get_mut(at)? = value,
            Axis::BoxDim(at) => *self.box_dims.get_mut(at)? = value as u32,
            Axis::ElementStride(at) => *self.element_strides.get_mut(at)? = value as u32,
        }
        self.set_rank(self.map.dims.len())
    }
}

/// What of which axis, innermost first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Axis {
    Dim(usize),
    /// Of the axis behind.
    Stride(usize),
    BoxDim(usize),
    ElementStride(usize),
}

fn padded<T: Copy, const N: usize>(list: &[T], blank: T) -> [T; N] {
    std::array::from_fn(|at| list.get(at).copied().unwrap_or(blank))
}

/// The maps of a launch.
#[derive(Debug, Default)]
pub(crate) struct TensorMaps {
    /// Those that the host has encoded.
    of_host: Arc<HostMaps>,
    /// Those of the launch: its arguments, and what kernels make of others.
    list: Vec<Encoded>,
    /// Fences that release maps which the kernel has written in global memory, by their warps.
    releases: BTreeMap<Agent, VecDeque<Arc<Release>>>,
    /// Fences that acquire the map at an address.
    acquires: FxHashMap<u64, Vec<Acquire>>,
}

/// A fence about maps, by some lanes of a warp.
#[derive(Clone, Copy, Debug)]
struct Fence {
    agent: Agent,
    clock: u32,
    lanes: Mask,
    scope: Scope,
}

impl Fence {
    /// Whether it happens before the present of `lane`.
    fn is_known(&self, clock: &WarpClock, lane: u8) -> bool {
        each(self.lanes).any(|own| clock.knows(self.agent, self.clock, own as u8, lane))
    }
}

/// A fence that releases maps, and what happened before it.
#[derive(Debug)]
struct Release {
    fence: Fence,
    known: Clock,
}

/// A fence that acquires a map, and the releases that happen before it.
#[derive(Debug)]
struct Acquire {
    fence: Fence,
    behind: Vec<Arc<Release>>,
}

/// Releases of one warp that are told apart.
const MOST_RELEASES: usize = 64;
/// Fences that acquire one map and are told apart.
const MOST_ACQUIRES: usize = 4096;

/// Why a map that the kernel has written may not be used yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unready {
    /// No fence has acquired it.
    NotAcquired,
    /// The fence that acquired it follows none that released the change.
    NotReleased,
    /// The scope of one of the two fences does not reach the thread at the other end.
    Narrow,
}

impl TensorMaps {
    /// With what the host has encoded.
    pub(crate) fn of(of_host: Arc<HostMaps>) -> TensorMaps {
        TensorMaps {
            of_host,
            ..TensorMaps::default()
        }
    }

    /// Keeps a map; the bytes that stand for it.
    pub(crate) fn add(&mut self, tensor: u64, map: TensorMap) -> [u8; 128] {
        self.keep(Encoded::new(tensor, map))
    }

    pub(crate) fn keep(&mut self, map: Encoded) -> [u8; 128] {
        let bytes = HostMaps::bytes(self.of_host.launch, self.list.len() as u32);
        self.list.push(map);
        bytes
    }

    /// A fence that releases maps in a scope, by the lanes in `lanes`, just before the epoch that it ends.
    pub(crate) fn release(
        &mut self,
        (agent, clock): (Agent, u32),
        lanes: Mask,
        scope: Scope,
        known: Clock,
    ) {
        let own = self.releases.entry(agent).or_default();
        if own.len() >= MOST_RELEASES {
            own.pop_front();
        }
        let fence = Fence {
            agent,
            clock,
            lanes,
            scope,
        };
        own.push_back(Arc::new(Release { fence, known }));
    }

    /// A fence of a lane that acquires the map at an address.
    pub(crate) fn acquire(&mut self, at: u64, clock: &WarpClock, lane: u8, scope: Scope) {
        let heard = |agent: Agent| agent == clock.agent || clock.has_heard_of(agent, lane);
        let warps = self.releases.iter().filter(|(agent, _)| heard(**agent));
        let known = |one: &&Arc<Release>| one.fence.is_known(clock, lane);
        let behind = warps.flat_map(|(_, all)| all).filter(known);
        let behind: Vec<_> = behind.cloned().collect();
        let fence = Fence {
            agent: clock.agent,
            clock: clock.now,
            lanes: 1 << (lane & 31),
            scope,
        };
        let all = self.acquires.entry(at).or_default();
        // An earlier one of the lane that brought the same is known to more.
        let same = all.iter_mut().find(|one| {
            let together = one.fence.clock == fence.clock || one.fence.lanes & fence.lanes != 0;
            let mut pairs = one.behind.iter().zip(&behind);
            one.fence.agent == fence.agent
                && one.fence.scope == scope
                && together
                && one.behind.len() == behind.len()
                && pairs.all(|(a, b)| Arc::ptr_eq(a, b))
        });
        match same {
            Some(one) => one.fence.lanes |= fence.lanes,
            None => all.push(Acquire { fence, behind }),
        }
        if all.len() > MOST_ACQUIRES {
            all.remove(0);
        }
    }

    /// Whether a write of the map at an address, by an agent at a time and in a lane, may not be used yet by the
    /// thread of `clock`, and why.
    pub(crate) fn unready(
        &self,
        at: u64,
        (writer, when, whose): (Agent, u32, u8),
        (clock, lane): (&WarpClock, u8),
        geography: Geography,
    ) -> Option<Unready> {
        let mut why = Unready::NotAcquired;
        for acquire in self.acquires.get(&at).into_iter().flatten().rev() {
            if !acquire.fence.is_known(clock, lane) {
                continue;
            }
            if why == Unready::NotAcquired {
                why = Unready::NotReleased;
            }
            for release in acquire.behind.iter().rev() {
                if release.known.of(writer).covers(when, whose) {
                    let ends = [release.fence, acquire.fence];
                    let reaches =
                        |one: Fence| geography.reaches(one.scope, ends[0].agent, ends[1].agent);
                    if ends.into_iter().all(reaches) {
                        return None;
                    }
                    why = Unready::Narrow;
                }
            }
        }
        Some(why)
    }

    /// The map that some bytes stand for. A kernel's map of an earlier launch is none.
    pub(crate) fn find(&self, bytes: &[u8]) -> Option<Encoded> {
        let (launch, number) = HostMaps::number(bytes)?;
        if launch == self.of_host.launch {
            return self.list.get(number as usize).cloned();
        }
        let (tensor, map) = self.of_host.list.get(number as usize)?;
        (launch == 0).then(|| Encoded::new(*tensor, map.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use heist_launch::BufferRef;

    #[test]
    fn a_map_is_found_by_its_bytes() {
        let mut maps = TensorMaps::default();
        let map = TensorMap::dense(BufferRef::Argument(0), TensorElement::U32, &[6], &[4]);
        let bytes = maps.add(64, map.clone());
        assert_eq!(maps.find(&bytes), Some(Encoded::new(64, map)));
        assert_eq!(maps.find(&[0; 128]), None);
    }

    #[test]
    fn maps_of_the_host_keep_their_numbers_and_those_of_another_launch_are_none() {
        let map = |extent| TensorMap::dense("", TensorElement::U32, &[extent], &[4]);
        let launch = |launch| {
            let list = vec![(64, map(8)), (128, map(12))];
            TensorMaps::of(Arc::new(HostMaps { list, launch }))
        };
        let (mut first, mut second) = (launch(1), launch(2));
        let made = first.add(256, map(16));
        let other = second.add(512, map(20));
        for maps in [&first, &second] {
            let found = maps.find(&HostMaps::bytes(0, 1));
            assert_eq!(found, Some(Encoded::new(128, map(12))));
            assert_eq!(maps.find(&HostMaps::bytes(0, 2)), None);
        }
        assert_eq!(first.find(&made), Some(Encoded::new(256, map(16))));
        assert_eq!(second.find(&other), Some(Encoded::new(512, map(20))));
        assert_eq!((first.find(&other), second.find(&made)), (None, None));
    }

    #[test]
    fn axes_that_do_not_count_are_kept_until_they_do() {
        let mut map = Encoded::blank();
        assert_eq!(map.set_axis(Axis::Dim(2), 7), Some(()));
        assert_eq!(map.set_axis(Axis::Stride(1), 32), Some(()));
        assert_eq!(map.map.dims, [1]);
        assert_eq!(map.set_rank(3), Some(()));
        assert_eq!(map.map.dims, [1, 1, 7]);
        assert_eq!(map.map.strides, [0, 32]);
        assert_eq!(map.set_rank(6), None);
        assert_eq!(map.set_axis(Axis::Stride(4), 16), None);
    }
}
