//! Policies that are loaded: what the verifier takes, what the interpreter survives, and
//! what happens when one is exchanged while a kernel runs.

mod refused;
mod run;
mod survived;
mod swapped;
