//! As much of ELF as it takes to find the sections of a cubin: 64-bit, little-endian.

use std::collections::BTreeMap;

/// Why a file could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ElfError(pub &'static str);

impl std::fmt::Display for ElfError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "not a readable cubin: {}", self.0)
    }
}

impl std::error::Error for ElfError {}

const CUT_SHORT: ElfError = ElfError("it is cut short");

fn bytes_at(file: &[u8], at: u64, len: u64) -> Result<&[u8], ElfError> {
    let start = usize::try_from(at).map_err(|_| CUT_SHORT)?;
    let len = usize::try_from(len).map_err(|_| CUT_SHORT)?;
    let end = start.checked_add(len).ok_or(CUT_SHORT)?;
    file.get(start..end).ok_or(CUT_SHORT)
}

fn number(file: &[u8], at: u64, width: u64) -> Result<u64, ElfError> {
    let bytes = bytes_at(file, at, width)?;
    Ok(bytes
        .iter()
        .rev()
        .fold(0, |value, &byte| value << 8 | u64::from(byte)))
}

/// The contents of every section whose name `wanted` picks.
pub(crate) fn sections(
    file: &[u8],
    wanted: impl Fn(&str) -> bool,
) -> Result<BTreeMap<String, Vec<u8>>, ElfError> {
    const NO_BITS: u64 = 8;
    if bytes_at(file, 0, 6)? != b"\x7fELF\x02\x01" {
        return Err(ElfError("it is not a 64-bit little-endian ELF file"));
    }
    let table = number(file, 0x28, 8)?;
    let entry = number(file, 0x3A, 2)?;
    let count = number(file, 0x3C, 2)?;
    let names = number(file, 0x3E, 2)?;
    let header = |index: u64| table.saturating_add(index.saturating_mul(entry));
    let names_at = number(file, header(names).saturating_add(0x18), 8)?;
    let mut found = BTreeMap::new();
    for index in 0..count {
        let at = header(index);
        let name_at = names_at.saturating_add(number(file, at, 4)?);
        let tail = file
            .get(usize::try_from(name_at).map_err(|_| CUT_SHORT)?..)
            .ok_or(CUT_SHORT)?;
        let end = tail
            .iter()
            .position(|&byte| byte == 0)
            .ok_or(ElfError("a section's name has no end"))?;
        let name = String::from_utf8_lossy(&tail[..end]).into_owned();
        if wanted(&name) {
            let contents = if number(file, at.saturating_add(4), 4)? == NO_BITS {
                &[]
            } else {
                let offset = number(file, at.saturating_add(0x18), 8)?;
                bytes_at(file, offset, number(file, at.saturating_add(0x20), 8)?)?
            };
            found.insert(name, contents.to_vec());
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_elf_is_an_error() {
        assert!(sections(b"", |_| true).is_err());
        assert!(sections(&[0x7f; 100], |_| true).is_err());
        let mut short = b"\x7fELF\x02\x01".to_vec();
        short.resize(0x40, 0xff);
        assert!(sections(&short, |_| true).is_err());
    }
}
