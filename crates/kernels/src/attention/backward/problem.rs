//! The problem and its cost.

use super::changed::Change;
use crate::attention::cache::Cache;
use crate::attention::problem::{Mask, Output, Problem};
use crate::attention::score::{Differentiable, PairMask};
use crate::{KernelError, Work};
use std::fmt;

/// The widest head: gradients of keys and values stay in registers.
const WIDEST: u32 = 128;

/// How the parts of a query's gradient are added, which come from many blocks in any
/// order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Sums {
    /// In f32: the last bits depend on the order.
    #[default]
    Float,
    /// In fixed point: whole numbers add up to the same in every order, so the same
    /// inputs give the same bits. The unit of a row is chosen from a bound of its
    /// gradient, so that no sum can overflow: see [`largest`](super::largest).
    Fixed,
}

/// What is asked.
#[derive(Clone, Debug, PartialEq)]
pub struct Backward {
    /// The attention whose gradients are wanted.
    pub attention: Problem,
    /// How the parts of a query's gradient are added.
    pub sums: Sums,
}

impl Backward {
    /// The gradients of an attention.
    pub fn of(attention: Problem) -> Backward {
        Backward {
            attention,
            sums: Sums::default(),
        }
    }

    /// Fails where it makes no sense, with the reason.
    ///
    /// # Errors
    /// What does not fit, and why.
    pub fn check(&self) -> Result<(), KernelError> {
        let problem = &self.attention;
        problem.check()?;
        if problem.has_whole_steps().is_err() {
            return Err(KernelError::unfit(format!(
                "gradients of heads of {} elements: multiples of 16 can be had",
                problem.head_dim
            )));
        }
        if problem.page_size.is_some() {
            return Err(KernelError::unfit(
                "keys in pages: training has none; leave page out",
            ));
        }
        if problem.cache != Cache::Same {
            return Err(KernelError::unfit(format!(
                "cache={}: training has none; leave cache out",
                problem.cache
            )));
        }
        if problem.scoring.differentiable().is_none() {
            return Err(KernelError::unfit(format!(
                "attention with{}: its gradients can't be had yet; those of causal masks, of windows, of packed sequences (one for each document), and of one of a soft-cap, ALiBi and a mask of pairs can{}",
                problem.scoring,
                if problem.scoring.sinks {
                    "; of queries, keys and values they are the same without sinks, which the log-sum-exps have in them"
                } else {
                    ""
                }
            )));
        }
        if problem.value_dim() != problem.head_dim {
            return Err(KernelError::unfit(format!(
                "heads of {} elements of keys and {} of values: gradients are had where both are alike; fill the values up with zeros",
                problem.head_dim,
                problem.value_dim()
            )));
        }
        if problem.head_dim > WIDEST {
            return Err(KernelError::unfit(format!(
                "heads of {} elements: gradients can be had for up to {WIDEST}",
                problem.head_dim
            )));
        }
        if problem.output == Output::F32 {
            return Err(KernelError::unfit(
                "results in f32: gradients are taken of results in the dtype; leave out=f32 away",
            ));
        }
        if problem.longest().1 == 0 {
            return Err(KernelError::unfit(
                "without keys there is no gradient to work out",
            ));
        }
        Ok(())
    }

    /// The same, in f32 where the order of additions does not matter: the gradient of a query starts as zero, and two numbers are added to it at the
    /// most, one for each tile of `width` keys that it sees. (Tiles of which its row sees nothing add zeros.)
    pub(super) fn in_cheapest_sums(&self, width: u32) -> Backward {
        let attention = &self.attention;
        let two_tiles = match attention.mask {
            Mask::Window { left, right } => left.saturating_add(right) <= width,
            Mask::Full | Mask::Causal => false,
        };
        let sums = match two_tiles || attention.longest().1 <= 2 * width {
            true => Sums::Float,
            false => self.sums,
        };
        Backward {
            sums,
            ..self.clone()
        }
    }

    /// What makes scores of products besides their factor, where there is anything.
    pub(super) fn change(&self) -> Option<Change> {
        Change::of(self.attention.scoring.differentiable()?)
    }

    /// The mask of pairs, where there is one.
    pub(super) fn pairs(&self) -> Option<PairMask> {
        match self.attention.scoring.differentiable()? {
            Differentiable::Pairs(mask) => Some(mask),
            _ => None,
        }
    }

    /// Five products where the forward kernel has two, and the bytes of queries, keys,
    /// values, results and of all gradients.
    pub fn work(&self) -> Work {
        let forward = self.attention.work();
        let (q, kv) = self.attention.elements();
        Work {
            flops: 2.5 * forward.flops,
            bytes: forward.bytes + (2 * (2 * q + 2 * kv)) as f64,
        }
    }
}

impl fmt::Display for Backward {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.attention.fmt(f)?;
        match self.sums {
            Sums::Float => Ok(()),
            Sums::Fixed => f.write_str(" deterministic"),
        }
    }
}
