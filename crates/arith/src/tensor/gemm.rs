//! The inner product that all shapes share.

use crate::lanes::multiversion;

/// A number that the inner loop can work with.
pub(super) trait Number: Copy {
    /// `self * factor + sum`, where the product is exact: so it is the same in one step,
    /// which `FUSES` asks for, as in two.
    fn times_plus<const FUSES: bool>(self, factor: Self, sum: Self) -> Self;
}

impl Number for f64 {
    #[inline(always)]
    fn times_plus<const FUSES: bool>(self, factor: f64, sum: f64) -> f64 {
        if FUSES {
            self.mul_add(factor, sum)
        } else {
            self * factor + sum
        }
    }
}

impl Number for i32 {
    #[inline(always)]
    fn times_plus<const FUSES: bool>(self, factor: i32, sum: i32) -> i32 {
        self * factor + sum
    }
}

/// Rows and columns of the block that stays in registers.
const ROWS: usize = 4;
const COLUMNS: usize = 8;

multiversion! {
    /// As [`gemm_inline`], compiled for what the host can do.
    pub(super) fn gemm[T: Number][T](m: usize, n: usize, k: usize, a: &[T], b: &[T], c: &mut [T]) {
        gemm_inline::<FUSES, T>(m, n, k, a, b, c);
    }
}

/// `c += a * b` for row-major matrices: `c` is m by n, `a` m by k, `b` k by n. Each
/// element of `c` sums its products in the order of k. Slices that are too short
/// are left alone. Products must be exact, and integers must not overflow.
#[inline(always)]
pub(super) fn gemm_inline<const FUSES: bool, T: Number>(
    m: usize,
    n: usize,
    k: usize,
    a: &[T],
    b: &[T],
    c: &mut [T],
) {
    let (Some(a), Some(b), Some(c)) = (a.get(..m * k), b.get(..k * n), c.get_mut(..m * n)) else {
        return;
    };
    let mut row = 0;
    while row + ROWS <= m {
        let mut column = 0;
        while column + COLUMNS <= n {
            block::<FUSES, T>(row, column, n, k, a, b, c);
            column += COLUMNS;
        }
        edge::<FUSES, T>(row, row + ROWS, column, n, k, a, b, c);
        row += ROWS;
    }
    edge::<FUSES, T>(row, m, 0, n, k, a, b, c);
}

#[inline(always)]
fn block<const FUSES: bool, T: Number>(
    row: usize,
    column: usize,
    n: usize,
    k: usize,
    a: &[T],
    b: &[T],
    c: &mut [T],
) {
    let mut sums: [[T; COLUMNS]; ROWS] =
        std::array::from_fn(|i| std::array::from_fn(|j| c[(row + i) * n + column + j]));
    for step in 0..k {
        let line = &b[step * n + column..step * n + column + COLUMNS];
        for (i, sums) in sums.iter_mut().enumerate() {
            let factor = a[(row + i) * k + step];
            for (sum, x) in sums.iter_mut().zip(line) {
                *sum = x.times_plus::<FUSES>(factor, *sum);
            }
        }
    }
    for (i, sums) in sums.iter().enumerate() {
        c[(row + i) * n + column..(row + i) * n + column + COLUMNS].copy_from_slice(sums);
    }
}

/// What the blocks leave over: rows `from` to `to`, from `column` on.
#[inline(always)]
#[allow(clippy::too_many_arguments)]
fn edge<const FUSES: bool, T: Number>(
    from: usize,
    to: usize,
    column: usize,
    n: usize,
    k: usize,
    a: &[T],
    b: &[T],
    c: &mut [T],
) {
    for row in from..to {
        for j in column..n {
            let mut sum = c[row * n + j];
            for step in 0..k {
                sum = a[row * k + step].times_plus::<FUSES>(b[step * n + j], sum);
            }
            c[row * n + j] = sum;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::Random;

    #[test]
    fn agrees_with_three_loops() {
        let mut random = Random(61);
        for (m, n, k) in [
            (16, 8, 16),
            (8, 8, 4),
            (64, 24, 16),
            (5, 11, 3),
            (1, 1, 1),
            (32, 8, 16),
        ] {
            let mut fill =
                |len: usize| -> Vec<i32> { (0..len).map(|_| random.next() as i8 as i32).collect() };
            let (a, b, c) = (fill(m * k), fill(k * n), fill(m * n));
            let mut expect = c.clone();
            for i in 0..m {
                for j in 0..n {
                    expect[i * n + j] += (0..k).map(|s| a[i * k + s] * b[s * n + j]).sum::<i32>();
                }
            }
            let mut got = c.clone();
            gemm(m, n, k, &a, &b, &mut got);
            assert_eq!(got, expect, "{m} {n} {k}");
            let float = |v: &[i32]| -> Vec<f64> { v.iter().map(|x| f64::from(*x)).collect() };
            let mut got = float(&c);
            gemm(m, n, k, &float(&a), &float(&b), &mut got);
            assert_eq!(got, float(&expect));
        }
        let mut short = [1];
        gemm(4, 8, 2, &[1], &[1], &mut short);
        assert_eq!(short, [1]);
    }
}
