//! Every operation of the core, judged by ptxas on every architecture.

mod common;

use common::{ALL, assembles};
use heist_builder::*;

kernel_params! {
    struct Buffers {
        words: Global<u32>, longs: Global<u64>, singles: Global<f32>, doubles: Global<f64>,
        halves: Global<f16>, brains: Global<bf16>, bytes: Global<u8>, n: u32, scale: f32,
    }
}

/// All arithmetic of one type, stored so that nothing is dead.
fn arithmetic<'k, T: Number + Ordered>(k: &Kernel<'k>, at: Ptr<'k, Global, T>, one: T) {
    let (a, b) = (at.load(), at.at(1).load());
    let mut results = vec![a + b, a - b, a * b, a.mul_add(b, a), -a, a.abs()];
    results.extend([a.min(b), a.max(b), a + one, a * one, a.mul_add(one, b)]);
    for compare in [a.eq(b), a.ne(b), a.lt(one), a.le(b), a.gt(b), a.ge(b)] {
        results.push(compare.select(a, one));
    }
    let conditional = k.if_value(a.lt(b), || a + b, || k.c(one));
    results.push(conditional);
    for (index, result) in results.into_iter().enumerate() {
        at.at(index).store(result);
    }
}

fn integers<'k, T: Integer + Ordered + Divide + Bits>(at: Ptr<'k, Global, T>, three: T) {
    let (a, b) = (at.load(), at.at(1).load());
    let results = [
        a / b,
        a % b,
        a / three,
        a % three,
        a & b,
        a | b,
        a ^ b,
        !a,
        a << 3,
        a >> 2,
        a >> at.kernel().thread().x,
        a & three,
    ];
    for (index, result) in results.into_iter().enumerate() {
        at.at(index + 40).store(result);
    }
}

#[test]
fn arithmetic_of_every_type() {
    assembles(ALL, |arch| {
        KernelSpec::<Buffers>::new("arithmetic").build(arch, |k, args| {
            arithmetic(k, args.words, 1);
            arithmetic(k, args.words.cast::<i32>().at(100), -1);
            arithmetic(k, args.longs, 1);
            arithmetic(k, args.longs.cast::<i64>().at(100), -5);
            arithmetic(k, args.words.cast::<u16>().at(900), 7);
            arithmetic(k, args.words.cast::<i16>().at(1900), -7);
            arithmetic(k, args.singles, 1.5);
            arithmetic(k, args.doubles, 1.5);
            arithmetic(k, args.halves, f16::from_f32(1.5));
            arithmetic(k, args.brains, bf16::from_f32(1.5));
            integers(args.words, 8);
            integers(args.words.cast::<i32>(), 3);
            integers(args.longs, 8);
            integers(args.longs.cast::<i64>(), 3);
            integers(args.words.cast::<u16>(), 3);
            integers(args.words.cast::<i16>(), 3);
            let packed = args.halves.cast::<F16x2>().at(500);
            let (a, b) = (packed.load(), packed.at(1).load());
            packed.at(2).store((a + b) * a - a.mul_add(b, b));
            let packed = args.brains.cast::<Bf16x2>().at(500);
            let (a, b) = (packed.load(), packed.at(1).load());
            packed.at(2).store((a + b) * a - a.mul_add(b, b));
            let x = args.singles.load();
            let quotient = x / args.scale + x.div_approx(3.0) + 1.0 / x;
            args.singles.at(300).store(quotient.sqrt());
            let d = args.doubles.load();
            args.doubles.at(300).store((d / 3.0).sqrt());
        })
    });
}

#[test]
fn conversions_between_all_types() {
    fn from<'k, T: Storable>(from: Ptr<'k, Global, T>, args: &Buffers<On<'k>>) {
        let v = from.load();
        args.bytes.store(v.cast::<u8>());
        args.bytes.at(1).store(v.cast::<i8>().cast::<u8>());
        args.words.cast::<u16>().store(v.cast::<u16>());
        args.words.cast::<i16>().store(v.cast::<i16>());
        args.words.store(v.cast::<u32>());
        args.words.cast::<i32>().at(2).store(v.cast::<i32>());
        args.longs.store(v.cast::<u64>());
        args.longs.cast::<i64>().at(2).store(v.cast::<i64>());
        args.singles.store(v.cast::<f32>());
        args.doubles.store(v.cast::<f64>());
        args.halves.store(v.cast::<f16>());
        args.brains.store(v.cast::<bf16>());
    }
    assembles(ALL, |arch| {
        KernelSpec::<Buffers>::new("conversions").build(arch, |k, args| {
            from(args.bytes.at(9), &args);
            from(args.bytes.cast::<i8>().at(9), &args);
            from(args.words.cast::<u16>().at(9), &args);
            from(args.words.cast::<i16>().at(9), &args);
            from(args.words.at(9), &args);
            from(args.words.cast::<i32>().at(9), &args);
            from(args.longs.at(9), &args);
            from(args.longs.cast::<i64>().at(9), &args);
            from(args.singles.at(9), &args);
            from(args.doubles.at(9), &args);
            from(args.halves.at(9), &args);
            from(args.brains.at(9), &args);
            args.words.store(k.thread().x.lt(args.n).cast::<u32>());
            let x = args.singles.load();
            args.words.at(1).store(x.bitcast::<u32>());
            args.words.cast::<Tf32>().at(2).store(x.to_tf32());
            let pair = Val::pack_as::<f16>(x, x + 1.0);
            let [low, high] = pair.unpack();
            args.halves.at(3).store(low + high);
            args.brains
                .cast::<Bf16x2>()
                .store(Val::pack_as::<bf16>(x, x));
            args.halves
                .cast::<F16x2>()
                .at(9)
                .store(Val::pack(high, low));
            for (index, y) in [
                x.exp2_approx(),
                x.log2_approx(),
                x.recip_approx(),
                x.rsqrt_approx(),
                x.sin_approx(),
                x.cos_approx(),
                x.tanh_approx(),
                x.floor(),
                x.ceil(),
                x.round(),
            ]
            .into_iter()
            .enumerate()
            {
                args.singles.at(index + 10).store(y);
            }
            let w = args.words.at(20).load();
            args.longs.at(3).store(w.mul_wide(w));
            args.words
                .at(21)
                .store(w.mul_high(7) + w.count_ones() + w.leading_zeros() + w.div_ceil(48));
            // Constants of every type have to be written down too.
            args.bytes.at(5).store(250);
            args.halves.at(5).store(f16::from_f32(-2.5));
            args.doubles.at(5).store(-2.5);
            args.longs.at(5).store(u64::MAX);
        })
    });
}

#[test]
fn control_flow_and_variables() {
    assembles(ALL, |arch| {
        KernelSpec::<Buffers>::new("control").build(arch, |k, args| {
            let sum = k.var(0u32).named("sum");
            k.for_range(0, args.n, |i| sum.set(sum + i));
            k.for_step(k.thread().x, args.n, k.block_dim().x, |i| {
                k.if_else(
                    (i & 1).eq(0),
                    || sum.update(|s| s + args.words.at(i).load()),
                    || sum.update(|s| s ^ i),
                );
            });
            k.for_unrolled::<4>(0, args.n, |i| sum.update(|s| s + args.words.at(i).load()));
            k.while_(|| sum.get().gt(1000), || sum.update(|s| s / 2));
            k.loop_(|flow| {
                sum.update(|s| s + 3);
                flow.continue_if((sum & 7).eq(1));
                flow.break_if(sum.get().gt(args.n));
            });
            let flag = k.var(false);
            k.if_(sum.get().gt(5), || flag.set(true));
            args.words
                .at(k.thread().x)
                .store(flag.get().select(sum.get(), 0u32));
            k.for_range(0i64, args.longs.cast::<i64>().load(), |i| {
                args.longs.at(i).store(1)
            });
            k.if_(true, || args.words.store(7));
            k.if_(false, || args.words.store(8));
            k.if_(args.n.eq(77), || k.trap());
            k.exit();
        })
    });
}

#[test]
fn memory_of_every_kind() {
    assembles(ALL, |arch| {
        KernelSpec::<Buffers>::new("memory")
            .block(64)
            .build(arch, |k, args| {
                let t = k.thread().x;
                let tile = k.shared::<f32>("tile", 256);
                let flags = k.shared_aligned::<u8>("flags", 64, 128);
                tile.at(t).store(args.singles.at(t).load_readonly());
                flags.at(t).store(k.c(1u8));
                k.sync();
                let [a, b, c, d] = tile.at(t * 4).load_vec::<4>();
                args.singles.at(t * 4).store_vec([d, c, b, a]);
                let [a, b] = args.longs.at(t * 2).load_vec_readonly::<2>();
                args.longs
                    .at(t * 2)
                    .store_vec_cached(StoreCache::Streaming, [b, a]);
                let [a, b] = args.halves.at(t * 2).load_vec_cached::<2>(LoadCache::L2);
                args.halves.at(t * 2).store_vec([b, a]);
                args.words.at(t).store(flags.at(t).load().cast::<u32>());
                let mine = k.local::<f32>("mine", 8);
                for i in 0..8 {
                    mine.at(i).store(args.singles.at(i).load());
                }
                args.singles.at(t).store(mine.at(args.n & 7).load());
                args.words.at(900).prefetch();
                let counter = args.words.at(1000);
                let old = counter.atomic_add(1)
                    + counter.atomic_add_with(Order::AcquireRelease, Scope::Gpu, 2)
                    + counter.atomic_exchange(Order::Relaxed, Scope::System, 5)
                    + counter.atomic_compare_exchange(Order::Acquire, Scope::Gpu, 5, 6)
                    + counter.atomic_min(3)
                    + counter.atomic_max(9)
                    + counter.atomic_or(1)
                    + counter.atomic_and(7)
                    + counter.atomic_wrapping_inc(Order::Release, Scope::Gpu, args.n);
                counter.at(1).store_release(Scope::Gpu, old);
                counter
                    .at(2)
                    .store_relaxed(Scope::System, counter.load_acquire(Scope::Gpu));
                counter.at(3).store(counter.load_relaxed(Scope::Gpu));
                let [left, right] = counter.at(24).load_vec_relaxed(Scope::Gpu);
                counter.at(6).store(left + right);
                counter.at(4).reduce_add(3);
                args.singles.at(1).reduce_add(1.0);
                args.longs.at(1).atomic_add(1);
                tile.cast::<u32>()
                    .at(3)
                    .atomic_add_with(Order::Relaxed, Scope::Block, 1);
                k.fence(Scope::Gpu);
                let half = k.named_barrier(32);
                k.if_else(t.lt(32), || half.sync(), || k.nanosleep(100));
                args.longs.at(7).store(k.nanoseconds() - k.cycles());
                args.words
                    .at(7)
                    .store(k.sm() + k.grid_dim().x + k.block().y);
                let p = Ptr::<Global, u32>::from_address(args.words.address() + 16);
                p.store(tile.at(4).address());
            })
    });
}

#[test]
fn warps_and_blocks_together() {
    assembles(ALL, |arch| {
        KernelSpec::<Buffers>::new("together")
            .block(256)
            .build(arch, |k, args| {
                let x = args.singles.at(k.thread().x).load();
                let n = args.words.at(k.thread().x).load();
                let words = [
                    n.sum(Group::Warp),
                    n.sum(Group::Eight),
                    n.group_max(Group::Warp),
                    n.group_min(Group::Four),
                    n.shuffle_from(3),
                    n.shuffle_xor(1),
                    n.shuffle_down(2),
                    n.shuffle_up(n & 3),
                    n.lt(5).ballot(),
                    n.block_sum(),
                    k.warp_uniform(),
                    n.lt(7).all().to_u32(),
                    n.lt(7).any().to_u32(),
                    n.lt(7).block_all().to_u32(),
                    n.lt(7).block_any().to_u32(),
                    n.lt(7).block_count(),
                ];
                for (index, word) in words.into_iter().enumerate() {
                    args.words.at(k.thread().x + index as u32 * 256).store(word);
                }
                k.sync_warp();
                k.if_(k.elect(), || args.words.store(1));
                k.one_thread(|| args.words.at(1).store(1));
                args.singles
                    .at(k.thread().x)
                    .store(x.block_sum() / x.block_max() + x.group_max(Group::Four));
            })
    });
}

#[test]
fn over_48_kib_becomes_dynamic() {
    let build = |floats: u32| {
        KernelSpec::<Buffers>::new("big").build(Arch::SM_80, |k, args| {
            let first = k.shared::<f32>("first", 100);
            let second = k.shared_aligned::<f32>("second", floats, 1024);
            let t = k.thread().x;
            second.at(t).store(args.singles.at(t).load());
            first.at(5).store(1.0);
            k.sync();
            args.singles
                .at(t)
                .store(second.at(99).load() + second.at(t ^ 1).load() + first.at(5).load());
            args.words.store(second.at(1).address());
        })
    };
    let small = build(1000).expect("fits");
    assert_eq!(
        (small.launch.static_shared, small.launch.dynamic_shared),
        (4400, 0)
    );
    // With the padding before `second` as it is declared, 49,424 bytes would be static.
    let padded = build(12_100).expect("fits");
    assert_eq!(
        (padded.launch.static_shared, padded.launch.dynamic_shared),
        (0, 48_800)
    );
    let large = build(20_000).expect("fits");
    assert_eq!(
        (large.launch.static_shared, large.launch.dynamic_shared),
        (0, 80_400)
    );
    assert_eq!(large.contents.shared[0].offset, 80_000);
    let text = heist_ptx::print(&large.module);
    assert!(
        text.contains(".extern .shared .align 1024 .b8 dynamic_shared[];"),
        "{text}"
    );
    assert!(text.contains("[dynamic_shared+396]"), "{text}");
    assembles(&[Arch::SM_80], |_| build(20_000));
    let error = build(50_000).expect_err("163 KiB is the limit");
    assert_eq!(
        error.problem,
        Problem::SharedMemory {
            asked: 200_400,
            limit: 166_912,
            arch: Arch::SM_80,
            pieces: vec![("second".into(), 200_000), ("first".into(), 400)],
        }
    );
}
