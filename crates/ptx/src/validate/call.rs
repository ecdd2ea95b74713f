//! Calls: the function, what it is given, and what it gives back.

use super::Validator;
use super::entity::Entity;
use crate::diagnostic::Diagnostic;
use crate::instruction::{Instruction, Operand};
use crate::isa::special_register;
use crate::module::{Function, FunctionKind, Variable};
use crate::rule;
use crate::span::Span;

impl<'m> Validator<'m> {
    /// `call (ret), f, (args), prototype;` in all its shorter forms.
    pub(super) fn call(&mut self, instruction: &'m Instruction) {
        let mut operands = instruction.operands.iter().peekable();
        let returns = operands.next_if(|operand| matches!(operand, Operand::Tuple(_)));
        let callee = operands.next();
        let args = operands.next_if(|operand| matches!(operand, Operand::Tuple(_)));
        let rest: Vec<&Operand> = operands.collect();

        let before = self.found.len();
        for list in [returns, args].into_iter().flatten() {
            if let Operand::Tuple(list) = list {
                for operand in list {
                    self.argument_name(operand, instruction);
                }
            }
        }
        for operand in rest {
            if let Operand::Name(name) = operand
                && self.scopes.label(name).is_none()
            {
                self.no_label(name, instruction.span);
            }
        }
        let Some(Operand::Name(name)) = callee else {
            self.report(Diagnostic::error(
                rule::OPERAND_KIND,
                instruction.span,
                "a call needs the name of a function, or a register that holds its address",
            ));
            return;
        };
        match self.find(name) {
            Some(Entity::Register { .. }) => {}
            Some(Entity::Function(function)) if function.kind == FunctionKind::Func => {
                if self.found.len() == before {
                    let count = |list: Option<&Operand>| match list {
                        Some(Operand::Tuple(list)) => list.len(),
                        _ => 0,
                    };
                    self.counts(function, count(returns), count(args), instruction.span);
                    self.sizes(&function.params, args, instruction.span);
                    self.sizes(&function.returns, returns, instruction.span);
                }
            }
            Some(entity) => {
                let what = match entity {
                    Entity::Function(_) => "a kernel".to_string(),
                    other => other.describe(),
                };
                let place = self.narrow(instruction.span, name);
                self.report(Diagnostic::error(
                    rule::OPERAND_KIND,
                    place,
                    format!("`{name}` is {what}, and can't be called"),
                ));
            }
            None => self.no_function(name, instruction.span),
        }
    }

    fn argument_name(&mut self, operand: &'m Operand, instruction: &'m Instruction) {
        match operand {
            Operand::Name(name)
                if self.find(name).is_none() && special_register(name).is_none() =>
            {
                if name.starts_with('%') {
                    self.undeclared_register(name, instruction.span);
                } else {
                    self.undeclared_variable(name, instruction.span);
                }
            }
            Operand::Name(_) => {}
            other => self.names(other, instruction),
        }
    }

    pub(super) fn no_function(&mut self, name: &str, span: Span) {
        let place = self.narrow(span, name);
        let mut diagnostic = Diagnostic::error(
            rule::UNDECLARED_FUNCTION,
            place,
            format!("function `{name}` is not declared"),
        );
        diagnostic = if self.module.functions().any(|other| other.name == name) {
            diagnostic.help("it is defined further down; declare it above: `.func name (...);`")
        } else if let Some(similar) = self.scopes.similar(name) {
            diagnostic.help(format!("is `{similar}` meant?"))
        } else {
            diagnostic.help("declare it first: `.extern .func name (...);`")
        };
        self.report(diagnostic);
    }

    fn counts(&mut self, function: &'m Function, returns: usize, args: usize, span: Span) {
        for (given, wanted, what) in [
            (args, function.params.len(), "argument"),
            (returns, function.returns.len(), "result"),
        ] {
            if given != wanted {
                let plural = if wanted == 1 { "" } else { "s" };
                let mut diagnostic = Diagnostic::error(
                    rule::CALL_SIGNATURE,
                    span,
                    format!(
                        "`{}` has {wanted} {what}{plural}, and the call has {given}",
                        function.name
                    ),
                );
                if !function.span.is_none() {
                    diagnostic = diagnostic.other(function.span, "declared here");
                }
                self.report(diagnostic);
                return;
            }
        }
    }

    /// An argument in parameter space has the size of what it is passed as.
    fn sizes(&mut self, formals: &'m [Variable], actuals: Option<&'m Operand>, span: Span) {
        let Some(Operand::Tuple(actuals)) = actuals else {
            return;
        };
        for (formal, actual) in formals.iter().zip(actuals) {
            let Operand::Name(name) = actual else {
                continue;
            };
            let size = match self.find(name) {
                Some(Entity::Variable(variable)) => variable.size(),
                Some(Entity::Register { ty, vector: None }) => Some(u64::from(ty.bytes())),
                _ => None,
            };
            if let (Some(size), Some(wanted)) = (size, formal.size()) {
                // Small values travel in wider parameters.
                let small = wanted < 4 || size < 4;
                if size != wanted && !small {
                    let place = self.narrow(span, name);
                    self.report(
                        Diagnostic::error(
                            rule::CALL_SIGNATURE,
                            place,
                            format!(
                                "`{name}` has {size} bytes, and parameter `{}` has {wanted}",
                                formal.name
                            ),
                        )
                        .other(formal.span, "declared here"),
                    );
                }
            }
        }
    }
}
