//! Sizes that are quick only on a real GPU, with the tiles that are chosen for them.

use super::cases::Cases;
use super::config::{Config, Rung};
use super::problem::{Dtype, Layout, Lengths, Mask, Output, Problem, Weights};
use super::warpgroup::{warpgroup_schedule, warpgroup_shape};
use heist_sched::{Schedule, TileSource};

impl Cases {
    fn suited(&mut self, problem: &Problem, rung: Rung) {
        self.add(problem, Config::suited(rung, problem, self.target));
    }

    pub(super) fn large(&mut self) {
        let masks = [
            Mask::Full,
            Mask::Causal,
            Mask::Window {
                left: 200,
                right: 30,
            },
        ];
        let last = [Rung::Large, Rung::Persistent];
        // The rungs before: every type, mask and dimension comes up.
        for (index, dim) in [32, 64, 96, 128, 256].into_iter().enumerate() {
            for (which, rung) in Rung::ALL.into_iter().take(4).enumerate() {
                let mut problem = Problem::new(4, 12, 400 + 31 * index as u32, dim);
                problem.dtype = Dtype::ALL[(index + which) % 2];
                problem.mask = masks[(index + which) % 3];
                self.suited(&problem, rung);
            }
        }
        for (index, dim) in [32, 64, 96, 128, 192, 256].into_iter().enumerate() {
            for (which, mask) in masks.into_iter().enumerate() {
                for rung in last {
                    for dtype in Dtype::ALL {
                        // Enough tiles for the tiles of large problems.
                        let mut problem = Problem::new(4, 16, 1111, dim);
                        (problem.dtype, problem.mask) = (dtype, mask);
                        problem.layout = [Layout::Heads, Layout::Rows][(index + which) % 2];
                        problem.kv_heads = [16, 4][(index + which / 2) % 2];
                        self.suited(&problem, rung);
                    }
                }
                // Packed sequences with those tiles, from one row to 1334.
                let lengths = (0..24).map(|i| (1 + i * 37, 1 + i * 58)).collect();
                let mut problem = Problem::ragged(lengths, 8, dim);
                problem.dtype = Dtype::ALL[(index + which) % 2];
                (problem.kv_heads, problem.mask) = (2, mask);
                self.suited(&problem, last[(index + which) % 2]);
                self.suited(&problem, last[(index + which + 1) % 2]);
                let (weights, output) = [
                    (Weights::Split, Output::Same),
                    (Weights::Split, Output::F32),
                    (Weights::Rounded, Output::F32),
                ][(index + which) % 3];
                (problem.dtype, problem.weights, problem.output) = (Dtype::Bf16, weights, output);
                self.suited(&problem, Rung::Large);
            }
            // Split weights with the tiles that are chosen for large problems.
            for mask in [Mask::Full, Mask::Causal] {
                for rung in last {
                    let mut problem = Problem::new(2, 16, 1500, dim);
                    (problem.dtype, problem.weights) = (Dtype::Bf16, Weights::Split);
                    problem.mask = mask;
                    self.suited(&problem, rung);
                }
            }
        }
        self.measured(last);
        self.decoding();
        self.large_on_warpgroups(masks);
    }

    /// Shapes of `docs/measurements/attention.md`.
    fn measured(&mut self, rungs: [Rung; 2]) {
        for (dim, length, dtype) in [
            (64, 1024, Dtype::F16),
            (64, 16384, Dtype::Bf16),
            (128, 1024, Dtype::F16),
            (128, 4096, Dtype::Bf16),
        ] {
            for mask in [Mask::Full, Mask::Causal] {
                for rung in rungs {
                    let mut problem = Problem::new(16384 / length, 2048 / dim, length, dim);
                    (problem.dtype, problem.mask) = (dtype, mask);
                    self.suited(&problem, rung);
                }
            }
        }
    }

    /// Few queries over many keys, which blocks share.
    fn decoding(&mut self) {
        for (index, dim) in [64, 128, 256].into_iter().enumerate() {
            for (queries, dtype) in [(1, Dtype::F16), (3, Dtype::Bf16), (50, Dtype::Bf16)] {
                let mut problem = Problem::new(2, 8, queries, dim);
                problem.lengths = Lengths::Same {
                    batch: 2,
                    queries,
                    keys: 20_000 + index as u32,
                };
                problem.kv_heads = 2;
                (problem.dtype, problem.mask) = (dtype, [Mask::Full, Mask::Causal][index % 2]);
                self.suited(&problem, Rung::Large);
                (problem.weights, problem.output) = (Weights::Split, Output::F32);
                self.suited(&problem, Rung::Large);
            }
        }
    }

    /// Large problems on warpgroups.
    fn large_on_warpgroups(&mut self, masks: [Mask; 3]) {
        let mut problems = Vec::new();
        for head_dim in [64, 128] {
            for (index, mask) in masks.into_iter().enumerate() {
                for dtype in Dtype::ALL {
                    let mut problem = Problem::new(4, 16, 1111, head_dim);
                    (problem.dtype, problem.mask) = (dtype, mask);
                    problem.layout = [Layout::Heads, Layout::Rows][index % 2];
                    problem.kv_heads = [16, 4][index % 2];
                    problems.push(problem.clone());
                    problem.weights = Weights::Split;
                    problems.push(problem.clone());
                    problem.output = Output::F32;
                    problem.lengths = Lengths::Same {
                        batch: 2,
                        queries: 700,
                        keys: 3001,
                    };
                    problems.push(problem);
                }
            }
            for (length, mask) in [(4096, masks[0]), (4096, masks[1]), (16384, masks[1])] {
                let mut problem = Problem::new(16384 / length, 2048 / head_dim, length, head_dim);
                (problem.dtype, problem.mask) = (Dtype::Bf16, mask);
                problems.push(problem.clone());
                problem.weights = Weights::Split;
                problems.push(problem);
            }
        }
        for (index, head_dim) in [32, 64, 80, 96, 128, 160, 192, 256].into_iter().enumerate() {
            // From one row to 1334, with lengths at and beside the edges of tiles.
            let lengths = (0..24).map(|i| (1 + i * 37, 1 + i * 58)).collect();
            let mut problem = Problem::ragged(lengths, 8, head_dim);
            (problem.kv_heads, problem.mask) = (2, masks[index % 3]);
            problem.dtype = Dtype::ALL[index % 2];
            problems.push(problem);
            let mut problem = Problem::new(3, 16, 2100, head_dim);
            problem.mask = masks[(index + 1) % 3];
            problem.dtype = Dtype::ALL[(index / 2) % 2];
            problem.weights = Weights::ALL[(index / 2) % 2];
            problems.push(problem);
        }
        for (index, value_dim) in [128, 64, 176].into_iter().enumerate() {
            let mut problem = Problem::new(3, 8, 2100, 192);
            (problem.value_dim, problem.mask) = (Some(value_dim), masks[index]);
            problem.dtype = Dtype::ALL[index % 2];
            problem.layout = [Layout::Heads, Layout::Rows][index % 2];
            problems.push(problem);
        }
        for problem in &problems {
            let shape = warpgroup_shape(problem, self.target);
            self.on_warpgroups(problem, shape, warpgroup_schedule(problem, self.target));
            let ticket = Schedule::new(TileSource::Ticket);
            self.on_warpgroups(problem, shape.scheduled(), ticket);
        }
    }
}
