//! Rows of numbers.
//!
//! Never inlined: in a crate that is compiled for size they would be, and slow.

/// The sum of products, in four sums, so that they need not wait for each other.
#[inline(never)]
pub fn dot(a: &[f64], b: &[f64]) -> f64 {
    let (a, b) = (a.chunks_exact(4), b.chunks_exact(4));
    let rest = a.remainder().iter().zip(b.remainder());
    let rest: f64 = rest.map(|(a, b)| a * b).sum();
    let mut sums = [0.0; 4];
    for (a, b) in a.zip(b) {
        for (sum, (a, b)) in sums.iter_mut().zip(a.iter().zip(b)) {
            *sum += a * b;
        }
    }
    sums.iter().sum::<f64>() + rest
}

/// Adds `factor` times the values to the sums.
#[inline(never)]
pub fn add(sums: &mut [f64], factor: f64, values: &[f64]) {
    for (sum, value) in sums.iter_mut().zip(values) {
        *sum += factor * value;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_element_is_left_out() {
        for length in 0..10 {
            let numbers: Vec<f64> = (0..length).map(f64::from).collect();
            let squares: f64 = numbers.iter().map(|x| x * x).sum();
            assert_eq!(dot(&numbers, &numbers), squares, "{length} elements");
            let mut sums = numbers.clone();
            add(&mut sums, 2.0, &numbers);
            let tripled: Vec<f64> = numbers.iter().map(|x| 3.0 * x).collect();
            assert_eq!(sums, tripled);
        }
    }
}
