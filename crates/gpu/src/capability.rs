//! What a GPU and its driver can run: compute capabilities and CUDA versions.

use heist_ptx::Version;
use std::fmt;

/// A CUDA version, as drivers report it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CudaVersion {
    /// Before the dot.
    pub major: u32,
    /// After the dot.
    pub minor: u32,
}

impl CudaVersion {
    pub(crate) fn from_number(number: u32) -> CudaVersion {
        CudaVersion {
            major: number / 1000,
            minor: number % 1000 / 10,
        }
    }

    /// The newest PTX ISA that a driver of this version assembles. For a version
    /// later than those known here, the pattern is continued.
    pub fn ptx_isa(self) -> Version {
        let minor = self.minor as u8;
        match (self.major, minor) {
            (12, 0..=5) => Version::new(8, minor),
            (12, 6) => Version::new(8, 5),
            (12, 7..=9) => Version::new(8, minor - 1),
            (13, _) => Version::new(9, minor),
            (major, _) if major > 13 => Version::new(major.min(250) as u8 - 4, minor),
            _ => Version::new(7, 8),
        }
    }
}

impl fmt::Display for CudaVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// A compute capability, such as 9.0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Capability {
    /// Before the dot.
    pub major: u32,
    /// After the dot.
    pub minor: u32,
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sm_{}{}", self.major, self.minor)
    }
}

impl Capability {
    /// Whether PTX for `target` (`sm_90`, `sm_90a`, `sm_100f`, ...) runs on it;
    /// the error says why not.
    ///
    /// ```
    /// use heist_gpu::Capability;
    /// let h200 = Capability { major: 9, minor: 0 };
    /// assert!(h200.runs("sm_80").is_ok());
    /// assert!(h200.runs("sm_90a").is_ok());
    /// assert!(h200.runs("sm_100a").is_err());
    /// ```
    pub fn runs(self, target: &str) -> Result<(), String> {
        let digits = target.strip_prefix("sm_").unwrap_or("");
        let (number, suffix) = match digits.find(|c: char| !c.is_ascii_digit()) {
            Some(at) => digits.split_at(at),
            None => (digits, ""),
        };
        let Ok(number) = number.parse::<u32>() else {
            return Err(format!("`{target}` is not an architecture"));
        };
        let (major, minor) = (number / 10, number % 10);
        let (fits, because) = match suffix {
            "a" => (
                (self.major, self.minor) == (major, minor),
                "an `a` target runs on that chip alone",
            ),
            "f" => (
                self.major == major && self.minor >= minor,
                "an `f` target runs within its family alone",
            ),
            _ => (
                (self.major, self.minor) >= (major, minor),
                "PTX runs on its target and on later chips",
            ),
        };
        if fits {
            Ok(())
        } else {
            Err(format!(
                "the module is for {target} and this GPU is {self}: {because}"
            ))
        }
    }
}
