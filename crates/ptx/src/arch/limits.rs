//! Resource limits by compute capability, and occupancy: how many blocks of a kernel fit on an SM.
//!
//! Sources: CUDA Programming Guide, "Compute Capabilities" (technical
//! specifications), the occupancy rules that come with the CUDA toolkit, and
//! libcu++'s architecture traits for 8.8 and 10.7, which the guide's table
//! leaves out. ptxas confirms what it can see: the static limit on every
//! target, the opt-in limit on the `a` targets, constants and parameters.

/// What a block and an SM have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of shared memory that a block gets without asking.
    pub shared_static: u32,
    /// Bytes of shared memory that a block can opt in to at launch.
    pub shared_opt_in: u32,
    /// Bytes of shared memory that an SM has for all its blocks.
    pub shared_per_sm: u32,
    /// Bytes of shared memory that the system takes for each block.
    pub shared_reserved: u32,
    /// Where the first variable of a block lies in the shared window. Before compute
    /// capability 9.0 what the system takes lies elsewhere.
    pub shared_start: u32,
    /// Shared memory is given out in multiples of this.
    pub shared_unit: u32,
    /// Registers of an SM.
    pub registers_per_sm: u32,
    /// Registers that one block may have.
    pub registers_per_block: u32,
    /// Registers that one thread may have.
    pub registers_per_thread: u32,
    /// Registers are given to a warp in multiples of this.
    pub register_unit: u32,
    /// Quarters of an SM, each with its share of the registers.
    pub partitions: u32,
    /// Threads of a block.
    pub threads_per_block: u32,
    /// Threads of a block, in each dimension.
    pub block: [u32; 3],
    /// Blocks of a grid, in each dimension.
    pub grid: [u32; 3],
    /// Threads of an SM.
    pub threads_per_sm: u32,
    /// Warps of an SM.
    pub warps_per_sm: u32,
    /// Blocks of an SM.
    pub blocks_per_sm: u32,
    /// Named barriers of a block.
    pub barriers_per_block: u32,
    /// Blocks of a cluster that every device of this kind takes; 0 without clusters.
    pub cluster_portable: u32,
    /// Blocks of a cluster when a kernel asks for a size that is not portable.
    pub cluster_max: u32,
    /// Bytes of `.const` variables in a file.
    pub constant_bytes: u32,
    /// Bytes of a kernel's parameters.
    pub param_bytes: u32,
    /// The same for files before PTX 8.1.
    pub param_bytes_before_8_1: u32,
    /// Bytes of local memory of a thread.
    pub local_bytes: u32,
}

const KIB: u32 = 1024;

/// The limits of `sm_<number>`.
pub(super) const fn of(number: u16) -> Limits {
    let (shared_kib, warps, blocks) = match number {
        75 => (64, 32, 16),
        80 => (164, 64, 32),
        87 => (164, 48, 16),
        89 => (100, 48, 24),
        90 | 100 | 103 => (228, 64, 32),
        107 => (228, 32, 16),
        110 => (228, 48, 24),
        120 | 121 => (100, 48, 24),
        // 86 and 88
        _ => (100, 48, 16),
    };
    let reserved = if number < 80 { 0 } else { KIB };
    let (portable, largest) = match number {
        // Hopper and Blackwell tuning guides: 16 blocks when the kernel allows
        // sizes that are not portable. Nothing above the portable size is
        // documented for the others.
        90 | 100 | 103 => (8, 16),
        107.. => (8, 8),
        _ => (0, 0),
    };
    Limits {
        shared_static: 48 * KIB,
        shared_opt_in: shared_kib * KIB - reserved,
        shared_per_sm: shared_kib * KIB,
        shared_reserved: reserved,
        shared_start: if number < 90 { 0 } else { KIB },
        shared_unit: if number < 80 { 256 } else { 128 },
        registers_per_sm: 64 * KIB,
        registers_per_block: 64 * KIB,
        registers_per_thread: 255,
        register_unit: 256,
        partitions: 4,
        threads_per_block: 1024,
        block: [1024, 1024, 64],
        grid: [i32::MAX as u32, 65535, 65535],
        threads_per_sm: warps * 32,
        warps_per_sm: warps,
        blocks_per_sm: blocks,
        barriers_per_block: 16,
        cluster_portable: portable,
        cluster_max: largest,
        constant_bytes: 64 * KIB,
        param_bytes: 32764,
        param_bytes_before_8_1: 4352,
        local_bytes: 512 * KIB,
    }
}

/// What one block of a kernel takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Footprint {
    /// Threads of the block.
    pub threads: u32,
    /// Registers of each thread.
    pub registers: u32,
    /// Bytes of shared memory, static and dynamic together.
    pub shared: u32,
}

/// The resource that limits the blocks on an SM.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Limiter {
    /// The number of blocks itself.
    Blocks,
    /// Warps.
    Warps,
    /// Registers.
    Registers,
    /// Shared memory.
    Shared,
}

/// How many blocks fit on an SM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Residency {
    /// Blocks at a time; 0 when not even one fits.
    pub blocks: u32,
    /// The resource that limits it.
    pub limiter: Limiter,
}

impl Limits {
    /// The most registers of a thread with which so many blocks are on one SM at a time: what ptxas makes of
    /// `.maxntid` and `.minnctapersm`.
    ///
    /// ```
    /// let limits = heist_ptx::arch::Arch::SM_90.limits();
    /// assert_eq!((limits.registers_for(256, 4), limits.registers_for(160, 5)), (64, 72));
    /// ```
    pub fn registers_for(&self, threads: u32, blocks: u32) -> u32 {
        let warps = u64::from(threads.div_ceil(32).max(1)) * u64::from(blocks.max(1));
        let partitions = u64::from(self.partitions);
        let unit = u64::from(self.register_unit);
        let per_warp = u64::from(self.registers_per_sm) / partitions / warps.div_ceil(partitions);
        let each = (per_warp / unit * unit / 32) as u32;
        each.min(self.registers_per_thread)
    }

    /// How many blocks of a kernel are on one SM at a time, and what limits it.
    ///
    /// ```
    /// use heist_ptx::arch::{Arch, Footprint, Limiter};
    /// let block = Footprint { threads: 256, registers: 64, shared: 40_000 };
    /// let residency = Arch::SM_90.limits().residency(block);
    /// assert_eq!((residency.blocks, residency.limiter), (4, Limiter::Registers));
    /// ```
    pub fn residency(&self, block: Footprint) -> Residency {
        let warps = u64::from(block.threads.div_ceil(32).max(1));
        let by_registers = if block.registers == 0 {
            u64::from(self.blocks_per_sm)
        } else {
            let unit = u64::from(self.register_unit);
            let per_warp = (u64::from(block.registers) * 32).div_ceil(unit) * unit;
            let partitions = u64::from(self.partitions);
            // A launch is checked as if every quarter of the SM got as many warps.
            let checked = per_warp.saturating_mul(warps.next_multiple_of(partitions));
            if checked > u64::from(self.registers_per_block)
                || block.registers > self.registers_per_thread
            {
                0
            } else {
                u64::from(self.registers_per_sm) / partitions / per_warp * partitions / warps
            }
        };
        let by_shared = if block.shared > self.shared_opt_in {
            0
        } else {
            let taken = (block.shared + self.shared_reserved).next_multiple_of(self.shared_unit);
            match taken {
                0 => u64::from(self.blocks_per_sm),
                _ => u64::from(self.shared_per_sm / taken),
            }
        };
        let by_warps = if block.threads > self.threads_per_block {
            0
        } else {
            u64::from(self.warps_per_sm) / warps
        };
        let (blocks, limiter) = [
            (u64::from(self.blocks_per_sm), Limiter::Blocks),
            (by_warps, Limiter::Warps),
            (by_registers, Limiter::Registers),
            (by_shared, Limiter::Shared),
        ]
        .into_iter()
        .min_by_key(|(blocks, _)| *blocks)
        .unwrap_or((0, Limiter::Blocks));
        Residency {
            blocks: blocks as u32,
            limiter,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::Arch;

    fn residency(arch: Arch, threads: u32, registers: u32, shared: u32) -> (u32, Limiter) {
        let found = arch.limits().residency(Footprint {
            threads,
            registers,
            shared,
        });
        (found.blocks, found.limiter)
    }

    #[test]
    fn each_resource_can_be_the_one_that_limits() {
        assert_eq!(residency(Arch::SM_80, 32, 16, 0), (32, Limiter::Blocks));
        assert_eq!(residency(Arch::SM_80, 1024, 32, 0), (2, Limiter::Warps));
        assert_eq!(residency(Arch::SM_89, 256, 255, 0), (1, Limiter::Registers));
        assert_eq!(
            residency(Arch::SM_89, 128, 32, 48 * KIB),
            (2, Limiter::Shared)
        );
        assert_eq!(
            residency(Arch::SM_90A, 384, 168, 227 * KIB),
            (1, Limiter::Registers)
        );
    }

    #[test]
    fn what_can_not_be_launched_fits_nowhere() {
        assert_eq!(residency(Arch::SM_90, 1056, 16, 0).0, 0);
        assert_eq!(residency(Arch::SM_90, 1024, 65, 0).0, 0);
        assert_eq!(residency(Arch::SM_90, 32, 256, 0).0, 0);
        assert_eq!(residency(Arch::SM_90, 32, 16, 227 * KIB + 1).0, 0);
        assert_eq!(residency(Arch::SM_90, u32::MAX, u32::MAX, u32::MAX).0, 0);
    }

    #[test]
    fn generations_differ_in_shared_memory() {
        for (arch, reserved, start, unit) in [
            (Arch::SM_75, 0, 0, 256),
            (Arch::SM_80, KIB, 0, 128),
            (Arch::SM_89, KIB, 0, 128),
            (Arch::SM_90, KIB, KIB, 128),
        ] {
            let limits = arch.limits();
            let found = (
                limits.shared_reserved,
                limits.shared_start,
                limits.shared_unit,
            );
            assert_eq!(found, (reserved, start, unit), "{arch:?}");
        }
    }

    #[test]
    fn the_system_takes_its_share_of_shared_memory() {
        // Two blocks of 114 KiB would fill an SM; each has 1 KiB more.
        assert_eq!(residency(Arch::SM_90, 128, 32, 113 * KIB).0, 2);
        assert_eq!(residency(Arch::SM_90, 128, 32, 114 * KIB).0, 1);
        assert_eq!(residency(Arch::SM_75, 128, 32, 32 * KIB).0, 2);
    }
}
