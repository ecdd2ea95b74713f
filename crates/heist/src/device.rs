//! Devices by name: `sim:h200`, `gpu`, `gpu:1`.

use heist_ptx::arch::Gpu;
use std::fmt;
use std::str::FromStr;

/// Where to run something.
///
/// ```
/// use heist::device::DeviceName;
/// let device: DeviceName = "sim:b200".parse().unwrap();
/// assert_eq!(device.to_string(), "sim:b200");
/// assert!("sim:b20".parse::<DeviceName>().unwrap_err().contains("sim:b200"));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceName {
    /// A simulated GPU: `sim:h200`.
    Sim(Gpu),
    /// The real GPU with this number: `gpu`, `gpu:1`.
    Gpu(u32),
}

impl DeviceName {
    /// Every simulated device.
    pub fn simulated() -> impl Iterator<Item = DeviceName> {
        Gpu::ALL.iter().copied().map(DeviceName::Sim)
    }
}

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DeviceName::Sim(gpu) => write!(f, "sim:{}", gpu.id),
            DeviceName::Gpu(0) => f.write_str("gpu"),
            DeviceName::Gpu(ordinal) => write!(f, "gpu:{ordinal}"),
        }
    }
}

impl FromStr for DeviceName {
    type Err = String;

    fn from_str(text: &str) -> Result<DeviceName, String> {
        let known = || {
            let all: Vec<_> = DeviceName::simulated().map(|d| d.to_string()).collect();
            format!(
                "`{text}` is not a device: there are {}, and `gpu` (or `gpu:1`) for a real one",
                all.join(", ")
            )
        };
        match text.split_once(':') {
            None if text == "gpu" => Ok(DeviceName::Gpu(0)),
            Some(("gpu", ordinal)) => ordinal.parse().map(DeviceName::Gpu).map_err(|_| known()),
            Some(("sim", id)) => Gpu::named(id).map(DeviceName::Sim).ok_or_else(known),
            _ => Err(known()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back() {
        for device in DeviceName::simulated().chain([DeviceName::Gpu(0), DeviceName::Gpu(3)]) {
            assert_eq!(device.to_string().parse(), Ok(device));
        }
        for wrong in ["", "sim", "sim:", "sim:gtx480", "gpu:", "gpu:x", "cpu"] {
            let error = wrong.parse::<DeviceName>().unwrap_err();
            assert!(error.contains("sim:h200"), "{error}");
        }
    }
}
