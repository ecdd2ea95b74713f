//! The clusters of a grid that nobody has launched yet, and buffers to reuse.

use super::cluster::Cluster;
use super::warp::Warp;
use crate::rng::Rng;
use crate::state::memory::region::Region;

/// Clusters waiting for an SM. The hardware takes them in order; launch control
/// takes from the same end.
#[derive(Default)]
pub(crate) struct Pool {
    next: u32,
    end: u32,
    /// A shuffled order, where chaos asks for it.
    order: Option<Vec<u32>>,
    spare: Vec<Region>,
    // Boxed as the clusters hold them: a warp is large, and moves often.
    #[allow(clippy::vec_box)]
    warps: Vec<Box<Warp>>,
    #[allow(clippy::vec_box)]
    clusters: Vec<Box<Cluster>>,
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
            spare: Vec::new(),
            warps: Vec::new(),
            clusters: Vec::new(),
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

    pub(crate) fn spare_shared(&mut self) -> Option<Region> {
        self.spare.pop()
    }

    pub(crate) fn spare_warp(&mut self) -> Option<Box<Warp>> {
        self.warps.pop()
    }

    pub(crate) fn give_back_warps(&mut self, warps: impl Iterator<Item = Box<Warp>>) {
        self.warps.extend(warps);
    }

    /// A cluster that has ended, to launch another one in its buffers.
    pub(crate) fn spare_cluster(&mut self) -> Option<Box<Cluster>> {
        self.clusters.pop()
    }

    pub(crate) fn give_back_cluster(&mut self, cluster: Box<Cluster>) {
        self.clusters.push(cluster);
    }

    pub(crate) fn give_back(&mut self, shared: Region) {
        self.spare.push(shared);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cluster_is_taken_once() {
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
