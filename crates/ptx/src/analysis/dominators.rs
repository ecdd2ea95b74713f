//! Dominators, by the iteration of Cooper, Harvey and Kennedy.

/// A tree of immediate dominators over numbered nodes.
pub(super) struct Tree {
    /// The immediate dominator; none for the root and for what it does not reach.
    above: Vec<Option<u32>>,
    /// The numbers of a node's first and last descendant in a walk over the tree.
    span: Vec<(u32, u32)>,
}

impl Tree {
    /// Of the graph with these edges, from `root`.
    pub(super) fn new(root: usize, successors: &[Vec<u32>]) -> Tree {
        let order = reverse_postorder(root, successors);
        let mut rank = vec![u32::MAX; successors.len()];
        for (at, &node) in order.iter().enumerate() {
            rank[node as usize] = at as u32;
        }
        let mut predecessors = vec![Vec::new(); successors.len()];
        for &node in &order {
            for &to in &successors[node as usize] {
                predecessors[to as usize].push(node);
            }
        }
        // The dominator of each node by rank: the root is its own.
        let mut above: Vec<Option<u32>> = vec![None; successors.len()];
        above[root] = Some(root as u32);
        let mut changed = true;
        while changed {
            changed = false;
            for &node in order.iter().skip(1) {
                let mut best: Option<u32> = None;
                for &before in &predecessors[node as usize] {
                    if above[before as usize].is_some() {
                        best = Some(best.map_or(before, |best| meet(&above, &rank, best, before)));
                    }
                }
                if best.is_some() && above[node as usize] != best {
                    above[node as usize] = best;
                    changed = true;
                }
            }
        }
        above[root] = None;
        let span = spans(&order, &above);
        Tree { above, span }
    }

    /// The immediate dominator of a node.
    pub(super) fn above(&self, node: usize) -> Option<usize> {
        self.above[node].map(|above| above as usize)
    }

    /// Whether every way from the root to `b` leads through `a`; a node dominates itself.
    pub(super) fn dominates(&self, a: usize, b: usize) -> bool {
        let ((first, last), (inner, _)) = (self.span[a], self.span[b]);
        first <= inner && inner <= last
    }
}

/// The first and last number of each node's descendants, itself included. What is not
/// in the tree has nothing below it and is below nothing.
fn spans(order: &[u32], above: &[Option<u32>]) -> Vec<(u32, u32)> {
    let mut size = vec![1u32; above.len()];
    for &node in order.iter().rev() {
        if let Some(up) = above[node as usize] {
            size[up as usize] += size[node as usize];
        }
    }
    let mut span = vec![(u32::MAX, 0); above.len()];
    // Where the next child of each node begins.
    let mut next = vec![0u32; above.len()];
    for &node in order {
        let node = node as usize;
        let start = match above[node] {
            Some(up) => {
                let start = next[up as usize];
                next[up as usize] += size[node];
                start
            }
            None => 0,
        };
        span[node] = (start, start + size[node] - 1);
        next[node] = start + 1;
    }
    span
}

fn meet(above: &[Option<u32>], rank: &[u32], mut a: u32, mut b: u32) -> u32 {
    while a != b {
        let deeper = if rank[a as usize] > rank[b as usize] {
            &mut a
        } else {
            &mut b
        };
        match above[*deeper as usize] {
            Some(up) if up != *deeper => *deeper = up,
            _ => return *deeper,
        }
    }
    a
}

/// What `root` reaches, each node before those that only it leads to.
pub(super) fn reverse_postorder(root: usize, successors: &[Vec<u32>]) -> Vec<u32> {
    let mut order = Vec::with_capacity(successors.len());
    if successors.is_empty() {
        return order;
    }
    let mut seen = vec![false; successors.len()];
    seen[root] = true;
    // Without recursion: a generated kernel can have a hundred thousand blocks.
    let mut stack = vec![(root as u32, 0)];
    while let Some((node, next)) = stack.pop() {
        match successors[node as usize].get(next) {
            Some(&to) => {
                stack.push((node, next + 1));
                if !std::mem::replace(&mut seen[to as usize], true) {
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
        let edges = [vec![1, 2], vec![3], vec![3], vec![4, 1], vec![], vec![3]];
        let tree = Tree::new(0, &edges);
        let above: Vec<Option<usize>> = (0..6).map(|node| tree.above(node)).collect();
        assert_eq!(above, [None, Some(0), Some(0), Some(0), Some(3), None]);
        assert!(tree.dominates(0, 4) && tree.dominates(3, 4) && tree.dominates(3, 3));
        assert!(!tree.dominates(1, 3) && !tree.dominates(4, 3));
        assert!(!tree.dominates(5, 3) && !tree.dominates(3, 5) && !tree.dominates(0, 5));
    }
}
