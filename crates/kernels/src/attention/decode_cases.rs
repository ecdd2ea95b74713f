//! Cases of decoding: tiles of every size, every storage, shares that end inside of
//! tiles and at their ends.

use super::cache::{Append, Cache};
use super::cases::{Case, Cases, MASKS, Which, exact};
use super::decode::{Combine, DecodeShape, Grid, decode_grid, decode_shape};
use super::entry::FAMILY;
use super::problem::{Dtype, Layout, Lengths, Mask, Output, Problem, Weights};
use heist_sched::{Schedule, TileSource};

impl Cases {
    /// Nothing, where the kernel does not take the problem or the device.
    fn on_decode(
        &mut self,
        problem: &Problem,
        change: impl Fn(DecodeShape, Grid) -> (DecodeShape, Grid),
    ) {
        if FAMILY.choose(Some("decode"), problem, self.target).is_err() {
            return;
        }
        let shape = decode_shape(problem, self.target);
        let grid = decode_grid(problem, &shape, self.target);
        let (shape, grid) = change(shape, grid);
        self.list.push(Case {
            problem: problem.clone(),
            kernel: Which::Decode(shape, grid),
            schedule: Schedule::new(TileSource::Direct),
        });
    }

    /// With few stages and shares of `least` key blocks, so that tiles are cut.
    pub(super) fn dealt(&mut self, problem: &Problem, blocks: u32, least: u32) {
        self.on_decode(problem, |shape, _| {
            let grid = Grid {
                blocks,
                least,
                combine: [Combine::Launch, Combine::LastBlock][(blocks % 2) as usize],
            };
            (DecodeShape { stages: 2, ..shape }, grid)
        });
    }

    pub(super) fn decode(&mut self) {
        self.decode_groups();
        self.decode_storages();
        self.decode_heads();
        self.decode_tiny();
        self.decode_neighbours();
        self.decode_twins();
        self.decode_appending();
        self.decode_parts();
    }

    /// Tiles of few parts and of many, which the last block combines (an odd number of them), or a launch: some rows of each and many.
    fn decode_parts(&mut self) {
        for (heads, parts) in [
            (4, 19),
            (8, 7),
            (32, 3),
            (32, 5),
            (8, 18),
            (4, 2),
            (40, 4),
            (5, 12),
            (3, 34),
        ] {
            let mut problem = Problem::new(1, heads, 1, 128);
            problem.kv_heads = 1;
            (problem.dtype, problem.weights) = (Dtype::Bf16, exact(Dtype::Bf16));
            let stage = decode_shape(&problem, self.target).keys;
            problem.lengths = Lengths::Same {
                batch: 1,
                queries: 1,
                keys: stage * parts - 5,
            };
            self.dealt(&problem, parts, 1);
        }
        // A launch for the tiles of more sequences than a warp has lanes, some of them cut.
        let mut problem = Problem::ragged(vec![(1, 1)], 2, 80);
        problem.kv_heads = 1;
        let stage = decode_shape(&problem, self.target).keys;
        let lengths = (0..40).map(|i| (u32::from(i != 7), stage * (i % 9 / 4 * 3) + 1));
        problem.lengths = Lengths::Each(lengths.collect());
        self.dealt(&problem, 60, 1);
        // Lengths on the device, and more parts than a block combines: the last of 9 is alone, in the block that the next tile begins in.
        for (page_size, blocks, tiles) in [(Some(16), 19, [1, 16, 18]), (None, 21, [9, 1, 10])] {
            let mut problem = Problem::ragged(vec![(1, 1)], 2, 64);
            (problem.kv_heads, problem.page_size) = (1, page_size);
            let stage = decode_shape(&problem, self.target).keys;
            problem.lengths = Lengths::Each(tiles.map(|blocks| (1, stage * blocks - 3)).into());
            self.dealt(&problem, blocks, 1);
        }
    }

    /// Keys and values that are one row: the shape that models have and narrower ones, one tile of a sequence and several, one
    /// key head and two, every storage, tiles that are cut and whole ones.
    pub(super) fn latent(&mut self) {
        let mixed = vec![(1, 5), (2, 150), (0, 70), (1, 0), (4, 129)];
        let long = vec![(3, 64), (4, 300)];
        // Heads, elements of keys and values, tokens of a page.
        for (index, (heads, dim, values, page)) in [
            (16, 576, 512, Some(64)),
            (128, 192, 128, Some(16)),
            (64, 336, 256, None),
            (5, 576, 512, Some(128)),
        ]
        .into_iter()
        .enumerate()
        {
            let lengths = [&mixed, &long][index % 2].clone();
            let mut problem = Problem::ragged(lengths, heads, dim);
            (problem.kv_heads, problem.cache) = (1, Cache::Latent);
            (problem.value_dim, problem.page_size) = (Some(values), page);
            problem.mask = MASKS[(index + 1) % 3];
            problem.dtype = Dtype::ALL[index % 2];
            problem.output = [Output::Same, Output::F32][index / 2];
            self.dealt(&problem, [2, 5, 8, 3][index], 1);
            // Second tiles in rounds of their own, of sequences that have some and of others.
            if index == 1 {
                let grid = |combine| Grid {
                    blocks: 6,
                    least: 1,
                    combine,
                };
                for combine in [Combine::Launch, Combine::LastBlock] {
                    self.on_decode(&problem, |shape, _| {
                        let rounds = 8;
                        (DecodeShape { rounds, ..shape }, grid(combine))
                    });
                }
            }
        }
        for (index, (heads, kv_heads, dim, values)) in [(128, 1, 576, 512), (32, 2, 256, 256)]
            .into_iter()
            .enumerate()
        {
            let mut problem = Problem::new(2, heads, 1, dim);
            (problem.kv_heads, problem.cache) = (kv_heads, Cache::Latent);
            (problem.value_dim, problem.dtype) = (Some(values), Dtype::Bf16);
            problem.layout = [Layout::Rows, Layout::Heads][index];
            // Scores so far apart that a later stage raises what is subtracted from them.
            problem.scale = [Some(8.0), None][index];
            problem.lengths = Lengths::Same {
                batch: 1 + index as u32,
                queries: 1 + index as u32,
                keys: [100, 64][index],
            };
            self.on_decode(&problem, |shape, grid| (shape, grid));
        }
    }

    /// New keys that the call puts into the pages: in one stage and across several, more than a window sees, behind none,
    /// of sequences without queries, rounded and not, by tiles and by a launch before.
    fn decode_appending(&mut self) {
        let lengths = [
            (1, 5),
            (2, 300),
            (0, 70),
            (1, 3),
            (3, 64),
            (1, 129),
            (2, 66),
        ];
        for (index, (head_dim, page_size, rows)) in [
            (64, 16, 1),
            (128, 64, 3),
            (96, 256, 3),
            (128, 128, 2),
            (256, 8, 3),
            (80, 32, 1),
        ]
        .into_iter()
        .enumerate()
        {
            let mut problem = Problem::ragged(lengths.to_vec(), 8, head_dim);
            problem.kv_heads = [4, 1, 2][index % 3];
            problem.page_size = Some(page_size);
            problem.cache =
                [Cache::Same, Cache::E4m3][usize::from(index % 2 == 1 && head_dim % 32 == 0)];
            problem.append = Some(Append {
                rows,
                in_cache_type: index == 3,
            });
            problem.mask = MASKS[(index + 1) % 3];
            problem.dtype = Dtype::ALL[index % 2];
            problem.weights = exact(problem.dtype);
            self.dealt(&problem, [5, 64, 2][index % 3], 1 + index as u32 % 2);
        }
        // More new keys than a stage has, and a window that sees a few of them.
        let mut problem = Problem::ragged(vec![(2, 200), (1, 190), (1, 330)], 4, 64);
        (problem.page_size, problem.kv_heads) = (Some(16), 2);
        (problem.mask, problem.dtype) = (Mask::Window { left: 9, right: 0 }, Dtype::Bf16);
        problem.append = Some(Append {
            rows: 190,
            in_cache_type: false,
        });
        self.dealt(&problem, 9, 1);
        // Several tiles of one key head.
        for cache in [Cache::Same, Cache::E4m3] {
            let mut problem = Problem::ragged(vec![(16, 100), (9, 77), (0, 5)], 8, 64);
            (problem.page_size, problem.kv_heads, problem.cache) = (Some(32), 1, cache);
            problem.append = Some(Append {
                rows: 5,
                in_cache_type: false,
            });
            problem.mask = Mask::Causal;
            self.dealt(&problem, 3, 1);
        }
    }

    /// Keys and values of 8 bits: every storage, tiles of 16 to 64 rows, one to four panels.
    fn decode_tiny(&mut self) {
        let lengths = [(1, 5), (2, 300), (0, 70), (1, 0), (3, 64), (1, 129), (4, 3)];
        for (index, (head_dim, page_size)) in [
            (128, None),
            (64, Some(16)),
            (128, Some(128)),
            (96, Some(64)),
            (256, None),
        ]
        .into_iter()
        .enumerate()
        {
            let mut problem = Problem::ragged(lengths.to_vec(), 8, head_dim);
            problem.kv_heads = [4, 1, 2][index % 3];
            problem.page_size = page_size;
            problem.cache = Cache::E4m3;
            problem.mask = MASKS[(index + 1) % 3];
            problem.dtype = Dtype::ALL[index % 2];
            problem.weights = [Weights::Rounded, Weights::Split][index % 2];
            problem.output = [Output::Same, Output::F32][(index / 2) % 2];
            self.dealt(&problem, [5, 64, 2][index % 3], 1 + index as u32 % 2);
        }
        for (index, (queries, kv_heads)) in [(1, 8), (1, 1), (16, 2)].into_iter().enumerate() {
            let mut problem = Problem::new(2, 8, queries, [128, 64, 32][index]);
            problem.kv_heads = kv_heads;
            problem.lengths = Lengths::Same {
                batch: 2,
                queries,
                keys: 200,
            };
            problem.cache = Cache::E4m3;
            problem.mask = MASKS[index % 3];
            problem.layout = [Layout::Heads, Layout::Rows][index % 2];
            problem.dtype = Dtype::ALL[(index + 1) % 2];
            self.on_decode(&problem, |shape, grid| (shape, grid));
        }
        // Two warps with 32 rows each, of which the second has one.
        let mut problem = Problem::new(1, 33, 1, 128);
        problem.kv_heads = 1;
        problem.lengths = Lengths::Same {
            batch: 1,
            queries: 1,
            keys: 300,
        };
        (problem.cache, problem.scoring.sinks) = (Cache::E4m3, true);
        self.dealt(&problem, 3, 1);
    }

    /// Tiles of two and four key heads that lie next to each other: packed and in pages, one tile of these heads and several, of 16 and of 8
    /// bits with factors of their own, with new keys that are rounded and not.
    fn decode_neighbours(&mut self) {
        let lengths = [(1, 5), (2, 300), (0, 70), (1, 3), (3, 64), (1, 129), (4, 3)];
        // Query heads, key heads, key heads of a tile, elements of a head, tokens of a page, of 8 bits, new keys.
        for (index, (heads, kv_heads, of_tile, head_dim, page_size, tiny, new)) in [
            (8, 4, 4, 64, Some(16), true, None),
            (12, 2, 2, 64, None, false, None),
            (4, 4, 2, 128, Some(32), false, None),
            (8, 8, 4, 128, None, true, None),
            (8, 2, 2, 64, Some(64), true, Some(3)),
            (4, 4, 4, 64, Some(8), false, Some(2)),
        ]
        .into_iter()
        .enumerate()
        {
            let mut problem = Problem::ragged(lengths.to_vec(), heads, head_dim);
            (problem.kv_heads, problem.page_size) = (kv_heads, page_size);
            problem.cache = [Cache::Same, Cache::E4m3][usize::from(tiny)];
            problem.append = new.map(|rows| Append {
                rows,
                in_cache_type: false,
            });
            problem.mask = MASKS[(index + 1) % 3];
            problem.dtype = Dtype::ALL[index % 2];
            problem.weights = exact(problem.dtype);
            problem.output = [Output::Same, Output::F32][(index / 2) % 2];
            problem.scoring.sinks = index % 3 == 1;
            let [blocks, least] = [[5, 1], [4, 2], [64, 1]][index % 3];
            self.on_decode(&problem, |shape, _| {
                let shape = DecodeShape {
                    heads: of_tile,
                    down: of_tile,
                    warps: 8,
                    keys: if of_tile * head_dim < 256 { 128 } else { 64 },
                    stages: 2,
                    ..shape
                };
                let grid = Grid {
                    blocks,
                    least,
                    combine: [Combine::Launch, Combine::LastBlock][index % 2],
                };
                (shape, grid)
            });
        }
    }

    /// Two keys a row of 128 bytes: 16 rows a tile and more, masks, an end inside of a block of keys.
    fn decode_twins(&mut self) {
        for (index, (kv_heads, queries, keys)) in [(4, 1, 200), (1, 5, 578), (2, 16, 62)]
            .into_iter()
            .enumerate()
        {
            let mut problem = Problem::new(2, 4, queries, 64);
            problem.kv_heads = kv_heads;
            problem.lengths = Lengths::Same {
                batch: 2,
                queries,
                keys,
            };
            (problem.cache, problem.mask) = (Cache::E4m3, MASKS[index]);
            problem.dtype = Dtype::ALL[index % 2];
            self.dealt(&problem, [3, 4, 5][index], 1);
        }
    }

    /// Groups and queries: tiles of 16, 32 and 64 rows, several tiles a head.
    fn decode_groups(&mut self) {
        // Query heads, key heads, queries, keys, blocks, key blocks of a share.
        for (index, (heads, kv_heads, queries, keys, blocks, least)) in [
            (8, 2, 1, 300, 3, 1),
            (2, 2, 1, 64, 7, 1),
            (4, 1, 5, 129, 2, 1),
            (8, 1, 4, 257, 5, 1),
            (6, 2, 16, 200, 4, 2),
            (5, 1, 16, 90, 1, 1),
            (3, 3, 3, 1, 3, 1),
            (4, 2, 3, 2, 9, 1),
        ]
        .into_iter()
        .enumerate()
        {
            let mut problem = Problem::new(2, heads, queries, [64, 128][index % 2]);
            problem.kv_heads = kv_heads;
            problem.lengths = Lengths::Same {
                batch: 2,
                queries,
                keys,
            };
            problem.mask = MASKS[index % 3];
            problem.layout = [Layout::Heads, Layout::Rows][(index / 2) % 2];
            problem.dtype = Dtype::ALL[(index / 3) % 2];
            problem.weights = exact(problem.dtype);
            problem.output = [Output::Same, Output::F32][(index / 2) % 2];
            // Scores so far apart that a later stage raises what is subtracted from them.
            problem.scale = [None, Some(8.0)][index % 2];
            self.dealt(&problem, blocks, least);
            if index % 3 == 0 {
                self.on_decode(&problem, |shape, grid| (shape, grid));
            }
        }
    }

    /// Packed and in pages, with sequences that are empty, short and long.
    fn decode_storages(&mut self) {
        let lengths = [(1, 5), (2, 300), (0, 70), (1, 0), (3, 64), (1, 129), (4, 3)];
        for (index, page_size) in [None, Some(16), Some(64), Some(256), Some(32), None]
            .into_iter()
            .enumerate()
        {
            let mut problem = Problem::ragged(lengths.to_vec(), 4, [128, 64][index % 2]);
            problem.kv_heads = [2, 1, 4][index % 3];
            problem.page_size = page_size;
            problem.mask = MASKS[(index + 1) % 3];
            problem.dtype = Dtype::ALL[index % 2];
            problem.weights = exact(problem.dtype);
            self.dealt(&problem, [5, 64, 1][index % 3], 1 + index as u32 % 2);
        }
        // More sequences than lanes of a warp.
        let lengths = (0..70).map(|i| (1 + i % 2, (i * 7) % 40)).collect();
        let mut problem = Problem::ragged(lengths, 2, 64);
        problem.page_size = Some(16);
        self.dealt(&problem, 9, 1);
    }

    fn decode_heads(&mut self) {
        for (index, head_dim) in [16, 80, 96, 192, 256].into_iter().enumerate() {
            let mut problem = Problem::new(1, 20, 1, head_dim);
            problem.kv_heads = [20, 1][index % 2];
            problem.lengths = Lengths::Same {
                batch: 1,
                queries: 1 + index as u32 % 2,
                keys: 150,
            };
            problem.dtype = Dtype::ALL[index % 2];
            problem.weights = exact(problem.dtype);
            self.dealt(&problem, 6, 1);
        }
    }
}
