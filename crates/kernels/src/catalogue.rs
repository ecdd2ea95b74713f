//! The catalogue of kernels by name, for `heist kernels`, `run`, `emit` and `bench`.
//!
//! ```
//! use heist_kernels::catalogue::{entries, entry};
//! let names: Vec<&str> = entries().iter().map(|entry| entry.name()).collect();
//! assert!(names.contains(&"attention"));
//! let Err(why) = entry("conv") else { panic!("there is none") };
//! assert!(why.to_string().contains("there is no kernel `conv`; there are gemm"));
//! ```

use crate::error::KernelError;

pub use crate::entry::{Entry, Parameter, Prepared, Settings, Verify, most_elements};
pub use crate::space::schedules;

/// Every kernel.
pub fn entries() -> &'static [&'static dyn Entry] {
    &[
        &crate::gemm::GemmEntry,
        &crate::grouped::GroupedEntry,
        &crate::grouped::experts::ExpertsEntry,
        &crate::attention::Attention,
        &crate::attention::AttentionBackward,
    ]
}

/// The kernel of that name.
///
/// # Errors
/// When there is none; the names there are.
pub fn entry(name: &str) -> Result<&'static dyn Entry, KernelError> {
    let found = entries().iter().find(|entry| entry.name() == name);
    found.copied().ok_or_else(|| {
        let known: Vec<_> = entries().iter().map(|entry| entry.name()).collect();
        KernelError::unfit(format!(
            "there is no kernel `{name}`; there are {}",
            known.join(", ")
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::family::Target;

    #[test]
    fn what_the_host_can_t_hold_is_refused() {
        let target = Target {
            arch: heist_builder::Arch::SM_90A,
            sms: 132,
        };
        for (kernel, words) in [
            ("gemm", vec!["m=100000000", "k=10000000"]),
            ("gemm", vec!["m=8", "n=10000000", "k=100000000"]),
            (
                "grouped-gemm",
                vec!["rows=100000000,100000000", "k=10000000"],
            ),
            ("attention", vec!["batch=4000000000", "queries=1"]),
            (
                "attention",
                vec!["lengths=1:200000000", "heads=30000", "dim=256"],
            ),
        ] {
            let settings = Settings::from_words(&words).expect("names and values");
            let prepared = entry(kernel)
                .expect("a kernel")
                .prepare(&settings, None, target);
            let error = prepared.err().expect("too large").to_string();
            assert!(error.contains("can be made"), "{error}");
        }
    }
}
