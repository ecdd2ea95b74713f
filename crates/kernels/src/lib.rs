//! Kernels made of tiles, each with a reference that says what is right.
//!
//! * [`synthetic`]: uneven workloads whose cost is known, to try schedules on.

pub mod synthetic;
