//! Cases of the kernel on warpgroups: every idea of the ladder's cases, at its edges.

use super::cases::{Case, Cases, MASKS, Which, exact};
use super::entry::FAMILY;
use super::order::HeaviestFirst;
use super::problem::{Dtype, Layout, Lengths, Mask, Output, Problem, Weights};
use super::score::softcap;
use super::warpgroup::{
    Sharing, Stay, WarpgroupShape, staying, warpgroup_schedule, warpgroup_shape, with_levels,
};
use heist_sched::{AnyOrder, Schedule, TileSource};

impl Cases {
    /// Nothing, where the kernel does not take the problem or the device.
    pub(super) fn on_warpgroups(
        &mut self,
        problem: &Problem,
        shape: WarpgroupShape,
        schedule: Schedule,
    ) {
        let suits = FAMILY.choose(Some("wgmma"), problem, self.target);
        if suits.is_ok() {
            self.list.push(Case {
                problem: problem.clone(),
                kernel: Which::Warpgroups(shape),
                schedule,
            });
        }
    }

    /// With the tiles and the schedule that suit.
    fn suited_on_warpgroups(&mut self, problem: &Problem) {
        let shape = warpgroup_shape(problem, self.target);
        self.on_warpgroups(problem, shape, warpgroup_schedule(problem, self.target));
    }

    /// The tiles that suit where there are many: no block shares its rows with another.
    fn large_tiles(&self, problem: &Problem) -> WarpgroupShape {
        warpgroup_shape(problem, self.target).scheduled()
    }

    pub(super) fn warpgroups(&mut self) {
        self.warpgroup_edges();
        self.warpgroup_schedules();
        self.warpgroup_shapes();
        self.warpgroup_heads();
        self.narrow_values();
        self.warpgroup_packed();
        self.warpgroup_scales();
        self.warpgroup_stays();
    }

    /// Blocks that stay: several tiles a block, forth and back, fewer tiles than
    /// blocks, one key block and several.
    fn warpgroup_stays(&mut self) {
        for (index, (queries, keys, blocks)) in
            [(130, 130, 2), (300, 300, 3), (100, 260, 50), (260, 90, 1)]
                .into_iter()
                .enumerate()
        {
            let mut problem = Problem::new(2, 2, queries, [64, 128][index % 2]);
            problem.lengths = Lengths::Same {
                batch: 2,
                queries,
                keys,
            };
            problem.kv_heads = [2, 1][index % 2];
            problem.mask = MASKS[(index + 1) % 3];
            problem.layout = [Layout::Rows, Layout::Heads][(index / 2) % 2];
            problem.dtype = Dtype::ALL[index % 2];
            problem.weights = exact(problem.dtype);
            problem.output = [Output::Same, Output::F32][(index / 2) % 2];
            let shape = staying(&problem, self.large_tiles(&problem), 1, self.target);
            let stay = Some(Stay {
                blocks,
                resident: 1,
                ahead: true,
            });
            let shape = WarpgroupShape { stay, ..shape };
            self.on_warpgroups(&problem, shape, Schedule::new(TileSource::Direct));
        }
        // Several blocks of one warpgroup on a multiprocessor.
        for (index, (keys, resident, dim)) in [(128, 2, 64), (64, 3, 64), (64, 4, 64), (64, 2, 128)]
            .into_iter()
            .enumerate()
        {
            let mut problem = Problem::new(2, 2, [130, 200, 64, 300][index], dim);
            problem.mask = MASKS[index % 3];
            problem.dtype = Dtype::ALL[index % 2];
            let shape = WarpgroupShape {
                groups: 1,
                keys,
                ..self.large_tiles(&problem)
            };
            let shape = staying(&problem, shape, resident, self.target);
            let stay = Some(Stay {
                blocks: 1 + index as u32,
                resident,
                ahead: true,
            });
            let shape = WarpgroupShape { stay, ..shape };
            self.on_warpgroups(&problem, shape, Schedule::new(TileSource::Direct));
        }
        let lengths = vec![(5, 5), (0, 7), (130, 133), (1, 300), (140, 3), (17, 0)];
        let problem = Problem::ragged(lengths, 2, 64);
        let shape = staying(
            &problem,
            warpgroup_shape(&problem, self.target),
            1,
            self.target,
        );
        let stay = Some(Stay {
            blocks: 3,
            resident: 1,
            ahead: true,
        });
        let shape = WarpgroupShape { stay, ..shape };
        self.on_warpgroups(&problem, shape, Schedule::new(TileSource::Direct));
    }

    /// Keys that the blocks of a cluster share: shares without keys, of one block of keys and of several, columns of
    /// a whole chunk and of more, under every mask.
    pub(super) fn clusters(&mut self) {
        let (two, four, eight) = (Sharing::Two, Sharing::Four, Sharing::Eight);
        for (index, (sharing, lengths, keys, dim)) in [
            (two, (130, 300), 128, 64),
            (two, (65, 70), 64, 128),
            (two, (70, 500), 64, 64),
            (two, (90, 129), 64, 96),
            (two, (33, 1), 128, 64),
            (two, (100, 600), 64, 128),
            (two, (70, 330), 64, 80),
            (four, (130, 300), 64, 64),
            (four, (65, 70), 64, 128),
            (four, (70, 700), 64, 96),
            (four, (90, 1100), 128, 64),
            (four, (33, 1), 64, 64),
            (four, (100, 530), 64, 128),
            (eight, (70, 300), 16, 64),
            (eight, (129, 600), 48, 128),
            (eight, (33, 1), 32, 64),
            (eight, (64, 1000), 64, 64),
            (eight, (10, 400), 48, 128),
            (eight, (200, 200), 16, 64),
        ]
        .into_iter()
        .enumerate()
        {
            let mut problem = Problem::new(1, 2, 1, dim);
            (problem.mask, problem.dtype) = (MASKS[index % 3], Dtype::ALL[index % 2]);
            problem.output = [Output::Same, Output::F32][index / 2 % 2];
            problem.layout = [Layout::Rows, Layout::Heads][index / 3 % 2];
            problem.kv_heads = 1 + index as u32 % 2;
            problem.lengths = Lengths::Same {
                batch: 1,
                queries: lengths.0,
                keys: lengths.1,
            };
            if index % 4 == 3 {
                problem.scoring.sinks = true;
                problem.scoring.mods = vec![softcap(3.0)];
            }
            let shape = WarpgroupShape {
                groups: 1,
                keys,
                sharing,
                ..self.large_tiles(&problem)
            };
            let shape = staying(&problem, shape, 2, self.target);
            self.on_warpgroups(&problem, shape, Schedule::new(TileSource::Direct));
        }
    }

    /// Wide heads in tiles of one warpgroup, two blocks on a multiprocessor: those that stay, and one for each tile.
    pub(super) fn wide_heads_of_one_warpgroup(&mut self) {
        for (index, (head_dim, keys, lengths)) in [
            (144, 48, (130, 130)),
            (160, 48, (64, 300)),
            (192, 48, (200, 97)),
            (256, 32, (65, 65)),
            (192, 32, (129, 50)),
            (256, 32, (3, 290)),
            (240, 32, (128, 128)),
            (176, 48, (70, 1)),
        ]
        .into_iter()
        .enumerate()
        {
            let mut problem = Problem::new(2, 2, 1, head_dim);
            problem.lengths = Lengths::Same {
                batch: 2,
                queries: lengths.0,
                keys: lengths.1,
            };
            (problem.mask, problem.dtype) = (MASKS[index % 3], Dtype::ALL[index % 2]);
            problem.output = [Output::Same, Output::F32][index / 2 % 2];
            problem.layout = [Layout::Rows, Layout::Heads][index / 3 % 2];
            problem.kv_heads = 1 + index as u32 % 2;
            let shape = WarpgroupShape {
                groups: 1,
                keys,
                ..self.large_tiles(&problem)
            };
            let shape = staying(&problem, shape, 2, self.target);
            let blocks = [u32::MAX, 3][index % 2];
            let stay = shape.stay.map(|stay| Stay { blocks, ..stay });
            let shape = with_levels(&problem, WarpgroupShape { stay, ..shape });
            self.on_warpgroups(&problem, shape, Schedule::new(TileSource::Direct));
        }
    }

    /// Heads whose last step of 16 elements is half empty, in the shapes that are chosen: one panel and several, values that are narrower, packed sequences,
    /// results in f32, weights in two terms, and blocks that share keys.
    pub(super) fn heads_with_half_a_step(&mut self) {
        for (index, (dim, values, lengths)) in [
            (24, 24, (130, 130)),
            (40, 40, (70, 300)),
            (72, 72, (200, 97)),
            (72, 40, (65, 129)),
            (96, 72, (129, 50)),
            (88, 88, (33, 700)),
            (104, 104, (140, 140)),
            (120, 64, (64, 64)),
            (136, 136, (90, 200)),
            (200, 200, (70, 70)),
            (248, 248, (130, 61)),
        ]
        .into_iter()
        .enumerate()
        {
            let mut problem = Problem::new(2, 2, 1, dim);
            let (queries, keys) = lengths;
            problem.value_dim = Some(values).filter(|values| *values < dim);
            problem.lengths = match index % 4 {
                3 => Lengths::Each(vec![(queries, keys), (0, 5), (7, 40)]),
                _ => Lengths::Same {
                    batch: 2,
                    queries,
                    keys,
                },
            };
            (problem.mask, problem.dtype) = (MASKS[index % 3], Dtype::ALL[index % 2]);
            problem.weights = match index % 2 {
                0 => exact(problem.dtype),
                _ => problem.weights,
            };
            problem.output = [Output::Same, Output::Same, Output::F32][index % 3];
            problem.layout = [Layout::Rows, Layout::Heads][index / 2 % 2];
            let shape = warpgroup_shape(&problem, self.target);
            let schedule = warpgroup_schedule(&problem, self.target);
            self.on_warpgroups(&problem, shape, schedule);
        }
    }

    fn warpgroup_edges(&mut self) {
        // Lengths around the tiles of 128 and 192 rows and the blocks of keys.
        let lengths = [
            (1, 1),
            (2, 300),
            (63, 65),
            (64, 128),
            (127, 129),
            (128, 127),
            (129, 500),
            (191, 16),
            (193, 257),
            (256, 1),
            (300, 150),
        ];
        for (index, (queries, keys)) in lengths.into_iter().enumerate() {
            for (which, head_dim) in [64, 128].into_iter().enumerate() {
                let mut problem = Problem::new(1, 1, 1, head_dim);
                problem.lengths = Lengths::Same {
                    batch: 1,
                    queries,
                    keys,
                };
                problem.mask = MASKS[(index + which) % 3];
                problem.dtype = Dtype::ALL[index % 2];
                problem.weights = exact(problem.dtype);
                problem.output = [Output::Same, Output::F32][(index / 2) % 2];
                self.suited_on_warpgroups(&problem);
                let shape = with_levels(&problem, self.large_tiles(&problem));
                self.on_warpgroups(&problem, shape, Schedule::new(TileSource::Direct));
            }
        }
    }

    fn warpgroup_schedules(&mut self) {
        for (index, source) in TileSource::ALL.into_iter().enumerate() {
            if source
                .check(self.target.arch, heist_launch::Dim3::ONE)
                .is_err()
            {
                continue;
            }
            for (which, head_dim) in [64, 128].into_iter().enumerate() {
                // Several tiles a block, of three heads that share keys or not.
                let mut problem = Problem::new(2, 4, 260, head_dim);
                problem.kv_heads = [4, 2][(index + which) % 2];
                problem.mask = MASKS[(index + 2 * which) % 3];
                problem.layout = [Layout::Rows, Layout::Heads][(index + which) % 2];
                problem.dtype = Dtype::ALL[which];
                let mut schedule = Schedule::new(source);
                schedule.order = AnyOrder::new(HeaviestFirst { heads: 2 });
                let shape = WarpgroupShape {
                    groups: 3 - which as u32,
                    strip: 1 + (index % 3) as u32,
                    ..warpgroup_shape(&problem, self.target).scheduled()
                };
                self.on_warpgroups(&problem, shape, schedule);
            }
        }
    }

    fn warpgroup_shapes(&mut self) {
        for (groups, keys, stages, strip, turns) in [
            (2, 64, 4, 2, false),
            (2, 96, 3, 1, true),
            (3, 80, 2, 1, false),
            (2, 176, 2, 3, true),
            (3, 128, 2, 2, false),
        ] {
            let mut problem = Problem::new(2, 1, 300, 64);
            problem.mask = Mask::Causal;
            let shape = WarpgroupShape {
                groups,
                keys,
                stages,
                strip,
                turns,
                stay: None,
                ..self.large_tiles(&problem)
            };
            let shape = with_levels(&problem, shape);
            self.on_warpgroups(&problem, shape, Schedule::new(TileSource::Direct));
        }
    }

    fn warpgroup_heads(&mut self) {
        for (index, head_dim) in [16, 32, 48, 80, 96, 112, 144, 192, 256]
            .into_iter()
            .enumerate()
        {
            let mut problem = Problem::new(1, 2, 150, head_dim);
            problem.mask = MASKS[index % 3];
            problem.dtype = Dtype::ALL[index % 2];
            problem.weights = exact(problem.dtype);
            problem.layout = [Layout::Rows, Layout::Heads][(index / 2) % 2];
            problem.output = [Output::Same, Output::F32][(index / 3) % 2];
            self.suited_on_warpgroups(&problem);
        }
    }

    /// Heads of values that are narrower than those of keys: by a panel or more, within a panel, with
    /// blocks that stay, packed, and left to a list.
    fn narrow_values(&mut self) {
        let dims = [(192, 128), (80, 48), (256, 64), (128, 64), (192, 176)];
        for (index, (head_dim, value_dim)) in dims.into_iter().enumerate() {
            let mut problem = Problem::new(1, 2, 150, head_dim);
            problem.value_dim = Some(value_dim);
            problem.kv_heads = 1 + index as u32 % 2;
            problem.mask = MASKS[index % 3];
            problem.dtype = Dtype::ALL[index % 2];
            problem.weights = exact(problem.dtype);
            problem.layout = [Layout::Rows, Layout::Heads][(index / 2) % 2];
            problem.output = [Output::Same, Output::F32][(index / 3) % 2];
            self.suited_on_warpgroups(&problem);
        }
        let lengths = vec![(5, 5), (0, 7), (130, 133), (1, 300), (140, 3), (17, 0)];
        let mut problem = Problem::ragged(lengths, 2, 192);
        (problem.value_dim, problem.mask) = (Some(128), Mask::Causal);
        self.suited_on_warpgroups(&problem);
    }

    fn warpgroup_packed(&mut self) {
        let lengths = [
            (5, 5),
            (0, 7),
            (130, 133),
            (1, 300),
            (140, 3),
            (17, 0),
            (129, 128),
        ];
        for (index, head_dim) in [64, 128, 32, 96].into_iter().enumerate() {
            let mut problem = Problem::ragged(lengths.to_vec(), 2, head_dim);
            problem.kv_heads = 1 + index as u32 % 2;
            problem.mask = MASKS[index % 3];
            problem.dtype = Dtype::ALL[index % 2];
            problem.weights = exact(problem.dtype);
            problem.output = [Output::Same, Output::F32][(index / 2) % 2];
            let shape = warpgroup_shape(&problem, self.target);
            let own = warpgroup_schedule(&problem, self.target);
            self.on_warpgroups(&problem, shape, own);
            let strips = WarpgroupShape {
                strip: 2,
                listed: None,
                ..shape.scheduled()
            };
            self.on_warpgroups(&problem, strips, Schedule::new(TileSource::Ticket));
            self.listed(&problem, shape, index);
        }
    }

    /// The tiles by list: a block each, and blocks that stay.
    fn listed(&mut self, problem: &Problem, shape: WarpgroupShape, turn: usize) {
        let listed = WarpgroupShape {
            listed: Some(1 + turn as u32 % 2),
            ..shape.scheduled()
        };
        let sources = [TileSource::Direct, TileSource::Ticket, TileSource::Static];
        self.on_warpgroups(problem, listed, Schedule::new(sources[turn % 3]));
        if (64..=128).contains(&problem.head_dim) {
            let shape = staying(problem, listed, 1, self.target);
            let stay = Some(Stay {
                blocks: 1 + turn as u32,
                resident: 1,
                ahead: true,
            });
            let shape = WarpgroupShape { stay, ..shape };
            self.on_warpgroups(problem, shape, Schedule::new(TileSource::Direct));
        }
    }

    fn warpgroup_scales(&mut self) {
        for (scale, weights) in [(8.0, Weights::Rounded), (1e-6, Weights::Split)] {
            let mut problem = Problem::new(1, 1, 300, 128);
            (problem.scale, problem.dtype) = (Some(scale), Dtype::Bf16);
            problem.weights = weights;
            self.suited_on_warpgroups(&problem);
        }
        // Levels that are raised by sums: by every other block, hardly ever, and behind blocks that some rows see nothing of.
        for (index, (scale, keys, dim)) in [
            (8.0, 64, 64),
            (0.1, 128, 128),
            (8.0, 96, 64),
            (1.0, 64, 128),
        ]
        .into_iter()
        .enumerate()
        {
            let mut problem = Problem::new(1, 2, 200, dim);
            problem.lengths = Lengths::Same {
                batch: 1,
                queries: 140,
                keys: 330,
            };
            (problem.scale, problem.dtype) = (Some(scale), Dtype::ALL[index % 2]);
            problem.mask = MASKS[index % 3];
            problem.weights = exact(problem.dtype);
            for groups in [2, 1] {
                let shape = WarpgroupShape {
                    groups,
                    keys,
                    lazy: true,
                    ..warpgroup_shape(&problem, self.target).scheduled()
                };
                let shape = match groups {
                    1 => staying(&problem, shape, 2, self.target),
                    _ => shape,
                };
                self.on_warpgroups(&problem, shape, Schedule::new(TileSource::Direct));
            }
        }
    }
}
