//! One instruction: its guard, its opcode, its operands.

use super::entity::Entity;
use super::operand::{self, Complaint, Operands};
use super::{Target, Validator};
use crate::diagnostic::Diagnostic;
use crate::instruction::Instruction;
use crate::isa::{self, BadOpcode, Control, Memory, Row};
use crate::module::{AddressSize, Name, Version};
use crate::rule;
use crate::span::Span;
use crate::types::ScalarType;

impl<'m> Validator<'m> {
    pub(super) fn instruction(&mut self, instruction: &'m Instruction) {
        if let Some(guard) = &instruction.guard {
            self.guard(&guard.register, instruction.span);
        }
        let op = &instruction.opcode;
        let Some(row) = op.row() else {
            // What begins with an underscore is internal to the vendor's compilers.
            if !op.base().starts_with('_') {
                self.unknown(instruction);
                return;
            }
            for operand in &instruction.operands {
                self.names(operand, instruction);
            }
            return;
        };
        let is_pred = |name: &str| {
            matches!(
                self.find(name),
                Some(Entity::Register {
                    ty: ScalarType::Pred,
                    ..
                })
            )
        };
        for feature in isa::needs_of(instruction, &is_pred) {
            if !self.feature(feature, instruction.span, &format!("`{op}`")) {
                break;
            }
        }
        if let Some((word, meant)) = op
            .modifiers()
            .find_map(|word| Some((word, isa::misspelt(word)?)))
        {
            self.report(
                Diagnostic::error(
                    rule::BAD_MODIFIER,
                    self.narrow(instruction.span, op.as_str()),
                    format!("no instruction has a modifier `.{word}`"),
                )
                .help(format!("is `.{meant}` meant?")),
            );
            return;
        }
        if matches!(op.base(), "shfl" | "vote") && !op.has("sync") && self.wants_sync() {
            self.report(
                Diagnostic::error(
                    rule::MISSING_MODIFIER,
                    self.narrow(instruction.span, op.as_str()),
                    format!("`{op}` lacks `.sync`"),
                )
                .help(format!(
                    "write `{}.sync`, and the lanes that take part as the last operand: `0xffffffff` is all",
                    op.base()
                )),
            );
            return;
        }
        if row.control == Control::Call {
            self.call(instruction);
            return;
        }
        let before = self.found.len();
        for operand in &instruction.operands {
            self.names(operand, instruction);
        }
        // With a name missing, what its operand is can only be guessed at.
        if self.found.len() == before {
            self.operands(instruction, row);
        }
    }

    fn unknown(&mut self, instruction: &Instruction) {
        let op = &instruction.opcode;
        let mut diagnostic = Diagnostic::error(
            rule::UNKNOWN_OPCODE,
            self.narrow(instruction.span, op.as_str()),
            format!("PTX has no instruction `{}`", op.base()),
        );
        if let Some(similar) = isa::similar(op.base()) {
            diagnostic = diagnostic.help(format!("is `{similar}` meant?"));
        }
        self.report(diagnostic);
    }

    /// Whether lanes must say with whom they exchange: on these targets they don't run in step.
    fn wants_sync(&self) -> bool {
        let diverges = match self.target {
            Target::Known(_) => true,
            Target::Old(old) => old.number >= 70,
            Target::Unknown => false,
        };
        diverges && self.module.version >= Version::new(6, 4)
    }

    fn guard(&mut self, name: &Name, span: Span) {
        match self.find(name) {
            Some(Entity::Register { ty, vector: None })
                if operand::fits(ty, ScalarType::Pred, false) => {}
            Some(entity) => {
                let place = self.narrow(span, name);
                self.report(
                    Diagnostic::error(
                        rule::GUARD_TYPE,
                        place,
                        format!("guard `{name}` is {}, not a predicate", entity.describe()),
                    )
                    .help("compare first: `setp.ne.b32 %p, value, 0`"),
                );
            }
            None => self.undeclared_register(name, span),
        }
    }

    fn operands(&mut self, instruction: &'m Instruction, row: &Row) {
        let op = &instruction.opcode;
        let signature = match row.operands(op) {
            Ok(Some(signature)) => signature,
            Ok(None) => return,
            Err(BadOpcode::Missing(what)) => {
                self.report(Diagnostic::error(
                    rule::MISSING_MODIFIER,
                    self.narrow(instruction.span, op.as_str()),
                    format!("`{op}` lacks {what}"),
                ));
                return;
            }
            Err(BadOpcode::Type(ty, why)) => {
                self.report(
                    Diagnostic::error(
                        rule::BAD_MODIFIER,
                        self.narrow(instruction.span, op.as_str()),
                        format!("`{}` does not take the type `.{ty}`", op.base()),
                    )
                    .note(why),
                );
                return;
            }
            Err(BadOpcode::Modifier(word, why)) => {
                self.report(
                    Diagnostic::error(
                        rule::BAD_MODIFIER,
                        self.narrow(instruction.span, op.as_str()),
                        format!("`{op}` can't have `.{word}`"),
                    )
                    .note(why),
                );
                return;
            }
        };
        let given = instruction.operands.len();
        let most = signature.slots.len();
        if given < signature.required || given > most {
            let wanted = if signature.required == most {
                most.to_string()
            } else {
                format!("{} to {most}", signature.required)
            };
            self.report(Diagnostic::error(
                rule::OPERAND_COUNT,
                instruction.span,
                format!(
                    "`{op}` takes {wanted} operand{}, and {given} {} given",
                    if wanted == "1" { "" } else { "s" },
                    if given == 1 { "is" } else { "are" }
                ),
            ));
            return;
        }
        let operands = Operands {
            scopes: &self.scopes,
            specials: row.reads_special,
        };
        let wide = self.module.address_size == AddressSize::Bits64;
        // Each complaint with the operand it is about.
        let mut complaints: Vec<(usize, Complaint)> = Vec::new();
        let memory = row.memory_of(op);
        let accesses = row.unit == isa::Unit::Memory && memory != Memory::None;
        let space = isa::space_of(op);
        for (at, (slot, operand)) in signature
            .slots
            .iter()
            .zip(&instruction.operands)
            .enumerate()
        {
            let mut verdict = operands.check(*slot, operand);
            if accesses {
                verdict = verdict.and_then(|()| operands.address(operand, space, wide));
            }
            complaints.extend(verdict.err().map(|complaint| (at, complaint)));
        }
        complaints.extend(row.out_of_range(instruction).map(|found| {
            let complaint = Complaint {
                code: rule::IMMEDIATE_RANGE,
                message: found.message,
                help: Some(found.help.into()),
                name: None,
            };
            (found.at, complaint)
        }));
        for (at, complaint) in complaints {
            let whole = self.operand_span(instruction, at);
            let place = match &complaint.name {
                Some(name) => self.narrow(whole, name),
                None => whole,
            };
            let mut diagnostic = Diagnostic::error(complaint.code, place, complaint.message);
            if place.start != instruction.span.start {
                diagnostic = diagnostic.label(format!("in `{op}`"));
            }
            if let Some(help) = complaint.help {
                diagnostic = diagnostic.help(help);
            }
            self.report(diagnostic);
        }
    }

    /// The place of one operand, when there is a text to look in.
    fn operand_span(&self, instruction: &Instruction, index: usize) -> Span {
        let span = instruction.span;
        let text = self.source.map_or("", |source| source.slice(span));
        let opcode = instruction.opcode.as_str();
        let Some(start) = text.find(opcode).map(|at| at + opcode.len()) else {
            return span;
        };
        let mut depth = 0;
        let mut from = start;
        let mut seen = 0;
        for (at, byte) in text.bytes().enumerate().skip(start) {
            match byte {
                b'[' | b'{' | b'(' => depth += 1,
                b']' | b'}' | b')' => depth -= 1,
                b',' if depth == 0 => {
                    if seen == index {
                        return trimmed(span, text, from, at);
                    }
                    seen += 1;
                    from = at + 1;
                }
                _ => {}
            }
        }
        if seen == index {
            trimmed(span, text, from, text.len())
        } else {
            span
        }
    }
}

/// The part of `span`'s text from `from` to `to`, without the blanks around it.
fn trimmed(span: Span, text: &str, from: usize, to: usize) -> Span {
    let part = &text[from..to];
    let start = from + (part.len() - part.trim_start().len());
    let end = start + part.trim().trim_end_matches(';').len();
    let base = span.start as usize;
    Span::new(base + start, base + end)
}
