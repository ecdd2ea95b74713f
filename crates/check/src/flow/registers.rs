//! Register names to numbers.
//!
//! The same name in two scopes is two registers; a name that is declared
//! nowhere still gets a number, since the structural rules report it and the
//! other rules go on.

use heist_ptx::{Name, ScalarType};
use std::collections::HashMap;

/// A register of one function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Register(pub(crate) u32);

impl Register {
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

#[derive(Default)]
struct Scope {
    singles: HashMap<Name, ScalarType>,
    families: HashMap<Name, (u32, ScalarType)>,
    numbered: HashMap<Name, Register>,
}

/// The registers of one function, with the scopes that are open.
#[derive(Default)]
pub(crate) struct RegisterTable {
    scopes: Vec<Scope>,
    types: Vec<Option<ScalarType>>,
}

impl RegisterTable {
    pub(crate) fn open(&mut self) {
        self.scopes.push(Scope::default());
    }

    pub(crate) fn close(&mut self) {
        // The outermost scope stays: parameters live there.
        if self.scopes.len() > 1 {
            self.scopes.pop();
        }
    }

    pub(crate) fn declare(&mut self, name: &Name, count: Option<u32>, ty: ScalarType) {
        if self.scopes.is_empty() {
            self.open();
        }
        let Some(scope) = self.scopes.last_mut() else {
            return;
        };
        match count {
            Some(count) => {
                scope.families.insert(name.clone(), (count, ty));
            }
            None => {
                scope.singles.insert(name.clone(), ty);
            }
        }
    }

    /// The register that `name` means here, or `None` if nothing here is a
    /// register of that name.
    pub(crate) fn find(&mut self, name: &Name) -> Option<Register> {
        for scope in self.scopes.iter_mut().rev() {
            if let Some(&register) = scope.numbered.get(name) {
                return Some(register);
            }
            let ty = scope.singles.get(name).copied().or_else(|| {
                let digits = name.bytes().rev().take_while(u8::is_ascii_digit).count();
                (1..=digits).find_map(|tail| {
                    let (prefix, number) = name.split_at(name.len() - tail);
                    let &(count, ty) = scope.families.get(prefix)?;
                    (number.parse::<u32>().ok()? < count).then_some(ty)
                })
            });
            if let Some(ty) = ty {
                let register = Register(self.types.len() as u32);
                self.types.push(Some(ty));
                scope.numbered.insert(name.clone(), register);
                return Some(register);
            }
        }
        None
    }

    /// How many registers the function mentions.
    pub(crate) fn len(&self) -> usize {
        self.types.len()
    }
}
