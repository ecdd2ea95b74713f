//! Instructions of a whole warp: values that lanes exchange, votes, and the registers
//! that a warp holds.

pub(crate) mod exchange;
pub(crate) mod registers;
