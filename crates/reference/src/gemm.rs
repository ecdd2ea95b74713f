//! Matrix multiplication in f64.

use crate::numbers::each_part;

/// A matrix in a list of numbers.
#[derive(Clone, Copy, Debug)]
pub struct Matrix<'a> {
    /// The numbers.
    pub data: &'a [f64],
    /// From one row to the next.
    pub row: usize,
    /// From one column to the next.
    pub col: usize,
}

impl<'a> Matrix<'a> {
    /// Stored row after row, `cols` to a row.
    pub fn rows(data: &'a [f64], cols: usize) -> Matrix<'a> {
        Matrix {
            data,
            row: cols,
            col: 1,
        }
    }

    /// Stored column after column, `rows` to a column.
    pub fn columns(data: &'a [f64], rows: usize) -> Matrix<'a> {
        Matrix {
            data,
            row: 1,
            col: rows,
        }
    }

    fn at(&self, row: usize, col: usize) -> f64 {
        let at = row * self.row + col * self.col;
        self.data.get(at).copied().unwrap_or(f64::NAN)
    }
}

/// The product of `a` (m x k) and `b` (k x n), row after row.
pub fn matmul(a: Matrix<'_>, b: Matrix<'_>, m: usize, n: usize, k: usize) -> Vec<f64> {
    const DEPTH: usize = 256;
    let mut c = vec![0.0; m * n];
    each_part(&mut c, n, |first, rows| {
        // A block of b, row after row, is used by all rows before the next one.
        let mut block = Vec::new();
        for from in (0..k).step_by(DEPTH) {
            let to = (from + DEPTH).min(k);
            block.clear();
            block.extend((from..to).flat_map(|d| (0..n).map(move |col| b.at(d, col))));
            for (row, sums) in rows.chunks_exact_mut(n).enumerate() {
                for (d, line) in (from..to).zip(block.chunks_exact(n)) {
                    let factor = a.at(first + row, d);
                    for (sum, value) in sums.iter_mut().zip(line) {
                        *sum += factor * value;
                    }
                }
            }
        }
    });
    c
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_multiplies() {
        let a = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
        let b = [7.0, 8.0, 9.0, 10.0, 11.0, 12.0];
        let product = [58.0, 64.0, 139.0, 154.0];
        assert_eq!(
            matmul(Matrix::rows(&a, 3), Matrix::rows(&b, 2), 2, 2, 3),
            product
        );
        let turned = [7.0, 9.0, 11.0, 8.0, 10.0, 12.0];
        assert_eq!(
            matmul(Matrix::rows(&a, 3), Matrix::columns(&turned, 3), 2, 2, 3),
            product
        );
        assert_eq!(
            matmul(Matrix::rows(&a, 0), Matrix::rows(&b, 2), 2, 2, 0),
            [0.0; 4]
        );
    }

    #[test]
    fn blocks_do_not_show() {
        let (m, n, k) = (5, 3, 700);
        let numbers = |count: usize, by: usize| {
            (0..count)
                .map(|i| ((i * by) % 17) as f64 - 8.0)
                .collect::<Vec<_>>()
        };
        let (a, b) = (numbers(m * k, 7), numbers(k * n, 5));
        let c = matmul(Matrix::rows(&a, k), Matrix::rows(&b, n), m, n, k);
        for row in 0..m {
            for col in 0..n {
                let exact: f64 = (0..k).map(|d| a[row * k + d] * b[d * n + col]).sum();
                assert_eq!(c[row * n + col], exact);
            }
        }
    }
}
