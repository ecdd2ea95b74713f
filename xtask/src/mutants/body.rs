//! Where a function's body is: braces in comments, strings and constants are none of it.

use std::ops::Range;

/// The inside of the braces at the end of a function's text; `None` where the text does
/// not end with a block.
pub(super) fn of(function: &str) -> Option<Range<usize>> {
    let mut open = Vec::new();
    let mut last = None;
    for (offset, byte) in code(function) {
        match byte {
            b'{' => open.push(offset),
            b'}' => last = Some((open.pop()? + 1, offset)),
            _ => {}
        }
    }
    let (start, end) = last?;
    (open.is_empty() && end + 1 == function.trim_end().len()).then_some(start..end)
}

/// Whether a function may be called in constants: nothing can be asked at run time there.
pub(super) fn is_const(head: &str) -> bool {
    let bytes: Vec<u8> = code(head).map(|(_, byte)| byte).collect();
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let words: Vec<&str> = text.split_whitespace().collect();
    let word = words.iter().position(|&word| word == "fn");
    word.is_some_and(|at| words[at.saturating_sub(2)..at].contains(&"const"))
}

/// The bytes outside of comments and literals, with their offsets.
fn code(text: &str) -> impl Iterator<Item = (usize, u8)> {
    let bytes = text.as_bytes();
    let mut at = 0;
    std::iter::from_fn(move || {
        loop {
            let rest = &bytes[at..];
            let before = at.checked_sub(1).map_or(b' ', |before| bytes[before]);
            let skipped = match rest {
                [] => return None,
                [b'/', b'/', ..] => line_comment(rest),
                [b'/', b'*', ..] => block_comment(rest),
                [b'"', ..] => string(rest),
                [b'r', b'"' | b'#', ..] if !is_word(before) || before == b'b' => raw_string(rest),
                [b'\'', ..] => character(rest),
                _ => 0,
            };
            if skipped == 0 {
                at += 1;
                return Some((at - 1, rest[0]));
            }
            at += skipped;
        }
    })
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

fn line_comment(rest: &[u8]) -> usize {
    let end = rest.iter().position(|&byte| byte == b'\n');
    end.unwrap_or(rest.len())
}

fn block_comment(rest: &[u8]) -> usize {
    let (mut depth, mut at) = (0_usize, 0);
    while at < rest.len() {
        let width = match rest[at..] {
            [b'/', b'*', ..] => {
                depth += 1;
                2
            }
            [b'*', b'/', ..] => {
                depth -= 1;
                2
            }
            _ => 1,
        };
        at += width;
        if depth == 0 {
            break;
        }
    }
    at.min(rest.len())
}

fn string(rest: &[u8]) -> usize {
    let mut at = 1;
    while at < rest.len() && rest[at] != b'"' {
        at += if rest[at] == b'\\' { 2 } else { 1 };
    }
    (at + 1).min(rest.len())
}

/// The width of a raw string; 0 for a raw name such as `r#type`.
fn raw_string(rest: &[u8]) -> usize {
    let hashes = rest[1..].iter().take_while(|&&byte| byte == b'#').count();
    if rest.get(1 + hashes) != Some(&b'"') {
        return 0;
    }
    let end: Vec<u8> = std::iter::once(b'"')
        .chain(std::iter::repeat_n(b'#', hashes))
        .collect();
    let start = hashes + 2;
    let inside = rest[start..]
        .windows(end.len())
        .position(|window| window == end);
    inside.map_or(rest.len(), |inside| start + inside + end.len())
}

/// The width of a character; 0 for a lifetime or a label.
fn character(rest: &[u8]) -> usize {
    if rest.get(1) == Some(&b'\\') {
        let end = rest[3..].iter().position(|&byte| byte == b'\'');
        return end.map_or(rest.len(), |end| end + 4);
    }
    let text = std::str::from_utf8(rest).unwrap_or_default();
    let mut characters = text.char_indices().skip(2);
    match characters.next() {
        Some((at, '\'')) => at + 1,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_found_past_braces_that_are_none() {
        for (function, body) in [
            ("fn a() { b }", " b "),
            ("#[doc = \"{\"]\n/// It's {\nfn a() {}", ""),
            (
                "fn a<'b>(c: &'b str) -> [u8; { 3 }] { '{'; '\\'' }",
                " '{'; '\\'' ",
            ),
            (
                "fn a() { r#\"}\"#; br\"{\"; r#type; /* { /* } */ */ }",
                " r#\"}\"#; br\"{\"; r#type; /* { /* } */ */ ",
            ),
            (
                "fn a() { 'b: loop { break 'b } \"\\\"}\" }",
                " 'b: loop { break 'b } \"\\\"}\" ",
            ),
        ] {
            let range = of(function).unwrap_or_else(|| panic!("{function}"));
            assert_eq!(&function[range], body);
        }
        assert_eq!(of("fn a();"), None);
        assert_eq!(of("fn a() { {"), None);
    }

    #[test]
    fn functions_of_constants_are_known() {
        assert!(is_const("pub(crate) const fn a() "));
        assert!(is_const("const unsafe fn a() "));
        assert!(!is_const(
            "/// A const fn is none.\nfn a<const N: usize>() "
        ));
    }
}
