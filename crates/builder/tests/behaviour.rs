//! What the builder's words mean, shown by running them on the simulated GPU
//! and computing the same on the host.

#[path = "common/sim.rs"]
mod sim;

use heist_builder::*;
use heist_launch::Arg;
use sim::{output, run};

kernel_params! { struct Words { x: Global<u32>, out: Global<u32>, n: u32 } }
kernel_params! { struct Floats { x: Global<f32>, out: Global<f32>, n: u32 } }

/// Runs one warp per 32 inputs; thread `i` sees `x[i]` and writes `results` words.
fn words(
    x: &[u32],
    results: usize,
    body: impl for<'k> Fn(&Kernel<'k>, Val<'k, u32>) -> Vec<Val<'k, u32>>,
) -> Vec<Vec<u32>> {
    let threads = x.len() as u32;
    let kernel = KernelSpec::<Words>::new("words")
        .block(threads)
        .build(Arch::SM_80, |k, args| {
            let t = k.thread().x;
            let all = body(k, args.x.at(t).load());
            assert_eq!(all.len(), results);
            for (index, value) in all.into_iter().enumerate() {
                args.out.at(t + index as u32 * threads).store(value);
            }
        })
        .expect("builds");
    let args = Words {
        x: Arg::input(x),
        out: Arg::output::<u32>(x.len() * results),
        n: threads,
    };
    let outcome = run(&kernel, "sim:a100", [1, 1, 1], args).expect("sm_80 runs on all");
    output::<u32>(&outcome, 1)
        .chunks(x.len())
        .map(<[u32]>::to_vec)
        .collect()
}

/// Numbers at the edges of what 32 bits hold, and some in between.
fn interesting() -> Vec<u32> {
    let mut all = vec![
        0,
        1,
        2,
        3,
        7,
        31,
        32,
        33,
        100,
        255,
        256,
        65535,
        65536,
        0x7FFF_FFFF,
        0x8000_0000,
        0x8000_0001,
        u32::MAX - 1,
        u32::MAX,
    ];
    while all.len() < 32 {
        all.push(all.len() as u32 * 0x0765_4321);
    }
    all
}

#[test]
fn whole_numbers_behave_like_rusts() {
    let x = interesting();
    let found = words(&x, 16, |k, v| {
        let s = v.cast::<i32>();
        vec![
            v + 7,
            v - 7,
            7 - v,
            v * 13,
            v / 7,
            v / 8,
            v % 7,
            v % 8,
            !v,
            v << 3,
            v >> 3,
            (s >> 3).cast(),
            (s / 7).cast(),
            (s % 7).cast(),
            (-s).cast(),
            v.mul_add(3, k.thread().x),
        ]
    });
    for (i, &v) in x.iter().enumerate() {
        let s = v as i32;
        let expected = [
            v.wrapping_add(7),
            v.wrapping_sub(7),
            7u32.wrapping_sub(v),
            v.wrapping_mul(13),
            v / 7,
            v / 8,
            v % 7,
            v % 8,
            !v,
            v << 3,
            v >> 3,
            (s >> 3) as u32,
            (s / 7) as u32,
            (s % 7) as u32,
            s.wrapping_neg() as u32,
            v.wrapping_mul(3).wrapping_add(i as u32),
        ];
        let got: Vec<u32> = found.iter().map(|row| row[i]).collect();
        assert_eq!(got, expected, "{v:#x}");
    }
}

#[test]
fn comparisons_know_signs() {
    let x = interesting();
    let found = words(&x, 8, |_, v| {
        let s = v.cast::<i32>();
        vec![
            v.lt(100).to_u32(),
            v.ge(100).to_u32(),
            v.eq(256).to_u32(),
            v.ne(256).to_u32(),
            s.lt(100).to_u32(),
            s.gt(-2).to_u32(),
            v.min(1000),
            s.max(-5).cast(),
        ]
    });
    for (i, &v) in x.iter().enumerate() {
        let s = v as i32;
        let expected = [
            (v < 100) as u32,
            (v >= 100) as u32,
            (v == 256) as u32,
            (v != 256) as u32,
            (s < 100) as u32,
            (s > -2) as u32,
            v.min(1000),
            s.max(-5) as u32,
        ];
        let got: Vec<u32> = found.iter().map(|row| row[i]).collect();
        assert_eq!(got, expected, "{v:#x}");
    }
}

#[test]
fn casts_are_rusts_as() {
    let x: Vec<u32> = [
        0.0f32,
        -0.0,
        1.5,
        -1.5,
        2.5,
        255.9,
        256.0,
        -300.0,
        1e10,
        -1e10,
        f32::MAX,
        f32::MIN,
        0.1,
        65504.0,
        70000.0,
        1e-8,
    ]
    .iter()
    .cycle()
    .take(32)
    .map(|v| v.to_bits())
    .collect();
    let found = words(&x, 8, |_, bits| {
        let v = bits.bitcast::<f32>();
        vec![
            v.cast::<u32>(),
            v.cast::<i32>().cast(),
            v.cast::<u16>().cast(),
            v.cast::<i8>().cast::<i32>().cast(),
            v.cast::<f16>().cast::<f32>().bitcast(),
            v.cast::<bf16>().cast::<f32>().bitcast(),
            v.cast::<f64>().cast::<f32>().bitcast(),
            v.cast::<i64>().cast::<u32>(),
        ]
    });
    for (i, &bits) in x.iter().enumerate() {
        let v = f32::from_bits(bits);
        let expected = [
            v as u32,
            v as i32 as u32,
            u32::from(v as u16),
            v as i8 as i32 as u32,
            f16::from_f32(v).to_f32().to_bits(),
            bf16::from_f32(v).to_f32().to_bits(),
            bits,
            v as i64 as u32,
        ];
        let got: Vec<u32> = found.iter().map(|row| row[i]).collect();
        assert_eq!(got, expected, "{v}");
    }
}

/// What is folded while building is what the GPU would compute.
#[test]
fn folding_changes_nothing() {
    let x = interesting();
    fn all<'k>(a: Val<'k, u32>, b: Val<'k, u32>) -> Vec<Val<'k, u32>> {
        let (s, t) = (a.cast::<i32>(), b.cast::<i32>());
        vec![
            a + b,
            a - b,
            a * b,
            a & b,
            a | b,
            a ^ b,
            a / b,
            a % b,
            (s / t).cast(),
            (s % t).cast(),
            a.min(b),
            s.max(t).cast(),
            a << (b & 31),
            a >> (b & 31),
            (s >> (b & 31)).cast(),
            a.lt(b).to_u32(),
            s.lt(t).to_u32(),
            a.eq(b).to_u32(),
            a.mul_add(b, a),
            a.cast::<i16>().cast::<i32>().cast(),
            a.cast::<u8>().cast(),
            a.cast::<u64>().cast(),
        ]
    }
    let values = [1u32, 3, 8, 77, 0x7FFF_FFFF, 0x8000_0001, u32::MAX - 2];
    for &b in &values {
        let folded = words(&x[..1], 22 * values.len(), |k, _| {
            values.iter().flat_map(|&a| all(k.c(a), k.c(b))).collect()
        });
        let computed = words(&[0], 22 * values.len(), |_, zero| {
            values
                .iter()
                .flat_map(|&a| all(zero + a, zero + b))
                .collect()
        });
        assert_eq!(folded, computed, "b = {b:#x}");
    }
}

#[test]
fn loops_run_as_often_as_rusts() {
    let x: Vec<u32> = (0..32).collect();
    let found = words(&x, 6, |k, n| {
        let sum = k.var(0u32);
        k.for_range(0, n, |i| sum.set(sum + i * i));
        let stepped = k.var(0u32);
        k.for_step(n, 40, 7, |i| stepped.set(stepped * 2 + i));
        let unrolled = k.var(0u32);
        k.for_unrolled::<4>(3, n, |i| unrolled.set(unrolled * 3 + i));
        let halved = k.var(n * 1000);
        k.while_(|| halved.get().gt(50), || halved.set(halved / 2));
        let odd = k.var(0u32);
        let i = k.var(0u32);
        k.loop_(|flow| {
            i.set(i + 1);
            flow.break_if(i.get().gt(n));
            flow.continue_if((i & 1).eq(0));
            odd.set(odd + i);
        });
        let nested = k.var(0u32);
        k.for_range(0, 3, |a| {
            k.for_range(0, n, |b| nested.set(nested + a.cast::<u32>() * b))
        });
        vec![
            sum.get(),
            stepped.get(),
            unrolled.get(),
            halved.get(),
            odd.get(),
            nested.get(),
        ]
    });
    for n in 0..32u32 {
        let fold = |values: &mut dyn Iterator<Item = u32>, times: u32| {
            values.fold(0u32, |sum, v| sum.wrapping_mul(times).wrapping_add(v))
        };
        let mut halved = n * 1000;
        while halved > 50 {
            halved /= 2;
        }
        let expected = [
            (0..n).map(|i| i * i).sum(),
            fold(&mut (n..40).step_by(7), 2),
            fold(&mut (3..n.max(3)), 3),
            halved,
            (1..=n).filter(|i| i % 2 == 1).sum(),
            (0..3).flat_map(|a| (0..n).map(move |b| a * b)).sum(),
        ];
        let got: Vec<u32> = found.iter().map(|row| row[n as usize]).collect();
        assert_eq!(got, expected, "{n}");
    }
}

#[test]
fn branches_and_variables() {
    let x: Vec<u32> = (0..32).collect();
    let found = words(&x, 5, |k, v| {
        let read = k.var(v);
        let before = read.get();
        read.set(99);
        let chosen = k.if_value(
            v.lt(10),
            || v * 2,
            || k.if_value(v.lt(20), || v * 3, || k.c(7)),
        );
        let flag = k.var(false);
        k.if_else(
            v.gt(5),
            || k.if_(v.lt(9), || flag.set(true)),
            || flag.set(v.eq(0)),
        );
        let known = k.if_value(true, || k.c(1), || k.c(2));
        let both = (v.lt(10) & v.gt(3)) | v.eq(31) | (v.lt(2) ^ v.lt(1));
        vec![
            before + read,
            chosen,
            flag.get().to_u32(),
            known,
            both.to_u32(),
        ]
    });
    for v in 0..32u32 {
        let expected = [
            v + 99,
            if v < 10 {
                v * 2
            } else if v < 20 {
                v * 3
            } else {
                7
            },
            u32::from(if v > 5 { v < 9 } else { v == 0 }),
            1,
            u32::from((v < 10 && v > 3) || v == 31 || v == 1),
        ];
        let got: Vec<u32> = found.iter().map(|row| row[v as usize]).collect();
        assert_eq!(got, expected, "{v}");
    }
}

#[test]
fn warps_exchange() {
    let x: Vec<u32> = (0..64).map(|i| i * i % 53).collect();
    let found = words(&x, 9, |k, v| {
        vec![
            v.sum(Group::Warp),
            v.sum(Group::Four),
            v.group_max(Group::Eight),
            v.group_min(Group::Warp),
            v.shuffle_from(5),
            v.shuffle_xor(3),
            v.lt(20).ballot(),
            v.block_sum(),
            k.warp_uniform(),
        ]
    });
    for (i, _) in x.iter().enumerate() {
        let warp = &x[i / 32 * 32..i / 32 * 32 + 32];
        let lane = i % 32;
        let group = |size: usize| &warp[lane / size * size..lane / size * size + size];
        let expected = [
            warp.iter().sum(),
            group(4).iter().sum(),
            *group(8).iter().max().unwrap_or(&0),
            *warp.iter().min().unwrap_or(&0),
            warp[5],
            warp[lane ^ 3],
            (0..32).map(|l| u32::from(warp[l] < 20) << l).sum(),
            x.iter().sum(),
            i as u32 / 32,
        ];
        let got: Vec<u32> = found.iter().map(|row| row[i]).collect();
        assert_eq!(got, expected, "thread {i}");
    }
}

/// Votes over the block: 64 threads, of which 10 hold the condition; a constant one is a barrier too.
#[test]
fn blocks_vote() {
    let x: Vec<u32> = (0..64).map(|i| i * 7 % 64).collect();
    let found = words(&x, 6, |k, v| {
        let (some, none, all) = (v.lt(10), v.lt(0), v.lt(64));
        let exchanged = k.shared::<u32>("exchanged", 64);
        exchanged.at(k.thread().x).store(v);
        let constant = k.c(1u32).eq(1).block_count();
        vec![
            some.block_any().to_u32() * 2 + none.block_any().to_u32(),
            some.block_all().to_u32() * 2 + all.block_all().to_u32(),
            some.block_count(),
            none.block_count(),
            constant,
            exchanged.at(63 - k.thread().x).load(),
        ]
    });
    for i in 0..64 {
        let got: Vec<u32> = found.iter().map(|row| row[i]).collect();
        assert_eq!(got, [2, 1, 10, 0, 64, x[63 - i]], "thread {i}");
    }
}

/// Every element of a tile has a place of its own, in either layout, and a
/// chunk is where its elements are.
#[test]
fn tiles_keep_their_elements_apart() {
    for (rows, cols) in [(16, 16), (32, 32), (16, 64), (8, 128)] {
        for layout in [TileLayout::Padded(8), TileLayout::Swizzled] {
            let kernel = KernelSpec::<Words>::new("tile")
                .block(64)
                .build(Arch::SM_80, |k, args| {
                    let tile = k.tile(TileSpec::<f16>::new("tile", rows, cols, layout));
                    let raw = tile.ptr().cast::<u16>();
                    let base = raw.address();
                    k.for_step(k.thread().x, rows * cols, 64, |i| {
                        let at = tile.at(i / cols, i % cols).cast::<u16>();
                        at.store(i.cast::<u16>());
                        let distance = at.address() - base;
                        args.out.at(i).store(distance);
                    });
                    k.sync();
                    k.for_step(k.thread().x, rows * cols / 8, 64, |c| {
                        let chunk = tile.chunk(c / (cols / 8), c % (cols / 8)).cast::<u16>();
                        let first = chunk.load().cast::<u32>();
                        let last = chunk.at(7).load().cast::<u32>();
                        args.out.at(c + rows * cols).store(last * 65536 + first);
                    });
                })
                .expect("builds");
            let count = (rows * cols) as usize;
            let args = Words {
                x: Arg::input(&[0u32]),
                out: Arg::output::<u32>(count + count / 8),
                n: 0,
            };
            let report = run(&kernel, "sim:a100", [1, 1, 1], args).expect("sm_80 runs on all");
            let out = output::<u32>(&report, 1);
            let mut places = out[..count].to_vec();
            places.sort();
            places.dedup();
            assert_eq!(
                places.len(),
                count,
                "{rows}x{cols} {layout:?}: elements share a place"
            );
            for (chunk, word) in out[count..].iter().enumerate() {
                let first = chunk as u32 * 8;
                assert_eq!(
                    *word,
                    (first + 7) * 65536 + first,
                    "{rows}x{cols} {layout:?}"
                );
            }
        }
    }
}

#[test]
fn halves_and_vectors() {
    let x: Vec<f32> = (0..128).map(|i| i as f32 * 0.25 - 10.0).collect();
    let kernel = KernelSpec::<Floats>::new("halves")
        .block(32)
        .build(Arch::SM_80, |k, args| {
            let t = k.thread().x;
            let [a, b, c, d] = args.x.at(t * 4).load_vec_readonly::<4>();
            let packed = Val::pack_as::<f16>(a, b) + Val::pack_as::<f16>(c, d);
            let [low, high] = packed.unpack();
            let brains =
                (a.cast::<bf16>() + b.cast::<bf16>()) * c.cast::<bf16>() - d.cast::<bf16>();
            let mine = k.local::<f32>("mine", 4);
            for (i, v) in [a, b, c, d].into_iter().enumerate() {
                mine.at(i).store(v);
            }
            let picked = mine.at((t + args.n) & 3).load();
            args.out
                .at(t * 4)
                .store_vec([low.cast(), high.cast(), brains.cast(), picked]);
        })
        .expect("builds");
    let args = Floats {
        x: Arg::input(&x),
        out: Arg::output::<f32>(128),
        n: 1,
    };
    let report = run(&kernel, "sim:a100", [1, 1, 1], args).expect("sm_80 runs on all");
    let found = output::<f32>(&report, 1);
    for t in 0..32 {
        let [a, b, c, d] = [0, 1, 2, 3].map(|i| x[t * 4 + i]);
        let half = |v: f32| f16::from_f32(v).to_f32();
        let brain = |v: f32| bf16::from_f32(v).to_f32();
        let expected = [
            half(half(a) + half(c)),
            half(half(b) + half(d)),
            brain(brain(brain(brain(a) + brain(b)) * brain(c)) - brain(d)),
            x[t * 4 + (t + 1) % 4],
        ];
        assert_eq!(found[t * 4..t * 4 + 4], expected, "thread {t}");
    }
}

/// Two warps have two batches of copies in flight each: after the wait for the first one its rows can be read by every lane, while the other is on its way.
#[test]
fn a_warp_waits_for_its_own_copies() {
    const COLS: u32 = 16;
    let kernel = KernelSpec::<Words>::new("panels")
        .block(64)
        .build(Arch::SM_80, |k, args| {
            let rows = TileSpec::new("panels", 16, COLS, TileLayout::Padded(4));
            let (warp, lane) = (k.warp_uniform(), k.lane());
            let own = k.tile::<u32>(rows).rows_from(warp * 8, 8);
            let batches = [0u32, 4].map(|first| {
                k.copy_in_warp(own.rows_from(first, 4), |tile| {
                    let (row, chunk) = (lane / 4, lane % 4);
                    let from = args.x.at((warp * 8 + first + row) * COLS + chunk * 4);
                    k.if_(row.lt(4u32), || tile.copy_chunk(row, chunk, from));
                })
            });
            for (batch, newer) in batches.into_iter().zip([1, 0]) {
                let tile = batch.wait(newer);
                let first = warp * 128 + (1 - newer) * 64;
                for part in 0..2u32 {
                    // What another lane has copied.
                    let at = k.c(63u32) - (lane + part * 32);
                    let word = tile.at(at / COLS, at % COLS).load();
                    args.out.at(first + lane + part * 32).store(word);
                }
            }
        })
        .expect("builds");
    let x: Vec<u32> = (0..256).map(|i| i * 7).collect();
    let args = Words {
        x: Arg::input(&x),
        out: Arg::output::<u32>(x.len()),
        n: 0,
    };
    let outcome = run(&kernel, "sim:a100", [1, 1, 1], args).expect("it runs");
    let turned: Vec<u32> = x
        .chunks(64)
        .flat_map(|batch| batch.iter().rev())
        .copied()
        .collect();
    assert_eq!(output::<u32>(&outcome, 1), turned);
}
