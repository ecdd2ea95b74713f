//! The Hilbert curve over a rectangle: the curve of the enclosing square without the points
//! outside.

/// The points of a `width` by `height` rectangle along the curve.
///
/// Quarters that lie outside are skipped whole: a line of 100,000 tiles has an
/// enclosing square of 2^34 points.
pub(super) fn walk(width: u32, height: u32) -> impl Iterator<Item = (u32, u32)> {
    let side = u64::from(width.max(height).max(1).next_power_of_two());
    let inside = move |x: u64, y: u64| x < u64::from(width) && y < u64::from(height);
    let mut distance = 0;
    std::iter::from_fn(move || {
        while distance < side * side {
            let (x, y) = point(side, distance);
            if inside(x, y) {
                distance += 1;
                return Some((x as u32, y as u32));
            }
            // The largest square of the curve that starts here and has no
            // point inside; its corner is the point nearest to the rectangle.
            let mut size = 1;
            while size < side && distance.is_multiple_of(4 * size * size) {
                let corner = !(2 * size - 1);
                if inside(x & corner, y & corner) {
                    break;
                }
                size *= 2;
            }
            distance += size * size;
        }
        None
    })
}

/// The point at `distance` along the curve of a square with `side` points: each
/// pair of bits picks a quarter and turns what was inside it.
fn point(side: u64, distance: u64) -> (u64, u64) {
    let (mut x, mut y, mut rest, mut size) = (0u64, 0u64, distance, 1u64);
    while size < side {
        let right = 1 & (rest / 2);
        let up = 1 & (rest ^ right);
        if up == 0 {
            if right == 1 {
                (x, y) = (size - 1 - x, size - 1 - y);
            }
            (x, y) = (y, x);
        }
        x += size * right;
        y += size * up;
        rest /= 4;
        size *= 2;
    }
    (x, y)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_skipped_lies_outside() {
        for (width, height) in [(1, 1), (5, 3), (3, 17), (16, 16), (1, 40), (33, 2)] {
            let side = u64::from(u32::max(width, height).next_power_of_two());
            let plain: Vec<(u32, u32)> = (0..side * side)
                .map(|distance| point(side, distance))
                .map(|(x, y)| (x as u32, y as u32))
                .filter(|&(x, y)| x < width && y < height)
                .collect();
            assert_eq!(walk(width, height).collect::<Vec<_>>(), plain);
        }
    }

    #[test]
    fn a_long_line_is_walked_without_its_square() {
        // The square around this line has 2^40 points: visiting them all would never end.
        assert_eq!(walk(1_000_000, 1).count(), 1_000_000);
    }
}
