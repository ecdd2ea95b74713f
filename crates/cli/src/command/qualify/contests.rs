//! Problems that are timed beside the peers: of each family some that keep every multiprocessor busy
//! for several rounds of tiles, so that a larger GPU has larger ones.

/// Tiles of 128 by 128 that a multiprocessor has of a product.
const ROUNDS: u32 = 8;
/// Heads of attention, each 128 wide.
const HEADS: u32 = 16;

/// A family, and a problem of it.
pub(super) type Contest = (&'static str, String);

/// Those of a GPU with so many multiprocessors.
pub(super) fn contests(sms: u32) -> Vec<Contest> {
    let side = side(sms);
    let square = format!("m={side} n={side} k={side}");
    // As many tiles of 128 queries as two of those of a product.
    let batch = (sms * 2 * ROUNDS * 128 / (HEADS * side)).max(1);
    let attention = format!("batch={batch} heads={HEADS} queries={side} dim=128");
    // Tokens of experts: from one in a hundred to half of all.
    let rows = [1, 32, 2, 1, 8, 24, 3, 57].map(|part| (part * side / 64).to_string());
    let grouped = format!("rows={} n={side} k={side}", rows.join(","));
    vec![
        ("gemm", square.clone()),
        ("gemm", format!("{square} layout=nn")),
        ("gemm", format!("{square} dtype=e4m3 scales=rows")),
        ("gemm", format!("{square} dtype=e4m3 scales=mx")),
        ("grouped-gemm", grouped),
        ("attention", attention.clone()),
        ("attention", format!("{attention} mask=causal")),
        ("attention-backward", format!("{attention} mask=causal")),
    ]
}

/// Rows, columns and depth of a product: a multiple of 256.
fn side(sms: u32) -> u32 {
    let tiles = f64::from(sms * ROUNDS);
    (tiles.sqrt() * 128.0 / 256.0).round().max(1.0) as u32 * 256
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_larger_gpu_has_larger_problems() {
        assert_eq!([1, 4, 132, 148].map(side), [256, 768, 4096, 4352]);
        let h200 = contests(132);
        assert_eq!(h200[0], ("gemm", "m=4096 n=4096 k=4096".to_owned()));
        assert_eq!(h200[5].1, "batch=4 heads=16 queries=4096 dim=128");
        assert!(
            h200[4]
                .1
                .starts_with("rows=64,2048,128,64,512,1536,192,3648 ")
        );
    }
}
