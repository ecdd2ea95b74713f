//! Where the sides of a branch meet again: immediate post-dominators.
//!
//! Lanes that exit never meet anybody, so paths that end do not count against a
//! meeting point: an early return inside a branch does not keep the other lanes
//! from meeting behind it.

use super::Leaves;
use crate::code::NOWHERE;

/// One operation as the graph sees it.
pub(crate) struct Node<'a> {
    pub(crate) leaves: &'a Leaves,
    pub(crate) guarded: bool,
}

/// The meeting point of each operation that branches, [`NOWHERE`] for the rest.
/// Places in the result and in `label` count from the function's first operation.
pub(crate) fn joins(nodes: &[Node<'_>], label: impl Fn(u32) -> Option<usize>) -> Vec<u32> {
    let blocks = Blocks::of(nodes, &label);
    let post = blocks.post_dominators();
    let mut joins = vec![NOWHERE; nodes.len()];
    for (at, node) in nodes.iter().enumerate() {
        let branches = match node.leaves {
            Leaves::To(labels) => node.guarded || labels.len() > 1,
            _ => false,
        };
        if branches && let Some(meets) = post[blocks.of[at]] {
            joins[at] = blocks.first[meets] as u32;
        }
    }
    joins
}

/// Basic blocks and the edges between them.
struct Blocks {
    /// The block of each operation, and the first operation of each block.
    of: Vec<usize>,
    first: Vec<usize>,
    next: Vec<Vec<usize>>,
    ends: Vec<bool>,
}

impl Blocks {
    fn of(nodes: &[Node<'_>], label: &impl Fn(u32) -> Option<usize>) -> Blocks {
        let mut starts = vec![false; nodes.len() + 1];
        if let Some(first) = starts.first_mut() {
            *first = true;
        }
        for (at, node) in nodes.iter().enumerate() {
            if let Leaves::To(labels) = node.leaves {
                for target in labels.iter().filter_map(|&id| label(id)) {
                    starts[target.min(nodes.len())] = true;
                }
            }
            if *node.leaves != Leaves::On {
                starts[at + 1] = true;
            }
        }
        let first: Vec<usize> = (0..nodes.len()).filter(|&at| starts[at]).collect();
        let mut of = vec![0; nodes.len()];
        for (block, &start) in first.iter().enumerate() {
            let end = first.get(block + 1).copied().unwrap_or(nodes.len());
            of[start..end].fill(block);
        }
        let mut next = vec![Vec::new(); first.len()];
        let mut ends = vec![false; first.len()];
        for block in 0..first.len() {
            let last = first.get(block + 1).copied().unwrap_or(nodes.len()) - 1;
            let node = &nodes[last];
            let falls = match node.leaves {
                Leaves::On => true,
                Leaves::To(labels) => {
                    for target in labels.iter().filter_map(|&id| label(id)) {
                        if target < nodes.len() {
                            next[block].push(of[target]);
                        }
                    }
                    node.guarded
                }
                Leaves::Ends => node.guarded,
            };
            if falls && last + 1 < nodes.len() {
                next[block].push(of[last + 1]);
            }
            ends[block] = next[block].is_empty();
        }
        Blocks {
            of,
            first,
            next,
            ends,
        }
    }

    /// The immediate post-dominator of each block, if it is a block.
    fn post_dominators(&self) -> Vec<Option<usize>> {
        let count = self.first.len();
        let exit = count;
        let mut before: Vec<Vec<usize>> = vec![Vec::new(); count + 1];
        for (block, nexts) in self.next.iter().enumerate() {
            for &next in nexts {
                before[next].push(block);
            }
        }
        // The last end anchors the walk; blocks that can't reach it bring ends of
        // their own, and blocks that reach no end at all (endless loops) their last.
        let mut reached = vec![usize::MAX; count];
        let mut anchors = Vec::new();
        let mut candidates: Vec<usize> = (0..count).filter(|&block| self.ends[block]).collect();
        candidates.reverse();
        candidates.extend((0..count).rev());
        for anchor in candidates {
            if reached[anchor] != usize::MAX {
                continue;
            }
            let mut stack = vec![anchor];
            while let Some(block) = stack.pop() {
                if reached[block] == usize::MAX {
                    reached[block] = anchors.len();
                    stack.extend(&before[block]);
                }
            }
            anchors.push(anchor);
        }
        let is_anchor = |block: usize| anchors.contains(&block);
        // Blocks in an order in which successors come first, from the exit on.
        let mut order = Vec::with_capacity(count);
        let mut seen = vec![false; count];
        for &anchor in &anchors {
            let mut stack = vec![(anchor, 0)];
            if std::mem::replace(&mut seen[anchor], true) {
                continue;
            }
            while let Some((block, at)) = stack.pop() {
                if let Some(&previous) = before[block].get(at) {
                    stack.push((block, at + 1));
                    if !std::mem::replace(&mut seen[previous], true) {
                        stack.push((previous, 0));
                    }
                } else {
                    order.push(block);
                }
            }
        }
        order.reverse();
        let mut rank = vec![usize::MAX; count + 1];
        rank[exit] = 0;
        for (at, &block) in order.iter().enumerate() {
            rank[block] = at + 1;
        }
        let mut post: Vec<Option<usize>> = vec![None; count + 1];
        post[exit] = Some(exit);
        loop {
            let mut changed = false;
            for &block in &order {
                let mut found = is_anchor(block).then_some(exit);
                for &next in &self.next[block] {
                    // A path to another end only is a path of lanes that are lost.
                    if post[next].is_none() || reached[next] != reached[block] {
                        continue;
                    }
                    found = Some(match found {
                        None => next,
                        Some(other) => meet(next, other, &post, &rank),
                    });
                }
                if found.is_some() && post[block] != found {
                    post[block] = found;
                    changed = true;
                }
            }
            if !changed {
                break;
            }
        }
        post.truncate(count);
        post.into_iter()
            .map(|block| block.filter(|&block| block != exit))
            .collect()
    }
}

fn meet(mut a: usize, mut b: usize, post: &[Option<usize>], rank: &[usize]) -> usize {
    while a != b {
        while rank[a] > rank[b] {
            match post[a] {
                Some(up) if up != a => a = up,
                _ => return b,
            }
        }
        while rank[b] > rank[a] {
            match post[b] {
                Some(up) if up != b => b = up,
                _ => return a,
            }
        }
        if rank[a] == rank[b] && a != b {
            return a;
        }
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(ops: &[(Leaves, bool)]) -> Vec<u32> {
        let nodes: Vec<Node<'_>> = ops
            .iter()
            .map(|(leaves, guarded)| Node {
                leaves,
                guarded: *guarded,
            })
            .collect();
        joins(&nodes, |id| Some(id as usize))
    }

    fn to(target: u32) -> Leaves {
        Leaves::To(vec![target])
    }

    #[test]
    fn the_sides_of_an_if_meet_behind_it() {
        // 0: @p bra 3; 1: -; 2: bra 4; 3: -; 4: ret
        let joins = run(&[
            (to(3), true),
            (Leaves::On, false),
            (to(4), false),
            (Leaves::On, false),
            (Leaves::Ends, false),
        ]);
        assert_eq!(joins, [4, NOWHERE, NOWHERE, NOWHERE, NOWHERE]);
    }

    #[test]
    fn a_loop_meets_behind_its_end() {
        // 0: -; 1: @p bra 0; 2: ret
        assert_eq!(
            run(&[(Leaves::On, false), (to(0), true), (Leaves::Ends, false)])[1],
            2
        );
    }

    #[test]
    fn an_early_exit_does_not_keep_the_rest_apart() {
        // 0: @p bra 4; 1: @q bra 3; 2: exit; 3: -; 4: ret
        let joins = run(&[
            (to(4), true),
            (to(3), true),
            (Leaves::Ends, false),
            (Leaves::On, false),
            (Leaves::Ends, false),
        ]);
        assert_eq!(joins[0], 4);
        assert_eq!(joins[1], 3);
    }

    #[test]
    fn an_endless_loop_is_no_trouble() {
        // 0: @p bra 2; 1: -; 2: bra 0
        let joins = run(&[(to(2), true), (Leaves::On, false), (to(0), false)]);
        assert_eq!(joins[0], 2);
    }
}
