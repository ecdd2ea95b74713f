//! The steps of a program.

use std::fmt;

/// What a value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Type {
    /// A truth value.
    Bool = 0,
    /// 32 bits, unsigned.
    U32 = 1,
    /// 64 bits, unsigned.
    U64 = 2,
}

impl Type {
    pub(crate) const ALL: [Type; 3] = [Type::Bool, Type::U32, Type::U64];
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Type::Bool => "bool",
            Type::U32 => "u32",
            Type::U64 => "u64",
        })
    }
}

/// The callbacks of a policy, in the order of their steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Section {
    /// Once, when a block takes the policy up: sets every state.
    Init = 0,
    /// Before a request: submit one?
    Ask = 1,
    /// After a grant: ask again later?
    Granted = 2,
    /// Once, when the block leaves or takes up another policy.
    Leave = 3,
}

impl Section {
    /// All of them, in order.
    pub const ALL: [Section; 4] = [
        Section::Init,
        Section::Ask,
        Section::Granted,
        Section::Leave,
    ];

    /// Whether it ends with an answer.
    pub const fn answers(self) -> bool {
        matches!(self, Section::Ask | Section::Granted)
    }

    /// Its name in messages.
    pub const fn as_str(self) -> &'static str {
        match self {
            Section::Init => "init",
            Section::Ask => "ask",
            Section::Granted => "granted",
            Section::Leave => "leave",
        }
    }
}

macro_rules! ops {
    ($($(#[doc = $doc:literal])* $name:ident $text:literal $arguments:literal;)*) => {
        /// What a step does. The numbers are part of the encoding.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Op { $($(#[doc = $doc])* $name,)* }

        impl Op {
            /// All of them, in the order of their numbers.
            pub const ALL: &[Op] = &[$(Op::$name),*];

            /// Its name in listings.
            pub const fn as_str(self) -> &'static str {
                match self { $(Op::$name => $text,)* }
            }

            /// How many values it takes.
            pub const fn arguments(self) -> usize {
                match self { $(Op::$name => $arguments,)* }
            }
        }
    };
}

ops! {
    /// A number of up to 32 bits.
    Const "const" 0;
    /// A value of 32 bits below the number: together 64.
    High "high" 1;
    /// What a state holds; the number says which.
    Get "get" 0;
    /// Writes a state.
    Set "set" 1;
    /// The answer of the section.
    Answer "answer" 1;
    /// The GPU's clock in nanoseconds.
    Nanoseconds "nanoseconds" 0;
    /// The number of the multiprocessor.
    Sm "sm" 0;
    /// The block's number among the launched.
    Worker "worker" 0;
    /// How many were launched.
    Workers "workers" 0;
    /// How many tiles there are.
    Tiles "tiles" 0;
    /// How many blocks run at a time.
    Resident "resident" 0;
    /// Whether somebody asks for the GPU.
    Bell "bell" 0;
    /// The place of the granted tile in the order of tiles.
    Granted "granted" 0;
    /// A sum.
    Add "add" 2;
    /// A difference.
    Sub "sub" 2;
    /// A product.
    Mul "mul" 2;
    /// The upper half of a product of 32 bits.
    MulHigh "mul-high" 2;
    /// A quotient; a policy that divides by zero misbehaves.
    Div "div" 2;
    /// The smaller one.
    Min "min" 2;
    /// The larger one.
    Max "max" 2;
    /// Bits of both.
    And "and" 2;
    /// Bits of either.
    Or "or" 2;
    /// Bits of one.
    Xor "xor" 2;
    /// Shifted to the right; the number says how far.
    Shr "shr" 1;
    /// The opposite of a truth value.
    Not "not" 1;
    /// Less than.
    Less "less" 2;
    /// At most.
    AtMost "at-most" 2;
    /// The same.
    Equal "equal" 2;
    /// The second where the first holds, else the third.
    Select "select" 3;
    /// The same value with another width.
    Cast "cast" 1;
    /// Adds to a shared word where the second holds; what was there before.
    WordAdd "word-add" 2;
    /// Writes the larger one to a shared word where the second holds; what was there before.
    WordMax "word-max" 2;
}

impl Op {
    /// The one with this number.
    pub(crate) fn from_number(number: u8) -> Option<Op> {
        Op::ALL.get(usize::from(number)).copied()
    }

    /// Whether it does more than compute a value.
    pub(crate) const fn has_effect(self) -> bool {
        matches!(self, Op::Set | Op::Answer | Op::WordAdd | Op::WordMax)
    }

    /// Whether it leaves a value.
    pub(crate) const fn has_value(self) -> bool {
        !matches!(self, Op::Set | Op::Answer)
    }
}

/// One step: what it does, with which values of earlier steps of its section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// What it does.
    pub op: Op,
    /// The type of its result; for a step without a result, of its argument.
    pub ty: Type,
    /// Earlier steps, as many as the operation takes; zero behind them.
    pub args: [u16; 3],
    /// A constant, a number of a state or a shared word, a distance.
    pub number: u32,
}

/// A policy as a program.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Program {
    pub(crate) sections: [Vec<Step>; 4],
    /// What each state is called.
    pub(crate) states: Vec<&'static str>,
    /// Words that its blocks share.
    pub(crate) words: u32,
}

impl Program {
    /// One that gives this answer every time.
    pub fn always(answer: bool) -> Program {
        let constant = Step {
            op: Op::Const,
            ty: Type::Bool,
            args: [0; 3],
            number: answer.into(),
        };
        let steps = vec![constant, self::answer(0)];
        Program {
            sections: [vec![], steps.clone(), steps, vec![]],
            ..Program::default()
        }
    }

    /// The steps of a callback.
    pub fn steps(&self, section: Section) -> &[Step] {
        &self.sections[section as usize]
    }

    /// All steps.
    pub fn len(&self) -> usize {
        self.sections.iter().map(Vec::len).sum()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The answer that it gives every time, where its steps are nothing else.
    pub fn constant(&self) -> Option<bool> {
        let answer = |section| match self.steps(section) {
            [constant, answer] if constant.op == Op::Const && answer.op == Op::Answer => {
                Some(constant.number != 0)
            }
            _ => None,
        };
        let ask = answer(Section::Ask)?;
        let idle = self.steps(Section::Init).is_empty() && self.steps(Section::Leave).is_empty();
        (idle && answer(Section::Granted) == Some(ask)).then_some(ask)
    }

    /// Whether a grant changes anything that it remembers, or that its blocks share.
    pub(crate) fn remembers_grants(&self) -> bool {
        let steps = self.steps(Section::Granted).iter();
        steps
            .into_iter()
            .any(|step| step.op.has_effect() && step.op != Op::Answer)
    }

    /// The same without steps whose value nobody uses.
    pub(crate) fn tidied(mut self) -> Program {
        for steps in &mut self.sections {
            let mut used = vec![false; steps.len()];
            for (at, step) in steps.iter().enumerate().rev() {
                used[at] |= step.op.has_effect();
                if used[at] {
                    for arg in &step.args[..step.op.arguments()] {
                        used[usize::from(*arg)] = true;
                    }
                }
            }
            let mut places = Vec::with_capacity(steps.len());
            let mut kept = 0u16;
            for used in &used {
                places.push(kept);
                kept += u16::from(*used);
            }
            let mut at = 0;
            steps.retain_mut(|step| {
                for arg in &mut step.args[..step.op.arguments()] {
                    *arg = places[usize::from(*arg)];
                }
                at += 1;
                used[at - 1]
            });
        }
        self
    }

    /// Both, each with states and words of its own, their answers joined by `op`.
    fn joined(mut self, other: &Program, op: Op) -> Program {
        for section in Section::ALL {
            let mine = &mut self.sections[section as usize];
            let first = if section.answers() {
                mine.pop().map(|answer| answer.args[0])
            } else {
                None
            };
            let shift = mine.len() as u16;
            let mut theirs = other.steps(section).to_vec();
            let second = if section.answers() {
                theirs.pop().map(|answer| answer.args[0] + shift)
            } else {
                None
            };
            for mut step in theirs {
                for arg in &mut step.args[..step.op.arguments()] {
                    *arg += shift;
                }
                match step.op {
                    Op::Get | Op::Set => step.number += self.states.len() as u32,
                    Op::WordAdd | Op::WordMax => step.number += self.words,
                    _ => {}
                }
                mine.push(step);
            }
            if let (Some(first), Some(second)) = (first, second) {
                mine.push(Step {
                    op,
                    ty: Type::Bool,
                    args: [first, second, 0],
                    number: 0,
                });
                let joined = mine.len() as u16 - 1;
                mine.push(answer(joined));
            }
        }
        self.states.extend(&other.states);
        self.words += other.words;
        self
    }

    /// Holds where both hold.
    pub(crate) fn and(self, other: &Program) -> Program {
        self.joined(other, Op::And)
    }

    /// Holds where one of them holds.
    pub(crate) fn or(self, other: &Program) -> Program {
        self.joined(other, Op::Or)
    }

    /// Answers the opposite.
    pub(crate) fn inverse(mut self) -> Program {
        for section in [Section::Ask, Section::Granted] {
            let steps = &mut self.sections[section as usize];
            if let Some(last) = steps.pop() {
                steps.push(Step {
                    op: Op::Not,
                    ty: Type::Bool,
                    args: last.args,
                    number: 0,
                });
                let inverse = steps.len() as u16 - 1;
                steps.push(answer(inverse));
            }
        }
        self
    }
}

/// The step that answers with the value of another.
pub(crate) fn answer(of: u16) -> Step {
    Step {
        op: Op::Answer,
        ty: Type::Bool,
        args: [of, 0, 0],
        number: 0,
    }
}
