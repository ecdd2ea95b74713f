//! Products: one, in groups, of experts; and what is refused.

use super::{STREAM, brains, close, from_brains, ops, random};
use heist::kernels::gemm::{
    Activation, Epilogue, Gemm, Input, Layout as GemmLayout, Output, Scales, Summing,
};
use heist::ops::{
    ExpertLayer, ExpertOperands, GemmOperands, GroupedGemm, GroupedOperands, Memory, OpError,
    WorkspaceMemory,
};

#[test]
fn a_product_with_pitches_and_an_epilogue() {
    let ops = ops();
    let (m, n, k, lda, ldc) = (24u32, 16u32, 40u32, 48u32, 24u32);
    let mut problem = Gemm::new(m, n, k, Input::Bf16, Output::F32, GemmLayout::Nt);
    (problem.lda, problem.ldc) = (lda, ldc);
    problem.epilogue = Epilogue {
        alpha: 0.5,
        beta: 2.0,
        bias: true,
        activation: Activation::Relu,
        ..Epilogue::default()
    };
    let plan = ops.gemm(&problem, None).expect("a plan");
    let (a, b) = (random(1, (m * lda) as usize), random(2, (n * k) as usize));
    let bias: Vec<f32> = (0..n).map(|i| i as f32 - 8.0).collect();
    let c: Vec<f32> = random(3, (m * ldc) as usize)
        .iter()
        .map(|v| *v as f32)
        .collect();
    let mut d = vec![-77f32; (m * ldc) as usize];
    let (a_bits, b_bits) = (brains(&a), brains(&b));
    let operands = GemmOperands {
        a: Memory::host(&a_bits),
        b: Memory::host(&b_bits),
        c: Some(Memory::host(&c)),
        d: Memory::host_mut(&mut d),
        bias: Some(Memory::host(&bias)),
        scales: None,
    };
    plan.launch(&operands, WorkspaceMemory::NONE, STREAM)
        .expect("a launch");
    for row in 0..m as usize {
        for col in 0..ldc as usize {
            let at = row * ldc as usize + col;
            let expected = if col < n as usize {
                let product = |i: usize| a[row * lda as usize + i] * b[col * k as usize + i];
                let sum: f64 = (0..k as usize).map(product).sum();
                (0.5 * sum + 2.0 * f64::from(c[at]) + f64::from(bias[col])).max(0.0)
            } else {
                -77.0
            };
            assert!(
                (f64::from(d[at]) - expected).abs() < 1e-3,
                "{row} {col}: {} {expected}",
                d[at]
            );
        }
    }
}

/// Masked groups of 8-bit floats with scales of blocks: counts are read in each launch.
#[test]
fn masked_groups_of_8_bit_floats() {
    let ops = ops();
    let (groups, room, n, k) = (3usize, 20usize, 24usize, 144usize);
    let problem = GroupedGemm {
        groups: 3,
        rows: 60,
        n: 24,
        k: 144,
        input: Input::E4m3,
        output: Output::F32,
        layout: GemmLayout::Nt,
        masked: Some(2),
        scales: Scales::Blocks,
        sums: Summing::Levels,
    };
    let plan = ops.grouped_gemm(&problem, None).expect("a plan");
    // 0x38 is one, and each step of 8 a power of two: all sums are exact.
    let bits = |seed: usize, at: usize| 0x30 + 8 * ((seed + at * 7 / 3) % 3) as u8;
    let value = |bits: u8| f64::from((bits - 0x30) / 8).exp2() / 2.0;
    let a: Vec<u8> = (0..groups * room * k).map(|at| bits(1, at)).collect();
    let b: Vec<u8> = (0..groups * n * k).map(|at| bits(2, at)).collect();
    let of_a: Vec<f32> = (0..groups * 2 * room).map(|at| 1.0 + at as f32).collect();
    let of_b: Vec<f32> = (0..groups * 2).map(|at| 0.5 + at as f32).collect();
    for counts in [[20u32, 0, 1], [3, 20, 19]] {
        let mut d = vec![-77f32; groups * room * n];
        let operands = GroupedOperands {
            a: Memory::host(&a),
            b: Memory::host(&b),
            d: Memory::host_mut(&mut d),
            ends: Memory::host(&counts),
            scales: Some([Memory::host(&of_a), Memory::host(&of_b)]),
        };
        plan.launch(&operands, WorkspaceMemory::NONE, STREAM)
            .expect("a launch");
        for (at, &found) in d.iter().enumerate() {
            let (group, row, col) = (at / (room * n), at / n % room, at % n);
            let product = |depth: usize| {
                let (block, row_of_a) = (depth / 128, (group * room + row) * k);
                value(a[row_of_a + depth])
                    * f64::from(of_a[(group * 2 + block) * room + row])
                    * value(b[(group * n + col) * k + depth])
                    * f64::from(of_b[group * 2 + block])
            };
            let expected = match row < counts[group] as usize {
                true => (0..k).map(product).sum(),
                false => -77.0,
            };
            let found = f64::from(found);
            assert!(
                (found - expected).abs() <= expected.abs() * 1e-6,
                "{at}: {found} {expected}"
            );
        }
    }
    let uneven = GroupedGemm {
        rows: 61,
        ..problem
    };
    let why = ops.grouped_gemm(&uneven, None).err().expect("no plan");
    assert!(why.to_string().contains("pad them"), "{why}");
}

#[test]
fn groups_are_read_on_the_device() {
    let ops = ops();
    let problem = GroupedGemm {
        groups: 3,
        rows: 30,
        n: 16,
        k: 32,
        input: Input::Bf16,
        output: Output::F32,
        layout: GemmLayout::Nn,
        masked: None,
        scales: Scales::None,
        sums: Summing::Levels,
    };
    let plan = ops.grouped_gemm(&problem, None).expect("a plan");
    let (a, b) = (random(1, 30 * 32), random(2, 3 * 32 * 16));
    let (a_bits, b_bits) = (brains(&a), brains(&b));
    for ends in [[10u32, 10, 30], [3, 20, 28]] {
        let mut d = vec![-1f32; 30 * 16];
        let operands = GroupedOperands {
            a: Memory::host(&a_bits),
            b: Memory::host(&b_bits),
            d: Memory::host_mut(&mut d),
            ends: Memory::host(&ends),
            scales: None,
        };
        plan.launch(&operands, WorkspaceMemory::NONE, STREAM)
            .expect("a launch");
        for row in 0..30 {
            let group = ends.iter().position(|end| row < *end as usize);
            for col in 0..16 {
                let product = |g: usize, i: usize| a[row * 32 + i] * b[(g * 32 + i) * 16 + col];
                let expected = group.map_or(-1.0, |g| (0..32).map(|i| product(g, i)).sum());
                assert!(
                    (f64::from(d[row * 16 + col]) - expected).abs() < 1e-3,
                    "{row} {col}"
                );
            }
        }
    }
}

#[test]
fn experts_find_their_tokens_on_the_device() {
    let ops = ops();
    let (tokens, hidden, inner) = (12usize, 64usize, 32usize);
    let layer = ExpertLayer {
        experts: 3,
        tokens: 12,
        per: 2,
        hidden: 64,
        inner: 32,
        dtype: Input::Bf16,
    };
    let plan = ops.expert_layer(&layer, None).expect("a plan");
    assert_eq!(plan.launches(), 3);
    let x = random(1, tokens * hidden);
    let (up, down) = (
        random(2, 3 * 2 * inner * hidden),
        random(3, 3 * hidden * inner),
    );
    let weights: Vec<f32> = random(4, tokens * 2).iter().map(|w| *w as f32).collect();
    let bits = [brains(&x), brains(&up), brains(&down)];
    // Every slot once; one expert has no token, another has nearly all.
    let order: Vec<u32> = (0..24).map(|i| i * 7 % 24).collect();
    for ends in [[8u32, 15, 24], [1, 1, 24]] {
        let mut d = vec![0u16; tokens * hidden];
        let operands = ExpertOperands {
            x: Memory::host(&bits[0]),
            up: Memory::host(&bits[1]),
            down: Memory::host(&bits[2]),
            weights: Memory::host(&weights),
            order: Memory::host(&order),
            ends: Memory::host(&ends),
            d: Memory::host_mut(&mut d),
        };
        plan.launch(&operands, WorkspaceMemory::NONE, STREAM)
            .expect("a launch");
        let mut expected = vec![0.0; tokens * hidden];
        for (row, slot) in order.iter().enumerate() {
            let slot = *slot as usize;
            let token = slot / 2;
            let expert = ends
                .iter()
                .position(|end| row < *end as usize)
                .expect("one");
            let dot = |weights: &[f64], from: usize, with: &[f64]| -> f64 {
                with.iter().zip(&weights[from..]).map(|(a, b)| a * b).sum()
            };
            let own = &x[token * hidden..][..hidden];
            let gated: Vec<f64> = (0..inner)
                .map(|i| {
                    let gate = dot(&up, (expert * 2 * inner + i) * hidden, own);
                    let other = dot(&up, (expert * 2 * inner + inner + i) * hidden, own);
                    gate / (1.0 + (-gate).exp()) * other
                })
                .collect();
            for col in 0..hidden {
                let sum = dot(&down, (expert * hidden + col) * inner, &gated);
                expected[token * hidden + col] += f64::from(weights[slot]) * sum;
            }
        }
        let largest = expected
            .iter()
            .fold(0.0f64, |most, value| most.max(value.abs()));
        close(&from_brains(&d), &expected, largest * 1e-2);
    }
}

#[test]
fn plans_are_kept_and_shared() {
    let ops = ops();
    let problem = Gemm::new(16, 16, 16, Input::F16, Output::F16, GemmLayout::Nn);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| ops.gemm(&problem, None).map(|_| ()).expect("a plan"));
        }
    });
    assert_eq!(ops.len(), 1);
    let schedule = heist::sched::Schedule::new(heist::sched::TileSource::Ticket);
    let plan = ops.gemm(&problem, Some(&schedule)).expect("a plan");
    assert_eq!(ops.len(), 2);
    // Tickets are drawn from a counter that must be zero; a block a tile draws none.
    assert!(plan.workspace().counters > 0);
    let direct = heist::sched::Schedule::new(heist::sched::TileSource::Direct);
    let plan = ops.gemm(&problem, Some(&direct)).expect("a plan");
    assert_eq!(plan.workspace().counters, 0);
}

#[test]
fn a_product_whose_rows_and_columns_have_factors() {
    let ops = ops();
    let (m, n, k) = (24usize, 16usize, 32usize);
    let size = [m, n, k].map(|extent| extent as u32);
    let mut problem = Gemm::new(
        size[0],
        size[1],
        size[2],
        Input::Bf16,
        Output::F32,
        GemmLayout::Nt,
    );
    problem.scales = Scales::Rows;
    let plan = ops.gemm(&problem, None).expect("a plan");
    let (a, b) = (random(1, m * k), random(2, n * k));
    let of_rows: Vec<f32> = (0..m).map(|row| 0.5 + row as f32).collect();
    let of_cols: Vec<f32> = (0..n).map(|col| 0.25 * (1 + col) as f32).collect();
    let mut d = vec![-77f32; m * n];
    let (a_bits, b_bits) = (brains(&a), brains(&b));
    let mut operands = GemmOperands {
        a: Memory::host(&a_bits),
        b: Memory::host(&b_bits),
        c: None,
        d: Memory::host_mut(&mut d),
        bias: None,
        scales: Some([Memory::host(&of_rows), Memory::host(&of_cols)]),
    };
    plan.launch(&operands, WorkspaceMemory::NONE, STREAM)
        .expect("a launch");
    operands.scales = None;
    let without = plan.launch(&operands, WorkspaceMemory::NONE, STREAM);
    assert!(matches!(without, Err(OpError::Memory(why)) if why.contains("scale_a is missing")));
    let right: Vec<f64> = (0..m * n)
        .map(|at| {
            let (row, col) = (at / n, at % n);
            let sum: f64 = (0..k).map(|i| a[row * k + i] * b[col * k + i]).sum();
            sum * f64::from(of_rows[row]) * f64::from(of_cols[col])
        })
        .collect();
    let found: Vec<f64> = d.iter().map(|v| f64::from(*v)).collect();
    close(&found, &right, 1e-3);
}

#[test]
fn memory_that_does_not_fit_is_refused() {
    let ops = ops();
    let problem = Gemm::new(16, 16, 16, Input::F16, Output::F16, GemmLayout::Nn);
    let plan = ops.gemm(&problem, None).expect("a plan");
    let (a, mut d) = (vec![0u16; 256 + 8], vec![0u16; 256]);
    let right = GemmOperands {
        a: Memory::host(&a[..256]),
        b: Memory::host(&a[..256]),
        c: None,
        d: Memory::host_mut(&mut d),
        bias: None,
        scales: None,
    };
    let refused = |operands: &GemmOperands<'_>, why: &str| {
        let found = plan.launch(operands, WorkspaceMemory::NONE, STREAM);
        match found {
            Err(OpError::Memory(text)) if text.contains(why) => {}
            other => panic!("{why}: {other:?}"),
        }
    };
    let with = |a| GemmOperands { a, ..right };
    refused(
        &with(Memory::host(&a[..255])),
        "a takes 512 bytes and has 510",
    );
    refused(&with(Memory::host(&a[1..])), "no multiple of 16 bytes");
    // Another plan takes it; B has to begin there as before.
    let anywhere = [true, false];
    let other = ops
        .gemm(
            &Gemm {
                anywhere,
                ..problem
            },
            None,
        )
        .expect("one");
    let launch = |operands: GemmOperands<'_>| {
        let done = other.launch(&operands, WorkspaceMemory::NONE, STREAM);
        done.map_err(|error| error.to_string())
    };
    launch(with(Memory::host(&a[1..]))).expect("a begins anywhere");
    let b = Memory::host(&a[1..]);
    let why = launch(GemmOperands { b, ..right }).expect_err("refused");
    assert!(why.contains("b begins at"), "{why}");
    refused(&with(Memory::at_device(4096, 512)), "is on a GPU");
    let read_only = GemmOperands {
        d: Memory::host(&a[..256]),
        ..right
    };
    refused(&read_only, "was given to be read");
    assert!(ops.gemm(&Gemm { m: 0, ..problem }, None).is_err());
}
