//! What GPUs there are, and what the driver can do.

use crate::capability::{Capability, CudaVersion};
use crate::error::GpuError;
use crate::raw::sys::code;
use crate::raw::{self, sys::of_device};
use heist_launch::{Dim3, Limits};

/// The oldest driver, by its CUDA version, that has every call used here.
const OLDEST_DRIVER: CudaVersion = CudaVersion {
    major: 12,
    minor: 8,
};

/// One GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Its number, from 0.
    pub ordinal: u32,
    /// Its name, such as `NVIDIA H200`.
    pub name: String,
    /// A name of this very device, kept across restarts.
    pub uuid: [u8; 16],
    /// What generation it is.
    pub capability: Capability,
    /// How many SMs it has.
    pub sms: u32,
    /// Bytes of memory.
    pub memory: u64,
    /// Bytes of L2 cache.
    pub l2: u64,
    /// The highest SM clock, in kHz.
    pub clock_khz: u32,
    /// Threads that one SM holds.
    pub threads_per_sm: u32,
    /// Blocks that one SM holds.
    pub blocks_per_sm: u32,
    /// Registers of one SM.
    pub registers_per_sm: u32,
    /// Bytes of shared memory of one SM.
    pub shared_per_sm: u32,
    /// Whether blocks can be launched in clusters.
    pub clusters: bool,
    /// Whether tensor maps and bulk tensor copies exist.
    pub tensor_maps: bool,
    /// What a launch may ask for.
    pub limits: Limits,
    /// The driver's CUDA version.
    pub driver: CudaVersion,
}

impl DeviceInfo {
    /// Whether the hardware's own cluster launch control exists.
    pub fn cluster_launch_control(&self) -> bool {
        self.capability.major >= 10
    }
}

/// Loads and starts the driver; its CUDA version.
///
/// Without a driver, or with one that is too old, this is an error that says
/// what to do, never a panic.
pub fn driver() -> Result<CudaVersion, GpuError> {
    if !raw::present() {
        return Err(GpuError::NoDriver);
    }
    raw::init().map_err(|status| match status.code {
        code::NO_DEVICE => GpuError::NoDevice,
        code::STUB_LIBRARY => GpuError::NoDriver,
        _ => GpuError::Start { status },
    })?;
    let version = CudaVersion::from_number(raw::driver_version().map_err(GpuError::call)?);
    if version < OLDEST_DRIVER {
        return Err(GpuError::OldDriver {
            version,
            oldest: OLDEST_DRIVER,
        });
    }
    Ok(version)
}

/// Every GPU that the driver knows; an error when there is none.
pub fn devices() -> Result<Vec<DeviceInfo>, GpuError> {
    let driver = driver()?;
    let count = raw::device_count().map_err(GpuError::call)?;
    if count == 0 {
        return Err(GpuError::NoDevice);
    }
    (0..count).map(|ordinal| info(ordinal, driver)).collect()
}

pub(crate) fn info(ordinal: u32, driver: CudaVersion) -> Result<DeviceInfo, GpuError> {
    let device = raw::device(ordinal).map_err(GpuError::call)?;
    let get = |attribute| raw::device_attribute(device, attribute).map_err(GpuError::call);
    let capability = Capability {
        major: get(of_device::COMPUTE_CAPABILITY_MAJOR)?,
        minor: get(of_device::COMPUTE_CAPABILITY_MINOR)?,
    };
    let clusters = get(of_device::CLUSTER_LAUNCH)? != 0;
    Ok(DeviceInfo {
        ordinal,
        name: raw::device_name(device).map_err(GpuError::call)?,
        uuid: raw::device_uuid(device).map_err(GpuError::call)?,
        capability,
        sms: get(of_device::MULTIPROCESSOR_COUNT)?,
        memory: raw::device_memory(device).map_err(GpuError::call)?,
        l2: u64::from(get(of_device::L2_CACHE_SIZE)?),
        clock_khz: get(of_device::CLOCK_RATE)?,
        threads_per_sm: get(of_device::MAX_THREADS_PER_MULTIPROCESSOR)?,
        blocks_per_sm: get(of_device::MAX_BLOCKS_PER_MULTIPROCESSOR)?,
        registers_per_sm: get(of_device::MAX_REGISTERS_PER_MULTIPROCESSOR)?,
        shared_per_sm: get(of_device::MAX_SHARED_MEMORY_PER_MULTIPROCESSOR)?,
        clusters,
        tensor_maps: get(of_device::TENSOR_MAP_ACCESS_SUPPORTED)? != 0,
        limits: Limits {
            grid: Dim3::new(
                get(of_device::MAX_GRID_DIM_X)?,
                get(of_device::MAX_GRID_DIM_Y)?,
                get(of_device::MAX_GRID_DIM_Z)?,
            ),
            block: Dim3::new(
                get(of_device::MAX_BLOCK_DIM_X)?,
                get(of_device::MAX_BLOCK_DIM_Y)?,
                get(of_device::MAX_BLOCK_DIM_Z)?,
            ),
            threads_per_block: get(of_device::MAX_THREADS_PER_BLOCK)?,
            shared_per_block: get(of_device::MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?,
            // 16 is the most with the opt-in that a launch of more than 8 makes.
            blocks_per_cluster: if clusters { 16 } else { 1 },
        },
        driver,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_driver_s_number_is_its_version() {
        let version = CudaVersion::from_number(12_080);
        assert_eq!((version.major, version.minor), (12, 8));
        assert_eq!(CudaVersion::from_number(13_000).to_string(), "13.0");
    }

    #[test]
    fn versions_of_ptx() {
        let isa = |major, minor| CudaVersion { major, minor }.ptx_isa().to_string();
        assert_eq!(isa(11, 8), "7.8");
        assert_eq!(isa(12, 4), "8.4");
        assert_eq!(isa(12, 6), "8.5");
        assert_eq!(isa(12, 8), "8.7");
        assert_eq!(isa(12, 9), "8.8");
        assert_eq!(isa(13, 0), "9.0");
        assert_eq!(isa(13, 4), "9.4");
        assert_eq!(isa(14, 1), "10.1");
        assert_eq!(CudaVersion::from_number(13010).to_string(), "13.1");
    }

    #[test]
    fn targets() {
        let h200 = Capability { major: 9, minor: 0 };
        let b300 = Capability {
            major: 10,
            minor: 3,
        };
        for fine in ["sm_75", "sm_90", "sm_90a"] {
            assert_eq!(h200.runs(fine), Ok(()), "{fine}");
        }
        for wrong in ["sm_89a", "sm_100", "sm_100a", "sm_100f", "nonsense", "sm_"] {
            assert!(h200.runs(wrong).is_err(), "{wrong}");
        }
        for fine in ["sm_90", "sm_100", "sm_100f", "sm_103a"] {
            assert_eq!(b300.runs(fine), Ok(()), "{fine}");
        }
        for wrong in ["sm_90a", "sm_100a", "sm_120", "sm_120f"] {
            assert!(b300.runs(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn without_a_driver_there_is_an_explanation() {
        // With a driver this finds devices; without, it must explain itself.
        match devices() {
            Ok(devices) => assert!(!devices.is_empty()),
            Err(error) => {
                let text = error.to_string();
                assert!(text.contains("sim:"), "{text}");
            }
        }
    }
}
