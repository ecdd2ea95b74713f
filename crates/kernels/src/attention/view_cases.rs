//! Cases of queries, keys and values that are parts of larger tensors.

use super::cases::{Cases, MASKS};
use super::problem::{Dtype, Layout, Lengths, Problem};
use super::views::{View, Views};
use super::warpgroup::{warpgroup_schedule, warpgroup_shape};

impl Cases {
    /// On warpgroups and, where it is for few queries, in decoding.
    fn of_views(&mut self, problem: &Problem, views: Views) {
        let mut problem = problem.clone();
        problem.views = Some(views);
        let shape = warpgroup_shape(&problem, self.target);
        self.on_warpgroups(&problem, shape, warpgroup_schedule(&problem, self.target));
        self.dealt(&problem, 5, 1);
        self.dealt(&problem, 6, 1);
    }

    pub(super) fn views(&mut self) {
        self.views_of_projections();
        self.views_of_caches();
        self.packed_views();
    }

    /// The three of one projection.
    fn views_of_projections(&mut self) {
        for (index, (queries, heads, kv_heads, dim)) in [
            (130, 2, 2, 64),
            (300, 4, 2, 128),
            (70, 2, 1, 96),
            (1, 8, 2, 64),
            (3, 4, 1, 128),
        ]
        .into_iter()
        .enumerate()
        {
            let mut problem = Problem::new(2, heads, queries, dim);
            problem.lengths = Lengths::Same {
                batch: 2,
                queries,
                keys: queries.max(90),
            };
            (problem.kv_heads, problem.layout) = (kv_heads, Layout::Rows);
            problem.mask = MASKS[index % 3];
            problem.dtype = Dtype::ALL[index % 2];
            self.of_views(&problem, Views::of_projection(&problem));
        }
    }

    /// The first rows of larger caches, head after head, with other gaps between keys than between values.
    fn views_of_caches(&mut self) {
        for (index, (queries, dim)) in [(1, 128), (2, 64), (140, 64), (65, 192)]
            .into_iter()
            .enumerate()
        {
            let mut problem = Problem::new(2, 4, queries, dim);
            problem.lengths = Lengths::Same {
                batch: 2,
                queries,
                keys: 150,
            };
            (problem.kv_heads, problem.dtype) = (2, Dtype::ALL[index % 2]);
            problem.mask = MASKS[(index + 1) % 3];
            let first = |heads: u32, room: u32, row: u32| {
                let [heads, room, row] = [heads, room, row].map(u64::from);
                let head = room * row;
                View {
                    batch: heads * head,
                    row,
                    head,
                }
            };
            let views = Views {
                q: first(4, queries + 5, dim),
                k: first(2, 200, dim + 8),
                v: first(3, 170, dim),
            };
            self.of_views(&problem, views);
        }
    }

    fn packed_views(&mut self) {
        let lengths = vec![(5, 5), (0, 7), (130, 133), (1, 90), (17, 0), (40, 3)];
        for (index, dim) in [64, 128].into_iter().enumerate() {
            let mut problem = Problem::ragged(lengths.clone(), 2, dim);
            problem.kv_heads = 2 - index as u32;
            problem.mask = MASKS[index + 1];
            self.of_views(&problem, Views::of_projection(&problem));
        }
    }
}
