//! The verifier: refuses words that are not a valid program.

use super::step::{Op, Section, Type};
use super::words::{HEAD, PolicyWords, VERSION, checksum};
use super::{MOST_STEPS, REGISTERS, STATES};
use crate::control::POLICY_WORDS;
use heist_ptx::{Code, rule};

/// Why words are not a valid policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{code}: {why}{}", place(*.section, *.step))]
pub struct Refusal {
    /// The rule that is broken: `heist explain` has a page for it.
    pub code: Code,
    /// What is wrong.
    pub why: String,
    /// The section, where one is to blame.
    pub section: Option<Section>,
    /// The step, counted from the start of the program.
    pub step: Option<usize>,
}

fn place(section: Option<Section>, step: Option<usize>) -> String {
    match (section, step) {
        (Some(section), Some(step)) => format!(" (step {step}, in `{}`)", section.as_str()),
        (Some(section), None) => format!(" (in `{}`)", section.as_str()),
        _ => String::new(),
    }
}

fn whole(code: Code, why: impl Into<String>) -> Refusal {
    Refusal {
        code,
        why: why.into(),
        section: None,
        step: None,
    }
}

/// What the verifier knows while it walks through a program.
struct Walk {
    section: Section,
    step: usize,
    registers: [Option<Type>; REGISTERS],
    states: [Option<Type>; STATES],
    /// Shared words that the program has.
    words: u32,
    answered: bool,
}

impl PolicyWords {
    /// Whether they are a policy.
    ///
    /// # Errors
    /// The first rule that they break, and where.
    pub fn verify(&self) -> Result<(), Refusal> {
        let words = &self.0;
        let (ends, shared) = head(words)?;
        let mut walk = Walk {
            section: Section::Init,
            step: 0,
            registers: [None; REGISTERS],
            states: [None; STATES],
            words: shared,
            answered: false,
        };
        for section in Section::ALL {
            walk.section = section;
            walk.registers = [None; REGISTERS];
            walk.answered = false;
            while walk.step < ends[section as usize] {
                walk.check(words[HEAD + walk.step])?;
                walk.step += 1;
            }
            if section.answers() && !walk.answered {
                return Err(Refusal {
                    section: Some(section),
                    ..whole(rule::POLICY_ANSWER, "there is no answer at the end")
                });
            }
        }
        Ok(())
    }
}

/// The ends of the sections, and the number of shared words.
fn head(words: &[u64]) -> Result<([usize; 4], u32), Refusal> {
    let malformed = |why: String| Err(whole(rule::POLICY_HEAD, why));
    if words.len() < HEAD {
        return malformed(format!("{} words are too few for a policy", words.len()));
    }
    let head = words[0];
    if head >> 40 != VERSION {
        return malformed(format!(
            "version {} is not {VERSION}, which this kernel understands",
            head >> 40
        ));
    }
    let ends = Section::ALL.map(|section| (head >> (8 * section as u64)) as u8 as usize);
    let steps = words.len() - HEAD;
    if steps > MOST_STEPS {
        return malformed(format!("{steps} steps are more than {MOST_STEPS}"));
    }
    if ends.windows(2).any(|pair| pair[0] > pair[1]) || ends[3] != steps {
        return malformed(format!(
            "sections that end at {ends:?} do not divide {steps} steps"
        ));
    }
    let shared = (head >> 32) as u8;
    if u32::from(shared) > POLICY_WORDS {
        return malformed(format!(
            "{shared} shared words are more than {POLICY_WORDS}"
        ));
    }
    if words[1] != checksum(words) {
        return malformed("the checksum is another one: a word was changed".into());
    }
    Ok((ends, shared.into()))
}

impl Walk {
    fn refuse<T>(&self, code: Code, why: String) -> Result<T, Refusal> {
        Err(Refusal {
            code,
            why,
            section: Some(self.section),
            step: Some(self.step),
        })
    }

    fn check(&mut self, word: u64) -> Result<(), Refusal> {
        if self.answered {
            return self.refuse(rule::POLICY_ANSWER, "a step behind the answer".into());
        }
        let Some(op) = Op::from_number(word as u8) else {
            return self.refuse(
                rule::POLICY_STEP,
                format!("there is no operation {:#04x}", word as u8),
            );
        };
        let Some(ty) = Type::ALL.get((word >> 24 & 3) as usize).copied() else {
            return self.refuse(rule::POLICY_STEP, "there is no fourth type".into());
        };
        let unused = (word >> (12 + 4 * op.arguments())) & ((1 << (12 - 4 * op.arguments())) - 1);
        if unused != 0 || word >> 26 & 0x3f != 0 {
            return self.refuse(
                rule::POLICY_STEP,
                format!("`{}` has bits in fields that it does not use", op.as_str()),
            );
        }
        let mut taken = [Type::Bool; 3];
        for (place, taken) in taken[..op.arguments()].iter_mut().enumerate() {
            let register = (word >> (12 + 4 * place) & 15) as usize;
            let Some(ty) = self.registers[register] else {
                return self.refuse(
                    rule::POLICY_UNWRITTEN,
                    format!(
                        "`{}` takes r{register}, which holds nothing yet",
                        op.as_str()
                    ),
                );
            };
            *taken = ty;
        }
        let number = (word >> 32) as u32;
        self.types(op, ty, &taken[..op.arguments()])?;
        self.number(op, ty, number)?;
        match op {
            Op::Answer if !self.section.answers() => {
                return self.refuse(rule::POLICY_ANSWER, "nobody asks here".into());
            }
            Op::Answer => self.answered = true,
            Op::Granted if self.section != Section::Granted => {
                return self.refuse(rule::POLICY_STEP, "no tile was granted here".into());
            }
            _ => {}
        }
        if op.has_value() {
            self.registers[(word >> 8 & 15) as usize] = Some(ty);
        } else if word >> 8 & 15 != 0 {
            return self.refuse(
                rule::POLICY_STEP,
                format!(
                    "`{}` leaves no value, and names a register for it",
                    op.as_str()
                ),
            );
        }
        Ok(())
    }

    /// Whether what goes in and what comes out fit the operation.
    fn types(&self, op: Op, ty: Type, taken: &[Type]) -> Result<(), Refusal> {
        use Type::{Bool, U32, U64};
        let number = ty != Bool;
        let fits = match op {
            Op::Const | Op::Get => true,
            Op::High => (ty, taken) == (U64, &[U32]),
            Op::Set => taken == [ty],
            Op::Answer | Op::Not => (ty, taken) == (Bool, &[Bool]),
            Op::Nanoseconds => ty == U64,
            Op::Sm | Op::Worker | Op::Workers | Op::Tiles | Op::Resident | Op::Granted => ty == U32,
            Op::Bell => ty == Bool,
            Op::Add | Op::Sub | Op::Mul | Op::Div | Op::Min | Op::Max => {
                number && taken == [ty, ty]
            }
            Op::MulHigh => ty == U32 && taken == [U32, U32],
            Op::And | Op::Or | Op::Xor => taken == [ty, ty],
            Op::Shr => number && taken == [ty],
            Op::Less | Op::AtMost | Op::Equal => {
                ty == Bool && taken[0] == taken[1] && taken[0] != Bool
            }
            Op::Select => taken == [Bool, ty, ty],
            Op::Cast => matches!((ty, taken), (U64, [U32]) | (U32, [U64])),
            Op::WordAdd | Op::WordMax => (ty, taken) == (U64, &[U64, Bool]),
        };
        if fits {
            return Ok(());
        }
        let taken: Vec<_> = taken.iter().map(Type::to_string).collect();
        self.refuse(
            rule::POLICY_TYPES,
            format!(
                "`{}` does not make {ty} of ({})",
                op.as_str(),
                taken.join(", ")
            ),
        )
    }

    /// Whether the number of a step names something that there is.
    fn number(&mut self, op: Op, ty: Type, number: u32) -> Result<(), Refusal> {
        match op {
            Op::Const if ty == Type::Bool && number > 1 => {
                self.refuse(rule::POLICY_TYPES, format!("{number} is no truth value"))
            }
            Op::Get | Op::Set => {
                let Some(state) = self.states.get(number as usize).copied() else {
                    return self.refuse(
                        rule::POLICY_STATE,
                        format!("state {number} is more than there are, {STATES}"),
                    );
                };
                match state {
                    // `init` gives it its type.
                    None if op == Op::Set && self.section == Section::Init => {
                        self.states[number as usize] = Some(ty);
                        Ok(())
                    }
                    None => self.refuse(
                        rule::POLICY_STATE,
                        format!("state {number} was not set in `init`"),
                    ),
                    Some(state) if state != ty => self.refuse(
                        rule::POLICY_TYPES,
                        format!("state {number} is {state}, not {ty}"),
                    ),
                    Some(_) => Ok(()),
                }
            }
            Op::WordAdd | Op::WordMax if number >= self.words => self.refuse(
                rule::POLICY_STATE,
                format!("shared word {number} is more than it has, {}", self.words),
            ),
            Op::Shr if number >= if ty == Type::U64 { 64 } else { 32 } => self.refuse(
                rule::POLICY_STEP,
                format!("a shift by {number} leaves nothing of {ty}"),
            ),
            Op::Const | Op::High | Op::WordAdd | Op::WordMax | Op::Shr => Ok(()),
            _ if number != 0 => self.refuse(
                rule::POLICY_STEP,
                format!("`{}` has a number that it does not use", op.as_str()),
            ),
            _ => Ok(()),
        }
    }
}
