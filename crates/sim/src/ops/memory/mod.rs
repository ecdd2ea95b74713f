//! Loads, stores, atomics, the stack, and hints to the caches.

pub(crate) mod atomic;
pub(crate) mod hint;
pub(crate) mod load;
pub(crate) mod stack;
pub(crate) mod store;
pub(crate) mod word;
