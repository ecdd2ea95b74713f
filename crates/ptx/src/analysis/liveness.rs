//! Liveness: which registers hold a value that is read later.

use super::block::BlockId;
use super::graph::Graph;
use rustc_hash::{FxHashMap, FxHashSet};

/// What an instruction does with registers, by their numbers.
#[derive(Clone, Copy, Debug, Default)]
pub struct Touched<'a> {
    /// Registers that it reads.
    pub reads: &'a [u32],
    /// Registers that it surely sets: none of a guarded instruction.
    pub sets: &'a [u32],
}

/// The registers that are live at the entry of a function, in order: some path leads to a read of
/// them without a write before it.
pub fn live_at_entry<'a>(graph: &Graph, touched: impl Fn(usize) -> Touched<'a>) -> Vec<u32> {
    // For each register the blocks that read it before they set it.
    let mut exposed: FxHashMap<u32, Vec<BlockId>> = FxHashMap::default();
    let mut sets: FxHashSet<(BlockId, u32)> = FxHashSet::default();
    for block in graph.reachable_blocks() {
        for at in graph.range(block) {
            let touched = touched(at);
            for &register in touched.reads {
                if !sets.contains(&(block, register)) {
                    let blocks = exposed.entry(register).or_default();
                    if blocks.last() != Some(&block) {
                        blocks.push(block);
                    }
                }
            }
            sets.extend(touched.sets.iter().map(|&register| (block, register)));
        }
    }
    let mut live: Vec<u32> = Vec::new();
    // The register for which a block was looked at last.
    let mut seen = vec![None; graph.blocks()];
    for (&register, blocks) in &exposed {
        let mut open = blocks.clone();
        while let Some(block) = open.pop() {
            if seen[block.index()].replace(register) == Some(register) {
                continue;
            }
            if block.index() == 0 {
                live.push(register);
                break;
            }
            let ways = graph.predecessors(block).iter().copied();
            open.extend(ways.filter(|&way| !sets.contains(&(way, register))));
        }
    }
    live.sort_unstable();
    live
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::Leave;

    #[test]
    fn a_register_is_live_where_some_way_does_not_set_it() {
        // 0: @p bra 2; 1: set 7; 2: read 7, 8 and set 9; 3: read 9
        let graph = Graph::new(4, std::iter::empty(), &[], |at| {
            (at == 0).then_some(Leave {
                to: Some(2),
                table: None,
                falls: true,
            })
        });
        let touched = |at: usize| match at {
            1 => Touched {
                sets: &[7, 8],
                reads: &[],
            },
            2 => Touched {
                reads: &[7, 8],
                sets: &[9],
            },
            3 => Touched {
                reads: &[9],
                sets: &[],
            },
            _ => Touched::default(),
        };
        assert_eq!(live_at_entry(&graph, touched), [7, 8]);
        let straight = Graph::new(4, std::iter::empty(), &[], |_| None);
        assert!(live_at_entry(&straight, touched).is_empty());
    }
}
