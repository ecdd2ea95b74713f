//! The Hilbert curve over a rectangle: the curve of the enclosing square with
//! what lies outside left out.

/// The points of a `width` by `height` rectangle along the curve.
pub(super) fn walk(width: u32, height: u32) -> impl Iterator<Item = (u32, u32)> {
    let side = u64::from(width.max(height).max(1).next_power_of_two());
    (0..side * side)
        .map(move |distance| point(side, distance))
        .filter(move |&(x, y)| x < width && y < height)
}

/// The point at `distance` along the curve of a square with `side` points: each
/// pair of bits picks a quarter and turns what was inside it.
fn point(side: u64, distance: u64) -> (u32, u32) {
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
    (x as u32, y as u32)
}
