//! What names stand for.

use crate::analysis::Scopes;
use crate::module::{Function, Variable};
use crate::types::{ScalarType, Space, VectorWidth};

/// What a name stands for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Entity<'m> {
    Register {
        ty: ScalarType,
        vector: Option<VectorWidth>,
    },
    Variable(&'m Variable),
    Function(&'m Function),
    Label,
}

impl<'m> Entity<'m> {
    /// What `name` means in `scopes`.
    pub(super) fn find(scopes: &Scopes<'m, Entity<'m>>, name: &str) -> Option<Entity<'m>> {
        let found = scopes.find(name).map(|found| found.entity);
        found.or_else(|| scopes.label(name).map(|_| Entity::Label))
    }

    /// What it is, as the end of "is …".
    pub(super) fn describe(&self) -> String {
        match self {
            Entity::Register { ty, vector: None } => format!("a `.{ty}` register"),
            Entity::Register {
                ty,
                vector: Some(width),
            } => format!("a `.{} .{ty}` register", width.as_str()),
            Entity::Variable(variable) if variable.space == Space::Param => "a parameter".into(),
            Entity::Variable(variable) => format!("a variable in `.{}`", variable.space),
            Entity::Function(_) => "a function".into(),
            Entity::Label => "a label".into(),
        }
    }
}
