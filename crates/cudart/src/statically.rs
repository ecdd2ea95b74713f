//! Programs with a statically linked runtime, nvcc's default: when this library is preloaded into
//! such a program, each runtime function in the program's symbol table is overwritten with a jump
//! to ours.

use crate::api::FUNCTIONS;
use std::ffi::c_void;

/// Runs when the library is loaded, before the program's own constructors.
#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = start;

extern "C" fn start() {
    let Ok(image) = std::fs::read("/proc/self/exe") else {
        return;
    };
    let Some(base) = program_base() else { return };
    for (name, value, size) in functions(&image) {
        let ours = FUNCTIONS.iter().find(|one| one.name == name);
        // A program that has this library linked in, as its tests do, would be sent in a circle.
        if let Some(ours) = ours
            && size >= JUMP as u64
            && base + value != ours.function as u64
        {
            redirect(base + value, ours.function);
        }
    }
}

/// Where the program itself is loaded.
fn program_base() -> Option<u64> {
    unsafe extern "C" fn first(info: *mut libc::dl_phdr_info, _: usize, out: *mut c_void) -> i32 {
        // SAFETY: the loader passes its own record, and `out` is the number below.
        unsafe { *out.cast::<Option<u64>>() = Some((*info).dlpi_addr) };
        // The program comes first.
        1
    }
    let mut base: Option<u64> = None;
    // SAFETY: the function above is called with a pointer to `base`, which outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(first), (&raw mut base).cast()) };
    base
}

/// Name, address and size of every function in an executable's symbol table.
fn functions(image: &[u8]) -> Vec<(&str, u64, u64)> {
    let mut found = Vec::new();
    let sections = || -> Option<Vec<&[u8]>> {
        let (start, size) = (
            number(image, 0x28, 8)? as usize,
            number(image, 0x3a, 2)? as usize,
        );
        let count = number(image, 0x3c, 2)? as usize;
        (0..count)
            .map(|at| image.get(start + at * size..start + (at + 1) * size))
            .collect()
    };
    if image.get(..4) != Some(b"\x7fELF") {
        return found;
    }
    let sections = sections().unwrap_or_default();
    let contents = |section: &[u8]| {
        let (at, size) = (
            number(section, 0x18, 8)? as usize,
            number(section, 0x20, 8)? as usize,
        );
        image.get(at..at.checked_add(size)?)
    };
    for section in &sections {
        // Symbols, with the section of their names.
        if number(section, 4, 4) != Some(2) {
            continue;
        }
        let names = number(section, 0x28, 4).and_then(|link| sections.get(link as usize));
        let (Some(symbols), Some(names)) = (contents(section), names.and_then(|one| contents(one)))
        else {
            continue;
        };
        for symbol in symbols.chunks_exact(24) {
            let is_function = symbol[4] & 15 == 2;
            let (Some(at), Some(value), Some(size)) = (
                number(symbol, 0, 4),
                number(symbol, 8, 8),
                number(symbol, 16, 8),
            ) else {
                continue;
            };
            let name = names.get(at as usize..).unwrap_or(&[]);
            let name = name.split(|byte| *byte == 0).next().unwrap_or(&[]);
            if is_function
                && value != 0
                && let Ok(name) = std::str::from_utf8(name)
            {
                found.push((name, value, size));
            }
        }
    }
    found
}

fn number(bytes: &[u8], at: usize, len: usize) -> Option<u64> {
    let mut wide = [0; 8];
    wide[..len].copy_from_slice(bytes.get(at..at + len)?);
    Some(u64::from_le_bytes(wide))
}

/// Bytes of a jump to any address: `mov rax, target; jmp rax`.
const JUMP: usize = 12;

/// Overwrites the start of a function with a jump.
fn redirect(at: u64, target: *const ()) {
    const PAGE: u64 = 4096;
    let start = at & !(PAGE - 1);
    let len = (at + JUMP as u64 - start).next_multiple_of(PAGE) as usize;
    let mut jump = [0x48, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xe0];
    jump[2..10].copy_from_slice(&(target as u64).to_le_bytes());
    let pages = start as *mut c_void;
    let (read, write, run) = (libc::PROT_READ, libc::PROT_WRITE, libc::PROT_EXEC);
    // SAFETY: the pages are code of the program, which is not running yet: the loader calls
    // this before any of the program's own functions, from one thread. The symbol table says
    // that the function is at least as long as the jump.
    unsafe {
        if libc::mprotect(pages, len, read | write | run) == 0 {
            std::ptr::copy_nonoverlapping(jump.as_ptr(), at as *mut u8, JUMP);
            libc::mprotect(pages, len, read | run);
        }
    }
}
