//! Instructions that compute each lane from its own registers: arithmetic, logic,
//! comparisons, conversions, copies.

pub(crate) mod bits;
pub(crate) mod compare;
pub(crate) mod convert;
pub(crate) mod float;
pub(crate) mod half;
pub(crate) mod integer;
pub(crate) mod moves;
pub(crate) mod video;
