//! Which name means what, where.
//!
//! PTX has nested scopes of names. A register or variable exists from its
//! declaration to the end of its scope; a label exists in all of its scope and
//! in the scopes inside it, but not outside. A family `%r<10>` declares `%r0`
//! to `%r9`, and `%r05` is `%r5`.

use crate::module::{Function, Name, Statement, Variable};
use crate::span::Span;
use crate::types::{ScalarType, Space, VectorWidth};
use std::collections::HashMap;

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

impl Entity<'_> {
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

struct Family {
    ty: ScalarType,
    vector: Option<VectorWidth>,
    count: u32,
    span: Span,
}

#[derive(Default)]
struct Level<'m> {
    names: HashMap<Name, (Entity<'m>, Span)>,
    families: HashMap<Name, Family>,
    labels: HashMap<Name, Span>,
    /// Every way to read a single name as a member of a family: prefix, numbers.
    numbered: HashMap<Name, Vec<(u32, Span)>>,
}

impl<'m> Level<'m> {
    /// The prefix and number of every way to read `name` as a member of a family.
    fn splits(name: &str) -> impl Iterator<Item = (&str, u32)> {
        // Ten digits hold every number that a family can count to.
        let digits = name.bytes().rev().take_while(u8::is_ascii_digit).count();
        (1..=digits.min(10)).filter_map(move |tail| {
            let (prefix, number) = name.split_at(name.len() - tail);
            Some((prefix, number.parse().ok()?))
        })
    }

    fn member(&self, name: &str) -> Option<&Family> {
        if self.families.is_empty() {
            return None;
        }
        Level::splits(name).find_map(|(prefix, number)| {
            self.families
                .get(prefix)
                .filter(|family| number < family.count)
        })
    }
}

/// The scopes around one place, outermost (the file) first.
pub(super) struct Scopes<'m> {
    levels: Vec<Level<'m>>,
}

/// Where the first declaration of a name is.
pub(super) struct Clash {
    pub(super) first: Span,
}

impl<'m> Scopes<'m> {
    pub(super) fn new() -> Scopes<'m> {
        Scopes {
            levels: vec![Level::default()],
        }
    }

    /// Opens a scope and makes its labels known; says which are defined twice.
    pub(super) fn enter(&mut self, statements: &'m [Statement]) -> Vec<(&'m Name, Span, Span)> {
        let mut level = Level::default();
        let mut twice = Vec::new();
        for statement in statements {
            let (name, span) = match statement {
                Statement::Label { name, span } => (name, *span),
                Statement::BranchTargets { label, span, .. }
                | Statement::CallTargets { label, span, .. } => (label, *span),
                Statement::CallPrototype(prototype) => (&prototype.label, prototype.span),
                _ => continue,
            };
            match level.labels.get(name) {
                Some(&first) => twice.push((name, first, span)),
                None => {
                    level.labels.insert(name.clone(), span);
                }
            }
        }
        self.levels.push(level);
        twice
    }

    pub(super) fn leave(&mut self) {
        self.levels.pop();
    }

    /// Declares one name in the innermost scope.
    pub(super) fn declare(
        &mut self,
        name: &Name,
        entity: Entity<'m>,
        span: Span,
    ) -> Result<(), Clash> {
        let Some(level) = self.levels.last_mut() else {
            return Ok(());
        };
        if let Some((_, first)) = level.names.get(name) {
            return Err(Clash { first: *first });
        }
        if let Some(family) = level.member(name) {
            return Err(Clash { first: family.span });
        }
        for (prefix, number) in Level::splits(name) {
            level
                .numbered
                .entry(prefix.into())
                .or_default()
                .push((number, span));
        }
        level.names.insert(name.clone(), (entity, span));
        Ok(())
    }

    /// Declares a name anew, whatever it was.
    pub(super) fn redeclare(&mut self, name: &Name, entity: Entity<'m>, span: Span) {
        if let Some(level) = self.levels.last_mut() {
            level.names.insert(name.clone(), (entity, span));
        }
    }

    /// Declares `prefix<count>` in the innermost scope.
    pub(super) fn declare_family(
        &mut self,
        prefix: &Name,
        count: u32,
        ty: ScalarType,
        vector: Option<VectorWidth>,
        span: Span,
    ) -> Result<(), Clash> {
        let Some(level) = self.levels.last_mut() else {
            return Ok(());
        };
        if let Some(family) = level.families.get(prefix) {
            return Err(Clash { first: family.span });
        }
        let member = level.numbered.get(prefix).and_then(|numbers| {
            let (_, first) = numbers.iter().find(|(number, _)| *number < count)?;
            Some(*first)
        });
        level.families.insert(
            prefix.clone(),
            Family {
                ty,
                vector,
                count,
                span,
            },
        );
        match member {
            Some(first) => Err(Clash { first }),
            None => Ok(()),
        }
    }

    /// What the innermost scope itself calls `name`, and where.
    pub(super) fn here(&self, name: &str) -> Option<(Entity<'m>, Span)> {
        self.levels.last()?.names.get(name).copied()
    }

    /// What `name` means here.
    pub(super) fn find(&self, name: &str) -> Option<Entity<'m>> {
        self.levels.iter().rev().find_map(|level| {
            if let Some((entity, _)) = level.names.get(name) {
                return Some(*entity);
            }
            if let Some(family) = level.member(name) {
                return Some(Entity::Register {
                    ty: family.ty,
                    vector: family.vector,
                });
            }
            level.labels.contains_key(name).then_some(Entity::Label)
        })
    }

    /// Where a label called `name` is that can be reached from here.
    pub(super) fn is_label(&self, name: &str) -> bool {
        self.levels
            .iter()
            .rev()
            .any(|level| level.labels.contains_key(name))
    }

    /// A family that `name` would belong to if that had more members:
    /// its prefix, its count, its type, and where it is.
    pub(super) fn short_family(&self, name: &str) -> Option<(&str, u32, ScalarType, Span)> {
        self.levels.iter().rev().find_map(|level| {
            Level::splits(name).find_map(|(prefix, _)| {
                let (prefix, family) = level.families.get_key_value(prefix)?;
                Some((prefix.as_str(), family.count, family.ty, family.span))
            })
        })
    }

    /// A declared name that differs from `name` in one character, or in case.
    pub(super) fn similar(&self, name: &str) -> Option<&str> {
        self.levels.iter().rev().find_map(|level| {
            level
                .names
                .keys()
                .chain(level.labels.keys())
                .map(Name::as_str)
                .filter(|other| near(name, other))
                .min()
        })
    }
}

/// Whether two names are one slip of the finger apart.
fn near(a: &str, b: &str) -> bool {
    if a.eq_ignore_ascii_case(b) {
        return true;
    }
    let (short, long) = if a.len() <= b.len() { (a, b) } else { (b, a) };
    if long.len() - short.len() > 1 || short.len() < 2 {
        return false;
    }
    let same_start = short
        .bytes()
        .zip(long.bytes())
        .take_while(|(x, y)| x == y)
        .count();
    let rest = &short.as_bytes()[same_start..];
    let skip = usize::from(short.len() == long.len());
    let rest = rest.get(skip..).unwrap_or(&[]);
    long.as_bytes().ends_with(rest) && same_start + 1 + rest.len() == long.len()
}

#[cfg(test)]
mod tests {
    use super::near;

    #[test]
    fn near_names_are_found() {
        assert!(near("loop", "lop") && near("lop", "loop"));
        assert!(near("sum", "sun") && near("Sum", "sum"));
        assert!(!near("sum", "prod") && !near("a", "b") && !near("loop", "lo"));
    }
}
