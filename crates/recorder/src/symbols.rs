//! How programs come to the driver's functions: by symbol, which the loader answers with those of
//! [`hooks`](crate::hooks), by `dlsym`, and by `cuGetProcAddress`.

use crate::driver;
use crate::hooks::{self, Hook};
use crate::loader::{REAL, loader, real};
use std::ffi::{CStr, c_char, c_void};
use std::sync::OnceLock;

/// In front of the loader's function. A call that is not for the driver goes on to it as it is,
/// return address included: by that the loader knows who asks, which decides what comes next.
#[unsafe(no_mangle)]
#[unsafe(naked)]
extern "C" fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void {
    std::arch::naked_asm!(
        "cmp byte ptr [rsi], 99",      // 'c'
        "jne 2f",
        "cmp byte ptr [rsi + 1], 117", // 'u'
        "je {hooked}",
        "2:",
        "mov rax, qword ptr [rip + {real}]",
        "test rax, rax",
        "jne 3f",
        "push rdi",
        "push rsi",
        "sub rsp, 8",
        "call {loader}",
        "add rsp, 8",
        "pop rsi",
        "pop rdi",
        "3:",
        "jmp rax",
        hooked = sym hooked,
        real = sym REAL,
        loader = sym loader,
    )
}

/// A name that may be one of the driver's.
extern "C" fn hooked(library: *mut c_void, name: *const c_char) -> *mut c_void {
    // SAFETY: the caller passes a name that ends in a zero.
    let name = unsafe { CStr::from_ptr(name) };
    let found = real(library, name);
    let ours = || hooks::all().iter().find(|hook| hook.name == name);
    match found.is_null() {
        true => found,
        false => ours().map_or(found, |hook| hook.ours as *mut c_void),
    }
}

/// Puts our function in place of one that the driver gave out.
pub(crate) fn replace(symbol: *const c_char, to: *mut *mut c_void, flags: u64) {
    /// The caller wants the functions for a default stream of each thread.
    const PER_THREAD: u64 = 2;
    if symbol.is_null() || to.is_null() {
        return;
    }
    // SAFETY: the driver has just written there, and the name ends in a zero.
    let (given, symbol) = unsafe { (*to as usize, CStr::from_ptr(symbol)) };
    if given == 0 {
        return;
    }
    let same = |hook: &&Hook| hook.real() == given;
    let named = |hook: &&Hook| {
        let name = hook.name.to_bytes();
        let plain = name.strip_suffix(b"_ptsz");
        let wanted = match flags & PER_THREAD {
            0 => name,
            _ => plain.unwrap_or(name),
        };
        wanted == symbol.to_bytes()
    };
    let all = hooks::all();
    // Later rows are those of threads' own streams.
    let ours = all
        .iter()
        .find(same)
        .or_else(|| all.iter().rev().find(named));
    if let Some(hook) = ours {
        // SAFETY: as above.
        unsafe { *to = hook.ours as *mut c_void };
    }
}

impl Hook {
    /// The driver's own function.
    fn real(&self) -> usize {
        static KNOWN: OnceLock<Vec<usize>> = OnceLock::new();
        let known = KNOWN.get_or_init(|| {
            hooks::all()
                .iter()
                .map(|hook| driver::find(hook.name))
                .collect()
        });
        let at = hooks::all().iter().position(|hook| hook.name == self.name);
        at.map_or(0, |at| known[at])
    }
}
