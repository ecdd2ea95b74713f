//! One instruction: its guard, its opcode, its operands.

use super::operand::{self, Complaint, Operands};
use super::scope::Entity;
use super::signature::{self, BadOpcode};
use super::{Validator, needs, opcode};
use crate::diagnostic::Diagnostic;
use crate::instruction::{Constant, Instruction, Operand};
use crate::module::{AddressSize, Name};
use crate::rule;
use crate::span::Span;
use crate::types::{ScalarType, Space};

impl<'m> Validator<'m> {
    pub(super) fn instruction(&mut self, instruction: &'m Instruction) {
        if let Some(guard) = &instruction.guard {
            self.guard(&guard.register, instruction.span);
        }
        let op = &instruction.opcode;
        if !opcode::is_known(op.base()) {
            let place = self.narrow(instruction.span, op.as_str());
            let mut diagnostic = Diagnostic::error(
                rule::UNKNOWN_OPCODE,
                place,
                format!("PTX has no instruction `{}`", op.base()),
            );
            if let Some(similar) = opcode::similar(op.base()) {
                diagnostic = diagnostic.help(format!("is `{similar}` meant?"));
            }
            self.report(diagnostic);
            return;
        }
        let is_pred = |name: &str| {
            matches!(
                self.scopes.find(name),
                Some(Entity::Register {
                    ty: ScalarType::Pred,
                    ..
                })
            )
        };
        for feature in needs::needs_of(instruction, is_pred) {
            if !self.feature(feature, instruction.span, &format!("`{op}`")) {
                break;
            }
        }
        if op.base() == "call" {
            self.call(instruction);
            return;
        }
        let before = self.found.len();
        for operand in &instruction.operands {
            self.names(operand, instruction);
        }
        // With a name missing, what its operand is can only be guessed at.
        if self.found.len() == before {
            self.operands(instruction);
        }
    }

    fn guard(&mut self, name: &Name, span: Span) {
        match self.scopes.find(name) {
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

    fn operands(&mut self, instruction: &'m Instruction) {
        let op = &instruction.opcode;
        let signature = match signature::signature(op) {
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
            specials: matches!(op.base(), "mov" | "cvt"),
        };
        let wide = self.module.address_size == AddressSize::Bits64;
        // Each complaint with the operand it is about.
        let mut complaints: Vec<(usize, Complaint)> = Vec::new();
        if op.base() == "mov" {
            let ty = op.modifiers().find_map(|m| m.parse().ok());
            let vector = op.has("v2") || op.has("v4");
            if let (Some(ty), false) = (ty, vector) {
                for (at, operand) in instruction.operands.iter().enumerate() {
                    let verdict = match at {
                        0 => operands.mov_to(ty, operand),
                        _ => operands.mov_from(ty, operand),
                    };
                    complaints.extend(verdict.err().map(|complaint| (at, complaint)));
                }
            }
        }
        let accesses = matches!(op.base(), "ld" | "ldu" | "st" | "atom" | "red");
        let space = op.modifiers().find_map(state_space);
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
        complaints.extend(ranges(instruction));
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

/// Constants that only some values are allowed for.
fn ranges(instruction: &Instruction) -> Option<(usize, Complaint)> {
    let op = &instruction.opcode;
    let value = |at: usize| match instruction.operands.get(at) {
        Some(Operand::Constant(Constant::Int(value))) => Some(*value),
        _ => None,
    };
    let complaint = |at: usize, message: String, help: &str| {
        let complaint = Complaint {
            code: rule::IMMEDIATE_RANGE,
            message,
            help: Some(help.into()),
            name: None,
        };
        Some((at, complaint))
    };
    match op.base() {
        "bar" | "barrier" if !op.has("cluster") && !op.has("warp") && !op.has("red") => {
            if let Some(id) = value(0)
                && (id.negative || id.magnitude > 15)
            {
                let sign = if id.negative { "-" } else { "" };
                return complaint(
                    0,
                    format!("there is no barrier {sign}{}", id.magnitude),
                    "a block has barriers 0 to 15",
                );
            }
            let threads = value(1)?;
            if threads.magnitude % 32 != 0 {
                return complaint(
                    1,
                    format!("a barrier can't wait for {} threads", threads.magnitude),
                    "whole warps meet at a barrier: a multiple of 32",
                );
            }
            None
        }
        "setmaxnreg" => {
            let count = value(0)?;
            let fits = (24..=256).contains(&count.magnitude) && count.magnitude % 8 == 0;
            if fits && !count.negative {
                return None;
            }
            complaint(
                0,
                format!("a thread can't be given {} registers", count.magnitude),
                "`setmaxnreg` takes 24 to 256, in multiples of 8",
            )
        }
        "cp" if (op.has("ca") || op.has("cg")) && !op.has("bulk") => {
            let bytes = value(2)?;
            let allowed: &[u64] = if op.has("cg") { &[16] } else { &[4, 8, 16] };
            if !bytes.negative && allowed.contains(&bytes.magnitude) {
                return None;
            }
            complaint(
                2,
                format!("`{op}` can't copy {} bytes", bytes.magnitude),
                if op.has("cg") {
                    "`.cg` copies 16 bytes; `.ca` copies 4, 8 or 16"
                } else {
                    "it copies 4, 8 or 16 bytes"
                },
            )
        }
        _ => None,
    }
}

/// The state space that a modifier names; parts of shared memory are shared memory.
fn state_space(modifier: &str) -> Option<Space> {
    match modifier.split("::").next()? {
        "global" => Some(Space::Global),
        "shared" => Some(Space::Shared),
        "local" => Some(Space::Local),
        "const" => Some(Space::Const),
        "param" => Some(Space::Param),
        _ => None,
    }
}
