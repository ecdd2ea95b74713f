//! A policy that text can name.

use super::value::{Parameter, Value};
use crate::erased::AnyPolicy;
use crate::policy::Policy;

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
