//! Where the state spaces lie in the generic address space.
//!
//! Global memory is addressed by its generic addresses. The other spaces are
//! windows: an address inside a space is an offset, and `cvta` adds the window's
//! start. In the shared window the block's own memory comes first, and each block
//! of the cluster, the own one included, has a 16 MiB stretch behind it.

/// First address of global memory; nothing is mapped near zero.
pub(crate) const GLOBAL: u64 = 0x0007_0000_0000;
/// Constant variables.
pub(crate) const CONST: u64 = 0x7f00_0000_0000;
/// Shared memory, own and of the cluster.
pub(crate) const SHARED: u64 = 0x7f40_0000_0000;
/// Local memory and the parameters of device functions.
pub(crate) const LOCAL: u64 = 0x7f80_0000_0000;
/// Kernel parameters.
pub(crate) const PARAM: u64 = 0x7fc0_0000_0000;
/// How long each window is.
const LENGTH: u64 = 1 << 32;

/// Distance between the shared memories of two blocks in the shared window.
pub(crate) const PEER_SHIFT: u32 = 24;

/// Generic addresses of local memory name their thread above these bits.
pub(crate) const LOCAL_SHIFT: u32 = 20;

/// A state space that an address can lie in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Window {
    Global,
    Const,
    Shared,
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

    /// What `cvta` adds.
    pub(crate) fn start(self) -> u64 {
        match self {
            Window::Global => 0,
            Window::Const => CONST,
            Window::Shared => SHARED,
            Window::Local => LOCAL,
            Window::Param => PARAM,
        }
    }

    /// What it is called in messages.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Window::Global => "global",
            Window::Const => "constant",
            Window::Shared => "shared",
            Window::Local => "local",
            Window::Param => "parameter",
        }
    }
}

/// A place in the shared memory of some block of the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SharedPlace {
    /// The block's rank in the cluster; none for the own block's plain address.
    pub(crate) rank: Option<u32>,
    pub(crate) offset: u32,
}

impl SharedPlace {
    /// Takes an address in the shared window apart.
    pub(crate) fn of(address: u32) -> SharedPlace {
        let peer = address >> PEER_SHIFT;
        SharedPlace {
            rank: peer.checked_sub(1),
            offset: address & ((1 << PEER_SHIFT) - 1),
        }
    }

    /// The address of `offset` in the memory of the block with `rank`, as `mapa` makes it.
    pub(crate) fn address(rank: u32, offset: u32) -> u32 {
        (rank + 1) << PEER_SHIFT | offset
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
    fn a_mapped_address_names_its_block() {
        let place = SharedPlace::of(SharedPlace::address(3, 0x40));
        assert_eq!((place.rank, place.offset), (Some(3), 0x40));
        assert_eq!(SharedPlace::of(0x40).rank, None);
    }
}
