//! The cache of keys and values: what it is made of, and what a call puts into it.

use crate::KernelError;
use std::fmt;
use std::str::FromStr;

/// What keys and values are stored as.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Cache {
    /// As the queries are.
    #[default]
    Same,
    /// 8-bit floats, with a factor for the keys and one for the values of each key head.
    E4m3,
    /// As the queries, one row for both: values are a key's first elements (latent attention).
    Latent,
}

impl fmt::Display for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Cache::Same => "same",
            Cache::E4m3 => "e4m3",
            Cache::Latent => "latent",
        })
    }
}

impl FromStr for Cache {
    type Err = KernelError;
    fn from_str(text: &str) -> Result<Cache, KernelError> {
        match text {
            "" | "same" => Ok(Cache::Same),
            "e4m3" => Ok(Cache::E4m3),
            "latent" => Ok(Cache::Latent),
            _ => Err(KernelError::unfit(format!(
                "keys and values are stored as the queries (same), in e4m3, or as one row for both (latent), and `{text}` is none of them"
            ))),
        }
    }
}

/// Keys and values that a call puts into the cache, behind those that it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Append {
    /// How many of each sequence.
    pub rows: u32,
    /// Whether they are given in the cache's type. Else they are given in the queries', divided by the factors of
    /// their head, and rounded; what is too large becomes the largest number.
    pub in_cache_type: bool,
}
