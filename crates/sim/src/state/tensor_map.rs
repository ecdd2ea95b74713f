//! The tensor maps of a launch.
//!
//! A map is 128 opaque bytes. Here they hold a mark and a number, and the map
//! itself is kept beside the memory.

use heist_launch::TensorMap;
use rustc_hash::FxHashMap;

/// What marks the bytes of a map.
const MARK: u64 = 0x7e50_4d41_5048_5354;

/// The maps of a launch, with the addresses of their tensors.
#[derive(Debug, Default)]
pub(crate) struct TensorMaps {
    list: Vec<(u64, TensorMap)>,
    /// Addresses in global memory where a kernel has written a map that nobody has
    /// acquired since, and the instruction that wrote it.
    changed: FxHashMap<u64, u32>,
}

impl TensorMaps {
    /// Keeps a map; the bytes that stand for it.
    pub(crate) fn add(&mut self, address: u64, map: TensorMap) -> [u8; 128] {
        let mut bytes = [0; 128];
        bytes[..8].copy_from_slice(&MARK.to_le_bytes());
        bytes[8..16].copy_from_slice(&(self.list.len() as u64).to_le_bytes());
        self.list.push((address, map));
        bytes
    }

    /// Notes that a kernel has written a map.
    pub(crate) fn change(&mut self, at: u64, pc: u32) {
        self.changed.insert(at, pc);
    }

    /// Notes that a map may be used as it now is; who wrote it, if that was not known yet.
    pub(crate) fn settle(&mut self, at: u64) -> Option<u32> {
        self.changed.remove(&at)
    }

    /// The map that some bytes stand for.
    pub(crate) fn find(&self, bytes: &[u8]) -> Option<&(u64, TensorMap)> {
        let word = |at: usize| {
            bytes
                .get(at..at + 8)?
                .try_into()
                .ok()
                .map(u64::from_le_bytes)
        };
        (word(0)? == MARK)
            .then(|| self.list.get(word(8)? as usize))
            .flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use heist_launch::{BufferRef, TensorElement};

    #[test]
    fn a_map_is_found_by_its_bytes() {
        let mut maps = TensorMaps::default();
        let map = TensorMap::dense(BufferRef::Argument(0), TensorElement::U32, &[6], &[4]);
        let bytes = maps.add(64, map.clone());
        assert_eq!(maps.find(&bytes), Some(&(64, map)));
        assert_eq!(maps.find(&[0; 128]), None);
    }
}
