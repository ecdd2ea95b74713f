//! Operands whose rows begin anywhere: written anew first, or multiplied as they are.

use heist_kernels::Target;
use heist_kernels::gemm::{self, Activation, Epilogue, Gemm, Input, Layout, Output};
use heist_oracle::{Ptxas, parallel, sample};

/// The launch that writes operands anew, in every way and for one and two of them: it asks for all words of a thread before it stores one, so it has few registers to lose.
#[test]
fn operands_are_written_anew_without_spills() {
    let Some(ptxas) = Ptxas::find_or_say_skipped() else {
        return;
    };
    use Layout::{Nn, Nt, Tn, Tt};
    let mut kernels = Vec::new();
    for (arch, sms) in [("sm_90a", 132), ("sm_100a", 148)] {
        let arch = heist_builder::Arch::parse(arch).expect("a known architecture");
        let target = Target { arch, sms };
        for (m, n, k, input, layout) in [
            // Halves one by one, in pairs, and both.
            (500, 501, 499, Input::F16, Nt),
            (500, 502, 500, Input::Bf16, Tn),
            (500, 501, 500, Input::F16, Nn),
            // Words copied and turned.
            (500, 501, 499, Input::Tf32, Tt),
            (501, 501, 499, Input::Tf32, Tn),
            (501, 501, 499, Input::Tf32, Nt),
        ] {
            let problem = Gemm::new(m, n, k, input, Output::F32, layout);
            let plan = gemm::FAMILY.plan(None, &problem, target).expect("one");
            assert_eq!(plan.steps[0].entry, "gemm_anew", "{problem}");
            kernels.push((arch.name(), plan.steps[0].ptx()));
        }
    }
    let wrong = parallel(&kernels, |(arch, ptx)| {
        let cubin = match ptxas.assemble(ptx, arch) {
            Ok(cubin) => cubin,
            Err(rejected) => return Some(rejected.log),
        };
        let spilled = |usage: &heist_oracle::Usage| {
            usage.spill_stores + usage.spill_loads + usage.stack > 0 || usage.registers > 64
        };
        let usage = cubin.usage();
        (usage.values().any(spilled) || !cubin.complaints().is_empty())
            .then(|| format!("{usage:?} {:?}", cubin.complaints()))
    });
    let wrong: Vec<String> = wrong.into_iter().flatten().collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Rows that start anywhere: lanes load single elements of shared memory, in every tile shape of `mma.sync` and for few rows, of every layout and type.
#[test]
fn rows_that_start_anywhere_without_spills() {
    let Some(ptxas) = Ptxas::find_or_say_skipped() else {
        return;
    };
    let full = Epilogue {
        alpha: 2.0,
        beta: 0.5,
        bias: true,
        activation: Activation::Gelu,
        ..Epilogue::default()
    };
    let mut all = Vec::new();
    for (turn, &layout) in Layout::ALL.iter().enumerate() {
        for (index, input) in [Input::F16, Input::Bf16, Input::Tf32]
            .into_iter()
            .enumerate()
        {
            let (arch, sms) = [("sm_90a", 132), ("sm_80", 108)][(turn + index) % 2];
            let arch = heist_builder::Arch::parse(arch).expect("a known architecture");
            let target = Target { arch, sms };
            let odd = Gemm::new(501, 503, 499, input, Output::F32, layout);
            for variant in ["mma-128x256", "mma-128x128", "mma-64x64", "mma-32x32"] {
                all.push((target, odd.epilogue(full), variant));
            }
            let arch = heist_builder::Arch::SM_90A;
            let target = Target { arch, sms: 132 };
            let few = [7, 31, 95][(turn + index) % 3];
            let problem = Gemm::new(few, 4001, 4003, input, Output::Bf16, layout);
            all.push((target, problem.epilogue(full), "thin"));
            let problem = Gemm::new(1003, few, 20_003, input, Output::F32, layout);
            all.push((target, problem, "thin"));
        }
    }
    let wrong = parallel(&sample(all), |(target, problem, variant)| {
        let plan = gemm::FAMILY.plan(Some(variant), problem, *target);
        let (ptx, arch) = (plan.expect("it suits").steps[0].ptx(), target.arch.name());
        let cubin = match ptxas.assemble(&ptx, arch) {
            Ok(cubin) => cubin,
            Err(rejected) => return Some(rejected.log),
        };
        let spilled =
            |usage: &heist_oracle::Usage| usage.spill_stores + usage.spill_loads + usage.stack > 0;
        let usage = cubin.usage();
        (usage.values().any(spilled) || !cubin.complaints().is_empty())
            .then(|| format!("{problem} {variant}: {usage:?} {:?}", cubin.complaints()))
    });
    let wrong: Vec<String> = wrong.into_iter().flatten().collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}
