//! Fundamental types and state spaces, as declarations spell them.
//!
//! ```
//! use heist_ptx::{ScalarType, Space, VectorWidth};
//!
//! assert_eq!("bf16x2".parse(), Ok(ScalarType::Bf16x2));
//! assert_eq!((ScalarType::F64.bytes(), ScalarType::Pred.bits()), (8, 1));
//! assert_eq!(Space::Shared.to_string(), "shared");
//! assert_eq!(VectorWidth::V4.lanes(), 4);
//! ```

use std::fmt;
use std::str::FromStr;

macro_rules! spelled {
    ($(#[$meta:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident = $text:literal,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name { $($(#[$doc])* $variant,)* }

        impl $name {
            /// All of them.
            pub const ALL: &[$name] = &[$($name::$variant,)*];

            /// How PTX spells it, without the dot.
            pub fn as_str(self) -> &'static str {
                match self { $($name::$variant => $text,)* }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl FromStr for $name {
            type Err = ();
            fn from_str(text: &str) -> Result<$name, ()> {
                match text { $($text => Ok($name::$variant),)* _ => Err(()) }
            }
        }
    };
}

spelled! {
    /// The type of a register, a variable, or an operation on either.
    #[allow(missing_docs)]
    ScalarType {
        B8 = "b8", B16 = "b16", B32 = "b32", B64 = "b64", B128 = "b128",
        U8 = "u8", U16 = "u16", U32 = "u32", U64 = "u64",
        S8 = "s8", S16 = "s16", S32 = "s32", S64 = "s64",
        F16 = "f16", F16x2 = "f16x2", Bf16 = "bf16", Bf16x2 = "bf16x2", Tf32 = "tf32",
        F32 = "f32", F64 = "f64", F32x2 = "f32x2",
        U16x2 = "u16x2", S16x2 = "s16x2",
        E4m3 = "e4m3", E5m2 = "e5m2", E4m3x2 = "e4m3x2", E5m2x2 = "e5m2x2",
        Pred = "pred",
        Texref = "texref", Samplerref = "samplerref", Surfref = "surfref",
    }
}

impl ScalarType {
    /// How many bytes one takes in memory. A predicate has no place in memory
    /// and counts as one; the opaque handles are eight.
    pub fn bytes(self) -> u32 {
        use ScalarType::*;
        match self {
            B8 | U8 | S8 | E4m3 | E5m2 | Pred => 1,
            B16 | U16 | S16 | F16 | Bf16 | E4m3x2 | E5m2x2 => 2,
            B32 | U32 | S32 | F16x2 | Bf16x2 | Tf32 | F32 | U16x2 | S16x2 => 4,
            B64 | U64 | S64 | F64 | F32x2 | Texref | Samplerref | Surfref => 8,
            B128 => 16,
        }
    }

    /// How many bits one takes; one for a predicate.
    pub fn bits(self) -> u32 {
        if self == ScalarType::Pred {
            1
        } else {
            self.bytes() * 8
        }
    }
}

spelled! {
    /// A state space.
    Space {
        /// Registers.
        Reg = "reg",
        /// Special registers.
        Sreg = "sreg",
        /// Read-only memory, in banks.
        Const = "const",
        /// Memory that all threads share.
        Global = "global",
        /// Memory of one thread.
        Local = "local",
        /// Parameters of kernels and functions.
        Param = "param",
        /// Memory of one block.
        Shared = "shared",
        /// Textures (deprecated spelling of a global texref).
        Tex = "tex",
    }
}

/// `.v2`, `.v4`, `.v8`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum VectorWidth {
    /// Two lanes.
    V2,
    /// Four lanes.
    V4,
    /// Eight lanes.
    V8,
}

impl VectorWidth {
    /// How many lanes.
    pub fn lanes(self) -> u64 {
        match self {
            VectorWidth::V2 => 2,
            VectorWidth::V4 => 4,
            VectorWidth::V8 => 8,
        }
    }

    /// How PTX spells it, without the dot.
    pub fn as_str(self) -> &'static str {
        match self {
            VectorWidth::V2 => "v2",
            VectorWidth::V4 => "v4",
            VectorWidth::V8 => "v8",
        }
    }
}
