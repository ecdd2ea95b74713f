//! Memory that the host touches while the device may still use it.
//!
//! Pinned and managed memory that an operation writes (or reads) is closed to the host (or to its writes) until the
//! host has waited for the operation, by pages: one in which the touched bytes begin or end stays open, since calls of the
//! system into the rest of it (reading a file) would fail. A touch before that is told, and the memory opened. Every call of the program
//! opens everything while it lasts, so that only the program itself meets closed memory.

use crate::heap::Heap;
use crate::order::{Order, Pending};
use std::ffi::{c_int, c_void};
use std::sync::OnceLock;

/// What is closed to the host.
#[derive(Default)]
pub(crate) struct Guard {
    /// Stretches of pages, each with the allocation that it is of.
    closed: Vec<Stretch>,
    /// What is to be closed, as of a version of the order.
    plan: (u64, Vec<Stretch>),
    /// Host functions that run: what they touch is ordered by their stream.
    pub(crate) called: usize,
}

/// Pages next to each other that the host may use in one way.
#[derive(Clone, Copy)]
struct Stretch {
    allocation: u64,
    at: u64,
    len: usize,
    how: c_int,
}

const PAGE: usize = 4096;

/// Sets what the host may do with memory.
fn protect(at: u64, len: usize, how: c_int) {
    // SAFETY: pages that `Heap::shared` has mapped, and nothing else lies in them.
    unsafe { libc::mprotect(at as *mut c_void, len, how) };
}

const OPEN: c_int = libc::PROT_READ | libc::PROT_WRITE;

impl Guard {
    /// Opens everything.
    pub(crate) fn open(&mut self) {
        for one in self.closed.drain(..) {
            protect(one.at, one.len, OPEN);
        }
    }

    /// Opens what is closed at an address; the allocation, if it was.
    pub(crate) fn open_at(&mut self, address: u64) -> Option<u64> {
        let inside = |one: &Stretch| (one.at..one.at + one.len as u64).contains(&address);
        let number = self.closed.iter().position(inside)?;
        let one = self.closed.swap_remove(number);
        protect(one.at, one.len, OPEN);
        Some(one.allocation)
    }

    /// Closes what the device may still use; `asked` says what to do when the host touches it.
    pub(crate) fn close(&mut self, order: &Order, heap: &mut Heap, asked: Asked) {
        if self.called > 0 {
            return;
        }
        if self.plan.0 != order.version() {
            self.plan = (order.version(), plan(order, heap));
        }
        for one in &self.plan.1 {
            watch(asked);
            protect(one.at, one.len, one.how);
            self.closed.push(*one);
        }
    }
}

/// What is to be closed.
fn plan(order: &Order, heap: &mut Heap) -> Vec<Stretch> {
    let mut all: Vec<Stretch> = Vec::new();
    for allocation in order
        .touched()
        .into_iter()
        .filter(|at| Heap::is_shared(*at))
    {
        let Some((start, len, Some(_))) = heap.place(allocation) else {
            continue;
        };
        let pages = order.pending(start, len, PAGE as u64).into_iter();
        for (page, pending) in pages.enumerate() {
            let how = match pending {
                Pending::Nothing => continue,
                Pending::Reads => libc::PROT_READ,
                Pending::Writes => libc::PROT_NONE,
            };
            let at = start + (page * PAGE) as u64;
            match all.last_mut() {
                Some(last) if last.at + last.len as u64 == at && last.how == how => {
                    last.len += PAGE;
                }
                _ => all.push(Stretch {
                    allocation: start,
                    at,
                    len: PAGE,
                    how,
                }),
            }
        }
    }
    all
}

/// Asked with an address, and whether it is written; whether it was closed here.
type Asked = fn(u64, bool) -> bool;

static ASKED: OnceLock<Asked> = OnceLock::new();
/// What the program does about accesses that it may not make.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

/// Has this library asked when the host touches closed memory.
fn watch(asked: Asked) {
    ASKED.get_or_init(|| {
        let function: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) = fault;
        // SAFETY: a handler of three arguments, as the flag says, with the rest of the record empty.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = function as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_NODEFER;
            let mut before: libc::sigaction = std::mem::zeroed();
            libc::sigaction(libc::SIGSEGV, &raw const action, &raw mut before);
            // Nobody else sets it.
            let _ = BEFORE.set(before);
        }
        asked
    });
}

extern "C" fn fault(_: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes both records to a handler of this kind.
    let (address, write) = unsafe {
        let error = (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs[libc::REG_ERR as usize];
        ((*info).si_addr() as u64, error & 2 != 0)
    };
    let ours = Heap::is_shared(address) && ASKED.get().is_some_and(|asked| asked(address, write));
    if !ours {
        // SAFETY: the program's own mistake, which ends as it would without this library.
        unsafe {
            match BEFORE.get() {
                Some(before) => {
                    libc::sigaction(libc::SIGSEGV, before, std::ptr::null_mut());
                }
                None => {
                    libc::signal(libc::SIGSEGV, libc::SIG_DFL);
                }
            }
        }
    }
}
