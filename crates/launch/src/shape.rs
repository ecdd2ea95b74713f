//! The shape of a launch: how many threads, in which arrangement, with how much
//! shared memory; and the limits that every CUDA device puts on it.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use thiserror::Error;

/// Three extents or three coordinates; `x` runs fastest.
///
/// ```
/// use heist_launch::Dim3;
/// let grid: Dim3 = "4,2".parse().unwrap();
/// assert_eq!(grid, Dim3::new(4, 2, 1));
/// assert_eq!(grid.linear(Dim3::new(1, 1, 0)), 5);
/// assert_eq!(grid.coordinates(5), Dim3::new(1, 1, 0));
/// assert_eq!(Dim3::from([4, 2]), Dim3::new(4, 2, 1));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Dim3 {
    /// First, fastest-running axis.
    pub x: u32,
    /// Second axis.
    pub y: u32,
    /// Third axis.
    pub z: u32,
}

impl Dim3 {
    /// `(1, 1, 1)`.
    pub const ONE: Dim3 = Dim3::new(1, 1, 1);

    /// `(x, y, z)`.
    pub const fn new(x: u32, y: u32, z: u32) -> Dim3 {
        Dim3 { x, y, z }
    }

    /// `(x, 1, 1)`.
    pub const fn linear_x(x: u32) -> Dim3 {
        Dim3::new(x, 1, 1)
    }

    /// How many points an extent has.
    pub const fn count(self) -> u64 {
        // Three 32-bit factors can overflow 64 bits; no valid extent does.
        (self.x as u64 * self.y as u64).saturating_mul(self.z as u64)
    }

    /// The three numbers in order.
    pub const fn to_array(self) -> [u32; 3] {
        [self.x, self.y, self.z]
    }

    /// The position of a coordinate inside this extent, x fastest.
    pub const fn linear(self, at: Dim3) -> u64 {
        at.x as u64 + self.x as u64 * (at.y as u64 + self.y as u64 * at.z as u64)
    }

    /// The coordinate at a position inside this extent; the inverse of [`Dim3::linear`].
    /// An extent with a zero has no coordinates and answers the origin.
    pub const fn coordinates(self, linear: u64) -> Dim3 {
        if self.x == 0 || self.y == 0 {
            return Dim3::new(0, 0, 0);
        }
        let (x, rest) = (linear % self.x as u64, linear / self.x as u64);
        Dim3::new(
            x as u32,
            (rest % self.y as u64) as u32,
            (rest / self.y as u64) as u32,
        )
    }
}

impl From<u32> for Dim3 {
    fn from(x: u32) -> Dim3 {
        Dim3::linear_x(x)
    }
}

impl From<[u32; 2]> for Dim3 {
    fn from([x, y]: [u32; 2]) -> Dim3 {
        Dim3::new(x, y, 1)
    }
}

impl From<[u32; 3]> for Dim3 {
    fn from([x, y, z]: [u32; 3]) -> Dim3 {
        Dim3::new(x, y, z)
    }
}

impl From<(u32, u32, u32)> for Dim3 {
    fn from((x, y, z): (u32, u32, u32)) -> Dim3 {
        Dim3::new(x, y, z)
    }
}

impl fmt::Display for Dim3 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{},{},{}", self.x, self.y, self.z)
    }
}

/// A text that is not one, two or three numbers.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("`{0}` is not a shape: write one to three numbers, such as `128`, `16,16` or `2x1x1`")]
pub struct ShapeTextError(pub String);

impl FromStr for Dim3 {
    type Err = ShapeTextError;

    /// Takes `64`, `16,4` and `2,2,2`; `x` may stand for the comma.
    fn from_str(text: &str) -> Result<Dim3, ShapeTextError> {
        let wrong = || ShapeTextError(text.to_owned());
        let mut parts = [1u32; 3];
        for (index, piece) in text.split([',', 'x']).enumerate() {
            let slot = parts.get_mut(index).ok_or_else(wrong)?;
            let piece = piece.trim();
            if !piece.bytes().all(|byte| byte.is_ascii_digit()) {
                return Err(wrong());
            }
            *slot = piece.parse().map_err(|_| wrong())?;
        }
        Ok(Dim3::from(parts))
    }
}

/// How a kernel is launched.
///
/// ```
/// use heist_launch::{Launch, Limits};
/// let launch = Launch::new(4, 128).cluster(2).dynamic_shared(1024);
/// assert_eq!(launch.threads(), 512);
/// launch.validate(&Limits::PORTABLE).unwrap();
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Launch {
    /// How many blocks, in blocks (not in clusters).
    pub grid: Dim3,
    /// How many threads a block has.
    pub block: Dim3,
    /// How many blocks a cluster has. `None` leaves it to the kernel's own
    /// `.reqnctapercluster`, which is one block where there is none.
    pub cluster: Option<Dim3>,
    /// Bytes of dynamic shared memory for each block.
    pub dynamic_shared: u32,
}

impl Launch {
    /// A grid of blocks, no cluster, no dynamic shared memory.
    pub fn new(grid: impl Into<Dim3>, block: impl Into<Dim3>) -> Launch {
        Launch {
            grid: grid.into(),
            block: block.into(),
            cluster: None,
            dynamic_shared: 0,
        }
    }

    /// The same, in clusters of this shape.
    #[must_use]
    pub fn cluster(mut self, cluster: impl Into<Dim3>) -> Launch {
        self.cluster = Some(cluster.into());
        self
    }

    /// The same, with this much dynamic shared memory for each block.
    #[must_use]
    pub fn dynamic_shared(mut self, bytes: u32) -> Launch {
        self.dynamic_shared = bytes;
        self
    }

    /// How many blocks there are.
    pub fn blocks(&self) -> u64 {
        self.grid.count()
    }

    /// How many threads there are in all.
    pub fn threads(&self) -> u64 {
        self.grid.count().saturating_mul(self.block.count())
    }

    /// The cluster's shape; one block when none is asked for.
    pub fn cluster_shape(&self) -> Dim3 {
        self.cluster.unwrap_or(Dim3::ONE)
    }

    /// How many clusters there are in each direction. Meaningful for a launch
    /// that [`Launch::validate`] accepts.
    pub fn clusters(&self) -> Dim3 {
        let cluster = self.cluster_shape();
        Dim3::new(
            self.grid.x / cluster.x.max(1),
            self.grid.y / cluster.y.max(1),
            self.grid.z / cluster.z.max(1),
        )
    }

    /// Checks the launch against a device's limits.
    pub fn validate(&self, limits: &Limits) -> Result<(), LaunchError> {
        extent("grid", self.grid, limits.grid)?;
        extent("block", self.block, limits.block)?;
        let threads = self.block.count();
        if threads > u64::from(limits.threads_per_block) {
            return Err(LaunchError::TooManyThreads {
                block: self.block,
                threads,
                limit: limits.threads_per_block,
            });
        }
        if let Some(cluster) = self.cluster {
            let size = cluster.count();
            if size == 0 {
                return Err(LaunchError::Zero {
                    what: "cluster",
                    extent: cluster,
                });
            }
            if size > u64::from(limits.blocks_per_cluster) {
                return Err(LaunchError::ClusterTooLarge {
                    cluster,
                    size,
                    limit: limits.blocks_per_cluster,
                });
            }
            let divides = self
                .grid
                .to_array()
                .iter()
                .zip(cluster.to_array())
                .all(|(grid, cluster)| grid % cluster == 0);
            if !divides {
                return Err(LaunchError::ClusterDoesNotDivide {
                    grid: self.grid,
                    cluster,
                });
            }
        }
        if self.dynamic_shared > limits.shared_per_block {
            return Err(LaunchError::TooMuchShared {
                bytes: self.dynamic_shared,
                limit: limits.shared_per_block,
            });
        }
        Ok(())
    }
}

fn extent(what: &'static str, extent: Dim3, limit: Dim3) -> Result<(), LaunchError> {
    if extent.count() == 0 {
        return Err(LaunchError::Zero { what, extent });
    }
    let axes = [
        ('x', extent.x, limit.x),
        ('y', extent.y, limit.y),
        ('z', extent.z, limit.z),
    ];
    for (axis, value, limit) in axes {
        if value > limit {
            return Err(LaunchError::AxisTooLarge {
                what,
                axis,
                value,
                limit,
            });
        }
    }
    Ok(())
}

impl fmt::Display for Launch {
    /// As the command line spells it: `--grid 2,1,1 --block 64,1,1`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "--grid {} --block {}", self.grid, self.block)?;
        if let Some(cluster) = self.cluster {
            write!(f, " --cluster {cluster}")?;
        }
        if self.dynamic_shared > 0 {
            write!(f, " --smem {}", self.dynamic_shared)?;
        }
        Ok(())
    }
}

/// What a device allows of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Limits {
    /// Largest grid on each axis.
    pub grid: Dim3,
    /// Largest block on each axis.
    pub block: Dim3,
    /// Threads of one block.
    pub threads_per_block: u32,
    /// Bytes of shared memory one block can have when it opts in.
    pub shared_per_block: u32,
    /// Blocks of one cluster; 1 for a device without clusters.
    pub blocks_per_cluster: u32,
}

impl Limits {
    /// What every device since sm_90 allows: clusters of 8 and 227 KiB.
    pub const PORTABLE: Limits = Limits {
        grid: Dim3::new(0x7fff_ffff, 65_535, 65_535),
        block: Dim3::new(1024, 1024, 64),
        threads_per_block: 1024,
        shared_per_block: 232_448,
        blocks_per_cluster: 8,
    };
}

/// A launch that no device, or not this one, can do.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum LaunchError {
    /// An extent of zero.
    #[error("the {what} is {extent}, and an extent of zero launches nothing")]
    Zero {
        /// Grid, block or cluster.
        what: &'static str,
        /// What was asked for.
        extent: Dim3,
    },
    /// One axis over its limit.
    #[error(
        "the {what} is {value} along {axis}, the limit there is {limit}{}",
        if *what == "grid" && *axis != 'x' { "; fold the grid into x" } else { "" }
    )]
    AxisTooLarge {
        /// Grid or block.
        what: &'static str,
        /// `x`, `y` or `z`.
        axis: char,
        /// What was asked for.
        value: u32,
        /// What is allowed.
        limit: u32,
    },
    /// More threads than a block can have.
    #[error("a block of {block} has {threads} threads, the limit is {limit}")]
    TooManyThreads {
        /// What was asked for.
        block: Dim3,
        /// Its product.
        threads: u64,
        /// What is allowed.
        limit: u32,
    },
    /// More blocks than a cluster can have.
    #[error(
        "a cluster of {cluster} has {size} blocks, the limit is {limit}{}",
        if *limit == 1 { ": this device has no clusters" } else { "" }
    )]
    ClusterTooLarge {
        /// What was asked for.
        cluster: Dim3,
        /// Its product.
        size: u64,
        /// What is allowed.
        limit: u32,
    },
    /// A grid that is no multiple of its cluster.
    #[error("the grid {grid} is not a multiple of the cluster {cluster} on every axis")]
    ClusterDoesNotDivide {
        /// What was asked for.
        grid: Dim3,
        /// What was asked for.
        cluster: Dim3,
    },
    /// More shared memory than a block can have.
    #[error("{bytes} bytes of dynamic shared memory, the limit for a block is {limit}")]
    TooMuchShared {
        /// What was asked for.
        bytes: u32,
        /// What is allowed.
        limit: u32,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_from_text() {
        assert_eq!("7".parse(), Ok(Dim3::new(7, 1, 1)));
        assert_eq!("7, 2".parse(), Ok(Dim3::new(7, 2, 1)));
        assert_eq!("7x2x3".parse(), Ok(Dim3::new(7, 2, 3)));
        for wrong in ["", "1,2,3,4", "a", "1,,2", "-1", "+1", "99999999999"] {
            let error = wrong.parse::<Dim3>().unwrap_err();
            assert_eq!(error.0, wrong);
        }
    }

    #[test]
    fn an_empty_extent_has_the_origin_alone() {
        for empty in [Dim3::new(0, 4, 5), Dim3::new(3, 0, 5)] {
            assert_eq!(empty.coordinates(7), Dim3::new(0, 0, 0));
        }
    }

    #[test]
    fn coordinates_invert_linear() {
        let extent = Dim3::new(3, 4, 5);
        for i in 0..extent.count() {
            assert_eq!(extent.linear(extent.coordinates(i)), i);
        }
    }

    #[test]
    fn limits_are_checked() {
        let ok = Launch::new((4, 2, 1), 128).cluster((2, 2, 1));
        assert_eq!(ok.validate(&Limits::PORTABLE), Ok(()));
        assert_eq!(ok.clusters(), Dim3::new(2, 1, 1));
        let message = |launch: Launch| {
            launch
                .validate(&Limits::PORTABLE)
                .expect_err("must be refused")
                .to_string()
        };
        assert!(message(Launch::new((0, 1, 1), 1)).contains("extent of zero"));
        assert!(message(Launch::new((1, 70_000, 1), 1)).contains("fold the grid into x"));
        assert!(message(Launch::new(1, (64, 32, 1))).contains("2048 threads"));
        assert!(message(Launch::new(3, 32).cluster(2)).contains("not a multiple"));
        assert!(message(Launch::new(16, 32).cluster(16)).contains("16 blocks"));
        assert!(message(Launch::new(16, 32).cluster(0)).contains("zero"));
        assert!(message(Launch::new(1, 1).dynamic_shared(300_000)).contains("232448"));
        let none = Limits {
            blocks_per_cluster: 1,
            ..Limits::PORTABLE
        };
        let error = Launch::new(2, 32).cluster(2).validate(&none).unwrap_err();
        assert!(error.to_string().contains("no clusters"));
    }

    #[test]
    fn a_limit_itself_is_allowed() {
        let limits = Limits::PORTABLE;
        for full in [
            Launch::new((1, limits.grid.y, limits.grid.z), 1),
            Launch::new(1, limits.threads_per_block),
            Launch::new(limits.blocks_per_cluster, 32).cluster(limits.blocks_per_cluster),
            Launch::new(1, 1).dynamic_shared(limits.shared_per_block),
        ] {
            assert_eq!(full.validate(&limits), Ok(()), "{full}");
        }
    }

    #[test]
    fn spelled_as_flags() {
        let launch = Launch::new(2, 64).cluster(2).dynamic_shared(16);
        assert_eq!(
            launch.to_string(),
            "--grid 2,1,1 --block 64,1,1 --cluster 2,1,1 --smem 16"
        );
    }
}
