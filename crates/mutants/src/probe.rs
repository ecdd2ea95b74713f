//! A race that is put into a text on purpose: whether the detector sees two lanes apart at a place.

use crate::mutation::instruction;

/// Threads of a launch that have a word each: the probe is for launches of no more.
pub(crate) const THREADS: u64 = 1 << 20;

/// The lines of a probe between a store of each lane and a load of its neighbour's word.
const BEFORE: &str = "\
mov.u32 %heist_a, %ctaid.z; mov.u32 %heist_b, %nctaid.y; mov.u32 %heist_c, %ctaid.y; \
mad.lo.u32 %heist_a, %heist_a, %heist_b, %heist_c; \
mov.u32 %heist_b, %nctaid.x; mov.u32 %heist_c, %ctaid.x; \
mad.lo.u32 %heist_a, %heist_a, %heist_b, %heist_c; \
mov.u32 %heist_b, %ntid.z; mov.u32 %heist_c, %tid.z; \
mad.lo.u32 %heist_a, %heist_a, %heist_b, %heist_c; \
mov.u32 %heist_b, %ntid.y; mov.u32 %heist_c, %tid.y; \
mad.lo.u32 %heist_a, %heist_a, %heist_b, %heist_c; \
mov.u32 %heist_b, %ntid.x; mov.u32 %heist_c, %tid.x; \
mad.lo.u32 %heist_a, %heist_a, %heist_b, %heist_c; \
mov.u64 %heist_e, heist_probe; \
mul.wide.u32 %heist_d, %heist_a, 4; add.u64 %heist_d, %heist_d, %heist_e; \
st.global.u32 [%heist_d], %heist_a; ";
const BEHIND: &str = "\
xor.b32 %heist_a, %heist_a, 1; \
mul.wide.u32 %heist_d, %heist_a, 4; add.u64 %heist_d, %heist_d, %heist_e; \
ld.global.u32 %heist_a, [%heist_d]; }";

/// The text with a probe around the warp's barrier of a line, counted from 1, or in its place: each lane
/// writes a word, and then reads its neighbour's. A second barrier before both keeps the rounds of a loop
/// apart. The lines keep their numbers.
pub(crate) fn around_warp_barrier(text: &str, line: usize, kept: bool) -> Option<String> {
    let lines: Vec<&str> = text.lines().collect();
    let whole = *lines.get(line.checked_sub(1)?)?;
    let barrier = instruction(whole).filter(|one| one.opcode.starts_with("bar.warp.sync"))?;
    if barrier.is_guarded() {
        return None;
    }
    let between = if kept { whole.trim() } else { "" };
    let first = whole.trim();
    let probe = format!(
        "{{ .reg .b32 %heist_a, %heist_b, %heist_c; .reg .b64 %heist_d, %heist_e; {first} {BEFORE}{between} {BEHIND}"
    );
    let header = lines[..line]
        .iter()
        .position(|one| one.contains(".entry ") || one.contains(".func "))?;
    let words = format!(
        ".global .align 4 .b32 heist_probe[{THREADS}]; {}",
        lines[header]
    );
    let probed = lines.iter().enumerate().map(|(at, &one)| {
        if at + 1 == line {
            probe.as_str()
        } else if at == header {
            words.as_str()
        } else {
            one
        }
    });
    Some(probed.collect::<Vec<_>>().join("\n") + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_stands_in_the_line_of_the_barrier() {
        let text = ".visible .entry k()\n{\n    bar.warp.sync -1;\n    ret;\n}\n";
        let kept = around_warp_barrier(text, 3, true).unwrap();
        let gone = around_warp_barrier(text, 3, false).unwrap();
        assert_eq!(kept.matches("bar.warp.sync -1;").count(), 2);
        assert_eq!(gone.matches("bar.warp.sync -1;").count(), 1);
        assert_eq!(kept.lines().count(), text.lines().count());
        assert!(kept.starts_with(".global .align 4 .b32 heist_probe["));
        assert_eq!(around_warp_barrier(text, 4, true), None);
    }
}
