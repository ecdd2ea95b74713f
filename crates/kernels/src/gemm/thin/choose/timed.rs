//! The choice against what was timed.

use super::best;
use crate::family::Target;
use crate::gemm::choose::{Kind, kind};
use crate::gemm::problem::{Gemm, Input, Output};
use crate::gemm::thin::tile::ThinTile;
use heist_builder::Arch;

/// A shape of `timed.txt`.
struct Timed {
    problem: Gemm,
    warpgroups: f64,
    mma: f64,
    /// Four widths, each with 1, 2, 4 and 8 shares.
    thin: Vec<f64>,
}

const TARGET: Target = Target {
    arch: Arch::SM_90A,
    sms: 132,
};

fn timed() -> Vec<Timed> {
    let lines = include_str!("timed.txt").lines();
    lines
        .filter(|line| !line.starts_with('#'))
        .map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let [m, n, k, layout, input, times @ ..] = &words[..] else {
                panic!("`{line}` is no shape")
            };
            let [m, n, k] = [m, n, k].map(|side| side.parse().expect("a number"));
            let input: Input = input.parse().expect("a type");
            let output = match input {
                Input::Tf32 => Output::F32,
                _ => Output::Bf16,
            };
            let problem = Gemm::new(m, n, k, input, output, layout.parse().expect("a layout"));
            let times = times.iter().map(|time| match *time {
                "-" => f64::INFINITY,
                time => time.parse().expect("microseconds"),
            });
            let times: Vec<f64> = times.collect();
            assert_eq!(times.len(), 18, "{problem}");
            Timed {
                problem,
                warpgroups: times[0],
                mma: times[1],
                thin: times[2..].to_vec(),
            }
        })
        .collect()
}

impl Timed {
    /// Microseconds of the tile that is chosen.
    fn chosen(&self) -> f64 {
        let (_, tile) = best(&self.problem, TARGET, &ThinTile::SHARES);
        let place = |of: &[u32], one| of.iter().position(|it| *it == one).expect("known");
        let row = place(&ThinTile::OUTER, tile.outer);
        self.thin[row * 4 + place(&ThinTile::SHARES, tile.shares)]
    }

    fn best(&self) -> f64 {
        self.thin.iter().copied().fold(f64::INFINITY, f64::min)
    }
}

fn mean(of: impl Iterator<Item = f64>) -> f64 {
    let all: Vec<f64> = of.map(f64::ln).collect();
    (all.iter().sum::<f64>() / all.len() as f64).exp()
}

#[test]
fn the_tile_that_is_chosen_is_near_the_best() {
    let behind = timed().into_iter().map(|one| {
        let behind = one.chosen() / one.best();
        assert!(behind <= 1.7, "{}: {behind:.2} of the best", one.problem);
        behind
    });
    let mean = mean(behind);
    assert!(mean <= 1.05, "in the mean {mean:.3}");
}

/// Few rows are multiplied by the kernel that was the fastest, or nearly.
#[test]
fn the_kernel_that_is_chosen_is_near_the_best() {
    let behind = timed().into_iter().map(|one| {
        let own = match kind(&one.problem, TARGET) {
            Kind::Thin => one.chosen(),
            Kind::Warpgroups => one.warpgroups,
            Kind::Mma => one.mma,
        };
        let least = one.best().min(one.warpgroups).min(one.mma);
        own / least
    });
    let mean = mean(behind);
    assert!(mean <= 1.04, "in the mean {mean:.3}");
}
