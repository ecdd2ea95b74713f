//! Words that are near to each other: what a misspelt one was meant to be.

/// How many letters must be changed, added or taken away to make one of the other.
pub(super) fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut corner = row[0];
        row[0] = i + 1;
        for (j, y) in b.bytes().enumerate() {
            let change = corner + usize::from(x != y);
            corner = row[j + 1];
            row[j + 1] = change.min(row[j] + 1).min(corner + 1);
        }
    }
    row[b.len()]
}

/// The modifiers of four letters or more, without those that have digits, in order. Shorter ones and digits
/// are near to each other without being misspelt.
#[rustfmt::skip]
const WORDS: &[&str] = &[
    "acq_rel", "acquire", "acube", "alias", "aligned", "alloc", "approx", "array_size", "arrive",
    "arrive_drop", "ashift", "async", "async::generic", "ballot", "base", "bfly", "block_scale",
    "box_dim", "bulk", "bulk_group", "channel_data_type", "channel_order", "clamp", "close",
    "cluster", "coarse", "collector::a::discard", "collector::a::fill", "collector::a::lastuse",
    "collector::a::use", "commit", "commit_group", "complete_tx", "cond", "const", "conv", "count",
    "cp_fenceproxy", "cp_mask", "cube", "dealloc", "depth", "down", "dual", "element_stride",
    "elemtype", "evict_first", "evict_last", "evict_normal", "evict_unchanged", "exch",
    "exclusive", "expand", "expect_tx", "fence", "fence::after_thread_sync",
    "fence::before_thread_sync", "fill_mode", "filter_mode", "finite", "footprint",
    "force_unnormalized_coords", "fractional", "full", "fused", "get_first_ctaid",
    "get_first_ctaid::x", "get_first_ctaid::y", "get_first_ctaid::z", "global", "global_address",
    "global_dim", "global_stride", "grad", "group", "height", "ignore_oob", "infinite", "init",
    "interleave_layout", "inval", "invall", "is_canceled", "kind", "launch_dependents", "layout",
    "ld_reduce", "level", "load", "local", "managed", "mask", "maxabs", "mbarrier",
    "mbarrier::arrive::one", "mbarrier::complete_tx::bytes", "mbarrier_init", "meta", "mma_async",
    "mmio", "mode", "multicast", "multicast::cluster", "multicast::cluster::all", "multimem",
    "noComplete", "no_allocate", "noftz", "noinc", "normal", "normalized_coords", "notanumber",
    "num_mipmap_levels", "num_samples", "number", "op_restrict", "pack", "pair", "param",
    "param::entry", "param::func", "parity", "pending_count", "popc", "pred", "prefetch", "proxy",
    "quad", "query_cancel", "rand", "range", "rank", "read", "reduce", "relaxed", "release",
    "relinquish_alloc_permit", "relu", "replace", "reserved", "reverse", "samplerref", "satfinite",
    "self", "shape", "shared", "shared::cluster", "shared::cta", "shift", "shiftamt", "store",
    "subnormal", "surf", "surfref", "swizzle_atomicity", "swizzle_mode", "sync", "sync_restrict",
    "sync_restrict::shared::cluster", "sync_restrict::shared::cluster::read",
    "sync_restrict::shared::cta", "tensor", "tensormap", "tensormap::generic", "test_wait",
    "texref", "thread", "tile", "trans", "transA", "transB", "trap", "try_cancel", "try_wait",
    "unanimous", "unified", "unique", "volatile", "wait", "wait::ld", "wait::st", "wait_all",
    "wait_group", "warp", "warpgroup", "weak", "wide", "width", "wrap", "write", "xorsign", "zero",
];

/// The modifier that was probably meant by one that no instruction has. One that is not near to any
/// may be newer than this list, and is left alone.
pub(crate) fn misspelt(modifier: &str) -> Option<&'static str> {
    let word = modifier.len() >= 4 && !modifier.bytes().any(|byte| byte.is_ascii_digit());
    if !word || WORDS.binary_search(&modifier).is_ok() {
        return None;
    }
    let near = |meant: &&str| match distance(modifier, meant) {
        1 => true,
        // Two letters that have changed places.
        2 => letters(modifier) == letters(meant),
        _ => false,
    };
    WORDS.iter().copied().find(near)
}

fn letters(word: &str) -> Vec<u8> {
    let mut letters = word.as_bytes().to_vec();
    letters.sort_unstable();
    letters
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_modifier_is_known_by_what_it_is_near_to() {
        assert!(WORDS.is_sorted());
        for (word, meant) in [
            ("snyc", Some("sync")),
            ("acq_rll", Some("acq_rel")),
            ("globl", Some("global")),
            ("commit_grup", Some("commit_group")),
            ("sync", None),
            ("e4m3x2", None),
            ("uni", None),
            ("something_new", None),
        ] {
            assert_eq!(misspelt(word), meant, "{word}");
        }
    }
}
