//! The PTX in a program's image: fat binaries as nvcc embeds them.

#![allow(
    unsafe_code,
    reason = "images are in a program's memory, at pointers that it gives"
)]

use heist_ptx::arch::Arch;
use std::ffi::{CStr, c_void};
use std::io::Read;

const WRAPPER: u32 = 0x4662_43b1;
const CONTAINER: u32 = 0xba55_ed50;
const ELF: u32 = u32::from_le_bytes(*b"\x7fELF");
const LZ4: u64 = 0x2000;
const ZSTD: u64 = 0x8000;

/// What a program gives to the driver or registers with the runtime: device code in one of these
/// forms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Image {
    /// Containers of PTX and machine code.
    Containers(Vec<Vec<u8>>),
    /// A text of PTX.
    Ptx(String),
    /// Machine code alone: a cubin.
    Machine(Vec<u8>),
}

impl Image {
    /// Reads device code from memory: a wrapper, a container, an ELF file or a text.
    ///
    /// # Safety
    /// The memory is one of these, whole, and stays as it is meanwhile.
    pub unsafe fn at(start: *const c_void) -> Option<Image> {
        // SAFETY: as the caller guarantees.
        unsafe {
            match get::<u32>(start, 0)? {
                WRAPPER => Some(Image::Containers(containers(start))),
                CONTAINER => Some(Image::Containers(container(start).into_iter().collect())),
                ELF => Some(Image::Machine(bytes(start, elf_len(start)?))),
                _ => {
                    let text = CStr::from_ptr(start.cast());
                    Some(Image::Ptx(text.to_string_lossy().into_owned()))
                }
            }
        }
    }

    /// The same from a file's bytes.
    pub fn of(file: &[u8]) -> Image {
        match u32_at(file, 0) {
            Some(CONTAINER) => Image::Containers(vec![file.to_vec()]),
            Some(ELF) => Image::Machine(file.to_vec()),
            _ => {
                let text = file.split(|byte| *byte == 0).next().unwrap_or(&[]);
                Image::Ptx(String::from_utf8_lossy(text).into_owned())
            }
        }
    }

    /// What is in it.
    pub fn images(&self) -> Images {
        match self {
            Image::Containers(all) => {
                let mut found = Images::default();
                for one in all.iter().map(|one| images(one)) {
                    found.ptx.extend(one.ptx);
                    found.machine.extend(one.machine);
                    found.broken.extend(one.broken);
                }
                found
            }
            Image::Ptx(text) => Images {
                ptx: vec![text.clone()],
                ..Images::default()
            },
            // An ELF file of device code has its architecture in the flags.
            Image::Machine(elf) => Images {
                machine: vec![u32_at(elf, 48).unwrap_or(0) >> 8 & 0xffff],
                ..Images::default()
            },
        }
    }
}

/// Whether there is a wrapper, as nvcc puts it into programs.
///
/// # Safety
/// The pointer is null, or to device code.
pub unsafe fn is_wrapper(at: *const c_void) -> bool {
    // SAFETY: as the caller guarantees.
    unsafe { get(at, 0) == Some(WRAPPER) }
}

/// The containers that a wrapper, as a program registers it, stands for.
///
/// # Safety
/// The pointer is one that nvcc's code registers.
pub unsafe fn containers(wrapper: *const c_void) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    // SAFETY: as the caller guarantees; a wrapper says itself which of its words are there.
    unsafe {
        if get(wrapper, 0) != Some(WRAPPER) {
            return found;
        }
        let linked = get::<u32>(wrapper, 4) == Some(2);
        match get::<*const c_void>(wrapper, 16) {
            // Linked device code: the PTX is in the containers that were linked.
            Some(table) if linked && !table.is_null() => {
                let all = (0..).map_while(|at| get::<*const c_void>(table, at * 8));
                found.extend(
                    all.take_while(|one| !one.is_null())
                        .filter_map(|one| container(one)),
                );
            }
            _ => found.extend(get(wrapper, 8).and_then(|one| container(one))),
        }
    }
    found
}

/// # Safety
/// The pointer is null, or to a container.
unsafe fn container(at: *const c_void) -> Option<Vec<u8>> {
    // SAFETY: as the caller guarantees; the head says how long the rest is.
    unsafe {
        if get::<u32>(at, 0)? != CONTAINER {
            return None;
        }
        let size = get::<u64>(at, 8)?;
        Some(bytes(at, 16 + usize::try_from(size).ok()?))
    }
}

/// How long an ELF file in memory is: device code ends with its sections or its table of them.
///
/// # Safety
/// The pointer is to an ELF file of 64 bits.
unsafe fn elf_len(start: *const c_void) -> Option<usize> {
    // SAFETY: the head is there, and says where the tables are.
    unsafe {
        let table = |offset: usize, size: usize, count: usize| {
            let at = get::<u64>(start, offset)? as usize;
            let (size, count) = (get::<u16>(start, size)?, get::<u16>(start, count)?);
            Some((at, usize::from(size), usize::from(count)))
        };
        let (at, size, count) = table(0x28, 0x3a, 0x3c)?;
        let mut end = at + size * count;
        for section in 0..count {
            // Sections without bytes in the file have the kind 8.
            let head = at + section * size;
            if get::<u32>(start, head + 4)? != 8 {
                let (from, len) = (
                    get::<u64>(start, head + 0x18)?,
                    get::<u64>(start, head + 0x20)?,
                );
                end = end.max((from + len) as usize);
            }
        }
        let (at, size, count) = table(0x20, 0x36, 0x38)?;
        Some(end.max(at + size * count))
    }
}

/// # Safety
/// The pointer is null, or there is a value of this type so many bytes behind it.
unsafe fn get<T: Copy>(from: *const c_void, at: usize) -> Option<T> {
    // SAFETY: as the caller guarantees.
    (!from.is_null()).then(|| unsafe { from.byte_add(at).cast::<T>().read_unaligned() })
}

/// # Safety
/// So many bytes can be read.
unsafe fn bytes(from: *const c_void, len: usize) -> Vec<u8> {
    // SAFETY: as the caller guarantees.
    unsafe { std::slice::from_raw_parts(from.cast::<u8>(), len) }.to_vec()
}

/// The texts of PTX in a container, and which architectures it has machine code for.
#[derive(Debug, Default)]
pub struct Images {
    /// The texts.
    pub ptx: Vec<String>,
    /// The architectures, as numbers: 90.
    pub machine: Vec<u32>,
    /// What could not be read, in words.
    pub broken: Vec<String>,
}

impl Images {
    /// The text for the newest architecture that a device takes.
    pub fn best(&self, here: Arch) -> Option<&String> {
        let fits = |text: &&String| target(text).is_some_and(|arch| arch.runs_on(here));
        let newest = |text: &&String| {
            let name = target(text)?.name();
            let digits = name.trim_matches(|c: char| !c.is_ascii_digit());
            digits.parse::<u32>().ok()
        };
        self.ptx.iter().filter(fits).max_by_key(newest)
    }
}

/// The architecture that a text is for.
pub fn target(text: &str) -> Option<Arch> {
    let mut lines = text.lines().map(str::trim);
    let word = lines.find_map(|line| line.strip_prefix(".target"))?.trim();
    Arch::parse(word.split([',', ' ', ';']).next()?)
}

/// What a container has.
pub fn images(container: &[u8]) -> Images {
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
