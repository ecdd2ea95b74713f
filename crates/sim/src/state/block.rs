//! A block's own state: its shared memory, its barriers, what is in flight.

use super::barrier::Barrier;
use super::memory::region::Region;
use crate::lanes::each;
use heist_launch::Dim3;

/// Named barriers of a block.
pub(crate) const BARRIERS: usize = 16;

/// A block's own state.
pub(crate) struct Block {
    /// Its coordinates, and its number in the order of launch.
    pub(crate) ctaid: Dim3,
    pub(crate) number: u32,
    pub(crate) shared: Region,
    /// Threads and warps that have not exited.
    pub(crate) live: u32,
    pub(crate) live_warps: u32,
    pub(crate) barriers: [Barrier; BARRIERS],
    /// One bit for each barrier with an arrival.
    pub(crate) used_barriers: u16,
    pub(crate) mbarriers: crate::state::mbarrier::Mbarriers,
    pub(crate) flights: crate::state::flight::Flights,
    pub(crate) expected: crate::state::copies::Expected,
    /// Threads of peers that have used its shared memory, as far as no thread of its own knew so when
    /// it exited.
    pub(crate) guests: super::users::Users,
    pub(crate) registers: crate::state::block::RegisterPool,
    pub(crate) issued: crate::state::products::Issued,
    /// Its tensor memory, once it has used any, and its SM.
    pub(crate) tensor: Option<Box<super::tensor_memory::TensorMemory>>,
    pub(crate) allocator: super::tensor_memory::Allocator,
    pub(crate) sm: u32,
    pub(crate) end: u64,
}

impl Block {
    /// Room for one.
    pub(crate) fn new() -> Block {
        Block {
            ctaid: Dim3::ONE,
            number: 0,
            shared: Region::default(),
            live: 0,
            live_warps: 0,
            barriers: Default::default(),
            used_barriers: 0,
            mbarriers: Default::default(),
            flights: Default::default(),
            expected: Default::default(),
            guests: Default::default(),
            registers: Default::default(),
            issued: Default::default(),
            tensor: None,
            allocator: Default::default(),
            sm: 0,
            end: 0,
        }
    }

    /// Back to the start, for another block; its place, threads and memory are still to
    /// be set. It keeps its buffers, but for shared memory where another is given.
    pub(crate) fn restart(&mut self, shared: Option<Region>) {
        if let Some(shared) = shared {
            self.shared = shared;
        }
        for id in each(std::mem::take(&mut self.used_barriers).into()) {
            self.barriers[id].restart();
        }
        self.mbarriers = Default::default();
        self.flights = Default::default();
        self.expected = Default::default();
        self.guests = Default::default();
        self.registers = Default::default();
        self.issued = Default::default();
        self.tensor = None;
        self.allocator = Default::default();
    }

    pub(crate) fn has_exited(&self) -> bool {
        self.live == 0
    }
}

/// The registers that a block's warps have given back.
#[derive(Debug, Default)]
pub(crate) struct RegisterPool {
    /// Registers a thread of each warp, by number; 0 for what it started with.
    pub(crate) held: Vec<u32>,
    /// Registers a thread of one warp, that nobody holds.
    pub(crate) free: u32,
    /// How often a wait has failed since the pool last changed.
    pub(crate) waits: u32,
}
