//! What the driver's interface keeps: contexts, device code that is being linked, memory without an address.
//!
//! There is one device with one heap, so a context is a handle; each thread has a stack of them.

use crate::status::{INVALID_CONTEXT, NOT_INITIALISED};
use std::cell::RefCell;
use std::collections::HashSet;
use std::ffi::{CString, c_int};
use std::sync::atomic::{AtomicBool, Ordering};

/// The context that the runtime works in.
pub(crate) const PRIMARY: usize = 0x90;

/// Those that the program has made.
#[derive(Default)]
pub(crate) struct Contexts {
    pub(crate) made: HashSet<usize>,
    /// How often the primary one is retained.
    pub(crate) retained: usize,
}

static INITIALISED: AtomicBool = AtomicBool::new(false);

thread_local! {
    static STACK: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// The driver may be used from now on.
pub(crate) fn initialise() {
    INITIALISED.store(true, Ordering::Relaxed);
}

/// The runtime works on this thread, with the primary context unless there is another.
pub(crate) fn used_by_runtime() {
    initialise();
    with_stack(|stack| {
        if stack.is_empty() {
            stack.push(PRIMARY);
        }
    });
}

/// Does something with this thread's contexts, the current one last.
pub(crate) fn with_stack<T>(act: impl FnOnce(&mut Vec<usize>) -> T) -> T {
    STACK.with_borrow_mut(act)
}

/// The current context, or zero.
pub(crate) fn current() -> usize {
    with_stack(|stack| stack.last().copied().unwrap_or(0))
}

/// Whether the driver may be used: after `cuInit`, and with a context.
pub(crate) fn usable(needs_context: bool) -> Result<(), c_int> {
    if !INITIALISED.load(Ordering::Relaxed) {
        return Err(NOT_INITIALISED);
    }
    match needs_context && current() == 0 {
        true => Err(INVALID_CONTEXT),
        false => Ok(()),
    }
}

/// Device code that is being linked: PTX of one input is passed on as it is.
#[derive(Default)]
pub(crate) struct Link {
    pub(crate) text: Option<CString>,
}

/// Memory that was created: its bytes, and where it is mapped.
pub(crate) struct Physical {
    pub(crate) bytes: usize,
    pub(crate) mapped: Option<u64>,
}
