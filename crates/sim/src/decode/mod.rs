//! The decoder's tools: names become slots, labels become indices, operands become registers,
//! constants and addresses.
//!
//! A [`Decoder`] holds one kernel while it is decoded; a family in [`crate::ops`] takes an
//! instruction apart and emits [operations](crate::engine::executable::Instr). An instruction
//! that the simulator can't run is an error here, before anything has run.

pub(crate) mod address;
pub(crate) mod constant;
pub(crate) mod cost;
pub(crate) mod declare;
pub(crate) mod decoder;
pub(crate) mod isolation;
pub(crate) mod map;
pub(crate) mod mods;
pub(crate) mod names;
pub(crate) mod operand;
pub(crate) mod pipe;
pub(crate) mod qualifier;
pub(crate) mod trail;
pub(crate) mod variables;

pub(crate) use cost::{Cost, Decoded, Leaves};
pub(crate) use decoder::Decoder;
