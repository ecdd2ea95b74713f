//! What is wrong with a policy that somebody wrote.

/// What is wrong with the text of a policy, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}\n  {text}\n  {mark}")]
pub struct PolicyTextError {
    /// What was found and what was expected, with the closest name where a name
    /// is unknown.
    pub message: String,
    /// The whole text.
    pub text: String,
    /// Where it went wrong, in characters from the start.
    pub position: usize,
    /// A caret under that place.
    pub mark: String,
}

impl PolicyTextError {
    /// A caret under `position`, in characters from the start.
    pub(super) fn new(text: &str, position: usize, message: String) -> PolicyTextError {
        // Tabs and line breaks would move the caret.
        let text = text
            .chars()
            .map(|c| if c.is_control() { ' ' } else { c })
            .collect();
        PolicyTextError {
            message,
            text,
            position,
            mark: format!("{}^", " ".repeat(position)),
        }
    }
}

/// Why an expression makes no policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// A name that is not in the catalogue.
    #[error("there is no policy `{name}`; there are {known}")]
    Unknown {
        /// The name.
        name: String,
        /// The names there are.
        known: String,
    },
    /// Values that do not fit the policy's parameters.
    #[error("`{given}` does not fit `{form}`")]
    Values {
        /// As it was written.
        given: String,
        /// As it is written.
        form: String,
    },
}
