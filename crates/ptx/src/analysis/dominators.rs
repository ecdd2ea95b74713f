//! Dominators, by the iteration of Cooper, Harvey and Kennedy.

use super::block::BlockId;

/// A tree of immediate dominators.
pub(super) struct Tree {
    /// The immediate dominator; none for the root and for unreachable nodes.
    above: Vec<Option<BlockId>>,
    /// The numbers of a node's first and last descendant in a walk over the tree.
    span: Vec<(u32, u32)>,
}

impl Tree {
    /// Of the graph with these edges, from `root`.
    pub(super) fn new(root: BlockId, successors: &[Vec<BlockId>]) -> Tree {
        let order = reverse_postorder(root, successors);
        let mut rank = vec![u32::MAX; successors.len()];
        for (at, node) in order.iter().enumerate() {
            rank[node.index()] = at as u32;
        }
        let mut predecessors = vec![Vec::new(); successors.len()];
        for &node in &order {
            for to in &successors[node.index()] {
                predecessors[to.index()].push(node);
            }
        }
        // The root is its own dominator while the others are looked for.
        let mut above: Vec<Option<BlockId>> = vec![None; successors.len()];
        above[root.index()] = Some(root);
        let mut changed = true;
        while changed {
            changed = false;
            for &node in order.iter().skip(1) {
                let mut best: Option<BlockId> = None;
                for &before in &predecessors[node.index()] {
                    if above[before.index()].is_some() {
                        best = Some(best.map_or(before, |best| meet(&above, &rank, best, before)));
                    }
                }
                if best.is_some() && above[node.index()] != best {
                    above[node.index()] = best;
                    changed = true;
                }
            }
        }
        above[root.index()] = None;
        let span = spans(&order, &above);
        Tree { above, span }
    }

    /// The immediate dominator of a node.
    pub(super) fn above(&self, node: BlockId) -> Option<BlockId> {
        self.above[node.index()]
    }

    /// Whether every path from the root to `b` leads through `a`; a node dominates itself.
    pub(super) fn dominates(&self, a: BlockId, b: BlockId) -> bool {
        let ((first, last), (inner, _)) = (self.span[a.index()], self.span[b.index()]);
        first <= inner && inner <= last
    }
}

/// The first and last number of each node's descendants, itself included. A node that is not in the
/// tree has no descendants and no ancestors.
fn spans(order: &[BlockId], above: &[Option<BlockId>]) -> Vec<(u32, u32)> {
    let mut size = vec![1u32; above.len()];
    for node in order.iter().rev() {
        if let Some(up) = above[node.index()] {
            size[up.index()] += size[node.index()];
        }
    }
    let mut span = vec![(u32::MAX, 0); above.len()];
    // Where the next child of each node begins.
    let mut next = vec![0u32; above.len()];
    for node in order.iter().map(|node| node.index()) {
        let mut start = 0;
        if let Some(up) = above[node] {
            start = next[up.index()];
            next[up.index()] += size[node];
        }
        span[node] = (start, start + size[node] - 1);
        next[node] = start + 1;
    }
    span
}

fn meet(above: &[Option<BlockId>], rank: &[u32], mut a: BlockId, mut b: BlockId) -> BlockId {
    while a != b {
        let deeper = if rank[a.index()] > rank[b.index()] {
            &mut a
        } else {
            &mut b
        };
        match above[deeper.index()] {
            Some(up) if up != *deeper => *deeper = up,
            _ => return *deeper,
        }
    }
    a
}

/// The nodes that `root` reaches, in reverse postorder.
pub(super) fn reverse_postorder(root: BlockId, successors: &[Vec<BlockId>]) -> Vec<BlockId> {
    let mut order = Vec::with_capacity(successors.len());
    if successors.is_empty() {
        return order;
    }
    let mut seen = vec![false; successors.len()];
    seen[root.index()] = true;
    // Without recursion: a generated kernel can have a hundred thousand blocks.
    let mut stack = vec![(root, 0)];
    while let Some((node, next)) = stack.pop() {
        match successors[node.index()].get(next) {
            Some(&to) => {
                stack.push((node, next + 1));
                if !std::mem::replace(&mut seen[to.index()], true) {
                    stack.push((to, 0));
                }
            }
            None => order.push(node),
        }
    }
    order.reverse();
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_diamond_and_a_loop() {
        // 0 -> 1, 2; 1 -> 3; 2 -> 3; 3 -> 4, 1; 5 is not reached.
        let edges: [&[usize]; 6] = [&[1, 2], &[3], &[3], &[4, 1], &[], &[3]];
        let edges = edges.map(|to| to.iter().map(|&to| BlockId::new(to)).collect());
        let tree = Tree::new(BlockId::new(0), &edges);
        let above = [0, 1, 2, 3, 4, 5].map(|node| Some(tree.above(BlockId::new(node))?.index()));
        assert_eq!(above, [None, Some(0), Some(0), Some(0), Some(3), None]);
        let dominates = |a, b| tree.dominates(BlockId::new(a), BlockId::new(b));
        assert!(dominates(0, 4) && dominates(3, 4) && dominates(3, 3));
        assert!(!dominates(1, 3) && !dominates(4, 3));
        assert!(!dominates(5, 3) && !dominates(3, 5) && !dominates(0, 5));
    }
}
