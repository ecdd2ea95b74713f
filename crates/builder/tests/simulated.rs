//! The examples on the simulated GPU, all checks on, against the host.

#[path = "common/sim.rs"]
mod sim;

#[path = "common/examples.rs"]
mod examples;

use examples::{
    cluster_sum, mma_gemm, reduction, saxpy, steal, tcgen05_gemm, tiled_gemm, wgmma_gemm,
};
use half::f16;
use heist_builder::{Arch, BuiltKernel, KernelParams};
use heist_launch::{Arg, Buffer, NamedBuffer, Role, Swizzle, TensorElement, TensorMap};
use heist_run::Settings;
use sim::{output, random, run};

const DEVICES: [(&str, Arch); 4] = [
    ("sim:a100", Arch::SM_80),
    ("sim:l4", Arch::SM_89),
    ("sim:h200", Arch::SM_90),
    ("sim:b200", Arch::SM_100),
];

#[test]
fn saxpy_adds() {
    let n = 1000;
    let (x, y) = (random(1, n), random(2, n));
    for (device, arch) in DEVICES {
        let kernel = saxpy::saxpy(arch).expect("builds");
        let args = saxpy::Saxpy {
            x: Arg::input(&x),
            y: Arg::in_out(&y),
            a: 0.5,
            n: n as u32,
        };
        let Some(report) = run(&kernel, device, [4, 1, 1], args) else {
            continue;
        };
        let expected: Vec<f32> = x.iter().zip(&y).map(|(x, y)| x.mul_add(0.5, *y)).collect();
        assert_eq!(output::<f32>(&report, 1), expected);
    }
}

#[test]
fn reduction_sums() {
    // Whole numbers, so that the order of additions does not matter.
    let x: Vec<f32> = (0..10_000u32).map(|i| (i % 17) as f32).collect();
    for (device, arch) in DEVICES {
        let kernel = reduction::reduction(arch).expect("builds");
        let args = reduction::Reduce {
            x: Arg::input(&x),
            sum: Arg::in_out(&[0.0f32]),
            n: x.len() as u32,
        };
        let Some(report) = run(&kernel, device, [3, 1, 1], args) else {
            continue;
        };
        assert_eq!(output::<f32>(&report, 1), [x.iter().sum::<f32>()]);
    }
}

#[test]
fn tiled_gemm_multiplies() {
    let (m, n, k) = (128, 256, 40);
    let (a, b) = (random(3, m * k), random(4, k * n));
    let kernel = tiled_gemm::tiled_gemm(Arch::SM_80).expect("builds");
    let args = tiled_gemm::Gemm {
        a: Arg::input(&a),
        b: Arg::input(&b),
        c: Arg::output::<f32>(m * n),
        n: n as u32,
        k: k as u32,
    };
    let report = run(&kernel, "sim:a100", [2, 1, 1], args).expect("sm_80 runs on all");
    let c = output::<f32>(&report, 2);
    for (index, found) in c.into_iter().enumerate() {
        let (row, col) = (index / n, index % n);
        let exact = (0..k).fold(0.0f32, |sum, d| a[row * k + d].mul_add(b[d * n + col], sum));
        assert_eq!(found, exact, "C[{row}][{col}]");
    }
}

/// A (m x k) times B (n x k, transposed) in f64.
fn product(a: &[f16], b: &[f16], m: usize, n: usize, k: usize) -> Vec<f64> {
    let wide = |values: &[f16]| values.iter().map(|v| v.to_f64()).collect::<Vec<_>>();
    let (a, b) = (wide(a), wide(b));
    (0..m * n)
        .map(|index| {
            let (row, col) = (index / n, index % n);
            (0..k).map(|d| a[row * k + d] * b[col * k + d]).sum()
        })
        .collect()
}

fn halves(seed: u64, count: usize) -> Vec<f16> {
    random(seed, count).into_iter().map(f16::from_f32).collect()
}

fn close(found: &[f32], exact: &[f64]) {
    let norm = |values: &mut dyn Iterator<Item = f64>| values.map(|v| v * v).sum::<f64>().sqrt();
    let mut differences = found.iter().zip(exact).map(|(f, e)| f64::from(*f) - e);
    let error = norm(&mut differences) / norm(&mut exact.iter().copied());
    assert!(error < 1e-5, "relative error {error}");
}

#[test]
fn mma_gemm_multiplies() {
    let (m, n, k) = (128, 128, 32 * 6);
    let (a, b) = (halves(5, m * k), halves(6, n * k));
    for (device, arch) in [("sim:a100", Arch::SM_80), ("sim:h200", Arch::SM_90)] {
        let kernel = mma_gemm::mma_gemm(arch).expect("builds");
        let args = mma_gemm::Gemm {
            a: Arg::input(&a),
            b: Arg::input(&b),
            c: Arg::output::<f32>(m * n),
            n: n as u32,
            k: k as u32,
        };
        let Some(report) = run(&kernel, device, [1, 1, 1], args) else {
            continue;
        };
        close(&output::<f32>(&report, 2), &product(&a, &b, m, n, k));
    }
}

#[test]
fn cluster_sum_sums_rows() {
    let (rows, cols) = (3, 1111);
    let x: Vec<f32> = (0..rows * cols).map(|i| (i % 13) as f32).collect();
    for (device, arch) in [("sim:h200", Arch::SM_90), ("sim:b200", Arch::SM_100)] {
        let kernel = cluster_sum::cluster_sum(arch).expect("builds");
        let args = cluster_sum::Rows {
            x: Arg::input(&x),
            sums: Arg::output::<f32>(rows),
            cols: cols as u32,
        };
        let Some(report) = run(&kernel, device, [4 * rows as u32, 1, 1], args) else {
            continue;
        };
        let expected: Vec<f32> = x.chunks(cols).map(|row| row.iter().sum()).collect();
        assert_eq!(output::<f32>(&report, 1), expected);
    }
}

#[test]
fn steal_runs_every_tile_once() {
    let tiles = 6_000usize; // more than are resident at once
    let kernel = steal::steal(Arch::SM_100).expect("builds");
    for seed in 0..2 {
        let args = steal::Steal {
            runs: Arg::in_out(&vec![0u32; tiles]),
            by: Arg::output::<u32>(tiles),
        };
        let settings = Settings {
            seed,
            chaos: true,
            ..Settings::default()
        };
        let grid = [tiles as u32, 1, 1];
        let run = sim::Run {
            kernel: &kernel,
            device: "sim:b200",
            grid,
            args,
            buffers: Vec::new(),
            settings,
        };
        let Some(report) = run.run() else {
            return;
        };
        assert_eq!(output::<u32>(&report, 0), vec![1; tiles]);
        let by = output::<u32>(&report, 1);
        let stolen = by
            .iter()
            .enumerate()
            .filter(|(tile, by)| *tile as u32 != **by);
        assert!(stolen.count() > 0, "nothing was stolen");
    }
}

#[test]
fn wgmma_gemm_multiplies() {
    let kernel = wgmma_gemm::wgmma_gemm(Arch::SM_90A).expect("builds");
    multiplies(&kernel, "sim:h200", |a, b, c, n, k| wgmma_gemm::Gemm {
        a,
        b,
        c,
        n,
        k,
    });
}

#[test]
fn tcgen05_gemm_multiplies() {
    let kernel = tcgen05_gemm::tcgen05_gemm(Arch::SM_100A).expect("builds");
    multiplies(&kernel, "sim:b200", |a, b, c, n, k| tcgen05_gemm::Gemm {
        a,
        b,
        c,
        n,
        k,
    });
}

/// A kernel whose tiles are 128 x 128 and 64 deep, fed by the copy engine.
fn multiplies<A: KernelParams>(
    kernel: &BuiltKernel<A>,
    device: &str,
    args: impl Fn(Arg, Arg, Arg, u32, u32) -> A::With<Arg>,
) {
    let (m, n, k) = (128, 256, 64 * 6);
    let (a, b) = (halves(7, m * k), halves(8, n * k));
    // Boxes of 128 rows by 64 halves, as the kernel's copies ask for.
    let map = |name: &str, rows: usize| {
        let dims = [k as u64, rows as u64];
        let map = TensorMap::dense(name, TensorElement::F16, &dims, &[64, 128]);
        assert_eq!(kernel.launch.tensor_boxes[0].1, map.box_bytes());
        Arg::TensorMap(map.swizzle(Swizzle::Bytes128))
    };
    let named = |name: &str, values: &[f16]| NamedBuffer {
        name: name.into(),
        role: Role::In,
        data: Buffer::from_slice(values),
    };
    let c = Arg::output::<f32>(m * n);
    let args = args(map("a", m), map("b", n), c, n as u32, k as u32);
    let run = sim::Run {
        kernel,
        device,
        grid: [2, 1, 1],
        args,
        buffers: vec![named("a", &a), named("b", &b)],
        settings: Settings::default(),
    };
    let Some(outcome) = run.run() else { return };
    close(&output::<f32>(&outcome, 2), &product(&a, &b, m, n, k));
}
