//! Memory that outlives launches.
//!
//! Device memory has addresses that the host can't access, as on a real device. Managed and pinned
//! memory is host memory at an address that is valid in the simulator as well; its bytes are copied
//! in and out around each launch.

use crate::raw;
use heist_launch::{Foreign, ForeignKind, Placed};
use std::collections::{BTreeMap, VecDeque};
use std::ffi::c_void;
use std::ops::Range;
use std::sync::Arc;

/// Where device memory begins, and the free bytes behind each allocation.
const DEVICE: u64 = 0x100_0000_0000;
const GAP: u64 = 1 << 20;
/// Where memory that the host can touch is mapped.
const HOST: u64 = 0x200_0000_0000;

/// The name of memory that host and device share as they like; the driver's is the same.
pub(crate) const MANAGED: &str = "cudaMallocManaged";

/// How many allocations that were given back are remembered, the last ones.
const REMEMBERED: usize = 4096;

/// One allocation.
struct Block {
    memory: Placed,
    /// Where its bytes are in the host's memory, if the host may touch it.
    host: Option<u64>,
    /// Whether a kernel took it with `malloc`: a kernel gives it back, and the host can't.
    of_kernel: bool,
}

impl Block {
    fn new(memory: Placed, host: Option<u64>) -> Block {
        let of_kernel = false;
        Block {
            memory,
            host,
            of_kernel,
        }
    }
}

/// All allocations, by their address on the device.
#[derive(Default)]
pub(crate) struct Heap {
    blocks: BTreeMap<u64, Block>,
    /// What was given back, the oldest first. No address is used a second time.
    freed: VecDeque<(Range<u64>, String)>,
    device: u64,
    mapped: u64,
    made: u64,
}

impl Heap {
    /// An address with room behind it, which nothing else gets.
    pub(crate) fn reserve(&mut self, len: usize) -> u64 {
        let at = DEVICE + self.device;
        self.device += (len as u64).next_multiple_of(512) + GAP;
        at
    }

    /// Uninitialised device memory, for a call.
    pub(crate) fn device(&mut self, by: &str, len: usize) -> u64 {
        let at = self.reserve(len);
        self.fresh(by, at, len);
        at
    }

    /// Uninitialised memory for an image.
    pub(crate) fn array(&mut self, len: usize) -> u64 {
        let at = self.reserve(len);
        self.fresh("cudaMallocArray", at, len);
        at
    }

    /// Uninitialised memory of a stream or a graph, at an address that was reserved; false where an
    /// earlier run has left it.
    pub(crate) fn device_at(&mut self, by: &str, at: u64, len: usize) -> bool {
        let free = !self.blocks.contains_key(&at);
        if free {
            self.freed.retain(|(range, _)| range.start != at);
            self.fresh(by, at, len);
        }
        free
    }

    fn fresh(&mut self, what: &str, at: u64, len: usize) {
        self.made += 1;
        let name = format!("{what} no. {} of {len} bytes", self.made);
        let memory = Placed::fresh(name, at, len);
        self.blocks.insert(at, Block::new(memory, None));
    }

    /// Memory that host and device access at one address; none where the host can't map it.
    pub(crate) fn shared(&mut self, what: &str, len: usize) -> Option<u64> {
        let room = len.max(1).next_multiple_of(4096);
        let at = HOST + self.mapped;
        if !map(at, room) {
            return None;
        }
        self.mapped += room as u64 + GAP;
        self.made += 1;
        let name = format!("{what} no. {} of {len} bytes", self.made);
        self.own(name, at, at, len);
        Some(at)
    }

    /// Memory of the host that the program brings, under another address on the device.
    pub(crate) fn registered(&mut self, host: u64, len: usize) -> u64 {
        let at = self.reserve(len);
        self.made += 1;
        let name = format!("cudaHostRegister no. {} of {len} bytes", self.made);
        self.own(name, at, host, len);
        at
    }

    fn own(&mut self, name: String, at: u64, host: u64, len: usize) {
        let memory = Placed::filled(name, at, vec![0; len]);
        let host = Some(host);
        self.blocks.insert(at, Block::new(memory, host));
    }

    /// A variable of a module.
    pub(crate) fn variable(&mut self, name: &str, at: u64, bytes: Vec<u8>) {
        let memory = Placed::filled(name, at, bytes);
        self.blocks.insert(at, Block::new(memory, None));
    }

    /// Lets the host touch a variable, at its address; nothing where the host has other memory
    /// there.
    pub(crate) fn map_variable(&mut self, at: u64, len: usize) -> Option<u64> {
        let start = at & !4095;
        let room = (at + len as u64 - start).next_multiple_of(4096) as usize;
        let block = self.blocks.get_mut(&at)?;
        if !map(start, room) {
            return None;
        }
        raw::fill(at as *mut c_void, &block.memory.bytes);
        block.host = Some(at);
        Some(at)
    }

    /// The allocation that an address lies in.
    fn find(&mut self, address: u64) -> Option<&mut Block> {
        let (_, block) = self.blocks.range_mut(..=address).next_back()?;
        let inside = address - block.memory.at < block.memory.bytes.len().max(1) as u64;
        inside.then_some(block)
    }

    /// Whether host and device both have it as theirs: managed memory, and managed variables.
    pub(crate) fn is_managed(&mut self, address: u64) -> bool {
        let block = self.find(address);
        block.is_some_and(|block| {
            let variable = block.memory.at < DEVICE;
            block.host.is_some() && (variable || block.memory.name.starts_with(MANAGED))
        })
    }

    /// Whether the host can touch an address as the device does.
    pub(crate) fn is_shared(address: u64) -> bool {
        (HOST..2 * HOST).contains(&address)
    }

    /// Whether there is memory that the host can touch as the device does.
    pub(crate) fn has_shared(&self) -> bool {
        self.blocks.range(HOST..2 * HOST).next().is_some()
    }

    /// The name of an allocation.
    pub(crate) fn name(&mut self, address: u64) -> String {
        let block = self.find(address);
        block.map_or_else(String::new, |block| block.memory.name.clone())
    }

    /// Where the allocations begin that begin in a range.
    pub(crate) fn starts_in(&self, at: u64, len: usize) -> Vec<u64> {
        let range = at..at.saturating_add(len as u64);
        self.blocks.range(range).map(|(at, _)| *at).collect()
    }

    /// Whether an address is of the device, and where its allocation begins, how long it is,
    /// and where the host has it.
    pub(crate) fn place(&mut self, address: u64) -> Option<(u64, u64, Option<u64>)> {
        let block = self.find(address)?;
        let memory = &block.memory;
        Some((memory.at, memory.bytes.len() as u64, block.host))
    }

    /// The address on the device of memory that was registered.
    pub(crate) fn of_host(&self, host: u64) -> Option<u64> {
        self.blocks.values().find_map(|block| {
            let start = block.host?;
            let inside = host.wrapping_sub(start) < block.memory.bytes.len() as u64;
            inside.then(|| block.memory.at + (host - start))
        })
    }

    /// Gives memory back; false where nothing begins at the address.
    pub(crate) fn free(&mut self, address: u64) -> bool {
        if self
            .blocks
            .get(&address)
            .is_none_or(|block| block.of_kernel)
        {
            return false;
        }
        let Some(block) = self.blocks.remove(&address) else {
            return false;
        };
        if let Some(host) = block.host
            && host == address
        {
            let room = block.memory.bytes.len().max(1).next_multiple_of(4096);
            // SAFETY: the mapping that `shared` made, which the program has given back.
            unsafe { libc::munmap(host as *mut c_void, room) };
        }
        let (at, len) = (block.memory.at, block.memory.bytes.len() as u64);
        self.freed.push_back((at..at + len, block.memory.name));
        if self.freed.len() > REMEMBERED {
            self.freed.pop_front();
        }
        true
    }

    /// How many of some bytes at an address lie in the allocation there.
    fn inside(&mut self, address: u64, len: usize) -> Option<usize> {
        let block = self.find(address)?;
        let left = block.memory.bytes.len() as u64 - (address - block.memory.at);
        Some(left.min(len as u64) as usize)
    }

    /// Whether bytes lie in one allocation, or in several that adjoin, as memory that was mapped in pieces does.
    fn is_whole(&mut self, address: u64, len: usize) -> bool {
        let mut done = 0;
        while done < len {
            match self.inside(address + done as u64, len - done) {
                None | Some(0) => return false,
                Some(more) => done += more,
            }
        }
        true
    }

    /// Bytes from an address; nothing where they do not lie in memory of the device.
    pub(crate) fn read(&mut self, address: u64, len: usize) -> Option<Vec<u8>> {
        if !self.is_whole(address, len) {
            return None;
        }
        let mut bytes = Vec::with_capacity(len);
        while bytes.len() < len {
            let next = address + bytes.len() as u64;
            let more = self.inside(next, len - bytes.len())?;
            let block = self.find(next)?;
            let at = (next - block.memory.at) as usize;
            match block.host {
                Some(host) => bytes.extend(raw::bytes((host + at as u64) as *const c_void, more)),
                None => bytes.extend_from_slice(&block.memory.bytes[at..at + more]),
            }
        }
        Some(bytes)
    }

    /// Writes bytes to an address; false where they do not fit in memory of the device.
    pub(crate) fn write(&mut self, address: u64, mut bytes: &[u8]) -> bool {
        if !self.is_whole(address, bytes.len()) {
            return false;
        }
        let mut next = address;
        while let Some(more) = self.inside(next, bytes.len()).filter(|&more| more > 0)
            && let Some(block) = self.find(next)
        {
            let at = (next - block.memory.at) as usize;
            let (now, rest) = bytes.split_at(more);
            match block.host {
                Some(host) => raw::fill((host + at as u64) as *mut c_void, now),
                None => {
                    let all = Arc::make_mut(&mut block.memory.bytes);
                    all[at..at + more].copy_from_slice(now);
                    block.memory.mark(at, more);
                }
            }
            next += more as u64;
            bytes = rest;
        }
        true
    }

    /// All memory for a launch; [`Heap::give_back`] takes it again.
    pub(crate) fn lend(&mut self) -> Vec<Placed> {
        let blocks = self.blocks.values_mut();
        let lent = blocks.map(|block| {
            if let Some(host) = block.host {
                let len = block.memory.bytes.len();
                block.memory.bytes = raw::bytes(host as *const c_void, len).into();
            }
            block.memory.clone()
        });
        lent.collect()
    }

    /// What addresses are that a program may have and that are no memory of the device: what was
    /// given back, and the host's memory.
    pub(crate) fn foreign(&self) -> Arc<[Foreign]> {
        let freed = self.freed.iter().map(|(at, name)| Foreign {
            at: at.clone(),
            why: ForeignKind::Freed(name.clone()),
        });
        let host = host_memory()
            .into_iter()
            // What the host has mapped for the device is the device's, too.
            .filter(|at| !(DEVICE..2 * HOST).contains(&at.start))
            .map(|at| Foreign {
                at,
                why: ForeignKind::Host,
            });
        let mut all: Vec<Foreign> = freed.chain(host).collect();
        all.sort_by_key(|one| one.at.start);
        all.into()
    }

    /// Takes memory as a kernel left it, with what the kernel took for itself.
    pub(crate) fn give_back(&mut self, placed: Vec<Placed>) {
        self.blocks.retain(|_, block| !block.of_kernel);
        for memory in placed {
            let Some(block) = self.blocks.get_mut(&memory.at) else {
                let block = Block {
                    host: None,
                    of_kernel: true,
                    memory,
                };
                self.blocks.insert(block.memory.at, block);
                continue;
            };
            if let Some(host) = block.host {
                raw::fill(host as *mut c_void, &memory.bytes);
            }
            block.memory = memory;
        }
    }

    /// Bytes in use.
    pub(crate) fn used(&self) -> u64 {
        let lengths = self.blocks.values().map(|one| one.memory.bytes.len());
        lengths.sum::<usize>() as u64
    }

    /// Device memory that was never given back: how many allocations, and their bytes.
    pub(crate) fn leaked(&self) -> (usize, u64) {
        let kept = self.blocks.range(DEVICE..HOST).map(|(_, one)| one);
        let lengths: Vec<usize> = kept.map(|one| one.memory.bytes.len()).collect();
        (lengths.len(), lengths.iter().sum::<usize>() as u64)
    }
}

/// The memory that the process has, by the kernel's list of it; adjoining parts are one.
fn host_memory() -> Vec<Range<u64>> {
    let text = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let mut all: Vec<Range<u64>> = Vec::new();
    for line in text.lines() {
        let ends = line
            .split(' ')
            .next()
            .and_then(|range| range.split_once('-'));
        let number = |digits: &str| u64::from_str_radix(digits, 16).ok();
        let Some((start, end)) = ends.and_then(|(a, b)| Some((number(a)?, number(b)?))) else {
            continue;
        };
        match all.last_mut() {
            Some(last) if last.end == start => last.end = end,
            _ => all.push(start..end),
        }
    }
    all
}

/// Maps memory of the host at an address; false where something is there.
fn map(at: u64, room: usize) -> bool {
    // SAFETY: a new mapping, at an address that nothing else has: with that flag the call
    // fails where something has.
    let got = unsafe {
        libc::mmap(
            at as *mut c_void,
            room,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE,
            -1,
            0,
        )
    };
    got as u64 == at
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_found_by_any_address_in_it() {
        let mut heap = Heap::default();
        let (a, b) = (
            heap.device("cudaMalloc", 100),
            heap.device("cudaMalloc", 64),
        );
        assert!(heap.write(a + 4, &[1, 2, 3]));
        assert_eq!(heap.read(a + 5, 2), Some(vec![2, 3]));
        assert!(!heap.write(a + 98, &[0; 4]) && heap.read(a + 100, 1).is_none());
        let lent = heap.lend();
        assert_eq!(lent.len(), 2);
        let missing = lent[0].written.as_ref().unwrap().first_missing(4, 4);
        assert_eq!(missing, Some(7));
        assert!(heap.free(b) && !heap.free(b) && !heap.free(a + 4));
        assert_eq!(heap.leaked(), (1, 100));
    }

    #[test]
    fn memory_that_was_mapped_in_pieces_is_one() {
        let mut heap = Heap::default();
        let at = heap.reserve(64);
        assert!(heap.device_at("a", at, 32) && heap.device_at("b", at + 32, 32));
        assert!(!heap.device_at("b", at, 32));
        let bytes: Vec<u8> = (0..40).collect();
        assert!(heap.write(at + 8, &bytes));
        assert_eq!(heap.read(at + 9, 38), Some(bytes[1..39].to_vec()));
        assert!(!heap.write(at + 32, &[0; 33]) && heap.read(at + 32, 33).is_none());
        assert_eq!(heap.starts_in(at, 64), [at, at + 32]);
        assert!(heap.free(at) && heap.read(at, 64).is_none());
    }

    #[test]
    fn host_and_device_see_the_same_managed_memory() {
        let mut heap = Heap::default();
        let at = heap.shared("cudaMallocManaged", 16).unwrap();
        raw::fill(at as *mut c_void, &[7; 4]);
        let mut lent = heap.lend();
        assert_eq!(lent[0].bytes[..5], [7, 7, 7, 7, 0]);
        std::sync::Arc::make_mut(&mut lent[0].bytes)[4] = 9;
        heap.give_back(lent);
        assert_eq!(raw::bytes(at as *const c_void, 5), [7, 7, 7, 7, 9]);
        assert!(heap.free(at));
    }

    #[test]
    fn addresses_of_freed_memory_and_of_the_host_are_told_by_what_they_are() {
        let mut heap = Heap::default();
        let (kept, gone) = (
            heap.device("cudaMalloc", 100),
            heap.device("cudaMalloc", 64),
        );
        assert!(heap.free(gone));
        let foreign = heap.foreign();
        assert!(foreign.is_sorted_by_key(|one| one.at.start));
        let why = |address: u64| {
            let one = foreign.iter().find(|one| one.at.contains(&address));
            one.map(|one| one.why.clone())
        };
        let name = "cudaMalloc no. 2 of 64 bytes".to_owned();
        assert_eq!(why(gone + 63), Some(ForeignKind::Freed(name)));
        assert_eq!((why(gone + 64), why(kept)), (None, None));
        let here = 5;
        assert_eq!(
            why((&raw const here).addr() as u64),
            Some(ForeignKind::Host)
        );
        // A graph has its memory again when it runs again.
        assert!(heap.device_at("node", gone, 64));
        let freed = |one: &Foreign| matches!(one.why, ForeignKind::Freed(_));
        assert!(!heap.foreign().iter().any(freed));
    }
}
