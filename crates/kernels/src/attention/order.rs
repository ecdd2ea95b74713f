//! The order of tiles for masks and lengths that make them uneven.

use heist_build::{Kernel, Val};
use heist_launch::Dim3;
use heist_sched::{Extent, Position, TileOrder};

/// The last rows of a sequence first: under a causal mask they see the most keys.
/// One head after the other, so that its keys stay in the cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeaviestFirst;

impl TileOrder for HeaviestFirst {
    fn tile(&self, index: u32, extent: Dim3) -> Dim3 {
        let at = extent.coordinates(index.into());
        Dim3::new(extent.x - 1 - at.x, at.y, at.z)
    }

    fn emit<'k>(&self, k: &Kernel<'k>, index: Val<'k, u32>, extent: &Extent<'k>) -> Position<'k> {
        let at = heist_sched::Linear.emit(k, index, extent);
        let across = if extent.rank <= 1 {
            extent.count
        } else {
            extent.x
        };
        Position {
            x: across - 1 - at.x,
            ..at
        }
    }

    fn name(&self) -> String {
        "heaviest-first".into()
    }
}
