//! The `wgmma` products of a warp that are in flight, and the registers that they use.

use crate::lanes::LANES;
use crate::race::clock::Agent;

/// A product in flight.
#[derive(Debug)]
pub(crate) struct Product {
    pub(crate) pc: u32,
    /// The group that it was committed to.
    pub(crate) group: Option<u64>,
    /// The rows of the warp's registers that it writes, and those that it reads.
    pub(crate) rows: Vec<u32>,
    pub(crate) sources: Vec<u32>,
    pub(crate) values: Vec<[u32; LANES]>,
    /// Rows that one of the results was copied to meanwhile, and its number: an assembler
    /// makes one register of the two.
    pub(crate) copies: Vec<(u32, usize)>,
    /// Its number among the warp's, and so among its warpgroup's.
    pub(crate) id: u64,
    /// The cycle when it is done.
    pub(crate) done: u64,
}

/// A set of rows of registers.
#[derive(Debug, Default)]
pub(crate) struct Rows(pub(crate) Vec<u64>);

impl Rows {
    #[inline]
    pub(crate) fn insert(&mut self, row: u32) {
        let word = row as usize / 64;
        if self.0.len() <= word {
            self.0.resize(word + 1, 0);
        }
        self.0[word] |= 1 << (row % 64);
    }

    #[inline]
    pub(crate) fn has(&self, row: u32) -> bool {
        self.0
            .get(row as usize / 64)
            .is_some_and(|word| word >> (row % 64) & 1 != 0)
    }

    #[inline]
    pub(crate) fn remove(&mut self, row: u32) {
        if let Some(word) = self.0.get_mut(row as usize / 64) {
            *word &= !(1 << (row % 64));
        }
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// A warp's products.
#[derive(Debug, Default)]
pub(crate) struct Products {
    pub(crate) pending: Vec<Product>,
    /// Groups committed so far.
    pub(crate) groups: u64,
    /// Whether there has been a `wgmma.fence`.
    pub(crate) fenced: bool,
    /// Rows written by ordinary instructions since the last one, and rows with results that they read.
    pub(crate) written: Rows,
    pub(crate) looked_at: Rows,
    /// Rows with the results of products that were waited for.
    pub(crate) results: Rows,
    /// Rows that products in flight write, and those that they read.
    pub(crate) flying: Rows,
    pub(crate) read: Rows,
    /// When the tensor cores are free again.
    pub(crate) busy_until: u64,
    pub(crate) made: u64,
    /// How often the warp has checked whether its warpgroup has arrived.
    pub(crate) looks: u32,
    /// Rows that a `tcgen05.ld` is going to write, and the last one of them.
    pub(crate) loading: Rows,
    pub(crate) loader: u32,
    /// Where one of them was read before the wait.
    pub(crate) used: Option<u32>,
}

/// How many products each warp of a block has issued. A product is one operation of the whole
/// warpgroup: it completes as a whole once all four warps have issued it, so one thread can wait
/// for the group.
///
/// For the race detector a warpgroup's products are an agent of its own, whose clock is
/// the number of the group: a thread that has waited for it may tell others, by a release, that the
/// operands are free.
#[derive(Debug, Default)]
pub(crate) struct Issued {
    products: Vec<u64>,
    agents: Vec<(u32, Agent)>,
}

impl Issued {
    pub(crate) fn count(&mut self, warp: u32, products: u64) {
        let warp = warp as usize;
        if self.products.len() <= warp {
            self.products.resize(warp + 1, 0);
        }
        self.products[warp] = products;
    }

    /// The agent of a warp's group; `new` makes a name.
    pub(crate) fn agent(&mut self, warp: u32, new: impl FnOnce() -> Agent) -> Agent {
        let group = warp / 4;
        if let Some(&(_, agent)) = self.agents.iter().find(|(of, _)| *of == group) {
            return agent;
        }
        let agent = new();
        self.agents.push((group, agent));
        agent
    }

    /// A warp of the group that has issued fewer than `products`.
    pub(crate) fn missing(&self, warp: u32, products: u64) -> Option<u32> {
        let first = warp / 4 * 4;
        (first..first + 4)
            .find(|&one| self.products.get(one as usize).copied().unwrap_or(0) < products)
    }
}

impl Products {
    pub(crate) fn fence(&mut self) {
        self.fenced = true;
        self.written.clear();
        self.looked_at.clear();
    }

    pub(crate) fn commit(&mut self) {
        self.groups += 1;
        for product in &mut self.pending {
            product.group.get_or_insert(self.groups);
        }
    }

    /// Notes again which rows are in flight.
    pub(crate) fn refresh(&mut self) {
        self.flying.clear();
        self.read.clear();
        for product in &self.pending {
            let copies = product.copies.iter().map(|(row, _)| row);
            let written = product.rows.iter().chain(copies);
            written.for_each(|&row| self.flying.insert(row));
            product
                .sources
                .iter()
                .for_each(|&row| self.read.insert(row));
        }
    }

    /// A load of tensor memory is going to write some rows.
    pub(crate) fn load(&mut self, rows: &[u32], pc: u32) {
        rows.iter().for_each(|&row| self.loading.insert(row));
        self.loader = pc;
    }

    /// All loads of tensor memory are over.
    pub(crate) fn loaded(&mut self) {
        self.loading.clear();
        self.used = None;
    }

    /// The product in flight that uses a row.
    pub(crate) fn user(&self, row: u32) -> Option<&Product> {
        self.pending
            .iter()
            .rev()
            .find(|product| product.result(row).is_some() || product.sources.contains(&row))
    }

    /// A result that is still to come is copied to another row.
    pub(crate) fn copy(&mut self, from: u32, to: u32) {
        let mut pending = self.pending.iter_mut().rev();
        let found = pending.find_map(|product| Some((product.result(from)?, product)));
        if let Some((result, product)) = found {
            product.copies.push((to, result));
            self.flying.insert(to);
        }
    }
}

impl Product {
    /// Which of its results a row is going to hold.
    fn result(&self, row: u32) -> Option<usize> {
        let copied = || {
            let mut copies = self.copies.iter();
            copies.find(|(to, _)| *to == row).map(|&(_, result)| result)
        };
        let own = self.rows.iter().position(|&own| own == row);
        own.or_else(copied)
    }

    /// Whether a row is going to hold one of its results.
    pub(crate) fn uses(&self, row: u32) -> bool {
        self.result(row).is_some()
    }

    /// Whether these rows are going to hold its results, in their order.
    pub(crate) fn makes(&self, rows: &[u32]) -> bool {
        rows.len() == self.rows.len()
            && rows
                .iter()
                .enumerate()
                .all(|(at, &row)| self.rows[at] == row || self.copies.contains(&(row, at)))
    }
}
