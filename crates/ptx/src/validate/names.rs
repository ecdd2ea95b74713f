//! Names that are used and that nothing declares.

use super::Validator;
use super::entity::Entity;
use crate::diagnostic::Diagnostic;
use crate::instruction::{Address, AddressBase, Constant, Instruction, Operand};
use crate::isa::{Control, Family, Special, special_register};
use crate::module::Name;
use crate::rule;
use crate::span::Span;

impl<'m> Validator<'m> {
    /// Reports every name in `operand` that nothing declares.
    pub(super) fn names(&mut self, operand: &'m Operand, instruction: &'m Instruction) {
        match operand {
            Operand::Name(name) => {
                if self.find(name).is_none() {
                    match special_register(name) {
                        Some(special) => self.special(name, special, instruction),
                        None => self.undeclared(name, instruction),
                    }
                }
            }
            Operand::Part { name, .. } => {
                if self.find(name).is_none() {
                    match special_register(name) {
                        Some(special) => self.special(name, special, instruction),
                        None => self.undeclared_register(name, instruction.span),
                    }
                }
            }
            Operand::Not(name) | Operand::NegatedPart { name, .. } => {
                if self.find(name).is_none() {
                    self.undeclared_register(name, instruction.span);
                }
            }
            Operand::Constant(constant) => {
                let mut names = Vec::new();
                symbols(constant, &mut names);
                for name in names {
                    if self.find(&name).is_none() {
                        self.undeclared_variable(&name, instruction.span);
                    }
                }
            }
            Operand::Address(address) => self.address_names(address, instruction),
            Operand::Vector(list) | Operand::Tuple(list) => {
                for operand in list {
                    self.names(operand, instruction);
                }
            }
            Operand::Pair(pair) => {
                self.names(&pair.0, instruction);
                self.names(&pair.1, instruction);
            }
            Operand::Sink => {}
        }
    }

    fn address_names(&mut self, address: &'m Address, instruction: &'m Instruction) {
        match &address.base {
            AddressBase::Name(name) | AddressBase::Part { name, .. } => {
                if self.find(name).is_none() {
                    if name.starts_with('%') {
                        self.undeclared_register(name, instruction.span);
                    } else {
                        self.undeclared_variable(name, instruction.span);
                    }
                }
            }
            AddressBase::Absolute(_) => {}
        }
        for operand in &address.rest {
            self.names(operand, instruction);
        }
    }

    fn special(&mut self, name: &str, special: Special, instruction: &'m Instruction) {
        if let Some(feature) = special.needs {
            let place = self.narrow(instruction.span, name);
            self.feature(feature, place, &format!("special register `{name}`"));
        }
    }

    fn undeclared(&mut self, name: &Name, instruction: &'m Instruction) {
        let span = instruction.span;
        let Some(row) = instruction.opcode.row() else {
            return self.undeclared_register(name, span);
        };
        if matches!(row.control, Control::Branch | Control::BranchTable) {
            self.no_label(name, span);
        } else if row.family == Family::Move && !name.starts_with('%') {
            self.undeclared_variable(name, span);
        } else {
            self.undeclared_register(name, span);
        }
    }

    pub(super) fn undeclared_register(&mut self, name: &str, span: Span) {
        let place = self.narrow(span, name);
        let mut diagnostic = Diagnostic::error(
            rule::UNDECLARED_REGISTER,
            place,
            format!("register `{name}` is not declared"),
        );
        let short = self.scopes.short_family(name);
        if let Some((prefix, count, Entity::Register { ty, .. }, first)) = short {
            let last = count.saturating_sub(1);
            diagnostic = diagnostic.help(format!(
                "`.reg .{ty} {prefix}<{count}>` declares `{prefix}0` to `{prefix}{last}`; raise its count"
            ));
            if !first.is_none() {
                diagnostic = diagnostic.other(first, "the family it would belong to");
            }
        } else if let Some(similar) = self.scopes.similar(name) {
            diagnostic = diagnostic.help(format!("is `{similar}` meant?"));
        } else {
            diagnostic = diagnostic.help(format!(
                "declare it before this line, in this scope or one around it: `.reg .b32 {name};`"
            ));
        }
        self.report(diagnostic);
    }

    pub(super) fn undeclared_variable(&mut self, name: &str, span: Span) {
        let place = self.narrow(span, name);
        let mut diagnostic = Diagnostic::error(
            rule::UNDECLARED_VARIABLE,
            place,
            format!("variable `{name}` is not declared"),
        );
        if let Some(similar) = self.scopes.similar(name) {
            diagnostic = diagnostic.help(format!("is `{similar}` meant?"));
        } else if self.module.variables().any(|other| other.name == name) {
            diagnostic = diagnostic.help("it is declared further down; a declaration comes first");
        }
        self.report(diagnostic);
    }

    pub(super) fn no_label(&mut self, name: &str, span: Span) {
        let place = self.narrow(span, name);
        let mut diagnostic = Diagnostic::error(
            rule::UNDECLARED_LABEL,
            place,
            format!("label `{name}` does not exist in a scope that is open here"),
        );
        if let Some(similar) = self.scopes.similar(name) {
            diagnostic = diagnostic.help(format!("is `{similar}` meant?"));
        } else {
            diagnostic = diagnostic
                .note("a branch reaches labels of its own scope and of those around it, not inside `{ ... }`");
        }
        self.report(diagnostic);
    }
}

/// Every name that a constant refers to.
pub(super) fn symbols(constant: &Constant, names: &mut Vec<Name>) {
    match constant {
        Constant::Symbol(name) => names.push(name.clone()),
        Constant::Generic(inner) | Constant::Mask(_, inner) | Constant::Unary(_, inner) => {
            symbols(inner, names);
        }
        Constant::Cast { value, .. } => symbols(value, names),
        Constant::Binary(_, sides) => {
            symbols(&sides.0, names);
            symbols(&sides.1, names);
        }
        Constant::Select(parts) => {
            symbols(&parts.0, names);
            symbols(&parts.1, names);
            symbols(&parts.2, names);
        }
        Constant::Int(_) | Constant::F32(_) | Constant::F64(_) | Constant::WarpSize => {}
    }
}
