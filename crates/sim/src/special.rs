//! Special registers with a constant value for each thread; clocks are not among them.

use crate::state::memory::window::SharedPlace;
use heist_launch::Dim3;
use heist_ptx::Part;

/// An axis of a grid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Axis {
    X,
    Y,
    Z,
}

impl Axis {
    pub(crate) fn of(part: Part) -> Option<Axis> {
        match part {
            Part::X => Some(Axis::X),
            Part::Y => Some(Axis::Y),
            Part::Z => Some(Axis::Z),
            _ => None,
        }
    }

    pub(crate) fn pick(self, dims: Dim3) -> u32 {
        match self {
            Axis::X => dims.x,
            Axis::Y => dims.y,
            Axis::Z => dims.z,
        }
    }
}

/// A special register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Special {
    Tid(Axis),
    Ntid(Axis),
    Ctaid(Axis),
    Nctaid(Axis),
    Clusterid(Axis),
    Nclusterid(Axis),
    ClusterCtaid(Axis),
    ClusterNctaid(Axis),
    ClusterCtarank,
    ClusterNctarank,
    Laneid,
    Warpid,
    Nwarpid,
    Smid,
    Nsmid,
    Gridid,
    LanemaskEq,
    LanemaskLe,
    LanemaskLt,
    LanemaskGe,
    LanemaskGt,
    DynamicSmem,
    TotalSmem,
    /// A block's own address of a place in its shared memory, or a generic one of it,
    /// which is wide: where the place lies in the block's stretch of the window.
    Shared {
        within: u64,
        wide: bool,
    },
    /// The same, counted from the start of the dynamic shared memory, until that is known.
    Dynamic {
        addend: u64,
        wide: bool,
    },
    /// One that always reads the same: `%envreg3`, `%reserved_smem_offset_cap`.
    Fixed(u32),
    /// A place in the shared memory that is reserved for the system, counted from its start.
    Reserved(u32),
    /// Half of the address of a cooperative grid's workspace, the upper one or the
    /// lower: `%envreg1` and `%envreg2`.
    Workspace {
        upper: bool,
    },
}

impl Special {
    /// The register of this name, with the part behind its dot.
    pub(crate) fn named(name: &str, part: Option<Part>) -> Option<Special> {
        use Special::*;
        let axis = part.and_then(Axis::of);
        Some(match (name, part) {
            ("%tid", _) => Tid(axis?),
            ("%ntid", _) => Ntid(axis?),
            ("%ctaid", _) => Ctaid(axis?),
            ("%nctaid", _) => Nctaid(axis?),
            ("%clusterid", _) => Clusterid(axis?),
            ("%nclusterid", _) => Nclusterid(axis?),
            ("%cluster_ctaid", _) => ClusterCtaid(axis?),
            ("%cluster_nctaid", _) => ClusterNctaid(axis?),
            ("%cluster_ctarank", None) => ClusterCtarank,
            ("%cluster_nctarank", None) => ClusterNctarank,
            ("%laneid", None) => Laneid,
            ("%warpid", None) => Warpid,
            ("%nwarpid", None) => Nwarpid,
            ("%smid", None) => Smid,
            ("%nsmid", None) => Nsmid,
            ("%gridid", None) => Gridid,
            ("%lanemask_eq", None) => LanemaskEq,
            ("%lanemask_le", None) => LanemaskLe,
            ("%lanemask_lt", None) => LanemaskLt,
            ("%lanemask_ge", None) => LanemaskGe,
            ("%lanemask_gt", None) => LanemaskGt,
            ("%dynamic_smem_size", None) => DynamicSmem,
            ("%total_smem_size" | "%aggr_smem_size", None) => TotalSmem,
            // As on an H200. Cooperative groups keep the barriers of tiles of several warps there.
            (
                "%reserved_smem_offset_begin"
                | "%reserved_smem_offset_0"
                | "%reserved_smem_offset_1",
                None,
            ) => Reserved(0),
            ("%reserved_smem_offset_end", None) => Reserved(288),
            ("%reserved_smem_offset_cap", None) => Fixed(1024),
            ("%envreg1", None) => Workspace { upper: true },
            ("%envreg2", None) => Workspace { upper: false },
            _ if part.is_none() && name.starts_with("%envreg") => Fixed(0),
            _ => return None,
        })
    }

    /// Whether it is 64 bits wide.
    pub(crate) fn is_wide(self) -> bool {
        match self {
            Special::Gridid => true,
            Special::Shared { wide, .. } | Special::Dynamic { wide, .. } => wide,
            _ => false,
        }
    }
}

impl Special {
    /// Rows of registers that it takes.
    pub(crate) fn rows(self) -> u32 {
        1 + u32::from(self.is_wide())
    }

    /// Whether its values are others in each block of a grid; they are the same in all
    /// lanes then, and 32 bits wide.
    pub(crate) fn is_of_block(self) -> bool {
        use Special::*;
        match self {
            Ctaid(_) | Clusterid(_) | ClusterCtaid(_) | ClusterCtarank | Smid => true,
            Tid(_)
            | Ntid(_)
            | Nctaid(_)
            | Nclusterid(_)
            | ClusterNctaid(_)
            | ClusterNctarank
            | Laneid
            | Warpid
            | Nwarpid
            | Nsmid
            | Gridid
            | LanemaskEq
            | LanemaskLe
            | LanemaskLt
            | LanemaskGe
            | LanemaskGt
            | DynamicSmem
            | TotalSmem
            // Warps that are used again keep their rank.
            | Shared { .. }
            | Dynamic { .. }
            | Fixed(_)
            | Reserved(_)
            | Workspace { .. } => false,
        }
    }

    /// Whether the lanes of a warp have different values.
    fn varies(self) -> bool {
        use Special::*;
        matches!(
            self,
            Tid(_) | Laneid | LanemaskEq | LanemaskLe | LanemaskLt | LanemaskGe | LanemaskGt
        )
    }
}

/// The inputs of a warp's special registers.
pub(crate) struct Standing {
    pub(crate) block: Dim3,
    pub(crate) grid: Dim3,
    pub(crate) cluster: Dim3,
    pub(crate) ctaid: Dim3,
    pub(crate) warp: u32,
    pub(crate) sm: u32,
    pub(crate) sms: u32,
    pub(crate) dynamic_shared: u32,
    pub(crate) total_shared: u32,
    /// Where the reserved shared memory lies in a block's stretch of the window.
    pub(crate) reserved: u32,
    pub(crate) workspace: u64,
}

impl Standing {
    /// The value of a register in every lane.
    pub(crate) fn values(&self, special: Special) -> [u32; 32] {
        if !special.varies() {
            return [self.value(special, 0); 32];
        }
        // Counting is cheaper than dividing.
        if let Special::Tid(axis) = special {
            let block = self.block;
            let mut at = block.coordinates(u64::from(self.warp) * 32);
            if block.x.is_multiple_of(32) {
                let first = axis.pick(at);
                let step = u32::from(axis == Axis::X);
                return std::array::from_fn(|lane| first + step * lane as u32);
            }
            return std::array::from_fn(|_| {
                let value = axis.pick(at);
                at.x += 1;
                if at.x == block.x {
                    at = Dim3::new(0, at.y + 1, at.z);
                    if at.y == block.y {
                        at = Dim3::new(0, 0, at.z + 1);
                    }
                }
                value
            });
        }
        std::array::from_fn(|lane| self.value(special, lane as u32))
    }

    /// Where the block is in its cluster.
    fn within(&self) -> Dim3 {
        Dim3 {
            x: self.ctaid.x % self.cluster.x,
            y: self.ctaid.y % self.cluster.y,
            z: self.ctaid.z % self.cluster.z,
        }
    }

    fn rank(&self) -> u32 {
        let within = self.within();
        within.x + self.cluster.x * (within.y + self.cluster.y * within.z)
    }

    /// The value of a wide register, which is the same in all lanes.
    pub(crate) fn wide_value(&self, special: Special) -> u64 {
        match special {
            Special::Shared { within, .. } => {
                let start = SharedPlace::of(0).in_block(self.rank()).address();
                within.wrapping_add(u64::from(start))
            }
            other => u64::from(self.value(other, 0)),
        }
    }

    /// The value of a register in one lane.
    pub(crate) fn value(&self, special: Special, lane: u32) -> u32 {
        let thread = self.warp * 32 + lane;
        match special {
            Special::Tid(axis) => axis.pick(Dim3 {
                x: thread % self.block.x,
                y: thread / self.block.x % self.block.y,
                z: thread / (self.block.x * self.block.y),
            }),
            Special::Ntid(axis) => axis.pick(self.block),
            Special::Ctaid(axis) => axis.pick(self.ctaid),
            Special::Nctaid(axis) => axis.pick(self.grid),
            Special::Clusterid(axis) => axis.pick(self.ctaid) / axis.pick(self.cluster),
            Special::Nclusterid(axis) => axis.pick(self.grid) / axis.pick(self.cluster),
            Special::ClusterCtaid(axis) => axis.pick(self.within()),
            Special::ClusterNctaid(axis) => axis.pick(self.cluster),
            Special::ClusterCtarank => self.rank(),
            Special::ClusterNctarank => self.cluster.x * self.cluster.y * self.cluster.z,
            Special::Laneid => lane,
            Special::Warpid => self.warp,
            Special::Nwarpid => (self.block.x * self.block.y * self.block.z).div_ceil(32),
            Special::Smid => self.sm,
            Special::Nsmid => self.sms,
            Special::Gridid => 1,
            Special::LanemaskEq => 1 << lane,
            Special::LanemaskLe => u32::MAX >> (31 - lane),
            Special::LanemaskLt => (1 << lane) - 1,
            Special::LanemaskGe => u32::MAX << lane,
            Special::LanemaskGt => (u32::MAX << lane) ^ (1 << lane),
            Special::DynamicSmem => self.dynamic_shared,
            Special::TotalSmem => self.total_shared,
            Special::Shared { .. } => self.wide_value(special) as u32,
            // Replaced when everything is decoded.
            Special::Dynamic { addend, .. } => addend as u32,
            Special::Fixed(value) => value,
            // Without the rank of the block in its cluster, on an H200 too.
            Special::Reserved(at) => self.reserved + at,
            Special::Workspace { upper: true } => (self.workspace >> 32) as u32,
            Special::Workspace { upper: false } => self.workspace as u32,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_knows_its_place() {
        let dim = |x, y, z| Dim3 { x, y, z };
        let standing = Standing {
            block: dim(8, 8, 2),
            grid: dim(4, 6, 1),
            cluster: dim(2, 3, 1),
            ctaid: dim(3, 4, 0),
            warp: 2,
            sm: 5,
            sms: 132,
            dynamic_shared: 64,
            total_shared: 128,
            reserved: 0,
            workspace: 7 << 32 | 9,
        };
        let of = |name: &str, part, lane| {
            standing.value(Special::named(name, part).expect("a register"), lane)
        };
        assert_eq!(of("%tid", Some(Part::Z), 9), 1);
        assert_eq!(of("%tid", Some(Part::X), 9), 1);
        assert_eq!(of("%tid", Some(Part::Y), 9), 1);
        assert_eq!(of("%cluster_ctarank", None, 0), 3);
        assert_eq!(of("%clusterid", Some(Part::Y), 0), 1);
        assert_eq!(of("%lanemask_lt", None, 3), 0b111);
        assert_eq!(of("%lanemask_gt", None, 31), 0);
        assert_eq!(of("%lanemask_le", None, 31), u32::MAX);
        assert_eq!(of("%envreg1", None, 0), 7);
        assert_eq!(of("%envreg2", None, 0), 9);
        assert_eq!(Special::named("%tid", None), None);
        for axis in [Axis::X, Axis::Y, Axis::Z] {
            let values = standing.values(Special::Tid(axis));
            for (lane, &value) in values.iter().enumerate() {
                assert_eq!(value, standing.value(Special::Tid(axis), lane as u32));
            }
        }
    }
}
