//! The GPU products that the simulator can model.
//!
//! Sources: the product data sheets and architecture white papers for SM
//! counts, clocks and bandwidth; for L2, what the driver reports where a data
//! sheet is silent. Clocks are the highest boost clocks: what a short kernel
//! sees, not what a long power-bound one keeps.

use super::{Arch, Footprint};

/// One product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gpu {
    /// What devices call it: `h200`, as in `sim:h200`.
    pub id: &'static str,
    /// What people call it.
    pub name: &'static str,
    /// Its architecture, with all of its own instructions.
    pub arch: Arch,
    /// How many SMs.
    pub sms: u32,
    /// Boost clock of the SMs, in MHz.
    pub clock_mhz: u32,
    /// Memory bandwidth, in GB (10^9 bytes) a second.
    pub bandwidth_gb_s: u32,
    /// Memory, in bytes as sold.
    pub memory_bytes: u64,
    /// L2 cache, in bytes.
    pub l2_bytes: u64,
}

const GB: u64 = 1_000_000_000;
const MIB: u64 = 1 << 20;

impl Gpu {
    /// NVIDIA L4 (Ada, AD104).
    pub const L4: Gpu = Gpu {
        id: "l4",
        name: "NVIDIA L4",
        arch: Arch::SM_89,
        sms: 58,
        clock_mhz: 2040,
        bandwidth_gb_s: 300,
        memory_bytes: 24 * GB,
        l2_bytes: 48 * MIB,
    };
    /// NVIDIA A100 with 80 GB, SXM4 (Ampere, GA100).
    pub const A100: Gpu = Gpu {
        id: "a100",
        name: "NVIDIA A100-SXM4-80GB",
        arch: Arch::SM_80,
        sms: 108,
        clock_mhz: 1410,
        bandwidth_gb_s: 2039,
        memory_bytes: 80 * GB,
        l2_bytes: 40 * MIB,
    };
    /// NVIDIA H100, SXM5 (Hopper, GH100).
    pub const H100: Gpu = Gpu {
        id: "h100",
        name: "NVIDIA H100 SXM5 80GB",
        arch: Arch::SM_90A,
        sms: 132,
        clock_mhz: 1980,
        bandwidth_gb_s: 3350,
        memory_bytes: 80 * GB,
        l2_bytes: 50 * MIB,
    };
    /// NVIDIA H200, SXM (Hopper, GH100).
    pub const H200: Gpu = Gpu {
        id: "h200",
        name: "NVIDIA H200 SXM 141GB",
        arch: Arch::SM_90A,
        sms: 132,
        clock_mhz: 1980,
        bandwidth_gb_s: 4800,
        memory_bytes: 141 * GB,
        l2_bytes: 60 * MIB,
    };
    /// NVIDIA B200 (Blackwell, GB100); an eighth of an HGX board's bandwidth.
    pub const B200: Gpu = Gpu {
        id: "b200",
        name: "NVIDIA B200 180GB",
        arch: Arch::SM_100A,
        sms: 148,
        clock_mhz: 1965,
        bandwidth_gb_s: 7700,
        memory_bytes: 180 * GB,
        l2_bytes: 126 * MIB,
    };
    /// NVIDIA GeForce RTX 5090 (Blackwell, GB202).
    pub const RTX5090: Gpu = Gpu {
        id: "rtx5090",
        name: "NVIDIA GeForce RTX 5090",
        arch: Arch::SM_120A,
        sms: 170,
        clock_mhz: 2407,
        bandwidth_gb_s: 1792,
        memory_bytes: 32 * GB,
        l2_bytes: 96 * MIB,
    };

    /// All of them, oldest first.
    pub const ALL: &[Gpu] = &[
        Gpu::A100,
        Gpu::L4,
        Gpu::H100,
        Gpu::H200,
        Gpu::B200,
        Gpu::RTX5090,
    ];

    /// The one called `id`, in any case.
    ///
    /// ```
    /// use heist_ptx::arch::Gpu;
    /// assert_eq!(Gpu::named("h200").unwrap().sms, 132);
    /// assert!(Gpu::named("gtx480").is_none());
    /// ```
    pub fn named(id: &str) -> Option<Gpu> {
        Gpu::ALL
            .iter()
            .copied()
            .find(|gpu| gpu.id.eq_ignore_ascii_case(id))
    }

    /// How many blocks of a kernel run on the whole GPU at a time.
    pub fn resident_blocks(&self, block: Footprint) -> u32 {
        self.sms * self.arch.limits().residency(block).blocks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a model uses for a GPU without one at hand.
    #[test]
    fn sizes_are_those_of_the_data_sheets() {
        let sizes = Gpu::ALL
            .iter()
            .map(|gpu| (gpu.id, gpu.memory_bytes / 1_000_000_000, gpu.l2_bytes >> 20));
        assert_eq!(
            sizes.collect::<Vec<_>>(),
            [
                ("a100", 80, 40),
                ("l4", 24, 48),
                ("h100", 80, 50),
                ("h200", 141, 60),
                ("b200", 180, 126),
                ("rtx5090", 32, 96),
            ]
        );
    }

    #[test]
    fn every_product_is_found_by_its_id() {
        for gpu in Gpu::ALL {
            assert_eq!(Gpu::named(gpu.id), Some(*gpu));
            assert_eq!(Gpu::named(&gpu.id.to_uppercase()), Some(*gpu));
        }
    }

    #[test]
    fn a_whole_gpu_holds_its_sms_full() {
        let block = Footprint {
            threads: 256,
            registers: 32,
            shared: 0,
        };
        assert_eq!(Gpu::H200.resident_blocks(block), 132 * 8);
        assert_eq!(Gpu::L4.resident_blocks(block), 58 * 6);
    }
}
