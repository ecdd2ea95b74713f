//! What an expert layer computes.

use crate::error::KernelError;
use crate::gemm::{Input, Output};
use crate::grouped::problem::{Grouped, work};
use crate::job::Work;
use std::fmt;
use std::str::FromStr;

/// An expert layer. Weights are stored as `nn.Linear` has them: of each expert `2 * inner` rows of
/// `hidden` (the gate's, then those that it gates), and `hidden` rows of `inner`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Experts {
    /// Slots of each expert, for whoever makes the data: the device reads their running sum.
    pub rows: Vec<u32>,
    /// Experts of each token.
    pub per: u32,
    /// Elements of a token.
    pub hidden: u32,
    /// Elements between the two products.
    pub inner: u32,
    /// The type of tokens, weights and results: f16 or bf16. The router's weights are f32.
    pub dtype: Input,
}

/// How rows of tokens come to their experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gathering {
    /// On the way into the first product.
    Fused,
    /// By a launch before it.
    Launch,
}

impl fmt::Display for Gathering {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Gathering::Fused => "fused",
            Gathering::Launch => "launch",
        })
    }
}

impl FromStr for Gathering {
    type Err = KernelError;
    fn from_str(text: &str) -> Result<Gathering, KernelError> {
        match text {
            "fused" => Ok(Gathering::Fused),
            "launch" => Ok(Gathering::Launch),
            _ => Err(KernelError::unfit(format!(
                "rows are gathered fused or by a launch, and `{text}` is neither"
            ))),
        }
    }
}

impl Experts {
    /// Slots in all: each token's experts.
    pub fn slots(&self) -> u64 {
        self.rows.iter().map(|&rows| u64::from(rows)).sum()
    }

    /// Tokens.
    pub fn tokens(&self) -> u64 {
        self.slots() / u64::from(self.per.max(1))
    }

    fn output(&self) -> Output {
        match self.dtype {
            Input::F16 => Output::F16,
            _ => Output::Bf16,
        }
    }

    /// The first product, as the result has it: the gated pair counts once.
    pub(super) fn up(&self) -> Grouped {
        let rows = self.rows.clone();
        Grouped::rows(rows, self.inner, self.hidden, self.dtype, self.output())
    }

    /// The second one.
    pub(super) fn down(&self) -> Grouped {
        let rows = self.rows.clone();
        Grouped::rows(rows, self.hidden, self.inner, self.dtype, self.output())
    }

    /// What it costs at least. Between the products nothing must be stored.
    pub(super) fn work(&self) -> Work {
        let (up, down) = (work(&self.up()), work(&self.down()));
        let used = self.rows.iter().filter(|rows| **rows > 0).count() as f64;
        let [hidden, inner] = [self.hidden, self.inner].map(f64::from);
        Work {
            flops: 2.0 * up.flops + down.flops,
            bytes: (used * 3.0 * hidden * inner + 2.0 * self.tokens() as f64 * hidden) * 2.0,
        }
    }

    /// Fails on what the kernels do not do.
    ///
    /// # Errors
    /// What is wrong.
    pub fn check(&self) -> Result<(), KernelError> {
        let wrong = |why: String| Err(KernelError::unfit(format!("an expert layer {why}")));
        if !matches!(self.dtype, Input::F16 | Input::Bf16) {
            return wrong(format!("takes f16 and bf16, not {}", self.dtype));
        }
        if !(1..=64).contains(&self.per) {
            return wrong(format!("has 1 to 64 experts a token, not {}", self.per));
        }
        if !self.slots().is_multiple_of(self.per.into()) {
            return wrong(format!(
                "has as many slots for each token: {} rows are no multiple of {} experts a token",
                self.slots(),
                self.per
            ));
        }
        let whole = |size: u32| size > 0 && size.is_multiple_of(8);
        if !(whole(self.hidden) && whole(self.inner)) {
            return wrong(format!(
                "has rows that start at multiples of 16 bytes: hidden {} and inner {} must be multiples of 8",
                self.hidden, self.inner
            ));
        }
        if self.inner > u32::MAX / 2 {
            return wrong(format!(
                "can't have {} elements between its products",
                self.inner
            ));
        }
        self.up().check_shapes()
    }
}

impl fmt::Display for Experts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} tokens, {} of {} experts each, hidden {}, inner {}, {}",
            self.tokens(),
            self.per,
            self.rows.len(),
            self.hidden,
            self.inner,
            self.dtype
        )
    }
}
