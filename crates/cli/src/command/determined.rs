//! How far a kernel's PTX determines the bytes that it leaves. Two right runs of it may differ where
//! PTX leaves the last bits open, or the order of threads.

use half::{bf16, f16};

/// What two runs on the same memory have in common.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Determined {
    /// Every bit.
    Exactly,
    /// Numbers up to rounding; the instruction that leaves it open.
    Nearly(String),
    /// Nothing that can be told from outside; the word that makes it so.
    Freely(String),
}

impl Determined {
    /// By the instructions of a text.
    pub(super) fn by(ptx: &str) -> Determined {
        let mut nearly = None;
        for line in ptx.lines() {
            let code = line.split("//").next().unwrap_or("");
            for word in code.split([' ', '\t', ',', ';', '(', ')', '{', '}', '[', ']']) {
                if is_free(word) {
                    return Determined::Freely(word.to_owned());
                }
                if nearly.is_none() && is_rounded(word) {
                    nearly = Some(word.to_owned());
                }
            }
        }
        nearly.map_or(Determined::Exactly, Determined::Nearly)
    }
}

/// Whether a word makes results depend on the order of threads, on where they run, or on time.
fn is_free(word: &str) -> bool {
    const PLACES: [&str; 6] = [
        "%clock",
        "%globaltimer",
        "%smid",
        "%warpid",
        "%gridid",
        "%nsmid",
    ];
    let floats = [".f16", ".f32", ".f64", ".bf16"];
    let sums = |word: &str| floats.iter().any(|ty| word.contains(ty));
    // What an atomic returns depends on who came before.
    word.starts_with("atom.")
        || (word.starts_with("red.") || word.starts_with("multimem.")) && sums(word)
        || PLACES.iter().any(|place| word.starts_with(place))
        || matches!(word, "malloc" | "nanosleep.u32")
}

/// Whether a word is an instruction whose last bits PTX leaves open: approximations, sums of tensor
/// cores, and plain sums and products, which the assembler may fuse.
fn is_rounded(word: &str) -> bool {
    let is = |name: &str| word.starts_with(name);
    if is("mma.") || is("wmma.mma") || is("wgmma.mma") || is("tcgen05.mma") {
        return true;
    }
    let plain =
        (is("add.") || is("sub.") || is("mul.")) && word.contains('f') && !word.contains(".rn");
    let float = [".f16", ".f32", ".f64", ".bf16", "x2"]
        .iter()
        .any(|ty| word.ends_with(ty));
    float && (word.contains(".approx") || word.contains(".full") || plain)
}

/// Whether two words of memory hold numbers that differ by rounding: as f32, or as two of 16 bits.
pub(super) fn is_near(a: u32, b: u32) -> bool {
    let near = |a: f32, b: f32, bits: i32| {
        let both_nan = a.is_nan() && b.is_nan();
        both_nan || a == b || (a - b).abs() <= a.abs().max(b.abs()) * 2f32.powi(-bits)
    };
    let halves = |word: u32| [word as u16, (word >> 16) as u16];
    let each = |near: &dyn Fn(u16, u16) -> bool| {
        halves(a)
            .into_iter()
            .zip(halves(b))
            .all(|(a, b)| near(a, b))
    };
    near(f32::from_bits(a), f32::from_bits(b), 10)
        || each(&|a, b| near(f16::from_bits(a).to_f32(), f16::from_bits(b).to_f32(), 7))
        || each(&|a, b| near(bf16::from_bits(a).to_f32(), bf16::from_bits(b).to_f32(), 5))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_instructions_say_what_is_determined() {
        let by = |text: &str| Determined::by(text);
        let nearly = |word: &str| Determined::Nearly(word.to_owned());
        let freely = |word: &str| Determined::Freely(word.to_owned());
        assert_eq!(
            by("add.rn.f32 a, b, c;\nmad.lo.u32 d, e, f, g; // ex2.approx.f32"),
            Determined::Exactly
        );
        assert_eq!(
            by("fma.rn.f32 a, b, c, d; red.global.add.u32 [p], 1;"),
            Determined::Exactly
        );
        assert_eq!(
            by("@p ex2.approx.ftz.f32 a, b;"),
            nearly("ex2.approx.ftz.f32")
        );
        assert_eq!(by("mul.f32 a, b, c;"), nearly("mul.f32"));
        assert_eq!(
            by("{wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {a}"),
            nearly("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16")
        );
        assert_eq!(
            by("ex2.approx.f32 a, b;\nmov.u64 %rd1, %clock64;"),
            freely("%clock64")
        );
        assert_eq!(
            by("atom.global.add.u32 r, [p], 1;"),
            freely("atom.global.add.u32")
        );
        assert_eq!(
            by("red.global.add.f32 [p], 1;"),
            freely("red.global.add.f32")
        );
    }

    #[test]
    fn rounding_is_told_from_other_numbers() {
        assert!(is_near(1f32.to_bits(), 1f32.to_bits() + 1));
        assert!(is_near(f32::NAN.to_bits(), f32::NAN.to_bits() + 1));
        assert!(!is_near(1f32.to_bits(), 1.01f32.to_bits()));
        assert!(!is_near(5, 6), "small integers are none");
        // Two halves: one the same, one in its last bit.
        assert!(is_near(0x9642_cca2, 0x9643_cca2));
        assert!(!is_near(0x9642_cca2, 0x1643_cca2));
    }
}
