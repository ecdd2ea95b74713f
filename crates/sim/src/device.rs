//! The GPUs that can be simulated.

use heist_ptx::arch::Gpu;
use std::fmt;

/// A simulated GPU.
///
/// ```
/// let device = heist_sim::Device::named("sim:h200").unwrap();
/// assert_eq!(device.gpu().sms, 132);
/// assert_eq!(device.to_string(), "sim:h200");
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Device {
    gpu: Gpu,
}

/// A name that is not the name of a simulated GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownDevice(pub String);

impl fmt::Display for UnknownDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known: Vec<String> = Gpu::ALL
            .iter()
            .map(|gpu| format!("sim:{}", gpu.id))
            .collect();
        write!(
            f,
            "there is no simulated GPU `{}`: there are {}",
            self.0,
            known.join(", ")
        )
    }
}

impl std::error::Error for UnknownDevice {}

impl Device {
    /// The device of a name such as `sim:h200`; `h200` alone will do.
    pub fn named(name: &str) -> Result<Device, UnknownDevice> {
        Gpu::named(name.strip_prefix("sim:").unwrap_or(name))
            .map(Device::of)
            .ok_or_else(|| UnknownDevice(name.to_owned()))
    }

    /// A simulated one of this GPU.
    pub fn of(gpu: Gpu) -> Device {
        Device { gpu }
    }

    /// What it stands in for.
    pub fn gpu(&self) -> &Gpu {
        &self.gpu
    }

    /// Picoseconds of one cycle of the SM clock.
    pub(crate) fn cycle_ps(&self) -> u64 {
        1_000_000 / u64::from(self.gpu.clock_mhz.max(1))
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sim:{}", self.gpu.id)
    }
}
