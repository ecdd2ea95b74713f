//! Fragments of every source and type, bulk copies and warpgroups, judged by
//! ptxas.

mod common;

use common::{ALL, HOPPER, assembles};
use heist_builder::*;

kernel_params! {
    struct Args { x: Global<f16>, y: Global<bf16>, z: Global<f32>, out: Global<f32>, n: u32 }
}

fn block<'k>(sums: &WarpTile<'k>, row: usize, col: usize) -> Accumulator<'k> {
    sums.block(row, col).expect("inside")
}

#[test]
fn fragments_from_every_source() {
    fn all<'k, T: MmaInput + Half>(
        k: &Kernel<'k>,
        from: Ptr<'k, Global, T>,
        out: Ptr<'k, Global, f32>,
    ) {
        for layout in [TileLayout::Padded(8), TileLayout::Swizzled] {
            let tile = k.tile(TileSpec::<T>::new("tile", 64, 64, layout));
            k.for_step(k.thread().x, 64 * 64, k.threads(), |i| {
                tile.at(i / 64, i % 64).store(from.at(i).load());
            });
            k.sync();
            let a = [tile.a_rows(16), tile.a_columns(k.warp() * 16)];
            let b = [tile.b_rows(k.warp() * 16), tile.b_columns(32)];
            let sums = WarpTile::zero(k, 2, 2);
            for step in 0..4 {
                for (a, b) in a.iter().zip(&b) {
                    let left = [a.fragment(0, step), a.fragment(1, step)];
                    sums.mma(&left, &b.fragments(0, step));
                }
            }
            let first = block(&sums, 0, 0).get();
            let next = FragmentA::<T>::from_accumulators(first, block(&sums, 0, 1).get());
            let plain = FragmentA::load(tile.ptr(), 64);
            let global = FragmentB::load(from, 64);
            block(&sums, 1, 0).mma(&next, &global);
            block(&sums, 1, 1).mma(&plain, &FragmentB::load(tile.at(8, 0), 72));
            sums.each_pair(|row, col, pair| out.at(row * 64 + col).store_vec(pair));
        }
    }
    assembles(ALL, |arch| {
        KernelSpec::<Args>::new("f16_fragments")
            .block(64)
            .build(arch, |k, args| {
                all::<f16>(k, args.x, args.out);
            })
    });
    assembles(ALL, |arch| {
        KernelSpec::<Args>::new("bf16_fragments")
            .block(64)
            .build(arch, |k, args| {
                all::<bf16>(k, args.y, args.out);
            })
    });
    assembles(ALL, |arch| {
        KernelSpec::<Args>::new("tf32_fragments")
            .block(32)
            .build(arch, |k, args| {
                let tile = k.tile(TileSpec::<Tf32>::new("tile", 32, 32, TileLayout::Padded(4)));
                k.for_step(k.thread().x, 32 * 32, k.threads(), |i| {
                    tile.at(i / 32, i % 32).store(args.z.at(i).load().to_tf32());
                });
                k.sync();
                let (a, b) = (tile.a_rows(0), tile.b_rows(16));
                let sums = WarpTile::zero(k, 1, 2);
                for step in 0..4 {
                    sums.mma(&[a.fragment(0, step)], &b.fragments(0, step));
                }
                let left = FragmentA::load(args.z.cast::<Tf32>(), args.n);
                block(&sums, 0, 0).mma(&left, &FragmentB::load(tile.ptr(), 36));
                sums.each_pair(|row, col, pair| args.out.at(row * 16 + col).store_vec(pair));
            })
    });
}

#[test]
fn whole_fragments() {
    fn all<'k, H: WmmaInput>(k: &Kernel<'k>, x: Ptr<'k, Global, H>, out: Ptr<'k, Global, f32>) {
        let tile = k.shared::<H>("tile", 256);
        k.for_step(k.thread().x, 256, k.threads(), |i| {
            tile.at(i).store(x.at(i).load())
        });
        k.sync();
        let sums = WmmaSums::zero(k);
        let a = WmmaA::load(tile.ptr(), MatrixOrder::Rows, 16);
        let b = WmmaB::load(x, MatrixOrder::Columns, 16);
        sums.mma(&a, &b);
        sums.map(|v| v * 2.0);
        sums.store(out, MatrixOrder::Rows, 16);
    }
    assembles(ALL, |arch| {
        KernelSpec::<Args>::new("wmma_f16")
            .block(32)
            .build(arch, |k, args| all(k, args.x, args.out))
    });
    assembles(ALL, |arch| {
        KernelSpec::<Args>::new("wmma_bf16")
            .block(32)
            .build(arch, |k, args| all(k, args.y, args.out))
    });
}

#[test]
fn stores_of_matrices() {
    assembles(HOPPER, |arch| {
        KernelSpec::<Args>::new("stmatrix")
            .block(32)
            .build(arch, |k, args| {
                let tile = k.shared::<f16>("tile", 512);
                let pair = args.x.cast::<F16x2>().at(k.thread().x).load();
                tile.at(k.thread().x * 8).store_matrices([pair; 4]);
                k.sync();
                let [a, b] = tile.at(k.thread().x * 8).load_matrices::<2>();
                let [c] = tile.at(k.thread().x * 8).load_matrices_transposed::<1>();
                args.x.cast::<F16x2>().at(k.thread().x).store(a + b + c);
            })
    });
}

kernel_params! {
    struct Bulk { x: Global<f32>, out: Global<f32>, map: TensorMap<f32, 2>, cube: TensorMap<f32, 3>, n: u32 }
}

#[test]
fn bulk_copies_count_their_bytes() {
    let build = |arch| {
        KernelSpec::<Bulk>::new("bulk")
            .cluster([2, 1, 1])
            .build(arch, |k, args| {
                let pipeline = k.bulk_pipeline::<3, _>(
                    (
                        ArraySpec::<f32>::new("line", 256),
                        ArraySpec::<f32>::new("block", 64 * 8),
                    ),
                    k.warps(),
                );
                let producer = pipeline.producer();
                let consumer = pipeline.consumer();
                k.one_thread(|| args.map.prefetch());
                k.for_range(0, args.n, |i| {
                    k.one_thread(|| {
                        producer.fill(|copies, (line, block)| {
                            copies.copy(line.part(0, 128), args.x.at(i * 256));
                            copies.copy(line.part(128, 128), args.x.at(i * 256 + 128));
                            copies.copy_tensor(block, args.map, [i.cast(), k.c(0)]);
                        });
                    });
                    consumer.consume(|(line, block)| {
                        let t = k.thread().x;
                        args.out.at(t).store(line.at(t).load() + block.at(t).load());
                    });
                });
                let cube = k.shared_aligned::<f32>("cube", 64, 128);
                cube.at(k.thread().x & 63).store(1.0);
                k.fence_async_shared();
                k.sync();
                k.one_thread(|| {
                    args.cube.store(cube, [k.c(0), k.c(1), k.c(2)]).wait_read();
                    k.store_bulk(args.out.at(1024), cube).wait_written();
                });
                k.cluster_sync();
            })
    };
    assembles(HOPPER, build);
    let kernel = build(Arch::SM_90).expect("just built");
    let text = heist_ptx::print(&kernel.module);
    assert!(text.contains(", 3072;"), "512 + 512 + 2048 bytes:\n{text}");
    assert_eq!(kernel.launch.tensor_boxes, [(2, 2048), (3, 256)]);
}

#[test]
fn a_conditional_copy_is_refused() {
    let error = KernelSpec::<Bulk>::new("k")
        .build(Arch::SM_90, |k, args| {
            let pipeline = k.bulk_pipeline::<2, _>(ArraySpec::<f32>::new("line", 256), 1);
            pipeline.producer().fill(|copies, line| {
                k.if_(args.n.gt(3), || copies.copy(line, args.x));
            });
        })
        .expect_err("the sum would be wrong");
    assert!(
        error.to_string().contains("put the branch around `fill`"),
        "{error}"
    );
}

#[test]
fn tiles_that_do_not_divide_are_told_with_their_numbers() {
    let build = |rows, cols, layout| {
        KernelSpec::<Args>::new("k")
            .block(96)
            .build(Arch::SM_80, |k, args| {
                k.copy_pipeline::<2, _>(TileSpec::<f16>::new("a", rows, cols, layout))
                    .run(args.n, |_, a| a.copy_all(args.x, 64), |_, _| ());
            })
    };
    let error = build(16, 64, TileLayout::Swizzled).expect_err("128 chunks, 96 threads");
    assert_eq!(
        error.problem,
        Problem::DoesNotDivide {
            what: "the number of 16-byte chunks of a tile".into(),
            size: 128,
            by: 96
        }
    );
    let error = build(96, 60, TileLayout::Padded(0)).expect_err("120 bytes");
    assert_eq!(
        error.problem,
        Problem::DoesNotDivide {
            what: "a row of the tile a in bytes".into(),
            size: 120,
            by: 16
        }
    );
    let error = build(96, 48, TileLayout::Swizzled).expect_err("96 bytes");
    assert!(
        error.to_string().contains("a power of two of at least 32"),
        "{error}"
    );
}

/// Stages lie over memory that is used for something else too, if it holds them all.
#[test]
fn stages_over_memory_that_is_too_small() {
    let build = |stages| {
        KernelSpec::<Args>::new("k")
            .block(64)
            .build(Arch::SM_80, |k, args| {
                let spec = TileSpec::<f16>::new("a", 16, 64, TileLayout::Swizzled);
                let memory = k.shared_aligned::<u8>("both", 3 * 16 * 64 * 2, 1024);
                k.copy_pipeline_over(stages, spec, memory.cast()).run(
                    args.n,
                    |_, a| a.copy_all(args.x, 64),
                    |_, _| (),
                );
                memory.cast::<f32>().at(k.thread().x).store(1.0);
            })
    };
    let ptx = heist_ptx::print(&build(3).expect("three fit").module);
    let declared = ptx
        .lines()
        .filter(|line| line.trim_start().starts_with(".shared"));
    assert_eq!(declared.count(), 1, "{ptx}");
    let error = build(4).expect_err("a fourth does not");
    assert_eq!(
        error.problem,
        Problem::OutOfRange {
            what: "the elements of all stages of a".into(),
            value: 4 * 16 * 64,
            low: 0,
            high: 3 * 16 * 64
        }
    );
}

#[test]
fn raw_ptx_is_named_and_counted() {
    let kernel = KernelSpec::<Args>::new("raw")
        .build(Arch::SM_80, |k, args| {
            let bits = k.var(0u32);
            #[allow(unsafe_code)]
            // SAFETY: brev is plain arithmetic on two 32-bit registers.
            unsafe {
                k.raw("reverse bits", "brev.b32", [bits.into(), args.n.into()]);
            }
            args.out.cast::<u32>().store(bits);
        })
        .expect("fine");
    assert_eq!(kernel.contents.raw.len(), 1);
    assert_eq!(kernel.contents.raw[0].name, "reverse bits");
    assert!(kernel.contents.raw[0].at.contains("tests/tensor.rs:"));
    assert!(kernel.contents.to_string().contains("1 uses of raw PTX"));
    assembles(&[Arch::SM_80], |_| Ok(kernel.clone()));
}
