//! What the numbers are made of: inputs, weights and results.

use crate::KernelError;
use heist_launch::ElementType;
use std::fmt;
use std::str::FromStr;

/// What queries, keys, values and results are made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dtype {
    /// IEEE half precision.
    F16,
    /// bfloat16.
    Bf16,
}

impl Dtype {
    /// Both.
    pub const ALL: [Dtype; 2] = [Dtype::F16, Dtype::Bf16];

    /// As the type of a buffer.
    pub fn element(self) -> ElementType {
        match self {
            Dtype::F16 => ElementType::F16,
            Dtype::Bf16 => ElementType::Bf16,
        }
    }
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Dtype::F16 => "f16",
            Dtype::Bf16 => "bf16",
        })
    }
}

impl FromStr for Dtype {
    type Err = KernelError;
    fn from_str(text: &str) -> Result<Dtype, KernelError> {
        Dtype::ALL
            .into_iter()
            .find(|dtype| dtype.to_string() == text)
            .ok_or_else(|| {
                KernelError::unfit(format!(
                    "attention works on f16 and bf16, and `{text}` is neither"
                ))
            })
    }
}

/// How the weights of the softmax enter the product with the values.
///
/// It matters to the kernels that multiply on tensor cores alone: the others
/// have weights in f32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Weights {
    /// Rounded to the element type.
    #[default]
    Rounded,
    /// As two terms, rounded and what rounding took: half as many products
    /// again in all, and twice the bits.
    Split,
}

impl Weights {
    /// Both.
    pub const ALL: [Weights; 2] = [Weights::Rounded, Weights::Split];
}

impl fmt::Display for Weights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Weights::Rounded => "rounded",
            Weights::Split => "split",
        })
    }
}

impl FromStr for Weights {
    type Err = KernelError;
    fn from_str(text: &str) -> Result<Weights, KernelError> {
        Weights::ALL
            .into_iter()
            .find(|weights| weights.to_string() == text)
            .ok_or_else(|| {
                KernelError::unfit(format!(
                    "weights are rounded or split, and `{text}` is neither"
                ))
            })
    }
}

/// What results are made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Output {
    /// The same as queries, keys and values.
    #[default]
    Same,
    /// f32: to be joined with others, or worked on.
    F32,
}
