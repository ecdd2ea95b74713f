//! From a built kernel and a grid of tiles to a launch.

use crate::control::CONTROL_WORDS;
use crate::hidden::{HiddenWith, Numbers};
use crate::order::OrderError;
use crate::pause::{self, area_words};
use crate::policy::Policy;
use crate::program::control_words;
use crate::source::TileSource;
use crate::tiled::{TiledKernel, clusters_of, rank_of};
use crate::watch::{CLUSTER_WORDS, HEADER_WORDS, RECORD_WORDS, Watch};
use heist_builder::KernelParams;
use heist_launch::{Arg, Dim3, Launch};

/// One launch of a [`TiledKernel`]: its grid, and what the scheduler's own
/// parameters hold.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The launch.
    pub launch: Launch,
    /// The numbers.
    pub numbers: Numbers,
    /// The order's table; one word where it has none.
    pub table: Vec<u32>,
    /// The watch buffer as the kernel should find it; one word where the kernel
    /// is not watched.
    pub watch: Vec<u64>,
    /// The control words as the first launch should find them: zeros, and behind them
    /// a policy that is loaded, or room for tiles that are left half done.
    pub control: Vec<u64>,
    /// How many clusters are launched.
    pub workers: u32,
    pub(crate) own_params: usize,
}

/// Why a launch can't be planned.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// A grid without tiles.
    #[error("a grid of {0} tiles has none: there is nothing to launch")]
    NoTiles(Dim3),
    /// More than fit in one launch.
    #[error(
        "{tiles} tiles in clusters of {cluster} are too many for one launch: at most {most} blocks fit along x"
    )]
    TooMany {
        /// The grid of tiles.
        tiles: Dim3,
        /// The cluster.
        cluster: Dim3,
        /// The most blocks.
        most: u32,
    },
    /// A grid with more axes than the kernel was built for.
    #[error(
        "the kernel was built for grids of {built} axes (in clusters of tiles), and {tiles} has {asked}; build it for such a grid"
    )]
    Rank {
        /// What it was built for.
        built: u32,
        /// What was asked.
        asked: u32,
        /// The grid of tiles.
        tiles: Dim3,
    },
    /// An order that does not fit.
    #[error(transparent)]
    Order(#[from] OrderError),
}

/// Blocks along x that every GPU takes.
const MOST_BLOCKS: u32 = i32::MAX as u32;

impl<A: KernelParams> TiledKernel<A> {
    /// Plans a launch over the grid of tiles it was made for. `resident` is how
    /// many of its clusters the GPU runs at a time.
    ///
    /// # Errors
    /// Why there is no such launch.
    pub fn plan(&self, resident: u32) -> Result<Plan, PlanError> {
        self.plan_for(self.tiles, resident)
    }

    /// Plans a launch over another grid of tiles.
    ///
    /// # Errors
    /// Why there is no such launch.
    pub fn plan_for(&self, tiles: impl Into<Dim3>, resident: u32) -> Result<Plan, PlanError> {
        let tiles = tiles.into();
        let cluster = self.shape.cluster;
        if tiles.count() == 0 {
            return Err(PlanError::NoTiles(tiles));
        }
        let clusters = clusters_of(tiles, cluster);
        let count = clusters.count();
        // Twice the count must fit the ticket counter, and no index may reach
        // the word that means "none".
        if count.saturating_mul(cluster.x.into()) > MOST_BLOCKS.into() || tiles.count() >= 1 << 32 {
            return Err(PlanError::TooMany {
                tiles,
                cluster,
                most: MOST_BLOCKS,
            });
        }
        let asked = rank_of(clusters);
        if asked > self.shape.rank {
            return Err(PlanError::Rank {
                built: self.shape.rank,
                asked,
                tiles,
            });
        }
        let count = count as u32;
        let resident = resident.max(1);
        let workers = match (self.shape.source, self.shape.pause) {
            (TileSource::Static, _) => resident.min(count),
            (TileSource::Ticket, None) => self.shape.grid.clusters(count, resident),
            (_, None) => count,
            (_, Some(_)) => {
                let stays = self.shape.policy.constant() != Some(false);
                pause::grid(count, resident, stays, self.shape.tiles_a_leave)
            }
        };
        if workers.saturating_mul(cluster.x) > MOST_BLOCKS {
            return Err(PlanError::TooMany {
                tiles,
                cluster,
                most: MOST_BLOCKS,
            });
        }
        let table = self.shape.order.table(clusters)?.unwrap_or(vec![0]);
        let info = &self.built.launch;
        let grid = Dim3::new(workers * cluster.x, cluster.y, cluster.z);
        let mut launch = Launch::new(grid, info.block).dynamic_shared(info.dynamic_shared);
        if cluster.count() > 1 {
            launch = launch.cluster(cluster);
        }
        let numbers = Numbers {
            tiles: tiles.to_array(),
            clusters: [clusters.x, clusters.y],
            count,
            resident,
        };
        Ok(Plan {
            launch,
            numbers,
            table,
            control: match (self.shape.policy.loaded(), self.shape.pause) {
                (Some(policy), _) => control_words(policy),
                (None, Some(state)) => vec![0; CONTROL_WORDS + area_words(resident, state)],
                (None, None) => vec![0; CONTROL_WORDS],
            },
            watch: watch_buffer(self.shape.watch, workers, count, cluster),
            workers,
            own_params: A::layout().len(),
        })
    }
}

fn watch_buffer(watch: Watch, workers: u32, count: u32, cluster: Dim3) -> Vec<u64> {
    if watch == Watch::Off {
        return vec![0];
    }
    let (workers, count, blocks) = (workers as usize, count as usize, cluster.count() as usize);
    let first = HEADER_WORDS + workers * CLUSTER_WORDS;
    let records = if watch == Watch::Trace {
        // Every block and every tile once; for each tile and each cluster a
        // request with its answer, two declines, and an overruling.
        (workers + count) * blocks + (workers + count) * 5
    } else {
        0
    };
    let mut words = vec![0; first + records * RECORD_WORDS];
    words[1] = records as u64;
    words[2] = first as u64;
    words
}

impl Plan {
    /// What the scheduler takes, behind the kernel's own arguments.
    pub(crate) fn hidden(&self) -> HiddenWith<Arg> {
        HiddenWith {
            control: Arg::in_out(&self.control),
            watch: Arg::in_out(&self.watch),
            table: Arg::input(&self.table),
            numbers: self.numbers,
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{Submit, TileSource, Tiled};
    use heist_builder::{Arch, Global, kernel_params};
    use heist_launch::Dim3;

    kernel_params! { pub struct Fill { data: Global<u32> } }

    fn kernel(cluster: u32) -> crate::TiledKernel<Fill> {
        Tiled::<Fill>::new("fill", 100)
            .source(TileSource::Static)
            .cluster(cluster)
            .build(Arch::SM_90A, |_, args, tiles| {
                tiles.each(|tile| args.data.at(tile.x).store(1))
            })
            .expect("a kernel")
    }

    #[test]
    fn a_launch_says_its_cluster_where_there_is_one() {
        let plan = kernel(1).plan(12).expect("a launch");
        assert_eq!((plan.launch.cluster, plan.launch.grid.x), (None, 12));
        let plan = kernel(2).plan(12).expect("a launch");
        let two = Dim3::new(2, 1, 1);
        assert_eq!((plan.launch.cluster, plan.launch.grid.x), (Some(two), 24));
    }

    #[test]
    fn a_grid_has_no_more_axes_than_the_kernel_was_built_for() {
        let error = kernel(1).plan_for([10, 10, 1], 4).expect_err("two axes");
        assert!(error.to_string().contains("grids of 1 axes"), "{error}");
        let plan = kernel(1).plan_for([50, 1, 1], 4).expect("a launch");
        assert_eq!(plan.numbers.count, 50);
    }

    #[test]
    fn a_launch_has_as_many_blocks_as_the_hardware_takes() {
        let most = super::MOST_BLOCKS;
        let plan = kernel(1).plan_for([most, 1, 1], 4).expect("a launch");
        assert_eq!(plan.numbers.count, most);
        let error = kernel(1).plan_for([most + 1, 1, 1], 4).expect_err("many");
        assert!(matches!(error, crate::PlanError::TooMany { .. }), "{error}");
        // As many blocks as tiles, and not one more.
        let tiled = Tiled::<Fill>::new("fill", 100).source(TileSource::Direct);
        let full = tiled.build(Arch::SM_90A, |_, args, tiles| {
            tiles.each(|tile| args.data.at(tile.x).store(1))
        });
        let plan = full.expect("a kernel").plan_for([most, 1, 1], 4);
        assert_eq!(plan.expect("a launch").workers, most);
    }

    #[test]
    fn a_readout_knows_what_was_planned() {
        let kernel = kernel(2);
        let names = [kernel.order(), kernel.policy(), kernel.source().to_string()];
        assert_eq!(names, ["linear", "greedy", "static"]);
        for submit in [Submit::Early, Submit::Late] {
            let tiled = Tiled::<Fill>::new("fill", 100).submit(submit);
            let built = tiled.build(Arch::SM_90A, |_, args, tiles| {
                tiles.each(|tile| args.data.at(tile.x).store(1))
            });
            assert_eq!(built.expect("a kernel").submit(), submit);
        }
        let readout = kernel.readout(&kernel.plan(12).expect("a launch"));
        assert_eq!(readout.tiles(), Dim3::new(100, 1, 1));
        assert_eq!(readout.cluster(), Dim3::new(2, 1, 1));
        assert_eq!(readout.resident(), 12);
    }
}
