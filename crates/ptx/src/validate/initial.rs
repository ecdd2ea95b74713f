//! Initial values of variables, as ptxas takes them.

use crate::instruction::Constant;
use crate::module::{Initializer, Variable};
use crate::types::ScalarType;

pub(super) const HELP: &str = "a list in braces for each dimension, with no more values than elements; \
                               `1.0` or `0f3F800000` for floating-point numbers, `1` for whole ones";

/// What is wrong about an initial value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wrong {
    /// More values than elements.
    Many { values: usize, elements: u64 },
    /// One value where a list belongs, or the other way.
    Shape,
    /// A whole number for a floating-point type, or the other way.
    Number,
    /// The type takes none.
    Half,
}

impl Wrong {
    pub(super) fn what(self) -> String {
        match self {
            Wrong::Many { values, elements } => {
                format!("is a list of {values}, and there are {elements} elements")
            }
            Wrong::Shape => "does not have the shape of its dimensions".to_owned(),
            Wrong::Number => "is not a number of its type".to_owned(),
            Wrong::Half => "is of `.f16`, which takes none: declare it `.b16`".to_owned(),
        }
    }
}

/// Whether a variable can have this initial value. Vectors, and what textures are made of, are not looked at.
pub(super) fn fits(init: &Initializer, variable: &Variable) -> Result<(), Wrong> {
    if variable.vector.is_some() {
        return Ok(());
    }
    if variable.ty == ScalarType::F16 {
        return Err(Wrong::Half);
    }
    of_dims(init, &variable.dims, variable.ty)
}

fn of_dims(init: &Initializer, dims: &[Option<u64>], ty: ScalarType) -> Result<(), Wrong> {
    match (init, dims) {
        (Initializer::Field(..), _) => Ok(()),
        (Initializer::Value(value), []) => match is_float(value) {
            Some(true) if is_whole(ty) => Err(Wrong::Number),
            Some(false) if matches!(ty, ScalarType::F32 | ScalarType::F64) => Err(Wrong::Number),
            _ => Ok(()),
        },
        (Initializer::Value(_), _) => Err(Wrong::Shape),
        (Initializer::List(list), []) => {
            let fields = |one: &Initializer| matches!(one, Initializer::Field(..));
            let opaque = list.is_empty() || list.iter().any(fields);
            if opaque { Ok(()) } else { Err(Wrong::Shape) }
        }
        (Initializer::List(list), [dim, inner @ ..]) => {
            if let Some(elements) = dim.filter(|&elements| list.len() as u64 > elements) {
                let values = list.len();
                return Err(Wrong::Many { values, elements });
            }
            list.iter().try_for_each(|one| of_dims(one, inner, ty))
        }
    }
}

/// Whether a number is a floating-point one; none for what is neither, or is computed.
fn is_float(value: &Constant) -> Option<bool> {
    match value {
        Constant::F32(_) | Constant::F64(_) => Some(true),
        Constant::Int(_) => Some(false),
        Constant::Unary(_, inner) => is_float(inner),
        _ => None,
    }
}

fn is_whole(ty: ScalarType) -> bool {
    use ScalarType::{S8, S16, S32, S64, U8, U16, U32, U64};
    matches!(ty, U8 | U16 | U32 | U64 | S8 | S16 | S32 | S64)
}
