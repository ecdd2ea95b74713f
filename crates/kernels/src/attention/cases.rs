//! The test cases of the kernels: the same on the simulated GPU and on a real one. Those of the
//! kernel on warpgroups are in [`warpgroup_cases`](super::warpgroup_cases), and sizes that are
//! quick only on a real GPU in [`large_cases`](super::large_cases).

use super::config::{Config, Feed, Rung};
use super::decode::{DecodeShape, Grid, decode_plan};
use super::kernel::{contents, job, schedule};
use super::order::HeaviestFirst;
use super::problem::{Dtype, Layout, Lengths, Mask, MaskKind, Output, Problem, Weights};
use super::warpgroup::{WarpgroupShape, warpgroup_job};
use crate::family::Target;
use crate::{Job, KernelError};
use heist_sched::{AnyOrder, AnyPolicy, Every, MaxSteals, Never, Schedule, Submit, TileSource};
use std::fmt;
use std::num::NonZeroU32;

/// One thing to try.
#[derive(Clone, Debug)]
pub struct Case {
    /// What is asked.
    pub problem: Problem,
    /// Which kernel.
    pub kernel: Which,
    /// Who runs its tiles.
    pub schedule: Schedule,
}

/// A kernel of the ladder, the one on warpgroups, or the one for decoding.
#[derive(Clone, Copy, Debug)]
pub enum Which {
    /// A rung of the ladder.
    Rung(Config),
    /// On Hopper's warpgroups.
    Warpgroups(WarpgroupShape),
    /// For decoding.
    Decode(DecodeShape, Grid),
}

impl Case {
    /// The job of a case.
    ///
    /// # Errors
    /// What does not fit, and why.
    pub fn job(&self, target: Target) -> Result<Job, KernelError> {
        match &self.kernel {
            Which::Rung(config) => job(&self.problem, config, &self.schedule, target),
            Which::Warpgroups(shape) => {
                warpgroup_job(&self.problem, *shape, &self.schedule, target)
            }
            Which::Decode(shape, grid) => {
                let plan = decode_plan(&self.problem, *shape, *grid, target)?;
                Ok(plan.job(contents(&self.problem)))
            }
        }
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, ", self.problem)?;
        match &self.kernel {
            Which::Rung(config) => config.fmt(f)?,
            Which::Warpgroups(shape) => shape.fmt(f)?,
            Which::Decode(shape, grid) => return write!(f, "{shape}, {grid}"),
        }
        write!(f, ", {}", self.schedule)
    }
}

/// What a set of cases is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topic {
    /// Every rung with every type, mask and layout; kernels for wider masks. With
    /// weights that keep results in bf16 within 2e-3, too.
    Rungs,
    /// Every head dimension, with the tiles chosen for it.
    HeadDimensions,
    /// The tiles of large problems, on small ones.
    ManyTiles,
    /// Lengths of one, of a tile, one less and one more, primes; more keys than
    /// queries and fewer.
    Edges,
    /// Fewer key heads than query heads.
    SharedHeads,
    /// Sequences with lengths of their own, some of them empty.
    Packed,
    /// Keys shared out among warps and among blocks.
    SharedKeys,
    /// Stages, turns, layouts, registers.
    Feeds,
    /// Every source of tiles that the device has, under several policies.
    Schedules,
    /// Scores that are all alike, and scores hundreds apart.
    Scales,
    /// Weights in two terms, results in f32: every rung with every type, edges,
    /// shared keys, packed sequences, the tiles of large problems.
    Precision,
    /// The kernel on warpgroups, where the device has them: types, masks, edges,
    /// shared heads, layouts, shapes and schedules.
    Warpgroups,
    /// Keys that the blocks of a cluster share, where the device has warpgroups.
    Clusters,
    /// Wide heads in tiles of one warpgroup, where the device has them.
    WideHeads,
    /// Heads of multiples of 8 elements.
    HalfSteps,
    /// Few queries over many keys, packed, in pages.
    Decode,
    /// The same over keys and values that are one row, where the device has warpgroups.
    Latent,
    /// What models add: changed scores, sinks, prefixes, documents, on every kernel.
    Models,
    /// Queries, keys and values that are parts of larger tensors, where a kernel takes them.
    Views,
    /// Sizes that only a real GPU does in a moment, with the tiles for them.
    Large,
}

impl Topic {
    /// All that the simulator does in a moment.
    pub const SMALL: [Topic; 19] = [
        Topic::Rungs,
        Topic::HeadDimensions,
        Topic::ManyTiles,
        Topic::Edges,
        Topic::SharedHeads,
        Topic::Packed,
        Topic::SharedKeys,
        Topic::Feeds,
        Topic::Schedules,
        Topic::Scales,
        Topic::Precision,
        Topic::Warpgroups,
        Topic::Clusters,
        Topic::WideHeads,
        Topic::HalfSteps,
        Topic::Decode,
        Topic::Latent,
        Topic::Models,
        Topic::Views,
    ];
}

pub(super) const MASKS: [Mask; 3] = [
    Mask::Full,
    Mask::Causal,
    Mask::Window { left: 17, right: 3 },
];

/// The weights that keep results within 2e-3: in bf16 two roundings would be more.
pub(super) fn exact(dtype: Dtype) -> Weights {
    match dtype {
        Dtype::F16 => Weights::Rounded,
        Dtype::Bf16 => Weights::Split,
    }
}

/// A rung with tiles small enough for short sequences: 16 or 32 rows by 16 keys
/// from the buffered one on.
pub fn small_tiles(rung: Rung, problem: &Problem, target: Target) -> Config {
    let mut config = Config::suited(rung, problem, target);
    if rung >= Rung::Buffered {
        config.down = 1;
        config.cols = 16;
        config.min_blocks = 1;
        config.splits = 1;
    }
    config
}

/// The cases of a topic.
pub fn cases(topic: Topic, target: Target) -> Vec<Case> {
    let mut cases = Cases {
        target,
        list: Vec::new(),
    };
    match topic {
        Topic::Rungs => {
            cases.rungs();
            cases.wider_masks();
        }
        Topic::HeadDimensions => cases.head_dimensions(),
        Topic::ManyTiles => cases.many_tiles(),
        Topic::Edges => cases.edges(),
        Topic::SharedHeads => cases.shared_heads(),
        Topic::Packed => cases.packed(),
        Topic::SharedKeys => cases.shared_keys(),
        Topic::Views => cases.views(),
        Topic::Feeds => cases.feeds(),
        Topic::Schedules => cases.schedules(),
        Topic::Scales => cases.scales(),
        Topic::Precision => cases.precision(),
        Topic::Warpgroups => cases.warpgroups(),
        Topic::Clusters => cases.clusters(),
        Topic::WideHeads => cases.wide_heads_of_one_warpgroup(),
        Topic::HalfSteps => cases.heads_with_half_a_step(),
        Topic::Decode => cases.decode(),
        Topic::Latent => cases.latent(),
        Topic::Models => cases.models(),
        Topic::Large => cases.large(),
    }
    cases.list
}

pub(super) struct Cases {
    pub(super) target: Target,
    pub(super) list: Vec<Case>,
}

impl Cases {
    pub(super) fn add(&mut self, problem: &Problem, config: Config) {
        self.list.push(Case {
            schedule: schedule(&config, problem, self.target),
            problem: problem.clone(),
            kernel: Which::Rung(config),
        });
    }

    fn small(&mut self, problem: &Problem, rung: Rung) {
        self.add(problem, small_tiles(rung, problem, self.target));
    }

    fn rungs(&mut self) {
        for (index, rung) in Rung::ALL.into_iter().enumerate() {
            for dtype in Dtype::ALL {
                for (other, mask) in MASKS.into_iter().enumerate() {
                    let mut problem = Problem::new(1, 2, 37, 32);
                    problem.dtype = dtype;
                    problem.mask = mask;
                    problem.layout = [Layout::Heads, Layout::Rows][(index + other) % 2];
                    problem.weights = exact(dtype);
                    self.small(&problem, rung);
                }
            }
        }
    }

    fn head_dimensions(&mut self) {
        let dims = [16, 32, 48, 64, 80, 96, 128, 160, 256];
        for (index, dim) in dims.into_iter().enumerate() {
            for rung in Rung::ALL {
                let mut problem = Problem::new(1, 1, 20 + dim / 4, dim);
                problem.dtype = Dtype::ALL[index % 2];
                problem.mask = MASKS[index % 3];
                self.add(&problem, Config::suited(rung, &problem, self.target));
            }
        }
    }

    fn many_tiles(&mut self) {
        for (index, dim) in [32, 64, 96, 128, 192, 256].into_iter().enumerate() {
            for (which, mask) in MASKS.into_iter().enumerate() {
                let mut large = Problem::new(16, 64, 1024, dim);
                large.mask = mask;
                large.dtype = Dtype::ALL[(index + which) % 2];
                let mut small = large.clone();
                small.lengths = Lengths::Same {
                    batch: 1,
                    queries: 130,
                    keys: 140,
                };
                (small.heads, small.kv_heads) = (1, 1);
                let rung = [Rung::Large, Rung::Persistent][(index + which) % 2];
                self.add(&small, Config::suited(rung, &large, self.target));
                if which == 0 {
                    self.add(&small, Config::suited(Rung::Large, &large, self.target));
                }
            }
        }
    }

    fn edges(&mut self) {
        let lengths = [1, 2, 7, 15, 16, 17, 31, 32, 33, 63, 65, 97];
        for (index, &queries) in lengths.iter().enumerate() {
            for (which, rung) in Rung::ALL.into_iter().enumerate() {
                let mut problem = Problem::new(1, 1, queries, 32);
                problem.mask = MASKS[(index + which) % 3];
                self.small(&problem, rung);
                problem.lengths = Lengths::Same {
                    batch: 1,
                    queries,
                    keys: lengths[(index * 5 + 3) % lengths.len()],
                };
                self.small(&problem, rung);
            }
        }
    }

    fn shared_heads(&mut self) {
        for rung in Rung::ALL {
            let mut problem = Problem::new(2, 6, 19, 32);
            problem.kv_heads = 2;
            problem.layout = Layout::Rows;
            self.small(&problem, rung);
            problem.kv_heads = 1;
            problem.layout = Layout::Heads;
            problem.mask = Mask::Causal;
            self.small(&problem, rung);
        }
    }

    fn packed(&mut self) {
        let lengths = vec![
            (5, 5),
            (0, 7),
            (33, 33),
            (1, 50),
            (40, 3),
            (17, 0),
            (16, 64),
        ];
        for rung in Rung::ALL {
            for mask in MASKS {
                let mut problem = Problem::ragged(lengths.clone(), 2, 32);
                problem.kv_heads = 1;
                problem.mask = mask;
                self.small(&problem, rung);
            }
        }
    }

    fn shared_keys(&mut self) {
        for (across, splits) in [(2, 1), (4, 1), (1, 2), (1, 5), (2, 3)] {
            for feed in [Feed::Pairs, Feed::Turns] {
                for mask in [Mask::Full, Mask::Causal] {
                    let mut problem = Problem::new(2, 2, 70, 32);
                    problem.mask = mask;
                    let small = small_tiles(Rung::Large, &problem, self.target);
                    let config = Config {
                        across,
                        splits,
                        feed,
                        row_blocks: 1,
                        ..small
                    };
                    self.add(&problem, config);
                }
            }
        }
        // Steps of decoding: one query a sequence.
        let mut problem = Problem::ragged(vec![(1, 300), (1, 2), (1, 0), (1, 129)], 4, 64);
        problem.kv_heads = 2;
        problem.mask = Mask::Causal;
        let config = Config {
            splits: 4,
            ..small_tiles(Rung::Large, &problem, self.target)
        };
        self.add(&problem, config);
        let mut problem = Problem::new(1, 2, 1, 128);
        problem.lengths = Lengths::Same {
            batch: 1,
            queries: 1,
            keys: 5000,
        };
        self.add(&problem, Config::suited(Rung::Large, &problem, self.target));
    }

    fn feeds(&mut self) {
        for feed in [Feed::Pairs, Feed::Turns] {
            for stages in [2, 3, 4] {
                for (swizzled, q_in_registers, row_blocks) in
                    [(false, true, 1), (true, false, 2), (true, true, 1)]
                {
                    let mut problem = Problem::new(1, 1, 75, 64);
                    problem.mask = [Mask::Full, Mask::Causal][stages as usize % 2];
                    let small = small_tiles(Rung::Large, &problem, self.target);
                    let config = Config {
                        feed,
                        stages,
                        swizzled,
                        q_in_registers,
                        row_blocks,
                        ..small
                    };
                    self.add(&problem, config);
                }
            }
        }
    }

    fn schedules(&mut self) {
        let policies = [
            AnyPolicy::new(heist_sched::Greedy),
            AnyPolicy::new(MaxSteals { limit: 2 }),
            AnyPolicy::new(Every {
                n: NonZeroU32::MIN.saturating_add(1),
            }),
            AnyPolicy::new(Never),
        ];
        for (index, source) in TileSource::ALL.into_iter().enumerate() {
            if source
                .check(self.target.arch, heist_launch::Dim3::ONE)
                .is_err()
            {
                continue;
            }
            for (which, policy) in policies.iter().enumerate() {
                let mut problem = Problem::ragged(vec![(40, 40), (9, 9), (70, 70)], 2, 32);
                problem.mask = Mask::Causal;
                let mut schedule = Schedule::new(source)
                    .policy(policy.clone())
                    .submit([Submit::Early, Submit::Late][(index + which) % 2]);
                schedule.order = AnyOrder::new(HeaviestFirst {
                    heads: 1 + which as u32,
                });
                self.list.push(Case {
                    kernel: Which::Rung(small_tiles(Rung::Persistent, &problem, self.target)),
                    problem,
                    schedule,
                });
            }
        }
    }

    /// Kernels for a wider kind of mask than is asked for.
    fn wider_masks(&mut self) {
        for (mask, built) in [
            (Mask::Full, MaskKind::Causal),
            (Mask::Full, MaskKind::Window),
            (Mask::Causal, MaskKind::Window),
        ] {
            for rung in [Rung::Scalar, Rung::Tensor, Rung::Large] {
                let mut problem = Problem::new(1, 1, 53, 32);
                problem.mask = mask;
                let small = small_tiles(rung, &problem, self.target);
                self.add(
                    &problem,
                    Config {
                        mask: built,
                        ..small
                    },
                );
            }
        }
    }

    fn scales(&mut self) {
        for scale in [8.0, 1e-6] {
            for rung in Rung::ALL {
                let mut problem = Problem::new(1, 1, 70, 32);
                problem.scale = Some(scale);
                self.small(&problem, rung);
            }
        }
    }

    fn precision(&mut self) {
        let asked = [
            (Weights::Split, Output::Same),
            (Weights::Split, Output::F32),
            (Weights::Rounded, Output::F32),
        ];
        let lengths = [1, 2, 7, 15, 16, 17, 31, 32, 33, 63, 65, 97];
        for (index, rung) in Rung::ALL.into_iter().enumerate() {
            for (which, dtype) in Dtype::ALL.into_iter().enumerate() {
                for (weights, output) in asked {
                    let mut problem = Problem::new(1, 2, 37, 32);
                    (problem.dtype, problem.weights, problem.output) = (dtype, weights, output);
                    problem.mask = MASKS[(index + which) % 3];
                    self.small(&problem, rung);
                }
            }
            for (at, &queries) in lengths.iter().enumerate() {
                let mut problem = Problem::new(1, 1, queries, 32);
                (problem.dtype, problem.weights) = (Dtype::Bf16, Weights::Split);
                problem.mask = MASKS[(index + at) % 3];
                self.small(&problem, rung);
            }
            let mut problem = Problem::ragged(vec![(5, 5), (0, 7), (33, 33), (1, 50)], 2, 64);
            (problem.dtype, problem.weights) = (Dtype::Bf16, Weights::Split);
            (problem.kv_heads, problem.mask) = (1, Mask::Causal);
            self.small(&problem, rung);
        }
        for (at, (across, splits)) in [(2, 1), (1, 2), (2, 3)].into_iter().enumerate() {
            let mut problem = Problem::new(1, 2, 70, 32);
            problem.dtype = Dtype::Bf16;
            (problem.weights, problem.output) = asked[at];
            let small = small_tiles(Rung::Large, &problem, self.target);
            let config = Config {
                across,
                splits,
                row_blocks: 1,
                ..small
            };
            self.add(&problem, config);
        }
        for (index, dim) in [64, 96, 128, 256].into_iter().enumerate() {
            let mut problem = Problem::new(16, 64, 1024, dim);
            (problem.dtype, problem.weights) = (Dtype::Bf16, Weights::Split);
            problem.mask = MASKS[index % 2];
            let config = Config::suited(Rung::Large, &problem, self.target);
            problem.lengths = Lengths::Same {
                batch: 1,
                queries: 130,
                keys: 140,
            };
            (problem.heads, problem.kv_heads) = (1, 1);
            self.add(&problem, config);
        }
    }
}
