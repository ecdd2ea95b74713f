//! The control-flow graph: basic blocks, edges, dominators and post-dominators.
//!
//! Instructions are numbers here, so that the checker uses it for PTX and the simulator for its
//! decoded operations.

use super::block::BlockId;
use super::dominators::{Tree, reverse_postorder};
use rustc_hash::FxHashSet;
use std::ops::{ControlFlow, Range};
use std::sync::OnceLock;

/// How control leaves an instruction that does not just go on to the next.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Leave {
    /// The instruction that it may go to.
    pub to: Option<usize>,
    /// The list of instructions that it may go to, by its number.
    pub table: Option<usize>,
    /// Whether it may go on to the next as well: the branch is guarded.
    pub falls: bool,
}

/// The control flow of a function. The first block is the entry.
pub struct Graph {
    ranges: Vec<Range<usize>>,
    successors: Vec<Vec<BlockId>>,
    block_of: Vec<BlockId>,
    /// Reverse postorder of what can be reached.
    order: Vec<BlockId>,
    tree: Tree,
    predecessors: OnceLock<Vec<Vec<BlockId>>>,
    post_dominators: OnceLock<Vec<Option<BlockId>>>,
}

impl Graph {
    /// The graph of `count` instructions. `leave` says how control leaves one, `None`
    /// where it goes on; blocks begin at targets, and at `starts` besides.
    ///
    /// A table of targets is an empty block of its own: a hundred branches that share one of a
    /// hundred targets are two hundred edges, not ten thousand.
    pub fn new(
        count: usize,
        starts: impl Iterator<Item = usize>,
        tables: &[Vec<usize>],
        leave: impl Fn(usize) -> Option<Leave>,
    ) -> Graph {
        let leaves: Vec<(usize, Leave)> =
            (0..count).filter_map(|at| Some((at, leave(at)?))).collect();
        let targets = tables.iter().flatten().copied();
        let mut ranges = cut(count, starts.chain(targets), &leaves);
        let last = BlockId::new(ranges.len() - 1);
        let mut block_of = vec![last; count + 1];
        for (block, range) in ranges.iter().enumerate() {
            block_of[range.clone()].fill(BlockId::new(block));
        }
        let mut successors = Vec::with_capacity(ranges.len() + tables.len());
        let place = |at: &usize| (*at < count).then(|| block_of[*at]);
        let mut leaves = leaves.into_iter().peekable();
        for range in &ranges {
            let mut ways: Vec<BlockId> = Vec::new();
            let mut falls = true;
            if let Some((_, leave)) = leaves.next_if(|(at, _)| at + 1 == range.end) {
                ways.extend(leave.to.as_ref().and_then(place));
                ways.extend(leave.table.map(|table| BlockId::new(ranges.len() + table)));
                falls = leave.falls;
            }
            let next = place(&range.end).filter(|next| falls && !ways.contains(next));
            ways.extend(next);
            successors.push(ways);
        }
        for table in tables {
            let mut ways: Vec<BlockId> = table.iter().filter_map(place).collect();
            ways.sort_unstable();
            ways.dedup();
            successors.push(ways);
        }
        ranges.resize(successors.len(), count..count);
        Graph {
            order: reverse_postorder(BlockId::new(0), &successors),
            tree: Tree::new(BlockId::new(0), &successors),
            predecessors: OnceLock::new(),
            post_dominators: OnceLock::new(),
            ranges,
            successors,
            block_of,
        }
    }

    /// The instructions of a block.
    pub fn range(&self, block: BlockId) -> Range<usize> {
        self.ranges[block.index()].clone()
    }

    /// The block of instruction `at`.
    pub fn block_of(&self, at: usize) -> BlockId {
        self.block_of[at]
    }

    /// The successors of a block.
    pub fn successors(&self, block: BlockId) -> &[BlockId] {
        &self.successors[block.index()]
    }

    /// The reachable predecessors of a block.
    pub fn predecessors(&self, block: BlockId) -> &[BlockId] {
        let all = self.predecessors.get_or_init(|| {
            let mut all = vec![Vec::new(); self.blocks()];
            for &from in &self.order {
                for to in self.successors(from) {
                    all[to.index()].push(from);
                }
            }
            all
        });
        &all[block.index()]
    }

    /// How many blocks there are.
    pub fn blocks(&self) -> usize {
        self.ranges.len()
    }

    /// The reachable blocks, each after one of its predecessors.
    pub fn reachable_blocks(&self) -> impl Iterator<Item = BlockId> {
        self.order.iter().copied()
    }

    /// The unreachable blocks, without tables that no such block uses.
    pub fn unreachable_blocks(&self) -> impl Iterator<Item = BlockId> {
        (0..self.blocks())
            .map(BlockId::new)
            .filter(|block| !self.is_reachable(*block) && !self.range(*block).is_empty())
    }

    /// Whether a block is reachable.
    pub fn is_reachable(&self, block: BlockId) -> bool {
        block.index() == 0 || self.tree.above(block).is_some()
    }

    /// Whether every path from the entry to instruction `b` passes instruction `a` first.
    pub fn dominates(&self, a: usize, b: usize) -> bool {
        let (block_a, block_b) = (self.block_of[a], self.block_of[b]);
        if block_a == block_b {
            a < b
        } else {
            self.tree.dominates(block_a, block_b)
        }
    }

    /// The immediate post-dominator of a reachable block: where all paths out of it join. None
    /// where it leads to several ends, or to none.
    pub fn join_of(&self, block: BlockId) -> Option<BlockId> {
        let joins = self.post_dominators.get_or_init(|| {
            let end = self.blocks();
            let mut reversed = vec![Vec::new(); end + 1];
            for &block in &self.order {
                let ways = self.successors(block);
                for &to in ways {
                    reversed[to.index()].push(block);
                }
                if ways.is_empty() {
                    reversed[end].push(block);
                }
            }
            self.above_in(&reversed)
        });
        joins[block.index()]
    }

    /// The reconvergence point of a warp that diverges after each block. Lanes that exit do not
    /// reconverge, so paths that end do not count, and an early return does not keep the others
    /// diverged.
    pub fn meeting_points(&self) -> Vec<Option<BlockId>> {
        let all = || (0..self.blocks()).rev().map(BlockId::new);
        let mut before = vec![Vec::new(); self.blocks()];
        for block in all() {
            for to in self.successors(block) {
                before[to.index()].push(block);
            }
        }
        // The last end is the final reconvergence point. Blocks that can't reach it have an end of
        // their own, and blocks that reach no end (endless loops) their last block.
        let ends = all().filter(|&block| self.successors(block).is_empty());
        let mut home: Vec<Option<BlockId>> = vec![None; self.blocks()];
        let mut anchors = Vec::new();
        for anchor in ends.chain(all()) {
            if home[anchor.index()].is_some() {
                continue;
            }
            anchors.push(anchor);
            let mut open = vec![anchor];
            while let Some(block) = open.pop() {
                if home[block.index()].is_none() {
                    home[block.index()] = Some(anchor);
                    open.extend(&before[block.index()]);
                }
            }
        }
        // An edge that leads only to another end is taken by lanes that exit.
        for (block, sources) in before.iter_mut().enumerate() {
            sources.retain(|from| home[from.index()] == home[block]);
        }
        before.push(anchors);
        self.above_in(&before)
    }

    /// The dominators of the reversed graph, whose root follows all blocks.
    fn above_in(&self, reversed: &[Vec<BlockId>]) -> Vec<Option<BlockId>> {
        let end = BlockId::new(self.blocks());
        let tree = Tree::new(end, reversed);
        // A table is no reconvergence point: it has no instruction.
        let is_place = |&block: &BlockId| block == end || !self.range(block).is_empty();
        (0..self.blocks())
            .map(|block| {
                std::iter::successors(Some(BlockId::new(block)), |&block| tree.above(block))
                    .skip(1)
                    .find(is_place)
                    .filter(|&above| above != end)
            })
            .collect()
    }

    /// The blocks on paths from `from`'s successors that stop at `stop`: the divergent region when
    /// `from` ends in a branch and `stop` is its reconvergence point.
    pub fn between(&self, from: BlockId, stop: Option<BlockId>) -> Vec<BlockId> {
        self.between_unless(from, stop, |_| false)
    }

    /// [`Graph::between`], where paths also end before blocks for which `skip` holds.
    pub fn between_unless(
        &self,
        from: BlockId,
        stop: Option<BlockId>,
        skip: impl Fn(BlockId) -> bool,
    ) -> Vec<BlockId> {
        let mut seen = FxHashSet::default();
        let mut found = Vec::new();
        let mut open: Vec<BlockId> = self.successors(from).to_vec();
        while let Some(block) = open.pop() {
            let stopped = Some(block) == stop || skip(block);
            if stopped || !seen.insert(block) {
                continue;
            }
            found.push(block);
            open.extend(self.successors(block));
        }
        found
    }

    /// Whether instruction `to` can run after instruction `from`, with no
    /// instruction in between for which `stop` holds.
    pub fn reaches(&self, from: usize, to: usize, stop: impl FnMut(usize) -> bool) -> bool {
        let visit = |at| {
            if at == to {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        };
        self.walk(from, stop, visit).is_break()
    }

    /// For each instruction, whether it can run after one of `from`, itself among them, with no
    /// instruction in between for which `stop` holds: [`Graph::reaches`] for all at once.
    pub fn reached(&self, from: &[usize], mut stop: impl FnMut(usize) -> bool) -> Vec<bool> {
        let mut reached = vec![false; self.block_of.len()];
        for &start in from {
            reached[start] = true;
            let _ = self.walk::<()>(start, &mut stop, |at| {
                reached[at] = true;
                ControlFlow::Continue(())
            });
        }
        reached
    }

    /// Visits what can run after instruction `from`, some more than once, until a path comes to an
    /// instruction for which `stop` holds (that one is visited) or `visit` ends it.
    fn walk<B>(
        &self,
        from: usize,
        mut stop: impl FnMut(usize) -> bool,
        mut visit: impl FnMut(usize) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        let mut entered = vec![false; self.blocks()];
        let first = self.block_of(from);
        let mut open = Vec::from([(first, from + 1..self.range(first).end)]);
        'blocks: while let Some((block, range)) = open.pop() {
            for at in range {
                visit(at)?;
                if stop(at) {
                    continue 'blocks;
                }
            }
            for &next in self.successors(block) {
                if !std::mem::replace(&mut entered[next.index()], true) {
                    open.push((next, self.range(next)));
                }
            }
        }
        ControlFlow::Continue(())
    }
}

/// Cuts the row of instructions where one is jumped to, and behind those that leave.
fn cut(
    count: usize,
    starts: impl Iterator<Item = usize>,
    leaves: &[(usize, Leave)],
) -> Vec<Range<usize>> {
    let mut begins = vec![false; count + 1];
    let targets = leaves.iter().filter_map(|(_, leave)| leave.to);
    let behind = leaves.iter().map(|(at, _)| at + 1);
    for at in starts.chain(targets).chain(behind) {
        begins[at.min(count)] = true;
    }
    let mut ranges = Vec::new();
    let mut from = 0;
    for at in (1..count).filter(|&at| begins[at]) {
        ranges.push(from..at);
        from = at;
    }
    ranges.push(from..count);
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What an instruction does: goes on, or to another, perhaps also on; or ends.
    #[derive(Clone, Copy)]
    enum Does {
        On,
        To(usize),
        Maybe(usize),
        Table,
        End,
    }
    use Does::*;

    fn graph_with(table: &[usize], ops: &[Does]) -> Graph {
        let leave = |to, table, falls| Some(Leave { to, table, falls });
        Graph::new(
            ops.len(),
            std::iter::empty(),
            &[table.to_vec()],
            |at| match ops[at] {
                On => None,
                To(to) => leave(Some(to), None, false),
                Maybe(to) => leave(Some(to), None, true),
                Table => leave(None, Some(0), false),
                End => leave(None, None, false),
            },
        )
    }

    fn graph(ops: &[Does]) -> Graph {
        graph_with(&[], ops)
    }

    /// The first instruction of where the lanes meet that part at instruction `at`.
    fn meets(graph: &Graph, at: usize) -> Option<usize> {
        let block = graph.meeting_points()[graph.block_of(at).index()]?;
        Some(graph.range(block).start)
    }

    #[test]
    fn the_sides_of_an_if_meet_behind_it() {
        // 0: @p bra 3; 1: -; 2: bra 4; 3: -; 4: ret
        let graph = graph(&[Maybe(3), On, To(4), On, End]);
        assert_eq!(meets(&graph, 0), Some(4));
        assert!(graph.dominates(0, 4) && !graph.dominates(3, 4));
        // In one block the order decides, and nothing stands before itself.
        assert!(graph.dominates(1, 2) && !graph.dominates(2, 1) && !graph.dominates(1, 1));
        assert_eq!(graph.join_of(graph.block_of(0)), Some(graph.block_of(4)));
    }

    #[test]
    fn a_loop_meets_behind_its_end() {
        // 0: -; 1: @p bra 0; 2: ret
        assert_eq!(meets(&graph(&[On, Maybe(0), End]), 1), Some(2));
    }

    #[test]
    fn an_early_exit_does_not_keep_the_rest_apart() {
        // 0: @p bra 4; 1: @q bra 3; 2: exit; 3: -; 4: ret
        let graph = graph(&[Maybe(4), Maybe(3), End, On, End]);
        assert_eq!(meets(&graph, 0), Some(4));
        assert_eq!(meets(&graph, 1), Some(3));
        assert_eq!(graph.join_of(graph.block_of(1)), None);
    }

    #[test]
    fn an_endless_loop_is_no_trouble() {
        // 0: @p bra 2; 1: -; 2: bra 0
        let graph = graph(&[Maybe(2), On, To(0)]);
        assert_eq!(meets(&graph, 0), Some(2));
        assert_eq!(graph.join_of(graph.block_of(0)), None);
    }

    #[test]
    fn branches_that_share_a_table_meet_behind_it() {
        // 0: @p bra 2; 1: brx; 2: brx; 3: bra 5; 4: -; 5: ret, with a table of 3 and 4
        let graph = graph_with(&[3, 4], &[Maybe(2), Table, Table, To(5), On, End]);
        assert_eq!(meets(&graph, 0), Some(5));
        assert_eq!(meets(&graph, 1), Some(5));
        assert_eq!(graph.join_of(graph.block_of(1)), Some(graph.block_of(5)));
        assert!(graph.dominates(0, 5) && !graph.dominates(1, 3) && !graph.dominates(3, 5));
        assert!(graph.reaches(1, 4, |_| false) && !graph.reaches(1, 2, |_| false));
        assert_eq!(graph.unreachable_blocks().count(), 0);
    }

    #[test]
    fn what_nothing_leads_to_is_known() {
        // 0: bra 2; 1: -; 2: ret
        let graph = graph(&[To(2), On, End]);
        let dead: Vec<usize> = graph
            .unreachable_blocks()
            .flat_map(|block| graph.range(block))
            .collect();
        assert_eq!(dead, [1]);
        assert!(graph.reaches(0, 2, |_| false) && !graph.reaches(0, 1, |_| false));
        assert!(!graph.reaches(1, 1, |_| false));
    }

    #[test]
    fn all_that_is_reached_is_what_each_question_says() {
        // 0: @p bra 4; 1: -; 2: @q bra 1; 3: bra 6; 4: -; 5: -; 6: ret, and no way over 5
        let graph = graph(&[Maybe(4), On, Maybe(1), To(6), On, On, End]);
        let stop = |at| at == 5;
        for starts in [&[0][..], &[2], &[4], &[1, 4]] {
            let each = |to| {
                let comes = |&from: &usize| from == to || graph.reaches(from, to, stop);
                starts.iter().any(comes)
            };
            let reached = graph.reached(starts, stop);
            assert_eq!(
                reached[..7],
                (0..7).map(each).collect::<Vec<_>>(),
                "{starts:?}"
            );
        }
        // The one that stops a path is still reached, and what is behind it is not.
        assert_eq!(graph.reached(&[4], stop)[4..7], [true, true, false]);
    }
}
