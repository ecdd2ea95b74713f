//! Where the state spaces lie in the generic address space.
//!
//! Global memory is addressed by its generic addresses. The other spaces are
//! windows: an address inside a space is an offset, and `cvta` adds the window's
//! start. In the shared window each block of a cluster has a stretch of 16 MiB, in the
//! order of the ranks, as hardware has it: a block's own addresses carry its rank in
//! their upper 8 bits, and a peer is reached by changing those. From compute capability
//! 9.0 on the first KiB of each stretch is the system's
//! ([`Limits::shared_start`](heist_ptx::arch::Limits::shared_start)).

// The windows lie behind all that a driver gives out, below 2^48: memory that was recorded on a
// GPU keeps its addresses.

/// First address of global memory; nothing is mapped near zero.
pub(crate) const GLOBAL: u64 = 0x0007_0000_0000;
/// Global memory that device code takes with `malloc`. It has addresses of its own, since it outlives
/// the launch, and a later one may give it back.
pub(crate) const HEAP: u64 = 0x1_7e00_0000_0000;
/// Constant variables.
pub(crate) const CONST: u64 = 0x1_7f00_0000_0000;
/// Shared memory, own and of the cluster.
pub(crate) const SHARED: u64 = 0x1_7f40_0000_0000;
/// Local memory and the parameters of device functions.
pub(crate) const LOCAL: u64 = 0x1_7f80_0000_0000;
/// Kernel parameters.
pub(crate) const PARAM: u64 = 0x1_7fc0_0000_0000;
/// How long each window is.
const LENGTH: u64 = 1 << 32;

/// An address of the shared window has the block's rank above these bits.
const RANK_SHIFT: u32 = 24;

/// The rank in an address that lies below the window's start.
const BELOW: u32 = u32::MAX >> RANK_SHIFT;

/// Generic addresses of local memory name their thread above these bits.
pub(crate) const LOCAL_SHIFT: u32 = 20;

/// A state space that an address can lie in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Window {
    Global,
    Const,
    /// The shared memory of the cluster: `.shared::cluster`, and generic addresses.
    Shared,
    /// The block's own part of it alone: `.shared::cta`.
    OwnShared,
    Local,
    Param,
}

impl Window {
    /// The window that a generic address lies in, and the offset there; for
    /// global memory the address itself.
    #[inline]
    pub(crate) fn of(address: u64) -> (Window, u64) {
        if address < CONST {
            return (Window::Global, address);
        }
        for (window, start) in [
            (Window::Shared, SHARED),
            (Window::Local, LOCAL),
            (Window::Param, PARAM),
            (Window::Const, CONST),
        ] {
            if address.wrapping_sub(start) < LENGTH {
                return (window, address - start);
            }
        }
        (Window::Global, address)
    }

    /// Whether it is shared memory, whosever.
    pub(crate) fn is_shared(self) -> bool {
        matches!(self, Window::Shared | Window::OwnShared)
    }

    /// What `cvta` adds.
    pub(crate) fn start(self) -> u64 {
        match self {
            Window::Global => 0,
            Window::Const => CONST,
            Window::Shared | Window::OwnShared => SHARED,
            Window::Local => LOCAL,
            Window::Param => PARAM,
        }
    }

    /// What it is called in messages.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Window::Global => "global",
            Window::Const => "constant",
            Window::Shared | Window::OwnShared => "shared",
            Window::Local => "local",
            Window::Param => "parameter",
        }
    }
}

/// A place in the shared window: the stretch of a block, and where in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SharedPlace {
    /// The block's rank in the cluster.
    pub(crate) rank: u32,
    /// Counted from the start of the stretch, what the system has of it included.
    pub(crate) within: u32,
}

impl SharedPlace {
    /// Takes an address in the shared window apart.
    #[inline(always)]
    pub(crate) fn of(address: u32) -> SharedPlace {
        SharedPlace {
            rank: address >> RANK_SHIFT,
            within: address & ((1 << RANK_SHIFT) - 1),
        }
    }

    /// Its address in the shared window.
    #[inline(always)]
    pub(crate) fn address(self) -> u32 {
        self.rank << RANK_SHIFT | self.within
    }

    /// The same place in another block of the cluster, as `mapa` makes it. A rank that no
    /// address has room for stays one that no cluster has.
    pub(crate) fn in_block(self, rank: u32) -> SharedPlace {
        SharedPlace {
            rank: rank.min(BELOW - 1),
            ..self
        }
    }

    /// Whether it lies below the window's start, at an address that has wrapped around.
    pub(crate) fn is_below(self) -> bool {
        self.rank == BELOW
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_window_is_found_again() {
        for window in [Window::Const, Window::Shared, Window::Local, Window::Param] {
            assert_eq!(Window::of(window.start() + 5), (window, 5));
            assert_eq!(Window::of(window.start() - 1).0, Window::Global);
        }
        assert_eq!(Window::of(GLOBAL + 16), (Window::Global, GLOBAL + 16));
        assert_eq!(Window::of(u64::MAX).0, Window::Global);
    }

    #[test]
    fn the_upper_bits_of_an_address_name_its_block() {
        let place = SharedPlace::of(0x0100_0400);
        assert_eq!((place.rank, place.within), (1, 0x400));
        assert_eq!(place.in_block(1), place);
        assert_eq!(place.in_block(0).address(), 0x400);
        assert_eq!(place.in_block(3).address(), 0x0300_0400);
        assert_eq!(place.address() ^ 1 << RANK_SHIFT, 0x400);
        // No cluster has so many blocks.
        assert_eq!(place.in_block(256).rank, 254);
        assert!(SharedPlace::of(0u32.wrapping_sub(4)).is_below());
    }
}
