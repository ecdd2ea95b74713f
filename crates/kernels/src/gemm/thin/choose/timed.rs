//! The choice against what was timed: the set `thin` of `gemm_tiles`, an H200, operands in memory, 2026-11-19.

use super::best;
use crate::family::Target;
use crate::gemm::problem::{Gemm, Input, Layout, Output};
use crate::gemm::thin::tile::ThinTile;
use heist_builder::Arch;

/// Microseconds of every tile: four widths, each with 1, 2, 4 and 8 shares.
type Times = [f64; 16];

/// m, n and k, and how operands are stored.
type Case = ((u32, u32, u32), Layout, Input, Times);

const TIMED: &[Case] = &[
    (
        (1, 8191, 8191),
        Layout::Nt,
        Input::Bf16,
        [
            49.1, 52.9, 61.4, 80.4, 56.2, 55.9, 52.5, 53.4, 55.7, 50.3, 61.0, 60.0, 105.2, 56.8,
            70.6, 64.8,
        ],
    ),
    (
        (5, 3001, 12001),
        Layout::Nt,
        Input::Bf16,
        [
            37.8, 38.0, 36.9, 43.1, 40.8, 34.6, 35.1, 33.8, 77.1, 41.7, 36.5, 38.4, 151.6, 77.4,
            41.4, 38.0,
        ],
    ),
    (
        (12, 6001, 2003),
        Layout::Nt,
        Input::Bf16,
        [
            18.6, 19.2, 23.4, 35.2, 15.9, 17.9, 20.5, 30.1, 16.5, 15.9, 16.2, 17.8, 31.3, 18.7,
            21.3, 18.7,
        ],
    ),
    (
        (27, 2501, 5001),
        Layout::Nt,
        Input::Bf16,
        [
            29.3, 29.9, 28.0, 35.9, 27.6, 23.6, 25.4, 25.5, 43.8, 24.9, 21.7, 21.6, 92.7, 48.9,
            26.2, 22.9,
        ],
    ),
    (
        (2001, 3, 4003),
        Layout::Nt,
        Input::Bf16,
        [
            9.8, 10.2, 13.8, 19.2, 14.6, 10.0, 12.0, 12.5, 27.1, 15.6, 13.8, 14.9, 51.5, 27.9,
            15.4, 14.3,
        ],
    ),
    (
        (3, 1201, 1501),
        Layout::Nt,
        Input::Bf16,
        [
            4.8, 5.8, 7.8, 11.1, 6.6, 5.4, 5.8, 5.5, 11.1, 7.2, 5.3, 5.9, 20.3, 11.7, 7.1, 5.3,
        ],
    ),
    (
        (1, 20001, 1001),
        Layout::Nt,
        Input::Bf16,
        [
            20.7, 33.7, 60.8, 127.5, 18.8, 21.3, 27.2, 48.6, 24.8, 24.3, 27.9, 39.0, 25.4, 27.2,
            26.1, 30.0,
        ],
    ),
    (
        (2, 1001, 30001),
        Layout::Nt,
        Input::Bf16,
        [
            51.5, 29.9, 35.5, 34.3, 94.8, 49.8, 40.0, 32.6, 190.0, 97.5, 50.8, 42.0, 373.6, 188.2,
            96.2, 50.3,
        ],
    ),
    (
        (1, 5001, 5003),
        Layout::Nn,
        Input::Bf16,
        [
            40.0, 39.0, 42.8, 49.4, 36.0, 32.4, 32.2, 35.2, 32.3, 28.5, 25.9, 26.9, 48.9, 27.2,
            23.6, 26.3,
        ],
    ),
    (
        (9, 4001, 4003),
        Layout::Nn,
        Input::Bf16,
        [
            36.6, 35.3, 33.9, 39.9, 21.3, 21.7, 27.2, 32.1, 27.8, 17.3, 21.2, 23.6, 45.2, 25.2,
            21.0, 23.0,
        ],
    ),
    (
        (21, 8001, 1501),
        Layout::Nn,
        Input::Bf16,
        [
            30.5, 34.6, 47.9, 73.8, 20.5, 23.1, 30.2, 44.5, 15.2, 16.4, 21.4, 29.2, 22.0, 15.2,
            17.3, 17.8,
        ],
    ),
    (
        (3001, 7, 6001),
        Layout::Nn,
        Input::Bf16,
        [
            41.9, 42.7, 38.8, 39.9, 31.9, 29.9, 29.1, 30.4, 40.1, 25.7, 28.5, 24.8, 74.3, 39.8,
            23.8, 27.8,
        ],
    ),
    (
        (2, 12001, 701),
        Layout::Nn,
        Input::Bf16,
        [
            15.2, 21.6, 30.3, 58.3, 12.2, 14.9, 19.5, 34.2, 10.4, 10.9, 14.1, 18.1, 9.0, 10.2,
            11.7, 16.5,
        ],
    ),
    (
        (4, 901, 12001),
        Layout::Nn,
        Input::Bf16,
        [
            35.8, 19.4, 25.5, 24.7, 54.0, 26.7, 14.6, 18.8, 74.3, 38.5, 20.9, 12.4, 113.6, 58.4,
            30.4, 17.0,
        ],
    ),
    (
        (6, 5001, 5001),
        Layout::Tt,
        Input::Bf16,
        [
            62.8, 52.7, 44.8, 50.3, 42.9, 41.6, 35.4, 35.5, 37.3, 33.3, 30.2, 29.7, 63.5, 36.0,
            31.1, 29.3,
        ],
    ),
    (
        (4001, 5, 3001),
        Layout::Tt,
        Input::Bf16,
        [
            24.0, 26.2, 24.8, 33.5, 14.2, 18.8, 20.4, 22.1, 20.2, 13.1, 15.7, 16.8, 30.0, 17.5,
            15.2, 16.8,
        ],
    ),
    (
        (3, 5001, 3001),
        Layout::Tn,
        Input::Bf16,
        [
            65.9, 53.1, 43.5, 48.4, 43.1, 34.2, 31.0, 32.5, 25.1, 24.9, 23.0, 21.7, 30.2, 19.9,
            19.8, 19.8,
        ],
    ),
    (
        (6001, 11, 2001),
        Layout::Tn,
        Input::Bf16,
        [
            47.7, 40.9, 47.5, 67.1, 33.2, 30.1, 32.5, 52.0, 20.2, 21.2, 22.8, 31.0, 23.4, 16.4,
            16.7, 20.4,
        ],
    ),
    (
        (2, 4097, 4097),
        Layout::Nt,
        Input::Tf32,
        [
            25.7, 28.4, 35.1, 44.8, 26.1, 28.0, 30.3, 29.0, 40.5, 25.5, 37.9, 34.3, 80.2, 43.0,
            37.5, 39.6,
        ],
    ),
    (
        (16, 6001, 1501),
        Layout::Nt,
        Input::Tf32,
        [
            24.3, 24.5, 29.9, 40.5, 20.3, 21.7, 23.9, 35.2, 19.8, 19.5, 20.4, 22.5, 34.7, 21.8,
            23.1, 23.3,
        ],
    ),
    (
        (3, 3001, 4001),
        Layout::Nn,
        Input::Tf32,
        [
            30.1, 26.5, 31.2, 34.1, 24.6, 24.0, 25.0, 26.7, 40.0, 23.4, 24.5, 25.5, 64.3, 34.2,
            20.1, 20.1,
        ],
    ),
];

#[test]
fn the_tile_that_is_chosen_is_near_the_best() {
    let target = Target {
        arch: Arch::SM_90A,
        sms: 132,
    };
    let mut all = 0.0;
    for ((m, n, k), layout, input, times) in TIMED {
        let output = match input {
            Input::Tf32 => Output::F32,
            _ => Output::Bf16,
        };
        let problem = Gemm::new(*m, *n, *k, *input, output, *layout);
        let (_, chosen) = best(&problem, target, &ThinTile::SHARES);
        let place = |of: &[u32], one| of.iter().position(|it| *it == one).expect("known");
        let row = place(&ThinTile::OUTER, chosen.outer);
        let own = times[row * 4 + place(&ThinTile::SHARES, chosen.shares)];
        let least = times.iter().copied().fold(f64::INFINITY, f64::min);
        let behind = own / least;
        assert!(
            behind <= 1.25,
            "{problem}: {chosen}, {behind:.2} of the best"
        );
        all += behind.ln();
    }
    let mean = (all / TIMED.len() as f64).exp();
    assert!(mean <= 1.04, "in the mean {mean:.3}");
}
