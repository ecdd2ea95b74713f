//! The special registers, by name.
//!
//! PTX ISA, "Special Registers"; what ptxas knows beyond the manual is here too.

use crate::arch::Feature;
use crate::types::ScalarType;

/// One special register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Special {
    /// Its type; of each part when it has parts.
    pub ty: ScalarType,
    /// Whether it is a vector, `%tid.x`.
    pub parts: bool,
    /// What a target must have for it.
    pub needs: Option<Feature>,
}

const fn scalar(ty: ScalarType) -> Option<Special> {
    Some(Special {
        ty,
        parts: false,
        needs: None,
    })
}

const fn vector(needs: Option<Feature>) -> Option<Special> {
    Some(Special {
        ty: ScalarType::U32,
        parts: true,
        needs,
    })
}

const fn needing(ty: ScalarType, feature: Feature) -> Option<Special> {
    Some(Special {
        ty,
        parts: false,
        needs: Some(feature),
    })
}

/// The special register called `name` (with its `%`).
///
/// ```
/// use heist_ptx::isa::special_register;
/// assert!(special_register("%tid").unwrap().parts);
/// assert!(special_register("%r1").is_none());
/// ```
pub fn special_register(name: &str) -> Option<Special> {
    use ScalarType::{Pred, U32, U64};
    let name = name.strip_prefix('%')?;
    match name {
        "tid" | "ntid" | "ctaid" | "nctaid" => vector(None),
        "clusterid" | "nclusterid" | "cluster_ctaid" | "cluster_nctaid" => {
            vector(Some(Feature::Clusters))
        }
        "cluster_ctarank" | "cluster_nctarank" => needing(U32, Feature::Clusters),
        "is_explicit_cluster" => needing(Pred, Feature::Clusters),
        "laneid" | "warpid" | "nwarpid" | "smid" | "nsmid" | "sm_ctaid" => scalar(U32),
        "lanemask_eq" | "lanemask_le" | "lanemask_lt" | "lanemask_ge" | "lanemask_gt" => {
            scalar(U32)
        }
        "clock" | "clock_hi" | "globaltimer_lo" | "globaltimer_hi" => scalar(U32),
        "clock64" | "globaltimer" | "gridid" | "current_graph_exec" => scalar(U64),
        "total_smem_size" | "dynamic_smem_size" | "aggr_smem_size" => scalar(U32),
        "perctamemoryoffset" | "perctamemorysize" | "tcgen05_tmem_cols" => scalar(U32),
        "reserved_smem_offset_begin"
        | "reserved_smem_offset_end"
        | "reserved_smem_offset_cap"
        | "reserved_smem_offset_0"
        | "reserved_smem_offset_1" => scalar(U32),
        "atexit_fragment_addr" | "devtool_at_exit_pc" => scalar(U64),
        _ => {
            let numbered = |prefix: &str, count: u32| {
                name.strip_prefix(prefix)
                    .and_then(|number| number.parse::<u32>().ok())
                    .is_some_and(|number| number < count)
            };
            if numbered("envreg", 32) || numbered("pm", 8) {
                scalar(U32)
            } else if name
                .strip_suffix("_64")
                .and_then(|name| name.strip_prefix("pm"))
                .and_then(|number| number.parse::<u32>().ok())
                .is_some_and(|number| number < 8)
            {
                scalar(U64)
            } else {
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbered_ones_end() {
        assert!(special_register("%envreg31").is_some());
        assert!(special_register("%envreg32").is_none());
        assert!(special_register("%pm7").is_some() && special_register("%pm8").is_none());
        assert_eq!(
            special_register("%pm3_64").map(|special| special.ty),
            Some(ScalarType::U64)
        );
        assert!(special_register("%").is_none() && special_register("tid").is_none());
    }
}
