//! The state of a launch: data, and what is true of it.
//!
//! Memories, barriers, copies in flight, tensor maps, launch control, registers. Nothing
//! here runs anything; nothing here knows of the layers above.

pub(crate) mod machine;
pub(crate) mod memory;
pub(crate) mod pattern;
