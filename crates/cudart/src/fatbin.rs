//! The PTX in a program's image: fat binaries as nvcc embeds them.

use crate::raw;
use std::ffi::c_void;
use std::io::Read;

const WRAPPER: u32 = 0x4662_43b1;
const CONTAINER: u32 = 0xba55_ed50;
const LZ4: u64 = 0x2000;
const ZSTD: u64 = 0x8000;

/// The containers that a wrapper, as a program registers it, stands for.
pub(crate) fn containers(wrapper: *const c_void) -> Vec<Vec<u8>> {
    let word = |at: usize| raw::get(wrapper.wrapping_byte_add(at).cast::<u32>());
    let pointer = |at: usize| raw::get(wrapper.wrapping_byte_add(at).cast::<*const c_void>());
    if word(0) != Some(WRAPPER) {
        return Vec::new();
    }
    let mut found = Vec::new();
    if word(4) == Some(2)
        && let Some(table) = pointer(16)
    {
        // Linked device code: the PTX is in the containers that were linked.
        let mut at = 0;
        while let Some(one) = raw::element(table.cast::<*const c_void>(), at)
            && !one.is_null()
        {
            found.extend(container(one));
            at += 1;
        }
    } else if let Some(one) = pointer(8) {
        found.extend(container(one));
    }
    found
}

fn container(at: *const c_void) -> Option<Vec<u8>> {
    let head = raw::bytes(at, 16);
    if u32_at(&head, 0)? != CONTAINER {
        return None;
    }
    let size = u64_at(&head, 8)?;
    Some(raw::bytes(at, 16 + usize::try_from(size).ok()?))
}

/// The texts of PTX in a container, and which architectures it has machine code for.
#[derive(Debug, Default)]
pub(crate) struct Images {
    pub(crate) ptx: Vec<String>,
    pub(crate) machine: Vec<u32>,
    /// What could not be read, in words.
    pub(crate) broken: Vec<String>,
}

pub(crate) fn images(container: &[u8]) -> Images {
    let mut images = Images::default();
    let mut at = 16;
    while let Some(entry) = Entry::at(container, at) {
        match entry.kind {
            1 => match entry.text() {
                Ok(text) => images.ptx.push(text),
                Err(why) => images.broken.push(why),
            },
            _ => images.machine.push(entry.arch),
        }
        at += entry.size;
    }
    images
}

struct Entry<'c> {
    kind: u16,
    arch: u32,
    flags: u64,
    whole: usize,
    payload: &'c [u8],
    size: usize,
}

impl Entry<'_> {
    fn at(container: &[u8], at: usize) -> Option<Entry<'_>> {
        let head = container.get(at..at + 64)?;
        let (header, len) = (u32_at(head, 4)? as usize, u64_at(head, 8)? as usize);
        if header < 64 {
            return None;
        }
        let payload = container.get(at + header..(at + header).checked_add(len)?)?;
        let packed = u32_at(head, 16)? as usize;
        Some(Entry {
            kind: u16::from_le_bytes([head[0], head[1]]),
            arch: u32_at(head, 28)?,
            flags: u64_at(head, 40)?,
            whole: u64_at(head, 56)? as usize,
            payload: match packed {
                0 => payload,
                packed => payload.get(..packed)?,
            },
            size: header + len,
        })
    }

    /// The text of PTX, unpacked.
    fn text(&self) -> Result<String, String> {
        let bytes = if self.flags & ZSTD != 0 {
            let mut out = Vec::new();
            ruzstd::decoding::StreamingDecoder::new(self.payload)
                .map_err(|error| error.to_string())?
                .read_to_end(&mut out)
                .map_err(|error| error.to_string())?;
            out
        } else if self.flags & LZ4 != 0 {
            lz4_flex::block::decompress(self.payload, self.whole)
                .map_err(|error| error.to_string())?
        } else {
            self.payload.to_vec()
        };
        let text = bytes.split(|byte| *byte == 0).next().unwrap_or(&[]);
        Ok(String::from_utf8_lossy(text).into_owned())
    }
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let four = bytes.get(at..at + 4)?;
    Some(u32::from_le_bytes(four.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    let eight = bytes.get(at..at + 8)?;
    Some(u64::from_le_bytes(eight.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(kind: u16, arch: u32, flags: u64, whole: u64, packed: u32, payload: &[u8]) -> Vec<u8> {
        let len = payload.len().next_multiple_of(8);
        let mut bytes = vec![0; 64];
        bytes[..2].copy_from_slice(&kind.to_le_bytes());
        bytes[4..8].copy_from_slice(&64u32.to_le_bytes());
        bytes[8..16].copy_from_slice(&(len as u64).to_le_bytes());
        bytes[16..20].copy_from_slice(&packed.to_le_bytes());
        bytes[28..32].copy_from_slice(&arch.to_le_bytes());
        bytes[40..48].copy_from_slice(&flags.to_le_bytes());
        bytes[56..64].copy_from_slice(&whole.to_le_bytes());
        bytes.extend_from_slice(payload);
        bytes.resize(64 + len, 0);
        bytes
    }

    fn container(entries: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = CONTAINER.to_le_bytes().to_vec();
        bytes.resize(16, 0);
        entries.iter().for_each(|entry| bytes.extend(entry));
        bytes
    }

    #[test]
    fn plain_and_packed_texts_are_read() {
        let text = ".version 8.0\n.target sm_90\n.target sm_90\n.target sm_90\n";
        let lz4 = lz4_flex::block::compress(text.as_bytes());
        let zstd = ruzstd::encoding::compress_to_vec(
            text.as_bytes(),
            ruzstd::encoding::CompressionLevel::Fastest,
        );
        let whole = text.len() as u64;
        let images = images(&container(&[
            entry(2, 80, 1, 0, 0, b"machine code"),
            entry(1, 90, 1, whole, 0, text.as_bytes()),
            entry(1, 90, 1 | LZ4, whole, lz4.len() as u32, &lz4),
            entry(1, 90, 1 | ZSTD, whole, zstd.len() as u32, &zstd),
            entry(1, 90, 1 | ZSTD, whole, 4, b"none"),
        ]));
        assert_eq!(images.ptx, [text, text, text]);
        assert_eq!(images.machine, [80]);
        assert_eq!(images.broken.len(), 1);
        assert!(super::images(&[0; 40]).ptx.is_empty());
    }
}
