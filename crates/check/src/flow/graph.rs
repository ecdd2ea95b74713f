//! Blocks, the ways between them, and who stands before whom on every way.

use super::Op;
use super::labels::Labels;
use heist_ptx::Operand;
use std::ops::Range;

/// A block of a [`Graph`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct BlockId(u32);

impl BlockId {
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

/// The control flow of a function. The first block is the entry.
pub(crate) struct Graph {
    ranges: Vec<Range<usize>>,
    successors: Vec<Vec<BlockId>>,
    block_of: Vec<BlockId>,
    /// Reverse postorder of what can be reached.
    order: Vec<BlockId>,
    /// The immediate dominator, for what can be reached.
    dominator: Vec<Option<BlockId>>,
    /// The immediate postdominator; none where a block leads to several ends.
    postdominator: Vec<Option<BlockId>>,
}

impl Graph {
    pub(super) fn new<'m>(ops: &[Op<'m>], labels: &Labels<'m>) -> Graph {
        let ranges = cut(ops, labels);
        let mut block_of = vec![BlockId(0); ops.len() + 1];
        for (block, range) in ranges.iter().enumerate() {
            for at in range.clone() {
                block_of[at] = BlockId(block as u32);
            }
        }
        block_of[ops.len()] = BlockId(ranges.len().saturating_sub(1) as u32);
        let mut successors = vec![Vec::new(); ranges.len()];
        let mut predecessors = vec![Vec::new(); ranges.len()];
        for (block, range) in ranges.iter().enumerate() {
            for to in ways_out(ops, range, labels) {
                if to >= ops.len() {
                    continue;
                }
                let to = block_of[to];
                if !successors[block].contains(&to) {
                    successors[block].push(to);
                    predecessors[to.index()].push(BlockId(block as u32));
                }
            }
        }
        let order = reverse_postorder(&successors);
        let dominator = dominators(&order, &predecessors);
        let postdominator = postdominators(&order, &successors);
        Graph {
            ranges,
            successors,
            block_of,
            order,
            dominator,
            postdominator,
        }
    }

    /// The instructions of a block.
    pub(crate) fn range(&self, block: BlockId) -> Range<usize> {
        self.ranges[block.index()].clone()
    }

    /// The block of instruction `at`.
    pub(crate) fn block_of(&self, at: usize) -> BlockId {
        self.block_of[at]
    }

    pub(crate) fn successors(&self, block: BlockId) -> &[BlockId] {
        &self.successors[block.index()]
    }

    /// How many blocks there are.
    pub(crate) fn len(&self) -> usize {
        self.ranges.len()
    }

    /// What can run, each block after one of its predecessors.
    pub(crate) fn reachable_blocks(&self) -> impl Iterator<Item = BlockId> {
        self.order.iter().copied()
    }

    /// What can never run.
    pub(crate) fn unreachable_blocks(&self) -> impl Iterator<Item = BlockId> {
        (0..self.len() as u32)
            .map(BlockId)
            .filter(|block| !self.is_reachable(*block))
    }

    pub(crate) fn is_reachable(&self, block: BlockId) -> bool {
        block.index() == 0 || self.dominator[block.index()].is_some()
    }

    /// Whether every way from the entry to instruction `b` passes instruction `a` first.
    pub(crate) fn dominates(&self, a: usize, b: usize) -> bool {
        let (block_a, mut block_b) = (self.block_of(a), self.block_of(b));
        if block_a == block_b {
            return a < b;
        }
        while let Some(above) = self.dominator[block_b.index()] {
            if above == block_a {
                return true;
            }
            if above == block_b {
                return false;
            }
            block_b = above;
        }
        false
    }

    /// Where the ways out of `block` meet again.
    pub(crate) fn join_of(&self, block: BlockId) -> Option<BlockId> {
        self.postdominator[block.index()]
    }

    /// The blocks on ways from `from`'s successors that stop at `stop`: what
    /// runs only on some of the ways when `from` ends in a branch and `stop`
    /// is where they meet.
    pub(crate) fn between(&self, from: BlockId, stop: Option<BlockId>) -> Vec<BlockId> {
        let mut seen = vec![false; self.len()];
        let mut found = Vec::new();
        let mut open: Vec<BlockId> = self.successors(from).to_vec();
        while let Some(block) = open.pop() {
            if Some(block) == stop || std::mem::replace(&mut seen[block.index()], true) {
                continue;
            }
            found.push(block);
            open.extend(self.successors(block));
        }
        found
    }

    /// Whether instruction `to` can run after instruction `from`, with no
    /// instruction in between for which `stop` holds.
    pub(crate) fn reaches(
        &self,
        from: usize,
        to: usize,
        mut stop: impl FnMut(usize) -> bool,
    ) -> bool {
        let mut entered = vec![false; self.len()];
        let rest = from + 1..self.range(self.block_of(from)).end;
        let mut open = Vec::from([rest]);
        while let Some(range) = open.pop() {
            let block = self.block_of(if range.is_empty() {
                range.start - 1
            } else {
                range.start
            });
            let mut through = true;
            for at in range {
                if at == to {
                    return true;
                }
                if stop(at) {
                    through = false;
                    break;
                }
            }
            if !through {
                continue;
            }
            for &next in self.successors(block) {
                if !std::mem::replace(&mut entered[next.index()], true) {
                    open.push(self.range(next));
                }
            }
        }
        false
    }
}

/// Cuts the row of instructions where a label points in or a branch leaves.
fn cut(ops: &[Op<'_>], labels: &Labels<'_>) -> Vec<Range<usize>> {
    let mut starts = vec![false; ops.len() + 1];
    starts[0] = true;
    for at in labels.places() {
        starts[at] = true;
    }
    for (at, op) in ops.iter().enumerate() {
        if ends_block(op) {
            starts[at + 1] = true;
        }
    }
    let mut ranges = Vec::new();
    let mut from = 0;
    for (at, &start) in starts.iter().enumerate().take(ops.len()).skip(1) {
        if start {
            ranges.push(from..at);
            from = at;
        }
    }
    ranges.push(from..ops.len());
    ranges
}

fn ends_block(op: &Op<'_>) -> bool {
    matches!(
        op.instruction.opcode.base(),
        "bra" | "brx" | "ret" | "exit" | "trap"
    )
}

/// Where control can go behind a block, as instruction numbers.
fn ways_out<'m>(ops: &[Op<'m>], range: &Range<usize>, labels: &Labels<'m>) -> Vec<usize> {
    let Some(op) = range.clone().next_back().map(|last| &ops[last]) else {
        return Vec::new();
    };
    let mut ways = Vec::new();
    let operands = &op.instruction.operands;
    let names = operands.iter().filter_map(|operand| match operand {
        Operand::Name(name) => Some(name.as_str()),
        _ => None,
    });
    match op.instruction.opcode.base() {
        "bra" => ways.extend(names.filter_map(|name| labels.place(op.scope, name))),
        "brx" => {
            let targets = names
                .filter_map(|name| labels.list(op.scope, name))
                .flatten();
            ways.extend(targets.filter_map(|target| labels.place(op.scope, target)));
        }
        "ret" | "exit" | "trap" => {}
        _ => {
            ways.push(range.end);
            return ways;
        }
    }
    if op.instruction.guard.is_some() {
        ways.push(range.end);
    }
    ways
}

fn reverse_postorder(successors: &[Vec<BlockId>]) -> Vec<BlockId> {
    let mut order = Vec::with_capacity(successors.len());
    if successors.is_empty() {
        return order;
    }
    let mut seen = vec![false; successors.len()];
    seen[0] = true;
    // Without recursion: a generated kernel can have a hundred thousand blocks.
    let mut stack = vec![(BlockId(0), 0)];
    while let Some((block, next)) = stack.pop() {
        match successors[block.index()].get(next) {
            Some(&to) => {
                stack.push((block, next + 1));
                if !std::mem::replace(&mut seen[to.index()], true) {
                    stack.push((to, 0));
                }
            }
            None => order.push(block),
        }
    }
    order.reverse();
    order
}

/// Cooper, Harvey and Kennedy's iteration. The entry has itself as dominator.
fn dominators(order: &[BlockId], predecessors: &[Vec<BlockId>]) -> Vec<Option<BlockId>> {
    let mut rank = vec![usize::MAX; predecessors.len()];
    for (at, block) in order.iter().enumerate() {
        rank[block.index()] = at;
    }
    let mut dominator: Vec<Option<BlockId>> = vec![None; predecessors.len()];
    let Some(&entry) = order.first() else {
        return dominator;
    };
    dominator[entry.index()] = Some(entry);
    let mut changed = true;
    while changed {
        changed = false;
        for &block in &order[1..] {
            let mut best: Option<BlockId> = None;
            for &before in &predecessors[block.index()] {
                if dominator[before.index()].is_none() {
                    continue;
                }
                best = Some(match best {
                    None => before,
                    Some(other) => meet(&dominator, &rank, other, before),
                });
            }
            if best.is_some() && dominator[block.index()] != best {
                dominator[block.index()] = best;
                changed = true;
            }
        }
    }
    dominator
}

fn meet(dominator: &[Option<BlockId>], rank: &[usize], mut a: BlockId, mut b: BlockId) -> BlockId {
    while a != b {
        while rank[a.index()] > rank[b.index()] {
            match dominator[a.index()] {
                Some(above) if above != a => a = above,
                _ => return a,
            }
        }
        while rank[b.index()] > rank[a.index()] {
            match dominator[b.index()] {
                Some(above) if above != b => b = above,
                _ => return b,
            }
        }
    }
    a
}

/// Dominators of the reversed graph, with one end behind all ends.
fn postdominators(order: &[BlockId], successors: &[Vec<BlockId>]) -> Vec<Option<BlockId>> {
    let count = successors.len();
    let end = BlockId(count as u32);
    let mut reversed = vec![Vec::new(); count + 1];
    let mut forward_of_reversed = vec![Vec::new(); count + 1];
    for &block in order {
        let ways = &successors[block.index()];
        let ways: &[BlockId] = if ways.is_empty() { &[end] } else { ways };
        for &to in ways {
            reversed[to.index()].push(block);
            forward_of_reversed[block.index()].push(to);
        }
    }
    // Renumber so that the common end is the entry of the reversed graph.
    let mut seen = vec![false; count + 1];
    let mut postorder = Vec::new();
    seen[end.index()] = true;
    let mut stack = vec![(end, 0)];
    while let Some((block, next)) = stack.pop() {
        match reversed[block.index()].get(next) {
            Some(&to) => {
                stack.push((block, next + 1));
                if !std::mem::replace(&mut seen[to.index()], true) {
                    stack.push((to, 0));
                }
            }
            None => postorder.push(block),
        }
    }
    postorder.reverse();
    let mut found = dominators(&postorder, &forward_of_reversed);
    found.truncate(count);
    for slot in &mut found {
        if *slot == Some(end) {
            *slot = None;
        }
    }
    found
}
