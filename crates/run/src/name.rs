//! How people name a device.

use heist_ptx::arch::{Arch, Gpu};
use std::fmt;
use std::str::FromStr;

/// Where to run something.
///
/// ```
/// use heist_run::DeviceName;
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
    /// A simulated device that runs PTX for `target`; `sim:h200` where none does,
    /// which then says why not.
    pub fn for_target(target: &str) -> DeviceName {
        let arch = Arch::parse(target);
        let fits = |gpu: &Gpu| arch.is_some_and(|arch| arch.runs_on(gpu.arch));
        let preferred = [Gpu::H200, Gpu::B200, Gpu::RTX5090, Gpu::L4, Gpu::A100];
        DeviceName::Sim(preferred.into_iter().find(fits).unwrap_or(Gpu::H200))
    }

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
    fn a_target_has_a_device() {
        for (target, device) in [
            ("sm_75", "sim:h200"),
            ("sm_90a", "sim:h200"),
            ("sm_100a", "sim:b200"),
            ("sm_120", "sim:rtx5090"),
            ("sm_1", "sim:h200"),
        ] {
            assert_eq!(
                DeviceName::for_target(target).to_string(),
                device,
                "{target}"
            );
        }
    }

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
