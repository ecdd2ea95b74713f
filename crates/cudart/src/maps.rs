//! Tensor maps that the program has encoded.

use heist_launch::{HostMaps, TensorMap};
use std::collections::HashMap;
use std::sync::Arc;

/// All of them, each once: programs encode the same map before every launch.
#[derive(Default)]
pub(crate) struct Maps {
    all: Arc<HostMaps>,
    numbers: HashMap<(u64, TensorMap), u32>,
}

impl Maps {
    /// Keeps a map over the tensor at an address; the bytes that stand for it.
    pub(crate) fn keep(&mut self, tensor: u64, map: TensorMap) -> [u8; 128] {
        let next = self.numbers.len() as u32;
        let number = *self.numbers.entry((tensor, map.clone())).or_insert(next);
        if number == next {
            Arc::make_mut(&mut self.all).list.push((tensor, map));
        }
        HostMaps::bytes(0, number)
    }

    /// The map that some bytes stand for, if the program has encoded it.
    pub(crate) fn find(&self, bytes: &[u8]) -> Option<TensorMap> {
        let (launch, number) = HostMaps::number(bytes)?;
        let (_, map) = self.all.list.get(number as usize)?;
        (launch == 0).then(|| map.clone())
    }

    /// What the next launch is to know of them.
    pub(crate) fn for_launch(&mut self) -> Arc<HostMaps> {
        Arc::make_mut(&mut self.all).launch += 1;
        Arc::clone(&self.all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use heist_launch::TensorElement;

    #[test]
    fn a_map_has_one_number_for_good() {
        let map = |extent| TensorMap::dense("", TensorElement::F16, &[extent], &[8]);
        let mut maps = Maps::default();
        let first = maps.keep(64, map(16));
        let launched = maps.for_launch();
        assert_ne!(maps.keep(128, map(16)), first);
        assert_ne!(maps.keep(64, map(24)), first);
        assert_eq!(maps.keep(64, map(16)), first);
        assert_eq!(maps.find(&first), Some(map(16)));
        assert_eq!(maps.find(&[0; 128]), None);
        // A launch that is under way keeps what it was given.
        assert_eq!((launched.launch, launched.list.len()), (1, 1));
        let next = maps.for_launch();
        assert_eq!((next.launch, next.list.len()), (2, 3));
        assert_eq!(next.list[1], (128, map(16)));
    }
}
