//! Initial values of variables, as ptxas takes them.

use crate::instruction::{BinaryOp, Constant};
use crate::module::{Initializer, Linkage, Variable};
use crate::types::{ScalarType, Space};

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
    /// The memory takes none, or another file's variable does not.
    Memory,
}

impl Wrong {
    pub(super) fn what(self) -> String {
        match self {
            Wrong::Many { values, elements } => {
                format!("is a list of {values}, and there are {elements} elements")
            }
            Wrong::Shape => "does not have the shape of its dimensions".to_owned(),
            Wrong::Number => "is not a number of its type".to_owned(),
            Wrong::Half => "is of a type that takes none: declare it `.b16` or `.b32`".to_owned(),
            Wrong::Memory => {
                "can't be: only `.global` and `.const` variables of this file have one".to_owned()
            }
        }
    }
}

/// Whether a variable can have an initial value at all.
pub(super) fn is_allowed(variable: &Variable) -> Result<(), Wrong> {
    let data = matches!(variable.space, Space::Global | Space::Const);
    match data && variable.linkage != Linkage::Extern {
        true => Ok(()),
        false => Err(Wrong::Memory),
    }
}

/// Whether a variable can have this initial value. The shape of vectors, and what textures are made of, are not looked at.
pub(super) fn fits(init: &Initializer, variable: &Variable) -> Result<(), Wrong> {
    use ScalarType::{Bf16, Bf16x2, F16, F16x2};
    if matches!(variable.ty, F16 | F16x2 | Bf16 | Bf16x2) {
        return Err(Wrong::Half);
    }
    if variable.vector.is_some() {
        return of_vector(init, variable.ty);
    }
    of_dims(init, &variable.dims, variable.ty)
}

/// Whether the numbers of a vector, or of several, are of its type.
fn of_vector(init: &Initializer, ty: ScalarType) -> Result<(), Wrong> {
    match init {
        Initializer::List(list) => list.iter().try_for_each(|one| of_vector(one, ty)),
        one => of_dims(one, &[], ty),
    }
}

fn of_dims(init: &Initializer, dims: &[Option<u64>], ty: ScalarType) -> Result<(), Wrong> {
    match (init, dims) {
        (Initializer::Field(..), _) => Ok(()),
        (Initializer::Value(value), []) => match (kind(value)?, ty) {
            (Kind::Float, ty) if is_whole(ty) => Err(Wrong::Number),
            (Kind::Whole | Kind::Address, ScalarType::F32 | ScalarType::F64) => Err(Wrong::Number),
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

/// What a constant is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Whole,
    Float,
    Address,
}

/// What a constant is, if the sides of its operators are alike.
fn kind(value: &Constant) -> Result<Kind, Wrong> {
    Ok(match value {
        Constant::F32(_) | Constant::F64(_) => Kind::Float,
        Constant::Int(_) | Constant::WarpSize | Constant::Cast { .. } | Constant::Mask(..) => {
            Kind::Whole
        }
        Constant::Symbol(_) | Constant::Generic(_) => Kind::Address,
        Constant::Unary(_, inner) => kind(inner)?,
        Constant::Binary(op, sides) => match (kind(&sides.0)?, kind(&sides.1)?) {
            (Kind::Float, Kind::Float) if compares(*op) => Kind::Whole,
            (one, other) if one == other => one,
            (Kind::Float, _) | (_, Kind::Float) => return Err(Wrong::Number),
            _ => Kind::Address,
        },
        Constant::Select(parts) => match (kind(&parts.1)?, kind(&parts.2)?) {
            (Kind::Float, _) | (_, Kind::Float) => return Err(Wrong::Number),
            (one, _) => one,
        },
    })
}

fn compares(op: BinaryOp) -> bool {
    use BinaryOp::{Eq, Ge, Gt, Le, Lt, Ne};
    matches!(op, Lt | Gt | Le | Ge | Eq | Ne)
}

fn is_whole(ty: ScalarType) -> bool {
    use ScalarType::{S8, S16, S32, S64, U8, U16, U32, U64};
    matches!(ty, U8 | U16 | U32 | U64 | S8 | S16 | S32 | S64)
}
