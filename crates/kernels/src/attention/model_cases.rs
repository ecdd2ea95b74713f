//! Cases of what models add to attention: changed scores, sinks, prefixes, documents, on
//! every kernel that has them.

use super::cases::{Cases, MASKS, exact, small_tiles};
use super::config::{Config, Rung};
use super::problem::{Dtype, Layout, Lengths, Mask, Problem};
use super::score::{BlockMask, PairElement, PairMask, Scoring, alibi, documents, pairs, softcap};
use super::warpgroup::{WarpgroupShape, staying, warpgroup_shape};
use heist_sched::{Schedule, TileSource};

/// What is added, and the mask that it is tried with.
fn additions() -> Vec<(Scoring, Mask)> {
    let plain = Scoring::default;
    let window = Mask::Window { left: 17, right: 3 };
    let with = |mods| Scoring { mods, ..plain() };
    let prefix = |prefix| Scoring {
        prefix: Some(prefix),
        ..plain()
    };
    vec![
        (with(vec![softcap(2.0)]), Mask::Causal),
        (with(vec![softcap(30.0)]), Mask::Full),
        (with(vec![alibi()]), Mask::Causal),
        (with(vec![alibi()]), window),
        (with(vec![documents()]), Mask::Causal),
        (with(vec![documents()]), Mask::Full),
        (
            Scoring {
                sinks: true,
                ..plain()
            },
            Mask::Causal,
        ),
        (prefix(21), Mask::Causal),
        (prefix(4), window),
        (prefix(50), window),
        (prefix(1000), Mask::Window { left: 5, right: 0 }),
        (
            Scoring {
                mods: vec![softcap(3.0), alibi(), documents()],
                sinks: true,
                prefix: Some(7),
                blocks: None,
            },
            Mask::Window { left: 40, right: 0 },
        ),
    ]
}

impl Cases {
    pub(super) fn models(&mut self) {
        self.models_on_the_ladder();
        self.models_on_warpgroups();
        self.models_decoding();
        self.masks_of_blocks();
        self.blocks_of_packed();
        self.listed_documents();
        self.masks_of_pairs();
    }

    /// Masks of pairs of every type: one for all, others for each head or sequence, rows that lie apart, with other masks and
    /// changes of scores, on every kernel.
    fn masks_of_pairs(&mut self) {
        let rungs = [Rung::Tensor, Rung::Buffered, Rung::Large, Rung::Persistent];
        for (index, element) in PairElement::ALL.into_iter().enumerate() {
            let (queries, keys) = [(70, 70), (37, 90), (130, 75), (3, 150)][index];
            let mut problem = Problem::new(2, 4, queries, 64);
            problem.lengths = Lengths::Same {
                batch: 2,
                queries,
                keys,
            };
            problem.kv_heads = [4, 2][index % 2];
            problem.mask = [Mask::Full, Mask::Causal][usize::from(index == 1)];
            problem.dtype = Dtype::ALL[index % 2];
            problem.weights = exact(problem.dtype);
            // Rows of an odd number are read one number at a time, others two.
            let mask = |room: u32| {
                let row = keys + room;
                let strides = [
                    [4 * queries * row, queries * row, row],
                    [row - 5, 0, 0],
                    [0, queries * row, row],
                    [0, 0, row],
                ][index];
                PairMask { element, strides }
            };
            problem.scoring.mods = vec![pairs(mask(5))];
            if index == 2 {
                problem.scoring.mods.insert(0, softcap(3.0));
                problem.scoring.sinks = true;
            }
            self.add(&problem, small_tiles(rungs[index], &problem, self.target));
            let shape = WarpgroupShape {
                keys: 48,
                ..warpgroup_shape(&problem, self.target)
            };
            self.on_warpgroups(&problem, shape, Schedule::new(TileSource::Direct));
            let mut even = problem.clone();
            if let Some(last) = even.scoring.mods.last_mut() {
                *last = pairs(mask(6));
            }
            self.on_warpgroups(&even, shape, Schedule::new(TileSource::Direct));
            // More queries than a tile of decoding has are not decoded.
            problem.lengths = Lengths::Same {
                batch: 2,
                queries: queries.min(3),
                keys,
            };
            self.dealt(&problem, [5, 6, 1, 3][index], 1);
        }
    }

    /// One mask for all and others for each, blocks as large as tiles and larger, with every other mask, with changed
    /// scores, in strips and by tickets.
    fn masks_of_blocks(&mut self) {
        let window = Mask::Window {
            left: 130,
            right: 9,
        };
        let plain = Scoring::default;
        for (index, ((rows, keys), mask, mut scoring)) in [
            ((128, 128), Mask::Full, plain()),
            ((128, 64), Mask::Causal, plain()),
            ((256, 192), window, plain()),
            (
                (128, 128),
                window,
                Scoring {
                    prefix: Some(70),
                    ..plain()
                },
            ),
            (
                (256, 128),
                Mask::Causal,
                Scoring {
                    mods: vec![documents()],
                    sinks: true,
                    ..plain()
                },
            ),
        ]
        .into_iter()
        .enumerate()
        {
            scoring.blocks = Some(BlockMask {
                rows,
                keys,
                by_sequence: index % 2 == 1,
                by_head: index % 3 > 0,
            });
            let mut problem = Problem::new(2, 2, 300, [64, 128][index % 2]);
            problem.lengths = Lengths::Same {
                batch: 2,
                queries: 300,
                keys: [520, 300][index % 2],
            };
            problem.kv_heads = [1, 2][index % 2];
            problem.dtype = Dtype::ALL[index % 2];
            problem.weights = exact(problem.dtype);
            problem.layout = [Layout::Heads, Layout::Rows][index / 2 % 2];
            (problem.scoring, problem.mask) = (scoring, mask);
            let shape = WarpgroupShape {
                strip: [1, 3][usize::from(index == 1)],
                ..warpgroup_shape(&problem, self.target)
            };
            let source = [TileSource::Direct, TileSource::Ticket][usize::from(index == 3)];
            self.on_warpgroups(&problem, shape, Schedule::new(source));
        }
    }

    /// Masks of blocks of packed sequences, empty ones and short ones among them: tiles listed and not, heads that share the list, one
    /// mask for all and each sequence's own.
    fn blocks_of_packed(&mut self) {
        let lengths = vec![(5, 5), (300, 520), (0, 7), (130, 64), (140, 3), (17, 0)];
        for (index, mask) in MASKS.into_iter().enumerate() {
            let mut problem = Problem::ragged(lengths.clone(), 2, [64, 128][index % 2]);
            problem.scoring.blocks = Some(BlockMask {
                rows: [128, 256, 128][index],
                keys: [128, 64, 64][index],
                by_sequence: index > 0,
                by_head: index != 1,
            });
            if index == 1 {
                problem.scoring.mods = vec![documents()];
            }
            problem.kv_heads = [1, 2][index % 2];
            problem.dtype = Dtype::ALL[index % 2];
            problem.weights = exact(problem.dtype);
            problem.mask = mask;
            let suited = warpgroup_shape(&problem, self.target);
            let shape = WarpgroupShape {
                listed: [suited.listed, Some(1), None][index],
                ..suited
            };
            self.on_warpgroups(&problem, shape, Schedule::new(TileSource::Direct));
        }
    }

    /// Documents whose blocks are listed, also in blocks that stay.
    fn listed_documents(&mut self) {
        for (index, mask) in [Mask::Full, Mask::Causal].into_iter().enumerate() {
            let mut problem = Problem::new(2, 1, 330, 64);
            problem.scoring.mods = vec![documents()];
            problem.mask = mask;
            let shape = WarpgroupShape {
                keys: 48,
                seen: true,
                ..warpgroup_shape(&problem, self.target)
            };
            let shape = match index {
                0 => staying(&problem, shape, 1, self.target),
                _ => shape,
            };
            self.on_warpgroups(&problem, shape, Schedule::new(TileSource::Direct));
        }
    }

    fn models_on_the_ladder(&mut self) {
        let rungs = [Rung::Tensor, Rung::Buffered, Rung::Large, Rung::Persistent];
        for (index, (scoring, mask)) in additions().into_iter().enumerate() {
            let lengths = vec![
                (5, 5),
                (33, 40),
                (0, 9),
                (1, 50),
                (40, 3),
                (70, 70),
                (17, 0),
            ];
            let mut problem = match index % 3 {
                0 => Problem::ragged(lengths, 2, 32),
                _ => Problem::new(2, 2, 70, 32),
            };
            if index % 3 == 2 {
                problem.lengths = Lengths::Same {
                    batch: 2,
                    queries: 37,
                    keys: 90,
                };
            }
            problem.kv_heads = [1, 2][index % 2];
            problem.dtype = Dtype::ALL[index % 2];
            problem.weights = exact(problem.dtype);
            (problem.scoring, problem.mask) = (scoring, mask);
            let rung = rungs[index % rungs.len()];
            self.add(&problem, small_tiles(rung, &problem, self.target));
            // Keys shared out among warps and among blocks.
            let small = small_tiles(Rung::Large, &problem, self.target);
            let config = Config {
                across: [2, 1][index % 2],
                splits: [1, 3][index % 2],
                ..small
            };
            if !problem.is_ragged() {
                self.add(&problem, config);
            }
        }
    }

    fn models_on_warpgroups(&mut self) {
        for (index, (scoring, mask)) in additions().into_iter().enumerate() {
            let lengths = vec![(5, 5), (130, 140), (0, 7), (1, 300), (140, 3), (17, 0)];
            let mut problem = match index % 2 {
                0 => Problem::ragged(lengths, 2, 64),
                _ => Problem::new(1, 2, 200, 64),
            };
            problem.kv_heads = [1, 2][index / 2 % 2];
            problem.dtype = Dtype::ALL[index / 2 % 2];
            problem.weights = exact(problem.dtype);
            if !problem.is_ragged() {
                problem.layout = [Layout::Heads, Layout::Rows][index / 2 % 2];
            }
            (problem.scoring, problem.mask) = (scoring, mask);
            let shape = WarpgroupShape {
                keys: 48,
                ..warpgroup_shape(&problem, self.target)
            };
            let shape = match index % 3 {
                2 => staying(&problem, shape, 1, self.target),
                _ => shape,
            };
            self.on_warpgroups(&problem, shape, Schedule::new(TileSource::Direct));
        }
    }

    fn models_decoding(&mut self) {
        for (index, (scoring, mask)) in additions().into_iter().enumerate() {
            let lengths = vec![(1, 5), (2, 300), (0, 70), (1, 0), (3, 64), (1, 260), (4, 3)];
            let mut problem = match index % 2 {
                0 => Problem::ragged(lengths, 4, 64),
                _ => Problem::new(2, 8, 1, 64),
            };
            if index % 2 == 1 {
                problem.lengths = Lengths::Same {
                    batch: 2,
                    queries: 1 + index as u32 % 3,
                    keys: 400,
                };
            }
            problem.kv_heads = [1, 2][index / 2 % 2];
            let documents = scoring.mods.iter().any(|one| one.name() == "documents");
            if problem.is_ragged() && !documents && index % 4 == 2 {
                problem.page_size = Some(16);
            }
            problem.dtype = Dtype::ALL[index / 2 % 2];
            problem.weights = exact(problem.dtype);
            (problem.scoring, problem.mask) = (scoring, mask);
            self.dealt(&problem, [5, 6, 1][index % 3], 1);
        }
    }
}
