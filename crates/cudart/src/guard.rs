//! Memory that the host touches while the device may still use it.
//!
//! Pinned and managed memory that an operation writes (or reads) is closed to the host (or to its writes) until the
//! host has waited for the operation. A touch before that is told, and the memory opened. Every call of the program
//! opens everything while it lasts, so that only the program itself meets closed memory.

use crate::heap::Heap;
use crate::order::{Order, Pending};
use std::ffi::{c_int, c_void};
use std::sync::OnceLock;

/// What is closed: addresses and lengths.
#[derive(Default)]
pub(crate) struct Guard {
    closed: Vec<(u64, usize)>,
    /// Host functions that run: what they touch is ordered by their stream.
    pub(crate) called: usize,
}

const PAGE: usize = 4096;

/// Sets what the host may do with memory.
fn protect(at: u64, len: usize, how: c_int) {
    // SAFETY: pages that `Heap::shared` has mapped, and nothing else lies in them.
    unsafe { libc::mprotect(at as *mut c_void, len.next_multiple_of(PAGE), how) };
}

const OPEN: c_int = libc::PROT_READ | libc::PROT_WRITE;

impl Guard {
    /// Opens everything.
    pub(crate) fn open(&mut self) {
        for (at, len) in self.closed.drain(..) {
            protect(at, len, OPEN);
        }
    }

    /// Opens the allocation at an address; where it begins, if it was closed.
    pub(crate) fn open_at(&mut self, address: u64) -> Option<u64> {
        let inside = |&(at, len): &(u64, usize)| {
            (at..at + len.next_multiple_of(PAGE) as u64).contains(&address)
        };
        let number = self.closed.iter().position(inside)?;
        let (at, len) = self.closed.swap_remove(number);
        protect(at, len, OPEN);
        Some(at)
    }

    /// Closes what the device may still use; `asked` says what to do when the host touches it.
    pub(crate) fn close(&mut self, order: &Order, heap: &mut Heap, asked: Asked) {
        if self.called > 0 {
            return;
        }
        for at in order.touched() {
            let how = match order.pending(at) {
                Pending::Nothing => continue,
                Pending::Reads => libc::PROT_READ,
                Pending::Writes => libc::PROT_NONE,
            };
            if Heap::is_shared(at)
                && let Some((start, len, Some(_))) = heap.place(at)
            {
                watch(asked);
                protect(start, len as usize, how);
                self.closed.push((start, len as usize));
            }
        }
    }
}

/// Asked with an address, and whether it is written; whether it was closed here.
type Asked = fn(u64, bool) -> bool;

static ASKED: OnceLock<Asked> = OnceLock::new();

/// Has this library asked when the host touches closed memory.
fn watch(asked: Asked) {
    ASKED.get_or_init(|| {
        let function: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) = fault;
        // SAFETY: a handler of three arguments, as the flag says, with the rest of the record empty.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = function as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_NODEFER;
            libc::sigaction(libc::SIGSEGV, &raw const action, std::ptr::null_mut());
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
        // SAFETY: the program's own mistake, which ends it as it would without this library.
        unsafe { libc::signal(libc::SIGSEGV, libc::SIG_DFL) };
    }
}
