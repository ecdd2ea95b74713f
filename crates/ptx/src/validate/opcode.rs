//! The opcodes of PTX, by what stands before the first dot.

/// Sorted, for a binary search.
#[rustfmt::skip]
const OPCODES: &[&str] = &[
    "abs", "activemask", "add", "addc", "alloca", "and", "applypriority", "atom", "bar", "barrier",
    "bfe", "bfi", "bfind", "bmsk", "bra", "brev", "brkpt", "brx", "call", "cctl", "cctlu",
    "clusterlaunchcontrol", "clz", "cnot", "copysign", "cos", "cp", "createpolicy", "cvt", "cvta",
    "discard", "div", "dp2a", "dp4a", "elect", "ex2", "exit", "fabric", "fence", "fma", "fns",
    "getctarank", "griddepcontrol", "isspacep", "istypep", "ld", "ldmatrix", "ldu", "lg2", "lop3",
    "mad", "mad24", "madc", "mapa", "match", "max", "mbarrier", "membar", "min", "mma", "mov",
    "movmatrix", "mul", "mul24", "multimem", "nanosleep", "neg", "not", "or", "pmevent", "popc",
    "prefetch", "prefetchu", "prmt", "rcp", "red", "redux", "rem", "ret", "rsqrt", "sad", "selp",
    "set", "setmaxnreg", "setp", "shf", "shfl", "shl", "shr", "sin", "slct", "spdecompress", "sqrt",
    "st", "stackrestore", "stacksave", "stmatrix", "sub", "subc", "suld", "suq", "sured", "sust",
    "szext", "tanh", "tcgen05", "tensormap", "testp", "tex", "tld4", "trap", "txq", "vabsdiff",
    "vabsdiff2", "vabsdiff4", "vadd", "vadd2", "vadd4", "vavrg2", "vavrg4", "vmad", "vmax", "vmax2",
    "vmax4", "vmin", "vmin2", "vmin4", "vote", "vset", "vset2", "vset4", "vshl", "vshr", "vsub",
    "vsub2", "vsub4", "wgmma", "wmma", "xor",
];

/// Whether PTX has instructions that begin with `base`. What begins with an
/// underscore is internal to the vendor's compilers and taken on trust.
pub(super) fn is_known(base: &str) -> bool {
    base.starts_with('_') || OPCODES.binary_search(&base).is_ok()
}

/// The opcode that `base` was probably meant to be.
pub(super) fn similar(base: &str) -> Option<&'static str> {
    let distance = |other: &str| {
        let (a, b) = (base.as_bytes(), other.as_bytes());
        let mut row: Vec<usize> = (0..=b.len()).collect();
        for (i, x) in a.iter().enumerate() {
            let mut corner = row[0];
            row[0] = i + 1;
            for (j, y) in b.iter().enumerate() {
                let change = corner + usize::from(x != y);
                corner = row[j + 1];
                row[j + 1] = change.min(row[j] + 1).min(corner + 1);
            }
        }
        row[b.len()]
    };
    if base.len() > 32 {
        return None;
    }
    let allowed = if base.len() < 4 { 1 } else { 2 };
    OPCODES
        .iter()
        .map(|&other| (distance(other), other))
        .filter(|&(distance, _)| distance <= allowed)
        .min()
        .map(|(_, other)| other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_sorted() {
        assert!(OPCODES.is_sorted_by(|a, b| a < b));
    }

    #[test]
    fn slips_are_recognised() {
        assert!(is_known("mbarrier") && !is_known("mbarier"));
        assert_eq!(similar("mbarier"), Some("mbarrier"));
        assert_eq!(similar("addd"), Some("add"));
        assert_eq!(similar("frobnicate"), None);
    }
}
