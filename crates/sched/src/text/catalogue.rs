//! The names that the text of a policy can use.

use super::{PolicyExpr, PolicyTextError, Value, parser};
use crate::erased::AnyPolicy;
use crate::policies::SHIPPED;
use crate::policy::{And, Inverse, Or, Policy};

/// What a parameter is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParameterKind {
    /// A whole number.
    Count,
    /// A whole number that is not zero.
    Positive,
    /// A number from 0 to 1.
    Part,
    /// A time with a unit.
    Time,
}

impl ParameterKind {
    pub(super) fn expectation(self) -> &'static str {
        match self {
            ParameterKind::Count => "a whole number",
            ParameterKind::Positive => "a whole number from 1 on",
            ParameterKind::Part => "a number from 0 to 1",
            ParameterKind::Time => "a time such as `20us`",
        }
    }
}

/// A parameter of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// What it is called in help texts.
    pub name: &'static str,
    /// What it is.
    pub kind: ParameterKind,
}

impl Parameter {
    const fn new(name: &'static str, kind: ParameterKind) -> Parameter {
        Parameter { name, kind }
    }

    /// A whole number.
    pub const fn count(name: &'static str) -> Parameter {
        Parameter::new(name, ParameterKind::Count)
    }

    /// A whole number that is not zero.
    pub const fn positive(name: &'static str) -> Parameter {
        Parameter::new(name, ParameterKind::Positive)
    }

    /// A number from 0 to 1.
    pub const fn part(name: &'static str) -> Parameter {
        Parameter::new(name, ParameterKind::Part)
    }

    /// A time.
    pub const fn time(name: &'static str) -> Parameter {
        Parameter::new(name, ParameterKind::Time)
    }
}

/// A policy that text can name. Its name, parameters and help stand beside its
/// code; [`Entry::of`] puts it into a [`Catalogue`].
pub trait Named: Policy + Send + Sync + Sized + 'static {
    /// Lower-case words with hyphens between.
    const NAME: &'static str;
    /// What goes into the parentheses.
    const PARAMETERS: &'static [Parameter] = &[];
    /// One sentence.
    const SUMMARY: &'static str;
    /// How it is written.
    const EXAMPLE: &'static str;
    /// Makes it; `None` where the values are not what the parameters say.
    fn from_values(values: &[Value]) -> Option<Self>;
}

/// A policy in a [`Catalogue`].
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Lower-case words with hyphens between.
    pub name: &'static str,
    /// What goes into the parentheses.
    pub parameters: &'static [Parameter],
    /// One sentence.
    pub summary: &'static str,
    /// How it is written.
    pub example: &'static str,
    /// Makes it; `None` where the values are not what `parameters` says.
    pub make: fn(&[Value]) -> Option<AnyPolicy>,
}

impl Entry {
    /// The entry of a policy that knows its name.
    pub const fn of<P: Named>() -> Entry {
        Entry {
            name: P::NAME,
            parameters: P::PARAMETERS,
            summary: P::SUMMARY,
            example: P::EXAMPLE,
            make: |values| P::from_values(values).map(AnyPolicy::new),
        }
    }

    /// `max-steals(n)`.
    pub fn signature(&self) -> String {
        let names: Vec<_> = self.parameters.iter().map(|p| p.name).collect();
        match names.len() {
            0 => self.name.to_owned(),
            _ => format!("{}({})", self.name, names.join(", ")),
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

/// The names that text can use.
#[derive(Clone, Debug)]
pub struct Catalogue {
    entries: Vec<Entry>,
}

impl Catalogue {
    /// The policies that come with Heist.
    pub fn standard() -> Catalogue {
        Catalogue {
            entries: SHIPPED.to_vec(),
        }
    }

    /// Adds a policy; one with the same name goes.
    #[must_use]
    pub fn with(mut self, entry: Entry) -> Catalogue {
        self.entries.retain(|other| other.name != entry.name);
        self.entries.push(entry);
        self
    }

    /// All of them.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The one called `name`.
    pub fn entry(&self, name: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.name == name)
    }

    /// All names, for a message.
    pub(super) fn names(&self) -> String {
        let names: Vec<_> = self.entries.iter().map(|entry| entry.name).collect();
        names.join(", ")
    }

    /// Reads the text of a policy.
    ///
    /// # Errors
    /// Where it stops making sense, and what would make sense there.
    pub fn parse(&self, text: &str) -> Result<PolicyExpr, PolicyTextError> {
        parser::parse(self, text)
    }

    /// Reads the text of a policy and makes the policy, under the canonical
    /// form of that text.
    ///
    /// # Errors
    /// Where it stops making sense, and what would make sense there.
    pub fn policy(&self, text: &str) -> Result<AnyPolicy, PolicyTextError> {
        let expression = self.parse(text)?;
        // What was just read is in this catalogue; the caret is for nobody.
        self.make(&expression)
            .map_err(|error| PolicyTextError::new(text, 0, error.to_string()))
    }

    /// Makes the policy that an expression of this catalogue describes.
    ///
    /// # Errors
    /// A name that is not in it, or values that do not fit: expressions need not
    /// come from text.
    pub fn make(&self, expression: &PolicyExpr) -> Result<AnyPolicy, PolicyError> {
        let policy = match expression {
            PolicyExpr::Call { name, args } => self.call(expression, name, args)?,
            PolicyExpr::Not(inner) => AnyPolicy::new(Inverse(self.make(inner)?)),
            PolicyExpr::And(left, right) => {
                AnyPolicy::new(And(self.make(left)?, self.make(right)?))
            }
            PolicyExpr::Or(left, right) => AnyPolicy::new(Or(self.make(left)?, self.make(right)?)),
        };
        Ok(policy.called(expression.to_string()))
    }

    fn call(
        &self,
        expression: &PolicyExpr,
        name: &str,
        args: &[Value],
    ) -> Result<AnyPolicy, PolicyError> {
        let Some(entry) = self.entry(name) else {
            return Err(PolicyError::Unknown {
                name: name.to_owned(),
                known: self.names(),
            });
        };
        (entry.make)(args).ok_or_else(|| PolicyError::Values {
            given: expression.to_string(),
            form: entry.signature(),
        })
    }
}
