//! Name resolution in nested scopes.
//!
//! PTX has nested scopes of names. A register or variable exists from its
//! declaration to the end of its scope; a label exists in all of its scope and
//! in the scopes inside it, but not outside. A family `%r<10>` declares `%r0`
//! to `%r9`, and `%r05` is `%r5`.

use crate::module::{Name, Statement};
use crate::span::Span;
use rustc_hash::FxHashMap;

/// What a name was found to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found<T> {
    /// What it was declared as.
    pub entity: T,
    /// Its number in the family that it belongs to; 0 for a name of its own.
    pub member: u32,
}

/// A label that is in scope.
#[derive(Clone, Copy, Debug)]
pub struct Label<'m> {
    /// Labels are numbered as their scopes are entered.
    pub number: u32,
    /// A label, or a list that has one.
    pub statement: &'m Statement,
    /// Where it is.
    pub span: Span,
}

/// A label that its scope already has.
#[derive(Clone, Copy, Debug)]
pub struct Twice<'m> {
    /// Its name.
    pub name: &'m Name,
    /// Where the first of that name is.
    pub first: Span,
    /// Where the second is.
    pub span: Span,
}

/// Where the first declaration of a name is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clash {
    /// Its place.
    pub first: Span,
}

struct Family<T> {
    entity: T,
    count: u32,
    span: Span,
}

struct Level<'m, T> {
    names: FxHashMap<Name, (T, Span)>,
    families: FxHashMap<Name, Family<T>>,
    labels: FxHashMap<&'m str, Label<'m>>,
    /// For each prefix, the lowest number of a single name that begins with it: a
    /// name that a family of more members would take.
    lowest: FxHashMap<Name, (u32, Span)>,
}

impl<T: Copy> Level<'_, T> {
    fn new() -> Self {
        Level {
            names: FxHashMap::default(),
            families: FxHashMap::default(),
            labels: FxHashMap::default(),
            lowest: FxHashMap::default(),
        }
    }

    fn member(&self, name: &str) -> Option<(&Family<T>, u32)> {
        if self.families.is_empty() {
            return None;
        }
        splits(name).find_map(|(prefix, number)| {
            let family = self.families.get(prefix)?;
            (number < family.count).then_some((family, number))
        })
    }

    fn find(&self, name: &str) -> Option<Found<T>> {
        if let Some(&(entity, _)) = self.names.get(name) {
            return Some(Found { entity, member: 0 });
        }
        let (family, member) = self.member(name)?;
        Some(Found {
            entity: family.entity,
            member,
        })
    }
}

/// The prefix and number of every way to read `name` as a member of a family.
fn splits(name: &str) -> impl Iterator<Item = (&str, u32)> {
    // Zeros before a number do not count, so there may be many digits; nobody has so many.
    let digits = name.bytes().rev().take_while(u8::is_ascii_digit).count();
    (1..=digits.min(64)).map_while(move |tail| {
        let (prefix, number) = name.split_at(name.len() - tail);
        Some((prefix, number.parse().ok()?))
    })
}

/// The scopes around one place, outermost (the file) first.
pub struct Scopes<'m, T> {
    levels: Vec<Level<'m, T>>,
    labels: u32,
}

impl<'m, T: Copy> Scopes<'m, T> {
    /// The scope of a file, with nothing in it.
    #[allow(clippy::new_without_default)]
    pub fn new() -> Scopes<'m, T> {
        Scopes {
            levels: vec![Level::new()],
            labels: 0,
        }
    }

    /// Opens a scope and makes its labels known; says which are defined twice.
    pub fn enter(&mut self, statements: &'m [Statement]) -> Vec<Twice<'m>> {
        let mut level = Level::new();
        let mut twice = Vec::new();
        for statement in statements {
            let (name, span) = match statement {
                Statement::Label { name, span } => (name, *span),
                Statement::BranchTargets { label, span, .. }
                | Statement::CallTargets { label, span, .. } => (label, *span),
                Statement::CallPrototype(prototype) => (&prototype.label, prototype.span),
                _ => continue,
            };
            if let Some(first) = level.labels.get(name.as_str()) {
                let first = first.span;
                twice.push(Twice { name, first, span });
                continue;
            }
            let label = Label {
                number: self.labels,
                statement,
                span,
            };
            self.labels += 1;
            level.labels.insert(name, label);
        }
        self.levels.push(level);
        twice
    }

    /// Closes the innermost scope.
    pub fn leave(&mut self) {
        self.levels.pop();
    }

    /// How many labels the scopes so far have had.
    pub fn labels(&self) -> usize {
        self.labels as usize
    }

    /// Declares one name in the innermost scope.
    pub fn declare(&mut self, name: &Name, entity: T, span: Span) -> Result<(), Clash> {
        let Some(level) = self.levels.last_mut() else {
            return Ok(());
        };
        if let Some(&(_, first)) = level.names.get(name) {
            return Err(Clash { first });
        }
        if let Some((family, _)) = level.member(name) {
            return Err(Clash { first: family.span });
        }
        for (prefix, number) in splits(name) {
            let lowest = level.lowest.entry(prefix.into()).or_insert((number, span));
            if number < lowest.0 {
                *lowest = (number, span);
            }
        }
        level.names.insert(name.clone(), (entity, span));
        Ok(())
    }

    /// Declares a name anew, whatever it was.
    pub fn redeclare(&mut self, name: &Name, entity: T, span: Span) {
        if let Some(level) = self.levels.last_mut() {
            level.names.insert(name.clone(), (entity, span));
        }
    }

    /// Declares `prefix<count>` in the innermost scope.
    pub fn declare_family(
        &mut self,
        prefix: &Name,
        count: u32,
        entity: T,
        span: Span,
    ) -> Result<(), Clash> {
        let Some(level) = self.levels.last_mut() else {
            return Ok(());
        };
        if let Some(family) = level.families.get(prefix) {
            return Err(Clash { first: family.span });
        }
        let taken = level.lowest.get(prefix).copied();
        let family = Family {
            entity,
            count,
            span,
        };
        level.families.insert(prefix.clone(), family);
        match taken {
            Some((number, first)) if number < count => Err(Clash { first }),
            _ => Ok(()),
        }
    }

    /// What the innermost scope itself calls `name`, and where.
    pub fn here(&self, name: &str) -> Option<(T, Span)> {
        self.levels.last()?.names.get(name).copied()
    }

    /// What `name` means here; a label hides what is outside its scope.
    pub fn find(&self, name: &str) -> Option<Found<T>> {
        for level in self.levels.iter().rev() {
            if let Some(found) = level.find(name) {
                return Some(found);
            }
            if level.labels.contains_key(name) {
                return None;
            }
        }
        None
    }

    /// The label called `name` that can be reached from here.
    pub fn label(&self, name: &str) -> Option<Label<'m>> {
        self.levels
            .iter()
            .rev()
            .find_map(|level| level.labels.get(name).copied())
    }

    /// A family that `name` would belong to if that had more members:
    /// its prefix, its count, what it is declared as, and where.
    pub(crate) fn short_family(&self, name: &str) -> Option<(&str, u32, T, Span)> {
        self.levels.iter().rev().find_map(|level| {
            splits(name).find_map(|(prefix, _)| {
                let (prefix, family) = level.families.get_key_value(prefix)?;
                Some((prefix.as_str(), family.count, family.entity, family.span))
            })
        })
    }

    /// A declared name that differs from `name` in one character, or in case.
    pub(crate) fn similar(&self, name: &str) -> Option<&str> {
        self.levels.iter().rev().find_map(|level| {
            let names = level.names.keys().map(Name::as_str);
            names
                .chain(level.labels.keys().copied())
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
    use super::*;

    #[test]
    fn near_names_are_found() {
        assert!(near("loop", "lop") && near("lop", "loop"));
        assert!(near("sum", "sun") && near("Sum", "sum"));
        assert!(!near("sum", "prod") && !near("a", "b") && !near("loop", "lo"));
    }

    #[test]
    fn zeros_before_a_number_do_not_count() {
        let mut scopes: Scopes<'_, char> = Scopes::new();
        let family = Name::from("%r");
        assert!(scopes.declare_family(&family, 10, 'r', Span::NONE).is_ok());
        let member = |name: &str| scopes.find(name).map(|found| found.member);
        assert_eq!(member("%r5"), Some(5));
        assert_eq!(member("%r05"), Some(5));
        assert_eq!(member("%r0000000000005"), Some(5));
        assert_eq!(member("%r10"), None);
        let single = Name::from("%r05");
        assert!(scopes.declare(&single, 's', Span::NONE).is_err());
    }

    #[test]
    fn what_is_declared_anew_is_the_newer_one() {
        let mut scopes: Scopes<'_, char> = Scopes::new();
        let name = Name::from("x");
        assert!(scopes.declare(&name, 'a', Span::NONE).is_ok());
        assert!(scopes.declare(&name, 'b', Span::NONE).is_err());
        scopes.redeclare(&name, 'c', Span::NONE);
        assert_eq!(scopes.find("x").map(|found| found.entity), Some('c'));
    }

    #[test]
    fn a_single_name_stands_in_the_way_of_a_family() {
        let mut scopes: Scopes<'_, char> = Scopes::new();
        for name in ["%r7", "%r12"] {
            assert!(scopes.declare(&name.into(), 's', Span::NONE).is_ok());
        }
        assert!(
            scopes
                .declare_family(&"%r".into(), 7, 'f', Span::NONE)
                .is_ok()
        );
        assert!(
            scopes
                .declare_family(&"%r1".into(), 3, 'f', Span::NONE)
                .is_err()
        );
    }
}
