//! The names that the text of a policy can use.

use super::error::{PolicyError, PolicyTextError};
use super::expression::PolicyExpr;
use super::named::Entry;
use super::parser;
use super::value::Value;
use crate::erased::AnyPolicy;
use crate::policies::SHIPPED;
use crate::policy::{And, Inverse, Or};
use crate::program::Loaded;
use std::str::FromStr;

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

    /// Adds a policy; it replaces one with the same name.
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

    /// Reads the text of a policy.
    ///
    /// # Errors
    /// The position of the mistake, and what was expected there.
    pub fn parse(&self, text: &str) -> Result<PolicyExpr, PolicyTextError> {
        parser::parse(&self.entries, text)
    }

    /// Reads the text of a policy and makes the policy, under the canonical
    /// form of that text. `loaded: ` before it makes it a policy that is
    /// [loaded](Loaded), not built in.
    ///
    /// # Errors
    /// The position of the mistake, and what was expected there.
    pub fn policy(&self, text: &str) -> Result<AnyPolicy, PolicyTextError> {
        let behind = text.trim_start().strip_prefix(Loaded::PREFIX);
        let expression = self.parse(behind.unwrap_or(text))?;
        // Parsed names are in this catalogue, so only loading can fail: an error without a position.
        let wrong =
            |error: &dyn std::fmt::Display| PolicyTextError::new(text, 0, error.to_string());
        let policy = self.make(&expression).map_err(|error| wrong(&error))?;
        match behind {
            Some(_) => Loaded::new(&policy)
                .map(AnyPolicy::new)
                .map_err(|error| wrong(&error)),
            None => Ok(policy),
        }
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
                known: parser::names(&self.entries),
            });
        };
        (entry.make)(args).ok_or_else(|| PolicyError::Values {
            given: expression.to_string(),
            form: entry.signature(),
        })
    }
}

impl FromStr for AnyPolicy {
    type Err = PolicyTextError;

    /// Reads a policy of the standard [`Catalogue`].
    fn from_str(text: &str) -> Result<AnyPolicy, PolicyTextError> {
        Catalogue::standard().policy(text)
    }
}
