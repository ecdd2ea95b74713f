//! Tensor memory: how much is allocated, and what does not build.

use heist_builder::*;

kernel_params! { struct Args { out: Global<f32>, n: u32 } }

fn build(body: impl for<'k> Fn(&Kernel<'k>, Args<On<'k>>)) -> Result<String, BuildError> {
    KernelSpec::<Args>::new("k")
        .block(192)
        .build(Arch::SM_100A, |k, args| body(k, args))
        .map(|kernel| heist_ptx::print(&kernel.module))
}

fn refused(why: &str, body: impl for<'k> Fn(&Kernel<'k>, Args<On<'k>>)) {
    let error = build(body).expect_err(why).to_string();
    assert!(error.contains(why), "{error}");
}

#[test]
fn as_much_is_allocated_as_accumulators_take() {
    // Left operands take half a column for each element.
    let text = build(|k, _| {
        k.tensor_memory(|memory| {
            memory.accumulators(1, 128, 4);
            memory.left_operands::<f16>(2, 128, 4);
        });
    });
    assert!(text.expect("builds").contains("b32 [tensor_memory], 256;"));
    for (count, columns, allocated) in [(1, 16, 32), (2, 96, 256), (1, 256, 256), (2, 256, 512)] {
        let text = build(|k, _| {
            k.tensor_memory(|memory| {
                memory.accumulators(count, columns, 4);
            });
        })
        .expect("builds");
        for (opcode, many) in [("tcgen05.alloc", 1), ("tcgen05.dealloc", 1)] {
            let lines: Vec<_> = text.lines().filter(|line| line.contains(opcode)).collect();
            assert_eq!(lines.len(), many, "{text}");
            assert!(
                lines[0].ends_with(&format!(", {allocated};")),
                "{}",
                lines[0]
            );
        }
    }
}

#[test]
fn it_is_taken_once_and_outside_of_branches() {
    refused("taken twice", |k, _| {
        for _ in 0..2 {
            k.tensor_memory(|memory| {
                memory.accumulators(1, 32, 4);
            });
        }
    });
    refused("inside of a branch or loop", |k, args| {
        k.if_(args.n.gt(3), || {
            k.tensor_memory(|memory| {
                memory.accumulators(1, 32, 4);
            });
        });
    });
}

#[test]
fn nobody_leaves_before_it_is_freed() {
    refused("would not be freed", |k, args| {
        k.tensor_memory(|memory| {
            memory.accumulators(1, 32, 4);
            k.if_(args.n.eq(0), || k.exit());
        });
    });
}

#[test]
fn shapes_are_told_with_their_numbers() {
    refused("528", |k, _| {
        k.tensor_memory(|memory| {
            memory.accumulators(2, 256, 4);
            memory.accumulators(1, 16, 4);
        });
    });
    refused("the columns of an accumulator", |k, _| {
        k.tensor_memory(|memory| {
            memory.accumulators(1, 24, 4);
        });
    });
    refused("the columns of tensor memory", |k, _| {
        k.tensor_memory(|_| {})
    });
    refused("the warps that read an accumulator", |k, _| {
        k.tensor_memory(|memory| {
            memory.accumulators(1, 32, 3);
        });
    });
    refused("the end of a load from an accumulator", |k, args| {
        k.tensor_memory(|memory| {
            memory.accumulators(1, 48, 4).reader().read(|sums| {
                let row = sums.load::<32>(32).wait();
                args.out.at(sums.row()).store(row[0]);
            });
        });
    });
    refused("the number of the multiplying warp", |k, _| {
        k.multiplying_thread(6, |_| {});
    });
}

#[test]
fn left_operands_are_told_with_their_numbers() {
    refused("the depth of a left operand", |k, _| {
        k.tensor_memory(|memory| {
            memory.left_operands::<f16>(1, 24, 4);
        });
    });
    refused("the warps that store a left operand", |k, _| {
        k.tensor_memory(|memory| {
            memory.left_operands::<f16>(1, 32, 8);
        });
    });
    refused("the end of a store to tensor memory", |k, args| {
        k.tensor_memory(|memory| {
            let writer = memory.left_operands::<f16>(1, 32, 4).writer();
            writer.write(|rows| rows.store(8, [args.n; 16]));
        });
    });
    refused("while a load of them is in flight", |k, _| {
        k.tensor_memory(|memory| {
            let sums = memory.accumulators(1, 32, 4).reader();
            let writer = memory.left_operands::<f16>(1, 32, 4).writer();
            writer.when_multiplied(|done| {
                sums.change(done, |sums| {
                    let _ = sums.load::<32>(0);
                });
            });
        });
    });
}

#[test]
fn a_load_in_flight_holds_its_accumulator() {
    refused("while a load of them is in flight", |k, _| {
        k.tensor_memory(|memory| {
            memory.accumulators(1, 32, 4).reader().read(|sums| {
                let _ = sums.load::<32>(0);
            });
        });
    });
}

#[test]
fn a_ring_that_is_multiplied_has_one_consumer() {
    refused("a commit is one arrival", |k, _| {
        let tile = TileSpec::<f16>::new("a", 128, 64, TileLayout::Swizzled);
        let ring = k.bulk_pipeline::<2, _>(tile, 4);
        k.tensor_memory(|memory| {
            let writer = memory.accumulators(1, 128, 4).writer();
            k.multiplying_thread(1, |thread| {
                writer.product(thread, |product| {
                    ring.consumer().multiply(product, |a| {
                        product.mma(a.tensor_operand::<f16>(0), a.tensor_operand(0));
                    });
                });
            });
        });
    });
}

#[test]
fn only_blackwell_with_its_own_features_has_it() {
    for arch in [Arch::SM_90A, Arch::SM_100, Arch::SM_120] {
        let error = KernelSpec::<Args>::new("k")
            .block(192)
            .build(arch, |k, _| {
                k.tensor_memory(|memory| {
                    memory.accumulators(1, 32, 4);
                });
            })
            .expect_err("no tensor memory");
        assert!(error.to_string().contains("tcgen05"), "{error}");
    }
}

#[test]
fn a_pair_is_two_neighbours_of_a_cluster() {
    refused("two neighbours of a cluster", |k, _| {
        k.tensor_memory_of::<PairOfBlocks, _>(|memory| {
            memory.accumulators(1, 32, 4);
        });
    });
    refused("two neighbours of a cluster", |k, _| {
        let tile = TileSpec::<f16>::new("a", 128, 64, TileLayout::Swizzled);
        k.tensor_ring::<PairOfBlocks, _>(2, tile);
    });
}

#[test]
fn stages_of_a_pair_are_filled_by_tensor_copies() {
    kernel_params! { struct Copied { from: Global<f16>, map: TensorMap<f16, 2> } }
    let build = |neighbours: bool| {
        let spec = KernelSpec::<Copied>::new("k").block(192);
        spec.cluster([2, 1, 1]).build(Arch::SM_100A, |k, args| {
            let tile = TileSpec::<f16>::new("a", 128, 64, TileLayout::Swizzled);
            let ring = k.tensor_ring::<PairOfBlocks, _>(2, tile);
            let producer = ring.producer();
            k.one_thread(|| {
                producer.fill(|copies, to| match neighbours {
                    true => copies.copy(to, args.from),
                    false => copies.copy_tensor(to, args.map, [k.c(0), k.c(0)]),
                });
            });
        })
    };
    let error = build(true).map(|_| ()).expect_err("neighbours").to_string();
    assert!(error.contains("can't be counted by the leader"), "{error}");
    let text = heist_ptx::print(&build(false).expect("builds").module);
    // The leader expects both blocks' bytes.
    assert!(text.contains(&format!(", {};", 2 * 128 * 128)), "{text}");
    assert!(text.contains("complete_tx::bytes.cta_group::2 ["), "{text}");
}

#[test]
fn scales_are_told_with_their_numbers() {
    let scaled = |columns: u32, words: u32, step: u32| {
        build(move |k, _| {
            let tile = |name| TileSpec::<u8>::new(name, 128, 128, TileLayout::Swizzled);
            let array = |name, len| ArraySpec::<u32>::new(name, len);
            let stage = (
                tile("a"),
                tile("b"),
                array("rows", 128),
                array("cols", words),
            );
            let ring = k.tensor_ring::<OneBlock, _>(3, stage);
            k.tensor_memory(|memory| {
                let writer = memory.accumulators(1, 128, 4).writer();
                let consumer = ring.scaled_consumer(memory, columns);
                k.multiplying_thread(1, |thread| {
                    writer.product(thread, |product| {
                        consumer.multiply(product, |(a, b, rows, cols), to| {
                            let (a, b) = (a.tensor_operand::<E4m3>(0), b.tensor_operand(0));
                            let scales = to.load(rows, cols, 0);
                            product.mma_scaled(a, b, &scales, step);
                        });
                    });
                });
            });
        })
    };
    let text = scaled(128, 128, 3).expect("builds");
    // An accumulator of 128 columns, and eight for each of three stages.
    assert!(text.contains("], 256;"), "{text}");
    let copies = text
        .matches("tcgen05.cp.cta_group::1.32x128b.warpx4")
        .count();
    assert_eq!(copies, 2, "{text}");
    for (result, why) in [
        (scaled(96, 128, 0), "columns with scales"),
        (scaled(384, 384, 0), "columns with scales"),
        (scaled(256, 128, 0), "in 128 words"),
        (scaled(128, 128, 4), "step of a stage"),
    ] {
        let error = result.expect_err(why).to_string();
        assert!(error.contains(why), "{error}");
    }
}
