//! The clusters of a grid that are not launched yet.

use crate::rng::Rng;

/// Clusters waiting for an SM. The hardware takes them in order; launch control
/// takes from the same end.
#[derive(Default)]
pub(crate) struct Pool {
    next: u32,
    end: u32,
    /// A shuffled order, where chaos asks for it.
    order: Option<Vec<u32>>,
}

impl Pool {
    /// All of `clusters`, in order.
    pub(crate) fn new(clusters: u32, shuffle: Option<&mut Rng>) -> Pool {
        let order = shuffle.map(|rng| {
            let mut order: Vec<u32> = (0..clusters).collect();
            for at in (1..order.len()).rev() {
                let other = rng.below(at as u64 + 1) as usize;
                order.swap(at, other);
            }
            order
        });
        Pool {
            next: 0,
            end: clusters,
            order,
        }
    }

    /// The next cluster; it is launched, or given to whoever asked.
    pub(crate) fn take(&mut self) -> Option<u32> {
        if self.next == self.end {
            return None;
        }
        let at = self.next;
        self.next += 1;
        Some(self.order.as_ref().map_or(at, |order| order[at as usize]))
    }

    /// How many are left.
    pub(crate) fn left(&self) -> u32 {
        self.end - self.next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    pub(crate) fn every_cluster_is_taken_once() {
        for shuffled in [false, true] {
            let mut rng = Rng::new(3);
            let mut pool = Pool::new(50, shuffled.then_some(&mut rng));
            let mut taken: Vec<u32> = std::iter::from_fn(|| pool.take()).collect();
            assert_eq!(pool.left(), 0);
            taken.sort_unstable();
            assert_eq!(taken, (0..50).collect::<Vec<_>>());
        }
    }
}
