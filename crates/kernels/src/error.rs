//! What can be wrong with a request for a kernel.

use heist_builder::BuildError;
use heist_sched::PlanError;

/// Why there is no kernel, or no launch, for what was asked.
#[derive(Clone, Debug, thiserror::Error)]
pub enum KernelError {
    /// The kernel could not be built.
    #[error("{}", told(.0))]
    Build(#[from] BuildError),
    /// Its launch could not be planned.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// What was asked is not what the kernel does; the sentence says why and
    /// what to do.
    #[error("{0}")]
    Unfit(String),
}

impl KernelError {
    /// With a sentence that says what does not fit, and why.
    pub fn unfit(why: impl Into<String>) -> KernelError {
        KernelError::Unfit(why.into())
    }
}

/// A mistake in what was asked, and where the caller's code asked for it. Where in a kernel of ours
/// it was noticed tells nobody anything.
fn told(error: &BuildError) -> String {
    let ours = file!().trim_end_matches("error.rs");
    match error.at.starts_with(ours) {
        true => error.problem.to_string(),
        false => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use heist_builder::Problem;

    #[test]
    fn a_place_is_told_where_it_is_the_callers() {
        let at = |place: &str| {
            let error = BuildError {
                problem: Problem::Other("too many".into()),
                at: place.into(),
            };
            KernelError::from(error).to_string()
        };
        assert_eq!(at(&format!("{}:1:2", file!())), "too many");
        assert_eq!(at("src/mine.rs:1:2"), "too many (src/mine.rs:1:2)");
    }
}
