//! Fragments, whole matrices and their layouts, run on the simulated GPU and
//! computed on the host.

#[path = "common/sim.rs"]
mod sim;

use heist_builder::*;
use heist_launch::Arg;
use heist_launch::element::Element;
use sim::{output, random, run};

kernel_params! { struct Halves { a: Global<f16>, b: Global<f16>, out: Global<f32> } }
kernel_params! { struct Brains { a: Global<bf16>, b: Global<bf16>, out: Global<f32> } }
kernel_params! { struct Singles { a: Global<f32>, b: Global<f32>, out: Global<f32> } }

/// A 32 x 32 by 32 x 32 product by one warp; `a_by_rows` and `b_by_rows` say
/// whether the stored rows run along the depth.
fn multiply<'k, T: MmaInput + Half>(
    k: &Kernel<'k>,
    from: [Ptr<'k, Global, T>; 2],
    out: Ptr<'k, Global, f32>,
    layout: TileLayout,
    by_rows: [bool; 2],
) {
    let [a, b] = ["a", "b"].map(|name| k.tile(TileSpec::<T>::new(name, 32, 32, layout)));
    k.for_step(k.thread().x, 32 * 32, 32, |i| {
        a.at(i / 32, i % 32).store(from[0].at(i).load());
        b.at(i / 32, i % 32).store(from[1].at(i).load());
    });
    k.sync();
    let a = if by_rows[0] {
        a.a_rows(0)
    } else {
        a.a_columns(0)
    };
    let b = if by_rows[1] {
        b.b_rows(0)
    } else {
        b.b_columns(0)
    };
    let sums = WarpTile::zero(k, 2, 4);
    for step in 0..2 {
        let left = [a.fragment(0, step), a.fragment(1, step)];
        let right = [b.fragments(0, step), b.fragments(1, step)].concat();
        sums.mma(&left, &right);
    }
    sums.each_pair(|row, col, pair| out.at(row * 32 + col).store_vec(pair));
}

/// The product of what was stored, in f64.
fn expected(a: &[f64], b: &[f64], by_rows: [bool; 2]) -> Vec<f64> {
    let a_at = |m: usize, d: usize| {
        if by_rows[0] {
            a[m * 32 + d]
        } else {
            a[d * 32 + m]
        }
    };
    let b_at = |d: usize, n: usize| {
        if by_rows[1] {
            b[n * 32 + d]
        } else {
            b[d * 32 + n]
        }
    };
    (0..32 * 32)
        .map(|i| (0..32).map(|d| a_at(i / 32, d) * b_at(d, i % 32)).sum())
        .collect()
}

fn close(found: &[f32], exact: &[f64], tolerance: f64) {
    for (index, (f, e)) in found.iter().zip(exact).enumerate() {
        assert!(
            (f64::from(*f) - e).abs() < tolerance,
            "element {index}: {f}, exactly {e}"
        );
    }
}

const ORDERS: [[bool; 2]; 4] = [[true, true], [true, false], [false, true], [false, false]];

fn input<T: Element>(values: &[T]) -> Arg {
    Arg::input(values)
}

#[test]
fn fragments_of_f16_from_every_layout() {
    let [a, b] = [1, 2].map(|seed| {
        random(seed, 1024)
            .into_iter()
            .map(f16::from_f32)
            .collect::<Vec<_>>()
    });
    let wide = |v: &[f16]| v.iter().map(|v| v.to_f64()).collect::<Vec<_>>();
    for layout in [TileLayout::Padded(8), TileLayout::Swizzled] {
        for by_rows in ORDERS {
            let kernel = KernelSpec::<Halves>::new("f16_product")
                .block(32)
                .build(Arch::SM_80, |k, args| {
                    multiply(k, [args.a, args.b], args.out, layout, by_rows)
                })
                .expect("builds");
            let args = Halves {
                a: input(&a),
                b: input(&b),
                out: Arg::output::<f32>(1024),
            };
            let outcome = run(&kernel, "sim:a100", [1, 1, 1], args).expect("sm_80 runs on all");
            close(
                &output(&outcome, 2),
                &expected(&wide(&a), &wide(&b), by_rows),
                1e-4,
            );
        }
    }
}

#[test]
fn fragments_of_bf16_from_every_layout() {
    let [a, b] = [3, 4].map(|seed| {
        random(seed, 1024)
            .into_iter()
            .map(bf16::from_f32)
            .collect::<Vec<_>>()
    });
    let wide = |v: &[bf16]| v.iter().map(|v| v.to_f64()).collect::<Vec<_>>();
    for by_rows in ORDERS {
        let kernel = KernelSpec::<Brains>::new("bf16_product")
            .block(32)
            .build(Arch::SM_80, |k, args| {
                multiply(k, [args.a, args.b], args.out, TileLayout::Swizzled, by_rows);
            })
            .expect("builds");
        let args = Brains {
            a: input(&a),
            b: input(&b),
            out: Arg::output::<f32>(1024),
        };
        let outcome = run(&kernel, "sim:a100", [1, 1, 1], args).expect("sm_80 runs on all");
        close(
            &output(&outcome, 2),
            &expected(&wide(&a), &wide(&b), by_rows),
            1e-4,
        );
    }
}

#[test]
fn fragments_of_tf32() {
    let [a, b] = [5, 6].map(|seed| random(seed, 1024));
    let kernel = KernelSpec::<Singles>::new("tf32_product")
        .block(32)
        .build(Arch::SM_80, |k, args| {
            let spec = |name| TileSpec::<Tf32>::new(name, 32, 32, TileLayout::Padded(4));
            let [a, b] = ["a", "b"].map(|name| k.tile(spec(name)));
            k.for_step(k.thread().x, 32 * 32, 32, |i| {
                a.at(i / 32, i % 32).store(args.a.at(i).load().to_tf32());
                b.at(i / 32, i % 32).store(args.b.at(i).load().to_tf32());
            });
            k.sync();
            let (a, b) = (a.a_rows(0), b.b_rows(0));
            let sums = WarpTile::zero(k, 2, 4);
            for step in 0..4 {
                let left = [a.fragment(0, step), a.fragment(1, step)];
                let right = [b.fragments(0, step), b.fragments(1, step)].concat();
                sums.mma(&left, &right);
            }
            sums.each_pair(|row, col, pair| args.out.at(row * 32 + col).store_vec(pair));
        })
        .expect("builds");
    let args = Singles {
        a: input(&a),
        b: input(&b),
        out: Arg::output::<f32>(1024),
    };
    let outcome = run(&kernel, "sim:a100", [1, 1, 1], args).expect("sm_80 runs on all");
    let wide = |v: &[f32]| v.iter().map(|&v| f64::from(v)).collect::<Vec<_>>();
    // The inputs lose 13 bits.
    close(
        &output(&outcome, 2),
        &expected(&wide(&a), &wide(&b), [true, true]),
        1e-2,
    );
}

/// Fragments by plain loads, from shared and from global memory, and sums as
/// the next left matrix.
#[test]
fn fragments_by_plain_loads_and_from_sums() {
    let [a, b] = [7, 8].map(|seed| {
        random(seed, 256)
            .into_iter()
            .map(f16::from_f32)
            .collect::<Vec<_>>()
    });
    let kernel = KernelSpec::<Halves>::new("chain")
        .block(32)
        .build(Arch::SM_80, |k, args| {
            let tile = k.shared::<f16>("tile", 256);
            k.for_step(k.thread().x, 256, 32, |i| {
                tile.at(i).store(args.a.at(i).load())
            });
            k.sync();
            let left = FragmentA::load(tile.ptr(), 16);
            let right = [
                FragmentB::load(args.b, 16),
                FragmentB::load(args.b.at(8 * 16), 16),
            ];
            let first = WarpTile::zero(k, 1, 2);
            first.mma(&[left], &right);
            // (A B) B: the sums, rounded, are the next left matrix.
            let blocks: Vec<_> = (0..2).filter_map(|n| first.block(0, n)).collect();
            let next = FragmentA::<f16>::from_accumulators(blocks[0].get(), blocks[1].get());
            let second = WarpTile::zero(k, 1, 2);
            second.mma(&[next], &right);
            second.each_pair(|row, col, pair| args.out.at(row * 16 + col).store_vec(pair));
        })
        .expect("builds");
    let args = Halves {
        a: input(&a),
        b: input(&b),
        out: Arg::output::<f32>(256),
    };
    let outcome = run(&kernel, "sim:a100", [1, 1, 1], args).expect("sm_80 runs on all");
    let product = |left: &dyn Fn(usize, usize) -> f64| -> Vec<f64> {
        (0..256)
            .map(|i| {
                (0..16)
                    .map(|d| left(i / 16, d) * b[i % 16 * 16 + d].to_f64())
                    .sum()
            })
            .collect()
    };
    let first = product(&|m, d| a[m * 16 + d].to_f64());
    let second = product(&|m, d| f16::from_f64(first[m * 16 + d]).to_f64());
    close(&output(&outcome, 2), &second, 1e-2);
}

#[test]
fn whole_fragments_multiply() {
    let [a, b] = [9, 10].map(|seed| {
        random(seed, 256)
            .into_iter()
            .map(f16::from_f32)
            .collect::<Vec<_>>()
    });
    let kernel = KernelSpec::<Halves>::new("wmma")
        .block(32)
        .build(Arch::SM_80, |k, args| {
            let tile = k.shared::<f16>("tile", 256);
            k.for_step(k.thread().x, 256, 32, |i| {
                tile.at(i).store(args.a.at(i).load())
            });
            k.sync();
            let sums = WmmaSums::zero(k);
            let left = WmmaA::load(tile.ptr(), MatrixOrder::Rows, 16);
            sums.mma(&left, &WmmaB::load(args.b, MatrixOrder::Columns, 16));
            sums.map(|v| v * 2.0);
            sums.store(args.out, MatrixOrder::Rows, 16);
        })
        .expect("builds");
    let args = Halves {
        a: input(&a),
        b: input(&b),
        out: Arg::output::<f32>(256),
    };
    let outcome = run(&kernel, "sim:a100", [1, 1, 1], args).expect("sm_80 runs on all");
    let exact: Vec<f64> = (0..256)
        .map(|i| {
            let (m, n) = (i / 16, i % 16);
            (0..16)
                .map(|d| 2.0 * a[m * 16 + d].to_f64() * b[n * 16 + d].to_f64())
                .sum()
        })
        .collect();
    close(&output(&outcome, 2), &exact, 1e-3);
}

/// Rows of 64 halves, brought to shared memory by a warpgroup.
fn rows<'k>(k: &Kernel<'k>, rows: u32, from: Ptr<'k, Global, f16>) -> SharedTile<'k, f16> {
    let tile = k.tile(TileSpec::<f16>::new("rows", rows, 64, TileLayout::Swizzled));
    k.for_step(k.thread().x, rows * 64, 128, |i| {
        tile.at(i / 64, i % 64).store(from.at(i).load());
    });
    tile
}

/// 64 x 96 by a warpgroup, whose columns are multiplied by two instructions, the last 32 of them twice.
fn in_two_parts() -> Result<BuiltKernel<Halves>, BuildError> {
    KernelSpec::<Halves>::new("in_two_parts")
        .block(128)
        .build(Arch::SM_90A, |k, args| {
            let (a, b) = (rows(k, 64, args.a), rows(k, 96, args.b));
            k.fence_async_shared();
            k.sync();
            let sums = WgmmaSums::zero(k, 96);
            sums.accumulate(|batch| {
                for columns in [0..64, 64..96, 64..96] {
                    let (left, right) = (a.wgmma_operand(0), b.wgmma_operand(columns.start));
                    for step in 0..4 {
                        let batch = batch.of_columns(columns.clone());
                        batch.mma(left.step(step), right.step(step));
                    }
                }
            });
            let sums = sums.finish();
            sums.each_pair(|row, col, pair| args.out.at(row * 96 + col).store_vec(pair));
        })
}

#[test]
fn columns_are_multiplied_in_parts() {
    let kernel = in_two_parts().expect("builds");
    let text = heist_ptx::print(&kernel.module);
    for (columns, times) in [("n64k16", 4), ("n32k16", 8), ("n96k16", 0)] {
        assert_eq!(text.matches(columns).count(), times, "{columns}");
    }
    let [a, b] = [(1, 64), (2, 96)].map(|(seed, rows)| {
        let values = random(seed, rows * 64);
        values.into_iter().map(f16::from_f32).collect::<Vec<_>>()
    });
    let args = Halves {
        a: input(&a),
        b: input(&b),
        out: Arg::output::<f32>(64 * 96),
    };
    let Some(outcome) = run(&kernel, "sim:h200", [1, 1, 1], args) else {
        return;
    };
    let exact = (0..64 * 96).map(|at| {
        let (row, col) = (at / 96, at % 96);
        let product = |d: usize| a[row * 64 + d].to_f64() * b[col * 64 + d].to_f64();
        let times = if col < 64 { 1.0 } else { 2.0 };
        times * (0..64).map(product).sum::<f64>()
    });
    close(&output(&outcome, 2), &exact.collect::<Vec<_>>(), 1e-5);
}

#[test]
fn columns_that_are_not_there_are_refused() {
    let build = |columns: std::ops::Range<u32>| {
        let built = KernelSpec::<Halves>::new("k")
            .block(128)
            .build(Arch::SM_90A, |k, _| {
                WgmmaSums::zero(k, 96).accumulate(|batch| {
                    batch.of_columns(columns.clone());
                });
            });
        built.expect_err("some columns are not there").problem
    };
    for (columns, what, size) in [
        (4..64, "the first of the columns", 4),
        (0..60, "the end of the columns", 60),
    ] {
        let what = what.into();
        assert_eq!(build(columns), Problem::DoesNotDivide { what, size, by: 8 });
    }
    #[expect(clippy::reversed_empty_ranges, reason = "it is refused")]
    let empty = [(64..104, 72, 104), (64..64, 72, 64), (64..8, 72, 8)];
    for (columns, low, value) in empty {
        let what = "the end of some columns of wgmma".into();
        let problem = Problem::OutOfRange {
            what,
            value,
            low,
            high: 96,
        };
        assert_eq!(build(columns), problem);
    }
}
