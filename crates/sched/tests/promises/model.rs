//! What the tile loop does with a policy's answers, in plain Rust.
//!
//! For a policy that only counts and looks around, every decision of a block
//! follows from what it was granted. So the whole sequence is computed a second
//! time, by other code than the kernel's, and compared.

use super::run::{BlockRun, Seen, Setting};
use heist_launch::DecisionKind::{self, Declined, Granted, Overruled, Refused, Requested};
use heist_sched::text::Value;
use heist_sched::{PolicyExpr, TileSource};

/// A policy in one block.
pub(crate) enum Model {
    Always(bool),
    MaxSteals {
        limit: u32,
        stolen: u32,
    },
    Every {
        n: u32,
        turn: u32,
    },
    /// Steals that are left of a share.
    Left(u32),
    Not(Box<Model>),
    And(Box<Model>, Box<Model>),
    Or(Box<Model>, Box<Model>),
}

impl Model {
    /// Of a block of a launch. Policies that look at a clock or at dice have none.
    pub(crate) fn new(policy: &PolicyExpr, block: &BlockRun, seen: &Seen) -> Model {
        let new = |policy: &PolicyExpr| Box::new(Model::new(policy, block, seen));
        match policy {
            PolicyExpr::Not(a) => Model::Not(new(a)),
            PolicyExpr::And(a, b) => Model::And(new(a), new(b)),
            PolicyExpr::Or(a, b) => Model::Or(new(a), new(b)),
            PolicyExpr::Call { name, args } => match (name.as_str(), args.as_slice()) {
                ("greedy", []) => Model::Always(true),
                ("never", []) => Model::Always(false),
                ("max-steals", &[Value::Count(limit)]) => Model::MaxSteals { limit, stolen: 0 },
                ("every", &[Value::Count(n)]) => Model::Every { n, turn: 0 },
                ("fair-share", []) => Model::Left(seen.tiles.div_ceil(seen.resident) - 1),
                ("first-half", []) => Model::Always(among_the_first(0.5, block, seen)),
                ("fraction", &[Value::Part(p)]) => Model::Always(among_the_first(p, block, seen)),
                ("sm-limit", &[Value::Count(sms)]) => Model::Always(block.sm < sms),
                other => panic!("no model of {other:?}"),
            },
        }
    }

    fn asks(&mut self) -> bool {
        match self {
            Model::Always(answer) => *answer,
            Model::MaxSteals { limit, stolen } => stolen < limit,
            Model::Every { n, turn } => {
                let first = turn.is_multiple_of(*n);
                *turn += 1;
                first
            }
            Model::Left(left) => *left > 0,
            Model::Not(a) => !a.asks(),
            // Both sides, always.
            Model::And(a, b) => a.asks() & b.asks(),
            Model::Or(a, b) => a.asks() | b.asks(),
        }
    }

    fn goes_on(&mut self) -> bool {
        match self {
            Model::Always(answer) => *answer,
            Model::MaxSteals { limit, stolen } => {
                *stolen += 1;
                stolen < limit
            }
            Model::Every { .. } => true,
            Model::Left(left) => {
                *left = left.wrapping_sub(1);
                *left > 0
            }
            Model::Not(a) => !a.goes_on(),
            Model::And(a, b) => a.goes_on() & b.goes_on(),
            Model::Or(a, b) => a.goes_on() | b.goes_on(),
        }
    }
}

pub(crate) fn among_the_first(part: f64, block: &BlockRun, seen: &Seen) -> bool {
    let at_a_time = f64::from(seen.resident.min(seen.workers));
    f64::from(block.worker) < (at_a_time * part).floor()
}

/// Every decision of a block, given what it was answered.
fn expected(mut policy: Model, block: &BlockRun, seen: &Seen) -> Vec<DecisionKind> {
    let mut answers = block
        .decisions
        .iter()
        .map(|(kind, _)| *kind)
        .filter(|kind| matches!(kind, Granted | Refused));
    let mut all = Vec::new();
    let mut stop = false;
    loop {
        // One opportunity a tile, and a last call; nothing after a stop.
        let mut pending = false;
        let calls = if stop { 0 } else { 2 };
        for _ in 0..calls {
            pending = policy.asks();
            all.push(if pending { Requested } else { Declined });
            if pending {
                break;
            }
        }
        if !pending && seen.fixed_draws {
            // Nobody would run what is left.
            all.extend([Overruled, Requested]);
            pending = true;
        }
        if !pending {
            return all;
        }
        match answers.next() {
            Some(Granted) => {
                all.push(Granted);
                stop = !policy.goes_on();
            }
            // Refused means: leave.
            Some(other) => {
                all.push(other);
                return all;
            }
            None => return all,
        }
    }
}

/// Compares every block with the model.
pub(crate) fn check(policy: &PolicyExpr, constant: Option<bool>, setting: Setting, seen: &Seen) {
    assert!(setting.source != TileSource::Static && setting.source != TileSource::Direct);
    for block in &seen.blocks {
        let done: Vec<_> = block.decisions.iter().map(|(kind, _)| *kind).collect();
        let expected = match constant {
            // It is not even asked.
            Some(false) => Vec::new(),
            _ => expected(Model::new(policy, block, seen), block, seen),
        };
        assert_eq!(done, expected, "{}: {block:?}", seen.what);
    }
}
