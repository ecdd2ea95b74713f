//! Dominators, by the algorithm of Lengauer and Tarjan: close to linear for any graph.

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
    ///
    /// Nodes go by their numbers in a depth-first walk. The semidominator of a node is the least
    /// number from which a path leads to it through greater numbers alone; immediate dominators
    /// follow from those.
    pub(super) fn new(root: BlockId, successors: &[Vec<BlockId>]) -> Tree {
        let Walk {
            order,
            rank,
            parent,
        } = Walk::new(root, successors);
        let mut predecessors = vec![Vec::new(); order.len()];
        for (from, node) in order.iter().enumerate() {
            for to in &successors[node.index()] {
                predecessors[rank[to.index()] as usize].push(from as u32);
            }
        }
        let mut forest = Forest::new(order.len());
        let mut idom = vec![0u32; order.len()];
        // The nodes of each semidominator whose dominator is still to be found.
        let mut waiting: Vec<Vec<u32>> = vec![Vec::new(); order.len()];
        for node in (1..order.len() as u32).rev() {
            let up = parent[node as usize];
            for &before in &predecessors[node as usize] {
                let least = forest.least(before);
                let semi = &mut forest.semi;
                semi[node as usize] = semi[node as usize].min(semi[least as usize]);
            }
            waiting[forest.semi[node as usize] as usize].push(node);
            forest.ancestor[node as usize] = up;
            for below in std::mem::take(&mut waiting[up as usize]) {
                let least = forest.least(below);
                let higher = forest.semi[least as usize] < forest.semi[below as usize];
                idom[below as usize] = if higher { least } else { up };
            }
        }
        for node in 1..order.len() {
            if idom[node] != forest.semi[node] {
                idom[node] = idom[idom[node] as usize];
            }
        }
        let mut above: Vec<Option<BlockId>> = vec![None; successors.len()];
        for (node, &up) in idom.iter().enumerate().skip(1) {
            above[order[node].index()] = Some(order[up as usize]);
        }
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

/// The nodes that have been looked at, in trees of the depth-first walk.
struct Forest {
    semi: Vec<u32>,
    /// The parent, or a node further up once a path has been shortened.
    ancestor: Vec<u32>,
    /// The node with the least semidominator on the path up to the ancestor, without it.
    label: Vec<u32>,
    /// The path that is being shortened.
    path: Vec<u32>,
}

/// A node that is the root of its tree.
const NO_ANCESTOR: u32 = u32::MAX;

impl Forest {
    fn new(nodes: usize) -> Forest {
        Forest {
            semi: (0..nodes as u32).collect(),
            ancestor: vec![NO_ANCESTOR; nodes],
            label: (0..nodes as u32).collect(),
            path: Vec::new(),
        }
    }

    /// The node with the least semidominator on the path from `node` up to the root of its tree,
    /// without that root. Shortens the path, without recursion.
    fn least(&mut self, node: u32) -> u32 {
        let mut at = node;
        while let up = self.ancestor[at as usize]
            && up != NO_ANCESTOR
            && self.ancestor[up as usize] != NO_ANCESTOR
        {
            self.path.push(at);
            at = up;
        }
        while let Some(at) = self.path.pop() {
            let up = self.ancestor[at as usize] as usize;
            let (own, upper) = (self.label[at as usize], self.label[up]);
            if self.semi[upper as usize] < self.semi[own as usize] {
                self.label[at as usize] = upper;
            }
            self.ancestor[at as usize] = self.ancestor[up];
        }
        self.label[node as usize]
    }
}

/// A depth-first walk from the root.
struct Walk {
    /// The nodes in the order in which they are met.
    order: Vec<BlockId>,
    /// The place of each node in that order.
    rank: Vec<u32>,
    /// By that order: the node from which each was met.
    parent: Vec<u32>,
}

impl Walk {
    fn new(root: BlockId, successors: &[Vec<BlockId>]) -> Walk {
        let mut walk = Walk {
            order: Vec::new(),
            rank: vec![u32::MAX; successors.len()],
            parent: Vec::new(),
        };
        if successors.is_empty() {
            return walk;
        }
        walk.meet(root, 0);
        // Without recursion: a generated kernel can have a hundred thousand blocks.
        let mut stack = vec![(root, 0)];
        while let Some((node, next)) = stack.pop() {
            if let Some(&to) = successors[node.index()].get(next) {
                stack.push((node, next + 1));
                if walk.rank[to.index()] == u32::MAX {
                    walk.meet(to, walk.rank[node.index()]);
                    stack.push((to, 0));
                }
            }
        }
        walk
    }

    fn meet(&mut self, node: BlockId, parent: u32) {
        self.rank[node.index()] = self.order.len() as u32;
        self.order.push(node);
        self.parent.push(parent);
    }
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

    /// Whether `to` can be reached from node 0 on a path that leaves `without` out.
    fn reached(edges: &[Vec<BlockId>], to: usize, without: Option<usize>) -> bool {
        let mut seen = vec![false; edges.len()];
        let mut open = vec![0];
        while let Some(node) = open.pop() {
            if Some(node) != without && !std::mem::replace(&mut seen[node], true) {
                open.extend(edges[node].iter().map(|to| to.index()));
            }
        }
        seen[to]
    }

    #[test]
    fn random_graphs_agree_with_the_definition() {
        let mut state = 1u64;
        let mut below = |end: usize| {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            (state >> 33) as usize % end
        };
        for nodes in (1..=9).cycle().take(600) {
            let edges: Vec<Vec<BlockId>> = (0..nodes)
                .map(|_| (0..below(4)).map(|_| BlockId::new(below(nodes))).collect())
                .collect();
            let tree = Tree::new(BlockId::new(0), &edges);
            for (a, b) in (0..nodes).flat_map(|a| (0..nodes).map(move |b| (a, b))) {
                let all_lead_through = reached(&edges, a, None)
                    && reached(&edges, b, None)
                    && !reached(&edges, b, Some(a));
                let answer = tree.dominates(BlockId::new(a), BlockId::new(b));
                assert_eq!(answer, all_lead_through, "{a} before {b} in {edges:?}");
            }
        }
    }
}
