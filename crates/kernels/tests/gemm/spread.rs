//! C of which a row, a column or one element is stored, in every way that results are stored.

use super::*;
use heist_kernels::Tuned;

/// What is spread.
const PARTS: [Spread; 3] = [Spread::Row, Spread::Column, Spread::One];

/// With other parts of the epilogue, and alone.
fn epilogues(spread: Spread) -> [Epilogue; 2] {
    [false, true].map(|full| Epilogue {
        alpha: if full { 0.5 } else { 1.0 },
        beta: -2.0,
        spread,
        bias: full,
        activation: Activation::None,
    })
}

#[test]
fn by_mma_sync() {
    for spread in PARTS {
        for epilogue in epilogues(spread) {
            for (output, n) in [(Output::F16, 40), (Output::Bf16, 33), (Output::F32, 34)] {
                let mut problem = Gemm::new(35, n, 40, Input::F16, output, Layout::Nn);
                right(problem.epilogue(epilogue), TINY, None, "h200");
                problem.ldc += 3;
                right(problem.epilogue(epilogue), TINY, None, "a100");
            }
            let whole = Gemm::new(64, 64, 40, Input::Bf16, Output::Bf16, Layout::Nt);
            right(whole.epilogue(epilogue), TINY, None, "h200");
        }
    }
}

#[test]
fn by_warpgroups() {
    for spread in PARTS {
        for epilogue in epilogues(spread) {
            for (tiling, m, n, output) in [
                ("wgmma:64x64x64/3", 70, 72, Output::Bf16),
                ("wgmma:64x80x64/3", 64, 168, Output::F16),
                ("wgmma:128x64x64/3*2", 200, 67, Output::Bf16),
                ("wgmma:64x64x64/3", 70, 66, Output::F32),
                ("wgmma:64x16x64/3/swapped", 13, 72, Output::F16),
                ("wgmma:64x24x64/3/swapped", 23, 67, Output::Bf16),
                ("wgmma:64x16x64/3/swapped", 13, 70, Output::F32),
                ("wgmma:64x64x64/3/split=3", 70, 71, Output::Bf16),
                ("wgmma:64x8x64/3/swapped/split=3", 5, 130, Output::Bf16),
                (
                    "wgmma:64x64x64/3/split=2/cluster=depth",
                    70,
                    72,
                    Output::Bf16,
                ),
            ] {
                let problem = Gemm::new(m, n, 264, Input::F16, output, Layout::Nt);
                right_in_tiles(problem.epilogue(epilogue), tiling, None, 4);
            }
        }
    }
}

/// One for all products of a batch, as a bias is.
#[test]
fn over_a_batch() {
    for spread in PARTS {
        let [_, full] = epilogues(spread);
        for (tiling, m, n) in [
            ("wgmma:64x64x64/3", 70, 72),
            ("wgmma:64x16x64/3/swapped", 9, 72),
            ("wgmma:64x64x64/3/split=2", 70, 71),
        ] {
            let problem = Gemm::new(m, n, 136, Input::Bf16, Output::Bf16, Layout::Nt).batch(3);
            right_in_tiles(problem.epilogue(full), tiling, None, 4);
        }
    }
}

/// Beside factors of rows and columns.
#[test]
fn beside_scales() {
    for spread in PARTS {
        let [alone, full] = epilogues(spread);
        for epilogue in [alone, full] {
            let problem = Gemm::new(70, 72, 144, Input::E4m3, Output::Bf16, Layout::Nt);
            let problem = problem.scales(Scales::Rows).epilogue(epilogue);
            right_in_tiles(problem, "wgmma:64x64x128/3", None, 4);
            right_in_tiles(problem, "wgmma:64x24x128/3/swapped", None, 4);
        }
    }
}

/// Where tiles are left half done, or a policy is interpreted, threads have fewer registers.
#[test]
fn under_schedules_that_decide() {
    for spread in PARTS {
        let [alone, _] = epilogues(spread);
        for schedule in [
            "ticket late pausing until-asked",
            "ticket late loaded: every(2)",
        ] {
            let schedule: Schedule = schedule.parse().expect("a schedule");
            let problem = Gemm::new(130, 168, 72, Input::Bf16, Output::Bf16, Layout::Nt);
            for tiling in ["wgmma:64x80x64/3", "wgmma:64x80x64/3/swapped"] {
                right_in_tiles(problem.epilogue(alone), tiling, Some(&schedule), 1);
            }
        }
    }
}

#[test]
fn of_few_rows() {
    for spread in PARTS {
        for epilogue in epilogues(spread) {
            for (m, n) in [(3, 33), (40, 5)] {
                let problem = Gemm::new(m, n, 77, Input::F16, Output::F16, Layout::Nt);
                let problem = problem.epilogue(epilogue);
                thin::right_in(problem, "thin:16x2", [1, 1], None, "h200");
            }
        }
    }
}

/// A part of C that nothing of is added is a mistake, and another problem than the whole of it where a tuner's answers are kept.
#[test]
fn what_is_spread_is_added() {
    let gemm = heist_kernels::catalogue::entry("gemm").expect("it is there");
    let (_, target) = common::device("h200");
    let mut settings = heist_kernels::catalogue::Settings::default();
    settings.set("spread", "column");
    let error = gemm.launches(&settings, None, target).map(|_| ());
    let error = error.expect_err("beta is zero").to_string();
    assert!(
        error.contains("spread=column") && error.contains("give beta=1"),
        "{error}"
    );
    settings.set("beta", "1");
    gemm.launches(&settings, None, target).expect("launches");
    let words = |beta, spread| {
        let problem = Gemm::new(8, 8, 8, Input::F16, Output::F16, Layout::Nt);
        let epilogue = Epilogue {
            beta,
            spread,
            ..Epilogue::default()
        };
        problem.epilogue(epilogue).words().expect("words")
    };
    assert_ne!(words(1.0, Spread::Row), words(1.0, Spread::Matrix));
    assert_eq!(words(0.0, Spread::Row), words(0.0, Spread::Matrix));
}

/// What isn't multiplied by anything is not read, and its size is that of nothing.
#[test]
fn without_a_factor_nothing_is_read() {
    for &spread in Spread::ALL {
        let epilogue = Epilogue {
            spread,
            ..Epilogue::default()
        };
        let problem = Gemm::new(35, 40, 40, Input::F16, Output::F16, Layout::Nt);
        let problem = problem.epilogue(epilogue);
        assert_eq!(problem.stored_of_c(35 * 40), 0, "{spread}");
        right(problem, TINY, None, "h200");
    }
}
