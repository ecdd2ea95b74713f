//! The names that the text of a policy can use.

use super::{PolicyExpr, PolicyTextError, Value, parser};
use crate::erased::AnyPolicy;
use crate::policies::{
    Adaptive, Every, FairShare, FirstHalf, Fraction, Greedy, MaxSteals, Never, Probability,
    SmLimit, TimeBudget, TokenBucket,
};
use crate::policy::{And, Inverse, Or, Policy};

/// What a parameter is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParameterKind {
    /// A whole number.
    Count,
    /// A number from 0 to 1.
    Part,
    /// A time with a unit.
    Time,
}

impl ParameterKind {
    pub(super) fn expectation(self) -> &'static str {
        match self {
            ParameterKind::Count => "a whole number",
            ParameterKind::Part => "a number from 0 to 1",
            ParameterKind::Time => "a time such as `20us`",
        }
    }
}

/// A parameter of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// What it is called in help texts.
    pub name: &'static str,
    /// What it is.
    pub kind: ParameterKind,
}

/// A policy that text can name.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Lower-case words with hyphens between.
    pub name: &'static str,
    /// What goes into the parentheses.
    pub parameters: &'static [Parameter],
    /// One sentence.
    pub summary: &'static str,
    /// How it is written.
    pub example: &'static str,
    /// Makes it. The values fit `parameters`, in number and kind.
    pub make: fn(&[Value]) -> AnyPolicy,
}

/// The names that text can use.
#[derive(Clone, Debug)]
pub struct Catalogue {
    entries: Vec<Entry>,
}

const fn count(name: &'static str) -> Parameter {
    Parameter {
        name,
        kind: ParameterKind::Count,
    }
}

fn number(args: &[Value], index: usize) -> u32 {
    match args.get(index) {
        Some(Value::Count(n)) => *n,
        _ => 0,
    }
}

fn part(args: &[Value]) -> f64 {
    match args.first() {
        Some(Value::Part(p)) => *p,
        _ => 0.0,
    }
}

const STANDARD: &[Entry] = &[
    Entry {
        name: "greedy",
        parameters: &[],
        summary: "always asks; costs nothing",
        example: "greedy",
        make: |_| AnyPolicy::new(Greedy),
    },
    Entry {
        name: "never",
        parameters: &[],
        summary: "never asks: each block runs its own tile and retires",
        example: "never",
        make: |_| AnyPolicy::new(Never),
    },
    Entry {
        name: "max-steals",
        parameters: &[count("n")],
        summary: "stops after n stolen tiles",
        example: "max-steals(8)",
        make: |args| {
            AnyPolicy::new(MaxSteals {
                limit: number(args, 0),
            })
        },
    },
    Entry {
        name: "every",
        parameters: &[count("n")],
        summary: "takes the first of every n opportunities; a last call is one too",
        example: "every(2)",
        make: |args| AnyPolicy::new(Every { n: number(args, 0) }),
    },
    Entry {
        name: "time-budget",
        parameters: &[Parameter {
            name: "time",
            kind: ParameterKind::Time,
        }],
        summary: "stops asking once the block has run this long",
        example: "time-budget(50us)",
        make: |args| {
            let nanoseconds = match args.first() {
                Some(Value::Time(ns)) => *ns,
                _ => 0,
            };
            AnyPolicy::new(TimeBudget { nanoseconds })
        },
    },
    Entry {
        name: "first-half",
        parameters: &[],
        summary: "the first half of the launched blocks ask",
        example: "first-half",
        make: |_| AnyPolicy::new(FirstHalf),
    },
    Entry {
        name: "fraction",
        parameters: &[Parameter {
            name: "part",
            kind: ParameterKind::Part,
        }],
        summary: "the first part of the launched blocks ask",
        example: "fraction(0.25)",
        make: |args| AnyPolicy::new(Fraction { part: part(args) }),
    },
    Entry {
        name: "fair-share",
        parameters: &[],
        summary: "stops at an equal share of the tiles",
        example: "fair-share",
        make: |_| AnyPolicy::new(FairShare),
    },
    Entry {
        name: "token-bucket",
        parameters: &[count("rate"), count("burst")],
        summary: "a request costs a token; a block gets rate tokens a millisecond and holds up to burst",
        example: "token-bucket(500, 4)",
        make: |args| {
            AnyPolicy::new(TokenBucket {
                rate: number(args, 0),
                burst: number(args, 1),
            })
        },
    },
    Entry {
        name: "probability",
        parameters: &[Parameter {
            name: "p",
            kind: ParameterKind::Part,
        }],
        summary: "takes each opportunity with this probability",
        example: "probability(0.75)",
        make: |args| AnyPolicy::new(Probability { p: part(args) }),
    },
    Entry {
        name: "sm-limit",
        parameters: &[count("n")],
        summary: "only blocks on the first n multiprocessors ask, which leaves room on the others",
        example: "sm-limit(100)",
        make: |args| {
            AnyPolicy::new(SmLimit {
                sms: number(args, 0),
            })
        },
    },
    Entry {
        name: "adaptive",
        parameters: &[],
        summary: "asks early while tiles are alike, late where one took more than twice the mean",
        example: "adaptive",
        make: |_| AnyPolicy::new(Adaptive),
    },
];

impl Catalogue {
    /// The policies that come with Heist.
    pub fn standard() -> Catalogue {
        Catalogue {
            entries: STANDARD.to_vec(),
        }
    }

    /// Adds a policy; one with the same name goes.
    #[must_use]
    pub fn with(mut self, entry: Entry) -> Catalogue {
        self.entries.retain(|other| other.name != entry.name);
        self.entries.push(entry);
        self
    }

    /// All of them.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The one called `name`.
    pub fn entry(&self, name: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.name == name)
    }

    /// Reads the text of a policy.
    ///
    /// # Errors
    /// Where it stops making sense, and what would make sense there.
    pub fn parse(&self, text: &str) -> Result<PolicyExpr, PolicyTextError> {
        parser::parse(self, text)
    }

    /// Reads the text of a policy and makes the policy, under the canonical
    /// form of that text.
    ///
    /// # Errors
    /// Where it stops making sense, and what would make sense there.
    pub fn policy(&self, text: &str) -> Result<AnyPolicy, PolicyTextError> {
        let expression = self.parse(text)?;
        Ok(self.make(&expression))
    }

    /// Makes the policy that an expression of this catalogue describes. A name
    /// that is not in it never asks.
    pub fn make(&self, expression: &PolicyExpr) -> AnyPolicy {
        let policy = match expression {
            PolicyExpr::Call { name, args } => match self.entry(name) {
                Some(entry) => (entry.make)(args),
                None => AnyPolicy::new(Never),
            },
            PolicyExpr::Not(inner) => AnyPolicy::new(Inverse(self.make(inner))),
            PolicyExpr::And(left, right) => AnyPolicy::new(And(self.make(left), self.make(right))),
            PolicyExpr::Or(left, right) => AnyPolicy::new(Or(self.make(left), self.make(right))),
        };
        debug_assert!(!policy.name().is_empty());
        policy.called(expression.to_string())
    }
}
