//! Global memory: allocations with wide gaps between them.
//!
//! The gaps identify out-of-bounds accesses: an address just past the end of a buffer lies in no
//! allocation, and the nearest one is that buffer.

use super::region::Region;
use super::traffic::Traffic;
use super::window;
use heist_launch::{Foreign, ForeignKind};
use std::sync::Arc;

/// Bytes that belong to nothing around each allocation.
const GAP: u64 = 1 << 20;
/// What allocations are aligned to, as with `cuMemAlloc`.
const ALIGN: u64 = 512;

/// An address that is farther than this from every allocation was not computed from one of them.
const FAR: u64 = 1 << 42;

/// One allocation.
#[derive(Debug)]
pub(crate) struct Allocation {
    pub(crate) base: u64,
    pub(crate) len: u64,
    /// What it is called in messages: ``argument 1`` or `variable `x``.
    pub(crate) name: String,
    pub(crate) region: Region,
    /// Whether device code gave it back.
    pub(crate) freed: bool,
}

impl Allocation {
    /// Whether device code has asked for it.
    fn is_heap(&self) -> bool {
        self.base >= window::HEAP
    }
}

/// All of global memory.
#[derive(Debug, Default)]
pub(crate) struct Global {
    /// By address.
    allocations: Vec<Allocation>,
    next: u64,
    /// The same, of the heap.
    next_of_heap: u64,
    /// The allocation that was found last.
    recent: usize,
    /// Whether a fork has written [still](Global::is_stirred) memory.
    stirred: bool,
    /// What addresses are that lie in no allocation, by address.
    foreign: Arc<[Foreign]>,
}

impl Global {
    /// Adds memory; its address.
    pub(crate) fn add(&mut self, name: String, len: u64, region: Region) -> u64 {
        let base = self.next.max(window::GLOBAL).next_multiple_of(ALIGN);
        self.put(base, name, len, region);
        base
    }

    /// Adds memory that device code has asked for; its address.
    pub(crate) fn allocate(&mut self, name: String, len: u64) -> u64 {
        let base = self.next_of_heap.max(window::HEAP).next_multiple_of(ALIGN);
        self.put(base, name, len, Region::unwritten(len as usize));
        base
    }

    /// Takes back what device code has asked for, in this launch or an earlier one; false where no
    /// such memory begins at the address.
    pub(crate) fn free(&mut self, address: u64) -> bool {
        let at = self.find(address);
        let Some(one) = at.and_then(|at| self.allocations.get_mut(at)) else {
            return false;
        };
        let in_use = one.is_heap() && one.base == address && !one.freed;
        one.freed |= in_use;
        in_use
    }

    /// What is left of the heap: the memory that nobody has given back, by address.
    pub(crate) fn take_heap(&mut self) -> Vec<Allocation> {
        let first = self.allocations.partition_point(|one| !one.is_heap());
        let mut heap = self.allocations.split_off(first);
        self.recent = 0;
        heap.retain(|one| !one.freed);
        heap
    }

    /// Puts memory at an address that no other has. What is added later lies behind it.
    pub(crate) fn put(&mut self, base: u64, name: String, len: u64, mut region: Region) {
        region.count_traffic();
        let end = base.saturating_add(len).saturating_add(GAP);
        let next = match base >= window::HEAP {
            true => &mut self.next_of_heap,
            false => &mut self.next,
        };
        *next = end.max(*next);
        let at = self.allocations.partition_point(|one| one.base < base);
        let one = Allocation {
            base,
            len,
            name,
            region,
            freed: false,
        };
        self.allocations.insert(at, one);
    }

    /// Notes that an argument points into an allocation: it is told beside the allocation's own name, if that
    /// is no name of the program's; `name` is the parameter's, where it says more than its number.
    pub(crate) fn point_out(&mut self, address: u64, argument: usize, name: Option<&str>) {
        let Some(at) = self.find(address) else {
            return;
        };
        let known = &mut self.allocations[at].name;
        match name {
            Some(name) if known.ends_with(&format!("argument {argument}")) => {
                known.push_str(&format!(" (`{name}`)"));
            }
            _ if known.contains(' ') && !known.contains("argument ") => {
                known.push_str(&format!(", argument {argument}"));
            }
            _ => {}
        }
    }

    /// The allocation at an address.
    #[inline]
    pub(crate) fn find(&mut self, address: u64) -> Option<usize> {
        if let Some(recent) = self.allocations.get(self.recent)
            && address.wrapping_sub(recent.base) < recent.len
        {
            return Some(self.recent);
        }
        let after = self.allocations.partition_point(|one| one.base <= address);
        let at = after.checked_sub(1)?;
        let one = &self.allocations[at];
        if address - one.base < one.len {
            self.recent = at;
            Some(at)
        } else {
            None
        }
    }

    /// Whether an address lies in allocation `at`.
    #[inline]
    pub(crate) fn holds(&self, at: usize, address: u64) -> bool {
        self.allocations
            .get(at)
            .is_some_and(|one| address.wrapping_sub(one.base) < one.len)
    }

    /// Bytes of all allocations.
    pub(crate) fn size(&self) -> u64 {
        self.allocations.iter().map(|one| one.len).sum()
    }

    /// A copy that notes what is touched; see [`Region::fork`].
    pub(crate) fn fork(&self) -> Global {
        Global {
            allocations: self
                .allocations
                .iter()
                .map(|one| Allocation {
                    base: one.base,
                    len: one.len,
                    name: one.name.clone(),
                    region: one.region.fork(),
                    freed: one.freed,
                })
                .collect(),
            next: self.next,
            next_of_heap: self.next_of_heap,
            recent: self.recent,
            stirred: false,
            foreign: Arc::clone(&self.foreign),
        }
    }

    /// Whether an allocation that was assumed read-only was written: reads of it are missing in its
    /// [history](crate::race::history).
    pub(crate) fn is_stirred(&self) -> bool {
        let is_stirred = |one: &Allocation| one.region.history.is_stirred();
        self.stirred || self.allocations.iter().any(is_stirred)
    }

    /// A fork is stirred.
    pub(crate) fn stir(&mut self) {
        self.stirred = true;
    }

    /// Takes over what forks have written. False, and nothing has changed, if one
    /// of them has written what another one has touched.
    pub(crate) fn absorb(&mut self, mut forks: Vec<Global>) -> bool {
        let apart = (0..self.allocations.len()).all(|at| {
            let parts: Vec<&Region> = forks
                .iter()
                .filter_map(|fork| fork.allocations.get(at).map(|one| &one.region))
                .collect();
            Region::are_apart(&parts)
        });
        if apart {
            for (at, one) in self.allocations.iter_mut().enumerate() {
                let parts = forks.iter_mut().filter_map(|fork| {
                    let part = fork.allocations.get_mut(at)?;
                    Some(std::mem::take(&mut part.region))
                });
                one.region.absorb(parts.collect());
            }
        }
        apart
    }

    /// Bytes that came from DRAM or went there.
    pub(crate) fn traffic(&self) -> u64 {
        let all = self.allocations.iter();
        all.map(|one| one.region.traffic.bytes()).sum()
    }

    /// The same of forks together.
    pub(crate) fn traffic_of(forks: &[Global]) -> u64 {
        let most = forks.iter().map(|fork| fork.allocations.len()).max();
        let of = |at: usize| {
            let parts = forks
                .iter()
                .filter_map(move |fork| fork.allocations.get(at));
            Traffic::of_all(parts.map(|one| &one.region.traffic))
        };
        (0..most.unwrap_or(0)).map(of).sum()
    }

    /// Forgets what the race detector knows.
    pub(crate) fn forget_races(&mut self) {
        for one in &mut self.allocations {
            one.region.forget_races();
        }
    }

    pub(crate) fn get(&self, at: usize) -> Option<&Allocation> {
        self.allocations.get(at)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, at: usize) -> Option<&mut Allocation> {
        self.allocations.get_mut(at)
    }

    /// Takes an allocation's contents out.
    pub(crate) fn take(&mut self, address: u64) -> Option<Region> {
        let at = self.find(address)?;
        Some(std::mem::take(&mut self.allocations[at].region))
    }

    /// Says what addresses outside of all allocations are, by address.
    pub(crate) fn know(&mut self, foreign: Arc<[Foreign]>) {
        self.foreign = foreign;
    }

    /// What an address is that lies in no allocation.
    pub(crate) fn foreign(&self, address: u64) -> Option<&Foreign> {
        let after = self.foreign.partition_point(|one| one.at.start <= address);
        let one = self.foreign.get(after.checked_sub(1)?)?;
        one.at.contains(&address).then_some(one)
    }

    /// Whether an address lies in memory that was given back, by device code or by the host.
    pub(crate) fn is_freed(&mut self, address: u64) -> bool {
        match self.find(address) {
            Some(at) => self.allocations[at].freed,
            None => {
                let why = self.foreign(address).map(|one| &one.why);
                matches!(why, Some(ForeignKind::Freed(_)))
            }
        }
    }

    /// An address in words: in which allocation it lies, or how far it is from the nearest.
    pub(crate) fn describe(&self, address: u64) -> String {
        let distance = |one: &Allocation| {
            if address < one.base {
                one.base - address
            } else {
                (address - one.base).saturating_sub(one.len.saturating_sub(1))
            }
        };
        if let Some(known) = self.foreign(address) {
            return match &known.why {
                ForeignKind::Host => format!("{address:#x}, which is the host's memory"),
                ForeignKind::Freed(name) => format!(
                    "{address:#x}, byte {} of `{name}`, which was given back before this launch",
                    address - known.at.start
                ),
            };
        }
        let Some(one) = self.allocations.iter().min_by_key(|one| distance(one)) else {
            return format!("{address:#x}, and the kernel has no global memory at all");
        };
        let (name, len) = (&one.name, one.len);
        if address == 0 {
            "a null pointer".to_owned()
        } else if distance(one) > FAR {
            format!("{address:#x}, which is far from all memory of the kernel")
        } else if address < one.base {
            format!(
                "{address:#x}, {} bytes before {name} ({len} bytes at {:#x})",
                one.base - address,
                one.base
            )
        } else if address - one.base >= len {
            format!(
                "{address:#x}, {} bytes past the end of {name} ({len} bytes at {:#x})",
                address - one.base - len,
                one.base
            )
        } else {
            format!(
                "{address:#x}, byte {} of {name} ({len} bytes)",
                address - one.base
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_lies_where_it_is_put() {
        let mut global = Global::default();
        let far = 0x10_0000_0000;
        global.put(far, "`far`".into(), 64, Region::unwritten(64));
        global.put(far - 4096, "`near`".into(), 64, Region::unwritten(64));
        let added = global.add("a".into(), 16, Region::unwritten(16));
        assert!(added > far + 64);
        for (at, address) in [far - 4096, far, added].into_iter().enumerate() {
            assert_eq!(global.find(address), Some(at));
        }
    }

    #[test]
    fn an_address_is_told_by_its_neighbour() {
        let mut global = Global::default();
        let a = global.add("argument 0".into(), 64, Region::unwritten(64));
        let b = global.add("argument 1".into(), 16, Region::unwritten(16));
        assert_eq!(global.find(a + 63), Some(0));
        assert_eq!(global.find(a + 64), None);
        assert_eq!(global.find(b), Some(1));
        assert_eq!(global.find(0), None);
        assert!(
            global
                .describe(a + 64)
                .contains("0 bytes past the end of argument 0")
        );
        assert!(global.describe(b - 4).contains("4 bytes before argument 1"));
        assert!(global.describe(b + 4).contains("byte 4 of argument 1"));
    }

    #[test]
    fn arguments_are_told_by_their_names() {
        let mut global = Global::default();
        let a = global.add("the buffer of argument 0".into(), 64, Region::unwritten(64));
        let b = global.add("`malloc no. 1 of 8 bytes`".into(), 8, Region::unwritten(8));
        let c = global.add("`x`".into(), 8, Region::unwritten(8));
        for (at, (address, name)) in [(a, Some("state")), (b, None), (b, None), (c, None)]
            .into_iter()
            .enumerate()
        {
            global.point_out(address, at, name);
        }
        let told = |address| global.describe(address);
        assert!(told(a).contains("of the buffer of argument 0 (`state`) ("));
        assert!(told(b).contains("of `malloc no. 1 of 8 bytes`, argument 1 ("));
        assert!(told(c).contains("of `x` ("));
    }
}
