//! Misuse of the builder that must not compile: `tests/refused`, with what the
//! compiler says about it.
//!
//! A package of its own, because each case is compiled with everything that its
//! package's tests depend on: here that is the builder alone.
