//! Memory that a kernel can reach: the allocations that its parameters point into, those that
//! small tables there point into, and its module's variables.

use crate::driver::{self, OK};
use crate::kernel::Owner;
use heist_ptx::{Module, Space};
use heist_record::Kind;
use std::collections::BTreeMap;
use std::ffi::{CString, c_int, c_void};

/// Tables of pointers are looked for in allocations of up to so many bytes.
const TABLE: u64 = 1 << 20;

/// A stretch of memory.
pub(crate) struct Stretch {
    pub(crate) kind: Kind,
    pub(crate) at: u64,
    pub(crate) len: u64,
    on_host: bool,
    /// Its bytes before the launch.
    pub(crate) before: Vec<u8>,
}

impl Stretch {
    /// Its bytes now; nothing where the driver can't read them.
    pub(crate) fn read(&self) -> Option<Vec<u8>> {
        let mut bytes = vec![0; self.len as usize];
        let to = bytes.as_mut_ptr();
        let read = match self.on_host {
            true => {
                // SAFETY: memory of the host that the driver knows, of this length.
                unsafe { std::ptr::copy(self.at as *const u8, to, bytes.len()) };
                OK
            }
            false => driver::cuMemcpyDtoH_v2(to.cast::<c_void>(), self.at, bytes.len()),
        };
        (read == OK).then_some(bytes)
    }
}

/// All that a launch can reach.
pub(crate) struct Reach {
    found: BTreeMap<u64, Stretch>,
    limit: u64,
    used: u64,
    /// What is left out, in words.
    pub(crate) left_out: Vec<String>,
}

impl Reach {
    pub(crate) fn new(limit: u64) -> Reach {
        Reach {
            found: BTreeMap::new(),
            limit,
            used: 0,
            left_out: Vec::new(),
        }
    }

    /// Adds the variables of a module.
    pub(crate) fn variables(&mut self, module: &Module, owner: Option<Owner>) {
        let mut hidden = Vec::new();
        let in_memory = |space: Space| matches!(space, Space::Global | Space::Const);
        for one in module.variables().filter(|one| in_memory(one.space)) {
            let name = one.name.as_str();
            let (mut at, mut len) = (0u64, 0usize);
            let Ok(symbol) = CString::new(name) else {
                continue;
            };
            let asked = match owner {
                Some(Owner::Module(module)) => {
                    driver::cuModuleGetGlobal_v2(&raw mut at, &raw mut len, module, symbol.as_ptr())
                }
                Some(Owner::Library(library)) => {
                    driver::cuLibraryGetGlobal(&raw mut at, &raw mut len, library, symbol.as_ptr())
                }
                None => driver::MISSING,
            };
            match asked {
                OK => self.add(Kind::Variable(name.to_owned()), at, len as u64, false),
                _ => hidden.push(name.to_owned()),
            }
        }
        if !hidden.is_empty() {
            self.left_out.push(format!(
                "variables that the driver does not show, which start with their initial values: {}",
                hidden.join(", ")
            ));
        }
    }

    /// Adds what the words of some bytes point into.
    pub(crate) fn words(&mut self, bytes: &[u8]) {
        for word in bytes.chunks_exact(8) {
            let word = word
                .iter()
                .rev()
                .fold(0, |value, byte| value << 8 | u64::from(*byte));
            self.pointer(word);
        }
    }

    /// Adds the allocation that an address lies in, if it lies in one.
    pub(crate) fn pointer(&mut self, address: u64) {
        if address < 1 << 16 || self.has(address) {
            return;
        }
        if let Some((at, len, on_host)) = allocation(address) {
            self.add(Kind::Allocation, at, len, on_host);
        }
    }

    fn has(&self, address: u64) -> bool {
        let before = self.found.range(..=address).next_back();
        before.is_some_and(|(at, one)| address - at < one.len)
    }

    fn add(&mut self, kind: Kind, at: u64, len: u64, on_host: bool) {
        let next = self.found.range(at..).next().map(|(next, _)| *next);
        if len == 0 || self.has(at) || next.is_some_and(|next| next - at < len) {
            return;
        }
        if self.used.saturating_add(len) > self.limit {
            let told = format!(
                "{len} bytes at {at:#x}, since {} bytes are kept at most (--limit)",
                self.limit
            );
            if !self.left_out.contains(&told) {
                self.left_out.push(told);
            }
            return;
        }
        let mut one = Stretch {
            kind,
            at,
            len,
            on_host,
            before: Vec::new(),
        };
        let Some(bytes) = one.read() else {
            let told = format!("{len} bytes at {at:#x}, which the driver does not read");
            self.left_out.push(told);
            return;
        };
        self.used += len;
        one.before = bytes.clone();
        self.found.insert(at, one);
        if len <= TABLE {
            self.words(&bytes);
        }
    }

    /// All of it, by address.
    pub(crate) fn into_stretches(self) -> Vec<Stretch> {
        self.found.into_values().collect()
    }
}

/// The allocation that an address lies in: its start, its length, and whether it is the host's.
fn allocation(address: u64) -> Option<(u64, u64, bool)> {
    /// Numbers of the driver's attributes.
    const MEMORY_TYPE: c_int = 2;
    const START: c_int = 11;
    const SIZE: c_int = 12;
    /// The type of the host's memory.
    const HOST: u64 = 1;
    let ask = |attribute: c_int| {
        let mut value = 0u64;
        let status = driver::cuPointerGetAttribute((&raw mut value).cast(), attribute, address);
        (status == OK).then_some(value)
    };
    // The type is a number of 32 bits.
    let kind = ask(MEMORY_TYPE)? & 0xffff_ffff;
    let (start, size) = (ask(START)?, ask(SIZE)?);
    (start <= address && address - start < size).then_some((start, size, kind == HOST))
}
