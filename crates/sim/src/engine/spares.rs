//! Buffers of clusters that have ended, for clusters to come.
//!
//! Short blocks are launched as often as they run a few hundred instructions; making their
//! registers and memories anew each time would take longer than that.

use super::cluster::Cluster;
use crate::state::memory::region::Region;
use crate::state::warp::Warp;

/// What can be used again.
#[derive(Default)]
pub(crate) struct Spares {
    shared: Vec<Region>,
    // Boxed as the clusters hold them: a warp is large, and moves often.
    #[allow(clippy::vec_box)]
    warps: Vec<Box<Warp>>,
    #[allow(clippy::vec_box)]
    clusters: Vec<Box<Cluster>>,
}

impl Spares {
    pub(crate) fn shared(&mut self) -> Option<Region> {
        self.shared.pop()
    }

    pub(crate) fn warp(&mut self) -> Option<Box<Warp>> {
        self.warps.pop()
    }

    pub(crate) fn cluster(&mut self) -> Option<Box<Cluster>> {
        self.clusters.pop()
    }

    /// Keeps a cluster that has ended.
    pub(crate) fn keep(&mut self, cluster: Box<Cluster>) {
        self.clusters.push(cluster);
    }

    /// Takes from a cluster that has run what it needs no more.
    pub(crate) fn strip(&mut self, cluster: &mut Cluster) {
        let warps = std::mem::take(&mut cluster.warps);
        self.warps.extend(warps.into_iter().flatten());
        for block in &mut cluster.blocks {
            self.shared.push(std::mem::take(&mut block.shared));
        }
    }
}
